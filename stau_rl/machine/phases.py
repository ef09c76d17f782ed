"""Where the time of a run goes: every moment of the main thread belongs to one phase."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from stau_rl.machine.begun import BEGUN

PHASES = ("start", "kernels", "statistics", "files", "plot")
"""`start`: imports, checks, the arms, loading compiled code. `files` has the waits for threads
that write; the others are what they say."""


class Phases:
    """A clock with one hand: seconds by phase, from `since` on; it starts in the phase `start`."""

    def __init__(self, since: float = 0.0) -> None:
        """Begin with `since` seconds already spent in `start`."""
        self._seconds = dict.fromkeys(PHASES, 0.0) | {"start": since}
        self._phase, self._entered = "start", time.perf_counter()

    def enter(self, phase: str) -> str:
        """Count what comes next to `phase`; returns the phase before."""
        now = time.perf_counter()
        self._seconds[self._phase] += now - self._entered
        before, self._phase, self._entered = self._phase, phase, now
        return before

    @contextmanager
    def inside(self, phase: str) -> Iterator[None]:
        """Count the block to `phase`, what follows to the phase before."""
        before = self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def seconds(self) -> dict[str, float]:
        """Seconds by phase up to now."""
        self.enter(self._phase)
        return dict(self._seconds)


def work_age() -> float:
    """Seconds since this interpreter first imported the package.

    What the system says of a process counts from the start of a shell that became this interpreter, and of all that
    the shell did before; the interpreter's own start, hundredths of a second, is left out here.
    """
    return time.perf_counter() - BEGUN


def sentence(seconds: dict[str, float]) -> str:
    """The split as a line, such as `kernels 2.4 s, everything else 4.1 s (start 2.9, ...)`."""
    others = {phase: value for phase, value in seconds.items() if phase != "kernels"}
    parts = ", ".join(f"{phase} {value:.1f}" for phase, value in others.items())
    return f"kernels {seconds['kernels']:.1f} s, everything else {sum(others.values()):.1f} s ({parts})"
