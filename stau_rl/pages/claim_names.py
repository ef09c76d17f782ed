"""How the pages of the claim name settings, policies and numbers."""

from typing import Any

from stau_rl.pages.claim_data import bonus
from stau_rl.pages.claim_settings import ARMS


def cell(row: dict[Any, Any]) -> str:
    """A setting in a few words, such as Gaussian c = 0 or Bernoulli T = 100."""
    value = str(row["value"])
    for name, arms in ARMS.items():
        value = value.replace(f"{arms} ", f"{name} ")
    labels = {" horizon ": " T = ", " k ": " K = ", " c ": " c = ", " scale ": " rewards x ", " centring ": " "}
    for word, shown in labels.items():
        value = value.replace(word, shown)
    return f"{value}, annealed" if row["sweep"] == "annealed" else value


def place(row: dict[Any, Any]) -> tuple[str, str]:
    """Kind of arms, and the bonus of the scores."""
    names = {arms: name for name, arms in ARMS.items()}
    return names.get(row["arms"], row["value"]), f"{bonus(row['policy']):g}"


def policy_name(family: str) -> str:
    """A family by what it does: its head if it has one, a schedule as annealed, its parameter as tuned."""
    head = family.split("|", 1)[-1].strip()
    name = head.split("(", 1)[0]
    return f"annealed {name}" if "(1+t)" in head else f"{name}, tuned" if "{x}" in head else name


def regret(row: dict[Any, Any], column: str = "regret") -> str:
    """A number of a row with its interval."""
    value, low, high = (number(row[column + end]) for end in ("", "_low", "_high"))
    return f"{value} [{low}, {high}]"


def number(value: float) -> str:
    """Three digits or more, and never a power of ten: 15 375, 354.9, 0.196."""
    return (
        f"{value:,.0f}".replace(",", " ") if abs(value) >= 1000 else f"{value:.4g}" if value >= 100 else f"{value:.3g}"
    )
