"""Pipelines of a scaler and a ranker that learn batch by batch.

A ranker keeps sums over queries of scaled features. If the scaler changes, the sums are converted
to the new scale (offsets do not matter, because L ignores them). The result equals a fit of scaler
and ranker to all rows, without a second pass.
"""

from __future__ import annotations

from copy import copy, deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from rankrls._validation import refuse_lazy
from rankrls.estimators import stream
from rankrls.estimators.auto import AutoRanker
from rankrls.estimators.incremental import learned_by, query_keys, rescale_features, show_query
from rankrls.estimators.scalers import (
    SCALERS,
    rescaling,
    scaled,
    taken_apart,
    transformed,
    unlearn,
)
from rankrls.preprocessing import QueryScaler

__all__ = ["fit_stream", "forget", "partial_fit", "require_updatable"]

Array = NDArray[Any]


def fit_stream(estimator: Any, batches: Any, *, basis_rows: Any = None) -> Any:
    """Fit a ranker, or a pipeline of scaler and ranker, to a stream of batches.

    Parameters
    ----------
    estimator : RankRLS, RankRLSCV, or Pipeline that ends in one of them; AutoRanker
        The ranker may be preceded by one StandardScaler, MinMaxScaler or MaxAbsScaler, which is
        fitted to all rows; or by a `QueryScaler`, for batches of whole queries (``by_query=True``
        of `iter_letor` and `iter_parquet`); and these by a SimpleImputer with strategy "constant".
    batches, basis_rows
        As for `RankRLS.fit_stream`; no basis_rows with a pipeline.

    Returns
    -------
    estimator
        The fitted estimator; it equals ``fit`` to all rows. With `RankRLSCV`, the scaler is also
        fitted to the features of held-out rows.
    """
    if isinstance(estimator, AutoRanker) and basis_rows is None:
        return estimator.fit_stream(batches)
    ranker, steps = taken_apart(estimator)
    fit = ranker.fit_stream  # an error here says why it cannot
    if not steps:
        return fit(batches, basis_rows=basis_rows)
    if basis_rows is not None:
        raise ValueError("basis_rows can only be used with a ranker, not with a pipeline")
    prepare = _Prepare([clone(step) for step in steps])
    stream.fit_stream(ranker, batches, steps=prepare)
    for step, fitted in zip(steps, prepare.steps, strict=True):
        step.__dict__ = fitted.__dict__
    return estimator


def partial_fit(
    estimator: Any, X: Any, y: Any, *, qid: Any = None, sample_weight: Any = None
) -> Any:
    """Add queries, as for `RankRLS.partial_fit`, to a fitted ranker or pipeline (`fit_stream`).

    It then equals a fit of scaler and ranker to all rows; `RankRLSCV` keeps ``alpha_``. If the call
    fails, it does not change.
    """
    return _updated(estimator, 1, X, y, qid=qid, sample_weight=sample_weight)


def forget(estimator: Any, X: Any, y: Any, *, qid: Any = None, sample_weight: Any = None) -> Any:
    """Remove queries, as for `RankRLS.forget`, from a fitted ranker or pipeline (`fit_stream`).

    It then equals a fit without these queries. If the call fails, it does not change. Pipelines
    with a MinMaxScaler or MaxAbsScaler cannot forget.
    """
    return _updated(estimator, -1, X, y, qid=qid, sample_weight=sample_weight)


def require_updatable(estimator: Any) -> None:
    """Raise a ValueError with the reason if a fitted estimator cannot be updated."""
    if isinstance(estimator, AutoRanker):
        check_is_fitted(estimator)
        if not estimator.estimators_:
            raise ValueError("the model is a single column, which cannot be updated: fit it again")
        for member in estimator.estimators_:
            learned_by(member)
        return
    ranker, _ = taken_apart(estimator)
    check_is_fitted(ranker)
    ranker.partial_fit  # noqa: B018 (an error here says why it cannot)
    learned_by(ranker)


class _Prepare:
    """The steps before a ranker; sums are computed in the scale of the first batch."""

    def __init__(self, steps: list[Any]) -> None:
        self.steps = steps
        self._scaler: Any = steps[-1] if isinstance(steps[-1], SCALERS) else None
        self._first: Any = None  # the scaler of the first batch
        self._keys: set[str] | None = None  # of the queries of the batch before

    def learn(self, batch: stream.Batch) -> Any:
        """Features in the scale of the first batch."""
        X = self._before_scaler(batch, fit=self._keys is None)
        if self._scaler is None:
            return X
        self._scaler.partial_fit(X)
        self._first = self._first or deepcopy(self._scaler)
        return scaled(self._first, X)

    def transform(self, batch: stream.Batch) -> Any:
        """Features in the scale of all batches."""
        X = self._before_scaler(batch, fit=False)
        return X if self._scaler is None else scaled(self._scaler, X)

    def rescaling(self) -> tuple[Array, Array] | None:
        """Factor and offset from the scale of the first batch to that of all."""
        return None if self._scaler is None else rescaling(self._first, self._scaler)

    def _before_scaler(self, batch: stream.Batch, *, fit: bool) -> Any:
        keys = set[str]()
        if any(isinstance(step, QueryScaler) for step in self.steps):
            labels = [0] if batch.qid is None else set(np.asarray(batch.qid).tolist())
            keys = set(query_keys(labels))
            if batch.number > 1 and (on := (self._keys or set()) & keys):
                raise ValueError(
                    f"{show_query(min(on))} continues from the previous batch, but QueryScaler "
                    "scales whole queries: read batches of whole queries (by_query=True)"
                )
        self._keys = keys
        return _transformed(self.steps[: -1 if self._scaler else None], batch.X, batch.qid, fit)


def _transformed(steps: list[Any], X: Any, qid: Any, fit: bool = False) -> Any:
    for step in steps:
        if isinstance(step, QueryScaler):
            X = step.fit_transform(X, qid=qid) if fit else step.transform(X, qid=qid)
        else:
            X = transformed(step.fit(X) if fit else step, X)
    return X


def _updated(estimator: Any, sign: int, X: Any, y: Any, **by_row: Any) -> Any:
    refuse_lazy(X, instead="pass its parts one after the other")
    if isinstance(estimator, AutoRanker):
        if sign < 0:
            raise ValueError("AutoRanker cannot forget queries: fit it again to those that stay")
        return estimator.partial_fit(X, y, **by_row)
    ranker, steps = taken_apart(estimator)
    method = "partial_fit" if sign > 0 else "forget"
    scaler = None
    if steps:
        check_is_fitted(ranker)
        getattr(ranker, method)  # an error here says why it cannot
        scaler = steps[-1] if isinstance(steps[-1], SCALERS) else None
    X = _transformed(steps[: -1 if scaler else None], X, by_row["qid"])
    if scaler is None:
        getattr(ranker, method)(X, y, **by_row)
        return estimator
    new, other = deepcopy(scaler), copy(ranker)
    if sign > 0:
        new.n_samples_seen_ = np.asarray(scaler.n_samples_seen_)[()]  # a file has Python's integers
        other._check_rows(scaled(scaler, X))  # NaN would become NaN in the sums
        new.partial_fit(X)
        rescale_features(other, *rescaling(scaler, new))
        other.partial_fit(scaled(new, X), y, **by_row)
    else:
        other.forget(scaled(scaler, X), y, **by_row)
        unlearn(new, X)
        if hasattr(other, "_model"):
            rescale_features(other, *rescaling(scaler, new))
    scaler.__dict__, ranker.__dict__ = new.__dict__, other.__dict__
    return estimator
