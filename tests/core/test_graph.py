"""``PreferenceGraph`` as a container: length, cutting, joining, and what it holds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing, indexable, shuffle
from sklearn.utils.validation import check_consistent_length

import oracles
from rankrls import PreferenceGraph
from rankrls.metrics import pairwise_accuracy

COSTS = ("magnitude", "unit", "relative")
M = 14


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def scores(rng):
    return rng.integers(4, size=M).astype(float)


@pytest.fixture
def qid(rng):
    return rng.choice(["a", "b", "c"], size=M)


@pytest.fixture
def pairs(rng):
    return np.array([rng.choice(M, size=2, replace=False) for _ in range(25)])


def dense(graph, **options):
    """L and r of a graph as arrays."""
    return graph.laplacian(**options) @ np.eye(len(graph)), graph.target(**options)


def naive(scores=None, qid=None, weight=None, *, given=(), cost="magnitude", m=None):
    """The same from explicit edges; ``given``: (i, j, magnitude, weight)."""
    edges = []
    if scores is not None:
        m = len(scores)
        edges += oracles.edges_of_scores(
            scores, qid, weight, cost=cost, ties="keep", query_weighting="pair"
        )
    if len(given):
        i, j, y, w = zip(*given, strict=True)
        edges += oracles.edges_of_pairs(list(zip(i, j, strict=True)), y, w, cost=cost)
    return oracles.laplacian(edges, m)


def assert_same(graph, expected, **options):
    L, r = dense(graph, **options)
    assert_allclose(L, expected[0], atol=1e-10)
    assert_allclose(r, expected[1], atol=1e-10)


# ---------------------------------------------------------------------- what is in it


def test_counts(scores, qid, pairs):
    graded = PreferenceGraph.from_scores(scores, qid=qid)
    assert len(graded) == graded.n_rows == M
    assert graded.shape == (M,)
    assert graded.n_queries == len(set(qid))
    assert graded.n_given_pairs == 0
    assert graded.pairs.shape == (0, 2)
    assert graded.pair_weight.shape == (0,)
    assert_array_equal(graded.scores, scores[:, None])
    assert graded.sample_weight is None

    given = PreferenceGraph.from_pairs(pairs, n_rows=M)
    assert given.n_given_pairs == len(pairs)
    assert given.n_queries == given.n_outputs == 1
    assert given.scores is None
    assert given.query_codes is None
    assert given.sample_weight is None
    assert_array_equal(given.pairs, pairs)
    assert_array_equal(given.pair_weight, np.ones(len(pairs)))

    both = graded + given
    assert both.shape == (M,)
    assert (both.n_queries, both.n_given_pairs) == (len(set(qid)), len(pairs))


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (PreferenceGraph.from_scores([1, 2, 3]), "n_rows=3, n_queries=1"),
        (PreferenceGraph.from_scores([1, 2, 3], qid=[1, 2, 1]), "n_rows=3, n_queries=2"),
        (
            PreferenceGraph.from_scores([[1, 2], [3, 4]], qid=["x", "y"]),
            "n_rows=2, n_queries=2, n_outputs=2",
        ),
        (PreferenceGraph.from_pairs([(0, 1)], n_rows=5), "n_rows=5, n_given_pairs=1"),
        (PreferenceGraph.from_pairs([], n_rows=5), "n_rows=5, n_given_pairs=0"),
        (
            PreferenceGraph.from_scores([1, 2]) + PreferenceGraph.from_pairs([(0, 1)], n_rows=2),
            "n_rows=2, n_queries=1, n_given_pairs=1",
        ),
    ],
)
def test_repr(graph, expected):
    assert repr(graph) == f"PreferenceGraph({expected})"


# ---------------------------------------------------------------------- cutting

SELECTIONS = {
    "int array": np.array([5, 0, 3, 9, 11, 2, 1]),
    "list": [5, 0, 3, 9, 11, 2, 1],
    "negative": [-1, -3, 0, 4, 2],
    "mask": np.arange(M) % 3 > 0,
    "list mask": [i % 2 == 0 for i in range(M)],
    "slice": slice(2, 11),
    "reversed": slice(None, None, -1),
    "step": slice(1, None, 2),
    "all": slice(None),
    "int32": np.array([3, 1, 2], dtype=np.int32),
    "uint8": np.array([3, 1, 2], dtype=np.uint8),
}


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_cutting_equals_building_from_the_rows(selection, cost, scores, qid, pairs, rng):
    rows = SELECTIONS[selection]
    weight = rng.integers(3, size=M).astype(float)
    magnitude = rng.uniform(0.5, 2, size=len(pairs))
    pair_weight = rng.uniform(0, 2, size=len(pairs))
    graph = PreferenceGraph.from_scores(
        scores, qid=qid, sample_weight=weight
    ) + PreferenceGraph.from_pairs(pairs, n_rows=M, magnitude=magnitude, pair_weight=pair_weight)
    cut = graph[rows]
    chosen = np.arange(M)[rows]
    place = {int(old): new for new, old in enumerate(chosen)}
    given = [
        (place[i], place[j], y, w)
        for (i, j), y, w in zip(pairs.tolist(), magnitude, pair_weight, strict=True)
        if i in place and j in place
    ]
    assert len(cut) == len(chosen)
    assert cut.n_given_pairs == len(given)
    assert cut.n_queries == len(set(qid[chosen]))
    assert_array_equal(cut.pairs, [g[:2] for g in given] or np.empty((0, 2)))
    assert_same(
        cut, naive(scores[chosen], qid[chosen], weight[chosen], given=given, cost=cost), cost=cost
    )
    assert graph.n_given_pairs == len(pairs)  # the graph itself is as it was


@pytest.mark.parametrize("rows", [M, -M - 1, [0, M], [True, False], "a", [0.5]])
def test_rows_that_are_not_there(rows, scores):
    with pytest.raises(IndexError):
        PreferenceGraph.from_scores(scores)[rows]


@pytest.mark.parametrize("kind", ["scores", "pairs"])
@pytest.mark.parametrize("rows", [[[0, 1], [2, 3]], None], ids=["2-D", "None"])
def test_index_must_be_rows(rows, kind, scores):
    graphs = {
        "scores": PreferenceGraph.from_scores(scores),
        "pairs": PreferenceGraph.from_pairs([(0, 1)], n_rows=M),
    }
    with pytest.raises((IndexError, ValueError), match=r"^(?!qid).*(1-D|rows)"):
        graphs[kind][rows]


def test_repeated_row_is_refused_with_pairs_only(scores, pairs):
    rows = [0, 1, 1, 4]
    graded = PreferenceGraph.from_scores(scores)
    assert_same(graded[rows], naive(scores[rows]))
    for graph in (
        PreferenceGraph.from_pairs(pairs, n_rows=M),
        graded + PreferenceGraph.from_pairs(pairs, n_rows=M),
    ):
        with pytest.raises(ValueError, match="cannot be selected twice"):
            graph[rows]
        with pytest.raises(ValueError, match="cannot be selected twice"):
            graph[[0, 1, -M]]


# ---------------------------------------------------------------------- scikit-learn's hands on it


def test_sklearn_helpers(scores, qid, pairs):
    graph = PreferenceGraph.from_scores(scores, qid=qid) + PreferenceGraph.from_pairs(
        pairs, n_rows=M
    )
    X = np.arange(2.0 * M).reshape(M, 2)
    check_consistent_length(X, graph)
    _, same = indexable(X, graph)
    assert same is graph
    for rows in (np.array([3, 1, 4]), [3, 1, 4], np.arange(M) < 5, slice(1, 4)):
        assert_same(_safe_indexing(graph, rows), dense(graph[rows]))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        check_consistent_length(X[:-1], graph)


def test_train_test_split(scores, qid, pairs):
    graph = PreferenceGraph.from_scores(scores, qid=qid) + PreferenceGraph.from_pairs(
        pairs, n_rows=M
    )
    numbers = np.arange(M)
    train, test, y_train, y_test = train_test_split(numbers, graph, random_state=1)
    assert_same(y_train, dense(graph[train]))
    assert_same(y_test, dense(graph[test]))
    mixed, y = shuffle(numbers, graph, random_state=1)
    assert_same(y, dense(graph[mixed]))


def test_metric_of_a_graph(scores):
    with pytest.raises((TypeError, ValueError), match="PreferenceGraph"):
        pairwise_accuracy(PreferenceGraph.from_scores(scores), scores)


# ---------------------------------------------------------------------- joining


@pytest.mark.parametrize("cost", COSTS)
def test_addition_commutes_and_adds_up(cost, scores, qid, pairs):
    graded = PreferenceGraph.from_scores(scores, qid=qid)
    first = PreferenceGraph.from_pairs(pairs[:10], n_rows=M)
    second = PreferenceGraph.from_pairs(
        pairs[10:], n_rows=M, magnitude=np.linspace(0.5, 2, len(pairs) - 10)
    )
    parts = [dense(g, cost=cost) for g in (graded, first, second)]
    total = sum(L for L, _ in parts), sum(r for _, r in parts)
    for joined in (
        graded + first + second,
        second + first + graded,
        first + (graded + second),
        (second + graded) + first,
    ):
        assert_same(joined, total, cost=cost)
        assert joined.n_given_pairs == len(pairs)
        assert joined.n_queries == graded.n_queries


@pytest.mark.parametrize("other", [1, [1, 2], None, np.ones(M)])
def test_adding_something_else(other, scores):
    with pytest.raises(TypeError):
        PreferenceGraph.from_scores(scores) + other


# ---------------------------------------------------------------------- as a quadratic form


def test_output_that_is_not_there(scores):
    graph = PreferenceGraph.from_scores(scores)
    for output in (1, -1):
        with pytest.raises(ValueError, match=r"output must be in range\(1\)"):
            graph.laplacian(output=output)
        with pytest.raises(ValueError, match=r"output must be in range\(1\)"):
            graph.target(output=output)


def test_contradicting_and_repeated_pairs_add_up():
    graph = PreferenceGraph.from_pairs(
        [(0, 1), (0, 1), (1, 0)], n_rows=3, magnitude=[1, 2, 4], pair_weight=[1, 1, 2]
    )
    L, r = dense(graph)
    assert_array_equal(L, [[4, -4, 0], [-4, 4, 0], [0, 0, 0]])
    assert_array_equal(r, [1 + 2 - 8, 8 - 3, 0])


@pytest.mark.parametrize(
    "option", [{"cost": "hinge"}, {"ties": "half"}, {"query_weighting": "rows"}]
)
def test_unknown_options(option, scores):
    (name,) = option
    graph = PreferenceGraph.from_scores(scores)
    for method in (graph.laplacian, graph.target):
        with pytest.raises(ValueError, match=f"{name} must be one of"):
            method(**option)


# ---------------------------------------------------------------------- is there anything in it?


def of_scores(*args, **kwargs):
    return PreferenceGraph.from_scores(*args, **kwargs)


def of_pairs(*args, **kwargs):
    return PreferenceGraph.from_pairs(*args, n_rows=4, **kwargs)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (of_scores([1, 1, 1, 2]), True),
        (of_scores([1, 1, 1, 1]), False),
        (of_scores([1]), False),
        (of_scores([1, 2, 3, 4], qid=[1, 2, 3, 4]), False),
        (of_scores([1, 1, 3, 3], qid=[1, 1, 3, 3]), False),
        (of_scores([1, 1, 3, 4], qid=[1, 1, 3, 3]), True),
        (of_scores([1, 3, 1, 3], qid=[1, 3, 1, 3]), False),
        # weights
        (of_scores([1, 2, 2, 2], sample_weight=[0, 1, 1, 1]), False),
        (of_scores([1, 2, 2, 2], sample_weight=[1, 0, 0, 1]), True),
        (of_scores([1, 2, 3, 4], sample_weight=[0, 0, 0, 1]), False),
        (of_scores([1, 2, 3, 4], sample_weight=[0, 0, 0, 0]), False),
        (of_scores([1, 2, 3, 4], qid=[1, 1, 2, 2], sample_weight=[1, 0, 0, 1]), False),
        # every output needs one
        (of_scores([[1, 1], [2, 1]]), False),
        (of_scores([[1, 1], [2, 2]]), True),
        (of_scores([[1, 1], [2, 1], [3, 3], [3, 4]], qid=[1, 1, 2, 2]), True),
        # pairs
        (of_pairs([(0, 1)]), True),
        (of_pairs([]), False),
        (of_pairs([(0, 1)], pair_weight=[0]), False),
        (of_pairs([(0, 1), (1, 2)], pair_weight=[0, 1]), True),
        (of_scores([1, 1, 1, 1]) + of_pairs([(0, 1)]), True),
        (of_scores([1, 1, 1, 1]) + of_pairs([(0, 1)], pair_weight=[0]), False),
        (of_scores([1, 2, 1, 1]) + of_pairs([]), True),
    ],
)
def test_has_preference(graph, expected):
    assert graph.has_preference() is expected


@pytest.mark.parametrize("n_rows", [-1, 2.5, "3", None])
def test_number_of_rows_is_checked(n_rows):
    with pytest.raises(ValueError, match="n_rows"):
        PreferenceGraph.from_pairs([(0, 1)] if n_rows != -1 else [], n_rows=n_rows)
