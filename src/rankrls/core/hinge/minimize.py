"""RankSVM: minimises P(w) = Σ c max(0, 1 − (f_h − f_j)) + alpha ‖w‖², with a certificate.

For any dual variables 0 <= β <= c (β >= 0 for the squared hinge), with δ = Σ β_e (e_h − e_j) and
A = Φᵀδ, D(β) = Σ β − ‖A‖²/(4 alpha) (− Σ β²/(4c)) is at most the minimum, and P(w) at least.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankrls import _resources
from rankrls.core.hinge.function_spaces import FeatureSpace
from rankrls.core.hinge.interior_point import solve_pairs
from rankrls.core.hinge.losses import PairHinge, Violations

__all__ = ["HingeSolution", "minimize_hinge"]

Array = NDArray[Any]
Evaluate = Callable[[Array], Violations]
#: The last steps s of L-BFGS, changes y of the gradient, and sᵀy.
Memory = deque[tuple[Array, Array, float]]

#: Steps that L-BFGS stores, and iterations without progress after which it ends on the hinge.
MEMORY, PATIENCE = 20, 3

#: A line search accepts a slope of at most this fraction of the initial slope, or its best trial.
SLOPE, MAX_TRIALS = 0.3, 15

#: Maximum number of iterations on the hinge, and on a smooth function (at least, and per
#: dimension), before Newton steps are tried: each costs as much as many of these iterations.
HINGE_ITER, SMOOTH_ITER, SMOOTH_PER_DIMENSION = 100, 60, 0.25

#: Fraction of the tolerated gap that smoothing may cause.
SMOOTHING = 0.3

#: Newton's method on the squared hinge: maximum number of iterations, and of pairs in its matrix.
NEWTON_ITER, MAX_NEWTON_PAIRS = 60, 200_000

#: Maximum number of pairs that the interior-point method materialises: this number, or this
#: fraction of the squared dimension (if memory allows this many arrays of them); and maximum number
#: of times that they are selected.
MAX_NEAR, NEAR_PER_ENTRY, NEAR_ARRAYS, MAX_ROUNDS = 400_000, 0.25, 24, 20

#: Pairs are near the margin if they are closer than 1, ½, ¼ …, down to this.
NARROWEST = 2.0**-12


@dataclass(frozen=True)
class HingeSolution:
    """A function w; the minimum is at least (1 − gap) objective."""

    w: Array
    row_coefficients: Array | None  # of rows or basis vectors, if the space has them
    objective: float
    gap: float
    rounding: float  # the part of the gap due to rounding errors of the kernel matrix
    n_iter: int


@dataclass(frozen=True)
class Point:
    """A function w with f = Φ w and its dual variables."""

    w: Array
    f: Array
    violations: Violations
    gradient: Array  # 2 alpha w − A
    objective: float  # P(w)
    excess: float  # P(w) − D(β)


def minimize_hinge(
    loss: PairHinge,
    space: FeatureSpace,
    alpha: float,
    *,
    squared: bool = False,
    tol: float,
    max_iter: int,
    start: Array | None = None,
) -> HingeSolution:
    """Minimise to a relative duality gap of ``tol``, or for ``max_iter`` iterations.

    L-BFGS on the hinge itself is the cheapest. On the smoothed hinge, quadratic for violations
    between 0 and mu, dual variables are fractions of c, as in the optimum. Weak regularisation
    needs the interior-point method, or Newton's method for the squared hinge.
    """
    search = _Search(loss, space, alpha, squared, tol, max_iter)
    w = np.zeros(space.dimension) if start is None else start
    for _ in range(2):
        search.visit(w, space.forward(w), first=True)
        if not squared:
            search.run_lbfgs(HINGE_ITER if space.has_newton else max_iter)
        if space.has_newton:
            few = max(SMOOTH_ITER, int(SMOOTH_PER_DIMENSION * space.dimension))
            search.run_lbfgs(few, smoothed=not squared)
            (search.run_newton if squared else search.run_interior_point)()
        search.run_lbfgs(max_iter, smoothed=not squared)
        solution = search.solution()
        if not solution.gap > tol >= 2 * solution.rounding or search.n_iter >= max_iter:
            break
        search.tol, w = tol - solution.rounding, solution.w  # leave rounding errors their part
    return solution


class _Search:
    """The best function and the best lower bound so far, and the methods that improve them."""

    best: Point

    def __init__(
        self,
        loss: PairHinge,
        space: FeatureSpace,
        alpha: float,
        squared: bool,
        tol: float,
        max_iter: int,
    ) -> None:
        self.loss, self.space, self.alpha, self.squared = loss, space, alpha, squared
        self.evaluate: Evaluate = loss.squared if squared else loss.hinge
        self.tol, self.max_iter, self.n_iter = tol, max_iter, 0
        self.bound, self.bound_size = -np.inf, 0.0  # and ‖δ‖² of its dual variables

    @property
    def gap(self) -> float:
        """(P − D)/P."""
        P = self.best.objective
        return max(P - self.bound, 0.0) / P if P > 0 else 0.0

    @property
    def slack(self) -> float:
        """Amount by which smoothing may change the objective."""
        return SMOOTHING * self.tol * self.best.objective

    @property
    def done(self) -> bool:
        """Converged, or out of iterations."""
        return self.n_iter >= self.max_iter or self.gap <= self.tol

    def visit(
        self, w: Array, f: Array, violations: Violations | None = None, first: bool = False
    ) -> Point:
        """Evaluate a function, which may be the best, and its dual variables, which may be, too."""
        v = self.evaluate(f) if violations is None else violations
        A = self.space.adjoint(v.delta)
        objective = v.loss + self.alpha * float(w @ w)
        dual = v.beta - v.conjugate - float(A @ A) / (4 * self.alpha)
        if not np.isfinite([objective, dual]).all():
            raise ValueError(
                "the objective overflows; scale the features (or the kernel) or the weights down"
            )
        self.note_bound(dual, v.delta)
        point = Point(w, f, v, 2 * self.alpha * w - A, objective, max(objective - dual, 0.0))
        if first or objective < self.best.objective:
            self.best = point
        return point

    def note_bound(self, dual: float, delta: Array) -> None:
        """Keep a lower bound if it is the best."""
        if dual > self.bound:
            self.bound, self.bound_size = dual, float(delta @ delta)

    def solution(self) -> HingeSolution:
        """Return the best function, evaluated from its coefficients only."""
        space, alpha, w = self.space, self.alpha, self.best.w
        a, f, norm2 = space.stored(w)
        violations = self.evaluate(f)
        objective = violations.loss + alpha * norm2
        rounding = 0.0
        if a is not None and space.rounding > 0 and objective > 0:
            # Independent errors of the entries of K, in fᵀδ and alpha ‖f‖² of P, and in D.
            size = float(np.linalg.norm(a))
            rounding = size * float(np.linalg.norm(violations.delta)) + alpha * size**2
            rounding = (rounding + self.bound_size / (4 * alpha)) * space.rounding / objective
            rounding = rounding if np.isfinite(rounding) else np.inf
        gap = max(objective - self.bound, 0.0) / objective if objective > 0 else 0.0
        return HingeSolution(w, a, objective, gap + rounding, rounding, self.n_iter)

    def run_lbfgs(self, limit: int, smoothed: bool = False) -> None:
        """Run L-BFGS for ``limit`` iterations, or until it makes no progress."""
        point, evaluate, mu = self.best, self.evaluate, 0.0
        history = [(point.objective, point.excess)]
        memory: Memory = deque(maxlen=MEMORY)
        while len(history) <= limit and not self.done:
            if smoothed:
                point, mu = self._smooth(point, mu)
                evaluate = partial(self.loss.smoothed, mu=mu)
            elif not self.squared and len(history) >= PATIENCE + 2:
                # Recently neither the gap halved nor the objective decreased noticeably.
                objective, excess = np.minimum.accumulate(history, axis=0).T
                decrease = objective[-1 - PATIENCE] - objective[-1]
                if excess[-1] > 0.5 * excess[-1 - PATIENCE] and decrease < self.slack:
                    return
            self.n_iter += 1
            d, t = lbfgs_direction(memory, point.gradient), 0.0
            if memory and point.gradient @ d < 0:
                new, t = self.search_along(point, d, evaluate, first=1.0)
            if not t > 0:
                memory.clear()
                new, _ = self.search_along(point, -point.gradient, evaluate, first=None)
            if np.array_equal(new.w, point.w):
                return
            s, y = new.w - point.w, new.gradient - point.gradient
            curvature = float(s @ y)
            if curvature > 1e-10 * np.linalg.norm(s) * np.linalg.norm(y):
                memory.append((s, y, curvature))
            point = new
            history.append((point.objective, point.excess))

    def _smooth(self, point: Point, mu: float) -> tuple[Point, float]:
        """Choose mu at the start (0), and again if most of the gap is due to smoothing."""
        slack = point.violations.slack
        if mu > 0 and (slack <= self.slack or point.excess >= 2 * slack):
            return point, mu
        mu = 0.5 * mu or 1.0
        while True:
            violations = self.loss.smoothed(point.f, mu)
            if violations.slack <= self.slack or mu < 1e-12:
                return self.visit(point.w, point.f, violations), mu
            # The slack grows like mu².
            mu *= min(0.5, max(0.05, np.sqrt(0.8 * self.slack / violations.slack)))

    def search_along(
        self, point: Point, d: Array, evaluate: Evaluate, first: float | None
    ) -> tuple[Point, float]:
        """Find a point w + t d on the ray from ``point``, and t; all trials share Φ d."""
        alpha, fd = self.alpha, self.space.forward(d)
        wd, dd = float(point.w @ d), float(d @ d)
        # δ sums to zero, so a constant in fd would only add rounding errors.
        centred = fd - fd.mean()
        if first is None:  # score differences of about the size of the margin
            first = 1.0 / max(float(centred.std()), np.finfo(float).tiny)

        def probe(t: float, violations: Violations | None = None) -> Trial:
            found = evaluate(point.f + t * fd) if violations is None else violations
            value = found.value + alpha * (2 * wd + t * dd) * t
            slope = 2 * alpha * (wd + t * dd) - float(centred @ found.delta)
            return Trial(value, slope, found)

        start = probe(0.0, point.violations)
        # The loss is convex, so the slope at t is at least that at 0 plus 2 alpha t ⟨d, d⟩.
        curvature = 2 * alpha * dd
        longest = max(-start.slope, 0.0) / curvature if curvature > 0 else 0.0
        t, found = line_search(probe, start, first, longest)
        return self.visit(point.w + t * d, point.f + t * fd, found.violations), t

    def run_newton(self) -> None:
        """Run Newton's method on the squared hinge, if violated pairs are few."""
        # The second derivative is the Laplacian of the violated pairs, with weights 2c.
        point = self.best
        for _ in range(NEWTON_ITER):
            if self.done:
                return
            pairs = self.loss.between(point.f, -np.inf, 1.0, MAX_NEWTON_PAIRS)
            solve = pairs and self.space.newton(self.alpha, pairs, 2 * pairs.weight)
            if not solve:
                return
            point, t = self.search_along(point, solve(-point.gradient), self.evaluate, first=1.0)
            self.n_iter += 1
            if t == 0:
                return

    def run_interior_point(self) -> None:
        """Solve for the pairs near the margin, check all pairs, and repeat."""
        for _ in range(MAX_ROUNDS):
            best = self.best
            near = None if self.done else self._near(best.f)
            if near is None:
                return
            gap, (low, pairs) = self.gap, near
            rest = self.loss.step(best.f, low)
            target, limit = 0.5 * self.tol * best.objective, self.max_iter - self.n_iter
            w, beta, n_iter = solve_pairs(
                self.space, self.alpha, pairs, rest.delta, best.w, target, limit
            )
            self.n_iter += n_iter
            delta = rest.delta + pairs.spread(beta)
            A = self.space.adjoint(delta)
            dual = rest.beta + float(beta.sum()) - float(A @ A) / (4 * self.alpha)
            self.note_bound(dual, delta)
            new = self.visit(w, self.space.forward(w))
            if new.objective > best.objective:  # other pairs have reached the margin
                start = self.visit(best.w, best.f)
                self.search_along(start, w - best.w, self.evaluate, first=0.5)
            if self.gap > 0.9 * gap and self.best.objective > best.objective - self.slack:
                return

    def _near(self, f: Array) -> tuple[float, PairHinge] | None:
        """Pairs near the margin, or all, and their lowest difference; None if too many."""
        available = _resources.budget() // (8 * NEAR_ARRAYS)
        most = max(MAX_NEAR, min(int(NEAR_PER_ENTRY * self.space.dimension**2), available))
        width = np.inf if self.loss.n_pairs <= most else 1.0
        while width > NARROWEST:
            pairs = self.loss.between(f, 1.0 - width, 1.0 + width, most)
            if pairs is not None:
                return 1.0 - width, pairs
            width = min(1.0, 0.5 * width)
        return None


def lbfgs_direction(memory: Memory, g: Array) -> Array:
    """Minus the approximate inverse Hessian times the gradient (two-loop recursion)."""
    d = -g
    factors = []
    for s, y, curvature in reversed(memory):
        factors.append(s @ d / curvature)
        d -= factors[-1] * y
    if memory:
        _, y, curvature = memory[-1]
        d *= curvature / (y @ y)  # the length of a Newton step along s
    for (s, y, curvature), factor in zip(memory, reversed(factors), strict=True):
        d += (factor - y @ d / curvature) * s
    return d


class Trial(NamedTuple):
    """A convex function and its derivative at some t, and the dual variables there."""

    value: float
    slope: float
    violations: Violations


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
