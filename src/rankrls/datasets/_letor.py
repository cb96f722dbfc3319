"""LETOR text (svmlight with query ids), and sizes of queries in a file beside it.

Blocks of lines are read by pyarrow's CSV parser, ``id:value`` being two cells. Whatever is not
plainly right is read again word by word, which gives the same numbers, or an error with its line.
"""

from __future__ import annotations

import math
import os
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
    as_objects,
    check_finite_array,
    check_integer,
    check_length,
    check_option,
    encode_qid,
)
from rankrls.datasets._batches import FileRows, RowReader
from rankrls.datasets.formats import (
    NULLS,
    REMEDY,
    blocks,
    number_of,
    parsed,
    place_of,
    shown,
    spells_missing,
    text_blocks,
)

Array = NDArray[Any]

#: Column numbers are 32-bit, in the files that matter and in ``scipy.sparse``.
MAX_FEATURES = 2**31 - 1

_DENSE_FROM = 0.25  # "auto": dense if at least this part of the cells is written
_MAX_THREADS = 4  # lines are cut into words by one thread at a time, numbers are read in all

_MIXED = "{} query id, unlike {}: give all lines one, or none"

_AS_LINES = bytes.maketrans(b" \t\r\v\f", b"\n" * 5)  # white space between features


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
    """Write a file in LETOR (svmlight with query ids) format, which is read as the same numbers.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_rows, n_features)
        Features. All values of a dense array are written, and the stored ones of a sparse matrix.
    y : array-like of shape (n_rows,)
        Labels.
    path : str or path-like
        File to write or replace, once it is complete; compressed if its name ends in ``.gz``,
        ``.bz2``, ``.xz`` or ``.zst``.
    qid : array-like of shape (n_rows,), default=None
        Query ids, integers or strings without white space and ``#``.
    comments : sequence of str of length n_rows, default=None
        Text to write after ``#``; nothing is written for ``""``.
    zero_based : bool, default=False
        Whether feature ids start at 0 rather than 1.
    """
    with clear_errors(X), np.errstate(invalid="ignore"):  # sums of huge numbers
        X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
    y = check_finite_array("y", y, ndim=(1,))
    check_length("y", y, X.shape[0])
    n_rows, first_id = X.shape[0], 0 if zero_based else 1
    queries = encode_qid(qid, n_rows)
    words = [""] if qid is None else [f" qid:{label}" for label in queries.labels]
    for label, word in zip(queries.labels, words, strict=True):
        is_word = isinstance(label, str | int | np.integer) and len(word.split()) == 1
        if qid is not None and (not is_word or word == " qid:" or "#" in word or "\0" in word):
            raise ValueError(f"qid must be integers, or words without white space and #: {label!r}")
    comments = [""] * n_rows if comments is None else comments
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
        for i, (label, code, note) in enumerate(zip(y.tolist(), queries.codes, notes, strict=True)):
            values = X[i] if not sp.issparse(X) else X.data[X.indptr[i] : X.indptr[i + 1]]
            if sp.issparse(X):
                columns = (X.indices[X.indptr[i] : X.indptr[i + 1]] + first_id).tolist()
            pairs = [f" {c}:{_number(v)}" for c, v in zip(columns, values, strict=True)]
            writer.write(f"{_number(label)}{words[code]}{''.join(pairs)}{note}\n".encode())


def _number(value: Any) -> str:
    # str gives the shortest digits that read back as the same number of this type.
    return str(value).removesuffix(".0")


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
    if isinstance(group, str) and group == "auto":
        stems = [] if has_qid else [name_of(path), without_suffix(name_of(path))]
        files = [stem + suffix for stem in stems for suffix in (".query", ".group")]
        group = next(filter(os.path.isfile, files), None)
    if group is None:
        return None
    if has_qid:
        raise ValueError(
            f"{name_of(path)}: the lines have query ids of their own: leave out group={group!r}"
        )
    return name_of(group), np.cumsum(load_group(group))


class LetorReader(RowReader):
    """Rows of LETOR files, with the arguments of `load_ranking`."""

    nothing = "the file is empty, or has only comments"

    def __init__(self, paths: Sequence[PathOrFile], options: dict[str, Any]) -> None:
        n_features = options["n_features"]
        if n_features is not None:
            n_features = check_integer("n_features", n_features, least=1)
            if n_features > MAX_FEATURES:
                raise ValueError(f"n_features must be at most {MAX_FEATURES}; got {n_features!r}")
        super().__init__(name_of(paths[0]), True, options)
        self.paths, self.n_features, self.sparse = paths, n_features, options["sparse"]
        if self.sparse not in (True, False, "auto") or options["zero_based"] not in (True, False):
            raise ValueError("sparse must be True, False or 'auto', and zero_based True or False")
        self.first_id = int(not options["zero_based"])
        self.drop = check_option("beyond", options["beyond"], ("error", "drop")) == "drop"
        last = n_features if n_features is not None and not self.drop else MAX_FEATURES
        self.last_id = last - 1 + self.first_id  # the largest feature id that is allowed
        self.largest = float(np.finfo(self.dtype).max)
        self.group, self.with_qid = options["group"], options["qid"] is not None
        self.need_qid = self.with_qid and "qid" in options["need"]
        self.group_file: str | None = None
        self._words: dict[bytes | None, str | None] = {None: None}  # every query id once
        self._last, self._place = -1, ""  # the last column, and where it is
        self._warned = False

    def chunks(self, rows: float) -> Iterator[FileRows]:
        """All rows, a block of lines at a time."""
        first_query, known = 0, None
        threads = min(effective_n_jobs(-1), _MAX_THREADS)
        for path in self.paths:
            sizes, first_place, name, row = None, "", name_of(path), 0
            for chunk in _resources.in_order(partial(self._parse, name), blocks(path), threads):
                if chunk is None:
                    continue
                has_qid = chunk.qid[0] is not None
                if not first_place:
                    first_place, first_has_qid = chunk.place(0), has_qid
                    sizes = _find_group(path, self.group, has_qid) if self.with_qid else None
                    known = known or (has_qid, sizes is None)
                    if self.with_qid and known != (has_qid, sizes is None):
                        raise ValueError(
                            f"{name}: query ids are not given as in {self.file}: read the files "
                            "one by one"
                        )
                if has_qid != first_has_qid:
                    what = _MIXED.format("a" if has_qid else "no", first_place)
                    raise ValueError(f"{chunk.place(0)}: {what}")
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
        data = sp.csr_array((values, columns, ends), shape=(len(target), MAX_FEATURES))
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
        word, qid = lines.labels[row].decode("utf-8", "replace"), lines.qids[row]
        label = number_of(word)
        if not math.isfinite(label) and not (spells_missing(word) and self.drop_unlabelled):
            hint = " (a table? load_csv and load_ranking read CSV)" * ("," in word)
            if spells_missing(word):
                hint = " (load_ranking leaves such rows out by unlabelled='drop')"
            lines.fail(row, f"label {shown(word)} is not a finite number{hint}")
        if qid is not None and (not qid or b"\0" in qid):
            lines.fail(row, f"{shown(b'qid:' + qid)} has no valid query id after the colon")
        if (qid is None) != (lines.qids[0] is None):
            lines.fail(row, _MIXED.format("no" if qid is None else "a", lines.place(0)))
        return label

    def _feature(self, lines: _Lines, row: int, word: bytes) -> tuple[int, float]:
        id_, colon, value = word.partition(b":")
        what = shown(word)
        if not (colon and id_.isdigit()):
            lines.fail(
                row,
                f"{what} is no feature id:value with an integer >= {self.first_id} (a query id is "
                "the second word)",
            )
        feature = int(id_) if len(id_) <= 18 else 10**18
        if feature < self.first_id:
            lines.fail(
                row,
                f"feature id 0 in {what}, but ids start at 1; if those of this file start at 0, "
                "pass zero_based=True",
            )
        if feature > self.last_id:
            why = "" if self.n_features is None else f"n_features={self.n_features} allows "
            lines.fail(row, f"feature id in {what} is too large: {why}ids up to {self.last_id}")
        text = value.decode("utf-8", "replace")
        number, missing = number_of(text), spells_missing(text)
        if math.isnan(number) and not (missing and self.keep_missing):
            lines.fail(row, f"value in {what} is not a finite number{REMEDY * missing}")
        if abs(number) > self.largest:
            lines.fail(row, f"value in {what} is too large for the dtype")
        return feature - self.first_id, number

    def _note_width(self, chunk: FileRows) -> None:
        """Note the last columns; drop those beyond ``n_features``, and warn of the first one."""
        X, width = chunk.data, self.n_features
        last = int(X.indices.max(initial=-1))
        if last <= (self._last if width is None else width - 1):
            return
        at = np.searchsorted(X.indptr, np.argmax(X.indices), side="right")
        place = chunk.place(int(at) - 1)
        if width is None:
            self._last, self._place = last, place
            return
        if not self._warned:
            warn(
                f"{place}: feature {last + self.first_id} is beyond the first {width}; such "
                "features are left out"
            )
        self._warned, kept = True, X[:, :width]
        chunk.data = sp.csr_array((kept.data, kept.indices, kept.indptr), shape=X.shape)

    def prepare_batches(self) -> None:
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
        qid, X = self.query_ids(rows.qid), rows.data
        if qid is None and self.need_qid:
            raise ValueError(
                f"{self.file}: the lines have no query ids (label qid:7 1:0.5 …), and no file "
                f"{self.file}.query has sizes of queries; pass qid=None if all rows are one ranking"
            )
        X = sp.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], self._width()))
        return Bunch(
            data=self._matrix(X),
            target=rows.target,
            qid=qid,
            comments=[] if rows.comments is None else rows.comments.tolist(),
            format="letor",
            **dict.fromkeys(("sample_weight", "feature_names", "target_name", "qid_name")),
            **({"group_file": self.group_file} if self.group_file else {}),
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
    """Ids and values of lines ``id:value``; None if some are wrong, or pyarrow is not there."""
    if not text.strip(b"\n"):
        return np.empty(0, dtype=np.uint32), np.empty(0)
    if b"x" in text or b"X" in text:  # pyarrow reads 0x1F
        return None
    try:
        import pyarrow as pa
    except ImportError:
        return None
    types = {"id": pa.uint32(), "value": pa.float64()}
    table = parsed(text, ["id", "value"], types, ":", False, NULLS if missing else [])
    if table is None:
        return None
    ids, column = table.column(0), table.column(1)
    values = column.to_numpy()
    if ids.null_count or np.count_nonzero(~np.isfinite(values)) != column.null_count:
        return None
    return ids.to_numpy(), values
