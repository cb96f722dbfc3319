"""Queries, or rows of one ranking, with the largest errors, and reasons for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from rankrls.diagnostics import explain
from rankrls.report._data import Rankings
from rankrls.report._errors import UnitErrors

__all__ = ["ListedRow", "Reasons", "WorstQuery", "WorstRow", "worst_queries", "worst_rows"]

Array = NDArray[Any]

N_DOCUMENTS = 5
#: Numbers of contributions that are listed, for and against; smaller ones than this share are not.
N_FOR, N_AGAINST, LEAST = 3, 1, 0.01


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
class Reasons:
    """Contributions that rank a row above another in the model fitted to all training rows.

    Attributes
    ----------
    difference : float
        Score difference.
    kind : {"feature", "row"}
        Whether contributions are by feature or, for kernel models, by training row.
    most, against : list of (str, float)
        The largest positive and negative contributions.
    n : int
        Number of non-zero contributions.
    """

    difference: float
    kind: str
    most: list[tuple[str, float]]
    against: list[tuple[str, float]]
    n: int


@dataclass(frozen=True)
class WorstQuery:
    """A query with many pairs in the wrong order.

    Attributes
    ----------
    name : str
    error : float
    wrong, pairs : float and int
    n_documents : int
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
    data: Rankings, errors: UnitErrors, scores: Array, n: int, model: Any, train: Rankings
) -> list[WorstQuery]:
    """Describe the ``n`` worst queries; ``model``, fitted to ``train``, is explained."""
    found = []
    for q in errors.worst(n):
        rows = np.flatnonzero(data.codes == q)
        y, score = data.y[rows], scores[rows]
        order = np.lexsort((y, -score))  # if scores tie, the worse label comes first
        place = np.empty(len(rows), dtype=np.int64)
        place[order] = np.arange(1, len(rows) + 1)
        descending = np.sort(-y)
        documents = [
            ListedRow(
                data.document_name(int(row)),
                int(row),
                float(y[k]),
                float(score[k]),
                int(place[k]),
                int(np.searchsorted(descending, -y[k], side="left")) + 1,
                int(np.searchsorted(descending, -y[k], side="right")),
            )
            for k, row in enumerate(rows)
        ]
        top = [documents[k] for k in order[:N_DOCUMENTS]]
        least = min(document.label for document in top)
        missed = [d for d in documents if d.expected <= N_DOCUMENTS < d.place and d.label > least]
        missed.sort(key=lambda d: (-d.label, d.place))
        above, below = _most_wrong(documents, y, score)
        reasons = None
        if above is not None and below is not None:
            reasons = _reasons(model, train, data, above.row, below.row)
        found.append(
            WorstQuery(
                data.query_name(int(q)),
                float(errors.error[q]),
                float(errors.wrong[q]),
                int(errors.pairs[q]),
                len(rows),
                top,
                missed[:N_DOCUMENTS],
                above,
                below,
                reasons,
            )
        )
    return found


def _most_wrong(
    documents: list[ListedRow], y: Array, score: Array
) -> tuple[ListedRow | None, ListedRow | None]:
    """Find the pair with the largest product of label difference and (wrong) score difference."""
    few = np.arange(len(y))
    if len(y) > 1000:  # the ends of both orders are enough
        few = np.unique(np.concatenate([np.argsort(score)[-500:], np.argsort(y)[-500:]]))
    higher = np.maximum(score[few][:, None] - score[few], 0.0)
    damage = higher * np.maximum(y[few] - y[few][:, None], 0.0)
    a, b = np.unravel_index(int(np.argmax(damage)), damage.shape)
    return (documents[few[a]], documents[few[b]]) if damage[a, b] > 0 else (None, None)


def _reasons(model: Any, train: Rankings, data: Rankings, above: int, below: int) -> Reasons | None:
    """Contributions to the score of row ``above`` minus that of row ``below``, if available."""
    names: Any = train.feature_names
    if isinstance(model, Pipeline):
        try:
            names = model[:-1].get_feature_names_out(train.feature_names)
        except (AttributeError, ValueError):  # a step without feature names
            names = None
    try:
        parts = explain(model, data.X[[above]], data.X[[below]])
    except ValueError:  # not a model of this package
        return None

    def named(k: int) -> tuple[str, float]:
        number = int(parts.index[k])
        if parts.kind == "feature":
            name = str(parts.labels[k] if names is None else names[number])
        else:
            name = train.document_name(number)
            if train.has_qid:
                name += f" of query {train.query_name(int(train.codes[number]))}"
        return name, float(parts.contribution[k])

    least = LEAST * np.abs(parts.contribution).max(initial=0.0)
    return Reasons(
        parts.difference,
        parts.kind,
        [named(int(k)) for k in np.flatnonzero(parts.contribution > least)[:N_FOR]],
        [named(int(k)) for k in np.flatnonzero(parts.contribution < -least)[:N_AGAINST]],
        int(np.count_nonzero(parts.contribution)),
    )


def worst_rows(data: Rankings, errors: UnitErrors, scores: Array, n: int) -> list[WorstRow]:
    """The ``n`` worst rows of one ranking, with their scores."""
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
