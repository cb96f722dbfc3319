"""Leave-pair-out for one ranking: predictions for all pairs of rows by array operations.

Two cases have a shortcut: rankings in which every pair has the same weight, and rankings of two
levels with tied pairs dropped (`Bipartite`). In both, the residuals without a pair are those of a
2 × 2 block of J (see `residuals`).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls import _resources
from rankrls.core.linalg.factorizations import EigenFactorization, is_graded, rounding_level
from rankrls.core.preferences.costs import query_factor
from rankrls.core.preferences.laplacian import Groups
from rankrls.core.ridge.problem import NO_SHORTCUT, RidgeProblem, refit_unsafe
from rankrls.core.ridge.residuals import SINGULAR, Folds

Array = NDArray[Any]

#: Below this fraction of its terms, a difference has cancelled.
CANCELLED = 1e-4

#: A pair is refitted if alpha times the precision of its rows is below this.
LEAST_PRECISION = 1e-6

#: Advice if leave-pair-out does not fit into memory.
PAIR_ADVICE = "use folds of rows (RankRLSCV(cv=10), holdout_predict), or a sample of the rows"


def all_pairs(n: int) -> Array:
    """All i < j below n, shape (n(n − 1)/2, 2)."""
    _resources.require("all pairs of rows", n, n, copies=2, advice=PAIR_ADVICE)
    return np.column_stack(np.triu_indices(n, 1))


def default_pairs(problem: RidgeProblem) -> Array:
    """All i < j with different scores, shape (n_pairs, 2); with several outputs all i < j."""
    scores = problem.graph.scores
    if scores is None:
        raise ValueError("leave-pair-out needs scores y")
    pairs = all_pairs(len(scores))
    if scores.shape[1] == 1:
        pairs = pairs[scores[pairs[:, 0], 0] != scores[pairs[:, 1], 0]]
    return pairs


def can_leave_pairs_out(problem: RidgeProblem) -> bool:
    """Whether `leave_pairs_out` has its shortcut."""
    one = problem.graph.n_queries == 1 and problem.space.basis is None
    return one and (_is_bipartite(problem) or problem.every_pair_counts())


def _is_bipartite(problem: RidgeProblem) -> bool:
    """Whether this is one ranking of two levels in which tied pairs do not count."""
    graph = problem.graph
    if graph.scores is None or graph.n_given_pairs or graph.sample_weight is not None:
        return False
    if problem.loss.keeps_ties or problem.space.basis is not None:
        return False
    one = graph.n_queries == 1 and graph.n_outputs == 1
    return one and len(np.unique(graph.scores)) == 2


def leave_pairs_out(
    problem: RidgeProblem, pairs: Array, alphas: Array
) -> Iterator[tuple[Array, int]]:
    """For each alpha, predictions (n_pairs, 2, n_outputs) without both rows, and refits."""
    _require_pairs(problem, pairs, len(pairs))
    first = problem.first_equal
    tied = first[pairs[:, 0]] == first[pairs[:, 1]]
    if _is_bipartite(problem):
        found = Bipartite(problem, alphas).pairs(pairs, alphas)
    elif decompose_ranking(problem, alphas) is None:
        for alpha in alphas:
            held = problem.leave_out(Folds(pairs.ravel(), np.full(len(pairs), 2)), alpha[None])
            yield held.values[0].reshape(len(pairs), 2, -1), int(held.n_refits[0])
        return
    else:
        found = _pairs(problem, pairs, alphas)
    for alpha, (out, unsafe) in zip(alphas, found, strict=True):
        _refit_pairs(problem, pairs, unsafe, alpha, out)
        out[tied, 1] = out[tied, 0]
        yield out, int(unsafe.sum())


def pair_accuracies(
    problem: RidgeProblem, alphas: Array, threads: int
) -> Iterator[tuple[Array, int]]:
    """For each alpha, the leave-pair-out accuracy of each output (n_outputs,), and refits."""
    scores = problem.graph.scores
    if scores is None:
        raise ValueError("leave-pair-out needs scores y")
    m = len(scores)
    sizes = [np.unique(s, return_counts=True)[1].astype(float) for s in scores.T]
    counted = np.array([(m**2 - n @ n) / 2 for n in sizes])  # pairs of different scores
    # Σ sign((s_i − s_j)(f_i − f_j)) over all pairs i < j that are left out.
    _require_pairs(problem, None, 0)
    if _is_bipartite(problem) or decompose_ranking(problem, alphas) is None:
        _require_pairs(problem, None, int(counted.max()))
        pairs = default_pairs(problem)
        order = np.sign(scores[pairs[:, 0]] - scores[pairs[:, 1]])
        for out, n_refits in leave_pairs_out(problem, pairs, alphas):
            total = (np.sign(out[:, 0] - out[:, 1]) * order).sum(axis=0)
            yield (counted + total) / (2 * counted), n_refits
        return
    first, parts = problem.first_equal, np.array_split(np.arange(scores.shape[1]), threads)
    for alpha, matrices in zip(alphas, _pair_matrices(problem, alphas), strict=True):
        count, used = partial(_concordance, *matrices, scores, first), [p for p in parts if len(p)]
        if len(used) == 1:
            found = [count(used[0])]
        else:
            with ThreadPoolExecutor(threads) as pool:
                found = list(pool.map(count, used))
        total, unsafe = np.concatenate([part for part, _ in found]), found[0][1]
        unsafe = unsafe[first[unsafe[:, 0]] != first[unsafe[:, 1]]]
        out = np.zeros((len(unsafe), 2, scores.shape[1]))
        _refit_pairs(problem, unsafe, np.ones(len(unsafe), dtype=bool), alpha, out)
        i, j = unsafe.T
        total += np.sign((scores[i] - scores[j]) * (out[:, 0] - out[:, 1])).sum(axis=0)
        yield (counted + total) / (2 * counted), len(unsafe)


def _refit_pairs(
    problem: RidgeProblem, pairs: Array, unsafe: Array, alpha: float, out: Array
) -> None:
    """Replace the predictions of unsafe pairs by those of refits."""
    folds = Folds(pairs.ravel(), np.full(len(pairs), 2))
    refit, values = problem.refit_rows, out.reshape(1, -1, out.shape[2])
    refit_unsafe(folds, np.array([alpha]), unsafe[None], refit, NO_SHORTCUT, values)


def _require_pairs(problem: RidgeProblem, pairs: Array | None, n_pairs: int) -> None:
    """Raise an error unless the pairs (default: all of different scores) can be left out."""
    if not can_leave_pairs_out(problem):
        raise ValueError(f"leave-pair-out{NO_SHORTCUT}")
    scores, m, k = problem.graph.scores, problem.graph.n_rows, problem.graph.n_outputs
    assert scores is not None
    if m < 4:
        raise ValueError("leave-pair-out needs at least 4 rows, because two of them are left out")
    _resources.require("leave-pair-out", m, m, copies=5, advice=PAIR_ADVICE)
    what = f"leave-pair-out of {n_pairs:,} pairs"
    _resources.require(what, n_pairs, k, copies=10, advice=PAIR_ADVICE)
    # If at least three rows differ from the median, no pair contains all of them.
    differ = scores != np.partition(scores, m // 2, axis=0)[m // 2]
    for column in np.flatnonzero(differ.sum(axis=0) <= 2):
        others = np.flatnonzero(differ[:, column])
        if len(others):
            some = default_pairs(problem) if pairs is None else pairs
            held = np.array([(some == row).any(axis=1) for row in others]).all(axis=0)
            if held.any():
                first = tuple(some[held][0].tolist())
                raise ValueError(
                    f"without the pair {first} all labels are equal, so nothing is left to learn"
                )


# -- all pairs have the same weight -------------------------------------------------------------


def decompose_ranking(problem: RidgeProblem, alphas: Array) -> tuple[Array, Array] | None:
    """Eigenvalues l and eigenvectors V of C K C other than the constant, C = I − 11ᵀ/m.

    None if the scales of the features are so different that eigenvectors would be inaccurate.
    """
    if problem.ranking is None and not problem.by_features:
        made, m = problem.decompose(alphas)[0].factorization, problem.graph.n_rows
        kappa = m * query_factor(problem.loss.query_weighting, float(m), m * (m - 1) / 2.0)
        problem.ranking = made.values / kappa, made.vectors
    elif problem.ranking is None:
        X = _dense_features(problem)
        if is_graded(np.einsum("ij,ij->j", X, X), 0.0):
            problem.decompose(alphas)
            return None
        V, d, _ = np.linalg.svd(X, full_matrices=False)
        V, d = V[:, d > rounding_level(d)], d[d > rounding_level(d)]
        problem.ranking = d**2, np.ascontiguousarray(V)
    return problem.ranking


def _dense_features(problem: RidgeProblem) -> Array:
    """Features as centred dense rows, shape (m, n)."""
    X = problem.space.X
    if sparse.issparse(X):
        advice = "use fewer features, or refit fold by fold with a splitter"
        _resources.require("leave-pair-out", *X.shape, copies=2, advice=advice)
        X = X.toarray()
    with np.errstate(over="ignore", invalid="ignore"):
        X = X - X.mean(axis=0, dtype=np.float64)
        if not np.isfinite(np.einsum("ij,ij->", X, X) * len(X)):
            raise ValueError("the numbers overflow float64; scale the features down")
    return X


def _pair_matrices(
    problem: RidgeProblem, alphas: Array
) -> Iterator[tuple[Array, Array, Array, Array, float]]:
    """For each alpha, H, M, f = H s, e = M s and the largest eigenvalue of M, without two rows.

    f_U without U is f_U − H_UU (M_UU)⁻¹ e_U up to a constant ("Exact hold-out" in
    docs/mathematics.md).
    """
    s = problem.graph.scores
    assert s is not None
    assert problem.ranking is not None
    values, V = problem.ranking
    s, m, n = s - s.mean(axis=0), len(s), len(s) - 2.0
    b, complete = V.T @ s, V.shape[1] == m - 1
    rest = np.zeros_like(s) if complete else s - V @ b
    for alpha in alphas:
        # The pairs of the n rows that stay are n times their scatter.
        nu = float(alpha / (n * query_factor(problem.loss.query_weighting, n, n * (n - 1) / 2.0)))
        h, w = values / (values + nu), nu / (values + nu)
        H = _sandwich(V, h)
        M = -H
        M -= 1.0 / m
        M.flat[:: m + 1] += 1.0
        # C − H cancels if H is close to C; then M is summed directly.
        if M.diagonal().min() < 1e-4:
            M = _sandwich(V, w)
            if not complete:
                M += np.eye(m) - 1.0 / m - V @ V.T
        largest = float(w.max(initial=0.0)) if complete else 1.0
        yield H, M, V @ (h[:, None] * b), rest + V @ (w[:, None] * b), largest


def _sandwich(V: Array, weight: Array) -> Array:
    """Compute V diag(weight) Vᵀ, as a symmetric product if the weights are positive."""
    if weight.min(initial=0.0) < 0:  # an indefinite kernel
        return (V * weight) @ V.T
    root = V * np.sqrt(weight)
    return root @ root.T


def _pairs(problem: RidgeProblem, pairs: Array, alphas: Array) -> Iterator[tuple[Array, Array]]:
    """For each alpha, predictions of shape (n_pairs, 2, k) and which pairs are unsafe."""
    i, j = pairs.T
    for H, M, f, e, largest in _pair_matrices(problem, alphas):
        h, h_ij, m_ij = H.diagonal(), H[i, j], M[i, j]
        m_ii, m_jj = M.diagonal()[i], M.diagonal()[j]
        det = m_ii * m_jj - m_ij**2
        unsafe = det <= SINGULAR * largest * (m_ii + m_jj)
        det[unsafe] = 1.0
        m_ii, m_jj, m_ij = m_jj / det, m_ii / det, -m_ij / det  # of the inverse
        g_i = m_ii[:, None] * e[i] + m_ij[:, None] * e[j]
        g_j = m_ij[:, None] * e[i] + m_jj[:, None] * e[j]
        out = np.empty((len(pairs), 2, f.shape[1]))
        out[:, 0] = f[i] - h[i, None] * g_i - h_ij[:, None] * g_j
        out[:, 1] = f[j] - h_ij[:, None] * g_i - h[j, None] * g_j
        yield out, unsafe


def _concordance(
    H: Array, M: Array, f: Array, e: Array, largest: float, s: Array, first: Array, outputs: Array
) -> tuple[Array, Array]:
    """Σ_{i<j} sign((s_i − s_j)(f_i − f_j)) over pairs left out, by blocks, and unsafe pairs.

    Unsafe pairs, returned second, contribute zero, and equal rows are tied. The held-out difference
    of a pair is (f_i − a_ij e_i) − (f_j − b_ij e_j), b_ij = a_ji.
    """
    m = len(f)
    total, bad = np.zeros(len(outputs)), [np.empty((0, 2), dtype=np.int64)]
    columns = list(zip(*(values[:, outputs].T.copy() for values in (f, e, s)), strict=True))
    step = max(1, 2**15 // m)
    for start in range(0, m - 1, step):
        rows, later = slice(start, min(start + step, m)), slice(start, None)
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
        a, b = left * m_j + right * m_ij, right * m_i + left * m_ij
        bad.append(np.argwhere(unsafe) + start)
        used = np.triu(~(unsafe | (first[rows, None] == first[later])), 1).astype(float)
        for number, (f_c, e_c, s_c) in enumerate(columns):
            t = b * e_c[later]
            t -= f_c[later]
            t -= a * e_c[rows, None] - f_c[rows, None]
            t *= s_c[rows, None] - s_c[later]
            total[number] += np.vdot(np.sign(t, out=t), used)
    return total, np.concatenate(bad)


# -- two levels, tied pairs dropped -------------------------------------------------------------


class Bipartite:
    """Leave-pair-out of two levels, tied pairs dropped ("Exact hold-out" in docs/mathematics.md).

    With D = n₀' on upper and n₁' on lower rows, K̂ = D^½ K D^½, W the two normalised class
    indicators and V, σ the eigenvectors and eigenvalues of K̂ beside them,

        T = V (σ + alpha)⁻¹ Vᵀ,   A = K̂ T,   B = K̂ − K̂ T K̂

    are the precision of the within-class data, the part it explains, and the remaining covariance.
    Leaving out U adds A_U (T_UU)⁻¹ A_Uᵀ to B. In the basis [V W] only the 2 × 2 block of B along W
    can cancel. For features X̂ = Y Qᵀ, in the right singular vectors Q of X̂ centred by class, it is
    alpha WᵀY (d² + alpha)⁻¹ YᵀW.
    """

    def __init__(self, problem: RidgeProblem, alphas: Array) -> None:
        assert problem.graph.scores is not None
        s, loss = problem.graph.scores[:, 0], problem.loss
        problem.decompose(alphas[:1])  # which warns of lost digits
        m, low, high = len(s), s.min(), s.max()
        self.upper = s == high
        n1, n0 = (self.n1, self.n0) = float(self.upper.sum() - 1), float((~self.upper).sum() - 1)
        if min(n1, n0) < 1:
            raise ValueError("leave-pair-out needs at least two rows of each class")
        (self.z,), (weight,) = loss.cost.edges(np.array([high - low], dtype=float), 1.0)
        self.edge_weight = weight * float(query_factor(loss.query_weighting, m - 2.0, n1 * n0))
        self.root = np.sqrt(np.where(self.upper, n0, n1))[:, None]
        everything = Groups(np.zeros(m, dtype=np.int64), None, 1)
        self.classes = Groups(self.upper.astype(np.int64), None, 2)
        self.W = self.classes.isometry.toarray()
        self.K: Array | None = None
        if not problem.by_features:
            K = problem.space.gram
            self.noise = np.finfo(float).eps * float((K.diagonal()[:, None] * self.root**2).max())
            self.K = _both_sides(everything, K) * self.root * self.root.T
            C = _both_sides(self.classes, self.K)
            made = EigenFactorization(C, np.inf, null=self.classes.isometry, noise=self.noise)
            self.values, self.V = made.values, made.vectors
            self.K_WV = (self.K @ self.W).T @ self.V
        else:
            self._take_features(_dense_features(problem) * self.root)

    def _take_features(self, X_hat: Array) -> None:
        """Decompose features instead of K̂ = X̂X̂ᵀ."""
        V, d, Qt = np.linalg.svd(self.classes.deviations(X_hat), full_matrices=False)
        d[d <= rounding_level(d)] = 0.0
        self.Y_W, self.squares, self.K = self.W.T @ X_hat @ Qt.T, d**2, None
        self.values, self.V = d[d > 0] ** 2, V[:, d > 0]
        self.K_WV = (self.Y_W * d)[:, d > 0]

    def _matrices(self, alpha: float) -> tuple[Array, Array, Array]:
        """T, A and B."""
        if self.K is not None:
            K_WW = self.W.T @ self.K @ self.W
            between = K_WW - (self.K_WV / (self.values + alpha)) @ self.K_WV.T
            if np.linalg.eigvalsh(between)[0] <= CANCELLED * np.trace(K_WW):
                # The within-class data nearly determine the class means.
                made = EigenFactorization(self.K, np.inf, noise=self.noise)
                live = made.values > 0
                self._take_features(made.vectors[:, live] * np.sqrt(made.values[live]))
        if self.K is None:
            between = (self.Y_W * (alpha / (self.squares + alpha))) @ self.Y_W.T
        V, W, weight = self.V, self.W, 1.0 / (self.values + alpha)
        T = (V * weight) @ V.T
        if V.shape[1] < len(V) - 2:  # directions outside the span of the features
            T += (np.eye(len(V)) - W @ W.T - V @ V.T) / alpha
        mixed = W @ ((self.K_WV * weight) @ V.T)
        A = (V * (self.values * weight)) @ V.T
        return T, A + mixed, alpha * (A + mixed + mixed.T) + W @ between @ W.T

    def pairs(self, pairs: Array, alphas: Array) -> Iterator[tuple[Array, Array]]:
        """For each alpha, predictions of shape (n_pairs, 2, 1) and which pairs are unsafe."""
        swapped = ~self.upper[pairs[:, 0]]
        p, q = np.where(swapped, pairs[:, ::-1].T, pairs.T)
        if not self.upper[p].all() or self.upper[q].any():
            raise ValueError(
                "with tied pairs dropped, only pairs with different scores can be left out exactly"
            )
        for alpha in alphas:
            out, unsafe = self._predict(p, q, alpha / self.edge_weight)
            out[swapped] = out[swapped][:, ::-1]
            yield out[:, :, None], unsafe

    def _predict(self, p: Array, q: Array, alpha: float) -> tuple[Array, Array]:
        (T, A, B), n1, n0 = self._matrices(alpha), self.n1, self.n0
        # ĝ = h − h_p e_p − h_q e_q with h over all rows.
        h_p, h_q = 1.0 / (n1 * np.sqrt(n0)), -1.0 / (n0 * np.sqrt(n1))
        h = np.where(self.upper, h_p, h_q)
        Bh, Ah, hBh = B @ h, A.T @ h, float(h @ B @ h)
        b_pp, b_qq, b_pq = B.diagonal()[p], B.diagonal()[q], B[p, q]
        t_pp, t_qq, t_pq = T.diagonal()[p], T.diagonal()[q], T[p, q]
        a_pp, a_qq, a_pq, a_qp = A.diagonal()[p], A.diagonal()[q], A[p, q], A[q, p]
        # B ĝ at U, and v = A_Uᵀĝ.
        c_p = Bh[p] - h_p * b_pp - h_q * b_pq
        c_q = Bh[q] - h_p * b_pq - h_q * b_qq
        v_p = Ah[p] - h_p * a_pp - h_q * a_qp
        v_q = Ah[q] - h_p * a_pq - h_q * a_qq
        det = t_pp * t_qq - t_pq**2
        unsafe = det <= SINGULAR * (t_pp + t_qq) * np.maximum(t_pp, t_qq)
        if self.K is None:
            # Lost digits: v is small compared with its terms, or T, of features that do not span
            # all differences of rows, is small compared with 1 / alpha.
            unsafe |= np.abs(v_p) < CANCELLED * np.abs(Ah[p])
            unsafe |= np.abs(v_q) < CANCELLED * np.abs(Ah[q])
            if self.V.shape[1] < len(self.V) - 2:
                unsafe |= alpha * np.minimum(t_pp, t_qq) < LEAST_PRECISION
        det = np.where(unsafe, 1.0, det)
        u_p, u_q = (t_qq * v_p - t_pq * v_q) / det, (t_pp * v_q - t_pq * v_p) / det
        # Without U: cov(f_U, gᵀf) and var(gᵀf).
        x_p = c_p + a_pp * u_p + a_pq * u_q
        x_q = c_q + a_qp * u_p + a_qq * u_q
        spread = hBh - h_p * (Bh[p] + c_p) - h_q * (Bh[q] + c_q) + v_p * u_p + v_q * u_q
        scale = self.z / (spread + alpha / (n1 * n0))
        root = self.root[:, 0]
        return np.column_stack([x_p / root[p], x_q / root[q]]) * scale[:, None], unsafe


def _both_sides(groups: Groups, K: Array) -> Array:
    """C K C for the centring C of the groups."""
    return groups.deviations(np.ascontiguousarray(groups.deviations(K).T))
