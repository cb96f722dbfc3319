"""All coefficients of a conditional ranker for a grid of alphas, from one decomposition."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import NDArray
from sklearn.base import clone

from rankrls.core.relations.problem import RelationModel
from rankrls.estimators.alpha_pairs import check_alpha_pairs
from rankrls.estimators.conditional import ConditionalRankRLS

__all__ = ["ConditionalPath", "conditional_path"]

Array = NDArray[Any]


@dataclass(frozen=True, repr=False)
class ConditionalPath:
    """Models for a grid of alphas.

    Attributes
    ----------
    alphas : ndarray of shape (n_alphas,)
    dual_coef : ndarray of shape (n_alphas, p, g)
        Made when it is asked for.
    solver : str
        The solver that was used.
    """

    alphas: Array
    solver: str
    _estimator: ConditionalRankRLS
    _model: RelationModel

    @cached_property
    def dual_coef(self) -> Array:
        """A of f(x, z) = k_xᵀ A g_z for every alpha."""
        return self._estimator._oriented(self._model.coefficients)

    def __repr__(self) -> str:
        low, high = self.alphas.min(), self.alphas.max()
        return (
            f"ConditionalPath(n_alphas={len(self.alphas)}, alphas={low:g}…{high:g}, "
            f"solver={self.solver!r})"
        )

    def predict(self, X: Any, Z: Any = None) -> Array:
        """Scores for every alpha, shape (n_alphas, p', g'); arguments as for the estimator."""
        ranker, offsets = self._estimator, self._model.offsets
        if offsets is not None and ranker.condition_on == "columns":
            offsets = [fitted.T for fitted in offsets]
        return ranker._predict_all(X, Z, ranker._oriented(self._model.tables), offsets)


def conditional_path(
    estimator: ConditionalRankRLS, X: Any, Y: Any, Z: Any, alphas: Array
) -> ConditionalPath:
    """Fit for all alphas > 0; two-step has them on both sides."""
    if estimator.early_stopping:
        raise ValueError("early_stopping chooses an iteration for one alpha: there is no path")
    estimator._require_squared_loss("a path of alphas")
    ranker = clone(estimator)
    grid = check_alpha_pairs("alphas", alphas) if ranker._two_step else alphas
    model = ranker._fit_path(X, Y, Z, grid)
    return ConditionalPath(alphas, model.solver, ranker, model)
