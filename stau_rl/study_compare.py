"""Play one setting: tune each family, then compare them raw, equally sharp and tuned, on fresh instances.

Rows of one table, told apart by the column `comparison`:

- `curve`: every grid point of a family, on the tuning instances, with a band that holds for the whole curve at once;
- `raw`: each family as its text says, against the first one's;
- `slope`: each family as its text says, against the first family made equally steep at score 0;
- `entropy`: likewise with the same mean entropy on the scores that the policy saw in a pilot run;
- `tuned`: each family at its own best parameter, against the first family at its own best;
- `reference`: policies that stand beside the families, against the first family at its best.

A percentage is 100 (mean / baseline mean - 1): negative is less regret than the baseline.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stau_rl.agents import Pipe, parse_policy
from stau_rl.bootstrap import RESAMPLES, paired_bootstrap
from stau_rl.calibration import match_sharpness
from stau_rl.robust import interquartile_interval, paired_improvement
from stau_rl.simultaneous import curve_band
from stau_rl.statistics import cvar, mean_interval, paired_test, quantiles
from stau_rl.study_family import Family
from stau_rl.study_pilot import seen_scores
from stau_rl.study_seeds import purpose_seed
from stau_rl.study_setting import Setting
from stau_rl.study_tuning import Tuning, tune

COMPARISONS = ("curve", "raw", "slope", "entropy", "tuned", "reference")
COLUMNS = (
    "sweep", "value", "arms", "horizon", "seed", "comparison", "family", "policy", "slope", "edge", "instances",
    "regret", "regret_low", "regret_high", "band_low", "band_high", "median", "q05", "q95", "cvar95",
    "iqm", "iqm_low", "iqm_high", "stuck_rate",
    "baseline", "baseline_regret", "difference", "difference_low", "difference_high",
    "percent", "percent_low", "percent_high", "improvement", "improvement_low", "improvement_high", "p_value",
    "tuning_points", "tuning_instances", "setting", "commit", "versions",
)  # fmt: skip
"""Columns of the table; `setting` is the digest of the setting that a row belongs to."""

Tick = Callable[[float], None]
"""Called with the share of the setting that is done, in [0, 1]."""


def play_setting(setting: Setting, tick: Tick | None = None) -> pd.DataFrame:
    """All rows of a setting.

    A family's rows depend on that family, the first one, the arms and the seed: never on which other families there
    are, nor on their order.

    Args:
        setting: what to play.
        tick: called as the work goes on.
    """
    return _Comparison(setting, tick).rows()


class _Comparison:
    """The work on one setting."""

    def __init__(self, setting: Setting, tick: Tick | None) -> None:
        self.setting, self.tick = setting, tick
        self.families = [Family(text) for text in setting.families]
        self.work = sum(family.tunable for family in self.families) * setting.budget * setting.tuning_instances
        self.work += (5 * len(self.families) + len(setting.references)) * setting.instances
        self.done = 0.0
        self.versions = ""
        self.commit = ""

    def play(self, policies: list[str], instances: int, seed: int) -> dict[str, NDArray[np.float64]]:
        """Regret of every policy and instance at the horizon."""
        return {policy: result.regret[0, -1] for policy, result in self._results(policies, instances, seed)}

    def _results(self, policies: list[str], instances: int, seed: int) -> Any:
        from stau_rl.regret import run_regret

        setting = self.setting
        for policy in policies:

            def report(_: str, done: int, total: int) -> None:
                self._advance(self.done + instances * done / total)

            # One at a time: memory stays that of one policy, and no policy can disturb another.
            result = run_regret(
                setting.arms, [policy], setting.horizon, instances, seed, checkpoints=[setting.horizon], report=report
            )
            self.done += instances
            self.commit = result.spec["commit"]
            self.versions = " ".join(f"{name}={number}" for name, number in result.spec["versions"].items())
            yield policy, result

    def _advance(self, done: float) -> None:
        if self.tick is not None:
            self.tick(min(1.0, done / max(1, self.work)))

    def rows(self) -> pd.DataFrame:
        setting, first = self.setting, self.families[0]
        tunings = {family.text: tune(family, setting, self.play) for family in self.families}
        best = {text: tuning.best if tuning else Family(text).raw for text, tuning in tunings.items()}
        pairs: list[tuple[str, Family | None, str, str]] = []
        pairs += [("raw", family, family.raw, first.raw) for family in self.families]
        for family in self.families[1:]:
            for kind in ("slope", "entropy"):
                control = self._control(kind, family, first)
                if control is not None:
                    pairs.append((kind, family, family.raw, control))
        pairs += [("tuned", family, best[family.text], best[first.text]) for family in self.families]
        pairs += [("reference", None, policy, best[first.text]) for policy in setting.references]
        wanted = list(dict.fromkeys(policy for pair in pairs for policy in pair[2:]))
        seed = purpose_seed(setting.seed, "evaluation")
        regret, stuck = {}, {}
        for policy, result in self._results(wanted, setting.instances, seed):
            regret[policy], stuck[policy] = result.regret[0, -1], float(result.stuck[0].mean())
        rows = [row for family in self.families for row in self._curve(family, tunings[family.text])]
        for kind, some, policy, baseline in pairs:
            tuning = tunings[some.text] if some is not None and kind == "tuned" else None
            row: dict[str, Any] = {"comparison": kind, "family": some.text if some else policy, "policy": policy}
            row |= {"slope": (some or first).slope(policy), "edge": tuning.edge if tuning else ""}
            row |= {"stuck_rate": stuck[policy], "tuning_points": len(tuning.policies) if tuning else 0}
            row |= {"tuning_instances": setting.tuning_instances if tuning else 0}
            row |= self._alone(regret[policy]) | self._against(regret[policy], baseline, regret[baseline], policy)
            rows.append(row)
        shared = setting.columns() | {"setting": setting.identity, "commit": self.commit, "versions": self.versions}
        return pd.DataFrame([shared | row for row in rows]).reindex(columns=list(COLUMNS))

    def _control(self, kind: str, family: Family, first: Family) -> str | None:
        """The first family's member that is as sharp as another family's raw member, if there is one."""
        mine, theirs = family.head, first.head
        if mine is None or theirs is None or family.templated or first.templated:
            return None
        policy: Any = parse_policy(family.raw)
        try:
            if kind == "slope":
                matched = match_sharpness(policy.head, theirs)
            else:
                seed = purpose_seed(self.setting.seed, "pilot")
                scores = seen_scores(
                    family.raw, self.setting.arms, self.setting.horizon, self.setting.pilot_instances, seed
                )
                matched = match_sharpness(policy.head, theirs, on="entropy", scores=scores, dim=0)
        except ValueError:
            # No member of the first family is that soft or that sharp.
            return None
        value = float(getattr(matched, str(matched.sharpness)))
        control = Pipe(policy.score, matched)
        unit = Family(str(control))
        return unit.member(unit.slope(str(control))) if value else None

    def _curve(self, family: Family, tuning: Tuning | None) -> list[dict[str, Any]]:
        if tuning is None:
            return []
        band = curve_band(tuning.regret, seed=self.setting.seed)
        rows = []
        for point, (slope, policy) in enumerate(zip(tuning.slopes, tuning.policies, strict=True)):
            mean = mean_interval(tuning.regret[point])
            row: dict[str, Any] = {"comparison": "curve", "family": family.text, "policy": policy, "slope": slope}
            row |= {"instances": tuning.regret.shape[1], "regret": mean.mean, "edge": ""}
            row |= {"regret_low": mean.low, "regret_high": mean.high}
            row |= {"band_low": band.low[point], "band_high": band.high[point]}
            row |= {"tuning_points": len(tuning.slopes), "tuning_instances": self.setting.tuning_instances}
            rows.append(row)
        return rows

    def _alone(self, regret: NDArray[np.float64]) -> dict[str, Any]:
        mean, ascending = mean_interval(regret), np.sort(regret)
        iqm = interquartile_interval(
            regret, seed=self.setting.seed, resamples=max(200, min(RESAMPLES, 10**7 // regret.size))
        )
        q05, median, q95 = quantiles(ascending, (0.05, 0.5, 0.95), is_sorted=True)
        return {
            "instances": regret.size,
            "regret": mean.mean,
            "regret_low": mean.low,
            "regret_high": mean.high,
            "median": median,
            "q05": q05,
            "q95": q95,
            "cvar95": cvar(ascending, is_sorted=True),
            "iqm": iqm.value,
            "iqm_low": iqm.low,
            "iqm_high": iqm.high,
        }

    def _against(
        self, regret: NDArray[np.float64], baseline: str, base: NDArray[np.float64], policy: str
    ) -> dict[str, Any]:
        row: dict[str, Any] = {"baseline": baseline, "baseline_regret": float(base.mean())}
        if policy == baseline:
            return row
        found = paired_bootstrap([regret[None]], base[None], seed=self.setting.seed)
        for name in ("difference", "percent"):
            for end in ("", "_low", "_high"):
                row[name + end] = float(getattr(found, name + end)[0, 0])
        better = paired_improvement(regret, base)
        row |= {"improvement": better.value, "improvement_low": better.low, "improvement_high": better.high}
        return row | {"p_value": paired_test(regret, base)}
