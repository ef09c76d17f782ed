"""The table of the settings that `stau-rl train --set` takes, written from the agents themselves."""

from dataclasses import fields
from typing import Any

from stau_rl.agents.policy_gradient import AGENTS
from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.cli.plain import field_texts
from stau_rl.cli.train import Train
from stau_rl.pages.markdown import code, listing


def reference() -> str:
    """A row per setting that has no option of its own: its default in each agent, and what it is."""
    options = {member.name for member in fields(Train)}
    kinds = {name: agent.Settings for name, agent in AGENTS.items()}
    texts: dict[str, str] = {}
    described: list[type[Any]] = [AgentSettings, *kinds.values()]
    for kind in described:
        # An agent that changes a default alone does not change what the setting is for the others.
        texts = field_texts(kind) | texts
    defaults = {name: {member.name: member.default for member in fields(kind)} for name, kind in kinds.items()}
    names = list(dict.fromkeys(name for values in defaults.values() for name in values))
    order = [member.name for member in fields(AgentSettings)]
    names.sort(key=lambda name: order.index(name) if name in order else len(order))
    return listing(
        ("setting", *kinds, "what it is"),
        [
            (code(name), *(_text(values, name) for values in defaults.values()), texts[name].replace("|", "\\|"))
            for name in names
            if name not in options
        ],
    )


def _text(values: dict[str, Any], name: str) -> str:
    """A default as it would be typed, a dash where the agent has no such setting."""
    if name not in values:
        return "-"
    value = values[name]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "nothing"
    return f"{value:g}" if isinstance(value, float) else str(value)
