"""Policies as text: what parses, what comes back, and that nothing but a SpecError comes out of bad text."""

import string
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stau_rl.agents import (
    POLICIES,
    SCORES,
    EpsGreedy,
    GradientBandit,
    Pipe,
    Policy,
    Thompson,
    Ucb1,
    parse_policy,
)
from stau_rl.agents.scores import CentredUcb, Mean, Ucb
from stau_rl.heads import HEADS, Argmax, Escort, Softmax, STau
from stau_rl.text import SpecError


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("centred_ucb(c=1) | s_tau(tau=5)", Pipe(CentredUcb(1.0), STau(5.0))),
        ("centred_ucb|softmax", Pipe(CentredUcb(), Softmax())),
        (" ucb( 0.5 ) | argmax() ", Pipe(Ucb(0.5), Argmax())),
        ("mean | escort(p=2)", Pipe(Mean(), Escort(2.0))),
        ("eps_greedy", EpsGreedy()),
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
    made += [Pipe(score(), head()) for score in SCORES.values() for head in HEADS.values()]
    for policy in made:
        assert parse_policy(str(policy)) == policy
        assert isinstance(policy.lowered(), Policy)
    assert len({str(policy) for policy in made}) == len(made)


def test_shorthands_are_what_they_say() -> None:
    assert parse_policy("ucb1").lowered() == parse_policy("ucb(c=1) | argmax")
    assert parse_policy("greedy").lowered() == parse_policy("mean | argmax")
    # Only scores of the UCB kind force pulls.
    forcing = [str(policy()) for policy in POLICIES.values() if policy().forces_pulls]
    assert forcing == ["ucb1"]
    assert [name for name, score in SCORES.items() if score.forces_pulls] == ["ucb", "centred_ucb"]


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
        ("ucb | softmax | argmax", r"expected one name or score \| head, got a pipe of 3"),
        ("ucb | softmax(beta=1", r"cannot read policy 'ucb \| softmax\(beta=1'"),
        ("ucb |", r"cannot read policy 'ucb \|'"),
        ("ucb | s_tau(tau=0.5)", r"s_tau: tau must be finite and >= 1, got 0.5"),
        ("ucb | softmax(beta=nan)", r"softmax: beta must be finite and >=? 0, got nan"),
        ("ucb(c=-1) | argmax", r"ucb: c must be finite and >= 0, got -1.0"),
        ("ucb | softmax(temperature=2)", r"softmax has no argument 'temperature'"),
        ("ucb | softmax(1, beta=2)", r"softmax: argument 'beta' is given twice"),
        ("eps_greedy(eps=1.5)", r"eps_greedy: eps must lie in \[0, 1\], got 1.5"),
        ("eps_greedy(eps=nan)", r"eps_greedy: eps must lie in \[0, 1\], got nan"),
        ("eps_greedy(eps=yes)", r"eps_greedy: eps must be a number, got 'yes'"),
        ("thompson(prior_sd=0)", r"thompson: prior_sd must be finite and > 0, got 0.0"),
        ("thompson(sigma=inf)", r"thompson: sigma must be finite and > 0, got inf"),
        ("thompson(prior_mean=nan)", r"thompson: prior_mean must be finite, got nan"),
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
