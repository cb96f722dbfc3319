"""Which rows to leave out together, and the accuracy of left-out pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls.core.ridge.problem import HoldoutProblem

__all__ = ["check_fold", "pair_accuracies", "query_folds"]

Array = NDArray[Any]


def pair_accuracies(problem: HoldoutProblem, alphas: Array) -> Iterator[tuple[Array, int]]:
    """For each alpha, the leave-pair-out accuracy of every output (n_outputs,), and refits."""
    scores = problem.graph.scores
    if scores is None:
        raise ValueError("leave-pair-out needs scores y")
    counted = _n_different_pairs(scores)
    for total, n_refits in problem.concordance(alphas):
        yield (counted + total) / (2 * counted), n_refits


def _n_different_pairs(scores: Array) -> Array:
    """Number of pairs i < j with different scores, for every column: shape (k,)."""
    m = len(scores)
    ordered = np.sort(scores, axis=0)
    counted = np.full(scores.shape[1], m * (m - 1) / 2)
    for j in np.flatnonzero((ordered[1:] == ordered[:-1]).any(axis=0)):
        sizes = np.unique(scores[:, j], return_counts=True)[1].astype(float)
        counted[j] = (m**2 - sizes @ sizes) / 2
    return counted


def query_folds(codes: Array) -> list[Array]:
    """The rows of every query, in the order of the query numbers."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def check_fold(number: int, fold: ArrayLike, n_rows: int, name: str = "folds") -> Array:
    """Return the rows of a fold as int64, each once and inside the data."""
    rows = np.asarray(fold)
    if rows.dtype == bool and rows.shape == (n_rows,):
        rows = np.flatnonzero(rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        hint = ""
        if rows.ndim == 0:
            hint = "; from a label for each row: [np.flatnonzero(g == k) for k in np.unique(g)]"
        raise ValueError(f"{name}[{number}] must be a non-empty array of row numbers{hint}")
    if rows.min() < 0 or rows.max() >= n_rows:
        raise ValueError(f"{name}[{number}] has row numbers outside 0 to {n_rows - 1}")
    if len(np.unique(rows)) != len(rows):
        raise ValueError(f"{name}[{number}] names a row twice")
    return rows.astype(np.int64)
