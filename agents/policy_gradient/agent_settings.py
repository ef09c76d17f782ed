"""Settings that every policy-gradient agent has; each agent's own file adds its own."""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from stau_rl.heads import parse_head

# Arguments of `gymnasium.make_vec` itself.
NO_ARGUMENTS = ("id", "num_envs", "vectorization_mode", "vector_kwargs", "wrappers")
HEAD_RATE, TARGET_ENTROPY_RATE = 0.1, 0.1
WIDEST = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What is learned, on which environment, and how the networks are fitted."""

    env: str = "CartPole-v1"
    """Gymnasium id with discrete actions; `module:id` imports a module first."""
    env_args: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Arguments of the environment by name, each a number, a text, true, false or another JSON value."""
    head: str = "softmax(beta=1)"
    """Text of the head that turns the action scores into probabilities."""
    learn: tuple[str, ...] = ()
    """Names of parameters of the head that are learned with the policy, such as tau; they start at their values."""
    head_rate: float = HEAD_RATE
    """Learning rate of the head's learned parameters, as a multiple of `learning_rate`."""
    head_warmup: int = 0
    """Environment steps for which the head's learned parameters stay at their start; an update that begins before as
    many does not move them."""
    target_entropy: float = 0.0
    """Entropy that the head's learned sharpness is moved to meet, instead of along the gradient: a share of log n, n
    the number of actions, in (0, 1); 0 leaves it off. Scores that move apart may lower the entropy further than the
    head's range can raise it: s_tau is never flatter than at tau = 1."""
    target_entropy_rate: float = TARGET_ENTROPY_RATE
    """Step, once per update, of the number behind the sharpness (tau = 1 + softplus(number)), per share of log n that
    the entropy is off its target."""
    steps: int = 500_000
    """Environment steps to learn from; steps that only reset an environment do not count. Rounded up to whole rollouts
    at each point of the learning curve."""
    envs: int = 8
    """Copies of the environment that are stepped together."""
    gamma: float = 0.99
    """Discount factor per step."""
    reward_scale: float | Literal["return"] = "return"
    """Scale of the rewards that are learned from; scores keep the environment's unit. `return`: divided by the running
    standard deviation of the discounted return, as is usual; a number: multiplied by it. Values of size 1 are learned
    in fewer steps than values of size 100, which a network reaches only by many steps of the learning rate's size."""
    learning_rate: float = 1e-3
    """Adam's learning rate at the start."""
    anneal: bool = True
    """Whether the learning rate falls linearly to 0 at the last step."""
    adam_eps: float = 1e-5
    """Adam's epsilon."""
    max_grad_norm: float = 0.5
    """Largest Euclidean norm of the actor's gradient, and of the critic's; a longer one is shortened to it."""
    entropy: float = 0.0
    """Weight of the entropy bonus in the loss."""
    value: float = 0.5
    """Weight of the squared error of the value in the loss."""
    normalise: bool = True
    """Whether advantages are brought to mean 0 and deviation 1 before they are used."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the tanh layers of the actor and of the critic."""
    score_offset: float = 0.0
    """Initial value of every action score; heads that are not shift-invariant care."""
    points: int = 20
    """Points of the learning curve; environments start anew and a checkpoint may be taken at each."""
    curve_episodes: int = 10
    """Sampled evaluation episodes per point of the learning curve; 0 leaves them out."""
    episodes: int = 100
    """Episodes of the final evaluation, sampled and deterministic each."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: naming the setting, its value and what is accepted.
        """
        parse_head(self.head)
        self._check_env_args()
        whole = {"steps": 1, "envs": 1, "points": 1, "curve_episodes": 0, "episodes": 1}
        for name, least in whole.items():
            self.require(name, getattr(self, name) >= least, f"at least {least}")
        scale = self.reward_scale
        good = scale == "return" if isinstance(scale, str) else 0 < scale < math.inf
        self.require("reward_scale", good, "return, or a positive and finite number")
        positive = ("head_rate", "target_entropy_rate", "learning_rate", "adam_eps", "max_grad_norm")
        for name in positive:
            self.require(name, 0 < getattr(self, name) < math.inf, "positive and finite")
        for name in ("entropy", "value"):
            self.require(name, 0 <= getattr(self, name) < math.inf, "at least 0 and finite")
        self._check_remedies()
        self.require("gamma", 0 <= self.gamma <= 1, "in [0, 1]")
        self.require("score_offset", math.isfinite(self.score_offset), "finite")
        widths = all(1 <= width <= WIDEST for width in self.hidden)
        self.require("hidden", widths, f"a list of widths from 1 to {WIDEST}")

    def require(self, name: str, good: bool, accepted: str) -> None:
        """Raise a ValueError that names a setting unless it is good."""
        if not good:
            raise ValueError(f"{name} must be {accepted}, got {getattr(self, name)!r}")

    def _check_env_args(self) -> None:
        try:
            plain = json.loads(json.dumps(dict(self.env_args), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ValueError(f"env_args must be JSON values by name, got {self.env_args!r}: {error}") from None
        for name in plain:
            if not name.isidentifier() or name in NO_ARGUMENTS:
                raise ValueError(f"env_args: {name!r} is no name of an environment's argument")

    def _check_remedies(self) -> None:
        self.require("head_warmup", 0 <= self.head_warmup < self.steps, f"at least 0 and below steps={self.steps}")
        self.require("target_entropy", 0 <= self.target_entropy < 1, "in (0, 1), or 0 to leave it off")
        sharpness = parse_head(self.head).sharpness
        if self.head_rate != HEAD_RATE and not self.learn:
            raise ValueError(
                f"head_rate={self.head_rate:g} has no effect where the head learns nothing; set "
                f"learn={sharpness or 'NAME'}, or leave head_rate out"
            )
        if self.head_warmup and not self.learn:
            name = sharpness or "NAME"
            raise ValueError(
                f"head_warmup={self.head_warmup} freezes what {self.head} learns, which is nothing here; "
                f"set learn={name}, or leave head_warmup out"
            )
        if self.target_entropy and sharpness is None:
            raise ValueError(
                f"target_entropy={self.target_entropy:g} moves a head's sharpness, and {self.head} has none; "
                "take a head that has, such as s_tau(tau=2), or leave target_entropy out"
            )
        if self.target_entropy and sharpness not in self.learn:
            raise ValueError(
                f"target_entropy={self.target_entropy:g} moves {sharpness} of {self.head}, which is not learned here "
                f"(learn={','.join(self.learn) or 'nothing'}); set learn={','.join((*self.learn, str(sharpness)))}"
            )
        if not self.target_entropy and self.target_entropy_rate != TARGET_ENTROPY_RATE:
            raise ValueError(
                f"target_entropy_rate={self.target_entropy_rate:g} has no effect without target_entropy; "
                "set target_entropy=0.5, say, or leave target_entropy_rate out"
            )

    def as_dict(self) -> dict[str, Any]:
        """The settings as JSON-able values, by name.

        Remedies that are off and arguments that there are none of are left out: a folder from before there were any
        still holds the same training.
        """
        off = [] if self.env_args else ["env_args"]
        off += [] if self.head_warmup else ["head_warmup"]
        off += [] if self.target_entropy else ["target_entropy", "target_entropy_rate"]
        values = {name: v for name, v in dataclasses.asdict(self).items() if name not in off}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    @classmethod
    def from_texts(cls, texts: Mapping[str, str], **given: Any) -> Self:
        """Settings from texts such as {"learning_rate": "1e-3"}, as a command line gives them.

        Args:
            texts: by name; numbers, true or false, words, or widths or names joined by commas.
            **given: further settings, as values; lists stand for tuples.

        Raises:
            ValueError: an unknown name, a text of another kind than the setting, or an illegal value.
        """
        plain = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        return cls(**cls.read_texts(texts), **cls.known(plain))

    @classmethod
    def read_texts(cls, texts: Mapping[str, str]) -> dict[str, Any]:
        """Settings as values, from texts as in `from_texts`."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        return {name: _read(fields[name], text) for name, text in cls.known(texts).items()}

    @classmethod
    def known(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The same by name; a ValueError names the first that is no setting."""
        names = [field.name for field in dataclasses.fields(cls)]
        unknown = [name for name in values if name not in names]
        if unknown:
            raise ValueError(f"unknown setting {unknown[0]!r} of {cls.__name__}; known: {', '.join(names)}")
        return dict(values)


def learned_column(name: str) -> str:
    """Column of a learned parameter in tables: `learned_tau`."""
    return f"learned_{name}"


def _read(field: "dataclasses.Field[Any]", text: str) -> Any:
    """A text as a value of the same kind as the setting's default."""
    kinds = {bool: "true or false", int: "a whole number", float: "a number", tuple: "widths such as 64,64"}
    like: Any = field.default
    if like is dataclasses.MISSING:
        raise ValueError(f"{field.name} is given by name and value, got the text {text!r}")
    try:
        if isinstance(like, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(like, tuple):
            parts = tuple(part.strip() for part in text.split(",") if part.strip())
            return parts if field.name == "learn" else tuple(map(int, parts))
        if float in get_args(field.type):
            return _number_or_word(text)
        return type(like)(text)
    except (KeyError, ValueError):
        raise ValueError(f"{field.name} must be {kinds[type(like)]}, got {text!r}") from None


def _number_or_word(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
