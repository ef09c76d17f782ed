"""Derivatives of every head beyond the first, and through `torch.func`: against differences of gradients."""

import gc
import weakref

import pytest
import torch
from torch.func import grad, hessian, jacfwd, jacrev, vmap

from stau_rl.heads import HEADS, Entmax, Escort, Head, PowerNorm, Softmax, STau, log_s_tau, parse_head
from stau_rl.heads.log_softplus import log_phi
from stau_rl.heads.normalise import normalise_log
from stau_rl.nn.categorical import HeadCategorical
from stau_rl.nn.head_module import STauHead

# The forward mode of torch's own operations compiles some of them with torch.jit.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

EVERY: list[Head] = [
    *(head() for head in HEADS.values()),
    *(Entmax(1.7), Entmax(2.6), STau(3.0, eps=0.0), Escort(0.5), Softmax(3.0)),
    *(PowerNorm(3.0, -0.5, gate=gate) for gate in ("sink", "clamp", "none")),
    PowerNorm(2.0, 0.1, centre="mean"),
    parse_head("reweight(inner=sparsemax, p=2)"),
]
PARAMETERS = [(head, name) for head in EVERY for name in head._ranges()]
each_head = pytest.mark.parametrize("head", EVERY, ids=str)
MASK = torch.tensor([[True, True, False, True, True], [True] * 5])
# No two scores tie, none is 0, and no row of a sparse map has an entry on the border of its support.
SCORES = torch.tensor([[0.3, -0.1, 7.0, 0.2, -3.0], [1.1, 0.4, 0.9, -0.6, 0.75]], dtype=torch.float64)


def smooth(head: Head, scores: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """A number that is curved in every weight and in the mass of each row."""
    weights, mass = head.weights_and_mass(scores, mask=mask)
    slope = torch.linspace(-1.0, 2.0, scores.shape[-1], dtype=scores.dtype)
    return ((weights * slope).sum(-1) + weights.square().sum(-1) + mass.square()).sum()


def differences(gradient, at: torch.Tensor, step: float = 1e-6) -> torch.Tensor:
    """The matrix of second derivatives by central differences of a gradient."""
    columns = []
    for index in range(at.numel()):
        move = torch.zeros(at.numel(), dtype=at.dtype)
        move[index] = step
        move = move.view(at.shape)
        columns.append((gradient(at + move) - gradient(at - move)).flatten() / (2 * step))
    return torch.stack(columns, 1)


@each_head
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
def test_second_derivatives_of_the_scores(head: Head, masked: bool) -> None:
    scores, mask = SCORES.clone().requires_grad_(), MASK if masked else None
    assert torch.autograd.gradgradcheck(lambda s: head.weights_and_mass(s, mask=mask), scores, fast_mode=True)


@pytest.mark.parametrize(("head", "name"), PARAMETERS, ids=str)
def test_second_derivatives_of_the_parameters(head: Head, name: str) -> None:
    """Those of score and parameter together, one value per row."""
    value = torch.full((2, 1), float(getattr(head, name)) + 0.05, dtype=torch.float64, requires_grad=True)
    scores = SCORES.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(
        lambda s, v: head.bind(**{name: v}).weights_and_mass(s, mask=MASK), (scores, value), fast_mode=True
    )


@each_head
def test_torch_func_takes_every_head(head: Head) -> None:
    """grad, jacrev, jacfwd and hessian, as they are and mapped over rows that have masks of their own."""

    def value(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return smooth(head, scores, mask)

    by_rows = [value(*pair) for pair in zip(SCORES, MASK, strict=True)]
    torch.testing.assert_close(vmap(value)(SCORES, MASK), torch.stack(by_rows), rtol=1e-13, atol=1e-15)
    slopes = torch.autograd.functional.jacobian(lambda s: smooth(head, s, MASK), SCORES)
    for slope in (vmap(grad(value)), vmap(jacrev(value)), vmap(jacfwd(value))):
        torch.testing.assert_close(slope(SCORES, MASK), slopes, rtol=1e-12, atol=1e-13)
    curved = vmap(hessian(value))(SCORES, MASK)
    for row, (scores, mask) in enumerate(zip(SCORES, MASK, strict=True)):
        expected = differences(grad(lambda s, mask=mask: value(s, mask)), scores)
        torch.testing.assert_close(curved[row], expected, rtol=1e-6, atol=1e-6)
    for twice in (jacrev(jacrev(value)), jacrev(jacfwd(value))):
        torch.testing.assert_close(twice(SCORES[0], MASK[0]), curved[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("head", "name"), PARAMETERS, ids=str)
def test_torch_func_maps_over_parameters(head: Head, name: str) -> None:
    """Values that are mapped over, scores that are not; forward mode agrees with the gradient."""
    values = float(getattr(head, name)) + torch.tensor([0.05, 0.4], dtype=torch.float64)

    def value(at: torch.Tensor) -> torch.Tensor:
        return smooth(head.bind(**{name: at}), SCORES, MASK)

    slopes = torch.stack([torch.autograd.functional.jacobian(value, one) for one in values])
    torch.testing.assert_close(vmap(grad(value))(values), slopes, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(vmap(jacfwd(value))(values), slopes, rtol=1e-10, atol=1e-12)


DISTRIBUTIONS = ["s_tau(tau=2)", "escort(p=2)", "sparsemax", "entmax15", "entmax(alpha=2.6)", "softpick", "lssar"]


@pytest.mark.parametrize("head", DISTRIBUTIONS)
@pytest.mark.parametrize("what", ["entropy", "log_prob"])
def test_the_distribution_has_second_derivatives(head: str, what: str) -> None:
    def value(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        policy = HeadCategorical(scores, head, mask=mask)
        return policy.entropy() if what == "entropy" else policy.log_prob(policy.mode)

    curved = vmap(hessian(value))(SCORES, MASK)
    for row, (scores, mask) in enumerate(zip(SCORES, MASK, strict=True)):
        expected = differences(grad(lambda s, mask=mask: value(s, mask)), scores)
        torch.testing.assert_close(curved[row], expected, rtol=1e-6, atol=1e-6)


def test_the_hessian_of_the_entropy_of_sparsemax_by_hand() -> None:
    # Of scores .3, -.1, .2, -3 three have weight: w = s + .2, their derivative P = I - 1/3. H = -sum w log w has the
    # second derivative -P diag(1/w) P, w = 1/2, 1/10, 2/5.
    scores = torch.tensor([0.3, -0.1, 0.2, -3.0], dtype=torch.float64)
    projection = torch.eye(3, dtype=torch.float64) - 1 / 3
    expected = torch.zeros(4, 4, dtype=torch.float64)
    expected[:3, :3] = -projection @ torch.diag(torch.tensor([2.0, 10.0, 2.5], dtype=torch.float64)) @ projection
    found = torch.autograd.functional.hessian(lambda s: HeadCategorical(s, "sparsemax").entropy(), scores)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@each_head
def test_second_derivatives_are_finite_at_the_edges(head: Head) -> None:
    """A score of -inf, one of 0, a row of them alone, a masked row."""
    low = 0.0 if head.finite_only else -torch.inf
    scores = torch.tensor([[low, 0.0, 1.0, 2.0], [low] * 4, [0.0] * 4, [1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    mask = torch.tensor([[True], [True], [True], [False]]).expand(4, 4)
    scores.requires_grad_()
    (first,) = torch.autograd.grad(smooth(head, scores, mask), scores, create_graph=True)
    if first.requires_grad:
        (second,) = torch.autograd.grad((first * torch.linspace(1, 2, 4)).sum(), scores, allow_unused=True)
        assert second is None or bool(second.isfinite().all())
    assert bool(first.isfinite().all())


def test_bad_values_are_found_where_they_are_mapped_over() -> None:
    scores = SCORES.clone()
    scores[1, 2] = torch.nan
    with pytest.raises(ValueError, match=r"scores must not be NaN or \+inf where unmasked: 0\.1 of the entries are"):
        vmap(Softmax().weights)(scores)
    with pytest.raises(ValueError, match=r"0\.5 of the rows hold some"):
        vmap(lambda s: HeadCategorical(s, "softmax", validate_args=True).logits)(scores)
    dead = torch.tensor([[False] * 5, [True] * 5])
    with pytest.raises(ValueError, match=r"mask must leave every row an entry: 0\.5 of the rows have none"):
        vmap(lambda s, m: HeadCategorical(s, "softmax", m, validate_args=True).logits)(SCORES, dead)
    with pytest.raises(ValueError, match="tau must be finite and >= 1"):
        vmap(lambda s, t: log_s_tau(s, t))(SCORES, torch.tensor([2.0, 0.5]))


@pytest.mark.parametrize(
    "make",
    [
        lambda s: normalise_log(s),
        lambda s: log_phi(s),
        lambda s: log_s_tau(s, torch.tensor(2.0)),
        lambda s: Entmax().log_weights(s),
        lambda s: STauHead()(s),
    ],
    ids=["normalise_log", "log_phi", "log_s_tau", "entmax", "module"],
)
def test_a_result_is_freed_with_its_last_name(make) -> None:
    """What a function keeps for its derivatives holds no circle that waits for the garbage collector."""
    gc.disable()
    try:
        scores = SCORES.clone().requires_grad_()
        out, gone = make(scores), weakref.ref(scores)
        del scores
        assert gone() is not None
        del out
        assert gone() is None
    finally:
        gc.enable()
