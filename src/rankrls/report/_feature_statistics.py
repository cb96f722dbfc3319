"""Statistics of features, overall and within queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls.metrics import pairwise_accuracy
from rankrls.report._data import Rankings

__all__ = ["FeatureStatistics", "accuracy_alone", "feature_statistics"]

Array = NDArray[Any]

#: Number of cells of dense X processed at a time, 64 MB.
_CELLS = 1 << 23
#: Maximum number of features that are inspected one by one.
MAX_ALONE = 100


@dataclass(frozen=True)
class FeatureStatistics:
    """Statistics of each feature, as arrays of shape (n_features,).

    Attributes
    ----------
    mean, std, low, high : over all rows
    varies : bool
        Whether it has more than one value.
    varies_within : bool
        Whether it has more than one value in some query.
    std_within : float
        Standard deviation around the mean of the query, over all rows.
    correlation : float
        Correlation with the labels within queries; 0 for constant features.
    alone : float
        `accuracy_alone` of the features that correlate most with the labels, NaN for others.
    """

    mean: Array
    std: Array
    low: Array
    high: Array
    varies: Array
    varies_within: Array
    std_within: Array
    correlation: Array
    alone: Array


def feature_statistics(data: Rankings) -> FeatureStatistics:
    """Compute statistics of all features in O(n_rows n_features); sparse X stays sparse."""
    X, codes = data.X, data.codes
    n, d = X.shape
    first = np.full(data.n_queries, n, dtype=np.int64)
    np.minimum.at(first, codes, np.arange(n))
    gather = sparse.csr_array((np.ones(n), (codes, np.arange(n))), shape=(data.n_queries, n))
    y = data.y - (gather @ data.y / data.sizes)[codes]
    if sparse.issparse(X):
        low, high = X.min(axis=0).toarray().ravel(), X.max(axis=0).toarray().ravel()
        mean = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
        square = np.asarray(X.multiply(X).mean(axis=0)).ravel()
        std = np.sqrt(np.maximum(square - mean**2, 0.0))
        varies, within, covariance = _within(X, codes, first, gather, data.sizes, y)
    else:
        low, high = X.min(axis=0), X.max(axis=0)
        mean, std = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
        step = max(1, _CELLS // n)
        parts = [
            _within(X[:, j : j + step], codes, first, gather, data.sizes, y)
            for j in range(0, d, step)
        ]
        varies, within, covariance = (np.concatenate(part) for part in zip(*parts, strict=True))
    scale = np.sqrt(within * float(y @ y))
    correlation = np.zeros(d)
    np.divide(covariance, scale, out=correlation, where=varies & (scale > 0))
    alone = np.full(d, np.nan)
    candidates = np.argsort(-np.abs(correlation), kind="stable")[:MAX_ALONE]
    candidates = candidates[varies[candidates]]
    alone[candidates] = accuracy_alone(data, candidates)
    return FeatureStatistics(
        mean=mean,
        std=std,
        low=low,
        high=high,
        varies=low != high,
        varies_within=varies,
        std_within=np.sqrt(within / n),
        correlation=np.clip(correlation, -1.0, 1.0),
        alone=alone,
    )


def _within(
    X: Any, codes: Array, first: Array, gather: Any, sizes: Array, y: Array
) -> tuple[Array, Array, Array]:
    """Whether columns vary, and their scatter and covariance with y within queries.

    With D the rows minus the first row of their query, which is exactly zero for constant columns,
    the scatter is Σ D² − Σ_q (Σ_q D)²/n_q.
    """
    if sparse.issparse(X):
        D: Any = sparse.csr_array(X - X[first[codes]], dtype=np.float64)
        D.eliminate_zeros()
        varies = np.bincount(D.indices, minlength=X.shape[1]) > 0
        squares = np.asarray(D.multiply(D).sum(axis=0)).ravel()
        sums = gather @ D
        between = np.asarray(sums.multiply(sums).multiply(1.0 / sizes[:, None]).sum(axis=0)).ravel()
    else:
        D = np.asarray(X, dtype=np.float64)
        D = D - D[first[codes]]
        varies = D.any(axis=0)
        squares = np.einsum("ij,ij->j", D, D)
        sums = gather @ D
        between = np.einsum("ij,ij->j", sums, sums / sizes[:, None])
    return varies, np.maximum(squares - between, 0.0), D.T @ y


def accuracy_alone(data: Rankings, columns: Array, *, max_rows: int = 50_000) -> Array:
    """Pairwise accuracy of each feature used as the score, on a sample of queries.

    The result has shape (len(columns),). It is below ½ for a feature for which smaller is better,
    and NaN if the sample has no pair.
    """
    rows = data.sample_queries(max_rows)
    X, y, codes = data.X[rows], data.y[rows], data.codes[rows]
    if sparse.issparse(X):
        X = X.tocsc()
    values = np.full(len(columns), np.nan)
    for k, j in enumerate(columns):
        column = X[:, [j]].toarray()[:, 0] if sparse.issparse(X) else X[:, j]
        try:
            values[k] = pairwise_accuracy(y, column, qid=codes)
        except ValueError:  # no preference in the sample
            break
    return values
