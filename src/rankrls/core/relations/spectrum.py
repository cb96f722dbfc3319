"""Eigendecompositions of kernel matrices, plain or on the complement of the constants."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

__all__ = ["Spectrum", "centred", "centred_spectrum", "spectrum"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Spectrum:
    """S = V diag(values) Vᵀ, with eigenvalues that are rounding set to zero.

    Attributes
    ----------
    values : ndarray of shape (r,)
    vectors : ndarray of shape (n, r)
        Orthonormal columns: all n directions, or the n − 1 that are orthogonal to the constants.
    """

    values: Array
    vectors: Array

    @cached_property
    def live(self) -> Array:
        """Which eigenvalues are not zero, shape (r,)."""
        return self.values != 0.0

    @cached_property
    def range(self) -> Spectrum:
        """The same without the null space: coefficients in it are functions of norm zero."""
        if self.live.all():
            return self
        return Spectrum(self.values[self.live], self.vectors[:, self.live])


def spectrum(K: Array) -> Spectrum:
    """Decompose a symmetric matrix of shape (n, n)."""
    return Spectrum(*_eigh(np.array(K, dtype=np.float64), 0.0))


def centred_spectrum(G: Array) -> Spectrum:
    """Decompose C G C, C the centring matrix, on the complement of the constants.

    Parameters
    ----------
    G : ndarray of shape (n, n), symmetric

    Notes
    -----
    With the Householder reflection H that takes the constant direction to the first axis, the
    rest of H C G C H is a matrix of order n − 1 whose eigenvectors, reflected back, are
    orthogonal to the constants to rounding, however singular G is.
    """
    n = len(G)
    noise = float(np.finfo(np.float64).eps * np.abs(G.diagonal()).max(initial=0.0))
    S = centred(G)
    w = np.full(n, 1.0 / np.sqrt(n))
    w[0] += 1.0
    w /= np.linalg.norm(w)
    Sw = S @ w
    # H S H = S − 2 w (Sw)ᵀ − 2 (Sw) wᵀ + 4 (wᵀSw) w wᵀ
    Sw -= (w @ Sw) * w
    S -= 2.0 * np.outer(w, Sw)
    S -= 2.0 * np.outer(Sw, w)
    values, inner = _eigh(np.ascontiguousarray(S[1:, 1:]), noise)
    U = np.empty((n, n - 1), order="F")
    U[0] = 0.0
    U[1:] = inner
    U -= np.outer(2.0 * w, w[1:] @ inner)
    return Spectrum(values, U)


def centred(G: Array) -> Array:
    """C G C for a symmetric matrix of shape (n, n), in float64; a new array."""
    S = G - G.mean(axis=0, dtype=np.float64)
    S -= S.mean(axis=1, keepdims=True)
    return S


def _eigh(S: Array, noise: float) -> tuple[Array, Array]:
    """Eigenvalues and vectors; S is overwritten. ``noise``: rounding in S beyond eps ‖S‖."""
    if not len(S):
        return np.empty(0), np.empty((0, 0))
    if not np.isfinite(S).all():
        raise ValueError("the kernel values overflow: scale the features down")
    # S is symmetric: its transpose is in the order that LAPACK works in place on.
    values, vectors = eigh(S.T, driver="evd", overwrite_a=True, check_finite=False)
    eps = np.finfo(np.float64).eps
    rounding = len(values) * max(eps * np.abs(values).max(), noise)
    values[np.abs(values) <= rounding] = 0.0
    return values, vectors
