"""``feature_importances``: what the held-out score of an `AutoRanker` loses without a column."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from rankrls._calls import takes_queries
from rankrls._validation import check_option
from rankrls.estimators.auto import AutoRanker
from rankrls.estimators.ranker import Preferences

Array = NDArray[Any]


@takes_queries
def feature_importances(
    ranker: AutoRanker,
    X: Any,
    y: ArrayLike | None = None,
    *,
    qid: ArrayLike | None = None,
    pairs: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    by: str = "column",
) -> dict[str, Array]:
    """Measure how much of the held-out score of an `AutoRanker` is lost without a column.

    A column is replaced by its mean, all members are held out again, exactly and with the same
    alphas, and the metric of their average is compared with that of all columns.

    Parameters
    ----------
    ranker : AutoRanker
        The fitted ranker.
    X, y, qid, pairs, sample_weight
        The training rows, as passed to ``fit``.
    by : {"column", "block"}, default="column"
        Whether columns of X are dropped one by one, or blocks: all numbers, all categories, all
        texts or all vectors.

    Returns
    -------
    dict of ndarray
        Table with the columns "column" (or "block"), "importance", the mean loss of the metric of a
        query without it, and "std", the standard error of this mean, the most important first.

    Notes
    -----
    Columns that say the same have small importances each, because the others remain. Boosted trees
    are trained again, which needs LightGBM.

    Examples
    --------
    >>> from rankrls import AutoRanker
    >>> from rankrls.datasets import make_ranking
    >>> from rankrls.diagnostics import feature_importances
    >>> X, y, qid = make_ranking(n_queries=30, n_features=4, random_state=0, return_X_y_qid=True)
    >>> ranker = AutoRanker(effort="quick", random_state=0).fit(X, y, qid=qid)
    >>> table = feature_importances(ranker, X, y, qid=qid)
    >>> table["importance"].shape
    (4,)
    """
    if not isinstance(ranker, AutoRanker):
        raise ValueError(
            f"feature_importances takes an AutoRanker; got a {type(ranker).__name__}: use "
            "coef_ of scaled features, or sklearn.inspection.permutation_importance"
        )
    check_is_fitted(ranker)
    check_option("by", by, ("column", "block"))
    if not ranker._features._centres:
        raise ValueError("feature_importances does not take an AutoRanker of sparse rows")
    encoder = ranker._table
    if by == "block":
        of_columns, names = encoder.blocks_, np.array(list(dict.fromkeys(encoder.blocks_)), object)
        groups = [of_columns == name for name in names]
    else:
        names, parts = encoder.columns_["column"], encoder._parts  # of one column, or of two
        uses = [(parts[:, 1:3] == j).any(axis=1) for j in range(len(names))]
        groups = [np.repeat(one, parts[:, 3]) for one in uses]
    preferences = Preferences(y, qid, pairs, sample_weight=sample_weight)
    values, without = ranker._held_out_without(X, preferences, groups)
    changes = (values - without)[:, np.isfinite(values)]
    importance = changes.mean(axis=1)
    error = changes.std(axis=1) / np.sqrt(max(1, changes.shape[1] - 1))
    order = np.argsort(-importance, kind="stable")
    return {by: names[order], "importance": importance[order], "std": error[order]}
