"""The loops that `stau-rl speed` times: the engines, and their peers in torch and JAX."""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stau_rl.agents.bandit import parse_policy
from stau_rl.envs.arms import BernoulliArms
from stau_rl.heads import Softmax, parse_head
from stau_rl.kernels.contract import ArmTable
from stau_rl.kernels.engines import ENGINES
from stau_rl.regret.arm_table import arm_table
from stau_rl.speed.instructions import SPECIAL_PER_CLOCK, loop_instructions

HEADS = ("softmax(beta=1)", "s_tau(tau=5)")
PEERS_ARMS = 10


@dataclass(frozen=True, slots=True)
class Case:
    """What is played: centred UCB scores | `head` on Bernoulli arms.

    Attributes:
        head: text of the head, a softmax or s_tau.
        instances: independent replicates.
        steps: horizon.
        arms: number of arms, their means uniform on [0, 1] per instance; or
        means: means that all instances share.
    """

    head: str
    instances: int
    steps: int
    arms: int
    means: tuple[float, ...] | None = None

    @property
    def policy(self) -> Any:
        """The policy."""
        return parse_policy(f"centred_ucb | {self.head}")

    def table(self, seed: int = 0) -> ArmTable:
        """The arms."""
        arms = BernoulliArms(k=self.arms) if self.means is None else BernoulliArms(means=self.means)
        return arm_table(arms, seed, 0, self.instances)

    @property
    def sharpness(self) -> dict[str, float]:
        """`beta` or `tau`, for the peers."""
        head = parse_head(self.head)
        value: Any = getattr(head, "beta" if isinstance(head, Softmax) else "tau")
        return {"beta" if isinstance(head, Softmax) else "tau": float(value)}


class Setup(Protocol):
    """A case set up for one loop."""

    def seconds(self, seed: int) -> float:
        """Play it; what that took, up to the counts of pulls lying on the device."""

    def regret(self) -> NDArray[np.float64]:
        """Pseudo-regret of what was just played, float64 [instances]."""

    def facts(self) -> dict[str, Any]:
        """What else is known: `settings`, `special` (special functions per arm-step)."""


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop.

    Attributes:
        name: its name in the rows.
        device: `cpu` or `cuda`.
        make: sets up a case.
        sizes: instances to try for a number of arms; the fastest counts.
        steps: horizon of a timed run at ten arms or fewer.
        needs: the package it is built on.
        engine: the engine of that name, to be compared with the reference; None for a peer, which plays ten arms only.
    """

    name: str
    device: str
    make: Callable[[Case], Setup]
    sizes: Callable[[int], tuple[int, ...]]
    steps: int
    needs: str
    engine: str | None = None

    def case(self, head: str, arms: int, size: int) -> Case:
        """A timed case; its horizon leaves room for choices after every arm has been pulled once."""
        return Case(head, size, max(self.steps, 4 * arms if arms > 100 else 0), arms)

    def missing(self) -> bool:
        """Whether its package is not installed."""
        return find_spec(self.needs) is None


def loops(device: str) -> dict[str, Loop]:
    """The loops of a device, ours first."""
    found = _cuda_loops() if device == "cuda" else _cpu_loops()
    return {loop.name: loop for loop in found}


def _cpu_loops() -> list[Loop]:
    from stau_rl.speed.jax_settings import FASTEST, Settings

    # The scan of library functions as a JAX user writes it at its best: layout, batch, chunk, form of the power.
    library = Settings(softplus="library", power="exp_log", cdf="cumsum")
    per_core = replace(library, processes=os.cpu_count())
    small, large = lambda _: (8_192,), lambda _: (16_384, 65_536)
    return [
        Loop("numba", "cpu", partial(EngineSetup, "numba", "cpu"), _engine_sizes, 1_000, "numba", "numba"),
        Loop("torch", "cpu", partial(EngineSetup, "torch", "cpu"), small, 50, "torch", None),
        Loop("torch eager step", "cpu", partial(TorchSetup, "cpu", False), small, 50, "torch"),
        Loop("torch.compile step", "cpu", partial(TorchSetup, "cpu", True), small, 50, "torch"),
        Loop("JAX scan", "cpu", partial(JaxSetup, "cpu", library), large, 250, "jax"),
        Loop("JAX scan, a process per core", "cpu", partial(JaxSetup, "cpu", per_core), large, 250, "jax"),
        Loop("JAX scan, kernel rewritten by hand", "cpu", partial(JaxSetup, "cpu", FASTEST), large, 500, "jax"),
    ]


def _cuda_loops() -> list[Loop]:
    from stau_rl.speed.jax_settings import Settings

    base = Settings(chunk=None, vector_width=None, cache_rsqrt=True, softplus="log", rng="unsafe_rbg")
    scans = {
        "JAX scan, library functions": replace(base, softplus="library", power="exp_log", cdf="cumsum"),
        "JAX scan, arms first": base,
        "JAX scan, arms apart": replace(base, layout="arms_apart", unroll=4),
    }
    return [
        Loop("triton", "cuda", TritonSetup, _cuda_sizes, 1_000, "triton", "triton"),
        Loop("torch eager step", "cuda", partial(TorchSetup, "cuda", False), _cuda_sizes, 50, "torch"),
        Loop("torch.compile step", "cuda", partial(TorchSetup, "cuda", True), _cuda_sizes, 200, "torch"),
        *(
            Loop(name, "cuda", partial(JaxSetup, "cuda", scan), _cuda_sizes, 1_000, "jax")
            for name, scan in scans.items()
        ),
    ]


def _cuda_sizes(arms: int) -> tuple[int, ...]:
    return ({2: 1 << 20, 10: 1 << 18, 32: 1 << 17, 128: 1 << 15}.get(arms, max(1 << 12, (1 << 22) // arms)),)


def _engine_sizes(arms: int) -> tuple[int, ...]:
    return tuple(max(512, size * 10 // arms // 64 * 64) for size in (16_384, 65_536))


class EngineSetup:
    """A case for an engine, on float32 scores; seconds include its own set-up and what it returns."""

    def __init__(self, engine: str, device: str, case: Case) -> None:
        """Make the arms."""
        self._engine, self._device, self._case, self._table = ENGINES[engine], device, case, case.table()
        self._regret = np.empty(0)

    def seconds(self, seed: int) -> float:
        """As `Setup`."""
        steps, begun = self._case.steps, time.perf_counter()
        block = self._engine.simulate(
            self._case.policy,
            self._table,
            seed=seed,
            first_instance=0,
            horizon=steps,
            checkpoints=np.array([steps]),
            dtype="float32",
            device=self._device,
        )
        took = time.perf_counter() - begun
        self._regret = block.regret[0]
        return took

    def regret(self) -> NDArray[np.float64]:
        """As `Setup`."""
        return self._regret

    def facts(self) -> dict[str, Any]:
        """As `Setup`."""
        return {}


class TritonSetup:
    """A case for the Triton engine; seconds are the device's own, launches included, results left there."""

    def __init__(self, case: Case) -> None:
        """Make the arms and the state."""
        import torch

        from stau_rl.kernels.gpu.loop import Run
        from stau_rl.kernels.gpu.plan import make_plan

        table = case.table()
        self._steps, self._plan = case.steps, make_plan(case.policy.lowered(), table, case.steps)
        checkpoints = np.array([case.steps])
        self._make = lambda seed: Run(self._plan, table, torch.device("cuda"), seed, 0, case.steps, checkpoints, False)
        self._run = self._make(0)

    def seconds(self, seed: int) -> float:
        """As `Setup`."""
        self._run = self._make(seed)
        return _device_seconds(self._run.run)

    def regret(self) -> NDArray[np.float64]:
        """As `Setup`."""
        return self._run.collect().regret[0]

    def facts(self) -> dict[str, Any]:
        """As `Setup`; registers and spilled bytes are in the settings."""
        end = self._steps - self._steps % 2
        kernel = self._run.launch(end - 2, end, True)
        found = {"settings": f"registers {kernel.n_regs}, spilled bytes {kernel.n_spills * 4}"}
        try:
            counts = loop_instructions(kernel.asm["cubin"], 2 * self._plan.variant.slots)
        except OSError:
            return found
        by_pipe = ", ".join(f"{pipe} {count:.2f}" for pipe, count in counts.items())
        found["settings"] += f"; instructions per arm-step: {by_pipe}"
        return found | {"special": counts.get("special", 0.0)}


class TorchSetup:
    """A case for the step of a torch user."""

    def __init__(self, device: str, compiled: bool, case: Case) -> None:
        """Make the arms and compile nothing yet."""
        from stau_rl.speed.torch_step import TorchPeer

        self._peer = TorchPeer(
            case.table().means,
            horizon=case.steps,
            instances=case.instances,
            device=device,
            compiled=compiled,
            **case.sharpness,
        )

    def seconds(self, seed: int) -> float:
        """As `Setup`."""
        begun = time.perf_counter()
        self._peer.run(seed)
        return time.perf_counter() - begun

    def regret(self) -> NDArray[np.float64]:
        """As `Setup`."""
        return self._peer.regret()

    def facts(self) -> dict[str, Any]:
        """As `Setup`."""
        return {}


class JaxSetup:
    """A case for a JAX scan; with worker processes, seconds include sending the results."""

    def __init__(self, device: str, settings: Any, case: Case) -> None:
        """Note what to play."""
        if device == "cuda":
            import jax

            if jax.default_backend() != "gpu":
                raise ValueError(f"JAX sees no GPU, its backend is {jax.default_backend()}")
        self._settings = settings
        self._problem: dict[str, Any] = {"means": case.arms if case.means is None else np.array(case.means), "c": 1.0}
        self._problem |= {"horizon": case.steps, "instances": case.instances, "settings": settings, **case.sharpness}
        self._fetch: Callable[[], Any] = tuple

    def seconds(self, seed: int) -> float:
        """As `Setup`."""
        from stau_rl.speed.jax_scan import simulate, start

        begun = time.perf_counter()
        if self._settings.processes is None:
            self._fetch = start(seed=seed, **self._problem)
        else:
            found = simulate(seed=seed, **self._problem)
            self._fetch = lambda: found
        return time.perf_counter() - begun

    def regret(self) -> NDArray[np.float64]:
        """As `Setup`."""
        return self._fetch()[0]

    def facts(self) -> dict[str, Any]:
        """As `Setup`."""
        return {"settings": ", ".join(f"{name}={value}" for name, value in asdict(self._settings).items())}


def _device_seconds(play: Callable[[], Any]) -> float:
    """Seconds between two events on the GPU's stream."""
    import torch

    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    play()
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop) / 1e3


def special_ceiling() -> float:
    """Special functions per second of the GPU at its highest clock; nan where its driver does not tell the clock."""
    import subprocess

    import torch

    units = torch.cuda.get_device_properties(0).multi_processor_count
    try:
        asked = ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=20).stdout
        return SPECIAL_PER_CLOCK * units * float(answer.split()[0]) * 1e6
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return float("nan")
