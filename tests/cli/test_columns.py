"""The command line: columns that a model was fitted with, updates at the same time, splits."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rankrls.io import load_model, save_model


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table with a column of queries called session, and a misleading one called qid."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    session = np.repeat(np.arange(60), 8)
    x = rng.normal(size=(480, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    grade = np.digitize(x @ [1.0, 0.5, 0.0] + rng.normal(size=480), [-1, 0.5, 2])
    frame = frame.assign(session=session, qid=rng.integers(5, size=480), grade=grade,
                         doc=[f"d{i}" for i in range(480)])  # fmt: skip
    frame.to_csv("all.csv", index=False)
    frame[session < 40].to_csv("train.csv", index=False)
    frame[session >= 40].to_csv("test.csv", index=False)
    return frame


FIT = "fit train.csv -m model --qid-column session --label grade --features a,b,c"


def test_the_query_column_of_fit_is_used_by_the_others(table, run):
    run(FIT)
    found = run("evaluate test.csv -m model --json").json
    assert found["n_queries"] == 20
    named = "--qid-column session --label grade"
    assert run(f"evaluate test.csv -m model --json {named}").json == found
    other = run("evaluate test.csv -m model --json --qid-column qid").json
    assert other["n_queries"] == 5
    lists = run("predict test.csv -m model --format csv --doc-id doc --top 1").out
    assert len(lists.splitlines()) == 21
    run(f"{FIT.replace('model', 'other')} --alpha 1e5")
    compared = run("compare model other --data test.csv --json").json
    assert compared["n_queries"] <= 20
    table.drop(columns="session").to_csv("bare.csv", index=False)
    error = run("evaluate bare.csv -m model", code=2).err
    assert "'session'" in error
    about = run("info model --json").json
    steps = about["steps"].values() if "steps" in about else [about]
    columns = next(step["columns"] for step in steps if "columns" in step)
    assert (columns["qid"], columns["label"]) == ("session", "grade")
    assert "fitted to train.csv (320 rows)" in run("info model").out


def test_features_that_are_matched_by_their_order_are_told(table, run, tmp_path):
    run(FIT)
    (tmp_path / "rows.txt").write_text("1 qid:1 1:0.5 2:1 3:2\n0 qid:1 1:1 2:0 3:1\n")
    assert "names of its features" in run("predict rows.txt -m model").err
    run("fit rows.txt -m plain --alpha 1 --scale none")
    others = " ".join(f"--drop {name}" for name in ("grade", "qid", "session", "doc"))
    assert "no names of features" in run(f"predict test.csv -m plain {others}").err


def test_rows_without_a_label(table, run):
    frame = pd.read_csv("train.csv").astype({"grade": float})
    frame.loc[::10, "grade"] = np.nan
    frame.to_csv("holes.csv", index=False)
    frame.to_parquet("holes.parquet")
    frame.to_csv("words.csv", index=False, na_rep="N/A")
    for file in ("words.csv", "holes.parquet", "holes.csv"):
        fit = FIT.replace("train.csv", file)
        err = run(fit, code=2).err
        assert "grade" in err
        assert "(here: --unlabelled drop)" in err
    shown = run(f"{fit} --unlabelled drop --json")
    assert shown.json["n_rows"] == 288
    assert "32" in shown.err
    frame.dropna().to_csv("whole.csv", index=False)
    run(FIT.replace("train.csv", "whole.csv").replace("model", "other"))
    np.testing.assert_allclose(load_model("model")[-1].coef_, load_model("other")[-1].coef_)
    refused = run("predict test.csv -m model --unlabelled drop", code=2).err
    assert "No such option" in refused


def test_ids_that_come_twice(table, run):
    run(FIT)
    twice = pd.read_csv("test.csv")
    twice["doc"] = twice["doc"].where(twice.index % 8 != 1, twice["doc"].shift())
    twice.to_csv("twice.csv", index=False)
    lists = "predict twice.csv -m model --doc-id doc --format csv"
    shown = run(lists)
    assert "repeat the id" in shown.err
    assert len(shown.out.splitlines()) == 161
    once = run(f"{lists} --duplicates first")
    assert len(once.out.splitlines()) == 141
    assert not once.err
    assert "repeat the id" in run(f"{lists} --duplicates error", code=2).err
    err = run(lists.replace("csv", "trec").replace("twice.trec", "twice.csv"), code=2).err
    assert "comes twice" in err
    assert "(here: --duplicates first)" in err


def test_a_model_that_is_not_better_than_a_column(table, run):
    frame = pd.read_csv("train.csv")
    frame["best"] = frame["grade"] + 1e-3 * np.arange(len(frame))
    frame[["session", "grade", "best", "c"]].to_csv("leak.csv", index=False)
    told = run("fit leak.csv -m model --qid-column session --label grade --alpha auto").err
    assert "sorting by 'best' alone, largest first" in told


def test_a_split_leaves_rows_as_they_are(run, tmp_path, monkeypatch):
    """Quoted delimiters and line ends do not count."""
    monkeypatch.chdir(tmp_path)
    head, rows = 'qid;label;"x,y,z"', ['1;1;"2"', "1;0;1", '"2";1;"a\nb"', "2;0;1"]
    Path("all.csv").write_text("\n".join([head, *rows]))
    run("split all.csv train.csv test.csv --test 0.5")
    parts = sorted(Path(name).read_text() for name in ("train.csv", "test.csv"))
    halves = ("\n".join([head, *half, ""]) for half in (rows[:2], rows[2:]))
    assert parts == sorted(halves)


def test_a_split_by_query(table, run, tmp_path):
    out = run("split all.csv a.csv b.csv --qid-column session --test 0.25").out
    assert "15 queries" in out
    a, b = pd.read_csv("a.csv"), pd.read_csv("b.csv")
    assert not set(a.session) & set(b.session)
    both = pd.concat([a, b]).sort_values("doc").reset_index(drop=True)
    pd.testing.assert_frame_equal(both, table.sort_values("doc").reset_index(drop=True),
                                  check_dtype=False)  # fmt: skip
    table.to_parquet("all.parquet")
    run("split all.parquet a.parquet b.parquet --qid-column session")
    assert len(pd.read_parquet("a.parquet")) + len(pd.read_parquet("b.parquet")) == 480
    (tmp_path / "rows.txt").write_text("".join(f"1 qid:{i // 2} 1:{i}\n" for i in range(10)))
    run("split rows.txt a.txt b.txt")
    parts = Path("a.txt").read_text(), Path("b.txt").read_text()
    assert len(parts[1].splitlines()) == 2
    run("split - c.txt d.txt", stdin=Path("rows.txt").read_bytes())
    assert (Path("c.txt").read_text(), Path("d.txt").read_text()) == parts
    for file, a in (("all.csv", "a.csv"), ("all.parquet", "a.parquet")):
        share = "--test 0.25" * (file == "all.csv")
        run(f"split - c d --qid session {share}", stdin=Path(file).read_bytes())
        assert Path("c").read_bytes() == Path(a).read_bytes()
    assert "--qid" in run("split all.csv a.csv b.csv --qid-column no", code=2).err
    assert "'x' is not a valid number" in run("split all.csv a.csv b.csv --test x", code=2).err
    Path("gap.csv").write_text("qid,label\n1,1\n,0\n2,1\n")
    assert "gap.csv: row 2 has no query id" in run("split gap.csv a.csv b.csv", code=2).err
    assert "named twice" in run("split all.csv c.csv ./c.csv --qid-column session", code=2).err


def test_updates_at_the_same_time_all_count(table, run):
    run(FIT)
    frame = pd.read_csv("test.csv")
    for k in range(4):
        frame[frame.session % 4 == k].to_csv(f"part{k}.csv", index=False)
    command = [sys.executable, "-m", "rankrls", "update", "model"]
    jobs = [subprocess.Popen([*command, f"part{k}.csv"], stdout=subprocess.PIPE) for k in range(4)]
    assert [job.wait() for job in jobs] == [0] * 4
    for job in jobs:
        job.stdout.close()
    assert load_model("model")[-1].n_queries_ == 60
    assert len(load_model("model")[-1]._source["history"]) == 5


def test_new_rows_of_another_unit_are_told(table, run, monkeypatch):
    run(FIT)
    before = load_model("model")[-1].coef_
    frame = pd.read_csv("test.csv")
    frame.assign(a=1000 * frame.a).to_csv("unit.csv", index=False)
    told = run("update model unit.csv --dry-run")
    assert "'a': the mean differs" in told.err
    assert re.search("^dry run +True$", told.out, re.M)
    np.testing.assert_array_equal(load_model("model")[-1].coef_, before)
    refused = "update model unit.csv --check error"
    assert "did the unit change" in run(refused, code=2).err
    with monkeypatch.context() as patch:  # a large file is checked by its first batch
        patch.setattr("rankrls.cli._files.LARGE", 1)
        patch.setattr("rankrls.cli._files.BATCH", 50)
        assert "did the unit change" in run(refused, code=2).err
    frame.assign(grade=3 - frame.grade).to_csv("turned.csv", index=False)
    assert "were expected" in run("update model turned.csv --dry-run").err
    first = frame[frame.session == frame.session.iloc[0]]
    first.assign(grade=3 - first.grade).to_csv("one.csv", index=False)
    for options in ("--alpha 100", "--scoring ndcg@10", "--auto --effort quick"):
        run(f"{FIT.replace('-m model', '-m other')} {options}")
        for kind, text in (("turned", "50.0% are expected by chance"), ("unit", "'a'")):
            assert text in run(f"update other {kind}.csv --dry-run").err
    assert "--dry-run writes nothing" in run("update model one.csv --dry-run --backup", code=2).err
    forged = load_model("model")
    del forged[-1].cv_results_["mean_score"]
    save_model(forged, "forged")
    assert "were expected" in run("update forged one.csv --dry-run").err
    told = run("update model test.csv --backup")
    assert not told.err
    assert "accuracy of new" in told.out
    np.testing.assert_array_equal(load_model("model.bak")[-1].coef_, before)


def test_judgements_and_rows_are_told_apart(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("battles.csv").write_text("model_a,model_b,winner\na,b,model_a\nb,a,model_a\n")
    Path("rows.csv").write_text("qid,label,x\n1,1,2\n1,0,1\n")
    for words, hint in (
        ("report battles.csv", "rankrls leaderboard"),
        ("leaderboard battles.csv --controls no", "(here: --controls)"),
        ("leaderboard rows.csv", "call them winner and loser"),
        ("fit rows.csv -m m --format parquet", "(here: without --format)"),
        ("fit rows.csv -m m --clicks label --position p", "rows.csv: no column is called item"),
    ):
        assert hint in run(words, code=2).err
