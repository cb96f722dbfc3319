"""Held-out predictions of the training data, and the error for each alpha."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from rankrls import AutoRanker, RankRLSCV, regularization_path
from rankrls.core.ridge.residuals import query_folds
from rankrls.estimators.choosing import best_of, continuation, default_grid
from rankrls.estimators.cv import problem_size
from rankrls.metrics import pairwise_error
from rankrls.model_selection import leave_pair_out_predict
from rankrls.report._data import Rankings
from rankrls.report._errors import (
    Interval,
    UnitErrors,
    mean_interval,
    query_errors,
    row_errors,
    row_errors_of_pairs,
)
from rankrls.report._fit_plan import FitPlan, SharedProblem, fit, predict

__all__ = ["AlphaPath", "CrossValidated", "hold_out", "row_folds"]

Array = NDArray[Any]

#: Maximum number of predictions, over all alphas, in memory at a time.
_BYTES = 1 << 30
#: Maximum number of rows for leave-pair-out in one ranking; above, folds are used (as in
#: RankRLSCV).
MAX_PAIR_ROWS = 1000
#: Number of folds if models have to be refitted.
N_REFITS = 5


@dataclass(frozen=True)
class AlphaPath:
    """Held-out error for each alpha.

    Attributes
    ----------
    alphas, error : ndarray of shape (n_alphas,)
        Alphas, and the pairwise error or 1 − ``metric``.
    spread : ndarray of shape (n_alphas,) or None
        Standard error of the mean, over queries or folds.
    over : str
        Units of the spread: "queries" or "folds".
    chosen, best : int
        Index of the alpha of the model, and of the best one (the largest if several tie).
    metric : str
        Metric by which alpha was chosen.
    """

    alphas: Array
    error: Array
    spread: Array | None
    over: str
    chosen: int
    best: int
    metric: str = "pairwise_accuracy"

    @property
    def at_edge(self) -> str | None:
        """End of the grid at which the best alpha is, "smallest" or "largest", or None."""
        if len(self.alphas) < 2 or self.best not in (0, len(self.alphas) - 1):
            return None
        return "smallest" if self.best == 0 else "largest"


@dataclass(frozen=True)
class CrossValidated:
    """Results of cross-validation within the training data.

    Attributes
    ----------
    method : {"leave-query-out", "leave-pair-out", "folds", "refits"}
    n_folds : int or None
    errors : UnitErrors
        Errors by query or row, at the alpha of the model.
    scores : ndarray of shape (n_rows,) or None
        Held-out predictions at that alpha, comparable within ``lists``; None for pairs.
    lists : ndarray of shape (n_rows,)
    path : AlphaPath or None
    estimate : Interval
        Error with each query predicted at the alpha chosen by all other queries; ``errors.mean`` if
        no alpha was chosen or this is not available.
    corrected : bool
        Whether ``estimate`` accounts for the choice of alpha.
    model : AutoRanker or None
        The model fitted to all rows, if it provides the held-out predictions itself.
    """

    method: str
    n_folds: int | None
    errors: UnitErrors
    scores: Array | None
    lists: Array
    path: AlphaPath | None
    estimate: Interval
    corrected: bool
    model: Any = None


def hold_out(plan: FitPlan, data: Rankings, problem: SharedProblem) -> CrossValidated:
    """Predict each row of the training data by a model trained without it.

    The default grid of alphas is that of `RankRLSCV` and is extended in the same way.
    """
    if not plan.grows:
        return _hold_out(plan, data, problem)
    size = problem_size(plan.estimator, data.X, data.y, **data.fit_options())
    more = default_grid(size)
    grid = np.empty(0)
    while len(more):
        grid = np.union1d(grid, more)
        done = _hold_out(replace(plan, grid=grid), data, problem)
        assert done.path is not None
        more = continuation(done.path.alphas, 1.0 - done.path.error, size)
    return done


def _hold_out(plan: FitPlan, data: Rankings, problem: SharedProblem) -> CrossValidated:
    if plan.base is None:
        return _refits(plan, data)
    assert plan.grid is not None
    plan.tell(f"Predicting held-out rows, {len(plan.grid)} alphas")
    if data.has_qid:
        return _queries(plan, data, problem)
    return _one_ranking(plan, data, problem)


# ---------------------------------------------------------------------- queries


def _queries(plan: FitPlan, data: Rankings, problem: SharedProblem) -> CrossValidated:
    assert plan.base is not None
    assert plan.grid is not None
    if not plan.chooses_here("auto", "leave-query-out"):
        return _chosen_elsewhere(plan, data, problem)
    exact = plan.exact
    try:
        errors, kept = _error_table(data, _query_predictions(plan, data, problem, exact))
    except MemoryError:
        if not exact or plan.precomputed:
            raise
        exact = False
        errors, kept = _error_table(data, _query_predictions(plan, data, problem, exact))
    path = _path(plan, errors, "queries")
    if len(kept) == len(plan.grid):
        scores = kept[path.chosen]
    else:
        scores = _at(plan, data, problem, float(path.alphas[path.chosen]), exact)
    estimate, corrected = _without_own_choice(errors), True
    by_query = query_errors(data, scores)
    if plan.fixed is not None or len(plan.grid) == 1:
        estimate, corrected = by_query.mean, True
    method = "leave-query-out" if exact else "folds"
    n_folds = None if exact else _n_folds(data)
    return CrossValidated(method, n_folds, by_query, scores, data.codes, path, estimate, corrected)


def _query_predictions(
    plan: FitPlan, data: Rankings, problem: SharedProblem, exact: bool
) -> Iterator[Array]:
    """Generate blocks of held-out predictions (alphas of the block, n_rows), in grid order."""
    assert plan.base is not None
    assert plan.grid is not None
    step = max(1, _BYTES // (8 * data.n_rows))
    for start in range(0, len(plan.grid), step):
        alphas = plan.grid[start : start + step]
        if exact:
            yield _without_each_query(data, problem, alphas)
            continue
        out = np.empty((len(alphas), data.n_rows))
        for number, (rows, rest) in enumerate(_folds(data), 1):
            plan.tell(f"Predicting held-out rows, {len(plan.grid)} alphas, fold {number}")
            model = regularization_path(
                plan.base, data.X[rest], data.y[rest], alphas=alphas, **data.fit_options(rest)
            )
            out[:, rows] = model.predict(data.X[rows])
        yield out


def _without_each_query(data: Rankings, problem: SharedProblem, alphas: Array) -> Array:
    """Predictions (n_alphas, n_rows) of each query by the model without it."""
    held = problem.get().leave_out(query_folds(data.codes), alphas)
    return held.by_row(data.n_rows)[..., 0]


def _error_table(data: Rankings, blocks: Any) -> tuple[Array, Array]:
    """Error for each alpha and query with a pair, (n_alphas, n_queries), and the last block."""
    rows, block = [], np.empty((0, data.n_rows))
    for block in blocks:
        rows += [
            np.asarray(pairwise_error(data.y, scores, qid=data.codes, average=None))
            for scores in block
        ]
    table = np.stack(rows)
    return table[:, np.isfinite(table[0])], block


def _path(plan: FitPlan, errors: Array, over: str) -> AlphaPath:
    assert plan.grid is not None
    mean = errors.mean(axis=1)
    n = errors.shape[1]
    spread = errors.std(axis=1, ddof=1) / np.sqrt(n) if n > 1 else None
    best = best_of(1.0 - mean)
    chosen = best if plan.fixed is None else int(np.searchsorted(plan.grid, plan.fixed))
    return AlphaPath(plan.grid, mean, spread, over, chosen, best)


def _without_own_choice(errors: Array) -> Interval:
    """Mean error with each query evaluated at the alpha that is best for all other queries."""
    others = errors.sum(axis=1, keepdims=True) - errors
    last = len(errors) - 1
    choice = last - np.argmin(others[::-1], axis=0)
    return mean_interval(errors[choice, np.arange(errors.shape[1])])


def _at(plan: FitPlan, data: Rankings, problem: SharedProblem, alpha: float, exact: bool) -> Array:
    """Held-out predictions at one alpha."""
    if exact:
        return _without_each_query(data, problem, np.array([alpha]))[0]
    return _refitted(plan, plan.with_alpha(alpha), data)


def _chosen_elsewhere(plan: FitPlan, data: Rankings, problem: SharedProblem) -> CrossValidated:
    """Let a `RankRLSCV` with its own folds or metric choose alpha, then leave out queries."""
    assert plan.grid is not None
    ranker, path = _searched(plan, data)
    exact = plan.exact
    try:
        scores = _at(plan, data, problem, ranker.alpha_, exact)
    except MemoryError:
        exact = False
        scores = _at(plan, data, problem, ranker.alpha_, exact)
    errors = query_errors(data, scores)
    method, n_folds = ("leave-query-out", None) if exact else ("refits", _n_folds(data))
    return CrossValidated(
        method, n_folds, errors, scores, data.codes, path, errors.mean, len(plan.grid) == 1
    )


def _searched(plan: FitPlan, data: Rankings) -> tuple[RankRLSCV, AlphaPath]:
    ranker = fit(clone(plan.estimator), data.X, data.y, data.fit_options())
    error = 1.0 - ranker.cv_results_["mean_score"]
    best = int(np.searchsorted(ranker.cv_results_["alpha"], ranker.alpha_))
    scoring = ranker.scoring
    metric = scoring if isinstance(scoring, str) else getattr(scoring, "__name__", "scoring")
    return ranker, AlphaPath(ranker.cv_results_["alpha"], error, None, "", best, best, metric)


# ---------------------------------------------------------------------- one ranking


def _one_ranking(plan: FitPlan, data: Rankings, problem: SharedProblem) -> CrossValidated:
    assert plan.grid is not None
    few = data.n_rows <= MAX_PAIR_ROWS
    if not plan.chooses_here("auto", *(["leave-pair-out"] if few else [])):
        ranker, path = _searched(plan, data)
        scores, lists = _row_folds(plan, data, problem, np.array([ranker.alpha_]))
        return _of_folds(plan, data, scores[0], lists, path)
    if plan.exact and few and data.n_rows >= 4 and data.weight is None:
        done = _pairs(plan, data)
        if done is not None:
            return done
    scores, lists = _row_folds(plan, data, problem, plan.grid)
    errors = np.stack(
        [np.asarray(pairwise_error(data.y, s, qid=lists, average=None)) for s in scores]
    )
    path = _path(plan, errors[:, np.isfinite(errors[0])], "folds")
    return _of_folds(plan, data, scores[path.chosen], lists, path)


def _pairs(plan: FitPlan, data: Rankings) -> CrossValidated | None:
    """Leave-pair-out predictions if they are exact, else None."""
    assert plan.grid is not None
    i, j = np.triu_indices(data.n_rows, 1)
    different = data.y[i] != data.y[j]
    pairs = np.column_stack([i[different], j[different]])
    assert plan.base is not None
    options = plan.base.get_params()
    del options["alpha"]
    try:
        search = RankRLSCV(plan.grid, cv="leave-pair-out", **options).fit(data.X, data.y)
    except ValueError:  # this cost has no shortcut, or there is only one pair
        return None
    accuracy = search.cv_results_["mean_score"]
    path = _path(plan, 1.0 - accuracy[:, None], "")
    model = plan.with_alpha(float(path.alphas[path.chosen]))
    held = leave_pair_out_predict(model, data.X, data.y, pairs=pairs)
    errors = row_errors_of_pairs(data.y, pairs, held)
    lists = np.zeros(data.n_rows, dtype=np.int64)
    corrected = plan.fixed is not None or len(plan.grid) == 1
    return CrossValidated("leave-pair-out", None, errors, None, lists, path, errors.mean, corrected)


def _row_folds(
    plan: FitPlan, data: Rankings, problem: SharedProblem, alphas: Array
) -> tuple[Array, Array]:
    """Predictions (n_alphas, n_rows) with the folds of rows that RankRLSCV draws, and the folds."""
    assert plan.base is not None
    folds = row_folds(plan, data)
    out, lists = np.empty((len(alphas), data.n_rows)), np.empty(data.n_rows, dtype=np.int64)
    parts = None
    if plan.exact:
        try:
            held = problem.get().leave_out([rows for rows, _ in folds], alphas)
            parts = [part[..., 0] for part in held.predictions]
        except MemoryError:
            if plan.precomputed:
                raise
    for number, (rows, rest) in enumerate(folds):
        if parts is None:
            plan.tell(f"Predicting held-out rows, {len(alphas)} alphas, fold {number + 1}")
            model = regularization_path(
                plan.base, data.X[rest], data.y[rest], alphas=alphas, **data.fit_options(rest)
            )
            out[:, rows] = model.predict(data.X[rows])
        else:
            out[:, rows] = parts[number]
        lists[rows] = number
    return out, lists


def _of_folds(
    plan: FitPlan, data: Rankings, scores: Array, lists: Array, path: AlphaPath
) -> CrossValidated:
    errors = row_errors(data.y, scores, lists)
    corrected = plan.fixed is not None or len(path.alphas) == 1
    n_folds = int(lists.max()) + 1
    return CrossValidated("folds", n_folds, errors, scores, lists, path, errors.mean, corrected)


# ---------------------------------------------------------------------- refits


def _refits(plan: FitPlan, data: Rankings) -> CrossValidated:
    """Refit any estimator for each fold of whole queries (of rows without qid).

    An `AutoRanker` that has held out each query already has the predictions.
    """
    if isinstance(plan.estimator, AutoRanker) and data.has_qid:
        plan.tell("Choosing members by held-out queries")
        model = fit(clone(plan.estimator), data.X, data.y, data.fit_options())
        scores = model.nested_scores_
        if np.isfinite(scores).all():
            errors = query_errors(data, scores)
            return CrossValidated(
                "leave-query-out", None, errors, scores, data.codes, None, errors.mean, False, model
            )
    scores = _refitted(plan, plan.estimator, data)
    if data.has_qid:
        lists, errors = data.codes, query_errors(data, scores)
    else:
        lists = np.empty(data.n_rows, dtype=np.int64)
        for number, (rows, _) in enumerate(_folds(data)):
            lists[rows] = number
        errors = row_errors(data.y, scores, lists)
    return CrossValidated("refits", _n_folds(data), errors, scores, lists, None, errors.mean, True)


def _refitted(plan: FitPlan, estimator: Any, data: Rankings) -> Array:
    precomputed = getattr(estimator, "kernel", None) == "precomputed"
    basis: Any = getattr(estimator, "basis", None)
    if precomputed and np.ndim(basis) == 1:
        raise ValueError(
            "a report refits this estimator without some rows, and row numbers in basis do not "
            "follow: pass basis as a number, RankRLS, or a kernel by name"
        )
    scores = np.empty(data.n_rows)
    for number, (rows, rest) in enumerate(_folds(data), 1):
        plan.tell(f"Refitting without fold {number} of {_n_folds(data)}")
        train, new = data.X[rest], data.X[rows]
        if precomputed:
            train, new = train[:, rest], new[:, rest]
        model = fit(clone(estimator), train, data.y[rest], data.fit_options(rest))
        scores[rows] = predict(model, new, data.fit_options(rows).get("qid"))
    return scores


def _n_folds(data: Rankings) -> int:
    return min(N_REFITS, data.n_queries if data.has_qid else max(2, data.n_rows // 5))


def row_folds(plan: FitPlan, data: Rankings) -> list[tuple[Array, Array]]:
    """Folds of the rows of one ranking, as drawn by RankRLSCV: (left out, remaining rows)."""
    return _folds(data, max(2, min(10, data.n_rows // 5)), plan.estimator.random_state)


def _folds(
    data: Rankings, n_folds: int | None = None, random_state: Any = 0
) -> list[tuple[Array, Array]]:
    """Folds of whole queries, or of rows without qid: (left out, remaining rows)."""
    codes = data.codes if data.has_qid else np.arange(data.n_rows)
    n = int(codes.max()) + 1
    fold_of = np.empty(n, dtype=np.int64)
    fold_of[check_random_state(random_state).permutation(n)] = np.arange(n) % (
        n_folds or _n_folds(data)
    )
    of_row = fold_of[codes]
    return [(np.flatnonzero(of_row == k), np.flatnonzero(of_row != k)) for k in np.unique(of_row)]
