"""Weights of several kernels by cross-validation: a coordinate search on the held-out score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["search_weights"]

Array = NDArray[Any]

#: Factors of a weight in one sweep over all kernels after the other.
FACTORS = (4.0, 4.0, 2.0)

#: Weights below this part of their sum are not made smaller, nor others larger.
LEAST = 0.01

#: A score must be better by this much, so that weights do not follow accidents.
GAIN = 1e-5


def search_weights(
    start: list[Array], score: Callable[[list[Array]], float], first: float
) -> tuple[list[Array], float]:
    """Find weights of the kernels of both sides with a better held-out score.

    Parameters
    ----------
    start : list of ndarray of shape (n_kernels,)
        Weights of every side, which add up to one: the size of a kernel is that of alpha.
    score : callable
        Held-out score of such weights, higher is better.
    first : float
        That of ``start``.

    Returns
    -------
    list of ndarray
        The best weights that were found.
    float
        Their score.

    Notes
    -----
    One weight after the other is multiplied and divided by a factor as long as that helps, and
    set to zero in the first sweep. Each trial changes one side only. A sweep that finds nothing
    ends the search at its factor.
    """
    best, top = [np.array(weights, dtype=np.float64) for weights in start], first
    places = [(s, k) for s, weights in enumerate(best) for k in range(len(weights))]

    def attempt(s: int, k: int, value: float) -> bool:
        nonlocal top
        weights = best[s].copy()
        weights[k] = value
        if not weights.any() or value == best[s][k]:
            return False
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
            while best[s][k] < 1.0 - LEAST and attempt(s, k, factor * best[s][k]):
                better = True
            if not better:
                while best[s][k] > LEAST and attempt(s, k, best[s][k] / factor):
                    better = True
            if not better and sweep == 0:
                better = attempt(s, k, 0.0)
            moved = moved or better
    return best, top
