"""The objects of one side of a relation: their features and their kernel, or several kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigvalsh

from rankrls import _memory
from rankrls._validation import check_positive, show
from rankrls.core.relations.observations import Observations
from rankrls.core.relations.offsets import NO_OFFSETS, FreeOffsets
from rankrls.core.relations.side_kernels import (
    FEATURELESS,
    KernelSum,
    ProfiledSide,
    is_featureless,
    profile_gamma,
    profile_kernel,
)
from rankrls.core.relations.sides import Side
from rankrls.core.spaces.spaces import Kernel, check_gram
from rankrls.estimators.ranker import canonical

__all__ = ["Objects", "check_numbers", "read_kernels", "stacked_kernels"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Objects:
    """Training objects of one side, and their kernel.

    Attributes
    ----------
    kernel : Kernel or KernelSum
    X : ndarray or CSR of shape (n, d); the kernel matrix if it is precomputed
        Several kernel matrices side by side, (n, n_kernels n).
    profile : ndarray of shape (n, n), or None
        The kernel of the labels, if that is a part of the kernel.
    """

    kernel: Kernel | KernelSum
    X: Any
    profile: Array | None = None

    @classmethod
    def of(cls, kernel: Kernel | KernelSum, X: Any) -> Objects:
        """Training objects; a precomputed kernel matrix is checked.

        The kernels of a sum are divided by their mean values k(x, x).
        """
        X = canonical(X, dense=kernel.precomputed)
        if isinstance(kernel, KernelSum):
            made = cls(kernel, X)
            for block in made._blocks(X):
                check_gram(block)
            return made.weighted(kernel.weights)
        if kernel.precomputed:
            check_gram(X)
        return cls(kernel, X)

    def weighted(self, weights: Array) -> Objects:
        """The same objects with other weights of the kernels, each divided by its mean size."""
        assert isinstance(self.kernel, KernelSum)
        made = replace(self, kernel=replace(self.kernel, weights=weights / self._sizes))
        made._keep_matrices(self)
        return made

    def _keep_matrices(self, other: Objects) -> None:
        """Take over what depends neither on weights nor on labels."""
        known = vars(other)
        self.__dict__.update({k: known[k] for k in ("_matrices", "_sizes") if k in known})

    def given(self, observations: Observations, free: FreeOffsets) -> Objects:
        """The same objects with the labels of the rows of ``observations``, which have offsets."""
        if not (isinstance(self.kernel, KernelSum) and self.kernel.profiled):
            return self
        made = replace(self, profile=profile_kernel(observations, free))
        made._keep_matrices(self)
        return made

    def stored(self) -> Objects:
        """The same without kernel matrices that were kept for other weights."""
        return replace(self)

    def _blocks(self, X: Any) -> list[Array]:
        """Kernel values (n', n) of every precomputed kernel in X."""
        assert isinstance(self.kernel, KernelSum)
        n, k = len(self), self.kernel.n_blocks
        if k and X.shape[1] != k * n:
            raise ValueError(
                f"X has {X.shape[1]} columns for {k} precomputed kernels of {n} training objects: "
                f"pass a list of {k} matrices with {n} columns each"
            )
        return [X[:, b * n : (b + 1) * n] for b in range(k)]

    @cached_property
    def _matrices(self) -> list[Array | None]:
        """The kernel matrices of a sum, (n, n); None for identity, constant and profile."""
        assert isinstance(self.kernel, KernelSum)
        blocks = iter(self._blocks(self.X))
        return [
            None
            if is_featureless(kernel)
            else np.asarray(next(blocks) if kernel.precomputed else kernel(self.X), dtype=float)
            for kernel in self.kernel.kernels
        ]

    @cached_property
    def _sizes(self) -> Array:
        """Mean k(x, x) of every kernel of a sum; 1 where it is not positive."""
        assert isinstance(self.kernel, KernelSum)
        blocks = iter(self._blocks(self.X))
        sizes = []
        for kernel in self.kernel.kernels:
            diagonal = np.ones(1)
            if kernel.precomputed:
                diagonal = next(blocks).diagonal()
            elif not is_featureless(kernel):
                diagonal = kernel.paired(self.X)
            sizes.append(float(diagonal.mean()))
        return np.where(np.array(sizes) > 0, sizes, 1.0)

    @property
    def weights(self) -> Array | None:
        """Weights of the kernels of a sum, as they were given to `weighted`."""
        return self.kernel.weights * self._sizes if isinstance(self.kernel, KernelSum) else None

    def __len__(self) -> int:
        return self.X.shape[0]

    def gram(self) -> Array:
        """Kernel matrix of shape (n, n), in float64; without profiles."""
        if isinstance(self.kernel, KernelSum):
            K = np.zeros((len(self), len(self)))
            for (weight, kernel), matrix in zip(self.kernel, self._matrices, strict=True):
                if kernel.metric == "identity":
                    np.einsum("ii->i", K)[:] += weight
                elif kernel.metric == "constant":
                    K += weight
                elif matrix is not None:
                    K += weight * matrix
            return K
        if self.kernel.precomputed:
            return np.asarray(self.X, dtype=np.float64)
        return self.kernel(self.X).astype(np.float64, copy=False)

    def inner_products(self, S: Array) -> Array:
        """⟨S, K⟩ with every kernel matrix of a sum, divided by its size; without profiles."""
        assert isinstance(self.kernel, KernelSum)
        products = []
        for kernel, K in zip(self.kernel.kernels, self._matrices, strict=True):
            if K is not None:
                products.append(float(np.einsum("ij,ij->", S, K)))
            else:
                products.append(float(S.sum() if kernel.metric == "constant" else np.trace(S)))
        return np.array(products) / self._sizes

    def side(self, free: FreeOffsets = NO_OFFSETS) -> Side:
        """The objects as a side of a relation; the kernel matrix is made when it is needed.

        ``free`` are the offsets of labels that profiles are without.
        """
        X, n = self.X, len(self)
        if self.kernel.linear and not sparse.issparse(X) and 8 * X.shape[1] <= n:
            return Side(self._required_gram, X)  # of which the kernel matrix is hardly needed
        self._require_gram()
        if isinstance(self.kernel, KernelSum):
            K = self.gram()
            floor = self.kernel.identity_weight
            if floor > 0.0 and not self.kernel.positive:
                floor = max(0.0, float(eigvalsh(K, subset_by_index=[0, 0])[0]))
            if self.profile is not None:
                parts = self.kernel.profiles
                return ProfiledSide(K, parts, self.profile, free, floor=floor)
            return Side(K, floor=floor, parts=lambda: self.parts(X))
        if not self.kernel.linear:
            return Side(self.gram())
        if not sparse.issparse(X):
            return Side(self.gram, X)
        # No larger than the kernel matrix: its columns keep their digits as a dense array.
        dense = X.toarray() if X.shape[1] <= X.shape[0] else None
        return Side(self.gram, dense, multiplies=False) if dense is not None else Side(self.gram())

    def _require_gram(self) -> None:
        n, advice = len(self), "use fewer objects: all n × n kernel values are needed"
        _memory.require(f"the kernel matrix of {n:,} objects", n, n, copies=3, advice=advice)

    def _required_gram(self) -> Array:
        self._require_gram()
        return self.gram()

    def others(self, X: Any) -> Any:
        """Other objects, checked features of shape (n', d), as this side's kernel takes them."""
        return canonical(X, dense=self.kernel.precomputed)

    def known(self, X: Any) -> sparse.csr_array:
        """Which of the training objects other objects are, shape (n', n).

        Objects with the same features (the same kernel values, if these are precomputed) are
        the same; a row is divided among training objects that are equal, and zero for new
        objects. All training objects, in their order, are themselves.
        """
        n = len(self)
        if X is self.X or (X.shape == self.X.shape and _equal(X, self.X)):
            return sparse.csr_array(sparse.identity(n, format="csr"))
        codes = _codes(self.X, X)
        mine, others = codes[:n], codes[n:]
        order = np.argsort(mine, kind="stable")
        first = np.searchsorted(mine[order], others, "left")
        count = np.searchsorted(mine[order], others, "right") - first
        starts = np.concatenate([[0], np.cumsum(count)])
        place = np.arange(starts[-1]) - np.repeat(starts[:-1] - first, count)
        data = np.repeat(1.0 / np.maximum(count, 1), count)
        return sparse.csr_array((data, order[place], starts), shape=(X.shape[0], n))

    def values(self, X: Any, *, explicit: bool = False) -> Array:
        """Kernel values of shape (n', n) with other objects; their features if ``explicit``."""
        if explicit:
            return X.toarray() if sparse.issparse(X) else X
        if isinstance(self.kernel, KernelSum):
            return self._sum_product(X, None)
        return self.kernel(X, self.X)

    def parts(self, X: Any) -> list[Array]:
        """Values (n', n) with other objects of every kernel of a sum, with its weight."""
        assert isinstance(self.kernel, KernelSum)
        alone = np.eye(len(self.kernel.kernels))
        return [
            replace(self, kernel=replace(self.kernel, weights=w * one))._sum_product(X, None)
            for w, one in zip(self.kernel.weights, alone, strict=True)
        ]

    def product(self, X: Any, coefficients: Array, *, explicit: bool = False) -> Array:
        """Kernel values (features, if ``explicit``) times coefficients (n or d, k): (n', k)."""
        if explicit:
            return X @ coefficients
        if isinstance(self.kernel, KernelSum):
            return self._sum_product(X, coefficients)
        return self.kernel.product(X, self.X, coefficients)

    def _sum_product(self, X: Any, coefficients: Array | None) -> Array:
        """Values of a sum of kernels, times coefficients (n, k) unless these are None."""
        assert isinstance(self.kernel, KernelSum)
        n = len(self)
        blocks = iter(self._blocks(X))
        known = self.known(X) if any(map(is_featureless, self.kernel.kernels)) else None
        out = np.zeros((X.shape[0], n if coefficients is None else coefficients.shape[1]))
        for weight, kernel in self.kernel:
            block = next(blocks) if kernel.precomputed else None
            if weight == 0.0:
                continue
            if kernel.metric == "constant":
                out += weight if coefficients is None else weight * coefficients.sum(axis=0)
            elif is_featureless(kernel):
                right: Any = sparse.identity(n)
                if kernel.metric == "profile":
                    assert self.profile is not None
                    right = self.profile ** profile_gamma(kernel)
                right = right if coefficients is None else right @ coefficients
                part = known @ right
                out += weight * (part.toarray() if sparse.issparse(part) else part)
            elif coefficients is None:
                out += weight * (kernel(X, self.X) if block is None else block)
            elif block is not None:
                out += weight * (block @ coefficients)
            else:
                out += weight * kernel.product(X, self.X, coefficients)
        return out

    def paired(self, X: Any, Y: Any = None, name: str = "X") -> Array:
        """k(x, y) row by row (y = x if Y is None), shape (n',).

        Precomputed kernels know it of training objects only. A new object has a profile of its
        own, which nobody knows.
        """
        if isinstance(self.kernel, Kernel) and not self.kernel.precomputed:
            return self.kernel.paired(X, Y)
        known = self.known(X)
        other = known if Y is None else self.known(Y)
        new = np.asarray(known.sum(axis=1)).ravel() == 0.0
        if self.kernel.precomputed and new.any():
            raise ValueError(
                "uncertainties need k(x, x), which kernel='precomputed' does not tell for new "
                f"objects: row {int(np.flatnonzero(new)[0])} of {name} is none of the training "
                "objects"
            )
        if isinstance(self.kernel, Kernel):
            return self._between(known, other, np.asarray(self.X, dtype=float))
        out = np.zeros(X.shape[0])
        blocks = iter(self._blocks(self.X))
        for weight, kernel in self.kernel:
            if kernel.metric == "constant":
                out += weight
            elif kernel.metric == "identity":
                same = known.multiply(other).sum(axis=1)  # 0 for two objects that differ
                out += weight * (1.0 if Y is None else np.asarray(same).ravel())
            elif kernel.metric == "profile":
                assert self.profile is not None
                profile = self.profile ** profile_gamma(kernel)
                values = self._between(known, other, profile)
                out += weight * (np.where(new, 1.0, values) if Y is None else values)
            elif kernel.precomputed:
                out += weight * self._between(known, other, next(blocks))
            else:
                out += weight * kernel.paired(X, Y)
        return out

    def _between(self, first: Any, second: Any, K: Array) -> Array:
        """Entries of K between training objects, row by row of two tables of `known`."""
        return np.asarray(second.multiply(first @ K).sum(axis=1)).ravel()

    def with_others(self, X: Any) -> Objects:
        """These objects and others with the features X, as of a new fit; without profiles."""
        stacked = sparse.vstack if sparse.issparse(self.X) else np.vstack
        return self._refitted(stacked([self.X, X]))

    def only(self, kept: Array) -> Objects:
        """Some of these objects, by ascending numbers, as of a new fit; without profiles."""
        return self._refitted(self.part(kept, kept))

    def _refitted(self, X: Any) -> Objects:
        """Other objects with the same kernels, divided by their mean values for these objects."""
        made = Objects(self.kernel, canonical(X, dense=self.kernel.precomputed))
        weights = self.weights
        return made if weights is None else made.weighted(weights)

    def part(self, chosen: Array, train: Array) -> Any:
        """Some objects, as a model of the objects ``train`` takes them: features, kernel values."""
        X = self.X[chosen]
        if isinstance(self.kernel, KernelSum) and self.kernel.precomputed:
            return np.hstack([block[:, train] for block in self._blocks(X)])
        return X[:, train] if self.kernel.precomputed else X


def read_kernels(
    kernel: Any, weights: Any, params: Any, name: str, **common: Any
) -> Kernel | KernelSum:
    """The kernel, or the sum of several, that an estimator's parameters ask for.

    Parameters
    ----------
    kernel : str, callable or list of these
    weights : array-like of shape (n_kernels,) or None
        None: equal ones, which add up to one.
    params : dict, list of dict or None
        Parameters of the kernel, or of every kernel of a list.
    name : str
        Of the parameter that gives ``kernel``.
    **common
        gamma, degree, coef0, n_jobs.
    """
    several = isinstance(kernel, list | tuple)
    kernels = list(kernel) if several else [kernel]
    if several and not kernels:
        raise ValueError(f"{name} is an empty list: give at least one kernel")
    if not several and not (isinstance(kernel, str) and kernel in FEATURELESS):
        if weights is not None:
            raise ValueError(f"{name}_weights are those of several kernels: {name} must be a list")
        return Kernel.from_options(kernel, kernel_params=params, **common)
    if params is None or isinstance(params, dict):
        common_params = params
        params = [None if _is_featureless_name(one) else common_params for one in kernels]
        if not several:
            params = [common_params]
    if not isinstance(params, list | tuple) or len(params) != len(kernels):
        raise ValueError(f"{name}_params must be a dict, or a list of {len(kernels)} dicts")
    made = []
    for one, own in zip(kernels, params, strict=True):
        if isinstance(one, str) and one in FEATURELESS:
            made.append(_featureless(one, own, name))
            continue
        gamma = None if own and "gamma" in own else common["gamma"]
        made.append(Kernel.from_options(one, kernel_params=own, **common | {"gamma": gamma}))
    mixed = [one.precomputed for one in made if not is_featureless(one)]
    if any(mixed) and not all(mixed):
        raise ValueError(
            f"{name} has 'precomputed' beside kernels of features: compute all kernel matrices, "
            "and pass a list of them"
        )
    if weights is None:
        used = np.full(len(made), 1.0 / len(made))
    else:
        used = np.asarray(weights, dtype=np.float64)
        if used.shape != (len(made),) or not (np.isfinite(used) & (used >= 0)).all():
            raise ValueError(
                f"{name}_weights must be {len(made)} numbers >= 0, one for each kernel; got "
                f"{show(weights)}"
            )
        if not used.any():
            raise ValueError(f"{name}_weights are all zero")
    return KernelSum(tuple(made), used)


def _is_featureless_name(kernel: Any) -> bool:
    return isinstance(kernel, str) and kernel in FEATURELESS


def _featureless(kernel: str, params: Any, name: str) -> Kernel:
    unknown = sorted(set(params or ()) - ({"gamma"} if kernel == "profile" else set()))
    if unknown:
        raise ValueError(f"{name}_params has {unknown[0]!r}, which {kernel!r} does not take")
    if not params or params.get("gamma") is None:
        return Kernel(kernel)
    return Kernel(kernel, {"gamma": check_positive("gamma", params["gamma"])})


def stacked_kernels(kernel: Kernel | KernelSum, X: Any, name: str = "X") -> Any:
    """A list of precomputed kernel matrices as one array, side by side; other X as they are."""
    if not isinstance(kernel, KernelSum) or kernel.n_blocks < 2:
        return X
    if not (isinstance(X, list | tuple) or getattr(X, "ndim", 2) == 3):
        return X
    if len(X) != kernel.n_blocks:
        raise ValueError(
            f"{name} has {len(X)} kernel matrices for {kernel.n_blocks} precomputed kernels"
        )
    parts = [np.asarray(part) for part in X]
    if len({part.shape for part in parts}) > 1 or parts[0].ndim != 2:
        shapes = ", ".join(str(part.shape) for part in parts)
        raise ValueError(f"the kernel matrices of {name} must have one shape; got {shapes}")
    return np.hstack(parts)


def _equal(X: Any, other: Any) -> bool:
    if sparse.issparse(X) or sparse.issparse(other):
        return (sparse.csr_array(X) != sparse.csr_array(other)).nnz == 0
    return np.array_equal(X, other)


def _codes(*parts: Any) -> Array:
    """Numbers of shape (n,) that are equal where rows of all parts together are equal."""
    if any(map(sparse.issparse, parts)):
        # Products with integers are exact sums in any order only up to rounding: rows are compared
        # by their columns and values instead.
        stacked = sparse.csr_array(sparse.vstack([sparse.csr_array(part) for part in parts]))
        stacked.eliminate_zeros()
        stacked.sort_indices()
        bounds = zip(stacked.indptr[:-1], stacked.indptr[1:], strict=True)
        keys = [stacked.indices[a:b].tobytes() + stacked.data[a:b].tobytes() for a, b in bounds]
        return np.unique(np.array(keys, dtype=object), return_inverse=True)[1]
    dtype = parts[0].dtype
    rows = np.vstack([np.asarray(part, dtype=dtype) for part in parts]) + dtype.type(0)
    rows = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1])))
    return np.unique(rows.ravel(), return_inverse=True)[1]


def check_numbers(name: str, values: Any, n: int) -> Array:
    """Row numbers as an int64 array of shape (n_edges,)."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be row numbers (integers, 1-D); got {show(values)}")
    if array.size and (array.min() < 0 or array.max() >= n):
        bad = array.min() if array.min() < 0 else array.max()
        raise ValueError(f"{name} has {bad}, but rows are numbered 0 to {n - 1}")
    return array.astype(np.int64)
