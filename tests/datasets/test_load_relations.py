"""Long tables of relations: frames and files, names in the order of X and Z, clear errors."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from rankrls import ConditionalRankRLS
from rankrls.datasets import load_relations

TABLE = {"user": ["bob", "ann", "bob", "cid"], "film": [9, 7, 7, 9], "stars": [1.0, 5, 3, 2]}


def test_sorted_names_by_default():
    data = load_relations(TABLE)
    assert data.row_names.tolist() == ["ann", "bob", "cid"]
    assert data.column_names.tolist() == [7, 9]
    assert data.target.toarray().tolist() == [[5, 0], [3, 1], [0, 2]]
    assert data.target.nnz == 4
    assert data.n_dropped == 0


@pytest.mark.parametrize("kind", ["csv", "jsonl", "frame"])
def test_files_and_orders(kind, tmp_path):
    frame = pd.DataFrame(TABLE)[["stars", "film", "user"]]
    path = tmp_path / f"table.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    X = pd.DataFrame(np.eye(4), index=["cid", "dan", "bob", "ann"])
    data = load_relations(
        frame if kind == "frame" else path,
        row="user", column="film", value="stars", rows=X, columns=[9, 7],
    )  # fmt: skip
    expected = [[2, 0], [0, 0], [1, 3], [0, 5]]
    assert data.target.toarray().tolist() == expected
    pivot = pd.DataFrame(TABLE).pivot(index="user", columns="film", values="stars")
    pivot = pivot.reindex(index=X.index, columns=[9, 7])
    model = ConditionalRankRLS(loss="regression")
    Z = np.eye(2)
    first, second = (model.fit(X, Y, Z).predict(X, Z) for Y in (data.target, pivot.to_numpy()))
    assert np.allclose(first, second)


def test_several_lines_of_one_pair_stay_apart():
    data = load_relations({"a": [1, 1], "b": [2, 2], "c": [0.0, 4.0]})
    assert data.target.nnz == 2
    assert data.target.shape == (1, 1)


def test_unknown_names():
    with pytest.raises(ValueError, match=r"row 3: names that are not in rows: 'cid' \(×1\)"):
        load_relations(TABLE, rows=["ann", "bob"])
    data = load_relations(TABLE, rows=["ann", "bob"], columns=[7, 9], unknown="drop")
    assert data.n_dropped == 1
    assert data.target.toarray().tolist() == [[5, 0], [3, 1]]
    with pytest.raises(ValueError, match=r"not in rows: .* in 4 of 4 lines"):
        load_relations(TABLE, rows=["zoe"], unknown="drop")


@pytest.mark.parametrize(
    ("table", "options", "match"),
    [
        ({"a": [1], "b": [2]}, {}, "needs three columns"),
        (TABLE, {"row": "person"}, "person"),
        (TABLE, {"row": "film"}, "must be different columns"),
        ({"a": [1], "b": [2], "c": ["x"]}, {}, "row 0: column 'c' is 'x', not a finite number"),
    ],
)
def test_refusals(table, options, match):
    with pytest.raises(ValueError, match=match):
        load_relations(table, **options)


def test_labels_of_a_long_table_follow_the_names_of_x_and_z():
    rng = np.random.default_rng(0)
    users, items = [f"u{i}" for i in range(12)], [f"i{i}" for i in range(9)]
    X = pd.DataFrame(rng.normal(size=(12, 3)), index=users, columns=list("abc"))
    Z = pd.DataFrame(rng.normal(size=(9, 2)), index=items, columns=list("de"))
    Y = pd.DataFrame(X.to_numpy() @ rng.normal(size=(3, 2)) @ Z.to_numpy().T, users, items)
    X, Z = X.iloc[rng.permutation(12)], Z.iloc[rng.permutation(9)]
    long = Y.stack().sample(frac=0.8, random_state=0).reset_index()
    long.columns = ["user", "item", "value"]
    by_names = ConditionalRankRLS(0.1).fit(X, load_relations(long).target, Z)
    given = load_relations(long, rows=X.index, columns=Z.index).target
    assert_allclose(by_names.predict(X, Z), ConditionalRankRLS(0.1).fit(X, given, Z).predict(X, Z))
    with pytest.raises(ValueError, match="Y has labels of 'u3', which is not in the index of X"):
        ConditionalRankRLS(0.1).fit(X.drop("u3"), load_relations(long).target, Z)
