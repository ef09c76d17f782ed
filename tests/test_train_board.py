"""Learning curves for TensorBoard: the numbers of curves.csv, once each, also after an interruption."""

import sys
from types import ModuleType

import pandas as pd
import pytest

from inline_pool import InlinePool
from stau_rl.cli import main as cli
from stau_rl.training import train as train_module
from stau_rl.training.train import train

SHORT = {"steps": 400, "points": 4, "hidden": [4], "curve_episodes": 1, "episodes": 2}


class Writer:
    """Stands for torch's: a file of events per writer, with a line per number."""

    made = 0

    def __init__(self, folder):
        from pathlib import Path

        Path(folder).mkdir(parents=True, exist_ok=True)
        Writer.made += 1
        self.file = (Path(folder) / f"events.out.tfevents.{Writer.made}").open("w")

    def add_scalar(self, name, value, step):
        self.file.write(f"{name} {value!r} {step}\n")

    def flush(self):
        self.file.flush()

    def close(self):
        self.file.close()


@pytest.fixture(autouse=True)
def inline(monkeypatch):
    monkeypatch.setattr(train_module, "RunPool", InlinePool)
    # Half of a short training's time is its figure.
    monkeypatch.setattr("stau_rl.training.result.save_curves", lambda *_: None)


@pytest.fixture
def board(monkeypatch):
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)


def curve_of(run, seed):
    curves = pd.read_csv(run / "curves.csv")
    return curves[curves["seed"] == seed].drop(columns="seed").melt("step").dropna()


class Interrupt(Exception):
    pass


def test_every_point_is_there_once(board, tmp_path, monkeypatch):
    def stop(self, what, step, steps):
        if step > 250:
            raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(InlinePool, "_count", stop)
        with pytest.raises(Interrupt):
            train("a2c", SHORT, 2, tmp_path / "run", tensorboard=True)
    assert len(list((tmp_path / "run" / "tensorboard" / "seed-0").iterdir())) == 1
    train("a2c", SHORT, 2, tmp_path / "run", resume=True, tensorboard=True)
    for seed in (0, 1):
        (file,) = (tmp_path / "run" / "tensorboard" / f"seed-{seed}").iterdir()
        written = [line.split() for line in file.read_text().splitlines()]
        expected = curve_of(tmp_path / "run", seed)
        assert len(written) == len(expected) > 8
        assert {(name, float(value), int(step)) for name, value, step in written} == set(
            zip(expected["variable"], expected["value"], expected["step"], strict=True)
        )


def test_events_change_no_other_file(board, tmp_path):
    train("a2c", SHORT, 1, tmp_path / "shown", tensorboard=True)
    train("a2c", SHORT, 1, tmp_path / "plain")
    assert not (tmp_path / "plain" / "tensorboard").exists()
    for name in ("settings.json", "curves.csv", "scores.csv", "seeds/seed-0.json"):
        assert (tmp_path / "shown" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_without_the_package_nothing_begins(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "--tensorboard", "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert 'tensorboard is not installed; pip install -e ".[tensorboard]" -c constraints.txt' in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="tensorboard needs out"):
        train("a2c", SHORT, tensorboard=True)


def test_tensorboard_reads_the_numbers_back(tmp_path):
    loading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train("a2c", SHORT, 1, tmp_path / "run", tensorboard=True)
    events = loading.EventAccumulator(str(tmp_path / "run" / "tensorboard" / "seed-0"))
    events.Reload()
    expected = curve_of(tmp_path / "run", 0)
    found = [(name, event.step, event.value) for name in events.Tags()["scalars"] for event in events.Scalars(name)]
    assert len(found) == len(expected)
    for name, step, value in found:
        row = expected[(expected["variable"] == name) & (expected["step"] == step)]
        assert value == pytest.approx(row["value"].item(), rel=1e-6)
