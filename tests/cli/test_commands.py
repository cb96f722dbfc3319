"""The commands, in process: what they write and print is what the library gives."""

import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import rankrls.cli._files
from rankrls import RankRLS, RankRLSCV, RankSVM
from rankrls.datasets import dump_letor, make_ranking
from rankrls.io import load_model, save_model
from rankrls.metrics import average_precision, ndcg, pairwise_error, reciprocal_rank
from rankrls.preprocessing import QueryScaler

#: A ranker of the features as they are, with a given alpha.
PLAIN = ("--alpha", "1", "--scale", "none")


@pytest.fixture(scope="module")
def data():
    made = make_ranking(n_queries=40, n_docs=(3, 15), n_features=6, random_state=0)
    return made.data, made.target, made.qid


@pytest.fixture(scope="module")
def split(data):
    return data[2] < 28


@pytest.fixture(scope="module")
def folder(data, split, tmp_path_factory):
    """The same rows in every format, and a model."""
    folder = tmp_path_factory.mktemp("cli")
    X, y, qid = data
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(6)])
    frame.insert(0, "qid", qid)
    frame.insert(3, "label", y)
    for name, rows in (("train", split), ("test", ~split)):
        dump_letor(X[rows], y[rows], folder / f"{name}.dat", qid=qid[rows])
        dump_letor(X[rows], y[rows], folder / f"{name}.dat.gz", qid=qid[rows])
        frame[rows].to_csv(folder / f"{name}.csv", index=False)
        frame[rows].to_parquet(folder / f"{name}.parquet")
    save_model(RankRLS().fit(X[split], y[split], qid=qid[split]), folder / "model")
    return folder


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)


def scores_of(text):
    return np.array([float(line) for line in text.splitlines()])


@pytest.mark.parametrize("kind", ["dat", "dat.gz", "csv", "parquet"])
@pytest.mark.parametrize("how", ["--in-memory", "--stream"])
def test_fit_of_any_file_is_fit_of_its_rows(run, folder, data, split, kind, how):
    X, y, qid = (part[split] for part in data)
    words = ("--alpha", "0.3", "--scale", "none", "--cost", "unit", how)
    out, err = run("fit", f"train.{kind}", "-m", "new", *words)
    assert err == ""
    assert re.search(rf"^rows +{len(X)}$", out, re.M)
    assert ("streamed" in out) == (how == "--stream")
    model = load_model(folder / "new")
    expected = RankRLS(0.3, cost="unit").fit(X, y, qid=qid)
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-9)
    named = kind in ("csv", "parquet")
    assert hasattr(model, "feature_names_in_") == named
    if named:
        assert model.feature_names_in_.tolist() == [f"f{i}" for i in range(6)]


def test_large_files_are_streamed_and_small_ones_are_not(run, monkeypatch):
    fit = "fit train.dat -m new --json"
    assert run(fit).json["streamed"] is False
    monkeypatch.setattr(rankrls.cli._files, "LARGE", 1000)
    for words, how in (("", " with alpha 1, not cross-validated"), ("--alpha 2", "")):
        told = run(f"{fit} {words}")
        assert told.json["streamed"] is True
        large = f"rankrls: train.dat is large: fitted batch by batch{how}"
        assert told.err == f"{large} (--in-memory for all at once)\n"
    for words in ("alpha auto", "kernel rbf", "loss hinge", "cv 3", "in-memory", "solver dual"):
        assert run(f"{fit} --{words}").json["streamed"] is False


def test_alpha_auto(run, folder, data, split):
    X, y, qid = (part[split] for part in data)
    words = "fit train.dat -m new --alphas 0.01:10000:7 --query-weighting size --scale none --json"
    about = run(words).json
    assert about["scale"] == "none"
    assert run(f"{words} --alpha auto").json["alpha"] == about["alpha"]
    grid = np.geomspace(0.01, 10000, 7)
    expected = RankRLSCV(grid, query_weighting="size", random_state=0).fit(X, y, qid=qid)
    assert about["alpha"] == pytest.approx(expected.alpha_)
    assert about["cv_score"] == pytest.approx(expected.best_score_)
    np.testing.assert_allclose(load_model(folder / "new").coef_, expected.coef_)


def test_hinge_loss_and_the_c_of_svmrank(run, folder, data, split):
    X, y, qid = (part[split] for part in data)
    about = run("fit train.dat -m new --loss hinge -c 3 --scale none --json").json
    assert about["alpha"] == pytest.approx(28 / 6)  # queries / (2 C)
    expected = RankSVM(28 / 6, random_state=0).fit(X, y, qid=qid)
    np.testing.assert_allclose(load_model(folder / "new").coef_, expected.coef_, rtol=1e-6)


@pytest.mark.parametrize("how", ["--in-memory", "--stream"])
def test_scaling_within_queries(run, folder, data, split, how, monkeypatch):
    X, y, qid = data
    train, test = split, ~split
    run("fit", "train.dat", "-m", "new", "--alpha", "1", "--scale", "query-standard", how)
    scaled = QueryScaler("standard").fit_transform(X, qid=qid)
    expected = RankRLS().fit(scaled[train], y[train], qid=qid[train]).predict(scaled[test])
    np.testing.assert_allclose(scores_of(run("predict test.dat -m new")[0]), expected)
    monkeypatch.setattr(rankrls.cli._files, "LARGE", 1)
    monkeypatch.setattr(rankrls.cli._files, "BATCH", 7)  # queries stay whole
    np.testing.assert_allclose(scores_of(run("predict test.dat -m new")[0]), expected)
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    _, err = run("predict", "-", "-m", "new", stdin=b"1 1:2\n", code=2)
    assert "stdin: the lines have no query ids" in err
    run("fit train.dat -m new --alpha 1 --scale query-standard --one-ranking")  # fmt: skip
    whole = QueryScaler("standard").fit_transform(X[test])
    expected = load_model(folder / "new").steps[-1][1].predict(whole)
    out, _ = run("predict test.dat -m new --one-ranking")
    np.testing.assert_allclose(scores_of(out), expected)


def test_sparse_rows_stay_sparse(run, folder, tmp_path):
    rng = np.random.default_rng(0)
    X = sparse.random_array((60, 40), density=0.05, rng=rng, format="csr")
    y, qid = rng.random(60), np.arange(60) // 6
    dump_letor(X, y, tmp_path / "sparse.dat", qid=qid)
    run("fit", tmp_path / "sparse.dat", "-m", "new", "--alpha", "1")
    scaled = StandardScaler(with_mean=False).fit_transform(X)
    expected = RankRLS().fit(scaled, y, qid=qid).predict(scaled)
    out, _ = run("predict", tmp_path / "sparse.dat", "-m", "new")
    np.testing.assert_allclose(scores_of(out), expected, atol=1e-12)
    _, err = run("fit", tmp_path / "sparse.dat", "-m", "x", "--scale", "query-minmax", code=2)
    assert "would fill in all zeros of sparse data: use maxabs" in err
    # A dense model takes a file that is read as a sparse one.
    run("fit train.dat -m new --scale standard")
    out, _ = run("predict", "-", "-m", "new", stdin=b"0 qid:1 2:1.5\n0 qid:1\n")
    model = load_model(folder / "new")
    rows = np.zeros((2, 6))
    rows[0, 1] = 1.5
    np.testing.assert_allclose(scores_of(out), model.predict(rows))


def test_columns_weights_and_one_ranking(run, folder, data, split, tmp_path):
    X, y, qid = (part[split] for part in data)
    weight = np.arange(len(y)) % 3 + 1.0
    frame = pd.DataFrame(X[:, :3], columns=["one", "two", "three"])
    frame["session"], frame["stars"], frame["w"], frame["url"] = qid, y, weight, "http://x"
    frame.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "names.txt").write_text("three\none\n\n")
    columns = ("--label", "stars", "--qid-column", "session", "--weight", "w")
    words = ("fit", tmp_path / "t.csv", "-m", "new", *columns, *PLAIN)
    for features in ("three,one", f"@{tmp_path / 'names.txt'}"):
        run(*words, "--features", features)
        model = load_model(folder / "new")
        expected = RankRLS().fit(X[:, [2, 0]], y, qid=qid, sample_weight=weight)
        np.testing.assert_allclose(model.coef_, expected.coef_)
        assert model.feature_names_in_.tolist() == ["three", "one"]
    _, err = run(*words, code=2)
    assert "t.csv:2: column 'url' is 'http://x', not a finite number; drop it if" in err
    assert "(drop='url', --drop 'url')" in err
    assert err.endswith("or use AutoRanker, which takes text (text='auto', rankrls fit --auto)\n")
    run("fit", "train.dat", "-m", "new", "--one-ranking", *PLAIN)
    expected = RankRLS().fit(X, y)
    np.testing.assert_allclose(load_model(folder / "new").coef_, expected.coef_)


@pytest.mark.parametrize("kind", ["dat", "dat.gz", "csv", "parquet"])
def test_predictions(run, folder, data, split, kind, monkeypatch):
    X = data[0][~split]
    expected = load_model(folder / "model").predict(X)
    run("predict", f"test.{kind}", "-m", "model", "-o", "scores.txt")
    np.testing.assert_array_equal(scores_of((folder / "scores.txt").read_text()), expected)
    if kind != "parquet":
        content = (folder / f"test.{kind}").read_bytes()
        out, _ = run("predict - -m model", stdin=content)
        np.testing.assert_array_equal(scores_of(out), expected)
    monkeypatch.setattr(rankrls.cli._files, "LARGE", 1)
    monkeypatch.setattr(rankrls.cli._files, "BATCH", 10)
    out, _ = run("predict", f"test.{kind}", "-m", "model")
    np.testing.assert_allclose(scores_of(out), expected, rtol=1e-12)


def test_columns_are_found_by_name_in_any_order_without_labels(run, folder, data, split, tmp_path):
    run("fit", "train.csv", "-m", "named", *PLAIN)
    frame = pd.read_csv(folder / "test.csv").drop(columns=["label", "qid"])
    frame["more"] = "text"
    frame[["f4", "more", "f0", "f5", "f1", "f2", "f3"]].to_csv(tmp_path / "t.csv", index=False)
    out, err = run("predict", tmp_path / "t.csv", "-m", "named")
    assert err == ""
    expected = load_model(folder / "model").predict(data[0][~split])
    np.testing.assert_allclose(scores_of(out), expected, rtol=1e-9)
    _, err = run("predict", "-", "-m", "named", stdin=b"f0,f1\n1,2\n", code=2)
    assert err == "rankrls: error: stdin: no column 'f2' for features; the " \
                  "columns are 'f0', 'f1'\n"  # fmt: skip
    out, _ = run("predict test.dat -m named")  # LETOR text: by position
    np.testing.assert_allclose(scores_of(out), expected, rtol=1e-9)


def test_features_that_the_model_lacks(run, folder):
    model = load_model(folder / "model")
    out, err = run("predict", "-", "-m", "model", stdin=b"1 qid:1 1:2 9:5\n0 qid:1 3:1\n")
    rows = np.zeros((2, 6))
    rows[0, 0], rows[1, 2] = 2, 1
    np.testing.assert_array_equal(scores_of(out), model.predict(rows))
    assert err == (
        "rankrls: warning: stdin:1: feature 9 is beyond the first 6; such features are left out\n"
    )
    run("fit train.dat -m rbf --kernel rbf")
    _, err = run("predict", "-", "-m", "rbf", stdin=b"1 qid:1 1:2 9:5\n", code=2)
    assert "stdin:1: feature id in '9:5' is too large" in err
    _, err = run("predict", "-", "-m", "model", stdin=b"a,b\n1,2\n", code=2)
    assert "the rows have 2 features, and the model was fitted to 6" in err


def test_several_outputs_are_columns(run, folder, data):
    X, y, qid = data
    save_model(RankRLS().fit(X, np.column_stack([y, -y]), qid=qid), folder / "two")
    out, _ = run("predict test.dat -m two")
    table = np.array([list(map(float, line.split("\t"))) for line in out.splitlines()])
    np.testing.assert_allclose(table[:, 0], -table[:, 1])
    _, err = run("evaluate test.dat -m two", code=2)
    assert "several outputs" in err


def test_evaluation(run, folder, data, split, monkeypatch):
    X, y, qid = (part[~split] for part in data)
    score = load_model(folder / "model").predict(X)
    found = run("evaluate test.dat -m model --json").json
    assert found["pairwise_error"] == pytest.approx(pairwise_error(y, score, qid=qid))
    overall = pairwise_error(y, score, qid=qid, average="pair")
    assert found["pairwise_error_all_pairs"] == pytest.approx(overall)
    assert found["ndcg@10"] == pytest.approx(ndcg(y, score, qid=qid, k=10))
    assert found["map"] == pytest.approx(average_precision(y, score, qid=qid))
    assert found["mrr"] == pytest.approx(reciprocal_rank(y, score, qid=qid))
    better = (y[:, None] > y) & (qid[:, None] == qid)
    assert found["n_pairs"] == better.sum()
    assert found["swapped_pairs"] == (better & (score[:, None] <= score)).sum()
    assert found["n_rows"] == len(y)
    assert found["n_queries"] == 12
    assert all(isinstance(value, float | int) for value in found.values())
    assert found["ndcg@10_low"] < found["ndcg@10"] < found["ndcg@10_high"]
    monkeypatch.setattr(rankrls.cli._files, "LARGE", 1)
    monkeypatch.setattr(rankrls.cli._files, "BATCH", 10)
    assert run("evaluate test.dat -m model --json").json == found
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    out, _ = run("evaluate test.csv -m model")
    ends = (found[f"pairwise_error{end}"] for end in ("", "_low", "_high"))
    assert re.search(r"^pairwise error +{:.4g}, {:.4g} to {:.4g}$".format(*ends), out, re.M)


def test_evaluation_of_scores_and_ties(run, folder, data, split, tmp_path):
    X, y, qid = (part[~split] for part in data)
    score = np.round(load_model(folder / "model").predict(X))
    (tmp_path / "scores.txt").write_text("\n".join(map(str, score)))
    found = run("evaluate", "test.dat", "--scores", tmp_path / "scores.txt", "--json",
                "--metrics", "ndcg@3", "--undefined", "skip").json  # fmt: skip
    assert found["pairwise_error"] == pytest.approx(pairwise_error(y, score, qid=qid))
    assert found["ndcg@3"] == pytest.approx(ndcg(y, score, qid=qid, k=3, undefined="skip"))
    better = (y[:, None] > y) & (qid[:, None] == qid)
    assert found["swapped_pairs"] == (better & (score[:, None] <= score)).sum()
    assert found["tied_pairs"] == (better & (score[:, None] == score)).sum()


def test_evaluation_by_query(run, folder, data, split):
    X, y, qid = (part[~split] for part in data)
    score = load_model(folder / "model").predict(X)
    queries = run("evaluate test.dat -m model --per-query --json").json["queries"]
    assert [query["qid"] for query in queries] == list(dict.fromkeys(qid.tolist()))
    expected = pairwise_error(y, score, qid=qid, average=None)
    found = [np.nan if q["pairwise_error"] is None else q["pairwise_error"] for q in queries]
    np.testing.assert_allclose(found, expected)
    out, _ = run("evaluate test.dat -m model --per-query")
    head, *lines = out.splitlines()
    assert head.split() == ["qid", "pairwise_error", "rows", "pairs", "swapped_pairs", "ndcg@10",
                            "map", "mrr", "precision@10"]  # fmt: skip
    assert [line.split()[0] for line in lines] == [str(query["qid"]) for query in queries]


def test_queries_are_told_in_the_order_of_the_file(run):
    rows = b"1 qid:b 1:1\n0 qid:b 1:2\n1 qid:a 1:3\n0 qid:a 1:2\n0 qid:b 1:5\n"
    out, _ = run("evaluate - -m model --per-query", stdin=rows)
    assert [line.split()[:4:2] for line in out.splitlines()[1:]] == [["b", "3"], ["a", "2"]]


def test_negative_labels_have_no_gain(run):
    rows = b"-1 qid:1 1:1\n0 qid:1 1:2\n"
    told = run("evaluate - -m model --json", stdin=rows)
    assert told.json["ndcg@10"] is None
    assert "NDCG is left out" in told.err


def test_cross_validation(run, folder, data, split):
    X, y, qid = (part[split] for part in data)
    words = ("cv", "train.dat", "--alphas", "0.1,1,100", "--scoring", "ndcg@10", "--cv", "4",
             "--scale", "none")  # fmt: skip
    found = run(*words, "--json", "--random-state", "5").json
    expected = RankRLSCV([0.1, 1, 100], scoring="ndcg@10", cv=4, random_state=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the edge of the grid may be best
        expected.fit(X, y, qid=qid)
    np.testing.assert_allclose(found["scores"], expected.cv_results_["mean_score"])
    assert found["best_alpha"] == expected.alpha_
    out, _ = run(*words, "--random-state", "5", "--plot", "path.svg")
    assert re.search(rf"^ *{expected.alpha_:g} .*\*$", out, re.M)
    assert b"<svg" in (folder / "path.svg").read_bytes()
    found = run("cv train.csv --alphas 0.01:100:5 --scale query-minmax --json").json
    np.testing.assert_allclose(found["alphas"], [0.01, 0.1, 1, 10, 100])
    scaled = QueryScaler().fit_transform(X, qid=qid)
    scores = RankRLSCV(found["alphas"]).fit(scaled, y, qid=qid).cv_results_["mean_score"]
    np.testing.assert_allclose(found["scores"], scores)


def test_exports(run, folder):
    run("fit", "train.csv", "-m", "named", *PLAIN)
    body = run("export -m named --to elasticsearch --name shop").json["model"]
    assert body["name"] == "shop"
    weights = json.loads(body["model"]["definition"])
    model = load_model(folder / "named")
    np.testing.assert_allclose([weights[f"f{i}"] for i in range(6)], model.coef_)
    names = "--feature-names", "a,b,c,d,e,f"
    out, err = run("export", "-m", "model", "--to", "solr", *names, "-o", "solr.json")
    assert (out, err) == ("", "rankrls: solr.json written\n")
    body = json.loads((folder / "solr.json").read_text())
    assert [feature["name"] for feature in body["features"]] == list("abcdef")
    out, _ = run("export -m model --to svmrank")
    assert out.startswith("SVM-light Version")
    _, err = run("export -m model --to solr", code=2)
    assert "does not know the names of its 6 features: give them by --feature-names" in err
    _, err = run("export -m model --to svmrank --store x", code=2)
    assert "--store is not for --to svmrank" in err


def test_export_of_onnx(run, folder):
    onnx = pytest.importorskip("onnx")
    run("export -m model --to onnx -o m.onnx")
    onnx.checker.check_model(onnx.load(folder / "m.onnx"))


def test_report_of_two_queries(run, folder):
    lines = [f"{i % 3} qid:{1 + i // 6} 1:{i % 3 + 0.1 * i:.2f} 2:{i * i % 7}" for i in range(12)]
    (folder / "two.dat").write_text("\n".join(lines) + "\n")
    out, _ = run("report two.dat -o two.html")
    assert re.search(r"^pairwise error +[\d.]+$", out, re.M)  # too few queries for an interval
    assert "nan" not in out


def test_demo(run, tmp_path):
    out, err = run("demo", "-o", tmp_path / "demo")
    assert err == ""
    gains = re.search(r"^ndcg@10 over 69 queries: a ([\d.]+), b ([\d.]+)$", out, re.M).groups()
    assert float(gains[0]) > float(gains[1]) + 0.03
    page = tmp_path / "demo" / "report.html"
    assert page.exists()
    assert str(page) in out.splitlines()[-1]
    for line in re.findall(r"^\$ rankrls (.*)$", out, re.M):
        assert line.split()[0] in ("cv", "fit", "evaluate", "report")
    curve = [float(score) for score in re.findall(r"^ *1(?:0*|e[+]0[456]) +(0[.]\d+) ", out, re.M)]
    assert len(curve) == 7
    assert max(curve) - max(curve[0], curve[-1]) > 0.01  # alpha matters, and neither end is best


def test_a_model_of_the_command_line_is_used_in_python(run, folder, data, split):
    """A pipeline whose ranker asks for qid, with scikit-learn's routing."""
    X, y, qid = (part[~split] for part in data)
    run("fit train.dat -m new --alpha 1")
    pipeline = load_model(folder / "new")
    expected = make_pipeline(StandardScaler(), RankRLS())
    assert [type(step) for _, step in pipeline.steps] == [type(s) for _, s in expected.steps]
    with config_context(enable_metadata_routing=True):
        accuracy = pipeline.score(X, y, qid=qid)
    found = run("evaluate test.dat -m new --json").json
    assert accuracy == pytest.approx(found["pairwise_accuracy"])
