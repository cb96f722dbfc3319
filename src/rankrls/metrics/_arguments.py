"""Argument checks shared by all metrics, and the averaging of values over queries.

A metric function itself receives a single output: finite float64 columns and query numbers. This
module checks the arguments of all metrics, splits and recombines multiple outputs, and handles
queries for which the metric is undefined.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._frames import check_same_rows
from rankrls._validation import Queries, check_length, check_scores, encode_qid
from rankrls.metrics._ranked import RankedLists, rank_lists

__all__ = [
    "ListInputs",
    "check_average",
    "check_k",
    "check_labels_and_scores",
    "check_lists",
    "check_undefined",
    "value_by_query",
]

Array = NDArray[Any]


@dataclass(frozen=True)
class ListInputs:
    """Checked arguments of a list metric.

    Attributes
    ----------
    y_true, y_score : ndarray of shape (n_rows, n_outputs)
        Labels and predictions.
    queries : Queries
        Query number of each row.
    k : int or None
        Cutoff.
    undefined : float
        Value of a query without a relevant row; NaN excludes it from the mean.
    average : {"query", None}
        "query" for the mean over queries, None for one value per query.
    single : bool
        Whether the arguments were one-dimensional.
    retrieved : ndarray of shape (n_rows,), bool, or None
        Rows that are in the lists; the others have lower scores and occupy no place. If None, all
        rows are in the lists.
    """

    y_true: Array
    y_score: Array
    queries: Queries
    k: int | None
    undefined: float
    average: str | None
    single: bool
    retrieved: Array | None = None

    def ranked(self, score: Array) -> RankedLists:
        """Sort the retrieved rows by descending score and apply the cut-off."""
        return rank_lists(score, self.queries.codes, len(self.queries), self.k, self.retrieved)


def check_labels_and_scores(
    y_true: ArrayLike | None, y_score: ArrayLike, **by_row: Any
) -> tuple[Array | None, Array]:
    """Return both as float64 arrays of one shape, (n_rows,) or (n_rows, n_outputs).

    ``by_row`` holds other arguments with one value per row: qid, weights.
    """
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


def check_k(k: Any) -> int | None:
    """Return the cutoff as an int >= 1, or None for whole lists."""
    if k is None:
        return None
    if isinstance(k, bool | np.bool_) or not isinstance(k, numbers.Integral) or k < 1:
        raise ValueError(f"k must be an integer >= 1, or None for the whole list; got {k!r}")
    return min(int(k), sys.maxsize)  # no list is longer


def check_average(average: Any, allowed: tuple[str, ...]) -> None:
    """Raise unless ``average`` is one of ``allowed`` or None."""
    if average is not None and not (isinstance(average, str) and average in allowed):
        choices = ", ".join(repr(a) for a in allowed)
        raise ValueError(f"average must be one of {choices}, None; got {average!r}")


def check_lists(
    y_true: ArrayLike,
    y_score: ArrayLike,
    qid: ArrayLike | None,
    k: int | None,
    undefined: float | Literal["skip"],
    average: str | None,
) -> ListInputs:
    """Check the arguments that all list metrics share."""
    if y_true is None:
        raise ValueError("y_true is None; list metrics need the label of every row")
    labels, score = check_labels_and_scores(y_true, y_score, qid=qid)
    assert labels is not None
    n_rows = len(score)
    check_average(average, ("query",))
    return ListInputs(
        labels.reshape(n_rows, -1),
        score.reshape(n_rows, -1),
        encode_qid(qid, n_rows, of="rows of y_score"),
        check_k(k),
        check_undefined(undefined),
        average,
        score.ndim == 1,
    )


def check_undefined(undefined: Any) -> float:
    """Return the value to use for undefined queries, NaN for "skip"."""
    if isinstance(undefined, str) and undefined == "skip":
        return np.nan
    if (
        not isinstance(undefined, bool)
        and isinstance(undefined, numbers.Real)
        and undefined in (0, 1)
    ):
        return float(undefined)
    raise ValueError(f"undefined must be one of 0, 1, 'skip'; got {undefined!r}")


def value_by_query(
    inputs: ListInputs, metric: Callable[[Array, Array], Array]
) -> float | NDArray[np.float64]:
    """Apply ``metric`` to each output and average over queries if requested.

    Parameters
    ----------
    inputs : ListInputs
        Checked arguments.
    metric : callable
        ``metric(y_true, y_score) -> values`` on columns of shape (n_rows,), values of shape
        (n_queries,), NaN where a query has no relevant row.

    Returns
    -------
    float or ndarray of shape (n_queries,) or (n_queries, n_outputs)
    """
    columns = zip(inputs.y_true.T, inputs.y_score.T, strict=True)
    values = np.column_stack([metric(y, score) for y, score in columns])
    if not np.isnan(inputs.undefined):
        values[np.isnan(values)] = inputs.undefined
    if inputs.average is None:
        return values[:, 0] if inputs.single else values
    empty = np.isnan(values).all(axis=0)
    if empty.any():
        where = "" if inputs.single else f" in output {int(np.flatnonzero(empty)[0])}"
        raise ValueError(
            f"no query has a relevant row{where}, so undefined='skip' excludes all of them"
        )
    return float(np.mean(np.nanmean(values, axis=0)))
