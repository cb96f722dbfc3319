"""Objects and labels of a fitted conditional ranker after an update, on which it is refitted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._frames import labels_in_order, row_names
from rankrls.core.relations.labels import Observations
from rankrls.estimators.objects import NewObjects, Objects
from rankrls.estimators.relation_inputs import Relation, check_relation, read_relation

__all__ = ["changed_labels", "remove_objects"]

Array = NDArray[Any]


def changed_labels(ranker: Any, X: Any, Y: Any, Z: Any, *, forget: bool) -> Relation:
    """Add labels to those of a ranker, also of new objects, or ``forget`` some of them."""
    known, one_domain = _known_labels(ranker, forget), not ranker._two_domains
    if X is None and one_domain:
        raise ValueError("X is None: pass the row objects that Y has labels of")
    same = Z is None and one_domain
    names = [None if objects is None else row_names(objects) for objects in (X, X if same else Z)]
    Y = labels_in_order(Y, *names, one_domain=same)
    places, (rows, columns) = _locate(ranker, X, Z, known=forget)
    new = read_relation(Y, len(places[0]), len(places[1]), one_domain=same)
    if not new.n_edges:
        raise ValueError("Y has no label: every entry is NaN, or none is stored")
    if same:
        check_relation(new, ranker.relation, noisy=new.matrix is None)
    i, j, y = new.lists
    shape = len(rows), len(rows if columns is None else columns)
    wanted, ends = places[0][i] * shape[1] + places[1][j], known.lists
    flat = ends[0] * shape[1] + ends[1]
    order = np.argsort(flat, kind="stable")
    start = np.searchsorted(flat[order], wanted, "left")
    count = np.searchsorted(flat[order], wanted, "right") - start

    def where(mask: Array) -> str:
        e = int(np.argmax(mask))
        return f"Y[{i[e]}, {j[e]}]"

    if not forget:
        if (count > 0).any():
            raise ValueError(
                f"{int((count > 0).sum())} of the pairs have a label already, the first is "
                f"{where(count > 0)}: forget their labels first, or pass NaN for them"
            )
        added = (places[0][i], places[1][j], y)
        i, j, y = (np.concatenate(both) for both in zip(ends, added, strict=True))
        labels = Observations(i, j, y, shape).as_matrix()
        return Relation(rows, columns, labels, ranker._two_domains)
    if (count == 0).any():
        raise ValueError(f"{where(count == 0)} has no label in the model: there is none to forget")
    if (count > 1).any():
        raise ValueError(
            f"{where(count > 1)} has {count[count > 1][0]} labels in the model: to forget one of "
            "them, fit again"
        )
    learned = ends[2][order[start]]
    different = ~np.isclose(learned, y, rtol=1e-9, atol=0.0)
    if different.any():
        raise ValueError(
            f"{where(different)} is {y[different][0]:g}, but the model has learned "
            f"{learned[different][0]:g}"
        )
    kept = np.setdiff1d(np.arange(known.n_edges), order[start])
    return Relation(rows, columns, known.select(kept), ranker._two_domains)


def remove_objects(ranker: Any, X: Any, Z: Any) -> Relation:
    """Remove objects from those of a ranker, with all their labels."""
    labels, two = _known_labels(ranker, True), ranker._two_domains
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


def _known_labels(ranker: Any, forget: bool) -> Observations:
    method = "forget" if forget else "partial_fit"
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
