"""Heads as modules: values by hand, learned parameters of every head, saving, copies, precision, compiling."""

import copy
import doctest
import importlib
import io
import math
from dataclasses import fields

import pytest
import torch

import stau_rl
from stau_rl.heads import HEADS, parse_head
from stau_rl.nn.head_module import EscortHead, HeadModule, SoftmaxHead, STauHead
from stau_rl.plugin.plugin_head import forget, head, parameter

MASK = torch.tensor([True, False, True, True])
LEARNED = [
    (name, field.name)
    for name in HEADS
    for field in fields(HEADS[name])
    if "range" in field.metadata and field.name not in ("eps", *HEADS[name]().idle)
]
MODULES = [STauHead(2.0), SoftmaxHead(1.5, learnable=True), EscortHead(2.0, learnable=True)]
each_module = pytest.mark.parametrize("module", MODULES, ids=lambda one: one.head.name)


def rows(*shape, seed=0, dtype=torch.float32):
    return 1.5 * torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def value_inside(name, field):
    """A value that the parameter may start at: its default, or a little inside its range."""
    default, limits = getattr(HEADS[name](), field), HEADS[name]()._ranges()[field]
    on_bound = default in (limits.lower, limits.upper)
    return (default + 0.5 if default == limits.lower else default - 0.5) if on_bound else default


def test_tau_is_one_plus_softplus_of_log_tau():
    module = STauHead(tau=2.0)
    # softplus(x) = 1 at x = ln(e - 1).
    assert module.log_tau.item() == pytest.approx(math.log(math.e - 1), abs=1e-7)
    assert module.value("tau").item() == pytest.approx(2.0, abs=1e-6)
    with torch.no_grad():
        module.log_tau.fill_(0.0)
    assert module.value("tau").item() == pytest.approx(1 + math.log(2), abs=1e-6)


@pytest.mark.parametrize(("name", "field"), LEARNED)
def test_logits_have_the_precision_of_the_scores(name, field):
    """Whatever that of the learned parameters: a module in float64 makes no float64 of float32 scores."""
    start = f"{name}({field}={value_inside(name, field)})"
    for module in (HeadModule(start, (field,), (3,)), HeadModule(start, (field,), (3,)).double()):
        for dtype, expected in ((torch.float16, torch.float32), (torch.float32,) * 2, (torch.float64,) * 2):
            assert module(rows(2, 3, 4).to(dtype)).dtype == expected
            assert HeadModule(start, (field,)).double()(rows(2, 4).to(dtype)).dtype == expected


def test_logits_by_hand():
    # softplus(ln(e - 1)) = 1 and softplus(ln(e^2 - 1)) = 2, so the weights at tau = 3 are 1 : 8.
    scores = torch.tensor([math.log(math.e - 1), math.log(math.e**2 - 1)])
    expected = torch.tensor([math.log(1 / 9), math.log(8 / 9)])
    for learnable in (True, False):
        torch.testing.assert_close(STauHead(3.0, learnable)(scores), expected, rtol=1e-6, atol=0)
        torch.testing.assert_close(
            STauHead(3.0, learnable, score_offset=0.5)(scores - 0.5), expected, rtol=1e-6, atol=0
        )


def test_the_gradient_of_log_tau_by_hand():
    # d log w_1 / d tau = log phi_1 - sum w log phi = 0 - (8/9) ln 2 at weights 1 : 8; dtau/dlog_tau = sigmoid(log_tau).
    module = STauHead(3.0, eps=0.0).double()
    scores = torch.tensor([math.log(math.e - 1), math.log(math.e**2 - 1)], dtype=torch.float64)
    module(scores)[0].backward()
    slope = torch.sigmoid(module.log_tau.detach()).item()
    assert module.log_tau.grad.item() == pytest.approx(-8 / 9 * math.log(2) * slope, rel=1e-6)


@pytest.mark.parametrize(("name", "field"), LEARNED)
def test_a_module_of_any_head_and_parameter_starts_at_the_head(name, field):
    start = HEADS[name](**{field: value_inside(name, field)})
    module = HeadModule(start, learn=(field,))
    assert len(list(module.parameters())) == 1
    torch.testing.assert_close(module(rows(3, 4), MASK), start.log_weights(rows(3, 4), mask=MASK), rtol=1e-5, atol=1e-5)
    logits = module(rows(3, 4), MASK)
    (raw,) = module.parameters()
    # A parameter may belong to another variant of the head than the default one.
    if logits.requires_grad:
        torch.where(logits.isneginf(), 0.0, logits).sum().backward()
        assert raw.grad.isfinite()
    else:
        assert name not in ("softmax", "s_tau", "escort")


@each_module
def test_gradcheck_of_scores_and_parameter(module):
    module = copy.deepcopy(module).double()
    name = module.learn[0]
    raw = module.raw(name)

    def through(scores, value):
        logits = torch.func.functional_call(module, {f"log_{name}": value}, (scores, MASK))
        return torch.where(logits.isneginf(), 0.0, logits)

    assert torch.autograd.gradcheck(
        through, (rows(3, 4, dtype=torch.float64).requires_grad_(), raw.detach().clone().requires_grad_())
    )


def test_one_value_per_head_of_a_row():
    module = STauHead(2.0, shape=(3,))
    with torch.no_grad():
        module.log_tau.copy_(torch.tensor([0.0, 1.0, 2.0]))
    scores = rows(5, 3, 4)
    logits = module(scores)
    for one in range(3):
        tau = module.value("tau")[one].item()
        torch.testing.assert_close(logits[:, one], parse_head(f"s_tau(tau={tau})").log_weights(scores[:, one]))
    logits[:, 1, 0].sum().backward()
    assert module.log_tau.grad[1] != 0
    assert module.log_tau.grad[[0, 2]].tolist() == [0.0, 0.0]


@each_module
def test_saved_parameters_come_back(module):
    file = io.BytesIO()
    trained = copy.deepcopy(module)
    with torch.no_grad():
        trained.raw(module.learn[0]).add_(0.7)
    torch.save(trained.state_dict(), file)
    file.seek(0)
    fresh = copy.deepcopy(module)
    assert not torch.equal(fresh(rows(3, 4)), trained(rows(3, 4)))
    fresh.load_state_dict(torch.load(file))
    assert torch.equal(fresh(rows(3, 4)), trained(rows(3, 4)))


def test_a_learned_tau_is_not_loaded_into_a_fixed_one():
    with pytest.raises(RuntimeError, match="log_tau"):
        STauHead(2.0, learnable=False).load_state_dict(STauHead(2.0).state_dict())


@each_module
def test_a_copy_has_parameters_of_its_own(module):
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.raw(module.learn[0]).add_(1.0)
    assert not torch.equal(other(rows(2, 4)), module(rows(2, 4)))


@each_module
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_precision_follows_the_scores_and_is_at_least_single(module, dtype):
    wanted = torch.float64 if dtype == torch.float64 else torch.float32
    scores = rows(3, 4).to(dtype)
    assert module(scores).dtype == wanted
    moved = copy.deepcopy(module).to(dtype)
    assert moved.raw(module.learn[0]).dtype == dtype
    torch.testing.assert_close(moved(scores), module(scores), rtol=2e-2, atol=2e-2)
    moved(scores)[:, 0].sum().backward()
    assert moved.raw(module.learn[0]).grad.dtype == dtype


# The tracer itself instantiates autograd functions, which torch deprecates.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@each_module
def test_compiles_as_one_graph(module):
    torch.compiler.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for mask in (None, MASK):
        torch.testing.assert_close(compiled(rows(3, 4), mask), module(rows(3, 4), mask))
    module.zero_grad()
    compiled(rows(3, 4))[:, 0].sum().backward()
    graph = module.raw(module.learn[0]).grad.clone()
    module.zero_grad()
    module(rows(3, 4))[:, 0].sum().backward()
    torch.testing.assert_close(graph, module.raw(module.learn[0]).grad)


# As above.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_plug_in_head_is_a_module_and_compiles():
    @head("module_power", p=parameter(2.0, above=0.0), tilt=0.5, share=parameter(0.25, low=0.0, high=1.0))
    def module_power(scores, p, tilt, share):
        return p * scores + tilt * share

    try:
        module = HeadModule("module_power(p=3)", learn=("p", "tilt", "share"))
        assert sorted(module.state_dict()) == ["log_p", "raw_share", "raw_tilt"]
        assert [module.value(name).item() for name in module.learn] == pytest.approx([3.0, 0.5, 0.25])
        torch.testing.assert_close(module(rows(2, 4)), (3 * rows(2, 4)).log_softmax(-1))
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(rows(2, 4)), module(rows(2, 4)))
    finally:
        forget("module_power")


def test_nothing_learned_is_nothing_to_save():
    module = HeadModule("escort(p=3)")
    assert list(module.parameters()) == []
    torch.testing.assert_close(module(rows(2, 4)), parse_head("escort(p=3)").log_weights(rows(2, 4)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: STauHead(1.0), r"s_tau: a learned tau must start inside its range, > 1, got 1.0"),
        (lambda: STauHead(0.5, learnable=False), r"s_tau: tau must be finite and >= 1, got 0.5"),
        (lambda: SoftmaxHead(0.0, learnable=True), r"learned beta must start inside its range, > 0"),
        (lambda: EscortHead(-1.0), r"escort: p must be finite and > 0, got -1.0"),
        (lambda: STauHead(2.0, learnable=False, shape=(3,)), r"shape=\(3,\) is that of learned parameters"),
        (lambda: STauHead(2.0, score_offset=math.nan), r"score_offset must be finite, got nan"),
        (lambda: HeadModule("softmax", learn=("tau",)), r"learn: softmax has no parameter 'tau'; it has beta"),
        (lambda: HeadModule("softmax(beta=log(1+t))"), r"changes with t; give a module the head of one step"),
        (lambda: HeadModule("sofmax"), r"did you mean 'softmax'"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bad_scores_are_refused_unless_told_otherwise():
    bad = torch.tensor([[0.0, math.nan], [0.0, 1.0]])
    with pytest.raises(ValueError, match=r"0\.25 of the entries"):
        STauHead()(bad)
    assert STauHead(validate=False)(bad)[1].isfinite().all()
    assert STauHead()(bad, torch.tensor([True, False]))[:, 0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", ["HeadModule", "STauHead", "SoftmaxHead", "EscortHead"])
def test_public_names(name):
    assert getattr(stau_rl, name).__name__ == name
    assert name in dir(stau_rl)


@pytest.mark.parametrize("name", ["nn.head_module", "nn.categorical", "nn.remedies"])
def test_examples_in_docstrings(name):
    results = doctest.testmod(importlib.import_module(f"stau_rl.{name}"))
    assert results.attempted > 0
    assert results.failed == 0


def test_a_learned_eps_of_s_tau_has_its_gradient() -> None:
    """d log f / d eps = tau / (softplus(s) + eps), also where tau is learned with it."""
    scores = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64)
    for learn in (("eps",), ("tau", "eps")):
        module = HeadModule("s_tau(tau=3, eps=0.01)", learn=learn).double()
        module(scores)[0].backward()
        pull = 3.0 / (torch.nn.functional.softplus(scores) + 0.01)
        weights = module(scores).exp().detach()
        expected = (pull[0] - (weights * pull).sum()) * module.raw("eps").sigmoid()
        torch.testing.assert_close(module.raw("eps").grad, expected.detach(), rtol=1e-6, atol=0.0)
