"""LETOR files (svmlight with query ids): readers, the whole file or batch by batch, and a writer.

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
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse as sp
from sklearn.utils import Bunch, check_array

from rankrls import _resources
from rankrls._calls import takes_queries, warn
from rankrls._frames import clear_errors
from rankrls._streams import PathOrFile, name_of, written
from rankrls._validation import (
    check_finite_array,
    check_integer,
    check_length,
    check_option,
    encode_qid,
)
from rankrls.datasets._cells import (
    NULLS,
    REMEDY,
    QueryIds,
    as_objects,
    check_missing,
    is_missing,
    number_of,
    shown,
)
from rankrls.datasets._group import GroupFile
from rankrls.datasets._rows import FileRows, RowReader, check_dtype, iterate, load
from rankrls.datasets._source import blocks, rewindable

__all__ = ["LetorReader", "dump_letor", "iter_letor", "load_letor"]

Array = NDArray[Any]

#: Column numbers are 32-bit, in the files that matter and in ``scipy.sparse``.
MAX_FEATURES = 2**31 - 1

#: Above this number of features, warn if the largest id is so many times the second largest.
_MANY_FEATURES, _FAR = 100_000, 1000

_DENSE_FROM = 0.25  # "auto": dense if at least this part of the cells is written
_NEVER_DENSE = 0.001  # sparse=False is refused below this, once the array is large
_LARGE = 2**30

_MAX_THREADS = 4  # lines are cut into words by one thread at a time, numbers are read in all

_AS_LINES = bytes.maketrans(b" \t\r\v\f", b"\n" * 5)  # white space between features


def load_letor(
    path: PathOrFile,
    *,
    n_features: int | None = None,
    dtype: DTypeLike = np.float64,
    sparse: bool | str = "auto",
    zero_based: bool = False,
    beyond: str = "error",
    missing: str = "error",
) -> Bunch:
    r"""Read a file in LETOR (svmlight with query ids) format.

    Every line is one document, ``label qid:id 1:value 2:value … # comment``. Empty lines and
    lines with only a comment are skipped.

    Parameters
    ----------
    path : str, path-like or binary file
        File to read, plain or compressed by gzip, bzip2, xz or zstd, which is detected from its
        content. zstd needs pyarrow (``pip install 'rankrls[arrow]'``) before Python 3.14. An
        open file is read from its current position, and is left open.
    n_features : int, default=None
        Number of columns of the result; a larger feature id in the file is an error. By default
        the largest feature id found; an error names its line if it is so large that a few vectors
        with one number for each feature would not fit into memory.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of ``data``.
    sparse : bool or "auto", default="auto"
        Whether ``data`` is sparse. ``"auto"`` gives a dense array if at least a quarter of its
        cells are written in the file (zeros that are written count), and a sparse one otherwise.
        ``False`` is refused if the array would take over 1 GiB and less than a thousandth of it
        is written.
    zero_based : bool, default=False
        Whether feature ids start at 0. This is not detected: by default feature 1 is column 0,
        and a feature id 0 is an error.
    beyond : {"error", "drop"}, default="error"
        How to handle features beyond ``n_features``: raise an error, or drop them and warn once.
    missing : {"error", "nan"}, default="error"
        How to handle missing values (``2:NULL``, ``2:NA``, ``2:N/A``, ``2:NaN``,
        ``2:None`` in any case, or nothing after the colon): an error, or NaN, which is a stored
        entry where ``data`` is sparse. Labels and query ids must not be missing.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        data : ndarray or scipy.sparse.csr_array of shape (n_rows, n_features)
            Features.
        target : ndarray of shape (n_rows,), float64
            Labels: any real numbers.
        qid : ndarray of shape (n_rows,), int64 or str, or None
            Query ids: integers if all of them are (within 64 bits, and no two of them the same
            integer written differently), otherwise strings, in an array of objects if some are
            so long that this takes less memory. None if the file has no query ids.
        comments : list of str of length n_rows
            Text after ``#``, without surrounding white space; ``""`` if there is none. Bytes that
            are not UTF-8 become U+FFFD.

    Raises
    ------
    ValueError
        If the file is malformed; the message begins with ``file:line:``. Features of a row may
        be in any order, but no feature may be given twice. Values that are not finite numbers
        (but for ``missing``), query ids on some lines only, query ids that are not UTF-8 text,
        NUL bytes, lines of more than 64 MiB, an empty file and damaged compressed data are errors,
        too.
    MemoryError
        If the rows do not fit into the memory of the process.

    See Also
    --------
    iter_letor : Read a file that does not fit in memory.
    dump_letor : Write such a file.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_letor
    >>> file = io.BytesIO(b"2 qid:7 1:0.5 2:1 # doc-a\n0 qid:7 1:0.25 2:3\n1 qid:9 2:4\n")
    >>> letor = load_letor(file)
    >>> letor.data
    array([[0.5 , 1.  ],
           [0.25, 3.  ],
           [0.  , 4.  ]])
    >>> letor.target, letor.qid
    (array([2., 0., 1.]), array([7, 7, 9]))
    >>> letor.comments
    ['doc-a', '', '']
    """
    how: dict[str, Any] = {"n_features": n_features, "sparse": sparse, "zero_based": zero_based}
    return _without_names(
        load(LetorReader([path], dtype=dtype, beyond=beyond, missing=missing, **how))
    )


def iter_letor(
    path: PathOrFile,
    *,
    rows: int = 100_000,
    n_features: int | None = None,
    dtype: DTypeLike = np.float64,
    sparse: bool | str = "auto",
    zero_based: bool = False,
    beyond: str = "error",
    missing: str = "error",
    by_query: bool = True,
) -> Iterator[Bunch]:
    r"""Read a LETOR file in batches of whole queries, holding one batch in memory at a time.

    Parameters
    ----------
    path : str, path-like or binary file
        As in :func:`load_letor`. The rows of a query must be consecutive.
    rows : int, default=100_000
        Largest number of rows of a batch. A batch ends where a query ends; a query with more
        rows than this is a batch of its own. Without query ids a batch has just this many rows.
    n_features : int, default=None
        Number of columns of every batch. By default it is found by a first, quick pass over the
        file, which looks at the last feature of every line only; a file whose features are not
        in increasing order, or that cannot be read twice, needs it given.
    dtype, sparse, zero_based, beyond, missing
        As in :func:`load_letor`; with ``sparse="auto"`` the first batch decides for all.
    by_query : bool, default=True
        False: batches of just ``rows`` rows, with queries in any order and cut anywhere.

    Yields
    ------
    batch : :class:`~sklearn.utils.Bunch`
        ``data``, ``target``, ``qid`` and ``comments``, as in :func:`load_letor`. Whether query
        ids are integers is decided by the first batch.

    Raises
    ------
    ValueError
        As in :func:`load_letor`; also if a query id reappears after another query, naming
        the line. Only the ids of the queries already read are kept to notice this.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import iter_letor
    >>> file = io.BytesIO(b"1 qid:1 1:5\n0 qid:1 1:6\n1 qid:2 1:7\n0 qid:3 1:8\n")
    >>> for batch in iter_letor(file, rows=3):
    ...     print(batch.qid, batch.data.ravel())
    [1 1 2] [5. 6. 7.]
    [3] [8.]
    """
    rows = check_integer("rows", rows, least=1)
    how: dict[str, Any] = {"n_features": n_features, "sparse": sparse, "zero_based": zero_based}
    reader = LetorReader([path], dtype=dtype, beyond=beyond, missing=missing, **how)
    reader.find_width()
    return map(_without_names, iterate(reader, rows, by_query=by_query))


def _without_names(bunch: Bunch) -> Bunch:
    """What only `load_ranking` gives is left out."""
    return Bunch(**{name: bunch[name] for name in ("data", "target", "qid", "comments")})


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

    The numbers are written with as many digits as it takes to read the same ones again. The file
    appears under its name only when it is complete.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_rows, n_features)
        Features. All values of a dense array are written, and the stored ones of a sparse matrix.
    y : array-like of shape (n_rows,)
        Labels.
    path : str or path-like
        File to write or replace; compressed if its name ends in ``.gz``,
        ``.bz2``, ``.xz`` or ``.zst``. Pipes and devices, such
        as ``/dev/stdout``, are written to and not replaced.
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
    ids = None if qid is None else _query_words(qid, X.shape[0])
    notes = None if comments is None else _notes(comments, X.shape[0])

    lines = _lines(X, y, ids, notes, 0 if zero_based else 1)
    with written(os.fspath(path)) as writer:
        writer.writelines(lines)


def _lines(
    X: Any, y: Any, ids: list[str] | None, notes: list[str] | None, first_id: int
) -> Iterator[bytes]:
    if sp.issparse(X):
        X = X.copy()
        X.sum_duplicates()
    else:
        columns: Any = range(first_id, first_id + X.shape[1])
    for i, label in enumerate(y.tolist()):
        if sp.issparse(X):
            row = slice(X.indptr[i], X.indptr[i + 1])
            columns, values = (X.indices[row] + first_id).tolist(), X.data[row]
        else:
            values = X[i]
        words = [_number(label)]
        if ids is not None:
            words.append(f"qid:{ids[i]}")
        words += [f"{c}:{_number(v)}" for c, v in zip(columns, values, strict=True)]
        if notes is not None and notes[i]:
            words.append(f"# {notes[i]}")
        yield (" ".join(words) + "\n").encode()


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
    return [words[code] for code in queries.codes.tolist()]


def _notes(comments: Sequence[str], n_rows: int) -> list[str]:
    check_length("comments", comments, n_rows)
    notes = [str(comment) for comment in comments]
    for i, note in enumerate(notes):
        if "\n" in note:
            raise ValueError(f"comments[{i}] contains a line break: {note[:40]!r}")
    return notes


class LetorReader(RowReader):
    """Rows of LETOR files, with the arguments of `load_letor` and ``group`` of `load_ranking`.

    Without ``qid``, query ids are ignored.
    """

    nothing = "the file is empty, or has only comments"

    def __init__(
        self,
        paths: Sequence[PathOrFile],
        *,
        n_features: Any = None,
        dtype: Any = np.float64,
        sparse: Any = "auto",
        zero_based: Any = False,
        beyond: str = "error",
        missing: str = "error",
        group: Any = None,
        qid: bool = True,
    ) -> None:
        if n_features is not None:
            n_features = check_integer("n_features", n_features, least=1)
            if n_features > MAX_FEATURES:
                raise ValueError(f"n_features must be at most {MAX_FEATURES}; got {n_features!r}")
        if not isinstance(zero_based, bool | np.bool_):
            raise ValueError(f"zero_based must be True or False; got {zero_based!r}")
        if not isinstance(sparse, bool | np.bool_) and sparse != "auto":
            raise ValueError(f"sparse must be True, False or 'auto'; got {sparse!r}")
        check_option("beyond", beyond, ("error", "drop"))
        self.paths, self.file = paths, name_of(paths[0])
        self.n_features, self.width_is_guessed = n_features, False
        self.dtype, self.sparse = check_dtype(dtype), sparse
        self.first_id, self.drop = int(not zero_based), beyond == "drop"
        self.missing = check_missing(missing)
        self.largest = float(np.finfo(self.dtype).max)
        self.group, self.with_qid = group, qid
        self.group_file: str | None = None
        self._words: dict[bytes | None, str | None] = {}  # every query id once
        self.ids = QueryIds(self.file, spelled=True)
        self._last: tuple[int, str] = (-1, "")  # the last column, and its place
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
        for path in self.paths:
            sizes = None
            for number, chunk in enumerate(self._of_file(path)):
                if number == 0 and self.with_qid:
                    has_qid = chunk.qid is not None
                    sizes = GroupFile.of(path, self.group, has_qid)
                    if sizes is not None:
                        self.group_file = self.group_file or sizes.name
                    given = (
                        "by qid:" if has_qid else "by a file of sizes" if sizes else "not at all"
                    )
                    if known not in ("", given):
                        raise ValueError(
                            f"{name_of(path)}: query ids are given {given}, and {known} in "
                            f"{self.file}: read the files one by one"
                        )
                    known = given
                if sizes is not None:
                    chunk.qid = sizes.next_queries(len(chunk)) + first_query
                elif not self.with_qid:
                    chunk.qid = None
                self._note_width(chunk)
                yield chunk
            if sizes is not None:
                sizes.check_end()
                first_query += sizes.n_queries

    def _of_file(self, path: PathOrFile) -> Iterator[FileRows]:
        """Rows of one file: all of them have query ids, or none."""
        threads = min(effective_n_jobs(-1), _MAX_THREADS)
        has_qid, first_line = None, ""
        for chunk in _resources.in_order(
            partial(self._parse, name_of(path)), blocks(path), threads
        ):
            if chunk is None:
                continue
            qid = chunk.qid[0]  # type: ignore[index]
            if has_qid is None:
                has_qid, first_line = qid is not None, chunk.place(0).rpartition(":")[2]
            if (qid is not None) != has_qid:
                raise ValueError(f"{chunk.place(0)}: {_one_of_two(qid, first_line)}")
            chunk.qid = chunk.qid if has_qid else None
            yield chunk

    def _parse(self, name: str, block: tuple[int, bytes]) -> FileRows | None:
        """The rows of a block. Nothing here depends on other blocks: they are read ahead."""
        lines = _Lines(name, *block)
        if not lines.labels:
            return None
        fast = None if b"\0" in block[1] else self._fast(lines)
        target, counts, columns, values = fast or self._carefully(lines)
        ends = np.concatenate([[0], np.cumsum(counts)])
        shape = len(target), MAX_FEATURES if self.drop else self.width
        data = sp.csr_array((values, columns, ends), shape=shape)
        for word in set(lines.qids).difference(self._words):
            self._words[word] = self._query(lines, word)
        words = list(map(self._words.__getitem__, lines.qids))
        comments = as_objects(lines.comments)
        place = partial(_place, name, lines.numbers)
        return FileRows(data, target, as_objects(words), comments=comments, place=place)

    def _query(self, lines: _Lines, word: bytes | None) -> str | None:
        """A query id as text."""
        try:
            return None if word is None else word.decode("utf-8")
        except UnicodeDecodeError:
            lines.fail(lines.qids.index(word), f"query id {shown(word)} is not UTF-8 text")

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
        pairs = _pairs(b"\n".join(lines.features).translate(_AS_LINES), self.missing)
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
        for token in (lines.labels[row], lines.qids[row] or b""):
            if b"\0" in token:
                lines.fail(row, f"{shown(token)} is binary data, not LETOR text")
        word = lines.labels[row].decode("utf-8", "replace")
        label = number_of(word)
        if math.isnan(label) and not (is_missing(word) and self.unlabelled == "drop"):
            table = " (a table? load_csv and load_ranking read CSV)" if "," in word else ""
            lines.fail(row, f"label {shown(word)} is not a number{table}")
        if math.isinf(label):
            lines.fail(row, f"label {shown(word)} is too large")
        if lines.qids[row] == b"":
            lines.fail(row, "'qid:' has no query id after the colon")
        if (lines.qids[row] is None) != (lines.qids[0] is None):
            lines.fail(row, _one_of_two(lines.qids[row], str(lines.numbers[0])))
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
            lines.fail(row, f"feature id in {what} is too large: {self._why_too_large()}")
        text = value.decode("utf-8", "replace")
        number, missing = number_of(text), is_missing(text)
        if math.isnan(number) and not (missing and self.missing):
            lines.fail(row, f"value in {what} is not a finite number{REMEDY * missing}")
        if abs(number) > self.largest:
            lines.fail(row, f"value in {what} is too large for the dtype")
        return feature - self.first_id, number

    def _why_too_large(self) -> str:
        if self.width == MAX_FEATURES:
            return f"the largest possible is {self.last_id}"
        if self.width_is_guessed:
            return (
                f"the last features of the lines have ids up to {self.last_id}; where they are "
                "not in increasing order, n_features must be given"
            )
        return f"n_features={self.n_features} allows ids up to {self.last_id}"

    def _note_width(self, chunk: FileRows) -> None:
        """Note the last column; drop those beyond the width, and warn about the first one."""
        X = chunk.data
        last = int(X.indices.max(initial=-1))
        if last > self._last[0] and self.n_features is None:
            row = int(np.searchsorted(X.indptr, np.argmax(X.indices), side="right")) - 1
            self._last = last, chunk.place(row)
        if not self.drop:
            return
        if last >= self.width and not self._warned:
            self._warned = True
            at = int(np.argmax(X.indices >= self.width))
            row = int(np.searchsorted(X.indptr, at, side="right")) - 1
            warn(
                f"{chunk.place(row)}: feature {X.indices[at] + self.first_id} is beyond the first "
                f"{self.width}; such features are left out"
            )
        chunk.data = X[:, : self.width] if last >= self.width else _resized(X, self.width)

    def find_width(self) -> None:
        """Find the number of columns from the last feature of every line, if it is not known."""
        if self.n_features is not None:
            return
        largest, second, place = 0, 0, ""
        for path in self.paths:
            if not rewindable(path):
                raise ValueError(f"{name_of(path)}: n_features is needed to iterate over a stream")
            start = path.tell() if hasattr(path, "tell") else None
            for first_line, block in blocks(path):
                for number, id_ in _last_ids(first_line, block):
                    if id_ > largest:
                        largest, second, place = id_, largest, f"{name_of(path)}:{number}"
                    elif second < id_ < largest:
                        second = id_
            if start is not None:
                path.seek(start)  # type: ignore[union-attr]
        width = max(largest + 1 - self.first_id, 1)
        if width <= MAX_FEATURES:  # otherwise the parser refuses this line
            _check_largest(place, largest, second, width)
        self.n_features, self.width_is_guessed = min(width, MAX_FEATURES), True

    def bunch(self, rows: FileRows) -> Bunch:
        """What the user gets."""
        width = self.n_features
        if width is None:
            last, place = self._last
            width = last + 1
            if width > _MANY_FEATURES:
                columns = rows.data.indices
                second = int(columns.max(initial=-1, where=columns < last))
                _check_largest(place, last + self.first_id, second + self.first_id, width)
        bunch = Bunch(
            data=self._matrix(_resized(rows.data, width)),
            target=rows.target,
            qid=self.ids.array(rows.qid),
            comments=[] if rows.comments is None else rows.comments.tolist(),
        )
        bunch.update(sample_weight=None, feature_names=None, target_name=None, qid_name=None)
        if self.group_file is not None:
            bunch.group_file = self.group_file
        return bunch

    def _matrix(self, X: Any) -> Any:
        """The features, dense or sparse; "auto" is decided by the first batch."""
        n_cells = X.shape[0] * X.shape[1]
        if self.sparse == "auto":
            self.sparse = X.nnz < _DENSE_FROM * n_cells
        if self.sparse:
            return X.astype(self.dtype, copy=False)
        n_bytes = n_cells * self.dtype.itemsize
        if n_bytes > _LARGE and X.nnz < _NEVER_DENSE * n_cells:
            raise ValueError(
                f"{self.file}: {X.shape[0]} rows with {X.shape[1]} features would take "
                f"{n_bytes / 2**30:.1f} GiB for {X.nnz} written values; pass sparse=True"
            )
        advice = "pass sparse=True, or read it in batches"
        size = self.dtype.itemsize
        _resources.require(f"{self.file}: dense data", *X.shape, itemsize=size, advice=advice)
        if X.nnz == n_cells:  # every cell is written, and each row is sorted by column
            return X.data.reshape(X.shape).astype(self.dtype, copy=False)
        return X.astype(self.dtype, copy=False).toarray()


class _Lines:
    """The lines of a block that hold data: labels, query ids if any, features and comments."""

    def __init__(self, name: str, first_line: int, block: bytes) -> None:
        self.name = name
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
        self.qids = [row[1][4:] if len(row) > 1 and row[1][:4] == b"qid:" else None
                     for row in words]  # fmt: skip
        self.features = [row[2] if qid is not None and len(row) == 3
                         else b" ".join(row[1 if qid is None else 2 :])
                         for row, qid in zip(words, self.qids, strict=True)]  # fmt: skip

    def fail(self, row: int, what: str) -> NoReturn:
        """Raise an error for a row."""
        raise ValueError(f"{_place(self.name, self.numbers, row)}: {what}")


def _place(name: str, numbers: Sequence[int], row: int) -> str:
    return f"{name}:{numbers[row]}"


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
        return _plain_pairs(text)
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


def _plain_pairs(text: bytes) -> tuple[Array, Array] | None:
    """The same without pyarrow."""
    words = [word.partition(b":") for word in text.split()]
    ids, values = [word[0] for word in words], [word[2] for word in words]
    if not b"".join(ids).isdigit() or b"_" in text or b"" in ids or max(map(len, ids)) > 9:
        return None
    try:
        numbers = np.array(list(map(float, values)))
    except ValueError:
        return None
    return (np.array(ids).astype(np.uint32), numbers) if np.isfinite(numbers).all() else None


def _one_of_two(qid: bytes | str | None, line: str) -> str:
    """What is wrong if only one of this line and an earlier one has a query id."""
    if qid is None:
        return f"no qid, but line {line} has one: give all or none"
    text = qid if isinstance(qid, str) else qid.decode("utf-8", "backslashreplace")
    return f"{shown('qid:' + text)}, but line {line} has no qid: give all or none"


def _resized(X: Any, width: int) -> Any:
    """The same entries in another number of columns."""
    return sp.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], width))


def _check_largest(place: str, largest: int, second: int, width: int) -> None:
    """Refuse a width that does not fit into memory; warn of one that is due to a single id."""
    if width <= _MANY_FEATURES:
        return
    found = f"{place}: feature id {largest} is the largest (the next one is {second})"
    remedy = (
        f"if it is no mistake, pass n_features={width}, or leave such features out by "
        "beyond='drop' and a smaller n_features"
    )
    if not _resources.fits_features(width):
        gib = width * 8 * _resources.VECTORS / 2**30
        raise ValueError(
            f"{found}, and a model of so many features needs {gib:.1f} GiB of memory or more; "
            f"{remedy}"
        )
    if largest > _FAR * max(second, 1):
        warn(f"{found}, and all {width:,} features take memory; {remedy}")


def _last_ids(first_line: int, block: bytes) -> Iterator[tuple[int, int]]:
    """Yield line and last feature id of the lines, without cutting them out.

    What is malformed here is reported by the parser, in the second pass.
    """
    start, length, line = 0, len(block), first_line
    while start < length:
        end = block.find(b"\n", start)
        end = length if end < 0 else end
        comment = block.find(b"#", start, end)
        colon = block.rfind(b":", start, end if comment < 0 else comment)
        if colon > start:
            words = block[max(start, colon - 11) : colon].rsplit(None, 1)
            if words and len(words[-1]) <= 10 and words[-1].isdigit():
                yield line, int(words[-1])
        start = end + 1
        line += 1
