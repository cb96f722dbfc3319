"""``rankrls.dask.RankRLS`` and ``RankRLSCV``, whose training rows stay on the workers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NoReturn

import dask.array as da
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls import estimators
from rankrls._calls import unchanged_on_error
from rankrls.dask import _partitions
from rankrls.dask._fit import check_columns, fit_cv, fit_ranker
from rankrls.dask._tasks import compute, layer, shared
from rankrls.dask._whole_queries import load
from rankrls.estimators.auto import AutoRanker
from rankrls.estimators.ranker import Preferences, graph_accuracy, require_preferences
from rankrls.estimators.rankrls import RidgeRanker
from rankrls.estimators.scalers import SCALERS, taken_apart

__all__ = ["RankRLS", "RankRLSCV", "fit"]

Array = NDArray[Any]


def fit(estimator: Any, X: Any, y: Any, *, qid: Any = None, sample_weight: Any = None) -> Any:
    """Fit a ranker, or a pipeline of scaler and ranker, to rows on the workers of a cluster.

    The scaler is fitted in the same pass over X as the sums of the ranker, which are converted to
    its scale afterwards. `sklearn.pipeline.Pipeline` itself would gather X to scale it.

    Parameters
    ----------
    estimator : rankrls.RankRLS, rankrls.RankRLSCV, Pipeline that ends in one, or rankrls.AutoRanker
        The ranker may be preceded by one StandardScaler, MinMaxScaler or MaxAbsScaler, which is
        fitted to all rows, without weights. It then needs the linear kernel and solver "primal".
        An AutoRanker is fitted by `AutoRanker.fit_stream`: partitions come to the client, one after
        the other and twice. They must be sorted by query.
    X, y, qid, sample_weight
        As for ``rankrls.dask.RankRLS``.

    Returns
    -------
    estimator
        The fitted estimator, which does not need Dask: it predicts rows in memory, and can be
        saved, exported and updated by `rankrls.streaming.partial_fit`. It equals ``fit`` to all
        rows, for `RankRLSCV` with the same folds and alphas (see ``rankrls.dask.RankRLSCV``; the
        default grid may be extended to other ends, as that of `RankRLSCV.fit_stream`). With
        `RankRLSCV`, the scaler is also fitted to held-out rows (their features, not their labels).
        If the call fails, the estimator does not change.

    Examples
    --------
    >>> import dask.array as da
    >>> import rankrls.dask
    >>> from rankrls import RankRLSCV
    >>> from rankrls.datasets import make_ranking
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y, qid = make_ranking(n_queries=50, random_state=0, return_X_y_qid=True)
    >>> rows = da.from_array(X, chunks=(100, -1))
    >>> pipeline = make_pipeline(StandardScaler(), RankRLSCV(cv=5, random_state=0))
    >>> model = rankrls.dask.fit(pipeline, rows, y, qid=qid)
    >>> model.predict(X[:2]).shape
    (2,)
    >>> scores = rows.map_blocks(model.predict, drop_axis=1, meta=y[:0])  # on the workers
    >>> scores.compute().shape == y.shape
    True
    """
    if isinstance(estimator, AutoRanker):
        return estimator.fit_stream(partial(_batches, X, y, qid, sample_weight))
    ranker, steps = taken_apart(estimator)
    if isinstance(ranker, DaskRanker):
        raise ValueError(
            f"the fitted estimator is in memory: use rankrls.{type(ranker).__name__} instead of "
            f"rankrls.dask.{type(ranker).__name__}"
        )
    if steps and not (len(steps) == 1 and isinstance(steps[0], SCALERS)):
        other = next(step for step in steps if not isinstance(step, SCALERS))
        raise ValueError(
            f"{type(other).__name__} before the ranker: rankrls.dask.fit takes one StandardScaler, "
            "MinMaxScaler or MaxAbsScaler; transform the partitions before, as by X.fillna(0)"
        )
    scaler = steps[0] if steps else None
    with unchanged_on_error(ranker):
        new = clone(ranker)
        work = fit_cv if isinstance(ranker, estimators.RankRLSCV) else fit_ranker
        fitted = work(new, X, y, qid, sample_weight, scaler=scaler)
        if fitted is not None:
            like = _partitions.like(X)
            validate_data(fitted, like, skip_check_array=True)
            new.__dict__.pop("feature_names_in_", None)
            validate_data(new, fitted.transform(like), skip_check_array=True)
            scaler.__dict__ = fitted.__dict__
        ranker.__dict__ = new.__dict__
    return estimator


def _batches(X: Any, y: Any, qid: Any, sample_weight: Any) -> Iterator[dict[str, Any]]:
    """Generate the partitions, one after the other."""
    rows = _partitions.features(X)[0]
    parts = (rows, *_partitions.preferences(X, rows, y, qid, sample_weight)[:3])
    names = ("data", "target", "qid", "sample_weight")
    given = {name: part for name, part in zip(names, parts, strict=True) if part is not None}
    for blocks in zip(*(part.blocks for part in given.values()), strict=True):
        batch = dict(zip(given, compute(blocks), strict=True))
        labels = None if parts[2] is None else parts[2].labels
        if labels is not None:  # qid in memory has become codes
            batch["qid"] = [labels[code] for code in batch["qid"]]
        yield batch


def _refuse(given: dict[str, Any]) -> None:
    """Raise an error if arguments of the local ``fit`` are given that are not supported."""
    for name, value in given.items():
        if name not in ("pairs", "magnitude", "pair_weight", "pair_features", "groups"):
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")
        if value is not None:
            raise ValueError(
                f"{name}: given pairs may join rows of different partitions, which "
                "rankrls.dask does not bring together: give scores y and a qid, or fit "
                "rankrls.RankRLS on the rows that have pairs"
            )


class DaskRanker(RidgeRanker):
    """Base class of estimators whose training rows stay on the workers."""

    def _why_not_incremental(self) -> str:
        return (
            f"rankrls.dask.{type(self).__name__} is fitted to all partitions at once; call "
            "to_local() on the fitted model and go on with that, or use "
            f"rankrls.{type(self).__name__}"
        )

    def to_local(self) -> Any:
        """Convert to an estimator of `rankrls` that does not need Dask.

        The returned estimator supports ``partial_fit`` and ``forget`` with rows in memory, unless
        it was fitted with solver "cg".

        Returns
        -------
        rankrls.RankRLS or rankrls.RankRLSCV
        """
        check_is_fitted(self)
        local = getattr(estimators, type(self).__name__)(**self.get_params(deep=False))
        fitted = {name: value for name, value in vars(self).items() if name not in vars(local)}
        local.__dict__.update(fitted)
        return local

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict scores; higher is preferred.

        Parameters
        ----------
        X : dask array or data frame, or array-like, of shape (n, n_features)
        return_std : bool, default=False
            Whether to also return the posterior standard deviation of the scores.

        Returns
        -------
        dask array of shape (n,) or (n, n_outputs), or a pair of them
            Lazy, with the partitions of X. If X is local, the result is computed immediately.
        """
        if not _partitions.is_lazy(X):
            return super().predict(X, return_std)
        check_is_fitted(self)
        check_columns(self, X)
        scores = self._predict_lazily(X)
        return (scores, self._predict_lazily(X, deviation=True)) if return_std else scores

    def _predict_lazily(self, X: Any, *, deviation: bool = False) -> da.Array:
        model, there = self._model, shared(self._model)
        rows, dtype = _partitions.features(X)
        predict = partial(_predict_block, int(self.n_features_in_), dtype, deviation)
        calls = [(partial(predict, i), block, there) for i, block in enumerate(rows.blocks)]
        first = layer("predict", calls, tail=(0,))[0]
        coefficients = model.coef if model.coef is not None else model.dual_coef
        result = np.dtype(np.float64) if deviation else np.result_type(dtype, coefficients.dtype)
        chunks = (rows.lengths or (np.nan,) * len(rows), (model.n_outputs,))
        scores = da.Array(first.dask, first.key[0], chunks, dtype=result)
        return scores[:, 0] if self._flat else scores

    def score(
        self, X: Any, y: Any = None, qid: Any = None, sample_weight: Any = None, **judgements: Any
    ) -> float:
        """Return the pairwise accuracy, averaged over the queries that have a pair.

        Parameters
        ----------
        X, y, qid, sample_weight
            As for ``fit``; all must be local if X is. qid is required if ``fit`` was given qid.
            The predictions and the other arrays are gathered, about 32 bytes for each row.
        **judgements
            pairs, magnitude and pair_weight; only if X is local.

        Returns
        -------
        float
        """
        if not _partitions.is_lazy(X):
            return super().score(X, y, qid, sample_weight, **judgements)
        if judgements:
            raise ValueError(
                f"{', '.join(judgements)}: given pairs name rows of a local X; pass X.compute()"
            )
        if self._with_qid and qid is None:
            raise ValueError(
                "the model was fitted with qid, so score needs qid too: without it rows of "
                "different queries would be compared"
            )
        found, y, qid, sample_weight = (
            values.compute() if _partitions.is_lazy(values) else values
            for values in (self.predict(X), y, qid, sample_weight)
        )
        preferences = Preferences(y, qid, sample_weight=sample_weight)
        preferences.check_names(None)
        graph = preferences.graph(len(found))
        if graph.n_outputs != self._model.n_outputs:
            raise ValueError(
                f"the model has {self._model.n_outputs} output(s), y has {graph.n_outputs}"
            )
        require_preferences(graph, "evaluate")
        return graph_accuracy(graph, found)

    def _check_new(self, X: Any) -> Any:
        if _partitions.is_lazy(X):
            raise ValueError(
                "this method wants rows in memory, not a Dask collection: pass X.compute(), or map "
                "the method of to_local() over the blocks"
            )
        return super()._check_new(X)

    def _prepare(self, X: Any, preferences: Any) -> NoReturn:
        raise ValueError(
            f"rankrls.dask.{type(self).__name__} has fit only: take to_local(), or "
            f"rankrls.{type(self).__name__}, for the rest"
        )


def _predict_block(n: int, dtype: Any, deviation: bool, number: int, X: Any, model: Any) -> Array:
    X = load(number, dtype, n, None, X)
    if X.shape[0] == 0:
        return np.empty((0, model.n_outputs), dtype=dtype)
    return np.sqrt(model.variance(X)) if deviation else model.predict(X)


class RankRLS(DaskRanker, estimators.RankRLS):
    """RankRLS on Dask arrays and data frames, without gathering the rows.

    Parameters and fitted attributes are the same as those of `rankrls.RankRLS`, and ``coef_`` is
    equal up to rounding for any partitioning: rows can be in any order, and a query can span any
    number of partitions. The estimator uses the current ``distributed.Client`` if there is one, and
    Dask's threads otherwise. If a worker fails, Dask reruns its tasks on other workers.

    Parameters
    ----------
    solver : {"auto", "primal", "nystroem", "cg"}, default="auto"
        "primal" takes one pass over X and uses n_features × n_features statistics. "nystroem" takes
        one pass, gathers the ``basis`` rows, and uses statistics of the size of the basis. "cg"
        takes one pass per iteration and uses vectors of n_features. "auto" selects "nystroem" if
        ``basis`` is given or the kernel is not linear; otherwise "primal" up to 4096 features and
        "cg" above. "dual" needs an n_rows × n_rows matrix and is not supported.
    alpha, kernel, cost, ties, query_weighting, basis, random_state, …
        See `rankrls.RankRLS`. ``kernel="precomputed"`` is not supported.

    Notes
    -----
    Communication for P partitions, n features and k outputs (see also docs/mathematics.md, §9):

    - y, qid: the query ids of each partition, to the client;
    - the rows of queries that lie in several partitions, once, to one worker for each query. If
      rows are sorted by query, these are a few rows of each partition. If they are in random order,
      they are almost all rows: sort or shuffle such data by qid first;
    - "primal": 8 n² bytes from every partition to another worker in a tree of fan-in 8; the client
      receives one such matrix. "nystroem": the same with the size of the basis instead of n;
    - "cg": 8 n k bytes to and from every partition, in every iteration.

    Without qid all rows are one ranking. Its partitions can be added up with cost="magnitude" and
    ties="keep" only, and not with solver "cg".

    y, qid and weights (about 24 bytes per row) stay on the workers during ``fit``.

    Examples
    --------
    >>> import dask.array as da
    >>> from rankrls.datasets import make_ranking
    >>> from rankrls.dask import RankRLS
    >>> X, y, qid = make_ranking(n_queries=50, random_state=0, return_X_y_qid=True)
    >>> X = da.from_array(X, chunks=(100, -1))
    >>> ranker = RankRLS().fit(X, y, qid=qid)
    >>> scores = ranker.predict(X)          # lazy
    >>> bool(ranker.score(X, y, qid) > 0.9)
    True
    >>> ranker.to_local().predict(X[:2].compute()).shape
    (2,)
    """

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        sample_weight: Any = None,
        eval_set: Any = None,
        callback: Any = None,
        persist: bool = True,
        **others: Any,
    ) -> RankRLS:
        """Fit the model.

        Parameters
        ----------
        X : dask array or data frame of shape (n_rows, n_features)
            Dense or sparse (SciPy CSR) blocks, float32 or float64. Chunk sizes can be unknown.
        y : dask array, series or frame, or array-like, of shape (n_rows,) or (n_rows, n_outputs)
            Scores; higher is preferred. Dask collections with partitions other than those of X are
            repartitioned, which takes one more pass over X if partition lengths are unknown. Local
            arrays are partitioned like X.
        qid : the same, of shape (n_rows,), optional
            Query of every row. If None, all rows form one ranking.
        sample_weight : the same, of shape (n_rows,), optional
            Row weights. The weight of a pair is the product of the weights of its rows.
        eval_set : tuple (X_val, y_val) or (X_val, y_val, qid_val), optional
            Validation data in memory, used for early stopping. They are not split off from X.
        callback : function, optional
            As for `rankrls.RankRLS`.
        persist : bool, default=True
            Whether X is kept in the workers' memory during the iterations of "cg" (Dask spills
            to disk if memory is short). If False, X is computed again in every iteration.
        **others
            pairs, magnitude, pair_weight and pair_features are not supported, because a pair can
            join rows on different workers.

        Returns
        -------
        RankRLS
            The fitted estimator.
        """
        _refuse(others)
        options = {"eval_set": eval_set, "callback": callback, "persist": persist}
        with unchanged_on_error(self):
            fit_ranker(self, X, y, qid, sample_weight, **options)
        return self


class RankRLSCV(DaskRanker, estimators.RankRLSCV):
    """RankRLS on Dask with alpha chosen by cross-validation over queries.

    Every held-out prediction equals that of a model refitted without its fold, up to a constant for
    each query. The workers sum n_features × n_features statistics for each fold, and the models for
    all alphas are computed from them.

    Parameters
    ----------
    alphas, cost, ties, query_weighting, random_state, verbose, …
        See `rankrls.RankRLSCV`. The kernel is linear and the solver is "primal".
    cv : int or "auto", default="auto"
        Number of folds of whole queries; "auto" means 5. The folds are the same as those of
        `rankrls.RankRLSCV` with the same ``cv`` (a number) and ``random_state``.
    scoring : str, default="pairwise_accuracy"
        "pairwise_r2" is computed from the statistics, so that X is read once. Other metrics
        ("pairwise_accuracy", "ndcg@10", …) are computed on the workers from held-out predictions.
        This takes a second pass over X, and a third one if the default grid is extended.
        "concordance_index" and functions are not supported.

    Notes
    -----
    Communication is that of ``rankrls.dask.RankRLS`` with solver "primal", with one matrix per
    fold.

    Examples
    --------
    >>> import dask.array as da
    >>> from rankrls.datasets import make_ranking
    >>> from rankrls.dask import RankRLSCV
    >>> X, y, qid = make_ranking(n_queries=50, random_state=0, return_X_y_qid=True)
    >>> X = da.from_array(X, chunks=(100, -1))
    >>> ranker = RankRLSCV(cv=5, scoring="pairwise_r2", random_state=0).fit(X, y, qid=qid)
    >>> bool(ranker.best_score_ > 0.3)
    True
    >>> type(ranker.to_local())
    <class 'rankrls.estimators.cv.RankRLSCV'>
    """

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        sample_weight: Any = None,
        eval_set: Any = None,
        callback: Any = None,
        **others: Any,
    ) -> RankRLSCV:
        """Choose alpha by cross-validation over queries and fit on all rows.

        Parameters
        ----------
        X, y, qid, sample_weight
            As for ``rankrls.dask.RankRLS``; qid is required.
        eval_set, callback, **others
            Not supported.

        Returns
        -------
        RankRLSCV
            The fitted estimator.
        """
        _refuse(others)
        if eval_set is not None or callback is not None or self.early_stopping:
            raise ValueError(
                "eval_set, callback and early_stopping: rankrls.dask.RankRLSCV holds out folds of "
                "whole queries; leave these away, or use rankrls.dask.RankRLS with early_stopping"
            )
        with unchanged_on_error(self):
            fit_cv(self, X, y, qid, sample_weight)
        return self
