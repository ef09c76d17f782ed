"""The engines by name, what each can run, and the choice among them.

| engine | what it is |
|---|---|
| `triton` | one fused GPU kernel for all steps, float32 weights of exact sums; the default where CUDA is available |
| `numba` | compiled loop over SIMD lanes and threads, float32 weights of exact sums; the default on a CPU |
| `torch` | reference, one step at a time, float64 or float32, any device; runs every policy |

Scores of the first two are float32 where that moves no weight that decides, else float64; see `kernels.float32`.
Nothing falls back silently: `auto` writes down what it chose, and an engine asked for by name either runs the policy
or says why not and names one that can.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from stau_rl.kernels.contract import ArmTable, EngineError, UnfitError


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine.

    Attributes:
        name: its name.
        module: where its `simulate` and its `load` live.
        plan: where its `check` lives, which says what it can run.
        dtypes: floating-point types of the scores, the default first.
        cuda: it can run on a CUDA device.
        cpu: it can run on a CPU.
        compiles: the first call for a kind of policy compiles it.
    """

    name: str
    module: str
    plan: str
    dtypes: tuple[str, ...]
    cpu: bool
    cuda: bool
    compiles: bool

    def simulate(self, *args: Any, **kwargs: Any) -> Any:
        """Play one block; see `stau_rl.kernels.contract`."""
        with self._explained():
            return import_module(self.module).simulate(*args, **kwargs)

    def load(self, policy: Any, arms: ArmTable, *, horizon: int, dtype: str, device: str) -> None:
        """Compile, or load from the disk, what a run of `horizon` steps needs, by a few steps on `arms`."""
        with self._explained():
            import_module(self.module).load(policy, arms, horizon=horizon, dtype=dtype, device=device)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn the errors of compilers into an EngineError."""
        try:
            yield
        except Exception as error:
            # Of a device function that does not compile; the message's first line says where.
            if type(error).__module__.startswith("numba.core.errors"):
                lines = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
                raise EngineError(f"engine {self.name!r} cannot compile this policy: {lines[:300]}") from error
            if self.name == "triton" and _is_of_triton(error):
                lines = " ".join(str(error).split())
                raise EngineError(
                    f"engine 'triton' does not run on this device and driver ({lines[:200]}); engine='torch' does"
                ) from error
            raise

    def check(self, policy: Any, arms: ArmTable, horizon: int, dtype: str = "auto") -> None:
        """Raise an EngineError if this engine cannot run `policy`; the message names one that can.

        Raises:
            Float32Error: as float32 does not hold its scores.
        """
        import_module(self.plan).check(policy, arms, horizon, self.dtypes[0] if dtype == "auto" else dtype)

    def require(self) -> None:
        """Raise an EngineError if what this engine is built on is not installed here, or is switched off."""
        if self.name == "numba":
            if find_spec("numba") is None:
                raise MissingEngineError(
                    "engine 'numba' needs the package numba, which is not installed; engine='torch' runs it"
                )
            import numba

            if numba.config.DISABLE_JIT:
                raise MissingEngineError(
                    "engine 'numba' compiles, which NUMBA_DISABLE_JIT=1 forbids; unset it, or engine='torch' runs it"
                )
        if self.name == "triton" and find_spec("triton") is None:
            raise MissingEngineError(
                "engine 'triton' needs the package triton, which is not installed; engine='torch' runs it"
            )


class MissingEngineError(EngineError):
    """What an engine is built on is not installed here."""


ENGINES = {
    engine.name: engine
    for engine in (
        Engine(
            "triton",
            "stau_rl.kernels.gpu.loop",
            "stau_rl.kernels.gpu.plan",
            ("float32",),
            cpu=False,
            cuda=True,
            compiles=True,
        ),
        Engine(
            "numba",
            "stau_rl.kernels.cpu.loop",
            "stau_rl.kernels.cpu.plan",
            ("float32",),
            cpu=True,
            cuda=False,
            compiles=True,
        ),
        Engine(
            "torch",
            "stau_rl.kernels.torch_loop",
            "stau_rl.kernels.torch_plan",
            ("float64", "float32"),
            cpu=True,
            cuda=True,
            compiles=False,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine, the device it runs on and the type of its scores."""

    engine: Engine
    device: str
    dtype: str
    note: str = ""
    """Why it is not a faster one; empty where nothing is missing, or where the caller has named it."""

    def __str__(self) -> str:
        """Text for tables and spec files."""
        return f"{self.engine.name} {self.device} {self.dtype}"


def choose_engine(
    policy: Any, arms: ArmTable, horizon: int, engine: str = "auto", device: str = "auto", dtype: str = "auto"
) -> Choice:
    """Pick the engine for one policy.

    Args:
        policy: the policy.
        arms: any block of the arms.
        horizon: number of steps.
        engine: a name in `ENGINES`, or `auto`: the first that runs the policy on the device.
        device: `cpu`, `cuda`, `cuda:1`, ... or `auto`: `cuda` where torch sees a device, else `cpu`.
        dtype: `float32`, `float64` or `auto`, the engine's own.

    Raises:
        ValueError: an unknown engine, device or dtype, a device that is not there, or a schedule of the policy that
            is not legal at a step that is played.
        EngineError: the engine named cannot run this policy, on this device or in this type.
    """
    if engine != "auto" and engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; known: auto, {', '.join(ENGINES)}")
    if dtype not in ("auto", "float32", "float64"):
        raise ValueError(f"unknown dtype {dtype!r}; known: auto, float32, float64")
    policy.check_steps(horizon)
    place = find_device(device, engine)
    if engine != "auto":
        return _try(ENGINES[engine], policy, arms, horizon, place, dtype)
    missing = why_no_cuda() if device == "auto" and place == "cpu" else ""
    reasons = []
    for candidate in ENGINES.values():
        try:
            choice = _try(candidate, policy, arms, horizon, place, dtype)
        except MissingEngineError as error:
            missing = str(error).partition(";")[0]
            reasons.append(str(error))
        except UnfitError as error:
            missing = error.why
            reasons.append(str(error))
        except EngineError as error:
            reasons.append(str(error))
        else:
            return replace(choice, note=missing)
    raise EngineError("; ".join(reasons))


@cache
def why_no_cuda() -> str:
    """One sentence on why torch sees no GPU: a build without CUDA, no driver, one that is too old, or no device."""
    import torch

    if not torch.backends.cuda.is_built():
        return "no GPU is used: this build of torch has no CUDA"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.cuda.init()
        except (RuntimeError, AssertionError) as error:
            words = " ".join(str(error).split())
            return f"no GPU is used: {words.partition('. ')[0].removeprefix('CUDA initialization: ')}"
    return "no GPU is used: torch sees none"


def _is_of_triton(error: Exception) -> bool:
    """Whether an error comes from compiling or loading a kernel: Triton's own, or a RuntimeError of its driver."""
    if isinstance(error, EngineError):
        return False
    return type(error).__module__.startswith("triton") or (
        type(error) is RuntimeError and ("Triton" in str(error) or "PTX" in str(error) or "compiler" in str(error))
    )


def _try(engine: Engine, policy: Any, arms: ArmTable, horizon: int, place: str, dtype: str) -> Choice:
    kind = place.split(":")[0]
    if not (engine.cuda if kind == "cuda" else engine.cpu):
        able = [other.name for other in ENGINES.values() if (other.cuda if kind == "cuda" else other.cpu)]
        raise EngineError(f"engine {engine.name!r} does not run on device {place!r}; {', '.join(able)} does")
    if dtype != "auto" and dtype not in engine.dtypes:
        able = [other.name for other in ENGINES.values() if dtype in other.dtypes]
        raise EngineError(f"engine {engine.name!r} has no {dtype} scores; {', '.join(able)} has")
    engine.require()
    engine.check(policy, arms, horizon, dtype)
    return Choice(engine, place, engine.dtypes[0] if dtype == "auto" else dtype)


def find_device(device: str, engine: str = "torch") -> str:
    """The device of a name: `cpu`, `cuda` or `cuda:N`; `auto` is a GPU where there is one that the engine runs on.

    Raises:
        ValueError: the name is unknown, or the device is not there.
    """
    if device == "cpu" or (device == "auto" and engine != "auto" and not ENGINES[engine].cuda):
        return "cpu"
    kind, _, index = device.partition(":")
    if device != "auto" and (kind != "cuda" or (index and not index.isdecimal())):
        raise ValueError(f"unknown device {device!r}; known: auto, cpu, cuda, cuda:N")
    import torch

    with warnings.catch_warnings():
        # Of a driver that is too old; what torch says then is in `why_no_cuda`.
        warnings.simplefilter("ignore")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return "cuda" if count else "cpu"
    if int(index or 0) >= count:
        why = f" ({why_no_cuda()})" if not count else ""
        raise ValueError(f"device {device!r} is not there: torch sees {count} CUDA devices{why}; use cpu")
    return device
