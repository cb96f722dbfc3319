"""A recipe for linear and kernel RankRLS against boosted trees, written down before it was tested.

1. Four views of the features: logarithms (sign(x) log(1 + |x|), mean 0 and variance 1); quantiles
   of the training rows, mapped to a normal law; ranks within the query; and logarithms, features
   scaled within the query and ranks within the query side by side. No view uses a label.
2. Three losses: magnitude of y, magnitude of the gains 2^y − 1, and unit; each with queries
   weighted by size and by query. For each view and loss a linear ranker; for the two magnitudes
   also RBF kernels with 300 basis vectors and gamma 0.1/n or 0.3/n, weighted by size.
3. Every alpha of a grid, by exact leave-query-out on the training rows, scored by NDCG@10.
4. The ten best rankers, each with its best alpha, are fitted to all training rows. Their scores
   are standardised within each query and averaged.

Nothing is chosen by a validation or a test set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from peer_data import Part
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from rankrls import RankRLS
from rankrls.metrics import ndcg
from rankrls.model_selection import leave_query_out_predict
from rankrls.preprocessing import QueryScaler

__all__ = ["GRID", "candidates", "recipe"]

ALPHAS = 2.0 ** np.arange(-6, 21, 2)
N_BASIS = 300
N_BEST = 10
GRID = (
    f"40 losses, views and kernels × 14 alphas by leave-query-out, mean of the best {N_BEST} "
    "(peer_recipe.py)"
)


def views(train: Part, held: Part) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(name, training rows, held-out rows) of every view."""
    varied = np.ptp(train.X, axis=0) > 0
    parts = [(part.X[:, varied], part.qid) for part in (train, held)]
    quantiles = QuantileTransformer(
        n_quantiles=500, output_distribution="normal", subsample=None, random_state=0
    ).fit(parts[0][0])
    log, quantile, rank, scaled = (
        _standard(*(view(X, qid) for X, qid in parts))
        for view in (
            lambda X, qid: np.sign(X) * np.log1p(np.abs(X)),
            lambda X, qid: quantiles.transform(X),
            query_ranks,
            lambda X, qid: QueryScaler("standard").fit_transform(X, qid=qid),
        )
    )
    yield "log", *log
    yield "quantile", *quantile
    yield "rank", *rank
    yield "all", *(np.hstack(sides) for sides in zip(log, scaled, rank, strict=True))


def _standard(A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scaler = StandardScaler().fit(A)
    return scaler.transform(A), scaler.transform(B)


def query_ranks(X: np.ndarray, qid: np.ndarray) -> np.ndarray:
    """Mean ranks of every feature within every query, from −½ to ½."""
    ranks = np.empty_like(X)
    for query in np.unique(qid):
        rows = np.flatnonzero(qid == query)
        ranks[rows] = (rankdata(X[rows], axis=0) - (len(rows) + 1) / 2) / len(rows)
    return ranks


def rankers(n_features: int) -> Iterator[tuple[str, RankRLS, str, np.ndarray]]:
    """(name, ranker, label, alphas): losses and kernels for a view of so many features."""
    losses = (("magnitude", "y"), ("magnitude", "gain"), ("unit", "y"))
    for cost, label in losses:
        yield f"{cost} {label} size", RankRLS(cost=cost, query_weighting="size"), label, ALPHAS
        # a query of m rows weighs 1/m² of its pairs instead of 1/m: the grid moves with it
        ranker = RankRLS(cost=cost, query_weighting="query")
        yield f"{cost} {label} query", ranker, label, ALPHAS / 64
    for factor in (0.1, 0.3):
        options = {"kernel": "rbf", "gamma": factor / n_features, "query_weighting": "size"}
        for cost, label in losses[:2]:
            ranker = RankRLS(basis=N_BASIS, random_state=0, **options)
            yield f"{cost} {label} size rbf {factor}", ranker, label, ALPHAS


def _labels(train: Part, label: str) -> np.ndarray:
    return 2.0**train.y - 1.0 if label == "gain" else train.y


def candidates(train: Part, held: Part) -> Iterator[dict[str, Any]]:
    """Every ranker with its best alpha, its leave-query-out scores and the rows to fit it with."""
    for view, A, B in views(train, held):
        for name, ranker, label, alphas in rankers(A.shape[1]):
            y = _labels(train, label)
            out = leave_query_out_predict(ranker, A, y, qid=train.qid, alphas=alphas)
            values = [ndcg(train.y, s, qid=train.qid, k=10, undefined="skip") for s in out]
            best = int(np.argmax(values))
            yield {
                "name": f"{view}: {name}",
                "value": values[best],
                "ranker": clone(ranker).set_params(alpha=alphas[best]),
                "left_out": out[best],
                "rows": (A, y, B),
            }


def recipe(setting: dict[str, Any], values: Any, train: Part, held: Part) -> np.ndarray:
    """Scores of the held-out rows, shape (1, n_rows)."""
    best = sorted(candidates(train, held), key=lambda one: -one["value"])[:N_BEST]
    scores = []
    for one in best:
        A, y, B = one["rows"]
        score = one["ranker"].fit(A, y, qid=train.qid).predict(B)
        scores.append(standardised(score, held.qid))
    return np.mean(scores, axis=0)[None]


def standardised(score: np.ndarray, qid: np.ndarray) -> np.ndarray:
    """Mean 0 and variance 1 within every query."""
    return QueryScaler("standard").fit_transform(score[:, None], qid=qid)[:, 0]
