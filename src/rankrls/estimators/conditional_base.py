"""What the conditional rankers share: objects, kernels, fitting, predicting, scoring."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls import _memory
from rankrls._calls import Progress, explained, warn
from rankrls._frames import (
    check_feature_names,
    clear_errors,
    columns_in_order,
    feature_names,
    labels_in_order,
    note_kernel_numbers,
    object_names,
    row_names,
    square_in_order,
    warn_about_columns,
)
from rankrls._validation import check_integer, check_option, check_positive
from rankrls.core.linalg.conjugate_gradients import IterationOptions
from rankrls.core.relations.cell_equations import HeldOutCells
from rankrls.core.relations.observations import Observations
from rankrls.core.relations.relation_problem import SOLVERS, RelationModel, RelationProblem
from rankrls.core.relations.sides import losing_columns
from rankrls.core.spaces.spaces import Kernel
from rankrls.estimators.objects import Objects, check_numbers
from rankrls.estimators.ranker import NO_DEVIATIONS
from rankrls.estimators.relation_inputs import (
    SIGNS,
    check_relation,
    read_relation,
    require_labels,
)
from rankrls.metrics import conditional_scores, pairwise_error

__all__ = ["NO_QUERIES", "ConditionalRanker"]

Array = NDArray[Any]

NO_QUERIES = "the objects that rankings are conditioned on take the place of queries"

LOSSES = ("ranking", "regression")
CONDITIONS = ("rows", "columns")
#: Edges that are predicted at a time.
CHUNK = 1024
#: Attributes that not every fitted model has.
OPTIONAL = (
    *("_weights", "_explicit_rows", "_explicit_columns"),
    *("best_iteration_", "validation_curve_", "validation_iterations_"),
)


class ConditionalRanker(BaseEstimator):
    """Everything of `ConditionalRankRLS` but its constructor and ``fit``."""

    kernel: Any
    object_kernel: Any
    gamma: float | None
    degree: float
    coef0: float
    kernel_params: dict[str, Any] | None
    object_kernel_params: dict[str, Any] | None
    relation: str | None
    loss: str
    condition_on: str
    solver: str
    max_iter: int
    tol: float
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int
    random_state: Any
    verbose: int
    n_jobs: int | None

    _rows: Objects
    _columns: Objects | None
    #: Names of the columns of precomputed kernel matrices, if they are integers.
    _kernel_numbers: Array | None = None
    _object_kernel_numbers: Array | None = None
    dual_coef_: Array

    # ------------------------------------------------------------------ before fitting

    def _prepare(self, X: Any, Y: Any, Z: Any) -> tuple[Objects, Objects | None, Observations]:
        """Check everything: options, objects of both sides (None: the same), labels."""
        kernels = self._check_options()
        if SIGNS[self.relation] and Z is not None:
            raise ValueError(
                f"relation={self.relation!r} is a relation between objects of one kind, the rows "
                "of X: Z must be None"
            )
        X, Z, Y = self._in_order(kernels, X, Z, Y)
        X = self._check_objects(X)
        rows = Objects.of(kernels[0], X)
        _warn_about_columns(kernels[0], X, getattr(self, "feature_names_in_", None))
        columns = None
        if Z is not None:
            try:
                Z = self._check_others(Z, reset=True)
            except ValueError as error:
                if "NaN" not in str(error):
                    raise
                hint = "(fit takes X, Y, Z: the labels come second)"
                raise ValueError(f"{error} {hint}") from error
            columns = Objects.of(kernels[1], Z)
            _warn_about_columns(kernels[1], Z)
        elif self.object_kernel is not None:
            columns = Objects.of(kernels[1], X)
        observations = read_relation(
            Y, len(rows), len(rows if columns is None else columns), one_domain=Z is None
        )
        if not sparse.issparse(Y):
            check_relation(observations, self.relation)
        self._check_labels(observations)
        return rows, columns, observations

    def _in_order(self, kernels: tuple[Kernel, Kernel], X: Any, Z: Any, Y: Any) -> tuple[Any, ...]:
        """X, Z and Y with kernel matrices in the order of their rows, and Y in that of both."""
        for name in ("_kernel_numbers", "_object_kernel_numbers", "object_feature_names_in_"):
            self.__dict__.pop(name, None)
        if kernels[0].precomputed:
            X = square_in_order(X)
            note_kernel_numbers(self, "_kernel_numbers", X)
        if Z is not None and kernels[1].precomputed:
            Z = square_in_order(Z, "Z")
            note_kernel_numbers(self, "_object_kernel_numbers", Z)
        rows = object_names(X, precomputed=kernels[0].precomputed)
        columns = rows if Z is None else object_names(Z, precomputed=kernels[1].precomputed)
        return X, Z, labels_in_order(Y, rows, columns, one_domain=Z is None)

    def _labels_in_order(self, Y: Any, X: Any, Z: Any) -> Any:
        """Labels in the order of the objects that are predicted."""
        rows = row_names(X)
        one = Z is None
        return labels_in_order(Y, rows, rows if one else row_names(Z), one_domain=one)

    def _check_others(self, Z: Any, *, reset: bool = False) -> Any:
        """Features of column objects; their names are those of ``fit``, as for X."""
        names = feature_names(Z)
        if not reset:
            attribute = "object_feature_names_in_" if self._two_domains else "feature_names_in_"
            check_feature_names(names, getattr(self, attribute, None), "Z")
        elif names is not None:
            self.object_feature_names_in_ = names
        with clear_errors(Z, "Z"):
            return check_array(
                Z, accept_sparse="csr", dtype=(np.float64, np.float32), input_name="Z"
            )

    def _check_objects(self, X: Any, *, reset: bool = True) -> Any:
        dtype = (np.float64, np.float32)
        with clear_errors(X):
            return validate_data(self, X, accept_sparse="csr", dtype=dtype, reset=reset)

    def _check_labels(self, observations: Observations) -> None:
        seen = observations if self.condition_on == "rows" else observations.T
        ranking = self.loss == "ranking"
        require_labels(seen, ranking=ranking, condition_on=self.condition_on)

    def _check_options(self) -> tuple[Kernel, Kernel]:
        if self.relation is not None:
            check_option("relation", self.relation, ("symmetric", "reciprocal"))
        check_option("loss", self.loss, LOSSES)
        check_option("condition_on", self.condition_on, CONDITIONS)
        check_option("solver", self.solver, SOLVERS)
        if not isinstance(self.early_stopping, bool | np.bool_):
            raise ValueError(f"early_stopping must be True or False; got {self.early_stopping!r}")
        common: dict[str, Any] = {"degree": self.degree, "coef0": self.coef0, "n_jobs": self.n_jobs}
        first = Kernel.from_options(
            self.kernel, gamma=self.gamma, kernel_params=self.kernel_params, **common
        )
        if self.object_kernel is None:
            if self.object_kernel_params is not None:
                raise ValueError("object_kernel_params are those of object_kernel, which is None")
            return first, first
        if SIGNS[self.relation]:
            raise ValueError(
                f"relation={self.relation!r} needs the same kernel on both sides: object_kernel "
                "must be None"
            )
        params = self.object_kernel_params
        own = isinstance(params, dict) and "gamma" in params
        second = Kernel.from_options(
            self.object_kernel, gamma=None if own else self.gamma, kernel_params=params, **common
        )
        return first, second

    def _iteration_options(self, progress: Progress | None = None) -> IterationOptions:
        return IterationOptions(
            max_iter=check_integer("max_iter", self.max_iter, least=1),
            tol=check_positive("tol", self.tol),
            patience=check_integer("n_iter_no_change", self.n_iter_no_change, least=1),
            progress=Progress("", 0) if progress is None else progress,
        )

    def _held_out(self) -> HeldOutCells | None:
        """How edges are held out for early stopping; None without it."""
        if not self.early_stopping:
            return None
        fraction = check_positive("validation_fraction", self.validation_fraction)
        if fraction >= 1:
            raise ValueError(f"validation_fraction must be below 1; got {fraction:g}")
        return HeldOutCells(fraction, check_random_state(self.random_state), _accuracy)

    def _check_alpha(self, value: Any) -> float:
        """> 0; early stopping regularises by itself and also takes zero."""
        if self.early_stopping is True and isinstance(value, numbers.Real) and value == 0:
            return 0.0
        return check_positive("alpha", value)

    # ------------------------------------------------------------------ fitting

    def _problem(
        self, rows: Objects, columns: Objects | None, observations: Observations
    ) -> RelationProblem:
        """The problem with the conditioning objects as its rows: the one place that transposes."""
        left = rows.side()
        right = left if columns is None else columns.side()
        if self.condition_on == "columns":
            left, right, observations = right, left, observations.T
        return RelationProblem(
            left,
            right,
            observations,
            ranking=self.loss == "ranking",
            sign=SIGNS[self.relation],
        )

    def _require_functions(self, problem: RelationProblem) -> None:
        """Raise if no function but zero has the symmetry of the relation."""
        if problem.is_empty():
            raise ValueError(
                "relation='reciprocal' leaves no function but f = 0: the kernel matrix of X has "
                "rank one, as that of a linear kernel of a single feature, and antisymmetric "
                "functions need two. Add features (a column of ones is one), or use another kernel"
            )

    def _oriented(self, values: Array) -> Array:
        """Arrays (…, conditioning objects, ranked objects) as (…, rows, columns) of Y."""
        return values if self.condition_on == "rows" else np.swapaxes(values, -1, -2)

    def _solve(self, problem: RelationProblem, alphas: Array, progress: Progress) -> RelationModel:
        return problem.solve(
            alphas,
            self.solver,
            self._iteration_options(progress),
            held_out=self._held_out(),
            progress=progress,
        )

    def _store(
        self,
        rows: Objects,
        columns: Objects | None,
        observations: Observations,
        model: RelationModel,
        two_domains: bool,
    ) -> None:
        for name in OPTIONAL:
            self.__dict__.pop(name, None)
        self._rows, self._columns, self._two_domains = rows, columns, two_domains
        self.dual_coef_ = np.ascontiguousarray(self._oriented(model.coefficients[0]))
        if model.weights is not None:
            self._weights = np.ascontiguousarray(self._oriented(model.weights[0]))
            turn = 1 if self.condition_on == "rows" else -1
            self._explicit_rows, self._explicit_columns = model.explicit[::turn]
        self.solver_ = model.solver
        self.n_iter_ = model.n_iter
        self.n_edges_ = observations.n_edges
        if model.history is not None:
            self.best_iteration_ = model.history.best_iteration
            self.validation_curve_ = model.history.errors[:, 0]
            self.validation_iterations_ = model.history.iterations

    def _warn_of_lost_digits(
        self, problem: RelationProblem, model: RelationModel, alpha: float
    ) -> None:
        """Warn if rounding errors of features with very different scales are in the model."""
        turn = 1 if self.condition_on == "rows" else -1
        sides, explicit = problem.sides[::turn], model.explicit[::turn]
        for k, (objects, name) in enumerate(((self._rows, "X"), (self._ranked, "Z"))):
            if explicit[k] or not objects.kernel.linear or (k == 1 and sides[0] is sides[1]):
                continue
            # Columns that alpha makes negligible do not matter.
            negligible = np.sqrt(1e-8 * alpha / max(sides[1 - k].size, np.finfo(float).tiny))
            columns = losing_columns(objects.X, negligible)
            if len(columns):
                warn(
                    f"the kernel matrix has lost digits of {self._named(columns, k)} of {name}, "
                    "small beside others, and predictions are inaccurate: scale the features "
                    "(StandardScaler, MaxAbsScaler)"
                )
        if model.loss > 1e-6:
            warn(
                f"rounding errors of about {min(model.loss, 1.0):.1g} of the predictions are in "
                f"the model, which alpha={alpha:g} does not smooth out: increase alpha, or scale "
                "features that depend on each other or have very different scales (StandardScaler)"
            )

    def _named(self, columns: Array, side: int) -> str:
        names = getattr(self, "feature_names_in_", None) if side == 0 else None
        shown = [str(j) if names is None else repr(str(names[j])) for j in columns[:5]]
        return (
            ("column " if len(columns) == 1 else "columns ")
            + ", ".join(shown)
            + (", …" if len(columns) > 5 else "")
        )

    # ------------------------------------------------------------------ predicting

    @explained(return_std=NO_DEVIATIONS, qid=NO_QUERIES)
    def predict(self, X: Any, Z: Any = None) -> Array:
        """Scores of all pairs of a row object and a column object.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (p', d)
            Row objects, known or new. Kernel values with all training row objects if the kernel
            is precomputed.
        Z : array-like or sparse matrix of shape (g', e), optional
            Column objects, known or new. None: the objects of X, if the model was fitted on
            objects of one kind.

        Returns
        -------
        ndarray of shape (p', g')
            Higher is preferred. With ``condition_on="rows"`` each row ranks the columns; for the
            ranking loss, scores of different rows are not comparable.
        """
        check_is_fitted(self)
        return self._predict_all(X, Z, self._table()[None])[0]

    def _table(self) -> Array:
        """Coefficients of kernel values, or of features where these are explicit."""
        return getattr(self, "_weights", self.dual_coef_)

    @property
    def _explicit(self) -> tuple[bool, bool]:
        """Whether the rows and columns of `_table` are features, and not training objects."""
        return getattr(self, "_explicit_rows", False), getattr(self, "_explicit_columns", False)

    def _predict_all(self, X: Any, Z: Any, tables: Array) -> Array:
        """Scores for several tables of coefficients (see `_table`), shape (n, p', g')."""
        X, Z_given, Z = self._check_new(X, Z)
        sign = SIGNS[self.relation]
        shape = (len(tables), X.shape[0], Z.shape[0])
        advice = "predict for fewer objects at a time, or some pairs with predict_edges"
        _memory.require("predict", *shape, advice=advice)
        out = np.empty(shape)
        for scores, A in zip(out, tables, strict=True):
            left = self._rows.product(X, A, explicit=self._explicit[0])
            scores[:] = self._ranked.product(Z, left.T, explicit=self._explicit[1]).T
            if sign and not Z_given:
                scores[:] = 0.5 * (scores + sign * scores.T)
        return out

    def predict_edges(self, X: Any, Z: Any, rows: Any, cols: Any) -> Array:
        """Scores of some pairs only.

        Parameters
        ----------
        X, Z : as for `predict`
        rows, cols : array-like of shape (n_edges,), int
            Pairs: rows of X and of Z.

        Returns
        -------
        ndarray of shape (n_edges,)
        """
        X, _, Z = self._check_new(X, Z)
        rows = check_numbers("rows", rows, X.shape[0])
        cols = check_numbers("cols", cols, Z.shape[0])
        if len(rows) != len(cols):
            raise ValueError(f"rows has {len(rows)} entries and cols has {len(cols)}")
        if not len(rows):
            return np.empty(0)
        used, rows = np.unique(rows, return_inverse=True)
        left = self._rows.product(X[used], self._table(), explicit=self._explicit[0])
        used, cols = np.unique(cols, return_inverse=True)
        right = self._ranked.values(Z[used], explicit=self._explicit[1])
        out = np.empty(len(rows))
        for start in range(0, len(rows), CHUNK):
            part = slice(start, start + CHUNK)
            out[part] = np.vecdot(left[rows[part]], right[cols[part]])
        return out

    @property
    def _ranked(self) -> Objects:
        """The training objects of the columns."""
        return self._rows if self._columns is None else self._columns

    def _check_new(self, X: Any, Z: Any) -> tuple[Any, bool, Any]:
        check_is_fitted(self)
        X, Z = self._kernels_in_order(X, Z)
        X = self._check_objects(X, reset=False)
        X = self._rows.others(X)
        if Z is None:
            if self._two_domains:
                raise ValueError(
                    "the model was fitted with Z, objects of another kind than X: pass Z, the "
                    "objects to predict for (to rank the objects it was fitted with, their "
                    "features; for a precomputed kernel, their kernel matrix)"
                )
            return X, False, X
        columns = self._ranked
        Z = self._check_others(Z)
        if Z.shape[1] != columns.X.shape[1]:
            raise ValueError(
                f"Z has {Z.shape[1]} features, but the model was fitted with {columns.X.shape[1]}"
            )
        return X, True, columns.others(Z)

    def _kernels_in_order(self, X: Any, Z: Any) -> tuple[Any, Any]:
        """Precomputed kernel values with columns in the order of the training objects."""
        names = getattr(self, "feature_names_in_", self._kernel_numbers)
        if self._rows.kernel.precomputed:
            X = columns_in_order(X, names)
        if self._ranked.kernel.precomputed and Z is not None:
            if self._two_domains:
                names = getattr(self, "object_feature_names_in_", self._object_kernel_numbers)
            Z = columns_in_order(Z, names, "Z")
        return X, Z

    @property
    def coef_(self) -> Array:
        """W of f(x, z) = xᵀ W z, shape (d, e), for linear kernels."""
        check_is_fitted(self)
        columns = self._ranked
        if not (self._rows.kernel.linear and columns.kernel.linear):
            raise AttributeError("coef_ exists for linear kernels only; see dual_coef_")
        if all(self._explicit):
            return self._table()
        return self._rows.X.T @ (columns.X.T @ self.dual_coef_.T).T

    @explained(qid=NO_QUERIES)
    def score(self, X: Any, Y: Any, Z: Any = None) -> float:
        """Pairwise accuracy: 1 − the pairwise ranking error, mean over conditioning objects.

        Parameters
        ----------
        X, Z : as for `predict`
        Y : array-like or sparse matrix of shape (p', g')
            Labels, as for ``fit``. Conditioning objects without two different labels are left
            out.

        Returns
        -------
        float

        See Also
        --------
        rankrls.metrics.conditional_scores : Any metric, for each conditioning object.
        """
        Y = self._labels_in_order(Y, X, Z)
        scores = self.predict(X, Z)
        read_relation(Y, *scores.shape, one_domain=Z is None and not self._two_domains)
        by: Any = self.condition_on
        values = conditional_scores(Y, scores, condition_on=by)
        if np.isnan(values).all():
            raise ValueError(
                f"there is nothing to evaluate: no {self.condition_on[:-1]} of Y has two observed "
                "pairs with different labels"
            )
        return float(np.nanmean(values))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "dual_coef_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "ranker"
        tags.target_tags.required = True
        tags.target_tags.one_d_labels = False
        tags.target_tags.two_d_labels = True
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


def _accuracy(y: Array, predictions: Array, rows: Array) -> float:
    """Pairwise accuracy within rows, for early stopping."""
    return 1.0 - float(pairwise_error(y, predictions, qid=rows))


def _warn_about_columns(kernel: Kernel, X: Any, names: Any = None) -> None:
    if not kernel.precomputed:
        warn_about_columns(X, names=names, scales=isinstance(kernel.metric, str))
