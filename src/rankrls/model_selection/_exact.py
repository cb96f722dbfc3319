"""Exact cross-validated predictions, equal to those of explicit refits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._calls import takes_queries, tells
from rankrls._resources import n_threads
from rankrls._validation import check_pairs, encode_qid
from rankrls.core.ridge.residuals import check_fold, query_folds
from rankrls.estimators import RankRLS
from rankrls.estimators.exact_problem import exact_problem

__all__ = [
    "holdout_predict",
    "leave_pair_out_predict",
    "leave_pair_out_score",
    "leave_query_out_predict",
]

Array = NDArray[Any]


@takes_queries
@tells("predictions of every query without it")
def leave_query_out_predict(
    estimator: RankRLS,
    X: Any,
    y: Any,
    *,
    qid: Any,
    alphas: ArrayLike | None = None,
    keep_basis: bool = False,
    **fit_params: Any,
) -> Array:
    """Predict each query by the model trained on all other queries, without refitting.

    Parameters
    ----------
    estimator : RankRLS
        Defines the parameters; it need not be fitted.
    X, y : as for ``fit``
    qid : array-like of shape (n,)
        Query label of each row.
    alphas : array-like of shape (n_alphas,), optional
        Grid of values to use instead of the estimator's alpha; the whole grid costs little more
        than one value.
    keep_basis : bool, default=False
        With a Nyström basis, whether basis vectors from the held-out query stay in the basis.
    **fit_params
        sample_weight, pairs, magnitude and pair_weight, as for ``fit``. Both rows of a pair must be
        in the same query.

    Returns
    -------
    ndarray of shape (n[, n_outputs]), with alphas (n_alphas, n[, n_outputs])
        Scores, comparable only within a query, because each query is predicted by a different
        model.

    Notes
    -----
    The predictions are exact for every cost, weighting, kernel and alpha (P1 §3.3, in a form that
    avoids cancellation). A query whose small system is singular to working precision is refitted.
    Rows of a query with equal features (equal rows of a precomputed kernel) get equal scores.

    Examples
    --------
    >>> from rankrls import RankRLS
    >>> from rankrls.datasets import make_ranking
    >>> from rankrls.metrics import pairwise_accuracy
    >>> from rankrls.model_selection import leave_query_out_predict
    >>> X, y, qid = make_ranking(n_queries=40, random_state=0, return_X_y_qid=True)
    >>> scores = leave_query_out_predict(RankRLS(), X, y, qid=qid, alphas=[1.0, 100.0])
    >>> scores.shape
    (2, 800)
    >>> bool(pairwise_accuracy(y, scores[0], qid=qid) > 0.9)
    True
    """
    if qid is None:
        raise ValueError("leave-query-out needs qid, the query of every row")
    problem, grid, flat = exact_problem(
        estimator, X, y, alphas, keep_basis, {"qid": qid, **fit_params}
    )
    codes = encode_qid(qid, problem.graph.n_rows).codes
    held = problem.leave_out(query_folds(codes), grid)
    return shaped(held.by_row(len(codes)), flat, alphas)


@takes_queries
@tells("predictions of every fold without it")
def holdout_predict(
    estimator: RankRLS,
    X: Any,
    y: Any,
    folds: Iterable[ArrayLike],
    *,
    qid: Any = None,
    alphas: ArrayLike | None = None,
    keep_basis: bool = False,
    **fit_params: Any,
) -> list[Array]:
    """Predict the rows of each fold by the model trained without them, without refitting.

    Parameters
    ----------
    estimator, X, y, alphas, keep_basis, **fit_params
        As for `leave_query_out_predict`.
    folds : iterable of int arrays
        Row indices to leave out together: whole queries, or rows of a single ranking. Folds may
        have any sizes and may overlap. A fold that splits a query is exact as well: it uses a
        shortcut with cost="magnitude", ties="keep" and query_weighting="size" (or one query), and a
        refit otherwise.
    qid : array-like of shape (n,), optional

    Returns
    -------
    list of ndarray of shape (len(fold)[, n_outputs]), with alphas a leading axis (n_alphas, …)
        Scores, comparable only within a fold and query. There is one array for each fold, unlike
        in `leave_query_out_predict`, because folds may overlap and need not cover all rows.

    Examples
    --------
    If the folds are a partition of the rows, the results can be combined into one array:

    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.datasets import make_ranking
    >>> from rankrls.model_selection import holdout_predict
    >>> X, y, qid = make_ranking(n_queries=6, random_state=0, return_X_y_qid=True)
    >>> folds = [np.flatnonzero(qid % 3 == fold) for fold in range(3)]
    >>> parts = holdout_predict(RankRLS(), X, y, folds, qid=qid, alphas=[1.0, 100.0])
    >>> [part.shape for part in parts]
    [(2, 40), (2, 40), (2, 40)]
    >>> scores = np.empty((2, len(y)))
    >>> for fold, part in zip(folds, parts):
    ...     scores[:, fold] = part
    """
    problem, grid, flat = exact_problem(
        estimator, X, y, alphas, keep_basis, {"qid": qid, **fit_params}
    )
    rows = [check_fold(number, fold, problem.graph.n_rows) for number, fold in enumerate(folds)]
    held = problem.leave_out(rows, grid)
    return [shaped(part, flat, alphas) for part in held.predictions]


@tells("predictions of every pair without it")
def leave_pair_out_predict(
    estimator: RankRLS,
    X: Any,
    y: Any,
    *,
    pairs: ArrayLike | None = None,
    alphas: ArrayLike | None = None,
) -> Array:
    """Predict both rows of each pair by the model trained without them, without refitting.

    Parameters
    ----------
    estimator : RankRLS
        With cost="magnitude" and ties="keep" (or y without ties).
    X, y : as for ``fit``, one ranking
    pairs : array-like of shape (n_pairs, 2), optional
        Row indices. By default all i < j with different y, or all i < j if there are several
        outputs.
    alphas : array-like of shape (n_alphas,), optional

    Returns
    -------
    ndarray of shape (n_pairs, 2[, n_outputs]), with alphas a leading axis (n_alphas, …)
        Only the two scores of the same pair can be compared.

    Notes
    -----
    Each pair requires the solution of a 2 × 2 system in the eigenbasis of the centred kernel (P1
    §3.4); all pairs together take a few array operations for each alpha.
    """
    problem, grid, flat = exact_problem(estimator, X, y, alphas, False, {})
    chosen = problem.default_pairs() if pairs is None else check_pairs(
        pairs, problem.graph.n_rows
    )  # fmt: skip
    out = np.stack([part for part, _ in problem.leave_pairs_out(chosen, grid)])
    return shaped(out, flat, alphas)


@tells("predictions of every pair without it")
def leave_pair_out_score(estimator: RankRLS, X: Any, y: Any) -> float:
    """Fraction of pairs with different y that are ordered correctly by the model without them.

    For binary y this is the leave-pair-out estimate of the AUC, otherwise of the concordance index.
    Tied predictions count as ½. The parameters are those of `leave_pair_out_predict`; several
    outputs are averaged.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from rankrls import RankRLS
    >>> from rankrls.model_selection import leave_pair_out_score
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> round(leave_pair_out_score(RankRLS(100.0), X[:60], y[:60]), 3)
    0.984
    """
    problem, grid, _ = exact_problem(estimator, X, y, None, False, {})
    accuracy, _ = next(problem.pair_accuracies(grid, n_threads(estimator.n_jobs)))
    return float(accuracy.mean())


def shaped(values: Array, flat: bool, alphas: ArrayLike | None) -> Array:
    """Drop the axes that the caller did not request: outputs (last), alphas (first)."""
    values = values[..., 0] if flat else values
    return values[0] if alphas is None else values
