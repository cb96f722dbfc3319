"""Rows on the workers, in parts that hold whole queries; only rows of split queries move."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray
from sklearn.utils import check_array

import dask
from rankrls._calls import warn
from rankrls._frames import clear_errors
from rankrls._validation import encode_qid
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.dask._partitions import Partitions
from rankrls.dask._tasks import compute, layer
from rankrls.estimators.ranker import canonical
from rankrls.estimators.seen_queries import SeenQueries
from rankrls.estimators.stream import as_slice, stacked

__all__ = ["DistributedRows", "load"]

Array = NDArray[Any]

#: Maximum bytes of the rows that are brought together on one worker.
MAX_MOVED_BYTES = 4 * 2**30

#: More pieces than this moving between workers indicate rows in random order.
MANY_PIECES = 50_000


@np.errstate(over="ignore", invalid="ignore")
def load(number: int, dtype: Any, n_features: int, n_rows: int | None, X: Any) -> Any:
    """Check a partition of X; returns a finite ndarray or CSR matrix of shape (n_rows, n)."""
    name = f"partition {number} of X"
    try:
        with clear_errors(X, name, filled="as by X.fillna(0)"):
            X = check_array(X, accept_sparse=("csr", "csc"), dtype=dtype, ensure_min_samples=0)
    except (ValueError, TypeError) as error:
        text = str(error)
        raise ValueError(text if name in text else f"{name}: {text}") from error
    if X.shape[1] != n_features:
        raise ValueError(f"{name} has {X.shape[1]} columns, not {n_features}")
    if n_rows is not None and X.shape[0] != n_rows:
        raise _unequal(number, X.shape[0], "X", n_rows, "y")
    return canonical(X, dense=False)


def _unequal(number: int, n: int, one: str, m: int, other: str) -> ValueError:
    return ValueError(
        f"partition {number} has {n} rows of {one} and {m} of {other}: X, y and qid must be cut "
        "alike"
    )


class DistributedRows:
    """Training rows, with every query whole in one part; without qid, a part is a partition.

    ``X`` and ``graphs`` (`PreferenceGraph`, kept on the workers) are lists of the partitions that
    have rows, ``lengths`` are the numbers of rows of all.
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
        self.dtype, self.n_features = dtype, n_features
        self.with_qid, self.weighted = qid is not None, weight is not None
        none = [None] * len(y)
        blocks = zip(
            y.blocks, qid.blocks if qid else none, weight.blocks if weight else none, strict=True
        )
        calls = [(partial(_preferences, i), *three) for i, three in enumerate(blocks)]
        graphs = dask.persist(*layer("preferences", calls))
        census = compute(layer("census", [(_census, graph) for graph in graphs]))
        self.lengths = [one[0] for one in census]
        for i, (n, m) in enumerate(zip(X.lengths or (), self.lengths, strict=False)):
            if n != m:
                raise _unequal(i, n, "X", m, "y")
        self.n_rows, self.n_outputs = sum(self.lengths), census[0][1]
        self.n_weighted = sum(one[2] for one in census)
        used = [i for i, n in enumerate(self.lengths) if n]
        self.graphs = [graphs[i] for i in used]
        self.X = layer(
            "X", [(partial(load, i, dtype, n_features, self.lengths[i]), X.blocks[i]) for i in used]
        )
        sizes = [len(census[i][4]) for i in used]
        labels = _join([census[i][3] for i in used]) if self.with_qid else None
        queries = encode_qid(labels, sum(sizes))
        codes, rows = queries.codes, np.concatenate([census[i][4] for i in used])
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

    def parts(
        self, work: Callable[..., Any], *extras: Delayed | None
    ) -> tuple[list[Delayed], list[Delayed]]:
        """Return ``work(X, graph, query, *extras)`` of rows that stay, and of those that move.

        The arguments are rows of whole queries, their `PreferenceGraph`, the number of the query of
        each row, shape (m,), and ``extras``.
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
        to = [group[codes] for codes in self.codes]
        splits = layer(
            "split",
            [
                (partial(_split, codes, where, work), X, graph, *extras)
                for codes, where, X, graph in zip(self.codes, to, self.X, self.graphs, strict=True)
            ],
        )
        found = [(g, split) for split, where in zip(splits, to, strict=True)
                 for g in np.unique(where).tolist()]  # fmt: skip
        pieces: dict[int, list[Delayed]] = {}
        taken = layer("piece", [(itemgetter(g), split) for g, split in found])
        for (g, _), piece in zip(found, taken, strict=True):
            pieces.setdefault(g, []).append(piece)
        stay = pieces.pop(-1, [])
        n_pieces = sum(map(len, pieces.values()))
        if n_pieces > MANY_PIECES:
            warn(
                f"{self.n_crossing:,} queries are spread over several partitions, so that "
                f"{n_pieces:,} pieces must move between workers: shuffle or sort the rows by qid "
                "first (the result is the same)",
            )
        together = partial(_together, work)
        return stay, layer("together", [(together, some, *extras) for some in pieces.values()])

    def take(self, indices: Array) -> Any:
        """Return rows of X by index, gathered on the client, shape (r, n)."""
        borders = np.cumsum([0, *(n for n in self.lengths if n)])
        place = np.searchsorted(borders, indices, side="right") - 1
        order = [np.flatnonzero(place == i) for i in np.unique(place)]
        calls = [
            (partial(_take, indices[rows] - borders[i]), self.X[i])
            for i, rows in zip(np.unique(place), order, strict=True)
        ]
        return stacked(compute(layer("rows", calls)))[np.argsort(np.concatenate(order))]

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


def _preferences(number: int, y: Any, qid: Any, weight: Any) -> PreferenceGraph:
    """Return the preferences of one partition."""
    y, qid, weight = (None if v is None else np.asarray(v) for v in (y, qid, weight))
    for name, values in (("qid", qid), ("sample_weight", weight)):
        if values is not None and len(values) != len(y):
            raise _unequal(number, len(y), "y", len(values), name)
    try:
        return PreferenceGraph.from_scores(y, qid=qid, sample_weight=weight)
    except ValueError as error:
        raise ValueError(f"partition {number}: {error}") from error


def _census(graph: PreferenceGraph) -> tuple[int, int, int, Any, Array]:
    """Numbers of rows, outputs and rows with weight; queries and their numbers of rows."""
    weight = graph.sample_weight
    n_weighted = graph.n_rows if weight is None else int(np.count_nonzero(weight))
    codes = np.empty(0, dtype=np.int64) if graph.query_codes is None else graph.query_codes
    return graph.n_rows, graph.n_outputs, n_weighted, graph.query_labels, np.bincount(codes)


def _split(
    number: Array,
    to: Array,
    work: Callable[..., Any],
    X: Any,
    graph: PreferenceGraph,
    *extras: Any,
) -> dict[int, Any]:
    """Return the rows of one partition that move, by group, and under −1 the result of the others.

    ``number`` and ``to``, of shape (n_queries,), give for every query of the partition its number
    among all queries, and the group to which it moves, or −1.
    """
    codes, y, weight = graph.query_codes, graph.scores, graph.sample_weight
    assert codes is not None
    assert y is not None
    found: dict[int, Any] = {}
    for g in np.unique(to).tolist():
        rows = as_slice(np.flatnonzero(to[codes] == g))
        query = number[codes[rows]]
        piece = X[rows], y[rows], query, None if weight is None else weight[rows]
        found[g] = piece if g >= 0 else _together(work, [piece], *extras)
    return found


def _take(indices: Array, X: Any) -> Any:
    return X[indices]


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
