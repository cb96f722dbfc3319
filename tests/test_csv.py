"""CSV files against the csv module, and the reader that takes a file of any kind."""

import csv
import gzip
import io
import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from rankrls import RankRLS
from rankrls.datasets import (
    dump_letor,
    iter_csv,
    iter_letor,
    iter_parquet,
    iter_ranking,
    load_csv,
    load_letor,
    load_ranking,
    make_ranking,
)

FILE = b"qid,label,a,b\n1,2,0.5,1e3\n1,0,-.25,+3\n7,1,4,5.\n"


def read(text, **options):
    return load_csv(io.BytesIO(text), **{"target": "label", "qid": "qid", **options})


def test_a_small_file():
    table = read(FILE)
    np.testing.assert_array_equal(table.data, [[0.5, 1000], [-0.25, 3], [4, 5]])
    np.testing.assert_array_equal(table.target, [2, 0, 1])
    np.testing.assert_array_equal(table.qid, [1, 1, 7])
    assert table.qid.dtype == np.int64
    assert table.feature_names == ["a", "b"]
    assert table.sample_weight is None


@pytest.mark.parametrize(
    "text",
    [
        FILE.replace(b"\n", b"\r\n"),
        FILE.replace(b",", b"\t"),
        FILE.replace(b",", b";"),
        FILE.replace(b",", b" , "),
        FILE.rstrip(b"\n"),
        b"\xef\xbb\xbf" + FILE,
        b"\n\n" + FILE.replace(b"\n", b"\n\n"),
        gzip.compress(FILE, mtime=0),
        FILE.replace(b"0.5", b'"0.5"'),
        FILE.replace(b"label", b'"label"'),
    ],
    ids=["crlf", "tab", "semicolon", "spaces", "no end", "bom", "empty lines", "gzip", "quotes",
         "quoted name"],
)  # fmt: skip
def test_the_same_in_other_forms(text):
    plain, other = read(FILE), read(text)
    for name in ("data", "target", "qid"):
        np.testing.assert_array_equal(plain[name], other[name])


def test_as_the_csv_module_reads_it(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 30))
    X[rng.random(X.shape) < 0.3] = 0
    text = ['plain', 'with, comma', 'with "quotes"', 'two\nlines']  # fmt: skip
    queries = np.sort(rng.integers(0, 300, size=len(X)))
    path = tmp_path / "table.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["note", *(f"x{i}" for i in range(30)), "query", "label"])
        for row, query in zip(X.tolist(), queries.tolist(), strict=True):
            note = text[query % 4] if query >= 150 else "plain"  # quotes come late in the file
            writer.writerow([note, *map(repr, row), query, query % 3])
    features = [f"x{i}" for i in range(30)]
    table = load_csv(path, target="label", qid="query", features=features)
    np.testing.assert_array_equal(table.data, X)
    np.testing.assert_array_equal(table.qid, queries)
    np.testing.assert_array_equal(table.target, queries % 3)
    batches = list(iter_csv(path, target="label", qid="query", features=features, rows=700))
    np.testing.assert_array_equal(np.vstack([batch.data for batch in batches]), X)
    for before, after in itertools.pairwise(batches):
        assert before.qid[-1] != after.qid[0]
        assert len(before.target) <= 700
    cut = list(iter_csv(path, target=None, features=features, rows=700, by_query=False))
    assert [len(batch.data) for batch in cut] == [700] * 7 + [100]
    assert cut[0].target is None
    assert cut[0].qid is None


def test_query_ids_are_integers_only_if_all_are():
    assert read(FILE.replace(b"7,", b"x,")).qid.tolist() == ["1", "1", "x"]
    assert read(FILE.replace(b"7,", b"01,")).qid.tolist() == ["1", "1", "01"]
    assert read(FILE.replace(b"7,", b"9223372036854775808,")).qid.dtype.kind == "U"
    batches = iter_csv(io.BytesIO(FILE.replace(b"7,", b"x,")), target="label", qid="qid", rows=2)
    next(batches)
    with pytest.raises(ValueError, match="query id 'x' is no 64-bit integer"):
        next(batches)


def test_weights_and_no_header():
    table = read(FILE, sample_weight="b", qid=None, features=["a", "qid"])
    np.testing.assert_array_equal(table.sample_weight, [1000, 3, 5])
    np.testing.assert_array_equal(table.data, [[0.5, 1], [-0.25, 1], [4, 7]])
    bare = FILE.split(b"\n", 1)[1]
    table = load_csv(io.BytesIO(bare), target="2", qid="1", header=False)
    np.testing.assert_array_equal(table.data, read(FILE).data)
    assert table.feature_names == ["3", "4"]
    assert read(FILE, dtype=np.float32).data.dtype == np.float32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "<stream>: no data: the file is empty"),
        (b"\n \n", "<stream>: no data: the file is empty"),
        (b"qid,label,a\n", "<stream>: no data: there are no rows"),
        (FILE + b"1,2,3\n", "<stream>:5: this line has 3 cells, and the first one has 4"),
        (FILE + b'"1",2,3\n', "<stream>:5: this line has 3 cells, and the first one has 4"),
        (FILE + b"1,2,,3\n", "<stream>:5: column 'a' is empty; every row needs a number"),
        (FILE + b"1,x,1,3\n", "<stream>:5: column 'label' is 'x', not a finite number"),
        (FILE + b"1,nan,1,3\n", "<stream>:5: column 'label' is 'nan', not a finite number"),
        (FILE + b"1,1,1,inf\n", "<stream>:5: column 'b' is 'inf', not a finite number"),
        (FILE + b"1,1,1,1e999\n", "<stream>:5: column 'b' is '1e999', not a finite number"),
        (FILE + b"1,1,1,1_0\n", "<stream>:5: column 'b' is '1_0', not a finite number"),
        (FILE + b" ,1,1,1\n", "<stream>:5: column 'qid' is empty; every row needs an id"),
        (FILE + b'1,1,1,"1\n2,2\n', "<stream>:5: this line cannot be read .* mark missing"),
        (FILE + b"1,1,\xff,1\n", "<stream>:5: this is not UTF-8 text"),
        (FILE + b"1,1,\0,1\n", "this is binary data"),
        (b"1,2,3\n2,3,4\n", "<stream>:1: the first line has numbers .* header=False"),
        (b"qid,label,a,a\n", "<stream>:1: two columns are named 'a'"),
        (gzip.compress(FILE, mtime=0)[:30], "gzip data is truncated or corrupt"),
    ],
)
def test_bad_files(text, message):
    with pytest.raises(ValueError, match=message):
        read(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "lable"}, r"no column 'lable' for target \(did you mean 'label'\?\)"),
        ({"qid": "Qid"}, r"no column 'Qid' for qid \(did you mean 'qid'\?\)"),
        ({"features": ["a", "a"]}, "features names 'a' twice"),
        ({"drop": ["a", "b"]}, "no column left for the features"),
        ({"features": [], "target": None, "qid": None}, "no column to read"),
        ({"drop": "c"}, r"no column 'c' for drop; the columns are 'qid', 'label', 'a', 'b'"),
        ({"drop": ["a", "a"]}, "drop names 'a' twice"),
        ({"drop": 3}, "drop must be names of columns; got 3"),
        ({"drop": "qid"}, "column 'qid' is read, and cannot be dropped"),
        ({"drop": "b", "features": ["a", "b"]}, "'b' is one of the features, and dropped"),
        ({"target": 3}, "are names of columns; got 3"),
        ({"delimiter": "::"}, "delimiter must be one character"),
        ({"header": 1}, "header must be True or False"),
        ({"dtype": int}, "dtype must be"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        read(FILE, **options)


def test_too_large_for_float32():
    with pytest.raises(
        ValueError, match=r"<stream>:2: column 'b' is 1e\+300, too large for float32"
    ):
        read(FILE.replace(b"1e3", b"1e300"), dtype=np.float32)


def test_a_query_that_comes_back():
    batches = iter_csv(io.BytesIO(FILE + b"1,2,3,4\n"), target="label", qid="qid")
    with pytest.raises(ValueError, match="<stream>:5: query '1' comes back after another query"):
        list(batches)


# ---------------------------------------------------------------------- a file of any kind


@pytest.fixture(scope="module")
def data():
    return make_ranking(n_queries=20, n_features=5, random_state=0)


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    """The same rows in every format."""
    folder = tmp_path_factory.mktemp("files")
    frame = pd.DataFrame(data.data, columns=list("abcde"))
    frame.insert(0, "Relevance", data.target)
    frame.insert(0, "query_id", data.qid)
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_csv(folder / "rows.tsv.gz", index=False, sep="\t")
    frame.to_csv(folder / "rows.txt", index=False, sep=";")
    frame.to_parquet(folder / "rows.parquet", row_group_size=40)
    frame.to_feather(folder / "rows.feather", compression="uncompressed")
    dump_letor(data.data, data.target, folder / "rows.dat", qid=data.qid)
    dump_letor(data.data, data.target, folder / "letor.txt.gz", qid=data.qid)
    return folder


NAMES = ["rows.csv", "rows.tsv.gz", "rows.txt", "rows.parquet", "rows.feather", "rows.dat",
         "letor.txt.gz"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_file_gives_the_same_rows(files, data, name):
    read = load_ranking(files / name)
    np.testing.assert_array_equal(read.data, data.data)
    np.testing.assert_array_equal(read.target, data.target)
    np.testing.assert_array_equal(read.qid, data.qid)
    letor = name in ("rows.dat", "letor.txt.gz")
    columnar = name.endswith(("parquet", "feather"))
    assert read.format == ("letor" if letor else "parquet" if columnar else "csv")
    assert read.feature_names == (None if letor else list("abcde"))
    assert read.target_name == (None if letor else "Relevance")
    whole = list(iter_ranking(files / name, rows=64))
    np.testing.assert_array_equal(np.vstack([batch.data for batch in whole]), data.data)
    assert len(whole) > 2
    for before, after in itertools.pairwise(whole):
        assert before.qid[-1] != after.qid[0]
    cut = list(iter_ranking(files / name, rows=64, by_query=False))
    assert {len(batch.data) for batch in cut[:-1]} == {64}
    one = load_ranking(files / name, qid=None, features=None if letor else ["b", "a"])
    assert one.qid is None
    assert one.data.shape[1] == (5 if letor else 2)
    streamed = RankRLS().fit_stream(iter_ranking(files / name, rows=64))
    expected = RankRLS().fit(data.data, data.target, qid=data.qid)
    np.testing.assert_allclose(streamed.coef_, expected.coef_, rtol=1e-9)


def test_open_files_and_pipes(files, data):
    with open(files / "rows.csv", "rb") as file:
        np.testing.assert_array_equal(load_ranking(file).data, data.data)
    opened = io.BytesIO((files / "rows.parquet").read_bytes())
    with pytest.raises(ValueError, match="are opened by name"):
        load_ranking(opened)

    class Pipe(io.RawIOBase):
        def __init__(self, content):
            self.content = io.BytesIO(content)

        def readable(self):
            return True

        def readinto(self, buffer):
            return self.content.readinto(buffer)

    pipe = io.BufferedReader(Pipe((files / "rows.dat").read_bytes()))
    np.testing.assert_array_equal(load_ranking(pipe).data, data.data)
    with pytest.raises(ValueError, match="a stream cannot be looked at twice"):
        load_ranking(Pipe(b""))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04 and so on", "a zip file"),
        (b"BZh91AY", "the bzip2 data is truncated or corrupt"),
        (b"\xff\xfe1\x00", "UTF-16"),
        (b"\x93NUMPY", "an array of NumPy"),
        (b"a,b\n1,2\n", "no column is called label, .* name the column of labels in target="),
        (b"a,label\n1,2\n", "no column is called qid.*, or pass qid=None if all rows"),
        (b"y,label,qid\n1,2,3\n", "'y' and 'label' could both be the column of labels"),
        (b"1 1:2\n0 1:3\n", "the lines have no query ids"),
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
    np.testing.assert_array_equal(read.data, [[1, 2]])
    read = load_ranking(io.BytesIO(b"1 1:2\n0 1:3\n"), need=("target",))
    assert read.qid is None
    with pytest.raises(ValueError, match="LETOR text, which has no columns by name: target='y'"):
        load_ranking(io.BytesIO(b"1 qid:1 1:2\n"), target="y")
    with pytest.raises(ValueError, match="format must be one of"):
        load_ranking(io.BytesIO(b""), format="xls")


# ---------------------------------------------------------------------- additions to LETOR, Parquet

WIDE = b"1 qid:1 1:1 2:2\n0 qid:2 1:3 9:4\n1 qid:1 3:5\n"


def test_features_beyond_are_dropped_with_one_warning():
    with pytest.warns(UserWarning, match="<stream>:2: feature 9 is beyond the first 2") as told:
        read = load_letor(io.BytesIO(WIDE), n_features=2, beyond="drop")
    assert len(told) == 1
    np.testing.assert_array_equal(read.data, [[1, 2], [3, 0], [0, 0]])
    with pytest.warns(UserWarning, match="feature 9 is beyond the first 8"):
        read = load_letor(io.BytesIO(WIDE), n_features=8, beyond="drop", sparse=True)
    assert sparse.issparse(read.data)
    assert read.data.nnz == 4
    wide = load_letor(io.BytesIO(WIDE), n_features=11, beyond="drop")
    assert wide.data.shape == (3, 11)
    with pytest.raises(ValueError, match="beyond must be one of"):
        load_letor(io.BytesIO(WIDE), beyond="keep")


def test_queries_in_any_order_without_by_query(tmp_path):
    with pytest.raises(ValueError, match="comes back after another query"):
        list(iter_letor(io.BytesIO(WIDE)))
    batches = list(iter_letor(io.BytesIO(WIDE), rows=2, by_query=False))
    assert [batch.qid.tolist() for batch in batches] == [[1, 2], [1]]
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"q": [1, 2, 1], "a": [1.0, 2.0, 3.0]}).to_parquet(path)
    batches = list(iter_parquet(path, target=None, qid="q", rows=2, by_query=False))
    assert [batch.qid.tolist() for batch in batches] == [[1, 2], [1]]
    assert batches[0].target is None


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_row_numbers_of_a_data_frame_are_no_feature(name):
    text = (
        name.encode()
        + b","
        + b"\n".join(
            [
                FILE.split(b"\n")[0],
                *(b"%d," % i + line for i, line in enumerate(FILE.split(b"\n")[1:4])),
            ]
        )
    )
    with pytest.raises(ValueError, match=r"row numbers of a data frame.*index=False.*features="):
        read(text)
    np.testing.assert_array_equal(read(text, features=["a", "b"]).data, read(FILE).data)
    assert read(text, features=[name, "a"]).feature_names == [name, "a"]  # if you insist


def test_row_index_that_pandas_keeps_in_parquet_is_no_feature(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2, 3, 4], "label": [0, 1, 0, 1], "qid": [1, 1, 2, 2]})
    frame.iloc[[0, 3, 1]].to_parquet(tmp_path / "some.parquet")
    assert load_ranking(tmp_path / "some.parquet").feature_names == ["a"]
    kept = load_ranking(tmp_path / "some.parquet", features=["a", "__index_level_0__"])
    np.testing.assert_array_equal(kept.data[:, 1], [0, 3, 1])


def test_blocks_of_empty_lines_after_booleans(monkeypatch):
    """A column that pyarrow cannot read as numbers, in a block without rows."""
    monkeypatch.setattr("rankrls.datasets._source._BLOCK_BYTES", 16)
    text = b"qid,label,a,b\n" + b"1,1,2,true\n1,0,3,false\n1,0,,true\n" * 3 + b"\n" * 4000
    text += b"2,1,5,true\n"
    for by_query in (True, False):
        batches = list(
            iter_ranking(io.BytesIO(text), format="csv", missing="nan", by_query=by_query)
        )
        X = np.concatenate([batch.data for batch in batches])
        assert X.shape == (10, 2)
        assert X[-1].tolist() == [5.0, 1.0]
        assert np.isnan(X[2, 0])
