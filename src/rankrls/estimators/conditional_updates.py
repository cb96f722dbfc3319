"""Add labels and objects to a fitted conditional ranker, or remove them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from rankrls._calls import Progress, explained, unchanged_on_error
from rankrls._frames import (
    clear_errors,
    columns_in_order,
    labels_in_order,
    names_anything,
    row_names,
)
from rankrls.core.relations.observations import Observations
from rankrls.core.relations.relation_problem import RelationModel, RelationProblem
from rankrls.core.relations.side_kernels import KernelSum
from rankrls.core.relations.sides import Side
from rankrls.core.relations.updates import ChangedSide, solve_changed
from rankrls.core.spaces.spaces import Kernel, check_gram
from rankrls.estimators.conditional_base import LOSSES, NO_QUERIES, ConditionalRanker, one_matrix
from rankrls.estimators.objects import Objects, Others
from rankrls.estimators.relation_inputs import check_relation, read_relation

__all__ = ["UpdatableRanker"]

Array = NDArray[Any]

#: Relative difference of kernel weights that is attributed to rounding errors.
SAME = 1e-13


@dataclass(frozen=True)
class Changes:
    """Changes of one side of a relation since its kernel matrix was decomposed.

    Attributes
    ----------
    ever : Objects
        The objects of ``side.matrix``, including removed ones.
    side : ChangedSide or None
        The changed side. None: it is created from all objects when needed.
    """

    ever: Objects
    side: ChangedSide | None = None

    @property
    def objects(self) -> Objects:
        """The present objects."""
        if self.side is None or len(self.side) == len(self.ever):
            return self.ever
        return self.ever.only(self.side.present)

    @property
    def settled(self) -> Side | None:
        """The side if its objects have not changed, otherwise None."""
        unchanged = self.side is not None and not self.side.n_changes
        return self.side.base if self.side is not None and unchanged else None


@dataclass(frozen=True)
class Located:
    """Objects of an update: their indices in the model, and the features of new objects.

    Attributes
    ----------
    places : ndarray of shape (n',), int
        Indices of the objects. New objects follow the known ones.
    new : Others, or None
    """

    places: Array
    new: Others | None = None


class UpdatableRanker(ConditionalRanker):
    """A conditional ranker with `partial_fit` and `forget`."""

    fit: Callable[..., Any]
    _changed: tuple[Changes, Changes]

    @property
    @abstractmethod
    def _alpha(self) -> Any:
        """The alpha of the model, or its pair of alphas for two-step."""

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

        The decompositions of the kernel matrices are kept if all but a few pairs are observed, with
        ``pairwise="kronecker"``, without a ``relation`` and between two kinds of objects. The
        first call then costs about as much as ``fit``, and later calls cost a few matrix products
        as long as few objects have changed. All other models are solved again, with the kernel
        matrices of unchanged sides. The kernel "profile" depends on the labels, so that nothing
        can be kept. A call that fails does not change the model.

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
            labels = self._known_labels("partial_fit")
            Y, rows, columns = self._read_update(X, Y, Z)
            observations = _joined(labels, Y, rows, columns, self._shape_with(rows, columns))
            self._grow(rows, columns, observations)
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
            labels = self._known_labels("forget")
            if Y is None:
                self._remove(labels, X, Z)
            else:
                Y, rows, columns = self._read_update(X, Y, Z)
                for located, name in ((rows, "X"), (columns, "Z")):
                    _require_known(located, name)
                self._grow(rows, columns, _without(labels, Y, rows, columns))
        return self

    # ------------------------------------------------------------------ reading

    def _known_labels(self, method: str) -> Observations:
        if self.early_stopping:
            raise ValueError(
                f"{method} is not for early_stopping=True, where the number of iterations depends "
                "on all labels: fit again"
            )
        if not hasattr(self, "_labels"):
            raise ValueError(
                f"{method} needs the labels of fit, which this model does not have: it is from a "
                "file of a model of few features, or of an earlier version. Fit again"
            )
        return self._labels

    def _read_update(self, X: Any, Y: Any, Z: Any) -> tuple[Observations, Located, Located]:
        """Read the labels and the objects of an update."""
        one_domain = not self._two_domains
        if X is None and one_domain:
            raise ValueError("X is None: pass the row objects that Y has labels of")
        if Z is None and one_domain:
            names = row_names(X)
            Y = labels_in_order(Y, names, names, one_domain=True)
        else:
            names = (None if objects is None else row_names(objects) for objects in (X, Z))
            Y = labels_in_order(Y, *names, one_domain=False)
        rows, columns = self._locate(X, Z)
        shape = len(rows.places), len(columns.places)
        labels = read_relation(Y, *shape, one_domain=one_domain and Z is None)
        if not labels.n_edges:
            raise ValueError("Y has no label: every entry is NaN, or none is stored")
        if one_domain and Z is None and labels.matrix is not None:
            check_relation(labels, self.relation)
        return labels, rows, columns

    def _locate(self, X: Any, Z: Any) -> tuple[Located, Located]:
        rows = self._new_kernel_rows(X, 0)
        if rows is None:
            rows = _located(self._rows, None if X is None else self._check_row_objects(X))
        columns = self._new_kernel_rows(Z, 1) if self._two_domains else None
        if columns is not None:
            return rows, columns
        others = None if Z is None else self._check_column_objects(Z)
        if self._two_domains:
            return rows, _located(self._ranked, others)
        if others is None:
            return rows, rows
        objects = self._rows if rows.new is None else self._rows.with_others(rows.new)
        return rows, _located(objects, objects.others(others.X, others.names, "Z"))

    def _new_kernel_rows(self, X: Any, number: int) -> Located | None:
        """Read new objects of a precomputed kernel: values with known, then with new objects."""
        objects, name = (self._ranked, "Z") if number else (self._rows, "X")
        shape: tuple[int, ...] = getattr(X, "shape", ())
        if not one_matrix(objects.kernel) or len(shape) != 2 or shape[1] != len(objects) + shape[0]:
            return None
        names = row_names(X)
        if objects.names is not None and names is not None:
            X = columns_in_order(X, np.concatenate([objects.names, np.asarray(names)]), name)
        with clear_errors(X, name):
            values = check_array(X, dtype=(np.float64, np.float32), input_name=name)
        check_gram(values[:, len(objects) :])
        new = objects.others(values, names if names_anything(names) else None, name)
        return Located(len(objects) + np.arange(len(values)), new)

    def _shape_with(self, rows: Located, columns: Located) -> tuple[int, int]:
        """Return the shape of the relation with new objects."""
        new = [0 if side.new is None else side.new.shape[0] for side in (rows, columns)]
        if not self._two_domains:
            new = [new[0] if columns is rows else sum(new)] * 2
        return len(self._rows) + new[0], len(self._ranked) + new[1]

    # ------------------------------------------------------------------ changing

    def _grow(self, rows: Located, columns: Located, observations: Observations) -> None:
        """Solve with new objects and labels."""
        new = [[rows.new], [columns.new]]
        if not self._two_domains:  # all new objects are new on both sides
            new = [[rows.new] if columns is rows else [rows.new, columns.new]] * 2
        changes = list(self._changes())
        for number, parts in enumerate(new):
            for others in parts:
                if others is not None:
                    changes[number] = self._with_others(changes[number], others, number)
        self._solve_again(changes, observations)

    def _remove(self, labels: Observations, X: Any, Z: Any) -> None:
        """Solve without objects."""
        if X is None and Z is None:
            raise ValueError("pass X or Z, the objects that are forgotten")
        if not self._two_domains and (X is None or Z is not None):
            raise ValueError(
                "between objects of one kind, pass X alone: the objects that are forgotten"
            )
        kept = []
        for located, name, n in zip(self._locate(X, Z), "XZ", labels.shape, strict=True):
            _require_known(located, name)
            chosen = np.ones(n, dtype=bool)
            if (X if name == "X" or not self._two_domains else Z) is not None:
                chosen[located.places] = False
            if not chosen.any():
                raise ValueError(f"no object would be left of {name}")
            kept.append(np.flatnonzero(chosen))
        self._solve_again(
            [
                change if len(chosen) == n else self._only(change, chosen)
                for change, chosen, n in zip(self._changes(), kept, labels.shape, strict=True)
            ],
            labels.between(*kept),
        )

    def _set_kernel_columns(self, objects: Objects, number: int) -> None:
        """Update the names of the columns of a precomputed kernel matrix."""
        if not objects.kernel.precomputed:
            return
        names = "feature_names_in_", "_kernel_numbers"
        if number:
            names = "object_feature_names_in_", "_object_kernel_numbers"
        else:
            self.n_features_in_ = objects.X.shape[1]
        for name in names:
            if self.__dict__.pop(name, None) is not None and objects.names is not None:
                setattr(self, name, objects.names)

    def _changes(self) -> tuple[Changes, Changes]:
        """Return the changes of both sides; the first update starts to record them."""
        if hasattr(self, "_changed"):
            return self._changed
        return Changes(self._rows), Changes(self._ranked)

    def _with_others(self, change: Changes, X: Others, number: int) -> Changes:
        ever, present = change.ever, change.objects
        n, t = len(present), X.shape[0]
        if ever.kernel.precomputed and X.shape[1] != n + t:
            raise ValueError(
                f"{t} row(s) of {X.name} are none of the objects of the model: with a precomputed "
                f"kernel, pass new objects alone, with their kernel values with the {n} objects of "
                f"the model and then among themselves, shape ({t}, {n + t}); several kernel "
                "matrices need a new fit"
            )
        objects = present.with_others(X)
        complete = len(ever) == n and isinstance(ever.kernel, Kernel)  # with all kernel values
        if not self._borders(present, objects) or not (complete or not ever.kernel.precomputed):
            return Changes(objects)
        side = self._side_of(change, number)
        if ever.kernel.precomputed:
            between, among = np.asarray(X.X[:, :n], dtype=np.float64).T, X.X[:, n:]
        else:
            among = Objects(ever.kernel, X.X).gram()
            between = np.asarray(ever.values(ever.others(X.X)), dtype=np.float64).T
        return Changes(ever.with_others(X), side.add(between, among))

    def _only(self, change: Changes, kept: Array) -> Changes:
        objects = change.objects.only(kept)
        if change.side is None or not self._borders(change.objects, objects):
            return Changes(objects)
        return Changes(change.ever, change.side.keep(kept))

    def _side_of(self, change: Changes, number: int) -> ChangedSide:
        if change.side is not None:
            return change.side
        free = self._free() if number == 0 else self._free().T
        return ChangedSide.of(change.ever.side(free))

    def _borders(self, before: Objects, after: Objects) -> bool:
        """Whether the kernel matrix changes only by added or removed rows and columns."""
        if not self._closed_updates:
            return False
        if not isinstance(before.kernel, KernelSum):
            return True
        assert isinstance(after.kernel, KernelSum)
        weights = before.kernel.weights, after.kernel.weights
        return bool(np.allclose(*weights, rtol=SAME, atol=0.0))

    @property
    def _closed_updates(self) -> bool:
        """Whether decompositions can be kept when objects and labels change."""
        return (
            self.pairwise == "kronecker"
            and self.relation is None
            and self._two_domains
            and self.loss in LOSSES
            and self.solver in ("auto", "closed")
            and not any(
                objects.kernel.linear or objects.profile is not None  # linear: by features
                for objects in (self._rows, self._ranked)
            )
        )

    def _solve_again(self, changes: Sequence[Changes], observations: Observations) -> None:
        """Solve with changed objects or labels, and store the model."""
        self._check_labels(observations)
        two_domains, apart = self._two_domains, self._columns is not None
        free = self._free()
        rows = changes[0].objects.given(observations, free)
        columns = changes[1].objects.given(observations.T, free.T) if apart else None
        alpha = self._alpha
        alphas = self._check_alpha(alpha)
        model: RelationModel | None = None
        if self._closed_updates:
            model, problem, changes = self._update(changes, observations, float(alphas[0]))
        if model is None:
            sides = []
            for change, objects, offsets in zip(
                changes, (rows, columns), (free, free.T), strict=True
            ):
                if objects is not None:
                    settled = None if objects.profile is not None else change.settled
                    sides.append(objects.side(offsets) if settled is None else settled)
            problem = self._problem_of(sides[0], sides[-1], observations)
            self._require_functions(problem)
            model = self._solve(problem, alphas, Progress(type(self).__name__, self.verbose))
            changes = [
                Changes(objects, None if objects.profile is not None else ChangedSide.of(side))
                for objects, side in ((rows, sides[0]), (columns or rows, sides[-1]))
            ]
        self._set_kernel_columns(rows, 0)
        if columns is not None and two_domains:
            self._set_kernel_columns(columns, 1)
        self._store(rows, columns, observations, model, alpha, two_domains)
        self._changed = changes[0], changes[1]
        self._warn_of_lost_digits(problem, model, alpha)

    def _update(
        self, changes: Sequence[Changes], observations: Observations, alpha: float
    ) -> tuple[RelationModel | None, RelationProblem, Sequence[Changes]]:
        """Apply `solve_changed` with conditioning objects as rows; None if it does not apply."""
        turn = 1 if self.condition_on == "rows" else -1
        first, second = (self._side_of(change, number) for number, change in enumerate(changes))
        changes = [
            replace(change, side=side)
            for change, side in zip(changes, (first, second), strict=True)
        ]
        problem = self._problem_of(first.side, second.side, observations)
        ordered = (first, second) if turn == 1 else (second, first)
        found = solve_changed(problem, ordered, alpha)
        if found is None:
            return None, problem, changes
        model, sides = found
        made = [
            replace(change, side=side)
            if change.side is not None and side.base is change.side.base
            else Changes(change.objects, side)
            for change, side in zip(changes, sides[::turn], strict=True)
        ]
        return model, problem, made

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_changed"}


def _located(objects: Objects, others: Others | None) -> Located:
    """Locate others among the objects; None locates all objects."""
    n = len(objects)
    if others is None:
        return Located(np.arange(n))
    name, known = others.name, others.known
    count = np.diff(known.indptr)
    if (count > 1).any():
        row = int(np.flatnonzero(count > 1)[0])
        first, second = known.indices[known.indptr[row] :][:2]
        raise ValueError(
            f"row {row} of {name} equals two objects of the model, rows {first} and {second} of "
            "fit: objects with equal features need names, in the index of a data frame"
        )
    places = np.full(others.shape[0], -1)
    places[count == 1] = known.indices
    taken, times = np.unique(places[places >= 0], return_counts=True)
    if (times > 1).any():
        rows = np.flatnonzero(places == taken[times > 1][0])
        raise ValueError(f"rows {rows[0]} and {rows[1]} of {name} are the same object")
    new = np.flatnonzero(places < 0)
    if objects.names is not None and others.names is not None:
        taken_names = np.isin(np.asarray(others.names[new]), objects.names)
        if taken_names.any():
            shown = others.names[new][taken_names][0]
            raise ValueError(
                f"{shown!r} of {name} is the name of an object of the model, which has other "
                "features: forget that object first, or pass the features of fit"
            )
    places[new] = n + np.arange(len(new))
    return Located(places, others[new] if len(new) else None)


def _require_known(located: Located, name: str) -> None:
    if located.new is not None:
        row = int(np.argmax(located.places == located.places.max() - located.new.shape[0] + 1))
        raise ValueError(f"row {row} of {name} is none of the objects of the model")


def _places(labels: Observations, rows: Located, columns: Located) -> tuple[Array, Array, Array]:
    i, j, y = labels.lists
    return rows.places[i], columns.places[j], y


def _joined(
    known: Observations,
    labels: Observations,
    rows: Located,
    columns: Located,
    shape: tuple[int, int],
) -> Observations:
    """Join the known labels and those of an update."""
    i, j, y = _places(labels, rows, columns)
    if known.matrix is not None:
        Y = np.full(shape, np.nan)
        Y[: known.shape[0], : known.shape[1]] = known.matrix
        _refuse(~np.isnan(Y[i, j]), labels)
        Y[i, j] = y
        made = Observations.from_matrix(Y)
        if len(np.unique(i * shape[1] + j)) == len(i):
            return made
    old_rows, old_cols, old = known.lists
    g = shape[1]
    _refuse(np.isin(i * g + j, old_rows * g + old_cols), labels)
    made = Observations(
        np.concatenate([old_rows, i]), np.concatenate([old_cols, j]), np.append(old, y), shape
    )
    return made.as_matrix()


def _refuse(taken: Array, labels: Observations) -> None:
    if taken.any():
        rows, cols, _ = labels.lists
        e = int(np.flatnonzero(taken)[0])
        raise ValueError(
            f"{int(taken.sum())} of the pairs have a label already, the first is Y[{rows[e]}, "
            f"{cols[e]}]: forget their labels first, or pass NaN for them"
        )


def _without(
    known: Observations, labels: Observations, rows: Located, columns: Located
) -> Observations:
    """Remove the labels of an update from the known labels, which must contain them."""
    i, j, y = _places(labels, rows, columns)
    old_rows, old_cols, old = known.lists
    g = known.shape[1]
    flat = old_rows * g + old_cols
    order = np.argsort(flat, kind="stable")
    first = np.searchsorted(flat[order], i * g + j, "left")
    count = np.searchsorted(flat[order], i * g + j, "right") - first
    ends, cols, _ = labels.lists
    if (count == 0).any():
        e = int(np.flatnonzero(count == 0)[0])
        raise ValueError(
            f"Y[{ends[e]}, {cols[e]}] has no label in the model: there is none to forget"
        )
    if (count > 1).any():
        e = int(np.flatnonzero(count > 1)[0])
        raise ValueError(
            f"Y[{ends[e]}, {cols[e]}] has {count[e]} labels in the model: to forget one of them, "
            "fit again"
        )
    chosen = order[first]
    different = ~np.isclose(old[chosen], y, rtol=1e-9, atol=0.0)
    if different.any():
        e = int(np.flatnonzero(different)[0])
        raise ValueError(
            f"Y[{ends[e]}, {cols[e]}] is {y[e]:g}, but the model has learned {old[chosen[e]]:g}"
        )
    kept = np.ones(len(old), dtype=bool)
    kept[chosen] = False
    return known.select(kept)
