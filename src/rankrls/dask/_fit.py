"""Fits of local rankers to rows on the workers: sums over parts of whole queries, or products.

The statistics of parts are added in a tree, and the ranker is solved from their sum, as it is from
batches (`rankrls.estimators.stream`).
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from rankrls import _resources
from rankrls._calls import Progress, warn
from rankrls._frames import clear_errors, id_text, most_unequal, scale_text
from rankrls._validation import check_option
from rankrls.core.linalg.krylov import converge, stop_early
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.statistics import UNDERFLOW, RankingStatistics, add_batch
from rankrls.core.ridge.iterative import LinearSystem
from rankrls.core.ridge.models import FittedFunction, join_outputs
from rankrls.core.spaces.products import Offsets, Products
from rankrls.core.spaces.spaces import DEFAULT_BASIS, Basis, Kernel, choose_basis
from rankrls.dask import _partitions
from rankrls.dask._scaling import Scaling
from rankrls.dask._tasks import Tasks
from rankrls.dask._whole_queries import DistributedRows
from rankrls.estimators.choosing import ListScores, Scoring, check_eval_set, random_folds
from rankrls.estimators.incremental import Learned, store_learned
from rankrls.estimators.ranker import graph_accuracy
from rankrls.estimators.stream import (
    check_folds,
    choose_by_folds,
    require_addition,
    score_queries,
)
from rankrls.exceptions import FeatureScaleWarning, IdColumnWarning

__all__ = ["check_columns", "fit_cv", "fit_ranker"]

Array = NDArray[Any]

SOLVERS = ("auto", "primal", "nystroem", "cg")

#: Up to this number of features, ``solver="auto"`` forms the n × n matrix (128 MiB a partition).
MAX_PRIMAL_FEATURES = 4096


def check_columns(ranker: Any, X: Any, *, reset: bool = False) -> None:
    """Check, or store, the number and names of the columns of a Dask array or data frame."""
    like = _partitions.like(X)
    with clear_errors(like):
        validate_data(ranker, like, reset=reset, skip_check_array=True)


def _take(
    ranker: Any, X: Any, y: Any, qid: Any, weight: Any, progress: Progress
) -> tuple[DistributedRows, bool]:
    """Check the arguments of ``fit``; returns rows, and whether y is a vector."""
    features, dtype = _partitions.features(X)
    check_columns(ranker, X, reset=True)
    n = int(ranker.n_features_in_)
    if n == 0:
        raise ValueError("X has no columns: 0 feature(s), while a minimum of 1 is required")
    ids = _partitions.columns_named_as_ids(X)
    if ids:
        warn(id_text(ids, getattr(ranker, "feature_names_in_", None)), IdColumnWarning)
    y, qid, weight, flat = _partitions.preferences(X, features, y, qid, weight)
    rows = DistributedRows(features, dtype, n, y, qid, weight)
    progress(
        f"{rows.n_rows:,} rows in {len(rows.lengths)} partitions, {rows.n_queries:,} queries, "
        f"{rows.n_crossing:,} of them in several partitions"
    )
    if not rows.with_qid:
        require_addition(ranker._loss, "partitions")
    return rows, flat


def _check_options(ranker: Any) -> Kernel:
    if ranker.solver == "dual":
        raise ValueError(
            "solver='dual' needs a matrix of n_rows × n_rows: with Dask use 'primal' or 'cg' "
            "(kernel='linear'), or 'nystroem'"
        )
    check_option("solver", ranker.solver, SOLVERS)
    kernel: Kernel = ranker._check_options()
    if kernel.precomputed:
        raise ValueError(
            "kernel='precomputed' is a matrix of n_rows × n_rows: with Dask give the rows and a "
            "named kernel or a callable"
        )
    return kernel


def fit_ranker(
    ranker: Any,
    X: Any,
    y: Any,
    qid: Any,
    sample_weight: Any,
    *,
    scaler: Any = None,
    eval_set: Any = None,
    callback: Any = None,
    persist: bool = True,
) -> Any:
    """Fit a `RankRLS`; returns the fitted scaler, if there is one."""
    alphas = np.array([ranker._check_alpha("alpha", ranker.alpha)])
    kernel = _check_options(ranker)
    if (eval_set is None) == bool(ranker.early_stopping):
        raise ValueError(
            "eval_set=(X_val, y_val, qid_val), in memory, and early_stopping=True go together"
        )
    progress = Progress("dask.RankRLS", ranker.verbose)
    rows, flat = _take(ranker, X, y, qid, sample_weight, progress)
    solver = _choose_solver(ranker, kernel)
    progress(f"solver {solver}")
    if scaler is not None and solver != "primal":
        raise ValueError(
            f"{type(scaler).__name__} before solver={solver!r}: scales change the sums that "
            "solver='primal' has; use it, or scale the features before"
        )
    if solver == "cg" and not rows.with_qid:
        raise ValueError(
            "solver='cg' needs qid: without it use solver='primal', or 'nystroem' with a basis"
        )
    if solver == "cg":
        iteration = ranker._iteration(progress, callback)
        _fit_cg(ranker, rows, flat, alphas, iteration, eval_set, persist)
        return None
    basis = None
    if solver == "nystroem":
        random_state = check_random_state(ranker.random_state)
        indices = choose_basis(ranker.basis, rows.n_rows, random_state)
        advice = "use fewer basis vectors"
        size = len(indices)
        _resources.require("solver='nystroem'", size, size, copies=4, advice=advice)
        basis = Basis.from_rows(kernel, rows.take(indices), indices)
        progress(f"{size:,} basis vectors gathered")
    scaling = None if scaler is None else Scaling(scaler, rows)
    (learned,), trace = _sum(ranker, rows, flat, basis, scaling)
    rows.require(learned.preferences > 0)
    store_learned(ranker, learned, kernel)
    if solver == "primal" and scaling is None:
        _warn_about_scales(ranker, trace)
    progress("solved")
    return None if scaling is None else scaling.scaler


def _choose_solver(ranker: Any, kernel: Kernel) -> str:
    solver, n = ranker.solver, int(ranker.n_features_in_)
    if solver == "auto":
        if ranker.early_stopping:
            solver = "cg"
        elif ranker.basis is not None:
            solver = "nystroem"
        elif kernel.linear:
            solver = "primal" if n <= MAX_PRIMAL_FEATURES else "cg"
        else:
            solver = "nystroem"
            warn(
                f"solver='nystroem', an approximation with {DEFAULT_BASIS} random basis vectors, "
                "is used; set basis= to say how many",
            )
    if ranker.early_stopping and solver != "cg":
        raise ValueError(f"early_stopping belongs to solver='cg'; got solver={solver!r}")
    if solver in ("primal", "cg") and not kernel.linear:
        raise ValueError(
            f"solver={solver!r} works on explicit features and needs kernel='linear'; with "
            f"kernel={kernel.name} use solver='nystroem'"
        )
    if ranker.basis is not None and solver != "nystroem":
        raise ValueError(f"basis belongs to solver='nystroem'; got solver={solver!r}")
    if solver == "primal":
        advice = "use solver='cg', fewer features, or solver='nystroem' with basis=1000, say"
        _resources.require("solver='primal'", n, n, copies=2, advice=advice)
    return solver


# -- sums -------------------------------------------------------------------------------------


def _sum(
    ranker: Any,
    rows: DistributedRows,
    flat: bool,
    basis: Basis | None = None,
    scaling: Scaling | None = None,
    fold_of: Array | None = None,
) -> tuple[list[Learned], float]:
    """Return the sums over all rows, or over each fold of queries, and the trace of L.

    All are computed in one pass over X.
    """
    tasks = rows.tasks()
    shape = (rows.n_features, rows.n_outputs, rows.dtype, flat)
    extras = [tasks.give("basis", basis), tasks.give("folds", fold_of)]
    if rows.with_qid:
        parts = rows.parts(tasks, partial(_part_sums, shape, ranker._loss), *extras)
        total = tasks.tree("sum", _add_sums, parts)
    else:
        merged = tasks.tree("sum", _add_rankings, rows.parts(tasks, _part_ranking, *extras))
        total = tasks.add("sum", partial(_ranking_sums, shape, ranker._loss), merged, *extras)
    (sums, trace), *fitted = tasks.compute(
        [total, *([] if scaling is None else scaling.keys(tasks))], large=basis is not None
    )
    if scaling is not None:
        scaling.fit(fitted, sums)
    sums[0].seen = rows.seen()
    return sums, trace


def _nothing(shape: tuple[Any, ...], basis: Basis | None) -> Learned:
    n, n_outputs, dtype, flat = shape
    return Learned.nothing(n, basis, dtype, n_outputs, flat)


def _part_sums(
    shape: tuple[Any, ...],
    loss: Loss,
    X: Any,
    graph: PreferenceGraph,
    query: Array,
    basis: Basis | None,
    fold_of: Array | None,
) -> tuple[list[Learned], float]:
    """Return the sums over one part, for each fold, and the trace of L of the first outputs."""
    trace = float(graph.objectives(loss)[0].laplacian.degree().sum())
    n_folds = 1 if fold_of is None else int(fold_of.max()) + 1
    sums = [_nothing(shape, basis) for _ in range(n_folds)]
    if fold_of is None:
        sums[0].add(graph, X, loss)
        return sums, trace
    fold = fold_of[query]
    for number in np.unique(fold):
        mine = np.flatnonzero(fold == number)
        sums[number].add(graph[mine], X[mine], loss)
    return sums, trace


@np.errstate(over="ignore", invalid="ignore")
def _add_sums(parts: list[tuple[list[Learned], float]]) -> tuple[list[Learned], float]:
    """Add the sums of parts, fold by fold."""
    totals = [learned.copy() for learned in parts[0][0]]
    for part, _ in parts[1:]:
        for total, other in zip(totals, part, strict=True):
            total.total = add_batch(total.total, other.total)
            total.preferences = total.preferences + other.preferences
    return totals, sum(trace for _, trace in parts)


def _part_ranking(
    X: Any, graph: PreferenceGraph, query: Array, basis: Basis | None, fold_of: Any
) -> RankingStatistics:
    """Return the moments of one part of one ranking."""
    assert graph.scores is not None
    Phi = X if basis is None else basis.features(X)
    return RankingStatistics.of(Phi, graph.scores, graph.sample_weight)


def _add_rankings(parts: list[RankingStatistics]) -> RankingStatistics:
    return reduce(RankingStatistics.merge, deepcopy(parts))


def _ranking_sums(
    shape: tuple[Any, ...],
    loss: Loss,
    ranking: RankingStatistics,
    basis: Basis | None,
    fold_of: Any,
) -> tuple[list[Learned], float]:
    learned, trace = _nothing(shape, basis), 0.0
    learned.preferences = learned.preferences + ranking.n_preferences
    if ranking.total is not None:
        learned.total = [ranking.statistics(loss.query_weighting)]
        kappa = ranking.kappa(loss.query_weighting)
        trace = float(2 * kappa / ranking.total.mass * ranking.edge_weight)
    return [learned], trace


def _warn_about_scales(ranker: Any, trace: float) -> None:
    """Warn about unequal scales. A variance is half the mean squared difference of pairs."""
    solver = ranker._model.solvers[0]
    scale = np.sqrt(solver.largest / trace)
    scale[scale <= 64 * solver.rounding * np.abs(solver.mean)] = 0.0  # constant in each query
    scales = most_unequal(scale)
    if scales is not None:
        remedy = (
            "scale them on the workers by rankrls.dask.fit(make_pipeline(StandardScaler(), "
            f"rankrls.{type(ranker).__name__}()), X, y, qid=qid)"
        )
        names = getattr(ranker, "feature_names_in_", None)
        warn(scale_text(scales, names, remedy), FeatureScaleWarning)


# -- cross-validation -------------------------------------------------------------------------


def fit_cv(ranker: Any, X: Any, y: Any, qid: Any, sample_weight: Any, *, scaler: Any = None) -> Any:
    """Fit a `RankRLSCV`; returns the fitted scaler, if there is one."""
    if qid is None:
        raise ValueError("folds are of whole queries: give qid")
    grid, n_folds, scoring = check_folds(ranker)
    kernel = _check_options(ranker)
    if not kernel.linear or ranker.basis is not None or ranker.solver not in ("auto", "primal"):
        raise ValueError(
            "rankrls.dask.RankRLSCV works on statistics of features: leave kernel='linear', "
            "solver='auto' and basis=None; for others use rankrls.dask.RankRLS with one alpha"
        )
    progress = Progress("dask.RankRLSCV", ranker.verbose)
    rows, flat = _take(ranker, X, y, qid, sample_weight, progress)
    n = rows.n_features
    if ranker.solver == "auto" and n > MAX_PRIMAL_FEATURES:
        raise ValueError(
            f"X has {n:,} features: statistics of more than {MAX_PRIMAL_FEATURES:,} are made "
            "only with solver='primal'; or use rankrls.dask.RankRLS with solver='cg'"
        )
    advice = "use rankrls.dask.RankRLS with solver='cg', or fewer features"
    _resources.require("cross-validation", n, n, copies=n_folds + 4, advice=advice)
    n_queries = rows.n_queries
    if n_folds > n_queries:
        raise ValueError(
            f"cv={n_folds} folds of {n_queries} queries: it must be from 2 to {n_queries}"
        )
    fold_of = np.empty(n_queries, dtype=np.int64)
    rng = check_random_state(ranker.random_state)
    for number, fold in enumerate(random_folds(n_queries, n_folds, rng, what="queries")):
        fold_of[fold] = number
    progress(f"statistics of {n_folds} folds of queries")
    scaling = None if scaler is None else Scaling(scaler, rows)
    sums, trace = _sum(ranker, rows, flat, None, scaling, fold_of)
    rows.require(np.sum([learned.preferences for learned in sums], axis=0) > 0)

    def score_again(W: list[Array]) -> ListScores:
        """Score every query with the models fitted without its fold, in one pass over X."""
        tasks = rows.tasks()
        extras = (tasks.give("weights", W), tasks.give("folds", fold_of))
        parts = rows.parts(tasks, partial(_part_scores, scoring), *extras)
        first, *others = tasks.compute(parts, large=True)
        for other in others:
            first.merge(other)
        return first

    with np.errstate(over="ignore", invalid="ignore"):  # the solvers reject overflow
        learned = choose_by_folds(ranker, sums, grid, scoring, score_again)
        store_learned(ranker, learned, kernel)
    if scaling is None:
        _warn_about_scales(ranker, trace)
        return None
    return scaling.scaler


def _part_scores(
    scoring: Scoring, X: Any, graph: PreferenceGraph, query: Array, W: list[Array], fold_of: Array
) -> ListScores:
    scores = ListScores(scoring, len(W[0]), W[0].shape[2])
    score_queries(scores, X, graph, fold_of[query], W)
    return scores


# -- conjugate gradients ----------------------------------------------------------------------


class _System(NamedTuple):
    """Rows of one part, kept for many products: one system for each group of outputs."""

    systems: list[LinearSystem]
    n_pairs: list[int]
    preferences: Array


class _Summary(NamedTuple):
    """By output: C, approximate diagonal of G, numbers of edges and preferences, group."""

    cross: Array
    squares: Array
    n_pairs: Array
    preferences: Array
    groups: Array


def _fit_cg(
    ranker: Any,
    rows: DistributedRows,
    flat: bool,
    alphas: Array,
    iteration: Any,
    eval_set: Any,
    persist: bool,
) -> None:
    tasks = rows.tasks()
    keys = rows.parts(tasks, partial(_part_system, ranker._loss))
    # Rows that were brought together are always kept in memory.
    moved = [key for key in keys if "together" in key[0]]
    kept = tasks.persist(keys if persist else moved)
    graph = kept if persist else tasks.graph | kept
    tasks = Tasks(graph)
    parts = [tasks.add("summary", partial(_summary, rows.n_outputs), key) for key in keys]
    summary: _Summary = tasks.compute([tasks.tree("sum", _add_summaries, parts)])[0]
    rows.require(summary.preferences > 0)
    if not summary.squares.any():
        raise ValueError(UNDERFLOW)
    outputs = [np.flatnonzero(summary.groups == g) for g in np.unique(summary.groups)]
    systems = [_DistributedEquations(graph, keys, part, summary, rows) for part in outputs]
    with np.errstate(over="ignore", invalid="ignore"):
        if eval_set is None:
            W, history = converge(systems, alphas, iteration)
        else:
            X_val, held = check_eval_set(
                eval_set, ranker._check_rows, has_qid=True, n_outputs=rows.n_outputs
            )
            score = partial(graph_accuracy, held)
            W, history = stop_early(
                systems, alphas, iteration, Products(X_val), score, rows.n_outputs
            )
    for name in ("_seen", "_preferences", "_learned_with", "_pending"):
        ranker.__dict__.pop(name, None)
    coef = join_outputs(outputs, W).astype(rows.dtype, copy=False)
    ranker._model = FittedFunction(alphas[: len(coef)], coef=coef)
    ranker._flat, ranker._with_qid, ranker.solver_ = flat, True, "cg"
    ranker.n_pairs_, ranker.n_queries_ = int(summary.n_pairs.sum()), rows.n_queries
    ranker.n_iter_ = history.n_iter
    ranker._store_validation(history)
    ranker._store_coefficients()


class _DistributedEquations:
    """G = XᵀLX, never formed, and C = Xᵀr for some outputs that share L; see `Equations`.

    A product G V takes one round trip, for any number of columns.
    """

    #: Round trips dominate the cost, so held-out rows can be scored after each of them.
    n_entries = 2**62

    def __init__(
        self, graph: Any, keys: list[Any], outputs: Array, summary: _Summary, rows: DistributedRows
    ) -> None:
        self._graph, self._keys, self.outputs = graph, keys, outputs
        self.C, self._squares = summary.cross[:, outputs], summary.squares[:, outputs[0]]
        self.dtype, self.rank = rows.dtype, rows.n_rows

    def G(self, V: Array) -> Array:
        """Return XᵀLX V of shape (n, k')."""
        tasks = Tasks(self._graph)
        vectors = tasks.give("vectors", V)
        work = partial(_product, int(self.outputs[0]))
        parts = [tasks.add("product", work, key, vectors) for key in self._keys]
        return tasks.compute([tasks.tree("sum", _add_arrays, parts)], large=True)[0]

    def diagonal(self) -> Array:
        """Return the approximate diagonal of G, shape (n,)."""
        return self._squares

    def magnitude(self, W: Array) -> Array:
        """Return about ‖L^½ x_j‖ Σ_i ‖L^½ x_i‖ |w_i| for each column x_j of X, shape (n, k')."""
        root = np.sqrt(self._squares)[:, None]
        return root * (root.T @ np.abs(W))


def _part_system(loss: Loss, X: Any, graph: PreferenceGraph, query: Array) -> _System:
    """Return the equations of the rows of one part."""
    product, objectives = Products(X, offsets=Offsets.of(X)), graph.objectives(loss)
    systems = [LinearSystem(product, objective) for objective in objectives]
    n_pairs = [objective.n_pairs for objective in objectives]
    return _System(systems, n_pairs, graph.n_preferences)


@np.errstate(over="ignore", invalid="ignore")
def _summary(n_outputs: int, part: _System) -> _Summary:
    n = part.systems[0].X.shape[1]
    cross, squares = np.empty((n, n_outputs)), np.empty((n, n_outputs))
    n_pairs, groups = np.zeros(n_outputs, dtype=np.int64), np.zeros(n_outputs, dtype=np.int64)
    for number, (system, pairs) in enumerate(zip(part.systems, part.n_pairs, strict=True)):
        outputs = system.outputs
        cross[:, outputs], squares[:, outputs] = system.C, system.diagonal()[:, None]
        n_pairs[outputs], groups[outputs] = pairs, number
    return _Summary(cross, squares, n_pairs, part.preferences, groups)


@np.errstate(over="ignore", invalid="ignore")
def _add_summaries(parts: list[_Summary]) -> _Summary:
    cross, squares, n_pairs, preferences = (_add_arrays([p[k] for p in parts]) for k in range(4))
    groups = np.unique([part.groups for part in parts], axis=1, return_inverse=True)[1]
    return _Summary(cross, squares, n_pairs, preferences, groups.ravel())


@np.errstate(over="ignore", invalid="ignore")
def _product(output: int, part: _System, V: Array) -> Array:
    return next(system for system in part.systems if output in system.outputs).G(V)


def _add_arrays(parts: list[Array]) -> Array:
    return reduce(np.add, parts)
