"""Normalised discounted cumulative gain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._calls import takes_queries
from rankrls._validation import check_option
from rankrls.metrics._arguments import ListInputs, check_lists, value_by_query
from rankrls.metrics._ranked import RankedLists

__all__ = ["ndcg", "ndcg_values"]

Array = NDArray[Any]
# 2^y overflows float64 a little above this.
_LARGEST_EXPONENT = 1000


@takes_queries
def ndcg(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    qid: ArrayLike | None = None,
    k: int | None = None,
    gain: Literal["exponential", "linear"] = "exponential",
    undefined: float | Literal["skip"] = "skip",
    average: Literal["query"] | None = "query",
) -> float | NDArray[np.float64]:
    """Normalised discounted cumulative gain (NDCG).

    Parameters
    ----------
    y_true : array-like of shape (n_rows,) or (n_rows, n_outputs)
        Labels >= 0, higher = more relevant.
    y_score : array-like of shape (n_rows,) or (n_rows, n_outputs)
        Predicted scores, higher = ranked earlier. Several outputs are evaluated one by one and
        averaged with equal weights.
    qid : array-like of shape (n_rows,), optional
        Query label of each row, in any order. If None, all rows form one query.
    k : int, optional
        Only the first ``k`` rows count. If None, all rows count.
    gain : {"exponential", "linear"}, default="exponential"
        "exponential" is 2^y − 1, usual for graded relevance in web search; "linear" is y.
    undefined : {0, 1, "skip"}, default="skip"
        Value of a query without a relevant row (all labels zero), for which the ratio is 0/0.
        By default such queries are excluded from the mean, as in the pairwise error, because no
        order of their rows is better than another. The scorers, ``scoring="ndcg@10"`` of
        `RankRLSCV`, the report and ``rankrls evaluate`` do the same. scikit-learn uses 0, LightGBM
        uses 1.
    average : {"query"} or None, default="query"
        "query" returns the mean over the queries, None one value for each query.

    Returns
    -------
    float or ndarray of shape (n_queries,) or (n_queries, n_outputs)
        Between 0 and 1. With ``average=None``, an array in the order of the sorted query labels,
        with NaN for the queries that are skipped.

    Raises
    ------
    ValueError
        If an argument is invalid, or if all queries are skipped.

    Notes
    -----
    With the rows of a query sorted by descending score, π(p) the row at rank p and G the gain,

        DCG = Σ_{p ≤ k} G(y_π(p)) / log2(1 + p),      NDCG = DCG / (DCG of the order of y).

    Where scores tie, DCG is the expected value over all orders of the tied rows: each place of a
    tie group gets the mean gain of the group, and k may cut through a group.

    Examples
    --------
    >>> from rankrls.metrics import ndcg
    >>> y_true = [2, 1, 0, 0, 1]
    >>> y_score = [0.3, 0.9, 0.1, 0.8, 0.2]
    >>> ndcg(y_true, y_score, qid=[1, 1, 1, 2, 2], average=None)
    array([0.79670758, 0.63092975])
    >>> ndcg(y_true, y_score, qid=[1, 1, 1, 2, 2], k=1)
    0.16666666666666666
    """
    inputs = check_lists(y_true, y_score, qid, k, undefined, average)
    return value_by_query(inputs, ndcg_values(inputs, gain))


def ndcg_values(inputs: ListInputs, gain: str) -> Callable[[Array, Array], Array]:
    """Return a function that computes the NDCG of each query from labels and scores."""
    check_option("gain", gain, ("exponential", "linear"))
    _check_gains(inputs.y_true, gain)
    best = replace(inputs, retrieved=None)

    def one_output(y: Array, score: Array) -> Array:
        gains = np.exp2(y) - 1.0 if gain == "exponential" else y
        ideal = _dcg(gains, best.ranked(y))
        actual = _dcg(gains, inputs.ranked(score))
        value = np.full(len(ideal), np.nan)
        np.divide(actual, ideal, out=value, where=ideal > 0)
        return np.minimum(value, 1.0, out=value)

    return one_output


def _check_gains(y: Array, gain: str) -> None:
    """Raise an error unless the labels give finite gains >= 0."""
    if (y < 0).any():
        where = int(np.argwhere(y < 0)[0, 0])
        raise ValueError(
            f"y_true must be >= 0 for ndcg; row {where} has {y[where].min():g} "
            "(add a constant, so that 0 means not relevant)"
        )
    if gain == "exponential" and (y > _LARGEST_EXPONENT).any():
        where = int(np.argwhere(y > _LARGEST_EXPONENT)[0, 0])
        raise ValueError(
            f"y_true must be <= {_LARGEST_EXPONENT} for the exponential gain 2^y - 1; row {where} "
            f"has {y[where].max():g} (use gain='linear')"
        )


def _dcg(gains: Array, lists: RankedLists) -> Array:
    """Return the expected discounted cumulative gain of every query, shape (n_queries,)."""
    discount = 1.0 / np.log2(np.arange(1, int(lists.query_size.max()) + 1) + 1.0)
    # Mean gain of the group times the discounts of its places.
    discounts = lists.sum_groups(lists.at_places(discount[lists.rank - 1]))
    return lists.sum_queries(lists.sum_groups(gains[lists.order]) / lists.size * discounts)
