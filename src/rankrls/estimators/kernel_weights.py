"""Choice of kernel weights by a coordinate search on the held-out score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["search_weights"]

Array = NDArray[Any]

#: Factors by which weights are changed, one factor for each sweep over all kernels.
FACTORS = (4.0, 4.0, 2.0)

#: Weights below this fraction of their sum are not decreased, and those above one minus this
#: fraction are not increased.
LEAST = 0.01

#: Minimum improvement of the score, so that weights do not follow noise.
GAIN = 1e-5


def search_weights(
    start: list[Array], score: Callable[[list[Array]], float], first: float
) -> tuple[list[Array], float]:
    """Search for kernel weights of both sides with a better held-out score.

    Parameters
    ----------
    start : list of ndarray of shape (n_kernels,)
        Weights of each side, which sum to one; the overall scale is left to alpha.
    score : callable
        Returns the held-out score of weights, higher = better.
    first : float
        Score of ``start``.

    Returns
    -------
    list of ndarray
        The best weights found.
    float
        Their score.

    Notes
    -----
    Each weight in turn is multiplied or divided by a factor as long as the score improves, and in
    the first sweep also set to zero. Each trial changes one side only. A sweep without improvement
    ends the search for its factor.
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
