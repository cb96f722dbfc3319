"""Random partitions of the feature space by the leaves of random trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["RandomTrees"]

Array = NDArray[Any]

#: Maximum number of rows used to grow random trees; more do not improve them.
MAX_ROWS = 5000

#: Number of leaves looked up at a time.
BLOCK = 2**22


@dataclass(frozen=True)
class RandomTrees:
    """Complete binary trees of the same depth d, grown without labels.

    Node 1 is the root. The children of node i are 2i (values up to the threshold) and 2i + 1. A
    branch that ends above the last level goes on to the left: its thresholds are infinite.
    """

    features: Array  # feature of each inner node, (n_trees, 2^d); node 0 is not used
    thresholds: Array  # (n_trees, 2^d)

    @classmethod
    def grow(cls, X: Array, n_trees: int, depth: int, rng: np.random.RandomState) -> RandomTrees:
        """Grow the random trees of `RandomTreesEmbedding` on rows X of shape (m, n)."""
        from sklearn.ensemble import RandomTreesEmbedding  # slow to import

        if len(X) > MAX_ROWS:
            X = X[np.sort(rng.choice(len(X), MAX_ROWS, replace=False))]
        grown = RandomTreesEmbedding(
            n_trees, max_depth=depth, random_state=rng.randint(2**31 - 1)
        ).fit(X)
        features = np.zeros((n_trees, 2**depth), dtype=np.int64)
        thresholds = np.full((n_trees, 2**depth), np.inf)
        for t, estimator in enumerate(grown.estimators_):
            tree = estimator.tree_
            nodes, places = np.array([0]), np.array([1])  # in scikit-learn's tree and in this one
            for _ in range(depth):
                inner = tree.children_left[nodes] >= 0
                nodes, places = nodes[inner], places[inner]
                features[t, places] = tree.feature[nodes]
                thresholds[t, places] = tree.threshold[nodes]
                nodes = np.concatenate([tree.children_left[nodes], tree.children_right[nodes]])
                places = np.concatenate([2 * places, 2 * places + 1])
        return cls(features, thresholds)

    def leaves(self, X: Array) -> sparse.csr_array:
        """Return the indicator matrix of the leaf of each row in each tree, (m, n_trees 2^d)."""
        n_trees, width = self.features.shape
        trees = np.arange(n_trees)
        found = np.empty((len(X), n_trees), dtype=np.int32)
        step = max(1, BLOCK // n_trees)
        for first in range(0, len(X), step):
            rows = X[first : first + step].astype(np.float32)  # scikit-learn splits float32 rows
            numbers = np.arange(len(rows))[:, None]
            place = np.ones((len(rows), n_trees), dtype=np.int64)
            for _ in range(width.bit_length() - 1):
                right = rows[numbers, self.features[trees, place]] > self.thresholds[trees, place]
                place = 2 * place + right
            found[first : first + step] = place - width + width * trees
        indptr = np.arange(0, found.size + 1, n_trees)
        ones = np.ones(found.size)
        return sparse.csr_array((ones, found.ravel(), indptr), shape=(len(X), self.features.size))
