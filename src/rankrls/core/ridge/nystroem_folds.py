"""Nyström models: rows that are left out also leave the basis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve

from rankrls.core.preferences.factors import Factor
from rankrls.core.ridge.components import SINGULAR, make_folds
from rankrls.core.ridge.large_folds import weights_without
from rankrls.core.ridge.rows import penalty

__all__ = ["nystroem_holdout", "nystroem_rows_holdout"]

Array = NDArray[Any]

#: Singular values below and above which a dependence between basis vectors is taken for certain.
_ZERO, _NOT_ZERO = 1e-9, 1e-3


def nystroem_holdout(
    Phi: Array,
    back: Array,
    basis: Array,
    spare: Array,
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
    spare : ndarray of int
        Rows of basis vectors that depend on these, and have no feature.
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
    w = W(c' + Φ_Uᵀa − Eᵀλ) where a = Φ_U w and E w = 0: a system of the size of the fold. Where
    spare basis vectors take the place of some that leave, E has fewer rows (`_Leaving`). A fold
    of q coordinates or more leaves G − Φ_UᵀΦ_U, which is decomposed again (`weights_without`).
    """
    leaving = _Leaving(Phi, back, basis, spare)
    Phi_F = factor._rmatmat(Phi)
    G, c = Phi_F.T @ Phi_F, Phi_F.T @ factor.t
    values, V = np.linalg.eigh((G + G.T) / 2)
    null = values <= len(values) * np.finfo(float).eps * values.max(initial=0.0)
    values = np.where(null, 0.0, values)
    rotated, rotated_F, rotated_c = Phi @ V, Phi_F @ V, V.T @ c
    rotated_F[:, null] = 0.0
    rotated_c[null] = 0.0
    out, unsafe = [], np.zeros((len(alphas), len(folds)), dtype=bool)
    for number, fold in enumerate(make_folds(factor, folds)):
        E, doubtful = leaving.constraints(fold.rows)
        if len(fold.coordinates) >= len(G):
            if doubtful:
                unsafe[:, number] = True
                out.append(np.full((len(alphas), len(fold.rows), c.shape[1]), np.nan))
                continue
            held = fold.coordinates
            out.append(Phi[fold.rows] @ weights_without(Phi_F, factor.t, held, (G, c), E, alphas))
            continue
        F_U = rotated_F[fold.coordinates]
        B = np.vstack([F_U, -E @ V])
        rest = rotated_c - F_U.T @ factor.t[fold.coordinates]
        u = len(F_U)
        predictions = np.empty((len(alphas), len(fold.rows), c.shape[1]))
        for a, alpha in enumerate(alphas):
            weight = 1.0 / (values + alpha)
            # [[I − F W Fᵀ, F W Eᵀ], [E W Fᵀ, −E W Eᵀ]] = diag(I, 0) − B W Bᵀ
            small = -(B * weight) @ B.T
            small[:u, :u] += np.eye(u)
            leverage = np.linalg.eigvalsh(small[:u, :u])[0] if u else 1.0
            unsafe[a, number] = doubtful or leverage < SINGULAR
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
    spare: Array,
    s: Array,
    folds: Sequence[Array],
    alphas: Array,
    query_weighting: str,
) -> tuple[list[Array], Array]:
    """The same for rows of one ranking in which every pair counts (magnitude, ties kept).

    Parameters
    ----------
    Phi, back, basis, spare, folds, alphas
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

    A fold of q rows or more leaves the scatter of the others, which is decomposed again.
    """
    m = len(Phi)
    leaving = _Leaving(Phi, back, basis, spare)
    Phi, s = Phi - Phi.mean(axis=0), s - s.mean(axis=0)
    G = Phi.T @ Phi
    moments, features = (G, Phi.T @ s), Phi
    values, V = np.linalg.eigh(G)
    null = values <= len(values) * np.finfo(float).eps * values.max(initial=0.0)
    values = np.where(null, 0.0, values)
    Phi = Phi @ V
    Phi[:, null] = 0.0
    c = Phi.T @ s
    out, unsafe = [], np.zeros((len(alphas), len(folds)), dtype=bool)
    for number, rows in enumerate(folds):
        E, doubtful = leaving.constraints(rows)
        if len(rows) >= len(G):
            if doubtful:
                unsafe[:, number] = True
                out.append(np.full((len(alphas), len(rows), s.shape[1]), np.nan))
                continue
            nu = np.array([penalty(alpha, m - len(rows), query_weighting) for alpha in alphas])
            W = weights_without(features, s, rows, moments, E, nu, centred=True)
            out.append(features[rows] @ W)
            continue
        B = np.vstack([Phi[rows], -E @ V])
        u = len(rows)
        predictions = np.full((len(alphas), u, s.shape[1]), np.nan)
        for a, alpha in enumerate(alphas):
            weight = 1.0 / (values + penalty(alpha, m - u, query_weighting))
            small = -(B * weight) @ B.T
            small[:u, :u] += np.eye(u) - 1.0 / m
            leverage = np.linalg.eigvalsh(small[:u, :u])[0] if u else 1.0
            unsafe[a, number] = doubtful or leverage < SINGULAR
            if unsafe[a, number]:
                continue
            right = (B * weight) @ c
            right[:u] -= s[rows]
            multipliers = solve(small, right, check_finite=False) if len(B) else right
            predictions[a] = Phi[rows] @ (weight[:, None] * (c + B.T @ multipliers))
        out.append(predictions)
    return out, unsafe


class _Leaving:
    """What the weights must satisfy once basis vectors have left.

    Kernel coefficients are a = Z⁻ᵀ w. Those of vectors B that leave must be zero, unless vectors
    that depend on the basis stay: with φ(d) = Σ_j C_dj φ(basis_j) for such a vector d, a_B may be
    any combination of the rows C_dB. So N a_B = 0, with N the complement of these rows.
    """

    def __init__(self, Phi: Array, back: Array, basis: Array, spare: Array) -> None:
        self.back, self.basis, self.spare = back, basis, spare
        self.C = Phi[spare] @ back.T  # Φ_basis = Z, hence C = Φ_spare Z⁻¹
        pivots = 1.0 / np.abs(back.diagonal())
        rounding = np.finfo(float).eps * (pivots.max() / pivots.min()) ** 2
        self.rough = len(spare) > 0 and rounding > _ZERO  # dependent, or nearly so?

    def constraints(self, rows: Array) -> tuple[Array, bool]:
        """E with E w = 0, shape (n_constraints, q), and whether it must not be relied on.

        That is if the number of constraints is in doubt, or if they leave nothing but w = 0.
        """
        gone, staying = np.isin(self.basis, rows), ~np.isin(self.spare, rows)
        E, filled = self.back[gone], self.C[staying][:, gone]
        if self.rough and (gone.any() or not staying.all()):
            return E, True
        if not filled.size:
            return E, len(E) == len(self.back)
        _, sigma, Vt = np.linalg.svd(filled)
        doubtful = bool(((sigma > _ZERO) & (sigma < _NOT_ZERO)).any())
        E = Vt[int((sigma >= _NOT_ZERO).sum()) :] @ E
        return E, doubtful or len(E) == len(self.back)
