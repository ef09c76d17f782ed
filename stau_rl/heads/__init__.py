"""Heads: rules that turn a vector of scores into weights. One file each; this registry names them all.

>>> import torch
>>> from stau_rl.heads import parse_head
>>> parse_head("s_tau(tau=5)").weights(torch.tensor([0.3, -1.2, 2.0, 0.0])).tolist()[2] > 0.98
True
"""

from stau_rl.heads.argmax import Argmax
from stau_rl.heads.base import Head
from stau_rl.heads.escort import Escort
from stau_rl.heads.s_tau import STau, log_s_tau, s_tau
from stau_rl.heads.sigmoid_norm import SigmoidNorm
from stau_rl.heads.softmax import Softmax
from stau_rl.heads.softplus_norm import SoftplusNorm
from stau_rl.text import Registry, SpecError

HEADS: Registry[Head] = Registry("head", Softmax, STau, Escort, SoftplusNorm, SigmoidNorm, Argmax)


def parse_head(text: str) -> Head:
    """Read a head from text such as `s_tau(tau=5)`; a SpecError says what is wrong."""
    return HEADS.parse(text)


__all__ = [
    "HEADS",
    "Argmax",
    "Escort",
    "Head",
    "Registry",
    "STau",
    "SigmoidNorm",
    "Softmax",
    "SoftplusNorm",
    "SpecError",
    "log_s_tau",
    "parse_head",
    "s_tau",
]
