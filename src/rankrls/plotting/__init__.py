"""Plots, with matplotlib (``pip install 'rankrls[plot]'``), imported when one is drawn."""

from rankrls.plotting._conditional import ConditionalRankingDisplay

__all__ = ["ConditionalRankingDisplay"]
