"""Feature importance: exact for linear models, by permutation for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls.metrics import pairwise_error
from rankrls.report._data import Rankings
from rankrls.report._feature_statistics import FeatureStatistics, accuracy_alone
from rankrls.report._fit_plan import predict

__all__ = ["Importance", "feature_importance", "linear_weights"]

Array = NDArray[Any]

#: Number of features shown.
MAX_SHOWN = 20
#: Limits of permutation importance: rows, features and repetitions.
MAX_ROWS = 2000
MAX_SHUFFLED = 300
N_SHUFFLES = 3


@dataclass(frozen=True)
class Importance:
    """The most important features, in descending order.

    Attributes
    ----------
    kind : {"linear", "permutation", "none"}
    reason : str
        Why there is no importance.
    columns : ndarray of int
        Indices of the features shown.
    effect : ndarray
        For linear models, the weight times the standard deviation within queries, which is the
        change of the score when the feature grows by one standard deviation. For others, the
        increase of the error when the feature is permuted within queries.
    weight : ndarray or None
        Coefficients of a linear model.
    alone : ndarray
        Pairwise accuracy of the feature used as the score.
    correlation : ndarray
        Correlation with the label within queries.
    n_used : int
        Number of features with a non-zero effect.
    on_test : bool
        Whether permutation importance was computed on test data or on (a sample of) training data.
    """

    kind: Literal["linear", "permutation", "none"]
    reason: str
    columns: Array
    effect: Array
    weight: Array | None
    alone: Array
    correlation: Array
    n_used: int
    on_test: bool = False


def linear_weights(model: Any, n_features: int) -> Array | None:
    """Weights of the input features, if the fitted model is linear in them."""
    coef = getattr(model, "coef_", None)
    if coef is None or getattr(model, "kernel", "linear") != "linear":
        return None
    coef = np.asarray(coef, dtype=np.float64)
    coef = coef.reshape(-1) if coef.size == n_features else coef
    return coef if coef.shape == (n_features,) else None


def feature_importance(
    model: Any, train: Rankings, test: Rankings | None, statistics: FeatureStatistics | None
) -> Importance:
    """Compute the importance of the features of a fitted model."""
    if statistics is None:
        return _none("The kernel is precomputed, so there are no features to show.")
    weight = linear_weights(model, train.n_features)
    if weight is not None:
        effect = weight * statistics.std_within
        return _ranked("linear", train, statistics, effect, np.abs(effect), weight)
    if train.n_features > MAX_SHUFFLED:
        return _none(
            f"The model is not linear, and shuffling {train.n_features:,} features one by one "
            f"would take long: it is done for up to {MAX_SHUFFLED}."
        )
    data = train if test is None else test
    data = data.take(data.sample_queries(MAX_ROWS))
    growth = _shuffled(model, data)
    if growth is None:
        return _none("The sample of queries for shuffling has no pair.")
    return _ranked("permutation", train, statistics, growth, growth, None, test is not None)


def _none(reason: str) -> Importance:
    empty = np.empty(0)
    return Importance("none", reason, empty.astype(int), empty, None, empty, empty, 0)


def _ranked(
    kind: Literal["linear", "permutation"],
    train: Rankings,
    statistics: FeatureStatistics,
    effect: Array,
    size: Array,
    weight: Array | None,
    on_test: bool = False,
) -> Importance:
    columns = np.argsort(-size, kind="stable")[:MAX_SHOWN]
    columns = columns[size[columns] > 0]
    return Importance(
        kind=kind,
        reason="",
        columns=columns,
        effect=effect[columns],
        weight=None if weight is None else weight[columns],
        alone=accuracy_alone(train, columns, max_rows=20_000),
        correlation=statistics.correlation[columns],
        n_used=int((size > 0).sum()),
        on_test=on_test,
    )


def _shuffled(model: Any, data: Rankings) -> Array | None:
    """Mean increase of the error when a feature is permuted within queries, shape (n_features,)."""
    X = data.X.toarray() if sparse.issparse(data.X) else np.array(data.X)
    rng = np.random.default_rng(0)

    def error(rows: Array) -> float:
        scores = predict(model, rows, data.qid)
        return float(pairwise_error(data.y, scores, qid=data.codes))

    try:
        before = error(X)
    except ValueError:
        return None
    growth = np.zeros(data.n_features)
    by_query = np.argsort(data.codes, kind="stable")
    for _ in range(N_SHUFFLES):
        # Permute the rows within each query.
        order = np.lexsort((rng.random(data.n_rows), data.codes))
        for j in range(data.n_features):
            kept = X[:, j].copy()
            X[by_query, j] = kept[order]
            if not np.array_equal(kept, X[:, j]):
                growth[j] += error(X) - before
            X[:, j] = kept
    return growth / N_SHUFFLES
