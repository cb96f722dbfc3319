"""Fitted least-squares models: coefficients for each alpha, predictions, and the posterior.

There are three representations of the same function: weights of explicit features (`LinearModel`),
coefficients of all training rows (`KernelModel`), and coefficients of basis vectors
(`NystroemModel`). Each uses a *solver*, `PrimalSolver` or `DualSolver`, for each group of outputs
that share L. A solver is a factorised symmetric matrix with a right-hand side; it computes the
coefficients for each alpha, and the posterior variance and the log marginal likelihood of the
Gaussian process whose mean is the model.

The process has covariance k and noise variance alpha/w² for each edge. Scores are determined only
up to a constant, so their variances are those of f(x) − f̄, with f̄ the mean over the training rows
that have an edge; variances of differences do not depend on this choice.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh, qr

from rankrls import _resources
from rankrls._calls import Progress, warn, whole_call
from rankrls.core.linalg.factorizations import Factorization, factorize, is_graded
from rankrls.core.preferences.laplacian import Factor, Objective, RotatedFactor
from rankrls.core.preferences.query_weights import CANCELLED, Groups
from rankrls.core.preferences.statistics import Statistics
from rankrls.core.spaces.path_model import linear_product, of_alpha
from rankrls.core.spaces.spaces import (
    Basis,
    DualSpace,
    Kernel,
    NystroemSpace,
    replace_columns,
    subtract,
)

__all__ = [
    "LOST_DIGITS",
    "DroppedSolver",
    "DualSolver",
    "KernelModel",
    "LinearModel",
    "Model",
    "NystroemModel",
    "PrimalSolver",
    "solve_statistics",
    "warn_lost_digits",
]

Array = NDArray[Any]

#: Largest acceptable relative error of the faster computation of the Nyström system.
MAX_LOSS = 1e-9

#: A warning is issued if the estimated relative error of coefficients is above this: for features
#: of too different scales.
LOST_DIGITS = 1e-6

#: Number of kernel values or dense features in memory at a time when variances are computed.
WORK = 2**20


# -- solvers ----------------------------------------------------------------------------------


class _Solver:
    """S, its factorisation, and the right-hand side b: coefficients B = (S + alpha I)⁻¹ b."""

    def __init__(
        self, data: Objective | Statistics, b: Array, factorization: Factorization
    ) -> None:
        self.n_pairs = data.n_pairs
        self.log_weight = data.log_weight
        self.energy = data.energy
        self.outputs = data.outputs
        self.b = b
        self.factorization = factorization

    def _log_likelihood(self, misfit: Array, alpha: float) -> Array:
        """−½ [misfit + log det(S + alpha I) + (l − p) log alpha − Σ log w² + l log 2π].

        ``misfit`` is zᵀ(MᵀKM + alpha W⁻¹)⁻¹z over the l edges. The determinant over edges
        follows from that over the p coordinates of S by Sylvester's identity.
        """
        n_edges, p = self.n_pairs, len(self.b)
        constant = (
            self.factorization.log_determinant(alpha)
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
        The alphas for which solutions will be requested.
    for_path : bool
        Whether solutions for more alphas will be requested.
    scaled : bool
        Whether the scales of the features may be very different.
    """

    def __init__(
        self,
        statistics: Statistics,
        alphas: Array,
        *,
        for_path: bool = False,
        scaled: bool = True,
    ) -> None:
        self.mean = statistics.mean
        self.mass = statistics.mass
        self.largest = statistics.largest
        self.largest_energy = statistics.largest_energy
        self.rounding = statistics.rounding
        S, b = statistics.gram, statistics.cross
        made = factorize(S, alphas, b, in_range=True, scaled=scaled, for_path=for_path)
        super().__init__(statistics, b, made)

    def statistics(self) -> Statistics:
        """The statistics of the solver, in new arrays."""
        return Statistics(
            self.outputs,
            self.factorization.matrix(),
            self.b.copy(),
            self.mean.copy(),
            self.mass,
            self.energy.copy(),
            self.n_pairs,
            self.log_weight,
            self.largest.copy(),
            self.rounding,
            self.largest_energy.copy(),
        )

    def coefficients(self, alphas: Array) -> Array:
        """Weights w, shape (n_alphas, n, k)."""
        return self.factorization.solve_path(self.b, alphas)

    def variance(self, Phi: Array, alpha: float) -> Array:
        """Variance of f(x) − f̄ for features of shape (j, n), shape (j,)."""
        return self.difference_variance(Phi - self.mean, alpha)

    def difference_variance(self, Delta: Array, alpha: float) -> Array:
        """alpha δᵀ(ΦᵀLΦ + alpha I)⁻¹δ for differences of features, shape (j, n)."""
        return alpha * self.factorization.quadratic(Delta.T, alpha)

    def posterior_root(self, Phi: Array, alpha: float) -> Array:
        """Z of shape (j, n) with Z Zᵀ = alpha Φ(ΦᵀLΦ + alpha I)⁻¹Φᵀ."""
        sigma, V = eigh(self.factorization.matrix(), driver="evd", check_finite=False)
        return (Phi @ V) * np.sqrt(alpha / (np.maximum(sigma, 0.0) + alpha))

    def log_marginal_likelihood(self, alpha: float) -> Array:
        """Log density of the targets z of all edges, shape (k,)."""
        solution = self.factorization.solve(self.b, alpha)
        fitted = np.einsum("ij,ij->j", self.b, solution)
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
        Mean kernel value of each row with the rows that have an edge.
    alphas : ndarray of shape (n_alphas,)
        The alphas for which solutions will be requested.
    noise : float
        Size of the rounding errors in S, if it exceeds eps ‖S‖.
    for_path : bool
        Whether solutions for more alphas, and held-out predictions, will be requested.
    scaled : bool
        Whether S was made with a `RotatedFactor`.
    """

    def __init__(
        self,
        objective: Objective,
        S: Array,
        factor: Factor,
        row_means: Array,
        alphas: Array,
        *,
        noise: float = 0.0,
        for_path: bool = False,
        scaled: bool = False,
    ) -> None:
        self.factor = factor
        self.share = row_share(objective)
        self.row_means = row_means
        k = len(objective.outputs)
        t = np.broadcast_to(factor.t, (factor.t.shape[0], k)).astype(S.dtype)
        null = factor.null() if for_path else None
        # Rounding errors of a constant part of K, which cancels in FᵀKF, relative to FᵀKF.
        cancelled = noise > 100 * float(np.finfo(S.dtype).eps) * float(np.linalg.norm(S))
        made = factorize(
            S,
            alphas,
            t,
            in_range=False,
            scaled=scaled,
            noise=noise,
            null=null,
            for_path=for_path,
        )
        if cancelled:
            made.loss = max(made.loss, len(S) * noise / float(alphas.min()))
        super().__init__(objective, t, made)

    @classmethod
    def from_kernel(
        cls,
        objective: Objective,
        K: Array,
        alphas: Array,
        *,
        for_path: bool = False,
        eps: float | None = None,
    ) -> DualSolver:
        """Make a solver from the kernel matrix of shape (m, m), which may be overwritten.

        ``eps`` is the relative rounding error of its entries; by default that of its dtype.
        """
        factor = _factor(objective, for_path)
        row_means = K @ row_share(objective).astype(K.dtype)
        # Parts of K that cancel in FᵀKF (such as a constant) leave rounding errors of this size.
        scale = float((K.diagonal() * objective.laplacian.degree()).max())
        noise = (float(np.finfo(K.dtype).eps) if eps is None else eps) * scale
        S = factor.sandwich(K)
        return cls(objective, S, factor, row_means, alphas, noise=noise, for_path=for_path)

    @classmethod
    def from_features(
        cls, objective: Objective, X: Any, alphas: Array, *, for_path: bool = False
    ) -> tuple[DualSolver, Array | None]:
        """Make a solver from features: FᵀKF = (FᵀX)(FᵀX)ᵀ if dense, from K = XXᵀ if sparse.

        Also returns Rᵀ of shape (n, p) if the weights of the features are Rᵀ times the solution;
        otherwise they are Xᵀ A.

        Notes
        -----
        In XXᵀ, columns that are small compared with others are lost to rounding. If the scales of
        the columns differ that much, FᵀX = QR is computed with the columns in descending order of
        their norms, and F is replaced by F Q (any factor of L can be used). Then S = RRᵀ is graded
        from large to small, and a Cholesky factorisation is accurate in all of its parts.
        """
        if sparse.issparse(X):
            X = _centre_by_component(X, objective)
            squares = np.asarray(X.multiply(X).sum(axis=0), dtype=np.float64).ravel()
            if not is_graded(squares, float(alphas.min())):
                K = (X @ X.T).toarray()
                return cls.from_kernel(objective, K, alphas, for_path=for_path), None
            X = X.toarray()
        advice = "use fewer features, or sparse ones with solver='cg'"
        size = X.dtype.itemsize
        _resources.require("the dual solver", *X.shape, itemsize=size, copies=2, advice=advice)
        factor = _factor(objective, for_path)
        row_means = X @ (row_share(objective).astype(X.dtype) @ X)
        X_F = factor.rmatmat(X)
        squares = np.einsum("ij,ij->j", X_F, X_F, dtype=np.float64)
        # Columns that are constant in every query, up to the rounding errors of centring.
        whole = objective.laplacian.degree() @ np.square(X, dtype=np.float64)
        rounding = squares <= 64 * float(np.finfo(X.dtype).eps) ** 2 * whole
        X_F[:, rounding & np.isfinite(squares)] = 0.0
        overflow = not np.isfinite(squares).all()  # which `factorize` reports
        if overflow or not is_graded(squares, float(alphas.min())):
            S = X_F @ X_F.T
            return cls(objective, S, factor, row_means, alphas, for_path=for_path), None
        order = np.argsort(-squares, kind="stable")
        Q, R = qr(X_F[:, order].astype(np.float64), mode="full", check_finite=False)
        Rt = np.empty((X.shape[1], len(R)))
        Rt[order] = R.T
        rotated = RotatedFactor(factor, Q)
        return cls(objective, R @ R.T, rotated, row_means, alphas, scaled=True), Rt

    def coordinates(self, alphas: Array) -> Array:
        """(FᵀKF + alpha I)⁻¹t, shape (n_alphas, p, k)."""
        return self.factorization.solve_path(self.b, alphas)

    def coefficients(self, alphas: Array) -> Array:
        """Kernel coefficients A, shape (n_alphas, m, k)."""
        B = self.coordinates(alphas)
        p = B.shape[1]
        stacked = self.factor.matmat(np.moveaxis(B, 0, 1).reshape(p, -1))
        return np.moveaxis(stacked.reshape(len(stacked), len(alphas), -1), 1, 0)

    def variance(self, K_X: Array, k_xx: Array, alpha: float) -> Array:
        """Variance of f(x) − f̄, shape (j,), from k(x, X), (j, m), and k(x, x), (j,).

        k̃(x, x) − k̃_xᵀF(FᵀKF + alpha I)⁻¹Fᵀk̃_x with k̃(x, x') = k − k̄(x) − k̄(x') + k̿.
        """
        mean = float(self.share @ self.row_means)
        prior = k_xx - 2 * (K_X @ self.share) + mean
        return self.difference_variance(K_X - self.row_means, prior, alpha)

    def difference_variance(self, Delta: Array, prior: Array, alpha: float) -> Array:
        """Prior variance minus the explained part, for differences of kernel rows (j, m)."""
        F_Delta = self.factor.rmatmat(np.ascontiguousarray(Delta.T))
        W = self.factorization.whiten(F_Delta, alpha)
        return np.maximum(prior - np.einsum("ij,ij->j", W, W), 0.0)

    def posterior_root(self, K_X: Array, K_XX: Array, alpha: float) -> Array:
        """Z of shape (j, j) such that Z Zᵀ is the posterior covariance of differences of rows.

        Computed from k(x, X) of shape (j, m), and k(x, x') among the rows, (j, j), which is
        overwritten.
        """
        W = self.factorization.whiten(self.factor.rmatmat(np.ascontiguousarray(K_X.T)), alpha)
        K_XX -= W.T @ W
        values, vectors = eigh(K_XX, driver="evd", overwrite_a=True, check_finite=False)
        return vectors * np.sqrt(np.maximum(values, 0.0))

    def log_marginal_likelihood(self, alpha: float) -> Array:
        """Log density of the targets z of all edges, shape (k,)."""
        unexplained = self.energy - np.einsum("ij,ij->j", self.b, self.b)
        misfit = unexplained / alpha + self.factorization.quadratic(self.b, alpha)
        return self._log_likelihood(misfit, alpha)


class DroppedSolver:
    """Placeholder for a removed solver, which only keeps its outputs.

    Parameters
    ----------
    outputs : ndarray of shape (k,), int
    """

    def __init__(self, outputs: Array) -> None:
        self.outputs = outputs

    def variance(self, *args: Any) -> NoReturn:
        """Raise an error, because the solver was removed."""
        raise ValueError(
            "this model was saved with uncertainty=False and can only predict scores; "
            "for return_std, preference_proba, "
            "log_marginal_likelihood, partial_fit and forget fit it again, or save it with "
            "uncertainty=True"
        )

    difference_variance = variance
    posterior_root = variance
    log_marginal_likelihood = variance
    statistics = variance


def row_share(objective: Objective) -> Array:
    """Weight of each row that has an edge, divided by their sum, shape (m,)."""
    weight = objective.laplacian.row_weight()
    return weight / weight.sum()


def _centre_by_component(X: Any, objective: Objective) -> Any:
    """Centre, by component, the columns of sparse X that hardly vary within components.

    Such an offset cancels in FᵀXXᵀF, but would leave its rounding errors in XXᵀ.
    """
    codes = np.unique(objective.laplacian.components(), return_inverse=True)[1]
    groups = Groups(codes, None, int(codes.max()) + 1)
    means = groups.mean(X)
    squares = np.asarray(X.multiply(X).sum(axis=0), dtype=np.float64).ravel()
    explained = np.asarray(groups.total @ means.multiply(means)).ravel()
    columns = np.flatnonzero(squares - explained < CANCELLED * squares)
    if not len(columns):
        return X
    return replace_columns(X, columns, groups.deviations(X[:, columns].toarray()))


def _factor(objective: Objective, for_path: bool) -> Factor:
    """Return a factor with a known null space for hold-outs, otherwise the cheapest factor."""
    laplacian = objective.laplacian
    return laplacian.independent_factor() if for_path else laplacian.factor()


# -- models -----------------------------------------------------------------------------------


class Model(ABC):
    """A function of rows for each alpha of a path.

    Attributes
    ----------
    alphas : ndarray of shape (n_alphas,)
    solvers : list
        One for each objective; together they cover all outputs.
    coef : ndarray of shape (n_alphas, n_features, n_outputs) or None
        Weights of the features, if the kernel is linear.
    dual_coef : ndarray of shape (n_alphas, n_kernel_rows, n_outputs) or None
        Coefficients of kernel rows, if the model has them.
    pair_coef : ndarray of shape (n_alphas, q, n_outputs) or None
        Coefficients of covariates of given pairs, if there were any.
    """

    alphas: Array
    solvers: Sequence[Any]
    coef: Array | None = None
    dual_coef: Array | None = None
    pair_coef: Array | None = None

    @property
    def lost(self) -> float:
        """Approximate relative rounding error of the coefficients of graded features."""
        return max((solver.factorization.loss for solver in self.solvers), default=0.0)

    @abstractmethod
    def predict(self, X: Any, index: int | None = 0) -> Array:
        """Predict for ``alphas[index]``, shape (n, n_outputs); for all alphas if None."""

    @abstractmethod
    def variance(self, X: Any) -> Array:
        """Posterior variance of the score of each row, shape (n, n_outputs)."""

    @abstractmethod
    def difference_variance(self, X_a: Any, X_b: Any, C: Array | None = None) -> Array:
        """Posterior variance of f(x_a) − f(x_b), row by row, shape (n, n_outputs).

        With covariates C of the comparisons, shape (n, q), of f(x_a) − f(x_b) + cᵀγ.
        """

    @abstractmethod
    def posterior_root(self, X: Any) -> Array:
        """Z of shape (n, r): (Z_a − Z_b)(Z_c − Z_d)ᵀ is the posterior covariance of differences.

        For the first output. With a Nyström basis, only the part spanned by the basis is included.
        """

    def log_marginal_likelihood(self) -> Array:
        """Log density of the targets of all edges, shape (n_outputs,)."""
        return self._gather([s.log_marginal_likelihood(self.alpha) for s in self.solvers])

    @property
    def alpha(self) -> float:
        """The first alpha, which is used for uncertainties."""
        return float(self.alphas[0])

    @property
    def n_outputs(self) -> int:
        """Total number of outputs of all solvers."""
        return sum(len(solver.outputs) for solver in self.solvers)

    def without_uncertainty(self) -> Model:
        """Return a smaller model with the same predictions and no uncertainties."""
        slim = copy.copy(self)
        slim.solvers = [DroppedSolver(solver.outputs) for solver in self.solvers]
        return slim

    def _split(self, weights: Array, n_covariates: int) -> Array:
        """Store the coefficients of covariates, which come last, and return the others."""
        if not n_covariates:
            return weights
        self.pair_coef = weights[:, -n_covariates:]
        return weights[:, :-n_covariates]

    def _beside(self, Phi: Array, C: Array | None = None) -> Array:
        """Concatenate features and covariates (zero if none are given)."""
        if self.pair_coef is None:
            return Phi
        return np.hstack([Phi, np.zeros((len(Phi), self.pair_coef.shape[1])) if C is None else C])

    def _gather(self, parts: list[Array]) -> Array:
        """Put the solvers' columns (last axis) in the order of the outputs."""
        columns = np.concatenate([solver.outputs for solver in self.solvers])
        joined = np.concatenate(parts, axis=-1)
        out = np.empty_like(joined)
        out[..., columns] = joined
        return out

    def _spread(self, per_solver: list[Array]) -> Array:
        """Assign the values of each solver to its outputs, shape (n, n_outputs)."""
        counts = [len(solver.outputs) for solver in self.solvers]
        parts = zip(per_solver, counts, strict=True)
        return self._gather([np.repeat(values[:, None], k, axis=1) for values, k in parts])


class LinearModel(Model):
    """f(x) = ⟨w, x⟩ from the normal equations of X.

    Parameters
    ----------
    solvers : sequence of PrimalSolver, together covering all outputs
    alphas : ndarray of shape (n_alphas,)
    dtype : of the coefficients
    n_covariates : int
        Number of covariates of given pairs, which are the last features of the solvers.
    """

    def __init__(
        self,
        solvers: Sequence[PrimalSolver],
        alphas: Array,
        dtype: Any,
        n_covariates: int = 0,
    ) -> None:
        self.alphas = alphas
        self.solvers = solvers
        coef = self._gather([solver.coefficients(alphas) for solver in self.solvers])
        self.coef = self._split(coef, n_covariates).astype(dtype, copy=False)

    def predict(self, X: Any, index: int | None = 0) -> Array:
        """X w."""
        assert self.coef is not None
        return linear_product(X, of_alpha(self.coef, index))

    def variance(self, X: Any) -> Array:
        """See `PrimalSolver.variance`."""

        def of(part: slice) -> Array:
            Phi = self._beside(_dense(X[part]))
            return self._spread([s.variance(Phi, self.alpha) for s in self.solvers])

        return _by_rows(of, X.shape)

    def difference_variance(self, X_a: Any, X_b: Any, C: Array | None = None) -> Array:
        """See `PrimalSolver.difference_variance`."""

        def of(part: slice) -> Array:
            beside = None if C is None else C[part]
            Delta = self._beside(_dense(X_a[part] - X_b[part]), beside)
            return self._spread([s.difference_variance(Delta, self.alpha) for s in self.solvers])

        return _by_rows(of, X_a.shape)

    def posterior_root(self, X: Any) -> Array:
        """See `PrimalSolver.posterior_root`; the rows are centred, which differences ignore."""
        Phi = _dense(X).astype(np.float64)
        return self.solvers[0].posterior_root(self._beside(Phi - Phi.mean(axis=0)), self.alpha)


class NystroemModel(Model):
    """f(x) = Σ_R a_i k(x, x_i) from the primal system of the Nyström features.

    Parameters
    ----------
    basis : Basis
    solvers : sequence of PrimalSolver of the features, together covering all outputs
    alphas : ndarray of shape (n_alphas,)
    dtype : of the coefficients
    n_covariates : int
        Number of covariates of given pairs, which are the last features of the solvers.
    """

    def __init__(
        self,
        basis: Basis,
        solvers: Sequence[PrimalSolver],
        alphas: Array,
        dtype: Any,
        n_covariates: int = 0,
    ) -> None:
        self.alphas = alphas
        self.basis = basis
        self.kernel = basis.kernel
        self.solvers = solvers
        weights = self._gather([solver.coefficients(alphas) for solver in solvers])
        weights = self._split(weights, n_covariates)
        self._a = basis.map.coefficients(weights).astype(dtype, copy=False)
        self.dual_coef = np.zeros((len(alphas), len(basis.indices), weights.shape[-1]), dtype)
        self.dual_coef[:, basis.map.kept] = self._a
        if self.kernel.linear:
            self.coef = np.stack([basis.rows.T @ a for a in self._a])

    @classmethod
    def from_rows(
        cls, objectives: Sequence[Objective], space: NystroemSpace, alphas: Array
    ) -> NystroemModel:
        """Fit to the training rows of a space."""
        covariates = objectives[0].covariates
        if covariates is not None:
            parts = [Statistics.of(objective, space.features) for objective in objectives]
            solvers = [PrimalSolver(part, alphas, scaled=False) for part in parts]
            return cls(space.basis, solvers, alphas, space.block.dtype, len(covariates.cross))

        def statistics(whitened: bool) -> list[Statistics]:
            Phi = space.basis.map.features(space.block) if whitened else space.block
            return [Statistics.of(objective, Phi) for objective in objectives]

        return cls.from_statistics(statistics, space.basis, alphas, space.block.dtype)

    @classmethod
    def from_statistics(
        cls,
        statistics: Callable[[bool], Sequence[Statistics]],
        basis: Basis,
        alphas: Array,
        dtype: Any,
    ) -> NystroemModel:
        """Fit to ``statistics(False)`` of kernel blocks or ``statistics(True)`` of features.

        The whitened statistics of the kernel blocks are used if they are accurate enough, otherwise
        those of the features.
        """
        nystroem = basis.map
        solvers: list[PrimalSolver | None] = []
        if nystroem.rounding < MAX_LOSS:
            for raw in statistics(False):
                gram, cross, mean = nystroem.whiten(raw.gram, raw.cross, raw.mean)
                rounding = max(raw.rounding, nystroem.rounding)
                largest = gram.diagonal().copy()
                whitened = replace(
                    raw, gram=gram, cross=cross, mean=mean, largest=largest, rounding=rounding
                )
                solver = PrimalSolver(whitened, alphas, scaled=False)
                loss = nystroem.rounding * solver.factorization.condition(float(alphas.min()))
                solvers.append(solver if loss < MAX_LOSS else None)
        if not solvers or None in solvers:
            exact = statistics(True)
            found = zip(solvers or [None] * len(exact), exact, strict=True)
            solvers = [solver or PrimalSolver(part, alphas, scaled=False) for solver, part in found]
        return cls(basis, cast(list[PrimalSolver], solvers), alphas, dtype)

    def predict(self, X: Any, index: int | None = 0) -> Array:
        """k(X, R) a."""
        if self.coef is not None:
            return linear_product(X, of_alpha(self.coef, index))
        if self.basis.rows is None:
            return linear_product(self.basis.block(X), of_alpha(self._a, index))
        X = subtract(X, self.basis.shift)
        return self.kernel.product(X, self.basis.rows, of_alpha(self._a, index))

    def variance(self, X: Any) -> Array:
        """Variance of the weights, plus that of the part outside the basis, k(x, x) − φᵀφ.

        The reference f̄ is the mean of the training rows in the span of the basis, φ̄ᵀw; the part
        of the mean outside the basis is not counted.
        """
        _refuse_precomputed(self.kernel)

        def of(part: slice) -> Array:
            Phi = self.basis.features(X[part])
            rest = self.kernel.paired(X[part]) - np.einsum("ij,ij->i", Phi, Phi)
            Phi = self._beside(Phi)
            explained = self._spread([s.variance(Phi, self.alpha) for s in self.solvers])
            return explained + np.maximum(rest, 0.0)[:, None]

        return _by_rows(of, (X.shape[0], len(self.basis.kept)))

    def difference_variance(self, X_a: Any, X_b: Any, C: Array | None = None) -> Array:
        """Compute the same variance at φ_a − φ_b."""
        _refuse_precomputed(self.kernel)

        def of(part: slice) -> Array:
            a, b = subtract(X_a[part], self.basis.shift), subtract(X_b[part], self.basis.shift)
            Delta = self.basis.features(X_a[part]) - self.basis.features(X_b[part])
            rest = self.kernel.squared_distance(a, b) - np.einsum("ij,ij->i", Delta, Delta)
            Delta = self._beside(Delta, None if C is None else C[part])
            explained = [s.difference_variance(Delta, self.alpha) for s in self.solvers]
            return self._spread(explained) + np.maximum(rest, 0.0)[:, None]

        return _by_rows(of, (X_a.shape[0], len(self.basis.kept)))

    def posterior_root(self, X: Any) -> Array:
        """See `PrimalSolver.posterior_root`."""
        Phi = self._beside(self.basis.features(X).astype(np.float64, copy=False))
        return self.solvers[0].posterior_root(Phi, self.alpha)

    def kernel_terms(self, X: Any) -> tuple[Array, Array, Array]:
        """Training rows (q,), kernel values with them (n, q) and coefficients (q, n_outputs)."""
        return self.basis.kept, self.basis.block(X), self._a[0]


class KernelModel(Model):
    """f(x) = Σ_i A_i k(x, x_i) from the dual system.

    Parameters
    ----------
    space : DualSpace
    used : ndarray of shape (m',), int
        Rows with an edge, used by the solvers; the other rows have coefficient zero.
    solvers : sequence of DualSolver, together covering all outputs
    weights : sequence of ndarray of shape (n, p), or None
        For each solver, the second result of `DualSolver.from_features`.
    alphas : ndarray of shape (n_alphas,)
    dtype : of the coefficients
    """

    def __init__(
        self,
        space: DualSpace,
        used: Array,
        solvers: Sequence[DualSolver],
        weights: Sequence[Array | None],
        alphas: Array,
        dtype: Any,
    ) -> None:
        self.alphas = alphas
        self.kernel = space.kernel
        self.used = used
        self.shift = space.shift
        self.rows = space.rows
        m = space.n_rows
        if self.rows is not None and len(used) < m:
            self.rows = self.rows[used]
        self.solvers = solvers
        A = self._gather([solver.coefficients(alphas) for solver in solvers])
        self._A = A.astype(dtype, copy=False)
        self.dual_coef = self._A
        if len(used) < m:
            self.dual_coef = np.zeros((len(alphas), m, A.shape[-1]), dtype=dtype)
            self.dual_coef[:, used] = self._A
        if self.kernel.linear:
            parts = []
            for solver, Rt in zip(solvers, weights, strict=True):
                if Rt is None:
                    found = [self.rows.T @ a for a in self._A[..., solver.outputs]]
                else:
                    found = [Rt @ b for b in solver.coordinates(alphas)]
                parts.append(np.stack(found))
            self.coef = self._gather(parts).astype(dtype, copy=False)

    def without_uncertainty(self) -> Model:
        """For a linear kernel, keep the weights and drop the training rows."""
        slim = super().without_uncertainty()
        if self.coef is None:
            return slim
        linear = LinearModel.__new__(LinearModel)
        linear.alphas, linear.solvers = self.alphas, slim.solvers
        linear.coef, linear.dual_coef = self.coef, self.dual_coef
        return linear

    def _kernel_with_training(self, X: Any) -> Array:
        """Kernel values of centred rows X with the training rows, shape (n, m')."""
        return self.kernel(X, self.rows) if self.rows is not None else np.take(X, self.used, axis=1)

    def predict(self, X: Any, index: int | None = 0) -> Array:
        """k(X, X_fit) A."""
        if self.coef is not None:
            return linear_product(X, of_alpha(self.coef, index))
        if self.rows is None:
            return linear_product(self._kernel_with_training(X), of_alpha(self._A, index))
        X = subtract(X, self.shift)
        return self.kernel.product(X, self.rows, of_alpha(self._A, index))

    def variance(self, X: Any) -> Array:
        """See `DualSolver.variance`."""
        _refuse_precomputed(self.kernel)

        def of(part: slice) -> Array:
            rows = subtract(X[part], self.shift)
            K_X, k_xx = self._kernel_with_training(rows), self.kernel.paired(rows)
            return self._spread([s.variance(K_X, k_xx, self.alpha) for s in self.solvers])

        return _by_rows(of, (X.shape[0], len(self.used)))

    def difference_variance(self, X_a: Any, X_b: Any, C: Array | None = None) -> Array:
        """See `DualSolver.difference_variance`."""
        assert C is None  # covariates need explicit features, see `choose_space`
        _refuse_precomputed(self.kernel)

        def of(part: slice) -> Array:
            a, b = subtract(X_a[part], self.shift), subtract(X_b[part], self.shift)
            prior = self.kernel.squared_distance(a, b)
            Delta = self._kernel_with_training(a) - self._kernel_with_training(b)
            variances = [s.difference_variance(Delta, prior, self.alpha) for s in self.solvers]
            return self._spread(variances)

        return _by_rows(of, (X_a.shape[0], len(self.used)))

    def posterior_root(self, X: Any) -> Array:
        """See `DualSolver.posterior_root`."""
        _refuse_precomputed(self.kernel)
        rows = subtract(X, self.shift)
        K_X, K_XX = self._kernel_with_training(rows), self.kernel(rows)
        values = (K.astype(np.float64) for K in (K_X, K_XX))
        return self.solvers[0].posterior_root(*values, self.alpha)

    def kernel_terms(self, X: Any) -> tuple[Array, Array, Array]:
        """Training rows (q,), kernel values with them (n, q) and coefficients (q, n_outputs)."""
        return self.used, self._kernel_with_training(subtract(X, self.shift)), self._A[0]


def _by_rows(of: Callable[[slice], Array], shape: tuple[int, ...]) -> Array:
    """Compute values of all rows in blocks, to limit the work space; several show progress."""
    n, width = shape
    size = max(1, WORK // max(width, 1))
    if n <= size:
        return of(slice(0, size))
    parts = []
    with whole_call():
        progress = Progress("predict", 0)
        for start in range(0, n, size):
            progress.bar(start, n, "posterior variances of rows")
            parts.append(of(slice(start, start + size)))
    return np.concatenate(parts)


def _dense(X: Any) -> Array:
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


def _refuse_precomputed(kernel: Kernel) -> None:
    if kernel.precomputed:
        raise ValueError(
            "uncertainties need k(x, x) of the new rows, which kernel='precomputed' does not "
            "give: use a named kernel or a callable"
        )


# -- solutions from statistics ----------------------------------------------------------------


@np.errstate(over="ignore", invalid="ignore")
def solve_statistics(
    statistics: Sequence[Statistics],
    basis: Basis | None,
    alphas: Array,
    dtype: Any,
    names: Sequence[str] | None = None,
) -> Model:
    """Solve from precomputed statistics, whose arrays may be overwritten.

    Parameters
    ----------
    statistics : sequence of Statistics, together covering all outputs
        Statistics of the features, or of the Nyström features of ``basis``.
    basis : Basis or None
    alphas : ndarray of shape (n_alphas,)
    dtype : of the coefficients
    names : sequence of str, optional
        Names of the features, for warnings.
    """
    solvers = [PrimalSolver(part, alphas, scaled=basis is None) for part in statistics]
    if basis is not None:
        return NystroemModel(basis, solvers, alphas, dtype)
    model = LinearModel(solvers, alphas, dtype)
    if model.lost > LOST_DIGITS:
        warn_lost_digits(model.lost, np.sqrt(solvers[0].largest), names)
    return model


def warn_lost_digits(loss: float, scale: Array, names: Sequence[str] | None) -> None:
    """Warn that the scales of the features, of shape (n,), are too different for float64."""
    present = np.flatnonzero(scale > 0)
    ends = present[[int(np.argmax(scale[present])), int(np.argmin(scale[present]))]]
    largest, smallest = (f"column {c}" if names is None else repr(str(names[c])) for c in ends)
    ratio = scale[ends[0]] / scale[ends[1]]
    warn(
        "the features have scales that are too different for float64, and depend on each other: "
        f"coefficients are accurate to about {min(loss, 1.0):.0e} (relative). The largest is "
        f"{largest}, {ratio:.0e} times the smallest, {smallest}: scale the features, or increase "
        "alpha"
    )
