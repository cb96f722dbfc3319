"""RankSVM: minimises P(w) = Σ c max(0, 1 − (f_h − f_j)) + alpha ‖w‖², with a certificate.

For any dual variables 0 <= β <= c, with δ = Σ β_e (e_h − e_j) and A = adjoint(δ),

    D(β) = Σ β − ‖A‖²/(4 alpha)  <=  minimum  <=  P(w)

so the best P and the best D found so far bound the minimum. There are three phases, each of which
reduces the remaining gap:

1. L-BFGS on the hinge itself. With many pairs it is nearly smooth, and it is the cheapest to
   evaluate.
2. L-BFGS on the smoothed hinge, quadratic for violations between 0 and mu, with mu as large as the
   tolerance allows. The dual variables of pairs in this interval are fractions of c, as in the
   optimum.
3. An interior-point method over all pairs, or over those near the margin, for weak regularisation.

A phase ends when its rate of convergence is too slow to close the gap within its iterations.

The squared hinge is smooth. It is minimised by L-BFGS, or by Newton's method if L-BFGS is too slow.
Its D has an additional term −Σ β²/(4c), and any β >= 0 is feasible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls import _resources
from rankrls.core.hinge.function_spaces import FunctionSpace
from rankrls.core.hinge.interior_point import solve_pairs
from rankrls.core.hinge.losses import HingeLoss, PairHinge, Violations
from rankrls.core.linalg.lbfgs import LBFGSMemory, Trial, line_search

__all__ = ["HingeMinimizer", "HingeSolution", "minimize_hinge"]

Array = NDArray[Any]
Evaluate = Callable[[Array], Violations]

#: The smoothed hinge replaces the hinge after this many iterations without progress.
PATIENCE = 3

#: Number of iterations over which the rate of convergence is measured.
RATE_ITER = 25

#: Maximum number of iterations on the hinge, and on the smoothed hinge (and the number over which
#: its rate is measured), before the interior-point method is tried, if applicable. In large
#: dimensions a step of that method costs as much as hundreds of these iterations, so hundreds are
#: allowed.
HINGE_ITER = 100
SMOOTHED_ITER = 60
SMOOTHED_RATE_ITER = 64
SMOOTHED_PER_DIMENSION = 0.25

#: Fraction of the tolerated gap that smoothing may cause.
SMOOTHING = 0.3

#: Newton's method on the squared hinge: maximum number of iterations, and of pairs in its matrix.
NEWTON_ITER = 60
MAX_NEWTON_PAIRS = 200_000

#: Maximum number of pairs that the interior-point method materialises: this number, or this
#: fraction of the squared dimension (if memory allows this many arrays of them).
MAX_NEAR = 400_000
NEAR_PER_ENTRY = 0.25
NEAR_ARRAYS = 24

#: Pairs are near the margin if they are closer than 1, ½, ¼ …, down to this.
NARROWEST = 2.0**-12

#: Maximum number of times the pairs near the margin are selected.
MAX_ROUNDS = 20

#: Number of times the phases are repeated if the gap of the final coefficients, including rounding
#: errors, is above the tolerance.
MAX_RESTARTS = 2

#: Condition number of the inverse Hessian of L-BFGS above which its directions are checked.
CANCELLATION = 1e4

#: Tolerance for the difference between f and the product of features or kernel and coefficients.
DRIFT = 1e-9

#: The kernel is not positive semi-definite if ‖f‖² is negative by more than this fraction of the
#: objective and by more than rounding errors.
INDEFINITE = 1e-3


@dataclass(frozen=True)
class HingeSolution:
    """A solution with its objective and duality gap.

    Attributes
    ----------
    coefficients : ndarray
        Coefficients in the space, to start from for another alpha.
    weights : ndarray of shape (n,) or None
    row_coefficients : ndarray of shape (m,) or (q,), or None
        See `FunctionSpace`.
    objective : float
        P(w).
    gap : float
        Relative duality gap (P − D)/P, including rounding errors: the minimum is at least (1 − gap)
        P.
    rounding : float
        Contribution of the rounding errors of the kernel matrix to the gap.
    n_iter : int
    """

    coefficients: Array
    weights: Array | None
    row_coefficients: Array | None
    objective: float
    gap: float
    rounding: float
    n_iter: int


@dataclass(frozen=True)
class Point:
    """A function w with f = forward(w) and its dual variables."""

    w: Array
    f: Array
    violations: Violations
    gradient: Array  # 2 alpha w − A
    objective: float  # P(w)
    excess: float  # P(w) − D(β)


def minimize_hinge(
    loss: HingeLoss,
    space: FunctionSpace,
    alpha: float,
    *,
    squared: bool = False,
    tol: float,
    max_iter: int,
    start: Array | None = None,
    thorough: bool = True,
) -> HingeSolution:
    """Minimise to a relative duality gap of ``tol``, or for ``max_iter`` iterations.

    ``squared``: minimise Σ c max(0, z)² + alpha ‖w‖² instead, which is smooth. ``start``:
    coefficients to start from, such as those for another alpha. ``thorough``: continue to
    ``max_iter`` iterations if the faster phases did not close the gap.
    """
    minimizer = HingeMinimizer(loss, space, alpha, squared, tol, max_iter)
    w = space.zero() if start is None else space.from_coefficients(start)
    for _ in range(1 + MAX_RESTARTS):
        before = minimizer.n_iter
        minimizer.run(w, thorough)
        w = minimizer.recompute()
        solution = minimizer.solution()
        promising = solution.rounding <= 0.5 * tol and (thorough or solution.gap < 2 * tol)
        if solution.gap <= tol or not promising or not before < minimizer.n_iter < max_iter:
            break
        minimizer.tol = tol - solution.rounding
    return solution


class HingeMinimizer:
    """The best function and the best lower bound so far, and the phases that improve them."""

    def __init__(
        self,
        loss: HingeLoss,
        space: FunctionSpace,
        alpha: float,
        squared: bool,
        tol: float,
        max_iter: int,
    ) -> None:
        self.loss, self.space, self.alpha = loss, space, alpha
        self.evaluate: Evaluate = loss.squared if squared else loss.hinge
        self.squared = squared
        self.tol, self.max_iter = tol, max_iter
        self.n_iter = 0
        self.best: Point | None = None
        self.bound = -np.inf
        self.bound_size = 0.0  # ‖δ‖² of the dual variables that gave the bound

    def run(self, w: Array, thorough: bool) -> None:
        """Run all phases that the loss and the space allow, starting from w."""
        if self.squared:
            self.run_lbfgs(w, limit=self.max_iter, leave=True)
            self.run_newton_squared(limit=NEWTON_ITER)
            if thorough:
                self.run_lbfgs(self._best.w, limit=self.max_iter)
            return
        if not self.space.has_newton:
            self.run_lbfgs(w, limit=self.max_iter, patience=PATIENCE)
            self.run_lbfgs_smoothed(limit=self.max_iter)
            return
        self.run_lbfgs(w, limit=HINGE_ITER, patience=PATIENCE, leave=True)
        smoothed = max(SMOOTHED_ITER, int(SMOOTHED_PER_DIMENSION * self.space.dimension))
        self.run_lbfgs_smoothed(limit=smoothed, leave=True)
        self.run_interior_point()
        if thorough:
            self.run_lbfgs_smoothed(limit=self.max_iter)

    # -- state --------------------------------------------------------------------------------

    @property
    def gap(self) -> float:
        """(P − D)/P."""
        P = self._best.objective
        return max(P - self.bound, 0.0) / P if P > 0 else 0.0

    @property
    def slack(self) -> float:
        """Amount by which smoothing may change the objective."""
        return SMOOTHING * self.tol * self._best.objective

    @property
    def _best(self) -> Point:
        assert self.best is not None
        return self.best

    def done(self) -> bool:
        """Converged, or out of iterations."""
        return self.n_iter >= self.max_iter or self.gap <= self.tol

    def visit(self, w: Array, f: Array, violations: Violations) -> Point:
        """Record a function and its dual variables."""
        space, alpha = self.space, self.alpha
        A = space.adjoint(violations.delta)
        gradient = 2 * alpha * w - A
        objective = violations.loss + alpha * space.norm2(w)
        norms = space.inner(A, A), space.inner(gradient, gradient)
        if not np.isfinite(objective) or not np.isfinite(norms).all():
            raise ValueError(
                "the objective overflows; scale the features (or the kernel) or the weights down"
            )
        self._check_definite(norms, (A, gradient), objective)
        dual = violations.beta - violations.conjugate - max(norms[0], 0.0) / (4 * alpha)
        point = Point(w, f, violations, gradient, objective, max(objective - dual, 0.0))
        if self.best is None or objective < self.best.objective:
            self.best = point
        self._note_bound(dual, violations.delta)
        return point

    def _note_bound(self, dual: float, delta: Array) -> None:
        if dual > self.bound:
            self.bound, self.bound_size = dual, float(delta @ delta)

    def _check_definite(
        self, norms: tuple[float, ...], functions: tuple[Array, ...], objective: float
    ) -> None:
        for norm2, function in zip(norms, functions, strict=True):
            if norm2 >= -4 * self.alpha * INDEFINITE * objective:
                continue
            a = self.space.coefficients(function)
            exact = self.space.from_coefficients(a)
            norm2 = self.space.inner(exact, exact)
            # Independent errors of the entries make eigenvalues of up to 2 √m times their size.
            noise = 2 * np.sqrt(self.space.n_rows) * self.space.rounding * float(a @ a)
            if norm2 < -4 * noise:
                raise ValueError(
                    "the kernel matrix is not positive semi-definite, so ‖f‖² can be "
                    "negative; use another kernel, or other kernel parameters"
                )

    def recompute(self) -> Array:
        """Recompute the best function from its coefficients only, and return it."""
        best = self._best
        w = self.space.from_coefficients(self.space.coefficients(best.w))
        f = self.space.forward(w)
        if np.ptp(f - best.f) > DRIFT * (1.0 + float(np.abs(f).max())):
            self.best = None
            self.visit(w, f, self.evaluate(f))
        else:
            self.best = replace(best, w=w, f=f)
        return w

    def solution(self) -> HingeSolution:
        """Return the best function."""
        best, space = self._best, self.space
        a, rounding = space.row_coefficients(best.w), 0.0
        if a is not None and space.rounding > 0:
            # Independent errors of the entries of K, in fᵀδ and alpha ‖f‖² of P, and in D.
            size = float(np.linalg.norm(a))
            rounding = size * float(np.linalg.norm(best.violations.delta)) + self.alpha * size**2
            rounding += self.bound_size / (4 * self.alpha)
            rounding *= space.rounding / best.objective if best.objective > 0 else 0.0
            rounding = rounding if np.isfinite(rounding) else np.inf
        objective, stored = best.objective, space.stored(best.w)
        if stored is not None:
            objective = self.evaluate(stored[0]).loss + self.alpha * stored[1]
        excess = max(objective - self.bound, 0.0)
        return HingeSolution(
            coefficients=space.coefficients(best.w),
            weights=space.weights(best.w),
            row_coefficients=a,
            objective=objective,
            gap=(excess / objective if objective > 0 else 0.0) + rounding,
            rounding=rounding,
            n_iter=self.n_iter,
        )

    def in_reach(self, history: list[float], limit: int, over: int = RATE_ITER) -> bool:
        """Whether ``limit`` iterations will close the gap, at the rate of the last ``over``.

        ``history`` holds the excess P(w) − D(β) of all points so far.
        """
        if len(history) <= over:
            return True
        wanted = self.tol * self._best.objective
        before, now = min(history[:-over]), min(history)
        if now <= wanted:
            return True
        if now >= before or not wanted > 0:
            return False
        steps = over * np.log(now / wanted) / np.log(before / now)
        return bool(len(history) - 1 + steps <= limit)

    # -- L-BFGS -------------------------------------------------------------------------------

    def run_lbfgs(
        self, w: Array, limit: int, patience: int | None = None, leave: bool = False
    ) -> None:
        """Run L-BFGS on the loss from w, for ``limit`` iterations.

        With ``patience``, stop after that many iterations without progress; with ``leave``, stop
        when it is clear that ``limit`` iterations will not close the gap.
        """
        f = self.space.forward(w)
        point = self.visit(w, f, self.evaluate(f))
        memory = LBFGSMemory(self.space.inner)
        history = [(point.objective, point.excess)]
        while len(history) <= limit and not self.done() and not self._stalls(history, patience):
            if leave and not self.in_reach([excess for _, excess in history], limit):
                return
            new = self.quasi_newton(point, memory, self.evaluate)
            if np.array_equal(new.w, point.w):
                return
            point = new
            history.append((point.objective, point.excess))

    def _stalls(self, history: list[tuple[float, float]], patience: int | None) -> bool:
        """Whether recently neither the gap halved nor the objective decreased noticeably."""
        if patience is None or len(history) < patience + 2:
            return False
        objective, excess = np.minimum.accumulate(history, axis=0).T
        decrease = objective[-1 - patience] - objective[-1]
        return excess[-1] > 0.5 * excess[-1 - patience] and decrease < self.slack

    def quasi_newton(self, point: Point, memory: LBFGSMemory, evaluate: Evaluate) -> Point:
        """Do one iteration of L-BFGS; return the same function if there is no descent."""
        self.n_iter += 1
        if len(memory):
            d = memory.direction(point.gradient)
            # Steps that end at kinks make the inverse Hessian ill-conditioned, which causes
            # cancellation.
            if memory.condition > CANCELLATION and not self.space.consistent(d):
                d = self.space.from_coefficients(self.space.coefficients(d))
            if self.space.inner(point.gradient, d) < 0:
                new, t = self.search_along(point, d, evaluate, first=1.0)
                if t > 0:
                    memory.update(new.w - point.w, new.gradient - point.gradient)
                    return new
            memory.clear()
        new, _ = self.search_along(point, -point.gradient, evaluate, first=None)
        memory.update(new.w - point.w, new.gradient - point.gradient)
        return new

    def search_along(
        self, point: Point, d: Array, evaluate: Evaluate, first: float | None
    ) -> tuple[Point, float]:
        """Find a point w + t d on the ray from ``point``, and t; all trials share forward(d)."""
        alpha, inner = self.alpha, self.space.inner
        fd = self.space.forward(d)
        wd, dd = inner(point.w, d), inner(d, d)
        # δ sums to zero, so a constant in fd would only add rounding errors.
        centred = fd - fd.mean()
        if first is None:  # score differences of about the size of the margin
            first = 1.0 / max(float(centred.std()), np.finfo(float).tiny)

        def trial(t: float, violations: Violations) -> Trial:
            value = violations.value + alpha * (2 * wd + t * dd) * t
            slope = 2 * alpha * (wd + t * dd) - float(centred @ violations.delta)
            return Trial(value, slope, violations)

        start = trial(0.0, point.violations)
        # The loss is convex, so the slope at t is at least that at 0 plus 2 alpha t ⟨d, d⟩.
        curvature = 2 * alpha * dd
        longest = max(-start.slope, 0.0) / curvature if curvature > 0 else 0.0
        t, found = line_search(
            lambda t: trial(t, evaluate(point.f + t * fd)), start, first, longest
        )
        return self.visit(point.w + t * d, point.f + t * fd, found.found), t

    # -- the smoothed hinge -------------------------------------------------------------------

    def smooth(self, point: Point, mu: float) -> tuple[Point, float]:
        """Return the same function with the dual variables of the smoothed hinge, and its mu."""
        while True:
            violations = self.loss.smoothed(point.f, mu)
            if violations.slack <= self.slack or mu < 1e-12:
                return self.visit(point.w, point.f, violations), mu
            # The slack grows like mu².
            mu *= min(0.5, max(0.05, np.sqrt(0.8 * self.slack / violations.slack)))

    def _smooth_less(self, point: Point, mu: float) -> tuple[Point, float]:
        """Halve mu if most of the gap is due to smoothing."""
        slack = point.violations.slack
        if slack > self.slack and point.excess < 2 * slack:
            return self.smooth(point, 0.5 * mu)
        return point, mu

    def run_lbfgs_smoothed(self, limit: int, leave: bool = False) -> None:
        """Run L-BFGS on the smoothed hinge from the best function.

        It runs for ``limit`` iterations, or with ``leave`` until it is clear that these will not
        close the gap. The rate of convergence is uneven and improves with time, so it is measured
        over many iterations, and twice the limit is assumed.
        """
        if self.done():
            return
        point, mu = self.smooth(self._best, 1.0)
        memory = LBFGSMemory(self.space.inner)
        history = [point.excess]
        while len(history) <= limit and (
            not leave or self.in_reach(history, 2 * limit, SMOOTHED_RATE_ITER)
        ):
            point, mu = self._smooth_less(point, mu)
            new = self.quasi_newton(point, memory, partial(self.loss.smoothed, mu=mu))
            if self.done() or np.array_equal(new.w, point.w):
                return
            point = new
            history.append(point.excess)

    def run_newton_squared(self, limit: int) -> None:
        """Run Newton's method on the squared hinge, if L-BFGS is slow and violated pairs are few.

        The second derivative is the Laplacian of the violated pairs, with weights 2c.
        """
        if not self.space.has_newton:
            return
        point = self._best
        for _ in range(limit):
            if self.done():
                return
            pairs = self.loss.between(point.f, -np.inf, 1.0, MAX_NEWTON_PAIRS)
            if pairs is None:
                return
            solve = self.space.newton(self.alpha, pairs, 2 * pairs.weight)
            if solve is None:
                return
            d = self.space.from_coefficients(solve(-self.space.coefficients(point.gradient)))
            point, t = self.search_along(point, d, self.evaluate, first=1.0)
            self.n_iter += 1
            if t == 0:
                return

    # -- interior point -----------------------------------------------------------------------

    def run_interior_point(self) -> None:
        """Solve for the pairs near the margin, check all pairs, and repeat."""
        for _ in range(MAX_ROUNDS):
            if self.done():
                return
            best, gap = self._best, self.gap
            near = self._near(best.f)
            if near is None:
                return
            low, pairs = near
            rest = self.loss.step(best.f, low)
            found = solve_pairs(
                self.space,
                self.alpha,
                pairs,
                rest.delta,
                best.w,
                target=0.5 * self.tol * best.objective,
                limit=self.max_iter - self.n_iter,
            )
            self.n_iter += found.n_iter
            delta = rest.delta + pairs.spread(found.beta)
            norm2 = self.space.norm2(self.space.adjoint(delta))
            beta = rest.beta + float(found.beta.sum())
            self._note_bound(beta - norm2 / (4 * self.alpha), delta)
            f = self.space.forward(found.w)
            new = self.visit(found.w, f, self.loss.hinge(f))
            if new.objective > best.objective:  # other pairs have reached the margin
                start = self.visit(best.w, best.f, self.loss.hinge(best.f))
                self.search_along(start, found.w - best.w, self.loss.hinge, first=0.5)
            if self.gap > 0.9 * gap and self._best.objective > best.objective - self.slack:
                return

    def _near(self, f: Array) -> tuple[float, PairHinge] | None:
        """Find the pairs with low <= f_h − f_j < high: all pairs, or those near the margin.

        None if there are too many exactly at the margin, for example if all pairs of two classes
        have a score difference of one.
        """
        most = most_near(self.space.dimension)
        width = np.inf if self.loss.n_pairs <= most else 1.0
        while width > NARROWEST:
            pairs = self.loss.between(f, 1.0 - width, 1.0 + width, most)
            if pairs is not None:
                return 1.0 - width, pairs
            width = min(1.0, 0.5 * width)
        return None


def most_near(dimension: int) -> int:
    """Maximum number of pairs for the interior-point method, which bounds its cost."""
    available = _resources.budget() // (8 * NEAR_ARRAYS)
    return max(MAX_NEAR, min(int(NEAR_PER_ENTRY * dimension**2), available))
