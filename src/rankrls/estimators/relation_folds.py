"""Cross-validation of a relation by folds of rows, columns, both, or single pairs (P5).

In this module, rows are the conditioning objects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankrls._calls import Progress
from rankrls._validation import check_integer, check_option, show
from rankrls.core.linalg.krylov import IterationOptions
from rankrls.core.relations.holdout import CompleteHoldout
from rankrls.core.relations.labels import Cells, Observations
from rankrls.core.relations.problem import RelationProblem
from rankrls.estimators.choosing import is_fold_count, is_splits, random_folds, read_splits

__all__ = ["RelationFolds", "cross_validate", "folds_of", "object_folds", "pair_folds"]

Array = NDArray[Any]

STRUCTURES = ("auto", "rows", "columns", "both", "edges")

#: Default number of folds.
N_FOLDS = 10
#: Number of pairs of a row that are held out together by shortcuts for complete relations.
ENTRIES = 8
#: Number of folds of objects, and of pairs, that are refitted for trials of kernel weights.
FEW_BLOCKS, FEW_PAIRS = 4, 2


class BlockFold(NamedTuple):
    """Training and test pairs, each given as all pairs of some rows and columns."""

    train: tuple[Array, Array]
    test: tuple[Array, Array]


@dataclass(frozen=True)
class RelationFolds:
    """Folds of a relation: ``blocks``, ``pairs``, or shortcuts that hold out rows or entries."""

    held: str  # the new objects of held-out pairs: "rows", "columns", "both", none: "entries"
    blocks: tuple[BlockFold, ...] = ()
    entries: tuple[Array, ...] = ()  # columns that are held out together, for one row at a time
    pairs: Array | None = None  # the fold of every observed pair, or −1 if it is never held out
    n_pair_folds: int = 0

    def __len__(self) -> int:
        return len(self.blocks) or self.n_pair_folds

    def __str__(self) -> str:
        return f"{len(self)} folds" if len(self) else f"leave-{self.held}-out"

    def few(self) -> RelationFolds:
        """Some of the folds, as a validation set."""
        step = max(1, len(self.blocks) // FEW_BLOCKS)
        few = min(FEW_PAIRS, self.n_pair_folds)
        return replace(self, blocks=self.blocks[::step][:FEW_BLOCKS], n_pair_folds=few)

    def edges(self, observations: Observations, number: int) -> tuple[Array, Array]:
        """Return masks of the training and test edges of a fold of blocks or pairs."""
        rows, cols, _ = observations.lists
        if self.pairs is not None:
            flat = rows * observations.shape[1] + cols
            fold = self.pairs[np.searchsorted(observations.cells.flat, flat)]
            return fold != number, fold == number
        ends = self.blocks[number]
        train, test = (np.isin(rows, i) & np.isin(cols, j) for i, j in ends)
        return train, test


def folds_of(
    cv: Any,
    observations: Observations,
    condition_on: str,
    *,
    paired: bool,
    two_domains: bool,
    shortcut: bool,
    n_folds: int | None,
    rng: np.random.RandomState,
    X: Any,
) -> RelationFolds:
    """Build the folds for ``cv``; ``paired`` holds out mirror images, ``shortcut`` single rows."""
    p, g = observations.shape
    every = np.arange(p), np.arange(g)
    structure = "rows" if two_domains else "both"
    if isinstance(cv, str):
        structure = structure if check_option("cv", cv, STRUCTURES) == "auto" else cv
    elif is_fold_count(cv):
        n_folds = check_integer("cv", cv, least=2)
    elif not is_splits(cv):
        choices = ", ".join(map(repr, STRUCTURES))
        raise ValueError(
            f"cv must be one of {choices}, an int, a splitter or an iterable of (train, test); "
            f"got {show(cv)}"
        )
    if condition_on == "columns":
        structure = {"rows": "columns", "columns": "rows"}.get(structure, structure)
    blocks = []
    if is_splits(cv):
        for split in read_splits(cv, (p, g)[structure == "columns"], X):
            first = (every[0], every[0]) if structure == "columns" else split
            second = (every[1], every[1]) if structure == "rows" else split
            blocks.append(BlockFold((first[0], second[0]), (first[1], second[1])))
        return RelationFolds(structure, tuple(blocks))
    if structure == "edges" and not shortcut:
        fold, k = pair_folds(observations.cells, n_folds, rng, paired=paired)
        return RelationFolds("entries", pairs=fold, n_pair_folds=k)
    if structure == "edges":
        # Separate folds of pairs for each row. They are small: the cost is quadratic in their size.
        k = n_folds or max(2, g // int(np.clip(g // 10, 2, ENTRIES)))
        entries = object_folds(g, k, rng, "columns", least=2)
        return RelationFolds("entries", entries=tuple(entries))
    if structure == "rows" and shortcut and n_folds is None:
        return RelationFolds("rows")
    if paired or (structure == "both" and not two_domains):
        for fold in object_folds(p, n_folds, rng, "objects", least=2):
            stay = np.delete(every[0], fold)
            test = {"rows": (fold, stay), "columns": (stay, fold)}.get(structure, (fold, fold))
            blocks.append(BlockFold((stay, stay), test))
        return RelationFolds(structure, tuple(blocks))
    row_folds, column_folds = [every[0]], [every[1]]
    if structure != "rows":
        column_folds = object_folds(g, n_folds, rng, "columns", least=2)
    if structure != "columns":
        row_folds = object_folds(p, n_folds, rng, "rows", least=1)
    for rows in row_folds:
        for cols in column_folds:
            kept_rows = every[0] if structure == "columns" else np.delete(every[0], rows)
            kept_cols = every[1] if structure == "rows" else np.delete(every[1], cols)
            blocks.append(BlockFold((kept_rows, kept_cols), (rows, cols)))
    return RelationFolds(structure, tuple(blocks))


def object_folds(
    n: int, k: int | None, rng: np.random.RandomState, what: str, *, least: int
) -> list[Array]:
    """Draw random folds of n objects, at least ``least`` in each; by default at most ten folds."""
    if k is None:
        k = min(N_FOLDS, max(2, n // max(5, least)), max(n // least, 2))
    return random_folds(n, k, rng, what=what, least=least)


def pair_folds(
    cells: Cells, k: int | None, rng: np.random.RandomState, *, paired: bool
) -> tuple[Array, int]:
    """Assign observed pairs to folds of two or more of a row (−1: never out); count folds."""
    k = N_FOLDS if k is None else k
    p, g = cells.shape
    fold = np.full(len(cells), -1)
    upper = np.flatnonzero(cells.rows <= cells.cols) if paired else np.arange(len(cells))
    rows = cells.rows[upper]
    order = np.lexsort((rng.random_sample(len(upper)), rows))  # random within a row
    rows = rows[order]
    starts = np.searchsorted(rows, np.arange(p + 1))
    length = np.diff(starts)
    used = np.minimum(k, length // 2)  # number of folds of each row
    place = np.arange(len(rows)) - starts[rows]
    first = rng.randint(k, size=p)
    assigned = (first[rows] + place % np.maximum(used[rows], 1)) % k
    fold[upper[order]] = np.where(used[rows] > 0, assigned, -1)
    if paired:
        table = np.full(p * g, -2)  # no such pair
        table[cells.flat[upper]] = fold[upper]
        mirror = cells.cols * g + cells.rows
        fold = np.where(cells.rows <= cells.cols, fold, table[mirror])
        alone = fold == -2
        fold[alone] = rng.randint(k, size=int(alone.sum()))
    return fold, k


def cross_validate(
    problem: RelationProblem,
    folds: RelationFolds,
    alphas: Array,
    solver: str,
    options: IterationOptions,
    progress: Progress,
) -> tuple[Array, Array, Array, Array]:
    """Predict held-out edges: lists that are ranked together, labels, predictions, refits."""
    Y = problem.labels()
    if not len(folds):
        assert Y is not None
        holdout, lists = CompleteHoldout(problem, Y), np.arange(len(Y))[:, None]
        if folds.entries:
            held, n_refits = holdout.entry_folds(list(folds.entries), alphas)
            fold_of = np.empty(Y.shape[1], dtype=np.int64)
            for number, fold in enumerate(folds.entries):
                fold_of[fold] = number
            lists = lists * len(folds.entries) + fold_of
        else:
            held, n_refits = holdout.rows(alphas)
        lists = np.broadcast_to(lists, Y.shape).ravel()
        return lists, Y.ravel(), held.reshape(len(alphas), -1), n_refits
    closed = solver in ("auto", "closed") and problem.has_closed_form and folds.pairs is None
    if problem.two_step and not (closed and Y is not None):
        raise ValueError(
            "cv='edges' refits models without single pairs here, which pairwise='two-step' needs: "
            "use cv='rows', 'columns' or 'both'"
        )
    parts: list[tuple[Any, Any, Any]] = []
    for number in range(len(folds)):
        if Y is None or not closed:
            train, test = folds.edges(problem.observations, number)
            if not (test.any() and train.any()):
                continue
            rows, cols, y = problem.observations.select(test).lists
            held = problem.predict_without(~train, rows, cols, alphas, solver, options)
        else:
            block, part = folds.blocks[number], problem
            if problem.profiled:  # profiles of the labels that are not held out
                part = problem.select(folds.edges(problem.observations, number)[0])
            rows, cols = (ends.ravel() for ends in np.meshgrid(*block.test, indexing="ij"))
            y, held = Y[rows, cols], CompleteHoldout(part, Y).block(*block, alphas)
        parts.append((rows * len(folds) + number, y, held.reshape(len(alphas), -1)))
        progress.bar(number + 1, len(folds), "folds")
    if not parts:
        raise ValueError("no fold has both edges to learn from and edges to predict")
    lists, y, held = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    return lists, y, held, np.full(len(alphas), 0 if closed and Y is not None else len(parts))
