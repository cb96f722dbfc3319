"""Fits of pipelines of a scaler and a ranker to rows on the workers."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone
from sklearn.utils.validation import validate_data

from rankrls import estimators
from rankrls._calls import unchanged_on_error
from rankrls.dask import _partitions
from rankrls.dask._dask_cv import RankRLSCV
from rankrls.dask._dask_ranker import DaskRanker
from rankrls.dask._estimator import RankRLS
from rankrls.estimators.scalers import SCALERS, taken_apart

__all__ = ["fit"]


def fit(estimator: Any, X: Any, y: Any, *, qid: Any = None, sample_weight: Any = None) -> Any:
    """Fit a ranker, or a pipeline of scaler and ranker, to rows on the workers of a cluster.

    The scaler is fitted in the same pass over X as the sums of the ranker, which are converted to
    its scale afterwards. `sklearn.pipeline.Pipeline` itself would gather X to scale it.

    Parameters
    ----------
    estimator : rankrls.RankRLS, rankrls.RankRLSCV, or Pipeline that ends in one of them
        The ranker may be preceded by one StandardScaler, MinMaxScaler or MaxAbsScaler, which is
        fitted to all rows, without weights. It then needs the linear kernel and solver "primal".
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
    kind = RankRLSCV if isinstance(ranker, estimators.RankRLSCV) else RankRLS
    remote = kind(**ranker.get_params(deep=False))
    scaler = steps[0] if steps else None
    with unchanged_on_error(ranker):
        fitted = remote._fit(X, y, qid, sample_weight, scaler=scaler)
        if fitted is not None:
            like = _partitions.like(X)
            validate_data(fitted, like, skip_check_array=True)
            validate_data(remote, fitted.transform(like), skip_check_array=True)
        new = clone(ranker)
        new.__dict__.update(vars(remote.to_local()))
        ranker.__dict__ = new.__dict__
        if scaler is not None:
            scaler.__dict__ = fitted.__dict__
    return estimator
