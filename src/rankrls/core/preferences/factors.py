"""Exact factors L = F Fᵀ of a Laplacian, with coordinates t such that F t = r.

A dual solution is A = F (FᵀKF + alpha I)⁻¹ t for *any* such F and t, because
(F FᵀK + alpha I) F B = F (FᵀKF + alpha I) B = F t = r. Each factor here is chosen so that
F has at most m columns where that is possible, is applied in O(m) per column where the
preferences have structure, and annihilates constants exactly where L does (Fᵀ1 = 0).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import blas, cholesky, solve_triangular
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator

from rankrls.core.preferences.groups import Groups, sums

__all__ = [
    "Factor",
    "GroundedFactor",
    "IncidenceFactor",
    "PooledFactor",
    "ScatterFactor",
    "StackedFactor",
]

Array = NDArray[Any]


class Factor(LinearOperator):
    """F of shape (m, p) as a ``LinearOperator``.

    Attributes
    ----------
    t : ndarray of shape (p, k)
        F t = r.
    owner : ndarray of shape (p,), int
        A row for every coordinate (column of F) such that the column is zero outside the
        connected component of that row: F is block-diagonal by component, t as well.
    """

    t: Array
    owner: Array

    def __init__(self, n_rows: int, owner: Array) -> None:
        super().__init__(np.dtype(np.float64), (n_rows, len(owner)))
        self.owner = owner

    def _matvec(self, b: Array) -> Array:
        return self._matmat(np.reshape(b, (-1, 1)))

    def _rmatvec(self, v: Array) -> Array:
        return self._rmatmat(np.reshape(v, (-1, 1)))

    def null(self) -> sparse.csr_array:
        """Orthonormal columns that span the null space of F, shape (p, c), each in one component.

        Known for the factors of `System.independent_factor`: scatter, pooled, grounded.
        """
        raise TypeError(f"the null space of a {type(self).__name__} is not known")

    def sandwich(self, K: Array) -> Array:
        """FᵀKF of shape (p, p) for a symmetric K of shape (m, m), which may be overwritten."""
        m, p = self.shape
        if m != p:
            return self._rmatmat(np.ascontiguousarray(self._rmatmat(K).T))
        # In place, a block of columns at a time: FᵀK, then Fᵀ(FᵀK)ᵀ.
        for target in (K, K.T):
            for start in range(0, m, 512):
                columns = slice(start, start + 512)
                target[:, columns] = self._rmatmat(target[:, columns])
        return K


class ScatterFactor(Factor):
    """F = diag(√(κω)) (I − uuᵀ) in every group, u = √(ω/Ω): symmetric in √ω-coordinates."""

    def __init__(self, groups: Groups, kappa: Array, s: Array) -> None:
        super().__init__(len(groups), np.arange(len(groups)))
        self.groups = groups
        self.root = np.sqrt(kappa[groups.codes] * groups.weight)[:, None]
        self.t = self._rmatmat(s)

    def _rmatmat(self, V: Array) -> Array:
        out = self.groups.deviations(V)
        out *= self.root.astype(out.dtype, copy=False)
        return out

    def _matmat(self, B: Array) -> Array:
        U = self.groups.isometry
        return self.root * (B - U @ (U.T @ B))

    def null(self) -> sparse.csr_array:
        """u of every group that has edges, and every coordinate that has none."""
        return sparse.hstack([self._idle(), self.groups.isometry[:, self._active()]]).tocsr()

    def _active(self) -> Array:
        """Groups with edges."""
        return np.flatnonzero(sums(self.groups.codes, self.root[:, 0], self.groups.n_groups) > 0)

    def _idle(self) -> sparse.csr_array:
        """Unit vectors of the coordinates of rows without an edge."""
        idle = np.flatnonzero(self.root[:, 0] == 0)
        shape = (len(self.root), len(idle))
        return sparse.csr_array((np.ones(len(idle)), (idle, np.arange(len(idle)))), shape=shape)


class PooledFactor(Factor):
    """Within-level scatter and the levels' own factor in one square F.

    In √ω-coordinates the two parts act on orthogonal spaces, so with U the isometry
    U_ia = √(ω_i/Ω_a) from levels to rows, F = scatter factor + Pᵀ F_levels Uᵀ has F Fᵀ = L.
    """

    def __init__(self, groups: Groups, kappa: Array, between: Factor) -> None:
        m = len(groups)
        super().__init__(m, np.arange(m))
        self.groups = groups
        self.between = between
        self.within = ScatterFactor(groups, kappa, np.zeros((m, between.t.shape[1])))
        # A coordinate of the levels goes to the rows of the level that owns it.
        self.embedding = groups.isometry[:, between.owner]
        self.t = self.embedding @ between.t

    def _rmatmat(self, V: Array) -> Array:
        means = self.groups.mean(V).astype(V.dtype, copy=False)
        deviations = (V - means[self.groups.codes]) * self.within.root.astype(V.dtype, copy=False)
        embedding = self.embedding.astype(V.dtype, copy=False)
        return deviations + embedding @ self.between._rmatmat(means)

    def _matmat(self, B: Array) -> Array:
        pooled = self.between._matmat(self.embedding.T @ B)
        return self.within._matmat(B) + self.groups.share[:, None] * pooled[self.groups.codes]

    def null(self) -> sparse.csr_array:
        """Level coordinates that the levels' factor leaves out or maps to zero, seen from rows."""
        active = self.within._active()
        beyond = np.setdiff1d(active, self.between.owner)
        levels = self.between.null().tocsc()
        inside = np.isin(self.between.owner, active)
        used = np.asarray(abs(levels[inside]).sum(axis=0)).ravel() > 0
        parts = [self.within._idle(), self.groups.isometry[:, beyond]]
        return sparse.hstack([*parts, self.embedding @ levels[:, used]]).tocsr()


class IncidenceFactor(Factor):
    """F = M, one column w(e_h − e_j) per edge, and t = w z."""

    def __init__(self, head: Array, tail: Array, weight: Array, z: Array, n_rows: int) -> None:
        super().__init__(n_rows, head)
        w = np.sqrt(weight)
        edges = np.arange(len(w))
        plus = sparse.coo_array((w, (head, edges)), self.shape)
        minus = sparse.coo_array((w, (tail, edges)), self.shape)
        self.incidence = (plus - minus).tocsr()
        self.t = (w * z)[:, None]

    def _matmat(self, B: Array) -> Array:
        return self.incidence @ B

    def _rmatmat(self, V: Array) -> Array:
        return self.incidence.T.astype(V.dtype) @ V


class GroundedFactor(Factor):
    """F of any Laplacian: ground one vertex per component, L_gg = R Rᵀ, F = [R; −1ᵀR].

    Parameters
    ----------
    L : ndarray of shape (m, m)
    r : ndarray of shape (m, k)
    links : sparse array of shape (m, h)
        Rows that share a hub (column) are connected.
    """

    def __init__(self, L: Array, r: Array, links: sparse.coo_array) -> None:
        m = L.shape[0]
        adjacency = sparse.block_array([[None, links], [links.T, None]])
        component = connected_components(adjacency, directed=False)[1][:m]
        # The vertex of largest degree is the ground of its component.
        order = np.argsort(-np.diagonal(L), kind="stable")
        ground_of = np.full(component.max() + 1 if m else 0, -1)
        ground_of[component[order[::-1]]] = order[::-1]
        self.grounded = ground_of[component]
        self.free = np.flatnonzero(self.grounded != np.arange(m))
        super().__init__(m, self.free)
        self.R, self.t = L[np.ix_(self.free, self.free)], r[self.free]
        if len(self.free):  # older versions of SciPy refuse empty matrices
            self.R = cholesky(self.R, lower=True, check_finite=False)
            self.t = solve_triangular(self.R, self.t, lower=True, check_finite=False)

    def null(self) -> sparse.csr_array:
        """Nothing: the columns are independent."""
        return sparse.csr_array((self.shape[1], 0))

    def _matmat(self, B: Array) -> Array:
        flow = self.R @ B
        out = np.zeros((self.shape[0], B.shape[1]), dtype=flow.dtype)
        out[self.free] = flow
        np.subtract.at(out, self.grounded[self.free], flow)
        return out

    def _rmatmat(self, V: Array) -> Array:
        differences = V[self.free] - V[self.grounded[self.free]]
        trmm = blas.strmm if differences.dtype == np.float32 else blas.dtrmm
        R = self.R.astype(differences.dtype, copy=False)
        return np.ascontiguousarray(trmm(1.0, R, differences, lower=1, trans_a=1))


class StackedFactor(Factor):
    """F = [F₁ F₂] for L = L₁ + L₂, t = [t₁; t₂]."""

    def __init__(self, first: Factor, second: Factor) -> None:
        super().__init__(first.shape[0], np.concatenate([first.owner, second.owner]))
        self.first = first
        self.second = second
        k = max(first.t.shape[1], second.t.shape[1])
        self.t = np.vstack([np.broadcast_to(f.t, (f.t.shape[0], k)) for f in (first, second)])

    def _matmat(self, B: Array) -> Array:
        p = self.first.shape[1]
        return self.first._matmat(B[:p]) + self.second._matmat(B[p:])

    def _rmatmat(self, V: Array) -> Array:
        return np.vstack([self.first._rmatmat(V), self.second._rmatmat(V)])
