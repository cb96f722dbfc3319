"""Click logs as files of rows: one row for each query and item, with a label and a weight."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from rankrls.cli._output import listed, note, number

__all__ = ["QUERIES", "click_rows"]

#: Names of columns of queries and of items.
QUERIES = ("qid", "query_id", "queryid", "query")
ITEMS = ("item", "item_id", "doc", "doc_id", "docid", "product", "product_id", "id")

#: Columns of a log: their role, option, and usual names.
ROLES = (("query", "qid", QUERIES), ("item", "item", ITEMS), ("position", "position", ()),
         ("clicks", "clicks", ()), ("impressions", "impressions", ()))  # fmt: skip

#: Columns of the rows that are made.
LABEL, WEIGHT = "click_label", "click_weight"


@contextmanager
def click_rows(o: Any) -> Iterator[tuple[Any, Any]]:
    """Options for rows that are made from a click log, and the `Examination`; others as they are.

    The rows are in a temporary Parquet file, which is then read as any other.
    """
    if o.clicks is None:
        yield o, None
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    from rankrls.clicks import click_labels, estimate_examination

    try:
        log = _read(o)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{o.data[0]}: {str(error).splitlines()[0]}") from error
    columns: dict[str, Any] = {
        name: _column(log, getattr(o, option), known, option)
        for name, option, known in ROLES
        if name != "impressions" or o.impressions is not None
    }
    counts = log.select(list(columns.values()))
    examination = estimate_examination(counts, **columns)
    labels = click_labels(counts, **columns, examination=examination)
    keys = [columns["query"], columns["item"]]
    others = [name for name in log.column_names if name not in columns.values()]
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    numeric = {name: any(kind(log.schema.field(name).type) for kind in kinds) for name in others}
    sums = [(name, "mean" if numeric[name] else "first") for name in others]
    # The first value of a group is defined for one thread only.
    rows = log.group_by(keys, use_threads=False).aggregate(sums)
    rows = rows.select([*keys, *(f"{name}_{how}" for name, how in sums)])
    rows = rows.rename_columns([*keys, *others])
    made = pa.table(
        {
            keys[0]: pa.array(labels.query, type=log.schema.field(keys[0]).type),
            keys[1]: pa.array(labels.item, type=log.schema.field(keys[1]).type),
            LABEL: labels.label,
            WEIGHT: labels.weight,
        }
    )
    rows = made.join(rows, keys=keys).sort_by([(key, "ascending") for key in keys])
    n_clicks = int(labels.clicks.sum())
    left_out = f"; {number(labels.n_left_out)} items were never examined" * (labels.n_left_out > 0)
    note(
        f"{number(n_clicks)} clicks on {number(len(labels))} items of queries; examination by "
        "position "
        + listed([f"{p:g}: {x:.2f}" for p, x in
                  zip(examination.positions, examination.examination, strict=True)])
        + left_out
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "clicks.parquet")
        pq.write_table(rows, path)
        given = [name for name in o.given if name not in ("no_header", "delimiter", "format")]
        changed = {
            "data": (path,), "format": "parquet", "target": LABEL, "sample_weight": WEIGHT,
            "qid": keys[0], "drop": (*o.drop, keys[1]), "no_header": False, "delimiter": None,
            "given": given, "shown_name": " and ".join(o.data),
        }  # fmt: skip
        try:
            yield SimpleNamespace(**vars(o) | changed), examination
        except ValueError as error:  # of the user's file, not of the temporary one
            error.args = (str(error).replace(path, " and ".join(o.data)),)
            raise


def _read(o: Any) -> Any:
    """The log as a table of pyarrow; several files are one."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    parts = []
    for path in o.data:
        if path.endswith((".parquet", ".pq")) or o.format == "parquet":
            parts.append(pq.read_table(path))
        else:
            delimiter = {"tab": "\t", None: ","}.get(o.delimiter, o.delimiter)
            parts.append(
                pa_csv.read_csv(path, parse_options=pa_csv.ParseOptions(delimiter=delimiter))
            )
    return pa.concat_tables(parts, promote_options="default")


def _column(log: Any, given: str | None, known: tuple[str, ...], option: str) -> Any:
    """The column of an option, or the one with a known name."""
    names = log.column_names
    column = given or next((name for name in names if name.lower() in known), None)
    if column not in names:
        what = f"no column {column!r}" if column else "no column is called " + ", ".join(known)
        raise ValueError(f"{what}: name it by --{option}; the columns are "
                         + ", ".join(map(repr, names)))  # fmt: skip
    return column
