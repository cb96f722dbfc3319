"""CSV files: forms, query ids, row numbers, and errors with their line."""

import gzip
import io

import numpy as np
import pandas as pd
import pytest

from rankrls.datasets import load_csv, load_ranking

FILE = b"qid,label,a,b\n1,2,0.5,1e3\n1,0,-.25,+3\n7,1,4,5.\n"


def read(text, **options):
    return load_csv(io.BytesIO(text), **{"target": "label", "qid": "qid", **options})


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


def test_query_ids_are_integers_only_if_all_are():
    assert read(FILE.replace(b"7,", b"x,")).qid.tolist() == ["1", "1", "x"]
    assert read(FILE.replace(b"7,", b"01,")).qid.tolist() == ["1", "1", "01"]
    assert read(FILE.replace(b"7,", b"9223372036854775808,")).qid.dtype.kind == "U"


def test_weights_and_no_header():
    table = read(FILE, sample_weight="b", qid=None, features=["a", "qid"])
    np.testing.assert_array_equal(table.sample_weight, [1000, 3, 5])
    np.testing.assert_array_equal(table.data, [[0.5, 1], [-0.25, 1], [4, 7]])
    bare = FILE.split(b"\n", 1)[1]
    table = load_csv(io.BytesIO(bare), target="2", qid="1", header=False)
    np.testing.assert_array_equal(table.data, read(FILE).data)
    assert table.feature_names == ["3", "4"]
    assert read(FILE, dtype=np.float32).data.dtype == np.float32
    for missing in ("error", "nan"):
        with pytest.raises(ValueError, match=r":2: column 'b' is 1e\+300, too large for float32"):
            read(FILE.replace(b"1e3", b"1e300"), dtype=np.float32, missing=missing)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "<stream>: no data: the file is empty"),
        (b"\n \n", "<stream>: no data: the file is empty"),
        (b"qid,label,a\n", "<stream>: no data: there are no rows"),
        (FILE + b"1,2,3\n", "<stream>:5: this line has 3 cells, and the first one has 4"),
        (FILE + b"1,2,,3\n", "<stream>:5: column 'a' is empty; every row needs a number"),
        (FILE + b"1,x,1,3\n", "<stream>:5: column 'label' is 'x', not a finite number"),
        (FILE + b"1,1,1,inf\n", "<stream>:5: column 'b' is 'inf', not a finite number"),
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


# ---------------------------------------------------------------------- a file of any kind


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_row_numbers_of_a_data_frame_are_no_feature(name):
    head, *lines = FILE.split(b"\n")[:4]
    rows = [b"%d,%s" % (i, line) for i, line in enumerate(lines)]
    text = b"\n".join([b"%s,%s" % (name.encode(), head), *rows])
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


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b'qid;label;"x,y,z"\n1;2;3\n', ["qid", "label", "x,y,z"]),
        (b'"a;b;c;d",qid,label\n1,2,3\n', ["a;b;c;d", "qid", "label"]),
        (b'"a\nb, c";qid;label\n1;2;3\n', ["a\nb, c", "qid", "label"]),
    ],
)
def test_delimiters_in_quotes_are_not_counted(text, names):
    table = read(text)
    assert [*table.feature_names, "qid", "label"] == sorted(
        names, key=lambda n: n in ("qid", "label")
    )


def test_decimal_commas():
    with pytest.raises(ValueError, match=r":2: column 'price' is '11,46'.*write a decimal point"):
        read(b"qid;label;price\n1;2;11,46\n1;1;5\n")
    with pytest.raises(ValueError, match=r"drop='name'.*the numbers of 'price' with a decimal p"):
        read(b"qid;label;name;price\n1;2;a;11,46\n1;1;b;5\n")


@pytest.mark.parametrize("cell", ["1,299.00", "1_000", "12 500", "1'000'000"])
def test_thousands_separators(cell):
    """They are told where a number is needed, and make text of a column, whatever else is in it."""
    text = f"qid;label;price\n1;2;{cell}\n1;1;5\n".encode()
    with pytest.raises(ValueError, match=r":2: column 'price' is .*without thousands separators"):
        read(text)
    for more in (b"", b"1;1;word\n"):
        table = load_ranking(io.BytesIO(text + more), text="auto").data
        assert table["price"].tolist()[:2] == [cell, "5"]
