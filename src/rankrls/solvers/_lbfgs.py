"""Limited-memory quasi-Newton directions, and a line search on the derivative."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Memory", "line_search"]

Array = NDArray[Any]
T = TypeVar("T")

#: Steps that are remembered.
SIZE = 20

#: A step is accepted where the slope is this small a part of what it was.
SLOPE = 0.3

MAX_TRIALS = 15


class Memory:
    """The last steps s and changes of the gradient y, as an approximation of the inverse Hessian.

    Parameters
    ----------
    inner : callable
        The inner product of the space.
    """

    def __init__(self, inner: Callable[[Array, Array], float]) -> None:
        self.inner = inner
        self.pairs: deque[tuple[Array, Array, float]] = deque(maxlen=SIZE)

    def __len__(self) -> int:
        return len(self.pairs)

    def clear(self) -> None:
        """Forget everything."""
        self.pairs.clear()

    def update(self, s: Array, y: Array) -> None:
        """Remember a step, if the function was curved along it."""
        curvature = self.inner(s, y)
        if curvature > 1e-10 * np.sqrt(self.inner(s, s) * self.inner(y, y)):
            self.pairs.append((s, y, curvature))

    def direction(self, g: Array) -> Array:
        """Minus the approximate inverse Hessian times the gradient (two-loop recursion)."""
        d = -g
        factors = []
        for s, y, curvature in reversed(self.pairs):
            factors.append(self.inner(s, d) / curvature)
            d -= factors[-1] * y
        if self.pairs:
            _, y, curvature = self.pairs[-1]
            d *= curvature / self.inner(y, y)
        for (s, y, curvature), factor in zip(self.pairs, reversed(factors), strict=True):
            d += (factor - self.inner(y, d) / curvature) * s
        return d


def line_search(
    probe: Callable[[float], tuple[float, T]], slope: float, first: float, longest: float
) -> tuple[float, T]:
    """Find a step t at which a convex function of t is nearly flat.

    Parameters
    ----------
    probe : callable
        Gives the derivative at t, and whatever else was computed there.
    slope : float
        The derivative at 0, below 0.
    first : float
        The first step to try.
    longest : float
        The derivative is not below 0 from here on.

    Returns
    -------
    t : float
    found : what ``probe`` gave at t

    Notes
    -----
    Doubles the step until the derivative changes its sign, then closes in by the secant rule, kept
    away from the ends of the bracket. At a kink, where the derivative jumps over zero, the last
    trial is returned.
    """
    low, slope_low = 0.0, slope
    high, slope_high = np.inf, np.inf
    t = min(first, longest)
    for _ in range(MAX_TRIALS):
        derivative, found = probe(t)
        if abs(derivative) <= SLOPE * abs(slope) or high - low <= 1e-9 * high:
            break
        if derivative < 0:
            secant = t * slope / (slope - derivative) if slope < derivative else np.inf
            low, slope_low = t, derivative
            if high == np.inf:
                t = min(max(2 * t, min(10 * t, secant)), longest)
                continue
        else:
            high, slope_high = t, derivative
        share = slope_low / (slope_low - slope_high)
        t = low + (high - low) * min(max(share, 0.1), 0.9)
    return t, found
