"""Two groups left out together: held-out predictions of one after the other was deleted.

With e the residuals of two judgements u and g that are held out one by one, J as in
`leave_judgements_out` and H_ug = Ψ_u diag(σ/(σ + alpha)) Ψ_gᵀ, the residual of u without both is

    (e_u + H_ug e_g/J_uu)/(1 − H_ug²/(J_uu J_gg)):

for all pairs of judgements a product of matrices. Groups of more are left out as unions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls import _memory
from rankrls.core.ridge.leave_judgements_out import EdgeTerms, JudgementFolds
from rankrls.core.ridge.leave_out import HeldOut
from rankrls.core.ridge.problem import RidgeProblem

__all__ = ["residuals_without_two", "without_two_folds", "without_two_groups"]

Array = NDArray[Any]

#: Numbers in a work space.
WORK = 2**21

#: Below this, rounding in J_UU of two judgements is not small beside its smaller eigenvalue.
SINGULAR = 1e-6


def without_two_folds(
    problem: RidgeProblem, folds: Sequence[Array], alpha: float
) -> Iterator[tuple[Array, HeldOut]]:
    """Predictions of the rows of every two folds without both.

    Yields
    ------
    two : ndarray of shape (n, 2), int
        Numbers of folds, each two of them once.
    held : HeldOut
        Of n unions, for one alpha.
    """
    grid, sizes = np.array([alpha]), np.array([len(rows) for rows in folds])
    for two in _blocks(sizes, np.column_stack(np.triu_indices(len(folds), 1))):
        unions = [np.concatenate([folds[first], folds[second]]) for first, second in two]
        yield two, problem.leave_out(unions, grid)


def without_two_groups(
    problem: RidgeProblem, folds: JudgementFolds, alpha: float, two: Array | None = None
) -> Iterator[tuple[Array, HeldOut]]:
    """Differences of the given pairs of every two groups, or of those in ``two``, without both."""
    if two is None:
        two = np.column_stack(np.triu_indices(len(folds), 1))
    for some in _blocks(folds.sizes, two):
        unions = JudgementFolds(folds.take(some.ravel()).members, folds.sizes[some].sum(axis=1))
        yield some, problem.leave_judgements_out(unions, np.array([alpha]))


def residuals_without_two(terms: EdgeTerms, e: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Residuals of every judgement without it and without another one.

    Parameters
    ----------
    terms : EdgeTerms, for a single alpha
    e : ndarray of shape (l,)
        w times the residual of every judgement without it.

    Yields
    ------
    others : ndarray of shape (n,), int
        Judgements that are left out, too.
    residuals : ndarray of shape (l, n)
        w times the residual of every judgement; meaningless for a judgement and itself.
    unsafe : ndarray of shape (l, n), bool
        Which of them are not to be relied on.
    """
    every = np.arange(len(e))
    advice = "audit by groups, or with new data as eval_set"
    q = len(terms.share)
    _memory.require("leaving out two judgements", len(e), q, copies=4, advice=advice)
    Psi = terms.vectors(every)
    (total, shrunken, _), _ = terms.of_singles(every)
    J = np.maximum(shrunken + terms.cut_to_zero(1.0 - total), np.finfo(float).tiny)[:, 0, 0]
    shared = Psi * terms.share[:, 0]
    for others in np.array_split(every, max(1, len(e) ** 2 // WORK)):
        H = Psi @ shared[others].T
        left = 1.0 - np.square(H) / (J[:, None] * J[others])
        unsafe = np.sqrt(J[:, None] * J[others]) * left < SINGULAR
        residuals = (e[:, None] + H * (e[others] / J[:, None])) / np.where(unsafe, 1.0, left)
        mine = others, np.arange(len(others))
        unsafe[mine] = False
        yield others, residuals, unsafe


def _blocks(sizes: Array, two: Array) -> Iterator[Array]:
    """Parts of ``two`` whose unions have a limited number of members."""
    block = np.cumsum(sizes[two].sum(axis=1)) // WORK
    yield from np.split(two, np.flatnonzero(np.diff(block)) + 1) if len(two) else ()
