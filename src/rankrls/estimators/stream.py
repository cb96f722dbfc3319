"""Streams of batches: whole queries, sums by folds of queries, and their held-out scores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls._calls import Progress, unchanged_on_error
from rankrls._frames import (
    check_feature_names,
    check_same_rows,
    feature_names,
    named_frame,
    take_rows,
)
from rankrls._validation import (
    check_length,
    check_scores,
    is_integer,
    label_array,
    refuse_lazy,
    show,
)
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.models import FoldStatistics
from rankrls.estimators.choosing import (
    LOSS_METRIC,
    Scoring,
    check_alphas,
    forget_choice,
    one_fold,
    search_alphas,
)
from rankrls.estimators.incremental import (
    Learned,
    add_to_folds,
    as_slice,
    check_terms,
    empty_sums,
    query_keys,
    require_learned,
    store_learned,
)

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

    def graph(self, n_rows: int) -> PreferenceGraph:
        """The checked preferences."""
        scores = check_scores(self.y, n_rows)
        return PreferenceGraph.from_scores(scores, qid=self.qid, sample_weight=self.sample_weight)


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
                if batch.get("group") is not None:
                    raise ValueError("queries of several batches need ids: give qid, not 'group'")
                parts = ("data", "target", "qid", "sample_weight", "feature_names")
                read = Batch(number, *(batch.get(part) for part in parts))
            elif isinstance(batch, tuple) and len(batch) in (2, 3):
                read = Batch(number, *batch)
            else:
                raise ValueError(f"it is a {type(batch).__name__}; a batch is {FORMS}")
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


class CheckedRows(NamedTuple):
    """Checked rows of a batch, and their preferences."""

    number: int
    X: Any
    graph: PreferenceGraph

    def take(self, rows: Any) -> CheckedRows:
        """Select rows by number, in new arrays, or by a slice."""
        return CheckedRows(self.number, take_rows(self.X, rows), self.graph[rows])


def joined(parts: Sequence[CheckedRows]) -> dict[str, Any]:
    """The rows of all parts as arguments of ``fit``; missing weights are 1."""
    X: Any = [part.X for part in parts]
    if hasattr(X[0], "columns"):
        X = nw.concat([nw.from_native(one, eager_only=True) for one in X]).to_native()
    else:
        X = stacked(X)
    graphs: list[Any] = [part.graph for part in parts]
    y, weight, qid = np.concatenate([graph.scores for graph in graphs]), None, None
    if any(graph.sample_weight is not None for graph in graphs):
        ones = (np.ones(len(g)) if g.sample_weight is None else g.sample_weight for g in graphs)
        weight = np.concatenate(list(ones))
    if len({graph.has_qid for graph in graphs}) > 1:
        raise ValueError("some batches have qid, and others do not")
    if graphs[0].has_qid:
        names = (label_array("qid", graph.query_labels)[graph.query_codes] for graph in graphs)
        qid = np.concatenate(list(names))
    return {"X": X, "y": y[:, 0] if graphs[0].flat else y, "qid": qid, "sample_weight": weight}


def stacked(parts: Sequence[Any]) -> Any:
    """Concatenate rows of dense or sparse matrices."""
    if any(map(sparse.issparse, parts)):
        return sparse.vstack([sparse.csr_array(part) for part in parts], format="csr")
    return np.concatenate(parts)


def whole_queries(batches: Iterable[CheckedRows]) -> Iterator[CheckedRows]:
    """Generate the rows of whole queries; the last query of a batch may go on in the next."""
    pieces: list[CheckedRows] = []  # of a query that may go on
    for rows in batches:
        if not rows.graph.has_qid:
            yield rows
            continue
        codes, keys = rows.graph.query_codes, query_keys(rows.graph.query_labels)
        assert codes is not None
        last, key = int(codes[-1]), query_keys(pieces[0].graph.query_labels)[0] if pieces else None
        goes_on = keys.index(key) if key in keys else -1
        if goes_on >= 0:
            pieces.append(rows.take(np.flatnonzero(codes == goes_on)))
        if goes_on != last:
            yield from _one_query(pieces)
            pieces = [rows.take(np.flatnonzero(codes == last))]
        inside = np.flatnonzero((codes != goes_on) & (codes != last))
        if len(inside):
            yield rows.take(as_slice(inside))
    yield from _one_query(pieces)


def _one_query(pieces: list[CheckedRows]) -> Iterator[CheckedRows]:
    """Join the pieces of a query, if there are any."""
    if len(pieces) < 2:
        yield from pieces
        return
    rows = joined(pieces)
    qid = [*pieces[0].graph.query_labels] * len(rows["y"])
    graph = PreferenceGraph.from_scores(rows["y"], qid=qid, sample_weight=rows["sample_weight"])
    yield CheckedRows(pieces[-1].number, rows["X"], graph)


# -- tables for AutoRanker ----------------------------------------------------------------------


def table_batches(
    batches: Any, encode: Callable[[Any], Any] | None = None
) -> Iterator[CheckedRows]:
    """Generate checked batches; arrays with feature names become tables, which are encoded."""
    names: Any = None
    first: Any = None
    for batch in read_batches(batches):
        with named_batch(batch.number):
            X = batch.X if hasattr(batch.X, "shape") else np.asarray(batch.X, dtype=object)
            if batch.names is not None and isinstance(X, np.ndarray):
                X = named_frame(X, [str(name) for name in batch.names], {})
            form = hasattr(X, "columns"), X.shape[1:]
            if first is None:
                names, first = feature_names(X), form
            check_feature_names(feature_names(X), names, "this batch")
            if form != first:
                raise ValueError(
                    f"X is a {type(X).__name__} of shape {X.shape}: give all batches the columns "
                    "and the form, frame or array, of the first"
                )
            graph = batch.graph(X.shape[0])
            rows = CheckedRows(batch.number, X if encode is None else encode(X), graph)
        yield rows


def sample_queries(batches: Any, most: int, rng: np.random.RandomState) -> dict[str, Any]:
    """Draw whole queries, of about ``most`` rows together, or rows; returns arguments of ``fit``.

    Each query has a random number, and those with the smallest numbers are kept.
    """
    kept: list[tuple[CheckedRows, Array]] = []  # rows and their random numbers
    limit, last, number = np.inf, "", 0.0

    def smallest() -> tuple[float, list[tuple[CheckedRows, Array]]]:
        numbers = np.sort(np.concatenate([drawn for _, drawn in kept]))
        limit = float(numbers[most]) if len(numbers) > most else np.inf
        some = ((rows, drawn, np.flatnonzero(drawn < limit)) for rows, drawn in kept)
        return limit, [(rows.take(few), drawn[few]) for rows, drawn, few in some if len(few)]

    for rows in table_batches(batches):
        graph, codes = rows.graph, rows.graph.query_codes
        drawn = rng.random_sample(graph.n_queries if graph.has_qid else len(graph))
        if graph.has_qid:
            assert codes is not None
            keys = query_keys(graph.query_labels)
            if last in keys:  # the last query of the batch before goes on
                drawn[keys.index(last)] = number
            last, number = keys[codes[-1]], drawn[codes[-1]]
            drawn = drawn[codes]
        few = np.flatnonzero(drawn < limit)
        if len(few):
            kept.append((rows.take(few), drawn[few]))
        if sum(len(drawn) for _, drawn in kept) > 2 * most:
            limit, kept = smallest()
    if not kept:
        raise ValueError("there is no batch with rows to learn from")
    return joined([rows for rows, _ in smallest()[1]])


# -- sums -------------------------------------------------------------------------------------


def require_addition(loss: Loss, parts: str) -> None:
    """Refuse a cost with which the parts of one ranking cannot be added up."""
    if not loss.keeps_ties:
        raise ValueError(
            f"it has no qid, so that all {parts} are one ranking, in which a row is compared with "
            f"rows of other {parts}: that needs cost='magnitude' and ties='keep', and cost is "
            f"{loss.cost.name!r}, ties {loss.ties!r}. Give qid, or fit all rows at once"
        )


def _record(learned: Learned, graph: PreferenceGraph, X: Any) -> None:
    """Record queries, which must be new; the parts of one ranking are recorded at its end."""
    if graph.has_qid:
        learned.seen.check_new(
            query_keys(graph.query_labels),
            "comes back after its rows had ended in an earlier batch. Only the last query of a "
            "batch may go on in the next one: sort the data by query",
        )
        learned.seen.add_graph(graph, X)
    learned.seen.weighted |= graph.sample_weight is not None


class StreamSums:
    """Sums of batches for a ranker, in folds of whole queries: each fold takes one in turn.

    ``steps`` transform batches before (`rankrls.streaming`). The first of the ``folds``, which are
    `Learned`, has the queries of all.
    """

    def __init__(
        self, ranker: Any, n_folds: int = 1, basis_rows: Any = None, steps: Any = None
    ) -> None:
        self.ranker, self.steps, self.kernel = ranker, steps, check_terms(ranker, first=True)
        self.folds: list[Learned] = []
        self._n_folds, self._basis_rows = n_folds, basis_rows
        self._progress = Progress(type(ranker).__name__, ranker.verbose)
        self.names: Array | None = None  # of features, given beside arrays
        self._n_rows = self.n_queries = 0

    def check(self, batch: Batch, *, again: bool = False) -> CheckedRows:
        """Check a batch; the first one decides on features, outputs and the basis."""
        with named_batch(batch.number):
            by_row = {"qid": batch.qid, "sample_weight": batch.sample_weight}
            check_same_rows(batch.X, y=batch.y, **by_row)
            ranker, X, first = self.ranker, batch.X, not self.folds
            if self.steps is not None:
                X = self.steps.transform(batch) if again else self.steps.learn(batch)
            X = ranker._check_rows(X, reset=first)
            self._check_names(batch.names, X.shape[1])
            graph = batch.graph(X.shape[0])
            if first:
                if not graph.has_qid:
                    if self._n_folds > 1:
                        raise ValueError("it has no qid, and folds are of whole queries")
                    require_addition(ranker._loss, "batches")
                data = (self.kernel, X, graph, self._basis_rows, self._n_folds, graph.has_qid)
                self.folds = empty_sums(ranker, *data)
            n_outputs = len(self.folds[0].preferences)
            if graph.n_outputs != n_outputs:
                raise ValueError(
                    f"y has {graph.n_outputs} output(s), and {n_outputs} in the first batch"
                )
            if graph.has_qid == (self.folds[0].ranking is not None):
                has, had = ("a", "none") if graph.has_qid else ("no", "one")
                raise ValueError(
                    f"it has {has} qid, and the first batch had {had}: give all or none"
                )
        if not again:
            self._n_rows += graph.n_rows
            self._progress(f"batch {batch.number}: {self._n_rows:,} rows so far")
        return CheckedRows(batch.number, X, graph)

    def _check_names(self, names: Any, n: int) -> None:
        """Store the names of features that the first batch has beside an array, or compare."""
        if names is None:
            return
        check_length("feature_names", names, n, "columns")
        owner = self.ranker if self.steps is None else self.steps.steps[0]
        known = getattr(owner, "feature_names_in_", self.names)
        if self.folds or known is not None:
            check_feature_names(names, known, "this batch")
            return
        self.names = np.array([str(name) for name in names], dtype=object)
        if self.steps is None:
            owner.feature_names_in_, owner._names_beside = self.names, True

    def add(self, rows: CheckedRows) -> None:
        """Add rows of whole queries."""
        X, graph = rows.X, rows.graph
        with named_batch(rows.number):
            _record(self.folds[0], graph, X)
            several = len(self.folds) > 1
            fold_of = self.number(graph) % len(self.folds) if several else None
            add_to_folds(self.folds, graph, X, fold_of, self.ranker._loss)

    def number(self, graph: PreferenceGraph) -> Array:
        """Number the queries in the order of the stream; returns the number of each row's."""
        codes, numbers = graph.query_codes, np.empty(graph.n_queries, dtype=np.int64)
        assert codes is not None
        in_order = np.argsort(np.unique(codes, return_index=True)[1])
        numbers[in_order] = self.n_queries + np.arange(len(in_order))
        self.n_queries += len(in_order)
        return numbers[codes]

    def finish(self) -> None:
        """Complete the sums, in the scale of all rows."""
        if not self.folds:
            raise ValueError("there is no batch with rows to learn from")
        first, n_folds = self.folds[0], len(self.folds)
        first.end_ranking(self.ranker._loss)
        if (n_queries := first.seen.n_queries) < n_folds:
            raise ValueError(
                f"cv={n_folds} folds of {n_queries} queries: it must be from 2 to {n_queries}"
            )
        require_learned(self.folds)
        if self.steps is not None and (rescaling := self.steps.rescaling()) is not None:
            for fold in self.folds:
                fold.rescale(*rescaling)
        n_pairs = sum(fold.n_pairs for fold in self.folds)
        self._progress(f"{self._n_rows:,} rows, {n_pairs:,} pairs: solving")


def fit_stream(ranker: Any, batches: Any, basis_rows: Any = None, steps: Any = None) -> Any:
    """Fit a `RankRLS` or `RankRLSCV` to a stream of batches, which ``steps`` transform before."""
    n_folds, chooses = 1, hasattr(ranker, "alphas")
    if chooses:
        grid, n_folds, scoring = check_folds(ranker)
        if scoring.name != LOSS_METRIC and hasattr(batches, "__next__"):
            raise ValueError(
                f"scoring={scoring.name!r} is computed from held-out predictions, in a second "
                "pass, and these batches can be read once: give a function that returns them from "
                f"the start, such as lambda: iter_letor(path), or use scoring={LOSS_METRIC!r}, "
                "which needs one pass"
            )
    with unchanged_on_error(ranker):
        sums = StreamSums(ranker, n_folds, basis_rows, steps)
        for rows in whole_queries(map(sums.check, read_batches(batches))):
            sums.add(rows)
        sums.finish()
        learned = sums.folds[0]

        def score_again(W: list[Array]) -> list[Array]:
            scores, now = list[Array](), list[tuple[str, int]]()
            sums.n_queries = 0
            for rows in whole_queries(
                sums.check(batch, again=True) for batch in read_batches(batches)
            ):
                graph = rows.graph
                assert graph.query_codes is not None
                counts = np.bincount(graph.query_codes).tolist()
                now += zip(query_keys(graph.query_labels), counts, strict=True)
                Phi = learned.features(rows.X)
                with named_batch(rows.number):
                    scores.append(score_queries(scoring, Phi, graph, sums.number(graph), W))
            before = [(key, n) for key, (n, _) in learned.seen.queries.items()]
            if before != now:
                raise ValueError(
                    f"the batches had {len(before):,} queries, and now {len(now):,}, or others; "
                    "batches that are read again must have the same rows in the same order"
                )
            return scores

        if chooses:
            forget_choice(ranker)
            learned = choose_by_folds(ranker, sums.folds, grid, scoring, score_again)
        store_learned(ranker, learned, sums.kernel)
    if steps is not None and sums.names is not None:
        steps.steps[0].feature_names_in_ = sums.names
    return ranker


def fit_streams(
    rankers: Sequence[Any], batches: Iterable[Iterable[tuple[Array, PreferenceGraph]]]
) -> None:
    """Fit several linear `RankRLS` in one pass; a batch has rows of whole queries for each."""
    sums: dict[int, Learned] = {}
    for number, parts in enumerate(batches, 1):
        for k, (ranker, (X, graph)) in enumerate(zip(rankers, parts, strict=True)):
            if k not in sums:
                ranker.n_features_in_ = X.shape[1]
                shape = X.dtype, graph.n_outputs, graph.flat, graph.has_qid
                sums[k] = Learned.nothing(X.shape[1], None, *shape)
            with named_batch(number):
                _record(sums[k], graph, X)
                sums[k].add(graph, X, ranker._loss)
    for ranker, learned in zip(rankers, sums.values(), strict=True):
        learned.end_ranking(ranker._loss)
        require_learned([learned])
        store_learned(ranker, learned, ranker._check_options())


# -- folds ------------------------------------------------------------------------------------


def check_folds(ranker: Any) -> tuple[Array | None, int, Scoring]:
    """Grid, number of folds and scoring of a RankRLSCV whose rows come in parts."""
    if np.ndim(ranker.gamma) or ranker.store_cv_predictions:
        raise ValueError("rows in parts allow one gamma, and no stored predictions; use fit")
    grid = None if ranker.alphas is None else check_alphas("alphas", ranker.alphas)
    n_folds, cv = AUTO_FOLDS, ranker.cv
    if not (isinstance(cv, str) and cv == "auto"):
        if not is_integer(cv) or cv < 2:
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
    dtype = np.result_type(*(fold.dtype for fold in folds))
    return replace(folds[0], total=held_out.total(), preferences=total, dtype=dtype)
