"""RankSVM: minimises P(w) = Σ c max(0, 1 − (f_h − f_j)) + alpha ‖w‖², with a certificate.

For any dual variables 0 <= β <= c, with δ = Σ β_e (e_h − e_j) and A = adjoint(δ),

    D(β) = Σ β − ‖A‖²/(4 alpha)  <=  minimum  <=  P(w)

and P(w) − D(β) = slack + ‖2 alpha w − A‖²/(4 alpha) where β belongs to w. Three ways down, each
for what the one before leaves of the gap:

1. L-BFGS on the hinge itself. With many pairs it is as good as smooth, and it is the cheapest to
   count.
2. A hinge whose corner is rounded as far as the tolerance allows. The pairs in the corner then have
   fractions of c as dual variables, as they need in the optimum. In few dimensions by Newton's
   method: the second derivative is the Laplacian of the pairs in the corner. Otherwise by L-BFGS.
3. An interior-point method over all pairs, or those near the corner, for weak regularisation in
   many dimensions, where at least as many pairs sit in the corner as there are dimensions.

A way is left early when its pace will not close the gap within the steps it is given.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls import _memory
from rankrls.core.hinge.interior_point import solve_near
from rankrls.core.hinge.losses import HingeLoss, PairHinge
from rankrls.core.hinge.search import Evaluate, HingeSolution, Point, Search
from rankrls.core.hinge.spaces import Space
from rankrls.core.linalg.lbfgs import Memory

__all__ = ["HingeSolution", "minimise_hinge"]

Array = NDArray[Any]

#: The hinge is left for its rounded version if so many iterations brought nothing.
PATIENCE = 3

#: Most iterations on the hinge, and on the rounded one (and those over which the pace of the
#: latter is measured), before the interior-point method is tried where it can be. Its steps cost
#: as much as hundreds of these if the dimension is large: then that many are allowed.
HINGE_ITER = 100
ROUNDED_ITER = 60
ROUNDED_PACE = 64
ROUNDED_PER_DIMENSION = 0.25

#: Newton's method on the rounded hinge: most iterations, those over which its pace is measured,
#: most dimensions, and most pairs in the corner.
NEWTON_ITER = 60
NEWTON_PACE = 10
NEWTON_DIMENSION = 300
MAX_CORNER = 200_000

#: The interior-point method costs no more than this many of its iterations if pairs are so few.
FEW_PAIRS = 50_000
NEWTON_FEW = 8

#: The corner of Newton's matrix is widened by this where steps were shorter than `SHORT`, and
#: narrowed where they were longer than `LONG`.
WIDEN = 4.0
SHORT, LONG = 0.3, 0.7

#: The most pairs that the interior-point method writes out: so many, or this part of the square
#: of the dimension (if there is memory for so many arrays of them).
MAX_NEAR = 400_000
NEAR_PER_ENTRY = 0.25
NEAR_ARRAYS = 24

#: Pairs are near the corner if they are closer than 1, ½, ¼ …, down to this.
NARROWEST = 2.0**-12

#: How often the pairs near the corner are chosen anew.
MAX_ROUNDS = 20


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
    if not space.has_newton:
        search.descend(w, loss.hinge, limit=max_iter, patience=PATIENCE)
        search.descend_rounded(limit=max_iter)
        return search.solution()
    search.descend(w, loss.hinge, limit=HINGE_ITER, patience=PATIENCE, leave=True)
    rounded = max(ROUNDED_ITER, int(ROUNDED_PER_DIMENSION * space.dimension))
    newton = NEWTON_ITER if loss.n_pairs > FEW_PAIRS else NEWTON_FEW
    if space.dimension > NEWTON_DIMENSION or not search.descend_newton(limit=newton):
        search.descend_rounded(limit=rounded, leave=True)
    search.enter()
    search.descend_rounded(limit=max_iter)
    return search.solution()


class _Search(Search):
    """The ways to better functions and lower bounds."""

    def descend(
        self,
        w: Array,
        evaluate: Evaluate,
        limit: int,
        patience: int | None = None,
        leave: bool = False,
    ) -> None:
        """L-BFGS from w for ``limit`` steps.

        With ``patience`` until so many steps brought nothing, with ``leave`` until it is clear
        that ``limit`` steps will not do.
        """
        f = self.space.forward(w)
        point = self.visit(w, f, evaluate(f))
        memory = Memory(self.space.inner)
        history = [(point.objective, point.excess)]
        while len(history) <= limit and not self.done() and not self._stalls(history, patience):
            if leave and not self.in_reach([excess for _, excess in history], limit):
                return
            point = self.quasi_newton(point, memory, evaluate)
            history.append((point.objective, point.excess))

    def _stalls(self, history: list[tuple[float, float]], patience: int | None) -> bool:
        """Whether lately neither the gap halved nor the objective decreased by what matters."""
        if patience is None or len(history) < patience + 2:
            return False
        objective, excess = np.minimum.accumulate(history, axis=0).T
        decrease = objective[-1 - patience] - objective[-1]
        return excess[-1] > 0.5 * excess[-1 - patience] and decrease < self.slack

    def descend_rounded(self, limit: int, leave: bool = False) -> None:
        """L-BFGS from the best function, with the corner rounded as far as the slack allows.

        For ``limit`` steps, or with ``leave`` until it is clear that so many will not do. Its pace
        is uneven and grows on the way: it is measured over many steps, and twice as many as the
        limit are granted in that reckoning.
        """
        if self.done():
            return
        point, mu = self.round(self.best, 1.0)
        memory = Memory(self.space.inner)
        history = [point.excess]
        while len(history) <= limit and (
            not leave or self.in_reach(history, 2 * limit, ROUNDED_PACE)
        ):
            point, mu = self._round_less(point, mu)
            new = self.quasi_newton(point, memory, partial(self.loss.smoothed, mu=mu))
            if self.done() or np.array_equal(new.w, point.w):
                return
            point = new
            history.append(point.excess)

    def _round_less(self, point: Point, mu: float) -> tuple[Point, float]:
        """Round the corner less where most of the gap is due to that."""
        slack = point.violations.slack
        if slack > self.slack and point.excess < 2 * slack:
            return self.round(point, 0.5 * mu)
        return point, mu

    def descend_newton(self, limit: int) -> bool:
        """Newton's method for the same function; False if too many pairs are in the corner.

        Its matrix has the pairs of a corner of some ``width`` >= mu, with weights c/width. The
        second derivative is that of the width mu; where a step along it is short, because other
        pairs come to the corner on the way, a wider corner tells of them.
        """
        if self.done():
            return True
        point, mu = self.round(self.best, 1.0)
        width, history = mu, [point.excess]
        while len(history) <= limit and self.in_reach(history, limit, NEWTON_PACE):
            point, mu = self._round_less(point, mu)
            found = self._corner(point.f, mu, width)
            if found is None:
                return False
            width, pairs = found
            solve = self.space.newton(self.alpha, pairs, pairs.weight / width)
            if solve is None:
                return False
            d = self.space.from_coefficients(solve(-self.space.coefficients(point.gradient)))
            if not self.space.inner(point.gradient, d) < 0:
                return True
            smoothed = partial(self.loss.smoothed, mu=mu)
            point, t = self.search_along(point, d, smoothed, first=1.0)
            self.n_iter += 1
            history.append(point.excess)
            if self.done() or (t == 0 and width >= 1.0):
                return True
            width *= WIDEN if t < SHORT else 1.0 / WIDEN if t > LONG else 1.0
        return True

    def _corner(self, f: Array, mu: float, width: float) -> tuple[float, PairHinge] | None:
        """The pairs around the corner of width mu, or a wider one if they are not too many."""
        width = max(mu, min(width, 1.0))
        while True:
            middle = 1.0 - 0.5 * mu
            pairs = self.loss.between(f, middle - 0.5 * width, middle + 0.5 * width, MAX_CORNER)
            if pairs is not None:
                return width, pairs
            if width <= mu:
                return None
            width = max(mu, 0.5 * width)

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
                self.search_along(start, found.w - best.w, self.loss.hinge, first=0.5)
            if self.gap > 0.9 * gap and self.best.objective > best.objective - self.slack:
                return

    def _near(self, f: Array) -> tuple[float, PairHinge] | None:
        """The pairs with low <= f_h − f_j < high: all of them, or those near the corner.

        None if there are too many at the corner itself, as where all pairs of two classes are put
        at a distance of one.
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
    """The most pairs of the interior-point method: their share of the work stays bounded."""
    room = _memory.budget() // (8 * NEAR_ARRAYS)
    return max(MAX_NEAR, min(int(NEAR_PER_ENTRY * dimension**2), room))
