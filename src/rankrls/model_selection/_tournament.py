"""A ranking of all rows from leave-pair-out cross-validation: a tournament of all pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._validation import check_finite_array, check_integer, check_pairs
from rankrls.core.ridge.leave_pair_out import all_pairs
from rankrls.estimators import RankRLS
from rankrls.model_selection._exact import leave_pair_out_predict

__all__ = ["leave_pair_out_tournament", "tournament_scores"]

Array = NDArray[Any]


def leave_pair_out_tournament(estimator: RankRLS, X: Any, y: Any) -> Array:
    """The part of its comparisons that every row wins, by models that saw neither row.

    Parameters
    ----------
    estimator : RankRLS
        Unfitted; gives the parameters. With cost="magnitude" and ties="keep" (or no ties in y),
        because also pairs of equal y are left out.
    X, y : as for ``fit``, one ranking; y of shape (n,)

    Returns
    -------
    ndarray of shape (n,)
        Between 0 and 1. The rows in the order of these scores are a cross-validated ranking, from
        which a ROC curve can be drawn.

    See Also
    --------
    leave_pair_out_score : The estimate of the AUC by the pairs alone.
    rankrls.plotting.LeavePairOutRocDisplay : The curve.

    Notes
    -----
    Leave-pair-out tells which row of a pair is preferred, and no more: predictions of different
    pairs come from different models and cannot be compared. In a tournament every row plays every
    other one, and rows are ranked by their wins (tournament leave-pair-out, Montoya Perez et al.
    2019). If the comparisons contradict each other nowhere (no three rows beat each other in a
    circle, no ties), the ranking agrees with all of them, and its AUC is the leave-pair-out AUC.
    Otherwise the two differ a little.

    All n(n − 1)/2 pairs are left out, exactly, from one decomposition.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.metrics import roc_auc_score
    >>> from rankrls import RankRLS
    >>> from rankrls.model_selection import leave_pair_out_tournament
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> wins = leave_pair_out_tournament(RankRLS(100.0), X[:60], y[:60])
    >>> round(float(roc_auc_score(y[:60], wins)), 3)
    0.984
    """
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    pairs = all_pairs(n)
    predictions = leave_pair_out_predict(estimator, X, y, pairs=pairs)
    if predictions.ndim != 2:
        raise ValueError("a tournament has one output: give y of shape (n,)")
    return tournament_scores(pairs, predictions, n)


def tournament_scores(pairs: ArrayLike, predictions: ArrayLike, n_rows: int) -> Array:
    """The part of its comparisons that every row wins; a tie is half a win.

    Parameters
    ----------
    pairs : array-like of shape (n_pairs, 2), int
        Rows that were compared. Each must be in a pair; it is a tournament if all pairs are there.
    predictions : array-like of shape (n_pairs, 2)
        Scores of the two rows of every pair, from any estimator; higher wins.
    n_rows : int

    Returns
    -------
    ndarray of shape (n_rows,)

    Examples
    --------
    >>> from rankrls.model_selection import tournament_scores
    >>> tournament_scores([(0, 1), (0, 2), (1, 2)], [(0.2, 0.1), (3, 5), (1, 1)], 3)
    array([0.5 , 0.25, 0.75])
    """
    n = check_integer("n_rows", n_rows, least=2)
    rows = check_pairs(pairs, n)
    scores = check_finite_array("predictions", predictions, ndim=(2,))
    if scores.shape != rows.shape:
        raise ValueError(
            f"predictions has shape {scores.shape}: two scores for each of {len(rows)} pairs "
            "are needed"
        )
    won = (np.sign(scores[:, 0] - scores[:, 1]) + 1) / 2
    played = np.bincount(rows.ravel(), minlength=n)
    if not played.all():
        missing = int(np.flatnonzero(played == 0)[0])
        raise ValueError(f"row {missing} is in no pair: a tournament compares all rows")
    wins = np.bincount(rows[:, 0], won, minlength=n) + np.bincount(rows[:, 1], 1 - won, minlength=n)
    return wins / played
