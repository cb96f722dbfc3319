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
from rankrls.estimators.choosing import Scoring
from rankrls.estimators.conditional_base import ConditionalRanker
from rankrls.estimators.relation_folds import RelationFolds, folds_of
from rankrls.estimators.relation_inputs import Relation

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
    progress = Progress("conditional_cross_val_score", verbose)
    template = clone(estimator)
    relation = template._read(X, Y, Z)
    folds = folds_of(
        cv,
        relation.labels if template.condition_on == "rows" else relation.labels.T,
        template.condition_on,
        paired=template.relation is not None or template._pairwise.one_domain,
        two_domains=relation.two_domains,
        shortcut=False,
        n_folds=n_folds,
        rng=check_random_state(random_state),
        X=X,
    )
    scores = []
    n = len(folds)
    for number in range(n):
        lists, y, predictions = _refit(template, relation, folds, number)
        order = np.lexsort((y, lists))
        same = lists[order][1:] == lists[order][:-1]
        differs = (same & (y[order][1:] != y[order][:-1])).any()
        options = metric.options
        score = metric.metric(y, predictions, qid=lists, **options) if differs else np.nan
        scores.append(float(score))
        progress.bar(number + 1, n, "folds")
    if np.isnan(scores).all():
        raise ValueError("no fold has two held-out labels of one conditioning object that differ")
    return np.array(scores)


def _refit(
    template: ConditionalRanker, relation: Relation, folds: RelationFolds, number: int
) -> tuple[Array, Array, Array]:
    """Fit without a fold; return conditioning objects, labels and predictions of its pairs."""
    labels, turn = relation.labels, 1 if template.condition_on == "rows" else -1
    if folds.pairs is None:
        train, test = (part[::turn] for part in folds.blocks[number])
        learned, held = labels.between(*train), labels.between(*test)
    else:
        train = test = tuple(np.arange(n) for n in labels.shape)
        turned = labels if turn == 1 else labels.T
        parts = (turned.select(mask) for mask in folds.edges(turned, number))
        learned, held = (part if turn == 1 else part.T for part in parts)
    model = clone(template)
    model._warns_of_equal_objects = False  # in every fold
    rows, cols, y = learned.lists
    Y = sparse.coo_array((y, (rows, cols)), shape=learned.shape)
    sides = relation.rows, relation.ranked
    X, Z = (objects.part(chosen, chosen) for objects, chosen in zip(sides, train, strict=True))
    # Different objects of one kind in rows and columns are objects of two kinds to the model.
    apart = relation.two_domains or not np.array_equal(train[0], train[1])
    model.fit(X, Y, Z if apart else None)
    rows, cols, y = held.lists
    new = [side.part(*chosen) for side, *chosen in zip(sides, test, train, strict=True)]
    return (rows if turn == 1 else cols), y, model.predict_edges(*new, rows, cols)
