"""Folds for cross-validation of a relation: rows, columns, both, or single pairs (P5).

In this module, rows are the conditioning objects.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import check_integer, check_option, show
from rankrls.core.relations.folds import BlockFold, RelationFolds
from rankrls.core.relations.labels import Cells, Observations
from rankrls.estimators.choosing import is_fold_count, is_splits, random_folds, read_splits

__all__ = ["folds_of", "object_folds", "pair_folds"]

Array = NDArray[Any]

STRUCTURES = ("auto", "rows", "columns", "both", "edges")

#: Default number of folds.
N_FOLDS = 10
#: Number of pairs of a row that are held out together by shortcuts for complete relations.
ENTRIES = 8


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
    """Build the folds for ``cv`` of an estimator.

    ``paired``: objects are held out with all their pairs, as the mirror image of a pair reveals its
    label. ``shortcut``: single rows and pairs of a complete relation can be held out cheaply.
    """
    p, g = observations.shape
    structure = cv if isinstance(cv, str) else "auto"
    if isinstance(cv, str):
        check_option("cv", cv, STRUCTURES)
    elif is_fold_count(cv):
        n_folds = check_integer("cv", cv, least=2)
    elif is_splits(cv):
        side = condition_on if two_domains else "both"
        blocks = []
        for split in read_splits(cv, (p, g)[side == "columns"], X):
            train, test = (
                {"rows": (part, np.arange(g)), "columns": (np.arange(p), part)}.get(
                    side, (part, part)
                )
                for part in split
            )
            blocks.append(BlockFold(train, test))
        return RelationFolds("blocks", tuple(blocks))
    else:
        choices = ", ".join(map(repr, STRUCTURES))
        raise ValueError(
            f"cv must be one of {choices}, an int, a splitter or an iterable of (train, test); "
            f"got {show(cv)}"
        )
    if structure == "auto":
        structure = "rows" if two_domains else "both"
    if condition_on == "columns":
        structure = {"rows": "columns", "columns": "rows"}.get(structure, structure)
    if structure == "edges" and not shortcut:
        fold, k = pair_folds(observations.cells, n_folds, rng, paired=paired)
        return RelationFolds("pairs", pairs=fold, n_pair_folds=k)
    if structure == "edges":
        # Separate folds of pairs for each row. They are small: the cost is quadratic in their size.
        k = n_folds or max(2, g // int(np.clip(g // 10, 2, ENTRIES)))
        return RelationFolds("entries", entries=tuple(object_folds(g, k, rng, "columns", least=2)))
    if structure == "rows" and shortcut and n_folds is None:
        return RelationFolds("leave-row-out")
    blocks = []
    if paired or (structure == "both" and not two_domains):
        for fold in object_folds(p, n_folds, rng, "objects", least=2):
            stay = np.delete(np.arange(p), fold)
            test = {"rows": (fold, stay), "columns": (stay, fold)}.get(structure, (fold, fold))
            blocks.append(BlockFold((stay, stay), test))
        return RelationFolds("blocks", tuple(blocks))
    every = np.arange(p), np.arange(g)
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
    return RelationFolds("blocks", tuple(blocks))


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
    """Assign observed pairs to folds, shape (q,), −1 if never held out; count the folds.

    A fold has two pairs of a row, or none, so that they can be ranked; mirror images go together.
    """
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
