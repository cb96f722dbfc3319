"""From Dask collections, and plain arrays beside them, to blocks of rows: one list a partition."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from rankrls._validation import check_scores, check_weights, encode_qid, show
from rankrls.dask._tasks import Tasks, give

__all__ = ["Partitions", "features", "is_frame", "is_lazy", "like", "preferences"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Partitions:
    """Rows in partitions.

    Attributes
    ----------
    graph : dict
        The task graph of the blocks.
    blocks : list of list of keys
        For every partition its blocks of columns.
    lengths : list of int, or None
        Rows of every partition, if they are known.
    """

    graph: dict[Any, Any]
    blocks: list[list[Any]]
    lengths: list[int] | None

    def __len__(self) -> int:
        return len(self.blocks)

    def require_lengths(self) -> list[int]:
        """Rows of every partition, counted if they are not known."""
        if self.lengths is not None:
            return self.lengths
        tasks = Tasks(self.graph)
        return tasks.compute([tasks.add("length", _length, block[0]) for block in self.blocks])


def is_lazy(values: Any) -> bool:
    """Whether this is a Dask array, data frame or series."""
    return isinstance(values, da.Array) or is_frame(values)


def is_frame(values: Any) -> bool:
    """Whether this is a Dask data frame or series (without importing them)."""
    return dask.is_dask_collection(values) and hasattr(values, "divisions")


def like(X: Any) -> Any:
    """A tiny local stand-in for X, with its column names, for scikit-learn's checks."""
    return X._meta_nonempty if is_frame(X) else np.zeros((1, X.shape[1]))


def features(X: Any) -> tuple[Partitions, np.dtype[Any]]:
    """The blocks of X, and float32 if all of it is that, otherwise float64."""
    if not is_lazy(X):
        raise ValueError(
            f"X must be a Dask array or data frame; got {show(X)}. For rows in memory use "
            "rankrls.RankRLS"
        )
    if X.ndim != 2:
        raise ValueError(f"X must be 2-D; got {X.ndim}-D")
    if isinstance(X, da.Array) and not np.isfinite(X.shape[1]):
        raise ValueError(
            "X has an unknown number of columns: call X.compute_chunk_sizes(), or select the "
            "columns before you make an array of a data frame"
        )
    kinds = set(X.dtypes) if is_frame(X) else {X.dtype}
    single = all(kind == np.float32 for kind in kinds)
    return _source(X), np.dtype(np.float32 if single else np.float64)


def preferences(
    X: Any, rows: Partitions, y: Any, qid: Any, sample_weight: Any
) -> tuple[Partitions, Partitions | None, Partitions | None, bool]:
    """y, qid and sample_weight in the partitions of X, and whether y is a vector."""
    if y is None:
        raise ValueError("ranking requires y to be passed, but the target y is None: give scores y")
    flat = y.ndim == 1 if is_lazy(y) else check_scores(y).ndim == 1
    targets = _beside("y", y, X, rows)
    queries = None if qid is None else _beside("qid", qid, X, rows)
    weight = None if sample_weight is None else _beside("sample_weight", sample_weight, X, rows)
    return targets, queries, weight, flat


def _beside(name: str, values: Any, X: Any, rows: Partitions) -> Partitions:
    """Partition ``values`` as X is."""
    if not is_lazy(values):
        return _cut(name, values, rows)
    if values.ndim > 2:
        raise ValueError(f"{name} must be 1-D or 2-D; got {values.ndim}-D")
    if is_frame(X) and is_frame(values):
        known = X.known_divisions and values.known_divisions
        if known and tuple(X.divisions) != tuple(values.divisions):
            raise ValueError(
                f"{name} and X have different divisions, so that their partitions hold different "
                f"rows: {name}.repartition(divisions=X.divisions) aligns them"
            )
    elif isinstance(values, da.Array) and rows.lengths is not None:
        n = values.shape[0]
        if np.isfinite(n):
            if n != sum(rows.lengths):
                raise ValueError(f"{name} has {n} entries for {sum(rows.lengths)} rows of X")
            values = values.rechunk({0: tuple(rows.lengths)})
    source = _source(values)
    if len(source) != len(rows):
        raise ValueError(
            f"{name} has {len(source)} partitions and X has {len(rows)}, and as the lengths of "
            "partitions are not all known they cannot be aligned: take them from one data frame, "
            "or call compute_chunk_sizes() on the arrays"
        )
    return source


def _cut(name: str, values: Any, rows: Partitions) -> Partitions:
    """A local array, cut where X is."""
    lengths = rows.require_lengths()
    m = sum(lengths)
    if name == "y":
        array = check_scores(values, m)
    elif name == "qid":
        array = encode_qid(values, m).codes
    else:
        array = check_weights(name, values, m)
    pieces = np.split(array, np.cumsum(lengths)[:-1])
    token = f"rankrls-{name}-{uuid.uuid4().hex}"
    graph = {(token, i): (partial(give, piece),) for i, piece in enumerate(pieces)}
    return Partitions(graph, [[(token, i)] for i in range(len(pieces))], lengths)


def _source(collection: Any) -> Partitions:
    # Results that are on a cluster already (futures) get lost in the optimised graph.
    graph = {key: task for key, task in collection.__dask_graph__().items() if _is_future(task)}
    # The blocks as optimised Delayed objects; they share one graph (or a few).
    delayed = np.asarray(collection.to_delayed(), dtype=object)
    for part in {id(block.dask): block.dask for block in delayed.flat}.values():
        graph.update(part)
    blocks = [[block.key for block in row] for row in delayed.reshape(len(delayed), -1)]
    lengths = None
    if isinstance(collection, da.Array) and np.isfinite(collection.shape[0]):
        lengths = [int(n) for n in collection.chunks[0]]
    return Partitions(graph, blocks, lengths)


def _is_future(task: Any) -> bool:
    return hasattr(task, "key") and hasattr(task, "client")


def _length(block: Any) -> int:
    return int(block.shape[0])
