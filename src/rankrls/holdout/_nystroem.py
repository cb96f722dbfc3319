"""Nyström models: rows that are left out also leave the basis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve

from rankrls.holdout._components import SINGULAR, make_folds
from rankrls.holdout._rows import penalty
from rankrls.preferences import Factor

__all__ = ["nystroem_holdout", "nystroem_rows_holdout"]

Array = NDArray[Any]


def nystroem_holdout(
    Phi: Array,
    back: Array,
    basis: Array,
    factor: Factor,
    folds: Sequence[Array],
    alphas: Array,
) -> tuple[list[Array], Array]:
    """Held-out predictions of a model on Nyström features, basis vectors held out with their fold.

    Parameters
    ----------
    Phi : ndarray of shape (m, q)
        Features Φ = K_MR Z⁻ᵀ.
    back : ndarray of shape (q, q)
        Z⁻ᵀ: kernel coefficients are a = Z⁻ᵀ w.
    basis : ndarray of shape (q,), int
        The row of each basis vector; -1 keeps it in the basis whatever is left out.
    factor : Factor
    folds : sequence of int arrays
        Unions of components.
    alphas : ndarray of shape (n_alphas,)

    Returns
    -------
    predictions : list of ndarray of shape (n_alphas, len(fold), k)
    unsafe : ndarray of shape (n_alphas, n_folds), bool

    Notes
    -----
    With W = (ΦᵀLΦ + alpha I)⁻¹, Φ_U the fold's features in F-coordinates, c' = Φᵀr less the fold's
    part, and E the rows of Z⁻ᵀ of its basis vectors, the weights without the fold are
    w = W(c' + Φ_Uᵀa − Eᵀλ) where a = Φ_U w and E w = 0: a system of the size of the fold.
    """
    Phi_F = factor._rmatmat(Phi)
    G, c = Phi_F.T @ Phi_F, Phi_F.T @ factor.t
    values, V = np.linalg.eigh((G + G.T) / 2)
    null = values <= len(values) * np.finfo(float).eps * values.max(initial=0.0)
    values = np.where(null, 0.0, values)
    rotated, rotated_F, rotated_c = Phi @ V, Phi_F @ V, V.T @ c
    rotated_F[:, null] = 0.0
    rotated_c[null] = 0.0
    back = back @ V
    out, unsafe = [], np.zeros((len(alphas), len(folds)), dtype=bool)
    for number, fold in enumerate(make_folds(factor, folds)):
        F_U, E = rotated_F[fold.coordinates], back[np.isin(basis, fold.rows)]
        B = np.vstack([F_U, -E])
        rest = rotated_c - F_U.T @ factor.t[fold.coordinates]
        u = len(F_U)
        predictions = np.empty((len(alphas), len(fold.rows), c.shape[1]))
        for a, alpha in enumerate(alphas):
            weight = 1.0 / (values + alpha)
            # [[I − F W Fᵀ, F W Eᵀ], [E W Fᵀ, −E W Eᵀ]] = diag(I, 0) − B W Bᵀ
            small = -(B * weight) @ B.T
            small[:u, :u] += np.eye(u)
            leverage = np.linalg.eigvalsh(small[:u, :u])[0] if u else 1.0
            unsafe[a, number] = leverage < SINGULAR
            right = (B * weight) @ rest
            if unsafe[a, number]:
                predictions[a] = np.nan
                continue
            multipliers = solve(small, right, check_finite=False) if len(B) else right
            w = weight[:, None] * (rest + B.T @ multipliers)
            predictions[a] = rotated[fold.rows] @ w
        out.append(predictions)
    return out, unsafe


def nystroem_rows_holdout(
    Phi: Array,
    back: Array,
    basis: Array,
    s: Array,
    folds: Sequence[Array],
    alphas: Array,
    query_weighting: str,
) -> tuple[list[Array], Array]:
    """The same for rows of one ranking in which every pair counts (magnitude, ties kept).

    Parameters
    ----------
    Phi, back, basis, folds, alphas
        As for `nystroem_holdout`; folds are any rows.
    s : ndarray of shape (m, k)
        Scores.
    query_weighting : str

    Returns
    -------
    predictions : list of ndarray of shape (n_alphas, len(fold), k)
    unsafe : ndarray of shape (n_alphas, n_folds), bool

    Notes
    -----
    Without the fold the model is ridge regression with an intercept and the penalty ν of the rows
    that stay. With centred Φ and s, W = (ΦᵀΦ + νI)⁻¹, c = Φᵀs and p the residuals of the fold in
    that model, its weights are w = W(c + Φ_Uᵀp − Eᵀλ) and its intercept is 1ᵀp/m. So

        [[I − 11ᵀ/m − Φ_U W Φ_Uᵀ, Φ_U W Eᵀ], [E W Φ_Uᵀ, −E W Eᵀ]] [p; λ] = [Φ_U W c − s_U; −E W c].
    """
    m = len(Phi)
    Phi, s = Phi - Phi.mean(axis=0), s - s.mean(axis=0)
    values, V = np.linalg.eigh(Phi.T @ Phi)
    null = values <= len(values) * np.finfo(float).eps * values.max(initial=0.0)
    values = np.where(null, 0.0, values)
    Phi, back = Phi @ V, back @ V
    Phi[:, null] = 0.0
    c = Phi.T @ s
    out, unsafe = [], np.zeros((len(alphas), len(folds)), dtype=bool)
    for number, rows in enumerate(folds):
        B = np.vstack([Phi[rows], -back[np.isin(basis, rows)]])
        u = len(rows)
        predictions = np.full((len(alphas), u, s.shape[1]), np.nan)
        for a, alpha in enumerate(alphas):
            weight = 1.0 / (values + penalty(alpha, m - u, query_weighting))
            small = -(B * weight) @ B.T
            small[:u, :u] += np.eye(u) - 1.0 / m
            leverage = np.linalg.eigvalsh(small[:u, :u])[0] if u else 1.0
            unsafe[a, number] = leverage < SINGULAR
            if unsafe[a, number]:
                continue
            right = (B * weight) @ c
            right[:u] -= s[rows]
            multipliers = solve(small, right, check_finite=False) if len(B) else right
            predictions[a] = Phi[rows] @ (weight[:, None] * (c + B.T @ multipliers))
        out.append(predictions)
    return out, unsafe
