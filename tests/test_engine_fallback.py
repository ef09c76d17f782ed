"""No GPU, no Triton, an old driver: which engine runs instead, and where it says why."""

import json
from types import SimpleNamespace

import pytest

from stau_rl.agents.bandit import parse_policy
from stau_rl.cli.main import main
from stau_rl.envs.arms import parse_arms
from stau_rl.files.identity import identity
from stau_rl.kernels.contract import EngineError
from stau_rl.kernels.engines import ENGINES, choose_engine, why_no_cuda
from stau_rl.regret.arm_table import arm_table


class Cuda:
    """What torch says of a machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, devices: int, error: Exception | None = None) -> None:
        why_no_cuda.cache_clear()
        monkeypatch.setattr("torch.cuda.is_available", lambda: devices > 0)
        monkeypatch.setattr("torch.cuda.device_count", lambda: devices)
        monkeypatch.setattr("torch.backends.cuda.is_built", lambda: True)
        self._error = error
        monkeypatch.setattr("torch.cuda.init", self.init)

    def init(self) -> None:
        if self._error is not None:
            raise self._error


OLD_DRIVER = RuntimeError(
    "The NVIDIA driver on your system is too old (found version 11040). Please update your driver."
)


@pytest.mark.parametrize(
    ("devices", "error", "note"),
    [
        (0, OLD_DRIVER, "no GPU is used: The NVIDIA driver on your system is too old (found version 11040)"),
        (0, RuntimeError("No CUDA GPUs are available"), "no GPU is used: No CUDA GPUs are available"),
        (0, None, "no GPU is used: torch sees none"),
    ],
    ids=["old driver", "no device", "no word"],
)
def test_without_a_gpu_another_engine_runs_and_says_why(monkeypatch, devices, error, note) -> None:
    Cuda(monkeypatch, devices, error)
    policy, table = parse_policy("ucb1"), arm_table(parse_arms("bernoulli(k=2)"), 0, 0, 1)
    choice = choose_engine(policy, table, 10)
    assert (str(choice), choice.note) == ("numba cpu float32", note)
    assert choose_engine(policy, table, 10, device="cpu").note == ""
    assert choose_engine(policy, table, 10, engine="torch", device="cpu").note == ""
    with pytest.raises(ValueError, match=r"device 'cuda' is not there: .* 0 CUDA devices \(no GPU is used: .*\)"):
        choose_engine(policy, table, 10, device="cuda")
    why_no_cuda.cache_clear()


def test_without_triton_the_reference_runs_on_the_gpu_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    Cuda(monkeypatch, 1)
    monkeypatch.setattr("stau_rl.kernels.engines.find_spec", lambda name: None)
    monkeypatch.setattr("stau_rl.kernels.engines.Engine.check", lambda *_: None)
    policy, table = parse_policy("ucb1"), arm_table(parse_arms("bernoulli(k=2)"), 0, 0, 1)
    choice = choose_engine(policy, table, 10)
    note = "engine 'triton' needs the package triton, which is not installed"
    assert (str(choice), choice.note) == ("torch cuda float64", note)
    with pytest.raises(EngineError, match=f"{note}; engine='torch' runs it"):
        choose_engine(policy, table, 10, engine="triton")
    why_no_cuda.cache_clear()


def test_a_kernel_that_the_driver_refuses_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def simulate() -> None:
        raise RuntimeError("Triton Error [CUDA]: the provided PTX was compiled\nwith an unsupported toolchain.")

    monkeypatch.setattr("stau_rl.kernels.engines.import_module", lambda name: SimpleNamespace(simulate=simulate))
    with pytest.raises(EngineError, match=r"engine 'triton' does not run .*PTX was .*engine='torch' does"):
        ENGINES["triton"].simulate()
    with pytest.raises(RuntimeError, match="Triton Error"):
        ENGINES["torch"].simulate()


def test_the_reason_is_in_the_spec_and_in_the_last_lines(monkeypatch, capsys, tmp_path) -> None:
    Cuda(monkeypatch, 0, OLD_DRIVER)
    main(["regret", "--policy", "random", "--horizon", "5", "--instances", "4", "--out", str(tmp_path / "run")])
    shown = " ".join(capsys.readouterr().out.split())
    assert "Engine: numba cpu float32. Took" in shown
    assert "No gpu is used" not in shown
    assert "No GPU is used: The NVIDIA driver on your system is too old (found version 11040)." in shown
    spec = json.loads((tmp_path / "run" / "spec.json").read_text())
    assert spec["engines"] == ["numba cpu float32"]
    assert spec["engine_note"].startswith("no GPU is used: The NVIDIA driver")
    assert "engine_note" not in identity(spec)
    why_no_cuda.cache_clear()
