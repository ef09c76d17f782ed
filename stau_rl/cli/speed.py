"""`stau-rl speed`: the engines beside their peers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stau_rl.cli.options import Count, Counts, OptionalPath, OptionalText

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Speed:
    """How fast are the engines on this machine, beside torch and JAX?

    It checks the engines against exact regrets, then times them and their peers (JAX: extra `peers`) in one run.

    Example: stau-rl speed --device cpu --arms 10 --repeats 7
    """

    device: str = "auto"
    """cpu, cuda or auto."""
    head: tuple[str, ...] = ("softmax(beta=1)", "s_tau(tau=5)")
    """Heads, of these two."""
    arms: Counts = (2, 10, 32, 128, 1024)
    """Numbers of arms; the peers play ten arms only."""
    repeats: Count = 7
    """Timed runs of each, after two that compile and warm up."""
    limit: float = 120.0
    """Seconds after which a peer that compiles, or plays, is left out."""
    rows: OptionalPath = None
    """CSV file to add the rows to. Default: speed.csv in this folder. The committed rows of a checkout are
    notebooks/results/speed.csv."""
    keep: bool = True
    """Add the rows to the file; all of them at the end, or none."""
    commit: OptionalText = None
    """Commit to write into the rows where this code is not in a checkout."""
    memory: bool = False
    """Also measure peak memory of the headline experiment with 100 000 instances at two horizons."""

    after_stop = "; no rows were added"

    def run(self) -> None:
        """Measure, print the table and the ratios, and add the rows to the file."""
        import pandas as pd
        from rich.table import Table

        from stau_rl.speed.measure import measure, peak_memory
        from stau_rl.speed.rows import ROWS, append, check, csv_text
        from stau_rl.speed.worker import EXACT_REGRET
        from stau_rl.terminal.console import wide_console
        from stau_rl.terminal.progress import status_line

        if min((*self.arms, self.repeats), default=0) < 1 or max(self.arms) > 1024:
            raise ValueError(f"--arms must be 1 to 1024 and --repeats 1 or more, got {self.arms} and {self.repeats}")
        # A wait of more than some weeks is no number that the system takes.
        if not 0 < self.limit <= 1e6:
            raise ValueError(f"--limit must be a number of seconds above 0, at most 1e6, got {self.limit:g}")
        unknown = [head for head in self.head if head not in EXACT_REGRET]
        if unknown or not self.head:
            raise ValueError(f"--head must be of {', '.join(EXACT_REGRET)}, got {', '.join(unknown) or 'none'}")
        (device, why), file = self._device(), self.rows or ROWS
        if self.keep:
            try:
                # Now, not after minutes of measuring.
                check(file)
            except (OSError, ValueError) as error:
                raise ValueError(f"{error}; --no-keep adds none") from error
        notes = [f"{why[0].upper()}{why[1:]}."] if why else []
        with status_line("compiling") as show:

            def report(line: str) -> None:
                show(line)
                if "left out" in line:
                    notes.append(line)

            found = measure(device, self.head, self.arms, self.repeats, self.limit, self.commit, report)
        console = wide_console()
        for head in self.head:
            table = Table(title=f"{found[0]['device']}: centred_ucb | {head}, Bernoulli arms", title_justify="left")
            table.add_column("loop")
            for name in ("K", "G arm-steps/s", "p20", "p80", "instances", "compile, s", "MiB", "ceiling", "z", "same"):
                table.add_column(name, justify="right")
            for row in (row for row in found if row["head"] == head):
                table.add_row(row["engine"], str(row["arms"]), *_cells(row))
            console.print(table)
        console.print(
            "MiB: memory on top of the process. Ceiling: share of the device's special functions per second. "
            "z: mean regret less the exact one, in standard errors. Same: share of histories that are the reference's."
        )
        for line in [*ratios(pd.DataFrame(found)), *notes]:
            console.print(line, highlight=False, markup=False)
        console.print("Rows as CSV:")
        # Not through the console, which would wrap them: a log alone is to restore the file.
        print(csv_text(found), end="", flush=True)
        if self.keep:
            append(file, found)
            console.print(f"{len(found)} rows added to {file.resolve()}", soft_wrap=True)
        if self.memory:
            for horizon in (1_000, 10_000):
                peak = peak_memory(horizon)
                console.print(f"100 000 instances, 9 policies, {horizon} steps: peak memory {peak:.0f} MiB")

    def _device(self) -> tuple[str, str]:
        """Where to play, and why not on a GPU if that is not what was asked for."""
        import warnings

        import torch

        from stau_rl.kernels.engines import why_no_cuda

        with warnings.catch_warnings():
            # Of a driver that is too old; `why_no_cuda` has its words.
            warnings.simplefilter("ignore")
            there = torch.cuda.is_available()
        if self.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"--device must be auto, cpu or cuda, got {self.device!r}")
        if self.device == "cuda" and not there:
            raise ValueError(f"--device cuda: {why_no_cuda()}; use --device cpu")
        if there and self.device != "cpu":
            return "cuda", ""
        return "cpu", why_no_cuda() if self.device == "auto" else ""


def _cells(row: dict[str, Any]) -> list[str]:
    def cell(name: str, form: str, factor: float = 1.0) -> str:
        value = row[name] * factor
        return "-" if value != value else format(value, form)

    rates = [cell(name, ".3g" if row["median"] < 1e12 else ".4g", 1e-9) for name in ("median", "p20", "p80")]
    return [
        *rates,
        str(row["instances"]),
        cell("compile_seconds", ".1f"),
        cell("peak_memory_mib", ".0f"),
        cell("ceiling_share", ".0%"),
        cell("regret_z", "+.2f"),
        cell("same_histories", ".3f"),
    ]


def ratios(rows: "pd.DataFrame") -> list[str]:
    """How the fastest engine stands to each kind of peer, a line per head, at the peers' number of arms."""
    from stau_rl.speed.loops import PEERS_ARMS
    from stau_rl.speed.rows import compare

    lines = []
    for head, some in rows[rows["arms"] == PEERS_ARMS].groupby("head", sort=False):
        best, peers = compare(some)
        if best and peers:
            texts = ", ".join(f"{ratio:.3g} x {name}" for name, ratio in peers.items())
            lines.append(f"{head}, {PEERS_ARMS} arms: {best} is {texts}")
    return lines
