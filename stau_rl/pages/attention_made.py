"""What is asked of attention heads and how the rows of docs/attention.md were made, in words from the rows."""

import pandas as pd

from stau_rl.envs.tasks import parse_task
from stau_rl.pages.attention_data import AttentionData
from stau_rl.probe.metrics import METRICS
from stau_rl.probe.plan import MORE
from stau_rl.probe.summary import GOOD_HIGH


def setup(data: AttentionData) -> list[str]:
    """Tasks, models, training and what a number stands for."""
    first = data.rows[data.rows["part"] == "recall"].iloc[0]
    task = parse_task("recall")
    return [
        "## What is asked",
        "A context holds pairs k v k v ..., then comes a key; the answer is its value. A head finds the right slot if "
        "the place of that value has the largest weight and the row's mass is at least 1/2 (*recall*), and the model "
        "answers right if that value is its most likely token (*decoded*). Where the key is absent, the answer is the "
        "query itself, so a head that adds nothing is right (*silence*); with a NULL label it has to add something.",
        f"Unless said otherwise: {len(task.kinds['keys'])} keys and {len(task.kinds['values'])} values, 8 pairs, the "
        f"query last; width {first['width']}, one layer, one head, no perceptron: x = RMSNorm(embedding + position), "
        f"then "
        "x + attention(x), RMSNorm with a gain, an unembedding of its own. Embedding N(0, 0.5^2), positions "
        f"N(0, 0.02^2), projections N(0, 1/D), output times 0.5, scores q.k / sqrt(D). Adam(0.9, 0.99) without weight "
        f"decay, learning rate {first['rate']:g} after 100 steps of warm-up, then a cosine to 0, {first['steps']} "
        f"steps of {first['batch']} fresh items; {first['items']} test items per seed. A guess is right with "
        f"probability {task.chance:.3f}; a random place is the right slot with {task.slot_chance:.3f}. Values are "
        f"drawn with "
        "replacement. In silence the query is not among its own keys and half of the keys asked for are absent.",
        "Every number is the median of the seeds, with the worst seed in brackets where it differs: the lowest of "
        f"{', '.join(name.replace('_', ' ') for name in METRICS if name in GOOD_HIGH)}; the highest of the others.",
    ]


def made(data: AttentionData) -> list[str]:
    """Models, seeds, devices, commits and metrics of the rows of the first study."""
    rows, timing = data.rows, dict(data.timing.iloc[0])
    models = rows.drop_duplicates(["part", "task", "normaliser", "seed"])
    commits = ", ".join(text[:12] for text in rows["commit"].unique())
    metrics = "; ".join(f"*{name.replace('_', ' ')}*: {meaning}" for name, meaning in METRICS.items())
    where = []
    for number, (place, own) in enumerate(rows.groupby(["device", "versions"], sort=False)):
        which = "" if number == 0 else f"*{', '.join(own['part'].unique())}* "
        where.append(f"{which}{place[0]}, {place[1]}")
    return [
        "## How this was made",
        f"{len(models)} models, seeds {_seeds(rows)}, trained side by side in {timing['seconds']} s of processes that "
        f"share a device: {'; '.join(where)}; commit {commits}. A model of "
        "one seed starts from the same numbers and sees the same items whatever its normaliser. Float sums on a GPU "
        "depend on what is trained together, so numbers repeat to rounding, which training magnifies: the same seeds "
        "on another device are other draws.",
        f"Metrics: {metrics}.",
    ]


def _seeds(rows: pd.DataFrame) -> str:
    """The seeds of most parts, and those of the part with more."""
    most, more = ({*rows.loc[(rows["part"] == MORE) == wanted, "seed"]} for wanted in (False, True))
    text = ", ".join(map(str, sorted(most)))
    return f"{text} (*{MORE}*: {min(more)} to {max(more)})" if more else text
