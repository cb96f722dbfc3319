"""Binary trees as arrays: random partitions of the feature space, and boosted trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[Any]

#: Maximum number of rows used to grow random trees; more do not improve them.
MAX_ROWS = 5000

#: Maximum depth of trees in model files: each row is compared once for each level and tree.
MAX_DEPTH = 100

#: Number of leaves looked up at a time.
STEP = 2**16


@dataclass(frozen=True, eq=False)
class Forest:
    """Binary trees; the score of a row is the sum of the values of its leaves."""

    roots: Array  # first node of each tree; children come after their parents
    features: Array  # feature of each node; −1 for leaves
    thresholds: Array  # rows with values up to the threshold go left
    left: Array  # children of each node; leaves are their own children
    right: Array
    values: Array

    @classmethod
    def random(cls, X: Array, n_trees: int, depth: int, rng: np.random.RandomState) -> Forest:
        """Grow the trees of scikit-learn's RandomTreesEmbedding, without its encoder, on rows X."""
        from sklearn.ensemble import ExtraTreesRegressor  # slow to import

        if len(X) > MAX_ROWS:
            X = X[np.sort(rng.choice(len(X), MAX_ROWS, replace=False))]
        seed = rng.randint(2**31 - 1)
        grown = ExtraTreesRegressor(n_trees, max_depth=depth, max_features=1, random_state=seed)
        grown.fit(X, np.random.RandomState(seed).uniform(size=len(X)))
        trees = [one.tree_ for one in grown.estimators_]
        sizes = np.array([tree.node_count for tree in trees])
        roots = np.cumsum(sizes) - sizes
        features, thresholds, left, right = (
            np.concatenate([getattr(tree, name) for tree in trees])
            for name in ("feature", "threshold", "children_left", "children_right")
        )
        nodes, first, leaf = np.arange(len(left)), np.repeat(roots, sizes), left < 0
        left, right = (np.where(leaf, nodes, first + child) for child in (left, right))
        features = np.where(leaf, -1, features)
        return cls(roots, features, thresholds, left, right, np.zeros(len(left)))

    @classmethod
    def of_boosters(cls, boosters: list[Any]) -> Forest:
        """Average of models of LightGBM, trained on finite features."""
        roots: list[int] = []
        nodes: list[list[Any]] = []
        for booster in boosters:
            for tree in booster.dump_model()["tree_info"]:
                roots.append(len(nodes))
                nodes.append([])
                stack = [(tree["tree_structure"], roots[-1])]
                while stack:
                    node, place = stack.pop()
                    if "leaf_value" in node:
                        nodes[place] = [-1, 0.0, place, place, node["leaf_value"] / len(boosters)]
                        continue
                    first = len(nodes)
                    nodes += [[], []]
                    feature, threshold = node["split_feature"], node["threshold"]
                    nodes[place] = [feature, threshold, first, first + 1, 0.0]
                    stack += [(node["left_child"], first), (node["right_child"], first + 1)]
        types = (np.int64, np.float64, np.int64, np.int64, np.float64)
        columns = (
            np.array(c, dtype=t) for c, t in zip(zip(*nodes, strict=True), types, strict=True)
        )
        return cls(np.array(roots, dtype=np.int64), *columns)

    def leaves(self, X: Array) -> Array:
        """Return the node of the leaf of each finite row in each tree, (m, n_trees)."""
        found = np.empty((len(X), len(self.roots)), dtype=np.int32)
        step, features = max(1, STEP // len(self.roots)), np.maximum(self.features, 0)
        for first in range(0, len(X), step):
            rows = X[first : first + step]
            flat, starts = rows.ravel(), X.shape[1] * np.arange(len(rows))[:, None]
            place = np.tile(self.roots, (len(rows), 1))
            while True:
                goes_left = flat[starts + features[place]] <= self.thresholds[place]
                below = np.where(goes_left, self.left[place], self.right[place])
                if (below == place).all():
                    break
                place = below
            found[first : first + step] = place
        return found

    def predict(self, X: Array) -> Array:
        """Return the scores of finite rows."""
        return self.values[self.leaves(X)].sum(axis=1)

    def indicators(self, X: Array) -> sparse.csr_array:
        """Return the indicator matrix of the leaf of each row in each tree, (m, n_leaves)."""
        leaf = self.features == -1
        found = self.leaves(X.astype(np.float32))  # scikit-learn splits float32 rows
        columns = (np.cumsum(leaf, dtype=np.int32) - 1)[found].ravel()
        indptr = np.arange(0, found.size + 1, len(self.roots))
        shape = (len(X), int(leaf.sum()))
        return sparse.csr_array((np.ones(found.size), columns, indptr), shape=shape)

    def is_consistent(self, n_features: int) -> bool:
        """Whether all indices are in range and every path ends soon, for models of files."""
        n, places = len(self.features), np.arange(len(self.features))
        leaf = self.features == -1
        inner = (self.features >= 0) & (self.left > places) & (self.right > places)
        ends = (self.left == places) & (self.right == places)
        good = (np.where(leaf, ends, inner) & (self.features < n_features)).all()
        good = good and ((self.left < n) & (self.right < n)).all()
        if not (good and ((self.roots >= 0) & (self.roots < n)).all()):
            return False
        level, depth = np.unique(self.roots), 0
        while len(level := level[~leaf[level]]) and depth < MAX_DEPTH:
            level, depth = np.unique([self.left[level], self.right[level]]), depth + 1
        return not len(level)
