"""The bandits as Gymnasium environments: the API, exact rewards and regrets, vectors that agree with single ones."""

import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.testing import assert_array_equal
from scipy.special import ndtri

from stau_rl.envs.gym.registration import IDS
from stau_rl.envs.gym.uniform_tape import UniformTape

ROOT = Path(__file__).resolve().parents[1]
MODES = ("NextStep", "SameStep")


def native(name, num_envs, **kwargs):
    return gym.make_vec(name, num_envs, vectorization_mode="vector_entry_point", **kwargs)


@pytest.mark.parametrize("name", IDS)
def test_check_env_has_nothing_to_say(name):
    env = gym.make(f"stau_rl:{name}")
    check_env(env.unwrapped)


@pytest.mark.parametrize(
    "code",
    [
        "import gymnasium",
        "import stau_rl, gymnasium",
        "import gymnasium, stau_rl",
        "import stau_rl, importlib.util; importlib.util.find_spec('gymnasium'); import gymnasium",
    ],
)
def test_ids_are_found_in_any_order_of_imports_and_without_torch(code):
    make = "env = gymnasium.make('stau_rl:stau_rl/BernoulliBandit-v0'); env.reset(seed=0); env.step(0)"
    tail = "; import sys; print('torch' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}; {make}{tail}"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert run.stdout.split() == ["False"]


@pytest.mark.parametrize("name", IDS)
def test_twins_under_one_seed_are_identical(name):
    twins = [gym.make(name, horizon=3) for _ in range(2)]
    for _ in range(4):
        starts = [twin.reset(seed=7) for twin in twins]
        assert_array_equal(starts[0][0], starts[1][0])
        assert starts[0][1] == starts[1][1]
        for action in (0, 2, 1):
            (first, *rest), (second, *others) = (twin.step(action) for twin in twins)
            assert_array_equal(first, second)
            assert rest == others


def assert_same_info(one, other):
    assert sorted(one) == sorted(other)
    for key, value in one.items():
        if isinstance(value, dict):
            assert_same_info(value, other[key])
        elif value.dtype == object:
            assert [np.asarray(entry).tolist() for entry in value] == [np.asarray(e).tolist() for e in other[key]]
        else:
            assert_array_equal(value, other[key], err_msg=key)
            assert value.dtype == other[key].dtype, key


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("name", IDS)
def test_native_vectors_are_gymnasiums_vector_of_single_environments(name, horizon, mode):
    """Observations, rewards, ends and infos, step by step; 7 environments, 40 steps, so the tape is refilled."""
    ours = native(name, 7, horizon=horizon, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: gym.make(name, horizon=horizon)] * 7, autoreset_mode=mode)
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"]
    assert ours.single_action_space == theirs.single_action_space
    assert ours.observation_space == theirs.observation_space
    random = np.random.default_rng(0)
    for seed in (11, None):
        (mine, info), (reference, reference_info) = ours.reset(seed=seed), theirs.reset(seed=seed)
        assert_array_equal(mine, reference)
        assert_same_info(info, reference_info)
        for _ in range(40):
            actions = random.integers(ours.single_action_space.n, size=7)
            (*mine, info), (*reference, reference_info) = ours.step(actions), theirs.step(actions)
            for one, other in zip(mine, reference, strict=True):
                assert_array_equal(one, other)
                assert one.dtype == other.dtype
            assert_same_info(info, reference_info)


def test_bernoulli_rewards_and_regret_are_those_of_the_generator():
    """Means 0.2, 0.9, 0.5: reward 1 where the uniform is below the mean; regret 0.9 less the mean."""
    env = gym.make("stau_rl/BernoulliBandit-v0", means=[0.2, 0.9, 0.5], horizon=6)
    _, info = env.reset(seed=3)
    assert info == {"best_arm": 1, "best_mean": 0.9}
    uniforms = np.random.Generator(np.random.PCG64(np.random.SeedSequence(3))).random(6)
    total = 0.0
    for t, arm in enumerate([0, 1, 2, 0, 2, 1]):
        _, reward, terminated, truncated, info = env.step(arm)
        mean = [0.2, 0.9, 0.5][arm]
        total += 0.9 - mean
        assert reward == float(uniforms[t] < mean)
        assert info["regret"] == pytest.approx(0.9 - mean, abs=1e-12)
        assert info["episode_regret"] == pytest.approx(total, abs=1e-12)
        assert (terminated, truncated) == (t == 5, False)


def test_gaussian_rewards_are_quantiles():
    env = gym.make("stau_rl/GaussianBandit-v0", k=3, loc=1.0, scale=2.0, sigma=0.5, horizon=2)
    _, info = env.reset(seed=5)
    uniforms = np.random.Generator(np.random.PCG64(np.random.SeedSequence(5))).random(5)
    means = 1.0 + 2.0 * ndtri(uniforms[:3])
    assert info["best_mean"] == pytest.approx(means.max(), rel=1e-12)
    for t, arm in enumerate([2, 0]):
        assert env.step(arm)[1] == pytest.approx(means[arm] + 0.5 * ndtri(uniforms[3 + t]), rel=1e-12)


def test_contextual_means_are_linear_in_the_context():
    theta = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 2.0]])
    env = gym.make("stau_rl/ContextualBandit-v0", k=3, dim=2, sigma=0.0, horizon=20)
    context, info = env.reset(seed=1, options={"means": theta})
    for t in range(20):
        means = theta @ context.astype(np.float64)
        assert info["best_arm"] == int(means.argmax())
        context, reward, _, _, step = env.step(t % 3)
        assert reward == pytest.approx(means[t % 3], rel=1e-12)
        assert step["regret"] == pytest.approx(means.max() - means[t % 3], abs=1e-12)
        info = {"best_arm": int((theta @ context.astype(np.float64)).argmax())}


def test_coefficients_of_all_episodes():
    """Arm 1 doubles the context of arm 0: the better one has the context's sign, in every episode."""
    envs = native("stau_rl/ContextualBandit-v0", 50, means=[[1.0], [2.0]], sigma=0.0, autoreset_mode="SameStep")
    contexts, info = envs.reset(seed=0)
    for _ in range(5):
        assert_array_equal(info["best_arm"], (contexts[:, 0] > 0).astype(int))
        before = contexts
        contexts, rewards, _, _, info = envs.step(np.ones(50, dtype=int))
        assert_array_equal(rewards, 2.0 * before[:, 0].astype(np.float64))
    with pytest.raises(ValueError, match="shape"):
        native("stau_rl/ContextualBandit-v0", 1, means=[1.0, 2.0])


def test_contexts_and_coefficients_have_their_stated_moments():
    """40 000 instances: uniform contexts have variance 1/3, coefficients 1/dim = 1/4; 5 standard errors."""
    envs = native("stau_rl/ContextualBandit-v0", 40_000, k=2, dim=4, sigma=0.0)
    contexts, info = envs.reset(seed=0)
    assert abs(float((contexts**2).mean()) - 1 / 3) < 5 * np.sqrt(4 / 45 / contexts.size)
    # The mean of an arm has variance dim * (1 / dim) * 1/3; both arms' maximum is centred at half their difference.
    best = info["best_mean"]
    assert abs(best.mean() - np.sqrt(1 / 3 / np.pi)) < 0.02


def test_empirical_rewards_come_from_the_arms_own_rows():
    rows = {"cheap": [1.0, 2.0], "dear": [10.0], "mixed": [0.0, 5.0, 100.0]}
    envs = native("stau_rl/EmpiricalBandit-v0", 3_000, observations=rows, horizon=3)
    _, info = envs.reset(seed=0)
    assert set(info["best_arm"]) == {2}
    assert info["best_mean"][0] == 35.0
    for arm, values in enumerate(rows.values()):
        rewards = envs.step(np.full(3_000, arm))[1]
        assert sorted(set(rewards)) == sorted(values)
        shares = [(rewards == value).mean() for value in values]
        assert max(abs(share - 1 / len(values)) for share in shares) < 0.05  # over 5 standard errors


def test_empirical_arms_of_a_file(tmp_path):
    (tmp_path / "clicks.csv").write_text("item,click\nb,1\na,0\nb,0\na,0\n")
    env = gym.make("stau_rl/EmpiricalBandit-v0", file=str(tmp_path / "clicks.csv"), arm="item", reward="click")
    _, info = env.reset(seed=0)
    assert info == {"best_arm": 1, "best_mean": 0.5}


def test_means_of_one_episode_are_given_by_the_reset():
    envs = native("stau_rl/BernoulliBandit-v0", 2, k=2)
    _, info = envs.reset(seed=0, options={"means": [[0.0, 1.0], [1.0, 0.0]]})
    assert_array_equal(info["best_arm"], [1, 0])
    assert_array_equal(envs.step(np.array([0, 0]))[1], [0.0, 1.0])
    # The reset step that follows draws means again.
    assert not np.isin(envs.step(np.array([0, 0]))[4]["best_mean"], (0.0, 1.0)).any()
    _, info = envs.reset(options={"means": [0.25, 0.5]})
    assert_array_equal(info["best_mean"], [0.5, 0.5])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("stau_rl/BernoulliBandit-v0", {"means": [0.5, 1.5]}, r"in \[0, 1\]"),
        ("stau_rl/BernoulliBandit-v0", {"means": [0.5]}, r"shape \(2,\)"),
        ("stau_rl/GaussianBandit-v0", {"means": [0.5, np.nan]}, "finite"),
        ("stau_rl/GaussianBandit-v0", {"mean": [0.5, 1.0]}, "'mean'"),
        ("stau_rl/GaussianBandit-v0", {"means": ["a", "b"]}, "numbers"),
    ],
)
def test_bad_options_are_named(name, options, message):
    with pytest.raises(ValueError, match=message):
        gym.make(name, k=2).reset(seed=0, options=options)


def test_empirical_means_cannot_be_set():
    with pytest.raises(ValueError, match="those of their observations"):
        gym.make("stau_rl/EmpiricalBandit-v0").reset(seed=0, options={"means": [0.0] * 6})


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"horizon": 0}, "horizon"),
        ({"horizon": 1.5}, "horizon must be a whole number"),
        ({"k": 0}, "k must"),
        ({"means": [2.0]}, "2.0"),
        ({"render_mode": "human"}, "all that is drawn here"),
    ],
)
def test_bad_arguments_are_named(kwargs, message):
    from stau_rl.envs.gym.bandit_vectors import BernoulliBanditVectorEnv
    from stau_rl.envs.gym.bandits import BernoulliBanditEnv

    for kind in (BernoulliBanditEnv, BernoulliBanditVectorEnv):
        with pytest.raises(ValueError, match=message):
            kind(**kwargs)


def test_actions_must_be_arms():
    envs = native("stau_rl/BernoulliBandit-v0", 2, k=3)
    envs.reset(seed=0)
    for actions, message in (([0, 3], "got 3"), ([-1, 0], "got -1"), ([0], "shape")):
        with pytest.raises(ValueError, match=message):
            envs.step(np.array(actions))
    env = gym.make("stau_rl/BernoulliBandit-v0", k=3).unwrapped
    env.reset(seed=0)
    for step, action in ((envs.step, np.array([0.0, 1.7])), (env.step, 1.7)):
        with pytest.raises(ValueError, match="whole numbers, got float64"):
            step(action)
    with pytest.raises(ValueError, match="arms 0 to 2"):
        env.step(3)


def test_a_vector_environment_says_what_it_cannot_do():
    with pytest.raises(ValueError, match="NextStep or SameStep"):
        native("stau_rl/BernoulliBandit-v0", 2, autoreset_mode=AutoresetMode.DISABLED)
    with pytest.raises(ValueError, match="one number or 2"):
        native("stau_rl/BernoulliBandit-v0", 2).reset(seed=[1, 2, 3])
    with pytest.raises(gym.error.ResetNeeded, match="call reset first"):
        native("stau_rl/BernoulliBandit-v0", 2).step(np.zeros(2, dtype=np.int64))


@pytest.mark.parametrize("kind", ["Bernoulli", "Gaussian", "Contextual", "Empirical"])
def test_nothing_is_played_or_drawn_before_a_reset(kind):
    from stau_rl.envs.gym import bandit_vectors, bandits

    single = getattr(bandits, f"{kind}BanditEnv")(render_mode="rgb_array")
    several = getattr(bandit_vectors, f"{kind}BanditVectorEnv")(2, render_mode="rgb_array")
    for ask in (lambda: single.step(0), lambda: several.step(np.zeros(2, dtype=int)), single.render, several.render):
        with pytest.raises(gym.error.ResetNeeded, match="call reset first"):
            ask()


@pytest.mark.parametrize("name", IDS)
def test_nothing_is_played_after_the_end(name):
    for env in (gym.make(name, horizon=2), gym.make(name, horizon=2).unwrapped):
        for _ in range(2):
            env.reset(seed=0)
            assert [env.step(0)[2] for _ in range(2)] == [False, True]
            with pytest.raises(gym.error.ResetNeeded, match="call reset first"):
                env.step(0)


@pytest.mark.parametrize("horizon", [2, 3, 5])
@pytest.mark.parametrize("mode", MODES)
def test_vectors_are_cut_off_as_gymnasium_cuts_off_single_ones(horizon, mode):
    limits = {"horizon": horizon, "max_episode_steps": 3, "k": 4}
    ours = native("stau_rl/GaussianBandit-v0", 2, autoreset_mode=mode, **limits)
    theirs = SyncVectorEnv([lambda: gym.make("stau_rl/GaussianBandit-v0", **limits)] * 2, autoreset_mode=mode)
    assert_array_equal(ours.reset(seed=4)[1]["best_mean"], theirs.reset(seed=4)[1]["best_mean"])
    ends = []
    for step in range(12):
        (_, *mine, _), (_, *expected, _) = (env.step(np.array([step % 4, 1])) for env in (ours, theirs))
        for one, other in zip(mine, expected, strict=True):
            assert_array_equal(one, other)
        ends.append((bool(mine[1][0]), bool(mine[2][0])))
    assert (any(end for end, _ in ends), any(cut for _, cut in ends)) == (horizon <= 3, horizon >= 3)
    with pytest.raises(ValueError, match="max_episode_steps must be a whole number of at least 1, got 0"):
        native("stau_rl/GaussianBandit-v0", 2, max_episode_steps=0)
    assert native("stau_rl/GaussianBandit-v0", 2, max_episode_steps=-1).max_episode_steps is None


def test_pictures_show_means_best_and_pulled_arm():
    """What libraries ask for by default: Stable-Baselines3 makes every id with render_mode="rgb_array"."""
    means = {"means": [0.25, 0.75, 0.5], "render_mode": "rgb_array", "horizon": 4}
    env = gym.make("stau_rl/BernoulliBandit-v0", **means)
    env.reset(seed=0)
    env.step(0)
    picture = env.render()
    assert picture.dtype == np.uint8
    assert picture.shape == (120, 240, 3)
    blue, grey, orange = (0, 114, 178), (190, 196, 204), (230, 159, 0)
    bars = picture[:, 40::80]
    # Foot 8, then 8 for the least mean to 8 + 96 for the largest.
    assert [int(np.isin(bars[:-8, k, 0], (0, 190)).sum()) for k in range(3)] == [8, 104, 56]
    assert [tuple(bars[-9, k]) for k in range(3)] == [grey, blue, grey]
    assert [tuple(bars[-1, k]) for k in range(3)] == [orange, (255,) * 3, (255,) * 3]
    envs = native("stau_rl/BernoulliBandit-v0", 2, **means)
    envs.reset(seed=0)
    envs.step(np.array([0, 2]))
    first, second = envs.render()
    assert_array_equal(first, picture)
    assert tuple(second[-1, 200]) == orange


def test_a_picture_needs_a_mode():
    env = gym.make("stau_rl/BernoulliBandit-v0").unwrapped
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="without a render mode"):
        assert env.render() is None


@pytest.mark.parametrize("counts", [(1, 3, 2), (1500, 1, 700), (5000, 5000)])
def test_a_tape_gives_every_generators_own_uniforms(counts):
    tape = UniformTape([np.random.default_rng(seed) for seed in range(35)])
    singles = [np.random.default_rng(seed) for seed in range(35)]
    for count in counts:
        expected = np.array([[single.random() for _ in range(count)] for single in singles]).T
        assert_array_equal(tape.take(count), expected)
