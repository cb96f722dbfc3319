"""Conjugate gradients with a preconditioner close to the inverse, for one right-hand side.

`converge` of `conjugate_gradients` shares products among many alphas, and supports only a diagonal
preconditioner. Here every alpha has its own preconditioner and its own run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankrls.core.linalg.conjugate_gradients import Iteration, IterationOptions
from rankrls.core.linalg.krylov import overflow_error

__all__ = ["Solution", "solve_preconditioned"]

Array = NDArray[Any]

#: Maximum number of restarts of the recurrence from the true residual.
MAX_RESTARTS = 3

#: Acceptable residual, in multiples of the estimated rounding errors.
ROUNDING = 10.0

#: Target of both norms of the residual, as a fraction of the tolerance.
MARGIN = 0.3


class Solution(NamedTuple):
    """Result of an iterative solve.

    Attributes
    ----------
    x : ndarray of shape (n,)
    n_iter : int
    residual : float
        ‖b − Ax‖/‖b‖, or the same ratio in the norm of the preconditioner if that is larger. With a
        good preconditioner, this is approximately the relative error of x.
    accepted : bool
        Whether the residual is below the tolerance.
    stopped : bool
        Whether the callback requested a stop.
    """

    x: Array
    n_iter: int
    residual: float
    accepted: bool
    stopped: bool


def solve_preconditioned(
    product: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    b: Array,
    options: IterationOptions,
    start: Array | None = None,
    magnitude: Callable[[Array], float] | None = None,
) -> Solution:
    """Solve A x = b for symmetric positive definite A and preconditioner.

    Parameters
    ----------
    product : function of an array (n,)
        Computes A v.
    precondition : function of an array (n,)
        Computes an approximation of A⁻¹ v.
    b : ndarray of shape (n,)
    options : IterationOptions
    start : ndarray of shape (n,), optional
        Initial value, such as the solution of similar equations.
    magnitude : function of an array (n,), optional
        Norm to which the rounding errors of ``product`` are relative.
    """
    x = np.zeros_like(b) if start is None else start.copy()
    sizes = float(np.linalg.norm(b)), float(np.sqrt(max(float(b @ precondition(b)), 0.0)))
    if not np.isfinite(sizes).all():
        raise overflow_error()
    if sizes[0] == 0.0:
        return Solution(np.zeros_like(b), 0, 0.0, True, False)
    n_iter, stopped, residual = 0, False, np.inf
    for _ in range(1 + MAX_RESTARTS):
        r = b - product(x)
        z = precondition(r)
        square = float(r @ z)
        before, residual = residual, _relative(r, square, sizes)
        done = residual <= options.tol or n_iter >= options.max_iter or stopped
        if done or residual > 0.5 * before:
            break
        p = z.copy()
        while n_iter < options.max_iter and not stopped:
            Ap = product(p)
            curvature = p @ Ap
            if not curvature > 0.0:
                break
            step = square / curvature
            x += step * p
            r -= step * Ap
            z = precondition(r)
            # The formula of Polak and Ribière tolerates rounding errors of the preconditioner.
            kept = step * float(Ap @ z) / square
            square = float(r @ z)
            n_iter += 1
            current = _relative(r, square, sizes)
            options.progress.bar(n_iter, options.max_iter, f"residual {current:.2g}")
            if options.callback is not None:
                stopped = bool(options.callback(Iteration(n_iter, current)))
            if not square > 0.0 or current <= MARGIN * options.tol:
                break
            p *= -kept
            p += z
    limit = float(options.tol)
    if magnitude is not None:
        limit = max(limit, ROUNDING * float(np.finfo(np.float64).eps) * magnitude(x) / sizes[0])
    return Solution(x, n_iter, residual, residual <= limit, stopped)


def _relative(r: Array, square: float, sizes: tuple[float, float]) -> float:
    """Return the larger of the two relative norms of a residual."""
    second = np.sqrt(max(square, 0.0)) / sizes[1] if sizes[1] > 0 else 0.0
    return float(max(np.linalg.norm(r) / sizes[0], second))
