"""Rows of any file: the chunks that readers yield, and batches of whole queries made of them."""

from __future__ import annotations

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
from rankrls._validation import as_text, check_integer, check_option
from rankrls.datasets.formats import integers_of, require_loadable, shown

Array = NDArray[Any]


@dataclass
class FileRows:
    """Consecutive rows of a file."""

    data: Any
    target: Array | None = None
    qid: Array | None = None
    sample_weight: Array | None = None
    text: Array | None = None
    comments: Array | None = None
    place: Callable[[int], str] = "row {}".format

    def __len__(self) -> int:
        return self.data.shape[0]

    def arrays(self) -> dict[str, Any]:
        """What there is, by name."""
        values = {name: value for name, value in vars(self).items() if name != "place"}
        return {name: value for name, value in values.items() if value is not None}

    def __getitem__(self, rows: Any) -> FileRows:
        return FileRows(**{name: value[rows] for name, value in self.arrays().items()})

    @property
    def n_bytes(self) -> int:
        """Memory of the arrays, without that of objects in them."""
        values = list(self.arrays().values())
        if sp.issparse(self.data):
            values[:1] = [self.data.data, self.data.indices, self.data.indptr]
        return sum(value.nbytes for value in values)


class RowReader:
    """Rows of one data set, in one file or several; ``file`` is how errors call it.

    ``chunks(rows)`` yields all rows, not many more than ``rows`` at a time and none of them empty;
    ``bunch(chunk)`` is what the user gets for them. ``spelled``: whether query ids are text.
    """

    nothing = "there are no rows"
    chunks: Callable[[float], Iterator[FileRows]]
    bunch: Callable[[FileRows], Bunch]

    def __init__(self, file: str, spelled: bool, options: dict[str, Any]) -> None:
        self.file, self.dtype = file, np.dtype(options["dtype"])
        self._integers = None if spelled else False  # are query ids? The first batch decides
        if self.dtype not in (np.float32, np.float64):
            raise ValueError(
                f"dtype must be numpy.float64 or numpy.float32; got {options['dtype']!r}"
            )
        self.keep_missing = check_option("missing", options["missing"], ("error", "nan")) == "nan"
        unlabelled = check_option("unlabelled", options["unlabelled"], ("error", "drop"))
        self.drop_unlabelled = unlabelled == "drop"  # rows whose target is NaN

    def prepare_batches(self) -> None:
        """Find out what all rows must tell before the first batch."""

    def query_ids(self, labels: Array | None) -> Array | None:
        """The ids of a batch: 64-bit integers if all of the first batch are written so."""
        if labels is None or labels.dtype != object:
            return labels
        words = labels.tolist()
        numbers = {} if self._integers is False else integers_of(words)
        wrong = [word for word, number in numbers.items() if number is None]
        if self._integers and wrong:
            raise ValueError(
                f"{self.file}: query id {shown(wrong[0])} is no 64-bit integer, written as those "
                "of the first batch; read all rows at once (load_ranking; --in-memory), which "
                "looks at all ids before it decides"
            )
        self._integers = self._integers is not False and not wrong
        if not self._integers:
            return as_text(words)
        return np.array([numbers[word] for word in words], dtype=np.int64)


def load(reader: RowReader) -> Bunch:
    """All rows at once."""
    return next(_batches(reader, np.inf, by_query=False))


def iterate(reader: RowReader, rows: int, *, by_query: bool) -> Iterator[Bunch]:
    """Batches of at most ``rows`` rows, cut between queries if there are any."""
    rows = check_integer("rows", rows, least=1)
    reader.prepare_batches()
    return _batches(reader, rows, by_query=by_query)


def _batches(reader: RowReader, rows: float, *, by_query: bool) -> Iterator[Bunch]:
    seen: set[Any] = set()  # queries that have begun
    instead = "fewer rows" if rows < np.inf else "iter_ranking"
    waiting: list[FileRows] = []
    borders = np.zeros(0, dtype=np.int64)  # the waiting rows that begin a query
    last, n, n_bytes = None, 0, 0
    for chunk in _labelled(reader, rows):
        whole_queries = by_query and chunk.qid is not None
        if whole_queries:
            borders = np.append(borders, _begins(chunk, last, seen) + n)
            last, instead = chunk.qid[-1], "by_query=False"  # type: ignore[index]
        n, n_bytes = n + len(chunk), n_bytes + chunk.n_bytes
        waiting.append(chunk)
        require_loadable(partial(chunk.place, len(chunk) - 1), n_bytes, instead)
        chunk.place = FileRows.place  # which may hold the text of the chunk
        if n < rows:
            continue
        cuts = _cuts(borders if whole_queries else None, n, int(rows))
        if len(cuts) == 1:
            continue  # a query may go on
        whole, done = _joined(waiting), cuts[-1]
        waiting.clear()
        for start, stop in pairwise(cuts):
            yield reader.bunch(whole[start:stop])
        waiting.append(whole[np.arange(done, n)])  # a copy, so that the others can be freed
        n, n_bytes, borders = n - done, waiting[0].n_bytes, borders[borders >= done] - done
        del whole
    if not waiting:
        raise ValueError(f"{reader.file}: no data: {reader.nothing}")
    whole = _joined(waiting)
    waiting.clear()
    if len(whole):
        yield reader.bunch(whole)


def _joined(parts: list[FileRows]) -> FileRows:
    if len(parts) == 1:
        return parts[0]
    columns = {name: [getattr(part, name) for part in parts] for name in parts[0].arrays()}
    if sp.issparse(parts[0].data):
        columns["data"] = [sp.csr_array(sp.vstack(columns["data"], format="csr"))]
    whole: dict[str, Any] = {name: values[0] if len(values) == 1 else np.concatenate(values)
                             for name, values in columns.items()}  # fmt: skip
    return FileRows(**whole)


def _begins(chunk: FileRows, last: Any, seen: set[Any]) -> Array:
    """Rows that begin a query; a query that was there before is an error."""
    labels: Any = chunk.qid
    starts = np.flatnonzero(np.append(labels[0] != last, labels[1:] != labels[:-1]))
    for row, label in zip(starts.tolist(), labels[starts].tolist(), strict=True):
        if label in seen:
            which = shown(label) if isinstance(label, str) else label
            raise ValueError(
                f"{chunk.place(row)}: query {which} comes back after another query; sort the rows "
                "by query, or read all of them at once (load_ranking; --in-memory)"
            )
        seen.add(label)
    return starts


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


def _labelled(reader: RowReader, rows: float) -> Iterator[FileRows]:
    """Rows that have a label; a warning says how many have none, if they are to be dropped."""
    n = n_dropped = 0
    for chunk in reader.chunks(rows):
        n += len(chunk)
        if reader.drop_unlabelled and chunk.target is not None:
            missing = np.isnan(chunk.target)
            if missing.any():
                n_dropped += int(missing.sum())
                kept, place = np.flatnonzero(~missing), chunk.place
                chunk = chunk[kept]
                chunk.place = partial(lambda place, kept, row: place(kept[row]), place, kept)
        if len(chunk):
            yield chunk
    if n_dropped:
        if n_dropped == n:
            raise ValueError(f"{reader.file}: no row has a label")
        warn(f"{reader.file}: {n_dropped} of {n} rows have no label, and are left out")
