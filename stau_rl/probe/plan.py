"""What a probe trains: settings, each a task, its normalisers and how they are trained and tested."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise

from stau_rl.agents.attention.attention_normalisers import LOW, NormaliserGroup
from stau_rl.agents.attention.attention_spec import parse_attention
from stau_rl.envs.tasks import parse_task
from stau_rl.envs.tasks.check import check_task
from stau_rl.envs.tasks.task import Task
from stau_rl.plugin.plugin_task import own_source
from stau_rl.probe.model import Shape
from stau_rl.probe.train import Recipe

SIZES = ("small", "full")
MAY_BE_SILENT = (
    *("pn_fir_tau", "pn_fir_tau_calibrated", "pn_fir_tau_hill", "pn_fir_tau_hill_calibrated"),
    *("pn_fir_tau_sink", "pn_fir_tau_sink(calibrate=threshold)"),
)
FIR = ("sm_fir", "softmax_off_by_one_fir", "pn_fir", "pn_fir_c", *MAY_BE_SILENT)
ALL_FIR = (
    *FIR,
    *("ssmax_fir", "s_tau_fir", "escort_fir", "sparsemax_fir", "entmax15_fir", "learned_sink_fir", "softpick_fir"),
    *("rela_fir", "sigmoid_fir", "lssar_fir"),
)
PLAIN = (
    *("softmax", "softmax_scaled", "ssmax", "s_tau", "s_tau_closed", "escort", "sparsemax", "entmax15"),
    *("softmax_off_by_one", "learned_sink", "softpick", "rela", "sigmoid", "power_norm", "lssa", "lssar_p3", "lssar"),
)
LENGTH = (
    *("softmax", "ssmax", "s_tau", "lssa", "lssar_p3", "lssar"),
    *("reweight_softmax", "reweight_softmax(scores=dot)"),
)
LENGTH_FIR = (
    *("sm_fir", "ssmax_fir", "s_tau_fir", "lssa(fir_taps=7)", "lssar_p3(fir_taps=7)", "lssar_fir"),
    *("reweight_softmax(fir_taps=7)", "reweight_softmax(scores=dot, fir_taps=7)"),
)
RATIOS = (0.05, 0.2, 0.5, 1.0)
STARTS = (-2.0, -1.0, 0.0, 1.0, 2.0, 4.0)
FACTORS = (2, 4, 8, 16)
P, SIGMAS, TAPS = (2, 3, 5, 10, 15, 20), (0.5, 1.0, 2.0, 4.0), (1, 2, 3, 5, 7, 9)
MORE, TIMES = "more seeds", 8
"""Name of the part that trains on more seeds, and how many times as many."""
MOST_SEEDS = 10_000
PART = "probe"
"""Name of the settings that were asked for by name, without a place in the plan."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One task, trained and tested with several normalisers.

    Attributes:
        part: which question it belongs to.
        task: text of the task.
        normalisers: their texts.
        seeds: the seeds.
        shape: the architecture.
        recipe: the training.
        items: items that are tested per seed.
        factors: also test at these multiples of the trained length.
        test: text of the task that is tested, over the same tokens; empty for the trained one.

    Raises:
        ValueError: a text does not parse, a number is out of its range, or the parts do not fit together.
    """

    part: str
    task: str
    normalisers: tuple[str, ...]
    seeds: tuple[int, ...]
    shape: Shape = field(default_factory=Shape)
    recipe: Recipe = field(default_factory=Recipe)
    items: int = 4096
    factors: tuple[int, ...] = ()
    test: str = ""

    def __post_init__(self) -> None:
        """Parse every text and try what it asks for, so that a mistake shows before anything is trained."""
        task = parse_task(self.task)
        if own_source(type(task)) is not None:
            # Items of the default fields were looked at when it was registered.
            check_task(task)
        for text in self.normalisers:
            # Refuses learned parameters that start on their bound.
            NormaliserGroup([parse_attention(text)], 1)
        if self.factors and self.shape.positions == "learned":
            raise ValueError(
                f"factors={self.factors} ask for more places than the learned positions of {self.task} reach; give "
                "shape=Shape(positions='none') or 'rotary'"
            )
        tested = self.tested
        if (tested.kinds, tested.attends_itself, tested.length) != (task.kinds, task.attends_itself, task.length):
            raise ValueError(
                f"test={self.test!r} has other tokens, places or keys to attend to than the trained {self.task!r}; "
                "give a task that differs in what it draws alone"
            )
        for factor in self.factors:
            tested.longer(factor)
        if not self.normalisers or not self.seeds:
            raise ValueError("a setting needs at least one normaliser and one seed")
        if self.items < 1:
            raise ValueError(f"items must be at least 1, got {self.items}")

    @property
    def tested(self) -> Task:
        """The task that is tested, at the trained length."""
        return parse_task(self.test or self.task)

    @property
    def title(self) -> str:
        """Task, normalisers and part in a few words, different for every group of a plan."""
        some = self.normalisers if len(self.normalisers) < 3 else (self.normalisers[0], "...", self.normalisers[-1])
        part = "" if self.part in (PART, self.task) else f" ({self.part})"
        return f"{self.task}: {', '.join(some)}{part}"

    @property
    def units(self) -> int:
        """What progress is counted in: the steps, and the test as one more."""
        return self.recipe.steps + 1

    @property
    def work(self) -> int:
        """Normalisers x steps x layers, to which the time to train is about proportional."""
        return len(self.normalisers) * self.recipe.steps * self.shape.layers

    def groups(self, together: int) -> list["Setting"]:
        """This setting in pieces of at most `together` normalisers, alike in size."""
        count, pieces = len(self.normalisers), -(-len(self.normalisers) // together)
        ends = [count * piece // pieces for piece in range(pieces + 1)]
        return [replace(self, normalisers=self.normalisers[start:end]) for start, end in pairwise(ends)]

    def identity(self, device: str, plugins: Sequence[str] = ()) -> str:
        """Digest of everything that decides the numbers."""
        decides = asdict(self) | {"device": device, "plugins": sorted(plugins)}
        if any(parse_attention(text).calibrate == "threshold" for text in self.normalisers):
            decides["threshold_quantile"] = LOW
        own = {text: own_source(type(parse_task(text))) for text in (self.task, self.test) if text}
        if any(own.values()):
            decides["task_code"] = {text: source.sha256 for text, source in own.items() if source is not None}
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]


def plan(size: str, seeds: int) -> list[Setting]:
    """All settings of a size.

    Args:
        size: `small`, which a laptop trains in minutes, or `full`.
        seeds: seeds of each setting, 0, 1, ...

    Raises:
        ValueError: the size is unknown, or there are no seeds or more than 10 000.
    """
    if size not in SIZES:
        raise ValueError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
    if not 1 <= seeds <= MOST_SEEDS:
        raise ValueError(f"seeds must be from 1 to {MOST_SEEDS}, got {seeds}")
    numbers = tuple(range(seeds))
    return _small(numbers) if size == "small" else _full(numbers)


def _small(seeds: tuple[int, ...]) -> list[Setting]:
    quick = Recipe(steps=600)
    return [
        Setting("recall", "recall", ("softmax", "s_tau", "sm_fir", "pn_fir_tau"), seeds, recipe=quick, items=1024),
        Setting("silence", "silence", FIR, seeds, recipe=quick, items=1024),
        Setting(
            "length",
            "passkey(places=16)",
            ("softmax", "lssar_p3"),
            seeds,
            Shape(positions="none"),
            Recipe(steps=200, warm_up=50),
            items=256,
            factors=(4, 16),
        ),
    ]


def _full(seeds: tuple[int, ...]) -> list[Setting]:
    nope = Shape(positions="none")
    settings = [
        Setting("recall", "recall", (*PLAIN, *ALL_FIR), seeds),
        Setting("silence", "silence", ALL_FIR, seeds),
        Setting("null label", "silence(silence=null)", ALL_FIR, seeds),
        Setting(MORE, "silence", ("pn_fir", *MAY_BE_SILENT), tuple(range(TIMES * len(seeds)))),
    ]
    settings += [
        Setting("distractors", f"recall(distractor_ratio={ratio:g}, distractors={kind})", (*FIR, "softmax"), seeds)
        for kind in ("noise", "decoy", "near")
        for ratio in RATIOS
    ]
    settings += [
        Setting("amplitude", f"recall(amplitude={spread:g})", (*FIR, "softmax"), seeds) for spread in (0.25, 0.5, 1.0)
    ]
    starts = [f"pn_fir_tau(threshold={start:g})" for start in STARTS]
    settings += [
        Setting("threshold", task, (*starts, *(f"{text[:-1]}, calibrate=threshold)" for text in starts)), seeds)
        for task in ("recall", "silence")
    ]
    swept = [f"pn_fir_tau(p={p})" for p in P]
    swept += [f"{name}(fir_sigma={sigma:g})" for name in ("sm_fir", "pn_fir_tau") for sigma in SIGMAS]
    swept += [f"{name}(fir_taps={taps})" for name in ("sm_fir", "pn_fir_tau") for taps in TAPS]
    settings += [Setting("sweep", task, tuple(swept), seeds) for task in ("recall", "silence")]
    return [
        *settings,
        Setting("length", "passkey", LENGTH, seeds, nope, items=1024, factors=FACTORS),
        Setting("length", "recall(keys=160)", LENGTH_FIR, seeds, nope, Recipe(steps=3000), 1024, FACTORS),
        Setting("overwrite", "overwrite", (*FIR, "softmax"), seeds),
        Setting(
            "mqar",
            "mqar",
            ("softmax", "s_tau", "sparsemax", "entmax15", "power_norm", "sm_fir"),
            seeds,
            Shape(layers=2),
            Recipe(steps=3000),
            1024,
        ),
    ]
