"""How should a vector of scores become a decision?

`stau_rl` swaps that one step (softmax, s^tau, escort, ...) in bandits, reinforcement learning and attention, and
measures what it changes. The public names, each with its own `help`:

Measure

- `run_regret`: play policies on the same arms with the same luck; gives a `RegretResult`.
- `RegretResult`: regrets of every policy and instance, with tables, figure and files.
- `histories`: every pull and reward of a few instances of such a benchmark.
- `problem`: a published experiment by name, ready to be played again.
- `run_study`: compare families of policies raw, equally sharp, and each at its best; gives a `StudyResult`.
- `StudyResult`: the comparisons of a study, with table, figure and files.
- `run_plateau`: how long policy gradient stays at a suboptimal arm; gives a `PlateauResult`.
- `PlateauResult`: updates until each head is there, with table, figure and files.
- `train`: train a policy-gradient agent with any head on several seeds; gives a `TrainResult`.
- `TrainResult`: learning curves and scores of every seed, with table, figure and files.
- `load_policy`: a trained policy from the folder of a training, which acts.
- `run_rl_study`: heads x tasks x seeds, each head tuned on an equal grid; gives an `RLStudyResult`.
- `RLStudyResult`: scores of every head on every task, with table, figure and files.
- `run_probe`: train attention heads and ask them for recall, silence and length; gives a `ProbeResult`.
- `ProbeResult`: what every head did, with table, summary, figure and files.

Read what text means

- `parse_head`: a head from text such as `s_tau(tau=5)`.
- `parse_policy`: a bandit policy from text such as `ucb | softmax(beta=4)`.
- `parse_arms`: arms from text such as `bernoulli(k=10)`.
- `parse_task`: a task for attention heads from text such as `silence(pairs=4)`.
- `parse_attention`: an attention head from text such as `pn_fir_tau`.
- `Schedule`: a number that changes with the step, such as `1+5*log(t)`.
- `load_plugin`: heads of your own from a Python file.

Compare heads with each other

- `match_sharpness`: the parameter that makes one head as sharp as another.
- `tau_star`: the tau at which s^tau is closest to softmax on some scores.
- `s_tau_to_softmax`: scores whose softmax is s^tau of the given scores.
- `softmax_to_s_tau`: scores whose s^tau is softmax of the given scores.
- `analyse`: what s^tau would do to the attention of a model of yours.

Put a head into a network

- `HeadModule`: any head as a torch module, scores in, logits out.
- `STauHead`: s^tau as a module, its tau learned or fixed.
- `SoftmaxHead`: softmax as a module, its beta learned or fixed.
- `EscortHead`: escort as a module, its p learned or fixed.
- `HeadCategorical`: the distribution over actions that a head gives.
- `parameter_groups`: a learning rate of its own for a learned sharpness.
- `TauWarmup`: a learned sharpness, frozen for the first updates.
- `TargetEntropy`: a learned sharpness, moved so that the entropy meets a target.

Rooms: `heads`, `calibration`, `statistics`, `plotting`, `envs`, `agents`, `kernels`.

Names load on first use, so `import stau_rl` is light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stau_rl.gym_hook import register_when_loaded
from stau_rl.machine.begun import BEGUN
from stau_rl.machine.version import VERSION as __version__
from stau_rl.moved import say_where

if TYPE_CHECKING:
    # What `_LAZY` says, for editors and type checkers.
    from stau_rl import agents, calibration, envs, heads, kernels, plotting, statistics
    from stau_rl.agents.attention.attention_spec import parse_attention
    from stau_rl.agents.bandit import parse_policy
    from stau_rl.calibration import match_sharpness, s_tau_to_softmax, softmax_to_s_tau, tau_star
    from stau_rl.calibration.score_analysis import analyse
    from stau_rl.envs.arms import parse_arms
    from stau_rl.envs.tasks import parse_task
    from stau_rl.heads import parse_head
    from stau_rl.nn.categorical import HeadCategorical
    from stau_rl.nn.head_module import EscortHead, HeadModule, SoftmaxHead, STauHead
    from stau_rl.nn.remedies import TargetEntropy, TauWarmup, parameter_groups
    from stau_rl.plateau.play import run_plateau
    from stau_rl.plateau.result import PlateauResult
    from stau_rl.plugin.load import load_plugin
    from stau_rl.probe.result import ProbeResult
    from stau_rl.probe.run import run_probe
    from stau_rl.regret.histories import histories
    from stau_rl.regret.problems import problem
    from stau_rl.regret.result import RegretResult
    from stau_rl.regret.run import run_regret
    from stau_rl.rl_study.play import run_rl_study
    from stau_rl.rl_study.result import RLStudyResult
    from stau_rl.spec.schedule import Schedule
    from stau_rl.study.play import run_study
    from stau_rl.study.result import StudyResult
    from stau_rl.training.policies import load_policy
    from stau_rl.training.result import TrainResult
    from stau_rl.training.train import train

# In the order of the docstring.
_LAZY = {
    "run_regret": "stau_rl.regret.run",
    "RegretResult": "stau_rl.regret.result",
    "histories": "stau_rl.regret.histories",
    "problem": "stau_rl.regret.problems",
    "run_study": "stau_rl.study.play",
    "StudyResult": "stau_rl.study.result",
    "run_plateau": "stau_rl.plateau.play",
    "PlateauResult": "stau_rl.plateau.result",
    "train": "stau_rl.training.train",
    "TrainResult": "stau_rl.training.result",
    "load_policy": "stau_rl.training.policies",
    "run_rl_study": "stau_rl.rl_study.play",
    "RLStudyResult": "stau_rl.rl_study.result",
    "run_probe": "stau_rl.probe.run",
    "ProbeResult": "stau_rl.probe.result",
    "parse_head": "stau_rl.heads",
    "parse_policy": "stau_rl.agents.bandit",
    "parse_arms": "stau_rl.envs.arms",
    "parse_task": "stau_rl.envs.tasks",
    "parse_attention": "stau_rl.agents.attention.attention_spec",
    "Schedule": "stau_rl.spec.schedule",
    "load_plugin": "stau_rl.plugin.load",
    "match_sharpness": "stau_rl.calibration",
    "tau_star": "stau_rl.calibration",
    "s_tau_to_softmax": "stau_rl.calibration",
    "softmax_to_s_tau": "stau_rl.calibration",
    "analyse": "stau_rl.calibration.score_analysis",
    "HeadModule": "stau_rl.nn.head_module",
    "STauHead": "stau_rl.nn.head_module",
    "SoftmaxHead": "stau_rl.nn.head_module",
    "EscortHead": "stau_rl.nn.head_module",
    "HeadCategorical": "stau_rl.nn.categorical",
    "parameter_groups": "stau_rl.nn.remedies",
    "TauWarmup": "stau_rl.nn.remedies",
    "TargetEntropy": "stau_rl.nn.remedies",
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
