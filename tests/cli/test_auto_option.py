"""``--auto``: AutoRanker on files as they are, and its model files in the other commands."""

import os
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import Pipeline

from rankrls import AutoRanker, RankRLS
from rankrls.cli import main
from rankrls.datasets import dump_letor
from rankrls.diagnostics import explain
from rankrls.io import load_model, save_model
from rankrls.preprocessing import TableEncoder
from rankrls.report import write_report


def table(first, n_queries, rng):
    """Raw columns: an id, names, missing values, text, booleans, a constant."""
    qid = np.repeat(np.arange(first, first + n_queries), rng.integers(4, 9, n_queries))
    n = len(qid)
    frame = pd.DataFrame({"query": [f"q {q}" for q in qid]})
    frame["product_id"] = rng.permutation(n) + 10_000
    frame["name"] = [f"Product{i}" for i in range(n)]
    frame["price"] = np.exp(rng.normal(3, 1, n)).round(2)
    frame["brand"] = rng.choice(["acme", "bolt", ""], n)
    frame["size"] = rng.choice(["M", "38", "40"] if first == 0 else ["38", "40"], n)
    frame["in_stock"] = rng.random(n) < 0.7
    frame["rating"] = np.where(rng.random(n) < 0.2, np.nan, rng.normal(3, 1, n).round(1))
    frame["currency"] = "EUR"
    value = -np.log(frame["price"]) + 2.0 * (frame["brand"] == "acme") + (frame["size"] == "38")
    frame["grade"] = np.digitize(value, np.quantile(value, [0.5, 0.9]))
    return frame


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("auto")
    rng = np.random.default_rng(0)
    train, test = table(0, 40, rng), table(1000, 20, rng)
    for name, frame in (("train", train), ("test", test)):
        frame.to_csv(folder / f"{name}.csv", index=False)
        frame.to_parquet(folder / f"{name}.parquet")
    numbers = train[["price", "in_stock"]].to_numpy(dtype=float)
    codes = np.unique(train["query"], return_inverse=True)[1]
    dump_letor(numbers, train["grade"], str(folder / "train.dat"), qid=codes)
    here = os.getcwd()
    os.chdir(folder)
    try:
        for data, model in (("train.csv", "model"), ("train.dat", "nameless")):
            assert main(["fit", data, "--auto", "--effort", "quick", "-m", model]) == 0
        assert main(["fit", "train.dat", "-m", "plain", "--alpha", "1"]) == 0
    finally:
        os.chdir(here)
    return folder


@pytest.fixture(autouse=True)
def here(files, monkeypatch):
    monkeypatch.chdir(files)


def by_hand(**options):
    """The same in Python, with a data frame."""
    frame = pd.read_csv("train.csv")
    X = frame.drop(columns=["query", "grade"])
    ranker = AutoRanker(**{"effort": "quick", "random_state": 0, **options})
    return ranker.fit(X, frame["grade"], qid=frame["query"])


def by_hand_scores(ranker, file="test.csv"):
    frame = pd.read_csv(file, dtype={"size": str})
    return ranker.predict(frame.drop(columns=["query", "grade"]), qid=frame["query"])


@pytest.mark.filterwarnings("ignore::rankrls.exceptions.IdColumnWarning")
def test_fit_writes_the_ranker_of_the_raw_table(run):
    told = run("fit train.csv --auto --effort quick -m again")
    ranker = by_hand()
    loaded = load_model("again")
    assert isinstance(loaded, AutoRanker)
    assert loaded.feature_names_in_.tolist() == ranker.feature_names_in_.tolist()
    assert loaded.best_score_ == ranker.best_score_
    np.testing.assert_array_equal(by_hand_scores(loaded), by_hand_scores(ranker))
    lines = told.out.splitlines()
    assert " ".join(lines[0].split()) == "view kernel blocks cost compared alpha ndcg@10 weight"
    for k in range(len(ranker.estimators_)):
        assert lines[1 + k].startswith(ranker.members_["view"][k])
        assert f"{ranker.members_['score'][k]:.4g}" in lines[1 + k]
    assert re.search(f"^best score +{ranker.best_score_:.4g}$", told.out, re.M)
    assert "taken as text: name, brand, size, currency" in told.err
    assert "3 of 8 columns left out" in told.err
    assert "product_id, name, currency" in told.err


def test_predict_and_evaluate(run):
    model = load_model("model")
    expected = by_hand_scores(model)
    for file in ("test.csv", "test.parquet"):
        scores = np.array(run(f"predict {file} -m model").out.split(), float)
        np.testing.assert_array_equal(scores, expected)
    found = run("evaluate test.csv -m model --json").json
    frame = pd.read_csv("test.csv", dtype={"size": str})
    X = frame.drop(columns=["query", "grade"])
    accuracy = model.score(X, frame["grade"], qid=frame["query"])
    assert found["pairwise_accuracy"] == pytest.approx(accuracy, rel=1e-12)


def test_batches_are_whole_queries(run, monkeypatch):
    """A large file gives the scores of all rows at once."""
    expected = np.array(run("predict test.csv -m model").out.split(), float)
    monkeypatch.setattr("rankrls.cli._files.LARGE", 10)
    monkeypatch.setattr("rankrls.cli._files.BATCH", 11)
    for file in ("test.csv", "test.parquet"):
        scores = np.array(run(f"predict {file} -m model").out.split(), float)
        np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)


def test_one_ranking(run):
    """All rows of a file as one query, and a model of one ranking on rows with queries."""
    frame = pd.read_csv("test.csv", dtype={"size": str})
    X = frame.drop(columns=["query", "grade"])
    model = load_model("model")
    scores = np.array(run("predict test.csv -m model --one-ranking").out.split(), float)
    np.testing.assert_array_equal(scores, model.predict(X, qid=np.zeros(len(X))))
    run("fit train.csv --auto --effort quick --one-ranking -m one")
    scores = np.array(run("predict test.csv -m one").out.split(), float)
    np.testing.assert_array_equal(scores, load_model("one").predict(X))
    assert run("evaluate test.csv -m one --json").json["n_queries"] == 20


@pytest.mark.filterwarnings("ignore::rankrls.exceptions.IdColumnWarning")
def test_cv_prints_candidates_and_the_nested_score(run):
    told = run("cv train.csv --auto --effort quick")
    model = load_model("model")
    assert re.search(f"^best score +{model.best_score_:.4g}$", told.out, re.M)
    views = tuple(set(model.members_["view"]))
    found = sum(line.startswith(views) for line in told.out.splitlines())
    assert found == len(model.members_["weight"])
    options = "--scoring average_precision --random-state 5"
    found = run(f"cv train.csv --auto --effort quick --json {options}").json
    assert found["best_score"] == by_hand(scoring="average_precision", random_state=5).best_score_


def test_info_reads_the_manifest_only(run, monkeypatch):
    views = load_model("model").members_["view"]
    monkeypatch.setattr("rankrls.io._values.Decoder.decode", None)
    told = run("info model").out
    assert "AutoRanker" in told
    assert views[0] in told


def test_export_is_refused(run):
    for target in ("solr", "elasticsearch", "svmrank", "onnx -o x.onnx"):
        told = run(f"export -m model --to {target}", code=2)
        assert "AutoRanker cannot be exported" in told.err
        assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit train.csv --auto -m x --alpha 3", "leave out --alpha"),
        ("fit train.csv --auto -m x --kernel rbf", "--auto chooses kernels, losses and alphas"),
        ("cv train.csv --auto --alphas 1,2", "leave out --alphas, or --auto"),
        ("report train.csv --auto --scale none", "--auto scales features and fills in missing"),
        ("fit train.csv --auto -m x --missing mean", "leave out --missing"),
        ("fit train.csv --auto -m x --loss hinge", "leave out --loss"),
        ("fit train.csv --auto -m x -c 3", "leave out -c"),
        ("fit train.csv --auto -m x --cv 3", "--auto holds out whole queries, one by one"),
        ("fit train.csv --auto -m x --stream", "--auto reads all rows at once"),
        ("fit train.csv --auto -m x --in-memory", "leave out --stream or --in-memory"),
        ("cv train.csv --auto --plot x.png", "--auto has no path of alphas to draw"),
        ("cv train.csv --auto --scoring MAP", "it is called 'map' here"),
        ("fit train.csv -m x --effort quick", "--effort is for --auto"),
        ("report train.csv --effort quick", "--effort is for --auto"),
        ("fit train.csv -m x", "is 'Product0', not a finite number"),
    ],
)
def test_what_is_refused(run, words, message):
    told = run(words, code=2)
    assert message in told.err
    assert told.err.count("\n") == 1


def test_predict_needs_queries_and_columns(run):
    frame = pd.read_csv("test.csv")
    frame.drop(columns="query").to_csv("lost.csv", index=False)
    assert "no column 'query' for qid" in run("predict lost.csv -m model", code=2).err
    frame.drop(columns="brand").to_csv("less.csv", index=False)
    assert "no column 'brand'" in run("predict less.csv -m model", code=2).err
    frame["price"] = "cheap"
    frame.to_csv("words.csv", index=False)
    assert "words.csv:2: column 'price' is 'cheap'" in run("predict words.csv -m model", code=2).err


def test_letor_text_has_no_columns_of_text(run):
    """Rows without brands and sizes would all look alike."""
    for words in ("predict train.dat", "evaluate train.dat", "predict -"):
        told = run(f"{words} -m model", stdin=b"1 qid:1 1:2\n0 qid:1 1:3\n", code=2)
        assert "'brand', 'size' of X held text or vectors in fit" in told.err


def test_columns_left_out_need_not_be_there(run):
    frame = pd.read_csv("test.csv", dtype={"size": str})
    left_out = ["product_id", "name", "currency"]
    few, other = frame.drop(columns=left_out), frame.assign(name=pd.Timestamp("2024-01-01"))
    other["currency"] = [[1, 2]] * len(other)
    for table, name in ((few, "few"), (other, "other")):
        table.to_parquet(f"{name}.parquet")
    few.to_csv("few.csv", index=False)
    expected = run("predict test.csv -m model --top 3").out
    for words in ("few.csv", "few.parquet", "other.parquet", "test.csv --drop name"):
        assert run(f"predict {words} -m model --top 3").out == expected
    assert run("evaluate other.parquet -m model").out == run("evaluate test.csv -m model").out
    names = [name for name in frame.columns if name not in ("query", "grade")]
    used = [name for name in names if name not in left_out]
    for given in (names, used):
        words = f"predict few.csv -m model --top 3 --features {','.join(given)}"
        assert run(words).out == expected


def test_numbers_with_a_few_other_cells_are_a_warning(run):
    frame = pd.read_csv("train.csv", dtype={"size": str})
    n = len(frame)
    frame["price"] = frame["price"].astype(str)
    frame.loc[3, "price"] = "?"
    frame["volume"] = [f"{i:,}" for i in range(900, 900 + n)]
    frame["stock"] = ["1_000", *map(str, range(n - 1))]
    frame.to_csv("marked.csv", index=False)
    told = run("fit marked.csv --auto --effort quick -m x").err
    for name, count, cell in (("price", 1, "?"), ("volume", n - 100, "1,000"),
                              ("stock", 1, "1_000")):  # fmt: skip
        text = f"column {name!r} is taken as text: {count} of its {n} cells are no numbers"
        assert f"{text}, such as {cell!r}" in told


def test_dates_are_a_warning(run):
    frame = pd.read_csv("train.csv", dtype={"size": str})
    frame["added"] = [f"2024-0{1 + i % 3}-11 10:00" for i in range(len(frame))]
    frame.assign(added=frame["added"].where(frame.index % 5 > 0, "NULL")).to_csv(
        "days.csv", index=False
    )
    frame.assign(added=pd.to_datetime(frame["added"])).to_parquet("days.parquet")
    for data in ("days.csv", "days.parquet"):
        told = run(f"fit {data} --auto --effort quick -m x").err
        assert "column 'added' is taken as text" in told
        assert "column 'name'" not in told
    run("predict days.parquet -m x")


def test_labels_without_gains(run):
    """NDCG is the default; labels below 0 have none."""
    frame = pd.read_csv("train.csv")
    frame["grade"] -= 5
    frame.to_csv("below.csv", index=False)
    told = run("fit below.csv --auto --effort quick -m x")
    assert "labels from -5 to -3 have no ndcg@10" in told.err
    assert load_model("x").scoring == "pairwise_accuracy"
    wrong = run("fit below.csv --auto --effort quick -m x --scoring ndcg@5", code=2)
    assert "must be >= 0 for ndcg" in wrong.err


@pytest.mark.filterwarnings("ignore::rankrls.exceptions.IdColumnWarning")
def test_pipelines_that_begin_with_an_encoder(run):
    """The model of a report is one."""
    frame = pd.read_csv("train.csv")
    X, y, qid = frame.drop(columns=["query", "grade"]), frame["grade"], frame["query"]
    quick = AutoRanker(effort="quick", random_state=0)
    made = write_report("page.html", X, y, qid, estimator=quick)
    save_model(made.model, "pipeline")
    expected = by_hand_scores(made.model)
    scores = np.array(run("predict test.csv -m pipeline").out.split(), float)
    np.testing.assert_array_equal(scores, expected)
    encoder = TableEncoder().fit(X)
    ranker = RankRLS().fit(encoder.transform(X), y, qid=qid)
    save_model(Pipeline([("encode", encoder), ("rank", ranker)]), "linear")
    scores = np.array(run("predict test.csv -m linear").out.split(), float)
    unseen = pd.read_csv("test.csv", dtype={"size": str}).drop(columns=["query", "grade"])
    np.testing.assert_array_equal(scores, ranker.predict(encoder.transform(unseen)))


@pytest.mark.filterwarnings("ignore::rankrls.exceptions.IdColumnWarning")
def test_report_describes_the_ranker_of_fit(run):
    told = run("report train.csv --auto --effort quick -o page.html --json").json
    model = load_model("model")
    assert told["method"] == "leave-query-out"
    assert told["scoring"] == "ndcg@10"
    assert told["best_score"] == pytest.approx(model.best_score_, abs=1e-12)
    assert told["members"]["view"] == list(model.members_["view"])
    with open("page.html", encoding="utf-8") as file:
        page = file.read()
    assert '<section id="members"' in page
    assert '<section id="alpha"' not in page
    assert 'row"><bdi>brand</bdi>' in page
    words = "--auto --effort quick -o page.html --json"
    assert run(f"report train.csv --test test.csv {words}").json["method"] == "test"
    assert run(f"report train.dat {words}").json["method"] == "leave-query-out"


@pytest.mark.parametrize("data", ["test.csv", "test.parquet"])
def test_explain(run, data):
    """The contributions are those of Python, and add up to the difference of the scores."""
    model = load_model("model")
    frame = pd.read_parquet("test.parquet")
    one = frame[frame["query"] == "q 1003"]
    features = one[list(model.feature_names_in_)]
    scores = model.predict(features, qid=one["query"])
    order = np.argsort(-scores, kind="stable")
    found = run(f"explain {data} -m model --query 'q 1003' --ranks 1,3 --json").json
    assert found["rows"] == (one.index[order[[0, 2]]] + 1).tolist()
    np.testing.assert_allclose(found["difference"], scores[order[0]] - scores[order[2]])
    parts = {line["column"]: line for line in found["contributions"]}
    np.testing.assert_allclose(
        sum(line["contribution"] for line in parts.values()), found["difference"]
    )
    rows = [features.iloc[order[:1]], features.iloc[order[2:3]]]
    others = features.iloc[np.delete(order, [0, 2])]
    expected = explain(model, *rows, among=others)
    columns = pd.DataFrame(model.columns_).set_index("column")["used as"]
    assert set(parts) == set(columns.index[columns != "dropped"])  # the others are not read
    for label, value in zip(expected.labels, expected.contribution, strict=True):
        found = parts.get(label, {"contribution": 0})["contribution"]
        np.testing.assert_allclose(found, value, atol=1e-12)
    assert [parts["price"][k] for k in ("first", "second")] == [row["price"].item() for row in rows]
    shown = run(f"explain {data} -m model --top 2").out
    assert re.search(r"column +contribution +rank 1 +rank 2", shown)
    assert len(shown.rstrip().splitlines()) == 7
    for words, message in (
        ("-m model --query none", "there is no query 'none'"),
        ("-m model --ranks 1,1000", "two places from 1 to"),
        ("-m plain", "explain is for models of fit --auto"),
    ):
        assert message in run(f"explain {data} {words}", code=2).err
    assert "difference" in run("explain train.dat -m nameless").out


def test_update(run):
    """New queries are added to the members; those that the model knows are refused."""
    told = run("update model test.csv -o updated --json").json
    assert told["rows_added"] == len(pd.read_csv("test.csv"))
    assert told["n_queries"] == told["queries_before"] + 20
    frame = pd.read_parquet("test.parquet")
    by_hand = load_model("model")
    features = frame[list(by_hand.feature_names_in_)]
    by_hand.partial_fit(features, frame["grade"], qid=frame["query"])
    scores = load_model("updated").predict(features, qid=frame["query"])
    np.testing.assert_allclose(scores, by_hand.predict(features, qid=frame["query"]), atol=1e-9)
    assert "was added before" in run("update updated test.csv", code=2).err
    assert "cannot forget" in run("update model --forget train.csv -o updated", code=2).err
