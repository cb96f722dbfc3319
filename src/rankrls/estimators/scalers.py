"""Scalers before a ranker: which can be updated with it, how scales change, and their sums."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy, deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from rankrls.core.preferences.statistics import merged_means
from rankrls.estimators.cv import RankRLSCV
from rankrls.estimators.rankrls import RankRLS
from rankrls.preprocessing import QueryScaler

Array = NDArray[Any]

#: Forgetting is refused if the relative error of the remaining squared deviations of a feature may
#: exceed TOLERANCE. Sums and means have an error of ROUNDINGS units in the last place.
TOLERANCE, ROUNDINGS = 1e-8, 8

#: Transformers that shift and scale every feature.
SCALERS = (StandardScaler, MinMaxScaler, MaxAbsScaler)


def taken_apart(estimator: Any) -> tuple[Any, list[Any]]:
    """Split an estimator into the ranker and the steps before it, which must be supported."""
    steps = [estimator]
    if isinstance(estimator, Pipeline):
        steps = [step for _, step in estimator.steps if step is not None and step != "passthrough"]
    *before, ranker = steps
    if not isinstance(ranker, RankRLS | RankRLSCV):
        raise ValueError(
            f"{type(ranker).__name__} keeps no sums over queries, so it cannot be updated; "
            "RankRLS and RankRLSCV can, with the linear kernel or with a basis"
        )
    for number, step in enumerate(before):
        why = None
        if isinstance(step, SimpleImputer):
            if step.strategy != "constant" or step.add_indicator:
                why = "new rows would change the values filled in before; use strategy='constant'"
        elif not isinstance(step, (*SCALERS, QueryScaler)):
            why = (
                "it depends on all rows, and sums over earlier rows cannot be converted; "
                "StandardScaler, MinMaxScaler, MaxAbsScaler, QueryScaler and SimpleImputer with "
                "strategy='constant' can. Fit to all rows, or transform the batches before"
            )
        elif getattr(step, "clip", False):
            why = "clip=True changes rows one by one; set clip=False"
        elif number < len(before) - 1:
            why = "it must be the last step before the ranker"
        elif isinstance(step, SCALERS) and (ranker._based or ranker.kernel != "linear"):
            why = (
                "before a kernel every new row changes the scales, and with them the kernel values "
                "of earlier rows. Use the linear kernel, or scale the features before"
            )
        if why:
            raise ValueError(f"{type(step).__name__} before the ranker: {why}")
    return ranker, before


def merged(scalers: Sequence[Any]) -> Any:
    """Return the scaler of all rows from scalers of parts of them, which stay as they are."""
    total = deepcopy(scalers[0])
    for other in scalers[1:]:
        n = total.n_samples_seen_ + other.n_samples_seen_
        if isinstance(total, MinMaxScaler):
            total.partial_fit(np.stack([other.data_min_, other.data_max_]))
        elif isinstance(total, MaxAbsScaler):
            total.partial_fit(other.max_abs_[None])
        else:
            _add_moments(total, other)
        total.n_samples_seen_ = n
    return total


def transformed(step: Any, X: Any) -> Any:
    """Transform rows, which stay as they are even with copy=False: they may be read again."""
    if getattr(step, "copy", True) is False:
        step = copy(step)
        step.copy = True
    return step.transform(X)


def scaled(scaler: Any, X: Any) -> Any:
    """Transform rows; float32 ones in float64 and back, so that offsets cost no digits."""
    if getattr(X, "dtype", None) != np.float32:
        return transformed(scaler, X)
    return transformed(scaler, X.astype(np.float64)).astype(np.float32)


def _add_moments(scaler: StandardScaler, other: StandardScaler) -> None:
    """Add the means and variances of the rows of another scaler."""
    if scaler.mean_ is None:
        return
    a, b = scaler.n_samples_seen_, other.n_samples_seen_
    n = a + b
    scaler.mean_, between, shift = merged_means(a, scaler.mean_, b, other.mean_)
    if scaler.var_ is None:
        return
    scaler.var_ = (a * scaler.var_ + b * other.var_ + between * shift**2) / n
    # Constant features keep their scale, by the bound of scikit-learn.
    eps = float(np.finfo(np.float64).eps)
    constant = scaler.var_ <= n * eps * scaler.var_ + (n * eps * scaler.mean_) ** 2
    scaler.scale_ = np.where(constant, 1.0, np.sqrt(scaler.var_))


def _units(scaler: Any) -> tuple[Any, Any]:
    """Offset and scale of a fitted scaler, x → (x − offset)/scale."""
    if isinstance(scaler, MinMaxScaler):
        return -scaler.min_ / scaler.scale_, 1.0 / scaler.scale_
    n = scaler.n_features_in_
    scale = np.ones(n) if scaler.scale_ is None else scaler.scale_
    centred = isinstance(scaler, StandardScaler) and scaler.with_mean
    return scaler.mean_ if centred else np.zeros(n), scale


def rescaling(old: Any, new: Any) -> tuple[Array, Array]:
    """Factor and offset that make features scaled by ``old`` those of ``new``.

    With x₀ = (x − m₀)/s₀ it is (x − m)/s = (x₀ − (m − m₀)/s₀) s₀/s.
    """
    (m0, s0), (m, s) = _units(old), _units(new)
    return s0 / s, (m - m0) / s0


def unlearn(scaler: Any, X: Any) -> None:
    """Update a scaler to the rows without X, or raise."""
    if not isinstance(scaler, StandardScaler):
        raise ValueError(
            f"{type(scaler).__name__} stores extremes only and cannot forget rows: fit again to "
            "the remaining rows, or use a StandardScaler"
        )
    gone = clone(scaler).fit(X)
    n, k = np.asarray(scaler.n_samples_seen_), np.asarray(gone.n_samples_seen_)
    left = n - k
    if (left <= 0).any():
        raise ValueError(
            f"the StandardScaler was fitted to {int(np.max(n))} rows, so {int(np.max(k))} cannot "
            "be forgotten: nothing would be left, fit a new model"
        )
    if scaler.mean_ is not None:
        # S = S_left + S_gone + n_left n_gone/n (x̄_left − x̄_gone)², as for sums of rankings.
        mean = scaler.mean_ - (k / left) * (gone.mean_ - scaler.mean_)
        if scaler.var_ is not None:
            constant = ~np.isclose(scaler.scale_, np.sqrt(scaler.var_), rtol=1e-9)
            before = scaler.var_ * n
            after = before - gone.var_ * k - left * k / n * (mean - gone.mean_) ** 2
            shift, eps = np.abs(mean - gone.mean_), float(np.finfo(np.float64).eps)
            rounding = ROUNDINGS * eps * np.abs(scaler.mean_)  # of the means
            error = ROUNDINGS * eps * before + left * k / n * (2 * shift + rounding) * rounding
            lost = ~constant & ~(error <= TOLERANCE * after)
            if lost.any():
                j, names = int(np.argmax(lost)), getattr(scaler, "feature_names_in_", None)
                column = f"column {j} of X" if names is None else f"feature {str(names[j])!r}"
                raise ValueError(
                    f"{column} varies so much less in the remaining rows, or beside "
                    "its mean, that its scale would lose digits: fit again to these rows"
                )
            scaler.var_ = np.where(constant, scaler.var_, after / left)
            scaler.scale_ = np.where(constant, scaler.scale_, np.sqrt(scaler.var_))
        scaler.mean_ = mean
    scaler.n_samples_seen_ = left[()]  # a NumPy integer, which StandardScaler needs
