"""Heads inside the real libraries: the documented examples run, heads learn, save and load, masks hold."""

import importlib.util
import os
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributions import Distribution

import doc_blocks
from stau_rl.heads import parse_head

ROOT = Path(__file__).resolve().parents[1]
MODULES = {"stable-baselines3": "stable_baselines3", "sb3-contrib": "sb3_contrib", "torchrl": "torchrl"}


def needs(library):
    missing = importlib.util.find_spec(library) is None
    skip = pytest.mark.skipif(missing, reason=f"{library} is not installed; the extra `integrations` has it")
    return lambda test: pytest.mark.integrations(skip(test))


@pytest.fixture(autouse=True)
def _validation_as_it_was():
    """Importing torchrl turns torch's validation off for the whole process."""
    before = Distribution._validate_args
    yield
    Distribution.set_default_validate_args(before)


def example(name):
    """The example of that name in docs/, run; its variables."""
    names = {"__name__": "example"}
    exec(compile(doc_blocks.example(name), name, "exec"), names)
    return names


@needs("stable_baselines3")
def test_stable_baselines3_example_learns_tau_saves_and_loads(tmp_path, capsys):
    from stable_baselines3 import PPO

    names = example("stable-baselines3")
    model = names["model"]
    policy = model.policy
    assert "tensor(" in capsys.readouterr().out
    assert policy.head.score_offset == 1.0
    in_optimizer = [id(one) for group in policy.optimizer.param_groups for one in group["params"]]
    assert in_optimizer.count(id(policy.head.log_tau)) == 1
    assert policy.head.value("tau").item() != pytest.approx(2.0, abs=1e-6)
    assert policy.head.log_tau in policy.optimizer.state
    model.save(tmp_path / "model.zip")
    again = PPO.load(tmp_path / "model.zip", device="cpu").policy
    assert str(again.head) == str(policy.head)
    assert torch.equal(again.head.log_tau, policy.head.log_tau)
    policy.save(tmp_path / "policy.pt")
    alone = type(policy).load(tmp_path / "policy.pt", device="cpu")
    observation = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    for loaded in (again, alone):
        expected, found = policy.get_distribution(observation), loaded.get_distribution(observation)
        assert torch.equal(expected.distribution.probs, found.distribution.probs)
    assert names["escort"].policy.head.head == parse_head("escort(p=2)")


@needs("stable_baselines3")
def test_stable_baselines3_probabilities_are_the_heads():
    from stable_baselines3 import A2C

    from stau_rl.integrations.sb3 import STauPolicy

    policy = A2C(STauPolicy, "CartPole-v1", seed=0, device="cpu").policy
    observation = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    latent = policy.mlp_extractor.forward_actor(policy.extract_features(observation))
    scores = policy.action_net(latent).detach()
    weights = parse_head("s_tau(tau=2)").weights(scores)
    wrapped = policy.get_distribution(observation)
    torch.testing.assert_close(wrapped.distribution.probs, weights, rtol=1e-5, atol=1e-7)
    _, log_prob, entropy = policy.evaluate_actions(observation, torch.ones(6))
    torch.testing.assert_close(log_prob.exp(), weights[:, 1], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(entropy, torch.special.entr(weights).sum(-1), rtol=1e-5, atol=1e-7)
    assert torch.equal(wrapped.mode(), weights.argmax(-1))


@needs("stable_baselines3")
def test_a_callback_keeps_tau_frozen_through_the_warm_up():
    from stable_baselines3 import PPO

    from stau_rl.integrations.sb3 import STauPolicy

    seen = []

    class Watched(example("warm-up")["Warmup"]):
        def _on_rollout_start(self):
            super()._on_rollout_start()
            seen.append(self.model.policy.head.log_tau.item())

    model = PPO(STauPolicy, "CartPole-v1", n_steps=64, batch_size=64, n_epochs=1, seed=0, device="cpu")
    model.learn(192, callback=Watched(rollouts=2))
    assert len(seen) == 3
    assert seen[0] == seen[1] == seen[2]
    assert model.policy.head.log_tau.item() != seen[2]


@needs("stable_baselines3")
@pytest.mark.parametrize(
    ("env", "head", "message"),
    [
        ("Pendulum-v1", "softmax", "action_space must be Discrete or MultiDiscrete"),
        ("CartPole-v1", "sofmax", "did you mean 'softmax'"),
    ],
)
def test_stable_baselines3_errors_name_the_argument(env, head, message):
    from stable_baselines3 import PPO

    from stau_rl.integrations.sb3 import HeadActorCriticPolicy

    with pytest.raises(ValueError, match=message):
        PPO(HeadActorCriticPolicy, env, policy_kwargs={"head": head}, device="cpu")


@needs("stable_baselines3")
def test_head_lr_is_the_rate_of_the_heads_parameters(tmp_path):
    """Adam's first step moves each parameter by its rate, whatever the gradient; the schedule scales both."""
    from stable_baselines3 import PPO

    from stau_rl.integrations.sb3 import STauPolicy

    moved = {}
    for head_lr in (None, 0.05):
        model = PPO(STauPolicy, "CartPole-v1", learning_rate=lambda left: 1e-3 * left, n_steps=64, batch_size=64,
                    n_epochs=1, policy_kwargs={"head_lr": head_lr}, seed=0, device="cpu")  # fmt: skip
        before = {name: one.detach().clone() for name, one in model.policy.named_parameters()}
        # The first of two updates: half of the schedule is left.
        model.learn(128, callback=lambda found, _: found["self"].num_timesteps < 65)
        moved[head_lr] = {
            name: (one - before[name]).abs().max().item() for name, one in model.policy.named_parameters()
        }
    rates = {head_lr: change["head.log_tau"] for head_lr, change in moved.items()}
    assert rates[0.05] / rates[None] == pytest.approx(50.0, rel=0.02)
    assert moved[0.05]["value_net.bias"] == pytest.approx(moved[None]["value_net.bias"], rel=1e-4)
    # A saved model goes on with its own rate.
    model.save(tmp_path / "model.zip")
    again = PPO.load(tmp_path / "model.zip", env=model.get_env(), device="cpu")
    assert again.policy.head_lr == 0.05
    assert [group.get("lr_factor") for group in again.policy.optimizer.param_groups] == [None, pytest.approx(50.0)]


@needs("stable_baselines3")
def test_parameters_by_name_and_a_single_name_to_learn():
    from stable_baselines3 import A2C

    from stau_rl.integrations.sb3 import HeadActorCriticPolicy, STauPolicy

    policy = A2C(STauPolicy, "CartPole-v1", policy_kwargs={"tau": 4.0, "learn": "tau"}, device="cpu").policy
    assert policy.head.value("tau").item() == pytest.approx(4.0)
    assert policy.head.log_tau.requires_grad
    options = {"head": "softmax", "beta": 3, "learn": ()}
    assert A2C(
        HeadActorCriticPolicy, "CartPole-v1", policy_kwargs=options, device="cpu"
    ).policy.head.head == parse_head("softmax(beta=3)")
    with pytest.raises(ValueError, match="head_lr must be above 0, and needs parameters to learn"):
        A2C(HeadActorCriticPolicy, "CartPole-v1", policy_kwargs={"head_lr": 0.1}, device="cpu")


@needs("stable_baselines3")
def test_features_are_extracted_as_the_observation_asks():
    from gymnasium import spaces
    from stable_baselines3 import PPO
    from stable_baselines3.common.envs import FakeImageEnv, SimpleMultiObsEnv
    from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor, NatureCNN

    from stau_rl.integrations.sb3 import STauPolicy

    made = {
        NatureCNN: FakeImageEnv(screen_height=36, screen_width=36, discrete=True),
        CombinedExtractor: SimpleMultiObsEnv(channel_last=False, discrete_actions=True),
        FlattenExtractor: "CartPole-v1",
    }
    for kind, env in made.items():
        model = PPO(STauPolicy, env, n_steps=8, batch_size=8, n_epochs=1, seed=0, device="cpu").learn(8)
        assert type(model.policy.features_extractor) is kind
        assert isinstance(model.action_space, spaces.Discrete)
    given = {"features_extractor_class": FlattenExtractor}
    model = PPO(STauPolicy, made[NatureCNN], n_steps=8, batch_size=8, policy_kwargs=given, device="cpu")
    assert type(model.policy.features_extractor) is FlattenExtractor


@needs("stable_baselines3")
def test_multi_discrete_actions_have_a_head_each():
    names = example("multi-discrete")
    model = names["model"]
    observation = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    policy = model.policy
    wrapped = policy.get_distribution(observation)
    scores = policy.action_net(policy.mlp_extractor.forward_actor(policy.extract_features(observation))).detach()
    first, second = (policy.head.head.weights(part) for part in scores.split([2, 3], dim=1))
    assert policy.head.value("tau").item() != pytest.approx(2.0, abs=1e-6)
    rule = parse_head(f"s_tau(tau={policy.head.value('tau').item()!r})")
    first, second = (rule.weights(part) for part in scores.split([2, 3], dim=1))
    torch.testing.assert_close(wrapped.distribution[0].probs, first, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(wrapped.distribution[1].probs, second, rtol=1e-4, atol=1e-6)
    actions = torch.tensor([[1, 2]]).expand(5, 2)
    torch.testing.assert_close(wrapped.log_prob(actions).exp(), first[:, 1] * second[:, 2], rtol=1e-4, atol=1e-7)
    assert torch.equal(wrapped.mode(), torch.stack([first.argmax(1), second.argmax(1)], 1))


@needs("sb3_contrib")
def test_masks_hold_for_several_actions():
    from sb3_contrib import MaskablePPO
    from sb3_contrib.common.envs import InvalidActionEnvMultiDiscrete

    from stau_rl.integrations.sb3_maskable import MaskableHeadPolicy

    env = InvalidActionEnvMultiDiscrete(dims=[4, 3], n_invalid_actions=1)
    options = {"head": "s_tau(tau=2)", "learn": "tau"}
    model = MaskablePPO(MaskableHeadPolicy, env, n_steps=32, batch_size=32, policy_kwargs=options, seed=0, device="cpu")
    model.learn(32)
    batch, _ = model.policy.obs_to_tensor(env.reset(seed=0)[0])
    masks = np.array([[True, False, True, False, False, True, True]])
    parts = model.policy.get_distribution(batch, masks).distributions
    assert (parts[0].probs[0, [1, 3]] == 0).all()
    assert parts[1].probs[0, 0] == 0
    torch.testing.assert_close(torch.stack([part.probs.sum() for part in parts]), torch.ones(2))


@needs("sb3_contrib")
def test_sb3_contrib_example_never_takes_an_invalid_action(tmp_path):
    names = example("sb3-contrib")
    model, env = names["model"], names["env"]
    assert model.policy.head.value("tau").item() != pytest.approx(2.0, abs=1e-6)
    observation, _ = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(50):
        masks = rng.random(20) < 0.3
        masks[rng.integers(20)] = True
        for deterministic in (True, False):
            action, _ = model.predict(observation, action_masks=masks, deterministic=deterministic)
            assert masks[int(action)]
    batch, _ = model.policy.obs_to_tensor(np.array([1, 5, 7]))
    masks = rng.random((3, 20)) < 0.5
    masks[:, 0] = True
    distribution = model.policy.get_distribution(batch, masks).distribution
    assert (distribution.probs[~torch.as_tensor(masks)] == 0).all()
    torch.testing.assert_close(distribution.probs.sum(-1), torch.ones(3))
    model.save(tmp_path / "model.zip")
    again = type(model).load(tmp_path / "model.zip", device="cpu")
    assert torch.equal(again.policy.get_distribution(batch, masks).distribution.probs, distribution.probs)


def import_torchrl():
    """Its import warns and turns torch's validation off."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torchrl
        import torchrl.modules
        import torchrl.objectives
    return torchrl


@needs("torchrl")
def test_torchrl_example_draws_actions_and_masks_them():
    import_torchrl()
    torch.manual_seed(0)
    names = example("torchrl")
    data = names["data"]
    for actor, allowed in ((names["learned"], {0, 1, 2}), (names["fixed"], {0, 2})):
        drawn = actor(data.expand(200, 5).clone())
        assert len(drawn["action"].unique()) > 1
        assert set(drawn["action"].unique().tolist()) <= allowed
        distribution = actor.get_dist(drawn)
        torch.testing.assert_close(drawn["action_log_prob"], distribution.log_prob(drawn["action"]))


@needs("torchrl")
def test_torchrl_ppo_loss_reaches_tau():
    torchrl = import_torchrl()
    from tensordict.nn import TensorDictModule

    names = example("torchrl")
    actor, data = names["learned"], names["data"]
    value = torchrl.modules.ValueOperator(torch.nn.Linear(4, 1), in_keys=["observation"])
    assert isinstance(actor.module[0], TensorDictModule)
    loss = torchrl.objectives.ClipPPOLoss(actor, value)
    drawn = actor(data.clone()).detach()
    drawn["advantage"] = torch.randn(5, 1, generator=torch.Generator().manual_seed(0))
    drawn["value_target"] = torch.zeros(5, 1)
    found = loss(drawn)
    (found["loss_objective"] + found["loss_entropy"]).backward()
    gradients = {name: one.grad for name, one in loss.named_parameters() if "log_tau" in name}
    assert len(gradients) == 1
    (gradient,) = gradients.values()
    assert gradient.isfinite()
    assert gradient != 0


def where_installed(library):
    """Libraries that no extra has."""
    missing = importlib.util.find_spec(library) is None
    skip = pytest.mark.skipif(
        missing, reason=f"{library} is not installed; docs/integrations.md has the release to try"
    )
    return lambda test: pytest.mark.integrations(skip(test))


def alone(name, before, after):
    """What an example prints in an interpreter of its own: these libraries warn, and change settings of the process."""
    code = "\n".join([before, doc_blocks.example(name), after])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "RAY_AUTH_MODE": "disabled"}
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=240, check=False
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout


@where_installed("ray")
def test_rllib_example_trains_tau_and_restores_it(tmp_path):
    shown = alone(
        "rllib",
        "import ray\nray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)",
        "def tau(one):\n"
        "    return one.get_module().pi[-1].value('tau').item()\n"
        "module = algorithm.learner_group._learner.module['default_policy']\n"
        "optimizers = algorithm.learner_group._learner._named_optimizers.values()\n"
        "kept = [id(one) for each in optimizers for group in each.param_groups for one in group['params']]\n"
        f"algorithm.save({str(tmp_path)!r})\n"
        "again = config.build_algo()\n"
        "fresh = tau(again)\n"
        f"again.restore({str(tmp_path)!r})\n"
        "print('found', kept.count(id(module.unwrapped().pi[-1].log_tau)), fresh, tau(algorithm), tau(again))\n"
        "ray.shutdown()\n",
    )
    (line,) = [line for line in shown.splitlines() if line.startswith("found")]
    count, fresh, trained, restored = map(float, line.split()[1:])
    assert count == 1
    assert fresh == pytest.approx(2.0, abs=1e-6)
    assert trained != pytest.approx(2.0, abs=1e-6)
    assert restored == trained


@where_installed("skrl")
def test_skrl_example_moves_tau():
    shown = alone("skrl", "", "print('found', models['policy'].net[-1].value('tau').item())")
    (line,) = [line for line in shown.splitlines() if line.startswith("found")]
    assert float(line.split()[1]) != pytest.approx(2.0, abs=1e-6)


@where_installed("tianshou")
def test_tianshou_example_moves_tau():
    shown = alone("tianshou", "", "print('found', actor.head.value('tau').item())")
    (line,) = [line for line in shown.splitlines() if line.startswith("found")]
    assert float(line.split()[1]) != pytest.approx(2.0, abs=1e-6)


def test_the_single_file_ppo_learns_and_moves_tau():
    module = runpy.run_path(str(ROOT / "notebooks" / "single_file_ppo.py"))
    agent, returns = module["train"](module["Settings"](steps=8192, seed=1, lr=1e-3, head_lr=1e-3))
    # A random policy holds the pole for 22 steps on average; the first episodes are of that kind.
    assert np.mean(returns[:20]) < 40
    assert np.mean(returns[-20:]) > 60
    assert agent.head.value("tau").item() != pytest.approx(2.0, abs=1e-4)


def test_advantages_of_the_single_file_by_hand():
    # gamma = lambda = 1/2: delta = (1 + 4/2 - 2, 3 - 4) = (1, -1); the episode ends after step 2: A = (1 - 1/4, -1).
    advantages = runpy.run_path(str(ROOT / "notebooks" / "single_file_ppo.py"))["advantages"]
    rewards, values = torch.tensor([[1.0], [3.0]]), torch.tensor([[2.0], [4.0]])
    found = advantages(rewards, values, torch.tensor([[False], [True]]), torch.tensor([9.0]), 0.5, 0.5)
    assert found.tolist() == [[0.75], [-1.0]]


def test_our_imports_leave_torchs_validation_as_it_was():
    """In a fresh interpreter; every public name and every integration that is here."""
    code = (
        "import importlib, importlib.util\n"
        "from torch.distributions import Distribution\n"
        "before = Distribution._validate_args\n"
        "import stau_rl\n"
        "for name in stau_rl.__all__: getattr(stau_rl, name)\n"
        "import stau_rl.integrations\n"
        "for library, module in (('stable_baselines3', 'sb3'), ('sb3_contrib', 'sb3_maskable')):\n"
        "    if importlib.util.find_spec(library): importlib.import_module('stau_rl.integrations.' + module)\n"
        "policy = stau_rl.HeadCategorical(__import__('torch').zeros(3), 's_tau')\n"
        "print(before, Distribution._validate_args, policy._validate_args)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert run.stdout.split() == ["True", "True", "True"]
