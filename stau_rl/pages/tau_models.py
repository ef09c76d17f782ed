"""The small models whose scores the pages look at: groups of transformers trained side by side on recall.

All of a group share a shape, a task and a recipe; its heads are softmax, s^tau with a learned tau per attention head,
and s^tau with one learned tau for all of them. A model's start and its items depend on its seed alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from stau_rl.agents.attention.attention import Attended
from stau_rl.agents.attention.attention_model import AttentionModels, ModelSettings
from stau_rl.agents.attention.attention_spec import parse_attention
from stau_rl.envs.tasks import parse_task
from stau_rl.envs.tasks.task import Batch, Task
from stau_rl.probe.train import EVALUATION, Recipe

SOFTMAX, PER_HEAD, SHARED = "softmax", "s_tau per head", "s_tau shared"
SPECS = {SOFTMAX: "softmax", PER_HEAD: "s_tau", SHARED: "s_tau"}
HEADS = 4
ITEMS_AT_ONCE = 64
TAU_RATE = 10.0
"""Times the learning rate of the rest is that of what tau is made of: one number has as far to go as scores have."""


@dataclass(frozen=True, slots=True)
class Group:
    """Models trained together.

    Attributes:
        name: what the rows call it.
        task: text of the task.
        layers: attention layers, of four heads each.
        width: of the residual stream.
        mlp: width of the MLP after each layer, as a multiple of that; 0 for none.
        recipe: how they are trained.
        heads: of `SPECS`, one after the other.
        seeds: of each of them.
        every: steps between two measurements along training; the last step is always one.
    """

    name: str
    task: str
    layers: int
    width: int
    mlp: int
    recipe: Recipe
    heads: tuple[str, ...]
    seeds: tuple[int, ...]
    every: int

    def models(self) -> AttentionModels:
        """The models, untrained; seeds run fastest."""
        task = parse_task(self.task)
        shape = ModelSettings(
            task.vocabulary, task.length, self.width, HEADS, self.layers, self.mlp, own_key=task.attends_itself
        )
        specs = [parse_attention(SPECS[name]) for name in self.heads for _ in self.seeds]
        return AttentionModels(shape, specs, self.seeds * len(self.heads))

    @property
    def names(self) -> list[tuple[str, int]]:
        """Head and seed of each model."""
        return [(name, seed) for name in self.heads for seed in self.seeds]


_SHORT, _LONG = "mqar(places=16, pairs=4, tokens=32)", "mqar(places=32, pairs=4, tokens=64)"
_TWO = (SOFTMAX, PER_HEAD)
GROUPS = (
    Group("main", _LONG, 2, 32, 2, Recipe(500, 32, 5e-3, 50), (SOFTMAX, PER_HEAD, SHARED), tuple(range(8)), 20),
    Group("sharp", _SHORT, 2, 32, 2, Recipe(600, 32, 1e-2, 50), _TWO, tuple(range(6)), 150),
    Group("deep", _SHORT, 4, 32, 2, Recipe(400, 32, 5e-3, 50), _TWO, tuple(range(4)), 100),
    Group("wide", _SHORT, 3, 64, 2, Recipe(400, 32, 1e-2, 50), _TWO, tuple(range(8)), 100),
    Group("steep", _SHORT, 2, 32, 0, Recipe(1000, 32, 3e-2, 50), _TWO, tuple(range(4)), 250),
)
"""`main` is the one whose models are compared at equal loss; the others spread tau*: longer and steeper training, more
layers, more width, and a learning rate at which scores grow large."""


def train(models: AttentionModels, group: Group, watch: Callable[[int], None]) -> None:
    """Train a group's models in place.

    Args:
        models: of `group`.
        group: says how.
        watch: called with the number of finished steps, every `group.every` of them and after the last.
    """
    task, recipe = parse_task(group.task), group.recipe
    trained = {name: part for name, part in models.named_parameters() if part.requires_grad}
    taus = [part for name, part in trained.items() if name.endswith("learned.tau")]
    rest = [part for name, part in trained.items() if not name.endswith("learned.tau")]
    optimiser = torch.optim.Adam([{"params": rest}, {"params": taus}], lr=recipe.rate, betas=(0.9, 0.99))
    tied = [place for place, (name, _) in enumerate(group.names) if name == SHARED]
    for step in range(recipe.steps):
        batch = items(models, task, step * recipe.batch, recipe.batch)
        logits, _ = models(batch.tokens, batch.query, checked=False)
        # A sum over models of means over items: no model's gradient depends on how many others there are.
        loss = cross_entropy(logits.flatten(0, 2), batch.target.flatten(), reduction="sum") / batch.target[0].numel()
        for part, factor in zip(optimiser.param_groups, (1.0, TAU_RATE), strict=True):
            part["lr"] = factor * recipe.rate_at(step)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        tie(models, tied)
        optimiser.step()
        if (step + 1) % group.every == 0 or step + 1 == recipe.steps:
            watch(step + 1)


def tie(models: AttentionModels, which: Sequence[int]) -> None:
    """Give every head of some models the sum of the gradients of their learned tau, so that they stay one number.

    Equal numbers with equal gradients take equal steps under Adam, and the sum is the gradient of the one number.
    """
    found: dict[int, list[Tensor]] = {model: [] for model in which}
    for layer in range(models.settings.layers):
        for group, here in models.groups(layer):
            for model in which:
                if here.start <= model < here.stop:
                    grad = group.learned["tau"].grad
                    assert grad is not None
                    found[model].append(grad[model - here.start])
    for rows in found.values():
        total = torch.stack(rows).sum()
        for row in rows:
            row.fill_(total)


def items(models: AttentionModels, task: Task, first: int, count: int) -> Batch:
    """Items first, ..., first + count - 1 of every model's seed: [models, count, ...]."""
    seeds = torch.tensor(models.seeds)[:, None]
    return task.items(seeds, torch.arange(first, first + count).expand(len(models.seeds), -1))


@dataclass(frozen=True, slots=True)
class Measured:
    """What models do on items that no training sees.

    Attributes:
        loss: mean cross-entropy of the answers, nats, float64 [models].
        accuracy: share of right answers, float64 [models].
    """

    loss: Tensor
    accuracy: Tensor


@torch.no_grad()
def measure(models: AttentionModels, task: Task, count: int, first: int = 0) -> Measured:
    """Loss and accuracy on items `first`, ..., of those kept for evaluation."""
    losses, right = [], []
    for start in range(first, first + count, ITEMS_AT_ONCE):
        batch = items(models, task, EVALUATION + start, min(ITEMS_AT_ONCE, first + count - start))
        logits, _ = models(batch.tokens, batch.query, checked=False)
        loss = cross_entropy(logits.flatten(0, 2), batch.target.flatten(), reduction="none")
        losses.append(loss.view(batch.target.shape).flatten(1).double())
        right.append((logits.argmax(-1) == batch.target).flatten(1).double())
    return Measured(torch.cat(losses, 1).mean(1), torch.cat(right, 1).mean(1))


@torch.no_grad()
def capture(models: AttentionModels, task: Task, count: int, first: int = 0) -> list[Attended]:
    """What each layer's attention does on evaluation items; the last layer is asked the queries, the others all places.

    So the rows are those that reach an answer.
    """
    batch = items(models, task, EVALUATION + first, count)
    return models(batch.tokens, batch.query, checked=False)[1]


@torch.no_grad()
def swapped(models: AttentionModels, which: Sequence[int], taus: Tensor) -> AttentionModels:
    """Some of the models with s^tau in place of their heads and every weight as it is.

    Args:
        models: the trained models.
        which: numbers of those wanted.
        taus: one per attention head, each >= 1, [layers, models wanted, heads].

    Returns:
        New models, in the order of `which`.
    """
    spec = parse_attention("s_tau_closed")
    other = AttentionModels(models.settings, [spec] * len(which), [models.seeds[model] for model in which])
    for name, part in models.weights.items():
        other.weights[name].copy_(part[list(which)])
    for layer in range(models.settings.layers):
        for group, here in other.groups(layer):
            group.given["tau"].copy_(taus[layer, here])
    return other
