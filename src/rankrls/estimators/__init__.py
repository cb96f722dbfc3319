"""Estimators: thin scikit-learn classes over `rankrls.core`.

`GreedyRankRLS` is in `rankrls.estimators.greedy`: it needs scikit-learn's feature selection, which
takes a while to import, so that only who uses it should wait for it.
"""

from rankrls.estimators.cv import RankRLSCV
from rankrls.estimators.rankrls import RankRLS
from rankrls.estimators.ranksvm import RankSVM
from rankrls.estimators.regularization_path import RegularizationPath, regularization_path

__all__ = ["RankRLS", "RankRLSCV", "RankSVM", "RegularizationPath", "regularization_path"]
