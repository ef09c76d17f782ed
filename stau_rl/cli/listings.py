"""`stau-rl policies` and `stau-rl arms`: what a bandit benchmark can be made of."""

from dataclasses import dataclass, fields
from typing import Any

from stau_rl.cli.options import OptionalText


@dataclass(frozen=True)
class Policies:
    """Which bandit policies are there, and with which parameters?

    It lists scores, indices and named policies, or shows one in full: what it does, its parameters with their defaults,
    its source, and the engines that play it.

    Example: stau-rl policies --name kl_ucb
    """

    name: OptionalText = None
    """Show this policy, score or index. Default: a line or two on each."""

    after_stop = ""

    def run(self) -> None:
        """Print the list, or one."""
        from stau_rl.agents.bandit import POLICIES, SCORES, Index
        from stau_rl.terminal.console import wide_console

        scores = {name: score for name, score in SCORES.items() if not issubclass(score, Index)}
        groups: dict[str, dict[str, Any]] = {
            "Scores, as in 'centred_ucb | s_tau(tau=5)'; heads: stau-rl heads": scores,
            "Indices: policies by name, and scores": {n: s for n, s in SCORES.items() if n not in scores},
            "Policies by name": dict(POLICIES.items()),
        }
        console = wide_console()
        lines = _listed(groups, self.name, "policy")
        if self.name is not None:
            lines.append(_engines(self.name))
        for line in lines:
            console.print(line, highlight=False, markup=False, soft_wrap=True)


@dataclass(frozen=True)
class ArmKinds:
    """Which kinds of arms are there, with which parameters?

    It lists them, or shows one in full. Observations of your own are arms too: stau-rl regret --rewards FILE.

    Example: stau-rl arms --name gaussian
    """

    name: OptionalText = None
    """Show this kind. Default: a line or two on each."""

    after_stop = ""

    def run(self) -> None:
        """Print the list, or one."""
        from stau_rl.envs.arms import ARMS
        from stau_rl.terminal.console import wide_console

        console = wide_console()
        for line in _listed({"Arms": dict(ARMS.items())}, self.name, "arms"):
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def _listed(groups: dict[str, dict[str, Any]], name: str | None, kind: str) -> list[str]:
    """Lines on all members by group, or on one in full; a ValueError for a name that is none of theirs."""
    from stau_rl.spec.grammar import suggest

    if name is None:
        lines: list[str] = []
        for title, members in groups.items():
            lines += [*([""] if lines else []), title]
            for key, member in members.items():
                lines += [f"  {_signature(key, member)}", f"      {member.formula}"]
        return lines
    known = {key: member for members in groups.values() for key, member in members.items()}
    if name not in known:
        raise ValueError(f"no {kind} is called {name!r}{suggest(name, known)}")
    member = known[name]
    # Docstrings are written for readers of the source: its first part is what a user wants, `Attributes` the rest.
    text = [line.strip() for line in (member.__doc__ or "").strip().splitlines()]
    source = getattr(member, "source", "")
    return [_signature(name, member), f"  {member.formula}", "", *text, *([f"In short: {source}."] if source else [])]


def _engines(name: str) -> str:
    """Where a policy is played, or a score under argmax."""
    from stau_rl.agents.bandit import POLICIES, SCORES, Pipe, parse_policy
    from stau_rl.heads import Argmax
    from stau_rl.kernels.support import support

    policy = Pipe(SCORES[name](), Argmax()) if name in SCORES and name not in POLICIES else parse_policy(name)
    return "Engines: " + "; ".join(f"{engine}: {words}" for engine, words in support(policy).items()) + "."


def _signature(name: str, member: Any) -> str:
    """`kl_ucb(c=0.0, sigma=None)`: every parameter with its default, or without where it must be given."""
    from dataclasses import MISSING

    parts = []
    for field in fields(member):
        if not field.init:
            continue
        given = field.default is not MISSING
        shown = str(field.default) if hasattr(field.default, "formula") else repr(field.default)
        parts.append(f"{field.name}={shown}" if given else field.name)
    return f"{name}({', '.join(parts)})" if parts else name
