"""Folds of a relation, and predictions of held-out pairs.

On complete relations, predictions are computed from decomposed kernels (`core.relations.holdout`),
or from a closed form for each fold. Otherwise each
fold is refitted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls import _resources
from rankrls._calls import Progress
from rankrls.core.linalg.krylov import IterationOptions
from rankrls.core.relations.complete import CompleteSpectrum, closed_form
from rankrls.core.relations.holdout import CompleteHoldout
from rankrls.core.relations.labels import Observations
from rankrls.core.relations.problem import RelationProblem

__all__ = [
    "BlockFold",
    "HeldOutEdges",
    "RelationFolds",
    "alpha_chunks",
    "complete_holdout",
    "complete_labels",
    "cross_validate",
    "unpaired",
]

Array = NDArray[Any]

#: Maximal number of entries of a work space, which limits the alphas processed together.
WORK = 2**27


@dataclass(frozen=True)
class BlockFold:
    """Training and test pairs, each given as all pairs of some rows and columns.

    Attributes
    ----------
    train, test : tuple of two int arrays
        Rows and columns.
    """

    train: tuple[Array, Array]
    test: tuple[Array, Array]


@dataclass(frozen=True)
class RelationFolds:
    """Folds of a cross-validation of a relation.

    Attributes
    ----------
    kind : {"blocks", "leave-row-out", "entries", "pairs"}
    blocks : tuple of BlockFold
        The folds of "blocks".
    entries : tuple of int arrays
        The folds of "entries": columns that are held out together, for one row at a time.
    pairs : ndarray of shape (q,), int
        The folds of "pairs": the fold of every observed pair, or −1 if it is never held out.
    n_pair_folds : int
    """

    kind: str
    blocks: tuple[BlockFold, ...] = ()
    entries: tuple[Array, ...] = ()
    pairs: Array | None = None
    n_pair_folds: int = 0

    @property
    def held(self) -> str:
        """The new objects of held-out pairs: "rows", "columns", "both", or none ("entries")."""
        if self.kind == "leave-row-out":
            return "rows"
        if self.kind != "blocks":
            return "entries"
        new = [
            any(len(np.setdiff1d(fold.test[side], fold.train[side])) for fold in self.blocks)
            for side in (0, 1)
        ]
        return {(True, False): "rows", (False, True): "columns"}.get((new[0], new[1]), "both")

    def __str__(self) -> str:
        n = len(self.blocks) or self.n_pair_folds
        return f"{n} folds" if n else self.kind


@dataclass(frozen=True)
class HeldOutEdges:
    """Held-out edges and their predictions.

    Attributes
    ----------
    lists : ndarray of shape (n,), int
        List index of every edge. Edges of a list have the same row and the same model, and are
        ranked together.
    y : ndarray of shape (n,)
    predictions : ndarray of shape (n_alphas, n)
    n_refits : ndarray of shape (n_alphas,), int
        Number of refits that replaced a shortcut that would have lost digits, or the number of
        folds if there is no shortcut.
    """

    lists: Array
    y: Array
    predictions: Array
    n_refits: Array


def complete_labels(problem: RelationProblem) -> Array | None:
    """Return the labels as a matrix of shape (p, g), or None unless every pair has one label."""
    block = problem.block()
    if block is None or block.multiplicity != 1 or block.Y.shape != problem.observations.shape:
        return None
    return block.Y


def complete_holdout(problem: RelationProblem, Y: Array) -> CompleteHoldout:
    """Build held-out predictions of a complete problem with the labels Y of shape (p, g)."""
    return CompleteHoldout(*problem.sides, Y, problem.loss)


def unpaired(problem: RelationProblem) -> CompleteSpectrum:
    """Build the closed form of a complete problem without the symmetry of the relation.

    For a relation with a symmetry this is an approximation. Rows and columns are then held out as
    if they were objects of two kinds.
    """
    Y = complete_labels(problem)
    assert Y is not None
    form = closed_form(*problem.sides, Y, replace(problem.loss, sign=0))
    assert isinstance(form, CompleteSpectrum)
    return form


def alpha_chunks(alphas: Array, shape: tuple[int, int]) -> list[Array]:
    """Split alphas into chunks that limit the size of the work space."""
    size = max(1, min(WORK, _resources.budget() // 64) // (shape[0] * shape[1]))
    return [alphas[start : start + size] for start in range(0, len(alphas), size)]


def cross_validate(
    problem: RelationProblem,
    folds: RelationFolds,
    alphas: Array,
    *,
    solver: str,
    options: IterationOptions,
    progress: Progress,
) -> HeldOutEdges:
    """Predict held-out edges for some alphas (see `alpha_chunks`).

    Parameters
    ----------
    problem : RelationProblem
    folds : RelationFolds
    alphas : ndarray of shape (n_alphas,)
    solver, options
        Solver and options of refits, if the relation is not complete.
    progress : Progress
    """
    Y = complete_labels(problem)
    if folds.kind in ("leave-row-out", "entries"):
        assert Y is not None
        return _by_shortcuts(problem, Y, folds, alphas)
    closed = solver in ("auto", "closed") and problem.has_closed_form
    if folds.kind == "blocks" and Y is not None and closed:
        return _by_closed_forms(problem, Y, folds, alphas, progress)
    if problem.two_step and folds.kind == "pairs":
        raise ValueError(
            "cv='edges' refits models without single pairs here, which pairwise='two-step' needs: "
            "use cv='rows', 'columns' or 'both'"
        )
    return _by_refits(problem, folds, alphas, solver, options, progress)


def _by_shortcuts(
    problem: RelationProblem, Y: Array, folds: RelationFolds, alphas: Array
) -> HeldOutEdges:
    p, g = Y.shape
    holdout = complete_holdout(problem, Y)
    rows = np.repeat(np.arange(p), g)
    if folds.kind == "leave-row-out":
        held = holdout.rows(alphas)
        lists = rows
    else:
        held = holdout.entry_folds(list(folds.entries), alphas)
        fold_of = np.empty(g, dtype=np.int64)
        for number, cols in enumerate(folds.entries):
            fold_of[cols] = number
        lists = rows * len(folds.entries) + np.tile(fold_of, p)
    predictions = held.predictions.reshape(len(alphas), -1)
    return HeldOutEdges(lists, Y.ravel(), predictions, held.n_refits)


def _by_closed_forms(
    problem: RelationProblem, Y: Array, folds: RelationFolds, alphas: Array, progress: Progress
) -> HeldOutEdges:
    """Predict folds of a complete relation by closed forms, with one decomposition per side."""
    holdout = complete_holdout(problem, Y)
    parts = []
    for number, fold in enumerate(folds.blocks):
        rows, cols = fold.test
        if problem.profiled:  # profiles of the labels that are not held out
            labels = np.full(Y.shape, np.nan)
            labels[np.ix_(*fold.train)] = Y[np.ix_(*fold.train)]
            part = problem.given(Observations.from_matrix(labels))
            holdout = complete_holdout(part, Y)
        predictions = holdout.block(fold.train, fold.test, alphas).reshape(len(alphas), -1)
        lists = np.repeat(rows, len(cols)) * len(folds.blocks) + number
        parts.append((lists, Y[np.ix_(rows, cols)].ravel(), predictions))
        progress.bar(number + 1, len(folds.blocks), "folds")
    return _joined(parts, np.zeros(len(alphas), dtype=int))


def _by_refits(
    problem: RelationProblem,
    folds: RelationFolds,
    alphas: Array,
    solver: str,
    options: IterationOptions,
    progress: Progress,
) -> HeldOutEdges:
    """Fit without the edges of each fold, and predict them."""
    masks = _edge_masks(problem.observations, folds)
    parts = []
    for number, (train, test) in enumerate(masks):
        if test.any() and train.any():
            part = problem.select(train)
            model = part.solve(alphas, solver, options)
            rows, cols, y = problem.observations.select(test).lists
            predictions = model.predict(part.sides, rows, cols)
            parts.append((rows * len(masks) + number, y, predictions))
        progress.bar(number + 1, len(masks), "folds refitted")
    if not parts:
        raise ValueError("no fold has both edges to learn from and edges to predict")
    return _joined(parts, np.full(len(alphas), len(parts)))


def _edge_masks(observations: Observations, folds: RelationFolds) -> list[tuple[Array, Array]]:
    """Return masks of training and test edges for each fold."""
    rows, cols, _ = observations.lists
    if folds.pairs is not None:
        flat = rows * observations.shape[1] + cols
        fold = folds.pairs[np.searchsorted(observations.cells.flat, flat)]
        return [(fold != number, fold == number) for number in range(folds.n_pair_folds)]

    def member(part: tuple[Array, Array]) -> Array:
        inside = [np.zeros(n, dtype=bool) for n in observations.shape]
        inside[0][part[0]], inside[1][part[1]] = True, True
        return inside[0][rows] & inside[1][cols]

    return [(member(fold.train), member(fold.test)) for fold in folds.blocks]


def _joined(parts: list[tuple[Array, Array, Array]], n_refits: Array) -> HeldOutEdges:
    lists, y, predictions = zip(*parts, strict=True)
    return HeldOutEdges(
        np.concatenate(lists), np.concatenate(y), np.concatenate(predictions, axis=1), n_refits
    )
