"""How should a vector of scores become a decision?

`stau_rl` swaps that one step (softmax, s^tau, escort, ...) in bandits, reinforcement learning and
attention, and measures what it changes. Public names load on first use, so `import stau_rl` is light.
"""

from importlib import import_module
from typing import Any

from stau_rl.gym_hook import register_when_loaded
from stau_rl.moved import say_where

__version__ = "0.1.0"

_LAZY = {
    "run_regret": "stau_rl.regret.run",
    "RegretResult": "stau_rl.regret.result",
    "run_study": "stau_rl.study.play",
    "analyse": "stau_rl.calibration.score_analysis",
    "tau_star": "stau_rl.calibration",
    "match_sharpness": "stau_rl.calibration",
    "softmax_to_s_tau": "stau_rl.calibration",
    "s_tau_to_softmax": "stau_rl.calibration",
    "parse_head": "stau_rl.heads",
    "HeadModule": "stau_rl.nn.head_module",
    "STauHead": "stau_rl.nn.head_module",
    "SoftmaxHead": "stau_rl.nn.head_module",
    "EscortHead": "stau_rl.nn.head_module",
    "HeadCategorical": "stau_rl.nn.categorical",
    "parameter_groups": "stau_rl.nn.remedies",
    "TauWarmup": "stau_rl.nn.remedies",
    "TargetEntropy": "stau_rl.nn.remedies",
    "Schedule": "stau_rl.spec.schedule",
    "load_plugin": "stau_rl.plugin.load",
    "parse_policy": "stau_rl.agents.bandit",
    "parse_arms": "stau_rl.envs.arms",
    "run_probe": "stau_rl.probe.run",
    "ProbeResult": "stau_rl.probe.result",
    "parse_task": "stau_rl.envs.tasks",
    "parse_attention": "stau_rl.agents.attention.attention_spec",
}
_ROOMS = ("agents", "calibration", "envs", "heads", "kernels", "plotting", "statistics")

__all__ = ["__version__", *_LAZY, *_ROOMS]


def __getattr__(name: str) -> Any:
    """Import the module behind a public name when the name is first asked for (PEP 562)."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _ROOMS:
        return import_module(f"stau_rl.{name}")
    raise AttributeError(f"module 'stau_rl' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)


register_when_loaded()
say_where()
