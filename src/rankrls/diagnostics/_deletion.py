"""Change of the leave-one-out accuracy of the other lines when a line of an audit is deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls import _resources
from rankrls.core.ridge.influence import counted_problem, judgement_terms
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.ridge.residuals import Folds
from rankrls.metrics import pairwise_accuracy

__all__ = ["change_without_groups", "change_without_queries"]

Array = NDArray[Any]

#: Limits of the pairs of lines to leave out, of those of single judgements, and of predictions.
MAX_PAIRS, MAX_SINGLE, MAX_PREDICTIONS = 10**6, 2 * 10**8, 10**8

#: Scores that differ by less than this fraction of the largest count as tied, such as those of
#: equal rows.
TIED = 1e-10

#: Below this, rounding errors of two judgements left out together are not small.
SINGULAR = 1e-6

#: Maximum size of a work array.
WORK = 2**21


def change_without_queries(problem: RidgeProblem, folds: Sequence[Array], alpha: float) -> Array:
    """Change of the mean accuracy of the queries in all other folds (unions of queries)."""
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
    count = len(query) - np.bincount(owner[query], minlength=n)
    lost = before.sum() - np.bincount(owner[query], before, minlength=n)
    without = np.zeros(n)
    for two, unions in _unions(Folds.of_list(folds), _all_pairs(n)):
        held = problem.leave_out(unions, np.array([alpha]))
        query, fold, found = accuracies(held.rows, held.values[0, :, 0], held.fold)
        without += np.bincount(two[fold].sum(axis=1) - owner[query], found, minlength=n)
    return np.divide(without - lost, count, out=np.full(n, np.nan), where=count > 0)


def change_without_groups(problem: RidgeProblem, folds: Folds, alpha: float) -> Array:
    """Change of the accuracy of the judgements in all other groups; each is in one group."""
    graph, n = problem.graph, len(folds)
    told, single = graph.preferring, bool((folds.sizes == 1).all())
    limits = (0, MAX_SINGLE) if single else (len(told) * (n - 1), MAX_PAIRS)
    _require_affordable(n * (n - 1) // 2, *limits)
    owner = np.empty(len(told), dtype=np.int64)
    owner[folds.members] = np.repeat(np.arange(n), folds.sizes)
    if graph.scores is None:
        _require_three(np.unique(owner[told]))
    weight = np.where(told, graph.pair_weight, 0.0)

    held = problem.leave_judgements_out(folds, np.array([alpha]))
    least = TIED * float(np.abs(held.values).max())

    def right(differences: Array, weight: Array) -> Array:
        """Weight of the judgements predicted correctly; half the weight for a difference of 0."""
        return weight * (0.5 * (differences > least) + 0.5 * (differences >= -least))

    before = right(held.values[0, :, 0], weight[held.rows])
    lost = before.sum() - np.bincount(owner[held.rows], before, minlength=n)
    total = weight.sum() - np.bincount(owner, weight, minlength=n)
    without, pairs = np.zeros(n), None
    if single:
        doubtful = [np.empty((0, 2), dtype=np.int64)]
        for some, numbers, differences, unsafe in _without_two(problem, alpha):
            found = np.where(unsafe, 0.0, right(differences, weight[numbers][:, None]))
            found[some, np.arange(len(some))] = 0.0
            without[owner[numbers[some]]] = found.sum(axis=0)
            first, second = np.nonzero(unsafe & (numbers[:, None] < numbers[some]))
            doubtful.append(owner[np.column_stack([numbers[first], numbers[some[second]]])])
        pairs = np.concatenate(doubtful)
        _require_affordable(len(pairs), 0)
    for two, unions in _unions(folds, _all_pairs(n) if pairs is None else pairs):
        held = problem.leave_judgements_out(unions, np.array([alpha]))
        found = right(held.values[0, :, 0], weight[held.rows])
        other = two[held.fold].sum(axis=1) - owner[held.rows]
        without += np.bincount(other, found, minlength=n)
    return np.divide(without - lost, total, out=np.full(n, np.nan), where=total > 0)


def _without_two(
    problem: RidgeProblem, alpha: float
) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Differences of each judgement without it and without one of some others, (n, n_some).

    Also yields these others, as places in ``numbers``, the judgements of positive weight, and
    whether a difference is unreliable. The residual of i without i and j is
    (e_i + H_ij e_j/J_ii)/(1 − H_ij²/(J_ii J_jj)), with e those without i or j alone.
    """
    problem, numbers, _ = counted_problem(problem)
    every = np.arange(len(numbers))
    terms, root, e = judgement_terms(problem, Folds.single(len(every)), alpha)
    advice = "audit by groups, or with new data as eval_set"
    _resources.require("leaving out two judgements", len(e), len(terms.b), copies=4, advice=advice)
    J = np.maximum(terms.residuals(every, alpha)[1], np.finfo(float).tiny)
    A = terms.coordinates(terms.vectors(every), alpha)
    w = terms.weights(np.array([alpha]))[:, 0]
    for some in np.array_split(every, max(1, len(e) ** 2 // WORK)):
        H = A @ (A[some] * w).T
        scale = J[:, None] * J[some]
        rest = 1.0 - np.square(H) / scale
        unsafe = np.sqrt(scale) * rest < SINGULAR
        unsafe[some, np.arange(len(some))] = False
        residuals = (e[:, None] + H * (e[some] / J[:, None])) / np.where(rest > 0, rest, 1.0)
        yield some, numbers, (terms.t[:, :1] - residuals) / root[:, None], unsafe


def _all_pairs(n: int) -> Array:
    return np.column_stack(np.triu_indices(n, 1))


def _unions(folds: Folds, two: Array) -> Iterator[tuple[Array, Folds]]:
    """Unions of two folds each, in parts with a limited number of members."""
    block = np.cumsum(folds.sizes[two].sum(axis=1)) // WORK
    for some in np.split(two, np.flatnonzero(np.diff(block)) + 1) if len(two) else ():
        members = folds.take(some.ravel()).members
        yield some, Folds(members, folds.sizes[some].sum(axis=1))


def _require_three(lines: Array) -> None:
    if len(lines) < 3:
        raise ValueError(
            f"eval_set='leave-one-out' leaves out two lines at a time, and only {len(lines)} of "
            "them have a preference; pass separate labelled data as eval_set"
        )


def _require_affordable(n_pairs: int, n_predictions: int, most: int | None = None) -> None:
    if n_pairs > (MAX_PAIRS if most is None else most) or n_predictions > MAX_PREDICTIONS:
        raise ValueError(
            f"{n_pairs:,} pairs of lines to leave out are too many for "
            "eval_set='leave-one-out'; audit by larger groups, or pass separate labelled data as "
            "eval_set=(X_val, y_val) or (X_val, y_val, qid_val)"
        )
