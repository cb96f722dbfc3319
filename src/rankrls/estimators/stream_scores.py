"""Scores of held-out queries of a stream, by metrics that look at predictions: a second pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import show
from rankrls.core.preferences.statistics import Ledger
from rankrls.core.ridge.fold_statistics import FoldStatistics
from rankrls.core.ridge.residuals import HeldOut
from rankrls.estimators.choosing import LOSS_METRIC, ListScores, Scoring
from rankrls.estimators.incremental import BatchStream, StreamLearner
from rankrls.estimators.whole_queries import AGAIN, Rows, WholeQueries

__all__ = ["StreamScores", "require_again", "require_rest"]

Array = NDArray[Any]


def require_again(scoring: Scoring, stream: BatchStream) -> None:
    """Refuse what cannot be computed from two passes, and batches that can be read once."""
    named = show(scoring.name or scoring.metric)
    if not scoring.by_list:
        raise ValueError(
            f"scoring={named} needs the predictions of all queries at once, which fit_stream does "
            f"not keep: use {LOSS_METRIC!r}, 'pairwise_accuracy', or a list metric such as "
            "'ndcg@10'"
        )
    if not stream.repeatable:
        raise ValueError(
            f"scoring={named} is computed from held-out predictions, in a second pass, and these "
            "batches can be read once: give a function that returns them from the start, such as "
            f"lambda: iter_letor(path), or use scoring={LOSS_METRIC!r}, which needs one pass"
        )


def require_rest(preferences: Sequence[Array]) -> None:
    """Raise if all preferences of an output are in one fold; shape (n_outputs,) for each."""
    total = np.sum(preferences, axis=0)
    for number, inside in enumerate(preferences):
        if not (total - inside > 0).all():
            raise ValueError(
                f"fold {number} leaves no query with a pair to learn from: use another number of "
                "folds, or fit RankRLS with a given alpha"
            )


class StreamScores:
    """Scores of every query by the models without its fold, for all alphas.

    Parameters
    ----------
    scoring : Scoring
        With a score for every list.
    held_out : FoldStatistics
    learner : StreamLearner
        Of the first pass.
    alphas : ndarray of shape (n_alphas,)
    """

    def __init__(
        self, scoring: Scoring, held_out: FoldStatistics, learner: StreamLearner, alphas: Array
    ) -> None:
        self.n_outputs = held_out.n_outputs
        self._n_folds = len(held_out.folds)
        self._weights = [held_out.weights_without(fold, alphas) for fold in range(self._n_folds)]
        self._like = learner.folds[0]
        self._scores = ListScores(scoring, len(alphas), held_out.n_outputs)
        self._ledger = Ledger()
        self._queries = WholeQueries(self._ledger, known=learner.numbers)

    def add(self, X: Any, y: Array, qid: Any) -> None:
        """Add the rows of a batch, checked; y of shape (m, n_outputs)."""
        self._score(self._queries.add(X, y, qid, None))

    def finish(self) -> dict[str, Array]:
        """Mean, deviation and number of the scores, for every alpha."""
        self._score(self._queries.end())
        before = self._like.ledger.queries
        if self._ledger.queries != before:
            n, m = (sum(queries.values()) for queries in (self._ledger.queries, before))
            raise ValueError(
                f"the batches had {m:,} rows of {len(before):,} queries, and now {n:,} of "
                f"{len(self._ledger.queries):,}, or other numbers of rows in some; {AGAIN}"
            )
        return self._scores.spread()

    def _score(self, ended: Iterable[Rows]) -> None:
        for rows in ended:
            for fold, chosen in rows.by_fold(self._n_folds).items():
                mine = rows.take(chosen)
                Phi = self._like.features(mine.X)
                values = np.stack([np.asarray(Phi @ w) for w in self._weights[fold]])
                every = np.arange(len(mine.y))
                held = HeldOut([every], values, np.zeros(len(values), dtype=np.int64))
                self._scores.add(mine.graph(), held)
