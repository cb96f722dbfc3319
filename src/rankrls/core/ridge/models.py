"""Fitted models: coefficients for every alpha, predictions, and the posterior of the first.

Three representations of the same function: weights of explicit features (`LinearModel`),
coefficients of all training rows (`KernelModel`), and coefficients of basis vectors
(`NystroemModel`).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls.core.preferences.objectives import Objective
from rankrls.core.preferences.statistics import Statistics
from rankrls.core.ridge.dropped import DroppedSolver
from rankrls.core.ridge.solvers import DualSolver, PrimalSolver
from rankrls.core.spaces.kernels import Kernel
from rankrls.core.spaces.nystroem import Basis

__all__ = ["KernelModel", "LinearModel", "Model", "NystroemModel", "of_alpha", "predict_path"]

Array = NDArray[Any]

#: Relative accuracy that the cheaper way to the Nyström system may cost.
MAX_LOSS = 1e-9


def of_alpha(coefficients: Array, index: int | None) -> Array:
    """Of an array (n_alphas, k, n_outputs) one alpha's; None: (k, n_alphas n_outputs), all."""
    if index is not None:
        return coefficients[index]
    return np.concatenate(list(coefficients), axis=1)


def predict_path(model: Any, X: Any) -> Array:
    """Scores of shape (n_alphas, n, n_outputs); kernel values are computed once for all alphas."""
    joined = model.predict(X, None)
    return np.stack(np.split(joined, len(model.alphas), axis=1))


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
    """

    alphas: Array
    solvers: Sequence[Any]
    coef: Array | None = None
    dual_coef: Array | None = None

    @abstractmethod
    def predict(self, X: Any, index: int | None = 0) -> Array:
        """Scores for ``alphas[index]``, shape (n, n_outputs); None: for all, side by side."""

    @abstractmethod
    def variance(self, X: Any) -> Array:
        """Posterior variance of the score of every row, shape (n, n_outputs)."""

    @abstractmethod
    def difference_variance(self, X_a: Any, X_b: Any) -> Array:
        """Posterior variance of f(x_a) − f(x_b), row by row, shape (n, n_outputs)."""

    def log_marginal_likelihood(self) -> Array:
        """Log density of the targets of all edges, shape (n_outputs,)."""
        return self._gather([s.log_marginal_likelihood(self.alpha) for s in self.solvers])

    @property
    def alpha(self) -> float:
        """The first alpha: that of the uncertainties."""
        return float(self.alphas[0])

    @property
    def n_outputs(self) -> int:
        """Number of outputs of all solvers together."""
        return sum(len(solver.outputs) for solver in self.solvers)

    def without_uncertainty(self) -> Model:
        """A model that predicts the same and takes less room: its solvers answer nothing."""
        slim = copy.copy(self)
        slim.solvers = [DroppedSolver(solver.outputs) for solver in self.solvers]
        return slim

    def _gather(self, parts: list[Array]) -> Array:
        """Put the solvers' columns (last axis) in the order of the outputs."""
        columns = np.concatenate([solver.outputs for solver in self.solvers])
        joined = np.concatenate(parts, axis=-1)
        out = np.empty_like(joined)
        out[..., columns] = joined
        return out

    def _spread(self, per_solver: list[Array]) -> Array:
        """Give every output the values of its solver: shape (n, n_outputs)."""
        counts = [len(solver.outputs) for solver in self.solvers]
        parts = zip(per_solver, counts, strict=True)
        return self._gather([np.repeat(values[:, None], k, axis=1) for values, k in parts])


class LinearModel(Model):
    """f(x) = ⟨w, x⟩ from the statistics of X, which may be overwritten.

    Parameters
    ----------
    statistics : sequence of Statistics, together covering all outputs
    alphas : ndarray of shape (n_alphas,)
    dtype : of the coefficients
    """

    def __init__(self, statistics: Sequence[Statistics], alphas: Array, dtype: Any) -> None:
        self.alphas = alphas
        self.solvers = [PrimalSolver(part, alphas) for part in statistics]
        coef = self._gather([solver.coefficients(alphas) for solver in self.solvers])
        self.coef = coef.astype(dtype, copy=False)

    def predict(self, X: Any, index: int | None = 0) -> Array:
        """X w."""
        assert self.coef is not None
        return X @ of_alpha(self.coef, index)

    def variance(self, X: Any) -> Array:
        """See `PrimalSolver.variance`."""
        return self._spread([s.variance(_dense(X), self.alpha) for s in self.solvers])

    def difference_variance(self, X_a: Any, X_b: Any) -> Array:
        """See `PrimalSolver.difference_variance`."""
        Delta = _dense(X_a - X_b)
        return self._spread([s.difference_variance(Delta, self.alpha) for s in self.solvers])


class NystroemModel(Model):
    """f(x) = Σ_R a_i k(x, x_i) from the primal system of the Nyström features.

    Parameters
    ----------
    basis : Basis
    solvers : sequence of PrimalSolver of the features, together covering all outputs
    alphas : ndarray of shape (n_alphas,)
    dtype : of the coefficients
    """

    def __init__(
        self, basis: Basis, solvers: Sequence[PrimalSolver], alphas: Array, dtype: Any
    ) -> None:
        self.alphas = alphas
        self.basis = basis
        self.kernel = basis.kernel
        self.solvers = solvers
        weights = self._gather([solver.coefficients(alphas) for solver in solvers])
        self._a = basis.map.coefficients(weights).astype(dtype, copy=False)
        self.dual_coef = np.zeros((len(alphas), len(basis.indices), weights.shape[-1]), dtype)
        self.dual_coef[:, basis.map.kept] = self._a
        if self.kernel.linear:
            self.coef = np.stack([basis.rows.T @ a for a in self._a])

    @classmethod
    def from_rows(
        cls, objectives: Sequence[Objective], basis: Basis, X: Any, alphas: Array
    ) -> NystroemModel:
        """Fit to training rows X of shape (m, n); the kernel matrix if it is precomputed."""
        block = basis.block(X)

        def statistics(whitened: bool) -> list[Statistics]:
            Phi = basis.map.features(block) if whitened else block
            return [Statistics.of(objective, Phi) for objective in objectives]

        return cls.from_statistics(statistics, basis, alphas, block.dtype)

    @classmethod
    def from_statistics(
        cls,
        statistics: Callable[[bool], Sequence[Statistics]],
        basis: Basis,
        alphas: Array,
        dtype: Any,
    ) -> NystroemModel:
        """Fit to ``statistics(False)`` of kernel blocks, or ``statistics(True)`` of features.

        Those of the kernel blocks, whitened, are enough if they are accurate enough; the features
        themselves are asked for otherwise.
        """
        nystroem = basis.map
        solvers: list[PrimalSolver | None] = []
        if nystroem.rounding < MAX_LOSS:
            for raw in statistics(False):
                gram, cross, mean = nystroem.whiten(raw.gram, raw.cross, raw.mean)
                whitened = replace(raw, gram=gram, cross=cross, mean=mean, noise=0.0)
                solver = PrimalSolver(whitened, alphas)
                loss = nystroem.rounding * solver.state.condition(float(alphas.min()))
                solvers.append(solver if loss < MAX_LOSS else None)
        if not solvers or None in solvers:
            exact = statistics(True)
            found = zip(solvers or [None] * len(exact), exact, strict=True)
            solvers = [solver or PrimalSolver(part, alphas) for solver, part in found]
        return cls(basis, cast(list[PrimalSolver], solvers), alphas, dtype)

    def predict(self, X: Any, index: int | None = 0) -> Array:
        """k(X, R) a."""
        if self.coef is not None:
            return X @ of_alpha(self.coef, index)
        if self.basis.rows is None:
            return self.basis.block(X) @ of_alpha(self._a, index)
        return self.kernel.product(X, self.basis.rows, of_alpha(self._a, index))

    def variance(self, X: Any) -> Array:
        """The feature posterior plus k(x, x) − φᵀφ, which the basis leaves undetermined."""
        _refuse_precomputed(self.kernel)
        Phi = self.basis.features(X)
        rest = self.kernel.paired(X) - np.einsum("ij,ij->i", Phi, Phi)
        explained = self._spread([s.variance(Phi, self.alpha) for s in self.solvers])
        return explained + np.maximum(rest, 0.0)[:, None]

    def difference_variance(self, X_a: Any, X_b: Any) -> Array:
        """The same form at φ_a − φ_b."""
        _refuse_precomputed(self.kernel)
        Delta = self.basis.features(X_a) - self.basis.features(X_b)
        rest = self.kernel.squared_distance(X_a, X_b) - np.einsum("ij,ij->i", Delta, Delta)
        explained = [s.difference_variance(Delta, self.alpha) for s in self.solvers]
        return self._spread(explained) + np.maximum(rest, 0.0)[:, None]


class KernelModel(Model):
    """f(x) = Σ_i A_i k(x, x_i) from the dual system.

    Parameters
    ----------
    objectives : sequence of Objective, over the rows ``used``
    kernel : Kernel
    X : training rows of shape (m, n); the kernel matrix if it is precomputed
    used : ndarray of shape (m',), int
        The rows that have an edge; the others get the coefficient zero.
    alphas : ndarray of shape (n_alphas,)
    """

    def __init__(
        self, objectives: Sequence[Objective], kernel: Kernel, X: Any, used: Array, alphas: Array
    ) -> None:
        self.alphas = alphas
        self.kernel = kernel
        self.used = used
        self.shift: Any = 0.0
        self.rows: Any = None
        m = X.shape[0]
        K = None
        if kernel.precomputed:
            K = np.array(X[np.ix_(used, used)] if len(used) < m else X)
        else:
            self.rows = X[used] if len(used) < m else X.copy()
            if kernel.linear and not sparse.issparse(X):
                # Centred rows give the same function and keep the digits of offset features.
                self.shift = self.rows.mean(axis=0, dtype=np.float64).astype(X.dtype)
                self.rows = self.rows - self.shift
            elif not kernel.linear:
                K = kernel(self.rows)
        self.solvers = []
        for number, objective in enumerate(objectives):
            if K is None:
                solver = DualSolver.from_features(objective, self.rows, alphas)
            else:
                last = number == len(objectives) - 1
                solver = DualSolver.from_kernel(objective, K if last else K.copy(), alphas)
            self.solvers.append(solver)
        A = self._gather([solver.coefficients(alphas) for solver in self.solvers])
        self._A = A.astype(X.dtype, copy=False)
        self.dual_coef = self._A
        if len(used) < m:
            self.dual_coef = np.zeros((len(alphas), m, A.shape[-1]), dtype=X.dtype)
            self.dual_coef[:, used] = self._A
        if kernel.linear:
            self.coef = np.stack([self.rows.T @ a for a in self._A])

    def without_uncertainty(self) -> Model:
        """For a linear kernel the weights are enough, and the training rows are left out."""
        slim = super().without_uncertainty()
        if self.coef is None:
            return slim
        linear = LinearModel.__new__(LinearModel)
        linear.alphas, linear.solvers = self.alphas, slim.solvers
        linear.coef, linear.dual_coef = self.coef, self.dual_coef
        return linear

    def _kernel_with_training(self, X: Any) -> Array:
        """Shape (n, m')."""
        return np.asarray(X)[:, self.used] if self.rows is None else self.kernel(X, self.rows)

    def predict(self, X: Any, index: int | None = 0) -> Array:
        """k(X, X_fit) A."""
        if self.coef is not None:
            return X @ of_alpha(self.coef, index)
        if self.rows is None:
            return self._kernel_with_training(X) @ of_alpha(self._A, index)
        return self.kernel.product(X, self.rows, of_alpha(self._A, index))

    def variance(self, X: Any) -> Array:
        """See `DualSolver.variance`."""
        _refuse_precomputed(self.kernel)
        if isinstance(self.shift, np.ndarray):
            X = X - self.shift
        K_X, k_xx = self._kernel_with_training(X), self.kernel.paired(X)
        return self._spread([s.variance(K_X, k_xx, self.alpha) for s in self.solvers])

    def difference_variance(self, X_a: Any, X_b: Any) -> Array:
        """See `DualSolver.difference_variance`."""
        _refuse_precomputed(self.kernel)
        prior = self.kernel.squared_distance(X_a, X_b)
        Delta = self._kernel_with_training(X_a) - self._kernel_with_training(X_b)
        variances = [s.difference_variance(Delta, prior, self.alpha) for s in self.solvers]
        return self._spread(variances)


def _dense(X: Any) -> Array:
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


def _refuse_precomputed(kernel: Kernel) -> None:
    if kernel.precomputed:
        raise ValueError(
            "uncertainties need k(x, x) of the new rows, which kernel='precomputed' does not "
            "give: use a named kernel or a callable"
        )
