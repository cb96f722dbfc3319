"""Metrics for conditional rankings, one list for each conditioning object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._frames import scores_in_order
from rankrls._relation_labels import Observations
from rankrls._validation import check_finite_array, check_option
from rankrls.metrics._pairwise import pairwise_accuracy

__all__ = ["conditional_scores"]

Array = NDArray[Any]

#: Number of labels scored at a time.
WORK = 2**22


def conditional_scores(
    Y_true: Any,
    Y_score: ArrayLike,
    *,
    metric: Callable[..., Any] = pairwise_accuracy,
    condition_on: Literal["rows", "columns"] = "rows",
    **options: Any,
) -> NDArray[np.float64]:
    """Compute a metric for each conditioning object, whose row of the relation is one ranked list.

    Parameters
    ----------
    Y_true : array-like or sparse matrix of shape (p, g)
        Labels, higher = preferred; NaN, or not stored, where there is none. A COO matrix may store
        several labels for the same cell.
    Y_score : array-like of shape (p, g)
        Predicted scores.
    metric : callable, default=pairwise_accuracy
        A metric of this package: ``metric(y_true, y_score, qid=..., average=None)``.
    condition_on : {"rows", "columns"}, default="rows"
        Whether each row or each column is a list.
    **options
        Additional arguments of the metric, such as ``k=10``.

    Returns
    -------
    ndarray of shape (p,), or (g,) for columns
        Value for each object; NaN if it has no labels, or no labels that differ.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls.metrics import conditional_scores, pairwise_error
    >>> Y = np.array([[2.0, 1.0, 0.0], [np.nan, 0.0, 1.0], [1.0, 1.0, np.nan]])
    >>> scores = np.array([[3.0, 1.0, 2.0], [9.0, 0.0, 1.0], [0.0, 1.0, 2.0]])
    >>> conditional_scores(Y, scores, metric=pairwise_error)
    array([0.33333333, 0.        ,        nan])
    """
    check_option("condition_on", condition_on, ("rows", "columns"))
    if not callable(metric):
        raise ValueError(
            "metric must be a function such as rankrls.metrics.ndcg, with k=… for a cut-off; got "
            f"{metric!r}"
        )
    Y_score = scores_in_order(Y_score, Y_true)
    labels = Observations.read(Y_true, "Y_true")
    score = check_finite_array("Y_score", Y_score, ndim=(2,))
    if labels.shape != score.shape:
        raise ValueError(f"Y_true has shape {labels.shape} and Y_score has shape {score.shape}")
    if condition_on == "columns":
        labels, score = labels.T, score.T
    n, m = labels.shape
    out, columns = np.full(n, np.nan), np.arange(m)
    step = max(1, WORK * n // max(labels.n_edges, 1))
    for start in range(0, n, step):
        lists = np.arange(start, min(start + step, n))
        rows, cols, truth = labels.between(lists, columns).lists
        if not len(rows):
            continue
        order = np.argsort(rows, kind="stable")
        rows, cols, truth = rows[order], cols[order], truth[order]
        first = np.concatenate([[True], rows[1:] != rows[:-1]])
        begin = np.flatnonzero(first)
        varied = np.maximum.reduceat(truth, begin) > np.minimum.reduceat(truth, begin)
        if varied.any():  # lists without two different labels remain NaN
            chosen = varied[np.cumsum(first) - 1]
            of, values = rows[chosen], (truth[chosen], score[start + rows, cols][chosen])
            out[start + rows[begin][varied]] = metric(*values, qid=of, average=None, **options)
    return out
