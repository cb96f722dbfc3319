"""What to fit, held-out predictions of the training data, and the error for each alpha."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn import get_config
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from rankrls import AutoRanker, RankRLS, RankRLSCV
from rankrls._validation import check_positive, show
from rankrls.estimators.choosing import DEFAULT_ALPHAS, check_alphas
from rankrls.metrics import pairwise_error
from rankrls.model_selection import (
    leave_pair_out_predict,
    leave_pair_out_score,
    leave_query_out_predict,
)
from rankrls.report._data import Rankings
from rankrls.report._errors import (
    LEVEL,
    Interval,
    UnitErrors,
    mean_interval,
    query_errors,
    row_errors,
    row_errors_of_pairs,
)

__all__ = ["AlphaPath", "FitPlan", "HeldOutErrors", "fit", "hold_out", "make_plan", "predict"]

Array = NDArray[Any]

#: Sparse data with more rows and columns than this are fitted by conjugate gradients (as with
#: solver="auto"), for which there are no exact held-out predictions.
MAX_SPARSE = 5000
#: Maximum number of rows for leave-pair-out in one ranking (as in RankRLSCV), and of those for
#: which the choice of alpha is repeated for permuted labels.
MAX_PAIR_ROWS, MAX_SEARCHED = 1000, 200
#: Number of folds if models have to be refitted.
N_REFITS = 5


@dataclass(frozen=True)
class FitPlan:
    """How to fit the model and compute held-out predictions.

    ``base`` is the estimator with one alpha and ``search`` that with a grid, both None for
    estimators that can only be refitted; ``fixed`` the alpha, if it is not chosen from the grid;
    ``exact`` whether held-out predictions need no refits; ``tell`` is called with lines of text.
    """

    estimator: Any
    base: Any = None
    search: Any = None
    fixed: float | None = None
    exact: bool = False
    tell: Callable[[str], object] = lambda _: None

    @property
    def precomputed(self) -> bool:
        """Whether X is a kernel matrix."""
        return getattr(self.estimator, "kernel", None) == "precomputed"

    def with_alpha(self, alpha: float) -> Any:
        """Return an unfitted estimator with this alpha; without a path, the given estimator."""
        if self.base is None:
            return clone(self.estimator)
        return clone(self.base).set_params(alpha=alpha)


def make_plan(
    estimator: Any,
    alphas: ArrayLike | None,
    X: Any,
    tell: Callable[[str], object] | None = None,
) -> FitPlan:
    """Check ``estimator`` and ``alphas``, and make the plan."""
    tell = FitPlan.tell if tell is None else tell
    grid = None if alphas is None else check_alphas("alphas", np.atleast_1d(alphas))
    estimator = RankRLSCV() if estimator is None else estimator
    if isinstance(estimator, type) or not hasattr(estimator, "predict"):
        raise ValueError(
            f"estimator must have fit and predict, such as RankRLSCV(); got {show(estimator)}"
        )
    estimator = clone(estimator)
    ours = isinstance(estimator, RankRLS | RankRLSCV)
    if (ours or isinstance(estimator, AutoRanker)) and estimator.random_state is None:
        estimator.set_params(random_state=0)
    if not ours or estimator.early_stopping:
        if alphas is not None:
            raise ValueError(
                "alphas can be used only with RankRLS and RankRLSCV (without early stopping); the "
                f"estimator is a {type(estimator).__name__}, so leave alphas out"
            )
        return FitPlan(estimator, tell=tell)
    options = estimator.get_params()
    common = {name: options[name] for name in RankRLS().get_params() if name in options}
    fixed = None
    if isinstance(estimator, RankRLSCV):
        search = estimator if grid is None else estimator.set_params(alphas=grid)
    else:
        alpha = check_positive("alpha", common.pop("alpha"))
        if grid is None:
            fixed, grid = alpha, np.unique([*DEFAULT_ALPHAS, alpha])
        search = RankRLSCV(grid, **common)
    large = estimator.solver == "auto" and sparse.issparse(X) and min(X.shape) > MAX_SPARSE
    base = RankRLS(**{**common, "alpha": 1.0 if fixed is None else fixed})
    exact = estimator.solver != "cg" and not large
    return FitPlan(estimator, base, search, fixed, exact, tell)


def fit(estimator: Any, X: Any, y: Array, options: dict[str, Array]) -> Any:
    """Fit with qid and sample_weight, if given, which a Pipeline passes to its last step."""
    if isinstance(estimator, Pipeline) and not get_config()["enable_metadata_routing"]:
        last = estimator.steps[-1][0]
        options = {f"{last}__{name}": values for name, values in options.items()}
    return estimator.fit(X, y, **options)


def predict(model: Any, X: Any, qid: Array | None) -> Array:
    """Predict scores of rows, shape (n_rows,), passing qid to an `AutoRanker`."""
    options = {"qid": qid} if isinstance(model, AutoRanker) else {}
    return np.asarray(model.predict(X, **options), dtype=np.float64).reshape(X.shape[0])


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
class HeldOutErrors:
    """Errors of the training data by models trained without them.

    The ``method`` is leave-query-out, leave-pair-out, folds or refits; ``errors`` are those at the
    alpha of the model, with the ``scores`` behind them, None for pairs; the ``estimate`` is
    ``corrected`` for the choice of alpha or not; ``model`` is that of an `AutoRanker`, fitted.
    """

    method: str
    errors: UnitErrors
    scores: Array | None
    path: AlphaPath | None
    estimate: Interval
    corrected: bool
    n_folds: int | None = None
    model: Any = None


def hold_out(plan: FitPlan, data: Rankings) -> HeldOutErrors:
    """Predict each row of the training data by a model trained without it."""
    if plan.base is None:
        return _of_any_estimator(plan, data)
    plan.tell("Choosing alpha by held-out predictions")
    cv, exact = plan.search.cv, plan.exact
    by_query = data.has_qid and cv in ("auto", "leave-query-out")
    if exact:
        try:
            path, held = _searched(plan, data, store_cv_predictions=by_query)
        except MemoryError:
            if plan.precomputed:
                raise
            exact = False
    if not exact:
        path, held = _searched(plan, data, solver="cg", cv="auto")
    model = plan.with_alpha(float(path.alphas[path.chosen]))
    corrected = plan.fixed is not None or len(path.alphas) == 1
    if exact and data.has_qid:
        scores = (held[path.chosen] if by_query else
                  leave_query_out_predict(model, data.X, data.y, **data.fit_options()))  # fmt: skip
        errors = query_errors(data, scores)
        estimate = errors.mean
        if by_query and not corrected and path.metric == "pairwise_accuracy":
            # Each query at the alpha that is best for all others; the largest wins ties.
            found = [pairwise_error(data.y, f, qid=data.codes, average=None) for f in held]
            table = np.array(found)[::-1, np.isfinite(found[0])]
            best = np.argmin(table.sum(axis=1, keepdims=True) - table, axis=0)
            estimate = mean_interval(table[best, np.arange(table.shape[1])])
            corrected = True
        return HeldOutErrors("leave-query-out", errors, scores, path, estimate, corrected)
    if exact and data.n_rows <= MAX_PAIR_ROWS and cv in ("auto", "leave-pair-out"):
        i, j = np.triu_indices(data.n_rows, 1)
        pairs = np.column_stack([i, j])[data.y[i] != data.y[j]]
        with suppress(ValueError):  # no shortcut for this cost, weights, or only one pair
            values = leave_pair_out_predict(model, data.X, data.y, pairs=pairs)
            errors = row_errors_of_pairs(data.y, pairs, values)
            errors = replace(errors, mean=_pair_interval(plan, data, model, path, errors.mean))
            return HeldOutErrors("leave-pair-out", errors, None, path, errors.mean, corrected)
    errors, scores, n_folds = _refitted(plan, model, data)
    return HeldOutErrors("folds", errors, scores, path, errors.mean, corrected, n_folds)


def _pair_interval(
    plan: FitPlan, data: Rankings, model: Any, path: AlphaPath, mean: Interval
) -> Interval:
    """Interval of a leave-pair-out error that also holds on noise, where labels can be permuted."""
    few = data.n_rows <= MAX_SEARCHED and plan.fixed is None and len(path.alphas) > 1
    try:
        score: Any = leave_pair_out_score(
            model, data.X, data.y, confidence=LEVEL, alphas=path.alphas if few else None
        )
    except ValueError:  # a cost whose labels cannot be permuted
        return mean
    return Interval(1 - float(score), 1 - score.high, 1 - score.low, LEVEL, "permutation", mean.n)


def _searched(plan: FitPlan, data: Rankings, **changes: Any) -> tuple[AlphaPath, Any]:
    """Choose alpha by a `RankRLSCV`; returns its held-out predictions, if it keeps them."""
    search = clone(plan.search).set_params(**changes)
    ranker = fit(search, data.X, data.y, data.fit_options())
    results, scoring = ranker.cv_results_, ranker.scoring
    alphas, spread = results["alpha"], None
    if "std_score" in results and (results["n_scores"] > 1).all():
        spread = results["std_score"] / np.sqrt(results["n_scores"] - 1)
    best = int(np.searchsorted(alphas, ranker.alpha_))
    chosen = best if plan.fixed is None else int(np.searchsorted(alphas, plan.fixed))
    metric = scoring if isinstance(scoring, str) else getattr(scoring, "__name__", "scoring")
    over = "queries" if data.has_qid else "folds"
    path = AlphaPath(alphas, 1.0 - results["mean_score"], spread, over, chosen, best, metric)
    return path, getattr(ranker, "cv_predictions_", None)


def _of_any_estimator(plan: FitPlan, data: Rankings) -> HeldOutErrors:
    """Held out by refits, or by an `AutoRanker` that has held out each query already."""
    if isinstance(plan.estimator, AutoRanker) and data.has_qid:
        plan.tell("Choosing members by held-out queries")
        model = fit(clone(plan.estimator), data.X, data.y, data.fit_options())
        scores = model.nested_scores_
        if np.isfinite(scores).all():
            errors = query_errors(data, scores)
            method, mean = "leave-query-out", errors.mean
            return HeldOutErrors(method, errors, scores, None, mean, False, model=model)
    errors, scores, n_folds = _refitted(plan, plan.estimator, data)
    return HeldOutErrors("refits", errors, scores, None, errors.mean, True, n_folds)


def _refitted(plan: FitPlan, estimator: Any, data: Rankings) -> tuple[UnitErrors, Array, int]:
    """Errors and scores of random folds of queries, or rows, by fits to the others; their number.

    The rows of one ranking are compared within their folds.
    """
    precomputed = getattr(estimator, "kernel", None) == "precomputed"
    if precomputed and np.ndim(getattr(estimator, "basis", 0)) == 1:
        raise ValueError(
            "a report refits this estimator without some rows, and row numbers in basis do not "
            "follow: pass basis as a number, RankRLS, or a kernel by name"
        )
    units = data.codes if data.has_qid else np.arange(data.n_rows)
    n_folds = min(N_REFITS, data.n_queries if data.has_qid else max(2, data.n_rows // 5))
    n = int(units.max()) + 1
    fold_of = np.empty(n, dtype=np.int64)
    fold_of[np.random.RandomState(0).permutation(n)] = np.arange(n) % n_folds
    folds, scores = fold_of[units], np.empty(data.n_rows)
    for number in range(n_folds):
        plan.tell(f"Refitting without fold {number + 1} of {n_folds}")
        rows, rest = np.flatnonzero(folds == number), np.flatnonzero(folds != number)
        train, new = data.X[rest], data.X[rows]
        if precomputed:
            train, new = train[:, rest], new[:, rest]
        model = fit(clone(estimator), train, data.y[rest], data.fit_options(rest))
        scores[rows] = predict(model, new, data.fit_options(rows).get("qid"))
    if data.has_qid:
        return query_errors(data, scores), scores, n_folds
    return row_errors(data.y, scores, folds), scores, n_folds
