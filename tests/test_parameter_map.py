"""One map from unbounded numbers to legal values, wherever a parameter is learned."""

import math

import pytest
import torch

from stau_rl.agents.attention.attention_model import AttentionModels, ModelSettings
from stau_rl.agents.attention.attention_spec import parse_attention
from stau_rl.heads import HEADS
from stau_rl.heads.parameter import Range
from stau_rl.nn.head_module import HeadModule
from stau_rl.nn.parameter_map import legal_slope, to_legal, to_raw
from stau_rl.plateau.ascent import Problem, ascend
from stau_rl.plateau.methods import parse_method
from stau_rl.plateau.start import parse_start

RANGES = {
    "closed below": Range(low=1.0),
    "open below": Range(above=1.0),
    "open at zero": Range(above=0.0),
    "closed above": Range(high=2.0),
    "open above": Range(below=0.0),
    "between": Range(low=-1.0, high=3.0),
    "strictly between": Range(above=0.0, below=1.0),
    "free": Range(),
}
each_range = pytest.mark.parametrize("limits", RANGES.values(), ids=RANGES)


def test_the_map_by_hand() -> None:
    # softplus(0) = ln 2, sigmoid(0) = 1/2; tau = 2 starts at ln(e - 1), p = 2 at ln(e^2 - 1).
    zero = torch.zeros((), dtype=torch.float64)
    assert float(to_legal(zero, Range(low=1.0))) == pytest.approx(1 + math.log(2), rel=1e-15)
    assert float(to_legal(zero, Range(above=0.0))) == pytest.approx(math.log(2), rel=1e-15)
    assert float(to_legal(zero, Range(below=3.0))) == pytest.approx(3 - math.log(2), rel=1e-15)
    assert float(to_legal(zero, Range(low=-1.0, high=3.0))) == 1.0
    assert float(to_legal(zero - 7, Range())) == -7.0
    assert to_raw("h", "tau", 2.0, Range(low=1.0)) == pytest.approx(math.log(math.e - 1), rel=1e-15)
    assert to_raw("h", "p", 2.0, Range(above=0.0)) == pytest.approx(math.log(math.e**2 - 1), rel=1e-15)


@each_range
@pytest.mark.parametrize("distance", [1e-9, 1e-3, 0.3, 0.9, 30.0, 39.9, 40.1, 800.0, 3e38])
def test_every_legal_start_comes_back(limits: Range, distance: float) -> None:
    value = distance if limits.lower is None else limits.lower + distance
    if limits.upper is not None:
        value = limits.upper - distance
    if not limits.holds(value):
        return
    raw = torch.tensor(to_raw("h", "x", value, limits), dtype=torch.float64)
    found = float(to_legal(raw, limits))
    bound = limits.lower if limits.lower is not None and limits.upper is None else limits.upper
    assert found == pytest.approx(value, rel=1e-12)
    # The distance to the bound too; torch's softplus is exact to 2e-9 of 20.
    if bound is not None and bound in (0.0, None):
        assert abs(found - bound) == pytest.approx(distance, rel=1e-9)


@each_range
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_every_number_is_legal_and_can_come_back(limits: Range, dtype: torch.dtype) -> None:
    raw = torch.tensor([-1e30, -1e4, -120.0, -17.0, -1.0, 0.0, 3.0, 17.0, 120.0, 1e4, 1e30], dtype=dtype)
    raw.requires_grad_()
    values = to_legal(raw, limits)
    assert bool(limits.holds(values.detach().double().numpy()).all())
    values.sum().backward()
    torch.testing.assert_close(raw.grad, legal_slope(raw.detach(), limits), rtol=1e-6, atol=0)
    assert raw.grad is not None
    assert bool((raw.grad[3:7] != 0).all())
    middle = torch.tensor([-2.0, 0.5, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda one: to_legal(one, limits), middle)


@pytest.mark.parametrize(
    ("value", "limits", "message"),
    [
        (1.0, Range(low=1.0), "h: a learned x must start inside its range, > 1, got 1.0"),
        (0.0, Range(above=0.0), "h: a learned x must start inside its range, > 0, got 0.0"),
        (3.0, Range(low=0.0, below=2.0), "h: a learned x must start inside its range, > 0 and < 2, got 3.0"),
        (1e300, Range(low=0.0), "h: a learned x must start within +-3.4e+38, got 1e+300"),
        (math.nan, Range(), "h: a learned x must start within +-3.4e+38, got nan"),
    ],
)
def test_what_cannot_start_is_named(value: float, limits: Range, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        to_raw("h", "x", value, limits)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["s_tau(tau=1.7)", "escort(p=2)", "softmax(beta=0.5)", "entmax(alpha=1.5)"])
def test_agents_attention_and_plateau_learn_through_the_same_map(text: str) -> None:
    module = HeadModule(text, HEADS.parse(text)._ranges().keys() - {"eps"})
    (name,) = module.learn
    attention = AttentionModels(
        ModelSettings(12, 9, 8), [parse_attention(f"attention(head={text}, learn=[{name}])")], [0]
    )
    (raw,) = [part for key, part in attention.named_parameters() if key.endswith(f"learned.{name}")]
    assert raw.item() == module.raw(name).item()
    with torch.no_grad():
        raw.sub_(2.5)
        module.raw(name).sub_(2.5)
    assert attention.learned()[0][name].item() == module.value(name).item()
    if HEADS.parse(text).sharpness:
        method = parse_method(f"learned({text})")
        assert to_raw("h", name, method.start, method.limits) == pytest.approx(module.raw(name).item() + 2.5, rel=1e-6)


@pytest.mark.parametrize("text", ["s_tau(tau=800)", "softmax(beta=1000)", "escort(p=900)"])
def test_a_sharp_start_is_learned_in_the_plateau_benchmark(text: str) -> None:
    """expm1(799) is beyond float64."""
    problem = Problem(3, parse_start("uniform"), "exact", 3, 0.01, 2, 0)
    found = ascend(problem, parse_method(f"learned({text}, top=1)"), [0.1], [3])
    assert bool(found.curve.isfinite().all())
