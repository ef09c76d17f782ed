"""What a training is asked for: what was given, then what its folder has, then the defaults; and whether it goes on.

A training goes on to more steps exactly or not at all, and to more seeds always. With more steps its curve's points
stay where they are and more are added, so that it becomes, byte for byte, the training of as many steps and points.
That holds where nothing in the training depends on the number of its steps, and so not with `anneal`, whose learning
rate falls to 0 at the last one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stau_rl.agents.policy_gradient import agent_class
from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.files.identity import first_difference, identity
from stau_rl.heads import parse_head
from stau_rl.kernels.engines import find_device
from stau_rl.plugin.plugin_head import head_hashes

MOST_SEEDS = 1_000_000
SETTINGS = "settings.json"
LENGTH = ("steps", "points")


@dataclass(frozen=True, slots=True)
class Request:
    """A training in full.

    Attributes:
        agent: name of the agent.
        settings: all of its settings.
        first_seed: the first of the seeds.
        seeds: how many.
        device: that learns: `cpu`, `cuda` or `cuda:N`.
    """

    agent: str
    settings: AgentSettings
    first_seed: int
    seeds: int
    device: str = "cpu"

    @property
    def spec(self) -> dict[str, Any]:
        """What decides the numbers, JSON-able; a processor is not named, nor which of several GPUs it is."""
        seeds = [self.first_seed + number for number in range(self.seeds)]
        spec: dict[str, Any] = {"agent": self.agent, "settings": self.settings.as_dict(), "seeds": seeds}
        if self.device != "cpu":
            spec["device"] = self.device.partition(":")[0]
        if hashes := head_hashes([parse_head(self.settings.head)]):
            spec["plugins"] = hashes
        return spec


def kept_spec(folder: Path) -> dict[str, Any] | None:
    """What a folder's training is; None where it holds none.

    Raises:
        ValueError: the file that says it is damaged.
    """
    try:
        found = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        kept = identity(found)
        if isinstance(kept["agent"], str) and isinstance(kept["settings"], dict) and kept["seeds"]:
            return kept
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, AttributeError, KeyError, TypeError):
        pass
    raise ValueError(f"{folder / SETTINGS} is damaged; name another folder")


def asked_for(
    agent: str | None,
    settings: AgentSettings | Mapping[str, Any] | None,
    first_seed: int | None,
    seeds: int | None,
    folder: Path | None = None,
    device: str | None = None,
) -> Request:
    """The training that is asked for.

    Args:
        agent: name of the agent; None is what the folder has, else `ppo`.
        settings: its settings, or some of them by name; the others are those of the folder, else the defaults.
        first_seed: the first seed; None is what the folder has, else 0.
        seeds: how many; None is what the folder has, else 1.
        folder: of the training to go on with; None for a new one.
        device: that learns: `cpu`, `cuda`, `cuda:N` or `auto`; None is what the folder has, else `cpu`.

    Raises:
        ValueError: an argument is out of range, or the folder's training cannot go on to as many steps.
    """
    kept = None if folder is None else kept_spec(folder)
    agent = agent or (kept["agent"] if kept else "ppo")
    kind = agent_class(agent).Settings
    if not isinstance(settings, AgentSettings):
        there = kept["settings"] if kept and kept["agent"] == agent else {}
        settings = kind.from_texts({}, **{**there, **(settings or {})})
    first_seed = first_seed if first_seed is not None else kept["seeds"][0] if kept else 0
    seeds = seeds if seeds is not None else len(kept["seeds"]) if kept else 1
    for name, value, least in (("seeds", seeds, 1), ("first_seed", first_seed, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value!r}")
    if seeds > MOST_SEEDS:
        raise ValueError(f"seeds must be at most {MOST_SEEDS}, got {seeds!r}")
    if first_seed + seeds > 1 << 64:
        raise ValueError(f"seeds must be below 2^64, got {first_seed} + {seeds - 1}")
    if kept and folder is not None and kept["agent"] == agent:
        settings = _lengthened(settings, kept["settings"], folder)
    device = find_device(device or (kept.get("device", "cpu") if kept else "cpu"))
    return Request(agent, settings, first_seed, seeds, device)


def _lengthened(settings: AgentSettings, kept: Mapping[str, Any], folder: Path) -> AgentSettings:
    """The settings with as many points as the folder's curve then has."""
    steps, points = kept["steps"], kept["points"]
    # Another number of points is another training, whatever its steps.
    if settings.steps == steps or settings.points != points:
        return settings
    if settings.steps < steps:
        raise ValueError(f"{folder} holds a training of {steps} steps, steps={settings.steps} was asked for")
    if kept["anneal"]:
        raise ValueError(
            f"{folder} holds a training of {steps} steps whose learning rate fell to 0 at the last of them "
            f"(anneal=true): one of {settings.steps} differs from the first update on. Only a training with "
            "anneal=false goes on to more steps; name another folder"
        )
    if points * settings.steps % steps:
        raise ValueError(
            f"steps must be a multiple of {steps / points:g}, the steps between two points of the curve in {folder}, "
            f"got {settings.steps}"
        )
    return replace(settings, points=points * settings.steps // steps)


def has_more_steps(spec: Mapping[str, Any], kept: Mapping[str, Any]) -> bool:
    """Whether a training has more steps than a folder's and may go on from it; `asked_for` made its settings."""
    asked, there = spec["settings"], kept["settings"]
    (steps, points), (old_steps, old_points) = ([one.get(name, 0) for name in LENGTH] for one in (asked, there))
    return steps > old_steps and points * old_steps == old_points * steps and not there.get("anneal")


def goes_on(spec: Mapping[str, Any], kept: Mapping[str, Any]) -> bool:
    """Whether a training is the one that a folder holds, with more steps, more seeds after its own, or both."""
    as_asked: dict[str, Any] = {**kept, "settings": dict(kept["settings"])}
    if has_more_steps(spec, kept):
        as_asked["settings"] |= {name: spec["settings"][name] for name in LENGTH}
    if spec["seeds"][: len(kept["seeds"])] == kept["seeds"]:
        as_asked["seeds"] = spec["seeds"]
    return as_asked != kept and first_difference(as_asked, identity(dict(spec))) is None
