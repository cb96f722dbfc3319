"""A ranking of all rows from leave-pair-out cross-validation, by a tournament of all pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._validation import check_finite_array, check_integer, check_pairs
from rankrls.core.ridge.pairs import all_pairs
from rankrls.estimators import RankRLS
from rankrls.model_selection._exact import leave_pair_out_predict

__all__ = ["leave_pair_out_tournament", "tournament_scores"]

Array = NDArray[Any]


def leave_pair_out_tournament(estimator: RankRLS, X: Any, y: Any) -> Array:
    """Rank rows by the fraction of comparisons each wins in leave-pair-out cross-validation.

    Parameters
    ----------
    estimator : RankRLS
        Defines the parameters; it need not be fitted. It must have cost="magnitude" and ties="keep"
        (or y without ties), because pairs of equal y are left out as well.
    X, y : as for ``fit``, one ranking; y of shape (n,)

    Returns
    -------
    ndarray of shape (n,)
        Fraction of comparisons won by each row, between 0 and 1. Sorting by these scores gives a
        cross-validated ranking, from which a ROC curve can be drawn.

    See Also
    --------
    leave_pair_out_score : Leave-pair-out estimate of the AUC.
    rankrls.plotting.LeavePairOutRocDisplay : Plot of the cross-validated ROC curve.

    Notes
    -----
    Leave-pair-out cross-validation only tells which row of a pair is preferred: predictions of
    different pairs come from different models and cannot be compared. In a tournament each row is
    compared with all others, and rows are ranked by their number of wins (tournament
    leave-pair-out, Montoya Perez et al. 2019). If the comparisons are consistent (no cycles and no
    ties), the ranking agrees with all of them and its AUC is the leave-pair-out AUC. Otherwise the
    two differ slightly.

    The predictions for all n(n − 1)/2 pairs are exact and come from one decomposition.

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
        raise ValueError("a tournament has one output; give y of shape (n,)")
    return tournament_scores(pairs, predictions, n)


def tournament_scores(pairs: ArrayLike, predictions: ArrayLike, n_rows: int) -> Array:
    """Fraction of its comparisons that each row wins, with a tie counted as half a win.

    Parameters
    ----------
    pairs : array-like of shape (n_pairs, 2), int
        Indices of the rows that were compared. Every row must be in at least one pair; a complete
        tournament has all pairs.
    predictions : array-like of shape (n_pairs, 2)
        Scores of the two rows of each pair, from any estimator; the higher score wins.
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
            f"predictions must hold two scores for each of {len(rows)} pairs; got shape "
            f"{scores.shape}"
        )
    won = (np.sign(scores[:, 0] - scores[:, 1]) + 1) / 2
    played = np.bincount(rows.ravel(), minlength=n)
    if not played.all():
        missing = int(np.flatnonzero(played == 0)[0])
        raise ValueError(f"row {missing} is in no pair; a tournament compares all rows")
    wins = np.bincount(rows[:, 0], won, minlength=n) + np.bincount(rows[:, 1], 1 - won, minlength=n)
    return wins / played
