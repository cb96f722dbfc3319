"""Writer of LETOR files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse as sp
from sklearn.utils import check_array

from rankrls._calls import takes_queries
from rankrls._frames import clear_errors
from rankrls._streams import written
from rankrls._validation import check_finite_array, check_length, encode_qid

__all__ = ["dump_letor"]


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
    with clear_errors(X):
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
