"""Contributions of features or training rows to scores, and what is lost without a column."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls._calls import takes_queries
from rankrls._frames import data_frame
from rankrls._validation import check_option
from rankrls.estimators.auto import AutoRanker
from rankrls.estimators.greedy import GreedyRankRLS
from rankrls.estimators.ranker import BaseRanker, Preferences

Array = NDArray[Any]


@dataclass(frozen=True, repr=False)
class Explanation:
    """Result of `explain`: contributions to a difference of scores, the largest first.

    Attributes
    ----------
    kind : {"feature", "row"}
        Whether contributions are by feature or, for kernel models, by training row.
    labels, index : ndarray of shape (n,)
        Names (x0, x1, … if there are none) and indices of the features, or of the training rows.
    contribution : ndarray of shape (n,)
        ``weight * change``; the contributions add up to ``difference``.
    weight, change : ndarray of shape (n,)
        Coefficient, and difference between a and b, of the feature or kernel value; NaN for an
        `AutoRanker`.
    difference : float
        f(a) − f(b).
    """

    kind: str
    labels: Array
    index: Array
    contribution: Array
    weight: Array
    change: Array
    difference: float

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        first = zip(self.labels[:3], self.contribution[:3], strict=True)
        shown = ", ".join(f"{label}: {value:+.3g}" for label, value in first)
        more = ", …" if len(self) > 3 else ""
        return f"Explanation({self.difference:+.3g} = {shown}{more})"

    def to_frame(self) -> Any:
        """Return the contributions as a pandas data frame."""
        columns = {"contribution": self.contribution, "weight": self.weight, "change": self.change}
        return data_frame({self.kind: self.labels, **columns})


def explain(estimator: Any, x_a: Any, x_b: Any = None, *, among: Any = None) -> Explanation:
    """Split the score difference f(a) − f(b) into exact contributions of features or training rows.

    Parameters
    ----------
    estimator : fitted RankRLS, RankRLSCV, RankSVM, GreedyRankRLS or AutoRanker, or a pipeline
        A model with one output. In a pipeline that ends in one, the features are those passed to
        the last step.
    x_a, x_b : array-like, sparse matrix or data frame of shape (n_features,) or (1, n_features)
        The two rows to compare. Without ``x_b``, which an `AutoRanker` needs, the score f(a) is
        split.
    among : array-like or data frame of shape (n, n_features), optional
        For an `AutoRanker`: the other rows of the query of a and b, with which they are compared.

    Notes
    -----
    For a linear kernel f(a) − f(b) = Σ_j w_j (a_j − b_j), over features j. For other kernels it is
    Σ_i A_i (k(a, x_i) − k(b, x_i)), over training rows or Nyström basis vectors i. For an
    `AutoRanker`, the columns of b are replaced by those of a one after the other, in their order
    and in reverse, and the changes of the score are averaged.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.diagnostics import explain
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0]])
    >>> ranker = RankRLS(alpha=0.1).fit(X, [0, 2, 2, 1])
    >>> explain(ranker, X[2], X[3])
    Explanation(+0.981 = x1: +1.96, x0: -0.982)
    """
    if isinstance(estimator, Pipeline):
        steps = estimator[:-1]
        x_a, x_b = (None if x is None else steps.transform(_one_row(x)) for x in (x_a, x_b))
        among = None if among is None else steps.transform(among)
        found = explain(estimator[-1], x_a, x_b, among=among)
        if found.kind == "row" or not hasattr(steps, "feature_names_in_"):
            return found
        try:
            names = steps.get_feature_names_out()
        except (AttributeError, ValueError):  # a step that does not know the names of its features
            return found
        return replace(found, labels=names[found.index])
    if isinstance(estimator, AutoRanker):
        return _of_columns(estimator, x_a, x_b, among)
    if among is not None:
        raise ValueError(f"among is for an AutoRanker, not for a {type(estimator).__name__}")
    if not isinstance(estimator, BaseRanker | GreedyRankRLS):
        raise ValueError(
            "explain takes a RankRLS, RankRLSCV, RankSVM, GreedyRankRLS or AutoRanker, or a "
            f"pipeline that ends in one; got a {type(estimator).__name__}"
        )
    check_is_fitted(estimator)
    check: Any = partial(validate_data, estimator, accept_sparse=True, reset=False)
    if isinstance(estimator, BaseRanker):
        check = estimator._check_new
    given = [("x_a", x_a), ("x_b", x_b)][: 1 if x_b is None else 2]
    rows = [_one_of(name, check(_one_row(x))) for name, x in given]
    coef = getattr(estimator, "coef_", None)
    n_outputs = estimator._model.n_outputs if coef is None else len(np.atleast_2d(coef))
    _require_one_output(n_outputs)
    if coef is None:
        terms = [estimator._model.kernel_terms(row) for row in rows]
        labels, _, A = terms[0]
        return _sorted("row", labels, labels, A[:, 0], [K[0] for _, K, _ in terms])
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = np.array([f"x{j}" for j in range(coef.shape[-1])], dtype=object)
    values = [_dense(row)[0] for row in rows]
    return _sorted("feature", names, np.arange(len(names)), np.ravel(coef), values)


def _require_one_output(n: int) -> None:
    if n > 1:
        raise ValueError(f"the model has {n} outputs and explain takes one; fit it to y[:, j]")


def _of_columns(estimator: AutoRanker, x_a: Any, x_b: Any, among: Any) -> Explanation:
    check_is_fitted(estimator)
    _require_one_output(len(estimator._labels))
    if x_b is None:
        raise ValueError("an AutoRanker compares rows; pass x_b, too")
    if not estimator._features._centres:
        raise ValueError("explain does not take an AutoRanker of sparse rows")
    encode = estimator._table._encoded
    parts = [_one_of(name, encode(_one_row(x))) for name, x in (("x_a", x_a), ("x_b", x_b))]
    parts += [] if among is None else [encode(_one_row(among))]
    values = estimator._contributions(np.vstack([_dense(part) for part in parts]))
    columns, unknown = estimator.columns_["column"], np.full(len(values), np.nan)
    found = _sorted("feature", columns, np.arange(len(values)), np.ones(len(values)), [values])
    return replace(found, weight=unknown, change=unknown)


def _sorted(
    kind: str, labels: Array, index: Array, weight: Array, values: list[Array]
) -> Explanation:
    """Explanation by the values of a, less those of b if they are given."""
    change = values[0] - values[1] if len(values) > 1 else values[0]
    contribution = weight * change
    order = np.argsort(-np.abs(contribution), kind="stable")
    parts = contribution[order], weight[order], change[order]
    return Explanation(kind, labels[order], index[order], *parts, float(contribution.sum()))


def _one_row(x: Any) -> Any:
    """Return a row as a table of one row; vectors and pandas series are taken as rows."""
    if hasattr(x, "to_frame") and not hasattr(x, "columns"):
        return x.to_frame().T.infer_objects()
    if sparse.issparse(x) or hasattr(x, "columns"):
        return x
    x = np.asarray(x)
    return x[None] if x.ndim == 1 else x


def _one_of(name: str, rows: Any) -> Any:
    if rows.shape[0] != 1:
        raise ValueError(f"{name} must be one row; got {rows.shape[0]}")
    return rows


def _dense(row: Any) -> Array:
    return row.toarray() if sparse.issparse(row) else row


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
    alphas, and the metric of their average is compared with that of all columns. Boosted trees are
    trained again, which needs LightGBM.

    Parameters
    ----------
    ranker : fitted AutoRanker
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
