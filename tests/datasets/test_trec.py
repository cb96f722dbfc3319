"""Runs and judgements of TREC: what is written is read again, and what is wrong is told."""

import gzip
import io

import numpy as np
import pytest

from rankrls.datasets import dump_qrels, dump_run, load_qrels, load_run
from rankrls.rankings import Qrels, RankTable

SCORES = np.random.default_rng(4).integers(0, 5, 60) / 4
IDS = [f"d{i:02d}" for i in range(60)]


def test_what_is_written_is_read_again(tmp_path):
    run = RankTable.from_scores(SCORES, qid=[f"q{i // 7}" for i in range(60)], ids=IDS)
    path = tmp_path / "run.txt"
    dump_run(run, path, name="me")
    again = load_run(path)
    for column in ("query", "id", "rank", "score"):
        assert getattr(again, column).tolist() == getattr(run, column).tolist()
    first = f"q0 Q0 {run.id[0]} 1 {run.score[0].item()!r} me"
    assert path.read_text().split("\n")[0] == first
    assert [p.name for p in tmp_path.iterdir()] == ["run.txt"]


def test_scores_count_not_ranks():
    text = b"b Q0 x 1 0.5 t\r\n\nb\tQ0\ty\t2\t1e2\tt\n a  Q0 z 0 -1 t"
    with pytest.warns(UserWarning, match="stream>:1: ranks and scores are in different orders"):
        run = load_run(io.BytesIO(text))
    assert run.query.tolist() == ["b", "b", "a"]
    assert run.id.tolist() == ["y", "x", "z"]
    assert run.rank.tolist() == [1, 2, 1]
    tied = load_run(io.BytesIO(b"q Q0 x 2 1.0 t\nq Q0 y 1 1.0 t\nq Q0 z 3 1.0 t\n"))
    assert tied.id.tolist() == ["y", "x", "z"]
    assert load_run(io.BytesIO("q Q0 \u00e4\u00a0b 1 1 t\n".encode())).id.tolist() == ["ä\xa0b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n \n", "no data"),
        ("q Q0 d 1 2.5\n", ":1: a line of a run is 'query Q0 id rank score tag', .* has 5 words"),
        ("q 0 d 1\n", ":1: .* has 4 words: is the file judgements"),
        ("q Q0 d 1 2 t\nq Q0 e 2 nan t\n", ":2: column 'score' is 'nan', not a finite number"),
        ("q Q0 d 1 1_0 t\n", ":1: column 'score' is '1_0'"),
        ("q Q0 d 1 １ t\n", ":1: column 'score' is '１'"),
        ("q Q0 d x 1 t\n", ":1: column 'rank' is 'x', not a finite number"),
        ("q Q0 d 1 3 t\nr Q0 d 1 3 t\nq Q0 d 2 1 t\n", ":3: id 'd' of query 'q' .* in line 1"),
        ("q Q0 d\0 1 3 t\n", ":1: this is binary data"),
    ],
)
def test_runs_that_are_wrong(tmp_path, text, message):
    path = tmp_path / "run.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"run.txt.*{message}"):
        load_run(path)


def test_judgements(tmp_path):
    path = tmp_path / "qrels.gz"
    path.write_bytes(gzip.compress(b"301 0 FT911-3 1\n301 0 FT911-4 -1\n302\t0\td\t2.5\n"))
    qrels = load_qrels(path)
    assert qrels.query.tolist() == ["301", "301", "302"]
    assert qrels.grade.tolist() == [1.0, -1.0, 2.5]
    assert len(qrels) == 3
    assert qrels.to_frame().columns.tolist() == ["query", "id", "grade"]
    for text, message in (
        (b"q 0 d x\n", ":1: column 'grade' is 'x', not a finite number"),
        (b"query-id corpus-id score\n", ":1: a line of judgements .* has 3 words"),
        (b"q Q0 d 1 3 t\n", ":1: .*has 6 words: is the file a run"),
        (b"q 0 d 1\nq 0 d 1\n", ":2: id 'd' of query 'q' was there already, in line 1"),
        (b"q 0 \xff 1\n", ":1: this is not UTF-8"),
    ):
        path.write_bytes(text)
        with pytest.raises(ValueError, match=f"qrels.gz{message}"):
            load_qrels(path)


def test_judgements_are_written(tmp_path):
    labels, qid, ids = [2, 0, -1, 0.5], ["b", "b", "a", "a"], ["x", "y", "x", "z"]
    qrels = Qrels.from_labels(labels, qid=qid, ids=ids)
    for name in ("qrels", "qrels.gz"):
        dump_qrels(qrels, tmp_path / name)
        again = load_qrels(tmp_path / name)
        assert again.query.tolist() == qid
        assert again.id.tolist() == ids
        assert again.grade.tolist() == labels
    assert (tmp_path / "qrels").read_text().split("\n")[0] == "b 0 x 2"
    numbered = Qrels.from_labels([1, 0, 1], group=[2, 1])
    assert numbered.query.tolist() == [0, 0, 1]
    assert numbered.id.tolist() == [0, 1, 2]
    for call, message in (
        (lambda: Qrels.from_labels([1, np.nan]), "y_true contains NaN"),
        (lambda: Qrels.from_labels([1, 2], qid=[1]), "qid has 1 entries for 2 rows"),
        (lambda: dump_qrels([1], tmp_path / "no"), "table must be a Qrels"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert not (tmp_path / "no").exists()


def test_what_cannot_be_written(tmp_path):
    path = tmp_path / "run"
    path.write_text("before")
    for ids, qid, message in (
        (["a b", "c"], None, "id 'a b' cannot be written"),
        (["", "c"], None, "id '' cannot be written"),
        (["a\x1b", "c"], None, "cannot be written"),
        (["c", "c"], None, "id 'c' comes twice in query '0'"),
        (["a", "b"], ["x y", "x y"], "query 'x y' cannot be written"),
        ([1, "1"], None, "id holds several labels that are written as"),
    ):
        table = RankTable.from_scores([2.0, 1.0], qid=qid, ids=ids)
        with pytest.raises(ValueError, match=message):
            dump_run(table, path)
    with pytest.raises(ValueError, match="name 'a b' cannot be written"):
        dump_run(RankTable.from_scores([1.0]), path, name="a b")
    with pytest.raises(ValueError, match="table must be a RankTable"):
        dump_run([1], path)
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
