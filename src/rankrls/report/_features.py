"""Features: statistics within queries, and importance in a model."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls._frames import take_rows
from rankrls.metrics import pairwise_accuracy, pairwise_error
from rankrls.report._data import Rankings
from rankrls.report._heldout import predict

__all__ = ["best_single", "column", "feature_importance", "feature_statistics"]

Array = NDArray[Any]

#: Number of cells of dense X processed at a time, 64 MB.
CELLS = 1 << 23
#: Maximum number of features that are inspected one by one, and that are shown.
MAX_ALONE, MAX_SHOWN = 100, 20
#: Limits of permutation importance: rows, features and repetitions.
MAX_ROWS, MAX_SHUFFLED, N_SHUFFLES = 2000, 300, 3


def column(X: Any, j: int) -> Array:
    """One column as an array of shape (n_rows,)."""
    return X[:, [j]].toarray()[:, 0] if sparse.issparse(X) else X[:, j]


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
    mean, std, varies, within, squares, covariance = map(np.concatenate, zip(*parts, strict=True))
    scale = np.sqrt(squares * float(y @ y))
    correlation = np.zeros(d)
    np.divide(covariance, scale, out=correlation, where=within & (scale > 0))
    alone = np.full(d, np.nan)
    candidates = np.argsort(-np.abs(correlation), kind="stable")[:MAX_ALONE]
    candidates = candidates[within[candidates]]
    alone[candidates] = accuracy_alone(data, candidates)
    return SimpleNamespace(mean=mean, std=std, varies=varies, varies_within=within,
                           std_within=np.sqrt(squares / n), alone=alone,
                           correlation=np.clip(correlation, -1.0, 1.0))  # fmt: skip


def _of_columns(X: Any, data: Rankings, y: Array) -> tuple[Array, ...]:
    """Mean, std, whether columns vary (within queries), scatter and covariance with y within.

    With D the rows minus the first row of their query, which is exactly zero for constant columns,
    the scatter is Σ D² − Σ_q (Σ_q D)²/n_q.
    """
    n, codes = X.shape[0], data.codes
    first = np.unique(codes, return_index=True)[1]
    means = sparse.csr_array((1.0 / np.sqrt(data.sizes)[codes], (codes, np.arange(n))))
    if sparse.issparse(X):
        low, high = X.min(axis=0).toarray().ravel(), X.max(axis=0).toarray().ravel()
        mean, square = (np.asarray(part.mean(axis=0, dtype=np.float64)).ravel()
                        for part in (X, X.multiply(X)))  # fmt: skip
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
    squares, between = (
        np.asarray((part.multiply(part) if sparse.issparse(part) else part**2).sum(axis=0)).ravel()
        for part in (D, means @ D)
    )
    return mean, std, low != high, within, np.maximum(squares - between, 0.0), D.T @ y


def accuracy_alone(data: Rankings, columns: Array) -> Array:
    """Pairwise accuracy of each feature used as the score, on a sample of queries, or NaN."""
    rows = data.sample_queries(50_000)
    X, y, codes = data.X[rows], data.y[rows], data.codes[rows]
    X = X.tocsc() if sparse.issparse(X) else X
    try:
        return np.array([pairwise_accuracy(y, column(X, j), qid=codes) for j in columns])
    except ValueError:  # no preference in the sample
        return np.full(len(columns), np.nan)


def best_single(
    train: Rankings, evaluated: Rankings, statistics: SimpleNamespace | None
) -> SimpleNamespace | None:
    """The best single feature on the training data, used as a ranker."""
    if statistics is None or not np.isfinite(statistics.alone).any():
        return None
    j = int(np.nanargmax(np.abs(statistics.alone - 0.5)))
    ascending = bool(statistics.alone[j] < 0.5)
    values = column(evaluated.X, j)
    error = pairwise_error(evaluated.y, -values if ascending else values, qid=evaluated.qid)
    name = train.feature_names[j]
    return SimpleNamespace(feature=name, ascending=ascending, error=float(error))


def feature_importance(
    model: Any, train: Rankings, test: Rankings | None, statistics: Any
) -> SimpleNamespace:
    """The inputs with the largest w_j std_j, or whose shuffling increases the error most."""
    n, reason = len(train.input_names), ""
    weight: Any = getattr(model, "coef_", None)
    kind = "permutation"
    if weight is not None and getattr(model, "kernel", "linear") == "linear":
        weight = np.asarray(weight, dtype=np.float64).reshape(-1)
    if statistics is None:
        reason = "The kernel is precomputed, so there are no features to show."
    elif weight is not None and weight.shape == (n,):
        kind = "linear"
        scaled = train.inputs is not train.X
        used = feature_statistics(replace(train, X=train.inputs)) if scaled else statistics
        effect = weight * used.std_within
        size = np.abs(effect)
    elif n > MAX_SHUFFLED:
        reason = (
            f"The model is not linear, and shuffling {n:,} features one by one would take long: it "
            f"is done for up to {MAX_SHUFFLED}."
        )
    else:
        try:
            effect = size = _shuffled(model, train if test is None else test)
        except ValueError:
            reason = "The sample of queries for shuffling has no pair."
    if reason:
        return SimpleNamespace(kind="none", reason=reason)
    columns = np.argsort(-size, kind="stable")[:MAX_SHOWN]
    columns = columns[size[columns] > 0]
    alone, correlation = np.full((2, len(columns)), np.nan)
    known = train.column_of[columns] >= 0
    of = train.column_of[columns[known]]
    alone[known], correlation[known] = accuracy_alone(train, of), statistics.correlation[of]
    return SimpleNamespace(
        kind=kind,
        columns=columns,
        names=[train.input_names[j] for j in columns],
        effect=effect[columns],
        weight=weight[columns] if kind == "linear" else None,
        alone=alone,
        correlation=correlation,
        n_used=int((size > 0).sum()),
        on_test=kind == "permutation" and test is not None,
    )


def _shuffled(model: Any, data: Rankings) -> Array:
    """Mean increase of the error when a column of the inputs is permuted within queries."""
    rows = data.sample_queries(MAX_ROWS)
    rows = rows[np.argsort(data.codes[rows], kind="stable")]
    X, y, codes = take_rows(data.inputs, rows), data.y[rows], data.codes[rows]
    X = X.toarray() if sparse.issparse(X) else X
    qid, n = codes if data.has_qid else None, len(data.input_names)
    rng = np.random.default_rng(0)
    before = pairwise_error(y, predict(model, X, qid), qid=codes)
    growth = np.zeros(n)
    for _ in range(N_SHUFFLES):
        order = np.lexsort((rng.random(len(rows)), codes))  # permute within each query
        for j in range(n):
            scores = predict(model, _with_order(X, j, order), qid)
            growth[j] += pairwise_error(y, scores, qid=codes) - before
    return growth / N_SHUFFLES


def _with_order(X: Any, j: int, order: Array) -> Any:
    """The same rows, with the cells of one column in another order."""
    if hasattr(X, "columns"):
        frame = nw.from_native(X, eager_only=True)
        name = frame.columns[j]
        return frame.with_columns(frame[order.tolist()].get_column(name).alias(name)).to_native()
    X = X.copy()
    X[:, j] = X[order, j]
    return X
