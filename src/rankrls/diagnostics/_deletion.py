"""Change of the leave-one-out accuracy of the other lines when a line of an audit is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.ridge.influence import (
    counted_problem,
    judgement_terms,
    without_two_folds,
    without_two_groups,
)
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.ridge.residuals import Folds
from rankrls.metrics import pairwise_accuracy

__all__ = ["change_without_groups", "change_without_queries"]

Array = NDArray[Any]

#: Limits: pairs of lines to leave out, for single judgements and for other lines; and rows or
#: judgements to predict.
MAX_SINGLE, MAX_PAIRS, MAX_PREDICTIONS = 2 * 10**8, 10**6, 10**8

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
    _require_affordable(n * (n - 1) // 2, MAX_PAIRS, graph.n_rows * (n - 1))
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
    told, single = graph.preferring, bool((folds.sizes == 1).all())
    most, n_predictions = (MAX_SINGLE, 0) if single else (MAX_PAIRS, len(told) * (n - 1))
    _require_affordable(n * (n - 1) // 2, most, n_predictions)
    owner = np.empty(len(told), dtype=np.int64)
    owner[folds.members] = np.repeat(np.arange(n), folds.sizes)
    if graph.scores is None:
        _require_three(np.unique(owner[told]))
    weight = np.where(told, graph.pair_weight, 0.0)

    held = problem.leave_judgements_out(folds, np.array([alpha]))
    least = TIED * float(np.abs(held.values).max())

    def right(differences: Array, judgements: Array) -> Array:
        """Weight of the judgements predicted correctly; half the weight for a difference of 0."""
        return weight[judgements] * _share_right(differences, least)

    before = right(held.values[0, :, 0], held.rows)
    lost = before.sum() - np.bincount(owner[held.rows], before, minlength=n)
    total = weight.sum() - np.bincount(owner, weight, minlength=n)
    without, two = np.zeros(n), None
    if single:
        by_judgement, two = _without_single(problem, alpha, weight, least)
        without, two = by_judgement[folds.members], owner[two]
    for some, held in without_two_groups(problem, folds, alpha, two):
        found = right(held.values[0, :, 0], held.rows)
        other = some[held.fold].sum(axis=1) - owner[held.rows]
        without += np.bincount(other, found, minlength=n)
    return np.divide(without - lost, total, out=np.full(n, np.nan), where=total > 0)


def _share_right(differences: Array, least: float) -> Array:
    """1 for preferred − other above zero, 0 below, 1/2 for a tie."""
    return 0.5 * (differences > least) + 0.5 * (differences >= -least)


def _without_single(
    problem: RidgeProblem, alpha: float, weight: Array, least: float
) -> tuple[Array, Array]:
    """For each judgement j, the weight of the others i predicted correctly without i and j.

    Also returns the pairs of judgements (n, 2) that are not counted because they need a refit.
    """
    out, unsure = np.zeros(len(weight)), [np.empty((0, 2), dtype=np.int64)]
    smaller, numbers, _ = counted_problem(problem)
    n = len(numbers)
    terms, root, e = judgement_terms(smaller, Folds.single(n), alpha)
    for others, residuals, unsafe in terms.without_two(e, alpha):
        differences = (terms.t[:, :1] - residuals) / root[:, None]
        right = weight[numbers][:, None] * _share_right(differences, least)
        right[unsafe] = 0.0
        right[others, np.arange(len(others))] = 0.0
        out[numbers[others]] = right.sum(axis=0)
        first, second = np.nonzero(unsafe)
        ahead = first < others[second]  # each pair once
        unsure.append(np.column_stack([first, others[second]])[ahead])
    two = np.concatenate(unsure)
    _require_affordable(len(two), MAX_PAIRS, 2 * len(two), "would have to be refitted")
    return out, numbers[two]


def _require_three(lines: Array) -> None:
    if len(lines) < 3:
        raise ValueError(
            f"eval_set='leave-one-out' leaves out two lines at a time, and only {len(lines)} of "
            "them have a preference; pass separate labelled data as eval_set"
        )


def _require_affordable(n_pairs: int, most: int, n_predictions: int, what: str = "") -> None:
    if n_pairs > most or n_predictions > MAX_PREDICTIONS:
        raise ValueError(
            f"{n_pairs:,} pairs of lines {what or 'to leave out'} are too many for "
            "eval_set='leave-one-out'; audit by larger groups, or pass separate labelled data as "
            "eval_set=(X_val, y_val) or (X_val, y_val, qid_val)"
        )
