"""Kernel and loss of RankRLS over the observed pairs of objects.

An incomplete relation is RankRLS over its observed pairs (cells). Each cell is a data row with a
pairwise kernel such as K ⊗ G. Its row object is the query, and queries are weighted by their size.
The Kronecker product is never formed. A vector over all pairs is a p × g matrix M in row-major
order, and

    (K ⊗ G) vec(M) = vec(K M G)

takes two matrix products. For a sparse graph of q edges it is cheaper to multiply edge by edge.
Other pairwise kernels are sums of such products (`core.relations.pairwise`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from rankrls.core.relations.labels import NO_OFFSETS, Cells, FreeOffsets, TableOffsets, free_offsets
from rankrls.core.relations.pairwise import KRONECKER, PairwiseKernel, SideValues

__all__ = ["SAMPLED_COST", "EdgeFactor", "EdgeKernel", "choose_form"]

Array = NDArray[Any]

#: Cost of an edge in the sampled form relative to a pair in the dense form (measured: 25 to 40).
SAMPLED_COST = 30


def choose_form(n_edges: int, p: int, g: int) -> str:
    """Choose the faster form: "dense", O(pg(p + g)), or "sampled", O(n_edges (p + g))."""
    return "sampled" if SAMPLED_COST * n_edges < p * g else "dense"


class EdgeKernel(LinearOperator):
    """Kernel matrix between edges, shape (q', q), a submatrix of K ⊗ G.

    Parameters
    ----------
    K : ndarray of shape (p, p), or SideValues
        Symmetric kernel of the row objects.
    G : ndarray of shape (g, g), or SideValues
        Symmetric kernel of the column objects.
    ends : tuple of two ndarray of shape (q,)
        Rows and columns of the input edges.
    to : tuple of two ndarray of shape (q',), optional
        Rows and columns of the output edges. By default these are the input edges.
    sign : {0, 1, −1}
        1 (−1): Γ plus (minus) Γ with swapped columns, times ½. This is the symmetric (reciprocal)
        kernel of P5, (8) and (9). K and G are then the same object.
    form : {"auto", "dense", "sampled"}
    pairwise : PairwiseKernel
        The kernel Γ, if it is not K ⊗ G.

    Notes
    -----
    Dense form: values of the input edges are added into a p × g matrix M, K M G is computed, and
    the output edges are entries of it. Sampled form: M is sparse, T = M G costs q g operations, and
    the output at edge (i, j) is the inner product of row i of K with column j of T. With a sign, M
    is replaced by ½(M ± Mᵀ), and K M K has the same symmetry. Other pairwise kernels are sums of
    several such products.
    """

    def __init__(
        self,
        K: Array | SideValues,
        G: Array | SideValues,
        ends: tuple[Array, Array],
        to: tuple[Array, Array] | None = None,
        *,
        sign: int = 0,
        form: str = "auto",
        pairwise: PairwiseKernel = KRONECKER,
    ) -> None:
        rows, cols = ends
        self.sign, self.pairwise = sign, pairwise
        left = K if isinstance(K, SideValues) else SideValues(K)
        right = left if G is K else G if isinstance(G, SideValues) else SideValues(G)
        self.sides, self.K, self.G = (left, right), left.K, right.K
        self.ends = ends
        self.to = ends if to is None else to
        p, g = len(left), len(right)
        most = max(len(rows) * (2 if sign or pairwise.one_domain else 1), len(self.to[0]))
        self.form = choose_form(most, p, g) if form == "auto" else form
        self.flat = rows * g + cols
        self._flat_out = self.flat if to is None else self.to[0] * g + self.to[1]
        self._distinct = len(rows) == 0 or bool((self.flat[1:] > self.flat[:-1]).all())
        self._pointers = np.searchsorted(rows, np.arange(p + 1)) if self._distinct else None
        self._full_in = self._distinct and len(rows) == p * g
        self._full_out = len(self._flat_out) == p * g and np.array_equal(
            self._flat_out, np.arange(p * g)
        )
        super().__init__(np.dtype(np.float64), (len(self._flat_out), len(rows)))

    def scatter(self, v: Array) -> Array:
        """Build M of shape (p, g) from v (n_edges,), with the symmetry of the kernel."""
        p, g = len(self.K), len(self.G)
        if self._full_in:
            M = v.reshape(p, g)
        elif self._distinct:
            M = np.zeros((p, g))
            M.ravel()[self.flat] = v
        else:
            M = np.bincount(self.flat, weights=v, minlength=p * g).reshape(p, g)
        return self.pairwise.symmetrised(M, self.sign)

    def _matvec(self, v: Array) -> Array:
        v = np.ravel(v)
        return self._sampled(v) if self.form == "sampled" else self._dense(v)

    def _matmat(self, V: Array) -> Array:
        return np.stack([self._matvec(v) for v in V.T], axis=1)

    def _dense(self, v: Array) -> Array:
        F = self.pairwise.table(*self.sides, self.scatter(v)).ravel()
        return F if self._full_out else F[self._flat_out]

    def _sampled(self, v: Array) -> Array:
        rows, cols = self.ends
        shape = (len(self.K), len(self.G))
        if self._distinct:
            M = sparse.csr_array((v, cols, self._pointers), shape=shape)
        else:
            M = sparse.coo_array((v, (rows, cols)), shape=shape).tocsr()
        M = self.pairwise.symmetrised(M, self.sign)
        return self.pairwise.at(*self.sides, M, *self.to)

    def _adjoint(self) -> EdgeKernel:
        return EdgeKernel(
            *self.sides,
            self.to,
            self.ends,
            sign=self.sign,
            form=self.form,
            pairwise=self.pairwise,
        )

    def row_sizes(self) -> Array:
        """Approximate the norms of the rows, shape (q',)."""
        return self.pairwise.row_sizes(*self.sides, *self.to)

    def dense(self) -> Array:
        """Form the matrix of shape (q', q), for small graphs."""
        return self.pairwise.between(self.sides, self.to, self.ends, self.sign)


class EdgeFactor(LinearOperator):
    """Factor F of shape (q, q) of the loss (y − f)ᵀ F Fᵀ (y − f) over q cells.

    Parameters
    ----------
    cells : Cells
        Sorted by row.
    centred : bool
        Whether every row has a free offset (ranking) or not (regression).
    offsets : FreeOffsets
        Further free offsets.

    Notes
    -----
    With weights ω and the unit vectors u_r = √(ω/Ω_r) over the cells of row r,

        F = D_ω^{1/2} (I − Σ_r u_r u_rᵀ),

    because min_c Σ_e ω_e (y_e − c − f_e)² is the squared length of (I − u uᵀ) D_ω^{1/2} (y − f).
    For regression F = D_ω^{1/2}. For ranking, F is zero on a row with a single cell, because there
    is nothing to compare. Other offsets are projected out in the same way.
    """

    def __init__(self, cells: Cells, *, centred: bool, offsets: FreeOffsets = NO_OFFSETS) -> None:
        q = len(cells)
        super().__init__(np.dtype(np.float64), (q, q))
        self.cells = cells
        self.free = free_offsets(offsets, ranking=centred)
        self.centred = self.free.rows
        self._others = None
        if self.free.columns or self.free.constant:
            self._others = TableOffsets(cells, self.free)
        self.root = np.sqrt(cells.weight)
        rows = cells.rows
        self.starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]])[:q])
        self.lengths = np.diff(np.concatenate([self.starts, [q]]))
        # If all rows have the same length, row means are means over an axis.
        self.even = len(self.lengths) > 0 and bool((self.lengths == self.lengths[0]).all())
        total = np.add.reduceat(cells.weight, self.starts) if q else np.empty(0)
        self.unit = self.root / np.repeat(np.sqrt(total), self.lengths)
        self.plain = bool((cells.weight == 1.0).all())

    def project(self, V: Array) -> Array:
        """Compute (I − Σ u uᵀ) V, shape (q,) or (q, k). For regression, return V itself."""
        if self._others is not None:
            return self._without_offsets(V, self._others)
        if not self.centred or not len(V):
            return V
        if self.plain and self.even:
            table = V.reshape(len(self.lengths), -1, *V.shape[1:])
            return (table - table.mean(axis=1, keepdims=True)).reshape(V.shape)
        unit = self.unit if V.ndim == 1 else self.unit[:, None]
        means = np.add.reduceat(unit * V, self.starts)
        return V - unit * np.repeat(means, self.lengths, axis=0)

    def _without_offsets(self, V: Array, offsets: TableOffsets) -> Array:
        """Compute V − D_ω^{1/2} (a_i + b_j) with the best offsets a, b of D_ω^{-1/2} V."""
        if V.ndim == 2:
            out = [self._without_offsets(v, offsets) for v in V.T]
            return np.stack(out, axis=1) if out else V
        rows, cols = self.cells.rows, self.cells.cols
        p, g = self.cells.shape
        weighted = self.root * V
        sums = (
            np.bincount(rows, weighted, minlength=p),
            np.bincount(cols, weighted, minlength=g),
        )
        a, b = offsets.solve(*sums)
        return V - self.root * (a[rows] + b[cols])

    def _weighted(self, V: Array) -> Array:
        if self.plain:
            return V
        return self.root * V if V.ndim == 1 else self.root[:, None] * V

    def _matvec(self, v: Array) -> Array:
        return self._weighted(self.project(np.ravel(v)))

    def _rmatvec(self, v: Array) -> Array:
        return self.project(self._weighted(np.ravel(v)))

    def _matmat(self, V: Array) -> Array:
        return self._weighted(self.project(V))

    def _rmatmat(self, V: Array) -> Array:
        return self.project(self._weighted(V))

    @property
    def target(self) -> Array:
        """The right-hand side Fᵀ y, shape (q,)."""
        y = self.cells.y
        if self._others is not None and len(y):
            y = y - y.mean()
        if self.centred and len(y):
            # Subtract an offset of each row first, so that large offsets cost no digits.
            y = y - np.repeat(y[self.starts], self.lengths)
        return self.rmatvec(y)
