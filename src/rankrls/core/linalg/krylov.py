"""Conjugate gradients for (G + alpha I) W = C, with G given by its products.

`MultiShiftCG` is the only loop. All systems of a grid of alphas share the Krylov space of G and c:
conjugate gradients for the smallest alpha (the seed) compute residuals r_j, and for any larger
alpha the residual is ζ_j r_j, with a number ζ_j in (0, 1] that follows from the two coefficients of
the seed. So one product with G per iteration is enough for the whole grid, and any linear function
of the iterates (such as predictions) follows from its image of r_j by the same recurrence.

- `converge` solves to a tolerance, with a diagonal preconditioner if columns have very different
  scales, and assesses the solutions by their true residuals;
- `stop_early` finds the (alpha, iteration) with the best score on held-out rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal
from scipy.sparse.linalg import LinearOperator
from sklearn.exceptions import ConvergenceWarning

from rankrls import _resources
from rankrls._calls import Progress, warn

__all__ = [
    "COLUMNS",
    "DEFAULT_MAX_ITER",
    "Equations",
    "History",
    "Iteration",
    "IterationOptions",
    "MultiShiftCG",
    "ShiftedSum",
    "converge",
    "stop_early",
]

Array = NDArray[Any]

DEFAULT_MAX_ITER = 1000

#: Maximum number of columns multiplied at once, which bounds the work space of products.
COLUMNS = 8

#: Number of residuals collected before coefficients are updated in one matrix product.
BLOCK = 16

#: Maximum number of restarts from the true residual.
MAX_RESTARTS = 3

#: Acceptable residual, in multiples of the estimated rounding errors.
ROUNDING = 10.0

#: Acceptable error, in multiples of the tolerance.
SLACK = 2.0

TINY = float(np.finfo(np.float64).tiny)
EPS = float(np.finfo(np.float64).eps)


class Iteration(NamedTuple):
    """Argument of the callback after each iteration.

    Attributes
    ----------
    n_iter : int
    residual : float
        The largest ‖residual‖/‖right-hand side‖ of the unconverged systems.
    error : float or None
        Validation error of the best alpha at this iteration (early stopping).
    best_error : float or None
        The smallest error so far.
    best_iteration : int or None
        Iteration of the smallest error.
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
    """Summary of a run of conjugate gradients.

    Attributes
    ----------
    n_iter : int
        Number of iterations.
    residual : ndarray of shape (n_alphas,) or None
        True ‖residual‖/‖right-hand side‖, the worst of the outputs; None if stopped early.
    accepted : ndarray of shape (n_alphas,), bool, or None
        Whether solutions reach the required accuracy; None if stopped early.
    iterations : ndarray of shape (n_checks,), int
        Iterations at which the validation error was computed.
    errors : ndarray of shape (n_checks, n_alphas)
        Validation errors; NaN for an alpha that was no longer followed.
    best_iteration, best : int or None
        Iteration, and index of the alpha, of the selected model.
    """

    n_iter: int
    residual: Array | None = None
    accepted: Array | None = None
    iterations: Array = field(default_factory=partial(np.empty, 0, dtype=np.int64))
    errors: Array = field(default_factory=partial(np.empty, (0, 0)))
    best_iteration: int | None = None
    best: int | None = None


class Equations(Protocol):
    """The equations (G + alpha I) W = C, as needed by `converge` and `stop_early`.

    Attributes
    ----------
    C : ndarray of shape (n, k)
        Right-hand sides, in the range of G.
    outputs : ndarray of shape (k,), int
        The outputs of the columns.
    """

    C: Array
    outputs: Array

    @property
    def dtype(self) -> Any:
        """Data type of the products."""

    @property
    def n_entries(self) -> int:
        """Approximate number of values read by a product with G."""

    @property
    def rank(self) -> int:
        """Upper bound of the number of positive eigenvalues of G."""

    def G(self, V: Array) -> Array:
        """Compute G V for V of shape (n, k')."""

    def diagonal(self) -> Array:
        """Approximate diagonal of G, shape (n,)."""

    def magnitude(self, W: Array) -> Array:
        """Approximate scale of the rounding errors of each entry of G W, shape (n, k')."""


# -- the loop -----------------------------------------------------------------------------------


class MultiShiftCG:
    """Conjugate gradients for (G + alpha I) W = C, all alphas and columns of C.

    ``step`` performs one iteration, with a single product for the columns that have not converged.

    Parameters
    ----------
    product : function
        V ↦ G V for V of shape (n, k'), G symmetric positive semi-definite of shape (n, n).
    C : ndarray of shape (n, k)
    alphas : ndarray of shape (n_alphas,) or (n_alphas, k), >= 0, increasing along the first axis
    tol : float or ndarray of shape (k,)
        A column has converged for an alpha when ‖residual‖ <= tol ‖c‖ and, if ``bounded``, the
        error is also small (see Notes). Its iterate is then frozen.
    bounded : bool
        Whether ``tol`` limits the relative error of the iterates as well.
    eps : float
        Precision of the products.
    precondition : function, optional
        (R, columns) ↦ M⁻¹R for R of shape (n, k'), the residuals of the columns with these indices;
        M is symmetric positive definite. Requires one alpha for each column.

    Attributes
    ----------
    n_iter : int
    residual : ndarray of shape (n_alphas, k)
        ‖residual‖/‖c‖ by the recurrence; true residuals must be computed by the caller.
    frozen : ndarray of shape (n_alphas, k), bool
        Iterates that no longer change.
    iterates : ShiftedSum
        The solutions so far.

    Notes
    -----
    With steps a_j = ‖r_j‖²/p_jᵀ(G + σ)p_j and b_j = ‖r_j‖²/‖r_{j−1}‖² of the seed σ and
    ρ_j = ζ_j/ζ_{j−1}, an alpha larger by δ has

        1/ρ_{j+1} = 1 + δ a_j + (a_j b_j/a_{j−1}) (1 − ρ_j)

    and steps a_j ρ_{j+1} and b_{j+1} ρ²_{j+1}. All terms are positive and ρ is at most one, so
    there is no overflow or cancellation.

    If alpha is small, a small residual does not imply a small error e = (G + alpha I)⁻¹ residual.
    An iterate has converged when ‖residual‖ <= tol alpha ‖w‖, since ‖e‖ <= ‖residual‖/alpha, or
    when the residual is of the size of rounding errors, eps ‖G + alpha I‖ ‖w‖.
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
        self.bounded, self.eps = bounded, eps
        k = C.shape[1]
        self.tol = np.broadcast_to(np.asarray(tol, dtype=float), (k,))
        alphas = alphas[:, None] if alphas.ndim == 1 else alphas
        assert precondition is None or len(alphas) == 1
        self.alphas = np.broadcast_to(alphas, (len(alphas), k))
        self.seed = self.alphas[0]
        self.delta = self.alphas - self.seed
        self.scale = _norms(C)
        if not np.isfinite(self.scale).all():
            raise _overflow_error()
        self.R = np.divide(C, self.scale, out=np.zeros_like(C), where=self.scale > 0)
        Z = self.R if precondition is None else precondition(self.R, np.arange(k))
        self.P = Z.copy()
        self.square = np.einsum("ij,ij->j", self.R, Z)  # rᵀM⁻¹r, relative to ‖c‖²
        self.start = np.where(self.square > 0, np.sqrt(np.maximum(self.square, 0.0)), 1.0)
        self.norm = (self.scale > 0).astype(float)
        self.a, self.b = np.ones(k), np.zeros(k)
        self.rho, self.zeta = np.ones_like(self.delta), np.ones_like(self.delta)
        self.frozen = np.zeros(self.delta.shape, dtype=bool)
        self.frozen[:, self.square <= 0] = True
        self.sizes = _Sizes(self.square, len(alphas))
        self.last_size: Array | None = None
        self.coefficients: list[tuple[Array, Array]] = []
        self.made = np.zeros(k, dtype=np.int64)  # iterations of each column
        self.n_iter = 0
        self.work = np.empty_like(self.P)
        self.observers: list[tuple[Callable[[Array], Array], ShiftedSum]] = []
        self.iterates: ShiftedSum | _DirectionSum
        if len(alphas) > 1:
            self.iterates = self.observe(lambda R: R, block=BLOCK)
        else:
            self.iterates = _DirectionSum(self.P.shape, self.P.dtype)

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

    def freeze(self, which: Array) -> None:
        """Freeze the iterates of some alphas, given by a mask of shape (n_alphas,)."""
        self.frozen[which] = True

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
        curvature = np.einsum("ij,ij->j", P, GP)
        if not np.isfinite(curvature).all():
            raise _overflow_error()
        # No curvature: the residual is zero up to rounding.
        alive = curvature > 0
        before = self.square[on]
        a = np.divide(before, curvature, out=np.zeros(len(on)), where=alive)
        growth = a * self.b[on] / self.a[on]
        rho = 1.0 / (1.0 + self.delta[:, on] * a + growth * (1.0 - self.rho[:, on]))
        R -= np.multiply(GP, a, out=work)
        Z = R if self.precondition is None else self.precondition(R, on)
        square = np.where(alive, np.einsum("ij,ij->j", R, Z), 0.0)
        alive &= square > 0
        next_square = square
        if self.precondition is not None:
            # The formula of Polak and Ribière tolerates rounding errors of the preconditioner.
            next_square = np.where(alive, -a * np.einsum("ij,ij->j", GP, Z), 0.0)
        b = np.divide(next_square, before, out=np.zeros(len(on)), where=before > 0)
        moving = ~self.frozen[:, on]
        zeta = np.where(moving, self.zeta[:, on] * rho, self.zeta[:, on])
        steps = np.where(moving, a * rho, 0.0)
        if isinstance(self.iterates, _DirectionSum):
            self.iterates.x[:, columns] += np.multiply(P, steps[0], out=work)
        P *= b
        P += Z
        if not whole:
            self.R[:, on], self.P[:, on] = R, P
        self.square[on], self.a[on], self.b[on] = square, np.where(curvature > 0, a, 1.0), b
        self.norm[on] = np.sqrt(square) if self.precondition is None else _norms(R)
        self.rho[:, on], self.zeta[:, on] = rho, zeta
        self.sizes.advance(on, curvature, a * rho, b, b * rho**2, steps, zeta, square)
        self.coefficients.append((self.a.copy(), self.b.copy()))
        self.made[on] += curvature > 0
        self.n_iter += 1
        for image, follower in self.observers:
            follower.advance(on, steps)
            follower.turn(on, image(Z), zeta, b * rho**2)
        self.frozen[:, on] |= self._converged(on) | ~alive
        return True

    def _converged(self, on: Array) -> Array:
        """Whether iterates have converged (see Notes), shape (n_alphas, len(on))."""
        tol, alphas, residual = self.tol[on], self.alphas[:, on], self.residual[:, on]
        # The norm that is minimised is that of M⁻¹.
        norm = self.zeta[:, on] * np.sqrt(np.maximum(self.square[on], 0.0))
        small = norm <= tol * self.start[on]
        if not self.bounded or not small.any():
            return small
        top = self.sizes.top[on] + self.delta[:, on]
        converged = norm <= self.sizes.of(on, self.eps * top)
        if self.precondition is None:
            converged |= residual <= self.sizes.of(on, tol * alphas)
        else:
            # This norm does not follow from the recurrence, but hardly changes at this point.
            if self.last_size is None or self.n_iter % BLOCK == 0:
                self.last_size = _norms(self.iterates.one(0))
            converged |= residual <= tol * alphas * self.last_size[on]
        return small & (residual <= tol) & converged

    def smallest_ritz(self, column: int) -> float:
        """The smallest Ritz value of G + seed (of M⁻¹(G + seed)) in the Krylov space of a column.

        They are the eigenvalues of the tridiagonal matrix with the diagonal
        1/a_j + b_j/a_{j−1} and √b_{j+1}/a_j beside it.
        """
        made = self.coefficients[: self.made[column]]
        if not made:
            return np.inf
        a = np.array([a[column] for a, _ in made])
        b = np.array([b[column] for _, b in made[:-1]])
        diagonal = 1.0 / a
        diagonal[1:] += b / a[:-1]
        beside = np.sqrt(b) / a[:-1]
        size = float(diagonal.max())  # squares of entries must not overflow
        values = eigvalsh_tridiagonal(
            diagonal / size, beside / size, select="i", select_range=(0, 0)
        )
        return max(float(values[0]) * size, float(self.seed[column]))

    def solutions(self) -> Array:
        """The iterates W of all alphas, shape (n_alphas, n, k)."""
        return self.iterates.all() * self.scale

    def solution(self, index: int) -> Array:
        """The iterate of one alpha, shape (n, k)."""
        return self.iterates.one(index) * self.scale


class _Sizes:
    """Norms of the iterates of every alpha and column, in the norm of M.

    They follow from x_{j+1} ⟂ r_{j+1}: xᵀp ← b (xᵀp + a‖p‖²), ‖p‖² ← ‖r‖² + b²‖p‖². Steps are
    measured in units of the first step of their alpha, so that no alpha overflows. ``top``, shape
    (k,), is the largest pᵀ(G + seed)p/‖p‖² so far, approximately ‖G + seed‖.
    """

    def __init__(self, square: Array, n_alphas: int) -> None:
        shape = (n_alphas, len(square))
        self.unit, self.xx, self.xp = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.pp = np.repeat(square[None], n_alphas, axis=0)
        self.seed_pp = square.copy()
        self.top = np.zeros(len(square))

    def advance(
        self,
        on: Array,
        curvature: Array,
        first: Array,
        b: Array,
        b_alpha: Array,
        steps: Array,
        zeta: Array,
        square: Array,
    ) -> None:
        """One iteration of columns ``on``: x ← x + steps p,  p ← ζ r + b p.

        ``curvature``, ``b`` and ``square`` = ‖r‖² are the seed's, shape (len(on),); the others
        have the shape (n_alphas, len(on)). ``first`` is the unit of the first steps.
        """
        seed_pp = self.seed_pp[on]
        rayleigh = np.divide(curvature, seed_pp, out=np.zeros(len(on)), where=seed_pp > 0)
        self.top[on] = np.maximum(self.top[on], rayleigh)
        self.seed_pp[on] = square + b**2 * seed_pp
        self.unit[:, on] = unit = np.where(self.unit[:, on] == 0, first, self.unit[:, on])
        s = np.divide(steps, unit, out=np.zeros_like(steps), where=unit > 0)
        pp, xp = self.pp[:, on], self.xp[:, on]
        self.xx[:, on] += s * (2 * xp + s * pp)
        self.xp[:, on] = b_alpha * (xp + s * pp)
        self.pp[:, on] = zeta**2 * square + b_alpha**2 * pp

    def of(self, on: Array, factor: Array) -> Array:
        """Factor · ‖x‖ for columns ``on``, both of shape (n_alphas, len(on))."""
        return factor * self.unit[:, on] * np.sqrt(np.maximum(self.xx[:, on], 0.0))


class _DirectionSum:
    """x ← x + a p for one alpha, with p the directions themselves; x of shape (d, k)."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.x = np.zeros(shape, dtype=dtype)

    def all(self) -> Array:
        """X, shape (1, d, k)."""
        return self.x[None]

    def one(self, index: int) -> Array:
        """X, shape (d, k)."""
        return self.x


class ShiftedSum:
    """x ← x + a p,  p ← ζ r + b p for every alpha, where r is the same for all of them.

    The d-vectors x and p of each alpha are updated once in ``block`` steps, by a matrix product; in
    between only their coefficients on the r of the block are stored.

    Parameters
    ----------
    r : ndarray of shape (d, k)
        The first r.
    n_alphas : int
    block : int
    """

    def __init__(self, r: Array, n_alphas: int, block: int) -> None:
        d, k = r.shape
        self.block = block
        self.r = np.zeros((k, block, d))
        self.x, self.p = np.zeros((k, n_alphas, d)), np.zeros((k, n_alphas, d))
        # x = x_old + x_p p_old + x_r · r,  p = p_p p_old + p_r · r
        self.x_p, self.p_p = np.zeros((k, n_alphas)), np.zeros((k, n_alphas))
        self.x_r, self.p_r = np.zeros((k, n_alphas, block)), np.zeros((k, n_alphas, block))
        self.used = 1
        self.r[:, 0] = r.T
        self.p_r[:, :, 0] = 1.0

    def advance(self, on: Array, a: Array) -> None:
        """x ← x + a p for columns ``on``, a of shape (n_alphas, len(on))."""
        a = a.T
        self.x_p[on] += a * self.p_p[on]
        self.x_r[on] += a[:, :, None] * self.p_r[on]

    def turn(self, on: Array, r: Array, zeta: Array, b: Array) -> None:
        """p ← ζ r + b p, r of shape (d, len(on)), ζ and b of shape (n_alphas, len(on))."""
        if self.used == self.block:
            self._flush()
        self.p_p[on] *= b.T
        self.p_r[on] *= b.T[:, :, None]
        self.r[on, self.used] = r.T
        self.p_r[on, :, self.used] = zeta.T
        self.used += 1

    def _flush(self) -> None:
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

    def all(self) -> Array:
        """X for every alpha, shape (n_alphas, d, k)."""
        x = self.x + self.x_p[:, :, None] * self.p + self.x_r @ self.r
        return np.moveaxis(x, 0, 2)

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
    follows from it, is above the tolerance or above what the precision of X allows. With alpha = 0
    the number of iterations regularises: there are ``max_iter``, or fewer to the exact solution.

    Parameters
    ----------
    systems : sequence of Equations
    alphas : ndarray of shape (n_alphas,)
    options : IterationOptions
    quiet : bool
        Whether to suppress warnings. ``History.accepted`` has the same information.
    """
    if not alphas.any():
        return _by_iterations(systems, options)
    shape = len(systems), len(alphas)
    residual, error, accepted = np.zeros(shape), np.zeros(shape), np.ones(shape, dtype=bool)
    solutions, n_iter, stopped = [], 0, False
    for j, system in enumerate(systems):
        size, advice = (len(alphas), *system.C.shape), "ask for fewer alphas at a time"
        _resources.require(
            "a grid of alphas by conjugate gradients", *size, copies=3, advice=advice
        )
        W = np.empty(size)
        for which, run, kept in _runs(system, alphas, options):
            W[which], accepted[j, which] = run.solutions[kept], run.accepted[kept]
            residual[j, which], error[j, which] = run.residual[kept], run.error[kept]
            n_iter, stopped = max(n_iter, run.n_iter), stopped or run.stopped
        solutions.append(W)
    if not accepted.all() and not stopped and not quiet:
        worst = int(np.argmax(np.where(accepted, -np.inf, error)))
        j, s = divmod(worst, len(alphas))
        warn(
            f"conjugate gradients ended after {n_iter} iterations with a relative residual of "
            f"{residual[j, s]:.2g} at alpha={alphas[s]:g}, which leaves a relative error of the "
            f"coefficients of up to {error[j, s]:.2g} > tol={options.tol:g}: raise max_iter, tol "
            f"or alpha, {_advice(systems[0])}, or use early_stopping=True",
            ConvergenceWarning,
        )
    return solutions, History(
        n_iter, residual=residual.max(axis=0), accepted=np.all(accepted, axis=0) | stopped
    )


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


def _advice(system: Equations) -> str:
    if system.dtype == np.float32:
        return "centre and scale the features, pass them as float64"
    return "centre and scale the features"


def _runs(
    system: Equations, alphas: Array, options: IterationOptions
) -> Iterator[tuple[Array, _Run, Any]]:
    """Generate (indices of alphas, a run, which of its solutions are theirs); the last counts."""
    diagonal, everything = _Diagonal(system), slice(None)
    order = np.argsort(alphas)
    uneven = np.array([diagonal.uneven(alpha) for alpha in alphas])
    hidden = np.array([diagonal.hidden(alpha) for alpha in alphas])
    # Without full rank, one shared run is cheaper than preconditioned runs for many alphas.
    together = ~hidden & (len(alphas) > 1 and not diagonal.full_rank)
    shared, alone = order[(~uneven | together)[order]], order[(uneven & ~together)[order]]
    size = max(1, COLUMNS // system.C.shape[1])  # alphas that are solved together
    if len(shared):
        run = _Run(system, diagonal, alphas[shared], options)
        yield shared, run, everything
        left = np.flatnonzero(~run.accepted & uneven[shared] & (not run.stopped))
        for part in (left[first : first + size] for first in range(0, len(left), size)):
            start = run.solutions[part]
            again = _Run(system, diagonal, alphas[shared[part]], options, scaled=True, start=start)
            yield shared[part], again, everything
    for which in (alone[first : first + size] for first in range(0, len(alone), size)):
        run = _Run(system, diagonal, alphas[which], options, scaled=True)
        yield which, run, everything
        failed = which[~run.accepted & ~hidden[which]]
        if len(failed) and not run.stopped and run.n_iter < options.max_iter:
            # Without a preconditioner, iterates have no component in the null space of G.
            run = _Run(system, diagonal, alphas[failed], options)
            yield failed[run.accepted], run, run.accepted


#: A preconditioner is used if the diagonal of G + alpha I varies by more than this factor, for G of
#: possibly full rank and otherwise.
SPREADS = 10.0, 100.0

#: If it varies by more than this factor, the largest columns mask the smallest ones in rounding
#: errors of residuals, and vice versa in norms of solutions.
MAX_SPREAD = 1e12


class _Diagonal:
    """The diagonal g of G, shape (n, 1), and the preconditioner M = scales + alpha.

    ``scales`` = max(g, floor). With full rank the floor is the smallest g > 0. Without it
    preconditioned iterates leave the range of G, and only alpha makes their parts in its null space
    decay, each scale at its own rate. Then only the largest columns are scaled, a tenth of the rank
    in number, and the floor is the next one.
    """

    def __init__(self, system: Equations) -> None:
        diagonal = system.diagonal()
        if not np.isfinite(diagonal).all():
            raise _overflow_error()
        g = np.sort(diagonal[diagonal > 0])[::-1]
        g = g if len(g) else np.ones(1)
        self.full_rank = len(g) <= system.rank
        self.top, self.bottom = g[0], g[-1]
        self.floor = g[-1] if self.full_rank else g[system.rank // 10]
        self.g = diagonal[:, None]
        self.scales = np.maximum(self.g, self.floor)

    def uneven(self, alpha: float) -> bool:
        """Whether the scales of columns vary enough for a preconditioner."""
        spread = SPREADS[0] if self.full_rank else SPREADS[1]
        return bool(self.top + alpha > spread * (self.floor + alpha))

    def hidden(self, alpha: float) -> bool:
        """Whether columns of large scale mask others."""
        return bool(self.top + alpha > MAX_SPREAD * (self.bottom + alpha))


class _Run:
    """Solve one system for increasing alphas, and assess the solutions by their true residuals.

    Parameters
    ----------
    system : Equations
    diagonal : _Diagonal
    alphas : ndarray of shape (n_alphas,)
    options : IterationOptions
    scaled : bool
        Whether to use the preconditioner M of ``diagonal``. Residuals then have the norm of M⁻¹
        and solutions that of M, in which columns of all scales count equally.
    start : ndarray of shape (n_alphas, n, k), optional
        Solutions to improve.

    Attributes
    ----------
    solutions : ndarray of shape (n_alphas, n, k)
    residual, error : ndarray of shape (n_alphas,)
        True ‖residual‖/‖c‖ and a bound or estimate of the relative error of the solution, the
        worst of the columns.
    accepted : ndarray of shape (n_alphas,), bool
        Whether they are small enough.
    n_iter : int
    stopped : bool
        Whether the callback requested a stop.
    """

    def __init__(
        self,
        system: Equations,
        diagonal: _Diagonal,
        alphas: Array,
        options: IterationOptions,
        scaled: bool = False,
        start: Array | None = None,
    ) -> None:
        self.system, self.diagonal, self.options, self.scaled = system, diagonal, options, scaled
        self.hidden = diagonal.hidden(alphas[0])
        self.eps = float(np.finfo(system.dtype).eps)
        self.n_iter, self.stopped = 0, False
        (n, k), S = system.C.shape, len(alphas)
        # One column for every (alpha, output) from here on.
        self.alphas = np.repeat(alphas, k)
        self.C = np.tile(system.C, S)
        # The smallest eigenvalue of G + alpha I found in a Krylov space.
        self.smallest = np.zeros(S * k)
        W = self._solve() if start is None else _columns(start)
        state = self._refine(W)
        self.solutions = np.moveaxis(W.reshape(n, S, k), 1, 0)
        self.residual = state.residual.reshape(S, k).max(axis=1)
        self.error = state.error.reshape(S, k).max(axis=1)
        self.accepted = np.asarray(state.accepted.reshape(S, k).all(axis=1))

    def _solve(self) -> Array:
        """Solutions of shape (n, n_alphas · k), up to the accuracy of the recurrence."""
        C, tol = self.system.C, self.options.tol
        k = C.shape[1]
        if self.scaled:
            run = self._cg(self.C, np.arange(len(self.alphas)), tol, bounded=True)
            self._iterate(run)
            return run.solutions()[0]
        run = self._cg(C, None, tol, bounded=True)
        self._iterate(run)
        ritz = np.tile([run.smallest_ritz(j) for j in range(k)], len(self.alphas) // k)
        self.smallest = ritz + self.alphas - self.alphas[0]
        return _columns(run.solutions())

    def _cg(self, C: Array, columns: Array | None, tol: Any, *, bounded: bool) -> MultiShiftCG:
        """Make a run: one alpha for each of ``columns``, or all alphas for all columns."""
        precondition, alphas = None, self.alphas[:: self.system.C.shape[1]]
        if columns is not None:
            alphas = self.alphas[columns][None]
            if self.scaled:

                def precondition(R: Array, on: Array) -> Array:
                    return R / (self.diagonal.scales + alphas[:, on])

        product, eps = self.system.G, self.eps
        return MultiShiftCG(
            product, C, alphas, tol=tol, bounded=bounded, eps=eps, precondition=precondition
        )

    def _iterate(self, run: MultiShiftCG) -> None:
        before = self.n_iter
        while self.n_iter < self.options.max_iter and not self.stopped and run.step():
            self.n_iter = before + run.n_iter
            residual = float(run.residual.max(where=~run.frozen, initial=0.0))
            self.stopped = self.options.report(self.n_iter, residual)

    def _refine(self, W: Array) -> _State:
        """Iterative refinement in place: solve for the true residual while that helps."""
        for left in reversed(range(1 + MAX_RESTARTS)):
            R = self._residual(W, slice(None))
            state = self._judge(W, R)
            bad = np.flatnonzero(~state.accepted & (state.norm > state.goal))
            over = left == 0 or self.n_iter >= self.options.max_iter
            if over or self.stopped or not len(bad):
                break
            tol = state.goal[bad] / state.norm[bad]
            run = self._cg(R[:, bad], bad, tol, bounded=False)
            self._iterate(run)
            W[:, bad] += run.solutions()[0]
            if not self.scaled:
                ritz = [run.smallest_ritz(j) for j in range(len(bad))]
                self.smallest[bad] = np.minimum(self.smallest[bad], ritz)
        if not self.stopped:
            self._compare(W, state)
        return state

    def _norm(self, R: Array, columns: Any = slice(None)) -> Array:
        """The norm of M⁻¹ for columns of residuals."""
        return _norms(R * self._root(columns) if self.scaled else R)

    def _root(self, columns: Any) -> Array:
        """The diagonal of M^−½, shape (n, k')."""
        return 1.0 / np.sqrt(self.diagonal.scales + self.alphas[columns])

    def _residual(self, W: Array, columns: Any) -> Array:
        return self.C[:, columns] - self.system.G(W) - self.alphas[columns] * W

    def _judge(self, W: Array, R: Array) -> _State:
        """Assess W by its true residuals R.

        The error is at most ‖R + δ‖/alpha, with δ the rounding errors of R. Without preconditioner
        iterates and errors stay in the range of G, as C does. Then the error is about ‖R + δ‖/θ,
        with θ the smallest Ritz value of G + alpha I, once the residual is of the size of rounding
        errors: a larger part of C that belongs to smaller eigenvalues would be left in R.
        """
        tol, eps = self.options.tol, self.eps
        residual, size = _norms(R), _norms(W)
        norm, target = self._norm(R), self._norm(self.C)
        # X w of the smallest alpha is the largest.
        k = self.system.C.shape[1]
        magnitude = eps * self.system.magnitude(W[:, :k])
        delta = rounding = np.tile(_norms(magnitude), len(size) // k)
        if self.scaled:
            rounding = self._norm(np.tile(magnitude, len(size) // k))
        limit = eps ** (2 / 3) * target
        if self.hidden:  # contributions of columns to predictions, relative to the largest column
            weight = np.sqrt(self.diagonal.g + self.alphas)
            size = _norms(weight * W) / weight.max(axis=0)
        bound = (residual + delta) / np.maximum(self.alphas * size, TINY)
        enough = tol * norm / np.maximum(bound, tol)  # of ‖R‖ for an error of tol
        if not self.scaled:
            smallest = np.where(np.isfinite(self.smallest), self.smallest, 0.0) * size
            estimate = (norm + rounding) / np.maximum(smallest, TINY)
            seen = norm <= np.minimum(ROUNDING * rounding, eps**0.5 * target)
            bound = np.where(seen, np.minimum(bound, estimate), bound)
        # Errors above eps^(2/3) are always reported.
        rounding = np.minimum(ROUNDING * rounding, limit)
        small = (norm <= tol * target) & (residual <= tol * _norms(self.C))
        limited = norm <= rounding
        return _State(
            residual=residual / np.maximum(_norms(self.C), TINY),
            error=np.where(residual > 0, bound, 0.0),
            norm=norm,
            goal=np.maximum(rounding, np.minimum(enough, tol * target)),
            small=small | limited,
            allowed=np.where(limited, max(SLACK * tol, eps**0.5), SLACK * tol),
        )

    def _compare(self, W: Array, state: _State) -> None:
        """Estimate errors by solving again from another start, if the bound is too weak.

        A component in the null space of G, which a preconditioner introduces into W and only alpha
        makes decay, depends on the start. The estimate is ten times the difference.
        """
        at = np.flatnonzero(~state.accepted & state.small)
        if not self.scaled or not len(at):
            return
        W, root = W[:, at], self._root(at)
        noise = np.random.default_rng(0).standard_normal(W.shape)
        start = root * noise * _norms(W / root) / np.maximum(_norms(noise), TINY)
        R = self._residual(start, at)
        tol = state.norm[at] / np.maximum(self._norm(R, at), TINY)
        run = self._cg(R, at, tol, bounded=False)
        while run.n_iter < self.options.max_iter and run.step():
            pass
        difference = start + run.solutions()[0] - W
        # In the norm of M, and by the contributions of columns to predictions.
        estimates = [
            _norms(weight * difference) / np.maximum(_norms(weight * W), TINY)
            for weight in (1 / root, np.sqrt(self.diagonal.g + self.alphas[at]))
        ]
        state.error[at] = np.minimum(state.error[at], 10.0 * np.maximum(*estimates))


@dataclass
class _State:
    """Residuals and errors of solutions, arrays of shape (k,) with one entry for each column.

    ``residual`` is ‖R‖/‖c‖ of the true residual R, ``error`` a bound or estimate of the relative
    error and ``allowed`` the largest accepted one; ``norm`` and ``goal`` are ‖R‖ and its target in
    the norm of M⁻¹. ``small``: whether the residual is within the tolerance or of the size of
    rounding errors.
    """

    residual: Array
    error: Array
    norm: Array
    goal: Array
    small: Array
    allowed: Array

    @property
    def accepted(self) -> Array:
        """Solutions that are good enough, shape (k,), bool."""
        return self.small & (self.error <= self.allowed)


def _columns(W: Array) -> Array:
    """Solutions of shape (n_alphas, n, k) as columns (n, n_alphas · k)."""
    return np.moveaxis(W, 0, 1).reshape(W.shape[1], -1)


def _norms(V: Array) -> Array:
    return np.linalg.norm(V, axis=0)


def _overflow_error() -> ValueError:
    return ValueError("the numbers overflow; scale the features, the scores or the weights down")


# -- early stopping -----------------------------------------------------------------------------


#: Scoring one held-out row costs about as much as this many stored entries of X in an iteration.
#: So many entries are no cost (about 10 ms).
ENTRIES_PER_ROW, NO_COST = 50, 2**20


def stop_early(
    systems: Sequence[Equations],
    alphas: Array,
    options: IterationOptions,
    held_out: LinearOperator,
    score: Callable[[Array], float],
    n_outputs: int,
) -> tuple[list[Array], History]:
    """Find the (alpha, iteration) with the best score on held-out rows, higher = better.

    An alpha is followed until it has converged, or its score has not improved for
    ``options.patience`` iterations. If scores tie, the largest alpha is chosen, then the first
    iteration.

    Parameters
    ----------
    systems : sequence of Equations, together covering all outputs
    alphas : ndarray of shape (n_alphas,), >= 0
    options : IterationOptions
    held_out : LinearOperator of shape (m', n)
        The held-out rows.
    score : function of predictions of shape (m', n_outputs)
    n_outputs : int

    Returns
    -------
    list of ndarray of shape (1, n, k)
        The best solution of every system.
    History
    """
    order = np.argsort(alphas)
    runs = [
        MultiShiftCG(s.G, s.C, alphas[order], tol=options.tol, eps=float(np.finfo(s.dtype).eps))
        for s in systems
    ]
    views = [run.observe(held_out.matmat) for run in runs]
    predictions = np.empty((held_out.shape[0], n_outputs))
    record = _ScoreTable(len(alphas))
    kept = [np.zeros((1, *system.C.shape)) for system in systems]
    n_iter, last_scored, stopped = 0, 0, False
    converged = np.zeros(len(alphas), dtype=bool)
    while n_iter < options.max_iter and record.followed.any() and not stopped:
        for run in runs:
            run.step()
        n_iter += 1
        # An alpha is finished when it has converged in every run.
        ended = np.all([run.frozen.all(axis=1) for run in runs], axis=0)
        last = n_iter == options.max_iter or not (record.followed & ~ended).any()
        # All iterations are scored unless that costs more than the products, and every fifth then.
        cost = np.count_nonzero(record.followed) * held_out.shape[0] * ENTRIES_PER_ROW
        every = min(cost / max(systems[0].n_entries, 1), 5.0) if cost > NO_COST else 1.0
        if n_iter - last_scored < int(every) and len(alphas) > 1 and not last:
            continue
        last_scored = n_iter
        record.begin(n_iter)
        for s in np.flatnonzero(record.followed):
            for system, run, view in zip(systems, runs, views, strict=True):
                predictions[:, system.outputs] = view.one(int(s)) * run.scale
            if record.add(int(s), score(predictions)):
                kept = [run.solution(int(s))[None] for run in runs]
        converged |= record.followed & ended
        record.followed &= ~ended & (n_iter - record.latest < options.patience)
        for run in runs:
            run.freeze(~record.followed)
        residual = max(float(run.residual.max()) for run in runs)
        state = Iteration(n_iter, residual, *record.summary())
        options.progress.bar(
            n_iter,
            options.max_iter,
            f"validation error {state.error:.4f}, best {state.best_error:.4f} "
            f"at {state.best_iteration}",
        )
        stopped = options.callback is not None and bool(options.callback(state))
    if record.followed.any() and not stopped:
        warn(
            f"early stopping reached max_iter={options.max_iter} before the validation error had "
            f"stopped improving for {options.patience} iterations: raise max_iter",
            ConvergenceWarning,
        )
    for system, run in zip(systems, runs, strict=True):
        _check_recurrence(system, run, alphas[order], np.flatnonzero(converged), options)
    return kept, record.history(n_iter, order)


def _check_recurrence(
    system: Equations, run: MultiShiftCG, alphas: Array, which: Array, options: IterationOptions
) -> None:
    """Warn if the true residuals of some alphas are larger than those of the recurrence."""
    if not len(which):
        return
    W = np.hstack([run.solution(int(s)) for s in which])
    C = np.tile(system.C, len(which))
    R = C - system.G(W) - np.repeat(alphas[which], system.C.shape[1]) * W
    eps = float(np.finfo(system.dtype).eps)
    size = np.maximum(_norms(C), TINY)
    rounding = np.minimum(ROUNDING * eps * _norms(system.magnitude(W)) / size, eps ** (2 / 3))
    excess = _norms(R) / size - np.maximum(options.tol, rounding)
    at = int(np.argmax(excess))
    if excess[at] > 0:
        warn(
            f"early stopping followed alpha={np.repeat(alphas[which], system.C.shape[1])[at]:g} "
            f"until rounding errors left a relative residual of {_norms(R)[at] / size[at]:.2g} > "
            f"tol={options.tol:g}: {_advice(system)}, or raise tol",
            ConvergenceWarning,
        )


class _ScoreTable:
    """Scores of each (alpha, iteration), and the best of them."""

    def __init__(self, n_alphas: int) -> None:
        self.followed = np.ones(n_alphas, dtype=bool)
        self.scores = np.full(n_alphas, -np.inf)
        self.latest = np.zeros(n_alphas, dtype=np.int64)  # the iteration of each alpha's best
        self.best, self.best_score, self.best_iteration = -1, -np.inf, 0
        self.checks: list[int] = []
        self.rows: list[Array] = []

    def begin(self, n_iter: int) -> None:
        self.checks.append(n_iter)
        self.rows.append(np.full(len(self.scores), np.nan))

    def add(self, s: int, score: float) -> bool:
        """Record the score of alpha ``s``; return whether it is the best so far."""
        if not np.isfinite(score):
            raise ValueError(f"scoring returned {score}; it must return a finite number")
        n_iter = self.checks[-1]
        self.rows[-1][s] = score
        if score > self.scores[s]:
            self.scores[s], self.latest[s] = score, n_iter
        if score > self.best_score or (score == self.best_score and s > self.best):
            self.best, self.best_score, self.best_iteration = s, score, n_iter
            return True
        return False

    def summary(self) -> tuple[float, float, int]:
        """The error of this check, the best error, and its iteration."""
        return float(1 - np.nanmax(self.rows[-1])), 1 - self.best_score, self.best_iteration

    def history(self, n_iter: int, order: Array) -> History:
        errors = np.empty((len(self.checks), len(order)))
        errors[:, order] = 1 - np.array(self.rows)
        return History(
            n_iter,
            iterations=np.array(self.checks),
            errors=errors,
            best_iteration=self.best_iteration,
            best=int(order[self.best]),
        )
