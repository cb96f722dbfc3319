"""Leaving out rows of a ranking in which every pair counts (cost magnitude, ties kept).

Over the n rows of a query that stay,
Σ_{a<b} (s_a − s_b − (f_a − f_b))² = n min_b Σ_a (s_a − f_a − b)²:
ridge regression with a free intercept. With c the query's weighting, its penalty is
ν = alpha/(c n), and rows can be taken out of it one by one, pair by pair or fold by fold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.holdout._components import SINGULAR, solve_small, spectrum_beside
from rankrls.preferences import Groups

__all__ = ["RowSpectrum", "penalty"]

Array = NDArray[Any]


def penalty(alpha: float, n: int, query_weighting: str) -> float:
    """ν for n rows that stay: alpha/n, alpha or alpha(n − 1)/2 for "pair", "size", "query"."""
    return alpha * {"pair": 1.0 / n, "size": 1.0, "query": (n - 1) / 2.0}[query_weighting]


class RowSpectrum:
    """The kernel on the complement of the queries' constants, decomposed once.

    Parameters
    ----------
    s : ndarray of shape (m, k)
        Scores.
    query : ndarray of shape (m,), int
        Every query has an intercept of its own.
    K : ndarray of shape (m, m), optional
        Kernel matrix.
    X : ndarray of shape (m, n), optional
        Explicit features instead of a kernel matrix.

    Notes
    -----
    C centres by query. With V, l the eigenvectors and eigenvalues of C K C other than constants,
    and R = C − V Vᵀ (zero unless explicit features leave directions out),

        H = V diag(l/(l + ν)) Vᵀ,   M = R + V diag(ν/(l + ν)) Vᵀ,   f = H s,   e = M s,
        f_U without U = f_U − H_UU (M_UU)⁻¹ e_U    up to a constant for each query.
    """

    def __init__(
        self, s: Array, query: Array, *, K: Array | None = None, X: Array | None = None
    ) -> None:
        groups = Groups(query, None, int(query.max()) + 1)
        self.groups = groups
        if K is not None:
            C = groups.deviations(np.ascontiguousarray(groups.deviations(K).T))
            self.values, self.V = spectrum_beside(C, groups.isometry)
        else:
            assert X is not None
            U, d, _ = np.linalg.svd(groups.deviations(X), full_matrices=False)
            kept = d > len(d) * np.finfo(float).eps * d.max(initial=0.0)
            self.values, self.V = d[kept] ** 2, np.ascontiguousarray(U[:, kept])
        self.complete = self.V.shape[1] == len(query) - groups.n_groups
        s = groups.deviations(s)
        self.b = self.V.T @ s
        self.rest = np.zeros_like(s) if self.complete else s - self.V @ self.b  # R s

    def folds(
        self, folds: Sequence[Array], alphas: Array, query_weighting: str
    ) -> tuple[list[Array], Array]:
        """Predictions of every fold without it: (n_alphas, len(fold), k), and which are unsafe.

        With several queries only "size" keeps ν the same whatever is left out.
        """
        m = len(self.groups)
        out: list[Array] = []
        unsafe = np.zeros((len(alphas), len(folds)), dtype=bool)
        for number, rows in enumerate(folds):
            V_U = self.V[rows]
            R_UU = self._remainder(rows) + self._whole_queries(rows)
            predictions = np.empty((len(alphas), len(rows), self.b.shape[1]))
            for a, alpha in enumerate(alphas):
                nu = penalty(alpha, m - len(rows), query_weighting)
                h, w = self.values / (self.values + nu), nu / (self.values + nu)
                M = R_UU + (V_U * w) @ V_U.T
                e = self.rest[rows] + (V_U * w) @ self.b
                largest = 1.0 if not self.complete else float(w.max(initial=0.0))
                solution, bad = solve_small(M[None], e[None], largest)
                predictions[a] = (V_U * h) @ (self.b - V_U.T @ solution[0])
                unsafe[a, number] = bad[0]
            out.append(predictions)
        return out, unsafe

    def pairs(
        self, pairs: Array, alphas: Array, query_weighting: str
    ) -> Iterator[tuple[Array, Array]]:
        """For each alpha, predictions of shape (n_pairs, 2, k) and which pairs are unsafe.

        One ranking only. A pair is a 2 × 2 solve, all of them a handful of array operations.
        """
        i, j = pairs.T
        for alpha in alphas:
            H, M, f, e, largest = self._matrices(alpha, query_weighting)
            h, mm = H.diagonal(), M.diagonal()
            h_ij, m_ij = H[i, j], M[i, j]
            det = mm[i] * mm[j] - m_ij**2
            unsafe = det <= SINGULAR * largest * (mm[i] + mm[j])
            det = np.where(unsafe, 1.0, det)
            g_i = (mm[j, None] * e[i] - m_ij[:, None] * e[j]) / det[:, None]
            g_j = (mm[i, None] * e[j] - m_ij[:, None] * e[i]) / det[:, None]
            out = np.empty((len(pairs), 2, f.shape[1]))
            out[:, 0] = f[i] - h[i, None] * g_i - h_ij[:, None] * g_j
            out[:, 1] = f[j] - h_ij[:, None] * g_i - h[j, None] * g_j
            yield out, unsafe

    def _matrices(
        self, alpha: float, query_weighting: str
    ) -> tuple[Array, Array, Array, Array, float]:
        """H, M, f, e and the largest eigenvalue of M, for rows left out by two."""
        m = len(self.groups)
        nu = penalty(alpha, m - 2, query_weighting)
        h, w = self.values / (self.values + nu), nu / (self.values + nu)
        largest = 1.0 if not self.complete else float(w.max(initial=0.0))
        root = self.V * np.sqrt(h)
        H = root @ root.T
        M = -H
        M -= 1.0 / m
        M.flat[:: m + 1] += 1.0
        # C − H cancels where H is close to C: then M is summed up instead.
        if M.diagonal().min() < 1e-4:
            root = self.V * np.sqrt(w)
            M = root @ root.T
            if not self.complete:
                M += np.eye(m) - 1.0 / m - self.V @ self.V.T
        f = self.V @ (h[:, None] * self.b)
        e = self.rest + self.V @ (w[:, None] * self.b)
        return H, M, f, e, largest

    def _remainder(self, rows: Array) -> Array:
        """R_UU = C_UU − V_U V_Uᵀ."""
        if self.complete:
            return np.zeros((len(rows), len(rows)))
        query = self.groups.codes[rows]
        same = query[:, None] == query
        C = np.eye(len(rows)) - same / self.groups.total[query]
        V_U = self.V[rows]
        return C - V_U @ V_U.T

    def _whole_queries(self, rows: Array) -> Array:
        """1/n on the block of a query that leaves as a whole: its constant is free, M_UU 1 = 0."""
        query = self.groups.codes[rows]
        gone = np.bincount(query, minlength=self.groups.n_groups) == self.groups.total
        same = (query[:, None] == query) & gone[query]
        return same / self.groups.total[query]
