"""Generated text-like data in the shape of RCV1: sparse, Zipf columns, tf-idf values, unit rows."""

from __future__ import annotations

import numpy as np
from scipy import sparse

__all__ = ["RCV1_SHAPE", "make_text"]

RCV1_SHAPE = (781_265, 47_152)


def make_text(
    m: int, n: int = RCV1_SHAPE[1], *, length: float = 88.0, seed: int = 0
) -> tuple[sparse.csr_array, np.ndarray]:
    """Documents of two classes, about 0.16% of the cells filled at the default width.

    A document draws words from a Zipf law that its class tilts for one word in ten; its class
    is one with probability 0.47, as for the topic CCAT of RCV1, and mixed for a few documents.

    Returns
    -------
    X : csr_array of shape (m, n), float64, int32 indices, rows of unit norm
    y : ndarray of shape (m,), 0 or 1
    """
    words = np.random.default_rng(1)  # the same language for every seed
    zipf = 1.0 / np.arange(1, n + 1)
    tilt = np.where(words.random(n) < 0.1, words.normal(0.0, 2.0, n), 0.0)
    laws = [np.cumsum(zipf * np.exp(side * tilt)) for side in (-0.5, 0.5)]
    laws = [law / law[-1] for law in laws]
    idf = np.log(1.0 + 1.0 / (zipf / zipf.sum() * length)).astype(np.float32)
    rng = np.random.default_rng(seed + 2)
    parts, labels = [], []
    for start in range(0, m, 50_000):
        size = min(50_000, m - start)
        y = rng.random(size) < 0.47
        share = np.where(rng.random(size) < 0.05, rng.random(size), y)  # of the class's own words
        lengths = np.maximum(rng.lognormal(np.log(length), 0.4, size).astype(np.int64), 5)
        rows = np.repeat(np.arange(size), lengths)
        own = rng.random(len(rows)) < share[rows]
        draw = rng.random(len(rows))
        columns = np.where(own, np.searchsorted(laws[1], draw), np.searchsorted(laws[0], draw))
        counts = sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, n)).tocsr()
        counts.sum_duplicates()
        counts.data = (1.0 + np.log(counts.data)) * idf[counts.indices]
        norms = np.sqrt(np.add.reduceat(counts.data**2, counts.indptr[:-1]))
        counts.data /= np.repeat(norms, np.diff(counts.indptr))
        parts.append(counts)
        labels.append(y)
    X = sparse.vstack(parts, format="csr")
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X, np.concatenate(labels).astype(float)
