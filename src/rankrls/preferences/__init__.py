"""Preferences: from scores and pairs to the Laplacian L and the target r."""

from rankrls.preferences._accumulate import (
    Accumulator,
    RankingAccumulator,
    batch_statistics,
)
from rankrls.preferences._census import Census, Counts, Crossing
from rankrls.preferences._condensed import Condensed
from rankrls.preferences._costs import COSTS, QUERY_WEIGHTINGS, TIES, Objective
from rankrls.preferences._factors import Factor
from rankrls.preferences._graph import PreferenceGraph
from rankrls.preferences._groups import Groups
from rankrls.preferences._hinge import HingeLoss, PairHinge, Violations, hinge_losses
from rankrls.preferences._parts import (
    Condenser,
    PartPlan,
    Plan,
    Share,
    bucket_shares,
    part_shares,
)
from rankrls.preferences._statistics import Statistics
from rankrls.preferences._systems import System

__all__ = [
    "COSTS",
    "QUERY_WEIGHTINGS",
    "TIES",
    "Accumulator",
    "Census",
    "Condensed",
    "Condenser",
    "Counts",
    "Crossing",
    "Factor",
    "Groups",
    "HingeLoss",
    "Objective",
    "PairHinge",
    "PartPlan",
    "Plan",
    "PreferenceGraph",
    "RankingAccumulator",
    "Share",
    "Statistics",
    "System",
    "Violations",
    "batch_statistics",
    "bucket_shares",
    "hinge_losses",
    "part_shares",
]
