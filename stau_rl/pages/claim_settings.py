"""The settings behind docs/claim.md: a fixed list, so that anyone's rerun plays the same instances."""

from dataclasses import replace

from stau_rl.agents.bandit import parse_policy
from stau_rl.study.plan import HIGH, LOW, REFERENCES, Size, fit_budget, sweep_points
from stau_rl.study.setting import Setting

SEED = 2026
HORIZON = 10_000
ARMS = {"Bernoulli": "bernoulli(k=10)", "Gaussian": "gaussian(k=10)"}
# Counts of insects on plots treated with six sprays. Beall, "The transformation of data from entomological field
# experiments", Biometrika 29, 1942.
SPRAYS = "empirical(file='notebooks/results/insect_sprays.csv', arm=spray, reward=count)"
BONUSES = (0.0, 0.25, 0.5, 1.0)
OFFSETS = (-8.0, -4.0, -2.0, 0.0, 2.0, 4.0, 8.0)
SCALES = (0.01, 0.1, 1.0, 10.0, 100.0)

# The claim's own parameters.
CLAIMED = ("softmax(beta=1)", "s_tau(tau=5)")
# Two heads that are equally steep at score 0, and steep enough to play well.
STEEP = ("softmax(beta=32)", "s_tau(tau=44.3614)")

# One size for all: a pair of tuned heads in one setting has the same numbers in whichever sweep it stands. Ten arms and
# 10 000 steps have 131 072 instances then. What costs more per instance has more arm-steps, as its regrets vary more.
MAIN = Size(arm_steps=1.31072e10, tuning_share=0.125, coarse=16, fine=8, floor=2, pilot=8192, recorded=4e8)
LONG = replace(MAIN, arm_steps=3.2768e10)
INSTANCES = 131_072


def claim_settings(share: float = 1.0) -> list[Setting]:
    """All settings of the page, the most important first.

    Args:
        share: of the instances, in (0, 1]; less than 1 is quicker and proves that everything runs.
    """
    main, long = (_part(size, share) for size in (MAIN, LONG))
    settings = []
    bases = {name: _base(arms, 0.25) for name, arms in ARMS.items()}
    for base in bases.values():
        settings += [fit_budget(point, main) for point in sweep_points(base, "c", BONUSES)]
    for base in bases.values():
        settings += [fit_budget(point, long) for point in sweep_points(base, "k", (2, 32, 128))]
        settings += [fit_budget(point, long) for point in sweep_points(base, "horizon", (100, 1_000, 100_000))]
    sprays = replace(_base(SPRAYS, 1.0), sweep="empirical", value="insect sprays")
    settings.append(fit_budget(sprays, main))
    for base in (_base(arms, 0.25, STEEP) for arms in ARMS.values()):
        settings += [fit_budget(point, main) for point in sweep_points(base, "offset", OFFSETS)]
        settings += [fit_budget(point, main) for point in sweep_points(base, "centring", (0,))]
    steep = _base(ARMS["Gaussian"], 0.25, STEEP)
    settings += [fit_budget(point, main) for point in sweep_points(steep, "scale", SCALES)]
    # What every head becomes as it gets ever steeper; nothing is tuned here.
    for arms in ARMS.values():
        for c in BONUSES:
            families = (str(parse_policy(f"centred_ucb(c={c:g}) | argmax")), "random")
            limit = replace(_base(arms, c), sweep="limit", value=f"{arms} c {c:g}", families=families, references=())
            settings.append(fit_budget(limit, main))
    return settings


def _part(size: Size, share: float) -> Size:
    """A size with a share of its instances."""
    if not 0.0 < share <= 1.0:
        raise ValueError(f"share must lie in (0, 1], got {share!r}")
    return replace(size, arm_steps=size.arm_steps * share, pilot=max(64, round(size.pilot * share)))


def _base(arms: str, c: float, heads: tuple[str, ...] = CLAIMED) -> Setting:
    score = f"centred_ucb(c={c:g})"
    return Setting(
        sweep="base",
        value=arms,
        arms=arms,
        families=tuple(f"{score} | {head}" for head in heads),
        horizon=HORIZON,
        instances=INSTANCES,
        tuning_instances=0,
        pilot_instances=0,
        seed=SEED,
        low=LOW,
        high=HIGH,
        coarse=MAIN.coarse,
        fine=MAIN.fine,
        references=REFERENCES,
    )
