"""The settings behind docs/claim.md: a fixed list, so that anyone's rerun plays the same instances."""

from collections.abc import Sequence
from dataclasses import replace

from stau_rl.agents.bandit import parse_policy
from stau_rl.study.family import Family
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

# Annealed heads. {x} is the slope at score 0 that the last step adds, so that both grids reach equally far, and as far
# as those of fixed parameters; 1.386294 is 1 over the slope of log softplus at 0.
ANNEALED = (
    f"softmax(beta={{x}}*log(1+t)/log({HORIZON + 1}))",
    f"s_tau(tau=1+1.386294*{{x}}*log(1+t)/log({HORIZON + 1}))",
)
# An offset that leaves every score of these arms above 0.
POSITIVE = 8.0
# What one would pick instead of a head on scores, with the ends of a grid where there is a parameter to tune: as wide,
# from end to end, as those of the heads.
BASELINES: dict[str, tuple[float, float] | None] = {
    "thompson": None,
    "eps_greedy(eps={x})": (2.0**-11, 1.0),
    "boltzmann_gumbel(c={x})": (2.0**-7, 16.0),
}
ENTMAX = ("entmax(alpha={x})", (1.25, 2560.0))


def claim_settings(share: float = 1.0, only: Sequence[str] = ()) -> list[Setting]:
    """All settings of the page, the most important first; those of later studies come last.

    Args:
        share: of the instances, in (0, 1]; less than 1 is quicker and proves that everything runs.
        only: names of sweeps; the settings of these alone.

    Raises:
        ValueError: share is out of range, or `only` names no sweep.
    """
    settings = _first(share) + _later(share)
    known = list(dict.fromkeys(setting.sweep for setting in settings))
    for name in only:
        if name not in known:
            raise ValueError(f"only: unknown sweep {name!r}; known: {', '.join(known)}")
    return [setting for setting in settings if not only or setting.sweep in only]


def _first(share: float) -> list[Setting]:
    """Two heads raw, equally sharp and tuned, over what moves the answer."""
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


def _later(share: float) -> list[Setting]:
    """Annealed heads, scores above 0, other policies, and the limit of both heads where it is not known yet."""
    main, long = (_part(size, share) for size in (MAIN, LONG))
    cells = [(arms, c) for arms in ARMS.values() for c in BONUSES]
    settings = []
    for arms, c in cells:
        settings.append(fit_budget(_named(arms, c, "annealed", [f"{_score(c)} | {head}" for head in ANNEALED]), main))
    heads = (*CLAIMED, "escort(p=2)")
    for arms, c in cells:
        base = _named(arms, c, "positive", [f"{_score(c, POSITIVE)} | {head}" for head in heads])
        settings.append(fit_budget(replace(base, value=f"{arms} offset {POSITIVE:g} c {c:g}"), main))
    for c in BONUSES[1:]:
        # Means of 0/1 rewards are not negative, and a bonus lifts them above 0.
        base = _named(ARMS["Bernoulli"], c, "positive", [f"ucb(c={c:g}) | {head}" for head in heads])
        settings.append(fit_budget(replace(base, value=f"{base.arms} uncentred c {c:g}"), main))
    for arms, c in cells:
        families = [f"{_score(c)} | {head}" for head in (CLAIMED[0], "argmax", ANNEALED[0])]
        ranges = (*[None] * len(families), *BASELINES.values())
        base = _named(arms, c, "baselines", [*families, *BASELINES])
        settings.append(fit_budget(replace(base, ranges=ranges), main))
    for setting in _first(share):
        # An offset or the centre moves all scores alike, so argmax plays there as it does without.
        own = setting.sweep in ("k", "horizon", "empirical", "scale") and not setting.value.endswith(" scale 1")
        if own:
            score = str(Family(setting.families[0]).raw.score)
            limit = (str(parse_policy(f"{score} | argmax")), "random")
            settings.append(replace(setting, sweep="argmax", families=limit, references=()))
    for arms in ARMS.values():
        # Entmax runs on the torch engine alone; a tenth of the horizon is what it has time for.
        families = [f"{_score(0.25)} | {head}" for head in (CLAIMED[0], ENTMAX[0])]
        base = _named(arms, 0.25, "entmax", families)
        base = replace(base, value=f"{arms} horizon 1000", horizon=1_000, ranges=(None, ENTMAX[1]))
        settings.append(fit_budget(base, long))
    return settings


def _score(c: float, offset: float = 0.0) -> str:
    return f"centred_ucb(c={c:g}, offset={offset:g})" if offset else f"centred_ucb(c={c:g})"


def _named(arms: str, c: float, sweep: str, families: Sequence[str]) -> Setting:
    """A setting of a later study in the cell of these arms and this bonus."""
    return replace(_base(arms, c), sweep=sweep, value=f"{arms} c {c:g}", families=tuple(families))


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
