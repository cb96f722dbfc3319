"""What conditional rankers are given: labels of a relation, symmetries, and pairs of alphas."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankrls._calls import warn
from rankrls._validation import show
from rankrls.core.relations.labels import Observations
from rankrls.estimators.choosing import check_alphas
from rankrls.estimators.objects import Objects

__all__ = [
    "SIGNS",
    "Relation",
    "check_alpha_grids",
    "check_alpha_pairs",
    "check_relation",
    "read_relation",
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
        if any((Y[i : i + 16, :1] != Y[i : i + 16]).any() for i in range(0, len(Y), 16)):
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
