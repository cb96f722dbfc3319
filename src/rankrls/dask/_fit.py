"""Fits of local rankers to rows on the workers: sums over parts of whole queries, or products."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

import dask
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
from rankrls.dask._tasks import compute, layer, shared, tree
from rankrls.dask._whole_queries import DistributedRows
from rankrls.estimators.choosing import Scoring, check_eval_set, random_folds
from rankrls.estimators.incremental import Learned, store_learned
from rankrls.estimators.ranker import graph_accuracy
from rankrls.estimators.scalers import merged, rescaling, scaled
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


def _choose_solver(ranker: Any, kernel: Kernel, rows: DistributedRows, scaler: Any) -> str:
    solver, n = ranker.solver, rows.n_features
    if solver == "auto" and (ranker.basis is not None or not kernel.linear):
        solver = "cg" if ranker.early_stopping else "nystroem"
        if ranker.basis is None and solver == "nystroem":
            warn(
                f"solver='nystroem', an approximation with {DEFAULT_BASIS} random basis vectors, "
                "is used; set basis= to say how many",
            )
    elif solver == "auto":
        solver = "cg" if ranker.early_stopping or n > MAX_PRIMAL_FEATURES else "primal"
    problem = None
    if ranker.early_stopping and solver != "cg":
        problem = f"early_stopping belongs to solver='cg'; got solver={solver!r}"
    elif solver in ("primal", "cg") and not kernel.linear:
        problem = (
            f"solver={solver!r} works on explicit features and needs kernel='linear'; with "
            f"kernel={kernel.name} use solver='nystroem'"
        )
    elif ranker.basis is not None and solver != "nystroem":
        problem = f"basis belongs to solver='nystroem'; got solver={solver!r}"
    elif scaler is not None and solver != "primal":
        problem = (
            f"{type(scaler).__name__} before solver={solver!r}: scales change the sums that "
            "solver='primal' has; use it, or scale the features before"
        )
    elif solver == "cg" and not rows.with_qid:
        problem = (
            "solver='cg' needs qid: without it use solver='primal', or 'nystroem' with a basis"
        )
    if problem is not None:
        raise ValueError(problem)
    if solver == "primal":
        advice = "use solver='cg', fewer features, or solver='nystroem' with basis=1000, say"
        _resources.require("solver='primal'", n, n, copies=2, advice=advice)
    return solver


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
    solver = _choose_solver(ranker, kernel, rows, scaler)
    progress(f"solver {solver}")
    if solver == "cg":
        iteration = ranker._iteration(progress, callback)
        _fit_cg(ranker, rows, flat, alphas, iteration, eval_set, persist)
        return None
    basis = None
    if solver == "nystroem":
        indices = choose_basis(ranker.basis, rows.n_rows, check_random_state(ranker.random_state))
        size, advice = len(indices), "use fewer basis vectors"
        _resources.require("solver='nystroem'", size, size, copies=4, advice=advice)
        basis = Basis.from_rows(kernel, rows.take(indices), indices)
        progress(f"{size:,} basis vectors gathered")
    (learned,), trace, fitted = _sum(ranker, rows, flat, basis, scaler)
    rows.require(learned.preferences > 0)
    store_learned(ranker, learned, kernel)
    if solver == "primal" and scaler is None:
        _warn_about_scales(ranker, trace)
    progress("solved")
    return fitted


# -- sums -------------------------------------------------------------------------------------


def _sum(
    ranker: Any,
    rows: DistributedRows,
    flat: bool,
    basis: Basis | None = None,
    scaler: Any = None,
    fold_of: Array | None = None,
) -> tuple[list[Learned], float, Any]:
    """Return the sums over all rows, or over each fold of queries, the trace of L, and the scaler.

    All are computed in one pass over X. Sums are computed in the scale of the first partition, so
    that offsets and units cost no digits, and are converted to that of all rows afterwards.
    """
    raw, scalers = rows.X, []
    if scaler is not None:
        (first,) = layer("scaler", [(partial(_fitted, scaler), raw[0])])
        fitted = layer("scaler", [(partial(_fitted, scaler), X) for X in raw])
        scalers = [first, tree("scaler", merged, fitted)]
        rows.X = layer("scaled", [(scaled, first, X) for X in raw])
    shape: dict[str, Any] = {"dtype": rows.dtype, "n_outputs": rows.n_outputs, "flat": flat}
    nothing = partial(Learned.nothing, rows.n_features, **shape)
    extras = [shared(basis), shared(fold_of)]
    if rows.with_qid:
        stay, moved = rows.parts(partial(_part_sums, nothing, ranker._loss), *extras)
        total = tree("sum", _add_sums, stay + moved)
    else:
        total = tree("sum", _add_rankings, rows.parts(_part_ranking, *extras)[0])
    summed, *computed = compute([total, *scalers], large=basis is not None)
    if rows.with_qid:
        sums, trace = summed
    else:
        sums, trace = [nothing(basis=basis)], 0.0
        sums[0].preferences = sums[0].preferences + summed.n_preferences
        if summed.total is not None:
            kappa = summed.kappa(ranker._loss.query_weighting)
            trace = float(2 * kappa / summed.total.mass * summed.edge_weight)
            sums[0].total = [summed.statistics(ranker._loss.query_weighting)]
    if scaler is not None:
        old, scaler = computed
        for part in sums:
            part.rescale(*rescaling(old, scaler))
        new = shared(scaler)
        rows.X = layer("scaled", [(scaled, new, X) for X in raw])
    sums[0].seen = rows.seen()
    return sums, trace, scaler


def _fitted(scaler: Any, X: Any) -> Any:
    return clone(scaler).fit(X)


def _part_sums(
    nothing: Callable[..., Learned],
    loss: Loss,
    X: Any,
    graph: PreferenceGraph,
    query: Array,
    basis: Basis | None,
    fold_of: Array | None,
) -> tuple[list[Learned], float]:
    """Return the sums over one part, for each fold, and the trace of L of the first outputs."""
    trace = float(graph.objectives(loss)[0].laplacian.degree().sum())
    if fold_of is None:
        learned = nothing(basis=basis)
        learned.add(graph, X, loss)
        return [learned], trace
    sums = [nothing(basis=basis) for _ in range(int(fold_of.max()) + 1)]
    fold = fold_of[query]
    for number in np.unique(fold):
        rows = np.flatnonzero(fold == number)
        sums[number].add(graph[rows], X[rows], loss)
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
    sums, trace, fitted = _sum(ranker, rows, flat, None, scaler, fold_of)
    rows.require(np.sum([learned.preferences for learned in sums], axis=0) > 0)

    def score_again(W: list[Array]) -> list[Array]:
        """Score every query with the models fitted without its fold, in one pass over X."""
        stay, moved = rows.parts(partial(_part_scores, scoring), shared(W), shared(fold_of))
        return compute(stay + moved, large=True)

    with np.errstate(over="ignore", invalid="ignore"):  # the solvers reject overflow
        learned = choose_by_folds(ranker, sums, grid, scoring, score_again)
        store_learned(ranker, learned, kernel)
    if scaler is None:
        _warn_about_scales(ranker, trace)
    return fitted


def _part_scores(
    scoring: Scoring, X: Any, graph: PreferenceGraph, query: Array, W: list[Array], fold_of: Array
) -> Array:
    return score_queries(scoring, X, graph, fold_of[query], W)


# -- conjugate gradients ----------------------------------------------------------------------


#: The systems of one part, one for each group of outputs that share L, and its preferences.
System = tuple[list[LinearSystem], list[int], Array]


def _fit_cg(
    ranker: Any,
    rows: DistributedRows,
    flat: bool,
    alphas: Array,
    iteration: Any,
    eval_set: Any,
    persist: bool,
) -> None:
    stay, moved = rows.parts(partial(_part_system, ranker._loss))
    moved = list(dask.persist(*moved))  # in any case
    systems = [*(dask.persist(*stay) if persist else stay), *moved]
    parts = layer("summary", [(partial(_summary, rows.n_outputs), part) for part in systems])
    cross, squares, n_pairs, preferences, split = compute([tree("sum", _add, parts)])[0]
    rows.require(preferences > 0)
    if not squares.any():
        raise ValueError(UNDERFLOW)
    everything = np.arange(rows.n_outputs)
    outputs = list(everything[:, None]) if split else [everything]
    equations = [
        _DistributedEquations(systems, some, cross[:, some], squares[:, some[0]], rows)
        for some in outputs
    ]
    with np.errstate(over="ignore", invalid="ignore"):
        if eval_set is None:
            W, history = converge(equations, alphas, iteration)
        else:
            X_val, held = check_eval_set(
                eval_set, ranker._check_rows, has_qid=True, n_outputs=rows.n_outputs
            )
            score = partial(graph_accuracy, held)
            W, history = stop_early(
                equations, alphas, iteration, Products(X_val), score, rows.n_outputs
            )
    coef = join_outputs(outputs, W).astype(rows.dtype, copy=False)
    ranker._store_fit(
        FittedFunction(alphas[: len(coef)], coef=coef),
        history,
        solver="cg",
        flat=flat,
        with_qid=True,
        n_pairs=int(n_pairs.sum()),
        n_queries=rows.n_queries,
    )


class _DistributedEquations:
    """G = XᵀLX and C = Xᵀr for outputs that share L; a product takes one round trip."""

    #: Round trips dominate the cost, so held-out rows can be scored after each of them.
    n_entries = 2**62

    def __init__(
        self, systems: list[Any], outputs: Array, C: Array, squares: Array, rows: DistributedRows
    ) -> None:
        self._systems, self.outputs, self.C, self._squares = systems, outputs, C, squares
        self.dtype, self.rank = rows.dtype, rows.n_rows

    def G(self, V: Array) -> Array:
        """Return XᵀLX V of shape (n, k')."""
        work, vectors = partial(_product, int(self.outputs[0])), shared(V)
        parts = layer("product", [(work, part, vectors) for part in self._systems])
        return compute([tree("sum", _add, parts)], large=True)[0][0]

    def diagonal(self) -> Array:
        """Return the approximate diagonal of G, shape (n,)."""
        return self._squares

    def magnitude(self, W: Array) -> Array:
        """Return about ‖L^½ x_j‖ Σ_i ‖L^½ x_i‖ |w_i| for each column x_j of X, shape (n, k')."""
        root = np.sqrt(self._squares)[:, None]
        return root * (root.T @ np.abs(W))


def _part_system(loss: Loss, X: Any, graph: PreferenceGraph, query: Array) -> System:
    """Return the equations of the rows of one part."""
    product, objectives = Products(X, offsets=Offsets.of(X)), graph.objectives(loss)
    systems = [LinearSystem(product, objective) for objective in objectives]
    return systems, [objective.n_pairs for objective in objectives], graph.n_preferences


@np.errstate(over="ignore", invalid="ignore")
def _summary(n_outputs: int, part: System) -> tuple[Array, ...]:
    """By output: C, approximate diagonal of G, numbers of edges and preferences; is L shared."""
    systems, edges, preferences = part
    n = systems[0].X.shape[1]
    cross, squares = np.empty((n, n_outputs)), np.empty((n, n_outputs))
    n_pairs = np.zeros(n_outputs, dtype=np.int64)
    for system, pairs in zip(systems, edges, strict=True):
        outputs = system.outputs
        cross[:, outputs], squares[:, outputs] = system.C, system.diagonal()[:, None]
        n_pairs[outputs] = pairs
    return cross, squares, n_pairs, preferences, np.array(len(systems) > 1)


@np.errstate(over="ignore", invalid="ignore")
def _product(output: int, part: System, V: Array) -> tuple[Array]:
    return (next(system for system in part[0] if output in system.outputs).G(V),)


@np.errstate(over="ignore", invalid="ignore")
def _add(parts: list[tuple[Array, ...]]) -> list[Array]:
    """Add tuples of arrays (a flag is true if one of them is)."""
    return [reduce(np.add, arrays) for arrays in zip(*parts, strict=True)]
