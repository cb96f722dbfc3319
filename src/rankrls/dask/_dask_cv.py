"""``rankrls.dask.RankRLSCV``: choose alpha with folds of whole queries, on the workers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from rankrls import _resources, estimators
from rankrls._calls import Progress, names_queries, unchanged_on_error
from rankrls._validation import show
from rankrls.core.linalg.krylov import History
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.fold_statistics import FoldStatistics
from rankrls.core.ridge.models import solve_statistics
from rankrls.core.ridge.residuals import HeldOut
from rankrls.core.spaces.spaces import Kernel
from rankrls.dask._dask_ranker import MAX_PRIMAL_FEATURES, DaskRanker, LazyRows, refuse_pairs
from rankrls.dask._partitioned_problem import PartitionedProblem
from rankrls.dask._tasks import Tasks
from rankrls.dask._work import Loader
from rankrls.estimators.choosing import (
    LOSS_METRIC,
    ListScores,
    Scoring,
    check_alphas,
    random_folds,
    search_alphas,
)
from rankrls.estimators.cv import chosen_alpha
from rankrls.estimators.stream import check_folds

__all__ = ["RankRLSCV"]

Array = NDArray[Any]

#: Report of a partition: scores of its local queries; for the rows of crossing queries, the query,
#: predictions and labels.
Report = tuple[ListScores, Array, Array, Array]


class RankRLSCV(DaskRanker, estimators.RankRLSCV):
    """RankRLS on Dask with alpha chosen by cross-validation over queries.

    Every held-out prediction equals that of a model refitted without its fold. The workers sum
    n_features × n_features statistics for each fold, and the models for all alphas are computed
    from them.

    Parameters
    ----------
    alphas, cost, ties, query_weighting, random_state, verbose, …
        See `rankrls.RankRLSCV`. The kernel is linear and the solver is "primal".
    cv : int or "auto", default="auto"
        Number of folds of whole queries; "auto" means 5. The folds are the same as those of
        `rankrls.RankRLSCV` with the same ``cv`` (a number) and ``random_state``.
    scoring : str, default="pairwise_accuracy"
        "pairwise_r2" is computed from the statistics, so that X is read once. Other metrics
        ("pairwise_accuracy", "ndcg@10", …) are computed on the workers from held-out predictions.
        This takes a second pass over X, and a third one if the default grid is extended. For
        queries that span several partitions, the predictions for all alphas are sent to the client.
        "concordance_index" and functions are not supported.

    Notes
    -----
    Communication is that of ``rankrls.dask.RankRLS`` with solver "primal", with one matrix per
    fold.

    Examples
    --------
    >>> import dask.array as da
    >>> from rankrls.datasets import make_ranking
    >>> from rankrls.dask import RankRLSCV
    >>> X, y, qid = make_ranking(n_queries=50, random_state=0, return_X_y_qid=True)
    >>> X = da.from_array(X, chunks=(100, -1))
    >>> ranker = RankRLSCV(cv=5, scoring="pairwise_r2", random_state=0).fit(X, y, qid=qid)
    >>> bool(ranker.best_score_ > 0.3)
    True
    >>> type(ranker.to_local())
    <class 'rankrls.estimators.cv.RankRLSCV'>
    """

    @names_queries
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        pairs: Any = None,
        magnitude: Any = None,
        pair_weight: Any = None,
        pair_features: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        eval_set: Any = None,
        callback: Any = None,
    ) -> RankRLSCV:
        """Choose alpha by cross-validation over queries and fit on all rows.

        Parameters
        ----------
        X, y, qid, sample_weight
            As for ``rankrls.dask.RankRLS``; qid is required.
        pairs, magnitude, pair_weight, pair_features, groups, eval_set, callback
            Not supported.

        Returns
        -------
        RankRLSCV
            The fitted estimator.
        """
        refuse_pairs(
            pairs=pairs,
            magnitude=magnitude,
            pair_weight=pair_weight,
            pair_features=pair_features,
            groups=groups,
        )
        if eval_set is not None or callback is not None or self.early_stopping:
            raise ValueError(
                "eval_set, callback and early_stopping: rankrls.dask.RankRLSCV holds out folds of "
                "whole queries; leave these away, or use rankrls.dask.RankRLS with early_stopping"
            )
        with unchanged_on_error(self):
            self._fit(X, y, qid, sample_weight)
        return self

    def _fit(self, X: Any, y: Any, qid: Any, sample_weight: Any, *, scaler: Any = None) -> Any:
        """Fit, and return the fitted scaler, if there is one."""
        if qid is None:
            raise ValueError("folds are of whole queries: give qid")
        grid = None if self.alphas is None else check_alphas("alphas", self.alphas)
        n_folds = check_folds(self)[1]
        kernel = self._check_options()
        scoring = Scoring(self.scoring, self._loss)
        scoring.require_scores()
        if scoring.name != LOSS_METRIC and not scoring.by_list:
            raise ValueError(
                f"scoring={show(scoring.name or scoring.metric)} needs the predictions of all "
                f"queries in one place: use {LOSS_METRIC!r}, 'pairwise_accuracy', or a list metric "
                "such as 'ndcg@10'"
            )
        progress = Progress("dask.RankRLSCV", self.verbose)
        rows = self._take_rows(X, y, qid, sample_weight, progress, scaler)
        n = int(self.n_features_in_)
        if self.solver == "auto" and n > MAX_PRIMAL_FEATURES:
            raise ValueError(
                f"X has {n:,} features: statistics of more than {MAX_PRIMAL_FEATURES:,} are made "
                "only with solver='primal'; or use rankrls.dask.RankRLS with solver='cg'"
            )
        advice = "use rankrls.dask.RankRLS with solver='cg', or fewer features"
        _resources.require("cross-validation", n, n, copies=n_folds + 4, advice=advice)
        fold_of = self._fold_of(rows.preferences.crossing.n_queries, n_folds)
        problems = [
            PartitionedProblem(
                rows.preferences.of_queries(fold_of == fold), rows.X, rows.dtype, n, whole=False
            )
            for fold in range(n_folds)
        ]
        counts = [problem.plan.n_preferences for problem in problems]
        total = np.sum(counts, axis=0)
        rows.preferences.require(total > 0)
        progress(f"statistics of {n_folds} folds of queries")
        with np.errstate(over="ignore", invalid="ignore"):  # the solvers reject overflow
            sums = PartitionedProblem.statistics_of(problems, rows.scaling)
            held_out = FoldStatistics(sums, scaled=True)
            for part in (part for fold in held_out.folds for part in fold):
                part.require_finite()

            def evaluate(alphas: Array) -> dict[str, Array]:
                progress(f"{len(alphas)} alphas, {n_folds} folds of queries")
                if scoring.name == LOSS_METRIC:
                    found = {"mean_score": held_out.explained_part(alphas).mean(axis=1)}
                else:
                    found = _scores(rows.again(), n, scoring, held_out, fold_of, alphas)
                return {**found, "n_refits": np.zeros(len(alphas), dtype=np.int64)}

            best, results = search_alphas(grid, evaluate, held_out.size)
            self.__dict__.update(chosen_alpha(best, results))
            progress(f"alpha {self.alpha_:g}, score {self.best_score_:.4f}")
            statistics = held_out.total()
            self.n_pairs_ = sum(part.n_pairs * len(part.outputs) for part in statistics)
            alpha = np.array([self.alpha_])
            names = getattr(self, "feature_names_in_", None)
            self._model = solve_statistics(statistics, None, alpha, rows.dtype, names)
        self.n_iter_ = 1
        self._store_validation(History(n_iter=1))
        self._store_rows(kernel, rows, "primal", total)
        return rows.scaler

    def _check_options(self) -> Kernel:
        kernel = super()._check_options()
        if not kernel.linear or self.basis is not None or self.solver not in ("auto", "primal"):
            raise ValueError(
                "rankrls.dask.RankRLSCV works on statistics of features: leave kernel='linear', "
                "solver='auto' and basis=None; for others use rankrls.dask.RankRLS with one alpha"
            )
        return kernel

    def _fold_of(self, n_queries: int, n_folds: int) -> Array:
        """Return the fold of every query as in `rankrls.RankRLSCV`, shape (n_queries,)."""
        if n_folds > n_queries:
            raise ValueError(
                f"cv={n_folds} folds of {n_queries} queries: it must be from 2 to {n_queries}"
            )
        fold_of = np.empty(n_queries, dtype=np.int64)
        rng = check_random_state(self.random_state)
        for number, fold in enumerate(random_folds(n_queries, n_folds, rng, what="queries")):
            fold_of[fold] = number
        return fold_of


def _scores(
    rows: LazyRows,
    n_features: int,
    scoring: Scoring,
    held_out: FoldStatistics,
    fold_of: Array,
    alphas: Array,
) -> dict[str, Array]:
    """Score every query with the models fitted without its fold, in one pass over X."""
    preferences = rows.preferences
    n_folds, n_outputs = len(held_out.folds), held_out.n_outputs
    W = [held_out.weights_without(fold, alphas) for fold in range(n_folds)]
    tasks = Tasks(rows.X.graph, preferences.graph)
    weights = tasks.give("weights", W)
    scores = ListScores(scoring, len(alphas), n_outputs)
    places = zip(preferences.used, preferences.crossing.numbers, preferences.crossing.codes,
                 strict=True)  # fmt: skip
    reports: list[Report] = tasks.compute(
        (
            tasks.add(
                "scores",
                partial(
                    _report,
                    Loader(i, rows.dtype, n_features, preferences.lengths[i]),
                    numbers,
                    fold_of[codes],
                    scores,
                ),
                rows.X.blocks[i],
                preferences.keys[i],
                weights,
            )
            for i, numbers, codes in places
        ),
        large=True,
    )
    for report in reports:
        scores.merge(report[0])
    query, labels = (np.concatenate([report[part] for report in reports]) for part in (1, 3))
    if len(query):
        values = np.concatenate([report[2] for report in reports], axis=1)
        _add(scores, PreferenceGraph.from_scores(labels, qid=query), values)
    return scores.spread()


def _report(
    load: Loader,
    numbers: Array,
    folds: Array,
    none: ListScores,
    blocks: list[Any],
    graph: PreferenceGraph,
    W: list[Array],
) -> Report:
    """Return the scores of the local queries of a partition, and the rows of crossing queries."""
    X = load(blocks)
    assert graph.scores is not None
    fold = folds[graph.query_codes]
    values = np.empty((len(W[0]), len(fold), W[0].shape[2]))
    for number in np.unique(fold):
        mine = np.flatnonzero(fold == number)
        Phi = X[mine]
        for a, w in enumerate(W[number]):
            values[a, mine] = Phi @ w
    crossing = numbers[graph.query_codes]
    here, there = np.flatnonzero(crossing < 0), np.flatnonzero(crossing >= 0)
    scores = ListScores(none.scoring, *values.shape[::2])
    if len(here):
        assert graph.query_codes is not None
        own = PreferenceGraph.from_scores(graph.scores[here], qid=graph.query_codes[here])
        _add(scores, own, values[:, here])
    return scores, crossing[there], values[:, there], graph.scores[there]


def _add(scores: ListScores, graph: PreferenceGraph, values: Array) -> None:
    every = np.arange(graph.n_rows)
    scores.add(graph, HeldOut([every], values, np.zeros(len(values), dtype=np.int64)))
