"""Files that commands read and write; "-" stands for stdin and stdout."""

from __future__ import annotations

import csv
import glob
import inspect
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import IO, Any, BinaryIO

import numpy as np

from rankrls._atomic import is_stream
from rankrls._frames import RawTable
from rankrls._streams import without_suffix, written
from rankrls.cli._options import OPTIONS, flag
from rankrls.cli._output import listed, require_stdout, stdout_errors, warn
from rankrls.datasets import iter_ranking, load_ids, load_ranking
from rankrls.datasets.formats import sniff

__all__ = ["DataFile", "check_output", "names_from", "output_file", "shown", "write_all"]

#: Files of at least this many bytes are read batch by batch where that is possible.
LARGE = 64 << 20

#: Rows of a batch.
BATCH = 20_000

#: A file of each kind, and files of these kinds.
KINDS = {"letor": ("LETOR text", "LETOR text"), "csv": ("a CSV file", "CSV files"),
         "parquet": ("a Parquet file", "Parquet files")}  # fmt: skip


def shown(path: str) -> str:
    """Return the name of a file for messages."""
    return "stdin" if path == "-" else path


class Stream:
    """A pipe, which is read once; its first line can be inspected before."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name, self._file, self._head = name, file, b""

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


class DataFile:
    """Rows of a file, or of several that are read as one, as the options say.

    "-" is stdin; what is no file and looks like a pattern (S*.txt) stands for all files that match.
    ``named`` are the features of a model, which are read by name where columns have names, without
    its ``unused`` ones: tables have missing values in their place. ``stored`` has the columns of
    label and qid that it was fitted to: those of this file, too, unless the options name others.
    ``reading`` has further arguments of `load_ranking`; ``text`` has names of ``named``.
    """

    def __init__(
        self,
        path: str | Sequence[str],
        o: Any,
        named: list[str] | None = None,
        unused: Sequence[str] = (),
        stored: Mapping[str, Any] | None = None,
        **reading: Any,
    ) -> None:
        self.paths, self.o = _expanded(path), o
        self.path, self.several = self.paths[0], len(self.paths) > 1
        name = shown(self.path) + f" and {len(self.paths) - 1} more" * self.several
        self.name = getattr(o, "shown_name", name)  # of a log that the rows are made from
        self.reading = {
            "format": getattr(o, "input_format", o.format) or "auto",
            "target": o.target or "auto",
            "qid": None if o.one_ranking else o.qid or "auto",
            "features": names_from(o.features),
            "drop": list(dict.fromkeys(o.drop)) or None,
            "sample_weight": getattr(o, "sample_weight", None),
            "header": not o.no_header,
            "delimiter": {"tab": "\t", "\\t": "\t"}.get(o.delimiter or "", o.delimiter),
            "zero_based": o.zero_based,
            "missing": "nan" if getattr(o, "missing", None) in ("mean", "zero") else "error",
            "group": o.group or "auto",
            "unlabelled": getattr(o, "unlabelled", "error"),
        } | reading
        self._letor_names = names_from(getattr(o, "feature_names", ()))
        twice = [name for name, count in Counter(self._letor_names or ()).items() if count > 1]
        if twice:
            raise ValueError(f"--feature-names: {twice[0]!r} comes twice")
        self.named, self.unused, self.stored = named, frozenset(unused), dict(stored or {})
        self._told = False
        self._read: list[str] = []  # those of the named features whose columns are read
        for one in self.paths if self.several else ():
            if not os.path.isfile(one):
                text = "no such file (models are named by -m, scores by -o)"
                raise FileNotFoundError(2, text, shown(one))
        files, folder = self.paths, os.path.isdir(self.path)
        if folder:
            files = [os.path.join(at, one) for at, _, names in os.walk(self.path) for one in names]
        other = os.path.exists(self.path) and not os.path.isfile(self.path)
        self.is_pipe = self.path == "-" or (other and not folder)
        sizes = (os.path.getsize(one) * (4 if without_suffix(one) != one else 1)
                 for one in files if os.path.isfile(one))  # fmt: skip
        self.large = not self.is_pipe and sum(sizes) >= LARGE

    def load(self) -> Any:
        """All rows at once."""
        with self._opened() as (file, reading):
            return self._with_names(load_ranking(file, **reading))

    def batches(self, *, by_query: bool) -> Iterator[Any]:
        """Batches of rows, one at a time."""
        with self._opened() as (file, reading):
            if self.is_pipe and reading["format"] == "letor" and not reading.get("n_features"):
                raise ValueError(
                    f"{self.name}: the number of features in LETOR text from a pipe is not known "
                    "before its end; name a file, or name the features by --feature-names"
                )
            batches = iter_ranking(file, rows=BATCH, by_query=by_query, **reading)
            yield from map(self._with_names, batches)

    def parts(self, *, by_query: bool) -> Iterator[Any]:
        """Batches of rows of a large file, or of a stream whose width is known; else all rows."""
        if self.large or (self.is_pipe and self.reading.get("n_features")):
            yield from self.batches(by_query=by_query)
        else:
            yield self.load()

    def code(self, rows: str = "rows", suffix: str = "") -> list[str]:
        """Python code that loads the same rows as X, y, qid and weight; none for a pipe."""
        if self.is_pipe:
            return []
        default = inspect.signature(load_ranking).parameters
        reading = self._for(self.path) | {"format": self.reading["format"]}
        words = {name: repr(value) for name, value in reading.items()
                 if value != default[name].default and name != "need"}  # fmt: skip
        if self.named is not None and reading["features"] == self.named:
            words["features"] = "rows.feature_names"
        path = repr(self.paths if self.several else self.path)
        arguments = ", ".join([path, *(f"{name}={word}" for name, word in words.items())])
        fields = {"X": "data", "y": "target"}
        fields |= {} if reading["qid"] is None else {"qid": "qid"}
        fields |= {} if reading["sample_weight"] is None else {"weight": "sample_weight"}
        names = ", ".join(name + suffix for name in fields)
        values = ", ".join(f"{rows}.{field}" for field in fields.values())
        return [f"{rows} = load_ranking({arguments})", f"{names} = {values}"]

    def ids(self, column: str, kind: str) -> Any:
        """Names of the rows of a table, from a file that can be read again."""
        if self.is_pipe:
            raise ValueError(
                f"--doc-id is read in a second pass, and {self.name} is a pipe: name a file"
            )
        how = {"format": kind, **{name: self.reading[name] for name in ("header", "delimiter")}}
        return np.concatenate([load_ids(one, column, **how) for one in self.paths])

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Name the file in errors that are about its labels."""
        try:
            yield
        except ValueError as error:
            if str(error).startswith(("no query", "there is no pref", "batch ")):
                raise ValueError(f"{self.name}: {error}") from error
            raise

    def _with_names(self, rows: Any) -> Any:
        """The same rows, with the names of LETOR features or the columns of a model, if given."""
        letor, told, self._told = rows.format == "letor", self._told, True
        of_model = "n_features" in self.reading and not told
        if of_model and letor and self.named is not None and self._letor_names is None:
            warn(
                f"the model has names of its features and {self.name} has numbers: feature 1 is "
                f"taken as {self.named[0]!r}, and so on"
            )
        if of_model and not letor and self.named is None and self.reading["features"] is None:
            warn(
                f"the model has no names of features, so the columns of {self.name} are taken in "
                "their order; name them by --features to be sure"
            )
        if letor and self._letor_names is not None:
            rows.feature_names = self._letor_names
        if isinstance(rows.data, RawTable) and rows.data.shape[1] == len(self._read):
            table = RawTable(self._read, rows.data.numbers, rows.data.text)
            rows.data = table.with_columns(self.named or [])
        return rows

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The file, and how to read it."""
        if not self.is_pipe:
            yield self.paths if self.several else self.path, self._for(self.path)
            return
        with nullcontext(sys.stdin.buffer) if self.path == "-" else open(self.path, "rb") as pipe:
            file = Stream(pipe, shown(self.path))
            yield file, self._for(file)

    def _for(self, file: Any) -> dict[str, Any]:
        """Arguments for a file of this kind; LETOR text has no names of features."""
        format = self.reading["format"]
        kind = sniff(file) if format == "auto" else format
        for name in self.o.given:
            only = OPTIONS[name].kind if name in OPTIONS else None
            if only not in (None, kind):
                option = flag(self.o.command, name)
                raise ValueError(
                    f"{option} is for {KINDS[only][1]}, and {self.name} is {KINDS[kind][0]}"
                )
        reading = self.reading | {"format": format if self.several else kind}
        if kind == "letor":
            if self._letor_names is not None:
                reading["n_features"] = len(self._letor_names)
            return reading
        need = reading.get("need", ())
        for role, stored in (("target", "label"), ("qid", "qid")):
            if role in need and reading[role] == "auto" and stored in self.stored:
                reading[role] = self.stored[stored]
        if self.named is not None:
            for role in ("target", "qid"):  # columns that are not needed
                if reading[role] == "auto" and "need" in reading and role not in need:
                    reading[role] = None
            self._read, features = self._features_of_the_model(kind)
            # No other column is read, so that none has to be dropped.
            reading |= {"features": features, "drop": None}
            if isinstance(reading.get("text"), list):
                columns = dict(zip(self._read, features, strict=False))
                reading["text"] = [columns[name] for name in reading["text"] if name in columns]
        elif getattr(self.o, "doc_id", None) is not None and reading["features"] is None:
            reading["drop"] = [*(reading["drop"] or []), self.o.doc_id]  # ids are no feature
        return reading

    def _features_of_the_model(self, kind: str) -> tuple[list[str], list[str]]:
        """Features that are read, in the order of the model, and their columns.

        ``--features`` may give the columns other names, all of them. Some of the model's own names
        in another place would be columns mixed up.
        """
        own, given = self.named or [], self.reading["features"]
        # A list in a Parquet file holds its features column_0, column_1, …, and is read as a whole.
        needed = [name for name in own if name not in self.unused
                  or (kind == "parquet" and name.rpartition("_")[2].isdigit())]  # fmt: skip
        for name in self.reading["drop"] or ():
            if name in needed:
                raise ValueError(f"--drop {name!r}: the model was fitted to this column")
        if given is None or set(needed) <= set(given) <= set(own):
            return needed, needed
        if not set(given) & set(own):
            columns = dict(zip(own, given, strict=False))
            if len(given) != len(own):  # a column may hold lists
                return own, given
            return needed, [columns[name] for name in needed]
        names = listed([repr(name) for name in own], 20)
        raise ValueError(
            f"--features: the model was fitted to {names}; leave --features out, or give the names "
            "of these columns in this file, in this order"
        )


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
    found = []
    for text in given:
        if text.startswith("@"):
            with open(text[1:], encoding="utf-8-sig") as file:
                names = [line.strip() for line in file]
        else:
            names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
            if len(names) == 1 and os.path.isfile(text):
                raise ValueError(f"{text!r} is a file: to read the names in it, write @{text}")
        if not any(names):
            raise ValueError(f"{text!r} names no feature")
        found += [name for name in names if name]
    return found or None


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
    if not is_stream(path) and not os.path.isdir(folder):
        raise FileNotFoundError(2, "no such directory", folder)
    if not is_stream(path) and not os.access(folder, os.W_OK):
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
