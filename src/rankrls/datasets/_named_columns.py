"""Tables of names and numbers: data frames, CSV, Parquet, Arrow and JSON lines, in chunks.

A table has a name for errors (``file``), the names of its columns (``names``) and ``chunks``, which
reads some of the columns: lists of cells, None where one is missing.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rankrls._streams import name_of
from rankrls._validation import check_option, refuse_lazy
from rankrls.datasets._columns import pyarrow, readable
from rankrls.datasets._csv import CsvSource
from rankrls.datasets._parquet import find_files, open_source
from rankrls.datasets._source import text_blocks
from rankrls.datasets.formats import TABLE_FORMATS, sniff_table

__all__ = ["NamedCells", "NamedTable", "open_table"]

_MAX_JSON_LINE_BYTES = 1 << 24

_JSON_LINES = (
    '; a file of JSON lines has one object {"column": value, …} in each line, as '
    "DataFrame.to_json(orient='records', lines=True) writes them"
)

_ROWS = 10_000  # of a chunk


@dataclass(frozen=True)
class NamedCells:
    """Consecutive rows: ``cells[j]`` are those of column j, ``place`` names a row in an error."""

    cells: list[list[Any]]
    place: Callable[[int], str]


class NamedTable(ABC):
    """What all tables have: how errors call them, and the names of their columns."""

    #: Whether all cells are text, also those that hold numbers.
    is_text = False

    def __init__(self, file: str, names: list[str]) -> None:
        self.file, self.names = file, names

    @abstractmethod
    def chunks(self, columns: list[str]) -> Iterator[NamedCells]:
        """Read some columns, from the first row to the last."""


def open_table(
    table: Any, format: str = "auto", delimiter: str | None = None, header: bool = True
) -> NamedTable:
    """Open a data frame, a dict of columns, or a file; delimiter and header are of CSV files."""
    check_option("format", format, ("auto", *TABLE_FORMATS))
    is_path = isinstance(table, str | os.PathLike)
    if not is_path and not hasattr(table, "read"):
        return _FrameTable(table)
    kind = sniff_table(table) if format == "auto" else format
    if kind == "csv":
        return _CsvTable(table, delimiter, header)
    if kind == "jsonl":
        return _JsonTable(table)
    if not is_path:
        raise ValueError(f"{name_of(table)}: Parquet and Arrow files are opened by name")
    return _ArrowTable(table)


class _CsvTable(NamedTable):
    is_text = True

    def __init__(self, path: Any, delimiter: str | None, header: bool) -> None:
        self._source = CsvSource(path, header, delimiter)
        super().__init__(self._source.file, self._source.names)

    def chunks(self, columns: list[str]) -> Iterator[NamedCells]:
        for cells, place in self._source.cells(columns):
            yield NamedCells(cells, place)


class _JsonTable(NamedTable):
    """One object in each line; the columns are the keys of those in the first block."""

    def __init__(self, path: Any) -> None:
        file = name_of(path)
        self._blocks = text_blocks(path, _MAX_JSON_LINE_BYTES)
        super().__init__(file, [])
        self._first = self._next()
        if self._first is None:
            raise ValueError(f"{file}: no data: the file is empty")
        self.names = list(dict.fromkeys(key for row in self._first[1] for key in row))

    def chunks(self, columns: list[str]) -> Iterator[NamedCells]:
        part = self._first
        while part is not None:
            numbers, rows = part
            cells = [[_known(row.get(name)) for row in rows] for name in columns]
            yield NamedCells(cells, _line(self.file, numbers))
            self._first = None
            part = self._next()

    def _next(self) -> tuple[list[int], list[dict[str, Any]]] | None:
        """The next lines that are not empty, and their numbers."""
        for number, lines in self._blocks:
            at = [number + i for i, line in enumerate(lines) if line.strip()]
            if at:
                return at, [self._parse(i, lines[i - number]) for i in at]
        return None

    def _parse(self, number: int, line: str) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{self.file}:{number}: this line is not JSON ({error}){_JSON_LINES}"
            ) from error
        if not isinstance(row, dict):
            raise ValueError(
                f"{self.file}:{number}: this line holds a {type(row).__name__}, not an object"
                f"{_JSON_LINES}"
            )
        return row


class _ArrowTable(NamedTable):
    def __init__(self, path: Any) -> None:
        self._files = find_files(path)
        super().__init__(self._files[0], open_source(self._files[0]).names)

    def chunks(self, columns: list[str]) -> Iterator[NamedCells]:
        read = list(dict.fromkeys(columns))
        for file in self._files:
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
                cells = [[_known(cell) for cell in values[name]] for name in columns]
                yield NamedCells(cells, place)


class _FrameTable(NamedTable):
    """A data frame, or a dict of columns."""

    def __init__(self, table: Any) -> None:
        refuse_lazy(table, "table")
        lazy = "; call its collect() first" if hasattr(table, "collect") else ""
        names = list(table) if isinstance(table, Mapping) else None
        if names is None and not lazy:
            names = getattr(table, "column_names", getattr(table, "columns", None))
        if names is None:
            raise ValueError(
                "table must be a data frame (pandas, polars, pyarrow), a dict of columns, or the "
                f"name of a file; got a {type(table).__name__}{lazy}"
            )
        names = [str(name) for name in names]
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ValueError(f"table: two columns are named {twice[0]!r}")
        super().__init__("table", names)
        self._columns = dict(zip(names, _columns_of(table), strict=True))

    def chunks(self, columns: list[str]) -> Iterator[NamedCells]:
        cells = [[_known(cell) for cell in self._list(name)] for name in columns]
        lengths = {name: len(part) for name, part in zip(columns, cells, strict=True)}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"table: its columns have different lengths: {lengths}")
        if cells and cells[0]:
            yield NamedCells(cells, lambda row: f"table: row {row}")

    def _list(self, name: str) -> list[Any]:
        column = self._columns[name]
        if hasattr(column, "isna"):  # pandas: NaN, NaT and NA are missing
            column = column.astype(object).where(column.notna(), None)
        for method in ("to_pylist", "to_list", "tolist"):
            if hasattr(column, method):
                return list(getattr(column, method)())
        return list(column)


def _columns_of(table: Any) -> Sequence[Any]:
    if isinstance(table, Mapping):
        return list(table.values())
    if hasattr(table, "iloc"):
        return [table.iloc[:, j] for j in range(table.shape[1])]
    if hasattr(table, "get_columns"):
        return list(table.get_columns())
    return [table.column(j) for j in range(len(table.column_names))]


def _line(file: str, numbers: Sequence[int]) -> Callable[[int], str]:
    return lambda row: f"{file}:{numbers[row]}"


def _known(cell: Any) -> Any:
    """The cell, or None for NaN and empty text."""
    if isinstance(cell, float) and cell != cell:
        return None
    return None if isinstance(cell, str) and not cell.strip() else cell
