"""Columns that are no features: ``drop=`` of the readers, ``--drop`` of the commands."""

import io

import numpy as np
import pandas as pd
import pytest

import rankrls.cli._files
from rankrls import RankRLS
from rankrls.datasets import (
    dump_letor,
    iter_csv,
    iter_parquet,
    iter_ranking,
    load_csv,
    load_ranking,
    make_ranking,
)
from rankrls.io import load_model

FEATURES = ["f0", "f1", "f2"]


@pytest.fixture(scope="module")
def data():
    made = make_ranking(n_queries=20, n_docs=(3, 9), n_features=3, random_state=0)
    return made.data, made.target, made.qid


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    """Rows with columns of text and ids between the others."""
    folder = tmp_path_factory.mktemp("drop")
    X, y, qid = data
    frame = pd.DataFrame({"title": [f"no. {i}" for i in range(len(y))], "qid": qid, "f0": X[:, 0]})
    frame["doc_id"], frame["label"], frame["f1"] = np.arange(len(y)) + 7, y, X[:, 1]
    frame["url"], frame["f2"] = "http://x", X[:, 2]
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_csv(folder / "quoted.csv", index=False, quoting=1)
    frame.to_parquet(folder / "t.parquet")
    frame.drop(columns=FEATURES).to_csv(folder / "bare.csv", index=False)
    frame.assign(late=3.0).drop(columns="url").to_csv(folder / "other.csv", index=False)
    dump_letor(X, y, folder / "t.dat", qid=qid)
    return folder


@pytest.fixture(autouse=True)
def _in_the_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)


DROP = "--drop title --drop doc_id --drop url"


@pytest.mark.parametrize("name", ["t.csv", "quoted.csv", "t.parquet"])
def test_dropped_columns_are_no_features(folder, data, name):
    drop = ["url", "title", "doc_id"]
    tables = [load_ranking(folder / name, drop=drop)]
    tables.append(next(iter_ranking(folder / name, drop=drop)))
    options = {"target": "label", "qid": "qid", "drop": np.array(drop)}
    if name.endswith("csv"):
        tables += [load_csv(folder / name, **options), next(iter_csv(folder / name, **options))]
    else:
        tables.append(next(iter_parquet(folder / name, **options)))
    for table in tables:
        assert table.feature_names == FEATURES
        np.testing.assert_array_equal(table.data, data[0])
        np.testing.assert_array_equal(table.target, data[1])
    one = load_ranking(folder / name, drop="title", features=["f2"])
    assert one.feature_names == ["f2"]


@pytest.mark.parametrize("name", ["t.csv", "quoted.csv", "t.parquet"])
def test_all_columns_of_text_are_named(folder, name):
    with pytest.raises(ValueError, match="column 'title' is") as caught:
        load_ranking(folder / name)
    hint = "; drop them if they are no feature (drop=['title', 'url'], --drop 'title,url')"
    assert hint in str(caught.value)
    with pytest.raises(ValueError, match="column 'url' is") as caught:
        load_ranking(folder / name, drop="title")
    assert "; drop it if it is no feature (drop='url', --drop 'url')" in str(caught.value)
    with pytest.raises(ValueError, match="column 'url' is") as caught:
        load_ranking(folder / name, features=["f0", "url"])
    assert "drop=" not in str(caught.value)  # it was asked for


def test_a_dropped_column_has_no_role():
    text = b"label,y,qid,a\n1,2,3,4\n"
    assert load_ranking(io.BytesIO(text), drop="y").target.tolist() == [1]
    assert load_ranking(io.BytesIO(text), drop="label").target.tolist() == [2]
    with pytest.raises(ValueError, match="column 'y' for drop is also read"):
        load_ranking(io.BytesIO(text), drop="y", target="y")
    with pytest.raises(ValueError, match=r"LETOR text.* drop=\['a'\] is for CSV"):
        load_ranking(io.BytesIO(b"1 qid:1 1:2\n"), drop=["a"])


@pytest.mark.parametrize("name", ["t.csv", "quoted.csv", "t.parquet"])
@pytest.mark.parametrize("how", ["--in-memory", "--stream"])
def test_fit(run, folder, data, name, how):
    X, y, qid = data
    run(f"fit {name} -m new --alpha 1 --scale none {how} {DROP} --drop url")
    model = load_model(folder / "new")
    assert model.feature_names_in_.tolist() == FEATURES
    np.testing.assert_allclose(model.coef_, RankRLS().fit(X, y, qid=qid).coef_)


@pytest.mark.parametrize("large", [False, True])
def test_predict_and_evaluate_read_the_columns_of_the_model(run, folder, data, large, monkeypatch):
    """Other columns are ignored, whether they are dropped or not."""
    if large:
        monkeypatch.setattr(rankrls.cli._files, "LARGE", 1)
        monkeypatch.setattr(rankrls.cli._files, "BATCH", 10)
    run(f"fit t.csv -m new {DROP}")
    rows = pd.DataFrame(data[0], columns=FEATURES)
    expected = load_model(folder / "new").predict(rows)
    for name in ("t.csv", "t.parquet", "other.csv"):  # the last one lacks a dropped column
        for drop in ("", DROP):
            out, err = run(f"predict {name} -m new {drop}")
            np.testing.assert_allclose([float(line) for line in out.split()], expected)
            assert err == ""
            assert run(f"evaluate {name} -m new {drop}")[0] == run("evaluate t.csv -m new")[0]
    _, err = run("predict t.csv -m new --drop f1", code=2)
    assert err == "rankrls: error: --drop 'f1': the model was fitted to this column\n"


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "bare.csv", "t.dat"])
def test_evaluating_scores_needs_no_features(run, folder, data, name):
    np.savetxt(folder / "scores.txt", data[0][:, 0])
    out, _ = run(f"evaluate {name} --scores scores.txt")
    assert out == run("evaluate t.dat --scores scores.txt")[0]
