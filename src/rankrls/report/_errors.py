"""Errors of queries, or of the rows of one ranking, with confidence intervals of their mean."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from rankrls.metrics import mean_interval as interval_of_mean
from rankrls.metrics import ndcg
from rankrls.report._data import Rankings

__all__ = ["Interval", "UnitErrors", "errors_of", "mean_interval", "row_errors_of_pairs"]

Array = NDArray[Any]

LEVEL = 0.95
#: Fewer queries than this have no interval.
MIN_UNITS = 5
#: Maximum number of rows with which a row of one ranking is compared.
MAX_OTHERS = 1000
NDCG_AT = 10


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval, which is NaN if unavailable.

    Attributes
    ----------
    value, low, high : float
    level : float
    method : str
        "student", "bound", "jackknife", "permutation" or "none".
    n : int
        Number of queries or rows.
    """

    value: float
    low: float
    high: float
    level: float
    method: str
    n: int


@dataclass(frozen=True)
class UnitErrors:
    """Errors by query, or by row of one ranking, as arrays of shape (n_units,).

    Attributes
    ----------
    unit : {"query", "row"}
    error : share of the pairs in the wrong order, NaN without a pair
    wrong : such pairs, tied predictions counting half
    pairs : pairs with different labels
    ndcg : NDCG@10, NaN where undefined; None where there are no lists
    mean : Interval
        Mean error over queries; over pairs for the rows of one ranking.
    mean_ndcg : Interval or None
    sampled : bool
        Whether rows were compared with a sample of the others.
    """

    unit: Literal["query", "row"]
    error: Array
    wrong: Array
    pairs: Array
    ndcg: Array | None
    mean: Interval
    mean_ndcg: Interval | None
    sampled: bool = False

    @property
    def defined(self) -> Array:
        """Units that have a pair."""
        return np.flatnonzero(self.pairs > 0)

    def worst(self, n: int) -> Array:
        """Return the ``n`` units with the largest errors.

        One wrong pair out of one is weaker evidence than 90 out of 100, so errors are shrunk
        towards the mean by the weight of ten pairs before they are sorted.
        """
        units = np.flatnonzero((self.pairs > 0) & (self.wrong > 0))
        shrunk = (self.wrong[units] + 10 * self.mean.value) / (self.pairs[units] + 10)
        return units[np.argsort(-shrunk, kind="stable")[:n]]


def errors_of(data: Rankings, scores: Array, lists: Array | None = None) -> UnitErrors:
    """Errors of all queries, or of the rows of one ranking, which are compared within ``lists``.

    Scores need only be comparable within a query.
    """
    if not data.has_qid:
        return row_errors(data.y, scores, data.codes if lists is None else lists)
    counts = data.pair_counts(scores)
    wrong, pairs = counts.discordant + counts.tied / 2, counts.comparable
    error, gains, mean_gain = _ratio(wrong, pairs), None, None
    with suppress(ValueError):  # labels below 0, or too large for gains
        values = np.asarray(ndcg(data.y, scores, qid=data.codes, k=NDCG_AT, average=None))
        if not np.isnan(values).all():
            gains, mean_gain = values, mean_interval(values)
    return UnitErrors("query", error, wrong, pairs, gains, mean_interval(error), mean_gain)


def mean_interval(values: Array) -> Interval:
    """Mean over queries, with Student's interval, or a bound where no error was seen."""
    values = values[np.isfinite(values)]
    n = len(values)
    mean = float(values.mean()) if n else np.nan
    if n < MIN_UNITS:
        return Interval(mean, np.nan, np.nan, LEVEL, "none", n)
    low, high = interval_of_mean(values, confidence_level=LEVEL)
    return Interval(mean, low, high, LEVEL, "bound" if np.ptp(values) == 0 else "student", n)


def row_errors_of_pairs(y: Array, pairs: Array, scores: Array) -> UnitErrors:
    """Errors of rows from left-out pairs, with scores of shape (n_pairs, 2)."""
    order = np.sign(y[pairs[:, 0]] - y[pairs[:, 1]]) * np.sign(scores[:, 0] - scores[:, 1])
    wrong = np.repeat((1.0 - order) / 2, 2)  # a tied prediction is half an error
    rows, n = pairs.ravel(), len(y)
    return _of_rows(np.bincount(rows, wrong, minlength=n), np.bincount(rows, minlength=n))


def row_errors(y: Array, scores: Array, lists: Array) -> UnitErrors:
    """Errors of rows, each compared with at most `MAX_OTHERS` other rows of its list."""
    rng = np.random.default_rng(0)
    missed, total = np.zeros(len(y)), np.zeros(len(y), dtype=np.int64)
    sampled = False
    for number in np.unique(lists):
        rows = np.flatnonzero(lists == number)
        others = rows
        if len(rows) > MAX_OTHERS:
            others, sampled = np.sort(rng.choice(rows, MAX_OTHERS, replace=False)), True
        for block in np.array_split(rows, max(1, len(rows) * len(others) // (1 << 22))):
            label = np.sign(y[block][:, None] - y[others])
            predicted = np.sign(scores[block][:, None] - scores[others])
            total[block] = (label != 0).sum(axis=1)
            missed[block] = ((label != 0) * (1.0 - label * predicted) / 2).sum(axis=1)
    return _of_rows(missed, total, sampled)


def _of_rows(wrong: Array, total: Array, sampled: bool = False) -> UnitErrors:
    """Errors of the rows of one ranking, with the total error Σ wrong / Σ total.

    Leaving out row i changes it by −(wrong_i − error · total_i)/P to first order, with
    P = Σ total / 2 pairs, so that the jackknife's variance is Σ (wrong_i − error total_i)²/P².
    """
    n_pairs, n = total.sum() / 2, int((total > 0).sum())
    mean = float(wrong.sum() / total.sum()) if n_pairs else np.nan
    interval = Interval(mean, np.nan, np.nan, LEVEL, "none", n)
    if n >= 2 * MIN_UNITS:
        deviation = float(np.sqrt(((wrong - mean * total) ** 2).sum()) / n_pairs)
        half = float(stdtrit(n - 1, 0.5 + LEVEL / 2)) * deviation
        low, high = max(0.0, mean - half), min(1.0, mean + half)
        interval = Interval(mean, low, high, LEVEL, "jackknife", n)
    return UnitErrors("row", _ratio(wrong, total), wrong, total, None, interval, None, sampled)


def _ratio(wrong: Array, pairs: Array) -> Array:
    return np.divide(wrong, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
