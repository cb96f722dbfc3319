"""LETOR text (svmlight with query ids), and sizes of queries in a file beside it.

Blocks of lines are read by pyarrow's CSV parser, ``id:value`` being two cells. Whatever is not
plainly right is read again word by word, which gives the same numbers, or an error with its line.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from scipy import sparse as sp
from sklearn.utils import Bunch, check_array

from rankrls import _resources
from rankrls._calls import takes_queries, warn
from rankrls._frames import clear_errors
from rankrls._streams import PathOrFile, name_of, without_suffix, written
from rankrls._validation import (
    check_finite_array,
    check_integer,
    check_length,
    check_option,
    encode_qid,
)
from rankrls.datasets._batches import FileRows, RowReader
from rankrls.datasets._cells import (
    NULLS,
    REMEDY,
    as_objects,
    is_missing,
    number_of,
    shown,
)
from rankrls.datasets._source import blocks, place_of, text_blocks

Array = NDArray[Any]

#: Column numbers are 32-bit, in the files that matter and in ``scipy.sparse``.
MAX_FEATURES = 2**31 - 1

_DENSE_FROM = 0.25  # "auto": dense if at least this part of the cells is written
_MAX_THREADS = 4  # lines are cut into words by one thread at a time, numbers are read in all

_AS_LINES = bytes.maketrans(b" \t\r\v\f", b"\n" * 5)  # white space between features
_PLAIN_PAIRS = re.compile(rb"\s*(?:\d{1,9}:[-+.\deE]+\s+)*")


@takes_queries
def dump_letor(
    X: Any,
    y: ArrayLike,
    path: str | os.PathLike[str],
    *,
    qid: Any = None,
    comments: Sequence[str] | None = None,
    zero_based: bool = False,
) -> None:
    """Write a file in LETOR (svmlight with query ids) format.

    Numbers are read again as the same ones. The file appears only when it is complete.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_rows, n_features)
        Features. All values of a dense array are written, and the stored ones of a sparse matrix.
    y : array-like of shape (n_rows,)
        Labels.
    path : str or path-like
        File to write or replace; compressed if its name ends in ``.gz``, ``.bz2``, ``.xz`` or
        ``.zst``.
    qid : array-like of shape (n_rows,), default=None
        Query ids, integers or strings without white space and ``#``.
    comments : sequence of str of length n_rows, default=None
        Text to write after ``#``; nothing is written for ``""``.
    zero_based : bool, default=False
        Whether feature ids start at 0 rather than 1.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from rankrls.datasets import dump_letor
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "train.txt")
    ...     dump_letor([[0.5, 1], [0, 2]], [1, 0], path, qid=[3, 3], comments=["a", ""])
    ...     print(path.read_text(), end="")
    1 qid:3 1:0.5 2:1 # a
    0 qid:3 1:0 2:2
    """
    with clear_errors(X), np.errstate(invalid="ignore"):  # sums of huge numbers
        X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
    y = check_finite_array("y", y, ndim=(1,))
    check_length("y", y, X.shape[0])
    n_rows, first_id = X.shape[0], 0 if zero_based else 1
    queries = [""] * n_rows if qid is None else _query_words(qid, n_rows)
    notes = [""] * n_rows
    if comments is not None:
        check_length("comments", comments, n_rows)
        notes = [f" # {comment}" if comment else "" for comment in comments]
    for i, note in enumerate(notes):
        if "\n" in note:
            raise ValueError(f"comments[{i}] contains a line break: {note[3:43]!r}")
    if sp.issparse(X):
        X = X.copy()
        X.sum_duplicates()
    columns: Any = range(first_id, first_id + X.shape[1])
    with written(os.fspath(path)) as writer:
        for i, (label, query, note) in enumerate(zip(y.tolist(), queries, notes, strict=True)):
            values = X[i] if not sp.issparse(X) else X.data[X.indptr[i] : X.indptr[i + 1]]
            if sp.issparse(X):
                columns = (X.indices[X.indptr[i] : X.indptr[i + 1]] + first_id).tolist()
            words = [f" {c}:{_number(v)}" for c, v in zip(columns, values, strict=True)]
            writer.write(f"{_number(label)}{query}{''.join(words)}{note}\n".encode())


def _number(value: Any) -> str:
    # str gives the shortest digits that read back as the same number of this type.
    return str(value).removesuffix(".0")


def _query_words(qid: Any, n_rows: int) -> list[str]:
    queries = encode_qid(qid, n_rows)
    words = [str(label) for label in queries.labels]
    for label, word in zip(queries.labels, words, strict=True):
        if not isinstance(label, str | int | np.integer) or isinstance(label, bool):
            raise ValueError(f"qid must hold integers or strings to be written; got {label!r}")
        if word.split() != [word] or "#" in word or "\0" in word:
            raise ValueError(f"qid {word!r} cannot be written: white space, '#' or nothing in it")
    return [f" qid:{words[code]}" for code in queries.codes.tolist()]


def load_group(path: PathOrFile) -> Array:
    r"""Read sizes of consecutive queries: a ``.query`` file of LightGBM, ``.group`` of XGBoost.

    Parameters
    ----------
    path : str, path-like or binary file
        One integer on each line.

    Returns
    -------
    ndarray of shape (n_queries,), int64
        For ``group=`` of fits, scores and metrics.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_group
    >>> load_group(io.BytesIO(b"27\n18\n67\n"))
    array([27, 18, 67])
    """
    name = name_of(path)
    sizes: list[int] = []
    for first, lines in text_blocks(path):
        for number, word in enumerate(map(str.strip, lines), first):
            if word and not (word.isascii() and word.isdigit() and len(word) <= 12):
                raise ValueError(
                    f"{name}:{number}: {shown(word)} is not the size of a query, an integer >= 0"
                )
            sizes += [int(word)] if word else []
    if not sizes:
        raise ValueError(f"{name}: no data: the file has no sizes of queries")
    return np.array(sizes, dtype=np.int64)


def _find_group(path: PathOrFile, group: Any, has_qid: bool) -> tuple[str, Array] | None:
    """Name and ends of the sizes for a file of rows: those asked for, or beside it; or None."""
    auto = isinstance(group, str) and group == "auto"
    if group is None or (auto and has_qid):
        return None
    files = _beside(path) if auto else [group]
    found = [(name_of(file), np.cumsum(load_group(file))) for file in files]
    if found and has_qid:
        raise ValueError(
            f"{name_of(path)}: the lines have query ids of their own: leave out "
            f"group={found[0][0]!r}"
        )
    for name, ends in found[1:]:
        if not np.array_equal(ends, found[0][1]):
            raise ValueError(
                f"{found[0][0]} and {name} have different sizes of queries: name one of them in "
                "group="
            )
    return found[0] if found else None


def _beside(path: PathOrFile) -> list[str]:
    """Files of sizes next to a file of rows: train.txt.query, train.txt.group."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else getattr(path, "name", None)
    if not isinstance(name, str) or not os.path.isfile(name):
        return []
    stems = dict.fromkeys([name, without_suffix(name)])
    return [f for stem in stems for f in (stem + ".query", stem + ".group") if os.path.isfile(f)]


class LetorReader(RowReader):
    """Rows of LETOR files, with the arguments of `load_ranking`."""

    nothing = "the file is empty, or has only comments"

    def __init__(self, paths: Sequence[PathOrFile], options: dict[str, Any]) -> None:
        n_features, zero_based, sparse = map(options.get, ("n_features", "zero_based", "sparse"))
        if n_features is not None:
            n_features = check_integer("n_features", n_features, least=1)
            if n_features > MAX_FEATURES:
                raise ValueError(f"n_features must be at most {MAX_FEATURES}; got {n_features!r}")
        if not isinstance(zero_based, bool | np.bool_):
            raise ValueError(f"zero_based must be True or False; got {zero_based!r}")
        if not isinstance(sparse, bool | np.bool_) and sparse != "auto":
            raise ValueError(f"sparse must be True, False or 'auto'; got {sparse!r}")
        super().__init__(name_of(paths[0]), True, options)
        self.paths, self.n_features, self.sparse = paths, n_features, sparse
        self.first_id = int(not zero_based)
        self.drop = check_option("beyond", options["beyond"], ("error", "drop")) == "drop"
        self.largest = float(np.finfo(self.dtype).max)
        self.group, self.with_qid = options["group"], options["qid"] is not None
        self.group_file: str | None = None
        self._words: dict[bytes | None, str | None] = {None: None}  # every query id once
        self._last, self._place = -1, ""  # the last column, and where it is
        self._warned = False

    @property
    def width(self) -> int:
        """Number of columns, as far as it is known."""
        return MAX_FEATURES if self.n_features is None else self.n_features

    @property
    def last_id(self) -> int:
        """The largest feature id that is allowed."""
        return (MAX_FEATURES if self.drop else self.width) - 1 + self.first_id

    def chunks(self, rows: float) -> Iterator[FileRows]:
        """All rows, a block of lines at a time."""
        first_query, known = 0, ""
        threads = min(effective_n_jobs(-1), _MAX_THREADS)
        for path in self.paths:
            sizes, first_place, name, row = None, None, name_of(path), 0
            for chunk in _resources.in_order(partial(self._parse, name), blocks(path), threads):
                if chunk is None:
                    continue
                has_qid = chunk.qid[0] is not None
                if first_place is None:
                    first_place, first_has_qid = chunk.place(0), has_qid
                    if self.with_qid:
                        sizes = _find_group(path, self.group, has_qid)
                    how = "by qid:" if has_qid else "by a file of sizes" if sizes else "not at all"
                    if known not in ("", how) and self.with_qid:
                        raise ValueError(
                            f"{name}: query ids are given {how}, and {known} in {self.file}: read "
                            "the files one by one"
                        )
                    known = how
                if has_qid != first_has_qid:
                    line = first_place.rpartition(":")[2]
                    raise ValueError(f"{chunk.place(0)}: {_one_of_two(chunk.qid[0], line)}")
                numbers = np.arange(row, row + len(chunk))
                row += len(chunk)
                if sizes is not None:
                    self.group_file, ends = self.group_file or sizes[0], sizes[1]
                    chunk.qid = np.searchsorted(ends, numbers, side="right") + first_query
                    if row > ends[-1]:
                        break
                elif not (has_qid and self.with_qid):
                    chunk.qid = None
                self._note_width(chunk)
                yield chunk
            if sizes is not None:
                group_file, ends = sizes
                if row != ends[-1]:
                    raise ValueError(
                        f"{group_file}: the sizes add up to {ends[-1]} rows, and {name} has "
                        f"{'more' if row > ends[-1] else row}"
                    )
                first_query += len(ends)

    def _parse(self, name: str, block: tuple[int, bytes]) -> Any:
        """The rows of a block, if any. Nothing here depends on other blocks: they are read ahead.

        Query ids are None in all rows, or in none.
        """
        lines = _Lines(name, *block)
        if not lines.labels:
            return None
        fast = None if b"\0" in block[1] else self._fast(lines)
        target, counts, columns, values = fast or self._carefully(lines)
        ends = np.concatenate([[0], np.cumsum(counts)])
        shape = len(target), MAX_FEATURES if self.drop else self.width
        data = sp.csr_array((values, columns, ends), shape=shape)
        for word in set(lines.qids).difference(self._words):
            try:
                self._words[word] = word.decode("utf-8")
            except UnicodeDecodeError:
                lines.fail(lines.qids.index(word), f"query id {shown(word)} is not UTF-8 text")
        qid = as_objects([self._words[word] for word in lines.qids])
        return FileRows(data, target, qid, comments=as_objects(lines.comments), place=lines.place)

    def _fast(self, lines: _Lines) -> tuple[Array, Array, Array, Array] | None:
        """Return target, counts, columns and values; None unless all is plainly right."""
        try:
            target = np.array(list(map(float, lines.labels)))
        except ValueError:
            return None
        if not np.isfinite(target).all() or b"_" in b"".join(lines.labels) or b"" in lines.qids:
            return None
        if 0 < lines.qids.count(None) < len(lines.qids):
            return None
        pairs = _pairs(b"\n".join(lines.features).translate(_AS_LINES), self.keep_missing)
        if pairs is None:
            return None
        ids, values = pairs
        counts = np.array([words.count(b":") for words in lines.features])
        if len(ids) and (ids.min() < self.first_id or ids.max() > self.last_id):
            return None
        if len(ids) and max(np.fmax.reduce(values), -np.fmin.reduce(values)) > self.largest:
            return None
        columns = (ids - np.uint32(self.first_id)).astype(np.int32)
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

    def _carefully(self, lines: _Lines) -> tuple[Array, Array, Array, Array]:
        """Return target, counts, columns and values, or raise the error of the first bad word."""
        target, counts, columns, values = [], [], [], []
        for i, features in enumerate(lines.features):
            target.append(self._label(lines, i))
            row: dict[int, float] = {}
            for word in features.split():
                column, value = self._feature(lines, i, word)
                if column in row:
                    lines.fail(i, f"feature {shown(word)} is given twice in this row")
                row[column] = value
            counts.append(len(row))
            columns += sorted(row)
            values += [row[column] for column in sorted(row)]
        return (np.array(target, dtype=np.float64), np.array(counts, dtype=np.int64),
                np.array(columns, dtype=np.int32), np.array(values, dtype=np.float64))  # fmt: skip

    def _label(self, lines: _Lines, row: int) -> float:
        qid = lines.qids[row]
        for token in (lines.labels[row], qid or b""):
            if b"\0" in token:
                lines.fail(row, f"{shown(token)} is binary data, not LETOR text")
        word = lines.labels[row].decode("utf-8", "replace")
        label = number_of(word)
        if math.isnan(label) and not (is_missing(word) and self.drop_unlabelled):
            table = " (a table? load_csv and load_ranking read CSV)" if "," in word else ""
            lines.fail(row, f"label {shown(word)} is not a number{table}")
        if math.isinf(label):
            lines.fail(row, f"label {shown(word)} is too large")
        if qid == b"":
            lines.fail(row, "'qid:' has no query id after the colon")
        if (qid is None) != (lines.qids[0] is None):
            lines.fail(row, _one_of_two(qid, str(lines.numbers[0])))
        return label

    def _feature(self, lines: _Lines, row: int, word: bytes) -> tuple[int, float]:
        id_, colon, value = word.partition(b":")
        what = shown(word)
        if b"\0" in word:
            lines.fail(row, f"{what} is binary data, not LETOR text")
        if not colon:
            lines.fail(row, f"{what} has no colon: a feature is written id:value")
        if id_ == b"qid":
            lines.fail(row, f"{what} must be the second word of the line, and only once")
        if not id_.isdigit():
            hint = " (ids are never negative)" if id_[:1] == b"-" else ""
            lines.fail(row, f"feature id in {what} is not an integer{hint}")
        digits = id_.lstrip(b"0") or b"0"
        feature = int(digits) if len(digits) <= 18 else 10**18
        if feature < self.first_id:
            lines.fail(
                row,
                f"feature id 0 in {what}, but ids start at 1; if those of this file start at 0, "
                "pass zero_based=True",
            )
        if feature > self.last_id:
            why = f"n_features={self.n_features} allows ids up to {self.last_id}"
            if self.width == MAX_FEATURES:
                why = f"the largest possible is {self.last_id}"
            lines.fail(row, f"feature id in {what} is too large: {why}")
        text = value.decode("utf-8", "replace")
        number, missing = number_of(text), is_missing(text)
        if math.isnan(number) and not (missing and self.keep_missing):
            lines.fail(row, f"value in {what} is not a finite number{REMEDY * missing}")
        if abs(number) > self.largest:
            lines.fail(row, f"value in {what} is too large for the dtype")
        return feature - self.first_id, number

    def _note_width(self, chunk: FileRows) -> None:
        """Note the last columns; drop those beyond the width, and warn about the first one."""
        X = chunk.data
        last = int(X.indices.max(initial=-1))

        def place(entry: Any) -> str:
            return chunk.place(int(np.searchsorted(X.indptr, entry, side="right")) - 1)

        if self.n_features is None and last > self._last:
            self._last, self._place = last, place(np.argmax(X.indices))
        if not self.drop:
            return
        if last >= self.width and not self._warned:
            self._warned = True
            at = int(np.argmax(X.indices >= self.width))
            warn(
                f"{place(at)}: feature {X.indices[at] + self.first_id} is beyond the first "
                f"{self.width}; such features are left out"
            )
        chunk.data = X[:, : self.width] if last >= self.width else _resized(X, self.width)

    def find_width(self) -> None:
        """Find the number of columns by reading all files, if it is not known."""
        if self.n_features is not None:
            return
        starts = {}
        for path in self.paths:
            name = name_of(path)
            if isinstance(path, str | os.PathLike):
                is_pipe = os.path.exists(name) and not os.path.isfile(name)
            else:
                is_pipe = not getattr(path, "seekable", lambda: False)()
                starts[path] = 0 if is_pipe else path.tell()
            if is_pipe:
                raise ValueError(f"{name}: n_features is needed to iterate over a stream")
        for _ in self.chunks(np.inf):
            pass
        for path, start in starts.items():
            path.seek(start)
        self.n_features = max(self._width(), 1)

    def _width(self) -> int:
        """The number of columns; a model of them must fit into memory."""
        width = self._last + 1
        if self.n_features is not None or _resources.fits_features(width):
            return self.n_features or width
        gib = width * 8 * _resources.VECTORS / 2**30
        raise ValueError(
            f"{self._place}: feature id {self._last + self.first_id} is the largest, and a model "
            f"of so many features needs {gib:.1f} GiB of memory or more; if it is no mistake, pass "
            f"n_features={width}, or leave such features out by beyond='drop' and a smaller "
            "n_features"
        )

    def bunch(self, rows: FileRows) -> Bunch:
        """What the user gets."""
        return Bunch(
            data=self._matrix(_resized(rows.data, self._width())),
            target=rows.target,
            qid=self.ids.array(rows.qid),
            comments=[] if rows.comments is None else rows.comments.tolist(),
        )

    def _matrix(self, X: Any) -> Any:
        """The features, dense or sparse; "auto" is decided by the first batch."""
        n_cells, size = X.shape[0] * X.shape[1], self.dtype.itemsize
        if self.sparse == "auto":
            self.sparse = X.nnz < _DENSE_FROM * n_cells
        if self.sparse:
            return X.astype(self.dtype, copy=False)
        advice = "pass sparse=True, or read it in batches"
        _resources.require(f"{self.file}: dense data", *X.shape, itemsize=size, advice=advice)
        if X.nnz == n_cells:  # every cell is written, and each row is sorted by column
            return X.data.reshape(X.shape).astype(self.dtype, copy=False)
        return X.astype(self.dtype, copy=False).toarray()


class _Lines:
    """The lines of a block that hold data: labels, query ids if any, features and comments."""

    def __init__(self, name: str, first_line: int, block: bytes) -> None:
        lines = block.removesuffix(b"\n").split(b"\n")
        self.comments = [""] * len(lines)
        if b"#" in block:
            notes = (line.partition(b"#")[2].strip() for line in lines)
            self.comments = [note.decode("utf-8", "replace") for note in notes]
            lines = [line.partition(b"#")[0] for line in lines]
        words = [line.split(None, 2) for line in lines]
        del lines
        self.numbers: Sequence[int] = range(first_line, first_line + len(words))
        if not all(words):  # lines without data
            kept = [i for i, row in enumerate(words) if row]
            words, self.numbers = [words[i] for i in kept], [self.numbers[i] for i in kept]
            self.comments = [self.comments[i] for i in kept]
        self.labels = [row[0] for row in words]
        self.qids: list[Any] = [row[1][4:] if len(row) > 1 and row[1][:4] == b"qid:" else None
                                for row in words]  # fmt: skip
        self.features = [row[2] if qid is not None and len(row) == 3
                         else b" ".join(row[1 if qid is None else 2 :])
                         for row, qid in zip(words, self.qids, strict=True)]  # fmt: skip
        self.place = partial(place_of, name, self.numbers)

    def fail(self, row: int, what: str) -> NoReturn:
        """Raise an error for a row."""
        raise ValueError(f"{self.place(row)}: {what}")


def _pairs(text: bytes, missing: bool) -> tuple[Array, Array] | None:
    """Ids and values of lines ``id:value``, empty ones among them; None if some are wrong."""
    if not text.strip(b"\n"):
        return np.empty(0, dtype=np.uint32), np.empty(0)
    if b"x" in text or b"X" in text:  # pyarrow reads 0x1F
        return None
    try:
        import pyarrow as pa
        from pyarrow import csv
    except ImportError:
        if not _PLAIN_PAIRS.fullmatch(text + b"\n"):
            return None
        words = text.replace(b":", b" ").split()
        try:
            numbers = np.array(list(map(float, words[1::2])))
        except ValueError:
            return None
        ids = np.array(words[::2]).astype(np.uint32)
        return (ids, numbers) if np.isfinite(numbers).all() else None
    try:
        table = csv.read_csv(
            pa.BufferReader(text),
            csv.ReadOptions(
                use_threads=False, block_size=len(text) + 1, column_names=["id", "value"]
            ),
            csv.ParseOptions(delimiter=":", quote_char=False),
            csv.ConvertOptions(
                check_utf8=False,
                column_types={"id": pa.uint32(), "value": pa.float64()},
                null_values=NULLS if missing else [],
            ),
        )
    except pa.ArrowInvalid:
        return None
    ids, column = table.column(0), table.column(1)
    values = column.to_numpy()
    if ids.null_count or np.count_nonzero(~np.isfinite(values)) != column.null_count:
        return None
    return ids.to_numpy(), values


def _one_of_two(qid: bytes | str | None, line: str) -> str:
    """What is wrong if only one of this line and an earlier one has a query id."""
    if qid is None:
        return f"no qid, but line {line} has one: give all or none"
    text = qid if isinstance(qid, str) else qid.decode("utf-8", "backslashreplace")
    return f"{shown('qid:' + text)}, but line {line} has no qid: give all or none"


def _resized(X: Any, width: int) -> Any:
    """The same entries in another number of columns."""
    return sp.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], width))
