"""Conjugate gradients on (G + alpha I) W = C, up to a tolerance or the best held-out score.

`converge` iterates to a tolerance for one alpha or a whole grid, `stop_early` to the best of all
(alpha, iteration) on held-out rows. Both access the equations only through the products of
`Equations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from rankrls import _resources
from rankrls._calls import Progress, warn
from rankrls.core.linalg.krylov import (
    DirectionSum,
    MultiShiftCG,
    ShiftedSum,
    overflow_error,
)

__all__ = [
    "COLUMNS",
    "DEFAULT_MAX_ITER",
    "Equations",
    "HeldOutImage",
    "History",
    "Iteration",
    "IterationOptions",
    "converge",
    "stop_early",
]

Array = NDArray[Any]

DEFAULT_MAX_ITER = 1000

#: Maximum number of columns multiplied at once, which bounds the work space of products.
COLUMNS = 8


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


@dataclass(frozen=True)
class History:
    """Summary of a run of conjugate gradients.

    Attributes
    ----------
    n_iter : int
        Number of iterations.
    residual : ndarray of shape (n_alphas,) or None
        True ‖residual‖/‖right-hand side‖, the worst of the outputs; None if stopped early.
    iterations : ndarray of shape (n_checks,), int
        Iterations at which the validation error was computed.
    errors : ndarray of shape (n_checks, n_alphas)
        Validation errors; NaN for an alpha that was no longer followed.
    best_iteration : int or None
        Iteration of the selected model.
    best : int or None
        Index of the alpha of the selected model.
    accepted : ndarray of shape (n_alphas,), bool, or None
        Whether solutions reach the required accuracy; None if stopped early.
    """

    n_iter: int
    residual: Array | None = None
    accepted: Array | None = None
    iterations: Array = field(default_factory=partial(np.empty, 0, dtype=np.int64))
    errors: Array = field(default_factory=partial(np.empty, (0, 0)))
    best_iteration: int | None = None
    best: int | None = None


class Equations(Protocol):
    """The equations (G + alpha I) W = C, as needed by an iterative solver.

    Attributes
    ----------
    C : ndarray of shape (n, k)
        Right-hand sides, in the range of G.
    outputs : ndarray of shape (k,), int
        The outputs of the columns.
    dtype : of the products
    n_entries : int
        Approximate number of values read by a product with G.
    rank : int
        Upper bound of the number of positive eigenvalues of G.

    Notes
    -----
    Equations may have a method ``rough``, which computes G V in single precision if that is much
    faster. Solutions are then refined by true residuals from products G V until these are small
    enough.
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
        """Upper bound of the rank of G."""

    def G(self, V: Array) -> Array:
        """Compute G V for V of shape (n, k')."""

    def diagonal(self) -> Array:
        """Approximate diagonal of G, shape (n,)."""

    def magnitude(self, W: Array) -> Array:
        """Approximate scale of the rounding errors of each entry of G W, shape (n, k')."""


def converge(
    systems: Sequence[Equations],
    alphas: Array,
    options: IterationOptions,
    *,
    shifts: Array | None = None,
    quiet: bool = False,
) -> tuple[list[Array], History]:
    """Solve each system, shape (n_alphas, n, k), with relative errors of about tol.

    All alphas share one Krylov sequence, unless the columns are scaled so differently that they
    need a preconditioner. A `ConvergenceWarning` is issued if the true residual, or the error that
    follows from it, is above the tolerance or above what the precision of X allows.

    Parameters
    ----------
    systems : sequence of Equations
    alphas : ndarray of shape (n_alphas,)
    options : IterationOptions
    shifts : ndarray of shape (n_alphas,), optional
        Values added to the diagonal of G; alphas by default. Equations that are scaled for one
        alpha include a part of it in G.
    quiet : bool
        Whether to suppress warnings. ``History.accepted`` has the same information.
    """
    shape = len(systems), len(alphas)
    residual, error, accepted = np.zeros(shape), np.zeros(shape), np.ones(shape, dtype=bool)
    solutions, n_iter, stopped = [], 0, False
    for j, system in enumerate(systems):
        size, advice = (len(alphas), *system.C.shape), "ask for fewer alphas at a time"
        _resources.require(
            "a grid of alphas by conjugate gradients", *size, copies=3, advice=advice
        )
        W = np.empty(size)
        for which, run in _runs(system, alphas if shifts is None else shifts, options):
            W[which] = run.solutions
            residual[j, which], error[j, which] = run.residual, run.error
            accepted[j, which] = run.accepted
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


def _advice(system: Equations) -> str:
    if system.dtype == np.float32:
        return "centre and scale the features, pass them as float64"
    return "centre and scale the features"


def _runs(
    system: Equations, alphas: Array, options: IterationOptions
) -> Iterator[tuple[Array, _Run]]:
    """Generate (indices of alphas, run that solved for them); the last run of an alpha counts."""
    diagonal = _Diagonal(system)
    order = np.argsort(alphas)
    uneven = np.array([diagonal.uneven(alpha) for alpha in alphas])
    hidden = np.array([diagonal.hidden(alpha) for alpha in alphas])
    # Without full rank, one shared run is cheaper than preconditioned runs for many alphas.
    together = ~hidden & (len(alphas) > 1 and not diagonal.full_rank)
    shared, alone = order[(~uneven | together)[order]], order[(uneven & ~together)[order]]
    if len(shared):
        run = _Run(system, diagonal, alphas[shared], options)
        yield shared, run
        left = np.flatnonzero(~run.accepted & uneven[shared] & (not run.stopped))
        for part in _parts(left, system):
            again = alphas[shared[part]]
            yield (
                shared[part],
                _Run(system, diagonal, again, options, scaled=True, start=run.solutions[part]),
            )
    for which in _parts(alone, system):
        run = _Run(system, diagonal, alphas[which], options, scaled=True)
        yield which, run
        failed = which[~run.accepted & ~hidden[which]]
        if len(failed) and not run.stopped and run.n_iter < options.max_iter:
            # Without a preconditioner, iterates have no component in the null space of G.
            run = _Run(system, diagonal, alphas[failed], options)
            yield failed[run.accepted], run.of(run.accepted)


def _parts(numbers: Array, system: Equations) -> Iterator[Array]:
    """Indices of alphas that are solved together, with one product for each of their columns."""
    size = max(1, COLUMNS // system.C.shape[1])
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


#: A preconditioner is used if the diagonal of G + alpha I varies by more than this factor, for G of
#: possibly full rank and otherwise.
SPREADS = 10.0, 100.0

#: If it varies by more than this factor, the largest columns mask the smallest ones in rounding
#: errors of residuals, and vice versa in norms of solutions.
MAX_SPREAD = 1e12


class _Diagonal:
    """The diagonal g of G, and the preconditioner M = max(g, floor) + alpha made from it.

    Attributes
    ----------
    g : ndarray of shape (n, 1)
    full_rank : bool
        Whether the number of columns of G is at most the bound of its rank.
    scales : ndarray of shape (n, 1)
        max(g, floor). With full rank the floor is the smallest g > 0. Without it preconditioned
        iterates leave the range of G, and only alpha makes their parts in its null space decay,
        each scale at its own rate. Then only the largest columns are scaled, a tenth of the rank
        in number, and the floor is the next one.
    """

    def __init__(self, system: Equations) -> None:
        diagonal = system.diagonal()
        if not np.isfinite(diagonal).all():
            raise overflow_error()
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


#: Maximum number of refinement steps for a solution whose true residual is too large.
MAX_REFINEMENTS = 3

#: The same with products in single precision, and the factor by which these can reduce a residual.
MAX_ROUGH_REFINEMENTS = 8
ROUGH_TOL = 1e-5

#: Acceptable residual, in multiples of the estimated rounding errors.
ROUNDING = 10.0

#: Acceptable error, in multiples of the tolerance.
SLACK = 2.0

#: The error is estimated as this many times the difference of two solutions.
SAFETY = 10.0


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
        self.rough: Callable[[Array], Array] | None = getattr(system, "rough", None)
        n, k = system.C.shape
        S = len(alphas)
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

    def of(self, which: Array) -> _Run:
        """Return the run for some alphas, given by a mask of shape (n_alphas,)."""
        part = copy(self)
        part.solutions, part.residual = self.solutions[which], self.residual[which]
        part.error, part.accepted = self.error[which], self.accepted[which]
        return part

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

        rough = self.rough is not None
        return MultiShiftCG(
            self.system.G if self.rough is None else self.rough,
            C,
            alphas,
            tol=np.maximum(tol, ROUGH_TOL) if rough else tol,
            bounded=bounded and not rough,
            eps=float(np.finfo(np.float32).eps) if rough else self.eps,
            precondition=precondition,
        )

    def _iterate(self, run: MultiShiftCG) -> None:
        options, before = self.options, self.n_iter
        while self.n_iter < options.max_iter and not self.stopped and run.step():
            self.n_iter = before + run.n_iter
            residual = float(run.residual.max(where=~run.frozen, initial=0.0))
            options.progress.bar(self.n_iter, options.max_iter, f"residual {residual:.2g}")
            if options.callback is not None:
                self.stopped = bool(options.callback(Iteration(self.n_iter, residual)))

    def _refine(self, W: Array) -> _State:
        """Iterative refinement in place: solve for the true residual while that helps."""
        before = np.full(len(self.alphas), np.inf)
        left = MAX_REFINEMENTS if self.rough is None else MAX_ROUGH_REFINEMENTS
        while True:
            R = self._residual(W, slice(None))
            state = self._judge(W, R)
            bad = np.flatnonzero(~state.accepted & (state.norm > state.goal))
            if self.rough is not None and (state.norm[bad] > 0.1 * before[bad]).any():
                self.rough, left = None, MAX_REFINEMENTS  # single precision no longer helps
            over = left == 0 or self.n_iter >= self.options.max_iter
            if over or self.stopped or not len(bad):
                break
            before, left = state.norm, left - 1
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
        tol, eps, tiny = self.options.tol, self.eps, np.finfo(float).tiny
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
        bound = (residual + delta) / np.maximum(self.alphas * size, tiny)
        enough = tol * norm / np.maximum(bound, tol)  # of ‖R‖ for an error of tol
        if not self.scaled:
            smallest = np.where(np.isfinite(self.smallest), self.smallest, 0.0) * size
            estimate = (norm + rounding) / np.maximum(smallest, tiny)
            seen = norm <= np.minimum(ROUNDING * rounding, eps**0.5 * target)
            bound = np.where(seen, np.minimum(bound, estimate), bound)
        # Errors above eps^(2/3) are always reported.
        rounding = np.minimum(ROUNDING * rounding, limit)
        return _State(
            residual=residual / np.maximum(_norms(self.C), tiny),
            error=np.where(residual > 0, bound, 0.0),
            norm=norm,
            goal=np.maximum(rounding, np.minimum(enough, tol * target)),
            small=(norm <= tol * target) & (residual <= tol * _norms(self.C)),
            limited=norm <= rounding,
            allowed=(SLACK * tol, max(SLACK * tol, eps**0.5)),
        )

    def _compare(self, W: Array, state: _State) -> None:
        """Estimate errors by solving again from another start, if the bound is too weak.

        A component in the null space of G, which a preconditioner introduces into W and only alpha
        makes decay, depends on the start.
        """
        at = np.flatnonzero(~state.accepted & (state.small | state.limited))
        if not self.scaled or not len(at):
            return
        tiny = np.finfo(float).tiny
        W, root = W[:, at], self._root(at)
        noise = np.random.default_rng(0).standard_normal(W.shape)
        start = root * noise * _norms(W / root) / np.maximum(_norms(noise), tiny)
        R = self._residual(start, at)
        tol = state.norm[at] / np.maximum(self._norm(R, at), tiny)
        run = self._cg(R, at, tol, bounded=False)
        while run.n_iter < self.options.max_iter and run.step():
            pass
        difference = start + run.solutions()[0] - W
        # In the norm of M, and by the contributions of columns to predictions.
        estimates = [
            _norms(weight * difference) / np.maximum(_norms(weight * W), tiny)
            for weight in (1 / root, np.sqrt(self.diagonal.g + self.alphas[at]))
        ]
        state.error[at] = np.minimum(state.error[at], SAFETY * np.maximum(*estimates))


@dataclass
class _State:
    """Residuals and errors of solutions, one entry for each column.

    Attributes
    ----------
    residual : ndarray of shape (k,)
        ‖R‖/‖c‖ of the true residual R.
    error : ndarray of shape (k,)
        Bound or estimate of the relative error.
    norm, goal : ndarray of shape (k,)
        ‖R‖ and its target, in the norm of M⁻¹.
    small : ndarray of shape (k,), bool
        Whether the residual is within the tolerance.
    limited : ndarray of shape (k,), bool
        Whether the residual is of the size of rounding errors; then half the precision suffices.
    allowed : pair of float
        The largest accepted error, in general and if the residual is ``limited``.
    """

    residual: Array
    error: Array
    norm: Array
    goal: Array
    small: Array
    limited: Array
    allowed: tuple[float, float]

    @property
    def accepted(self) -> Array:
        """Solutions that are good enough, shape (k,), bool."""
        allowed = np.where(self.limited, self.allowed[1], self.allowed[0])
        return (self.small | self.limited) & (self.error <= allowed)


def _columns(W: Array) -> Array:
    """Solutions of shape (n_alphas, n, k) as columns (n, n_alphas · k)."""
    return np.moveaxis(W, 0, 1).reshape(W.shape[1], -1)


def _norms(V: Array) -> Array:
    return np.linalg.norm(V, axis=0)


#: Scoring one held-out row costs about as much as this many stored entries of X in an iteration.
ENTRIES_PER_ROW = 50


class HeldOutImage(Protocol):
    """Predictions of held-out rows, updated along with the iterates of a run.

    Attributes
    ----------
    shape : tuple of int
        Number of held-out rows, and other dimensions.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of held-out rows, and other dimensions."""

    def follow(self, run: MultiShiftCG) -> ShiftedSum | DirectionSum:
        """Track predictions for the iterates of a run that has not started."""


def stop_early(
    systems: Sequence[Equations],
    alphas: Array,
    options: IterationOptions,
    held_out: HeldOutImage,
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
    held_out : HeldOutImage
        Predictions of the held-out rows as a linear function of the iterates.
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
    views = [held_out.follow(run) for run in runs]
    predictions = np.empty((held_out.shape[0], n_outputs))
    record = _ScoreTable(len(alphas))
    kept = [np.zeros((1, *system.C.shape)) for system in systems]
    every = _interval(systems[0].n_entries, held_out.shape[0], len(alphas))
    n_iter, stopped = 0, False
    converged = np.zeros(len(alphas), dtype=bool)
    while n_iter < options.max_iter and record.followed.any() and not stopped:
        for run in runs:
            run.step()
        n_iter += 1
        # An alpha is finished when it has converged in every run.
        ended = np.all([run.frozen.all(axis=1) for run in runs], axis=0)
        last = n_iter == options.max_iter or not (record.followed & ~ended).any()
        if n_iter % every and not last:
            continue
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
    size = np.maximum(_norms(C), np.finfo(float).tiny)
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


def _interval(n_entries: int, n_held_out: int, n_alphas: int) -> int:
    """Interval between evaluations of held-out rows, so that these cost less than products."""
    if n_alphas == 1:
        return 1
    return int(np.clip(n_alphas * n_held_out * ENTRIES_PER_ROW / max(n_entries, 1), 1, 5))
