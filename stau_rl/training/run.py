"""One training run of a policy-gradient agent: played, kept at every point of its curve, and scored."""

import io
import json
import math
import pickle
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stau_rl.agents.policy_gradient import agent_class
from stau_rl.agents.policy_gradient.policy import policy_weights
from stau_rl.files.whole import whole_file
from stau_rl.machine.report import Report
from stau_rl.training.board import Board


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What decides every number of a run.

    Attributes:
        agent: name of the agent.
        settings: its settings, by name, JSON-able.
        seed: in [0, 2^64).
        device: that learns.
    """

    agent: str
    settings: dict[str, Any]
    seed: int
    device: str = "cpu"

    def make(self) -> Any:
        """The agent, before its first step; a ValueError for illegal settings."""
        kind: Any = agent_class(self.agent)
        values = {name: tuple(v) if isinstance(v, list) else v for name, v in self.settings.items()}
        return kind(kind.Settings(**values), self.seed, self.device)


Played = tuple[dict[str, Any], float]
"""The result of a run, JSON-able, and the seconds it took."""
WHOLE = {"settings", "seed", "sampled", "deterministic", "curve"}
"""What the result of a finished run has."""


def play_run(
    run: RunSpec,
    checkpoint: Path | None = None,
    report: Report | None = None,
    *,
    policy: Path | None = None,
    board: Path | None = None,
) -> Played:
    """Play a run to its end, from its checkpoint if there is one, and evaluate it.

    Args:
        run: what to play.
        checkpoint: file to keep the state in after every segment, written whole; removed by nobody.
        report: called after every update; what it raises stops the run, and finished segments are kept.
        policy: file to keep the final weights in, written whole.
        board: folder to write the learning curve into for TensorBoard.

    Returns:
        The result, JSON-able: `sampled` and `deterministic` (mean returns of the final evaluations), their lowest
        and highest episode, and `curve`, the rows of `Agent.play_segment`. And the seconds this call took.

    Raises:
        NonFiniteError: the run met a number that is not finite in float32; finished segments are kept.
    """
    begun = time.perf_counter()
    agent = run.make()
    if checkpoint is not None and (kept := read_tensors(checkpoint)) is not None:
        agent.load(kept)
    with Board(board, agent.curve) if board is not None else nullcontext() as shown:
        while not agent.finished:
            point = agent.play_segment(report)
            if shown is not None:
                shown.add(point)
            if checkpoint is not None:
                write_tensors(checkpoint, agent.state())
    if policy is not None:
        write_tensors(policy, policy_weights(agent))
    result: dict[str, Any] = {"agent": run.agent, "settings": run.settings, "seed": run.seed}
    for kind in ("sampled", "deterministic"):
        returns = agent.evaluate(agent.settings.episodes, deterministic=kind == "deterministic")
        result |= {kind: float(returns.mean()), f"{kind}_low": float(returns.min())}
        result |= {f"{kind}_high": float(returns.max())}
    result["curve"] = [{name: _plain(value) for name, value in row.items()} for row in agent.curve]
    return result, time.perf_counter() - begun


def _plain(value: float) -> float | None:
    """JSON has no nan."""
    return None if math.isnan(value) else value


def write_tensors(path: Path, value: Any) -> None:
    """Write tensors, numbers and containers of them, whole or not at all."""
    # By way of memory: of a full disk torch's own writer says where it stopped, in a RuntimeError.
    content = io.BytesIO()
    torch.save(value, content)
    with whole_file(path) as temporary:
        temporary.write_bytes(content.getbuffer())


def read_tensors(path: Path) -> dict[str, Any] | None:
    """What `write_tensors` wrote, on the CPU, no code in it run; None where there is nothing or it is damaged."""
    try:
        found = torch.load(io.BytesIO(path.read_bytes()), map_location="cpu", weights_only=True)
    except (FileNotFoundError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError):
        return None
    return found if isinstance(found, dict) else None


def read_result(path: Path) -> dict[str, Any] | None:
    """The kept result of a finished run; None if it is not there or not whole."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return kept if isinstance(kept, dict) and kept.keys() >= WHOLE else None
