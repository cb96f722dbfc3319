"""Held-out predictions for a plan: by shortcuts on complete relations, by refits elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._progress import Progress
from rankrls.core.relations.holdout import CompleteHoldout
from rankrls.core.relations.plan import Plan, pair_folds
from rankrls.core.relations.problem import RelationProblem, Stopping

__all__ = ["HeldOutEdges", "cross_validate"]

Array = NDArray[Any]

#: Numbers in a work space: alphas are taken together up to this.
WORK = 2**27


@dataclass(frozen=True)
class HeldOutEdges:
    """Held-out edges and their predictions.

    Attributes
    ----------
    lists : ndarray of shape (n,), int
        Which edges were predicted by one model for one row: these are to be ranked.
    y : ndarray of shape (n,)
    predictions : ndarray of shape (n_alphas, n)
    n_refits : ndarray of shape (n_alphas,), int
        How often a refit replaced a shortcut that would have lost digits; every fold where there
        is no shortcut.
    """

    lists: Array
    y: Array
    predictions: Array
    n_refits: Array


class _Collector:
    def __init__(self, n_folds: int) -> None:
        self.n_folds = n_folds
        self.parts: list[tuple[Array, Array, Array]] = []

    def add(self, rows: Array, fold: int, y: Array, predictions: Array) -> None:
        self.parts.append((rows * self.n_folds + fold, y, predictions))

    def result(self, n_refits: Array) -> HeldOutEdges:
        lists, y, predictions = zip(*self.parts, strict=True)
        return HeldOutEdges(
            np.concatenate(lists),
            np.concatenate(y),
            np.concatenate(predictions, axis=1),
            n_refits,
        )


def alpha_chunks(alphas: Array, shape: tuple[int, int]) -> list[Array]:
    """Alphas that can be followed together without a work space of gigabytes."""
    size = max(1, WORK // (shape[0] * shape[1]))
    return [alphas[start : start + size] for start in range(0, len(alphas), size)]


def cross_validate(
    problem: RelationProblem,
    plan: Plan,
    alphas: Array,
    *,
    solver: str,
    stopping: Stopping,
    n_folds: int | None,
    rng: np.random.RandomState,
    progress: Progress,
) -> HeldOutEdges:
    """Predictions of held-out edges for some alphas (see `alpha_chunks`).

    Parameters
    ----------
    problem : RelationProblem
    plan : Plan
    alphas : ndarray of shape (n_alphas,)
    solver, stopping
        For refits, where the relation is not complete.
    n_folds : int or None
        For the plan "pairs".
    rng : RandomState
        For the plan "pairs".
    progress : Progress
    """
    Y = complete_labels(problem)
    if plan.kind in ("leave-row-out", "entries"):
        assert Y is not None
        return _shortcut(problem, Y, plan, alphas)
    if plan.kind == "pairs":
        return _refit_pairs(problem, alphas, solver, stopping, n_folds, rng, progress)
    if Y is not None and solver in ("auto", "closed"):
        return _blocks(problem, Y, plan, alphas, progress)
    return _refit_blocks(problem, plan, alphas, solver, stopping, progress)


def complete_labels(problem: RelationProblem) -> Array | None:
    """The labels as a matrix of shape (p, g), if every pair has exactly one."""
    block = problem.block()
    if block is None or block.multiplicity != 1 or block.Y.shape != problem.observations.shape:
        return None
    return block.Y


def _shortcut(problem: RelationProblem, Y: Array, plan: Plan, alphas: Array) -> HeldOutEdges:
    p, g = Y.shape
    holdout = CompleteHoldout(problem.K, problem.G, Y, ranking=problem.ranking)
    rows = np.repeat(np.arange(p), g)
    if plan.kind == "leave-row-out":
        held = holdout.rows(alphas)
        lists = rows
    else:
        held = holdout.entry_folds(list(plan.entries), alphas)
        fold_of = np.empty(g, dtype=np.int64)
        for number, cols in enumerate(plan.entries):
            fold_of[cols] = number
        lists = rows * len(plan.entries) + np.tile(fold_of, p)
    predictions = held.predictions.reshape(len(alphas), -1)
    return HeldOutEdges(lists, Y.ravel(), predictions, held.n_refits)


def _blocks(
    problem: RelationProblem, Y: Array, plan: Plan, alphas: Array, progress: Progress
) -> HeldOutEdges:
    """Complete relations: a closed form for each fold, kernels decomposed once for each side."""
    holdout = CompleteHoldout(problem.K, problem.G, Y, ranking=problem.ranking, sign=problem.sign)
    collected = _Collector(len(plan.blocks))
    for number, fold in enumerate(plan.blocks):
        rows, cols = fold.test
        predictions = holdout.block(fold.train, fold.test, alphas).reshape(len(alphas), -1)
        labels = Y[np.ix_(rows, cols)].ravel()
        collected.add(np.repeat(rows, len(cols)), number, labels, predictions)
        progress.bar(number + 1, len(plan.blocks), "folds")
    return collected.result(np.zeros(len(alphas), dtype=int))


def _refit_blocks(
    problem: RelationProblem,
    plan: Plan,
    alphas: Array,
    solver: str,
    stopping: Stopping,
    progress: Progress,
) -> HeldOutEdges:
    rows, cols, _ = problem.observations.lists
    p, g = problem.observations.shape
    collected = _Collector(len(plan.blocks))
    for number, fold in enumerate(plan.blocks):
        train, test = (
            _member(of_rows, p)[rows] & _member(of_cols, g)[cols]
            for of_rows, of_cols in (fold.train, fold.test)
        )
        _refit(problem, train, test, number, alphas, solver, stopping, collected)
        progress.bar(number + 1, len(plan.blocks), "folds refitted")
    return _refitted(collected, alphas)


def _refit_pairs(
    problem: RelationProblem,
    alphas: Array,
    solver: str,
    stopping: Stopping,
    n_folds: int | None,
    rng: np.random.RandomState,
    progress: Progress,
) -> HeldOutEdges:
    observations = problem.observations
    cells = observations.cells
    fold, n_folds = pair_folds(cells, n_folds, rng, paired=problem.sign != 0)
    rows, cols, _ = observations.lists
    fold_of_edge = fold[np.searchsorted(cells.flat, rows * observations.shape[1] + cols)]
    collected = _Collector(n_folds)
    for number in range(n_folds):
        test = fold_of_edge == number
        _refit(problem, ~test, test, number, alphas, solver, stopping, collected)
        progress.bar(number + 1, n_folds, "folds refitted")
    return _refitted(collected, alphas)


def _refit(
    problem: RelationProblem,
    train: Array,
    test: Array,
    number: int,
    alphas: Array,
    solver: str,
    stopping: Stopping,
    collected: _Collector,
) -> None:
    """Fit on some edges, predict others."""
    if not test.any() or not train.any():
        return
    coefficients = problem.select(train).solve(alphas, solver, stopping).coefficients
    rows, cols, y = problem.observations.select(test).lists
    used_rows, i = np.unique(rows, return_inverse=True)
    used_cols, j = np.unique(cols, return_inverse=True)
    K, G = problem.K[used_rows], problem.G[:, used_cols]
    predictions = np.stack([(K @ A @ G)[i, j] for A in coefficients])
    collected.add(rows, number, y, predictions)


def _refitted(collected: _Collector, alphas: Array) -> HeldOutEdges:
    if not collected.parts:
        raise ValueError("no fold has both edges to learn from and edges to predict")
    return collected.result(np.full(len(alphas), len(collected.parts)))


def _member(chosen: Array, n: int) -> Array:
    mask = np.zeros(n, dtype=bool)
    mask[chosen] = True
    return mask
