"""A task as a Gymnasium environment: choose the slot that answers the query, or abstain."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from stau_rl.envs.gym.drawing import RENDERS, cells, check_begun, check_render_mode, may_draw
from stau_rl.envs.tasks import TASKS, parse_task
from stau_rl.envs.tasks.task import Batch, Task
from stau_rl.envs.tasks.task_draws import check_seed
from stau_rl.spec.grammar import Call


class TaskEnv(gymnasium.Env[dict[str, Any], np.int64]):
    """A recall task, one step for each query of an item.

    ### Observation space
    `Dict`: `tokens`, the item's n token numbers; `present`, 0 where a place is padding; `query`, the place of the
    query that is to be answered now; `loudness`, the factor on each place (1 without amplitude noise).

    ### Action space
    `Discrete(n + 1)`: action j < n chooses place j as the slot, action n abstains.

    ### Rewards
    +1 for the right slot, +1 for abstaining where the key is absent, 0 for abstaining where it is not, -1 otherwise.

    ### Starting state
    Item i of the task's seed. `reset(seed=s)` takes item 0 of seed s, each further reset the next item; without a seed
    one is drawn. `options={"index": i}` takes item i.

    ### End
    The episode terminates with the last query of the item.

    `info` holds `index`, and `slot`, the right place or -1.

    Args:
        task: a task, or its text.
        render_mode: None, or "rgb_array" for pictures: a cell per place, the query marked.
        **fields: fields of the task, if it is given by its bare name.

    Raises:
        ValueError: the text names no task, or a field is out of range.
    """

    metadata: ClassVar[dict[str, Any]] = RENDERS

    def __init__(self, task: Task | str = "recall", render_mode: str | None = None, **fields: Any) -> None:
        self.render_mode = check_render_mode(render_mode)
        if fields:
            if task not in TASKS:
                raise ValueError(f"fields need the bare name of a task, one of {', '.join(TASKS)}; got {task!r}")
            task = TASKS.build(Call(str(task), (), tuple(fields.items())))
        self.task = parse_task(task) if isinstance(task, str) else task
        length = self.task.length
        self.observation_space = spaces.Dict(
            {
                "tokens": spaces.MultiDiscrete(np.full(length, self.task.vocabulary)),
                "present": spaces.MultiBinary(length),
                "query": spaces.Discrete(length),
                # The draws are within 9 standard deviations.
                "loudness": spaces.Box(0.0, float(np.exp(9 * self.task.loudness_spread)), (length,), np.float32),
            }
        )
        self.action_space = spaces.Discrete(length + 1)
        self._seed: int | None = None
        self._index, self._asked = -1, 0
        self._item: Batch | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Take the next item; arguments as in the class's text.

        Raises:
            ValueError: an option is unknown, or the index is negative.
        """
        super().reset(seed=seed)
        if seed is not None or self._seed is None:
            drawn = int(self.np_random.integers(1 << 62)) if seed is None else seed
            self._seed, self._index = check_seed(drawn), -1
        unknown = [name for name in options or {} if name != "index"]
        if unknown:
            raise ValueError(f"options may hold 'index', got {unknown[0]!r}")
        index = (options or {}).get("index", self._index + 1)
        if isinstance(index, bool) or not isinstance(index, int | np.integer) or not 0 <= index < 1 << 63:
            raise ValueError(f"options: index must be a whole number in [0, 2^63), got {index!r}")
        self._index = int(index)
        self._item = self.task.items(self._seed, torch.tensor(self._index))
        self._asked = 0
        return self._observation(), self._info()

    def step(self, action: np.int64) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Answer the query.

        Raises:
            ValueError: the action is none of the space.
            ResetNeeded: the episode is over, or was never begun.
        """
        check_begun(self._item is not None and self._asked < self.task.queries, "step")
        if not self.action_space.contains(action):
            raise ValueError(f"action must lie in [0, {self.task.length}], got {action!r}")
        slot, abstains = self._info()["slot"], int(action) == self.task.length
        info = self._info()
        reward = float(slot < 0) if abstains else (1.0 if int(action) == slot else -1.0)
        self._asked += 1
        return self._observation(), reward, self._asked == self.task.queries, False, info

    def render(self) -> Any:
        """A picture of the item, the query marked, uint8 [height, width, 3]; None without a mode.

        Raises:
            ResetNeeded: before the first reset.
        """
        if not may_draw(self.render_mode, self._item is not None):
            return None
        shown = self._observation()
        return cells(shown["tokens"], self.task.vocabulary, int(shown["query"]))

    def _observation(self) -> dict[str, Any]:
        assert self._item is not None
        asked = min(self._asked, self.task.queries - 1)
        return {
            "tokens": self._item.tokens.numpy().copy(),
            "present": self._item.present.numpy().astype(np.int8),
            "query": np.int64(self._item.query[asked]),
            "loudness": self._item.loudness.numpy().copy(),
        }

    def _info(self) -> dict[str, Any]:
        assert self._item is not None
        return {"index": self._index, "slot": int(self._item.slot[self._asked])}
