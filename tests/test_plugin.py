"""Heads of one's own: the documented file on every engine and on the command line, and everything that can go wrong."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from doc_blocks import own_head
from stau_rl import load_plugin, match_sharpness, run_regret
from stau_rl.agents.bandit import parse_policy
from stau_rl.cli.main import main
from stau_rl.envs.arms import parse_arms
from stau_rl.heads import HEADS, Softmax, SpecError, parse_head
from stau_rl.kernels.contract import EngineError
from stau_rl.kernels.cpu.codegen import load_loop
from stau_rl.kernels.cpu.heads import DEVICE_HEADS
from stau_rl.kernels.cpu.plan import make_plan
from stau_rl.kernels.engines import ENGINES, choose_engine
from stau_rl.kernels.gpu.bind import PLUGINS
from stau_rl.plugin.plugin_head import PluginHead, forget, head, parameter
from stau_rl.regret.arm_table import arm_table
from stau_rl.regret.report import matched_controls, render
from stau_rl.regret.result import RegretResult

TABLE = arm_table(parse_arms("bernoulli(k=2)"), 0, 0, 48)
SLOPED = "from stau_rl.plugin import head\n\n\n@head('sloped', a=1.0)\ndef sloped(scores, a):\n    return a * scores\n"


@pytest.fixture(autouse=True)
def clean_registry() -> Iterator[None]:
    """No plug-in head and no module of one is left behind."""
    yield
    for name in [name for name, member in HEADS.items() if issubclass(member, PluginHead)]:
        forget(name)
    for name in [name for name in sys.modules if name.startswith("stau_rl_plugin_")]:
        del sys.modules[name]


@pytest.fixture
def my_head(tmp_path: Path) -> Path:
    """The file that docs/guide/own_head.md shows."""
    path = tmp_path / "my_head.py"
    path.write_text(own_head(), encoding="utf-8")
    return path


@pytest.fixture
def sloped(tmp_path: Path) -> Path:
    """A head without a compiled form, which is softmax."""
    path = tmp_path / "sloped.py"
    path.write_text(SLOPED, encoding="utf-8")
    return path


def play(policy: str, engine: str, **options: Any) -> Any:
    options = {"dtype": ENGINES[engine].dtypes[0], "record": True, "checkpoints": np.array([300]), **options}
    return ENGINES[engine].simulate(parse_policy(policy), TABLE, seed=3, first_instance=0, horizon=300, **options)


def test_the_file_in_the_readme_is_short_and_is_what_it_says(my_head: Path) -> None:
    lines = [line for line in my_head.read_text().splitlines() if line.strip()]
    assert len(lines) <= 20
    assert load_plugin(my_head) == ["asinh"]
    asinh = HEADS["asinh"]
    assert (asinh.formula, str(asinh()), asinh.sharpness) == ("exp(p asinh(s / width))", "asinh(p=2, width=1)", "p")
    scores = torch.tensor([[0.0, -1.5, 3.0], [2.0, 0.5, -8.0]], dtype=torch.float64)
    # e^asinh(x) = x + sqrt(x^2 + 1).
    powers = (scores / 2 + (scores**2 / 4 + 1).sqrt()) ** 3
    one = asinh(p=3.0, width=2.0)
    for dim in (0, 1):
        torch.testing.assert_close(one.weights(scores, dim), powers / powers.sum(dim, keepdim=True), rtol=1e-13, atol=0)
    mask = torch.tensor([True, False, True])
    weights = one.weights(scores.masked_fill(~mask, torch.nan), mask=mask)
    assert bool((weights[:, 1] == 0).all())
    torch.testing.assert_close(weights[:, mask], one.weights(scores[:, mask]), rtol=1e-13, atol=0)
    assert torch.autograd.gradcheck(one.weights, scores.requires_grad_())
    assert match_sharpness(one, "softmax") == Softmax(1.5)
    assert parse_head(str(one)) == one


@pytest.mark.parametrize("text", ["centred_ucb | asinh(p=5, width=0.5)", "ucb | asinh(p=4*log(t), width=1+1/t)"])
def test_engines_agree(my_head: Path, text: str) -> None:
    load_plugin(my_head)
    exact, single, compiled = play(text, "torch"), play(text, "torch", dtype="float32"), play(text, "numba")
    assert (exact.actions == compiled.actions).all(axis=0).mean() >= 0.95
    assert (exact.actions == single.actions).all(axis=0).mean() >= 0.95
    assert not np.array_equal(play("ucb | asinh(p=0)", "torch").actions, exact.actions)


def test_the_device_function_adds_the_gpu_engine(my_head: Path, sloped: Path) -> None:
    """Its histories, against the reference's, are in triton_cases.py."""
    load_plugin(my_head)
    load_plugin(sloped)
    policy = parse_policy("centred_ucb(offset=1) | asinh(p=4*log(t), width=0.5)")
    ENGINES["triton"].check(policy, TABLE, 100)
    with pytest.raises(EngineError, match=r"the triton engine has no head 'sloped'.*engine='torch' runs every head"):
        ENGINES["triton"].check(parse_policy("ucb | sloped"), TABLE, 100)
    assert set(HEADS["asinh"].compiled) == {"numba", "triton"}
    assert not HEADS["sloped"].compiled
    HEADS["sloped"].triton(lambda score, a: score * a)
    ENGINES["triton"].check(parse_policy("ucb | sloped"), TABLE, 100)
    with pytest.raises(ValueError, match="'sloped' has a triton function already"):
        HEADS["sloped"].triton(lambda score, a: score + a)
    forget("sloped")
    assert "sloped" not in PLUGINS


def test_run_regret_takes_the_compiled_form_and_keeps_the_hash(my_head: Path) -> None:
    load_plugin(my_head)
    result = run_regret("bernoulli(k=2)", ["ucb | asinh(p=4)", "ucb | softmax(beta=4)"], horizon=100, instances=8)
    assert result.spec["engines"] == ["numba cpu float32"] * 2
    assert result.spec["plugins"] == {"asinh": hashlib.sha256(my_head.read_bytes()).hexdigest()}
    assert matched_controls(result.policies) == {"ucb | asinh(p=4, width=1)": "ucb | softmax(beta=4)"}
    assert "plugins" not in run_regret("bernoulli(k=2)", ["random"], horizon=3, instances=1).spec


def test_compiled_code_that_was_kept_is_found_again(my_head: Path, tmp_path: Path) -> None:
    """As in a later process: the file loaded anew, from its place and from another one."""
    copy = tmp_path / "copy.py"
    copy.write_bytes(my_head.read_bytes())
    histories, loops = [], []
    for path in (my_head, my_head, copy):
        load_plugin(path)
        histories.append(play("ucb | asinh(p=5)", "numba").actions)
        loop = load_loop(make_plan(parse_policy("ucb | asinh(p=5)"), TABLE, 300).spec)
        loops.append(sum(loop.stats.cache_hits.values()))
        forget("asinh")
        for name in [name for name in sys.modules if name.startswith("stau_rl_")]:
            del sys.modules[name]
    assert loops == [0, 1, 0]
    assert np.array_equal(histories[0], histories[1])
    assert np.array_equal(histories[0], histories[2])


def test_a_function_alone_runs_on_the_reference_engine(sloped: Path) -> None:
    load_plugin(sloped)
    policy = parse_policy("ucb | sloped(a=4)")
    assert str(choose_engine(policy, TABLE, 100)) == "torch cpu float64"
    with pytest.raises(EngineError, match=r"no head 'sloped'.*engine='torch' runs every head"):
        choose_engine(policy, TABLE, 100, engine="numba")
    ours, softmax = (play(f"ucb | {text}", "torch") for text in ("sloped(a=4*log(t))", "softmax(beta=4*log(t))"))
    assert np.array_equal(ours.actions, softmax.actions)


def test_the_command_line(my_head: Path, sloped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    run = ["regret", "--plugin", str(my_head), "--plugin", str(sloped), "--horizon", "50", "--instances", "8"]
    run += ["--arms", "bernoulli(k=2)", "--policy", "ucb | asinh(p=log(t))", "--policy", "ucb | sloped"]
    main([*run, "--out", str(out)])
    shown = capsys.readouterr().out
    assert "ucb | asinh(p=log(t), width=1)" in shown
    assert "Engine: numba cpu float32; torch cpu float64 for ucb | sloped(a=1). Took" in shown
    first = (out / "summary.csv").read_bytes()
    main([*run, "--out", str(out), "--resume"])
    assert (out / "summary.csv").read_bytes() == first
    main(["heads", "--plugin", str(my_head), "--scores", "0,1", "--head", "asinh(p=2)", "--head", "softmax(beta=t)"])
    shown = capsys.readouterr().out
    # e^(2 asinh 1) = 3 + 2 sqrt 2, so the weights are 1 / (4 + 2 sqrt 2) and the rest.
    assert "0.1464" in shown
    assert "0.8536" in shown
    assert "changes with t" in shown
    main(["heads", "--plugin", str(my_head)])
    assert "exp(p asinh(s / width))" in capsys.readouterr().out


def test_changed_code_does_not_resume(my_head: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["regret", "--plugin", str(my_head), "--policy", "ucb | asinh", "--horizon", "9", "--instances", "2"]
    run += ["--arms", "bernoulli(k=2)", "--out", str(tmp_path / "run")]
    main(run)
    forget("asinh")
    my_head.write_text(my_head.read_text() + "\n# Changed.\n")
    with pytest.raises(SystemExit) as stopped:
        main([*run, "--resume"])
    assert stopped.value.code == 2
    assert "holds a run of another spec: plugins.asinh is" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["regret", "--horizon", "2"], ["heads"]], ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file or directory"),
        ("x = 1", "it registers no head; decorate a function with stau_rl.plugin.head"),
        ("def f(:", "line 1: SyntaxError: invalid syntax"),
        ("\nimport no_such_module_at_all", "line 2: ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        (SLOPED + "1 / 0", "line 7: ZeroDivisionError: division by zero"),
        ("raise SystemExit(5)", "line 1: SystemExit: 5"),
        (SLOPED.replace("a=1.0", "b=1.0"), "the function takes a after the scores, but b is declared"),
        (SLOPED.replace("'sloped'", "'softmax'"), "head 'softmax' is already registered; take another name"),
    ],
)
def test_a_bad_file_is_one_line(
    command: list[str], text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, before = tmp_path / "bad.py", list(HEADS)
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--plugin", str(path)])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith(f"stau-rl: error: plug-in {path}: ")
    assert message in error
    assert list(HEADS) == before


def test_the_same_code_again_is_harmless_and_other_code_is_not(sloped: Path, my_head: Path) -> None:
    load_plugin(sloped)
    first = HEADS["sloped"]
    assert load_plugin(sloped) == ["sloped"]
    assert HEADS["sloped"] is first
    assert load_plugin(my_head) == load_plugin(my_head) == ["asinh"]
    with pytest.raises(ValueError, match=r"'sloped' is already registered from .*sloped.py; take another name"):
        head("sloped", a=1.0)(lambda scores, a: a * scores)
    sloped.write_text(SLOPED.replace("a * scores", "2 * a * scores"))
    with pytest.raises(ValueError, match=r"line 4: head 'sloped' is already registered.*forget\('sloped'\)"):
        load_plugin(sloped)
    assert HEADS["sloped"] is first
    forget("sloped")
    load_plugin(sloped)
    assert HEADS["sloped"].plugin.sha256 != first.plugin.sha256
    with pytest.raises(ValueError, match="no plug-in head is called 'softmax'"):
        forget("softmax")
    forget("asinh")
    assert "asinh" not in DEVICE_HEADS


def test_a_name_registered_twice_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "twice.py"
    path.write_text(SLOPED + SLOPED)
    with pytest.raises(ValueError, match="line 10: head 'sloped' is already registered"):
        load_plugin(path)
    assert "sloped" not in HEADS


def test_code_without_a_file() -> None:
    """As in a notebook: running a cell again is harmless, changing it is an error that says what to do."""
    space: dict[str, Any] = {"__name__": "cell"}
    exec(SLOPED, space)
    first = HEADS["sloped"]
    exec(SLOPED, space)
    assert HEADS["sloped"] is first
    assert first.plugin.cache_key is None
    with pytest.raises(ValueError, match="already registered from <cell>"):
        exec(SLOPED.replace("a * scores", "a + scores"), space)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: head("log")(lambda s: s), "head 'log': the name means something else"),
        (lambda: head("no name")(lambda s: s), "a head is a dataclass with an identifier"),
        (lambda: head("x", a="1")(lambda s, a: s), r"the default of a must be a number or parameter\(...\), got '1'"),
        (lambda: head("x", weights=1)(lambda s, weights: s), "a parameter cannot be called 'weights'"),
        (lambda: head("x", sharpness="b", a=1)(lambda s, a: s), "sharpness must name a parameter, got 'b'"),
        (lambda: head("x", a=parameter(0.0, above=0.0))(lambda s, a: s), "x: a must be finite and > 0, got 0.0"),
        (lambda: head("x", rows=True)(lambda s: s).numba(lambda s: s), "looks at whole rows; only elementwise"),
        (
            lambda: head("x", a=1)(lambda s, a: s).numba(lambda s: s),
            r"numba .* must take \(score, a\), got 1 arguments",
        ),
        (lambda: head("x", a=1)(lambda s, a: s).triton(lambda s: s), r"triton .* must take \(score, a\), got 1 argum"),
        (
            lambda: head("x", a=1, b=1, c=1)(lambda s, a, b, c: s).numba(lambda s, a, b, c: s),
            "has 3 parameters; at most 2 compile",
        ),
    ],
)
def test_a_wrong_declaration_is_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_declared_bounds_hold_at_every_step() -> None:
    head("x", a=parameter(1.0, low=0.0, below=9.0))(lambda scores, a: a * scores)
    assert str(parse_head("x")) == "x(a=1)"
    with pytest.raises(SpecError, match=r"x: a must be finite and >= 0 and < 9, got 9.0"):
        parse_head("x(a=9)")
    parse_head("x(a=t)").check_steps(8)
    with pytest.raises(ValueError, match=r"x: a must .* at every step, got t = 9 at t = 9"):
        parse_head("x(a=t)").check_steps(9)
    with pytest.raises(ValueError, match=r"got 8.999\+max\(0, t-3000\) = 9.999 at t = 3001"):
        run_regret("bernoulli(k=2)", ["ucb | x(a=8.999+max(0, t-3000))"], horizon=5000, instances=1)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda scores: scores.log(), "must return log f.s. below .inf, got NaN or .inf at score -1"),
        (lambda scores: -scores / 0.0, "got NaN or .inf at score -1"),
        (
            lambda scores: scores.sum(),
            r"must return a tensor like its scores, torch.float32 \[3\], got torch.float32 \[\]",
        ),
        (lambda scores: scores.double(), r"got torch.float64 \[3\]"),
        (lambda scores: [1.0], "got list"),
    ],
)
def test_a_wrong_answer_is_named(answer: Any, message: str) -> None:
    made = head("x")(answer)
    with pytest.raises(ValueError, match=message):
        made().weights(torch.tensor([-1.0, 0.0, 2.0]))


def test_a_function_of_rows() -> None:
    """The top score gets 1 more than a share that falls with the distance from it."""

    @head("gap", rows=True, gamma=1.0)
    def gap(scores, gamma):
        return -torch.log1p(((scores.max(0).values - scores) / gamma) ** 2)

    scores = torch.tensor([[0.0, 3.0, 1.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    raw = torch.tensor([[1 / 10, 1.0, 1 / 5], [1.0, 1.0, 1.0]], dtype=torch.float64)
    expected = raw / raw.sum(1, keepdim=True)
    torch.testing.assert_close(gap().weights(scores), expected, rtol=1e-14, atol=0)
    torch.testing.assert_close(gap().weights(scores.T, dim=0), expected.T, rtol=1e-14, atol=0)
    assert not gap.smooth_at_zero
    assert np.isfinite(play("ucb | gap(gamma=1/t)", "torch").regret).all()
    with pytest.raises(ValueError, match="takes no mask"):
        gap().weights(scores, mask=torch.tensor([True, True, False]))


def test_a_result_reads_without_its_plugin(sloped: Path, tmp_path: Path) -> None:
    load_plugin(sloped)
    policies = ["ucb | sloped(a=2)", "ucb | softmax(beta=2)"]
    run_regret("bernoulli(k=2)", policies, horizon=20, instances=4, out=tmp_path / "run")
    forget("sloped")
    result = RegretResult.load(tmp_path / "run")
    assert result.policies == policies
    assert matched_controls(result.policies) == {}
    assert render(result) is not None


def test_a_compiled_form_that_contradicts_its_function_is_refused() -> None:
    """At the first use, for the parameters used: the head, the score and both values are named."""
    made = head("askew", a=1.0, b=0.0)(lambda scores, a, b: a * scores + b * scores.abs())
    # Right while b = 0.
    made.numba(lambda score, a, b: score * (a * 1.4426950408889634))
    assert (play("ucb | askew(a=3)", "numba").actions == play("ucb | softmax(beta=3)", "numba").actions).all()
    wrong = (
        r"head 'askew'.*contradicts.*at score -?\d+.* log f is .* in the one and .* in the other.*askew\(a=3, b=0.5\)"
    )
    with pytest.raises(ValueError, match=wrong):
        choose_engine(parse_policy("ucb | askew(a=3, b=0.5)"), TABLE, 100)
    # A schedule is looked at where it starts and where it ends.
    with pytest.raises(ValueError, match="contradicts"):
        choose_engine(parse_policy("ucb | askew(b=log(t))"), TABLE, 100)
    assert str(choose_engine(parse_policy("ucb | askew(b=0.5)"), TABLE, 100, engine="torch")) == "torch cpu float64"


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_the_check_allows_rounding_and_nothing_more(factor: float) -> None:
    """Weights that vanish below 0 agree too: -inf in the one, far below everything in the other."""
    from stau_rl.kernels.cpu.heads import NEVER
    from stau_rl.kernels.cpu.lanes import select
    from stau_rl.kernels.cpu.math import log2_positive

    made = head("ramp", p=2.0)(lambda scores, p: p * scores.clamp(min=0.0).log())

    @made.numba
    def ramp(score, p):
        return select(score > 0.0, log2_positive(score) * (p * factor), NEVER)

    policy = parse_policy("centred_ucb | ramp(p=7)")
    if factor == 1.0:
        assert choose_engine(policy, TABLE, 50).engine.name == "numba"
    else:
        with pytest.raises(ValueError, match="head 'ramp'"):
            choose_engine(policy, TABLE, 50)
