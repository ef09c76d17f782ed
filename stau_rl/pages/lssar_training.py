"""`python -m stau_rl.pages.lssar_training` writes notebooks/results/lssar_training.csv: why LSSAR is low at p = 15.

A small study on one core: is a large power unable to answer, or hard to train? Models are trained on the pass key with
one head and asked with the same or another; `zero` is the share of answers whose place has weight 0 before any step.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import torch

from stau_rl.agents.attention.attention_spec import parse_attention
from stau_rl.envs.tasks import parse_task
from stau_rl.files.finished import write_table
from stau_rl.machine.stamp import current_commit, device_name
from stau_rl.machine.threads import one_torch_thread
from stau_rl.pages.paths import RESULTS
from stau_rl.probe.metrics import evaluate
from stau_rl.probe.model import ProbeModels, Shape
from stau_rl.probe.train import EVALUATION, Recipe, items, train

FILE = "lssar_training.csv"
TASK, ITEMS, SEEDS = "passkey", 2048, (6000, 6001, 6002)
"""Seeds of no other study."""
POWERS, STEPS, LONG = (1, 2, 3, 5, 8, 15), 1000, 4000
NO_OFFSET = "attention(head=s_tau(tau=15), scores=cosine)"
"""Re-weighting with O = 0: (A n)^p, normalised, is the softplus to the p."""
MOST = f"lssar(p={POWERS[-1]})"
TRAINED = {
    **{f"lssar(p={p})": STEPS for p in POWERS},
    NO_OFFSET: STEPS,
    "lssa": STEPS,
}


def training_rows(steps: int = STEPS, long: int = LONG, seeds: tuple[int, ...] = SEEDS) -> Iterator[dict[str, object]]:
    """Train every head, ask it as itself and as LSSAR at the largest power; the largest power again for longer.

    Args:
        steps: of training.
        long: of the longer training.
        seeds: the seeds.

    Yields:
        A row per head trained, head asked and seed.
    """
    for text, count in [*((text, steps) for text in TRAINED), (MOST, long)]:
        models, zero = _trained(text, count, seeds)
        for asked in dict.fromkeys((text, MOST)):
            decoded = _asked(models, asked)
            for place, seed in enumerate(seeds):
                numbers = {"decoded": decoded[place], "zero": zero[place]}
                yield {"trained": text, "asked": asked, "steps": count, "seed": seed} | numbers


def _trained(text: str, steps: int, seeds: tuple[int, ...]) -> tuple[ProbeModels, list[float]]:
    """Trained models and, of each, the share of answers at weight 0 before the first step."""
    shape = Shape(positions="none")
    models = ProbeModels(parse_task(TASK), [parse_attention(text)], seeds, shape, torch.device("cpu"))
    batch = items(models, models.task, EVALUATION, ITEMS)
    with torch.no_grad():
        _, seen = models.forward(batch)
        weights = seen.weights[:, :, 0].gather(-1, batch.slot)[..., 0]
    train(models, Recipe(steps, warm_up=min(100, steps)))
    return models, (weights == 0).double().mean(1).tolist()


def _asked(models: ProbeModels, text: str) -> list[float]:
    """Share of right answers of models with another head on their weights."""
    spec = parse_attention(text)
    other = ProbeModels(models.task, [spec], models.seeds, Shape(positions="none"), models.device)
    if spec == models.specs[0]:
        other = models
    else:
        other.models.weights.load_state_dict(models.models.weights.state_dict())
    decoded: list[float] = evaluate(other, models.task, ITEMS)[0]["decoded"].tolist()
    return decoded


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(prog="python -m stau_rl.pages.lssar_training", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the table is written")
    folder = parser.parse_args().results
    # Of the code as it was loaded.
    started, commit = time.perf_counter(), current_commit()
    with one_torch_thread():
        rows = pd.DataFrame(training_rows())
    stamp = {"device": device_name("cpu"), "versions": f"torch={torch.__version__.split('+')[0]}"}
    rows = rows.assign(commit=commit, **stamp)
    rows["seconds"] = round(time.perf_counter() - started)
    write_table(folder / FILE, rows, 5)


if __name__ == "__main__":
    main()
