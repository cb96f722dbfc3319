"""Selection and averaging of rankers by their held-out scores.

A *space* is a view of the features with a kernel; a *candidate* is a space with a loss. The
held-out scores of all candidates and alphas are exact and use the same folds, so candidates are
compared, chosen and averaged without further fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.estimators.choosing import Scoring
from rankrls.metrics import pairwise_accuracy

__all__ = ["Choice", "HeldOutScores", "Judge", "choose", "nested_folds", "nested_scores", "stacked"]

Array = NDArray[Any]

#: The mean of the metric is noisy if there are few queries, so half of the pairwise accuracy, which
#: uses all pairs of a query, is added to it.
ACCURACY_SHARE = 0.5


@dataclass(frozen=True)
class HeldOutScores:
    """Held-out scores of a candidate.

    Attributes
    ----------
    space : int
        Index of its space.
    alphas : ndarray of shape (n_alphas,)
    scores : ndarray of shape (n_alphas, n_rows)
        Scores with mean 0 in each list.
    metric : ndarray of shape (n_alphas, n_lists)
        The user's metric for each held-out list; NaN where it is undefined.
    criterion : ndarray of shape (n_alphas, n_lists)
        Criterion by which candidates are chosen.
    """

    space: int
    alphas: Array
    scores: Array
    metric: Array
    criterion: Array


@dataclass(frozen=True)
class Choice:
    """A candidate, one of its alphas, and the factor of its scores in the average."""

    candidate: int
    alpha: int
    factor: float


class Judge:
    """Evaluate held-out lists: queries, or the folds of a single ranking.

    Parameters
    ----------
    scoring : str or callable
    y : ndarray of shape (n_rows,)
    lists : ndarray of shape (n_rows,), int
        Index of the list of each row, in range(n_lists).
    """

    def __init__(self, scoring: Any, y: Array, lists: Array) -> None:
        self.scoring = Scoring(scoring)
        self.scoring.require_scores()
        self.y, self.lists = y, lists
        self.n_lists = int(lists.max()) + 1
        self.sizes = np.bincount(lists)

    def metric(self, scores: Array) -> Array:
        """Compute the user's metric for each list, shape (n_lists,)."""
        scoring = self.scoring
        if scoring.name is not None and scoring.name != "concordance_index":
            try:
                values = scoring.metric(
                    self.y, scores, qid=self.lists, average=None, **scoring.options
                )
            except ValueError as error:
                raise ValueError(
                    f"scoring={scoring.name!r}: {error} (scoring='pairwise_accuracy' takes any y)"
                ) from error
            return np.asarray(values)
        values = np.full(self.n_lists, np.nan)
        for number, rows in enumerate(_rows_of_lists(self.lists)):
            qid = np.zeros(len(rows), dtype=np.int64)
            if np.ptp(self.y[rows]) > 0:
                values[number] = scoring.value(self.y[rows], scores[rows], qid)
            else:
                with suppress(ValueError):  # it may be undefined if all labels are equal
                    values[number] = scoring.value(self.y[rows], scores[rows], qid)
        return values

    def judge(self, space: int, alphas: Array, scores: Array) -> HeldOutScores:
        """Centre and score held-out predictions of shape (n_alphas, n_rows)."""
        scores = np.stack([self.centred(one) for one in scores])
        metric = np.stack([self.metric(one) for one in scores])
        accuracy = np.stack(
            [
                np.asarray(pairwise_accuracy(self.y, one, qid=self.lists, average=None))
                for one in scores
            ]
        )
        criterion = metric + ACCURACY_SHARE * np.where(np.isnan(accuracy), 0.5, accuracy)
        return HeldOutScores(space, alphas, scores, metric, criterion)

    def centred(self, scores: Array) -> Array:
        """Subtract from scores the mean of their list."""
        means = np.bincount(self.lists, weights=scores) / self.sizes
        return scores - means[self.lists]


def _rows_of_lists(lists: Array) -> list[Array]:
    order = np.argsort(lists, kind="stable")
    return np.split(order, np.cumsum(np.bincount(lists))[:-1])


def choose(
    candidates: Sequence[HeldOutScores], some: Array, rows: Array, n_members: int
) -> list[Choice]:
    """Choose the best candidate and alpha of each of the best spaces, based on some of the lists.

    Parameters
    ----------
    candidates : sequence of HeldOutScores
    some : int array
        Indices of the lists used.
    rows : bool array of shape (n_rows,)
        Rows of these lists.
    n_members : int
        Maximum number of spaces in the average.

    Returns
    -------
    list of Choice
        Best first. Factors give the scores of all members the same spread within lists.
    """
    best: dict[int, tuple[float, int, int]] = {}
    for number, candidate in enumerate(candidates):
        values = np.nanmean(candidate.criterion[:, some], axis=1)
        alpha = (
            len(values) - 1 - int(np.argmax(values[::-1]))
        )  # the largest if several are equally good
        if candidate.space not in best or values[alpha] > best[candidate.space][0]:
            best[candidate.space] = (float(values[alpha]), number, alpha)
    ordered = sorted(best.values(), key=lambda one: -one[0])[:n_members]
    chosen = []
    for _, number, alpha in ordered:
        spread = float(np.sqrt(np.mean(candidates[number].scores[alpha, rows] ** 2)))
        factor = 1.0 / (len(ordered) * spread) if spread > 0 else 0.0
        chosen.append(Choice(number, alpha, factor))
    return chosen


def stacked(candidates: Sequence[HeldOutScores], chosen: Sequence[Choice], rows: Any) -> Array:
    """Held-out scores of the average for some rows."""
    return sum(
        (one.factor * candidates[one.candidate].scores[one.alpha, rows] for one in chosen),
        start=np.zeros(()),
    )


def nested_folds(defined: Array, k: int, rng: np.random.RandomState) -> list[Array]:
    """Divide lists into k folds, distributing those with a defined metric evenly.

    Parameters
    ----------
    defined : bool array of shape (n_lists,)
    k : int
    rng : RandomState
    """
    k = max(2, min(k, int(defined.sum())))
    order = np.concatenate([rng.permutation(np.flatnonzero(part)) for part in (defined, ~defined)])
    return [fold for start in range(k) if len(fold := np.sort(order[start::k]))]


def nested_scores(
    candidates: Sequence[HeldOutScores],
    judge: Judge,
    n_members: int,
    folds: Sequence[Array],
) -> Array:
    """Held-out scores of averages that were chosen without the fold of the row.

    Parameters
    ----------
    candidates : sequence of HeldOutScores
    judge : Judge
    n_members : int
    folds : sequence of int arrays
        Partition of the lists. The average for the lists of a fold is chosen by the other folds.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    scores = np.empty(len(judge.y))
    for fold in folds:
        others = np.setdiff1d(np.arange(judge.n_lists), fold)
        held = np.isin(judge.lists, fold)
        chosen = choose(candidates, others, ~held, n_members)
        scores[held] = stacked(candidates, chosen, held)
    return scores
