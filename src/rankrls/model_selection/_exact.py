"""Exact cross-validated predictions, comparable within a query and fold only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as t_distribution

from rankrls._calls import takes_queries, tells
from rankrls._resources import n_threads
from rankrls._validation import (
    check_finite_array,
    check_integer,
    check_option,
    check_pairs,
    encode_qid,
)
from rankrls.core.ridge.pairs import all_pairs, default_pairs, leave_pairs_out, pair_accuracies
from rankrls.core.ridge.residuals import Folds, check_fold, query_folds
from rankrls.estimators import RankRLS, RankRLSCV
from rankrls.estimators.calibration import by_judgement, judgement_folds
from rankrls.estimators.ranker import Preferences
from rankrls.estimators.rankrls import exact_problem
from rankrls.model_selection._cross_validation import held_out_scores
from rankrls.model_selection._permutation import permutation_test
from rankrls.model_selection._splitters import LeavePairOut

Array = NDArray[Any]


@takes_queries
@tells("predictions of every query without it")
def leave_query_out_predict(
    estimator: RankRLS,
    X: Any,
    y: Any,
    *,
    qid: Any,
    alphas: ArrayLike | None = None,
    keep_basis: bool = False,
    **fit_params: Any,
) -> Array:
    """Predict each query by the model trained on all other queries, without refitting.

    Parameters
    ----------
    estimator : RankRLS
        Defines the parameters; it need not be fitted.
    X, y, qid : as for ``fit``
    alphas : array-like of shape (n_alphas,), optional
        Grid of values to use instead of the estimator's alpha, at little more cost than one.
    keep_basis : bool, default=False
        With a Nyström basis, whether basis vectors from the held-out query stay in the basis.
    **fit_params
        sample_weight, pairs (within queries), magnitude and pair_weight, as for ``fit``.

    Returns
    -------
    ndarray of shape (n[, n_outputs]), with alphas (n_alphas, n[, n_outputs])
        Scores, equal to a refit up to a constant for each query (P1 §3.3), and so comparable only
        within a query.

    Examples
    --------
    >>> from rankrls import RankRLS
    >>> from rankrls.datasets import make_ranking
    >>> from rankrls.model_selection import leave_query_out_predict
    >>> X, y, qid = make_ranking(n_queries=40, random_state=0, return_X_y_qid=True)
    >>> leave_query_out_predict(RankRLS(), X, y, qid=qid, alphas=[1.0, 100.0]).shape
    (2, 800)
    """
    if qid is None:
        raise ValueError("leave-query-out needs qid, the query of every row")
    preferences = Preferences.of(y, qid=qid, **fit_params)
    _, problem, grid = exact_problem(estimator, X, preferences, alphas, keep_basis=keep_basis)
    codes = encode_qid(qid, problem.graph.n_rows).codes
    held = problem.leave_out(query_folds(codes), grid).by_row(len(codes))
    return shaped(held, problem.graph.flat, alphas)


@takes_queries
@tells("predictions of every fold without it")
def holdout_predict(
    estimator: RankRLS,
    X: Any,
    y: Any,
    folds: Iterable[ArrayLike],
    *,
    qid: Any = None,
    alphas: ArrayLike | None = None,
    keep_basis: bool = False,
    **fit_params: Any,
) -> list[Array]:
    """Predict the rows of each fold by the model trained without them, without refitting.

    Parameters
    ----------
    estimator, X, y, qid, alphas, keep_basis, **fit_params
        As for `leave_query_out_predict`; without qid, all rows are one ranking.
    folds : iterable of int arrays
        Row indices to leave out together; folds may overlap. A fold that splits a query has a
        shortcut with cost="magnitude", ties="keep" and query_weighting="size" (or one query), and
        is refitted otherwise.

    Returns
    -------
    list of ndarray of shape (len(fold)[, n_outputs]), with alphas a leading axis (n_alphas, …)
        Scores of each fold, equal to refits up to a constant for each fold and query.
    """
    preferences = Preferences.of(y, qid=qid, **fit_params)
    _, problem, grid = exact_problem(estimator, X, preferences, alphas, keep_basis=keep_basis)
    rows = [check_fold(number, fold, problem.graph.n_rows) for number, fold in enumerate(folds)]
    if not rows:
        raise ValueError("folds is empty; give at least one array of row numbers")
    held = problem.leave_out(rows, grid)
    return [shaped(part, problem.graph.flat, alphas) for part in held.predictions]


@takes_queries
@tells("predictions of every pair without it")
def leave_pair_out_predict(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    qid: Any = None,
    pairs: ArrayLike | None = None,
    alphas: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> Array:
    """Predict both rows of each pair by the model trained without them.

    Parameters
    ----------
    estimator : RankRLS, or any estimator or pipeline
        A RankRLS is not refitted: without qid it needs cost="magnitude" and ties="keep" (or y
        without ties). Other estimators, such as a pipeline that selects features, are refitted
        without each pair.
    X, y : as for ``fit``
    qid : array-like of shape (n,), optional
        Query (batch, group) of each row: only rows of the same query are compared. If None, all
        rows are one ranking.
    pairs : array-like of shape (n_pairs, 2), optional
        Row indices. By default all i < j (of the same query) with different y, or all i < j if
        there are several outputs.
    alphas : array-like of shape (n_alphas,), optional
        Grid of values instead of the alpha of a RankRLS.
    n_jobs : int, optional
        Number of refits run in parallel, for estimators that are refitted.

    Returns
    -------
    ndarray of shape (n_pairs, 2[, n_outputs]), with alphas a leading axis (n_alphas, …)
        Scores, equal to those of a refit up to a constant for each pair (P1 §3.4): only the two
        scores of the same pair can be compared.
    """
    splitter = LeavePairOut("different" if pairs is None else pairs)
    if not isinstance(estimator, RankRLS | RankRLSCV):
        if alphas is not None:
            raise ValueError("alphas is for RankRLS; other estimators are refitted as they are")
        splits = splitter.split(X, y, groups=qid)
        held = held_out_scores(estimator, X, y, splits, qid=qid, n_jobs=n_jobs)
        return np.array([scores for _, scores in held])
    _, problem, grid = exact_problem(estimator, X, Preferences(y, qid), alphas)
    graph = problem.graph
    if qid is None:
        chosen = default_pairs(problem) if pairs is None else check_pairs(pairs, graph.n_rows)
        out = np.stack([part for part, _ in leave_pairs_out(problem, chosen, grid)])
    else:
        folds = [test for _, test in splitter.split(X, graph)]
        out = problem.leave_out(folds, grid).values.reshape(len(grid), len(folds), 2, -1)
    return shaped(out, graph.flat, alphas)


class ScoreInterval(float):
    """A score with a confidence interval from ``low`` to ``high``, of level ``confidence``."""

    low: float
    high: float
    confidence: float


@takes_queries
@tells("predictions of every pair without it")
def leave_pair_out_score(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    qid: Any = None,
    confidence: float | None = None,
    alphas: ArrayLike | None = None,
    random_state: Any = 0,
    n_jobs: int | None = None,
) -> float:
    """Fraction of pairs with different y that are ordered correctly by the model without them.

    For binary y this is the leave-pair-out estimate of the AUC, otherwise of the concordance index.
    Tied predictions count as ½. Several outputs are averaged.

    Parameters
    ----------
    estimator, X, y, qid, n_jobs : as for `leave_pair_out_predict`
    confidence : float, optional
        Level of a confidence interval, such as 0.95, for a RankRLS with cost="magnitude" and
        ties="keep", one output and no qid. The result is then a float with the attributes ``low``,
        ``high`` and ``confidence``. The half-widths are those of a jackknife over rows, but at
        least the distances of ½ from the quantiles of the scores of permuted labels.
    alphas : array-like, optional
        With ``confidence``: the grid from which alpha was chosen by the same score, so that the
        interval allows for the choice.
    random_state : int, RandomState instance or None, default=0
        Of the permutations behind the interval.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from rankrls import RankRLS
    >>> from rankrls.model_selection import leave_pair_out_score
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> auc = leave_pair_out_score(RankRLS(100.0), X[:60], y[:60], confidence=0.95)
    >>> round(auc, 3), bool(0.5 < auc.low < auc < auc.high)
    (0.984, True)
    """
    exact = isinstance(estimator, RankRLS | RankRLSCV) and qid is None
    if confidence is not None and not exact:
        raise ValueError("confidence is for a RankRLS and one ranking, without qid")
    if confidence is not None and not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1; got {confidence!r}")
    if not exact:
        pairs = np.array([test for _, test in LeavePairOut().split(X, y, groups=qid)])
        held = leave_pair_out_predict(estimator, X, y, qid=qid, pairs=pairs, n_jobs=n_jobs)
        signs, right = _concordance(y, pairs, held)
        return float((1 + right.sum(axis=0) / np.abs(signs).sum(axis=0)).mean() / 2)
    _, problem, grid = exact_problem(estimator, X, Preferences(y))
    accuracy, _ = next(pair_accuracies(problem, grid, n_threads(estimator.n_jobs)))
    score = ScoreInterval(accuracy.mean())
    if confidence is None:
        return float(score)
    scores = problem.graph.scores
    if scores is None or scores.shape[1] > 1:
        raise ValueError("confidence is for one output; pass y[:, j]")
    m, pairs = len(scores), default_pairs(problem)
    held, _ = next(leave_pairs_out(problem, pairs, grid))
    right = (1 + _concordance(scores[:, 0], pairs, held[..., 0])[1]) / 2
    # Leaving out row i changes the score by Σ_{pairs of i} (right − score)/pairs to first order.
    change = np.bincount(pairs.ravel(), np.repeat(right - float(score), 2), minlength=m)
    tail = (1 - confidence) / 2
    half = float(t_distribution.ppf(1 - tail, m - 1) * np.linalg.norm(change) / len(pairs))
    n_permutations = max(199 if m <= 200 else 99, int(np.ceil(2 / tail)))
    null = permutation_test(
        estimator, X, y, alphas=alphas, n_permutations=n_permutations, random_state=random_state
    ).null_scores
    low, high = np.quantile(null, [tail, 1 - tail], method="higher")
    score.low = max(0.0, float(score) - max(half, float(high) - 0.5))
    score.high = min(1.0, float(score) + max(half, 0.5 - float(low)))
    score.confidence = confidence
    return score


@tells("predictions of judgements without them")
def holdout_judgements(
    estimator: RankRLS,
    X: Any,
    pairs: ArrayLike,
    *,
    by: str = "judgement",
    groups: Any = None,
    folds: Iterable[ArrayLike] | None = None,
    magnitude: ArrayLike | None = None,
    pair_weight: ArrayLike | None = None,
    pair_features: ArrayLike | None = None,
    alphas: ArrayLike | None = None,
    return_std: bool = False,
    **fit_params: Any,
) -> Any:
    """Predict each judgement by the model trained without it, without refitting.

    Parameters
    ----------
    estimator, X, pairs, magnitude, pair_weight, pair_features, alphas
        As for `leave_query_out_predict`. Only judgements are left out; rows and basis stay.
    by : {"judgement", "item", "group", "fold"}, default="judgement"
        What is left out when a judgement is predicted: only the judgement itself, or all judgements
        of one of its items, of its group, or of its fold.
    groups : array-like of shape (n_pairs,), optional
        With ``by="group"``: the judge, prompt or session of each judgement.
    folds : iterable of int arrays, optional
        With ``by="fold"``: judgements to leave out together, each in at most one fold.
    return_std : bool, default=False
        Whether to also return the posterior standard deviations of the differences, without the
        noise of a new judgement.
    **fit_params
        y, qid and sample_weight, if there are scores in addition to the judgements.

    Returns
    -------
    ndarray of shape (n_pairs[, n_outputs]), or (n_pairs, 2[, n_outputs]) by item
        f(preferred) − f(other), plus the effect cᵀγ of pair_features, as that of a refit, with a
        leading axis for ``alphas``; NaN for
        judgements that are in no fold. By item: without the judgements of the preferred item, and
        without those of the other one. With ``return_std``, a pair of such arrays.

    Examples
    --------
    >>> from rankrls import RankRLS
    >>> from rankrls.datasets import make_preference_pairs
    >>> data = make_preference_pairs(random_state=0)
    >>> held_out = holdout_judgements(RankRLS(10.0), data.data, data.pairs)
    >>> bool((held_out > 0).mean() > 0.7)
    True
    """
    check_option("by", by, ("judgement", "item", "group", "fold"))
    for name, value, needed in (("groups", groups, "group"), ("folds", folds, "fold")):
        if (value is not None) != (by == needed):
            raise ValueError(
                f"by={by!r} needs {name}" if by == needed else f"{name} goes with by={needed!r}"
            )
    judged = {"magnitude": magnitude, "pair_weight": pair_weight, "pair_features": pair_features}
    given = Preferences.of(fit_params.pop("y", None), pairs=pairs, **judged, **fit_params)
    _, problem, grid = exact_problem(estimator, X, given, alphas)
    graph = problem.graph
    if folds is not None:
        n_pairs = graph.n_given_pairs
        parts = [check_fold(number, fold, n_pairs) for number, fold in enumerate(folds)]
        if not parts:
            raise ValueError("folds is empty; give at least one array of judgements")
        left_out = Folds.of_list(parts)
        counts = np.bincount(left_out.members, minlength=n_pairs)
        if (counts > 1).any():
            twice = int(np.argmax(counts > 1))
            raise ValueError(
                f"judgement {twice} is in {counts[twice]} folds; put each judgement in one fold"
            )
    else:
        left_out, _ = judgement_folds(graph, by, groups)
    held = problem.leave_judgements_out(left_out, grid, variances=return_std)
    values = [held.values] if held.variance is None else [held.values, np.sqrt(held.variance)]
    results = [
        shaped(by_judgement(part, left_out, graph.pairs), graph.flat, alphas) for part in values
    ]
    return tuple(results) if return_std else results[0]


def leave_pair_out_tournament(
    estimator: Any, X: Any, y: Any, *, n_jobs: int | None = None
) -> Array:
    """Fraction of comparisons that each row wins in leave-pair-out cross-validation, (n,).

    Sorting by these scores gives a cross-validated ranking, from which a ROC curve can be drawn
    (Montoya Perez et al. 2019); without cycles and ties its AUC is the leave-pair-out AUC.

    Parameters
    ----------
    estimator, n_jobs
        As for `leave_pair_out_predict`; all n(n − 1)/2 pairs are left out.
    X, y : as for ``fit``, one ranking; y of shape (n,)
    """
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    pairs = all_pairs(n)
    predictions = leave_pair_out_predict(estimator, X, y, pairs=pairs, n_jobs=n_jobs)
    if predictions.ndim != 2:
        raise ValueError("a tournament has one output; give y of shape (n,)")
    return tournament_scores(pairs, predictions, n)


def tournament_scores(pairs: ArrayLike, predictions: ArrayLike, n_rows: int) -> Array:
    """Fraction of its comparisons that each row wins, (n_rows,), with half a win for a tie.

    Parameters
    ----------
    pairs : array-like of shape (n_pairs, 2), int
        Indices of the rows that were compared; every row is in at least one pair.
    predictions : array-like of shape (n_pairs, 2)
        Scores of the two rows of each pair, from any estimator; the higher score wins.
    n_rows : int

    Examples
    --------
    >>> from rankrls.model_selection import tournament_scores
    >>> tournament_scores([(0, 1), (0, 2), (1, 2)], [(0.2, 0.1), (3, 5), (1, 1)], 3)
    array([0.5 , 0.25, 0.75])
    """
    n = check_integer("n_rows", n_rows, least=2)
    rows = check_pairs(pairs, n)
    scores = check_finite_array("predictions", predictions, ndim=(2,))
    if scores.shape != rows.shape:
        raise ValueError(
            f"predictions must hold two scores for each of {len(rows)} pairs; got shape "
            f"{scores.shape}"
        )
    won = (np.sign(scores[:, 0] - scores[:, 1]) + 1) / 2
    played = np.bincount(rows.ravel(), minlength=n)
    if not played.all():
        missing = int(np.flatnonzero(played == 0)[0])
        raise ValueError(f"row {missing} is in no pair; a tournament compares all rows")
    wins = np.bincount(rows[:, 0], won, minlength=n) + np.bincount(rows[:, 1], 1 - won, minlength=n)
    return wins / played


def _concordance(y: Any, pairs: Array, held: Array) -> tuple[Array, Array]:
    """Order of y in each pair, −1, 0 or 1, and its product with that of the predictions."""
    labels = np.unique(np.asarray(y), return_inverse=True)[1].reshape(np.shape(y))
    signs = np.sign(labels[pairs[:, 0]] - labels[pairs[:, 1]])
    return signs, signs * np.sign(held[:, 0] - held[:, 1])


def shaped(values: Array, flat: bool, alphas: ArrayLike | None) -> Array:
    """Drop the axes that the caller did not request: outputs (last), alphas (first)."""
    values = values[..., 0] if flat else values
    return values[0] if alphas is None else values
