"""The quadratic form fᵀ L f − 2 fᵀ r + const of scores or pairs and a cost.

A cost gives an edge of magnitude d its target z(d) and weight w²(d). Scores give an edge of
magnitude s_i − s_j to every pair of a query, weighted by c ω_i ω_j with c the query's weighting.

A `Laplacian` provides products with L, the normal equations of explicit features, and an exact
factor L = F Fᵀ to the solvers. Four kinds are sufficient for all costs:

- `CentredLaplacian`: all rows of a group against each other (ties kept, or no ties);
- `PooledLaplacian`: rows of equal score pooled, and a Laplacian over the pools (ties dropped);
- `EdgeLaplacian`: an explicit list of edges (given pairs, or pairs of levels);
- `SumLaplacian`: scores and pairs together.

All of them cost O(m) for each column, for rows in any order.

A dual solution is A = F (FᵀKF + alpha I)⁻¹ t for *any* `Factor` L = F Fᵀ with F t = r, because
(F FᵀK + alpha I) F B = F (FᵀKF + alpha I) B = F t = r. Each factor is chosen such that F has at
most m columns if possible, is applied in O(m) per column if the preferences have structure, and
annihilates constants exactly if L does (Fᵀ1 = 0).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, blas, cholesky, solve_triangular
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator

from rankrls.core.preferences.costs import Cost, Loss
from rankrls.core.preferences.query_weights import (
    CANCELLED,
    Groups,
    Levels,
    QueryWeights,
    centre_columns,
    clear_rounding,
    row_blocks,
    sums,
)

__all__ = [
    "CentredLaplacian",
    "Covariates",
    "EdgeLaplacian",
    "Factor",
    "GroundedFactor",
    "IncidenceFactor",
    "Laplacian",
    "Objective",
    "PooledFactor",
    "PooledLaplacian",
    "ScatterFactor",
    "StackedFactor",
    "SumLaplacian",
    "add",
    "from_edges",
    "from_scores",
]

Array = NDArray[Any]
EPS = float(np.finfo(np.float64).eps)


class Moments(NamedTuple):
    """The normal equations of explicit features Φ of shape (m, n), in float64.

    ``gram`` = ΦᵀLΦ of shape (n, n), ``cross`` = Φᵀr of shape (n, k), and ``mean``, the mean row of
    shape (n,) over the rows that have an edge, with their weights.
    """

    gram: Array
    cross: Array
    mean: Array


class Laplacian(ABC):
    """L and r of a preference graph over m rows, for k outputs that share L.

    Attributes
    ----------
    r : ndarray of shape (m, k)
        r = Σ_edges w² z (e_h − e_j).
    energy : ndarray of shape (k,)
        Σ_edges w² z², the constant of the objective.

    If all outputs have the same target, r and energy have a single column.
    """

    r: Array
    energy: Array

    @property
    def n_rows(self) -> int:
        """Number m of rows (vertices)."""
        return self.r.shape[0]

    @property
    def L(self) -> LinearOperator:
        """The Laplacian as a SciPy ``LinearOperator`` of shape (m, m)."""
        return LinearOperator(
            (self.n_rows, self.n_rows),
            matvec=lambda v: self.apply(np.reshape(v, (-1, 1)))[:, 0],
            matmat=self.apply,
            rmatvec=lambda v: self.apply(np.reshape(v, (-1, 1)))[:, 0],
            rmatmat=self.apply,
            dtype=np.float64,
        )

    @abstractmethod
    def apply(self, V: Array) -> Array:
        """L V, shape (m, k)."""

    @abstractmethod
    def moments(self, X: Any) -> Moments:
        """The normal equations of explicit features X, dense or sparse, of shape (m, n)."""

    @abstractmethod
    def factor(self) -> Factor:
        """F and t with F Fᵀ = L and F t = r."""

    def independent_factor(self) -> Factor:
        """A factor whose null space is known."""
        return self.factor()

    @abstractmethod
    def degree(self) -> Array:
        """The diagonal of L, shape (m,)."""

    @abstractmethod
    def row_weight(self) -> Array:
        """Weight of each row that has an edge, zero for the others, shape (m,)."""

    def lost_digits(self, n_features: int | None) -> float:
        """Relative rounding error of what light edges determine; 0 if weights are similar.

        ``n_features`` is None for a kernel.
        """
        return 0.0

    @abstractmethod
    def links(self) -> sparse.coo_array:
        """A sparse m × h incidence of rows and groups: rows that share a group are connected."""

    def components(self) -> Array:
        """Index of the connected component of each row, shape (m,)."""
        links = self.links()
        adjacency = sparse.block_array([[None, links], [links.T, None]])
        return connected_components(adjacency, directed=False)[1][: self.n_rows]


class CentredLaplacian(Laplacian):
    """Σ_a κ_a Σ_{i∈a} ω_i (f_i − f̄_a)², which compares all rows of each group.

    For equal magnitudes w_ij = c ω_i ω_j the pairs of a group add up to c N times its scatter,
    so κ = c N. The target is r = L s for scores s of shape (m, k).
    """

    def __init__(self, groups: Groups, kappa: Array, s: Array) -> None:
        self.groups = groups
        self.kappa = kappa
        self.scale = kappa[groups.codes] * groups.weight
        self.s = groups.deviations(s)
        self.r = self.scale[:, None] * self.s
        self.energy = np.einsum("ij,ij->j", self.s, self.r)

    def apply(self, V: Array) -> Array:
        """κ ω (v − v̄)."""
        return self.scale[:, None] * self.groups.deviations(V)

    def moments(self, X: Any) -> Moments:
        """Rows centred by group, then multiplied."""
        means = self.groups.mean(X)
        gram, cross = self.groups.scatter(X, means, self.scale, self.r)
        mean = _weighted_mean(self.groups.total * (self.kappa > 0), means)
        return Moments(gram, cross, mean)

    def factor(self) -> Factor:
        """F = diag(√(κω))(I − uuᵀ), u_i = √(ω_i/Ω), and t = Fᵀ s."""
        return ScatterFactor(self.groups, self.kappa, self.s)

    def degree(self) -> Array:
        """κ ω (1 − ω/Ω)."""
        return self.scale * (1 - self.groups.share)

    def row_weight(self) -> Array:
        """ω in groups with κ > 0."""
        return np.where(self.scale > 0, self.groups.weight, 0.0)

    def components(self) -> Array:
        """The groups with κ > 0; each row without an edge is a separate component."""
        idle = np.flatnonzero(self.scale == 0)
        component = self.groups.codes.copy()
        component[idle] = self.groups.n_groups + np.arange(len(idle))
        return component

    def links(self) -> sparse.coo_array:
        """Each group with κ > 0."""
        used = np.flatnonzero(self.scale > 0)
        return sparse.coo_array(
            (np.ones(len(used)), (used, self.groups.codes[used])),
            shape=(self.n_rows, self.groups.n_groups),
        )


class PooledLaplacian(Laplacian):
    """Rows of equal score pooled into levels: within-level scatter plus a Laplacian of the levels.

    With f̄_a the mean of level a, the pairs between two levels add up to

        Σ_{i∈a, j∈b} ω_i ω_j (z − (f_i − f_j))²
            = Ω_b scatter(a) + Ω_a scatter(b) + Ω_a Ω_b (z − (f̄_a − f̄_b))²,

    a sum of non-negative terms without cancellation. So L = scatter + Pᵀ L_levels P.
    """

    def __init__(self, groups: Groups, kappa: Array, between: Laplacian) -> None:
        self.groups = groups
        self.kappa = kappa
        self.scale = kappa[groups.codes] * groups.weight
        self.between = between
        self.r = groups.share[:, None] * between.r[groups.codes]
        self.energy = between.energy

    def apply(self, V: Array) -> Array:
        """κ ω (v − v̄_a) + Pᵀ L_levels P v."""
        means = self.groups.mean(V)
        codes = self.groups.codes
        pooled = self.between.apply(means)
        return self.scale[:, None] * (V - means[codes]) + self.groups.share[:, None] * pooled[codes]

    def moments(self, X: Any) -> Moments:
        """Within-level Gram matrix plus the normal equations of the level means."""
        means = self.groups.mean(X)
        within, _ = self.groups.scatter(X, means, self.scale, np.zeros((self.n_rows, 0)))
        between = self.between.moments(means)
        mean = _weighted_mean(self.groups.total * (self.kappa > 0), means)
        return Moments(within + between.gram, between.cross, mean)

    def factor(self) -> Factor:
        """A single square factor, since the within and between parts are orthogonal."""
        return PooledFactor(self.groups, self.kappa, self.between.independent_factor())

    def degree(self) -> Array:
        """κ ω (1 − ω/Ω), and the part (ω/Ω)² of the level's degree."""
        share, codes = self.groups.share, self.groups.codes
        return self.scale * (1 - share) + share**2 * self.between.degree()[codes]

    def lost_digits(self, n_features: int | None) -> float:
        """Those of the levels."""
        return self.between.lost_digits(n_features)

    def row_weight(self) -> Array:
        """ω in levels that are compared with another level."""
        return np.where(self.scale > 0, self.groups.weight, 0.0)

    def links(self) -> sparse.coo_array:
        """The groups of the levels, as groups of rows."""
        used = np.flatnonzero(self.groups.weight > 0)
        rows = sparse.csr_array(
            (np.ones(len(used)), (used, self.groups.codes[used])),
            shape=(self.n_rows, self.groups.n_groups),
        )
        return (rows @ self.between.links().tocsr()).tocoo()


class EdgeLaplacian(Laplacian):
    """An explicit multigraph: edges (head, tail) with weight w² and target z, in any number."""

    def __init__(self, head: Array, tail: Array, weight: Array, z: Array, n_rows: int) -> None:
        self.head, self.tail, self.weight, self.z = head, tail, weight, z
        flow = weight * z
        self.energy = np.array([float(flow @ z)])
        self.r = (sums(head, flow, n_rows) - sums(tail, flow, n_rows))[:, None]

    @cached_property
    def adjacency(self) -> sparse.csr_array:
        """The weights of the edges as a sparse matrix of shape (m, m), (head, tail) only."""
        shape = (self.n_rows, self.n_rows)
        return sparse.csr_array((self.weight, (self.head, self.tail)), shape=shape)

    @cached_property
    def matrix(self) -> sparse.csr_array:
        """L as a sparse matrix of shape (m, m)."""
        diagonal = sparse.diags_array(self.degree())
        return (diagonal - self.adjacency - self.adjacency.T).tocsr()

    def apply(self, V: Array) -> Array:
        """The sparse product L V; a single column is multiplied as a vector, which is faster."""
        if V.shape[1] == 1:
            return (self.matrix @ V[:, 0])[:, None]
        return self.matrix @ V

    def moments(self, X: Any) -> Moments:
        """Xᵀ(L X), or sums over differences of rows if that would cancel."""
        mean = _weighted_mean(self.row_weight(), X)
        eps, degree = float(np.finfo(X.dtype).eps), self.degree()
        if sparse.issparse(X):
            gram, cross = (X.T @ (self.matrix @ X)).toarray(), X.T @ self.r
            squares = X.multiply(X).T @ degree

            def deviations(D: Array) -> Array:
                return self._components.deviations(D)

            centre_columns(gram, cross, squares, X, deviations, lambda D: self.matrix @ D, self.r)
        else:
            squares = _weighted_squares(degree, X)
            D = X - mean.astype(X.dtype)
            A = self.adjacency.astype(X.dtype, copy=False)
            LD = degree.astype(X.dtype)[:, None] * D - A @ D - A.T @ D
            gram, cross = (D.T @ LD).astype(np.float64), (D.T @ self.r).astype(np.float64)
            uneven = bool(self._light.any())
            if uneven or (gram.diagonal() < CANCELLED * _weighted_squares(degree, D)).any():
                gram, cross = self._sums_of_differences(X)
        gram = (gram + gram.T) / 2
        clear_rounding(gram, cross, squares, eps)
        return Moments(gram, cross, mean)

    @property
    def _light(self) -> Array:
        """Edges of small weight compared with the largest one, shape (l,), bool."""
        return self.weight * UNEVEN < self.weight.max(initial=0.0)

    def lost_digits(self, n_features: int | None) -> float:
        """Rounding error of the heaviest edge relative to the light edges.

        They do not matter if the other edges are enough to determine all features, or connect the
        same rows.
        """
        light, m = self._light, self.n_rows
        if not light.any():
            return 0.0
        kept = sparse.csr_array((self.weight * ~light, (self.head, self.tail)), shape=(m, m))
        kept.eliminate_zeros()
        if n_features is not None and np.count_nonzero(~light) >= n_features:
            return 0.0
        if connected_components(kept)[0] == self._components.n_groups:
            return 0.0
        weight = self.weight[light]
        share = min(m if n_features is None else n_features, len(weight)) / float(weight.sum())
        return EPS * float(self.weight.max()) * share

    def _sums_of_differences(self, X: Array) -> tuple[Array, Array]:
        """Σ w² d dᵀ and Σ w² z d over the edges, d = x_h − x_j, a block of edges at a time."""
        n = X.shape[1]
        gram, cross = np.zeros((n, n)), np.zeros((n, 1))
        for edges in row_blocks(len(self.weight), n):
            D = X[self.head[edges]] - X[self.tail[edges]]
            weighted = self.weight[edges, None] * D
            gram += weighted.T @ D
            cross += weighted.T @ self.z[edges, None]
        return gram, cross

    @cached_property
    def _components(self) -> Groups:
        """The connected components; each row without an edge is a separate component."""
        number = connected_components(self.matrix, directed=False)[1]
        return Groups(number, None, int(number.max(initial=-1)) + 1)

    def factor(self) -> Factor:
        """The incidence matrix if there are few edges, otherwise a Cholesky factor of L."""
        n_ends = self.row_weight().sum()
        edges = self.head, self.tail, self.weight, self.z
        if len(self.weight) > n_ends:
            edges = _merge_edges(*edges, self.n_rows)
        if len(edges[0]) > n_ends:
            return self.independent_factor()
        return IncidenceFactor(*edges, self.n_rows)

    def independent_factor(self) -> Factor:
        """A factor with independent columns, at most one for each row."""
        return GroundedFactor(self.matrix.toarray(), self.r, self.links())

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


class SumLaplacian(Laplacian):
    """Scores and pairs together, with the sums of their L, r and energies."""

    def __init__(self, scored: Laplacian, edges: EdgeLaplacian) -> None:
        self.scored = scored
        self.edges = edges
        self.r = scored.r + edges.r
        self.energy = scored.energy + edges.energy

    def apply(self, V: Array) -> Array:
        """L₁V + L₂V."""
        return self.scored.apply(V) + self.edges.apply(V)

    def moments(self, X: Any) -> Moments:
        """The sums of both parts."""
        first, second = self.scored.moments(X), self.edges.moments(X)
        mean = _weighted_mean(self.row_weight(), X)
        return Moments(first.gram + second.gram, first.cross + second.cross, mean)

    def factor(self) -> Factor:
        """[F₁ F₂] if there are few pairs, otherwise a Cholesky factor of L₁ + L₂."""
        if len(self.edges.weight) <= self.n_rows // 4:
            return StackedFactor(self.scored.factor(), self.edges.factor())
        return self.independent_factor()

    def independent_factor(self) -> Factor:
        """A Cholesky factor of L₁ + L₂."""
        return GroundedFactor(self.apply(np.eye(self.n_rows)), self.r, self.links())

    def degree(self) -> Array:
        """The sum of both."""
        return self.scored.degree() + self.edges.degree()

    def lost_digits(self, n_features: int | None) -> float:
        """The larger of both."""
        return max(self.scored.lost_digits(n_features), self.edges.lost_digits(n_features))

    def row_weight(self) -> Array:
        """The larger of both."""
        return np.maximum(self.scored.row_weight(), self.edges.row_weight())

    def links(self) -> sparse.coo_array:
        """The groups of both."""
        return sparse.hstack([self.scored.links(), self.edges.links()]).tocoo()


def _merge_edges(
    head: Array, tail: Array, weight: Array, z: Array, n_rows: int
) -> tuple[Array, Array, Array, Array]:
    """Merge all edges between two rows into one edge low → high, with Σw² and the mean target."""
    flip = head > tail
    low, high = np.where(flip, tail, head), np.where(flip, head, tail)
    key, edge = np.unique(low * np.int64(n_rows) + high, return_inverse=True)
    total = sums(edge, weight, len(key))
    flow = sums(edge, np.where(flip, -z, z) * weight, len(key))
    low, high = np.divmod(key, np.int64(n_rows))
    return low, high, total, flow / total


def _weighted_squares(weight: Array, X: Array) -> Array:
    """Σ_i weight_i x_i² for every column, shape (n,), a block of rows at a time."""
    total = np.zeros(X.shape[1])
    for block in row_blocks(*X.shape):
        total += weight[block] @ np.square(X[block], dtype=np.float64)
    return total


def _weighted_mean(weight: Array, rows: Any) -> Array:
    """Σ_i weight_i rows_i / Σ weight, shape (n,), zero without weight; sparse rows stay sparse."""
    share = weight / (weight.sum() or 1.0)
    return np.asarray(share.astype(rows.dtype) @ rows, dtype=np.float64).ravel()


#: Edges are light if their weight is less than the largest one divided by this.
UNEVEN = 1e6

#: Maximum number of pairs of distinct scores of a query for a cost without a closed form (about
#: 4500 distinct scores in one query).
MAX_LEVEL_PAIRS = 10_000_000


# -- factors L = F Fᵀ ------------------------------------------------------------------------


class Factor(LinearOperator):
    """F of shape (m, p) as a ``LinearOperator``.

    Attributes
    ----------
    t : ndarray of shape (p, k)
        F t = r.
    owner : ndarray of shape (p,), int
        A row for each coordinate (column of F) such that the column is zero outside the connected
        component of that row; F and t are block-diagonal by component.
    """

    t: Array
    owner: Array

    def __init__(self, n_rows: int, owner: Array) -> None:
        super().__init__(np.dtype(np.float64), (n_rows, len(owner)))
        self.owner = owner

    def _matvec(self, b: Array) -> Array:
        return self._matmat(np.reshape(b, (-1, 1)))

    def _rmatvec(self, v: Array) -> Array:
        return self._rmatmat(np.reshape(v, (-1, 1)))

    def null(self) -> sparse.csr_array:
        """Orthonormal columns that span the null space of F, shape (p, c), each in one component.

        Known for the factors of `Laplacian.independent_factor`: scatter, pooled, grounded.
        """
        raise TypeError(f"the null space of a {type(self).__name__} is not known")

    def rows_of(self, Phi: Any) -> Callable[[Array], Array]:
        """Return a function from coordinates to rows of FᵀΦ, dense and in double precision.

        Φ, dense or sparse, has shape (m, n). Shared quantities (means) are computed once; FᵀΦ is
        not formed as a whole if the factor has structure.
        """
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
    """F = diag(√(κω)) (I − uuᵀ) in each group, u = √(ω/Ω), which is symmetric in √ω-coordinates."""

    def __init__(self, groups: Groups, kappa: Array, s: Array) -> None:
        super().__init__(len(groups), np.arange(len(groups)))
        self.groups = groups
        self.root = np.sqrt(kappa[groups.codes] * groups.weight)[:, None]
        self.t = self._rmatmat(s)

    def _rmatmat(self, V: Array) -> Array:
        return self.root * self.groups.deviations(V)

    def _matmat(self, B: Array) -> Array:
        U = self.groups.isometry
        return self.root * (B - U @ (U.T @ B))

    def rows_of(self, Phi: Any) -> Callable[[Array], Array]:
        """√(κω) (φ − φ̄)."""
        means, codes, root = self.groups.mean(Phi), self.groups.codes, self.root

        def rows(coordinates: Array) -> Array:
            deviations = _dense(Phi[coordinates]) - _dense(means[codes[coordinates]])
            deviations *= root[coordinates]
            return deviations

        return rows

    def recover(self, M: Array) -> Array | None:
        """M/√(κω); the value is arbitrary in groups without edges."""
        if self.groups.weighted:
            return None
        return np.divide(M, self.root, out=np.zeros_like(M), where=self.root > 0)

    def null(self) -> sparse.csr_array:
        """u of each group that has edges, and each coordinate that has none."""
        return sparse.hstack([self._idle(), self.groups.isometry[:, self._active()]]).tocsr()

    def _active(self) -> Array:
        """Groups with edges."""
        return np.flatnonzero(sums(self.groups.codes, self.root[:, 0], self.groups.n_groups) > 0)

    def _idle(self) -> sparse.csr_array:
        """Unit vectors of the coordinates of rows without an edge."""
        idle = np.flatnonzero(self.root[:, 0] == 0)
        shape = (len(self.root), len(idle))
        return sparse.csr_array((np.ones(len(idle)), (idle, np.arange(len(idle)))), shape=shape)


class PooledFactor(Factor):
    """Within-level scatter and the factor of the levels in one square F.

    In √ω-coordinates the two parts act on orthogonal spaces, so with U the isometry
    U_ia = √(ω_i/Ω_a) from levels to rows, F = scatter factor + Pᵀ F_levels Uᵀ has F Fᵀ = L.
    """

    def __init__(self, groups: Groups, kappa: Array, between: Factor) -> None:
        m = len(groups)
        super().__init__(m, np.arange(m))
        self.groups = groups
        self.between = between
        self.within = ScatterFactor(groups, kappa, np.zeros((m, between.t.shape[1])))
        # A coordinate of the levels is mapped to the rows of the level that owns it.
        self.embedding = groups.isometry[:, between.owner]
        self.t = self.embedding @ between.t

    def _rmatmat(self, V: Array) -> Array:
        means = self.groups.mean(V)
        deviations = (V - means[self.groups.codes]) * self.within.root
        return deviations + self.embedding @ self.between.rmatmat(means)

    def _matmat(self, B: Array) -> Array:
        pooled = self.between.matmat(self.embedding.T @ B)
        return self.within.matmat(B) + self.groups.share[:, None] * pooled[self.groups.codes]

    def rows_of(self, Phi: Any) -> Callable[[Array], Array]:
        """Deviations from the level mean, and the rows of the factor of the levels."""
        means, codes = self.groups.mean(Phi), self.groups.codes
        root, embedding = self.within.root, self.embedding
        between = self.between.rmatmat(_dense(means))

        def rows(coordinates: Array) -> Array:
            deviations = _dense(Phi[coordinates]) - _dense(means[codes[coordinates]])
            deviations *= root[coordinates]
            deviations += embedding[coordinates] @ between
            return deviations

        return rows

    def null(self) -> sparse.csr_array:
        """Level coordinates that the levels' factor omits or maps to zero, in terms of rows."""
        active = self.within._active()
        beyond = np.setdiff1d(active, self.between.owner)
        levels = self.between.null().tocsc()
        inside = np.isin(self.between.owner, active)
        used = np.asarray(abs(levels[inside]).sum(axis=0)).ravel() > 0
        parts = [self.within._idle(), self.groups.isometry[:, beyond]]
        return sparse.hstack([*parts, self.embedding @ levels[:, used]]).tocsr()


class IncidenceFactor(Factor):
    """F = M, one column w(e_h − e_j) per edge, and t = w z."""

    def __init__(self, head: Array, tail: Array, weight: Array, z: Array, n_rows: int) -> None:
        super().__init__(n_rows, head)
        w = np.sqrt(weight)
        edges = np.arange(len(w))
        plus = sparse.coo_array((w, (head, edges)), self.shape)
        minus = sparse.coo_array((w, (tail, edges)), self.shape)
        self.incidence = (plus - minus).tocsr()
        self.t = (w * z)[:, None]

    def _matmat(self, B: Array) -> Array:
        return self.incidence @ B

    def _rmatmat(self, V: Array) -> Array:
        return self.incidence.T @ V


class GroundedFactor(Factor):
    """F of any Laplacian by grounding one vertex per component: L_gg = R Rᵀ, F = [R; −1ᵀR].

    Parameters
    ----------
    L : ndarray of shape (m, m)
    r : ndarray of shape (m, k)
    links : sparse array of shape (m, h)
        Rows that share a group (column) are connected.
    """

    def __init__(self, L: Array, r: Array, links: sparse.coo_array) -> None:
        m = L.shape[0]
        adjacency = sparse.block_array([[None, links], [links.T, None]])
        component = connected_components(adjacency, directed=False)[1][:m]
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

    def null(self) -> sparse.csr_array:
        """Empty, because the columns are independent."""
        return sparse.csr_array((self.shape[1], 0))

    def _matmat(self, B: Array) -> Array:
        flow = self.R @ B
        out = np.zeros((self.shape[0], B.shape[1]), dtype=flow.dtype)
        out[self.free] = flow
        np.subtract.at(out, self.grounded[self.free], flow)
        return out

    def _rmatmat(self, V: Array) -> Array:
        differences = V[self.free] - V[self.grounded[self.free]]
        return np.ascontiguousarray(blas.dtrmm(1.0, self.R, differences, lower=1, trans_a=1))


def _dense(V: Any) -> Array:
    """V in double precision, as an ndarray."""
    return np.asarray(V.toarray() if sparse.issparse(V) else V, dtype=np.float64)


class StackedFactor(Factor):
    """F = [F₁ F₂] for L = L₁ + L₂, t = [t₁; t₂]."""

    def __init__(self, first: Factor, second: Factor) -> None:
        super().__init__(first.shape[0], np.concatenate([first.owner, second.owner]))
        self.first = first
        self.second = second
        k = max(first.t.shape[1], second.t.shape[1])
        self.t = np.vstack([np.broadcast_to(f.t, (f.t.shape[0], k)) for f in (first, second)])

    def _matmat(self, B: Array) -> Array:
        p = self.first.shape[1]
        return self.first.matmat(B[:p]) + self.second.matmat(B[p:])

    def _rmatmat(self, V: Array) -> Array:
        return np.vstack([self.first.rmatmat(V), self.second.rmatmat(V)])


# -- objectives ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Covariates:
    """Terms of the normal equations for covariates c of the edges, z ≈ f_h − f_j + cᵀγ.

    Attributes
    ----------
    flow : sparse array of shape (m, q)
        Σ_edges w² (e_h − e_j) cᵀ; Φᵀ flow is the block next to ΦᵀLΦ.
    gram : ndarray of shape (q, q)
        Σ_edges w² c cᵀ.
    cross : ndarray of shape (q,)
        Σ_edges w² z c.
    """

    flow: Any
    gram: Array
    cross: Array

    @classmethod
    def of(cls, pairs: Array, weight: Array, z: Array, C: Array, n_rows: int) -> Covariates:
        """Compute the terms from the edges (head, tail)."""
        ends, edges = pairs.T.ravel(), np.tile(np.arange(len(pairs)), 2)
        signs = np.concatenate([weight, -weight])
        incidence = sparse.csr_array((signs, (ends, edges)), shape=(n_rows, len(pairs)))
        return cls(incidence @ C, C.T @ (weight[:, None] * C), C.T @ (weight * z))


@dataclass(frozen=True)
class Objective:
    """The data term of the objective for the outputs that share one preference graph.

    Attributes
    ----------
    laplacian : Laplacian
        L and r (one column for each of ``outputs``).
    outputs : ndarray of int
        The columns of y to which it applies.
    n_pairs : int
        Number of edges, including ties if they are kept.
    log_weight : float
        Σ_edges log w², for the marginal likelihood.
    covariates : Covariates or None
        Covariates of given pairs.
    """

    laplacian: Laplacian
    outputs: Array
    n_pairs: int
    log_weight: float
    covariates: Covariates | None = None

    @property
    def energy(self) -> Array:
        """Σ_edges w² z², shape (k,), or (1,) if all outputs have the same target."""
        return self.laplacian.energy


def from_scores(
    s: Array, query: Array, n_queries: int, weight: Array | None, loss: Loss
) -> list[Objective]:
    """Objectives of scores ``s`` of shape (m, k), one for each group of outputs that share L."""
    cost, how = loss.of_pair, loss.query_weighting
    if loss.keeps_ties:
        weights = QueryWeights.of_rows(how, query, n_queries, weight, None)
        system = CentredLaplacian(Groups(query, weight, n_queries), weights.kappa, s)
        return [Objective(system, np.arange(s.shape[1]), weights.n_pairs, weights.log_weight)]
    objectives = []
    for levels, outputs in shared_levels(s, query, loss):
        weights = QueryWeights.of_rows(how, query, n_queries, weight, levels)
        rows = Groups(levels.codes, weight, len(levels))
        build = _between_pairs if cost.by_pairs else _between_levels
        objectives.append(build(s[:, outputs], levels, weights, rows, outputs, cost))
    return objectives


def shared_levels(s: Array, query: Array, loss: Loss) -> list[tuple[Levels, Array]]:
    """Levels of each column of s, shape (m, k), with the outputs that share them (and so L)."""
    shared: dict[bytes, tuple[Levels, list[int]]] = {}
    for j in range(s.shape[1]):
        levels = Levels.of(s[:, j], query)
        key = s[:, j].tobytes() if loss.of_pair.by_pairs else levels.codes.tobytes()
        shared.setdefault(key, (levels, []))[1].append(j)
    return [(levels, np.asarray(outputs)) for levels, outputs in shared.values()]


def _between_levels(
    s: Array, levels: Levels, weights: QueryWeights, rows: Groups, outputs: Array, cost: Cost
) -> Objective:
    """Objective of a cost with w² = 1 and a closed form, if tied pairs are dropped.

    The scores of the levels are replaced by others, ŝ, for which L ŝ = r.
    """
    g, k, energy = len(levels), s.shape[1], None
    if cost.level_scores is None:
        target = np.empty((g, k))
        target[levels.codes] = s
    else:
        one, energy = cost.level_scores(levels, weights)
        target = np.repeat(one[:, None], k, axis=1)
    kappa = weights.kappa
    system: Laplacian
    if g == len(s):
        weight = rows.weight if rows.weighted else None
        single = Groups(levels.query[levels.codes], weight, len(kappa))
        system = CentredLaplacian(single, kappa, target[levels.codes])
    else:
        pooled = Groups(levels.query, weights.Omega, len(kappa))
        between = CentredLaplacian(pooled, kappa, target)
        system = PooledLaplacian(rows, weights.level_kappa, between)
    if energy is not None:
        system.energy = np.repeat(energy, k)
    return Objective(system, outputs, weights.n_pairs, weights.log_weight)


def _between_pairs(
    s: Array, levels: Levels, weights: QueryWeights, rows: Groups, outputs: Array, cost: Cost
) -> Objective:
    """Objective of any cost, with an edge between any two levels of a query."""
    between, kappa = level_edges(levels, weights.Omega, weights.c, cost)
    system = PooledLaplacian(rows, kappa, between)
    system.r = np.repeat(system.r, s.shape[1], axis=1)
    system.energy = np.repeat(system.energy, s.shape[1])
    log_weight = log_weights(between, levels, weights, cost)
    return Objective(system, outputs, weights.n_pairs, log_weight)


def level_edges(levels: Levels, Omega: Array, c: Array, cost: Cost) -> tuple[EdgeLaplacian, Array]:
    """Edges of weight c Ω_a Ω_b w² between levels, and κ inside each level, shape (g,)."""
    head, tail = _level_pairs(levels.query, cost)
    weighted = (Omega[head] > 0) & (Omega[tail] > 0)
    head, tail = head[weighted], tail[weighted]
    d = levels.score[head] - levels.score[tail]
    z, strength = cost.edges(d, c[levels.query[head]])
    g = len(levels)
    # All rows of a level are compared with level b with weight c Ω_b w².
    kappa = sums(head, strength * Omega[tail], g) + sums(tail, strength * Omega[head], g)
    weight = strength * Omega[head] * Omega[tail]
    return EdgeLaplacian(head, tail, weight, z, g), kappa


def log_weights(between: EdgeLaplacian, levels: Levels, weights: QueryWeights, cost: Cost) -> float:
    """Σ log of the weights of all edges between rows, c ω_i ω_j w²."""
    if cost.weight is None:
        return weights.log_weight
    head, tail = between.head, between.tail
    counts = weights.n_a[head] * weights.n_a[tail]
    logarithms = np.log(cost.weight(levels.score[head] - levels.score[tail]))
    return weights.log_weight + float(counts @ logarithms)


def _level_pairs(query: Array, cost: Cost) -> tuple[Array, Array]:
    """All (higher, lower) pairs of levels of the same query; levels are sorted by query."""
    g = len(query)
    sizes = np.bincount(query)
    n_pairs = int((sizes.astype(object) * (sizes - 1)).sum()) // 2
    if n_pairs > MAX_LEVEL_PAIRS:
        raise ValueError(
            f"cost={cost.name!r} materialises all pairs of distinct scores of a query: {n_pairs:,} "
            f"here (the largest query has {sizes.max():,} distinct scores), more than the "
            f"{MAX_LEVEL_PAIRS:,} allowed. Round the scores, or use cost='magnitude' or 'unit', "
            "which cost O(rows)"
        )
    above = np.cumsum(sizes)[query] - np.arange(g) - 1
    tail = np.repeat(np.arange(g), above)
    first = np.cumsum(above) - above
    head = tail + 1 + np.arange(len(tail)) - first[tail]
    return head, tail


def from_edges(
    pairs: Array,
    magnitude: Array,
    weight: Array,
    n_rows: int,
    *,
    cost: Cost,
    features: Array | None = None,
) -> Objective:
    """The objective of given pairs (preferred, other), one output."""
    used = weight > 0
    pairs, magnitude, weight = pairs[used], magnitude[used], weight[used]
    z, weight = cost.edges(magnitude, weight)
    system = EdgeLaplacian(pairs[:, 0], pairs[:, 1], weight, z, n_rows)
    covariates = None
    if features is not None:
        covariates = Covariates.of(pairs, weight, z, features[used], n_rows)
    log_weight = float(np.log(weight).sum())
    return Objective(system, np.arange(1), len(pairs), log_weight, covariates)


def add(scored: Objective, edges: Objective) -> Objective:
    """Combine scores and pairs for the outputs of ``scored``; only pairs if it has no edge."""
    assert isinstance(edges.laplacian, EdgeLaplacian)
    if scored.n_pairs == 0:
        return replace(edges, outputs=scored.outputs)
    return Objective(
        SumLaplacian(scored.laplacian, edges.laplacian),
        scored.outputs,
        scored.n_pairs + edges.n_pairs,
        scored.log_weight + edges.log_weight,
        edges.covariates,
    )
