"""``AllPathsGraphFeatures``: sparse features of labelled graphs, and their kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from rankrls._calls import all_or_nothing, warn
from rankrls._validation import check_option, show
from rankrls.graph_kernels._gather import GATHERS, SCALED_RADIUS, LabelPairs, label_pairs
from rankrls.graph_kernels._graphs import LabelledGraph, as_graphs
from rankrls.graph_kernels._vocabulary import learn, look_up

__all__ = ["AllPathsGraphFeatures", "all_paths_graph_kernel"]

Array = NDArray[Any]


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
        """Learn the labels, and the pairs of labels that are connected by paths.

        Parameters
        ----------
        X : list of graphs
        y : ignored

        Returns
        -------
        self : AllPathsGraphFeatures
        """
        self.fit_transform(X)
        return self

    @all_or_nothing
    def fit_transform(self, X: Any, y: Any = None) -> sp.csr_array:
        """Fit and transform the graphs, computing the paths only once.

        Parameters
        ----------
        X : list of graphs
        y : ignored

        Returns
        -------
        csr_array of shape (n_graphs, n_features), float64
        """
        return self._learn(as_graphs(X), "graphs")

    def _learn(self, graphs: list[LabelledGraph], name: str) -> sp.csr_array:
        check_parameters(self.gather, self.normalize, self.divergent)
        if not graphs:
            raise ValueError(f"{name} is empty; give at least one graph")
        names = sorted({label for graph in graphs for node in graph.labels for label in node})
        number = {label: i for i, label in enumerate(names)}
        counts, keys, weights, scales = [], [], [], []
        for pairs in label_pairs(graphs, number, self.gather, self.divergent, name):
            counts.append(pairs.counts)
            scales.append(pairs.scales)
            keys.append(pairs.sources * len(names) + pairs.targets)
            weights.append(self._weights(pairs))
        vocabulary, columns = learn(keys, len(names) ** 2)
        self.graph_scales_ = np.concatenate(scales)
        _tell_scales(self.graph_scales_, name)
        self.labels_ = np.array(names, dtype=object)
        self.label_pairs_ = np.column_stack(np.divmod(vocabulary, max(len(names), 1)))
        return _matrix(counts, columns, weights, len(vocabulary))

    def transform(self, X: Any) -> sp.csr_array:
        """Compute the features of graphs.

        Parameters
        ----------
        X : list of graphs

        Returns
        -------
        csr_array of shape (n_graphs, n_features), float64
        """
        check_is_fitted(self)
        return self._apply(as_graphs(X), "graphs")

    def _apply(self, graphs: list[LabelledGraph], name: str) -> sp.csr_array:
        check_parameters(self.gather, self.normalize, self.divergent)
        n_labels = len(self.labels_)
        number = {label: i for i, label in enumerate(self.labels_)}
        sources, targets = self.label_pairs_.T
        vocabulary = sources * n_labels + targets
        counts, columns, weights = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0)]
        scales = [np.ones(0)]
        for pairs in label_pairs(graphs, number, self.gather, self.divergent, name):
            scales.append(pairs.scales)
            keys = pairs.sources * n_labels + pairs.targets
            if len(number) > n_labels:  # new labels are numbered after the known ones
                new = (pairs.sources >= n_labels) | (pairs.targets >= n_labels)
                keys = np.where(new, -1, keys)
            column = look_up(vocabulary, keys, n_labels**2)
            weight, count = self._weights(pairs), pairs.counts
            kept = column >= 0
            if not kept.all():
                graph = np.repeat(np.arange(len(count)), count)
                count = np.bincount(graph[kept], minlength=len(count))
                column, weight = column[kept], weight[kept]
            counts.append(count)
            columns.append(column)
            weights.append(weight)
        _tell_scales(np.concatenate(scales), name)
        return _matrix(counts, columns, weights, len(vocabulary))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns, of the form "label → label".

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of shape (n_features,), object
        """
        check_is_fitted(self)
        pairs = self.labels_[self.label_pairs_]
        return np.array([f"{source} → {target}" for source, target in pairs], dtype=object)

    def _weights(self, pairs: LabelPairs) -> Array:
        if not self.normalize:
            return pairs.weights
        lengths = pairs.lengths()
        return pairs.weights / np.repeat(lengths, pairs.counts)

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
    check_parameters(gather, normalize, divergent)
    a = as_graphs(graphs_a, "graphs_a")
    b = None if graphs_b is None else as_graphs(graphs_b, "graphs_b")
    X_a = features._learn(a, "graphs_a")
    X_b = X_a if b is None else features._apply(b, "graphs_b")
    return (X_a @ X_b.T).toarray()


def check_parameters(gather: Any, normalize: Any, divergent: Any) -> None:
    """Raise an error unless the options are valid."""
    check_option("gather", gather, GATHERS)
    check_option("divergent", divergent, ("error", "scale"))
    if not isinstance(normalize, bool | np.bool_):
        raise ValueError(f"normalize must be True or False; got {show(normalize)}")


def _tell_scales(scales: Array, name: str) -> None:
    """Warn that graphs were scaled."""
    scaled = np.flatnonzero(scales != 1)
    if len(scaled):
        shown = ", ".join(f"{name}[{i}] by {scales[i]:.3g}" for i in scaled[:5])
        more = ", …" * (len(scaled) > 5)
        warn(
            f"the paths of {len(scaled)} of {len(scales)} graphs diverge, and their edge weights "
            f"were multiplied so that the spectral radius is {SCALED_RADIUS} ({shown}{more})"
        )


def _matrix(
    counts: list[Array], columns: list[Array], weights: list[Array], n_columns: int
) -> sp.csr_array:
    indptr = np.cumsum(np.concatenate([[0], *counts]))
    kind = np.int32 if max(indptr[-1], n_columns) < 2**31 else np.int64
    indices = np.concatenate(columns, dtype=kind)
    data = np.concatenate(weights)
    matrix = sp.csr_array((data, indices, indptr.astype(kind)), shape=(len(indptr) - 1, n_columns))
    matrix.has_canonical_format = True  # columns are in ascending order of the labels
    return matrix
