"""List metrics: NDCG, average precision, reciprocal rank, precision, recall and ERR.

Where scores tie, each metric is the expected value over all orders of the tied rows, which is
computed from the groups of tied rows. Notation: a tie group has g rows, r of them relevant; s rows
of its query, R of them relevant, rank above it.

A metric is a function of the labels and scores of one output and of an option, `list_metric` makes
it one of all arguments. A row in `metric_names` makes it available by name.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from rankrls._calls import takes_queries
from rankrls._frames import check_same_rows
from rankrls._validation import (
    Queries,
    check_length,
    check_number,
    check_option,
    check_scores,
    encode_qid,
    is_integer,
    is_number,
)
from rankrls.metrics.counting import sorted_levels

Array = NDArray[Any]

#: 2^y overflows float64 a little above this.
_LARGEST_EXPONENT = 1000

#: Probabilities below this do not change an expected reciprocal rank.
_NEGLIGIBLE = 1e-20

#: What all list metrics have in common, in place of ``[parameters]`` in their docstrings.
_PARAMETERS = """Parameters
    ----------
    y_true : array-like of shape (n_rows,) or (n_rows, n_outputs)
        Labels, higher = more relevant.
    y_score : array-like of shape (n_rows,) or (n_rows, n_outputs)
        Predicted scores, higher = ranked earlier. Several outputs are averaged with equal weights.
    qid : array-like of shape (n_rows,), optional
        Query of each row, in any order. If None, all rows form one query.
    k : int, optional
        Only the first ``k`` rows count. If None, all rows count.
    [option]
    undefined : {0, 1, "skip"}, default="skip"
        Value of a query without a relevant row. "skip" excludes it from the mean; scikit-learn uses
        0, LightGBM uses 1.
    average : {"query"} or None, default="query"
        "query" returns the mean over the queries, None one value for each query.

    Returns
    -------
    float or ndarray of shape (n_queries,) or (n_queries, n_outputs)
        Between 0 and 1. With ``average=None``, in the order of the sorted query labels, with NaN
        for the queries that are skipped.
"""

_OPTIONS = {
    "gain": """gain : {"exponential", "linear"}, default="exponential"
        Gain 2^y − 1, usual for graded relevance in web search, or y; labels must be >= 0.""",
    "relevance_threshold": """relevance_threshold : float, default=1
        A row is relevant if its label is at least this, as in trec_eval.""",
    "max_grade": """max_grade : float, default=4
        The highest grade of the scale from 0, whether or not it occurs in ``y_true``.""",
}


def list_metric(by_query: Callable[..., tuple[Array, Array]]) -> Callable[..., Any]:
    """Make a metric of a function of checked inputs, one output's labels and scores, and an option.

    It returns the value of each query, and a number that is 0 for queries without a relevant row.
    """
    *_, option = inspect.signature(by_query).parameters.values()

    def metric(
        y_true: ArrayLike,
        y_score: ArrayLike,
        *,
        qid: ArrayLike | None = None,
        k: int | None = None,
        undefined: float | Literal["skip"] = "skip",
        average: Literal["query"] | None = "query",
        **option: Any,
    ) -> float | NDArray[np.float64]:
        inputs = check_lists(y_true, y_score, qid, k, undefined, average)
        return inputs.value(lambda y, score: by_query(inputs, y, score, **option))

    signature = inspect.signature(metric)
    *shared, _ = signature.parameters.values()
    own = option.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    metric.__signature__ = signature.replace(parameters=[*shared, own])  # type: ignore[attr-defined]
    for name in ("__name__", "__qualname__", "__module__"):
        setattr(metric, name, getattr(by_query, name))
    parameters = _PARAMETERS.replace("[option]", _OPTIONS[own.name])
    metric.__doc__ = (by_query.__doc__ or "").replace("[parameters]\n", parameters)
    return takes_queries(metric)


@list_metric
def ndcg(inputs: ListInputs, y: Array, score: Array, gain: str = "exponential") -> Any:
    """Normalised discounted cumulative gain (NDCG).

    [parameters]

    Notes
    -----
    With the rows of a query sorted by descending score, π(p) the row at rank p and G the gain,

        DCG = Σ_{p ≤ k} G(y_π(p)) / log2(1 + p),      NDCG = DCG / (DCG of the order of y).

    Where scores tie, each place of a tie group gets the mean gain of the group.

    Examples
    --------
    >>> from rankrls.metrics import ndcg
    >>> y_true = [2, 1, 0, 0, 1]
    >>> y_score = [0.3, 0.9, 0.1, 0.8, 0.2]
    >>> ndcg(y_true, y_score, qid=[1, 1, 1, 2, 2], average=None)
    array([0.79670758, 0.63092975])
    """
    check_option("gain", gain, ("exponential", "linear"))
    _check_grades(y, np.inf, ">= 0 for ndcg (add a constant, so that 0 means not relevant)")
    if gain == "exponential":
        _check_grades(y, _LARGEST_EXPONENT, "<= 1000 for 2^y - 1 (use gain='linear')")
    gains = np.exp2(y) - 1.0 if gain == "exponential" else y
    ideal = _dcg(gains, inputs.ranked(y, all_rows=True))
    value = np.divide(_dcg(gains, inputs.ranked(score)), ideal, out=ideal.copy(), where=ideal > 0)
    return np.minimum(value, 1.0), ideal


def _check_grades(y: Array, largest: float, bound: str) -> None:
    """Raise an error for a label below 0 or above ``largest``."""
    outside = np.flatnonzero((y < 0) | (y > largest))
    if len(outside):
        raise ValueError(f"y_true must be {bound}; row {outside[0]} has {y[outside[0]]:g}")


def _dcg(gains: Array, lists: RankedLists) -> Array:
    """Expected DCG of every query: mean gain of each tie group times the discounts there."""
    discount = 1.0 / np.log2(np.arange(1, int(lists.query_size.max()) + 1) + 1.0)
    discounts = lists.sum_groups(lists.at_places(discount[lists.rank - 1]))
    return lists.sum_queries(lists.sum_groups(gains[lists.order]) / lists.size * discounts)


@list_metric
def average_precision(
    inputs: ListInputs, y: Array, score: Array, relevance_threshold: float = 1.0
) -> Any:
    """Mean of the precision at the rank of each relevant row (MAP).

    [parameters]

    Notes
    -----
    With R_all relevant rows in the query and rel_p = 1 if the row at rank p is relevant,

        AP@k = 1/R_all · Σ_{p ≤ k} rel_p · (rel_1 + … + rel_p) / p.

    The denominator is R_all even when k < R_all, as in trec_eval (``map_cut``) and ranx; other
    libraries use min(R_all, k). Where scores tie, place j of a tie group contributes in expectation

        r/g · (R + 1 + (j − 1)(r − 1)/(g − 1)) / (s + j).
    """
    lists, r, total = inputs.relevant(y, score, relevance_threshold)
    above, slope = lists.sum_before(r), (r - 1) / np.maximum(lists.size - 1, 1)
    j = lists.rank - lists.before[lists.group]
    found = (above + 1)[lists.group] + (j - 1) * slope[lists.group]
    value = lists.sum_places((r / lists.size)[lists.group] * found / lists.rank)
    return value / np.maximum(total, 1), total


@list_metric
def reciprocal_rank(
    inputs: ListInputs, y: Array, score: Array, relevance_threshold: float = 1.0
) -> Any:
    """Reciprocal rank of the first relevant row, 0 if it ranks below ``k`` (MRR).

    [parameters]

    Notes
    -----
    In the first tie group with a relevant row, the first relevant row is at place j with
    probability C(g − j, r − 1) / C(g, r), so the expected value is

        RR@k = Σ_{j: s + j ≤ k} C(g − j, r − 1) / C(g, r) / (s + j).
    """
    lists, n_relevant, total = inputs.relevant(y, score, relevance_threshold)
    decides = (n_relevant > 0) & (lists.sum_before(n_relevant) == 0)
    rows = np.flatnonzero(decides[lists.group])
    group = lists.group[rows]
    g, r, j = lists.size[group], n_relevant[group], lists.rank[rows] - lists.before[group]
    # C(g − j, r − 1) / C(g, r) = r / (g − j + 1) · Π_{t < j − 1} (g − r − t) / (g − t)
    possible = j - 1 <= g - r
    later = np.where(possible, g - r - j + 2, 1)
    log_none_before = (gammaln(g - r + 1) - gammaln(later)) - (gammaln(g + 1) - gammaln(g - j + 2))
    value = np.zeros(len(lists.rank))
    value[rows] = np.where(possible, r / (g - j + 1) * np.exp(log_none_before), 0.0)
    return lists.sum_places(value / lists.rank), total


@list_metric
def precision(inputs: ListInputs, y: Array, score: Array, relevance_threshold: float = 1.0) -> Any:
    """Fraction of relevant rows among the first ``k``.

    [parameters]

    Notes
    -----
    Precision@k = (rel_1 + … + rel_k) / k, also for a query with fewer than k rows: as in
    trec_eval, the missing rows count as not relevant.
    """
    lists, r, total = inputs.relevant(y, score, relevance_threshold)
    limit: Any = np.maximum(lists.places, 1) if inputs.k is None else inputs.k
    return lists.sum_queries(r * lists.inside / lists.size) / limit, total


@list_metric
def recall(inputs: ListInputs, y: Array, score: Array, relevance_threshold: float = 1.0) -> Any:
    """Fraction of the relevant rows that are among the first ``k``.

    [parameters]

    Notes
    -----
    Recall@k = (rel_1 + … + rel_k) / R_all, with R_all relevant rows in the query.
    """
    lists, r, total = inputs.relevant(y, score, relevance_threshold)
    return lists.sum_queries(r * lists.inside / lists.size) / np.maximum(total, 1), total


@list_metric
def expected_reciprocal_rank(
    inputs: ListInputs, y: Array, score: Array, max_grade: float = 4.0
) -> Any:
    """Expected reciprocal rank at which a user reading from the top stops (ERR).

    [parameters]

    Notes
    -----
    A row of grade y satisfies the user, who then stops, with probability
    R = (2^y − 1)/2^max_grade. With R_p this probability at rank p and Q_p = Π_{i ≤ p} (1 − R_i),

        ERR@k = Σ_{p ≤ k} (Q_{p−1} − Q_p) / p.

    Where scores tie, the expected product of j of the g factors of a tie group is e_j / C(g, j),
    with e_j the elementary symmetric polynomial (Chapelle, Metzler, Zhang and Grinspan, CIKM 2009).
    """
    highest = check_number("max_grade", max_grade, above=0.0)
    _check_grades(y, highest, f"from 0 to max_grade={highest:g} for this metric")
    lists = inputs.ranked(score)
    stop = np.exp2(y[lists.order] - highest) - np.exp2(-highest)
    if len(lists.size) < len(stop):  # sums over a tie group do not depend on row order
        stop = stop[np.lexsort((stop, lists.group))]
    passed = lists.sum_before(lists.sum_groups(np.log1p(-stop)))
    reached = np.exp(np.minimum(passed, 0.0))[lists.group]
    total = lists.sum_places(reached * _stops(stop, lists) / lists.rank)
    return total, lists.sum_queries(lists.sum_groups(stop))


def _stops(stop: Array, lists: RankedLists) -> Array:
    """Probability that a user who reached the tie group stops at the place of each sorted row.

    It is m_{j−1} − m_j at place j of the group, with m_j the mean product of j of its factors
    1 − R. Adding a factor a to n others updates m_j ← ((n + 1 − j) m_j + j a m_{j−1})/(n + 1), for
    all groups at once. Factors equal to 1 go first, since they leave all m_j equal to 1. By
    Maclaurin's inequality m_j ≤ m_1^j, so m_j is negligible from some j on.
    """
    n_positive = lists.sum_groups((stop > 0).astype(np.int64))
    groups = np.flatnonzero((lists.size > 1) & (n_positive > 0) & (lists.inside > 0))
    if not len(groups):
        return stop
    found = stop.copy()
    found[np.isin(lists.group, groups)] = 0.0
    groups = groups[np.argsort(-n_positive[groups], kind="stable")]
    mean_stop = (lists.sum_groups(stop) / lists.size)[groups]
    last = np.ceil(np.log(_NEGLIGIBLE) / np.log1p(-np.minimum(mean_stop, 0.99999)))
    width = np.minimum(lists.inside[groups], last).astype(np.int64) + 1
    ends = np.cumsum(width)
    j = np.arange(ends[-1]) - np.repeat(ends - width, width)
    n = np.repeat(lists.size[groups] - n_positive[groups], width)
    mean = (j <= n).astype(np.float64)
    factors = 1.0 - stop[stop > 0]
    first_factor = (np.cumsum(n_positive) - n_positive)[groups]
    for step in range(int(n_positive[groups[0]])):
        active = int(np.searchsorted(-n_positive[groups], -step, side="left"))
        end = ends[active - 1]
        a = np.repeat(factors[first_factor[:active] + step], width[:active])
        now, at = n[:end] + step + 1, j[:end]
        joined = at * a * np.concatenate([[0.0], mean[: end - 1]])
        mean[:end] = (np.maximum(now - at, 0) * mean[:end] + joined) / now
    inner = j > 0
    rows = np.repeat(lists.first_row[groups], width)[inner] + j[inner] - 1
    found[rows] = (np.concatenate([[0.0], mean[:-1]]) - mean)[inner]
    return found


# -- checked arguments, lists and averages -------------------------------------------------------


@dataclass(frozen=True)
class ListInputs:
    """Checked arguments of a list metric.

    Labels and predictions have shape (n_rows, n_outputs); ``single``: whether they were 1-D.
    ``undefined`` is the value of a query without a relevant row, NaN to leave it out of the mean.
    ``retrieved`` marks the rows that are in the lists, None if all are; the others have lower
    scores and occupy no place.
    """

    y_true: Array
    y_score: Array
    queries: Queries
    undefined: float
    average: str | None
    single: bool
    k: int | None = None
    retrieved: Array | None = None

    def value(self, metric: Callable[[Array, Array], Any]) -> float | NDArray[np.float64]:
        """Apply ``metric(y_true, y_score)`` to each output, and average."""
        columns = zip(self.y_true.T, self.y_score.T, strict=True)
        found = [metric(y, score) for y, score in columns]
        values = np.column_stack(
            [np.where(relevant > 0, value, self.undefined) for value, relevant in found]
        )
        reason = "no query has a relevant row{}, so undefined='skip' excludes all of them"
        return averaged(values, self.average, self.single, reason)

    def relevant(self, y: Array, score: Array, threshold: Any) -> tuple[RankedLists, Array, Array]:
        """Ranked lists, and the number of relevant rows of each group and of each query."""
        if not is_number(threshold) or not np.isfinite(float(threshold)):
            raise ValueError(f"relevance_threshold must be a finite number; got {threshold!r}")
        lists = self.ranked(score)
        r = lists.sum_groups((y >= float(threshold))[lists.order].astype(np.int64))
        return lists, r, lists.sum_queries(r)

    def ranked(self, score: Array, *, all_rows: bool = False) -> RankedLists:
        """Sort by query and descending score; ``all_rows``: also those that were not retrieved."""
        codes, n_queries = self.queries.codes, len(self.queries)
        order, group = sorted_levels(-score, codes, n_queries)
        query_size = np.bincount(codes, minlength=n_queries)
        starts = np.cumsum(query_size) - query_size
        first_row = np.flatnonzero(np.diff(group, prepend=-1))
        places = query_size
        if self.retrieved is not None and not all_rows:
            places = np.bincount(codes[self.retrieved], minlength=n_queries)
        return RankedLists(
            order=order,
            rank=np.arange(1, len(score) + 1) - np.repeat(starts, query_size),
            group=group,
            first_row=first_row,
            size=np.diff(first_row, append=len(score)),
            first_group=group[starts],
            query_size=query_size,
            places=places if self.k is None else np.minimum(places, self.k),
        )


@dataclass(frozen=True)
class RankedLists:
    """Rows sorted by (query, descending score), cut into groups of equal (query, score)."""

    order: Array  # row numbers; within a group in no particular order
    rank: Array  # place in its query of every sorted row, from 1
    group: Array  # of every sorted row
    first_row: Array  # of every group
    size: Array  # of every group
    first_group: Array  # of every query; none is empty
    query_size: Array
    places: Array  # of every query that count: the retrieved rows, up to the cut-off

    def sum_groups(self, values: Array) -> Array:
        """Sum ``values`` of sorted rows, shape (n_rows,), over groups."""
        if len(self.size) == len(self.rank):
            return values
        return np.add.reduceat(values, self.first_row)

    def sum_queries(self, values: Array) -> Array:
        """Sum ``values`` of groups, shape (n_groups,), over queries."""
        return np.add.reduceat(values, self.first_group)

    def sum_places(self, values: Array) -> Array:
        """Sum ``values`` of sorted rows over the places of each query that count."""
        return self.sum_queries(self.sum_groups(self.at_places(values)))

    def at_places(self, values: Array) -> Array:
        """Set ``values`` of sorted rows beyond the places that count to zero."""
        if self.places is not self.query_size:
            values[self.rank > np.repeat(self.places, self.query_size)] = 0.0
        return values

    @property
    def inside(self) -> Array:
        """Number of places of each group that count, shape (n_groups,)."""
        if self.places is self.query_size:
            return self.size
        return np.clip(self.of_groups(self.places) - self.before, 0, self.size)

    @property
    def before(self) -> Array:
        """Number of rows ranked above each group in its query, shape (n_groups,)."""
        return self.rank[self.first_row] - 1

    def sum_before(self, values: Array) -> Array:
        """Sum ``values`` of the groups above each group in its query."""
        above = np.cumsum(values) - values
        return above - self.of_groups(above[self.first_group])

    def of_groups(self, values: Array) -> Array:
        """Repeat ``values`` of queries for each of their groups."""
        return np.repeat(values, np.diff(self.first_group, append=len(self.size)))


def averaged(
    values: Array, average: str | None, single: bool, reason: str
) -> float | NDArray[np.float64]:
    """Mean of values (n_queries, n_outputs) over the queries that are not NaN, and outputs.

    ``reason`` is the error if there is no such query, with a place for the output.
    """
    empty = np.isnan(values).all(axis=0)
    if average is not None and empty.any():
        where = "" if single else f" in output {int(np.flatnonzero(empty)[0])}"
        raise ValueError(reason.format(where))
    if average is not None:
        return float(np.mean(np.nanmean(values, axis=0)))
    return values[:, 0] if single else values


def check_labels_and_scores(y_true: Any, y_score: Any, **by_row: Any) -> tuple[Any, Array]:
    """Return both as float64 arrays of one shape; labels may be None."""
    check_same_rows(y_true, "y_true", y_score=y_score, **by_row)
    check_same_rows(y_score, "y_score", **by_row)
    score = check_scores(y_score, name="y_score")
    if len(score) == 0:
        raise ValueError("y_score has no rows; give at least one row to evaluate")
    if y_true is None:
        return None, score
    labels = check_scores(y_true, name="y_true")
    check_length("y_true", labels, len(score), of="rows of y_score")
    if labels.shape != score.shape:
        raise ValueError(
            f"y_true has shape {labels.shape} and y_score has shape {score.shape}: "
            "give one column of labels for each column of scores"
        )
    return labels, score


def check_lists(
    y_true: Any, y_score: Any, qid: Any, k: Any, undefined: Any, average: Any
) -> ListInputs:
    """Check the arguments that all list metrics share; ``y_true`` may be a checked `ListInputs`."""
    if isinstance(y_true, ListInputs):
        return y_true
    if y_true is None:
        raise ValueError("y_true is None; list metrics need the label of every row")
    labels, score = check_labels_and_scores(y_true, y_score, qid=qid)
    n_rows = len(score)
    check_choice("average", average, ("query", None))
    return ListInputs(
        labels.reshape(n_rows, -1),
        score.reshape(n_rows, -1),
        encode_qid(qid, n_rows, of="rows of y_score"),
        check_undefined(undefined),
        average,
        score.ndim == 1,
        check_k(k),
    )


def check_k(k: Any) -> int | None:
    """Return the cut-off as an int >= 1, or None for whole lists."""
    if k is None:
        return None
    if not is_integer(k) or k < 1:
        raise ValueError(f"k must be an integer >= 1, or None for the whole list; got {k!r}")
    return min(int(k), sys.maxsize)  # no list is longer


def check_choice(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """Return ``value`` if it is one of ``allowed``: strings, numbers or None."""
    scalar = value is None or isinstance(value, str) or is_number(value)
    if not (scalar and value in allowed):
        choices = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} must be one of {choices}; got {value!r}")
    return value


def check_undefined(undefined: Any) -> float:
    """Return the value to use for undefined queries, NaN for "skip"."""
    value = check_choice("undefined", undefined, (0, 1, "skip"))
    return np.nan if value == "skip" else float(value)
