"""Files that commands read and write; "-" stands for stdin and stdout."""

from __future__ import annotations

import csv
import glob
import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, BinaryIO

import numpy as np

from rankrls._atomic import is_stream
from rankrls._frames import RawTable
from rankrls._streams import without_suffix, written
from rankrls.cli._options import DataOptions
from rankrls.cli._output import Work, require_stdout, stdout_errors, warn
from rankrls.datasets import iter_ranking, load_ids, load_ranking
from rankrls.datasets.formats import SUFFIXES, sniff

__all__ = ["DataFile", "check_output", "names_from", "output_file", "shown", "write_all"]

#: Files of at least this many bytes are read batch by batch where that is possible.
LARGE = 64 << 20

#: Rows of a batch.
BATCH = 20_000

#: Options that apply to some kinds of files only, and the names of these kinds.
FOR_KINDS = {"no_header": ("csv",), "delimiter": ("csv",), "zero_based": ("letor",),
             "group": ("letor",), "feature_names": ("letor",)}  # fmt: skip
KINDS = {("csv",): "CSV files", ("letor",): "LETOR text"}


def shown(path: str) -> str:
    """Return the name of a file for messages."""
    return "stdin" if path == "-" else path


class Stream:
    """A pipe, which is read once; its first line can be inspected before."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name = name
        self._file = file
        self._head = b""

    def peek(self, n_bytes: int) -> bytes:
        """Return the next bytes, up to a line end or ``n_bytes``, without consuming them."""
        while b"\n" not in self._head and len(self._head) < n_bytes:
            piece = self._file.read1(n_bytes)  # type: ignore[attr-defined]
            if not piece:
                break
            self._head += piece
        return self._head

    def read(self, n_bytes: int = -1) -> bytes:
        """Read on."""
        if self._head:
            cut = len(self._head) if n_bytes < 0 else n_bytes
            head, self._head = self._head[:cut], self._head[cut:]
            return head if n_bytes >= 0 else head + self._file.read()
        return self._file.read(n_bytes)


class Watched:
    """A file that reports how much of it has been read."""

    def __init__(self, file: BinaryIO, name: str, tell: Callable[[float], None]) -> None:
        self.name, self._file, self._tell = name, file, tell
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, n_bytes: int = -1) -> bytes:
        """Read on."""
        data = self._file.read(n_bytes)
        self._tell(self._file.tell())
        return data


class DataFile:
    """Rows of a file, or of several that are read as one, as the options say.

    Parameters
    ----------
    path : str or sequence of str
        "-" for stdin. What is no file and looks like a pattern (S*.txt) stands for all files that
        match it.
    options : DataOptions
    named : list of str, optional
        Features of a model, to be read by their names where columns have names; other columns are
        ignored.
    unused : list of str
        Those of them that the model does not use. Their columns are not read, and need not be
        there: tables have missing values in their place.
    stored : mapping, optional
        Columns of label and qid that a model was fitted to: those of this file, too, unless the
        options name others.
    **reading
        Further arguments of `load_ranking`; ``text`` has names of ``named``.
    """

    def __init__(
        self,
        path: str | Sequence[str],
        options: DataOptions,
        named: list[str] | None = None,
        unused: Sequence[str] = (),
        stored: Mapping[str, Any] | None = None,
        **reading: Any,
    ) -> None:
        self.paths, self.options = _expanded(path), options
        path = self.path = self.paths[0]
        self.several = len(self.paths) > 1
        self.name = shown(path) + f" and {len(self.paths) - 1} more" * self.several
        given = {
            "format": options.format,
            "target": options.label or "auto",
            "qid": None if options.one_ranking else options.qid_column or "auto",
            "features": names_from(options.features),
            "drop": list(dict.fromkeys(options.drop)) or None,
            "sample_weight": options.weight,
            "header": not options.no_header,
            "delimiter": _character(options.delimiter),
            "zero_based": options.zero_based,
            "missing": "error" if options.missing in (None, "error") else "nan",
            "group": options.group or "auto",
            "unlabelled": options.unlabelled,
        }
        if options.one_ranking and options.group:
            raise ValueError("--one-ranking and --group exclude each other")
        if options.one_ranking and options.qid_column:
            raise ValueError("--one-ranking and --qid-column exclude each other")
        self.reading = given | reading
        self._letor_names = names_from(options.feature_names)
        _require_different(self._letor_names)
        self.named, self.unused = named, frozenset(unused)
        self.stored, self._told = dict(stored or {}), False
        self._read: list[str] = []  # those of the named features whose columns are read
        self.id_column: str | None = None  # of a table: no feature, unless it is named as one
        for one in self.paths if self.several else ():
            if one == "-" or not os.path.isfile(one):
                raise FileNotFoundError(
                    2, "there is no such file, as each of several must be (models are named by "
                    "-m, scores by -o)", shown(one)
                )  # fmt: skip
        self.seekable = path != "-" and (os.path.isfile(path) or not os.path.exists(path))
        self.is_pipe = not self.seekable and not os.path.isdir(path)
        self.large = self.seekable and os.path.isfile(path) and self._n_bytes() >= LARGE
        self.large |= path != "-" and os.path.isdir(path) and _folder_bytes(path) >= LARGE

    def _n_bytes(self) -> int:
        """Size of the text in the files, about."""
        sizes = ((4 if without_suffix(one) != one else 1) * os.path.getsize(one)
                 for one in self.paths)  # fmt: skip
        return sum(sizes)

    def load(self, work: Work) -> Any:
        """All rows at once."""
        with self._opened(work) as (file, reading):
            return self._with_names(load_ranking(file, **reading))

    def code(self, rows: str = "rows", suffix: str = "") -> list[str]:
        """Python code that loads the same rows as X, y, qid and weight; none for a pipe."""
        if not self.seekable:
            return []
        default = inspect.signature(load_ranking).parameters
        reading = self._for(self.path) | {"format": self.reading["format"]}
        given = {name: value for name, value in reading.items() if value != default[name].default}
        words = {name: repr(value) for name, value in given.items() if name != "need"}
        if self.named is not None and given.get("features") == self.named:
            words["features"] = "rows.feature_names"
        path = repr(self.paths if self.several else self.path)
        arguments = ", ".join([path, *(f"{name}={word}" for name, word in words.items())])
        fields = {"X": "data", "y": "target"}
        fields |= {} if reading["qid"] is None else {"qid": "qid"}
        fields |= {} if reading["sample_weight"] is None else {"weight": "sample_weight"}
        names = ", ".join(name + suffix for name in fields)
        values = ", ".join(f"{rows}.{field}" for field in fields.values())
        return [f"{rows} = load_ranking({arguments})", f"{names} = {values}"]

    def batches(self, work: Work, *, by_query: bool) -> Iterator[Any]:
        """Batches of rows, one at a time."""
        with self._opened(work) as (file, reading):
            batches = iter_ranking(file, rows=BATCH, by_query=by_query, **reading)
            yield from map(self._with_names, batches)

    def _with_names(self, rows: Any) -> Any:
        """The same rows, with the names of LETOR features or the columns of a model, if given."""
        self._tell_unnamed(rows.format)
        if rows.format == "letor" and self._letor_names is not None:
            rows.feature_names = self._letor_names
        if isinstance(rows.data, RawTable) and rows.data.shape[1] == len(self._read):
            table = RawTable(self._read, rows.data.numbers, rows.data.text)
            rows.data = table.with_columns(self.named or [])
        return rows

    def parts(self, work: Work, *, by_query: bool) -> Iterator[Any]:
        """Batches of rows of a large file, or of a stream whose width is known; else all rows."""
        if self.large or (not self.seekable and self.reading.get("n_features")):
            yield from self.batches(work, by_query=by_query)
        else:
            yield self.load(work)

    @contextmanager
    def _opened(self, work: Work) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The file, and how to read it."""
        if self.several:
            yield self.paths, self._for(self.path)
        elif self.path == "-":
            file: Any = Stream(sys.stdin.buffer, "stdin")
            yield file, self._for(file)
        elif self.is_pipe:  # a named pipe
            with open(self.path, "rb") as pipe:
                file = Stream(pipe, self.path)
                yield file, self._for(file)
        else:
            reading = self._for(self.path)
            if reading["format"] == "parquet":
                yield self.path, reading  # opened by name
            else:
                with open(self.path, "rb") as plain:
                    yield Watched(plain, self.path, work.update), reading

    def _for(self, file: Any) -> dict[str, Any]:
        """Arguments for a file of this kind; LETOR text has no names of features."""
        format = self.reading["format"]
        kind = sniff(file)[0] if format == "auto" else format
        self._refuse_options(kind)
        reading = self.reading | {"format": format if self.several else kind}
        if kind == "letor" and self._letor_names is not None:
            reading["n_features"] = len(self._letor_names)
        for role, name in (("target", "label"), ("qid", "qid")):
            needed = kind != "letor" and role in reading.get("need", ())
            if needed and reading[role] == "auto" and name in self.stored:
                reading[role] = self.stored[name]
        if self.named is not None and kind != "letor":
            self._require_undropped()
            # No other column is read, so that none has to be dropped.
            self._read, features = self._features_of_the_model(kind)
            reading |= {"features": features, "drop": None}
            for role in ("target", "qid"):  # columns that are not needed
                if reading[role] == "auto" and "need" in reading and role not in reading["need"]:
                    reading[role] = None
            if isinstance(reading.get("text"), list):
                own = dict(zip(self._read, features, strict=False))
                reading["text"] = [own[name] for name in reading["text"] if name in own]
        elif self.id_column is not None and kind != "letor" and reading["features"] is None:
            reading["drop"] = [*(reading["drop"] or []), self.id_column]
        return reading

    def _tell_unnamed(self, kind: str) -> None:
        """Warn if features of a model are matched by their order, once."""
        known = "n_features" in self.reading and not self._told
        self._told = True
        if known and kind == "letor" and self.named is not None and self._letor_names is None:
            warn(
                f"the model has names of its features and {self.name} has numbers: feature 1 is "
                f"taken as {self.named[0]!r}, and so on"
            )
        if known and kind != "letor" and self.named is None and self.reading["features"] is None:
            warn(
                f"the model has no names of features, so the columns of {self.name} are taken in "
                "their order; name them by --features to be sure"
            )

    def _features_of_the_model(self, kind: str) -> tuple[list[str], list[str]]:
        """Features that are read, in the order of the model, and their columns.

        ``--features`` may give the columns other names, all of them. Some of the model's own names
        in another place would be columns mixed up.
        """
        own, given = self.named or [], self.reading["features"]
        needed = self._needed(kind)
        if given is None or set(needed) <= set(given) <= set(own):
            return needed, needed
        if not set(given) & set(own):
            if len(given) != len(own):  # a column may hold lists
                return own, given
            columns = dict(zip(own, given, strict=True))
            return needed, [columns[name] for name in needed]
        names = ", ".join(map(repr, own[:20])) + ", …" * (len(own) > 20)
        raise ValueError(
            f"--features: the model was fitted to {names}; leave --features out, or give the names "
            "of these columns in this file, in this order"
        )

    def _needed(self, kind: str) -> list[str]:
        """Features of the model that it uses, or that may be in a list with one that it uses."""
        own = self.named or []
        used = [name for name in own if name not in self.unused]
        if kind != "parquet":
            return used
        lists = {_list_of(name) for name in used} - {None}
        return [name for name in own if name not in self.unused or _list_of(name) in lists]

    def _refuse_options(self, kind: str) -> None:
        """Raise for options that do not apply to this kind of file."""
        what = {"letor": "LETOR text", "csv": "a CSV file", "parquet": "a Parquet file"}[kind]
        for name, kinds in FOR_KINDS.items():
            if name in self.options.given and kind not in kinds:
                option = name.replace("_", "-")
                raise ValueError(f"--{option} is for {KINDS[kinds]}, and {self.name} is {what}")

    def _require_undropped(self) -> None:
        """Columns that a model does not know are ignored anyway; it cannot do without its own."""
        for name in self.reading["drop"] or ():
            if name in (self.named or ()) and name not in self.unused:
                raise ValueError(f"--drop {name!r}: the model was fitted to this column")

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Name the file in errors that are about its labels."""
        try:
            yield
        except ValueError as error:
            if str(error).startswith(("no query", "there is no pref", "batch ")):
                raise ValueError(f"{self.name}: {error}") from error
            raise

    def ids(self, column: str, kind: str) -> Any:
        """Names of the rows of a table, from a file that can be read again."""
        if self.is_pipe:
            raise ValueError(
                f"--doc-id is read in a second pass, and {self.name} is a pipe: name a file"
            )
        header, delimiter = self.reading["header"], self.reading["delimiter"]
        how = {"format": kind, "header": header, "delimiter": delimiter}
        return np.concatenate([load_ids(one, column, **how) for one in self.paths])

    @property
    def total(self) -> float | None:
        """Bytes to be read, for progress: text only."""
        text = self.seekable and os.path.isfile(self.path) and not self.path.endswith(SUFFIXES)
        return os.path.getsize(self.path) if text and not self.several else None


def _list_of(feature: str) -> str | None:
    """The column of lists that may hold a feature, which is then called ``column_3``."""
    column, _, number = feature.rpartition("_")
    return column if number.isdigit() else None


def _expanded(path: str | Sequence[str]) -> list[str]:
    """Names of files; patterns that the shell has left are replaced by what matches them."""
    found = []
    for one in [path] if isinstance(path, str) else path:
        matches = [] if os.path.exists(one) or not glob.has_magic(one) else sorted(glob.glob(one))
        found += matches or [one]
    twice = [one for place, one in enumerate(found) if one in found[:place]]
    if twice:
        raise ValueError(f"{shown(twice[0])} is given twice")
    return found


def names_from(given: Sequence[str]) -> list[str] | None:
    """Names from each of several ``a,"b,c"``, or from the lines of a file: ``@file``."""
    return [name for text in given for name in _names_in(text)] or None


def _names_in(given: str) -> list[str]:
    if given.startswith("@"):
        with open(given[1:], encoding="utf-8-sig") as file:
            names = [line.strip() for line in file]
    else:
        names = [name.strip() for name in next(csv.reader([given], skipinitialspace=True), [])]
        if len(names) == 1 and os.path.isfile(given):
            raise ValueError(f"{given!r} is a file: to read the names in it, write @{given}")
    names = [name for name in names if name]
    if not names:
        raise ValueError(f"{given!r} names no feature")
    return names


def _require_different(names: list[str] | None) -> None:
    twice = [name for name, count in Counter(names or ()).items() if count > 1]
    if twice:
        raise ValueError(f"--feature-names: {twice[0]!r} comes twice")


def _character(delimiter: str | None) -> str | None:
    return {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter)


def check_output(path: str, *inputs: str | None) -> None:
    """Raise, before any work is done, if a file cannot be written there, or is read."""
    if path == "-":
        require_stdout()
        return
    for name in inputs:
        if name and os.path.isfile(name) and os.path.exists(path) and os.path.samefile(name, path):
            raise ValueError(f"{path} is an input file: write to another file")
    folder = os.path.dirname(os.path.realpath(path))
    if os.path.isdir(path):
        raise IsADirectoryError(21, "this is a directory, not a file", path)
    if is_stream(path):
        return
    if not os.path.isdir(folder):
        raise FileNotFoundError(2, "there is no such directory", folder)
    if not os.access(folder, os.W_OK):
        raise PermissionError(13, "files cannot be written in this directory", folder)


def write_all(file: IO[bytes], data: bytes) -> None:
    """Write everything, or raise: a pipe that is closed meanwhile may take a part in silence."""
    done = file.write(data)
    while done < len(data):
        done += file.write(data[done:])


@contextmanager
def output_file(path: str) -> Iterator[IO[bytes]]:
    """A file to write to, which appears when it is complete; or stdout.

    It is compressed according to its suffix. Devices and pipes (``/dev/stdout``, ``>(…)``) are
    written to as they are.
    """
    if path == "-":
        with stdout_errors():
            sys.stdout.flush()
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
    else:
        with written(path) as file:
            yield file


def _folder_bytes(path: str) -> int:
    """Size of the files in a folder and its subfolders."""
    return sum(
        os.path.getsize(os.path.join(folder, name))
        for folder, _, names in os.walk(path)
        for name in names
    )
