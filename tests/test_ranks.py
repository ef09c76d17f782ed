"""A run shared by several processes: the same files as from one, after a kill too, and one voice for mistakes."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stau_rl.kernels.contract import Block
from stau_rl.machine.ranks import Ranks, current_ranks
from stau_rl.regret.directory import RunDirectory
from stau_rl.regret.parts import Work, timing
from stau_rl.regret.plan import make_plan
from stau_rl.regret.run import run_regret

ROOT = Path(__file__).resolve().parents[1]
DRIVER = str(Path(__file__).with_name("shared_run.py"))
POLICIES = ["centred_ucb | softmax(beta=1)", "centred_ucb | s_tau(tau=5)", "random"]
SMALL = ["regret", "--arms", "bernoulli(k=3)", "--horizon", "60", "--instances", "23", "--engine", "torch"]
SMALL += [word for policy in POLICIES for word in ("--policy", policy)]
FILES = ("spec.json", "checkpoints.parquet", "instances.parquet", "summary.csv", "regret.png")
LIMIT = 300


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run by this process."""
    out = tmp_path_factory.mktemp("alone") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stau_rl.regret.plan.SMALLEST_PART", 5)
        patch.setattr("stau_rl.regret.plan.LARGEST_PART", 5)
        run_regret("bernoulli(k=3)", POLICIES, 60, 23, engine="torch", out=out)
    return out


def _environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # The width of a terminal that is none, so that no line is folded.
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **more}


def _torchrun(processes: int, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return subprocess.run(
        [*launcher, DRIVER, *arguments], env=_environment(**more), capture_output=True, text=True, timeout=LIMIT
    )


def _without_torchrun(processes: int, *arguments: str, **more: str) -> list[tuple[int, str, str]]:
    """Exit code, standard output and standard error of every rank; nobody ends the others when one ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = []
    for rank in range(processes):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
        environment = _environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **place, **more)
        started.append(
            subprocess.Popen(
                [sys.executable, DRIVER, *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        said = [process.communicate(timeout=LIMIT) for process in started]
    finally:
        for process in started:
            process.kill()
    return [(process.returncode, *texts) for process, texts in zip(started, said, strict=True)]


def _assert_same_files(run: Path, other: Path) -> None:
    assert {entry.name for entry in run.iterdir()} == {*FILES, "timing.json"}
    for name in FILES:
        assert (run / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_files_are_those_of_one_process(processes: int, alone: Path, tmp_path: Path) -> None:
    run = _torchrun(processes, *SMALL, "--out", str(tmp_path / "run"))
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("Pseudo-regret after 60 steps") == 1
    assert run.stdout.count("Table, figure and data") == 1
    _assert_same_files(tmp_path / "run", alone)


def test_a_killed_rank_ends_the_run_and_another_number_resumes_it(alone: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    ended = _without_torchrun(3, *SMALL, "--out", out, KILL_RANK="1", KILL_AFTER="2")
    assert [code for code, _, _ in ended] == [2, -signal.SIGKILL, 2]
    assert re.fullmatch(r"stau-rl: error: another process of this run has ended; .* --resume to go on\n", ended[0][2])
    assert (ended[1][2], ended[2][2]) == ("", "")
    kept = len(list((tmp_path / "run" / "parts").glob("*.npz")))
    # Of 15: five by rank 0, two by the one that was killed, and what rank 2 had done when rank 0 left.
    assert 7 <= kept <= 12
    resumed = _without_torchrun(2, *SMALL, "--out", out, "--resume")
    assert [code for code, _, _ in resumed] == [0, 0], resumed
    _assert_same_files(tmp_path / "run", alone)


def test_rank_0_says_how_to_go_on_when_torchrun_ends_it(tmp_path: Path) -> None:
    """As torchrun does with all processes once one has failed, here while rank 0 still plays."""
    out = str(tmp_path / "run")
    long = ["regret", "--arms", "bernoulli(k=3)", "--horizon", "3000000", "--instances", "10", "--engine", "torch"]
    ended = _torchrun(2, *long, "--policy", "random", "--out", out, KILL_RANK="1", KILL_AFTER="0", KILL_AT_ONCE="1")
    assert ended.returncode == 1
    assert f"stopped; what is finished is kept: repeat the command with --out {out} --resume to go on" in ended.stderr
    assert "KeyboardInterrupt" not in ended.stderr


def test_a_mistake_that_rank_0_alone_meets_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("no directory")
    (code, _, told), (other, *silence) = _without_torchrun(2, *SMALL, "--out", str(tmp_path / "run"))
    assert (code, other) == (2, 2)
    assert re.fullmatch(r"stau-rl: error: run directory .* is a file\n", told)
    assert silence == ["", ""]


def test_a_shared_run_needs_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r"3 processes share this run and need out, a directory that all of them see"):
        run_regret("bernoulli(k=2)", ["random"], 5, 3)


@pytest.mark.parametrize(("size", "parts"), [(1, 7), (2, 7), (3, 3), (5, 4)])
def test_every_part_has_one_owner(size: int, parts: int) -> None:
    owners = [[rank for rank in range(size) if Ranks(rank, size).owns(part)] for part in range(parts)]
    assert owners == [[part % size] for part in range(parts)]


def test_the_environment_says_who_shares() -> None:
    torchrun = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    assert current_ranks(torchrun) == Ranks(5, 8, 1)
    assert current_ranks({}) == Ranks()
    assert current_ranks({"WORLD_SIZE": "8"}) == Ranks()
    assert current_ranks(torchrun | {"RANK": "0", "WORLD_SIZE": "1"}) == Ranks()
    with pytest.raises(ValueError, match=r"must be whole numbers"):
        current_ranks(torchrun | {"RANK": "one"})


def test_processes_take_the_devices_of_their_host_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [Ranks(4 + local, 8, local).device("cuda") for local in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert Ranks(1, 2, 1).device("cuda:0") == "cuda:0"
    assert Ranks(1, 2, 1).device("cpu") == "cpu"


def test_timing_is_the_longest_time_and_the_sum_of_speeds() -> None:
    plan = make_plan("bernoulli(k=2)", ["random"], 10, 7, 0, None, None, "torch", "cpu", "auto")
    both = timing(plan, [{"random": Work(2.0, 0.0, 4)}, {"random": Work(1.0, 0.5, 3)}, {"random": Work()}])
    # Two arms x ten steps: 4 x 20 / 2 s + 3 x 20 / 1 s.
    assert both["arm_steps_per_second"] == {"random": 40.0 + 60.0}
    assert (both["seconds"], both["compile_seconds"]) == ({"random": 2.0}, {"random": 0.5})
    assert both["processes"] == 3
    assert "processes" not in timing(plan, [{"random": Work(2.0, 0.0, 7)}])


def test_a_process_alone_needs_no_group() -> None:
    assert Ranks().together(lambda: 3) == [3]
    assert Ranks().by_first(lambda: 4) == 4
    assert Ranks().device("cuda") == "cuda"
    with pytest.raises(KeyError):
        Ranks().together(lambda: {}["error"])


def test_join_needs_a_holder(tmp_path: Path, alone: Path) -> None:
    spec = {"policies": ["random"], "checkpoints": [5], "horizon": 5, "instances": 3, "seed": 0}
    with pytest.raises(ValueError, match=r"is not to be seen on host"):
        RunDirectory.join(tmp_path / "run", spec)
    held = RunDirectory.open(tmp_path / "run", spec)
    joined = RunDirectory.join(tmp_path / "run", spec)
    with pytest.raises(ValueError, match=r"another spec: seed is 0 there, 1 was asked for"):
        RunDirectory.join(tmp_path / "run", spec | {"seed": 1})
    joined.write_part("random", 0, _block())
    assert held.has_part("random", 0, 3)
    held.close()
    with pytest.raises(ValueError, match=r"no longer held by the process that opened it"):
        joined.write_part("random", 0, _block())
    with pytest.raises(ValueError, match=r"no longer held"):
        RunDirectory.join(tmp_path / "run", spec)


def _block() -> Block:
    return Block(
        regret=np.zeros((1, 3)),
        optimal=np.zeros((1, 3), dtype=bool),
        late_optimal=np.zeros(3, dtype=np.int64),
        pulls=np.zeros((2, 3), dtype=np.int64),
        reward_sums=np.zeros((2, 3)),
    )
