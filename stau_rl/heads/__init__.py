"""Heads: rules that turn a vector of scores into weights. One file each; this registry names them all.

>>> import torch
>>> from stau_rl.heads import parse_head
>>> parse_head("s_tau(tau=5)").weights(torch.tensor([0.3, -1.2, 2.0, 0.0])).tolist()[2] > 0.98
True
"""

from stau_rl.heads.argmax import Argmax
from stau_rl.heads.base import Head
from stau_rl.heads.clamp_power import ClampPower
from stau_rl.heads.entmax import Entmax
from stau_rl.heads.entmax15 import Entmax15
from stau_rl.heads.escort import Escort
from stau_rl.heads.learned_sink import LearnedSink
from stau_rl.heads.lssar import Lssar
from stau_rl.heads.power_norm import PowerNorm
from stau_rl.heads.registry import HEADS
from stau_rl.heads.rela import Rela
from stau_rl.heads.relu_norm import ReluNorm
from stau_rl.heads.reweight import Reweight
from stau_rl.heads.s_tau import STau, log_s_tau, s_tau
from stau_rl.heads.sigmoid import Sigmoid
from stau_rl.heads.sigmoid_norm import SigmoidNorm
from stau_rl.heads.softmax import Softmax
from stau_rl.heads.softmax_off_by_one import SoftmaxOffByOne
from stau_rl.heads.softpick import Softpick
from stau_rl.heads.softplus_norm import SoftplusNorm
from stau_rl.heads.sparsemax import Sparsemax
from stau_rl.heads.ssmax import SSMax
from stau_rl.spec.grammar import SpecError
from stau_rl.spec.registry import Registry

for _head in (
    *(
        Softmax,
        STau,
        ClampPower,
        Escort,
        SoftplusNorm,
        SigmoidNorm,
        ReluNorm,
        Argmax,
        Sparsemax,
        Entmax15,
        Entmax,
        SSMax,
    ),
    *(SoftmaxOffByOne, LearnedSink, Softpick, PowerNorm, Reweight, Lssar, Rela, Sigmoid),
):
    HEADS.register(_head)


def parse_head(text: str) -> Head:
    """Read a head from text such as `s_tau(tau=5)`.

    Args:
        text: a name from the registry `HEADS`, and its parameters: numbers, words, or expressions of the step t.

    Returns:
        The head, a frozen dataclass; its text parses back to it.

    Raises:
        SpecError: a ValueError that says which part is wrong and what would be accepted.

    Examples:
        >>> import torch
        >>> import stau_rl
        >>> head = stau_rl.parse_head("s_tau(tau=5)")
        >>> head.weights(torch.tensor([0.3, -1.2, 2.0, 0.0])).round(decimals=4)
        tensor([0.0103, 0.0000, 0.9860, 0.0036])
    """
    return HEADS.parse(text)


__all__ = [
    "HEADS",
    "Argmax",
    "ClampPower",
    "Entmax",
    "Entmax15",
    "Escort",
    "Head",
    "LearnedSink",
    "Lssar",
    "PowerNorm",
    "Registry",
    "Rela",
    "ReluNorm",
    "Reweight",
    "SSMax",
    "STau",
    "Sigmoid",
    "SigmoidNorm",
    "Softmax",
    "SoftmaxOffByOne",
    "Softpick",
    "SoftplusNorm",
    "Sparsemax",
    "SpecError",
    "log_s_tau",
    "parse_head",
    "s_tau",
]
