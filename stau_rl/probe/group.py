"""One group of probe models: trained side by side, tested at every length, and turned into rows and maps."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from stau_rl.agents.attention.attention_spec import parse_attention
from stau_rl.envs.tasks import parse_task
from stau_rl.envs.tasks.task import Task
from stau_rl.machine.stamp import current_commit
from stau_rl.probe.curves import Curves
from stau_rl.probe.folder import COLUMNS, Maps
from stau_rl.probe.metrics import evaluate
from stau_rl.probe.model import ProbeModels
from stau_rl.probe.plan import Setting
from stau_rl.probe.train import EVALUATION, items, train

# Example rows kept for the maps, per normaliser.
_EXAMPLES = 8
# Normalisers x steps x layers of a group on a GPU: enough to share the work of a step, few enough to balance processes.
_WORK = 9000


def split(settings: Sequence[Setting], device: torch.device) -> list[Setting]:
    """The groups that train together on a device, in the order of the plan.

    How they are cut depends on nothing else, so that any number of processes writes the same files. On a CPU a group
    has one normaliser, which keeps what is lost to a stop small.
    """
    return [
        group
        for setting in settings
        for group in setting.groups(
            1 if device.type == "cpu" else math.ceil(_WORK / (setting.recipe.steps * setting.shape.layers))
        )
    ]


def train_group(
    setting: Setting, identity: str, device: torch.device, tick: Callable[[int], None]
) -> tuple[pd.DataFrame, Maps]:
    """Train one group and test it at every length.

    Args:
        setting: the group.
        identity: its name, which its rows carry.
        device: where it is trained.
        tick: called now and then with the steps that are done.

    Returns:
        Rows with the columns of `stau_rl.probe.folder`, and the maps that `stau_rl.probe.result` describes.
    """
    task, recipe, shape = parse_task(setting.task), setting.recipe, setting.shape
    specs = [parse_attention(text) for text in setting.normalisers]
    models = ProbeModels(task, specs, setting.seeds, shape, device)
    curves = Curves(len(specs) * len(setting.seeds), recipe.steps)
    dead = train(models, recipe, tick, curves).tolist()
    learned = models.learned_texts()
    common: dict[str, Any] = {
        "part": setting.part,
        "task": setting.task,
        "group": identity,
        "steps": recipe.steps,
        "batch": recipe.batch,
        "rate": recipe.rate,
        "width": shape.width,
        "layers": shape.layers,
        "positions": shape.positions,
        "heads": shape.heads,
        "tested": str(setting.test or setting.task),
        "items": setting.items,
        "device": device_name(device),
        "versions": f"torch={torch.__version__.split('+')[0]}",
        "commit": current_commit(),
    }
    rows, masses = [], None
    for factor in (1, *setting.factors):
        tested = setting.tested if factor == 1 else setting.tested.longer(factor)
        metrics, counts = evaluate(models, tested, setting.items)
        masses = counts if masses is None else masses
        plain = {name: values.tolist() for name, values in metrics.items()}
        for model in range(len(specs) * len(setting.seeds)):
            which, seed = divmod(model, len(setting.seeds))
            own = {
                "normaliser": setting.normalisers[which],
                "spec": str(specs[which]),
                "seed": setting.seeds[seed],
                "learned": learned[model],
                "first_dead": dead[model],
                "factor": factor,
                "length": tested.length,
            }
            rows.append(common | own | {name: values[model] for name, values in plain.items()})
    assert masses is not None
    weights, slots = _examples(models, setting.tested)
    maps: Maps = {
        "weights": weights[:: len(setting.seeds)],
        "slots": slots,
        "masses": masses.unflatten(0, (len(specs), len(setting.seeds))).sum(1).cpu().numpy(),
        "normalisers": np.array(setting.normalisers),
        "setting": np.array([setting.part, setting.task]),
        **curves.arrays(setting.seeds),
    }
    return pd.DataFrame(rows, columns=list(COLUMNS)), maps


@torch.no_grad()
def _examples(models: ProbeModels, task: Task) -> tuple[Any, Any]:
    """Weights of the first query of the first items of the test, float32 [models, examples, keys].

    And the right slot of each item of the first seed, -1 where its key is absent, int64 [examples].
    """
    batch = items(models, task, EVALUATION, _EXAMPLES)
    _, seen = models.forward(batch)
    return seen.weights[:, :, 0].cpu().numpy(), batch.slot[0, :, 0].cpu().numpy()


def device_name(device: torch.device) -> str:
    """The GPU's name, or `cpu`."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
