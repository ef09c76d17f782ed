"""Intervals, tests, bootstraps and robust summaries of plain arrays; this face names what the tables are made of."""

from stau_rl.statistics.means import cvar, holm, mean_interval, paired_test, quantiles, wilson_interval

__all__ = ["cvar", "holm", "mean_interval", "paired_test", "quantiles", "wilson_interval"]
