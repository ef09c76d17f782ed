"""`stau-rl heads` and `stau-rl calibrate`: heads on scores typed by hand."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stau_rl.cli.options import OptionalText, Paths, Texts

if TYPE_CHECKING:
    from torch import Tensor

    from stau_rl.heads import Head


@dataclass(frozen=True)
class Heads:
    """Which heads are there, and what weights does each give to some scores?

    It lists the heads, or shows the weights of each.

    Example: stau-rl heads --scores "0.3,-1.2,2.0,0"
    """

    scores: OptionalText = None
    """Scores, separated by commas. Write --scores=-1,2 if the first is negative."""
    head: Texts = ()
    """With --scores: a head such as "softmax(beta=4)"; repeat it. Default: every head with its default parameters."""
    plugin: Paths = ()
    """A Python file with heads of your own; repeat it. It is run, so name only files that you trust."""

    after_stop = ""

    def run(self) -> None:
        """Print the registry, or the weights."""
        from rich.table import Table

        from stau_rl.heads import HEADS, parse_head
        from stau_rl.heads.base import MASS
        from stau_rl.plugin.load import load_plugins
        from stau_rl.terminal.console import wide_console

        load_plugins(self.plugin)
        if self.head and self.scores is None:
            raise ValueError("--head needs --scores, the scores whose weights to show")
        table, width = Table(), 156
        refused: list[str] = []
        if self.scores is None:
            for column in ("head", "f(s), weights are f(s) / sum f(s)", "mass", "sharpened by", "source"):
                table.add_column(column, overflow="fold", no_wrap=column == "head")
            for member in HEADS.values():
                kind = MASS[member.mass_kind]
                table.add_row(str(member()), member.formula, kind, member.sharpness or "-", member.source)
        else:
            scores = parse_scores(self.scores)
            width = 62 + 12 * len(scores)
            for column in ("head", *(f"{value:g}" for value in scores.tolist()), "mass", "entropy"):
                table.add_column(column, justify="left" if column == "head" else "right")
            heads: list[Head] = [parse_head(text) for text in self.head] or [member() for member in HEADS.values()]
            for head in heads:
                try:
                    weights, mass = head.weights_and_mass(scores)
                except ValueError as error:
                    table.add_row(str(head), *("-" for _ in (*scores, None)))
                    refused.append(str(error) if str(head) in str(error) else f"{head}: {error}")
                    continue
                entropy = float(-(weights * weights.clamp(min=1e-300).log()).sum())
                # Only weights that sum to 1 have an entropy.
                last = f"{entropy + 0.0:.4g}" if head.mass_kind == "simplex" else "-"
                table.add_row(str(head), *(f"{value:.4g}" for value in [*weights.tolist(), mass.item()]), last)
        console = wide_console(width)
        console.print(table)
        for line in refused:
            console.print(line, highlight=False, markup=False, soft_wrap=True)


@dataclass(frozen=True)
class Calibrate:
    """At which tau is s^tau closest to softmax on some scores?

    It prints the exponent of the closed form and that of least divergence, and the divergence each leaves.

    Example: stau-rl calibrate --scores "0.3,-1.2,2.0,0"
    """

    scores: str
    """Scores, separated by commas. Write --scores=-1,2 if the first is negative."""
    eps: float = 1e-8
    """Floor of the map softplus(s) + eps."""

    after_stop = ""

    def run(self) -> None:
        """Print both tau* and the divergence each leaves."""
        from rich.table import Table

        from stau_rl.calibration import tau_star
        from stau_rl.terminal.console import wide_console

        scores = parse_scores(self.scores)
        if len(scores.unique()) < 2:
            raise ValueError(f"--scores must hold two that differ, or any tau fits, got {self.scores!r}; add one")
        found = tau_star(scores, eps=self.eps)
        if found.newton.isnan():
            raise ValueError(
                f"--scores: softplus(s) + eps is the same number for all of {self.scores!r} at --eps {self.eps:g}, so "
                "any tau fits; give scores farther apart, or nearer to 0"
            )
        table = Table(title="s^tau closest to softmax(beta=1)", title_justify="left")
        for column in ("tau*", "value", "KL(softmax || s^tau), nats"):
            table.add_column(column, justify="left" if column == "tau*" else "right")
        table.add_row(
            "closed form Cov(s, log phi) / Var(log phi)",
            f"{float(found.closed_form):.6g}",
            f"{float(found.kl_closed_form):.4g}",
        )
        table.add_row("least divergence (Newton)", f"{float(found.newton):.6g}", f"{float(found.kl_newton):.4g}")
        wide_console().print(table)


def parse_scores(text: str) -> "Tensor":
    """Read comma-separated finite numbers as a float64 tensor; a ValueError names the one that is not."""
    import torch

    values = []
    for part in text.strip().strip("[]").split(","):
        try:
            value = float(part)
        except ValueError:
            raise ValueError(f"--scores must be numbers separated by commas, got {part.strip()!r}") from None
        if not math.isfinite(value):
            raise ValueError(f"--scores must be finite, got {part.strip()!r}")
        values.append(value)
    return torch.tensor(values, dtype=torch.float64)
