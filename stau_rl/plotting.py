"""Figures of results: `plot_regret` draws regret curves, `save_figure` writes one whole."""

from stau_rl.regret.plot import plot_regret, save_figure

__all__ = ["plot_regret", "save_figure"]
