"""Learning to rank by regularised least squares."""

import importlib
from typing import TYPE_CHECKING, Any

from rankrls.estimators import (
    RankRLS,
    RankRLSCV,
    RankSVM,
    RegularizationPath,
    regularization_path,
)
from rankrls.preferences import PreferenceGraph

if TYPE_CHECKING:
    from rankrls.estimators._conditional import ConditionalRankRLS
    from rankrls.estimators._conditional_cv import ConditionalRankRLSCV
    from rankrls.estimators._greedy import GreedyRankRLS

__all__ = [
    "ConditionalRankRLS",
    "ConditionalRankRLSCV",
    "GreedyRankRLS",
    "PreferenceGraph",
    "RankRLS",
    "RankRLSCV",
    "RankSVM",
    "RegularizationPath",
    "datasets",
    "export",
    "io",
    "metrics",
    "model_selection",
    "plotting",
    "preprocessing",
    "regularization_path",
    "report",
]

__version__ = "0.1.0"

#: Estimators that are imported when they are first used, and where they are.
_LAZY = {
    "ConditionalRankRLS": "_conditional",
    "ConditionalRankRLSCV": "_conditional_cv",
    "GreedyRankRLS": "_greedy",
}


#: Rooms that are imported when they are first used.
_ROOMS = (
    "dask",
    "datasets",
    "export",
    "io",
    "metrics",
    "model_selection",
    "plotting",
    "preprocessing",
    "report",
)


def __getattr__(name: str) -> Any:
    """Import what takes a while, or is not always needed, when it is first used."""
    if name in _ROOMS:
        return importlib.import_module(f"rankrls.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(f"rankrls.estimators.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'rankrls' has no attribute {name!r}")
