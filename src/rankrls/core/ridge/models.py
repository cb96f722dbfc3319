"""Fitted functions: coefficients for each alpha, predictions, and the posterior.

A *solver*, one for each group of outputs that share L, is a factorised symmetric matrix with a
right-hand side. It computes coefficients for each alpha, and the posterior of the Gaussian process
whose mean is the function. Scores are determined up to a constant, so their variances are those of
f(x) − f̄, with f̄ the mean over the training rows that have an edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh

from rankrls._calls import Progress, warn, whole_call
from rankrls.core.linalg.factorizations import CholeskyFactorization, factorize
from rankrls.core.preferences.laplacian import Groups, Laplacian
from rankrls.core.preferences.statistics import Statistics, add_batch
from rankrls.core.spaces.products import dense, subtract
from rankrls.core.spaces.spaces import Basis, Kernel

Array = NDArray[Any]

LINEAR = Kernel("linear")
EPS = float(np.finfo(np.float64).eps)

#: A warning is issued if the estimated relative error of coefficients is above this, for linear
#: features and for kernels, where the estimate is very conservative.
LOST_DIGITS, LOST_IN_KERNEL = 1e-6, 1e-4

#: Scales of features that differ by more than this are named in the warning.
UNEQUAL = 1e3

#: Kernel values that are larger than their differences by this factor lose digits.
CANCELLED = 10.0

#: Larger relative errors of weights are not accepted from products in single precision.
SINGLE_ERROR = 1e-4

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


def lost_in_single(statistics: Sequence[Statistics], alpha: float) -> float:
    """Estimate the relative error of weights due to products of float32 features; 0 for float64."""
    error = 0.0
    for part in statistics:
        if part.rounding > EPS:
            made, positive = CholeskyFactorization.attempt(part.gram.copy(), alpha)
            error = max(error, part.rounding * made.condition(alpha) if positive else np.inf)
    return error


class PrimalSolver:
    """(ΦᵀLΦ + alpha I) w = Φᵀ r from statistics, which may be overwritten; as `factorize`."""

    def __init__(
        self, statistics: Statistics, alphas: Array, *, for_path: bool = False, scaled: bool = True
    ) -> None:
        self.mean, self.mass, self.rounding = statistics.mean, statistics.mass, statistics.rounding
        self.largest, self.largest_energy = statistics.largest, statistics.largest_energy
        self.n_pairs, self.log_weight = statistics.n_pairs, statistics.log_weight
        self.energy, self.outputs = statistics.energy, statistics.outputs
        self.b = statistics.cross
        self.factorization = factorize(
            statistics.gram, alphas, self.b, in_range=True, scaled=scaled, for_path=for_path
        )

    def statistics(self) -> Statistics:
        """The statistics of the solver, in new arrays."""
        names = [field.name for field in fields(Statistics) if field.name not in ("gram", "cross")]
        known = {name: copy(getattr(self, name)) for name in names}
        return Statistics(gram=self.factorization.matrix(), cross=self.b.copy(), **known)

    def coefficients(self, alphas: Array) -> Array:
        """Weights w, shape (n_alphas, n, k)."""
        return self.factorization.solve_path(self.b, alphas)

    def variance(self, Phi: Array, rest: Array, alpha: float, *, centred: bool) -> Array:
        """alpha φᵀ(ΦᵀLΦ + alpha I)⁻¹φ for features (j, n), less their mean, plus ``rest``, (j,)."""
        Phi = Phi - self.mean if centred else Phi
        return alpha * self.factorization.quadratic(Phi.T, alpha) + np.maximum(rest, 0.0)

    def posterior_root(self, Phi: Array, K: Array | None, alpha: float) -> Array:
        """Z of shape (j, n) with Z Zᵀ = alpha Φ(ΦᵀLΦ + alpha I)⁻¹Φᵀ."""
        sigma, V = eigh(self.factorization.matrix(), driver="evd", check_finite=False)
        return (Phi @ V) * np.sqrt(alpha / (np.maximum(sigma, 0.0) + alpha))

    def misfit(self, alpha: float) -> Array:
        """zᵀ(MᵀKM + alpha W⁻¹)⁻¹z over the edges, shape (k,)."""
        solution = self.factorization.solve_path(self.b, np.array([alpha]))[0]
        return (self.energy - np.einsum("ij,ij->j", self.b, solution)) / alpha


class DualSolver:
    """A = F (FᵀKF + alpha I)⁻¹ t, the solution of (L K + alpha I) A = r for L = F Fᵀ, r = F t.

    K may be overwritten; of the ``rows`` of a linear kernel it may be centred by component.
    ``loss`` is a relative rounding error that is known.
    """

    def __init__(
        self,
        L: Laplacian,
        K: Array,
        alphas: Array,
        *,
        rows: Any = None,
        for_path: bool = False,
        loss: float = 0.0,
    ) -> None:
        share = L.row_weight()
        self.factor, self.share = L.factor(), share / share.sum()
        self.row_means = K @ self.share if rows is None else rows @ (self.share @ rows)
        # Parts of K that cancel in FᵀKF (a constant) leave rounding errors of this size.
        noise = EPS * float((K.diagonal() * L.degree()).max())
        S = self.factor.sandwich(K)
        if noise > CANCELLED * EPS * float(np.linalg.norm(S)):
            loss = max(loss, len(S) * noise / float(alphas.min()))
        t = np.broadcast_to(self.factor.t, (len(self.factor.t), len(L.outputs)))
        self.b, null = t.astype(S.dtype), self.factor.null() if for_path else None
        self.factorization = factorize(
            S, alphas, self.b, in_range=False, noise=noise, null=null, for_path=for_path
        )
        self.factorization.loss = max(self.factorization.loss, loss)
        self.n_pairs, self.log_weight = L.n_pairs, L.log_weight
        self.energy, self.outputs = L.energy, L.outputs

    def coefficients(self, alphas: Array) -> Array:
        """Kernel coefficients A, shape (n_alphas, m, k)."""
        B = self.factorization.solve_path(self.b, alphas)
        p = B.shape[1]
        stacked = self.factor.matmat(np.moveaxis(B, 0, 1).reshape(p, -1))
        return np.moveaxis(stacked.reshape(len(stacked), len(alphas), -1), 1, 0)

    def variance(self, K_X: Array, prior: Array, alpha: float, *, centred: bool) -> Array:
        """Prior variance (j,) less the part explained by k(x, X), (j, m), centred or not."""
        if centred:  # k̃(x, x') = k − k̄(x) − k̄(x') + k̿
            prior = prior - 2 * (K_X @ self.share) + float(self.share @ self.row_means)
            K_X = K_X - self.row_means
        W = self._whiten(K_X, alpha)
        return np.maximum(prior - np.einsum("ij,ij->j", W, W), 0.0)

    def _whiten(self, K_X: Array, alpha: float) -> Array:
        F_K = self.factor.rmatmat(np.ascontiguousarray(K_X.T))
        return self.factorization.whiten(F_K, alpha)

    def posterior_root(self, K_X: Array, K_XX: Array | None, alpha: float) -> Array:
        """Z of shape (j, j) with Z Zᵀ the posterior covariance, from k(x, X) and k(x, x')."""
        assert K_XX is not None
        W = self._whiten(K_X, alpha)
        values, vectors = eigh(K_XX - W.T @ W, driver="evd", check_finite=False)
        return vectors * np.sqrt(np.maximum(values, 0.0))

    def misfit(self, alpha: float) -> Array:
        """zᵀ(MᵀKM + alpha W⁻¹)⁻¹z over the edges, shape (k,)."""
        unexplained = self.energy - np.einsum("ij,ij->j", self.b, self.b)
        return unexplained / alpha + self.factorization.quadratic(self.b, alpha)


# -- fitted functions ---------------------------------------------------------------------------


@dataclass
class FittedFunction:
    """Coefficients for each alpha, and predictions: linear, of kernel rows, or of a basis.

    ``coef`` are weights of the features if the kernel is linear, ``dual_coef`` coefficients of
    training rows or basis vectors, of which only those with the indices ``kept`` may be non-zero;
    ``rows`` are these training rows less ``shift`` (None: precomputed, with a basis, or not
    needed). ``pair_coef`` are coefficients of covariates, which the solvers divide by
    ``pair_scale``. The solvers, one for each group of outputs, have the posterior; ``dropped``:
    whether they were removed.
    """

    alphas: Array
    kernel: Kernel = LINEAR
    coef: Array | None = None  # (n_alphas, n, n_outputs)
    dual_coef: Array | None = None  # (n_alphas, m, n_outputs)
    rows: Any = None  # (q, n)
    kept: Array | None = None  # (q,)
    shift: Any = 0.0  # or (n,)
    basis: Basis | None = None
    pair_coef: Array | None = None  # (n_alphas, c, n_outputs)
    pair_scale: Array | None = None
    solvers: Sequence[Any] = field(default_factory=list)
    dropped: bool = False

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")  # the solver raises an error on overflow
    def of_statistics(
        cls,
        statistics: Sequence[Statistics],
        alphas: Array,
        dtype: Any,
        basis: Basis | None = None,
        pair_scale: Array | None = None,
    ) -> FittedFunction:
        """Solve from statistics, which may be overwritten, of features or of those of a basis.

        Covariates of given pairs follow the features.
        """
        solvers, parts = [], []
        for part in statistics:
            solvers.append(PrimalSolver(part, alphas, scaled=basis is None))
            parts.append(solvers[-1].coefficients(alphas))
        weights = join_outputs(solvers, parts)
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
        kept = basis.positions
        model = cls(alphas, basis.kernel, kept=kept, basis=basis)
        a = basis.coefficients(weights).astype(dtype, copy=False)
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

    def variance(self, a: Any, b: Any = None, C: Array | None = None) -> Array:
        """Posterior variance of f(a) − f̄, or of f(a) − f(b) + cᵀγ, row by row, (n, n_outputs).

        With a Nyström basis, the variance outside its span, k(x, x) − φᵀφ, is added. Many rows are
        computed in blocks, which show progress.
        """
        self._require_posterior(self.kernel)
        n, width = a.shape[0], a.shape[1] if self.kept is None else len(self.kept)
        size = max(1, WORK // max(width, 1))
        if n > size:
            parts = []
            with whole_call():
                progress = Progress("predict", 0)
                for start in range(0, n, size):
                    progress.bar(start, n, "posterior variances of rows")
                    part = slice(start, start + size)
                    others = (None if rows is None else rows[part] for rows in (b, C))
                    parts.append(self.variance(a[part], *others))
            return np.concatenate(parts)
        if self._primal and self.basis is None:
            inputs = dense(a if b is None else a - b)
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
            found = solver.variance(inputs, prior, self.alpha, centred=b is None)
            variances.append(np.repeat(found[:, None], len(solver.outputs), axis=1))
        return join_outputs(self.solvers, variances)

    def posterior_root(self, X: Any) -> Array:
        """Z of shape (n, r): (Z_a − Z_b)(Z_c − Z_d)ᵀ is the posterior covariance of differences.

        For the first output. With a Nyström basis, only the part spanned by the basis is included.
        """
        self._require_posterior(self.kernel)
        K = None
        if self._primal and self.basis is None:
            inputs = dense(X).astype(np.float64)
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
        alpha, found = self.alpha, []
        for solver in self.solvers:
            # The determinant over edges is that over the coordinates of S, by Sylvester's identity.
            n, made = solver.n_pairs, solver.factorization
            determinant = made.log_determinant(alpha) + (n - len(solver.b)) * np.log(alpha)
            constant = determinant - solver.log_weight + n * np.log(2 * np.pi)
            found.append(-0.5 * (solver.misfit(alpha) + constant))
        return join_outputs(self.solvers, found)

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


def join_outputs(owners: Sequence[Any], parts: Sequence[Array]) -> Array:
    """Join arrays of the ``outputs`` of each owner (last axis) to that of all outputs."""
    if len(parts) == 1:
        return parts[0]
    out = np.empty((*parts[0].shape[:-1], sum(len(owner.outputs) for owner in owners)))
    for owner, part in zip(owners, parts, strict=True):
        out[..., owner.outputs] = part
    return out


def linear_product(X: Any, coef: Array) -> Array:
    """X w, of shape (n, k); unlike BLAS, for a few w equal rows in C order get equal scores."""
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


# -- lost digits --------------------------------------------------------------------------------


def warn_lost_digits(
    loss: float,
    weights: float,
    alpha: float,
    kernel: str | None,
    X: Any,
    names: Sequence[str] | None,
) -> bool:
    """Warn if the estimated relative error of coefficients is large, and return whether it is.

    ``weights`` is the error of what light preferences determine, beside heavy ones; ``kernel`` the
    name of a kernel other than linear features X, which have these ``names``.
    """
    if weights > LOST_DIGITS:
        loss = weights
        cause = "the weights of the preferences differ by so many orders of magnitude that light "
        cause += "ones are lost beside heavy ones"
        advice = "Use weights (or for cost='relative' scores and magnitudes) of a smaller range, "
        advice += "or leave the light ones out"
    elif loss <= (LOST_DIGITS if kernel is None else LOST_IN_KERNEL):
        return False
    elif kernel is not None:
        cause = f"values of kernel {kernel} are too large for float64 compared with the "
        cause += f"differences between rows or with alpha={alpha:g}"
        advice = "Centre and scale the features, or increase alpha"
    else:
        squares = (X.multiply(X) if sparse.issparse(X) else X * X).mean(axis=0)
        scale = np.sqrt(np.asarray(squares).ravel())
        present = np.flatnonzero(scale > 0)
        ends = present[[int(np.argmax(scale[present])), int(np.argmin(scale[present]))]]
        large, small = (f"column {c}" if names is None else repr(str(names[c])) for c in ends)
        cause = "the features depend on each other too closely for float64"
        advice = "Leave some features out, or increase alpha"
        if (ratio := scale[ends[0]] / scale[ends[1]]) > UNEQUAL:
            cause = "the features have scales that are too different for float64, and depend on "
            cause += f"each other: the largest is {large}, {ratio:.0e} times the smallest, {small}"
            advice = "Scale the features, or increase alpha"
    warn(f"{cause}; coefficients are accurate to about {min(loss, 1.0):.0e} (relative). {advice}")
    return True


# -- held-out loss ------------------------------------------------------------------------------


class FoldStatistics:
    """Models without each of k folds of whole queries, from the statistics of the others.

    Nothing cancels in their sum. The held-out loss is Σ_edges w² (z − (f(x_h) − f(x_j)))² =
    wᵀ(ΦᵀLΦ)w − 2 wᵀΦᵀr + Σ_edges w² z². ``scaled`` is as in `factorize`.
    """

    def __init__(self, folds: Sequence[Sequence[Statistics]], *, scaled: bool) -> None:
        self.folds, self._scaled = folds, scaled
        self.n_outputs = sum(len(part.outputs) for part in folds[0])

    def total(self) -> list[Statistics]:
        """Sum the statistics of all folds, in new arrays."""
        return self._sum(range(len(self.folds)))

    def size(self) -> float:
        """Trace of ΦᵀLΦ, an upper bound of its largest eigenvalue."""
        traces = np.zeros(self.n_outputs)
        for part in (part for fold in self.folds for part in fold):
            traces[part.outputs] += np.trace(part.gram)
        return float(traces.max())

    @np.errstate(over="ignore", invalid="ignore")
    def weights_without(self, fold: int, alphas: Array) -> Array:
        """Compute weights of the models without a fold, shape (n_alphas, n, n_outputs)."""
        rest = self._sum(other for other in range(len(self.folds)) if other != fold)
        n = len(rest[0].gram)
        W = np.empty((len(alphas), n, self.n_outputs))
        for part in rest:
            solver = PrimalSolver(part, alphas, for_path=len(alphas) > 1, scaled=self._scaled)
            W[..., part.outputs] = solver.coefficients(alphas)
        return W

    def explained_part(self, alphas: Array) -> Array:
        """1 − (held-out squared loss)/(sum of squared targets), (n_alphas, n_outputs)."""
        loss, energy = np.zeros((len(alphas), self.n_outputs)), np.zeros(self.n_outputs)
        for number, fold in enumerate(self.folds):
            W = self.weights_without(number, alphas)
            for part in fold:
                w = W[..., part.outputs]
                squares = np.einsum("ank,ank->ak", w, part.gram @ w)
                products = np.einsum("ank,nk->ak", w, part.cross)
                loss[:, part.outputs] += squares - 2 * products + part.energy
                energy[part.outputs] += part.energy
        return _one_minus(loss, energy)

    def _sum(self, numbers: Any) -> list[Statistics]:
        total: list[Statistics] | None = None
        for number in numbers:
            fold = self.folds[number]
            total = [p.copy() for p in fold] if total is None else add_batch(total, fold)
        assert total is not None
        return total


def explained_part(objectives: Sequence[Laplacian], lists: Array, values: Array) -> Array:
    """The same from held-out predictions ``values``, shape (n_alphas, m, n_outputs).

    ``lists``, of shape (m,), is the list of every row, inside which edges lie.
    """
    n_alphas, _, n_outputs = values.shape
    loss, energy = np.empty((n_alphas, n_outputs)), np.empty(n_outputs)
    groups = Groups(lists, None, int(lists.max()) + 1)
    for L in objectives:
        energy[L.outputs] = L.energy
        for a in range(n_alphas):
            f = values[a][:, L.outputs]
            f = f - groups.mean(f)[lists]  # L ignores the mean, which may be large
            loss[a, L.outputs] = (f * (L.apply(f) - 2 * L.r)).sum(axis=0) + L.energy
    return _one_minus(loss, energy)


def _one_minus(loss: Array, energy: Array) -> Array:
    if not (energy > 0).all():
        raise ValueError("no held-out pair of rows has different scores: there is no loss to score")
    return 1 - loss / energy
