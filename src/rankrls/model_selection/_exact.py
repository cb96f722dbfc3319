"""Exact cross-validated predictions, comparable within a query and fold only, and their tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as t_distribution
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state

from rankrls import _resources
from rankrls._calls import takes_queries, tells
from rankrls._resources import n_threads
from rankrls._validation import (
    check_finite_array,
    check_integer,
    check_option,
    check_pairs,
    check_rows,
    encode_qid,
    is_integer,
)
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.pairs import (
    all_pairs,
    can_leave_pairs_out,
    decompose_ranking,
    default_pairs,
    leave_pairs_out,
    pair_accuracies,
)
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.ridge.residuals import Folds, query_folds
from rankrls.estimators import RankRLS, RankRLSCV
from rankrls.estimators.calibration import by_judgement, judgement_folds
from rankrls.estimators.choosing import default_grid
from rankrls.estimators.ranker import Preferences
from rankrls.estimators.rankrls import exact_problem
from rankrls.metrics import pairwise_accuracy
from rankrls.model_selection._splitters import LeavePairOut, LeaveQueryOut, QueryKFold
from rankrls.model_selection.refits import held_out_scores

Array = NDArray[Any]

#: Maximum size of the permuted label vectors processed together, and for leave-query-out of their
#: predictions at all alphas.
BATCH_NUMBERS, BATCH_PREDICTIONS = 2**18, 2**22

#: Maximum size of the label vectors that are permuted together.
PERMUTED_NUMBERS = 2**20


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
        Scores, equal to a refit up to a constant for each query (P1 §3.3).

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
    _, problem, grid = exact_problem(estimator, X, preferences, alphas)
    problem.keep_basis = keep_basis
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
        Row indices to leave out together; folds may overlap. Folds that split a query are refitted,
        unless cost="magnitude", ties="keep" and query_weighting="size" (or there is one query).

    Returns
    -------
    list of ndarray of shape (len(fold)[, n_outputs]), with alphas a leading axis (n_alphas, …)
        Scores of each fold, equal to refits up to a constant for each fold and query.
    """
    preferences = Preferences.of(y, qid=qid, **fit_params)
    _, problem, grid = exact_problem(estimator, X, preferences, alphas)
    problem.keep_basis = keep_basis
    held = problem.leave_out(_checked_folds(folds, problem.graph.n_rows), grid)
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
        without ties). Others, such as a pipeline that selects features, are refitted for each pair.
    X, y : as for ``fit``
    qid : array-like of shape (n,), optional
        Query (batch, group) of each row: only rows of the same query are compared.
    pairs : array-like of shape (n_pairs, 2), optional
        Row indices. By default all i < j (of the same query) with different y, or all i < j if
        there are several outputs.
    alphas : array-like of shape (n_alphas,), optional
        Grid of values instead of the alpha of a RankRLS.
    n_jobs : int, optional
        Number of refits run in parallel.

    Returns
    -------
    ndarray of shape (n_pairs, 2[, n_outputs]), with alphas a leading axis (n_alphas, …)
        Scores, equal to those of a refit up to a constant for each pair (P1 §3.4).
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
    if not graph.has_qid:
        chosen = default_pairs(problem) if pairs is None else check_pairs(pairs, graph.n_rows)
        out = np.stack([part for part, _ in leave_pairs_out(problem, chosen, grid)])
    else:
        folds = splitter._pairs(X, graph)
        out = problem.leave_out(list(folds), grid).values.reshape(len(grid), len(folds), 2, -1)
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
        ``high`` and ``confidence``: a jackknife over rows, at least as wide as the quantiles of the
        scores of permuted labels.
    alphas : array-like, optional
        With ``confidence``: the grid from which alpha was chosen by the same score.
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
    if isinstance(y, PreferenceGraph) and y.has_qid and not y.n_given_pairs:
        exact = False
    if confidence is not None and not exact:
        raise ValueError("confidence is for a RankRLS and one ranking, without qid")
    if confidence is not None and not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1; got {confidence!r}")
    if not exact:
        pairs = LeavePairOut()._pairs(X, y, groups=qid)
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
        As for `leave_query_out_predict`. Only judgements are left out; rows, basis and the
        units of pair_features stay.
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
        f(preferred) − f(other), plus the effect of pair_features, as that of a refit, with a
        leading axis for ``alphas``; NaN for judgements that are in no fold. By item: without the
        judgements of the preferred item, and of the other one. With ``return_std``, two arrays.
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
        left_out = Folds.of_list(_checked_folds(folds, graph.n_given_pairs))
        counts = np.bincount(left_out.members)
        if counts.max() > 1:
            raise ValueError(f"judgement {counts.argmax()} is in {counts.max()} folds; use one")
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
    estimator, X, y, n_jobs
        As for `leave_pair_out_predict`, with y of shape (n,); all n(n − 1)/2 pairs are left out.
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
    y = np.asarray(y.scores if isinstance(y, PreferenceGraph) else y)
    labels = np.unique(y, return_inverse=True)[1].reshape(len(y), *held.shape[2:])
    signs = np.sign(labels[pairs[:, 0]] - labels[pairs[:, 1]])
    return signs, signs * np.sign(held[:, 0] - held[:, 1])


def shaped(values: Array, flat: bool, alphas: ArrayLike | None) -> Array:
    """Drop the axes that the caller did not request: outputs (last), alphas (first)."""
    values = values[..., 0] if flat else values
    return values[0] if alphas is None else values


def _checked_folds(folds: Iterable[ArrayLike], n: int) -> list[Array]:
    checked = [check_rows(f"folds[{i}]", fold, n) for i, fold in enumerate(folds)]
    if not checked:
        raise ValueError("folds is empty; give at least one array of numbers")
    return checked


@dataclass(frozen=True)
class PermutationTestResult:
    """Result of `permutation_test`.

    Attributes
    ----------
    score : float
        Cross-validated score of the true labels, the best over a grid of alphas.
    null_scores : ndarray of shape (n_permutations,)
        Scores of the permuted labels, each the best over the same grid.
    p_value : float
        (1 + number of null scores >= score)/(1 + n_permutations).
    alpha : float
        The alpha of ``score``, the largest of equally good ones; NaN unless for RankRLS.
    """

    score: float
    null_scores: Array
    p_value: float
    alpha: float

    @property
    def pvalue(self) -> float:
        """The p-value, by SciPy's name."""
        return self.p_value

    def __repr__(self) -> str:
        null = self.null_scores
        return (
            f"PermutationTestResult(score={self.score:.4f}, p_value={self.p_value:.4g}, "
            f"null={null.mean():.4f} ± {null.std():.4f} in {len(null)} permutations)"
        )


@takes_queries
@tells("held-out scores of permuted labels")
def permutation_test(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    qid: Any = None,
    alphas: Any = None,
    n_permutations: int = 1000,
    cv: Any = "leave-pair-out",
    random_state: Any = None,
    n_jobs: int | None = None,
) -> PermutationTestResult:
    """Test whether a cross-validated accuracy is better than that of permuted labels.

    Parameters
    ----------
    estimator : RankRLS, or any estimator or pipeline
        A RankRLS must have cost="magnitude" and ties="keep", so that all labellings share one
        preference graph. Others are refitted for each fold of each permutation.
    X, y : as for ``fit``, y of shape (n,)
    qid : array-like of shape (n,), optional
        Query of each row. If given, labels are permuted within queries.
    alphas : array-like of shape (n_alphas,) or "auto", optional
        Grid from which the alpha of a RankRLS is chosen, for the true labels and for each
        permutation; "auto" is all powers of two that may matter.
    n_permutations : int, default=1000
    cv : {"leave-pair-out", "leave-query-out"}, int or splitter, default="leave-pair-out"
        With qid, a RankRLS needs "leave-query-out". An int (stratified folds for y with two levels,
        folds of whole queries with qid) or a splitter is for estimators that are refitted.
    random_state : int, RandomState instance or None
    n_jobs : int, optional
        Number of refits run in parallel.

    Returns
    -------
    PermutationTestResult
        The score is the pairwise accuracy (AUC for two classes), the mean over folds that have a
        pair.
    """
    n_permutations = check_integer("n_permutations", n_permutations, least=1)
    rng = check_random_state(random_state)
    if not isinstance(estimator, RankRLS | RankRLSCV):
        if alphas is not None:
            raise ValueError("alphas is for RankRLS; other estimators are refitted as they are")
        values = _refitted(estimator, X, y, qid, n_permutations, cv, rng, n_jobs)
        return _result(values[None], np.array([np.nan]))
    check_option("cv", cv, ("leave-pair-out", "leave-query-out"))
    auto = isinstance(alphas, str) and bool(check_option("alphas", alphas, ("auto",)))
    ranker, first, grid = exact_problem(estimator, X, Preferences(y, qid), None if auto else alphas)
    grid = default_grid(first.size(), complete=True) if auto else np.unique(grid)
    graph = first.graph
    if graph.n_outputs > 1 or graph.scores is None or graph.n_given_pairs:
        raise ValueError("permutation_test takes y of shape (n,), one score for each row")
    if graph.sample_weight is not None:
        raise ValueError("permutation_test takes no sample weights")
    if not ranker._loss.keeps_ties:
        raise ValueError(
            "permutation_test needs cost='magnitude' and ties='keep', because only then do "
            "permuted labels share one preference graph"
        )
    by_pairs = cv == "leave-pair-out"
    if by_pairs == graph.has_qid:
        raise ValueError(
            f"cv={cv!r}: use cv='leave-query-out' with qid, and cv='leave-pair-out' without"
        )
    advice = "use fewer permutations, or fewer alphas"
    size = (n_permutations, len(grid))
    _resources.require("this number of permutations", *size, copies=2, advice=advice)
    s, codes = graph.scores[:, 0], graph.query_codes
    assert codes is not None
    batch = max(16, BATCH_NUMBERS // len(s))
    threads = n_threads(estimator.n_jobs)
    if not by_pairs:
        batch = max(batch, BATCH_PREDICTIONS // (len(s) * len(grid)))
    elif can_leave_pairs_out(first):
        decompose_ranking(first, grid)  # decompose once for all batches
    scores = []
    for labels in _labellings(s, codes, n_permutations, batch, rng):
        part = PreferenceGraph.from_scores(labels, qid=codes if graph.has_qid else None)
        problem = first.with_graph(part)
        if by_pairs:
            scores.append(np.array([found for found, _ in pair_accuracies(problem, grid, threads)]))
        else:
            scores.append(_query_accuracies(problem, grid))
    return _result(np.concatenate(scores, axis=1), grid)


def _result(by_alpha: Array, grid: Array) -> PermutationTestResult:
    """The test, from scores of shape (n_alphas, 1 + n_permutations), the true labels first."""
    values = by_alpha.max(axis=0)
    null = values[1:]
    p_value = (1 + int((null >= values[0]).sum())) / (1 + len(null))
    best = int(np.flatnonzero(by_alpha[:, 0] == values[0])[-1])
    return PermutationTestResult(float(values[0]), null, p_value, float(grid[best]))


def _refitted(
    estimator: Any, X: Any, y: Any, qid: Any, n: int, cv: Any, rng: Any, n_jobs: int | None
) -> Array:
    """Scores of the true labels and n permutations, by refits; shape (1 + n,)."""
    array = np.asarray(y)
    if array.ndim != 1:
        raise ValueError("permutation_test takes y of shape (n,), one score for each row")
    levels, ranks = np.unique(array, return_inverse=True)
    codes = encode_qid(qid, len(array)).codes
    named = {"leave-pair-out": LeavePairOut(), "leave-query-out": LeaveQueryOut()}
    if isinstance(cv, str):
        check_option("cv (unless a number of folds or a splitter)", cv, tuple(named))
        cv = named[cv]
    elif is_integer(cv) and qid is not None:
        cv = QueryKFold(cv)
    else:
        cv = check_cv(cv, array, classifier=len(levels) == 2)
    values = []
    for labels in _labellings(ranks, codes, n, 1, rng):
        number = labels[:, 0].astype(np.int64)
        splits = cv.split(X, levels[number], groups=qid)
        held = held_out_scores(estimator, X, levels[number], splits, qid=qid, n_jobs=n_jobs)
        found = [
            float(pairwise_accuracy(number[test], scores, qid=codes[test]))
            for test, scores in held
            if len(set(zip(codes[test], number[test], strict=True))) > len(set(codes[test]))
        ]
        if not found:
            raise ValueError("no fold has two rows of a query with different y")
        values.append(np.mean(found))
    return np.array(values)


def _query_accuracies(problem: RidgeProblem, alphas: Array) -> Array:
    """Leave-query-out accuracy for each alpha and output, shape (n_alphas, n_outputs)."""
    s, codes = problem.graph.scores, problem.graph.query_codes
    assert s is not None
    assert codes is not None
    held = problem.leave_out(query_folds(codes), alphas)
    order = held.rows
    k, n_queries = s.shape[1], problem.graph.n_queries
    # The queries of all outputs are concatenated and counted together.
    labels = s[order].T.ravel()
    queries = (codes[order] + n_queries * np.arange(k)[:, None]).ravel()
    out = np.empty((len(alphas), k))
    for a in range(len(alphas)):
        predictions = held.values[a]
        found = pairwise_accuracy(labels, predictions.T.ravel(), qid=queries, average=None)
        out[a] = np.nanmean(np.reshape(found, (k, n_queries)), axis=1)
    return out


def _labellings(
    s: Array, codes: Array, n: int, batch: int, rng: np.random.RandomState
) -> Iterator[Array]:
    """Generate the true labels and n permutations, at most ``batch`` columns at a time."""
    block = max(1, PERMUTED_NUMBERS // len(s))
    place = np.argsort(codes, kind="stable")
    for start in range(0, n, block):
        random = rng.random_sample((len(s), min(block, n - start)))
        labels: Array = np.empty(random.shape)
        # Sorting by query + a number in [0, 1) shuffles within queries.
        labels[place] = s[np.argsort(codes[:, None] + random if codes.any() else random, axis=0)]
        if start == 0:
            labels = np.column_stack([s, labels])
        yield from (labels[:, at : at + batch] for at in range(0, labels.shape[1], batch))
