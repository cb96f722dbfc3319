"""Functions that workers apply to their partitions; they use arrays only, not Dask."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce, wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array

from rankrls._frames import clear_errors
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.statistics import Statistics
from rankrls.core.spaces.products import Products
from rankrls.core.spaces.spaces import Basis
from rankrls.dask._condensed import Condensed
from rankrls.dask._parts import Condenser, PartPlan, Share, bucket_shares, part_shares
from rankrls.estimators.ranker import canonical

__all__ = [
    "Loader",
    "LocalOperator",
    "Summary",
    "add_arrays",
    "add_statistics",
    "bucket_operator",
    "bucket_statistics",
    "in_fold",
    "operator_pieces",
    "part_operator",
    "part_statistics",
    "pick",
    "preferences_of",
    "product",
]

Array = NDArray[Any]

#: Rows are centred before products if their mean exceeds their spread by this factor.
FAR = 100.0

Function = TypeVar("Function", bound=Callable[..., Any])


def _overflowing(function: Function) -> Function:
    """Ignore overflow in ``function``: the solver rejects the result."""

    @wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            return function(*arguments, **options)

    return cast(Function, wrapped)


@dataclass(frozen=True)
class Loader:
    """Check and convert the blocks of one partition of X.

    Attributes
    ----------
    number : int
        Index of the partition, for messages.
    dtype : float32 or float64
    n_features : int
    n_rows : int or None
        Expected number of rows, if known.
    """

    number: int
    dtype: Any
    n_features: int
    n_rows: int | None = None

    def __call__(self, blocks: list[Any]) -> Any:
        """Return a finite ndarray or CSR matrix of shape (m, n)."""
        X = blocks[0]
        if len(blocks) > 1:
            stack = sparse.hstack if any(map(sparse.issparse, blocks)) else np.hstack
            X = stack(blocks)
        name = f"partition {self.number} of X"
        kinds = ("csr", "csc")
        try:
            with clear_errors(X, name, filled="as by X.fillna(0)"):
                X = check_array(X, accept_sparse=kinds, dtype=self.dtype, ensure_min_samples=0)
        except (ValueError, TypeError) as error:
            text = str(error)
            raise ValueError(text if name in text else f"{name}: {text}") from error
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"partition {self.number} of X has {X.shape[1]} columns, not {self.n_features}"
            )
        if self.n_rows is not None and X.shape[0] != self.n_rows:
            raise ValueError(
                f"partition {self.number} has {X.shape[0]} rows of X and {self.n_rows} of y: X, y "
                "and qid must be cut alike"
            )
        return canonical(X, dense=False)

    def rows(self, indices: Array, blocks: list[Any]) -> Any:
        """Return some of the rows."""
        return self(blocks)[indices]


def preferences_of(
    number: int, y: list[Any], qid: list[Any] | None, weight: list[Any] | None
) -> PreferenceGraph:
    """Return the preferences of one partition."""
    s = _columns(y)
    for name, blocks in (("qid", qid), ("sample_weight", weight)):
        if blocks is not None and len(blocks[0]) != len(s):
            raise ValueError(
                f"partition {number} has {len(s)} rows of y and {len(blocks[0])} of {name}: they "
                "must be cut alike"
            )
    try:
        return PreferenceGraph.from_scores(
            s,
            qid=None if qid is None else _labels(qid[0]),
            sample_weight=None if weight is None else _columns(weight),
        )
    except ValueError as error:
        raise ValueError(f"partition {number}: {error}") from error


def in_fold(numbers: Array, inside: Array, graph: PreferenceGraph) -> PreferenceGraph:
    """Return the preferences of one fold: rows of other folds get zero weight.

    ``numbers`` and ``inside``, each of shape (g,), give for every query of the part its index among
    all queries and whether it is in the fold.
    """
    codes = graph.query_codes
    assert graph.scores is not None
    weight = inside[codes].astype(np.float64)
    if graph.sample_weight is not None:
        weight = weight * graph.sample_weight
    return PreferenceGraph.from_scores(graph.scores, qid=numbers[codes], sample_weight=weight)


def _columns(blocks: list[Any]) -> Array:
    return np.asarray(blocks[0]) if len(blocks) == 1 else np.hstack(blocks)


def _labels(block: Any) -> Array:
    return np.asarray(block.to_numpy() if hasattr(block, "to_numpy") else block)


def _features(X: Any, basis: Basis | None, whitened: bool) -> Any:
    if basis is None:
        return X
    return basis.features(X) if whitened else basis.block(X)


def _pieces(condensers: Sequence[Condenser], Phi: Any) -> dict[int, list[Any]]:
    """Return condensed rows by bucket, as lists with one matrix for each group of outputs."""
    by_group = [condenser(Phi) for condenser in condensers]
    return {b: [Z[b] for Z in by_group] for b in (by_group[0] if by_group else ())}


def _stack(pieces: list[list[Any]]) -> list[Any]:
    """Stack the condensed rows of all parts for each group of outputs."""
    joined = []
    for parts in zip(*pieces, strict=True):
        some_sparse = any(map(sparse.issparse, parts))
        joined.append(sparse.vstack(parts).tocsr() if some_sparse else np.concatenate(parts))
    return joined


# ------------------------------------------------------------------ statistics, in one pass


@_overflowing
def part_statistics(
    load: Loader, plan: PartPlan, whitened: bool, blocks: list[Any], graph: Any, basis: Any = None
) -> tuple[list[Statistics], dict[int, list[Any]]]:
    """Return statistics of one partition for each group of outputs, and its condensed rows."""
    Phi = _features(load(blocks), basis, whitened)
    shares, condensers = part_shares(graph, plan)
    return [share.statistics(Phi) for share in shares], _pieces(condensers, Phi)


def pick(bucket: int, work: tuple[Any, dict[int, Any]]) -> Any:
    """Return the condensed rows for one bucket."""
    return work[1][bucket]


@_overflowing
def bucket_statistics(bucket: list[Condensed], pieces: list[list[Any]]) -> list[Statistics]:
    """Return statistics of the condensed rows of one bucket for each group of outputs."""
    joined = zip(bucket_shares(bucket), _stack(pieces), strict=True)
    return [share.statistics(Z) for share, Z in joined]


@_overflowing
def add_statistics(parts: list[list[Statistics]]) -> list[Statistics]:
    """Sum the statistics for each group of outputs."""
    return [reduce(operator.iadd, group[1:], group[0].copy()) for group in zip(*parts, strict=True)]


def add_arrays(parts: list[Array]) -> Array:
    """Return the sum of the arrays."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


# ------------------------------------------------------------------ products, many passes


@dataclass(frozen=True)
class LocalOperator:
    """Features and system of one part or bucket, kept for many products.

    Attributes
    ----------
    features : list
        Rows for each group of outputs (shared between groups in a part, separate in a bucket).
    shares : list of Share
    condensers : list of Condenser
    shift : ndarray of shape (n,), or None
        Vector subtracted from the rows. L is invariant to it; a large one would cost precision.
    """

    features: list[Any]
    shares: list[Share]
    condensers: list[Condenser]
    shift: Array | None = None


def part_operator(load: Loader, plan: PartPlan, blocks: list[Any], graph: Any) -> LocalOperator:
    """Return the operator of the rows of one partition."""
    shares, condensers = part_shares(graph, plan)
    X, shift = _centred(load(blocks))
    return LocalOperator([X] * len(shares), shares, condensers, shift)


def _centred(X: Any) -> tuple[Any, Array | None]:
    """Centre dense rows if their mean is far from zero; otherwise return them without a copy."""
    if sparse.issparse(X) or X.shape[0] == 0:
        return X, None
    mean = X.mean(axis=0, dtype=np.float64).astype(X.dtype)
    spread = np.abs(X[:: 1 + len(X) // 1000] - mean).mean(axis=0).max()
    if np.abs(mean).max() <= FAR * spread:
        return X, None
    return X - mean, mean


def operator_pieces(local: LocalOperator) -> dict[int, list[Any]]:
    """Return the condensed rows by bucket."""
    pieces = _pieces(local.condensers, local.features[0])
    if local.shift is None:
        return pieces
    return {b: [Z + local.shift for Z in by_group] for b, by_group in pieces.items()}


def bucket_operator(bucket: list[Condensed], pieces: list[list[Any]]) -> LocalOperator:
    """Return the operator of the condensed rows of one bucket."""
    return LocalOperator([_centred(Z)[0] for Z in _stack(pieces)], bucket_shares(bucket), [])


@dataclass(frozen=True)
class Summary:
    """Initial data for conjugate gradients, of one part or bucket or of their sum.

    Attributes
    ----------
    cross : list of ndarray of shape (n, k)
        Φᵀr, for each group of outputs.
    squares : list of ndarray of shape (n,)
        Approximate diagonal of ΦᵀLΦ.
    n_pairs : list of int
    mass : float
        Total weight of the rows with an edge.
    """

    cross: list[Array]
    squares: list[Array]
    n_pairs: list[int]
    mass: float

    @staticmethod
    @_overflowing
    def of(local: LocalOperator) -> Summary:
        """Return the summary of one part or bucket."""
        places = list(zip(local.features, local.shares, strict=True))
        cross = [_transposed(X, share.r) for X, share in places]
        squares = [Products(X).column_squares(share.degree()) for X, share in places]
        n_pairs = [share.n_pairs for share in local.shares]
        return Summary(cross, squares, n_pairs, sum(share.mass for share in local.shares))

    @staticmethod
    def add(parts: list[Summary]) -> Summary:
        """Sum the summaries of all parts and buckets."""

        def sums(name: str) -> list[Any]:
            return [sum(group) for group in zip(*(getattr(p, name) for p in parts), strict=True)]

        mass = sum(part.mass for part in parts)
        return Summary(sums("cross"), sums("squares"), sums("n_pairs"), mass)


@_overflowing
def product(group: int, local: LocalOperator, V: Array) -> Array:
    """Return ΦᵀLΦ V, shape (n, k)."""
    X, share = local.features[group], local.shares[group]
    F = np.asarray(X @ V.astype(X.dtype, copy=False), dtype=np.float64)
    return _transposed(X, share.apply(F))


def _transposed(X: Any, U: Array) -> Array:
    return np.asarray(X.T @ U.astype(X.dtype, copy=False), dtype=np.float64)
