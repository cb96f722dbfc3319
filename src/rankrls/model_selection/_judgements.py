"""Exact cross-validation of judgements: given pairs, predicted by models that never saw them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._validation import check_length, check_option, check_pairs, encode_qid
from rankrls.core.ridge.leave_judgements_out import JudgementFolds
from rankrls.core.ridge.leave_out import HeldOut, check_fold
from rankrls.estimators import RankRLS, RankRLSCV
from rankrls.estimators.exact_problem import exact_problem
from rankrls.model_selection._exact import shaped

__all__ = ["holdout_judgements"]

Array = NDArray[Any]


def holdout_judgements(
    estimator: RankRLS,
    X: Any,
    pairs: ArrayLike,
    *,
    by: str = "judgement",
    groups: Any = None,
    folds: Iterable[ArrayLike] | None = None,
    magnitude: ArrayLike | None = None,
    pair_weight: ArrayLike | None = None,
    pair_features: ArrayLike | None = None,
    alphas: ArrayLike | None = None,
    return_std: bool = False,
    **fit_params: Any,
) -> Any:
    """Predict every judgement by the model that was trained without it.

    Parameters
    ----------
    estimator : RankRLS
        Unfitted; gives the parameters.
    X : array-like or sparse matrix of shape (n_items, n_features)
    pairs : array-like of shape (n_pairs, 2)
        Row numbers (preferred, other).
    by : {"judgement", "item", "group", "fold"}, default="judgement"
        What is left out with a judgement: itself; all judgements of one of its items; all of
        its group; all of its fold.
    groups : array-like of shape (n_pairs,), optional
        Group of every judgement, such as its judge, prompt or session; with ``by="group"``.
    folds : iterable of int arrays, optional
        Numbers of judgements to leave out together, each in one fold at most; with ``by="fold"``.
    magnitude, pair_weight : array-like of shape (n_pairs,), optional
    pair_features : array-like of shape (n_pairs, n_pair_features), optional
        As for ``fit``. Predictions are then of the judgement: f(preferred) − f(other) + cᵀγ.
    alphas : array-like of shape (n_alphas,), optional
        A grid in place of the estimator's alpha: all of it costs little more than one value.
    return_std : bool, default=False
        Also give posterior standard deviations of the differences (without the noise of a new
        judgement).
    **fit_params
        y, qid and sample_weight, if there are scores beside the judgements.

    Returns
    -------
    ndarray of shape (n_pairs[, n_outputs]), or (n_pairs, 2[, n_outputs]) by item
        f(preferred) − f(other); with alphas a leading axis. By item, the two columns are by the
        models without the judgements of the preferred, and of the other item. NaN for judgements
        that are in no fold. With ``return_std`` a pair of such arrays.

    Notes
    -----
    The rows of X and the Nyström basis stay; only judgements are left out. The small systems of
    folds are solved in the spectrum of the whole problem; what is singular to working precision is
    refitted.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.datasets import make_preference_pairs
    >>> data = make_preference_pairs(random_state=0)
    >>> held_out = holdout_judgements(RankRLS(10.0), data.data, data.pairs)
    >>> bool((held_out > 0).mean() > 0.7)
    True
    """
    check_option("by", by, ("judgement", "item", "group", "fold"))
    for name, value, needed in (("groups", groups, "group"), ("folds", folds, "fold")):
        if (value is not None) != (by == needed):
            raise ValueError(
                f"by={by!r} needs {name}" if by == needed else f"{name} goes with by={needed!r}"
            )
    _check_estimator(estimator)
    y = fit_params.pop("y", None)
    preferences = {
        "pairs": pairs,
        "magnitude": magnitude,
        "pair_weight": pair_weight,
        "pair_features": pair_features,
        **fit_params,
    }
    problem, grid, flat = exact_problem(estimator, X, y, alphas, False, preferences)
    graph = problem.graph
    n_pairs = graph.n_given_pairs
    edges = check_pairs(pairs, graph.n_rows)
    if by == "judgement":
        chosen = JudgementFolds.single(n_pairs)
    elif by == "item":
        chosen, _ = JudgementFolds.of_items(edges)
    elif by == "group":
        check_length("groups", groups, n_pairs, "pairs")
        coded = encode_qid(groups, n_pairs, name="groups", of="pairs")
        chosen = JudgementFolds.of_groups(coded.codes, coded.labels)
    else:
        assert folds is not None
        chosen = _check_folds(folds, n_pairs)
    held = problem.leave_judgements_out(chosen, grid, variances=return_std)
    values = [held.values] if held.variance is None else [held.values, np.sqrt(held.variance)]
    results = [shaped(_by_pair(part, held, edges, by), flat, alphas) for part in values]
    return tuple(results) if return_std else results[0]


def _check_estimator(estimator: Any) -> None:
    if not isinstance(estimator, RankRLS):
        advice = "of a pipeline, pass the last step, and X as the steps before it give it"
        if isinstance(estimator, RankRLSCV):
            advice = "pass RankRLS with its alpha_ and other parameters, or a grid as alphas"
        kind = type(estimator).__name__
        raise ValueError(f"estimator must be a RankRLS; got a {kind}: {advice}")


def _check_folds(folds: Iterable[ArrayLike], n_pairs: int) -> JudgementFolds:
    parts = [check_fold(number, fold, n_pairs) for number, fold in enumerate(folds)]
    if not parts:
        raise ValueError("folds is empty: give at least one array of judgements")
    counts = np.bincount(np.concatenate(parts), minlength=n_pairs)
    if (counts > 1).any():
        twice = int(np.argmax(counts > 1))
        raise ValueError(f"judgement {twice} is in {counts[twice]} folds: it can be in one only")
    return JudgementFolds.of_list(parts)


def _by_pair(values: Array, held: HeldOut, edges: Array, by: str) -> Array:
    """Values of shape (n_alphas, total, k) in the order of the pairs."""
    n_alphas, _, k = values.shape
    folds = held.folds
    assert isinstance(folds, JudgementFolds)
    if by != "item":
        out = np.full((n_alphas, len(edges), k), np.nan)
        out[:, folds.members] = values
        return out
    # A judgement is in the folds of both of its items, of which it came as number 2i and 2i + 1.
    items = np.unique(edges)
    item = np.repeat(items, folds.sizes)
    column = (edges[folds.members, 0] != item).astype(np.int64)
    out = np.full((n_alphas, len(edges), 2, k), np.nan)
    out[:, folds.members, column] = values
    return out
