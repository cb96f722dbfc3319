"""Graphs of sentences, node by node, and a task that only word order can solve."""

import numpy as np
import pytest

from rankrls.graph_kernels import (
    AllPathsGraphFeatures,
    Dependency,
    Token,
    sentence_graph,
)


def tokens(text):
    return [Token(*word.split("/")) for word in text.split()]


def edges(graph):
    coo = graph.adjacency.tocoo()
    names = ["+".join(node) for node in graph.labels]
    triples = zip(*coo.coords, coo.data, strict=True)
    return {(names[i], names[j]): float(w) for i, j, w in triples}


# "P1 interacts with P2 to disassemble complexes of P3", a sentence like that of P4's Figure 3.
SENTENCE = tokens(
    "P1/NN interacts/VBZ with/IN P2/NN to/TO disassemble/VB complexes/NNS of/IN P3/NN"
)
PARSE = [
    Dependency(1, 0, "nsubj"),
    Dependency(1, 3, "prep_with"),
    Dependency(5, 4, "aux"),
    Dependency(1, 5, "xcomp"),
    Dependency(5, 6, "dobj"),
    Dependency(6, 8, "prep_of"),
]


def test_dependency_part():
    graph = sentence_graph(SENTENCE, PARSE, [0], [3], others=[[8]])
    assert graph.n_nodes == 9 + 6 + 9
    assert graph.labels[:9] == (
        ("PROT1_IP", "NN_IP"),
        ("interacts_IP", "VBZ_IP"),
        ("with", "IN"),
        ("PROT2_IP", "NN_IP"),
        ("to", "TO"),
        ("disassemble", "VB"),
        ("complexes", "NNS"),
        ("of", "IN"),
        ("PROT", "NN"),
    )
    types = ("nsubj_IP", "prep_with_IP", "aux", "xcomp", "dobj", "prep_of")
    assert graph.labels[9:15] == tuple((name,) for name in types)
    weights = edges(graph)
    assert weights["interacts_IP+VBZ_IP", "nsubj_IP"] == 0.9
    assert weights["nsubj_IP", "PROT1_IP+NN_IP"] == 0.9
    assert weights["prep_with_IP", "PROT2_IP+NN_IP"] == 0.9
    assert weights["interacts_IP+VBZ_IP", "xcomp"] == 0.3
    assert weights["prep_of", "PROT+NN"] == 0.3
    assert len(weights) == 2 * 6 + 8


def test_linear_part():
    graph = sentence_graph(SENTENCE, PARSE, [3], [5], others=[[8]])
    linear = graph.labels[15:]
    assert [node[0] for node in linear] == [
        "P1_B",
        "interacts_B",
        "with_B",
        "PROT1_M",
        "to_M",
        "PROT2_M",
        "complexes_A",
        "of_A",
        "PROT_A",
    ]
    assert [node[1][-2:] for node in linear] == ["_B"] * 3 + ["_M"] * 3 + ["_A"] * 3
    order = graph.adjacency.toarray()[15:, 15:]
    assert np.array_equal(order, np.diag(np.full(8, 0.9), 1))
    assert not graph.adjacency.toarray()[:15, 15:].any()
    assert not graph.adjacency.toarray()[15:, :15].any()


def test_features_of_the_sentence_by_hand():
    features = AllPathsGraphFeatures()
    X = features.fit_transform([sentence_graph(SENTENCE, PARSE, [0], [3], others=[[8]])])
    found = dict(zip(features.get_feature_names_out(), X.toarray()[0], strict=True))
    assert found["interacts_IP → PROT1_IP"] == pytest.approx(0.9**2)
    assert found["interacts_IP → PROT"] == pytest.approx(0.3**6)
    assert found["PROT1_M → PROT2_M"] == pytest.approx(0.9**3)
    # NN before NN in the linear part: tokens 0 and 3 are in the middle, 8 comes after.
    assert found["NN_M → NN_A"] == pytest.approx(0.9**8 + 0.9**5)
    assert "PROT1_IP → PROT2_IP" not in found  # both depend on the verb


def test_all_shortest_paths_count():
    # A diamond 0 → 1 → 3, 0 → 2 → 3, and a detour 0 → 4 → 5 → 3.
    words = tokens("a/N b/N c/N d/N e/N f/N")
    links = [(0, 1), (1, 3), (0, 2), (2, 3), (0, 4), (4, 5), (5, 3)]
    parse = [Dependency(i, j, f"d{k}") for k, (i, j) in enumerate(links)]
    graph = sentence_graph(words, parse, [0], [3])
    on_path = [node[0].endswith("_IP") for node in graph.labels[:13]]
    assert on_path == [True] * 4 + [False] * 2 + [True] * 4 + [False] * 3
    dependency_part = graph.adjacency.toarray()[:13, :13]
    assert (dependency_part == 0.9).sum() == 8
    assert (dependency_part == 0.3).sum() == 6


def test_paths_ignore_direction_and_edges_beside_them_do_not_count():
    # 0 ← 1 → 2, and 0, 2 both govern 3: two shortest paths, against and along the edges.
    words = tokens("a/N b/N c/N d/N")
    parse = [Dependency(1, 0, "x"), Dependency(1, 2, "y"), Dependency(0, 3, "z")]
    graph = sentence_graph(words, parse, [0], [2])
    labels = [node[0] for node in graph.labels[:7]]
    assert labels == ["PROT1_IP", "b_IP", "PROT2_IP", "d", "x_IP", "y_IP", "z"]
    assert graph.adjacency.toarray()[0, 6] == 0.3  # from a node on the path, but off it


def test_entities_that_share_tokens():
    words = tokens("A-B/NN binds/VBZ C/NN")
    parse = [Dependency(1, 0, "nsubj"), Dependency(1, 2, "dobj")]
    graph = sentence_graph(words, parse, [0], [0], others=[[0], [2]])
    assert graph.labels[0] == ("PROT1_IP", "PROT2_IP", "NN_IP")
    assert graph.labels[1:3] == (("binds", "VBZ"), ("PROT", "NN"))
    assert set(graph.adjacency.toarray()[:5, :5].ravel()) == {0.0, 0.3}
    nested = sentence_graph(words, parse, [0, 1], [1, 2])
    assert nested.labels[1] == ("PROT1_IP", "PROT2_IP", "VBZ_IP")
    assert nested.labels[0] == ("PROT1", "NN")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first": []}, "first is empty"),
        ({"second": [9]}, r"second = \[9\] names a token outside 0 … 8"),
        ({"first": [-1]}, "outside"),
        ({"first": ["a"]}, "must hold indices"),
        ({"first": 3}, "must hold indices"),
        ({"others": [[1], []]}, r"others\[1\] is empty"),
        ({"path_weight": 0.0}, "path_weight"),
        ({"dependencies": [Dependency(0, 9, "x")]}, r"dependencies\[0\]"),
    ],
)
def test_bad_sentences(change, message):
    given = {"tokens": SENTENCE, "dependencies": PARSE, "first": [0], "second": [3], **change}
    with pytest.raises(ValueError, match=message):
        sentence_graph(**given)
