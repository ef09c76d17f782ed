"""Remedies for a learned sharpness in the agents: warm-up and target entropy, resumed bit by bit, mistakes by name."""

import math
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
import torch

from stau_rl.agents.policy_gradient import AGENTS, agent_class
from stau_rl.agents.policy_gradient.environments import make_envs
from stau_rl.agents.policy_gradient.ppo import PPOSettings
from stau_rl.agents.policy_gradient.rollout import RolloutWorker
from stau_rl.heads import parse_head
from stau_rl.nn.learned import LearnedHead
from stau_rl.nn.remedies import EntropyControl
from stau_rl.plugin.plugin_head import forget, head
from stau_rl.training.run import RunSpec, play_run

OWN = {"ppo": {"rollout": 16, "minibatch": 32}, "a2c": {}, "reinforce": {"envs": 16}}
LEARNED = {"head": "s_tau(tau=2)", "learn": ("tau",)}


@pytest.fixture(autouse=True)
def four_arms():
    """Four arms that pay with these probabilities."""
    import stau_rl  # noqa: F401

    gym.register(
        "four-arms-v0",
        entry_point="stau_rl.envs.gym.bandits:BernoulliBanditEnv",
        vector_entry_point="stau_rl.envs.gym.bandit_vectors:BernoulliBanditVectorEnv",
        kwargs={"means": [0.9, 0.6, 0.3, 0.1]},
    )
    yield
    del gym.registry["four-arms-v0"]


def settings(name, **given):
    base = {"env": "four-arms-v0", "steps": 2000, "hidden": (8,), "learning_rate": 0.01, "score_offset": 0.5}
    short = {"points": 1, "curve_episodes": 0, "episodes": 5}
    return agent_class(name).Settings(**base | short | OWN[name] | LEARNED | given)


def make(name, seed=3, **given):
    return agent_class(name)(settings(name, **given), seed)


def raw(agent):
    return agent.network.module.raw(agent.network.head.sharpness).item()


def course(agent):
    """Step and raw sharpness before the first update and after each, over one segment."""
    seen = [(agent.step, raw(agent))]
    agent.play_segment(lambda what, step, steps: seen.append((step, raw(agent))))
    return seen


def entropy_share(agent, at=None):
    """Of the policy on the bandit's one observation, in numpy from the weights of a head."""
    observation = RolloutWorker(make_envs("four-arms-v0", 1), agent.spaces, 0)._rows
    scores = agent.network.actor(torch.from_numpy(observation)).detach().double()
    p = (at or agent.network.head).weights(scores)[0].detach().numpy()
    return -(p * np.log(p)).sum() / math.log(4)


@pytest.mark.parametrize("control", [{}, {"target_entropy": 0.6}], ids=["gradient", "control"])
@pytest.mark.parametrize("name", list(AGENTS))
def test_a_warm_up_keeps_tau_at_its_start_and_then_lets_it_go(name, control):
    """An update moves tau if and only if it begins after `head_warmup` steps; the rest learns all along."""
    agent = make(name, head_warmup=700, **control)
    weights = agent.optimiser.flat.detach().clone()
    seen = course(agent)
    moved = [after[1] != before[1] for before, after in pairwise(seen)]
    assert moved == [step >= 700 for step, _ in seen[:-1]]
    assert 5 <= sum(moved) < len(moved)
    assert not torch.equal(agent.optimiser.flat, weights)


def test_the_first_update_after_a_warm_up_is_adams_first():
    """Of the size of its learning rate, since no moments were gathered: 0.01 times the head's 0.1."""
    seen = course(make("a2c", head_warmup=700, anneal=False))
    sizes = [abs(after[1] - before[1]) for before, after in pairwise(seen)]
    assert next(size for size in sizes if size) == pytest.approx(0.001, rel=0.02)


@pytest.mark.parametrize("name", list(AGENTS))
def test_one_step_of_the_control_by_hand(name):
    """The number behind tau moves by rate (H / log n - share), H at the scores after the update and the tau before."""
    agent = make(name, target_entropy=0.3, target_entropy_rate=0.7)
    before = raw(agent)
    worker = RolloutWorker(make_envs("four-arms-v0", agent.settings.envs), agent.spaces, 0)
    agent.update(worker, np.random.default_rng(0))
    expected = 0.7 * (entropy_share(agent, parse_head("s_tau(tau=2)")) - 0.3)
    assert raw(agent) - before == pytest.approx(expected, rel=1e-4)


# PPO takes 16 gradient steps where the others take one.
RATES = {"reinforce": 1e-3, "a2c": 1e-3, "ppo": 3e-4}


@pytest.mark.parametrize("target", [0.3, 0.7])
@pytest.mark.parametrize(("head", "learn"), [("s_tau(tau=2)", "tau"), ("softmax(beta=1)", "beta")])
@pytest.mark.parametrize("name", list(AGENTS))
def test_the_entropy_is_led_to_its_target(name, head, learn, target):
    """From almost uniform, while the scores move apart; no setting without control could end at both targets."""
    given = {"head": head, "learn": (learn,), "steps": 6000, "learning_rate": RATES[name]}
    agent = make(name, target_entropy=target, target_entropy_rate=3.0, **given)
    assert entropy_share(agent) > 0.9
    agent.play_segment()
    assert entropy_share(agent) == pytest.approx(target, abs=0.03)


def test_the_range_of_the_sharpness_bounds_what_control_can_do():
    """Scores so far apart that even tau = 1 has less entropy: tau stays there, and nothing breaks."""
    agent = make("ppo", target_entropy=0.7, target_entropy_rate=1.0, steps=6000, learning_rate=0.003)
    agent.play_segment()
    assert agent.network.module.value("tau").item() == pytest.approx(1.0, abs=0.01)
    assert 0 < entropy_share(agent) < 0.6


@pytest.mark.parametrize("warm_up", [0, 700])
def test_under_control_no_gradient_reaches_the_sharpness(warm_up):
    """Its learning rate then changes no number."""
    found = [
        course(make("a2c", head_warmup=warm_up, target_entropy=0.6, head_rate=head_rate)) for head_rate in (0.1, 10.0)
    ]
    assert found[0] == found[1]
    assert course(make("a2c", head_warmup=warm_up, head_rate=10.0)) != found[0]


def test_other_learned_parameters_go_on_along_the_gradient():
    @head("tilted_rl", p=3.0, tilt=0.5, sharpness="p")
    def tilted_rl(scores, p, tilt):
        return p * (scores + tilt * scores.abs())

    try:
        agent = make("a2c", head="tilted_rl", learn=("p", "tilt"), target_entropy=0.6, head_warmup=700)
        p, tilt = agent.network.module.raw("p"), agent.network.module.raw("tilt")
        assert not p.requires_grad
        assert not tilt.requires_grad
        start = tilt.item()
        agent.play_segment()
        assert tilt.item() != start
        assert tilt.requires_grad
        assert not p.requires_grad
    finally:
        forget("tilted_rl")


REMEDIES = [
    {"head_warmup": 900},
    {"target_entropy": 0.6},
    {"head_warmup": 900, "target_entropy": 0.6, "target_entropy_rate": 0.5},
]


@pytest.mark.parametrize("remedy", REMEDIES, ids=["warm-up", "control", "both"])
@pytest.mark.parametrize("name", list(AGENTS))
def test_a_run_stopped_anywhere_resumes_to_the_same_numbers(name, remedy, tmp_path):
    """Of four segments of 500 steps, stopped in the second, which the warm-up ends in, and the fourth."""

    class Stop(Exception):
        pass

    def play(checkpoint=None, until=math.inf):
        def report(what, step, steps):
            if step > until:
                raise Stop

        return play_run(run, checkpoint, report)[0]

    own = {"envs": 4} if name == "reinforce" else {}
    given = settings(name, env="CartPole-v1", points=4, curve_episodes=2, **own, **remedy)
    run = RunSpec(name, given.as_dict(), 5)
    whole = play()
    for until, low, high in ((700, 500, 900), (1700, 1500, 2000)):
        with pytest.raises(Stop):
            play(tmp_path / "state.pt", until)
        state = torch.load(tmp_path / "state.pt", weights_only=True)
        assert low <= state["step"] < high
    assert play(tmp_path / "state.pt") == whole
    other = run.make()
    other.load(state)
    other.play_segment()
    agent = run.make()
    while not agent.finished:
        agent.play_segment()
    assert str(agent.state()) == str(other.state())


@pytest.mark.parametrize("remedy", REMEDIES, ids=["warm-up", "control", "both"])
def test_an_agent_goes_back_to_an_earlier_state(remedy):
    """After its end the same agent takes up the state of its first segment, where tau was frozen."""
    agent = make("a2c", points=4, **remedy)
    agent.play_segment()
    early = agent.state()
    for _ in range(3):
        agent.play_segment()
    late = str(agent.state())
    agent.load(early)
    for _ in range(3):
        agent.play_segment()
    assert str(agent.state()) == late


def test_remedies_that_are_off_are_no_part_of_a_training():
    """A folder's settings from before there were any are still the same; those that are on are all told."""
    plain = settings("ppo").as_dict()
    assert not {"head_warmup", "target_entropy", "target_entropy_rate"} & set(plain)
    told = settings("ppo", head_warmup=5, target_entropy=0.5).as_dict()
    assert {name: told[name] for name in told if name not in plain} == {
        "head_warmup": 5,
        "target_entropy": 0.5,
        "target_entropy_rate": 0.1,
    }
    assert RunSpec("ppo", told, 0).make().settings == settings("ppo", head_warmup=5, target_entropy=0.5)


def test_remedies_from_texts():
    texts = {"learn": "tau", "head_warmup": "300", "target_entropy": "0.4", "target_entropy_rate": "0.2"}
    found = PPOSettings.from_texts(texts, head="s_tau(tau=2)")
    assert (found.head_warmup, found.target_entropy, found.target_entropy_rate) == (300, 0.4, 0.2)
    for name, text, message in (("head_warmup", "1.5", "a whole number"), ("target_entropy", "half", "a number")):
        with pytest.raises(ValueError, match=f"{name} must be {message}, got '{text}'"):
            PPOSettings.from_texts({**texts, name: text}, head="s_tau(tau=2)")


@pytest.mark.parametrize("name", list(AGENTS))
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"head_warmup": 9, "learn": ()}, r"head_warmup=9 freezes what s_tau\(.*\) learns.*set learn=tau"),
        (
            {"target_entropy": 0.5, "learn": ()},
            r"target_entropy=0.5 moves tau of s_tau.*learn=nothing\); set learn=tau$",
        ),
        ({"target_entropy": 0.5, "learn": ("eps",)}, r"\(learn=eps\); set learn=eps,tau$"),
        (
            {"target_entropy": 0.5, "head": "softplus_norm", "learn": ()},
            "target_entropy=0.5 moves a head's sharpness, and softplus_norm has none; take a head that has",
        ),
        ({"head_warmup": -1}, "head_warmup must be at least 0 and below steps=2000, got -1"),
        ({"head_warmup": 2000}, "head_warmup must be at least 0 and below steps=2000, got 2000"),
        ({"target_entropy": 1.0}, r"target_entropy must be in \(0, 1\), or 0 to leave it off, got 1.0"),
        ({"target_entropy": math.nan}, "target_entropy must be .* got nan"),
        ({"target_entropy": 0.5, "target_entropy_rate": 0.0}, "target_entropy_rate must be positive and finite"),
        ({"head_rate": 5.0, "learn": ()}, "head_rate=5 has no effect where the head learns nothing; set learn=tau"),
        ({"hidden": (64, 99_999_999_999)}, r"hidden must be a list of widths from 1 to 16384, got \(64, 99999999999\)"),
        ({"target_entropy_rate": 0.2}, "target_entropy_rate=0.2 has no effect without target_entropy; set target"),
    ],
)
def test_a_remedy_without_its_patient_is_named(name, given, message):
    with pytest.raises(ValueError, match=message):
        settings(name, **given)


def test_the_control_says_what_it_cannot_do():
    with pytest.raises(ValueError, match="does not learn a sharpness"):
        EntropyControl(LearnedHead("s_tau(tau=2)"), 0.5, 0.1)
    with pytest.raises(ValueError, match=r"share must lie in \(0, 1\), got 1"):
        EntropyControl(LearnedHead("s_tau(tau=2)", ("tau",)), 1.0, 0.1)
