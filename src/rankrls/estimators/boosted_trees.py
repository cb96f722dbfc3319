"""Boosted trees as members of `AutoRanker`: trained by LightGBM, stored and evaluated as arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Forest", "TreeMember", "has_lightgbm", "train"]

Array = NDArray[Any]

#: Parameters of LightGBM, the number of trees of a model, and the number of averaged models.
PARAMETERS = {
    "objective": "lambdarank",
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 20,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}
N_TREES, N_SEEDS = 150, 3

#: LightGBM takes grades up to 30 and queries of at most 10,000 rows.
MAX_GRADE, MAX_QUERY = 30, 10_000

#: Number of grades of labels that are not grades.
N_GRADES = 8

#: Number of leaves looked up at a time.
STEP = 2**22


def has_lightgbm(*, required: bool) -> bool:
    """Whether LightGBM is installed; raise an error that names the extra if it is required."""
    try:
        import lightgbm  # noqa: F401
    except ImportError as error:
        if required:
            raise ImportError(
                "trees=True needs LightGBM: pip install 'rankrls[trees]', or use trees=False"
            ) from error
        return False
    return True


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
        columns = list(zip(*nodes, strict=True))
        features, left, right = (np.array(columns[k], dtype=np.int64) for k in (0, 2, 3))
        thresholds, values = (np.array(columns[k], dtype=np.float64) for k in (1, 4))
        return cls(np.array(roots, dtype=np.int64), features, thresholds, left, right, values)

    def predict(self, X: Array) -> Array:
        """Return the scores of finite rows."""
        scores = np.empty(len(X))
        step = max(1, STEP // len(self.roots))
        for first in range(0, len(X), step):
            rows = X[first : first + step]
            numbers, place = np.arange(len(rows))[:, None], np.tile(self.roots, (len(rows), 1))
            while True:
                goes_left = rows[numbers, self.features[place]] <= self.thresholds[place]
                below = np.where(goes_left, self.left[place], self.right[place])
                if (below == place).all():
                    break
                place = below
            scores[first : first + step] = self.values[place].sum(axis=1)
        return scores

    def is_consistent(self, n_features: int) -> bool:
        """Whether all indices are in range and every path ends, for models read from files."""
        n, places = len(self.features), np.arange(len(self.features))
        leaf = self.features == -1
        inner = (self.features >= 0) & (self.left > places) & (self.right > places)
        ends = (self.left == places) & (self.right == places)
        return bool(
            (np.where(leaf, ends, inner) & (self.features < n_features)).all()
            and ((self.left < n) & (self.right < n)).all()
            and ((self.roots >= 0) & (self.roots < n)).all()
        )


def train(
    X: Array, y: Array, codes: Array, weights: Array | None, seeds: list[int], n_threads: int
) -> Forest:
    """Train models with LambdaMART, one for each seed."""
    import lightgbm

    order = np.argsort(codes, kind="stable")
    if (y != np.rint(y)).any() or y.min() < 0 or y.max() > MAX_GRADE:
        levels = np.unique(np.quantile(y, np.linspace(0, 1, N_GRADES + 1)[1:-1]))
        y = np.searchsorted(levels, y, side="left")
    data = lightgbm.Dataset(
        X[order],
        y[order],
        group=np.unique(codes, return_counts=True)[1],
        weight=None if weights is None else weights[order],
        params={"verbosity": -1},
        free_raw_data=False,
    )
    boosters = [
        lightgbm.train({**PARAMETERS, "seed": seed, "num_threads": n_threads}, data, N_TREES)
        for seed in seeds
    ]
    return Forest.of_boosters(boosters)


@dataclass(frozen=True, eq=False)
class TreeMember:
    """Boosted trees on numbers, their standard scores and ranks within queries, and blocks."""

    n_features: int
    forest: Forest | None = None
    factor: float = 0.0

    name, kernel, used_blocks = "trees", "lambdarank", "all"

    @staticmethod
    def inputs(rows: Any, features: Any) -> Array:
        """Return the features of the trees."""
        views = rows.view(["standard", "rank"], features)
        return np.hstack([rows.numbers, views, *rows.blocks.values()])

    @classmethod
    def held_out(
        cls,
        rows: Any,
        features: Any,
        target: Any,
        folds: int,
        rng: np.random.RandomState,
        n_threads: int,
    ) -> tuple[TreeMember, Array]:
        """Return the member and scores of each row by trees trained without its fold of queries."""
        X, codes = cls.inputs(rows, features), target.codes
        fold = rng.permutation(codes.max() + 1)[codes] % folds
        scores, seeds = np.empty(len(codes)), [rng.randint(2**31 - 1)]
        for k in range(folds):
            kept, out = target.take(fold != k), fold == k
            forest = train(X[fold != k], kept.y, kept.codes, kept.weights, seeds, n_threads)
            scores[out] = forest.predict(X[out])
        return cls(X.shape[1]), scores

    def fitted(self, choice: Any, rows: Any, features: Any, target: Any) -> TreeMember:
        """Train on the rows that were compared."""
        X, seeds = self.inputs(rows, features), list(range(N_SEEDS))
        forest = train(X, target.y, target.codes, target.weights, seeds, 0)
        return replace(self, forest=forest, factor=choice.factor)

    def predict(self, rows: Any, features: Any) -> Array:
        """Return the scores of rows, times the factor."""
        assert self.forest is not None
        X = self.inputs(rows, features)
        if X.shape[1] != self.n_features:
            raise ValueError(f"the trees have {self.n_features} features, not {X.shape[1]}")
        return self.factor * self.forest.predict(X)
