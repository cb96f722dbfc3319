"""Rows on the workers: layers of Dask tasks, partitions, and parts that hold whole queries."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array

import dask
from rankrls._frames import clear_errors, refuse_dates
from rankrls._validation import check_length, check_scores, encode_qid, label_array, show
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.estimators.incremental import as_slice
from rankrls.estimators.ranker import canonical
from rankrls.estimators.stream import stacked

Array = NDArray[Any]

#: Number of results that one task of a tree reduction combines.
FAN_IN = 8

#: Maximum bytes of the rows that are brought together on one worker.
MAX_MOVED_BYTES = 4 * 2**30


# -- tasks --------------------------------------------------------------------------------------


def layer(name: str, calls: Iterable[tuple[Any, ...]], tail: tuple[int, ...] = ()) -> list[Delayed]:
    """Return the results of calls (function, argument, …) with keys (name, number, *tail).

    Arguments are `Delayed`, lists of them, or None. Other values are bound to the function by
    `functools.partial`, where Dask does not search for keys. (Made one by one, `Delayed` objects
    take a millisecond each.)
    """
    name = f"rankrls-{name}-{uuid.uuid4().hex}"
    used: dict[int, Delayed] = {}  # one of each graph, which it keeps alive

    def key(argument: Any) -> Any:
        if isinstance(argument, list):
            return [key(one) for one in argument]
        if argument is None:
            return None
        used[id(argument.dask)] = argument  # not a leaf, whose graph is made at each access
        return argument.key

    tasks = {
        (name, i, *tail): (function, *map(key, arguments))
        for i, (function, *arguments) in enumerate(calls)
    }
    graph = HighLevelGraph.from_collections(name, tasks, list(used.values()))
    return [Delayed(task, graph, layer=name) for task in tasks]


def _local(values: Iterable[Any]) -> list[Delayed]:
    return layer("local", [(partial(_same, value),) for value in values])


def shared(value: Any) -> Delayed | None:
    """Return a value used by many tasks, so that it is sent once; None stays."""
    return None if value is None else _local([value])[0]


def _same(value: Any) -> Any:
    return value


def tree(name: str, function: Callable[[list[Any]], Any], parts: Sequence[Delayed]) -> Delayed:
    """Reduce results in a tree with a function of a list of at most `FAN_IN` results."""
    while len(parts) > 1:
        groups = (list(parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN))
        parts = layer(name, [(function, group) for group in groups])
    return parts[0]


def compute(parts: Iterable[Delayed]) -> list[Any]:
    """Return results, without Dask's warning about vectors or basis rows in the graph."""
    with suppress(ImportError):
        import distributed  # noqa: F401 (it must read its defaults before one of them is set)
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
        return list(dask.compute(*parts))


# -- partitions ---------------------------------------------------------------------------------


class Partitions(NamedTuple):
    """Blocks of rows, and their numbers if known."""

    blocks: list[Delayed]
    lengths: list[int] | None

    def counted(self) -> list[int]:
        """Number of rows of each partition, counted if unknown."""
        if self.lengths is not None:
            return self.lengths
        shapes = layer("shape", [(attrgetter("shape"), block) for block in self.blocks])
        return [int(shape[0]) for shape in compute(shapes)]


def is_lazy(values: Any) -> bool:
    """Return whether this is a Dask array, data frame or series."""
    return isinstance(values, da.Array) or _is_frame(values)


def _is_frame(values: Any) -> bool:
    return dask.is_dask_collection(values) and hasattr(values, "divisions")


def like(X: Any) -> Any:
    """Return a tiny local array or frame with the columns of X, for scikit-learn's checks."""
    refuse_dates(X._meta)
    if _is_frame(X) and X.ndim == 2:
        return type(X._meta)(np.zeros((1, len(X.columns))), columns=X.columns)
    return X._meta_nonempty if _is_frame(X) else np.zeros((1, X.shape[1]))


def features(X: Any) -> tuple[Partitions, np.dtype[Any]]:
    """Return the blocks of X and their dtype: float32 if all are float32, otherwise float64."""
    if not is_lazy(X):
        raise ValueError(
            f"X must be a Dask array or data frame; got {show(X)}. For rows in memory use "
            "rankrls.RankRLS; a pipeline with a scaler gathers X in memory, and "
            "rankrls.dask.fit(pipeline, X, y, qid=qid) does not"
        )
    if X.ndim != 2:
        raise ValueError(f"X must be 2-D; got {X.ndim}-D")
    if isinstance(X, da.Array) and not np.isfinite(X.shape[1]):
        raise ValueError("X has an unknown number of columns: call X.compute_chunk_sizes()")
    kinds = set(X.dtypes) if _is_frame(X) else {X.dtype}
    return _partitions(X), np.dtype(np.float32 if kinds == {np.dtype("f4")} else np.float64)


def beside(name: str, values: Any, X: Any, rows: Partitions) -> Partitions | None:
    """Return y, qid or sample_weight in the partitions ``rows`` of X; None stays."""
    if values is None:
        return None
    if not is_lazy(values):
        lengths = rows.counted()
        values = label_array(name, values) if name == "qid" else np.asarray(values)
        check_length(name, values, sum(lengths))
        return Partitions(_local(np.split(values, np.cumsum(lengths)[:-1])), lengths)
    if _is_frame(X) and _is_frame(values):
        known = X.known_divisions and values.known_divisions
        if known and tuple(X.divisions) != tuple(values.divisions):
            raise ValueError(
                f"{name} and X have different divisions, so that their partitions hold different "
                f"rows: {name}.repartition(divisions=X.divisions) aligns them"
            )
    found = _partitions(values)
    if len(found.blocks) == len(rows.blocks) and (found.lengths is None or rows.lengths is None):
        return found
    # Arrays made from the columns of one file can have different partitions of unknown lengths.
    array = values.to_dask_array() if _is_frame(values) else values
    mine, lengths = _partitions(array).counted(), rows.counted()
    if sum(mine) != sum(lengths):
        raise ValueError(f"{name} has {sum(mine)} entries for {sum(lengths)} rows of X")
    array = da.Array(array.dask, array.name, (tuple(mine), *array.chunks[1:]), meta=array._meta)
    return _partitions(array.rechunk({0: tuple(lengths)}))


def _partitions(collection: Any) -> Partitions:
    if _is_frame(collection):
        # Read only the columns that are needed. Full optimisation would also merge partitions of
        # files if few columns are read, so that y would have fewer partitions than X.
        return Partitions(list(collection.simplify().to_delayed(optimize_graph=False)), None)
    lengths = None
    if np.isfinite(collection.shape[0]):
        lengths = [int(n) for n in collection.chunks[0]]
    # Graph optimisation loses results that are already on a cluster (futures).
    persisted = any(hasattr(task, "client") for task in collection.__dask_graph__().values())
    blocks = collection.to_delayed(optimize_graph=not persisted)
    if collection.ndim == 2 and collection.numblocks[1] > 1:
        return Partitions(layer("columns", [(_joined, list(row)) for row in blocks]), lengths)
    return Partitions(blocks.ravel().tolist(), lengths)


def _joined(blocks: list[Any]) -> Any:
    """Blocks of columns side by side; Dask itself does not join all kinds of sparse blocks."""
    return (sparse.hstack if any(map(sparse.issparse, blocks)) else np.hstack)(blocks)


# -- whole queries ------------------------------------------------------------------------------


class DistributedRows:
    """Training rows, with every query whole in one part; without qid, a part is a partition.

    ``X`` and ``graphs`` (`PreferenceGraph`, kept on the workers) are lists of the partitions that
    have rows, ``lengths`` are the numbers of rows of all.
    """

    def __init__(self, X: Any, y: Any, qid: Any, weight: Any) -> None:
        if y is None:
            raise ValueError("ranking requires y to be passed, but the target y is None")
        self.flat = (y if is_lazy(y) else check_scores(y)).ndim == 1
        rows, self.dtype = features(X)
        self.n_features, self.has_qid = int(X.shape[1]), qid is not None
        given = [
            beside(*one, X, rows) for one in (("y", y), ("qid", qid), ("sample_weight", weight))
        ]
        self.weighted = given[2] is not None
        n = len(rows.blocks)
        columns = [[None] * n if part is None else part.blocks for part in given]
        calls = [(partial(_graph, i), *parts) for i, parts in enumerate(zip(*columns, strict=True))]
        graphs = dask.persist(*layer("graph", calls))
        # Numbers of rows and outputs, query ids, and their numbers of rows.
        counts = compute(layer("count", [(_counts, graph) for graph in graphs]))
        self.lengths, self.n_outputs = [one[0] for one in counts], counts[0][1]
        self.n_rows = sum(self.lengths)
        for i, (wanted, found) in enumerate(zip(rows.lengths or (), self.lengths, strict=False)):
            if wanted != found:
                raise _unequal(i, wanted, "X", found, "y")
        used = [i for i, length in enumerate(self.lengths) if length]
        self.graphs = [graphs[i] for i in used]
        shape = self.dtype, self.n_features
        calls = [(partial(load, i, *shape, self.lengths[i]), rows.blocks[i]) for i in used]
        self.X = layer("X", calls)
        queries = [counts[i][2] for i in used]
        sizes, labels = np.array(list(map(len, queries))), [one for some in queries for one in some]
        coded = encode_qid(labels if self.has_qid else None, int(sizes.sum()))
        codes, per_query = coded.codes, np.concatenate([counts[i][3] for i in used])
        self.labels, self.n_queries = coded.labels, len(coded)
        self.sizes = np.bincount(codes, per_query).astype(np.int64)
        self.codes = np.split(codes, np.cumsum(sizes)[:-1])
        # A query that lies in several partitions moves to the one that has most of its rows; of
        # equal numbers, each partition is chosen in turn.
        place = np.repeat(np.arange(len(sizes)), sizes)
        order = np.lexsort([(place - codes) % len(sizes), -per_query, codes])
        first = order[np.append(True, np.diff(codes[order]) > 0)]
        crosses = (np.bincount(codes) > 1) & self.has_qid
        self.n_crossing, self._group = int(crosses.sum()), np.where(crosses, place[first], -1)

    def parts(self, work: Callable[..., Any], *extras: Delayed | None) -> list[Delayed]:
        """Return ``work(X, graph, query, *extras)`` of parts of the rows.

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
        all_parts = zip(self.codes, to, self.X, self.graphs, strict=True)
        splits = layer(
            "split", [(partial(_split, c, t, work), *xg, *extras) for c, t, *xg in all_parts]
        )
        found = [(g, k) for k, where in enumerate(to) for g in np.unique(where).tolist()]
        taken = layer("piece", [(itemgetter(g), splits[k]) for g, k in found])
        pieces: dict[int, list[Delayed]] = {-1: []}
        for (g, _), piece in zip(found, taken, strict=True):
            pieces.setdefault(g, []).append(piece)
        stay, together = pieces.pop(-1), partial(_together, work)
        return stay + layer("together", [(together, some, *extras) for some in pieces.values()])

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


# -- on the workers -----------------------------------------------------------------------------

#: Rows X, their scores, numbers of their queries, and weights.
Piece = tuple[Any, Array, Array, Array | None]


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


def _graph(number: int, y: Any, qid: Any, weight: Any) -> PreferenceGraph:
    """Return the preferences of one partition."""
    y, qid, weight = (None if v is None else np.asarray(v) for v in (y, qid, weight))
    for name, values in (("qid", qid), ("sample_weight", weight)):
        if values is not None and len(values) != len(y):
            raise _unequal(number, len(y), "y", len(values), name)
    try:
        return PreferenceGraph.from_scores(y, qid=qid, sample_weight=weight)
    except ValueError as error:
        raise ValueError(f"partition {number}: {error}") from error


def _counts(graph: PreferenceGraph) -> tuple[int, int, list[Any], Array]:
    codes = np.empty(0, dtype=np.int64) if graph.query_codes is None else graph.query_codes
    labels: Any = graph.query_labels
    labels = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    return graph.n_rows, graph.n_outputs, labels, np.bincount(codes)


def _split(
    number: Array, to: Array, work: Callable[..., Any], X: Any, graph: PreferenceGraph, *extras: Any
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
