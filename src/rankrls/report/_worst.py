"""Queries, or rows of one ranking, with the largest errors, and reasons for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from rankrls.diagnostics import explain
from rankrls.report._data import Rankings
from rankrls.report._errors import UnitErrors

__all__ = ["worst_queries", "worst_rows"]

Array = NDArray[Any]

N_QUERIES, N_ROWS, N_DOCUMENTS = 6, 10, 5
#: Numbers of contributions that are listed, for and against; smaller ones than this share are not.
N_FOR, N_AGAINST, LEAST = 3, 1, 0.01


def worst_queries(
    data: Rankings, errors: UnitErrors, scores: Array, model: Any, train: Rankings
) -> list[SimpleNamespace]:
    """Describe the worst queries; ``model``, fitted to ``train``, is explained.

    Each has its first rows by the model (``top``), rows that should be among them (``missed``), and
    a row ``above`` a better one, ``below``, with the ``reasons`` for their order. A row has the
    ``place`` that the model gives it, and the first and last one that agree with its label.
    """
    found = []
    for q in errors.worst(N_QUERIES).tolist():
        rows = np.flatnonzero(data.codes == q)
        y, score = data.y[rows], scores[rows]
        order = np.lexsort((y, -score))  # if scores tie, the worse label comes first
        place = np.argsort(order) + 1
        first, last = (np.searchsorted(np.sort(-y), -y, side=side) for side in ("left", "right"))
        documents = [
            SimpleNamespace(
                name=data.document_name(row),
                row=row,
                label=float(y[k]),
                place=int(place[k]),
                expected=int(first[k]) + 1,
                last=int(last[k]),
            )
            for k, row in enumerate(rows.tolist())
        ]
        top = [documents[k] for k in order[:N_DOCUMENTS]]
        least = min(document.label for document in top)
        missed = [d for d in documents if d.expected <= N_DOCUMENTS < d.place and d.label > least]
        missed.sort(key=lambda d: (-d.label, d.place))
        a, b = _most_wrong(y, score)
        above = below = reasons = None
        if y[a] < y[b] and score[a] > score[b]:
            above, below = documents[a], documents[b]
            reasons = _reasons(model, train, data.X[[above.row]], data.X[[below.row]])
        found.append(
            SimpleNamespace(
                name=data.query_name(q),
                error=float(errors.error[q]),
                wrong=float(errors.wrong[q]),
                pairs=int(errors.pairs[q]),
                n_documents=len(rows),
                top=top,
                missed=missed[:N_DOCUMENTS],
                above=above,
                below=below,
                reasons=reasons,
            )
        )
    return found


def _most_wrong(y: Array, score: Array) -> tuple[int, int]:
    """Find the pair with the largest product of label difference and (wrong) score difference."""
    few = np.arange(len(y))
    if len(y) > 1000:  # the ends of both orders are enough
        few = np.unique(np.concatenate([np.argsort(score)[-500:], np.argsort(y)[-500:]]))
    higher = np.maximum(score[few][:, None] - score[few], 0.0)
    damage = higher * np.maximum(y[few] - y[few][:, None], 0.0)
    a, b = np.unravel_index(int(np.argmax(damage)), damage.shape)
    return int(few[a]), int(few[b])


def _reasons(model: Any, train: Rankings, above: Any, below: Any) -> SimpleNamespace | None:
    """Contributions of features, or of training rows, to the difference of two scores, if any."""
    names: Any = train.feature_names
    if isinstance(model, Pipeline):
        try:
            names = model[:-1].get_feature_names_out(names)
        except (AttributeError, ValueError):  # a step without feature names
            names = None
    try:
        parts = explain(model, above, below)
    except ValueError:  # not a model of this package
        return None

    def named(k: int) -> tuple[str, float]:
        number, name = int(parts.index[k]), str(parts.labels[k])
        if parts.kind != "feature":
            name = train.document_name(number)
            if train.has_qid:
                name += f" of query {train.query_name(int(train.codes[number]))}"
        elif names is not None:
            name = str(names[number])
        return name, float(parts.contribution[k])

    least = LEAST * np.abs(parts.contribution).max(initial=0.0)
    return SimpleNamespace(
        difference=parts.difference,
        kind=parts.kind,
        most=[named(int(k)) for k in np.flatnonzero(parts.contribution > least)[:N_FOR]],
        against=[named(int(k)) for k in np.flatnonzero(parts.contribution < -least)[:N_AGAINST]],
        n=int(np.count_nonzero(parts.contribution)),
    )


def worst_rows(data: Rankings, errors: UnitErrors, scores: Array) -> list[SimpleNamespace]:
    """The worst rows of one ranking, with their scores."""
    return [
        SimpleNamespace(
            name=data.document_name(row),
            label=float(data.y[row]),
            error=float(errors.error[row]),
            wrong=float(errors.wrong[row]),
            pairs=int(errors.pairs[row]),
            score=float(scores[row]),
        )
        for row in errors.worst(N_ROWS).tolist()
    ]
