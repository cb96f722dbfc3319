"""Objects of one side of a relation, known and new: features, names and kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls import _resources
from rankrls._calls import warn
from rankrls._frames import (
    column_names,
    columns_in_order,
    kept_names,
    kernels_in_order,
    names_anything,
    object_names,
    shown_names,
    square_in_order,
    warn_about_columns,
)
from rankrls._validation import check_positive, show
from rankrls.core.relations.labels import NO_OFFSETS, FreeOffsets, Observations
from rankrls.core.relations.sides import (
    FEATURELESS,
    KernelSum,
    Side,
    is_featureless,
    profile_gamma,
    profile_kernel,
    profiled_side,
)
from rankrls.core.spaces.products import centre, subtract
from rankrls.core.spaces.spaces import Kernel, check_gram, first_equal
from rankrls.estimators.ranker import canonical

__all__ = ["NewObjects", "Objects", "in_order", "read_kernels"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Objects:
    """Training objects of one side, and their kernel, as a model stores them."""

    kernel: Kernel | KernelSum
    X: Any  # features (n, d), dense or CSR, or kernel matrices (n, n) side by side
    profile: Array | None = None  # the profile kernel of the labels (n, n), if it is in use
    names: Array | None = None  # unique strings or integers (n,)
    sees_differences: bool = False  # a linear kernel may use centred features

    @classmethod
    def of(
        cls,
        kernel: Kernel | KernelSum,
        X: Any,
        names: Any = None,
        sees_differences: bool = False,
        *,
        columns: Any = None,
        warns: bool = True,
    ) -> Objects:
        """Build training objects from checked X with names of its rows and columns."""
        X = canonical(X, dense=kernel.precomputed)
        made = cls(kernel, X, None, kept_names(names), sees_differences)
        for _, _, block in made._terms(X):
            if block is not None:
                check_gram(block)
        if warns and not (kernel.precomputed or kernel.featureless):
            warn_about_columns(X, names=columns, scales=isinstance(kernel.metric, str))
        return made.weighted(kernel.weights) if isinstance(kernel, KernelSum) else made

    def __len__(self) -> int:
        return self.X.shape[0]

    def _terms(self, X: Any) -> Iterator[tuple[float, Kernel, Array | None]]:
        """Weights and kernels of the sum, with the values in X (n', …) of precomputed ones."""
        if isinstance(self.kernel, Kernel):
            yield 1.0, self.kernel, X if self.kernel.precomputed else None
            return
        n, k, start = len(self), self.kernel.n_blocks, 0
        if k and X.shape[1] != k * n:
            raise ValueError(
                f"X has {X.shape[1]} columns for {k} precomputed kernels of {n} training objects: "
                f"pass a list of {k} matrices with {n} columns each"
            )
        for weight, kernel in self.kernel:
            block = X[:, start : start + n] if kernel.precomputed else None
            start += n * kernel.precomputed
            yield weight, kernel, block

    def weighted(self, weights: Array) -> Objects:
        """Return the objects with other kernel weights; kernels are divided by their mean size."""
        assert isinstance(self.kernel, KernelSum)
        return self._changed(kernel=replace(self.kernel, weights=weights / self._sizes))

    def given(self, observations: Observations, free: FreeOffsets) -> Objects:
        """Return the objects with profiles of ``observations`` without the offsets ``free``."""
        if not self.kernel.profiled:
            return self
        return self._changed(profile=profile_kernel(observations, free))

    def _changed(self, **changes: Any) -> Objects:
        """Return a copy with cached matrices, which depend neither on weights nor on labels."""
        made, cached = replace(self, **changes), vars(self)
        vars(made).update(
            {name: cached[name] for name in ("_matrices", "_sizes", "_centred") if name in cached}
        )
        return made

    # ------------------------------------------------------------------ kernels of known objects

    @cached_property
    def _matrices(self) -> list[Any]:
        """The kernel matrices, (n, n), in float64; None for profiles."""
        n, made = len(self), []
        for _, kernel, block in self._terms(self.X):
            K: Any = None
            if kernel.metric == "identity":
                K = np.eye(n)
            elif kernel.metric == "constant":
                K = np.ones((n, n))
            elif kernel.metric != "profile":
                block = self._between(kernel) if block is None else block
                K = np.asarray(block, dtype=np.float64)
            made.append(K)
        return made

    @cached_property
    def _sizes(self) -> Array:
        """Mean k(x, x) of every kernel, or 1 if it is not positive."""
        sizes = []
        for _, kernel, block in self._terms(self.X):
            if is_featureless(kernel):
                sizes.append(1.0)
            else:
                diagonal = kernel.paired(self.X) if block is None else block.diagonal()
                sizes.append(float(diagonal.mean()))
        return np.where(np.array(sizes) > 0, sizes, 1.0)

    @property
    def weights(self) -> Array | None:
        """Weights of the kernels of a sum, as given to `weighted`."""
        return self.kernel.weights * self._sizes if isinstance(self.kernel, KernelSum) else None

    def gram(self) -> Array:
        """Compute the kernel matrix of shape (n, n), in float64, without profiles."""
        if not isinstance(self.kernel, KernelSum):
            return self._matrices[0]
        K = np.zeros((len(self), len(self)))
        for (weight, _), matrix in zip(self.kernel, self._matrices, strict=True):
            if matrix is not None:
                K += weight * matrix
        return K

    def inner_products(self, S: Array) -> Array:
        """Compute ⟨S, K⟩ for every kernel matrix of a sum without profiles, divided by its size."""
        return np.array([np.vdot(S, K) for K in self._matrices]) / self._sizes

    def _shifted(self, kernel: Kernel, X: Any = None) -> Any:
        """X (default: training objects), minus means if the kernel depends on differences only."""
        # The kernels of a sum are divided by mean values, which centring a linear one would change.
        alone = self.sees_differences and not isinstance(self.kernel, KernelSum)
        if not (kernel.shift_invariant or (kernel.linear and alone)):
            return self.X if X is None else X
        return self._centred[0] if X is None else subtract(X, self._centred[1])

    @cached_property
    def _centred(self) -> tuple[Any, Any]:
        return centre(self.X)

    def _between(self, kernel: Kernel, X: Any = None) -> Array:
        """Compute kernel values between X (default: training objects) and training objects."""
        own = self._shifted(kernel)
        return kernel(own) if X is None else kernel(self._shifted(kernel, X), own)

    def side(self, free: FreeOffsets = NO_OFFSETS) -> Side:
        """Return the objects as a side of a relation; profiles are without the offsets ``free``."""
        kernel, n, X = self.kernel, len(self), self.X
        X = self._shifted(kernel) if isinstance(kernel, Kernel) and kernel.linear else X
        thin = kernel.linear and not sparse.issparse(X) and 8 * X.shape[1] <= n

        def require() -> None:
            advice = "use fewer objects: all n × n kernel values are needed"
            _resources.require(f"the kernel matrix of {n:,} objects", n, n, copies=3, advice=advice)

        def gram() -> Array:
            require()
            return self.gram()

        if thin:  # the kernel matrix is rarely needed
            return Side(gram, X)
        require()
        if isinstance(kernel, KernelSum):
            if self.profile is not None:
                return profiled_side(self.gram(), kernel, self.profile, free)
            return Side(self.gram(), parts=lambda: list(self.parts(self.new(self.X))))
        if not kernel.linear or (sparse.issparse(X) and X.shape[1] > n):
            return Side(self.gram())
        # A dense copy is no larger than the kernel matrix, and its columns keep their digits.
        return Side(gram, X.toarray() if sparse.issparse(X) else X)

    # ------------------------------------------------------------------ new objects

    def new(self, X: Any, names: Any = None, name: str = "X", among: Any = None) -> NewObjects:
        """Wrap other objects with checked features of shape (n', d) for the kernel of this side."""
        return NewObjects(
            self, canonical(X, dense=self.kernel.precomputed), names, name, among=among
        )

    def parts(self, new: NewObjects, coefficients: Array | None = None) -> Iterator[Array]:
        """Weighted values (n', n) of every kernel of a sum, times coefficients (n, k) if given."""
        m, n = new.shape[0], len(self)
        for weight, kernel, block in self._terms(new.X):
            if kernel.metric == "constant" or weight == 0.0:
                row = np.ones(n) if coefficients is None else coefficients.sum(axis=0)
                part: Any = np.tile(row, (m, 1))
            elif is_featureless(kernel):
                part = new.known
                if kernel.metric == "profile":
                    assert self.profile is not None
                    part = part @ self.profile ** profile_gamma(kernel)
                part = part if coefficients is None else part @ coefficients
                part = part.toarray() if sparse.issparse(part) else part
            elif block is not None:
                part = block if coefficients is None else block @ coefficients
            elif coefficients is None:
                part = self._between(kernel, new.X)
            else:
                own = self._shifted(kernel)
                part = kernel.product(self._shifted(kernel, new.X), own, coefficients)
            yield part if weight == 1.0 else weight * part

    def values(
        self, new: NewObjects, coefficients: Array | None = None, *, explicit: bool = False
    ) -> Array:
        """Kernel values (n', n), or features if ``explicit``, times coefficients if given."""
        if not explicit:
            return reduce(np.add, self.parts(new, coefficients))
        if coefficients is not None:
            return new.X @ coefficients
        return new.X.toarray() if sparse.issparse(new.X) else new.X

    def paired(self, new: NewObjects, other: NewObjects | None = None) -> Array:
        """Compute k(x, y) row by row (y = x if ``other`` is None), shape (n',)."""
        out = np.zeros(new.shape[0])
        for weight, kernel, block in self._terms(new.X):
            out += weight * self._paired(kernel, block, new, other)
        return out

    def _paired(
        self, kernel: Kernel, block: Array | None, new: NewObjects, other: NewObjects | None
    ) -> Any:
        if kernel.metric == "constant" or (kernel.metric == "identity" and other is None):
            return 1.0
        if block is None and not is_featureless(kernel):
            return kernel.paired(new.X, None if other is None else other.X)
        second = new if other is None else other
        if kernel.metric == "identity":  # 0 for two objects that differ
            return np.asarray(new.known.multiply(second.known).sum(axis=1)).ravel()
        if block is None:
            assert self.profile is not None
            products = new.known @ self.profile ** profile_gamma(kernel)
            values = np.asarray(second.known.multiply(products).sum(axis=1)).ravel()
            return np.where(new.unknown, 1.0, values) if other is None else values
        # Values of new objects with known ones are given, and possibly those among new ones.
        values = np.asarray(second.known.multiply(block).sum(axis=1)).ravel()
        missing = second.unknown
        if other is None and new.among is not None:
            values, missing = np.where(missing, new.among.diagonal(), values), np.zeros(1, bool)
        elif other is not None and self.kernel.n_blocks == 1:
            swapped = np.asarray(new.known.multiply(other.X).sum(axis=1)).ravel()
            values, missing = np.where(missing, swapped, values), missing & new.unknown
        if missing.any():
            raise ValueError(
                "uncertainties need k(x, x), which kernel='precomputed' does not tell for new "
                f"objects: row {int(np.argmax(missing))} of {second.name} is none of the training "
                "objects. Append the kernel values among the new objects as further columns"
            )
        return values

    def equal(self) -> list[Array]:
        """Find groups of objects with equal features (kernel values, if precomputed)."""
        codes, counts = np.unique(_codes(self.X), return_inverse=True, return_counts=True)[1:]
        groups = np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1])
        return [group for group in groups if len(group) > 1]

    def known(self, X: Any, names: Any = None, name: str = "X") -> sparse.csr_array:
        """Match others with training objects by features, then names: indicators (n', n)."""
        n = len(self)
        numbers: Array | None = None  # of training objects by name, −1 for unknown names
        if names is not None and self.names is not None:
            place_of = {name: number for number, name in enumerate(self.names.tolist())}
            numbers = np.array([place_of.get(name, -1) for name in names.tolist()], dtype=np.int64)
        in_order = numbers is None or not (numbers >= 0).any()
        if numbers is not None and len(numbers) == n:
            in_order |= bool((numbers == np.arange(n)).all())
        codes = None if X is self.X else _codes(self.X, X)
        if in_order and (codes is None or np.array_equal(codes[:n], codes[n:])):
            return sparse.csr_array(sparse.identity(n, format="csr"))
        codes = _codes(self.X, X) if codes is None else codes
        mine, others = codes[:n], codes[n:]
        order = np.argsort(mine, kind="stable")
        first = np.searchsorted(mine[order], others, "left")
        count = np.searchsorted(mine[order], others, "right") - first
        named = np.zeros(len(others), dtype=bool)
        if numbers is not None:
            named = (numbers >= 0) & (mine[numbers] == others)
            other = np.flatnonzero((numbers >= 0) & ~named)
            if len(other) and isinstance(names[other[0]], str):  # integers may number any rows
                warn(
                    f"{shown_names(names[other])} of {name} {'has' if len(other) == 1 else 'have'} "
                    "the name of a training object and other features than in fit: taken as new, "
                    "without what was learned of this object itself"
                )
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

    # ------------------------------------------------------------------ other training objects

    def with_new(self, new: NewObjects) -> Objects:
        """Append new objects, as in a new fit, without profiles."""
        if self.kernel.precomputed:
            X: Any = np.block([[self.X, new.X.T], [new.X, new.among]])
        else:
            X = (sparse.vstack if sparse.issparse(self.X) else np.vstack)([self.X, new.X])
        names = None
        if self.names is not None and new.names is not None:
            added = kept_names(new.names)
            if added is not None and added.dtype == self.names.dtype:
                names = np.concatenate([self.names, added])
        return self.refitted(X, names)

    def only(self, kept: Array) -> Objects:
        """Select objects by ascending indices, as in a new fit, without profiles."""
        names = None if self.names is None else self.names[kept]
        return self.refitted(self.part(kept, kept), names)

    def refitted(self, X: Any, names: Array | None) -> Objects:
        """Return other objects with the same kernels, divided by their new mean values."""
        X = canonical(X, dense=self.kernel.precomputed)
        made = Objects(self.kernel, X, None, names, self.sees_differences)
        return made if self.weights is None else made.weighted(self.weights)

    def part(self, chosen: Array, train: Array) -> Any:
        """Return features, or kernel values with ``train``, of the objects ``chosen``."""
        X = self.X[chosen]
        if not self.kernel.precomputed:
            return X
        return np.hstack([block[:, train] for *_, block in self._terms(X) if block is not None])


class NewObjects:
    """Objects to predict for: features, names, and precomputed kernel values ``among`` them."""

    def __init__(
        self,
        objects: Objects,
        X: Any,
        names: Any,
        name: str,
        *,
        among: Array | None = None,
        of: NewObjects | None = None,
        rows: Any = None,
    ) -> None:
        self.objects, self.X, self.names, self.name = objects, X, names, name
        self.among, self._of, self._rows = among, of, rows

    @cached_property
    def known(self) -> sparse.csr_array:
        """Indicator matrix of matching training objects, see `Objects.known`."""
        if self._of is not None:
            return self._of.known[self._rows]
        return self.objects.known(self.X, self.names, self.name)

    @property
    def unknown(self) -> Array:
        """Mask of the objects that are none of the training objects, shape (n',)."""
        return np.diff(self.known.indptr) == 0

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of X."""
        return self.X.shape

    def __getitem__(self, rows: Array) -> NewObjects:
        names = None if self.names is None else self.names[rows]
        among = None if self.among is None else self.among[np.ix_(rows, rows)]
        return NewObjects(
            self.objects, self.X[rows], names, self.name, among=among, of=self, rows=rows
        )


# ---------------------------------------------------------------------- reading


def read_kernels(
    kernel: Any, weights: Any, params: Any, name: str, *, gamma: Any, **common: Any
) -> Kernel | KernelSum:
    """Read the kernel, or the sum of kernels, from parameters whose names begin with ``name``."""
    several = isinstance(kernel, list | tuple)
    kernels = list(kernel) if several else [kernel]
    if several and not kernels:
        raise ValueError(f"{name} is an empty list: give at least one kernel")
    featureless = [isinstance(one, str) and one in FEATURELESS for one in kernels]
    if not several and not featureless[0]:
        if weights is not None:
            raise ValueError(f"{name}_weights are those of several kernels: {name} must be a list")
        return Kernel.from_options(kernel, kernel_params=params, gamma=gamma, **common)
    if params is None or isinstance(params, dict):  # those of all kernels that take some
        params = [None if several and known else params for known in featureless]
    if not isinstance(params, list | tuple) or len(params) != len(kernels):
        raise ValueError(f"{name}_params must be a dict, or a list of {len(kernels)} dicts")
    made = []
    for one, own, known in zip(kernels, params, featureless, strict=True):
        if not known:
            width = None if own and "gamma" in own else gamma
            made.append(Kernel.from_options(one, kernel_params=own, gamma=width, **common))
            continue
        unknown = sorted(set(own or ()) - ({"gamma"} if one == "profile" else set()))
        if unknown:
            raise ValueError(f"{name}_params has {unknown[0]!r}, which {one!r} does not take")
        given = {key: value for key, value in (own or {}).items() if value is not None}
        made.append(Kernel(one, {key: check_positive(key, value) for key, value in given.items()}))
    mixed = {one.precomputed for one in made if not is_featureless(one)}
    if len(mixed) == 2:
        raise ValueError(
            f"{name} has 'precomputed' beside kernels of features: compute all kernel matrices, "
            "and pass a list of them"
        )
    used = np.full(len(made), 1.0 / len(made))
    if weights is not None:
        used = np.asarray(weights, dtype=np.float64)
        if used.shape != (len(made),) or not (np.isfinite(used) & (used >= 0)).all():
            raise ValueError(
                f"{name}_weights must be {len(made)} numbers >= 0, one for each kernel; got "
                f"{show(weights)}"
            )
        if not used.any():
            raise ValueError(f"{name}_weights are all zero")
    return KernelSum(tuple(made), used)


def in_order(
    kernel: Kernel | KernelSum, X: Any, name: str, objects: Objects | None = None
) -> tuple[Any, Any]:
    """Align (stacked) kernel matrices with ``objects``, or their own rows; also name the rows."""
    k = kernel.n_blocks
    square, known = objects is None, None if objects is None else objects.names
    listed = isinstance(X, list | tuple)
    if k == 1 and column_names(X) is not None:
        X = square_in_order(X, name) if square else columns_in_order(X, known, name)
    elif k > 1 and listed:
        X = kernels_in_order(X, name, square=square, known=known)
        found = (object_names(part, precomputed=square) for part in X)
        names = next(filter(names_anything, found), None)
    if not (k > 1 and listed):
        names = object_names(X, precomputed=square and k > 0)
    names = names if square or names_anything(names) else None
    stacked = listed and len(X) > 0 and np.ndim(X[0]) == 2
    if not k or not (stacked or getattr(X, "ndim", 2) == 3):
        width = X.shape[1] if getattr(X, "ndim", 0) == 2 else None
        if k > 1 and objects is not None and width not in (None, objects.X.shape[1]):
            raise ValueError(
                f"{name} must be a list of {k} kernel matrices with {len(objects)} columns "
                "each, one for each precomputed kernel"
            )
        return X, names
    if len(X) != k:
        raise ValueError(f"{name} has {len(X)} kernel matrices for {k} precomputed kernels")
    parts = [np.asarray(part) for part in X]
    if len({part.shape for part in parts}) > 1:
        shapes = ", ".join(str(part.shape) for part in parts)
        raise ValueError(f"the kernel matrices of {name} must have one shape; got {shapes}")
    return (X[0] if k == 1 else np.hstack(parts)), names


def _codes(*parts: Any) -> Array:
    """Return integer codes of shape (n,) that are equal for equal rows of all parts."""
    if any(map(sparse.issparse, parts)):
        return first_equal(sparse.vstack([sparse.csr_array(part) for part in parts], format="csr"))
    return first_equal(np.vstack([np.asarray(part, dtype=parts[0].dtype) for part in parts]))
