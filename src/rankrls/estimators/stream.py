"""Streams of batches: whole queries, sums by folds of queries, and their held-out scores."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls import _resources
from rankrls._calls import Progress, unchanged_on_error
from rankrls._frames import check_feature_names, check_same_rows
from rankrls._validation import (
    check_length,
    check_scores,
    check_weights,
    encode_qid,
    refuse_lazy,
    show,
)
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.statistics import RankingStatistics
from rankrls.core.ridge.fold_statistics import FoldStatistics
from rankrls.core.ridge.residuals import HeldOut
from rankrls.core.spaces.spaces import Basis, Kernel
from rankrls.estimators.choosing import (
    LOSS_METRIC,
    ListScores,
    Scoring,
    check_alphas,
    is_fold_count,
    search_alphas,
)
from rankrls.estimators.incremental import (
    Learned,
    check_terms,
    first_basis,
    require_memory,
    store_learned,
)
from rankrls.estimators.seen_queries import Projection, SeenQueries, query_keys, show_query

__all__ = [
    "Batch",
    "BatchSteps",
    "as_slice",
    "check_folds",
    "choose_by_folds",
    "fit_stream",
    "fit_stream_cv",
    "named_batch",
    "read_batches",
    "require_addition",
    "score_queries",
    "stacked",
]

Array = NDArray[Any]

#: Rows of a stream are summed by folds when they have this many features in all: with fewer, most
#: of the time would go to everything but the products.
ENTRIES = 1 << 22

#: Folds of ``cv="auto"``.
AUTO_FOLDS = 5

FORMS = "(X, y), (X, y, qid), or a mapping with data, target and qid"

COMES_BACK = (
    "comes back after its rows had ended in an earlier batch. Only the last query of a batch may "
    "go on in the next one: sort the data by query, or give every query in one batch"
)

AGAIN = "batches that are read again must have the same rows"


class Batch(NamedTuple):
    """Rows with scores, and optionally query ids, weights and feature names; numbered from 1."""

    number: int
    X: Any
    y: Any
    qid: Any = None
    sample_weight: Any = None
    names: Any = None


def read_batches(batches: Any) -> Iterator[Batch]:
    """Convert batches, or those that a function returns; those without rows are skipped."""
    if callable(batches) and not hasattr(batches, "__iter__"):
        batches = batches()
    if isinstance(batches, str | bytes | os.PathLike):
        raise ValueError(
            f"batches must be an iterable of {FORMS}; got {show(batches)}. To read a file: "
            "rankrls.datasets.iter_letor(path) or iter_parquet(path, target=..., qid=...)"
        )
    single = isinstance(batches, Mapping) or hasattr(batches, "shape")
    if single or not hasattr(batches, "__iter__"):
        raise ValueError(
            f"batches must be an iterable of {FORMS}; got a {type(batches).__name__}"
            + (" (for one batch: [batch])" if single else "")
        )
    for number, batch in enumerate(batches, 1):
        with named_batch(number):
            read = _read(number, batch)
            for name in ("X", "y", "qid", "sample_weight"):
                refuse_lazy(getattr(read, name), name)
            n_rows = read.X.shape[0] if hasattr(read.X, "shape") else len(read.X)
        if n_rows:
            yield read


def _read(number: int, batch: Any) -> Batch:
    if isinstance(batch, Mapping):
        missing = [name for name in ("data", "target") if batch.get(name) is None]
        if missing:
            raise ValueError(f"it has no {missing[0]!r}; a batch is {FORMS}")
        parts = ("data", "target", "qid", "sample_weight", "feature_names")
        return Batch(number, *(batch.get(part) for part in parts))
    if isinstance(batch, tuple) and len(batch) in (2, 3):
        return Batch(number, *batch)
    what = f"a tuple of {len(batch)}" if isinstance(batch, tuple) else f"a {type(batch).__name__}"
    raise ValueError(f"it is {what}; a batch is {FORMS}")


@contextmanager
def named_batch(number: int) -> Iterator[None]:
    """Add the number of the batch to errors."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"batch {number}: {error}") from error


class BatchSteps:
    """What is done to batches before the ranker sees them: nothing."""

    def learn(self, batch: Batch) -> Batch:
        """Transform a batch in the first pass, and learn from it."""
        return batch

    def transform(self, batch: Batch) -> Batch:
        """Transform a batch in a later pass, to the features of `rescaling`."""
        return batch

    def rescaling(self) -> tuple[Array, Array] | None:
        """Factor and offset, (n_features,), that convert the features of the first pass."""
        return None


# -- whole queries ----------------------------------------------------------------------------


class QueryRows(NamedTuple):
    """Rows of whole queries: X, y of shape (m, k), number of the query in the stream, weight."""

    X: Any
    y: Array
    query: Array
    weight: Array | None

    def take(self, rows: Any) -> QueryRows:
        """Select rows by number, in new arrays, or by a slice."""
        weight = None if self.weight is None else self.weight[rows]
        return QueryRows(self.X[rows], self.y[rows], self.query[rows], weight)

    def copy(self) -> QueryRows:
        """Rows in new arrays: a reader may fill the same ones for every batch."""
        weight = None if self.weight is None else self.weight.copy()
        return QueryRows(self.X.copy(), self.y.copy(), self.query.copy(), weight)

    def graph(self) -> PreferenceGraph:
        """Preferences of the rows."""
        return PreferenceGraph.from_scores(self.y, qid=self.query, sample_weight=self.weight)


def joined(pieces: Sequence[QueryRows]) -> QueryRows:
    """Concatenate rows."""
    if len(pieces) == 1:
        return pieces[0]
    X = stacked([piece.X for piece in pieces])
    y, query = (np.concatenate([piece[part] for piece in pieces]) for part in (1, 2))
    weight = None
    if any(piece.weight is not None for piece in pieces):
        filled = [np.ones(len(p.y)) if p.weight is None else p.weight for p in pieces]
        weight = np.concatenate(filled)
    return QueryRows(X, y, query, weight)


def as_slice(rows: Array) -> Any:
    """A slice, which avoids a copy, if these row numbers are consecutive."""
    together = len(rows) and rows[-1] - rows[0] + 1 == len(rows)
    return slice(int(rows[0]), int(rows[-1]) + 1) if together else rows


def stacked(parts: Sequence[Any]) -> Any:
    """Concatenate rows of dense or sparse matrices."""
    if any(map(sparse.issparse, parts)):
        return sparse.vstack([sparse.csr_array(part) for part in parts], format="csr")
    return np.concatenate(parts)


class WholeQueries:
    """Collect rows until their queries are complete.

    The last query of a batch may continue in the next one; a query that appears again later is an
    error. Complete queries are recorded in ``seen``. ``numbers`` holds the number of each query in
    the stream by key; with ``known``, they are the numbers of an earlier pass.
    """

    def __init__(self, seen: SeenQueries, known: dict[str, int] | None = None) -> None:
        self.numbers: dict[str, int] = {}
        self._seen, self._known = seen, known
        self._open: list[QueryRows] = []  # pieces of a query that may go on
        self._key = ""

    def add(self, X: Any, y: Array, qid: Any, weight: Array | None) -> Iterator[QueryRows]:
        """Add a batch, y of shape (m, n_outputs), and return the complete queries."""
        queries = encode_qid(qid, len(y))
        codes, keys = queries.codes, query_keys(queries.labels)
        self._seen.check_new(keys, COMES_BACK)
        last = int(codes[-1])
        goes_on = keys.index(self._key) if self._open and self._key in keys else -1
        rows = QueryRows(X, y, self._number(codes, keys)[codes], weight)
        if goes_on >= 0:
            self._open.append(rows.take(np.flatnonzero(codes == goes_on)))
        if goes_on != last:
            yield from self.end()
            self._open, self._key = [rows.take(np.flatnonzero(codes == last))], keys[last]
        inside = np.flatnonzero((codes != goes_on) & (codes != last))
        if len(inside):
            inside = as_slice(inside)
            ended = rows.take(inside)
            self._record(keys, ended, codes[inside])
            yield ended

    def end(self) -> Iterator[QueryRows]:
        """Complete the last query and return it."""
        if self._open:
            whole = joined(self._open)
            self._record([self._key], whole, np.zeros(len(whole.y), dtype=np.int64))
            self._open = []
            yield whole

    def _record(self, keys: list[str], rows: QueryRows, codes: Array) -> None:
        X = rows.X if self._known is None else None  # a later pass needs no checksums
        self._seen.add_rows(keys, X, rows.y, codes, rows.weight)

    def _number(self, codes: Array, keys: list[str]) -> Array:
        """Number in the stream of every query of a batch, in the order of their first rows."""
        for code in np.argsort(np.unique(codes, return_index=True)[1]):
            key = keys[code]
            if self._known is None:
                self.numbers.setdefault(key, len(self.numbers))
            elif key in self._known:
                self.numbers[key] = self._known[key]
            else:
                raise ValueError(f"{show_query(key)} was not there before; {AGAIN}")
        return np.array([self.numbers[key] for key in keys])


# -- sums -------------------------------------------------------------------------------------


def require_addition(loss: Loss, parts: str) -> None:
    """Refuse a cost with which the parts of one ranking cannot be added up."""
    if not loss.keeps_ties:
        raise ValueError(
            f"it has no qid, so that all {parts} are one ranking, in which a row is compared with "
            f"rows of other {parts}: that needs cost='magnitude' and ties='keep', and cost is "
            f"{loss.cost!r}, ties {loss.ties!r}. Give qid, or fit all rows at once"
        )


class StreamSums:
    """Sums of a stream of batches, in folds of whole queries.

    Parameters
    ----------
    X, batch : checked rows of the first batch, and the batch
    basis : Basis or None
    loss : Loss
    n_folds : int
        Queries are assigned to the folds in turn, in the order of the stream.

    Attributes
    ----------
    folds : list of Learned
        Sums of the complete queries. The first one has the queries of all folds.
    queries : WholeQueries, or None without qid
    """

    def __init__(self, X: Any, batch: Batch, basis: Basis | None, loss: Loss, n_folds: int) -> None:
        y = check_scores(batch.y, X.shape[0])
        self._k, flat = y.reshape(len(y), -1).shape[1], y.ndim == 1
        n = X.shape[1]
        require_memory(n, basis, n_folds)
        self.folds = [Learned.nothing(n, basis, X.dtype, self._k, flat) for _ in range(n_folds)]
        self._loss, self._start = loss, time.perf_counter()
        self._n_rows = self._n_batches = self._n_waiting = 0
        self._waiting: list[QueryRows] = []
        self._since = self._number = 1  # batches of the rows that wait
        self.queries: WholeQueries | None = None
        if batch.qid is not None:
            seen = self.folds[0].seen
            seen.projection = Projection.like(X, y.reshape(len(y), -1))
            self.queries = WholeQueries(seen)
            return
        if n_folds > 1:
            raise ValueError("it has no qid: folds are of whole queries, so that qid is needed")
        require_addition(loss, "batches")
        self._ranking = RankingStatistics()

    def add(self, X: Any, batch: Batch) -> str:
        """Add a batch with checked rows X; returns a line about the progress."""
        y, weight = check_targets(batch, X.shape[0], self._k)
        if (batch.qid is None) != (self.queries is None):
            has, had = ("no", "one") if batch.qid is None else ("a", "none")
            raise ValueError(f"it has {has} qid, and the first batch had {had}: give all or none")
        self._number = batch.number
        first = self.folds[0]
        for fold in self.folds:
            fold.dtype = np.result_type(fold.dtype, X.dtype)
        first.seen.weighted |= weight is not None
        if self.queries is None:
            part = RankingStatistics.of(first.features(X), y, weight)
            self._ranking = self._ranking.merge(part)
        else:
            self._add_queries(self.queries.add(X, y, batch.qid, weight))
        self._n_rows += len(y)
        self._n_batches += 1
        rate = self._n_rows / max(time.perf_counter() - self._start, 1e-9)
        return f"batch {batch.number}: {self._n_rows:,} rows so far, {rate:,.0f} rows/s"

    def finish(self) -> str:
        """Complete the last query; returns a line about the progress."""
        first = self.folds[0]
        if self.queries is None:
            first.seen.rankings.append((self._n_rows, 0))
            first.preferences = first.preferences + self._ranking.n_preferences
            if self._ranking.total is not None:
                first.total = [self._ranking.statistics(self._loss.query_weighting)]
        else:
            self._add_queries(self.queries.end())
            self._add_waiting()
            n_folds, n_queries = len(self.folds), first.seen.n_queries
            if n_queries < n_folds:
                raise ValueError(
                    f"cv={n_folds} folds of {n_queries} queries: it must be from 2 to {n_queries}"
                )
        preferences = np.sum([fold.preferences for fold in self.folds], axis=0)
        if not (preferences > 0).all():
            output = int(np.argmin(preferences))
            where = "" if first.flat else f" in output (column) {output} of y"
            raise ValueError(
                f"no query has a pair to learn from{where}: in {self._n_rows:,} rows and "
                f"{first.seen.n_queries:,} queries of {self._n_batches:,} batches, all labels "
                "of a query are equal, or it has a single row with weight"
            )
        n_pairs = sum(fold.n_pairs for fold in self.folds)
        return f"{self._n_rows:,} rows, {n_pairs:,} pairs: solving"

    def _add_queries(self, ended: Iterable[QueryRows]) -> None:
        """Add whole queries, those of folds once there are many."""
        for rows in ended:
            if len(self.folds) == 1:
                self.folds[0].add(rows.graph(), rows.X, self._loss)
                continue
            self._n_waiting += len(rows.y) * max(rows.X.shape[1], self.folds[0].n_features)
            if self._n_waiting >= ENTRIES:
                self._waiting.append(rows)
                self._add_waiting()
            else:
                self._waiting.append(rows.copy())

    def _add_waiting(self) -> None:
        if not self._waiting:
            return
        rows = joined(self._waiting)
        since, self._since = self._since, self._number
        self._waiting, self._n_waiting = [], 0
        fold_of = rows.query % len(self.folds)

        def add(fold: int) -> None:
            mine = rows.take(np.flatnonzero(fold_of == fold))
            self.folds[fold].add(mine.graph(), mine.X, self._loss)

        try:
            _resources.in_threads(add, np.unique(fold_of).tolist(), self.folds[0].n_features)
        except ValueError as error:
            raise ValueError(f"{error} (in batches {since} to {self._number})") from error


def check_targets(batch: Batch, n_rows: int, n_outputs: int) -> tuple[Array, Array | None]:
    """Scores of a batch, shape (m, n_outputs), and weights."""
    y = check_scores(batch.y, n_rows).reshape(n_rows, -1)
    if y.shape[1] != n_outputs:
        raise ValueError(f"y has {y.shape[1]} output(s), and {n_outputs} in the first batch")
    weight = batch.sample_weight
    return y, None if weight is None else check_weights("sample_weight", weight, n_rows)


def _check_rows(ranker: Any, batch: Batch, *, reset: bool) -> Any:
    """Check the features of a batch and the names of its columns, which arrays have beside them."""
    check_same_rows(batch.X, y=batch.y, qid=batch.qid, sample_weight=batch.sample_weight)
    X, names = ranker._check_rows(batch.X, reset=reset), batch.names
    if names is not None:
        check_length("feature_names", names, X.shape[1], "columns")
        if reset and not hasattr(ranker, "feature_names_in_"):
            ranker.feature_names_in_ = np.array([str(name) for name in names], dtype=object)
            ranker._names_beside = True
        else:
            known = getattr(ranker, "feature_names_in_", None)
            check_feature_names(names, known, "this batch")
    return X


def _sum_stream(
    ranker: Any, kernel: Kernel, batches: Any, basis_rows: Any, steps: BatchSteps, n_folds: int
) -> StreamSums:
    """Sum all batches, in the features of all of them."""
    progress = Progress(type(ranker).__name__, ranker.verbose)
    sums: StreamSums | None = None
    for batch in read_batches(batches):
        with named_batch(batch.number):
            batch = steps.learn(batch)
            X = _check_rows(ranker, batch, reset=sums is None)
            if sums is None:
                basis = first_basis(ranker, kernel, X, basis_rows)
                sums = StreamSums(X, batch, basis, ranker._loss, n_folds)
                codes = encode_qid(batch.qid, X.shape[0]).codes
                ranker._warn_about_columns(kernel, X, codes)
            progress(sums.add(X, batch))
    if sums is None:
        raise ValueError("there is no batch with rows to learn from")
    progress(sums.finish())
    rescaling = steps.rescaling()
    if rescaling is not None:
        for fold in sums.folds:
            fold.rescale(*rescaling)
    return sums


def fit_stream(
    ranker: Any, batches: Any, basis_rows: Any = None, steps: BatchSteps | None = None
) -> Any:
    """Fit a `RankRLS` to a stream of batches."""
    with unchanged_on_error(ranker):
        kernel = check_terms(ranker, first=True)
        sums = _sum_stream(ranker, kernel, batches, basis_rows, steps or BatchSteps(), 1)
        store_learned(ranker, sums.folds[0], kernel)
    return ranker


# -- folds ------------------------------------------------------------------------------------


def check_folds(ranker: Any) -> tuple[Array | None, int, Scoring]:
    """Grid, number of folds and scoring of a RankRLSCV whose rows come in parts."""
    grid = None if ranker.alphas is None else check_alphas("alphas", ranker.alphas)
    n_folds, cv = AUTO_FOLDS, ranker.cv
    if not (isinstance(cv, str) and cv == "auto"):
        if not is_fold_count(cv) or cv < 2:
            raise ValueError(
                f"cv={show(cv)}: of rows that come in parts, folds of whole queries are held out; "
                "cv must be their number, at least 2, or 'auto'"
            )
        n_folds = int(cv)
    scoring = Scoring(ranker.scoring, ranker._loss)
    scoring.require_scores()
    if scoring.name != LOSS_METRIC and not scoring.by_list:
        raise ValueError(
            f"scoring={show(scoring.name or scoring.metric)} needs the predictions of all queries "
            f"at once, which are not kept of rows that come in parts: use {LOSS_METRIC!r}, "
            "'pairwise_accuracy', or a list metric such as 'ndcg@10'"
        )
    return grid, n_folds, scoring


def fit_stream_cv(
    ranker: Any, batches: Any, basis_rows: Any = None, steps: BatchSteps | None = None
) -> Any:
    """Fit a `RankRLSCV` to a stream of batches."""
    grid, n_folds, scoring = check_folds(ranker)
    if scoring.name != LOSS_METRIC and hasattr(batches, "__next__"):
        raise ValueError(
            f"scoring={scoring.name!r} is computed from held-out predictions, in a second pass, "
            "and these batches can be read once: give a function that returns them from the start, "
            f"such as lambda: iter_letor(path), or use scoring={LOSS_METRIC!r}, which needs one "
            "pass"
        )
    with unchanged_on_error(ranker):
        kernel, steps = check_terms(ranker, first=True), steps or BatchSteps()
        sums = _sum_stream(ranker, kernel, batches, basis_rows, steps, n_folds)
        first, queries = sums.folds[0], sums.queries
        assert queries is not None

        def score_again(W: list[Array]) -> ListScores:
            scores = ListScores(scoring, len(W[0]), W[0].shape[2])
            seen = SeenQueries()
            again = WholeQueries(seen, queries.numbers)
            for batch in read_batches(batches):
                with named_batch(batch.number):
                    batch = steps.transform(batch)
                    X = _check_rows(ranker, batch, reset=False)
                    y, _ = check_targets(batch, X.shape[0], W[0].shape[2])
                    for rows in again.add(X, y, batch.qid, None):
                        score_queries(scores, first.features(rows.X), rows.graph(), rows.query, W)
            for rows in again.end():
                score_queries(scores, first.features(rows.X), rows.graph(), rows.query, W)
            _require_same(first.seen, seen)
            return scores

        learned = choose_by_folds(ranker, sums.folds, grid, scoring, score_again)
        store_learned(ranker, learned, kernel)
    return ranker


def _require_same(before: SeenQueries, now: SeenQueries) -> None:
    """Raise unless two passes had the same queries with the same numbers of rows."""
    rows = [{key: n for key, (n, _) in seen.queries.items()} for seen in (before, now)]
    if rows[0] != rows[1]:
        (m, q), (n, p) = ((sum(one.values()), len(one)) for one in rows)
        raise ValueError(
            f"the batches had {m:,} rows of {q:,} queries, and now {n:,} of {p:,}, or other "
            f"numbers of rows in some; {AGAIN}"
        )


def score_queries(
    scores: ListScores, Phi: Any, graph: PreferenceGraph, query: Array, W: list[Array]
) -> None:
    """Add the scores of whole queries by the models without their folds.

    Parameters
    ----------
    Phi : features of shape (m, n)
    query : ndarray of shape (m,), int
        Fold of each row, modulo the number of folds.
    W : list of ndarray of shape (n_alphas, n, n_outputs), one for each fold
    """
    values = np.empty((len(W[0]), Phi.shape[0], W[0].shape[2]))
    fold_of = query % len(W)
    for fold in np.unique(fold_of):
        mine = np.flatnonzero(fold_of == fold)
        rows = Phi[mine]
        for a, w in enumerate(W[fold]):
            values[a, mine] = rows @ w
    every = [np.arange(graph.n_rows)]
    scores.add(graph, HeldOut(every, values, np.zeros(len(values), dtype=np.int64)))


def choose_by_folds(
    ranker: Any,
    folds: list[Learned],
    grid: Array | None,
    scoring: Scoring,
    score_again: Callable[[list[Array]], ListScores],
) -> Learned:
    """Choose alpha from sums over folds of whole queries; returns the sums over all of them.

    Parameters
    ----------
    ranker : RankRLSCV
        Its ``alpha_``, ``best_score_`` and ``cv_results_`` are set.
    folds : list of Learned
    grid : ndarray of shape (n_alphas,), or None for the default one
    scoring : Scoring
    score_again : function
        Scores all queries with the models without each fold, for metrics other than the loss.
    """
    total = np.sum([fold.preferences for fold in folds], axis=0)
    for number, fold in enumerate(folds):
        if not (total - fold.preferences > 0).all():
            raise ValueError(
                f"fold {number} leaves no query with a pair to learn from: use another number of "
                "folds, or fit RankRLS with a given alpha"
            )
    progress = Progress(type(ranker).__name__, ranker.verbose)
    held_out = FoldStatistics([fold.total for fold in folds], scaled=folds[0].basis is None)

    def evaluate(alphas: Array) -> dict[str, Array]:
        progress(f"{len(alphas)} alphas, {len(folds)} folds of queries")
        if scoring.name == LOSS_METRIC:
            found = {"mean_score": held_out.explained_part(alphas).mean(axis=1)}
        else:
            W = [held_out.weights_without(fold, alphas) for fold in range(len(folds))]
            found = score_again(W).spread()
        return {**found, "n_refits": np.zeros(len(alphas), dtype=np.int64)}

    best, results = search_alphas(grid, evaluate, held_out.size)
    ranker.alpha_, ranker.cv_results_ = float(results["alpha"][best]), results
    ranker.best_score_ = float(results["mean_score"][best])
    progress(f"alpha {ranker.alpha_:g}, score {ranker.best_score_:.4f}")
    return replace(folds[0], total=held_out.total(), preferences=total)
