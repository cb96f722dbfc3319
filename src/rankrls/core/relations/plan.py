"""What a cross-validation of a relation holds out: rows, columns, both, or single pairs.

P5's four settings: pairs of known objects (1), new conditioning objects (2), new objects to rank
(3), both new (4). Rows are the conditioning objects here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.relations.observations import Cells

__all__ = ["BlockFold", "Plan", "make_plan", "object_folds", "pair_folds", "plan_of_splits"]

Array = NDArray[Any]

#: Folds, where nothing else is asked for.
N_FOLDS = 10
#: Pairs of a row that are held out together, where shortcuts take them out of complete rows.
ENTRIES = 8


@dataclass(frozen=True)
class BlockFold:
    """Pairs to learn from and pairs to predict, as products of rows and columns.

    Attributes
    ----------
    train, test : tuple of two int arrays
        Rows and columns.
    """

    train: tuple[Array, Array]
    test: tuple[Array, Array]


@dataclass(frozen=True)
class Plan:
    """Folds of a cross-validation.

    Attributes
    ----------
    kind : {"blocks", "leave-row-out", "entries", "pairs"}
    blocks : tuple of BlockFold
        For "blocks".
    entries : tuple of int arrays
        For "entries": columns that are held out together, of one row at a time.
    """

    kind: str
    blocks: tuple[BlockFold, ...] = ()
    entries: tuple[Array, ...] = ()

    def __str__(self) -> str:
        return f"{len(self.blocks)} folds" if self.blocks else self.kind


def make_plan(
    structure: str,
    shape: tuple[int, int],
    *,
    paired: bool,
    same_objects: bool,
    shortcut: bool,
    n_folds: int | None,
    rng: np.random.RandomState,
) -> Plan:
    """Decide what is held out.

    Parameters
    ----------
    structure : {"rows", "columns", "both", "edges"}
    shape : tuple of int
        (p, g).
    paired : bool
        Whether the relation is symmetric or reciprocal: then objects are held out with all their
        pairs, because a pair's mirror image tells its label.
    same_objects : bool
        Whether rows and columns are the same objects: "both" holds out objects then.
    shortcut : bool
        Whether the relation is complete and not paired: single rows and pairs are cheap then.
    n_folds : int or None
        None: each row by itself where that is cheap, otherwise ten folds, or fewer.
    rng : RandomState
    """
    p, g = shape
    every = np.arange(p), np.arange(g)
    if structure == "edges":
        if not shortcut:
            return Plan("pairs")
        # Each row by itself: folds of its pairs, small because they cost their squared size.
        k = n_folds or max(2, g // int(np.clip(g // 10, 2, ENTRIES)))
        return Plan("entries", entries=tuple(object_folds(g, k, rng, "columns", least=2)))
    if structure == "rows" and shortcut and n_folds is None:
        return Plan("leave-row-out")
    if paired or (structure == "both" and same_objects):
        folds = object_folds(p, n_folds, rng, "objects", least=2)
        return Plan("blocks", tuple(_object_block(p, fold, structure) for fold in folds))
    if structure == "rows":
        row_folds = object_folds(p, n_folds, rng, "rows", least=1)
        column_folds = [every[1]]
    else:
        column_folds = object_folds(g, n_folds, rng, "columns", least=2)
        row_folds = [every[0]]
        if structure == "both":
            row_folds = object_folds(p, n_folds, rng, "rows", least=1)
    return Plan(
        "blocks",
        tuple(
            BlockFold((_rest(p, rows), _rest(g, cols)), (rows, cols))
            for rows in row_folds
            for cols in column_folds
        ),
    )


def plan_of_splits(
    splits: Iterable[tuple[Array, Array]], shape: tuple[int, int], *, side: str
) -> Plan:
    """Given (train, test) objects: of the rows, of the columns, or (``side="both"``) of both."""
    every = np.arange(shape[0]), np.arange(shape[1])
    blocks = []
    for train, test in splits:
        pair = {
            "rows": ((train, every[1]), (test, every[1])),
            "columns": ((every[0], train), (every[0], test)),
            "both": ((train, train), (test, test)),
        }[side]
        blocks.append(BlockFold(*pair))
    return Plan("blocks", tuple(blocks))


def object_folds(
    n: int, k: int | None, rng: np.random.RandomState, what: str, *, least: int
) -> list[Array]:
    """Random folds of n objects with at least ``least`` each; by default ten, or fewer."""
    most = n // least
    if k is None:
        k = min(N_FOLDS, max(2, n // max(5, least)), max(most, 2))
    if not 2 <= k <= most:
        raise ValueError(
            f"{n} {what} cannot be held out in {k} folds of at least {least}: there can be 2 to "
            f"{most} folds" if most >= 2 else f"{n} {what} are too few to hold some of them out"
        )  # fmt: skip
    order = rng.permutation(n)
    return [np.sort(order[start::k]) for start in range(k)]


def pair_folds(
    cells: Cells, k: int | None, rng: np.random.RandomState, *, paired: bool
) -> tuple[Array, int]:
    """Fold of every observed pair, shape (q,), −1 if it is never held out, and how many folds.

    The pairs of a row are dealt to as many folds as have at least two of them each, so that
    held-out pairs of a row can be ranked. If the relation is paired, a pair and its mirror image
    share a fold.
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
    ways = np.minimum(k, length // 2)
    place = np.arange(len(rows)) - starts[rows]
    first = rng.randint(k, size=p)
    dealt = (first[rows] + place % np.maximum(ways[rows], 1)) % k
    fold[upper[order]] = np.where(ways[rows] > 0, dealt, -1)
    if paired:
        table = np.full(p * g, -2)  # no such pair
        table[cells.flat[upper]] = fold[upper]
        mirror = cells.cols * g + cells.rows
        fold = np.where(cells.rows <= cells.cols, fold, table[mirror])
        lonely = fold == -2
        fold[lonely] = rng.randint(k, size=int(lonely.sum()))
    return fold, k


def _object_block(p: int, fold: Array, structure: str) -> BlockFold:
    stay = _rest(p, fold)
    test = {"rows": (fold, stay), "columns": (stay, fold), "both": (fold, fold)}[structure]
    return BlockFold((stay, stay), test)


def _rest(n: int, chosen: Array) -> Array:
    """Those that are not held out; all of them, where a side is not held out at all."""
    return chosen if len(chosen) == n else np.setdiff1d(np.arange(n), chosen)
