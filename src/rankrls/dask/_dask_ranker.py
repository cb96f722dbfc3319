"""Base class of the estimators on Dask: checks of lazy input, prediction and scoring."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls import estimators
from rankrls._calls import Progress, warn
from rankrls._frames import clear_errors, id_text, most_unequal, scale_text
from rankrls._validation import check_option
from rankrls.core.spaces.spaces import Kernel
from rankrls.dask import _partitions
from rankrls.dask._partitioned_problem import Preferences, trace
from rankrls.dask._partitions import Partitions
from rankrls.dask._predict import predict_lazily
from rankrls.dask._scaling import Scaling
from rankrls.dask._score import accuracy
from rankrls.dask._work import Loader
from rankrls.estimators.incremental import IncrementalRanker
from rankrls.exceptions import FeatureScaleWarning, IdColumnWarning

__all__ = ["MAX_PRIMAL_FEATURES", "DaskRanker", "LazyRows", "refuse_pairs"]

Array = NDArray[Any]

SOLVERS = ("auto", "primal", "nystroem", "cg")

#: Up to this number of features, ``solver="auto"`` forms the n × n matrix (128 MiB a partition).
MAX_PRIMAL_FEATURES = 4096


@dataclass(frozen=True)
class LazyRows:
    """Checked arguments of ``fit``.

    Attributes
    ----------
    X : Partitions
    dtype : float32 or float64
    preferences : Preferences
    flat : bool
        Whether y is a vector.
    scaling : Scaling or None
        The scaler before the ranker; X is scaled then.
    """

    X: Partitions
    dtype: Any
    preferences: Preferences
    flat: bool
    scaling: Scaling | None = None

    @property
    def scaler(self) -> Any:
        """The scaler before the ranker; None if there is none."""
        return None if self.scaling is None else self.scaling.scaler

    def again(self) -> LazyRows:
        """Return the rows in the scale of the fitted scaler, to be read again."""
        return self if self.scaling is None else replace(self, X=self.scaling.transformed())


def refuse_pairs(**given: Any) -> None:
    """Raise an error if pairs are given."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name}: given pairs may join rows of different partitions, which "
                "rankrls.dask does not bring together: give scores y and a qid, or fit "
                "rankrls.RankRLS on the rows that have pairs"
            )


class DaskRanker(IncrementalRanker):
    """Base class of estimators whose training rows stay on the workers."""

    def _take_rows(
        self, X: Any, y: Any, qid: Any, sample_weight: Any, progress: Progress, scaler: Any = None
    ) -> LazyRows:
        """Check the arguments of ``fit``, and count rows and queries on the workers."""
        rows, dtype = _partitions.features(X)
        self._check_columns(X, reset=True)
        if self.n_features_in_ == 0:
            raise ValueError("X has no columns: 0 feature(s), while a minimum of 1 is required")
        ids = _partitions.columns_named_as_ids(X)
        if ids:
            warn(id_text(ids, getattr(self, "feature_names_in_", None)), IdColumnWarning)
        y, qid, sample_weight, flat = _partitions.preferences(X, rows, y, qid, sample_weight)
        preferences = Preferences(y, qid, sample_weight, self._loss)
        crossing = preferences.crossing
        progress(
            f"{preferences.n_rows:,} rows in {len(rows)} partitions, {crossing.n_queries:,} "
            f"queries, {crossing.n_crossing:,} of them in several partitions"
        )
        if scaler is None:
            return LazyRows(rows, dtype, preferences, flat)
        n = int(self.n_features_in_)
        loaders = {i: Loader(i, dtype, n, preferences.lengths[i]) for i in preferences.used}
        scaling = Scaling(scaler, rows, loaders)
        return LazyRows(scaling.X, dtype, preferences, flat, scaling)

    def _store_rows(
        self, kernel: Kernel, rows: LazyRows, solver: str, n_preferences: Array
    ) -> None:
        """Store a description of the training rows."""
        if solver == "primal" and rows.scaling is None:
            self._warn_about_scales(rows.preferences)
        self.solver_ = solver
        self.n_queries_ = rows.preferences.crossing.n_queries
        self._flat = rows.flat
        self._with_qid = rows.preferences.with_qid
        self._seen = rows.preferences.seen()
        self._preferences = n_preferences
        self._learned_with = self._terms(kernel)
        self._store_coefficients()

    def _check_columns(self, X: Any, *, reset: bool = False) -> None:
        """Check, or store, the number and names of the columns of a Dask array or data frame."""
        like = _partitions.like(X)
        with clear_errors(like):
            validate_data(self, like, reset=reset, skip_check_array=True)

    def _warn_about_scales(self, preferences: Preferences) -> None:
        """Warn about unequal scales. A variance is half the mean squared difference of pairs."""
        solver = self._model.solvers[0]
        scale = np.sqrt(solver.largest)
        if most_unequal(scale) is None:
            return
        scale /= np.sqrt(trace(preferences))
        scale[scale <= 16 * solver.rounding * np.abs(solver.mean)] = 0.0  # constant in each query
        scales = most_unequal(scale)
        if scales is not None:
            remedy = (
                "scale them on the workers by rankrls.dask.fit(make_pipeline(StandardScaler(), "
                f"rankrls.{type(self).__name__}()), X, y, qid=qid)"
            )
            names = getattr(self, "feature_names_in_", None)
            warn(scale_text(scales, names, remedy), FeatureScaleWarning)

    def _check_options(self) -> Kernel:
        if self.solver == "dual":
            raise ValueError(
                "solver='dual' needs a matrix of n_rows × n_rows: with Dask use 'primal' or 'cg' "
                "(kernel='linear'), or 'nystroem'"
            )
        check_option("solver", self.solver, SOLVERS)
        kernel = super()._check_options()
        if kernel.precomputed:
            raise ValueError(
                "kernel='precomputed' is a matrix of n_rows × n_rows: with Dask give the rows and "
                "a named kernel or a callable"
            )
        return kernel

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
        self._check_columns(X)
        scores = predict_lazily(self._model, X, flat=self._flat)
        if not return_std:
            return scores
        return scores, predict_lazily(self._model, X, flat=self._flat, deviation=True)

    def score(
        self, X: Any, y: Any = None, qid: Any = None, sample_weight: Any = None, **judgements: Any
    ) -> float:
        """Return the pairwise accuracy, averaged over the queries that have a pair.

        Parameters
        ----------
        X, y, qid, sample_weight
            As for ``fit``; all must be local if X is. qid is required if ``fit`` was given qid.
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
        check_is_fitted(self)
        if self._with_qid and qid is None:
            raise ValueError(
                "the model was fitted with qid, so score needs qid too: without it rows of "
                "different queries would be compared"
            )
        self._check_columns(X)
        rows, dtype = _partitions.features(X)
        y, qid, sample_weight, _ = _partitions.preferences(X, rows, y, qid, sample_weight)
        preferences = Preferences(y, qid, sample_weight, self._loss)
        n_outputs = self._model.n_outputs
        if preferences.n_outputs != n_outputs:
            raise ValueError(f"the model has {n_outputs} output(s), y has {preferences.n_outputs}")
        return accuracy(self._model, preferences, rows, dtype, int(self.n_features_in_))

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
