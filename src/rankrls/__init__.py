"""Learning to rank by regularised least squares."""

import importlib
from typing import Any

from rankrls.estimators import (
    GreedyRankRLS,
    RankRLS,
    RankRLSCV,
    RegularizationPath,
    regularization_path,
)
from rankrls.preferences import PreferenceGraph

__all__ = [
    "GreedyRankRLS",
    "PreferenceGraph",
    "RankRLS",
    "RankRLSCV",
    "RegularizationPath",
    "datasets",
    "metrics",
    "model_selection",
    "preprocessing",
    "regularization_path",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import submodules when they are first used."""
    if name in ("datasets", "metrics", "model_selection", "preprocessing"):
        return importlib.import_module(f"rankrls.{name}")
    raise AttributeError(f"module 'rankrls' has no attribute {name!r}")
