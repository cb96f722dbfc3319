"""Base class of conditional rankers: input checks, fitting, predicting, scoring."""

from __future__ import annotations

import numbers
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtr
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls import _resources
from rankrls._calls import Progress, explained, unchanged_on_error, warn
from rankrls._frames import (
    check_feature_names,
    clear_errors,
    columns_in_order,
    feature_names,
    kept_names,
    kernels_in_order,
    labels_in_order,
    names_anything,
    object_names,
    row_names,
    square_in_order,
    warn_about_columns,
)
from rankrls._validation import check_integer, check_option, check_positive, show
from rankrls.core.linalg.krylov import IterationOptions
from rankrls.core.relations.incomplete import HeldOutCells
from rankrls.core.relations.labels import FittedOffsets, FreeOffsets, Observations, free_offsets
from rankrls.core.relations.pairwise import PAIRWISE, PairwiseKernel, RelationLoss, SideValues
from rankrls.core.relations.posterior import MAX_CELLS, CellPoints, cell_variances
from rankrls.core.relations.problem import (
    LOST,
    SOLVERS,
    Factors,
    RelationModel,
    RelationProblem,
)
from rankrls.core.relations.sides import KernelSum, Side, losing_columns
from rankrls.core.spaces.spaces import Kernel
from rankrls.estimators.alpha_pairs import check_alpha_pairs
from rankrls.estimators.conditional_updates import add_labels, remove_labels, remove_objects
from rankrls.estimators.named_scores import NamedScores
from rankrls.estimators.objects import (
    Objects,
    Others,
    check_numbers,
    one_matrix,
    read_kernels,
    stacked_kernels,
)
from rankrls.estimators.ranker import check_return_std
from rankrls.estimators.relation_inputs import (
    SIGNS,
    check_pairwise,
    check_relation,
    read_relation,
    require_labels,
)
from rankrls.metrics import conditional_scores, pairwise_error

__all__ = ["LOSSES", "NO_QUERIES", "ConditionalRanker"]

Array = NDArray[Any]

NO_QUERIES = "the objects that rankings are conditioned on take the place of queries"

LOSSES = ("ranking", "regression")
CONDITIONS = ("rows", "columns")
#: Offsets of the rows and columns of Y for each value of ``fit_offsets``.
OFFSETS = {
    False: FreeOffsets(),
    True: FreeOffsets(constant=True),
    "global": FreeOffsets(constant=True),
    "rows": FreeOffsets(rows=True),
    "columns": FreeOffsets(columns=True),
    "both": FreeOffsets(rows=True, columns=True),
}
#: Number of edges predicted at a time.
CHUNK = 1024
#: Fitted attributes that exist for some models only.
OPTIONAL = (
    *("dual_coef_", "_left_factor", "_right_factor"),
    *("_weights", "_explicit_rows", "_explicit_columns"),
    *("offset_", "row_offsets_", "column_offsets_"),
    *("_noise", "_observed", "_labels"),
    *("best_iteration_", "validation_curve_", "validation_iterations_"),
)


class ConditionalRanker(NamedScores, BaseEstimator):
    """Base class of conditional rankers: all methods but the constructor and ``fit``."""

    kernel: Any
    object_kernel: Any
    gamma: float | None
    degree: float
    coef0: float
    kernel_params: Any
    object_kernel_params: Any
    kernel_weights: Any
    object_kernel_weights: Any
    pairwise: str
    relation: str | None
    loss: str
    condition_on: str
    fit_offsets: bool | str
    solver: str
    max_iter: int
    tol: float
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int
    random_state: Any
    verbose: int
    n_jobs: int | None

    _left_factor: Array
    _right_factor: Array
    _losses: tuple[str, ...] = LOSSES
    #: The alpha of the model, or its pair of alphas for two-step.
    _alpha: Any
    fit: Any
    _labels: Observations
    _rows: Objects
    _columns: Objects | None
    _tells_of_equal_objects: bool = True

    # ------------------------------------------------------------------ before fitting

    def _prepare(self, X: Any, Y: Any, Z: Any) -> tuple[Objects, Objects | None, Observations]:
        """Check options, labels, and objects of both sides (None: same objects)."""
        kernels = self._check_options()
        if SIGNS[self.relation] and Z is not None:
            raise ValueError(
                f"relation={self.relation!r} is a relation between objects of one kind, the rows "
                "of X: Z must be None"
            )
        if self._pairwise.one_domain and Z is not None:
            raise ValueError(
                f"pairwise={self.pairwise!r} compares objects of one kind, the rows of X: Z must "
                "be None"
            )
        X, Z, Y = self._in_order(kernels, X, Z, Y)
        names = kept_names(_object_names(kernels[0], X))
        other_names = names if Z is None else kept_names(_object_names(kernels[1], Z))
        X, Z = stacked_kernels(kernels[0], X), stacked_kernels(kernels[1], Z, "Z")
        X = self._check_objects(X)
        apart = self._pairwise.sees_differences
        rows = Objects.of(kernels[0], X, names, apart)
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
            columns = Objects.of(kernels[1], Z, other_names)
            _warn_about_columns(kernels[1], Z)
        elif self.object_kernel is not None or _profiled(kernels[1]) or self._pairwise.several:
            columns = Objects.of(kernels[1], X, names)
        observations = read_relation(
            Y, len(rows), len(rows if columns is None else columns), one_domain=Z is None
        )
        if not sparse.issparse(Y):
            check_relation(observations, self.relation)
        self._check_labels(observations)
        free = self._free()
        columns = columns if columns is None else columns.given(observations.T, free.T)
        return rows.given(observations, free), columns, observations

    def _in_order(self, kernels: tuple[Any, Any], X: Any, Z: Any, Y: Any) -> tuple[Any, ...]:
        """Align columns of kernel matrices with their rows, and Y with both sides."""
        self.__dict__.pop("object_feature_names_in_", None)
        if one_matrix(kernels[0]):
            X = square_in_order(X)
        elif _several_matrices(kernels[0], X):
            X = kernels_in_order(X, square=True)
        if Z is not None and one_matrix(kernels[1]):
            Z = square_in_order(Z, "Z")
        elif _several_matrices(kernels[1], Z):
            Z = kernels_in_order(Z, "Z", square=True)
        rows = _object_names(kernels[0], X)
        columns = rows if Z is None else _object_names(kernels[1], Z)
        return X, Z, labels_in_order(Y, rows, columns, one_domain=Z is None)

    def _labels_in_order(self, Y: Any, X: Any, Z: Any) -> Any:
        """Align labels with the objects to predict for."""
        rows = row_names(X)
        one = Z is None
        return labels_in_order(Y, rows, rows if one else row_names(Z), one_domain=one)

    def _check_others(self, Z: Any, *, reset: bool = False) -> Any:
        """Check features of column objects; their names must match those of ``fit``."""
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

    def _check_options(self) -> tuple[Kernel | KernelSum, Kernel | KernelSum]:
        if self.relation is not None:
            check_option("relation", self.relation, ("symmetric", "reciprocal"))
        check_option("loss", self.loss, self._losses)
        check_option("condition_on", self.condition_on, CONDITIONS)
        check_option("solver", self.solver, SOLVERS)
        check_option("pairwise", self.pairwise, tuple(PAIRWISE))
        check_pairwise(self)
        self._offsets()
        if not isinstance(self.early_stopping, bool | np.bool_):
            raise ValueError(f"early_stopping must be True or False; got {self.early_stopping!r}")
        common: dict[str, Any] = {"degree": self.degree, "coef0": self.coef0, "n_jobs": self.n_jobs}
        first = read_kernels(
            self.kernel,
            self.kernel_weights,
            self.kernel_params,
            "kernel",
            gamma=self.gamma,
            **common,
        )
        one_kernel = None  # the option that needs the same kernel on both sides
        if SIGNS[self.relation]:
            one_kernel = f"relation={self.relation!r}"
        elif self._pairwise.one_domain:
            one_kernel = f"pairwise={self.pairwise!r}"
        if self._pairwise.several:
            return first, self._paired_kernels(first, common)
        if one_kernel and _profiled(first):
            raise ValueError(
                f"kernel 'profile' is not for {one_kernel}: the labels of an object are in its row "
                "and in its column"
            )
        if self.object_kernel is None:
            if self.object_kernel_params is not None:
                raise ValueError("object_kernel_params are those of object_kernel, which is None")
            if self.object_kernel_weights is None:
                return first, first
            if one_kernel:
                raise ValueError(
                    f"{one_kernel} needs the same kernel on both sides: object_kernel_weights "
                    "must be None"
                )
            second = read_kernels(
                self.kernel,
                self.object_kernel_weights,
                self.kernel_params,
                "object_kernel",
                gamma=self.gamma,
                **common,
            )
            return first, second
        if one_kernel:
            raise ValueError(
                f"{one_kernel} needs the same kernel on both sides: object_kernel must be None"
            )
        params = self.object_kernel_params
        own = isinstance(params, dict) and "gamma" in params
        second = read_kernels(
            self.object_kernel,
            self.object_kernel_weights,
            params,
            "object_kernel",
            gamma=None if own else self.gamma,
            **common,
        )
        return first, second

    def _paired_kernels(self, first: Kernel | KernelSum, common: dict[str, Any]) -> KernelSum:
        """Read the column kernels for pairwise="pairs"; the weights belong to pairs of kernels."""
        if self.object_kernel_weights is not None:
            raise ValueError(
                "pairwise='pairs' has one weight for each pair of kernels, in kernel_weights: "
                "object_kernel_weights must be None"
            )
        own = self.object_kernel is not None
        kernels = self.object_kernel if own else self.kernel
        several = [isinstance(names, list | tuple) for names in (self.kernel, kernels)]
        if not all(several) or len(self.kernel) != len(kernels):
            raise ValueError(
                "pairwise='pairs' needs lists of kernels of one length, kernel and object_kernel; "
                f"got {show(self.kernel)} and {show(kernels)}"
            )
        params = self.object_kernel_params if own else self.kernel_params
        second = read_kernels(
            kernels, np.ones(len(kernels)), params, "object_kernel", gamma=self.gamma, **common
        )
        if _profiled(first) or _profiled(second):
            raise ValueError(
                "kernel 'profile' is not for pairwise='pairs': use pairwise='kronecker'"
            )
        assert isinstance(second, KernelSum)
        return second

    def _offsets(self) -> FreeOffsets:
        """Fitted offsets of rows and columns of Y."""
        value = self.fit_offsets
        if isinstance(value, bool | np.bool_):
            value = bool(value)
        elif not isinstance(value, str) or value not in OFFSETS:
            raise ValueError(
                "fit_offsets must be True, False, 'global', 'rows', 'columns' or 'both'; got "
                f"{show(value)}"
            )
        offsets = OFFSETS[value]
        if any(offsets) and self.relation is not None:
            raise ValueError(
                f"fit_offsets={self.fit_offsets!r} is not for relation={self.relation!r}: set "
                "fit_offsets=False"
            )
        ranked = offsets.columns if self.condition_on == "rows" else offsets.rows
        if ranked and self.early_stopping is True:
            raise ValueError(
                "early_stopping does not know offsets of ranked objects: set "
                "early_stopping=False, or fit_offsets=False"
            )
        return offsets

    def _require_squared_loss(self, what: str) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"{what} is for loss='ranking' and 'regression', not {self.loss!r}")

    def _iteration_options(
        self, progress: Progress | None = None, callback: Any = None
    ) -> IterationOptions:
        if callback is not None and not callable(callback):
            raise ValueError(f"callback must be a function of one argument; got {show(callback)}")
        return IterationOptions(
            callback=callback,
            max_iter=check_integer("max_iter", self.max_iter, least=1),
            tol=check_positive("tol", self.tol),
            patience=check_integer("n_iter_no_change", self.n_iter_no_change, least=1),
            progress=Progress("", 0) if progress is None else progress,
        )

    def _held_out(self) -> HeldOutCells | None:
        """Settings of held-out edges for early stopping; None without it."""
        if not self.early_stopping:
            return None
        fraction = check_positive("validation_fraction", self.validation_fraction)
        if fraction >= 1:
            raise ValueError(f"validation_fraction must be below 1; got {fraction:g}")
        return HeldOutCells(fraction, check_random_state(self.random_state), _accuracy)

    def _check_alpha(self, value: Any) -> Array:
        """Check alpha, and return a grid of one alpha or pair of alphas (`check_alpha_pairs`).

        Alpha must be positive. With early stopping it may also be zero.
        """
        if self.early_stopping is True and isinstance(value, numbers.Real) and value == 0:
            return np.zeros(1)
        if self._two_step:
            one_alpha = SIGNS[self.relation] != 0
            return check_alpha_pairs("alpha", value, single=True, one_alpha=one_alpha)
        if isinstance(value, list | tuple | np.ndarray) and np.size(value) == 2:
            raise ValueError(
                f"alpha={show(value)} is a pair, which only pairwise='two-step' takes: give one "
                "number"
            )
        return np.array([check_positive("alpha", value)])

    @property
    def _pairwise(self) -> PairwiseKernel:
        return PAIRWISE[self.pairwise]

    @property
    def _two_step(self) -> bool:
        """Whether each side has its own alpha."""
        return self.pairwise == "two-step"

    def _oriented_alphas(self, alphas: Array) -> Array:
        """Convert pairs of alphas (row, column) to (conditioning, ranked); keep single alphas."""
        turned = alphas.ndim == 2 and self.condition_on == "columns"
        return alphas[:, ::-1] if turned else alphas

    # ------------------------------------------------------------------ fitting

    def _problem(
        self, rows: Objects, columns: Objects | None, observations: Observations
    ) -> RelationProblem:
        """Build the problem with conditioning objects as rows. Only this method transposes."""
        left, right = self._sides(rows, columns)
        return self._problem_of(left, right, observations)

    def _free(self) -> FreeOffsets:
        """All free offsets of rows and columns of Y, including those of the ranking loss."""
        offsets, ranking = self._offsets(), self.loss == "ranking"
        if self.condition_on == "rows":
            return free_offsets(offsets, ranking=ranking)
        return free_offsets(offsets.T, ranking=ranking).T

    def _sides(self, rows: Objects, columns: Objects | None) -> tuple[Side, Side]:
        """Build the sides of the rows and the columns of Y."""
        free = self._free()
        left = rows.side(free)
        return left, left if columns is None else columns.side(free.T)

    def _problem_of(self, left: Side, right: Side, observations: Observations) -> RelationProblem:
        """Build the problem from the two sides of the rows and the columns of Y."""
        offsets = self._offsets()
        if self.condition_on == "columns":
            left, right, observations = right, left, observations.T
            offsets = offsets.T
        ranking = self.loss == "ranking"
        if ranking:  # the ranking loss has row offsets, which include a constant
            offsets = FreeOffsets(columns=offsets.columns)
        loss = RelationLoss(ranking, SIGNS[self.relation], offsets, self._pairwise)
        return RelationProblem(left, right, observations, loss)

    def _require_functions(self, problem: RelationProblem) -> None:
        """Raise an error if only the zero function has the symmetry of the relation."""
        if problem.is_empty():
            raise ValueError(
                "relation='reciprocal' leaves no function but f = 0: the kernel matrix of X has "
                "rank one, as that of a linear kernel of a single feature, and antisymmetric "
                "functions need two. Add features (a column of ones is one), or use another kernel"
            )

    def _oriented(self, values: Array) -> Array:
        """Convert arrays (…, conditioning objects, ranked objects) to (…, rows, columns) of Y."""
        return values if self.condition_on == "rows" else np.swapaxes(values, -1, -2)

    def _solve(
        self, problem: RelationProblem, alphas: Array, progress: Progress, callback: Any = None
    ) -> RelationModel:
        return problem.solve(
            self._oriented_alphas(alphas),
            self.solver,
            self._iteration_options(progress, callback),
            held_out=self._held_out(),
            progress=progress,
        )

    def _store(
        self,
        rows: Objects,
        columns: Objects | None,
        observations: Observations,
        model: RelationModel,
        alpha: Any,
        two_domains: bool,
    ) -> None:
        for name in OPTIONAL:
            self.__dict__.pop(name, None)
        self._rows, self._two_domains = rows.stored(), two_domains
        self._columns = columns if columns is None else columns.stored()
        if isinstance(model.dual, Factors):
            factors = model.dual if self.condition_on == "rows" else model.dual.T
            self._left_factor, self._right_factor = factors.left[0], factors.right[0]
        else:
            self.dual_coef_ = np.ascontiguousarray(self._oriented(model.coefficients[0]))
        if model.weights is not None:
            self._weights = np.ascontiguousarray(self._oriented(model.weights[0]))
            turn = 1 if self.condition_on == "rows" else -1
            self._explicit_rows, self._explicit_columns = model.explicit[::turn]
        if model.offsets is not None:
            self._store_offsets(model.offsets[0])
        self._store_noise(observations, alpha)
        self._labels = observations.stored()
        self.solver_ = model.solver
        self.n_iter_ = model.n_iter
        self.n_edges_ = observations.n_edges
        if model.history is not None:
            self.best_iteration_ = model.history.best_iteration
            self.validation_curve_ = model.history.errors[:, 0]
            self.validation_iterations_ = model.history.iterations

    def _store_noise(self, observations: Observations, alpha: Any) -> None:
        """Store alpha and the observed pairs for `_variances`, if it is available."""
        plain = self.pairwise == "kronecker" and self.loss in LOSSES
        if self.early_stopping or self.relation is not None or not plain:
            return
        p, g = observations.shape
        block = observations.block(ranking=False) if observations.n_edges >= p * g else None
        if block is not None and block.Y.shape == (p, g):
            self._noise = alpha / block.multiplicity
        elif observations.n_edges <= MAX_CELLS:
            rows, cols, _ = observations.lists
            self._noise, self._observed = alpha, rows * g + cols

    def _store_offsets(self, offsets: FittedOffsets) -> None:
        offsets = offsets if self.condition_on == "rows" else offsets.T
        self.offset_ = offsets.constant
        self.row_offsets_, self.column_offsets_ = offsets.rows, offsets.columns

    def _warn_of_lost_digits(
        self, problem: RelationProblem, model: RelationModel, alpha: Any, least: int = 0
    ) -> None:
        """Warn if rounding errors of kernel matrices or features affect the model.

        ``alpha`` is the smallest alpha of the model, and ``least`` its index.
        """
        alpha, told = np.asarray(alpha), False
        turn = 1 if self.condition_on == "rows" else -1
        sides, explicit = problem.sides[::turn], model.explicit[::turn]
        for k, (objects, name) in enumerate(((self._rows, "X"), (self._ranked, "Z"))):
            if explicit[k] or not objects.kernel.linear or (k == 1 and sides[0] is sides[1]):
                continue
            # Columns that are negligible relative to alpha do not matter.
            other = sides[1 - k].size if self.pairwise == "kronecker" else 1.0
            own = float(alpha if alpha.ndim == 0 else alpha[k])
            negligible = np.sqrt(1e-8 * own / max(other, np.finfo(float).tiny))
            columns = losing_columns(objects.features, negligible)
            if len(columns):
                told = True
                warn(
                    f"the kernel matrix has lost digits of {self._named(columns, k)} of {name}, "
                    "small beside others, and predictions are inaccurate: scale the features "
                    "(StandardScaler, MaxAbsScaler)"
                )
        loss = model.loss if model.loss > 1e-6 else 0.0
        if loss == 0.0 and not told:
            lost = model.cancellation(problem.sides, least, ranking=problem.ranking)
            loss = lost if lost > LOST else 0.0
        if loss > 0.0:
            warn(
                f"rounding errors of about {min(loss, 1.0):.1g} of the predictions are in "
                f"the model, which alpha={alpha.min():g} does not smooth out: increase alpha, or "
                "scale features that depend on each other, have very different scales or large "
                "offsets (StandardScaler)"
            )

    def _warn_of_equal_objects(self) -> None:
        """Warn of training objects that the model distinguishes but ``predict`` cannot.

        ``predict`` identifies objects by their features, and those with equal features by names.
        """
        if not self._tells_of_equal_objects:
            return
        two = self._columns is not None
        for k, objects in enumerate((self._rows, self._ranked)[: 1 + two]):
            reason = self._tells_apart(k) or (None if two else self._tells_apart(1))
            if reason is None or objects.names is not None:
                continue
            groups = objects.equal()
            if not groups:
                continue
            name = "Z" if k == 1 and self._two_domains else "X"
            shown = " and ".join(str(i) for i in groups[0][:2])
            more = f" (and {len(groups) - 1} more such groups)" * (len(groups) > 1)
            warn(
                f"rows {shown} of {name} have equal features{more}, and {reason} tells objects "
                "apart: predict gives these objects the mean of what was learned of each, unless "
                f"its {name} is that of fit. Pass {name} as a data frame whose index names the "
                "objects, here and to predict"
            )

    def _tells_apart(self, side: int) -> str | None:
        """Return the option that distinguishes equal objects of rows (0) or columns (1)."""
        offsets = getattr(self, ("row_offsets_", "column_offsets_")[side], None)
        if offsets is not None and offsets.any():
            return f"fit_offsets={self.fit_offsets!r}"
        kernel = (self._rows, self._ranked)[side].kernel
        if isinstance(kernel, KernelSum):
            for weight, part in kernel:
                if weight > 0 and part.metric in ("identity", "profile"):
                    return f"kernel {part.metric!r}"
        return f"pairwise={self.pairwise!r}" if self._pairwise.knows else None

    def _named(self, columns: Array, side: int) -> str:
        names = getattr(self, "feature_names_in_", None) if side == 0 else None
        shown = [str(j) if names is None else repr(str(names[j])) for j in columns[:5]]
        return (
            ("column " if len(columns) == 1 else "columns ")
            + ", ".join(shown)
            + (", …" if len(columns) > 5 else "")
        )

    # ------------------------------------------------------------------ updating

    @explained(qid=NO_QUERIES)
    def partial_fit(self, X: Any, Y: Any, Z: Any = None) -> Any:
        """Add labels, also of new objects. The model equals a fit to all labels.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (p', d), or None
            Row objects. Rows that equal objects of the model refer to these objects, and all
            others are new. None: all row objects of the model (not available between objects of
            one kind). With a precomputed kernel, all objects must be new. X then has the shape
            (p', p + p'): kernel values with the p objects of the model, then among themselves.
        Y : array-like, data frame or sparse matrix of shape (p', g')
            Labels to add, NaN elsewhere. Adding a label to a pair that has one is an error:
            `forget` it first.
        Z : array-like, sparse matrix or data frame of shape (g', e), optional
            Column objects, known or new. None: all column objects of the model, or the objects of
            X between objects of one kind.

        Returns
        -------
        ConditionalRankRLS or ConditionalRankRLSCV
            The estimator. The first call is equivalent to ``fit``.

        Notes
        -----
        New objects follow the known ones, in the order of X. Between objects of one kind, new
        objects of Z follow those of X. `ConditionalRankRLSCV` keeps alpha and the kernel weights
        chosen by ``fit``.

        The model is solved again for all labels. A call that fails does not change the model.

        Labels are stored with the model, also in model files. Models with linear kernels of few
        features do not store them, because fitting again takes little more time than reading Y.

        Examples
        --------
        >>> import numpy as np
        >>> from rankrls import ConditionalRankRLS
        >>> rng = np.random.default_rng(0)
        >>> X, Z, Y = rng.random((20, 3)), rng.random((15, 2)), rng.random((20, 15))
        >>> ranker = ConditionalRankRLS(kernel="rbf").fit(X[:19], Y[:19], Z)
        >>> ranker = ranker.partial_fit(X[19:], Y[19:])
        >>> same = ConditionalRankRLS(kernel="rbf").fit(X, Y, Z)
        >>> bool(np.allclose(ranker.predict(X, Z), same.predict(X, Z)))
        True
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, Y, Z)
        with unchanged_on_error(self):
            self._refit(*add_labels(self, X, Y, Z))
        return self

    @explained(qid=NO_QUERIES)
    def forget(self, X: Any, Y: Any = None, Z: Any = None) -> Any:
        """Remove labels, or objects with all their labels. The model equals a fit without them.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (p', d), or None
            Row objects of the model.
        Y : array-like, data frame or sparse matrix of shape (p', g'), optional
            Labels to remove, with their original values, and NaN for labels to keep. The objects
            are kept. None: remove the objects X and Z with all their labels.
        Z : array-like, sparse matrix or data frame of shape (g', e), optional
            Column objects of the model. None: with Y, all column objects (the objects of X between
            objects of one kind); without Y, no column objects.

        Returns
        -------
        ConditionalRankRLS or ConditionalRankRLSCV
            The estimator.

        Notes
        -----
        See `partial_fit`.

        Examples
        --------
        >>> import numpy as np
        >>> from rankrls import ConditionalRankRLS
        >>> rng = np.random.default_rng(0)
        >>> X, Z, Y = rng.random((20, 3)), rng.random((15, 2)), rng.random((20, 15))
        >>> ranker = ConditionalRankRLS(kernel="rbf").fit(X, Y, Z).forget(X[19:])
        >>> same = ConditionalRankRLS(kernel="rbf").fit(X[:19], Y[:19], Z)
        >>> bool(np.allclose(ranker.predict(X, Z), same.predict(X, Z)))
        True
        """
        check_is_fitted(self)
        with unchanged_on_error(self):
            self._refit(
                *(remove_objects(self, X, Z) if Y is None else remove_labels(self, X, Y, Z))
            )
        return self

    def _refit(self, rows: Objects, columns: Objects | None, observations: Observations) -> None:
        """Fit to changed objects or labels, with the same alpha and kernel weights."""
        self._check_labels(observations)
        free = self._free()
        rows = rows.given(observations, free)
        columns = None if columns is None else columns.given(observations.T, free.T)
        problem = self._problem(rows, columns, observations)
        self._require_functions(problem)
        alphas = self._check_alpha(self._alpha)
        model = self._solve(problem, alphas, Progress(type(self).__name__, self.verbose))
        self._name_kernel_columns(rows, "feature_names_in_")
        if self._two_domains:
            assert columns is not None
            self._name_kernel_columns(columns, "object_feature_names_in_")
        self._store(rows, columns, observations, model, self._alpha, self._two_domains)
        self._warn_of_lost_digits(problem, model, self._alpha)

    def _name_kernel_columns(self, objects: Objects, attribute: str) -> None:
        """Update the number and the names of the columns of a precomputed kernel matrix."""
        if not objects.kernel.precomputed:
            return
        if attribute == "feature_names_in_":
            self.n_features_in_ = objects.X.shape[1]
        if self.__dict__.pop(attribute, None) is not None and objects.names is not None:
            setattr(self, attribute, objects.names)

    # ------------------------------------------------------------------ predicting

    @explained(qid=NO_QUERIES)
    def predict(self, X: Any, Z: Any = None, *, return_std: bool = False) -> Any:
        """Predict scores of all pairs of a row object and a column object.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (p', d)
            Row objects, known or new. If the kernel is precomputed, their kernel values with all
            training row objects.
        Z : array-like or sparse matrix of shape (g', e), optional
            Column objects, known or new. None: the objects of X, if the model was fitted on
            objects of one kind.
        return_std : bool, default=False
            Whether to also return posterior standard deviations. The model is interpreted as a
            Gaussian process of f (and the offset of all pairs), with the pairwise kernel as
            covariance and alpha as noise variance. Complete relations need one more decomposition
            of the kernels. Incomplete relations need a system over the observed pairs, of which
            there may be up to 3000. Available for ``pairwise="kronecker"`` without a ``relation``
            and without offsets of rows or columns.

        Returns
        -------
        ndarray of shape (p', g')
            Scores; higher is preferred. With ``condition_on="rows"`` each row ranks the columns.
            For the ranking loss, scores of different rows are not comparable.
        std : ndarray of shape (p', g')
            Standard deviations. Only returned if ``return_std=True``.
        """
        check_is_fitted(self)
        scores = self._predict_all(X, Z, self._table()[None], self._stored_offsets())[0]
        if not check_return_std(return_std):
            return scores
        X, _, Z = self._check_new(X, Z)
        rows, columns = self._rows, self._ranked
        points = CellPoints(rows.values(X), columns.values(Z), rows.paired(X), columns.paired(Z))
        if self.condition_on == "columns":
            points = CellPoints(points.right, points.left, points.right_prior, points.left_prior)
        return scores, self._oriented(np.sqrt(self._variances(points)))

    def preference_proba(self, given: Any, first: Any, second: Any) -> Array:
        """Predict the probability that ``first`` is ranked above ``second``.

        Parameters
        ----------
        given : array-like of shape (n, d)
            Conditioning objects, known or new: rows of X (of Z, if ``condition_on="columns"``).
        first, second : array-like of shape (m, e)
            Objects to rank, known or new, compared row by row.

        Returns
        -------
        ndarray of shape (n, m)
            Φ(μ/√v) with the posterior mean μ and variance v of the difference of the two scores,
            without noise (see ``predict(return_std=True)``). Indistinguishable objects have
            probability ½.
        """
        check_is_fitted(self)
        by_rows = self.condition_on == "rows"

        def checked(other: Any) -> tuple[Any, Any]:
            X, _, Z = self._check_new(*((given, other) if by_rows else (other, given)))
            return (X, Z) if by_rows else (Z, X)

        (x, a), (_, b) = checked(first), checked(second)
        if a.shape[0] != b.shape[0]:
            raise ValueError(
                f"first has {a.shape[0]} row(s) and second {b.shape[0]}: they are compared row "
                "by row"
            )
        table, offsets = self._table()[None], self._stored_offsets()
        means = [
            self._predict_all(*((given, other) if by_rows else (other, given)), table, offsets)[0]
            for other in (first, second)
        ]
        difference = means[0] - means[1]
        difference = difference if by_rows else difference.T
        lists, ranked = (self._rows, self._ranked) if by_rows else (self._ranked, self._rows)
        prior = ranked.paired(a) + ranked.paired(b) - 2 * ranked.paired(a, b)
        points = CellPoints(
            lists.values(x),
            ranked.values(a) - ranked.values(b),
            lists.paired(x),
            np.maximum(prior, 0.0),
            level=0.0,
        )
        variance = self._variances(points)
        z = np.where(difference > 0, np.inf, np.where(difference < 0, -np.inf, 0.0))
        np.divide(difference, np.sqrt(variance), out=z, where=variance > 0)
        return ndtr(z)

    def _variances(self, points: CellPoints) -> Array:
        """Compute posterior variances, with conditioning objects as rows."""
        free = self._free()
        kept = free if self.condition_on == "rows" else free.T
        if self.pairwise != "kronecker":
            raise ValueError(
                f"uncertainties are there for pairwise='kronecker', not for {self.pairwise!r}"
            )
        if self.relation is not None or kept.columns or (kept.rows and self.loss != "ranking"):
            raise ValueError(
                "uncertainties are there for relations without symmetry (relation=None) and "
                "without offsets of rows or columns (fit_offsets=False or True)"
            )
        if not hasattr(self, "_noise"):
            raise ValueError(
                "uncertainties need a squared loss and a complete relation, or one of at most "
                f"{MAX_CELLS} observed pairs, fitted without early_stopping"
            )
        p, g = len(self._rows), len(self._ranked)
        observations = Observations.from_matrix(np.zeros((p, g)))
        if hasattr(self, "_observed"):
            rows, cols = np.divmod(self._observed, g)
            observations = Observations(rows, cols, np.zeros(len(rows)), (p, g))
        columns = self._columns if self._columns is None else self._columns.stored()
        problem = self._problem(self._rows.stored(), columns, observations)
        return cell_variances(problem, self._noise, points)

    def _stored_offsets(self) -> list[FittedOffsets] | None:
        if not hasattr(self, "offset_"):
            return None
        return [FittedOffsets(self.offset_, self.row_offsets_, self.column_offsets_)]

    def _table(self) -> Array:
        """Coefficients of kernel values, or of features on explicit sides."""
        return self._weights if hasattr(self, "_weights") else self.dual_coef_

    @cached_property
    def dual_coef_(self) -> Array:
        """The coefficients A of f(x, z) = k_xᵀ A g_z, shape (p, g).

        They are computed on first access if predictions use weights of features.
        """
        check_is_fitted(self)
        return self._left_factor @ self._right_factor.T

    @property
    def _explicit(self) -> tuple[bool, bool]:
        """Whether the rows and columns of `_table` are features instead of training objects."""
        return getattr(self, "_explicit_rows", False), getattr(self, "_explicit_columns", False)

    def _predict_all(
        self, X: Any, Z: Any, tables: Array, offsets: list[FittedOffsets] | None
    ) -> Array:
        """Predict scores for several tables of coefficients (see `_table`), shape (n, p', g')."""
        X, Z_given, Z = self._check_new(X, Z)
        sign = self._pairwise.symmetry or SIGNS[self.relation]
        shape = (len(tables), X.shape[0], Z.shape[0])
        advice = "predict for fewer objects at a time, or some pairs with predict_edges"
        _resources.require("predict", *shape, advice=advice)
        out = np.empty(shape)
        self._warn_of_unknown(X, Z)
        sides = None if self._pairwise.plain else self._side_values(X, Z)
        for scores, A in zip(out, tables, strict=True):
            if sides is None:
                left = self._rows.product(X, A, explicit=self._explicit[0])
                scores[:] = self._ranked.product(Z, left.T, explicit=self._explicit[1]).T
            else:
                scores[:] = self._pairwise.table(*sides, A)
            if sign and not Z_given:
                scores[:] = 0.5 * (scores + sign * scores.T)
        if offsets is not None:
            for scores, fitted in zip(out, offsets, strict=True):
                scores += fitted.constant
                if fitted.rows.any():
                    scores += (X.known @ fitted.rows)[:, None]
                if fitted.columns.any():
                    scores += Z.known @ fitted.columns
        return out

    def _warn_of_unknown(self, X: Others, Z: Others) -> None:
        """Warn of new objects if no kernel describes them."""
        if not self._pairwise.multiplies:
            return  # these rank new objects by the kernel of the other side
        sides = [(self._rows, X)] if Z is X else [(self._rows, X), (self._ranked, Z)]
        for objects, others in sides:
            if not isinstance(objects.kernel, KernelSum) or not objects.kernel.blind:
                continue
            new = int((np.diff(others.known.indptr) == 0).sum())
            if new:
                names = ", ".join(map(repr, dict.fromkeys(objects.kernel.metric)))
                warn(
                    f"{new} of the objects {others.name} are new, and kernel {names} describes "
                    "known objects only: their scores are offsets alone. Add a kernel of features"
                )

    def _side_values(self, X: Any, Z: Any) -> tuple[SideValues, SideValues]:
        """Return kernel values of objects to predict; warn of pairs without a score."""
        sides = []
        for objects, other in ((self._rows, X), (self._ranked, Z)):
            same = other.known if self._pairwise.knows else None
            parts = objects.parts(other) if self._pairwise.several else []
            K = np.sum(parts, axis=0) if parts else objects.values(other)
            sides.append(SideValues(K, same, parts))
        if self._pairwise.knows:
            new = [int((side.same.sum(axis=1) == 0).sum()) for side in sides]
            if all(new):
                warn(
                    f"{new[0]} row and {new[1]} column objects are new: pairwise="
                    f"{self.pairwise!r} says nothing of pairs of two new objects, and their scores "
                    "are equal. Use pairwise='kronecker' for these"
                )
        return sides[0], sides[1]

    def predict_edges(self, X: Any, Z: Any, rows: Any, cols: Any) -> Array:
        """Predict scores of selected pairs.

        Parameters
        ----------
        X, Z : as for `predict`
        rows, cols : array-like of shape (n_edges,), int
            Indices of the pairs: rows of X and rows of Z.

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
        row_numbers, column_numbers = rows, cols
        used, rows = np.unique(rows, return_inverse=True)
        others, cols = np.unique(cols, return_inverse=True)
        self._warn_of_unknown(X, Z)
        if self._pairwise.plain:
            left = self._rows.product(X[used], self._table(), explicit=self._explicit[0])
            right = self._ranked.values(Z[others], explicit=self._explicit[1])
            out = np.zeros(len(rows))
            for start in range(0, len(rows), CHUNK):
                part = slice(start, start + CHUNK)
                out[part] = np.vecdot(left[rows[part]], right[cols[part]])
        else:
            sides = self._side_values(X[used], Z[others])
            out = self._pairwise.at(*sides, self._table(), rows, cols)
        for fitted in self._stored_offsets() or ():
            out += fitted.constant
            if fitted.rows.any():
                out += (X.known @ fitted.rows)[row_numbers]
            if fitted.columns.any():
                out += (Z.known @ fitted.columns)[column_numbers]
        return out

    @property
    def _ranked(self) -> Objects:
        """The training objects of the columns."""
        return self._rows if self._columns is None else self._columns

    def _check_new(self, X: Any, Z: Any) -> tuple[Others, bool, Others]:
        """Check the objects to predict for; also return whether Z was given."""
        rows = self._check_row_objects(X)
        if Z is not None:
            return rows, True, self._check_column_objects(Z)
        if self._two_domains:
            raise ValueError(
                "the model was fitted with Z, objects of another kind than X: pass Z, the "
                "objects to predict for (to rank the objects it was fitted with, their "
                "features; for a precomputed kernel, their kernel matrix)"
            )
        same = self._columns is None
        return rows, False, rows if same else self._ranked.others(rows.X, rows.names)

    def _check_row_objects(self, X: Any) -> Others:
        check_is_fitted(self)
        if one_matrix(self._rows.kernel):  # columns in the order of the training objects
            X = columns_in_order(X, self._rows.names)
        elif _several_matrices(self._rows.kernel, X):
            X = kernels_in_order(X, known=self._rows.names)
        names = _given_names(X)
        X = stacked_kernels(self._rows.kernel, X)
        self._rows.require_columns(X, "X")
        return self._rows.others(self._check_objects(X, reset=False), names)

    def _check_column_objects(self, Z: Any) -> Others:
        check_is_fitted(self)
        columns = self._ranked
        if one_matrix(columns.kernel):
            Z = columns_in_order(Z, columns.names, "Z")
        elif _several_matrices(columns.kernel, Z):
            Z = kernels_in_order(Z, "Z", known=columns.names)
        given = _given_names(Z)
        Z = stacked_kernels(columns.kernel, Z, "Z")
        columns.require_columns(Z, "Z")
        Z = self._check_others(Z)
        if Z.shape[1] != columns.X.shape[1]:
            raise ValueError(
                f"Z has {Z.shape[1]} features, but the model was fitted with {columns.X.shape[1]}"
            )
        return columns.others(Z, given, "Z")

    @property
    def coef_(self) -> Array:
        """The weights W of f(x, z) = xᵀ W z, shape (d, e), for linear kernels."""
        check_is_fitted(self)
        columns = self._ranked
        if not (self._rows.kernel.linear and columns.kernel.linear and self._pairwise.plain):
            raise AttributeError(
                "coef_ exists for linear kernels only, with pairwise='kronecker' or 'two-step'; "
                "see dual_coef_"
            )
        if all(self._explicit):
            return self._table()
        return self._rows.X.T @ (columns.X.T @ self.dual_coef_.T).T

    @explained(qid=NO_QUERIES)
    def score(self, X: Any, Y: Any, Z: Any = None) -> float:
        """Return the mean pairwise accuracy over conditioning objects.

        The pairwise accuracy is 1 − the pairwise ranking error.

        Parameters
        ----------
        X, Z : as for `predict`
        Y : array-like or sparse matrix of shape (p', g')
            Labels, as in ``fit``. Conditioning objects without two different labels are ignored.

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
        return hasattr(self, "solver_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "ranker"
        tags.target_tags.required = True
        tags.target_tags.one_d_labels = False
        tags.target_tags.two_d_labels = True
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = True
        kernels = self.kernel if isinstance(self.kernel, list | tuple) else [self.kernel]
        tags.input_tags.pairwise = sum(_is_name(one, "precomputed") for one in kernels) == 1
        return tags


def _accuracy(y: Array, predictions: Array, rows: Array) -> float:
    """Compute the pairwise accuracy within rows, for early stopping."""
    return 1.0 - float(pairwise_error(y, predictions, qid=rows))


def _is_name(kernel: Any, name: str) -> bool:
    return isinstance(kernel, str) and kernel == name


def _profiled(kernel: Kernel | KernelSum) -> bool:
    return isinstance(kernel, KernelSum) and kernel.profiled


def _several_matrices(kernel: Kernel | KernelSum, X: Any) -> bool:
    """Whether X is a list of precomputed kernel matrices."""
    return kernel.precomputed and not one_matrix(kernel) and isinstance(X, list | tuple)


def _object_names(kernel: Kernel | KernelSum, X: Any) -> Any:
    """Return names of the objects, from the first kernel matrix with names if X is a list."""
    if not _several_matrices(kernel, X):
        return object_names(X, precomputed=kernel.precomputed)
    found = (object_names(part, precomputed=True) for part in X)
    return next(filter(names_anything, found), None)


def _given_names(X: Any) -> Any:
    """Return names of the rows of X, or None."""
    names = row_names(X)
    return names if names_anything(names) else None


def _warn_about_columns(kernel: Kernel | KernelSum, X: Any, names: Any = None) -> None:
    if isinstance(kernel, KernelSum) and kernel.featureless:
        return
    if not kernel.precomputed:
        warn_about_columns(X, names=names, scales=isinstance(kernel.metric, str))
