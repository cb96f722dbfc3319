"""Labels of pairs (row object, column object): as users pass them, as edges, as cells; offsets.

Imports nothing of rankrls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse.csgraph import connected_components

__all__ = [
    "NO_OFFSETS",
    "Cells",
    "CompleteBlock",
    "FittedOffsets",
    "FreeOffsets",
    "Observations",
    "TableOffsets",
]

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)

#: A table is stored densely if at least one in this many entries has a weight.
DENSE = 20


class CompleteBlock(NamedTuple):
    """Labels Y (p', g') of all pairs of some rows and columns, one for each pair."""

    rows: Array
    cols: Array
    Y: Array


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
        chosen = np.isin(self.lists[0], rows) & np.isin(self.lists[1], cols)
        i, j, y = (part[chosen] for part in self.lists)
        i, j, shape = np.searchsorted(rows, i), np.searchsorted(cols, j), (len(rows), len(cols))
        return Observations(i, j, y, shape).as_matrix()

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
            return CompleteBlock(np.arange(p), np.arange(g), self.matrix)
        cells = self.cells
        if ranking:  # rows with a single pair have nothing to compare
            cells = cells.select(np.bincount(cells.rows, minlength=p)[cells.rows] > 1)
        rows, cols = np.unique(cells.rows), np.unique(cells.cols)
        if (
            not len(cells)
            or len(cells) != len(rows) * len(cols)
            or (cells.weight != 1).any()
            or (square and not np.array_equal(rows, cols))
        ):
            return None
        return CompleteBlock(rows, cols, cells.y.reshape(len(rows), len(cols)))


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


# ---------------------------------------------------------------------- offsets


class FreeOffsets(NamedTuple):
    """The offsets that a model has; those of rows or columns include the constant."""

    rows: bool = False
    columns: bool = False
    constant: bool = False

    @property
    def T(self) -> FreeOffsets:
        """The offsets of the transposed relation."""
        return FreeOffsets(self.columns, self.rows, self.constant)


NO_OFFSETS = FreeOffsets()


class TableOffsets:
    """Least-squares offsets a of the rows and b of the columns of weighted cells (p, g).

    With weights W and their sums Ω of rows and Ψ of columns, the offsets of residuals E solve
    Ω a + W b = (W∘E) 1 and Wᵀ a + Ψ b = (W∘E)ᵀ 1. The larger side is eliminated.
    """

    def __init__(self, cells: Cells, free: FreeOffsets) -> None:
        self.cells, self.free, self.shape = cells, free, cells.shape
        self.totals = cells.sums(cells.weight)
        self.shares = tuple(
            np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
            for total in self.totals
        )

    @cached_property
    def _eliminated(self) -> tuple[Any, Callable[[Array], Array]]:
        """The weights with the larger side as rows, and the solution for the smaller side."""
        W = self.cells.table(self.cells.weight)
        first, second = self._sides
        W = W if first == 0 else W.T.tocsr()
        # The null space has the constants on each connected component of the observed pairs.
        # Projections on these make the system positive definite.
        both = sparse.block_array([[None, W], [W.T, None]])
        part = connected_components(both, directed=False)[1][W.shape[0] :]
        part = np.unique(part, return_inverse=True)[1]
        counts = np.bincount(part)
        dense = DENSE * W.nnz > W.shape[0] * W.shape[1]
        root = (W.toarray() if dense else W) * np.sqrt(self.shares[first])[:, None]
        S = root.T @ root
        S = -(S if dense else S.toarray())
        np.einsum("ii->i", S)[:] += self.totals[second]
        size = float(np.trace(S)) / len(S) or 1.0
        for members in np.split(np.argsort(part, kind="stable"), np.cumsum(counts)[:-1]):
            S[np.ix_(members, members)] += size / len(members)
        try:
            factor = cho_factor(S, lower=True, check_finite=False)
        except LinAlgError:  # weights differ so much that components are hardly connected
            inverse = np.linalg.pinv(S, rcond=16 * len(S) * EPS, hermitian=True)
            return W, lambda right: inverse @ right

        def solve(right: Array) -> Array:
            right = right - (np.bincount(part, right) / counts)[part]
            return cho_solve(factor, right, check_finite=False)

        return W, solve

    @property
    def _sides(self) -> tuple[int, int]:
        """The larger and the smaller side: 0 for rows, 1 for columns."""
        return (0, 1) if self.shape[0] > self.shape[1] else (1, 0)

    def solve(self, row_sums: Array, column_sums: Array) -> tuple[Array, Array]:
        """Compute offsets (p,) and (g,) from sums of weighted residuals by row and column."""
        if self.free.rows and self.free.columns:
            first, second = self._sides
            sums, (W, solve) = (row_sums, column_sums), self._eliminated
            b = solve(sums[second] - W.T @ (self.shares[first] * sums[first]))
            a = self.shares[first] * (sums[first] - W @ b)
            return (a, b) if first == 0 else (b, a)
        rows, columns = (np.zeros(n) for n in self.shape)
        if self.free.constant:
            total = self.totals[0].sum()
            rows += row_sums.sum() / total if total else 0.0
        elif self.free.rows:
            rows = row_sums * self.shares[0]
        elif self.free.columns:
            columns = column_sums * self.shares[1]
        return rows, columns

    def fit(self, cells: Cells, residual: Array) -> FittedOffsets:
        """Fit offsets to residuals (q,) of cells, as a constant and deviations from it."""
        return self.split(*self.solve(*cells.sums(cells.weight * residual)))

    def split(self, rows: Array, columns: Array) -> FittedOffsets:
        """Split offsets into a constant and deviations, which are 0 on a side without offsets."""
        constant, parts = 0.0, []
        for values, total, fitted in zip((rows, columns), self.totals, self.free[:2], strict=True):
            seen = total > 0
            mean = float((values[seen] if fitted else values[:1]).mean()) if seen.any() else 0.0
            parts.append(np.where(seen & fitted, values - mean, 0.0))
            constant += mean
        return FittedOffsets(constant, *parts)


@dataclass(frozen=True)
class FittedOffsets:
    """Offsets constant + rows_i + columns_j; those of objects without labels are zero."""

    constant: float
    rows: Array
    columns: Array

    @property
    def T(self) -> FittedOffsets:
        """The offsets of the transposed relation."""
        return FittedOffsets(self.constant, self.columns, self.rows)

    def at(self, rows: Array, cols: Array) -> Array:
        """Return the offsets of pairs, shape (n,)."""
        return self.constant + self.rows[rows] + self.columns[cols]
