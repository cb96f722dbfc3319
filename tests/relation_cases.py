"""Relations for the grids of tests: gaps, multi-edges, lonely rows, blocks; singular kernels."""

from __future__ import annotations

import numpy as np
from scipy import sparse

OBSERVED = ("complete", "sparse", "multi", "block", "no diagonal", "complete twice", "lonely rows")


def features(kind, n, rng):
    """Objects of full rank, of low rank, with duplicates, or with a large offset."""
    if kind == "full":
        return rng.standard_normal((n, n + 2))
    if kind == "low rank":
        return rng.integers(-3, 4, (n, 2)).astype(float)
    X = rng.standard_normal((n, 3))
    X[1] = X[0]
    return X


def edges(kind, p, g, rng):
    """Rows and columns of the observed edges, in random order."""
    rows, cols = (a.ravel() for a in np.indices((p, g)))
    if kind == "sparse":
        kept = rng.random(p * g) < 0.6
    elif kind == "multi":
        kept = rng.integers(0, p * g, 2 * p * g)
    elif kind == "block":
        kept = np.isin(rows, [0, 2, 3]) & np.isin(cols, [0, 2, 3])
    elif kind == "no diagonal":
        kept = rows != cols
    elif kind == "complete twice":
        kept = np.tile(np.arange(p * g), 2)
    elif kind == "lonely rows":  # one row without an edge, one with a single one
        kept = (rows > 1) | ((rows == 1) & (cols == 2))
    else:
        kept = np.ones(p * g, dtype=bool)
    rows, cols = rows[kept], cols[kept]
    order = rng.permutation(len(rows))
    return rows[order], cols[order]


def labels(rows, cols, sign, rng, multi):
    """Noisy labels; with a sign they agree with it where a pair has one label in each direction."""
    y = rng.standard_normal(len(rows))
    if sign and not multi:
        n = int(max(rows.max(), cols.max())) + 1
        table = rng.standard_normal((n, n))
        y = (table + sign * table.T)[rows, cols]
    return y


def as_matrix(rows, cols, y, shape):
    """A matrix with NaN if no pair comes twice, otherwise a COO matrix."""
    if len(np.unique(rows * shape[1] + cols)) < len(rows):
        return sparse.coo_array((y, (rows, cols)), shape=shape)
    Y = np.full(shape, np.nan)
    Y[rows, cols] = y
    return Y
