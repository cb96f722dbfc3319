"""Rows on the workers, in parts that hold whole queries.

Each partition reports its queries, from y and qid; X is not read. When X is read, the rows of a
query that lies in several partitions are brought together on one worker, and all other rows stay
where they are. The results of all parts are combined in a tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array

from rankrls._calls import warn
from rankrls._frames import clear_errors
from rankrls._validation import encode_qid
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.dask._partitions import Partitions
from rankrls.dask._tasks import Tasks
from rankrls.estimators.ranker import canonical
from rankrls.estimators.seen_queries import SeenQueries
from rankrls.estimators.stream import as_slice, stacked

__all__ = ["DistributedRows", "Loader"]

Array = NDArray[Any]

#: Maximum bytes of the rows that are brought together on one worker.
MAX_MOVED_BYTES = 4 * 2**30

#: More pieces than this moving between workers indicate rows in random order.
MANY_PIECES = 50_000


@dataclass(frozen=True)
class Loader:
    """Check and convert the blocks of one partition of X.

    Attributes
    ----------
    number : int
        Index of the partition, for messages.
    dtype : float32 or float64
    n_features : int
    n_rows : int or None
        Expected number of rows, if known.
    """

    number: int
    dtype: Any
    n_features: int
    n_rows: int | None = None

    @np.errstate(over="ignore", invalid="ignore")
    def __call__(self, blocks: list[Any]) -> Any:
        """Return a finite ndarray or CSR matrix of shape (m, n)."""
        X = blocks[0]
        if len(blocks) > 1:
            X = (sparse.hstack if any(map(sparse.issparse, blocks)) else np.hstack)(blocks)
        name = f"partition {self.number} of X"
        try:
            with clear_errors(X, name, filled="as by X.fillna(0)"):
                X = check_array(
                    X, accept_sparse=("csr", "csc"), dtype=self.dtype, ensure_min_samples=0
                )
        except (ValueError, TypeError) as error:
            text = str(error)
            raise ValueError(text if name in text else f"{name}: {text}") from error
        if X.shape[1] != self.n_features:
            raise ValueError(f"{name} has {X.shape[1]} columns, not {self.n_features}")
        if self.n_rows is not None and X.shape[0] != self.n_rows:
            raise _unequal(self.number, X.shape[0], "X", self.n_rows, "y")
        return canonical(X, dense=False)


def _unequal(number: int, n: int, one: str, m: int, other: str) -> ValueError:
    return ValueError(
        f"partition {number} has {n} rows of {one} and {m} of {other}: X, y and qid must be cut "
        "alike"
    )


class DistributedRows:
    """Training rows, with every query whole in one part; without qid, a part is a partition.

    Parameters
    ----------
    X : Partitions
    dtype : float32 or float64
    n_features : int
    y : Partitions
    qid, weight : Partitions or None, with the partitions of y

    Attributes
    ----------
    keys : list
        Keys of the `PreferenceGraph` of each partition, kept on the workers.
    lengths : list of int
        Number of rows of each partition.
    n_queries, n_crossing, n_outputs, n_weighted : int
    """

    def __init__(
        self,
        X: Partitions,
        dtype: Any,
        n_features: int,
        y: Partitions,
        qid: Partitions | None,
        weight: Partitions | None,
    ) -> None:
        self.X, self.dtype, self.n_features = X, dtype, n_features
        self.with_qid, self.weighted = qid is not None, weight is not None
        tasks = Tasks(*(part.graph for part in (y, qid, weight) if part is not None))
        self.keys = [
            tasks.add(
                "preferences",
                partial(_preferences, i),
                y.blocks[i],
                None if qid is None else qid.blocks[i],
                None if weight is None else weight.blocks[i],
            )
            for i in range(len(y))
        ]
        self.graph = tasks.persist(self.keys)
        tasks = Tasks(self.graph)
        census = tasks.compute([tasks.add("census", _census, key) for key in self.keys])
        self.lengths = [one[0] for one in census]
        for i, (n, m) in enumerate(zip(X.lengths or (), self.lengths, strict=False)):
            if n != m:
                raise _unequal(i, n, "X", m, "y")
        self.n_rows, self.n_outputs = sum(self.lengths), census[0][1]
        self.n_weighted = sum(one[2] for one in census)
        self.used = [i for i, n in enumerate(self.lengths) if n]
        self.loaders = [Loader(i, dtype, n_features, n) for i, n in enumerate(self.lengths)]
        counts = [census[i][4] for i in self.used]
        sizes = [len(part) for part in counts]
        labels = _join([census[i][3] for i in self.used]) if self.with_qid else None
        queries = encode_qid(labels, sum(sizes))
        codes, rows = queries.codes, np.concatenate(counts)
        self.labels, self.n_queries = queries.labels, len(queries.labels)
        if qid is not None and isinstance(qid.labels, np.ndarray):
            self.labels = qid.labels[queries.labels]
        elif qid is not None and qid.labels is not None:
            self.labels = [qid.labels[number] for number in queries.labels]
        self.sizes = np.bincount(codes, rows).astype(np.int64)
        self.codes = np.split(codes, np.cumsum(sizes)[:-1])
        # Most rows of a query stay in place; of equal numbers, each partition is chosen in turn.
        place = np.repeat(np.arange(len(sizes)), sizes)
        order = np.lexsort([(place - codes) % len(sizes), -rows, codes])
        first = order[np.append(True, np.diff(codes[order]) > 0)]
        crosses = np.bincount(codes) > 1
        self._group = np.where(crosses & self.with_qid, place[first], -1)
        self.n_crossing = int(crosses.sum())

    def seen(self) -> SeenQueries:
        """Return the record of the training queries, for a model that continues to learn."""
        seen = SeenQueries()
        seen.weighted = self.weighted
        if self.with_qid:
            seen.add(self.labels, self.sizes)
        else:
            seen.rankings.append((self.n_rows, 0))
        return seen

    def tasks(self) -> Tasks:
        """Return a graph of all rows, to which `parts` adds tasks."""
        return Tasks(self.X.graph, self.graph)

    def parts(self, tasks: Tasks, work: Callable[..., Any], *extras: Any) -> list[Any]:
        """Add ``work(X, graph, query, *extras)`` of all parts; returns the keys of the results.

        The arguments are rows of whole queries, their `PreferenceGraph`, the number of the query of
        each row, shape (m,), and ``extras``, which are given as keys.
        """
        group = self._group
        moves = group >= 0
        most = int(np.bincount(group[moves], self.sizes[moves]).max(initial=0))
        if most * self.n_features * 8 > MAX_MOVED_BYTES:
            raise ValueError(
                f"{most:,} rows of queries that lie in several partitions would have to come "
                f"together on one worker ({most * self.n_features * 8 / 2**30:.1f} GiB): sort or "
                "shuffle the rows by qid into smaller partitions"
            )
        results = []
        pieces: dict[int, list[Any]] = {int(g): [] for g in np.unique(group[moves])}
        for i, codes in zip(self.used, self.codes, strict=True):
            to = group[codes]
            split = partial(_split, self.loaders[i], codes, to, work)
            key = tasks.add("rows", split, self.X.blocks[i], self.keys[i], *extras)
            if (to < 0).any():
                results.append(tasks.add("stay", itemgetter(-1), key))
            for g in np.unique(to[to >= 0]).tolist():
                pieces[g].append(tasks.add("piece", itemgetter(g), key))
        n_pieces = sum(map(len, pieces.values()))
        if n_pieces > MANY_PIECES:
            warn(
                f"{self.n_crossing:,} queries are spread over several partitions, so that "
                f"{n_pieces:,} pieces must move between workers: shuffle or sort the rows by qid "
                "first (the result is the same)",
            )
        together = partial(_together, work)
        return results + [tasks.add("together", together, p, *extras) for p in pieces.values()]

    def take(self, indices: Array) -> Any:
        """Return rows of X by index, gathered on the client, shape (r, n)."""
        tasks = self.tasks()
        borders = np.cumsum([0, *self.lengths])
        place = np.searchsorted(borders, indices, side="right") - 1
        found, order = [], []
        for i in np.unique(place):
            mine = np.flatnonzero(place == i)
            take = partial(_take, self.loaders[i], indices[mine] - borders[i])
            found.append(tasks.add("rows", take, self.X.blocks[i]))
            order.append(mine)
        return stacked(tasks.compute(found))[np.argsort(np.concatenate(order))]

    def require(self, varied: Array) -> None:
        """Raise an error unless every output has a preference, according to ``varied``."""
        if varied.all():
            return
        if self.weighted and self.n_weighted < 2:
            problem = "sample_weight is zero for every row, or all but one"
        elif varied.any():
            constant = np.flatnonzero(~varied)[0]
            problem = f"all labels of a query are equal in output (column) {constant} of y"
        else:
            problem = (
                f"in {self.n_rows} rows and {self.n_queries} queries, all labels of a query are "
                "equal, or it has a single row"
            )
        raise ValueError(f"no query has a pair to learn from: {problem}")


# -- on the workers ---------------------------------------------------------------------------

#: Rows X, their scores, numbers of their queries, and weights.
Piece = tuple[Any, Array, Array, Array | None]


def _preferences(
    number: int, y: list[Any], qid: list[Any] | None, weight: list[Any] | None
) -> PreferenceGraph:
    """Return the preferences of one partition."""
    s = _columns(y)
    for name, blocks in (("qid", qid), ("sample_weight", weight)):
        if blocks is not None and len(blocks[0]) != len(s):
            raise _unequal(number, len(s), "y", len(blocks[0]), name)
    try:
        return PreferenceGraph.from_scores(
            s,
            qid=None if qid is None else _columns(qid[:1]),
            sample_weight=None if weight is None else _columns(weight),
        )
    except ValueError as error:
        raise ValueError(f"partition {number}: {error}") from error


def _columns(blocks: list[Any]) -> Array:
    arrays = [np.asarray(b.to_numpy() if hasattr(b, "to_numpy") else b) for b in blocks]
    return arrays[0] if len(arrays) == 1 else np.hstack(arrays)


def _census(graph: PreferenceGraph) -> tuple[int, int, int, Any, Array]:
    """Numbers of rows, outputs and rows with weight; queries and their numbers of rows."""
    weight = graph.sample_weight
    n_weighted = graph.n_rows if weight is None else int(np.count_nonzero(weight))
    codes = np.empty(0, dtype=np.int64) if graph.query_codes is None else graph.query_codes
    return graph.n_rows, graph.n_outputs, n_weighted, graph.query_labels, np.bincount(codes)


def _split(
    load: Loader,
    number: Array,
    to: Array,
    work: Callable[..., Any],
    blocks: list[Any],
    graph: PreferenceGraph,
    *extras: Any,
) -> dict[int, Any]:
    """Return the rows of one partition that move, by group, and under −1 the result of the others.

    ``number`` and ``to``, of shape (n_queries,), give for every query of the partition its number
    among all queries, and the group to which it moves, or −1.
    """
    X, codes, y, weight = load(blocks), graph.query_codes, graph.scores, graph.sample_weight
    assert codes is not None
    assert y is not None
    found: dict[int, Any] = {}
    for g in np.unique(to).tolist():
        rows = as_slice(np.flatnonzero(to[codes] == g))
        query = number[codes[rows]]
        piece = X[rows], y[rows], query, None if weight is None else weight[rows]
        found[g] = piece if g >= 0 else _together(work, [piece], *extras)
    return found


def _take(load: Loader, indices: Array, blocks: list[Any]) -> Any:
    return load(blocks)[indices]


@np.errstate(over="ignore", invalid="ignore")  # the solver rejects overflow
def _together(work: Callable[..., Any], pieces: list[Piece], *extras: Any) -> Any:
    """Return the result of rows of whole queries, which may come from several partitions."""
    X, y, query, weight = zip(*pieces, strict=True)
    queries, w = np.concatenate(query), None if weight[0] is None else np.concatenate(weight)
    graph = PreferenceGraph.from_scores(np.concatenate(y), qid=queries, sample_weight=w)
    return work(stacked(X), graph, queries, *extras)


def _join(labels: list[Any]) -> Array:
    """Return all labels in one array that preserves types, which `encode_qid` compares."""
    kinds = {part.dtype.kind if isinstance(part, np.ndarray) else "O" for part in labels}
    if len(kinds) == 1 and kinds != {"O"}:
        return np.concatenate(labels)
    values = [label for part in labels for label in (
        part.tolist() if isinstance(part, np.ndarray) else part)]  # fmt: skip
    joined = np.empty(len(values), dtype=object)
    joined[:] = values
    return joined
