"""What all readers of rows have in common, whatever the format of the files."""

import gzip
import io
import itertools
import os
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

from rankrls.cli import main
from rankrls.datasets import (
    dump_letor,
    iter_csv,
    iter_letor,
    iter_parquet,
    iter_ranking,
    load_csv,
    load_group,
    load_letor,
    load_ranking,
    make_ranking,
)

pytest.importorskip("pyarrow")

KINDS = ["letor", "csv", "tsv.gz", "parquet", "feather"]
TABLES = KINDS[1:]
COLUMNS = {"target": "label", "qid": "qid"}


def table(X, y, qid, **more):
    names = [f"f{j}" for j in range(np.shape(X)[1])]
    return pd.DataFrame({"qid": qid, "label": y, **more}).join(pd.DataFrame(X, columns=names))


def write(kind, path, X, y, qid, **more):
    """Write rows; missing values and labels are NA."""
    frame = table(X, y, qid, **more)
    if kind == "letor":
        cells = frame.drop(columns=["qid", "label", *more]).to_numpy()
        lines = (
            f"{'NA' if pd.isna(label) else label} qid:{query} "
            + " ".join(f"{j}:{'NA' if np.isnan(v) else v}" for j, v in enumerate(row, 1))
            for label, query, row in zip(frame.label, frame.qid, cells, strict=True)
        )
        path.write_text("\n".join(lines) + "\n")
    elif kind == "parquet":
        frame.to_parquet(path, row_group_size=7)
    elif kind == "feather":
        frame.to_feather(path, compression="uncompressed")
    else:
        sep = "," if kind == "csv" else "\t"
        text = frame.to_csv(index=False, sep=sep, na_rep="NA").encode()
        path.write_bytes(gzip.compress(text) if kind.endswith(".gz") else text)
    return path


def own(kind, path, rows=None, **options):
    """Batches by the reader of the format itself."""
    if kind == "letor":
        read = (
            [load_letor(path, **options)]
            if rows is None
            else iter_letor(path, rows=rows, **options)
        )
    elif kind in ("parquet", "feather"):
        read = iter_parquet(path, **({} if rows is None else {"rows": rows}), **COLUMNS, **options)
    elif rows is None:
        read = [load_csv(path, **COLUMNS, **options)]
    else:
        read = iter_csv(path, rows=rows, **COLUMNS, **options)
    return list(read)


def joined(batches, name):
    return np.concatenate([batch[name] for batch in batches])


@pytest.fixture(scope="module")
def data():
    made = make_ranking(n_queries=20, n_docs=(1, 9), n_features=4, random_state=5)
    return made.data, made.target, made.qid


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


# ---------------------------------------------------------------------- rows and batches


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rows", [None, 1, 13, 1000])
def test_all_rows(kind, rows, dtype, data, tmp_path):
    X, y, qid = data
    path = write(kind, tmp_path / f"rows.{kind}", X, y, qid)
    every = {"dtype": dtype}
    found = [own(kind, path, rows, **every)]
    found.append([load_ranking(path, **every)] if rows is None else
                 list(iter_ranking(path, rows=rows, **every)))  # fmt: skip
    for batches in found:
        assert_array_equal(joined(batches, "data"), X.astype(dtype))
        assert_array_equal(joined(batches, "target"), y)
        assert_array_equal(joined(batches, "qid"), qid)
        assert batches[0].data.dtype == dtype
        assert batches[0].target.dtype == np.float64
        assert batches[0].qid.dtype == np.int64
    names = None if kind == "letor" else ["f0", "f1", "f2", "f3"]
    assert batches[0].feature_names == names
    assert batches[0].qid_name == (names and "qid")
    assert batches[0].format == {"tsv.gz": "csv", "feather": "parquet"}.get(kind, kind)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    rows=st.integers(1, 30),
    how=st.sampled_from(["by query", "cut", "no query"]),
    kind=st.sampled_from(["letor", "csv", "parquet"]),
    block=st.sampled_from([1, 50, 1 << 20]),
)
def test_batches_hold_whole_queries(tmp_path_factory, sizes, rows, how, kind, block):
    qid = np.repeat(np.arange(len(sizes)), sizes)
    m = len(qid)
    path = tmp_path_factory.mktemp("any") / "data"
    write(kind, path, np.arange(1.0, m + 1)[:, None], np.zeros(m), qid)
    options = {"format": kind, "rows": rows, "by_query": how == "by query"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rankrls.datasets.formats._BLOCK_BYTES", block)
        batches = list(iter_ranking(path, **options, qid=None if how == "no query" else "auto"))
    assert_array_equal(joined(batches, "data")[:, 0], np.arange(1, m + 1))
    lengths = [len(batch.target) for batch in batches]
    assert (batches[0].qid is None) == (how == "no query")
    if how != "by query":
        assert lengths[:-1] == [rows] * (len(lengths) - 1)
        assert 1 <= lengths[-1] <= rows
        return
    queries = [set(batch.qid.tolist()) for batch in batches]
    assert sum(map(len, queries)) == len(sizes)  # none is cut
    for length, ids in zip(lengths, queries, strict=True):
        assert length <= rows or len(ids) == 1
    for length, after in zip(lengths, queries[1:], strict=False):  # the next query did not fit
        assert length + sizes[min(after)] > rows


def test_a_query_that_comes_back(kind, tmp_path):
    path = write(kind, tmp_path / f"rows.{kind}", np.ones((5, 1)), np.ones(5), [1, 2, 2, 1, 1])
    place = {"letor": ":4", "parquet": ": row group 0, row 3", "feather": ": record batch 0, row 3"}
    for rows in (1, 3, 100):
        with pytest.raises(ValueError, match=f"{place.get(kind, ':5')}: query '?1'? comes back"):
            own(kind, path, rows)
        batches = own(kind, path, rows, by_query=False)
        assert joined(batches, "qid").tolist() == [1, 2, 2, 1, 1]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "lable"}, r"no column 'lable' for target \(did you mean 'label'\?\); the colu"),
        ({"qid": "Qid"}, r"no column 'Qid' for qid \(did you mean 'qid'\?\); the columns are 'qid"),
        ({"features": ["f0", "f7"]}, "no column 'f7' for features"),
        ({"features": ["f0", "f0"]}, "features names 'f0' twice"),
        ({"features": [], "target": None, "qid": None}, "no column to read"),
        ({"drop": ["f0", "f1"]}, "no column left for the features"),
        ({"drop": "f7"}, "no column 'f7' for drop; the columns are"),
        ({"drop": "label"}, "column 'label' for drop is also read"),
        ({"drop": "f1", "features": ["f0", "f1"]}, "'f1' for drop is also one of the features"),
        ({"unlabelled": "keep"}, "unlabelled must be one of"),
        ({"features": {"f0"}}, "features must be names of columns; got {'f0'}"),
    ],
)
def test_columns_by_name(kind, options, message, tmp_path):
    path = write(kind, tmp_path / f"rows.{kind}", np.ones((2, 2)), [1, 2], [1, 1])
    read = {"csv": iter_csv, "parquet": iter_parquet}[kind]
    with pytest.raises(ValueError, match=message):
        read(path, **(COLUMNS | options))
    (batch,) = read(path, **COLUMNS, features=pd.Index(["f1"]))
    assert batch.feature_names == ["f1"]
    with pytest.raises(ValueError, match=r"no column 'F1' for text \(did you mean 'f1'\?\)"):
        load_ranking(path, text=["F1"])


# ---------------------------------------------------------------------- missing values and labels


@pytest.mark.parametrize("rows", [None, 25])
def test_missing_values(kind, rows, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4)).round(3)
    X[rng.random(X.shape) < 0.3] = np.nan
    qid = np.sort(rng.integers(0, 9, 60))
    path = write(kind, tmp_path / f"rows.{kind}", X, rng.integers(0, 3, 60), qid)
    found = own(kind, path, rows, missing="nan", dtype=np.float32)
    assert_array_equal(joined(found, "data"), X.astype(np.float32))
    remedy = r"pass missing='nan', and fill them by sklearn.impute.SimpleImputer .*--missing mean"
    with pytest.raises(ValueError, match=rf"(:\d+|row \d+): .*{remedy}") as caught:
        own(kind, path, rows)
    place = re.search(r"(:|row )(\d+): ", str(caught.value))
    first = 0 if place[1] == "row " else 1 + (kind != "letor")
    assert np.isnan(X[int(place[2]) - first]).any()


@pytest.mark.parametrize(
    "value", ["inf", "-inf", "1e999", "nil", "?", "nan5", "NULLs", "1NA", "-nan"]
)
def test_what_is_not_missing_stays_an_error(value):
    with pytest.raises(ValueError, match=f"1: value in '2:{re.escape(value)}'"):
        load_letor(io.BytesIO(f"1 qid:1 1:NULL 2:{value}\n".encode()), missing="nan")
    text = f"qid,label,a,b\n1,1,NULL,{value}\n".encode()
    message = f":2: column 'b' is '{re.escape(value)}', not a finite number"
    with pytest.raises(ValueError, match=message):
        load_csv(io.BytesIO(text), target="label", qid="qid", missing="nan")


def test_labels_and_weights_are_never_missing():
    for label in (b"NULL", b"nan"):
        with pytest.raises(ValueError, match=r":1: label .* number \(.*by unlabelled='drop'\)$"):
            load_letor(io.BytesIO(label + b" qid:1 1:1\n"), missing="nan")
    for column, hint in (("label", "unlabelled='drop'"), ("weight", "leave out rows without one")):
        row = {"label": "1", "weight": "1", "a": "2", column: "NA"}
        text = "\n".join([",".join(row), ",".join(row.values())]).encode()
        options = {"target": "label", "sample_weight": "weight", "missing": "nan"}
        message = rf":2: column '{column}' is 'NA', not a finite number \({hint}"
        with pytest.raises(ValueError, match=message):
            load_csv(io.BytesIO(text), **options)


@pytest.mark.parametrize("rows", [None, 3])
def test_rows_without_a_label(kind, rows, tmp_path):
    y = np.array([1, np.nan, 0, 2, np.nan, np.nan])
    path = write(
        kind, tmp_path / f"rows.{kind}", np.arange(6.0)[:, None] + 1, y, [1, 1, 1, 2, 2, 3]
    )

    def read(**options):
        options |= {} if rows is None else {"rows": rows}
        return [load_ranking(path, **options)] if rows is None else list(
            iter_ranking(path, **options))  # fmt: skip

    with pytest.raises(ValueError, match=r"(:\d|row 1): (label 'NA'|column 'label' is)"):
        read()
    with pytest.warns(UserWarning, match="3 of 6 rows have no label, and are left out"):
        found = read(unlabelled="drop")
    assert_array_equal(joined(found, "data")[:, 0], [1, 3, 4])
    assert_array_equal(joined(found, "target"), [1, 0, 2])
    assert_array_equal(joined(found, "qid"), [1, 1, 2])
    write(kind, path, np.ones((2, 1)), [np.nan, np.nan], [1, 1])
    with pytest.raises(ValueError, match=r"(no row has a label|label.* is not numeric)"):
        read(unlabelled="drop")


@pytest.mark.parametrize("kind", TABLES)
def test_another_column_of_labels_is_told(kind, tmp_path, capsys):
    """It would be the strongest feature."""
    path = tmp_path / f"rows.{kind}"
    write(kind, path, np.arange(4.0)[:, None], [0, 1, 0, 1], [1, 1, 2, 2], Grade=[0, 2, 1, 3])
    message = r"column 'Grade' is read as a feature, and is named like labels; .* drop='Grade'"
    with pytest.warns(UserWarning, match=message):
        own(kind, path)
    with pytest.warns(UserWarning, match=message):
        assert load_ranking(path, target="label").feature_names == ["Grade", "f0"]
    load_ranking(path, target="label", drop="Grade")
    load_ranking(path, target="label", features=["f0", "Grade"])  # if you insist
    words = ["fit", str(path), "-m", str(tmp_path / "m"), "--label", "label", "--alpha", "1"]
    assert main(words) == 0
    assert "column 'Grade' is read as a feature" in capsys.readouterr().err
    assert main([*words, "--drop", "Grade"]) == 0
    assert "Grade" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", TABLES)
def test_another_column_of_query_ids_is_told(kind, tmp_path):
    """It would be a feature that says nothing of new queries."""
    path = tmp_path / f"rows.{kind}"
    write(kind, path, np.arange(4.0)[:, None], [0, 1, 0, 1], [1, 1, 2, 2], session=[1, 1, 2, 2])
    with pytest.warns(UserWarning, match=r"column 'qid' .* is named like query ids; .*drop='qid'"):
        assert "qid" in load_ranking(path, qid="session").feature_names
    assert load_ranking(path, qid="session", drop="qid").feature_names == ["f0"]


# ---------------------------------------------------------------------- several files


@pytest.mark.parametrize("rows", [None, 10])
def test_several_files_are_read_as_one(kind, rows, data, tmp_path):
    X, y, qid = data
    ids = qid if kind == "letor" else [f"q{q}" for q in qid]
    paths = []
    for part in range(3):
        some = np.flatnonzero((qid >= 7 * part) & (qid < 7 * part + 7))
        path = tmp_path / f"S{part}.{kind}"
        write(kind, path, X[some], y[some], [ids[i] for i in some])
        if part and kind == "csv":  # columns go by the names of the first file
            frame = pd.read_csv(path, dtype=str)
            frame[["f3", "qid", "f1", "f0", "label", "f2"]].to_csv(path, index=False)
        paths.append(path)
    found = [load_ranking(paths)] if rows is None else list(iter_ranking(paths, rows=rows))
    assert_array_equal(joined(found, "data"), X)
    assert_array_equal(joined(found, "target"), y)
    assert joined(found, "qid").tolist() == list(ids)
    for before, after in itertools.pairwise(found):
        assert before.qid[-1] != after.qid[0]
    assert load_ranking(paths, qid=None).qid is None


def test_widths_and_sparsity_of_files_differ(tmp_path):
    wide, narrow = tmp_path / "wide.txt", tmp_path / "narrow.txt"
    wide.write_text("1 qid:50 9:2\n0 qid:50 3:1\n")
    narrow.write_text("1 qid:51 1:5\n0 qid:fifty 1:6\n")
    for names in ([wide, narrow], [narrow, wide]):
        bunch = load_ranking(names)
        assert sparse.issparse(bunch.data)
        assert bunch.data.toarray().sum(axis=0).tolist() == [11, 0, 1, 0, 0, 0, 0, 0, 2]
        assert sorted(bunch.qid.tolist()) == ["50", "50", "51", "fifty"]  # text if one of them is
        batches = list(iter_ranking(names, rows=2, by_query=False)) if names[0] is narrow else []
        assert all(batch.data.shape == (2, 9) for batch in batches)


# ---------------------------------------------------------------------- sizes of queries


@pytest.fixture
def flat(data, tmp_path, monkeypatch):
    """Files without query ids, and sizes of their queries beside them."""
    monkeypatch.chdir(tmp_path)
    X, y, qid = data
    for part in range(3):
        rows = (qid >= 7 * part) & (qid < 7 * part + 7)
        dump_letor(X[rows], y[rows], f"flat{part}.txt")
        dump_letor(X[rows], y[rows], f"S{part}.txt", qid=qid[rows])
        np.savetxt(f"flat{part}.txt.query", np.unique(qid[rows], return_counts=True)[1], fmt="%d")
    return tmp_path


FLAT = ["flat0.txt", "flat1.txt", "flat2.txt"]


@pytest.mark.parametrize("rows", [1, 11, 1000])
@pytest.mark.parametrize("by_query", [True, False])
@pytest.mark.parametrize("names", [FLAT[:1], FLAT], ids=len)
def test_sizes_beside_the_rows(flat, data, rows, by_query, names):
    X, _, qid = data
    n = int((qid < 7).sum()) if len(names) == 1 else len(qid)
    for batches in ([load_ranking(names)], list(iter_ranking(names, rows=rows, by_query=by_query))):
        assert_array_equal(joined(batches, "data"), X[:n])
        assert_array_equal(joined(batches, "qid"), qid[:n])
    for batch in batches:
        assert len(batch.qid) <= rows or (by_query and len(set(batch.qid)) == 1)
    assert load_ranking("flat0.txt").group_file == "flat0.txt.query"
    assert load_ranking("flat0.txt", qid=None).qid is None


def test_other_names_of_sizes(flat, data):
    first = data[2][data[2] < 7]
    (flat / "packed.txt.gz").write_bytes(gzip.compress((flat / "flat0.txt").read_bytes()))
    (flat / "flat0.txt.query").rename(flat / "packed.txt.group")
    stream = io.BytesIO((flat / "flat0.txt").read_bytes())
    assert_array_equal(load_ranking("packed.txt.gz").qid, first)
    for file in ("flat0.txt", stream):
        assert_array_equal(load_ranking(file, group="packed.txt.group").qid, first)
    (flat / "S0.txt.query").write_text("1\n")
    assert_array_equal(load_ranking("S0.txt").qid, first)  # ids in the lines count
    assert "group_file" not in load_ranking("S0.txt")
    group = flat / "flat1.txt.group"
    group.write_text((flat / "flat1.txt.query").read_text())
    assert load_ranking("flat1.txt").group_file == "flat1.txt.query"


def test_sizes_that_are_wrong(flat):
    (flat / "bad.query").write_text("3\n\nx\n")
    (flat / "few.query").write_text("3\n")
    (flat / "many.query").write_text("3000\n")
    (flat / "t.csv").write_text("qid,label,a\n1,2,3\n")
    mixed = ["S0.txt", "flat1.txt"]
    for call, message in (
        (lambda: load_group("bad.query"), r"bad.query:3: 'x' is not the size of a query"),
        (lambda: load_group(io.BytesIO(b"-3\n")), "'-3' is not the size"),
        (lambda: load_group(io.BytesIO(b"\n")), "no data"),
        (lambda: load_ranking("flat0.txt", group="few.query"), "add up to 3 rows, and flat0.txt"),
        (lambda: load_ranking("flat0.txt", group="many.query"), "3000 rows, and flat0.txt has "),
        (lambda: [*iter_ranking("flat0.txt", group="few.query", rows=5)], "add up to 3 rows, and"),
        (lambda: load_ranking("S0.txt", group="few.query"), "leave out group='few.query'"),
        (lambda: load_ranking("flat0.txt", group=None), "the lines have no query ids"),
        (lambda: load_ranking("t.csv", group="few.query"), "for one file of LETOR text"),
        (lambda: load_ranking([]), "name at least one file"),
        (lambda: load_ranking(FLAT, group="few.query"), "for one file of LETOR"),
        (lambda: load_ranking(["S0.txt", "t.csv"]), "t.csv: .* 'csv', and S0.txt is 'letor'"),
        (lambda: load_ranking(mixed), "flat1.txt: query ids are not given as in S0.txt"),
        (lambda: load_ranking(mixed, group=None, need=()), "not given as in S0.txt"),
        (lambda: [*iter_ranking(["S0.txt", "S1.txt", "S0.txt"])], "S0.txt:1: query '0' comes back"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


# ---------------------------------------------------------------------- a file of any kind


def test_open_files_and_pipes(data, tmp_path):
    path = write("csv", tmp_path / "rows.csv", *data)
    with open(path, "rb") as file:
        assert_array_equal(load_ranking(file).data, data[0])
    parquet = write("parquet", tmp_path / "rows.parquet", *data)
    with pytest.raises(ValueError, match="are opened by name"):
        load_ranking(io.BytesIO(parquet.read_bytes()))

    letor = write("letor", tmp_path / "rows.dat", *data).read_bytes()
    for buffering in (-1, 0):
        from_pipe, to_pipe = os.pipe()
        os.write(to_pipe, letor)
        os.close(to_pipe)
        with open(from_pipe, "rb", buffering=buffering) as file:
            if buffering:
                assert_array_equal(load_ranking(file).data, data[0])
            else:
                with pytest.raises(ValueError, match="a stream cannot be looked at twice"):
                    load_ranking(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04 and so on", "a zip file"),
        (b"BZh91AY", "the bzip2 data is truncated or corrupt"),
        (b"a,b\n1,2\n", "no column is called label, .* name the column of labels in target="),
        (b"a,label\n1,2\n", "no column is called qid.*, or pass qid=None if all rows"),
        (b"y,label,qid\n1,2,3\n", "'y' and 'label' could both be the column of labels"),
        (b"1 1:2\n0 1:3\n", "the lines have no query ids"),
        (b'{"qid": 1, "label": 2, "a": 3}\n', "this is JSON, .*read_json"),
        (b'[\n  {"qid": 1, "label": 2, "a": 3}]', "this is JSON"),
        ("qid,label,a\n1,2,3\n".encode("utf-16"), "binary data, or text in UTF-16"),
        (b"PAR1", "the Parquet file is truncated or damaged"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        load_ranking(path)
    assert str(error.value).startswith(str(path))


def test_what_is_not_needed_may_be_missing():
    read = load_ranking(io.BytesIO(b"a,b\n1,2\n"), need=())
    assert read.target is None
    assert read.qid is None
    assert_array_equal(read.data, [[1, 2]])
    text = b"Grade,query,a\n1,2,3\n"
    assert load_ranking(io.BytesIO(text), target=None, qid=None).feature_names == ["a"]
    assert load_ranking(io.BytesIO(b"1 1:2\n0 1:3\n"), need=("target",)).qid is None
    with pytest.raises(ValueError, match="LETOR text, which has no columns by name: target='y'"):
        load_ranking(io.BytesIO(b"1 qid:1 1:2\n"), target="y")
    with pytest.raises(ValueError, match="format must be one of"):
        load_ranking(io.BytesIO(b""), format="xls")


@pytest.mark.parametrize("kind", ["letor", "csv"])
def test_query_ids_are_integers_if_those_of_the_first_batch_are(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("rankrls.datasets.formats._BLOCK_BYTES", 30)
    path = write(kind, tmp_path / "rows", np.ones((9, 1)), np.ones(9), [*range(8), "x"])
    assert load_ranking(path).qid.tolist() == [*"01234567", "x"]
    with pytest.raises(ValueError, match="rows: query id 'x' is no 64-bit"):
        list(iter_ranking(path, rows=2))
    write(kind, path, np.ones((3, 1)), np.ones(3), ["x", "x", "7"])
    assert [batch.qid.tolist() for batch in iter_ranking(path, rows=2)] == [["x", "x"], ["7"]]
