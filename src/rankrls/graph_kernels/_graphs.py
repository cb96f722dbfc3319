"""Labelled graphs, and conversion of the accepted input types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse as sp

from rankrls._validation import check_finite_array, show

__all__ = ["LabelledGraph", "as_graphs"]


@dataclass(frozen=True, eq=False)
class LabelledGraph:
    """A weighted directed graph with labelled nodes.

    Parameters
    ----------
    adjacency : {ndarray, sparse matrix} of shape (v, v)
        Weight of the edge from node i to node j in row i, column j; zero means no edge. Duplicate
        entries of a sparse matrix are summed.
    labels : sequence of length v
        Labels of each node, as an iterable of strings, possibly empty. A single string is one
        label. Duplicate labels of a node count once.

    Attributes
    ----------
    adjacency : csr_array of shape (v, v), float64
    labels : tuple of length v of tuples of str

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls.graph_kernels import LabelledGraph
    >>> graph = LabelledGraph(np.array([[0.0, 0.5], [0.0, 0.0]]), [["dog", "noun"], "barks"])
    >>> graph.n_nodes, graph.labels
    (2, (('dog', 'noun'), ('barks',)))
    """

    adjacency: Any
    labels: Sequence[Iterable[str]]

    def __post_init__(self) -> None:
        adjacency = _check_adjacency(self.adjacency)
        labels = _check_labels(self.labels, adjacency.shape[0])
        object.__setattr__(self, "adjacency", adjacency)
        object.__setattr__(self, "labels", labels)

    @property
    def n_nodes(self) -> int:
        """Number of nodes, v."""
        return len(self.labels)


def as_graphs(graphs: Any, name: str = "graphs") -> list[LabelledGraph]:
    """Convert graphs of any accepted type to `LabelledGraph`."""
    if isinstance(graphs, LabelledGraph) or _is_networkx(graphs):
        raise ValueError(f"{name} must be a list of graphs; got a single graph, put it into a list")
    if isinstance(graphs, str | bytes) or not isinstance(graphs, Iterable) or sp.issparse(graphs):
        raise ValueError(f"{name} must be a list of graphs; got {show(graphs)}")
    return [_as_graph(graph, f"{name}[{index}]") for index, graph in enumerate(graphs)]


def _as_graph(graph: Any, where: str) -> LabelledGraph:
    if isinstance(graph, LabelledGraph):
        return graph
    try:
        if _is_networkx(graph):
            return _from_networkx(graph)
        if isinstance(graph, tuple | list) and len(graph) == 2:
            return LabelledGraph(*graph)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    raise ValueError(
        f"{where} must be a pair (adjacency, labels), a networkx graph or a LabelledGraph; "
        f"got {show(graph)}"
    )


def _is_networkx(graph: Any) -> bool:
    return all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed"))


def _from_networkx(graph: Any) -> LabelledGraph:
    """Convert a networkx graph; an undirected edge goes both ways, parallel edges are summed."""
    number = {node: i for i, node in enumerate(graph.nodes)}
    nodes = [attributes for _, attributes in graph.nodes(data=True)]
    labels = [node.get("labels", node.get("label", ())) for node in nodes]
    if nodes and not any("labels" in node or "label" in node for node in nodes):
        raise ValueError(
            "no node has an attribute 'labels' (or 'label'); set it to the strings of the node"
        )
    edges = [(number[s], number[t], w) for s, t, w in graph.edges(data="weight", default=1.0)]
    if not graph.is_directed():
        edges += [(j, i, weight) for i, j, weight in edges if i != j]
    rows, columns, weights = zip(*edges, strict=True) if edges else ((), (), ())
    data = check_finite_array("edge attribute 'weight'", weights, ndim=(1,))
    shape = (len(number), len(number))
    places = np.array(rows, dtype=np.int64), np.array(columns, dtype=np.int64)
    return LabelledGraph(sp.coo_array((data, places), shape=shape), labels)


def _check_adjacency(adjacency: Any) -> sp.csr_array:
    if sp.issparse(adjacency):
        if adjacency.dtype.kind not in "fiub":
            raise ValueError(f"adjacency must be real and numeric; got dtype {adjacency.dtype}")
        matrix = sp.csr_array(adjacency, dtype=np.float64)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()  # do not modify the caller's arrays
            matrix.sum_duplicates()
        if not np.isfinite(matrix.data).all():
            raise ValueError("adjacency contains NaN or infinity")
    else:
        dense = check_finite_array("adjacency", adjacency, ndim=(2,))
        matrix = sp.csr_array(dense)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"adjacency must be square; got shape {matrix.shape}")
    return matrix


def _check_labels(labels: Any, n_nodes: int) -> tuple[tuple[str, ...], ...]:
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise ValueError(
            f"labels must have one iterable of strings for each node; got {show(labels)}"
        )
    out = []
    for node, given in enumerate(labels):
        one = isinstance(given, str) or not isinstance(given, Iterable)
        found = (given,) if one else tuple(given)
        for label in found:
            if not isinstance(label, str):
                raise ValueError(f"labels of node {node} must be strings; got {show(label)}")
        out.append(tuple(dict.fromkeys(found)))
    if len(out) != n_nodes:
        raise ValueError(f"labels has {len(out)} entries for {n_nodes} nodes of adjacency")
    return tuple(out)
