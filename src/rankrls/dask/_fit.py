"""Fits of local rankers to rows on the workers: sums over parts of whole queries, or products."""

from __future__ import annotations

from collections.abc import Sequence
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
from rankrls._frames import clear_errors, columns_like_ids, id_text, scale_text, unequal_scales
from rankrls._validation import check_integer, check_option, check_positive
from rankrls.core.linalg.krylov import DEFAULT_MAX_ITER, IterationOptions, converge
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.statistics import UNDERFLOW
from rankrls.core.ridge.models import FittedFunction, join_outputs
from rankrls.core.ridge.problem import LinearSystem
from rankrls.core.spaces.products import Offsets, Products
from rankrls.core.spaces.spaces import DEFAULT_BASIS, Basis, Kernel, choose_basis
from rankrls.dask._rows import DistributedRows, compute, layer, like, shared, tree
from rankrls.estimators.choosing import Scoring, random_fold_of
from rankrls.estimators.incremental import (
    Learned,
    add_to_folds,
    require_learned,
    store_learned,
)
from rankrls.estimators.scalers import merged, rescaling, scaled
from rankrls.estimators.stream import (
    check_folds,
    choose_by_folds,
    require_addition,
    score_queries,
)
from rankrls.exceptions import FeatureScaleWarning, IdColumnWarning

Array = NDArray[Any]

#: Up to this number of features, ``solver="auto"`` forms the n × n matrix (128 MiB a partition).
MAX_PRIMAL_FEATURES = 4096


def check_columns(ranker: Any, X: Any, *, reset: bool = False) -> None:
    """Check, or store, the number and names of the columns of a Dask array or data frame."""
    sample = like(X)
    with clear_errors(sample):
        validate_data(ranker, sample, reset=reset, skip_check_array=True)


def fit_ranker(
    ranker: Any, X: Any, y: Any, qid: Any, sample_weight: Any, *, scaler: Any = None
) -> Any:
    """Fit a `RankRLS` or a `RankRLSCV`; returns the fitted scaler, if there is one."""
    chooses, n_folds, alphas = hasattr(ranker, "alphas"), 1, np.empty(0)
    if chooses:
        grid, n_folds, scoring = check_folds(ranker)
    else:
        alphas = np.array([ranker._check_alpha("alpha", ranker.alpha)])
    check_option("solver", ranker.solver, ("auto", "primal", "nystroem", "cg"))
    kernel: Kernel = ranker._check_options()
    progress = Progress(f"dask.{type(ranker).__name__}", ranker.verbose)
    rows = DistributedRows(X, y, qid, sample_weight)
    check_columns(ranker, X, reset=True)
    progress(
        f"{rows.n_rows:,} rows in {len(rows.lengths)} partitions, {rows.n_queries:,} queries, "
        f"{rows.n_crossing:,} of them in several partitions"
    )
    if not rows.has_qid:
        require_addition(ranker._loss, "partitions")
    solver = _choose_solver(ranker, kernel, rows, scaler)
    progress(f"solver {solver}")
    if solver == "cg":
        _fit_cg(ranker, rows, alphas, progress)
        return None
    basis, fold_of, size, copies = None, None, rows.n_features, n_folds + 4 if chooses else 2
    if solver == "nystroem":
        indices = choose_basis(ranker.basis, rows.n_rows, check_random_state(ranker.random_state))
        size, copies = len(indices), 4
    advice = "use fewer features or basis vectors, or rankrls.dask.RankRLS with solver='cg'"
    _resources.require(f"solver={solver!r}", size, size, copies=copies, advice=advice)
    if solver == "nystroem":
        basis = Basis.from_rows(kernel, rows.take(indices), indices)
    if chooses:
        if not rows.has_qid or n_folds > rows.n_queries:
            raise ValueError(
                f"{n_folds} folds of {rows.n_queries} queries: give qid, or smaller cv"
            )
        rng, every = check_random_state(ranker.random_state), np.arange(rows.n_queries)
        fold_of = random_fold_of(every, n_folds, rng, what="queries")
    sums, (ids, unequal), scaler = _sum(ranker, rows, basis, scaler, n_folds, fold_of)
    require_learned(sums)
    with np.errstate(over="ignore", invalid="ignore"):  # the solvers reject overflow
        learned = sums[0]
        if chooses:

            def score_again(W: list[Array]) -> list[Array]:
                """Score every query with the models without its fold, in one pass over X."""
                work, extras = partial(_part_scores, scoring), (shared(W), shared(fold_of))
                return compute(rows.parts(work, *extras))

            learned = choose_by_folds(ranker, sums, grid, scoring, score_again)
        store_learned(ranker, learned, kernel)
    names = getattr(ranker, "feature_names_in_", None)
    if ids:
        warn(id_text(ids, names), IdColumnWarning)
    if solver == "primal" and scaler is None and unequal is not None:
        remedy = (
            "scale them on the workers by rankrls.dask.fit(make_pipeline(StandardScaler(), "
            f"rankrls.{type(ranker).__name__}()), X, y, qid=qid)"
        )
        warn(scale_text(unequal, names, remedy), FeatureScaleWarning)
    progress("solved")
    return scaler


def _choose_solver(ranker: Any, kernel: Kernel, rows: DistributedRows, scaler: Any) -> str:
    solver, n, linear = ranker.solver, rows.n_features, kernel.linear
    if solver == "auto":
        solver = "primal" if linear and ranker.basis is None else "nystroem"
        if solver == "primal" and n > MAX_PRIMAL_FEATURES:
            solver = "cg"
    problem = None
    if kernel.precomputed:
        problem = "kernel='precomputed' is a matrix of n_rows × n_rows: pass the rows"
    elif ranker.early_stopping:
        problem = "early_stopping needs rows in memory: use rankrls.RankRLS"
    elif (scaler is not None or hasattr(ranker, "alphas")) and solver != "primal":
        what = type(ranker if scaler is None else scaler).__name__
        problem = (
            f"{what} needs kernel='linear' and the sums of solver='primal', and for {n:,} "
            f"features solver={ranker.solver!r} is {solver!r}: set solver='primal', or use RankRLS "
            "with one alpha on scaled features"
        )
    elif solver != "nystroem" and not (linear and ranker.basis is None):
        problem = f"solver={solver!r} needs kernel='linear' and no basis: use solver='nystroem'"
    elif solver == "cg" and not rows.has_qid:
        problem = "solver='cg' needs qid: without it use solver='primal', or a basis"
    elif solver == "cg" and rows.n_outputs > 1 and not ranker._loss.keeps_ties:
        problem = (
            "solver='cg' fits several outputs at once with cost='magnitude' and ties='keep', where "
            "they share their pairs: fit one output at a time, or use solver='primal'"
        )
    if problem is not None:
        raise ValueError(problem)
    if solver == "nystroem" and ranker.basis is None:
        warn(
            f"solver='nystroem', an approximation with {DEFAULT_BASIS} random basis vectors, is "
            "used; set basis= to say how many"
        )
    return solver


# -- sums -------------------------------------------------------------------------------------


def _sum(
    ranker: Any,
    rows: DistributedRows,
    basis: Basis | None,
    scaler: Any,
    n_folds: int,
    fold_of: Array | None,
) -> tuple[list[Learned], Any, Any]:
    """Return the sums of each fold, suspicious columns of the first partition, and the scaler.

    All are computed in one pass over X. Sums are computed in the scale of the first partition, so
    that offsets and units cost no digits, and are converted to that of all rows afterwards.
    """
    raw, names = rows.X, getattr(ranker, "feature_names_in_", None)
    wanted = layer("columns", [(partial(_columns, names, rows.has_qid), raw[0], rows.graphs[0])])
    if scaler is not None:
        fit = partial(_fitted, scaler)
        first, *every = layer("scaler", [(fit, X) for X in (raw[0], *raw)])
        wanted += [first, tree("scaler", merged, every)]
        rows.X = layer("scaled", [(scaled, first, X) for X in raw])
    shape = rows.dtype, rows.n_outputs, rows.flat, rows.has_qid
    work = partial(_part_sums, n_folds, shape, ranker._loss)
    total = tree("sum", _add_sums, rows.parts(work, shared(basis), shared(fold_of)))
    sums, found, *scalers = compute([total, *wanted])
    if scaler is not None:
        first, scaler = scalers
        for part in sums:
            part.rescale(*rescaling(first, scaler))
        new = shared(scaler)
        rows.X = layer("scaled", [(scaled, new, X) for X in raw])
    sums[0].seen.weighted = rows.weighted
    sums[0].end_ranking(ranker._loss)
    if rows.has_qid:
        sums[0].seen.add(rows.labels, rows.sizes)
    return sums, found, scaler


def _columns(names: Any, with_qid: bool, X: Any, graph: PreferenceGraph) -> tuple[Any, Any]:
    codes = graph.query_codes if with_qid else None
    return columns_like_ids(X, names, codes), unequal_scales(X, codes)


def _fitted(scaler: Any, X: Any) -> Any:
    return clone(scaler).fit(X)


def _part_sums(
    n_folds: int,
    shape: tuple[Any, ...],
    loss: Loss,
    X: Any,
    graph: PreferenceGraph,
    query: Array,
    basis: Basis | None,
    fold_of: Array | None,
) -> list[Learned]:
    """Return the sums over one part, for each fold."""
    sums = [Learned.nothing(X.shape[1], basis, *shape) for _ in range(n_folds)]
    add_to_folds(sums, graph, X, None if fold_of is None else fold_of[query], loss)
    return sums


@np.errstate(over="ignore", invalid="ignore")
def _add_sums(parts: list[list[Learned]]) -> list[Learned]:
    """Add the sums of parts, fold by fold."""
    totals = [learned.copy() for learned in parts[0]]
    for part in parts[1:]:
        for total, other in zip(totals, part, strict=True):
            total.merge(other.copy())
    return totals


def _part_scores(
    scoring: Scoring, X: Any, graph: PreferenceGraph, query: Array, W: list[Array], fold_of: Array
) -> Array:
    return score_queries(scoring, X, graph, fold_of[query], W)


# -- conjugate gradients ----------------------------------------------------------------------


#: The equations of one part, and its numbers of edges and of preferences of each output.
System = tuple[LinearSystem, Array, Array]


def _fit_cg(ranker: Any, rows: DistributedRows, alphas: Array, progress: Progress) -> None:
    max_iter = DEFAULT_MAX_ITER if ranker.max_iter is None else ranker.max_iter
    options = IterationOptions(
        check_positive("tol", ranker.tol),
        check_integer("max_iter", max_iter, least=1),
        progress=progress,
    )
    systems = dask.persist(*rows.parts(partial(_part_system, ranker._loss)))
    parts = layer("summary", [(_summary, part) for part in systems])
    equations = _DistributedEquations(systems, compute([tree("sum", _add, parts)])[0], rows)
    learned = Learned.nothing(1, None, rows.dtype, rows.n_outputs, rows.flat, True)
    learned.preferences, learned.n_rows = equations.preferences, rows.n_rows
    learned.seen.add(rows.labels, rows.sizes)
    require_learned([learned])
    if not equations.squares.any():
        raise ValueError(UNDERFLOW)
    with np.errstate(over="ignore", invalid="ignore"):
        W, history = converge([equations], alphas, options)
    coef = join_outputs([equations], W).astype(rows.dtype, copy=False)
    model, n_pairs = FittedFunction(alphas[: len(coef)], coef=coef), int(equations.n_pairs)
    ranker._store_fit(model, rows, n_pairs * rows.n_outputs, "cg", history)


class _DistributedEquations:
    """G = XᵀLX and C = Xᵀr; a product takes one round trip."""

    #: Round trips dominate the cost, so held-out rows can be scored after each of them.
    n_entries = 2**62

    def __init__(self, systems: Sequence[Any], sums: list[Array], rows: DistributedRows) -> None:
        self._systems = systems
        self.C, self.squares, self.n_pairs, self.preferences = sums  # of all parts
        self.outputs, self.dtype, self.rank = np.arange(rows.n_outputs), rows.dtype, rows.n_rows

    def G(self, V: Array) -> Array:
        """Return XᵀLX V of shape (n, k')."""
        vectors = shared(V)
        parts = layer("product", [(_product, part, vectors) for part in self._systems])
        return compute([tree("sum", _add, parts)])[0][0]

    def diagonal(self) -> Array:
        """Return the approximate diagonal of G, shape (n,)."""
        return self.squares

    def magnitude(self, W: Array) -> Array:
        """Return about ‖L^½ x_j‖ Σ_i ‖L^½ x_i‖ |w_i| for each column x_j of X, shape (n, k')."""
        root = np.sqrt(self.squares)[:, None]
        return root * (root.T @ np.abs(W))


def _part_system(loss: Loss, X: Any, graph: PreferenceGraph, query: Array) -> System:
    """Return the equations of the rows of one part; all outputs share L."""
    (objective,) = graph.objectives(loss)
    offsets = Offsets.of(X)
    system = LinearSystem(Products(X if offsets is None else offsets.subtract(X)), objective)
    return system, np.array(objective.n_pairs), graph.n_preferences


@np.errstate(over="ignore", invalid="ignore")
def _summary(part: System) -> tuple[Array, ...]:
    return part[0].C, part[0].diagonal(), *part[1:]


@np.errstate(over="ignore", invalid="ignore")
def _product(part: System, V: Array) -> tuple[Array]:
    return (part[0].G(V),)


@np.errstate(over="ignore", invalid="ignore")
def _add(parts: list[tuple[Array, ...]]) -> list[Array]:
    """Add tuples of arrays."""
    return [reduce(np.add, arrays) for arrays in zip(*parts, strict=True)]
