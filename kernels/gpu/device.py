"""Names for Triton device functions of one's own, importable where Triton is not installed.

A plug-in's file runs on every machine; without Triton its device function is never compiled, and these names are None.
`tl` is `triton.language`; the others are approximate functions of one instruction each (see `gpu.math`), and
`softplus2(y)` = log2(1 + 2^y).
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("triton") is not None and not TYPE_CHECKING:
    import triton.language as tl

    from stau_rl.kernels.gpu.math import exp2, log2, reciprocal, softplus2
else:
    tl: Any = None
    exp2: Any = None
    log2: Any = None
    reciprocal: Any = None
    softplus2: Any = None

__all__ = ["exp2", "log2", "reciprocal", "softplus2", "tl"]
