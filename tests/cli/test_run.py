"""Bad input is one line that says what and where, exit code 2; nothing is written."""

import builtins
import json
import os
import sys
import warnings

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import rankrls.cli._output
import rankrls.cli._scoring
from rankrls import ConditionalRankRLS
from rankrls.cli import main
from rankrls.datasets import make_ranking
from rankrls.io import load_model, save_model

FILES = {
    "empty": "",
    "zero.dat": "1 qid:1 0:1\n0 qid:1 0:2\n",
    "noqid.dat": "1 1:1\n0 1:2\n",
    "ties.dat": "1 qid:1 1:1\n1 qid:1 1:2\n0 qid:2 1:5\n",
    "back.dat": "1 qid:1 1:1\n0 qid:2 1:2\n0 qid:1 1:3\n",
    "odd.csv": "qid,label,alpha for qid\n1,2,x\n",
    "two.csv": "label,y,qid,a\n1,2,3,4\n",
    "table.csv": "qid,label,a\n1,2,5\n1,1,4\n2,2,3\n",
    "half.csv": "qid,label,a\n2,1,5\n3,1,4\n3,2,2\n",
    "none.csv": "who,what\n1,2\n",
    "numbers.csv": "1,2,3\n1,3,4\n",
    "scores.txt": "1\n2\nx\n",
    "few.txt": "1\n2\n",
}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit", "Missing argument 'DATA...' (see rankrls fit --help)"),
        ("fit train.dat", "Missing option '--model' / '-m' (see rankrls fit --help)"),
        ("fti", "No such command 'fti'"),
        ("fit train.dat model2 -m x", "model2: no such file (models are named by -m"),
        ("fit nowhere.dat -m x", "nowhere.dat: No such file or directory"),
        ("fit . -m x", ".: no file in this directory ends in .parquet"),
        ("fit zero.dat -m x", "if those of this file start at 0, pass zero_based=True"),
        ("fit noqid.dat -m x", "noqid.dat: the lines have no query ids"),
        ("fit noqid.dat -m x", "pass qid=None if all rows are one ranking (here: --one-ranking)"),
        ("fit ties.dat -m x", "ties.dat: no query has a pair to learn from"),
        ("fit ties.dat -m x --stream", "all labels of a query are equal"),
        ("fit back.dat -m x --stream", "back.dat:3: query '1' comes back after another query; "
                                       "sort the rows by query, or read all of them at once"),
        ("fit odd.csv -m x", "column 'alpha for qid' is 'x', not a finite number"),
        ("fit two.csv -m x", "the column of labels; name it in target= (here: --target COLUMN)"),
        ("fit numbers.csv -m x", "numbers.csv:1: the first line has numbers where the names of "
                                 "the columns should be; pass header=False"),
        ("fit model -m x", "model: this is a zip file"),
        ("fit train.dat -m nowhere/x", "no such directory"),
        ("fit train.dat -m .", "this is a directory, not a file"),
        ("fit train.dat -m -", "a model is written to a file"),
        ("fit train.dat -m x --alpha 0", "'0' is not a number above 0, or auto"),
        ("fit train.dat -m x --kernel foo", "kernel must be"),
        ("fit train.dat -m x --kernel rbf --stream", "Use the linear kernel, or scale"),
        ("fit train.dat -m x --one-ranking --alpha auto --stream", "folds are of whole queries"),
        ("fit train.dat -m x --one-ranking --cost unit --stream", "that needs cost='magnitude'"),
        ("fit table.csv -m x --format letor", "load_ranking read CSV) (here: --format csv)"),
        ("fit half.csv table.csv -m x --stream", "table.csv:4: query '2' comes back after another"),
        ("fit train.dat -m x --loss hinge --alpha auto", "--alpha auto is for --loss squared"),
        ("fit train.dat -m x --features ,", "',' names no feature"),
        ("fit train.dat -m x --features @nofile", "nofile: No such file or directory"),
        ("predict train.dat -m train.dat", "train.dat cannot be loaded: it is not a model"),
        ("predict train.dat -m -", "the model is read from a file"),
        ("predict train.dat -m model --top ten", "'ten' is not a valid whole number"),
        ("fit train.dat -m x --kernel rbf --basis 99999999999999999999", "is not in the range"),
        ("predict train.dat -m model -o train.dat", "train.dat is an input file"),
        ("predict train.dat -m conditional", "is used in Python"),
        ("predict train.dat -m scaler", "scaler: a NoneType does not score rows of files"),
        ("evaluate train.dat", "give a model by -m, or --scores"),
        ("evaluate train.dat --scores scores.txt", "scores.txt:3: 'x' is not one finite number"),
        ("evaluate train.dat --scores few.txt", "few.txt has 2 scores, and train.dat "),
        ("evaluate ties.dat -m model", "there is no preference to evaluate"),
        ("cv train.dat --alphas 3:1", "'3:1' is not numbers above 0"),
        ("cv train.dat --cv 1", "10 queries cannot be held out in 1 folds"),
        ("cv train.dat --plot x.bmp", "the name must end in .png, .svg or .pdf"),
        ("export -m model --to word", "'word' is not one of"),
        ("export -m model --to elasticsearch --feature-names a,b", "feature_names"),
        ("report train.dat -o -", "the page is written to a file"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(small, run, words, message):
    for name, text in FILES.items():
        (small / name).write_text(text)
    X = np.eye(3)
    save_model(ConditionalRankRLS().fit(X, X), small / "conditional")
    save_model(make_pipeline(StandardScaler(), None).fit(X), small / "scaler")
    before = sorted(os.listdir())
    out, err = run(words, code=2)
    assert out == ""
    assert err.startswith("rankrls: error: ")
    assert err.count("\n") == 1
    assert message in err
    assert sorted(os.listdir()) == before


def test_debug_shows_where(small, run):
    err = run("fit nowhere -m x --debug", code=2).err
    assert "Traceback" in err
    assert err.endswith("rankrls: error: nowhere: No such file or directory\n")
    assert "Traceback" in run("--debug fit nowhere -m x", code=2).err


def test_what_should_not_happen_is_one_line_too(small, capsys, monkeypatch):
    def broken(*_, **__):
        raise TypeError("two\nlines")

    monkeypatch.setattr(rankrls.cli._scoring, "Scorer", broken)
    assert main(["predict", "train.dat", "-m", "model"]) == 1
    err = capsys.readouterr().err
    assert err == "rankrls: error: unexpected TypeError: two lines (--debug tells where)\n"


@pytest.mark.parametrize(
    ("raised", "code"), [(KeyboardInterrupt, 130), (SystemExit(143), 143), (MemoryError, 2)]
)
def test_a_run_that_is_stopped_leaves_the_old_file(small, capsys, monkeypatch, raised, code):
    def stop(*_):
        raise raised

    (small / "scores.txt").write_text("old")
    before = sorted(os.listdir())
    monkeypatch.setattr(rankrls.cli._scoring, "_lines", stop)
    assert main(["predict", "train.dat", "-m", "model", "-o", "scores.txt"]) == code
    assert (small / "scores.txt").read_text() == "old"
    assert sorted(os.listdir()) == before
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "()" not in err


def test_without_click_the_extra_is_named(monkeypatch, capsys):
    original = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "click":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "click")
    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["--version"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "pip install 'rankrls[cli]'" in err


def test_help_and_version(capsys):
    assert main([]) == 0
    general = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == general
    for command in ("fit", "predict", "evaluate", "cv", "export", "report", "info", "demo"):
        assert f"\n  {command} " in general
        assert main([command, "-h"]) == 0
        text = capsys.readouterr().out
        assert text.startswith(f"Usage: rankrls {command} ")
        if command not in ("info", "demo"):
            assert f"  rankrls {command} " in text.split("Examples:")[1]
    assert "svm_rank_learn -c 3 train.dat model " in general
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rankrls {rankrls.__version__}\n"


def test_warnings_of_the_caller_are_left_alone(small, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = warnings.showwarning
        main(["cv", "train.dat", "--alphas", "1000,10000"])
        assert warnings.showwarning is before
    assert capsys.readouterr().err.startswith("rankrls: warning: the best alpha")


def test_a_pipe_is_fitted_batch_by_batch(small, run):
    def fit(file, words=""):
        return run(f"fit - -m piped --stream {words}", stdin=(small / file).read_bytes())

    X, y, qid = make_ranking(n_queries=10, n_features=3, random_state=0, return_X_y_qid=True)
    columns = "qid,label,a,b,c"
    np.savetxt("table.csv", np.c_[qid, y, X], "%.17g", delimiter=",", header=columns, comments="")
    run("fit table.csv -m named --stream")
    fit("table.csv")
    piped, named = (load_model(small / name)[-1] for name in ("piped", "named"))
    np.testing.assert_array_equal(piped.coef_, named.coef_)
    for file in ("table.csv", "train.dat"):  # in several passes
        fit(file, "--alpha auto --cv 2")
        run(f"fit {file} -m named --stream --alpha auto --cv 2")
        piped, named = (load_model(small / name)[-1] for name in ("piped", "named"))
        assert (piped.alpha_, piped.best_score_) == (named.alpha_, named.best_score_)


def test_json_has_no_nan(capsys):
    rankrls.cli._output.to_json({"a": float("nan"), "b": [np.float64(1), np.array([2, np.inf])]})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1.0, [2.0, None]]}
