"""Commands agree with one another and with the library, and the report reproduces itself."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rankrls import RankRLS, RankRLSCV
from rankrls.datasets import dump_letor, make_ranking
from rankrls.io import load_model
from rankrls.metrics import ndcg, pairwise_error
from rankrls.model_selection import leave_query_out_predict
from rankrls.report import write_report
from report_cases import values_of_code


@pytest.fixture(scope="module")
def table():
    """Features of very different scales, weights, and queries without a relevant row."""
    made = make_ranking(n_queries=50, n_docs=(3, 9), n_features=4, random_state=3)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(made.data * [1, 1e4, 1e-3, 1], columns=["a", "b", "c", "d"])
    frame["qid"], frame["label"] = made.qid, made.target
    frame.loc[frame.qid % 5 == 0, "label"] = 0
    frame["w"] = rng.integers(1, 8, len(frame)).astype(float)
    return frame


@pytest.fixture(autouse=True)
def files(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train = table.qid < 35
    for name, rows in (("train", train), ("test", ~train)):
        table[rows].to_csv(f"{name}.csv", index=False)
    gaps = table[train].copy()
    gaps.loc[::6, "d"] = np.nan
    gaps.to_csv("gaps.csv", index=False)


OPTIONS = [
    "",
    "--scale none",
    "--scale query-minmax",
    "--scale minmax --cost unit",
    "--weight w",
    "--kernel rbf --alphas 0.1,1,10,1000",
    "--weight w --one-ranking",
]


@pytest.mark.parametrize("options", OPTIONS)
def test_fit_cv_and_report_choose_the_same_alpha(run, options):
    drop = "" if "--weight" in options else "--drop w"
    fitted = run(f"fit train.csv -m model {drop} {options} --json").json
    searched = run(f"cv train.csv {drop} {options} --json").json
    page = run(f"report train.csv -o page.html {drop} {options} --json").json
    assert fitted["alpha"] == searched["best_alpha"] == page["alpha"]
    assert fitted["cv_score"] == searched["best_score"]
    assert fitted["scale"] == searched["scale"] == page["scale"]


@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
@pytest.mark.parametrize("options", [*OPTIONS, "--missing mean", "--missing zero --scale none"])
@pytest.mark.parametrize("test", ["", "--test test.csv"])
def test_the_report_reproduces_its_numbers(run, options, test):
    file = "gaps.csv" if "--missing" in options else "train.csv"
    drop = "" if "--weight" in options else "--drop w"
    found = run(f"report {file} -o page.html {drop} {options} {test} --json").json
    values = values_of_code(Path("page.html").read_text(), space := {})
    if "--one-ranking" not in options:
        for name in ("pairwise_error", "ndcg@10"):
            assert any(value == pytest.approx(found[name], abs=1e-9) for value in values)
    assert getattr(space["model"], "alpha", None) == found["alpha"]
    if test:
        scores = space["model"].predict(space["X_test"])
        error = pairwise_error(space["y_test"], scores, qid=space.get("qid_test"))
        assert error == pytest.approx(found["pairwise_error"])


def test_the_model_of_a_report_takes_raw_features(table, tmp_path):
    X, y, qid = table[["a", "b", "c", "d"]], table.label, table.qid
    made = write_report(tmp_path / "page.html", X, y, qid, scaler=StandardScaler(),
                        sample_weight=table.w)  # fmt: skip
    scaled = StandardScaler().fit_transform(X)
    expected = RankRLSCV().fit(scaled, y, qid=qid, sample_weight=table.w)
    assert made.alpha == expected.alpha_
    np.testing.assert_allclose(made.model.predict(X.to_numpy()), expected.predict(scaled))
    assert not [finding for finding in made.findings if finding.code == "unequal-scales"]
    plain = write_report(tmp_path / "page.html", X, y, qid)
    assert [finding for finding in plain.findings if finding.code == "unequal-scales"]
    text = (tmp_path / "page.html").read_text()
    assert text.count("features have very different scales</h3>") == 1
    assert "A warning while fitting" not in text


def test_ndcg_is_one_number_everywhere(run, table):
    """Queries without a relevant row are left out by all of them."""
    run("fit train.csv -m model --drop w")
    evaluated = run("evaluate test.csv -m model --json").json
    page = run("report train.csv --test test.csv --drop w -o page.html --json").json
    unseen = table[table.qid >= 35]
    X, y, qid = unseen[["a", "b", "c", "d"]], unseen.label, unseen.qid
    model = load_model("model")
    value = ndcg(y, model.predict(X), qid=qid, k=10)
    assert (y.groupby(qid).max() == 0).any()
    assert evaluated["ndcg@10"] == pytest.approx(value, rel=1e-12)
    assert page["ndcg@10"] == pytest.approx(value, rel=1e-12)
    # Held out: the score of RankRLSCV, of cv and of the report.
    rows = table[table.qid < 35]
    scaled = StandardScaler().fit_transform(rows[["a", "b", "c", "d"]])
    search = RankRLSCV([3.0], scoring="ndcg@10").fit(scaled, rows.label, qid=rows.qid)
    held = leave_query_out_predict(RankRLS(3.0), scaled, rows.label, qid=rows.qid)
    assert search.best_score_ == pytest.approx(ndcg(rows.label, held, qid=rows.qid, k=10))
    words = "train.csv --drop w --alphas 3 --json"
    assert run(f"cv {words} --scoring ndcg@10").json["best_score"] == pytest.approx(
        search.best_score_
    )
    page = run(f"report {words} -o page.html").json
    assert page["ndcg@10"] == pytest.approx(search.best_score_)


def test_the_default_model_scales_and_does_not_see_scales(run, table):
    run("fit train.csv -m model --drop w")
    table.assign(b=table.b / 1e8)[table.qid < 35].to_csv("other.csv", index=False)
    run("fit other.csv -m other --drop w")
    one, other = load_model("model"), load_model("other")
    assert [name for name, _ in one.steps] == ["scale", "rank"]
    np.testing.assert_allclose(one.steps[-1][1].coef_, other.steps[-1][1].coef_, rtol=1e-6)
    err = run("fit train.csv -m plain --drop w --scale none").err
    assert "(column 'c') to " in err
    assert "leave out --scale none" in err
    assert err.count("\n") == 1


def test_large_sparse_rows_choose_alpha_by_some_queries(run, monkeypatch):
    monkeypatch.setattr("rankrls.cli._training.MAX_SPARSE", 50)
    rng = np.random.default_rng(0)
    X = sparse.random_array((200, 300), density=0.02, rng=rng, format="csr")
    dump_letor(X, np.asarray(X[:, :20].sum(axis=1)).ravel(), "sparse.dat", qid=np.arange(200) // 10)
    out = run("fit sparse.dat -m model").out
    assert "validation" in out
    assert run("fit sparse.dat -m model --json").json["cv"] == "validation"
    assert "cv" not in run("fit sparse.dat -m model --alpha auto --json").json


def test_missing_values_are_filled_in_by_the_model(run, table):
    err = run("fit gaps.csv -m model --drop w", code=2).err
    assert "column 'd' is empty" in err
    assert "(rankrls fit --missing mean or --missing zero does both)" in err
    frame = pd.read_csv("gaps.csv")
    X, mean = frame[["a", "b", "c", "d"]], frame.d.mean()
    for missing, value in (("mean", mean), ("zero", 0.0)):
        run(f"fit gaps.csv -m model --drop w --missing {missing} --alpha 1")
        filled = X.fillna(value)
        expected = make_pipeline(StandardScaler(), RankRLS(1.0))
        expected.fit(filled.to_numpy(), frame.label, rankrls__qid=frame.qid)
        out = run("predict gaps.csv -m model").out
        np.testing.assert_allclose(
            np.array(out.split(), float), expected.predict(filled.to_numpy()), rtol=1e-9
        )
        evaluated = run("evaluate gaps.csv -m model --json").json
        error = pairwise_error(frame.label, expected.predict(filled.to_numpy()), qid=frame.qid)
        assert evaluated["pairwise_error"] == pytest.approx(error)
    for command in ("cv gaps.csv", "report gaps.csv -o page.html"):
        run(f"{command} --drop w --missing mean")
        run(f"{command} --drop w", code=2)
    run("fit train.csv -m plain --drop w")
    assert "column 'd' is empty" in run("predict gaps.csv -m plain", code=2).err
    run("fit gaps.csv -m model --drop w --missing zero --alpha 1 --stream")
    err = run("fit gaps.csv -m model --drop w --missing mean --alpha 1 --stream", code=2).err
    assert "new rows would change the values filled in before" in err


def test_missing_values_of_letor_text(run):
    rows = [
        f"{i % 3} qid:{i // 6} 1:{i * 7 % 5} 2:{'NULL' if i % 4 == 0 else i % 7}" for i in range(60)
    ]
    Path("gaps.dat").write_text("\n".join(rows))
    err = run("fit gaps.dat -m model", code=2).err
    assert "gaps.dat:1: value in '2:NULL' is not a finite number; to keep missing values" in err
    run("fit gaps.dat -m model --missing mean")
    out = run("predict gaps.dat -m model").out
    assert np.isfinite(np.array(out.split(), float)).all()


@pytest.mark.parametrize("command", ["fit train.csv -m model", "cv train.csv",
                                     "report train.csv -o page.html",
                                     "fit train.csv -m model --scale none --alpha 1",
                                     "fit train.csv -m model --stream --alpha 1"])  # fmt: skip
def test_columns_like_ids_are_a_warning_with_the_option(run, table, command):
    rng = np.random.default_rng(0)
    ids = table.drop(columns=["w", "b", "c"]).assign(doc_id=rng.permutation(len(table)) + 10_000)
    ids.to_csv("train.csv", index=False)
    err = run(command).err
    assert err.count("looks like an id") == 1
    assert "column 'doc_id' of X looks like an id or a position" in err
    assert "leave it out by --drop doc_id\n" in err
    err = run(f"{command} --drop doc_id").err
    assert "looks like an id" not in err


@pytest.mark.parametrize("words", ["--loss hinge", "--solver dual", "--kernel rbf", "--basis 5"])
def test_options_that_need_all_rows_name_the_stream(run, small, words):
    err = run(f"fit train.dat -m new --stream {words}", code=2).err
    assert err.startswith("rankrls: error: --stream: ")
    assert "--in-memory" in err
