"""Named problems: arms, steps and policies of experiments that others have published, ready to be played again."""

from dataclasses import dataclass
from typing import Any

from stau_rl.regret.result import RegretResult
from stau_rl.regret.run import run_regret
from stau_rl.spec.grammar import suggest


@dataclass(frozen=True, slots=True)
class Problem:
    """An experiment as it was published.

    Attributes:
        name: what it is asked for by.
        title: what it asks.
        source: where it comes from, and what was reported there.
        arms: the arms.
        policies: the policies, the first of them the baseline.
        horizon: steps of a run.
        instances: runs.
        rivals: names of two heads whose grids are compared, each at its best: the first against the second. Empty where
            policies are compared as they stand.
    """

    name: str
    title: str
    source: str
    arms: str
    policies: tuple[str, ...]
    horizon: int
    instances: int
    rivals: tuple[str, ...] = ()

    def run(self, instances: int | None = None, seed: int = 0, **options: Any) -> RegretResult:
        """Play it.

        Args:
            instances: another number of runs than the published one.
            seed: as in `run_regret`.
            **options: others of `run_regret`, such as `engine`, `out` or `checkpoints`.

        Returns:
            The regrets.

        Raises:
            ValueError: as `run_regret` does.
        """
        runs = self.instances if instances is None else instances
        return run_regret(self.arms, self.policies, self.horizon, runs, seed, **options)


SCORE = "reward_centred_ucb"
TAUS = (1, 2, 3, 5, 8, 15)
TEMPERATURES = (0.05, 0.1, 0.2, 0.3, 0.5, 1, 2)

PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem(
            "power_35",
            "Has a power of the clamped score 35 % less regret than softmax, each at the best of its grid?",
            "the experiment behind the figure of 35 %: weights max(s, 1e-8)^tau on UCB1's index less the mean of all "
            "rewards so far; 35.2 % less on 50 runs, each head at the best of its own grid on these runs",
            "bernoulli(means=[0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.55, 0.6, 0.7, 0.85])",
            (
                *(f"{SCORE} | softmax(beta={1 / temperature:g})" for temperature in TEMPERATURES),
                *(f"{SCORE} | clamp_power(tau={tau})" for tau in TAUS),
            ),
            3_000,
            50,
            ("clamp_power", "softmax"),
        ),
    )
}


def problem(name: str) -> Problem:
    """A published experiment by its name.

    Args:
        name: one of `stau-rl problems`.

    Returns:
        The problem; `run()` plays it.

    Raises:
        ValueError: the name is unknown; the nearest is suggested.

    Examples:
        >>> import stau_rl
        >>> published = stau_rl.problem("power_35")
        >>> published.horizon, published.instances, len(published.policies)
        (3000, 50, 13)
    """
    if name not in PROBLEMS:
        raise ValueError(f"unknown problem {name!r}{suggest(name, PROBLEMS)}")
    return PROBLEMS[name]
