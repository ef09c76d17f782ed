"""What an attention head did with its rows: dead rows, mass, sinks, sizes."""

import torch
from torch import Tensor

from stau_rl.agents.attention.attention import Attended

DEAD = 1e-6


@torch.no_grad()
def monitor(attended: Attended) -> dict[str, Tensor]:
    """Monitors of one layer, a value per model and head.

    Args:
        attended: with tensors [models, batch, heads, queries, keys].

    Returns:
        `dead_row_share`: share of the rows with a key whose mass is below 1e-6; `row_mass`: their mean mass;
        `sink_mass`: their mean weight on the first key; `largest_score`. Each [models, heads]; NaN where no row of
        a model has a key.
    """
    mask = attended.mask.expand(attended.scores.shape)
    alive = mask.any(-1)
    rows = alive.sum((1, 3)).to(attended.mass.dtype)

    def mean(values: Tensor) -> Tensor:
        return torch.where(alive, values, 0.0).sum((1, 3)) / rows

    largest = torch.where(mask, attended.scores, -torch.inf).amax((1, 3, 4))
    return {
        "dead_row_share": mean((attended.mass < DEAD).to(attended.mass.dtype)),
        "row_mass": mean(attended.mass),
        "sink_mass": mean(attended.weights[..., 0]),
        "largest_score": torch.where(rows > 0, largest, torch.nan),
    }
