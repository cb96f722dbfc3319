"""The objects of one side of a relation: their kernel, and its eigendecomposition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh

from rankrls._relation_labels import FreeOffsets, Observations, TableOffsets
from rankrls.core.relations.pairwise_kernels import SideValues

__all__ = ["Side", "Spectrum", "decompose", "profile_kernel"]

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)

#: Ratio of column sizes above which the smaller column has less than eight correct digits in the
#: kernel matrix.
LOSING_SPREAD = 1e4
#: Number of selected parts of a side that are kept.
KEPT = 16


@dataclass(frozen=True)
class Spectrum:
    """S = V diag(values) Vᵀ for the kernel matrix S of n objects, plain or centred."""

    values: Array  # (r,), zero at the level of rounding errors
    vectors: Array  # (n, r), orthonormal; they sum to zero if S is centred
    centred: bool = False
    weights: Array | None = None  # (d, r): P with X P = V, if S = X Xᵀ with features X

    @cached_property
    def range(self) -> Spectrum:
        """The spectrum without the null space, where functions have norm zero."""
        live = self.values != 0.0
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
            return replace(self, weights=None)
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


def decompose(S: Array, noise: float = 0.0) -> tuple[Array, Array]:
    """Decompose a symmetric matrix in place; eigenvalues up to n max(eps ‖S‖, noise) become 0."""
    if not len(S):
        return np.empty(0), np.empty((0, 0))
    if not np.isfinite(S).all():
        raise ValueError("the kernel values overflow: scale the features down")
    # S is symmetric, and its transpose has the memory order that LAPACK needs to work in place.
    values, vectors = eigh(S.T, driver="evd", overwrite_a=True, check_finite=False)
    rounding = len(values) * max(EPS * float(np.abs(values).max()), noise)
    values[np.abs(values) <= rounding] = 0.0
    return values, vectors


class Side(SideValues):
    """A kernel matrix of objects, the features of a linear kernel, and ``several`` of a sum.

    ``relabel`` makes the side of other labels, if labels make a kernel ("profile").
    """

    def __init__(
        self,
        kernel: Array | Callable[[], Array],
        features: Array | None = None,
        *,
        several: Callable[[], Sequence[Array]] | None = None,
        relabel: Callable[[Observations], Side] | None = None,
    ) -> None:
        self._kernel, self._several, self._relabel = kernel, several, relabel
        self.profiled = relabel is not None  # the kernel is partly computed from labels
        self.features: Any = None if features is None else np.asarray(features, dtype=np.float64)
        self.same = None
        self._spectra: dict[bool, Spectrum] = {}
        self._selected: dict[bytes, Side] = {}

    @cached_property
    def K(self) -> Array:  # type: ignore[override]
        """The kernel matrix, shape (n, n)."""
        return self._kernel() if callable(self._kernel) else self._kernel

    @cached_property
    def parts(self) -> Sequence[Array]:  # type: ignore[override]
        """The kernel matrices of a sum."""
        return () if self._several is None else self._several()

    def __len__(self) -> int:
        return len(self.K if self.features is None else self.features)

    @cached_property
    def by_features(self) -> bool:
        """Whether the features are decomposed instead of the kernel matrix."""
        X = self.features
        return X is not None and (X.shape[1] < len(X) or self.loses_digits)

    @cached_property
    def loses_digits(self) -> bool:
        """Whether some features lose digits in the kernel matrix."""
        if self.features is None:
            return False
        sizes = np.abs(self.features).max(axis=0)
        return bool(sizes.max() > LOSING_SPREAD * sizes.min(initial=np.inf, where=sizes > 0))

    def given(self, observations: Observations) -> Side:
        """Return the objects with other labels, given by the rows of ``observations``."""
        return self if self._relabel is None else self._relabel(observations)

    @property
    def size(self) -> float:
        """The trace of the kernel matrix, an upper bound of its largest eigenvalue."""
        if self.features is not None:
            with np.errstate(over="ignore"):
                return float(np.vdot(self.features, self.features))
        return float(np.abs(np.trace(self.K)))

    @property
    def centred_size(self) -> float:
        """The trace of the centred kernel matrix."""
        if self.features is not None:
            X = self.features - self.features.mean(axis=0)
            return float(np.vdot(X, X))
        return float(np.abs(np.trace(self.K) - self.K.mean(axis=0).sum()))

    def spectrum(self, *, centred: bool = False) -> Spectrum:
        """Decompose the kernel matrix, or its centred form on the complement of the constants."""
        if centred not in self._spectra:
            make = self._of_features if self.by_features else self._of_kernel
            self._spectra[centred] = make(centred)
        return self._spectra[centred]

    def _of_features(self, centred: bool) -> Spectrum:
        X = self.features
        if centred:
            X = X - X[:1]  # constant columns become exactly zero
            X = X - X.mean(axis=0)
        if not np.abs(X).max(initial=0.0) < 1e150:
            raise ValueError("the squares of the features overflow; scale the features down")
        V, s, Qt = np.linalg.svd(X, full_matrices=False)
        kept = s > max(X.shape) * EPS * s.max(initial=0.0)
        return Spectrum(s[kept] ** 2, V[:, kept], centred, Qt[kept].T / s[kept])

    def _of_kernel(self, centred: bool) -> Spectrum:
        if not centred:
            return Spectrum(*decompose(np.array(self.K, dtype=np.float64)))
        S = self.K - self.K.mean(axis=0, dtype=np.float64)
        S -= S.mean(axis=1, keepdims=True)
        noise = EPS * float(np.abs(self.K.diagonal()).max(initial=0.0))
        # The reflection H = I − 2wwᵀ takes the constants to the first axis, which HSH then leaves.
        w = np.full(len(S), 1.0 / np.sqrt(len(S)))
        w[0] += 1.0
        w /= np.linalg.norm(w)
        Sw = S @ w
        Sw -= (w @ Sw) * w
        S -= 2.0 * np.outer(w, Sw)
        S -= 2.0 * np.outer(Sw, w)
        values, inner = decompose(np.ascontiguousarray(S[1:, 1:]), noise)
        U = np.zeros((len(S), len(S) - 1), order="F")
        U[1:] = inner
        U -= np.outer(2.0 * w, w[1:] @ inner)
        return Spectrum(values, U, centred=True)

    def select(self, chosen: Array) -> Side:
        """Select objects by ascending index; the latest parts keep their decompositions."""
        if len(chosen) == len(self):
            return self
        key = np.asarray(chosen, dtype=np.int64).tobytes()
        if key not in self._selected:
            block = np.ix_(chosen, chosen)
            if self._several is not None:
                part = Side(self.K[block], several=lambda: [K[block] for K in self.parts])
            elif self.features is None:
                part = Side(self.K[block])
            else:
                part = Side(lambda: self.K[block], self.features[chosen])
            if len(self._selected) >= KEPT:
                self._selected.clear()
            self._selected[key] = part
        return self._selected[key]

    def perturbed(self, rng: np.random.Generator, level: float, *, features: bool) -> Side:
        """Return the objects with random errors of ``level`` times eps in kernel values."""

        def errors(values: Array) -> Array:
            size = level * EPS * np.abs(values).max(initial=0.0)
            return size * rng.standard_normal(values.shape)

        if features and self.by_features:
            X = self.features + errors(self.features)
            return Side(lambda: X @ X.T, X)
        K, *parts = (M + (E := errors(M)) + E.T for M in (self.K, *self.parts))
        return Side(K, several=lambda: parts)

    def images(self, spectrum: Spectrum, objects: Array) -> Array:
        """Compute K' V, shape (n', r), with the kernel values K' of some objects."""
        if spectrum.weights is None:
            return self.K[objects] @ spectrum.vectors
        return (self.features[objects] @ spectrum.weights) * spectrum.values


def profile_kernel(observations: Observations, free: FreeOffsets) -> Array:
    """Compute the Gaussian kernel (p, p) of rows of labels without offsets, 0 if unobserved."""
    cells, p = observations.cells, observations.shape[0]
    if not len(cells):
        return np.zeros((p, p))
    free = free if free.rows or free.columns else FreeOffsets(constant=True)
    y = cells.y - TableOffsets(cells, free).fit(cells, cells.y).at(cells.rows, cells.cols)
    P: Any = cells.table(y)
    P = P.toarray() if 5 * len(cells) > P.shape[0] * P.shape[1] else P
    S = P @ P.T
    S = S.toarray() if sparse.issparse(S) else S
    square = S.diagonal().copy()
    seen = np.bincount(cells.rows, minlength=p) > 0
    # van Laarhoven, Nabuurs, Marchiori, Bioinformatics 27 (2011)
    width = float(square[seen].mean())
    rounding = 16.0 * EPS * float(np.abs(cells.y).max())  # labels minus offsets
    width = width if width > len(cells) * rounding * rounding else 1.0
    S = np.exp(np.minimum(2.0 * S - square - square[:, None], 0.0) / width)
    S[~seen] = 0.0
    S[:, ~seen] = 0.0
    return S
