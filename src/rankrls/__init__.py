"""Learning to rank by regularised least squares.

Names are imported when they are first used, so that ``import rankrls`` itself takes no time: the
command line answers ``rankrls --help`` without waiting for numerical libraries.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankrls.core.preferences.graph import PreferenceGraph
    from rankrls.estimators import RankRLS, RankRLSCV, RankSVM
    from rankrls.estimators.auto import AutoRanker
    from rankrls.estimators.conditional import ConditionalRankRLS
    from rankrls.estimators.conditional_cv import ConditionalRankRLSCV
    from rankrls.estimators.greedy import GreedyRankRLS
    from rankrls.estimators.regularization_path import RegularizationPath, regularization_path
    from rankrls.leaderboards import leaderboard
    from rankrls.rankings import rank

__all__ = [
    "AutoRanker",
    "ConditionalRankRLS",
    "ConditionalRankRLSCV",
    "GreedyRankRLS",
    "PreferenceGraph",
    "RankRLS",
    "RankRLSCV",
    "RankSVM",
    "RegularizationPath",
    "clicks",
    "datasets",
    "diagnostics",
    "exceptions",
    "export",
    "graph_kernels",
    "kronecker",
    "leaderboard",
    "leaderboards",
    "metrics",
    "model_selection",
    "plotting",
    "preprocessing",
    "rank",
    "rankings",
    "regularization_path",
    "report",
    "reranking",
    "streaming",
]

__version__ = "0.3.0"

#: Names that are imported on first use, and their modules.
_LAZY = {
    "AutoRanker": "estimators.auto",
    "ConditionalRankRLS": "estimators.conditional",
    "ConditionalRankRLSCV": "estimators.conditional_cv",
    "GreedyRankRLS": "estimators.greedy",
    "PreferenceGraph": "core.preferences.graph",
    "RankRLS": "estimators",
    "RankRLSCV": "estimators",
    "RankSVM": "estimators",
    "RegularizationPath": "estimators.regularization_path",
    "leaderboard": "leaderboards",
    "rank": "rankings",
    "regularization_path": "estimators.regularization_path",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    if name in _LAZY:
        found = getattr(importlib.import_module(f"rankrls.{_LAZY[name]}"), name)
        globals()[name] = found
        return found
    if name in (*__all__, "dask", "estimators", "io"):
        return importlib.import_module(f"rankrls.{name}")
    raise AttributeError(f"module 'rankrls' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
