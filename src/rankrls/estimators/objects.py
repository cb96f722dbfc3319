"""Objects of one side of a relation, known and new: features and kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls import _resources
from rankrls._frames import (
    column_names,
    columns_in_order,
    in_order,
    kept_names,
    names_anything,
    row_names,
    square_in_order,
)
from rankrls._relation_labels import FreeOffsets, Observations
from rankrls._validation import check_positive, show
from rankrls.core.relations.sides import Side, profile_kernel
from rankrls.core.spaces.products import centre, subtract
from rankrls.core.spaces.spaces import Kernel, check_gram, first_equal
from rankrls.estimators.ranker import canonical

__all__ = ["KernelSum", "NewObjects", "Objects", "read_kernels", "read_objects"]

Array = NDArray[Any]

#: What does not depend on the weights of kernels and on labels.
CACHED = ("_matrices", "_sizes", "_centred")
#: Kernels that do not use features.
FEATURELESS = ("identity", "profile", "constant")


@dataclass(frozen=True)
class KernelSum:
    """Σ w k(x, x') over kernels of the same objects, with weights w ≥ 0."""

    kernels: tuple[Kernel, ...]
    weights: Array
    scaled: bool = True  # kernels are divided by their mean k(x, x), unless there is only one
    metric: Any = field(init=False)  # of all kernels, or that of the only one
    linear: bool = field(init=False)  # the plain inner product
    n_blocks: int = field(init=False)  # precomputed kernel matrices, which X has side by side
    precomputed: bool = field(init=False)
    profiled: bool = field(init=False)  # a kernel is computed from labels
    featureless: bool = field(init=False)  # no kernel uses features
    blind: bool = field(init=False)  # and all are zero for objects without labels

    def __post_init__(self) -> None:
        metrics = [kernel.metric for kernel in self.kernels]
        names = [metric if isinstance(metric, str) else "" for metric in metrics]
        vars(self).update(
            metric=metrics if self.scaled else metrics[0],
            linear=not self.scaled and names[0] == "linear",
            n_blocks=names.count("precomputed"),
            precomputed="precomputed" in names,
            profiled="profile" in names,
            featureless=set(names) <= set(FEATURELESS),
            blind=set(names) <= {"identity", "profile"},
        )

    def __iter__(self) -> Any:
        """Iterate over pairs of a weight and a kernel."""
        return zip(self.weights.tolist(), self.kernels, strict=True)


@dataclass(frozen=True)
class Objects:
    """Training objects of one side, and their kernel, as a model stores them."""

    kernel: KernelSum
    X: Any  # features (n, d), dense or CSR, or kernel matrices (n, n) side by side
    profile: Array | None = None  # the profile kernel of the labels (n, n), if it is in use
    names: Array | None = None  # those of the columns of a kernel matrix, strings or integers (n,)
    sees_differences: bool = False  # a linear kernel may use centred features

    @classmethod
    def of(
        cls, kernel: KernelSum, X: Any, names: Any = None, sees_differences: bool = False
    ) -> Objects:
        """Build training objects from checked X with the names of its rows."""
        X = canonical(X, dense=kernel.precomputed)
        names = kept_names(names) if kernel.precomputed else None
        made = cls(kernel, X, None, names, sees_differences)
        for _, _, block in made._terms(X) if kernel.precomputed else ():
            if block is not None:
                check_gram(block)
        return made.weighted(kernel.weights) if kernel.scaled else made

    def __len__(self) -> int:
        return self.X.shape[0]

    def _terms(self, X: Any) -> Iterator[tuple[float, Kernel, Array | None]]:
        """Weights and kernels of the sum, with the values in X (n', …) of precomputed ones."""
        n, k, start = len(self), self.kernel.n_blocks, 0
        if k > 1 and X.shape[1] != k * n:
            raise ValueError(
                f"X has {X.shape[1]} columns for {k} precomputed kernels of {n} training objects: "
                f"pass a list of {k} matrices with {n} columns each"
            )
        for weight, kernel in self.kernel:
            block = X[:, start : start + X.shape[1] // k] if kernel.precomputed else None
            start += n * kernel.precomputed
            yield weight, kernel, block

    def weighted(self, weights: Array) -> Objects:
        """Return the objects with other kernel weights; kernels are divided by their mean size."""
        return self._changed(kernel=replace(self.kernel, weights=weights / self._sizes))

    def given(self, observations: Observations, free: FreeOffsets) -> Objects:
        """Return the objects with profiles of ``observations`` without the offsets ``free``."""
        if not self.kernel.profiled:
            return self
        return self._changed(profile=profile_kernel(observations, free))

    def _changed(self, **changes: Any) -> Objects:
        """Return a copy with cached matrices, which depend neither on weights nor on labels."""
        made, cached = replace(self, **changes), vars(self)
        vars(made).update({name: cached[name] for name in CACHED if name in cached})
        return made

    # ------------------------------------------------------------------ kernels of known objects

    @cached_property
    def _matrices(self) -> list[Any]:
        """The kernel matrices, (n, n), in float64; None for profiles."""
        new, made = NewObjects(self, self.X, "X"), []
        for _, kernel, block in self._terms(self.X):
            K = None if kernel.metric == "profile" else self._part(kernel, block, new)
            made.append(K if K is None else np.asarray(K, dtype=np.float64))
        return made

    @cached_property
    def _sizes(self) -> Array:
        """Mean k(x, x) of every kernel of a sum, or 1 if it is not positive."""
        sizes = np.ones(len(self.kernel.kernels))
        for k, (_, kernel, block) in enumerate(self._terms(self.X)):
            if self.kernel.scaled and kernel.metric not in FEATURELESS:
                diagonal = kernel.paired(self.X) if block is None else block.diagonal()
                sizes[k] = diagonal.mean()
        return np.where(sizes > 0, sizes, 1.0)

    @property
    def weights(self) -> Array:
        """Weights of the kernels, as given to `weighted`."""
        return self.kernel.weights * self._sizes

    def gram(self) -> Array:
        """Compute the kernel matrix of shape (n, n), in float64."""
        n = len(self)
        advice = "use fewer objects: all n × n kernel values are needed"
        _resources.require(f"the kernel matrix of {n:,} objects", n, n, copies=3, advice=advice)
        K: Any = None
        for (weight, kernel), part in zip(self.kernel, self._matrices, strict=True):
            if part is None:
                assert self.profile is not None
                part = self.profile ** _gamma(kernel)
            part = part if weight == 1.0 else weight * part
            K = part if K is None else K + part
        return K

    def inner_products(self, S: Array) -> Array:
        """Compute ⟨S, K⟩ for every kernel matrix of a sum without profiles, divided by its size."""
        return np.array([np.vdot(S, K) for K in self._matrices]) / self._sizes

    def _shifted(self, kernel: Kernel, X: Any = None) -> Any:
        """X (default: training objects), minus means if the kernel depends on differences only."""
        # The kernels of a sum are divided by mean values, which centring a linear one would change.
        alone = self.sees_differences and not self.kernel.scaled
        if not (kernel.shift_invariant or (kernel.linear and alone)):
            return self.X if X is None else X
        return self._centred[0] if X is None else subtract(X, self._centred[1])

    @cached_property
    def _centred(self) -> tuple[Any, Any]:
        return centre(self.X)

    def side(self, free: FreeOffsets) -> Side:
        """Return the objects as a side of a relation; profiles are without the offsets ``free``."""
        linear = self.kernel.linear
        X = self._shifted(self.kernel.kernels[0]) if linear else self.X

        def relabelled(observations: Observations) -> Side:
            return self.given(observations, free).side(free)

        if linear and not (sparse.issparse(X) and X.shape[1] > len(self)):
            # A dense copy is no larger than the kernel matrix, and its columns keep their digits.
            return Side(self.gram, X.toarray() if sparse.issparse(X) else X)
        if self.profile is not None:
            return Side(self.gram(), relabel=relabelled)
        several = (lambda: list(self.parts(self.new(self.X)))) if self.kernel.scaled else None
        return Side(self.gram(), several=several)

    # ------------------------------------------------------------------ new objects

    def new(self, X: Any, name: str = "X", own: Array | None = None) -> NewObjects:
        """Wrap other objects with checked features of shape (n', d) for the kernel of this side."""
        return NewObjects(self, canonical(X, dense=self.kernel.precomputed), name, own)

    def _part(
        self, kernel: Kernel, block: Array | None, new: NewObjects, coefficients: Any = None
    ) -> Any:
        """Values (n', n) of one kernel, times coefficients (n, k) if given."""
        if kernel.metric == "constant":
            row = np.ones(len(self)) if coefficients is None else coefficients.sum(axis=0)
            return np.tile(row, (new.shape[0], 1))
        if block is None and kernel.metric not in FEATURELESS:
            known = self._shifted(kernel)
            others = known if new.X is self.X else self._shifted(kernel, new.X)
            if coefficients is not None:
                return kernel.product(others, known, coefficients)
            return kernel(known) if others is known else kernel(others, known)
        values: Any = new.known if block is None else block
        if kernel.metric == "profile":
            assert self.profile is not None
            values = values @ self.profile ** _gamma(kernel)
        values = values if coefficients is None else values @ coefficients
        return values.toarray() if sparse.issparse(values) else values

    def parts(self, new: NewObjects, coefficients: Array | None = None) -> Iterator[Array]:
        """Weighted values (n', n) of every kernel of a sum, times coefficients (n, k) if given."""
        for weight, kernel, block in self._terms(new.X):
            if weight == 0.0:
                n = len(self) if coefficients is None else coefficients.shape[1]
                yield np.zeros((new.shape[0], n))
                continue
            part = self._part(kernel, block, new, coefficients)
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
        out, second = np.zeros(new.shape[0]), new if other is None else other
        for weight, kernel, block in self._terms(new.X):
            if kernel.metric == "constant" or (kernel.metric == "identity" and other is None):
                part: Any = 1.0
            elif kernel.metric == "identity":  # 0 for two objects that differ
                part = _row_sums(new.known, second.known)
            elif kernel.metric == "profile":
                assert self.profile is not None
                part = _row_sums(second.known, new.known @ self.profile ** _gamma(kernel))
                part = np.where(new.unknown, 1.0, part) if other is None else part
            elif block is None:
                part = kernel.paired(new.X, None if other is None else other.X)
            else:
                part = _row_sums(second.known, block)
                if other is None and new.own is not None:
                    part = np.where(new.unknown, new.own, part)
                elif second.unknown.any():
                    raise ValueError(
                        "uncertainties need k(x, x), which kernel='precomputed' does not tell for "
                        f"new objects: row {int(np.argmax(second.unknown))} of {second.name} is "
                        "none of the training objects. Append the kernel values among the new "
                        "objects as further columns"
                    )
            out += weight * part
        return out

    def equal(self) -> list[Array]:
        """Find groups of objects with equal features (kernel values, if precomputed)."""
        codes, counts = np.unique(_codes(self.X), return_inverse=True, return_counts=True)[1:]
        groups = np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1])
        return [group for group in groups if len(group) > 1]

    def known(self, X: Any) -> sparse.csr_array:
        """Match others with training objects by features: indicators (n', n) that sum to 1."""
        n, m = len(self), X.shape[0]
        codes = _codes(self.X, X) if X is not self.X else np.zeros(2 * n)
        own, others = codes[:n], codes[n:]
        if np.array_equal(own, others):
            return sparse.csr_array(sparse.identity(n, format="csr"))
        order = np.argsort(own, kind="stable")
        first = np.searchsorted(own[order], others, "left")
        count = np.searchsorted(own[order], others, "right") - first
        starts = np.concatenate([[0], np.cumsum(count)])
        place = order[np.arange(starts[-1]) - np.repeat(starts[:-1] - first, count)]
        data = np.repeat(1.0 / np.maximum(count, 1), count)
        return sparse.csr_array((data, place, starts), shape=(m, n))

    # ------------------------------------------------------------------ other training objects

    def with_new(self, X: Any) -> Objects:
        """Append new objects, as in a new fit, without profiles."""
        return self.refitted((sparse.vstack if sparse.issparse(self.X) else np.vstack)([self.X, X]))

    def refitted(self, X: Any) -> Objects:
        """Return other objects with the same kernels, divided by their new mean values."""
        if self.kernel.precomputed:
            raise ValueError(
                "objects of a precomputed kernel cannot be added or removed: fit again with the "
                "kernel matrix of all objects"
            )
        X = canonical(X, dense=False)
        return replace(self, X=X, profile=None).weighted(self.weights)

    def part(self, chosen: Array, train: Array) -> Any:
        """Return features, or kernel values with ``train``, of the objects ``chosen``."""
        X = self.X[chosen]
        if not self.kernel.precomputed:
            return X
        return np.hstack([block[:, train] for *_, block in self._terms(X) if block is not None])


class NewObjects:
    """Objects to predict for, with features or kernel values X and ``own`` values k(x, x)."""

    def __init__(
        self, objects: Objects, X: Any, name: str, own: Array | None = None, match: Any = None
    ) -> None:
        self.objects, self.X, self.name, self.own = objects, X, name, own
        self._match = match or (lambda: objects.known(X))

    @cached_property
    def known(self) -> sparse.csr_array:
        """Indicator matrix of matching training objects, see `Objects.known`."""
        return self._match()

    def __getitem__(self, rows: Array) -> NewObjects:
        own = None if self.own is None else self.own[rows]
        return NewObjects(self.objects, self.X[rows], self.name, own, lambda: self.known[rows])

    @property
    def unknown(self) -> Array:
        """Mask of the objects that are none of the training objects, shape (n',)."""
        return np.diff(self.known.indptr) == 0

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of X."""
        return self.X.shape


# ---------------------------------------------------------------------- reading


def read_kernels(
    kernel: Any, weights: Any, params: Any, name: str, *, gamma: Any, **common: Any
) -> KernelSum:
    """Read the sum of kernels from parameters whose names begin with ``name``."""
    several = isinstance(kernel, list | tuple)
    if not several and not (isinstance(kernel, str) and kernel in FEATURELESS):
        if weights is not None:
            raise ValueError(f"{name}_weights are those of several kernels: {name} must be a list")
        made = Kernel.from_options(kernel, kernel_params=params, gamma=gamma, **common)
        return KernelSum((made,), np.ones(1), scaled=False)
    kernels = list(kernel) if several else [kernel]
    if not kernels:
        raise ValueError(f"{name} is an empty list: give at least one kernel")
    featureless = [isinstance(one, str) and one in FEATURELESS for one in kernels]
    if params is None or isinstance(params, dict):  # those of all kernels that take some
        params = [None if several and known else params for known in featureless]
    if not isinstance(params, list | tuple) or len(params) != len(kernels):
        raise ValueError(f"{name}_params must be a dict, or a list of {len(kernels)} dicts")
    parts = []
    for one, own, known in zip(kernels, params, featureless, strict=True):
        if not known:
            width = None if own and "gamma" in own else gamma
            parts.append(Kernel.from_options(one, kernel_params=own, gamma=width, **common))
            continue
        unknown = sorted(set(own or ()) - ({"gamma"} if one == "profile" else set()))
        if unknown:
            raise ValueError(f"{name}_params has {unknown[0]!r}, which {one!r} does not take")
        given = {key: value for key, value in (own or {}).items() if value is not None}
        parts.append(Kernel(one, {key: check_positive(key, value) for key, value in given.items()}))
    if len({one.precomputed for one in parts if one.metric not in FEATURELESS}) == 2:
        raise ValueError(
            f"{name} has 'precomputed' beside kernels of features: compute all kernel matrices, "
            "and pass a list of them"
        )
    used = np.full(len(parts), 1.0 / len(parts))
    if weights is not None:
        used = np.asarray(weights, dtype=np.float64)
        if used.shape != (len(parts),) or not (np.isfinite(used) & (used >= 0)).all():
            raise ValueError(
                f"{name}_weights must be {len(parts)} numbers >= 0, one for each kernel; got "
                f"{show(weights)}"
            )
        if not used.any():
            raise ValueError(f"{name}_weights are all zero")
    return KernelSum(tuple(parts), used)


def read_objects(
    kernel: KernelSum, X: Any, name: str, objects: Objects | None = None
) -> tuple[Any, Any]:
    """Align kernel matrices, with ``objects`` or their own rows, side by side; name the rows.

    X has features, a kernel matrix, or a list of these; only kernel matrices are aligned.
    """
    k, square = kernel.n_blocks, objects is None
    if k == 0:
        return X, row_names(X)
    listed = isinstance(X, list | tuple) and len(X) > 0 and np.ndim(X[0]) == 2
    listed = listed or getattr(X, "ndim", 2) == 3
    if listed and len(X) != k:
        raise ValueError(f"{name} has {len(X)} kernel matrices for {k} precomputed kernels")
    width = X.shape[1] if not listed and getattr(X, "ndim", 0) == 2 else None
    if k > 1 and objects is not None and width not in (None, objects.X.shape[1]):
        raise ValueError(
            f"{name} must be a list of {k} kernel matrices with {len(objects)} columns "
            "each, one for each precomputed kernel"
        )
    parts, names, like = [], None, ""
    for number, part in enumerate(X if listed else [X]):
        of = f"{name}[{number}]" if k > 1 else name
        named = names_anything(row_names(part)) or not names_anything(column_names(part))
        if square and not named and part.shape[0] == part.shape[1]:
            part = part.set_axis(part.columns)
        part = in_order(part, 0, names, of, like, "They must be of the same objects")
        if listed or k == 1:
            known = None if objects is None else objects.names
            part = square_in_order(part, of) if square else columns_in_order(part, known, of)
        parts.append(part)
        if names is None and names_anything(row_names(part)):
            names, like = row_names(part), f"the rows of {of}"
    names = row_names(parts[0]) if square and names is None else names
    if not (listed and k > 1):
        return parts[0], names
    tables = [np.asarray(part) for part in parts]
    if len({table.shape for table in tables}) > 1:
        shapes = ", ".join(str(table.shape) for table in tables)
        raise ValueError(f"the kernel matrices of {name} must have one shape; got {shapes}")
    return np.hstack(tables), names


def _gamma(kernel: Kernel) -> float:
    """Return the parameter gamma of a profile kernel, 1 by default."""
    return float(kernel.params.get("gamma") or 1.0)


def _row_sums(first: Any, second: Any) -> Array:
    """Sum the products of two matrices, of which the first is sparse, by row."""
    return np.asarray(first.multiply(second).sum(axis=1)).ravel()


def _codes(*parts: Any) -> Array:
    """Return integer codes of shape (n,) that are equal for equal rows of all parts."""
    if any(map(sparse.issparse, parts)):
        return first_equal(sparse.vstack([sparse.csr_array(part) for part in parts], format="csr"))
    return first_equal(np.vstack([np.asarray(part, dtype=parts[0].dtype) for part in parts]))
