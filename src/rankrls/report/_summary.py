"""Summary of the data: counts, sizes of queries, distribution of labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls.report._data import Rankings

__all__ = ["DataSummary", "pairs_by_query", "summarise"]

Array = NDArray[Any]

#: Up to this many distinct labels are shown one by one, more as a histogram.
MAX_LEVELS = 12


@dataclass(frozen=True)
class DataSummary:
    """Summary of one data set.

    Attributes
    ----------
    n_rows, n_features, n_queries, n_pairs : int
        Counts; a pair is two rows of one query with different labels.
    n_single, n_tied : int
        Number of queries without a pair: those with a single row, and those with equal labels.
    n_levels : int
        Number of distinct labels.
    label_edges : ndarray
        The distinct labels, or the edges of a histogram (one more than counts).
    label_counts : ndarray
    size_quantiles : tuple of int
        Minimum, 25 %, median, 75 % and maximum number of rows of a query.
    pairs : ndarray of shape (n_queries,)
        Number of pairs of each query.
    density : float or None
        Fraction of stored entries, for sparse features.
    """

    n_rows: int
    n_features: int
    n_queries: int
    n_pairs: int
    n_single: int
    n_tied: int
    n_levels: int
    label_edges: Array
    label_counts: Array
    size_quantiles: tuple[int, ...]
    pairs: Array
    density: float | None

    @property
    def n_with_pairs(self) -> int:
        """Number of queries that have a pair."""
        return self.n_queries - self.n_single - self.n_tied


def summarise(data: Rankings) -> DataSummary:
    """Summarise the data."""
    pairs, sizes = pairs_by_query(data), data.sizes
    levels, counts = np.unique(data.y, return_counts=True)
    n_levels = len(levels)
    if n_levels > MAX_LEVELS:
        counts, levels = np.histogram(data.y, bins=MAX_LEVELS)
    density = None
    if sparse.issparse(data.X):
        density = data.X.nnz / max(1, data.n_rows * data.n_features)
    quantiles = np.quantile(sizes, [0, 0.25, 0.5, 0.75, 1], method="nearest")
    return DataSummary(
        n_rows=data.n_rows,
        n_features=data.n_features,
        n_queries=data.n_queries,
        n_pairs=int(pairs.sum()),
        n_single=int((sizes == 1).sum()),
        n_tied=int(((sizes > 1) & (pairs == 0)).sum()),
        n_levels=n_levels,
        label_edges=levels,
        label_counts=counts,
        size_quantiles=tuple(int(q) for q in quantiles),
        pairs=pairs,
        density=density,
    )


def pairs_by_query(data: Rankings) -> Array:
    """Number of pairs with different labels in each query, (n² − Σ_level n_level²)/2."""
    order = np.lexsort((data.y, data.codes))
    codes, y = data.codes[order], data.y[order]
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(codes) != 0) | (np.diff(y) != 0)]))
    level_sizes = np.diff(np.append(starts, len(codes)))
    tied = np.zeros(data.n_queries, dtype=np.int64)
    np.add.at(tied, codes[starts], level_sizes**2)
    return (data.sizes**2 - tied) // 2
