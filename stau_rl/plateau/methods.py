"""What the plateau benchmark compares: a head as it is, or one whose sharpness the policy gradient learns.

| text | what it is |
| --- | --- |
| `softmax` | the head with its parameters as written, its largest initial score at 10 |
| `fixed(s_tau(tau=2), top=0)` | the same with another largest initial score |
| `learned(s_tau(tau=2))` | tau starts at 2 and follows the same gradient as the scores |
| `learned(s_tau(tau=2), rate=0.01)` | remedy: a step size of its own for tau, here a hundredth of the scores' |
| `learned(s_tau(tau=2), freeze=2000)` | remedy: tau stays where it is for the first 2 000 updates |
| `learned(s_tau(tau=2), target=0.05)` | remedy: tau steers the entropy to 0.05 log K and sees no reward |
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from stau_rl.heads import HEADS, Head
from stau_rl.heads.parameter import Range
from stau_rl.nn.parameter_map import to_raw
from stau_rl.spec.grammar import SpecError, format_spec, parse_pipe
from stau_rl.spec.registry import Registry

TOP = 10.0
"""Default of the largest initial score: the positive offset of s^tau, at which it is a power law."""

DEFAULT_METHODS = (
    "softmax(beta=1)",
    "escort(p=2)",
    "s_tau(tau=2)",
    "fixed(s_tau(tau=2), top=0)",
    "learned(s_tau(tau=2))",
    "learned(s_tau(tau=2), rate=0.01)",
    "learned(s_tau(tau=2), freeze=2000)",
    "learned(s_tau(tau=2), target=0.05)",
)


@dataclass(frozen=True, slots=True)
class Fixed:
    """A head whose parameters stay.

    Attributes:
        head: the head; its weights sum to 1 in every row.
        top: the largest initial score.
    """

    name: ClassVar[str] = "fixed"
    head: Head = field(metadata={"registry": HEADS})
    top: float = TOP

    def __post_init__(self) -> None:
        """Check the head and the offset."""
        _check(self.head, self.top)

    def __str__(self) -> str:
        """The head's own text where the offset is the default one."""
        return str(self.head) if self.top == TOP else _text(self)


@dataclass(frozen=True, slots=True)
class Learned:
    """A head whose sharpness is learned through an unbounded number: tau = 1 + softplus(raw), as `stau_rl.nn` has it.

    Attributes:
        head: the head; its sharpness is where learning starts.
        top: the largest initial score.
        rate: step size of `raw` as a multiple of the scores', > 0.
        freeze: number of first updates that leave it as it is.
        target: None for the policy gradient; else raw += rate step_size (H / log K - target), with the policy's
            entropy H, and no reward reaches it.
    """

    name: ClassVar[str] = "learned"
    head: Head = field(metadata={"registry": HEADS})
    top: float = TOP
    rate: float = 1.0
    freeze: int = 0
    target: float | None = None

    def __post_init__(self) -> None:
        """Check the head and the numbers."""
        _check(self.head, self.top)
        if self.head.sharpness is None:
            raise ValueError(f"learned: {self.head} has no sharpness to learn; a head with one is s_tau(tau=2)")
        to_raw("learned", self.parameter, self.start, self.limits)
        if not (self.rate > 0 and math.isfinite(self.rate)):
            raise ValueError(f"learned: rate must be finite and > 0, got {self.rate!r}")
        if self.freeze < 0:
            raise ValueError(f"learned: freeze must be a number of updates >= 0, got {self.freeze!r}")
        if self.target is not None and not 0 < self.target < 1:
            raise ValueError(f"learned: target must be a share of log K in (0, 1) or None, got {self.target!r}")

    @property
    def parameter(self) -> str:
        """Name of the learned parameter."""
        return str(self.head.sharpness)

    @property
    def start(self) -> float:
        """Its initial value."""
        return float(getattr(self.head, self.parameter))

    @property
    def limits(self) -> Range:
        """The range that it stays in."""
        return self.head._ranges().get(self.parameter, Range())

    def __str__(self) -> str:
        """Text that reads back as this method."""
        return _text(self)


Method = Fixed | Learned
METHODS: Registry[Any] = Registry("method", Fixed, Learned)


def parse_method(text: str) -> Method:
    """Read a method: the text of a head, or `fixed(head, ...)` or `learned(head, ...)`.

    Raises:
        SpecError: the text names none, or an argument is out of range.
    """
    calls = parse_pipe(text, "method")
    if len(calls) != 1:
        raise SpecError(f"expected one head, got a pipe of {len(calls)}: {text!r}")
    if calls[0].name in METHODS:
        made: Method = METHODS.build(calls[0])
        return made
    try:
        return Fixed(HEADS.build(calls[0]))
    except SpecError:
        raise
    except ValueError as error:
        raise SpecError(str(error)) from None


def _check(head: Head, top: float) -> None:
    if head.schedules:
        raise ValueError(f"{head} changes with t; the plateau benchmark takes heads with fixed or learned parameters")
    if head.mass_kind != "simplex":
        raise ValueError(f"{head} may abstain: its weights need not sum to 1. The plateau benchmark takes other heads")
    if not math.isfinite(top):
        raise ValueError(f"top must be finite, got {top!r}")


def _text(method: Any) -> str:
    # The head comes first and unnamed, as in the table above.
    return format_spec(method).replace("(head=", "(", 1)
