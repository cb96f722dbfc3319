"""Cross-validation by refits: scikit-learn's with queries, and estimates of AUC."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn import config_context, model_selection
from sklearn.base import clone, is_classifier
from sklearn.model_selection import LeaveOneOut, check_cv
from sklearn.utils import check_random_state, get_tags, indexable
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.parallel import Parallel, delayed

from rankrls._calls import takes_queries
from rankrls._frames import check_same_rows, take_rows
from rankrls._validation import check_scores, encode_qid, is_integer, label_array, refuse_lazy
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.estimators.choosing import Scoring
from rankrls.metrics import concordance_index, make_ranking_scorer, pairwise_accuracy
from rankrls.model_selection._splitters import LeavePairOut, QueryKFold
from rankrls.rankings import predicts_by_query

Array = NDArray[Any]


@takes_queries
def cross_validate(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    qid: Any = None,
    cv: Any = 5,
    scoring: Any = None,
    **options: Any,
) -> dict[str, Any]:
    """Cross-validate like scikit-learn's `cross_validate`, with folds of whole queries.

    Metadata routing is enabled during the call.

    Parameters
    ----------
    estimator : estimator, pipeline or search
        Any estimator with ``fit`` and ``predict``. Those whose ``fit`` takes qid (rankers, also
        inside a pipeline or a search) receive that of their rows.
    X : array-like or sparse matrix of shape (n_rows, n_features)
    y : array-like of shape (n_rows,) or (n_rows, n_outputs), or PreferenceGraph
    qid : array-like of shape (n_rows,), optional
        Query of each row. If None, all rows form one query, or y is a `PreferenceGraph`.
    cv : int, splitter or iterable of (train, test), default=5
        An int is a number of folds of whole queries, `QueryKFold`. A splitter, also that of a
        nested search, receives qid as its ``groups``.
    scoring : str, callable, dict or list, optional
        Names accepted by `RankRLSCV`, such as "ndcg@10", or scorers; several as a list or a dict.
        By default pairwise accuracy.
    **options
        Additional arguments of `sklearn.model_selection.cross_validate`, such as ``n_jobs``,
        ``return_estimator`` or ``error_score``, which is "raise" by default here.

    Returns
    -------
    dict of str to ndarray
        "test_score" (with several metrics, ``"test_"`` and the name of each), "fit_time",
        "score_time", and any entries requested by ``options``.

    Examples
    --------
    >>> from rankrls import RankRLS
    >>> from rankrls.datasets import make_ranking
    >>> from rankrls.model_selection import cross_validate
    >>> X, y, qid = make_ranking(n_queries=40, random_state=0, return_X_y_qid=True)
    >>> cross_validate(RankRLS(), X, y, qid=qid, scoring="ndcg@10")["test_score"].shape
    (5,)
    """
    options = {"error_score": "raise", **options}
    with config_context(enable_metadata_routing=True):
        routed = _routed(estimator, X, y, qid, cv, options.pop("params", None))
        scorers = _scorers(scoring, y)
        return model_selection.cross_validate(estimator, X, y, scoring=scorers, **routed, **options)


def cross_val_score(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    qid: Any = None,
    cv: Any = 5,
    scoring: Any = None,
    **options: Any,
) -> Array:
    """Evaluate a score by cross-validation with folds of whole queries, shape (n_folds,).

    Parameters
    ----------
    estimator, X, y, qid, cv, scoring, **options
        As for `cross_validate`, with a single metric.
    """
    if isinstance(scoring, list | tuple | set | dict):
        raise ValueError("cross_val_score takes one scoring; cross_validate takes several")
    options |= {"qid": qid, "cv": cv, "scoring": scoring}
    return cross_validate(estimator, X, y, **options)["test_score"]


@takes_queries
def cross_val_predict(
    estimator: Any, X: Any, y: Any, *, qid: Any = None, cv: Any = 5, **options: Any
) -> Array:
    """Predict each query by a model that was refitted without it.

    Parameters
    ----------
    estimator, X, y, qid, cv
        As for `cross_validate`; the test folds must be a partition of the rows.
    **options
        Additional arguments of `sklearn.model_selection.cross_val_predict`, such as ``n_jobs``.

    Returns
    -------
    ndarray of shape (n_rows,) or (n_rows, n_outputs)
        Scores, comparable only within a query and fold: the models have their own constants.
    """
    with config_context(enable_metadata_routing=True):
        routed = _routed(estimator, X, y, qid, cv, options.pop("params", None), scored=False)
        if qid is None or not predicts_by_query(estimator):
            return model_selection.cross_val_predict(estimator, X, y, **routed, **options)
        parts, rows = [], []  # scikit-learn does not pass qid to predict
        for train, test in routed["cv"]:
            fitted, new = refit(estimator, X, y, train, test, routed["params"])
            parts.append(fitted.predict(new, qid=take_rows(_by_row(qid), test)))
            rows.append(test)
    order = np.concatenate(rows)
    if not np.array_equal(np.sort(order), np.arange(len(order))):
        raise ValueError("cross_val_predict only works for partitions")
    return np.concatenate(parts)[np.argsort(order)]


def refit(
    estimator: Any, X: Any, y: Any, train: Array, test: Array, params: dict[str, Any] | None = None
) -> tuple[Any, Any]:
    """A clone fitted to the rows ``train``, and the rows ``test`` for it."""
    pairwise = get_tags(estimator).input_tags.pairwise
    X = np.asarray(X) if pairwise and not sparse.issparse(X) else X
    old, new = (take_rows(X, rows) for rows in (train, test))
    if pairwise:
        old, new = old[:, train], new[:, train]
    by_row = {name: take_rows(values, train) for name, values in (params or {}).items()}
    target = y[train] if isinstance(y, PreferenceGraph) else take_rows(y, train)
    return clone(estimator).fit(old, target, **by_row), new


def held_out_scores(
    estimator: Any,
    X: Any,
    y: Any,
    splits: Iterable[tuple[Array, Array]],
    *,
    qid: Any = None,
    residual: bool = False,
    n_jobs: int | None = None,
) -> list[tuple[Array, Array]]:
    """Test rows of each split, and their scores by the model fitted to its training rows.

    ``residual``: shift the scores of each model such that its mean training residual is zero.
    """
    refuse_lazy(X)
    X, y = indexable(X, np.asarray(y))
    if residual:
        check_scores(y)

    def fit_and_score(train: Array, test: Array, fold: int) -> tuple[Array, Array]:
        if (y[train] == y[train][:1]).all():
            raise ValueError(
                f"the training rows of fold {fold} are all of one class; use stratified folds (an "
                "int cv), or more of them"
            )
        both = np.append(test, train) if residual else test
        model, rows = refit(estimator, X, y, train, both, params)
        # The decision function of a ranker with qid refuses, since it compares all rows.
        if hasattr(model, "decision_function") and not params:
            scores = np.asarray(model.decision_function(rows))
        elif is_classifier(model) and hasattr(model, "predict_proba"):
            scores = np.asarray(model.predict_proba(rows))[:, 1]
        elif qid is not None and predicts_by_query(model):
            scores = np.asarray(model.predict(rows, qid=take_rows(_by_row(qid), both)))
        else:
            scores = np.asarray(model.predict(rows))
        if scores.size != scores.shape[0]:
            raise ValueError(
                f"the model must give one score for each row; its scores have shape {scores.shape}"
            )
        scores = scores.ravel().astype(float)
        if residual:
            n = len(test)
            return test, scores[:n] - scores[n:].mean() + y[train].astype(float).mean()
        return test, scores

    params: dict[str, Any] = {}
    with config_context(**({} if qid is None else {"enable_metadata_routing": True})):
        if qid is not None and get_routing_for_object(estimator).consumes("fit", {"qid"}):
            params["qid"] = _by_row(qid)
        return Parallel(n_jobs=n_jobs)(
            delayed(fit_and_score)(train, test, fold) for fold, (train, test) in enumerate(splits)
        )


def _by_row(qid: Any) -> Any:
    """Query ids in a form of which scikit-learn can select rows."""
    return qid if hasattr(qid, "iloc") else label_array("qid", qid)


def _routed(
    estimator: Any, X: Any, y: Any, qid: Any, cv: Any, params: Any, *, scored: bool = True
) -> dict[str, Any]:
    """Splits and routed parameters, with qid added for all that request it; routing is enabled."""
    refuse_lazy(X)
    check_same_rows(X, y=y, qid=qid)
    with_queries = qid is not None or (isinstance(y, PreferenceGraph) and y.has_qid)
    if is_integer(cv) and with_queries:
        cv = QueryKFold(cv)
    if qid is None:
        return {"cv": cv, "params": params}
    qid = _by_row(qid)
    if hasattr(cv, "split"):
        cv = list(cv.split(X, y, groups=qid))
    routing = get_routing_for_object(estimator)
    wanted = routing.consumes("fit", {"qid", "groups"})
    wanted = {"qid", *wanted} if scored else wanted  # scorers request it, too
    return {"cv": cv, "params": {**(params or {}), **dict.fromkeys(wanted, qid)}}


def _scorers(scoring: Any, y: Any) -> Any:
    """Make scorers that request qid, from names."""
    if scoring is None:
        # A graph is scored by the ranker itself.
        return None if isinstance(y, PreferenceGraph) else make_ranking_scorer(pairwise_accuracy)
    if isinstance(scoring, str):
        metric = Scoring(scoring)
        return make_ranking_scorer(metric.metric, **metric.options)
    if isinstance(scoring, list | tuple | set):
        scoring = {name: name for name in scoring}
    if isinstance(scoring, dict):
        return {name: _scorers(one, y) for name, one in scoring.items()}
    return scoring


# -- AUC -----------------------------------------------------------------------------------------


def pooled_auc(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    cv: Any = 5,
    *,
    groups: Any = None,
    n_jobs: int | None = None,
) -> float:
    """AUC of the held-out predictions of all folds, pooled.

    Parameters
    ----------
    estimator : estimator
        Any ranker, regressor or classifier. Scores come from its ``decision_function``, else from
        the probability of the higher class, else from ``predict``; those of rankers and regressors
        get the least-squares intercept, f(x) − mean(f(X_train)) + mean(y_train).
    X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
        Features, or the kernel matrix of shape (n_rows, n_rows) if the estimator takes one.
    y : array-like of shape (n_rows,)
        Binary labels; the higher one is the positive class.
    cv : int, splitter or iterable of (train, test), default=5
        An int is a number of stratified folds, not shuffled.
    groups : array-like of shape (n_rows,), optional
        Passed to the splitter.
    n_jobs : int, optional
        Number of fits run in parallel.

    Returns
    -------
    float
        Between 0 and 1; tied scores count as ½. Pooling is biased: if a fold has many positives,
        the model that predicts it was trained on few and gives lower scores.
    """
    return _auc(estimator, X, y, cv, n_jobs, groups=groups, pooled=True)


def averaged_auc(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    cv: Any = 5,
    *,
    groups: Any = None,
    n_jobs: int | None = None,
) -> float:
    """Mean AUC over the folds that contain both classes.

    Pairs of rows in different folds are ignored, so the variance is higher than that of
    `leave_pair_out_auc`.

    Parameters
    ----------
    estimator, X, y, cv, groups, n_jobs
        As in `pooled_auc`. A fold with a single class is excluded, and its model is not fitted.
    """
    return _auc(estimator, X, y, cv, n_jobs, groups=groups)


def leave_one_out_auc(estimator: Any, X: Any, y: ArrayLike, *, n_jobs: int | None = None) -> float:
    """AUC of pooled leave-one-out predictions, which is strongly biased downwards on small data.

    For a model that learns nothing, the estimate is 0, not ½.

    Parameters
    ----------
    estimator, X, y, n_jobs
        As in `pooled_auc`.
    """
    return _auc(estimator, X, y, LeaveOneOut(), n_jobs, least=2, pooled=True)


def balanced_leave_one_out_auc(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> float:
    """AUC of leave-one-out predictions by models trained with the same class balance.

    Each row is predicted by a model trained without it and without a random row of the other class,
    so that all models see the same numbers of positives and negatives; the predictions are pooled
    (Parker, Günter and Bedo 2007).

    Parameters
    ----------
    estimator, X, y, n_jobs
        As in `pooled_auc`.
    random_state : int, RandomState instance or None
        Seed for drawing the rows of the other class.
    """
    positive = two_levels(y, least=2)
    rng, rows = check_random_state(random_state), np.arange(len(positive))
    drawn = [rng.choice(np.flatnonzero(positive != level)) for level in positive]
    splits = ((np.delete(rows, [i, j]), rows[[i]]) for i, j in enumerate(drawn))
    return _auc(estimator, X, y, splits, n_jobs, pooled=True)


def leave_pair_out_auc(estimator: Any, X: Any, y: ArrayLike, *, n_jobs: int | None = None) -> float:
    """Leave-pair-out cross-validated estimate of AUC, by a fit for each positive and negative row.

    It is the least biased of these estimates (Airola et al. 2011). `leave_pair_out_score` needs no
    fits for RankRLS.

    Parameters
    ----------
    estimator, X, y, n_jobs
        As in `pooled_auc`.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.model_selection import leave_one_out_auc, leave_pair_out_auc
    >>> X, y = np.zeros((10, 1)), [0, 1] * 5  # nothing to learn
    >>> leave_pair_out_auc(RankRLS(), X, y), leave_one_out_auc(RankRLS(), X, y)
    (0.5, 0.0)
    """
    return _auc(estimator, X, y, LeavePairOut(), n_jobs, least=2)


def two_levels(y: Any, least: int = 1) -> Array:
    """Encode y as 1 for the higher level and 0 for the lower; require ``least`` rows of each."""
    array = np.asarray(None if isinstance(y, PreferenceGraph) else y)
    if array.ndim != 1:
        raise ValueError(f"AUC needs y with two levels, of shape (n_rows,); got {array.shape}")
    encode_qid(array, len(array), name="y")  # refuses NaN
    levels, codes, size = np.unique(array, return_inverse=True, return_counts=True)
    if len(levels) != 2:
        raise ValueError(f"AUC needs y with two levels; it has {len(levels)}")
    if size.min() < least:
        raise ValueError(
            f"the training rows must contain both classes: y has {size.min()} row(s) of one class "
            f"and needs at least {least}"
        )
    return codes


def _auc(
    estimator: Any,
    X: Any,
    y: Any,
    cv: Any,
    n_jobs: int | None,
    *,
    groups: Any = None,
    least: int = 1,
    pooled: bool = False,
) -> float:
    """AUC of the pooled held-out scores, or the mean over splits with both classes."""
    positive = two_levels(y, least)
    splits = check_cv(cv, positive, classifier=True).split(X, positive, groups)
    if pooled:
        intercept = not is_classifier(estimator)
        held = held_out_scores(estimator, X, y, splits, residual=intercept, n_jobs=n_jobs)
        rows, scores = (np.concatenate(part) for part in zip(*held, strict=True))
        return concordance_index(positive[rows], scores)
    both = (s for s in splits if positive[s[1]].min() < positive[s[1]].max())
    held = held_out_scores(estimator, X, y, both, n_jobs=n_jobs)
    if not held:
        raise ValueError(
            "no fold has rows of both classes: use fewer folds, or stratified ones (an int cv)"
        )
    return float(np.mean([concordance_index(positive[test], scores) for test, scores in held]))
