"""Plots of rankings and models; requires matplotlib (``pip install 'rankrls[plot]'``)."""

from rankrls.plotting._conditional_ranking import ConditionalRankingDisplay
from rankrls.plotting._early_stopping import EarlyStoppingDisplay
from rankrls.plotting._path import RegularizationPathDisplay
from rankrls.plotting._reliability import ReliabilityDisplay
from rankrls.plotting._roc import LeavePairOutRocDisplay

__all__ = [
    "ConditionalRankingDisplay",
    "EarlyStoppingDisplay",
    "LeavePairOutRocDisplay",
    "RegularizationPathDisplay",
    "ReliabilityDisplay",
]
