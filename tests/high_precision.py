"""Ridge systems solved with 80 decimal digits: what double precision is held to."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np

DIGITS = 80


def exact(values):
    """The numbers of a float array, exactly, as an object array."""
    values = np.asarray(values, dtype=float)
    out = np.empty(values.shape, dtype=object)
    for index in np.ndindex(values.shape):
        out[index] = Decimal(float(values[index]))
    return out


def linear_kernel(X, Z=None):
    """Inner products of rows, without rounding to double precision."""
    with localcontext(prec=DIGITS):
        X = exact(X)
        return X @ (X if Z is None else exact(Z)).T


def solve(A, b):
    """A⁻¹ b by elimination with row pivoting, in the precision of A (n, n) and b (n,)."""
    A = np.concatenate([A, b[:, None]], axis=1)
    n = len(A)
    for k in range(n):
        pivot = k + int(np.argmax(np.abs(A[k:, k])))
        A[[k, pivot]] = A[[pivot, k]]
        rows = k + 1 + np.flatnonzero(A[k + 1 :, k] != 0)
        if len(rows):
            A[rows, k:] -= np.outer(A[rows, k] / A[k, k], A[k, k:])
    x = A[:, n].copy()
    for k in range(n - 1, -1, -1):
        x[k] = (x[k] - A[k, k + 1 : n] @ x[k + 1 :]) / A[k, k]
    return x


def linear_coefficients(X, s, qid, alpha):
    """w of RankRLS: Σ_pairs of a query (s_i − s_j − (x_i − x_j)·w)² + alpha ‖w‖², shape (n,)."""
    with localcontext(prec=DIGITS):
        X, s, alpha = exact(X), exact(s), Decimal(float(alpha))
        m, n = X.shape
        L = np.full((m, m), Decimal(0))
        for query in np.unique(qid):
            rows = np.flatnonzero(qid == query)
            L[np.ix_(rows, rows)] = Decimal(-1)
            L[rows, rows] += Decimal(len(rows))
        if n <= m:
            A, b = X.T @ (L @ X), X.T @ (L @ s)
        else:  # w = Xᵀa with (LXXᵀ + alpha I) a = Ls
            A, b = L @ (X @ X.T), L @ s
        A[np.arange(len(A)), np.arange(len(A))] += alpha
        w = solve(A, b)
        return (w if n <= m else X.T @ w).astype(float)


def relation_predictions(K, G, edges, y, alpha, to, *, ranking, sign=0, name="kronecker"):
    """f at other pairs, by (Γ + alpha I) a + Zc = y, Zᵀa = 0, c an offset for each row.

    Parameters
    ----------
    K : tuple of object arrays (p, p) and (p', p)
        Kernel of the row objects, and kernel values of other objects with them.
    G : tuple of object arrays (g, g) and (g', g)
    edges : tuple of two int arrays
        Rows and columns of the labels ``y``.
    to : tuple of two int arrays
        Pairs of other objects.
    name : str
        Kernel of pairs; others than "kronecker" are between training objects.
    """
    with localcontext(prec=DIGITS):
        rows, cols = (np.asarray(part) for part in edges)
        n = len(rows)

        def kernel(left, right, i, j):
            if name != "kronecker":
                return pairwise_values(name, left, right, (i, j), (rows, cols))
            values = left[np.ix_(i, rows)] * right[np.ix_(j, cols)]
            if sign:
                values = values + sign * left[np.ix_(i, cols)] * right[np.ix_(j, rows)]
                values = values / 2
            return values

        groups = np.unique(rows) if ranking else np.empty(0, int)
        system = np.full((n + len(groups),) * 2, Decimal(0))
        system[:n, :n] = kernel(K[0], G[0], rows, cols)
        system[np.arange(n), np.arange(n)] += Decimal(float(alpha))
        for k, row in enumerate(groups):
            mine = np.flatnonzero(rows == row)
            system[mine, n + k] = system[n + k, mine] = Decimal(1)
        right = np.concatenate([exact(y), np.full(len(groups), Decimal(0))])
        a = solve(system, right)[:n]
        return (kernel(K[1], G[1], *to) @ a).astype(float)


def pairwise_values(name, K, G, first, second):
    """Γ of pairs of training objects, by the kernels of the sides, of floats or of decimals."""
    (i, j), (k, m) = first, second
    left, right = K[np.ix_(i, k)], G[np.ix_(j, m)]
    if name == "kronecker":
        return left * right
    if name == "cartesian":
        same_row, same_column = ((a[:, None] == b).astype(int) for a, b in ((i, k), (j, m)))
        return left * same_column + same_row * right
    if name == "additive":
        return left + right
    if name == "polynomial":
        return (left + right) ** 2
    differences = left - K[np.ix_(i, m)] - K[np.ix_(j, k)] + right
    return differences**2 if name == "mlpk" else differences
