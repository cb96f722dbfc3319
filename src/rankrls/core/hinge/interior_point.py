"""An interior-point method for the hinge loss of pairs that are written out.

With D w = (f_h − f_j)_e the leads of the pairs, and violations ξ and slacks s,

    minimise  alpha ‖w‖² − fᵀδ₀ + cᵀξ     subject to     D w + ξ − s = 1,  ξ >= 0,  s >= 0

where δ₀ holds other pairs, whose dual variables stay as they are. Optimality: 2 alpha w =
adjoint(δ₀ + Dᵀβ), β s = 0 and (c − β) ξ = 0. Newton's method follows the path on which both
products are μ, towards μ = 0 (Mehrotra's predictor and corrector). Its linear systems are
2 alpha w + DᵀΘD w with a positive diagonal Θ: the Laplacian of the pairs with weights Θ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.hinge.losses import PairHinge
from rankrls.core.hinge.spaces import Space

__all__ = ["Interior", "solve_near"]

Array = NDArray[Any]

MAX_ITER = 150
PATIENCE = 20

#: Where the path is entered, as a part of the mean weight of a pair.
ENTRY = 0.1

#: How much of the way to the boundary a step goes.
REACH = 0.995


@dataclass(frozen=True)
class Interior:
    """Where the method ended.

    Attributes
    ----------
    w : ndarray
        Vector of the space.
    beta : ndarray of shape (l,)
        Dual variables, 0 <= β <= c.
    n_iter : int
    """

    w: Array
    beta: Array
    n_iter: int


@dataclass
class _State:
    """Primal and dual variables: coefficients u of w, s and ξ; β and γ = c − β.

    What was last computed of them: leads D w, and δ = δ₀ + Dᵀβ.
    """

    u: Array
    s: Array
    xi: Array
    beta: Array
    gamma: Array
    lead: Array
    delta: Array


def solve_near(
    space: Space, alpha: float, pairs: PairHinge, rest: Array, w: Array, target: float, limit: int
) -> Interior:
    """Minimise over the given pairs, the others being fixed, from the function w.

    Parameters
    ----------
    space : Space
    alpha : float
    pairs : PairHinge
    rest : ndarray of shape (m,)
        δ₀ of all other pairs.
    w : ndarray
    target : float
        Duality gap at which to stop.
    limit : int
        Most iterations.
    """
    problem = _Problem(space, alpha, pairs, rest)
    state = problem.enter(w)
    lowest, u = np.inf, state.u
    highest, beta = -np.inf, state.beta
    n_iter = progress = 0
    # Where rounding has the last word, steps bring nothing any more.
    while n_iter < min(limit, MAX_ITER) and n_iter < progress + PATIENCE:
        n_iter += 1
        primal, dual = problem.primal(state), problem.dual(state)
        if primal < lowest or dual > highest:
            progress = n_iter
        if primal < lowest:
            lowest, u = primal, state.u
        if dual > highest:
            highest, beta = dual, state.beta
        if lowest - highest <= target or not problem.advance(state) > 1e-10:
            break
    return Interior(space.from_coefficients(u), beta, n_iter)


class _Problem:
    def __init__(self, space: Space, alpha: float, pairs: PairHinge, rest: Array) -> None:
        self.space, self.alpha, self.pairs, self.rest = space, alpha, pairs, rest
        self.c = pairs.weight

    def lead(self, f: Array) -> Array:
        """D w, of shape (l,)."""
        return f[self.pairs.head] - f[self.pairs.tail]

    def adjoint(self, delta: Array) -> Array:
        """Coefficients of adjoint(δ)."""
        return self.space.coefficients(self.space.adjoint(delta))

    def forward(self, u: Array) -> Array:
        """f of the function with coefficients u."""
        return self.space.forward(self.space.from_coefficients(u))

    def enter(self, w: Array) -> _State:
        """The point of the path's products β s = γ ξ = μ over w.

        With z = 1 − D w = ξ − s, s solves c s² + (c z − 2μ) s − μ z = 0.
        """
        lead = self.lead(self.space.forward(w))
        z, mu = 1.0 - lead, ENTRY * self.c.mean()
        cz = self.c * z
        root = np.hypot(cz, 2 * mu)
        # Both roots without cancellation: s and ξ are symmetric in the sign of z.
        larger = (2 * mu + np.abs(cz) + root) / (2 * self.c)
        smaller = mu / self.c * (1.0 + (2 * mu) / (np.abs(cz) + root))
        s, xi = np.where(z > 0, smaller, larger), np.where(z > 0, larger, smaller)
        u = self.space.coefficients(w).copy()
        return _State(u, s, xi, mu / s, mu / xi, lead, self.rest)

    def primal(self, state: _State) -> float:
        """alpha ‖w‖² − fᵀδ₀ + Σ c max(0, z)."""
        w = self.space.from_coefficients(state.u)
        f = self.space.forward(w)
        state.lead = self.lead(f)
        quadratic = self.alpha * self.space.norm2(w) - f @ self.rest
        return float(quadratic + self.c @ np.maximum(1.0 - state.lead, 0.0))

    def dual(self, state: _State) -> float:
        """Σβ − ‖adjoint(δ₀ + Dᵀβ)‖²/(4 alpha)."""
        state.delta = self.rest + self.pairs.spread(state.beta)
        A = self.space.adjoint(state.delta)
        return float(state.beta.sum() - self.space.norm2(A) / (4 * self.alpha))

    def advance(self, state: _State) -> float:
        """One step along the path; its length, or NaN if there is none."""
        theta = 1.0 / (state.xi / state.gamma + state.s / state.beta)
        solve = self.space.newton(self.alpha, self.pairs, theta)
        if solve is None:
            return np.nan
        dual_residual = 2 * self.alpha * state.u - self.adjoint(state.delta)
        primal_residual = state.lead + state.xi - state.s - 1.0

        def newton(to_s: Array, to_xi: Array, refine: bool) -> tuple[Array, ...]:
            """Step that changes β s by to_s and γ ξ by to_xi, and removes the residuals."""
            q = to_s / state.beta - to_xi / state.gamma - primal_residual
            du = solve(self.adjoint(self.pairs.spread(theta * q)) - dual_residual, refine)
            dbeta = theta * (q - self.lead(self.forward(du)))
            ds = (to_s - state.s * dbeta) / state.beta
            dxi = (to_xi + state.xi * dbeta) / state.gamma
            return du, dbeta, ds, dxi

        n = 2 * len(theta)
        bs, gx = state.beta * state.s, state.gamma * state.xi
        mu = (bs.sum() + gx.sum()) / n
        _, dbeta, ds, dxi = newton(-bs, -gx, False)
        t = _longest(state, dbeta, ds, dxi)
        ahead = (state.beta + t * dbeta) @ (state.s + t * ds)
        ahead += (state.gamma - t * dbeta) @ (state.xi + t * dxi)
        centre = mu * (ahead / n / mu) ** 3
        du, dbeta, ds, dxi = newton(centre - bs - dbeta * ds, centre - gx + dbeta * dxi, True)
        t = min(1.0, REACH * _longest(state, dbeta, ds, dxi))
        if not np.isfinite(du).all():
            return np.nan
        state.u = state.u + t * du
        state.s = state.s + t * ds
        state.xi = state.xi + t * dxi
        state.beta = state.beta + t * dbeta
        state.gamma = state.gamma - t * dbeta
        return t


@np.errstate(divide="ignore", invalid="ignore")
def _longest(state: _State, dbeta: Array, ds: Array, dxi: Array) -> float:
    """The longest step t <= 1 that keeps s, ξ, β and γ from becoming negative."""
    longest = 1.0
    moves = ((state.s, ds), (state.xi, dxi), (state.beta, dbeta), (state.gamma, -dbeta))
    for value, change in moves:
        worst = -np.fmin.reduce(change / value, initial=0.0)
        if worst * longest > 1.0:
            longest = 1.0 / worst
    return longest
