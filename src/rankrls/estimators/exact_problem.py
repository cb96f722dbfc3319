"""The problem of an estimator and its data, for questions that need no fitted model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from rankrls._validation import check_positive
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.estimators.choosing import check_alphas
from rankrls.estimators.rankrls import RankRLS

__all__ = ["check_covariates", "exact_problem", "prepared_problem"]

Array = NDArray[Any]

#: Arguments of ``fit`` that say what is preferred.
PREFERENCES = ("qid", "pairs", "magnitude", "pair_weight", "pair_features", "sample_weight")


def exact_problem(
    estimator: RankRLS,
    X: Any,
    y: Any,
    alphas: ArrayLike | None,
    keep_basis: bool,
    preferences: dict[str, Any],
) -> tuple[RidgeProblem, Array, bool]:
    """The problem that a fit would make, the alphas to ask for, and whether y is a vector.

    Parameters as for `prepared_problem`.
    """
    _, problem, grid = prepared_problem(estimator, X, y, alphas, keep_basis, preferences)
    return problem, grid, problem.graph.flat


def prepared_problem(
    estimator: RankRLS,
    X: Any,
    y: Any,
    alphas: ArrayLike | None,
    keep_basis: bool,
    preferences: dict[str, Any],
) -> tuple[RankRLS, RidgeProblem, Array]:
    """An estimator that knows the features of X, the problem, and the alphas to ask for.

    Parameters
    ----------
    estimator : RankRLS
        Gives the parameters; it stays as it is.
    X, y : as for ``fit``
    alphas : array-like of shape (n_alphas,), or None for the estimator's alpha
    keep_basis : bool
        Whether basis vectors that are left out stay in the basis.
    preferences : dict
        The other arguments of ``fit`` that say what is preferred.
    """
    if not isinstance(estimator, RankRLS):
        raise ValueError(
            f"estimator must be a RankRLS; got a {type(estimator).__name__} (scale X before; a "
            "pipeline or a search is refitted by leave_pair_out_auc, or by scikit-learn's "
            "cross_val_score with LeavePairOut or QueryKFold)"
        )
    unknown = [name for name in preferences if name not in PREFERENCES]
    if unknown:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}: fit takes no such thing")
    if alphas is None:
        grid = np.array([check_positive("alpha", estimator.alpha)])
    else:
        grid = check_alphas("alphas", alphas, as_given=True)
    ranker = clone(estimator)
    kernel, X, graph = ranker._prepare(X, y, preferences)
    problem = ranker._problem(kernel, X, graph, keep_basis=keep_basis)
    return ranker, problem, grid


def check_covariates(estimator: Any, pair_features: Any) -> None:
    """Refuse to leave away the covariates of the pairs that an estimator was fitted to."""
    if pair_features is None and hasattr(estimator, "pair_coef_"):
        raise ValueError(
            "the estimator was fitted with pair_features: give those of these pairs, too"
        )
