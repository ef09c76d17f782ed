"""Which settings a study plays: a base setting per set of arms, and sweeps that leave it one axis at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stau_rl.agents import Pipe, parse_policy
from stau_rl.envs import Arms, BernoulliArms, EmpiricalArms, GaussianArms, parse_arms
from stau_rl.plugin import plugin_hashes
from stau_rl.study_family import Family, change_score
from stau_rl.study_seeds import purpose_seed
from stau_rl.study_setting import Setting
from stau_rl.text import SpecError

SWEEPS = ("c", "k", "horizon", "offset", "scale", "centring")
BONUSES = (0.0, 0.25, 0.5, 1.0)
ARM_NUMBERS = (2, 10, 32, 128)
HORIZONS = (100, 1_000, 10_000, 100_000)
OFFSETS = (-8.0, -2.0, 2.0, 8.0)
SCALES = (0.01, 0.1, 10.0, 100.0)
REFERENCES = ("random", "ucb1")
# Slopes at score 0 between which every family is tuned; s^tau at tau = 1 has 0.72.
LOW, HIGH = 0.75, 1536.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much work a study does for one policy.

    Attributes:
        arm_steps: instances x arms x steps of one evaluated policy, at most; instances are cut to fit.
        tuning_share: tuning instances per evaluated instance.
        coarse: points of the first grid.
        fine: points of the second.
        floor: instances that are played whatever it costs.
    """

    arm_steps: float
    tuning_share: float
    coarse: int
    fine: int
    floor: int


SIZES = {"small": Size(1e8, 0.5, 12, 4, 128), "full": Size(8e8, 0.5, 16, 8, 512)}


def plan_study(
    families: Sequence[str],
    arms: Sequence[str],
    horizon: int,
    instances: int,
    seed: int,
    size: str = "small",
    sweeps: Sequence[str] = SWEEPS,
) -> list[Setting]:
    """The settings of a study, in the order in which they are played.

    Args:
        families: two or more texts, the reference first; see `stau_rl.study_family`.
        arms: texts of the arms.
        horizon: steps per instance of the base settings.
        instances: evaluated instances per policy; fewer where the size's arm-steps do not allow as many.
        seed: the study's, in [0, 2^62).
        size: `small` or `full`.
        sweeps: axes of `SWEEPS` along which the base settings are left. One that cannot apply is left out: `k` needs
            arms whose means are drawn, `scale` Gaussian ones, `c`, `offset` and `centring` scores that have them.

    Raises:
        ValueError: an argument is out of range, or a text does not parse.
    """
    if size not in SIZES:
        raise ValueError(f"unknown size {size!r}; known: {', '.join(SIZES)}")
    unknown = [sweep for sweep in sweeps if sweep not in SWEEPS]
    if unknown:
        raise ValueError(f"unknown sweep {unknown[0]!r}; known: {', '.join(SWEEPS)}")
    texts = [_normal(text) for text in families]
    if len(texts) < 2 or len(set(texts)) < len(texts):
        raise ValueError(f"a study compares two or more different families, got {'; '.join(families)}")
    purpose_seed(seed, "evaluation")
    for name, value in (("horizon", horizon), ("instances", instances)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 2:
            raise ValueError(f"{name} must be a whole number >= 2, got {value!r}")
    settings: dict[str, Setting] = {}
    for text in arms:
        base = Setting(
            sweep="base",
            value=str(parse_arms(text)),
            arms=str(parse_arms(text)),
            families=tuple(texts),
            horizon=horizon,
            instances=instances,
            tuning_instances=0,
            pilot_instances=0,
            seed=seed,
            low=LOW,
            high=HIGH,
            coarse=SIZES[size].coarse,
            fine=SIZES[size].fine,
            references=REFERENCES,
            content=_content(texts, parse_arms(text)),
        )
        for setting in [base, *(point for sweep in sweeps for point in sweep_points(base, sweep))]:
            fitted = fit_budget(setting, SIZES[size])
            # The point of a sweep that is the base setting itself is played once more only if it differs.
            settings.setdefault(replace(fitted, sweep="", value="").identity, fitted)
    return list(settings.values())


def sweep_points(base: Setting, sweep: str, values: Sequence[float] | None = None) -> list[Setting]:
    """The settings of one sweep around a base setting; none where the axis does not apply.

    Args:
        base: the setting to leave.
        sweep: an axis of `SWEEPS`.
        values: points on the axis; by default those of this module.
    """
    defaults: dict[str, Sequence[float]] = {
        "c": BONUSES, "k": ARM_NUMBERS, "horizon": HORIZONS, "offset": OFFSETS, "scale": SCALES, "centring": (0, 1),
    }  # fmt: skip
    changes: dict[str, Callable[[Setting, float], Setting]] = {
        "c": lambda setting, c: _scored(setting, c=c),
        "k": _with_arms,
        "horizon": lambda setting, horizon: replace(setting, horizon=int(horizon)),
        "offset": lambda setting, offset: _scored(setting, offset=offset),
        "scale": rescale,
        "centring": lambda setting, on: _scored(setting, name="centred_ucb" if on else "ucb"),
    }

    def points() -> Iterator[Setting]:
        for value in defaults[sweep] if values is None else values:
            try:
                changed = changes[sweep](base, value)
            except SpecError:
                continue
            label = ("uncentred", "centred")[int(value)] if sweep == "centring" else f"{value:g}"
            yield replace(changed, sweep=sweep, value=f"{base.value} {sweep} {label}")

    return list(points())


def rescale(setting: Setting, scale: float) -> Setting:
    """The setting with all rewards multiplied by `scale`, and with them the bonus and the range of inverse slopes."""
    arms = parse_arms(setting.arms)
    if not isinstance(arms, GaussianArms):
        raise SpecError(f"only Gaussian arms can be rescaled, got {setting.arms}")
    if arms.means is None:
        scaled: Arms = replace(arms, loc=arms.loc * scale, scale=arms.scale * scale, sigma=arms.sigma * scale)
    else:
        scaled = replace(arms, means=tuple(scale * mean for mean in arms.means), sigma=arms.sigma * scale)
    families = tuple(
        change_score(text, c=bonus * scale) if (bonus := _bonus(text)) else text for text in setting.families
    )
    references = tuple(f"ucb(c={scale:g}) | argmax" if text == "ucb1" else text for text in setting.references)
    low, high = setting.low / max(scale, 1.0), setting.high / min(scale, 1.0)
    return replace(setting, arms=str(scaled), families=families, references=references, low=low, high=high)


def fit_budget(setting: Setting, size: Size) -> Setting:
    """The setting with its instances cut so that a policy costs no more than the size allows."""
    cost = parse_arms(setting.arms).size * setting.horizon
    instances = min(setting.instances, max(size.floor, int(size.arm_steps / cost)))
    return replace(
        setting,
        instances=instances,
        tuning_instances=max(2, round(instances * size.tuning_share)),
        pilot_instances=min(64, instances),
    )


def _scored(setting: Setting, **changes: Any) -> Setting:
    """The setting with another argument of every score; named policies have none and stay."""
    if not any("|" in text for text in setting.families):
        raise SpecError("none of the families has a score to change")
    changed = tuple(change_score(text, **changes) if "|" in text else text for text in setting.families)
    return replace(setting, families=changed)


def _with_arms(setting: Setting, k: float) -> Setting:
    arms = parse_arms(setting.arms)
    if not isinstance(arms, (BernoulliArms, GaussianArms)) or arms.k is None:
        raise SpecError(f"only arms whose means are drawn come in other numbers, got {setting.arms}")
    return replace(setting, arms=str(replace(arms, k=int(k))))


def _bonus(text: str) -> float:
    policy = parse_policy(Family(text).raw)
    return float(getattr(policy.score, "c", 0.0)) if isinstance(policy, Pipe) else 0.0


def _content(families: Sequence[str], arms: Arms) -> tuple[str, ...]:
    hashes = plugin_hashes([parse_policy(Family(text).raw) for text in families])
    digest = (arms.digest,) if isinstance(arms, EmpiricalArms) else ()
    return (*(f"{name} {hashes[name]}" for name in sorted(hashes)), *digest)


def _normal(text: str) -> str:
    """A family's text as its raw member prints it, unless it is a template."""
    family = Family(text)
    return text.strip() if family.templated else family.raw
