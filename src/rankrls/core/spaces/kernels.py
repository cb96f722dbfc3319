"""Kernels by name, by callable or precomputed: one object that knows how to evaluate itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import KERNEL_PARAMS, PAIRWISE_KERNEL_FUNCTIONS, pairwise_kernels

from rankrls._validation import check_number, check_positive, show

__all__ = ["Kernel", "check_gram"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Kernel:
    """k(x, x') over rows of a feature matrix.

    Attributes
    ----------
    metric : str or callable
        A name that scikit-learn's `pairwise_kernels` knows, "precomputed", or a function of
        two rows.
    params : dict
        Keyword arguments for it.
    n_jobs : int or None
        Passed on to `pairwise_kernels`.
    """

    metric: str | Callable[..., float]
    params: dict[str, Any] = field(default_factory=dict)
    n_jobs: int | None = None

    @classmethod
    def from_options(
        cls,
        kernel: Any,
        *,
        gamma: float | None,
        degree: float,
        coef0: float,
        kernel_params: dict[str, Any] | None,
        n_jobs: int | None = None,
    ) -> Kernel:
        """Check an estimator's kernel options; unknown names and parameters are refused."""
        if not isinstance(kernel_params, dict | None):
            raise ValueError(f"kernel_params must be a dict; got {show(kernel_params)}")
        extra = dict(kernel_params or {})
        if callable(kernel):
            return cls(kernel, extra, n_jobs)
        names = sorted({*PAIRWISE_KERNEL_FUNCTIONS, "precomputed"})
        if not isinstance(kernel, str) or kernel not in names:
            raise ValueError(
                f"kernel must be a callable or one of {', '.join(map(repr, names))}; "
                f"got {show(kernel)}"
            )
        accepted = KERNEL_PARAMS.get(kernel, frozenset())
        unknown = sorted(set(extra) - set(accepted))
        if unknown:
            known = ", ".join(sorted(accepted)) or "none"
            raise ValueError(
                f"kernel_params has {unknown[0]!r}, which kernel={kernel!r} does not take "
                f"(it takes: {known})"
            )
        if gamma is not None and "gamma" in extra:
            raise ValueError("gamma is given twice: as gamma and in kernel_params")
        common = {"gamma": gamma, "degree": degree, "coef0": coef0}
        chosen = {name: value for name, value in common.items() if name in accepted} | extra
        for name in set(chosen) & set(common):
            if name == "gamma" and kernel in ("rbf", "laplacian", "chi2"):
                if chosen[name] is not None:
                    check_positive("gamma", chosen[name])
            elif chosen[name] is not None or name != "gamma":
                check_number(name, chosen[name])
        if kernel == "chi2" and chosen["gamma"] is None:
            del chosen["gamma"]  # scikit-learn's default is 1, and None is no number to it
        return cls(kernel, chosen, n_jobs)

    @property
    def linear(self) -> bool:
        """Whether this is the plain inner product."""
        return isinstance(self.metric, str) and self.metric == "linear"

    @property
    def precomputed(self) -> bool:
        """Whether rows of X are rows of a kernel matrix."""
        return isinstance(self.metric, str) and self.metric == "precomputed"

    def __call__(self, X: Any, Y: Any = None) -> Array:
        """Kernel matrix of shape (n, n') between the rows of X and of Y (X itself if None)."""
        if callable(self.metric) and sparse.issparse(X):
            raise ValueError(
                f"kernel {self.name} is a function of two dense rows, and X is sparse: pass "
                "X.toarray(), or use a named kernel"
            )
        K = pairwise_kernels(X, Y, metric=self.metric, n_jobs=self.n_jobs, **self.params)
        K = K.toarray() if sparse.issparse(K) else np.asarray(K)
        if not np.isfinite(K).all():
            raise ValueError(f"kernel {self.name} gave NaN or infinity: check its parameters")
        return K

    def paired(self, X: Any, Y: Any = None) -> Array:
        """k(x_i, y_i) for every row (y = x if Y is None), shape (n,), without the n × n matrix."""
        if Y is None and self.metric in ("rbf", "laplacian"):
            return np.ones(X.shape[0])
        Y = X if Y is None else Y
        if callable(self.metric):
            rows = zip(X, Y, strict=True)
            return np.array([float(self.metric(x, y, **self.params)) for x, y in rows])
        if self.linear:
            product = X.multiply(Y) if sparse.issparse(X) else X * Y
            return np.asarray(product.sum(axis=1), dtype=float).ravel()
        parts = [self(X[part], Y[part]).diagonal() for part in _chunks(X.shape[0], 64)]
        return np.concatenate(parts)

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """k(x, x) + k(y, y) − 2 k(x, y) row by row: the prior variance of f(x) − f(y)."""
        if self.linear:
            return self.paired(X - Y)
        return self.paired(X) + self.paired(Y) - 2 * self.paired(X, Y)

    def product(self, X: Any, Y: Any, coefficients: Array) -> Array:
        """k(X, Y) @ coefficients, a block of rows at a time."""
        size = max(1, 2**24 // max(Y.shape[0], 1))
        parts = [self(X[part], Y) @ coefficients for part in _chunks(X.shape[0], size)]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    @property
    def name(self) -> str:
        """How to call it in a message."""
        if callable(self.metric):
            return getattr(self.metric, "__name__", repr(self.metric))
        return repr(self.metric)


def check_gram(K: Array) -> None:
    """Raise unless a precomputed training kernel is square and symmetric up to rounding."""
    if K.shape[0] != K.shape[1]:
        raise ValueError(
            f"kernel='precomputed' needs the square kernel matrix of the training rows; "
            f"got shape {K.shape}"
        )
    scale = max(abs(K.max()), abs(K.min()), np.finfo(K.dtype).tiny)
    tolerance = 1e3 * len(K) * np.finfo(K.dtype).eps * scale
    for part in _chunks(len(K), 512):
        worst = np.abs(K[part] - K[:, part].T).max()
        if worst > max(tolerance, 1e-6 * scale):
            raise ValueError(
                f"the precomputed kernel is not symmetric: entries differ by up to {worst:.3g}. "
                "If it is meant to be, pass (K + K.T) / 2"
            )


def _chunks(n: int, size: int) -> Iterator[slice]:
    for start in range(0, max(n, 1), size):
        yield slice(start, min(start + size, n))
