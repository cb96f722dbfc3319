"""The all-paths graph kernel against power series, double loops and paths counted by hand."""

import numpy as np
import pytest
from scipy import sparse as sp

from rankrls.graph_kernels import (
    AllPathsGraphFeatures,
    LabelledGraph,
    all_paths_graph_kernel,
)


def chain(*weights):
    return np.diag(np.array(weights, dtype=float), k=1)


def series(A, terms=4000):
    """Σ_{n≥1} Aⁿ, term by term."""
    A = np.asarray(A, dtype=float)
    power, total = np.eye(len(A)), np.zeros_like(A)
    for n in range(terms):
        power = power @ A
        total += power
        if n > len(A) and np.abs(power).max(initial=0.0) <= 1e-20 * np.abs(total).max(initial=0.0):
            break
    return total


def naive(graph, gather):
    """F as a dict, by a double loop over nodes."""
    A, labels = graph
    W = series(A)
    out = {}
    for u in range(len(W)):
        for v in range(len(W)):
            if abs(W[u, v]) > 0:
                for a in set(labels[u]):
                    for b in set(labels[v]):
                        old = out.get((a, b))
                        if gather == "sum":
                            out[a, b] = (old or 0.0) + W[u, v]
                        else:
                            out[a, b] = W[u, v] if old is None else max(old, W[u, v])
    return out


def naive_kernel(a, b, gather):
    F, G = naive(a, gather), naive(b, gather)
    return sum(value * G.get(key, 0.0) for key, value in F.items())


def random_graph(rng, v, kind, radius=0.7):
    A = rng.random((v, v)) * (rng.random((v, v)) < 3.0 / max(v, 3))
    if kind == "dag":
        order = rng.permutation(v)
        A = (np.triu(A, 1) * 2)[order][:, order]
    else:
        if kind == "signed":
            A *= np.sign(rng.normal(size=A.shape))
        if kind == "symmetric":
            A = A + A.T
        largest = np.abs(np.linalg.eigvals(A)).max(initial=0.0)
        A *= radius / max(largest, 0.1)
    labels = [list(rng.choice(list("abcdefgh"), size=rng.integers(0, 4), replace=False)) for _ in A]
    return A, [[str(label) for label in node] for node in labels]


def as_dict(features, row):
    return {
        tuple(features.labels_[pair]): value
        for pair, value in zip(features.label_pairs_[row.indices], row.data, strict=True)
    }


def test_paths_counted_by_hand():
    # a → b → c and a → c: two paths from a to c.
    A = np.array([[0, 0.5, 0.25], [0, 0, 0.5], [0, 0, 0]])
    features = AllPathsGraphFeatures()
    X = features.fit_transform([(A, ["a", "b", "c"])])
    assert as_dict(features, X[[0]]) == {("a", "b"): 0.5, ("a", "c"): 0.5, ("b", "c"): 0.5}
    assert features.get_feature_names_out().tolist() == ["a → b", "a → c", "b → c"]
    words = np.array(["one", "two", "three"])  # each of which is one label, too
    assert LabelledGraph(A, words).labels == (("one",), ("two",), ("three",))


@pytest.mark.parametrize("gather", ["sum", "max"])
@pytest.mark.parametrize("kind", ["dag", "cyclic", "signed", "symmetric"])
def test_features_equal_the_double_loop(kind, gather):
    rng = np.random.default_rng(0)
    graphs = [random_graph(rng, v, kind) for v in (1, 2, 3, 5, 8, 17, 33, 40, 33, 8, 2)]
    features = AllPathsGraphFeatures(gather)
    X = features.fit_transform(graphs)
    for row, graph in enumerate(graphs):
        expected, found = naive(graph, gather), as_dict(features, X[[row]])
        assert kind == "signed" or set(found) == set(expected)
        for key in set(found) | set(expected):
            assert found.get(key, 0.0) == pytest.approx(expected.get(key, 0.0), abs=1e-11)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("gather", ["sum", "max"])
def test_features_times_features_is_the_kernel(gather, normalize):
    rng = np.random.default_rng(1)
    a = [random_graph(rng, v, "cyclic") for v in (3, 7, 12, 20)]
    b = [random_graph(rng, v, "dag") for v in (2, 9, 15)]
    b = [(A, [[*node, "new"] for node in labels]) for A, labels in b]
    features = AllPathsGraphFeatures(gather, normalize=normalize)
    X_a, X_b = features.fit_transform(a), features.transform(b)
    expected = np.array([[naive_kernel(g, h, gather) for h in [*a, *b]] for g in [*a, *b]])
    if normalize:
        length = np.sqrt(expected.diagonal())
        expected = expected / length / length[:, None]
    options = {"gather": gather, "normalize": normalize}
    assert np.allclose(all_paths_graph_kernel(a, **options), expected[:4, :4], rtol=1e-10)
    assert np.allclose(all_paths_graph_kernel(a, b, **options), expected[:4, 4:], rtol=1e-10)
    assert np.allclose((X_a @ X_b.T).toarray(), expected[:4, 4:], rtol=1e-10)
    assert np.allclose((X_a @ X_a.T).toarray(), expected[:4, :4], rtol=1e-10)


def test_a_dag_of_large_weights_has_no_noise():
    rng = np.random.default_rng(2)
    order = rng.permutation(50)
    A = (np.triu(rng.random((50, 50)) < 0.1, 1) * 3.0)[order][:, order]
    X = AllPathsGraphFeatures().fit_transform([(A, [str(i) for i in range(50)])])
    W = series(A)
    assert X.nnz == np.count_nonzero(W)  # nothing where no path leads
    assert np.allclose(np.sort(X.data), np.sort(W[W > 0]), rtol=1e-12)


def test_large_graph_beside_many_small_ones():
    rng = np.random.default_rng(3)
    big = random_graph(rng, 300, "cyclic")
    small = [random_graph(rng, int(v), "dag") for v in rng.integers(0, 12, size=60)]
    together = all_paths_graph_kernel([*small, big])
    assert together[-1, -1] == pytest.approx(naive_kernel(big, big, "sum"), rel=1e-9)
    assert np.allclose(together[:-1, :-1], all_paths_graph_kernel(small), rtol=1e-12)


def test_unseen_labels_are_ignored():
    features = AllPathsGraphFeatures().fit([(chain(0.5, 0.5), ["a", "b", "c"])])
    same = features.transform([(chain(0.5, 0.5), [["a", "z"], "b", ["c", "zz"]])])
    assert same.toarray().tolist() == [[0.5, 0.25, 0.5]]
    # A pair that is new, of labels that are not.
    assert features.transform([(chain(0.5), ["c", "a"])]).toarray().tolist() == [[0, 0, 0]]
    # Paths lead through nodes of unknown labels.
    assert features.transform([(chain(0.5, 0.5), ["a", "z", "c"])]).toarray()[0, 1] == 0.25
    assert features.transform([]).shape == (0, 3)


@pytest.mark.parametrize("radius", [0.999999, 1.000001, 1.5])
@pytest.mark.parametrize("kind", ["cyclic", "signed", "symmetric"])
def test_divergence_is_decided_by_the_spectral_radius(kind, radius):
    rng = np.random.default_rng(6)
    for v in (1, 2, 5, 20, 45):
        A = rng.random((v, v)) + 0.01
        if kind == "symmetric":
            A = A + A.T
        if kind == "signed":
            A = A * np.sign(rng.normal(size=(v, v)))
        A *= radius / np.abs(np.linalg.eigvals(A)).max()
        graph = (A, [str(i) for i in range(v)])
        if radius < 1:
            X = AllPathsGraphFeatures().fit_transform([graph])
            expected = np.linalg.inv(np.eye(v) - A) - np.eye(v)
            assert np.allclose(np.sort(X.data), np.sort(expected.ravel()), rtol=1e-6, atol=1e-6)
        else:
            with pytest.raises(ValueError, match=r"graphs\[1\].* does not converge.*radius"):
                AllPathsGraphFeatures().fit([(chain(0.9), ["a", "b"]), graph])


@pytest.mark.parametrize("kind", ["cyclic", "signed", "dag"])
def test_divergent_graphs_are_scaled(kind):
    """Equal to scaling them beforehand; other graphs are as they were."""
    rng = np.random.default_rng(11)
    radii = [0.5, 1.29, 0.9, 1.001, 40.0, 0.99]
    graphs = [random_graph(rng, v, kind, r) for r in radii for v in (3, 12, 25)]
    radius = [np.abs(np.linalg.eigvals(A)).max(initial=0.0) for A, _ in graphs]
    scales = [0.9 / r if r >= 1 - 1e-12 else 1.0 for r in radius]
    wanted = AllPathsGraphFeatures().fit_transform(
        [(A * scale, labels) for (A, labels), scale in zip(graphs, scales, strict=True)]
    )
    features = AllPathsGraphFeatures(divergent="scale")
    if kind == "dag":
        X = features.fit_transform(graphs)
    else:
        n = sum(scale != 1 for scale in scales)
        assert n >= 6
        with pytest.warns(UserWarning, match=rf"paths of {n} of 18 graphs diverge.*graphs\[3\] by"):
            X = features.fit_transform(graphs)
        with pytest.warns(UserWarning, match=r"graphs_a\[3\] by"):
            kernel = all_paths_graph_kernel(graphs, divergent="scale")
        assert np.allclose(kernel, (X @ X.T).toarray())
    assert np.allclose(features.graph_scales_, scales, rtol=1e-9)
    assert np.allclose(X.toarray(), wanted.toarray(), rtol=1e-6, atol=1e-12)


def test_signed_weights_converge_where_their_absolute_values_do_not():
    A = np.array([[0.5, -0.6], [0.6, 0.5]])  # ρ(A) = 0.78, ρ(|A|) = 1.1
    X = AllPathsGraphFeatures().fit_transform([(A, ["a", "b"])])
    assert np.allclose(X.toarray(), series(A).ravel(), atol=1e-12)


def test_float32_and_integers_and_duplicate_entries():
    single = np.array([[0, 1], [0, 0]], dtype=np.int8)
    twice = sp.coo_array(([0.5, 0.5], ([0, 0], [1, 1])), shape=(2, 2))
    graphs = [(matrix, ["a", "b"]) for matrix in (single, single.astype(np.float32), twice)]
    assert AllPathsGraphFeatures().fit_transform(graphs).toarray().tolist() == [[1.0]] * 3
    assert twice.nnz == 2  # what was given is left as it is


def test_networkx_graphs():
    networkx = pytest.importorskip("networkx")
    G = networkx.DiGraph()
    G.add_node("first", labels=["a", "x"])
    G.add_node("second", label="b")
    G.add_node("third", labels=("c",))
    G.add_edge("first", "second", weight=0.5)
    G.add_edge("second", "third")  # weight 1
    A = np.array([[0, 0.5, 0], [0, 0, 1.0], [0, 0, 0]])
    labels = [["a", "x"], ["b"], ["c"]]
    features = AllPathsGraphFeatures()
    X = features.fit_transform([G, (A, labels), LabelledGraph(A, labels)]).toarray()
    assert (X[0] == X[1]).all()
    assert (X[0] == X[2]).all()

    U, M = networkx.Graph(), networkx.MultiDiGraph()
    for graph, second in ((U, (1, 1)), (M, (0, 1))):
        graph.add_nodes_from([(0, {"label": "a"}), (1, {"label": "b"})])
        graph.add_edge(0, 1, weight=0.5)
        graph.add_edge(*second, weight=0.25)
    both = np.array([[0, 0.5], [0.5, 0.25]]), ["a", "b"]
    assert np.allclose(all_paths_graph_kernel([U]), naive_kernel(both, both, "sum"))
    assert AllPathsGraphFeatures().fit_transform([M]).toarray().tolist() == [[0.75]]

    bare = networkx.path_graph(3, create_using=networkx.DiGraph)
    with pytest.raises(ValueError, match=r"graphs\[0\]: no node has an attribute 'labels'"):
        AllPathsGraphFeatures().fit([bare])
    with pytest.raises(ValueError, match="into a list"):
        AllPathsGraphFeatures().fit(bare)


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ([], "graphs is empty"),
        (None, "must be a list of graphs"),
        ("ab", "must be a list of graphs"),
        (LabelledGraph(chain(0.5), ["a", "b"]), "into a list"),
        ((chain(0.5), ["a", "b"]), r"graphs\[0\] must be a pair"),
        ([(chain(0.5), ["a"])], r"graphs\[0\]: labels has 1 entries for 2 nodes"),
        ([(chain(0.5), {"a": "x", "b": "y"})], r"graphs\[0\]: labels must be a list, one for each"),
        ([(np.ones((2, 3)), ["a", "b"])], "square"),
        ([(sp.csr_array([[np.inf]]), ["a"])], "NaN or infinity"),
        ([(np.ones(3), ["a"] * 3)], "square"),
        ([(sp.csr_array([[1j]]), ["a"])], "real"),
        ([(chain(0.5), [["a"], [3]])], r"labels of node 1 must be strings; got \[3\]"),
    ],
)
def test_bad_graphs(graphs, message):
    with pytest.raises(ValueError, match=message):
        AllPathsGraphFeatures().fit(graphs)


def test_graphs_too_large_for_memory_are_refused():
    n = 300_000
    ends = np.arange(n - 1)
    A = sp.coo_array((np.full(n - 1, 0.5), (ends, ends + 1)), shape=(n, n))
    with pytest.raises(MemoryError, match="path weights of a graph"):
        AllPathsGraphFeatures().fit([(A, [()] * n)])
