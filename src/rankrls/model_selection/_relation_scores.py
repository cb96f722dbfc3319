"""Scores of conditional rankers on held-out objects and edges, by refitting them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_random_state

from rankrls._calls import Progress, tells
from rankrls._validation import check_integer
from rankrls.core.relations.cv import BlockFold
from rankrls.core.relations.labels import Observations
from rankrls.estimators.choosing import Scoring
from rankrls.estimators.conditional import ConditionalRanker
from rankrls.estimators.relation_folds import folds_of

__all__ = ["conditional_cross_val_score"]

Array = NDArray[Any]


@tells("held-out labels")
def conditional_cross_val_score(
    estimator: Any,
    X: Any,
    Y: Any,
    Z: Any = None,
    *,
    cv: Any = "auto",
    n_folds: int | None = None,
    scoring: Any = "pairwise_accuracy",
    random_state: Any = None,
    verbose: int = 0,
) -> Array:
    """Score a conditional ranker on held-out rows, columns, objects or edges, by refitting it.

    The whole procedure is cross-validated: a `ConditionalRankRLSCV` chooses alpha from the
    training part of every fold, so that the score is not optimistic.

    Parameters
    ----------
    estimator : ConditionalRankRLS or ConditionalRankRLSCV
        The estimator, which is cloned for every fold.
    X, Y, Z : as for ``fit``
    cv, n_folds
        As in `ConditionalRankRLSCV`, except that ``n_folds=None`` means at most ten folds.
    scoring : str or callable, default="pairwise_accuracy"
        As for `ConditionalRankRLSCV`.
    random_state : int, RandomState instance or None
        Controls the random folds.
    verbose : int, default=0
        1: print progress to stderr.

    Returns
    -------
    ndarray of shape (n_folds,)
        Mean score over the conditioning objects of each fold; NaN if none can be scored.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import ConditionalRankRLSCV
    >>> from rankrls.model_selection import conditional_cross_val_score
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((30, 3))
    >>> Y = X[:, :1] * X[:, 1] + 0.1 * rng.standard_normal((30, 30))
    >>> scores = conditional_cross_val_score(ConditionalRankRLSCV(), X, Y, n_folds=5)
    >>> bool(scores.mean() > 0.85)
    True
    """
    if not isinstance(estimator, ConditionalRanker):
        raise ValueError(
            "estimator must be a ConditionalRankRLS or ConditionalRankRLSCV; got a "
            f"{type(estimator).__name__}"
        )
    if n_folds is not None:
        check_integer("n_folds", n_folds, least=2)
    metric = Scoring(scoring)
    rng = check_random_state(random_state)
    progress = Progress("conditional_cross_val_score", verbose)
    template = clone(estimator)
    rows, columns, observations, _ = template._read(X, Y, Z)
    seen = observations if template.condition_on == "rows" else observations.T
    folds = folds_of(
        cv,
        seen,
        template.condition_on,
        paired=template.relation is not None or template._pairwise.one_domain,
        two_domains=Z is not None,
        shortcut=False,
        n_folds=n_folds,
        rng=rng,
        X=X,
    )
    sides = (rows, rows if columns is None else columns)
    refit = _Refit(template, sides, observations, Z is not None)
    if folds.pairs is not None:
        jobs: list[Any] = [folds.pairs] * folds.n_pair_folds
        evaluate: Any = refit.pairs
    else:
        jobs = list(folds.blocks)
        evaluate = refit.block
    scores = []
    for number, job in enumerate(jobs):
        lists, y, predictions = evaluate(job, number)
        scores.append(_score(metric, lists, y, predictions))
        progress.bar(number + 1, len(jobs), "folds")
    if np.isnan(scores).all():
        raise ValueError("no fold has two held-out labels of one conditioning object that differ")
    return np.array(scores)


class _Refit:
    """Fit to some of the objects or edges, and predict others."""

    def __init__(
        self, template: ConditionalRanker, sides: Any, observations: Observations, two: bool
    ) -> None:
        self.template, self.sides, self.two = template, sides, two
        self.observations = observations
        self.by_columns = template.condition_on == "columns"

    def block(self, fold: BlockFold, number: int) -> tuple[Array, Array, Array]:
        """Return lists, labels and predictions of the test pairs of a block."""
        swap = slice(None, None, -1) if self.by_columns else slice(None)
        train, test = fold.train[swap], fold.test[swap]
        labels = self._part(*train)
        model = self._model()
        # Rows and columns are different objects of one kind, so the model treats them as two kinds.
        apart = self.two or not np.array_equal(train[0], train[1])
        model.fit(
            self._features(0, train[0], train[0]),
            labels,
            self._features(1, train[1], train[1]) if apart else None,
        )
        scores = model.predict(
            self._features(0, test[0], train[0]), self._features(1, test[1], train[1])
        )
        held = self._part(*test)
        return self._lists(held.row, held.col, held.data, scores[held.row, held.col])

    def pairs(self, fold: Array, number: int) -> tuple[Array, Array, Array]:
        """Return lists, labels and predictions of the pairs of a fold."""
        seen = self.observations.T if self.by_columns else self.observations
        rows, cols, y = seen.lists
        of_edge = fold[np.searchsorted(seen.cells.flat, rows * seen.shape[1] + cols)]
        test = of_edge == number
        if self.by_columns:
            rows, cols = cols, rows
        p, g = self.observations.shape
        train = sparse.coo_array((y[~test], (rows[~test], cols[~test])), shape=(p, g))
        every = np.arange(p), np.arange(g)
        X, Z = (self._features(side, every[side], every[side]) for side in (0, 1))
        model = self._model().fit(X, train, Z if self.two else None)
        scores = model.predict_edges(X, Z if self.two else None, rows[test], cols[test])
        return self._lists(rows[test], cols[test], y[test], scores)

    def _model(self) -> Any:
        model = clone(self.template)
        model._warns_of_equal_objects = False  # in every fold
        return model

    def _part(self, rows: Array, cols: Array) -> sparse.coo_array:
        """Select the labels between some rows and columns, with new indices."""
        places = []
        for chosen, n in zip((rows, cols), self.observations.shape, strict=True):
            place = np.full(n, -1)
            place[chosen] = np.arange(len(chosen))
            places.append(place)
        i, j, y = self.observations.lists
        i, j = places[0][i], places[1][j]
        inside = (i >= 0) & (j >= 0)
        shape = (len(rows), len(cols))
        return sparse.coo_array((y[inside], (i[inside], j[inside])), shape=shape)

    def _features(self, side: int, chosen: Array, train: Array) -> Any:
        return self.sides[side].part(chosen, train)

    def _lists(self, rows: Array, cols: Array, y: Array, scores: Array) -> Any:
        return (cols if self.by_columns else rows), y, scores


def _score(metric: Scoring, lists: Array, y: Array, predictions: Array) -> float:
    order = np.lexsort((y, lists))
    same = lists[order][1:] == lists[order][:-1]
    if not (same & (y[order][1:] != y[order][:-1])).any():
        return np.nan
    return float(metric.metric(y, predictions, qid=lists, **metric.options))
