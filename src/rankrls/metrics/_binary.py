"""List metrics for binary relevance: precision, recall, average precision, reciprocal rank.

Where scores tie, each metric is the expected value over all orders of the tied rows. Notation: a
tie group has g rows, r of them relevant; s rows of its query, R of them relevant, rank above it.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from rankrls._calls import takes_queries
from rankrls.metrics._arguments import ListInputs, check_lists, value_by_query
from rankrls.metrics._ranked import RankedLists

__all__ = [
    "average_precision",
    "average_precision_values",
    "precision",
    "precision_values",
    "recall",
    "recall_values",
    "reciprocal_rank",
    "reciprocal_rank_values",
]

Array = NDArray[Any]


@takes_queries
def average_precision(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    qid: ArrayLike | None = None,
    k: int | None = None,
    relevance_threshold: float = 1.0,
    undefined: float | Literal["skip"] = "skip",
    average: Literal["query"] | None = "query",
) -> float | NDArray[np.float64]:
    """Mean of the precision at the rank of each relevant row (MAP).

    Parameters
    ----------
    y_true : array-like of shape (n_rows,) or (n_rows, n_outputs)
        Labels, higher = more relevant.
    y_score : array-like of shape (n_rows,) or (n_rows, n_outputs)
        Predicted scores, higher = ranked earlier. Several outputs are evaluated one by one and
        averaged with equal weights.
    qid : array-like of shape (n_rows,), optional
        Query label of each row, in any order. If None, all rows form one query.
    k : int, optional
        Only relevant rows among the first ``k`` count. If None, all of them do.
    relevance_threshold : float, default=1
        A row is relevant if its label is at least this. The default suits labels 0/1, -1/+1 and
        grades 0, 1, 2, … as in trec_eval.
    undefined : {0, 1, "skip"}, default="skip"
        Value of a query without a relevant row; "skip" excludes it from the mean, as everywhere in
        this package. trec_eval and ranx use 0.
    average : {"query"} or None, default="query"
        "query" returns the mean over the queries, None one value for each query.

    Returns
    -------
    float or ndarray of shape (n_queries,) or (n_queries, n_outputs)
        Between 0 and 1. With ``average=None``, an array in the order of the sorted query labels,
        with NaN for the queries that are skipped.

    Notes
    -----
    With R_all relevant rows in the query and rel_p = 1 if the row at rank p is relevant,

        AP@k = 1/R_all · Σ_{p ≤ k} rel_p · (rel_1 + … + rel_p) / p.

    The denominator is R_all even when k < R_all, as in trec_eval (``map_cut``) and ranx; other
    libraries use min(R_all, k). Where scores tie, place j of a tie group contributes in expectation

        r/g · (R + 1 + (j − 1)(r − 1)/(g − 1)) / (s + j).

    Without ties and without k this equals scikit-learn's ``average_precision_score``, which treats
    tied rows as a single threshold instead.

    Examples
    --------
    >>> from rankrls.metrics import average_precision
    >>> average_precision([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1])
    0.8333333333333333
    >>> average_precision([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1], k=2)
    0.5
    """
    inputs = check_lists(y_true, y_score, qid, k, undefined, average)
    return value_by_query(inputs, average_precision_values(inputs, relevance_threshold))


def _average_precision(lists: RankedLists, relevant: Array, k: int | None) -> Array:
    n_relevant = lists.sum_groups(relevant)
    above = lists.sum_before(n_relevant)
    slope = (n_relevant - 1) / np.maximum(lists.size - 1, 1)
    place = lists.rank - lists.before[lists.group]
    found = (above + 1)[lists.group] + (place - 1) * slope[lists.group]
    value = lists.at_places((n_relevant / lists.size)[lists.group] * found / lists.rank)
    return lists.sum_queries(lists.sum_groups(value)) / _at_least_one(lists, n_relevant)


@takes_queries
def reciprocal_rank(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    qid: ArrayLike | None = None,
    k: int | None = None,
    relevance_threshold: float = 1.0,
    undefined: float | Literal["skip"] = "skip",
    average: Literal["query"] | None = "query",
) -> float | NDArray[np.float64]:
    """Reciprocal rank of the first relevant row (MRR).

    Parameters
    ----------
    y_true : array-like of shape (n_rows,) or (n_rows, n_outputs)
        Labels, higher = more relevant.
    y_score : array-like of shape (n_rows,) or (n_rows, n_outputs)
        Predicted scores, higher = ranked earlier; several outputs are averaged.
    qid : array-like of shape (n_rows,), optional
        Query label of each row, in any order. If None, all rows form one query.
    k : int, optional
        The value is 0 if the first relevant row ranks below ``k``. If None, there is no limit.
    relevance_threshold : float, default=1
        A row is relevant if its label is at least this.
    undefined : {0, 1, "skip"}, default="skip"
        Value of a query without a relevant row; "skip" excludes it from the mean.
    average : {"query"} or None, default="query"
        "query" returns the mean over the queries, None one value for each query.

    Returns
    -------
    float or ndarray of shape (n_queries,) or (n_queries, n_outputs)
        Between 0 and 1. With ``average=None``, an array in the order of the sorted query labels,
        with NaN for the queries that are skipped.

    Notes
    -----
    In the first tie group with a relevant row, the first relevant row is at place j with
    probability C(g − j, r − 1) / C(g, r), so the expected value is

        RR@k = Σ_{j: s + j ≤ k} C(g − j, r − 1) / C(g, r) / (s + j).

    The binomials are computed from log Γ, with full accuracy for tie groups of ordinary size and
    about nine digits for a million tied rows.

    Examples
    --------
    >>> from rankrls.metrics import reciprocal_rank
    >>> reciprocal_rank([0, 1, 0, 1], [0.9, 0.8, 0.7, 0.1])
    0.5
    >>> reciprocal_rank([0, 1], [0.5, 0.5])
    0.75
    """
    inputs = check_lists(y_true, y_score, qid, k, undefined, average)
    return value_by_query(inputs, reciprocal_rank_values(inputs, relevance_threshold))


def _reciprocal_rank(lists: RankedLists, relevant: Array, k: int | None) -> Array:
    n_relevant = lists.sum_groups(relevant)
    decides = (n_relevant > 0) & (lists.sum_before(n_relevant) == 0)
    rows = np.flatnonzero(decides[lists.group])
    group, rank = lists.group[rows], lists.rank[rows]
    value = np.zeros(len(lists.rank))
    value[rows] = _first_at(lists.size[group], n_relevant[group], rank - lists.before[group])
    value = lists.at_places(value / lists.rank)
    return lists.sum_queries(lists.sum_groups(value))


@takes_queries
def precision(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    qid: ArrayLike | None = None,
    k: int | None = None,
    relevance_threshold: float = 1.0,
    undefined: float | Literal["skip"] = "skip",
    average: Literal["query"] | None = "query",
) -> float | NDArray[np.float64]:
    """Fraction of relevant rows among the first ``k``.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,) or (n_rows, n_outputs)
        Labels, higher = more relevant.
    y_score : array-like of shape (n_rows,) or (n_rows, n_outputs)
        Predicted scores, higher = ranked earlier; several outputs are averaged.
    qid : array-like of shape (n_rows,), optional
        Query label of each row, in any order. If None, all rows form one query.
    k : int, optional
        Number of rows at the top of the list that count. If None, all rows of the query.
    relevance_threshold : float, default=1
        A row is relevant if its label is at least this.
    undefined : {0, 1, "skip"}, default="skip"
        Value of a query without a relevant row; "skip" excludes it from the mean.
    average : {"query"} or None, default="query"
        "query" returns the mean over the queries, None one value for each query.

    Returns
    -------
    float or ndarray of shape (n_queries,) or (n_queries, n_outputs)
        Between 0 and 1. With ``average=None``, an array in the order of the sorted query labels,
        with NaN for the queries that are skipped.

    Notes
    -----
    Precision@k = (rel_1 + … + rel_k) / k, also for a query with fewer than k rows: as in
    trec_eval, the missing rows count as not relevant. Where scores tie, each place of a tie group
    holds a relevant row with probability r/g.

    Examples
    --------
    >>> from rankrls.metrics import precision
    >>> precision([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1], k=2)
    0.5
    >>> precision([1, 0, 1, 0], [0.9, 0.8, 0.8, 0.1], k=2)
    0.75
    """
    inputs = check_lists(y_true, y_score, qid, k, undefined, average)
    return value_by_query(inputs, precision_values(inputs, relevance_threshold))


def _precision(lists: RankedLists, relevant: Array, k: int | None) -> Array:
    limit: Array | int = k if k is not None else np.maximum(lists.places, 1)
    return _found(lists, relevant) / limit


@takes_queries
def recall(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    qid: ArrayLike | None = None,
    k: int | None = None,
    relevance_threshold: float = 1.0,
    undefined: float | Literal["skip"] = "skip",
    average: Literal["query"] | None = "query",
) -> float | NDArray[np.float64]:
    """Fraction of the relevant rows that are among the first ``k``.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,) or (n_rows, n_outputs)
        Labels, higher = more relevant.
    y_score : array-like of shape (n_rows,) or (n_rows, n_outputs)
        Predicted scores, higher = ranked earlier; several outputs are averaged.
    qid : array-like of shape (n_rows,), optional
        Query label of each row, in any order. If None, all rows form one query.
    k : int, optional
        Number of rows at the top of the list that count. If None, all rows count and the recall is
        1.
    relevance_threshold : float, default=1
        A row is relevant if its label is at least this.
    undefined : {0, 1, "skip"}, default="skip"
        Value of a query without a relevant row; "skip" excludes it from the mean.
    average : {"query"} or None, default="query"
        "query" returns the mean over the queries, None one value for each query.

    Returns
    -------
    float or ndarray of shape (n_queries,) or (n_queries, n_outputs)
        Between 0 and 1. With ``average=None``, an array in the order of the sorted query labels,
        with NaN for the queries that are skipped.

    Notes
    -----
    Recall@k = (rel_1 + … + rel_k) / R_all, with R_all relevant rows in the query. Where scores tie,
    each place of a tie group holds a relevant row with probability r/g.

    Examples
    --------
    >>> from rankrls.metrics import recall
    >>> recall([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1], k=2)
    0.5
    >>> recall([1, 0, 1, 0], [0.9, 0.8, 0.8, 0.1], k=2)
    0.75
    """
    inputs = check_lists(y_true, y_score, qid, k, undefined, average)
    return value_by_query(inputs, recall_values(inputs, relevance_threshold))


def _recall(lists: RankedLists, relevant: Array, k: int | None) -> Array:
    return _found(lists, relevant) / _at_least_one(lists, lists.sum_groups(relevant))


def _found(lists: RankedLists, relevant: Array) -> Array:
    """Expected number of relevant rows above the cut-off, for each query."""
    return lists.sum_queries(lists.sum_groups(relevant) * lists.inside / lists.size)


def _of_relevance(
    by_query: Callable[[RankedLists, Array, int | None], Array],
    inputs: ListInputs,
    relevance_threshold: float,
) -> Callable[[Array, Array], Array]:
    """Apply ``by_query`` to labels and scores of shape (n_rows,); NaN without a relevant row."""
    _check_threshold(relevance_threshold)

    def one_output(y: Array, score: Array) -> Array:
        lists = inputs.ranked(score)
        relevant = (y >= relevance_threshold)[lists.order].astype(np.int64)
        value = by_query(lists, relevant, inputs.k)
        value[lists.sum_queries(lists.sum_groups(relevant)) == 0] = np.nan
        return value

    return one_output


average_precision_values = partial(_of_relevance, _average_precision)
reciprocal_rank_values = partial(_of_relevance, _reciprocal_rank)
precision_values = partial(_of_relevance, _precision)
recall_values = partial(_of_relevance, _recall)


def _check_threshold(threshold: Any) -> None:
    if not isinstance(threshold, numbers.Real) or not -np.inf < float(threshold) < np.inf:
        raise ValueError(f"relevance_threshold must be a finite number; got {threshold!r}")


def _at_least_one(lists: RankedLists, n_relevant: Array) -> Array:
    """Number of relevant rows of each query, at least one so that it can be a denominator."""
    return np.maximum(lists.sum_queries(n_relevant), 1)


def _first_at(g: Array, r: Array, j: Array) -> Array:
    """Probability that the first of r relevant rows among g in random order is at place j.

    C(g − j, r − 1) / C(g, r) = r / (g − j + 1) · Π_{t < j − 1} (g − r − t) / (g − t).
    """
    possible = j - 1 <= g - r
    later = np.where(possible, g - r - j + 2, 1)
    log_none_before = (gammaln(g - r + 1) - gammaln(later)) - (gammaln(g + 1) - gammaln(g - j + 2))
    return np.where(possible, r / (g - j + 1) * np.exp(log_none_before), 0.0)
