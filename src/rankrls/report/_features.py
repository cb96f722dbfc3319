"""Features: statistics within queries, equal rows and columns, and importance in a model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls.core.spaces.spaces import first_equal
from rankrls.metrics import pairwise_accuracy, pairwise_error
from rankrls.report._data import Rankings
from rankrls.report._heldout import predict

__all__ = [
    "equal_columns",
    "feature_importance",
    "feature_statistics",
    "rows_in_common",
]

Array = NDArray[Any]

#: Number of cells of dense X processed at a time, 64 MB.
CELLS = 1 << 23
#: Maximum number of features that are inspected one by one.
MAX_ALONE = 100
#: Number of features shown.
MAX_SHOWN = 20
#: Limits of permutation importance: rows, features and repetitions.
MAX_ROWS, MAX_SHUFFLED, N_SHUFFLES = 2000, 300, 3


def equal_columns(X: Any) -> Array:
    """Index of the first column that equals each column of X, shape (n_features,)."""
    return first_equal(X.T.tocsr() if sparse.issparse(X) else np.ascontiguousarray(X.T))


def rows_in_common(X: Any, other: Any) -> Array:
    """Whether each row of ``X`` is also a row of ``other``, bool of shape (n_rows,)."""
    if sparse.issparse(X) or sparse.issparse(other):
        both: Any = sparse.vstack([sparse.csr_array(X), sparse.csr_array(other)], format="csr")
    else:
        both = np.vstack([X, other])
    number, n = first_equal(both), X.shape[0]
    return np.isin(number[:n], number[n:])


def feature_statistics(data: Rankings) -> SimpleNamespace:
    """Compute statistics of all features in O(n_rows n_features); sparse X stays sparse.

    Arrays of shape (n_features,): mean and std over all rows; whether a feature ``varies``, also
    within a query; its standard deviation within queries and its correlation with the labels there;
    and `accuracy_alone` of those that correlate most with the labels, NaN for others.
    """
    X, codes = data.X, data.codes
    n, d = X.shape
    y = data.y - (np.bincount(codes, data.y) / data.sizes)[codes]
    step = d if sparse.issparse(X) else max(1, CELLS // n)
    parts = [_of_columns(X[:, j : j + step], data, y) for j in range(0, d, step)]
    mean, std, varies, within, squares, covariance = (
        np.concatenate(part) for part in zip(*parts, strict=True)
    )
    scale = np.sqrt(squares * float(y @ y))
    correlation = np.zeros(d)
    np.divide(covariance, scale, out=correlation, where=within & (scale > 0))
    alone = np.full(d, np.nan)
    candidates = np.argsort(-np.abs(correlation), kind="stable")[:MAX_ALONE]
    candidates = candidates[within[candidates]]
    alone[candidates] = accuracy_alone(data, candidates)
    return SimpleNamespace(
        mean=mean,
        std=std,
        varies=varies,
        varies_within=within,
        std_within=np.sqrt(squares / n),
        correlation=np.clip(correlation, -1.0, 1.0),
        alone=alone,
    )


def _of_columns(X: Any, data: Rankings, y: Array) -> tuple[Array, ...]:
    """Mean, std, whether columns vary (within queries), scatter and covariance with y within.

    With D the rows minus the first row of their query, which is exactly zero for constant columns,
    the scatter is Σ D² − Σ_q (Σ_q D)²/n_q.
    """
    n, codes = X.shape[0], data.codes
    first = np.unique(codes, return_index=True)[1]
    gather = sparse.csr_array((np.ones(n), (codes, np.arange(n))), shape=(data.n_queries, n))
    if sparse.issparse(X):
        low, high = X.min(axis=0).toarray().ravel(), X.max(axis=0).toarray().ravel()
        mean = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
        square = np.asarray(X.multiply(X).mean(axis=0)).ravel()
        std = np.sqrt(np.maximum(square - mean**2, 0.0))
        D: Any = sparse.csr_array(X - X[first[codes]], dtype=np.float64)
        D.eliminate_zeros()
        within = np.bincount(D.indices, minlength=X.shape[1]) > 0
    else:
        low, high = X.min(axis=0), X.max(axis=0)
        mean, std = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
        D = np.asarray(X, dtype=np.float64)
        D = D - D[first[codes]]
        within = D.any(axis=0)
    sums = gather @ D
    root = sparse.diags_array(1.0 / np.sqrt(data.sizes)) @ sums
    squares, between = (_column_squares(part) for part in (D, root))
    return mean, std, low != high, within, np.maximum(squares - between, 0.0), D.T @ y


def _column_squares(M: Any) -> Array:
    if sparse.issparse(M):
        return np.asarray(M.multiply(M).sum(axis=0)).ravel()
    return np.einsum("ij,ij->j", M, M)


def accuracy_alone(data: Rankings, columns: Array, *, max_rows: int = 50_000) -> Array:
    """Pairwise accuracy of each feature used as the score, on a sample of queries.

    The result has shape (len(columns),). It is below ½ for a feature for which smaller is better,
    and NaN if the sample has no pair.
    """
    rows = data.sample_queries(max_rows)
    X, y, codes = data.X[rows], data.y[rows], data.codes[rows]
    X = X.tocsc() if sparse.issparse(X) else X
    values = np.full(len(columns), np.nan)
    for k, j in enumerate(columns):
        column = X[:, [j]].toarray()[:, 0] if sparse.issparse(X) else X[:, j]
        try:
            values[k] = pairwise_accuracy(y, column, qid=codes)
        except ValueError:  # no preference in the sample
            break
    return values


def feature_importance(
    model: Any, train: Rankings, test: Rankings | None, statistics: SimpleNamespace | None
) -> SimpleNamespace:
    """The most important features of a fitted model; ``kind`` is linear, permutation or none.

    The effect is the weight times the standard deviation within queries, or the increase of the
    error when the feature is permuted within queries.
    """
    if statistics is None:
        return SimpleNamespace(kind="none", reason="The kernel is precomputed, so there are no "
                               "features to show.")  # fmt: skip
    weight, kind = getattr(model, "coef_", None), "linear"
    if weight is not None and getattr(model, "kernel", "linear") == "linear":
        weight = np.asarray(weight, dtype=np.float64).reshape(-1)
    if weight is not None and weight.shape == (train.n_features,):
        effect = weight * statistics.std_within
        size = np.abs(effect)
    elif train.n_features > MAX_SHUFFLED:
        return SimpleNamespace(
            kind="none",
            reason=f"The model is not linear, and shuffling {train.n_features:,} features one by "
            f"one would take long: it is done for up to {MAX_SHUFFLED}.",
        )
    else:
        data = train if test is None else test
        growth = _shuffled(model, data.take(data.sample_queries(MAX_ROWS)))
        if growth is None:
            reason = "The sample of queries for shuffling has no pair."
            return SimpleNamespace(kind="none", reason=reason)
        kind, weight, effect, size = "permutation", None, growth, growth
    columns = np.argsort(-size, kind="stable")[:MAX_SHOWN]
    columns = columns[size[columns] > 0]
    return SimpleNamespace(
        kind=kind,
        columns=columns,
        effect=effect[columns],
        weight=None if weight is None else weight[columns],
        alone=accuracy_alone(train, columns, max_rows=20_000),
        correlation=statistics.correlation[columns],
        n_used=int((size > 0).sum()),
        on_test=kind == "permutation" and test is not None,
    )


def _shuffled(model: Any, data: Rankings) -> Array | None:
    """Mean increase of the error when a feature is permuted within queries, shape (n_features,)."""
    X = data.X.toarray() if sparse.issparse(data.X) else np.array(data.X)
    rng = np.random.default_rng(0)

    def error(rows: Array) -> float:
        return float(pairwise_error(data.y, predict(model, rows, data.qid), qid=data.codes))

    try:
        before = error(X)
    except ValueError:
        return None
    growth = np.zeros(data.n_features)
    by_query = np.argsort(data.codes, kind="stable")
    for _ in range(N_SHUFFLES):
        order = np.lexsort((rng.random(data.n_rows), data.codes))  # permute within each query
        for j in range(data.n_features):
            kept = X[:, j].copy()
            X[by_query, j] = kept[order]
            if not np.array_equal(kept, X[:, j]):
                growth[j] += error(X) - before
            X[:, j] = kept
    return growth / N_SHUFFLES
