"""Checked arguments of metrics, ranked lists with their groups of tied scores, and averages.

Where scores tie, the order of the rows is arbitrary. The list metrics return the expected value
over all orders of the tied rows, which they compute from the groups of tied rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._frames import check_same_rows
from rankrls._validation import (
    Queries,
    check_length,
    check_scores,
    encode_qid,
    is_integer,
    is_number,
)
from rankrls.metrics.counting import sorted_levels

Array = NDArray[Any]


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

    def value(self, metric: Callable[[Array, Array], Array]) -> float | NDArray[np.float64]:
        """Apply ``metric(y_true, y_score)``, NaN where no row is relevant, and average."""
        columns = zip(self.y_true.T, self.y_score.T, strict=True)
        values = np.column_stack([metric(y, score) for y, score in columns])
        if not np.isnan(self.undefined):
            values[np.isnan(values)] = self.undefined
        reason = "no query has a relevant row{}, so undefined='skip' excludes all of them"
        return averaged(values, self.average, self.single, reason)

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
