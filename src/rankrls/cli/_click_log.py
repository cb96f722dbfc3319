"""Click logs as files of rows: one row for each query and item, with a label and a weight."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from rankrls.cli._output import listed, note, number

__all__ = ["QUERIES", "click_rows", "find_column"]

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

    from rankrls.clicks import click_labels, estimate_examination, open_log

    name = " and ".join(o.data)
    delimiter = {"tab": "\t", "\\t": "\t"}.get(o.delimiter or "", o.delimiter)
    try:
        parts = [open_log(path, delimiter).to_table() for path in o.data]
        log = pa.concat_tables(parts, promote_options="default")
    except pa.ArrowInvalid as error:
        raise ValueError(f"{name}: {str(error).splitlines()[0]}") from error
    columns: dict[str, Any] = {
        role: find_column(log.column_names, getattr(o, option), known, option)
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
    note(
        f"{number(n_clicks)} clicks on {number(len(labels))} items of queries; examination by "
        f"position {listed([f'{p:g}: {x:.2f}' for p, x in pairs])}"
        + f"; {number(n_never)} items were never examined"
        * (n_never > 0)
    )
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


def find_column(names: Sequence[str], given: str | None, known: Sequence[str], option: str) -> str:
    """The column of an option, or the one with a known name."""
    column = given or next((name for name in names if name.lower() in known), None)
    if column is None or column not in names:
        what = f"no column {column!r}" if column else "no column is called " + ", ".join(known)
        has = ", ".join(map(repr, names))
        raise ValueError(f"{what}: name it by --{option}; the columns are {has}")
    return column
