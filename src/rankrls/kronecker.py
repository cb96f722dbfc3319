"""Products with some rows and columns of a Kronecker product, which is never formed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from rankrls._validation import check_finite_array, check_option, check_rows, show
from rankrls.core.relations.incomplete import SAMPLED_COST
from rankrls.core.relations.pairwise_kernels import sampled_products

__all__ = ["KroneckerOperator"]

Array = NDArray[Any]


class KroneckerOperator(LinearOperator):
    """Some rows and columns of K ⊗ G as a linear operator (the sampled vec trick).

    Entry (e, f) is K[i_e, k_f] G[j_e, m_f], with the pairs (i, j) of ``to`` and (k, m) of
    ``ends``: the kernel matrix of observed pairs, or predictions of new ones.

    Parameters
    ----------
    K : array-like of shape (a, b)
    G : array-like of shape (c, d)
    ends : tuple of two array-like of shape (q,), int, optional
        Input pairs (k, m): columns of K and of G. None: all b d pairs in row-major order.
    to : tuple of two array-like of shape (q',), int, optional
        Output pairs (i, j): rows of K and of G. None: all a c pairs.
    form : {"auto", "dense", "sampled"}, default="auto"
        "dense" forms K M Gᵀ with the matrix M of all pairs (b, d), at about a b d + a c d
        operations. "sampled" computes the output pairs one by one from sparse products, at the
        smaller of q c + q' b and q a + q' d.

    Attributes
    ----------
    shape : tuple of int
        (q', q).
    form : str
        "dense" or "sampled".

    See Also
    --------
    rankrls.ConditionalRankRLS : Learns with such kernel matrices.

    References
    ----------
    Airola, Pahikkala, *Fast Kronecker product kernel methods via generalized vec trick*, IEEE
    Transactions on Neural Networks and Learning Systems 29 (2018).

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls.kronecker import KroneckerOperator
    >>> K, G = np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[3.0, 1.0], [1.0, 3.0]])
    >>> observed = [0, 0, 1], [0, 1, 1]                          # rows and columns of a relation
    >>> kernel = KroneckerOperator(K, G, ends=observed, to=observed)
    >>> kernel @ np.array([1.0, 0.0, 1.0])
    array([7., 5., 7.])
    """

    def __init__(
        self,
        K: ArrayLike,
        G: ArrayLike,
        ends: tuple[Any, Any] | None = None,
        to: tuple[Any, Any] | None = None,
        *,
        form: str = "auto",
    ) -> None:
        self.K = check_finite_array("K", K, ndim=(2,))
        self.G = check_finite_array("G", G, ndim=(2,))
        check_option("form", form, ("auto", "dense", "sampled"))
        (a, b), (c, d) = self.K.shape, self.G.shape
        self.ends, self.to = _pairs("ends", ends, b, d), _pairs("to", to, a, c)
        q = b * d if self.ends is None else len(self.ends[0])
        r = a * c if self.to is None else len(self.to[0])
        super().__init__(np.dtype(np.float64), (r, q))
        self._costs = q * c + r * b, q * a + r * d
        if form == "auto":
            dense = a * b * d + a * c * d
            form = "sampled" if SAMPLED_COST * min(self._costs) < 2 * dense else "dense"
        self.form = form

    def _matvec(self, v: Array) -> Array:
        v = np.ravel(v)
        return self._sampled(v) if self.form == "sampled" else self._dense(v)

    def _dense(self, v: Array) -> Array:
        b, d = self.K.shape[1], self.G.shape[1]
        if self.ends is None:
            M = v.reshape(b, d)
        else:
            M = np.bincount(self.ends[0] * d + self.ends[1], v, minlength=b * d).reshape(b, d)
        table = self.K @ M @ self.G.T
        return table.ravel() if self.to is None else table[self.to]

    def _sampled(self, v: Array) -> Array:
        b, d = self.K.shape[1], self.G.shape[1]
        rows, cols = _all(b, d) if self.ends is None else self.ends
        M = sparse.coo_array((v, (rows, cols)), shape=(b, d)).tocsr()
        i, j = _all(len(self.K), len(self.G)) if self.to is None else self.to
        if self._costs[0] <= self._costs[1]:
            return sampled_products(self.K, (M @ self.G.T).T, i, j)
        return sampled_products(np.ascontiguousarray((M.T @ self.K.T).T), self.G, i, j)

    def _adjoint(self) -> KroneckerOperator:
        return KroneckerOperator(self.K.T, self.G.T, self.to, self.ends, form=self.form)

    _transpose = _adjoint

    def toarray(self) -> Array:
        """Return the matrix of shape (q', q), for few pairs."""
        (a, b), (c, d) = self.K.shape, self.G.shape
        (i, j), (k, m) = self.to or _all(a, c), self.ends or _all(b, d)
        return self.K[np.ix_(i, k)] * self.G[np.ix_(j, m)]


def _all(n: int, m: int) -> tuple[Array, Array]:
    """Return all pairs of n and m objects, in row-major order."""
    return np.repeat(np.arange(n), m), np.tile(np.arange(m), n)


def _pairs(name: str, pairs: Any, n: int, m: int) -> tuple[Array, Array] | None:
    """Check pairs; return two int64 arrays of equal length, within bounds."""
    if pairs is None:
        return None
    if not isinstance(pairs, tuple | list) or len(pairs) != 2:
        raise ValueError(f"{name} must be two arrays of numbers, or None; got {show(pairs)}")
    first, second = (
        check_rows(f"{name}[{k}]", part, size, distinct=False)
        for k, (part, size) in enumerate(zip(pairs, (n, m), strict=True))
    )
    if len(first) != len(second):
        raise ValueError(f"{name} has {len(first)} first and {len(second)} second numbers")
    return first, second
