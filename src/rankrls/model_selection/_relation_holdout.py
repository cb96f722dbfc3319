"""Exact held-out predictions of a relation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from rankrls._calls import Progress
from rankrls._validation import check_option
from rankrls.core.relations.holdout import CompleteHoldout, complete_labels
from rankrls.core.relations.observations import Observations
from rankrls.core.relations.relation_problem import RelationProblem
from rankrls.estimators.choosing import check_alphas
from rankrls.estimators.conditional import ConditionalRankRLS

__all__ = ["relation_holdout_predict"]

Array = NDArray[Any]

LEAVE_OUT = ("rows", "columns", "entries", "both")


def relation_holdout_predict(
    estimator: ConditionalRankRLS,
    X: Any,
    Y: Any,
    Z: Any = None,
    *,
    leave_out: str = "rows",
    alphas: ArrayLike | None = None,
) -> Array:
    """Predict every pair by a model that was fitted without it, exactly.

    Parameters
    ----------
    estimator : ConditionalRankRLS
        Unfitted; gives the parameters.
    X, Y, Z : as for ``fit``
    leave_out : {"rows", "columns", "entries", "both"}, default="rows"
        What the model that predicts pair (i, j) has not seen: labels of row i, of column j, of
        the pair, or of row i and column j. With a symmetric or reciprocal relation the mirror
        images of these pairs are left out too.
    alphas : array-like of shape (n_alphas,), optional
        A grid instead of the estimator's alpha.

    Returns
    -------
    ndarray of shape (p, g), or (n_alphas, p, g) with ``alphas``
        Held-out predictions; for "entries" NaN where Y is unobserved.

    Notes
    -----
    On a complete relation without a symmetry the predictions are read off the decomposed kernels
    by a few matrix products ("both": one decomposition for each row), and equal
    those of refits. Otherwise each is a refit: as many as there are rows, columns, pairs.

    The ranking loss knows predictions of a conditioning object up to a constant. They are given
    here with the offset that makes the mean residual of its remaining labels zero; without any
    left, that makes its mean prediction over the objects that were not left out zero. So the
    predictions of a list by *different* models ("columns", "entries", "both") can be compared,
    but such pooling is biased: a label that is left out is missing in the offset, which makes its
    prediction worse than random where there is nothing to learn. `ConditionalRankRLSCV` never
    compares them.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import ConditionalRankRLS
    >>> from rankrls.metrics import conditional_scores
    >>> from rankrls.model_selection import relation_holdout_predict
    >>> rng = np.random.default_rng(0)
    >>> X, Z = rng.standard_normal((20, 2)), rng.standard_normal((10, 2))
    >>> Y = X @ Z.T
    >>> held_out = relation_holdout_predict(ConditionalRankRLS(0.1), X, Y, Z, leave_out="rows")
    >>> bool(conditional_scores(Y, held_out).mean() > 0.99)
    True
    """
    if not isinstance(estimator, ConditionalRankRLS):
        raise ValueError(
            f"estimator must be a ConditionalRankRLS; got a {type(estimator).__name__}"
        )
    check_option("leave_out", leave_out, LEAVE_OUT)
    if alphas is None:
        grid = check_alphas("alpha", estimator.alpha)
    else:
        grid = check_alphas("alphas", alphas, as_given=True)
    ranker = clone(estimator).set_params(early_stopping=False)
    problem = ranker._problem(*ranker._prepare(X, Y, Z))
    ranker._require_functions(problem)
    if ranker.condition_on == "columns":
        leave_out = {"rows": "columns", "columns": "rows"}.get(leave_out, leave_out)
    labels = complete_labels(problem)
    if labels is not None and problem.has_shortcuts:
        rows, columns = problem.sides
        holdout = CompleteHoldout(rows, columns, labels, **problem.loss)
        if leave_out == "both":
            held = holdout.both([np.array([i]) for i in range(len(labels))], grid)
        else:
            held = getattr(holdout, leave_out)(grid)
        predictions = held.predictions
    else:
        predictions = _refits(ranker, problem, leave_out, grid)
    predictions = ranker._oriented(predictions)
    return predictions if alphas is not None else predictions[0]


def _refits(
    ranker: ConditionalRankRLS, problem: RelationProblem, leave_out: str, alphas: Array
) -> Array:
    """Explicit refits, one for each row, column or pair that is left out."""
    observations = problem.observations
    progress = Progress("relation_holdout_predict", ranker.verbose)
    rows, cols, _ = observations.lists
    p, g = observations.shape
    held = np.full((len(alphas), p, g), np.nan)
    units = list(_units(observations, leave_out))
    for number, (i, j) in enumerate(units):
        # A pair is left out if it lies in row i (column j), or is the pair (i, j); its mirror
        # image too, if the relation has one.
        out = _touches(rows, cols, i, j, leave_out)
        if problem.sign:
            out |= _touches(cols, rows, i, j, leave_out)
        part = problem.select(~out)
        rest = part.observations
        here = (slice(None), slice(None) if i is None else i, slice(None) if j is None else j)
        if rest.n_edges == 0:
            held[here] = 0.0
            continue
        model = part.solve(alphas, ranker.solver, ranker._iteration_options())
        every = np.arange(p).repeat(g), np.tile(np.arange(g), p)
        for a, F in enumerate(model.predict(part.sides, *every).reshape(-1, p, g)):
            if problem.ranking:
                F += _offsets(F, rest, j)[:, None]
            held[a][here[1:]] = F[here[1:]]
        progress.bar(number + 1, len(units), "refits")
    return held


def _units(observations: Observations, leave_out: str) -> Iterator[tuple[Any, Any]]:
    p, g = observations.shape
    if leave_out == "rows":
        yield from ((i, None) for i in range(p))
    elif leave_out == "columns":
        yield from ((None, j) for j in range(g))
    elif leave_out == "both":
        yield from ((i, j) for i in range(p) for j in range(g))
    else:
        cells = observations.cells
        yield from zip(cells.rows.tolist(), cells.cols.tolist(), strict=True)


def _touches(rows: Array, cols: Array, i: Any, j: Any, leave_out: str) -> Array:
    in_row = np.zeros(len(rows), dtype=bool) if i is None else rows == i
    in_column = np.zeros(len(rows), dtype=bool) if j is None else cols == j
    return in_row & in_column if leave_out == "entries" else in_row | in_column


def _offsets(F: Array, rest: Observations, j: Any) -> Array:
    """Offsets of all rows: mean residual, or minus the mean prediction where nothing is left."""
    rows, cols, y = rest.lists
    counts = np.bincount(rows, minlength=len(F))
    sums = np.bincount(rows, weights=y - F[rows, cols], minlength=len(F))
    others = F if j is None else np.delete(F, j, axis=1)
    alone = -others.mean(axis=1) if others.shape[1] else np.zeros(len(F))
    return np.where(counts > 0, sums / np.maximum(counts, 1), alone)
