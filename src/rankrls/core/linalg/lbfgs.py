"""Limited-memory quasi-Newton directions, and a line search on the derivative."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: Number of stored steps.
SIZE = 20

#: A step is accepted if the slope is at most this fraction of the initial slope.
SLOPE = 0.3

MAX_TRIALS = 15


class LBFGSMemory:
    """The last steps s and changes of the gradient y, which approximate the inverse Hessian."""

    def __init__(self) -> None:
        self.pairs: deque[tuple[Array, Array, float]] = deque(maxlen=SIZE)

    def __len__(self) -> int:
        return len(self.pairs)

    def clear(self) -> None:
        """Remove all steps."""
        self.pairs.clear()

    def update(self, s: Array, y: Array) -> None:
        """Store a step if the function is curved along it."""
        curvature = float(s @ y)
        if curvature > 1e-10 * np.linalg.norm(s) * np.linalg.norm(y):
            self.pairs.append((s, y, curvature))

    def direction(self, g: Array) -> Array:
        """Minus the approximate inverse Hessian times the gradient (two-loop recursion)."""
        d = -g
        factors = []
        for s, y, curvature in reversed(self.pairs):
            factors.append(s @ d / curvature)
            d -= factors[-1] * y
        if self.pairs:
            _, y, curvature = self.pairs[-1]
            d *= curvature / (y @ y)  # the length of a Newton step along s
        for (s, y, curvature), factor in zip(self.pairs, reversed(factors), strict=True):
            d += (factor - y @ d / curvature) * s
        return d


class Trial(NamedTuple):
    """A convex function and its derivative at some t, and other values computed there."""

    value: float
    slope: float
    found: Any


def line_search(
    probe: Callable[[float], Trial], start: Trial, first: float, longest: float
) -> tuple[float, Trial]:
    """Find a step t at which a convex function of t is no larger than at 0, and nearly flat.

    ``start`` is the trial at 0, returned if its slope is not below 0, ``first`` the first step to
    try, and from ``longest`` on the slope is not below 0. At a kink, where the slope jumps over
    zero, the best trial is returned, which may be the start.
    """
    # The step is doubled until the slope changes its sign. Then the bracket is narrowed by the
    # secant rule, away from its ends, with the Illinois rule: the slope of an end that stays twice
    # in a row is halved.
    if not start.slope < 0:
        return 0.0, start
    low, slope_low = 0.0, start.slope
    high, slope_high = np.inf, np.inf
    best = (0.0, start)
    side = 0
    t = min(first, longest)
    if not t > 0:
        return best
    for _ in range(MAX_TRIALS):
        trial = probe(t)
        if trial.value <= start.value and abs(trial.slope) <= SLOPE * abs(start.slope):
            return t, trial
        if trial.value < best[1].value:
            best = (t, trial)
        if high < np.inf and high - low <= 1e-9 * high:
            break
        if trial.slope < 0:
            rise = trial.slope - start.slope
            secant = -t * start.slope / rise if rise > 0 else np.inf
            low, slope_low = t, trial.slope
            if high == np.inf:
                t = min(max(2 * t, min(10 * t, secant)), longest)
                continue
            slope_high *= 0.5 if side < 0 else 1.0
            side = -1
        else:
            high, slope_high = t, trial.slope
            slope_low *= 0.5 if side > 0 else 1.0
            side = 1
        rise = slope_high - slope_low
        share = -slope_low / rise if rise > 0 else 0.5
        t = low + (high - low) * min(max(share, 0.1), 0.9)
    return best
