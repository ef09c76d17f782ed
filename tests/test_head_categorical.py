"""HeadCategorical: probabilities by hand, agreement with torch's Categorical, draws, KL, masks, every head."""

import math

import pytest
import torch
from torch.distributions import Categorical, Distribution, kl_divergence

from stau_rl.heads import HEADS, Head, parse_head
from stau_rl.heads.normalise import prepare
from stau_rl.nn.categorical import HeadCategorical
from stau_rl.nn.head_module import STauHead

USABLE = [name for name in HEADS if HEADS[name].mass_kind != "free"]
each_head = pytest.mark.parametrize("name", USABLE)
MASK = torch.tensor(
    [[True, False, True, True, True], [True, True, False, False, True], [False, False, True, False, False]]
)


def rows(*shape, seed=0, dtype=torch.float64):
    return 1.5 * torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


class OffByOne(Head):
    """exp(s) / (1 + sum exp(s)): a head that may abstain, written plainly as an example for these tests."""

    name = "off_by_one_example"
    mass_kind = "sub"
    __dataclass_fields__ = {}  # noqa: RUF012

    def unchecked_log_weights(self, scores, dim=-1, mask=None):
        scores, mask = prepare(scores, mask)
        scores = scores if mask is None else torch.where(mask, scores, -torch.inf)
        sink = torch.zeros_like(scores.narrow(dim, 0, 1))
        return scores - torch.cat([scores, sink], dim).logsumexp(dim, keepdim=True)


def test_probabilities_by_hand():
    # escort p=2 on (1, 2, 3) without the middle: 1/10 and 9/10.
    policy = HeadCategorical(
        torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), "escort(p=2)", torch.tensor([True, False, True])
    )
    torch.testing.assert_close(policy.probs, torch.tensor([0.1, 0.0, 0.9], dtype=torch.float64), rtol=1e-15, atol=0)
    assert float(policy.entropy()) == pytest.approx(-0.1 * math.log(0.1) - 0.9 * math.log(0.9), rel=1e-15)
    assert policy.log_prob(torch.tensor([0, 1, 2])).tolist() == pytest.approx([math.log(0.1), -math.inf, math.log(0.9)])
    assert int(policy.mode) == 2


def test_softmax_is_torchs_categorical():
    scores = rows(4, 6)
    ours, theirs = HeadCategorical(scores, "softmax"), Categorical(logits=scores)
    value = torch.tensor([0, 5, 2, 2])
    for mine, other in [
        (ours.probs, theirs.probs), (ours.logits, theirs.logits), (ours.entropy(), theirs.entropy()),
        (ours.log_prob(value), theirs.log_prob(value)), (ours.mode, theirs.mode),
        (ours.enumerate_support(), theirs.enumerate_support()),
        (ours.enumerate_support(False), theirs.enumerate_support(False)),
    ]:  # fmt: skip
        torch.testing.assert_close(mine, other, rtol=1e-13, atol=1e-14)
    assert ours.batch_shape == theirs.batch_shape
    assert ours.event_shape == theirs.event_shape
    assert ours.param_shape == theirs.param_shape
    assert ours.mean.isnan().all()
    assert ours.variance.shape == theirs.variance.shape


def test_abstaining_is_the_last_outcome():
    # exp(0), exp(ln 2) beside a 1 in the denominator: 1/4, 2/4, 1/4.
    policy = HeadCategorical(torch.tensor([0.0, math.log(2.0)], dtype=torch.float64), OffByOne())
    assert policy.abstain == 2
    assert policy.probs.tolist() == pytest.approx([0.25, 0.5, 0.25])
    assert policy.log_prob(torch.tensor(2)).item() == pytest.approx(math.log(0.25))
    assert policy.enumerate_support().tolist() == [0, 1, 2]
    assert policy.support.check(torch.tensor([2, 3])).tolist() == [True, False]
    torch.manual_seed(0)
    share = policy.sample((40_000,)).bincount(minlength=3) / 40_000
    # Four standard errors of a share: 4 sqrt(.25 / 40000) = .01.
    torch.testing.assert_close(share, policy.probs.float(), rtol=0, atol=0.01)


def test_a_head_that_abstains_has_finite_gradients_when_nothing_is_left():
    scores = torch.tensor([40.0, 0.0], requires_grad=True)
    policy = HeadCategorical(scores, OffByOne())
    assert policy.probs[2] == 0
    (policy.entropy() + policy.log_prob(torch.tensor(0))).backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("name", ["power_norm(gate=clamp)", "power_norm(gate=none)", "softpick", "reweight(softmax)"])
@pytest.mark.parametrize("entries", [2, 7, 1000])
def test_a_mass_of_one_leaves_nothing_to_abstain(name, entries):
    """Scores above 1 spend the whole mass, so abstaining has probability 0 and is never drawn; rounding is not."""
    scores = 1.5 + 3 * torch.rand(200_000 // entries, entries, generator=torch.Generator().manual_seed(0))
    policy = HeadCategorical(scores, name)
    assert policy.abstain == entries
    assert bool(policy.logits[:, -1].isneginf().all())


@each_head
def test_a_distribution_of_any_head(name):
    policy = HeadCategorical(rows(3, 5), name, MASK)
    torch.testing.assert_close(policy.probs.sum(-1), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-14)
    weights = parse_head(name).weights(rows(3, 5), mask=MASK)
    torch.testing.assert_close(policy.probs[:, :5], weights, rtol=1e-12, atol=1e-15)
    every = policy.enumerate_support()
    torch.testing.assert_close(policy.log_prob(every).exp().sum(0), torch.ones(3, dtype=torch.float64))
    assert policy.log_prob(policy.sample((50,))).isfinite().all()


@each_head
def test_gradcheck_under_a_mask(name):
    def through(scores):
        policy = HeadCategorical(scores, name, MASK, validate_args=False)
        other = HeadCategorical(rows(3, 5, seed=1), name, MASK)
        return (
            policy.probs,
            policy.entropy(),
            policy.log_prob(torch.tensor([0, 4, 2])).nan_to_num(neginf=0.0),
            kl_divergence(policy, other),
        )

    if not parse_head(name).smooth_at_zero and name != "escort":
        pytest.skip("a map with thresholds; its own tests check its gradient away from them")
    assert torch.autograd.gradcheck(through, rows(3, 5).requires_grad_())


@each_head
def test_gradients_are_finite_under_masks(name):
    scores = rows(3, 5).masked_fill(~MASK, math.nan).requires_grad_()
    policy, other = (
        HeadCategorical(scores, name, MASK),
        Categorical(logits=rows(3, 5, seed=2).masked_fill(~MASK, -1e30)),
    )
    same = HeadCategorical(rows(3, 5, seed=3), name, MASK)
    total = (
        policy.entropy().sum()
        + policy.log_prob(policy.mode).sum()
        + kl_divergence(policy, same).nan_to_num(posinf=0.0).sum()
    )
    if policy.abstain is None:
        total = total + kl_divergence(policy, other).sum() + kl_divergence(other, policy).nan_to_num(posinf=0.0).sum()
    total.backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad[~MASK] == 0).all()


def test_kl_both_ways_is_that_of_categoricals():
    scores, others = rows(4, 6), rows(4, 6, seed=1)
    ours = HeadCategorical(scores, "s_tau(tau=3)"), HeadCategorical(others, "softmax(beta=2)")
    theirs = [Categorical(logits=one.logits) for one in ours]
    expected = kl_divergence(*theirs)
    for p in (ours[0], theirs[0]):
        for q in (ours[1], theirs[1]):
            torch.testing.assert_close(kl_divergence(p, q), expected, rtol=1e-12, atol=0)


def test_kl_of_impossible_outcomes():
    scores = torch.tensor([0.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    narrow = HeadCategorical(scores, "softmax", torch.tensor([True, True, False]))
    wide = HeadCategorical(torch.zeros(3, dtype=torch.float64), "softmax")
    # Uniform on two inside uniform on three: ln(3 / 2).
    for other in (wide, Categorical(probs=torch.ones(3, dtype=torch.float64))):
        assert kl_divergence(narrow, other).item() == pytest.approx(math.log(1.5))
        assert kl_divergence(other, narrow).item() == math.inf
    zero = Categorical(probs=torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64))
    assert kl_divergence(zero, narrow).item() == pytest.approx(0.0, abs=1e-15)
    assert kl_divergence(narrow, zero).item() == pytest.approx(0.0, abs=1e-15)
    assert float(kl_divergence(wide, zero)) == math.inf
    kl_divergence(wide, narrow).backward()
    assert scores.grad.isfinite().all()


def test_kl_of_outcomes_too_rare_for_a_number():
    """Twice the same policy, then beside a mask made of -1e8, as other libraries have it: 0 from every side."""
    rare = torch.tensor([0.0, -200.0])
    masked = HeadCategorical(torch.zeros(2), "softmax", torch.tensor([True, False]))
    for ours, theirs in (
        (HeadCategorical(rare, "softmax"), Categorical(logits=rare)),
        (masked, Categorical(logits=torch.tensor([0.0, -1e8]))),
    ):
        for p, q in ((ours, theirs), (theirs, ours), (ours, ours)):
            assert float(kl_divergence(p, q)) == 0.0


def test_kl_needs_the_same_outcomes():
    with pytest.raises(ValueError, match="same outcomes on both sides, got 4 and 3"):
        kl_divergence(HeadCategorical(rows(3), OffByOne()), HeadCategorical(rows(3), "softmax"))


def test_ten_million_draws_are_possible_and_in_proportion():
    mask = torch.tensor([False, True, True, False, True, True, True, False])
    scores = torch.tensor([9.0, 1.0, -1.0, 9.0, 0.0, 2.0, 0.0, 9.0])
    torch.manual_seed(1)
    policy = HeadCategorical(scores, "escort(p=3)", mask)
    counts = policy.sample((10_000_000,)).bincount(minlength=8)
    assert counts[policy.probs == 0].tolist() == [0] * 5
    expected = 1e7 * policy.probs.double()
    kept = expected > 0
    # Chi-squared with two degrees of freedom: 23 has probability 1e-5.
    assert float(((counts - expected)[kept] ** 2 / expected[kept]).sum()) < 23


def test_the_extreme_uniforms_fall_on_possible_entries(monkeypatch):
    """u = 0 and the largest u below 1, on rows whose first and last entries have weight 0."""
    scores = rows(64, 9)
    mask = torch.rand(64, 9, generator=torch.Generator().manual_seed(0)) < 0.4
    mask[:, 4] = True
    policy = HeadCategorical(scores, "s_tau(tau=9)", mask)
    for u in (0.0, 1 - 2**-53):
        monkeypatch.setattr(torch, "rand", lambda *shape, u=u, **kind: torch.full(shape, u, **kind))
        assert mask.gather(1, policy.sample().unsqueeze(1)).all()
        first = mask.int().argmax(1) if u == 0 else 8 - mask.flip(1).int().argmax(1)
        torch.testing.assert_close(policy.sample((3,)), first.expand(3, 64))


def test_draws_belong_to_their_rows():
    scores = torch.full((2, 3, 4), -1e4, dtype=torch.float64)
    where = torch.tensor([[0, 1, 2], [3, 2, 1]])
    scores.scatter_(2, where.unsqueeze(2), 5.0)
    policy = HeadCategorical(scores, "softmax")
    torch.testing.assert_close(policy.sample(), where)
    torch.testing.assert_close(policy.sample((5, 2)), where.expand(5, 2, 2, 3))
    torch.testing.assert_close(policy.sample(torch.Size([0])), where.expand(0, 2, 3))


def test_draws_use_torchs_generator():
    policy = HeadCategorical(rows(8, 5), "s_tau")
    torch.manual_seed(3)
    first = policy.sample((4,))
    torch.manual_seed(3)
    assert torch.equal(first, policy.sample((4,)))
    assert not torch.equal(first, policy.sample((4,)))


@each_head
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_scores(name, dtype):
    scores = rows(3, 5).to(dtype).requires_grad_()
    policy = HeadCategorical(scores, name, MASK)
    exact = HeadCategorical(scores.detach().float(), name, MASK)
    assert policy.probs.dtype == torch.float32
    torch.testing.assert_close(policy.log_prob(policy.mode), exact.log_prob(exact.mode), rtol=0, atol=0)
    (policy.entropy().sum() + policy.log_prob(policy.mode).sum()).backward()
    assert scores.grad.dtype == dtype
    assert scores.grad.isfinite().all()


@each_head
@pytest.mark.parametrize("shape", [(0, 4), (2, 0, 4)], ids=str)
def test_batches_of_no_rows(name, shape):
    policy = HeadCategorical(torch.zeros(shape), name)
    assert policy.sample((3,)).shape == (3, *shape[:-1])
    for answer in (
        policy.entropy(),
        policy.mode,
        policy.sample(),
        policy.log_prob(policy.sample()),
        kl_divergence(policy, policy),
    ):
        assert answer.shape == shape[:-1]


def test_expand_shares_memory_and_validation():
    policy = HeadCategorical(rows(1, 5), "s_tau", torch.tensor([True, True, False, True, True]), validate_args=True)
    wide = policy.expand((7, 3))
    assert wide.batch_shape == (7, 3)
    assert wide.logits.data_ptr() == policy.logits.data_ptr()
    assert wide.mask.shape == (7, 3, 5)
    assert wide.sample((2,)).shape == (2, 7, 3)
    torch.testing.assert_close(wide.entropy(), policy.entropy().expand(7, 3))
    with pytest.raises(ValueError, match="support"):
        wide.log_prob(torch.tensor(5))
    with pytest.raises(ValueError, match="broadcastable"):
        wide.log_prob(torch.zeros(2))


def test_expand_of_one_score_under_a_longer_mask():
    policy = HeadCategorical(torch.zeros(3, 1), "softmax", torch.tensor([True, False, True, True]))
    wide = policy.expand((5, 3))
    assert wide.scores.shape == wide.mask.shape == (5, 3, 4)
    torch.testing.assert_close(wide.probs, policy.probs.expand(5, 3, 4), rtol=0, atol=0)


def test_a_fully_masked_row_is_one_clear_line():
    mask = MASK.clone()
    mask[1] = False
    with pytest.raises(ValueError, match=r"^mask must leave every row an entry: 0.333 of the rows have none$"):
        HeadCategorical(rows(3, 5), "s_tau", mask, validate_args=True)


def test_a_fully_masked_row_draws_no_entry_where_nothing_is_checked():
    policy = HeadCategorical(rows(1, 3), "softmax", torch.zeros(1, 3, dtype=torch.bool), validate_args=False)
    assert policy.sample().tolist() == [3]


@pytest.mark.parametrize(("bad", "kind"), [(math.nan, r"NaN or \+inf"), (math.inf, r"NaN or \+inf")], ids=str)
def test_bad_scores_are_refused_with_their_share_of_rows(bad, kind):
    scores = rows(4, 5)
    scores[1, 2] = scores[1, 3] = bad
    with pytest.raises(ValueError, match=rf"^scores must not be {kind} where unmasked: 0.25 of the rows hold some$"):
        HeadCategorical(scores, "softmax", validate_args=True)
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[1, 2:4] = False
    assert HeadCategorical(scores, "softmax", mask, validate_args=True).probs.isfinite().all()


@pytest.mark.parametrize("bad", [torch.tensor(1.0), torch.zeros(2, 0), [1.0], torch.tensor([1, 2])], ids=str)
def test_what_is_no_row_of_scores_is_refused(bad):
    with pytest.raises(ValueError, match="scores must be"):
        HeadCategorical(bad, "softmax", validate_args=True)


def test_a_mask_that_is_not_boolean_is_refused():
    with pytest.raises(ValueError, match=r"mask must be a boolean torch tensor"):
        HeadCategorical(rows(2), "softmax", torch.ones(2), validate_args=True)


def test_a_mask_of_another_length_is_named():
    with pytest.raises(ValueError, match=r"^mask must broadcast against scores \(2, 5\), got shape \(4,\)$"):
        HeadCategorical(rows(2, 5), "softmax", torch.ones(4, dtype=torch.bool), validate_args=True)


def test_the_default_of_validation_is_torchs():
    before = Distribution._validate_args
    try:
        for switch in (True, False):
            Distribution.set_default_validate_args(switch)
            assert HeadCategorical(rows(3), "softmax")._validate_args is switch
            assert HeadCategorical(rows(3), "softmax", validate_args=not switch)._validate_args is not switch
            assert Distribution._validate_args is switch
    finally:
        Distribution.set_default_validate_args(before)


def test_a_module_brings_its_parameters_and_its_offset():
    module = STauHead(tau=3.0, score_offset=1.0).double()
    scores = rows(2, 4)
    policy = module.distribution(scores)
    torch.testing.assert_close(policy.probs, parse_head("s_tau(tau=3)").weights(scores + 1), rtol=1e-6, atol=0)
    policy.entropy().sum().backward()
    assert float(module.log_tau.grad) < 0


# The tracer itself instantiates autograd functions, which torch deprecates.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
def test_compiles_as_one_graph(masked):
    module, softmax = STauHead(tau=3.0), parse_head("softmax")
    mask = MASK if masked else None
    value, scores = torch.tensor([0, 4, 2]), rows(3, 5, dtype=torch.float32)

    def through(scores, other):
        policy, second = HeadCategorical(scores, module, mask), HeadCategorical(other, softmax, mask)
        draws = policy.sample((64,))
        return policy.log_prob(value), policy.entropy(), policy.mode, kl_divergence(policy, second), draws

    torch.compiler.reset()
    compiled = torch.compile(through, fullgraph=True, backend="aot_eager")
    answers, expected = (
        compiled(scores.requires_grad_(), rows(3, 5, seed=1, dtype=torch.float32)),
        through(scores, rows(3, 5, seed=1, dtype=torch.float32)),
    )
    torch.testing.assert_close(answers[:4], expected[:4])
    answers[1].sum().backward()
    assert scores.grad.isfinite().all()
    assert module.log_tau.grad.isfinite()
    if masked:
        assert MASK.expand(64, 3, 5).gather(2, answers[4].unsqueeze(2)).all()


# As above.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@each_head
def test_every_head_is_one_graph(name):
    head, scores = parse_head(name), rows(3, 5, dtype=torch.float32)

    def through(scores):
        policy = HeadCategorical(scores, head, MASK)
        return policy.entropy(), policy.log_prob(policy.mode)

    torch.compiler.reset()
    compiled = torch.compile(through, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(scores), through(scores))
