"""Lines of a LETOR file to rows.

``Parser.parse`` reads blocks of lines: quickly if every line is plainly well-formed, and
otherwise token by token, which reads the same or raises ``ValueError`` with file, line and token.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray

from rankrls._calls import warn
from rankrls._resources import in_order
from rankrls.datasets._missing import MISSING_FEATURE, REMEDY, is_missing
from rankrls.datasets._numbers import NUMBER, LetorPairs, parse_features, parse_labels

__all__ = ["MAX_FEATURES", "ParsedRows", "Parser", "show"]

#: Column numbers are 32-bit, in the files that matter and in ``scipy.sparse``.
MAX_FEATURES = 2**31 - 1

_MAX_THREADS = 4  # lines are cut into words by one thread at a time, numbers are read in all


@dataclass
class ParsedRows:
    """Some rows of a file: a CSR matrix in pieces, and what stands beside it.

    Attributes
    ----------
    target : ndarray of shape (n_rows,), float64
    qid : list of bytes of length n_rows, or None
    counts : ndarray of shape (n_rows,), int64
        Number of features written in each row.
    columns : ndarray of shape (n_entries,), int32
        Column numbers from 0, increasing within a row.
    values : ndarray of shape (n_entries,), float64
    comments : list of str of length n_rows
    lines : ndarray of shape (n_rows,), int64
        Line of the file that each row stands on.
    """

    target: NDArray[np.float64]
    qid: list[bytes] | None
    counts: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    comments: list[str]
    lines: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def n_bytes(self) -> int:
        """Memory of the rows, without that of their query ids and comments."""
        lists = 1 if self.qid is None else 2
        arrays = (self.target, self.counts, self.columns, self.values, self.lines)
        return sum(array.nbytes for array in arrays) + 8 * lists * len(self)

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """Where the entries of the rows begin, and where those of the last one end."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    def slice(self, start: int, stop: int) -> ParsedRows:
        """Return rows ``start`` to ``stop``."""
        first, last = self._ends[start], self._ends[stop]
        return ParsedRows(
            self.target[start:stop],
            None if self.qid is None else self.qid[start:stop],
            self.counts[start:stop],
            self.columns[first:last],
            self.values[first:last],
            self.comments[start:stop],
            self.lines[start:stop],
        )

    @staticmethod
    def concatenate(parts: list[ParsedRows]) -> ParsedRows:
        """Return the rows of all ``parts``, of which there is at least one."""
        if len(parts) == 1:
            return parts[0]
        return ParsedRows(
            np.concatenate([p.target for p in parts]),
            None if parts[0].qid is None else [q for p in parts for q in p.qid or ()],
            np.concatenate([p.counts for p in parts]),
            np.concatenate([p.columns for p in parts]),
            np.concatenate([p.values for p in parts]),
            [c for p in parts for c in p.comments],
            np.concatenate([p.lines for p in parts]),
        )


class _Lines(NamedTuple):
    """Lines with data: their numbers, labels, query ids if any, and the text of the features."""

    numbers: Sequence[int]
    labels: list[bytes]
    qids: list[bytes | None]
    features: list[bytes]


class Parser:
    """Reads the blocks of one file, in order.

    Parameters
    ----------
    name : str
        The file, for error messages.
    n_features : int or None
        Number of columns, if it is known.
    zero_based : bool
        Whether feature ids start at 0 rather than 1.
    dtype : dtype
        Values must be finite in this type.
    width_is_guessed : bool
        Whether ``n_features`` was not given, but taken from the last features of the lines.
    drop : bool
        Whether features beyond ``n_features`` are left out, with a warning, instead of an error.
    missing : bool
        Whether missing values become NaN instead of an error.
    """

    def __init__(
        self,
        name: str,
        n_features: int | None,
        zero_based: bool,
        dtype: np.dtype,
        width_is_guessed: bool = False,
        drop: bool = False,
        missing: bool = False,
    ) -> None:
        self.name = name
        self.n_features = n_features
        self.width_is_guessed = width_is_guessed
        self.zero_based = zero_based
        self.first_id = 0 if zero_based else 1
        self.width = MAX_FEATURES if n_features is None else n_features
        self.last_id = (MAX_FEATURES if drop else self.width) - 1 + self.first_id
        self.dropped = False
        self.missing = missing
        self.largest = float(np.finfo(dtype).max)
        self.has_qid: bool | None = None
        self.first_line = 0
        self.words: dict[bytes, bytes] = {}  # every query id once

    def parse(self, blocks: Iterator[tuple[int, bytes]]) -> Iterator[ParsedRows]:
        """Yield the rows of blocks, each given with the number of its first line."""
        threads = min(effective_n_jobs(-1), _MAX_THREADS)
        for read in in_order(self._read, blocks, threads):
            if read[0].numbers:
                yield self._rows(*read)

    def _read(
        self, numbered: tuple[int, bytes]
    ) -> tuple[_Lines, list[str], tuple[Any, ...] | None]:
        """The lines of a block, their comments, and their numbers if all are plainly right.

        Nothing here depends on other blocks: they are read ahead.
        """
        self._refuse_binary(*numbered)
        lines, comments = _split(*numbered)
        return lines, comments, self._parse_fast(lines) if lines.numbers else None

    def _rows(self, lines: _Lines, comments: list[str], fast: tuple[Any, ...] | None) -> ParsedRows:
        """The rows of the next block."""
        if self.has_qid is None:
            self.has_qid = lines.qids[0] is not None
            self.first_line = lines.numbers[0]
        seen = self.words
        qid = [seen.setdefault(word, word) for word in lines.qids if word is not None]
        uniform = len(qid) == len(lines.qids) * self.has_qid and b"" not in seen
        plain = fast if uniform else None
        target, counts, columns, values = plain or self._parse_carefully(lines)
        if len(columns) and columns.max() >= self.width:
            counts, columns, values = self._drop(lines, counts, columns, values)
        return ParsedRows(
            target,
            qid if self.has_qid else None,
            counts,
            columns,
            values,
            comments,
            np.array(lines.numbers, dtype=np.int64),
        )

    def _refuse_binary(self, first_line: int, block: bytes) -> None:
        """Raise for a NUL byte before a comment: NumPy would cut a query id there."""
        if b"\0" not in block:
            return
        for number, line in enumerate(block.split(b"\n"), first_line):
            for word in line.partition(b"#")[0].split() if b"\0" in line else ():
                if b"\0" in word:
                    self._fail(number, f"{show(word)} is binary data, not LETOR text")

    def _parse_fast(self, lines: _Lines) -> tuple[Any, ...] | None:
        """Return target, counts, columns and values; None unless all is plainly right."""
        target = parse_labels(lines.labels)
        if target is None:
            return None
        text = b" ".join([b"", *filter(None, lines.features)])
        # Every feature has one colon: those up to the end of a line, less those before it.
        lengths = np.array([*map(len, lines.features)])
        ends = np.cumsum(lengths + (lengths > 0))
        pairs = parse_features(text)
        colons = _colons(text) if pairs is None else pairs.colons
        if pairs is None:  # perhaps only tabs or several spaces
            text = b" ".join([b"", *text.split()])
            pairs = parse_features(text)
        if pairs is None and self.missing:
            pairs = _parse_missing(text)
        if pairs is None:
            return None
        counts = np.diff(np.searchsorted(colons, ends), prepend=0).astype(np.int64, copy=False)
        ids, values = pairs.ids, pairs.values
        if len(ids):
            if ids.min() < self.first_id or ids.max() > self.last_id:
                return None
            if max(np.fmax.reduce(values), -np.fmin.reduce(values)) > self.largest:
                return None
        columns = (ids - self.first_id).astype(np.int32)
        starts = np.cumsum(counts)[:-1]
        steps = np.diff(columns, prepend=-1)
        steps[starts[starts < len(columns)]] = 1
        if (steps <= 0).any():
            row = np.repeat(np.arange(len(counts)), counts)
            order = np.lexsort((columns, row))
            columns, values = columns[order], values[order]
            if ((np.diff(columns) == 0) & (np.diff(row) == 0)).any():
                return None
        return target, counts, columns, values

    def _parse_carefully(self, lines: _Lines) -> tuple[Any, ...]:
        """Return target, counts, columns and values, or raise the error of the first bad token."""
        target, counts, columns, values = [], [], [], []
        for number, label, qid, features in zip(*lines, strict=True):
            target.append(self._label(number, label))
            self._check_qid(number, qid)
            row: dict[int, float] = {}
            for token in features.split():
                column, value = self._feature(number, token)
                if column in row:
                    self._fail(number, f"feature {show(token)} is given twice in this row")
                row[column] = value
            counts.append(len(row))
            columns += sorted(row)
            values += [row[column] for column in sorted(row)]
        return (
            np.array(target, dtype=np.float64),
            np.array(counts, dtype=np.int64),
            np.array(columns, dtype=np.int32),
            np.array(values, dtype=np.float64),
        )

    def _drop(
        self,
        lines: _Lines,
        counts: NDArray[np.int64],
        columns: NDArray[np.int32],
        values: NDArray[np.float64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
        """Drop features beyond the width; warn about the first one."""
        row = np.repeat(np.arange(len(counts)), counts)
        keep = columns < self.width
        if not self.dropped:
            self.dropped = True
            at = int(np.argmin(keep))
            warn(
                f"{self.name}:{lines.numbers[row[at]]}: feature {columns[at] + self.first_id} is "
                f"beyond the first {self.width}; such features are left out",
            )
        return np.bincount(row[keep], minlength=len(counts)), columns[keep], values[keep]

    def _label(self, number: int, token: bytes) -> float:
        if not NUMBER.fullmatch(token):
            table = " (a table? load_csv and load_ranking read CSV)" if b"," in token else ""
            self._fail(number, f"label {show(token)} is not a number{table}")
        label = float(token)
        if not np.isfinite(label):
            self._fail(number, f"label {show(token)} is too large")
        return label

    def _check_qid(self, number: int, qid: bytes | None) -> None:
        if qid == b"":
            self._fail(number, "'qid:' has no query id after the colon")
        if qid is None and self.has_qid:
            self._fail(number, f"no qid, but line {self.first_line} has one: give all or none")
        if qid is not None and not self.has_qid:
            first = f"line {self.first_line} has no qid"
            self._fail(number, f"{show(b'qid:' + qid)}, but {first}: give all or none")

    def _feature(self, number: int, token: bytes) -> tuple[int, float]:
        id_, colon, value = token.partition(b":")
        if not colon:
            self._fail(number, f"{show(token)} has no colon: a feature is written id:value")
        if id_ == b"qid":
            self._fail(number, f"{show(token)} must be the second word of the line, and only once")
        if not id_.isdigit():
            hint = " (ids are never negative)" if id_[:1] == b"-" else ""
            self._fail(number, f"feature id in {show(token)} is not an integer{hint}")
        digits = id_.lstrip(b"0") or b"0"
        feature = int(digits) if len(digits) <= 18 else 10**18
        if feature < self.first_id:
            self._fail(
                number,
                f"feature id 0 in {show(token)}, but ids start at 1; if those of this file "
                "start at 0, pass zero_based=True",
            )
        if feature > self.last_id:
            self._fail(number, f"feature id in {show(token)} is too large: {self._why_too_large()}")
        if not NUMBER.fullmatch(value):
            missing = is_missing(value.decode("utf-8", "replace"))
            if missing and self.missing:
                return feature - self.first_id, math.nan
            remedy = REMEDY if missing else ""
            self._fail(number, f"value in {show(token)} is not a finite number{remedy}")
        if not abs(float(value)) <= self.largest:
            self._fail(number, f"value in {show(token)} is too large for the dtype")
        return feature - self.first_id, float(value)

    def _why_too_large(self) -> str:
        if self.n_features is None or self.n_features == MAX_FEATURES:
            return f"the largest possible is {self.last_id}"
        if self.width_is_guessed:
            return (
                f"the last features of the lines have ids up to {self.last_id}; where they are "
                "not in increasing order, n_features must be given"
            )
        return f"n_features={self.n_features} allows ids up to {self.last_id}"

    def _fail(self, number: int, what: str) -> NoReturn:
        raise ValueError(f"{self.name}:{number}: {what}")


def _colons(text: bytes) -> NDArray[np.intp]:
    return np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord(":"))


def _parse_missing(text: bytes) -> LetorPairs | None:
    """Read `` id:value id:value …`` where some of the values are missing: they are NaN."""
    pairs = parse_features(MISSING_FEATURE.sub(b":0", text))
    if pairs is not None:
        places = [found.start() for found in MISSING_FEATURE.finditer(text)]
        pairs.values[np.searchsorted(_colons(text), places)] = np.nan
    return pairs


def _split(first_line: int, block: bytes) -> tuple[_Lines, list[str]]:
    """Return the lines that hold data, and the comment of each of them."""
    bodies = block.removesuffix(b"\n").split(b"\n")
    comments = [""] * len(bodies)
    if b"#" in block:
        after = (line.partition(b"#")[2].strip() for line in bodies)
        comments = [comment.decode("utf-8", "replace") for comment in after]
        bodies = [line.partition(b"#")[0] for line in bodies]
    words = [line.split(None, 2) for line in bodies]
    del bodies
    numbers: Sequence[int] = range(first_line, first_line + len(words))
    if not all(words):  # without data
        kept = [i for i, row in enumerate(words) if row]
        words, numbers = [words[i] for i in kept], [numbers[i] for i in kept]
        comments = [comments[i] for i in kept]
    labels = [row[0] for row in words]
    qids = [row[1][4:] if len(row) > 1 and row[1].startswith(b"qid:") else None for row in words]
    if words and None not in qids and min(map(len, words)) == 3:
        features = [row[2].rstrip() for row in words]
    else:
        features = [
            b" ".join(row[1 if qid is None else 2 :]).rstrip()
            for row, qid in zip(words, qids, strict=True)
        ]
    return _Lines(numbers, labels, qids, features), comments


def show(token: bytes) -> str:
    """Return a token in quotes, shortened."""
    text = token[:40].decode("utf-8", "backslashreplace")
    return repr(text) + ("…" if len(token) > 40 else "")
