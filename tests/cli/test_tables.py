"""``fit`` and ``report`` of click logs: the labels and weights of `rankrls.clicks`."""

import numpy as np
import pandas as pd
import pytest

from rankrls import RankRLS
from rankrls.clicks import click_labels, estimate_examination
from rankrls.io import load_model


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Sessions in which items are shown at random places; the price tells their relevance."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    n = 6000
    frame = pd.DataFrame({"query": rng.integers(30, size=n), "item": rng.integers(6, size=n)})
    frame["position"], frame["n"] = rng.integers(1, 5, size=n), rng.integers(1, 4, size=n)
    frame["price"], frame["size"] = frame["item"] * 1.5, np.sin(7.0 * frame["item"])
    frame["clicks"] = rng.binomial(frame["n"], (0.1 + 0.1 * frame["item"]) / frame["position"])
    frame["name"] = [f"item {i}" for i in frame["item"]]
    frame.to_csv("log.csv", index=False)
    frame.to_csv("log.tsv", index=False, sep="\t")
    frame.to_parquet("log.parquet")
    frame[:3000].to_csv("half.csv", index=False)  # several files, of several kinds
    frame[3000:].to_csv("log2.csv", index=False)
    frame[3000:].to_csv("log2.tsv", index=False, sep="\t")
    frame[3000:].to_parquet("log2.parquet")
    return frame


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_fit_is_that_of_click_labels(log, run, kind):
    words = f"fit log.{kind} -m m --clicks clicks --position position --impressions n"
    told = run(f"{words} --drop name --alpha 1 --scale none")
    assert "examination by position 1: 1.00, 2: 0." in told.err
    how = {"impressions": "n"}
    labels = click_labels(log, **how, examination=estimate_examination(log, **how))
    items = log.groupby(["query", "item"])[["price", "size"]].mean()
    X = items.loc[list(zip(labels.query, labels.item, strict=True))].to_numpy()
    ranker = RankRLS(1.0).fit(X, labels.label, qid=labels.query, sample_weight=labels.weight)
    found = load_model("m")
    np.testing.assert_allclose(found.coef_, ranker.coef_, rtol=1e-9)
    assert found.feature_names_in_.tolist() == ["price", "size"]
    assert "log." in found._source["history"][0]
    assert found._source["qid"] == "query"
    run(f"{words.replace('log.', 'half.csv log2.')} --drop name --alpha 1 --scale none")
    np.testing.assert_allclose(load_model("m").coef_, ranker.coef_, rtol=1e-9)
    assert "label" not in found._source  # a column that no file has
    run(f"{words} --auto --effort quick")  # text is taken, too


def test_the_report_shows_the_examination(log, run, tmp_path):
    clicks = "--clicks clicks --position position --impressions n"
    run(f"report log.csv -o page.html --drop name {clicks}")
    page = (tmp_path / "page.html").read_text()
    assert '<h2 id="clicks-h">Clicks and positions</h2>' in page
    theta = estimate_examination(log, impressions="n").examination
    assert all(f"{value:.2f}</td>" in page for value in theta)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--clicks clicks", "--clicks needs --position"),
        ("--position position", "--position is for click logs: add --clicks"),
        ("--clicks clicks --position position --target price", "gives labels and weights"),
        ("--clicks clicks --position place", "no column 'place': name it by --position"),
        ("--clicks clicks --position position --item name --stream", "read at once"),
        ("--clicks clicks --position position", "error: log.csv: column 'name' is not numeric"),
    ],
)  # fmt: skip
def test_refused(log, run, words, message):
    assert message in run(f"fit log.csv -m m {words}", code=2).err


def test_a_log_in_which_nothing_moved(log, run):
    log.assign(position=log["item"] + 1).to_csv("still.csv", index=False)
    told = run("fit still.csv -m m --clicks clicks --position position", code=2)
    assert "cannot tell which positions are examined" in told.err
