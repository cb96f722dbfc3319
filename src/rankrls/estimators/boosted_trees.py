"""Boosted trees as members of `AutoRanker`, trained by LightGBM."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.preprocessing.trees import Forest

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


def train(X: Array, graph: Any, seeds: list[int], n_threads: int) -> Forest:
    """Train models with LambdaMART on labels of a graph, one for each seed."""
    import lightgbm

    y, codes, weights = graph.scores[:, 0], graph.query_codes, graph.sample_weight
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
        graph: Any,
        folds: int,
        rng: np.random.RandomState,
        n_threads: int,
    ) -> tuple[TreeMember, Array]:
        """Return the member and scores of each row by trees trained without its fold of queries."""
        X, codes = cls.inputs(rows, features), graph.query_codes
        fold = rng.permutation(codes.max() + 1)[codes] % folds
        scores, seeds = np.empty(len(codes)), [rng.randint(2**31 - 1)]
        for k in range(folds):
            forest = train(X[fold != k], graph[fold != k], seeds, n_threads)
            scores[fold == k] = forest.predict(X[fold == k])
        return cls(X.shape[1]), scores

    def fitted(self, chosen: Any, rows: Any, features: Any, graph: Any) -> TreeMember:
        """Train on the rows that were compared."""
        forest = train(self.inputs(rows, features), graph, list(range(N_SEEDS)), 0)
        return replace(self, forest=forest, factor=chosen.factor)

    def predict(self, rows: Any, features: Any) -> Array:
        """Return the scores of rows, times the factor."""
        assert self.forest is not None
        X = self.inputs(rows, features)
        if X.shape[1] != self.n_features:
            raise ValueError(f"the trees have {self.n_features} features, not {X.shape[1]}")
        return self.factor * self.forest.predict(X)
