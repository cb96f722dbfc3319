"""What conditional rankers are given: labels of a relation, updates of them, and alphas."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankrls._calls import warn
from rankrls._frames import labels_in_order, row_names
from rankrls._relation_labels import Observations
from rankrls._validation import show
from rankrls.estimators.choosing import check_alphas
from rankrls.estimators.objects import NewObjects, Objects

__all__ = [
    "SIGNS",
    "Relation",
    "changed_labels",
    "check_alpha_grids",
    "check_alpha_pairs",
    "check_relation",
    "read_relation",
    "remove_objects",
    "require_labels",
]

Array = NDArray[Any]

#: The sign s of f(x, z) = s f(z, x).
SIGNS = {None: 0, "symmetric": 1, "reciprocal": -1}


class Relation(NamedTuple):
    """Objects and labels that a ranker is fitted to."""

    rows: Objects
    columns: Objects | None  # None: the rows, with the same kernel
    labels: Observations
    two_domains: bool  # rows and columns are objects of two kinds

    @property
    def ranked(self) -> Objects:
        """The objects of the columns."""
        return self.rows if self.columns is None else self.columns


def read_relation(Y: Any, p: int, g: int, *, one_domain: bool) -> Observations:
    """Read the labels of the pairs of p row objects and g column objects."""
    observations = Observations.read(Y)
    shape = observations.shape
    if shape == (p, g):
        return observations
    if one_domain:
        raise ValueError(
            f"Y has shape {shape} for {p} rows of X: without Z its columns are the same objects as "
            f"its rows, and it must have shape ({p}, {p}). To rank other objects, pass them as Z"
        )
    hint = " (transposed? rows of Y are the objects of X)" if shape == (g, p) else ""
    raise ValueError(f"Y has shape {shape} for {p} rows of X and {g} rows of Z{hint}")


def require_labels(observations: Observations, *, ranking: bool, condition_on: str) -> None:
    """Raise an error if the labels contain nothing to learn. Rows are conditioning objects."""
    if observations.n_edges == 0:
        raise ValueError("Y has no observed label: every entry is NaN, or none is stored")
    if not ranking:
        return
    hint, Y = "", observations.matrix
    if Y is not None:
        if (Y[:16, :1] != Y[:16]).any() or (Y[:, :1] != Y).any():
            return
    else:
        cells = observations.cells
        same = cells.rows[1:] == cells.rows[:-1]
        if (same & (cells.y[1:] != cells.y[:-1])).any():
            return
        if (cells.y == cells.y[0]).all():
            hint = (
                " (what a sparse Y does not store, and NaN, is unknown; if it stands for 0, pass "
                "Y.toarray() or fill it in)"
            )
    raise ValueError(
        f"there is nothing to rank: no {condition_on[:-1]} of Y has two observed pairs with "
        f"different labels{hint}"
    )


def check_relation(observations: Observations, relation: str | None, *, noisy: bool) -> None:
    """Raise an error if labels contradict a symmetric or reciprocal relation.

    Labels that are ``noisy`` may differ. Those of a reciprocal relation from 0 to 1 are a warning.
    """
    sign = SIGNS[relation]
    if sign == 0 or not observations.n_edges:
        return
    cells = observations.cells
    mirror = cells.cols * cells.shape[1] + cells.rows
    place = np.minimum(np.searchsorted(cells.flat, mirror), len(cells) - 1)
    both = cells.flat[place] == mirror
    y, other = cells.y[both], cells.y[place[both]]
    tolerance = 1e-6 * float(np.abs(y).max(initial=0.0))
    difference, total = np.abs(y - sign * other), y + other
    agree = difference.max(initial=0.0) <= tolerance
    even = not agree and sign == -1 and bool((np.abs(total - total[0]) <= tolerance).all())
    if agree or (noisy and not (even and cells.y.min() >= 0)):
        pairs = cells.y[cells.rows != cells.cols]
        if sign == -1 and pairs.size and 0 <= pairs.min() < pairs.max() <= 1:
            warn(
                "all labels of relation='reciprocal' (Y = −Y.T) are from 0 to 1, as of "
                "probabilities, so that 0 means no preference: subtract 0.5 from Y if 0 means that "
                "the column is preferred"
            )
        return
    e = int(np.argmax(difference))
    i, j = int(cells.rows[both][e]), int(cells.cols[both][e])
    hint = "if both measure the same thing, pass (Y + Y.T) / 2"
    if even:
        half = total[0] / 2
        hint = f"Y + Y.T is {total[0]:g} everywhere, as of probabilities: subtract {half:g} from Y"
    elif sign == -1:
        hint = "Y must be −Y.T, and an object has no preference over itself (NaN or 0)"
    raise ValueError(
        f"Y contradicts relation={relation!r}: Y[{i}, {j}] = {y[e]:g} but Y[{j}, {i}] = "
        f"{other[e]:g}; {hint}"
    )


def check_alpha_pairs(
    name: str, values: Any, *, single: bool = False, one_alpha: bool = False
) -> Array:
    """Return pairs (row, column) of alphas > 0, shape (n_alphas, 2), from numbers or pairs."""
    given = np.asarray(values)
    given = given[None] if single or given.ndim == 0 else given
    if given.ndim not in (1, 2) or (given.ndim == 2 and given.shape[1] != 2):
        shape = "a number or a pair (row, column)" if single else "numbers or pairs (row, column)"
        raise ValueError(f"{name} must be {shape}; got {show(values)}")
    flat = check_alphas(name, given.ravel(), as_given=True)
    pairs = np.repeat(flat, 2).reshape(-1, 2) if given.ndim == 1 else flat.reshape(-1, 2)
    if one_alpha and (pairs[:, 0] != pairs[:, 1]).any():
        raise ValueError(
            f"{name} must be one number with a relation between objects of one kind; got "
            f"{show(values)}"
        )
    return pairs


def check_alpha_grids(values: Any) -> tuple[Array, Array]:
    """Return ascending grids of the alphas of rows and columns, from one grid or a list of two."""
    two = isinstance(values, list | tuple | np.ndarray) and len(values) == 2
    if two and all(np.ndim(part) == 1 for part in values):
        return check_alphas("alphas[0]", values[0]), check_alphas("alphas[1]", values[1])
    grid = check_alphas("alphas", values)
    return grid, grid


# ---------------------------------------------------------------------- updates


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
    ends = places[0][i], places[1][j]
    known = Observations(*known.lists, (len(rows), len(rows if columns is None else columns)))
    cells, wanted = known.cells, ends[0] * known.shape[1] + ends[1]
    at = np.minimum(np.searchsorted(cells.flat, wanted), len(cells) - 1)
    found = cells.flat[at] == wanted

    def where(mask: Array) -> str:
        e = int(np.argmax(mask))
        return f"Y[{i[e]}, {j[e]}]"

    if not forget:
        if found.any():
            raise ValueError(
                f"{found.sum()} of the pairs have a label already, the first is {where(found)}: "
                "forget their labels first, or pass NaN for them"
            )
        i, j, y = (np.concatenate(both) for both in zip(known.lists, (*ends, y), strict=True))
        labels = Observations(i, j, y, known.shape).as_matrix()
        return Relation(rows, columns, labels, ranker._two_domains)
    if not found.all():
        raise ValueError(f"{where(~found)} has no label in the model: there is none to forget")
    learned, times = cells.y[at], cells.weight[at]
    if (times > 1).any():
        raise ValueError(
            f"{where(times > 1)} has {times.max():g} labels in the model: to forget one of them, "
            "fit again"
        )
    different = ~np.isclose(learned, y, rtol=1e-9, atol=0.0)
    if different.any():
        raise ValueError(
            f"{where(different)} is {y[different][0]:g}, but the model has learned "
            f"{learned[different][0]:g}"
        )
    kept = ~np.isin(known.lists[0] * known.shape[1] + known.lists[1], wanted)
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
        sides.append(objects if given is None else objects.refitted(objects.X[kept[k]]))
    columns = None if ranker._columns is None else sides[1]
    return Relation(sides[0], columns, labels.between(*kept), two)


def _known_labels(ranker: Any, forget: bool) -> Observations:
    if ranker.early_stopping or not hasattr(ranker, "_labels"):
        raise ValueError(
            f"{'forget' if forget else 'partial_fit'} needs the labels of fit, which files of "
            "models of few features do not have, and is not for early_stopping=True: fit again"
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
        at_columns, rows = _located(rows, rows.new(new[1].X, "Z"), known)
    if columns is not None:  # the same objects with another kernel
        columns = columns.refitted(rows.X)
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
            f"row {int(np.argmax(count > 1))} of {name} equals two objects of the model: fit again"
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
    places[new] = n + np.arange(len(new))
    return places, objects.with_new(others.X[new])
