"""Permutation test of whether a cross-validated score is better than chance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state

from rankrls import _resources
from rankrls._calls import takes_queries, tells
from rankrls._resources import n_threads
from rankrls._validation import check_integer, check_option, encode_qid
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.pairs import can_leave_pairs_out, decompose_ranking, pair_accuracies
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.ridge.residuals import query_folds
from rankrls.estimators import RankRLS, RankRLSCV
from rankrls.estimators.choosing import default_grid, is_fold_count
from rankrls.estimators.ranker import Preferences
from rankrls.estimators.rankrls import exact_problem
from rankrls.metrics import pairwise_accuracy
from rankrls.model_selection._cross_validation import held_out_scores
from rankrls.model_selection._splitters import LeavePairOut, LeaveQueryOut, QueryKFold

Array = NDArray[Any]

#: Maximum size of the permuted label vectors processed together, and for leave-query-out of their
#: predictions at all alphas.
BATCH_NUMBERS, BATCH_PREDICTIONS = 2**18, 2**22

#: Maximum size of the label vectors that are permuted together.
PERMUTED_NUMBERS = 2**20


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
        """Alias of ``p_value``, the name used by SciPy."""
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
        preference graph. Other estimators, such as a pipeline that selects features, are refitted
        for each fold of each permutation.
    X, y : as for ``fit``, y of shape (n,)
    qid : array-like of shape (n,), optional
        Query of each row. If given, labels are permuted within queries.
    alphas : array-like of shape (n_alphas,) or "auto", optional
        Grid from which the alpha of a RankRLS is chosen, for the true labels and for each
        permutation; the p-value is valid for any grid. "auto" is all powers of two that may matter.
        By default only the estimator's alpha is used.
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

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.model_selection import permutation_test
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((30, 4))
    >>> y = X[:, 0] + rng.standard_normal(30)
    >>> result = permutation_test(RankRLS(), X, y, n_permutations=99, random_state=0)
    >>> bool(result.p_value < 0.05)
    True
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
    elif is_fold_count(cv) and qid is not None:
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
