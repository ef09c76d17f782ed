"""Heads at the ends of float32 and float64: weights against more precision, exact masks, finite gradients."""

import math

import mpmath
import pytest
import torch

from stau_rl.heads import HEADS, Entmax, Head, LearnedSink, SoftmaxOffByOne, parse_head
from stau_rl.nn.head_module import EscortHead, HeadModule, SoftmaxHead, STauHead

GATES = [("hill", "none"), ("sink", "mean"), ("clamp", "mean"), ("none", "none")]
TEXTS = [
    *("softmax(beta=4)", "s_tau(tau=5)", "s_tau(tau=3, eps=0)", "escort(p=15)", "ssmax(scale=2)"),
    *("entmax(alpha=1.25)", "entmax(alpha=10)", "reweight(inner=softmax(beta=4), p=3)"),
    *("sigmoid(b=LARGE)", "learned_sink(b=LARGE)", "softmax_off_by_one(n=LARGE)"),
    *(
        f"power_norm(p=15, threshold={t}, gate={gate}, centre={c})"
        for t in ("LARGE", "-LARGE", "0")
        for gate, c in GATES
    ),
]
SHARP = ["softmax(beta={})", "s_tau(tau={})", "s_tau(tau={}, eps=0)", "escort(p={})", "ssmax(scale={})"]
SHARP += ["entmax(alpha={})", "power_norm(p={})", "power_norm(p={}, gate=sink, c=2)", "lssar(p={})"]
LARGE = {torch.float32: 3e38, torch.float64: 1.7e308}
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def rows(dtype: torch.dtype) -> torch.Tensor:
    unit = torch.tensor(
        [[1.0, -1.0, 0.0, 0.9, 0.0], [1, 1, -1, -1, 1], [-1, -0.9, -1, -1, -0.95], [0.3, 0.2, -0.1, 0.25, 0]],
        dtype=dtype,
    )
    small = torch.tensor([[1.0, 2.0, 3.0, -1.0, 0.5], [0] * 5, [1e-30, 0, 2e-30, -1e-30, 0]], dtype=dtype)
    return torch.cat([unit * LARGE[dtype], small])


@each_dtype
@pytest.mark.parametrize("text", [*TEXTS, *(name for name in HEADS)])
def test_weights_at_the_ends_of_the_range(text: str, dtype: torch.dtype) -> None:
    head = parse_head(text.replace("LARGE", f"{LARGE[dtype]:g}"))
    scores, mask = rows(dtype).requires_grad_(), torch.tensor([True, True, True, True, False])
    values = {
        name: torch.tensor(float(getattr(head, name)), dtype=dtype, requires_grad=True) for name in head._ranges()
    }
    for rule in (head, head.bind(**values)):
        weights, mass = rule.weights_and_mass(scores, mask=mask)
        log_weights = rule.log_weights(scores, mask=mask)
        assert bool((weights[:, ~mask] == 0).all())
        assert not bool(log_weights.isnan().any() | log_weights.isposinf().any())
        assert bool(weights.isfinite().all() & (weights >= 0).all())
        if dtype == torch.float32:
            precise = {name: value.detach().double() for name, value in values.items()}
            exact = head.bind(**precise).weights(scores.detach().double(), mask=mask)
            size = 1.0 if head.mass_kind != "free" else float(exact.max())
            torch.testing.assert_close(weights.double() / size, exact / size, rtol=0, atol=2e-4)
        if head.mass_kind == "simplex":
            assert mass.tolist() == [1.0] * len(scores)
        loss = (weights.clamp(max=1e9) * torch.linspace(-1, 1, 5, dtype=dtype)).sum()
        if loss.requires_grad:
            loss.backward()
        assert scores.grad is None or bool(scores.grad.isfinite().all())
    for name, value in values.items():
        assert value.grad is None or bool(value.grad.isfinite()), name


@each_dtype
@pytest.mark.parametrize("text", SHARP)
@pytest.mark.parametrize("value", [3e38, 1e300])
def test_a_sharpness_beyond_any_is_an_argmax(text: str, value: float, dtype: torch.dtype) -> None:
    """Also one that float32 does not hold; ties share, and rows that the head leaves empty stay so."""
    head = parse_head(text.format(value))
    scores = torch.tensor([[0.5, 7.0, -2.0, 7.0], [-1e-3, -3.0, -1.0, -2.0], [3.0, 1.0, 2.5, 2.0]], dtype=dtype)
    weights = head.weights(scores.requires_grad_())
    best = 1 if head.name == "escort" else 0
    middle = [0.0] * 4 if head.name == "power_norm" else [float(place == best) for place in range(4)]
    assert weights.tolist() == [[0.0, 0.5, 0.0, 0.5], middle, [1.0, 0.0, 0.0, 0.0]]
    weights.square().sum().backward()
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())


def test_a_slack_beyond_float32_counts_for_what_it_is() -> None:
    # e^100 = 2.7e43, so that a mass of e^100 / (n + e^100) is 2.7e-57 at n = 1e100 and 1 at n = 1e30.
    scores = torch.tensor([100.0])
    assert float(SoftmaxOffByOne(1e100).log_weights(scores)) == pytest.approx(100 - 100 * math.log(10), rel=1e-6)
    assert float(SoftmaxOffByOne(1e30).weights(scores)) == 1.0
    assert float(LearnedSink(1e300).weights(scores)) == 0.0
    assert parse_head("sigmoid(b=1e300)").weights(torch.tensor([-math.inf, 0.0])).tolist() == [0.0, 1.0]


LOWEST = [head for head in (make() for make in HEADS.values()) if not head.finite_only]
LOWEST += [parse_head("s_tau(tau=2, eps=0)"), Entmax(3.0)]
MULTIPLIED = [(head, name) for head in LOWEST for name in head._ranges() if name not in ("eps", "c")]


@pytest.mark.parametrize(("head", "name"), MULTIPLIED, ids=str)
@pytest.mark.parametrize("through", ["weights", "log_weights", "log_f"])
def test_a_score_of_minus_infinity_gives_a_parameter_no_nan(head: Head, name: str, through: str) -> None:
    """Its gradient is that of a score far below, as the weight is; 0 times -inf would be NaN."""
    value = torch.tensor(float(getattr(head, name)) + 0.5, dtype=torch.float64, requires_grad=True)
    gradients = []
    for low in (-math.inf, -1e9):
        scores = torch.tensor([0.3, low, 1.0, -0.2, 0.8], dtype=torch.float64)
        if head.name == "power_norm":
            scores = scores + 0.6
        bound = head.bind(**{name: value})
        if through == "log_f" and type(head).log_f is Head.log_f:
            return
        found = getattr(bound, through)(scores)
        kept = torch.where(scores > -1e8, torch.where(found.isneginf(), 0.0, found), 0.0)
        gradients.append(float(torch.autograd.grad((kept * torch.linspace(1, 2, 5)).sum(), value)[0]))
    assert gradients[0] == pytest.approx(gradients[1], rel=1e-6)


@pytest.mark.parametrize("module", [SoftmaxHead(learnable=True), STauHead(), STauHead(eps=0.0)], ids=str)
def test_a_module_with_a_score_of_minus_infinity_learns(module: HeadModule) -> None:
    module(torch.tensor([0.3, -math.inf, 1.0]))[0].backward()
    (raw,) = module.parameters()
    assert raw.grad is not None
    assert raw.grad.isfinite()
    assert raw.grad != 0


@pytest.mark.parametrize("scores", [[3e38, 1.0], [-3e38, 1.0]])
@pytest.mark.parametrize("module", [SoftmaxHead, STauHead, EscortHead])
def test_an_offset_that_overflows_is_refused(module: type[HeadModule], scores: list[float]) -> None:
    offset = math.copysign(3e38, scores[0])
    with pytest.raises(ValueError, match=r"score_offset=.*3e\+38 takes 0\.5 of the scores beyond torch\.float32"):
        module(score_offset=offset)(torch.tensor(scores))
    assert bool(module(score_offset=offset)(torch.tensor(scores, dtype=torch.float64)).isfinite().any())
    with pytest.raises(ValueError, match="score_offset must be finite, got inf"):
        module(score_offset=math.inf)


def entmax_oracle(scores: list[float], alpha: float) -> list[float]:
    """By bisection for theta in 120 digits, which hold high powers of a weight."""
    with mpmath.workdps(120):
        power = mpmath.mpf(alpha) - 1
        x = [power * (mpmath.mpf(score) - mpmath.mpf(max(scores))) for score in scores]
        low, high = mpmath.mpf(-1), mpmath.mpf(0)
        for _ in range(380):
            theta = (low + high) / 2
            total = sum((one - theta) ** (1 / power) for one in x if one > theta)
            low, high = (theta, high) if total >= 1 else (low, theta)
        weights = [(one - low) ** (1 / power) if one > low else mpmath.mpf(0) for one in x]
        return [float(weight / sum(weights)) for weight in weights]


def test_a_score_of_minus_infinity_leaves_the_others_their_precision() -> None:
    """What overflows is formed from quarters; a finite score is not, whose rounding the power would multiply."""
    pair = torch.tensor([1.0, 1.0 + 2**-20])
    head = parse_head("power_norm(p=1e6)")
    alone, beside = head.log_weights(pair), head.log_weights(torch.cat([pair, torch.tensor([-math.inf])]))
    assert beside.tolist() == [*alone.tolist(), -math.inf]
    # (1 + 2^-20)^1e6 = e^0.9537.
    assert float(alone[1] - alone[0]) == pytest.approx(1e6 * math.log1p(2**-20), rel=1e-6)


@each_dtype
@pytest.mark.parametrize("alpha", [1.0000002, 1.001, 1.25, 1.5, 2.0, 2.0001, 3.0, 4.0, 10.0, 30.0])
def test_entmax_at_every_alpha(alpha: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(int(10 * alpha))
    for scale, size in ((1.0, 3), (1 / (alpha - 1), 4), (0.3 / (alpha - 1), 7)):
        scores = (scale * torch.randn(size, generator=generator)).to(dtype)
        exact = float(torch.tensor(alpha, dtype=dtype))
        expected = torch.tensor(entmax_oracle(scores.tolist(), exact), dtype=torch.float64)
        for head in (Entmax(alpha), Entmax().bind(alpha=torch.tensor([alpha], dtype=dtype))):
            weights = head.weights(scores).double()
            torch.testing.assert_close(weights, expected, rtol=0, atol=2 * torch.finfo(dtype).eps)
            assert bool((weights[scores.argsort()].diff() >= 0).all())


def test_entmax_of_two_close_scores_by_hand() -> None:
    """alpha = 3: y = w^2 and y_2 - y_1 = 2 d, so that w_2 - w_1 = 2 d, w_2 + w_1 = 1."""
    for gap in (0.3, 0.49999):
        weights = Entmax(3.0).weights(torch.tensor([-gap, 0.0]))
        assert weights.tolist() == pytest.approx([0.5 - gap, 0.5 + gap], abs=6e-8)
