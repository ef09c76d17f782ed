"""`stau-rl analyse`: scores captured from anyone's attention."""

import math
import re
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stau_rl.cli.options import (
    OptionalCount,
    OptionalNumber,
    OptionalPath,
    OptionalText,
    Paths,
    PositionalPath,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

WIDTH = 156
NAMES = {"entropy": "entropy", "sparsity": "below 1e-6", "top10_mass": "top-10 mass", "sink_rate": "sink rate"}
"""Titles of columns of the table."""


@dataclass(frozen=True)
class Analyse:
    """What would s^tau, or any head, do to the attention of a model that you have?

    It prints tau* of each attention head, and its weights before and after; with --against the same for any other head.

    The file holds scores before softmax, [layers, heads, queries, keys], [heads, queries, keys] or [queries, keys]: an
    array in an .npy file, of which no more than a little is in memory at a time, or one of several in .npz, .pt or
    .safetensors, perhaps with a boolean array `mask` that broadcasts against it (True: the entry counts).

    Example: stau-rl analyse scores.npy --causal --rows 256
    """

    file: PositionalPath
    """The file: .npy, .npz, .pt (tensors alone, no code is run) or .safetensors."""
    key: OptionalText = None
    """Name of the array of scores in a file of several. Default: scores, or the only one."""
    causal: bool = False
    """A query may look at no later key."""
    head: str = "softmax"
    """The head that the model has, such as "softmax(beta=2)"; others than softmax need --against."""
    against: OptionalText = None
    """The head that would replace it, such as sparsemax or "power_norm(p=4)". Default: s^tau at tau*."""
    rows: OptionalCount = None
    """Draw so many queries of each head, and print the 95 % interval that this leaves. Default: all."""
    seed: int = 0
    """Of that draw."""
    pooled: bool = False
    """End with all heads as one, of one tau; a file of [heads, queries, keys] always does."""
    eps: float = 1e-8
    """Floor of the map softplus(s) + eps."""
    masked_below: OptionalNumber = None
    """Leave out scores lower than this, where a mask was written as a large negative number: -1000 fits all such."""
    plugin: Paths = ()
    """A Python file that registers heads of your own; repeat it."""
    out: OptionalPath = None
    """Write the table as CSV, with a row per head and kind of weights, to this file."""

    after_stop = ""

    def run(self) -> None:
        """Print the table, and write it if asked to."""
        from stau_rl.calibration.score_analysis import analyse
        from stau_rl.calibration.score_files import open_scores
        from stau_rl.files.whole import whole_file
        from stau_rl.plugin.load import load_plugins
        from stau_rl.terminal.console import wide_console
        from stau_rl.terminal.progress import progress_bar

        if self.out is not None and not self.out.parent.is_dir():
            raise ValueError(f"--out: there is no folder {self.out.parent}")
        if self.out is not None and self.out.is_dir():
            raise ValueError(f"--out: {self.out} is a folder; name a file, such as {self.out / 'analysis.csv'}")
        if self.out is not None and self.out.exists() and self.file.exists() and self.out.samefile(self.file):
            raise ValueError(f"--out: {self.out} is the file of the scores, which would be lost; name another")
        load_plugins(self.plugin)
        scores, mask = open_scores(self.file, self.key)
        with warnings.catch_warnings(record=True) as caught, progress_bar(1) as report:
            warnings.simplefilter("always", UserWarning)
            table = analyse(
                scores,
                mask,
                causal=self.causal,
                eps=self.eps,
                masked_below=self.masked_below,
                report=report,
                head=self.head,
                against=self.against,
                rows=self.rows,
                seed=self.seed,
                pooled=self.pooled or scores.ndim == 3,
            )
        for warning in caught:
            print(f"warning: {warning.message}", file=sys.stderr)
        console = wide_console(WIDTH)
        if self.against is None:
            console.print(render(table))
            print("softmax -> s^tau at the tau* of least KL(softmax || s^tau), in nats.")
        else:
            console.print(render_pair(table))
            print("KL from the first head of each group, in nats, and distance are of shares: weights over their sum.")
        if self.rows is not None:
            print(
                f"{self.rows} rows of each head, or all that it has; brackets: 95 % intervals that their draw leaves."
            )
        if self.out is not None:
            with whole_file(self.out) as temporary:
                table.to_csv(temporary, index=False)
            print(f"wrote {self.out}")


def render(table: "pd.DataFrame") -> "Table":
    """A row per head: tau* of both kinds with the KL each leaves; the weights of softmax -> s^tau.

    Where rows were drawn a row per head and kind of weights, with intervals.
    """
    from rich.table import Table

    title = "Attention scores: softmax against s^tau at tau*"
    if "tau_low" in table:
        return _by_kind(table, title, {"tau": "tau", "kl": "KL"} | NAMES | {"mean_weight": "mean weight"})
    shown = Table(title=title, title_justify="left")
    shown.add_column("layer, head", no_wrap=True)
    columns = ("tau* closed (KL)", "tau* KL (KL)", "entropy", "below 1e-6", "top-10 mass", "sink rate")
    for column in (*columns, "mean weight"):
        shown.add_column(column, justify="right")
    for (layer, head), rows in table.groupby(["layer", "head"], sort=False):
        kind = rows.set_index("weights")
        taus = [f"{kind.tau[name]:.4g} ({kind.kl[name]:.3g})" for name in ("s_tau_closed", "s_tau_kl")]
        moves = [
            f"{kind[name]['softmax']:.3g} -> {kind[name]['s_tau_kl']:.3g}"
            for name in ("entropy", "sparsity", "top10_mass", "sink_rate", "mean_weight")
        ]
        shown.add_row(_place(layer, head), *taus, *moves)
    return shown


def render_pair(table: "pd.DataFrame") -> "Table":
    """A row per head and kind of weights: the head that is there, what replaces it, and that made as sharp."""
    first = {"kl": "KL", "distance": "distance", "mass": "mass", "silent": "silent rows"}
    return _by_kind(table, "Attention scores: a head and another in its place", first | NAMES)


def _by_kind(table: "pd.DataFrame", title: str, names: dict[str, str]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=title, title_justify="left")
    # One column says which row it is, as a narrow terminal repeats the first.
    shown.add_column("layer, head: weights", overflow="fold", min_width=28)
    for column in names.values():
        shown.add_column(column, justify="right")
    for _, rows in table.groupby(["layer", "head"], sort=False):
        place = _place(rows["layer"].iloc[0], rows["head"].iloc[0])
        for row in rows.to_dict("records"):
            # Of a matched parameter four digits will do; as text, for rich would take `[tau]` for markup.
            weights = re.sub(r"\d+\.\d{5,}", lambda found: f"{float(found[0]):.4g}", str(row["weights"]))
            note = ", as sharp" if row.get("role") == "as sharp" else ""
            shown.add_row(Text(f"{place}: {weights}{note}"), *(_number(row, str(name)) for name in names))
        shown.add_section()
    return shown


def _place(layer: object, head: object) -> str:
    """`0, 1`: a layer and a head; one word for all of them."""
    from stau_rl.calibration.score_analysis import ALL

    return ALL if head == ALL else f"{layer}, {head}"


def _number(row: Mapping[Any, Any], name: str) -> str:
    """A number, and below it its interval where rows were drawn."""
    text = f"{row[name]:.4g}" if name == "tau" else f"{row[name]:.3g}"
    ends = [row.get(f"{name}_{end}", math.nan) for end in ("low", "high")]
    return text if not all(map(math.isfinite, ends)) else f"{text}\n[{ends[0]:.3g}, {ends[1]:.3g}]"
