"""Splitters against naive enumeration, inside scikit-learn's tools, and on bad input."""

import itertools

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GridSearchCV, GroupKFold, LeaveOneGroupOut

from rankrls import PreferenceGraph, RankRLS
from rankrls.model_selection import ComponentKFold, LeavePairOut, LeaveQueryOut, QueryKFold

#: Labels that cannot be sorted, or that NumPy would read as something else.
LABELS = {
    "int": [3, 1, 2, 0, 7],
    "str": ["b", "a", "c", "ab", ""],
    "tuple": [("a", 1), ("a", 2), ("b", 1), (), ("c",)],
    "mixed": ["a", 1, (2, 3), 4.5, frozenset()],
}
each_kind_of_label = pytest.mark.parametrize("kind", LABELS)


def make_data(n=14, seed=0, levels=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, rng.integers(levels, size=n) * 1.0, rng.integers(4, size=n)


def as_lists(splits):
    return [(train.tolist(), test.tolist()) for train, test in splits]


def rows_of(splits):
    return [test.tolist() for _, test in splits]


def assert_partition(splits, n):
    for train, test in splits:
        assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(n))
    assert_array_equal(np.sort(np.concatenate([test for _, test in splits])), np.arange(n))


# ---------------------------------------------------------------------- pairs


def naive_pairs(y, groups=None, different=True):
    return [
        [i, j]
        for i, j in itertools.combinations(range(len(y)), 2)
        if (groups is None or groups[i] == groups[j]) and not (different and y[i] == y[j])
    ]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=3, max_size=12),
    st.booleans(),
    st.sampled_from(["different", "all"]),
)
def test_pairs_are_all_pairs(rows, grouped, which):
    y, groups = [y for y, _ in rows], [g for _, g in rows] if grouped else None
    expected = naive_pairs(y, groups, which == "different")
    splitter, X = LeavePairOut(which), np.zeros((len(y), 1))
    if not expected:
        with pytest.raises(ValueError, match="no pair of rows"):
            splitter.get_n_splits(X, y, groups)
        return
    assert splitter.get_n_splits(X, y, groups) == len(expected)
    splits = as_lists(splitter.split(X, y, groups))
    assert [test for _, test in splits] == expected
    for train, test in splits:
        assert train == [i for i in range(len(y)) if i not in test]


def test_too_many_pairs_are_refused_before_they_are_made():
    with pytest.raises(MemoryError, match=r"all pairs of rows .* pass some of the pairs"):
        LeavePairOut().get_n_splits(np.zeros((200_000, 1)), np.arange(200_000) % 2)
    y, groups = np.arange(200_000) % 2, np.arange(200_000) // 4  # but four rows a group
    assert LeavePairOut().get_n_splits(np.zeros((200_000, 1)), y, groups) == 200_000


def test_given_pairs():
    """They keep their order, and splits are not changed by later ones."""
    X, y, _ = make_data()
    splitter = LeavePairOut([(5, 2), (0, 1), (5, 2)])
    assert splitter.get_n_splits(X) == 3
    kept = list(splitter.split(X, y))
    expected = [(12, [5, 2]), (12, [0, 1]), (12, [5, 2])]
    assert [(len(train), test.tolist()) for train, test in kept] == expected
    kept[0][1][:] = 7
    assert rows_of(splitter.split(X)) == [[5, 2], [0, 1], [5, 2]]


def test_several_outputs_and_class_labels():
    X, y, groups = make_data()
    every = rows_of(LeavePairOut("all").split(X, y))
    assert rows_of(LeavePairOut().split(X, np.column_stack([y, y]))) == every
    inside = naive_pairs(y, groups, different=False)
    assert rows_of(LeavePairOut().split(X, np.column_stack([y, y]), groups)) == inside
    names = ["no", "yes", "no", "yes"]
    for labels in (names, np.array(names, dtype=object), pd.Series(names)):
        found = rows_of(LeavePairOut().split(np.zeros((4, 1)), labels))
        assert found == [[0, 1], [0, 3], [1, 2], [2, 3]]


def test_pairs_of_graphs():
    X, y, groups = make_data()
    scored = PreferenceGraph.from_scores(y, qid=groups)
    assert rows_of(LeavePairOut().split(X, scored)) == naive_pairs(y, groups)
    assert LeavePairOut().get_n_splits(X, scored) == len(naive_pairs(y, groups))
    pairs = [(3, 1), (2, 4), (1, 3), (3, 1), (0, 2)]
    judged = PreferenceGraph.from_pairs(pairs, n_rows=14)
    assert rows_of(LeavePairOut().split(X, judged)) == [[3, 1], [2, 4], [0, 2]]
    assert LeavePairOut().get_n_splits(X, judged) == 3
    with pytest.raises(ValueError, match=r"LeavePairOut\(pairs=graph.pairs\)"):
        next(LeavePairOut().split(X, scored + judged))
    assert rows_of(LeavePairOut(judged.pairs).split(X, scored + judged)) == [list(p) for p in pairs]
    halves = np.arange(14) // 7
    both = list(zip(groups, halves, strict=True))
    assert rows_of(LeavePairOut().split(X, scored, halves)) == naive_pairs(y, both)
    assert LeavePairOut().get_n_splits(X, scored, halves) == len(naive_pairs(y, both))


@pytest.mark.parametrize(
    ("splitter", "y", "groups", "message"),
    [
        (LeavePairOut("some"), [0, 1, 2], None, "pairs .* must be one of 'different', 'all'"),
        (LeavePairOut([(0, 3)]), [0, 1, 2], None, "out of range"),
        (LeavePairOut([]), [0, 1, 2], None, "pairs is empty"),
        (LeavePairOut([(0, 1)]), [0, 1, 2], "aba", "joins two groups"),
        (LeavePairOut(), None, None, "y is None"),
        (LeavePairOut(), [0, 0, 0], None, "no pair of rows with different y to"),
        (LeavePairOut(), [0, 1, 1], "abb", "different y inside a group"),
        (LeavePairOut(), [0, 1, 1], ["a", None, "b"], "groups contains None at row 1"),
        (LeavePairOut(), [0, 1], None, "at least 3 rows; got 2"),
    ],
)
def test_bad_pairs(splitter, y, groups, message):
    X = np.zeros((3 if y is None else len(y), 1))
    groups = list(groups) if groups is not None else None
    with pytest.raises(ValueError, match=message):
        next(splitter.split(X, y, groups))


# ---------------------------------------------------------------------- queries


@each_kind_of_label
def test_query_out_is_one_group_out(kind):
    X, y, codes = make_data(20)
    qid = [LABELS[kind][c] for c in codes]
    splits = list(LeaveQueryOut().split(X, y, qid))
    assert LeaveQueryOut().get_n_splits(X, y, qid) == len(splits) == len(set(codes))
    assert_partition(splits, 20)
    naive = {frozenset(i for i in range(20) if qid[i] == label) for label in set(qid)}
    assert {frozenset(test) for test in rows_of(splits)} == naive
    if kind in ("int", "str"):
        assert as_lists(splits) == as_lists(LeaveOneGroupOut().split(X, y, qid))
        graph = PreferenceGraph.from_scores(y, qid=qid)
        assert as_lists(LeaveQueryOut().split(X, graph)) == as_lists(splits)


def test_bad_queries_and_components():
    X, y, qid = make_data()
    judged = PreferenceGraph.from_pairs([(0, 1)], n_rows=14)
    chain = PreferenceGraph.from_pairs([(i, i + 1) for i in range(12)], n_rows=14)
    unknown = np.where(np.arange(14) == 0, np.nan, qid)
    queries = r"groups must hold the query of every row.*'qid'"
    cases = [
        (LeaveQueryOut(), y, [1] * 14, "only one query"),
        (QueryKFold(), y, qid, "4 queries cannot make n_splits=5 folds"),
        (ComponentKFold(2), y, qid, "needs y as a PreferenceGraph"),
        (ComponentKFold(2), chain, None, r"1 connected.*largest has 13 of 14 rows.*Use fewer"),
    ]
    for splitter in (LeaveQueryOut(), QueryKFold(2)):
        cases += [(splitter, y, None, queries), (splitter, judged, None, queries)]
        cases += [(splitter, y, unknown, "groups is nan at row 0")]
    for splitter, target, groups, message in cases:
        with pytest.raises(ValueError, match=message):
            next(splitter.split(X, target, groups))


def test_query_folds_without_shuffling_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    qid = np.repeat(rng.permutation(30), rng.permutation(np.arange(1, 31)))
    X = np.zeros((len(qid), 1))
    expected = as_lists(GroupKFold(4).split(X, None, qid))
    assert as_lists(QueryKFold(4).split(X, None, qid)) == expected


@each_kind_of_label
@pytest.mark.parametrize("shuffle", [False, True])
def test_query_folds_are_whole_and_balanced(kind, shuffle):
    rng = np.random.default_rng(1)
    sizes = rng.zipf(1.5, 300).clip(max=200)
    codes = rng.permutation(np.repeat(np.arange(300), sizes))
    qid = [(LABELS[kind][c % 5], c) if kind in ("tuple", "mixed") else c for c in codes]
    X = np.zeros((len(codes), 1))
    splitter = QueryKFold(4, shuffle=shuffle, random_state=5 if shuffle else None)
    splits = list(splitter.split(X, None, qid))
    assert len(splits) == splitter.get_n_splits() == 4
    assert_partition(splits, len(codes))
    for train, test in splits:
        assert not set(codes[train]) & set(codes[test])
    folds = [len(test) for _, test in splits]
    assert max(folds) - min(folds) <= (sizes.max() if shuffle else 1)
    assert as_lists(splitter.split(X, None, qid)) == as_lists(splits)
    if shuffle:
        other = QueryKFold(4, shuffle=True, random_state=6)
        assert as_lists(other.split(X, None, qid)) != as_lists(splits)


@pytest.mark.parametrize("kind", [QueryKFold, ComponentKFold])
def test_bad_folds(kind):
    for options, message in [
        ({"n_splits": 1}, "n_splits must be an integer >= 2; got 1"),
        ({"random_state": 0}, "no effect without shuffle=True"),
    ]:
        splitter = kind(**options)
        with pytest.raises(ValueError, match=message):
            next(splitter.split(np.zeros((3, 1)), None, [0, 1, 2]))


# ---------------------------------------------------------------------- components


def naive_components(n, edges):
    block = list(range(n))
    for _ in range(n):
        for i, j in edges:
            block[i] = block[j] = min(block[i], block[j])
    return block


@given(st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=12), st.booleans())
def test_component_folds_are_whole(pairs, shuffle):
    pairs = [(i, j) for i, j in pairs if i != j]
    graph = PreferenceGraph.from_pairs(pairs, n_rows=15)
    block = np.array(naive_components(15, pairs))
    with_pair = {block[i] for i, _ in pairs}
    splitter = ComponentKFold(3, shuffle=shuffle, random_state=0 if shuffle else None)
    if len(with_pair) < 3:
        with pytest.raises(ValueError, match=f"{len(with_pair)} connected component"):
            next(splitter.split(np.zeros((15, 1)), graph))
        return
    splits = list(splitter.split(np.zeros((15, 1)), graph))
    assert_partition(splits, 15)
    for train, test in splits:
        assert not set(block[train]) & set(block[test])
        assert graph[train].n_given_pairs + graph[test].n_given_pairs == len(pairs)
        assert graph[test].n_given_pairs > 0


def test_components_of_scores_pairs_and_groups():
    y, qid = [0, 1, 0, 1, 2, 2, 0, 1], [0, 0, 1, 1, 2, 2, 3, 3]
    X = np.zeros((8, 1))
    scored = PreferenceGraph.from_scores(y, qid=qid)
    # The query of equal scores has no preference, and comes last.
    assert rows_of(ComponentKFold(3).split(X, scored)) == [[0, 1, 4, 5], [2, 3], [6, 7]]
    joined = scored + PreferenceGraph.from_pairs([(0, 2)], n_rows=8)
    assert rows_of(ComponentKFold(2).split(X, joined)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    ignored = scored + PreferenceGraph.from_pairs([(0, 2)], n_rows=8, pair_weight=[0.0])
    assert rows_of(ComponentKFold(3).split(X, ignored)) == rows_of(
        ComponentKFold(3).split(X, scored)
    )
    groups = ["a", "b", "c", "d", "e", "f", "g", "b"]
    assert rows_of(ComponentKFold(2).split(X, scored, groups)) == [[0, 1, 6, 7], [2, 3, 4, 5]]


# ---------------------------------------------------------------------- in scikit-learn


JUDGED = [(i, i + 1) if i % 4 else (i + 1, i) for i in range(0, 30, 2)]


@pytest.mark.parametrize(
    ("target", "splitter"),
    [
        *itertools.product(["routed"], [LeaveQueryOut(), QueryKFold(3), LeavePairOut()]),
        *itertools.product(["scores", "pairs"], [ComponentKFold(3), LeavePairOut()]),
        ("scores", LeaveQueryOut()),
        ("scores", QueryKFold(3, shuffle=True, random_state=0)),
    ],
    ids=str,
)
def test_searches_score_as_by_hand(target, splitter):
    """With query ids that are routed, or graphs of scores or of pairs."""
    X, y, qid = make_data(30)
    routed, params, ranker = target == "routed", {}, RankRLS()
    graph = PreferenceGraph.from_scores(y, qid=qid)
    if target == "pairs":
        graph = PreferenceGraph.from_pairs(JUDGED, n_rows=30)
    with sklearn.config_context(enable_metadata_routing=routed):
        if routed:
            ranker.set_fit_request(qid=True).set_score_request(qid=True)
            splitter.set_split_request(groups="qid")
            params = {"qid": qid}
        search = GridSearchCV(ranker, {"alpha": [0.1, 10.0]}, cv=splitter)
        search.fit(X, y if routed else graph, **params)
    splits = list(splitter.split(X, graph))
    for k, alpha in enumerate([0.1, 10.0]):
        by_hand = [
            RankRLS(alpha).fit(X[train], graph[train]).score(X[test], graph[test])
            for train, test in splits
        ]
        assert_allclose(search.cv_results_["mean_test_score"][k], np.mean(by_hand))
