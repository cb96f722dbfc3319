"""The objects of one side of a relation: their kernel, and its eigendecomposition.

A linear kernel is decomposed by the singular vectors of the features, which have twice the digits
of the kernel matrix. Any other kernel is decomposed as a matrix. For the ranking loss the kernel
of the ranked objects is centred, and decomposed on the complement of the constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh

from rankrls.core.linalg.feature_svd import column_norms, feature_svd
from rankrls.core.relations.pairwise_kernels import SideValues

__all__ = ["Side", "Spectrum", "centred", "decompose", "losing_columns"]

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)

#: Beside a column that is so many times larger, a column leaves less than eight digits in the
#: kernel matrix.
LOSING_SPREAD = 1e4


@dataclass(frozen=True)
class Spectrum:
    """S = V diag(values) Vᵀ for the kernel matrix S of n objects, plain or centred.

    Attributes
    ----------
    values : ndarray of shape (r,)
        Eigenvalues; those that are rounding error are zero.
    vectors : ndarray of shape (n, r)
        Orthonormal columns, at least for all eigenvalues that are not zero.
    centred : bool
        Whether S is C K C with the centring matrix C; then all columns sum to zero.
    weights : ndarray of shape (d, r) or None
        P with X P = V, if S is X Xᵀ with features X.
    mean : ndarray of shape (d,) or None
        What was subtracted from the features to centre them.
    dropped : float
        An eigenvalue that rounding errors may have hidden is at most about this.
    """

    values: Array
    vectors: Array
    centred: bool = False
    weights: Array | None = None
    mean: Array | None = None
    dropped: float = 0.0

    @cached_property
    def live(self) -> Array:
        """Which eigenvalues are not zero, shape (r,)."""
        return self.values != 0.0

    @cached_property
    def range(self) -> Spectrum:
        """The same without the null space: coefficients in it are functions of norm zero."""
        live = self.live
        if live.all():
            return self
        weights = None if self.weights is None else self.weights[:, live]
        return replace(
            self, values=self.values[live], vectors=self.vectors[:, live], weights=weights
        )

    @cached_property
    def complete(self) -> Spectrum:
        """Values and vectors of all n directions; of n − 1, orthogonal to 1, if centred."""
        n, r = self.vectors.shape
        if r == n - self.centred:
            return self
        known = self.vectors
        if self.centred:
            known = np.column_stack([np.full(n, 1.0 / np.sqrt(n)), known])
        null = np.linalg.qr(known, mode="complete")[0][:, known.shape[1] :]
        values = np.concatenate([self.values, np.zeros(null.shape[1])])
        return Spectrum(values, np.column_stack([self.vectors, null]), self.centred)

    def among(self, objects: Array, n: int) -> Spectrum:
        """The same for n objects of which only ``objects`` play a part."""
        if len(objects) == n:
            return self
        vectors = np.zeros((n, self.vectors.shape[1]))
        vectors[objects] = self.vectors
        return replace(self, vectors=vectors)

    @property
    def top(self) -> float:
        """The largest eigenvalue, by size."""
        return float(np.abs(self.values).max(initial=0.0))

    def basis(self, explicit: bool) -> Array:
        """B of shape (n, r), or (d, r) if explicit, for coefficients B inner of functions.

        A function with the values V diag(values) inner at the objects has the coefficients
        V inner of kernel values, and P diag(values) inner of features.
        """
        if not explicit:
            return self.vectors
        assert self.weights is not None
        return self.weights * self.values


def decompose(S: Array, noise: float = 0.0) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of a symmetric matrix, which is overwritten.

    Eigenvalues of at most n eps ‖S‖ are rounding error: they are set to zero. This is the one place
    of `core.relations` that cuts the rank of a kernel matrix.

    Parameters
    ----------
    S : ndarray of shape (n, n)
    noise : float
        Size of the rounding errors of the entries of S, where it is more than eps ‖S‖.
    """
    if not len(S):
        return np.empty(0), np.empty((0, 0))
    if not np.isfinite(S).all():
        raise ValueError("the kernel values overflow: scale the features down")
    # S is symmetric: its transpose is in the order that LAPACK works in place on.
    values, vectors = eigh(S.T, driver="evd", overwrite_a=True, check_finite=False)
    rounding = len(values) * max(EPS * float(np.abs(values).max()), noise)
    values[np.abs(values) <= rounding] = 0.0
    return values, vectors


def centred(G: Array) -> Array:
    """C G C for a symmetric matrix of shape (n, n), in float64; a new array."""
    S = G - G.mean(axis=0, dtype=np.float64)
    S -= S.mean(axis=1, keepdims=True)
    return S


def losing_columns(X: Any, negligible: float = 0.0) -> Array:
    """Columns of features that have lost digits in X Xᵀ beside larger ones, as numbers.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)
    negligible : float
        Columns whose deviations from their mean have at most this norm do not matter.
    """
    largest, deviation = _column_sizes(X)
    top = float(largest.max(initial=0.0))
    return np.flatnonzero((deviation > negligible) & (deviation < top / LOSING_SPREAD))


def _column_sizes(X: Any) -> tuple[Array, Array]:
    """Norms of the columns of X, and of their deviations from the mean, each of shape (d,)."""
    if not sparse.issparse(X):
        return column_norms(X), column_norms(_centred_columns(X)[0])
    squares = np.asarray(X.multiply(X).sum(axis=0), dtype=np.float64).ravel()
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    rest = np.maximum(squares - X.shape[0] * mean**2, 0.0)
    rest[rest <= X.shape[0] * EPS * squares] = 0.0
    return np.sqrt(squares), np.sqrt(rest)


class Side:
    """The objects of one side.

    Parameters
    ----------
    kernel : ndarray of shape (n, n), or a function that returns it
        The kernel matrix. The function is called when the matrix is needed for the first time.
    features : ndarray of shape (n, d), optional
        Features of which the kernel is the inner product.
    multiplies : bool
        Whether products of these features with those of the other side may be formed.
    floor : float
        All eigenvalues of the kernel matrix are known to be at least this, as those of a sum with
        an identity matrix.
    parts : function, optional
        Returns the kernel matrices, each of shape (n, n), of which the kernel is the sum.
    """

    #: Whether the kernel is made of labels, in part.
    profiled = False

    def __init__(
        self,
        kernel: Array | Callable[[], Array],
        features: Array | None = None,
        *,
        multiplies: bool = True,
        floor: float = 0.0,
        parts: Callable[[], Sequence[Array]] | None = None,
    ) -> None:
        self._kernel, self._several = kernel, parts
        self.floor = floor
        self.features = None if features is None else np.asarray(features, dtype=np.float64)
        self.multiplies = multiplies and features is not None
        self._spectra: dict[bool, Spectrum] = {}

    @cached_property
    def K(self) -> Array:
        """The kernel matrix, shape (n, n)."""
        return self._kernel() if callable(self._kernel) else self._kernel

    @cached_property
    def values(self) -> SideValues:
        """Kernel values of all objects with each other; single kernels, where there are several."""
        return SideValues(self.K, parts=() if self._several is None else self._several())

    def __len__(self) -> int:
        return len(self.K if self.features is None else self.features)

    @cached_property
    def by_features(self) -> bool:
        """Whether the decomposition is that of the features.

        They are fewer than objects, or scaled so differently that the kernel matrix loses digits.
        """
        return self.features is not None and (
            self.features.shape[1] < len(self.features) or self.loses_digits
        )

    @cached_property
    def loses_digits(self) -> bool:
        """Whether the kernel matrix has fewer digits of some features than of others."""
        return self.features is not None and len(losing_columns(self.features)) > 0

    @property
    def size(self) -> float:
        """The trace of the kernel matrix, which is above its largest eigenvalue."""
        if self.features is not None:
            return float(column_norms(self.features) @ column_norms(self.features))
        return float(np.abs(np.trace(self.K)))

    def rank_at_most_one(self) -> bool:
        """Whether the kernel matrix has no two independent rows, up to rounding."""
        if self.by_features:
            return len(self.spectrum().range.values) <= 1
        diagonal = self.K.diagonal()
        i = int(np.argmax(np.abs(diagonal)))
        size = float(np.abs(diagonal[i]))
        if size == 0.0:
            return not self.K.any()
        rest = self.K - np.outer(self.K[i] / diagonal[i], self.K[i])
        return float(np.abs(rest).max()) <= len(self.K) * EPS * size

    def spectrum(self, *, centred: bool = False) -> Spectrum:
        """Decompose the kernel matrix; its centred form on the complement of the constants."""
        if centred not in self._spectra:
            if self.by_features:
                self._spectra[centred] = _spectrum_of_features(self.features, centred)
            elif centred:
                self._spectra[centred] = _centred_spectrum(self.K)
            else:
                self._spectra[centred] = Spectrum(*decompose(np.array(self.K, dtype=np.float64)))
        return self._spectra[centred]

    def given(self, observations: Any) -> Side:
        """The same objects with other labels, those of the rows of ``observations``."""
        return self

    def select(self, chosen: Array) -> Side:
        """Some of the objects, by numbers."""
        block = np.ix_(chosen, chosen)
        if self.features is None:
            parts = None if self._several is None else lambda: [K[block] for K in self.values.parts]
            return Side(self.K[block], parts=parts)
        return Side(
            lambda: self.K[block],
            self.features[chosen],
            multiplies=self.multiplies,
        )

    def images(self, spectrum: Spectrum, objects: Array, of: Array) -> Array:
        """K' V of shape (n', r), K' the kernel values of some objects with others.

        Parameters
        ----------
        spectrum : Spectrum
            Of the kernel between the objects ``of``, centred or not.
        objects : ndarray of shape (n',), int
        of : ndarray of shape (n,), int

        Returns
        -------
        ndarray
            Without its mean over the objects ``of``, if the spectrum is centred and known by
            features: a constant for each column, which a ranking does not see.
        """
        if spectrum.weights is None:
            return self.K[np.ix_(objects, of)] @ spectrum.vectors
        assert self.features is not None
        X = self.features[objects]
        if spectrum.mean is not None:
            X = X - spectrum.mean
        return (X @ spectrum.weights) * spectrum.values


def _centred_columns(X: Array) -> tuple[Array, Array]:
    """X without the means of its columns, and these means; a constant column becomes zero."""
    first = X[:1]
    X = X - first
    mean = X.mean(axis=0)
    return X - mean, first[0] + mean


def _spectrum_of_features(X: Array | None, centred: bool) -> Spectrum:
    assert X is not None
    mean = None
    if centred:
        X, mean = _centred_columns(X)
    svd = feature_svd(X)
    full = len(svd.singular) == min(len(X) - centred, X.shape[1])
    dropped = 0.0 if full else svd.dropped**2
    return Spectrum(svd.singular**2, svd.vectors, centred, svd.weights, mean, dropped)


def _centred_spectrum(G: Array) -> Spectrum:
    """Decompose C G C on the complement of the constants.

    With the Householder reflection H that takes the constant direction to the first axis, the rest
    of H C G C H is a matrix of order n − 1 whose eigenvectors, reflected back, are orthogonal to
    the constants to rounding, however smooth or singular G is.
    """
    n = len(G)
    noise = EPS * float(np.abs(G.diagonal()).max(initial=0.0))
    S = centred(G)
    w = np.full(n, 1.0 / np.sqrt(n))
    w[0] += 1.0
    w /= np.linalg.norm(w)
    Sw = S @ w
    # H S H = S − 2 w (Sw)ᵀ − 2 (Sw) wᵀ + 4 (wᵀSw) w wᵀ
    Sw -= (w @ Sw) * w
    S -= 2.0 * np.outer(w, Sw)
    S -= 2.0 * np.outer(Sw, w)
    values, inner = decompose(np.ascontiguousarray(S[1:, 1:]), noise)
    U = np.empty((n, n - 1), order="F")
    U[0] = 0.0
    U[1:] = inner
    U -= np.outer(2.0 * w, w[1:] @ inner)
    return Spectrum(values, U, centred=True)
