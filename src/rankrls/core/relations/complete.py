"""Closed forms of complete relations; the decomposition of both kernels serves every alpha.

The system with the matrix K ⊗ G + alpha I is diagonal in the eigenvectors of K and G, which are
centred if there are offsets. `docs/mathematics.md` (7) has the formulas and their derivation.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from rankrls.core.relations.pairwise_kernels import PairwiseKernel, RelationLoss
from rankrls.core.relations.sides import Side, Spectrum, decompose

__all__ = [
    "CompleteSpectrum",
    "PairedRanking",
    "SquaredSum",
    "closed_form",
    "damped",
    "row_centred",
    "shared_bases",
]

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)

#: Ratio of offsets to deviations of labels above which offsets are subtracted first.
COSTLY = 100.0

#: Eigenvalues smaller than this, relative to the largest one, are rounding errors.
NEGLIGIBLE = 1e-13


def shared_bases(
    left: Spectrum, right: Spectrum, pairwise: PairwiseKernel
) -> tuple[Spectrum, Spectrum]:
    """Return the eigenvectors in use; without the null spaces if eigenvalues are products λσ."""
    if pairwise.plain:
        return left.range, right.range
    return left.complete, right.complete


def closed_form(rows: Side, columns: Side, Y: Array, loss: RelationLoss) -> CompleteSpectrum:
    """Build the closed form of a complete problem; with a sign, ``columns`` is ``rows``."""
    if loss.sign and loss.ranking:
        return PairedRanking(rows.spectrum(), Y, loss)
    left = rows.spectrum(centred=loss.free.columns)
    right = left if loss.sign else columns.spectrum(centred=loss.free.rows)
    if loss.pairwise.name == "polynomial":
        return SquaredSum(left, right, Y, loss, (rows.K, columns.K))
    return CompleteSpectrum(left, right, Y, loss)


class CompleteSpectrum:
    """Closed form in the eigenvectors of both kernels: A = V (Ỹ ∘ D) Uᵀ with Ỹ = VᵀYU.

    D = 1/(λσᵀ + alpha), or 1/(λ + σ + alpha) for the Cartesian kernel. Two-step regression has a
    pair of alphas and D = 1/((λ + alpha₁)(σ + alpha₂)). With a sign, Ỹ is symmetrised. A free
    constant c makes the coefficients sum to zero: c = Σ e∘D∘Ỹ / Σ e∘D∘e with e = Vᵀ1 1ᵀU.
    """

    def __init__(self, left: Spectrum, right: Spectrum, Y: Array, loss: RelationLoss) -> None:
        self.left, self.right, self.Y, self.pairwise = left, right, Y, loss.pairwise
        self.sign, self.constant = loss.sign, loss.free.constant
        self.bases = shared_bases(left, right, loss.pairwise)

    def labels(self, V: Array, U: Array) -> Array:
        """Compute VᵀYU of shape (r, s), without offsets."""
        Y = self._shifted
        # A product with U, contiguous rows of Y by few columns, is faster than one with V.
        labels = V.T @ Y @ U if 2 * V.shape[1] < U.shape[1] else V.T @ (Y @ U)
        return 0.5 * (labels + self.sign * labels.T) if self.sign else labels

    @cached_property
    def _shifted(self) -> Array:
        """Labels without free offsets that are so large that they would cost digits."""
        Y = self.Y
        if not (self.right.centred or self.left.centred):
            return Y - Y.mean() if self.constant else Y
        offsets, some = Y[:, :1], Y[:, :: max(1, Y.shape[1] // 8)]
        if not self.right.centred:
            offsets, some = Y[:1], Y[:: max(1, len(Y) // 8)]
        large = np.abs(offsets).max() > COSTLY * np.abs(some - offsets).mean()
        return Y - offsets if large else Y

    @cached_property
    def all_labels(self) -> Array:
        """VᵀYU, including the null spaces."""
        return self.labels(self.left.complete.vectors, self.right.complete.vectors)

    @cached_property
    def _live(self) -> tuple[Array, Array]:
        """Ỹ and the eigenvalues λσᵀ (or λ + σ) of `bases`."""
        left, right = self.bases
        products = self.pairwise.eigenvalues(left.values, right.values)
        return self.labels(left.vectors, right.vectors), products

    def inner(self, alpha: Any) -> Array:
        """Compute Ỹ ∘ D, the coefficients between V and Uᵀ of `bases`, shape (r, s)."""
        labels, products = self._live
        if self.pairwise.name == "two-step":
            first, second = (
                damped(basis.values, float(one))
                for basis, one in zip(self.bases, alpha, strict=True)
            )
            return labels * first[:, None] * second
        D = damped(products, alpha)
        if self.constant:
            ones, (label, size) = self.ones
            total = float(np.vdot(ones * D, ones)) + size / alpha
            labels = labels - (float(np.vdot(ones * D, labels)) + label / alpha) / total * ones
        D *= labels
        if not self.pairwise.plain:
            D[products == 0.0] = 0.0  # functions of norm zero
        return D

    def fitted(self, alpha: float) -> Array:
        """Compute f of all pairs, shape (p, g), from eigenvalues instead of kernel values."""
        left, right = self.bases
        products = self.pairwise.eigenvalues(left.values, right.values)
        return left.vectors @ (products * self.inner(alpha)) @ right.vectors.T

    @cached_property
    def ones(self) -> tuple[Array, tuple[float, float]]:
        """Vᵀ1 1ᵀU without the null spaces, and the parts of 1ᵀY1 and 1ᵀ1 in them."""
        sums, rests = [], []
        for spectrum in self.bases:
            V = spectrum.vectors
            inside = V.sum(axis=0)
            rest = 1.0 - V @ inside
            rest -= V @ (V.T @ rest)
            sums.append(inside)
            rests.append(rest)
        (a, b), (v, u), Y = sums, rests, self._shifted
        size = float(v @ v) * len(u) + float(a @ a) * float(u @ u)
        label = float(v @ Y.sum(axis=1)) + float((1.0 - v) @ Y @ u)
        return np.outer(a, b), (label, size)


class SquaredSum(CompleteSpectrum):
    """Closed form for the kernel (k + g)² = 2kg + k² + g², of positive semi-definite kernels.

    Γ = 2 K ⊗ G + B Φ Φᵀ Bᵀ, where Bᵀ with B = [I ⊗ 1, 1 ⊗ I] sums by row and column, and Φ Φᵀ is
    block diagonal with the squared kernels. By the Woodbury identity with N = 2 K ⊗ G + alpha I,
    (I + ΦᵀBᵀN⁻¹BΦ) s = ΦᵀBᵀN⁻¹y and A = N⁻¹(y − BΦs).
    """

    def __init__(
        self,
        left: Spectrum,
        right: Spectrum,
        Y: Array,
        loss: RelationLoss,
        kernels: tuple[Array, Array],
    ) -> None:
        super().__init__(left, right, Y, loss)
        V, U = (basis.vectors for basis in self.bases)
        # Sums over a centred side are zero: functions of the other side are absorbed by offsets.
        self.sums = V.sum(axis=0), U.sum(axis=0)
        for basis, sums in zip(self.bases, self.sums, strict=True):
            if basis.centred:
                sums[:] = 0.0
        self.images = []  # images of Φ in V and in U
        for vectors, K in zip((V, U), kernels, strict=True):
            square = Spectrum(*decompose(np.asarray(K, dtype=np.float64) ** 2)).range
            root = np.sqrt(np.maximum(square.values, 0.0))
            self.images.append(vectors.T @ (square.vectors * root))

    def _solved(self, alpha: float) -> tuple[Array, Array]:
        """Compute VᵀAU, shape (r, s), where λσ > 0, and s = ΦᵀBᵀA."""
        labels, products = self._live
        D = damped(products, float(alpha))
        system = self._sums_of(D)
        system[np.diag_indices_from(system)] += 1.0
        factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)

        def solved(labels: Array) -> tuple[Array, Array]:
            s = cho_solve(factor, self._sums(D * labels), check_finite=False)
            return labels - self._spread(s), s

        if self.constant:
            ones = np.outer(*self.sums)
            rest = D * solved(ones)[0]
            labels = labels - float(np.vdot(rest, labels)) / float(np.vdot(rest, ones)) * ones
        rest, s = solved(labels)
        return np.where(products != 0.0, D * rest, 0.0), s

    def inner(self, alpha: Any) -> Array:
        """Compute VᵀAU, shape (r, s)."""
        A, s = self._solved(alpha)
        null = self._live[1] == 0.0
        if null.any():
            # For λσ = 0, rest/alpha is also correct, but large. Only ΦᵀBᵀA of it is needed.
            A[null] = self._spread(self._null @ (s - self._sums(A)))[null]
        return A

    def fitted(self, alpha: float) -> Array:
        """Compute f of all pairs, shape (p, g), from s instead of the coefficients of λσ = 0."""
        A, s = self._solved(alpha)
        left, right = self.bases
        return left.vectors @ (self._live[1] * A + self._spread(s)) @ right.vectors.T

    def _sums(self, A: Array) -> Array:
        """Compute ΦᵀBᵀA."""
        (a, b), (left, right) = self.sums, self.images
        return np.concatenate([left.T @ (A @ b), right.T @ (a @ A)])

    def _spread(self, s: Array) -> Array:
        """Compute BΦs, shape (r, s)."""
        (a, b), (left, right) = self.sums, self.images
        n = left.shape[1]
        return np.outer(left @ s[:n], b) + np.outer(a, right @ s[n:])

    def _sums_of(self, D: Array) -> Array:
        """Compute ΦᵀBᵀ D BΦ for a diagonal D, given with shape (r, s)."""
        (a, b), (left, right) = self.sums, self.images
        corner = left.T @ ((np.outer(a, b) * D) @ right)
        return np.block(
            [
                [left.T @ ((D @ b**2)[:, None] * left), corner],
                [corner.T, right.T @ ((a**2 @ D)[:, None] * right)],
            ]
        )

    @cached_property
    def _null(self) -> Array:
        """Pseudo-inverse of ΦᵀBᵀBΦ over the products with λσ = 0."""
        gram = self._sums_of((self._live[1] == 0.0).astype(np.float64))
        sizes = np.sqrt(gram.diagonal())  # the two sides may have very different scales
        scale = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0)
        scaled = scale[:, None] * gram * scale
        return scale[:, None] * np.linalg.pinv(scaled, rcond=NEGLIGIBLE, hermitian=True) * scale


class PairedRanking(CompleteSpectrum):
    """Closed form for the ranking loss of symmetric and reciprocal relations.

    With the notation of `docs/mathematics.md` (7), n nonzero eigenvalues, and ν the sum of e² over
    the others, digits would cancel for small alpha. With Λ = 1 − alpha T the matrix is

        ½(1 + ν) I − (s/2) eeᵀ + (alpha/2) [diag(T(e∘e)) + s T∘eeᵀ].

    After a reflection of e to the first axis, the entry that vanishes, ν + alpha(…), and the right
    side, with eᵀR̃e = 0, are computed without a difference.
    """

    def __init__(self, left: Spectrum, Y: Array, loss: RelationLoss) -> None:
        super().__init__(left, left, Y, loss)
        p, whole = len(Y), left.complete
        V, live = whole.vectors, (whole.values != 0.0) | (not self.pairwise.plain)
        R = V.T @ row_centred(Y) @ V
        R = 0.5 * (R + self.sign * R.T)  # exact: a single antisymmetric entry is zero
        e = V.sum(axis=0) / np.sqrt(p)
        null = e[~live]
        if np.linalg.norm(null) <= p * EPS:
            null = np.zeros_like(null)  # the space of the kernel contains the constants
        self.nu = float(null @ null)
        # eᵀR̃e over pairs of nonzero eigenvalues, computed from the other pairs
        self.rest = -float(2.0 * e[live] @ R[np.ix_(live, ~live)] @ null)
        self.rest -= float(null @ R[np.ix_(~live, ~live)] @ null)
        self.R = R[np.ix_(live, live)]
        self.e = e[live]
        values = whole.values[live]
        self.products = self.pairwise.eigenvalues(values, values)

    def inner(self, alpha: float) -> Array:
        """Compute [R̃ + ½(v eᵀ + s e vᵀ)] ∘ T, shape (n, n)."""
        e, s = self.e, self.sign
        T = damped(self.products, alpha)
        TR = T * self.R
        length = float(np.linalg.norm(e))
        if length <= self.left.vectors.shape[0] * EPS:
            return TR  # every function has centred rows
        N = 0.5 * alpha * s * T * np.outer(e, e)
        diagonal = np.einsum("ii->i", N)
        diagonal += 0.5 * alpha * (T @ e**2)
        right = (self.products * TR) @ e  # (Λ∘R̃)e
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
        right[0] = pivot * (self.rest - alpha * (e @ (TR @ e))) / length
        diagonal += 0.5 * (1.0 + self.nu)
        if s == 1:
            # ½(1 + ν) − ½‖e‖² = ν
            N[0, 0] = self.nu + alpha * (e**2 @ (T @ e**2)) / length**2
        else:
            N[0, 0] += 0.5 * length**2
        factor = cho_factor(N, lower=True, overwrite_a=True, check_finite=False)
        v = cho_solve(factor, right, check_finite=False)
        v -= 2.0 * (w @ v) * w
        T *= np.outer(0.5 * v, e)
        return TR + T + s * T.T


def damped(products: Array, alpha: float) -> Array:
    """Compute 1/(μ + alpha) of eigenvalues μ; raise an error if μ + alpha is not positive."""
    shifted = products + alpha
    lowest = shifted.min(initial=np.inf)
    if lowest <= 0.0:
        raise ValueError(
            "the pairwise kernel is not positive semi-definite: its eigenvalues, made of those of "
            f"the two kernels, go down to {lowest - alpha:.3g}. Use alpha above "
            f"{alpha - lowest:.3g}, or positive semi-definite kernels"
        )
    return np.divide(1.0, shifted, out=shifted)


def row_centred(Y: Array) -> Array:
    """Subtract the mean of each row of Y, shape (p, g), accurately even for large means."""
    Y = Y - Y[:, :1]
    Y -= Y.mean(axis=1, keepdims=True)
    return Y
