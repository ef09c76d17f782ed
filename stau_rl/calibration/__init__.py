"""Calibration: which softmax equals a given s^tau, which tau is nearest to softmax, which parameters match two heads.

>>> from stau_rl.calibration import match_sharpness
>>> from stau_rl.heads import STau
>>> print(match_sharpness(STau(tau=5, eps=0), "softmax"))
softmax(beta=3.6067376022224087)
"""

from stau_rl.calibration.equivalence import s_tau_to_softmax, softmax_to_s_tau
from stau_rl.calibration.matching import match_sharpness, mean_entropy
from stau_rl.calibration.optimal_tau import TauStar, tau_star

__all__ = ["TauStar", "match_sharpness", "mean_entropy", "s_tau_to_softmax", "softmax_to_s_tau", "tau_star"]
