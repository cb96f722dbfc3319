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
        adjacency = self.adjacency
        if sp.issparse(adjacency):
            if adjacency.dtype.kind not in "fiub":
                raise ValueError(f"adjacency must be real and numeric; got dtype {adjacency.dtype}")
            adjacency = sp.csr_array(adjacency, dtype=np.float64, copy=True)
            adjacency.sum_duplicates()
            if not np.isfinite(adjacency.data).all():
                raise ValueError("adjacency contains NaN or infinity")
        else:
            adjacency = sp.csr_array(check_finite_array("adjacency", adjacency, ndim=(2,)))
        if adjacency.shape[0] != adjacency.shape[1]:
            raise ValueError(f"adjacency must be square; got shape {adjacency.shape}")
        if isinstance(self.labels, str) or not isinstance(self.labels, Iterable):
            raise ValueError(
                f"labels must have one iterable of strings for each node; got {show(self.labels)}"
            )
        labels = []
        for node, some in enumerate(self.labels):
            one = isinstance(some, str) or not isinstance(some, Iterable)
            found = (some,) if one else tuple(some)
            if not all(isinstance(label, str) for label in found):
                raise ValueError(f"labels of node {node} must be strings; got {show(some)}")
            labels.append(tuple(dict.fromkeys(found)))
        if len(labels) != adjacency.shape[0]:
            raise ValueError(
                f"labels has {len(labels)} entries for {adjacency.shape[0]} nodes of adjacency"
            )
        object.__setattr__(self, "adjacency", adjacency)
        object.__setattr__(self, "labels", tuple(labels))

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
    converted = []
    for index, graph in enumerate(graphs):
        try:
            if _is_networkx(graph):
                graph = _from_networkx(graph)
            elif isinstance(graph, tuple | list) and len(graph) == 2:
                graph = LabelledGraph(*graph)
        except ValueError as error:
            raise ValueError(f"{name}[{index}]: {error}") from error
        if not isinstance(graph, LabelledGraph):
            raise ValueError(
                f"{name}[{index}] must be a pair (adjacency, labels), a networkx graph or a "
                f"LabelledGraph; got {show(graph)}"
            )
        converted.append(graph)
    return converted


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
    data = check_finite_array("edge attribute 'weight'", [w for _, _, w in edges], ndim=(1,))
    places = np.array([edge[:2] for edge in edges], dtype=np.int64).reshape(-1, 2).T
    return LabelledGraph(sp.coo_array((data, tuple(places)), shape=[len(number)] * 2), labels)
