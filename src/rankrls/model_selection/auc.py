"""Cross-validated estimates of AUC for any estimator, with one refit for each held-out set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier
from sklearn.model_selection import LeaveOneOut, check_cv
from sklearn.utils import check_random_state

from rankrls._validation import check_option, encode_qid
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.metrics import concordance_index
from rankrls.model_selection._cross_validation import held_out_scores
from rankrls.model_selection._splitters import LeavePairOut

Array = NDArray[Any]


def pooled_auc(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    cv: Any = 5,
    *,
    groups: Any = None,
    intercept: str = "auto",
    n_jobs: int | None = None,
) -> float:
    """AUC of the held-out predictions of all folds, pooled.

    Parameters
    ----------
    estimator : estimator
        Any ranker, regressor or classifier; it is cloned for each fold. Scores come from its
        ``decision_function``, else from the probability of the higher class, else from ``predict``.
    X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
        Features, or the kernel matrix of shape (n_rows, n_rows) if the estimator takes one.
    y : array-like of shape (n_rows,)
        Binary labels; the higher one is the positive class.
    cv : int, splitter or iterable of (train, test), default=5
        An int is a number of stratified folds, not shuffled.
    groups : array-like of shape (n_rows,), optional
        Passed to the splitter.
    intercept : {"auto", "residual", "own"}, default="auto"
        "own" uses the scores of each fold unchanged (the default for classifiers). "residual" gives
        each model the least-squares intercept, f(x) − mean(f(X_train)) + mean(y_train), because the
        scores of rankers are defined only up to a constant.
    n_jobs : int, optional
        Number of fits run in parallel.

    Returns
    -------
    float
        Between 0 and 1; tied scores count as ½. Pooling is biased: if a fold has many positives,
        the model that predicts it was trained on few and gives lower scores. `leave_pair_out_auc`
        does not compare predictions of different models.
    """
    positive = two_levels(y)
    splits = check_cv(cv, positive, classifier=True).split(X, positive, groups)
    return _auc(estimator, X, y, positive, splits, n_jobs, intercept)


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
    positive = two_levels(y)
    splits = check_cv(cv, positive, classifier=True).split(X, positive, groups)
    return _auc(estimator, X, y, positive, splits, n_jobs)


def leave_one_out_auc(
    estimator: Any, X: Any, y: ArrayLike, *, intercept: str = "auto", n_jobs: int | None = None
) -> float:
    """AUC of pooled leave-one-out predictions, which is strongly biased downwards on small data.

    If a positive row is left out, the mean of y is lower by about 1/n than if a negative row is,
    and so are the predictions. For a model that learns nothing, the estimate is therefore 0, not ½.

    Parameters
    ----------
    estimator, X, y, intercept, n_jobs
        As in `pooled_auc`.
    """
    positive = two_levels(y, least=2)
    return _auc(estimator, X, y, positive, LeaveOneOut().split(positive), n_jobs, intercept)


def balanced_leave_one_out_auc(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    random_state: Any = None,
    intercept: str = "auto",
    n_jobs: int | None = None,
) -> float:
    """AUC of leave-one-out predictions by models trained with the same class balance.

    Each row is predicted by a model trained without it and without a random row of the other class,
    so that all models see the same numbers of positives and negatives; the predictions are pooled
    (Parker, Günter and Bedo 2007).

    Parameters
    ----------
    estimator, X, y, intercept, n_jobs
        As in `pooled_auc`.
    random_state : int, RandomState instance or None
        Seed for drawing the rows of the other class.
    """
    positive = two_levels(y, least=2)
    rng, rows = check_random_state(random_state), np.arange(len(positive))
    drawn = [rng.choice(np.flatnonzero(positive != level)) for level in positive]
    splits = ((np.delete(rows, [i, j]), rows[[i]]) for i, j in enumerate(drawn))
    return _auc(estimator, X, y, positive, splits, n_jobs, intercept)


def leave_pair_out_auc(estimator: Any, X: Any, y: ArrayLike, *, n_jobs: int | None = None) -> float:
    """Leave-pair-out cross-validated estimate of AUC, by a fit for each positive and negative row.

    It is the fraction of these pairs that are ordered correctly by the model trained without them,
    and the least biased of these estimates, with a lower variance than other averages (Airola et
    al. 2011). `leave_pair_out_score` needs no fits for RankRLS.

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
    positive = two_levels(y, least=2)
    return _auc(estimator, X, y, positive, LeavePairOut().split(positive, positive), n_jobs)


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
    positive: Array,
    splits: Iterable[tuple[Array, Array]],
    n_jobs: int | None,
    intercept: str | None = None,
) -> float:
    """AUC of all held-out scores with this intercept, or the mean over splits with both classes."""
    if intercept is None:
        both = (s for s in splits if positive[s[1]].min() < positive[s[1]].max())
        held = held_out_scores(estimator, X, y, both, n_jobs=n_jobs)
        if not held:
            raise ValueError(
                "no fold has rows of both classes: use fewer folds, or stratified ones (an int cv)"
            )
        return float(np.mean([concordance_index(positive[test], scores) for test, scores in held]))
    check_option("intercept", intercept, ("auto", "residual", "own"))
    residual = intercept == "residual" or (intercept == "auto" and not is_classifier(estimator))
    held = held_out_scores(estimator, X, y, splits, residual=residual, n_jobs=n_jobs)
    rows, scores = (np.concatenate(part) for part in zip(*held, strict=True))
    return concordance_index(positive[rows], scores)
