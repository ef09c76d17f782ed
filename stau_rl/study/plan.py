"""Which settings a study plays: a base setting per set of arms, and sweeps that leave it one axis at a time."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stau_rl.envs.arms import Arms, BernoulliArms, GaussianArms, parse_arms
from stau_rl.kernels.purposes import purpose_seed
from stau_rl.plugin.plugin_head import plugin_hashes
from stau_rl.spec.grammar import SpecError
from stau_rl.study.family import Family, change_score
from stau_rl.study.grids import Grid, set_grids
from stau_rl.study.pilot import POINTS
from stau_rl.study.rescale import rescale
from stau_rl.study.setting import Setting

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
        tuning_share: instances of the first round of tuning per evaluated instance; the last round has as many as the
            evaluation.
        coarse: points of the first grid.
        fine: points of the second.
        floor: instances that are played whatever it costs.
        pilot: instances whose scores are collected, at most.
        recorded: instances x steps of that pilot run, at most.
    """

    arm_steps: float
    tuning_share: float
    coarse: int
    fine: int
    floor: int
    pilot: int
    recorded: float


SIZES = {"small": Size(2e8, 0.25, 12, 4, 200, 2048, 4e7), "full": Size(3e9, 0.25, 16, 8, 1024, 8192, 2e8)}
# Scores of a pilot, at most: what matching the entropy looks at again and again.
PILOT_SCORES = 1e7


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """What a study plays.

    Attributes:
        settings: in the order in which they are played.
        notes: a sentence for each sweep, or point of one, that had to be left out.
    """

    settings: list[Setting]
    notes: list[str]


def plan_study(
    families: Sequence[str],
    arms: Sequence[str],
    horizon: int,
    instances: int,
    seed: int,
    size: str = "small",
    sweeps: Sequence[str] | None = None,
    grid: Grid | None = None,
) -> StudyPlan:
    """The settings of a study.

    Args:
        families: two or more texts, the reference first; see `stau_rl.study.family`.
        arms: texts of the arms.
        horizon: steps per instance of the base settings.
        instances: evaluated instances per policy; fewer where the size's arm-steps do not allow as many.
        seed: the study's, in [0, 2^62).
        size: `small` or `full`.
        sweeps: axes of `SWEEPS` along which the base settings are left; None asks for all of them. One that cannot
            apply is left out, with a note: `k` needs arms whose means are drawn, `scale` Gaussian ones and families
            whose scale is known, `c`, `offset` and `centring` scores that have them; no point may make two families
            one.
        grid: values of the parameter, as in `stau_rl.study.grids.set_grids`; None for log-spaced slopes.

    Raises:
        ValueError: an argument is out of range, a text does not parse, or a sweep that is named applies to none of the
            arms.
    """
    named = sweeps is not None
    families, arms = _texts("families", families), _texts("arms", arms)
    sweeps = _texts("sweeps", SWEEPS if sweeps is None else sweeps, empty=True)
    if size not in SIZES:
        raise ValueError(f"size: unknown size {size!r}; known: {', '.join(SIZES)}")
    unknown = [sweep for sweep in sweeps if sweep not in SWEEPS]
    if unknown:
        raise ValueError(f"sweeps: unknown sweep {unknown[0]!r}; known: {', '.join(SWEEPS)}")
    texts = [_normal(text) for text in families]
    if len(texts) < 2 or len(set(texts)) < len(texts):
        raise ValueError(f"families must be two or more that differ, got {'; '.join(families)}")
    purpose_seed(seed, "evaluation")
    for name, value in (("horizon", horizon), ("instances", instances)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 2:
            raise ValueError(f"{name} must be a whole number >= 2, got {value!r}")
    settings: dict[str, Setting] = {}
    notes: list[str] = []
    played: set[str] = set()
    for text in dict.fromkeys(str(parse_arms(one)) for one in arms):
        base = Setting(
            sweep="base",
            value=text,
            arms=text,
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
            grids=set_grids(grid, texts, horizon),
        )
        points = [base]
        for sweep in dict.fromkeys(sweeps):
            found, reasons = try_sweep(base, sweep)
            points += found
            played |= {sweep} if found else set()
            notes += [f"{text}: sweep {sweep}: {reason}" for reason in reasons]
        for setting in points:
            fitted = fit_budget(setting, SIZES[size])
            # The point of a sweep that is the base setting itself is played once more only if it differs.
            settings.setdefault(replace(fitted, sweep="", value="").identity, fitted)
    for sweep in sweeps:
        if named and sweep not in played:
            raise ValueError(f"sweeps: {sweep!r} cannot be played: {next(n for n in notes if f' sweep {sweep}:' in n)}")
    return StudyPlan(list(settings.values()), notes)


def sweep_points(base: Setting, sweep: str, values: Sequence[float] | None = None) -> list[Setting]:
    """The settings of `try_sweep` alone."""
    return try_sweep(base, sweep, values)[0]


def try_sweep(base: Setting, sweep: str, values: Sequence[float] | None = None) -> tuple[list[Setting], list[str]]:
    """The settings of one sweep around a base setting, and why points of it are missing.

    Args:
        base: the setting to leave.
        sweep: an axis of `SWEEPS`.
        values: points on the axis; by default those of this module.

    Returns:
        The settings, none where the axis does not apply, and a sentence for each reason.
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

    points, reasons = [], []
    for value in defaults[sweep] if values is None else values:
        label = ("uncentred", "centred")[int(value)] if sweep == "centring" else f"{value:g}"
        try:
            changed = changes[sweep](base, value)
            _check_apart(changed)
        except SpecError as error:
            reasons.append(str(error))
            continue
        points.append(replace(changed, sweep=sweep, value=f"{base.value} {sweep} {label}"))
    return points, list(dict.fromkeys(reasons))


def _check_apart(setting: Setting) -> None:
    """Refuse a point at which two families are the same."""
    seen: dict[str, str] = {}
    for text in setting.families:
        family = Family(text)
        same = text if family.templated else str(family.raw.lowered())
        if same in seen:
            raise SpecError(f"it would make two families one, {text}")
        seen[same] = text


def fit_budget(setting: Setting, size: Size) -> Setting:
    """The setting with its instances cut so that a policy costs no more than the size allows."""
    cost = parse_arms(setting.arms).size * setting.horizon
    instances = min(setting.instances, max(size.floor, int(size.arm_steps / cost)))
    return replace(
        setting,
        instances=instances,
        tuning_instances=max(2, round(instances * size.tuning_share)),
        pilot_instances=max(
            2,
            min(
                size.pilot,
                int(size.recorded / setting.horizon),
                int(PILOT_SCORES / POINTS / parse_arms(setting.arms).size),
            ),
        ),
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


def _texts(name: str, texts: Sequence[str], empty: bool = False) -> tuple[str, ...]:
    """A list of texts as a tuple; a single text, and an empty list unless `empty`, are refused."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ValueError(f"{name} must be a list of texts, got {texts!r}")
    found = tuple(texts)
    for text in found:
        if not isinstance(text, str):
            raise ValueError(f"{name} must be texts, got {text!r}")
    if not found and not empty:
        raise ValueError(f"{name} must name at least one, got none")
    return found


def _content(families: Sequence[str], arms: Arms) -> tuple[str, ...]:
    hashes = plugin_hashes([Family(text).raw for text in families])
    digest = (arms.digest,) if arms.digest else ()
    return (*(f"{name} {hashes[name]}" for name in sorted(hashes)), *digest)


def _normal(text: str) -> str:
    """A family's text as its raw member prints it, with {x} left in place in a template."""
    family = Family(text)
    return family.canonical if family.templated else str(family.raw)
