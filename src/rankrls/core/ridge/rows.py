"""Leaving out rows of a ranking in which every pair counts (cost magnitude, ties kept).

Over the n rows of a query that stay,
Σ_{a<b} (s_a − s_b − (f_a − f_b))² = n min_b Σ_a (s_a − f_a − b)²:
ridge regression with a free intercept. With c the query's weighting, its penalty is
ν = alpha/(c n), and rows can be taken out of it one by one, pair by pair or fold by fold.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.preferences.groups import Groups
from rankrls.core.ridge.components import SINGULAR, solve_small, spectrum_beside

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
            noise = float(np.finfo(float).eps * K.diagonal().max())
            self.values, self.V = spectrum_beside(C, groups.isometry, noise)
        else:
            assert X is not None
            U, d, _ = np.linalg.svd(groups.deviations(X), full_matrices=False)
            kept = d > len(d) * np.finfo(float).eps * d.max(initial=0.0)
            self.values, self.V = d[kept] ** 2, np.ascontiguousarray(U[:, kept])
        self.complete = self.V.shape[1] == len(query) - groups.n_groups
        self._take(s)

    def _take(self, s: Array) -> None:
        s = self.groups.deviations(s)
        self.b = self.V.T @ s
        self.rest = np.zeros_like(s) if self.complete else s - self.V @ self.b  # R s

    def with_scores(self, s: Array) -> RowSpectrum:
        """The same decomposition for other scores of shape (m, k)."""
        other = copy.copy(self)
        other._take(s)
        return other

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
            h, h_ij = H.diagonal(), H[i, j]
            m_ii, m_jj, m_ij, unsafe = _inverses(M, i, j, largest)
            g_i = m_ii[:, None] * e[i] + m_ij[:, None] * e[j]
            g_j = m_ij[:, None] * e[i] + m_jj[:, None] * e[j]
            out = np.empty((len(pairs), 2, f.shape[1]))
            out[:, 0] = f[i] - h[i, None] * g_i - h_ij[:, None] * g_j
            out[:, 1] = f[j] - h_ij[:, None] * g_i - h[j, None] * g_j
            yield out, unsafe

    def concordance(
        self, scores: Array, alphas: Array, query_weighting: str
    ) -> Iterator[tuple[Array, Array]]:
        """For each alpha, Σ_{i<j} sign((s_i − s_j)(f_i − f_j)) over all left-out pairs.

        Shape (k,). Pairs that are unsafe count zero; they come second, shape (n_unsafe, 2).
        The held-out difference of a pair is (f_i − a_ij e_i) − (f_j − b_ij e_j), b_ij = a_ji.
        """
        for alpha in alphas:
            H, M, f, e, largest = self._matrices(alpha, query_weighting)
            if f.shape[1] == 1:
                yield _one_output(H, M, f[:, 0], e[:, 0], scores[:, 0], largest)
            else:
                yield _many_outputs(H, M, f, e, scores, largest)

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


def _inverses(M: Array, i: Array, j: Array, largest: float) -> tuple[Array, Array, Array, Array]:
    """(M_UU)⁻¹ of every pair: its entries ii, jj and ij, and which pairs are near singular."""
    diagonal, m_ij = M.diagonal(), M[i, j]
    m_ii, m_jj = diagonal[i], diagonal[j]
    det = m_ii * m_jj - m_ij**2
    unsafe = det <= SINGULAR * largest * (m_ii + m_jj)
    det[unsafe] = 1.0
    return m_jj / det, m_ii / det, -m_ij / det, unsafe


def _one_output(
    H: Array, M: Array, f: Array, e: Array, s: Array, largest: float
) -> tuple[Array, Array]:
    """Σ_{i<j} sign((s_i − s_j)(f_i − f_j)) by blocks of rows, and the unsafe pairs."""
    m = len(f)
    total, bad = 0.0, [np.empty((0, 2), dtype=np.int64)]
    size = max(1, 2**17 // m)
    for start in range(0, m - 1, size):
        rows, later = slice(start, min(start + size, m)), slice(start, None)
        a, b, unsafe = _pair_factors(H, M, rows, largest)
        t = b * e[later] - f[later]
        t += f[rows, None] - a * e[rows, None]
        t *= s[rows, None] - s[later]
        t[unsafe] = 0.0
        total += float(np.sign(np.triu(t, 1)).sum())
        bad.append(np.argwhere(unsafe) + start)
    return np.array([total]), np.concatenate(bad)


def _many_outputs(
    H: Array, M: Array, f: Array, e: Array, s: Array, largest: float
) -> tuple[Array, Array]:
    """The same for many outputs: a row at a time, the outputs shared out among threads."""
    m, k = f.shape
    factors = [_pair_factors(H, M, slice(i, i + 1), largest) for i in range(m - 1)]
    bad = [np.argwhere(unsafe) + i for i, (_, _, unsafe) in enumerate(factors)]

    def count(columns: Array) -> Array:
        f_c, e_c, s_c = (np.ascontiguousarray(values[:, columns]) for values in (f, e, s))
        total, ones = np.zeros(len(columns)), np.ones(m)
        work = np.empty((2, m, len(columns)))
        for i, (a, b, unsafe) in enumerate(factors):
            t, u = work[:, : m - i - 1]
            np.multiply(b[0, 1:, None], e_c[i + 1 :], out=t)
            t -= f_c[i + 1 :]
            np.dot(np.column_stack([a[0, 1:], -ones[i + 1 :]]), np.stack([e_c[i], f_c[i]]), out=u)
            t -= u
            np.subtract(s_c[i], s_c[i + 1 :], out=u)
            t *= u
            if unsafe.any():
                t[unsafe[0, 1:]] = 0.0
            total += ones[i + 1 :] @ np.sign(t, out=t)
        return total

    parts = np.array_split(np.arange(k), max(1, -(-k * m // 2**17)))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return np.concatenate(list(threads.map(count, parts))), np.concatenate(bad)


def _pair_factors(H: Array, M: Array, rows: slice, largest: float) -> tuple[Array, Array, Array]:
    """a, b and unsafe for the pairs of ``rows`` with all rows from the first of them on."""
    later = slice(rows.start, None)
    h_i, h_j, h_ij = H.diagonal()[rows, None], H.diagonal()[later], H[rows, later]
    m_i, m_j, m_ij = M.diagonal()[rows, None], M.diagonal()[later], M[rows, later]
    det = m_i * m_j
    det -= m_ij * m_ij
    unsafe = det <= SINGULAR * largest * (m_i + m_j)
    if unsafe.any():
        unsafe = np.triu(unsafe, 1)
    det[det <= 0] = 1.0
    left, right = h_i - h_ij, h_j - h_ij
    left /= det
    right /= det
    return left * m_j + right * m_ij, right * m_i + left * m_ij, unsafe
