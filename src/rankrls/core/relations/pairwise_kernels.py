"""Pairwise kernels Γ((x, z), (x', z')) = Σ_t c_t L_t(x, x') R_t(z, z') of kernels of two sides.

L_t is k, k², 1 if x = x' (identity) or 1 (ones), and R_t the same of g. A function with the
coefficients A (p, g) is f(x, z) = Σ_t c_t L_t(x, ·) A R_t(·, z) (Viljanen, Airola, Pahikkala,
Machine Learning 111, 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls._relation_labels import NO_OFFSETS, FreeOffsets
from rankrls._resources import in_threads

__all__ = [
    "KRONECKER",
    "PAIRWISE",
    "PairwiseKernel",
    "RelationLoss",
    "SideValues",
    "Term",
    "sampled_products",
]

Array = NDArray[Any]

KERNEL, SQUARE, IDENTITY, ONES = "kernel", "square", "identity", "ones"

#: Mean number of pairs of a row above which they are multiplied together.
RUN = 4
#: Number of pairs multiplied at a time, so that two blocks of rows stay in cache.
CHUNK = 256
#: Number of products above which they are computed in threads, and of parts for these.
LARGE, PARTS = 2**22, 8


class Term(NamedTuple):
    """A term c L ⊗ R of a pairwise kernel."""

    weight: float
    left: str | int
    right: str | int


class SideValues:
    """Kernel values K (n', n) with training objects, its ``parts``, and which are ``same``."""

    def __init__(self, K: Array, same: Any = None, parts: Sequence[Array] = ()) -> None:
        self.K, self.same, self.parts = K, same, parts

    def __len__(self) -> int:
        return len(self.K)

    @cached_property
    def square(self) -> Array:
        """k(x, x')², shape (n', n)."""
        return self.K**2

    @cached_property
    def turned(self) -> Array:
        """Kᵀ in the memory order of products with sparse matrices."""
        return np.ascontiguousarray(self.K.T)

    def matrix(self, kind: str | int) -> Array:
        """Return values of the kernel, its square, or one of several kernels, shape (n', n)."""
        if isinstance(kind, int):
            return self.parts[kind]
        return self.K if kind == KERNEL else self.square

    def times(self, kind: str | int, A: Any) -> Any:
        """Multiply values by A (n, k); shape (n', k), or (1, k) for ones, where rows are equal."""
        if kind == ONES:
            return np.asarray(A.sum(axis=0)).reshape(1, -1)
        if kind == IDENTITY:
            return A if self.same is None else self.same @ A
        return self.matrix(kind) @ A

    def gram(self, kind: str | int, rows: Array, cols: Array) -> Array:
        """Return values between training objects, shape (len(rows), len(cols))."""
        if kind == ONES:
            return np.ones((len(rows), len(cols)))
        if kind == IDENTITY:
            return (rows[:, None] == cols).astype(np.float64)
        return self.matrix(kind)[np.ix_(rows, cols)]

    def diagonal(self, kind: str | int) -> Array:
        """Return the sizes of values of training objects with themselves, shape (n,)."""
        if kind in (ONES, IDENTITY):
            return np.ones(len(self))
        return np.abs(self.matrix(kind).diagonal())


class PairwiseKernel:
    """A kernel of pairs, given by terms; with L ⊗ R there is always R ⊗ L."""

    def __init__(
        self,
        name: str,
        terms: tuple[Term, ...],
        sign: int = 0,
        *,
        differences: bool = False,
        spectral: bool = False,
    ) -> None:
        self.name, self.terms, self.sign = name, terms, sign
        #: The weight of the term k ⊗ g.
        self.weight = sum(term.weight for term in terms if term[1:] == (KERNEL, KERNEL))
        self.differences, self.spectral = differences, spectral
        #: 1: all functions are symmetric; −1: antisymmetric; 0: neither.
        self.symmetry = 1 if differences else sign
        #: Whether the kernel needs pairs of objects of one kind.
        self.one_domain = self.symmetry != 0
        #: Whether functions have the form k_xᵀ A g_z, as for K ⊗ G.
        self.plain = terms == (Term(1.0, KERNEL, KERNEL),) and not differences
        #: Whether the kernel is a sum over several kernels of each side ("pairs").
        self.several = not terms
        #: Whether functions are sums of functions of the two objects.
        self.additive = bool(terms) and not differences and all(ONES in term for term in terms)
        #: Whether functions are zero for objects that a kernel does not describe.
        self.multiplies = not differences and not any({ONES, SQUARE} & set(term) for term in terms)
        #: Whether k(x, x') may be replaced by k(x − c, x' − c), for a linear kernel k.
        self.sees_differences = differences or name == "ranking"
        #: Whether an identity term distinguishes training objects from new ones.
        self.knows = any(IDENTITY in term for term in terms)

    def terms_of(self, left: SideValues) -> tuple[Term, ...]:
        """Return the terms; for "pairs", one for each kernel of a side."""
        return self.terms or tuple(Term(1.0, t, t) for t in range(len(left.parts)))

    def terms_besides(self, free: FreeOffsets, left: SideValues) -> list[Term]:
        """Return the terms without those that offsets absorb, beside which others lose digits."""
        return [
            term
            for term in self.terms_of(left)
            if not ((free.rows and term.right == ONES) or (free.columns and term.left == ONES))
        ]

    def eigenvalues(self, lam: Array, sigma: Array) -> Array:
        """Compute eigenvalues (r, s) of Γ, or of its term k ⊗ g, from λ (r,) and σ (s,)."""
        if self.name == "cartesian":
            return np.add.outer(lam, sigma)
        return np.outer(self.weight * lam, sigma)

    def symmetrised(self, A: Any, sign: int = 0) -> Any:
        """Symmetrise A (p, g), dense or sparse: Γ then has its function for ½(Γ ± swapped Γ)."""
        sign = self.sign or sign
        if self.differences:  # e_xx − e_xz − e_zx + e_zz for every pair
            rows, columns = (np.asarray(A.sum(axis=axis)).ravel() for axis in (1, 0))
            if sparse.issparse(A):
                return (sparse.diags_array(rows + columns) - A - A.T).tocsr()
            return np.diag(rows + columns) - A - A.T
        if sign:
            A = 0.5 * (A + sign * A.T)
            return A.tocsr() if sparse.issparse(A) else A
        return A

    def table(self, left: SideValues, right: SideValues, A: Array) -> Array:
        """Compute the function of A (p, g) for all pairs, shape (len(left), len(right))."""
        if self.differences:  # (k_x − k_z)ᵀ A (k_x − k_z) with A = Aᵀ
            product = left.K @ A
            out = -2.0 * (product @ right.K.T)
            out += np.vecdot(product, left.K)[:, None]
            out += np.vecdot(right.K @ A, right.K)
            return out
        total: Any = None
        for weight, first, second in self.terms_of(left):
            part = right.times(second, left.times(first, A).T).T  # one row or column if equal
            part = part if weight == 1.0 else weight * part
            total = part if total is None else total + part
        return total

    def at(self, left: SideValues, right: SideValues, A: Any, rows: Array, cols: Array) -> Array:
        """Compute the function of A (p, g), dense or sparse, for some pairs, shape (n,)."""
        if self.plain:
            return sampled_products(left.K, (A @ right.turned).T, rows, cols)
        if self.differences:
            out = -2.0 * sampled_products(left.K, (A @ right.turned).T, rows, cols)
            out += np.vecdot(left.K, (A @ left.turned).T)[rows]
            out += np.vecdot(right.K, (A @ right.turned).T)[cols]
            return out
        out = np.zeros(len(rows))
        for weight, first, second in self.terms_of(left):
            if first == ONES:
                values = right.times(second, left.times(ONES, A).T)[:, 0]
                out += weight * (values[cols] if len(values) > 1 else values)
                continue
            product = right.times(second, A.T)  # (g', p): row j is column j of A Rᵀ
            product = product.toarray() if sparse.issparse(product) else product
            if second == ONES:
                out += weight * left.times(first, product.T)[rows, 0]
            elif first == IDENTITY:
                out += weight * left.times(IDENTITY, product.T)[rows, cols]
            else:
                out += weight * sampled_products(left.matrix(first), product, rows, cols)
        return out

    def between(
        self,
        sides: tuple[SideValues, SideValues],
        first: tuple[Array, Array],
        second: tuple[Array, Array],
        sign: int = 0,
        free: FreeOffsets = NO_OFFSETS,
    ) -> Array:
        """Compute kernel values between pairs of training objects, shape (n, n')."""
        left, right = sides
        (i, j), (k, m) = first, second
        if self.differences:
            K = left.K
            out = K[np.ix_(i, k)] - K[np.ix_(i, m)] - K[np.ix_(j, k)] + K[np.ix_(j, m)]
            return out**2
        out = np.zeros((len(i), len(k)))
        sign = self.sign or sign
        for weight, a, b in self.terms_besides(free, left):
            part = left.gram(a, i, k) * right.gram(b, j, m)
            if sign:
                part += sign * (left.gram(a, i, m) * right.gram(b, j, k))
                part *= 0.5
            out += part if weight == 1.0 else weight * part
        return out

    def diagonal(
        self, left: SideValues, right: SideValues, free: FreeOffsets = NO_OFFSETS
    ) -> Array:
        """Compute values of all pairs of training objects with themselves, shape (p, g)."""
        if self.differences:
            k = left.K.diagonal()
            return (k[:, None] + k - 2.0 * left.K) ** 2
        total = np.zeros((len(left), len(right)))
        for weight, first, second in self.terms_besides(free, left):
            total += weight * np.outer(left.diagonal(first), right.diagonal(second))
        return total


def sampled_products(left: Array, right: Array, rows: Array, cols: Array) -> Array:
    """Compute entries (rows, cols) of left rightᵀ, shape (n,), for left (p, k) and right (g, k)."""
    n, out, right = len(rows), np.empty(len(rows)), np.ascontiguousarray(right)
    starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]])[:n])
    runs = n >= RUN * len(starts)  # long runs of equal rows
    starts = starts if runs else np.arange(0, n, CHUNK)

    def fill(part: Array) -> None:
        for first, stop in part:
            right_rows = right[cols[first:stop]]
            if runs:
                out[first:stop] = right_rows @ left[rows[first]]
            else:
                np.vecdot(left[rows[first:stop]], right_rows, out=out[first:stop])

    parts = np.column_stack([starts, np.append(starts[1:], n)[: len(starts)]])
    if n * right.shape[1] < LARGE:
        fill(parts)
    else:
        in_threads(fill, np.array_split(parts, PARTS), 0)
    return out


ADDITIVE = (Term(1.0, KERNEL, ONES), Term(1.0, ONES, KERNEL))

PAIRWISE = {
    kernel.name: kernel
    for kernel in (
        PairwiseKernel("kronecker", (Term(1.0, KERNEL, KERNEL),), spectral=True),
        PairwiseKernel(
            "cartesian", (Term(1.0, KERNEL, IDENTITY), Term(1.0, IDENTITY, KERNEL)), spectral=True
        ),
        PairwiseKernel("additive", ADDITIVE),
        PairwiseKernel(
            "polynomial",
            (Term(1.0, SQUARE, ONES), Term(2.0, KERNEL, KERNEL), Term(1.0, ONES, SQUARE)),
        ),
        PairwiseKernel("mlpk", (Term(1.0, KERNEL, KERNEL),), differences=True),
        PairwiseKernel("ranking", tuple(term._replace(weight=2.0) for term in ADDITIVE), sign=-1),
        PairwiseKernel("pairs", ()),
        # Functions of the same form, with other coefficients (`CompleteSpectrum`).
        PairwiseKernel("two-step", (Term(1.0, KERNEL, KERNEL),), spectral=True),
    )
}

KRONECKER = PAIRWISE["kronecker"]


@dataclass(frozen=True)
class RelationLoss:
    """What is minimised: ``ranking`` frees row offsets, ``sign`` s: f(x, z) = s f(z, x)."""

    ranking: bool
    sign: int = 0
    offsets: FreeOffsets = NO_OFFSETS  # further free offsets, not with a sign
    pairwise: PairwiseKernel = KRONECKER

    @property
    def free(self) -> FreeOffsets:
        """All free offsets, including those of the ranking loss."""
        rows, columns = self.ranking or self.offsets.rows, self.offsets.columns
        return FreeOffsets(rows, columns, self.offsets.constant and not (rows or columns))
