"""``rankrls.dask.RankRLS`` and ``RankRLSCV``, whose training rows stay on the workers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls import estimators
from rankrls._calls import unchanged_on_error
from rankrls.dask._fit import check_columns, fit_ranker
from rankrls.dask._rows import beside, compute, features, is_lazy, layer, like, load, shared
from rankrls.estimators.auto import AutoRanker
from rankrls.estimators.ranker import Preferences
from rankrls.estimators.rankrls import RidgeRanker
from rankrls.estimators.scalers import SCALERS, taken_apart

Array = NDArray[Any]


def fit(estimator: Any, X: Any, y: Any, *, qid: Any = None, sample_weight: Any = None) -> Any:
    """Fit a ranker, or a pipeline of scaler and ranker, to rows on the workers of a cluster.

    Parameters
    ----------
    estimator : rankrls.RankRLS, rankrls.RankRLSCV, Pipeline that ends in one, or rankrls.AutoRanker
        The ranker may be preceded by one StandardScaler, MinMaxScaler or MaxAbsScaler, which is
        fitted to all rows, without weights. It then needs the linear kernel and solver "primal".
        An AutoRanker is fitted by `AutoRanker.fit_stream`: partitions, sorted by query, come to the
        client, one after the other and twice.
    X, y, qid, sample_weight
        As for ``rankrls.dask.RankRLS``.

    Returns
    -------
    estimator
        The fitted estimator, which does not need Dask. It equals ``fit`` to all rows, for
        `RankRLSCV` with the same folds and alphas, whose scaler is also fitted to held-out rows. If
        the call fails, the estimator does not change.

    Examples
    --------
    >>> import dask.array as da
    >>> import rankrls.dask
    >>> from rankrls import RankRLSCV
    >>> from rankrls.datasets import make_ranking
    >>> X, y, qid = make_ranking(n_queries=50, random_state=0, return_X_y_qid=True)
    >>> ranker = RankRLSCV(cv=5, random_state=0)
    >>> rankrls.dask.fit(ranker, da.from_array(X, chunks=(100, -1)), y, qid=qid).predict(X).shape
    (1000,)
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
        fitted = fit_ranker(new, X, y, qid, sample_weight, scaler=scaler)
        if fitted is not None:
            validate_data(fitted, like(X), skip_check_array=True)
            new.__dict__.pop("feature_names_in_", None)
            validate_data(new, fitted.transform(like(X)), skip_check_array=True)
            scaler.__dict__ = fitted.__dict__
        ranker.__dict__ = new.__dict__
    return estimator


def _batches(X: Any, y: Any, qid: Any, sample_weight: Any) -> Iterator[dict[str, Any]]:
    """Generate the partitions, one after the other."""
    rows = features(X)[0]
    named = (("target", "y", y), ("qid", "qid", qid), ("sample_weight",) * 2 + (sample_weight,))
    parts = {key: beside(name, values, X, rows) for key, name, values in named}
    blocks = {"data": rows.blocks} | {key: part.blocks for key, part in parts.items() if part}
    for batch in zip(*blocks.values(), strict=True):
        yield dict(zip(blocks, compute(batch), strict=True))


class DaskRanker(RidgeRanker):
    """Base class of estimators whose training rows stay on the workers."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        sample_weight: Any = None,
        **others: Any,
    ) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : dask array or data frame of shape (n_rows, n_features)
            Dense or sparse (SciPy CSR) blocks, float32 or float64. Chunk sizes can be unknown.
        y : dask array, series or frame, or array-like, of shape (n_rows,) or (n_rows, n_outputs)
            Scores; higher is preferred. Other partitions than those of X are repartitioned, which
            takes one more pass over X if its partition lengths are unknown.
        qid, sample_weight : the same, of shape (n_rows,), optional
            As for the local estimator; `RankRLSCV` requires qid.
        **others
            Further arguments of the local estimator are refused.
        """
        for name in [name for name, value in others.items() if value is not None]:
            raise ValueError(
                f"{name} is no argument on Dask: give scores y and a qid, or fit "
                f"rankrls.{type(self).__name__} to rows in memory"
            )
        with unchanged_on_error(self):
            fit_ranker(self, X, y, qid, sample_weight)
        return self

    def _why_not_incremental(self) -> str:
        return (
            f"rankrls.dask.{type(self).__name__} is fitted to all partitions at once; call "
            "to_local() on the fitted model and go on with that, or use "
            f"rankrls.{type(self).__name__}"
        )

    def to_local(self) -> Any:
        """Convert to an estimator of `rankrls` that does not need Dask.

        It supports ``partial_fit`` and ``forget`` with rows in memory, unless it was fitted with
        solver "cg".
        """
        check_is_fitted(self)
        local = getattr(estimators, type(self).__name__)(**self.get_params(deep=False))
        fitted = {name: value for name, value in vars(self).items() if name not in vars(local)}
        local.__dict__.update(fitted)
        return local

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict scores; higher is preferred.

        Arguments are those of `rankrls.RankRLS.predict`. The result is a lazy Dask array with the
        partitions of X (or a pair of them), and of a local X an array in memory.
        """
        if not is_lazy(X):
            return super().predict(X, return_std)
        check_is_fitted(self)
        check_columns(self, X)
        scores = self._predict_lazily(X)
        return (scores, self._predict_lazily(X, deviation=True)) if return_std else scores

    def _predict_lazily(self, X: Any, *, deviation: bool = False) -> da.Array:
        model, there = self._model, shared(self._model)
        rows, dtype = features(X)
        predict = partial(_predict_block, int(self.n_features_in_), dtype, deviation)
        calls = [(partial(predict, i), block, there) for i, block in enumerate(rows.blocks)]
        first = layer("predict", calls, tail=(0,))[0]
        coefficients = model.coef if model.coef is not None else model.dual_coef
        result = np.dtype(np.float64) if deviation else np.result_type(dtype, coefficients.dtype)
        chunks = (rows.lengths or (np.nan,) * len(calls), (model.n_outputs,))
        scores = da.Array(first.dask, first.key[0], chunks, dtype=result)
        return scores[:, 0] if self._flat else scores

    def score(  # type: ignore[override]
        self, X: Any, y: Any = None, qid: Any = None, sample_weight: Any = None
    ) -> float:
        """Return the pairwise accuracy, averaged over the queries that have a pair.

        Arguments are those of ``fit``. The predictions and the other arrays are gathered, about 32
        bytes for each row.
        """
        if not is_lazy(X):
            return super().score(X, y, qid, sample_weight)
        given = self.predict(X), y, qid, sample_weight
        found, y, qid, weight = (one.compute() if is_lazy(one) else one for one in given)
        return self._accuracy(found, Preferences(y, qid, sample_weight=weight))


def _predict_block(n: int, dtype: Any, deviation: bool, number: int, X: Any, model: Any) -> Array:
    X = load(number, dtype, n, None, X)
    if X.shape[0] == 0:
        return np.empty((0, model.n_outputs), dtype=dtype)
    return np.sqrt(model.variance(X)) if deviation else model.predict(X)


class RankRLS(DaskRanker, estimators.RankRLS):
    """RankRLS on Dask arrays and data frames, without gathering the rows.

    Parameters and fitted attributes are those of `rankrls.RankRLS`, and ``coef_`` is equal up to
    rounding for any partitioning: rows can be in any order, and a query can span any number of
    partitions. The current ``distributed.Client`` is used if there is one, Dask's threads
    otherwise.

    Parameters
    ----------
    solver : {"auto", "primal", "nystroem", "cg"}, default="auto"
        "primal" takes one pass over X and sums n_features × n_features statistics; "nystroem"
        gathers the ``basis`` rows and sums statistics of their number; "cg" takes one pass per
        iteration and sends vectors of n_features. "auto" selects "nystroem" if ``basis`` is given
        or the kernel is not linear; otherwise "primal" up to 4096 features and "cg" above.
    alpha, kernel, cost, ties, query_weighting, basis, random_state, …
        See `rankrls.RankRLS`. There is no precomputed kernel and no early stopping.

    Notes
    -----
    Rows of queries that lie in several partitions move to one worker for each query: sort or
    shuffle rows in random order by qid first. Without qid all rows are one ranking, whose
    partitions can be added up with cost="magnitude" and ties="keep" only, and not with solver "cg".
    See docs/mathematics.md, §9, for what is sent.
    """


class RankRLSCV(DaskRanker, estimators.RankRLSCV):
    """RankRLS on Dask with alpha chosen by cross-validation over queries.

    Every held-out prediction equals that of a model refitted without its fold, up to a constant for
    each query: the workers sum n_features × n_features statistics for each fold.

    Parameters
    ----------
    alphas, cost, ties, query_weighting, random_state, verbose, …
        See `rankrls.RankRLSCV`. The kernel is linear and the solver is "primal".
    cv : int or "auto", default="auto"
        Number of folds of whole queries, those of `rankrls.RankRLSCV` with the same ``cv`` and
        ``random_state``; "auto" means 5.
    scoring : str, default="pairwise_accuracy"
        "pairwise_r2" is computed from the statistics. Metrics of lists ("pairwise_accuracy",
        "ndcg@10", …) take a second pass over X, and a third one if the default grid is extended.
    """
