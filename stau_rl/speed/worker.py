"""A process that checks and plays the cases of one loop of `stau-rl speed`, and says what they took."""

import math
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from stau_rl.kernels.engines import ENGINES
from stau_rl.speed.jax_scan import stop_workers
from stau_rl.speed.loops import Case, Loop, Setup, loops

SEED = 1
# Exact expected regret of centred UCB (c = 1) on Bernoulli arms (.9, .8) after 100 plays, by dynamic programming over
# counts and sums; eps = 1e-8 of s_tau moves it by less than 1e-6.
EXACT_MEANS, EXACT_STEPS = (0.9, 0.8), 100
EXACT_REGRET = {"softmax(beta=1)": 4.805593719398804, "s_tau(tau=5)": 4.531060519992729}
CHECKED_INSTANCES, STANDARD_ERRORS = 16_384, 4.0


class Worker:
    """A process that plays the cases of one loop, one at a time, when told."""

    def __init__(self, loop: Loop, limit: float) -> None:
        """Start it; an answer may take `limit` seconds."""
        context = multiprocessing.get_context("spawn")
        self.loop, self._limit = loop, limit
        self._here, there = context.Pipe()
        # Not a daemon: a scan may have processes of its own.
        self._process = context.Process(target=_serve, args=(there, loop.device, loop.name))
        self._process.start()
        there.close()

    def ask(self, question: str, *arguments: Any) -> Any:
        """What `_Server` answers.

        Raises:
            ValueError: the loop is wrong or cannot run this.
            TimeoutError: it has taken too long, or its process has ended; it is stopped then.
        """
        try:
            self._here.send((question, arguments))
            if not self._here.poll(self._limit):
                raise TimeoutError(f"{self.loop.name} has taken more than {self._limit:.0f} s")
            ok, answer = self._here.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise TimeoutError(f"{self.loop.name} has ended without an answer") from None
        if not ok:
            raise ValueError(f"{self.loop.name}: {answer}")
        return answer

    def stop(self) -> None:
        """End the process and those that it has started."""
        self._here.close()
        self._process.join(20.0)
        if self._process.is_alive():
            if self._process.pid:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.join()


def _serve(connection: Any, device: str, name: str) -> None:
    # A group of its own: a stop from the keyboard is the parent's to handle, and it can end a scan's processes too.
    os.setsid()
    # Peers share the card's memory; must be set before JAX starts.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        _answer(connection, _Server(loops(device)[name]))
    finally:
        stop_workers()


def _answer(connection: Any, server: "_Server") -> None:
    """Answer questions until nobody asks."""
    while True:
        try:
            question, arguments = connection.recv()
        except EOFError:
            return
        try:
            answer = True, getattr(server, question)(*arguments)
        except Exception as error:
            answer = False, f"{type(error).__name__}: {str(error).strip()[:400]}"
        connection.send(answer)


class _Server:
    """The questions that a worker answers."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._setups: dict[Case, Setup] = {}

    def check(self, head: str) -> float:
        """Distance of the mean regret from the exact value, in standard errors."""
        case = Case(head, CHECKED_INSTANCES, EXACT_STEPS, len(EXACT_MEANS), EXACT_MEANS)
        setup = self._loop.make(case)
        setup.seconds(SEED)
        return distance(setup.regret(), EXACT_REGRET[head])

    def same(self, case: Case) -> float:
        """Share of histories identical to the float64 reference."""
        import torch

        from stau_rl.kernels import torch_loop

        options: dict[str, Any] = {"seed": SEED, "first_instance": 0, "horizon": case.steps, "record": True}
        options |= {"checkpoints": np.array([case.steps]), "device": self._loop.device}
        engine = ENGINES[self._loop.engine or "torch"]
        ours = engine.simulate(case.policy, case.table(), dtype="float32", **options)
        threads = torch.get_num_threads()
        # Tensors this small are slower on several threads.
        torch.set_num_threads(1)
        theirs = torch_loop.simulate(case.policy, case.table(), dtype="float64", **options)
        torch.set_num_threads(threads)
        return float((ours.actions == theirs.actions).all(axis=0).mean())

    def prepare(self, case: Case) -> dict[str, float]:
        """Set a case up and play it once and again: memory, and what compiling took if no cache on disk had it."""
        with _peak_memory(self._loop) as found:
            self._setups[case] = self._loop.make(case)
            first = self._setups[case].seconds(SEED)
        return found | {"compile_seconds": max(0.0, first - self._setups[case].seconds(SEED))}

    def time(self, case: Case, seed: int) -> float:
        """Seconds of one run."""
        return self._setups[case].seconds(seed)

    def facts(self, case: Case) -> dict[str, Any]:
        """What else is known of a case."""
        return self._setups[case].facts()


def distance(regret: Any, exact: float) -> float:
    """Distance of a mean from its exact value, in standard errors.

    Raises:
        ValueError: if it is more than four.
    """
    found = float((regret.mean() - exact) / (regret.std(ddof=1) / np.sqrt(len(regret))))
    if not abs(found) <= STANDARD_ERRORS:
        raise ValueError(f"mean regret {regret.mean():.6g} is {found:.2g} standard errors from {exact:.6g}")
    return found


@contextmanager
def _peak_memory(loop: Loop) -> Iterator[dict[str, float]]:
    """Memory that the block takes at most on top of what was held before, MiB; nan where nothing tells."""
    found = {"peak_memory_mib": math.nan}
    if loop.device == "cpu":
        _reset_host_peak()
        before, peak = _host_peak(), _host_peak
    elif loop.needs == "jax":
        import jax

        def peak() -> float:
            # Of the process: JAX cannot be told to forget an earlier peak.
            return float((jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", math.nan))

        before = 0.0
    else:
        import torch

        torch.cuda.reset_peak_memory_stats()
        before, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated
    yield found
    found["peak_memory_mib"] = (peak() - before) / 2.0**20


def _host_peak() -> float:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024.0 * float(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return math.nan


def _reset_host_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
