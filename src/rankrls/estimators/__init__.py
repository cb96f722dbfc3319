"""Estimators: thin scikit-learn classes over the rooms below."""

from rankrls.estimators._path import RegularizationPath, regularization_path
from rankrls.estimators._rankrls import RankRLS

__all__ = ["RankRLS", "RegularizationPath", "regularization_path"]
