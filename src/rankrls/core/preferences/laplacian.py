"""The quadratic form fᵀ L f − 2 fᵀ r + const of scores or pairs and a cost.

Three kinds are sufficient for all costs, each O(m) for a column, for rows in any order:

- `CentredLaplacian`: all rows of a group against each other (ties kept, or no ties), or rows of
  equal score pooled, and a Laplacian over the pools (ties dropped);
- `EdgeLaplacian`: an explicit list of edges (given pairs, or pairs of levels);
- `SumLaplacian`: scores and pairs together.

A dual solution is A = F (FᵀKF + alpha I)⁻¹ t for *any* `Factor` L = F Fᵀ with F t = r, because
(F FᵀK + alpha I) F B = F (FᵀKF + alpha I) B = F t = r. F has at most m columns if possible, and
annihilates constants exactly if L does (Fᵀ1 = 0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, blas, cholesky, solve_triangular
from scipy.sparse.csgraph import connected_components
from sklearn.utils import gen_batches

from rankrls._resources import SMALL, in_threads
from rankrls.core.preferences.costs import sums

Array = NDArray[Any]
EPS = float(np.finfo(np.float64).eps)

#: Above this density a sparse product costs more than a dense one.
DENSE_ENOUGH = 0.05

#: A centred sum of squares is too inaccurate if it is below this fraction of the uncentred one.
CANCELLED = 1e-3

#: Sums over rows are computed in at most this many parts, which threads may share.
PARTS = 8

#: Edges are light if their weight is less than the largest one divided by this.
UNEVEN = 1e6


def row_blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Generate slices of rows that fit into the cache but are large enough for level-3 BLAS."""
    return gen_batches(n_rows, max(2**18 // max(n_columns, 1), 4 * n_columns, 256))


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
    def shares(self) -> sparse.csr_array:
        """Pᵀ, shape (m, g), with ω_i/Ω_a in the column of each row's group; P V are group means."""
        m, total = len(self.codes), self.total[self.codes]
        share = np.divide(self.weight, total, out=np.zeros_like(total), where=total > 0)
        return sparse.csr_array((share, self.codes, np.arange(m + 1)), shape=(m, self.n_groups))

    @cached_property
    def isometry(self) -> sparse.csr_array:
        """U, shape (m, g), U_ia = √(ω_i/Ω_a): orthonormal columns, one per group."""
        return self.shares.sqrt()

    def mean(self, V: Any) -> Any:
        """Group means P V of the rows of V, in float64, shape (g, k); sparse if V is sparse."""
        if sparse.issparse(V) or V.dtype == np.float64:
            return self.shares.T @ V
        means = np.zeros((self.n_groups, V.shape[1]))
        for block in row_blocks(*V.shape):
            means += self.shares[block].T @ V[block].astype(np.float64)
        return means

    def deviations(self, V: Array) -> Array:
        """V minus the mean of each row's group, shape (m, k); a new array."""
        V = V if V.dtype.kind == "f" else V.astype(np.float64)
        means, out = self.mean(V), np.empty_like(V)
        for block in row_blocks(*V.shape):
            # Of float32 rows, too, in float64: a rounded mean is far off beside a large offset.
            np.subtract(V[block], means[self.codes[block]], out=out[block], casting="same_kind")
        return out

    def scatter(self, X: Any, means: Any, scale: Array, r: Array) -> tuple[Array, Array]:
        """Σ_i scale_i (x_i − x̄_a)(x_i − x̄_a)ᵀ, shape (n, n), and Σ_i (x_i − x̄_a) r_iᵀ, in float64.

        ``scale``/ω must be constant in a group, and ``r`` of shape (m, k) sum to zero in it.
        Dense rows are centred in float64 before they are multiplied, so that an offset does not
        affect the accuracy; of sparse rows only the columns in which uncentred sums would cancel.
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
            clear_rounding(gram, cross, squares)
            return gram, cross
        constant = m > 0 and bool((scale == scale[0]).all())
        root = np.sqrt(scale).astype(X.dtype)
        r = r.astype(X.dtype, copy=False)

        def products(blocks: list[slice]) -> tuple[Array, Array]:
            gram, cross = np.zeros((n, n)), np.zeros((n, r.shape[1]))
            work = np.empty((0, n))
            for block in blocks:
                size = block.stop - block.start
                work = np.empty((size, n)) if len(work) < size else work
                part = work[:size]
                np.take(means, self.codes[block], axis=0, out=part, mode="clip")
                part = np.subtract(X[block], part, out=part).astype(X.dtype, copy=False)
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
        clear_rounding(gram, cross, squares)
        return gram, cross


def clear_rounding(gram: Array, cross: Array, squares: Array) -> None:
    """Set columns that are constant up to rounding to zero; (n,) squares of subtracted values."""
    diagonal = gram.diagonal()
    rounding = diagonal <= 64 * EPS**2 * squares
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


class _Quadratic:
    """What all Laplacians share: L and r over m rows, for k outputs that share L.

    r = Σ_edges w² z (e_h − e_j) has shape (m, k), and ``energy`` = Σ_edges w² z² shape (k,); both
    have a single column if all outputs have the same target. ``outputs`` are the columns of y to
    which they apply, ``n_pairs`` is the number of edges, including ties if they are kept, and
    ``log_weight`` = Σ_edges log w², for the marginal likelihood.
    """

    r: Array
    energy: Array
    apply: Any
    links: Any
    outputs: Array
    n_pairs: int
    log_weight: float

    @property
    def n_rows(self) -> int:
        """Number m of rows (vertices)."""
        return self.r.shape[0]

    def components(self) -> Array:
        """Index of the connected component of each row, shape (m,)."""
        links = self.links()
        adjacency = sparse.block_array([[None, links], [links.T, None]])
        return connected_components(adjacency, directed=False)[1][: self.n_rows]


class CentredLaplacian(_Quadratic):
    """Σ_a κ_a Σ_{i∈a} ω_i (f_i − f̄_a)², which compares all rows of each group, with r = L s.

    If tied pairs are dropped, the groups are levels of equal score, and ``between`` is a Laplacian
    over the levels: L = scatter + Pᵀ L_levels P, a sum of non-negative terms.
    """

    def __init__(
        self, groups: Groups, kappa: Array, s: Array | None, between: Laplacian | None = None
    ) -> None:
        self.groups, self.kappa, self.between = groups, kappa, between
        self.scale = kappa[groups.codes] * groups.weight
        if between is None:
            assert s is not None
            self.s = groups.deviations(s)
            self.r = self.scale[:, None] * self.s
            self.energy = np.einsum("ij,ij->j", self.s, self.r)
        else:
            self.r = groups.shares.data[:, None] * between.r[groups.codes]
            self.energy = between.energy

    def apply(self, V: Array) -> Array:
        """L V = κ ω (v − v̄_a) + Pᵀ L_levels P v for every column, shape (m, k)."""
        if self.between is None:
            return self.scale[:, None] * self.groups.deviations(V)
        means, codes = self.groups.mean(V), self.groups.codes
        pooled = self.between.apply(means)
        return (
            self.scale[:, None] * (V - means[codes])
            + self.groups.shares.data[:, None] * pooled[codes]
        )

    def moments(self, X: Any) -> tuple[Array, Array, Array]:
        """XᵀLX, Xᵀr and the mean row over rows with an edge, in float64; X dense or sparse."""
        means = self.groups.mean(X)
        mean = _weighted_mean(self.groups.total * (self.kappa > 0), means)
        if self.between is None:
            return *self.groups.scatter(X, means, self.scale, self.r), mean
        within, _ = self.groups.scatter(X, means, self.scale, np.zeros((self.n_rows, 0)))
        gram, cross, _ = self.between.moments(means)
        return within + gram, cross, mean

    def factor(self) -> Factor:
        """F and t with F Fᵀ = L and F t = r."""
        if self.between is None:
            return ScatterFactor(self.groups, self.kappa, self.s)
        return ScatterFactor(self.groups, self.kappa, None, self.between.factor())

    def degree(self) -> Array:
        """The diagonal of L: κ ω (1 − ω/Ω), and the part (ω/Ω)² of the level's degree."""
        share = self.groups.shares.data
        degree = self.scale * (1 - share)
        if self.between is not None:
            degree += share**2 * self.between.degree()[self.groups.codes]
        return degree

    def row_weight(self) -> Array:
        """Weight of each row that has an edge, zero for the others, shape (m,)."""
        return np.where(self.scale > 0, self.groups.weight, 0.0)

    def links(self) -> sparse.coo_array:
        """Sparse (m, h) incidence of rows and groups: rows that share a group are connected."""
        used = np.flatnonzero((self.scale if self.between is None else self.groups.weight) > 0)
        rows = sparse.csr_array(
            (np.ones(len(used)), (used, self.groups.codes[used])),
            shape=(self.n_rows, self.groups.n_groups),
        )
        return (rows if self.between is None else rows @ self.between.links().tocsr()).tocoo()


class EdgeLaplacian(_Quadratic):
    """An explicit multigraph: edges (head, tail) with weight w² and target z, in any number.

    With ``covariates`` c of the edges, (l, q), z ≈ f_h − f_j + cᵀγ; they only count in `moments`.
    """

    def __init__(
        self,
        head: Array,
        tail: Array,
        weight: Array,
        z: Array,
        n_rows: int,
        covariates: Array | None = None,
    ) -> None:
        self.head, self.tail, self.weight, self.z = head, tail, weight, z
        self.covariates = covariates
        flow = weight * z
        self.energy = np.array([float(flow @ z)])
        self.r = (sums(head, flow, n_rows) - sums(tail, flow, n_rows))[:, None]
        self.outputs, self.n_pairs, self.log_weight = np.arange(1), len(weight), 0.0
        #: Edges of small weight compared with the largest one.
        self.outweighed = weight * UNEVEN < weight.max(initial=0.0)

    @cached_property
    def matrix(self) -> sparse.csr_array:
        """L as a sparse matrix of shape (m, m)."""
        shape = (self.n_rows, self.n_rows)
        A = sparse.csr_array((self.weight, (self.head, self.tail)), shape=shape)
        return (sparse.diags_array(self.degree()) - A - A.T).tocsr()

    def apply(self, V: Array) -> Array:
        """The sparse product L V; a single column is multiplied as a vector, which is faster."""
        if V.shape[1] == 1:
            return (self.matrix @ V[:, 0])[:, None]
        return self.matrix @ V

    def moments(self, X: Any) -> tuple[Array, Array, Array]:
        """Xᵀ(L X), or sums over differences of rows if that would cancel; covariates follow X."""
        mean = _weighted_mean(self.row_weight(), X)
        degree = self.degree()
        if sparse.issparse(X):
            gram, cross = (X.T @ (self.matrix @ X)).toarray(), X.T @ self.r
            squares = X.multiply(X).T @ degree
            number = connected_components(self.matrix, directed=False)[1]
            groups = Groups(number, None, int(number.max(initial=-1)) + 1)
            apply = self.matrix.__matmul__
            centre_columns(gram, cross, squares, X, groups.deviations, apply, self.r)
        else:
            squares = _weighted_squares(degree, X)
            D = np.subtract(X, mean, out=np.empty_like(X))
            LD = self.matrix.astype(X.dtype, copy=False) @ D
            gram, cross = (D.T @ LD).astype(np.float64), (D.T @ self.r).astype(np.float64)
            cancelled = gram.diagonal() < CANCELLED * _weighted_squares(degree, D)
            if self.outweighed.any() or cancelled.any():
                gram, cross = np.zeros_like(gram), np.zeros_like(cross)
                for edges in row_blocks(len(self.weight), X.shape[1]):
                    D = X[self.head[edges]] - X[self.tail[edges]]
                    weighted = self.weight[edges, None] * D
                    gram += weighted.T @ D
                    cross += weighted.T @ self.z[edges, None]
        gram = (gram + gram.T) / 2
        clear_rounding(gram, cross, squares)
        if self.covariates is None:
            return gram, cross, mean
        C, w = self.covariates, self.weight
        ends = (np.concatenate([self.head, self.tail]), np.tile(np.arange(len(w)), 2))
        incidence = sparse.csr_array((np.concatenate([w, -w]), ends), shape=(self.n_rows, len(w)))
        beside = np.asarray(X.T @ (incidence @ C), dtype=np.float64)
        gram = np.block([[gram, beside], [beside.T, C.T @ (w[:, None] * C)]])
        cross = np.vstack([cross, (C.T @ (w * self.z))[:, None]])
        return gram, cross, np.append(mean, np.zeros(C.shape[1]))

    def factor(self) -> Factor:
        """A factor with independent columns, at most one for each row."""
        return GroundedFactor(self.matrix.toarray(), self.r, self.components())

    def degree(self) -> Array:
        """Σ w² of the edges of a row."""
        m, w = self.n_rows, self.weight
        return sums(self.head, w, m) + sums(self.tail, w, m)

    def row_weight(self) -> Array:
        """One for the ends of edges."""
        weight = np.zeros(self.n_rows)
        weight[self.head] = weight[self.tail] = 1.0
        return weight

    def links(self) -> sparse.coo_array:
        """Every edge is a group of its two ends."""
        used = np.flatnonzero(self.weight > 0)
        ends = np.concatenate([self.head[used], self.tail[used]])
        groups = np.tile(np.arange(len(used)), 2)
        return sparse.coo_array((np.ones(len(ends)), (ends, groups)), (self.n_rows, len(used)))


class SumLaplacian(_Quadratic):
    """Scores and pairs together, with the sums of their L, r and energies."""

    def __init__(self, scored: Laplacian, edges: EdgeLaplacian) -> None:
        self.scored, self.edges = scored, edges
        self.r, self.energy = scored.r + edges.r, scored.energy + edges.energy
        self.outputs, self.n_pairs = scored.outputs, scored.n_pairs + edges.n_pairs
        self.log_weight = scored.log_weight + edges.log_weight

    def apply(self, V: Array) -> Array:
        """L₁V + L₂V."""
        return self.scored.apply(V) + self.edges.apply(V)

    def moments(self, X: Any) -> tuple[Array, Array, Array]:
        """The sums of both parts."""
        (more, added, _), (gram, cross, mean) = self.scored.moments(X), self.edges.moments(X)
        n, cross = X.shape[1], np.repeat(cross, added.shape[1], axis=1)
        gram[:n, :n] += more
        cross[:n] += added
        mean[:n] = _weighted_mean(self.row_weight(), X)
        return gram, cross, mean

    def factor(self) -> Factor:
        """A Cholesky factor of L₁ + L₂."""
        return GroundedFactor(self.apply(np.eye(self.n_rows)), self.r, self.components())

    def degree(self) -> Array:
        """The sum of both."""
        return self.scored.degree() + self.edges.degree()

    def row_weight(self) -> Array:
        """The larger of both."""
        return np.maximum(self.scored.row_weight(), self.edges.row_weight())

    def links(self) -> sparse.coo_array:
        """The groups of both."""
        return sparse.hstack([self.scored.links(), self.edges.links()]).tocoo()


Laplacian = CentredLaplacian | EdgeLaplacian | SumLaplacian


def lost_to_heavy_edges(laplacian: Laplacian) -> float:
    """Relative rounding error of what light edges determine beside heavy ones."""
    degree = laplacian.degree()
    lost = EPS * float(degree.max(initial=0.0) / degree[degree > 0].min(initial=np.inf))
    if isinstance(laplacian, SumLaplacian):
        return max(lost, *map(lost_to_heavy_edges, (laplacian.scored, laplacian.edges)))
    if isinstance(laplacian, CentredLaplacian):
        between = laplacian.between
        return lost if between is None else max(lost, lost_to_heavy_edges(between))
    heavy, m = ~laplacian.outweighed, laplacian.n_rows
    if heavy.all():
        return lost
    ends = (laplacian.head[heavy], laplacian.tail[heavy])
    kept = sparse.csr_array((laplacian.weight[heavy], ends), shape=(m, m))
    if connected_components(kept)[0] == connected_components(laplacian.matrix)[0]:
        return lost
    weight = laplacian.weight[laplacian.outweighed]
    light = EPS * float(laplacian.weight.max()) * min(m, len(weight)) / float(weight.sum())
    return max(lost, light)


def _weighted_squares(weight: Array, X: Array) -> Array:
    """Σ_i weight_i x_i² for every column, shape (n,), a block of rows at a time."""
    total = np.zeros(X.shape[1])
    for block in row_blocks(*X.shape):
        total += weight[block] @ np.square(X[block], dtype=np.float64)
    return total


def _weighted_mean(weight: Array, rows: Any) -> Array:
    """Σ_i weight_i rows_i / Σ weight in float64, shape (n,), zero without weight."""
    share = weight / (weight.sum() or 1.0)
    if sparse.issparse(rows) or rows.dtype == np.float64:
        return np.asarray(share @ rows).ravel()
    mean = np.zeros(rows.shape[1])
    for block in row_blocks(*rows.shape):
        mean += share[block] @ rows[block].astype(np.float64)
    return mean


# -- factors L = F Fᵀ ------------------------------------------------------------------------


class Factor:
    """F of shape (m, p), by its products ``matmat`` F B and ``rmatmat`` FᵀV, and t with F t = r.

    ``row_of``, of shape (p,), is a row for each coordinate (column of F) such that the column is
    zero outside the connected component of that row; F and t are block-diagonal by component.
    """

    t: Array
    matmat: Any
    rmatmat: Any

    def __init__(self, n_rows: int, row_of: Array) -> None:
        self.shape, self.row_of = (n_rows, len(row_of)), row_of

    def null(self) -> sparse.csr_array:
        """Orthonormal columns that span F's null space, shape (p, c), each in one component."""
        return sparse.csr_array((self.shape[1], 0))

    def rows_of(self, Phi: Any) -> Callable[[Array], Array]:
        """Return a function from coordinates to rows of FᵀΦ, in float64, for Φ dense or sparse."""
        whole = self.rmatmat(_dense(Phi))
        return lambda coordinates: whole[coordinates]

    def recover(self, M: Array) -> Array | None:
        """V with FᵀV = M up to a constant for each component; None if that needs a linear solve."""
        return None

    def sandwich(self, K: Array) -> Array:
        """FᵀKF of shape (p, p) for a symmetric K of shape (m, m), which may be overwritten."""
        m, p = self.shape
        if m != p:
            return self.rmatmat(np.ascontiguousarray(self.rmatmat(K).T))
        # In place, a block of columns at a time: FᵀK, then Fᵀ(FᵀK)ᵀ.
        for target in (K, K.T):
            for start in range(0, m, 512):
                columns = slice(start, start + 512)
                target[:, columns] = self.rmatmat(target[:, columns])
        return K


class ScatterFactor(Factor):
    """F = diag(√(κω)) (I − uuᵀ) in each group, u = √(ω/Ω), which is symmetric in √ω-coordinates.

    With the factor ``between`` of a Laplacian over the groups, F has the term Pᵀ F_between Uᵀ. The
    two act on orthogonal spaces, for the isometry U_ia = √(ω_i/Ω_a) from groups to rows.
    """

    def __init__(
        self, groups: Groups, kappa: Array, s: Array | None, between: Factor | None = None
    ) -> None:
        super().__init__(len(groups), np.arange(len(groups)))
        self.groups, self.between = groups, between
        self.embedding: Any = None
        self.root = np.sqrt(kappa[groups.codes] * groups.weight)[:, None]
        if between is None:
            assert s is not None
            self.t = self.rmatmat(s)
        else:
            # A coordinate of a group is mapped to the rows of the group that owns it.
            self.embedding = groups.isometry[:, between.row_of]
            self.t = self.embedding @ between.t

    def rmatmat(self, V: Array) -> Array:
        """FᵀV, shape (p, k)."""
        if self.between is None:
            return self.root * self.groups.deviations(V)
        means = self.groups.mean(V)
        deviations = (V - means[self.groups.codes]) * self.root
        return deviations + self.embedding @ self.between.rmatmat(means)

    def matmat(self, B: Array) -> Array:
        """F B, shape (m, k)."""
        U = self.groups.isometry
        within = self.root * (B - U @ (U.T @ B))
        if self.between is None:
            return within
        pooled = self.between.matmat(self.embedding.T @ B)
        return within + self.groups.shares.data[:, None] * pooled[self.groups.codes]

    def rows_of(self, Phi: Any) -> Callable[[Array], Array]:
        """√(κω) (φ − φ̄), and the rows of the factor of the groups."""
        means, codes = self.groups.mean(Phi), self.groups.codes
        pooled = None if self.between is None else self.between.rmatmat(_dense(means))

        def rows(coordinates: Array) -> Array:
            deviations = _dense(Phi[coordinates]) - _dense(means[codes[coordinates]])
            deviations *= self.root[coordinates]
            if pooled is not None:
                deviations += self.embedding[coordinates] @ pooled
            return deviations

        return rows

    def recover(self, M: Array) -> Array | None:
        """M/√(κω); the value is arbitrary in groups without edges."""
        if self.groups.weighted or self.between is not None:
            return None
        return np.divide(M, self.root, out=np.zeros_like(M), where=self.root > 0)

    def null(self) -> sparse.csr_array:
        """Coordinates without an edge, and u of groups with edges, or what their factor omits."""
        root, U = self.root[:, 0], self.groups.isometry
        idle = np.flatnonzero(root == 0)
        units = (np.ones(len(idle)), (idle, np.arange(len(idle))))
        parts = [sparse.csr_array(units, shape=(len(root), len(idle)))]
        active = np.flatnonzero(sums(self.groups.codes, root, self.groups.n_groups) > 0)
        if self.between is None:
            return sparse.hstack([*parts, U[:, active]]).tocsr()
        row_of, levels = self.between.row_of, self.between.null().tocsc()
        inside = np.isin(row_of, active)
        used = np.asarray(abs(levels[inside]).sum(axis=0)).ravel() > 0
        parts += [U[:, np.setdiff1d(active, row_of)], self.embedding @ levels[:, used]]
        return sparse.hstack(parts).tocsr()


class GroundedFactor(Factor):
    """F of any Laplacian by grounding one vertex per component: L_gg = R Rᵀ, F = [R; −1ᵀR]."""

    def __init__(self, L: Array, r: Array, component: Array) -> None:
        m = L.shape[0]
        # The vertex of largest degree is the ground of its component.
        order = np.argsort(-np.diagonal(L), kind="stable")
        ground_of = np.full(component.max() + 1 if m else 0, -1)
        ground_of[component[order[::-1]]] = order[::-1]
        self.grounded = ground_of[component]
        self.free = np.flatnonzero(self.grounded != np.arange(m))
        super().__init__(m, self.free)
        self.R, self.t = L[np.ix_(self.free, self.free)], r[self.free]
        if len(self.free):  # older versions of SciPy do not accept empty matrices
            try:
                self.R = cholesky(self.R, lower=True, check_finite=False)
            except LinAlgError:
                raise ValueError(
                    "the weights of the preferences differ by so many orders of magnitude that "
                    "light ones are lost in rounding; use weights (or for cost='relative' scores "
                    "and magnitudes) of a smaller range, or leave the light ones out"
                ) from None
            self.t = solve_triangular(self.R, self.t, lower=True, check_finite=False)

    def matmat(self, B: Array) -> Array:
        """F B, shape (m, k)."""
        flow = self.R @ B
        out = np.zeros((self.shape[0], B.shape[1]), dtype=flow.dtype)
        out[self.free] = flow
        np.subtract.at(out, self.grounded[self.free], flow)
        return out

    def rmatmat(self, V: Array) -> Array:
        """FᵀV, shape (p, k)."""
        differences = V[self.free] - V[self.grounded[self.free]]
        return np.ascontiguousarray(blas.dtrmm(1.0, self.R, differences, lower=1, trans_a=1))


def _dense(V: Any) -> Array:
    """V in double precision, as an ndarray."""
    return np.asarray(V.toarray() if sparse.issparse(V) else V, dtype=np.float64)
