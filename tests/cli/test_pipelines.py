"""Model files of pipelines with a ColumnTransformer, used by the command line and by ``rank``."""

import io

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from rankrls import RankRLS, rank
from rankrls.datasets import load_ranking, make_product_search
from rankrls.io import load_model, save_model


@pytest.mark.parametrize("columns", [["clicks", "price", "seller"], ["clicks", "price"]])
def test_tables_with_text_and_missing_values(columns, tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    table = make_product_search(n_queries=8, n_products=6, random_state=0)
    numbers = make_pipeline(SimpleImputer(strategy="median"))
    steps = [(numbers, ["clicks", "price"])]
    if "seller" in columns:
        steps.append((OneHotEncoder(handle_unknown="ignore"), ["seller"]))
    model = make_pipeline(make_column_transformer(*steps), RankRLS(1.0))
    model.fit(table[columns], table["grade"], rankrls__qid=table["query"])
    save_model(model, "shop.rankrls")
    new = make_product_search(n_queries=3, n_products=5, random_state=1)
    if "seller" in columns:
        new.loc[0, "seller"] = "east"
    new = new[[*columns, "query", "grade"]]
    new.to_csv("new.csv", index=False)
    expected = model.predict(new[columns])

    how = "-m shop.rankrls --label grade --qid-column query"
    assert np.array_equal(np.array(run(f"predict new.csv {how}").out.split(), float), expected)
    assert "ndcg" in run(f"evaluate new.csv {how}").out

    read = load_ranking("new.csv", target="grade", qid="query", missing="nan", text="auto")
    by_file = rank(load_model("shop.rankrls"), read).to_frame()
    by_frame = rank(model, new, qid="query").to_frame()
    pd.testing.assert_frame_equal(by_file, by_frame)


def shop_pipeline(table, remainder="drop", columns=("clicks", "price")):
    """A pipeline that is fitted to the whole table, and takes what it uses from it."""
    chosen = make_column_transformer((SimpleImputer(), list(columns)), remainder=remainder)
    model = make_pipeline(chosen, RankRLS(1.0))
    return model.fit(table, table["grade"], rankrls__qid=table["query"])


@pytest.mark.parametrize("columns", [["clicks", "price"], [2, 3]], ids=["names", "numbers"])
def test_columns_that_the_transformer_drops_are_not_needed(columns, tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    table = make_product_search(n_queries=6, n_products=5, random_state=0)
    model = shop_pipeline(table, columns=columns)
    save_model(model, "shop.rankrls")
    table.to_csv("shop.csv", index=False)
    expected = rank(model, table, qid="query", ids="product", k=2).to_frame()
    assert expected["score"].max() == model.predict(table).max()
    few = table[["price", "product", "query", "clicks"]]
    for data in (few, pl.from_pandas(few)):
        found = rank(model, data, qid="query", ids="product", k=2).to_frame()
        pd.testing.assert_frame_equal(found, expected)
    with pytest.raises(ValueError, match="data has a column 'query', but qid is None"):
        rank(model, few)
    with pytest.raises(ValueError, match="data has no column 'price'"):
        rank(model, table.drop(columns="price"), qid="query")

    few.to_csv("few.csv", index=False)
    for how in ("-m shop.rankrls", "-m shop.rankrls --qid-column query"):
        out = run(f"predict few.csv --top 2 --doc-id product {how}").out
        pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(out)), expected)
        assert "ndcg" in run(f"evaluate shop.csv {how}").out


def test_a_file_of_numbers_is_a_table_for_the_transformer(tmp_path):
    table = make_product_search(n_queries=6, n_products=5, random_state=0)
    table = table[["query", "clicks", "price", "grade"]].fillna(0)
    model = shop_pipeline(table)
    table.to_csv(tmp_path / "shop.csv", index=False)
    read = load_ranking(tmp_path / "shop.csv", target="grade", qid="query")
    assert isinstance(read.data, np.ndarray)
    expected = rank(model, table, qid="query").to_frame()
    pd.testing.assert_frame_equal(rank(model, read).to_frame(), expected)


def test_columns_that_the_transformer_passes_on_are_needed():
    table = make_product_search(n_queries=6, n_products=5, random_state=0)
    table["query"] = table.groupby("query", sort=False).ngroup()
    table = table[["query", "clicks", "price", "grade"]]
    model = shop_pipeline(table, remainder="passthrough")
    with pytest.raises(ValueError, match="data has no column 'grade'"):
        rank(model, table.drop(columns="grade"), qid="query")


def test_queries_of_a_run_without_a_relevant_document_are_told(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").write_text("a Q0 x 1 2.0 t\na Q0 y 2 1.0 t\nb Q0 z 1 1.0 t\n")
    (tmp_path / "qrels").write_text("a 0 x 1\na 0 y 0\nb 0 z 0\n")
    found = run("evaluate --run run --qrels qrels --metrics ndcg@10 --json").json
    assert (found["ndcg@10"], found["n_queries_without_relevant"]) == (1, 1)
    (tmp_path / "qrels").write_text("a 0 x 1\nb 0 z 0\nc 0 x 1\nd 0 x 0\n")
    for more, value in (("", 0.5), ("--undefined 0", 0.25), ("--missing-queries skip", 1.0),
                        ("--missing-queries skip --undefined 0", 0.5)):  # fmt: skip
        found = run(f"evaluate --run run --qrels qrels --metrics map --json {more}").json
        assert (found["map"], found["n_queries"], found["n_queries_in_run"]) == (value, 4, 2)
