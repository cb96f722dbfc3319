"""Training objects of one side of a relation, with their features and kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls import _resources
from rankrls._calls import warn
from rankrls._frames import kept_names, shown_names
from rankrls._validation import check_positive, show
from rankrls.core.relations.labels import NO_OFFSETS, FreeOffsets, Observations
from rankrls.core.relations.sides import (
    FEATURELESS,
    KernelSum,
    ProfiledSide,
    Side,
    is_featureless,
    profile_gamma,
    profile_kernel,
)
from rankrls.core.spaces.spaces import Kernel, centre, check_gram, subtract
from rankrls.estimators.ranker import canonical

__all__ = ["Objects", "Others", "check_numbers", "one_matrix", "read_kernels", "stacked_kernels"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Objects:
    """Training objects of one side, and their kernel.

    Attributes
    ----------
    kernel : Kernel or KernelSum
    X : ndarray or CSR of shape (n, d); the kernel matrix if it is precomputed
        Features, or kernel values. Several kernel matrices are stacked horizontally, with shape
        (n, n_kernels n).
    profile : ndarray of shape (n, n), or None
        The profile kernel of the labels, if it is part of the kernel.
    names : ndarray of shape (n,), or None
        Unique names of the objects, strings or integers.
    sees_differences : bool
        Whether a linear kernel may use centred features.
    """

    kernel: Kernel | KernelSum
    X: Any
    profile: Array | None = None
    names: Array | None = None
    sees_differences: bool = False

    @classmethod
    def of(
        cls,
        kernel: Kernel | KernelSum,
        X: Any,
        names: Array | None = None,
        sees_differences: bool = False,
    ) -> Objects:
        """Build training objects, and check a precomputed kernel matrix.

        The kernels of a sum are divided by their mean values k(x, x).
        """
        X = canonical(X, dense=kernel.precomputed)
        if isinstance(kernel, KernelSum):
            made = cls(kernel, X, None, names, sees_differences)
            for block in made._blocks(X):
                check_gram(block)
            return made.weighted(kernel.weights)
        if kernel.precomputed:
            check_gram(X)
        return cls(kernel, X, None, names, sees_differences)

    def weighted(self, weights: Array) -> Objects:
        """Return the objects with other kernel weights; kernels are divided by their mean size."""
        assert isinstance(self.kernel, KernelSum)
        made = replace(self, kernel=replace(self.kernel, weights=weights / self._sizes))
        made._keep_matrices(self)
        return made

    def _keep_matrices(self, other: Objects) -> None:
        """Copy cached matrices that depend neither on weights nor on labels."""
        known = vars(other)
        self.__dict__.update(
            {k: known[k] for k in ("_matrices", "_sizes", "_centred") if k in known}
        )

    def given(self, observations: Observations, free: FreeOffsets) -> Objects:
        """Return the objects with profiles of ``observations`` without the offsets ``free``."""
        if not (isinstance(self.kernel, KernelSum) and self.kernel.profiled):
            return self
        made = replace(self, profile=profile_kernel(observations, free))
        made._keep_matrices(self)
        return made

    def stored(self) -> Objects:
        """Return the objects without cached kernel matrices."""
        return replace(self)

    def _blocks(self, X: Any) -> list[Array]:
        """Split X into the values (n', n) of every precomputed kernel."""
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
            else np.asarray(next(blocks) if kernel.precomputed else self._between(kernel), float)
            for kernel in self.kernel.kernels
        ]

    @cached_property
    def _sizes(self) -> Array:
        """Mean k(x, x) of every kernel of a sum, or 1 if it is not positive."""
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
        """Weights of the kernels of a sum, as given to `weighted`."""
        return self.kernel.weights * self._sizes if isinstance(self.kernel, KernelSum) else None

    def __len__(self) -> int:
        return self.X.shape[0]

    def gram(self) -> Array:
        """Compute the kernel matrix of shape (n, n), in float64, without profiles."""
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
        return self._between(self.kernel).astype(np.float64, copy=False)

    def _between(self, kernel: Kernel, X: Any = None) -> Array:
        """Compute kernel values between X (default: training objects) and training objects."""
        own = self._rows_for(kernel)
        return kernel(own) if X is None else kernel(self._shifted(kernel, X), own)

    def _product(self, kernel: Kernel, X: Any, coefficients: Array) -> Array:
        """Multiply the values of `_between` by coefficients (n, k)."""
        return kernel.product(self._shifted(kernel, X), self._rows_for(kernel), coefficients)

    @property
    def features(self) -> Any:
        """The features of a linear kernel."""
        return self.X if isinstance(self.kernel, KernelSum) else self._rows_for(self.kernel)

    def _rows_for(self, kernel: Kernel) -> Any:
        return self._centred[0] if self._centres(kernel) else self.X

    def _shifted(self, kernel: Kernel, X: Any) -> Any:
        return subtract(X, self._centred[1]) if self._centres(kernel) else X

    def _centres(self, kernel: Kernel) -> bool:
        # Kernels of a sum are divided by their mean values. Centring would change these.
        alone = self.sees_differences and not isinstance(self.kernel, KernelSum)
        return kernel.shift_invariant or (kernel.linear and alone)

    @cached_property
    def _centred(self) -> tuple[Any, Any]:
        """Centred features and their means, for kernels that depend on differences only.

        Large means of the features then cost no digits.
        """
        return centre(self.X)

    def inner_products(self, S: Array) -> Array:
        """Compute ⟨S, K⟩ for every kernel matrix of a sum, divided by its size; no profiles."""
        assert isinstance(self.kernel, KernelSum)
        products = []
        for kernel, K in zip(self.kernel.kernels, self._matrices, strict=True):
            if K is not None:
                products.append(float(np.einsum("ij,ij->", S, K)))
            else:
                products.append(float(S.sum() if kernel.metric == "constant" else np.trace(S)))
        return np.array(products) / self._sizes

    def side(self, free: FreeOffsets = NO_OFFSETS) -> Side:
        """Return the objects as a side of a relation, with a lazily computed kernel matrix.

        ``free`` are the offsets subtracted from the labels of profiles.
        """
        X, n = self.features, len(self)
        if self.kernel.linear and not sparse.issparse(X) and 8 * X.shape[1] <= n:
            return Side(self._required_gram, X)  # the kernel matrix is rarely needed
        self._require_gram()
        if isinstance(self.kernel, KernelSum):
            K = self.gram()
            if self.profile is not None:
                return ProfiledSide(K, self.kernel.profiles, self.profile, free)
            return Side(K, parts=lambda: self.parts(self.others(self.X)))
        if not self.kernel.linear:
            return Side(self.gram())
        if not sparse.issparse(X):
            return Side(self.gram, X)
        # A dense copy is no larger than the kernel matrix, and its columns keep their digits.
        dense = X.toarray() if X.shape[1] <= X.shape[0] else None
        return Side(self.gram, dense, multiplies=False) if dense is not None else Side(self.gram())

    def _require_gram(self) -> None:
        n, advice = len(self), "use fewer objects: all n × n kernel values are needed"
        _resources.require(f"the kernel matrix of {n:,} objects", n, n, copies=3, advice=advice)

    def _required_gram(self) -> Array:
        self._require_gram()
        return self.gram()

    def require_columns(self, X: Any, name: str) -> None:
        """Raise if X has not the columns of several kernel matrices side by side."""
        k = self.kernel.n_blocks if isinstance(self.kernel, KernelSum) else 0
        if k > 1 and getattr(X, "ndim", 0) == 2 and X.shape[1] != self.X.shape[1]:
            raise ValueError(
                f"{name} must be a list of {k} kernel matrices with {len(self)} columns each, one "
                "for each precomputed kernel"
            )

    def others(self, X: Any, names: Any = None, name: str = "X") -> Others:
        """Wrap other objects with checked features of shape (n', d) for the kernel of this side.

        ``names`` are the names of the objects, and ``name`` is the name of the argument.
        """
        return Others(self, canonical(X, dense=self.kernel.precomputed), names, name)

    def equal(self) -> list[Array]:
        """Find groups of objects with equal features (kernel values, if precomputed)."""
        codes = _codes(self.X)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes))
        return [group for group in np.split(order, ends[:-1]) if len(group) > 1]

    def known(self, X: Any, names: Any = None, name: str = "X") -> sparse.csr_array:
        """Match other objects with training objects; return an indicator matrix (n', n).

        Objects with equal features (equal kernel values, if these are precomputed) are the same.
        Among equal training objects, the one with the same name is used. Without names, the row is
        divided equally among them. Rows of new objects are zero. If X contains all training
        objects in their order, each one matches itself.
        """
        n = len(self)
        numbers = self._numbers(names)
        in_order = numbers is None or not (numbers >= 0).any()
        if numbers is not None and len(numbers) == n:
            in_order |= bool((numbers == np.arange(n)).all())
        if in_order and (X is self.X or (X.shape == self.X.shape and _equal(X, self.X))):
            return sparse.csr_array(sparse.identity(n, format="csr"))
        codes = _codes(self.X, X)
        mine, others = codes[:n], codes[n:]
        order = np.argsort(mine, kind="stable")
        first = np.searchsorted(mine[order], others, "left")
        count = np.searchsorted(mine[order], others, "right") - first
        named = np.zeros(len(others), dtype=bool)
        if numbers is not None:
            named = (numbers >= 0) & (mine[numbers] == others)
            self._warn_of_other_features(np.flatnonzero((numbers >= 0) & ~named), names, name)
            count[named] = 1
        if self.names is not None and (count > 1).any():
            warn(
                f"row {int(np.argmax(count > 1))} of {name} has the features of several training "
                "objects, and gets the mean of what was learned of each: pass a data frame whose "
                "index names the objects as in fit"
            )
        starts = np.concatenate([[0], np.cumsum(count)])
        place = order[np.arange(starts[-1]) - np.repeat(starts[:-1] - first, count)]
        if numbers is not None:
            place[starts[:-1][named]] = numbers[named]
        data = np.repeat(1.0 / np.maximum(count, 1), count)
        return sparse.csr_array((data, place, starts), shape=(len(others), n))

    def _numbers(self, names: Any) -> Array | None:
        """Find indices of training objects by name, −1 for unknown names; None without names."""
        if names is None or self.names is None:
            return None
        numbers = {name: number for number, name in enumerate(self.names.tolist())}
        return np.array([numbers.get(name, -1) for name in names.tolist()], dtype=np.int64)

    def _warn_of_other_features(self, rows: Array, names: Any, name: str) -> None:
        if not len(rows) or not isinstance(names[rows[0]], str):  # integers may number any rows
            return
        shown = shown_names(names[rows])
        warn(
            f"{shown} of {name} {'has' if len(rows) == 1 else 'have'} the name of a training "
            "object and other features than in fit: taken as new, without what was learned of "
            "this object itself"
        )

    def values(self, X: Others, *, explicit: bool = False) -> Array:
        """Compute kernel values (n', n) of other objects, or their features if ``explicit``."""
        if explicit:
            return X.X.toarray() if sparse.issparse(X.X) else X.X
        if isinstance(self.kernel, KernelSum):
            return self._sum_product(X, None)
        return self._between(self.kernel, X.X)

    def parts(self, X: Others) -> list[Array]:
        """Compute weighted values (n', n) with other objects for every kernel of a sum."""
        assert isinstance(self.kernel, KernelSum)
        made = []
        for one in np.eye(len(self.kernel.kernels)):
            alone = replace(self, kernel=replace(self.kernel, weights=self.kernel.weights * one))
            alone._keep_matrices(self)
            made.append(alone._sum_product(X, None))
        return made

    def product(self, X: Others, coefficients: Array, *, explicit: bool = False) -> Array:
        """Multiply kernel values (features, if ``explicit``) by coefficients; shape (n', k)."""
        if explicit:
            return X.X @ coefficients
        if isinstance(self.kernel, KernelSum):
            return self._sum_product(X, coefficients)
        return self._product(self.kernel, X.X, coefficients)

    def _sum_product(self, others: Others, coefficients: Array | None) -> Array:
        """Compute values of a sum of kernels, times coefficients (n, k) unless None."""
        assert isinstance(self.kernel, KernelSum)
        n, X = len(self), others.X
        blocks = iter(self._blocks(X))
        known = others.known if any(map(is_featureless, self.kernel.kernels)) else None
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
                out += weight * (self._between(kernel, X) if block is None else block)
            elif block is not None:
                out += weight * (block @ coefficients)
            else:
                out += weight * self._product(kernel, X, coefficients)
        return out

    def paired(self, X: Others, Y: Others | None = None) -> Array:
        """Compute k(x, y) row by row (y = x if Y is None), shape (n',).

        Precomputed kernels have these values for training objects only. The profile of a new
        object is unknown.
        """
        if isinstance(self.kernel, Kernel) and not self.kernel.precomputed:
            return self.kernel.paired(X.X, None if Y is None else Y.X)
        known = X.known
        other = known if Y is None else Y.known
        new = np.asarray(known.sum(axis=1)).ravel() == 0.0
        if self.kernel.precomputed and new.any():
            raise ValueError(
                "uncertainties need k(x, x), which kernel='precomputed' does not tell for new "
                f"objects: row {int(np.flatnonzero(new)[0])} of {X.name} is none of the training "
                "objects"
            )
        if isinstance(self.kernel, Kernel):
            return _entries(known, other, np.asarray(self.X, dtype=float))
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
                values = _entries(known, other, profile)
                out += weight * (np.where(new, 1.0, values) if Y is None else values)
            elif kernel.precomputed:
                out += weight * _entries(known, other, next(blocks))
            else:
                out += weight * kernel.paired(X.X, None if Y is None else Y.X)
        return out

    def with_others(self, others: Others) -> Objects:
        """Append other objects, as in a new fit, without profiles."""
        if self.kernel.precomputed:  # values with these objects, and then among the others
            n = len(self)
            X = np.block([[self.X, others.X[:, :n].T], [others.X[:, :n], others.X[:, n:]]])
        else:
            X = (sparse.vstack if sparse.issparse(self.X) else np.vstack)([self.X, others.X])
        names = None
        if self.names is not None and others.names is not None:
            new = kept_names(others.names)
            if new is not None and new.dtype == self.names.dtype:
                names = np.concatenate([self.names, new])
        return self.refitted(X, names)

    def only(self, kept: Array) -> Objects:
        """Select objects by ascending indices, as in a new fit, without profiles."""
        names = None if self.names is None else self.names[kept]
        return self.refitted(self.part(kept, kept), names)

    def refitted(self, X: Any, names: Array | None) -> Objects:
        """Return other objects with the same kernels, divided by their new mean values."""
        X = canonical(X, dense=self.kernel.precomputed)
        made = Objects(self.kernel, X, None, names, self.sees_differences)
        weights = self.weights
        return made if weights is None else made.weighted(weights)

    def part(self, chosen: Array, train: Array) -> Any:
        """Return features, or kernel values with ``train``, of the objects ``chosen``."""
        X = self.X[chosen]
        if isinstance(self.kernel, KernelSum) and self.kernel.precomputed:
            return np.hstack([block[:, train] for block in self._blocks(X)])
        return X[:, train] if self.kernel.precomputed else X


def _entries(first: Any, second: Any, K: Array) -> Array:
    """Compute entries of K row by row for two indicator matrices of `Objects.known`."""
    return np.asarray(second.multiply(first @ K).sum(axis=1)).ravel()


class Others:
    """Objects to predict for, with their features and matching training objects.

    Parameters
    ----------
    objects : Objects
        The training objects.
    X : ndarray or CSR of shape (n', d)
    names : pandas Index of length n', or None
    name : str
        Name of X in messages.
    """

    _find: Callable[[], sparse.csr_array]

    def __init__(self, objects: Objects, X: Any, names: Any, name: str) -> None:
        self.X, self.names, self.name = X, names, name
        self._find = lambda: objects.known(X, names, name)

    @cached_property
    def known(self) -> sparse.csr_array:
        """See `Objects.known`."""
        return self._find()

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of X."""
        return self.X.shape

    def __getitem__(self, rows: Array) -> Others:
        part = object.__new__(Others)
        part.X, part.name = self.X[rows], self.name
        part.names = None if self.names is None else self.names[rows]
        part._find = lambda: self.known[rows]
        return part


def read_kernels(
    kernel: Any, weights: Any, params: Any, name: str, **common: Any
) -> Kernel | KernelSum:
    """Read the kernel, or the sum of kernels, from the parameters of an estimator.

    Parameters
    ----------
    kernel : str, callable or list of these
    weights : array-like of shape (n_kernels,) or None
        Weights of the kernels. None: equal weights that sum to one.
    params : dict, list of dict or None
        Parameters of the kernel, or of every kernel of a list.
    name : str
        Name of the parameter that contains ``kernel``, for messages.
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
    """Stack a list of precomputed kernel matrices horizontally; return other X unchanged."""
    n_blocks = kernel.n_blocks if isinstance(kernel, KernelSum) else int(kernel.precomputed)
    listed = isinstance(X, list | tuple) and len(X) > 0 and np.ndim(X[0]) == 2
    if not n_blocks or not (listed or getattr(X, "ndim", 2) == 3):
        return X
    if len(X) != n_blocks:
        raise ValueError(f"{name} has {len(X)} kernel matrices for {n_blocks} precomputed kernels")
    if n_blocks == 1:
        return X[0]
    parts = [np.asarray(part) for part in X]
    if len({part.shape for part in parts}) > 1 or parts[0].ndim != 2:
        shapes = ", ".join(str(part.shape) for part in parts)
        raise ValueError(f"the kernel matrices of {name} must have one shape; got {shapes}")
    return np.hstack(parts)


def one_matrix(kernel: Kernel | KernelSum) -> bool:
    """Whether X is a single precomputed kernel matrix."""
    return kernel.precomputed and (not isinstance(kernel, KernelSum) or kernel.n_blocks == 1)


def _equal(X: Any, other: Any) -> bool:
    if sparse.issparse(X) or sparse.issparse(other):
        return (sparse.csr_array(X) != sparse.csr_array(other)).nnz == 0
    return np.array_equal(X, other)


def _codes(*parts: Any) -> Array:
    """Return integer codes of shape (n,) that are equal for equal rows of all parts."""
    if any(map(sparse.issparse, parts)):
        # Sparse rows are compared by columns and values. Products with integers would depend on
        # the order of summation, because of rounding.
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
    """Check row indices; return an int64 array of shape (n_edges,)."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be row numbers (integers, 1-D); got {show(values)}")
    if array.size and (array.min() < 0 or array.max() >= n):
        bad = array.min() if array.min() < 0 else array.max()
        raise ValueError(f"{name} has {bad}, but rows are numbered 0 to {n - 1}")
    return array.astype(np.int64)
