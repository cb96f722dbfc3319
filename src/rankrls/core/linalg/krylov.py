"""Conjugate gradients for (G + alpha I) W = C, with G given by its products.

`MultiShiftCG` is the only loop. All systems of a grid of alphas share the Krylov space of G and c:
the residual of a larger alpha is ζ_j r_j, with r_j that of the smallest one (the seed) and a number
ζ_j in (0, 1]. So one product with G per iteration is enough for the whole grid, and any linear
function of the iterates (such as predictions) follows the same recurrence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal
from scipy.sparse.linalg import LinearOperator
from sklearn.exceptions import ConvergenceWarning

from rankrls import _resources
from rankrls._calls import Progress, warn

Array = NDArray[Any]

DEFAULT_MAX_ITER = 1000

#: Maximum number of columns multiplied at once, which bounds the work space of products.
COLUMNS = 8

#: Number of residuals collected before coefficients are updated in one matrix product.
BLOCK = 16

#: Maximum number of restarts from the true residual.
MAX_RESTARTS = 3

#: Acceptable residual in multiples of the estimated rounding errors, and error in multiples of tol.
ROUNDING, SLACK = 10.0, 2.0

#: A preconditioner is used if the diagonal of G + alpha I varies by more than this factor.
SPREAD = 10.0

#: Scoring one held-out row costs about as much as this many stored entries of X in an iteration.
#: So many entries are no cost (about 10 ms).
ENTRIES_PER_ROW, NO_COST = 50, 2**20

TINY = float(np.finfo(np.float64).tiny)
EPS = float(np.finfo(np.float64).eps)

OVERFLOW = "the numbers overflow; scale the features, the scores or the weights down"


class Iteration(NamedTuple):
    """Argument of the callback after each iteration.

    Attributes
    ----------
    n_iter : int
    residual : float
        The largest ‖residual‖/‖right-hand side‖ of the unconverged systems.
    error, best_error, best_iteration : numbers or None
        Early stopping: validation error of the best alpha at this iteration, the smallest error so
        far, and its iteration.
    """

    n_iter: int
    residual: float
    error: float | None = None
    best_error: float | None = None
    best_iteration: int | None = None


@dataclass(frozen=True)
class IterationOptions:
    """Checked parameters of the iteration."""

    tol: float = 1e-6
    max_iter: int = DEFAULT_MAX_ITER
    patience: int = 10
    callback: Callable[[Iteration], Any] | None = None
    progress: Progress = field(default_factory=lambda: Progress("", 0))

    def report(self, n_iter: int, residual: float) -> bool:
        """Show the progress and call the callback; return whether it requests a stop."""
        self.progress.bar(n_iter, self.max_iter, f"residual {residual:.2g}")
        return self.callback is not None and bool(self.callback(Iteration(n_iter, residual)))


@dataclass(frozen=True)
class History:
    """Summary of a run of conjugate gradients; residual and accepted are None if stopped early."""

    n_iter: int
    #: True ‖residual‖/‖right-hand side‖, the worst of the outputs, shape (n_alphas,).
    residual: Array | None = None
    #: Whether solutions reach the required accuracy, shape (n_alphas,), bool.
    accepted: Array | None = None
    #: Iterations at which validation errors were computed, shape (n_checks,), int.
    iterations: Array = field(default_factory=partial(np.empty, 0, dtype=np.int64))
    #: These, shape (n_checks, n_alphas); NaN for an alpha that was no longer followed.
    errors: Array = field(default_factory=partial(np.empty, (0, 0)))
    #: Iteration, and index of the alpha, of the selected model.
    best_iteration: int | None = None
    best: int | None = None


#: (G + alpha I) W = C, for C of shape (n, k) in the range of G, with the attributes C, ``outputs``,
#: ``dtype`` of the products, ``n_entries`` read by a product, ``rank``, a bound of that of G, and
#: the methods ``G`` of V, (n, k'), ``diagonal``, about that of G, (n,), and ``magnitude`` of W, the
#: scale of the rounding errors of each entry of G W.
Equations = Any


# -- the loop -----------------------------------------------------------------------------------


class MultiShiftCG:
    """Conjugate gradients for (G + alpha I) W = C, all alphas and columns of C.

    ``product`` maps V of shape (n, k') to G V, C has shape (n, k), and ``alphas``, (n_alphas,) or
    (n_alphas, k), increase along the first axis. A column is frozen for an alpha when ‖residual‖ <=
    tol ‖c‖ and, if ``bounded``, its error is at most tol ‖w‖, too; ``tol`` is a number or has shape
    (k,). ``eps`` is the precision of the products, and ``precondition`` maps the residuals R of the
    columns with some indices, (R, columns), to M⁻¹R; it requires one alpha for each column.
    """

    def __init__(
        self,
        product: Callable[[Array], Array],
        C: Array,
        alphas: Array,
        *,
        tol: float | Array,
        bounded: bool = True,
        eps: float = EPS,
        precondition: Callable[[Array, Array], Array] | None = None,
    ) -> None:
        self.product, self.precondition = product, precondition
        self.bounded, self.eps, self.n_iter = bounded, eps, 0
        k = C.shape[1]
        self.tol = np.broadcast_to(np.asarray(tol, dtype=float), (k,))
        alphas = alphas[:, None] if alphas.ndim == 1 else alphas
        assert precondition is None or len(alphas) == 1
        self.alphas = np.broadcast_to(alphas, (len(alphas), k))
        self.seed = self.alphas[0]
        self.delta = self.alphas - self.seed
        self.scale = _norms(C)
        if not np.isfinite(self.scale).all():
            raise ValueError(OVERFLOW)
        self.R = np.divide(C, self.scale, out=np.zeros_like(C), where=self.scale > 0)
        Z = self.R if precondition is None else precondition(self.R, np.arange(k))
        self.P, self.work = Z.copy(), np.empty_like(Z)
        self.square = np.einsum("ij,ij->j", self.R, Z)  # rᵀM⁻¹r, relative to ‖c‖²
        self.start = np.where(self.square > 0, np.sqrt(np.maximum(self.square, 0.0)), 1.0)
        self.norm = (self.scale > 0).astype(float)
        self.a, self.b = np.ones(k), np.zeros(k)
        self.rho, self.zeta = np.ones_like(self.delta), np.ones_like(self.delta)
        self.frozen = np.repeat(self.square[None] <= 0, len(alphas), axis=0)
        self.top = np.zeros(k)  # the largest pᵀ(G + seed)p/‖p‖² so far, about ‖G + seed‖
        self.sizes: Array | None = None
        self.coefficients: list[tuple[Array, Array]] = []
        self.made = np.zeros(k, dtype=np.int64)  # iterations of each column
        self.observers: list[tuple[Callable[[Array], Array], ShiftedSum]] = []
        self.iterates = self.observe(lambda R: R, BLOCK if len(alphas) > 1 else 1)

    def observe(self, image: Callable[[Array], Array], block: int = 1) -> ShiftedSum:
        """Follow a linear function of the iterates, given for columns: (n, k') to (d, k')."""
        assert self.n_iter == 0
        follower = ShiftedSum(image(self.P), len(self.delta), block)
        self.observers.append((image, follower))
        return follower

    @property
    def residual(self) -> Array:
        """‖residual‖/‖c‖ for each alpha and column."""
        return self.zeta * self.norm

    def step(self) -> bool:
        """Do one iteration; return False, without doing anything, if everything is frozen."""
        on = np.flatnonzero(~self.frozen.all(axis=0))
        if not len(on):
            return False
        # Use views if all columns are active, to avoid copies of large vectors.
        whole = len(on) == self.P.shape[1]
        columns: Any = slice(None) if whole else on
        P, R, work = self.P[:, columns], self.R[:, columns], self.work[:, : len(on)]
        GP = self.product(P)
        if self.seed[on].any():
            GP = GP + np.multiply(P, self.seed[on], out=work)
        curvature, pp = np.einsum("ij,ij->j", P, GP), np.einsum("ij,ij->j", P, P)
        if not np.isfinite(curvature).all():
            raise ValueError(OVERFLOW)
        # No curvature: the residual is zero up to rounding.
        alive, before = curvature > 0, self.square[on]
        a = np.divide(before, curvature, out=np.zeros(len(on)), where=alive)
        # With steps a and b of the seed and ρ_j = ζ_j/ζ_{j−1}, an alpha larger by δ has 1/ρ_{j+1} =
        # 1 + δ a_j + (a_j b_j/a_{j−1}) (1 − ρ_j), and steps a_j ρ_{j+1} and b_{j+1} ρ²_{j+1}.
        growth = a * self.b[on] / self.a[on]
        rho = 1.0 / (1.0 + self.delta[:, on] * a + growth * (1.0 - self.rho[:, on]))
        R -= np.multiply(GP, a, out=work)
        Z = R if self.precondition is None else self.precondition(R, on)
        square = np.where(alive, np.einsum("ij,ij->j", R, Z), 0.0)
        next_square = square
        if self.precondition is not None:
            # The formula of Polak and Ribière tolerates rounding errors of the preconditioner.
            next_square = np.where(square > 0, -a * np.einsum("ij,ij->j", GP, Z), 0.0)
        b = np.divide(next_square, before, out=np.zeros(len(on)), where=before > 0)
        moving = ~self.frozen[:, on]
        zeta = np.where(moving, self.zeta[:, on] * rho, self.zeta[:, on])
        P *= b
        P += Z
        if not whole:
            self.R[:, on], self.P[:, on] = R, P
        self.square[on], self.a[on], self.b[on] = square, np.where(alive, a, 1.0), b
        self.norm[on] = np.sqrt(square) if self.precondition is None else _norms(R)
        self.rho[:, on], self.zeta[:, on] = rho, zeta
        rayleigh = np.divide(curvature, pp, out=np.zeros(len(on)), where=pp > 0)
        self.top[on] = np.maximum(self.top[on], rayleigh)
        self.coefficients.append((self.a.copy(), self.b.copy()))
        self.made[on] += alive
        self.n_iter += 1
        for image, follower in self.observers:
            follower.advance(on, np.where(moving, a * rho, 0.0), image(Z), zeta, b * rho**2)
        self.frozen[:, on] |= self._converged(on) | ~(square > 0)
        return True

    def _converged(self, on: Array) -> Array:
        """Whether iterates have converged, shape (n_alphas, len(on)).

        The error is at most ‖residual‖/alpha; it is small when that is, or when the residual is of
        the size of rounding errors, eps ‖G + alpha I‖ ‖w‖.
        """
        tol, residual = self.tol[on], self.residual[:, on]
        # The norm that is minimised is that of M⁻¹.
        norm = self.zeta[:, on] * np.sqrt(np.maximum(self.square[on], 0.0))
        small = (norm <= tol * self.start[on]) & (residual <= tol)
        if not self.bounded or not small.any():
            return small
        if self.sizes is None or self.n_iter % BLOCK == 0:  # they hardly change at this point
            self.sizes = np.linalg.norm(self.iterates.all(), axis=1)
        rounding = self.eps * (self.top[on] + self.delta[:, on])
        limit = np.maximum(tol * self.alphas[:, on], rounding)
        return small & (residual <= limit * self.sizes[:, on])

    def smallest_ritz(self, column: int) -> float:
        """Smallest Ritz value of G + seed (of M⁻¹(G + seed)) in the Krylov space of a column."""
        # Eigenvalue of the matrix with diagonal 1/a_j + b_j/a_{j−1} and √b_{j+1}/a_j beside it.
        made = self.coefficients[: self.made[column]]
        if not made:
            return np.inf
        a = np.array([a[column] for a, _ in made])
        b = np.array([b[column] for _, b in made[:-1]])
        diagonal, beside = 1.0 / a, np.sqrt(np.maximum(b, 0.0)) / a[:-1]
        diagonal[1:] += b / a[:-1]
        size = float(diagonal.max())  # squares of entries must not overflow
        lowest = eigvalsh_tridiagonal(
            diagonal / size, beside / size, select="i", select_range=(0, 0)
        )
        return max(float(lowest[0]) * size, float(self.seed[column]))

    def solutions(self) -> Array:
        """The iterates W of all alphas, shape (n_alphas, n, k)."""
        return self.iterates.all() * self.scale

    def solution(self, index: int) -> Array:
        """The iterate of one alpha, shape (n, k)."""
        return self.iterates.one(index) * self.scale


class ShiftedSum:
    """x ← x + a p,  p ← ζ r + b p for every alpha, where r, of shape (d, k), is the same for all.

    x and p are updated once in ``block`` steps, by a matrix product of coefficients and r.
    """

    def __init__(self, r: Array, n_alphas: int, block: int) -> None:
        d, k = r.shape
        self.block, self.used = block, 1
        self.r = np.zeros((k, block, d))
        self.x, self.p = np.zeros((k, n_alphas, d)), np.zeros((k, n_alphas, d))
        # x = x_old + x_p p_old + x_r · r,  p = p_p p_old + p_r · r
        self.x_p, self.p_p = np.zeros((k, n_alphas)), np.zeros((k, n_alphas))
        self.x_r, self.p_r = np.zeros((k, n_alphas, block)), np.zeros((k, n_alphas, block))
        self.r[:, 0] = r.T
        self.p_r[:, :, 0] = 1.0

    def advance(self, on: Array, a: Array, r: Array, zeta: Array, b: Array) -> None:
        """One step for columns ``on``: r of shape (d, len(on)), a, ζ and b (n_alphas, len(on))."""
        self.x_p[on] += a.T * self.p_p[on]
        self.x_r[on] += a.T[:, :, None] * self.p_r[on]
        if self.used == self.block:
            # Larger alphas are frozen first, so nothing changes beyond the last active one.
            moving = np.flatnonzero((self.x_p != 0).any(axis=0) | (self.x_r != 0).any(axis=(0, 2)))
            top = int(moving[-1]) + 1 if len(moving) else 0
            x, p = self.x[:, :top], self.p[:, :top]
            x += self.x_p[:, :top, None] * p
            x += self.x_r[:, :top] @ self.r
            p *= self.p_p[:, :top, None]
            p += self.p_r[:, :top] @ self.r
            self.x_p[:], self.p_p[:] = 0.0, 1.0
            self.x_r[:], self.p_r[:] = 0.0, 0.0
            self.used = 0
        self.p_p[on] *= b.T
        self.p_r[on] *= b.T[:, :, None]
        self.r[on, self.used] = r.T
        self.p_r[on, :, self.used] = zeta.T
        self.used += 1

    def all(self) -> Array:
        """X for every alpha, shape (n_alphas, d, k)."""
        return np.moveaxis(self.x + self.x_p[:, :, None] * self.p + self.x_r @ self.r, 0, 2)

    def one(self, index: int) -> Array:
        """X for one alpha, shape (d, k)."""
        x = self.x[:, index] + self.x_p[:, index, None] * self.p[:, index]
        x += (self.x_r[:, index, None] @ self.r)[:, 0]
        return x.T


# -- to a tolerance -----------------------------------------------------------------------------


def converge(
    systems: Sequence[Equations],
    alphas: Array,
    options: IterationOptions,
    *,
    quiet: bool = False,
) -> tuple[list[Array], History]:
    """Solve each system, shape (n_alphas, n, k), with relative errors of about tol.

    All alphas share one Krylov sequence, unless the columns are scaled so differently that they
    need a preconditioner. A `ConvergenceWarning` is issued if the true residual, or the error that
    follows from it, is above the tolerance or above what the precision of X allows; with ``quiet``
    only ``History.accepted`` tells. With alpha = 0 the number of iterations regularises: there are
    ``max_iter``, or fewer to the exact solution.
    """
    if not alphas.any():
        return _by_iterations(systems, options)
    shape, order = (len(systems), len(alphas)), np.argsort(alphas)
    residual, error, accepted = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=bool)
    solutions, n_iter, stopped = [], 0, False
    for j, system in enumerate(systems):
        size, advice = (len(alphas), *system.C.shape), "ask for fewer alphas at a time"
        _resources.require(
            "a grid of alphas by conjugate gradients", *size, copies=3, advice=advice
        )
        W, diagonal = np.empty(size), system.diagonal()
        if not np.isfinite(diagonal).all():
            raise ValueError(OVERFLOW)
        g = diagonal[diagonal > 0] if diagonal.any() else np.ones(1)
        scales = np.maximum(diagonal, g.min())[:, None]
        # Without full rank preconditioned iterates would leave the range of G.
        uneven = (g.max() + alphas > SPREAD * (g.min() + alphas)) & (len(g) <= system.rank)
        step = max(1, COLUMNS // system.C.shape[1])  # alphas that are solved together
        apart, together = order[uneven[order]], order[~uneven[order]]
        parts = [(apart[i : i + step], scales) for i in range(0, len(apart), step)]
        for which, M in [*parts, *([(together, None)] if len(together) else [])]:
            found, *assessed, steps, ended = _run(system, alphas[which], options, M)
            W[which], n_iter, stopped = found, max(n_iter, steps), stopped or ended
            residual[j, which], error[j, which], accepted[j, which] = assessed
        solutions.append(W)
    if not accepted.all() and not stopped and not quiet:
        worst = int(np.argmax(np.where(accepted, -np.inf, error)))
        j, s = divmod(worst, len(alphas))
        single = ", pass them as float64" if systems[0].dtype == np.float32 else ""
        warn(
            f"conjugate gradients ended after {n_iter} iterations with a relative residual of "
            f"{residual[j, s]:.2g} at alpha={alphas[s]:g}, which leaves a relative error of the "
            f"coefficients of up to {error[j, s]:.2g} > tol={options.tol:g}: raise max_iter, tol "
            f"or alpha, centre and scale the features{single}, or use early_stopping=True",
            ConvergenceWarning,
        )
    accepted = np.all(accepted, axis=0) | stopped
    return solutions, History(n_iter, residual.max(axis=0), accepted)


def _by_iterations(
    systems: Sequence[Equations], options: IterationOptions
) -> tuple[list[Array], History]:
    """Take ``max_iter`` steps with alpha = 0 from zero, unless the residual vanishes before."""
    solutions, n_iter, residuals = [], 0, []
    for system in systems:
        eps = float(np.finfo(system.dtype).eps)
        run = MultiShiftCG(system.G, system.C, np.zeros(1), tol=options.tol, eps=eps)
        for step in range(1, options.max_iter + 1):
            run.step()
            n_iter = max(n_iter, step)
            if run.frozen.all() or options.report(step, float(run.residual.max())):
                break
        solutions.append(run.solution(0)[None])
        residuals.append(float(run.residual.max()))
    return solutions, History(n_iter, np.array([max(residuals)]), np.ones(1, dtype=bool))


def _run(
    system: Equations, alphas: Array, options: IterationOptions, scales: Array | None
) -> tuple[Array, Array, Array, Array, int, bool]:
    """Solve one system for increasing alphas, and assess the solutions by their true residuals.

    With ``scales``, (n, 1), the preconditioner is M = scales + alpha. Residuals then have the norm
    of M⁻¹ and solutions that of M, in which columns of all scales count equally.

    The error is at most ‖R + δ‖/alpha, with δ the rounding errors of R. Iterates and errors stay in
    the range of G, as C does, so it is about ‖R + δ‖/θ, with θ the smallest Ritz value of
    G + alpha I, once the residual is of the size of rounding errors: a larger part of C that
    belongs to smaller eigenvalues would be left in R.

    Returns solutions (n_alphas, n, k), for each alpha the worst residual, the worst error and
    whether all solutions are accepted, the iterations, and whether a callback stopped them.
    """
    (n, k), S = system.C.shape, len(alphas)
    tol, eps = options.tol, float(np.finfo(system.dtype).eps)
    # One column for every (alpha, output) from here on.
    shifts, C = np.repeat(alphas, k), np.tile(system.C, S)
    root = np.ones((1, S * k)) if scales is None else 1.0 / np.sqrt(scales + shifts)
    n_iter, stopped = 0, False

    def iterate(B: Array, columns: Array | None, tol: Any, bounded: bool) -> MultiShiftCG:
        """Run with one alpha for each of ``columns``, or all alphas for all right-hand sides."""
        nonlocal n_iter, stopped
        precondition = None
        if scales is not None and columns is not None:

            def precondition(R: Array, on: Array) -> Array:
                return R * np.square(root[:, columns[on]])

        of_run = alphas if columns is None else shifts[columns][None]
        run = MultiShiftCG(
            system.G, B, of_run, tol=tol, bounded=bounded, eps=eps, precondition=precondition
        )
        before = n_iter
        while n_iter < options.max_iter and not stopped and run.step():
            n_iter = before + run.n_iter
            residual = float(run.residual.max(where=~run.frozen, initial=0.0))
            stopped = options.report(n_iter, residual)
        return run

    # ``smallest`` is an eigenvalue of G + alpha I found in a Krylov space.
    if scales is not None:
        run = iterate(C, np.arange(S * k), tol, True)
        W, smallest = run.solutions()[0], np.array([run.smallest_ritz(j) for j in range(S * k)])
    else:
        run = iterate(system.C, None, tol, True)
        smallest = np.tile([run.smallest_ritz(j) for j in range(k)], S) + shifts - shifts[0]
        W = np.moveaxis(run.solutions(), 0, 1).reshape(n, S * k)
    target, right = _norms(C * root), _norms(C)
    limit = eps ** (2 / 3) * target  # errors above this are always reported
    for left in reversed(range(1 + MAX_RESTARTS)):
        R = C - system.G(W) - shifts * W
        residual, norm, size = _norms(R), _norms(R * root), _norms(W)
        # X w of the smallest alpha is the largest.
        magnitude = np.tile(eps * system.magnitude(W[:, :k]), S)
        delta, rounding = _norms(magnitude), _norms(magnitude * root)
        error = (residual + delta) / np.maximum(shifts * size, TINY)
        enough = tol * norm / np.maximum(error, tol)  # of ‖R‖ for an error of tol
        theta = np.where(np.isfinite(smallest), smallest, 0.0)
        estimate = (norm + rounding) / np.maximum(theta * _norms(W / root), TINY)
        seen = norm <= np.minimum(ROUNDING * rounding, eps**0.5 * target)
        error = np.where(seen, np.minimum(error, estimate), error)
        error = np.where(residual > 0, error, 0.0)
        rounding = np.minimum(ROUNDING * rounding, limit)
        small = (norm <= tol * target) & (residual <= tol * right)
        limited = norm <= rounding
        allowed = np.where(limited, max(SLACK * tol, eps**0.5), SLACK * tol)
        accepted = (small | limited) & (error <= allowed)
        goal = np.maximum(rounding, np.minimum(enough, tol * target))
        bad = np.flatnonzero(~accepted & (norm > goal))
        if left == 0 or n_iter >= options.max_iter or stopped or not len(bad):
            break
        # Iterative refinement: solve for the true residual while that helps.
        run = iterate(R[:, bad], bad, goal[bad] / norm[bad], False)
        W[:, bad] += run.solutions()[0]
        ritz = [run.smallest_ritz(j) for j in range(len(bad))]
        smallest[bad] = np.minimum(smallest[bad], ritz)
    return (
        np.moveaxis(W.reshape(n, S, k), 1, 0),
        (residual / np.maximum(right, TINY)).reshape(S, k).max(axis=1),
        error.reshape(S, k).max(axis=1),
        accepted.reshape(S, k).all(axis=1),
        n_iter,
        stopped,
    )


def _norms(V: Array) -> Array:
    return np.linalg.norm(V, axis=0)


# -- early stopping -----------------------------------------------------------------------------


def stop_early(
    systems: Sequence[Equations],
    alphas: Array,
    options: IterationOptions,
    held_out: LinearOperator,
    score: Callable[[Array], float],
    n_outputs: int,
) -> tuple[list[Array], History]:
    """Find the (alpha, iteration) with the best score on held-out rows, higher = better.

    ``held_out``, of shape (m', n), are these rows, ``score`` a function of predictions of shape
    (m', n_outputs), and the systems cover all outputs. An alpha is followed until it has converged,
    or its score has not improved for ``options.patience`` iterations. If scores tie, the largest
    alpha is chosen, then the first iteration. Returns the best solution of every system, (1, n, k).
    """
    order = np.argsort(alphas)
    runs = [
        MultiShiftCG(s.G, s.C, alphas[order], tol=options.tol, eps=float(np.finfo(s.dtype).eps))
        for s in systems
    ]
    views = [run.observe(held_out.matmat) for run in runs]
    predictions = np.empty((held_out.shape[0], n_outputs))
    kept = [np.zeros((1, *system.C.shape)) for system in systems]
    n_iter, last_scored, stopped = 0, 0, False
    followed = np.ones(len(alphas), dtype=bool)
    scores, latest = np.full(len(alphas), -np.inf), np.zeros(len(alphas), dtype=np.int64)
    best, best_score, best_iteration = -1, -np.inf, 0
    checks, errors = [], []
    while n_iter < options.max_iter and followed.any() and not stopped:
        for run in runs:
            run.step()
        n_iter += 1
        # An alpha is finished when it has converged in every run.
        ended = np.all([run.frozen.all(axis=1) for run in runs], axis=0)
        last = n_iter == options.max_iter or not (followed & ~ended).any()
        # All iterations are scored unless that costs more than the products, and every fifth then.
        cost = np.count_nonzero(followed) * held_out.shape[0] * ENTRIES_PER_ROW
        every = min(cost / max(systems[0].n_entries, 1), 5.0) if cost > NO_COST else 1.0
        if n_iter - last_scored < int(every) and len(alphas) > 1 and not last:
            continue
        last_scored = n_iter
        checks.append(n_iter)
        errors.append(np.full(len(alphas), np.nan))
        for s in np.flatnonzero(followed).tolist():
            for system, run, view in zip(systems, runs, views, strict=True):
                predictions[:, system.outputs] = view.one(s) * run.scale
            value = score(predictions)
            if not np.isfinite(value):
                raise ValueError(f"scoring returned {value}; it must return a finite number")
            errors[-1][s] = 1 - value
            if value > scores[s]:
                scores[s], latest[s] = value, n_iter
            if value > best_score or (value == best_score and s > best):
                best, best_score, best_iteration = s, value, n_iter
                kept = [run.solution(s)[None] for run in runs]
        followed &= ~ended & (n_iter - latest < options.patience)
        for run in runs:
            run.frozen[~followed] = True
        residual, error = max(float(run.residual.max()) for run in runs), np.nanmin(errors[-1])
        state = Iteration(n_iter, residual, float(error), 1 - best_score, best_iteration)
        options.progress.bar(
            n_iter,
            options.max_iter,
            f"validation error {state.error:.4f}, best {state.best_error:.4f} "
            f"at {state.best_iteration}",
        )
        stopped = options.callback is not None and bool(options.callback(state))
    if followed.any() and not stopped:
        warn(
            f"early stopping reached max_iter={options.max_iter} before the validation error had "
            f"stopped improving for {options.patience} iterations: raise max_iter",
            ConvergenceWarning,
        )
    table = np.empty((len(checks), len(alphas)))
    table[:, order] = np.array(errors)
    return kept, History(
        n_iter,
        iterations=np.array(checks),
        errors=table,
        best_iteration=best_iteration,
        best=int(order[best]),
    )
