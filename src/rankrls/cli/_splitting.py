"""``rankrls split``."""

from __future__ import annotations

import csv
import io
import os
import re
from functools import partial
from typing import Any

import numpy as np

from rankrls._streams import opened
from rankrls.cli._click_log import QUERIES, find_column
from rankrls.cli._files import check_output, output_file, write_all
from rankrls.cli._output import facts, number, queries
from rankrls.datasets.formats import sniff

__all__ = ["split"]


def split(o: Any) -> None:
    """Write the rows of some queries to one file, and all others to another."""
    if os.path.realpath(o.train) == os.path.realpath(o.test):
        raise ValueError(f"{o.test} is named twice: the two parts are written to two files")
    check_output(o.train, o.data)
    check_output(o.test, o.data)
    kind = sniff(o.data)
    if kind == "letor" and o.qid is not None:
        raise ValueError("--qid is for CSV and Parquet files: LETOR text has qid:…")
    read = {"letor": _letor, "csv": _csv, "parquet": _parquet}[kind]
    qid, parts = read(o.data, o.qid)
    names, codes = np.unique(np.asarray(qid, dtype=str), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"{o.data}: {queries(len(names))} cannot be split in two")
    n_test = min(max(round(o.share * len(names)), 1), len(names) - 1)
    chosen = np.random.default_rng(o.random_state).permutation(len(names))[:n_test]
    held, told = np.isin(codes, chosen), []
    for path, rows, n in ((o.train, ~held, len(names) - n_test), (o.test, held, n_test)):
        with output_file(path) as file:
            write_all(file, parts(rows))
        told.append((path, f"{number(int(rows.sum()))} rows of {queries(n)}"))
    facts(told)


def _text(path: str) -> str:
    with opened(path) as file:
        return b"".join(iter(partial(file.read, 1 << 20), b"")).decode("utf-8-sig")


def _letor(path: str, _: Any) -> tuple[Any, Any]:
    """Query of every line of LETOR text, and a function that returns some lines."""
    lines = _text(path).splitlines()
    rows = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    found = [re.match(r"\s*\S+\s+qid:(\S+)", line) for line in rows]
    if None in found:
        raise ValueError(f"{path}: row {found.index(None) + 1} has no qid:…, so it belongs to no "
                         "query")  # fmt: skip

    def parts(kept: Any) -> bytes:
        return "".join(rows[i] + "\n" for i in np.flatnonzero(kept)).encode("utf-8")

    return [match[1] for match in found if match is not None], parts


def _csv(path: str, qid: str | None) -> tuple[Any, Any]:
    """Query of every row of a CSV file, and a function that writes some rows, as they were."""
    text = _text(path)
    delimiter = max(",\t;|", key=text.partition("\n")[0].count)
    head, *rows = (row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row)
    place = head.index(find_column(head, qid, QUERIES, "qid"))
    for number_, row in enumerate(rows, 1):
        if len(row) != len(head):
            raise ValueError(f"{path}: row {number_} has {len(row)} cells, not {len(head)}")

    def parts(kept: Any) -> bytes:
        file = io.StringIO()
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerows([head, *(rows[i] for i in np.flatnonzero(kept))])
        return file.getvalue().encode("utf-8")

    return [row[place] for row in rows], parts


def _parquet(path: str, qid: str | None) -> tuple[Any, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.read_table(path)
    column = find_column(rows.column_names, qid, QUERIES, "qid")

    def parts(kept: Any) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(rows.filter(pa.array(kept)), sink)
        return bytes(sink.getvalue().to_pybytes())

    return rows[column].to_pylist(), parts
