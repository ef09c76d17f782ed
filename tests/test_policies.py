"""Policies as text: what parses, what comes back, and that nothing but a SpecError comes out of bad text."""

import math
import string
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

import numba_oracle as oracle
from stau_rl.agents.bandit import (
    POLICIES,
    SCORES,
    BoltzmannGumbel,
    EpsGreedy,
    GradientBandit,
    Index,
    Pipe,
    Policy,
    Thompson,
    Ucb1,
    parse_policy,
)
from stau_rl.agents.bandit.scores import CentredUcb, Mean, Ucb
from stau_rl.envs.arms import parse_arms
from stau_rl.heads import HEADS, Argmax, Escort, Softmax, STau
from stau_rl.kernels.torch_loop import Draws, State, simulate
from stau_rl.regret.arm_table import arm_table
from stau_rl.regret.report import final_rows, sentences
from stau_rl.regret.run import run_regret
from stau_rl.spec.grammar import SpecError


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("centred_ucb(c=1) | s_tau(tau=5)", Pipe(CentredUcb(1.0), STau(5.0))),
        ("centred_ucb|softmax", Pipe(CentredUcb(), Softmax())),
        (" ucb( 0.5 ) | argmax() ", Pipe(Ucb(0.5), Argmax())),
        ("mean | escort(p=2)", Pipe(Mean(), Escort(2.0))),
        ("eps_greedy", EpsGreedy()),
        ("boltzmann_gumbel(c=0.25)", BoltzmannGumbel(0.25)),
        ("eps_greedy(eps=1)", EpsGreedy(1.0)),
        ("thompson(sigma=None)", Thompson()),
        ("thompson(prior_mean=-1, prior_sd=2, sigma=0.5)", Thompson(-1.0, 2.0, 0.5)),
        ("gradient_bandit(baseline=none, head=s_tau(tau=3))", GradientBandit(baseline="none", head=STau(3.0))),
        ("gradient_bandit(head=escort)", GradientBandit(head=Escort())),
        ("ucb1", Ucb1()),
    ],
)
def test_text_parses_and_comes_back(text: str, policy: Policy) -> None:
    assert parse_policy(text) == policy
    assert parse_policy(str(policy)) == policy


def test_the_default_of_everything_registered_comes_back() -> None:
    made = [member() for member in POLICIES.values()]
    heads = [head() for head in HEADS.values()]
    made += [Pipe(score(), head) for score in SCORES.values() for head in heads if head.mass_kind != "free"]
    made += [Pipe(score(), head, True) for score in SCORES.values() for head in heads if head.mass_kind != "simplex"]
    for policy in made:
        assert parse_policy(str(policy)) == policy
        assert isinstance(policy.lowered(), Policy)
    assert len({str(policy) for policy in made}) == len(made)


def test_shorthands_are_what_they_say() -> None:
    assert parse_policy("ucb1").lowered() == parse_policy("ucb(c=1) | argmax")
    assert parse_policy("greedy").lowered() == parse_policy("mean | argmax")
    # Only scores of the UCB kind force pulls, and noise whose scale is infinite before.
    forcing = [str(policy()) for policy in POLICIES.values() if policy().forces_pulls]
    assert forcing == ["ucb1", "boltzmann_gumbel(c=1)"]
    plain = {name: score for name, score in SCORES.items() if not issubclass(score, Index)}
    assert [name for name, score in plain.items() if score.forces_pulls] == [
        "ucb",
        "centred_ucb",
        "reward_centred_ucb",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"policy must be a non-empty text, got ''"),
        ("tompson", r"unknown policy 'tompson'; did you mean 'thompson'\?"),
        ("zzz", r"unknown policy 'zzz'; known: random, greedy"),
        ("ucb | sofmax", r"unknown head 'sofmax'; did you mean 'softmax'\?"),
        ("ucb2 | softmax", r"unknown score 'ucb2'; did you mean 'ucb'\?"),
        ("ucb", r"policy 'ucb' is a score alone; add a head, as in 'ucb \| softmax\(beta=1\)'"),
        ("softmax", r"policy 'softmax' is a head alone; put a score before it"),
        ("ucb | softmax | argmax", r"expected one name, score \| head, or .*, got a pipe of 3"),
        ("ucb | softmax(beta=1", r"cannot read policy 'ucb \| softmax\(beta=1'"),
        ("ucb |", r"cannot read policy 'ucb \|'"),
        ("ucb | s_tau(tau=0.5)", r"s_tau: tau must be finite and >= 1, got 0.5"),
        ("ucb | softmax(beta=nan)", r"softmax: beta must be finite and >=? 0, got nan"),
        ("ucb(c=-1) | argmax", r"ucb: c must be finite and >= 0, got -1.0"),
        ("ucb | softmax(temperature=2)", r"softmax has no argument 'temperature'"),
        ("ucb | softmax(1, beta=2)", r"softmax: argument 'beta' is given twice"),
        ("eps_greedy(eps=1.5)", r"eps_greedy: eps must be finite and >= 0 and <= 1, got 1.5"),
        ("boltzmann_gumbel(c=0)", "boltzmann_gumbel: c must be finite and > 0, got 0"),
        ("eps_greedy(eps=nan)", r"eps_greedy: eps must be finite and >= 0 and <= 1, got nan"),
        ("eps_greedy(eps=yes)", r"eps_greedy: eps must be a number or an expression of t, got 'yes'"),
        ("thompson(prior_sd=0)", r"thompson: prior_sd must lie in \[1e-100, 1e100\], got 0.0"),
        ("thompson(sigma=inf)", r"thompson: sigma must lie in \[1e-100, 1e100\], got inf"),
        ("thompson(prior_mean=nan)", r"thompson: prior_mean must be at most 1e100 in size, got nan"),
        ("gradient_bandit(alpha=0)", r"gradient_bandit: alpha must be finite and > 0, got 0.0"),
        ("gradient_bandit(baseline=mean)", r"baseline must be one of none, mean_including, mean_before, got 'mean'"),
        ("gradient_bandit(head=argmax)", r"gradient_bandit: head must be softmax, s_tau or escort, got argmax"),
        ("gradient_bandit(head=5)", r"gradient_bandit: head must be a head, got 5"),
        ("random(1)", r"random takes at most 0 arguments, got 1"),
        ("lambda: 0", r"cannot read policy"),
        ("__import__('os').system('true')", r"cannot read policy"),
    ],
)
def test_bad_texts_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_policy(text)


def _state(pulls: list[int], sums: list[float], arms: str = "gaussian(k=3, sigma=2)") -> State:
    """One instance after some pulls."""
    return State(
        table=arm_table(parse_arms(arms), 0, 0, 1),
        dtype=torch.float64,
        counts=torch.tensor(pulls)[:, None],
        sums=torch.tensor(sums, dtype=torch.float64)[:, None],
        total=torch.tensor([sum(sums)], dtype=torch.float64),
        step=sum(pulls),
    )


def test_scores_by_hand() -> None:
    state = _state([1, 4, 16], [0.5, 3.0, 4.0])
    bonus = 0.5 * math.sqrt(2.0 * math.log(21))
    ucb = [0.5 + bonus, 0.75 + bonus / 2, 0.25 + bonus / 4]
    centre = sum(ucb) / 3
    assert Mean().values(state, torch.float64)[:, 0].tolist() == [0.5, 0.75, 0.25]
    assert Ucb(0.5).values(state, torch.float64)[:, 0].tolist() == pytest.approx(ucb, rel=1e-14)
    found = CentredUcb(0.5).values(state, torch.float64)[:, 0].tolist()
    assert found == pytest.approx([score - centre for score in ucb], rel=1e-14)
    # An arm never pulled has mean 0.
    assert Mean().values(_state([0, 2, 0], [0.0, -4.0, 0.0]), torch.float64)[:, 0].tolist() == [0.0, -2.0, 0.0]


@pytest.mark.parametrize(
    ("baseline", "advantage"),
    # Rewards 0.5, 2, 3 before and 4 now: means 11/6 before, 9.5/4 with it.
    [("none", 4.0), ("mean_before", 4.0 - 5.5 / 3), ("mean_including", 4.0 - 9.5 / 4)],
)
def test_a_step_of_the_gradient_bandit_by_hand(baseline: str, advantage: float) -> None:
    policy = GradientBandit(alpha=0.1, baseline=baseline, head=Softmax(2.0))
    state = _state([1, 2, 1], [0.5, 5.0, 4.0])
    state.step = 3
    before = torch.tensor([[0.3], [-0.2], [0.1]], dtype=torch.float64)
    weights = torch.softmax(2.0 * before, dim=0)
    state.own.update(preferences=before, weights=weights)
    policy.learn(state, torch.tensor([2]), torch.tensor([4.0], dtype=torch.float64))
    # d log softmax(2 H)_2 / d H_k = 2 (1[k = 2] - w_k).
    expected = before + 0.1 * advantage * 2.0 * (torch.tensor([[0.0], [0.0], [1.0]]) - weights)
    torch.testing.assert_close(state.own["preferences"], expected, rtol=1e-14, atol=0.0)


def test_the_first_reward_has_no_mean_before_it() -> None:
    policy = GradientBandit(alpha=0.5, baseline="mean_before")
    state = _state([1, 0, 0], [3.0, 0.0, 0.0])
    state.step = 0
    policy.start(state)
    state.own["weights"] = torch.full((3, 1), 1.0 / 3.0, dtype=torch.float64)
    policy.learn(state, torch.tensor([0]), torch.tensor([3.0], dtype=torch.float64))
    assert state.own["preferences"][:, 0].tolist() == pytest.approx([1.0, -0.5, -0.5], rel=1e-15)


@pytest.mark.parametrize(
    ("arms", "policy", "laws"),
    [
        ("bernoulli(k=3)", Thompson(), [stats.beta(2, 1), stats.beta(4, 2), stats.beta(1, 1)]),
        # Noise 2, so a pull has precision 1/4. Prior N(0, 1): precision 1 + n/4, mean S/4 over it.
        ("gaussian(k=3, sigma=2)", Thompson(), [stats.norm(0.2, 1.25**-0.5), stats.norm(0.375, 2**-0.5), stats.norm()]),
        # Prior N(1, 1/4) and noise 1 instead: precision 4 + n, mean (4 + S) over it.
        (
            "gaussian(k=3, sigma=2)",
            Thompson(prior_mean=1.0, prior_sd=0.5, sigma=1.0),
            [stats.norm(1.0, 5**-0.5), stats.norm(7 / 8, 8**-0.5), stats.norm(1.0, 0.5)],
        ),
    ],
)
def test_posterior_draws_have_their_law(arms: str, policy: Thompson, laws: list[Any]) -> None:
    # Pulls 1, 4, 0 and sums 1, 3, 0. Error rate: a p-value below 1e-4 has that probability; the seed is fixed.
    size = 20_000
    state = _state([1, 4, 0], [1.0, 3.0, 0.0], arms)
    state.counts, state.sums = state.counts.expand(3, size), state.sums.expand(3, size)
    found = policy.posterior_draws(state, Draws(5, torch.arange(size), 3))
    for row, law in zip(found.numpy(), laws, strict=True):
        assert stats.kstest(row, law.cdf).pvalue > 1e-4
    assert stats.pearsonr(found[0], found[1]).pvalue > 1e-4


def test_boltzmann_gumbel_is_softmax_where_all_arms_have_equal_pulls() -> None:
    """The largest of x_k + s G_k is arm k with probability softmax(x / s)."""
    instances, c = 40_000, 0.4
    table = arm_table(parse_arms("gaussian(means=[0.1, 0.5, -0.2], sigma=0.3)"), 0, 0, instances)
    sums = torch.tensor([0.4, 2.0, -0.8], dtype=torch.float64)[:, None].expand(3, instances)
    counts = torch.full((3, instances), 4)
    state = State(table, torch.float64, counts, sums, sums.sum(0), step=12)
    arms = BoltzmannGumbel(c).choose(state, Draws(5, torch.arange(instances), 3))
    share = np.bincount(arms.numpy(), minlength=3) / instances
    expected = np.exp(np.array([0.1, 0.5, -0.2]) * 2 / c)
    expected /= expected.sum()
    assert np.abs((share - expected) / np.sqrt(expected * (1 - expected) / instances)).max() < 4


@pytest.mark.parametrize("kind", ["bernoulli", "gaussian", "table"])
def test_boltzmann_gumbel_plays_the_history_of_a_plain_loop(kind: str) -> None:
    """numpy, with the Gumbel quantile of SciPy; float64 on both sides, so every decision is the same."""
    table = oracle.ARMS[kind]
    options = {"seed": 9, "first_instance": 0, "horizon": 40, "checkpoints": np.array([40]), "record": True}
    got = simulate(BoltzmannGumbel(0.4), table, **options)
    for j in range(3):
        arms, rewards, _ = zip(*oracle.scalar_history(oracle.BoltzmannGumbel(), table, 9, j, 40), strict=True)
        assert got.actions[:, j].tolist() == list(arms)
        np.testing.assert_allclose(got.rewards[:, j], rewards, rtol=1e-12)


positive = st.floats(1e-12, 1e12)
heads = st.one_of(
    st.builds(Softmax, positive),
    st.builds(STau, st.floats(1.0, 1e6), st.floats(0.0, 1e-2)),
    st.builds(Escort, positive),
    st.sampled_from([HEADS["softplus_norm"](), HEADS["sigmoid_norm"](), Argmax()]),
)
scores = st.one_of(st.just(Mean()), st.builds(Ucb, positive), st.builds(CentredUcb, positive))
policies = st.one_of(
    st.builds(Pipe, scores, heads),
    st.builds(EpsGreedy, st.floats(0.0, 1.0)),
    st.builds(BoltzmannGumbel, positive),
    st.builds(Thompson, st.floats(-1e9, 1e9), positive, st.none() | positive),
    st.builds(
        GradientBandit,
        positive,
        st.sampled_from(["none", "mean_including", "mean_before"]),
        heads.filter(lambda head: isinstance(head, (Softmax, STau, Escort))),
    ),
)


@given(policies)
@settings(max_examples=200, deadline=None)
def test_every_policy_comes_back_from_its_text(policy: Policy) -> None:
    assert parse_policy(str(policy)) == policy


PIECES = [*POLICIES, *SCORES, *HEADS, "(", ")", "|", "=", ",", "[", "]", "c", "tau", "beta", "eps", "head", "nan", "-",
          "1", "0.5", "1e999", "'", '"', "None", "inf", " ", "\n", "\\", "\0", "**", "*", ":", "lambda", "ü", "#", "if",
          "9" * 5000, "(" * 300, "1j", "b''", "...", "True"]  # fmt: skip


@given(
    st.one_of(
        st.text(max_size=60), st.text(string.printable, max_size=60), st.lists(st.sampled_from(PIECES)).map("".join)
    )
)
@example("ucb | softmax(beta=" + "9" * 5000 + ")")
@example("eps_greedy(eps=1e999)")
@example("thompson(prior_mean=" + "-" * 5000 + "1)")
@example("ucb | " * 3000 + "argmax")
@example("random(*[])")
@example("random(**{})")
@example("gradient_bandit(head=gradient_bandit)")
@example("gradient_bandit(head=softmax(beta=softmax))")
@example("eps_greedy(eps=[[[]]])")
@example("\ud800")
@settings(max_examples=500, deadline=None)
def test_only_a_spec_error_comes_out_of_text(text: str) -> None:
    with suppress(SpecError):
        assert isinstance(parse_policy(text), Policy)


def test_the_mass_of_a_head_must_fit_the_policy() -> None:
    with pytest.raises(SpecError, match=r"the weights of rela are no probabilities; add '\| renormalise'"):
        parse_policy("ucb | rela")
    with pytest.raises(SpecError, match=r"the weights of softmax\(beta=1\) sum to 1 already; leave out"):
        parse_policy("ucb | softmax | renormalise")
    with pytest.raises(SpecError, match="got a pipe of 3"):
        parse_policy("ucb | power_norm | renormalise(2)")


@pytest.mark.parametrize(
    ("policy", "arms", "note"),
    [
        ("thompson", "gaussian(k=10)", ""),
        ("thompson", "gaussian(means=[3, 0])", ""),
        ("thompson", "bernoulli(k=10)", ""),
        ("ucb1", "gaussian(means=[900, 910])", ""),
        ("thompson(prior_mean=900, prior_sd=10)", "gaussian(means=[900, 910])", ""),
        (
            "thompson",
            "gaussian(means=[3.5, 0])",
            "(0 to 3.5) lie up to 3.5 standard deviations from its prior N(0, ",
        ),
        ("thompson(prior_sd=0.5)", "gaussian(means=[-2, 1])", "(-2 to 1) lie up to 4 standard deviations"),
        # 95 % of the drawn means lie within 1.96 of 900.
        ("thompson", "gaussian(k=10, loc=900)", "(898 to 902) lie up to 902 standard deviations"),
        (
            "thompson",
            "table(observations=[[1000, 3000], [-500, -1500]])",
            "a prior that fits is thompson(prior_mean=500, prior_sd=1.5e+03).",
        ),
    ],
)
def test_a_prior_far_from_the_arms_is_told(policy: str, arms: str, note: str) -> None:
    result = run_regret(arms, [policy, "random"], 5, 3, engine="torch")
    assert result.spec.get("notes", []) == ([] if not note else [parse_policy(policy).note(parse_arms(arms))])
    told = "\n".join(sentences(result, final_rows(result)))
    assert note in told
    assert ("misleads it" in told) == bool(note)


def test_the_prior_that_is_offered_fits() -> None:
    arms = parse_arms("table(observations=[[1000, 3000], [-500, -1500]])")
    offered = parse_policy("thompson").note(arms).split(" is ")[1].rstrip(".")
    assert parse_policy(offered).note(arms) == ""
    result = run_regret(arms, ["thompson", offered], 200, 50, engine="torch")
    first, second = result.regret[:, -1].mean(-1)
    assert second < first / 5
