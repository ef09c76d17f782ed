"""The notebook on recall and silence: written as a file of its own format, without outputs."""

from stau_rl.pages.claim_notebook import notebook as cells_to_notebook

CELLS = (
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
        "without the two `replace` lines it is what `--size small` does; `full` has the full recipe.",
    ),
    (
        "code",
        "from dataclasses import replace\n"
        "\n"
        "from stau_rl.probe.choose import chosen\n"
        "from stau_rl.probe.run import run_probe\n"
        "from stau_rl.probe.summary import summary\n"
        "\n"
        'heads = ("sm_fir", "softmax_off_by_one_fir", "pn_fir_c", "pn_fir_tau")\n'
        '(setting,) = chosen("small", ("silence",), heads, seeds=3)\n'
        "setting = replace(setting, recipe=replace(setting.recipe, steps=300))\n"
        "setting = replace(setting, items=512)\n"
        "rows, maps = run_probe([setting])\n"
        'table = summary(rows).pivot(index="normaliser", columns="metric", values="median").loc[list(heads)]\n'
        'table[["decoded", "recall", "mass_answerable", "mass_unanswerable", "auroc", "false_refusal"]].round(3)',
    ),
    ("markdown", "## How much mass, with and without an answer"),
    (
        "code",
        "from stau_rl.probe.plot import draw_maps, draw_masses\n\ndraw_masses(maps, setting.task)",
    ),
    ("code", "draw_maps(maps, setting.task)"),
    ("markdown", "## Over seeds\n\nMedian, worst seed, and the 95 % interval of the mean."),
    ("code", "summary(rows).query(\"metric == 'mass_unanswerable'\").round(3)"),
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


def notebook() -> str:
    """The notebook as text; the same text whatever the data."""
    return cells_to_notebook(CELLS)
