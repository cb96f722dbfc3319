"""An interior-point method for the hinge loss of materialised pairs.

With D w = (f_h − f_j)_e the score differences of the pairs, violations ξ and slacks s,

    minimise  alpha ‖w‖² − fᵀδ₀ + cᵀξ     subject to     D w + ξ − s = 1,  ξ >= 0,  s >= 0

where δ₀ comes from other pairs, whose dual variables are fixed. Optimality means 2 alpha w =
adjoint(δ₀ + Dᵀβ), β s = 0 and (c − β) ξ = 0. Newton's method follows the path on which both
products are μ, towards μ = 0 (Mehrotra's predictor and corrector). Its linear systems are 2 alpha w
+ DᵀΘD w with a positive diagonal Θ: the Laplacian of the pairs with weights Θ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankrls.core.hinge.function_spaces import FunctionSpace
from rankrls.core.hinge.losses import PairHinge

__all__ = ["InteriorPointResult", "solve_pairs"]

Array = NDArray[Any]

MAX_ITER = 150
PATIENCE = 20

#: Initial μ, as a fraction of the mean weight of a pair.
INITIAL_MU = 0.1

#: Fraction of the step to the boundary that is taken.
STEP_FRACTION = 0.995


class InteriorPointResult(NamedTuple):
    """A vector w of the space, and dual variables 0 <= β <= c of shape (l,)."""

    w: Array
    beta: Array
    n_iter: int


@dataclass
class _Iterate:
    """Primal variables (coefficients u of w, s and ξ) and dual variables (β and γ = c − β).

    Also holds the differences D w and δ = δ₀ + Dᵀβ computed from them.
    """

    u: Array
    s: Array
    xi: Array
    beta: Array
    gamma: Array
    difference: Array
    delta: Array


def solve_pairs(
    space: FunctionSpace,
    alpha: float,
    pairs: PairHinge,
    rest: Array,
    w: Array,
    target: float,
    limit: int,
) -> InteriorPointResult:
    """Minimise over the given pairs, with the others fixed, starting from the function w.

    ``rest`` is δ₀ of all other pairs, shape (m,), ``target`` the duality gap at which to stop, and
    ``limit`` the maximum number of iterations.
    """
    method = _InteriorPoint(space, alpha, pairs, rest)
    iterate = method.start(w)
    lowest, u = np.inf, iterate.u
    highest, beta = -np.inf, iterate.beta
    n_iter = progress = 0
    # At floating-point precision, neither bound improves further.
    while n_iter < min(limit, MAX_ITER) and n_iter < progress + PATIENCE:
        n_iter += 1
        primal, dual = method.primal(iterate), method.dual(iterate)
        if primal < lowest or dual > highest:
            progress = n_iter
        if primal < lowest:
            lowest, u = primal, iterate.u
        if dual > highest:
            highest, beta = dual, iterate.beta
        if lowest - highest <= target or not method.advance(iterate) > 1e-10:
            break
    return InteriorPointResult(space.from_coefficients(u), np.clip(beta, 0.0, pairs.weight), n_iter)


class _InteriorPoint:
    def __init__(self, space: FunctionSpace, alpha: float, pairs: PairHinge, rest: Array) -> None:
        self.space, self.alpha, self.pairs, self.rest = space, alpha, pairs, rest
        self.c = pairs.weight

    def difference(self, u: Array) -> Array:
        """D w of the function with coefficients u, of shape (l,)."""
        return self.pairs.differences(self.space.forward(self.space.from_coefficients(u)))

    def start(self, w: Array) -> _Iterate:
        """Starting point for w with the products β s = γ ξ = μ.

        With z = 1 − D w = ξ − s, s solves c s² + (c z − 2μ) s − μ z = 0.
        """
        difference = self.pairs.differences(self.space.forward(w))
        z, mu = 1.0 - difference, INITIAL_MU * self.c.mean()
        cz = self.c * z
        root = np.hypot(cz, 2 * mu)
        # Both roots without cancellation: s and ξ are symmetric in the sign of z.
        larger = (2 * mu + np.abs(cz) + root) / (2 * self.c)
        smaller = mu / self.c * (1.0 + (2 * mu) / (np.abs(cz) + root))
        s, xi = np.where(z > 0, smaller, larger), np.where(z > 0, larger, smaller)
        u = self.space.coefficients(w).copy()
        return _Iterate(u, s, xi, mu / s, mu / xi, difference, self.rest)

    def primal(self, iterate: _Iterate) -> float:
        """alpha ‖w‖² − fᵀδ₀ + Σ c max(0, z)."""
        w = self.space.from_coefficients(iterate.u)
        f = self.space.forward(w)
        iterate.difference = self.pairs.differences(f)
        quadratic = self.alpha * self.space.norm2(w) - f @ self.rest
        return float(quadratic + self.c @ np.maximum(1.0 - iterate.difference, 0.0))

    def dual(self, iterate: _Iterate) -> float:
        """Σβ − ‖adjoint(δ₀ + Dᵀβ)‖²/(4 alpha)."""
        iterate.delta = self.rest + self.pairs.spread(iterate.beta)
        A = self.space.adjoint(iterate.delta)
        return float(iterate.beta.sum() - self.space.norm2(A) / (4 * self.alpha))

    def advance(self, iterate: _Iterate) -> float:
        """Take one step along the path; return its length, or NaN if there is none."""
        theta = 1.0 / (iterate.xi / iterate.gamma + iterate.s / iterate.beta)
        solve = self.space.newton(self.alpha, self.pairs, theta)
        if solve is None:
            return np.nan
        dual_residual = 2 * self.alpha * iterate.u - self.space.representer(iterate.delta)
        primal_residual = iterate.difference + iterate.xi - iterate.s - 1.0

        def newton(to_s: Array, to_xi: Array, refine: bool) -> tuple[Array, ...]:
            """Step that changes β s by to_s and γ ξ by to_xi, and removes the residuals."""
            q = to_s / iterate.beta - to_xi / iterate.gamma - primal_residual
            right = self.space.representer(self.pairs.spread(theta * q)) - dual_residual
            du = solve(right, refine)
            dbeta = theta * (q - self.difference(du))
            ds = (to_s - iterate.s * dbeta) / iterate.beta
            dxi = (to_xi + iterate.xi * dbeta) / iterate.gamma
            return du, dbeta, ds, dxi

        n = 2 * len(theta)
        bs, gx = iterate.beta * iterate.s, iterate.gamma * iterate.xi
        mu = (bs.sum() + gx.sum()) / n
        _, dbeta, ds, dxi = newton(-bs, -gx, False)
        t = _longest(iterate, dbeta, ds, dxi)
        ahead = (iterate.beta + t * dbeta) @ (iterate.s + t * ds)
        ahead += (iterate.gamma - t * dbeta) @ (iterate.xi + t * dxi)
        centre = mu * (ahead / n / mu) ** 3
        du, dbeta, ds, dxi = newton(centre - bs - dbeta * ds, centre - gx + dbeta * dxi, True)
        t = min(1.0, STEP_FRACTION * _longest(iterate, dbeta, ds, dxi))
        if not np.isfinite(du).all():
            return np.nan
        iterate.u = iterate.u + t * du
        iterate.s = iterate.s + t * ds
        iterate.xi = iterate.xi + t * dxi
        iterate.beta = iterate.beta + t * dbeta
        iterate.gamma = iterate.gamma - t * dbeta
        return t


@np.errstate(divide="ignore", invalid="ignore")
def _longest(iterate: _Iterate, dbeta: Array, ds: Array, dxi: Array) -> float:
    """The longest step t <= 1 that keeps s, ξ, β and γ from becoming negative."""
    longest = 1.0
    moves = ((iterate.s, ds), (iterate.xi, dxi), (iterate.beta, dbeta), (iterate.gamma, -dbeta))
    for value, change in moves:
        worst = -np.fmin.reduce(change / value, initial=0.0)
        if worst * longest > 1.0:
            longest = 1.0 / worst
    return longest
