"""What the Stable-Baselines3 policies share: a head as a submodule, built before the optimizer."""

from dataclasses import fields, replace
from typing import Any, ClassVar, cast

from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor, NatureCNN
from torch import nn
from torch.optim import Optimizer

from stau_rl.heads import parse_head
from stau_rl.nn.head_module import HeadModule
from stau_rl.nn.remedies import parameter_groups


class HeadPolicy:
    """Mixin for an actor-critic policy of Stable-Baselines3, to be named before it among the bases.

    The head is the submodule `head`: its learned parameters are in the optimizer, the state_dict and every saved model.
    Features are extracted as Stable-Baselines3 does for the kind of observation: a CNN for images, one extractor per
    key for `Dict`, else a flat vector. With `MultiDiscrete` actions one head weighs the scores of each action.

    Args:
        *args: those of the policy; the action space must be `Discrete` or `MultiDiscrete`.
        head: text such as `s_tau(tau=2)`, plug-in heads included; of mass 1.
        learn: names of the head's parameters to learn, or one name.
        score_offset: constant added to the scores.
        head_lr: learning rate of the head's learned parameters where training starts; it follows the schedule of the
            others in proportion. None is theirs.
        **kwargs: those of the policy, and numbers for the head's parameters by name, such as `tau=4.0`.

    Raises:
        ValueError: the action space is neither, the head is unknown or may abstain, a parameter to learn is none of the
            head's, or `head_lr` is not above 0 or there is nothing that it could be the rate of.
    """

    head_distributions: ClassVar[dict[type, Any]]
    action_space: Any
    optimizer: Optimizer

    def __init__(
        self,
        *args: Any,
        head: str = "softmax",
        learn: str | tuple[str, ...] = (),
        score_offset: float = 0.0,
        head_lr: float | None = None,
        **kwargs: Any,
    ) -> None:
        spec = parse_head(head)
        own = [member.name for member in fields(spec)]  # type: ignore[arg-type]
        if numbers := {name: float(kwargs.pop(name)) for name in own if name in kwargs}:
            spec = replace(spec, **numbers)  # type: ignore[type-var]
        names = (learn,) if isinstance(learn, str) else tuple(learn)
        if head_lr is not None and not (names and 0 < head_lr < float("inf")):
            raise ValueError(f"head_lr must be above 0, and needs parameters to learn; got {head_lr!r}, learn={names}")
        # The base class calls _build before it returns.
        self.head_arguments: dict[str, Any] = {"head": str(spec), "learn": names, "score_offset": score_offset}
        self.head_lr = head_lr
        kwargs.setdefault("features_extractor_class", _extractor(kwargs.get("observation_space", *args[:1])))
        super().__init__(*args, **kwargs)

    def _build(self, lr_schedule: Any) -> None:
        made = next((kind for kind in self.head_distributions if isinstance(self.action_space, kind)), None)
        if made is None:
            raise ValueError(
                f"a head chooses one of n actions; action_space must be Discrete or MultiDiscrete, "
                f"got {self.action_space}"
            )
        self.head = HeadModule(**self.head_arguments)
        if self.head.head.mass_kind != "simplex":
            raise ValueError(f"{self.head.head} may abstain, and {self.action_space} has no action for that")
        sizes = int(self.action_space.n) if made is spaces.Discrete else self.action_space.nvec.tolist()
        self.action_dist = self.head_distributions[made](self.head, sizes)
        super()._build(lr_schedule)  # type: ignore[misc]
        if self.head_lr is not None:
            self._give_head_its_rate(lr_schedule(1))

    def _give_head_its_rate(self, rate: float) -> None:
        """Put the head's parameters into a group of their own, whose rate is a factor of what the algorithm sets."""
        if self.head_lr is None or rate <= 0:
            raise ValueError(f"head_lr is a factor of the learning rate, which must start above 0, got {rate!r}")
        options = {name: value for name, value in self.optimizer.defaults.items() if name != "lr"}
        groups = parameter_groups(cast(nn.Module, self), lr=rate, head_lr=rate)
        # The head's group is the last; the algorithm sets every group's rate to the same number before each update.
        groups[-1]["lr_factor"] = self.head_lr / rate
        self.optimizer = type(self.optimizer)(groups, **{**options, "lr": rate})
        self.optimizer.register_step_pre_hook(_scale)
        self.optimizer.register_step_post_hook(_scale_back)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        own = {**self.head_arguments, "head_lr": self.head_lr}
        return {**super()._get_constructor_parameters(), **own}  # type: ignore[misc]


def _extractor(space: Any) -> Any:
    """The extractor that Stable-Baselines3's own policies have for a kind of observation."""
    if isinstance(space, spaces.Dict):
        return CombinedExtractor
    return NatureCNN if is_image_space(space) else FlattenExtractor


def _scale(optimizer: Optimizer, *_: Any) -> None:
    for group in optimizer.param_groups:
        group["plain_lr"] = group["lr"]
        group["lr"] = group["lr"] * group.get("lr_factor", 1.0)


def _scale_back(optimizer: Optimizer, *_: Any) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group.pop("plain_lr")
