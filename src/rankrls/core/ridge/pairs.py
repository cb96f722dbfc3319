"""Leave-pair-out for one ranking: predictions for all pairs of rows by array operations.

Two cases have a shortcut: rankings in which every pair has the same weight (`RankingSpectrum`), and
rankings of two levels with tied pairs dropped (`BipartiteSpectrum`). In both, the residuals without
a pair are those of a 2 × 2 block of J (see `residuals`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh, qr
from scipy.linalg.lapack import dgejsv

from rankrls import _resources
from rankrls.core.linalg.factorizations import EigenFactorization, is_graded, rounding_level
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.query_weights import Groups, query_factor
from rankrls.core.ridge.residuals import SINGULAR
from rankrls.core.spaces.spaces import DualSpace, NystroemSpace, Space

__all__ = [
    "MAX_REFITS",
    "NO_SHORTCUT",
    "BipartiteSpectrum",
    "PairHoldOut",
    "RankingSpectrum",
    "all_pairs",
    "n_different_pairs",
    "penalty",
]

Array = NDArray[Any]

#: Maximum number of refits; more are needed only if the data or the cost have no shortcut.
MAX_REFITS = 5000

NO_SHORTCUT = (
    ": there is no exact shortcut. Whole queries (components of the preferences) can always be "
    "left out; rows of a query only with cost='magnitude', ties='keep' (or no ties), no sample "
    "weights, no given pairs, and one query (or query_weighting='size', no basis); pairs of one "
    "ranking with two levels also with tied pairs dropped"
)

#: The 2 × 2 block of B is too inaccurate if it is below this fraction of its terms.
CANCELLED = 1e-4

#: Advice if leave-pair-out does not fit into memory.
PAIR_ADVICE = "use folds of rows (RankRLSCV(cv=10), holdout_predict), or a sample of the rows"


def penalty(alpha: float, n: int, query_weighting: Any) -> float:
    """Penalty ν = alpha/κ for n remaining rows whose pairs all have the same weight, κ = c n."""
    return float(alpha / (n * query_factor(query_weighting, float(n), n * (n - 1) / 2.0)))


def all_pairs(n: int) -> Array:
    """All i < j below n, shape (n(n − 1)/2, 2)."""
    _resources.require("all pairs of rows", n, n, copies=2, advice=PAIR_ADVICE)
    return np.column_stack(np.triu_indices(n, 1))


def n_different_pairs(scores: Array) -> Array:
    """Number of pairs i < j with different scores for each column, shape (k,)."""
    m = len(scores)
    ordered = np.sort(scores, axis=0)
    counted = np.full(scores.shape[1], m * (m - 1) / 2)
    for j in np.flatnonzero((ordered[1:] == ordered[:-1]).any(axis=0)):
        sizes = np.unique(scores[:, j], return_counts=True)[1].astype(float)
        counted[j] = (m**2 - sizes @ sizes) / 2
    return counted


class PairHoldOut:
    """The part of a `RidgeProblem` that leaves out pairs of rows of one ranking."""

    graph: PreferenceGraph
    space: Space
    loss: Loss
    smaller_side: Callable[[], Any]
    decompose: Callable[[Array], list[Any]]
    every_pair_counts: Callable[[], bool]
    first_equal: Callable[[], Array]
    _ranking: RankingSpectrum | None = None

    def leave_pairs_out(self, pairs: Array, alphas: Array) -> Iterator[tuple[Array, int]]:
        """For each alpha, predictions (n_pairs, 2, n_outputs) without both rows, and refits."""
        self._require_pairs(pairs)
        self._require_room(len(pairs))
        first = self.first_equal()
        tied = first[pairs[:, 0]] == first[pairs[:, 1]]
        if self.is_bipartite():
            found = self._bipartite(alphas).pairs(pairs, alphas)
        else:
            found = self.ranking(alphas).pairs(pairs, alphas, self.loss.query_weighting)
        for alpha, (out, unsafe) in zip(alphas, found, strict=True):
            for number, refitted in self._refit_pairs(pairs, unsafe, alpha):
                out[number] = refitted
            out[tied, 1] = out[tied, 0]
            yield out, int(unsafe.sum())

    def pair_accuracies(self, alphas: Array, threads: int) -> Iterator[tuple[Array, int]]:
        """For each alpha, the leave-pair-out accuracy of each output (n_outputs,), and refits."""
        scores = self.graph.scores
        if scores is None:
            raise ValueError("leave-pair-out needs scores y")
        counted = n_different_pairs(scores)
        # Σ sign((s_i − s_j)(f_i − f_j)) over all pairs i < j that are left out.
        if self.is_bipartite():
            self._require_room(int(counted.max()))
            pairs = self.default_pairs()
            order = np.sign(scores[pairs[:, 0]] - scores[pairs[:, 1]])
            for out, n_refits in self.leave_pairs_out(pairs, alphas):
                total = (np.sign(out[:, 0] - out[:, 1]) * order).sum(axis=0)
                yield (counted + total) / (2 * counted), n_refits
            return
        self._require_pairs()
        self._require_room()
        weighting, first = self.loss.query_weighting, self.first_equal()
        results = self.ranking(alphas).concordance(scores, alphas, weighting, threads, first)
        for alpha, (total, unsafe) in zip(alphas, results, strict=True):
            unsafe = unsafe[first[unsafe[:, 0]] != first[unsafe[:, 1]]]
            everything = np.ones(len(unsafe), dtype=bool)
            for number, refitted in self._refit_pairs(unsafe, everything, alpha):
                i, j = unsafe[number]
                total += np.sign((scores[i] - scores[j]) * (refitted[0] - refitted[1]))
            yield (counted + total) / (2 * counted), len(unsafe)

    def default_pairs(self) -> Array:
        """All i < j with different scores, shape (n_pairs, 2); with several outputs all i < j."""
        graph = self.graph
        if graph.scores is None:
            raise ValueError("leave-pair-out needs scores y")
        pairs = all_pairs(graph.n_rows)
        if graph.n_outputs == 1:
            i, j = pairs.T
            pairs = pairs[graph.scores[i, 0] != graph.scores[j, 0]]
        return pairs

    def ranking(self, alphas: Array) -> RankingSpectrum:
        """The problem as ridge regression with a free intercept, decomposed at the first call."""
        if self._ranking is not None:
            return self._ranking
        s = self.graph.scores
        assert s is not None
        if isinstance((smaller := self.smaller_side()).space, DualSpace):
            made = smaller.decompose(alphas)[0].factorization
            kappa = alphas[0] / penalty(alphas[0], len(s), self.loss.query_weighting)
            self._ranking = RankingSpectrum(s, made.values / kappa, made.vectors)
        else:
            X = self._dense_features()
            squares = np.einsum("ij,ij->j", X, X)
            if is_graded(squares, 0.0):
                self.decompose(alphas[:1])  # which warns of lost digits
                V, d = _graded_vectors(X[:, squares > 0])
            else:
                V, d, _ = np.linalg.svd(X, full_matrices=False)
                V, d = V[:, d > rounding_level(d)], d[d > rounding_level(d)]
            self._ranking = RankingSpectrum(s, d**2, np.ascontiguousarray(V))
        return self._ranking

    def _dense_features(self) -> Array:
        """Features as centred dense rows, shape (m, n)."""
        X = self.space.X
        if sparse.issparse(X):
            advice = "use fewer features, or refit fold by fold with a splitter"
            _resources.require("leave-pair-out", *X.shape, copies=2, advice=advice)
            X = X.toarray()
        X = np.asarray(X, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            X = X - X.mean(axis=0)
            if not np.isfinite(np.einsum("ij,ij->", X, X) * len(X)):
                raise ValueError("the numbers overflow float64; scale the features down")
        return X

    def _bipartite(self, alphas: Array) -> BipartiteSpectrum:
        assert self.graph.scores is not None
        s, smaller = self.graph.scores[:, 0], self.smaller_side()
        smaller.decompose(alphas[:1])  # which warns of lost digits
        if isinstance(smaller.space, DualSpace):
            K = smaller.space.gram.astype(np.float64, copy=False)
            return BipartiteSpectrum(s, self.loss, K=K)
        return BipartiteSpectrum(s, self.loss, X=self._dense_features())

    def _refit_pairs(
        self, pairs: Array, unsafe: Array, alpha: float
    ) -> Iterator[tuple[int, Array]]:
        if unsafe.sum() > MAX_REFITS:
            raise ValueError(f"{int(unsafe.sum()):,} refits would be needed{NO_SHORTCUT}")
        everything, problem = np.arange(self.graph.n_rows), self.smaller_side()
        for number in np.flatnonzero(unsafe):
            rest = np.setdiff1d(everything, pairs[number])
            yield int(number), problem.refit(rest, pairs[number], np.array([alpha]))[0]

    def _require_room(self, n_pairs: int = 0) -> None:
        """Raise an error if the m × m matrices and pair arrays do not fit into memory."""
        m, k = self.graph.n_rows, self.graph.n_outputs
        _resources.require("leave-pair-out", m, m, copies=5, advice=PAIR_ADVICE)
        what = f"leave-pair-out of {n_pairs:,} pairs"
        _resources.require(what, n_pairs, k, copies=10, advice=PAIR_ADVICE)

    def _require_pairs(self, pairs: Array | None = None) -> None:
        """Raise an error unless the pairs (default: all of different scores) can be left out."""
        if not self.can_leave_pairs_out():
            raise ValueError(f"leave-pair-out{NO_SHORTCUT}")
        assert self.graph.scores is not None
        if self.graph.n_rows < 4:
            raise ValueError(
                "leave-pair-out needs at least 4 rows, because two of them are left out"
            )
        scores, middle = self.graph.scores, self.graph.n_rows // 2
        # If at least three rows differ from the median, no pair contains all of them.
        differ = scores != np.partition(scores, middle, axis=0)[middle]
        for column in np.flatnonzero(differ.sum(axis=0) <= 2):
            others = np.flatnonzero(differ[:, column])
            if len(others):
                some = self.default_pairs() if pairs is None else pairs
                held = np.array([(some == row).any(axis=1) for row in others]).all(axis=0)
                if held.any():
                    first = tuple(some[held][0].tolist())
                    raise ValueError(
                        f"without the pair {first} all labels are equal, so nothing is left to "
                        "learn"
                    )

    def can_leave_pairs_out(self) -> bool:
        """Whether `leave_pairs_out` has its shortcut."""
        one = self.graph.n_queries == 1 and not isinstance(self.space, NystroemSpace)
        return self.is_bipartite() or (one and self.every_pair_counts())

    def is_bipartite(self) -> bool:
        """Whether this is one ranking of two levels in which tied pairs do not count."""
        graph = self.graph
        if graph.scores is None or graph.n_given_pairs or graph.sample_weight is not None:
            return False
        if self.loss.keeps_ties or isinstance(self.space, NystroemSpace):
            return False
        one = graph.n_queries == 1 and graph.n_outputs == 1
        return one and len(np.unique(graph.scores)) == 2


def _graded_vectors(X: Array) -> tuple[Array, Array]:
    """Left singular vectors and values of columns of very different scales.

    Their rank is that of columns of unit norm, and one-sided Jacobi rotations are accurate relative
    to every column (Drmač and Veselić, SIAM J. Matrix Anal. 29, 2008).
    """
    norms = np.linalg.norm(X, axis=0)
    Q, R, order = qr(X / norms, mode="economic", pivoting=True, check_finite=False)
    pivots = np.abs(R.diagonal())
    rank = int((pivots > rounding_level(pivots)).sum())
    T = np.asfortranarray((R[:rank] * norms[order]).T)
    d, _, V, scale, _, _ = dgejsv(T, joba=2, jobr=0)
    return Q[:, :rank] @ V, d * (scale[0] / scale[1])


class RankingSpectrum:
    """One ranking as ridge regression with a free intercept, decomposed once.

    Over the n remaining rows, Σ_{a<b} (s_a − s_b − (f_a − f_b))² = n min_b Σ_a (s_a − f_a − b)²;
    with c the query's weighting the penalty of that regression is ν = alpha/(c n).

    Parameters
    ----------
    s : ndarray of shape (m, k)
        Scores.
    values, V : ndarray of shape (q,) and (m, q)
        Eigenvalues and eigenvectors l, V of C K C other than the constant, C = I − 11ᵀ/m.

    Notes
    -----
    With R = C − V Vᵀ (zero unless explicit features leave directions out),

        H = V diag(l/(l + ν)) Vᵀ,   M = R + V diag(ν/(l + ν)) Vᵀ,   f = H s,   e = M s,
        f_U without U = f_U − H_UU (M_UU)⁻¹ e_U    up to a constant.
    """

    def __init__(self, s: Array, values: Array, V: Array) -> None:
        self.values, self.V = values, V
        self.complete = V.shape[1] == len(s) - 1
        self._take(s)

    def _take(self, s: Array) -> None:
        self.s = s - s.mean(axis=0)
        self.b = self.V.T @ self.s
        self.rest = np.zeros_like(self.s) if self.complete else self.s - self.V @ self.b  # R s

    def with_scores(self, s: Array) -> RankingSpectrum:
        """Return the same decomposition with other scores of shape (m, k)."""
        other = copy.copy(self)
        other._take(s)
        return other

    def pairs(
        self, pairs: Array, alphas: Array, query_weighting: Any
    ) -> Iterator[tuple[Array, Array]]:
        """For each alpha, predictions of shape (n_pairs, 2, k) and which pairs are unsafe.

        Each pair is a 2 × 2 system; all pairs take a few array operations.
        """
        i, j = pairs.T
        for alpha in alphas:
            H, M, f, e, largest = self._matrices(alpha, query_weighting)
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

    def concordance(
        self, scores: Array, alphas: Array, query_weighting: Any, threads: int, first: Array
    ) -> Iterator[tuple[Array, Array]]:
        """For each alpha, Σ_{i<j} sign((s_i − s_j)(f_i − f_j)) over all left-out pairs.

        The sum has shape (k,). Unsafe pairs contribute zero and are returned second, (n_unsafe, 2).
        Equal rows, with the same number in ``first`` of shape (m,), are tied.
        The held-out difference of a pair is (f_i − a_ij e_i) − (f_j − b_ij e_j), b_ij = a_ji.
        """
        k = scores.shape[1]
        for alpha in alphas:
            matrices = self._matrices(alpha, query_weighting)
            count = partial(_concordance, *matrices, scores, first)
            parts = np.array_split(np.arange(k), min(k, threads))
            if len(parts) == 1:
                yield count(parts[0])
                continue
            with ThreadPoolExecutor(threads) as pool:
                found = list(pool.map(count, parts))
            yield np.concatenate([total for total, _ in found]), found[0][1]

    def _matrices(
        self, alpha: float, query_weighting: Any
    ) -> tuple[Array, Array, Array, Array, float]:
        """H, M, f, e and the largest eigenvalue of M, for leaving out two rows."""
        m, V = len(self.s), self.V
        nu = penalty(alpha, m - 2, query_weighting)
        h, w = self.values / (self.values + nu), nu / (self.values + nu)
        largest = 1.0 if not self.complete else float(w.max(initial=0.0))
        H = _sandwich(V, h)
        M = -H
        M -= 1.0 / m
        M.flat[:: m + 1] += 1.0
        # C − H cancels if H is close to C; then M is summed directly.
        if M.diagonal().min() < 1e-4:
            M = _sandwich(V, w)
            if not self.complete:
                M += np.eye(m) - 1.0 / m - V @ V.T
        e = self.rest + V @ (w[:, None] * self.b)
        return H, M, V @ (h[:, None] * self.b), e, largest


def _sandwich(V: Array, weight: Array) -> Array:
    """Compute V diag(weight) Vᵀ, as a symmetric product if the weights are positive."""
    if weight.min(initial=0.0) < 0:  # an indefinite kernel
        return (V * weight) @ V.T
    root = V * np.sqrt(weight)
    return root @ root.T


def _concordance(
    H: Array, M: Array, f: Array, e: Array, largest: float, s: Array, first: Array, outputs: Array
) -> tuple[Array, Array]:
    """Sums of `RankingSpectrum.concordance` for some outputs, by blocks of rows; unsafe pairs."""
    m = len(f)
    total, bad = np.zeros(len(outputs)), [np.empty((0, 2), dtype=np.int64)]
    columns = list(zip(*(values[:, outputs].T.copy() for values in (f, e, s)), strict=True))
    step = max(1, 2**15 // m)
    for start in range(0, m - 1, step):
        rows, later = slice(start, min(start + step, m)), slice(start, None)
        a, b, unsafe = _pair_factors(H, M, rows, largest)
        bad.append(np.argwhere(unsafe) + start)
        used = np.triu(~(unsafe | (first[rows, None] == first[later])), 1).astype(float)
        for number, (f_c, e_c, s_c) in enumerate(columns):
            t = b * e_c[later]
            t -= f_c[later]
            t -= a * e_c[rows, None] - f_c[rows, None]
            t *= s_c[rows, None] - s_c[later]
            total[number] += np.vdot(np.sign(t, out=t), used)
    return total, np.concatenate(bad)


def _pair_factors(H: Array, M: Array, rows: slice, largest: float) -> tuple[Array, Array, Array]:
    """Factors a, b and unsafe for the pairs of ``rows`` with all rows from the first of them on."""
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


class BipartiteSpectrum:
    """Leave-pair-out for two levels with tied pairs dropped: one row of each level is left out.

    Without the pair U = (p, q), the pairs of n₁' = n₁ − 1 upper and n₀' = n₀ − 1 lower rows add up
    to n₀' scatter(upper) + n₁' scatter(lower) + n₁' n₀' (z − gᵀf)², gᵀf = mean upper − mean lower,
    with the same constants for every pair. The two scatters are minimised by equal scores within a
    class: as observations they leave the mean of f at zero and only change its covariance. The last
    term is then a single observation of gᵀf, which moves f along C g.

    ``s`` of shape (m,) has exactly two levels, and ties are dropped in ``loss``. K is the kernel
    matrix; X, of shape (m, n), explicit features instead.

    Notes
    -----
    With D = n₀' on upper and n₁' on lower rows, K̂ = D^½ K D^½, W the two normalised class
    indicators and V, σ the eigenvectors and eigenvalues of K̂ beside them,

        T = V (σ + alpha)⁻¹ Vᵀ,   A = K̂ T,   B = K̂ − K̂ T K̂

    are the precision of the within-class data, the part it explains, and the remaining covariance.
    Leaving out U adds A_U (T_UU)⁻¹ A_Uᵀ to B. B is computed in the basis [V W], where cancellation
    can only occur in a 2 × 2 block. If it does, and for explicit features, K̂ = X̂X̂ᵀ is used: with
    the singular value decomposition V d Qᵀ of X̂ centred by class and Y = X̂Q,
    B = alpha Y (d² + alpha)⁻¹ Yᵀ.
    """

    def __init__(
        self, s: Array, loss: Loss, *, K: Array | None = None, X: Array | None = None
    ) -> None:
        m = len(s)
        low, high = s.min(), s.max()
        self.upper = s == high
        self.n1, self.n0 = int(self.upper.sum()), int(m - self.upper.sum())
        if min(self.n1, self.n0) < 2:
            raise ValueError("leave-pair-out needs at least two rows of each class")
        (self.z,), (weight,) = loss.of_pair.edges(np.array([high - low], dtype=float), 1.0)
        # Weighting of the remaining (n₁ − 1)(n₀ − 1) pairs of m − 2 rows.
        edges = (self.n1 - 1.0) * (self.n0 - 1.0)
        self.edge_weight = weight * float(query_factor(loss.query_weighting, m - 2.0, edges))
        self.root = np.sqrt(np.where(self.upper, self.n0 - 1.0, self.n1 - 1.0))
        self.everything = Groups(np.zeros(m, dtype=np.int64), None, 1)
        self.classes = Groups(self.upper.astype(np.int64), None, 2)
        self.W = self.classes.isometry.toarray()
        self.factors: tuple[Array, Array, Array] | None = None
        if K is not None:
            self.noise = np.finfo(float).eps * float((K.diagonal() * self.root**2).max())
            self.K = _both_sides(self.everything, K)
            self.K *= self.root[:, None] * self.root
            C = _both_sides(self.classes, self.K)
            made = EigenFactorization(C, np.inf, null=self.classes.isometry, noise=self.noise)
            self.values, self.V = made.values, made.vectors
            K_W = self.K @ self.W
            self.K_WW, self.K_WV = self.W.T @ K_W, K_W.T @ self.V
        else:
            assert X is not None
            self.factors = self._factors(self.everything.deviations(X) * self.root[:, None])
            left, d, _ = self.factors
            self.values, self.V = d[d > 0] ** 2, left[:, d > 0]

    def _factors(self, X_hat: Array) -> tuple[Array, Array, Array]:
        """V, d and Y = X̂Q of the singular value decomposition V d Qᵀ of X̂ centred by class."""
        left, d, Qt = np.linalg.svd(self.classes.deviations(X_hat), full_matrices=False)
        d[d <= rounding_level(d)] = 0.0
        return left, d, X_hat @ Qt.T

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
        T, A, B = self._matrices(alpha)
        n1, n0 = self.n1 - 1.0, self.n0 - 1.0
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
        if self.factors is not None:
            # v is small compared with its terms if the other rows of the class determine a row's
            # score.
            unsafe |= alpha * np.minimum(t_pp, t_qq) < CANCELLED
        det = np.where(unsafe, 1.0, det)
        u_p, u_q = (t_qq * v_p - t_pq * v_q) / det, (t_pp * v_q - t_pq * v_p) / det
        # Without U: cov(f_U, gᵀf) and var(gᵀf).
        x_p = c_p + a_pp * u_p + a_pq * u_q
        x_q = c_q + a_qp * u_p + a_qq * u_q
        spread = hBh - h_p * (Bh[p] + c_p) - h_q * (Bh[q] + c_q) + v_p * u_p + v_q * u_q
        scale = self.z / (spread + alpha / (n1 * n0))
        return np.column_stack([x_p / self.root[p], x_q / self.root[q]]) * scale[:, None], unsafe

    def _matrices(self, alpha: float) -> tuple[Array, Array, Array]:
        weight = 1.0 / (self.values + alpha)
        V, W = self.V, self.W
        T = (V * weight) @ V.T
        if V.shape[1] < len(V) - 2:  # directions outside the span of the features
            T += (np.eye(len(V)) - W @ W.T - V @ V.T) / alpha
        if self.factors is None:
            between = self.K_WW - (self.K_WV * weight) @ self.K_WV.T
            if np.linalg.eigvalsh(between)[0] > CANCELLED * np.trace(self.K_WW):
                A = (V * (self.values * weight)) @ V.T + W @ ((self.K_WV * weight) @ V.T)
                mixed = W @ ((self.K_WV * (alpha * weight)) @ V.T)
                B = (V * (alpha * self.values * weight)) @ V.T + mixed + mixed.T
                return T, A, B + W @ between @ W.T
            # The within-class data nearly determine the class means, so the difference has
            # cancelled.
            values, vectors = eigh(self.K)
            live = values > rounding_level(values, self.noise)
            self.factors = self._factors(vectors[:, live] * np.sqrt(values[live]))
        left, d, Y = self.factors
        weight = 1.0 / (d**2 + alpha)
        return T, (Y * (d * weight)) @ left.T, (Y * (alpha * weight)) @ Y.T


def _both_sides(groups: Groups, K: Array) -> Array:
    """C K C for the centring C of the groups."""
    return groups.deviations(np.ascontiguousarray(groups.deviations(K).T))
