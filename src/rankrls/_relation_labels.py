"""Labels of pairs (row object, column object): as users pass them, as edges, and as cells.

Imports nothing of rankrls.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["Cells", "CompleteBlock", "Observations"]

Array = NDArray[Any]


class CompleteBlock(NamedTuple):
    """Labels Y (p', g') of all pairs of some rows and columns, each observed equally often."""

    rows: Array
    cols: Array
    Y: Array
    multiplicity: int


@dataclass(frozen=True)
class Cells:
    """The q distinct observed pairs, sorted by row and column: mean labels and numbers of edges."""

    rows: Array
    cols: Array
    y: Array
    weight: Array
    shape: tuple[int, int]

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, chosen: Array) -> Cells:
        """Select cells by a mask or by ascending indices."""
        return Cells(
            self.rows[chosen], self.cols[chosen], self.y[chosen], self.weight[chosen], self.shape
        )

    @cached_property
    def flat(self) -> Array:
        """Row-major indices into the p × g matrix, shape (q,)."""
        return self.rows * self.shape[1] + self.cols

    def table(self, values: Array) -> sparse.csr_array:
        """Store values of the cells in a sparse matrix of shape (p, g)."""
        pointers = np.searchsorted(self.rows, np.arange(self.shape[0] + 1))
        return sparse.csr_array((values, self.cols, pointers), shape=self.shape)

    def sums(self, values: Array) -> tuple[Array, Array]:
        """Sum values (q,) by row and by column, shapes (p,) and (g,)."""
        p, g = self.shape
        return (
            np.bincount(self.rows, values, minlength=p),
            np.bincount(self.cols, values, minlength=g),
        )


class Observations:
    """Labels of pairs of p row and g column objects: lists of edges, or a matrix without gaps."""

    def __init__(
        self, rows: Any, cols: Any, y: Any, shape: tuple[int, int], matrix: Array | None = None
    ) -> None:
        self._lists = None if matrix is not None else (rows, cols, y)
        self.matrix, self.shape = matrix, shape

    @classmethod
    def complete(cls, Y: Array) -> Observations:
        """Create observations from a matrix that is known to have no gaps."""
        return cls(None, None, None, Y.shape, Y)

    @classmethod
    def read(cls, Y: Any, name: str = "Y") -> Observations:
        """Read labels as users pass them: a matrix with NaN, a data frame, or a sparse matrix.

        Stored entries of a sparse matrix are observed, explicit zeros too; entries of a COO matrix
        at the same place are different edges. A masked array is unobserved where it is masked.
        """
        if Y is None:
            raise ValueError(
                f"ranking requires y to be passed, but the target y is None: give {name}, a matrix "
                "with a label for each pair of a row object and a column object"
            )
        edges = Y.tocoo() if sparse.issparse(Y) else None
        labels = _numbers(Y, name) if edges is None else edges
        if labels.ndim != 2:
            raise ValueError(
                f"{name} must be a matrix: a row for each conditioning object, a column for each "
                f"object to rank, a label (or NaN) for each pair; got shape {labels.shape}. For "
                "one label for each row of X use RankRLS"
            )
        if edges is None:
            with np.errstate(all="ignore"):
                if np.isfinite(labels.sum()):  # one pass; the sum may overflow
                    return cls.complete(labels)
            if np.isinf(labels).any():
                i, j = np.argwhere(np.isinf(labels))[0]
                raise ValueError(
                    f"{name}[{i}, {j}] is infinite: labels are numbers, or NaN if unobserved"
                )
            rows, cols = np.nonzero(~np.isnan(labels))
            return cls(rows, cols, labels[rows, cols], labels.shape).as_matrix()
        if Y.dtype.kind not in "fiub":
            raise ValueError(f"{name} must be a matrix of numbers; got dtype {Y.dtype}")
        y = edges.data.astype(np.float64)
        if not np.isfinite(y).all():
            e = int(np.flatnonzero(~np.isfinite(y))[0])
            raise ValueError(
                f"{name} stores {y[e]} at ({edges.row[e]}, {edges.col[e]}): leave unobserved pairs "
                "out of a sparse matrix"
            )
        return cls(edges.row.astype(np.int64), edges.col.astype(np.int64), y, Y.shape)

    def table(self) -> Array:
        """The mean labels of all pairs, NaN where unobserved, shape (p, g)."""
        if self.matrix is not None:
            return self.matrix
        Y, cells = np.full(self.shape, np.nan), self.cells
        Y[cells.rows, cells.cols] = cells.y
        return Y

    @property
    def n_edges(self) -> int:
        """Number of labels."""
        return len(self._lists[0]) if self._lists is not None else int(np.prod(self.shape))

    @property
    def lists(self) -> tuple[Array, Array, Array]:
        """Rows, columns and labels of all edges, each of shape (n_edges,)."""
        if self._lists is None:
            assert self.matrix is not None
            p, g = self.shape
            rows, cols = np.repeat(np.arange(p), g), np.tile(np.arange(g), p)
            self._lists = (rows, cols, self.matrix.ravel())
        return self._lists

    @property
    def T(self) -> Observations:
        """The transposed relation."""
        if self.matrix is not None:
            return Observations.complete(self.matrix.T)
        rows, cols, y = self.lists
        return Observations(cols, rows, y, self.shape[::-1])

    def stored(self) -> Observations:
        """Return the observations without cached values."""
        if self.matrix is not None:
            return Observations.complete(self.matrix)
        return Observations(*self.lists, self.shape)

    def select(self, chosen: Array) -> Observations:
        """Select edges by a mask or indices; the objects stay the same."""
        rows, cols, y = self.lists
        return Observations(rows[chosen], cols[chosen], y[chosen], self.shape)

    def between(self, rows: Array, cols: Array) -> Observations:
        """Restrict the relation to some objects, given by ascending indices."""
        if self.matrix is not None:
            return Observations.complete(self.matrix[np.ix_(rows, cols)])
        places = []
        for kept, n in zip((rows, cols), self.shape, strict=True):
            place = np.full(n, -1)
            place[kept] = np.arange(len(kept))
            places.append(place)
        ends, others, y = self.lists
        i, j = places[0][ends], places[1][others]
        chosen = (i >= 0) & (j >= 0)
        shape = (len(rows), len(cols))
        return Observations(i[chosen], j[chosen], y[chosen], shape).as_matrix()

    def as_matrix(self) -> Observations:
        """Store the labels as a matrix, if every pair has one label."""
        if self.matrix is not None or self.n_edges != np.prod(self.shape):
            return self
        rows, cols, y = self.lists
        Y = np.full(self.shape, np.nan)
        Y[rows, cols] = y
        return self if np.isnan(Y).any() else Observations.complete(Y)

    @cached_property
    def cells(self) -> Cells:
        """The distinct pairs, with averaged labels."""
        rows, cols, y = self.lists
        g = self.shape[1]
        flat = rows * g + cols
        if len(flat) and not (flat[1:] > flat[:-1]).all():
            order = np.argsort(flat, kind="stable")
            ordered = flat[order]
            first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
            weight = np.diff(np.concatenate([first, [len(flat)]])).astype(np.float64)
            mean = np.add.reduceat(y[order], first) / weight
            flat = ordered[first]
            return Cells(flat // g, flat % g, mean, weight, self.shape)
        return Cells(rows, cols, y, np.ones(len(rows)), self.shape)

    def block(self, *, ranking: bool, square: bool = False) -> CompleteBlock | None:
        """Return the labels as one complete block (``square``: of the same objects), or None."""
        p, g = self.shape
        if self.matrix is not None:
            return CompleteBlock(np.arange(p), np.arange(g), self.matrix, 1)
        cells = self.cells
        if ranking:  # rows with a single pair have nothing to compare
            cells = cells.select(np.bincount(cells.rows, minlength=p)[cells.rows] > 1)
        rows, cols = np.unique(cells.rows), np.unique(cells.cols)
        if (
            len(cells) != len(rows) * len(cols)
            or len(np.unique(cells.weight)) != 1
            or (square and not np.array_equal(rows, cols))
        ):
            return None
        Y = cells.y.reshape(len(rows), len(cols))
        return CompleteBlock(rows, cols, Y, int(cells.weight[0]))


def _numbers(Y: Any, name: str) -> Array:
    """Labels, not sparse, as a float64 array, with NaN where unobserved."""
    frame = hasattr(Y, "pivot_table")  # of pandas
    if isinstance(Y, np.ma.MaskedArray):
        Y = np.ma.filled(Y.astype(np.float64), np.nan)
    try:
        if frame:
            Y = Y.to_numpy(dtype=np.float64, na_value=np.nan)
        labels = np.asarray(Y.to_numpy() if hasattr(Y, "to_numpy") else Y)
        if labels.dtype.kind == "c":
            raise ValueError("Complex data not supported")
        return labels.astype(np.float64, copy=False)
    except (ValueError, TypeError) as error:
        hint = " (from one line for each pair: Y.pivot(index=…, columns=…, values=…))" * frame
        raise ValueError(f"{name} must be a matrix of numbers: {error}{hint}") from error
