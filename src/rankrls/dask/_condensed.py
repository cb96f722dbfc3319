"""Small systems for crossing queries: condensed rows, and the data that their fragments need.

Everything in this module is computed from counts; see `_parts.py` for the method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.preferences.costs import COSTS, Loss
from rankrls.core.preferences.laplacian import (
    Laplacian,
    Objective,
    PooledLaplacian,
    ScatterLaplacian,
    level_edges,
    log_weights,
)
from rankrls.core.preferences.query_weights import Groups, Levels, QueryWeights, sums
from rankrls.dask._census import Counts, by_score

__all__ = ["Condensed", "Fragment", "Whole", "condense"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Fragment:
    """Data that a part needs to build the system of its fragments.

    The rows of a part are numbered by level, or by query if tied pairs are kept. Levels are grouped
    into units, and each unit becomes one condensed row.

    Attributes
    ----------
    unit : ndarray of shape (g,), int
        Unit of every level.
    within : ndarray of shape (g,)
        κ of the scatter within each level.
    target : ndarray of shape (g, k)
        Target of each level.
    between : ndarray of shape (u,)
        κ of the scatter of level means within each unit.
    bucket : ndarray of shape (u,), int, ascending
        Bucket of the condensed row of each unit.
    """

    unit: Array
    within: Array
    target: Array
    between: Array
    bucket: Array


@dataclass(frozen=True)
class Condensed:
    """The system of condensed rows, for outputs that share L.

    Condensed rows that are parts of the same level form a *node*. Any other condensed row is a
    node on its own.

    Attributes
    ----------
    outputs : ndarray of shape (k,)
    cost : str
    part, query, Omega, node : ndarray of shape (z,)
        Origin, query, weight and node of every condensed row, ordered by (part, query).
    node_query, node_score, node_kappa : ndarray of shape (G,)
        Query, score (if the node is a level) and κ of the scatter within each node.
    node_target : ndarray of shape (G, k)
    kappa, c : ndarray of shape (n_queries,)
        c N and c of every query.
    n_pairs, log_weight, energy
        Totals over all queries; energy is None if the system determines it.
    """

    outputs: Array
    cost: str
    part: Array
    query: Array
    Omega: Array
    node: Array
    node_query: Array
    node_score: Array
    node_kappa: Array
    node_target: Array
    kappa: Array
    c: Array
    n_pairs: int
    log_weight: float
    energy: Array | None

    def objective(self) -> Objective:
        """Return L_c and r_c over the condensed rows, with the counts of the queries."""
        k, n_nodes, n_queries = len(self.outputs), len(self.node_query), len(self.kappa)
        rows = Groups(self.node, self.Omega, n_nodes)
        system: Laplacian
        if COSTS[self.cost].by_pairs:
            levels = Levels(self.node, self.node_score, self.node_query)
            edges, kappa = level_edges(levels, rows.total, self.c, COSTS[self.cost])
            system = PooledLaplacian(rows, kappa, edges)
            system.r = np.repeat(system.r, k, axis=1)
            system.energy = np.repeat(system.energy, k)
        elif n_nodes == len(self.node):
            single = Groups(self.node_query[self.node], self.Omega, n_queries)
            system = ScatterLaplacian(single, self.kappa, self.node_target[self.node])
        else:
            pooled = Groups(self.node_query, rows.total, n_queries)
            between = ScatterLaplacian(pooled, self.kappa, self.node_target)
            system = PooledLaplacian(rows, self.node_kappa, between)
        if self.energy is not None:
            system.energy = self.energy
        return Objective(system, self.outputs, self.n_pairs, self.log_weight)

    def take(self, rows: Array) -> Condensed:
        """Return the system of some rows, which must form whole queries, without the counts."""
        nodes, node = np.unique(self.node[rows], return_inverse=True)
        queries, node_query = np.unique(self.node_query[nodes], return_inverse=True)
        return replace(
            self,
            part=self.part[rows],
            query=self.query[rows],
            Omega=self.Omega[rows],
            node=node,
            node_query=node_query,
            node_score=self.node_score[nodes],
            node_kappa=self.node_kappa[nodes],
            node_target=self.node_target[nodes],
            kappa=self.kappa[queries],
            c=self.c[queries],
            n_pairs=0,
            log_weight=0.0,
            energy=None if self.energy is None else np.zeros_like(self.energy),
        )


@dataclass(frozen=True)
class Whole:
    """All condensed rows, and all levels of all fragments, ordered by part.

    Attributes
    ----------
    condensed : Condensed
    part, unit : ndarray of shape (p,), int
        For every level of every part: its part, and the index of its condensed row.
    within : ndarray of shape (p,)
    target : ndarray of shape (p, k)
        See `Fragment`.
    """

    condensed: Condensed
    part: Array
    unit: Array
    within: Array
    target: Array

    def fragment(self, p: int, bucket: Array) -> Fragment:
        """Return the data that part p needs; ``bucket`` is the bucket of every query."""
        mine = slice(*np.searchsorted(self.part, [p, p + 1]))
        rows = slice(*np.searchsorted(self.condensed.part, [p, p + 1]))
        query = self.condensed.query[rows]
        return Fragment(
            self.unit[mine] - rows.start,
            self.within[mine],
            self.target[mine],
            self.condensed.kappa[query],
            bucket[query],
        )

    def split(self, bucket: Array, n_buckets: int) -> list[Condensed]:
        """Return one system for each bucket of queries; the first includes all counts."""
        whole = self.condensed
        row_bucket = bucket[whole.query]
        order = np.argsort(row_bucket, kind="stable")
        borders = np.searchsorted(row_bucket[order], np.arange(1, n_buckets))
        pieces = [whole.take(rows) for rows in np.split(order, borders)] if n_buckets else []
        for b, piece in enumerate(pieces[:1]):
            pieces[b] = replace(
                piece, n_pairs=whole.n_pairs, log_weight=whole.log_weight, energy=whole.energy
            )
        return pieces


def condense(part: Array, table: Counts, outputs: Array, n_queries: int, loss: Loss) -> Whole:
    """Condense the entries of all parts, ordered by part, for outputs that share L."""
    build = _by_level if by_score(loss.cost, loss.ties) else _by_query
    return build(part, table, outputs, n_queries, loss.cost, loss.query_weighting)


def _by_query(
    part: Array, table: Counts, outputs: Array, n_queries: int, cost: str, how: Any
) -> Whole:
    """Condense with ties kept: the rows of a query in a part become one row with the mean score."""
    n, Omega, squares, log_omega = (
        sums(table.query, values, n_queries) for values in _totals(table)
    )
    kept = (Omega**2 - squares) / 2
    weights = QueryWeights(how, np.arange(n_queries), n_queries, n, Omega, kept, log_omega)
    kappa = weights.kappa
    rows, target, none = np.arange(len(part)), table.scores[:, outputs], np.zeros(len(part))
    condensed = Condensed(
        outputs,
        cost,
        part,
        table.query,
        table.Omega,
        node=rows,
        node_query=table.query,
        node_score=none,
        node_kappa=none,
        node_target=target,
        kappa=kappa,
        c=weights.c,
        n_pairs=weights.n_pairs,
        log_weight=weights.log_weight,
        energy=None,
    )
    return Whole(condensed, part, rows, kappa[table.query], target)


def _by_level(
    part: Array, table: Counts, outputs: Array, n_queries: int, cost: str, how: Any
) -> Whole:
    """Condense with ties dropped: levels in one part by query, shared levels separately."""
    levels = Levels.of(table.scores[:, outputs[0]], table.query)
    g = len(levels)
    n, Omega, _, log_omega = (sums(levels.codes, values, g) for values in _totals(table))
    weights = QueryWeights(how, levels.query, n_queries, n, Omega, None, log_omega)
    kappa, log_weight = weights.kappa, weights.log_weight
    energy, by_pairs = None, COSTS[cost].by_pairs
    target = np.zeros((g, len(outputs)))
    if by_pairs:
        edges, within = level_edges(levels, Omega, weights.c, COSTS[cost])
        log_weight = log_weights(edges, levels, weights, COSTS[cost])
    else:
        within = weights.level_kappa
        target[levels.codes] = table.scores[:, outputs]
    level_scores = COSTS[cost].level_scores
    if level_scores is not None:
        scores, total = level_scores(levels, weights)
        target, energy = np.repeat(scores[:, None], len(outputs), axis=1), np.array([total])
    # Occurrences of levels, numbered by (part, level).
    place, first = _number(part, levels.codes)
    place_part, place_level = part[first], levels.codes[first]
    place_query = levels.query[place_level]
    place_Omega = sums(place, table.Omega, len(first))
    private = (np.bincount(place_level, minlength=g)[place_level] == 1) & (not by_pairs)
    # Units, which become condensed rows: (part, query, shared level, or −1 for private levels).
    place_key = np.where(private, -1, place_level)
    unit, first = _number(place_part, place_query, place_key)
    in_unit = Groups(unit, place_Omega, len(first))
    mean = in_unit.mean(target[place_level])
    # Nodes: the shared levels in order, then the units of private levels.
    unit_query, unit_level = place_query[first], place_key[first]
    key = np.where(unit_level < 0, g + np.arange(len(first)), unit_level)
    keys, one, node = np.unique(key, return_index=True, return_inverse=True)
    is_level = keys < g
    level = np.append(keys[is_level], np.full(np.count_nonzero(~is_level), -1))
    condensed = Condensed(
        outputs,
        cost,
        place_part[first],
        unit_query,
        in_unit.total,
        node,
        node_query=unit_query[one],
        node_score=np.append(levels.score, 0.0)[level],
        node_kappa=np.append(within, 0.0)[level],
        node_target=mean[one],
        kappa=kappa,
        c=weights.c,
        n_pairs=weights.n_pairs,
        log_weight=log_weight,
        energy=None if energy is None else np.repeat(energy, len(outputs)),
    )
    return Whole(condensed, place_part, unit, within[place_level], target[place_level])


def _totals(table: Counts) -> tuple[Array, Array, Array, Array]:
    return table.n, table.Omega, table.squares, table.log_omega


def _number(*keys: Array) -> tuple[Array, Array]:
    """Number the distinct tuples of keys in sorted order; return codes and one index of each."""
    order = np.lexsort(keys[::-1])
    new = np.zeros(len(order), dtype=bool)
    new[:1] = True
    for key in keys:
        new[1:] |= key[order][1:] != key[order][:-1]
    codes = np.empty(len(order), dtype=np.int64)
    codes[order] = np.cumsum(new) - 1
    return codes, order[new]
