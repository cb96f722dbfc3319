"""The arguments of rankers, and the base class of all: validation, prediction and scoring."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls._calls import library_frames, takes_queries, warn
from rankrls._frames import (
    check_basis_names,
    check_same_rows,
    clear_errors,
    column_names,
    columns_in_order,
    names_anything,
    square_in_order,
    warn_about_columns,
)
from rankrls._resources import require, require_features
from rankrls._validation import check_finite_array, check_scores, show
from rankrls.core.linalg.krylov import History
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.spaces.spaces import Kernel, check_kernel_values
from rankrls.metrics import pairwise_accuracy

Array = NDArray[Any]

#: Arrays of at most this many numbers are checked without scikit-learn, whose checks take longer
#: than the predictions of a few rows.
SMALL = 20_000

#: What a fit may leave in a ranker, besides its model, that does not belong to the next one.
STORED = (
    *("best_iteration_", "validation_curve_", "validation_iterations_"),
    *("_seen", "_preferences", "_learned_with", "_pending"),
)
COEFFICIENTS = ("coef_", "dual_coef_", "basis_indices_", "pair_coef_")


@dataclass(frozen=True)
class Preferences:
    """The arguments of ``fit`` and ``score`` that say what is preferred; see `RankRLS.fit`."""

    y: Any = None
    qid: Any = None
    pairs: Any = None
    magnitude: Any = None
    pair_weight: Any = None
    sample_weight: Any = None
    pair_features: Any = None

    @classmethod
    def of(cls, y: Any, **fit_params: Any) -> Preferences:
        """Make preferences of arguments that a user named."""
        names = [part.name for part in fields(cls)][1:]
        for name in sorted(fit_params.keys() - set(names)):
            raise TypeError(f"fit has no argument {name!r}; it has {', '.join(names)}")
        return cls(y, **fit_params)

    def check_names(self, X: Any) -> None:
        """Raise if arguments have the names of the rows of X in another order."""
        by_row = {"qid": self.qid, "sample_weight": self.sample_weight}
        check_same_rows(X, y=self.y, **by_row)
        if self.y is not None and not isinstance(self.y, PreferenceGraph):
            check_same_rows(self.y, "y", **by_row)

    def graph(self, n_rows: int) -> PreferenceGraph:
        """Validate the arguments and combine them into one graph over ``n_rows`` rows."""
        y, pairs, judged = self.y, self.pairs, None
        of_pairs = {"magnitude": self.magnitude, "pair_weight": self.pair_weight}
        of_pairs["pair_features"] = self.pair_features
        of_scores = {"qid": self.qid, "sample_weight": self.sample_weight}
        if isinstance(y, PreferenceGraph):
            for name, value in (of_scores | of_pairs | {"pairs": pairs}).items():
                if value is not None:
                    raise ValueError(f"y is a PreferenceGraph: {name} must be part of it")
            if len(y) != n_rows:
                raise ValueError(f"y is a graph over {len(y)} rows for {n_rows} rows of X")
            return y
        if y is None and pairs is None:
            raise ValueError(
                "ranking requires y to be passed, but the target y is None: give scores y, "
                "or pairs of row numbers (preferred, other)"
            )
        for name, value in (of_pairs if pairs is None else of_scores if y is None else {}).items():
            if value is not None:
                whose = "pairs" if pairs is None else "the scores y (pairs have pair_weight)"
                raise ValueError(f"{name} belongs to {whose}, and there are none")
        if pairs is not None:
            judged = PreferenceGraph.from_pairs(pairs, n_rows=n_rows, **of_pairs)
            if y is None:
                return judged
        scores = check_scores(y, n_rows)
        if scores.shape[1:] > (1,):
            advice = "fit fewer outputs at a time"
            require("fitting several outputs", *scores.shape, copies=6, advice=advice)
        scored = PreferenceGraph._from_scores(scores, **of_scores, of="rows of X")
        return scored if judged is None else scored + judged


def check_return_std(value: Any) -> bool:
    """Return ``return_std`` if it is a bool (query ids passed by position would be truthy)."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(
            f"return_std must be True or False; got {show(value)} (predict takes no qid, because "
            "the score of a row does not depend on its query: predict all rows, then sort those "
            "of each query by their scores)"
        )
    return bool(value)


def require_preferences(graph: PreferenceGraph, purpose: str = "learn from") -> None:
    """Raise unless at least one row is preferred to another, for every output."""
    n_preferences = graph.n_preferences
    if graph.scores is None and not n_preferences.any():
        raise ValueError(
            f"no query has a pair to {purpose}: pairs is empty, or every pair is a tie "
            "(magnitude 0) or has pair_weight 0"
        )
    require_every_output(n_preferences, graph.n_rows, graph.n_queries, purpose)


def require_every_output(
    n_preferences: Array, n_rows: int, n_queries: int, purpose: str = "learn from"
) -> None:
    """Raise unless there is a preference for every output, of scores with these sizes."""
    if not (n_preferences > 0).all():
        where = f" in output (column) {np.argmin(n_preferences)} of y" * bool(n_preferences.any())
        raise ValueError(
            f"no query has a pair to {purpose}: in {n_rows:,} rows and {n_queries:,} queries, all "
            f"labels of a query are equal{where}, or it has a single row of a weight above zero"
        )


def graph_accuracy(graph: PreferenceGraph, predictions: Array, added: Array | None = None) -> float:
    """Pairwise accuracy: mean over queries with a pair; given pairs count as one more query."""
    predictions = predictions.reshape(len(predictions), -1)
    scored, told, per_output = graph.scored_outputs, graph.preferring, []
    for j, scores in enumerate(predictions.T):
        values: list[Any] = []
        if graph.scores is not None and scored[j]:
            by_row: Any = {"qid": graph.query_codes, "sample_weight": graph.sample_weight}
            found: Any = pairwise_accuracy(graph.scores[:, j], scores, average=None, **by_row)
            values = list(found[np.isfinite(found)])
        if told.any():
            pairs, weight = graph.pairs[told], graph.pair_weight[told]
            if added is not None:  # the differences, compared with zero
                scores = np.append(scores[pairs[:, 0]] - scores[pairs[:, 1]] + added[told, j], 0.0)
                pairs = np.column_stack([np.arange(len(pairs)), np.full(len(pairs), len(pairs))])
            values.append(pairwise_accuracy(None, scores, pairs=pairs, pair_weight=weight))
        per_output.append(np.mean(values))
    return float(np.mean(per_output))


class QueryRequests:
    """Mixin for estimators whose ``fit`` takes qid, which scikit-learn's routing then requests."""

    __metadata_request__fit = {"qid": True}  # noqa: RUF012 (scikit-learn reads the class)

    def _set(self, parameters: dict[str, Any]) -> None:
        """Store the arguments of ``__init__``, its ``locals()``, under their names."""
        for name, value in parameters.items():
            if name != "self":
                setattr(self, name, value)

    def __sklearn_clone__(self) -> Any:
        """Clone; warn inside a tool of scikit-learn that has ``groups`` but passes no qid."""
        for frame in library_frames():
            known = frame.f_locals
            params = known["params"] if isinstance(known.get("params"), dict) else {}
            groups = params.get("groups") if known.get("groups") is None else known["groups"]
            if groups is not None and frame.f_globals["__name__"].startswith("sklearn."):
                routed = any(str(key).split("__")[-1] == "qid" for key in params)
                if not routed and _like_queries(groups, known.get("y")):
                    warn(
                        "groups only define which rows are held out together; "
                        f"{type(self).__name__} receives no qid and compares rows of different "
                        "groups. If the groups are queries, use "
                        "rankrls.model_selection.cross_val_score with qid=, or "
                        "y=PreferenceGraph.from_scores(y, qid=groups) and cv=QueryKFold()"
                    )
                break
        return super().__sklearn_clone__()  # type: ignore[misc]


def _like_queries(groups: Any, y: Any) -> bool:
    """Whether y differs within most groups, unlike, for example, the samples of a patient."""
    with suppress(Exception):  # errors are reported elsewhere; a hint must not fail
        graph = PreferenceGraph.from_scores(y, qid=groups)
        several = np.count_nonzero(np.bincount(graph.query_codes) > 1)  # type: ignore[arg-type]
        return bool(2 * graph.varying_queries.any(axis=1).sum() >= several > 0)
    return False


def warn_of_pooled_queries(name: str) -> None:
    """Warn if PyTerrier calls ``fit`` without queries, as its default form does."""
    if any(f.f_globals.get("__name__", "").startswith("pyterrier.") for f in library_frames()):
        warn(
            f"PyTerrier calls {name}.fit without queries, so that rows of different queries are "
            "compared with each other: write pt.ltr.apply_learned_model("
            'rankrls.pyterrier.PyTerrierLearner(ranker), form="ltr")'
        )


def canonical(X: Any, *, dense: bool, columns: bool = False) -> Any:
    """Convert sparse X to CSR (``columns``: or CSC) without duplicates, or to a dense array."""
    if not sparse.issparse(X):
        return X
    if dense:
        return X.toarray()
    rows = X if columns else X.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy() if rows is X or np.shares_memory(rows.data, X.data) else rows
        rows.sum_duplicates()
    return rows


class BaseRanker(QueryRequests, BaseEstimator):
    """An estimator whose ``_model``, a `FittedFunction`, predicts scores from rows of X."""

    kernel: Any
    gamma: Any
    degree: float
    coef0: float
    kernel_params: dict[str, Any] | None
    query_weighting: Any
    solver: str
    basis: Any
    max_iter: int | None
    tol: float
    random_state: Any
    verbose: int
    n_jobs: int | None

    _model: Any
    _flat: bool
    _with_qid: bool
    #: Names of the columns of a precomputed kernel matrix, if they are integers.
    _kernel_numbers: Array | None = None
    #: Whether the feature names came beside arrays, which have none themselves.
    _names_beside: bool = False

    __metadata_request__score = {"qid": True}  # noqa: RUF012 (scikit-learn reads the class)

    @abstractmethod
    def _check_options(self) -> Kernel:
        """Check the parameters that do not depend on the data, and make the kernel."""

    def _check_kernel(self, gamma: Any = None) -> Kernel:
        return Kernel.from_options(
            self.kernel,
            gamma=self.gamma if gamma is None else gamma,
            degree=self.degree,
            coef0=self.coef0,
            kernel_params=self.kernel_params,
            n_jobs=self.n_jobs,
        )

    def _prepare(self, X: Any, preferences: Preferences) -> tuple[Kernel, Any, PreferenceGraph]:
        """Validate parameters and data, once: the kernel, the rows and the preference graph."""
        kernel = self._check_options()
        preferences.check_names(X)
        # Products need no rows, so that sparse X in CSC format may stay so.
        X = self._check_rows(X, reset=True, least=2, columns=self.solver == "cg" and kernel.linear)
        require_features(X.shape[1])
        graph = preferences.graph(X.shape[0])
        require_preferences(graph)
        if not graph.has_qid:
            warn_of_pooled_queries(type(self).__name__)
        if kernel.precomputed:
            check_kernel_values(X, self.basis)
        self._warn_about_columns(kernel, X, graph)
        return kernel, X, graph

    def _warn_about_columns(self, kernel: Kernel, X: Any, graph: PreferenceGraph) -> None:
        """Warn about ids, and about unequal scales except with kernels that are functions."""
        if not kernel.precomputed:
            names, scales = getattr(self, "feature_names_in_", None), isinstance(kernel.metric, str)
            codes = graph.query_codes if graph.has_qid else None
            warn_about_columns(X, names=names, codes=codes, scales=scales)

    def _check_new(self, X: Any) -> Any:
        """Validate new rows; small arrays that need no conversion are returned as they are."""
        if not hasattr(self, "_model"):
            check_is_fitted(self)
        if (
            type(X) is np.ndarray
            and X.ndim == 2
            and X.dtype in (np.float64, np.float32)
            and 0 < X.size <= SMALL
            and X.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")
            and np.isfinite(X).all()
        ):
            return X
        return self._check_rows(X)

    def _check_rows(
        self, X: Any, *, reset: bool = False, least: int = 1, columns: bool = False
    ) -> Any:
        """Validate features, or kernel values; ``reset``: of the first data, not of new ones."""
        precomputed = isinstance(self.kernel, str) and self.kernel == "precomputed"
        if reset:
            for name in ("_kernel_numbers", "_names_beside"):
                self.__dict__.pop(name, None)
        if precomputed and not reset:
            # Names that are text are those of features to scikit-learn, which compares them.
            columns_in_order(X, self._kernel_numbers, refuse=True)
        elif precomputed:
            names = column_names(X)
            if names is not None and X.shape[0] != X.shape[1]:
                check_basis_names(X, self.basis)
            else:
                square_in_order(X, refuse=True)
            if names_anything(names) and getattr(names.dtype, "kind", "") in "iu":
                self._kernel_numbers = names.to_numpy(dtype=np.int64)
        checked: Any = self
        if self._names_beside and not hasattr(X, "columns"):
            # Arrays of a stream have no names, and scikit-learn would warn about every one.
            checked = copy(self)
            del checked.feature_names_in_
        with clear_errors(X):
            X = validate_data(
                checked,
                X,
                reset=reset,
                accept_sparse=("csr", "csc"),
                dtype=(np.float64, np.float32),
                ensure_min_samples=least,
            )
        return canonical(X, dense=precomputed, columns=columns) if sparse.issparse(X) else X

    def _store_fit(
        self, model: Any, data: Any, n_pairs: int, solver: str, history: History
    ) -> None:
        """Store a model, if there is one, and what is known of its data; forget an older one."""
        for name in STORED if model is not None else (*STORED, "_model", *COEFFICIENTS):
            self.__dict__.pop(name, None)
        self._flat, self._with_qid, self.n_queries_ = data.flat, data.has_qid, data.n_queries
        self.n_pairs_, self.solver_, self.n_iter_ = n_pairs, solver, history.n_iter
        if history.best_iteration is not None:
            self.best_iteration_ = history.best_iteration
            self.validation_iterations_ = history.iterations
            several = hasattr(self, "alphas")
            self.validation_curve_ = history.errors if several else history.errors[:, 0]
        if model is not None:
            self._model = model
            self._store_coefficients()

    def _store_coefficients(self) -> None:
        """Set the attributes that users see of the model."""
        for name in COEFFICIENTS:
            self.__dict__.pop(name, None)
        model = self._model
        for name in ("coef", "pair_coef"):
            if (weights := getattr(model, name)) is not None:
                setattr(self, f"{name}_", weights[0][:, 0] if self._flat else weights[0].T)
        if model.dual_coef is not None:
            self.dual_coef_ = self._outputs(model.dual_coef[0])
        if model.basis is not None:
            self.basis_indices_ = model.basis.indices

    def _outputs(self, values: Array) -> Array:
        """Drop the axis of outputs if y had none."""
        return values[..., 0] if self._flat else values

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict scores; higher is preferred.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
            For a precomputed kernel, its values with all training rows or the basis vectors.
        return_std : bool, default=False
            Whether to also return the posterior standard deviation of f(x) − f̄, where f̄ is the
            mean score of the training rows that have a pair. `RankSVM` has none.

        Returns
        -------
        ndarray of shape (n,) or (n, n_outputs), or a pair of them
        """
        with_std = check_return_std(return_std)
        if with_std and not hasattr(self, "_noise"):
            raise ValueError(
                f"return_std=True: {type(self).__name__} has no standard deviations, because the "
                "hinge loss has no posterior; use RankRLS"
            )
        X = self._check_new(X)
        scores = self._outputs(self._model.predict(X).astype(X.dtype, copy=False))
        if not with_std:
            return scores
        return scores, self._outputs(np.sqrt(self._model.variance(X) * self._noise()[1]))

    def decision_function(self, X: Any) -> Any:
        """The scores of `predict`, for ``scoring="roc_auc"``; not of models fitted with qid."""
        check_is_fitted(self)
        if self._with_qid:
            raise ValueError(
                "the model was fitted with qid, and scores of different queries are not "
                "comparable: use predict, or scoring=rankrls.metrics.pairwise_accuracy_scorer"
            )
        return self.predict(X)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    @takes_queries
    def score(
        self,
        X: Any,
        y: Any = None,
        qid: Any = None,
        sample_weight: Any = None,
        *,
        pairs: Any = None,
        magnitude: Any = None,
        pair_weight: Any = None,
        pair_features: Any = None,
    ) -> float:
        """Pairwise accuracy, averaged over the queries that have a pair.

        Parameters
        ----------
        X, y, qid, sample_weight, pairs, magnitude, pair_weight, pair_features
            As for ``fit``; qid (or ``group``) is required if the model was fitted with it. Given
            pairs count as one more query; covariates that are not given are zero.

        Returns
        -------
        float
            1 − `rankrls.metrics.pairwise_error` (tied predictions count ½), averaged over outputs.
        """
        given = (y, qid, pairs, magnitude, pair_weight, sample_weight, pair_features)
        preferences = Preferences(*given)
        preferences.check_names(X)
        return self._accuracy(self.predict(X), preferences)

    def _accuracy(self, predictions: Array, preferences: Preferences) -> float:
        y, qid, model = preferences.y, preferences.qid, self._model
        if self._with_qid and qid is None and y is not None and not isinstance(y, PreferenceGraph):
            raise ValueError(
                "the model was fitted with qid, so score needs qid too: without it rows of "
                "different queries would be compared (in a search or a pipeline: "
                "y=PreferenceGraph.from_scores(y, qid=qid), or scikit-learn's metadata routing)"
            )
        graph = preferences.graph(len(predictions))
        if graph.scores is not None and graph.n_outputs != model.n_outputs:
            raise ValueError(f"the model has {model.n_outputs} output(s), y has {graph.n_outputs}")
        require_preferences(graph, "evaluate")
        C = None
        if preferences.pair_features is not None or model.pair_coef is not None:
            C = self._check_covariates(graph.pair_features, graph.n_given_pairs)
        return graph_accuracy(graph, predictions, None if C is None else C @ model.pair_coef[0])

    def _check_covariates(self, pair_features: Any, n: int) -> Array | None:
        if pair_features is None:
            return None
        known = self._model.pair_coef
        if known is None:
            raise ValueError("pair_features: the model was fitted without any")
        C = check_finite_array("pair_features", pair_features, ndim=(2,))
        if C.shape != (n, known.shape[1]):
            raise ValueError(
                f"pair_features must have shape {(n, known.shape[1])}, a row for each comparison "
                f"and a column for each of those in fit; got {C.shape}"
            )
        return C

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "ranker"
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags
