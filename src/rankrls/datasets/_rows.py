"""Rows of any file: the chunks that readers yield, and batches of whole queries made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp
from sklearn.utils import Bunch

from rankrls._calls import warn
from rankrls._validation import check_option
from rankrls.datasets._cells import QueryIds, shown
from rankrls.datasets._source import require_loadable

__all__ = ["FileRows", "RowReader", "check_dtype", "iterate", "joined", "load"]

Array = NDArray[Any]

_FIELDS = ("data", "target", "qid", "sample_weight", "text", "comments")


@dataclass
class FileRows:
    """Consecutive rows of a file.

    Attributes
    ----------
    data : ndarray or csr_array of shape (n_rows, n_features)
    target, qid, sample_weight : ndarray of shape (n_rows,), or None
        Query ids of text files are objects (str), to be made integers if all of them are.
    text : ndarray of shape (n_rows, n_text), or None
        Columns of text, None where there is none.
    comments : ndarray of shape (n_rows,), objects, or None
    place : callable
        Row to how an error calls it; only of rows as they were read.
    """

    data: Any
    target: Array | None = None
    qid: Array | None = None
    sample_weight: Array | None = None
    text: Array | None = None
    comments: Array | None = None
    place: Callable[[int], str] = "row {}".format

    def __len__(self) -> int:
        return self.data.shape[0]

    def __getitem__(self, rows: Any) -> FileRows:
        values = {name: getattr(self, name) for name in _FIELDS[1:]}
        others: dict[str, Any] = {
            n: None if value is None else value[rows] for n, value in values.items()
        }
        X = self.data
        if sp.issparse(X) and isinstance(rows, slice):  # without copying
            start, stop, _ = rows.indices(len(self))
            ends = X.indptr[start : stop + 1]
            inside = slice(ends[0], ends[-1])
            parts = X.data[inside], X.indices[inside], ends - ends[0]
            return FileRows(sp.csr_array(parts, shape=(stop - start, X.shape[1])), **others)
        return FileRows(X[rows], **others)

    @property
    def n_bytes(self) -> int:
        """Memory of the arrays, without that of objects in them."""
        X = self.data
        arrays = [X.data, X.indices, X.indptr] if sp.issparse(X) else [X]
        arrays += [getattr(self, name) for name in _FIELDS[1:]]
        return sum(array.nbytes for array in arrays if array is not None)


def joined(parts: list[FileRows]) -> FileRows:
    """All rows, below each other."""
    if len(parts) == 1:
        return parts[0]

    def join(values: list[Any]) -> Any:
        if sp.issparse(values[0]):
            return sp.csr_array(sp.vstack(values, format="csr"))
        return None if values[0] is None else np.concatenate(values)

    return FileRows(**{name: join([getattr(part, name) for part in parts]) for name in _FIELDS})


class RowReader(ABC):
    """Rows of one data set, in one file or several.

    Attributes
    ----------
    file : str
        How errors call it.
    ids : QueryIds
    unlabelled : {"error", "drop"}
        How to handle rows without a label, whose target is NaN if they are to be dropped.
    """

    file: str
    ids: QueryIds
    unlabelled: str = "error"
    nothing = "there are no rows"

    @abstractmethod
    def chunks(self, rows: float) -> Iterator[FileRows]:
        """All rows, not many more than ``rows`` at a time; no chunk is empty."""

    @abstractmethod
    def bunch(self, rows: FileRows) -> Bunch:
        """What the user gets for some rows."""

    def drop_unlabelled(self, unlabelled: str) -> None:
        """Whether rows without a label are left out."""
        self.unlabelled = check_option("unlabelled", unlabelled, ("error", "drop"))


def check_dtype(dtype: Any) -> np.dtype:
    """Return ``dtype`` as a NumPy type if it is float64 or float32."""
    checked = np.dtype(dtype)
    if checked not in (np.float32, np.float64):
        raise ValueError(f"dtype must be numpy.float64 or numpy.float32; got {dtype!r}")
    return checked


def load(reader: RowReader) -> Bunch:
    """All rows at once."""
    return next(iterate(reader, np.inf, by_query=False))


def iterate(reader: RowReader, rows: float, *, by_query: bool) -> Iterator[Bunch]:
    """Batches of at most ``rows`` rows, cut between queries if there are any.

    Without ``by_query``, queries may be cut, and come in any order.
    """
    queries = _EndedQueries()
    instead = "fewer rows" if rows < np.inf else "iter_ranking"
    waiting: list[FileRows] = []
    starts: list[Array] = []  # the waiting rows that begin a query
    n = n_bytes = 0
    for chunk in _labelled(reader, reader.chunks(rows)):
        reader.ids.check(chunk.qid, chunk.place)
        whole_queries = by_query and chunk.qid is not None
        if whole_queries:
            starts.append(queries.starts(chunk) + n)
            instead = "by_query=False"
        n += len(chunk)
        n_bytes += chunk.n_bytes
        require_loadable(partial(chunk.place, len(chunk) - 1), n_bytes, instead)
        chunk.place = FileRows.place  # which may hold the text of the chunk
        waiting.append(chunk)
        if n < rows:
            continue
        borders = np.concatenate(starts) if whole_queries else None
        cuts = _cuts(borders, n, int(rows))
        if len(cuts) == 1:
            continue  # a query may go on
        whole = joined(waiting)
        waiting.clear()
        for start, stop in pairwise(cuts):
            yield reader.bunch(whole[start:stop])
        done = cuts[-1]
        rest = whole[np.arange(done, n)]  # a copy, so that the others can be freed
        waiting.append(rest)
        n, n_bytes = n - done, rest.n_bytes
        starts = [] if borders is None else [borders[borders >= done] - done]
        del whole, rest
    if not waiting:
        raise ValueError(f"{reader.file}: no data: {reader.nothing}")
    whole = joined(waiting)
    waiting.clear()
    if len(whole):
        yield reader.bunch(whole)


def _cuts(borders: Array | None, n: int, rows: int) -> list[int]:
    """Where batches begin and end that are full: no further query fits into them."""
    cuts = [0]
    while n - cuts[-1] >= rows + (borders is not None):
        stop = cuts[-1] + rows
        if borders is not None:  # the last query that begins up to there; a larger query is whole
            at = int(np.searchsorted(borders, stop, side="right")) - 1
            at += borders[at] == cuts[-1]
            if at == len(borders):
                break
            stop = int(borders[at])
        cuts.append(stop)
    return cuts


def _labelled(reader: RowReader, chunks: Iterator[FileRows]) -> Iterator[FileRows]:
    """Rows that have a label; a warning says how many have none, if they are to be dropped."""
    n = n_dropped = 0
    for chunk in chunks:
        n += len(chunk)
        if reader.unlabelled == "drop" and chunk.target is not None:
            missing = np.isnan(chunk.target)
            if missing.any():
                n_dropped += int(missing.sum())
                kept, place = np.flatnonzero(~missing), chunk.place
                chunk = chunk[kept]
                chunk.place = partial(_place_of_kept, kept, place)
        if len(chunk):
            yield chunk
    if n_dropped:
        if n_dropped == n:
            raise ValueError(f"{reader.file}: no row has a label")
        warn(f"{reader.file}: {n_dropped} of {n} rows have no label, and are left out")


def _place_of_kept(kept: Array, place: Callable[[int], str], row: int) -> str:
    return place(int(kept[row]))


class _EndedQueries:
    """Which queries have been read."""

    def __init__(self) -> None:
        self._seen: set[Any] = set()
        self._last: Any = None

    def starts(self, chunk: FileRows) -> Array:
        """Rows that begin a query; a query that was there before is an error."""
        labels: Any = chunk.qid
        new = np.append(labels[0] != self._last, labels[1:] != labels[:-1]).astype(bool)
        starts = np.flatnonzero(new)
        for row, label in zip(starts.tolist(), labels[starts].tolist(), strict=True):
            if label in self._seen:
                which = shown(label) if isinstance(label, str) else label
                raise ValueError(
                    f"{chunk.place(row)}: query {which} comes back after another query; sort the "
                    "rows by query, or read all of them at once (load_ranking; --in-memory)"
                )
            self._seen.add(label)
        self._last = labels[-1]
        return starts
