"""RankSVM: minimises P(w) = Σ c max(0, 1 − (f_h − f_j)) + alpha ‖w‖², with a certificate.

For any dual variables 0 <= β <= c, with δ = Σ β_e (e_h − e_j) and A = adjoint(δ),

    D(β) = Σ β − ‖A‖²/(4 alpha)  <=  minimum  <=  P(w)

and P(w) − D(β) = slack + ‖2 alpha w − A‖²/(4 alpha) where β belongs to w. Three ways down, each
for what the one before leaves of the gap:

1. L-BFGS on the hinge itself. With many pairs it is as good as smooth, and it is the cheapest to
   count.
2. L-BFGS on a hinge whose corner is rounded as far as the tolerance allows. The pairs in the corner
   then have fractions of c as dual variables, as they need in the optimum.
3. An interior-point method over the pairs near the corner, for weak regularisation in many
   dimensions, where as many pairs sit in the corner as there are dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.preferences import HingeLoss, PairHinge, Violations
from rankrls.solvers._interior import solve_near
from rankrls.solvers._lbfgs import Memory, Trial, line_search
from rankrls.solvers._spaces import Space

__all__ = ["MAX_DIMENSION", "HingeSolution", "minimise_hinge"]

Array = NDArray[Any]
Evaluate = Callable[[Array], Violations]

#: The part of the tolerated gap that rounding the corner may take.
SLACK = 0.3

#: The hinge is left for its rounded version if so many iterations brought nothing.
PATIENCE = 3

#: Most iterations on the hinge, and on the rounded one, before the interior-point method is tried
#: where it can be. A step of the latter costs as much as hundreds of the former if the dimension
#: is large: then that many are allowed.
HINGE_ITER = 100
ROUNDED_ITER = 60
ROUNDED_PER_DIMENSION = 0.25

#: The largest linear system of the interior-point method, and the most pairs it writes out.
MAX_DIMENSION = 3000
MAX_NEAR = 400_000

#: Pairs are near the corner if they are closer than 1, ½, ¼ …, down to this.
NARROWEST = 2.0**-12

#: ‖f‖² below zero by more than this part of the objective is not rounding.
INDEFINITE = 1e-3

#: How often the pairs near the corner are chosen anew.
MAX_ROUNDS = 20


@dataclass(frozen=True)
class HingeSolution:
    """A function and how good it is.

    Attributes
    ----------
    coefficients : ndarray of shape (n,) or (m,)
        Weights, or kernel coefficients; see `Space.coefficients`.
    objective : float
        P(w).
    gap : float
        Relative duality gap (P − D)/P: the minimum is not below (1 − gap) P.
    n_iter : int
    """

    coefficients: Array
    objective: float
    gap: float
    n_iter: int


def minimise_hinge(
    loss: HingeLoss,
    space: Space,
    alpha: float,
    *,
    squared: bool = False,
    tol: float,
    max_iter: int,
    start: Array | None = None,
) -> HingeSolution:
    """Minimise to a relative duality gap of ``tol``, or for ``max_iter`` iterations.

    Parameters
    ----------
    loss : HingeLoss over m rows
    space : Space of functions of m rows
    alpha : float
    squared : bool
        Minimise Σ c max(0, z)² + alpha ‖w‖² instead, which is smooth.
    tol : float
    max_iter : int
    start : ndarray, optional
        Coefficients to start from, such as those for another alpha.
    """
    search = _Search(loss, space, alpha, tol, max_iter)
    w = space.zero() if start is None else space.from_coefficients(start)
    if squared:
        search.descend(w, loss.squared, limit=max_iter)
        return search.solution()
    near = space.has_newton and space.dimension <= MAX_DIMENSION
    search.descend(w, loss.hinge, limit=HINGE_ITER if near else max_iter, patience=PATIENCE)
    rounded = max(ROUNDED_ITER, int(ROUNDED_PER_DIMENSION * space.dimension))
    search.descend_rounded(limit=rounded if near else max_iter)
    if near:
        search.enter()
        search.descend_rounded(limit=max_iter)
    return search.solution()


@dataclass(frozen=True)
class _Point:
    """A function w with f = forward(w), and the dual variables that belong to it."""

    w: Array
    f: Array
    violations: Violations
    gradient: Array  # 2 alpha w − A
    objective: float  # P(w)
    excess: float  # P(w) − D(β)


class _Search:
    """The best function and the best lower bound so far, and the ways to better ones."""

    best: _Point

    def __init__(
        self, loss: HingeLoss, space: Space, alpha: float, tol: float, max_iter: int
    ) -> None:
        self.loss, self.space, self.alpha = loss, space, alpha
        self.tol, self.max_iter = tol, max_iter
        self.n_iter = 0
        self.bound = -np.inf

    @property
    def gap(self) -> float:
        """(P − D)/P."""
        return max(self.best.objective - self.bound, 0.0) / self.best.objective

    def done(self) -> bool:
        """Converged, or out of iterations."""
        return self.n_iter >= self.max_iter or self.gap <= self.tol

    @property
    def slack(self) -> float:
        """What rounding the corner may cost."""
        return SLACK * self.tol * self.best.objective

    def solution(self) -> HingeSolution:
        """The best function."""
        coefficients = self.space.coefficients(self.best.w)
        return HingeSolution(coefficients, self.best.objective, self.gap, self.n_iter)

    def visit(self, w: Array, f: Array, violations: Violations) -> _Point:
        """Take note of a function and of the dual variables that belong to it."""
        space = self.space
        gradient = 2 * self.alpha * w - space.adjoint(violations.delta)
        objective = violations.loss + self.alpha * space.norm2(w)
        energy = space.inner(gradient, gradient) / (4 * self.alpha)
        if not np.isfinite(objective) or not np.isfinite(energy):
            raise ValueError(
                "the objective overflows: scale the features (or the kernel) or the weights down"
            )
        if energy < -INDEFINITE * objective:
            raise ValueError(
                "the kernel matrix is not positive semi-definite, so that ‖f‖² can be negative: "
                "RankSVM needs another kernel, or other parameters of it"
            )
        excess = violations.slack + max(energy, 0.0)
        point = _Point(w, f, violations, gradient, objective, excess)
        if not hasattr(self, "best") or objective < self.best.objective:
            self.best = point
        self.bound = max(self.bound, objective - excess)
        return point

    def descend(
        self, w: Array, evaluate: Evaluate, limit: int, patience: int | None = None
    ) -> None:
        """L-BFGS from w for ``limit`` steps, or until ``patience`` steps brought nothing."""
        f = self.space.forward(w)
        point = self.visit(w, f, evaluate(f))
        memory = Memory(self.space.inner)
        history = [(point.objective, point.excess)]
        while len(history) <= limit and not self.done() and not self._stalls(history, patience):
            point = self._step(point, memory, evaluate)
            history.append((point.objective, point.excess))

    def _stalls(self, history: list[tuple[float, float]], patience: int | None) -> bool:
        """Whether lately neither the gap halved nor the objective decreased by what matters."""
        if patience is None or len(history) < patience + 2:
            return False
        objective, excess = np.minimum.accumulate(history, axis=0).T
        decrease = objective[-1 - patience] - objective[-1]
        return excess[-1] > 0.5 * excess[-1 - patience] and decrease < self.slack

    def _step(self, point: _Point, memory: Memory, evaluate: Evaluate) -> _Point:
        """One step of L-BFGS."""
        d = memory.direction(point.gradient)
        if self.space.inner(point.gradient, d) >= 0:
            memory.clear()
            d = -point.gradient
        new = self._search_along(point, d, evaluate, first=1.0 if len(memory) else None)
        memory.update(new.w - point.w, new.gradient - point.gradient)
        self.n_iter += 1
        return new

    def _search_along(
        self, point: _Point, d: Array, evaluate: Evaluate, first: float | None
    ) -> _Point:
        """A point on the ray from ``point`` along d; all trials share the product forward(d)."""
        alpha, inner = self.alpha, self.space.inner
        fd = self.space.forward(d)
        wd, dd = inner(point.w, d), inner(d, d)
        # δ sums to zero: a constant in fd would only be rounded.
        centred = fd - fd.mean()
        if first is None:  # brings leads to the size of the margin
            first = 1.0 / max(float(centred.std()), np.finfo(float).tiny)

        def trial(t: float, violations: Violations) -> Trial:
            value = violations.value + alpha * (2 * wd + t * dd) * t
            slope = 2 * alpha * (wd + t * dd) - centred @ violations.delta
            return Trial(value, slope, violations)

        start = trial(0.0, point.violations)
        # The loss is convex, so that the slope at t is at least that at 0 plus 2 alpha t ⟨d, d⟩.
        longest = max(-start.slope, 0.0) / (2 * alpha * dd) if dd > 0 else 0.0
        t, found = line_search(
            lambda t: trial(t, evaluate(point.f + t * fd)), start, first, longest
        )
        return self.visit(point.w + t * d, point.f + t * fd, found.found)

    def descend_rounded(self, limit: int) -> None:
        """L-BFGS from the best function, with the corner rounded as far as the slack allows."""
        if self.done():
            return
        point, mu = self._round(self.best, 1.0)
        memory = Memory(self.space.inner)
        for _ in range(limit):
            if point.violations.slack > self.slack and point.excess < 2 * point.violations.slack:
                point, mu = self._round(point, 0.5 * mu)
            new = self._step(point, memory, partial(self.loss.smoothed, mu=mu))
            if self.done() or np.array_equal(new.w, point.w):
                return
            point = new

    def _round(self, point: _Point, mu: float) -> tuple[_Point, float]:
        """The same function with fractional dual variables, and how far the corner is rounded."""
        while True:
            violations = self.loss.smoothed(point.f, mu)
            if violations.slack <= self.slack or mu < 1e-12:
                return self.visit(point.w, point.f, violations), mu
            # The slack grows like mu².
            mu *= min(0.5, max(0.05, np.sqrt(0.8 * self.slack / violations.slack)))

    def enter(self) -> None:
        """Interior point: solve for the pairs near the corner, look at all pairs, repeat."""
        for _ in range(MAX_ROUNDS):
            if self.done():
                return
            best, gap = self.best, self.gap
            near = self._near(best.f)
            if near is None:
                return
            low, pairs = near
            rest = self.loss.step(best.f, low)
            found = solve_near(
                self.space,
                self.alpha,
                pairs,
                rest.delta,
                best.w,
                target=0.5 * self.tol * best.objective,
                limit=self.max_iter - self.n_iter,
            )
            self.n_iter += found.n_iter
            A = self.space.adjoint(rest.delta + pairs.spread(found.beta))
            beta = rest.beta + float(found.beta.sum())
            self.bound = max(self.bound, beta - self.space.norm2(A) / (4 * self.alpha))
            f = self.space.forward(found.w)
            new = self.visit(found.w, f, self.loss.hinge(f))
            if new.objective > best.objective:  # pairs far from the corner have come to it
                start = self.visit(best.w, best.f, self.loss.hinge(best.f))
                self._search_along(start, found.w - best.w, self.loss.hinge, first=0.5)
            if self.gap > 0.9 * gap and self.best.objective > best.objective - self.slack:
                return

    def _near(self, f: Array) -> tuple[float, PairHinge] | None:
        """The pairs with low <= f_h − f_j < high: all of them, or those near the corner.

        None if there are too many at the corner itself, as where all pairs of two classes are put
        at a distance of one.
        """
        width = np.inf if self.loss.n_pairs <= MAX_NEAR else 1.0
        while width > NARROWEST:
            pairs = self.loss.between(f, 1.0 - width, 1.0 + width, MAX_NEAR)
            if pairs is not None:
                return 1.0 - width, pairs
            width = min(1.0, 0.5 * width)  # also where all pairs are few, but not all comparisons
        return None
