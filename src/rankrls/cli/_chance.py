"""Whether held-out scores are better than those of rows in any order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.residuals import HeldOut
from rankrls.estimators.choosing import LOSS_METRIC, ListScores, Scoring

__all__ = ["Chance", "better_column", "hardly_better"]

#: Standard errors above chance that a score has to be: it is the best of those of many alphas.
N_ERRORS = 3.0

#: Columns that are tried as rankers of their own: those that correlate most with the labels.
MAX_COLUMNS = 20


class Chance:
    """The score of a random order of the rows of a stream.

    Metrics average over ties: equal scores of all rows have the value of a random order.

    Parameters
    ----------
    scoring : str
        A metric with a score for every query, or "pairwise_r2".
    """

    def __init__(self, scoring: str) -> None:
        self._scoring = Scoring(scoring, loss=Loss())
        self._scores = ListScores(self._scoring, 1, 1)

    def add(self, y: Any, qid: Any) -> None:
        """Add whole queries, arrays of shape (n_rows,)."""
        if self._scoring.name != LOSS_METRIC:
            equal = HeldOut([np.arange(len(y))], np.zeros((1, len(y), 1)), np.zeros(1, dtype=int))
            self._scores.add(PreferenceGraph.from_scores(y[:, None], qid=qid), equal)

    def score(self) -> float:
        """The mean over queries; of "pairwise_r2" 0, where nothing is explained."""
        return 0.0 if self._scoring.name == LOSS_METRIC else self._scores.spread()["mean_score"][0]


def hardly_better(ranker: Any, y: Any, qid: Any, chance: float | None = None) -> str | None:
    """Return a warning if the held-out score of a fitted ranker is not clearly better than chance.

    Parameters
    ----------
    ranker : RankRLSCV or AutoRanker
        Fitted, with ``scoring`` by name.
    y, qid : ndarray of shape (n_rows,), or None
        What it was fitted to. qid is None for one ranking; both are None for a stream.
    chance : float, optional
        The score of a random order. By default it is computed from y and qid.

    Returns
    -------
    str or None
    """
    scoring = Scoring(ranker.scoring, loss=Loss())
    if chance is None and scoring.name == LOSS_METRIC:
        chance = 0.0
    elif chance is None:
        chance = float(scoring.metric(y, np.zeros(len(y)), qid=qid, **scoring.options))
    score, error = ranker.best_score_, _standard_error(ranker, scoring, y, qid)
    if not score - chance <= N_ERRORS * error:
        return None
    known = f" ± {error:.4f}" if error else ""
    return (
        f"the held-out {ranker.scoring} of {score:.4f}{known} is not better than that of a random "
        f"order, {chance:.4f}: are the labels, the query ids and the features the right "
        "columns?"
    )


def better_column(ranker: Any, X: Any, y: Any, qid: Any, names: Sequence[str] | None) -> str | None:
    """Tell if sorting by one column is as good as the held-out score of a ranker; None if not.

    Parameters
    ----------
    ranker : RankRLSCV, fitted
    X : ndarray of shape (n, n_features), or sparse
    y, qid : what it was fitted to
    names : names of the features, or None
    """
    scoring = Scoring(ranker.scoring, loss=Loss())
    if scoring.name == LOSS_METRIC or sparse.issparse(X):
        return None
    X = np.nan_to_num(np.asarray(X, dtype=np.float64))
    codes = np.zeros(len(y), dtype=np.int64)
    if qid is not None:
        codes = np.unique(qid, return_inverse=True)[1]
    sizes = np.bincount(codes)
    target = y - (np.bincount(codes, y) / sizes)[codes]
    within = np.sqrt(np.maximum((X**2).sum(axis=0), np.finfo(float).tiny))
    likely = np.argsort(-np.abs(target @ X) / within, kind="stable")[:MAX_COLUMNS]
    best, place, sign = -np.inf, 0, 1
    for j in likely:
        for direction in (1, -1):
            value = float(scoring.metric(y, direction * X[:, j], qid=qid, **scoring.options))
            if value > best:
                best, place, sign = value, int(j), direction
    if not best >= ranker.best_score_:
        return None
    name = f"feature {place + 1}" if names is None else repr(str(names[place]))
    how = "largest" if sign > 0 else "smallest"
    return (
        f"the held-out {ranker.scoring} of {ranker.best_score_:.4f} is not better than that of "
        f"sorting by {name} alone, {how} first: {best:.4f}"
    )


def _standard_error(ranker: Any, scoring: Scoring, y: Any, qid: Any) -> float:
    """Of the mean over held-out lists; of one list by the ranks of a random order."""
    scores = getattr(ranker, "nested_scores_", None)
    if scores is not None and qid is not None:
        known = ~np.isnan(scores)
        options = {**scoring.options, "average": None}
        values = scoring.metric(y[known], scores[known], qid=qid[known], **options)
        values = values[~np.isnan(values)]
        return float(values.std() / math.sqrt(max(len(values), 1)))
    results = getattr(ranker, "cv_results_", {})
    if "std_score" in results:
        best = int(np.argmax(results["mean_score"]))
        n_lists = results["n_scores"][best]
        if n_lists > 1:
            return float(results["std_score"][best] / math.sqrt(n_lists))
    one_ranking = y is not None and qid is None
    if one_ranking and ranker.scoring in ("pairwise_accuracy", "concordance_index"):
        return _error_of_ranks(y)
    return 0.0


def _error_of_ranks(y: Any) -> float:
    """Standard deviation of the share of pairs that a random order gets right.

    Kendall: var(S) = (n(n − 1)(2n + 5) − Σ t(t − 1)(2t + 5)) / 18 for the number of pairs in order
    less those that are not, with t rows of each label.
    """
    tied = np.unique(y, return_counts=True)[1].astype(float)
    sizes = np.array([len(y)], dtype=float)
    variance = sum(
        sign * (t * (t - 1) * (2 * t + 5)).sum() / 18 for sign, t in ((1, sizes), (-1, tied))
    )
    n_pairs = (sizes * (sizes - 1)).sum() / 2 - (tied * (tied - 1)).sum() / 2
    return float(math.sqrt(variance) / (2 * n_pairs)) if n_pairs else 0.0
