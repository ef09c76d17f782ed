"""How far a run is, on standard error: a bar on a terminal, elsewhere a line now and then, for a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

EVERY = 10.0
"""Seconds between two lines, at least."""


def nothing_yet(out: Path | None, resume: bool) -> str:
    """What to say where the folder of a run that is to be resumed is not there, or empty; else an empty text."""
    if not resume or out is None or (out.is_dir() and any(out.iterdir())):
        return ""
    return f"--resume: {out} holds nothing to go on with, so this starts anew"


@contextmanager
def settings_bar(settings: int, opening: str = "", first: str = "compiling") -> Iterator[Callable[[str, float], None]]:
    """Show how many settings, or other units of work, are done while the block runs.

    Args:
        settings: how many there are.
        opening: a sentence to begin with once the work is under way; mistakes are told before, without it.
        first: what the bar says until then.

    Yields:
        A function to call with a setting's name and how many settings are done, the current one in part.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    line = _lines(console)
    # A bar that is not drawn would still end with an empty line.
    with Progress(*columns, console=console, transient=True, disable=not console.is_interactive) as bar:
        task = bar.add_task(first, total=settings)

        def report(name: str, done: float) -> None:
            nonlocal opening
            if opening:
                _print(console, opening)
                opening = ""
            if console.is_interactive:
                bar.update(task, description=name, completed=done)
            else:
                line(f"{100 * done / max(1, settings):3.0f} %, {int(done)}/{settings} {name}")

        yield report


@contextmanager
def progress_bar(pieces: int, opening: str = "") -> Iterator[Callable[[str, int, int], None]]:
    """Show how many policies, settings or cells of a run are done while the block runs; arguments as in `settings_bar`.

    Yields:
        A function to call with what is under way, how much of it is done and how much there is of it, in any unit.
        Several may be under way at once; one of which less is done than before is another of the same name.
    """
    with settings_bar(pieces, opening) as tell:
        finished = 0
        shares: dict[str, float] = {}

        def report(what: str, done: int, total: int) -> None:
            nonlocal finished
            share = done / total
            finished += share < shares.get(what, 0.0)
            shares[what] = share
            tell(what, finished + sum(shares.values()))

        yield report


@contextmanager
def steps_bar(text: str, steps: int, opening: str = "") -> Iterator[Callable[[int], None]]:
    """Show how many environment steps, or runs, are done while the block runs.

    Args:
        text: what is being done.
        steps: how many there are.
        opening: as in `settings_bar`.

    Yields:
        A function to call with the steps done.
    """
    with settings_bar(steps, opening, text) as tell:
        yield lambda done: tell(text, min(done, steps))


@contextmanager
def status_line(first: str) -> Iterator[Callable[[str], None]]:
    """Show what is being done while the block runs, where nobody knows how much there is to do.

    Args:
        first: what is done first.

    Yields:
        A function to call with what is done next.
    """
    console = Console(stderr=True)
    if not console.is_interactive:
        yield _lines(console)
        return
    with console.status(first) as status:
        yield status.update


def _lines(console: Console) -> Callable[[str], None]:
    """A function that prints a text with the seconds since now, unless the last line is too recent."""
    begun = last = time.perf_counter()

    def line(text: str) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last >= EVERY:
            last = now
            _print(console, f"[{now - begun:6.1f} s] {text}")

    return line


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
