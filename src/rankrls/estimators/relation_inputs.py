"""Check the options and labels of conditional rankers: shape, content, symmetry."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.relations.labels import Observations

__all__ = ["SIGNS", "check_pairwise", "check_relation", "read_relation", "require_labels"]

Array = NDArray[Any]

#: The sign s of f(x, z) = s f(z, x).
SIGNS = {None: 0, "symmetric": 1, "reciprocal": -1}


def check_pairwise(ranker: Any) -> None:
    """Raise an error if the pairwise kernel is incompatible with other options."""
    pairwise, relation = ranker.pairwise, ranker.relation
    opposite = {"mlpk": ("reciprocal", "symmetric"), "ranking": ("symmetric", "reciprocal")}
    if pairwise in opposite and relation == opposite[pairwise][0]:
        raise ValueError(
            f"pairwise={pairwise!r} has {opposite[pairwise][1]} functions only, and none that are "
            f"{relation} but zero: set relation=None or {opposite[pairwise][1]!r}"
        )
    if pairwise == "pairs" and relation is not None:
        raise ValueError(f"pairwise='pairs' is not for relation={relation!r}: set relation=None")
    free = ranker._free()
    if pairwise in ("additive", "ranking") and free.rows and free.columns:
        raise ValueError(
            f"pairwise={pairwise!r} has nothing left to learn beside offsets of rows and columns: "
            "set another pairwise kernel or fit_offsets"
        )
    if pairwise != "two-step":
        return
    if ranker.loss == "squared_hinge":
        raise ValueError("pairwise='two-step' needs loss='regression' or 'ranking'")
    if ranker.fit_offsets is not False:
        raise ValueError(
            f"fit_offsets={ranker.fit_offsets!r} is not for pairwise='two-step': set "
            "fit_offsets=False, and add the kernel 'constant' on both sides for an offset"
        )
    if relation is not None and ranker.loss == "ranking":
        raise ValueError(
            f"pairwise='two-step' with relation={relation!r} needs loss='regression': centring the "
            "rows is no symmetric step"
        )
    if ranker.early_stopping is True:
        raise ValueError("pairwise='two-step' is not iterative: set early_stopping=False")


def read_relation(Y: Any, p: int, g: int, *, one_domain: bool) -> Observations:
    """Read the labels of the pairs of p row objects and g column objects."""
    observations = Observations.read(Y)
    shape = observations.shape
    if shape == (p, g):
        return observations
    if one_domain:
        raise ValueError(
            f"Y has shape {shape} for {p} rows of X: without Z the columns of Y are the same "
            f"objects as its rows, so that Y must have shape ({p}, {p}). To rank other objects, "
            "pass their features as Z"
        )
    hint = ""
    if shape == (g, p):
        hint = " (transposed? rows of Y are the objects of X; see also condition_on='columns')"
    elif shape[0] == p and p == g:
        hint = " (a search or cross-validation that splits rows may have split Z as well)"
    raise ValueError(f"Y has shape {shape} for {p} rows of X and {g} rows of Z{hint}")


def require_labels(observations: Observations, *, ranking: bool, condition_on: str) -> None:
    """Raise an error if the labels contain nothing to learn. Rows are conditioning objects."""
    if observations.n_edges == 0:
        raise ValueError("Y has no observed label: every entry is NaN, or none is stored")
    if not ranking or observations.shape[1] < 1:
        return
    if observations.matrix is not None:
        Y = observations.matrix
        blocks = (Y[start : start + 16] for start in range(0, len(Y), 16))
        if any((block[:, :1] != block).any() for block in blocks):
            return
    else:
        cells = observations.cells
        same = cells.rows[1:] == cells.rows[:-1]
        if (same & (cells.y[1:] != cells.y[:-1])).any():
            return
    line = condition_on[:-1]
    values = observations.cells.y if observations.matrix is None else None
    hint = ""
    if values is not None and (values == values[0]).all():
        hint = (
            " (what a sparse Y does not store, and NaN, is unknown; if it stands for 0, pass "
            "Y.toarray() or fill it in)"
        )
    raise ValueError(
        f"there is nothing to rank: no {line} of Y has two observed pairs with different labels"
        f"{hint}"
    )


def check_relation(observations: Observations, relation: str | None) -> None:
    """Raise an error if a matrix of labels contradicts a symmetric or reciprocal relation.

    This applies to dense matrices only. Edges of a list are noisy observations and may differ.
    """
    sign = SIGNS[relation]
    if sign == 0:
        return
    if observations.matrix is not None:
        Y = observations.matrix
    else:
        rows, cols, y = observations.lists
        Y = np.full(observations.shape, np.nan)
        Y[rows, cols] = y
    difference = np.abs(Y - sign * Y.T)
    difference[np.isnan(difference)] = 0.0
    size = float(np.nanmax(np.abs(Y), initial=0.0))
    if difference.max(initial=0.0) <= 1e-6 * size:
        return
    i, j = (int(k) for k in np.unravel_index(np.argmax(difference), difference.shape))
    if sign == 1:
        raise ValueError(
            f"Y contradicts relation='symmetric': Y[{i}, {j}] = {Y[i, j]:g} but "
            f"Y[{j}, {i}] = {Y[j, i]:g}. If both measure the same thing, pass (Y + Y.T) / 2"
        )
    total = (Y + Y.T)[~np.isnan(Y) & ~np.isnan(Y.T)]
    hint = ""
    if total.size and (np.abs(total - total[0]) <= 1e-6 * size).all() and total[0] != 0:
        hint = (
            f". Y + Y.T is {total[0]:g} everywhere, as of probabilities: subtract "
            f"{total[0] / 2:g} from Y"
        )
    elif i == j:
        hint = ". An object has no preference over itself: leave the diagonal out (NaN), or 0"
    raise ValueError(
        f"Y contradicts relation='reciprocal' (Y = −Y.T): Y[{i}, {j}] = {Y[i, j]:g} but "
        f"Y[{j}, {i}] = {Y[j, i]:g}{hint}"
    )
