"""Heads of one's own that say what their weights sum to, see their row, and stand under masks in attention."""

from collections.abc import Iterator

import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from stau_rl.agents.attention.attention_normalisers import NormaliserGroup
from stau_rl.agents.attention.attention_spec import parse_attention
from stau_rl.agents.bandit import parse_policy
from stau_rl.plugin import head, parameter
from stau_rl.plugin.plugin_head import PluginHead, forget
from stau_rl.probe.run import run_probe
from stau_rl.regret.run import run_regret

SCORES = torch.tensor([[-1.0, 3.0, 1.0, -2.0], [-1.0, -3.0, -1.0, -2.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, False, True], [True, True, True, True]])


@pytest.fixture
def relu2() -> Iterator[type[PluginHead]]:
    @head("relu2_n", log=False, mass="free", sees=["n"])
    def relu2_n(scores: Tensor, n: Tensor) -> Tensor:
        """relu(s)^2 / n"""
        return scores.relu() ** 2 / n

    yield relu2_n
    forget("relu2_n")


@pytest.fixture
def share() -> Iterator[type[PluginHead]]:
    @head("part", log=False, mass="sub", sees=("max", "sum"), p=parameter(1.0, above=0.0))
    def part(scores: Tensor, max: Tensor, sum: Tensor, p: float) -> Tensor:
        """p / 4 of the entries at the maximum, a sixteenth of the others where the sum is positive"""
        weight = torch.where(scores == max, p / 4, torch.where(sum > 0, 1 / 16, 0.0).expand(scores.shape))
        return weight.to(scores.dtype)

    yield part
    forget("part")


def test_a_free_mass_keeps_its_n_and_its_silence(relu2: type[PluginHead]) -> None:
    # By hand: 9/4 and 1/4 of n = 4; under the mask n = 3; no positive score, no weight.
    assert_allclose(relu2().weights(SCORES), [[0, 9 / 4, 1 / 4, 0], [0, 0, 0, 0]])
    assert_allclose(relu2().weights(SCORES, mask=MASK), [[0, 3, 0, 0], [0, 0, 0, 0]])
    _, mass = relu2().weights_and_mass(SCORES, mask=MASK)
    assert_allclose(mass, [3, 0])
    # On another axis the row is another.
    assert_allclose(relu2().weights(SCORES.T, dim=0).T, relu2().weights(SCORES))


def test_a_share_may_leave_mass_and_never_gives_more(share: type[PluginHead]) -> None:
    assert_allclose(share(p=2).weights(SCORES), [[1 / 16, 1 / 2, 1 / 16, 1 / 16], [1 / 2, 0, 1 / 2, 0]])
    # The largest and the sum are of what counts.
    mask = torch.tensor([[True, False, True, True], [True, True, False, True]])
    assert_allclose(share(p=2).weights(SCORES, mask=mask), [[0, 0, 1 / 2, 0], [1 / 2, 0, 0, 0]])
    with pytest.raises(ValueError, match=r"'part' is registered with mass='sub', but the weights of a row sum to 1\.5"):
        share(p=3).weights(SCORES)


def test_what_lies_under_a_mask_reaches_nobody(relu2: type[PluginHead], share: type[PluginHead]) -> None:
    for rule in (relu2(), share()):
        spoilt = torch.where(MASK, SCORES, torch.nan).requires_grad_()
        weights = rule.weights(spoilt, mask=MASK)
        assert_allclose(weights.detach(), rule.weights(SCORES, mask=MASK))
        if rule.name == "relu2_n":
            weights.sum().backward()
            # 2 s / n at the one positive score that counts, exactly 0 elsewhere.
            assert_allclose(spoilt.grad, [[0, 2, 0, 0], [0, 0, 0, 0]])


def test_rows_take_masks_if_their_function_does() -> None:
    @head("rank", rows=True, p=1.0)
    def rank(scores: Tensor, mask: Tensor, p: float) -> Tensor:
        """exp(p times how many of the row are lower)"""
        lower = (scores[None] < scores[:, None]) & mask[None]
        return p * lower.sum(1).to(scores.dtype)

    try:
        # Ranks of -1, 3, -2 among what counts: 1, 2, 0.
        wanted = torch.tensor([1.0, 2.0, -torch.inf, 0.0], dtype=torch.float64).softmax(-1)
        assert_allclose(rank().weights(SCORES[:1], mask=MASK[:1])[0], wanted)
        # A learned parameter of its own for each head: [heads, 1, 1] beside scores [heads, queries, keys].
        bound = rank().bind(p=torch.tensor([0.0, 1.0], dtype=torch.float64)[:, None, None])
        both = bound.weights(SCORES[:1].expand(2, 1, 4), mask=MASK[:1])
        assert_allclose(both[0, 0], [1 / 3, 1 / 3, 0, 1 / 3])
        assert_allclose(both[1, 0], wanted)
    finally:
        forget("rank")


def test_attention_and_the_probe_take_them(relu2: type[PluginHead]) -> None:
    group = NormaliserGroup([parse_attention("relu2_n")], 1)
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, 1, 5, 4, generator=generator) for _ in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    attended = group(query, key, value, mask)
    n = torch.arange(1, 6)[:, None]
    wanted = torch.where(mask, attended.scores.clamp(min=0) ** 2 / n, 0.0)
    torch.testing.assert_close(attended.weights, wanted)
    torch.testing.assert_close(attended.mass, wanted.sum(-1))
    result = run_probe("recall", "relu2_n", seeds=1, steps=2, items=8)
    assert result.rows["mass_answerable"].notna().all()


def test_bandits_abstain_with_the_mass_that_is_left(relu2: type[PluginHead], share: type[PluginHead]) -> None:
    assert parse_policy("mean | part").may_abstain
    with pytest.raises(ValueError, match=r"the weights of relu2_n are no probabilities; add '\| renormalise'"):
        parse_policy("mean | relu2_n")
    arms = "bernoulli(means=[1, 1, 1, 1])"
    result = run_regret(arms, ["mean | relu2_n | renormalise", "mean | part(p=0.5)"], horizon=20, instances=50)
    assert (result.regret[0] == 0).all()
    assert (result.regret[1, -1] > 0).all()


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"mass": "half"}, "mass must be one of simplex, sub, free, got 'half'"),
        ({"sees": "n"}, "sees must be a list of n, max, sum, got 'n'"),
        ({"sees": ["median"]}, "sees must be a list of n, max, sum, got 'median'"),
        ({"sees": ["n"]}, "the function takes nothing after the scores, but n is declared"),
        ({"max": 1.0}, "a parameter cannot be called 'max'"),
    ],
)
def test_a_wrong_declaration_is_refused(declared: dict[str, object], message: str) -> None:
    def plain(scores: Tensor) -> Tensor:
        return scores

    def largest(scores: Tensor, max: float) -> Tensor:
        return scores

    with pytest.raises(ValueError, match=message):
        head("wrong", **declared)(largest if "max" in declared else plain)  # type: ignore[arg-type]


@pytest.mark.parametrize("declared", [{"mass": "free"}, {"mass": "sub"}, {"sees": ["n"]}])
def test_only_elementwise_heads_of_mass_1_compile(declared: dict[str, object]) -> None:
    def plain(scores: Tensor) -> Tensor:
        return scores - 30.0

    def counted(scores: Tensor, n: Tensor) -> Tensor:
        return scores / n

    made = head("uncompiled", **declared)(counted if "sees" in declared else plain)  # type: ignore[arg-type]
    try:
        for engine in (made.numba, made.triton):
            with pytest.raises(ValueError, match="compile"):
                engine(lambda score: score)
    finally:
        forget("uncompiled")


def test_a_negative_map_is_refused() -> None:
    negative = head("negative", log=False)(lambda scores: scores)
    try:
        with pytest.raises(ValueError, match=r"must return f\(s\) >= 0, got a negative one or NaN at score -1"):
            negative().weights(SCORES)
    finally:
        forget("negative")
