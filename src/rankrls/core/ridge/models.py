"""Fitted functions: coefficients for each alpha, predictions, and the posterior.

A `FittedFunction` is a linear function, a sum over all training rows (kernels), or a sum over basis
vectors (Nyström). Its posterior, if it has one, is that of its *solvers*, one for each group of
outputs that share L. A solver is a factorised symmetric matrix with a right-hand side; it computes
the coefficients for each alpha, and the posterior variance and the log marginal likelihood of the
Gaussian process whose mean is the function.

The process has covariance k and noise variance alpha/w² for each edge. Scores are determined only
up to a constant, so their variances are those of f(x) − f̄, with f̄ the mean over the training rows
that have an edge; variances of differences do not depend on this choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh

from rankrls import _resources
from rankrls._calls import Progress, warn, whole_call
from rankrls.core.linalg.factorizations import Factorization, factorize, is_graded
from rankrls.core.preferences.laplacian import Factor, Objective
from rankrls.core.preferences.query_weights import CANCELLED, Groups
from rankrls.core.preferences.statistics import Statistics
from rankrls.core.spaces.spaces import Basis, Kernel, replace_columns, subtract

__all__ = [
    "LOST_DIGITS",
    "DualSolver",
    "FittedFunction",
    "PrimalSolver",
    "fit_nystroem",
    "join_outputs",
    "predict_path",
    "solve_statistics",
    "warn_lost_digits",
]

Array = NDArray[Any]

LINEAR = Kernel("linear")
EPS = float(np.finfo(np.float64).eps)

#: Largest acceptable relative error of the faster computation of the Nyström system.
MAX_LOSS = 1e-9

#: A warning is issued if the estimated relative error of coefficients is above this.
LOST_DIGITS = 1e-6

#: Number of kernel values or dense features in memory at a time when variances are computed.
WORK = 2**20

#: Weight vectors that are multiplied one by one.
FEW = 8

DROPPED = (
    "this model was saved with uncertainty=False and can only predict scores; for return_std, "
    "preference_proba, log_marginal_likelihood, partial_fit and forget fit it again, or save it "
    "with uncertainty=True"
)
NO_FACTOR = (
    "solver='cg' does not factorise a matrix, which uncertainties need; fit with solver='primal', "
    "'dual' or 'nystroem'"
)


# -- solvers ----------------------------------------------------------------------------------


class _Solver:
    """S, its factorisation, and the right-hand side b: coefficients B = (S + alpha I)⁻¹ b."""

    def __init__(
        self, data: Objective | Statistics, b: Array, factorization: Factorization
    ) -> None:
        self.n_pairs, self.log_weight = data.n_pairs, data.log_weight
        self.energy, self.outputs = data.energy, data.outputs
        self.b, self.factorization = b, factorization

    def log_marginal_likelihood(self, alpha: float) -> Array:
        """Log density of the targets z of all edges, shape (k,).

        −½ [misfit + log det(S + alpha I) + (l − p) log alpha − Σ log w² + l log 2π] with misfit
        zᵀ(MᵀKM + alpha W⁻¹)⁻¹z over the l edges. The determinant over edges follows from that over
        the p coordinates of S by Sylvester's identity.
        """
        n_edges, p = self.n_pairs, len(self.b)
        constant = (
            self.factorization.log_determinant(alpha)
            + (n_edges - p) * np.log(alpha)
            - self.log_weight
            + n_edges * np.log(2 * np.pi)
        )
        return -0.5 * (self._misfit(alpha) + constant)

    def _misfit(self, alpha: float) -> Array:
        raise NotImplementedError


class PrimalSolver(_Solver):
    """(ΦᵀLΦ + alpha I) w = Φᵀ r.

    ``statistics.gram`` may be overwritten. ``for_path``: more alphas than ``alphas`` will be
    requested; ``scaled``: the scales of the features may be very different.
    """

    def __init__(
        self, statistics: Statistics, alphas: Array, *, for_path: bool = False, scaled: bool = True
    ) -> None:
        self.mean, self.mass, self.rounding = statistics.mean, statistics.mass, statistics.rounding
        self.largest, self.largest_energy = statistics.largest, statistics.largest_energy
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

    def variance(self, Phi: Array, rest: Array, alpha: float) -> Array:
        """Variance of f(x) − f̄ for features of shape (j, n), plus ``rest``, shape (j,)."""
        return self.difference_variance(Phi - self.mean, rest, alpha)

    def difference_variance(self, Delta: Array, rest: Array, alpha: float) -> Array:
        """alpha δᵀ(ΦᵀLΦ + alpha I)⁻¹δ for differences of features, (j, n), plus ``rest``."""
        return alpha * self.factorization.quadratic(Delta.T, alpha) + np.maximum(rest, 0.0)

    def posterior_root(self, Phi: Array, K: Array | None, alpha: float) -> Array:
        """Z of shape (j, n) with Z Zᵀ = alpha Φ(ΦᵀLΦ + alpha I)⁻¹Φᵀ."""
        sigma, V = eigh(self.factorization.matrix(), driver="evd", check_finite=False)
        return (Phi @ V) * np.sqrt(alpha / (np.maximum(sigma, 0.0) + alpha))

    def _misfit(self, alpha: float) -> Array:
        solution = self.factorization.solve(self.b, alpha)
        return (self.energy - np.einsum("ij,ij->j", self.b, solution)) / alpha


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
    noise : float
        Size of the rounding errors in S, if it exceeds eps ‖S‖.
    for_path : bool
        Whether solutions for more alphas, and held-out predictions, will be requested.
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
    ) -> None:
        self.factor, self.share, self.row_means = factor, row_share(objective), row_means
        t = np.broadcast_to(factor.t, (len(factor.t), len(objective.outputs))).astype(S.dtype)
        null = factor.null() if for_path else None
        # Rounding errors of a constant part of K, which cancels in FᵀKF, relative to FᵀKF.
        cancelled = noise > 100 * EPS * float(np.linalg.norm(S))
        made = factorize(S, alphas, t, in_range=False, noise=noise, null=null, for_path=for_path)
        if cancelled:
            made.loss = max(made.loss, len(S) * noise / float(alphas.min()))
        super().__init__(objective, t, made)

    @classmethod
    def from_kernel(
        cls, objective: Objective, K: Array, alphas: Array, *, for_path: bool = False
    ) -> DualSolver:
        """Make a solver from the kernel matrix of shape (m, m), which may be overwritten."""
        factor = objective.laplacian.factor()
        row_means = K @ row_share(objective)
        # Parts of K that cancel in FᵀKF (such as a constant) leave rounding errors of this size.
        noise = EPS * float((K.diagonal() * objective.laplacian.degree()).max())
        S = factor.sandwich(K)
        return cls(objective, S, factor, row_means, alphas, noise=noise, for_path=for_path)

    @classmethod
    def from_features(
        cls, objective: Objective, X: Any, alphas: Array, *, for_path: bool = False
    ) -> DualSolver:
        """Make a solver from features: FᵀKF = (FᵀX)(FᵀX)ᵀ if dense, from K = XXᵀ if sparse."""
        if sparse.issparse(X):
            X = _centre_by_component(X, objective)
            squares = np.asarray(X.multiply(X).sum(axis=0), dtype=np.float64).ravel()
            if not is_graded(squares, float(alphas.min())):
                K = (X @ X.T).toarray()
                return cls.from_kernel(objective, K, alphas, for_path=for_path)
            X = X.toarray()
        advice = "use fewer features, or sparse ones with solver='cg'"
        _resources.require("the dual solver", *X.shape, copies=2, advice=advice)
        factor = objective.laplacian.factor()
        row_means = X @ (row_share(objective) @ X)
        X_F = factor.rmatmat(X)
        squares = np.einsum("ij,ij->j", X_F, X_F)
        # Columns that are constant in every query, up to the rounding errors of centring.
        rounding = squares <= 64 * EPS**2 * (objective.laplacian.degree() @ np.square(X))
        X_F[:, rounding & np.isfinite(squares)] = 0.0
        solver = cls(objective, X_F @ X_F.T, factor, row_means, alphas, for_path=for_path)
        solver.factorization.loss = 0.0  # its rank is that of the features
        if is_graded(squares, float(alphas.min())):  # small columns are lost beside large ones
            smallest = float(squares[squares > 0].min()) + float(alphas.min())
            solver.factorization.loss = EPS * squares.max() / smallest
        return solver

    def coefficients(self, alphas: Array) -> Array:
        """Kernel coefficients A, shape (n_alphas, m, k)."""
        B = self.factorization.solve_path(self.b, alphas)
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

    def posterior_root(self, K_X: Array, K_XX: Array | None, alpha: float) -> Array:
        """Z of shape (j, j) such that Z Zᵀ is the posterior covariance of differences of rows.

        Computed from k(x, X) of shape (j, m), and k(x, x') among the rows, (j, j).
        """
        assert K_XX is not None
        W = self.factorization.whiten(self.factor.rmatmat(np.ascontiguousarray(K_X.T)), alpha)
        values, vectors = eigh(K_XX - W.T @ W, driver="evd", check_finite=False)
        return vectors * np.sqrt(np.maximum(values, 0.0))

    def _misfit(self, alpha: float) -> Array:
        unexplained = self.energy - np.einsum("ij,ij->j", self.b, self.b)
        return unexplained / alpha + self.factorization.quadratic(self.b, alpha)


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


# -- fitted functions ---------------------------------------------------------------------------


@dataclass
class FittedFunction:
    """Coefficients for each alpha, and predictions: linear, of kernel rows, or of a basis.

    Attributes
    ----------
    alphas : ndarray of shape (n_alphas,)
    kernel : Kernel
    coef : ndarray of shape (n_alphas, n, n_outputs) or None
        Weights of the features, if the kernel is linear.
    dual_coef : ndarray of shape (n_alphas, m, n_outputs) or None
        Coefficients of training rows or basis vectors.
    rows : the training rows ``kept``, less ``shift``, or None
        None for a precomputed kernel, with a basis, and if nothing needs them.
    kept : ndarray of shape (q,), int, or None
        Indices of the ``dual_coef`` that may be non-zero; those that the map of a basis keeps.
    shift : ndarray of shape (n,), or the number 0.0
    basis : Basis or None
    pair_coef : ndarray of shape (n_alphas, c, n_outputs) or None
        Coefficients of covariates of given pairs, if there were any.
    pair_scale : ndarray of shape (c,) or None
        The scale of the covariates: in the solvers they are divided by it.
    solvers : list
        One for each group of outputs, with the posterior; empty if there is none.
    dropped : bool
        Whether the solvers were removed.
    """

    alphas: Array
    kernel: Kernel = LINEAR
    coef: Array | None = None
    dual_coef: Array | None = None
    rows: Any = None
    kept: Array | None = None
    shift: Any = 0.0
    basis: Basis | None = None
    pair_coef: Array | None = None
    pair_scale: Array | None = None
    solvers: Sequence[Any] = field(default_factory=list)
    dropped: bool = False

    @classmethod
    def of_solvers(
        cls,
        solvers: Sequence[PrimalSolver],
        alphas: Array,
        dtype: Any,
        *,
        basis: Basis | None = None,
        pair_scale: Array | None = None,
    ) -> FittedFunction:
        """Weights of features, or of those of a basis, and then of covariates of given pairs."""
        outputs = [solver.outputs for solver in solvers]
        weights = join_outputs(outputs, [solver.coefficients(alphas) for solver in solvers])
        n = weights.shape[1] - (0 if pair_scale is None else len(pair_scale))
        if basis is None:
            model = cls(alphas, coef=weights[:, :n].astype(dtype, copy=False))
        else:
            model = cls.of_weights(basis, alphas, weights[:, :n], dtype)
        model.solvers, model.pair_scale = solvers, pair_scale
        if pair_scale is not None:
            model.pair_coef = weights[:, n:] / pair_scale[:, None]
        return model

    @classmethod
    def of_weights(cls, basis: Basis, alphas: Array, weights: Any, dtype: Any) -> FittedFunction:
        """Coefficients of basis vectors, from weights (n_alphas, q, n_outputs) of features."""
        kept = basis.map.kept
        model = cls(alphas, basis.kernel, kept=kept, basis=basis)
        a = basis.map.coefficients(weights).astype(dtype, copy=False)
        model.dual_coef = np.zeros((len(alphas), len(basis.indices), a.shape[-1]), dtype)
        model.dual_coef[:, kept] = a
        if basis.kernel.linear:
            model.coef = np.stack([basis.rows.T @ part for part in a])
        return model

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        values = self.dual_coef if self.coef is None else self.coef
        assert values is not None
        return values.shape[-1]

    @property
    def alpha(self) -> float:
        """The first alpha, which is used for uncertainties."""
        return float(self.alphas[0])

    @property
    def lost(self) -> float:
        """Approximate relative rounding error of the coefficients."""
        return max((solver.factorization.loss for solver in self.solvers), default=0.0)

    def select(self, index: int) -> FittedFunction:
        """Return the function of a single alpha."""
        one = replace(self)
        for name in ("alphas", "coef", "dual_coef", "pair_coef"):
            if getattr(self, name) is not None:
                setattr(one, name, getattr(self, name)[[index]])
        return one

    def without_uncertainty(self) -> FittedFunction:
        """Return a smaller function with the same predictions and no uncertainties."""
        slim = replace(self, solvers=[], dropped=self.dropped or bool(self.solvers))
        if self.coef is not None and self.basis is None:
            slim.rows, slim.kept, slim.shift = None, None, 0.0  # of a linear kernel
        return slim

    # -- predictions

    def predict(self, X: Any, index: int | None = 0) -> Array:
        """Predict for ``alphas[index]``, shape (n, n_outputs); for all alphas if None."""
        if self.coef is not None:
            return linear_product(X, _of_alpha(self.coef, index))
        assert self.dual_coef is not None
        a = _of_alpha(self.dual_coef, index)[self.kept]
        rows, shift = self.expansion
        if rows is None or X.shape[0] == 1:
            return linear_product(self._kernel_values(X), a)
        return self.kernel.product(subtract(X, shift), rows, a)

    @property
    def expansion(self) -> tuple[Any, Any]:
        """Rows x_i of the sum over k(x, x_i), None if it is precomputed, and their shift."""
        if self.basis is not None:
            return self.basis.rows, self.basis.shift
        return self.rows, self.shift

    def kernel_terms(self, X: Any) -> tuple[Array, Array, Array]:
        """Training rows (q,), kernel values with them (n, q) and coefficients (q, n_outputs)."""
        assert self.dual_coef is not None
        assert self.kept is not None
        rows = self.kept if self.basis is None else self.basis.kept
        return rows, self._kernel_values(X), self.dual_coef[0][self.kept]

    def _kernel_values(self, X: Any) -> Array:
        """Kernel values with the rows ``kept``, shape (n, q)."""
        if self.basis is not None:
            return self.basis.block(X)
        if self.rows is not None:
            return self.kernel(subtract(X, self.shift), self.rows)
        assert self.kept is not None
        return np.take(X, self.kept, axis=1)

    # -- posterior

    def variance(self, X_a: Any, X_b: Any = None, C: Array | None = None) -> Array:
        """Posterior variance of f(x_a) − f̄, or of f(x_a) − f(x_b) + cᵀγ, shape (n, n_outputs).

        With a Nyström basis, f̄ is the mean of the training rows in the span of the basis, and the
        variance of the part outside, k(x, x) − φᵀφ, is added. C, of shape (n, c), are covariates of
        the comparisons. Many rows are computed in blocks, which show progress.
        """
        self._require_posterior(self.kernel)
        n, width = X_a.shape[0], X_a.shape[1] if self.kept is None else len(self.kept)
        size = max(1, WORK // max(width, 1))
        if n <= size:
            return self._variance(X_a, X_b, C)
        parts = []
        with whole_call():
            progress = Progress("predict", 0)
            for start in range(0, n, size):
                progress.bar(start, n, "posterior variances of rows")
                part = slice(start, start + size)
                others = (None if rows is None else rows[part] for rows in (X_b, C))
                parts.append(self._variance(X_a[part], *others))
        return np.concatenate(parts)

    def _variance(self, a: Any, b: Any = None, C: Array | None = None) -> Array:
        """Posterior variance of f(a) − f(b), or of f(a) − f̄, row by row."""
        if self._primal and self.basis is None:
            inputs = _dense(a if b is None else a - b)
            prior = np.zeros(len(inputs))
        else:
            of = self.basis.features if self._primal and self.basis else self._kernel_values
            inputs = of(a) if b is None else of(a) - of(b)
            shift = self.expansion[1]
            if b is None:
                prior = self.kernel.paired(subtract(a, shift))
            else:
                prior = self.kernel.squared_distance(subtract(a, shift), subtract(b, shift))
            if self._primal:
                prior = prior - np.einsum("ij,ij->i", inputs, inputs)
        inputs, variances = self._with_covariates(inputs, C), []
        for solver in self.solvers:
            of_solver = solver.variance if b is None else solver.difference_variance
            found = of_solver(inputs, prior, self.alpha)
            variances.append(np.repeat(found[:, None], len(solver.outputs), axis=1))
        return join_outputs([solver.outputs for solver in self.solvers], variances)

    def posterior_root(self, X: Any) -> Array:
        """Z of shape (n, r): (Z_a − Z_b)(Z_c − Z_d)ᵀ is the posterior covariance of differences.

        For the first output. With a Nyström basis, only the part spanned by the basis is included.
        """
        self._require_posterior(self.kernel)
        K = None
        if self._primal and self.basis is None:
            inputs = _dense(X).astype(np.float64)
            inputs = inputs - inputs.mean(axis=0)  # which differences ignore
        elif self._primal and self.basis is not None:
            inputs = self.basis.features(X).astype(np.float64, copy=False)
        else:
            inputs = self._kernel_values(X).astype(np.float64)
            K = self.kernel(subtract(X, self.shift)).astype(np.float64)
        return self.solvers[0].posterior_root(self._with_covariates(inputs), K, self.alpha)

    def log_marginal_likelihood(self) -> Array:
        """Log density of the targets of all edges, shape (n_outputs,)."""
        self._require_posterior()
        found = [solver.log_marginal_likelihood(self.alpha) for solver in self.solvers]
        return join_outputs([solver.outputs for solver in self.solvers], found)

    @property
    def _primal(self) -> bool:
        return isinstance(self.solvers[0], PrimalSolver)

    def _require_posterior(self, kernel: Kernel | None = None) -> None:
        """Raise an error without solvers, or if the kernel of new rows is needed and unknown."""
        if kernel is not None and kernel.precomputed:
            raise ValueError(
                "uncertainties need k(x, x) of the new rows, which kernel='precomputed' does not "
                "give: use a named kernel or a callable"
            )
        if not self.solvers:
            raise ValueError(DROPPED if self.dropped else NO_FACTOR)

    def _with_covariates(self, Phi: Array, C: Array | None = None) -> Array:
        """Concatenate features and scaled covariates (zero if none are given)."""
        if self.pair_scale is None:
            return Phi
        C = np.zeros((len(Phi), len(self.pair_scale))) if C is None else C / self.pair_scale
        return np.hstack([Phi, C])


def join_outputs(outputs: Sequence[Array], parts: Sequence[Array]) -> Array:
    """Join arrays of some outputs each (last axis) to that of all outputs."""
    joined = np.concatenate(parts, axis=-1)
    out = np.empty_like(joined)
    out[..., np.concatenate(outputs)] = joined
    return out


def linear_product(X: Any, coef: Array) -> Array:
    """X w, of shape (n, k); for a few w, rows (in C order) that are equal get equal scores.

    BLAS adds the products of some rows in another order, and its threads would wait for those that
    read a file.
    """
    few = coef.shape[1] <= FEW
    if few and isinstance(X, np.ndarray) and X.strides[1] == X.itemsize:
        return np.stack([np.vecdot(X, w) for w in coef.T], axis=1)
    return X @ coef


def predict_path(model: Any, X: Any) -> Array:
    """Predict scores of shape (n_alphas, n, n_outputs), computing kernel values only once."""
    joined = model.predict(X, None)
    return np.stack(np.split(joined, len(model.alphas), axis=1))


def _of_alpha(coefficients: Array, index: int | None) -> Array:
    """Select one alpha of an array (n_alphas, k, n_outputs), or all as (k, n_alphas n_outputs)."""
    return coefficients[index] if index is not None else np.concatenate(list(coefficients), axis=1)


def _dense(X: Any) -> Array:
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


# -- solutions from statistics ----------------------------------------------------------------


def fit_nystroem(
    statistics: Callable[[bool], Sequence[Statistics]], basis: Basis, alphas: Array, dtype: Any
) -> FittedFunction:
    """Fit to ``statistics(False)`` of kernel blocks or ``statistics(True)`` of Nyström features.

    The whitened statistics of the kernel blocks are used if they are accurate enough, otherwise
    those of the features.
    """
    nystroem = basis.map
    solvers: list[PrimalSolver] = []
    if nystroem.rounding < MAX_LOSS:
        for raw in statistics(False):
            gram, cross, mean = nystroem.whiten(raw.gram, raw.cross, raw.mean)
            rounding = max(raw.rounding, nystroem.rounding)
            part = replace(raw, gram=gram, cross=cross, mean=mean, largest=gram.diagonal().copy())
            part.rounding = rounding
            solvers.append(PrimalSolver(part, alphas, scaled=False))
    losses = [s.factorization.condition(float(alphas.min())) for s in solvers]
    if not solvers or nystroem.rounding * max(losses) >= MAX_LOSS:
        solvers = [PrimalSolver(part, alphas, scaled=False) for part in statistics(True)]
    return FittedFunction.of_solvers(solvers, alphas, dtype, basis=basis)


@np.errstate(over="ignore", invalid="ignore")
def solve_statistics(
    statistics: Sequence[Statistics],
    basis: Basis | None,
    alphas: Array,
    dtype: Any,
    names: Sequence[str] | None = None,
) -> FittedFunction:
    """Solve from statistics of features, or of the Nyström features of ``basis``.

    Together they cover all outputs, and their arrays may be overwritten. ``names`` are those of the
    features, for warnings.
    """
    solvers = [PrimalSolver(part, alphas, scaled=basis is None) for part in statistics]
    model = FittedFunction.of_solvers(solvers, alphas, dtype, basis=basis)
    if basis is None and model.lost > LOST_DIGITS:
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
