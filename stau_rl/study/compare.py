"""Play one setting: tune each family, then compare them raw, equally sharp and tuned, on fresh instances.

Rows of one table, told apart by the column `comparison`:

- `curve`: every grid point of a family, on the tuning instances, with a band that holds for the whole curve at once;
- `raw`: each family as its text says, against the first one's;
- `slope`: each family as its text says, against the first family made equally steep at score 0;
- `entropy`: likewise with the same mean entropy on the scores that the policy saw in a pilot run; intervals and p-value
  count the pilot's own uncertainty;
- `tuned`: each family at its own best parameter, against the first family at its own best; interval and p-value of the
  difference count that another tuning sample would have chosen otherwise (`stau_rl.statistics.selection`);
- `reference`: policies that stand beside the families, against the first family at its best.

A percentage is 100 (mean / baseline mean - 1): negative is less regret than the baseline. Quantiles, interquartile
mean, probability of improvement and the interval of a regret itself are about the very policies of the row.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats

from stau_rl.agents.bandit import Policy, parse_policy
from stau_rl.kernels.purposes import purpose_seed
from stau_rl.statistics.bootstrap import RESAMPLES, paired_bootstrap
from stau_rl.statistics.means import cvar, mean_interval, paired_test, quantiles
from stau_rl.statistics.robust import interquartile_interval, paired_improvement
from stau_rl.statistics.selection import selected_bootstrap
from stau_rl.statistics.simultaneous import curve_band
from stau_rl.study.engine import engine_for
from stau_rl.study.family import Family
from stau_rl.study.match import Control, find_control
from stau_rl.study.setting import Setting
from stau_rl.study.tuning import Tuning, tune

COMPARISONS = ("curve", "raw", "slope", "entropy", "tuned", "reference")
COLUMNS = (
    "sweep", "value", "arms", "horizon", "seed", "comparison", "family", "policy", "slope", "edge", "instances",
    "regret", "regret_low", "regret_high", "band_low", "band_high", "median", "q05", "q95", "cvar95",
    "iqm", "iqm_low", "iqm_high", "stuck_rate",
    "baseline", "baseline_regret", "difference", "difference_low", "difference_high",
    "percent", "percent_low", "percent_high", "improvement", "improvement_low", "improvement_high", "p_value",
    "match_error", "tuning_points", "tuning_instances", "setting", "engine", "commit", "versions",
)  # fmt: skip
"""Columns of the table. `match_error` is the relative standard error of a matched parameter, `tuning_instances` what
the last round of tuning (for a curve the first) was played on, `setting` the digest of a row's setting."""

# Bytes of results held at once; memory does not grow with the number of policies.
MEMORY = 1_000_000_000

Tick = Callable[[int, int], None]
"""Called with how much of the setting's work is done, and how much there is: instances times policies."""


def play_setting(
    setting: Setting, tick: Tick | None = None, engine: str = "auto", device: str = "auto"
) -> pd.DataFrame:
    """All rows of a setting.

    A family's rows depend on that family, the first one, the arms and the seed: never on which other families there
    are, nor on their order.

    Args:
        setting: what to play.
        tick: called as the work goes on.
        engine: one or several, as in `stau_rl.study.engine.engine_for`.
        device: as in `stau_rl.regret.run.run_regret`.
    """
    return _Comparison(setting, tick, engine, device).rows()


class _Comparison:
    """The work on one setting."""

    def __init__(self, setting: Setting, tick: Tick | None, engine: str, device: str) -> None:
        self.setting, self.tick, self.engine, self.device = setting, tick, engine, device
        self.families = [Family(text) for text in setting.families]
        self.work = sum(setting.tuning_work(family.text) for family in self.families if family.tunable)
        self.work += ((6 + setting.finalists) * len(self.families) + len(setting.references)) * setting.instances
        self.done = 0
        self.engines: dict[Policy, str] = {}
        self.regret: dict[Policy, NDArray[np.float64]] = {}
        self.stuck: dict[Policy, float] = {}
        self.versions = ""
        self.commit = ""

    def play(self, policies: list[Policy], instances: int, seed: int) -> dict[Policy, NDArray[np.float64]]:
        """Regret of every policy and instance at the horizon."""
        return {
            policy: result.regret[number, -1] for policy, result, number in self._results(policies, instances, seed)
        }

    def _results(self, policies: list[Policy], instances: int, seed: int) -> Any:
        """Each policy with the result that holds it and its place there."""
        from stau_rl.envs.arms import parse_arms
        from stau_rl.regret.run import run_regret

        setting = self.setting
        # No policy can disturb another; several in one run share the draw of their arms.
        size = max(1, MEMORY // (instances * (32 + 8 * parse_arms(setting.arms).size)))
        by_engine: dict[str, list[Policy]] = {}
        for policy in policies:
            name = engine_for(policy, setting.arms, setting.horizon, self.engine, self.device)
            by_engine.setdefault(name, []).append(policy)
        runs = [(name, mine[i : i + size]) for name, mine in by_engine.items() for i in range(0, len(mine), size)]
        for engine, some in runs:
            places = {str(policy): number for number, policy in enumerate(some)}

            def report(text: str, done: int, total: int, places: dict[str, int] = places) -> None:
                self._advance(self.done + instances * places[text] + instances * done // total)

            result = run_regret(
                setting.arms,
                some,
                setting.horizon,
                instances,
                seed,
                checkpoints=[setting.horizon],
                engine=engine,
                device=self.device,
                report=report,
            )
            self.done += instances * len(some)
            self.commit = result.spec["commit"]
            self.versions = " ".join(f"{name}={number}" for name, number in result.spec["versions"].items())
            for number, policy in enumerate(some):
                self.engines[policy] = result.spec["engines"][number]
                yield policy, result, number

    def _advance(self, done: int) -> None:
        if self.tick is not None:
            self.tick(min(done, self.work), self.work)

    def rows(self) -> pd.DataFrame:
        setting, first = self.setting, self.families[0]
        tunings = {family.text: tune(family, setting, self.play) for family in self.families}
        best = {family.text: family.raw for family in self.families}
        best |= {text: tuning.best for text, tuning in tunings.items() if tuning}
        controls = {
            (kind, family.text): control
            for family in self.families[1:]
            for kind in ("slope", "entropy")
            if (control := find_control(kind, family, first, setting, self.engine, self.device)) is not None
        }
        pairs: list[tuple[str, Family | None, Policy, Policy]] = []
        pairs += [("raw", family, family.raw, first.raw) for family in self.families]
        for family in self.families[1:]:
            for kind in ("slope", "entropy"):
                if (control := controls.get((kind, family.text))) is not None:
                    pairs.append((kind, family, family.raw, control.policy))
        pairs += [("tuned", family, best[family.text], best[first.text]) for family in self.families]
        pairs += [("reference", None, parse_policy(text), best[first.text]) for text in setting.references]
        wanted = [policy for _, _, *both in pairs for policy in both]
        wanted += [policy for control in controls.values() for policy in control.beside]
        wanted += [policy for tuning in tunings.values() if tuning for policy in tuning.finalists]
        seed = purpose_seed(setting.seed, "evaluation")
        for policy, result, number in self._results(list(dict.fromkeys(wanted)), setting.instances, seed):
            self.regret[policy] = result.regret[number, -1].copy()
            self.stuck[policy] = float(result.stuck[number].mean())
        rows = [row for family in self.families for row in self._curve(family, tunings[family.text])]
        for kind, some, policy, baseline in pairs:
            tuning = tunings[some.text] if some is not None and kind == "tuned" else None
            row: dict[str, Any] = {"comparison": kind, "family": some.text if some else str(policy)}
            row |= {"policy": str(policy), "engine": self.engines[policy]}
            row |= {"slope": (some or first).slope(policy), "edge": tuning.edge if tuning else ""}
            row |= {"stuck_rate": self.stuck[policy], "tuning_points": len(tuning.policies) if tuning else 0}
            row |= {"tuning_instances": tuning.final.shape[1] if tuning else 0}
            row |= self._alone(self.regret[policy]) | self._against(policy, baseline)
            if kind == "tuned" and some is not None and some is not first:
                row |= self._selected(some, tunings[some.text], tunings[first.text])
            elif some is not None and (control := controls.get((kind, some.text))) is not None and policy != baseline:
                row |= self._matched(row, policy, control)
            rows.append(row)
        shared = setting.columns() | {"setting": setting.identity, "commit": self.commit, "versions": self.versions}
        return pd.DataFrame([shared | row for row in rows]).reindex(columns=list(COLUMNS))

    def _curve(self, family: Family, tuning: Tuning | None) -> list[dict[str, Any]]:
        if tuning is None:
            return []
        band = curve_band(tuning.regret, seed=self.setting.seed)
        rows = []
        for point, (slope, policy) in enumerate(zip(tuning.slopes, tuning.policies, strict=True)):
            mean = mean_interval(tuning.regret[point])
            row: dict[str, Any] = {"comparison": "curve", "family": family.text, "policy": str(policy), "slope": slope}
            row |= {"engine": self.engines[policy]}
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

    def _against(self, policy: Policy, baseline: Policy) -> dict[str, Any]:
        regret, base = self.regret[policy], self.regret[baseline]
        row: dict[str, Any] = {"baseline": str(baseline), "baseline_regret": float(base.mean())}
        if policy == baseline:
            return row
        found = paired_bootstrap([regret[None]], base[None], seed=self.setting.seed)
        for name in ("difference", "percent"):
            for end in ("", "_low", "_high"):
                row[name + end] = float(getattr(found, name + end)[0, 0])
        better = paired_improvement(regret, base)
        row |= {"improvement": better.value, "improvement_low": better.low, "improvement_high": better.high}
        return row | {"p_value": paired_test(regret, base)}

    def _selected(self, family: Family, tuning: Tuning | None, first: Tuning | None) -> dict[str, Any]:
        """The tuned difference, with the choice of the parameters in its interval."""
        found = selected_bootstrap(
            self._members(tuning, family.raw),
            self._members(first, self.families[0].raw),
            seed=self.setting.seed,
        )
        names = ("difference", "difference_low", "difference_high", "percent", "percent_low", "percent_high", "p_value")
        return {name: getattr(found, name) for name in names}

    def _members(self, tuning: Tuning | None, raw: Policy) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Finalists on the tuning and on the evaluation instances; a family without a parameter has one."""
        if tuning is None:
            return np.zeros((1, 1)), self.regret[raw][None]
        return tuning.final, np.array([self.regret[policy] for policy in tuning.finalists])

    def _matched(self, row: dict[str, Any], policy: Policy, control: Control) -> dict[str, Any]:
        """Intervals and p-value that count the standard error of the control's parameter (delta method)."""
        if not control.beside:
            return {"match_error": 0.0}
        regret = self.regret[policy]
        error = {}
        means = [float(self.regret[beside].mean()) for beside in control.beside]
        reach = control.log_se / control.apart
        error["difference"] = abs(means[1] - means[0]) * reach
        error["percent"] = (
            abs(100 * regret.mean() * (1 / means[1] - 1 / means[0])) * reach if min(means) > 0 else np.nan
        )
        # A match that nothing is known of leaves no interval.
        error = {name: more if np.isfinite(more) else np.nan for name, more in error.items()}
        wider: dict[str, Any] = {"match_error": control.log_se}
        for name, more in error.items():
            value = row[name]
            half = float(special.ndtri(0.975)) * more
            wider[f"{name}_low"] = value - float(np.hypot(value - row[f"{name}_low"], half))
            wider[f"{name}_high"] = value + float(np.hypot(row[f"{name}_high"] - value, half))
        paired = mean_interval(regret - self.regret[control.policy]).se
        se = float(np.hypot(paired, error["difference"]))
        wider["p_value"] = float(2 * stats.t.sf(abs(row["difference"]) / se, regret.size - 1)) if se else row["p_value"]
        return wider
