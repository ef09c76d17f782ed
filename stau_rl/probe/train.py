"""Training of probe models: the recipe, all models of a call side by side.

Adam(0.9, 0.99), no weight decay, learning rate warmed up linearly and then taken to 0 along a cosine; fresh items at
every step, the same for all normalisers of a seed. The loss is the mean cross-entropy of the answers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from stau_rl.agents.attention.attention import DEAD
from stau_rl.envs.tasks.task import Batch, Task
from stau_rl.probe.model import ProbeModels

# Items from here on are for evaluation; training never gets there.
EVALUATION = 1 << 40
# Steps between two looks at the models, which a GPU has to be waited for.
LOOK = 50


@dataclass(frozen=True, slots=True)
class Recipe:
    """How models are trained.

    Attributes:
        steps: optimiser steps.
        batch: items per step and model.
        rate: peak learning rate.
        warm_up: steps to the peak.

    Raises:
        ValueError: a number is out of its range.
    """

    steps: int = 1000
    batch: int = 128
    rate: float = 2e-3
    warm_up: int = 100

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, least in (("steps", 1), ("batch", 1), ("warm_up", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 < self.rate < math.inf:
            raise ValueError(f"rate must be finite and > 0, got {self.rate}")

    def rate_at(self, step: int) -> float:
        """Learning rate of step 0, 1, ..., steps - 1."""
        if step < self.warm_up:
            return self.rate * (step + 1) / self.warm_up
        return self.rate * 0.5 * (1 + math.cos(math.pi * (step - self.warm_up) / max(1, self.steps - self.warm_up)))


def train(
    models: ProbeModels,
    recipe: Recipe,
    report: Callable[[int], None] | None = None,
    watch: Callable[[int, Tensor, Tensor], None] | None = None,
) -> Tensor:
    """Train models in place.

    Args:
        models: the models.
        recipe: how.
        report: called with the number of finished steps, now and then.
        watch: called in every step with its number, the logits [models, items, queries, vocabulary] before it and the
            right answers [models, items, queries].

    Returns:
        Dead-row share of the first batch, before any step and after calibration: [models].

    Raises:
        ValueError: the logits of a model are not finite; looked at now and then.
    """
    models.calibrate(items(models, models.task, 0, recipe.batch))
    optimiser = torch.optim.Adam(models.trained(), lr=recipe.rate, betas=(0.9, 0.99), fused=True)
    dead = torch.zeros(len(models.specs) * len(models.seeds), device=models.device)
    for step in range(recipe.steps):
        batch = items(models, models.task, step * recipe.batch, recipe.batch)
        logits, seen = models.forward(batch)
        if step == 0:
            dead = (seen.mass.detach() < DEAD).float().mean((1, 2))
        target = batch.target.repeat(len(models.specs), 1, 1)
        if watch is not None:
            watch(step, logits, target)
        # A sum over models of means over items: no model's gradient depends on how many others there are.
        loss = cross_entropy(logits.flatten(0, 2), target.flatten(), reduction="sum") / target[0].numel()
        optimiser.param_groups[0]["lr"] = recipe.rate_at(step)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        if step % LOOK == LOOK - 1 or step == recipe.steps - 1:
            require_finite_logits(models, logits, f"in step {step + 1} of {recipe.steps} at rate {recipe.rate:g}")
            if report is not None:
                report(step + 1)
    return dead


def require_finite_logits(models: ProbeModels, logits: Tensor, when: str) -> None:
    """Raise a ValueError that names the first model whose logits [models, ...] are not all finite."""
    good = logits.detach().isfinite().flatten(1).all(1)
    if not bool(good.all()):
        which, seed = divmod(int(good.int().argmin()), len(models.seeds))
        raise ValueError(
            f"the logits of {models.specs[which]}, seed {models.seeds[seed]}, are not finite {when}; a smaller rate or "
            "another head may help"
        )


def items(models: ProbeModels, task: Task, first: int, count: int) -> Batch:
    """Items first, ..., first + count - 1 of a task, for every seed of the models: [seeds, count, ...]."""
    index = torch.arange(first, first + count, device=models.device).expand(len(models.seeds), -1)
    return task.items(models.seed_column, index)
