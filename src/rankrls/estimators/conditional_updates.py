"""Objects and labels of a fitted conditional ranker after an update, on which it is refitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._frames import labels_in_order, row_names
from rankrls.core.relations.labels import Observations
from rankrls.estimators.objects import NewObjects, Objects
from rankrls.estimators.relation_inputs import Relation, check_relation, read_relation

__all__ = ["add_labels", "remove_labels", "remove_objects"]

Array = NDArray[Any]


def add_labels(ranker: Any, X: Any, Y: Any, Z: Any) -> Relation:
    """Join the labels of a ranker and new ones, also of new objects."""
    known = _known_labels(ranker, "partial_fit")
    new, (rows, columns), where = _read(ranker, X, Y, Z)
    i, j, y = (np.concatenate(parts) for parts in zip(known.lists, new.lists, strict=True))
    taken = np.isin(_flat(new), _flat(known, new.shape[1]))
    if taken.any():
        raise ValueError(
            f"{int(taken.sum())} of the pairs have a label already, the first is {where(taken)}: "
            "forget their labels first, or pass NaN for them"
        )
    labels = Observations(i, j, y, new.shape).as_matrix()
    return Relation(rows, columns, labels, ranker._two_domains)


def remove_labels(ranker: Any, X: Any, Y: Any, Z: Any) -> Relation:
    """Remove labels from those of a ranker, which must contain them; objects stay."""
    known = _known_labels(ranker, "forget")
    new, (rows, columns), where = _read(ranker, X, Y, Z, known=True)
    flat, wanted, y = _flat(known), _flat(new), new.lists[2]
    order = np.argsort(flat, kind="stable")
    start = np.searchsorted(flat[order], wanted, "left")
    count = np.searchsorted(flat[order], wanted, "right") - start
    if (count == 0).any():
        raise ValueError(f"{where(count == 0)} has no label in the model: there is none to forget")
    if (count > 1).any():
        raise ValueError(
            f"{where(count > 1)} has {count[count > 1][0]} labels in the model: to forget one of "
            "them, fit again"
        )
    learned = known.lists[2][order[start]]
    different = ~np.isclose(learned, y, rtol=1e-9, atol=0.0)
    if different.any():
        raise ValueError(
            f"{where(different)} is {y[different][0]:g}, but the model has learned "
            f"{learned[different][0]:g}"
        )
    kept = np.ones(known.n_edges, dtype=bool)
    kept[order[start]] = False
    return Relation(rows, columns, known.select(kept), ranker._two_domains)


def remove_objects(ranker: Any, X: Any, Z: Any) -> Relation:
    """Remove objects from those of a ranker, with all their labels."""
    labels, two = _known_labels(ranker, "forget"), ranker._two_domains
    if X is None and Z is None:
        raise ValueError("pass X or Z, the objects that are forgotten")
    if not two and (X is None or Z is not None):
        raise ValueError(
            "between objects of one kind, pass X alone: the objects that are forgotten"
        )
    places, _ = _locate(ranker, X, Z, known=True)
    kept, sides = [], []
    for k, (objects, given) in enumerate(((ranker._rows, X), (ranker._ranked, Z if two else X))):
        gone = np.zeros(0) if given is None else places[k]
        kept.append(np.setdiff1d(np.arange(len(objects)), gone))
        if not len(kept[k]):
            raise ValueError(f"no object would be left of {'XZ'[k]}")
        sides.append(objects if given is None else objects.only(kept[k]))
    columns = None if ranker._columns is None else sides[1]
    return Relation(sides[0], columns, labels.between(*kept), two)


def _known_labels(ranker: Any, method: str) -> Observations:
    if ranker.early_stopping:
        raise ValueError(
            f"{method} is not for early_stopping=True, where the number of iterations depends "
            "on all labels: fit again"
        )
    if not hasattr(ranker, "_labels"):
        raise ValueError(
            f"{method} needs the labels of fit, which this model does not have: it is from a "
            "file of a model of few features. Fit again"
        )
    return ranker._labels


def _flat(labels: Observations, width: int | None = None) -> Array:
    """Row-major numbers of the pairs of all edges, in a table of ``width`` columns."""
    rows, cols, _ = labels.lists
    return rows * (labels.shape[1] if width is None else width) + cols


def _read(
    ranker: Any, X: Any, Y: Any, Z: Any, *, known: bool = False
) -> tuple[Observations, tuple[Objects, Objects | None], Callable[[Array], str]]:
    """Read an update: its labels between all objects, these, and the first of some labels."""
    one_domain = not ranker._two_domains
    if X is None and one_domain:
        raise ValueError("X is None: pass the row objects that Y has labels of")
    same = Z is None and one_domain
    names = [None if objects is None else row_names(objects) for objects in (X, X if same else Z)]
    Y = labels_in_order(Y, *names, one_domain=same)
    (rows, columns), objects = _locate(ranker, X, Z, known=known)
    labels = read_relation(Y, len(rows), len(columns), one_domain=same)
    if not labels.n_edges:
        raise ValueError("Y has no label: every entry is NaN, or none is stored")
    if same:
        check_relation(labels, ranker.relation, noisy=labels.matrix is None)
    i, j, y = labels.lists

    def where(mask: Array) -> str:
        e = int(np.argmax(mask))
        return f"Y[{i[e]}, {j[e]}]"

    shape = len(objects[0]), len(objects[0] if objects[1] is None else objects[1])
    return Observations(rows[i], columns[j], y, shape), objects, where


def _locate(
    ranker: Any, X: Any, Z: Any, *, known: bool
) -> tuple[tuple[Array, Array], tuple[Objects, Objects | None]]:
    """Find X and Z among the objects of both sides, and append new ones (unless ``known``)."""
    new = [
        None if given is None else ranker._read_objects(given, name)
        for given, name in ((X, "X"), (Z, "Z"))
    ]
    columns = ranker._columns
    at_rows, rows = _located(ranker._rows, new[0], known)
    if ranker._two_domains:
        at_columns, columns = _located(columns, new[1], known)
        return (at_rows, at_columns), (rows, columns)
    at_columns = at_rows
    if new[1] is not None:
        at_columns, rows = _located(rows, rows.new(new[1].X, new[1].names, "Z"), known)
    if columns is not None:  # the same objects with another kernel
        columns = columns.refitted(rows.X, rows.names)
    return (at_rows, at_columns), (rows, columns)


def _located(objects: Objects, others: NewObjects | None, known: bool) -> tuple[Array, Objects]:
    """Find others among the objects (None: all of them); return the places, and all objects."""
    n = len(objects)
    if others is None:
        return np.arange(n), objects
    name, t = others.name, others.shape[0]
    matches = others.known
    count = np.diff(matches.indptr)
    if (count > 1).any():
        raise ValueError(
            f"row {int(np.argmax(count > 1))} of {name} equals two objects of the model: objects "
            "with equal features need names, in the index of a data frame"
        )
    places = np.full(t, -1)
    places[count == 1] = matches.indices
    taken, times = np.unique(places[places >= 0], return_counts=True)
    if (times > 1).any():
        rows = np.flatnonzero(places == taken[times > 1][0])
        raise ValueError(f"rows {rows[0]} and {rows[1]} of {name} are the same object")
    new = np.flatnonzero(places < 0)
    if not len(new):
        return places, objects
    if known:
        raise ValueError(f"row {new[0]} of {name} is none of the objects of the model")
    if objects.kernel.precomputed and others.among is None:
        raise ValueError(
            f"{len(new)} row(s) of {name} are none of the objects of the model: with a precomputed "
            f"kernel, pass new objects alone, with their kernel values with the {n} objects of "
            f"the model and then among themselves, shape ({len(new)}, {n + len(new)}); several "
            "kernel matrices need a new fit"
        )
    if objects.names is not None and others.names is not None:
        taken_names = np.isin(np.asarray(others.names[new]), objects.names)
        if taken_names.any():
            raise ValueError(
                f"{others.names[new][taken_names][0]!r} of {name} is the name of an object of the "
                "model, which has other features: forget that object first, or pass the features "
                "of fit"
            )
    places[new] = n + np.arange(len(new))
    return places, objects.with_new(others[new])
