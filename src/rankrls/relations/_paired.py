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
from scipy.linalg import solve

from rankrls.relations._complete import ClosedForm, damped, row_centred
from rankrls.relations._spectrum import Spectrum

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
        self.products = np.outer(left.values[live], left.values[live])

    def inner(self, alpha: float) -> Array:
        """[R̃ + ½(v eᵀ + s e vᵀ)] ∘ T, shape (n, n)."""
        T = damped(self.products, alpha)
        half = 0.5 * np.outer(self._offsets(T, alpha), self.e)
        half = half + self.sign * half.T
        half += self.R
        half *= T
        return half

    def _offsets(self, T: Array, alpha: float) -> Array:
        """v over the live eigenvectors, shape (n,)."""
        e, s = self.e, self.sign
        length = float(np.linalg.norm(e))
        if length <= len(self.V) * np.finfo(np.float64).eps:  # every function has centred rows
            return np.zeros_like(e)
        right = (self.products * T * self.R) @ e
        N = T * np.outer(0.5 * alpha * s * e, e)
        N.flat[:: len(e) + 1] += 0.5 * alpha * (T @ e**2)
        # Reflect e to the first axis.
        w = e / length
        pivot = -1.0 if w[0] >= 0 else 1.0
        w[0] -= pivot
        w /= np.linalg.norm(w)
        Nw = N @ w
        Nw -= (w @ Nw) * w
        N -= 2.0 * np.outer(w, Nw)
        N -= 2.0 * np.outer(Nw, w)
        right -= 2.0 * (w @ right) * w
        # eᵀ(Λ∘R̃)e = eᵀR̃e − alpha eᵀ(T∘R̃)e
        right[0] = pivot * (self.rest - alpha * (e @ (T * self.R) @ e)) / length
        N.flat[:: len(e) + 1] += 0.5 * (1.0 + self.nu)
        if s == 1:
            # ½(1 + ν) − ½‖e‖² = ν, which N[0, 0] must hold beside its own part
            N[0, 0] = self.nu + alpha * (e**2 @ T @ e**2) / length**2
        else:
            N[0, 0] += 0.5 * length**2
        scale = 1.0 / np.sqrt(N.diagonal())
        N *= scale
        N *= scale[:, None]
        v = scale * solve(N, scale * right, assume_a="pos", overwrite_a=True, check_finite=False)
        v -= 2.0 * (w @ v) * w
        return v
