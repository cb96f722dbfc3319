"""Held-out squared error of complete relations, and its gradient with respect to the kernels.

Let S = (K ⊗ G + alpha I)⁻¹, with centred kernels if there are offsets. Held-out labels have the
residuals M⁻¹e, where e is S y at these labels and M is their block of S. Let V and U be the
eigenvectors of K and G, and D = 1/(λσᵀ + alpha) and B = Ỹ∘D as in `core.relations.complete`. The
residuals are r = e/m, where for

    rows, in the basis U:   e = V B,      m = (V∘V) D
    entries:                e = V B Uᵀ,   m = (V∘V) D (U∘U)ᵀ

Columns are the rows of Yᵀ. The error is Σ r². Its gradient costs about as much as the two
decompositions.

A change of K changes S by −S (dK ⊗ G) S. In the eigenvectors, σ_j D_kj D_lj is the divided
difference (D_kj − D_lj)/(λ_l − λ_k), so that sums over j become matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.relations.complete import CompleteSpectrum, damped

__all__ = ["HoldoutError", "holdout_error", "holdout_errors"]

Array = NDArray[Any]

#: Eigenvalues are treated as equal if their difference, relative to the largest eigenvalue, is
#: smaller than this. The gradient then ignores rotations of their eigenvectors.
EQUAL = 1e-11


@dataclass(frozen=True)
class HoldoutError:
    """Squared error of held-out predictions, and its derivatives.

    Attributes
    ----------
    value : float
        Σ (y − f)² over all labels, each held out once.
    alpha : float
        Derivative with respect to alpha.
    left : ndarray of shape (p, p)
        Gradient with respect to K, symmetric.
    right : ndarray of shape (g, g)
        Gradient with respect to G.
    """

    value: float
    alpha: float
    left: Array
    right: Array

    def __add__(self, other: HoldoutError) -> HoldoutError:
        return HoldoutError(
            self.value + other.value,
            self.alpha + other.alpha,
            self.left + other.left,
            self.right + other.right,
        )


def holdout_error(problem: CompleteSpectrum, alpha: float, held: str) -> HoldoutError:
    """Compute the held-out squared error of a complete problem with the kernel K ⊗ G.

    Parameters
    ----------
    problem : CompleteSpectrum
        A problem without a sign. A free constant is treated as known and equal to the mean of Y.
    alpha : float
    held : {"rows", "columns", "entries", "both"}
        What is held out, one at a time. "both" is the sum of the errors of rows and of columns.
        There is no closed form for holding out a row and a column at once.

    Notes
    -----
    With ∂r = 2r, the derivatives are w = ∂r/m with respect to e, u = −r∘w with respect to m, and

        ∂B = Vᵀw (VᵀwU),    ∂K = V [ −(σ∘D∘∂B) Bᵀ + X/(λ_k − λ_l) ] Vᵀ,   X = Q − Qᵀ,

    where Q = (V∘(uDᵀ))ᵀV. The diagonal has the limit Σ −σ D² (V∘V)ᵀu.
    """
    left, right = problem.left.complete, problem.right.complete
    lam, V = left.values, left.vectors
    sigma, U = right.values, right.vectors
    D = damped(np.outer(lam, sigma), alpha)
    labels = problem.all_labels
    if held == "entries":
        return _entries(lam, V, sigma, U, labels, D)
    error = _rows(lam, V, sigma, U, labels, D) if held in ("rows", "both") else None
    if held == "rows":
        assert error is not None
        return error
    turned = _rows(sigma, U, lam, V, labels.T, D.T)
    columns = HoldoutError(turned.value, turned.alpha, turned.right, turned.left)
    return columns if error is None else error + columns


def holdout_errors(problem: CompleteSpectrum, alphas: Array, held: str) -> Array:
    """Compute only the values of `holdout_error` for several alphas, shape (n_alphas,)."""
    (lam, V), (sigma, U) = (
        (side.values, side.vectors) for side in (problem.left.complete, problem.right.complete)
    )
    labels, products = problem.all_labels, np.outer(lam, sigma)
    left, right = V**2, U**2
    values = np.zeros(len(alphas))
    for a, alpha in enumerate(alphas):
        D = damped(products, float(alpha))
        B = labels * D
        parts = []
        if held == "entries":
            parts.append((V @ B @ U.T) / (left @ D @ right.T))
        if held in ("rows", "both"):
            parts.append((V @ B) / (left @ D))
        if held in ("columns", "both"):
            parts.append((B @ U.T) / (D @ right.T))
        values[a] = sum(float(np.vdot(r, r)) for r in parts)
    return values


def _rows(lam: Array, V: Array, sigma: Array, U: Array, labels: Array, D: Array) -> HoldoutError:
    B, squares = labels * D, V**2
    e, m = V @ B, squares @ D
    r = e / m
    w = 2.0 * r / m
    u = -r * w
    dB = V.T @ w
    dm = squares.T @ u
    # The gradient with respect to G also has the terms Σ_i w_ia r_ib (m_ia − m_ib)/(σ_b − σ_a).
    mixed = w.T @ e
    inner = -(lam[:, None] * D * dB).T @ B
    inner = 0.5 * (inner + inner.T + _divided(mixed.T - mixed, sigma))
    np.einsum("ii->i", inner)[:] -= (dm * lam[:, None] * D**2).sum(axis=0)
    return HoldoutError(
        float(np.vdot(r, r)),
        -float(np.vdot(labels * dB + dm, D**2)),
        V @ _of_first(lam, V, sigma, u, dB, dm, B, D) @ V.T,
        U @ inner @ U.T,
    )


def _entries(lam: Array, V: Array, sigma: Array, U: Array, labels: Array, D: Array) -> HoldoutError:
    B, left, right = labels * D, V**2, U**2
    m = left @ D @ right.T
    r = (V @ B @ U.T) / m
    w = 2.0 * r / m
    u = -r * w
    dB = V.T @ w @ U
    first, second = u @ right, u.T @ left
    dm = left.T @ first
    return HoldoutError(
        float(np.vdot(r, r)),
        -float(np.vdot(labels * dB + dm, D**2)),
        V @ _of_first(lam, V, sigma, first, dB, dm, B, D) @ V.T,
        U @ _of_first(sigma, U, lam, second, dB.T, dm.T, B.T, D.T) @ U.T,
    )


def _of_first(
    lam: Array, V: Array, sigma: Array, u: Array, dB: Array, dm: Array, B: Array, D: Array
) -> Array:
    """Compute VᵀXV for the gradient X with respect to K; u (p, s) is that of m = (V∘V) D."""
    inner = -(sigma * D * dB) @ B.T
    mixed = (V * (u @ D.T)).T @ V
    inner = 0.5 * (inner + inner.T) - _divided(mixed - mixed.T, lam)
    np.einsum("ii->i", inner)[:] -= (dm * sigma * D**2).sum(axis=1)
    return inner


def _divided(differences: Array, values: Array) -> Array:
    """Divide element (k, l) by values_l − values_k; return 0 where the values are equal."""
    gaps = values - values[:, None]
    equal = np.abs(gaps) <= EQUAL * float(np.abs(values).max(initial=0.0))
    gaps[equal] = np.inf
    return differences / gaps
