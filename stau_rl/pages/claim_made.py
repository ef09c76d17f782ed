"""How the rows of docs/claim.md were made."""

from stau_rl.pages.claim_data import ClaimData
from stau_rl.pages.claim_names import number
from stau_rl.pages.claim_settings import SEED


def made(data: ClaimData) -> list[str]:
    """The last section of the page."""
    rows = data.comparisons
    commits = ", ".join(dict.fromkeys(text[:12] for text in rows["commit"]))
    runs = ", ".join(
        f"{number(run['seconds'])} s on {run['threads']} threads ({run['device']})"
        for run in data.timing.to_dict("records")
    )
    return [
        "## How this was made",
        f"`stau_rl.pages.claim_settings` lists the settings, {rows['setting'].nunique()} of which are played; seed "
        f"{SEED}; engine {', '.join(rows['engine'].unique())}; commit {commits}; {rows['versions'].iloc[0]}. Played "
        f"one after the other, they took {runs}. `python -m stau_rl.pages.claim` writes this page from "
        "`notebooks/results/claim_comparisons.csv` and `claim_curves.csv`; `--rerun` plays everything again from its "
        "seed, `--rerun --only NAME` the settings of one sweep, and leaves all other rows as they are. `stau-rl study` "
        "does the same for any heads, scores and arms, and `notebooks/claim_35_percent.ipynb` reads these files. "
        "Settings share their seed and are not independent of one another; a pair of policies that stands in several "
        "sweeps has one number and counts once. `python -m stau_rl.checks.coverage` plays thousands of small studies "
        "of known truth and counts how often these intervals cover.",
    ]
