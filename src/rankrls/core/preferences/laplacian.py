"""The preferences as a quadratic form: fᵀ L f − 2 fᵀ r + energy.

A *system* answers the three questions that solvers ask: how L multiplies (``L``), what the
normal equations of explicit features are (``normal_equations``), and what an exact factor
L = F Fᵀ is (``factor``). Four kinds are enough for every cost:

- ``ScatterSystem``: all rows of a group against each other (ties kept, or no ties);
- ``PooledSystem``: rows of equal score pooled, and a system over the pools (ties dropped);
- ``EdgeSystem``: an explicit list of edges (given pairs; the level graph of `relative`);
- ``SumSystem``: scores and pairs together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from rankrls.core.preferences.factors import (
    Factor,
    GroundedFactor,
    IncidenceFactor,
    PooledFactor,
    ScatterFactor,
    StackedFactor,
)
from rankrls.core.preferences.groups import Groups, sums

__all__ = ["EdgeSystem", "Moments", "PooledSystem", "ScatterSystem", "SumSystem", "System"]

Array = NDArray[Any]


class Moments(NamedTuple):
    """What explicit features Φ of shape (m, n) are to a system, in float64.

    ``gram`` = ΦᵀLΦ of shape (n, n), ``cross`` = Φᵀr of shape (n, k), ``mean``, the mean row of
    shape (n,) over the rows that have an edge, with their weights, and ``noise``, the size of
    the rounding errors in ``gram`` where it is more than that of any matrix product.
    """

    gram: Array
    cross: Array
    mean: Array
    noise: float = 0.0


class System(ABC):
    """L and r of a preference graph over m rows, for k outputs that share L.

    Attributes
    ----------
    r : ndarray of shape (m, k)
        r = Σ_edges w² z (e_h − e_j).
    energy : ndarray of shape (k,)
        Σ_edges w² z², the constant of the objective.

    Where all outputs have the same target, r and energy have one column for all of them.
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
        """Weight of every row that has an edge, zero for the others, shape (m,)."""

    @abstractmethod
    def links(self) -> sparse.coo_array:
        """A sparse m × h incidence of rows and hubs: rows that share a hub are connected."""


class ScatterSystem(System):
    """Σ_a κ_a Σ_{i∈a} ω_i (f_i − f̄_a)²: every row of a group against every other.

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
        """Κ ω (v − v̄)."""
        return self.scale[:, None] * self.groups.deviations(V)

    def moments(self, X: Any) -> Moments:
        """Rows centred by group, then multiplied."""
        means = self.groups.mean(X)
        gram, cross, noise = self.groups.scatter(X, means, self.scale, self.r)
        mean = _weighted_mean(self.groups.total * (self.kappa > 0), means)
        return Moments(gram, cross, mean, noise)

    def factor(self) -> Factor:
        """F = diag(√(κω))(I − uuᵀ), u_i = √(ω_i/Ω), and t = Fᵀ s."""
        return ScatterFactor(self.groups, self.kappa, self.s)

    def degree(self) -> Array:
        """Κ ω (1 − ω/Ω)."""
        return self.scale * (1 - self.groups.share)

    def row_weight(self) -> Array:
        """Ω in groups with κ > 0."""
        return np.where(self.scale > 0, self.groups.weight, 0.0)

    def links(self) -> sparse.coo_array:
        """Each group with κ > 0 is a hub."""
        used = np.flatnonzero(self.scale > 0)
        return sparse.coo_array(
            (np.ones(len(used)), (used, self.groups.codes[used])),
            shape=(self.n_rows, self.groups.n_groups),
        )


class PooledSystem(System):
    """Rows of equal score pooled into levels: within-level scatter + a system over the levels.

    With f̄_a the mean of level a, the pairs between two levels add up to

        Σ_{i∈a, j∈b} ω_i ω_j (z − (f_i − f_j))²
            = Ω_b scatter(a) + Ω_a scatter(b) + Ω_a Ω_b (z − (f̄_a − f̄_b))²,

    a sum of non-negative terms: nothing cancels. So L = scatter + Pᵀ L_levels P.
    """

    def __init__(self, groups: Groups, kappa: Array, between: System) -> None:
        self.groups = groups
        self.kappa = kappa
        self.scale = kappa[groups.codes] * groups.weight
        self.between = between
        self.r = groups.share[:, None] * between.r[groups.codes]
        self.energy = between.energy

    def apply(self, V: Array) -> Array:
        """Κ ω (v − v̄_a) + Pᵀ L_levels P v."""
        means = self.groups.mean(V)
        codes = self.groups.codes
        pooled = self.between.apply(means)
        return self.scale[:, None] * (V - means[codes]) + self.groups.share[:, None] * pooled[codes]

    def moments(self, X: Any) -> Moments:
        """Within-level Gram plus the levels' own normal equations on level means."""
        means = self.groups.mean(X)
        within, _, noise = self.groups.scatter(X, means, self.scale, np.zeros((self.n_rows, 0)))
        between = self.between.moments(means)
        mean = _weighted_mean(self.groups.total * (self.kappa > 0), means)
        return Moments(within + between.gram, between.cross, mean, noise + between.noise)

    def factor(self) -> Factor:
        """The within and between parts are orthogonal: one square factor holds both."""
        return PooledFactor(self.groups, self.kappa, self.between.independent_factor())

    def degree(self) -> Array:
        """Κ ω (1 − ω/Ω), and the part (ω/Ω)² of the level's degree."""
        share, codes = self.groups.share, self.groups.codes
        return self.scale * (1 - share) + share**2 * self.between.degree()[codes]

    def row_weight(self) -> Array:
        """Ω in levels that meet another level."""
        return np.where(self.scale > 0, self.groups.weight, 0.0)

    def links(self) -> sparse.coo_array:
        """The hubs of the levels, seen from the rows."""
        used = np.flatnonzero(self.groups.weight > 0)
        rows = sparse.csr_array(
            (np.ones(len(used)), (used, self.groups.codes[used])),
            shape=(self.n_rows, self.groups.n_groups),
        )
        return (rows @ self.between.links().tocsr()).tocoo()


class EdgeSystem(System):
    """An explicit multigraph: edges (head, tail) with weight w² and target z.

    ``simple`` promises that no two edges join the same rows; otherwise parallel and opposite
    edges are merged (weights add up, targets average), which leaves L and r as they are.
    """

    def __init__(
        self, head: Array, tail: Array, weight: Array, z: Array, n_rows: int, *, simple: bool
    ) -> None:
        self.energy = np.array([float(weight @ z**2)])
        if not simple:
            head, tail, weight, z = _merge_edges(head, tail, weight, z, n_rows)
        self.head, self.tail, self.weight, self.z = head, tail, weight, z
        flow = weight * z
        self.r = (sums(head, flow, n_rows) - sums(tail, flow, n_rows))[:, None]

    @cached_property
    def matrix(self) -> sparse.csr_array:
        """L as a sparse matrix of shape (m, m)."""
        m, w = self.n_rows, self.weight
        adjacency = sparse.csr_array((w, (self.head, self.tail)), shape=(m, m))
        return (sparse.diags_array(self.degree()) - adjacency - adjacency.T).tocsr()

    def apply(self, V: Array) -> Array:
        """The sparse product L V; a single column goes the way of vectors, which is faster."""
        if V.shape[1] == 1:
            return (self.matrix @ V[:, 0])[:, None]
        return self.matrix @ V

    def moments(self, X: Any) -> Moments:
        """Xᵀ(L X) with centred columns (L ignores the shift)."""
        mean = _weighted_mean(self.row_weight(), X)
        if sparse.issparse(X):
            gram = (X.T @ (self.matrix @ X)).toarray()
            noise = np.finfo(X.dtype).eps * (self.degree() @ X.multiply(X)).max()
            return Moments(gram, X.T @ self.r, mean, 2 * float(noise))
        X = X - mean.astype(X.dtype)
        gram = (X.T @ (self.matrix.astype(X.dtype) @ X)).astype(np.float64)
        cross = (X.T @ self.r.astype(X.dtype)).astype(np.float64)
        return Moments((gram + gram.T) / 2, cross, mean)

    def factor(self) -> Factor:
        """The incidence matrix where edges are few, a Cholesky factor of L otherwise."""
        if len(self.weight) <= self.row_weight().sum():
            return IncidenceFactor(self.head, self.tail, self.weight, self.z, self.n_rows)
        return self.independent_factor()

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
        """Every edge is a hub of its two ends."""
        used = np.flatnonzero(self.weight > 0)
        ends = np.concatenate([self.head[used], self.tail[used]])
        hubs = np.tile(np.arange(len(used)), 2)
        return sparse.coo_array((np.ones(len(ends)), (ends, hubs)), (self.n_rows, len(used)))


class SumSystem(System):
    """Scores and pairs together: their L, r and energies add up."""

    def __init__(self, scored: System, edges: EdgeSystem) -> None:
        self.scored = scored
        self.edges = edges
        self.r = scored.r + edges.r
        self.energy = scored.energy + edges.energy

    def apply(self, V: Array) -> Array:
        """L₁V + L₂V."""
        return self.scored.apply(V) + self.edges.apply(V)

    def moments(self, X: Any) -> Moments:
        """The sums of both parts'."""
        first, second = self.scored.moments(X), self.edges.moments(X)
        mean = _weighted_mean(self.row_weight(), X)
        gram, cross = first.gram + second.gram, first.cross + second.cross
        return Moments(gram, cross, mean, first.noise + second.noise)

    def factor(self) -> Factor:
        """[F₁ F₂] where pairs are few, a Cholesky factor of L₁ + L₂ otherwise."""
        if len(self.edges.weight) <= self.n_rows // 4:
            return StackedFactor(self.scored.factor(), self.edges.factor())
        return self.independent_factor()

    def independent_factor(self) -> Factor:
        """A Cholesky factor of L₁ + L₂."""
        return GroundedFactor(self.apply(np.eye(self.n_rows)), self.r, self.links())

    def degree(self) -> Array:
        """The sum of both."""
        return self.scored.degree() + self.edges.degree()

    def row_weight(self) -> Array:
        """The larger of both."""
        return np.maximum(self.scored.row_weight(), self.edges.row_weight())

    def links(self) -> sparse.coo_array:
        """The hubs of both."""
        return sparse.hstack([self.scored.links(), self.edges.links()]).tocoo()


def _merge_edges(
    head: Array, tail: Array, weight: Array, z: Array, n_rows: int
) -> tuple[Array, Array, Array, Array]:
    """One edge low → high for all edges between two rows: Σw² and the weighted mean target."""
    flip = head > tail
    low, high = np.where(flip, tail, head), np.where(flip, head, tail)
    key, edge = np.unique(low * np.int64(n_rows) + high, return_inverse=True)
    total = sums(edge, weight, len(key))
    flow = sums(edge, np.where(flip, -z, z) * weight, len(key))
    low, high = np.divmod(key, np.int64(n_rows))
    return low, high, total, flow / total


def _weighted_mean(weight: Array, rows: Any) -> Array:
    """Σ_i weight_i rows_i / Σ weight, shape (n,), zero without weight; nothing is densified."""
    share = weight / (weight.sum() or 1.0)
    return np.asarray(share.astype(rows.dtype) @ rows, dtype=np.float64).ravel()
