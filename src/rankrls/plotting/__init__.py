"""Plots of rankings and models; requires matplotlib (``pip install 'rankrls[plot]'``)."""

from rankrls.plotting._conditional_ranking import ConditionalRankingDisplay
from rankrls.plotting._curves import EarlyStoppingDisplay, RegularizationPathDisplay
from rankrls.plotting._held_out import LeavePairOutRocDisplay, ReliabilityDisplay

__all__ = [
    "ConditionalRankingDisplay",
    "EarlyStoppingDisplay",
    "LeavePairOutRocDisplay",
    "RegularizationPathDisplay",
    "ReliabilityDisplay",
]
