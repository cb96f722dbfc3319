"""RankSVM: minimises P(w) = Σ c max(0, 1 − (f_h − f_j)) + alpha ‖w‖², with a certificate.

For any dual variables 0 <= β <= c (β >= 0 for the squared hinge), with δ = Σ β_e (e_h − e_j) and
A = Φᵀδ, D(β) = Σ β − ‖A‖²/(4 alpha) (− Σ β²/(4c)) is at most the minimum, and P(w) at least.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, blas, cho_factor, cho_solve, lapack, solve_triangular

from rankrls import _resources
from rankrls.core.hinge.losses import PairHinge, Violations
from rankrls.core.spaces.products import Products

Array = NDArray[Any]
EPS = float(np.finfo(np.float64).eps)
Map = Callable[[Array], Array]
Evaluate = Callable[[Array], Violations]
#: A convex function and its derivative at some t, and the dual variables there.
Trial = tuple[float, float, Violations]
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

#: Interior-point method: maximum number of iterations, and of those without progress; initial μ, as
#: a fraction of the mean weight of a pair; fraction of the step to the boundary that is taken.
INTERIOR_ITER, INTERIOR_PATIENCE, INITIAL_MU, STEP_FRACTION = 150, 20, 0.1, 0.995

#: Pairs are near the margin if they are closer than 1, ½, ¼ …, down to this.
NARROWEST = 2.0**-12

#: Largest dimension whose matrix is formed by products with Φ, and largest kernel matrix whose
#: inverse is used instead, if the pivots of the factor, squared, differ by less than this.
MAX_DIMENSION, MAX_INVERSE, MAX_CONDITION = 3000, 8000, 1e8

#: A Laplacian with more than this fraction of non-zero entries is multiplied as a dense matrix.
DENSE = 0.01


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
            return value, slope, found

        start = probe(0.0, point.violations)
        # The loss is convex, so the slope at t is at least that at 0 plus 2 alpha t ⟨d, d⟩.
        curvature = 2 * alpha * dd
        longest = max(-start[1], 0.0) / curvature if curvature > 0 else 0.0
        t, (_, _, violations) = line_search(probe, start, first, longest)
        return self.visit(point.w + t * d, point.f + t * fd, violations), t

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
    value_0, slope_0, _ = start
    best, side, t = (0.0, start), 0, min(first, longest)
    if not (slope_0 < 0 and t > 0):
        return best
    low, slope_low, high, slope_high = 0.0, slope_0, np.inf, np.inf
    for _ in range(MAX_TRIALS):
        value, slope, _ = trial = probe(t)
        if value <= value_0 and abs(slope) <= SLOPE * abs(slope_0):
            return t, trial
        if value < best[1][0]:
            best = (t, trial)
        if high < np.inf and high - low <= 1e-9 * high:
            break
        if slope < 0:
            rise = slope - slope_0
            secant = -t * slope_0 / rise if rise > 0 else np.inf
            low, slope_low = t, slope
            if high == np.inf:
                t = min(max(2 * t, min(10 * t, secant)), longest)
                continue
            slope_high *= 0.5 if side < 0 else 1.0
            side = -1
        else:
            high, slope_high = t, slope
            slope_low *= 0.5 if side > 0 else 1.0
            side = 1
        rise = slope_high - slope_low
        share = -slope_low / rise if rise > 0 else 0.5
        t = low + (high - low) * min(max(share, 0.1), 0.9)
    return best


# ---------------------------------------------------------------------- interior point


def solve_pairs(
    space: FeatureSpace,
    alpha: float,
    pairs: PairHinge,
    rest: Array,
    w: Array,
    target: float,
    limit: int,
) -> tuple[Array, Array, int]:
    """Minimise over given pairs by an interior-point method; return w, 0 <= β <= c, iterations.

    With D w = (f_h − f_j)_e, violations ξ, slacks s, and δ₀ = ``rest`` of other pairs, fixed,

        minimise  alpha ‖w‖² − fᵀδ₀ + cᵀξ     subject to     D w + ξ − s = 1,  ξ >= 0,  s >= 0

    by Newton's method along the path on which β s = (c − β) ξ = μ (Mehrotra's predictor and
    corrector), to a duality gap of ``target``, in at most ``limit`` iterations.
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
    while n_iter < min(limit, INTERIOR_ITER) and n_iter < progress + INTERIOR_PATIENCE:
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


# -- functions ---------------------------------------------------------------------------------


class FeatureSpace:
    """f = Φ w for features Φ of shape (m, q); ``forward`` is Φ w and ``adjoint`` is Φᵀδ.

    ``to_rows`` computes kernel coefficients of rows or basis vectors from w, and ``rounding`` is
    the rounding error of an entry of the kernel matrix, if Φ was computed from one.
    """

    def __init__(self, Phi: Products, to_rows: Map | None = None, rounding: float = 0.0) -> None:
        self.Phi, self.to_rows, self.rounding = Phi, to_rows, rounding
        self.n_rows, self.dimension = Phi.shape
        self.forward: Map = Phi.matvec
        self.adjoint: Map = Phi.rmatvec
        #: Whether the systems of `newton` are small enough.
        self.has_newton = self.dimension <= MAX_DIMENSION

    def stored(self, w: Array) -> tuple[Array | None, Array, float]:
        """Kernel coefficients, if any, and f and ‖f‖² as they follow from what is stored."""
        return None if self.to_rows is None else self.to_rows(w), self.forward(w), float(w @ w)

    def newton(self, alpha: float, pairs: PairHinge, theta: Array) -> Callable[..., Array] | None:
        """Solver of (2 alpha I + ΦᵀLΦ) w = b, with L the Laplacian of ``pairs`` weighted by theta.

        None if the matrix cannot be factorised; ``refine=False`` omits iterative refinement.
        """
        once = self._factorized(alpha, pairs, theta) if np.isfinite(theta).all() else None
        if once is None:
            return None

        def solve(b: Array, refine: bool = True) -> Array:
            w = once(b)
            if refine:
                Lf = pairs.spread(theta * pairs.differences(self.forward(w)))
                w = w + once(b - 2 * alpha * w - self.adjoint(Lf))
            return w

        return solve

    def _factorized(self, alpha: float, pairs: PairHinge, theta: Array) -> Map | None:
        m = self.n_rows
        A = sparse.coo_array((theta, (pairs.head, pairs.tail)), shape=(m, m)).tocsr()
        degrees = pairs.degrees(theta)
        rows = np.flatnonzero(degrees)
        L = (sparse.diags_array(degrees) - A - A.T).tocsr()[rows][:, rows]
        Phi = self.Phi.X[rows]
        product = Phi.T @ ((L.toarray() if L.nnz > DENSE * len(rows) ** 2 else L) @ Phi)
        matrix = product.toarray() if sparse.issparse(product) else np.asarray(product)
        matrix = 0.5 * (matrix.astype(np.float64, copy=False) + matrix.T)
        matrix[np.diag_indices_from(matrix)] += 2 * alpha
        try:
            factor = cho_factor(matrix)
        except (LinAlgError, ValueError):
            return None
        return lambda b: cho_solve(factor, b, check_finite=False)


class KernelSpace(FeatureSpace):
    """f = K a, with K = ΦΦᵀ, symmetric (m, m), by a pivoted Cholesky factorisation.

    All δ sum to zero, so K is centred first: f changes by a constant, ‖f‖² does not change. The
    constant functions are added as one more dimension, so that K keeps its rank.
    """

    def __init__(self, K: Array) -> None:
        m, scale = len(K), float(np.abs(K.diagonal()).max())
        means, constant = K.mean(axis=0), max(K.trace() / m - K.mean(), 0.0) / m
        K = K - means
        K -= (means - means.mean() - constant)[:, None]
        # K is symmetric, so its transpose has LAPACK's memory order.
        factor, pivots, rank, _ = lapack.dpstrf(K.T, lower=1, tol=m * EPS * scale)
        self.K, self.factor, self.pivots = K, factor[:, :rank], pivots - 1
        self.invertible = False
        if rank < m:
            super().__init__(self.Phi, self._rows, EPS * scale)
        else:  # Φ is triangular: half of it is read; its inverse is used if it is accurate
            self.n_rows = self.dimension = m
            self.to_rows, self.rounding = self._rows, EPS * scale
            self.forward, self.adjoint = self._forward, self._adjoint
            if m <= MAX_INVERSE:
                self.invertible = bool(factor[0, 0] ** 2 <= MAX_CONDITION * factor[-1, -1] ** 2)
            self.has_newton = self.invertible or m <= MAX_DIMENSION
        signs = np.where(np.random.default_rng(0).random(m) < 0.5, -1.0, 1.0)
        error = np.abs(self.forward(self.adjoint(signs)) - K @ signs).max()
        if error > np.sqrt(m) * (16 * m * EPS * scale + 1e-4 * np.abs(K.diagonal()).max()):
            raise ValueError(
                "the kernel matrix is not positive semi-definite, so ‖f‖² can be negative; use "
                "another kernel, or other kernel parameters"
            )

    @cached_property
    def Phi(self) -> Products:  # type: ignore[override]
        """Products with Φ."""
        Phi = np.empty((len(self.K), self.factor.shape[1]))
        Phi[self.pivots] = np.tril(self.factor)
        return Products(Phi)

    def _forward(self, w: Array) -> Array:
        f = np.empty(self.n_rows)
        f[self.pivots] = blas.dtrmv(self.factor, w, lower=1)
        return f

    def _adjoint(self, delta: Array) -> Array:
        return blas.dtrmv(self.factor, delta[self.pivots], lower=1, trans=1)

    def _rows(self, w: Array) -> Array:
        a = np.zeros(self.n_rows)
        a[self.pivots[: self.dimension]] = self._solve(w, "T")
        return a - a.mean()

    def _solve(self, b: Array, trans: str = "N") -> Array:
        Z = self.factor[: self.dimension]
        return solve_triangular(Z, b, lower=True, trans=trans, check_finite=False)

    def stored(self, w: Array) -> tuple[Array, Array, float]:
        """a, K a and aᵀK a, which include the rounding errors of a large a."""
        a = self._rows(w)
        f = self.K @ a
        return a, f, max(float(a @ f), 0.0)

    @cached_property
    def inverse(self) -> Array:
        """Lower triangle of K⁻¹, rows in the order of the pivots."""
        return lapack.dpotri(self.factor, lower=1)[0]

    def _factorized(self, alpha: float, pairs: PairHinge, theta: Array) -> Map | None:
        """Φᵀ(2 alpha K⁻¹ + L)Φ for a square Φ: one factorisation and no matrix product."""
        if not self.invertible:
            return super()._factorized(alpha, pairs, theta)
        m = self.n_rows
        position = np.argsort(self.pivots)
        head, tail = position[pairs.head], position[pairs.tail]
        G = 2 * alpha * self.inverse
        # Entry (first row, last row) of the lower triangle, column by column.
        np.subtract.at(
            G.reshape(-1, order="F"), np.minimum(head, tail) * m + np.maximum(head, tail), theta
        )
        G[np.diag_indices(m)] += pairs.degrees(theta)[self.pivots]
        factor, info = lapack.dpotrf(G, lower=1, clean=0, overwrite_a=1)
        if info != 0:
            return None
        return lambda b: self._solve(
            cho_solve((factor, True), self._solve(b, "T"), check_finite=False)
        )
