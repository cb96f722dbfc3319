"""Singular value decompositions of features that are accurate for columns of all scales.

A plain SVD of X is accurate relative to its largest singular value: if one column has scale 10⁹,
the others have seven accurate digits, and none if X is squared to a kernel matrix. Here the small
singular values and the weights of small columns are as accurate as the large ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, solve_triangular
from scipy.linalg.lapack import dgejsv

__all__ = ["FeatureSVD", "column_norms", "column_spread", "feature_svd"]

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)

#: Largest norm that can be squared without overflow.
LARGEST = 1e150

#: Sums of squares above this, and below its inverse, lose nothing to underflow and overflow.
SAFE = 1e-200

#: A plain SVD is accurate enough if the norms of columns differ by at most this factor.
PLAIN_SPREAD = 100.0


@dataclass(frozen=True)
class FeatureSVD:
    """X = V diag(s) Qᵀ without its null space.

    ``vectors`` is V, of shape (n, r), with orthonormal columns, and ``singular`` s > 0, descending.
    ``weights``, P = Q diag(1/s) of shape (d, r), are the weights with X P = V that lie in the row
    space of X: ridge regression has the weights P diag(s²/(s² + alpha)) Vᵀy. ``dropped`` is the
    approximate largest singular value among those masked by rounding errors; 0 for full column
    rank.
    """

    vectors: Array
    singular: Array
    weights: Array
    dropped: float = 0.0


def column_norms(X: Array) -> Array:
    """Euclidean norms of the columns of X (n, d), without overflow: shape (d,)."""
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->j", X, X, dtype=np.float64)
    if len(squares) and squares.min() > SAFE and squares.max() < 1.0 / SAFE:
        return np.sqrt(squares)
    largest = np.abs(X).max(axis=0, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    with np.errstate(over="ignore"):
        return largest * np.linalg.norm(X / unit, axis=0)


def column_spread(norms: Array) -> float:
    """Ratio of the largest norm to the smallest non-zero norm."""
    live = norms[norms > 0]
    return float(live.max() / live.min()) if live.size else 1.0


def feature_svd(X: Array) -> FeatureSVD:
    """Decompose features of shape (n, d).

    Notes
    -----
    If the column norms c_j are very different, X = B diag(c) is decomposed in three steps:

    1. B = Q R with column pivoting. The rank is that of B, so that a column is only dropped if
       it depends on other columns up to rounding errors of its own entries.
    2. R diag(c) = V̂ diag(s) Q̂ᵀ by one-sided Jacobi rotations, which are accurate relative to every
       singular value and to every column (Drmač and Veselić, SIAM J. Matrix Anal. 29, 2008).
    3. P_jk = Q̂_jk/s_k for c_j ≤ s_k, with error eps c_j/s_k²; otherwise P_jk from a triangular
       solve, with error eps/c_j.
    """
    X = np.asarray(X, dtype=np.float64)
    n, d = X.shape
    norms = column_norms(X)
    live = np.flatnonzero(norms > 0)
    if not len(live):
        return FeatureSVD(np.zeros((n, 0)), np.zeros(0), np.zeros((d, 0)))
    if not norms.max() < LARGEST:
        raise ValueError("the squares of the features overflow; scale the features down")
    if column_spread(norms) <= PLAIN_SPREAD:
        return _plain(X)
    Q, R, order = qr(X[:, live] / norms[live], mode="economic", pivoting=True, check_finite=False)
    live = live[order]
    c = norms[live]
    pivots = np.abs(R.diagonal())
    rank = int((pivots > max(n, d) * EPS * pivots[0]).sum())
    R = R[:rank]
    V, s, inner = _jacobi(R * c)
    if rank == len(live):
        solved = solve_triangular(R, V, check_finite=False) / c[:, None]
        dropped = 0.0
    else:
        solved = _shortest(R, c, V)
        dropped = max(n, d) * EPS * float(c[rank:].max())
    weights = np.zeros((d, rank))
    weights[live] = np.where(c[:, None] <= s, inner / s, solved)
    return FeatureSVD(Q[:, :rank] @ V, s, weights, dropped)


def _plain(X: Array) -> FeatureSVD:
    V, s, Qt = np.linalg.svd(X, full_matrices=False)
    cut = max(X.shape) * EPS * float(s[0])
    kept = s > cut
    dropped = 0.0 if kept.sum() == X.shape[1] else cut
    return FeatureSVD(V[:, kept], s[kept], Qt[kept].T / s[kept], dropped)


def _jacobi(T: Array) -> tuple[Array, Array, Array]:
    """T = V diag(s) Qᵀ of shape (r, d), r ≤ d, of full row rank: V (r, r), s, Q (d, r)."""
    # joba=2: accurate for matrices with rows and columns of any scale.
    s, Q, V, scale, _, info = dgejsv(np.asfortranarray(T.T), joba=2, jobr=0)
    if info != 0:  # no convergence, which has never been observed
        V, s, Qt = np.linalg.svd(T, full_matrices=False)
        return V, s, Qt.T
    return V, s * (scale[0] / scale[1]), Q


def _shortest(R: Array, c: Array, V: Array) -> Array:
    """T⁺ V for T = R diag(c) of shape (r, m), of full row rank r < m.

    r independent columns J are selected, the largest first, and the others are T_O = T_J N. So the
    shortest solution of T W = V has W_O = NᵀW_J with (I + NNᵀ) W_J = T_J⁻¹V.
    """
    r, m = R.shape
    rest, coefficients = R.copy(), np.zeros((r, m))
    Q = np.zeros((r, r))
    size = np.linalg.norm(R, axis=0)
    picked = []
    for k in range(r):
        left = np.linalg.norm(rest, axis=0)
        # The remainder of a column that depends on earlier ones is rounding error, whatever its
        # size.
        spent = left <= 4 * m * EPS * size
        rest[:, spent], left[spent] = 0.0, 0.0
        j = int(np.argmax(left * c))
        q = rest[:, j] - Q[:, :k] @ (Q[:, :k].T @ rest[:, j])
        Q[:, k] = q / np.linalg.norm(q)
        coefficients[k] = Q[:, k] @ rest
        rest -= np.outer(Q[:, k], coefficients[k])
        rest[:, j] = 0.0
        picked.append(j)
    J = np.array(picked)
    others = np.setdiff1d(np.arange(m), J)
    triangle = coefficients[:, J]
    # In the scale of R, N is diag(c_J) N diag(1/c_O), and W_J is diag(c_J) W_J.
    N = solve_triangular(triangle, coefficients[:, others], check_finite=False)
    right = solve_triangular(triangle, Q.T @ V, check_finite=False)
    W_J = np.linalg.solve(np.eye(r) + ((N * c[others] ** 2) @ N.T) / c[J] ** 2, right)
    W = np.zeros((m, V.shape[1]))
    W[J] = W_J / c[J, None]
    W[others] = (N * c[others]).T @ (W_J / c[J, None] ** 2)
    return W
