"""What reaches a terminal: no commands of strangers, closed and full streams, long titles."""

import io
import json
import os
import sys
import time

import numpy as np
import pandas as pd
import pytest

from rankrls import RankRLS
from rankrls.cli import main
from rankrls.cli._output import escaped, escaped_json, working
from rankrls.datasets import make_ranking
from rankrls.io import save_model

RED = "\x1b[31m"
#: Clears the screen, moves the cursor, sets the title; C1 and direction marks do so, too.
NASTY = f"{RED}\x1b[2J\x07\x9b1m\u202eevil\u2028\x7f"
UNSAFE = "\x1b\x07\x9b\u202e\u2028\x7f\r\x00"


@pytest.fixture
def folder(small):
    X, y, qid = make_ranking(n_queries=8, n_features=3, random_state=0, return_X_y_qid=True)
    frame = pd.DataFrame(X, columns=["a", f"b{NASTY}", "c"])
    frame["qid"], frame["label"] = [f"{NASTY}{q}" for q in qid], y
    frame.to_csv("nasty.csv", index=False)
    model = RankRLS().fit(frame.iloc[:, :3], y, qid=qid)
    save_model(model, "nasty.model")
    return small


def no_commands(text):
    return not any(character in text for character in UNSAFE)


def test_lists_on_a_terminal_and_in_a_file(folder, capsys, monkeypatch):
    words = ["predict", "nasty.csv", "-m", "nasty.model", "--format", "csv", "--top", "1"]
    assert main([*words, "-o", "out.csv"]) == 0
    assert NASTY in (folder / "out.csv").read_text(encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(type(sys.stdout), "isatty", lambda self: True)
        assert main(words) == 0
    out = capsys.readouterr().out
    assert no_commands(out)
    assert out.count("\n") == 9


@pytest.mark.parametrize(
    "words",
    [
        "info nasty.model",
        "info nasty.model --json",
        "evaluate nasty.csv -m nasty.model --per-query",
        "evaluate nasty.csv -m nasty.model --per-query --json",
        "fit nasty.csv -m new",
        "fit nasty.csv -m new --label a --features zzz",
        "fit nasty.csv -m new --label nothing",
        "fit nasty.csv -m new --qid-column a --debug",
        "predict train.dat -m nasty.model",
        "predict nasty.csv -m nasty.model --format json --doc-id qid",
        "predict nasty.csv -m nasty.model --format trec",
        "compare nasty.model nasty.model --data nasty.csv",
        "weights -m nasty.model",
        "weights -m nasty.model --json",
        "export -m nasty.model --to sql",
        "export -m nasty.model --to vespa",
        "report nasty.csv -o page.html",
        "report nasty.csv -o page.html --json",
        "export -m nasty.model --to elasticsearch",
        f"fit {RED}nowhere -m new",
        f"fit train.dat -m new --kernel {RED}",
        f"{RED}",
    ],
)
def test_names_of_strangers_are_no_commands_of_the_terminal(folder, capsys, words):
    main(words.split(" "))
    out, err = capsys.readouterr()
    assert no_commands(out)
    assert no_commands(err)
    if "--json" in words and "info" in words:
        names = json.loads(out)["feature_names"]
        assert names == ["a", f"b{NASTY}", "c"]  # the same names, written safely


def test_escaped_text():
    assert escaped("plain ä 漢 \\x1b") == "plain ä 漢 \\x1b"
    assert escaped(NASTY) == r"\x1b[31m\x1b[2J\x07\x9b1m\u202eevil\u2028\x7f"
    assert escaped("\ud800") == "\\ud800"
    text = json.dumps({NASTY: ["ä\ud800"]}, ensure_ascii=False, indent=1)
    assert no_commands(escaped_json(text))
    assert json.loads(escaped_json(text)) == {NASTY: ["ä\ud800"]}


def wait_for(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("nothing was told")


def a_terminal(monkeypatch):
    """A stderr that somebody looks at, at once; not a fixture, before which pytest sets its own."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("rankrls._calls.PATIENCE", 0.0)
    return stream


@pytest.mark.parametrize("columns", [80, 200])
def test_progress_fits_into_the_terminal(monkeypatch, columns):
    terminal = a_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    with working("Reading " + "long" * 60) as work:
        wait_for(lambda: "rankrls 0 s: Reading long" in terminal.getvalue())
        work(f"Scaling [red]{RED}y")
        wait_for(lambda: "[red]\\x1b[31my" in terminal.getvalue())
    *lines, last = terminal.getvalue().split("\r")
    assert last == ""  # the line is cleared
    assert all(len(line) < columns for line in lines)


def test_long_work_is_told_in_logs_too(monkeypatch, capsys):
    monkeypatch.setattr("rankrls._calls.LOG_PATIENCE", 0.0)
    with working("Cross-validating"):
        wait_for(lambda: "rankrls 0 s: Cross-validating\n" in capsys.readouterr().err)


needs_shell = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs bash, /dev/full")


@needs_shell
def test_closed_streams(folder, shell):
    """One process for each: what cannot be told is not written elsewhere, and nothing breaks."""
    code, _, err = shell("rankrls predict train.dat -m model >&-")
    assert code == 2
    assert err == "rankrls: error: stdout: it is closed, and the result would be written there\n"
    code, _, err = shell("rankrls fit train.dat -m new --alpha 1 <&- >&- 2>&-")
    assert code == 0
    code, out, _ = shell("rankrls predict train.dat -m new 2>&-")
    assert code == 0
    assert np.isfinite(np.array(out.split(), float)).all()
    code, out, err = shell("rankrls fit nowhere -m x 2>&-")
    assert (code, out, err) == (2, "", "")


@needs_shell
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("info model > /dev/full", "stdout"),
        ("predict train.dat -m model > /dev/full", "stdout"),
        ("--help > /dev/full", "stdout"),
        ("fit train.dat -m /dev/full --alpha 1", "/dev/full"),
        ("report train.dat --alphas 1 -o /dev/full", "/dev/full"),
    ],
)
def test_a_full_disk_is_named(folder, shell, command, name):
    code, _, err = shell(f"rankrls {command}")
    assert code == 2
    assert err == f"rankrls: error: {name}: No space left on device\n"


@needs_shell
def test_errors_that_nobody_can_read(folder, shell):
    assert shell("rankrls info nowhere 2> /dev/full")[0] == 2


@needs_shell
def test_a_feature_id_far_beyond_the_others_is_refused_in_time(folder, shell):
    (folder / "wide.dat").write_text("2 qid:1 1:0.5 2147483647:1\n0 qid:1 1:0.25\n")
    command = "ulimit -v 2500000; rankrls fit wide.dat -m new"
    code, _, err = shell(command)
    assert code == 2
    assert "wide.dat:1: feature id 2147483647 is the largest" in err
    assert err.count("\n") == 1
