"""Candidate lists to rows and back, against loops."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse as sp
from sklearn.feature_extraction import DictVectorizer

from rankrls.reranking import Candidates, best_candidates, reranking_scores


def test_dicts_become_columns():
    lists = {"s": ([{"a": 1, "b": 2}, {"b": 1, "c": "x"}], [1, 2]), "t": ([{"a": 3}], [5])}
    found = Candidates.from_lists(lists)
    assert found.vectorizer.get_feature_names_out().tolist() == ["a", "b", "c=x"]
    assert found.X.toarray().tolist() == [[1, 2, 0], [0, 1, 1], [3, 0, 0]]
    assert found.y.tolist() == [1, 2, 5]
    assert found.qid.tolist() == ["s", "s", "t"]
    new = Candidates.from_lists({"u": ([{"c": "x", "new": 1}], None)}, vectorizer=found.vectorizer)
    assert new.X.toarray().tolist() == [[0, 0, 1]]
    assert new.y is None


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.coo_matrix, lambda X: X.tolist()])
def test_arrays_are_stacked(make):
    parts = [np.arange(6.0).reshape(3, 2), np.ones((1, 2))]
    found = Candidates.from_lists([(make(part), np.arange(len(part))) for part in parts])
    X = found.X.toarray() if sp.issparse(found.X) else found.X
    assert X.tolist() == [[0, 1], [2, 3], [4, 5], [1, 1]]
    assert found.qid.tolist() == [0, 0, 0, 1]
    assert found.vectorizer is None


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_columns_of_frames_go_by_their_names(make):
    lists = [({"a": [1.0, 2.0], "b": [3.0, 4.0]}, [1, 2]), ({"b": [5.0], "a": [6.0]}, [3])]
    found = Candidates.from_lists([(make(columns), scores) for columns, scores in lists])
    assert found.X.toarray().tolist() == [[1, 3], [2, 4], [6, 5]]
    assert found.vectorizer.get_feature_names_out().tolist() == ["a", "b"]


def naive_scores(y, f, qid, baseline):
    rows = {q: [i for i in range(len(y)) if qid[i] == q] for q in set(qid)}
    chosen, first, best, mean = [], [], [], []
    for members in rows.values():
        top = max(f[i] for i in members)
        chosen.append(np.mean([y[i] for i in members if f[i] == top]))
        own = max(baseline[i] for i in members)
        first.append(np.mean([y[i] for i in members if baseline[i] == own]))
        best.append(max(y[i] for i in members))
        mean.append(np.mean([y[i] for i in members]))
    return [np.mean(values) for values in (chosen, first, best, mean)]


@pytest.mark.parametrize("levels", [2, 1000])  # many ties, hardly any
def test_scores_equal_the_loop_in_any_row_order(levels):
    rng = np.random.default_rng(0)
    qid = rng.integers(0, 12, size=60)
    y, f, own = rng.random(60), *rng.integers(0, levels, size=(2, 60)).astype(float)
    found = reranking_scores(y, f, qid=qid, baseline=own)
    values = [found.first_choice, found.baseline, found.oracle, found.random]
    assert np.allclose(values, naive_scores(y, f, qid, own))
    assert found.n_lists == len(set(qid))
    in_order = reranking_scores(y, f, qid=qid)
    assert in_order.baseline == pytest.approx(naive_scores(y, f, qid, -np.arange(60))[1])
    expected = {}
    for q in dict.fromkeys(qid.tolist()):
        members = np.flatnonzero(qid == q)
        expected[q] = int(np.argmax(f[members]))
    found_best = best_candidates(f, qid=qid)
    assert found_best == expected
    assert list(found_best) == list(expected)


def test_recovered_share():
    found = reranking_scores([0, 1, 0, 4], [0, 1, 1, 0], qid=[1, 1, 2, 2])
    assert (found.first_choice, found.baseline, found.oracle) == (0.5, 0.0, 2.5)
    assert found.recovered == pytest.approx(0.2)
    assert np.isnan(reranking_scores([1, 0], [1, 0], qid=[1, 1]).recovered)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([], "lists is empty"),
        ({"s": ([], [])}, "list 's' has no candidates"),
        ({"s": ([[1.0]], [1, 2])}, "scores of list 's' has 2 entries for 1 candidates"),
        ({"s": ([[1.0]], [np.nan])}, "NaN"),
        ({"s": ([[1.0]], [1]), "t": ([[1.0]], None)}, "in some lists but not in others"),
        ({"s": ([[1.0]], [1]), "t": ([[1.0, 2.0]], [1])}, "different numbers of columns"),
        ({"s": ([[1.0]], [1]), "t": ([{"a": 1}], [1])}, "dicts in all lists"),
        ({"s": ([{"a": 1}, [1.0]], [1, 2])}, "features of list 's' cannot be read as an array"),
        ({"s": [{"a": 1}, {"a": 2}]}, "must be a pair"),
        ([("s", ([[1.0]], [1]))], r"pass dict\(lists\)"),
        ({"s": ([[np.inf]], [1])}, "NaN or infinity"),
    ],
)
def test_bad_lists(lists, message):
    with pytest.raises(ValueError, match=message):
        Candidates.from_lists(lists)


def test_bad_arguments():
    with pytest.raises(ValueError, match="a vectorizer needs dicts"):
        Candidates.from_lists([([[1.0]], [1])], vectorizer=DictVectorizer())
    for call, message in (
        (lambda: best_candidates([1.0], qid=None), "qid is None"),
        (lambda: best_candidates([], qid=[]), "at least one candidate"),
        (lambda: reranking_scores([1, 2], [1], qid=[1, 1]), "y_score has 1 entries"),
        (lambda: reranking_scores([[1, 2]], [1], qid=[1]), "1-D"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
