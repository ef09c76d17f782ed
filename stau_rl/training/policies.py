"""The policies of a training: what they are in `policies/policy.json`, their weights in a file per seed.

A file holds tensors by name and nothing else; it is read without running any code in it.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from stau_rl.agents.policy_gradient.policy import Policy, Weights, policy_spec
from stau_rl.agents.policy_gradient.policy_gradient import Agent
from stau_rl.files.whole import write_json
from stau_rl.heads import parse_head
from stau_rl.plugin.plugin_head import head_hashes
from stau_rl.training.request import SETTINGS, kept_spec
from stau_rl.training.run import read_tensors, write_tensors

POLICIES, ABOUT = "policies", "policy.json"


@dataclass(frozen=True, slots=True, eq=False)
class Policies:
    """Policies of one training.

    Attributes:
        about: what all of them have in common, as `policy_spec` gives it, with a digest of the code of a plug-in head.
        weights: final weights by seed.
    """

    about: dict[str, Any]
    weights: dict[int, Weights]

    def policy(self, seed: int) -> Policy:
        """The policy of a seed; a ValueError names the seeds that there are."""
        if seed not in self.weights:
            there = ", ".join(map(str, sorted(self.weights))) or "none"
            raise ValueError(f"no policy of seed {seed} is kept; kept: {there}")
        return Policy(self.about, self.weights[seed], seed)

    def write(self, folder: Path) -> None:
        """Write all of them into the folder of a training."""
        write_about(folder, self.about)
        for seed, weights in self.weights.items():
            write_tensors(policy_file(folder, seed), weights)

    @classmethod
    def read(cls, folder: Path, seeds: Iterable[int]) -> Self | None:
        """Those of a folder; None where none were kept, as in trainings of old."""
        if not (folder / POLICIES / ABOUT).exists():
            return None
        found = {seed: read_tensors(policy_file(folder, seed)) for seed in seeds}
        return cls(_about(folder), {seed: weights for seed, weights in found.items() if weights is not None})


def about_policies(agent: Agent) -> dict[str, Any]:
    """What the policies of a training are, from an agent before its first step."""
    hashes = head_hashes([parse_head(agent.settings.head)])
    return policy_spec(agent) | ({"plugins": hashes} if hashes else {})


def policy_file(folder: Path, seed: int) -> Path:
    """Where a seed's weights lie."""
    return folder / POLICIES / f"seed-{seed}.pt"


def write_about(folder: Path, about: dict[str, Any]) -> None:
    """Say in a folder what its policies are."""
    (folder / POLICIES).mkdir(exist_ok=True)
    write_json(folder / POLICIES / ABOUT, about)


def _about(folder: Path) -> dict[str, Any]:
    path = folder / POLICIES / ABOUT
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged")
    return found


def kept_seeds(folder: Path) -> list[int]:
    """The seeds whose policies the folder of a training has.

    Raises:
        ValueError: it is no training, or has no policy.
    """
    spec = kept_spec(folder)
    if spec is None:
        raise ValueError(f"{folder} is not the folder of a training: it has no {SETTINGS}")
    found = [seed for seed in spec["seeds"] if policy_file(folder, seed).exists()]
    if not found or not (folder / POLICIES / ABOUT).exists():
        why = "no seed is finished" if (folder / POLICIES / ABOUT).exists() else "it is from before they were kept"
        raise ValueError(f"{folder} holds a training without policies: {why}")
    return found


def unfinished_seeds(folder: Path) -> list[int]:
    """The seeds of a training whose policies its folder does not have."""
    spec = kept_spec(folder) or {"seeds": []}
    return [seed for seed in spec["seeds"] if not policy_file(folder, seed).exists()]


def load_policy(directory: str | Path, seed: int = 0) -> Policy:
    """Read a trained policy from the folder of a training.

    A head of your own must have been loaded with `load_plugin` before. Files are read as data: no code in them is run.

    Args:
        directory: what `stau-rl train --out` or `train(out=...)` made.
        seed: which of its seeds.

    Returns:
        An object with `act(observation)`, `probabilities(observation)` and `evaluate(episodes)`.

    Raises:
        ValueError: the folder is no training, has no policy of that seed, or a file in it is damaged or another one.

    Examples:
        >>> import stau_rl
        >>> policy = stau_rl.load_policy("runs/ppo", seed=0)                    # doctest: +SKIP
        >>> policy.act([0.0, 0.1, 0.0, -0.1], greedy=True)                      # doctest: +SKIP
        1
    """
    folder = Path(directory)
    there = kept_seeds(folder)
    about, path = _about(folder), policy_file(folder, seed)
    if seed not in there:
        raise ValueError(f"{folder} has no policy of seed {seed}; finished seeds: {', '.join(map(str, there))}")
    weights = read_tensors(path)
    if weights is None:
        raise ValueError(f"{path} is damaged, or no file of weights")
    try:
        policy = Policy(about, weights, seed)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    hashes = head_hashes([parse_head(about["head"])])
    if hashes != about.get("plugins", {}):
        raise ValueError(f"{path}: the code of the head {about['head']} is another than the policy was trained with")
    return policy
