"""The state of a search for RankSVM: the best function, the best lower bound, and single steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.hinge.losses import HingeLoss, Violations
from rankrls.core.hinge.spaces import Space
from rankrls.core.linalg.lbfgs import Memory, Trial, line_search

__all__ = ["Evaluate", "HingeSolution", "Point", "Search"]

Array = NDArray[Any]
Evaluate = Callable[[Array], Violations]

#: The part of the tolerated gap that rounding the corner may take.
SLACK = 0.3

#: Steps over which the pace is measured.
PACE = 25

#: ‖f‖² below zero by more than this part of the objective is not rounding.
INDEFINITE = 1e-3


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


@dataclass(frozen=True)
class Point:
    """A function w with f = forward(w), and the dual variables that belong to it."""

    w: Array
    f: Array
    violations: Violations
    gradient: Array  # 2 alpha w − A
    objective: float  # P(w)
    excess: float  # P(w) − D(β)


class Search:
    """The best function and the best lower bound so far, and the ways to better ones."""

    best: Point

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

    def visit(self, w: Array, f: Array, violations: Violations) -> Point:
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
        point = Point(w, f, violations, gradient, objective, excess)
        if not hasattr(self, "best") or objective < self.best.objective:
            self.best = point
        self.bound = max(self.bound, objective - excess)
        return point

    def in_reach(self, history: list[float], limit: int, pace: int = PACE) -> bool:
        """Whether ``limit`` steps will close the gap, at the pace of the last ``pace`` ones.

        ``history`` has the excess P(w) − D(β) of all points so far.
        """
        if len(history) <= pace:
            return True
        wanted = self.tol * self.best.objective
        before, now = min(history[:-pace]), min(history)
        if now <= wanted:
            return True
        if now >= before:
            return False
        steps = pace * np.log(now / wanted) / np.log(before / now)
        return bool(len(history) - 1 + steps <= limit)

    def quasi_newton(self, point: Point, memory: Memory, evaluate: Evaluate) -> Point:
        """One step of L-BFGS."""
        d = memory.direction(point.gradient)
        if self.space.inner(point.gradient, d) >= 0:
            memory.clear()
            d = -point.gradient
        new, _ = self.search_along(point, d, evaluate, first=1.0 if len(memory) else None)
        memory.update(new.w - point.w, new.gradient - point.gradient)
        self.n_iter += 1
        return new

    def search_along(
        self, point: Point, d: Array, evaluate: Evaluate, first: float | None
    ) -> tuple[Point, float]:
        """A point w + t d on the ray from ``point``, and t; all trials share forward(d)."""
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
        return self.visit(point.w + t * d, point.f + t * fd, found.found), t

    def round(self, point: Point, mu: float) -> tuple[Point, float]:
        """The same function with fractional dual variables, and how far the corner is rounded."""
        while True:
            violations = self.loss.smoothed(point.f, mu)
            if violations.slack <= self.slack or mu < 1e-12:
                return self.visit(point.w, point.f, violations), mu
            # The slack grows like mu².
            mu *= min(0.5, max(0.05, np.sqrt(0.8 * self.slack / violations.slack)))
