"""All-paths graph kernel: the weights of all paths between labels, as sparse features.

The nodes of many graphs are the rows of one block diagonal matrix A. Its connected components are
solved in stacks of similar size for W = Σ_{n≥1} Aⁿ = (I − A)⁻¹ − I, by node elimination: every path
i → … → j that visits node k consists of a path to k, loops at k and a path from k, so that

    A_ij ← A_ij + A_ik (1 − A_kk)⁻¹ A_kj      for k = 1, 2, …

replaces A by W. For a block K of nodes this becomes A ← A + A_:K (I + A_KK⁺) A_K: with A_KK⁺ the
path weights within the block, which takes two matrix products. This is Gaussian elimination without
pivoting. For non-negative weights it only adds, so that entries without a path stay exactly zero
and the others are accurate. The spectral radius is below one if and only if all pivots 1 − A_kk are
positive (I − A is then an M-matrix).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from rankrls._validation import check_option, show
from rankrls.graph_kernels._graphs import LabelledGraph, as_graphs

__all__ = ["AllPathsGraphFeatures", "all_paths_graph_kernel"]

Array = NDArray[Any]

GATHERS = {"sum": np.add, "max": np.maximum}

#: Spectral radius to which graphs with divergent paths are scaled.
SCALED_RADIUS = 0.9

#: Σ v² of the graphs processed together, and number of values in a stack of components (1 MiB).
_CHUNK, _STACK = 2**18, 2**17

#: Nodes eliminated together.
_BLOCK = 16


class AllPathsGraphFeatures(TransformerMixin, BaseEstimator):
    r"""Sparse features of graphs: the weights of all paths between each pair of labels.

    The inner product of the features of two graphs is their all-paths graph kernel. Any linear
    method applied to these sparse features therefore learns with this kernel.

    Parameters
    ----------
    gather : {"sum", "max"}, default="sum"
        How to combine several pairs of nodes with the same two labels: "sum" adds their path
        weights, which is the definition of P4 §4; "max" takes the largest weight over the pairs of
        nodes that are connected by a path.
    normalize : bool, default=False
        Whether to divide the features of each graph by their Euclidean length, so that the kernel
        becomes a cosine. Label pairs not seen in ``fit`` are included in this length although they
        have no column, so that inner products equal the kernel. A graph without paths is a row of
        zeros.
    divergent : {"error", "scale"}, default="error"
        How to treat a graph whose sum over paths does not converge. "error" raises an error that
        names the graph. "scale" multiplies all its edge weights by 0.9 / (spectral radius) and
        warns how many graphs were scaled; other graphs are not changed.

    Attributes
    ----------
    graph_scales_ : ndarray of shape (n_graphs,)
        Factor by which the edge weights of each graph in ``fit`` were multiplied: 1, or less for
        graphs whose paths diverge if ``divergent="scale"``.
    labels_ : ndarray of shape (n_labels,), object
        All labels seen in ``fit``, sorted.
    label_pairs_ : ndarray of shape (n_features, 2), int
        First and last label of the paths that each column represents, as indices of ``labels_``.
        Only pairs that are connected by a path have a column, in sorted order.

    See Also
    --------
    all_paths_graph_kernel : Computes the kernel matrix.

    Notes
    -----
    A graph with adjacency matrix :math:`A` has the path weights
    :math:`W = \sum_{n \ge 1} A^n = (I - A)^{-1} - I`: the weight of a path is the product of the
    weights of its edges, and a path can visit a node repeatedly. With :math:`N` the 0/1 matrix of
    labels by nodes, the features are the entries of :math:`F = N W N^\top`, and the kernel of two
    graphs is :math:`\sum_{ij} F'_{ij} F''_{ij}` over labels. The series converges if the spectral
    radius of :math:`A` is below 1, which holds for every graph without cycles. Otherwise an error
    is raised or the graph is scaled; see ``divergent``.

    A graph can be given as

    - a pair ``(adjacency, labels)``: an array or sparse matrix of shape (v, v), and for every node
      an iterable of strings (a single string is one label);
    - a `LabelledGraph`;
    - a networkx graph with a node attribute ``"labels"`` (or ``"label"``) and an edge attribute
      ``"weight"`` (1 if missing). An undirected edge counts in both directions.

    ``transform`` ignores labels and label pairs that were not seen in ``fit``. Nodes with such
    labels still belong to paths between other nodes.

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
        return self._learn(as_graphs(X), "graphs")

    def _learn(self, graphs: list[LabelledGraph], name: str) -> sp.csr_array:
        self._check_options()
        if not graphs:
            raise ValueError(f"{name} is empty; give at least one graph")
        labels = sorted({label for graph in graphs for node in graph.labels for label in node})
        pairs = self._label_pairs(graphs, {label: i for i, label in enumerate(labels)}, name)
        vocabulary = np.unique(pairs.keys)
        self.graph_scales_ = pairs.scales
        self.labels_ = np.array(labels, dtype=object)
        self.label_pairs_ = np.column_stack(np.divmod(vocabulary, max(len(labels), 1)))
        return pairs.matrix(vocabulary, self.normalize)

    def transform(self, X: Any) -> sp.csr_array:
        """Compute the features of a list of graphs, a csr_array (n_graphs, n_features)."""
        check_is_fitted(self)
        return self._apply(as_graphs(X), "graphs")

    def _apply(self, graphs: list[LabelledGraph], name: str) -> sp.csr_array:
        self._check_options()
        n_labels = len(self.labels_)
        number = {label: i for i, label in enumerate(self.labels_)}
        vocabulary = self.label_pairs_[:, 0] * n_labels + self.label_pairs_[:, 1]
        pairs = self._label_pairs(graphs, number, name, n_labels)
        return pairs.matrix(vocabulary, self.normalize)

    def _label_pairs(
        self, graphs: list[LabelledGraph], number: dict[str, int], name: str, n_known: int = -1
    ) -> _LabelPairs:
        """Weights of label pairs of all graphs, in chunks; new labels get key -1."""
        n_known = len(number) if n_known < 0 else n_known
        parts = [(np.zeros(0, int), np.zeros(0, int), np.zeros(0), np.ones(0))]
        for start, stop in _ranges([max(graph.n_nodes, 1) ** 2 for graph in graphs]):
            some = graphs[start:stop]
            W, scales = _converging(some, self.divergent, name, start)
            counts, sources, targets, weights = _gather(some, W, number, self.gather)
            keys = sources * n_known + targets
            if len(number) > n_known:  # new labels are numbered after the known ones
                keys = np.where((sources < n_known) & (targets < n_known), keys, -1)
            parts.append((counts, keys, weights, scales))
        pairs = _LabelPairs(*(np.concatenate(part) for part in zip(*parts, strict=True)))
        scaled = np.flatnonzero(pairs.scales != 1)
        if len(scaled):
            shown = ", ".join(f"{name}[{i}] by {pairs.scales[i]:.3g}" for i in scaled[:5])
            warn(
                f"the paths of {len(scaled)} of {len(graphs)} graphs diverge, and their edge "
                f"weights were multiplied so that the spectral radius is {SCALED_RADIUS} "
                f"({shown}{', …' * (len(scaled) > 5)})"
            )
        return pairs

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns, of the form "label → label"."""
        check_is_fitted(self)
        pairs = self.labels_[self.label_pairs_]
        return np.array([f"{source} → {target}" for source, target in pairs], dtype=object)

    def _check_options(self) -> None:
        check_option("gather", self.gather, GATHERS)
        check_option("divergent", self.divergent, ("error", "scale"))
        if not isinstance(self.normalize, bool | np.bool_):
            raise ValueError(f"normalize must be True or False; got {show(self.normalize)}")

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

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls.graph_kernels import all_paths_graph_kernel
    >>> chain = np.diag([0.5, 0.5], k=1)
    >>> all_paths_graph_kernel([(chain, ["a", "b", "c"]), (chain, ["a", "c", "c"])])
    array([[0.5625, 0.1875],
           [0.1875, 0.8125]])
    """
    features = AllPathsGraphFeatures(gather, normalize, divergent)
    features._check_options()
    a = as_graphs(graphs_a, "graphs_a")
    b = None if graphs_b is None else as_graphs(graphs_b, "graphs_b")
    X_a = features._learn(a, "graphs_a")
    X_b = X_a if b is None else features._apply(b, "graphs_b")
    return (X_a @ X_b.T).toarray()


@dataclass(frozen=True)
class _LabelPairs:
    """Entries of the matrices F = N W Nᵀ of all graphs."""

    counts: Array  # entries of each graph
    keys: Array  # label pairs, ascending within a graph but for -1, a pair that has no column
    weights: Array  # not zero
    scales: Array  # factor by which the edge weights of each graph were multiplied

    def matrix(self, vocabulary: Array, normalize: bool) -> sp.csr_array:
        """Features of the graphs, with one column for each key of the vocabulary."""
        graph = np.repeat(np.arange(len(self.counts)), self.counts)
        weights = self.weights
        if normalize:
            largest = np.zeros(len(self.counts))
            np.maximum.at(largest, graph, np.abs(weights))
            weights = weights / largest[graph]  # prevents overflow and underflow of the squares
            weights /= np.sqrt(np.bincount(graph, weights**2, minlength=len(largest)))[graph]
        column = np.searchsorted(vocabulary, self.keys)
        kept = np.append(vocabulary, -2)[column] == self.keys
        indptr = np.append(0, np.cumsum(np.bincount(graph[kept], minlength=len(self.counts))))
        kind = np.int32 if max(indptr[-1], len(vocabulary)) < 2**31 else np.int64
        parts = weights[kept], column[kept].astype(kind), indptr.astype(kind)
        matrix = sp.csr_array(parts, shape=(len(self.counts), len(vocabulary)))
        matrix.has_canonical_format = True  # columns are in ascending order of the labels
        return matrix


# -- path weights -----------------------------------------------------------------------------


def _ranges(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges of graphs with sizes that add up to about a chunk."""
    start = total = 0
    for stop, size in enumerate(sizes, 1):
        total += size
        if total >= _CHUNK or stop == len(sizes):
            yield start, stop
            start, total = stop, 0


def _converging(
    graphs: Sequence[LabelledGraph], divergent: str, name: str, offset: int
) -> tuple[sp.csr_array, Array]:
    """Return the path weights of all graphs, and the scale factors of their edge weights."""
    sizes = np.array([graph.n_nodes for graph in graphs])
    ends = np.cumsum(sizes)
    scales = np.ones(len(graphs))
    blocks = [graph.adjacency for graph in graphs]
    while True:
        W, divergent_nodes = _path_weights(_block_diagonal(blocks, ends - sizes))
        found = np.unique(np.searchsorted(ends, divergent_nodes, side="right"))
        if not len(found):
            return W, scales
        for index in found:
            radius = _spectral_radius(graphs[index].adjacency)
            # Scaling does not help if the graph was already scaled or has no such cycle: the
            # weights have overflowed.
            hopeless = scales[index] != 1 or not SCALED_RADIUS <= radius < np.inf
            if divergent == "error" or hopeless:
                scale = f", for example by {SCALED_RADIUS / max(radius, 1):.2g}" * (
                    1 <= radius < np.inf
                )
                raise ValueError(
                    f"{name}[{offset + index}]: the sum over all its paths does not converge: the "
                    f"spectral radius of its adjacency matrix is {radius:.6g} and must be below 1. "
                    f"Multiply its edge weights by a smaller number{scale}, or remove its cycles; "
                    "divergent='scale' does so for such graphs"
                )
            scales[index] = SCALED_RADIUS / radius
            blocks[index] = graphs[index].adjacency * scales[index]


def _block_diagonal(blocks: list[sp.csr_array], first: Array) -> sp.coo_array:
    """Join adjacency matrices, several times as fast as ``sp.block_diag`` for small ones."""
    shift = np.repeat(first, [block.nnz for block in blocks])
    sources = [np.repeat(np.arange(len(b.indptr) - 1), np.diff(b.indptr)) for b in blocks]
    coords = [np.concatenate(part) + shift for part in (sources, [b.indices for b in blocks])]
    n = sum(block.shape[0] for block in blocks)
    data = np.concatenate([block.data for block in blocks])
    return sp.coo_array((data, tuple(coords)), shape=(n, n))


def _path_weights(A: sp.coo_array) -> tuple[sp.csr_array, Array]:
    """Σ_{n≥1} Aⁿ by connected components, and a node of each component that diverges."""
    n_components, component = connected_components(A, directed=False)
    sizes = np.bincount(component, minlength=n_components)
    order = np.argsort(component, kind="stable")
    first = np.cumsum(sizes) - sizes
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) - np.repeat(first, sizes)
    of_edge = component[A.coords[0]]
    used = np.flatnonzero(np.bincount(of_edge, minlength=n_components))
    used = used[np.argsort(sizes[used], kind="stable")]
    rank = np.full(n_components, -1)
    rank[used] = np.arange(len(used))
    entries, divergent = [], [np.zeros(0, dtype=np.int64)]
    start = 0
    while start < len(used):  # components whose sizes differ by at most a sixth, padded
        v = int(sizes[used[start]]) * 7 // 6 + 1
        similar = int(np.searchsorted(sizes[used], v, side="right"))
        v = int(sizes[used[similar - 1]])
        stop = min(similar, start + max(1, _STACK // v**2))
        if v > 1000:
            advice = "graphs are solved as dense matrices; remove edges that connect large parts"
            _resources.require("path weights of a connected graph", v, v, copies=4, advice=advice)
        stack = np.zeros((stop - start, v, v))
        chosen = np.flatnonzero((rank[of_edge] >= start) & (rank[of_edge] < stop))
        i, j = (place[ends[chosen]] for ends in A.coords)
        stack[rank[of_edge[chosen]] - start, i, j] = A.data[chosen]
        bad = _close(stack)
        divergent.append(order[first[used[start:stop][bad]]])
        some = used[start:stop, None]
        nodes = order[first[some] + np.minimum(np.arange(v), sizes[some] - 1)]
        linked = stack != 0
        rows = np.repeat(nodes.ravel(), np.count_nonzero(linked, axis=2).ravel())
        entries.append((rows, np.broadcast_to(nodes[:, None], stack.shape)[linked], stack[linked]))
        start = stop
    if not entries:
        return sp.csr_array(A.shape), divergent[0]
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    return sp.csr_array((values, (rows, columns)), shape=A.shape), np.concatenate(divergent)


def _close(A: Array) -> Array:
    """Replace each matrix of a stack (b, v, v) by Σ_{n≥1} Aⁿ, and return which sums diverge."""
    signed = np.flatnonzero((A < 0).any(axis=(1, 2)))
    with np.errstate(all="ignore"):
        # ρ(|A|) < 1 is sufficient, and makes the pivots of A at least those of |A|. Otherwise the
        # eigenvalues decide, and the solution is with pivoting.
        doubtful = signed[_eliminate(np.abs(A[signed]))] if len(signed) else signed
        B = A[doubtful]
        diverges = np.abs(np.linalg.eigvals(B)).max(axis=1, initial=0.0) >= 1.0 - 1e-12
        identity = np.eye(A.shape[1])
        system = identity - np.where(diverges[:, None, None], 0.0, B)
        exact = np.linalg.solve(system, identity - system)
        A[doubtful] = 0.0
        bad = _eliminate(A)
        A[doubtful], bad[doubtful] = exact, diverges
        bad |= ~np.isfinite(A).all(axis=(1, 2))
    return bad


def _eliminate(A: Array) -> Array:
    """Eliminate nodes in place; return True where a pivot is not positive."""
    v = A.shape[1]
    limit = 8 * v * np.finfo(float).eps
    bad = np.zeros(len(A), dtype=bool)
    update = np.empty_like(A)
    for start in range(0, v, _BLOCK):
        K = slice(start, min(start + _BLOCK, v))
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


def _spectral_radius(A: sp.csr_array) -> float:
    """Largest absolute eigenvalue, over strongly connected components."""
    _, component = connected_components(A, connection="strong")
    source, target = A.tocoo().coords
    radius = 0.0
    for label in np.unique(component[source[component[source] == component[target]]]):
        nodes = np.flatnonzero(component == label)
        block = A[nodes][:, nodes].toarray()
        radius = max(radius, float(np.abs(np.linalg.eigvals(block)).max()))
    return radius


# -- from nodes to labels ---------------------------------------------------------------------


def _gather(
    graphs: Sequence[LabelledGraph], W: sp.csr_array, number: dict[str, int], gather: str
) -> tuple[Array, Array, Array, Array]:
    """Combine path weights of nodes to weights of labels: F = N W Nᵀ, or the maximum.

    Labels that are not in ``number`` are added to it. Returns the number of entries of each graph;
    and for each entry both labels and the weight, in ascending order within a graph.
    """
    # One entry for each label of each node, sorted by (graph, label): a group of nodes.
    per_node: list[Any] = [node for graph in graphs for node in graph.labels]
    labels = np.array(
        [number.setdefault(label, len(number)) for node in per_node for label in node],
        dtype=np.int64,
    )
    nodes = np.repeat(np.arange(len(per_node)), [len(node) for node in per_node])
    graph = np.repeat(np.arange(len(graphs)), [graph.n_nodes for graph in graphs])
    key = graph[nodes] * len(number) + labels
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    of_graph, of_label = np.divmod(key[order[starts]], max(len(number), 1))

    nodes, n_groups = nodes[order], len(starts)
    group = np.repeat(np.arange(n_groups, dtype=np.int32), np.diff(starts, append=len(nodes)))
    between = W[nodes].T.tocsr()[nodes]  # rows: labels of the target; columns: of the source
    # Rows of a group are consecutive, so joining them only removes row pointers.
    indptr = np.append(between.indptr[starts], between.indptr[-1])
    parts = between.data, group[between.indices], indptr
    by_source = sp.csr_array(parts, shape=(n_groups, n_groups)).tocsc()  # sorted by target, too
    target, weights = by_source.indices, by_source.data
    source = np.repeat(np.arange(n_groups), np.diff(by_source.indptr))
    if len(target):
        new = np.append(True, (target[1:] != target[:-1]) | (source[1:] != source[:-1]))
        begin = np.flatnonzero(new)
        source, target = source[begin], target[begin]
        weights = GATHERS[gather].reduceat(weights, begin)
    kept = weights != 0  # weights of opposite sign can cancel
    source, target, weights = source[kept], target[kept], weights[kept]
    counts = np.bincount(of_graph[source], minlength=len(graphs))
    return counts, of_label[source], of_label[target], weights
