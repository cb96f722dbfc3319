"""Folds with more rows than there are features: what they leave is decomposed again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

__all__ = ["weights_without"]

Array = NDArray[Any]


def weights_without(
    Phi: Array,
    t: Array,
    held: Array,
    moments: tuple[Array, Array],
    E: Array,
    penalties: Array,
    *,
    centred: bool = False,
) -> Array:
    """Weights of all alphas without the rows of a fold, under E w = 0: (n_alphas, q, k).

    Parameters
    ----------
    Phi : ndarray of shape (m, q)
    t : ndarray of shape (m, k)
    held : ndarray of shape (u,), int
    moments : ndarray of shape (q, q), ndarray of shape (q, k)
        G = ΦᵀΦ and c = Φᵀt of all rows.
    E : ndarray of shape (n_constraints, q)
        Of full rank, with fewer than q rows.
    penalties : ndarray of shape (n_alphas,)
    centred : bool
        Whether the rows that stay are centred; Φ and t have mean zero over all rows.

    Notes
    -----
    With the columns of N an orthonormal basis of the w that satisfy E w = 0,

        w = N (NᵀG'N + alpha I)⁻¹ Nᵀc',   G' = G − Φ_UᵀΦ_U,   c' = c − Φ_Uᵀt_U.

    One eigendecomposition serves all alphas.
    """
    G, c, size = _moments_of_rest(Phi, t, held, *moments, centred=centred)
    N = None
    if len(E):
        N = qr(E.T, check_finite=False)[0][:, len(E) :]
        G, c = N.T @ G @ N, N.T @ c
    values, V = np.linalg.eigh((G + G.T) / 2)
    b = V.T @ c
    # Directions that only the fold has: functions of norm zero on the rest.
    b[values <= len(Phi.T) * np.finfo(float).eps * size] = 0.0
    scale = np.maximum(values, 0.0) + penalties[:, None]
    W = V @ (b / scale[:, :, None])
    return W if N is None else N @ W


def _moments_of_rest(
    Phi: Array, t: Array, held: Array, G: Array, c: Array, *, centred: bool
) -> tuple[Array, Array, float]:
    """G' and c' of the rows that stay, and the size of the numbers that rounding is relative to.

    They are a difference, unless most rows are held out, or those that carry nearly all of the
    weight, so that the difference would be rounding: then they are added up.
    """
    n_rest = len(Phi) - len(held)
    if len(held) <= n_rest:
        F, s = Phi[held], t[held]
        G_rest, c_rest = G - F.T @ F, c - F.T @ s
        if centred:  # the sums of the rest are minus those of the fold
            total = F.sum(axis=0)
            G_rest -= np.outer(total, total) / n_rest
            c_rest -= np.outer(total, s.sum(axis=0)) / n_rest
        size = float(G.diagonal().max(initial=0.0))
        if G_rest.diagonal().max(initial=0.0) >= 1e-3 * size:
            return G_rest, c_rest, size
    staying = np.ones(len(Phi), dtype=bool)
    staying[held] = False
    F, s = Phi[staying], t[staying]
    if centred:
        F, s = F - F.mean(axis=0), s - s.mean(axis=0)
    G_rest = F.T @ F
    return G_rest, F.T @ s, float(G_rest.diagonal().max(initial=0.0))
