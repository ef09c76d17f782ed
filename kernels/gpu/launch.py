"""Launches of Triton kernels without Triton's search for the compiled one, which takes the host longer than a launch.

`kernel[grid](...)` finds out at every call what its arguments ask of the compiler: types, alignment to 16 bytes,
whether an integer is 1 or a multiple of 16. `Launches` remembers the answer under a key that holds all of it, and calls
the compiled kernel, `compiled[grid](...)`, with addresses for tensors and every argument in its place. Settings of
Triton that would compile anew are looked at when a key is new; hooks on launches are called at each.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from torch import Tensor

VERSIONS = ("3.6.", "3.7.")
"""Triton whose compiled kernels are known to be called like this; others are launched in the ordinary way."""
MOST = 1024
"""Number of launches remembered; then all are forgotten, as those of rows that vary from call to call would pile up."""


class Launches:
    """Compiled kernels, each bound to its grid, by what they were compiled for."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Callable[..., None], tuple[Any, ...]]] = {}

    def __call__(
        self,
        key: tuple[Hashable, ...],
        tensors: Sequence[Tensor],
        numbers: tuple[int | float, ...],
        prepare: Callable[[], tuple[Any, int, Mapping[str, Any], int]],
    ) -> None:
        """Launch a kernel on the current device, which the tensors must be on.

        Args:
            key: whatever decides kernel, device, grid, types, constants and the integers among `numbers`; not the
                alignment of the tensors.
            tensors: the kernel's first arguments.
            numbers: those that follow. Floating-point numbers need not be in the key.
            prepare: for a key not seen before, the kernel, its number of programs, the constants by name in the order
                of the kernel's last arguments, and the number of warps.
        """
        places = [tensor.data_ptr() for tensor in tensors]
        key = (key, *[place % 16 == 0 for place in places])
        if (known := self._known.get(key)) is not None:
            compiled, constants = known
            compiled(*places, *numbers, *constants)
            return
        kernel, programs, named, warps = prepare()
        made = kernel[(programs,)](*tensors, *numbers, **named, num_warps=warps)
        if _is_callable(made):
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[key] = made[(programs, 1, 1)], tuple(named.values())


def _is_callable(made: object) -> bool:
    """Whether this is a compiled kernel of a known version; the interpreter makes none."""
    import triton
    from triton.compiler import CompiledKernel

    return isinstance(made, CompiledKernel) and triton.__version__.startswith(VERSIONS)
