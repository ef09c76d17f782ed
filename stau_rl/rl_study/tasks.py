"""What the study of heads in reinforcement learning compares: tasks, families of heads, and grids."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from stau_rl.agents.policy_gradient import agent_class
from stau_rl.agents.policy_gradient.environments import env_text
from stau_rl.heads import parse_head
from stau_rl.spec.grammar import show, suggest

SLOPES = (0.75, 1.5, 3.0)
RATES = 4
BLANK = "{x}"
OWN_STEPS = 200_000
SET_BY_THE_STUDY = (
    *("env", "env_args", "head", "steps", "learning_rate"),
    *("score_offset", "curve_episodes", "episodes", "points"),
)
# The committed rows were played with it; the agents' own default came later.
SCALED: dict[str, Any] = {"reward_scale": 0.05}


@dataclass(frozen=True, slots=True)
class Task:
    """An agent on an environment for a number of steps.

    Attributes:
        name: for tables and files.
        agent: name of the agent.
        env: Gymnasium id.
        steps: environment steps.
        rates: smallest and largest learning rate of the grid.
        settings: the agent's other settings that differ from their defaults.
        seconds: what a run took on one core of a 2020s server, for estimates.
        floor: mean return of the uniformly random policy, for normalised scores; nan where it is not known.
        goal: the return that the reference score asks for; nan where there is none.
    """

    name: str
    agent: str
    env: str
    steps: int
    rates: tuple[float, float]
    settings: dict[str, Any] = field(default_factory=dict, hash=False)
    seconds: float = 15.0
    floor: float = 0.0
    goal: float = 1.0

    @property
    def place(self) -> str:
        """The environment with its arguments, for tables."""
        return env_text(self.env, self.settings.get("env_args", {}))


TASKS = (
    Task("ppo-cartpole", "ppo", "CartPole-v1", 500_000, (3e-4, 3e-3), SCALED, 15, 22, 490),
    Task("ppo-acrobot", "ppo", "Acrobot-v1", 500_000, (3e-4, 3e-3), SCALED, 33, -499, -87),
    Task("a2c-cartpole", "a2c", "CartPole-v1", 500_000, (5e-4, 5e-3), SCALED | {"rollout": 16}, 12, 22, 490),
    Task("reinforce-cartpole", "reinforce", "CartPole-v1", 200_000, (1e-3, 2e-2), SCALED | {"envs": 2}, 8, 22, 470),
    Task(
        "ppo-lunarlander",
        "ppo",
        "LunarLander-v3",
        300_000,
        (3e-4, 2e-3),
        SCALED
        | {
            "rollout": 256,
            "epochs": 8,
            "minibatch": 64,
            "gamma": 0.995,
            "lam": 0.97,
            "entropy": 0.002,
        },
        50,
        -175,
        180,
    ),
)


@dataclass(frozen=True, slots=True)
class Family:
    """A head whose sharpness is tuned.

    Attributes:
        text: its text with {x} for the tuned parameter; without, only the learning rate is tuned.
        offset: initial value of all action scores.
    """

    text: str
    offset: float = 0.0

    @property
    def name(self) -> str:
        """Text for tables: `s_tau(tau={x}) + 1`."""
        return f"{self.text} + {self.offset:.12g}" if self.offset else self.text

    def head(self, slope: float) -> str:
        """The head whose log-weights have this slope at the initial scores; {x} is the slope where there is none."""
        if BLANK not in self.text:
            return str(parse_head(self.text))
        unit = parse_head(self.text.replace(BLANK, "2"))
        # The slope is proportional to the parameter.
        has_slope = unit.smooth_at_zero or self.offset != 0
        found = float(unit.slope(torch.tensor([self.offset], dtype=torch.float64))) / 2 if has_slope else 1.0
        return str(parse_head(self.text.replace(BLANK, f"{slope / found:.6g}")))


FAMILIES = (
    Family("softmax(beta={x})"),
    Family("s_tau(tau={x})"),
    Family("s_tau(tau={x})", 1.0),
    Family("escort(p={x})", 1.0),
)


def parse_family(text: str) -> Family:
    """Read `softmax(beta={x})` or `escort(p={x}) + 1`; a ValueError says what is wrong."""
    head, plus, offset = text.partition(" + ")
    try:
        family = Family(head.strip(), float(offset) if plus else 0.0)
    except ValueError:
        raise ValueError(f"family {show(text)}: what follows ' + ' must be the initial score, a number") from None
    if not math.isfinite(family.offset):
        raise ValueError(f"family {show(text)}: the initial score must be finite")
    family.head(SLOPES[0])
    return family


def distinct(families: Sequence[Family]) -> tuple[Family, ...]:
    """Each family once; a ValueError if two have one name."""
    once = tuple(dict.fromkeys(families))
    names = [family.name for family in once]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two families are called {twice!r}; their initial scores differ by too little")
    return once


def own_task(
    env: str,
    agent: str = "ppo",
    steps: int = OWN_STEPS,
    rates: tuple[float, float] | None = None,
    env_args: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Task:
    """A task of one's own: an agent on any environment that it can play.

    Args:
        env: Gymnasium id, or `module:id`.
        agent: name of the agent.
        steps: environment steps of every run.
        rates: smallest and largest learning rate of the grid; None is what the agent has on CartPole.
        env_args: the environment's arguments by name.
        **settings: of the agent, that differ from their defaults.

    Raises:
        ValueError: an unknown agent or setting, one that the study itself sets, or bad rates or steps.
    """
    kind: Any = agent_class(agent).Settings
    fixed = [name for name in kind.known(settings) if name in SET_BY_THE_STUDY]
    if fixed:
        raise ValueError(f"{fixed[0]} is what the study itself sets")
    low, high = rates or next(task.rates for task in TASKS if task.agent == agent)
    if not 0 < low < high < math.inf:
        raise ValueError(f"rates must be two positive numbers, the smaller first, got {low:g} and {high:g}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}
    given |= {"env_args": dict(env_args)} if env_args else {}
    name = f"{agent}-{env_text(env, env_args or {})}"
    seconds = TASKS[0].seconds * steps / TASKS[0].steps
    return Task(name, agent, env, steps, (low, high), given, seconds, math.nan, math.nan)


def task_named(name: str) -> Task:
    """The task called `name`; a ValueError names the nearest if there is none."""
    known = {task.name: task for task in TASKS}
    if name not in known:
        raise ValueError(f"unknown task {name!r}{suggest(name, known)}")
    return known[name]


def points(task: Task, family: Family) -> list[tuple[str, float]]:
    """The grid of a family: pairs of a head and a learning rate, as many for every family.

    Learning rates are geometric between the task's ends. A family without {x} has a finer grid of them.
    """
    slopes = SLOPES if BLANK in family.text else (1.0,)
    count = RATES * len(SLOPES) // len(slopes)
    low, high = task.rates
    rates = [float(f"{low * (high / low) ** (n / (count - 1)):.3g}") for n in range(count)]
    return [(family.head(slope), rate) for slope in slopes for rate in rates]


def has_control(family: Family, reference: Family) -> bool:
    """Whether both have the same grid of sharpnesses, and are two."""
    return family != reference and BLANK in family.text and BLANK in reference.text


def stars(task: Task, family: Family, head: str, rate: float) -> tuple[str, str]:
    """A star each for a head and a learning rate at an end of their grids."""
    heads = list(dict.fromkeys(one for one, _ in points(task, family)))
    return "*" * (len(heads) > 1 and head in (heads[0], heads[-1])), "*" * (rate in task.rates)


def settings(task: Task, family: Family, head: str, rate: float, shorter: int = 1) -> dict[str, Any]:
    """All settings of a run, by name; `shorter` divides the steps and the evaluations."""
    kind: Any = agent_class(task.agent).Settings
    return kind(
        env=task.env,
        head=head,
        steps=max(1, task.steps // shorter),
        learning_rate=rate,
        score_offset=family.offset,
        curve_episodes=0,
        episodes=max(2, 100 // shorter),
        points=max(2, 20 // shorter),
        **{name: tuple(value) if isinstance(value, list) else value for name, value in task.settings.items()},
    ).as_dict()
