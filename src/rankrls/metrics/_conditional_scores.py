"""Metrics for conditional rankings, one list for each conditioning object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._frames import scores_in_order
from rankrls._relation_labels import EdgeList, read_labels
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
        Labels, higher = preferred; NaN where there is none. In a sparse matrix the stored entries
        are the labels; a COO matrix may store several labels for the same cell.
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
    labels = read_labels(Y_true, "Y_true")
    score = check_finite_array("Y_score", Y_score, ndim=(2,))
    shape = labels.shape
    if shape != score.shape:
        raise ValueError(f"Y_true has shape {shape} and Y_score has shape {score.shape}")
    if isinstance(labels, EdgeList):
        rows, cols, y = labels[:3]
        if condition_on == "columns":
            rows, cols, score, shape = cols, rows, score.T, shape[::-1]
        order = np.argsort(rows, kind="stable")
        rows, cols, y = rows[order], cols[order], y[order]
        bounds = np.searchsorted(rows, np.arange(shape[0] + 1))
    else:
        if condition_on == "columns":
            labels, score, shape = labels.T, score.T, shape[::-1]
        bounds = np.arange(shape[0] + 1) * shape[1]
    out = np.full(shape[0], np.nan)
    start = 0
    while start < shape[0]:
        stop = max(start + 1, int(np.searchsorted(bounds, bounds[start] + WORK, "right")) - 1)
        if isinstance(labels, EdgeList):
            part = slice(bounds[start], bounds[stop])
            lists = (rows[part], y[part], score[rows[part], cols[part]])
        else:
            block = labels[start:stop]
            i, j = np.nonzero(~np.isnan(block))
            lists = (i + start, block[i, j], score[start:stop][i, j])
        start = stop
        if not len(lists[0]):
            continue
        of, truth, predicted = lists
        first = np.concatenate([[True], of[1:] != of[:-1]])
        begin = np.flatnonzero(first)
        varied = np.maximum.reduceat(truth, begin) > np.minimum.reduceat(truth, begin)
        if varied.any():  # lists without two different labels remain NaN
            chosen = varied[np.cumsum(first) - 1]
            values = (truth[chosen], predicted[chosen])
            out[of[begin][varied]] = metric(*values, qid=of[chosen], average=None, **options)
    return out
