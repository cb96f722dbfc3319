"""Conversion of Dask collections and local arrays to partitions, blocks of rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import Delayed
from numpy.typing import NDArray
from scipy import sparse

import dask
from rankrls._frames import is_id_name, refuse_dates
from rankrls._validation import check_scores, check_weights, encode_qid, show
from rankrls.dask._tasks import compute, layer, local

__all__ = ["Partitions", "features", "is_frame", "is_lazy", "like", "preferences"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Partitions:
    """Blocks of rows; their numbers, if known; labels of the codes of a qid that was in memory."""

    blocks: list[Delayed]
    lengths: list[int] | None
    labels: Any = None

    def __len__(self) -> int:
        return len(self.blocks)

    @cached_property
    def counted(self) -> list[int]:
        """Number of rows of each partition, counted once if unknown."""
        if self.lengths is not None:
            return self.lengths
        shapes = layer("shape", [(attrgetter("shape"), block) for block in self.blocks])
        return [int(shape[0]) for shape in compute(shapes)]


def is_lazy(values: Any) -> bool:
    """Return whether this is a Dask array, data frame or series."""
    return isinstance(values, da.Array) or is_frame(values)


def is_frame(values: Any) -> bool:
    """Return whether this is a Dask data frame or series (without importing them)."""
    return dask.is_dask_collection(values) and hasattr(values, "divisions")


def like(X: Any) -> Any:
    """Return a tiny local array or frame with the columns of X, for scikit-learn's checks."""
    refuse_dates(X._meta)
    if is_frame(X) and X.ndim == 2:
        return type(X._meta)(np.zeros((1, len(X.columns))), columns=X.columns)
    return X._meta_nonempty if is_frame(X) else np.zeros((1, X.shape[1]))


def columns_named_as_ids(X: Any) -> list[int]:
    """Return the indices of integer columns of a data frame that are named like ids."""
    if not is_frame(X):
        return []
    kinds = enumerate(zip(X.columns, X.dtypes, strict=True))
    return [j for j, (name, kind) in kinds if kind.kind in "iu" and is_id_name(name)]


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
    """Return y, qid and sample_weight in the partitions of X, and whether y is a vector."""
    if y is None:
        raise ValueError("ranking requires y to be passed, but the target y is None: give scores y")
    flat = y.ndim == 1 if is_lazy(y) else check_scores(y).ndim == 1
    targets = _beside("y", y, X, rows)
    queries = None if qid is None else _beside("qid", qid, X, rows)
    weight = None if sample_weight is None else _beside("sample_weight", sample_weight, X, rows)
    return targets, queries, weight, flat


def _beside(name: str, values: Any, X: Any, rows: Partitions) -> Partitions:
    """Partition ``values`` like X."""
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
    source = _source(values)
    if len(source) == len(rows) and (source.lengths is None or rows.lengths is None):
        return source
    # Arrays made from the columns of one file can have different partitions of unknown lengths.
    array = values.to_dask_array() if is_frame(values) else values
    source = _source(array)
    n = sum(source.counted)
    if n != sum(rows.counted):
        raise ValueError(f"{name} has {n} entries for {sum(rows.counted)} rows of X")
    chunks = (tuple(source.counted), *array.chunks[1:])
    array = da.Array(array.dask, array.name, chunks, meta=array._meta)
    return _source(array.rechunk({0: tuple(rows.counted)}))


def _cut(name: str, values: Any, rows: Partitions) -> Partitions:
    """Partition a local array like X."""
    lengths = rows.counted
    m = sum(lengths)
    labels = None
    if name == "y":
        array = check_scores(values, m)
    elif name == "qid":
        queries = encode_qid(values, m)
        array, labels = queries.codes, queries.labels
    else:
        array = check_weights(name, values, m)
    pieces = np.split(array, np.cumsum(lengths)[:-1])
    return Partitions(local(pieces), lengths, labels)


def _source(collection: Any) -> Partitions:
    if is_frame(collection):
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
