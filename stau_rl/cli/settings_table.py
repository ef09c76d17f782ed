"""The settings that `stau-rl train --set` takes, as rows written from the agents themselves."""

from dataclasses import Field, fields
from typing import Any

from stau_rl.agents.policy_gradient import AGENTS
from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.cli.plain import field_texts

# Settings that have an option of their own, and that option.
OPTIONS = {"env": "--env", "env_args": "--env-arg", "head": "--head", "steps": "--steps"}


def settings_table() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A row per setting that has no option of its own.

    Returns:
        The header: `setting`, the agents, `what it is`. And the rows: name, default in each agent, a dash where it has
        no such setting, and what it is.
    """
    kinds = {name: agent.Settings for name, agent in AGENTS.items()}
    texts: dict[str, str] = {}
    described: list[type[Any]] = [AgentSettings, *kinds.values()]
    for kind in described:
        # An agent that changes a default alone does not change what the setting is for the others.
        texts = field_texts(kind) | texts
    members = {name: {member.name: member for member in fields(kind)} for name, kind in kinds.items()}
    names = list(dict.fromkeys(name for known in members.values() for name in known if name not in OPTIONS))
    order = [member.name for member in fields(AgentSettings)]
    names.sort(key=lambda name: order.index(name) if name in order else len(order))
    header = ("setting", *kinds, "what it is")
    return header, [(name, *(_default(known.get(name)) for known in members.values()), texts[name]) for name in names]


def _default(member: "Field[Any] | None") -> str:
    """A default as it would be typed."""
    if member is None:
        return "-"
    value = member.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "nothing"
    return f"{value:g}" if isinstance(value, float) else str(value)
