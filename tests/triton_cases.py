"""Checks of the Triton engine, run as a script in a process of its own, as the interpreter is chosen at import.

`python triton_cases.py NAME...` prints one JSON object {name: findings}; test_triton_loop.py asserts on them. With
TRITON_INTERPRET=1 the kernel runs on the CPU; without, on the GPU, where the sizes are larger.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from doc_blocks import own_head
from stau_rl.agents.bandit import parse_policy
from stau_rl.kernels import torch_loop
from stau_rl.kernels.contract import ArmTable, EngineError
from stau_rl.kernels.gpu import loop as triton_loop
from stau_rl.kernels.gpu import plan as triton_plan
from stau_rl.kernels.gpu import variant as triton_variant
from stau_rl.kernels.gpu.device import log2, tl
from stau_rl.plugin import head, parameter
from stau_rl.plugin.load import load_plugin

README = Path(__file__).resolve().parents[1] / "README.md"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
STEPS, INSTANCES = (14, 5) if INTERPRETED else (300, 777)
NOTHING, NOWHERE = np.empty(0), np.empty(0, dtype=np.int64)


def arms(kind, k=3, n=INSTANCES, means=None):
    rng = np.random.default_rng(k)
    if kind == "table":
        groups = [np.sort(rng.normal(m, 1.0, 3 + 2 * i)) for i, m in enumerate(rng.normal(size=k))]
        means = np.array([[group.mean()] for group in groups])
        offsets = np.cumsum([0, *map(len, groups)]).astype(np.int64)
        return ArmTable("table", means, 0.9, np.concatenate(groups), offsets, False, n)
    if means is None:
        means = rng.random((k, n)) if kind == "bernoulli" else rng.normal(size=(k, n))
    return ArmTable(kind, means, 0.7, NOTHING, NOWHERE, kind == "bernoulli", n)


def play(engine, policy, table, steps=STEPS, **changes):
    checkpoints = np.unique([1, 2, 3, steps // 2, steps])
    options = {"seed": 5, "first_instance": 77, "horizon": steps, "checkpoints": checkpoints, "record": True}
    if engine is torch_loop:
        options["dtype"] = "float64"
    return engine.simulate(parse_policy(policy), table, **(options | changes))


def golden():
    rows = json.loads((Path(__file__).parent / "data" / "triton_histories.json").read_text())["rows"]
    wrong = []
    for row in rows:
        table = arms("bernoulli", 3, 1, np.array(row["means"])[:, None])
        block = play(triton_loop, row["policy"], table, 64, seed=row["seed"], first_instance=row["instance"])
        if block.actions[:, 0].tolist() != row["arms"] or block.rewards[:, 0].tolist() != row["rewards"]:
            wrong.append([row["policy"], row["seed"], row["instance"]])
    return {"histories": len(rows), "wrong": wrong}


def agree(policy, kind, k=3, steps=STEPS, slots=None, means=None):
    if slots is not None:
        triton_plan.MAX_SLOTS = slots
    table = arms(kind, k, means=None if means is None else np.array(means)[:, None])
    ours, theirs = play(triton_loop, policy, table, steps), play(torch_loop, policy, table, steps)
    triton_plan.MAX_SLOTS = 32
    same = (ours.actions == theirs.actions).all(axis=0)

    # In units of the largest reward, where that is above 1.
    unit = max(1.0, float(np.abs(theirs.rewards).max()))

    def error(name):
        return float(np.abs(getattr(ours, name)[..., same] - getattr(theirs, name)[..., same]).max()) / unit

    return {
        "same": float(same.mean()),
        **{name: error(name) for name in ("regret", "rewards", "reward_sums")},
        **{
            name: bool((getattr(ours, name)[..., same] == getattr(theirs, name)[..., same]).all())
            for name in ("optimal", "late_optimal", "pulls")
        },
    }


def equal(left, right):
    names = ("regret", "optimal", "late_optimal", "pulls", "reward_sums", "actions", "rewards")
    return {name: bool(np.array_equal(getattr(left, name), getattr(right, name))) for name in names}


def split():
    table = arms("bernoulli", 3)
    whole = play(triton_loop, "centred_ucb | s_tau(tau=5)", table, 15)
    cut = 2
    parts = []
    for begin, end in ((0, cut), (cut, INSTANCES)):
        part = arms("bernoulli", 3, end - begin, table.means[:, begin:end])
        parts.append(play(triton_loop, "centred_ucb | s_tau(tau=5)", part, 15, first_instance=77 + begin))
    joined = {}
    for name in ("regret", "optimal", "late_optimal", "pulls", "reward_sums", "actions", "rewards"):
        pieces = np.concatenate([getattr(part, name) for part in parts], axis=-1)
        joined[name] = bool(np.array_equal(pieces, getattr(whole, name)))
    return joined


def launches():
    """Many launches, which take the path of long histories, against one; and progress adds up."""
    table = arms("bernoulli", 3)
    whole = play(triton_loop, "centred_ucb | softmax(beta=4*log(t))", table, 21)
    done = []
    triton_variant.Variant.steps_per_launch = property(lambda self: 6)
    triton_loop.TABLE = 8
    pieces = play(triton_loop, "centred_ucb | softmax(beta=4*log(t))", table, 21, progress=done.append)
    return equal(whole, pieces) | {"progress": sum(done) == 21 * INSTANCES, "calls": len(done) > 3}


def kernels_of(function, *arguments, **options):
    """What the kernels that a call launches were compiled for."""
    found, plain = [], triton_loop.replace

    def noted(variant, **changes):
        found.append(plain(variant, **changes))
        return found[-1]

    triton_loop.replace = noted
    try:
        function(*arguments, **options)
    finally:
        triton_loop.replace = plain
    return {str(variant) for variant in found}


def loads():
    """Loading for a run takes the kernels of that run, no more and no fewer."""
    wrong, most = [], 0
    for text in ("ucb1", "centred_ucb | softmax(beta=4*log(t))", "thompson"):
        for k, steps in ((3, 1), (3, 3), (3, 4), (3, 5), (3, 7), (3, 12), (2, 2), (2, 3), (2, 9)):
            table, policy = arms("bernoulli", k, 1), parse_policy(text)
            loaded = kernels_of(triton_loop.load, policy, table, horizon=steps, device="cuda")
            played = kernels_of(play, triton_loop, text, table, steps, record=False)
            most = max(most, len(loaded))
            if loaded != played:
                wrong.append([text, k, steps, len(loaded), len(played)])
    return {"wrong": wrong, "most": most}


def errors():
    found = {}
    table = arms("bernoulli", 3)
    for name, change in {"dtype": {"dtype": "float64"}, "horizon": {"horizon": 1 << 31}}.items():
        try:
            play(triton_loop, "random", table, **change)
        except EngineError as error:
            found[name] = str(error)
    return found


@head("askew", a=1.0, b=0.0)
def askew(scores, a, b):
    """exp(a s + b |s|)"""
    return a * scores + b * scores.abs()


@askew.triton
def askew_on_device(score, a, b):
    """Right while b = 0."""
    return score * (a * 1.4426950408889634)


@head("ramp", p=parameter(2.0, above=0.0), off=0.0)
def ramp(scores, p, off):
    """max(s, 0)^p on any device; the device function is wrong by the factor 1 + off of the exponent"""
    return p * scores.clamp(min=0.0).log()


@ramp.triton
def ramp_on_device(score, p, off):
    return tl.where(score > 0.0, log2(tl.maximum(score, 1e-30)) * (p * (1.0 + off)), -1e30)


def contradictions():
    """What comes of device functions that are, and are not, the head."""
    found = {}
    for text in ("askew(a=3)", "askew(a=3, b=0.5)", "askew(b=log(t))", "ramp(p=7)", "ramp(p=7, off=0.01)"):
        try:
            play(triton_loop, f"ucb | {text}", arms("bernoulli", 3))
            found[text] = ""
        except ValueError as error:
            found[text] = str(error)
    return found


WEIGHTED = {
    "mean softmax": "mean | softmax(beta=10)",
    "ucb s_tau": "ucb(c=0.5) | s_tau(tau=2.5)",
    "centred s_tau": "centred_ucb | s_tau(tau=5)",
    "centred s_tau eps=0": "centred_ucb | s_tau(tau=20, eps=0)",
    "steep softmax": "centred_ucb | softmax(beta=64)",
    "escort": "ucb | escort(p=2)",
    "clamp": "reward_centred_ucb | clamp_power(tau=7)",
    "clamp ratio": "centred_ucb(c=0.3) | clamp_power(tau=4.5, eps=0.1)",
    "reward centred": "reward_centred_ucb(offset=-2) | s_tau(tau=5)",
    "reward centred softmax": "reward_centred_ucb | softmax(beta=8)",
    "softplus_norm": "centred_ucb | softplus_norm",
    "sigmoid_norm": "mean | sigmoid_norm",
    "whole ratio": "ucb | s_tau(tau=8)",
    "softmax schedule": "centred_ucb | softmax(beta=4*log(t))",
    "steep schedule": "ucb | softmax(beta=30*log(t))",
    "s_tau schedule": "centred_ucb | s_tau(tau=1+0.5*log(t))",
    "ratio schedule": "centred_ucb | s_tau(tau=1+10*log(t), eps=0)",
    "s_tau eps schedule": "ucb | s_tau(tau=3, eps=1/t)",
    "escort schedule": "mean | escort(p=sqrt(t))",
    "offset": "centred_ucb(c=0.3, offset=2.5) | s_tau(tau=6.5)",
    "negative offset": "centred_ucb(c=0.3, offset=-8) | s_tau(tau=6.5)",
    "uncentred offset": "ucb(c=0.3, offset=-2) | s_tau(tau=5)",
    "softmax offset": "ucb(offset=40) | softmax(beta=4)",
    "offset schedule": "centred_ucb(offset=2) | s_tau(tau=2+log(t))",
    "bonus schedule": "ucb(c=0.2+1/t, offset=log(t)) | softmax(beta=4)",
    "centred bonus schedule": "centred_ucb(c=log(t)/2) | s_tau(tau=1+0.5*log(t))",
    "plug-in": "centred_ucb(offset=0.5) | asinh(p=5, width=0.5)",
    "plug-in schedule": "ucb | asinh(p=4*log(t), width=1+1/t)",
}
WHOLE = {
    "ucb1": "ucb1",
    "ucb1 schedule": "ucb(c=1/sqrt(t)) | argmax",
    "greedy": "greedy",
    "random": "random",
    "eps_greedy": "eps_greedy(eps=0.3)",
    "thompson": "thompson",
    "boltzmann_gumbel": "boltzmann_gumbel(c=0.4)",
    "gradient softmax": "gradient_bandit",
    "gradient s_tau": "gradient_bandit(alpha=0.2, baseline=mean_before, head=s_tau(tau=2))",
    "gradient escort": "gradient_bandit(baseline=none, head=escort)",
    "gradient schedule": "gradient_bandit(head=s_tau(tau=1+log(t)))",
}
# Index -> kind of arms.
INDICES = {
    "ucb1_tuned(c=1.5)": "bernoulli",
    "ucb_v": "bernoulli",
    "moss_anytime": "bernoulli",
    "moss(c=0.5)": "table",
    "kl_ucb(c=3)": "bernoulli",
    "kl_ucb_plus": "bernoulli",
    "kl_ucb_plus(sigma=0.5)": "gaussian",
    "imed": "bernoulli",
    "imed(sigma=2)": "gaussian",
    "bayes_ucb": "gaussian",
}
# Rewards far from 0, or far from their spread: scores in float64, or differences taken in it. Name -> policy, means.
CLOSE, FAR = (1.0, 1.5, 0.5), (900.0, 900.5, 899.0)
WIDE = {
    "wide softmax": ("ucb | softmax(beta=50)", FAR),
    "wide steep": ("centred_ucb | softmax(beta=900)", CLOSE),
    "wide s_tau": ("centred_ucb(offset=-300) | s_tau(tau=7.3)", FAR),
    "wide s_tau eps=0": ("ucb(offset=-1200) | s_tau(tau=7.3, eps=0)", FAR),
    "wide s_tau schedule": ("centred_ucb | s_tau(tau=1+300*log(t))", CLOSE),
    "wide bonus schedule": ("ucb(c=1+1/t) | softmax(beta=50)", FAR),
    "wide clamp": ("reward_centred_ucb(offset=1) | clamp_power(tau=300)", FAR),
    "wide escort": ("centred_ucb | escort(p=3)", FAR),
    "wide softplus_norm": ("ucb(offset=-1200) | softplus_norm", FAR),
    "wide sigmoid_norm": ("ucb(offset=-1200) | sigmoid_norm", FAR),
    "thompson far": ("thompson(prior_mean=1e6, sigma=0.1)", (1e6, 1e6 + 0.5, 1e6)),
    "thompson prior": ("thompson(prior_mean=2, prior_sd=0.5, sigma=0.4)", CLOSE),
    "gumbel far": ("boltzmann_gumbel(c=0.8)", FAR),
    "thompson loose prior": ("thompson(prior_mean=-3, prior_sd=4, sigma=2)", CLOSE),
    "thompson flat prior": ("thompson(prior_mean=-3, prior_sd=40, sigma=20)", CLOSE),
    "gradient far": ("gradient_bandit(alpha=0.2)", (1e6, 1e6 + 0.5, 1e6)),
}
CASES = {
    "golden": golden,
    "split": split,
    "loads": loads,
    "launches": launches,
    "errors": errors,
    "contradictions": contradictions,
    **{f"agree {name}": lambda text=text: agree(text, "bernoulli") for name, text in (WEIGHTED | WHOLE).items()},
    **{
        f"agree {name}": lambda text=text, means=means: agree(text, "gaussian", means=means)
        for name, (text, means) in WIDE.items()
    },
    **{f"agree {text}": lambda text=text, kind=kind: agree(text, kind, 3, 16) for text, kind in INDICES.items()},
    "agree imed lanes": lambda: agree("imed", "bernoulli", 5, 12, 2),
    **{
        f"agree {name} {kind}": lambda name=name, kind=kind: agree((WEIGHTED | WHOLE)[name], kind)
        for name in ("centred s_tau", "clamp", "ucb1", "thompson", "gradient softmax")
        for kind in ("gaussian", "table")
    },
    **{
        f"agree {name} lanes": lambda name=name: agree((WEIGHTED | WHOLE)[name], "bernoulli", 5, 12, 2)
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
    },
}


def load_readme_plugin(folder):
    """The head that docs/guide/own_head.md shows."""
    path = Path(folder) / "my_head.py"
    path.write_text(own_head(), encoding="utf-8")
    load_plugin(path)


if __name__ == "__main__":
    # The reference works on a few thousand numbers at a time; more threads only wait for each other.
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        load_readme_plugin(folder)
        findings = {name: CASES[name]() for name in sys.argv[1:] or CASES}
    json.dump(findings, sys.stdout)
