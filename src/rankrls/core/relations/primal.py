"""Linear kernels of few features: f(x, z) = xᵀ W z, solved for W over the observed pairs.

With d features on one side and e on the other, W has d e entries, however many pairs there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.linalg.factorizations import SpectralState, factorise
from rankrls.core.relations.edge_factor import EdgeFactor
from rankrls.core.relations.observations import Cells
from rankrls.core.relations.spectrum import Spectrum

__all__ = ["n_unknowns", "primal_cost", "solve_primal"]

Array = NDArray[Any]

#: Numbers in a work space.
WORK = 2**22


def n_unknowns(d: int, e: int, sign: int) -> int:
    """Free entries of W (d × e): of a symmetric or antisymmetric one, if there is a sign."""
    return d * e if sign == 0 else d * (d + sign) // 2


def primal_cost(n_cells: int, d: int, e: int, sign: int) -> float:
    """Multiplications of the Gram matrix of all products of features."""
    return float(n_cells) * n_unknowns(d, e, sign) ** 2


def solve_primal(
    X: Array, Z: Array, cells: Cells, alphas: Array, *, ranking: bool, sign: int
) -> Array:
    """Coefficients A of shape (n_alphas, p, g), with Xᵀ A Z = W.

    Parameters
    ----------
    X : ndarray of shape (p, d)
    Z : ndarray of shape (g, e)
        X itself, if there is a sign.
    cells : Cells
    alphas : ndarray of shape (n_alphas,)
    ranking : bool
    sign : {0, 1, −1}

    Notes
    -----
    With X = V √λ Qᵀ and Z = U √σ Rᵀ (thin decompositions), a pair has the features φ_i ⊗ ψ_j of
    the rows of V √λ and U √σ. They are centred by row of the relation for the ranking loss, which
    does not see offsets of Z either. W is found in these coordinates and A = V λ^{−½} W σ^{−½} Uᵀ.
    """
    left = _thin(X)
    right = left if sign else _thin(Z - Z.mean(axis=0) if ranking else Z)
    phi = left.vectors * np.sqrt(left.values)
    psi = phi if sign else right.vectors * np.sqrt(right.values)
    r, s = phi.shape[1], psi.shape[1]
    factor = EdgeFactor(cells, centred=ranking)
    gram, cross = _moments(phi, psi, factor, sign)
    state = factorise(gram, alphas, cross[:, None], in_range=True)
    if isinstance(state, SpectralState):
        solutions = state.solve_path(cross[:, None], alphas)[:, :, 0]
    else:
        solutions = state.solve(cross[:, None], float(alphas[0])).T
    W = np.zeros((len(alphas), r, s))
    if sign:
        a, b = np.triu_indices(r, 0 if sign == 1 else 1)
        scale = np.where(a == b, 1.0, np.sqrt(0.5))
        W[:, a, b] = scale * solutions
        W[:, b, a] = sign * scale * solutions
    else:
        W[:] = solutions.reshape(-1, r, s)
    V = left.vectors / np.sqrt(left.values)
    U = right.vectors / np.sqrt(right.values)
    return V @ W @ U.T


def _moments(phi: Array, psi: Array, factor: EdgeFactor, sign: int) -> tuple[Array, Array]:
    """ΦᵀLΦ and ΦᵀLy of all products of features, whole rows of the relation at a time."""
    cells, target = factor.cells, factor.target
    r, s = phi.shape[1], psi.shape[1]
    n = n_unknowns(r, s, sign)
    gram, cross = np.zeros((n, n)), np.zeros(n)
    a, b = np.triu_indices(r, 0 if sign == 1 else 1)
    bounds = np.append(factor.starts, len(cells))
    begin = 0
    while begin < len(factor.starts):
        wanted = bounds[begin] + max(1, WORK // max(n, s))
        end = max(begin + 1, int(np.searchsorted(bounds, wanted, "right")) - 1)
        part = slice(bounds[begin], bounds[end])
        x, z = phi[cells.rows[part]], psi[cells.cols[part]]
        weight = cells.weight[part, None]
        if factor.centred:
            starts = factor.starts[begin:end] - bounds[begin]
            sums = np.add.reduceat(weight * z, starts, axis=0)
            means = sums / np.add.reduceat(weight, starts, axis=0)
            z = z - np.repeat(means, factor.lengths[begin:end], axis=0)
        z = np.sqrt(weight) * z
        if sign:
            scale = np.where(a == b, 0.5, np.sqrt(0.5))
            products = scale * (x[:, a] * z[:, b] + sign * z[:, a] * x[:, b])
        else:
            products = (x[:, :, None] * z[:, None, :]).reshape(len(x), n)
        gram += products.T @ products
        cross += products.T @ target[part]
        begin = end
    return gram, cross


def _thin(X: Array) -> Spectrum:
    """Left singular vectors and squared singular values of X (n, d) that are not rounding."""
    vectors, d, _ = np.linalg.svd(np.asarray(X, dtype=np.float64), full_matrices=False)
    kept = d > max(X.shape) * np.finfo(np.float64).eps * d.max(initial=0.0)
    return Spectrum(d[kept] ** 2, vectors[:, kept])
