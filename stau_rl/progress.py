"""A progress bar over the policies of a run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(policies: int) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar on standard error while the block runs; nothing where that is no terminal.

    Args:
        policies: how many policies the run has.

    Yields:
        A function to call with a policy's text, what it has done and all it has to do.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    # A bar that is not drawn would still end with an empty line.
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("compiling", total=policies)
        seen: list[str] = []

        def report(text: str, done: int, total: int) -> None:
            if text not in seen:
                seen.append(text)
            bar.update(task, description=text, completed=len(seen) - 1 + done / total)

        yield report


@contextmanager
def settings_bar(settings: int) -> Iterator[Callable[[str, float], None]]:
    """Show a bar on standard error over a study's settings while the block runs; nothing where that is no terminal.

    Args:
        settings: how many there are.

    Yields:
        A function to call with a setting's name and how many settings are done, the current one in part.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("compiling", total=settings)

        def report(name: str, done: float) -> None:
            bar.update(task, description=name, completed=done)

        yield report


@contextmanager
def steps_bar(text: str, steps: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error over environment steps while the block runs; nothing where that is no terminal.

    Args:
        text: what is being done.
        steps: how many there are.

    Yields:
        A function to call with the steps done.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(text, total=steps)

        def report(done: int) -> None:
            bar.update(task, completed=min(done, steps))

        yield report
