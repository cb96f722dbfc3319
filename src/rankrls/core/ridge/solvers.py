"""Closed-form solvers: the primal system of explicit features and the dual system of a kernel.

Both are built from an `Objective` (L and r), factorise one symmetric matrix, and answer for
every alpha: the coefficients, the posterior variance of the Gaussian process whose mean the
model is, and its log marginal likelihood.

The process has covariance k and noise variance alpha/w² per edge. Scores are known up to a
constant only, so their variances are those of f(x) − f̄, with f̄ the mean over the training rows
that have an edge; variances of differences do not depend on that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls.core.linalg.factorizations import SpectralState, State, factorise
from rankrls.core.preferences.factors import Factor
from rankrls.core.preferences.objectives import Objective
from rankrls.core.preferences.statistics import Statistics

__all__ = ["DualSolver", "PrimalSolver"]

Array = NDArray[Any]


class _Solver:
    """S, its state, and the right-hand side b: coefficients B = (S + alpha I)⁻¹ b."""

    def __init__(
        self,
        data: Objective | Statistics,
        S: Array,
        b: Array,
        alphas: Array,
        *,
        in_range: bool,
        noise: float = 0.0,
    ) -> None:
        self.n_pairs = data.n_pairs
        self.log_weight = data.log_weight
        self.energy = data.energy
        self.outputs = data.outputs
        self.b = b
        self.state: State = factorise(S, alphas, b, in_range=in_range, noise=noise)

    def _solve(self, alphas: Array) -> Array:
        if isinstance(self.state, SpectralState):
            return self.state.solve_path(self.b, alphas)
        return np.stack([self.state.solve(self.b, float(alpha)) for alpha in alphas])

    def _log_likelihood(self, misfit: Array, alpha: float) -> Array:
        """−½ [misfit + log det(S + alpha I) + (l − p) log alpha − Σ log w² + l log 2π].

        ``misfit`` is zᵀ(MᵀKM + alpha W⁻¹)⁻¹z over the l edges. The determinant over edges
        follows from that over the p coordinates of S by Sylvester's identity.
        """
        n_edges, p = self.n_pairs, len(self.b)
        constant = (
            self.state.log_determinant(alpha)
            + (n_edges - p) * np.log(alpha)
            - self.log_weight
            + n_edges * np.log(2 * np.pi)
        )
        return -0.5 * (misfit + constant)


class PrimalSolver(_Solver):
    """(ΦᵀLΦ + alpha I) w = Φᵀ r.

    Parameters
    ----------
    statistics : Statistics
        ΦᵀLΦ, Φᵀr and the mean row of the features; ``gram`` may be overwritten.
    alphas : ndarray of shape (n_alphas,)
        The alphas that will be asked for.
    """

    def __init__(self, statistics: Statistics, alphas: Array) -> None:
        self.mean = statistics.mean
        self.mass = statistics.mass
        self.noise = statistics.noise
        S, b = statistics.gram, statistics.cross
        super().__init__(statistics, S, b, alphas, in_range=True, noise=statistics.noise)

    def statistics(self) -> Statistics:
        """The statistics that it was made from, in new arrays."""
        return Statistics(
            self.outputs,
            self.state.matrix(),
            self.b.copy(),
            self.mean.copy(),
            self.mass,
            self.energy.copy(),
            self.n_pairs,
            self.log_weight,
            self.noise,
        )

    def coefficients(self, alphas: Array) -> Array:
        """Weights w, shape (n_alphas, n, k)."""
        return self._solve(alphas)

    def variance(self, Phi: Array, alpha: float) -> Array:
        """Of f(x) − f̄ for features of shape (j, n): shape (j,)."""
        return self.difference_variance(Phi - self.mean, alpha)

    def difference_variance(self, Delta: Array, alpha: float) -> Array:
        """alpha δᵀ(ΦᵀLΦ + alpha I)⁻¹δ for differences of features, shape (j, n)."""
        return alpha * self.state.quadratic(Delta.T, alpha)

    def log_marginal_likelihood(self, alpha: float) -> Array:
        """Log density of the targets z of all edges, shape (k,)."""
        fitted = np.einsum("ij,ij->j", self.b, self.state.solve(self.b, alpha))
        return self._log_likelihood((self.energy - fitted) / alpha, alpha)


class DualSolver(_Solver):
    """A = F (FᵀKF + alpha I)⁻¹ t, the solution of (L K + alpha I) A = r for L = F Fᵀ, r = F t.

    Parameters
    ----------
    objective : Objective
    S : ndarray of shape (p, p)
        FᵀKF.
    factor : Factor
        F and t.
    row_means : ndarray of shape (m,)
        Mean of the kernel of every row with the rows that have an edge.
    alphas : ndarray of shape (n_alphas,)
        The alphas that will be asked for.
    noise : float
        Size of rounding errors in S, where it is more than eps ‖S‖.
    """

    def __init__(
        self,
        objective: Objective,
        S: Array,
        factor: Factor,
        row_means: Array,
        alphas: Array,
        noise: float = 0.0,
    ) -> None:
        self.factor = factor
        self.share = _row_share(objective)
        self.row_means = row_means
        k = len(objective.outputs)
        t = np.broadcast_to(factor.t, (factor.t.shape[0], k)).astype(S.dtype)
        super().__init__(objective, S, t, alphas, in_range=False, noise=noise)

    @classmethod
    def from_kernel(cls, objective: Objective, K: Array, alphas: Array) -> DualSolver:
        """From the kernel matrix of shape (m, m), which may be overwritten."""
        factor = objective.system.factor()
        row_means = K @ _row_share(objective).astype(K.dtype)
        # What cancels in FᵀKF (a constant in K, say) leaves rounding of this size.
        scale = float((K.diagonal() * objective.system.degree()).max())
        noise = float(np.finfo(K.dtype).eps) * scale
        return cls(objective, factor.sandwich(K), factor, row_means, alphas, noise)

    @classmethod
    def from_features(cls, objective: Objective, X: Any, alphas: Array) -> DualSolver:
        """From explicit features: FᵀKF = (FᵀX)(FᵀX)ᵀ when dense, by K = XXᵀ when sparse."""
        if sparse.issparse(X):
            return cls.from_kernel(objective, (X @ X.T).toarray(), alphas)
        factor = objective.system.factor()
        row_means = X @ (_row_share(objective).astype(X.dtype) @ X)
        X_F = factor._rmatmat(X)
        return cls(objective, X_F @ X_F.T, factor, row_means, alphas)

    def coefficients(self, alphas: Array) -> Array:
        """Kernel coefficients A, shape (n_alphas, m, k)."""
        B = self._solve(alphas)
        p = B.shape[1]
        stacked = self.factor._matmat(np.moveaxis(B, 0, 1).reshape(p, -1))
        return np.moveaxis(stacked.reshape(len(stacked), len(alphas), -1), 1, 0)

    def variance(self, K_X: Array, k_xx: Array, alpha: float) -> Array:
        """Of f(x) − f̄, shape (j,), from k(x, X) of shape (j, m) and k(x, x) of shape (j,).

        k̃(x, x) − k̃_xᵀF(FᵀKF + alpha I)⁻¹Fᵀk̃_x with k̃(x, x') = k − k̄(x) − k̄(x') + k̿.
        """
        mean = float(self.share @ self.row_means)
        prior = k_xx - 2 * (K_X @ self.share) + mean
        return self.difference_variance(K_X - self.row_means, prior, alpha)

    def difference_variance(self, Delta: Array, prior: Array, alpha: float) -> Array:
        """The prior variance less what the data explain, for differences of kernel rows (j, m)."""
        W = self.state.whiten(self.factor._rmatmat(np.ascontiguousarray(Delta.T)), alpha)
        return np.maximum(prior - np.einsum("ij,ij->j", W, W), 0.0)

    def log_marginal_likelihood(self, alpha: float) -> Array:
        """Log density of the targets z of all edges, shape (k,)."""
        unexplained = self.energy - np.einsum("ij,ij->j", self.b, self.b)
        misfit = unexplained / alpha + self.state.quadratic(self.b, alpha)
        return self._log_likelihood(misfit, alpha)


def _row_share(objective: Objective) -> Array:
    weight = objective.system.row_weight()
    return weight / weight.sum()
