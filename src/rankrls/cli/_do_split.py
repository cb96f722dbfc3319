"""``rankrls split``."""

from __future__ import annotations

import csv
import re
from functools import partial
from typing import Any

import numpy as np

from rankrls._streams import opened
from rankrls.cli._files import check_output, output_file, write_all
from rankrls.cli._output import facts, number, queries
from rankrls.datasets.formats import sniff

__all__ = ["split"]

BOM = b"\xef\xbb\xbf"

#: Names of a column of query ids, as the readers look for it.
QUERY_COLUMNS = ("qid", "query_id", "queryid", "query")


def split(
    data: str, train: str, test: str, share: float, qid_column: str | None, seed: int
) -> None:
    """Write the rows of some queries to one file, and all others to another."""
    check_output(train, data, test)
    check_output(test, data, train)
    kind = sniff(data)[0]
    write = _letor if kind == "letor" else _table
    qid, parts = write(data, kind, qid_column)
    names, codes = np.unique(np.asarray(qid, dtype=str), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"{data}: {queries(len(names))} cannot be split in two")
    n_test = min(max(round(share * len(names)), 1), len(names) - 1)
    chosen = np.random.default_rng(seed).permutation(len(names))[:n_test]
    held = np.isin(codes, chosen)
    for path, rows in ((train, ~held), (test, held)):
        with output_file(path) as file:
            write_all(file, parts(rows))
    sizes = ((train, len(names) - n_test, ~held), (test, n_test, held))
    facts([(path, f"{number(int(rows.sum()))} rows of {queries(n)}") for path, n, rows in sizes])


def _letor(path: str, kind: str, qid_column: str | None) -> tuple[list[str], Any]:
    """Query of every line of LETOR text, and a function that returns some lines."""
    if qid_column is not None:
        raise ValueError("--qid-column is for CSV and Parquet files: LETOR text has qid:…")
    with opened(path) as file:
        lines = b"".join(iter(partial(file.read, 1 << 20), b"")).decode("utf-8").splitlines()
    rows = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    found = [re.match(r"\s*\S+\s+qid:(\S+)", line) for line in rows]
    missing = next((i for i, match in enumerate(found) if match is None), None)
    if missing is not None:
        raise ValueError(f"{path}: row {missing + 1} has no qid:…, so it belongs to no query")
    qid = [match[1] for match in found if match is not None]

    def parts(kept: Any) -> bytes:
        chosen = [row for row, keep in zip(rows, kept, strict=True) if keep]
        return ("\n".join(chosen) + "\n").encode("utf-8")

    return qid, parts


def _table(path: str, kind: str, qid_column: str | None) -> tuple[Any, Any]:
    """Query of every row of a table, and a function that returns some rows in its format."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    delimiter = ","
    try:
        if kind == "parquet":
            table = pq.read_table(path)
        else:
            with opened(path) as file:
                text = b"".join(iter(partial(file.read, 1 << 20), b"")).removeprefix(BOM)
            head = text.partition(b"\n")[0].decode("utf-8").rstrip("\r")
            delimiter = max(",\t;|", key=head.count)
            names = next(csv.reader([head], delimiter=delimiter))
            table = pa_csv.read_csv(
                pa.BufferReader(text),
                parse_options=pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                # Cells stay as they are written.
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string())
                ),
            )
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path}: {str(error).splitlines()[0]}") from error
    column = qid_column or next(
        (name for name in table.column_names if name.lower() in QUERY_COLUMNS), None
    )
    if column is None or column not in table.column_names:
        listed = ", ".join(map(repr, table.column_names))
        raise ValueError(f"{path}: name the column of query ids by --qid-column; it has {listed}")

    def parts(kept: Any) -> bytes:
        sink = pa.BufferOutputStream()
        chosen = table.filter(pa.array(kept))
        if kind == "parquet":
            pq.write_table(chosen, sink)
        else:
            options = pa_csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
            pa_csv.write_csv(chosen, sink, options)
        return sink.getvalue().to_pybytes()

    return table[column].to_pylist(), parts
