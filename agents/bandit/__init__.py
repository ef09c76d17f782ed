"""Bandit policies; one file each, named by this registry.

A policy is `score | head`, such as `centred_ucb(c=1) | s_tau(tau=5)`, or a name, such as `thompson`. The name of an
index, such as `kl_ucb`, stands for `kl_ucb | argmax`.
"""

from stau_rl.agents.bandit.bayes_ucb import BayesUcb
from stau_rl.agents.bandit.boltzmann_gumbel import BoltzmannGumbel
from stau_rl.agents.bandit.gradient_bandit import GradientBandit
from stau_rl.agents.bandit.greedy import EpsGreedy, Greedy
from stau_rl.agents.bandit.imed import Imed
from stau_rl.agents.bandit.index import Index
from stau_rl.agents.bandit.kl_ucb import KlUcb, KlUcbPlus
from stau_rl.agents.bandit.moss import Moss, MossAnytime
from stau_rl.agents.bandit.pipe import RENORMALISE, Pipe
from stau_rl.agents.bandit.policy import Policy
from stau_rl.agents.bandit.scores import CentredUcb, Mean, RewardCentredUcb, Score, Ucb
from stau_rl.agents.bandit.thompson import Thompson
from stau_rl.agents.bandit.ucb1 import Ucb1
from stau_rl.agents.bandit.ucb_variance import Ucb1Tuned, UcbV
from stau_rl.agents.bandit.uniform_random import Random
from stau_rl.heads import HEADS, Argmax
from stau_rl.spec.grammar import Call, SpecError, parse_pipe
from stau_rl.spec.registry import Registry

SCORES: Registry[Score] = Registry(
    "score",
    *(Mean, Ucb, CentredUcb, RewardCentredUcb),
    *(Ucb1Tuned, UcbV, Moss, MossAnytime, KlUcb, KlUcbPlus, Imed, BayesUcb),
)
POLICIES: Registry[Policy] = Registry(
    "policy", Random, Greedy, EpsGreedy, Ucb1, Thompson, BoltzmannGumbel, GradientBandit
)


def parse_policy(text: str) -> Policy:
    """Read a policy from text such as `centred_ucb(c=1) | s_tau(tau=5)` or `eps_greedy(eps=0.1)`.

    Args:
        text: `score | head`, `score | head | renormalise`, a name from the registry `POLICIES`, or an index.

    Returns:
        The policy; its text parses back to it.

    Raises:
        SpecError: a ValueError that says which part is wrong and what would be accepted.

    Examples:
        >>> import stau_rl
        >>> print(stau_rl.parse_policy("centred_ucb(c=1) | s_tau(tau=5)"))
        centred_ucb | s_tau(tau=5)
    """
    calls = parse_pipe(text, "policy")
    renormalise = len(calls) == 3 and calls[2] == Call(RENORMALISE)
    if len(calls) == 2 or renormalise:
        score, head = SCORES.build(calls[0]), HEADS.build(calls[1])
        try:
            return Pipe(score, head, renormalise)
        except ValueError as error:
            raise SpecError(f"policy {text!r}: {error}") from None
    if len(calls) > 2:
        raise SpecError(
            f"policy {text!r}: expected one name, score | head, or score | head | {RENORMALISE}, "
            f"got a pipe of {len(calls)}"
        )
    name = calls[0].name
    if name in SCORES and issubclass(SCORES[name], Index):
        return Pipe(SCORES.build(calls[0]), Argmax())
    if name in SCORES and name not in POLICIES:
        raise SpecError(f"policy {text!r} is a score alone; add a head, as in '{name} | softmax(beta=1)'")
    if name in HEADS and name not in POLICIES:
        raise SpecError(f"policy {text!r} is a head alone; put a score before it, as in 'centred_ucb | {name}'")
    return POLICIES.build(calls[0])


__all__ = [
    "POLICIES",
    "SCORES",
    "BayesUcb",
    "BoltzmannGumbel",
    "CentredUcb",
    "EpsGreedy",
    "GradientBandit",
    "Greedy",
    "Imed",
    "Index",
    "KlUcb",
    "KlUcbPlus",
    "Mean",
    "Moss",
    "MossAnytime",
    "Pipe",
    "Policy",
    "Random",
    "RewardCentredUcb",
    "Score",
    "Thompson",
    "Ucb",
    "Ucb1",
    "Ucb1Tuned",
    "UcbV",
    "parse_policy",
]
