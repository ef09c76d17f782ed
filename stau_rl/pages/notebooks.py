"""The notebooks beside the pages: their cells, and how they become files."""

import json
from collections.abc import Sequence

CLAIM = (
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
        "## Equally sharp, and each at its best\n\nPercent of softmax's regret, T = 10 000, K = 10.",
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

ATTENTION = (
    (
        "markdown",
        "# Recall and silence of attention heads\n\n"
        "Small heads, trained here in a minute or two, asked two questions: do you find the right slot, and are you "
        "silent where there is none? [docs/attention.md](../docs/attention.md) has the full study. "
        "`python -m stau_rl.pages.attention` writes this notebook and the page.",
    ),
    (
        "code",
        "%matplotlib inline\n"
        "import torch\n"
        "\n"
        "from stau_rl.envs.tasks import parse_task\n"
        "\n"
        'task = parse_task("silence")\n'
        "items = task.items(seed=0, index=torch.arange(3))\n"
        'print(task.kinds, "chance", task.chance)\n'
        "items.tokens, items.slot.flatten(), items.target.flatten()",
    ),
    (
        "markdown",
        "## Train\n\nThree seeds of each head, side by side. Few steps and few test items, so that this is quick: "
        "without `steps` and `items` it is what `stau-rl probe --size small` does; `full` has the full recipe.",
    ),
    (
        "code",
        "import stau_rl\n"
        "\n"
        'heads = ["sm_fir", "softmax_off_by_one_fir", "pn_fir_c", "pn_fir_tau"]\n'
        'result = stau_rl.run_probe("silence", heads, seeds=3, steps=300, items=512)\n'
        'table = result.summary().pivot(index="normaliser", columns="metric", values="median").loc[heads]\n'
        'table[["decoded", "recall", "mass_answerable", "mass_unanswerable", "auroc", "false_refusal"]].round(3)',
    ),
    ("markdown", "## How much mass, with and without an answer"),
    ("code", 'result.plot("masses")'),
    ("code", 'result.plot("maps")'),
    ("markdown", "## Over seeds\n\nMedian, worst seed, and the 95 % interval of the mean."),
    ("code", "result.summary().query(\"metric == 'mass_unanswerable'\").round(3)"),
    (
        "markdown",
        "## The full study's rows\n\nWhat was expected of the recipe, and length: which claims come out.",
    ),
    (
        "code",
        "import pandas as pd\n"
        "\n"
        "from stau_rl.pages.attention_claims import expected_rows, length_sentences\n"
        "from stau_rl.pages.attention_data import AttentionData\n"
        "\n"
        "data = AttentionData.load()\n"
        'print("\\n\\n".join(length_sentences(data)))\n'
        'pd.DataFrame(expected_rows(data), columns=["task", "head", "metric", "expected", "measured", "comes out"])',
    ),
)  # fmt: skip

RL = (
    (
        "markdown",
        "# Heads in reinforcement learning\n\n"
        "The rows behind [docs/rl.md](../docs/rl.md), as data. `python -m stau_rl.pages.rl` writes this notebook and "
        "the page.",
    ),
    (
        "code",
        "%matplotlib inline\n"
        "from stau_rl.pages.paths import RESULTS\n"
        "from stau_rl.pages.rl_figures import draw_curves, draw_profiles\n"
        "from stau_rl.rl_study.results import RLResults, rounded, summary\n"
        "\n"
        "results = RLResults.load(RESULTS)\n"
        "rounded(summary(results))",
    ),
    ("markdown", "## Learning curves\n\nMedian over seeds, and the middle half."),
    ("code", "draw_curves(results)"),
    ("markdown", "## Performance profiles\n\nShare of runs above each normalised score, over all tasks."),
    ("code", "draw_profiles(results)"),
)  # fmt: skip


ROWS = {
    "claim_35_percent": ("claim_*.csv",),
    "recall_and_silence": ("attention_*.csv", "tau_star.csv"),
    "rl": ("rl_*.csv",),
}
"""The committed files of rows that a notebook shows."""


def notebook(sources: Sequence[tuple[str, str]]) -> str:
    """A notebook of cells (kind, source) as text, without outputs; the same text whatever the data."""
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
