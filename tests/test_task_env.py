"""The tasks as Gymnasium environments: clean by Gymnasium's own checker, same items, rewards by hand."""

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from stau_rl.envs.gym.task_env import TaskEnv
from stau_rl.envs.gym.task_registration import IDS, register_tasks
from stau_rl.envs.tasks import TASKS, parse_task

register_tasks()
each_id = pytest.mark.parametrize("name", IDS)


def test_every_task_has_an_id() -> None:
    assert sorted(IDS.values()) == sorted(TASKS)
    register_tasks()


@each_id
def test_the_checker_finds_nothing(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(name).unwrapped)


@each_id
def test_twin_rollouts_agree(name: str) -> None:
    twins = [gymnasium.make(name), gymnasium.make(name)]
    for number in range(20):
        observations = [env.reset(seed=5 if number == 0 else None)[0] for env in twins]
        over = False
        while not over:
            assert all(np.array_equal(observations[0][key], observations[1][key]) for key in observations[0])
            action = np.int64(number % twins[0].action_space.n)
            steps = [env.step(action) for env in twins]
            assert steps[0][1] == steps[1][1]
            observations, over = [step[0] for step in steps], steps[0][2]


@each_id
def test_items_are_those_of_the_task(name: str) -> None:
    env = gymnasium.make(name)
    items = parse_task(IDS[name]).items(9, torch.arange(5))
    for index in (0, 1, 2, 3):
        observation, info = env.reset(seed=9 if index == 0 else None)
        assert np.array_equal(observation["tokens"], items.tokens[index].numpy())
        assert (info["index"], info["slot"]) == (index, int(items.slot[index, 0]))
    observation, _ = env.reset(options={"index": 1})
    assert np.array_equal(observation["tokens"], items.tokens[1].numpy())


@each_id
def test_rewards(name: str) -> None:
    """Right slot +1, wrong slot -1, abstaining +1 where the key is absent and 0 elsewhere."""
    env = TaskEnv(IDS[name])
    abstain = np.int64(env.task.length)
    rewards: dict[str, set[float]] = {"right": set(), "wrong": set(), "held": set(), "absent": set()}
    for index in range(30):
        for choice in ("right", "wrong", "abstain"):
            _, info = env.reset(seed=1, options={"index": index})
            for asked in range(env.task.queries):
                slot = int(env.task.items(1, torch.tensor(index)).slot[asked])
                assert asked or info["slot"] == slot
                if choice == "abstain":
                    action, seen = abstain, "absent" if slot < 0 else "held"
                else:
                    seen = "right" if choice == "right" and slot >= 0 else "wrong"
                    action = np.int64(slot if seen == "right" else 0)
                _, reward, over, cut, _ = env.step(action)
                rewards[seen].add(reward)
                assert over == (asked == env.task.queries - 1)
                assert not cut
    expected = {"right": {1.0}, "wrong": {-1.0}, "held": {0.0}, "absent": set()}
    assert rewards == (expected | {"absent": {1.0}} if name == "stau_rl/Silence-v0" else expected)


def test_the_loudest_task_has_a_space() -> None:
    env = TaskEnv("recall", amplitude=5)
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)


def test_misuse_is_named() -> None:
    env = TaskEnv("recall")
    for ask in (lambda: env.step(np.int64(0)), env.render):
        with pytest.raises(ResetNeeded, match="call reset"):
            ask()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"action must lie in \[0, 17\]"):
        env.step(np.int64(18))
    env.step(np.int64(17))
    with pytest.raises(ResetNeeded, match="step needs an episode that is under way"):
        env.step(np.int64(17))
    with pytest.raises(ValueError, match="options may hold 'index', got 'item'"):
        env.reset(options={"item": 3})
    for index in (-1, 1.7, "a", 1 << 70):
        with pytest.raises(ValueError, match=r"index must be a whole number in \[0, 2\^63\), got"):
            env.reset(options={"index": index})
    with pytest.raises(ValueError, match="fields need the bare name"):
        TaskEnv("recall(pairs=4)", keys=9)
    assert TaskEnv("recall", pairs=4).task.pairs == 4
    for pairs in (2.5, "3"):
        with pytest.raises(ValueError, match="recall: pairs must be a whole number, got"):
            TaskEnv("recall", pairs=pairs)
    with pytest.raises(ValueError, match="recall has no argument 'foo'"):
        TaskEnv("recall", foo=2)


def test_pictures_show_the_item_and_mark_the_query() -> None:
    env = gymnasium.make("stau_rl/AssociativeRecall-v0", render_mode="rgb_array", pairs=2, keys=3, values=2)
    observation, _ = env.reset(seed=0)
    picture = env.render()
    assert picture.dtype == np.uint8
    # Five places of 48 pixels; the query is the last, and tokens 0 to 4 are of five shades.
    assert picture.shape == (24, 240, 3)
    assert picture[0, ::48, 0].tolist() == [240 - 50 * token for token in observation["tokens"]]
    assert picture[-1, ::48].tolist() == [[255, 255, 255]] * 4 + [[230, 159, 0]]


def test_registering_imports_neither_torch_nor_a_task() -> None:
    code = (
        "import sys\nfrom stau_rl.envs.gym.task_registration import register_tasks\nregister_tasks()\n"
        "print(sorted({'torch', 'stau_rl.envs.tasks.recall'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("first", ["registration", "task_registration", "bandits", "bandit_vectors", "task_env"])
def test_any_module_of_the_environments_may_be_the_first_import(first: str) -> None:
    code = f"import stau_rl.envs.gym.{first}\nimport gymnasium\nprint('stau_rl/Passkey-v0' in gymnasium.registry)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "True"
