"""Learning to rank by regularised least squares."""

from rankrls.estimators import RankRLS, RegularizationPath, regularization_path
from rankrls.preferences import PreferenceGraph

__all__ = ["PreferenceGraph", "RankRLS", "RegularizationPath", "regularization_path"]

__version__ = "0.1.0"
