"""Queries, or rows of one ranking, with the largest errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.report._data import Rankings
from rankrls.report._errors import UnitErrors
from rankrls.report._reasons import Reasons

__all__ = ["ListedRow", "WorstQuery", "WorstRow", "worst_queries", "worst_rows"]

Array = NDArray[Any]
Explain = Callable[[int, int], Reasons | None]

N_DOCUMENTS = 5


@dataclass(frozen=True)
class ListedRow:
    """A row in the list of its query.

    Attributes
    ----------
    name : str
    row : int
    label, score : float
    place : int
        Rank by the model, from 1.
    expected, last : int
        First and last rank that agree with its label, from 1.
    """

    name: str
    row: int
    label: float
    score: float
    place: int
    expected: int
    last: int


@dataclass(frozen=True)
class WorstQuery:
    """A query with many pairs in the wrong order.

    Attributes
    ----------
    name : str
    error : float
    wrong, pairs : float and int
    top : list of ListedRow
        The documents ranked first by the model.
    missed : list of ListedRow
        Documents that should be among them but are not, best labels first.
    above, below : ListedRow or None
        A document, and a better one that the model ranks far below it.
    reasons : Reasons or None
        Contributions to their score difference; None if the model cannot be explained.
    """

    name: str
    error: float
    wrong: float
    pairs: int
    n_documents: int
    top: list[ListedRow]
    missed: list[ListedRow]
    above: ListedRow | None
    below: ListedRow | None
    reasons: Reasons | None


@dataclass(frozen=True)
class WorstRow:
    """A misplaced row of one ranking."""

    name: str
    row: int
    label: float
    error: float
    wrong: float
    pairs: int
    score: float


def worst_queries(
    data: Rankings, errors: UnitErrors, scores: Array, n: int, explainer: Explain
) -> list[WorstQuery]:
    """Describe the ``n`` worst queries; ``explainer`` explains why a row ranks above another."""
    return [_query(data, errors, scores, int(q), explainer) for q in errors.worst(n)]


def _query(
    data: Rankings, errors: UnitErrors, scores: Array, q: int, explainer: Explain
) -> WorstQuery:
    rows = np.flatnonzero(data.codes == q)
    y, score = data.y[rows], scores[rows]
    # If scores tie, the worse label comes first, so that the order is not flattered.
    place = np.empty(len(rows), dtype=np.int64)
    order = np.lexsort((y, -score))
    place[order] = np.arange(1, len(rows) + 1)
    descending = np.sort(-y)
    expected = np.searchsorted(descending, -y, side="left") + 1
    last = np.searchsorted(descending, -y, side="right")
    documents = [
        ListedRow(
            data.document_name(int(row)),
            int(row),
            float(y[k]),
            float(score[k]),
            int(place[k]),
            int(expected[k]),
            int(last[k]),
        )
        for k, row in enumerate(rows)
    ]
    top = [documents[k] for k in order[:N_DOCUMENTS]]
    least = min(document.label for document in top)
    should = [d for d in documents if d.expected <= N_DOCUMENTS and d.place > N_DOCUMENTS]
    should = [d for d in should if d.label > least]
    missed = sorted(should, key=lambda d: (-d.label, d.place))[:N_DOCUMENTS]
    above, below = _most_wrong(documents, y, score)
    reasons = None
    if above is not None and below is not None:
        reasons = explainer(above.row, below.row)
    return WorstQuery(
        data.query_name(q), float(errors.error[q]), float(errors.wrong[q]), int(errors.pairs[q]),
        len(rows), top, missed, above, below, reasons,
    )  # fmt: skip


def _most_wrong(
    documents: list[ListedRow], y: Array, score: Array
) -> tuple[ListedRow | None, ListedRow | None]:
    """Find the pair with the largest product of label difference and (wrong) score difference."""
    few = np.arange(len(y))
    if len(y) > 1000:  # the ends of both orders are enough
        few = np.unique(np.concatenate([np.argsort(score)[-500:], np.argsort(y)[-500:]]))
    damage = (score[few][:, None] - score[few]) * (y[few] - y[few][:, None])
    damage[(y[few] <= y[few][:, None]) | (score[few][:, None] <= score[few])] = 0
    a, b = np.unravel_index(int(np.argmax(damage)), damage.shape)
    if damage[a, b] <= 0:
        return None, None
    return documents[few[a]], documents[few[b]]


def worst_rows(data: Rankings, errors: UnitErrors, scores: Array, n: int) -> list[WorstRow]:
    """The ``n`` worst rows of one ranking, with their scores by the model fitted to all rows."""
    return [
        WorstRow(
            data.document_name(int(row)),
            int(row),
            float(data.y[row]),
            float(errors.error[row]),
            float(errors.wrong[row]),
            int(errors.pairs[row]),
            float(scores[row]),
        )
        for row in errors.worst(n)
    ]
