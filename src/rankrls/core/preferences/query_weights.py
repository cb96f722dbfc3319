"""Queries and levels of equal score: groups of rows, in any row order, and their weights.

The weighting of queries (``query_weighting`` of the estimators) is defined only in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls._resources import SMALL, in_threads
from rankrls._validation import check_option, show

Array = NDArray[Any]

QUERY_WEIGHTINGS = ("pair", "size", "query")

#: One of these names, or a function of the total weights of queries (numbers of rows, without
#: sample weights) and of the weights of all their pairs (numbers of pairs), as arrays, which
#: returns the weight of a pair of each query.
QueryWeighting = str | Callable[[Array, Array], Any]

#: Above this density a sparse product costs more than a dense one.
DENSE_ENOUGH = 0.05

#: A centred sum of squares is too inaccurate if it is below this fraction of the uncentred one.
CANCELLED = 1e-3

#: Sums over rows are computed in at most this many parts, which threads may share.
PARTS = 8


def sums(codes: Array, values: Array | None, n: int) -> Array:
    """Sum ``values`` (ones, if None) for each code in ``range(n)``, in float64."""
    return np.bincount(codes, weights=values, minlength=n).astype(np.float64)


def row_blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Generate slices of rows that fit into the cache but are large enough for level-3 BLAS."""
    size = max(2**18 // max(n_columns, 1), 4 * n_columns, 256)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


class Groups:
    """A partition of m rows into g groups; each row has a weight ω >= 0, 1 if None."""

    def __init__(self, codes: Array, weight: Array | None, n_groups: int) -> None:
        self.codes = codes
        self.n_groups = n_groups
        self.weighted = weight is not None
        self.weight = np.ones(len(codes)) if weight is None else weight
        self.total = sums(codes, weight, n_groups)

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def share(self) -> Array:
        """ω_i/Ω_a, the fraction of its group's weight that each row has, shape (m,)."""
        total = self.total[self.codes]
        return np.divide(self.weight, total, out=np.zeros_like(total), where=total > 0)

    @cached_property
    def averaging(self) -> sparse.csr_array:
        """P, shape (g, m): P V are the group means of V."""
        return self._indicator(self.share).T.tocsr()

    @cached_property
    def isometry(self) -> sparse.csr_array:
        """U, shape (m, g), U_ia = √(ω_i/Ω_a): orthonormal columns, one per group."""
        return self._indicator(np.sqrt(self.share))

    def _indicator(self, values: Array) -> sparse.csr_array:
        m = len(self.codes)
        return sparse.csr_array((values, self.codes, np.arange(m + 1)), shape=(m, self.n_groups))

    def mean(self, V: Any) -> Any:
        """Group means P V of the rows of V, in float64, shape (g, k); sparse if V is sparse."""
        if sparse.issparse(V) or V.dtype == np.float64:
            return self.averaging @ V
        spread = self._indicator(self.share)
        means = np.zeros((self.n_groups, V.shape[1]))
        for block in row_blocks(*V.shape):
            means += spread[block].T @ V[block].astype(np.float64)
        return means

    def deviations(self, V: Array) -> Array:
        """V minus the mean of each row's group, shape (m, k); a new array."""
        V = V if V.dtype.kind == "f" else V.astype(np.float64)
        means = self.mean(V).astype(V.dtype, copy=False)
        out = np.empty_like(V)
        for block in row_blocks(*V.shape):
            np.subtract(V[block], means[self.codes[block]], out=out[block])
        return out

    def scatter(self, X: Any, means: Any, scale: Array, r: Array) -> tuple[Array, Array]:
        """Σ_i scale_i (x_i − x̄_a)(x_i − x̄_a)ᵀ, shape (n, n), and Σ_i (x_i − x̄_a) r_iᵀ, in float64.

        ``scale``/ω must be constant in a group, and ``r`` of shape (m, k) sum to zero in it.
        Dense rows are centred before they are multiplied, so that an offset does not affect the
        accuracy; of sparse rows only the columns in which uncentred sums would cancel.
        """
        m, n = X.shape
        weight = sums(self.codes, scale, self.n_groups)
        squares = weight @ (means.multiply(means) if sparse.issparse(means) else means * means)
        if sparse.issparse(X):
            gram, cross = _sparse_gram(X, scale), X.T @ r
            uncentred = gram.diagonal().copy()
            gram -= _sparse_gram(means, weight)
            apply = scale[:, None].__mul__
            centre_columns(gram, cross, uncentred, X, self.deviations, apply, r)
            clear_rounding(gram, cross, squares, float(np.finfo(means.dtype).eps))
            return gram, cross
        constant = m > 0 and bool((scale == scale[0]).all())
        root = np.sqrt(scale).astype(X.dtype)
        r, means = r.astype(X.dtype, copy=False), means.astype(X.dtype, copy=False)

        def products(blocks: list[slice]) -> tuple[Array, Array]:
            gram, cross = np.zeros((n, n)), np.zeros((n, r.shape[1]))
            work = np.empty((0, n), dtype=X.dtype)
            for block in blocks:
                size = block.stop - block.start
                work = np.empty((size, n), dtype=X.dtype) if len(work) < size else work
                part = work[:size]
                np.take(means, self.codes[block], axis=0, out=part, mode="clip")
                np.subtract(X[block], part, out=part)
                cross += part.T @ r[block]
                if not constant:
                    part *= root[block, None]
                gram += part.T @ part
            return gram, cross

        blocks = list(row_blocks(m, n))
        # The number of parts, and so the result, does not depend on the number of threads.
        n_parts = max(min(len(blocks), PARTS), 1) if n <= SMALL else 1
        parts = [blocks[i::n_parts] for i in range(n_parts)]
        (gram, cross), *others = in_threads(products, parts, n)
        for other_gram, other_cross in others:
            gram += other_gram
            cross += other_cross
        if constant:
            gram *= scale[0]
        clear_rounding(gram, cross, squares, float(np.finfo(X.dtype).eps))
        return gram, cross


def clear_rounding(gram: Array, cross: Array, squares: Array, eps: float) -> None:
    """Set columns that are constant up to rounding to zero; (n,) squares of subtracted values."""
    diagonal = gram.diagonal()
    rounding = diagonal <= 64 * eps**2 * squares
    constant = np.flatnonzero(rounding & np.isfinite(diagonal))
    gram[constant] = gram[:, constant] = cross[constant] = 0.0


def centre_columns(
    gram: Array,
    cross: Array,
    squares: Array,
    X: Any,
    deviations: Callable[[Array], Array],
    apply: Callable[[Array], Array],
    r: Array,
) -> None:
    """Recompute, in place, rows of XᵀLX and Xᵀr whose difference from ``squares`` cancels.

    Only these columns of the sparse X (an offset that is large compared with the spread) are made
    dense: ``deviations`` centres them without changing products with L, and ``apply`` maps centred
    columns D to LD. Their products with other columns need no second centring.
    """
    lost = np.flatnonzero(gram.diagonal() < CANCELLED * squares)
    if len(lost):
        D = deviations(X[:, lost].toarray())
        LD = apply(D)
        gram[lost] = (X.T @ LD).T
        gram[:, lost] = gram[lost].T
        gram[np.ix_(lost, lost)] = D.T @ LD
        cross[lost] = D.T @ r


def _sparse_gram(X: sparse.csr_array, weight: Array) -> Array:
    """Xᵀ diag(weight) X, shape (n, n); denser columns are multiplied in dense blocks."""
    m, n = X.shape
    if X.nnz <= DENSE_ENOUGH * m * n:
        return (X.T @ (sparse.diags_array(weight) @ X)).toarray()
    gram = np.zeros((n, n))
    for block in row_blocks(m, n):
        part = X[block].toarray()
        gram += part.T @ (weight[block, None] * part)
    return gram


@dataclass(frozen=True)
class Levels:
    """Groups of rows with equal score in the same query, numbered by (query, score)."""

    codes: Array  # (m,)
    score: Array  # (g,)
    query: Array  # (g,)

    @classmethod
    def of(cls, s: Array, query: Array) -> Levels:
        """Find the levels of scores ``s`` in queries ``query``, both of shape (m,)."""
        order = np.lexsort((s, query))
        sorted_s, sorted_q = s[order], query[order]
        new = np.empty(len(s), dtype=bool)
        new[:1] = True
        new[1:] = (sorted_s[1:] != sorted_s[:-1]) | (sorted_q[1:] != sorted_q[:-1])
        codes = np.empty(len(s), dtype=np.int64)
        codes[order] = np.cumsum(new) - 1
        return cls(codes, sorted_s[new], sorted_q[new])

    def __len__(self) -> int:
        return len(self.score)


def check_query_weighting(how: Any) -> None:
    """Raise an error unless ``how`` is one of `QUERY_WEIGHTINGS` or a function."""
    if not callable(how):
        check_option("query_weighting", how, QUERY_WEIGHTINGS)


def query_factor(how: QueryWeighting, weight: Any, edge_weight: Any) -> Any:
    """Factor c of a query's edges: 1 ("pair"), 1/Σω ("size") or 1/Σ_edges ω_iω_j ("query").

    A function is called with both arrays, for the queries that have an edge; c is 0 for the others.
    """
    weight, edge_weight = np.asarray(weight, dtype=float), np.asarray(edge_weight, dtype=float)
    c = np.zeros(weight.shape)
    some = edge_weight > 0
    if not callable(how):
        divisor = {"pair": np.ones_like(weight), "size": weight, "query": edge_weight}[how]
        return np.divide(1.0, divisor, out=c, where=some)
    if some.any():
        values = np.asarray(how(weight[some], edge_weight[some]), dtype=float)
        if values.ndim > 1 or values.size not in (1, some.sum()) or not (values > 0).all():
            raise ValueError(
                "query_weighting must return a positive weight for each of the "
                f"{some.sum():,} queries; got {show(values)}"
            )
        c[some] = values
    return c


def varying_queries(s: Array, query: Array, n_queries: int) -> Array:
    """Whether a query has two different scores, shape (n_queries, k), bool, for s (m, k)."""
    example = np.zeros((n_queries, s.shape[1]))
    example[query] = s
    found = np.zeros((n_queries, s.shape[1]), dtype=bool)
    row, output = np.nonzero(s != example[query])
    found[query[row], output] = True
    return found


def pair_weights(group: Array, weight: Array, n_groups: int) -> tuple[Array, Array]:
    """Σ_{j≠i} ω_j of each member of a group, shape (g,), and Σ_{i<j} ω_i ω_j, shape (n_groups,)."""
    # The largest ω of a group is treated apart: N − ω and N² − Σω² would cancel if it dominates.
    top = np.zeros(n_groups)
    np.maximum.at(top, group, weight)
    largest = np.flatnonzero(weight == top[group])
    member = np.zeros(n_groups, dtype=np.int64)
    member[group[largest]] = largest  # one of them
    rest = weight.copy()
    rest[member[group[largest]]] = 0.0
    R = sums(group, rest, n_groups)
    others = (R + top)[group] - weight
    others[member[group[largest]]] = R[group[largest]]
    return others, top * R + np.maximum(R**2 - sums(group, rest**2, n_groups), 0.0) / 2


class QueryWeights:
    """Counts and weights of queries and of groups of their rows, and the query weighting c.

    The groups are ``levels`` if tied pairs are dropped, and whole queries if they are kept (None).
    ``n_a`` and ``Omega``, (g,), are the number of rows with ω > 0 of each group, and Σω; ``n_q``
    and ``N``, (n_queries,), the same of each query; ``edges``, ``edge_weight`` and ``c`` its number
    of edges, Σ_edges ω_i ω_j, and their factor, 0 without edges. All pairs of a query add up to
    ``kappa`` times its scatter, and those of a level with others to ``level_kappa`` times its own.
    """

    def __init__(
        self,
        how: QueryWeighting,
        query: Array,
        n_queries: int,
        weight: Array | None,
        levels: Levels | None,
    ) -> None:
        codes, group, g = query, np.arange(n_queries), n_queries
        if levels is not None:
            codes, group, g = levels.codes, levels.query, len(levels)
        positive = np.ones(len(codes), dtype=bool) if weight is None else weight > 0
        self.n_a = sums(codes, positive.astype(float), g)
        self.Omega = self.n_a if weight is None else sums(codes, weight, g)
        self.n_q = sums(group, self.n_a, n_queries)
        self.N = sums(group, self.Omega, n_queries)
        # All pairs minus the pairs within a level, or minus the rows themselves.
        inside = self.n_a if levels is None else self.n_a**2
        self.edges = (self.n_q**2 - sums(group, inside, n_queries)) / 2
        if levels is not None:
            others, between = pair_weights(group, self.Omega, n_queries)
        elif weight is None:
            between = self.edges
        else:
            between = pair_weights(query, weight, n_queries)[1]
        self.edge_weight = np.where(self.edges > 0, between, 0.0)
        lost = (self.edges > 0) & ~((self.edge_weight > 0) & np.isfinite(self.edge_weight))
        if lost.any() and how not in ("pair", "size"):
            raise ValueError("the products of the weights underflow or overflow; scale the weights")
        self.c = query_factor(how, self.N, np.where(lost, 1.0, self.edge_weight))
        self.kappa = self.c * self.N
        if levels is not None:
            self.level_kappa = self.c[group] * others
        counts = [values.astype(np.int64) for values in (self.n_q, inside)]
        self.n_pairs = int((counts[0] ** 2).sum() - counts[1].sum()) // 2  # exact, unlike edges
        used = self.edges > 0
        self.log_weight = float(self.edges[used] @ np.log(self.c[used]))
        if weight is not None:
            logarithms = sums(codes[positive], np.log(weight[positive]), g)
            partners = self.n_q[group] - (1.0 if levels is None else self.n_a)
            self.log_weight += float(partners @ logarithms)
