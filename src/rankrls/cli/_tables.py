"""Tables that are made of others: rows of click logs, and ``rankrls split``."""

from __future__ import annotations

import csv
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from rankrls._frames import QUERY_NAMES
from rankrls.cli._files import Copy, check_output, shown, write_file
from rankrls.cli._output import facts, listed, note, number, queries
from rankrls.datasets.formats import find_delimiter, sniff, text_blocks

__all__ = ["click_rows", "split"]

#: Names of columns of items.
ITEMS = ("item", "item_id", "doc", "doc_id", "docid", "product", "product_id", "id")

#: Columns of a log: their role, option, and usual names.
ROLES = (("query", "qid", QUERY_NAMES), ("item", "item", ITEMS), ("position", "position", ()),
         ("clicks", "clicks", ()), ("impressions", "impressions", ()))  # fmt: skip

#: Columns of the rows that are made.
LABEL, WEIGHT = "click_label", "click_weight"


@contextmanager
def click_rows(o: Any) -> Iterator[tuple[Any, Any]]:
    """Options for rows of a click log, in a temporary Parquet file, and the `Examination`."""
    if o.clicks is None:
        yield o, None
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    from rankrls.clicks import click_labels, estimate_examination, open_log

    name = " and ".join(o.data)
    try:
        parts = [open_log(path, o.delimiter).to_table() for path in o.data]
        log = pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(f"{name}: {str(error).splitlines()[0]}") from error
    columns: dict[str, Any] = {
        role: find_column(name, log.column_names, getattr(o, option), known, option)
        for role, option, known in ROLES
        if role != "impressions" or o.impressions is not None
    }
    counts = log.select(list(columns.values()))
    examination = estimate_examination(counts, **columns)
    labels = click_labels(counts, **columns, examination=examination)
    keys = [columns["query"], columns["item"]]
    others = [one for one in log.column_names if one not in columns.values()]
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    types = {one: log.schema.field(one).type for one in log.column_names}
    sums = [(one, "mean" if any(kind(types[one]) for kind in kinds) else "first") for one in others]
    # The first value of a group is defined for one thread only.
    rows = log.group_by(keys, use_threads=False).aggregate(sums)
    rows = rows.select([*keys, *(f"{one}_{how}" for one, how in sums)])
    rows = rows.rename_columns([*keys, *others])
    ids = zip(keys, (labels.query, labels.item), strict=True)
    made = {key: pa.array(values, type=types[key]) for key, values in ids}
    made = pa.table(made | {LABEL: labels.label, WEIGHT: labels.weight})
    rows = made.join(rows, keys=keys).sort_by([(key, "ascending") for key in keys])
    n_clicks, n_never = int(labels.clicks.sum()), labels.n_left_out
    pairs = zip(examination.positions, examination.examination, strict=True)
    note(f"{number(n_clicks)} clicks on {number(len(labels))} items of queries; examination by "
         f"position {listed([f'{p:g}: {x:.2f}' for p, x in pairs])}"
         + f"; {number(n_never)} items were never examined" * (n_never > 0))  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "clicks.parquet")
        pq.write_table(rows, path)
        given = [one for one in o.given if one not in ("no_header", "delimiter", "format")]
        changed = {
            "data": (path,), "format": "parquet", "target": LABEL, "sample_weight": WEIGHT,
            "qid": keys[0], "drop": (*o.drop, keys[1]), "no_header": False, "delimiter": None,
            "given": given, "shown_name": name,
        }  # fmt: skip
        try:
            yield SimpleNamespace(**vars(o) | changed), examination
        except ValueError as error:  # of the user's file, not of the temporary one
            error.args = (str(error).replace(path, name),)
            raise


def find_column(
    file: str, names: Sequence[str], given: str | None, known: Sequence[str], option: str
) -> str:
    """The column of an option, or the one with a known name."""
    column = given or next((name for name in names if name.lower() in known), None)
    if column is None or column not in names:
        what = f"no column {column!r}" if column else "no column is called " + ", ".join(known)
        has = ", ".join(map(repr, names))
        raise ValueError(f"{file}: {what}: name it by --{option}; the columns are {has}")
    return column


def split(o: Any) -> None:
    """Write the rows of some queries to one file, and all others to another."""
    if os.path.realpath(o.train) == os.path.realpath(o.test):
        raise ValueError(f"{o.test} is named twice: the two parts are written to two files")
    check_output(o.train, o.data)
    check_output(o.test, o.data)
    name, file = shown(o.data), Copy(o.data) if o.data == "-" else o.data
    kind = sniff(file)
    if kind == "letor" and o.qid is not None:
        raise ValueError("--qid is for CSV and Parquet files: LETOR text has qid:…")
    qid, part = (_parquet if kind == "parquet" else _text)(file, name, kind, o.qid)
    for row, one in enumerate(qid, 1):
        if one is None or not str(one).strip():
            raise ValueError(f"{name}: row {row} has no query id, so it belongs to no query")
    names, codes = np.unique(np.asarray(qid, dtype=str), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"{name}: {queries(len(names))} cannot be split in two")
    n_test = min(max(round(o.share * len(names)), 1), len(names) - 1)
    chosen = np.random.default_rng(o.random_state).permutation(len(names))[:n_test]
    held, told = np.isin(codes, chosen), []
    for path, rows, n in ((o.train, ~held, len(names) - n_test), (o.test, held, n_test)):
        write_file(path, [part(rows)])
        told.append((path, f"{number(int(rows.sum()))} rows of {queries(n)}"))
    facts(told)


def _text(file: Any, name: str, kind: str, column: str | None) -> tuple[list[str], Any]:
    """Query of every row of LETOR text or CSV, and a function that returns some rows, unchanged."""
    delimiter = "" if kind == "letor" else find_delimiter(file)
    lines = [line + "\n" for _, block in text_blocks(file) for line in block]
    head, rows, qid = "", [], []
    if kind == "letor":
        rows = [line for line in lines if line.partition("#")[0].strip()]
        found = [re.match(r"\s*\S+\s+qid:(\S+)", line) for line in rows]
        qid = ["" if match is None else match[1] for match in found]
    else:
        reader, first = csv.reader(lines, delimiter=delimiter), 0
        names: list[str] = []
        for cells in reader:
            record, first = "".join(lines[first : reader.line_num]), reader.line_num
            if cells and not names:
                head, names = record, cells
                place = names.index(find_column(name, names, column, QUERY_NAMES, "qid"))
            elif cells:
                rows.append(record)
                if len(cells) != len(names):
                    what = f"{len(cells)} cells, not {len(names)}"
                    raise ValueError(f"{name}: row {len(rows)} has {what}")
                qid.append(cells[place])

    def part(kept: Any) -> bytes:
        return "".join([head, *(rows[i] for i in np.flatnonzero(kept))]).encode("utf-8")

    return qid, part


def _parquet(file: Any, name: str, kind: str, column: str | None) -> tuple[list[Any], Any]:
    """The same for a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(file)

    def part(kept: Any) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(table.filter(pa.array(kept)), sink)
        return bytes(sink.getvalue().to_pybytes())

    found = find_column(name, table.column_names, column, QUERY_NAMES, "qid")
    return table[found].to_pylist(), part
