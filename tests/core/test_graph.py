"""``PreferenceGraph`` as a container: length, cutting, joining, and what it holds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing, indexable, shuffle
from sklearn.utils.validation import check_consistent_length

import oracles
from cases import COSTS
from rankrls import PreferenceGraph
from rankrls.metrics import pairwise_accuracy

M = 14
RNG = np.random.default_rng(7)
SCORES = RNG.integers(4, size=M).astype(float)
QID = RNG.choice(["a", "b", "c"], size=M)
PAIRS = np.array([RNG.choice(M, size=2, replace=False) for _ in range(25)])
GRADED = PreferenceGraph.from_scores(SCORES, qid=QID)
GIVEN = PreferenceGraph.from_pairs(PAIRS, n_rows=M)
BOTH = GRADED + GIVEN


def dense(graph, **options):
    """L and r of a graph as arrays."""
    return graph.laplacian(**options) @ np.eye(len(graph)), graph.target(**options)


def naive(scores, qid=None, weight=None, *, given=(), cost="magnitude"):
    """The same from explicit edges; ``given``: (i, j, magnitude, weight)."""
    options = {"cost": cost, "ties": "keep", "query_weighting": "pair"}
    edges = oracles.edges_of_scores(scores, qid, weight, **options)
    if len(given):
        i, j, y, w = zip(*given, strict=True)
        edges += oracles.edges_of_pairs(list(zip(i, j, strict=True)), y, w, cost=cost)
    return oracles.laplacian(edges, len(scores))


def assert_same(graph, expected, **options):
    for found, wanted in zip(dense(graph, **options), expected, strict=True):
        assert_allclose(found, wanted, atol=1e-10)


def of_scores(*args, **kwargs):
    return PreferenceGraph.from_scores(*args, **kwargs)


def of_pairs(*args, n_rows=4, **kwargs):
    return PreferenceGraph.from_pairs(*args, n_rows=n_rows, **kwargs)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (of_scores([1, 2, 3]), "n_rows=3, n_queries=1"),
        (of_scores([1, 2, 3], qid=[1, 2, 1]), "n_rows=3, n_queries=2"),
        (of_scores([[1, 2], [3, 4]], qid=["x", "y"]), "n_rows=2, n_queries=2, n_outputs=2"),
        (of_pairs([(0, 1)]), "n_rows=4, n_given_pairs=1"),
        (of_pairs([]), "n_rows=4, n_given_pairs=0"),
        (
            of_scores([1, 2]) + of_pairs([(0, 1)], n_rows=2),
            "n_rows=2, n_queries=1, n_given_pairs=1",
        ),
    ],
)
def test_repr(graph, expected):
    assert repr(graph) == f"PreferenceGraph({expected})"


SELECTIONS = {
    "int array": np.array([5, 0, 3, 9, 11, 2, 1]),
    "negative": [-1, -3, 0, 4, 2],
    "mask": np.arange(M) % 3 > 0,
    "slice": slice(2, 11),
    "reversed": slice(None, None, -1),
    "all": slice(None),
    "uint8": np.array([3, 1, 2], dtype=np.uint8),
}


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_cutting_equals_building_from_the_rows(selection, cost):
    rows, rng = SELECTIONS[selection], np.random.default_rng(8)
    weight = rng.integers(3, size=M).astype(float)
    magnitude, pair_weight = rng.uniform(0.5, 2, 25), rng.uniform(0, 2, 25)
    graph = of_scores(SCORES, qid=QID, sample_weight=weight)
    graph += of_pairs(PAIRS, n_rows=M, magnitude=magnitude, pair_weight=pair_weight)
    cut, chosen = graph[rows], np.arange(M)[rows]
    place = {int(old): new for new, old in enumerate(chosen)}
    given = [
        (place[i], place[j], y, w)
        for (i, j), y, w in zip(PAIRS.tolist(), magnitude, pair_weight, strict=True)
        if i in place and j in place
    ]
    assert len(cut) == len(chosen)
    assert cut.n_given_pairs == len(given)
    assert cut.n_queries == len(set(QID[chosen]))
    assert_array_equal(cut.pairs, [g[:2] for g in given] or np.empty((0, 2)))
    expected = naive(SCORES[chosen], QID[chosen], weight[chosen], given=given, cost=cost)
    assert_same(cut, expected, cost=cost)
    assert graph.n_given_pairs == 25  # the graph itself is as it was


@pytest.mark.parametrize("graph", [GRADED, GIVEN], ids=["scores", "pairs"])
@pytest.mark.parametrize("rows", [[[0, 1], [2, 3]], None], ids=["2-D", "None"])
def test_index_must_be_rows(rows, graph):
    with pytest.raises((IndexError, ValueError), match=r"^(?!qid).*(1-D|rows)"):
        graph[rows]


def test_repeated_row_is_refused_with_pairs_only():
    rows = [0, 1, 1, 4]
    assert_same(GRADED[rows], naive(SCORES[rows], QID[rows]))
    for graph in (GIVEN, BOTH):
        for repeated in (rows, [0, 1, -M]):
            with pytest.raises(ValueError, match="cannot be selected twice"):
                graph[repeated]


def test_scikit_learn():
    X, numbers = np.arange(2.0 * M).reshape(M, 2), np.arange(M)
    check_consistent_length(X, BOTH)
    assert indexable(X, BOTH)[1] is BOTH
    for rows in (np.array([3, 1, 4]), [3, 1, 4], np.arange(M) < 5, slice(1, 4)):
        assert_same(_safe_indexing(BOTH, rows), dense(BOTH[rows]))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        check_consistent_length(X[:-1], BOTH)
    train, test, y_train, y_test = train_test_split(numbers, BOTH, random_state=1)
    mixed, y = shuffle(numbers, BOTH, random_state=1)
    for rows, part in ((train, y_train), (test, y_test), (mixed, y)):
        assert_same(part, dense(BOTH[rows]))
    with pytest.raises((TypeError, ValueError), match="PreferenceGraph"):
        pairwise_accuracy(GRADED, SCORES)


@pytest.mark.parametrize("cost", COSTS)
def test_addition_commutes_and_adds_up(cost):
    first = of_pairs(PAIRS[:10], n_rows=M)
    second = of_pairs(PAIRS[10:], n_rows=M, magnitude=np.linspace(0.5, 2, 15))
    parts = [dense(g, cost=cost) for g in (GRADED, first, second)]
    total = sum(L for L, _ in parts), sum(r for _, r in parts)
    for joined in (
        GRADED + first + second,
        second + first + GRADED,
        first + (GRADED + second),
        (second + GRADED) + first,
    ):
        assert_same(joined, total, cost=cost)
        assert (joined.n_given_pairs, joined.n_queries) == (25, GRADED.n_queries)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (of_scores([1, 1, 1, 2]), True),
        (of_scores([1, 1, 1, 1]), False),
        (of_scores([1]), False),
        (of_scores([1, 1, 3, 3], qid=[1, 1, 3, 3]), False),
        (of_scores([1, 1, 3, 4], qid=[1, 1, 3, 3]), True),
        (of_scores([1, 3, 1, 3], qid=[1, 3, 1, 3]), False),
        # weights
        (of_scores([1, 2, 2, 2], sample_weight=[0, 1, 1, 1]), False),
        (of_scores([1, 2, 2, 2], sample_weight=[1, 0, 0, 1]), True),
        (of_scores([1, 2, 3, 4], sample_weight=[0, 0, 0, 0]), False),
        (of_scores([1, 2, 3, 4], qid=[1, 1, 2, 2], sample_weight=[1, 0, 0, 1]), False),
        # every output needs one
        (of_scores([[1, 1], [2, 1]]), False),
        (of_scores([[1, 1], [2, 1], [3, 3], [3, 4]], qid=[1, 1, 2, 2]), True),
        # pairs
        (of_pairs([(0, 1)]), True),
        (of_pairs([]), False),
        (of_pairs([(0, 1)], pair_weight=[0]), False),
        (of_scores([1, 1, 1, 1]) + of_pairs([(0, 1)]), True),
        (of_scores([1, 1, 1, 1]) + of_pairs([(0, 1)], pair_weight=[0]), False),
    ],
)
def test_has_preference(graph, expected):
    assert graph.has_preference() == expected


def test_a_graph_has_arrays_of_its_own():
    pairs, magnitude, weight = np.array([[0, 1], [1, 2]]), np.array([1.0, 2.0]), np.ones(2)
    graph = PreferenceGraph.from_pairs(pairs, n_rows=3, magnitude=magnitude, pair_weight=weight)
    scores, queries, sample_weight = np.array([2.0, 1, 0]), np.array([0, 0, 1]), np.ones(3)
    scored = PreferenceGraph.from_scores(scores, qid=queries, sample_weight=sample_weight)
    before = [graph.target(), scored.target()]
    for array in (pairs, magnitude, weight, scores, queries, sample_weight):
        array[:] = 7
    np.testing.assert_array_equal([graph.target(), scored.target()], before)
