"""Conjugate gradients on (G + alpha I) W = C: to a tolerance, or to the best held-out score.

`converge` iterates to a tolerance for one alpha or a whole grid, `stop_early` to the best of all
(alpha, iteration) on held-out rows. Both know the equations only by the products of `Equations`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from rankrls._progress import Progress
from rankrls.core.linalg.krylov import MultiShiftCG, overflow_error
from rankrls.core.spaces.products import Products

__all__ = [
    "DEFAULT_MAX_ITER",
    "Equations",
    "History",
    "Iteration",
    "IterationOptions",
    "converge",
    "stop_early",
]

Array = NDArray[Any]

DEFAULT_MAX_ITER = 1000


class Iteration(NamedTuple):
    """What a callback gets after every iteration.

    Attributes
    ----------
    n_iter : int
    residual : float
        The largest ‖residual‖/‖right side‖ of what is still being solved.
    error : float or None
        Validation error of the best alpha at this iteration (early stopping).
    best_error : float or None
        The best so far.
    best_iteration : int or None
        Where it was.
    """

    n_iter: int
    residual: float
    error: float | None = None
    best_error: float | None = None
    best_iteration: int | None = None


@dataclass(frozen=True)
class IterationOptions:
    """How to iterate: parameters of the estimators, checked."""

    tol: float = 1e-6
    max_iter: int = DEFAULT_MAX_ITER
    patience: int = 10
    callback: Callable[[Iteration], Any] | None = None
    progress: Progress = field(default_factory=lambda: Progress("", 0))


@dataclass(frozen=True)
class History:
    """How a run of conjugate gradients went.

    Attributes
    ----------
    n_iter : int
        Iterations that were made.
    residual : ndarray of shape (n_alphas,) or None
        True ‖residual‖/‖right side‖, the worst of the outputs; None if stopped early.
    iterations : ndarray of shape (n_checks,), int
        Iterations at which the validation error was computed.
    errors : ndarray of shape (n_checks, n_alphas)
        Validation errors; NaN for an alpha that was no longer followed.
    best_iteration : int or None
        The iteration of the model that was kept.
    best : int or None
        The number of its alpha.
    """

    n_iter: int
    residual: Array | None = None
    iterations: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    errors: Array = field(default_factory=lambda: np.empty((0, 0)))
    best_iteration: int | None = None
    best: int | None = None


class Equations(Protocol):
    """(G + alpha I) W = C, as far as an iterative solver must know them.

    Attributes
    ----------
    C : ndarray of shape (n, k)
    outputs : ndarray of shape (k,), int
        The outputs that the columns are about.
    dtype : of the products
    n_entries : int
        Numbers that a product with G reads, about.
    """

    C: Array
    outputs: Array

    @property
    def dtype(self) -> Any:
        """Of the products."""

    @property
    def n_entries(self) -> int:
        """Numbers that a product with G reads, about."""

    def G(self, V: Array) -> Array:
        """G V for V of shape (n, k')."""

    def diagonal(self) -> Array:
        """About the diagonal of G, shape (n,)."""

    def magnitude(self, W: Array) -> Array:
        """What rounding of G W is relative to, for every column, shape (k',)."""


#: How often a solution whose true residual is above tol is improved by solving for the rest.
MAX_REFINEMENTS = 3


def converge(
    systems: Sequence[Equations], alphas: Array, options: IterationOptions
) -> tuple[list[Array], History]:
    """Solutions of shape (n_alphas, n, k) for every system, all alphas from one Krylov run.

    A single alpha is preconditioned by the diagonal of G + alpha I. True residuals are computed
    at the end; a `ConvergenceWarning` tells of one above the tolerance, or above what the
    precision of X allows.
    """
    order = np.argsort(alphas)
    solutions, residual, excess, n_iter = [], np.zeros(len(alphas)), np.zeros(len(alphas)), 0
    stopped = False
    for system in systems:
        run = _Run(system, alphas[order], options)
        W = np.empty_like(run.solutions)
        W[order] = run.solutions
        solutions.append(W)
        residual[order] = np.maximum(residual[order], run.residual)
        excess[order] = np.maximum(excess[order], run.residual / run.allowed)
        n_iter, stopped = max(n_iter, run.n_iter), stopped or run.stopped
    if (excess > 1).any() and not stopped:
        at = int(np.argmax(excess))
        warnings.warn(
            f"conjugate gradients ended after {n_iter} iterations with a relative residual of "
            f"{residual[at]:.2g} > tol={options.tol:g} at alpha={alphas[at]:g}: raise max_iter, "
            f"tol or alpha, {_advice(systems[0])}, or use early_stopping=True",
            ConvergenceWarning,
            stacklevel=2,
        )
    return solutions, History(n_iter, residual=residual)


def _advice(system: Equations) -> str:
    if system.dtype == np.float32:
        return "centre and scale the features, pass them as float64"
    return "centre and scale the features"


class _Run:
    """Solve one system for increasing alphas.

    Attributes
    ----------
    solutions : ndarray of shape (n_alphas, n, k)
    residual, allowed : ndarray of shape (n_alphas,)
        True ‖residual‖/‖c‖, the worst of the columns, and what it may be.
    n_iter : int
    stopped : bool
        Whether the callback asked for it.
    """

    def __init__(self, system: Equations, alphas: Array, options: IterationOptions) -> None:
        self.system, self.options = system, options
        self.n_iter, self.stopped = 0, False
        n, k = system.C.shape
        S = len(alphas)
        # One column for every (alpha, output) from here on.
        self.alphas = np.repeat(alphas, k)
        self.C = np.tile(system.C, S)
        norms = np.linalg.norm(self.C, axis=0)
        self.size = np.where(norms > 0, norms, 1.0)
        self.d: Array | None = None
        if S == 1:
            diagonal = system.diagonal() + alphas[0]
            if not np.isfinite(diagonal).all():
                raise overflow_error()
            self.d = 1.0 / np.sqrt(diagonal)[:, None]
            W = np.zeros((n, k))
            W += self._correction(self.C, np.full(k, options.tol))
        else:
            run = MultiShiftCG(system.G, system.C, alphas, tol=options.tol)
            self._iterate(run)
            W = np.moveaxis(run.solutions(), 0, 1).reshape(n, -1)
        residual, allowed = self._refine(W)
        self.solutions = np.moveaxis(W.reshape(n, S, k), 1, 0)
        self.residual = residual.reshape(S, k).max(axis=1)
        self.allowed = allowed.reshape(S, k).max(axis=1)

    def _refine(self, W: Array) -> tuple[Array, Array]:
        """Solve for what is left of the right side, in place: it mends the shared run's rounding.

        Returns the true residuals and what they may be, one for each column.
        """
        tol = self.options.tol
        for attempt in range(MAX_REFINEMENTS + 1):
            R = self.C - self.system.G(W) - self.alphas * W
            residual = np.linalg.norm(R, axis=0) / self.size
            allowed = np.full(len(residual), tol)
            bad = np.flatnonzero(residual > tol)
            if not len(bad):
                break
            allowed = np.maximum(tol, self._rounding(W))
            bad = np.flatnonzero(residual > allowed)
            over = attempt == MAX_REFINEMENTS or self.n_iter >= self.options.max_iter
            if not len(bad) or over or self.stopped:
                break
            W[:, bad] += self._correction(R[:, bad], tol / residual[bad], bad)
        return residual, allowed

    def _correction(self, R: Array, tol: Array, columns: Any = slice(None)) -> Array:
        """(G + alpha I)⁻¹R, every column to its own alpha."""
        G, d, alphas = self.system.G, self.d, self.alphas[columns]
        if d is None:
            run = MultiShiftCG(G, R, alphas[None], tol=float(tol.min()))
            self._iterate(run)
            return run.solutions()[0]
        run = MultiShiftCG(
            lambda V: d * (G(d * V) + alphas[0] * (d * V)),
            d * R,
            np.zeros(1),
            tol=float(tol.min()),
            metric=1.0 / d,
        )
        self._iterate(run)
        return d * run.solutions()[0]

    def _rounding(self, W: Array) -> Array:
        """What rounding of Xᵀ(L(Xw)) leaves of a residual, about: 10 eps ‖X‖ ‖L‖ ‖Xw‖/‖c‖.

        At most eps^(2/3): more than that is not passed over in silence.
        """
        eps = float(np.finfo(self.system.dtype).eps)
        size = self.system.magnitude(W) / self.size
        return np.minimum(10 * eps * size, eps ** (2 / 3))

    def _iterate(self, run: MultiShiftCG) -> None:
        options, before = self.options, self.n_iter
        while self.n_iter < options.max_iter and not self.stopped and run.step():
            self.n_iter = before + run.n_iter
            residual = float(run.residual.max(where=~run.frozen, initial=0.0))
            options.progress.bar(self.n_iter, options.max_iter, f"residual {residual:.2g}")
            if options.callback is not None:
                self.stopped = bool(options.callback(Iteration(self.n_iter, residual)))


#: A rank error of one row costs about as much as this many stored entries of X in an iteration.
ENTRIES_PER_ROW = 50


def stop_early(
    systems: Sequence[Equations],
    alphas: Array,
    options: IterationOptions,
    held_out: Products,
    score: Callable[[Array], float],
    n_outputs: int,
) -> tuple[list[Array], History]:
    """The best of all (alpha, iteration) by a score of held-out rows, higher is better.

    An alpha is followed until it has converged, or its score has not improved for
    ``options.patience`` iterations. Of equal scores the largest alpha wins, then the first
    iteration.

    Parameters
    ----------
    systems : sequence of Equations, together covering all outputs
    alphas : ndarray of shape (n_alphas,), >= 0
    options : IterationOptions
    held_out : Products
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
    runs = [MultiShiftCG(s.G, s.C, alphas[order], tol=options.tol) for s in systems]
    views = [run.observe(held_out.matmat) for run in runs]
    predictions = np.empty((held_out.shape[0], n_outputs))
    record = _Record(len(alphas))
    kept = [np.zeros((1, *system.C.shape)) for system in systems]
    every = _interval(systems[0].n_entries, held_out.shape[0], len(alphas))
    n_iter, stopped = 0, False
    while n_iter < options.max_iter and record.followed.any() and not stopped:
        for run in runs:
            run.step()
        n_iter += 1
        # An alpha has ended when it has converged in every run.
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
        warnings.warn(
            f"early stopping reached max_iter={options.max_iter} before the validation error had "
            f"stopped improving for {options.patience} iterations: raise max_iter",
            ConvergenceWarning,
            stacklevel=2,
        )
    return kept, record.history(n_iter, order)


class _Record:
    """Scores of every (alpha, iteration), and the best of them."""

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
        """Note the score of alpha ``s``; whether it is the best of all so far."""
        if not np.isfinite(score):
            raise ValueError(f"scoring gave {score}: it must give a finite number")
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
    """Iterations between two looks at the held-out rows, so that they cost less than products."""
    if n_alphas == 1:
        return 1
    return int(np.clip(n_alphas * n_held_out * ENTRIES_PER_ROW / max(n_entries, 1), 1, 5))
