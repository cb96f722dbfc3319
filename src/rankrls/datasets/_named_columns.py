"""Tables of names and numbers: data frames, CSV, Parquet, Arrow and JSON lines, in chunks."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from rankrls._frames import refuse_equal_names
from rankrls._resources import pyarrow
from rankrls._streams import name_of
from rankrls._validation import check_option, is_missing, refuse_lazy
from rankrls.datasets._arrow import ArrowSource, find_files, readable, stripped
from rankrls.datasets._cells import cell_number, numbers_of, shown, text_of
from rankrls.datasets._csv import CsvSource
from rankrls.datasets._source import place_of, text_blocks
from rankrls.datasets.formats import TABLE_FORMATS, missing_column, sniff_table

Array = NDArray[Any]
Place = Callable[[int], str]
Chunks = Iterator[tuple[list[list[Any]], Place]]

_MAX_JSON_LINE_BYTES = 1 << 24

_ROWS = 10_000  # of a chunk


@dataclass(frozen=True)
class NamedTable:
    """What all tables have.

    ``file`` is how errors call it. ``chunks`` reads some columns by name, from the first row to the
    last: lists of cells by column, None where one is missing, and a function that names a row in an
    error. ``is_text``: whether all cells are text, also those that hold numbers.
    """

    file: str
    names: list[str]
    chunks: Callable[[list[str]], Chunks]
    is_text: bool = False

    def check_column(self, role: str, name: Any) -> str:
        """The name of a column that the table has once."""
        if not isinstance(name, str):
            raise ValueError(f"{role} must be the name of a column; got {name!r}")
        if name not in self.names:
            raise ValueError(f"{self.file}: {missing_column(role, name, self.names)}")
        if self.names.count(name) > 1:
            raise ValueError(f"{self.file}: there are several columns {name!r}")
        return name

    def read(
        self, columns: Mapping[str, tuple[str, Any]], need: str, empty: tuple[str, ...] = ()
    ) -> tuple[dict[str, Array], Place]:
        """Columns by role, and how errors call a row.

        A column is given by its name and a function of its cells, its name and their place. Only
        the roles in ``empty`` may have empty cells; ``need`` ends the error of others.
        """
        starts, places = [0], list[Place]()
        parts: dict[str, list[Array]] = {role: [] for role in columns}
        for chunk, place in self.chunks([name for name, _ in columns.values()]):
            places.append(place)
            starts.append(starts[-1] + len(chunk[0]))
            for (role, (name, read)), cells in zip(columns.items(), chunk, strict=True):
                if None in cells and role not in empty:
                    raise ValueError(
                        f"{place(cells.index(None))}: column {name!r} is empty; {need}"
                    )
                parts[role].append(read(cells, name, place))
        if not starts[-1]:
            raise ValueError(f"{self.file}: no data: the table has no rows")

        def place_of(row: int) -> str:
            part = bisect_right(starts, row) - 1
            return places[part](row - starts[part])

        return {role: np.concatenate(found) for role, found in parts.items()}, place_of


def open_table(
    table: Any, format: str = "auto", delimiter: str | None = None, header: bool = True
) -> NamedTable:
    """Open a data frame, a dict of columns, or a file; delimiter and header are of CSV files."""
    check_option("format", format, ("auto", *TABLE_FORMATS))
    if not isinstance(table, str | os.PathLike) and not hasattr(table, "read"):
        return _open_frame(table)
    kind = sniff_table(table) if format == "auto" else format
    if kind == "jsonl":
        return _open_json(table)
    if kind == "csv":
        source: Any = CsvSource(table, header, delimiter)
        return NamedTable(source.file, source.names, partial(_cells, [source]), is_text=True)
    files = find_files(table)
    source = ArrowSource(files[0])
    sources = chain([source], map(ArrowSource, files[1:]))
    return NamedTable(source.file, source.names, partial(_cells, sources))


def _cells(sources: Any, columns: list[str]) -> Chunks:
    """Columns of CSV, Parquet and Arrow files, each with one type."""
    read = list(dict.fromkeys(columns))
    for source in sources:
        for name in read:
            if source.names.count(name) != 1:
                raise ValueError(f"{source.file}: there is no single column {name!r}")
            kind = None if source.schema is None else source.schema.field(name).type
            if kind is not None and pyarrow().types.is_nested(kind):
                raise ValueError(f"{source.file}: column {name!r} is no name or number, but {kind}")
        for load, place in source.parts(read, _ROWS):
            arrays = load()
            if source.schema is None:
                arrays = {name: stripped(cells) for name, cells in arrays.items()}
            with readable(partial(place, 0), source.kind):
                values = {name: array.to_pylist() for name, array in arrays.items()}
            if values[read[0]]:
                yield [_known(values[name]) for name in columns], place


def _open_json(path: Any) -> NamedTable:
    """One object in each line; the columns are the keys of those in the first block."""
    file = name_of(path)
    parts = _json_rows(file, path)
    first = next(parts, None)
    if first is None:
        raise ValueError(f"{file}: no data: the file is empty")

    def chunks(columns: list[str]) -> Chunks:
        for numbers, rows in chain([first], parts):
            cells = [_known([row.get(name) for row in rows]) for name in columns]
            yield cells, partial(place_of, file, numbers)

    return NamedTable(file, list(dict.fromkeys(key for row in first[1] for key in row)), chunks)


def _json_rows(file: str, path: Any) -> Iterator[tuple[list[int], list[dict[str, Any]]]]:
    """Lines that are not empty: their numbers, and their objects."""
    for first, lines in text_blocks(path, _MAX_JSON_LINE_BYTES):
        found: dict[int, Any] = {}
        for number, line in enumerate(lines, first):
            if not line.strip():
                continue
            try:
                found[number] = json.loads(line)
                if not isinstance(found[number], dict):
                    raise ValueError(f"it holds a {type(found[number]).__name__}")
            except (ValueError, RecursionError) as error:
                raise ValueError(
                    f"{file}:{number}: this line is no JSON object ({error}); a file of JSON lines "
                    'has one object {"column": value, …} in each line, as '
                    "DataFrame.to_json(orient='records', lines=True) writes them"
                ) from error
        if found:
            yield list(found), list(found.values())


def _open_frame(table: Any) -> NamedTable:
    """A data frame, or a dict of columns."""
    refuse_lazy(table, "table")
    frame = table
    if not isinstance(table, Mapping):
        columns = getattr(table, "column_names", getattr(table, "columns", ()))
        refuse_equal_names(list(map(str, columns)), "table")
        frame = nw.from_native(table, eager_only=True, pass_through=True)
        if not isinstance(frame, nw.DataFrame):
            raise ValueError(
                "table must be a data frame (pandas, polars, pyarrow), a dict of columns, or the "
                f"name of a file; got a {type(table).__name__}"
            )
    by_name = {str(name): name for name in (table if frame is table else frame.columns)}

    def chunks(columns: list[str]) -> Chunks:
        found = [frame[by_name[name]] for name in columns]
        cells = [_known(column.to_list() if hasattr(column, "to_list")
                        else np.asarray(column, dtype=object).tolist())
                 for column in found]  # fmt: skip
        lengths = {name: len(part) for name, part in zip(columns, cells, strict=True)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"table: its columns have different lengths: {lengths}")
        if cells and cells[0]:
            yield cells, "table: row {}".format

    return NamedTable("table", list(by_name), chunks)


def _known(cells: list[Any]) -> list[Any]:
    """The cells, None for NaN, NA and empty text; most columns have one type and none of these."""
    kinds = set(map(type, cells))
    if kinds <= {int} or (kinds <= {float} and not np.isnan(cells).any()):
        return cells
    if kinds <= {str} and all(word.strip() for word in set(cells)):
        return cells
    return [None if (not cell.strip() if isinstance(cell, str) else is_missing(cell)) else cell
            for cell in cells]  # fmt: skip


def finite_cells(
    cells: list[Any], name: str, place: Place, least: float = -float("inf")
) -> NDArray[np.float64]:
    """The numbers of a column, which must be finite and at least ``least``."""
    kinds = set(map(type, cells))
    numbers = np.full(len(cells), np.nan)
    with suppress(OverflowError):
        if kinds <= {str}:
            numbers = numbers_of(cells)
        elif kinds <= {int, float}:
            numbers = np.array(cells, dtype=np.float64)
    for row in np.flatnonzero(~(np.isfinite(numbers) & (numbers >= least))).tolist():
        cell = cells[row]
        with suppress(TypeError, ValueError, OverflowError):
            numbers[row] = cell_number(cell) if isinstance(cell, str) else float(cell)
        if not (np.isfinite(numbers[row]) and numbers[row] >= least):
            kind = "a finite number" + " >= 0" * (least == 0)
            what = shown(text_of(cell), 60)
            raise ValueError(f"{place(row)}: column {name!r} is {what}, not {kind}")
    return numbers
