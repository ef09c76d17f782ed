"""Learning curves: loss and share of right answers of every model, on the items of some steps, before they are learned.

Every step has fresh items, so both are those of items that a model has not seen.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

POINTS = 100
"""At most about so many steps of a training are looked at."""
COLUMNS = ("part", "task", "normaliser", "seed", "step", "loss", "right")


class Curves:
    """Keeps what is looked at while models train.

    Args:
        models: how many there are.
        steps: steps of the training.
    """

    def __init__(self, models: int, steps: int) -> None:
        self._models, self._last, self._every = models, steps - 1, -(-steps // POINTS)
        self._steps: list[int] = []
        self._loss: list[Tensor] = []
        self._right: list[Tensor] = []

    @torch.no_grad()
    def __call__(self, step: int, logits: Tensor, target: Tensor) -> None:
        """Look at a step, if it is one of those.

        Args:
            step: its number, 0, 1, ...
            logits: [models, items, queries, vocabulary].
            target: right answers, [models, items, queries].
        """
        if step % self._every and step != self._last:
            return
        loss = cross_entropy(logits.detach().flatten(0, 2), target.flatten(), reduction="none")
        self._steps.append(step)
        self._loss.append(loss.view(self._models, -1).mean(1))
        self._right.append((logits.argmax(-1) == target).float().mean((1, 2)))

    def arrays(self, seeds: Sequence[int]) -> dict[str, NDArray[Any]]:
        """`curve_steps`, `curve_seeds`; `curve_loss` and `curve_right`, float32 [normalisers, seeds, steps]."""
        found: dict[str, NDArray[Any]] = {"curve_steps": np.array(self._steps), "curve_seeds": np.array(seeds)}
        for name, parts in (("loss", self._loss), ("right", self._right)):
            values = torch.stack(parts, 1).cpu().numpy()
            found[f"curve_{name}"] = values.reshape(-1, len(seeds), len(self._steps))
        return found


def curve_table(maps: Sequence[dict[str, NDArray[Any]]]) -> pd.DataFrame:
    """Curves of groups as rows, in their order; a group that was trained before curves were kept has none.

    Returns:
        Columns `part, task, normaliser, seed, step, loss, right`: mean cross-entropy in nats and share of right answers
        on the items of that step, 0 for the first, of a model that has taken as many steps.
    """
    found = []
    for group in maps:
        if "curve_steps" not in group:
            continue
        steps, seeds = group["curve_steps"], group["curve_seeds"]
        part, task = map(str, group["setting"])
        for which, normaliser in enumerate(group["normalisers"]):
            for number, seed in enumerate(seeds):
                own = {"part": part, "task": task, "normaliser": str(normaliser), "seed": int(seed), "step": steps}
                values = {name: group[f"curve_{name}"][which, number] for name in ("loss", "right")}
                found.append(pd.DataFrame(own | values))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=list(COLUMNS))
