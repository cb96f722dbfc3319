"""The rankers of the comparison with peers, each with the grid that its parameters come from.

A method is a list of settings times a path of values that come cheaply once a setting is fitted:
alphas, or numbers of trees. `scores` fits one setting and predicts for every value of the path, so
that one function chooses for all of them (see peers.py).

Least squares and kernels get features of mean 0 and variance 1 (of the training rows, columns that
are constant there left out); trees get them as they are, but for the row that says otherwise.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from peer_data import Part
from sklearn.preprocessing import StandardScaler

from rankrls import AutoRanker, RankRLS, RankRLSCV, RankSVM, regularization_path
from rankrls.exceptions import IdColumnWarning
from rankrls.preprocessing import QueryScaler, TableEncoder

__all__ = ["METHODS", "Method", "standardise"]

Scores = Callable[[dict[str, Any], Sequence[Any], Part, Part], np.ndarray]

LINEAR_ALPHAS = tuple(2.0 ** np.arange(-6, 21, 2))
KERNEL_ALPHAS = (0.25, 4.0, 64.0)
BASIS_ALPHAS = tuple(2.0 ** np.arange(-4, 13, 2))
TREES = (25, 50, 100, 200, 400)
N_BASIS = 500


@dataclass(frozen=True)
class Method:
    """A ranker.

    Attributes
    ----------
    scores : function of (setting, values, training part, held-out part without its labels) that
        gives (n_values, n_rows) scores of the held-out rows
    package : what has to be installed
    settings : tuple of dict
    path : tuple of values, the last and cheapest dimension of the grid
    grid : the same in words
    full_kernel : whether it needs a matrix of rows × rows
    all_rows : whether the rows of the validation set are training rows, too
    """

    scores: Scores
    package: str
    grid: str
    settings: tuple[dict[str, Any], ...] = field(default=({},))
    path: tuple[Any, ...] = (None,)
    full_kernel: bool = False
    all_rows: bool = False


def encoded(train: Part, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Tables as AutoRanker's encoder makes them numeric; arrays as they are."""
    if not hasattr(X, "columns"):
        return train.X, X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdColumnWarning)
        encoder = TableEncoder().fit(train.X, qid=train.qid)
    return encoder.transform(train.X), encoder.transform(X)


def for_trees(train: Part, X: Any, *, texts: bool = False) -> tuple[Any, Any, list[str]]:
    """Tables with categories, entries of vectors in columns and, if asked for, texts.

    Text with more than one value for two rows is an id or a text; the names of texts are returned.
    """
    if not hasattr(X, "columns"):
        return train.X, X, []
    import pandas as pd

    frames, words = [{}, {}], []
    for name in X.columns:
        first = train.X[name].iloc[0]
        for frame, values in zip(frames, (train.X[name], X[name]), strict=True):
            if isinstance(first, np.ndarray):
                stacked = np.stack(values)
                frame |= {f"{name}_{k}": stacked[:, k] for k in range(stacked.shape[1])}
            elif pd.api.types.is_numeric_dtype(values):
                frame[name] = values.to_numpy(np.float64)
            elif train.X[name].str.split().str.len().mean() >= 2 and " " in str(first):
                if texts:
                    words = list(dict.fromkeys([*words, name]))
                    frame[name] = values.fillna("").astype(str).to_numpy(object)
            elif train.X[name].nunique() <= len(train.X) / 2:
                levels = sorted(train.X[name].dropna().unique())
                known = values.where(values.isin(levels))
                frame[name] = pd.Categorical(known, categories=levels)
    return pd.DataFrame(frames[0]), pd.DataFrame(frames[1]), words


def standardise(train: Part, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Columns of mean 0 and variance 1, constant ones left out."""
    A, B = encoded(train, X)
    varied = np.ptp(A, axis=0) > 0
    scaler = StandardScaler().fit(A[:, varied])
    return scaler.transform(A[:, varied]), scaler.transform(B[:, varied])


def _threads() -> int:
    return int(os.environ.get("OMP_NUM_THREADS", "1"))


def _gamma(setting: dict[str, Any], A: np.ndarray) -> float:
    return setting["gamma·n"] / A.shape[1]


def linear(setting, alphas, train: Part, held: Part):
    A, B = standardise(train, held.X)
    ranker = RankRLS(query_weighting="size")
    path = regularization_path(ranker, A, train.y, qid=train.qid, alphas=alphas)
    return path.predict(B)


def linear_cv(setting, _, train: Part, held: Part):
    """alpha by leave-query-out on the training rows: no held-out set."""
    A, B = standardise(train, held.X)
    ranker = RankRLSCV(LINEAR_ALPHAS, query_weighting="size", **setting)
    return ranker.fit(A, train.y, qid=train.qid).predict(B)[None]


def support(setting, alphas, train: Part, held: Part):
    A, B = standardise(train, held.X)
    ranker = RankSVM(query_weighting="size", tol=1e-3)
    return regularization_path(ranker, A, train.y, qid=train.qid, alphas=alphas).predict(B)


def rbf(setting, alphas, train: Part, held: Part):
    A, B = standardise(train, held.X)
    options = {"kernel": "rbf", "gamma": _gamma(setting, A), "query_weighting": "size"}
    return np.stack(
        [
            RankRLS(alpha, solver="dual", **options).fit(A, train.y, qid=train.qid).predict(B)
            for alpha in alphas
        ]
    )


def nystroem(setting, alphas, train: Part, held: Part):
    A, B = standardise(train, held.X)
    options = {"kernel": "rbf", "gamma": _gamma(setting, A), "query_weighting": "size"}
    ranker = RankRLS(basis=min(N_BASIS, len(A)), random_state=0, **options)
    return regularization_path(ranker, A, train.y, qid=train.qid, alphas=alphas).predict(B)


def ridge(setting, alphas, train: Part, held: Part):
    from sklearn.linear_model import Ridge

    A, B = standardise(train, held.X)
    return np.stack([Ridge(alpha).fit(A, train.y).predict(B) for alpha in alphas])


def kernel_ridge(setting, alphas, train: Part, held: Part):
    from sklearn.kernel_ridge import KernelRidge

    A, B = standardise(train, held.X)
    y = train.y - train.y.mean()  # it has no intercept
    options = {"kernel": "rbf", "gamma": _gamma(setting, A)}
    return np.stack([KernelRidge(alpha=a, **options).fit(A, y).predict(B) for a in alphas])


def nystroem_ridge(setting, alphas, train: Part, held: Part):
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge

    A, B = standardise(train, held.X)
    basis = Nystroem(gamma=_gamma(setting, A), n_components=min(N_BASIS, len(A)), random_state=0)
    A, B = basis.fit_transform(A), basis.transform(B)
    return np.stack([Ridge(alpha).fit(A, train.y).predict(B) for alpha in alphas])


def rlscore_linear(setting, alphas, train: Part, held: Part):
    from rlscore.learner import QueryRankRLS

    A, B = standardise(train, held.X)
    return _rlscore(QueryRankRLS(A, train.y, train.qid, regparam=alphas[0]), alphas, B)


def rlscore_basis(setting, alphas, train: Part, held: Part):
    from rlscore.learner import QueryRankRLS

    A, B = standardise(train, held.X)
    basis = np.random.default_rng(0).choice(len(A), min(N_BASIS, len(A)), replace=False)
    options = {"kernel": "GaussianKernel", "gamma": _gamma(setting, A), "basis_vectors": A[basis]}
    return _rlscore(QueryRankRLS(A, train.y, train.qid, regparam=alphas[0], **options), alphas, B)


def _rlscore(learner, alphas, B):
    scores = []
    for alpha in alphas:
        learner.solve(alpha)
        scores.append(np.asarray(learner.predict(B)).ravel())
    return np.stack(scores)


def auto(setting, _, train: Part, held: Part):
    """Raw features; members by leave-query-out on the training rows: no held-out set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdColumnWarning)
        ranker = AutoRanker(random_state=0, **setting).fit(train.X, train.y, qid=train.qid)
    return ranker.predict(held.X, qid=held.qid)[None]


def lambdarank(setting, trees, train: Part, held: Part):
    import lightgbm

    sizes, (A, B, _) = np.unique(train.qid, return_counts=True)[1], for_trees(train, held.X)
    ranker = lightgbm.LGBMRanker(
        n_estimators=max(trees), n_jobs=_threads(), verbosity=-1, **{"random_state": 0, **setting}
    ).fit(A, train.y, group=sizes)
    return np.stack([ranker.predict(B, num_iteration=n) for n in trees])


def xgboost_ndcg(setting, trees, train: Part, held: Part):
    import xgboost

    A, B, _ = for_trees(train, held.X)
    ranker = xgboost.XGBRanker(
        objective="rank:ndcg",
        tree_method="hist",
        enable_categorical=True,
        n_estimators=max(trees),
        n_jobs=_threads(),
        **{"random_state": 0, **setting},
    ).fit(A, train.y, qid=train.qid)
    return np.stack([ranker.predict(B, iteration_range=(0, n)) for n in trees])


def catboost_yetirank(setting, trees, train: Part, held: Part):
    import catboost

    A, B, texts = for_trees(train, held.X, texts=True)
    columns = {}
    if hasattr(A, "columns"):
        categories = [name for name in A if A[name].dtype == "category"]
        columns = {"cat_features": categories, "text_features": texts}
        A, B = (
            one.assign(**{name: one[name].astype(object).fillna("") for name in categories})
            for one in (A, B)
        )
    ranker = catboost.CatBoost(
        {
            "loss_function": "YetiRank",
            "iterations": max(trees),
            "thread_count": _threads(),
            "verbose": False,
            "allow_writing_files": False,
            "random_seed": setting.get("random_state", 0),
            **{name: value for name, value in setting.items() if name != "random_state"},
        }
    ).fit(catboost.Pool(A, train.y, group_id=train.qid, **columns))
    pool = catboost.Pool(B, group_id=held.qid, **columns)
    return np.stack([ranker.predict(pool, ntree_end=n) for n in trees])


def with_views(boosted: Scores, **drawn: Any) -> Scores:
    """What AutoRanker has, for trees: features within the query beside the raw ones, ten models.

    (Logarithms and quantiles would not change a tree.) The ten differ by their seeds, and by the
    rows and features that are ``drawn`` for each tree; parameters are chosen with one of them.
    """

    def scores(setting, trees, train: Part, held: Part):
        A, B = (
            Part(
                np.hstack(
                    [X]
                    + [
                        QueryScaler(method).fit_transform(X, qid=part.qid)
                        for method in ("standard", "rank")
                    ]
                ),
                part.y,
                part.qid,
            )
            for X, part in zip(encoded(train, held.X), (train, held), strict=True)
        )
        found = [
            boosted({**setting, **drawn, "random_state": seed}, trees, A, B)
            for seed in range(10 if len(trees) == 1 else 1)
        ]
        return np.mean(
            [QueryScaler("standard").fit_transform(one.T, qid=held.qid).T for one in found],
            axis=0,
        )

    return scores


def _settings(**values) -> tuple[dict[str, Any], ...]:
    """Every combination."""
    combinations: list[dict[str, Any]] = [{}]
    for name, options in values.items():
        combinations = [{**one, name: option} for one in combinations for option in options]
    return tuple(combinations)


_LINEAR = "alpha 2^-6, 2^-4, … 2^20"
_KERNEL = "gamma 0.1/n, 1/n; alpha 1/4, 4, 64"
_BASIS = f"{N_BASIS} basis vectors; gamma 0.1/n, 0.3/n, 1/n; alpha 2^-4, 2^-2, … 2^12"
_GAMMAS, _MORE_GAMMAS = _settings(gamma·n=(0.1, 1.0)), _settings(gamma·n=(0.1, 0.3, 1.0))

_TREES = (
    "num_leaves 7, 31; min_child_samples 20, 100; learning_rate 0.05; 25, 50, 100, 200, 400 trees"
)
_LEAVES = _settings(num_leaves=(7, 31), min_child_samples=(20, 100), learning_rate=(0.05,))

_XGBOOST_GRID = (
    "max_depth 3, 6; min_child_weight 1, 10; learning_rate 0.05; 25, 50, 100, 200, 400 trees"
)
_CATBOOST_GRID = "depth 4, 6; l2_leaf_reg 3, 30; learning_rate 0.05; 25, 50, 100, 200, 400 trees"
_DEPTHS = _settings(max_depth=(3, 6), min_child_weight=(1, 10), learning_rate=(0.05,))
_CATBOOST = _settings(depth=(4, 6), l2_leaf_reg=(3, 30), learning_rate=(0.05,))
_AUTO = "its own: 9 views × 3 losses × 8 alphas by leave-query-out, NDCG@10, mean of 6"
_TEN = "; raw features and, within the query, scaled ones and ranks; mean of ten models"

METHODS = {
    "rankrls RankRLS": Method(linear, "rankrls", _LINEAR, path=LINEAR_ALPHAS),
    "rankrls RankRLSCV": Method(
        linear_cv,
        "rankrls",
        f"{_LINEAR}, by leave-query-out in the training rows, pairwise accuracy",
    ),
    "rankrls RankRLSCV, NDCG@10": Method(
        linear_cv,
        "rankrls",
        f"{_LINEAR}, by leave-query-out in the training rows, NDCG@10",
        _settings(scoring=("ndcg@10",)),
    ),
    "rankrls RankSVM": Method(
        support, "rankrls", "alpha 2^-4, 2^-2, … 2^14", path=tuple(2.0 ** np.arange(-4, 15, 2))
    ),
    "rankrls RankRLS, RBF": Method(rbf, "rankrls", _KERNEL, _GAMMAS, KERNEL_ALPHAS, True),
    "rankrls RankRLS, RBF, Nyström": Method(
        nystroem, "rankrls", _BASIS, _MORE_GAMMAS, BASIS_ALPHAS
    ),
    "rankrls AutoRanker": Method(auto, "rankrls", _AUTO),
    "rankrls AutoRanker, quick": Method(
        auto, "rankrls", "effort='quick'", _settings(effort=("quick",))
    ),
    "rankrls AutoRanker, trees": Method(
        auto, "lightgbm", f"{_AUTO}; with trees of LightGBM", _settings(trees=(True,))
    ),
    "rankrls AutoRanker, validation rows too": Method(
        auto, "rankrls", f"{_AUTO}; also fitted to the rows of the validation set", all_rows=True
    ),
    "RLScore QueryRankRLS": Method(rlscore_linear, "rlscore", _LINEAR, path=LINEAR_ALPHAS),
    "RLScore QueryRankRLS, RBF, basis": Method(
        rlscore_basis, "rlscore", _BASIS, _MORE_GAMMAS, BASIS_ALPHAS
    ),
    "scikit-learn Ridge": Method(ridge, "sklearn", _LINEAR, path=LINEAR_ALPHAS),
    "scikit-learn KernelRidge, RBF": Method(
        kernel_ridge, "sklearn", _KERNEL, _GAMMAS, KERNEL_ALPHAS, True
    ),
    "scikit-learn Nystroem + Ridge, RBF": Method(
        nystroem_ridge, "sklearn", _BASIS, _MORE_GAMMAS, BASIS_ALPHAS
    ),
    "LightGBM defaults": Method(lambdarank, "lightgbm", "none; 100 trees", path=(100,)),
    "LightGBM lambdarank": Method(lambdarank, "lightgbm", _TREES, _LEAVES, TREES),
    "LightGBM lambdarank, views, ten": Method(
        with_views(lambdarank, subsample=0.8, subsample_freq=1, colsample_bytree=0.8),
        "lightgbm",
        _TREES + _TEN,
        _LEAVES,
        TREES,
    ),
    "XGBoost rank:ndcg": Method(xgboost_ndcg, "xgboost", _XGBOOST_GRID, _DEPTHS, TREES),
    "XGBoost rank:ndcg, views, ten": Method(
        with_views(xgboost_ndcg, subsample=0.8, colsample_bytree=0.8),
        "xgboost",
        _XGBOOST_GRID + _TEN,
        _DEPTHS,
        TREES,
    ),
    "CatBoost YetiRank": Method(catboost_yetirank, "catboost", _CATBOOST_GRID, _CATBOOST, TREES),
    "CatBoost YetiRank, views, ten": Method(
        with_views(catboost_yetirank, rsm=0.8), "catboost", _CATBOOST_GRID + _TEN, _CATBOOST, TREES
    ),
}
