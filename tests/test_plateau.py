"""The plateau benchmark's mathematics: starts, gradients, ascent."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from stau_rl.calibration import softmax_to_s_tau
from stau_rl.heads import HEADS, Head, SpecError, STau, parse_head
from stau_rl.kernels.philox import closed_uniform, words
from stau_rl.plateau.ascent import Problem, ascend, pull_uniforms
from stau_rl.plateau.cell import best_place, checkpoints, summary
from stau_rl.plateau.gradient import Sample, closed_form, evaluate
from stau_rl.plateau.methods import DEFAULT_METHODS, Fixed, parse_method
from stau_rl.plateau.start import draw_rewards, fits, initial_probabilities, initial_scores, parse_start

ELEMENTWISE = [name for name in HEADS if name in ("softmax", "s_tau", "escort", "softplus_norm", "sigmoid_norm")]


def problem(**changes) -> Problem:
    options = {"arms": 10, "start": "each(p=0.01)", "gradient": "exact", "updates": 300, "within": 0.01, "draws": 12}
    options |= {"seed": 3} | changes
    return Problem(**{**options, "start": parse_start(options["start"])})


def test_initial_probabilities_go_by_rank():
    rewards = torch.tensor([[0.2, 0.9], [0.8, 0.1], [0.5, 0.3], [0.1, 0.7]], dtype=torch.float64)
    each = initial_probabilities(rewards, parse_start("each(p=0.1)"))
    assert each.T.tolist() == [pytest.approx([0.1, 0.1, 0.7, 0.1]), pytest.approx([0.1, 0.1, 0.1, 0.7])]
    shared = initial_probabilities(rewards, parse_start("shared(p=0.1)"))
    assert shared.T.tolist() == [pytest.approx([0.05, 0.1, 0.8, 0.05]), pytest.approx([0.1, 0.05, 0.05, 0.8])]
    assert initial_probabilities(rewards, parse_start("uniform")).unique().tolist() == [0.25]


def test_of_equal_rewards_one_arm_is_best_and_another_second():
    probabilities = initial_probabilities(torch.ones(4, 1, dtype=torch.float64), parse_start("each(p=0.1)"))
    assert probabilities[:, 0].tolist() == pytest.approx([0.1, 0.7, 0.1, 0.1])


def test_a_start_that_is_uniform_in_truth_does_not_fit():
    assert not fits(parse_start("each(p=0.01)"), 100)
    assert fits(parse_start("each(p=0.01)"), 99)
    with pytest.raises(ValueError, match="second best of 100 arms"):
        initial_probabilities(torch.rand(100, 2, dtype=torch.float64), parse_start("each(p=0.01)"))


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("start", ["uniform", "each(p=0.001)", "shared(p=0.001)"])
def test_every_head_starts_from_the_same_probabilities(name, start):
    probabilities = initial_probabilities(draw_rewards(10, 5, 1), parse_start(start))
    head = parse_head(name)
    top = 0.0 if name == "sigmoid_norm" else 10.0
    scores = initial_scores(head, probabilities, top)
    assert torch.allclose(head.weights(scores, 0), probabilities, rtol=1e-9, atol=0)
    assert scores.amax(0).tolist() == pytest.approx([top] * 5)


def test_initial_scores_are_those_of_the_closed_inverse_maps():
    probabilities = initial_probabilities(draw_rewards(10, 5, 1), parse_start("each(p=0.001)"))
    relative = (probabilities / probabilities.amax(0)).log()
    peak = 3.0 * math.log(math.log1p(math.exp(10.0)) + 1e-8)
    expected = {
        "softmax(beta=2)": 10 + relative / 2,
        "escort(p=3)": 10 * (relative / 3).exp(),
        "s_tau(tau=3)": softmax_to_s_tau(relative + peak, 3.0),
    }
    for text, scores in expected.items():
        assert torch.allclose(initial_scores(parse_head(text), probabilities, 10.0), scores, rtol=1e-10, atol=1e-10)


def test_a_head_without_such_scores_is_refused():
    probabilities = initial_probabilities(draw_rewards(10, 2, 1), parse_start("each(p=0.01)"))
    with pytest.raises(ValueError, match="no scores up to top = 10 give argmax"):
        initial_scores(parse_head("argmax"), probabilities, 10.0)


def test_gradients_of_two_arms_by_hand():
    """w = (1/4, 3/4), r = (1, 0): V = 1/4, w (r - V) = (3/16, -3/16), times d log f / ds."""
    rewards, value = torch.tensor([[1.0], [0.0]], dtype=torch.float64), torch.tensor([0.25], dtype=torch.float64)
    root = math.sqrt(3.0)
    scores = torch.tensor([[1.0], [root]], dtype=torch.float64)
    weights, gradient = evaluate(parse_head("escort(p=2)"), scores, None)
    assert weights[:, 0].tolist() == pytest.approx([0.25, 0.75])
    assert gradient(rewards, value, None)[0][:, 0].tolist() == pytest.approx([3 / 8, -3 / 8 / root])
    # tau: 3/16 (log phi_1 - log phi_2), and w_1 / w_2 = (phi_1 / phi_2)^tau = 1/3, so -3/16 ln 3 / tau.
    head = STau(tau=2.0)
    scores = initial_scores(head, torch.tensor([[0.25], [0.75]], dtype=torch.float64), 4.0)
    _, gradient = evaluate(head, scores, torch.tensor([2.0], dtype=torch.float64))
    assert gradient(rewards, value, None)[1].tolist() == pytest.approx([-3 / 32 * math.log(3.0)])
    # One pull of arm 1 with advantage 3/4: 3/4 (1 - w) = 9/16 on it, -9/16 on the other, slope 1.
    scores = torch.tensor([[0.0], [math.log(3.0)]], dtype=torch.float64)
    _, gradient = evaluate(parse_head("softmax"), scores, None)
    sample = Sample(torch.tensor([0]), torch.tensor([0.75], dtype=torch.float64))
    assert gradient(rewards, value, sample)[0][:, 0].tolist() == pytest.approx([9 / 16, -9 / 16])


@pytest.mark.parametrize("text", ["softmax(beta=2)", "escort(p=1.5)", "s_tau(tau=3)", "s_tau(tau=2, eps=0.1)"])
@pytest.mark.parametrize("sampled", [False, True])
def test_closed_forms_are_the_automatic_gradients(text, sampled):
    generator = torch.Generator().manual_seed(7)
    scores = 6 * torch.randn(9, 20, dtype=torch.float64, generator=generator)
    scores[0, 0] = 0.0
    rewards = torch.rand(9, 20, dtype=torch.float64, generator=generator)
    parameter = 1.0 + 2 * torch.rand(20, dtype=torch.float64, generator=generator)
    head = parse_head(text)
    assert closed_form(head) is not None
    weights, closed = evaluate(head, scores, parameter)
    again, automatic = evaluate(head, scores, parameter, closed=False)
    assert torch.allclose(weights, again, rtol=1e-12, atol=1e-15)
    value = (weights * rewards).sum(0)
    sample = Sample(weights.argmax(0), rewards[2] - value) if sampled else None
    for one, other in zip(closed(rewards, value, sample), automatic(rewards, value, sample), strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("method", DEFAULT_METHODS)
def test_samples_are_unbiased(method):
    """Averaged over arms with their weights, the gradient of a pull is the exact one, whatever the baseline."""
    head = parse_method(method).head
    rewards = draw_rewards(6, 4, 2)
    scores = initial_scores(head, initial_probabilities(rewards, parse_start("each(p=0.05)")), 5.0)
    weights, gradient = evaluate(head, scores, torch.full((4,), 2.0, dtype=torch.float64))
    value = (weights * rewards).sum(0)
    exact = gradient(rewards, value, None)
    for baseline in (0.0, value):
        means = [torch.zeros_like(part) for part in exact]
        for arm in range(6):
            sample = Sample(torch.full((4,), arm), rewards[arm] - baseline)
            for mean, part in zip(means, gradient(rewards, value, sample), strict=True):
                mean += weights[arm] * part
        for mean, part in zip(means, exact, strict=True):
            assert torch.allclose(mean, part, rtol=1e-9, atol=1e-14)


def test_the_first_updates_of_softmax_by_hand():
    """From 1/2, 1/2 a step moves the score difference by step D / 2, so the gap is D / (1 + exp(step D / 2))."""
    result = ascend(problem(arms=2, start="uniform", updates=1), parse_method("softmax"), (0.5, 8.0), (0, 1))
    difference = (draw_rewards(2, 12, 3)[0] - draw_rewards(2, 12, 3)[1]).abs()
    for place, size in enumerate((0.5, 8.0)):
        assert torch.allclose(result.curve[0, place], difference / 2, rtol=1e-12)
        assert torch.allclose(result.curve[1, place], difference / (1 + (size * difference / 2).exp()), rtol=1e-12)


def test_entropy_control_moves_tau_by_hand():
    """At the uniform policy H = log K, so raw = log(e - 1) moves by rate step (1 - target) and no reward enters."""
    method = parse_method("learned(s_tau(tau=2), rate=0.5, target=0.25)")
    result = ascend(problem(start="uniform", updates=1), method, (4.0,), (1,))
    rewards = draw_rewards(10, 12, 3)
    raw = math.log(math.e - 1) + 0.5 * 4.0 * 0.75
    phi = math.log1p(math.exp(10.0))
    moved = 10.0 + 4.0 * 0.1 * (rewards - rewards.mean(0)) * 2 / (1 + math.exp(-10.0)) / phi
    weights = STau(tau=1 + math.log1p(math.exp(raw))).weights(moved, 0)
    assert torch.allclose(result.curve[0, 0], rewards.amax(0) - (weights * rewards).sum(0), rtol=1e-6, atol=1e-12)


def test_a_frozen_tau_is_a_fixed_one_and_a_slow_one_nearly():
    frozen, fixed, slow, free = (
        ascend(problem(), parse_method(text), (40.0,), (300,)).curve
        for text in (
            "learned(s_tau(tau=2), freeze=300)",
            "s_tau(tau=2)",
            "learned(s_tau(tau=2), rate=1e-9)",
            "learned(s_tau(tau=2))",
        )
    )
    assert torch.allclose(frozen, fixed, rtol=1e-9)
    assert torch.allclose(slow, fixed, rtol=1e-5)
    assert not torch.allclose(free, fixed, rtol=0.1)


@pytest.mark.parametrize("gradient", ["exact", "sampled", "sampled_no_baseline"])
def test_a_column_does_not_depend_on_what_runs_beside_it(gradient):
    method = parse_method("learned(s_tau(tau=2), rate=0.1)")
    whole = ascend(problem(within=0.1, gradient=gradient), method, (1.0, 400.0)).steps
    kept = ascend(problem(within=0.1, gradient=gradient), method, (1.0, 400.0), (300,)).steps
    alone = ascend(problem(within=0.1, gradient=gradient), method, (400.0,)).steps
    fewer = ascend(problem(within=0.1, gradient=gradient, draws=5), method, (1.0, 400.0)).steps
    assert torch.equal(whole, kept)
    assert torch.equal(whole[1:], alone)
    assert torch.equal(whole[:, :5], fewer)
    assert 0 < whole.isinf().sum() < whole.numel()


def test_steps_are_the_first_checkpoint_within_reach():
    result = ascend(problem(updates=60), parse_method("s_tau(tau=2)"), (400.0,), range(61))
    there = (result.curve[:, 0] <= 0.01).numpy()
    expected = np.where(there.any(0), there.argmax(0), np.inf)
    assert result.steps[0].tolist() == expected.tolist()


def test_seeds_own_rewards_and_pulls():
    first, _, second, _ = words(9, torch.arange(3), 7, 0)
    uniforms = pull_uniforms(9, 3, 14, 4)
    assert torch.equal(uniforms[0], closed_uniform(first))
    assert torch.equal(uniforms[1], closed_uniform(second))
    assert not torch.equal(draw_rewards(10, 4, 1), draw_rewards(10, 4, 2))
    method = parse_method("s_tau(tau=2)")
    before = torch.random.get_rng_state()
    one, same, other = (
        ascend(problem(gradient="sampled", seed=seed), method, (40.0,), (300,)).curve for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_published_plateau():
    """Mei et al. 2020: softmax is held by the suboptimal corner, escort is not; s_tau with an offset is not either,
    plain learned tau is, and slow tau is not. 32 draws; at the step sizes shown, shares are far from the bounds."""

    def failures(text, size):
        return float(
            ascend(problem(updates=20_000, draws=32), parse_method(text), (size,)).steps.isinf().double().mean()
        )

    assert failures("softmax(beta=1)", 0.4) > 0.6
    assert failures("escort(p=2)", 40.0) == 0
    assert failures("s_tau(tau=2)", 40.0) == 0
    assert failures("learned(s_tau(tau=2))", 400.0) > 0.2
    assert failures("learned(s_tau(tau=2), rate=0.01)", 40.0) == 0


def test_best_step_size_and_summary_by_hand():
    steps = np.array([[1.0, np.inf], [9.0, 9.0], [3.0, 5.0], [4.0, 4.0]])
    assert best_place(steps, 100) == 2
    row = summary(np.array([np.inf, 0.0, 4.0, np.inf, 7.0]))
    assert (row["failed"], row["at_start"], row["steps"]) == (0.4, 0.2, 7.0)
    assert summary(np.array([np.inf, np.inf, 4.0, np.inf]))["steps"] == math.inf
    assert checkpoints(1) == [0, 1]
    assert checkpoints(100)[:3] == [0, 1, 2]
    assert checkpoints(100)[-1] == 100


@pytest.mark.parametrize("text", DEFAULT_METHODS)
def test_methods_print_as_they_read(text):
    assert str(parse_method(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("softmx", "did you mean 'softmax'"),
        ("learned(argmax)", "has no sharpness to learn"),
        ("learned(s_tau(tau=1))", "learned: a learned tau must start inside its range, > 1, got 1.0"),
        ("learned(s_tau, rate=0)", "rate must be finite and > 0"),
        ("learned(s_tau, freeze=-1)", "freeze must be a number of updates"),
        ("learned(s_tau, target=1)", "target must be a share"),
        ("fixed(softmax, top=inf)", "top must be finite"),
        ("softmax(beta=t)", "changes with t"),
        ("softmax | escort", "got a pipe of 2"),
        ("fixed()", "needs the argument 'head'"),
    ],
)
def test_methods_that_are_none(text, message):
    with pytest.raises(SpecError, match=message):
        parse_method(text)


def test_a_head_that_may_abstain_is_refused():
    @dataclass(frozen=True, slots=True)
    class Half(Head):
        name: ClassVar[str] = "half"
        mass_kind: ClassVar[str] = "sub"

    with pytest.raises(ValueError, match="half may abstain"):
        Fixed(Half())
