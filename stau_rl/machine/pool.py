"""Worker processes of one thread each, which end with the process that started them."""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from stau_rl.machine.threads import one_thread

UNGUARDED = 87
"""Exit code of a worker that found the main script starting workers while it was being read."""
SET_PARENT_DEATH_SIGNAL = 1
GUARD = (
    "worker processes read the main script anew, and there this call is at the top level: put it under "
    "if __name__ == '__main__':"
)
Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


class _Context(SpawnContext):
    """Starts processes afresh and remembers them, so that their exit codes can be asked for.

    Afresh rather than forked: a fork cannot use CUDA, and would copy locks that other threads of this process hold.
    """

    def __init__(self) -> None:
        super().__init__()
        self.started: list[multiprocessing.process.BaseProcess] = []

    def Process(self, *arguments: Any, **named: Any) -> Any:  # type: ignore[override]
        """A process that has not started yet."""
        process = SpawnContext.Process(*arguments, **named)
        self.started.append(process)
        return process


class WorkerPool:
    """Workers that call functions; use it in a `with` block. Leaving it by an exception ends them at once.

    They also end when this process does, however it ends.

    Args:
        processes: how many workers at most; they start with the first calls.
        set_up: what each worker calls first; a function at the top level of a module.
        arguments: its arguments. Unlike those of `submit` they may be shared memory.
        work: what is done, in the message about a killed worker, as in "a worker of the training was killed".
    """

    def __init__(
        self, processes: int, set_up: Callable[..., object], arguments: tuple[Any, ...] = (), work: str = "run"
    ) -> None:
        require_guard()
        self.context, self.work = _Context(), work
        # Nothing is ever sent: workers wait for the end of the pipe, which comes when this process ends too.
        self._watched, self._alive = self.context.Pipe(duplex=False)
        # Pickled apart: a worker watches the pipe before it imports what the function needs.
        given = (self._watched, os.getpid(), pickle.dumps(set_up), arguments)
        self._pool = ProcessPoolExecutor(processes, self.context, _begin, given)

    def submit(
        self, function: Callable[Arguments, Value], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> "Future[Value]":
        """Have a worker call a function; calls begin in their order."""
        with one_thread():
            return self._pool.submit(function, *arguments, **named)

    def result(self, future: "Future[Value]") -> Value:
        """What a call returned; what it raised is raised here.

        Raises:
            ValueError: a worker was killed, for want of memory or by someone, or the main script lacks its guard.
        """
        try:
            return future.result()
        except BrokenProcessPool:
            self._pool.shutdown(wait=True, cancel_futures=True)
            if any(process.exitcode == UNGUARDED for process in self.context.started):
                raise ValueError(GUARD) from None
            raise ValueError(
                f"a worker process of the {self.work} was killed, perhaps for want of memory; what is finished is "
                "kept: repeat the command with --resume, perhaps with fewer --processes"
            ) from None

    def __enter__(self) -> Self:
        """Nothing to do; workers start with the first calls."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the workers; after an error, end them first."""
        if kind is not None:
            self._alive.close()
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)
        self._alive.close()
        self._watched.close()


def require_guard() -> None:
    """End this process where it is a worker that reads the main script, and so must not do the script's work again.

    Call it before anything else that a worker must not do twice. The process that started it then names the guard.
    """
    # The mark by which Python itself refuses to start processes from such a process.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        sys.exit(UNGUARDED)


def _begin(watched: Connection, parent: int, set_up: bytes, arguments: tuple[Any, ...]) -> None:
    """Set up a worker: it ends with its parent, has one thread, and leaves Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, args=(watched,), daemon=True).start()
    if sys.platform == "linux":
        # The kernel does it even while a long call holds Python's lock, which the thread would wait for.
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    pickle.loads(set_up)(*arguments)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


def _end_with_the_parent(watched: Connection) -> None:
    watched.poll(None)
    os._exit(1)
