"""Estimators: thin scikit-learn classes over the rooms below.

`GreedyRankRLS` is in `rankrls.estimators._greedy`: it needs scikit-learn's feature selection, which
takes a while to import, so that only who uses it should wait for it.
"""

from rankrls.estimators._cv import RankRLSCV
from rankrls.estimators._path import RegularizationPath, regularization_path
from rankrls.estimators._rankrls import RankRLS
from rankrls.estimators._ranksvm import RankSVM

__all__ = ["RankRLS", "RankRLSCV", "RankSVM", "RegularizationPath", "regularization_path"]
