"""One run shared by the processes that torchrun starts, on any number of devices and hosts.

The unit of work is a part: one policy on one stretch of instances. Parts are numbered policy by policy, and part i
belongs to rank i mod the number of ranks: the parts of a policy cost about the same, so every rank gets its share of
the slow policies and of the fast ones. Results travel as the part files of the run directory; only words travel
between the processes (whose turn it is, what went wrong), so the group is gloo on CPU tensors even where the work
runs on GPUs: NCCL would take device memory and a stream for a few bytes, and needs a device of its own per process.

Nobody waits on a clock. A rank that waits holds open connections to the others, and the kernel closes those of a
process that ends, however it ends; so a part may take hours, and the end of a process is known at once.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

Value = TypeVar("Value")

# What torchrun sets; a process that lacks one of them works alone.
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
START, FOREVER = timedelta(minutes=5), timedelta(days=10_000)
POLL_SECONDS = 0.02
LAST_WORD_SECONDS = 20.0
LOST = "another process of this run has ended; what is finished is kept: repeat the command with --resume to go on"


@dataclass(frozen=True, slots=True)
class Ranks:
    """The processes that share one run, seen from one of them; a process alone is a group of one.

    Attributes:
        rank: number of this process, from 0; rank 0 holds the run directory and speaks to the user.
        size: how many there are.
        local: number of this process among those on its host.
    """

    rank: int = 0
    size: int = 1
    local: int = 0

    @property
    def first(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def owns(self, part: int) -> bool:
        """Whether part number `part` is this rank's."""
        return part % self.size == self.rank

    def device(self, device: str) -> str:
        """The device for a run on `device`: `cuda` without an index is shared out among the processes of a host."""
        if self.size == 1 or device != "cuda":
            return device
        import torch

        return f"cuda:{self.local % torch.cuda.device_count()}"

    def together(self, action: Callable[[], Value]) -> list[Value]:
        """Run `action` on every rank and wait for all; every rank must make the same calls in the same order.

        Args:
            action: what to do; its value must pickle.

        Returns:
            The values by rank.

        Raises:
            ValueError: it, or an OSError, was raised on some rank. Then every rank raises, with the words of the
                lowest such rank.
            ConnectionError: a process ended before it answered.
        """
        if self.size == 1:
            return [action()]
        value, error = None, None
        try:
            value = action()
        except (ValueError, OSError) as caught:
            error = caught
        answers = self._gather((value, None if error is None else str(error)))
        for rank, (_, text) in enumerate(answers):
            if text is not None:
                where = f"process {rank}: " if rank else ""
                raise ValueError(f"{where}{text}") from error
        return [answer for answer, _ in answers]

    def by_first(self, action: Callable[[], Value]) -> Value:
        """Run `action` on rank 0 alone; every rank gets its value, or its error as in `together`."""
        return self.together(lambda: action() if self.first else None)[0]  # type: ignore[return-value]

    def meet(self, seconds: float = FOREVER.total_seconds()) -> None:
        """Wait until every rank is here, or that many seconds.

        Raises:
            ConnectionError: a process has ended.
        """
        if self.size == 1:
            return
        import torch
        import torch.distributed as dist

        group = _group()
        with _lost_rank():
            work = dist.all_reduce(torch.zeros(1), group=group, async_op=True)
            # Asked again and again rather than waited for inside the library, where no signal would be heard.
            until = time.monotonic() + seconds
            while not work.is_completed() and time.monotonic() < until:
                time.sleep(POLL_SECONDS)
            if work.is_completed():
                work.wait()

    def _gather(self, value: Any) -> list[Any]:
        import torch.distributed as dist

        self.meet()
        found: list[Any] = [None] * self.size
        with _lost_rank():
            dist.all_gather_object(found, value, group=_group())
        return found


def current_ranks(environment: Mapping[str, str] = os.environ) -> Ranks:
    """The processes that torchrun says there are; without it, and where it started only one, this process alone.

    Raises:
        ValueError: a variable of torchrun's is not a whole number.
    """
    if any(name not in environment for name in NEEDED):
        return Ranks()
    try:
        rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        local = int(environment.get("LOCAL_RANK", rank))
    except ValueError as error:
        raise ValueError(f"RANK, WORLD_SIZE and LOCAL_RANK must be whole numbers: {error}") from error
    return Ranks(rank, size, local) if size > 1 else Ranks()


@contextmanager
def one_voice(ranks: Ranks) -> Iterator[None]:
    """Let rank 0 alone print while the block runs, and have its last word out before any process exits with an error.

    torchrun ends all processes as soon as one has failed; without this, the one that explains the failure might be
    ended before it does. The processes of a host also share its cores for compiled loops.
    """
    if ranks.size == 1:
        yield
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if "numba" not in sys.modules:
        beside = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.size))
        os.environ.setdefault("NUMBA_NUM_THREADS", str(max(1, cores // beside)))
    # So that one whose neighbour was killed still says how to go on, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if ranks.first:
            yield
        else:
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
                yield
    except SystemExit:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.stdout.flush()
        sys.stderr.flush()
        with suppress(ConnectionError):
            ranks.meet(LAST_WORD_SECONDS)
            if not ranks.first:
                # Rank 0 does not come a second time: its end ends the wait, so its exit code is the one that counts.
                ranks.meet(LAST_WORD_SECONDS)
        raise


@cache
def _group() -> Any:
    """A gloo group of all processes; made once, beside whatever group a caller's script has made."""
    import torch.distributed as dist

    try:
        if not dist.is_initialized():
            dist.init_process_group("gloo", timeout=START)
        return dist.new_group(backend="gloo", timeout=FOREVER)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise ConnectionError(f"the processes of this run have not found one another: {reason}") from error


@contextmanager
def _lost_rank() -> Iterator[None]:
    """Turn the transport's error into one sentence."""
    try:
        yield
    except RuntimeError as error:
        raise ConnectionError(LOST) from error
