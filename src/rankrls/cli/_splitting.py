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
from rankrls.datasets.formats import delimiter_of, sniff

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
    qid, part = _parquet(o) if kind == "parquet" else _text(o, kind)
    names, codes = np.unique(np.asarray(qid, dtype=str), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"{o.data}: {queries(len(names))} cannot be split in two")
    n_test = min(max(round(o.share * len(names)), 1), len(names) - 1)
    chosen = np.random.default_rng(o.random_state).permutation(len(names))[:n_test]
    held, told = np.isin(codes, chosen), []
    for path, rows, n in ((o.train, ~held, len(names) - n_test), (o.test, held, n_test)):
        with output_file(path) as file:
            write_all(file, part(rows))
        told.append((path, f"{number(int(rows.sum()))} rows of {queries(n)}"))
    facts(told)


def _text(o: Any, kind: str) -> tuple[list[str], Any]:
    """Query of every row of LETOR text or CSV, and a function that returns some rows, unchanged."""
    with opened(o.data) as file:
        text = b"".join(iter(partial(file.read, 1 << 20), b"")).decode("utf-8-sig")
    lines, head, rows, qid = list(io.StringIO(text, newline="")), "", [], []
    if kind == "letor":
        rows = [line for line in lines if line.partition("#")[0].strip()]
        found = [re.match(r"\s*\S+\s+qid:(\S+)", line) for line in rows]
        if None in found:
            row = found.index(None) + 1
            raise ValueError(f"{o.data}: row {row} has no qid:…, so it belongs to no query")
        qid = [match[1] for match in found if match is not None]
    else:
        reader, first = csv.reader(lines, delimiter=delimiter_of(text.lstrip())), 0
        names: list[str] = []
        for cells in reader:
            record, first = "".join(lines[first : reader.line_num]), reader.line_num
            if cells and not names:
                head, names = record, cells
                place = names.index(find_column(names, o.qid, QUERIES, "qid"))
            elif cells:
                rows.append(record)
                if len(cells) != len(names):
                    what = f"{len(cells)} cells, not {len(names)}"
                    raise ValueError(f"{o.data}: row {len(rows)} has {what}")
                qid.append(cells[place])

    def part(kept: Any) -> bytes:
        some = (rows[i].rstrip("\r\n") + "\n" for i in np.flatnonzero(kept))
        return "".join([head, *some]).encode("utf-8")

    return qid, part


def _parquet(o: Any) -> tuple[list[Any], Any]:
    """The same for a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(o.data)

    def part(kept: Any) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(table.filter(pa.array(kept)), sink)
        return bytes(sink.getvalue().to_pybytes())

    return table[find_column(table.column_names, o.qid, QUERIES, "qid")].to_pylist(), part
