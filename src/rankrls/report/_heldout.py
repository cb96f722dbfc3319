"""What to fit, held-out predictions of the training data, and the error for each alpha."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn import get_config
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from rankrls import AutoRanker, RankRLS, RankRLSCV
from rankrls._validation import check_positive, show
from rankrls.estimators.choosing import DEFAULT_ALPHAS, check_alphas, random_fold_of
from rankrls.metrics import pairwise_error
from rankrls.model_selection import (
    leave_pair_out_predict,
    leave_pair_out_score,
    leave_query_out_predict,
)
from rankrls.model_selection.refits import refit
from rankrls.report._data import Rankings
from rankrls.report._errors import (
    LEVEL,
    Interval,
    errors_of,
    mean_interval,
    row_errors_of_pairs,
)

__all__ = ["AlphaPath", "fit", "hold_out", "make_plan", "predict"]

Array = NDArray[Any]

#: Sparse data with more rows and columns than this are fitted by conjugate gradients (as with
#: solver="auto"), for which there are no exact held-out predictions.
MAX_SPARSE = 5000
#: Maximum number of rows for leave-pair-out in one ranking (as in RankRLSCV), and of those for
#: which the choice of alpha is repeated for permuted labels.
MAX_PAIR_ROWS, MAX_SEARCHED = 1000, 200
#: Number of folds if models have to be refitted.
N_REFITS = 5


def make_plan(estimator: Any, alphas: ArrayLike | None, X: Any, tell: Any = None) -> Any:
    """Check ``estimator`` and ``alphas``: how to fit the model and to hold out rows.

    ``search`` is a `RankRLSCV`, None for estimators that can only be refitted; ``fixed`` the alpha,
    if it is not chosen; ``exact``: held-out predictions need no refits; ``with_alpha`` returns an
    unfitted estimator.
    """
    grid = None if alphas is None else check_alphas("alphas", np.atleast_1d(alphas))
    estimator = RankRLSCV() if estimator is None else estimator
    if isinstance(estimator, type) or not hasattr(estimator, "predict"):
        raise ValueError(
            f"estimator must have fit and predict, such as RankRLSCV(); got {show(estimator)}"
        )
    estimator = clone(estimator)
    plan = SimpleNamespace(
        estimator=estimator, search=None, fixed=None, exact=False,
        tell=tell or (lambda _: None), with_alpha=lambda _: clone(estimator),
        precomputed=getattr(estimator, "kernel", None) == "precomputed",
    )  # fmt: skip
    ours = isinstance(estimator, RankRLS | RankRLSCV)
    if (ours or isinstance(estimator, AutoRanker)) and estimator.random_state is None:
        estimator.set_params(random_state=0)
    if not ours or estimator.early_stopping or np.ndim(estimator.gamma):
        if alphas is not None:
            raise ValueError(
                "alphas can be used only with RankRLS and RankRLSCV (without early stopping, with "
                f"one gamma); the estimator is {type(estimator).__name__}, so leave alphas out"
            )
        return plan
    options = estimator.get_params()
    common = {name: options[name] for name in RankRLS().get_params() if name in options}
    if isinstance(estimator, RankRLSCV):
        plan.search = estimator if grid is None else estimator.set_params(alphas=grid)
    else:
        alpha = check_positive("alpha", common.pop("alpha"))
        if grid is None:
            plan.fixed, grid = alpha, np.unique([*DEFAULT_ALPHAS, alpha])
        plan.search = RankRLSCV(grid, **common)
    large = estimator.solver == "auto" and sparse.issparse(X) and min(X.shape) > MAX_SPARSE
    plan.exact = estimator.solver != "cg" and not large
    plan.with_alpha = lambda alpha: RankRLS(alpha, **common)
    return plan


def by_step(estimator: Any, options: dict[str, Array]) -> dict[str, Array]:
    """Arguments of ``fit``, which a Pipeline passes to its last step."""
    if not isinstance(estimator, Pipeline) or get_config()["enable_metadata_routing"]:
        return options
    return {f"{estimator.steps[-1][0]}__{name}": values for name, values in options.items()}


def fit(estimator: Any, data: Rankings) -> Any:
    """Fit to all rows, with qid and sample_weight, if given."""
    return estimator.fit(data.inputs, data.y, **by_step(estimator, data.fit_options()))


def predict(model: Any, X: Any, qid: Array | None) -> Array:
    """Predict scores of rows, shape (n_rows,), passing qid to an `AutoRanker`."""
    options = {"qid": qid} if isinstance(model, AutoRanker) else {}
    scores = np.asarray(model.predict(X, **options), dtype=np.float64).reshape(X.shape[0])
    if not np.isfinite(scores).all():
        raise ValueError("the model predicts NaN or infinity; check the scales of the features")
    return scores


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


def hold_out(plan: Any, data: Rankings) -> SimpleNamespace:
    """Predict each row of the training data by a model trained without it.

    ``errors`` are those at the alpha of the model; the ``estimate`` is corrected for its choice.
    """
    held = SimpleNamespace(path=None, corrected=True, scores=None, n_folds=None, model=None)
    if plan.search is not None:
        plan.tell("Choosing alpha by held-out predictions")
        _of_alphas(plan, data, held)
    elif isinstance(plan.estimator, AutoRanker) and data.has_qid:
        plan.tell("Choosing members by held-out queries")
        model = fit(clone(plan.estimator), data)
        if np.isfinite(model.nested_scores_).all():
            held.method, held.model = "leave-query-out", model
            held.scores, held.errors = model.nested_scores_, errors_of(data, model.nested_scores_)
    if not hasattr(held, "errors"):
        held.method, estimator = "refits", plan.estimator
        if held.path is not None:
            held.method, estimator = "folds", plan.with_alpha(_chosen(held.path))
        held.errors, held.scores, held.n_folds = _refitted(plan, estimator, data)
    if not hasattr(held, "estimate"):
        held.estimate = held.errors.mean
    return held


def _chosen(path: AlphaPath) -> float:
    return float(path.alphas[path.chosen])


def _of_alphas(plan: Any, data: Rankings, held: SimpleNamespace) -> None:
    """The path of alphas, and exact errors at that of the model, where there are any."""
    X, cv, exact = data.inputs, plan.search.cv, plan.exact
    by_query = data.has_qid and cv in ("auto", "leave-query-out")
    if exact:
        try:
            path, by_alpha = _searched(plan, data, store_cv_predictions=by_query)
        except MemoryError:
            if plan.precomputed:
                raise
            exact = False
    if not exact:
        path, by_alpha = _searched(plan, data, solver="cg", cv="auto")
    held.path, held.corrected = path, plan.fixed is not None or len(path.alphas) == 1
    model = plan.with_alpha(_chosen(path))
    if exact and data.has_qid:
        held.method = "leave-query-out"
        held.scores = (by_alpha[path.chosen] if by_query else
                       leave_query_out_predict(model, X, data.y, **data.fit_options()))  # fmt: skip
        held.errors = errors_of(data, held.scores)
        if by_query and not held.corrected and path.metric == "pairwise_accuracy":
            # Each query at the alpha that is best for all others; the largest wins ties.
            errors = [pairwise_error(data.y, f, qid=data.codes, average=None) for f in by_alpha]
            table = np.array(errors)[::-1, np.isfinite(errors[0])]
            best = np.argmin(table.sum(axis=1, keepdims=True) - table, axis=0)
            held.estimate = mean_interval(table[best, np.arange(table.shape[1])])
            held.corrected = True
    elif exact and data.n_rows <= MAX_PAIR_ROWS and cv in ("auto", "leave-pair-out"):
        i, j = np.triu_indices(data.n_rows, 1)
        pairs = np.column_stack([i, j])[data.y[i] != data.y[j]]
        with suppress(ValueError):  # no shortcut for this cost, weights, or only one pair
            values = leave_pair_out_predict(model, X, data.y, pairs=pairs)
            held.method, held.errors = "leave-pair-out", row_errors_of_pairs(data.y, pairs, values)
            # A cost whose labels cannot be permuted has the interval of the jackknife.
            few = data.n_rows <= MAX_SEARCHED and not held.corrected
            score: Any = leave_pair_out_score(model, X, data.y, confidence=LEVEL,
                                              alphas=path.alphas if few else None)  # fmt: skip
            interval = Interval(1 - float(score), 1 - score.high, 1 - score.low, LEVEL,
                                "permutation", held.errors.mean.n)  # fmt: skip
            held.errors = replace(held.errors, mean=interval)


def _searched(plan: Any, data: Rankings, **changes: Any) -> tuple[AlphaPath, Any]:
    """Choose alpha by a `RankRLSCV`; returns its held-out predictions, if it keeps them."""
    search = clone(plan.search).set_params(**changes)
    ranker = fit(search, data)
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


def _refitted(plan: Any, estimator: Any, data: Rankings) -> tuple[Any, Array, int]:
    """Errors and scores of random folds of queries, or rows, by fits to the others; their number.

    The rows of one ranking are compared within their folds.
    """
    units = data.codes if data.has_qid else np.arange(data.n_rows)
    n_folds = min(N_REFITS, data.n_queries if data.has_qid else max(2, data.n_rows // 5))
    folds = random_fold_of(units, n_folds, np.random.RandomState(0), what="rows")
    options, scores = by_step(estimator, data.fit_options()), np.empty(data.n_rows)
    for k in range(n_folds):
        plan.tell(f"Refitting without fold {k + 1} of {n_folds}")
        rest, rows = np.flatnonzero(folds != k), np.flatnonzero(folds == k)
        model, X = refit(estimator, data.inputs, data.y, rest, rows, options)
        scores[rows] = predict(model, X, data.codes[rows] if data.has_qid else None)
    return errors_of(data, scores, folds), scores, n_folds
