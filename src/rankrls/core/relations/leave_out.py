"""Held-out predictions on complete relations, read off the eigenvectors of the two kernels.

The diagonals of the hat matrix H and of M = I − H are sums of positive terms, so that

    f without the held-out labels = f − H M⁻¹ (y − f)

keeps its digits whatever alpha is, as long as M is not tiny beside the largest value that it
can have (rounding in y − f is divided by it). Each function tells where it is; a refit must
take over there, as `CompleteHoldout` does.

Held-out predictions of the ranking loss come with an offset for each row, which a ranking does
not see: where the row has labels left, the offset with which their residuals have mean zero;
where it has none, the one with which the predictions of the training columns have mean zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.relations.complete import CompleteSpectrum, damped
from rankrls.core.relations.spectrum import spectrum

__all__ = ["both_out", "columns_out", "entries_out", "entry_out", "row_variances", "rows_out"]

Array = NDArray[Any]

#: Where M is smaller than this part of its largest value, too many digits are lost.
SINGULAR = 1e-7


def rows_out(problem: CompleteSpectrum, alpha: float) -> tuple[Array, Array]:
    """Every row without its labels, shape (p, g), and which rows to refit, shape (p,).

    In the basis U of the columns the problem falls apart into one regression for each column,
    with the kernel σ_j K and its own hat matrix.
    """
    (lam, V), (sigma, U) = _parts(problem)
    D = damped(np.outer(lam, sigma), alpha)
    labels = problem.all_labels
    squares = V**2
    m = squares @ D  # M/alpha
    unsafe = (m < SINGULAR * D.max(axis=0, initial=0.0)) & (sigma != 0.0)
    ratio = V @ (labels * D)
    ratio /= m
    D *= lam[:, None]
    held = V @ (labels * D)
    held -= (squares @ D) * ratio  # f/σ
    held *= sigma
    return held @ U.T, unsafe.any(axis=1)


def columns_out(problem: CompleteSpectrum, alpha: float) -> tuple[Array, Array]:
    """Every column without its labels, shape (p, g), and which columns to refit, shape (g,)."""
    (lam, V), (sigma, U) = _parts(problem)
    products = np.outer(lam, sigma)
    D = damped(products, alpha)
    labels = problem.all_labels
    squares = (U**2).T
    m = D @ squares
    unsafe = ((m < SINGULAR * D.max(axis=1, initial=0.0)[:, None]) & (lam != 0.0)[:, None]).any(0)
    ratio = (labels * D) @ U.T
    ratio /= m
    if problem.ranking:
        return problem.Y - V @ ratio, unsafe
    D *= products
    held = (labels * D) @ U.T
    held -= (D @ squares) * ratio
    return V @ held, unsafe


def entry_out(problem: CompleteSpectrum, alpha: float) -> tuple[Array, Array]:
    """Every entry without its label, and which entries to refit, both of shape (p, g)."""
    (lam, V), (sigma, U) = _parts(problem)
    products = np.outer(lam, sigma)
    D = damped(products, alpha)
    labels = problem.all_labels
    left, right = V**2, (U**2).T
    m = left @ D @ right
    unsafe = m < SINGULAR * D.max(initial=0.0)
    ratio = V @ (labels * D) @ U.T
    ratio /= m
    if problem.ranking:
        return problem.Y - ratio, unsafe
    D *= products
    return V @ (labels * D) @ U.T - (left @ D @ right) * ratio, unsafe


def both_out(
    problem: CompleteSpectrum, K: Array, rows: Array, alphas: Array
) -> tuple[Array, Array]:
    """Entries of some rows, by the model without these rows and without the entry's column.

    Parameters
    ----------
    problem : CompleteSpectrum
    K : ndarray of shape (p, p)
    rows : ndarray of shape (n_rows,), int
    alphas : ndarray of shape (n_alphas,)

    Returns
    -------
    ndarray of shape (n_alphas, n_rows, g)
    ndarray of shape (n_alphas, g), bool
        Which columns to refit.

    Notes
    -----
    One decomposition of K without the rows. For each of its eigenvectors the columns are a
    problem with coefficients b = (D∘ỹ)Uᵀ, P = U D Uᵀ, and without column j

        b − P_j b_j/P_jj,     whose value at column j is (G b)_j − (GP)_jj b_j/P_jj.
    """
    stay = np.setdiff1d(np.arange(len(K)), rows)
    sigma, U = _parts(problem)[1]
    left = spectrum(K[np.ix_(stay, stay)]).range
    part = CompleteSpectrum(left, problem.right, problem.Y[stay], ranking=problem.ranking)
    labels = part.labels(left.vectors, U)
    products = np.outer(left.values, sigma)
    squares = (U**2).T
    basis = K[np.ix_(rows, stay)] @ left.vectors
    g = problem.Y.shape[1]
    # Offset: the predictions of all columns have mean zero, those of the others shall have it.
    scale = g / (g - 1) if problem.ranking else 1.0
    out = np.empty((len(alphas), len(rows), g))
    unsafe = np.empty((len(alphas), g), dtype=bool)
    for a, alpha in enumerate(alphas):
        D = damped(products, alpha)
        m = D @ squares
        unsafe[a] = (m < SINGULAR * D.max(axis=1, initial=0.0)[:, None]).any(axis=0)
        ratio = (labels * D) @ U.T
        ratio /= m
        D *= sigma
        out[a] = basis @ (scale * ((labels * D) @ U.T - (D @ squares) * ratio))
    return out, unsafe


def entries_out(
    problem: CompleteSpectrum, alpha: float, folds: list[Array]
) -> tuple[list[Array], Array]:
    """Entries in folds of columns, each row by the model without *its* labels in that fold.

    Parameters
    ----------
    problem : CompleteSpectrum
    alpha : float
    folds : list of int arrays
        Columns. The model that predicts a row has the labels of all other rows.

    Returns
    -------
    list of ndarray of shape (p, len(fold))
        Up to a constant for each row and fold, for ranking.
    ndarray of shape (p, n_folds), bool
        Which to refit.

    Notes
    -----
    With the weights w_i = ((V∘V) alpha D)_i of row i, M_BB = U_B diag(w_i) U_Bᵀ for a fold B. All
    rows together are one product with the outer products of the rows of U_B.
    """
    (lam, V), (sigma, U) = _parts(problem)
    products = np.outer(lam, sigma)
    D = damped(products, alpha)
    largest = D.max(initial=0.0)
    labels = problem.all_labels
    squares = V**2
    E, m = V @ (labels * D), squares @ D
    D *= products
    F, h = V @ (labels * D), squares @ D
    held, unsafe = [], np.empty((len(V), len(folds)), dtype=bool)
    for number, fold in enumerate(folds):
        part = U[fold]
        outer = (part[:, None, :] * part[None, :, :]).reshape(-1, U.shape[1])
        shape = (len(V), len(fold), len(fold))
        M, H = (m @ outer.T).reshape(shape), (h @ outer.T).reshape(shape)
        values, vectors = np.linalg.eigh(M)
        unsafe[:, number] = values[:, 0] < SINGULAR * largest
        values = np.where(values > 0, values, largest)[:, :, None]
        ratio = (E @ part.T)[:, :, None]
        ratio = vectors @ ((vectors.transpose(0, 2, 1) @ ratio) / values)
        held.append(F @ part.T - (H @ ratio)[:, :, 0])
    return held, unsafe


def row_variances(problem: CompleteSpectrum, alpha: float) -> Array:
    """What the labels of the other rows leave open of each row, in the basis U: shape (p, s).

    In the reading as a Gaussian process, row i without its labels has the covariance
    U diag(c_i) Uᵀ with c = alpha H/M.
    """
    (lam, V), (sigma, _) = _parts(problem)
    products = np.outer(lam, sigma)
    D = damped(products, alpha)
    squares = V**2
    m = squares @ D
    D *= products
    return (squares @ D) / m


def _parts(problem: CompleteSpectrum) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    left, right = problem.left, problem.right
    return (left.values, left.vectors), (right.values, right.vectors)
