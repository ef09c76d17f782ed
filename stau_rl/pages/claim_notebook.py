"""The notebook that reads the claim's rows: written as a file of its own format, without outputs."""

import json
from collections.abc import Sequence

CELLS = (
    (
        "markdown",
        '# "s^tau has 35 % less regret than softmax"\n\n'
        "The rows behind [docs/claim.md](../docs/claim.md), as data. `python -m stau_rl.pages.claim` writes this "
        "notebook and the page; `--rerun` plays the study again.",
    ),
    (
        "code",
        "%matplotlib inline\n"
        "from stau_rl.pages.claim_data import ClaimData\n"
        "from stau_rl.pages.claim_figures import draw_comparisons, draw_curves, draw_differences\n"
        "from stau_rl.pages.claim_text import tables\n"
        "from stau_rl.pages.claim_verdict import verdict\n"
        "\n"
        "data = ClaimData.load()\n"
        'print("\\n\\n".join(verdict(data)))',
    ),
    (
        "markdown",
        "## As stated, equally sharp, and each at its best\n\nPercent of softmax's regret, T = 10 000, K = 10.",
    ),
    ("code", "tables(data)"),
    ("code", "draw_comparisons(data)"),
    ("markdown", "## Regret over the parameter\n\nBands are made for a whole curve at once."),
    ("code", "draw_curves(data)"),
    ("markdown", "## Where s^tau really differs\n\nAn offset of the scores, and the scale of the rewards."),
    ("code", "draw_differences(data)"),
    (
        "markdown",
        "## Every tuned comparison\n\nWith Holm's adjustment over all settings, and how often s^tau had less regret on "
        "one instance.",
    ),
    (
        "code",
        'tuned = data.comparisons.query("comparison == \'tuned\' and percent.notna()", engine="python")\n'
        'shown = ["value", "policy", "baseline", "percent", "percent_low", "percent_high", "p_holm", "improvement"]\n'
        "tuned[shown].round(2)",
    ),
)  # fmt: skip


def notebook(sources: Sequence[tuple[str, str]] = CELLS) -> str:
    """A notebook of cells (kind, source) as text, by default the claim's; the same text whatever the data."""
    cells = []
    for number, (kind, source) in enumerate(sources):
        cell: dict[str, object] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell | {"source": source.splitlines(keepends=True)})
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    body = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"
