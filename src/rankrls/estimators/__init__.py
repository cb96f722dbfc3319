"""Estimators: thin scikit-learn classes over the rooms below."""

from rankrls.estimators._cv import RankRLSCV
from rankrls.estimators._greedy import GreedyRankRLS
from rankrls.estimators._path import RegularizationPath, regularization_path
from rankrls.estimators._rankrls import RankRLS

__all__ = ["GreedyRankRLS", "RankRLS", "RankRLSCV", "RegularizationPath", "regularization_path"]
