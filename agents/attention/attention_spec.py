"""Attention heads as text: a normaliser, key smoothing, and which parameters are learned.

Of `pn_fir_tau` its authors fix 7 taps, sigma = 2, p = 10, a threshold that is one learned number per layer, and a row
mass given by the row's largest positive score. The rest is chosen here. That mass is read literally: min(1, m), the
gate `clamp`; `hill`, `sink` and `none` are variants. The threshold starts at 0 and is learned per head, which is per
layer where a layer has one head. The taps sum to 1 (`fir_norm=l1`).

>>> from stau_rl.agents.attention.attention_spec import parse_attention
>>> print(parse_attention("pn_fir_tau"))
attention(head=power_norm(p=10, threshold=0, gate=clamp), fir_taps=7, learn=[threshold])
>>> print(parse_attention("pn_fir_tau(p=4, fir_sigma=1)"))
attention(head=power_norm(p=4, threshold=0, gate=clamp), fir_taps=7, fir_sigma=1, learn=[threshold])
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

from stau_rl.agents.attention.key_smoothing import NORMS, half_gaussian_taps
from stau_rl.heads import HEADS, Head, Reweight, Softmax
from stau_rl.heads.parameter import Range
from stau_rl.spec.grammar import Call, SpecError, format_spec, parse_pipe, suggest
from stau_rl.spec.registry import Registry

MOST_TAPS = 1 << 16
SCORES, OUTPUTS, CALIBRATIONS = ("dot", "cosine"), ("plain", "rms"), ("none", "threshold", "tau_star")


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """What one attention head does between its projections.

    Attributes:
        head: the normaliser.
        fir_taps: taps of the key smoothing; 0 for none.
        fir_sigma: width of its half-Gaussian, in positions.
        learn: the parameters of the normaliser that are learned, one value per attention head.
        scores: `dot`, q.k / sqrt(d), or `cosine`, log d log n cos(q, k) with n keys in the row (LSSA).
        output: `plain`, or `rms`: what a row mixes is brought to unit mean square, for weights of any mass.
        calibrate: what the first batch sets: `none`; `threshold`, one below the 10 % quantile of the rows' largest
            scores; or `tau_star`, the closed form of `stau_rl.calibration.tau_star`, pooled over each head's rows.
        fir_norm: which norm of the filter is 1: `l1`, its sum, or `l2`, so that independent keys keep their scale.
        conv_taps: taps of a learned short causal convolution of the keys, in place of the smoothing: one filter per
            channel, which starts as the identity (1, 0, ..., 0); 0 for none. It comes before rotary positions.
    """

    name: ClassVar[str] = "attention"

    head: Head = field(default_factory=Softmax, metadata={"registry": HEADS, "show": True})
    fir_taps: int = 0
    fir_sigma: float = 2.0
    learn: tuple[str, ...] = ()
    scores: str = "dot"
    output: str = "plain"
    calibrate: str = "none"
    fir_norm: str = "l1"
    conv_taps: int = 0

    def __post_init__(self) -> None:
        """Check the parts and that they fit together."""
        for name, words in (
            ("fir_norm", NORMS),
            ("scores", SCORES),
            ("output", OUTPUTS),
            ("calibrate", CALIBRATIONS),
        ):
            if getattr(self, name) not in words:
                raise ValueError(f"attention: {name} must be one of {', '.join(words)}, got {getattr(self, name)!r}")
        for name in ("fir_taps", "conv_taps"):
            if not 0 <= getattr(self, name) <= MOST_TAPS:
                raise ValueError(f"attention: {name} must be from 0 to {MOST_TAPS}, got {getattr(self, name)}")
        if self.fir_taps and self.conv_taps:
            raise ValueError(
                f"attention: keys are smoothed or convolved, got fir_taps={self.fir_taps}, conv_taps={self.conv_taps}; "
                "set one of them to 0"
            )
        half_gaussian_taps(max(self.fir_taps, 1), self.fir_sigma, self.fir_norm)
        if self.head.schedules:
            raise ValueError(f"attention: {self.head} changes with t; an attention head has no step")
        if getattr(self.head, "rows", False):
            raise ValueError(f"attention: {self.head.name} takes no mask, which attention needs; make it elementwise")
        known = parameters_of(self.head)
        wanted = {"threshold": "threshold", "tau_star": "tau"}.get(self.calibrate)
        if wanted is not None and wanted not in known:
            raise ValueError(f"attention: calibrate={self.calibrate} sets {wanted}, which {self.head.name} has not")
        for name in self.learn:
            if name not in known:
                raise ValueError(
                    f"attention: {self.head.name} has no parameter {name!r} to learn{suggest(name, known)}"
                )

    def __str__(self) -> str:
        """Text of the spec, which parses back to it."""
        return format_spec(self)


def parameters_of(head: Head) -> dict[str, tuple[float, Range]]:
    """Value and range of every parameter that `head.bind` reaches, by name."""
    own = {name: (getattr(head, name), limits) for name, limits in head._ranges().items()}
    return (parameters_of(head.inner) if isinstance(head, Reweight) else {}) | own


ATTENTION: Registry[AttentionSpec] = Registry("attention", AttentionSpec)
_FIR = "fir_taps=7"
_TABLE = {
    "softmax": "head=softmax",
    "softmax_scaled": "head=softmax, learn=[beta]",
    "ssmax": "head=ssmax, learn=[scale]",
    "s_tau": "head=s_tau, learn=[tau]",
    "s_tau_closed": "head=s_tau, calibrate=tau_star",
    "escort": "head=escort, learn=[p]",
    "sparsemax": "head=sparsemax",
    "entmax15": "head=entmax15",
    "softmax_off_by_one": "head=softmax_off_by_one",
    "learned_sink": "head=learned_sink, learn=[b]",
    "softpick": "head=softpick",
    "rela": "head=rela, output=rms",
    "sigmoid": "head=sigmoid, learn=[b]",
    "power_norm": "head=power_norm, learn=[threshold]",
    "power_norm_hill": "head=power_norm(gate=hill), learn=[threshold]",
    "lssa": "head=softplus_norm, scores=cosine",
    "lssar": "head=lssar(p=15), scores=cosine",
    "lssar_p3": "head=lssar(p=3), scores=cosine",
    "reweight_softmax": "head=reweight(inner=softmax, p=3), scores=cosine",
    "reweight_sigmoid": "head=reweight(inner=sigmoid_norm, p=3), scores=cosine",
    "reweight_relu": "head=reweight(inner=relu_norm, p=3), scores=cosine",
    "softmax_conv": "head=softmax, conv_taps=4",
    "sm_fir": f"head=softmax, {_FIR}",
    "ssmax_fir": f"head=ssmax, {_FIR}, learn=[scale]",
    "s_tau_fir": f"head=s_tau, {_FIR}, learn=[tau]",
    "escort_fir": f"head=escort, {_FIR}, learn=[p]",
    "sparsemax_fir": f"head=sparsemax, {_FIR}",
    "entmax15_fir": f"head=entmax15, {_FIR}",
    "softmax_off_by_one_fir": f"head=softmax_off_by_one, {_FIR}",
    "learned_sink_fir": f"head=learned_sink, {_FIR}, learn=[b]",
    "softpick_fir": f"head=softpick, {_FIR}",
    "rela_fir": f"head=rela, {_FIR}, output=rms",
    "sigmoid_fir": f"head=sigmoid, {_FIR}, learn=[b]",
    "lssar_fir": f"head=lssar(p=15), {_FIR}, scores=cosine",
    "pn_fir": f"head=power_norm(gate=clamp), {_FIR}",
    "pn_fir_c": f"head=power_norm(gate=clamp, centre=mean), {_FIR}",
    "pn_fir_tau": f"head=power_norm(gate=clamp), {_FIR}, learn=[threshold]",
    "pn_fir_tau_hill": f"head=power_norm(gate=hill), {_FIR}, learn=[threshold]",
    "pn_fir_tau_sink": f"head=power_norm(gate=sink), {_FIR}, learn=[threshold]",
    "pn_fir_tau_calibrated": f"head=power_norm(gate=clamp), {_FIR}, learn=[threshold], calibrate=threshold",
    "pn_fir_tau_hill_calibrated": f"head=power_norm(gate=hill), {_FIR}, learn=[threshold], calibrate=threshold",
    "pn_fir_tau_sink_calibrated": f"head=power_norm(gate=sink), {_FIR}, learn=[threshold], calibrate=threshold",
}
PRESETS: dict[str, AttentionSpec] = {name: ATTENTION.parse(f"attention({text})") for name, text in _TABLE.items()}
"""Named specs. A preset may be called with new values for its own fields or its head's: `pn_fir_tau(p=4)`."""


def parse_attention(text: str) -> AttentionSpec:
    """Read an attention head from text: a preset, `attention(...)`, or a normaliser alone, plug-ins included.

    A preset's name comes before that of a normaliser: `s_tau` learns its tau, `attention(head=s_tau(tau=5))` does not.

    Examples:
        >>> from stau_rl import parse_attention
        >>> print(parse_attention("sm_fir(fir_taps=3)"))
        attention(head=softmax(beta=1), fir_taps=3)

    Args:
        text: such as `pn_fir_tau(p=4)`, `attention(head=s_tau(tau=5), fir_taps=7)` or `sparsemax`.

    Returns:
        The spec; `str` of it reads back to an equal one.

    Raises:
        SpecError: saying which part is wrong and what would be accepted.
    """
    calls = parse_pipe(text, "attention")
    if len(calls) != 1:
        raise SpecError(f"attention {text!r}: expected one attention head, got a pipe of {len(calls)}")
    call = calls[0]
    if call.name in PRESETS:
        return _changed(PRESETS[call.name], call)
    if call.name in ATTENTION:
        return ATTENTION.build(call)
    if call.name in HEADS:
        return ATTENTION.build(Call("attention", (call,)))
    raise SpecError(f"unknown attention head {call.name!r}{suggest(call.name, {**PRESETS, **HEADS})}")


def _changed(spec: AttentionSpec, call: Call) -> AttentionSpec:
    if call.args:
        raise SpecError(f"{call.name}: give arguments by name, as in fir_sigma=1")
    outer = {member.name for member in fields(AttentionSpec)}
    inner = {member.name for member in fields(spec.head)}  # type: ignore[arg-type]
    given: dict[str, Any] = dict(call.kwargs)
    unknown = [name for name in given if name not in outer | inner]
    if unknown:
        known = dict.fromkeys(sorted(outer | inner))
        raise SpecError(f"{call.name} has no argument {unknown[0]!r}{suggest(unknown[0], known)}")
    changes = {name: value for name, value in given.items() if name in outer}
    if any(name in inner for name in given):
        (old,) = parse_pipe(str(spec.head), "head")
        new = dict(old.kwargs) | {name: value for name, value in given.items() if name in inner}
        spec = replace(spec, head=HEADS.build(Call(old.name, (), tuple(new.items()))))
    if changes:
        (old,) = parse_pipe(str(spec), "attention")
        spec = ATTENTION.build(Call(old.name, (), tuple((dict(old.kwargs) | changes).items())))
    return spec
