"""Symmetric and reciprocal relations, ranking loss, complete: a closed form.

Enforcing the symmetry and centring every row do not commute, and P5 (§4.4) leaves this case to
iteration. But the centring is a free offset c_i for each row i: given c, the problem is
regression on the labels Y − c1ᵀ, which P5's Proposition 4.7 solves by symmetrising them, and the
condition that every row of residuals sums to zero is a system of p equations for c.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsyr2

from rankrls.core.relations.complete import ClosedForm, damped, row_centred
from rankrls.core.relations.spectrum import Spectrum

__all__ = ["PairedRanking"]

Array = NDArray[Any]


class PairedRanking(ClosedForm):
    """min over f(x, z) = s f(z, x) of Σ_i ‖C(y_i − f_i)‖² + alpha ‖f‖².

    Parameters
    ----------
    left : Spectrum
        λ, V of K, shape (p, p).
    Y : ndarray of shape (p, p)
    sign : {1, −1}
        s: symmetric or reciprocal.

    Notes
    -----
    With R = ½(YC + s(YC)ᵀ), R̃ = VᵀRV, e = Vᵀ1/√p, T = 1/(λλᵀ + alpha) and Λ = λλᵀ ∘ T, the
    coefficients are B = V {[R̃ + ½(v eᵀ + s e vᵀ)] ∘ T} Vᵀ, where v (the offsets, in the basis
    V) solves

        (I − ½ diag(Λ(e∘e)) − (s/2) Λ∘eeᵀ) v = (Λ∘R̃) e.

    Written so, digits cancel where alpha is small: for s = 1 the direction e is then nearly
    singular. With Λ = 1 − alpha T, over the n live eigenvectors (v is zero on the others) and with
    ν = Σ e² over the others, the matrix is

        ½(1 + ν) I − (s/2) eeᵀ + (alpha/2) [diag(T(e∘e)) + s T∘eeᵀ],

    where the bracket is positive semi-definite; and after a reflection of e to the first axis
    the entry that vanishes, ν + alpha(…), is formed without a difference. On the right side
    eᵀR̃e = 0 does the same.
    """

    def __init__(self, left: Spectrum, Y: Array, sign: int) -> None:
        p = len(Y)
        self.sign = sign
        V = left.vectors
        YC = row_centred(Y)
        R = V.T @ (0.5 * (YC + sign * YC.T)) @ V
        e = V.sum(axis=0) / np.sqrt(p)
        live = left.live
        null = e[~live]
        if np.linalg.norm(null) <= p * np.finfo(np.float64).eps:
            null = np.zeros_like(null)  # the constants are functions of the kernel
        self.nu = float(null @ null)
        # eᵀR̃e over live pairs, by the part of it over the others
        self.rest = -float(2.0 * e[live] @ R[np.ix_(live, ~live)] @ null)
        self.rest -= float(null @ R[np.ix_(~live, ~live)] @ null)
        self.V = self.U = left.range.vectors
        self.R = R[np.ix_(live, live)]
        self.e = e[live]
        self.values = left.values[live]
        self.products = np.outer(self.values, self.values)

    def inner(self, alpha: float) -> Array:
        """[R̃ + ½(v eᵀ + s e vᵀ)] ∘ T, shape (n, n)."""
        T = damped(self.products, alpha)
        inner = T * self.R
        v = self._offsets(T, inner, alpha)
        T *= (0.5 * v)[:, None]
        T *= self.e
        inner += T
        inner += self.sign * T.T
        return inner

    def _offsets(self, T: Array, TR: Array, alpha: float) -> Array:
        """v over the live eigenvectors, shape (n,); TR is T∘R̃."""
        e, s = self.e, self.sign
        length = float(np.linalg.norm(e))
        if length <= len(self.V) * np.finfo(np.float64).eps:  # every function has centred rows
            return np.zeros_like(e)
        right = self.values * (TR @ (self.values * e))  # (Λ∘R̃)e
        N = T * (0.5 * alpha * s * e)[:, None]
        N *= e
        diagonal = np.einsum("ii->i", N)
        diagonal += 0.5 * alpha * (T @ e**2)
        # Reflect e to the first axis. N is symmetric: a triangle of it is kept from here on.
        w = e / length
        pivot = -1.0 if w[0] >= 0 else 1.0
        w[0] -= pivot
        w /= np.linalg.norm(w)
        Nw = N @ w
        Nw -= (w @ Nw) * w
        lower = dsyr2(-2.0, w, Nw, a=N.T, lower=1, overwrite_a=1)
        right -= 2.0 * (w @ right) * w
        # eᵀ(Λ∘R̃)e = eᵀR̃e − alpha eᵀ(T∘R̃)e
        right[0] = pivot * (self.rest - alpha * (e @ (TR @ e))) / length
        diagonal = np.einsum("ii->i", lower)
        diagonal += 0.5 * (1.0 + self.nu)
        if s == 1:
            # ½(1 + ν) − ½‖e‖² = ν, which the first entry must hold beside its own part
            diagonal[0] = self.nu + alpha * (e**2 @ (T @ e**2)) / length**2
        else:
            diagonal[0] += 0.5 * length**2
        factor = cho_factor(lower, lower=True, overwrite_a=True, check_finite=False)
        v = cho_solve(factor, right, check_finite=False)
        v -= 2.0 * (w @ v) * w
        return v
