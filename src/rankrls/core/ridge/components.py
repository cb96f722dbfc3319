"""Leaving out whole components of the preference graph (queries, or unions of them).

No edge leads out of such a fold U, so that L without U is L with U's block removed. In the
coordinates of a factor L = F Fᵀ, which is block-diagonal by component, the held-out residuals of
U follow from a system of the size of U (or of the number of features, if that is smaller).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import block_array
from scipy.sparse.csgraph import connected_components

from rankrls.core.preferences.factors import Factor
from rankrls.core.preferences.laplacian import System

__all__ = [
    "SINGULAR",
    "dual_holdout",
    "primal_holdout",
    "solve_small",
    "spectrum_beside",
    "split_folds",
]

Array = NDArray[Any]

#: Below this ratio of its smallest to its largest possible eigenvalue a fold's small system has
#: lost too many digits: the fold is refitted.
SINGULAR = 1e-7

#: Numbers in a work space: folds are stacked up to this.
WORK = 2**23


@dataclass(frozen=True)
class Fold:
    """Held-out rows, and the coordinates of the factor that belong to them."""

    rows: Array
    coordinates: Array


def components_of(system: System) -> Array:
    """Number of the connected component of every row, shape (m,)."""
    links = system.links()
    adjacency = block_array([[None, links], [links.T, None]])
    return connected_components(adjacency, directed=False)[1][: system.n_rows]


def split_folds(system: System, folds: Sequence[Array]) -> list[int]:
    """Numbers of the folds that cut a component: rows of it inside and outside the fold."""
    component = components_of(system)
    size = np.bincount(component)
    return [
        number
        for number, rows in enumerate(folds)
        if (np.bincount(component[rows], minlength=len(size))[component[rows]]
            != size[component[rows]]).any()
    ]  # fmt: skip


def make_folds(factor: Factor, folds: Sequence[Array]) -> list[Fold]:
    """Find each fold's coordinates."""
    order = np.argsort(factor.owner, kind="stable")
    owners = factor.owner[order]
    made = []
    for rows in folds:
        first = np.searchsorted(owners, rows, side="left")
        last = np.searchsorted(owners, rows, side="right")
        lengths = last - first
        total = int(lengths.sum())
        starts = np.repeat(first - np.cumsum(lengths) + lengths, lengths)
        made.append(Fold(rows, order[starts + np.arange(total)]))
    return made


def group_folds(folds: Sequence[Fold], width: int) -> Iterator[Array]:
    """Numbers of folds with equal sizes, a limited work space at a time.

    ``width`` numbers are kept for every row of a fold.
    """
    sizes = np.array([(len(fold.rows), len(fold.coordinates)) for fold in folds])
    for size in np.unique(sizes, axis=0):
        same = np.flatnonzero((sizes == size).all(axis=1))
        step = max(1, WORK // max(1, width * int(size.max())))
        for start in range(0, len(same), step):
            yield same[start : start + step]


def dual_holdout(
    K: Array, factor: Factor, degree: Array, folds: Sequence[Array], alphas: Array
) -> tuple[list[Array], Array]:
    """Held-out predictions of a kernel model.

    Parameters
    ----------
    K : ndarray of shape (m, m)
    factor : Factor
        F and t of the system.
    degree : ndarray of shape (m,)
        The diagonal of L.
    folds : sequence of int arrays
        Unions of components.
    alphas : ndarray of shape (n_alphas,)

    Returns
    -------
    predictions : list of ndarray of shape (n_alphas, len(fold), k)
    unsafe : ndarray of shape (n_alphas, n_folds), bool
        Where the fold must be refitted.

    Notes
    -----
    With FᵀKF = V diag(σ) Vᵀ, everything restricted to U's coordinates,

        J = V diag(alpha/(σ + alpha)) Vᵀ,   P = K F V diag(1/(σ + alpha)) Vᵀ,   f = P t,
        f_U without U = f_U − P_UU (J_UU)⁻¹ (J t)_U.

    J is a sum of positive terms: nothing cancels, however small alpha is. The null space of F is
    left out of V.
    """
    KF = np.ascontiguousarray(factor._rmatmat(np.ascontiguousarray(K.T)).T)
    S = factor._rmatmat(KF)
    N = factor.null()
    noise = np.finfo(float).eps * float((K.diagonal() * degree).max())
    values, V = spectrum_beside((S + S.T) / 2, N, noise)
    live = values > 0
    Q = np.where(live, KF @ V, 0.0)  # K F v = 0 for null vectors v
    b = V.T @ factor.t
    made = make_folds(factor, folds)
    out: list[Array] = [np.empty(0)] * len(folds)
    unsafe = np.zeros((len(alphas), len(folds)), dtype=bool)
    for numbers in group_folds(made, len(values)):
        rows = np.stack([made[i].rows for i in numbers])
        coordinates = np.stack([made[i].coordinates for i in numbers])
        Q_U, V_U = Q[rows], V[coordinates]
        # t and the residuals have no part in N; adding N Nᵀ makes J_UU invertible there.
        N_U = np.stack([N[c].toarray() @ N[c].T.toarray() for c in coordinates])
        predictions = np.empty((len(alphas), *rows.shape, b.shape[1]))
        for a, alpha in enumerate(alphas):
            weight = 1.0 / (values + alpha)
            scaled = (V_U * weight).transpose(0, 2, 1)
            largest = float(weight.max(initial=0.0))
            J_UU = V_U @ scaled + largest * N_U  # J/alpha
            residual = scaled.transpose(0, 2, 1) @ b  # (J t)_U/alpha
            correction, bad = solve_small(J_UU, residual, largest)
            predictions[a] = Q_U @ (weight[:, None] * b) - (Q_U @ scaled) @ correction
            unsafe[a, numbers] = bad
        for position, i in enumerate(numbers):
            out[i] = predictions[:, position]
    return out, unsafe


def spectrum_beside(S: Array, N: Any, noise: float) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of S on the complement of N, a part of its null space.

    ``noise`` is the size of rounding errors in S, where it is more than eps ‖S‖.
    """
    values, V = eigh(S, driver="evd", overwrite_a=True, check_finite=False)
    null = values <= len(values) * max(np.finfo(float).eps * values.max(initial=0.0), noise)
    n_other = int(null.sum()) - N.shape[1]
    if n_other <= 0:
        return values[N.shape[1] :], np.ascontiguousarray(V[:, N.shape[1] :])
    # Null vectors outside N, which the decomposition mixes with it.
    others = np.linalg.svd(V[:, null] - N @ (N.T @ V[:, null]), full_matrices=False)[0]
    vectors = np.hstack([others[:, :n_other], V[:, ~null]])
    return np.concatenate([np.zeros(n_other), values[~null]]), vectors


def primal_holdout(
    X: Array, factor: Factor, folds: Sequence[Array], alphas: Array
) -> tuple[list[Array], Array]:
    """Held-out predictions of a model on dense explicit features, shape (m, n).

    A fold with fewer coordinates than features is taken out of the spectrum of the whole by a
    system of its own size; a larger one leaves G − G_U, which is decomposed again. Both serve
    all alphas. Parameters and results as for `dual_holdout`.
    """
    X_F = factor._rmatmat(X)
    made = make_folds(factor, folds)
    G, c = X_F.T @ X_F, X_F.T @ factor.t
    small = np.array([len(fold.coordinates) < X.shape[1] for fold in made], dtype=bool)
    out: list[Array] = [np.empty(0)] * len(folds)
    unsafe = np.zeros((len(alphas), len(folds)), dtype=bool)
    for chosen, method in ((small, _small_folds), (~small, _large_folds)):
        numbers = np.flatnonzero(chosen)
        if len(numbers):
            parts, bad = method(X, X_F, G, c, factor.t, [made[i] for i in numbers], alphas)
            for i, part in zip(numbers, parts, strict=True):
                out[i] = part
            unsafe[:, numbers] = bad
    return out, unsafe


def _small_folds(
    X: Array, X_F: Array, G: Array, c: Array, t: Array, folds: list[Fold], alphas: Array
) -> tuple[list[Array], Array]:
    """w without U = w − (G + alpha I)⁻¹ X_Uᵀ (I − H_UU)⁻¹ (t_U − X_U w), H = X(G + alpha I)⁻¹Xᵀ."""
    values, V = np.linalg.eigh(G)
    values[values <= len(values) * np.finfo(float).eps * values.max(initial=0.0)] = 0.0
    live = values > 0
    values, V = values[live], V[:, live]
    b = V.T @ c
    Y, Y_F = X @ V, X_F @ V
    out: list[Array] = [np.empty(0)] * len(folds)
    unsafe = np.zeros((len(alphas), len(folds)), dtype=bool)
    for numbers in group_folds(folds, len(values)):
        rows = np.stack([folds[i].rows for i in numbers])
        coordinates = np.stack([folds[i].coordinates for i in numbers])
        Y_U, F_U, t_U = Y[rows], Y_F[coordinates], t[coordinates]
        predictions = np.empty((len(alphas), *rows.shape, b.shape[1]))
        for a, alpha in enumerate(alphas):
            weight = 1.0 / (values + alpha)
            scaled = F_U * weight
            J_UU = np.eye(F_U.shape[1]) - scaled @ F_U.transpose(0, 2, 1)
            correction, bad = solve_small(J_UU, t_U - scaled @ b, 1.0)
            predictions[a] = Y_U @ (weight[:, None] * b)
            predictions[a] -= (Y_U * weight) @ (F_U.transpose(0, 2, 1) @ correction)
            unsafe[a, numbers] = bad
        for position, i in enumerate(numbers):
            out[i] = predictions[:, position]
    return out, unsafe


def _large_folds(
    X: Array, X_F: Array, G: Array, c: Array, t: Array, folds: list[Fold], alphas: Array
) -> tuple[list[Array], Array]:
    """w without U = (G − G_U + alpha I)⁻¹ (c − c_U): one eigendecomposition per fold."""
    n, k = c.shape
    size = np.abs(np.diagonal(G)).max(initial=0.0)
    out: list[Array] = [np.empty(0)] * len(folds)
    unsafe = np.zeros((len(alphas), len(folds)), dtype=bool)
    step = max(1, WORK // max(1, n * n))
    for start in range(0, len(folds), step):
        part = folds[start : start + step]
        grams, crosses = np.empty((len(part), n, n)), np.empty((len(part), n, k))
        for position, fold in enumerate(part):
            F_U = X_F[fold.coordinates]
            np.subtract(G, F_U.T @ F_U, out=grams[position])
            np.subtract(c, F_U.T @ t[fold.coordinates], out=crosses[position])
        values, V = np.linalg.eigh(grams)
        rounding = n * np.finfo(float).eps * size
        b = V.transpose(0, 2, 1) @ crosses
        b[values <= rounding] = 0.0
        values = np.maximum(values, 0.0)
        # Where the fold carries nearly all of the weight, the difference is rounding.
        unsafe[:, start : start + step] = values.max(axis=1) < 1e-3 * size
        scaled = b[:, :, None] / (values[:, :, None] + alphas)[..., None]  # (folds, n, alphas, k)
        W = V @ scaled.reshape(len(part), n, -1)
        for position, fold in enumerate(part):
            predictions = (X[fold.rows] @ W[position]).reshape(len(fold.rows), len(alphas), k)
            out[start + position] = np.moveaxis(predictions, 1, 0)
    return out, unsafe


def solve_small(J: Array, B: Array, largest: float) -> tuple[Array, Array]:
    """J⁻¹B for a stack of small positive matrices, and which of them are near singular.

    ``largest``: the largest eigenvalue that J can have; rounding is of size eps times that.
    """
    if J.shape[1] == 0:
        return B, np.zeros(len(J), dtype=bool)
    values, vectors = np.linalg.eigh(J)
    bad = values[:, 0] < SINGULAR * largest
    safe = np.where(values > 0, values, largest)
    solution = vectors @ ((vectors.transpose(0, 2, 1) @ B) / safe[:, :, None])
    return solution, bad
