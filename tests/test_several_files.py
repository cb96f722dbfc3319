"""Several files read as one, and sizes of queries in files of their own."""

import gzip
import io
import shlex

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from rankrls import RankRLS
from rankrls.cli import main
from rankrls.datasets import dump_letor, iter_ranking, load_group, load_ranking, make_ranking
from rankrls.io import load_model


@pytest.fixture(scope="module")
def data():
    made = make_ranking(n_queries=20, n_docs=(1, 9), n_features=4, random_state=5)
    return made.data, made.target, made.qid


@pytest.fixture
def folder(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y, qid = data
    names = [f"q{q}" for q in qid]
    frame = pd.DataFrame(X, columns=list("abcd")).assign(qid=names, label=y, text="t")
    for part in range(3):
        rows = (qid >= 7 * part) & (qid < 7 * part + 7)
        dump_letor(X[rows], y[rows], f"S{part}.txt", qid=qid[rows],
                   comments=[f"docid = {i}" for i in np.flatnonzero(rows)])  # fmt: skip
        dump_letor(X[rows], y[rows], f"flat{part}.txt")
        np.savetxt(f"flat{part}.txt.query", np.unique(qid[rows], return_counts=True)[1], fmt="%d")
        turned = frame[["d", "text", "qid", "b", "a", "label", "c"]] if part else frame
        turned[rows].to_csv(f"S{part}.csv", index=False)
        turned[rows].to_parquet(f"S{part}.parquet")
    dump_letor(X, y, "all.txt", qid=qid)
    frame.to_csv("all.csv", index=False)
    return tmp_path


LETOR = ["S0.txt", "S1.txt", "S2.txt"]
FLAT = ["flat0.txt", "flat1.txt", "flat2.txt"]


def joined(batches):
    batches = list(batches)
    return tuple(np.concatenate([getattr(b, name) for b in batches]) for name in
                 ("data", "target", "qid"))  # fmt: skip


def test_letor_files(folder, data):
    X, y, qid = data
    bunch = load_ranking(LETOR)
    np.testing.assert_array_equal(bunch.data, X)
    np.testing.assert_array_equal(bunch.target, y)
    np.testing.assert_array_equal(bunch.qid, qid)
    assert bunch.comments == [f"docid = {i}" for i in range(len(y))]
    for found, expected in zip(joined(iter_ranking(LETOR, rows=13)), data, strict=True):
        np.testing.assert_array_equal(found, expected)
    one = load_ranking(["all.txt"])
    np.testing.assert_array_equal(one.data, X)
    together = load_ranking(LETOR, qid=None)
    assert together.qid is None


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_go_by_the_names_of_the_first(folder, data, kind):
    X, y, qid = data
    names = [f"S{part}.{kind}" for part in range(3)]
    bunch = load_ranking(names, drop="text")
    assert bunch.feature_names == list("abcd")
    np.testing.assert_array_equal(bunch.data, X)
    np.testing.assert_array_equal(bunch.target, y)
    assert bunch.qid.tolist() == [f"q{q}" for q in qid]
    batches = list(iter_ranking(names, drop="text", rows=10))
    np.testing.assert_array_equal(joined(batches)[0], X)
    for batch in batches:  # whole queries
        assert not set(batch.qid) & {q for b in batches if b is not batch for q in b.qid}


def test_widths_and_sparsity_differ(folder):
    with open("wide.txt", "w") as file:
        file.write("1 qid:50 9:2\n0 qid:50 3:1\n")
    with open("narrow.txt", "w") as file:
        file.write("1 qid:51 1:5\n0 qid:51 1:6\n")
    for names in (["wide.txt", "narrow.txt"], ["narrow.txt", "wide.txt"]):
        bunch = load_ranking(names)
        assert bunch.data.shape == (4, 9)
        assert sparse.issparse(bunch.data)
        expected = {50: [[0] * 8 + [2], [0, 0, 1] + [0] * 6], 51: [[5] + [0] * 8, [6] + [0] * 8]}
        for query, rows in expected.items():
            assert bunch.data[bunch.qid == query].toarray().tolist() == rows
        batches = list(iter_ranking(names, rows=2))
        assert {batch.data.shape for batch in batches} == {(2, 9)}
        assert len({sparse.issparse(batch.data) for batch in batches}) == 1
    dense = load_ranking(["narrow.txt", "S0.txt"])
    assert dense.data.shape[1] == 4
    np.testing.assert_array_equal(dense.data[:2], [[5, 0, 0, 0], [6, 0, 0, 0]])


def test_query_ids_of_two_kinds(folder):
    with open("words.txt", "w") as file:
        file.write("1 qid:seven 1:2\n0 qid:7 1:1\n")
    with open("numbers.txt", "w") as file:
        file.write("1 qid:7 1:2\n0 qid:8 1:1\n")
    bunch = load_ranking(["words.txt", "numbers.txt"])
    assert bunch.qid.tolist() == ["seven", "7", "7", "8"]  # one query in two files is one query


@pytest.mark.parametrize("rows", [1, 4, 11, 1000])
@pytest.mark.parametrize("by_query", [True, False])
def test_sizes_beside_the_rows(folder, data, rows, by_query):
    X, y, qid = data
    for names in (["flat0.txt"], FLAT):
        n = int((qid < 7).sum()) if len(names) == 1 else len(y)
        bunch = load_ranking(names if len(names) > 1 else names[0])
        np.testing.assert_array_equal(bunch.data, X[:n])
        np.testing.assert_array_equal(bunch.qid, qid[:n])
        batches = list(iter_ranking(names, rows=rows, by_query=by_query))
        for found, expected in zip(joined(batches), data, strict=True):
            np.testing.assert_array_equal(found, expected[:n])
        sizes = [batch.data.shape[0] for batch in batches]
        assert all(size <= rows or (by_query and len(set(batch.qid)) == 1)
                   for size, batch in zip(sizes, batches, strict=True))  # fmt: skip
        if by_query:
            queries = [q for batch in batches for q in set(batch.qid.tolist())]
            assert len(queries) == len(set(queries))
    assert load_ranking("flat0.txt").group_file == "flat0.txt.query"
    assert load_ranking("flat0.txt", qid=None).qid is None


def test_other_names_of_sizes(folder, data):
    with open("flat0.txt", "rb") as file:
        (folder / "packed.txt.gz").write_bytes(gzip.compress(file.read()))
    (folder / "flat0.txt.query").rename(folder / "packed.txt.group")
    np.testing.assert_array_equal(load_ranking("packed.txt.gz").qid, data[2][data[2] < 7])
    by_name = load_ranking("flat0.txt", group="packed.txt.group")
    np.testing.assert_array_equal(by_name.qid, data[2][data[2] < 7])
    stream = io.BytesIO((folder / "flat0.txt").read_bytes())
    np.testing.assert_array_equal(load_ranking(stream, group="packed.txt.group").qid, by_name.qid)
    with open("flat1.txt", "rb") as opened:
        assert load_ranking(opened).qid is not None
    # Ids in the lines count, whatever lies beside.
    (folder / "S0.txt.query").write_text("1\n")
    np.testing.assert_array_equal(load_ranking("S0.txt").qid, by_name.qid)
    group = folder / "flat1.txt.group"
    group.write_text((folder / "flat1.txt.query").read_text())
    assert load_ranking("flat1.txt").group_file == "flat1.txt.query"
    group.write_text("1\n")
    with pytest.raises(ValueError, match=r"flat1.txt.query and flat1.txt.group have different"):
        load_ranking("flat1.txt")
    (folder / "S1.txt.query").write_text("1\n")
    (folder / "S1.txt.group").write_text("2\n")
    assert "group_file" not in load_ranking("S1.txt")  # its lines have ids
    assert load_group("flat1.txt.query").dtype == np.int64


def test_what_is_wrong(folder):
    (folder / "bad.query").write_text("3\n\nx\n")
    (folder / "few.query").write_text("3\n")
    (folder / "many.query").write_text("3000\n")
    for call, message in (
        (lambda: load_group("bad.query"), r"bad.query:3: 'x' is not the size of a query"),
        (lambda: load_group(io.BytesIO(b"-3\n")), "'-3' is not the size"),
        (lambda: load_group(io.BytesIO(b"\n")), "no data"),
        (lambda: load_ranking("flat0.txt", group="few.query"), "add up to 3 rows, and flat0.txt"),
        (lambda: load_ranking("flat0.txt", group="many.query"), "3000 rows, and flat0.txt has "),
        (lambda: [*iter_ranking("flat0.txt", group="few.query", rows=5)], "add up to 3 rows, and"),
        (lambda: [*iter_ranking("flat0.txt", group="many.query", rows=5)], "3000 rows, and flat0"),
        (lambda: load_ranking("S0.txt", group="few.query"), "leave out group='few.query'"),
        (lambda: load_ranking("flat0.txt", group=None), "the lines have no query ids"),
        (lambda: load_ranking("S0.csv", group="few.query"), "is for LETOR text"),
        (lambda: load_ranking([]), "name at least one file"),
        (lambda: load_ranking(FLAT, group="few.query"), "sizes for one file of rows"),
        (lambda: load_ranking(["S0.txt", "S1.csv"]), "S1.csv: .* 'csv', and S0.txt is 'letor'"),
        (lambda: [*iter_ranking(["S0.txt", "S1.csv"])], "S1.csv: .* 'csv', and S0.txt is 'letor'"),
        (lambda: [*iter_ranking(["all.txt", "S1.txt"])], "S1.txt:1: query '7' comes back"),
        (lambda: load_ranking(["S0.csv", "S1.txt"]), "S1.txt"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(ValueError, match=r"flat1.txt: .* by a file of sizes, and by qid: in S0"):
        load_ranking(["S0.txt", "flat1.txt"], group="auto")
    (folder / "flat1.txt.query").unlink()
    with pytest.raises(ValueError, match=r"flat1.txt: .* not at all, and by qid: in S0.txt"):
        load_ranking(["S0.txt", "flat1.txt"], need=("target",))


def test_on_the_command_line(folder, data, capsys):
    def weights(words):
        assert main(shlex.split(words + " -m out --alpha 1 --scale none")) == 0
        capsys.readouterr()
        return load_model("out").coef_

    X, y, qid = data
    expected = RankRLS(1).fit(X, y, qid=qid).coef_
    for words in ("S0.txt S1.txt S2.txt", "'S?.txt'", "flat0.txt flat1.txt flat2.txt",
                  "S0.txt S1.txt S2.txt --stream", "'flat?.txt' --stream",
                  "S0.csv S1.csv S2.csv --drop text", "'S*.parquet' --drop text"):  # fmt: skip
        np.testing.assert_allclose(weights(f"fit {words}"), expected, rtol=1e-9, err_msg=words)
    weights("fit all.txt")
    for command, other in (("predict", "all.txt"), ("evaluate", "all.txt")):
        assert main(shlex.split(f"{command} S0.txt S1.txt S2.txt -m out")) == 0
        several = capsys.readouterr().out
        assert main(shlex.split(f"{command} {other} -m out")) == 0
        assert capsys.readouterr().out == several
    assert main(shlex.split("predict S0.txt S1.txt S2.txt -m out --top 1 --doc-id docid")) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(np.unique(qid))
    with open("bare.txt", "w") as file:
        file.write("1 qid:1 1:1\n")
    assert main(shlex.split("predict S0.txt bare.txt -m out --doc-id docid")) == 2
    assert "error: bare.txt: row 0 has no docid" in capsys.readouterr().err
    assert main(shlex.split("cv 'S?.txt' --alphas 1,10")) == 0
    assert "in 20 queries" in capsys.readouterr().out


def test_text_columns_are_those_of_the_first_file(tmp_path):
    rows = ["query,grade,shop,price", "1,0,a,2", "1,1,b,3", "2,0,c,5", "2,1,7,4"]
    whole, parts = tmp_path / "all.csv", [tmp_path / "a.csv", tmp_path / "b.csv"]
    whole.write_text("\n".join(rows) + "\n")
    parts[0].write_text("\n".join(rows[:3]) + "\n")
    parts[1].write_text("\n".join([rows[0], *rows[3:]]) + "\n")
    options = {"target": "grade", "qid": "query", "text": "auto"}
    one, two = load_ranking(whole, **options), load_ranking(parts, **options)
    assert two.data["shop"].tolist() == one.data["shop"].tolist() == ["a", "b", "c", "7"]
    assert two.data["price"].tolist() == one.data["price"].tolist()
