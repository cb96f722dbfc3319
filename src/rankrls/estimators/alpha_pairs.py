"""Two alphas, one for each side of a relation: reading them, and choosing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import show
from rankrls.estimators.choosing import EQUAL, best_of, check_alphas, choose_alpha, default_grid

__all__ = ["check_alpha_grids", "check_alpha_pairs", "search_pairs"]

Array = NDArray[Any]

#: Most sweeps over the alphas of each side.
SWEEPS = 6


def check_alpha_pairs(
    name: str, values: Any, *, single: bool = False, one_alpha: bool = False
) -> Array:
    """Pairs (row, column) of alphas > 0, shape (n_alphas, 2).

    Parameters
    ----------
    name : str
        What an error calls the argument.
    values : number, array-like of shape (n_alphas,) or (n_alphas, 2)
        A number is the alpha of both sides.
    single : bool
        One number or one pair is expected.
    one_alpha : bool
        Whether both alphas must be equal, as for a relation between objects of one kind.
    """
    given = np.asarray(values)
    if single:
        given = given[None]
    if given.ndim == 0:
        given = given[None]
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
    """Grids of the alphas of the rows and of the columns, ascending.

    ``values`` is one grid for both sides, or a list of two grids.
    """
    two = isinstance(values, list | tuple | np.ndarray) and len(values) == 2
    if two and all(np.ndim(part) == 1 for part in values):
        return check_alphas("alphas[0]", values[0]), check_alphas("alphas[1]", values[1])
    grid = check_alphas("alphas", values)
    return grid, grid


def search_pairs(
    grids: tuple[Array, Array] | None,
    evaluate: Callable[[Array], dict[str, Array]],
    sizes: tuple[float, float],
) -> tuple[int, dict[str, Array]]:
    """Score pairs of alphas, and find the best of them.

    Parameters
    ----------
    grids : tuple of two ascending arrays, or None
        All pairs of these. None: those of `default_grid`; first both alphas at a time, then one
        side after the other, as long as the score gets better.
    evaluate : callable
        From pairs (n, 2) to a dict of arrays of shape (n,), "mean_score" among them.
    sizes : tuple of float
        About the largest eigenvalues of the two kernels. For the default grids only.

    Returns
    -------
    best : int
    found : dict
        "alpha" of shape (n_alphas, 2), ascending, and what ``evaluate`` gave, for all pairs tried.
    """
    if grids is not None:
        pairs = np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1).reshape(-1, 2)
        found = evaluate(pairs)
        best = _best_pair(grids, found["mean_score"])
        return best, {"alpha": pairs, **found}
    first, second = (default_grid(size) for size in sizes)
    tried = _Tried(evaluate)
    length = max(len(first), len(second))
    steps = np.linspace(0, 1, length)
    line = [grid[np.rint(steps * (len(grid) - 1)).astype(int)] for grid in (first, second)]
    at = tried.best(np.column_stack(line))
    for _ in range(SWEEPS):
        before = at.copy()
        for side, grid in enumerate((first, second)):
            pairs = np.repeat(at[None], len(grid), axis=0)
            pairs[:, side] = grid
            at = tried.best(pairs)
        if (at == before).all():
            break
    return tried.results(at)


class _Tried:
    """Scores of pairs, each evaluated once."""

    def __init__(self, evaluate: Callable[[Array], dict[str, Array]]) -> None:
        self.evaluate = evaluate
        self.found: dict[tuple[float, float], dict[str, Any]] = {}

    def best(self, pairs: Array) -> Array:
        """The best of ascending pairs (n, 2); of equally good ones the last."""
        keys = [(float(a), float(b)) for a, b in pairs]
        new = list(dict.fromkeys(key for key in keys if key not in self.found))
        if new:
            made = self.evaluate(np.array(new))
            for number, key in enumerate(new):
                self.found[key] = {name: values[number] for name, values in made.items()}
        scores = np.array([self.found[key]["mean_score"] for key in keys])
        _require_finite(pairs, scores)
        return pairs[best_of(scores)]

    def results(self, at: Array) -> tuple[int, dict[str, Array]]:
        keys = sorted(self.found)
        names = self.found[keys[0]]
        found = {name: np.array([self.found[key][name] for key in keys]) for name in names}
        return keys.index((float(at[0]), float(at[1]))), {"alpha": np.array(keys), **found}


def _best_pair(grids: tuple[Array, Array], scores: Array) -> int:
    """Number of the best pair of all; of equally good ones the largest alphas.

    Warns where a side's best alpha is an end of its grid.
    """
    table = scores.reshape(len(grids[0]), len(grids[1]))
    pairs = np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1).reshape(-1, 2)
    _require_finite(pairs, scores)
    top = float(scores.max())
    good = np.argwhere(top - table <= EQUAL * abs(top))
    i, j = good[np.argmax(np.log(grids[0][good[:, 0]]) + np.log(grids[1][good[:, 1]]))]
    choose_alpha(grids[0], table[:, j])
    choose_alpha(grids[1], table[i])
    return int(i) * len(grids[1]) + int(j)


def _require_finite(pairs: Array, scores: Array) -> None:
    bad = ~np.isfinite(scores)
    if bad.any():
        a, b = pairs[bad][0]
        raise ValueError(
            f"scoring returned {scores[bad][0]} for alpha=({a:g}, {b:g}); it must return a finite "
            "number"
        )
