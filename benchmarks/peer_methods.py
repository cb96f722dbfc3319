"""The rankers of the comparison with peers, each with the grid that its parameters come from.

A method is a list of settings times a path of values that come cheaply once a setting is fitted:
alphas, or numbers of trees. `scores` fits one setting and predicts for every value of the path, so
that one function chooses for all of them (see peers.py).

Least squares get features of mean 0 and variance 1 (of the training rows, columns that are constant
there left out); trees get them as they are, but for the rows that say otherwise.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from peer_data import Part
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from rankrls import AutoRanker, RankRLS, RankRLSCV, RankSVM, regularization_path
from rankrls.exceptions import IdColumnWarning
from rankrls.preprocessing import QueryScaler, TableEncoder

Scores = Callable[[dict[str, Any], Sequence[Any], Part, Part], np.ndarray]

ALPHAS = tuple(2.0 ** np.arange(-6, 21, 2))
TREES = (25, 50, 100, 200, 400)


@dataclass(frozen=True)
class Method:
    """A ranker: the package that it needs, a function, settings, and the path of values.

    The function of (setting, values, training part, held-out part without its labels) gives
    (n_values, n_rows) scores of the held-out rows.
    """

    package: str
    scores: Scores
    settings: tuple[dict[str, Any], ...] = ({},)
    path: tuple[Any, ...] = (None,)


def grid(**values: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """Every combination."""
    return tuple(dict(zip(values, one, strict=True)) for one in itertools.product(*values.values()))


def encoded(train: Part, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Tables as AutoRanker's encoder makes them numeric; arrays as they are."""
    if not hasattr(X, "columns"):
        return train.X, X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdColumnWarning)
        encoder = TableEncoder().fit(train.X, qid=train.qid)
    return encoder.transform(train.X), encoder.transform(X)


def for_trees(train: Part, X: Any) -> tuple[Any, Any, list[str]]:
    """Tables with categories, entries of vectors in columns, and texts, whose names are returned.

    Words with more than one value for two rows are ids, and left out.
    """
    if not hasattr(X, "columns"):
        return train.X, X, []
    import pandas as pd

    frames, texts = [{}, {}], []
    for name in X.columns:
        first = train.X[name].iloc[0]
        for frame, values in zip(frames, (train.X[name], X[name]), strict=True):
            if isinstance(first, np.ndarray):
                stacked = np.stack(values)
                frame |= {f"{name}_{k}": stacked[:, k] for k in range(stacked.shape[1])}
            elif pd.api.types.is_numeric_dtype(values):
                frame[name] = values.to_numpy(np.float64)
            elif train.X[name].str.split().str.len().mean() >= 2 and " " in str(first):
                texts = list(dict.fromkeys([*texts, name]))
                frame[name] = values.fillna("").astype(str).to_numpy(object)
            elif train.X[name].nunique() <= len(train.X) / 2:
                levels = sorted(train.X[name].dropna().unique())
                known = values.where(values.isin(levels))
                frame[name] = pd.Categorical(known, categories=levels)
    return pd.DataFrame(frames[0]), pd.DataFrame(frames[1]), texts


def without_texts(train: Part, X: Any) -> tuple[Any, Any]:
    A, B, texts = for_trees(train, X)
    return (A.drop(columns=texts), B.drop(columns=texts)) if texts else (A, B)


def standardised(fit: Callable[..., np.ndarray]) -> Scores:
    """A method of (setting, values, A, y, qid, B) with columns of mean 0 and variance 1."""

    def scores(setting: Any, values: Any, train: Part, held: Part) -> np.ndarray:
        A, B = encoded(train, held.X)
        varied = np.ptp(A, axis=0) > 0
        scaler = StandardScaler().fit(A[:, varied])
        A, B = scaler.transform(A[:, varied]), scaler.transform(B[:, varied])
        return fit(setting, values, A, train.y, train.qid, B)

    return scores


def path_of(ranker: Any) -> Scores:
    return standardised(
        lambda _, alphas, A, y, qid, B: regularization_path(
            ranker, A, y, qid=qid, alphas=alphas
        ).predict(B)
    )


@standardised
def linear_cv(setting: Any, _: Any, A: Any, y: Any, qid: Any, B: Any) -> np.ndarray:
    """alpha by leave-query-out on the training rows: no held-out set."""
    ranker = RankRLSCV(ALPHAS, query_weighting="size", **setting)
    return ranker.fit(A, y, qid=qid).predict(B)[None]


@standardised
def ridge(_: Any, alphas: Any, A: Any, y: Any, qid: Any, B: Any) -> np.ndarray:
    return np.stack([Ridge(alpha).fit(A, y).predict(B) for alpha in alphas])


@standardised
def rlscore(_: Any, alphas: Any, A: Any, y: Any, qid: Any, B: Any) -> np.ndarray:
    from rlscore.learner import QueryRankRLS

    learner, scores = QueryRankRLS(A, y, qid, regparam=alphas[0]), []
    for alpha in alphas:
        learner.solve(alpha)
        scores.append(np.asarray(learner.predict(B)).ravel())
    return np.stack(scores)


def auto(setting: Any, _: Any, train: Part, held: Part) -> np.ndarray:
    """Raw features; members by leave-query-out on the training rows: no held-out set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdColumnWarning)
        ranker = AutoRanker(random_state=0, **setting).fit(train.X, train.y, qid=train.qid)
    return ranker.predict(held.X, qid=held.qid)[None]


def lambdarank(setting: Any, trees: Any, train: Part, held: Part) -> np.ndarray:
    import lightgbm

    A, B = without_texts(train, held.X)
    ranker = lightgbm.LGBMRanker(
        n_estimators=max(trees), n_jobs=1, verbosity=-1, **{"random_state": 0, **setting}
    ).fit(A, train.y, group=np.unique(train.qid, return_counts=True)[1])
    return np.stack([ranker.predict(B, num_iteration=n) for n in trees])


def xgboost_ndcg(setting: Any, trees: Any, train: Part, held: Part) -> np.ndarray:
    import xgboost

    A, B = without_texts(train, held.X)
    options = {"objective": "rank:ndcg", "tree_method": "hist", "enable_categorical": True}
    options |= {"n_estimators": max(trees), "n_jobs": 1, "random_state": 0}
    ranker = xgboost.XGBRanker(**options | setting).fit(A, train.y, qid=train.qid)
    return np.stack([ranker.predict(B, iteration_range=(0, n)) for n in trees])


def yetirank(setting: Any, trees: Any, train: Part, held: Part) -> np.ndarray:
    import catboost

    A, B, texts = for_trees(train, held.X)
    columns = {}
    if hasattr(A, "columns"):
        categories = [name for name in A if A[name].dtype == "category"]
        columns = {"cat_features": categories, "text_features": texts}
        A, B = (
            one.assign(**{name: one[name].astype(object).fillna("") for name in categories})
            for one in (A, B)
        )
    options = {"loss_function": "YetiRank", "iterations": max(trees), "thread_count": 1}
    options |= {"verbose": False, "allow_writing_files": False, "random_seed": 0}
    ranker = catboost.CatBoost(options | setting)
    ranker.fit(catboost.Pool(A, train.y, group_id=train.qid, **columns))
    pool = catboost.Pool(B, group_id=held.qid, **columns)
    return np.stack([ranker.predict(pool, ntree_end=n) for n in trees])


def on_encoded(boosted: Scores) -> Scores:
    """Trees on the columns of AutoRanker's TableEncoder."""

    def scores(setting: Any, trees: Any, train: Part, held: Part) -> np.ndarray:
        A, B = encoded(train, held.X)
        parts = Part(A, train.y, train.qid), Part(B, held.y, held.qid)
        return boosted(setting, trees, *parts)

    return scores


def with_views(boosted: Scores, **drawn: Any) -> Scores:
    """What AutoRanker has, for trees: features within the query beside the raw ones, ten models.

    (Logarithms and quantiles would not change a tree.) The ten differ by their seeds, and by the
    rows and features that are ``drawn`` for each tree; parameters are chosen with one of them.
    """

    def views(X: np.ndarray, part: Part) -> Part:
        scaled = (QueryScaler(how).fit_transform(X, qid=part.qid) for how in ("standard", "rank"))
        return Part(np.hstack([X, *scaled]), part.y, part.qid)

    def scores(setting: Any, trees: Any, train: Part, held: Part) -> np.ndarray:
        A, B = map(views, encoded(train, held.X), (train, held))
        found = [
            boosted({**setting, **drawn, "random_state": seed}, trees, A, B)
            for seed in range(10 if len(trees) == 1 else 1)
        ]
        within = QueryScaler("standard")
        return np.mean([within.fit_transform(one.T, qid=held.qid).T for one in found], axis=0)

    return scores


SIZE = {"query_weighting": "size"}
LEAVES = grid(num_leaves=(7, 31), min_child_samples=(20, 100), learning_rate=(0.05,))
DEPTHS = grid(max_depth=(3, 6), min_child_weight=(1, 10), learning_rate=(0.05,))
CATBOOST = grid(depth=(4, 6), l2_leaf_reg=(3, 30), learning_rate=(0.05,))
SUBSAMPLE = {"subsample": 0.8, "colsample_bytree": 0.8}
TEN_LIGHTGBM = with_views(lambdarank, subsample_freq=1, **SUBSAMPLE)

METHODS = {
    "rankrls RankRLS": Method("rankrls", path_of(RankRLS(**SIZE)), path=ALPHAS),
    "rankrls RankRLSCV": Method("rankrls", linear_cv),
    "rankrls RankRLSCV, NDCG@10": Method("rankrls", linear_cv, grid(scoring=["ndcg@10"])),
    "rankrls RankSVM": Method("rankrls", path_of(RankSVM(tol=1e-3, **SIZE)), path=ALPHAS[1:11]),
    "rankrls AutoRanker": Method("rankrls", auto),
    "rankrls AutoRanker, quick": Method("rankrls", auto, grid(effort=["quick"])),
    "rankrls AutoRanker, trees": Method("lightgbm", auto, grid(trees=[True])),
    "RLScore QueryRankRLS": Method("rlscore", rlscore, path=ALPHAS),
    "scikit-learn Ridge": Method("sklearn", ridge, path=ALPHAS),
    "LightGBM defaults": Method("lightgbm", lambdarank, path=(100,)),
    "LightGBM defaults, TableEncoder": Method("lightgbm", on_encoded(lambdarank), path=(100,)),
    "LightGBM lambdarank": Method("lightgbm", lambdarank, LEAVES, TREES),
    "LightGBM lambdarank, views, ten": Method("lightgbm", TEN_LIGHTGBM, LEAVES, TREES),
    "XGBoost rank:ndcg": Method("xgboost", xgboost_ndcg, DEPTHS, TREES),
    "XGBoost rank:ndcg, views, ten": Method(
        "xgboost", with_views(xgboost_ndcg, **SUBSAMPLE), DEPTHS, TREES
    ),
    "CatBoost YetiRank": Method("catboost", yetirank, CATBOOST, TREES),
}
