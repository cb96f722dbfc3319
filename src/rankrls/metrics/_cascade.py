"""Expected reciprocal rank, based on the cascade model of a user reading from the top."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from rankrls._calls import takes_queries
from rankrls._validation import check_number
from rankrls.metrics._arguments import ListInputs, check_lists, value_by_query
from rankrls.metrics._ranked import RankedLists

__all__ = ["expected_reciprocal_rank", "expected_reciprocal_rank_values"]

Array = NDArray[Any]

#: Tie groups with more relevant rows than this are evaluated by relevance level, if the levels and
#: the places up to the cut-off are few enough. Probabilities below the last number count as zero.
_MANY, _MOST_LEVELS, _MOST_PLACES, _NOTHING = 500, 50, 3000, 1e-18


@takes_queries
def expected_reciprocal_rank(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    qid: ArrayLike | None = None,
    k: int | None = None,
    max_grade: float = 4.0,
    undefined: float | Literal["skip"] = "skip",
    average: Literal["query"] | None = "query",
) -> float | NDArray[np.float64]:
    """Expected reciprocal rank at which a user reading from the top stops (ERR).

    Parameters
    ----------
    y_true : array-like of shape (n_rows,) or (n_rows, n_outputs)
        Grades from 0 to ``max_grade``, higher = more relevant.
    y_score : array-like of shape (n_rows,) or (n_rows, n_outputs)
        Predicted scores, higher = ranked earlier; several outputs are averaged.
    qid : array-like of shape (n_rows,), optional
        Query label of each row, in any order. If None, all rows form one query.
    k : int, optional
        Only the first ``k`` rows count. If None, all rows count.
    max_grade : float, default=4
        The highest grade of the scale, whether or not it occurs in ``y_true``. The default, 4, is
        that of gdeval, ir_measures and the LETOR collections of Yahoo and Microsoft.
    undefined : {0, 1, "skip"}, default="skip"
        Value of a query whose labels are all 0; "skip" excludes it from the mean.
    average : {"query"} or None, default="query"
        "query" returns the mean over the queries, None one value for each query.

    Returns
    -------
    float or ndarray of shape (n_queries,) or (n_queries, n_outputs)
        Between 0 and 1. With ``average=None``, an array in the order of the sorted query labels,
        with NaN for the queries that are skipped.

    Notes
    -----
    A row of grade y satisfies the user, who then stops, with probability
    R = (2^y − 1)/2^max_grade. With R_p this probability at rank p and Q_p = Π_{i ≤ p} (1 − R_i),

        ERR@k = Σ_{p ≤ k} (Q_{p−1} − Q_p) / p.

    Where scores tie, ERR is the expected value over all orders of the tied rows: the expected
    product of j of the g factors of a tie group is e_j / C(g, j), with e_j the elementary symmetric
    polynomial. The accuracy is full for tie groups of ordinary size and about nine digits for a
    million tied rows.

    References
    ----------
    Chapelle, Metzler, Zhang and Grinspan (2009). Expected reciprocal rank for graded relevance.
    CIKM.

    Examples
    --------
    >>> from rankrls.metrics import expected_reciprocal_rank
    >>> expected_reciprocal_rank([4, 0, 2], [0.9, 0.8, 0.7])
    0.94140625
    >>> expected_reciprocal_rank([4, 0], [0.5, 0.5])
    0.703125
    """
    inputs = check_lists(y_true, y_score, qid, k, undefined, average)
    return value_by_query(inputs, expected_reciprocal_rank_values(inputs, max_grade))


def expected_reciprocal_rank_values(
    inputs: ListInputs, max_grade: float
) -> Callable[[Array, Array], Array]:
    """Return a function that computes the ERR of each query from grades and scores."""
    highest = check_number("max_grade", max_grade, above=0.0)
    outside = (inputs.y_true < 0) | (inputs.y_true > highest)
    if outside.any():
        where = int(np.argwhere(outside)[0, 0])
        value = inputs.y_true[where][outside[where]][0]
        raise ValueError(
            f"y_true must be from 0 to max_grade={highest:g} for expected_reciprocal_rank; row "
            f"{where} has {value:g}"
        )

    def one_output(y: Array, score: Array) -> Array:
        lists = inputs.ranked(score)
        stop = np.exp2(y[lists.order] - highest) - np.exp2(-highest)
        if len(lists.size) < len(stop):  # sums over a tie group do not depend on row order
            stop = stop[np.lexsort((stop, lists.group))]
        value = lists.at_places(_reached(stop, lists) * _stops(stop, lists) / lists.rank)
        total = lists.sum_queries(lists.sum_groups(value))
        total[lists.sum_queries(lists.sum_groups(stop)) == 0] = np.nan
        return total

    return one_output


def _reached(stop: Array, lists: RankedLists) -> Array:
    """Probability that the user reaches the tie group of each sorted row."""
    before = lists.sum_before(lists.sum_groups(np.log1p(-stop)))
    return np.exp(np.minimum(before, 0.0))[lists.group]


def _stops(stop: Array, lists: RankedLists) -> Array:
    """Probability that a user who reached the tie group stops at the place of each sorted row.

    It is m_{j−1} − m_j at place j of the group, with m_j the mean product of j of its factors
    1 − R. Adding a factor a to n others updates
    m_j ← ((n + 1 − j) m_j + j a m_{j−1})/(n + 1). Factors equal to 1 go first, since they leave
    all m_j equal to 1.
    """
    found = stop.copy()
    positive = stop > 0
    n_positive = lists.sum_groups(positive.astype(np.int64))
    groups = np.flatnonzero((lists.size > 1) & (n_positive > 0) & (lists.inside > 0))
    if not len(groups):
        return found
    groups = groups[np.argsort(-n_positive[groups], kind="stable")]
    factors = 1.0 - stop[positive]
    place = np.cumsum(n_positive) - n_positive  # of the first factor of each group
    for group in groups[n_positive[groups] > _MANY]:
        mine = factors[place[group] : place[group] + n_positive[group]]
        means = _means_by_level(mine, int(lists.size[group]), int(lists.inside[group]))
        if means is None:
            break
        rows = lists.first_row[group] + np.arange(lists.inside[group])
        found[rows] = means[:-1] - means[1:]
        groups = groups[1:]
    if not len(groups):
        return found
    width = lists.inside[groups] + 1
    ends = np.cumsum(width)
    first = ends - width
    j = np.arange(ends[-1]) - np.repeat(first, width)
    n = np.repeat(lists.size[groups] - n_positive[groups], width)
    mean = (j <= n).astype(np.float64)
    place = place[groups]
    for step in range(int(n_positive[groups[0]])):
        active = int(np.searchsorted(-n_positive[groups], -step, side="left"))
        end = ends[active - 1]
        a = np.repeat(factors[place[:active] + step], width[:active])
        now, at = n[:end] + step + 1, j[:end]
        joined = at * a * np.concatenate([[0.0], mean[: end - 1]])
        mean[:end] = (np.maximum(now - at, 0) * mean[:end] + joined) / now
    inner = j > 0
    rows = np.repeat(lists.first_row[groups], width)[inner] + j[inner] - 1
    found[rows] = (np.concatenate([[0.0], mean[:-1]]) - mean)[inner]
    return found


def _means_by_level(factors: Array, size: int, places: int) -> Array | None:
    """Mean products m_0 … m_places of a large tie group; None if it has too many distinct factors.

    Adding c equal factors a to n others at once uses the hypergeometric distribution of i, the
    number of new ones among j: m_j ← Σ_i C(n, j − i) C(c, i) / C(n + c, j) · a^i m_{j−i}.
    By Maclaurin's inequality m_j ≤ m_1^j, so m_j is negligible from some j on.
    """
    levels, counts = np.unique(factors, return_counts=True)
    m_1 = 1.0 - (1.0 - factors).sum() / size
    last = min(places, int(np.ceil(np.log(_NOTHING) / np.log(m_1))))
    if last > _MOST_PLACES or len(levels) > _MOST_LEVELS:
        return None
    n = size - len(factors)
    j = np.arange(last + 1)
    mean = (j <= n).astype(np.float64)
    before = j[:, None] - j[None, :]
    for a, c in zip(levels.tolist(), counts.tolist(), strict=True):
        possible = (before >= 0) & (before <= n) & (j <= c)
        rest = np.where(possible, before, 0)
        new = np.where(possible, j, 0)
        log_share = _log_choose(n, rest) + _log_choose(c, new) + new * np.log(a)
        log_share -= _log_choose(n + c, np.minimum(j, n + c))[:, None]
        n += c
        mean = np.where(possible, np.exp(log_share) * mean[rest], 0.0).sum(axis=1)
    return np.concatenate([mean, np.zeros(places - last)])


def _log_choose(n: int, k: Array) -> Array:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
