"""Columns of an Arrow schema to the arrays of a batch: checked by name, type and value."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls import _resources
from rankrls._validation import as_text
from rankrls.datasets._arrow import Source, pyarrow, readable
from rankrls.datasets._missing import REMEDY, check_missing
from rankrls.datasets._query_batches import TableChunk
from rankrls.datasets._query_ids import as_objects

__all__ = [
    "Columns",
    "check_names",
    "choose_features",
    "droppable",
    "listed",
    "missing_column",
    "named",
]

Array = NDArray[Any]

_BLOCK_BYTES = 1 << 21

_MAX_NAME = 80  # characters in a message
_MAX_GUESSES = 1000  # names that are looked at for one like another

_NO_FRACTION = re.compile(r"\.0+(?!\d)")  # of a second
_ROW_INDEX = re.compile(r"__index_level_\d+__")  # a data frame's row index, written by pandas


class Columns:
    """Which columns are what, for all files of a data set.

    Parameters
    ----------
    source : Source
        The first file: it decides what ``features=None`` stands for.
    target, qid, sample_weight : str or None
    features, drop : str, sequence of str, or None
    dtype : dtype of the features
    missing : {"error", "nan"}
        How to handle features that are null or NaN.
    text : None, "auto" or sequence of str
        Features that are text; "auto": those of a type of text, and dates and times.
    """

    def __init__(
        self,
        source: Source,
        target: Any,
        qid: Any,
        sample_weight: Any,
        features: Any,
        drop: Any,
        dtype: np.dtype,
        missing: str,
        text: Any = None,
    ) -> None:
        self.target, self.qid, self.sample_weight = target, qid, sample_weight
        self.dtype, self.keep_missing = dtype, check_missing(missing)
        self.others = [name for name in (target, qid, sample_weight) if name is not None]
        self.chosen = features is not None
        self.features = choose_features(source.file, source.names, self.others, features, drop)
        self.widths: dict[str, int] = {}
        self._named: set[str] = set()  # columns of lists whose numbers are named one by one
        if self.chosen:
            self._join_lists(source)
        for name in self.others:
            if not isinstance(name, str):
                raise ValueError(
                    f"target, qid and sample_weight are names of columns; got {name!r}"
                )
        self.text: list[str] | None = None
        if text is not None:
            wanted = _text_columns(source.schema) if text == "auto" else set(text)
            self.text = [name for name in self.features if name in wanted]
        self._file_kind = source.kind
        self.kind: str | None = None
        source.expect(self)
        self.check(source)

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return list(dict.fromkeys([*self.others, *self.features]))

    @property
    def n_features(self) -> int:
        """Columns of ``data``: several for a column of lists."""
        return sum(self.widths[name] for name in self.features)

    @property
    def feature_names(self) -> list[str]:
        """Names for the columns of ``data``: ``name_0``, ``name_1``, … for lists."""
        names = []
        for name in self.features:
            listed = name in self.listed
            names += [f"{name}_{i}" for i in range(self.widths[name])] if listed else [name]
        return names

    def check(self, source: Source) -> None:
        """Raise unless the file has these columns, with types that can be read."""
        schema, counts = source.schema, Counter(source.names)
        given = {"target": self.target, "qid": self.qid, "sample_weight": self.sample_weight}
        for role, name in [*given.items(), *(("features", name) for name in self.features)]:
            if name is not None and name not in counts:
                raise ValueError(f"{source.file}: {missing_column(role, name, source.names)}")
            if name is not None and counts[name] > 1:
                raise ValueError(f"{source.file}: two columns are named {named(name)}")
        types = pyarrow().types
        for role in ("target", "sample_weight"):
            if given[role] is not None and not _is_number(schema.field(given[role]).type):
                kind = schema.field(given[role]).type
                raise ValueError(f"{source.file}: {role}={given[role]!r} is not numeric but {kind}")
        self.listed = set()
        for name in self.features:
            kind = schema.field(name).type
            if name in (self.text or ()):
                known = _is_text(kind) or _is_time(kind) or _is_number(kind)
                if not (known or types.is_null(kind)):
                    raise ValueError(f"{source.file}: column {named(name)} is not text but {kind}")
                self._width(name, 1, source.file)
                continue
            if _is_list(kind):
                self.listed.add(name)
                self._require_memory(name, source.numbers_in_a_row(name), source.file)
                if types.is_fixed_size_list(kind):
                    self._width(name, kind.list_size, source.file)
                kind = kind.value_type
            else:
                self._width(name, 1, source.file)
            if not self._is_readable(kind):
                found = schema.field(name).type
                hint = droppable(self._no_numbers(schema), text=_is_text(found))
                hint *= not self.chosen
                raise ValueError(
                    f"{source.file}: column {named(name)} is not numeric but {found}{hint}"
                )
        if self.qid is not None:
            self._check_qid(source, schema.field(self.qid).type)

    def _join_lists(self, source: Source) -> None:
        """Replace the features of lists, as `feature_names` names them, by their columns."""
        columns = []
        for name in self.features:
            column, _, number = name.rpartition("_")
            if name in source.names or column not in source.names or not number.isdigit():
                columns.append(name)
                continue
            if not _is_list(source.schema.field(column).type):
                columns.append(name)
                continue
            width = self.widths.get(column, 0)
            if int(number) != width or (width and columns[-1] != column):
                raise ValueError(
                    f"{source.file}: {named(name)} is a number of the lists in column "
                    f"{named(column)}, which are read as a whole: name the column in features="
                )
            columns += [column] if width == 0 else []
            self.widths[column] = width + 1
        self.features, self._named = columns, set(self.widths)

    def _expected(self, name: str) -> str:
        """How long the lists of a column should be, and why."""
        if name not in self._named:
            return f"not {self.widths[name]} as in the first"
        return f"not {self.widths[name]} as features are named; to read all, name the column"

    def _no_numbers(self, schema: Any) -> list[str]:
        """Features that are neither numbers, nor lists of them, nor taken as text."""
        names = [name for name in self.features if name not in (self.text or ())]
        kinds = {name: schema.field(name).type for name in names}
        values = {name: k.value_type if _is_list(k) else k for name, k in kinds.items()}
        return [name for name, kind in values.items() if not self._is_readable(kind)]

    def _is_readable(self, kind: Any) -> bool:
        """Whether values of this type are numbers, or all of them missing where this is allowed."""
        return _is_number(kind) or (self.keep_missing and pyarrow().types.is_null(kind))

    def _check_qid(self, source: Source, kind: Any) -> None:
        types, value = pyarrow().types, _value_type(kind)
        if types.is_integer(value):
            sort = "integers"
        elif _is_text(value):
            sort = "strings"
        else:
            raise ValueError(
                f"{source.file}: qid={self.qid!r} must hold integers or strings, and is {kind}"
            )
        if self.kind not in (None, sort):
            raise ValueError(
                f"{source.file}: qid={self.qid!r} holds {sort}, and {self.kind} in the first file"
            )
        self.kind = sort

    def _width(self, name: str, width: int, place: str) -> None:
        self._require_memory(name, width, place)
        known = self.widths.setdefault(name, width)
        if known != width:
            raise ValueError(
                f"{place}: column {named(name)} has {width} numbers in a row, not {known}"
            )

    def _require_memory(self, name: str, width: int, place: str) -> None:
        """Raise unless a model of a column of so long lists, and their names, can be held."""
        copies = _resources.VECTORS + _resources.NAME_VECTORS
        if width <= 1:
            return
        total = width + sum(n for other, n in self.widths.items() if other != name)
        if not _resources.fits_features(total, copies):
            raise ValueError(
                f"{place}: column {named(name)} has {width:,} numbers in a row, and a model of "
                f"{total:,} features needs {total * 8 * copies / 2**30:.1f} GiB of memory or more"
                f"{droppable([name])}"
            )

    def measure(self, chunk: TableChunk) -> None:
        """Find how long the lists are, where the schema does not say."""
        for name in self.listed - set(self.widths):
            column = chunk.batch.column(name)
            if self.keep_missing and column.null_count < len(column):
                column = column.drop_null()
            self._width(name, len(column[0]) if column[0].is_valid else 0, chunk.place(0))

    # ------------------------------------------------------------------ values

    def data(self, chunk: TableChunk) -> Array:
        """The features of a chunk, shape (m, n); NaN for text."""
        data = np.empty((len(chunk.batch), self.n_features), dtype=self.dtype)
        pieces = [self._feature(chunk, name) for name in self.features]
        size = max(_BLOCK_BYTES // (data.itemsize * max(data.shape[1], 1)), 64)
        for first in range(0, len(data), size):  # columns to rows, within the cache
            block, start = data[first : first + size], 0
            for piece in pieces:
                if piece.ndim == 1:
                    block[:, start] = piece[first : first + size]
                    start += 1
                else:
                    block[:, start : start + piece.shape[1]] = piece[first : first + size]
                    start += piece.shape[1]
        return data

    def _feature(self, chunk: TableChunk, name: str) -> Array:
        if name in (self.text or ()):
            return np.full(len(chunk.batch), np.nan, dtype=self.dtype)
        column = chunk.batch.column(name)
        if not self.keep_missing:
            _require_valid(chunk, name, column, remedy=REMEDY)
        if name in self.listed:
            return self._lists(chunk, name, column, self.widths[name])
        return self._numbers(column, name, chunk.place)

    def _numbers(self, column: Any, name: str, place: Callable[[int], str]) -> Array:
        """Features as numbers, missing ones as NaN or an error that names their ``place``."""
        return _numbers(column, name, self.dtype, place, self.keep_missing, REMEDY)

    def words(self, chunk: TableChunk) -> Array:
        """Text of shape (n_rows, n_text), None where there is none."""
        found = np.empty((len(chunk.batch), len(self.text or ())), dtype=object)
        once: dict[Any, Any] = {None: None}  # equal words are one object
        for k, name in enumerate(self.text or ()):
            with readable(partial(chunk.place, 0), self._file_kind):
                words = _as_text(chunk.batch.column(name))
            found[:, k] = [once.setdefault(word, word) for word in words]
        return found

    def values(self, chunk: TableChunk, name: str) -> Array:
        """A column of numbers in float64: target or weights."""
        return _numbers(_column(chunk, name), name, np.dtype(np.float64), chunk.place)

    def labels(self, chunk: TableChunk) -> Array:
        """Query ids, int64 (uint64 if the column is) or str."""
        column = _column(chunk, self.qid)
        if self.kind == "integers":
            numbers = _decoded(column).to_numpy(zero_copy_only=False)
            return numbers if numbers.dtype == np.uint64 else numbers.astype(np.int64, copy=False)
        is_coded = pyarrow().types.is_dictionary(column.type)
        with readable(partial(chunk.place, 0), self._file_kind):
            coded = column if is_coded else column.dictionary_encode()
            # The dictionary may be that of many chunks.
            used, codes = np.unique(
                coded.indices.to_numpy(zero_copy_only=False), return_inverse=True
            )
            words = coded.dictionary.take(pyarrow().array(used)).to_pylist()
        for number, word in enumerate(words):
            if "\0" in word:
                row = int(np.argmax(codes == number))
                raise ValueError(f"{chunk.place(row)}: column {self.qid!r} has a NUL character")
        return as_objects(words)[codes]

    def settle(self, labels: Array) -> Array:
        """Query ids of a batch: the type of the column is that of the ids."""
        return as_text(labels.tolist()) if labels.dtype == object else labels

    def _lists(self, chunk: TableChunk, name: str, column: Any, width: int) -> Array:
        """Lists of equal length as rows, shape (m, width); a missing list is a row of NaN."""
        there = np.arange(len(column))
        if column.null_count:
            there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            column = column.drop_null()
        if not pyarrow().types.is_fixed_size_list(column.type):
            lengths = np.asarray(column.value_lengths().to_numpy(zero_copy_only=False))
            wrong = np.flatnonzero(lengths != width)
            if len(wrong):
                at = wrong[0]
                raise ValueError(
                    f"{chunk.place(there[at])}: column {named(name)} has {lengths[at]} numbers in "
                    f"this row, {self._expected(name)}"
                )
        flat = column.flatten()
        if not self.keep_missing:
            _require_valid(chunk, name, flat, width, remedy=REMEDY)
        numbers = self._numbers(flat, name, lambda at: chunk.place(there[at // width]))
        rows = np.full((len(chunk.batch), width), np.nan, dtype=self.dtype)
        rows[there] = numbers.reshape(len(there), width)
        return rows


def _column(chunk: TableChunk, name: str) -> Any:
    column = chunk.batch.column(name)
    _require_valid(chunk, name, column)
    return column


def _require_valid(
    chunk: TableChunk, name: str, column: Any, width: int = 1, remedy: str = ""
) -> None:
    """Raise if there is a null; ``width`` entries make a row."""
    if column.null_count:
        at = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        where = chunk.place(at // width)
        raise ValueError(f"{where}: column {named(name)} is null; every row needs a value{remedy}")


def _numbers(
    column: Any,
    name: str,
    dtype: np.dtype,
    place: Callable[[int], str],
    keep_missing: bool = False,
    remedy: str = "",
) -> Array:
    """A column as finite numbers, and NaN if missing ones are kept."""
    column = _decoded(column)
    if pyarrow().types.is_decimal(column.type):
        column = column.cast(pyarrow().float64())
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = column.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
        finite = np.isfinite(numbers.sum())  # if the sum is, all of them are
    wrong = np.isinf if keep_missing else lambda values: ~np.isfinite(values)
    if not finite and len(bad := np.flatnonzero(wrong(numbers))):
        at = int(bad[0])
        value = column[at].as_py()
        large = f", too large for {dtype}" if np.isfinite(value) else ""
        raise ValueError(
            f"{place(at)}: column {named(name)} is {value}{large}; every cell needs a finite number"
            f"{remedy if np.isnan(value) else ''}"
        )
    return numbers


def check_names(given: Any, what: str = "features") -> list[str]:
    """Names of columns as a list; a single string is one name."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Sequence | np.ndarray) or not all(
        isinstance(name, str) for name in given
    ):
        raise ValueError(f"{what} must be names of columns; got {given!r}")
    names = [str(name) for name in given]
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise ValueError(f"{what} names {twice!r} twice")
    return names


def choose_features(
    file: str, names: list[str], others: list[str], features: Any, drop: Any
) -> list[str]:
    """Columns of the features: those that are named, or all but the others and ``drop``.

    The row index that pandas writes into a Parquet file is one only by name.
    """
    dropped = [] if drop is None else check_names(drop, "drop")
    known = set(names)
    for name in dropped:
        if name not in known:
            raise ValueError(f"{file}: {missing_column('drop', name, names)}")
        if name in others:
            raise ValueError(f"{file}: column {name!r} is read, and cannot be dropped")
    if features is not None:
        chosen = check_names(features)
        if not chosen and not others:
            raise ValueError(f"{file}: there is no column to read")
        both = set(chosen)
        for name in dropped:
            if name in both:
                raise ValueError(f"{file}: column {name!r} is one of the features, and dropped")
        return chosen
    left_out = {*others, *dropped, *(name for name in names if _ROW_INDEX.fullmatch(name))}
    left = [name for name in names if name not in left_out]
    if not left:
        raise ValueError(f"{file}: there is no column left for the features")
    return left


def droppable(names: list[str], *, text: bool = False) -> str:
    """What to do about columns that are no numbers; ``text``: whether they can be read as text."""
    shown = named(names[0]) if len(names) == 1 else f"[{', '.join(map(named, names[:10]))}]"
    it, more = ("it is", "") if len(names) == 1 else ("they are", ", …" * (len(names) > 10))
    keep = ", or keep text for AutoRanker by load_ranking with text='auto'" * text
    return (
        f"; if {it} no feature, leave {'it' if len(names) == 1 else 'them'} out by drop={shown}"
        f"{more}, or name the features in features={keep}"
    )


def missing_column(role: str, name: str, names: list[str]) -> str:
    """Say what columns there are, and which one may be meant."""
    lower = {known.lower(): known for known in names[:_MAX_GUESSES]}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    hint = f" (did you mean {named(lower[near[0]])}?)" if near else ""
    return f"no column {name!r} for {role}{hint}; the columns are {listed(names)}"


def named(name: str) -> str:
    """A name of a column in quotes, shortened."""
    return repr(name if len(name) <= _MAX_NAME else name[:_MAX_NAME] + "…")


def listed(names: list[str]) -> str:
    """The first names of columns, and how many there are."""
    return ", ".join(map(named, names[:20])) + f", … {len(names)} in all" * (len(names) > 20)


def _is_list(kind: Any) -> bool:
    types = pyarrow().types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _value_type(kind: Any) -> Any:
    """The type of the values, also of those that are stored as a dictionary."""
    return kind.value_type if pyarrow().types.is_dictionary(kind) else kind


def _is_number(kind: Any) -> bool:
    types, kind = pyarrow().types, _value_type(kind)
    return (
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
    )


def _is_text(kind: Any) -> bool:
    types, kind = pyarrow().types, _value_type(kind)
    return types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view"


def _is_time(kind: Any) -> bool:
    """Whether values are dates, times, timestamps or durations."""
    types, kind = pyarrow().types, _value_type(kind)
    return (
        types.is_date(kind)
        or types.is_time(kind)
        or types.is_timestamp(kind)
        or types.is_duration(kind)
    )


def _text_columns(schema: Any) -> set[str]:
    return {field.name for field in schema if _is_text(field.type) or _is_time(field.type)}


def _as_text(column: Any) -> list[str | None]:
    """Cells as text, None where they are null.

    Times have a fraction of a second if it is not zero, and durations their unit, as in "90 s".
    """
    column = _decoded(column)
    words = column.cast(pyarrow().large_string()).to_pylist()
    if not _is_time(column.type):
        return words
    unit = f" {column.type.unit}" if pyarrow().types.is_duration(column.type) else ""
    return [None if word is None else _NO_FRACTION.sub("", word) + unit for word in words]


def _decoded(column: Any) -> Any:
    return column.dictionary_decode() if pyarrow().types.is_dictionary(column.type) else column
