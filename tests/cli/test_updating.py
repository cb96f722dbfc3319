"""``rankrls update`` and ``fit --stream --alpha auto``: models of all rows, or an error."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rankrls import RankRLS, RankRLSCV
from rankrls.datasets import dump_letor, make_ranking
from rankrls.io import load_model, save_model
from rankrls.streaming import fit_stream

NAMES = list("abcde")


@pytest.fixture(scope="module")
def table():
    X, y, qid = make_ranking(n_queries=45, n_features=5, random_state=3, return_X_y_qid=True)
    X = X * [1.0, 10.0, 1e3, 0.01, 5.0] + [0.0, 100.0, -5e3, 3.0, 0.0]
    return pd.DataFrame(X, columns=NAMES).assign(qid=qid, label=y)


@pytest.fixture
def folder(table, tmp_path, monkeypatch):
    """Queries 0-29 are the first files, 0-9 the old ones, 30-44 the new ones."""
    monkeypatch.chdir(tmp_path)
    for name, low, high in (("all", 0, 30), ("old", 0, 10), ("new", 30, 45), ("rest", 10, 45)):
        part = table[(table.qid >= low) & (table.qid < high)]
        part.to_parquet(f"{name}.parquet")
        part.to_csv(f"{name}.csv", index=False)
        dump_letor(part[NAMES].to_numpy(), part.label, f"{name}.txt", qid=part.qid.to_numpy())
    return tmp_path


def test_columns_are_those_of_the_fit(table, tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    table = table.rename(columns={"label": "clicks", "qid": "search"})
    table = table.assign(label=rng.integers(3, size=len(table)), w=rng.uniform(0.5, 2, len(table)))
    for name, low, high in (("all", 0, 30), ("old", 0, 10), ("new", 30, 45), ("rest", 10, 45)):
        part = table[(table.search >= low) & (table.search < high)]
        part.to_csv(f"{name}.csv", index=False)
    how = "--label clicks --drop label --qid-column search --weight w --alpha 5"
    run(f"fit all.csv -m model {how}")
    run("update model new.csv --forget old.csv")
    run(f"fit rest.csv -m rest {how}")
    model, rest = load_model("model")[-1], load_model("rest")[-1]
    np.testing.assert_allclose(model.coef_, rest.coef_, rtol=1e-9)
    assert (model._source["label"], model._source["weight"]) == ("clicks", "w")


def assert_equal(run, model, file, atol=1e-7):
    """The scores of the updated model are those of a fresh one."""
    mine, theirs = (scores(run, one, file) for one in (model, "fresh"))
    assert np.allclose(mine, theirs, atol=atol * np.ptp(theirs))


def scores(run, model, file):
    return np.array(run(f"predict {file} -m {model}").out.split(), dtype=float)


@pytest.mark.parametrize("kind", ["parquet", "csv", "txt"])
@pytest.mark.parametrize("options", ["", "--scale none --alpha 3", "--scale query-standard",
                                     "--missing zero"])  # fmt: skip
@pytest.mark.filterwarnings("ignore::rankrls.exceptions.FeatureScaleWarning")
def test_is_the_fit_to_what_is_left(kind, options, folder, run):
    run(f"fit all.{kind} -m model.rankrls {options}")
    words = f"update model.rankrls new.{kind} --forget old.{kind} --json"
    about = run(words).json
    assert (about["n_queries"], about["rows_added"] > 0, about["file"]) == (
        35,
        True,
        "model.rankrls",
    )
    options = options.replace(" --alpha 3", "")
    run(f"fit rest.{kind} -m fresh --alpha {about['alpha']!r} {options}")
    assert_equal(run, "model.rankrls", f"rest.{kind}")
    told = run(f"update model.rankrls new.{kind} --forget new.{kind} --json")
    assert told.json["n_queries"] == 35


def test_another_file_and_files_one_after_the_other(folder, run):
    run("fit all.parquet -m model.rankrls --alpha 1")
    before = (folder / "model.rankrls").read_bytes()
    run("update model.rankrls new.parquet -o next.rankrls")
    assert (folder / "model.rankrls").read_bytes() == before
    run("update next.rankrls --forget old.csv")
    run("fit rest.parquet -m fresh --alpha 1")
    assert_equal(run, "next.rankrls", "rest.parquet")


def test_batches_of_a_large_file(folder, run, monkeypatch):
    run("fit all.txt -m model.rankrls --alpha 1")
    monkeypatch.setattr("rankrls.cli._files.LARGE", 1)
    monkeypatch.setattr("rankrls.cli._files.BATCH", 50)
    run("update model.rankrls new.txt --forget old.txt")
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    run("fit rest.txt -m fresh --alpha 1")
    assert_equal(run, "model.rankrls", "rest.txt")


def test_one_ranking(folder, run):
    run("fit all.parquet -m model.rankrls --one-ranking --alpha 1 --drop qid")
    assert "--one-ranking" in run("update model.rankrls new.parquet", code=2).err
    run("update model.rankrls new.parquet --one-ranking")
    run("update model.rankrls --forget all.parquet --one-ranking")
    run("fit new.parquet -m fresh --one-ranking --alpha 1 --drop qid")
    assert_equal(run, "model.rankrls", "new.parquet", 1e-6)


@pytest.mark.parametrize(
    ("fit", "words", "message"),
    [
        ("", "", "nothing to learn from"),
        ("", "all.parquet", "all.parquet: query 0 was added before"),
        ("", "--forget new.parquet", "new.parquet: query 30 was never added"),
        ("", "new.parquet --forget new.parquet", "new.parquet: query 30 was never added"),
        ("", "new.parquet --forget all.parquet", "nothing would be left"),
        ("--scale none --alpha 1", "--forget all.parquet", "nothing would be left"),
        ("", "missing.parquet", "missing.parquet"),
        ("", "new.parquet --one-ranking", "--one-ranking"),
        ("", "new.parquet -o -", "not to stdout"),
        ("--kernel rbf --scale maxabs", "new.parquet", "before a kernel"),
        ("--kernel rbf --scale none", "new.parquet", "needs a fixed basis"),
        ("--kernel rbf --basis 20 --alpha 1", "new.parquet", "before a kernel"),
        ("--solver dual", "new.parquet", "dual"),
        ("--loss hinge", "new.parquet", "RankSVM keeps no sums"),
        ("--missing mean", "new.parquet", "strategy='constant'"),
        ("--scale minmax", "new.parquet --forget old.parquet", "cannot forget rows"),
    ],
)
def test_refusals_leave_the_file_alone(fit, words, message, folder, run):
    run(f"fit all.parquet -m model.rankrls {fit}")
    before = (folder / "model.rankrls").read_bytes()
    assert message in run(f"update model.rankrls {words}", code=2).err
    assert (folder / "model.rankrls").read_bytes() == before


def test_features_that_a_model_does_not_know(table, folder, run):
    run("fit all.txt -m model.rankrls --alpha 1")
    part = table[table.qid >= 30]
    more = np.column_stack([part[NAMES], part.a])
    dump_letor(more, part.label, "more.txt", qid=part.qid.to_numpy())
    assert "more.txt" in run("update model.rankrls more.txt", code=2).err


def test_files_with_sizes_of_queries_are_refused(table, folder, run):
    """Their queries have no ids, by which a model knows them."""
    part = table[table.qid >= 30]
    dump_letor(part[NAMES].to_numpy(), part.label, "more.txt")
    (folder / "more.txt.query").write_text("\n".join(map(str, part.groupby("qid").size())))
    run("fit all.parquet -m model.rankrls --alpha 1")
    for words in ("more.txt", "--forget more.txt"):
        told = run(f"update model.rankrls {words}", code=2).err
        assert "more.txt.query has sizes of queries and no ids" in told


def test_ids_that_are_numbers_or_text(table, folder, run):
    """One id that is no number makes all ids of a file text."""
    run("fit all.csv -m model.rankrls --alpha 1")
    part = table[table.qid < 2].astype({"qid": object})
    part[part.qid == 0].assign(qid="x").to_csv("text.csv", index=False)
    mixed = pd.concat([part[part.qid == 0].assign(qid="x"), part[part.qid == 1]])
    mixed.to_csv("mixed.csv", index=False)
    assert "query 1 was added before" in run("update model.rankrls mixed.csv", code=2).err
    run("update model.rankrls text.csv")
    run("update model.rankrls --forget mixed.csv")
    rest = table[(table.qid < 30) & (table.qid != 1)]
    rest.to_csv("rest.csv", index=False)
    run("fit rest.csv -m fresh --alpha 1")
    assert_equal(run, "model.rankrls", "rest.csv")


def test_other_values_are_not_forgotten(table, folder, run):
    run("fit all.parquet -m model.rankrls")
    before = (folder / "model.rankrls").read_bytes()
    other = table[table.qid < 3].copy()
    other.loc[other.qid == 2, "c"] += 1.0
    other.to_csv("other.csv", index=False)
    err = run("update model.rankrls --forget other.csv", code=2).err
    assert "other.csv: query 2 was added with other features, scores or weights" in err
    assert (folder / "model.rankrls").read_bytes() == before


def test_weights_of_python_are_asked_for(table, folder, run):
    part = table[table.qid < 30]
    weight = 1 + part.label.to_numpy()
    model = RankRLS().fit(part[["a"]], part.label, qid=part.qid, sample_weight=weight)
    save_model(model, "model.rankrls")
    err = run("update model.rankrls new.parquet", code=2).err
    assert "fitted with weights of rows: name their column by --sample-weight" in err


@pytest.mark.parametrize("scoring", ["pairwise_r2", "ndcg@5"])
def test_alpha_is_chosen_batch_by_batch(scoring, table, folder, run, monkeypatch):
    monkeypatch.setattr("rankrls.cli._files.BATCH", 70)
    words = f"fit all.csv -m model.rankrls --stream --alpha auto --cv 4 --scoring {scoring} --json"
    about = run(words).json
    part = table[table.qid < 30]
    X, y, qid = part[NAMES].to_numpy(), part.label.to_numpy(), part.qid.to_numpy()
    model = make_pipeline(StandardScaler(), RankRLSCV(cv=4, scoring=scoring))
    fit_stream(model, [(X, y, qid)])
    assert (about["streamed"], about["n_rows"]) == (True, len(y))
    assert about["alpha"] == model[-1].alpha_
    assert np.isclose(about["cv_score"], model[-1].best_score_)
    mine, theirs = scores(run, "model.rankrls", "all.csv"), model.predict(X)
    assert np.allclose(mine, theirs, atol=1e-8 * np.ptp(theirs))
