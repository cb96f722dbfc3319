"""Exact cross-validation for judgements, that is, for preferences given as pairs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._calls import tells
from rankrls._validation import check_length, check_option, check_pairs, encode_qid
from rankrls.core.ridge.residuals import Folds, HeldOut, check_fold
from rankrls.estimators import RankRLS, RankRLSCV
from rankrls.estimators.exact_problem import exact_problem
from rankrls.model_selection._exact import shaped

__all__ = ["holdout_judgements"]

Array = NDArray[Any]


@tells("predictions of judgements without them")
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
    """Predict each judgement by the model trained without it, without refitting.

    Parameters
    ----------
    estimator : RankRLS
        Defines the parameters; it need not be fitted.
    X : array-like or sparse matrix of shape (n_items, n_features)
    pairs : array-like of shape (n_pairs, 2)
        Row numbers (preferred, other).
    by : {"judgement", "item", "group", "fold"}, default="judgement"
        What is left out when a judgement is predicted: only the judgement itself, or all judgements
        of one of its items, of its group, or of its fold.
    groups : array-like of shape (n_pairs,), optional
        Group of each judgement, such as its judge, prompt or session. Used with ``by="group"``.
    folds : iterable of int arrays, optional
        Indices of the judgements to leave out together, each in at most one fold. Used with
        ``by="fold"``.
    magnitude, pair_weight : array-like of shape (n_pairs,), optional
    pair_features : array-like of shape (n_pairs, n_pair_features), optional
        As for ``fit``. The predictions then include their effect: f(preferred) − f(other) + cᵀγ.
    alphas : array-like of shape (n_alphas,), optional
        Grid of values to use instead of the estimator's alpha; the whole grid costs little more
        than one value.
    return_std : bool, default=False
        Whether to also return the posterior standard deviations of the differences, without the
        noise of a new judgement.
    **fit_params
        y, qid and sample_weight, if there are scores in addition to the judgements.

    Returns
    -------
    ndarray of shape (n_pairs[, n_outputs]), or (n_pairs, 2[, n_outputs]) by item
        f(preferred) − f(other), with a leading axis for ``alphas``. With ``by="item"``, the first
        column is predicted without the judgements of the preferred item, the second without those
        of the other item. NaN for judgements that are in no fold. With ``return_std``, a pair of
        such arrays.

    Notes
    -----
    Only judgements are left out; the rows of X and the Nyström basis stay the same. The small
    systems of the folds are solved in the eigenbasis of the full problem; a fold whose system is
    singular to working precision is refitted.

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
        chosen = Folds.single(n_pairs)
    elif by == "item":
        chosen, _ = Folds.of_items(edges)
    elif by == "group":
        check_length("groups", groups, n_pairs, "pairs")
        coded = encode_qid(groups, n_pairs, name="groups", of="pairs")
        chosen = Folds.of_groups(coded.codes, coded.labels)
    else:
        assert folds is not None
        chosen = _check_folds(folds, n_pairs)
    held = problem.leave_judgements_out(chosen, grid, variances=return_std)
    values = [held.values] if held.variance is None else [held.values, np.sqrt(held.variance)]
    results = [shaped(_by_pair(part, held, edges, by), flat, alphas) for part in values]
    return tuple(results) if return_std else results[0]


def _check_estimator(estimator: Any) -> None:
    if not isinstance(estimator, RankRLS):
        advice = "for a pipeline, pass its last step, and X transformed by the steps before it"
        if isinstance(estimator, RankRLSCV):
            advice = "pass RankRLS with its alpha_ and other parameters, or a grid as alphas"
        kind = type(estimator).__name__
        raise ValueError(f"estimator must be a RankRLS; got a {kind}: {advice}")


def _check_folds(folds: Iterable[ArrayLike], n_pairs: int) -> Folds:
    parts = [check_fold(number, fold, n_pairs) for number, fold in enumerate(folds)]
    if not parts:
        raise ValueError("folds is empty; give at least one array of judgements")
    counts = np.bincount(np.concatenate(parts), minlength=n_pairs)
    if (counts > 1).any():
        twice = int(np.argmax(counts > 1))
        raise ValueError(
            f"judgement {twice} is in {counts[twice]} folds; put each judgement in one fold only"
        )
    return Folds.of_list(parts)


def _by_pair(values: Array, held: HeldOut, edges: Array, by: str) -> Array:
    """Values of shape (n_alphas, total, k) in the order of the pairs."""
    n_alphas, _, k = values.shape
    folds = held.folds
    assert isinstance(folds, Folds)
    if by != "item":
        out = np.full((n_alphas, len(edges), k), np.nan)
        out[:, folds.members] = values
        return out
    # Judgement i is in the folds of both of its items, as entries 2i and 2i + 1.
    items = np.unique(edges)
    item = np.repeat(items, folds.sizes)
    column = (edges[folds.members, 0] != item).astype(np.int64)
    out = np.full((n_alphas, len(edges), 2, k), np.nan)
    out[:, folds.members, column] = values
    return out
