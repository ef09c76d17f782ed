"""The Triton engine against exact histories and the reference, interpreted on a CPU and compiled on a GPU."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stau_rl.agents.bandit import parse_policy
from stau_rl.kernels.contract import ArmTable, EngineError
from stau_rl.kernels.engines import ENGINES, choose_engine
from stau_rl.kernels.gpu.plan import make_plan

HERE = Path(__file__).parent
HAS_TRITON = importlib.util.find_spec("triton") is not None
MODES = [
    pytest.param("interpreted", marks=pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")),
    pytest.param("compiled", marks=pytest.mark.gpu),
]
POLICIES = (
    *("mean softmax", "ucb s_tau", "centred s_tau", "centred s_tau eps=0", "steep softmax", "escort"),
    *("clamp", "clamp ratio", "reward centred", "reward centred softmax", "wide clamp"),
    *("softplus_norm", "sigmoid_norm", "ucb1", "greedy", "random", "eps_greedy", "thompson", "boltzmann_gumbel"),
    *("gradient softmax", "gradient s_tau", "gradient escort", "gradient schedule", "whole ratio"),
    *("softmax schedule", "steep schedule", "s_tau schedule", "ratio schedule", "s_tau eps schedule"),
    *("escort schedule", "offset", "negative offset", "uncentred offset", "softmax offset", "offset schedule"),
    *("bonus schedule", "centred bonus schedule", "ucb1 schedule", "wide bonus schedule"),
    *("plug-in", "plug-in schedule"),
    *("wide softmax", "wide steep", "wide s_tau", "wide s_tau eps=0", "wide s_tau schedule"),
    *("wide escort", "wide softplus_norm", "wide sigmoid_norm"),
    *("ucb1_tuned(c=1.5)", "ucb_v", "moss_anytime", "moss(c=0.5)", "kl_ucb(c=3)", "kl_ucb_plus", "bayes_ucb"),
    *("kl_ucb_plus(sigma=0.5)", "imed", "imed(sigma=2)", "imed lanes"),
    *("thompson far", "thompson prior", "thompson loose prior", "thompson flat prior", "gumbel far", "gradient far"),
    *(
        f"{name} {kind}"
        for name in ("centred s_tau", "clamp", "ucb1", "thompson", "gradient softmax")
        for kind in ("gaussian", "table")
    ),
    *(
        f"{name} lanes"
        for name in (
            "centred s_tau",
            "ucb1",
            "thompson",
            "boltzmann_gumbel",
            "negative offset",
            "ratio schedule",
            "clamp",
            "plug-in",
        )
    ),
)


def run_script(name, mode):
    """The findings of a script in a process of its own, as Triton decides at import whether to interpret."""
    environment = os.environ | {"PYTHONPATH": str(HERE.parent)}
    environment["TRITON_INTERPRET"] = "1" if mode == "interpreted" else "0"
    done = subprocess.run(
        [sys.executable, str(HERE / name)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module", params=MODES)
def findings(request):
    """All checks of triton_cases.py."""
    return run_script("triton_cases.py", request.param)


@pytest.fixture(scope="module", params=MODES)
def errors(request):
    """Errors of the device functions, by triton_weights_case.py."""
    return run_script("triton_weights_case.py", request.param)


def test_weights_are_accurate_on_all_scores(errors):
    """Within 1e-5 of float64 for scores in [-60, 60], every head, any sharpness up to 100."""
    assert len(errors["sweep"]) == 26
    bad = {name: row for name, row in errors["sweep"].items() if not max(row.values()) <= 1e-5}
    assert not bad


def test_weights_are_accurate_on_the_exact_rows(errors):
    assert sorted(errors["golden"]) == ["escort_p3", "s_tau", "sigmoid_norm", "softmax_beta2", "softplus_norm"]
    assert max(errors["golden"].values()) <= 1e-5


def test_extreme_rows_have_weights(errors):
    assert all(errors["extreme"]["finite"].values()), errors["extreme"]
    assert errors["extreme"]["uniform"] <= 1e-7


def test_the_mean_error_of_the_cumulative_weights(errors):
    assert errors["cdf"]["form"] == "direct"
    assert errors["cdf"]["mean"] <= 1.1e-6


def test_histories_are_exact(findings):
    assert findings["golden"] == {"histories": 8, "wrong": []}


@pytest.mark.parametrize("policy", POLICIES)
def test_agrees_with_the_reference(findings, policy):
    found = findings[f"agree {policy}"]
    # Interpreted runs are short and 5 instances, so that one rounding would show as a share of 0.8.
    assert found["same"] >= 0.99
    assert found["optimal"]
    assert found["late_optimal"]
    assert found["pulls"]
    assert found["regret"] <= 1e-11
    # A Gaussian reward comes from a float32 quantile of relative error 1e-6, up to 5.4 sigma large.
    assert found["rewards"] <= 4e-6
    assert found["reward_sums"] <= 1e-4


def test_histories_do_not_depend_on_the_batch(findings):
    assert all(findings["split"].values()), findings["split"]


def test_histories_do_not_depend_on_the_launches(findings):
    assert all(findings["launches"].values()), findings["launches"]


def test_loading_takes_the_kernels_of_the_run(findings):
    assert findings["loads"] == {"wrong": [], "most": 3}


def test_refuses_what_it_cannot_run(findings):
    assert "torch" in findings["errors"]["dtype"]
    assert "2147483647" in findings["errors"]["horizon"]


def test_a_device_function_that_contradicts_its_head_is_refused(findings):
    """The head, the score and both values are named; a schedule is looked at where it starts and where it ends."""
    found = findings["contradictions"]
    assert {text for text, message in found.items() if not message} == {"askew(a=3)", "ramp(p=7)"}
    # A step of 1/4 along the grid is 3/4 in 3 s and 5/8 in 3 s + |s| / 2.
    assert re.fullmatch(
        r"head 'askew': its triton function contradicts its function of tensors: at score -15\.75 log f is 0\.75\d* in "
        r"the one and 0\.625 in the other \(0 at score -16\), for askew\(a=3, b=0\.5\)",
        found["askew(a=3, b=0.5)"],
    )
    # log 14 interpreted, log 300 compiled.
    assert re.search(r"for askew\(a=1, b=(2\.639|5\.703)\d*\)$", found["askew(b=log(t))"])
    assert found["ramp(p=7, off=0.01)"].startswith("head 'ramp': its triton function contradicts")


def bernoulli(k):
    return ArmTable("bernoulli", np.full((k, 1), 0.5), 0.5, np.empty(0), np.empty(0, np.int64), True, 1)


@pytest.mark.parametrize(("k", "lanes", "slots"), [(1, 1, 1), (10, 1, 10), (32, 1, 32), (33, 2, 17), (1024, 32, 32)])
def test_layout(k, lanes, slots):
    variant = make_plan(parse_policy("ucb | softmax"), bernoulli(k), 100).variant
    assert (variant.lanes, variant.slots) == (lanes, slots)
    # Slot, successes and pulls share 32 bits.
    assert variant.index_bits + 2 * variant.count_bits <= 32
    assert variant.steps_per_launch < 1 << variant.count_bits


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("centred_ucb | s_tau(tau=5)", "s_tau_direct_no_floor"),
        ("centred_ucb(c=20) | s_tau(tau=5)", "s_tau_log2"),
        ("centred_ucb(offset=2) | s_tau(tau=5)", "s_tau_direct_no_floor"),
        ("centred_ucb(offset=-2) | s_tau(tau=5)", "s_tau_log2"),
        ("centred_ucb | s_tau(tau=1+0.5*log(t))", "s_tau_direct_no_floor"),
        ("centred_ucb | s_tau(tau=1+5*log(t))", "s_tau_ratio"),
        ("centred_ucb | s_tau(tau=88.7)", "s_tau_ratio"),
        ("ucb | s_tau(tau=5)", "s_tau_log2"),
        ("ucb | s_tau(tau=5, eps=0)", "s_tau_ratio"),
        ("ucb | s_tau(tau=5, eps=exp(-t))", "s_tau_ratio"),
        ("ucb | softmax(beta=1)", "softmax_direct"),
        ("ucb | softmax(beta=64)", "softmax_scaled"),
        ("ucb | softmax(beta=4*log(t))", "softmax_scheduled"),
        ("ucb | softmax(beta=200+0*t)", "softmax_scaled"),
        ("ucb | softmax(beta=t)", "softmax_wide"),
    ],
)
def test_direct_forms_only_where_they_fit(text, device):
    assert make_plan(parse_policy(text), bernoulli(3), 1000).head.device == device


def test_scores_far_from_zero_are_not_exponentiated_before_centring():
    means = np.array([[60.0], [61.0]])
    table = ArmTable("gaussian", means, 1.0, np.empty(0), np.empty(0, np.int64), False, 1)
    assert make_plan(parse_policy("centred_ucb | s_tau(tau=7)"), table, 1000).head.form == "ratio"


def test_scores_farther_still_are_float64():
    means = np.array([[900.0], [901.0]])
    table = ArmTable("gaussian", means, 1.0, np.empty(0), np.empty(0, np.int64), False, 1)
    plan = make_plan(parse_policy("centred_ucb | s_tau(tau=7)"), table, 1000)
    assert (plan.head.device, plan.variant.double, plan.exact_rewards) == ("s_tau_wide", True, True)


def test_what_nobody_asked_for_is_not_compiled():
    """Schedules and offsets are switches: without them a head's kernel is the one that never knew of them."""
    plain = make_plan(parse_policy("centred_ucb | s_tau(tau=5)"), bernoulli(3), 1000).variant
    assert not plain.scheduled
    assert not plain.moved
    assert plain.inputs == -1
    assert make_plan(parse_policy("centred_ucb(offset=2) | s_tau(tau=5)"), bernoulli(3), 1000).variant.moved
    assert not make_plan(parse_policy("ucb(offset=2) | s_tau(tau=5)"), bernoulli(3), 1000).variant.moved
    # Softmax sees no shift, so an offset is not worth an addition.
    softmax = [make_plan(parse_policy(f"centred_ucb{o} | softmax"), bernoulli(3), 1000) for o in ("", "(offset=2)")]
    assert softmax[0] == softmax[1]


def test_an_offset_beyond_float32_makes_float64_scores():
    plan = make_plan(parse_policy("ucb(offset=-600) | s_tau(tau=5)"), bernoulli(3), 1000)
    assert (plan.variant.double, plan.variant.moved, plan.offset) == (True, True, 600.0)
    # Far above 0 s^tau flattens as fast as scores round.
    assert not make_plan(parse_policy("ucb(offset=600) | s_tau(tau=5)"), bernoulli(3), 1000).variant.double
    with pytest.raises(EngineError, match=r"engine='torch' runs it"):
        make_plan(parse_policy("ucb(offset=-1e35) | s_tau(tau=5)"), bernoulli(3), 1000)


def test_too_many_steps_names_another_engine():
    with pytest.raises(EngineError, match="numba"):
        ENGINES["triton"].check(parse_policy("random"), bernoulli(2), 1 << 31)


def test_runs_on_cuda_alone():
    with pytest.raises(EngineError, match="'cpu'"):
        choose_engine(parse_policy("random"), bernoulli(2), 10, engine="triton", device="cpu")


def test_log_weights_beyond_float32_are_refused():
    arms = ArmTable("gaussian", np.array([[1e19], [2e19], [0.0]]), 1e18, np.empty(0), np.empty(0, np.int64), False, 1)
    with pytest.raises(EngineError, match="engine='torch' runs it"):
        make_plan(parse_policy("mean | softmax(beta=1e20)").lowered(), arms, 200)
