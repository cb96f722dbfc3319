"""An interior-point method for the hinge loss of materialised pairs.

With D w = (f_h − f_j)_e, violations ξ, slacks s, and δ₀ of other pairs, which are fixed,

    minimise  alpha ‖w‖² − fᵀδ₀ + cᵀξ     subject to     D w + ξ − s = 1,  ξ >= 0,  s >= 0

by Newton's method along the path on which β s = (c − β) ξ = μ (Mehrotra's predictor and corrector).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.hinge.function_spaces import FeatureSpace
from rankrls.core.hinge.losses import PairHinge

__all__ = ["solve_pairs"]

Array = NDArray[Any]

#: Maximum number of iterations, and of iterations without progress.
MAX_ITER, PATIENCE = 150, 20

#: Initial μ, as a fraction of the mean weight of a pair.
INITIAL_MU = 0.1

#: Fraction of the step to the boundary that is taken.
STEP_FRACTION = 0.995


def solve_pairs(
    space: FeatureSpace,
    alpha: float,
    pairs: PairHinge,
    rest: Array,
    w: Array,
    target: float,
    limit: int,
) -> tuple[Array, Array, int]:
    """Minimise over the given pairs, starting from w; return w, 0 <= β <= c, and the iterations.

    ``rest`` is δ₀, shape (m,), ``target`` the duality gap at which to stop, ``limit`` as n_iter.
    """
    c = pairs.weight
    # s and ξ with ξ − s = z and β s = γ ξ = μ: s solves c s² + (c z − 2μ) s − μ z = 0. They are
    # symmetric in the sign of z, and the smaller one is computed without cancellation.
    z, mu = 1.0 - pairs.differences(space.forward(w)), INITIAL_MU * c.mean()
    cz = np.abs(c * z)
    root = np.hypot(cz, 2 * mu)
    larger = (2 * mu + cz + root) / (2 * c)
    smaller = mu / c * (1.0 + (2 * mu) / (cz + root))
    s, xi = np.where(z > 0, smaller, larger), np.where(z > 0, larger, smaller)
    state: tuple[Array, ...] = (w, s, xi, mu / s, mu / xi)
    best, best_beta, lowest, highest = w, state[3], np.inf, -np.inf
    n_iter = progress = 0
    # At floating-point precision, neither bound improves further.
    while n_iter < min(limit, MAX_ITER) and n_iter < progress + PATIENCE:
        n_iter += 1
        w, beta = state[0], state[3]
        f, A = space.forward(w), space.adjoint(rest + pairs.spread(beta))
        difference = pairs.differences(f)
        primal = float(alpha * (w @ w) - f @ rest + c @ np.maximum(1.0 - difference, 0.0))
        dual = float(beta.sum() - A @ A / (4 * alpha))
        if primal < lowest:
            lowest, best, progress = primal, w, n_iter
        if dual > highest:
            highest, best_beta, progress = dual, beta, n_iter
        if lowest - highest <= target:
            break
        moved = _step(space, alpha, pairs, state, difference, A)
        if moved is None:
            break
        state = moved
    return best, np.clip(best_beta, 0.0, c), n_iter


def _step(
    space: FeatureSpace,
    alpha: float,
    pairs: PairHinge,
    state: tuple[Array, ...],
    difference: Array,
    A: Array,
) -> tuple[Array, ...] | None:
    """One step along the path, from and to w, s, ξ, β and γ; None if there is none."""
    w, s, xi, beta, gamma = state
    theta = 1.0 / (xi / gamma + s / beta)
    solve = space.newton(alpha, pairs, theta)
    if solve is None:
        return None

    def newton(to_s: Array, to_xi: Array, refine: bool) -> tuple[Array, ...]:
        """Step that changes β s by to_s and γ ξ by to_xi, and removes the residuals."""
        q = to_s / beta - to_xi / gamma - (difference + xi - s - 1.0)
        dw = solve(space.adjoint(pairs.spread(theta * q)) - (2 * alpha * w - A), refine)
        dbeta = theta * (q - pairs.differences(space.forward(dw)))
        return dw, (to_s - s * dbeta) / beta, (to_xi + xi * dbeta) / gamma, dbeta, -dbeta

    bs, gx = beta * s, gamma * xi
    mu = (bs.sum() + gx.sum()) / (2 * len(s))
    _, ds, dxi, dbeta, _ = changes = newton(-bs, -gx, False)
    t = _longest(state, changes)
    ahead = (beta + t * dbeta) @ (s + t * ds) + (gamma - t * dbeta) @ (xi + t * dxi)
    centre = mu * (ahead / (2 * len(s)) / mu) ** 3
    changes = newton(centre - bs - dbeta * ds, centre - gx + dbeta * dxi, True)
    t = min(1.0, STEP_FRACTION * _longest(state, changes))
    if not np.isfinite(changes[0]).all() or not t > 1e-10:
        return None
    return tuple(value + t * change for value, change in zip(state, changes, strict=True))


@np.errstate(divide="ignore", invalid="ignore")
def _longest(state: tuple[Array, ...], changes: tuple[Array, ...]) -> float:
    """The longest step t <= 1 that keeps s, ξ, β and γ from becoming negative."""
    moves = zip(state[1:], changes[1:], strict=True)
    worst = max(-np.fmin.reduce(change / value, initial=0.0) for value, change in moves)
    return 1.0 / max(worst, 1.0)
