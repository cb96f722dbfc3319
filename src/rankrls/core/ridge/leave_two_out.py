"""Held-out predictions with two groups left out together.

With e the residuals of two judgements u and g that are held out one by one, J as in
`leave_judgements_out` and H_ug = Ψ_u diag(σ/(σ + alpha)) Ψ_gᵀ, the residual of u without both is

    (e_u + H_ug e_g/J_uu)/(1 − H_ug²/(J_uu J_gg)).

For all pairs of judgements this is a matrix product. Larger groups are left out as unions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls import _resources
from rankrls.core.ridge.leave_judgements_out import EdgeTerms, JudgementFolds
from rankrls.core.ridge.leave_out import HeldOut
from rankrls.core.ridge.problem import RidgeProblem

__all__ = ["residuals_without_two", "without_two_folds", "without_two_groups"]

Array = NDArray[Any]

#: Maximum size of a work array.
WORK = 2**21

#: Below this, rounding errors in J_UU are not small compared with its smaller eigenvalue.
SINGULAR = 1e-6


def without_two_folds(
    problem: RidgeProblem, folds: Sequence[Array], alpha: float
) -> Iterator[tuple[Array, HeldOut]]:
    """Predict the rows of each pair of folds by the model without both.

    Yields
    ------
    two : ndarray of shape (n, 2), int
        Indices of folds, each pair once.
    held : HeldOut
        Predictions of n unions, for one alpha.
    """
    grid, sizes = np.array([alpha]), np.array([len(rows) for rows in folds])
    for two in _blocks(sizes, np.column_stack(np.triu_indices(len(folds), 1))):
        unions = [np.concatenate([folds[first], folds[second]]) for first, second in two]
        yield two, problem.leave_out(unions, grid)


def without_two_groups(
    problem: RidgeProblem, folds: JudgementFolds, alpha: float, two: Array | None = None
) -> Iterator[tuple[Array, HeldOut]]:
    """Differences of given pairs without two groups: all pairs of groups, or those in ``two``."""
    if two is None:
        two = np.column_stack(np.triu_indices(len(folds), 1))
    for some in _blocks(folds.sizes, two):
        unions = JudgementFolds(folds.take(some.ravel()).members, folds.sizes[some].sum(axis=1))
        yield some, problem.leave_judgements_out(unions, np.array([alpha]))


def residuals_without_two(terms: EdgeTerms, e: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Residuals of each judgement by the model without it and without another one.

    Parameters
    ----------
    terms : EdgeTerms, for a single alpha
    e : ndarray of shape (l,)
        w times the residual of each judgement by the model without it.

    Yields
    ------
    others : ndarray of shape (n,), int
        The other left-out judgements.
    residuals : ndarray of shape (l, n)
        w times the residual of each judgement; meaningless for a judgement paired with itself.
    unsafe : ndarray of shape (l, n), bool
        Whether a residual is unreliable.
    """
    every = np.arange(len(e))
    advice = "audit by groups, or with new data as eval_set"
    q = len(terms.share)
    _resources.require("leaving out two judgements", len(e), q, copies=4, advice=advice)
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
    """Split ``two`` into parts whose unions have a limited number of members."""
    block = np.cumsum(sizes[two].sum(axis=1)) // WORK
    yield from np.split(two, np.flatnonzero(np.diff(block)) + 1) if len(two) else ()
