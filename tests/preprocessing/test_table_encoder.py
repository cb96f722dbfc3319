"""Raw tables as numbers: pandas, polars and arrays; missing values, levels, ids, dates."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.utils.estimator_checks import parametrize_with_checks

from rankrls.exceptions import IdColumnWarning
from rankrls.io import load_model, save_model
from rankrls.preprocessing import TableEncoder


@parametrize_with_checks([TableEncoder()])
def test_sklearn_checks(estimator, check):
    check(estimator)


def table():
    return pd.DataFrame(
        {
            "price": [3.0, np.nan, 5.0, 4.0, 3.5, 9.0],
            "count": pd.array([1, 2, None, 4, 5, 6], dtype="Int64"),
            "shop": ["a", "b", "a", None, "c", "a"],
            "kind": pd.Categorical(["x", "y", "x", "y", "x", "x"]),
            "stock": [True, False, True, True, None, False],
            "one": 1.0,
            "note": [f"text{i}" for i in range(6)],
        }
    )


NAMES = [
    *("price", "price missing", "count", "count missing", "shop=a", "shop=b", "shop=c"),
    *("kind=x", "kind=y", "stock", "stock missing"),
]
VALUES = np.array(
    [
        [3.0, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0],
        [4.0, 1, 2, 0, 0, 1, 0, 0, 1, 0, 0],
        [5.0, 0, 4, 1, 1, 0, 0, 1, 0, 1, 0],
        [4.0, 0, 4, 0, 0, 0, 0, 0, 1, 1, 0],
        [3.5, 0, 5, 0, 0, 0, 1, 1, 0, 1, 1],
        [9.0, 0, 6, 0, 1, 0, 0, 1, 0, 0, 0],
    ]
)


@pytest.mark.parametrize(
    "kind",
    [
        lambda t: t,
        pl.from_pandas,
        lambda t: t.to_numpy(dtype=object),
        lambda t: t.to_numpy(dtype=object).tolist(),
    ],
)
def test_columns(kind, tmp_path):
    X = kind(table())
    with pytest.warns(IdColumnWarning, match="of X: ids, words with a different value in nearly"):
        encoder = TableEncoder().fit(X)
    names = NAMES
    if isinstance(X, np.ndarray | list):
        of = dict(zip(table().columns, (f"x{j}" for j in range(7)), strict=True))
        names = [
            of[n.split("=")[0].split(" ")[0]] + n[len(n.split("=")[0].split(" ")[0]) :]
            for n in names
        ]
    assert encoder.get_feature_names_out().tolist() == names
    assert encoder.dropped_ == [5, 6]
    assert_allclose(encoder.transform(X), VALUES)
    save_model(encoder, tmp_path / "encoder.rankrls")
    assert_array_equal(load_model(tmp_path / "encoder.rankrls").transform(X), VALUES)


def test_new_rows():
    encoder = TableEncoder().fit(table().drop(columns="note"))
    new = table().drop(columns="note").iloc[:2].copy()
    new["shop"] = ["never seen", "a"]
    new["price"] = [np.nan, 7.0]
    encoded = dict(zip(NAMES, encoder.transform(new).T, strict=True))
    assert encoded["price"].tolist() == [4.0, 7.0]
    assert encoded["price missing"].tolist() == [1.0, 0.0]
    assert [encoded[f"shop={level}"].tolist() for level in "abc"] == [[0, 1], [0, 0], [0, 0]]
    new["price"] = ["cheap", "dear"]
    with pytest.raises(ValueError, match="'price' of X was numeric in fit and contains text"):
        encoder.transform(new)


def test_frequent_levels_only():
    values = ["a"] * 5 + ["b"] * 4 + ["c"] * 3 + ["d"] * 2
    encoder = TableEncoder(max_levels=2).fit(pd.DataFrame({"v": values}))
    assert encoder.get_feature_names_out().tolist() == ["v=a", "v=b", "v=(other)"]
    new = pd.DataFrame({"v": ["b", "never seen", None]})
    assert encoder.transform(new).tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]


def test_ids_are_left_out_with_a_word():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=60), "doc_id": rng.permutation(60)})
    with pytest.warns(
        IdColumnWarning, match=r"'doc_id' of X: columns that look like ids.*are dropped"
    ):
        encoder = TableEncoder().fit(frame)
    assert encoder.get_feature_names_out().tolist() == ["x"]
    kept = TableEncoder(drop_ids=False).fit(frame)
    assert kept.get_feature_names_out().tolist() == ["x", "doc_id"]


def test_numbers_as_text_are_told():
    frame = pd.DataFrame({"x": range(30), "price": [f"{i / 7:.4f}" for i in range(30)]})
    with pytest.warns(IdColumnWarning, match="'price' of X: ids.*numbers written as text"):
        TableEncoder(drop_ids=False).fit(frame)


def test_levels_that_became_floats():
    encoder = TableEncoder().fit(pd.DataFrame({"kind": pd.Categorical([1, 2, 1, 2, 3, 3])}))
    new = pd.DataFrame({"kind": pd.Categorical([1.0, np.nan, 3.0])})
    assert encoder.transform(new).tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 1]]


def test_sparse_stays_sparse():
    X = sparse.csr_array(np.array([[0, 1.0, 0], [0, 0, 0], [0, 3.0, 0]]))
    encoded = TableEncoder().fit(X).transform(X)
    assert sparse.issparse(encoded)
    assert_array_equal(encoded.toarray(), [[1.0], [0.0], [3.0]])


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([[1.0], [1.0, 2.0], []], "'cells' of X holds lists"),
        (np.array([1j, 2, 3]), "Complex data not supported: 'cells' of X holds complex numbers"),
        (np.array([1j, 2, 3], dtype=object), "'cells' of X holds complex numbers"),
    ],
)
@pytest.mark.parametrize("library", [pd, pl])
def test_cells_that_are_neither_numbers_nor_text(cells, message, library):
    if library is pl and isinstance(cells, np.ndarray):
        pytest.skip("polars has no complex numbers")
    bad = library.DataFrame({"price": [1.0, 2.0, 4.0], "cells": cells})
    with pytest.raises(ValueError, match=message):
        TableEncoder().fit(bad)
    known = library.DataFrame({"price": [1.0, 2.0, 4.0], "cells": [1.0, 5.0, 4.0]})
    with pytest.raises(ValueError, match=message):
        TableEncoder(drop_ids=False).fit(known).transform(bad)


def test_tables_of_numbers_are_copied_only_by_transform():
    X = np.random.default_rng(0).normal(size=(50, 3))
    encoder = TableEncoder().fit(X)
    encoded = encoder.transform(X)
    assert_array_equal(encoded, X)
    assert not np.shares_memory(encoded, X)
    assert encoder._encoded(X) is X
    constant = np.insert(X.astype(np.float32), 1, 1.0, axis=1)  # rows are selected, then columns
    rows = TableEncoder().fit(constant)._rows(constant)
    assert rows.table is constant
    expected = np.delete(constant, 1, axis=1)[[4, 2]].astype(np.float64)
    assert_array_equal(rows[[4, 2]], expected, strict=True)
    X[3, 1] = np.nan
    assert np.isfinite(encoder._encoded(X)).all()


WORDS = ["red lamp", "blue lamp", "red desk", "green chair", "blue desk", "white lamp for a desk"]


@pytest.mark.parametrize("kind", [lambda t: t, pl.from_pandas])
def test_texts_and_vectors_of_queries(kind, tmp_path):
    n, qid = 36, np.repeat(np.arange(6), 6)
    rng = np.random.default_rng(0)
    vectors, of_query = rng.normal(size=(n, 3)), rng.normal(size=(6, 3))
    frame = pd.DataFrame(
        {
            "query": [
                ["red lamp", "desk", "Blue chair", "lamp unseen", "desk", "white"][q] for q in qid
            ],
            "title": [f"{WORDS[i % 6]} {i}" for i in range(n)],
            "vector": list(vectors),
            "asked": list(of_query[qid]),
        }
    )
    frame.loc[3, "title"], frame.at[4, "vector"] = None, None
    X = kind(frame)
    encoder = TableEncoder().fit(X, qid=qid)
    encoded = dict(zip(encoder.get_feature_names_out(), encoder.transform(X).T, strict=True))
    assert encoder.query_columns_ == [0, 3]
    assert not encoder.dropped_
    assert sorted(set(encoder.blocks_)) == ["number", "text", "vector"]
    overlap = encoded["query ~ title overlap"]
    assert_allclose(overlap[:6], [1, 0.5, 0.5, 0, 0, 0.5])
    assert encoded["query ~ title weighted overlap"][1] < 1
    assert_allclose(np.argmax(encoded["query ~ title cosine"][:6]), 0)
    products = vectors * of_query[qid]
    products[4] = 0
    assert_allclose(encoded["asked ~ vector[1]"], products[:, 1])
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(of_query[qid], axis=1)
    assert_allclose(encoded["asked ~ vector cosine"], products.sum(axis=1) / lengths)
    # Words that are new match, too; levels of the query are not features of the rows.
    new = frame.iloc[:2].copy()
    new["query"], new["title"] = "novel thing", ["a novel thing", "old"]
    found = dict(zip(encoder.get_feature_names_out(), encoder.transform(kind(new)).T, strict=True))
    assert found["query ~ title overlap"].tolist() == [1, 0]
    save_model(encoder, tmp_path / "encoder.rankrls")
    loaded = load_model(tmp_path / "encoder.rankrls")
    assert_array_equal(loaded.transform(X), encoder.transform(X))
    # Rows without vectors have the mean vector, and match no query.
    none = encoder.transform(kind(frame.iloc[:2].assign(vector=None)))
    found = dict(zip(encoder.get_feature_names_out(), none.T, strict=True))
    assert_allclose(found["vector[0]"], np.delete(vectors, 4, axis=0)[:, 0].mean())
    assert not found["asked ~ vector cosine"].any()
    assert not found["asked ~ vector[0]"].any()
    with pytest.raises(ValueError, match="'vector' of X had vectors of 3 numbers in fit"):
        encoder.transform(frame.assign(vector=list(rng.normal(size=(n, 2)))))
    with pytest.raises(ValueError, match="'vector' of X was vectors in fit and is numeric now"):
        encoder.transform(frame.assign(vector=1.0))
    alone = TableEncoder().fit(X)  # without qid there are no queries
    empty = frame.assign(vector=[[] if v is None else v for v in frame["vector"]])
    assert_array_equal(alone.transform(empty), alone.transform(X))
    assert alone.query_columns_ == []
    assert TableEncoder(query_columns=["query"]).fit(X).query_columns_ == [0]


def test_errors():
    frame = table().drop(columns="note")
    frame["day"] = pd.date_range("2024-01-01", periods=6)
    with pytest.raises(ValueError, match="day"):
        TableEncoder().fit(frame)
    with pytest.raises(ValueError, match=r"contains infinity \(first at row 1"):
        TableEncoder().fit(np.array([[1.0], [np.inf], [2.0]]))
    with pytest.raises(ValueError, match="no column of X is a usable feature"):
        TableEncoder().fit(pd.DataFrame({"a": [1, 1, 1]}))
    with (
        pytest.raises(ValueError, match="constant or ids; if 'a' should be numbers, write"),
        pytest.warns(IdColumnWarning),
    ):
        TableEncoder().fit(pd.DataFrame({"a": [f"0,{i}" for i in range(9)]}))
    with (
        pytest.raises(ValueError, match="'shop' of X held text or vectors in fit, and X is an arr"),
        pytest.warns(UserWarning, match="X does not have valid feature names"),
    ):
        TableEncoder().fit(table()[["price", "shop"]]).transform(np.ones((2, 2)))
    with pytest.raises(ValueError, match="fitted to a table with text or missing values"):
        TableEncoder().fit(table()[["price", "shop"]].to_numpy()).transform(
            sparse.csr_array(np.ones((2, 2)))
        )


def test_columns_with_few_values_are_dropped():
    """A column that begins to have values later would move all scores."""
    rng = np.random.default_rng(0)
    few, enough = (np.where(np.arange(500) < n, rng.normal(size=500), np.nan) for n in (4, 5))
    X = pd.DataFrame({"a": rng.normal(size=500), "few": few, "enough": enough})
    with pytest.warns(UserWarning, match="'few' of X: columns with values in fewer than 1% of"):
        encoder = TableEncoder().fit(X)
    assert encoder.get_feature_names_out().tolist() == ["a", "enough", "enough missing"]
    later = encoder.transform(X.assign(few=1e9))
    np.testing.assert_array_equal(later, encoder.transform(X))
