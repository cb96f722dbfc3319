"""Solve incomplete relations by a factorisation over products of features or observed pairs.

With the eigenvectors V, U of the two kernels, f has the values V (λσᵀ ∘ inner) Uᵀ at the objects.
Few features have few eigenvectors, for any number of observed pairs. The system over the products
of eigenvectors (primal) is then smaller. Otherwise the system over the observed pairs (dual) is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg.lapack import dpocon, dpotrf, dpotrs

from rankrls.core.linalg.factorizations import EigenFactorization, factorize
from rankrls.core.linalg.feature_svd import feature_svd
from rankrls.core.relations.edges import EdgeFactor, EdgeKernel
from rankrls.core.relations.labels import NO_OFFSETS, Cells, FreeOffsets
from rankrls.core.relations.pairwise import KRONECKER, PairwiseKernel
from rankrls.core.relations.sides import Side, Spectrum

__all__ = [
    "fits_design",
    "n_unknowns",
    "primal_cost",
    "solve_by_design",
    "solve_over_cells",
    "solve_over_products",
]

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)

#: Numbers in a work space.
WORK = 2**22

#: Reciprocal condition number of a scaled system above which Cholesky is accurate to ten digits.
WELL_CONDITIONED = 2e-6

#: Maximal number of products (or pairs) for which singular vectors are computed otherwise.
MAX_SVD = 1500

#: Maximal number of entries of a matrix of products of features for all observed pairs.
MAX_DESIGN = 2**24


def n_unknowns(r: int, s: int, sign: int) -> int:
    """Return the number of free entries of an r × s matrix, (anti)symmetric if there is a sign."""
    return r * s if sign == 0 else r * (r + sign) // 2


def primal_cost(n_cells: int, p: int, r: int, s: int) -> float:
    """Estimate the number of multiplications of the system over all products of features.

    Multiplications with sparse matrices are slower and count eight times (measured).
    """
    return 4.0 * n_cells * s**2 + 0.25 * p * (r * s) ** 2 + (r * s) ** 3 / 3


def solve_over_products(
    left: Spectrum,
    right: Spectrum,
    cells: Cells,
    alphas: Array,
    *,
    ranking: bool,
    sign: int,
    offsets: FreeOffsets = NO_OFFSETS,
) -> tuple[Array, float]:
    """Compute inner coefficients (n_alphas, r, s) by a system over products of eigenvectors.

    The second result is an estimate of their relative rounding error.

    Parameters
    ----------
    left : Spectrum
        λ, V of the row objects, without the null space.
    right : Spectrum
        σ, U of the column objects, centred for the ranking loss. With a sign, this is ``left``.
    cells : Cells
    alphas : ndarray of shape (n_alphas,)
    ranking : bool
    sign : {0, 1, −1}
    offsets : FreeOffsets
        Free offsets, except those of columns.

    Notes
    -----
    With the values θ = λσᵀ ∘ inner, the products Φ of eigenvectors over the cells and Λ = λσᵀ,

        (ΦᵀLΦ + alpha diag(1/Λ)) θ = ΦᵀLy.

    It is solved by a Cholesky factorisation with rows and columns scaled to a unit diagonal. The
    accuracy depends on the condition of the scaled system, and not on the scales of the features.
    If the scaled system is ill-conditioned (some products are not determined by the observed
    pairs, and alpha is small), the singular vectors of L^½ Φ Λ^½ are computed instead.
    """
    factor = EdgeFactor(cells, centred=ranking, offsets=offsets)
    products = _EigenvectorProducts(left, right, factor, sign)
    theta, worst = np.zeros((len(alphas), products.n)), 1.0
    if products.n:
        gram, cross = products.moments()
        for a, alpha in enumerate(alphas):
            theta[a], condition = _scaled_cholesky(gram, alpha / products.scale, cross)
            worst = min(worst, condition)
        if worst < WELL_CONDITIONED and products.n <= MAX_SVD:
            theta, worst = products.by_singular_vectors(alphas), 1.0
        elif not np.isfinite(theta).all():
            theta = products.by_eigenvectors(gram, cross, alphas)
    return products.unfold(theta / products.scale), EPS / max(worst, EPS)


def solve_by_design(
    left: Spectrum,
    right: Spectrum,
    cells: Cells,
    alphas: Array,
    *,
    ranking: bool,
    sign: int,
    offsets: FreeOffsets = NO_OFFSETS,
) -> Array:
    """Solve by the singular vectors of the matrix of all products over all cells."""
    factor = EdgeFactor(cells, centred=ranking, offsets=offsets)
    products = _EigenvectorProducts(left, right, factor, sign)
    return products.unfold(products.by_singular_vectors(alphas) / products.scale)


def fits_design(left: Spectrum, right: Spectrum, n_cells: int, sign: int) -> bool:
    """Whether the matrix of `solve_by_design` is small enough to be decomposed."""
    n = n_unknowns(len(left.values), len(right.values), sign)
    return min(n, n_cells) <= MAX_SVD and n * n_cells <= MAX_DESIGN


def solve_over_cells(
    rows: Side,
    columns: Side,
    cells: Cells,
    alphas: Array,
    *,
    ranking: bool,
    sign: int,
    offsets: FreeOffsets = NO_OFFSETS,
    pairwise: PairwiseKernel = KRONECKER,
) -> Array:
    """Compute coefficients A of shape (n_alphas, p, g) by a system over the q cells.

    With F the factor of the loss (L = F Fᵀ) and Γ the pairwise kernel between the cells, the
    coefficients are a = F (FᵀΓF + alpha I)⁻¹ Fᵀy.
    """
    factor = EdgeFactor(cells, centred=ranking, offsets=offsets)
    ends = (cells.rows, cells.cols)
    kernel = EdgeKernel(rows.values, columns.values, ends, sign=sign, pairwise=pairwise)
    gram = kernel.dense()
    S = factor.rmatmat(np.ascontiguousarray(factor.rmatmat(gram).T))
    S = 0.5 * (S + S.T)
    b = factor.target[:, None]
    noise = EPS * float(np.abs(gram.diagonal()).max(initial=0.0))
    made = factorize(S, alphas, b, in_range=False, noise=noise * float(cells.weight.max()))
    x = made.solve_path(b, alphas)[:, :, 0]
    return np.stack([kernel.scatter(factor.matvec(solution)) for solution in x])


class _EigenvectorProducts:
    """Products of eigenvectors of the two sides, over observed pairs.

    Attributes
    ----------
    n : int
        Number of products.
    scale : ndarray of shape (n,)
        The products Λ of eigenvalues.
    """

    def __init__(self, left: Spectrum, right: Spectrum, factor: EdgeFactor, sign: int) -> None:
        self.phi, self.psi = left.vectors, right.vectors
        self.factor, self.sign = factor, sign
        r, s = len(left.values), len(right.values)
        self.n = n_unknowns(r, s, sign)
        scale = np.outer(left.values, right.values)
        # A symmetric matrix has the entries on and above the diagonal, an antisymmetric one above.
        self.at = np.triu_indices(r, 0 if sign == 1 else 1)
        self.scale = scale[self.at] if sign else scale.ravel()

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Generate FᵀΦ in blocks of whole rows of the relation: cells and arrays (n_cells, n)."""
        factor, cells, sign = self.factor, self.factor.cells, self.sign
        a, b = self.at
        bounds = np.append(factor.starts, len(cells))
        begin = 0
        while begin < len(factor.starts):
            wanted = bounds[begin] + max(1, WORK // max(self.n, self.psi.shape[1]))
            end = max(begin + 1, int(np.searchsorted(bounds, wanted, "right")) - 1)
            part = slice(bounds[begin], bounds[end])
            x, z = self.phi[cells.rows[part]], self.psi[cells.cols[part]]
            weight = cells.weight[part, None]
            if factor.centred:  # x is the same for all cells of a row
                starts = factor.starts[begin:end] - bounds[begin]
                sums = np.add.reduceat(weight * z, starts, axis=0)
                means = sums / np.add.reduceat(weight, starts, axis=0)
                z = z - np.repeat(means, factor.lengths[begin:end], axis=0)
            z = z if factor.plain else np.sqrt(weight) * z
            if sign:
                scale = np.where(a == b, 0.5, np.sqrt(0.5))
                products = scale * (x[:, a] * z[:, b] + sign * z[:, a] * x[:, b])
            else:
                products = (x[:, :, None] * z[:, None, :]).reshape(len(x), self.n)
            yield part, products
            begin = end

    def moments(self) -> tuple[Array, Array]:
        """Compute ΦᵀLΦ and ΦᵀLy, shapes (n, n) and (n,).

        With v, u the rows of V and U, ΦᵀLΦ is Σ_rows vvᵀ ⊗ Σ_cells ω uuᵀ (minus the offset of the
        row). The inner sums for all rows are one sparse matrix product, and the outer sum is one
        dense matrix product. Both only need a triangle of vvᵀ and uuᵀ.
        """
        factor, cells = self.factor, self.factor.cells
        V, U = self.phi, self.psi
        (p, r), s = V.shape, U.shape[1]
        a, b = np.triu_indices(s)
        i, j = np.triu_indices(r)
        pointers = np.searchsorted(cells.rows, np.arange(p + 1))

        def table(values: Array) -> sparse.csr_array:
            return sparse.csr_array((values, cells.cols, pointers), shape=cells.shape)

        weights, products = table(cells.weight), U[:, a] * U[:, b]
        sums = weights @ U
        share = np.bincount(cells.rows, cells.weight, minlength=p)
        np.divide(1.0, share, out=share, where=share > 0)
        corners = np.zeros((len(i), len(a)))
        size = max(1, WORK // max(len(a), len(i)))
        for start in range(0, p, size):
            part = slice(start, start + size)
            inner = weights[part] @ products
            if factor.centred:
                inner -= sums[part][:, a] * (share[part, None] * sums[part][:, b])
            corners += (V[part][:, i] * V[part][:, j]).T @ inner
        # (r, r, s, s) from the triangles, then the two indices of a product side by side
        rows, columns = np.empty((r, r), dtype=int), np.empty((s, s), dtype=int)
        rows[i, j] = rows[j, i] = np.arange(len(i))
        columns[a, b] = columns[b, a] = np.arange(len(a))
        gram = corners[rows[:, None, :, None], columns[None, :, None, :]].reshape(r * s, r * s)
        cross = (V.T @ (table(factor.matvec(factor.target)) @ U)).ravel()
        if factor.free.constant:
            means = (V.T @ sums).ravel()
            gram -= np.outer(means, means / cells.weight.sum())
        return self._folded(gram, cross) if self.sign else (gram, cross)

    def _folded(self, gram: Array, cross: Array) -> tuple[Array, Array]:
        """Compute moments of symmetric or antisymmetric sums of products from those of products."""
        a, b = self.at
        r = self.phi.shape[1]
        scale = np.where(a == b, 0.5, np.sqrt(0.5))
        first, second = a * r + b, b * r + a
        half = gram[first] + self.sign * gram[second]
        folded = half[:, first] + self.sign * half[:, second]
        folded *= scale
        folded *= scale[:, None]
        return folded, scale * (cross[first] + self.sign * cross[second])

    def by_singular_vectors(self, alphas: Array) -> Array:
        """Compute the values θ for every alpha, shape (n_alphas, n).

        R with RᵀR = ΦᵀLΦ is computed by QR decompositions of successive blocks. Unlike ΦᵀLΦ, these
        do not square the condition number of Φ.
        """
        target = self.factor.target
        constant = int(self.factor.free.constant)
        R = np.zeros((0, constant + self.n + 1))
        for part, products in self.blocks():
            columns = [products, target[part]]
            if constant:  # the other columns are orthogonal to the first one
                columns.insert(0, self.factor.root[part])
            stacked = np.vstack([R, np.column_stack(columns)])
            R = np.asarray(np.linalg.qr(stacked, mode="r"))
        R = R[constant:, constant:]
        root = np.sqrt(self.scale)
        svd = feature_svd(R[: self.n, :-1] * root)
        coordinates = svd.vectors.T @ R[: self.n, -1]
        filters = svd.singular**2 / (svd.singular**2 + alphas[:, None])
        return root * ((filters * coordinates) @ svd.weights.T)

    def by_eigenvectors(self, gram: Array, cross: Array, alphas: Array) -> Array:
        """Compute the values θ by an eigendecomposition, for large singular systems."""
        root = np.sqrt(self.scale)
        S, b = gram * root * root[:, None], (root * cross)[:, None]
        made = EigenFactorization(S, float(alphas.min()))
        return root * made.solve_path(b, alphas)[:, :, 0]

    def unfold(self, values: Array) -> Array:
        """Convert values (n_alphas, n) of products to matrices (n_alphas, r, s)."""
        out = np.zeros((len(values), self.phi.shape[1], self.psi.shape[1]))
        if self.sign:
            a, b = self.at
            values = np.where(a == b, 1.0, np.sqrt(0.5)) * values
            out[:, a, b] = values
            out[:, b, a] = self.sign * values
        else:
            out[:] = values.reshape(out.shape)
        return out


def _scaled_cholesky(S: Array, ridge: Array, b: Array) -> tuple[Array, float]:
    """Compute (S + diag(ridge))⁻¹ b by a scaled Cholesky factor, and its reciprocal condition."""
    H = S.copy()
    diagonal = np.einsum("ii->i", H)
    diagonal += ridge
    E = 1.0 / np.sqrt(diagonal)
    H *= E
    H *= E[:, None]
    norm = float(np.abs(H).sum(axis=0).max())
    factor, info = dpotrf(H.T, lower=1, clean=0, overwrite_a=1)
    if info != 0:
        return np.full_like(b, np.nan), 0.0
    condition, _ = dpocon(factor, norm, uplo="L")
    solved, _ = dpotrs(factor, E * b, lower=1)
    return E * solved, float(condition)
