"""CSV files: forms, errors with their line, and nasty cells against the csv module and float."""

import csv
import gzip
import io
import math
import random
import re

import numpy as np
import pandas as pd
import pytest

from rankrls.datasets import formats, load_csv, load_ids, load_ranking

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
        (b"qid;label;a\n1;2;11,46\n", ":2: column 'a' is '11,46'.*write a decimal point"),
        (b"qid;label;name;a\n1;2;x;11,46\n", "drop='name'.*the numbers of 'a' with a decimal p"),
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


@pytest.mark.parametrize("cell", ["1,299.00", "1_000", "12 500", "1'000'000"])
def test_thousands_separators(cell):
    """They are told where a number is needed, and make text of a column, whatever else is in it."""
    text = f"qid;label;price\n1;2;{cell}\n1;1;5\n".encode()
    with pytest.raises(ValueError, match=r":2: column 'price' is .*without thousands separators"):
        read(text)
    for more in (b"", b"1;1;word\n"):
        table = load_ranking(io.BytesIO(text + more), text="auto").data
        assert table["price"].tolist()[:2] == [cell, "5"]


# -- equal values, or an error with the line

NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

PLAIN = ["1", "-2.5", "+3", ".5", "5.", "1e3", "1E-3", " 4 ", "-0", "9007199254740993"]

QUOTED = ['"7"', '"8 "', '" 9"', '"1""2"', '"1,2"', '"1\n2"', '"\n3"', '"3\n"', '"1,000"', '""',
          '"2\x1f3"', '"1\x1f"', '"\x1f1"', '"1\r2"', '"1\r\n2"', '"\t1"', '1"2', '"1',
          '1"',
          "'1'", '\\"1"']  # fmt: skip

ODD = ["1_000", "inf", "nan", "0x10", "1,000", "١", "²", "", "2\x1f3", "\ufeff1", "1\r2", "true",
       "FALSE", "True ", "1d5", "1e999", "00", "1" * 400, "0." + "1" * 400, "1 2", "1;2", "1e", ".",
       "+-1", "\x7f", "\x1b[0m", "4.9e-324", "2.2250738585072011e-308", "1E+02", "1\\n", "NULL",
       "\u20287", "8\u2029", "\xa06", "\x855"]  # fmt: skip

CONTROLS = [f"{before}{chr(i)}{after}" for i in range(33) for before, after in ["1 ", " 1", "12"]]


def by_the_csv_module(text, delimiter):
    """Cells of all rows, or None if there are none or something is wrong with them."""
    if "\0" in text:
        return None
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter))
    except csv.Error:
        return None
    rows = [[cell.strip() for cell in row] for row in rows if any(map(str.strip, row))]
    return rows if rows and len(set(map(len, rows))) == 1 else None


def numbers(rows):
    """The cells as numbers, or None if one of them is not a finite one."""

    def number(cell):
        if cell.lower() in ("true", "false"):
            return float(cell.lower() == "true")
        return float(cell) if NUMBER.fullmatch(cell) else math.nan

    table = np.array([[number(cell) for cell in row] for row in rows])
    return table if np.isfinite(table).all() else None


def draw(rng, delimiter):
    """A small file, mostly plain."""
    width, end = rng.randint(1, 4), rng.choice(["\n", "\n", "\n", "\r\n", "\r"])
    odd = rng.choice([0, 0.05, 0.3])
    lines = []
    for _ in range(rng.randint(1, 6)):
        n_cells = width if rng.random() < 0.97 else rng.randint(0, 5)
        kinds = [PLAIN if rng.random() >= odd else rng.choice([QUOTED, ODD, CONTROLS])
                 for _ in range(n_cells)]  # fmt: skip
        lines.append(delimiter.join(rng.choice(kind) for kind in kinds))
        more = rng.random()
        if more < 0.02:
            lines[-1] += delimiter
        elif more < 0.1:
            lines.append(rng.choice(["", "  "]))
    return "\ufeff" * (rng.random() < 0.1) + end.join(lines) + end * (rng.random() < 0.7)


def attempt(text, **options):
    """The table, or what is wrong with it."""
    try:
        return load_csv(io.BytesIO(text.encode()), **options), None
    except ValueError as error:
        return None, str(error)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", " ", "|", "\x1f"])
def test_never_other_numbers(monkeypatch, delimiter):
    rng = random.Random(f"numbers {delimiter}")
    n_equal = n_errors = 0
    for _ in range(200):
        monkeypatch.setattr(formats, "_BLOCK_BYTES", rng.choice([1, 7, 30, 1 << 20]))
        text = draw(rng, delimiter)
        rows = by_the_csv_module(text.removeprefix("\ufeff"), delimiter)
        expected = None if rows is None else numbers(rows)
        options = {"target": None, "header": False, "delimiter": delimiter}
        table, error = attempt(text, **options)
        if table is None:
            place = re.match(r"<stream>(:(\d+))?: ", error)
            assert place, error
            assert place[2] is None or 1 <= int(place[2]) <= text.count("\n") + 1, repr(text)
            n_errors += 1
            continue
        assert expected is not None, repr(text)
        np.testing.assert_array_equal(table.data, expected, err_msg=repr(text))
        n_equal += 1
    assert n_equal > 30
    assert n_errors > 30


WORDS = ["plain", "two words", "with, comma", 'with "quotes"', "two\nlines", "", " padded ", "NA",
         "a\r\nb", "über", "\n", '"', "x" * 300]  # fmt: skip


@pytest.mark.parametrize("delimiter", [",", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("n_bytes", [50, 500, 1 << 20])
def test_long_files_with_quotes(monkeypatch, delimiter, end, n_bytes):
    """Cells that hold ends of lines are cut by the ends of blocks at every place."""
    monkeypatch.setattr(formats, "_BLOCK_BYTES", n_bytes)
    rng = random.Random(f"{delimiter}{end}{n_bytes}")
    rows = [[rng.choice(WORDS), rng.choice(["1", "true", "", " NA ", "+2.5e1", "1e-310"]),
             f"q{i // 7}" if rng.random() < 0.99 else f'q{i // 7} "x"', str(i % 3)]
            for i in range(400)]  # fmt: skip
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=delimiter, lineterminator=end,
                        quoting=rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))  # fmt: skip
    writer.writerows([["word", "number", "qid", "label"], *rows])
    text = file.getvalue()
    options = {"delimiter": delimiter, "missing": "nan", "format": "csv", "text": ["word"]}
    found = load_ranking(io.BytesIO(text.encode()), **options)
    words = [row[0].strip() for row in rows]
    assert found.data["word"].tolist() == [w or None for w in words]
    values = {"1": 1, "true": 1, "": math.nan, " NA ": math.nan, "+2.5e1": 25, "1e-310": 1e-310}
    np.testing.assert_array_equal(found.data["number"], [values[row[1]] for row in rows])
    assert found.qid.tolist() == [row[2] for row in rows]
    np.testing.assert_array_equal(found.target, [float(row[3]) for row in rows])
    # A wrong cell in the last row is named by its line.
    writer.writerow(["word", "wrong", "q", "1"])
    line = text.count("\n") + 1
    with pytest.raises(ValueError, match=rf"<stream>:{line}: column 'number' is 'wrong'"):
        load_ranking(io.BytesIO(file.getvalue().encode()), **options)
    file.write(f"word{delimiter}1{end}")
    with pytest.raises(ValueError, match=rf"<stream>:{line + 1}: this line has 2 cells"):
        load_ids(io.BytesIO(file.getvalue().encode()), "qid", format="csv", delimiter=delimiter)


@pytest.mark.parametrize("quote", ["", '"'])
def test_rows_of_empty_cells_are_not_skipped(quote):
    text = f"{quote}label{quote},a,b\n1,2,3\n,,\n0,4,5\n".encode()
    with pytest.raises(ValueError, match=":3: column 'label' is empty"):
        load_csv(io.BytesIO(text), target="label")
    text = text.replace(b"\n,,", b"\n2,,")
    read = load_csv(io.BytesIO(text), target="label", missing="nan")
    np.testing.assert_array_equal(read.data, [[2, 3], [np.nan, np.nan], [4, 5]])


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ('"2\x1f3"', r":3: column 'a' is '2\\x1f3', not a finite number"),
        ('"2\n3"', r":3: column 'a' is '2\\n3', not a finite number"),
        ('"1\n"', None),
        ('"2\r3"', r":3: column 'a' is '2\\r3', not a finite number"),
        ("2\r3", r":3: a carriage return stands inside this line"),
        ('"2', r":3: this line cannot be read .*is a quotation mark missing"),
        ("1_000", r":3: column 'a' is '1_000', not a finite number"),
        ("١", r":3: column 'a' is '١', not a finite number"),
    ],
)
@pytest.mark.parametrize("quote", ["", '"'])
def test_the_place_of_a_cell(cell, message, quote):
    text = f"{quote}label{quote},a,b\n1,2,3\n0,{cell},4\n1,5,6\n".encode()
    if message is None:
        np.testing.assert_array_equal(
            load_csv(io.BytesIO(text), target="label").data, [[2, 3], [1, 4], [5, 6]]
        )
        return
    with pytest.raises(ValueError, match=f"<stream>{message}"):
        load_csv(io.BytesIO(text), target="label")
