"""Nasty CSV against Python's csv module and float: equal values, or an error with the line."""

import csv
import io
import math
import random
import re

import numpy as np
import pytest

from rankrls.datasets import formats, load_csv, load_ids, load_ranking

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
