"""tau* on the attention heads of small trained transformers: `python -m stau_rl.pages.tau_star` makes the rows anew.

Three transformers of two layers and four heads learn associative recall; the scores of their 24 heads are captured.
For each head the closed-form tau* and the one of least KL(softmax || s^tau), found by a grid that is refined, leave a
divergence between softmax's weights and those of s^tau.
"""

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from stau_rl.agents.attention.attention_model import AttentionModels, ModelSettings
from stau_rl.agents.attention.attention_spec import parse_attention
from stau_rl.calibration.score_analysis import analyse
from stau_rl.files.finished import write_table
from stau_rl.heads import STau
from stau_rl.machine.threads import one_torch_thread
from stau_rl.pages.attention_data import TAUS
from stau_rl.pages.paths import RESULTS

SEEDS, STEPS, BATCH, CAPTURED = (0, 1, 2), 250, 64, 20
HIGHEST, POINTS, ROUNDS = 12.0, 23, 4
"""The grid of tau: from 1 to the first, so many points, refined around the best so often."""


def recall_batch(generator: torch.Generator, samples: int) -> tuple[Tensor, Tensor]:
    """Four pairs of 8 keys and 8 values, a query key last; the value that follows it is the answer.

    Returns:
        Tokens, int64 [samples, 9], and answers, int64 [samples].
    """
    keys = torch.rand(samples, 8, generator=generator).argsort(1)[:, :4]
    values = 8 + torch.randint(8, (samples, 4), generator=generator)
    asked = torch.randint(4, (samples, 1), generator=generator)
    tokens = torch.cat([torch.stack([keys, values], 2).flatten(1), keys.gather(1, asked)], 1)
    return tokens, values.gather(1, asked)[:, 0]


def trained_scores() -> tuple[Tensor, Tensor, float]:
    """Train the transformers and capture scores.

    Returns:
        Scores [layers, models x heads, queries, keys], their causal mask [queries, keys], and the last training loss.
    """
    shape = ModelSettings(vocabulary=16, length=9, dim=32, heads=4, layers=2, mlp=2)
    models = AttentionModels(shape, [parse_attention("softmax")] * len(SEEDS), SEEDS)
    optimiser = torch.optim.Adam(models.parameters(), lr=3e-3)
    generator, last = torch.Generator().manual_seed(0), torch.tensor([8])
    with one_torch_thread():
        for _ in range(STEPS):
            tokens, answers = recall_batch(generator, BATCH)
            logits, _ = models(tokens, last)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 2), answers.repeat(len(SEEDS)))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    _, layers = models(recall_batch(generator, CAPTURED)[0])
    scores = torch.stack([attended.scores.detach().transpose(1, 2).flatten(2, 3).flatten(0, 1) for attended in layers])
    return scores, layers[0].mask[0, 0, 0].repeat(CAPTURED, 1), loss.item()


def grid_search(scores: Tensor, mask: Tensor) -> tuple[float, float]:
    """The tau of least mean KL(softmax || s^tau) on the grid, and that KL in nats.

    Args:
        scores: [queries, keys] of one head.
        mask: boolean, of that shape.
    """
    scores, many = scores.double(), mask.sum(-1) > 0
    scores, mask = scores[many], mask[many]
    log_p = scores.masked_fill(~mask, -torch.inf).log_softmax(-1)

    def divergence(tau: float) -> float:
        gap = torch.where(mask, log_p - STau(tau).log_weights(scores, mask=mask), 0.0)
        return float((log_p.exp() * gap).sum(-1).mean())

    low, high = 1.0, HIGHEST
    for _ in range(ROUNDS):
        grid = np.linspace(low, high, POINTS)
        best = float(min(grid, key=divergence))
        low, high = max(1.0, best - grid[1] + grid[0]), best + grid[1] - grid[0]
    return best, divergence(best)


def study(scores: Tensor, mask: Tensor) -> pd.DataFrame:
    """A row per head: layer, head, tau and KL of the closed form, of Newton's method and of the grid."""
    table = analyse(scores, mask)
    rows = table[table["weights"] == "s_tau_closed"][["layer", "head", "tau", "kl"]].reset_index(drop=True)
    newton = table[table["weights"] == "s_tau_kl"].reset_index(drop=True)
    rows = rows.rename(columns={"tau": "tau_closed", "kl": "kl_closed"})
    rows["tau_newton"], rows["kl_newton"] = newton["tau"], newton["kl"]
    heads = [(int(layer), int(head)) for layer, head in zip(newton["layer"], newton["head"], strict=True)]
    searched = [grid_search(scores[place], mask) for place in heads]
    rows["tau_grid"], rows["kl_grid"] = zip(*searched, strict=True)
    return rows


def sentence(rows: pd.DataFrame) -> str:
    """What the rows say."""
    correlation = float(np.corrcoef(rows["tau_closed"], rows["tau_grid"])[0, 1])
    closed, grid = rows["kl_closed"], rows["kl_grid"]
    return (
        f"On the scores of {len(rows)} heads of small trained transformers, the closed-form tau* and the one of least "
        f"KL(softmax || s^tau), found on a grid, correlate with {correlation:.3f}: the closed form weighs all keys "
        f"alike, the divergence the likely ones. The median KL left is {closed.median():.4f} nats with the closed form "
        f"(at most {closed.max():.4f}) and {grid.median():.4f} with the searched one (at most {grid.max():.4f})."
    )


def main() -> None:
    """Make the rows and print what they say."""
    scores, mask, _ = trained_scores()
    rows = study(scores, mask)
    write_table(RESULTS / TAUS, rows.round(6))
    print(sentence(rows))
    print(f"{RESULTS / TAUS} written")


if __name__ == "__main__":
    main()
