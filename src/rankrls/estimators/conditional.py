"""``ConditionalRankRLS``: rank objects conditioned on another object, known or new."""

from __future__ import annotations

import numbers
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtr
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls import _resources
from rankrls._calls import Progress, all_or_nothing, unchanged_on_error, warn
from rankrls._frames import (
    check_feature_names,
    clear_errors,
    feature_names,
    labels_in_order,
    names_anything,
    row_names,
    table_frame,
    warn_about_columns,
)
from rankrls._relation_labels import FittedOffsets, FreeOffsets, Observations
from rankrls._validation import check_finite_array, check_integer, check_positive, check_rows, show
from rankrls.core.linalg.krylov import IterationOptions
from rankrls.core.relations.incomplete import Validation, hold_out_cells
from rankrls.core.relations.pairwise_kernels import (
    PAIRWISE,
    PairwiseKernel,
    RelationLoss,
    SideValues,
    sampled_products,
)
from rankrls.core.relations.posterior import MAX_CELLS, CellPosterior
from rankrls.core.relations.problem import LOST, SOLVERS, RelationModel, RelationProblem
from rankrls.core.relations.sides import Side
from rankrls.core.relations.squared_hinge import solve_squared_hinge
from rankrls.estimators.objects import KernelSum, NewObjects, Objects, read_kernels, read_objects
from rankrls.estimators.ranker import BaseRanker, check_return_std
from rankrls.estimators.relation_inputs import (
    SIGNS,
    Relation,
    changed_labels,
    check_alpha_pairs,
    check_relation,
    read_relation,
    remove_objects,
    require_labels,
)
from rankrls.metrics import conditional_scores, pairwise_error
from rankrls.rankings import RankTable, as_labels

__all__ = ["ConditionalPath", "ConditionalRankRLS", "ConditionalRanker", "conditional_path"]

Array = NDArray[Any]

#: Offsets of the rows and columns of Y for each value of ``fit_offsets``.
OFFSETS = {
    False: FreeOffsets(),
    True: FreeOffsets(constant=True),
    "global": FreeOffsets(constant=True),
    "rows": FreeOffsets(rows=True),
    "columns": FreeOffsets(columns=True),
    "both": FreeOffsets(rows=True, columns=True),
}
FLOATS = (np.float64, np.float32)
#: Fitted attributes that exist for some models only.
OPTIONAL = (
    *("dual_coef_", "_weights"),
    *("offset_", "row_offsets_", "column_offsets_"),
    *("_fitted_alpha", "_labels", "_posterior"),
    *("best_iteration_", "validation_curve_", "validation_iterations_"),
)


class ConditionalRanker(BaseEstimator):
    """Base class of conditional rankers: all methods but the constructor and ``fit``."""

    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    _warns_of_equal_objects: bool = True

    if TYPE_CHECKING:  # parameters and fitted attributes of the subclasses

        def __getattr__(self, name: str) -> Any: ...

    #: Allowed values of single parameters.
    _choices: ClassVar[dict[str, tuple[Any, ...]]] = {
        "pairwise": tuple(PAIRWISE),
        "relation": ("symmetric", "reciprocal", None),
        "loss": ("ranking", "regression"),
        "condition_on": ("rows", "columns"),
        "fit_offsets": tuple(OFFSETS),
        "solver": SOLVERS,
    }

    _set = BaseRanker._set

    # ------------------------------------------------------------------ options

    def _check_options(self) -> tuple[KernelSum, KernelSum]:
        """Check the parameters, and return the kernels of rows and columns."""
        for name, allowed in self._choices.items():
            value = given = getattr(self, name)
            value = bool(given) if isinstance(given, np.bool_) else given
            if not (isinstance(value, str | bool | None) and value in allowed):
                choices = ", ".join(map(repr, allowed))
                raise ValueError(f"{name} must be one of {choices}; got {show(given)}")
        for name in ("max_iter", "n_iter_no_change"):
            check_integer(name, getattr(self, name), least=1)
        check_positive("tol", self.tol)
        if check_positive("validation_fraction", self.validation_fraction) >= 1:
            raise ValueError(f"validation_fraction must be below 1; got {self.validation_fraction}")
        first, second = kernels = self._kernels()
        loss, pairwise, two_step = self._loss, self._pairwise, self.pairwise == "two-step"
        offsets = OFFSETS[self.fit_offsets]
        early, hinge, paired = self.early_stopping, self.loss == "squared_hinge", self.relation
        functions = {"mlpk": "symmetric", "ranking": "reciprocal"}.get(self.pairwise, paired)
        one_kind = "relation" if paired else "pairwise" if pairwise.one_domain else ""
        weights, profiled = self.object_kernel_weights is not None, first.profiled
        both = loss.free.rows and loss.free.columns
        same = ": it needs the same kernel on both sides"
        labels = ": the labels of an object are in its row and in its column"
        constant = ": add the kernel 'constant' on both sides for an offset"
        impossible: list[tuple[Any, str, str]] = [
            (one_kind and self.object_kernel is not None, f"object_kernel {one_kind}", same),
            (one_kind and weights, f"object_kernel_weights {one_kind}", same),
            (one_kind and profiled, f"kernel {one_kind}", labels),
            (pairwise.several and weights, "object_kernel_weights pairwise", ""),
            (pairwise.several and (profiled or second.profiled), "kernel pairwise", ""),
            (pairwise.several and paired, "pairwise relation", ""),
            (paired != functions and paired, "pairwise relation", f": it is {functions} itself"),
            (any(offsets) and paired, "fit_offsets relation", ""),
            (loss.offsets.columns and early, "fit_offsets early_stopping", ""),
            (pairwise.additive and both, "pairwise fit_offsets", ": nothing is left to learn"),
            (two_step and any(offsets), "pairwise fit_offsets", constant),
            (two_step and hinge, "pairwise loss", ""),
            (two_step and paired and self.loss == "ranking", "pairwise relation loss", ""),
            (two_step and early, "pairwise early_stopping", ""),
            (hinge and early, "loss early_stopping", ""),
            (hinge and (offsets.rows or offsets.columns), "loss fit_offsets", ""),
            (hinge and self.solver == "closed", "loss solver", ""),
        ]
        for wrong, names, hint in impossible:
            if wrong:
                option, *others = (f"{name}={show(getattr(self, name))}" for name in names.split())
                raise ValueError(f"{option} is not for {' and '.join(others)}{hint}")
        return kernels

    def _kernels(self) -> tuple[KernelSum, KernelSum]:
        """Read the kernels of the row and the column objects."""
        read = partial(read_kernels, degree=self.degree, coef0=self.coef0, n_jobs=self.n_jobs)
        kernel, params, weights = self.kernel, self.kernel_params, self.object_kernel_weights
        first = read(kernel, self.kernel_weights, params, "kernel", gamma=self.gamma)
        gamma = self.gamma
        if self.object_kernel is not None:
            kernel, params = self.object_kernel, self.object_kernel_params
            gamma = None if isinstance(params, dict) and "gamma" in params else gamma
        elif self.object_kernel_params is not None:
            raise ValueError("object_kernel_params are those of object_kernel, which is None")
        if self._pairwise.several:
            several = [isinstance(names, list | tuple) for names in (self.kernel, kernel)]
            if not all(several) or len(self.kernel) != len(kernel):
                raise ValueError(
                    "pairwise='pairs' needs lists of kernels of one length, kernel and "
                    f"object_kernel; got {show(self.kernel)} and {show(kernel)}"
                )
            weights = np.ones(len(kernel))
        elif self.object_kernel is None and weights is None:
            return first, first
        return first, read(kernel, weights, params, "object_kernel", gamma=gamma)

    @property
    def _pairwise(self) -> PairwiseKernel:
        return PAIRWISE[self.pairwise]

    @property
    def _loss(self) -> RelationLoss:
        """What is minimised, with conditioning objects as rows."""
        ranking, offsets = self.loss == "ranking", self._oriented(OFFSETS[self.fit_offsets])
        if ranking:  # the ranking loss has row offsets, which include a constant
            offsets = FreeOffsets(columns=offsets.columns)
        return RelationLoss(ranking, SIGNS[self.relation], offsets, self._pairwise)

    def _iteration_options(self, **options: Any) -> IterationOptions:
        return IterationOptions(
            max_iter=self.max_iter, tol=self.tol, patience=self.n_iter_no_change, **options
        )

    def _check_alpha(self, value: Any) -> Array:
        """Return a grid of one alpha, or of one pair of alphas (`check_alpha_pairs`)."""
        iterated = self.early_stopping or self.solver == "cg"
        if iterated and isinstance(value, numbers.Real) and value == 0:
            return np.zeros(1)
        if self.pairwise == "two-step":
            return check_alpha_pairs("alpha", value, single=True, one_alpha=bool(self.relation))
        if isinstance(value, list | tuple | np.ndarray) and np.size(value) == 2:
            raise ValueError(
                f"alpha={show(value)} is a pair, which only pairwise='two-step' takes: give one "
                "number"
            )
        return np.array([check_positive("alpha", value)])

    def _require_squared_loss(self, what: str) -> None:
        if self.loss == "squared_hinge":
            raise ValueError(f"{what} is for loss='ranking' and 'regression', not {self.loss!r}")

    def _turned(self, pair: Any) -> Any:
        """Exchange (row, column) and (conditioning, ranked) objects where they differ."""
        return pair if self.condition_on == "rows" else pair[::-1]

    def _oriented(self, values: Any) -> Any:
        """Exchange (…, conditioning, ranked objects) and (…, rows, columns) of Y."""
        if self.condition_on == "rows":
            return values
        return np.swapaxes(values, -1, -2) if isinstance(values, np.ndarray) else values.T

    def _oriented_alphas(self, alphas: Array) -> Array:
        """Convert pairs of alphas (row, column) to (conditioning, ranked); keep single alphas."""
        return alphas if alphas.ndim == 1 else self._turned(alphas.T).T

    # ------------------------------------------------------------------ reading

    def _read(self, X: Any, Y: Any, Z: Any) -> Relation:
        """Check options, labels, and the objects of both sides."""
        first, second = self._check_options()
        if Z is not None and (self.relation is not None or self._pairwise.one_domain):
            option = "pairwise" if self.relation is None else "relation"
            raise ValueError(
                f"{option}={getattr(self, option)!r} is for objects of one kind, the rows of X: Z "
                "must be None"
            )
        self.__dict__.pop("object_feature_names_in_", None)
        X, names = read_objects(first, X, "X")
        Z, others = (None, names) if Z is None else read_objects(second, Z, "Z")
        Y = labels_in_order(Y, names, others, one_domain=Z is None)
        X = self._check_features(X, "X", reset=True)
        rows, columns = Objects.of(first, X, names, self._pairwise.sees_differences), None
        if Z is not None:
            columns = Objects.of(second, self._check_features(Z, "Z", reset=True), others)
        elif second is not first or second.profiled or self._pairwise.several:
            columns = Objects.of(second, X, names)
        names = getattr(self, "feature_names_in_", None)
        for objects, known in ((rows, names), (columns if Z is not None else None, None)):
            if objects is not None and not (
                objects.kernel.precomputed or objects.kernel.featureless
            ):
                scales = isinstance(objects.kernel.metric, str)
                warn_about_columns(objects.X, names=known, scales=scales)
        n_columns = len(rows if columns is None else columns)
        labels = read_relation(Y, len(rows), n_columns, one_domain=Z is None)
        check_relation(labels, self.relation, noisy=sparse.issparse(Y))
        return self._with_profiles(Relation(rows, columns, labels, Z is not None))

    def _with_profiles(self, relation: Relation) -> Relation:
        """Require something to learn, and compute profile kernels from the labels."""
        rows, columns, labels, _ = relation
        ranking = self.loss == "ranking"
        require_labels(self._oriented(labels), ranking=ranking, condition_on=self.condition_on)
        free = self._oriented(self._loss.free)
        columns = columns if columns is None else columns.given(labels.T, free.T)
        return relation._replace(rows=rows.given(labels, free), columns=columns)

    def _check_features(self, X: Any, name: str, *, reset: bool = False) -> Any:
        """Check features of row or column objects, and their names."""
        options: dict[str, Any] = {"accept_sparse": "csr", "dtype": FLOATS}
        if name == "X":
            with clear_errors(X):
                return validate_data(self, X, reset=reset, **options)
        names = feature_names(X)
        if reset and names is not None:
            self.object_feature_names_in_ = names
        elif not reset:
            attribute = "object_feature_names_in_" if self._two_domains else "feature_names_in_"
            check_feature_names(names, getattr(self, attribute, None), "Z")
        with clear_errors(X, "Z"):
            return check_array(X, input_name="Z", **options)

    def _read_new(self, X: Any, Z: Any, *, fitting: bool = False) -> tuple[NewObjects, NewObjects]:
        """Check the objects to predict for; None is for those of ``fit`` if ``fitting``."""
        if not fitting:
            check_is_fitted(self)
        rows = self._read_objects(X, "X", fitting=fitting)
        if Z is not None or (fitting and (X is None or self._two_domains)):
            return rows, self._read_objects(Z, "Z", fitting=fitting)
        if self._two_domains:
            raise ValueError(
                "the model was fitted with Z, objects of another kind than X: pass Z, the "
                "objects to predict for"
            )
        return rows, rows if self._columns is None else self._columns.new(rows.X, own=rows.own)

    def _read_objects(self, X: Any, name: str, *, fitting: bool = False) -> NewObjects:
        """Check known or new objects of the rows ("X") or of the columns ("Z")."""
        objects, own = self._rows if name == "X" else self._ranked, None
        if X is None and fitting:
            return objects.new(objects.X, name)
        n, shape = len(objects), tuple(getattr(X, "shape", ()))
        # Kernel values with the training objects may be followed by those among the objects.
        if objects.kernel.n_blocks == 1 and len(shape) == 2 and shape[1] == n + shape[0]:
            part = getattr(X, "iloc", X)
            own = check_finite_array(name, part[:, n:], ndim=(2,)).diagonal()
            X = part[:, :n]
        X, _ = read_objects(objects.kernel, X, name, objects)
        X = self._check_features(X, name)
        if X.shape[1] != (width := objects.X.shape[1]):
            raise ValueError(
                f"{name} has {X.shape[1]} features, but the model was fitted with {width}"
            )
        return objects.new(X, name, own)

    def _labels_in_order(self, Y: Any, X: Any, Z: Any) -> Any:
        """Align labels with the objects to predict for."""
        names = None if X is None else row_names(X)
        one_domain = Z is None and X is not None and not getattr(self, "_two_domains", False)
        others = names if one_domain else None if Z is None else row_names(Z)
        return labels_in_order(Y, names, others, one_domain=one_domain)

    # ------------------------------------------------------------------ fitting

    def _problem(
        self, relation: Relation, sides: tuple[Side, Side] | None = None
    ) -> RelationProblem:
        """Build the problem with conditioning objects as rows. Only this method transposes."""
        loss = self._loss
        if sides is None:
            columns, free = relation.columns, self._oriented(loss.free)
            left = relation.rows.side(free)
            sides = left, left if columns is None else columns.side(free.T)
        first, second = self._turned(sides)
        problem = RelationProblem(first, second, self._oriented(relation.labels), loss)
        if loss.sign == -1 and loss.pairwise.plain and len(first.spectrum().range.values) <= 1:
            raise ValueError(
                "relation='reciprocal' leaves no function but f = 0: the kernel matrix of X has "
                "rank one, as that of a linear kernel of a single feature, and antisymmetric "
                "functions need two. Add features (a column of ones is one), or use another kernel"
            )
        return problem

    def _fit_relation(
        self,
        relation: Relation,
        alphas: Array,
        problem: RelationProblem,
        *,
        eval_set: Any = None,
        callback: Any = None,
    ) -> RelationModel:
        """Solve for all ``alphas``, and store the model of the first."""
        progress = Progress(type(self).__name__, self.verbose)
        rows, columns, _, self._two_domains = relation
        self._rows, self._columns = replace(rows), columns and replace(columns)  # no caches
        if callback is not None and not callable(callback):
            raise ValueError(f"callback must be a function of one argument; got {show(callback)}")
        options = self._iteration_options(progress=progress, callback=callback)
        oriented = alphas
        if self.loss == "squared_hinge":
            if callback is not None or eval_set is not None:
                raise ValueError("loss='squared_hinge' takes no callback and no eval_set")
            model = solve_squared_hinge(problem, float(alphas[0]), self.solver, options)
        else:
            oriented = self._oriented_alphas(alphas)
            train, validation = problem, None
            if self.early_stopping or eval_set is not None:
                train, validation = self._validation(problem, eval_set)
            model = train.solve(
                oriented, self.solver, options, validation=validation, progress=progress
            )
        progress("solved")
        self._store(relation.labels, model, alphas[0])
        if self.loss != "squared_hinge" and not self.early_stopping and np.all(alphas):
            error = problem.rounding_error(model, oriented, options)
            if error > LOST:
                warn(
                    f"rounding errors of about {min(error, 1.0):.1g} of the predictions are in the "
                    f"model, which alpha={np.min(alphas):g} does not smooth out: increase alpha, "
                    "or scale features that depend on each other, have very different scales or "
                    "large offsets (StandardScaler)"
                )
        if self._warns_of_equal_objects:
            self._warn_of_equal_objects()
        return model

    def _validation(
        self, problem: RelationProblem, eval_set: Any
    ) -> tuple[RelationProblem, Validation]:
        """Hold out edges for early stopping, or read (X, Y[, Z]); None: the objects of fit."""
        if eval_set is None:
            labels, rng = problem.observations, check_random_state(self.random_state)
            held = hold_out_cells(labels, self.validation_fraction, rng, mirror=problem.paired)
            train = RelationProblem(*problem.sides, labels.select(~held), problem.loss)
            return train, Validation(problem.sides, labels.select(held), _accuracy)
        if not self.early_stopping:
            raise ValueError("eval_set is for early_stopping=True")
        if not isinstance(eval_set, tuple | list) or len(eval_set) not in (2, 3):
            raise ValueError(
                f"eval_set must be (X_val, Y_val) or (X_val, Y_val, Z_val); got {show(eval_set)}"
            )
        X, Y, Z = eval_set if len(eval_set) == 3 else (*eval_set, None)
        Y = self._labels_in_order(Y, X, Z)
        sides = self._side_values(*self._read_new(X, Z, fitting=True))
        one_domain = Z is None and not self._two_domains
        labels = read_relation(Y, len(sides[0]), len(sides[1]), one_domain=one_domain)
        labels = self._oriented(labels)
        require_labels(labels, ranking=True, condition_on=self.condition_on)
        return problem, Validation(self._turned(sides), labels, _accuracy)

    def _store(
        self, labels: Observations, model: RelationModel, alpha: Any, index: int = 0
    ) -> None:
        """Store the model of an alpha, number ``index`` of its grid."""
        for name in OPTIONAL:
            self.__dict__.pop(name, None)
        self._labels = labels.stored()
        table = np.ascontiguousarray(self._oriented(model.tables[index]))
        setattr(self, "_weights" if model.linear else "dual_coef_", table)
        if model.offsets is not None:
            offsets = self._oriented(model.offsets[index])
            self.offset_ = offsets.constant
            self.row_offsets_, self.column_offsets_ = offsets.rows, offsets.columns
        self._fitted_alpha = np.asarray(alpha).tolist()
        self.solver_, self.n_iter_, self.n_edges_ = model.solver, model.n_iter, labels.n_edges
        if model.history is not None:
            self.best_iteration_ = model.history.best_iteration
            self.validation_curve_ = model.history.errors[:, 0]
            self.validation_iterations_ = model.history.iterations

    def _warn_of_equal_objects(self) -> None:
        """Warn of training objects that the model distinguishes but ``predict`` cannot."""
        sides = (self._rows, "row_offsets_", "X"), (self._ranked, "column_offsets_", "Z")
        for objects, attribute, name in sides:
            metrics = [part.metric for weight, part in objects.kernel if weight > 0]
            apart = self._pairwise.knows or "identity" in metrics or "profile" in metrics
            apart = apart or bool(np.any(getattr(self, attribute, 0.0)))
            if apart and (groups := objects.equal()):
                name = name if self._two_domains else "X"
                warn(
                    f"rows {groups[0][0]} and {groups[0][1]} of {name} have equal features, the "
                    f"first of {len(groups)} such groups, and the model tells objects apart (by "
                    "fit_offsets, pairwise, or kernels 'identity' or 'profile'): predict gives "
                    "these objects the mean of what was learned of each, unless its "
                    f"{name} is that of fit. Add a feature that tells them apart"
                )
                if not self._two_domains:
                    return

    # ------------------------------------------------------------------ updating

    def partial_fit(self, X: Any, Y: Any, Z: Any = None) -> Any:
        """Add labels, also of new objects. The model equals a fit to all labels.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (p', d), or None
            Row objects, known or new (not with a precomputed kernel). None: those of the model.
        Y : array-like, data frame or sparse matrix of shape (p', g')
            Labels to add, NaN elsewhere. Pairs must not have a label yet: `forget` it first.
        Z : array-like, sparse matrix or data frame of shape (g', e), optional
            Column objects, known or new. None: those of the model, or the objects of X between
            objects of one kind.

        Returns
        -------
        ConditionalRankRLS or ConditionalRankRLSCV
            The estimator, solved again with the alpha and kernel weights of ``fit``.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, Y, Z)
        with unchanged_on_error(self):
            self._refit(changed_labels(self, X, Y, Z, forget=False))
        return self

    def forget(self, X: Any, Y: Any = None, Z: Any = None) -> Any:
        """Remove labels, or objects with all their labels. The model equals a fit without them.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (p', d), or None
            Row objects of the model.
        Y : array-like, data frame or sparse matrix of shape (p', g'), optional
            Labels to remove, with their original values, and NaN for labels to keep. None: remove
            the objects X and Z with all their labels.
        Z : array-like, sparse matrix or data frame of shape (g', e), optional
            Column objects of the model. None: with Y, all (the objects of X between objects of one
            kind); without Y, none.

        Returns
        -------
        ConditionalRankRLS or ConditionalRankRLSCV
            The estimator.
        """
        check_is_fitted(self)
        with unchanged_on_error(self):
            if Y is None:
                self._refit(remove_objects(self, X, Z))
            else:
                self._refit(changed_labels(self, X, Y, Z, forget=True))
        return self

    def _refit(self, relation: Relation) -> None:
        """Fit to changed objects or labels, with the same alpha and kernel weights."""
        relation = self._with_profiles(relation)
        alphas = self._check_alpha(self._fitted_alpha)
        self._fit_relation(relation, alphas, self._problem(relation))

    # ------------------------------------------------------------------ predicting

    def predict(self, X: Any, Z: Any = None, *, return_std: bool = False) -> Any:
        """Predict scores of all pairs of a row object and a column object.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (p', d)
            Row objects, known or new; kernel values with the training objects if precomputed.
        Z : array-like or sparse matrix of shape (g', e), optional
            Column objects, known or new. None: the objects of X, between objects of one kind.
        return_std : bool, default=False
            Also return standard deviations of a Gaussian process with the noise variance alpha:
            for ``pairwise="kronecker"`` without a ``relation`` and offsets of rows or columns, on
            complete relations or up to 3000 observed pairs. New objects of a precomputed kernel
            need their kernel values among themselves, as further columns of X or Z.

        Returns
        -------
        ndarray of shape (p', g')
            Scores; higher is preferred. For the ranking loss, scores of different conditioning
            objects are not comparable.
        std : ndarray of shape (p', g')
            Standard deviations. Only returned if ``return_std=True``.
        """
        return_std = check_return_std(return_std)
        rows, columns = self._read_new(X, Z)
        scores = self._scores(rows, columns, same=Z is None)
        if not return_std:
            return scores
        both = self._turned(((self._rows, rows), (self._ranked, columns)))
        sides = ((side.values(new), side.paired(new)) for side, new in both)
        return scores, self._oriented(np.sqrt(self._posterior.variances(*sides)))

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
            Φ(μ/√v) with the posterior mean μ and variance v of the difference of the two scores
            (see ``predict(return_std=True)``).
        """
        pairs = [self._read_new(*self._turned((given, ranked))) for ranked in (first, second)]
        scores = [self._oriented(self._scores(*pair)) for pair in pairs]
        (x, a), (_, b) = map(self._turned, pairs)
        if a.shape[0] != b.shape[0]:
            raise ValueError(
                f"first has {a.shape[0]} row(s) and second {b.shape[0]}: they are compared row "
                "by row"
            )
        difference = scores[0] - scores[1]
        lists, ranked = self._turned((self._rows, self._ranked))
        prior = np.maximum(ranked.paired(a) + ranked.paired(b) - 2 * ranked.paired(a, b), 0.0)
        values = ranked.values(a) - ranked.values(b)
        left = lists.values(x), lists.paired(x)
        variance = self._posterior.variances(left, (values, prior), level=0.0)
        z = np.where(difference > 0, np.inf, np.where(difference < 0, -np.inf, 0.0))
        np.divide(difference, np.sqrt(variance), out=z, where=variance > 0)
        return ndtr(z)

    @cached_property
    def _posterior(self) -> CellPosterior:
        """The posterior of the observed pairs, with conditioning objects as rows."""
        loss, shape = self._loss, (len(self._rows), len(self._ranked))
        # Files have no labels of complete relations of few features; variances need none.
        labels = getattr(self, "_labels", None) or Observations.complete(np.zeros(shape))
        full = labels.n_edges >= np.prod(labels.shape) and labels.block(ranking=False) is not None
        squared = self.loss != "squared_hinge" and not self.early_stopping
        plain = self.pairwise == "kronecker" and not (
            loss.sign or loss.offsets.rows or loss.offsets.columns
        )
        noise = float(self._fitted_alpha) if plain and squared else 0.0
        if not (noise > 0 and (full or labels.n_edges <= MAX_CELLS)):
            raise ValueError(
                "uncertainties are there for pairwise='kronecker', without symmetry "
                "(relation=None) and without offsets of rows or columns, for a squared loss with "
                f"alpha > 0 on a complete relation or at most {MAX_CELLS} observed pairs, fitted "
                "without early_stopping"
            )
        columns = self._columns and replace(self._columns)
        problem = self._problem(Relation(replace(self._rows), columns, labels, self._two_domains))
        return CellPosterior(problem, noise)

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_posterior"}

    @property
    def _ranked(self) -> Objects:
        """The training objects of the columns."""
        return self._rows if self._columns is None else self._columns

    @property
    def _fitted(self) -> tuple[Array, FittedOffsets | None]:
        """Coefficients of features, or else of kernel values, and offsets."""
        table = self._weights if hasattr(self, "_weights") else self.dual_coef_
        if not hasattr(self, "offset_"):
            return table, None
        return table, FittedOffsets(self.offset_, self.row_offsets_, self.column_offsets_)

    @cached_property
    def dual_coef_(self) -> Array:
        """The coefficients A of f(x, z) = k_xᵀ A g_z, shape (p, g).

        They are computed on first access if predictions use weights of features.
        """
        check_is_fitted(self)
        left, right = (
            np.linalg.pinv(X.toarray() if sparse.issparse(X) else X)
            for X in (self._rows.X, self._ranked.X)
        )
        return left.T @ self._weights @ right

    def _scores(self, X: NewObjects, Z: NewObjects, *, same: bool = False) -> Array:
        """Scores of all pairs, shape (p', g'); symmetric if X and Z are the ``same`` objects."""
        table, offsets = self._fitted
        advice = "predict for fewer objects at a time, or some pairs with predict_edges"
        _resources.require("predict", X.shape[0], Z.shape[0], advice=advice)
        self._warn_of_unknown(X, Z)
        if self._pairwise.plain:
            explicit = hasattr(self, "_weights")
            (lists, x), (ranked, z) = self._turned(((self._rows, X), (self._ranked, Z)))
            images = lists.values(x, self._oriented(table), explicit=explicit)
            scores = self._oriented(ranked.values(z, images.T, explicit=explicit).T)
        else:
            scores = self._pairwise.table(*self._side_values(X, Z), table)
        sign = self._pairwise.symmetry or SIGNS[self.relation]
        scores = 0.5 * (scores + sign * scores.T) if sign and same else np.ascontiguousarray(scores)
        rows, columns = _offset_parts(offsets, X, Z)
        scores += rows[:, None] + columns
        return scores

    def _warn_of_unknown(self, X: NewObjects, Z: NewObjects) -> None:
        """Warn of new objects that no kernel describes, or pairs of two new objects."""
        sides = [(self._rows, X)] if Z is X else [(self._rows, X), (self._ranked, Z)]
        for objects, new in sides if self._pairwise.multiplies else ():
            if objects.kernel.blind and (n_new := int(new.unknown.sum())):
                names = ", ".join(map(repr, dict.fromkeys(objects.kernel.metric)))
                warn(
                    f"{n_new} of the objects {new.name} are new, and kernel {names} describes "
                    "known objects only: their scores are offsets alone. Add a kernel of features"
                )
        if self._pairwise.knows and X.unknown.any() and Z.unknown.any():
            warn(
                f"{X.unknown.sum()} row and {Z.unknown.sum()} column objects are new: pairwise="
                f"{self.pairwise!r} says nothing of pairs of two new objects, and their scores "
                "are equal. Use pairwise='kronecker' for these"
            )

    def _side_values(self, X: NewObjects, Z: NewObjects) -> tuple[SideValues, SideValues]:
        """Return kernel values of objects to predict."""
        sides = []
        for objects, new in ((self._rows, X), (self._ranked, Z)):
            parts = list(objects.parts(new)) if self._pairwise.several else []
            K = np.sum(parts, axis=0) if parts else objects.values(new)
            sides.append(SideValues(K, new.known if self._pairwise.knows else None, parts))
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
        X, Z = self._read_new(X, Z)
        rows = check_rows("rows", rows, X.shape[0], distinct=False)
        cols = check_rows("cols", cols, Z.shape[0], distinct=False)
        if len(rows) != len(cols):
            raise ValueError(f"rows has {len(rows)} entries and cols has {len(cols)}")
        if not len(rows):
            return np.zeros(0)
        self._warn_of_unknown(X, Z)
        (used, rows), (others, cols) = (np.unique(k, return_inverse=True) for k in (rows, cols))
        X, Z = X[used], Z[others]
        table, offsets = self._fitted
        if self._pairwise.plain:
            explicit = hasattr(self, "_weights")
            (lists, x), (ranked, z) = self._turned(((self._rows, X), (self._ranked, Z)))
            images = lists.values(x, self._oriented(table), explicit=explicit)
            left, right = self._turned((images, ranked.values(z, explicit=explicit)))
            out = sampled_products(left, right, rows, cols)
        else:
            out = self._pairwise.at(*self._side_values(X, Z), table, rows, cols)
        first, second = _offset_parts(offsets, X, Z)
        return out + first[rows] + second[cols]

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
        if hasattr(self, "_weights"):
            return self._weights
        return self._rows.X.T @ (columns.X.T @ self.dual_coef_.T).T

    def score(self, X: Any, Y: Any, Z: Any = None) -> float:
        """Return the mean pairwise accuracy over conditioning objects.

        Parameters
        ----------
        X, Z : as for `predict`
        Y : array-like or sparse matrix of shape (p', g')
            Labels, as in ``fit``. Conditioning objects without two different labels are ignored.

        Returns
        -------
        float
        """
        Y, scores = self._labels_in_order(Y, X, Z), self.predict(X, Z)
        values = conditional_scores(Y, scores, condition_on=self.condition_on)
        if np.isnan(values).all():
            raise ValueError(
                f"there is nothing to evaluate: no {self.condition_on[:-1]} of Y has two observed "
                "pairs with different labels"
            )
        return float(np.nanmean(values))

    def predict_frame(
        self, X: Any, Z: Any = None, *, row_names: Any = None, column_names: Any = None
    ) -> Any:
        """Scores of all pairs as a data frame, with the names of the objects.

        Parameters
        ----------
        X, Z : as for `predict`
        row_names, column_names : array-like of shape (p',) and (g',), optional
            Names of the objects. None: the index of a data frame, or their numbers.

        Returns
        -------
        pandas.DataFrame of shape (p', g')
        """
        scores = self.predict(X, Z)
        rows, columns = _both_names(X, Z, row_names, column_names, scores.shape)
        return table_frame(scores, rows, columns)

    def rank(
        self,
        X: Any,
        Z: Any = None,
        *,
        k: int | None = None,
        seen: Any = None,
        row_names: Any = None,
        column_names: Any = None,
    ) -> RankTable:
        """The ranked objects of every conditioning object, the best first, with names.

        Parameters
        ----------
        X, Z : as for `predict`
        k : int, optional
            Keep the first ``k`` of every list. None: all.
        seen : array-like, data frame or sparse matrix of shape (p', g'), optional
            Labels as for ``fit``: pairs that have one are left out.
        row_names, column_names : array-like of shape (p',) and (g',), optional
            Names of the objects. None: the index of a data frame, or their numbers.

        Returns
        -------
        RankTable
            Columns query (the conditioning object), rank, id and score. Objects of equal scores
            keep their order.
        """
        scores = self.predict(X, Z)
        lists, ranked = _both_names(X, Z, row_names, column_names, scores.shape)
        left_out = None if seen is None else self._oriented(_mask(seen, X, Z, scores.shape))
        names = self._turned((lists, ranked))
        return RankTable.from_lists(self._oriented(scores), *names, k=k, left_out=left_out)

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
        precomputed = [isinstance(one, str) and one == "precomputed" for one in kernels]
        tags.input_tags.pairwise = sum(precomputed) == 1
        return tags


class ConditionalRankRLS(ConditionalRanker):
    """Learn rankings of objects conditioned on another object, from a relation between them.

    The label Y_ij says how much object j is preferred given object i: how well document j
    matches query i, how strongly drug i binds target j. The score f(x, z) of two objects, known or
    new, is learned from their features. It minimises

        Σ_i Σ_j (y_ij − f(x_i, z_j) − c_i)² + alpha ‖f‖²

    over the observed pairs, in the space of the kernel k(x, x') g(z, z'). The ranking loss gives
    every conditioning object i a free offset c_i, so that only score differences within its list
    matter. Regression has c_i = 0. ``fit_offsets`` adds further offsets.

    Parameters
    ----------
    alpha : float or tuple of float, default=1.0
        Regularisation strength, > 0; a pair (row, column) for ``pairwise="two-step"``. It may be 0
        if the number of iterations regularises: with early stopping or ``solver="cg"``.
    kernel : str, callable or list of these, default="linear"
        Kernel of the row objects: a name of scikit-learn's `pairwise_kernels`, a function of two
        rows, "precomputed" (X is the kernel matrix, or a list of several), "identity", "profile"
        (similar observed labels) or "constant". The kernels of a list are divided by their mean
        k(x, x) and summed.
    object_kernel : str, callable or list of these, optional
        Kernel of the column objects. None: ``kernel`` with the same parameters.
    gamma, degree, coef0 : float
        Parameters of the kernels that have them (``gamma=None``: 1/n_features, and 1 for chi2).
    kernel_params, object_kernel_params : dict or list of dict, optional
        Further parameters of ``kernel`` and of ``object_kernel``, or of each of several kernels.
    kernel_weights, object_kernel_weights : array-like of shape (n_kernels,), optional
        Weights of several kernels, ≥ 0. None: equal weights that sum to one.
    pairwise : {"kronecker", "cartesian", "additive", "polynomial", "mlpk", "ranking", \
"pairs", "two-step"}, default="kronecker"
        The kernel of pairs, computed from k and g: see the guide. "two-step", a regression over
        the columns followed by one over the rows, needs a complete Y; "mlpk" and "ranking" need
        objects of one kind.
    relation : {None, "symmetric", "reciprocal"}, default=None
        Known symmetry between objects of one kind: f(x, z) = f(z, x), or f(x, z) = −f(z, x).
        A dense Y must have it. Entries of a sparse Y are separate observations.
    loss : {"ranking", "regression", "squared_hinge"}, default="ranking"
        "squared_hinge" is Σ max(0, 1 − y f)², a support vector machine for labels −1 and 1.
    condition_on : {"rows", "columns"}, default="rows"
        "rows": each row of Y ranks the columns. "columns": each column of Y ranks the rows.
    fit_offsets : bool or {"global", "rows", "columns", "both"}, default=False
        Offsets that are not regularised: one for all pairs (True, "global"), for each row of Y, for
        each column, or both. A new object has the mean offset. Not with a ``relation``, and with
        "squared_hinge" only one for all pairs.
    solver : {"auto", "closed", "primal", "dual", "cg"}, default="auto"
        "closed" decomposes both kernels of a complete relation. "primal" factorises a system over
        products of features (linear kernels), "dual" one over the observed pairs. "cg" iterates.
        "auto" is the first that applies, "dual" up to 2000 observed pairs.
    max_iter : int, default=200
        Maximum number of iterations of "cg".
    tol : float, default=1e-6
        Relative accuracy of the scores of "cg"; a `ConvergenceWarning` if it is not reached.
    early_stopping : bool, default=False
        Stop "cg" when the pairwise error of held-out edges (or of ``eval_set``, see `fit`) has not
        improved for ``n_iter_no_change`` iterations, and keep the best model.
    validation_fraction : float, default=0.1
        Approximate fraction of the pairs to hold out for early stopping.
    n_iter_no_change : int, default=10
        Number of iterations without improvement after which early stopping ends training.
    random_state : int, RandomState instance or None
        Controls the choice of held-out edges.
    verbose : int, default=0
        1: print progress to stderr.
    n_jobs : int, optional
        Passed on to `pairwise_kernels`.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (p, g)
        The coefficients A of f(x, z) = k_xᵀ A g_z with kernel values k_x and g_z.
    coef_ : ndarray of shape (d, e)
        The weights W of f(x, z) = xᵀ W z, for linear kernels with "kronecker" or "two-step".
    solver_, n_iter_, n_edges_
        The solver that was used, its iterations, and the number of observed labels.
    offset_, row_offsets_, column_offsets_
        The offset added to all scores, and those of known objects, with mean zero.
    best_iteration_, validation_curve_, validation_iterations_
        The iteration selected by early stopping, the validation errors, and their iterations.
    n_features_in_, feature_names_in_, object_feature_names_in_
        Number and names of the columns of X, and names of those of Z.

    See Also
    --------
    ConditionalRankRLSCV : Chooses alpha by exact cross-validation.
    rankrls.metrics.conditional_scores : Metrics for each conditioning object.

    Notes
    -----
    "identity", "profile" and offsets of rows and columns identify objects by their features (or
    kernel values). The profile of an object is its row (column) of labels minus the offsets of the
    model; profiles never contain held-out labels.

    References
    ----------
    Pahikkala, Airola, Stock, De Baets, Waegeman, *Efficient regularized least-squares algorithms
    for conditional ranking on relational data*, Machine Learning 93 (2013).

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import ConditionalRankRLS
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])              # three users
    >>> Z = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0]])  # four items
    >>> Y = np.array([[3, 0, 3, np.nan], [0, 3, 3, 0], [np.nan, 3, 6, 6]])  # ratings
    >>> ranker = ConditionalRankRLS(alpha=0.01).fit(X, Y, Z)
    >>> ranker.predict(np.array([[2.0, 1.0]]), Z).argsort()[0, ::-1]    # items for a new user
    array([3, 2, 0, 1])
    """

    _choices: ClassVar[dict[str, tuple[Any, ...]]] = {
        **ConditionalRanker._choices,
        "loss": ("ranking", "regression", "squared_hinge"),
        "early_stopping": (False, True),
    }

    def __init__(
        self,
        alpha: Any = 1.0,
        *,
        kernel: Any = "linear",
        object_kernel: Any = None,
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Any = None,
        object_kernel_params: Any = None,
        kernel_weights: Any = None,
        object_kernel_weights: Any = None,
        pairwise: str = "kronecker",
        relation: str | None = None,
        loss: str = "ranking",
        condition_on: str = "rows",
        fit_offsets: bool | str = False,
        solver: str = "auto",
        max_iter: int = 200,
        tol: float = 1e-6,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        random_state: Any = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self._set(locals())

    @all_or_nothing
    def fit(
        self, X: Any, Y: Any, Z: Any = None, *, eval_set: Any = None, callback: Any = None
    ) -> ConditionalRankRLS:
        """Fit the model.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (p, d)
            The objects of Y's rows; their kernel matrix (p, p) if ``kernel="precomputed"``.
        Y : array-like, data frame or sparse matrix of shape (p, g)
            Labels; higher is preferred, and NaN marks unobserved pairs. The stored entries of a
            sparse matrix are observed, including explicit zeros. Repeated entries of a COO matrix
            are separate observations.
        Z : array-like, sparse matrix or data frame of shape (g, e), optional
            The objects of Y's columns. None: the same objects as X.
        eval_set : tuple (X_val, Y_val) or (X_val, Y_val, Z_val), optional
            Objects and labels whose ranking decides when early stopping ends, instead of held-out
            edges. The objects may be known or new on either side; None stands for those of
            ``fit``. All labels of Y are used for training.
        callback : function, optional
            Called after every iteration of solver "cg" with an `Iteration` (n_iter, residual,
            error, best_error, best_iteration); a true value ends training.

        Returns
        -------
        ConditionalRankRLS
            The fitted estimator.

        Notes
        -----
        Names of rows and columns of pandas data frames align Y with X and Z, and the columns of a
        kernel matrix with its rows. Different names are an error. A `RangeIndex` has no names.
        """
        alphas, relation = self._check_alpha(self.alpha), self._read(X, Y, Z)
        problem = self._problem(relation)
        self._fit_relation(relation, alphas, problem, eval_set=eval_set, callback=callback)
        return self


@dataclass(frozen=True)
class ConditionalPath:
    """Models for a grid of alphas.

    Attributes
    ----------
    alphas : ndarray of shape (n_alphas,)
    models : list of ConditionalRankRLS
        The fitted model of every alpha.
    """

    alphas: Array
    models: list[ConditionalRankRLS]

    @property
    def solver(self) -> str:
        """The solver that was used."""
        return self.models[0].solver_

    @property
    def dual_coef(self) -> Array:
        """A of f(x, z) = k_xᵀ A g_z for every alpha, shape (n_alphas, p, g)."""
        return np.stack([model.dual_coef_ for model in self.models])

    def predict(self, X: Any, Z: Any = None) -> Array:
        """Scores for every alpha, shape (n_alphas, p', g'); arguments as for the estimator."""
        return np.stack([model.predict(X, Z) for model in self.models])


def conditional_path(
    estimator: ConditionalRankRLS, X: Any, Y: Any, Z: Any, alphas: Array
) -> ConditionalPath:
    """Fit for all alphas > 0; two-step has them on both sides."""
    if estimator.early_stopping:
        raise ValueError("early_stopping chooses an iteration for one alpha: there is no path")
    estimator._require_squared_loss("a path of alphas")
    ranker = clone(estimator)
    two_step = ranker.pairwise == "two-step"
    grid = check_alpha_pairs("alphas", alphas) if two_step else alphas
    relation = ranker._read(X, Y, Z)
    model = ranker._fit_relation(relation, grid, ranker._problem(relation))
    models = [copy(ranker) for _ in grid]
    for index, one in enumerate(models):
        one._store(relation.labels, model, grid[index], index)
    return ConditionalPath(alphas, models)


def _accuracy(y: Array, predictions: Array, rows: Array) -> float:
    """Compute the pairwise accuracy within rows, for early stopping."""
    return 1.0 - float(pairwise_error(y, predictions, qid=rows))


def _offset_parts(
    offsets: FittedOffsets | None, X: NewObjects, Z: NewObjects
) -> tuple[Array, Array]:
    """Offsets of row objects, with the constant, and of column objects; new ones have none."""
    rows, columns = np.zeros(X.shape[0]), np.zeros(Z.shape[0])
    if offsets is not None:
        rows += offsets.constant
        if offsets.rows.any():
            rows += X.known @ offsets.rows
        if offsets.columns.any():
            columns += Z.known @ offsets.columns
    return rows, columns


def _both_names(
    X: Any, Z: Any, rows: Any, columns: Any, shape: tuple[int, ...]
) -> tuple[Array, Array]:
    """Names of the rows and of the columns of a table of scores."""
    both = []
    for argument, given, data, n in (
        ("row_names", rows, X, shape[0]),
        ("column_names", columns, X if Z is None else Z, shape[1]),
    ):
        index = row_names(data)
        names = np.asarray(index) if names_anything(index) else np.arange(n)
        names = names if given is None else as_labels(given)
        if names.shape != (n,):
            raise ValueError(
                f"{argument} must be {n} names, one for each object; got {show(given)}"
            )
        both.append(names)
    return both[0], both[1]


def _mask(seen: Any, X: Any, Z: Any, shape: tuple[int, ...]) -> Array:
    """Which pairs have a label."""
    rows = row_names(X)
    seen = labels_in_order(seen, rows, rows if Z is None else row_names(Z), one_domain=Z is None)
    labels = Observations.read(seen, "seen")
    if labels.shape != shape:
        raise ValueError(f"seen has shape {labels.shape} for scores of shape {shape}")
    mask = np.zeros(shape, dtype=bool)
    mask[labels.lists[:2]] = True
    return mask
