"""Columns of Arrow arrays: what their types are, and cells of text as numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.datasets._cells import NULLS, cell_number

Array = NDArray[Any]

_NO_FRACTION = re.compile(r"\.0+(?!\d)")  # of a second


def pyarrow() -> Any:
    """The package, or an error that says how to get it; it is an extra, imported when needed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "CSV, Parquet and Arrow files are read by pyarrow, which is not installed: "
            "pip install 'rankrls[arrow]'"
        ) from error
    return pyarrow


@contextmanager
def readable(place: Callable[[], str], kind: str) -> Iterator[None]:
    """Turn what pyarrow raises for a damaged file into one ``ValueError``."""
    try:
        yield
    except (OSError, ValueError, MemoryError, OverflowError, pyarrow().ArrowException) as error:
        what = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(
            f"{place()}: the {kind} file is truncated or damaged ({what}); get it again"
        ) from error


def type_kind(type: Any, *, within_lists: bool = False) -> str:
    """What values of an Arrow type are, also those that are stored as a dictionary."""
    types = pyarrow().types
    type = type.value_type if types.is_dictionary(type) else type
    if types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type):
        return type_kind(type.value_type) if within_lists else "lists"
    if types.is_integer(type):
        return "integers"
    if types.is_floating(type) or types.is_boolean(type) or types.is_decimal(type):
        return "numbers"
    if str(type) in ("string", "large_string", "string_view"):
        return "strings"
    if types.is_temporal(type) and not types.is_interval(type):
        return "times"
    return "nulls" if types.is_null(type) else "others"


def decoded(column: Any) -> Any:
    """The values of a column that is stored as a dictionary; others as they are."""
    return column.dictionary_decode() if pyarrow().types.is_dictionary(column.type) else column


def as_text(column: Any) -> list[str | None]:
    """Cells as text, None where they are null."""
    column = decoded(column)
    words = column.cast(pyarrow().large_string()).to_pylist()
    if type_kind(column.type) != "times":
        return words
    unit = f" {column.type.unit}" if pyarrow().types.is_duration(column.type) else ""
    return [None if word is None else _NO_FRACTION.sub("", word) + unit for word in words]


# -- cells of CSV files, all of them text -------------------------------------------------------


def stripped(cells: Any) -> Any:
    """Text without the white space around it, null where nothing is left."""
    compute = pyarrow().compute
    words = compute.utf8_trim_whitespace(cells)
    return compute.if_else(compute.equal(words, ""), pyarrow().scalar(None, words.type), words)


def missing_cells(cells: Any) -> Array:
    """Whether cells stand for numbers that are not there."""
    compute = pyarrow().compute
    words = compute.utf8_trim_whitespace(cells)
    missing = compute.is_in(words, value_set=pyarrow().array(NULLS))
    return np.asarray(missing.to_numpy(zero_copy_only=False))


def csv_numbers(cells: Any) -> Array:
    """Cells as numbers, 1 and 0 for true and false; NaN or infinite where there is none."""
    arrow = pyarrow()
    with suppress(arrow.ArrowInvalid):
        return np.asarray(cells.cast(arrow.float64()).to_numpy())
    words = arrow.compute.utf8_trim_whitespace(cells)
    with suppress(arrow.ArrowInvalid):
        nothing = arrow.scalar(None, words.type)
        words = arrow.compute.if_else(arrow.array(missing_cells(words)), nothing, words)
        return np.asarray(words.cast(arrow.float64()).to_numpy(zero_copy_only=False))
    coded = cells.dictionary_encode()
    numbers = np.array([cell_number(word) for word in coded.dictionary.to_pylist()])
    return numbers[coded.indices.to_numpy()]
