"""Rows of tables with named columns: which column is what, of which type, and its values."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from rankrls import _resources
from rankrls._calls import warn
from rankrls._frames import QUERY_NAMES, RawTable
from rankrls.datasets._cells import REMEDY, as_objects, shown
from rankrls.datasets._rows import FileRows, RowReader

Array = NDArray[Any]
Place = Callable[[int], str]

#: Names that a column of labels or query ids is looked for by, in any case.
ROLE_NAMES = {
    "target": ("label", "relevance", "rel", "grade", "target", "y"),
    "qid": QUERY_NAMES,
}

_BLOCK_BYTES = 1 << 21
_MAX_GUESSES = 1000  # names that are looked at for one like another

_NO_FRACTION = re.compile(r"\.0+(?!\d)")  # of a second
_ROW_INDEX = re.compile(r"__index_level_\d+__")  # a data frame's row index, written by pandas


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


class TableReader(RowReader):
    """Rows of CSV or Parquet files, with the arguments of `load_ranking`."""

    def __init__(
        self,
        sources: list[Any],
        *,
        target: Any,
        qid: Any,
        sample_weight: Any,
        features: Any,
        drop: Any,
        dtype: Any,
        missing: str,
        text: Any,
        unlabelled: str,
    ) -> None:
        source = sources[0]
        self.kind, self.is_csv = source.kind, source.kind == "CSV"
        super().__init__(source.file, self.is_csv, dtype, missing, unlabelled)
        if isinstance(text, str) and self.is_csv:  # all rows are read to find text
            sources = [source, *(one() for one in sources[1:])]
        self._sources = sources
        self.roles = {"target": target, "qid": qid, "sample_weight": sample_weight}
        self.target, self.qid = target, qid
        self.others = [name for name in self.roles.values() if name is not None]
        for name in self.others:
            if not isinstance(name, str):
                raise ValueError(
                    f"target, qid and sample_weight are names of columns; got {name!r}"
                )
        self.chosen = features is not None
        self.features = self._choose(source, features, drop)
        self.widths: dict[str, int] = {}  # columns of ``data`` by feature: several for lists
        self._named: set[str] = set()  # columns of lists whose numbers are named one by one
        if self.chosen and not self.is_csv:
            self._join_lists(source)
        self.listed: set[str] = set()
        if isinstance(text, str):  # what is text in one file is so in all
            text = set().union(*(_opened(one).find_text(self.features) for one in sources))
        self.text = None if text is None else [name for name in self.features if name in text]
        self.id_kind: str | None = None
        self._check(source)
        labels = [name for name in self.features if name.lower() in ROLE_NAMES["target"]]
        if labels and not self.chosen:
            warn(
                f"{source.file}: column {_named(labels[0])} is read as a feature, and is named "
                f"like labels; if it is another label, leave it out by drop={labels[0]!r} "
                f"(--drop {labels[0]})"
            )

    def chunks(self, rows: float) -> Iterator[FileRows]:
        """All rows of all files."""
        for one in self._sources:
            source = _opened(one)
            self._check(source)
            yield from source.rows(self, rows)

    def bunch(self, rows: FileRows) -> Bunch:
        """What the user gets."""
        data, names = rows.data, self.feature_names
        if self.text is not None:
            words = () if rows.text is None else rows.text.T
            pairs = zip(self.text, words, strict=False)
            data = RawTable(names, data, {names.index(name): word for name, word in pairs})
        return Bunch(
            data=data,
            target=rows.target,
            qid=self.ids.array(rows.qid),
            sample_weight=rows.sample_weight,
            feature_names=names,
        )

    def _choose(self, source: Any, features: Any, drop: Any) -> list[str]:
        """Columns of the features: those that are named, or all but the others and ``drop``."""
        file, names, others = source.file, source.names, self.others
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
            both = set(chosen).intersection(dropped)
            if both:
                raise ValueError(
                    f"{file}: column {both.pop()!r} is one of the features, and dropped"
                )
            if self.is_csv and self.qid in chosen:
                raise ValueError(f"{file}: column {self.qid!r} for qid is also read as numbers")
            return chosen
        # The row index that pandas writes into a Parquet file is a feature only by name.
        without = {*others, *dropped, *filter(_ROW_INDEX.fullmatch, names)}
        left = [name for name in names if name not in without]
        if not left:
            raise ValueError(f"{file}: there is no column left for the features")
        index = {"", "Unnamed: 0"}.intersection(left if self.is_csv else ())
        if index:  # as pandas writes, and reads, a row index
            name = index.pop()
            raise ValueError(
                f"{file}: column {name!r} looks like the row numbers of a data frame; write the "
                f"file with index=False, leave it out by drop={name!r}, or name the features in "
                "features="
            )
        return left

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return list(dict.fromkeys([*self.others, *self.features]))

    @property
    def feature_names(self) -> list[str]:
        """Names for the columns of ``data``: ``name_0``, ``name_1``, … for lists."""
        names = []
        for name in self.features:
            is_list = name in self.listed
            names += [f"{name}_{i}" for i in range(self.widths[name])] if is_list else [name]
        return names

    def _check(self, source: Any) -> None:
        """Raise unless the file has these columns, with types that can be read."""
        counts, file = Counter(source.names), source.file
        for role, name in [*self.roles.items(), *(("features", name) for name in self.features)]:
            if name is not None and name not in counts:
                raise ValueError(f"{file}: {missing_column(role, name, source.names)}")
            if name is not None and counts[name] > 1:
                raise ValueError(f"{file}: two columns are named {_named(name)}")
        if self.is_csv:
            self.widths = dict.fromkeys(self.features, 1)
            return
        types = {name: source.schema.field(name).type for name in self.names}
        for role in ("target", "sample_weight"):
            name = self.roles[role]
            if name is not None and type_kind(types[name]) not in ("integers", "numbers"):
                raise ValueError(f"{file}: {role}={name!r} is not numeric but {types[name]}")
        text = self.text or ()
        numeric = [name for name in self.features if name not in text]
        wrong = [n for n in text if type_kind(types[n]) in ("lists", "others")]
        if wrong:
            raise ValueError(f"{file}: column {_named(wrong[0])} is not text but {types[wrong[0]]}")
        wrong = [name for name in numeric if not self._is_readable(types[name])]
        if wrong:
            is_text = type_kind(types[wrong[0]]) == "strings"
            hint = "" if self.chosen else droppable(wrong, text=is_text)
            raise ValueError(
                f"{file}: column {_named(wrong[0])} is not numeric but {types[wrong[0]]}{hint}"
            )
        self.listed = {name for name in numeric if type_kind(types[name]) == "lists"}
        for name in self.features:
            if name not in self.listed:
                self._set_width(name, 1, file)
                continue
            self._require_memory(name, source.numbers_in_a_row(name), file)
            if pyarrow().types.is_fixed_size_list(types[name]):
                self._set_width(name, types[name].list_size, file)
        if self.qid is not None:
            kind = type_kind(types[self.qid])
            if kind not in ("integers", "strings"):
                raise ValueError(
                    f"{file}: qid={self.qid!r} must hold integers or strings, and is "
                    f"{types[self.qid]}"
                )
            if self.id_kind not in (None, kind):
                raise ValueError(
                    f"{file}: qid={self.qid!r} holds {kind}, and {self.id_kind} in the first file"
                )
            self.id_kind = kind

    def _is_readable(self, type: Any) -> bool:
        """Whether values of this type are numbers, or all of them missing where this is allowed."""
        kind = type_kind(type.value_type if type_kind(type) == "lists" else type)
        return kind in ("integers", "numbers") or (self.keep_missing and kind == "nulls")

    def _join_lists(self, source: Any) -> None:
        """Replace the features of lists, as `feature_names` names them, by their columns."""
        columns: list[str] = []
        for name in self.features:
            column, _, number = name.rpartition("_")
            is_part = name not in source.names and column in source.names and number.isdigit()
            if not is_part or type_kind(source.schema.field(column).type) != "lists":
                columns.append(name)
                continue
            width = self.widths.get(column, 0)
            if int(number) != width or (width and columns[-1] != column):
                raise ValueError(
                    f"{source.file}: {_named(name)} is a number of the lists in column "
                    f"{_named(column)}, which are read as a whole: name the column in features="
                )
            columns += [column] if width == 0 else []
            self.widths[column] = width + 1
        self.features, self._named = columns, set(self.widths)

    def _set_width(self, name: str, width: int, place: str) -> None:
        self._require_memory(name, width, place)
        known = self.widths.setdefault(name, width)
        if known != width:
            raise ValueError(
                f"{place}: column {_named(name)} has {width} numbers in a row, not {known}"
            )

    def _require_memory(self, name: str, width: int, place: str) -> None:
        """Raise unless a model of a column of so long lists, and their names, can be held."""
        copies = _resources.VECTORS + _resources.NAME_VECTORS
        total = width + sum(n for other, n in self.widths.items() if other != name)
        if width > 1 and not _resources.fits_features(total, copies):
            raise ValueError(
                f"{place}: column {_named(name)} has {width:,} numbers in a row, and a model of "
                f"{total:,} features needs {total * 8 * copies / 2**30:.1f} GiB of memory or more"
                f"{droppable([name])}"
            )

    def rows(self, batch: Any, place: Place) -> FileRows:
        """The arrays of a RecordBatch; ``place`` tells how an error calls a row of it."""
        for name in self.listed - set(self.widths):  # lists whose length the schema does not say
            column = batch.column(name)
            if self.keep_missing and column.null_count < len(column):
                column = column.drop_null()
            self._set_width(name, len(column[0]) if column[0].is_valid else 0, place(0))
        target, weight = (
            None if name is None else self._numbers(batch.column(name), name, place, role)
            for role, name in self.roles.items()
            if role != "qid"
        )
        qid = None if self.qid is None else self._labels(batch.column(self.qid), place)
        text = None
        if self.text:
            text = np.empty((len(batch), len(self.text)), dtype=object)
            once: dict[Any, Any] = {None: None}  # equal words are one object
            for k, name in enumerate(self.text):
                with readable(partial(place, 0), self.kind):
                    words = _as_text(batch.column(name))
                text[:, k] = [once.setdefault(word, word) for word in words]
        # The features, shape (n_rows, n_features); NaN for text.
        pieces = [self._feature(batch, name, place) for name in self.features]
        n_columns = sum(piece.shape[1] for piece in pieces)
        data = np.empty((len(batch), n_columns), dtype=self.dtype)
        size = max(_BLOCK_BYTES // (data.itemsize * max(n_columns, 1)), 64)
        for first in range(0, len(data), size):  # columns to rows, within the cache
            block, start = data[first : first + size], 0
            for piece in pieces:
                block[:, start : start + piece.shape[1]] = piece[first : first + size]
                start += piece.shape[1]
        return FileRows(data, target, qid, weight, text, place=place)

    def _feature(self, batch: Any, name: str, place: Place) -> Array:
        """A column, shape (n_rows, 1), or lists of equal length; a missing list is a row of NaN."""
        if name in (self.text or ()):
            return np.full((len(batch), 1), np.nan, dtype=self.dtype)
        if name not in self.listed:
            return self._numbers(batch.column(name), name, place)[:, None]
        column = batch.column(name)
        if not self.keep_missing:
            self._require_valid(column, name, place, REMEDY)
        there, width = np.arange(len(column)), self.widths[name]
        if column.null_count:
            there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            column = column.drop_null()
        lengths = np.full(len(column), width)
        if not pyarrow().types.is_fixed_size_list(column.type):
            lengths = np.asarray(column.value_lengths().to_numpy(zero_copy_only=False))
        for at in np.flatnonzero(lengths != width)[:1]:
            wanted = f"not {width} as in the first"
            if name in self._named:
                wanted = f"not {width} as features are named; to read all, name the column"
            raise ValueError(
                f"{place(there[at])}: column {_named(name)} has {lengths[at]} numbers in this "
                f"row, {wanted}"
            )
        numbers = self._numbers(column.flatten(), name, lambda at: place(there[at // width]))
        data = np.full((len(batch), width), np.nan, dtype=self.dtype)
        data[there] = numbers.reshape(len(there), width)
        return data

    def _require_valid(self, column: Any, name: str, place: Place, remedy: str = "") -> None:
        """Raise if there is a null."""
        if not column.null_count:
            return
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        blank, need = ("empty", "a number") if self.is_csv else ("null", "a value")
        need = "an id" if name == self.qid else need
        hint = droppable([name]) if remedy and self.is_csv and not self.chosen else ""
        raise ValueError(
            f"{place(row)}: column {_named(name)} is {blank}; every row needs {need} there"
            f"{remedy}{hint}"
        )

    def _numbers(self, column: Any, name: str, place: Place, role: str = "features") -> Array:
        """A column as finite numbers, and NaN if missing ones are kept."""
        nullable = {"features": self.keep_missing, "target": self.drop_unlabelled}.get(role, False)
        dtype, remedy = (self.dtype, REMEDY) if role == "features" else (np.dtype(float), "")
        column = _decoded(column)
        if not nullable:
            self._require_valid(column, name, place, remedy)
        if pyarrow().types.is_decimal(column.type):
            column = column.cast(pyarrow().float64())
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = column.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
            if np.isfinite(numbers.sum()):  # then all of them are
                return numbers
        wrong = ~np.isfinite(numbers)
        if nullable:  # in text files, all that is missing has become null
            wrong &= column.is_valid().to_numpy(False) if self.is_csv else ~np.isnan(numbers)
        for row in np.flatnonzero(wrong)[:1]:
            value = column[int(row)].as_py()
            large = f", too large for {dtype}" if np.isfinite(value) else ""
            raise ValueError(
                f"{place(int(row))}: column {_named(name)} is {value}{large}; every cell needs a "
                f"finite number{remedy if np.isnan(value) else ''}"
            )
        return numbers

    def _labels(self, column: Any, place: Place) -> Array:
        """Query ids: int64 (uint64 if the column is), or str as objects."""
        self._require_valid(column, self.qid, place)
        if self.id_kind == "integers":
            numbers = _decoded(column).to_numpy(zero_copy_only=False)
            return numbers if numbers.dtype == np.uint64 else numbers.astype(np.int64, copy=False)
        with readable(partial(place, 0), self.kind):
            is_coded = pyarrow().types.is_dictionary(column.type)
            coded = column if is_coded else column.dictionary_encode()
            # The dictionary may be that of many chunks.
            used, codes = np.unique(
                coded.indices.to_numpy(zero_copy_only=False), return_inverse=True
            )
            words = coded.dictionary.take(pyarrow().array(used)).to_pylist()
        for number, word in enumerate(words):
            if "\0" in word:
                row = int(np.argmax(codes == number))
                raise ValueError(f"{place(row)}: column {self.qid!r} has a NUL character")
        return as_objects(words)[codes]


def _opened(source: Any) -> Any:
    """The file, or what opens it."""
    return source() if callable(source) else source


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


def droppable(names: list[str], *, text: bool = False) -> str:
    """What to do about columns that are no numbers; ``text``: whether they can be read as text."""
    one = len(names) == 1
    which = _named(names[0]) if one else f"[{', '.join(map(_named, names[:10]))}]"
    more = ", …" * (len(names) > 10)
    keep = ", or keep text for AutoRanker by load_ranking with text='auto'" * text
    return (
        f"; if {'it is' if one else 'they are'} no feature, leave {'it' if one else 'them'} out by "
        f"drop={which}{more}, or name the features in features={keep}"
    )


def missing_column(role: str, name: str, names: list[str]) -> str:
    """Say what columns there are, and which one may be meant."""
    lower = {known.lower(): known for known in names[:_MAX_GUESSES]}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    hint = f" (did you mean {_named(lower[near[0]])}?)" if near else ""
    return f"no column {name!r} for {role}{hint}; the columns are {listed(names)}"


def listed(names: list[str]) -> str:
    """The first names of columns, and how many there are."""
    return ", ".join(map(_named, names[:20])) + f", … {len(names)} in all" * (len(names) > 20)


def _named(name: str) -> str:
    return shown(name, 80)


def type_kind(type: Any) -> str:
    """What values of an Arrow type are, also those that are stored as a dictionary."""
    types = pyarrow().types
    type = type.value_type if types.is_dictionary(type) else type
    if types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type):
        return "lists"
    if types.is_integer(type):
        return "integers"
    if types.is_floating(type) or types.is_boolean(type) or types.is_decimal(type):
        return "numbers"
    if str(type) in ("string", "large_string", "string_view"):
        return "strings"
    if types.is_temporal(type) and not types.is_interval(type):
        return "times"
    return "nulls" if types.is_null(type) else "others"


def _as_text(column: Any) -> list[str | None]:
    """Cells as text, None where they are null."""
    column = _decoded(column)
    words = column.cast(pyarrow().large_string()).to_pylist()
    if type_kind(column.type) != "times":
        return words
    unit = f" {column.type.unit}" if pyarrow().types.is_duration(column.type) else ""
    return [None if word is None else _NO_FRACTION.sub("", word) + unit for word in words]


def _decoded(column: Any) -> Any:
    return column.dictionary_decode() if pyarrow().types.is_dictionary(column.type) else column
