"""Change of the leave-one-out accuracy of the other lines when a line of an audit is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.ridge.influence import without_two_folds
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.ridge.residuals import Folds
from rankrls.metrics import pairwise_accuracy

__all__ = ["change_without_groups", "change_without_queries"]

Array = NDArray[Any]

#: Limits of the pairs of lines to leave out, and of the rows or judgements to predict.
MAX_PAIRS, MAX_PREDICTIONS = 10**6, 10**8

#: Scores that differ by less than this fraction of the largest count as tied, such as those of
#: equal rows.
TIED = 1e-10


def change_without_queries(problem: RidgeProblem, folds: Sequence[Array], alpha: float) -> Array:
    """Change of the mean accuracy of the queries in all other folds, shape (n_folds,).

    Each fold holds the rows of one or more whole queries.
    """
    graph, n = problem.graph, len(folds)
    scores, codes, n_queries = graph.scores, graph.query_codes, graph.n_queries
    assert scores is not None
    assert codes is not None
    _require_affordable(n * (n - 1) // 2, graph.n_rows * (n - 1))
    owner = np.empty(n_queries, dtype=np.int64)
    for number, rows in enumerate(folds):
        owner[codes[rows]] = number

    def accuracies(rows: Array, f: Array, fold: Array) -> tuple[Array, Array, Array]:
        """Query, fold and value of each accuracy that is defined."""
        code = fold * n_queries + codes[rows]
        weight = None if graph.sample_weight is None else graph.sample_weight[rows]
        f = np.rint(f / grid) if grid else f
        found = pairwise_accuracy(scores[rows, 0], f, qid=code, sample_weight=weight, average=None)
        fold, query = np.divmod(np.unique(code), n_queries)
        told = np.isfinite(found)
        return query[told], fold[told], np.asarray(found)[told]

    held = problem.leave_out(folds, np.array([alpha]))
    grid = TIED * np.ptp(held.values)
    query, _, before = accuracies(held.rows, held.values[0, :, 0], np.zeros_like(held.fold))
    _require_three(np.unique(owner[query]))
    mine = np.bincount(owner[query], minlength=n)
    count = len(query) - mine
    lost = before.sum() - np.bincount(owner[query], before, minlength=n)
    without = np.zeros(n)
    for two, held in without_two_folds(problem, folds, alpha):
        query, fold, found = accuracies(held.rows, held.values[0, :, 0], held.fold)
        without += np.bincount(two[fold].sum(axis=1) - owner[query], found, minlength=n)
    return np.divide(without - lost, count, out=np.full(n, np.nan), where=count > 0)


def change_without_groups(problem: RidgeProblem, folds: Folds, alpha: float) -> Array:
    """Change of the accuracy of the judgements in all other groups, shape (n_groups,).

    Every judgement is in one group.
    """
    graph, n = problem.graph, len(folds)
    told = graph.preferring
    _require_affordable(n * (n - 1) // 2, len(told) * (n - 1))
    owner = np.empty(len(told), dtype=np.int64)
    owner[folds.members] = np.repeat(np.arange(n), folds.sizes)
    if graph.scores is None:
        _require_three(np.unique(owner[told]))
    weight = np.where(told, graph.pair_weight, 0.0)

    held = problem.leave_judgements_out(folds, np.array([alpha]))
    least = TIED * float(np.abs(held.values).max())

    def right(differences: Array, judgements: Array) -> Array:
        """Weight of the judgements predicted correctly; half the weight for a difference of 0."""
        share = 0.5 * (differences > least) + 0.5 * (differences >= -least)
        return weight[judgements] * share

    before = right(held.values[0, :, 0], held.rows)
    lost = before.sum() - np.bincount(owner[held.rows], before, minlength=n)
    total = weight.sum() - np.bincount(owner, weight, minlength=n)
    without = np.zeros(n)
    for some, held in without_two_folds(problem, folds, alpha, judgements=True):
        found = right(held.values[0, :, 0], held.rows)
        other = some[held.fold].sum(axis=1) - owner[held.rows]
        without += np.bincount(other, found, minlength=n)
    return np.divide(without - lost, total, out=np.full(n, np.nan), where=total > 0)


def _require_three(lines: Array) -> None:
    if len(lines) < 3:
        raise ValueError(
            f"eval_set='leave-one-out' leaves out two lines at a time, and only {len(lines)} of "
            "them have a preference; pass separate labelled data as eval_set"
        )


def _require_affordable(n_pairs: int, n_predictions: int) -> None:
    if n_pairs > MAX_PAIRS or n_predictions > MAX_PREDICTIONS:
        raise ValueError(
            f"{n_pairs:,} pairs of lines to leave out are too many for "
            "eval_set='leave-one-out'; audit by larger groups, or pass separate labelled data as "
            "eval_set=(X_val, y_val) or (X_val, y_val, qid_val)"
        )
