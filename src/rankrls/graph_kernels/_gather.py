"""Aggregation of path weights of nodes to weights of labels: F = N W Nᵀ, or the maximum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from rankrls.graph_kernels._graphs import LabelledGraph
from rankrls.graph_kernels._paths import DivergenceError, path_weights, spectral_radius

__all__ = ["GATHERS", "SCALED_RADIUS", "LabelPairs", "label_pairs"]

Array = NDArray[Any]

GATHERS = {"sum": np.add, "max": np.maximum}

#: Spectral radius to which graphs with divergent paths are scaled.
SCALED_RADIUS = 0.9

_CHUNK = 2**18  # Σ v² of the graphs processed together


@dataclass(frozen=True)
class LabelPairs:
    """Entries of the matrices F of consecutive graphs.

    Attributes
    ----------
    counts : ndarray of shape (n_graphs,), int
        Number of entries of each graph.
    sources, targets : ndarray of shape (n_entries,), int
        Indices of both labels, in ascending order within a graph.
    weights : ndarray of shape (n_entries,), not zero
    scales : ndarray of shape (n_graphs,)
        Factor by which the edge weights of each graph were multiplied; 1 if its paths converge.
    """

    counts: Array
    sources: Array
    targets: Array
    weights: Array
    scales: Array

    def lengths(self) -> Array:
        """Return the norm ‖F‖ of each graph, shape (n_graphs,)."""
        graph = np.repeat(np.arange(len(self.counts)), self.counts)
        scale = np.zeros(len(self.counts))
        np.maximum.at(scale, graph, np.abs(self.weights))
        relative = self.weights / scale[graph]  # prevents overflow and underflow of the squares
        return scale * np.sqrt(np.bincount(graph, relative**2, minlength=len(scale)))


def label_pairs(
    graphs: Sequence[LabelledGraph],
    number: dict[str, int],
    gather: str,
    divergent: str = "error",
    name: str = "graphs",
) -> Iterator[LabelPairs]:
    """Compute F for each graph, in chunks of graphs.

    Parameters
    ----------
    graphs : sequence of LabelledGraph
    number : dict
        Index of each label. Missing labels are added.
    gather : {"sum", "max"}
    divergent : {"error", "scale"}
        Treatment of graphs whose sums over paths do not converge.
    name : str
        Name of the argument ``graphs`` in error messages.
    """
    start = 0
    while start < len(graphs):
        stop, size = start, 0
        while stop < len(graphs) and (stop == start or size < _CHUNK):
            size += max(graphs[stop].n_nodes, 1) ** 2
            stop += 1
        W, scales = _converging(graphs[start:stop], divergent, name, start)
        yield _chunk(graphs[start:stop], W, scales, number, gather)
        start = stop


def _converging(
    graphs: Sequence[LabelledGraph], divergent: str, name: str, offset: int
) -> tuple[sp.csr_array, Array]:
    """Return the path weights of all graphs, and the scale factors of their edge weights."""
    sizes = np.array([graph.n_nodes for graph in graphs])
    first = np.cumsum(sizes) - sizes
    scales = np.ones(len(graphs))
    while True:
        blocks = [graph.adjacency for graph in graphs]
        for index in np.flatnonzero(scales != 1):
            blocks[index] = blocks[index] * scales[index]
        try:
            return path_weights(_block_diagonal(blocks, first, int(sizes.sum()))), scales
        except DivergenceError as error:
            found = np.unique(np.searchsorted(first, error.nodes, side="right") - 1)
        for index in found:
            radius = spectral_radius(graphs[index].adjacency)
            # Scaling does not help if the graph was already scaled or has no such cycle: the
            # weights have overflowed.
            hopeless = scales[index] != 1 or not SCALED_RADIUS <= radius < np.inf
            if divergent == "error" or hopeless:
                raise ValueError(_advice(f"{name}[{offset + index}]", radius))
            scales[index] = SCALED_RADIUS / radius


def _chunk(
    graphs: Sequence[LabelledGraph],
    W: sp.csr_array,
    scales: Array,
    number: dict[str, int],
    gather: str,
) -> LabelPairs:
    sizes = np.array([graph.n_nodes for graph in graphs])
    # One entry for each label of each node, sorted by (graph, label); each (graph, label) is a
    # group.
    per_node: list[Any] = [node for graph in graphs for node in graph.labels]
    labels = np.array(
        [number.setdefault(label, len(number)) for node in per_node for label in node],
        dtype=np.int64,
    )
    nodes = np.repeat(np.arange(len(per_node)), [len(node) for node in per_node])
    key = np.repeat(np.arange(len(graphs)), sizes)[nodes] * len(number) + labels
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    group_graph, group_label = np.divmod(key[order[starts]], max(len(number), 1))
    source, target, weights = _gather(W, nodes[order], starts, gather)
    return LabelPairs(
        np.bincount(group_graph[source], minlength=len(graphs)),
        group_label[source],
        group_label[target],
        weights,
        scales,
    )


def _gather(
    W: sp.csr_array, nodes: Array, starts: Array, gather: str
) -> tuple[Array, Array, Array]:
    """Return the weights between groups of nodes: source group, target group, weight, sorted."""
    n_groups = len(starts)
    group = np.repeat(np.arange(n_groups, dtype=np.int32), np.diff(starts, append=len(nodes)))
    between = W[nodes].T.tocsr()[nodes]  # rows: labels of the target; columns: of the source
    # Rows of a group are consecutive, so joining them only removes row pointers.
    indptr = np.append(between.indptr[starts], between.indptr[-1])
    joined = sp.csr_array(
        (between.data, group[between.indices], indptr), shape=(n_groups, n_groups)
    )
    by_source = joined.tocsc()  # sorted by target within a source; duplicates are adjacent
    target = by_source.indices
    if not len(target):
        return target, target, by_source.data
    new = np.empty(len(target), dtype=bool)
    np.not_equal(target[1:], target[:-1], out=new[1:])
    new[by_source.indptr[:-1][np.diff(by_source.indptr) > 0]] = True
    begin = np.flatnonzero(new)
    weights = GATHERS[gather].reduceat(by_source.data, begin)
    source = np.repeat(
        np.arange(n_groups), np.diff(np.searchsorted(begin, by_source.indptr, side="left"))
    )
    target = target[begin]
    kept = weights != 0
    if not kept.all():  # weights of opposite sign can cancel
        source, target, weights = source[kept], target[kept], weights[kept]
    return source, target, weights


def _block_diagonal(blocks: list[sp.csr_array], first: Array, n: int) -> sp.csr_array:
    nnz = np.array([block.nnz for block in blocks])
    data = np.concatenate([block.data for block in blocks])
    indices = np.concatenate([block.indices for block in blocks]) + np.repeat(first, nnz)
    ends = np.concatenate([block.indptr[1:] for block in blocks])
    sizes = [block.shape[0] for block in blocks]
    indptr = np.append(0, ends + np.repeat(np.cumsum(nnz) - nnz, sizes))
    return sp.csr_array((data, indices, indptr), shape=(n, n))


def _advice(where: str, radius: float) -> str:
    scale = (
        f", for example by {SCALED_RADIUS / radius:.2g}"
        if np.isfinite(radius) and radius >= 1
        else ""
    )
    return (
        f"{where}: the sum over all its paths does not converge: the spectral radius of its "
        f"adjacency matrix is {radius:.6g} and must be below 1. Multiply its edge weights by a "
        f"smaller number{scale}, or remove its cycles; divergent='scale' does so for such graphs"
    )
