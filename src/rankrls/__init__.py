"""Learning to rank by regularised least squares."""

import importlib
from typing import TYPE_CHECKING, Any

from rankrls.estimators import RankRLS, RankRLSCV, RegularizationPath, regularization_path
from rankrls.preferences import PreferenceGraph

if TYPE_CHECKING:
    from rankrls.estimators._greedy import GreedyRankRLS

__all__ = [
    "GreedyRankRLS",
    "PreferenceGraph",
    "RankRLS",
    "RankRLSCV",
    "RegularizationPath",
    "datasets",
    "io",
    "metrics",
    "model_selection",
    "preprocessing",
    "regularization_path",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what takes a while, or is not always needed, when it is first used."""
    if name in ("dask", "datasets", "io", "metrics", "model_selection", "preprocessing"):
        return importlib.import_module(f"rankrls.{name}")
    if name == "GreedyRankRLS":
        return importlib.import_module("rankrls.estimators._greedy").GreedyRankRLS
    raise AttributeError(f"module 'rankrls' has no attribute {name!r}")
