"""Complete relations in closed form: two eigendecompositions serve every alpha.

Regression over all pairs of p row objects (kernel K) and g column objects (kernel G) is a linear
system with the matrix K ⊗ G + alpha I, which is diagonal in the eigenvectors of K and G. The
ranking loss gives every row a free offset: G is replaced by C G C (P5, Lemma 4.9), whose
eigenvectors beside the constants are used. Both hold for singular kernels too.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.relations.spectrum import Spectrum, centred_spectrum, spectrum

__all__ = ["ClosedForm", "CompleteSpectrum", "damped", "row_centred"]

Array = NDArray[Any]


class ClosedForm:
    """A solution for every alpha: the coefficients are V inner(alpha) Uᵀ.

    Attributes
    ----------
    V : ndarray of shape (p, r)
    U : ndarray of shape (g, s)
    """

    V: Array
    U: Array

    def inner(self, alpha: float) -> Array:
        """What lies between V and Uᵀ, shape (r, s)."""
        raise NotImplementedError

    def coefficients(self, alphas: Array, out: Array | None = None) -> Array:
        """A of f(x, z) = k_xᵀ A g_z for every alpha, shape (n_alphas, p, g)."""
        if out is None:
            out = np.empty((len(alphas), len(self.V), len(self.U)))
        for a, alpha in enumerate(alphas):
            np.matmul(self.V @ self.inner(alpha), self.U.T, out=out[a])
        return out

    def predict(self, K: Array, G: Array, alphas: Array) -> Array:
        """K A Gᵀ for every alpha, shape (n_alphas, p', g'), without forming A.

        Parameters
        ----------
        K : ndarray of shape (p', p)
        G : ndarray of shape (g', g)
            Kernel values of other objects with those of the model.
        alphas : ndarray of shape (n_alphas,)
        """
        left, right = K @ self.V, (G @ self.U).T
        return np.stack([left @ self.inner(alpha) @ right for alpha in alphas])


class CompleteSpectrum(ClosedForm):
    """Labels of all pairs, in the eigenvectors of both kernels.

    Parameters
    ----------
    left : Spectrum
        λ, V of K, shape (p, p).
    right : Spectrum
        σ, U of G, shape (g, g); for ranking that of C G C, shape (g, g − 1).
    Y : ndarray of shape (p, g)
        Labels. Offsets of rows do not matter for ranking.
    ranking : bool

    Notes
    -----
    With D = 1/(λσᵀ + alpha) and Ỹ = VᵀYU the coefficients are A = V (Ỹ ∘ D) Uᵀ. Pairs of
    eigenvectors with λσ = 0 are functions of norm zero and are left out.
    """

    def __init__(self, left: Spectrum, right: Spectrum, Y: Array, *, ranking: bool) -> None:
        self.left, self.right = left, right
        self.ranking = ranking
        self.Y = Y
        self.V, self.U = left.range.vectors, right.range.vectors

    @classmethod
    def of(cls, K: Array, G: Array, Y: Array, *, ranking: bool) -> CompleteSpectrum:
        """Decompose both kernels; one decomposition if they are the same object."""
        left = spectrum(K)
        if not ranking and G is K:
            return cls(left, left, Y, ranking=False)
        right = centred_spectrum(G) if ranking else spectrum(G)
        return cls(left, right, Y, ranking=ranking)

    def labels(self, V: Array, U: Array) -> Array:
        """VᵀYU of shape (r, s), offsets of rows taken off for ranking."""
        return V.T @ (row_centred(self.Y) if self.ranking else self.Y) @ U

    @cached_property
    def all_labels(self) -> Array:
        """VᵀYU with the null spaces."""
        return self.labels(self.left.vectors, self.right.vectors)

    @cached_property
    def _live(self) -> tuple[Array, Array]:
        """Ỹ and λσᵀ without the null spaces."""
        products = np.outer(self.left.range.values, self.right.range.values)
        return self.labels(self.V, self.U), products

    def inner(self, alpha: float) -> Array:
        """Ỹ ∘ D, shape (r, s)."""
        labels, products = self._live
        D = damped(products, alpha)
        D *= labels
        return D


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
