"""Warnings: scores that are not better than chance or one column, columns that look like ids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from rankrls._calls import warn
from rankrls._frames import columns_like_ids, id_text, scale_text, unequal_scales
from rankrls.core.preferences.costs import Loss
from rankrls.estimators.choosing import LOSS_METRIC, Scoring

__all__ = ["better_column", "not_better", "random_scores", "warn_about_columns",
           "warn_about_empty_columns"]  # fmt: skip

#: Standard errors above chance that a score has to be: it is the best of those of many alphas.
N_ERRORS = 3.0

#: Columns that are tried as rankers of their own: those that correlate most with the labels.
MAX_COLUMNS = 20


def random_scores(scoring: str, y: Any, qid: Any) -> Any:
    """Scores of a random order by query, or one of all; [0] for "pairwise_r2".

    Metrics average over ties: equal scores of all rows have the value of a random order.
    """
    metric = Scoring(scoring, loss=Loss())
    if metric.name == LOSS_METRIC:
        return np.zeros(1)
    options = {**metric.options, "average": None} if metric.by_list else metric.options
    try:
        values = np.atleast_1d(metric.metric(y, np.zeros(len(y)), qid=qid, **options))
    except ValueError:  # no query has a pair
        return np.empty(0)
    return values[np.isfinite(values)]


def not_better(ranker: Any, y: Any, qid: Any, at_random: Any) -> str | None:
    """Return a warning if the held-out score of a ranker is not clearly above `random_scores`.

    y and qid are what it was fitted to: qid is None for one ranking, both for a stream.
    """
    chance = float(np.mean(at_random)) if len(at_random) else 0.0
    score, error = ranker.best_score_, _standard_error(ranker, y, qid)
    if not score - chance <= N_ERRORS * error:
        return None
    known = f" ± {error:.4f}" if error else ""
    return (
        f"the held-out {ranker.scoring} of {score:.4f}{known} is not better than that of a random "
        f"order, {chance:.4f}: are the labels, the query ids and the features the right columns?"
    )


def _standard_error(ranker: Any, y: Any, qid: Any) -> float:
    """Of the mean over held-out lists; of one list by the ranks of a random order."""
    scoring = Scoring(ranker.scoring, loss=Loss())
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
        if results["n_scores"][best] > 1:
            return float(results["std_score"][best] / math.sqrt(results["n_scores"][best]))
    pairs = scoring.name in ("pairwise_accuracy", "concordance_index")
    if y is None or qid is not None or not pairs:
        return 0.0
    # Kendall: var(S) = (n(n − 1)(2n + 5) − Σ t(t − 1)(2t + 5)) / 18 for the pairs in order
    # less those that are not, with t rows of each label.
    tied, n = np.unique(y, return_counts=True)[1].astype(float), float(len(y))
    variance = n * (n - 1) * (2 * n + 5) - (tied * (tied - 1) * (2 * tied + 5)).sum()
    n_pairs = (n * (n - 1) - (tied * (tied - 1)).sum()) / 2
    return math.sqrt(variance / 18) / (2 * n_pairs) if n_pairs else 0.0


def better_column(ranker: Any, X: Any, y: Any, qid: Any, names: Sequence[str] | None) -> str | None:
    """Return a warning if sorting by one column is as good as the held-out score of a ranker."""
    scoring = Scoring(ranker.scoring, loss=Loss())
    if scoring.name == LOSS_METRIC or sparse.issparse(X):
        return None
    X = np.nan_to_num(np.asarray(X, dtype=np.float64))
    codes = np.zeros(len(y), dtype=np.int64)
    if qid is not None:
        codes = np.unique(qid, return_inverse=True)[1]
    target = y - (np.bincount(codes, y) / np.bincount(codes))[codes]
    within = np.sqrt(np.maximum((X**2).sum(axis=0), np.finfo(float).tiny))
    likely = np.argsort(-np.abs(target @ X) / within, kind="stable")[:MAX_COLUMNS]
    options = {"qid": qid, **scoring.options}
    best, place, sign = max(
        ((float(scoring.metric(y, sign * X[:, j], **options)), int(j), sign)
         for j in likely for sign in (1, -1)), default=(-np.inf, 0, 1), key=lambda one: one[0]
    )  # fmt: skip
    if not best >= ranker.best_score_:
        return None
    name = f"feature {place + 1}" if names is None else repr(str(names[place]))
    return (
        f"the held-out {ranker.scoring} of {ranker.best_score_:.4f} is not better than that of "
        f"sorting by {name} alone, {'largest' if sign > 0 else 'smallest'} first: {best:.4f}"
    )


# ---------------------------------------------------------------------- columns


def warn_about_columns(rows: Any, X: Any, o: Any, *, scales: bool) -> None:
    """Warn of columns that look like ids, positions or timestamps, and of unequal scales.

    X holds the features of ``rows``, without missing ones, before scaling; ``scales`` says whether
    they are used as they are.
    """
    codes = None if rows.qid is None else np.unique(rows.qid, return_inverse=True)[1]
    found = columns_like_ids(X, rows.feature_names, codes)
    if found:
        warn(id_text(found, _labels(rows, found, o), _remedy(rows, found)))
    unequal = unequal_scales(X, codes) if scales else None
    if unequal is not None:
        names = _labels(rows, [unequal.small, unequal.large], o)
        warn(scale_text(unequal, names, "leave out --scale none"))


def warn_about_empty_columns(rows: Any, o: Any) -> None:
    """Warn of columns without any value, in whose place zeros are put."""
    if not isinstance(rows.data, np.ndarray):
        return
    empty = np.flatnonzero(np.isnan(rows.data).all(axis=0)).tolist()
    if empty:
        labels = _labels(rows, empty, o)
        names = ", ".join(repr(labels[j]) for j in empty[:5]) + ", …" * (len(empty) > 5)
        what = f"column {names} has" if len(empty) == 1 else f"columns {names} have"
        warn(f"{what} no value in any row; zeros are filled in: {_remedy(rows, empty)}")


def _remedy(rows: Any, columns: list[int]) -> str:
    """How to leave columns out."""
    them = "it" if len(columns) == 1 else "them"
    if rows.feature_names is None:
        return f"write the file without {them}"
    names = (rows.feature_names[j] for j in columns)
    drop = " ".join(f"--drop {name if name.isidentifier() else repr(name)}" for name in names)
    return f"leave {them} out by {drop}"


def _labels(rows: Any, columns: list[int], o: Any) -> Any:
    """Names of columns, or the feature ids of LETOR text, to be asked for by column number."""
    if rows.feature_names is not None:
        return rows.feature_names
    return {j: j + (not o.zero_based) for j in columns}
