"""Rows of tables with named columns: which column is what, of which type, and its values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from rankrls import _resources
from rankrls._calls import warn
from rankrls._frames import QUERY_NAMES, named_frame
from rankrls._resources import pyarrow
from rankrls.datasets._batches import FileRows, RowReader
from rankrls.datasets._sources import (
    csv_numbers,
    decoded,
    missing_cells,
    readable,
    stripped,
    type_kind,
    words_of,
)
from rankrls.datasets.formats import (
    REMEDY,
    is_word,
    listed,
    missing_column,
    named,
    number_hint,
    shown,
    spells_missing,
)

Array = NDArray[Any]
Place = Callable[[int], str]

#: Names that a column of labels or query ids is looked for by, in any case.
ROLE_NAMES = {
    "target": ("label", "relevance", "rel", "grade", "target", "y"),
    "qid": QUERY_NAMES,
}

#: The end of the error of a missing label.
_UNLABELLED = " (unlabelled='drop' leaves such rows out)"

_BLOCK_BYTES = 1 << 21

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
            if roles[role] == "auto":
                roles[role] = _find_column(source, role, free, need)
            elif options[role] is None:  # is no feature either
                taken = roles.values()
                dropped += [n for n in free if n.lower() in ROLE_NAMES[role] and n not in taken]
    others = {role: name for role, name in roles.items() if name is not None}
    for role, name in [*others.items(), *(("drop", name) for name in dropped)]:
        if name not in known:
            raise ValueError(f"{file}: {missing_column(role, name, names)}")
        is_read = role == "drop" and name in others.values()
        if is_read or (name in used and role != "sample_weight"):
            what = "one of the features" if name in used else "read"
            raise ValueError(f"{file}: column {name!r} for {role} is also {what}")
    if chosen is not None:
        if not chosen and not others:
            raise ValueError(f"{file}: there is no column to read")
        return roles, chosen
    # The row index that pandas writes into a Parquet file is a feature only by name.
    without = {*others.values(), *dropped, *filter(_ROW_INDEX.fullmatch, names)}
    left = [name for name in names if name not in without]
    if not left:
        raise ValueError(f"{file}: there is no column left for the features")
    # Beside other text, "query" is the text of the query.
    ids = [name for name in QUERY_NAMES if name != "query" or options.get("text") is None]
    for name in left:
        if source.kind == "CSV" and name in ("", "Unnamed: 0"):  # as pandas writes a row index
            raise ValueError(
                f"{file}: column {name!r} looks like the row numbers of a data frame; write the "
                f"file with index=False, leave it out by drop={name!r}, or name the features in "
                "features="
            )
        labels = name.lower() in ROLE_NAMES["target"]
        if labels or (roles["qid"] is not None and name.lower() in ids):
            like, what = ("labels", "another label") if labels else ("query ids", "an id")
            warn(
                f"{file}: column {named(name)} is read as a feature, and is named like {like}; "
                f"if it is {what}, leave it out by drop={name!r} (--drop {name})"
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
        if "winner" in map(str.lower, source.names):
            one += " (judgements of pairs? rankrls leaderboard rates their items)"
        raise ValueError(
            f"{source.file}: no column is called {', '.join(ROLE_NAMES[role])}: name the column of "
            f"{what} in {role}={one}; the columns are {listed(source.names)}"
        )
    return found[0] if found else None


def check_names(given: Any, what: str = "features") -> list[str]:
    """Names of columns as a list; a single string is one name."""
    is_list = isinstance(given, Iterable) and not isinstance(given, Mapping | Set)
    names = [given] if isinstance(given, str) else list(given) if is_list else [None]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{what} must be names of columns; got {given!r}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{what} names {str(twice[0])!r} twice")
    return list(map(str, names))


def _drop_hint(names: list[str], *, text: bool = False) -> str:
    """What to do about columns that are no numbers; ``text``: whether they can be read as text."""
    one, more = len(names) == 1, ", …" * (len(names) > 10)
    which = named(names[0]) if one else f"[{', '.join(map(named, names[:10]))}{more}]"
    option = ",".join(f'"{name}"' if "," in name else name for name in names[:10])
    keep = ", or use AutoRanker, which takes text (text='auto', rankrls fit --auto)" * text
    return (
        f"; drop {'it' if one else 'them'} if {'it is' if one else 'they are'} no feature "
        f"(drop={which}, --drop {shown(option, 800)}{more}){keep}"
    )


# -- rows ---------------------------------------------------------------------------------------


class TableReader(RowReader):
    """Rows of CSV or Parquet files, with the arguments of `load_ranking`.

    ``openers`` are functions that open the files. A source has ``file``, ``kind``, ``names``, the
    Arrow ``schema`` (None for CSV, whose cells are text), ``find_text``, and ``parts``: functions
    that load some columns, and what names a row of them in errors.
    """

    def __init__(self, openers: Sequence[Callable[[], Any]], options: dict[str, Any]) -> None:
        source = openers[0]()
        self.kind, self.is_csv = source.kind, source.kind == "CSV"
        super().__init__(source.file, self.is_csv, options)
        self.roles, self.features = choose_columns(source, options)
        self.qid, self.chosen = self.roles["qid"], None
        if options["features"] is not None:
            self.chosen, self.features = self.features, self._with_whole_lists(source)
        self.widths: dict[str, int] = {}  # columns of ``data`` by feature: several for lists
        self.lists: set[str] = set()
        self.id_kind: str | None = None
        self._sources: list[Any] = [source, *openers[1:]]
        text = options.get("text")
        self._auto_text = isinstance(text, str)
        if self._auto_text:  # what is text in one file is so in all
            every = [source, *(opener() for opener in openers[1:])]
            text = set().union(*(one.find_text(self.features) for one in every))
            if self.is_csv:  # all rows have been read to find text
                self._sources = every
        for name in text or ():
            if name not in source.names:
                raise ValueError(f"{self.file}: {missing_column('text', name, source.names)}")
        self.text = None if text is None else [name for name in self.features if name in text]
        self._check(source)

    def _with_whole_lists(self, source: Any) -> list[str]:
        """The features that were chosen, with e for e_0, e_1, … if e is a column of lists."""
        lists = {f.name for f in source.schema or () if type_kind(f.type) == "lists"}
        parts = {name: name.rpartition("_") for name in self.features if name not in source.names}
        parts = {name: part for name, part in parts.items() if part[2].isdigit()}
        columns = [parts[n][0] if n in parts and parts[n][0] in lists else n for n in self.features]
        return list(dict.fromkeys(columns))

    def chunks(self, rows: float) -> Iterator[FileRows]:
        """All rows of all files, which are read once."""
        while self._sources:
            source = self._sources.pop(0)
            source = source() if callable(source) else source
            self._check(source)
            width = sum(self.widths.get(n) or source.numbers_in_a_row(n) for n in self.features)
            others = [name for name in self.roles.values() if name is not None]
            columns = list(dict.fromkeys([*others, *self.features]))
            numbers = set(columns).difference(self.text or (), [self.qid])
            parts = source.parts(columns, rows, width, numbers)
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
        data, names = rows.data, []  # name_0, name_1, … for lists
        for name in self.features:
            is_list = name in self.lists
            names += [f"{name}_{i}" for i in range(self.widths[name])] if is_list else [name]
        if self.lists and self.chosen not in (None, self.features, names):
            places = {name: j for j, name in enumerate(names)}
            for name in self.chosen:
                if name not in places:
                    raise ValueError(f"{self.file}: {missing_column('features', name, names)}")
            data, names = data[:, [places[name] for name in self.chosen]], self.chosen
        if self.text is not None:
            words = () if rows.text is None else rows.text.T
            data = named_frame(data, names, dict(zip(self.text, words, strict=False)))
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

    def _check(self, source: Any) -> None:
        """Raise unless the file has these columns, with types that can be read."""
        counts, file = Counter(source.names), source.file
        others = {role: name for role, name in self.roles.items() if name is not None}
        text = self.text or ()
        numeric = [name for name in self.features if name not in text]
        for role, name in [*others.items(), *(("features", name) for name in self.features)]:
            if name not in counts:
                raise ValueError(f"{file}: {missing_column(role, name, source.names)}")
            if counts[name] > 1:
                raise ValueError(f"{file}: two columns are named {named(name)}")
        if self.is_csv:
            self.widths = dict.fromkeys(self.features, 1)
            return
        types = {n: source.schema.field(n).type for n in [*others.values(), *self.features]}
        numbers = ("integers", "numbers")
        for names, allowed, what in (
            ([self.qid] if self.qid else [], ("integers", "strings"), "integers or strings"),
            ([name for role, name in others.items() if role != "qid"], numbers, "numeric"),
            (text, (*numbers, "strings", "times", "nulls"), "text"),
            (numeric, (*numbers, *["nulls"] * self.keep_missing), "numeric"),
        ):
            kinds = {name: type_kind(types[name], within_lists=names is numeric) for name in names}
            wrong = [name for name, kind in kinds.items() if kind not in allowed]
            if wrong:
                is_text = type_kind(types[wrong[0]]) == "strings"
                can_drop = names is numeric and self.chosen is None
                hint = _drop_hint(wrong, text=is_text) if can_drop else ""
                raise ValueError(
                    f"{file}: column {named(wrong[0])} is not {what} but {types[wrong[0]]}{hint}"
                )
        self.lists = {name for name in numeric if type_kind(types[name]) == "lists"}
        for name in self.features:
            if name not in self.lists:
                self._set_width(name, 1, file)
            elif pyarrow().types.is_fixed_size_list(types[name]):
                self._set_width(name, types[name].list_size, file)
            else:
                self._require_memory(name, source.numbers_in_a_row(name), file)
        if self.qid is not None:
            kind = type_kind(types[self.qid])
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
                f"{place}: column {named(name)} has {width} numbers in a row, not {known}"
            )

    def _require_memory(self, name: str, width: int, place: str) -> None:
        """Raise unless a model of a column of so long lists, and their names, can be held."""
        copies = _resources.VECTORS + _resources.NAME_VECTORS
        total = width + sum(n for other, n in self.widths.items() if other != name)
        if width > 1 and not _resources.fits_features(total, copies):
            raise ValueError(
                f"{place}: column {named(name)} has {width:,} numbers in a row, and a model of "
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
            for k, name in enumerate(self.text):
                with readable(partial(place, 0), self.kind):
                    text[:, k] = words_of(stripped(columns[name]) if self.is_csv else columns[name])
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
            raise ValueError(
                f"{place(there[at])}: column {named(name)} has {lengths[at]} numbers in this "
                f"row, not {width} as in the first"
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
                f"{place(row)}: column {named(name)} is {blank}; every row needs "
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
            is_text = column.type == pyarrow().string()  # of CSV files, unless all are numbers
            if is_text:
                values = csv_numbers(column)
            else:
                if not nullable:
                    self._require_valid(
                        column, name, place, REMEDY * feature + _UNLABELLED * is_target
                    )
                if pyarrow().types.is_decimal(column.type):
                    column = column.cast(pyarrow().float64())
                values = column.to_numpy(zero_copy_only=False)
            numbers = values.astype(dtype, copy=False)
            if np.isfinite(numbers.sum()):  # then all of them are
                return numbers
        wrong = ~np.isfinite(numbers)
        if nullable:
            wrong &= ~missing_cells(column) if is_text else ~np.isnan(numbers)
        for row in np.flatnonzero(wrong)[:1].tolist():
            what = values[row]
            if np.isfinite(what):
                what = f"{what}, too large for {dtype}; every cell needs a finite number"
            elif is_text:
                self._refuse_cell(columns, name, row, place, feature)
            else:
                what = f"{what}; every cell needs a finite number"
                what += REMEDY * (feature and bool(np.isnan(values[row])))
            raise ValueError(f"{place(row)}: column {named(name)} is {what}")
        return numbers

    def _refuse_cell(
        self, columns: dict[str, Any], name: str, row: int, place: Place, feature: bool
    ) -> NoReturn:
        """Raise for a cell of a CSV file that is no number; name all columns of text."""
        cell = columns[name][row].as_py().strip()
        what = f"is {shown(cell)}, not a finite number{number_hint(cell)}"
        if not cell:
            what = "is empty; every row needs a number there"
        hint = ""
        if spells_missing(cell):
            of_target = name == self.roles["target"]
            hint = _UNLABELLED if of_target else " (leave out rows without one)"
            hint = REMEDY if feature else hint
        if feature and self.chosen is None:
            known = self.text or ()
            words = {n: columns[n].unique().to_pylist() for n in self.features if n not in known}
            others = [n for n in words if n == name or any(map(is_word, words[n]))]
            marked = [n for n in others if all(map(number_hint, filter(is_word, words[n])))]
            marked = [n for n in marked if any(map(is_word, words[n]))]
            if others := [n for n in others if n not in marked]:
                hint += _drop_hint(others, text=is_word(cell))
            if marked and marked != [name]:  # of that one it has been said
                which = ", ".join(map(named, marked[:10]))
                hint += f"; write the numbers of {which} with a decimal point and without "
                hint += "thousands separators"
        raise ValueError(f"{place(row)}: column {named(name)} {what}{hint}")

    def _ids(self, column: Any, place: Place) -> Array:
        """Query ids: int64 (uint64 if the column is), or str as objects."""
        column = stripped(column) if self.is_csv else column
        self._require_valid(column, self.qid, place)
        if self.id_kind == "integers":
            numbers = decoded(column).to_numpy(zero_copy_only=False)
            return numbers if numbers.dtype == np.uint64 else numbers.astype(np.int64, copy=False)
        with readable(partial(place, 0), self.kind):
            words = words_of(column)
        for word in set(words):
            if word is None or "\0" in word:
                what = "is null" if word is None else "has a NUL character"
                row = words.tolist().index(word)
                raise ValueError(f"{place(row)}: column {self.qid!r} {what}")
        return words
