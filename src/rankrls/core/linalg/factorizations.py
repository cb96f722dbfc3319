"""Factorisations of a symmetric matrix S, shape (p, p), for repeated solves with S + alpha I.

``factorize`` picks Cholesky for one alpha and an eigendecomposition for a path; both have the same
methods. A matrix whose diagonal spans many orders of magnitude (features of very different scales)
is factorised by Cholesky for each alpha, since its accuracy is that of the equilibrated matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh, solve_triangular
from scipy.linalg.lapack import get_lapack_funcs

from rankrls._resources import few_threads

Array = NDArray[Any]

EPS, TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)

#: Up to this size an eigendecomposition is cheap enough to require full accuracy.
CHEAP_SIZE = 1000

#: A diagonal that spans more than this factor (features of scales that differ by its square root)
#: makes a matrix graded: eigenvectors of small eigenvalues would be inaccurate.
GRADED = 1e6

#: A diagonal entry below this fraction of the largest one belongs to a constant column.
NO_COLUMN = 1e-28

#: The spectrum has no gap if eigenvalues exceed the rounding level by less than this factor.
GAP = 1e3

#: Maximum size in bytes of the cached Cholesky factors of other alphas.
CACHE = 2**29


class NotPositiveError(ValueError):
    """Error that S + alpha I is not positive definite."""


def rounding_level(values: Array, noise: float = 0.0) -> float:
    """Level below which eigenvalues (p of them) are rounding errors: p max(eps ‖S‖, noise)."""
    size = float(np.abs(values).max(initial=0.0))
    return len(values) * max(float(np.finfo(values.dtype).eps) * size, noise)


def is_graded(diagonal: Array, alpha: float) -> bool:
    """Whether the diagonal of S + alpha I spans more than `GRADED`, ignoring columns of zeros."""
    largest = float(diagonal.max(initial=0.0))
    present = diagonal[diagonal > NO_COLUMN * largest]
    return len(present) > 0 and largest + alpha > GRADED * (float(present.min()) + alpha)


@dataclass
class CholeskyFactorization:
    """S + alpha I = C Cᵀ for one alpha; factors for other alphas are computed on demand.

    The lower triangle of ``C`` is the factor; above the diagonal is S, with ``diagonal`` apart.
    ``loss`` is the approximate relative rounding error of solutions, if it is larger than usual.
    """

    loss = 0.0
    C: Array
    alpha: float
    diagonal: Array

    @classmethod
    def attempt(cls, S: Array, alpha: float) -> tuple[CholeskyFactorization, bool]:
        """Factorise in place; also return whether S + alpha I is positive definite."""
        diagonal = S.diagonal().copy()
        S.flat[:: len(S) + 1] += alpha
        # In place: the factor takes the lower triangle, the upper one keeps S.
        (potrf,) = get_lapack_funcs(("potrf",), (S,))
        with few_threads(len(S)):
            C, info = potrf(S if S.flags.f_contiguous else S.T, lower=1, clean=0, overwrite_a=1)
        return cls(C, alpha, diagonal), info == 0

    def _factor(self, alpha: float) -> Array:
        if alpha == self.alpha:
            return self.C
        others: dict[float, Array] = self.__dict__.setdefault("_others", {})
        if alpha not in others:
            made, positive = CholeskyFactorization.attempt(self.matrix(), alpha)
            if not positive:
                raise NotPositiveError(
                    f"the matrix is not positive definite at alpha={alpha:g}; use a larger alpha"
                )
            if (len(others) + 1) * self.C.nbytes > CACHE:
                others.clear()
            others[alpha] = made.C
        return others[alpha]

    def solve_path(self, B: Array, alphas: Array) -> Array:
        """(S + alpha I)⁻¹ B for every alpha, shape (n_alphas, p, k)."""
        (p, k), dtype = B.shape, np.result_type(self.C, B)
        out = np.empty((len(alphas), k, p), dtype).swapaxes(1, 2)  # columns in one piece
        for a, alpha in enumerate(alphas.tolist()):
            W, C = self.whiten(B, alpha), self._factor(alpha)
            out[a] = solve_triangular(C, W, lower=True, trans="T", check_finite=False)
        return out

    def whiten(self, B: Array, alpha: float) -> Array:
        """W with k columns and WᵀW = Bᵀ (S + alpha I)⁻¹ B for B of shape (p, k): C⁻¹B."""
        return solve_triangular(self._factor(alpha), B, lower=True, check_finite=False)

    def rotate(self, M: Any, first: int = 0) -> Array:
        """Rows of M, of columns from ``first`` on, in the coordinates of `metric`: M itself."""
        out = np.zeros((M.shape[0], len(self.C)))
        out[:, first : first + M.shape[1]] = M.toarray() if sparse.issparse(M) else M
        return out

    def metric(self, M: Array, alpha: float) -> tuple[Array, Array | None]:
        """R and w (None: ones) with M (S + alpha I)⁻¹ Mᵀ = R diag(w) Rᵀ for rotated M: M C⁻ᵀ."""
        rows = np.ascontiguousarray(M.reshape(-1, M.shape[-1]).T)
        return self.whiten(rows, alpha).T.reshape(M.shape), None

    def quadratic(self, B: Array, alpha: float) -> Array:
        """The diagonal of Bᵀ (S + alpha I)⁻¹ B, shape (k,)."""
        W = self.whiten(B, alpha)
        return np.einsum("ij,ij->j", W, W)

    def log_determinant(self, alpha: float) -> float:
        """Log det(S + alpha I) = 2 Σ log C_ii."""
        return 2.0 * float(np.log(self._factor(alpha).diagonal().astype(float)).sum())

    def condition(self, alpha: float) -> float:
        """κ(D(S + alpha I)D) with unit diagonal, as LAPACK estimates it from D C.

        It bounds the rounding errors of a solve, however different the scales are (van der Sluis).
        """
        C = self._factor(alpha)
        shifted = np.maximum(self.diagonal, 0.0) + alpha
        if is_graded(self.diagonal, alpha):
            # Powers of two scale without rounding.
            scale = np.exp2(-np.round(0.5 * np.log2(shifted)))
            C, shifted = scale[:, None] * C, scale**2 * shifted
        (pocon,) = get_lapack_funcs(("pocon",), (C,))
        reciprocal, _ = pocon(C, 1.0, uplo="L")
        # The trace bounds the norm of a positive matrix.
        return float(shifted.sum()) / max(float(reciprocal), TINY)

    def matrix(self) -> Array:
        """S, a new array identical to the factorised values."""
        return _symmetric(self.C, self.diagonal)


class EigenFactorization:
    """S = V diag(σ) Vᵀ, for every alpha; the methods are those of `CholeskyFactorization`.

    S is overwritten. It may be indefinite if S + smallest_alpha I is positive definite. ``null``,
    sparse (p, c), is a known part of its null space, as for `Complement`, which V excludes.
    ``noise`` is the size of the rounding errors in S, if it exceeds eps ‖S‖. ``source`` is (an
    array with S above its diagonal, the diagonal of S), if S must be returned exactly.
    """

    loss = 0.0

    def __init__(
        self,
        S: Array,
        smallest_alpha: float,
        *,
        null: Any = None,
        noise: float = 0.0,
        source: tuple[Array, Array] | None = None,
    ) -> None:
        complement = None if null is None else Complement(null)
        if complement is not None:
            S = complement.restrict(S)
        with few_threads(len(S)):
            values, vectors = eigh(S, driver="evd", overwrite_a=True, check_finite=False)
        rounding = rounding_level(values, noise)
        lowest = values.min(initial=0.0)
        if lowest < -10 * rounding and lowest + smallest_alpha <= 0:
            raise NotPositiveError(
                "the kernel matrix is not positive semi-definite on the preferences: its "
                f"smallest eigenvalue is {lowest:.3g} (largest {values.max():.3g}). Use alpha "
                f"above {-lowest:.3g}, or a positive semi-definite kernel"
            )
        # Eigenvalues at rounding level are set to zero, and solutions exclude them for alphas up to
        # ``excluded_up_to``. A gap in the spectrum shows that S is singular: a coefficient vector
        # there represents the function zero. The spectrum of a smooth kernel has no gap; then these
        # directions matter as long as alpha is above the rounding level.
        self.null = np.abs(values) <= rounding
        above = values[values > rounding]
        gap = len(above) == 0 or float(above.min()) > GAP * rounding
        self.excluded_up_to = float("inf") if gap else float(rounding)
        self.values = np.where(self.null, 0.0, values)
        self.vectors = vectors if complement is None else complement.expand(vectors)
        self.source = source

    def dropped(self, alpha: float) -> Array:
        """Whether `solve` excludes each eigenvector, shape (q,), bool."""
        return self.null if alpha <= self.excluded_up_to else np.zeros_like(self.null)

    def spectrum(self) -> tuple[Array, Array]:
        """V and σ without eigenvectors that certainly belong to the eigenvalue 0."""
        used = np.flatnonzero(~self.null | np.isfinite(self.excluded_up_to))
        return self.vectors[:, used], self.values[used]

    def error(self, B: Array, alpha: float) -> float:
        """Approximate ‖E (S + alpha I)⁻¹B‖/‖B‖ for a rounding error E of S of size eps ‖S‖."""
        # Eigenvalues at rounding level are uncertain without a gap, or if alpha is far below it.
        rounding = EPS * float(np.abs(self.values).max(initial=0.0))
        used = ~self.null | np.isfinite(self.excluded_up_to) | (alpha < rounding / GAP)
        scaled = (self.vectors.T @ B)[used] / (self.values[used, None] + alpha)
        return rounding * float(np.linalg.norm(scaled)) / max(float(np.linalg.norm(B)), TINY)

    def lost_below(self, B: Array, alpha: float) -> float:
        """Approximate relative error of (S + alpha I)⁻¹B along eigenvalues near rounding errors.

        Only where B is not a rounding error itself: B of dependent columns is in the range of S.
        """
        rounding, coordinates = rounding_level(self.values), self.vectors.T @ B
        coordinates[abs(coordinates) <= 1e3 * len(B) * EPS * np.linalg.norm(B, axis=0)] = 0.0
        shifted = np.maximum(self.values, rounding)[:, None] + alpha
        scaled = coordinates / shifted
        lost = float(np.linalg.norm(scaled * rounding / shifted))
        return lost / max(float(np.linalg.norm(scaled)), TINY)

    def solve_path(self, B: Array, alphas: Array) -> Array:
        """V (σ + alpha)⁻¹ VᵀB for all alphas at once, without the null space of S."""
        coordinates = self.vectors.T @ B
        scaled = coordinates / (self.values[:, None] + alphas[:, None, None])
        for a, alpha in enumerate(alphas):
            scaled[a, self.dropped(float(alpha))] = 0.0
        (q, k), p = coordinates.shape, len(self.vectors)
        stacked = np.moveaxis(scaled, 0, 1).reshape(q, -1)
        return np.moveaxis((self.vectors @ stacked).reshape(p, len(alphas), k), 1, 0)

    def whiten(self, B: Array, alpha: float) -> Array:
        """(σ + alpha)^(−1/2) VᵀB, for B in the range of S."""
        W = self.vectors.T @ B
        W[self.dropped(alpha)] = 0.0
        W /= np.sqrt(self.values + alpha)[:, None]
        return W

    def rotate(self, M: Any, first: int = 0) -> Array:
        """M V."""
        return np.asarray(M @ self.vectors[first : first + M.shape[1]])

    def metric(self, M: Array, alpha: float) -> tuple[Array, Array | None]:
        """M V and 1/(σ + alpha)."""
        return M, np.where(self.dropped(alpha), 0.0, 1.0 / (self.values + alpha))

    def quadratic(self, B: Array, alpha: float) -> Array:
        """Σ (vᵀb)²/(σ + alpha), and ‖rest of b‖²/alpha."""
        W = self.vectors.T @ B
        found = np.einsum("ij,i,ij->j", W, 1.0 / (self.values + alpha), W)
        if self.vectors.shape[1] < len(self.vectors):
            rest = np.einsum("ij,ij->j", B, B) - np.einsum("ij,ij->j", W, W)
            found += np.maximum(rest, 0.0) / alpha
        return found

    def log_determinant(self, alpha: float) -> float:
        """Σ log(σ + alpha), with log alpha for every excluded direction."""
        p, q = self.vectors.shape
        known = float(np.log(self.values.astype(float) + alpha).sum())
        return known + (p - q) * float(np.log(alpha))

    def condition(self, alpha: float) -> float:
        """σ_max/(σ_min + alpha)."""
        return float(self.values.max(initial=0.0) / (self.values.min(initial=0.0) + alpha))

    def matrix(self) -> Array:
        """S as given if it was stored; otherwise V diag(σ) Vᵀ, equal up to rounding."""
        if self.source is not None:
            return _symmetric(*self.source)
        return (self.vectors * self.values) @ self.vectors.T


Factorization = CholeskyFactorization | EigenFactorization


class Complement:
    """Q of shape (p, p − c): orthonormal columns that span the complement of N.

    The columns of N are orthonormal and share no row. Householder reflections H = I − 2WWᵀ, with
    sparse W, take them to coordinate vectors, and Q are the other columns of H.
    """

    def __init__(self, N: Any) -> None:
        N = sparse.csc_array(N)
        p, c = N.shape
        lengths = np.diff(N.indptr)
        column = np.repeat(np.arange(c), lengths)
        # The largest entry of every column is its pivot.
        order = np.lexsort((-np.abs(N.data), column))
        first = order[np.concatenate([[0], np.cumsum(lengths)[:-1]])] if c else order[:0]
        pivots, top = N.indices[first], N.data[first]
        W = N.copy()
        W.data[first] += np.where(top >= 0, 1.0, -1.0)
        W.data /= np.sqrt(2.0 * (1.0 + np.abs(top)))[column]
        self.W, self.kept = W.tocsr(), np.setdiff1d(np.arange(p), pivots)

    def restrict(self, S: Array) -> Array:
        """QᵀSQ for symmetric S of shape (p, p), which may be overwritten."""
        if not self.W.shape[1]:
            return S
        S -= 2.0 * (self.W @ (self.W.T @ S))
        S -= 2.0 * (self.W @ (self.W.T @ S.T)).T
        S = S[np.ix_(self.kept, self.kept)]
        return (S + S.T) / 2

    def expand(self, V: Array) -> Array:
        """Q V for V of shape (p − c, k)."""
        if not self.W.shape[1]:
            return V
        out = np.zeros((self.W.shape[0], V.shape[1]), dtype=V.dtype)
        out[self.kept] = V
        out -= 2.0 * (self.W @ (self.W.T @ out))
        return out


def factorize(
    S: Array,
    alphas: Array,
    B: Array,
    *,
    in_range: bool,
    scaled: bool = False,
    null: Any = None,
    noise: float = 0.0,
    for_path: bool = False,
) -> Factorization:
    """Factorise S, symmetric positive semi-definite (p, p), for ``alphas``; it may be overwritten.

    If a Cholesky solve for B, (p, k), is not accurate enough (S singular, alpha tiny), an
    eigendecomposition is computed. ``in_range``: B lies in the range of S up to rounding errors,
    which must not be divided by alpha. ``scaled``: rows and columns of S represent features, and if
    their scales are very different, Cholesky is used for each alpha. ``for_path``: other alphas
    will follow.
    """
    size = float(np.linalg.norm(S))
    if not np.isfinite(size) or not np.isfinite(B).all():
        raise ValueError(
            f"the numbers overflow {S.dtype}; scale the features, the scores or the weights down"
        )
    alpha = float(alphas.min())
    graded = scaled and is_graded(S.diagonal(), alpha)
    source = None
    if graded or not (for_path or len(alphas) > 1):
        made, positive = CholeskyFactorization.attempt(S, alpha)
        if positive and graded:
            made.loss = float(np.finfo(made.C.dtype).eps) * made.condition(alpha)
            return made
        # Rounding errors must be small: of the solution, or of S times the solution.
        eps = float(np.finfo(made.C.dtype).eps)
        tolerance = 1e-3 if eps > EPS else 1e-11 if len(B) <= CHEAP_SIZE else 1e-7
        if positive and in_range:
            positive = max(eps, noise / max(size, TINY)) * made.condition(alpha) <= tolerance
        elif positive:
            right, solution = (float(np.linalg.norm(V)) for V in (B, made.solve_path(B, alphas)))
            positive = eps * right + max(eps * size, noise) * solution <= tolerance * right
        if positive:
            return made
        # Directions that are now at rounding level may become relevant when rows are added.
        source = (made.C, made.diagonal) if in_range else None
        S = made.matrix().astype(np.float64, copy=False)
        del made
    found = EigenFactorization(S, alpha, null=null, noise=noise, source=source)
    if not in_range:
        found.loss = found.error(B, alpha)
    elif scaled:
        found.loss = max(float(graded), found.lost_below(B, alpha))
    return found


def _symmetric(upper: Array, diagonal: Array) -> Array:
    """The symmetric matrix with this upper triangle (the rest is ignored) and diagonal."""
    S = np.triu(upper, 1)
    S += S.T.copy()
    S.flat[:: len(S) + 1] = diagonal
    return S
