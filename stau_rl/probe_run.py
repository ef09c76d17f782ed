"""Training and testing the settings of a probe, group by group."""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from stau_rl.agents.attention_spec import parse_attention
from stau_rl.commit import current_commit
from stau_rl.envs.tasks import parse_task
from stau_rl.probe_files import COLUMNS, SUMMARY, TABLE, Maps, ProbeFolder
from stau_rl.probe_metrics import evaluate
from stau_rl.probe_model import ProbeModels
from stau_rl.probe_plan import Setting
from stau_rl.probe_summary import summary
from stau_rl.probe_train import EVALUATION, items, train
from stau_rl.study_files import write_rows

Report = Callable[[str, float], None]
"""Called with the name of a group and how many groups are done, the current one in part."""
# Example rows kept for the maps, per normaliser.
_EXAMPLES = 8


def run_probe(
    settings: Sequence[Setting],
    device: str = "cpu",
    out: str | Path | None = None,
    resume: bool = False,
    report: Report | None = None,
    plugins: Sequence[str | Path] = (),
) -> tuple[pd.DataFrame, list[Maps]]:
    """Train and test every setting, or read what the folder has.

    Args:
        settings: what to do.
        device: `cpu`, `cuda` or another torch device. On a GPU all normalisers of a setting train together; on a CPU
            one after the other, each with all its seeds.
        out: a folder to fill.
        resume: the folder may hold finished groups.
        report: called as the work goes on.
        plugins: the files of plug-ins that were loaded; their content is part of a group's identity.

    Returns:
        A row per setting, normaliser, seed and length, with the columns of `stau_rl.probe_files`; and for each group
        its maps: `weights` [normalisers, examples, keys] of the first seed, `masses` [normalisers, 2, bins] of all
        seeds, `normalisers` and `setting`.

    Raises:
        ValueError: the device is not there, or the folder is not free.
    """
    where = find_device(device)
    groups = [group for setting in settings for group in setting.groups(models_at_once(where))]
    digests = [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in plugins]
    tables, maps = [], []
    with ExitStack() as stack:
        folder = None if out is None else stack.enter_context(ProbeFolder(out, resume))
        for number, group in enumerate(groups):
            text = ", ".join(group.normalisers) if len(group.normalisers) < 3 else f"{len(group.normalisers)} heads"
            name = f"{group.task}: {text}"
            identity = f"{group.part.replace(' ', '_')}-{group.identity(where.type, digests)}"
            found = folder.read(identity) if folder is not None else None
            if found is None:
                begun = time.perf_counter()

                def tick(share: float, number: int = number, name: str = name) -> None:
                    if report is not None:
                        report(name, number + share)

                found = train_group(group, identity, where, tick)
                if folder is not None:
                    folder.write(identity, *found, time.perf_counter() - begun)
                    found = folder.read(identity) or found
            tables.append(found[0])
            maps.append(found[1])
            if report is not None:
                report(name, number + 1)
        rows = pd.concat([table.dropna(axis=1, how="all") for table in tables], ignore_index=True)
        rows = rows.reindex(columns=list(COLUMNS))
        if folder is not None:
            write_rows(folder.path / TABLE, rows)
            write_rows(folder.path / SUMMARY, summary(rows))
            # Batch machines may lack what draws; a resumed run elsewhere draws from the same files.
            with suppress(ModuleNotFoundError):
                from stau_rl.probe_plot import save_figures

                save_figures(maps, folder.path)
    return rows, maps


def train_group(
    setting: Setting, identity: str, device: torch.device, tick: Callable[[float], None]
) -> tuple[pd.DataFrame, Maps]:
    """Train one group and test it at every length."""
    task, recipe, shape = parse_task(setting.task), setting.recipe, setting.shape
    specs = [parse_attention(text) for text in setting.normalisers]
    models = ProbeModels(task, specs, setting.seeds, shape, device)
    dead = train(models, recipe, lambda done: tick(0.95 * done / recipe.steps)).tolist()
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
        "positions": "learned" if shape.positions else "none",
        "items": setting.items,
        "device": device_name(device),
        "versions": f"torch={torch.__version__.split('+')[0]}",
        "commit": current_commit(),
    }
    rows, masses = [], None
    for factor in (1, *setting.factors):
        tested = task if factor == 1 else task.longer(factor)
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
    maps: Maps = {
        "weights": _examples(models)[:: len(setting.seeds)],
        "masses": masses.unflatten(0, (len(specs), len(setting.seeds))).sum(1).cpu().numpy(),
        "normalisers": np.array(setting.normalisers),
        "setting": np.array([setting.part, setting.task]),
    }
    return pd.DataFrame(rows, columns=list(COLUMNS)), maps


@torch.no_grad()
def _examples(models: ProbeModels) -> Any:
    """Weights of the first query of the first items of the test: float32 [models, examples, keys]."""
    _, seen = models.forward(items(models, models.task, EVALUATION, _EXAMPLES))
    return seen.weights[:, :, 0].cpu().numpy()


def models_at_once(device: torch.device) -> int:
    """How many normalisers of a setting train together: on a CPU one, which keeps what is lost to a stop small."""
    return 1 if device.type == "cpu" else 1 << 30


def find_device(text: str) -> torch.device:
    """The torch device of a name; `auto` is CUDA where there is a GPU.

    Raises:
        ValueError: it is not there.
    """
    if text == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(text)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"--device {text} is not there ({reason}); cpu always is") from None
    return device


def device_name(device: torch.device) -> str:
    """The GPU's name, or `cpu`."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
