"""One ranking problem over the partitions of a cluster, solved by summing over partitions.

There are three rounds. None of them moves rows of X:

1. Each partition reports its queries (`Census`). This reads y and qid, but not X.
2. Partitions with queries that cross boundaries report counts (`Counts`), from which the client
   computes the `SharePlan`.
3. X is read. Each partition computes its share and sends the means of its fragments (condensed
   rows) to the workers that hold the buckets. The shares are summed in a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls._calls import warn
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.statistics import Statistics
from rankrls.core.spaces.spaces import Basis, Kernel
from rankrls.dask._census import Census, Counts, Crossing
from rankrls.dask._partitions import Partitions
from rankrls.dask._parts import SharePlan
from rankrls.dask._scaling import Scaling
from rankrls.dask._tasks import Tasks
from rankrls.dask._work import (
    Loader,
    Summary,
    add_arrays,
    add_statistics,
    bucket_operator,
    bucket_statistics,
    in_fold,
    operator_pieces,
    part_operator,
    part_statistics,
    pick,
    preferences_of,
    product,
)
from rankrls.estimators.seen_queries import SeenQueries

__all__ = ["DistributedOperator", "PartitionedProblem", "Preferences", "trace"]

Array = NDArray[Any]

#: Maximum bytes of one bucket of condensed rows, which must fit into a worker.
MAX_BUCKET_BYTES = 4 * 2**30

#: Number of random vectors for a trace.
N_SIGNS = 16

#: More pieces than this moving between workers indicate rows in random order.
MANY_PIECES = 50_000


class Preferences:
    """y, qid and sample_weight of all partitions, kept on the workers, and the counts of each.

    Parameters
    ----------
    y : Partitions
    qid, weight : Partitions or None, with the partitions of y
    loss : Loss

    Attributes
    ----------
    lengths : list of int
        Number of rows of each partition.
    used : list of int
        Partitions that are not empty.
    censuses : list of Census, of the used partitions
    crossing : Crossing, between the used partitions
    """

    def __init__(
        self, y: Partitions, qid: Partitions | None, weight: Partitions | None, loss: Loss
    ) -> None:
        sources = [source for source in (y, qid, weight) if source is not None]
        tasks = Tasks(*(source.graph for source in sources))
        self.keys = [
            tasks.add(
                "preferences",
                partial(preferences_of, i),
                y.blocks[i],
                None if qid is None else qid.blocks[i],
                None if weight is None else weight.blocks[i],
            )
            for i in range(len(y))
        ]
        self.graph = tasks.persist(self.keys)
        self.loss = loss
        self.with_qid = qid is not None
        self.weighted = weight is not None
        self._labels = None if qid is None else qid.labels
        self._count()

    def of_queries(self, chosen: Array) -> Preferences:
        """Restrict to the queries in the mask ``chosen``, shape (n_queries,), bool."""
        other = copy(self)
        parts = dict(zip(self.used, self.crossing.codes, strict=True))
        tasks = Tasks(self.graph)
        other.keys = list(self.keys)
        for i, codes in parts.items():
            part = partial(in_fold, codes, chosen[codes])
            other.keys[i] = tasks.add("fold", part, self.keys[i])
        other.graph = self.graph | tasks.persist([other.keys[i] for i in parts])
        other.weighted = True
        other._count()
        return other

    def _count(self) -> None:
        """Count the rows and queries of all partitions."""
        loss = self.loss
        count = partial(Census.of, cost=loss.cost, ties=loss.ties)
        tasks = Tasks(self.graph)
        censuses = tasks.compute([tasks.add("census", count, key) for key in self.keys])
        self.lengths = [census.n_rows for census in censuses]
        self.used = [i for i, n in enumerate(self.lengths) if n]
        self.censuses = [censuses[i] for i in self.used]
        self.n_outputs = censuses[0].varies.shape[1]
        self.crossing = Crossing(self.censuses, with_qid=self.with_qid)

    def seen(self) -> SeenQueries:
        """Return the record of the training queries, for a model that continues to learn."""
        seen = SeenQueries()
        seen.weighted = self.weighted
        if not self.with_qid:
            seen.rankings.append((self.n_rows, 0))
            return seen
        labels = self.crossing.labels
        if isinstance(self._labels, np.ndarray):
            labels = self._labels[labels]
        elif self._labels is not None:
            labels = [self._labels[number] for number in labels]
        seen.add(labels, self.crossing.sizes)
        return seen

    @property
    def n_rows(self) -> int:
        """Number of rows in all partitions."""
        return sum(self.lengths)

    def counts(self) -> list[Counts]:
        """Return the counts of the crossing queries for each used partition."""
        tasks = Tasks(self.graph)
        count = partial(Counts.of, cost=self.loss.cost, ties=self.loss.ties)
        keys = {
            p: tasks.add("counts", partial(count, numbers=numbers), self.keys[i])
            for p, (i, numbers) in enumerate(zip(self.used, self.crossing.numbers, strict=True))
            if (numbers >= 0).any()
        }
        found = dict(zip(keys, tasks.compute(keys.values()), strict=True))
        none = Counts.none(self.n_outputs)
        return [found.get(p, none) for p in range(len(self.used))]

    def require(self, varied: Array, purpose: str = "learn from") -> None:
        """Raise an error unless every output has a preference, according to ``varied``."""
        if varied.all():
            return
        if self.weighted and sum(census.n_weighted for census in self.censuses) < 2:
            problem = "sample_weight is zero for every row, or all but one"
        elif varied.any():
            constant = np.flatnonzero(~varied)[0]
            problem = f"all labels of a query are equal in output (column) {constant} of y"
        else:
            problem = (
                f"in {self.n_rows} rows and {self.crossing.n_queries} queries, all labels of a "
                "query are equal, or it has a single row"
            )
        raise ValueError(f"no query has a pair to {purpose}: {problem}")


class PartitionedProblem:
    """Preferences and features of all partitions.

    Parameters
    ----------
    preferences : Preferences
    X : Partitions
    dtype : float32 or float64
    n_features : int
    whole : bool
        Whether every output must have a preference; False for a fold.
    """

    def __init__(
        self,
        preferences: Preferences,
        X: Partitions,
        dtype: np.dtype[Any],
        n_features: int,
        *,
        whole: bool = True,
    ) -> None:
        self.preferences, self.X = preferences, X
        for i, (n, n_y) in enumerate(zip(X.lengths or (), preferences.lengths, strict=False)):
            if n != n_y:
                raise ValueError(
                    f"partition {i} has {n} rows of X and {n_y} of y: X, y and qid must be cut "
                    "alike"
                )
        self.dtype, self.n_features = dtype, n_features
        self.loaders = [Loader(i, dtype, n_features, n) for i, n in enumerate(preferences.lengths)]
        counts = preferences.counts()
        self.plan = SharePlan(preferences.censuses, preferences.crossing, counts, preferences.loss)
        if whole:
            preferences.require(self.plan.varied)
        n_pieces = sum(map(len, self.plan.sources))
        if n_pieces > MANY_PIECES:
            warn(
                f"{preferences.crossing.n_crossing:,} queries are spread over several "
                f"partitions, so that {n_pieces:,} pieces must move between workers: shuffle or "
                "sort the rows by qid first (the result is the same)",
            )

    def _check_buckets(self, width: int) -> None:
        needed = self.plan.largest_bucket() * width * 8
        if needed > MAX_BUCKET_BYTES:
            raise ValueError(
                f"{self.plan.largest_bucket():,} scores or queries that occur in several "
                "partitions would have to come together on one worker "
                f"({needed / 2**30:.1f} GiB): use ties='keep', round the scores, or sort the rows "
                "so that the rows of a query stand together"
            )

    def _tasks(self) -> Tasks:
        return Tasks(self.X.graph, self.preferences.graph)

    def take(self, indices: Array) -> Any:
        """Return rows of X by index, gathered on the client, shape (r, n)."""
        tasks = self._tasks()
        borders = np.cumsum([0, *self.preferences.lengths])
        place = np.searchsorted(borders, indices, side="right") - 1
        found, order = [], []
        for i in np.unique(place):
            mine = np.flatnonzero(place == i)
            take = partial(self.loaders[i].rows, indices[mine] - borders[i])
            found.append(tasks.add("rows", take, self.X.blocks[i]))
            order.append(mine)
        parts = tasks.compute(found)
        rows = sparse.vstack(parts).tocsr() if sparse.issparse(parts[0]) else np.vstack(parts)
        return rows[np.argsort(np.concatenate(order))]

    def basis(self, kernel: Kernel, indices: Array) -> Basis:
        """Return Nyström basis vectors by row index; only these rows are gathered."""
        return Basis.from_rows(kernel, self.take(indices), indices)

    def statistics(self, basis: Basis | None = None, *, whitened: bool = False) -> list[Statistics]:
        """Return the statistics of all rows, one for each group of outputs.

        The statistics are those of X, of its kernel values with a basis, or of the Nyström features
        (``whitened``).
        """
        tasks = self._tasks()
        total = self._add_statistics(tasks, basis, whitened)
        return tasks.compute([total], large=basis is not None)[0]

    @staticmethod
    def statistics_of(
        problems: Sequence[PartitionedProblem], scaling: Scaling | None = None
    ) -> list[list[Statistics]]:
        """Return the statistics of several problems with the same rows; each row is read once.

        ``scaling``, of these rows, is fitted in the same pass.
        """
        tasks = Tasks(*(p.X.graph | p.preferences.graph for p in problems))
        keys = [p._add_statistics(tasks) for p in problems]
        if scaling is None:
            return tasks.compute(keys)
        *found, first, scaler = tasks.compute([*keys, *scaling.add(tasks)])
        scaling.fit(first, scaler, (part for parts in found for part in parts))
        return found

    def _add_statistics(
        self, tasks: Tasks, basis: Basis | None = None, whitened: bool = False
    ) -> Any:
        """Add the tasks of `statistics` and return the key of the result."""
        self._check_buckets(self.n_features if basis is None else len(basis.kept))
        extra = () if basis is None else (tasks.give("basis", basis),)
        totals = []
        pieces: list[list[Any]] = [[] for _ in self.plan.buckets]
        for p, (i, plan) in enumerate(zip(self.preferences.used, self.plan.parts, strict=True)):
            work = tasks.add(
                "statistics",
                partial(part_statistics, self.loaders[i], plan, whitened),
                self.X.blocks[i],
                self.preferences.keys[i],
                *extra,
            )
            totals.append(tasks.add("own", itemgetter(0), work))
            for b in self._buckets_of(p):
                pieces[b].append(tasks.add("condensed", partial(pick, b), work))
        for bucket, parts in zip(self.plan.buckets, pieces, strict=True):
            totals.append(tasks.add("bucket", partial(bucket_statistics, bucket), parts))
        return tasks.tree("sum", add_statistics, totals)

    def _buckets_of(self, p: int) -> list[int]:
        fragments = self.plan.parts[p].fragments
        return np.unique(fragments[0].bucket).tolist() if fragments else []

    def operator(self, *, persist: bool) -> DistributedOperator:
        """Return an operator for repeated products ΦᵀLΦ V."""
        self._check_buckets(self.n_features)
        tasks = self._tasks()
        local = []
        pieces: list[list[Any]] = [[] for _ in self.plan.buckets]
        for p, (i, plan) in enumerate(zip(self.preferences.used, self.plan.parts, strict=True)):
            key = tasks.add(
                "rows",
                partial(part_operator, self.loaders[i], plan),
                self.X.blocks[i],
                self.preferences.keys[i],
            )
            local.append(key)
            condensed = tasks.add("condensed", operator_pieces, key)
            for b in self._buckets_of(p):
                pieces[b].append(tasks.add("condensed", itemgetter(b), condensed))
        buckets = [
            tasks.add("bucket", partial(bucket_operator, bucket), parts)
            for bucket, parts in zip(self.plan.buckets, pieces, strict=True)
        ]
        # Buckets combine rows of many partitions: always keep them in memory.
        kept = tasks.persist(local + buckets if persist else buckets)
        graph = kept if persist else tasks.graph | kept
        return DistributedOperator(graph, local + buckets, self.plan.outputs)


def trace(preferences: Preferences) -> float:
    """Return about the trace of L, twice the weight of all pairs, for the first group of outputs.

    It is the mean of zᵀLz over vectors z of random signs.
    """
    signs = {
        ("rankrls-signs", i): (partial(_signs, i, n),) for i, n in enumerate(preferences.lengths)
    }
    Z = Partitions(signs, [[key] for key in signs], preferences.lengths)
    problem = PartitionedProblem(preferences, Z, np.dtype(np.float64), N_SIGNS, whole=False)
    return float(problem.statistics()[0].gram.diagonal().mean())


def _signs(seed: int, n_rows: int) -> Array:
    return np.random.default_rng(seed).choice((-1.0, 1.0), size=(n_rows, N_SIGNS))


class DistributedOperator:
    """Rows and systems on the workers; computes ΦᵀLΦ V in one round trip.

    Parameters
    ----------
    graph : dict
    keys : list
        Keys of one `LocalOperator` for each partition and bucket.
    outputs : list of ndarray
        Groups of outputs that share L.
    """

    def __init__(self, graph: dict[Any, Any], keys: Sequence[Any], outputs: list[Array]) -> None:
        self.graph, self.keys, self.outputs = graph, keys, outputs

    def summary(self) -> Summary:
        """Return Φᵀr and counts."""
        tasks = Tasks(self.graph)
        parts = [tasks.add("summary", Summary.of, key) for key in self.keys]
        return tasks.compute([tasks.tree("sum", Summary.add, parts)])[0]

    def product(self, V: Array, group: int) -> Array:
        """Return ΦᵀLΦ V of shape (n, k) for one group of outputs."""
        tasks = Tasks(self.graph)
        vectors = tasks.give("vectors", V)
        parts = [tasks.add("product", partial(product, group), key, vectors) for key in self.keys]
        return tasks.compute([tasks.tree("sum", add_arrays, parts)], large=True)[0]
