"""Division of a ranking problem into parts, and the data that the parts need from each other.

Rows are divided into *parts*, in any way and any order. A query with all its rows in one part is
local to the part. Of a *crossing* query, each part holds a *fragment*. By the parallel-axis
identity (f̄_p, Ω_p: mean and weight of part p)

    Σ_i ω_i (f_i − f̄)² = Σ_p Σ_{i∈p} ω_i (f_i − f̄_p)² + Σ_p Ω_p (f̄_p − f̄)²

a fragment affects the rest of its query like a single row: its mean, with its total weight. Hence

    L = Σ_p L_p + Cᵀ L_c C,        r = Σ_p r_p + Cᵀ r_c

with scatters L_p within the parts, the averaging C of fragments into *condensed rows*, and a system
L_c of the same kind over these few rows. All terms are positive, so nothing cancels. If tied pairs
are dropped, the levels of a query that occur in one part only are condensed together, and a level
that occurs in several parts gives one condensed row in each; `relative` condenses every level.

Three steps, which do not use features, give the system of a part: list its queries (`Census`),
count the scores of the crossing queries (`Counts`), and build the system (`part_shares`) with the
`SharePlan` that is computed from both. Condensed rows are assigned to *buckets* of whole queries,
so that no single worker has to hold all of them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.laplacian import (
    Laplacian,
    Objective,
    PooledLaplacian,
    ScatterLaplacian,
    from_scores,
)
from rankrls.core.preferences.query_weights import Groups, Levels, varying_queries
from rankrls.core.preferences.statistics import Statistics
from rankrls.dask._census import (
    Census,
    Counts,
    Crossing,
    by_score,
    fragment_rows,
    preferred_alike,
    scored,
)
from rankrls.dask._condensed import Condensed, Fragment, Whole, condense

__all__ = ["Condenser", "PartPlan", "Share", "SharePlan", "bucket_shares", "part_shares"]

Array = NDArray[Any]

#: Whole queries are added to a bucket until it has this many condensed rows.
BUCKET_ROWS = 2**14


@dataclass(frozen=True)
class PartPlan:
    """Data that a part needs to build its share.

    Attributes
    ----------
    numbers : ndarray of shape (g,)
        See `Crossing`.
    outputs : list of ndarray
        Groups of outputs that share L.
    fragments : list of Fragment, one for each group; empty if no query of the part crosses
    loss : Loss
    """

    numbers: Array
    outputs: list[Array]
    fragments: list[Fragment]
    loss: Loss


class SharePlan:
    """The division of one problem into shares.

    Parameters
    ----------
    censuses : sequence of Census
    crossing : Crossing
    counts : sequence of Counts, one for each part
    loss : Loss
    bucket_rows : int
        See `BUCKET_ROWS`.

    Attributes
    ----------
    outputs : list of ndarray
        Groups of outputs that share L.
    n_preferences : ndarray of shape (k,), int
        Number of queries in which an output prefers some row to another.
    parts : list of PartPlan
    buckets : list of list of Condensed
        For each bucket, the system of its condensed rows for each group of outputs.
    sources : list of ndarray of int
        For each bucket, the parts that its condensed rows come from, in order.
    """

    def __init__(
        self,
        censuses: Sequence[Census],
        crossing: Crossing,
        counts: Sequence[Counts],
        loss: Loss,
        bucket_rows: int = BUCKET_ROWS,
    ) -> None:
        cost, ties = loss.cost, loss.ties
        part = np.repeat(np.arange(len(counts)), [len(c.query) for c in counts])
        table = Counts.join(counts)
        varies = varying_queries(table.example, table.query, crossing.n_crossing)
        self.n_preferences = np.zeros(varies.shape[1], dtype=np.int64)
        for census, numbers in zip(censuses, crossing.numbers, strict=True):
            crosses = numbers >= 0
            varies[numbers[crosses]] |= census.varies[crosses]
            self.n_preferences += census.varies[~crosses].sum(axis=0)
        self.n_preferences += varies.sum(axis=0)
        alike = [census.alike for census in censuses]
        if by_score(cost, ties):
            alike.append(preferred_alike(table.scores, table.query, cost))
        self.outputs = _groups_of(np.stack(alike))
        whole = [
            condense(part, table, outputs, crossing.n_crossing, loss) for outputs in self.outputs
        ]
        bucket, n_buckets = _assign_buckets(whole, crossing.n_crossing, bucket_rows)
        cut = [one.split(bucket, n_buckets) for one in whole]
        self.buckets = [list(columns) for columns in zip(*cut, strict=True)]
        self.sources = [np.unique(columns[0].part) for columns in self.buckets]
        self.parts = []
        for p, numbers in enumerate(crossing.numbers):
            fragments = [one.fragment(p, bucket) for one in whole] if (numbers >= 0).any() else []
            self.parts.append(PartPlan(numbers, self.outputs, fragments, loss))

    @property
    def varied(self) -> Array:
        """Whether each output prefers some row to another, shape (k,), bool."""
        return self.n_preferences > 0

    def largest_bucket(self) -> int:
        """Return the number of rows of the largest bucket."""
        return max((len(c.part) for bucket in self.buckets for c in bucket), default=0)


def _groups_of(alike: Array) -> list[Array]:
    """Group outputs with equal columns of ``alike``, shape (places, k), by first appearance."""
    groups: dict[bytes, list[int]] = {}
    for j in range(alike.shape[1]):
        groups.setdefault(alike[:, j].tobytes(), []).append(j)
    return [np.asarray(outputs) for outputs in groups.values()]


def _assign_buckets(whole: Sequence[Whole], n_crossing: int, bucket_rows: int) -> tuple[Array, int]:
    """Assign consecutive crossing queries to buckets of about ``bucket_rows`` rows."""
    rows = np.max([np.bincount(one.condensed.query, minlength=n_crossing) for one in whole], axis=0)
    bucket = (np.cumsum(rows) - rows) // bucket_rows
    used = np.unique(bucket[rows > 0])
    return np.searchsorted(used, bucket), len(used)


class Share:
    """L and r of the rows of one part or bucket, for outputs that share L.

    The shares of all parts and buckets sum to the whole: XᵀLX = Σ X_pᵀ L_p X_p + Σ Z_bᵀ L_b Z_b.

    Parameters
    ----------
    outputs : ndarray of shape (k,)
    n_rows : int
    pieces : list of (rows, Objective)
        Objectives over disjoint sets of rows, given as row indices or a slice.
    counted : bool
        Whether the rows are counted in ``mean`` and ``mass``. Condensed rows are not, because the
        original rows are counted.
    """

    def __init__(
        self,
        outputs: Array,
        n_rows: int,
        pieces: list[tuple[Any, Objective]],
        *,
        counted: bool,
    ) -> None:
        self.outputs, self.n_rows, self.pieces, self.counted = outputs, n_rows, pieces, counted

    @property
    def n_pairs(self) -> int:
        """Number of edges counted in this share."""
        return sum(objective.n_pairs for _, objective in self.pieces)

    @property
    def mass(self) -> float:
        """Total weight of the rows that have an edge; zero for condensed rows."""
        weights = (objective.laplacian.row_weight().sum() for _, objective in self.pieces)
        return float(sum(weights)) if self.counted else 0.0

    @property
    def r(self) -> Array:
        """The vectors r, shape (m, k)."""
        out = np.zeros((self.n_rows, len(self.outputs)))
        for rows, objective in self.pieces:
            out[rows] = objective.laplacian.r
        return out

    def degree(self) -> Array:
        """The diagonal of L, shape (m,)."""
        out = np.zeros(self.n_rows)
        for rows, objective in self.pieces:
            out[rows] = objective.laplacian.degree()
        return out

    def apply(self, V: Array) -> Array:
        """Return L V, shape (m, k)."""
        out = np.zeros(V.shape)
        for rows, objective in self.pieces:
            out[rows] = objective.laplacian.apply(V[rows])
        return out

    def statistics(self, Phi: Any) -> Statistics:
        """Return the statistics of dense or sparse features Φ of shape (m, n)."""
        parts = [Statistics.of(objective, Phi[rows]) for rows, objective in self.pieces]
        if not parts:
            return Statistics.empty(self.outputs, Phi.shape[1])
        total = reduce(operator.iadd, parts[1:], parts[0])
        return total if self.counted else replace(total, mass=0.0, mean=np.zeros_like(total.mean))


class Condenser:
    """Means of the fragments of a part, for outputs that share L.

    Parameters
    ----------
    rows : ndarray of int, or slice
        The rows of fragments.
    units : Groups over those rows
    bucket : ndarray of shape (u,), ascending
        Bucket of each mean.
    """

    def __init__(self, rows: Any, units: Groups, bucket: Array) -> None:
        self.rows, self.units, self.bucket = rows, units, bucket

    def __call__(self, Phi: Any) -> dict[int, Any]:
        """Return condensed rows of Φ by bucket, each of shape (z, n); sparse if Φ is sparse."""
        Z = self.units.mean(Phi[self.rows])
        buckets, starts = np.unique(self.bucket, return_index=True)
        stops = np.append(starts[1:], len(self.bucket))
        slices = zip(buckets.tolist(), starts, stops, strict=True)
        return {b: Z[start:stop] for b, start, stop in slices}


def part_shares(graph: PreferenceGraph, plan: PartPlan) -> tuple[list[Share], list[Condenser]]:
    """Return the shares and condensers of one part, one for each group of outputs."""
    s, query, weight = scored(graph)
    m = len(s)
    inside = plan.numbers[query] < 0
    whole = np.flatnonzero(inside if weight is None else inside & (weight > 0))
    fragment = fragment_rows(graph, plan.numbers)
    shares, condensers = [], []
    for number, outputs in enumerate(plan.outputs):
        pieces: list[tuple[Any, Objective]] = []
        if len(whole):
            rows = _as_slice(whole)
            pieces.append((rows, _whole_queries(graph, rows, outputs, plan.loss)))
        if len(fragment):
            rows = _as_slice(fragment)
            omega = None if weight is None else weight[fragment]
            codes = np.unique(plan.numbers[query[fragment]], return_inverse=True)[1]
            info = plan.fragments[number]
            objective, units = _fragments(s[fragment][:, outputs], codes, omega, info, plan.loss)
            pieces.append((rows, Objective(objective, outputs, 0, 0.0)))
            condensers.append(Condenser(rows, Groups(units, omega, len(info.bucket)), info.bucket))
        shares.append(Share(outputs, m, pieces, counted=True))
    return shares, condensers


def bucket_shares(bucket: Sequence[Condensed]) -> list[Share]:
    """Return the shares of the condensed rows of one bucket, one for each group of outputs."""
    return [
        Share(one.outputs, len(one.part), [(slice(None), one.objective())], counted=False)
        for one in bucket
    ]


def _as_slice(rows: Array) -> Any:
    """Return contiguous rows as a slice, so that dense features are not copied."""
    together = rows[-1] - rows[0] + 1 == len(rows)
    return slice(int(rows[0]), int(rows[-1]) + 1) if together else rows


def _whole_queries(graph: PreferenceGraph, rows: Any, outputs: Array, loss: Loss) -> Objective:
    """Return the objective of rows that form whole queries; the queries keep their codes."""
    s, query, weight = scored(graph)
    weight = None if weight is None else weight[rows]
    n_queries = len(graph.query_labels)
    (objective,) = from_scores(s[rows][:, outputs], query[rows], n_queries, weight, loss)
    return replace(objective, outputs=outputs)


def _fragments(
    s: Array, query: Array, weight: Array | None, info: Fragment, loss: Loss
) -> tuple[Laplacian, Array]:
    """Return the scatters within fragments, and the unit of every row."""
    if not by_score(loss.cost, loss.ties):
        return ScatterLaplacian(Groups(query, weight, len(info.unit)), info.within, s), query
    levels = Levels.of(s[:, 0], query)
    codes, g = levels.codes, len(levels)
    units = info.unit[codes]
    if loss.of_pair.by_pairs:
        # All edges are between condensed rows.
        return ScatterLaplacian(Groups(codes, weight, g), info.within, np.zeros_like(s)), units
    system: Laplacian
    if g == len(s):
        rows = Groups(units, weight, len(info.between))
        system = ScatterLaplacian(rows, info.between, info.target[codes])
    else:
        rows = Groups(codes, weight, g)
        pooled = Groups(info.unit, rows.total, len(info.between))
        system = PooledLaplacian(
            rows, info.within, ScatterLaplacian(pooled, info.between, info.target)
        )
    if loss.of_pair.level_scores is not None:
        system.energy = np.zeros(s.shape[1])
    return system, units
