"""Products with K ⊗ G that never form it: complete, or between the edges of a graph.

A vector over all pairs is a p × g matrix read row by row, so that

    (K ⊗ G) vec(M) = vec(K M Gᵀ)          K (p' × p), M (p × g), G (g' × g):

two matrix products. Over q edges of a sparse graph it is cheaper to multiply edge by edge.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

__all__ = ["SAMPLED_COST", "EdgeKernel", "KroneckerOperator", "choose_form"]

Array = NDArray[Any]

#: What an edge costs in the sampled form, in pairs of the dense form (measured: 25 to 40).
SAMPLED_COST = 30

#: Edges that are multiplied at a time: two blocks of so many rows stay in cache.
CHUNK = 256


class KroneckerOperator(LinearOperator):
    """K ⊗ G as a linear operator of shape (p'g', pg).

    Parameters
    ----------
    K : ndarray of shape (p', p)
    G : ndarray of shape (g', g)
    sign : {0, 1, −1}
        1 (−1): ½(K ⊗ K + (−) its columns swapped), the symmetric (reciprocal) kernel of P5
        (8) and (9); K and G are then the same objects.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls.kronecker import KroneckerOperator
    >>> K, G = np.array([[2.0, 1.0], [1.0, 3.0]]), np.eye(2)
    >>> KroneckerOperator(K, G) @ np.array([1.0, 0.0, 0.0, 1.0])
    array([2., 1., 1., 3.])
    """

    def __init__(self, K: Array, G: Array, sign: int = 0) -> None:
        self.K, self.G, self.sign = K, G, sign
        shape = (K.shape[0] * G.shape[0], K.shape[1] * G.shape[1])
        super().__init__(np.result_type(K, G), shape)

    def _matvec(self, v: Array) -> Array:
        M = np.reshape(v, (self.K.shape[1], self.G.shape[1]))
        if self.sign:
            M = 0.5 * (M + self.sign * M.T)
        return (self.K @ M @ self.G.T).ravel()

    def _adjoint(self) -> KroneckerOperator:
        return KroneckerOperator(self.K.T, self.G.T, self.sign)


def choose_form(n_edges: int, p: int, g: int) -> str:
    """Which form multiplies faster: "dense", O(pg(p + g)), or "sampled", O(n_edges (p + g))."""
    return "sampled" if SAMPLED_COST * n_edges < p * g else "dense"


class EdgeKernel(LinearOperator):
    """Kernel values between edges, shape (q', q): rows and columns of K ⊗ G for some pairs.

    Parameters
    ----------
    K : ndarray of shape (p, p)
        Symmetric kernel of the row objects.
    G : ndarray of shape (g, g)
        Symmetric kernel of the column objects.
    ends : tuple of two ndarray of shape (q,)
        Rows and columns of the edges that are multiplied.
    to : tuple of two ndarray of shape (q',), optional
        Those of the edges in the result; the same by default.
    sign : {0, 1, −1}
        As for `KroneckerOperator`.
    form : {"auto", "dense", "sampled"}

    Notes
    -----
    Dense: the edges are put into a p × g matrix M (several at one place are added), K M G is
    formed, and the edges of the result are read from it. Sampled: M stays sparse, T = M G costs
    q g, and an edge (i, j) of the result is the inner product of row i of K with column j of T.
    With a sign, M is replaced by ½(M ± Mᵀ); then K M K has the same symmetry.
    """

    def __init__(
        self,
        K: Array,
        G: Array,
        ends: tuple[Array, Array],
        to: tuple[Array, Array] | None = None,
        *,
        sign: int = 0,
        form: str = "auto",
    ) -> None:
        rows, cols = ends
        self.K, self.G, self.sign = K, G, sign
        self.ends = ends
        self.to = ends if to is None else to
        p, g = len(K), len(G)
        most = max(len(rows) * (2 if sign else 1), len(self.to[0]))
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
        """The matrix M of shape (p, g) that holds v (n_edges,), symmetrised if there is a sign."""
        p, g = len(self.K), len(self.G)
        if self._full_in:
            M = v.reshape(p, g)
        elif self._distinct:
            M = np.zeros((p, g))
            M.ravel()[self.flat] = v
        else:
            M = np.bincount(self.flat, weights=v, minlength=p * g).reshape(p, g)
        return 0.5 * (M + self.sign * M.T) if self.sign else M

    def _matvec(self, v: Array) -> Array:
        v = np.ravel(v)
        return self._sampled(v) if self.form == "sampled" else self._dense(v)

    def _dense(self, v: Array) -> Array:
        F = (self.K @ self.scatter(v) @ self.G).ravel()
        return F if self._full_out else F[self._flat_out]

    def _sampled(self, v: Array) -> Array:
        rows, cols = self.ends
        shape = (len(self.K), len(self.G))
        if self._distinct:
            M = sparse.csr_array((v, cols, self._pointers), shape=shape)
        else:
            M = sparse.coo_array((v, (rows, cols)), shape=shape).tocsr()
        if self.sign:
            M = (0.5 * (M + self.sign * M.T)).tocsr()
        T = np.ascontiguousarray((M @ self.G).T)  # (g, p): row j is column j of M G
        rows, cols = self.to
        out = np.empty(len(rows))
        for start in range(0, len(rows), CHUNK):
            part = slice(start, start + CHUNK)
            np.vecdot(self.K[rows[part]], T[cols[part]], out=out[part])
        return out

    def _adjoint(self) -> EdgeKernel:
        return EdgeKernel(self.K, self.G, self.to, self.ends, sign=self.sign, form=self.form)

    def dense(self) -> Array:
        """The matrix of shape (q', q), for small graphs."""
        (i, j), (k, m) = self.to, self.ends
        out = self.K[np.ix_(i, k)] * self.G[np.ix_(j, m)]
        if self.sign:
            out += self.sign * (self.K[np.ix_(i, m)] * self.G[np.ix_(j, k)])
            out *= 0.5
        return out
