"""`stau-rl analyse`: scores captured from anyone's attention."""

import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stau_rl.cli.options import OptionalNumber, OptionalPath, OptionalText, PositionalPath

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

WIDTH = 156


@dataclass(frozen=True)
class Analyse:
    """What would s^tau do to the attention of a model that you have?

    It prints tau* of each attention head, and its weights before and after.

    The file holds scores before softmax, [layers, heads, queries, keys], and perhaps a boolean array `mask` that
    broadcasts against them (True: the entry counts): numpy.savez("scores.npz", scores=scores).

    Example: stau-rl analyse scores.npz --causal
    """

    file: PositionalPath
    """The .npz file."""
    key: OptionalText = None
    """Name of the array of scores. Default: scores, or the only one."""
    causal: bool = False
    """A query may look at no later key."""
    eps: float = 1e-8
    """Floor of the map softplus(s) + eps."""
    masked_below: OptionalNumber = None
    """Leave out scores lower than this, where a mask was written as a large negative number: -1000 fits all such."""
    out: OptionalPath = None
    """Write the table as CSV, with a row per head and kind of weights, to this file."""

    after_stop = ""

    def run(self) -> None:
        """Print the table, and write it if asked to."""
        from stau_rl.calibration.score_analysis import analyse, read_scores
        from stau_rl.files.whole import whole_file
        from stau_rl.terminal.console import wide_console
        from stau_rl.terminal.progress import progress_bar

        if self.out is not None and not self.out.parent.is_dir():
            raise ValueError(f"--out: there is no folder {self.out.parent}")
        if self.out is not None and self.out.is_dir():
            raise ValueError(f"--out: {self.out} is a folder; name a file, such as {self.out / 'analysis.csv'}")
        if self.out is not None and self.out.exists() and self.file.exists() and self.out.samefile(self.file):
            raise ValueError(f"--out: {self.out} is the file of the scores, which would be lost; name another")
        scores, mask = read_scores(self.file, self.key)
        with warnings.catch_warnings(record=True) as caught, progress_bar(1) as report:
            warnings.simplefilter("always", UserWarning)
            table = analyse(
                scores, mask, causal=self.causal, eps=self.eps, masked_below=self.masked_below, report=report
            )
        for warning in caught:
            print(f"warning: {warning.message}", file=sys.stderr)
        wide_console(WIDTH).print(render(table))
        print("softmax -> s^tau at the tau* of least KL(softmax || s^tau), in nats.")
        if self.out is not None:
            with whole_file(self.out) as temporary:
                table.to_csv(temporary, index=False)
            print(f"wrote {self.out}")


def render(table: "pd.DataFrame") -> "Table":
    """A row per head: tau* of both kinds with the KL each leaves; the weights of softmax -> s^tau."""
    from rich.table import Table

    shown = Table(title="Attention scores: softmax against s^tau at tau*", title_justify="left")
    columns = ("layer", "head", "tau* closed (KL)", "tau* KL (KL)", "entropy", "below 1e-6", "top-10 mass", "sink rate")
    for column in (*columns, "mean weight"):
        shown.add_column(column, justify="right")
    for (layer, head), rows in table.groupby(["layer", "head"], sort=False):
        kind = rows.set_index("weights")
        taus = [f"{kind.tau[name]:.4g} ({kind.kl[name]:.3g})" for name in ("s_tau_closed", "s_tau_kl")]
        moves = [
            f"{kind[name]['softmax']:.3g} -> {kind[name]['s_tau_kl']:.3g}"
            for name in ("entropy", "sparsity", "top10_mass", "sink_rate", "mean_weight")
        ]
        shown.add_row(str(layer), str(head), *taus, *moves)
    return shown
