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

__all__ = ["better_column", "not_better", "warn_about_columns"]

#: Standard errors above chance that a score has to be: it is the best of those of many alphas.
N_ERRORS = 3.0

#: Columns that are tried as rankers of their own: those that correlate most with the labels.
MAX_COLUMNS = 20


def not_better(ranker: Any, y: Any = None, qid: Any = None) -> str | None:
    """Return a warning if the held-out score of a ranker is not clearly above chance.

    y and qid are what it was fitted to: qid is None for one ranking. Without y, of a stream, the
    chance of pairwise accuracy alone is known.
    """
    scoring = Scoring(ranker.scoring, loss=Loss())
    chance = {LOSS_METRIC: 0.0, "pairwise_accuracy": 0.5, "concordance_index": 0.5}.get(
        str(scoring.name)
    )
    if chance is None:
        if y is None:
            return None
        # Metrics average over ties: equal scores of all rows have the value of a random order.
        chance = float(scoring.metric(y, np.zeros(len(y)), qid=qid, **scoring.options))
    error, nested = 0.0, getattr(ranker, "nested_scores_", None)
    results = getattr(ranker, "cv_results_", {})
    if nested is not None and qid is not None:
        known = ~np.isnan(nested)
        options = {**scoring.options, "average": None}
        values = scoring.metric(y[known], nested[known], qid=qid[known], **options)
        error = float(np.nanstd(values) / math.sqrt(max(np.isfinite(values).sum(), 1)))
    elif "std_score" in results:
        best = int(np.argmax(results["mean_score"]))
        error = float(results["std_score"][best] / math.sqrt(max(results["n_scores"][best], 1)))
    score = ranker.best_score_
    if not score - chance <= N_ERRORS * error:
        return None
    known_error = f" ± {error:.4f}" if error else ""
    return (
        f"the held-out {ranker.scoring} of {score:.4f}{known_error} is not better than that of a "
        f"random order, {chance:.4f}: are the labels, the query ids and the features the right "
        "columns?"
    )


def better_column(ranker: Any, X: Any, y: Any, qid: Any, names: Sequence[str] | None) -> str | None:
    """Return a warning if sorting by one column is as good as the held-out score of a ranker."""
    scoring = Scoring(ranker.scoring, loss=Loss())
    if scoring.name == LOSS_METRIC or sparse.issparse(X):
        return None
    X = np.nan_to_num(np.asarray(X, dtype=np.float64))
    codes = np.unique(np.zeros(len(y)) if qid is None else qid, return_inverse=True)[1]
    target = y - (np.bincount(codes, y) / np.bincount(codes))[codes]
    within = np.sqrt(np.maximum((X**2).sum(axis=0), np.finfo(float).tiny))
    likely = np.argsort(-np.abs(target @ X) / within, kind="stable")[:MAX_COLUMNS]
    tried = [
        (float(scoring.metric(y, sign * X[:, j], qid=qid, **scoring.options)), int(j), sign)
        for j in likely
        for sign in (1, -1)
    ]
    best, j, sign = max(tried, default=(-np.inf, 0, 1), key=lambda one: one[0])
    if not best >= ranker.best_score_:
        return None
    name = f"feature {j + 1}" if names is None else repr(str(names[j]))
    return (
        f"the held-out {ranker.scoring} of {ranker.best_score_:.4f} is not better than that of "
        f"sorting by {name} alone, {'largest' if sign > 0 else 'smallest'} first: {best:.4f}"
    )


def warn_about_columns(rows: Any, X: Any, o: Any, *, scales: bool) -> None:
    """Warn of columns that look like ids, positions or timestamps, that are empty, and of scales.

    X holds the features of ``rows``, without missing ones, before scaling; ``scales`` says whether
    they are used as they are.
    """
    names = rows.feature_names
    labels: Any = names or range(not o.zero_based, X.shape[1] + 1)

    def remedy(columns: list[int]) -> str:
        them = "it" if len(columns) == 1 else "them"
        if names is None:
            return f"write the file without {them}"
        found = [names[j] if names[j].isidentifier() else repr(names[j]) for j in columns]
        return f"leave {them} out by " + " ".join(f"--drop {name}" for name in found)

    empty = []
    if isinstance(rows.data, np.ndarray):
        empty = np.flatnonzero(np.isnan(rows.data).all(axis=0)).tolist()
    if empty:
        shown = ", ".join(repr(labels[j]) for j in empty[:5]) + ", …" * (len(empty) > 5)
        what = f"column {shown} has" if len(empty) == 1 else f"columns {shown} have"
        warn(f"{what} no value in any row; zeros are filled in: {remedy(empty)}")
    codes = None if rows.qid is None else np.unique(rows.qid, return_inverse=True)[1]
    ids = columns_like_ids(X, names, codes)
    if ids:
        warn(id_text(ids, labels, remedy(ids)))
    unequal = unequal_scales(X, codes) if scales else None
    if unequal is not None:
        warn(scale_text(unequal, labels, "leave out --scale none"))
