"""Rows of tables with named columns: which column is what, of which type, and its values."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from rankrls import _resources
from rankrls._calls import warn
from rankrls._frames import QUERY_NAMES, RawTable
from rankrls.datasets._arrow import (
    as_text,
    csv_numbers,
    decoded,
    missing_cells,
    pyarrow,
    readable,
    stripped,
    type_kind,
)
from rankrls.datasets._batches import FileRows, RowReader
from rankrls.datasets._cells import (
    REMEDY,
    as_objects,
    is_missing,
    is_word,
    number_hint,
    shown,
)

Array = NDArray[Any]
Place = Callable[[int], str]

#: Names that a column of labels or query ids is looked for by, in any case.
ROLE_NAMES = {
    "target": ("label", "relevance", "rel", "grade", "target", "y"),
    "qid": QUERY_NAMES,
}

_BLOCK_BYTES = 1 << 21
_MAX_GUESSES = 1000  # names that are looked at for one like another

_ROW_INDEX = re.compile(r"__index_level_\d+__")  # a data frame's row index, written by pandas


# -- which column is what -----------------------------------------------------------------------


def choose_columns(source: Any, options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Columns by role, and those of the features.

    If ``options`` has ``need``, columns called "auto" are found by their names, a column of query
    ids that are not read is no feature, and "a,b" in ``drop`` is two columns.
    """
    file, names, need = source.file, source.names, options.get("need")
    roles = {role: options[role] for role in ("target", "qid", "sample_weight")}
    for name in roles.values():
        if not isinstance(name, str | None):
            raise ValueError(f"target, qid and sample_weight are names of columns; got {name!r}")
    chosen = None if options["features"] is None else check_names(options["features"])
    dropped = [] if options["drop"] is None else check_names(options["drop"], "drop")
    known, used = set(names), set(chosen or ())
    if need is not None:
        parts = [[n] if n in known else map(str.strip, n.split(",")) for n in dropped]
        dropped = list(dict.fromkeys(name for part in parts for name in part if name))
        without = used.union(dropped)
        free = [name for name in names if name not in without]
        for role in ROLE_NAMES:
            if roles[role] in used:
                raise ValueError(
                    f"{file}: column {roles[role]!r} for {role} is also one of the features"
                )
            if roles[role] == "auto":
                roles[role] = _find_column(source, role, free, need)
        if options["qid"] is None:
            taken = roles.values()
            dropped += [n for n in free if n.lower() in QUERY_NAMES and n not in taken]
    others = [name for name in roles.values() if name is not None]
    for role, name in [*roles.items(), *(("drop", name) for name in dropped)]:
        if name is not None and name not in known:
            raise ValueError(f"{file}: {missing_column(role, name, names)}")
        if role == "drop" and (name in others or name in used):
            what = "is read, and cannot be" if name in others else "is one of the features, and"
            raise ValueError(f"{file}: column {name!r} {what} dropped")
    if chosen is not None:
        if not chosen and not others:
            raise ValueError(f"{file}: there is no column to read")
        return roles, chosen
    # The row index that pandas writes into a Parquet file is a feature only by name.
    without = {*others, *dropped, *filter(_ROW_INDEX.fullmatch, names)}
    left = [name for name in names if name not in without]
    if not left:
        raise ValueError(f"{file}: there is no column left for the features")
    for name in left:
        if source.kind == "CSV" and name in ("", "Unnamed: 0"):  # as pandas writes a row index
            raise ValueError(
                f"{file}: column {name!r} looks like the row numbers of a data frame; write the "
                f"file with index=False, leave it out by drop={name!r}, or name the features in "
                "features="
            )
        if name.lower() in ROLE_NAMES["target"]:
            warn(
                f"{file}: column {_named(name)} is read as a feature, and is named like labels; "
                f"if it is another label, leave it out by drop={name!r} (--drop {name})"
            )
    return roles, left


def _find_column(source: Any, role: str, free: list[str], need: Sequence[str]) -> str | None:
    """The column with a name for labels or query ids; None if there is none, and need not be."""
    what = "labels" if role == "target" else "query ids"
    found = [name for name in free if name.lower() in ROLE_NAMES[role]]
    if len(found) > 1:
        which = " and ".join(map(repr, found))
        raise ValueError(
            f"{source.file}: {which} could both be the column of {what}; name it in {role}="
        )
    if not found and role in need:
        one = ", or pass qid=None if all rows are one ranking" if role == "qid" else ""
        raise ValueError(
            f"{source.file}: no column is called {', '.join(ROLE_NAMES[role])}: name the column of "
            f"{what} in {role}={one}; the columns are {listed(source.names)}"
        )
    return found[0] if found else None


def check_names(given: Any, what: str = "features") -> list[str]:
    """Names of columns as a list; a single string is one name."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Sequence | np.ndarray) or not all(
        isinstance(name, str) for name in given
    ):
        raise ValueError(f"{what} must be names of columns; got {given!r}")
    twice = [name for name, count in Counter(given).items() if count > 1]
    if twice:
        raise ValueError(f"{what} names {str(twice[0])!r} twice")
    return list(map(str, given))


def _drop_hint(names: list[str], *, text: bool = False) -> str:
    """What to do about columns that are no numbers; ``text``: whether they can be read as text."""
    one, more = len(names) == 1, ", …" * (len(names) > 10)
    which = _named(names[0]) if one else f"[{', '.join(map(_named, names[:10]))}{more}]"
    option = ",".join(f'"{name}"' if "," in name else name for name in names[:10])
    keep = ", or use AutoRanker, which takes text (text='auto', rankrls fit --auto)" * text
    return (
        f"; drop {'it' if one else 'them'} if {'it is' if one else 'they are'} no feature "
        f"(drop={which}, --drop {shown(option, 800)}{more}){keep}"
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


# -- rows ---------------------------------------------------------------------------------------


class TableReader(RowReader):
    """Rows of CSV or Parquet files, with the arguments of `load_ranking`.

    ``openers`` are functions that open the files. A source has ``file``, ``kind``, ``names``, the
    Arrow ``schema`` (None for CSV, whose cells are text), ``find_text``, ``numbers_in_a_row`` of
    lists, and ``parts``: functions that load some columns, and what names a row of them in errors.
    """

    def __init__(self, openers: Sequence[Callable[[], Any]], options: dict[str, Any]) -> None:
        source = openers[0]()
        self.kind, self.is_csv = source.kind, source.kind == "CSV"
        super().__init__(source.file, self.is_csv, options)
        self.roles, self.features = choose_columns(source, options)
        self.chosen, self.qid = options["features"] is not None, self.roles["qid"]
        if self.is_csv and self.qid is not None and self.qid in self.features:
            raise ValueError(f"{self.file}: column {self.qid!r} for qid is also read as numbers")
        self.widths: dict[str, int] = {}  # columns of ``data`` by feature: several for lists
        self.lists: set[str] = set()
        asked_for = self.features
        if self.chosen and not self.is_csv:
            self._join_lists(source)
        self._named_lists = set(self.widths)  # whose numbers are named one by one
        self._sources: list[Any] = [lambda: source, *openers[1:]]
        text = options.get("text")
        self._auto_text = isinstance(text, str)
        if self._auto_text:  # what is text in one file is so in all
            every = [source, *(opener() for opener in openers[1:])]
            text = set().union(*(one.find_text(self.features) for one in every))
            if self.is_csv:  # all rows have been read to find text
                self._sources = [partial(next, iter([one])) for one in every]
        self.text = None if text is None else [name for name in self.features if name in text]
        self.id_kind: str | None = None
        self._check(source)
        if self._named_lists and self.feature_names != asked_for:
            raise ValueError(
                f"{self.file}: the lists in column {_named(min(self._named_lists))} are read as a "
                "whole, in their order: name the column in features="
            )

    def _join_lists(self, source: Any) -> None:
        """Replace the features of lists, as `feature_names` names them, by their columns."""
        kinds, columns = {f.name: type_kind(f.type) for f in source.schema}, list[str]()
        for name in self.features:
            column, _, number = name.rpartition("_")
            is_part = name not in kinds and number.isdigit() and kinds.get(column) == "lists"
            columns.append(column if is_part else name)
            if is_part:
                self.widths[column] = self.widths.get(column, 0) + 1
        self.features = list(dict.fromkeys(columns))

    def chunks(self, rows: float) -> Iterator[FileRows]:
        """All rows of all files."""
        for opener in self._sources:
            source = opener()
            self._check(source)
            width = sum(self.widths.get(n) or source.numbers_in_a_row(n) for n in self.features)
            others = [name for name in self.roles.values() if name is not None]
            parts = source.parts(list(dict.fromkeys([*others, *self.features])), rows, width)
            found = _resources.in_order(lambda one: self._rows(*one), parts, source.threads)
            yield from filter(len, found)

    def prepare_batches(self) -> None:
        """Raise if all rows are looked at to find columns of text."""
        if self._auto_text and self.is_csv:
            raise ValueError(
                f"{self.file}: text='auto' looks at all rows of a CSV file: name the columns of "
                "text, or use load_ranking"
            )

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
            qid=self.query_ids(rows.qid),
            sample_weight=rows.sample_weight,
            feature_names=names,
            comments=None,
            format="csv" if self.is_csv else "parquet",
            target_name=self.roles["target"],
            qid_name=self.qid,
        )

    @property
    def feature_names(self) -> list[str]:
        """Names for the columns of ``data``: ``name_0``, ``name_1``, … for lists."""
        names = []
        for name in self.features:
            is_list = name in self.lists
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
        read = [*filter(None, self.roles.values()), *self.features]
        types = {name: source.schema.field(name).type for name in read}
        text = self.text or ()
        numeric = [name for name in self.features if name not in text]
        wrong = [n for n in text if type_kind(types[n]) in ("lists", "others")]
        if wrong:
            raise ValueError(f"{file}: column {_named(wrong[0])} is not text but {types[wrong[0]]}")
        for role in ("target", "sample_weight"):
            name = self.roles[role]
            if name is not None and type_kind(types[name]) not in ("integers", "numbers"):
                raise ValueError(f"{file}: {role}={name!r} is not numeric but {types[name]}")
        allowed = ("integers", "numbers", *["nulls"] * self.keep_missing)
        wrong = [n for n in numeric if type_kind(types[n], within_lists=True) not in allowed]
        if wrong:
            is_text = type_kind(types[wrong[0]]) == "strings"
            hint = "" if self.chosen else _drop_hint(wrong, text=is_text)
            raise ValueError(
                f"{file}: column {_named(wrong[0])} is not numeric but {types[wrong[0]]}{hint}"
            )
        self.lists = {name for name in numeric if type_kind(types[name]) == "lists"}
        for name in self.features:
            fixed = getattr(types[name], "list_size", 1)
            if name in self.lists:
                self._require_memory(name, source.numbers_in_a_row(name), file)
            if name not in self.lists or pyarrow().types.is_fixed_size_list(types[name]):
                self._set_width(name, fixed if name in self.lists else 1, file)
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
                f"{_drop_hint([name])}"
            )

    def _rows(self, load: Callable[[], dict[str, Any]], place: Place) -> FileRows:
        """The arrays of some rows of a file."""
        columns = load()
        for name in self.lists - set(self.widths):  # lists whose length the schema does not say
            column = columns[name]
            if self.keep_missing and column.null_count < len(column):
                column = column.drop_null()
            self._set_width(name, len(column[0]) if column[0].is_valid else 0, place(0))
        target, weight = (
            None if self.roles[role] is None else self._numbers(columns, self.roles[role], place)
            for role in ("target", "sample_weight")
        )
        qid = None if self.qid is None else self._ids(columns[self.qid], place)
        n_rows = len(next(iter(columns.values())))
        text = None
        if self.text:
            text = np.empty((n_rows, len(self.text)), dtype=object)
            once: dict[Any, Any] = {None: None}  # equal words are one object
            for k, name in enumerate(self.text):
                with readable(partial(place, 0), self.kind):
                    words = (
                        stripped(columns[name]).to_pylist()
                        if self.is_csv
                        else as_text(columns[name])
                    )
                text[:, k] = [once.setdefault(word, word) for word in words]
        # The features, shape (n_rows, n_features); NaN for text.
        nothing = np.full((n_rows, 1), np.nan, dtype=self.dtype)
        pieces = [nothing if self.text and name in self.text
                  else self._lists(columns, name, place) if name in self.lists
                  else self._numbers(columns, name, place, feature=True)[:, None]
                  for name in self.features]  # fmt: skip
        n_columns = sum(piece.shape[1] for piece in pieces)
        data = np.empty((n_rows, n_columns), dtype=self.dtype)
        size = max(_BLOCK_BYTES // (data.itemsize * max(n_columns, 1)), 64)
        for first in range(0, len(data), size):  # columns to rows, within the cache
            block, start = data[first : first + size], 0
            for piece in pieces:
                block[:, start : start + piece.shape[1]] = piece[first : first + size]
                start += piece.shape[1]
        return FileRows(data, target, qid, weight, text, place=place)

    def _lists(self, columns: dict[str, Any], name: str, place: Place) -> Array:
        """Lists of equal length, shape (n_rows, width); a missing list is a row of NaN."""
        column, width = columns[name], self.widths[name]
        if not self.keep_missing:
            self._require_valid(column, name, place, REMEDY)
        data = np.full((len(column), width), np.nan, dtype=self.dtype)
        there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        column = column.drop_null()
        lengths = np.full(len(column), width)
        if not pyarrow().types.is_fixed_size_list(column.type):
            lengths = np.asarray(column.value_lengths().to_numpy(zero_copy_only=False))
        for at in np.flatnonzero(lengths != width)[:1]:
            wanted = f"not {width} as in the first"
            if name in self._named_lists:
                wanted = f"not {width} as features are named; to read all, name the column"
            raise ValueError(
                f"{place(there[at])}: column {_named(name)} has {lengths[at]} numbers in this "
                f"row, {wanted}"
            )
        numbers = self._numbers(
            {name: column.flatten()}, name, lambda at: place(there[at // width]), feature=True
        )
        data[there] = numbers.reshape(len(there), width)
        return data

    def _require_valid(self, column: Any, name: str, place: Place, remedy: str = "") -> None:
        """Raise if there is a null."""
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            blank, need = "empty" if self.is_csv else "null", "an id" * (name == self.qid)
            raise ValueError(
                f"{place(row)}: column {_named(name)} is {blank}; every row needs "
                f"{need or 'a value'} there{remedy}"
            )

    def _numbers(
        self, columns: dict[str, Any], name: str, place: Place, *, feature: bool = False
    ) -> Array:
        """A column as finite numbers, and NaN if missing ones are kept."""
        is_target = not feature and name == self.roles["target"]
        nullable = self.keep_missing if feature else is_target and self.drop_unlabelled
        dtype, column = self.dtype if feature else np.dtype(float), decoded(columns[name])
        with np.errstate(over="ignore", invalid="ignore"):
            if self.is_csv:
                values = csv_numbers(column)
            else:
                if not nullable:
                    self._require_valid(column, name, place, REMEDY * feature)
                if pyarrow().types.is_decimal(column.type):
                    column = column.cast(pyarrow().float64())
                values = column.to_numpy(zero_copy_only=False)
            numbers = values.astype(dtype, copy=False)
            if np.isfinite(numbers.sum()):  # then all of them are
                return numbers
        wrong = ~np.isfinite(numbers)
        if nullable:
            wrong &= ~missing_cells(column) if self.is_csv else ~np.isnan(numbers)
        for row in np.flatnonzero(wrong)[:1].tolist():
            what = values[row]
            if np.isfinite(what):
                what = f"{what}, too large for {dtype}; every cell needs a finite number"
            elif self.is_csv:
                self._refuse_cell(columns, name, row, place, feature)
            else:
                what = f"{what}; every cell needs a finite number"
                what += REMEDY * (feature and bool(np.isnan(values[row])))
            raise ValueError(f"{place(row)}: column {_named(name)} is {what}")
        return numbers

    def _refuse_cell(
        self, columns: dict[str, Any], name: str, row: int, place: Place, feature: bool
    ) -> NoReturn:
        """Raise for a cell of a CSV file that is no number; name all columns of text."""
        cell = columns[name][row].as_py().strip()
        what = f"is {shown(cell)}, not a finite number{number_hint(cell)}"
        if not cell:
            what = "is empty; every row needs a number there"
            hint = (
                " (unlabelled='drop' leaves such rows out)" if name == self.roles["target"] else ""
            )
            what += "" if feature else hint or " (leave out rows without one)"
        hint = REMEDY * (feature and is_missing(cell))
        if feature and not self.chosen:
            known = self.text or ()
            words = {n: columns[n].unique().to_pylist() for n in self.features if n not in known}
            others = [n for n in words if n == name or any(map(is_word, words[n]))]
            hint += _drop_hint(others, text=is_word(cell))
        raise ValueError(f"{place(row)}: column {_named(name)} {what}{hint}")

    def _ids(self, column: Any, place: Place) -> Array:
        """Query ids: int64 (uint64 if the column is), or str as objects."""
        column = stripped(column) if self.is_csv else column
        self._require_valid(column, self.qid, place)
        if self.id_kind == "integers":
            numbers = decoded(column).to_numpy(zero_copy_only=False)
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
