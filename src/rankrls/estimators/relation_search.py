"""Searches for kernel weights, and for pairs of alphas, by held-out errors and scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from rankrls.estimators.choosing import EQUAL, best_of, choose_alpha, default_grid

__all__ = ["descend_weights", "search_pairs", "search_weights", "without_small"]

Array = NDArray[Any]

#: Most sweeps over the alphas of each side.
SWEEPS = 6
#: Factors by which weights are changed, one factor for each sweep over all kernels.
FACTORS = (4.0, 4.0, 2.0)
#: Weights from this fraction of their sum to one minus it are changed further.
LEAST = 0.01
#: Minimum improvement of the score, so that weights do not follow noise.
GAIN = 1e-5
#: Descent: most evaluations, least fraction of the total decrease in an iteration, length of the
#: first step and maximal change in logarithms of weights.
EVALUATIONS, DECREASE, FIRST_STEP, RANGE = 12, 5e-3, 2.0, 10.0
#: Weights smaller than this, relative to the largest one, are candidates for removal.
SMALL = 0.02


def descend_weights(
    start: list[Array],
    alpha: float,
    bounds: tuple[float, float],
    error: Callable[[list[Array], float], tuple[float, list[Array], float]],
) -> tuple[list[Array], float]:
    """Minimise the held-out squared ``error`` (with gradients) over logs of weights and alpha."""
    splits = np.cumsum([len(weights) for weights in start])
    first = np.log(np.concatenate([*start, [alpha]]))
    best: tuple[float, list[Array], float] = np.inf, start, alpha

    def logarithm(unknowns: Array) -> tuple[float, Array]:
        """Compute the logarithm of the error and its gradient."""
        nonlocal best
        weights, alpha = start, float(np.exp(unknowns[-1]))
        if unknowns is not first:
            weights = [np.exp(part - part.max()) for part in np.split(unknowns, splits)[:-1]]
            weights = [part / part.sum() for part in weights]
        value, gradients, slope = error(weights, alpha)
        if not (np.isfinite(value) and value > 0.0):
            return np.inf, np.zeros(len(unknowns))
        if value < best[0]:
            best = value, weights, alpha
        inner = [w * (g - w @ g) for w, g in zip(weights, gradients, strict=True)]
        return float(np.log(value)), np.append(np.concatenate(inner), alpha * slope) / value

    at_first = logarithm(first)
    length = float(np.linalg.norm(at_first[1]))
    if not (np.isfinite(at_first[0]) and length > 0.0):
        return start, alpha
    scale = FIRST_STEP / length

    def objective(unknowns: Array) -> tuple[float, Array]:
        """Scale the logarithm so that the first gradient step has the length `FIRST_STEP`."""
        value, gradient = at_first if np.array_equal(unknowns, first) else logarithm(unknowns)
        return scale * (value - at_first[0]), scale * gradient

    box = [(value - RANGE, value + RANGE) for value in first[:-1]]
    box.append((np.log(bounds[0]), np.log(bounds[1])))
    options = {"maxfun": EVALUATIONS, "ftol": DECREASE}
    minimize(objective, first, jac=True, method="L-BFGS-B", bounds=box, options=options)
    return best[1], best[2]


def without_small(weights: list[Array]) -> list[Array]:
    """Set weights below `SMALL` times the largest one to zero."""
    kept = [np.where(part < SMALL * part.max(), 0.0, part) for part in weights]
    return [part / part.sum() for part in kept]


def search_weights(
    start: list[Array],
    score: Callable[[list[Array]], float],
    first: float,
    most: float = np.inf,
) -> tuple[list[Array], float]:
    """Search for kernel weights with a better ``score``: multiply, divide, or drop each."""
    best, top = [np.array(weights, dtype=np.float64) for weights in start], first
    places = [(s, k) for s, weights in enumerate(best) for k in range(len(weights))]
    n_trials = 0

    def attempt(s: int, k: int, value: float) -> bool:
        nonlocal top, n_trials
        weights = best[s].copy()
        weights[k] = value
        if not weights.any() or value == best[s][k] or n_trials >= most:
            return False
        n_trials += 1
        weights /= weights.sum()
        trial = [*best[:s], weights, *best[s + 1 :]]
        found = score(trial)
        if not found > top + GAIN:
            return False
        best[s], top = weights, found
        return True

    moved = True
    for sweep, factor in enumerate(FACTORS):
        if not moved and factor == FACTORS[sweep - 1]:
            continue
        moved = False
        for s, k in places:
            if best[s][k] == 0.0:
                continue
            better = False
            second = k == 1 and len(best[s]) == 2  # the first has been multiplied and divided
            while not second and best[s][k] < 1.0 - LEAST and attempt(s, k, factor * best[s][k]):
                better = True
            if not better and not second:
                while best[s][k] > LEAST and attempt(s, k, best[s][k] / factor):
                    better = True
            if not better and sweep == 0:
                better = attempt(s, k, 0.0)
            moved = moved or better
    return best, top


def search_pairs(
    grids: tuple[Array, Array] | None,
    evaluate: Callable[[Array], dict[str, Array]],
    sizes: tuple[float, float],
) -> tuple[int, dict[str, Array]]:
    """Score pairs of alphas, of two ``grids`` or one side after the other, and find the best."""
    if grids is not None:
        pairs = np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1).reshape(-1, 2)
        found = evaluate(pairs)
        return _best_pair(grids, pairs, found["mean_score"]), {"alpha": pairs, **found}
    tried: dict[tuple[float, float], dict[str, Any]] = {}

    def best_pair(pairs: Array) -> Array:
        """The best of ascending pairs (n, 2), of equally good ones the last; each is tried once."""
        keys = [(float(a), float(b)) for a, b in pairs]
        if new := list(dict.fromkeys(key for key in keys if key not in tried)):
            found = evaluate(np.array(new))
            tried.update(
                {key: {name: found[name][i] for name in found} for i, key in enumerate(new)}
            )
        scores = np.array([tried[key]["mean_score"] for key in keys])
        _require_finite(pairs, scores)
        return pairs[best_of(scores)]

    both = [default_grid(size) for size in sizes]
    steps = np.linspace(0, 1, max(map(len, both)))
    line = [grid[np.rint(steps * (len(grid) - 1)).astype(int)] for grid in both]
    at = best_pair(np.column_stack(line))
    for _ in range(SWEEPS):
        before = at.copy()
        for side, grid in enumerate(both):
            pairs = np.repeat(at[None], len(grid), axis=0)
            pairs[:, side] = grid
            at = best_pair(pairs)
        if (at == before).all():
            break
    keys = sorted(tried)
    results = {name: np.array([tried[key][name] for key in keys]) for name in tried[keys[0]]}
    return keys.index((float(at[0]), float(at[1]))), {"alpha": np.array(keys), **results}


def _best_pair(grids: tuple[Array, Array], pairs: Array, scores: Array) -> int:
    """Index of the best pair, with the largest alphas of equally good ones."""
    _require_finite(pairs, scores)
    table, top = scores.reshape(len(grids[0]), len(grids[1])), float(scores.max())
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
