"""All-paths graph kernel: the weights of all paths between labels, as sparse features.

The path weights W = Σ_{n≥1} Aⁿ = (I − A)⁻¹ − I are computed by node elimination: every path
i → … → j that visits node k consists of a path to k, loops at k and a path from k, so that

    A_ij ← A_ij + A_ik (1 − A_kk)⁻¹ A_kj      for k = 1, 2, …

replaces A by W. For a block K of nodes this becomes A ← A + A_:K (I + A_KK⁺) A_K: with A_KK⁺ the
path weights within the block. For non-negative weights this only adds, so that entries without a
path stay exactly zero and the others are accurate, and the spectral radius is below one if and only
if all pivots 1 − A_kk are positive (I − A is then an M-matrix).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp
from scipy.sparse.csgraph import connected_components
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from rankrls import _resources
from rankrls._calls import all_or_nothing, warn
from rankrls._validation import check_finite_array, check_option, show

__all__ = ["AllPathsGraphFeatures", "LabelledGraph", "all_paths_graph_kernel"]

Array = NDArray[Any]

#: How to combine weights, and the value of nodes that no path connects.
GATHERS = {"sum": (np.add, 0.0), "max": (np.maximum, -np.inf)}

#: Spectral radius to which graphs with divergent paths are scaled.
SCALED_RADIUS = 0.9

#: Number of values in a stack of graphs that are processed together (1 MiB), and of nodes that are
#: eliminated together.
STACK, BLOCK = 2**17, 16


@dataclass(frozen=True, eq=False)
class LabelledGraph:
    """A weighted directed graph with labelled nodes.

    Parameters
    ----------
    adjacency : {ndarray, sparse matrix} of shape (v, v)
        Weight of the edge from node i to node j in row i, column j; zero means no edge. Duplicate
        entries of a sparse matrix are summed.
    labels : sequence of length v
        Labels of each node, as an iterable of strings, possibly empty; a single string is one
        label. The attribute is a tuple of tuples of str, and ``adjacency`` a csr_array of float64.
    """

    adjacency: Any
    labels: Sequence[Iterable[str]]

    def __post_init__(self) -> None:
        given = self.adjacency if sp.issparse(self.adjacency) else np.asarray(self.adjacency)
        if given.dtype.kind not in "fiub" or given.ndim != 2 or given.shape[0] != given.shape[1]:
            raise ValueError(
                "adjacency must be a square matrix of real numbers; got "
                f"{given.dtype} of shape {given.shape}"
            )
        adjacency = sp.csr_array(given, dtype=np.float64, copy=True)
        adjacency.sum_duplicates()
        if not np.isfinite(adjacency.data).all():
            raise ValueError("adjacency contains NaN or infinity")
        labels = []
        if isinstance(self.labels, str | Mapping):  # characters, or keys
            raise ValueError(f"labels must be a list, one for each node; got {show(self.labels)}")
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


class AllPathsGraphFeatures(TransformerMixin, BaseEstimator):
    r"""Sparse features of graphs: the weights of all paths between each pair of labels.

    The inner product of the features of two graphs is their all-paths graph kernel.

    Parameters
    ----------
    gather : {"sum", "max"}, default="sum"
        How to combine the path weights of several pairs of nodes with the same two labels.
    normalize : bool, default=False
        Whether to divide the features of each graph by their Euclidean length, in which label pairs
        not seen in ``fit`` count, so that the kernel becomes a cosine.
    divergent : {"error", "scale"}, default="error"
        How to treat a graph whose sum over paths does not converge: raise an error that names it,
        or multiply all its edge weights by 0.9 / (spectral radius), with a warning.

    Attributes
    ----------
    graph_scales_ : ndarray of shape (n_graphs,)
        Factor by which the edge weights of each graph in ``fit`` were multiplied.
    labels_ : ndarray of shape (n_labels,), object
        All labels seen in ``fit``, sorted.
    label_pairs_ : ndarray of shape (n_features, 2), int
        First and last label of the paths of each column, as indices of ``labels_``, sorted.

    Notes
    -----
    With :math:`A` the adjacency matrix and :math:`N` the 0/1 matrix of labels by nodes, the
    features are the entries of :math:`N W N^\top`, with the path weights
    :math:`W = \sum_{n \ge 1} A^n = (I - A)^{-1} - I`. The series converges if the spectral radius
    of :math:`A` is below 1, as for every graph without cycles.

    A graph is a pair ``(adjacency, labels)``, a `LabelledGraph`, or a networkx graph with a node
    attribute ``"labels"`` (or ``"label"``) and an edge attribute ``"weight"`` (1 if missing).
    ``transform`` ignores labels and label pairs that were not seen in ``fit``.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls.graph_kernels import AllPathsGraphFeatures
    >>> chain = np.diag([0.5, 0.5], k=1)  # three nodes, two edges
    >>> features = AllPathsGraphFeatures()
    >>> X = features.fit_transform([(chain, ["a", "b", "c"]), (chain, ["a", "c", "c"])])
    >>> features.get_feature_names_out()
    array(['a → b', 'a → c', 'b → c', 'c → c'], dtype=object)
    >>> X.toarray()
    array([[0.5 , 0.25, 0.5 , 0.  ],
           [0.  , 0.75, 0.  , 0.5 ]])
    """

    def __init__(
        self, gather: str = "sum", normalize: bool = False, divergent: str = "error"
    ) -> None:
        self.gather = gather
        self.normalize = normalize
        self.divergent = divergent

    def fit(self, X: Any, y: Any = None) -> AllPathsGraphFeatures:
        """Learn the labels, and the pairs of labels that are connected by paths, of a list X."""
        self.fit_transform(X)
        return self

    @all_or_nothing
    def fit_transform(self, X: Any, y: Any = None) -> sp.csr_array:
        """Fit and transform the graphs, computing the paths only once; a csr_array."""
        return self._features(X, "graphs", fit=True)

    def transform(self, X: Any) -> sp.csr_array:
        """Compute the features of a list of graphs, a csr_array (n_graphs, n_features)."""
        check_is_fitted(self)
        return self._features(X, "graphs", fit=False)

    def _features(self, X: Any, name: str, *, fit: bool) -> sp.csr_array:
        """Features of graphs; label pairs that were not seen in ``fit`` are left out."""
        check_option("gather", self.gather, GATHERS)
        check_option("divergent", self.divergent, ("error", "scale"))
        graphs = _as_graphs(X, name)
        if fit:
            if not graphs:
                raise ValueError(f"{name} is empty; give at least one graph")
            labels = sorted({label for graph in graphs for node in graph.labels for label in node})
            self.labels_ = np.array(labels, dtype=object)
        n_labels, number = len(self.labels_), {label: i for i, label in enumerate(self.labels_)}
        keys: list[Array] = [np.zeros(0, dtype=np.int64)] * len(graphs)  # label pairs of graphs
        weights, scales = [np.zeros(0)] * len(graphs), np.ones(len(graphs))
        for index, W, scale in _path_weights(graphs, self.divergent, name):
            used, F = _by_label(W, graphs[index], number, self.gather)
            if self.normalize and F.any():
                F /= np.abs(F).max()  # the squares neither overflow nor underflow
                F /= np.linalg.norm(F)
            used = used[: np.searchsorted(used, n_labels)]  # new labels have higher numbers
            F = F[: len(used), : len(used)]
            source, target = np.nonzero(F)
            keys[index] = used[source] * n_labels + used[target]
            weights[index], scales[index] = F[source, target], scale
        scaled = np.flatnonzero(scales != 1)
        if len(scaled):
            shown = ", ".join(f"{name}[{i}] by {scales[i]:.3g}" for i in scaled[:5])
            warn(
                f"the paths of {len(scaled)} of {len(graphs)} graphs diverge, and their edge "
                f"weights were multiplied so that the spectral radius is {SCALED_RADIUS} "
                f"({shown}{', …' * (len(scaled) > 5)})"
            )
        row = np.repeat(np.arange(len(graphs)), [len(part) for part in keys])
        found = np.concatenate([np.zeros(0, dtype=np.int64), *keys])
        if fit:
            self.graph_scales_ = scales
            self.label_pairs_ = np.column_stack(np.divmod(np.unique(found), max(n_labels, 1)))
        columns = self.label_pairs_[:, 0] * n_labels + self.label_pairs_[:, 1]
        place = np.searchsorted(columns, found)
        kept = np.append(columns, -1)[place] == found
        kind = np.int32 if max(len(found), len(columns)) < 2**31 else np.int64
        coords = row[kept].astype(kind), place[kept].astype(kind)
        data = np.concatenate([np.zeros(0), *weights])[kept]
        return sp.csr_array((data, coords), shape=(len(graphs), len(columns)))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns, of the form "label → label"."""
        check_is_fitted(self)
        pairs = self.labels_[self.label_pairs_]
        return np.array([f"{source} → {target}" for source, target in pairs], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        return tags


def all_paths_graph_kernel(
    graphs_a: Any,
    graphs_b: Any = None,
    *,
    gather: str = "sum",
    normalize: bool = False,
    divergent: str = "error",
) -> Array:
    """Compute the all-paths graph kernel between all pairs of graphs.

    Parameters
    ----------
    graphs_a, graphs_b : list of graphs
        Graphs, as for `AllPathsGraphFeatures`. If ``graphs_b`` is None, ``graphs_a`` is used.
    gather, normalize, divergent
        As for `AllPathsGraphFeatures`.

    Returns
    -------
    ndarray of shape (n_a, n_b)
    """
    features = AllPathsGraphFeatures(gather, normalize, divergent)
    X_a = features._features(graphs_a, "graphs_a", fit=True)
    X_b = X_a if graphs_b is None else features._features(graphs_b, "graphs_b", fit=False)
    return (X_a @ X_b.T).toarray()


def _as_graphs(graphs: Any, name: str) -> list[LabelledGraph]:
    """Convert graphs of any accepted type to `LabelledGraph`."""
    one = isinstance(graphs, LabelledGraph | str | bytes) or hasattr(graphs, "is_directed")
    if one or not isinstance(graphs, Iterable) or sp.issparse(graphs):
        raise ValueError(
            f"{name} must be a list of graphs (put a single graph into a list); got {show(graphs)}"
        )
    converted = []
    for index, graph in enumerate(graphs):
        try:
            if hasattr(graph, "is_directed"):
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


def _path_weights(
    graphs: list[LabelledGraph], divergent: str, name: str
) -> Iterator[tuple[int, Array, float]]:
    """Generate the index, W and the scale factor of each graph, in stacks of similar sizes."""
    sizes = np.array([graph.n_nodes for graph in graphs], dtype=np.int64)
    order = np.argsort(-sizes, kind="stable").tolist()
    while order:
        v = max(int(sizes[order[0]]), 1)
        if v > 1000:
            advice = "graphs are solved as dense matrices; remove nodes, or split the graph"
            _resources.require("path weights of a graph", v, v, copies=4, advice=advice)
        count = max(1, STACK // v**2)
        some, order = order[:count], order[count:]
        stack = np.zeros((len(some), v, v))
        for A, index in zip(stack, some, strict=True):
            A[: sizes[index], : sizes[index]] = graphs[index].adjacency.toarray()
        diverges = _close(stack)
        for W, index, bad in zip(stack, some, diverges, strict=True):
            scale = 1.0
            if bad:
                W, scale = _scaled(graphs[index].adjacency, divergent, f"{name}[{index}]")
            yield index, W[: sizes[index], : sizes[index]], scale


def _close(A: Array) -> Array:
    """Replace each matrix of a stack (b, v, v) by Σ_{n≥1} Aⁿ, and return which sums diverge."""
    signed = np.flatnonzero((A < 0).any(axis=(1, 2)))
    with np.errstate(all="ignore"):
        # ρ(|A|) < 1 is sufficient, and makes the pivots of A at least those of |A|. Otherwise the
        # eigenvalues decide, and the solution is with pivoting.
        doubtful = signed[_eliminate(np.abs(A[signed]))]
        systems = A[doubtful]
        bad = _eliminate(A)
        for k, B in zip(doubtful, systems, strict=True):
            bad[k] = np.abs(np.linalg.eigvals(B)).max() >= 1.0 - 1e-12
            A[k] = 0.0 if bad[k] else np.linalg.solve(np.eye(len(B)) - B, B)
    return bad | ~np.isfinite(A).all(axis=(1, 2))


def _eliminate(A: Array) -> Array:
    """Eliminate nodes in place; return True where a pivot is not positive."""
    v = A.shape[1]
    limit = 8 * v * np.finfo(float).eps
    bad = np.zeros(len(A), dtype=bool)
    update = np.empty_like(A)
    for start in range(0, v, BLOCK):
        K = slice(start, min(start + BLOCK, v))
        B = A[:, K, K].copy()
        for k in range(B.shape[1]):
            pivot = 1.0 - B[:, k, k]
            stuck = ~(pivot > limit)
            bad |= stuck
            pivot[stuck] = 1.0
            B += (B[:, :, k] / pivot[:, None])[:, :, None] * B[:, k, None, :]
        # A + A_:K (I + B) A_K: with B = A_KK⁺ also holds for the rows and columns of K.
        R = A[:, K, :]
        A += np.matmul(A[:, :, K], R + B @ R, out=update)
    return bad


def _scaled(adjacency: sp.csr_array, divergent: str, where: str) -> tuple[Array, float]:
    """Path weights of a scaled graph whose paths diverge, and the scale factor."""
    radius = 0.0
    _, component = connected_components(adjacency, connection="strong")
    for label in np.unique(component):  # the eigenvalues of cycles alone are accurate
        nodes = np.flatnonzero(component == label)
        block = adjacency[nodes][:, nodes].toarray()
        radius = max(radius, float(np.abs(np.linalg.eigvals(block)).max()))
    scale = SCALED_RADIUS / max(radius, SCALED_RADIUS)
    W = adjacency.toarray()[None] * scale
    # Scaling does not help if there is no such cycle: the weights have overflowed.
    if divergent == "error" or not SCALED_RADIUS <= radius < np.inf or _close(W)[0]:
        shown = f", for example by {scale:.2g}" * (1 <= radius < np.inf)
        raise ValueError(
            f"{where}: the sum over all its paths does not converge: the spectral radius of its "
            f"adjacency matrix is {radius:.6g} and must be below 1. Multiply its edge weights by a "
            f"smaller number{shown}, or use divergent='scale'"
        )
    return W[0], scale


def _by_label(
    W: Array, graph: LabelledGraph, number: dict[str, int], gather: str
) -> tuple[Array, Array]:
    """Labels of a graph, ascending, and F = N W Nᵀ, or the maximum; new labels are numbered."""
    per_node: Any = graph.labels
    codes = [number.setdefault(label, len(number)) for node in per_node for label in node]
    used, counts = np.unique(np.array(codes, dtype=np.int64), return_counts=True)
    if not len(used):
        return used, np.zeros((0, 0))
    nodes = np.repeat(np.arange(len(W)), [len(node) for node in per_node])
    nodes = nodes[np.argsort(codes, kind="stable")]
    starts = np.cumsum(counts) - counts
    combine, nothing = GATHERS[gather]
    if nothing:
        W = np.where(W == 0, nothing, W)
    # Each label is a group of consecutive rows, then of columns.
    F = combine.reduceat(combine.reduceat(W[nodes], starts, axis=0)[:, nodes], starts, axis=1)
    return used, np.where(nothing == F, 0.0, F)
