"""What the Stable-Baselines3 policies share: a head as a submodule, built before the optimizer."""

from typing import Any, ClassVar

from stau_rl.nn.head_module import HeadModule


class HeadPolicy:
    """Mixin for an actor-critic policy of Stable-Baselines3, to be named before it among the bases.

    The head is the submodule `head`: its learned parameters are in the optimizer, the state_dict and every saved model.
    Their learning rate is the optimizer's, as Stable-Baselines3 sets one rate for all parameter groups.

    Args:
        *args: those of the policy; the action space must be `Discrete`.
        head: text such as `s_tau(tau=2)`, plug-in heads included; of mass 1.
        learn: names of the head's parameters to learn.
        score_offset: constant added to the scores.
        **kwargs: those of the policy.

    Raises:
        ValueError: the action space is not `Discrete`, or the head is unknown or may abstain.
    """

    head_distribution: ClassVar[Any]
    action_space: Any

    def __init__(
        self, *args: Any, head: str = "softmax", learn: tuple[str, ...] = (), score_offset: float = 0.0, **kwargs: Any
    ) -> None:
        # The base class calls _build before it returns.
        self.head_arguments: dict[str, Any] = {"head": head, "learn": tuple(learn), "score_offset": score_offset}
        super().__init__(*args, **kwargs)

    def _build(self, lr_schedule: Any) -> None:
        if type(self.action_space).__name__ != "Discrete":
            raise ValueError(f"a head chooses one of n actions; action_space must be Discrete, got {self.action_space}")
        self.head = HeadModule(**self.head_arguments)
        if self.head.head.mass_kind != "simplex":
            raise ValueError(f"{self.head.head} may abstain, and {self.action_space} has no action for that")
        self.action_dist = self.head_distribution(self.head, int(self.action_space.n))
        super()._build(lr_schedule)  # type: ignore[misc]

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), **self.head_arguments}  # type: ignore[misc]
