"""``rankrls split``."""

from __future__ import annotations

import csv
import re
from functools import partial
from typing import Any

import numpy as np

from rankrls._streams import opened
from rankrls.cli._click_log import QUERIES
from rankrls.cli._files import check_output, output_file, write_all
from rankrls.cli._output import facts, number, queries
from rankrls.datasets.formats import sniff

__all__ = ["split"]


def split(o: Any) -> None:
    """Write the rows of some queries to one file, and all others to another."""
    check_output(o.train, o.data, o.test)
    check_output(o.test, o.data, o.train)
    kind = sniff(o.data)
    qid, parts = _letor(o.data, o.qid) if kind == "letor" else _table(o.data, kind, o.qid)
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


def _content(path: str) -> bytes:
    with opened(path) as file:
        return b"".join(iter(partial(file.read, 1 << 20), b"")).removeprefix(b"\xef\xbb\xbf")


def _letor(path: str, qid_column: str | None) -> tuple[list[str], Any]:
    """Query of every line of LETOR text, and a function that returns some lines."""
    if qid_column is not None:
        raise ValueError("--qid is for CSV and Parquet files: LETOR text has qid:…")
    lines = _content(path).decode("utf-8").splitlines()
    rows = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    found = [re.match(r"\s*\S+\s+qid:(\S+)", line) for line in rows]
    if None in found:
        raise ValueError(f"{path}: row {found.index(None) + 1} has no qid:…, so it belongs to no "
                         "query")  # fmt: skip

    def parts(kept: Any) -> bytes:
        return "".join(rows[i] + "\n" for i in np.flatnonzero(kept)).encode("utf-8")

    return [match[1] for match in found if match is not None], parts


def _table(path: str, kind: str, qid_column: str | None) -> tuple[Any, Any]:
    """Query of every row of a table, and a function that returns some rows in its format."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    delimiter = ","
    try:
        if kind == "parquet":
            rows = pq.read_table(path)
        else:
            text = _content(path)
            head = text.partition(b"\n")[0].decode("utf-8").rstrip("\r")
            delimiter = max(",\t;|", key=head.count)
            names = next(csv.reader([head], delimiter=delimiter))
            rows = pa_csv.read_csv(
                pa.BufferReader(text),
                parse_options=pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                # Cells stay as they are written.
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string())
                ),
            )
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path}: {str(error).splitlines()[0]}") from error
    likely = (name for name in rows.column_names if name.lower() in QUERIES)
    column = qid_column or next(likely, None)
    if column not in rows.column_names:
        has = ", ".join(map(repr, rows.column_names))
        raise ValueError(f"{path}: name the column of query ids by --qid; it has {has}")

    def parts(kept: Any) -> bytes:
        sink, chosen = pa.BufferOutputStream(), rows.filter(pa.array(kept))
        if kind == "parquet":
            pq.write_table(chosen, sink)
        else:
            options = pa_csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
            pa_csv.write_csv(chosen, sink, options)
        return sink.getvalue().to_pybytes()

    return rows[column].to_pylist(), parts
