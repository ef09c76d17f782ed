"""The settings behind docs/claim.md: a fixed list, so that anyone's rerun plays the same instances."""

from dataclasses import replace
from pathlib import Path

from stau_rl.agents import parse_policy
from stau_rl.study_plan import HIGH, LOW, REFERENCES, Size, fit_budget, sweep_points
from stau_rl.study_setting import Setting

ROOT = Path(__file__).resolve().parent.parent
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

MAIN = Size(arm_steps=1.7e9, tuning_share=0.25, coarse=16, fine=8, floor=1024)
SWEEP = Size(arm_steps=4.1e8, tuning_share=0.25, coarse=14, fine=6, floor=1024)


def claim_settings() -> list[Setting]:
    """All settings of the page, the most important first."""
    settings = []
    bases = {name: _base(arms, 0.25) for name, arms in ARMS.items()}
    for base in bases.values():
        settings += [fit_budget(point, MAIN) for point in sweep_points(base, "c", BONUSES)]
    for base in bases.values():
        settings += [fit_budget(point, SWEEP) for point in sweep_points(base, "k", (2, 32, 128))]
        settings += [fit_budget(point, SWEEP) for point in sweep_points(base, "horizon", (100, 1_000, 100_000))]
    sprays = replace(_base(SPRAYS, 1.0), sweep="empirical", value="insect sprays")
    settings.append(fit_budget(sprays, SWEEP))
    for base in (_base(arms, 0.25, STEEP) for arms in ARMS.values()):
        settings += [fit_budget(point, SWEEP) for point in sweep_points(base, "offset", OFFSETS)]
        settings += [fit_budget(point, SWEEP) for point in sweep_points(base, "centring", (0,))]
    steep = _base(ARMS["Gaussian"], 0.25, STEEP)
    settings += [fit_budget(point, SWEEP) for point in sweep_points(steep, "scale", SCALES)]
    # What every head becomes as it gets ever steeper; nothing is tuned here.
    for arms in ARMS.values():
        for c in BONUSES:
            families = (str(parse_policy(f"centred_ucb(c={c:g}) | argmax")), "random")
            limit = replace(_base(arms, c), sweep="limit", value=f"{arms} c {c:g}", families=families, references=())
            settings.append(fit_budget(limit, MAIN))
    return settings


def _base(arms: str, c: float, heads: tuple[str, ...] = CLAIMED) -> Setting:
    score = f"centred_ucb(c={c:g})"
    return Setting(
        sweep="base",
        value=arms,
        arms=arms,
        families=tuple(f"{score} | {head}" for head in heads),
        horizon=HORIZON,
        instances=16_384,
        tuning_instances=0,
        pilot_instances=0,
        seed=SEED,
        low=LOW,
        high=HIGH,
        coarse=MAIN.coarse,
        fine=MAIN.fine,
        references=REFERENCES,
    )
