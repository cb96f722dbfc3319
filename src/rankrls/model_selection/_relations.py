"""Exact held-out predictions of a relation, and scores of rankers that are refitted."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_random_state

from rankrls._calls import Progress, tells
from rankrls._relation_labels import Observations
from rankrls._validation import check_integer, check_option, check_rows, show
from rankrls.core.relations.holdout import CompleteHoldout, refitted
from rankrls.core.relations.problem import RelationProblem
from rankrls.estimators.choosing import Scoring, check_alphas
from rankrls.estimators.conditional import ConditionalRanker, ConditionalRankRLS
from rankrls.estimators.relation_inputs import Relation, check_alpha_pairs
from rankrls.estimators.relation_search import RelationFolds, folds_of

__all__ = ["conditional_cross_val_score", "relation_holdout_predict"]

Array = NDArray[Any]

LEAVE_OUT = ("rows", "columns", "entries", "both")

#: Folds with more entries are refitted, because the cost of shortcuts is quadratic in their number.
MAX_ENTRIES = 2000


class _Fold(NamedTuple):
    """Labels left out of one model: of rows, of columns, of both, or of ``pairs`` (row, column)."""

    rows: Any
    cols: Any
    pairs: bool = False

    @property
    def at(self) -> Any:
        """The pairs to predict, as an index of a (p, g) matrix."""
        if self.rows is None or self.cols is None:
            return tuple(slice(None) if part is None else part for part in self[:2])
        return self[:2] if self.pairs else np.ix_(self.rows, self.cols)

    def mask(self, shape: tuple[int, int], *, columns_only: bool = False) -> Array:
        """A mask of the left-out labels, shape (p, g)."""
        out = np.zeros(shape, dtype=bool)
        if self.pairs:
            out[self.rows, self.cols] = True
            return out
        if self.rows is not None and not columns_only:
            out[self.rows] = True
        if self.cols is not None:
            out[:, self.cols] = True
        return out


@tells("predictions of held-out pairs")
def relation_holdout_predict(
    estimator: ConditionalRankRLS,
    X: Any,
    Y: Any,
    Z: Any = None,
    *,
    leave_out: str = "rows",
    folds: Any = None,
    alphas: ArrayLike | None = None,
) -> Array:
    """Predict every pair by the model fitted without it, exactly.

    Parameters
    ----------
    estimator : ConditionalRankRLS
        Defines the parameters; it need not be fitted.
    X, Y, Z : as for ``fit``
    leave_out : {"rows", "columns", "entries", "both"}, default="rows"
        Labels left out when pair (i, j) is predicted: those of row i, of column j, of the pair, or
        of row i and column j. With a symmetric or reciprocal relation (or kernel: "mlpk",
        "ranking") the mirror images of these pairs are left out too.
    folds : list, optional
        Folds to leave out: index arrays (or masks), for "entries" and "both" tuples
        (rows, columns). None: one row, column, pair, or row and column at a time. A pair can be in
        one fold only, and is NaN if it is in none.
    alphas : array-like of shape (n_alphas,), optional
        Grid of values to use instead of the estimator's alpha. ``pairwise="two-step"`` takes pairs
        (row, column), of shape (n_alphas, 2).

    Returns
    -------
    ndarray of shape (p, g), or (n_alphas, p, g) with ``alphas``
        Held-out predictions. For "entries", unobserved pairs are NaN. With the ranking loss, values
        are comparable within a conditioning object and fold only, with a mean residual of zero over
        its remaining labels.

    Notes
    -----
    On a complete relation without a symmetry, with ``pairwise`` "kronecker", "cartesian" or
    "two-step", the predictions are computed from the decomposed kernels. Otherwise the model is
    refitted for each fold. Two-step regression without some "entries" is the model in which the
    labels of these entries equal their own predictions.

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
    ranker = clone(estimator).set_params(early_stopping=False)
    relation = ranker._read(X, Y, Z)
    estimator._require_squared_loss("relation_holdout_predict")
    if alphas is None:
        grid = ranker._check_alpha(estimator.alpha)
    elif ranker.pairwise == "two-step":
        grid = check_alpha_pairs("alphas", alphas, one_alpha=ranker.relation is not None)
    else:
        grid = check_alphas("alphas", alphas, as_given=True)
    grid = ranker._oriented_alphas(grid)
    made = [] if folds is None else _read_folds(folds, leave_out, relation.labels)
    problem = ranker._problem(relation)
    if ranker.condition_on == "columns":
        leave_out = {"rows": "columns", "columns": "rows"}.get(leave_out, leave_out)
        made = [_Fold(b, a, pairs) for a, b, pairs in made]
    labels = problem.labels()
    filled = problem.two_step and leave_out == "entries"  # no refit is possible
    if filled and (labels is None or problem.profiled):
        raise ValueError(
            "leave_out='entries' of pairwise='two-step' needs a complete Y, and no kernel 'profile'"
        )
    short = labels is not None and (problem.has_shortcuts or filled)
    holdout = CompleteHoldout(problem, labels) if short else None
    if holdout is not None and folds is None and not problem.sign:
        predictions = getattr(holdout, leave_out)(grid)[0]
    else:
        made = made or _read_folds(
            _single(leave_out, problem.observations), leave_out, problem.observations
        )
        predictions = np.full((len(grid), *problem.observations.shape), np.nan)
        progress = Progress("relation_holdout_predict", ranker.verbose)
        for number, fold in enumerate(made):
            found: Any = None if holdout is None else _by_closed_form(holdout, fold, grid)
            found = _refit(ranker, problem, fold, grid) if found is None else found
            for table, values in zip(predictions, found, strict=True):
                table[fold.at] = values
            progress.bar(number + 1, len(made), "folds")
    predictions = ranker._oriented(predictions)
    return predictions if alphas is not None else predictions[0]


def _read_folds(folds: Any, leave_out: str, observations: Observations) -> list[_Fold]:
    """Check folds of rows, columns, pairs, or rows and columns."""
    p, g = observations.shape
    if not isinstance(folds, Iterable) or isinstance(folds, str | bytes):
        raise ValueError(f"folds must be a list of folds; got {show(folds)}")
    parts = list(folds)
    if not parts:
        raise ValueError("folds is empty: give at least one fold")
    made, times = [], np.zeros((p, g), dtype=np.int64)
    check = partial(check_rows, distinct=leave_out != "entries")
    for number, part in enumerate(parts):
        name = f"fold {number}"
        if leave_out in ("rows", "columns"):
            part = (part, None) if leave_out == "rows" else (None, part)
        elif not isinstance(part, tuple | list) or len(part) != 2:
            raise ValueError(f"{name} must be (rows, columns); got {show(part)}")
        ends: list[Any] = [
            None if values is None else check(f"{what} of {name}", values, n)
            for what, values, n in zip(("rows", "columns"), part, (p, g), strict=True)
        ]
        fold = _Fold(ends[0], ends[1], leave_out == "entries")
        if fold.pairs and len(fold.rows) != len(fold.cols):
            raise ValueError(
                f"{name} has {len(fold.rows)} rows and {len(fold.cols)} columns of pairs"
            )
        made.append(fold)
        np.add.at(times, fold.at, 1)
    if times.max() > 1:
        i, j = np.argwhere(times > 1)[0]
        raise ValueError(f"pair ({i}, {j}) is in two folds, or twice in one: each has one place")
    return made


def _single(leave_out: str, observations: Observations) -> list[Any]:
    """Folds of single rows, columns, pairs, or rows and columns."""
    rows, cols = ([*np.arange(n)[:, None]] for n in observations.shape)
    if leave_out == "entries":
        cells = observations.cells
        return [*zip(cells.rows[:, None], cells.cols[:, None], strict=True)]
    if leave_out == "both":
        return [(i, j) for i in rows for j in cols]
    return rows if leave_out == "rows" else cols


def _by_closed_form(holdout: CompleteHoldout, fold: _Fold, alphas: Array) -> Array | None:
    """Predict a fold of a complete relation by a closed form or a small system, if possible."""
    problem, g = holdout.problem, holdout.Y.shape[1]
    if fold.pairs:
        rows, cols, n = fold.rows, fold.cols, len(fold.rows)
        if problem.sign:  # mirror images too
            flat = np.concatenate([rows * g + cols, np.setdiff1d(cols * g + rows, rows * g + cols)])
            rows, cols = np.divmod(flat, g)
        if len(rows) > MAX_ENTRIES and not problem.two_step:
            return None
        held, unsafe = holdout.cell_fold(rows, cols, alphas)
        return None if unsafe.any() else held[:, :n]
    return holdout.fold(fold.rows, fold.cols, alphas)


def _refit(
    ranker: ConditionalRankRLS, problem: RelationProblem, fold: _Fold, alphas: Array
) -> list[Array]:
    """Predict a fold by a model fitted without its labels."""
    shape = problem.observations.shape
    out, options = fold.mask(shape), ranker._iteration_options()
    out = out | out.T if problem.paired else out  # mirror images too
    new = fold.mask(shape, columns_only=True)
    tables = refitted(problem, out, new, alphas, ranker.solver, options)
    return [F[fold.at] for F in tables]


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
        lists, y, predictions = _refit_fold(template, relation, folds, number)
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


def _refit_fold(
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
