"""Tables of names and numbers: data frames, CSV, Parquet, Arrow and JSON lines, in chunks."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from rankrls._streams import name_of
from rankrls._validation import check_option, refuse_lazy
from rankrls.datasets._cells import cell_number, numbers_of, shown, text_of
from rankrls.datasets._columns import missing_column, pyarrow, readable
from rankrls.datasets._csv import CsvSource
from rankrls.datasets._parquet import find_files, open_source
from rankrls.datasets._source import place_of, text_blocks
from rankrls.datasets.formats import TABLE_FORMATS, sniff_table

Array = NDArray[Any]
Place = Callable[[int], str]
Chunks = Iterator[tuple[list[list[Any]], Place]]

_MAX_JSON_LINE_BYTES = 1 << 24

_JSON_LINES = (
    '; a file of JSON lines has one object {"column": value, …} in each line, as '
    "DataFrame.to_json(orient='records', lines=True) writes them"
)

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
    is_path = isinstance(table, str | os.PathLike)
    if not is_path and not hasattr(table, "read"):
        return _open_frame(table)
    kind = sniff_table(table) if format == "auto" else format
    if kind == "csv":
        source = CsvSource(table, header, delimiter)
        return NamedTable(source.file, source.names, source.cells, is_text=True)
    if kind == "jsonl":
        return _open_json(table)
    if not is_path:
        raise ValueError(f"{name_of(table)}: Parquet and Arrow files are opened by name")
    files = find_files(table)
    return NamedTable(files[0], open_source(files[0]).names, partial(_arrow_cells, files))


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
        numbers = [first + i for i, line in enumerate(lines) if line.strip()]
        rows = []
        for number in numbers:
            try:
                row = json.loads(lines[number - first])
            except (ValueError, RecursionError) as error:
                what = f"is not JSON ({error}){_JSON_LINES}"
                raise ValueError(f"{file}:{number}: this line {what}") from error
            if not isinstance(row, dict):
                what = f"holds a {type(row).__name__}, not an object{_JSON_LINES}"
                raise ValueError(f"{file}:{number}: this line {what}")
            rows.append(row)
        if rows:
            yield numbers, rows


def _arrow_cells(files: list[str], columns: list[str]) -> Chunks:
    read = list(dict.fromkeys(columns))
    for file in files:
        source = open_source(file)
        for name in read:
            if source.names.count(name) != 1:
                raise ValueError(f"{file}: there is no single column {name!r}")
            kind = source.schema.field(name).type
            if pyarrow().types.is_nested(kind):
                raise ValueError(f"{file}: column {name!r} is no name or number, but {kind}")
        for place, batch in source.batches(read, _ROWS):
            with readable(partial(place, 0), source.kind):
                values = {name: batch.column(name).to_pylist() for name in read}
            yield [_known(values[name]) for name in columns], place


def _open_frame(table: Any) -> NamedTable:
    """A data frame, or a dict of columns."""
    refuse_lazy(table, "table")
    frame = table
    if not isinstance(table, Mapping):
        columns = getattr(table, "column_names", getattr(table, "columns", ()))
        twice = [name for name, count in Counter(map(str, columns)).items() if count > 1]
        if twice:
            raise ValueError(f"table: two columns are named {twice[0]!r}")
        frame = nw.from_native(table, eager_only=True, pass_through=True)
        if not isinstance(frame, nw.DataFrame):
            raise ValueError(
                "table must be a data frame (pandas, polars, pyarrow), a dict of columns, or the "
                f"name of a file; got a {type(table).__name__}"
            )
    by_name = {str(name): name for name in (table if frame is table else frame.columns)}

    def chunks(columns: list[str]) -> Chunks:
        cells = [_known(_cells_of(frame[by_name[name]])) for name in columns]
        lengths = {name: len(part) for name, part in zip(columns, cells, strict=True)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"table: its columns have different lengths: {lengths}")
        if cells and cells[0]:
            yield cells, "table: row {}".format

    return NamedTable("table", list(by_name), chunks)


def _cells_of(column: Any) -> list[Any]:
    if not isinstance(column, nw.Series):
        column = nw.from_native(column, series_only=True, pass_through=True)
    if isinstance(column, nw.Series):
        pairs = zip(column.to_list(), column.is_null().to_list(), strict=True)
        return [None if null else cell for cell, null in pairs]
    return list(column.tolist() if hasattr(column, "tolist") else column)


def _known(cells: list[Any]) -> list[Any]:
    """The cells, None for NaN and empty text; most columns have one type and none of these."""
    kinds = set(map(type, cells))
    if kinds <= {int} or (kinds <= {float} and not np.isnan(cells).any()):
        return cells
    blank = {None} if kinds - {str} else {word for word in set(cells) if not word.strip()}
    if not blank:
        return cells
    # NaN differs from itself.
    return [None if cell != cell or (isinstance(cell, str) and not cell.strip()) else cell
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
