"""The Triton engine against exact histories and the reference, interpreted on a CPU and compiled on a GPU."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stau_rl.agents import parse_policy
from stau_rl.kernels.contract import ArmTable, EngineError
from stau_rl.kernels.engines import ENGINES, choose_engine
from stau_rl.kernels.triton_plan import make_plan

HERE = Path(__file__).parent
HAS_TRITON = importlib.util.find_spec("triton") is not None
MODES = [
    pytest.param("interpreted", marks=pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")),
    pytest.param("compiled", marks=pytest.mark.gpu),
]
POLICIES = (
    *("mean softmax", "ucb s_tau", "centred s_tau", "centred s_tau eps=0", "steep softmax", "escort"),
    *("softplus_norm", "sigmoid_norm", "ucb1", "greedy", "random", "eps_greedy", "thompson"),
    *("gradient softmax", "gradient s_tau", "gradient escort"),
    *(
        f"{name} {kind}"
        for name in ("centred s_tau", "ucb1", "thompson", "gradient softmax")
        for kind in ("gaussian", "table")
    ),
    *(f"{name} lanes" for name in ("centred s_tau", "ucb1", "thompson")),
)


@pytest.fixture(scope="module", params=MODES)
def findings(request):
    """All checks of triton_cases.py in one process, as Triton decides at import whether to interpret."""
    environment = os.environ | {"PYTHONPATH": str(HERE.parent)}
    environment["TRITON_INTERPRET"] = "1" if request.param == "interpreted" else "0"
    done = subprocess.run(
        [sys.executable, str(HERE / "triton_cases.py")], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


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


def test_refuses_what_it_cannot_run(findings):
    assert "torch" in findings["errors"]["dtype"]
    assert "2147483647" in findings["errors"]["horizon"]


def bernoulli(k):
    return ArmTable("bernoulli", np.full((k, 1), 0.5), 0.5, np.empty(0), np.empty(0, np.int64), True, 1)


@pytest.mark.parametrize(("k", "lanes", "slots"), [(1, 1, 1), (10, 1, 10), (32, 1, 32), (33, 2, 17), (1024, 32, 32)])
def test_layout(k, lanes, slots):
    plan = make_plan(parse_policy("ucb | softmax"), bernoulli(k), 100)
    assert (plan.lanes, plan.slots) == (lanes, slots)
    # Slot, successes and pulls share 32 bits.
    assert plan.index_bits + 2 * plan.count_bits <= 32
    assert plan.steps_per_launch < 1 << plan.count_bits


def test_direct_forms_only_where_they_fit():
    def form(text, c):
        return make_plan(parse_policy(text.format(c=c)), bernoulli(3), 1000).head.name

    assert form("centred_ucb(c={c}) | s_tau(tau=5)", 1) == "s_tau_direct_no_floor"
    assert form("centred_ucb(c={c}) | s_tau(tau=5)", 20) == "s_tau_log2"
    assert form("ucb(c={c}) | s_tau(tau=5)", 1) == "s_tau_log2"
    assert form("ucb(c={c}) | s_tau(tau=5, eps=0)", 1) == "s_tau_exact_tail_log2"
    assert form("ucb(c={c}) | softmax(beta=1)", 1) == "softmax_direct"
    assert form("ucb(c={c}) | softmax(beta=64)", 1) == "softmax_log2"


def test_too_many_steps_names_another_engine():
    with pytest.raises(EngineError, match="numba"):
        ENGINES["triton"].check(parse_policy("random"), bernoulli(2), 1 << 31)


def test_runs_on_cuda_alone():
    with pytest.raises(EngineError, match="'cpu'"):
        choose_engine(parse_policy("random"), bernoulli(2), 10, engine="triton", device="cpu")
