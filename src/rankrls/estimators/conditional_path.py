"""All coefficients of a conditional ranker for a grid of alphas, from one decomposition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from sklearn.base import clone

from rankrls.core.relations.offsets import FittedOffsets
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
    solver : str
        The solver that was used.
    """

    alphas: Array
    dual_coef: Array
    solver: str
    _estimator: ConditionalRankRLS
    _tables: Array
    _offsets: list[FittedOffsets] | None

    def __repr__(self) -> str:
        low, high = self.alphas.min(), self.alphas.max()
        return (
            f"ConditionalPath(n_alphas={len(self.alphas)}, alphas={low:g}…{high:g}, "
            f"solver={self.solver!r})"
        )

    def predict(self, X: Any, Z: Any = None) -> Array:
        """Scores for every alpha, shape (n_alphas, p', g'); arguments as for the estimator."""
        return self._estimator._predict_all(X, Z, self._tables, self._offsets)


def conditional_path(
    estimator: ConditionalRankRLS, X: Any, Y: Any, Z: Any, alphas: Array
) -> ConditionalPath:
    """Fit for all alphas > 0."""
    if estimator.early_stopping:
        raise ValueError("early_stopping chooses an iteration for one alpha: there is no path")
    ranker = clone(estimator)
    model = ranker._fit_path(X, Y, Z, alphas)
    dual_coef = ranker._oriented(model.coefficients)
    tables = dual_coef if model.weights is None else ranker._oriented(model.weights)
    offsets = model.offsets
    if offsets is not None and ranker.condition_on == "columns":
        offsets = [fitted.T for fitted in offsets]
    return ConditionalPath(alphas, dual_coef, model.solver, ranker, tables, offsets)
