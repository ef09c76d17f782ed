"""REINFORCE, A2C and PPO on Gymnasium environments, with any head between the action scores and the policy.

An agent is its own file, which has its settings and its loss, and `policy_gradient`, which has the loop.
"""

from stau_rl.agents.policy_gradient.a2c import A2C
from stau_rl.agents.policy_gradient.policy_gradient import Agent
from stau_rl.agents.policy_gradient.ppo import PPO
from stau_rl.agents.policy_gradient.reinforce import Reinforce
from stau_rl.spec.grammar import suggest

AGENTS: dict[str, type[Agent]] = {agent.name: agent for agent in (Reinforce, A2C, PPO)}


def agent_class(name: str) -> type[Agent]:
    """The agent called `name`; a ValueError names the nearest if there is none."""
    if name not in AGENTS:
        raise ValueError(f"unknown agent {name!r}{suggest(name, AGENTS)}")
    return AGENTS[name]
