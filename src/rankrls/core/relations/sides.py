"""The objects of one side of a relation: their kernel, and its eigendecomposition.

A linear kernel is decomposed by the singular vectors of the features, which are twice as accurate
as the kernel matrix. For any other kernel, the kernel matrix is decomposed. For the ranking loss,
the kernel of the ranked objects is centred and decomposed on the complement of the constants.

A kernel may be a sum of kernels. Three of them need no features: "identity" (an object is similar
to itself only), "profile" (objects with similar labels are similar) and "constant" (all objects are
equally similar).
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
from rankrls.core.relations.labels import FreeOffsets, Observations, TableOffsets
from rankrls.core.relations.pairwise_kernels import SideValues
from rankrls.core.spaces.spaces import Kernel

__all__ = [
    "FEATURELESS",
    "KernelSum",
    "ProfiledSide",
    "Side",
    "Spectrum",
    "centred",
    "decompose",
    "is_featureless",
    "losing_columns",
    "mixed_profiles",
    "profile_gamma",
    "profile_kernel",
]

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)

#: Ratio of column sizes above which the smaller column has less than eight correct digits in the
#: kernel matrix.
LOSING_SPREAD = 1e4


@dataclass(frozen=True)
class Spectrum:
    """S = V diag(values) Vᵀ for the kernel matrix S of n objects, plain or centred.

    Attributes
    ----------
    values : ndarray of shape (r,)
        Eigenvalues. Those at the level of rounding error are set to zero.
    vectors : ndarray of shape (n, r)
        Orthonormal eigenvectors, at least of all nonzero eigenvalues.
    centred : bool
        Whether S is C K C with the centring matrix C. All eigenvectors then sum to zero.
    weights : ndarray of shape (d, r) or None
        P with X P = V, if S is X Xᵀ with features X.
    mean : ndarray of shape (d,) or None
        The mean subtracted from the features to centre them.
    dropped : float
        Approximate upper bound of the eigenvalues hidden by rounding errors.
    """

    values: Array
    vectors: Array
    centred: bool = False
    weights: Array | None = None
    mean: Array | None = None
    dropped: float = 0.0

    @cached_property
    def live(self) -> Array:
        """Mask of the nonzero eigenvalues, shape (r,)."""
        return self.values != 0.0

    @cached_property
    def range(self) -> Spectrum:
        """The spectrum without the null space, where functions have norm zero."""
        live = self.live
        if live.all():
            return self
        weights = None if self.weights is None else self.weights[:, live]
        return replace(
            self, values=self.values[live], vectors=self.vectors[:, live], weights=weights
        )

    @cached_property
    def complete(self) -> Spectrum:
        """The spectrum with all n directions, or the n − 1 orthogonal to 1 if centred."""
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
        """Embed the spectrum of ``objects`` into n objects; the others have zeros."""
        if len(objects) == n:
            return self
        vectors = np.zeros((n, self.vectors.shape[1]))
        vectors[objects] = self.vectors
        return replace(self, vectors=vectors)

    @property
    def top(self) -> float:
        """The largest absolute eigenvalue."""
        return float(np.abs(self.values).max(initial=0.0))

    def basis(self, explicit: bool) -> Array:
        """Return B such that functions have the coefficients B inner.

        A function with the values V diag(values) inner at the objects has the coefficients
        V inner for kernel values and P diag(values) inner for features. B has shape (n, r), or
        (d, r) if ``explicit``.
        """
        if not explicit:
            return self.vectors
        assert self.weights is not None
        return self.weights * self.values


def decompose(S: Array, noise: float = 0.0) -> tuple[Array, Array]:
    """Compute eigenvalues and eigenvectors of a symmetric matrix, which is overwritten.

    Eigenvalues of at most n eps ‖S‖ are rounding errors and set to zero. This is the only place in
    `core.relations` that determines the rank of a kernel matrix.

    Parameters
    ----------
    S : ndarray of shape (n, n)
    noise : float
        Size of the rounding errors of the entries of S, if it is larger than eps ‖S‖.
    """
    if not len(S):
        return np.empty(0), np.empty((0, 0))
    if not np.isfinite(S).all():
        raise ValueError("the kernel values overflow: scale the features down")
    # S is symmetric, and its transpose has the memory order that LAPACK needs to work in place.
    values, vectors = eigh(S.T, driver="evd", overwrite_a=True, check_finite=False)
    rounding = len(values) * max(EPS * float(np.abs(values).max()), noise)
    values[np.abs(values) <= rounding] = 0.0
    return values, vectors


def centred(G: Array) -> Array:
    """Compute C G C for a symmetric matrix of shape (n, n), as a new float64 array."""
    S = G - G.mean(axis=0, dtype=np.float64)
    S -= S.mean(axis=1, keepdims=True)
    return S


def losing_columns(X: Any, negligible: float = 0.0) -> Array:
    """Find features that lose digits in X Xᵀ because other features are much larger.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n, d)
    negligible : float
        Columns are ignored if their deviations from the mean have at most this norm.
    """
    largest, deviation = _column_sizes(X)
    top = float(largest.max(initial=0.0))
    return np.flatnonzero((deviation > negligible) & (deviation < top / LOSING_SPREAD))


def _column_sizes(X: Any) -> tuple[Array, Array]:
    """Compute norms of the columns of X and of their deviations from the mean, shapes (d,)."""
    if not sparse.issparse(X):
        return column_norms(X), column_norms(_centred_columns(X)[0])
    squares = np.asarray(X.multiply(X).sum(axis=0), dtype=np.float64).ravel()
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    rest = np.maximum(squares - X.shape[0] * mean**2, 0.0)
    rest[rest <= X.shape[0] * EPS * squares] = 0.0
    return np.sqrt(squares), np.sqrt(rest)


class Side:
    """The objects of one side of a relation.

    Parameters
    ----------
    kernel : ndarray of shape (n, n), or a function that returns it
        The kernel matrix. A function is called when the matrix is first needed.
    features : ndarray of shape (n, d), optional
        Features, if the kernel is their inner product.
    multiplies : bool
        Whether products of these features with those of the other side may be formed.
    parts : function, optional
        Returns the kernel matrices, each of shape (n, n), that add up to the kernel.
    """

    #: Whether the kernel is partly computed from labels.
    profiled = False

    def __init__(
        self,
        kernel: Array | Callable[[], Array],
        features: Array | None = None,
        *,
        multiplies: bool = True,
        parts: Callable[[], Sequence[Array]] | None = None,
    ) -> None:
        self._kernel, self._several = kernel, parts
        self.features = None if features is None else np.asarray(features, dtype=np.float64)
        self.multiplies = multiplies and features is not None
        self._spectra: dict[bool, Spectrum] = {}

    @cached_property
    def K(self) -> Array:
        """The kernel matrix, shape (n, n)."""
        return self._kernel() if callable(self._kernel) else self._kernel

    @cached_property
    def values(self) -> SideValues:
        """Kernel values between all objects, separately for each kernel of a sum."""
        return SideValues(self.K, parts=() if self._several is None else self._several())

    def __len__(self) -> int:
        return len(self.K if self.features is None else self.features)

    @cached_property
    def by_features(self) -> bool:
        """Whether the features are decomposed instead of the kernel matrix.

        This is so if there are fewer features than objects, or if features have such different
        scales that the kernel matrix loses digits.
        """
        return self.features is not None and (
            self.features.shape[1] < len(self.features) or self.loses_digits
        )

    @cached_property
    def loses_digits(self) -> bool:
        """Whether some features lose digits in the kernel matrix."""
        return self.features is not None and len(losing_columns(self.features)) > 0

    @property
    def n_features(self) -> int:
        """Number of features, or of objects without features."""
        return len(self.K) if self.features is None else self.features.shape[1]

    @property
    def size(self) -> float:
        """The trace of the kernel matrix, an upper bound of its largest eigenvalue."""
        if self.features is not None:
            return float(column_norms(self.features) @ column_norms(self.features))
        return float(np.abs(np.trace(self.K)))

    def rank_at_most_one(self) -> bool:
        """Whether the kernel matrix has rank at most one at floating-point precision."""
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
        """Decompose the kernel matrix, or its centred form on the complement of the constants."""
        if centred not in self._spectra:
            if self.by_features:
                self._spectra[centred] = _spectrum_of_features(self.features, centred)
            elif centred:
                self._spectra[centred] = _centred_spectrum(self.K)
            else:
                self._spectra[centred] = Spectrum(*decompose(np.array(self.K, dtype=np.float64)))
        return self._spectra[centred]

    def given(self, observations: Any) -> Side:
        """Return the objects with other labels, given by the rows of ``observations``."""
        return self

    def select(self, chosen: Array) -> Side:
        """Select objects by index."""
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
        """Compute K' V, where K' are the kernel values between ``objects`` and ``of``.

        Parameters
        ----------
        spectrum : Spectrum
            Spectrum of the kernel matrix of the objects ``of``, centred or not.
        objects : ndarray of shape (n',), int
        of : ndarray of shape (n,), int

        Returns
        -------
        ndarray of shape (n', r)
            If the spectrum is centred and computed from features, the mean over the objects ``of``
            is subtracted from each column. Rankings do not depend on this constant.
        """
        if spectrum.weights is None:
            return self.K[np.ix_(objects, of)] @ spectrum.vectors
        assert self.features is not None
        X = self.features[objects]
        if spectrum.mean is not None:
            X = X - spectrum.mean
        return (X @ spectrum.weights) * spectrum.values


def _centred_columns(X: Array) -> tuple[Array, Array]:
    """Centre the columns of X, and return their means; constant columns become exactly zero."""
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

    Let H be the Householder reflection of the constant direction to the first axis. Without its
    first row and column, H C G C H is a matrix of order n − 1. Its eigenvectors, reflected back,
    are orthogonal to the constants at floating-point precision, even if G is singular.
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


#: Kernels that do not use features.
FEATURELESS = ("identity", "profile", "constant")


@dataclass(frozen=True)
class KernelSum:
    """Σ w k(x, x') over several kernels of the same objects.

    Attributes
    ----------
    kernels : tuple of Kernel
        The kernels. A metric may be one of `FEATURELESS`.
    weights : ndarray of shape (n_kernels,)
        The weights w ≥ 0.
    """

    kernels: tuple[Kernel, ...]
    weights: Array

    linear = False

    @property
    def metric(self) -> list[Any]:
        """The metrics of all kernels."""
        return [kernel.metric for kernel in self.kernels]

    @property
    def precomputed(self) -> bool:
        """Whether X consists of precomputed kernel matrices, stacked horizontally."""
        return self.n_blocks > 0

    @property
    def n_blocks(self) -> int:
        """Number of kernel matrices in X."""
        return sum(kernel.precomputed for kernel in self.kernels)

    @property
    def featureless(self) -> bool:
        """Whether no kernel uses features."""
        return all(is_featureless(kernel) for kernel in self.kernels)

    @property
    def blind(self) -> bool:
        """Whether all kernel values of an object without features and labels are zero."""
        return all(kernel.metric in ("identity", "profile") for kernel in self.kernels)

    @property
    def profiles(self) -> list[tuple[float, float]]:
        """Weights and gammas of the profile kernels."""
        return [(w, profile_gamma(kernel)) for w, kernel in self if kernel.metric == "profile"]

    @property
    def profiled(self) -> bool:
        """Whether a kernel is computed from labels."""
        return any(kernel.metric == "profile" for kernel in self.kernels)

    def __iter__(self) -> Any:
        """Iterate over pairs of a weight and a kernel."""
        return zip(self.weights.tolist(), self.kernels, strict=True)


def is_featureless(kernel: Kernel) -> bool:
    """Whether the metric of a kernel is one of `FEATURELESS`."""
    return isinstance(kernel.metric, str) and kernel.metric in FEATURELESS


def profile_gamma(kernel: Kernel) -> float:
    """Return the parameter gamma of a profile kernel, 1 by default."""
    return float(kernel.params.get("gamma") or 1.0)


def profile_kernel(observations: Observations, free: FreeOffsets) -> Array:
    """Compute the Gaussian kernel of the labels of the row objects, shape (p, p).

    The profile of an object is its row of labels minus the offsets of the model (at least the
    mean of all labels). Unobserved entries are zero. The width is the mean squared length of the
    profiles (van Laarhoven, Nabuurs, Marchiori, Bioinformatics 27, 2011). An object without labels
    has no profile, and its kernel values are zero. Powers of the values give other widths.
    """
    cells = observations.cells
    p, _ = observations.shape
    if not len(cells):
        return np.zeros((p, p))
    free = free if free.rows or free.columns else FreeOffsets(constant=True)
    y = cells.y - TableOffsets(cells, free).fit(cells, cells.y).at(cells.rows, cells.cols)
    table = sparse.csr_array((y, (cells.rows, cells.cols)), shape=observations.shape)
    dense = 5 * len(cells) > p * observations.shape[1]
    P = table.toarray() if dense else table
    S = P @ P.T
    S = S if dense else S.toarray()
    square = S.diagonal().copy()
    seen = np.bincount(cells.rows, minlength=p) > 0
    width = float(square[seen].mean())
    rounding = 16.0 * np.finfo(float).eps * float(np.abs(cells.y).max())  # labels minus offsets
    width = width if width > len(cells) * rounding**2 else 1.0
    S *= 2.0
    S -= square
    S -= square[:, None]
    np.minimum(S, 0.0, out=S)
    S /= width
    np.exp(S, out=S)
    S[~seen] = 0.0
    S[:, ~seen] = 0.0
    return S


class ProfiledSide(Side):
    """Objects with a kernel that is partly computed from their labels.

    Parameters
    ----------
    fixed : ndarray of shape (n, n)
        The kernel matrix without profiles.
    parts : list of (weight, gamma)
        Profile kernels of different widths.
    profile : ndarray of shape (n, n)
        The profile kernel of all labels with gamma = 1.
    free : FreeOffsets
        The offsets subtracted from labels, with these objects as rows.
    """

    profiled = True

    def __init__(
        self,
        fixed: Array,
        parts: list[tuple[float, float]],
        profile: Array,
        free: FreeOffsets,
    ) -> None:
        super().__init__(fixed + mixed_profiles(parts, profile))
        self._fixed, self._parts, self._free = fixed, parts, free

    def given(self, observations: Observations) -> Side:
        """Return the objects with profiles computed from ``observations`` only."""
        profile = profile_kernel(observations, self._free)
        return ProfiledSide(self._fixed, self._parts, profile, self._free)


def mixed_profiles(parts: list[tuple[float, float]], profile: Array) -> Array:
    """Sum profile kernels with given weights and gammas; the shape is that of ``profile``."""
    out = np.zeros_like(profile)
    for weight, gamma in parts:
        out += weight * (profile if gamma == 1.0 else profile**gamma)
    return out
