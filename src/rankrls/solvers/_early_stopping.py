"""Regularisation by iteration: the best of all (alpha, iteration) on held-out rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from rankrls.feature_maps import Products
from rankrls.solvers._iterations import Equations, History, Iteration, IterationOptions
from rankrls.solvers._krylov import MultiShiftCG

__all__ = ["stop_early"]

Array = NDArray[Any]

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
