"""Leaving out one row of each class of a bipartite ranking whose tied pairs do not count.

Without the pair U = (p, q), the pairs of n₁' = n₁ − 1 upper and n₀' = n₀ − 1 lower rows add up to

    n₀' scatter(upper) + n₁' scatter(lower) + n₁' n₀' (z − gᵀf)²,   gᵀf = mean upper − mean lower,

the same constants for every pair. The two scatters ask for nothing but equal scores within a
class: as observations they leave the mean of f at zero and only shape its covariance. The last
term is then a single observation of gᵀf, which moves f along C g.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from rankrls.core.preferences.groups import Groups
from rankrls.core.ridge.components import SINGULAR, spectrum_beside

__all__ = ["BipartiteSpectrum"]

Array = NDArray[Any]

#: Below this part of its terms the 2 × 2 block of B has lost too many digits.
CANCELLED = 1e-4


class BipartiteSpectrum:
    """The kernel, scaled by class and beside the constants of both, decomposed once.

    Parameters
    ----------
    s : ndarray of shape (m,)
        Scores with exactly two levels.
    loss : dict
        cost and query_weighting; ties are dropped.
    K : ndarray of shape (m, m), optional
        Kernel matrix.
    X : ndarray of shape (m, n), optional
        Explicit features instead of a kernel matrix.

    Notes
    -----
    With D = n₀' on upper and n₁' on lower rows, K̂ = D^½ K D^½, W the two normalised class
    indicators and V, σ the eigenvectors and eigenvalues of K̂ beside them,

        T = V (σ + alpha)⁻¹ Vᵀ,   A = K̂ T,   B = K̂ − K̂ T K̂

    are the precision of the within-class data, what it explains, and the covariance it leaves.
    Taking out U adds A_U (T_UU)⁻¹ A_Uᵀ to B. B is summed up in the basis [V W], where only a 2 × 2
    block can cancel. Where it does, and for explicit features, K̂ = X̂X̂ᵀ and, with the singular
    value decomposition V d Qᵀ of X̂ centred by class and Y = X̂Q, B = alpha Y (d² + alpha)⁻¹ Yᵀ.
    """

    def __init__(
        self, s: Array, loss: dict[str, str], *, K: Array | None = None, X: Array | None = None
    ) -> None:
        m = len(s)
        low, high = s.min(), s.max()
        self.upper = s == high
        self.n1, self.n0 = int(self.upper.sum()), int(m - self.upper.sum())
        if min(self.n1, self.n0) < 2:
            raise ValueError("leave-pair-out needs at least two rows of each class")
        self.z = 1.0 if loss["cost"] == "unit" else float(high - low)
        weight = float(high - low) ** -2 if loss["cost"] == "relative" else 1.0
        # The weighting of the pairs that stay, (n₁ − 1)(n₀ − 1) of them among m − 2 rows.
        divisor = {"pair": 1.0, "size": m - 2.0, "query": (self.n1 - 1.0) * (self.n0 - 1.0)}
        self.edge_weight = weight / divisor[loss["query_weighting"]]
        self.root = np.sqrt(np.where(self.upper, self.n0 - 1.0, self.n1 - 1.0))
        self.everything = Groups(np.zeros(m, dtype=np.int64), None, 1)
        self.classes = Groups(self.upper.astype(np.int64), None, 2)
        self.W = self.classes.isometry.toarray()
        self.K: Array | None = None
        self.factors: tuple[Array, Array, Array] | None = None
        if K is not None:
            self._decompose(K)
        else:
            assert X is not None
            self.factors = self._factors(self.everything.deviations(X) * self.root[:, None])
            left, d, _ = self.factors
            self.values, self.V = d[d > 0] ** 2, left[:, d > 0]

    def _decompose(self, K: Array) -> None:
        self.noise = np.finfo(float).eps * float((K.diagonal() * self.root**2).max())
        K = _both_sides(self.everything, K)
        K *= self.root[:, None] * self.root
        C = _both_sides(self.classes, K)
        self.values, self.V = spectrum_beside(C, self.classes.isometry, self.noise)
        K_W = K @ self.W
        self.K, self.K_WW, self.K_WV = K, self.W.T @ K_W, K_W.T @ self.V

    def _factors(self, X_hat: Array) -> tuple[Array, Array, Array]:
        """V, d and Y = X̂Q of the singular value decomposition V d Qᵀ of X̂ centred by class."""
        left, d, Qt = np.linalg.svd(self.classes.deviations(X_hat), full_matrices=False)
        d[d <= len(d) * np.finfo(float).eps * d.max(initial=0.0)] = 0.0
        return left, d, X_hat @ Qt.T

    def pairs(self, pairs: Array, alphas: Array) -> Iterator[tuple[Array, Array]]:
        """For each alpha, predictions of shape (n_pairs, 2, 1) and which pairs are unsafe."""
        swapped = ~self.upper[pairs[:, 0]]
        p, q = np.where(swapped, pairs[:, ::-1].T, pairs.T)
        if not self.upper[p].all() or self.upper[q].any():
            raise ValueError(
                "with tied pairs dropped, only pairs of different scores can be left out exactly"
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
            # v is small beside its terms where the other rows of its class fix a row's score.
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
        if V.shape[1] < len(V) - 2:  # directions that no feature reaches
            T += (np.eye(len(V)) - W @ W.T - V @ V.T) / alpha
        if self.factors is None:
            between = self.K_WW - (self.K_WV * weight) @ self.K_WV.T
            if np.linalg.eigvalsh(between)[0] > CANCELLED * np.trace(self.K_WW):
                A = (V * (self.values * weight)) @ V.T + W @ ((self.K_WV * weight) @ V.T)
                mixed = W @ ((self.K_WV * (alpha * weight)) @ V.T)
                B = (V * (alpha * self.values * weight)) @ V.T + mixed + mixed.T
                return T, A, B + W @ between @ W.T
            # The within-class data nearly fix the class means: the difference has cancelled.
            assert self.K is not None
            values, vectors = eigh(self.K)
            live = values > len(V) * max(np.finfo(float).eps * values[-1], self.noise)
            self.factors = self._factors(vectors[:, live] * np.sqrt(values[live]))
        left, d, Y = self.factors
        weight = 1.0 / (d**2 + alpha)
        return T, (Y * (d * weight)) @ left.T, (Y * (alpha * weight)) @ Y.T


def _both_sides(groups: Groups, K: Array) -> Array:
    """C K C for the centring C of the groups."""
    return groups.deviations(np.ascontiguousarray(groups.deviations(K).T))
