"""Tables of judgements and relations with names: layouts, formats, names, and bad input."""

from __future__ import annotations

import gzip
import io
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from rankrls import ConditionalRankRLS, RankRLS
from rankrls.datasets import load_preferences, load_relations

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

ARENA = pd.DataFrame(
    {
        "question_id": [1, 1, 2, 3],
        "model_a": ["x", "y", "z", "x"],
        "model_b": ["y", "z", "x", "z"],
        "winner": ["model_a", "model_b", "tie", "tie (bothbad)"],
        "length": [5.0, -2.0, 1.0, 0.5],
        "judge": ["ann", "bob", "ann", "cy"],
    }
)
PAIRS = [[0, 1], [2, 1], [2, 0], [0, 2]]


def _check_arena(data):
    assert data.item_names.tolist() == ["x", "y", "z"]
    assert data.pairs.tolist() == PAIRS
    assert data.magnitude.tolist() == [1, 1, 0, 0]
    assert data.position.tolist() == [1, -1, 1, 1]
    assert data.pair_features.tolist() == [[5.0], [2.0], [1.0], [0.5]]
    assert data.groups.tolist() == ["ann", "bob", "ann", "cy"]
    assert data.columns["groups"] == "judge"
    assert data.n_dropped == 0


def _gzip(path):
    path.write_bytes(gzip.compress(ARENA.to_csv(index=False).encode()))


def _jsonl(path):
    ARENA.to_json(path, orient="records", lines=True)


WRITERS = {
    "a.csv": lambda path: ARENA.to_csv(path, index=False),
    "quoted.csv": lambda path: ARENA.to_csv(path, index=False, quoting=1),
    "nameless": _gzip,
    "a.jsonl": _jsonl,
    "lines": _jsonl,
    "a.json.gz": lambda path: path.write_bytes(
        gzip.compress(ARENA.to_json(orient="records", lines=True).encode())
    ),
    "coded.parquet": lambda path: ARENA.astype({"model_a": "category"}).to_parquet(path),
    "a.arrow": lambda path: feather.write_feather(pa.Table.from_pandas(ARENA), str(path)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_files(name, tmp_path):
    WRITERS[name](tmp_path / name)
    _check_arena(load_preferences(tmp_path / name, pair_features="length"))


@pytest.mark.parametrize(
    "frame",
    [
        ARENA,
        ARENA.astype({"model_a": "category", "winner": "string"}),
        pl.from_pandas(ARENA),
        pa.Table.from_pandas(ARENA),
        ARENA.to_dict("list"),
        {name: ARENA[name].to_numpy() for name in ARENA},
    ],
    ids=["pandas", "pandas types", "polars", "pyarrow", "dict", "arrays"],
)
def test_frames(frame):
    _check_arena(load_preferences(frame, pair_features=["length"]))


@pytest.mark.parametrize(
    ("preferred", "other"),
    [("preferred", "other"), ("Winner", "Loser"), ("chosen", "rejected"), ("better", "worse")],
)
def test_preferred_and_other(preferred, other):
    table = pd.DataFrame({other: ["p", "q", "r"], preferred: ["q", "r", "p"], "tie": [0, 1, 0]})
    data = load_preferences(table)
    assert data.pairs.tolist() == [[1, 0], [2, 1], [0, 2]]
    assert data.magnitude.tolist() == [1, 0, 1]
    assert data.position is None
    assert data.groups is None
    assert load_preferences(table, tie=None).magnitude.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("first", "second", "tie"),
    [
        ("A", "B", "Tie"),
        ("left", "right", "both"),
        (1, 2, 0),
        (1.0, -1.0, 0.0),
        ("p", "q", "draw"),
        ("model_1", "model_2", "neither"),
    ],
)
def test_words_for_the_winner(first, second, tie):
    table = {"left": ["p"] * 3, "right": ["q"] * 3, "outcome": [first, second, tie]}
    data = load_preferences(table)
    assert data.pairs.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert data.magnitude.tolist() == [1, 1, 0]


def test_the_name_of_the_winner():
    table = {"a": ["p", "q", "r"], "b": ["q", "r", "p"], "winner": ["q", "q", "r"]}
    assert load_preferences(table).pairs.tolist() == [[1, 0], [1, 2], [2, 0]]
    numbers = {"a": [10, 20], "b": [20, 30], "winner": [20, 20]}
    assert load_preferences(numbers).pairs.tolist() == [[1, 0], [1, 2]]
    text = {"a": [10, 20], "b": [20, 30], "winner": ["20", 20.0]}  # written alike
    assert load_preferences(text).pairs.tolist() == [[1, 0], [1, 2]]
    both = {"a": ["1", "1"], "b": ["2", "2"], "winner": ["2", "1"]}  # both readings are the same
    assert load_preferences(both).pairs.tolist() == [[1, 0], [0, 1]]
    # An item that is called like a side is one where the others are names.
    named = {"a": ["b", "c"], "b": ["x", "b"], "winner": ["b", "c"]}
    assert load_preferences(named).pairs.tolist() == [[0, 2], [1, 0]]


def test_tie_column_of_an_arena_table():
    table = {"a": ["p", "q"], "b": ["q", "p"], "winner": [None, "b"], "tie": [True, False]}
    data = load_preferences(table)
    assert data.magnitude.tolist() == [0, 1]
    assert data.pairs.tolist() == [[0, 1], [0, 1]]


def test_items_are_rows_of_x():
    features = pd.DataFrame(np.eye(4), index=["z", "w", "y", "x"])
    column = pd.Series(list("zwyx"), index=list("abcd"))
    for items in (features, features.index, column, list("zwyx"), np.array(list("zwyx"))):
        data = load_preferences(ARENA, items=items)
        assert data.item_names.tolist() == list("zwyx")
        assert data.item_names[data.pairs].tolist() == [list(p) for p in ("xy", "zy", "zx", "xz")]
    model = RankRLS().fit(features, pairs=data.pairs, magnitude=data.magnitude)
    assert model.coef_[3] > model.coef_[2]


def test_zero_is_a_tie_beside_a_second_side_or_names():
    table = {"model_a": ["x", "y", "z"], "model_b": ["y", "z", "x"]}
    for winner in ([1, 0, -1], ["1", "0", "2"], ["x", "0", "x"], ["a", "0", "b"]):
        data = load_preferences({**table, "winner": winner})
        assert data.magnitude.tolist() == [1, 0, 1]
        assert data.pairs.tolist() == [[0, 1], [1, 2], [0, 2]]


def test_numbers_and_text_that_are_written_alike():
    file = io.BytesIO(b"winner,loser\n10,9\n2,10\n")
    data = load_preferences(file, items=pd.Index([2, 9, 10]))
    assert data.pairs.tolist() == [[2, 1], [0, 2]]
    file.seek(0)
    assert load_preferences(file).item_names.tolist() == [2, 9, 10]  # sorted as numbers
    file = io.BytesIO(b"winner,loser,judge\n01,1,7\n1,b,8\n")
    data = load_preferences(file)
    assert data.item_names.tolist() == ["01", "1", "b"]
    assert data.groups.tolist() == [7, 8]
    mixed = load_preferences({"winner": ["b", 2], "loser": [1, "a"]})
    assert mixed.item_names.tolist() == [1, 2, "a", "b"]
    lines = _line(winner=7, loser="8", judge=1) + _line(winner="7", loser=9, judge="1")
    data = load_preferences(io.BytesIO(lines))
    assert data.item_names.tolist() == [7, "8", 9]
    assert data.pairs.tolist() == [[0, 1], [0, 2]]
    assert data.groups.tolist() == [1, 1]


def test_names_that_items_does_not_have():
    table = ARENA.assign(model_b=["y", "nobody", "x", "nobody"], model_a=["x", "y", "who", "x"])
    text = (
        r"table: row 1: names that are not in items: 'nobody' \(×2\), 'who' \(×1\), in 3 of 4 "
        r"lines; .* unknown='drop'"
    )
    with pytest.raises(ValueError, match=text):
        load_preferences(table, items=["x", "y"])
    data = load_preferences(table, items=["x", "y"], unknown="drop", pair_features="length")
    assert (data.pairs.tolist(), data.n_dropped) == ([[0, 1]], 3)
    assert data.pair_features.shape == (1, 1)
    assert data.groups.tolist() == ["ann"]
    many = {"winner": [f"u{i}" for i in range(9)], "loser": ["x"] * 9}
    with pytest.raises(ValueError, match=r"'u4' \(×1\), …, in 9 of 9 lines"):
        load_preferences(many, items=["x"])
    with pytest.raises(ValueError, match="that are not in items"):
        load_preferences(many, items=["nothing"], unknown="drop")  # nothing is left


GOOD = {"model_a": ["x", "y"], "model_b": ["y", "z"], "winner": ["a", "b"]}


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ({**GOOD, "model_b": ["y", "y"]}, {}, "row 1: 'y' is compared with itself"),
        ({**GOOD, "model_b": ["y", None]}, {}, "row 1: column 'model_b' is empty"),
        ({**GOOD, "winner": ["a", np.nan]}, {}, "row 1: column 'winner' is empty"),
        ({**GOOD, "winner": ["a", "c"]}, {}, "row 1: column 'winner' is 'c'; it must be one of the "
         "items of the row, 'y' and 'z', or 'model_a'"),
        ({**GOOD, "winner": ["x", "b"]}, {}, "row 0: column 'winner' is 'x': it holds names of "
         "items and sides"),
        ({**GOOD, "winner": [1, 0]}, {}, "row 1: column 'winner' is 0, which stands for a tie"),
        ({"a": [2, 3], "b": [1, 2], "winner": [1, 2]}, {}, "row 0: column 'winner' is 1: it "
         "holds names of items and sides, or one that may be both"),
        ({**GOOD, "tie": ["perhaps", ""]}, {}, "row 0: column 'tie' is 'perhaps', neither true"),
        ({**GOOD, "judge": [None, "ann"]}, {}, "row 0: column 'judge' is empty"),
        ({**GOOD, "m": [1, -1]}, {"magnitude": "m"}, "row 1: column 'm' is '-1', not a finite"),
        ({**GOOD, "m": [np.inf, 1]}, {"pair_weight": "m"}, "row 0: column 'm' is 'inf', not a fin"),
        ({**GOOD, "model_a": ["x", ["y"]]}, {}, "row 1: column 'model_a' holds a list, not a name"),
        (GOOD, {"pair_features": "len"}, "no column 'len' for pair_features"),
        (GOOD, {"winner": "winer"}, r"no column 'winer' for winner \(did you mean 'winner'\?\)"),
        (GOOD, {"preferred": "model_a", "winner": "winner"}, "it is not clear which columns"),
        (GOOD, {"items": ["x", "y", "z", "x"]}, "items has 'x' 2 times"),
        (GOOD, {"items": []}, "items must be the names"),
        (GOOD, {"items": {"x": 0, "y": 1}}, "items must be the names of the rows of X"),
        (GOOD, {"items": [["x"], ["y", "z"]]}, "items must be the names"),
        (GOOD, {"first": "model_a", "second": "model_a"}, "it is not clear which columns"),
        (GOOD, {"items": pl.DataFrame({"n": ["x"]})}, "items must be the names of the rows of X"),
        ({"model_a": ["x"], "model_b": ["y"]}, {}, "it is not clear which columns hold the "
         "judgements: call them .*; the columns are 'model_a', 'model_b'"),
        ({**GOOD, "preferred": ["x", "y"], "other": ["y", "z"]}, {}, "can be read as "
         "preferred='preferred', other='other' or as first='model_a'"),
        ({"winner": [], "loser": []}, {}, "table: no data"),
        ({"winner": ["x"], "loser": []}, {}, "columns have different lengths"),
        ({"winner": "xy", "loser": ["y", "x"]}, {}, "columns have different lengths"),
        (pd.DataFrame([["x", "y", 1]], columns=["winner", "loser", "loser"]), {}, "several col"),
        (pl.DataFrame(GOOD).lazy(), {}, r"pass table.collect\(\)"),
        (7, {}, "table must be a data frame .* got a int"),
    ],
)  # fmt: skip
def test_bad_tables(table, options, message):
    with pytest.raises(ValueError, match=message):
        load_preferences(table, **options)


def _line(**row):
    return json.dumps(row).encode() + b"\n"


JSON = _line(chosen="x", rejected="y") + b"\n"
CUT_SHORT = gzip.compress(JSON, mtime=0)[:-9]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"winner,loser\n\nx,y\nx,\n", "t.csv:4: column 'loser' is empty"),
        ("t.csv", b'winner,loser\n"x\nx",y\ny,y\n', "t.csv:4: 'y' is compared with itself"),
        ("t.csv", b"one,two\nx,y\n", "the columns are 'one', 'two'"),
        ("t.jsonl", b"", "t.jsonl: no data: the file is empty"),
        ("t.jsonl", JSON + b"{", "t.jsonl:3: this line is no JSON"),
        ("t.jsonl", JSON + b"[1]", "t.jsonl:3: this line is no JSON object .it holds a list"),
        ("lines", b'[{"chosen": "x",\n"rejected": "y"}]', "lines:1: this line is no JSON object"),
        ("t.jsonl", JSON + b"{}", "t.jsonl:3: column 'chosen' is empty"),
        ("t.jsonl", JSON + _line(chosen="x", rejected={}), "t.jsonl:3: .* holds a dict"),
        ("t.jsonl", JSON + b"[" * 100_000, "t.jsonl:3: this line is no JSON"),
        ("t.jsonl", JSON + b'{"chosen": "\xff"}', "t.jsonl:3: this is not UTF-8"),
        ("t.jsonl", JSON + b" " * (18 << 20), "t.jsonl:3: this line is longer than 16 MiB"),
        ("t.jsonl.gz", CUT_SHORT, "t.jsonl.gz:1: the gzip data is truncated"),
    ],
)
def test_bad_files(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_preferences(path)


def test_nested_columns_of_parquet_files(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"winner": [["x"]], "loser": ["y"]}), path)
    with pytest.raises(ValueError, match="row 0: column 'winner' holds a list, not a name"):
        load_preferences(path)
    pq.write_table(pa.table({"winner": ["x", None], "loser": ["y", "z"]}), path)
    with pytest.raises(ValueError, match="row group 0, row 1: column 'winner' is empty"):
        load_preferences(path)
    with open(path, "rb") as file, pytest.raises(ValueError, match="are opened by name"):
        load_preferences(file)


def test_long_files_keep_their_lines():
    rows = [f"i{i % 97},j{i % 89}" for i in range(200_000)]
    rows[150_000] = "same,same"
    file = io.BytesIO(("winner,loser\n" + "\n".join(rows)).encode())
    with pytest.raises(ValueError, match="<stream>:150002: 'same' is compared with itself"):
        load_preferences(file, format="csv")
    rows[150_000] = "i0,j0"
    data = load_preferences(io.BytesIO(("winner,loser\n" + "\n".join(rows)).encode()))
    assert len(data.pairs) == 200_000
    assert data.item_names[data.pairs[123_456]].tolist() == [f"i{123456 % 97}", f"j{123456 % 89}"]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_judgements_are_those_of_the_table(data):
    names = data.draw(st.lists(st.text("abxyz 01", min_size=1), min_size=2, max_size=6))
    names = sorted({name.strip() + "!" for name in names} | {"p!", "q!"})
    rows = st.tuples(st.sampled_from(names), st.sampled_from(names), st.sampled_from([1, 2, 0]))
    table = data.draw(st.lists(rows.filter(lambda row: row[0] != row[1]), min_size=1))
    words = data.draw(st.sampled_from([("tie", "A", "b"), ("draw", None, None)]))
    winner = [words[won] or (words[0], *row)[won] for *row, won in table]
    frame = pd.DataFrame(table, columns=["item_1", "item_2", "won"]).assign(Winner=winner)
    found = load_preferences(frame.drop(columns="won"), items=names[::-1], pair_features=None)
    for (a, b, won), pair, size in zip(table, found.pairs, found.magnitude, strict=True):
        expected = (b, a) if won == 2 else (a, b)
        assert tuple(found.item_names[pair]) == expected
        assert size == (won != 0)


# -- relations

RATINGS = {"user": ["bob", "ann", "bob", "cid"], "film": [9, 7, 7, 9], "stars": [1.0, 5, 3, 2]}


def test_sorted_names_by_default():
    data = load_relations(RATINGS)
    assert data.row_names.tolist() == ["ann", "bob", "cid"]
    assert data.column_names.tolist() == [7, 9]
    assert data.target.toarray().tolist() == [[5, 0], [3, 1], [0, 2]]
    assert data.target.nnz == 4
    assert data.n_dropped == 0


@pytest.mark.parametrize("kind", ["csv", "jsonl", "frame"])
def test_files_of_relations(kind, tmp_path):
    frame = pd.DataFrame(RATINGS)[["stars", "film", "user"]]
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
    pivot = pd.DataFrame(RATINGS).pivot(index="user", columns="film", values="stars")
    pivot = pivot.reindex(index=X.index, columns=[9, 7])
    model = ConditionalRankRLS(loss="regression")
    Z = np.eye(2)
    first, second = (model.fit(X, Y, Z).predict(X, Z) for Y in (data.target, pivot.to_numpy()))
    assert np.allclose(first, second)


def test_several_lines_of_one_pair_stay_apart():
    data = load_relations({"a": [1, 1], "b": [2, 2], "c": [0.0, 4.0]})
    assert data.target.nnz == 2
    assert data.target.shape == (1, 1)


def test_unknown_names_of_relations():
    with pytest.raises(ValueError, match=r"row 3: names that are not in rows: 'cid' \(×1\)"):
        load_relations(RATINGS, rows=["ann", "bob"])
    data = load_relations(RATINGS, rows=["ann", "bob"], columns=[7, 9], unknown="drop")
    assert data.n_dropped == 1
    assert data.target.toarray().tolist() == [[5, 0], [3, 1]]
    with pytest.raises(ValueError, match=r"not in rows: .* in 4 of 4 lines"):
        load_relations(RATINGS, rows=["zoe"], unknown="drop")


@pytest.mark.parametrize(
    ("table", "options", "match"),
    [
        ({"a": [1], "b": [2]}, {}, "needs three columns"),
        (RATINGS, {"row": "person"}, "person"),
        (RATINGS, {"row": "film"}, "must be different columns"),
        ({"a": [1], "b": [2], "c": ["x"]}, {}, "row 0: column 'c' is 'x', not a finite number"),
    ],
)
def test_relations_that_are_refused(table, options, match):
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
