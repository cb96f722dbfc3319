"""Choice of the members of `AutoRanker`: held-out scores of candidates, compared and averaged."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.residuals import query_folds
from rankrls.estimators.auto_members import (
    ALL_ROWS,
    ALPHAS,
    BY_QUERY,
    LinearMember,
    Rows,
    mean_squared_norm,
    unfitted,
)
from rankrls.estimators.choosing import Scoring
from rankrls.metrics import pairwise_accuracy

__all__ = ["Candidate", "Choice", "Judge", "Target", "choose", "nested_scores", "stacked"]

Array = NDArray[Any]

#: Weights of the trees in the average that are tried beside 0.
TREE_WEIGHTS = (1 / 3, 1 / 2)

#: Number of folds of the nested estimate, and of folds of rows if there are no queries.
N_FOLDS = 10

#: The mean of the metric is noisy if there are few queries, so half of the pairwise accuracy, which
#: uses all pairs of a query, is added to it.
ACCURACY_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class Target:
    """Labels of rows, (n,) or (n, n_labels), with the names and numbers of their queries."""

    y: Array
    qid: Any = None
    codes: Array | None = None
    weights: Array | None = None

    def take(self, rows: Any) -> Target:
        """Select rows."""
        parts = (None if part is None else part[rows] for part in vars(self).values())
        return Target(*parts)  # type: ignore[arg-type]

    def fields(self, compared: str) -> dict[str, Any]:
        """Return the arguments of ``fit``."""
        qid = None if compared == ALL_ROWS else self.qid
        return {"y": self.y, "qid": qid, "sample_weight": self.weights}

    def graph(self, compared: str) -> PreferenceGraph:
        """Return the preferences between the rows that are compared."""
        return PreferenceGraph.from_scores(**self.fields(compared))


@dataclass(frozen=True, eq=False)
class Candidate:
    """Held-out scores of a member with a loss, centred in each list, for each alpha.

    ``metric`` and ``criterion``, (n_alphas, n_lists), are the user's metric of each held-out list,
    NaN where it is undefined, and what candidates are chosen by; ``best`` is its largest mean. Of
    the candidates with the same ``view``, one can be chosen.
    """

    view: Any
    member: Any
    alphas: Array
    scores: Array
    metric: Array
    criterion: Array
    loss: tuple[str, str]
    best: float = np.nan


@dataclass(frozen=True)
class Choice:
    """A candidate, the index of one of its alphas, its weight, and the factor of its scores."""

    candidate: Candidate
    alpha: int
    weight: float
    factor: float


class Judge:
    """Evaluate held-out lists: queries, or the folds of a single ranking."""

    def __init__(self, scoring: Any, target: Target, rng: np.random.RandomState) -> None:
        self.scoring = Scoring(scoring)
        self.scoring.require_scores()
        self.target, self.y = target, target.y
        self.lists = _row_folds(target.y, rng) if target.codes is None else target.codes
        self.folds = query_folds(self.lists)
        self.sizes = np.bincount(self.lists)
        self.n_lists = len(self.sizes)
        self.weights = np.bincount(self.lists, target.weights) / self.sizes

    def mean(self, values: Array, some: Any = slice(None)) -> Any:
        """Mean over lists that have a value, or NaN; a list has the mean weight of its rows."""
        values = values[..., some]
        known = ~np.isnan(values)
        weights = known * self.weights[some]
        total = weights.sum(axis=-1)
        sums = (weights * np.where(known, values, 0.0)).sum(axis=-1)
        return np.where(total > 0, sums / np.where(total > 0, total, 1.0), np.nan)

    def metric(self, scores: Array) -> Array:
        """Compute the user's metric for each list, shape (n_lists,)."""
        scoring = self.scoring
        if scoring.by_list:
            try:
                return np.asarray(scoring.value(self.y, scores, self.lists, average=None))
            except ValueError as error:
                raise ValueError(
                    f"scoring={scoring.name!r}: {error} (scoring='pairwise_accuracy' takes any y)"
                ) from error
        values = np.full(self.n_lists, np.nan)
        for number, rows in enumerate(query_folds(self.lists)):
            y, some, one = self.y[rows], scores[rows], np.zeros(len(rows), dtype=np.int64)
            if np.ptp(y) > 0:
                values[number] = scoring.value(y, some, one)
            else:
                with suppress(ValueError):  # it may be undefined if all labels are equal
                    values[number] = scoring.value(y, some, one)
        return values

    def criterion(self, metric: Array, scores: Array) -> Array:
        """Add half of the pairwise accuracy to the metric of each list."""
        accuracy = np.asarray(pairwise_accuracy(self.y, scores, qid=self.lists, average=None))
        return metric + ACCURACY_SHARE * np.where(np.isnan(accuracy), 0.5, accuracy)

    def linear(
        self, view: Any, member: LinearMember, rows: Rows, features: Any, loss: tuple[str, str]
    ) -> Candidate:
        """Hold out each list from a linear member, exactly."""
        phi, ranker = member.phi(rows, features), unfitted(1.0, loss)
        problem = ranker._problem(ranker._check_options(), phi, self.target.graph(loss[1]))
        alphas = ALPHAS * mean_squared_norm(phi) * (1 / 64 if loss[1] == BY_QUERY else 1.0)
        scores = problem.leave_out(self.folds, alphas).by_row(len(phi))[..., 0]
        return self.candidate(view, member, alphas, scores, loss)

    def candidate(
        self, view: Any, member: Any, alphas: Array, scores: Array, loss: tuple[str, str]
    ) -> Candidate:
        """Centre within lists and score held-out predictions of shape (n_alphas, n_rows)."""
        metric, criterion = np.empty((2, len(scores), self.n_lists))
        centred = np.empty(scores.shape)
        for a, one in enumerate(scores):
            centred[a] = one - (np.bincount(self.lists, one) / self.sizes)[self.lists]
            metric[a] = self.metric(centred[a])
            criterion[a] = self.criterion(metric[a], centred[a])
        best = float(self.mean(criterion).max())
        return Candidate(view, member, alphas, centred, metric, criterion, loss, best)


def _row_folds(y: Array, rng: np.random.RandomState) -> Array:
    """Return the fold of each row of a single ranking; all folds have all labels."""
    ends = [np.count_nonzero(y == end) for end in (y.min(), y.max())]
    if min(ends) < 2 and len(np.unique(y)) < 3:
        raise ValueError(
            "without qid, rows are held out in folds; at least two labels must have two rows or "
            "more"
        )
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    folds = np.empty(len(y), dtype=np.int64)
    folds[order] = np.arange(len(y)) % min(N_FOLDS, max(2, len(y) // 5))
    return folds


def choose(
    candidates: Sequence[Candidate], judge: Judge, some: Array, n_members: int
) -> list[Choice]:
    """Choose the best candidate and alpha of each of the best views, based on some of the lists.

    Factors give the scores of all members the same spread within lists. The average has boosted
    trees, or is replaced by one column, if that is better.
    """
    rows = np.isin(judge.lists, some)
    best: dict[Any, tuple[float, Candidate, int]] = {}
    for candidate in candidates:
        values = judge.mean(candidate.criterion, some)
        alpha = len(values) - 1 - int(np.argmax(values[::-1]))  # the largest of equally good ones
        if candidate.view not in best or values[alpha] > best[candidate.view][0]:
            best[candidate.view] = (float(values[alpha]), candidate, alpha)
    column, trees = best.pop("column", None), best.pop("trees", None)
    ordered = sorted(best.values(), key=lambda one: -one[0])[:n_members]

    def choice(candidate: Candidate, alpha: int, weight: float) -> Choice:
        spread = float(np.sqrt(np.mean(candidate.scores[alpha, rows] ** 2)))
        return Choice(candidate, alpha, weight, weight / spread if spread > 0 else 0.0)

    def value(chosen: list[Choice]) -> float:
        scores = stacked(chosen)
        return float(judge.mean(judge.criterion(judge.metric(scores), scores), some))

    options = [[choice(*one[1:], 1 / len(ordered)) for one in ordered]]
    if trees is not None:
        spread = float(np.sqrt(np.mean(stacked(options[0])[rows] ** 2))) or 1.0
        for share in TREE_WEIGHTS:
            rest = 1 - share
            scaled = [
                replace(one, weight=rest * one.weight, factor=rest * one.factor / spread)
                for one in options[0]
            ]
            options.append([*scaled, choice(*trees[1:], share)])
    if column is not None:
        options.append([choice(*column[1:], 1.0)])
    return options[0] if len(options) == 1 else max(options, key=value)


def stacked(chosen: Sequence[Choice]) -> Array:
    """Held-out scores of the average."""
    return np.sum([one.factor * one.candidate.scores[one.alpha] for one in chosen], axis=0)


def nested_scores(
    candidates: Sequence[Candidate], judge: Judge, n_members: int, rng: np.random.RandomState
) -> Array:
    """Held-out scores of averages that were chosen without the fold of the row, shape (n_rows,).

    Lists with a defined metric are distributed evenly over the folds.
    """
    defined = np.isfinite(candidates[0].metric[0])
    k = max(2, min(N_FOLDS, int(defined.sum())))
    order = np.concatenate([rng.permutation(np.flatnonzero(part)) for part in (defined, ~defined)])
    scores = np.empty(len(judge.y))
    for start in range(min(k, len(order))):
        fold = order[start::k]
        others, held = np.setdiff1d(order, fold), np.isin(judge.lists, fold)
        scores[held] = stacked(choose(candidates, judge, others, n_members))[held]
    return scores
