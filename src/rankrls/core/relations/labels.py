"""Labels of pairs (row object, column object), and unpenalised offsets of these labels.

A relation is a p × g matrix of labels. Any part of it may be observed, and a pair may be observed
several times (edges of a multigraph). Edges are stored as lists, a complete matrix as a matrix.

Offsets of all pairs, of each row or of each column are not regularised. The loss over the observed
pairs is the loss of residuals minus their best offsets, which is a projection. The ranking loss has
an offset for each row, which does not affect rankings.
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

from rankrls._relation_labels import EdgeList, read_labels, read_matrix

__all__ = [
    "NO_OFFSETS",
    "Cells",
    "CompleteBlock",
    "FittedOffsets",
    "FreeOffsets",
    "Observations",
    "TableOffsets",
    "free_offsets",
]

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class CompleteBlock:
    """A completely observed part of the relation, with all pairs observed equally often.

    Attributes
    ----------
    rows : ndarray of shape (p',), int
    cols : ndarray of shape (g',), int
    Y : ndarray of shape (p', g')
        Labels, averaged if there are several for each pair.
    multiplicity : int
        Number of edges for each pair.
    """

    rows: Array
    cols: Array
    Y: Array
    multiplicity: int


@dataclass(frozen=True)
class Cells:
    """The distinct observed pairs, sorted by row and column, with averaged labels.

    Σ_e (y_e − c − f)² over the n edges of a pair is n (ȳ − c − f)² plus a constant. Pairs with
    weights n are therefore sufficient for a least-squares loss.

    Attributes
    ----------
    rows, cols : ndarray of shape (q,), int
    y : ndarray of shape (q,)
        Mean labels.
    weight : ndarray of shape (q,)
        Numbers of edges.
    shape : tuple of int
        (p, g).
    """

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
    """Labels of some of the pairs of p row objects and g column objects.

    Parameters
    ----------
    rows, cols : ndarray of shape (n_edges,), int
        Row and column of every edge. Pairs may be repeated.
    y : ndarray of shape (n_edges,)
        Labels.
    shape : tuple of int
        (p, g).
    """

    def __init__(
        self, rows: Any, cols: Any, y: Any, shape: tuple[int, int], matrix: Array | None = None
    ) -> None:
        self._lists = None if matrix is not None else (rows, cols, y)
        #: The labels as a matrix of shape (p, g), if they were given as one without gaps.
        self.matrix, self.shape = matrix, shape

    @classmethod
    def from_matrix(cls, Y: Array, *, whole: bool = False) -> Observations:
        """Create observations from labels of shape (p, g), with NaN for unobserved pairs.

        ``whole``: it is known that no label is missing.
        """
        missing = None if whole else np.isnan(Y)
        if missing is not None and missing.any():
            rows, cols = np.nonzero(~missing)
            return cls(rows, cols, Y[rows, cols], Y.shape)
        return cls(None, None, None, Y.shape, Y)

    @classmethod
    def read(cls, Y: Any, name: str = "Y") -> Observations:
        """Read labels from a matrix with NaN, a data frame, or a sparse matrix."""
        if Y is None or sparse.issparse(Y):
            labels = read_labels(Y, name)
            assert isinstance(labels, EdgeList)
            return cls(*labels)
        matrix, whole = read_matrix(Y, name)
        return cls.from_matrix(matrix, whole=whole)

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
            return Observations.from_matrix(self.matrix.T, whole=True)
        rows, cols, y = self.lists
        return Observations(cols, rows, y, self.shape[::-1])

    def stored(self) -> Observations:
        """Return the observations without cached values."""
        if self.matrix is not None:
            return Observations.from_matrix(self.matrix, whole=True)
        return Observations(*self.lists, self.shape)

    def select(self, chosen: Array) -> Observations:
        """Select edges by a mask or indices; the objects stay the same."""
        rows, cols, y = self.lists
        return Observations(rows[chosen], cols[chosen], y[chosen], self.shape)

    def between(self, rows: Array, cols: Array) -> Observations:
        """Restrict the relation to some objects, given by ascending indices."""
        if self.matrix is not None:
            return Observations.from_matrix(self.matrix[np.ix_(rows, cols)], whole=True)
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
        p, g = self.shape
        if self.matrix is not None or self.n_edges != p * g:
            return self
        rows, cols, y = self.lists
        Y = np.full(self.shape, np.nan)
        Y[rows, cols] = y
        return self if np.isnan(Y).any() else Observations.from_matrix(Y, whole=True)

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
        """Return the observations as one complete block, or None if they are incomplete.

        Rows and columns without an edge are ignored. For ``ranking``, rows with a single pair are
        ignored too, because there is nothing to compare. With ``square``, the block must have the
        same objects on both sides.
        """
        p, g = self.shape
        if self.matrix is not None:
            return CompleteBlock(np.arange(p), np.arange(g), self.matrix, 1)
        cells = self.cells
        if ranking:
            cells = cells.select(np.bincount(cells.rows, minlength=p)[cells.rows] > 1)
        rows, cols = np.unique(cells.rows), np.unique(cells.cols)
        if not len(cells) or len(cells) != len(rows) * len(cols):
            return None
        if (cells.weight != cells.weight[0]).any():
            return None
        if square and not np.array_equal(rows, cols):
            return None
        return CompleteBlock(
            rows, cols, cells.y.reshape(len(rows), len(cols)), int(cells.weight[0])
        )


#: A table is stored densely if at least one in this many entries has a weight.
DENSE = 20


class FreeOffsets(NamedTuple):
    """Flags of the offsets in a model. Offsets of rows or columns include the constant.

    Attributes
    ----------
    rows, columns, constant : bool
    """

    rows: bool = False
    columns: bool = False
    constant: bool = False

    @property
    def T(self) -> FreeOffsets:
        """The offsets of the transposed relation."""
        return FreeOffsets(self.columns, self.rows, self.constant)


NO_OFFSETS = FreeOffsets()


def free_offsets(offsets: FreeOffsets, *, ranking: bool) -> FreeOffsets:
    """Return all offsets of a loss. The ranking loss adds offsets of rows."""
    rows = offsets.rows or ranking
    return FreeOffsets(rows, offsets.columns, offsets.constant and not (rows or offsets.columns))


class TableOffsets:
    """Least-squares offsets of weighted cells of a table of shape (p, g).

    Parameters
    ----------
    cells : Cells
    free : FreeOffsets

    Notes
    -----
    With weights W, total weights Ω of rows and total weights Ψ of columns, the offsets a and b of
    residuals E solve

        Ω a + W b = (W∘E) 1,     Wᵀ a + Ψ b = (W∘E)ᵀ 1.

    The larger side is eliminated. The system of the smaller side is singular, because a constant
    can be moved from a to b. Its solution of minimal norm is used.
    """

    def __init__(self, cells: Cells, free: FreeOffsets) -> None:
        self.cells, self.free, self.shape = cells, free, cells.shape
        self.totals = cells.sums(cells.weight)
        self.shares = tuple(
            np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
            for total in self.totals
        )
        self.by_rows = self.shape[0] > self.shape[1]  # which side is eliminated

    @cached_property
    def _table(self) -> Any:
        """The weights with the eliminated side as rows, as a sparse matrix."""
        table = self.cells.table(self.cells.weight)
        return table if self.by_rows else table.T.tocsr()

    @cached_property
    def _even(self) -> float:
        """The common weight of all pairs, or 0 if weights differ."""
        weight = self.cells.weight
        full = len(weight) == self.shape[0] * self.shape[1] > 0
        return float(weight[0]) if full and bool((weight == weight[0]).all()) else 0.0

    @cached_property
    def _solve_smaller(self) -> Callable[[Array], Array]:
        """Function from right-hand sides (n,) to minimal-norm solutions for the smaller side.

        The null space consists of the constants on each connected component of the graph of
        observed pairs. Adding the projections on them makes the system positive definite, and does
        not change the solution for right-hand sides orthogonal to these constants.
        """
        W, (first, second) = self._table, (0, 1) if self.by_rows else (1, 0)
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
            return lambda right: inverse @ right

        def solve(right: Array) -> Array:
            right = right - (np.bincount(part, right) / counts)[part]
            return cho_solve(factor, right, check_finite=False)

        return solve

    def solve(self, row_sums: Array, column_sums: Array) -> tuple[Array, Array]:
        """Compute offsets (p,) and (g,) from sums of weighted residuals by row and column."""
        p, g = self.shape
        if self.free.constant:
            total = self.totals[0].sum()
            return np.full(p, row_sums.sum() / total if total else 0.0), np.zeros(g)
        if not self.free.columns:
            a = row_sums * self.shares[0] if self.free.rows else np.zeros(p)
            return a, np.zeros(g)
        if not self.free.rows:
            return np.zeros(p), column_sums * self.shares[1]
        first, second = (0, 1) if self.by_rows else (1, 0)
        sums = row_sums, column_sums
        if self._even:  # the offsets are means
            b = sums[second] / (self._even * self.shape[first])
            b -= b.mean()
            a = sums[first] / (self._even * self.shape[second])
            return (a, b) if self.by_rows else (b, a)
        W = self._table
        b = self._solve_smaller(sums[second] - W.T @ (self.shares[first] * sums[first]))
        a = self.shares[first] * (sums[first] - W @ b)
        return (a, b) if self.by_rows else (b, a)

    def fit(self, cells: Cells, residual: Array) -> FittedOffsets:
        """Fit offsets to residuals (q,) of cells, as a constant and deviations from it."""
        return self.split(*self.solve(*cells.sums(cells.weight * residual)))

    def split(self, rows: Array, columns: Array) -> FittedOffsets:
        """Split offsets (p,) and (g,) into a constant and deviations from it.

        The deviations of a side without offsets are exactly zero.
        """
        constant, parts = 0.0, []
        for values, total, fitted in zip((rows, columns), self.totals, self.free[:2], strict=True):
            seen = total > 0
            mean = float((values[seen] if fitted else values[:1]).mean()) if seen.any() else 0.0
            parts.append(np.where(seen & fitted, values - mean, 0.0))
            constant += mean
        return FittedOffsets(constant, *parts)


@dataclass(frozen=True)
class FittedOffsets:
    """Offsets of the pairs of p × g objects: constant + rows_i + columns_j.

    Attributes
    ----------
    constant : float
    rows : ndarray of shape (p,)
    columns : ndarray of shape (g,)
        Both have mean zero over the objects with labels, and are zero for the others. New objects
        also have the offset zero.
    """

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

    def without_rows(self) -> FittedOffsets:
        """Return the offsets that affect rankings of the columns."""
        return FittedOffsets(0.0, np.zeros_like(self.rows), self.columns)
