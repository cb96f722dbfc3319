"""Complete relations in closed form: a decomposition of both kernels serves every alpha.

Regression over all pairs of p row objects (kernel K) and g column objects (kernel G) is a linear
system with the matrix K ⊗ G + alpha I, which is diagonal in the eigenvectors of K and G. The
ranking loss gives every row a free offset: G is replaced by C G C (P5, Lemma 4.9), whose
eigenvectors beside the constants are used. Both hold for singular kernels too.

Symmetric and reciprocal relations have the same closed form for regression, on symmetrised labels
(P5, Proposition 4.7). For the ranking loss P5 (§4.4) leaves them to iteration, because enforcing
the symmetry and centring every row do not commute. But the centring is a free offset c_i for each
row i: given c, the problem is regression on the labels Y − c1ᵀ, and the condition that every row
of residuals sums to zero is a system of p equations for c.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsyr2

from rankrls.core.relations.offsets import NO_OFFSETS, FreeOffsets, free_offsets
from rankrls.core.relations.sides import Side, Spectrum

__all__ = [
    "ClosedForm",
    "CompleteSpectrum",
    "PairedRanking",
    "closed_form",
    "damped",
    "row_centred",
]

Array = NDArray[Any]


class ClosedForm(ABC):
    """A solution for every alpha: the coefficients are V inner(alpha) Uᵀ.

    Attributes
    ----------
    left, right : Spectrum
        λ, V of the row objects and σ, U of the column objects; those with λσ = 0 are functions of
        norm zero and play no part.
    """

    left: Spectrum
    right: Spectrum

    @abstractmethod
    def inner(self, alpha: float) -> Array:
        """What lies between V and Uᵀ, without the null spaces, shape (r, s)."""

    def coefficients(self, alphas: Array) -> Array:
        """A of f(x, z) = k_xᵀ A g_z for every alpha, shape (n_alphas, p, g)."""
        V, U = self.left.range.vectors, self.right.range.vectors
        return np.stack([V @ self.inner(alpha) @ U.T for alpha in alphas])

    def predict(self, left: Array, right: Array, alphas: Array) -> Array:
        """Values between other objects for every alpha, shape (n_alphas, p', g').

        Parameters
        ----------
        left : ndarray of shape (p', r)
        right : ndarray of shape (g', s)
            Their images K'V and G'U (see `Side.images`), without the null spaces.
        alphas : ndarray of shape (n_alphas,)
        """
        return np.stack([left @ self.inner(alpha) @ right.T for alpha in alphas])


def closed_form(
    rows: Side,
    columns: Side,
    Y: Array,
    *,
    ranking: bool,
    sign: int,
    offsets: FreeOffsets = NO_OFFSETS,
) -> ClosedForm:
    """The solution of a complete problem, for every alpha.

    Parameters
    ----------
    rows : Side of p objects
    columns : Side of g objects
        With a sign, ``rows`` itself.
    Y : ndarray of shape (p, g)
    ranking : bool
    sign : {0, 1, −1}
        Symmetric (1) and reciprocal (−1) relations.
    offsets : FreeOffsets
        Without a sign.
    """
    if sign == 0:
        free = free_offsets(offsets, ranking=ranking)
        left, right = rows.spectrum(centred=free.columns), columns.spectrum(centred=free.rows)
        return CompleteSpectrum(left, right, Y, ranking=ranking, constant=free.constant)
    left = rows.spectrum()
    if ranking:
        return PairedRanking(left, Y, sign)
    return CompleteSpectrum(left, left, Y, ranking=False, sign=sign)


class CompleteSpectrum(ClosedForm):
    """Labels of all pairs, in the eigenvectors of both kernels.

    Parameters
    ----------
    left : Spectrum
        λ, V of K, of p objects.
    right : Spectrum
        σ, U of G, of g objects; for ranking that of C G C.
    Y : ndarray of shape (p, g)
        Labels. Offsets of rows do not matter for ranking.
    ranking : bool
    sign : {0, 1, −1}
        For regression only, with ``left`` on both sides.
    constant : bool
        Whether all labels have one free offset, and neither rows nor columns have one.

    Notes
    -----
    With D = 1/(λσᵀ + alpha) and Ỹ = VᵀYU, symmetrised if there is a sign, the coefficients are
    A = V (Ỹ ∘ D) Uᵀ. Rows or columns have offsets if the other side's spectrum is centred. A
    constant c is subtracted from Y, such that the coefficients sum to zero: with e = Vᵀ1 1ᵀU,

        c = Σ e∘D∘Ỹ / Σ e∘D∘e.
    """

    def __init__(
        self,
        left: Spectrum,
        right: Spectrum,
        Y: Array,
        *,
        ranking: bool,
        sign: int = 0,
        constant: bool = False,
    ) -> None:
        self.left, self.right = left, right
        self.ranking, self.sign, self.constant = ranking, sign, constant
        self.Y = Y

    def labels(self, V: Array, U: Array) -> Array:
        """VᵀYU of shape (r, s), offsets taken off."""
        labels = V.T @ self._shifted @ U
        return 0.5 * (labels + self.sign * labels.T) if self.sign else labels

    @cached_property
    def _shifted(self) -> Array:
        """Labels without offsets that cost digits, shape (p, g)."""
        if self.right.centred:
            return row_centred(self.Y)
        if self.left.centred:
            return row_centred(self.Y.T).T
        return self.Y - self.Y.mean() if self.constant else self.Y

    @cached_property
    def all_labels(self) -> Array:
        """VᵀYU with the null spaces."""
        return self.labels(self.left.complete.vectors, self.right.complete.vectors)

    @cached_property
    def _live(self) -> tuple[Array, Array]:
        """Ỹ and λσᵀ without the null spaces."""
        left, right = self.left.range, self.right.range
        return self.labels(left.vectors, right.vectors), np.outer(left.values, right.values)

    def inner(self, alpha: float) -> Array:
        """Ỹ ∘ D, shape (r, s)."""
        labels, products = self._live
        D = damped(products, alpha)
        if self.constant:
            ones, (label, size) = self._ones
            total = float(np.vdot(ones * D, ones)) + size / alpha
            labels = labels - (float(np.vdot(ones * D, labels)) + label / alpha) / total * ones
        D *= labels
        return D

    @cached_property
    def _ones(self) -> tuple[Array, tuple[float, float]]:
        """Vᵀ1 1ᵀU without the null spaces; and 1ᵀY1 and 1ᵀ1 of what lies in them."""
        sums, rests = [], []
        for spectrum in (self.left.range, self.right.range):
            V = spectrum.vectors
            inside = V.sum(axis=0)
            rest = 1.0 - V @ inside
            rest -= V @ (V.T @ rest)
            sums.append(inside)
            rests.append(rest)
        (a, b), (v, u), Y = sums, rests, self._shifted
        live = 1.0 - v
        size = float(v @ v) * len(u) + float(a @ a) * float(u @ u)
        label = float(v @ Y.sum(axis=1)) + float(live @ Y @ u)
        return np.outer(a, b), (label, size)


class PairedRanking(ClosedForm):
    """min over f(x, z) = s f(z, x) of Σ_i ‖C(y_i − f_i)‖² + alpha ‖f‖².

    Parameters
    ----------
    left : Spectrum
        λ, V of K, of p objects.
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
        self.left = self.right = left
        whole = left.complete
        V, live = whole.vectors, whole.live
        YC = row_centred(Y)
        R = V.T @ YC @ V
        R = 0.5 * (R + sign * R.T)  # exactly: a single antisymmetric entry is zero
        e = V.sum(axis=0) / np.sqrt(p)
        null = e[~live]
        if np.linalg.norm(null) <= p * np.finfo(np.float64).eps:
            null = np.zeros_like(null)  # the constants are functions of the kernel
        self.nu = float(null @ null)
        # eᵀR̃e over live pairs, by the part of it over the others
        self.rest = -float(2.0 * e[live] @ R[np.ix_(live, ~live)] @ null)
        self.rest -= float(null @ R[np.ix_(~live, ~live)] @ null)
        self.R = R[np.ix_(live, live)]
        self.e = e[live]
        self.values = whole.values[live]
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
        if length <= self.left.vectors.shape[0] * np.finfo(np.float64).eps:
            return np.zeros_like(e)  # every function has centred rows
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


def damped(products: Array, alpha: float) -> Array:
    """1/(λσ + alpha), or an error where a kernel is so indefinite that this is not positive."""
    shifted = products + alpha
    lowest = shifted.min(initial=np.inf)
    if lowest <= 0.0:
        raise ValueError(
            "the pairwise kernel is not positive semi-definite: the product of the two kernels' "
            f"eigenvalues goes down to {lowest - alpha:.3g}. Use alpha above "
            f"{alpha - lowest:.3g}, or positive semi-definite kernels"
        )
    return np.divide(1.0, shifted, out=shifted)


def row_centred(Y: Array) -> Array:
    """Y minus the mean of each row, shape (p, g), without losing digits to a large offset."""
    Y = Y - Y[:, :1]
    Y -= Y.mean(axis=1, keepdims=True)
    return Y
