"""Kernels, and function spaces: weights of features, basis vectors or kernel rows.

A space is created once for each problem. The basis is drawn, rows are centred and kernel values are
computed at most once, and the same object is used for fit, path, cross-validation and variances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import lapack, solve_triangular
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import KERNEL_PARAMS, PAIRWISE_KERNEL_FUNCTIONS, pairwise_kernels
from sklearn.utils import gen_batches
from sklearn.utils.random import sample_without_replacement

from rankrls import _resources
from rankrls._calls import warn
from rankrls._validation import check_number, check_positive, check_rows, show
from rankrls.core.spaces.products import centre, subtract

Array = NDArray[Any]

SOLVERS = ("auto", "primal", "dual", "nystroem", "cg")

#: ``auto`` solves sparse linear problems iteratively above this number of rows and of columns.
DIRECT_SIZE = 5000

#: Number of basis vectors if solver="nystroem" and ``basis`` is None.
DEFAULT_BASIS = 1000

#: Distances are computed from differences of rows if γ‖x‖² is larger than this for some row.
FAR_ROWS = 1e4


@dataclass(frozen=True)
class Kernel:
    """k(x, x'), by a name of scikit-learn's `pairwise_kernels`, "precomputed", or as a function."""

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
        """Check an estimator's kernel options; unknown names and parameters raise an error."""
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
        for name, value in {"gamma": gamma, "degree": degree, "coef0": coef0}.items():
            if name in accepted:
                value = extra.setdefault(name, value)
            if value is not None or name != "gamma":
                positive = name == "gamma" and kernel not in ("poly", "polynomial", "sigmoid")
                (check_positive if positive else check_number)(name, value)
        if kernel == "chi2" and extra["gamma"] is None:
            del extra["gamma"]  # scikit-learn's default is 1, and it does not accept None
        return cls(kernel, extra, n_jobs)

    @property
    def linear(self) -> bool:
        """Whether this is the plain inner product."""
        return isinstance(self.metric, str) and self.metric == "linear"

    @property
    def shift_invariant(self) -> bool:
        """Whether k(x + c, y + c) = k(x, y), so that rows may be centred."""
        return isinstance(self.metric, str) and self.metric in ("rbf", "laplacian")

    @property
    def precomputed(self) -> bool:
        """Whether rows of X are rows of a kernel matrix."""
        return isinstance(self.metric, str) and self.metric == "precomputed"

    def __call__(self, X: Any, Y: Any = None) -> Array:
        """Kernel matrix between the rows of X and of Y (X itself if None), in double precision."""
        if callable(self.metric) and sparse.issparse(X):
            raise ValueError(
                f"kernel {self.name} is a function of two dense rows, but X is sparse; pass "
                "X.toarray(), or use a named kernel"
            )
        X = X.astype(np.float64, copy=False)
        Y = Y if Y is None else Y.astype(np.float64, copy=False)
        if callable(self.metric) and len(X):
            value = self.metric(X[0], (X if Y is None else Y)[0], **self.params)
            if np.ndim(value) or np.asarray(value).dtype.kind not in "fiub":
                raise ValueError(
                    f"kernel {self.name} must return a number for two rows; got {show(value)}"
                )
        if self.metric == "rbf":
            K = _rbf(X, Y, self._gamma(X))
        else:
            K = pairwise_kernels(X, Y, metric=self.metric, n_jobs=self.n_jobs, **self.params)
            K = K.toarray() if sparse.issparse(K) else np.asarray(K)
        if not np.isfinite(K).all():
            raise ValueError(f"kernel {self.name} returned NaN or infinity; check its parameters")
        return K

    def _gamma(self, X: Any) -> float:
        gamma = self.params.get("gamma")
        return 1.0 / X.shape[1] if gamma is None else float(gamma)

    def paired(self, X: Any, Y: Any = None) -> Array:
        """k(x_i, y_i) for every row (y = x if Y is None), shape (n,), without the n × n matrix."""
        if Y is None and self.shift_invariant:
            return np.ones(X.shape[0])
        Y = X if Y is None else Y
        if callable(self.metric):
            rows = zip(X, Y, strict=True)
            return np.array([float(self.metric(x, y, **self.params)) for x, y in rows])
        if self.metric == "rbf":
            return np.exp(-self._gamma(X) * _row_products(X - Y, X - Y))
        if self.linear:
            return _row_products(X, Y)
        parts = [self(X[part], Y[part]).diagonal() for part in gen_batches(max(X.shape[0], 1), 64)]
        return np.concatenate(parts)

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """k(x, x) + k(y, y) − 2 k(x, y) row by row: the prior variance of f(x) − f(y)."""
        if self.linear:
            return _row_products(X - Y, X - Y)
        if self.metric == "rbf":
            return -2 * np.expm1(-self._gamma(X) * _row_products(X - Y, X - Y))
        return self.paired(X) + self.paired(Y) - 2 * self.paired(X, Y)

    def product(self, X: Any, Y: Any, coefficients: Array) -> Array:
        """k(X, Y) @ coefficients by blocks; equal rows of X get equal values, so ties are kept."""
        first = first_equal(X)
        different, number = np.unique(first, return_inverse=True)
        rows = X if len(different) == len(first) else X[different]
        size = max(1, 2**22 // max(Y.shape[0], 1))
        parts = [
            self(rows[part], Y) @ coefficients for part in gen_batches(max(rows.shape[0], 1), size)
        ]
        values = np.concatenate(parts) if len(parts) > 1 else parts[0]
        return values if rows is X else values[number]

    @property
    def name(self) -> str:
        """Name for messages."""
        if callable(self.metric):
            return getattr(self.metric, "__name__", repr(self.metric))
        return repr(self.metric)


def _row_products(X: Any, Y: Any) -> Array:
    """⟨x_i, y_i⟩ for every row, shape (n,), in double precision."""
    product = X.multiply(Y) if sparse.issparse(X) else X * Y
    return np.asarray(product.sum(axis=1, dtype=np.float64)).ravel()


def _rbf(X: Any, Y: Any, gamma: float) -> Array:
    """exp(−γ‖x − y‖²), shape (n, n'), from differences of rows if some are far from zero."""
    # ‖x‖² + ‖y‖² − 2⟨x, y⟩ has a rounding error of about eps ‖x‖².
    squares = -gamma * _row_products(X, X)
    others = squares if Y is None else -gamma * _row_products(Y, Y)
    if -min(squares.min(initial=0.0), others.min(initial=0.0)) > FAR_ROWS:
        dense = [V.toarray() if sparse.issparse(V) else V for V in (X, X if Y is None else Y)]
        K = cdist(*dense, "sqeuclidean")
        K *= -gamma
    else:
        K = X @ (X if Y is None else Y).T
        K = K.toarray() if sparse.issparse(K) else K
        K *= 2 * gamma
        K += squares[:, None]
        K += others
        np.minimum(K, 0.0, out=K)
    if Y is None:
        np.fill_diagonal(K, 0.0)
    return np.exp(K, out=K)


def first_equal(X: Any) -> Array:
    """Index of the first row that equals each row of X, shape (m,)."""
    rows: Iterator[Any]
    if sparse.issparse(X):
        X = sparse.csr_array(X, copy=True)
        X.sum_duplicates()
        X.eliminate_zeros()
        ends = pairwise(X.indptr.tolist())
        rows = ((X.indices[a:b].tobytes(), X.data[a:b].tobytes()) for a, b in ends)
    else:  # 0 for −0, too
        rows = (row.tobytes() for part in gen_batches(len(X), 4096) for row in X[part] + 0.0)
    first: dict[int, int] = {}
    return np.array([first.setdefault(hash(row), i) for i, row in enumerate(rows)], dtype=np.int64)


def check_kernel_values(K: Array, basis: Any) -> None:
    """Raise an error unless K is the kernel matrix of all rows or its columns ``basis``."""
    m, b = K.shape
    if m == b or basis is None or isinstance(basis, (int, np.integer)):
        check_gram(K)
        return
    rows = choose_basis(basis, m, None)
    if len(rows) != b:
        raise ValueError(
            f"X has {b} columns for {len(rows)} basis vectors: pass the kernel values of all rows "
            f"with the rows basis, shape ({m}, {len(rows)}), or the whole kernel matrix"
        )
    check_gram(K[rows], "X[basis], the kernel matrix of the basis vectors,")


def check_gram(K: Array, what: str = "the precomputed kernel") -> None:
    """Raise an error unless a precomputed kernel matrix is square and symmetric up to rounding."""
    m, b = K.shape
    if m != b:
        raise ValueError(
            "kernel='precomputed' needs the square kernel matrix of the training rows; got shape "
            f"{K.shape}. For kernel values with {b} basis vectors only, set basis to the row "
            "numbers of these (with names: X.index.get_indexer(X.columns))"
        )
    scale = max(abs(K.max()), abs(K.min()), np.finfo(K.dtype).tiny)
    tolerance = max(1e3 * len(K) * np.finfo(K.dtype).eps, 1e-6) * scale
    for part in gen_batches(len(K), 512):
        worst = np.abs(K[part] - K[:, part].T).max()
        if worst > tolerance:
            advice = "Column j must belong to the row basis[j]"
            if what == "the precomputed kernel":
                advice = "If it should be, pass (K + K.T) / 2"
            raise ValueError(
                f"{what} is not symmetric: entries differ by up to {worst:.3g}. {advice}"
            )


@dataclass(frozen=True)
class Basis:
    """Basis vectors of a kernel, the training rows ``indices``, and φ(x) = Z⁻¹ k(R, x).

    K_RR = Z Zᵀ is a pivoted Cholesky factorisation. Of the basis vectors ``positions``, (q,), are
    kept, in pivot order; those that depend on them up to rounding have coefficient zero, and
    ``left_out`` is the largest entry of their kernel matrix that the others do not explain, zero if
    it is positive semi-definite. ``rows`` are the features of those that are kept, less ``shift``
    (for shift-invariant kernels); None for a precomputed kernel, of which X has all columns, or the
    basis ``columns_only``.
    """

    kernel: Kernel
    indices: Array
    Z: Array
    positions: Array
    left_out: float = 0.0
    rows: Any = None
    shift: Any = 0.0
    columns_only: bool = False

    @classmethod
    def of(
        cls, kernel: Kernel, X: Any, indices: Array, *, columns_only: bool | None = None
    ) -> Basis:
        """Make a basis from rows of X; ``columns_only`` by default if X is not square."""
        if not kernel.precomputed:
            return cls.from_rows(kernel, X[indices], indices)
        if columns_only is None:
            columns_only = X.shape[0] != X.shape[1]
        K_RR = np.array(X[indices] if columns_only else X[np.ix_(indices, indices)])
        return cls(kernel, indices, *_pivoted_cholesky(K_RR), columns_only=columns_only)

    @classmethod
    def from_rows(cls, kernel: Kernel, rows: Any, indices: Array) -> Basis:
        """Make a basis from the features of the basis vectors, (r, n), or their kernel matrix."""
        if kernel.precomputed:
            check_gram(rows, "basis_rows, the kernel matrix of the basis vectors,")
            return cls(kernel, indices, *_pivoted_cholesky(rows), columns_only=True)
        shift: Any = 0.0
        if kernel.shift_invariant:
            rows, shift = centre(rows)
        Z, positions, left_out = _pivoted_cholesky(kernel(rows))
        return cls(kernel, indices, Z, positions, left_out, rows[positions], shift)

    @property
    def kept(self) -> Array:
        """Training rows that are kept, in pivot order, shape (q,)."""
        return self.indices[self.positions]

    @property
    def rounding(self) -> float:
        """Relative error of Z⁻¹: eps cond(K_RR), from the pivots."""
        pivots = np.abs(self.Z.diagonal())
        return float(np.finfo(self.Z.dtype).eps * (pivots[0] / pivots[-1]) ** 2)

    def block(self, X: Any) -> Array:
        """Kernel values with the basis vectors that are kept, shape (n, q)."""
        if self.rows is None:
            columns = self.positions if self.columns_only else self.kept
            return np.asarray(X[:, columns], dtype=np.float64)
        return self.kernel(subtract(X, self.shift), self.rows)

    def features(self, X: Any) -> Array:
        """Φ = K_MR Z⁻ᵀ of shape (n, q)."""
        return solve_triangular(self.Z, self.block(X).T, lower=True, check_finite=False).T

    def coefficients(self, weights: Array) -> Array:
        """Kernel coefficients a = Z⁻ᵀ w for feature weights, both (n_alphas, q, k)."""
        n_alphas, q, k = weights.shape
        stacked = np.moveaxis(weights, 0, 1).reshape(q, -1)
        a = solve_triangular(self.Z, stacked, lower=True, trans="T", check_finite=False)
        return np.moveaxis(a.reshape(q, n_alphas, k), 1, 0)


def _pivoted_cholesky(K: Array) -> tuple[Array, Array, float]:
    """Z, the pivots (q,), and the largest entry that they do not explain, if it is no rounding."""
    K = K.astype(np.float64, copy=False)
    factor, pivots, rank, info = lapack.dpstrf(K, lower=1)
    if info < 0 or rank == 0:
        raise ValueError(
            "the kernel matrix of the basis vectors is zero or not positive semi-definite"
        )
    Z, kept = np.tril(factor[:rank, :rank]), pivots[:rank] - 1
    others, left_out = np.setdiff1d(np.arange(len(K)), kept), 0.0
    if len(others):
        W = solve_triangular(Z, K[np.ix_(kept, others)], lower=True, check_finite=False)
        left_out = float(np.abs(K[np.ix_(others, others)] - W.T @ W).max())
    rounding = np.sqrt(np.finfo(np.float64).eps) * float(np.abs(K).max())
    return Z, kept, left_out if left_out > rounding else 0.0


class Space:
    """Functions of the rows of X (the kernel matrix if it is precomputed).

    ``solver`` names the unknowns: weights of the features of a linear kernel ("primal", "cg"),
    of the features Φ = K_MR Z⁻ᵀ of a ``basis`` ("nystroem", "cg"), or coefficients of the training
    rows ("dual"), which are centred if that changes no ranking.
    """

    def __init__(self, kernel: Kernel, X: Any, solver: str, basis: Basis | None = None) -> None:
        self.kernel, self.X, self.solver, self.basis = kernel, X, solver, basis
        self.n_rows = X.shape[0]

    @cached_property
    def features(self) -> Any:
        """Φ of shape (m, q), or of a linear kernel the rows, centred for solver="dual"."""
        if self.basis is not None:
            return self.basis.features(self.X)
        return self.rows if self.solver == "dual" else self.X

    @cached_property
    def _centred(self) -> tuple[Any, Any]:
        X, kernel = self.X, self.kernel
        if kernel.precomputed:
            return None, 0.0
        centred = kernel.linear or kernel.shift_invariant
        rows, shift = centre(X) if centred else (X.astype(np.float64), 0.0)
        return (X.copy() if rows is X else rows), shift

    @property
    def rows(self) -> Any:
        """The rows less `shift`, in double precision; None if the kernel is precomputed."""
        return self._centred[0]

    @property
    def shift(self) -> Any:
        """What `rows` are centred by, (n,), or 0.0."""
        return self._centred[1]

    @cached_property
    def gram(self) -> Array:
        """The kernel matrix of all rows, shape (m, m), computed once."""
        m = self.n_rows
        advice = "use solver='nystroem' with basis=1000, say"
        _resources.require("the kernel matrix", m, m, copies=4, advice=advice)
        if self.kernel.precomputed:
            return np.asarray(self.X, dtype=np.float64)
        return self.kernel(self.rows)


def choose_basis(basis: Any, n_rows: int, random_state: np.random.RandomState | None) -> Array:
    """Row indices of the basis vectors, given or drawn at random without replacement."""
    if basis is None:
        basis = min(DEFAULT_BASIS, n_rows)
    if isinstance(basis, (int, np.integer)) and not isinstance(basis, bool):
        if basis < 1:
            raise ValueError(f"basis must be at least 1; got {basis}")
        if basis > n_rows:
            warn(f"basis={basis} is more than the {n_rows} rows: all rows are used")
        n_basis = min(int(basis), n_rows)
        return np.sort(sample_without_replacement(n_rows, n_basis, random_state=random_state))
    return check_rows("basis", basis, n_rows)


def choose_space(
    solver: str,
    kernel: Kernel,
    X: Any,
    *,
    basis: Any,
    random_state: np.random.RandomState,
    used: int | None = None,
    early_stopping: bool = False,
) -> Space:
    """Resolve and check ``solver`` for X, of which ``used`` rows have an edge; draw the basis.

    ``auto``: ``nystroem`` if a ``basis`` is given, ``cg`` for early stopping; for other kernels
    than linear ``dual`` if two m × m matrices fit into half of the memory, otherwise ``nystroem``;
    linear: ``cg`` if X is sparse with more than 5000 rows and columns, or if the direct solvers do
    not fit into memory, otherwise ``primal`` if n <= m, else ``dual``.
    """
    n_rows, n = X.shape
    m, rows = n_rows if used is None else used, None
    if basis is not None or solver == "nystroem":
        rows = choose_basis(basis, n_rows, random_state)
    if solver == "auto":
        size = min(n, m)
        if early_stopping:
            solver = "cg"
        elif rows is not None:
            solver = "nystroem"
        elif kernel.linear:
            large = sparse.issparse(X) and size > DIRECT_SIZE
            solver = "primal" if n <= m else "dual"
            solver = "cg" if large or not _resources.fits(size, size, copies=2) else solver
        elif kernel.precomputed or _resources.fits(m, m, copies=2):
            solver = "dual"
        else:
            solver = "nystroem"
            warn(
                f"the kernel matrix of {m:,} rows does not fit into memory, so solver='nystroem' "
                f"is used, an approximation with {DEFAULT_BASIS} random basis vectors; set basis= "
                "to change their number"
            )
    if early_stopping and solver != "cg":
        raise ValueError(f"early_stopping belongs to solver='cg'; got solver={solver!r}")
    if solver == "primal" and not kernel.linear:
        raise ValueError(
            f"solver={solver!r} works on explicit features and needs kernel='linear'; with "
            f"kernel={kernel.name} use solver='dual' or 'nystroem'"
        )
    with_basis = solver == "nystroem" or (solver == "cg" and not kernel.linear)
    if rows is not None and not with_basis:
        raise ValueError(f"basis belongs to solver='nystroem'; got solver={solver!r}")
    if with_basis and rows is None:
        every = np.arange(n_rows)
        rows = every if solver == "cg" else choose_basis(None, n_rows, random_state)
    shape, advice = (n, n), "use solver='cg'"
    if rows is not None:
        shape, advice = (n_rows, len(rows)), "use fewer basis vectors (basis=1000, say)"
    elif solver == "dual" and not (kernel.linear and n <= m):
        shape = (m, m)
        advice = advice if kernel.linear else "use solver='nystroem' with basis=1000, say"
    free = solver == "cg" and kernel.linear
    if not (free or (solver == "dual" and kernel.precomputed)):
        _resources.require(f"solver={solver!r}", *shape, copies=2, advice=advice)
    return Space(kernel, X, solver, None if rows is None else Basis.of(kernel, X, rows))
