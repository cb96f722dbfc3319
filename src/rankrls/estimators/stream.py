"""Streams of batches: whole queries, sums by folds of queries, and their held-out scores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

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
from rankrls.estimators.choosing import (
    LOSS_METRIC,
    Scoring,
    check_alphas,
    is_fold_count,
    one_fold,
    search_alphas,
)
from rankrls.estimators.incremental import (
    Learned,
    check_terms,
    first_basis,
    require_learned,
    require_memory,
    store_learned,
)
from rankrls.estimators.seen_queries import Projection, SeenQueries, query_keys

__all__ = [
    "Batch",
    "as_slice",
    "check_folds",
    "choose_by_folds",
    "fit_stream",
    "fit_stream_cv",
    "fit_streams",
    "named_batch",
    "read_batches",
    "require_addition",
    "score_queries",
    "stacked",
]

Array = NDArray[Any]

#: Folds of ``cv="auto"``.
AUTO_FOLDS = 5

FORMS = "(X, y), (X, y, qid), or a mapping with data, target and qid"


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
    single = isinstance(batches, Mapping | str | bytes) or hasattr(batches, "shape")
    if single or isinstance(batches, os.PathLike) or not hasattr(batches, "__iter__"):
        raise ValueError(
            f"batches must be an iterable of {FORMS}; got {show(batches)} (for one batch: [batch]; "
            "for a file: rankrls.datasets.iter_letor(path) or iter_parquet(path, ...))"
        )
    for number, batch in enumerate(batches, 1):
        with named_batch(number):
            if isinstance(batch, Mapping):
                missing = [name for name in ("data", "target") if batch.get(name) is None]
                if missing:
                    raise ValueError(f"it has no {missing[0]!r}; a batch is {FORMS}")
                parts = ("data", "target", "qid", "sample_weight", "feature_names")
                read = Batch(number, *(batch.get(part) for part in parts))
            elif isinstance(batch, tuple) and len(batch) in (2, 3):
                read = Batch(number, *batch)
            else:
                size = f" of {len(batch)}" if isinstance(batch, tuple) else ""
                raise ValueError(f"it is a {type(batch).__name__}{size}; a batch is {FORMS}")
            for name in ("X", "y", "qid", "sample_weight"):
                refuse_lazy(getattr(read, name), name)
            n_rows = read.X.shape[0] if hasattr(read.X, "shape") else len(read.X)
        if n_rows:
            yield read


@contextmanager
def named_batch(number: int) -> Iterator[None]:
    """Add the number of the batch to errors."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"batch {number}: {error}") from error


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

    def graph(self) -> PreferenceGraph:
        """Preferences of the rows."""
        queries = encode_qid(self.query, len(self.y))
        return PreferenceGraph(len(self.y), self.y, queries, self.weight, flat=False)


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
    """Collect rows until their queries are complete; record these in ``seen`` and ``use`` them.

    The last query of a batch may continue in the next one; a query that appears again later is an
    error. Queries are numbered in the order of the stream.
    """

    def __init__(
        self, seen: SeenQueries, use: Callable[[QueryRows], None], *, checksums: bool = True
    ) -> None:
        self._seen, self._use, self._checksums = seen, use, checksums
        self._open: list[QueryRows] = []  # pieces of a query that may go on
        self._key, self._count = "", 0

    def add(self, X: Any, y: Array, qid: Any, weight: Array | None) -> None:
        """Add a batch, y of shape (m, n_outputs)."""
        queries = encode_qid(qid, len(y))
        codes, keys = queries.codes, query_keys(queries.labels)
        self._seen.check_new(
            keys,
            "comes back after its rows had ended in an earlier batch. Only the last query of a "
            "batch may go on in the next one: sort the data by query",
        )
        last = int(codes[-1])
        goes_on = keys.index(self._key) if self._open and self._key in keys else -1
        first_rows = np.argsort(np.unique(codes, return_index=True)[1])
        new = first_rows[first_rows != goes_on]
        numbers = np.full(len(keys), self._open[0].query[0] if self._open else 0)
        numbers[new] = self._count + np.arange(len(new))
        self._count += len(new)
        rows = QueryRows(X, y, numbers[codes], weight)
        if goes_on >= 0:
            self._open.append(rows.take(np.flatnonzero(codes == goes_on)))
        if goes_on != last:
            self.end()
            self._open, self._key = [rows.take(np.flatnonzero(codes == last))], keys[last]
        inside = np.flatnonzero((codes != goes_on) & (codes != last))
        if len(inside):
            self._finish(keys, rows.take(as_slice(inside)), codes[inside])

    def end(self) -> None:
        """Complete the last query."""
        pieces, self._open = self._open, []
        if pieces:
            weight = None
            if any(piece.weight is not None for piece in pieces):
                filled = [np.ones(len(p.y)) if p.weight is None else p.weight for p in pieces]
                weight = np.concatenate(filled)
            y, query = (np.concatenate([piece[part] for piece in pieces]) for part in (1, 2))
            whole = QueryRows(stacked([piece.X for piece in pieces]), y, query, weight)
            self._finish([self._key], whole, np.zeros(len(y), dtype=np.int64))

    def _finish(self, keys: list[str], rows: QueryRows, codes: Array) -> None:
        X = rows.X if self._checksums else None
        self._seen.add_rows(keys, X, rows.y, codes, rows.weight)
        self._use(rows)


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
    """Sums of a stream of batches, in folds of whole queries: each fold takes one in turn.

    ``X`` are the checked rows of the first batch. The first of the ``folds``, which are `Learned`,
    has the queries of all.
    """

    def __init__(self, ranker: Any, X: Any, batch: Batch, basis_rows: Any, n_folds: int) -> None:
        y = check_scores(batch.y, X.shape[0])
        self.n_outputs, flat = y.reshape(len(y), -1).shape[1], y.ndim == 1
        self.kernel, self._loss, n = check_terms(ranker, first=True), ranker._loss, X.shape[1]
        basis = first_basis(ranker, self.kernel, X, basis_rows)
        require_memory(n, basis, n_folds)
        shape = n, basis, X.dtype, self.n_outputs, flat
        self.folds = [Learned.nothing(*shape) for _ in range(n_folds)]
        ranker._warn_about_columns(self.kernel, X, encode_qid(batch.qid, len(y)).codes)
        self._progress, self._n_rows = Progress(type(ranker).__name__, ranker.verbose), 0
        self._queries: WholeQueries | None = None
        if batch.qid is not None:
            seen = self.folds[0].seen
            seen.projection = Projection.like(X, y.reshape(len(y), -1))
            self._queries = WholeQueries(seen, self._add_queries)
            return
        if n_folds > 1:
            raise ValueError("it has no qid: folds are of whole queries, so that qid is needed")
        require_addition(self._loss, "batches")
        self._ranking = RankingStatistics()

    def add(self, X: Any, batch: Batch) -> None:
        """Add a batch with checked rows X."""
        y, weight = check_targets(batch, X.shape[0], self.n_outputs)
        if (batch.qid is None) != (self._queries is None):
            has, had = ("no", "one") if batch.qid is None else ("a", "none")
            raise ValueError(f"it has {has} qid, and the first batch had {had}: give all or none")
        first = self.folds[0]
        for fold in self.folds:
            fold.dtype = np.result_type(fold.dtype, X.dtype)
        first.seen.weighted |= weight is not None
        if self._queries is None:
            part = RankingStatistics.of(first.features(X), y, weight)
            self._ranking = self._ranking.merge(part)
        else:
            self._queries.add(X, y, batch.qid, weight)
        self._n_rows += len(y)
        self._progress(f"batch {batch.number}: {self._n_rows:,} rows so far")

    def finish(self) -> None:
        """Complete the last query."""
        first, n_folds = self.folds[0], len(self.folds)
        if self._queries is None:
            first.seen.rankings.append((self._n_rows, 0))
            first.add_ranking(self._ranking, self._loss)
        else:
            self._queries.end()
            if (n_queries := first.seen.n_queries) < n_folds:
                raise ValueError(
                    f"cv={n_folds} folds of {n_queries} queries: it must be from 2 to {n_queries}"
                )
        require_learned(self.folds, self._n_rows, first.seen.n_queries)
        n_pairs = sum(fold.n_pairs for fold in self.folds)
        self._progress(f"{self._n_rows:,} rows, {n_pairs:,} pairs: solving")

    def _add_queries(self, rows: QueryRows) -> None:
        fold_of = rows.query % len(self.folds)
        for fold in np.unique(fold_of):
            mine = rows.take(as_slice(np.flatnonzero(fold_of == fold)))
            self.folds[fold].add(mine.graph(), mine.X, self._loss)


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


def _sum_streams(
    rankers: Sequence[Any],
    batches: Iterable[Iterable[Batch]],
    basis_rows: Any = None,
    steps: Any = None,
    n_folds: int = 1,
) -> list[StreamSums]:
    """Sum all batches for several rankers; a batch has a `Batch` for each."""
    sums: list[StreamSums] = []
    for parts in batches:
        for k, (ranker, batch) in enumerate(zip(rankers, parts, strict=True)):
            with named_batch(batch.number):
                batch = batch if steps is None else steps.learn(batch)
                X = _check_rows(ranker, batch, reset=len(sums) == k)
                if len(sums) == k:
                    sums.append(StreamSums(ranker, X, batch, basis_rows, n_folds))
                sums[k].add(X, batch)
    if not sums:
        raise ValueError("there is no batch with rows to learn from")
    for one in sums:
        one.finish()
        if steps is not None and (rescaling := steps.rescaling()) is not None:
            for fold in one.folds:
                fold.rescale(*rescaling)
    return sums


def fit_stream(ranker: Any, batches: Any, basis_rows: Any = None, steps: Any = None) -> Any:
    """Fit a `RankRLS` to a stream of batches; ``steps`` transform them (`streaming._Prepare`)."""
    with unchanged_on_error(ranker):
        check_terms(ranker, first=True)
        parts = ([batch] for batch in read_batches(batches))
        (sums,) = _sum_streams([ranker], parts, basis_rows, steps)
        store_learned(ranker, sums.folds[0], sums.kernel)
    return ranker


def fit_streams(rankers: Sequence[Any], batches: Iterable[Iterable[Mapping[str, Any]]]) -> None:
    """Fit several linear `RankRLS` in one pass; a batch has the fields of a `Batch` for each."""
    numbered = ([Batch(i, **part) for part in parts] for i, parts in enumerate(batches, 1))
    for ranker, sums in zip(rankers, _sum_streams(rankers, numbered), strict=True):
        store_learned(ranker, sums.folds[0], sums.kernel)


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


def fit_stream_cv(ranker: Any, batches: Any, basis_rows: Any = None, steps: Any = None) -> Any:
    """Fit a `RankRLSCV` to a stream of batches; ``steps`` are as for `fit_stream`."""
    grid, n_folds, scoring = check_folds(ranker)
    if scoring.name != LOSS_METRIC and hasattr(batches, "__next__"):
        raise ValueError(
            f"scoring={scoring.name!r} is computed from held-out predictions, in a second pass, "
            "and these batches can be read once: give a function that returns them from the start, "
            f"such as lambda: iter_letor(path), or use scoring={LOSS_METRIC!r}, which needs one "
            "pass"
        )
    with unchanged_on_error(ranker):
        check_terms(ranker, first=True)
        parts = ([batch] for batch in read_batches(batches))
        (sums,) = _sum_streams([ranker], parts, basis_rows, steps, n_folds)
        first = sums.folds[0]

        def score_again(W: list[Array]) -> list[Array]:
            seen, scores = SeenQueries(), list[Array]()

            def score(rows: QueryRows) -> None:
                Phi = first.features(rows.X)
                scores.append(score_queries(scoring, Phi, rows.graph(), rows.query, W))

            again = WholeQueries(seen, score, checksums=False)
            for batch in read_batches(batches):
                with named_batch(batch.number):
                    batch = batch if steps is None else steps.transform(batch)
                    X = _check_rows(ranker, batch, reset=False)
                    y, weight = check_targets(batch, X.shape[0], sums.n_outputs)
                    again.add(X, y, batch.qid, weight)
            again.end()
            before, now = (
                [(key, n) for key, (n, _) in one.queries.items()] for one in (first.seen, seen)
            )
            if before != now:
                raise ValueError(
                    f"the batches had {len(before):,} queries, and now {len(now):,}, or others; "
                    "batches that are read again must have the same rows in the same order"
                )
            return scores

        learned = choose_by_folds(ranker, sums.folds, grid, scoring, score_again)
        store_learned(ranker, learned, sums.kernel)
    return ranker


def score_queries(
    scoring: Scoring, Phi: Any, graph: PreferenceGraph, query: Array, W: list[Array]
) -> Array:
    """`Scoring.of_lists` of whole queries, rows Phi (m, n), by the models W without their folds."""
    values = np.empty((len(W[0]), Phi.shape[0], W[0].shape[2]))
    fold_of = query % len(W)
    for fold in np.unique(fold_of):
        mine = np.flatnonzero(fold_of == fold)
        rows = Phi[mine]
        for a, w in enumerate(W[fold]):
            values[a, mine] = rows @ w
    return scoring.of_lists(graph, one_fold(values))


def choose_by_folds(
    ranker: Any,
    folds: list[Learned],
    grid: Array | None,
    scoring: Scoring,
    score_again: Callable[[list[Array]], list[Array]],
) -> Learned:
    """Choose alpha from sums over folds of whole queries; returns the sums over all of them."""
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
            found = scoring.spread(*score_again(W))
        return {**found, "n_refits": np.zeros(len(alphas), dtype=np.int64)}

    best, results = search_alphas(grid, evaluate, held_out.size)
    ranker.alpha_, ranker.cv_results_ = float(results["alpha"][best]), results
    ranker.best_score_ = float(results["mean_score"][best])
    progress(f"alpha {ranker.alpha_:g}, score {ranker.best_score_:.4f}")
    return replace(folds[0], total=held_out.total(), preferences=total)
