"""Pairwise kernels as sums of Kronecker products of kernels of the two sides.

A kernel of pairs of objects (x, z) and (x', z') is made of the kernels k of the row objects and g
of the column objects:

    Γ((x, z), (x', z')) = Σ_t c_t L_t(x, x') R_t(z, z'),

where L_t is k, k², 1 if x = x' (identity) or 1 (ones), and R_t the same of g. A function with the
coefficients A, a p × g matrix, is f(x, z) = Σ_t c_t L_t(x, ·) A R_t(·, z). The same sum gives
products with the kernel matrix of pairs, predictions, and values of single pairs.

Two kernels between objects of one kind have symmetric or antisymmetric functions. "ranking" is
twice the antisymmetric part of "additive", f(x, z) = h(x) − h(z). "mlpk", the metric learning
pairwise kernel (k(x, x') − k(x, z') − k(z, x') + k(z, z'))², is k ⊗ k between differences of
objects. "pairs" is Σ_t k_t ⊗ g_t for several kernels on each side. The definitions follow
Viljanen, Airola, Pahikkala, *Generalized vec trick for fast learning of pairwise kernel models*,
Machine Learning 111 (2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls.core.relations.labels import NO_OFFSETS, FreeOffsets, free_offsets

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


class Term(NamedTuple):
    """A term c L ⊗ R of a pairwise kernel.

    Attributes
    ----------
    weight : float
        The factor c.
    left, right : {"kernel", "square", "identity", "ones"}, or int
        The function of the kernel of each side, or the index of one of several kernels.
    """

    weight: float
    left: str | int
    right: str | int


class SideValues:
    """Kernel values between n' objects of a side and its n training objects.

    Parameters
    ----------
    K : ndarray of shape (n', n)
    same : sparse array of shape (n', n), optional
        Indicator matrix of matching training objects. None: all training objects in their order.
    parts : list of ndarray of shape (n', n)
        Values of every kernel in the sum K, for "pairs".
    """

    def __init__(self, K: Array, same: Any = None, parts: Sequence[Array] = ()) -> None:
        self.K, self.same, self.parts = K, same, parts

    def __len__(self) -> int:
        return len(self.K)

    @cached_property
    def square(self) -> Array:
        """k(x, x')², shape (n', n)."""
        return self.K**2

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

    def after(self, kind: str | int, B: Array) -> Array:
        """Multiply B (k, n) by the transposed values; shape (k, n'), or (k, 1) for ones."""
        if kind == ONES:
            return B.sum(axis=1, keepdims=True)
        if kind == IDENTITY:
            return B if self.same is None else (self.same @ B.T).T
        return B @ self.matrix(kind).T

    def gram(self, kind: str | int, rows: Array, cols: Array) -> Array:
        """Return values between training objects, shape (len(rows), len(cols))."""
        if kind == ONES:
            return np.ones((len(rows), len(cols)))
        if kind == IDENTITY:
            return (rows[:, None] == cols).astype(np.float64)
        return self.matrix(kind)[np.ix_(rows, cols)]

    def lengths(self, kind: str | int) -> Array:
        """Compute norms of the rows of values, shape (n',)."""
        if kind == ONES:
            return np.full(len(self), np.sqrt(self.K.shape[1]))
        if kind == IDENTITY:
            return np.ones(len(self))
        return np.linalg.norm(self.matrix(kind), axis=1)


class PairwiseKernel:
    """A kernel of pairs.

    Parameters
    ----------
    name : str
    terms : tuple of Term
        The terms. For every L ⊗ R there is R ⊗ L, so that rows and columns can be exchanged.
    sign : {0, 1, −1}
        1 (−1): coefficients are made symmetric (antisymmetric), see `symmetrised`.
    differences : bool
        Whether the kernel compares differences of the objects of pairs ("mlpk").
    spectral : bool
        Whether products of eigenvectors of the two kernels are eigenvectors of the kernel matrix
        of all pairs.
    """

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

    def eigenvalues(self, lam: Array, sigma: Array) -> Array:
        """Compute eigenvalues (r, s) for products of eigenvectors, from λ (r,) and σ (s,).

        For a kernel that is not spectral, these are the eigenvalues of its term k ⊗ g.
        """
        if self.name == "cartesian":
            return np.add.outer(lam, sigma)
        weight = sum(term.weight for term in self.terms if term[1:] == (KERNEL, KERNEL))
        return np.outer(weight * lam, sigma)

    def symmetrised(self, A: Any, sign: int = 0) -> Any:
        """Symmetrise coefficients A (p, g), dense or sparse, according to the kernel.

        With the result, Γ defines the same function as A with the kernel ½(Γ ± Γ with swapped
        columns), or with the kernel of differences.
        """
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
            part = right.after(second, left.times(first, A))  # one row or column: all are equal
            part = part if weight == 1.0 else weight * part
            total = part if total is None else total + part
        return total

    def at(self, left: SideValues, right: SideValues, A: Any, rows: Array, cols: Array) -> Array:
        """Compute the function of A (p, g), dense or sparse, for some pairs, shape (n,)."""
        if self.differences:
            out = -2.0 * _products(left.K, (A @ right.K.T).T, rows, cols)
            out += np.vecdot(left.K, (A @ left.K.T).T)[rows]
            out += np.vecdot(right.K, (A @ right.K.T).T)[cols]
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
                out += weight * _products(left.matrix(first), product, rows, cols)
        return out

    def between(
        self,
        sides: tuple[SideValues, SideValues],
        first: tuple[Array, Array],
        second: tuple[Array, Array],
        sign: int = 0,
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
        for weight, a, b in self.terms_of(left):
            part = left.gram(a, i, k) * right.gram(b, j, m)
            if sign:
                part += sign * (left.gram(a, i, m) * right.gram(b, j, k))
                part *= 0.5
            out += part if weight == 1.0 else weight * part
        return out

    def row_sizes(self, left: SideValues, right: SideValues, rows: Array, cols: Array) -> Array:
        """Approximate norms of the rows of kernel values of some pairs, shape (n,)."""
        if self.differences:
            K = left.lengths(KERNEL)
            return (K[rows] + K[cols]) ** 2
        out = np.zeros(len(rows))
        for weight, a, b in self.terms_of(left):
            out += weight * left.lengths(a)[rows] * right.lengths(b)[cols]
        return out

    def trace(self, left: SideValues, right: SideValues) -> float:
        """Compute the trace of the kernel matrix of all pairs."""
        if self.differences:
            diagonal = left.K.diagonal()
            return float(((diagonal[:, None] + diagonal - 2.0 * left.K) ** 2).sum())
        total = 0.0
        for weight, *kinds in self.terms_of(left):
            part = weight
            for kind, side in zip(kinds, (left, right), strict=True):
                counted = kind in (IDENTITY, ONES)
                part *= len(side) if counted else float(np.abs(side.matrix(kind).diagonal()).sum())
            total += part
        return total


def sampled_products(left: Array, right: Array, rows: Array, cols: Array, out: Array) -> None:
    """Write entries (rows, cols) of left rightᵀ into out (n,), for left (p, k), right (g, k).

    Long runs of equal rows are products of a matrix and a vector.
    """
    starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]])[: len(rows)])
    if len(rows) >= RUN * len(starts):
        for first, stop in zip(starts, np.append(starts[1:], len(rows)), strict=True):
            out[first:stop] = right[cols[first:stop]] @ left[rows[first]]
        return
    for start in range(0, len(rows), CHUNK):
        part = slice(start, start + CHUNK)
        np.vecdot(left[rows[part]], right[cols[part]], out=out[part])


def _products(L: Array, T: Array, rows: Array, cols: Array) -> Array:
    """Compute sampled products for T in any memory order, as a new array (n,)."""
    out = np.empty(len(rows))
    sampled_products(L, np.ascontiguousarray(T), rows, cols, out)
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
        # Functions of the same form, with other coefficients (`core.relations.complete.TwoStep`).
        PairwiseKernel("two-step", (Term(1.0, KERNEL, KERNEL),), spectral=True),
    )
}

KRONECKER = PAIRWISE["kronecker"]


@dataclass(frozen=True)
class RelationLoss:
    """What is minimised: the loss, the symmetry of functions and the pairwise kernel.

    Attributes
    ----------
    ranking : bool
        Whether every row has a free offset (ranking loss) or not (regression).
    sign : {0, 1, −1}
        1: f(x, z) = f(z, x); −1: f(x, z) = −f(z, x).
    offsets : FreeOffsets
        Further free offsets. They are not available with a sign.
    pairwise : PairwiseKernel
    """

    ranking: bool
    sign: int = 0
    offsets: FreeOffsets = NO_OFFSETS
    pairwise: PairwiseKernel = KRONECKER

    @property
    def free(self) -> FreeOffsets:
        """All free offsets, including those of the ranking loss."""
        return free_offsets(self.offsets, ranking=self.ranking)
