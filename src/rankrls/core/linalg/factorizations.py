"""One symmetric matrix S, decomposed once, asked many times about (S + alpha I)⁻¹.

``factorise`` picks the cheaper state: a Cholesky factor for one alpha, an eigendecomposition
for a path. Both answer the same questions.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, solve_triangular
from scipy.linalg.lapack import get_lapack_funcs

__all__ = ["CholeskyState", "NotPositiveError", "SpectralState", "State", "factorise"]

Array = NDArray[Any]

#: Up to this size an eigendecomposition is cheap enough to insist on full accuracy.
CHEAP_SIZE = 1000


class State(Protocol):
    """What is asked of a factorised S of shape (p, p)."""

    def solve(self, B: Array, alpha: float) -> Array:
        """(S + alpha I)⁻¹ B of shape (p, k), without the null space of S where that is known."""

    def whiten(self, B: Array, alpha: float) -> Array:
        """W of shape (p, k) with WᵀW = Bᵀ (S + alpha I)⁻¹ B for B in the range of S."""

    def quadratic(self, B: Array, alpha: float) -> Array:
        """The diagonal of Bᵀ (S + alpha I)⁻¹ B, shape (k,), for any B."""

    def log_determinant(self, alpha: float) -> float:
        """Log det(S + alpha I)."""

    def condition(self, alpha: float) -> float:
        """How many times ‖S‖ is larger than the smallest eigenvalue of S + alpha I, about."""

    def matrix(self) -> Array:
        """S itself, a new array of shape (p, p)."""


class CholeskyState:
    """S + alpha I = C Cᵀ, for one alpha. ``size`` is ‖S‖ (Frobenius).

    The lower triangle of ``C`` is the factor; above the diagonal there is S, whose diagonal is
    kept apart.
    """

    def __init__(self, C: Array, alpha: float, size: float, diagonal: Array) -> None:
        self.C = C
        self.alpha = alpha
        self.size = size
        self.diagonal = diagonal

    def solve(self, B: Array, alpha: float) -> Array:
        """Two triangular solves."""
        self._check(alpha)
        W = solve_triangular(self.C, B, lower=True, check_finite=False)
        return solve_triangular(self.C, W, lower=True, trans="T", check_finite=False)

    def whiten(self, B: Array, alpha: float) -> Array:
        """C⁻¹B."""
        self._check(alpha)
        return solve_triangular(self.C, B, lower=True, check_finite=False)

    def quadratic(self, B: Array, alpha: float) -> Array:
        """‖C⁻¹b‖² for every column."""
        W = self.whiten(B, alpha)
        return np.einsum("ij,ij->j", W, W)

    def log_determinant(self, alpha: float) -> float:
        """2 Σ log C_ii."""
        self._check(alpha)
        return 2.0 * float(np.log(self.C.diagonal().astype(float)).sum())

    def condition(self, alpha: float) -> float:
        """‖S‖ ‖(S + alpha I)⁻¹‖, the latter as LAPACK estimates it from C."""
        self._check(alpha)
        (pocon,) = get_lapack_funcs(("pocon",), (self.C,))
        reciprocal, _ = pocon(self.C, 1.0, uplo="L")
        return self.size / max(float(reciprocal), np.finfo(float).tiny)

    def matrix(self) -> Array:
        """S from the upper triangle and the diagonal: the very numbers that were factorised."""
        return _symmetric(self.C, self.diagonal)

    def _check(self, alpha: float) -> None:
        if alpha != self.alpha:
            raise ValueError(f"this factor was made for alpha={self.alpha:g}, not {alpha:g}")


class NotPositiveError(ValueError):
    """S + alpha I is not positive definite: alpha must be above ``needed``."""

    def __init__(self, needed: float, message: str) -> None:
        super().__init__(message)
        self.needed = needed


class SpectralState:
    """S = V diag(σ) Vᵀ, for every alpha.

    Eigenvalues below p·eps·σ_max (or p·noise) are rounding: they are set to zero, and ``solve``
    leaves their space out. The model is the same function (a coefficient vector there has norm
    zero), free of the noise that a division by a tiny alpha would bring.

    ``source`` is (an array with S above its diagonal, the diagonal of S), where that is kept.
    """

    def __init__(
        self,
        S: Array,
        smallest_alpha: float,
        noise: float = 0.0,
        source: tuple[Array, Array] | None = None,
    ) -> None:
        values, vectors = eigh(S, driver="evd", overwrite_a=True, check_finite=False)
        size = np.abs(values).max(initial=0.0)
        rounding = len(values) * max(np.finfo(values.dtype).eps * size, noise)
        lowest = values.min(initial=0.0)
        if lowest < -10 * rounding and lowest + smallest_alpha <= 0:
            raise NotPositiveError(
                float(-lowest),
                "the kernel matrix is not positive semi-definite on the preferences: its "
                f"smallest eigenvalue is {lowest:.3g} (largest {values.max():.3g}). Use alpha "
                f"above {-lowest:.3g}, or a positive semi-definite kernel",
            )
        self.null = np.abs(values) <= rounding
        self.values = np.where(self.null, 0.0, values)
        self.vectors = vectors
        self.source = source

    def solve(self, B: Array, alpha: float) -> Array:
        """V (σ + alpha)⁻¹ VᵀB."""
        return self.solve_path(B, np.array([alpha]))[0]

    def solve_path(self, B: Array, alphas: Array) -> Array:
        """Solutions for all alphas at once, shape (n_alphas, p, k)."""
        coordinates = self.vectors.T @ B
        coordinates[self.null] = 0.0
        scaled = coordinates / (self.values[:, None] + alphas[:, None, None])
        p, k = coordinates.shape
        stacked = np.moveaxis(scaled, 0, 1).reshape(p, -1)
        return np.moveaxis((self.vectors @ stacked).reshape(p, len(alphas), k), 1, 0)

    def whiten(self, B: Array, alpha: float) -> Array:
        """(σ + alpha)^(−1/2) VᵀB, zero on the null space."""
        W = self.vectors.T @ B
        W[self.null] = 0.0
        W /= np.sqrt(self.values + alpha)[:, None]
        return W

    def quadratic(self, B: Array, alpha: float) -> Array:
        """Σ (vᵀb)²/(σ + alpha), the null space included."""
        W = self.vectors.T @ B
        return np.einsum("ij,i,ij->j", W, 1.0 / (self.values + alpha), W)

    def log_determinant(self, alpha: float) -> float:
        """Σ log(σ + alpha)."""
        return float(np.log(self.values.astype(float) + alpha).sum())

    def condition(self, alpha: float) -> float:
        """σ_max/(σ_min + alpha)."""
        return float(self.values.max() / (self.values.min() + alpha))

    def matrix(self) -> Array:
        """S as it was given if that is kept; otherwise V diag(σ) Vᵀ, equal but for rounding."""
        if self.source is not None:
            return _symmetric(*self.source)
        return (self.vectors * self.values) @ self.vectors.T


def factorise(S: Array, alphas: Array, B: Array, *, in_range: bool, noise: float = 0.0) -> State:
    """A state of S that serves ``alphas``; S may be overwritten.

    Parameters
    ----------
    S : ndarray of shape (p, p), symmetric positive semi-definite
    alphas : ndarray of shape (n_alphas,), > 0
    B : ndarray of shape (p, k)
        The right-hand sides to come. They tell whether a Cholesky solve is accurate enough;
        where it is not (S singular, alpha tiny), an eigendecomposition is made instead.
    in_range : bool
        Whether B lies in the range of S but for rounding, which must not be divided by alpha.
        Such an S (of features, not of all rows) is kept beside its eigendecomposition, too: a
        direction that is rounding today may fill up when rows are added.
    noise : float
        Size of rounding errors in S, where it is more than eps ‖S‖.
    """
    size = float(np.linalg.norm(S))
    if not np.isfinite(size) or not np.isfinite(B).all():
        raise ValueError(
            f"the numbers overflow {S.dtype}: scale the features, the scores or the weights down"
        )
    if len(alphas) > 1:
        return SpectralState(S, float(alphas.min()), noise)
    alpha = float(alphas[0])
    diagonal = S.diagonal().copy()
    S.flat[:: len(S) + 1] += alpha
    # In place: the factor takes the lower triangle, the upper one keeps S for a second try.
    (potrf,) = get_lapack_funcs(("potrf",), (S,))
    C, info = potrf(S if S.flags.f_contiguous else S.T, lower=1, clean=0, overwrite_a=1)
    if info == 0:
        state = CholeskyState(C, alpha, size, diagonal)
        if _accurate(state, B, in_range, noise):
            return state
    source = (C, diagonal) if in_range else None
    S = _symmetric(C, diagonal).astype(np.float64, copy=False)
    del C
    return SpectralState(S, alpha, noise, source)


def _symmetric(upper: Array, diagonal: Array) -> Array:
    """The symmetric matrix with this upper triangle (the rest is ignored) and diagonal."""
    S = np.triu(upper, 1)
    S += S.T.copy()
    S.flat[:: len(S) + 1] = diagonal
    return S


def _accurate(state: CholeskyState, B: Array, in_range: bool, noise: float) -> bool:
    """Whether rounding, of size eps (‖B‖ + ‖S‖ ‖solution‖), stays small in what matters.

    For B in the range of S that is the solution itself, where rounding is divided by as little
    as the smallest eigenvalue of S + alpha I. Otherwise it is S times the solution.
    """
    eps = np.finfo(state.C.dtype).eps
    strict = 1e-11 if len(B) <= CHEAP_SIZE else 1e-7
    tolerance = strict if state.C.dtype == np.float64 else 1e-3
    solution = float(np.linalg.norm(state.solve(B, state.alpha)))
    right = float(np.linalg.norm(B))
    rounding = eps * right + max(eps * state.size, noise) * solution
    if in_range:
        return rounding * state.condition(state.alpha) <= tolerance * state.size * solution
    return rounding <= tolerance * right
