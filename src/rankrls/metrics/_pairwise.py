"""Pairwise metrics: the fraction of preferences that are predicted in the right or wrong order."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._calls import takes_queries
from rankrls._validation import (
    Queries,
    check_magnitudes,
    check_option,
    check_pairs,
    check_weights,
    encode_qid,
)
from rankrls.metrics._lists import averaged, check_choice, check_labels_and_scores
from rankrls.metrics.counting import count_pairs

Array = NDArray[Any]
# Error of a tied prediction of a preferred pair.
_TIE_COST = {"half": 0.5, "error": 1.0}


@takes_queries
def pairwise_error(
    y_true: ArrayLike | None,
    y_score: ArrayLike,
    *,
    qid: ArrayLike | None = None,
    pairs: ArrayLike | None = None,
    ties: Literal["half", "error"] = "half",
    label_ties: Literal["ignore", "half"] = "ignore",
    average: Literal["query", "pair"] | None = "query",
    sample_weight: ArrayLike | None = None,
    pair_weight: ArrayLike | None = None,
    magnitude: ArrayLike | None = None,
) -> float | NDArray[np.float64]:
    """Fraction of the preferences that the scores put in the wrong order.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,) or (n_rows, n_outputs), or None
        Labels, higher = preferred. Any two rows of the same query with different labels form a
        preference. None if ``pairs`` are given.
    y_score : array-like of shape (n_rows,) or (n_rows, n_outputs)
        Predicted scores, higher = preferred. Several outputs are averaged with equal weights.
    qid : array-like of shape (n_rows,), optional
        Query of each row, in any order. If None, all rows form one query.
    pairs : array-like of shape (n_pairs, 2), optional
        Preferences as row indices (preferred, other), both in the same query.
    ties : {"half", "error"}, default="half"
        Whether a tied *prediction* of a preferred pair counts as half an error or as an error.
        (The parameter ``ties`` of the estimators is about tied *labels* instead.)
    label_ties : {"ignore", "half"}, default="ignore"
        Rows with tied *labels*, and pairs of magnitude 0: no preference, or half an error where
        their predictions differ, as in P2 (1).
    average : {"query", "pair"} or None, default="query"
        Mean over the queries that have a preference, over the preferences of all queries
        together, or one value for each query.
    sample_weight : array-like of shape (n_rows,), optional
        Non-negative row weights ω; the preference of i over j has weight ω_i ω_j.
    pair_weight : array-like of shape (n_pairs,), optional
        Non-negative weights of ``pairs``, multiplied with those of their rows.
    magnitude : array-like of shape (n_pairs,), optional
        Magnitudes of ``pairs``, as in ``fit``. Pairs of magnitude 0 were judged equal.

    Returns
    -------
    float or ndarray of shape (n_queries,) or (n_queries, n_outputs)
        Between 0 and 1. With ``average=None``, in the order of the sorted query labels, with NaN
        for queries without a preference.

    Notes
    -----
    With E_q the preferences i ≻ j of query q, and c = 1/2 (``ties="half"``, P3 (1)) or 1
    (``ties="error"``, P1 (1)),

        error_q = Σ_{(i,j) ∈ E_q} ω_i ω_j ([f_i < f_j] + c [f_i = f_j]) / Σ_{(i,j) ∈ E_q} ω_i ω_j.

    Examples
    --------
    >>> from rankrls.metrics import pairwise_error
    >>> y_true = [2, 1, 0, 1, 0]
    >>> y_score = [0.9, 0.4, 0.5, 0.1, 0.1]
    >>> pairwise_error(y_true, y_score, qid=["a", "a", "a", "b", "b"], average=None)
    array([0.33333333, 0.5       ])
    """
    check_option("ties", ties, _TIE_COST)
    half = check_option("label_ties", label_ties, ("ignore", "half")) == "half"
    check_choice("average", average, ("query", "pair", None))
    labels, score = check_labels_and_scores(y_true, y_score, qid=qid, sample_weight=sample_weight)
    n_rows, single = len(score), score.ndim == 1
    if (labels is None) == (pairs is None):
        raise ValueError(
            "there are no preferences; give y_true or pairs"
            if labels is None
            else "y_true and pairs are both given, and either defines the preferences; pass only "
            "one of them (y_true=None with pairs)"
        )
    weight = None
    if sample_weight is not None:
        weight = _scaled(check_weights("sample_weight", sample_weight, n_rows, "rows of y_score"))
    queries = encode_qid(qid, n_rows, of="rows of y_score")
    cost, outputs = _TIE_COST[ties], score.reshape(n_rows, -1).T
    if pairs is not None:
        given = (queries, weight, pair_weight, magnitude)
        found = _count_given(outputs, pairs, *given, cost, half)
    else:
        for name, value in (("pair_weight", pair_weight), ("magnitude", magnitude)):
            if value is not None:
                raise ValueError(f"{name} is given without pairs; labels y_true take sample_weight")
        columns = zip(labels.reshape(n_rows, -1).T, outputs, strict=True)
        found = [_count_labels(y, s, queries, weight, cost, half) for y, s in columns]
    # For each output: error and total weight of the preferences of each query.
    wrong, total = (np.column_stack(part).astype(np.float64) for part in zip(*found, strict=True))
    error = np.full(total.shape, np.nan)
    np.divide(wrong, total, out=error, where=total > 0)
    np.minimum(error, 1.0, out=error)
    reason = (
        "there is no preference to evaluate{}: no query has two rows of positive weight with "
        "different labels, and no pair is given"
    )
    value = averaged(error, "query", single, reason)
    if average == "pair":
        return float(np.mean(np.minimum(wrong.sum(axis=0) / total.sum(axis=0), 1.0)))
    return value if average == "query" else averaged(error, None, single, reason)


def _count_given(
    outputs: Array,
    pairs: Any,
    queries: Queries,
    weight: Array | None,
    pair_weight: Any,
    magnitude: Any,
    cost: float,
    half: bool,
) -> list[tuple[Array, Array]]:
    """Error and total weight of the given pairs of each query, for each row of ``outputs``."""
    edges = check_pairs(pairs, len(queries.codes))
    (query, of_other), n = queries.codes[edges].T, len(queries)
    across = np.flatnonzero(query != of_other)
    if len(across):
        where = int(across[0])
        one, other = (queries.labels[codes[where]] for codes in (query, of_other))
        raise ValueError(
            f"pairs[{where}] = {tuple(edges[where].tolist())} compares rows of two queries: "
            f"qid {one} and {other}"
        )
    counted = np.ones(len(edges)) if weight is None else weight[edges].prod(axis=1)
    if pair_weight is not None:
        counted *= _scaled(check_weights("pair_weight", pair_weight, len(edges), of="pairs"))
    equal = np.zeros(len(edges), dtype=bool)
    if magnitude is not None:
        equal = check_magnitudes(magnitude, len(edges)) == 0
        counted[equal] *= half
    found, total = [], np.bincount(query, counted, minlength=n)
    for score in outputs:
        one, other = score[edges.T]
        error = np.where(one < other, 1.0, np.where(one == other, cost, 0.0))
        error[equal] = 0.5 * (one != other)[equal]
        found.append((np.bincount(query, error * counted, minlength=n), total))
    return found


def _count_labels(
    y: Array, score: Array, queries: Queries, weight: Array | None, cost: float, half: bool
) -> tuple[Array, Array]:
    """Error and total weight of the pairs of each query that labels imply."""
    of_query = queries.codes, len(queries), weight
    counts = count_pairs(y, score, *of_query)
    wrong = counts.discordant + cost * counts.tied
    if not half:
        return wrong, counts.comparable
    rows = np.arange(len(y), dtype=np.float64)  # different, so that all pairs are counted
    of_ties = count_pairs(score, y, *of_query).tied  # different scores, equal labels
    return wrong + 0.5 * of_ties, count_pairs(rows, rows, *of_query).comparable


def _scaled(weight: Array) -> Array:
    """Scale weights by a power of two so that the largest is near one and products stay finite."""
    return np.ldexp(weight, -np.frexp(weight.max())[1]) if weight.any() else weight


def pairwise_accuracy(
    y_true: ArrayLike | None, y_score: ArrayLike, **options: Any
) -> float | NDArray[np.float64]:
    """Fraction of the preferences that the scores put in the right order.

    Parameters
    ----------
    y_true, y_score, qid, pairs, ties, label_ties, average, sample_weight, pair_weight, magnitude
        As in :func:`pairwise_error`.

    Returns
    -------
    float or ndarray of shape (n_queries,) or (n_queries, n_outputs)
        One minus `pairwise_error` for the same arguments. With ``ties="half"``, binary labels and a
        single query this is the area under the ROC curve.
    """
    return 1.0 - pairwise_error(y_true, y_score, **options)


pairwise_accuracy.__signature__ = inspect.signature(pairwise_error)  # type: ignore[attr-defined]


@takes_queries
def concordance_index(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    qid: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Fraction of comparable pairs that are concordant, with tied predictions counted as half.

    Parameters
    ----------
    y_true, y_score, qid, sample_weight
        As in :func:`pairwise_error`; only rows of the same query are compared.

    Returns
    -------
    float
        ``pairwise_accuracy(..., average="pair")``, for binary labels the area under the ROC curve.
    """
    value = pairwise_accuracy(y_true, y_score, qid=qid, average="pair", sample_weight=sample_weight)
    return float(value)
