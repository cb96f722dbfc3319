"""Solve additive relations, sums of functions of the two objects, by one system over the objects.

Functions of the kernel k(x, x') + g(z, z') are f(x, z) = h₁(x) + h₂(z). Functions of its
antisymmetric form are h(x) − h(z). They have p + g unknown values, for any number of observed
pairs. With the incidence matrix B of pairs and objects and the loss L over the pairs,

    (ΦᵀBᵀLBΦ + alpha I) β = ΦᵀBᵀLy,     h = Φβ,

where Φ = V √λ, with the eigenvectors and eigenvalues of the kernels. BᵀLB consists of sums of
weights by object and by pair. Free offsets are sums of columns of B, and are projected out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls.core.linalg.factorizations import factorize
from rankrls.core.relations.labels import Cells, FreeOffsets, TableOffsets, free_offsets
from rankrls.core.relations.pairwise import PairwiseKernel
from rankrls.core.relations.sides import Side, Spectrum

__all__ = ["solve_over_objects"]

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)


def solve_over_objects(
    rows: Side,
    columns: Side,
    cells: Cells,
    alphas: Array,
    *,
    ranking: bool,
    sign: int,
    offsets: FreeOffsets,
    pairwise: PairwiseKernel,
) -> Array:
    """Compute coefficients A of shape (n_alphas, p, g) for a kernel c (K ⊗ 11ᵀ + 11ᵀ ⊗ G).

    Parameters
    ----------
    rows : Side of p objects
        The row objects, with a positive semi-definite kernel.
    columns : Side of g objects
        The column objects. With a sign or an antisymmetric kernel, this is ``rows`` itself.
    cells : Cells
    alphas : ndarray of shape (n_alphas,)
    ranking, sign, offsets
        The loss, and the relation.
    pairwise : PairwiseKernel
        "additive" or "ranking".
    """
    sign = pairwise.sign or sign
    weight = pairwise.terms[0].weight
    p = cells.shape[0]
    S, r = _moments(cells, free_offsets(offsets, ranking=ranking))
    left = rows.spectrum().range
    if sign:  # f = h(x) ± h(z), with the kernel ½ c K of h
        S = S[:p, :p] + S[p:, p:] + sign * (S[:p, p:] + S[p:, :p])
        r = r[:p] + sign * r[p:]
        (v,) = _solved([left], S, r, alphas, 0.5 * weight)
        return np.stack([_with_sums(left, one, sign) for one in 0.5 * v])
    right = columns.spectrum().range
    first, second = _solved([left, right], S, r, alphas, weight)
    pairs = zip(first, second, strict=True)
    return np.stack([_with_both_sums(left, right, a, b) for a, b in pairs])


def _moments(cells: Cells, free: FreeOffsets) -> tuple[Array, Array]:
    """Compute BᵀLB of shape (p + g, p + g) and BᵀLy."""
    p, g = cells.shape
    table = sparse.csr_array((cells.weight, (cells.rows, cells.cols)), shape=cells.shape)
    W = table.toarray()
    total = W.sum(axis=1), W.sum(axis=0)
    S = np.zeros((p + g, p + g))
    best = TableOffsets(cells, free)
    share = best.shares
    if free.rows and not free.columns:  # functions of the rows are absorbed by offsets
        S[p:, p:] = np.diag(total[1]) - W.T @ (share[0][:, None] * W)
    elif free.columns and not free.rows:
        S[:p, :p] = np.diag(total[0]) - (W * share[1]) @ W.T
    elif not free.rows:
        S[:p, :p], S[p:, p:] = np.diag(total[0]), np.diag(total[1])
        S[:p, p:], S[p:, :p] = W, W.T
        if free.constant:
            m = np.concatenate(total)
            S -= np.outer(m, m / total[0].sum())
    y = cells.y
    if any(free) and len(y):
        y = y - y[0]
        y = y - best.fit(cells, y).at(cells.rows, cells.cols)
    weighted = cells.weight * y
    r = [
        np.bincount(cells.rows, weighted, minlength=p),
        np.bincount(cells.cols, weighted, minlength=g),
    ]
    return S, np.concatenate(r)


def _solved(
    spectra: list[Spectrum], S: Array, r: Array, alphas: Array, weight: float
) -> list[Array]:
    """Compute coefficients v of shape (n_alphas, n) of h = c K v, for each side."""
    parts, start = [], 0
    for spectrum in spectra:
        parts.append(slice(start, start + len(spectrum.vectors)))
        start = parts[-1].stop
    Phi = [side.vectors * np.sqrt(weight * side.values) for side in spectra]
    gram = np.block(
        [
            [a.T @ S[i, j] @ b for b, j in zip(Phi, parts, strict=True)]
            for a, i in zip(Phi, parts, strict=True)
        ]
    )
    gram = 0.5 * (gram + gram.T)
    b = np.concatenate([a.T @ r[i] for a, i in zip(Phi, parts, strict=True)])[:, None]
    if not len(b):
        return [np.zeros((len(alphas), len(side.vectors))) for side in spectra]
    size = float(np.abs(S).max(initial=0.0)) * max(weight * side.top for side in spectra)
    made = factorize(gram, alphas, b, in_range=False, noise=EPS * size)
    beta = made.solve_path(b, alphas)[:, :, 0]
    out, start = [], 0
    for side in spectra:
        end = start + len(side.values)
        out.append((beta[:, start:end] / np.sqrt(weight * side.values)) @ side.vectors.T)
        start = end
    return out


def _with_sums(side: Spectrum, v: Array, sign: int) -> Array:
    """Build A = ±Aᵀ of shape (p, p) with the row sums v, up to functions of norm zero."""
    p = len(v)
    if sign == -1:
        v = _shifted(side, v, 0.0)
        return (v[:, None] - v) / p
    return (v[:, None] + v) / p - v.sum() / p**2


def _with_both_sums(left: Spectrum, right: Spectrum, a: Array, b: Array) -> Array:
    """Build A (p, g) with the row sums a and column sums b, up to functions of norm zero.

    Both have the same total, except for parts in the null space of a kernel.
    """
    total = float(b.sum() if _constants_beside(left) is not None else a.sum())
    a, b = _shifted(left, a, total), _shifted(right, b, total)
    return a[:, None] / len(b) + b / len(a) - total / (len(a) * len(b))


def _constants_beside(side: Spectrum) -> Array | None:
    """Return the part of the constants in the null space of the kernel, or None if zero."""
    one = np.ones(len(side.vectors))
    rest = one - side.vectors @ (side.vectors.T @ one)
    rest -= side.vectors @ (side.vectors.T @ rest)
    return rest if np.linalg.norm(rest) > len(one) * EPS * np.sqrt(len(one)) * 1e3 else None


def _shifted(side: Spectrum, v: Array, total: float) -> Array:
    """Change the sum of v, in the null space of the kernel or by rounding errors only."""
    rest = _constants_beside(side)
    rest = np.ones(len(v)) if rest is None else rest
    return v + rest * ((total - v.sum()) / rest.sum())
