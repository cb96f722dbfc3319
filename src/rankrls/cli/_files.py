"""Files that commands read and write; "-" stands for stdin and stdout."""

from __future__ import annotations

import csv
import inspect
import io
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np

from rankrls._atomic import is_stream
from rankrls._frames import with_columns
from rankrls._streams import without_suffix, written
from rankrls.cli._options import OPTIONS, flag
from rankrls.cli._output import listed, warn
from rankrls.datasets import iter_ranking, load_ids, load_ranking
from rankrls.datasets.formats import sniff

__all__ = ["DataFile", "check_output", "names_from", "shown", "write_file"]

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


class Copy(io.BufferedRandom):
    """A copy of stdin or another pipe, which can be read again, with the name of the pipe."""

    name = ""

    def __init__(self, path: str) -> None:
        super().__init__(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
        self.name = shown(path)
        with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as pipe:
            shutil.copyfileobj(pipe, self)
        self.seek(0)

    def __del__(self) -> None:
        self.close()


class DataFile:
    """Rows of a file, or of several that are read as one, as the options say.

    "-" is stdin. ``named`` are the features of a model, which are read by name where columns have
    names, without its ``unused`` ones: tables have missing values in their place. ``stored`` has
    the columns of label and qid that it was fitted to: those of this file, too, unless the options
    name others.
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
        self.paths, self.o = [path] if isinstance(path, str) else list(path), o
        self.path, self.several = self.paths[0], len(self.paths) > 1
        name = shown(self.path) + f" and {len(self.paths) - 1} more" * self.several
        self.name = getattr(o, "shown_name", name)  # of a log that the rows are made from
        self.reading = {
            "format": (o.input_format if o.command == "predict" else o.format) or "auto",
            "target": o.target or "auto",
            "qid": None if o.one_ranking else o.qid or "auto",
            "features": names_from(o.features),
            "drop": list(dict.fromkeys(o.drop)) or None,
            "sample_weight": o.sample_weight,
            "header": not o.no_header,
            "delimiter": o.delimiter,
            "zero_based": o.zero_based,
            "missing": "nan" if o.missing in ("mean", "zero") else "error",
            "group": o.group or "auto",
            "unlabelled": o.unlabelled or "error",
        } | reading
        self._letor_names = names_from(o.feature_names or ())
        twice = [name for name, count in Counter(self._letor_names or ()).items() if count > 1]
        if twice:
            raise ValueError(f"--feature-names: {twice[0]!r} comes twice")
        self.named, self.stored = named, dict(stored or {})
        self._needed = [name for name in named or () if name not in set(unused)]
        self._told = False
        for one in self.paths if self.several else ():
            if not os.path.isfile(one):
                text = "no such file (models are named by -m, scores by -o)"
                raise FileNotFoundError(2, text, shown(one))
        self.is_pipe = self.path == "-" or (os.path.exists(self.path) and not os.path.isfile(
            self.path) and not os.path.isdir(self.path))  # fmt: skip

    @cached_property
    def _file(self) -> Any:
        """What is read: names of files, or the copy of a pipe."""
        return Copy(self.path) if self.is_pipe else self.paths if self.several else self.path

    @property
    def large(self) -> bool:
        """Whether rows should be read batch by batch."""
        if self.is_pipe:
            return self._file.seek(0, os.SEEK_END) >= LARGE
        files = self.paths
        if os.path.isdir(self.path):
            files = [os.path.join(at, one) for at, _, names in os.walk(self.path) for one in names]
        sizes = (os.path.getsize(one) * (4 if without_suffix(one) != one else 1)
                 for one in files if os.path.isfile(one))  # fmt: skip
        return sum(sizes) >= LARGE

    def load(self) -> Any:
        """All rows at once."""
        reading = self._options()
        return self._with_names(load_ranking(self._file, **reading))

    def batches(self, *, by_query: bool) -> Iterator[Any]:
        """Batches of rows, one at a time."""
        reading = self._options()
        batches = iter_ranking(self._file, rows=BATCH, by_query=by_query, **reading)
        yield from map(self._with_names, batches)

    def parts(self, *, by_query: bool) -> Iterator[Any]:
        """Batches of rows of a large file, else all rows."""
        return self.batches(by_query=by_query) if self.large else iter([self.load()])

    def code(self, rows: str = "rows", suffix: str = "") -> list[str]:
        """Python code that loads the same rows as X, y, qid and weight; none for a pipe."""
        if self.is_pipe:
            return []
        default = inspect.signature(load_ranking).parameters
        reading = self._options() | {"format": self.reading["format"]}
        words = {name: repr(value) for name, value in reading.items()
                 if value != default[name].default and name != "need"}  # fmt: skip
        if self.named is not None and reading["features"] == self.named:
            words["features"] = "rows.feature_names"
        path = repr(self._file)
        arguments = ", ".join([path, *(f"{name}={word}" for name, word in words.items())])
        fields = {"X": "data", "y": "target"}
        fields |= {} if reading["qid"] is None else {"qid": "qid"}
        fields |= {} if reading["sample_weight"] is None else {"weight": "sample_weight"}
        names = ", ".join(name + suffix for name in fields)
        values = ", ".join(f"{rows}.{field}" for field in fields.values())
        return [f"{rows} = load_ranking({arguments})", f"{names} = {values}"]

    def ids(self, column: str, kind: str) -> Any:
        """Names of the rows, in a second pass."""
        self._rewind()
        how = {"format": kind, **{name: self.reading[name] for name in ("header", "delimiter")}}
        files = [self._file] if self.is_pipe else self.paths
        return np.concatenate([load_ids(one, column, **how) for one in files])

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Name the file in errors that are about its labels."""
        try:
            yield
        except ValueError as error:
            if str(error).startswith(("no query", "there is no pref", "batch ")):
                raise ValueError(f"{self.name}: {error}") from error
            raise

    def _rewind(self) -> None:
        if self.is_pipe:
            self._file.seek(0)

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
        if self.named and hasattr(rows.data, "columns"):
            rows.data = with_columns(rows.data, self.named)
        return rows

    def _options(self) -> dict[str, Any]:
        """Arguments of `load_ranking` for a file of this kind, at whose beginning it is."""
        self._rewind()
        format, text = self.reading["format"], self.reading.get("text")
        kind = sniff(self._file[0] if self.several else self._file) if format == "auto" else format
        for name in self.o.given:
            only = OPTIONS[name].kind if name in OPTIONS else ""
            if only and only != kind:
                option = flag(self.o.command, name)
                raise ValueError(
                    f"{option} is for {KINDS[only][1]}, and {self.name} is {KINDS[kind][0]}"
                )
        reading = self.reading | {"format": format if self.several else kind}
        if kind == "letor":
            if self._letor_names is not None:
                reading["n_features"] = len(self._letor_names)
            return reading
        need, given, dropped = reading.get("need", ()), reading["features"], reading["drop"] or []
        for role, stored in (("target", "label"), ("qid", "qid")):
            if role in need and reading[role] == "auto" and stored in self.stored:
                reading[role] = self.stored[stored]
        if self.named is not None:
            for role in ("target", "qid"):  # columns that are not needed
                if reading[role] == "auto" and "need" in reading and role not in need:
                    reading[role] = None
            # A list in a Parquet file holds its features column_0, …, and is read as a whole.
            needed = [name for name in self.named if name in set(self._needed)
                      or (kind == "parquet" and name.rpartition("_")[2].isdigit())]  # fmt: skip
            for name in dropped:
                if name in needed:
                    raise ValueError(f"--drop {name!r}: the model was fitted to this column")
            if given is not None and not set(needed) <= set(given) <= set(self.named):
                names = listed([repr(name) for name in self.named], 20)
                raise ValueError(
                    f"--features: the model was fitted to {names}, which are found by their names: "
                    "leave --features out"
                )
            # No other column is read, so that none has to be dropped.
            reading |= {"features": needed, "drop": None}
            if isinstance(text, list):
                reading["text"] = [name for name in text if name in needed]
        elif self.o.doc_id is not None and given is None:
            reading["drop"] = [*dropped, self.o.doc_id]  # ids are no feature
        return reading


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


def write_file(path: str, parts: Iterable[bytes]) -> None:
    """Write a file, compressed according to its suffix, which appears when it is complete.

    Stdout, devices and pipes (``-``, ``/dev/stdout``, ``>(…)``) are written to as they are.
    """
    sys.stdout.flush()
    with nullcontext(sys.stdout.buffer) if path == "-" else written(path) as file:
        for data in parts:
            while data:  # a pipe that is closed meanwhile may take a part in silence
                data = data[file.write(data) :]
        file.flush()
