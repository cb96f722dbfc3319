"""Held-out predictions of judgements (given pairs) by the model without them, without refitting.

Given pairs are edges with weights w² and targets z. In the spectrum of the problem an edge e is a
vector ψ_e = w (B_h − B_j), where every row of the data has a row of B, and the fitted difference of
two rows is (B_h − B_j) diag(σ/(σ + alpha)) b. With Ψ_U the vectors of the left-out edges U and t =
w z,

    J_UU = C_UU + Ψ_U diag(alpha/(σ + alpha)) Ψ_Uᵀ,   C = I − ΨΨᵀ,
    ρ_U = (t − Ψ b)_U + Ψ_U diag(alpha/(σ + alpha)) b,

w times the held-out residuals are e = J_UU⁻¹ ρ_U. With d_U = Ψ_U diag(σ/(σ + alpha)) b and
H_UU = I − J_UU, w times the held-out differences are d_U − H_UU e, and w² times the diagonal of
their posterior covariance is alpha J_UU⁻¹ H_UU. C does not depend on alpha. It is zero along cuts
of the graph, where rows are connected only by the prior.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import blas, eigh, lapack, solve_triangular

from rankrls._resources import few_threads
from rankrls._validation import show
from rankrls.core.linalg.factorizations import EigenFactorization, Factorization
from rankrls.core.preferences.laplacian import Factor, GroundedFactor

__all__ = [
    "CUT",
    "SINGULAR",
    "EdgeSpectrum",
    "EdgeTerms",
    "JudgementFolds",
    "Judgements",
    "leave_judgements_out",
]

Array = NDArray[Any]

#: Maximum size of a work array, and of one that should stay in cache.
WORK, CACHE = 2**21, 2**17

#: Eigenvalues of C below this count as zero, which is a cut of the graph.
CUT = 1e-10

#: Bounds of the smallest eigenvalue of J that is reliable if C is known only up to rounding; folds
#: below it are refitted.
SINGULAR = 1e-7, 1e-2

#: Largest acceptable relative error of subtracting a fold from the sum over all edges.
LOSS = 1e-9

#: A fold is refitted if less than this fraction of the sum of the eigenvalues remains.
LEFT = 1e-3


@dataclass(frozen=True)
class Judgements:
    """Given pairs as edges.

    Attributes
    ----------
    pairs : ndarray of shape (l, 2), int
        Rows (preferred, other).
    weight : ndarray of shape (l,)
        w², > 0.
    z : ndarray of shape (l,)
        Targets.
    """

    pairs: Array
    weight: Array
    z: Array


class JudgementFolds(Sequence[Array]):
    """Indices of the judgements of each fold, which are left out together; folds may overlap.

    Parameters
    ----------
    members : ndarray of shape (total,), int
        Judgements, concatenated over folds.
    sizes : ndarray of shape (n_folds,), int
    what : str
        Name of the kind of fold in messages.
    labels : sequence of length n_folds, optional
        Names of the folds, if they are not numbered.
    """

    def __init__(
        self, members: Array, sizes: Array, what: str = "fold", labels: Any = None
    ) -> None:
        self.members, self.sizes = members, sizes
        self.starts = np.cumsum(sizes) - sizes
        self.what, self.labels = what, labels

    @classmethod
    def single(cls, n: int) -> JudgementFolds:
        """One fold for each of n judgements."""
        return cls(np.arange(n), np.ones(n, dtype=np.int64), "judgement")

    @classmethod
    def of_groups(cls, codes: Array, labels: Any = None) -> JudgementFolds:
        """One fold for each of the numbers 0, 1, … in ``codes``, shape (l,), all of which occur.

        ``labels`` are the names of the groups.
        """
        what = "fold" if labels is None else "group"
        return cls(np.argsort(codes, kind="stable"), np.bincount(codes), what, labels)

    @classmethod
    def of_items(cls, pairs: Array) -> tuple[JudgementFolds, Array]:
        """One fold with all judgements of each item; also returns the items (rows)."""
        items, codes = np.unique(pairs, return_inverse=True)
        codes = codes.ravel()
        members = np.argsort(codes, kind="stable") // 2
        return cls(members, np.bincount(codes), "item", items), items

    @classmethod
    def of_list(cls, folds: Sequence[Array]) -> JudgementFolds:
        """Folds given as a list."""
        return cls(np.concatenate(folds), np.array([len(fold) for fold in folds]))

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, number: Any) -> Any:
        start = int(self.starts[number])
        return self.members[start : start + int(self.sizes[number])]

    def name(self, number: int) -> str:
        """Name of a fold in messages."""
        label = number if self.labels is None else self.labels[number]
        return f"{self.what} {show(label.item() if isinstance(label, np.generic) else label)}"

    def sums(self, values: Array) -> Array:
        """Sum values of shape (l,) over each fold, shape (n_folds,)."""
        total = np.append(0, np.cumsum(values[self.members]))
        return total[self.starts + self.sizes] - total[self.starts]

    def take(self, numbers: Array) -> JudgementFolds:
        """Select folds."""
        labels = numbers if self.labels is None else np.asarray(self.labels)[numbers]
        members = self.members[self.places(numbers)]
        return JudgementFolds(members, self.sizes[numbers], self.what, labels)

    def places(self, numbers: Array) -> Array:
        """Positions of the members of some folds, concatenated, shape (total,), int."""
        sizes = self.sizes[numbers]
        offset = np.repeat(self.starts[numbers] - np.cumsum(sizes) + sizes, sizes)
        return offset + np.arange(int(sizes.sum()))


@dataclass(frozen=True)
class EdgeSpectrum:
    """A problem in the basis of its eigenvectors, with a vector for each row.

    Attributes
    ----------
    values : ndarray of shape (q,)
        Eigenvalues σ; infinite if B and b are those of a single alpha.
    B : ndarray of shape (m, q)
    b : ndarray of shape (q, k)
    exact_cuts : bool
        Whether B is accurate enough to distinguish zero from small entries of C. This holds for
        kernels, not for explicit features.
    of_rows : function
        Rows of B for other rows, shape (n, q), up to a constant for each component, from their
        features of shape (n, n_features), or their kernel values with the rows of the data.
    extra : ndarray of shape (l, q), or None
        Contribution of the covariates of an edge to B_h − B_j.
    """

    values: Array
    B: Array
    b: Array
    exact_cuts: bool
    of_rows: Callable[[Any], Array]
    extra: Array | None = None

    @classmethod
    def of_features(
        cls, Phi: Any, C: Array | None, made: EigenFactorization, c: Array
    ) -> EdgeSpectrum:
        """Make a spectrum from features Φ, shape (m, n), and covariates C of the edges, (l, q).

        The matrix of their normal equations is V diag(σ) Vᵀ, and c their right side.
        """
        used = ~made.null
        V = made.vectors[:, used] / np.sqrt(made.values[used])
        n = Phi.shape[1]
        extra = None if C is None else C @ V[n:]

        def of_rows(rows: Any) -> Array:
            return np.asarray(rows @ V[:n])

        return cls(made.values[used], of_rows(Phi), V.T @ c, False, of_rows, extra)

    @classmethod
    def of_kernel(
        cls, factor: Factor, made: EigenFactorization, t: Array, *, coordinates: bool = False
    ) -> EdgeSpectrum:
        """Make a spectrum from L = F Fᵀ, FᵀKF = V diag(σ) Vᵀ and F t = r.

        With ``coordinates`` the rows of B are those of V, one for each column of F.

        An edge is F φ for one φ, and ψ = Vᵀφ. Eigenvectors that certainly belong to the eigenvalue
        0 are assigned to C, which is then zero for edges that lie in the span of the others.
        """
        used = ~made.null if np.isinf(made.floor) else np.ones(len(made.values), dtype=bool)
        V, sigma = made.vectors[:, used], made.values[used]

        def of_rows(K: Any) -> Array:
            projected = factor.rmatmat(np.ascontiguousarray(np.asarray(K).T)).T @ V
            return np.divide(projected, sigma, out=np.zeros_like(projected), where=sigma > 0)

        if coordinates:
            return cls(sigma, V, V.T @ t, True, of_rows)
        assert isinstance(factor, GroundedFactor)
        B = np.zeros((factor.shape[0], V.shape[1]))
        if len(factor.free):
            B[factor.free] = solve_triangular(
                factor.R, V, lower=True, trans="T", check_finite=False
            )
        return cls(sigma, B, V.T @ t, True, of_rows)

    @classmethod
    def of_alpha(
        cls, Phi: Any, C: Array | None, made: Factorization, c: Array, alpha: float
    ) -> EdgeSpectrum:
        """Make a spectrum for a single alpha, for features of very different scales."""
        n, q = Phi.shape[1], 0 if C is None else C.shape[1]

        def whiten(rows: Array) -> Array:
            return next(made.whitened_rows(rows, np.array([alpha]))).copy()

        def of_rows(rows: Any) -> Array:
            rows = rows.toarray() if sparse.issparse(rows) else rows
            return whiten(np.hstack([rows, np.zeros((len(rows), q))]))

        B, b = of_rows(Phi), whiten(c.T).T
        extra = None if C is None else whiten(np.hstack([np.zeros((len(C), n)), C]))
        return cls(np.full(B.shape[1], np.inf), B, b, False, of_rows, extra)


def leave_judgements_out(
    spectrum: EdgeSpectrum,
    edges: Judgements,
    folds: JudgementFolds,
    alphas: Array,
    values: Array,
    variance: Array | None = None,
) -> Array:
    """Compute f(preferred) − f(other) for each fold by the model without its judgements.

    Parameters
    ----------
    spectrum : EdgeSpectrum
    edges : Judgements
    folds : JudgementFolds
    alphas : ndarray of shape (n_alphas,)
    values : ndarray of shape (n_alphas, total, k)
        Output array for the differences, concatenated over folds.
    variance : ndarray of shape (n_alphas, total), optional
        Output array for their posterior variances, without noise.

    Returns
    -------
    ndarray of shape (n_alphas, n_folds), bool
        Whether the fold must be refitted.
    """
    sizes = folds.sizes
    unsafe = np.zeros((len(alphas), len(folds)), dtype=bool)
    if not len(spectrum.values):  # the compared items do not differ
        values[:] = 0.0
        if variance is not None:
            variance[:] = 0.0
        return unsafe
    problem = EdgeTerms(spectrum, edges, alphas, variance is not None)
    different = np.unique(sizes)
    large = np.isin(sizes, [size for size in different if problem.by_vectors(int(size))])
    for numbers in _batches(sizes, large, max(1, len(spectrum.values))):
        if large[numbers[0]]:
            # For many matrices of moderate size, BLAS threads would mostly wait for each other.
            with few_threads(len(spectrum.values)):
                found = _solve_vectors(problem, [folds[i] for i in numbers])
            places = folds.places(numbers)
        else:
            size = int(sizes[numbers[0]])
            places = folds.starts[numbers][:, None] + np.arange(size)
            solve = _solve_single if size == 1 else _solve_edges
            found = solve(problem, folds.members[places])
        differences, spread, unsafe[:, _slots(numbers)] = found
        where = _slots(places.ravel())
        values[:, where] = differences.reshape(len(alphas), places.size, -1)
        if variance is not None and spread is not None:
            variance[:, where] = spread.reshape(len(alphas), places.size)
    return unsafe


def _slots(places: Array) -> Any:
    """Return ascending positions as a slice if they are contiguous."""
    first, last = int(places[0]), int(places[-1])
    return slice(first, last + 1) if last - first + 1 == len(places) else places


def _batches(sizes: Array, large: Array, q: int) -> Iterator[Array]:
    """Indices of folds that are processed together: small ones of equal size, or large ones."""
    for size in np.unique(sizes[~large]).tolist():
        same = np.flatnonzero((sizes == size) & ~large)
        step = max(256, CACHE // q) if size == 1 else max(1, WORK // (size * max(q, size)))
        yield from (same[first : first + step] for first in range(0, len(same), step))
    rest = np.flatnonzero(large)
    ends = np.cumsum(sizes[rest]) * q // (4 * WORK)  # limits the vectors kept in memory
    yield from np.split(rest, np.flatnonzero(np.diff(ends)) + 1) if len(rest) else ()


class EdgeTerms:
    """Parts of the residuals of all edges, used to build the systems of folds."""

    def __init__(
        self, spectrum: EdgeSpectrum, edges: Judgements, alphas: Array, variances: bool
    ) -> None:
        self.spectrum, self.edges, self.alphas = spectrum, edges, alphas
        self.variances = variances
        #: alpha/(σ + alpha) and σ/(σ + alpha), shape (q, n_alphas).
        sigma = spectrum.values[:, None]
        self.shrinkage = alphas / (sigma + alphas)
        self.share = np.divide(
            sigma, sigma + alphas, out=np.ones_like(self.shrinkage), where=np.isfinite(sigma)
        )
        self.root = np.sqrt(edges.weight)
        self.t = self.root * edges.z
        self.at_zero = self._by_row(np.ones((len(spectrum.b), 1)))
        self.shrunken = self._by_row(self.shrinkage)
        self.fitted = self._by_row(self.share)

    def _by_row(self, weight: Array) -> tuple[Array, Array | None]:
        """B diag(weight) b, (n_weights, m, k), and the part of covariates, (n_weights, l, k)."""
        b, extra = self.spectrum.b, self.spectrum.extra
        weighted = weight[:, :, None] * b[:, None]
        added = None if extra is None else _of_alphas(extra, weighted)
        return _of_alphas(self.spectrum.B, weighted), added

    def vectors(self, U: Array) -> Array:
        """Vectors Ψ_U of the edges U, shape (*U.shape, q)."""
        pairs = self.edges.pairs[U]
        Psi = self.spectrum.B[pairs[..., 0]]
        Psi -= self.spectrum.B[pairs[..., 1]]
        if self.spectrum.extra is not None:
            Psi += self.spectrum.extra[U]
        Psi *= self.root[U][..., None]
        return Psi

    def of_edges(self, values: tuple[Array, Array | None], U: Array) -> Array:
        """w (f_h − f_j + …) from the result of `_by_row`, shape (n_weights, *U.shape, k)."""
        pairs, (f, added) = self.edges.pairs[U], values
        by_row = np.moveaxis(f, 0, 1)  # as it is stored
        differences = by_row[pairs[..., 0]]
        differences -= by_row[pairs[..., 1]]
        if added is not None:
            differences += np.moveaxis(added, 0, 1)[U]
        differences *= self.root[U][..., None, None]
        return np.moveaxis(differences, -2, 0)

    def fixed(self, U: Array) -> Array:
        """(t − Ψ b)_U, the part of the residuals that does not depend on alpha, (*U.shape, k)."""
        return self.t[U][..., None] - self.of_edges(self.at_zero, U)[0]

    def by_vectors(self, size: int) -> bool:
        """Whether folds of this size are subtracted from the full system.

        Otherwise they are solved separately. Subtraction is faster for large folds but loses
        precision if alpha is very small.
        """
        q, n_alphas = len(self.spectrum.values), len(self.alphas)
        of_edges = n_alphas * size * size * (2 * q + 15 * size)
        of_vectors = 2 * size * q * q
        if n_alphas == 1:
            of_vectors += q**3 + (size * q * q if self.variances else 0)
        else:
            of_vectors += (30 if self.variances else 8) * q**3
        cheaper = of_vectors < of_edges and bool(np.isfinite(self.spectrum.values).all())
        return cheaper and (not self.inaccurate().any() or size > 4 * q)

    @cached_property
    def _single(self) -> tuple[Array, tuple[Array, Array | None], Array, Array]:
        """Weights (q, 1 + n_alphas + …), the rows of b with them, and their use for each alpha.

        The first column is 1. For each alpha, the next column is whichever of share and shrinkage
        is at most 1/2 throughout, so that the other follows by a subtraction without loss of
        precision; if neither is, both are included.
        """
        small = self.share.max(axis=0, initial=0.0) <= 0.5
        both = ~small & (self.shrinkage.max(axis=0, initial=0.0) > 0.5)
        ones = np.ones((len(self.share), 1))
        first = np.where(small, self.share, self.shrinkage)
        weight = np.hstack([ones, first, self.share[:, both]])
        return weight, self._by_row(weight), small, both

    def of_singles(self, U: Array) -> tuple[Any, Any]:
        """Quantities needed to leave out the edges U one by one, for all alphas.

        Returns
        -------
        squares : three arrays of shape (n, 1, 1) and (n, n_alphas, 1)
            Σψ², and the same sum weighted by shrinkage and by share.
        differences : three arrays of shape (n, 1, k) and (n, n_alphas, k)
            Ψb, and the same weighted by shrinkage and by share.
        """
        weight, rows, small, both = self._single
        squares = self.vectors(U)
        squares *= squares
        found = []
        for products in ((squares @ weight)[..., None], np.moveaxis(self.of_edges(rows, U), 0, 1)):
            total, first = products[:, :1], products[:, 1 : 1 + len(small)]
            second = total - first
            second[:, both] = products[:, 1 + len(small) :]
            swapped = small[:, None]
            parts = np.where(swapped, second, first), np.where(swapped, first, second)
            found.append((total, *parts))
        return found[0], found[1]

    def cut_to_zero(self, C: Array) -> Array:
        """Diagonal entries of C, with detectable cuts of the graph set to exactly zero."""
        return np.where(C < CUT, 0.0, C) if self.spectrum.exact_cuts else C

    def least(self) -> Array:
        """Threshold above which eigenvalues of J are reliable, shape (n_alphas, 1)."""
        sigma = self.spectrum.values
        if self.spectrum.exact_cuts:
            return np.zeros((len(self.alphas), 1))
        if not len(sigma) or np.isinf(sigma).any():
            return np.full((len(self.alphas), 1), SINGULAR[0])
        rounding = np.finfo(np.float64).eps * sigma.max() / (sigma.min() + self.alphas)
        return np.clip(rounding / LOSS, *SINGULAR)[:, None]

    def inaccurate(self) -> Array:
        """Alphas for which subtracting from the full system is inaccurate, (n_alphas,)."""
        if not self.spectrum.exact_cuts:
            return np.zeros(len(self.alphas), dtype=bool)
        rounding = np.finfo(np.float64).eps * float(self.spectrum.values.max(initial=0.0))
        return rounding > LOSS * self.alphas


def _solve_single(problem: EdgeTerms, U: Array) -> tuple[Array, Array | None, Array]:
    """Solve folds of one judgement, where J is a scalar, for all alphas by matrix products."""
    U = U[:, 0]
    (total, J, H), (of_b, e, values) = problem.of_singles(U)  # (n, n_alphas, 1 or k)
    C = problem.cut_to_zero(1.0 - total)
    fixed = problem.t[U][:, None, None] - of_b
    if problem.spectrum.exact_cuts:
        fixed[C[:, 0, 0] == 0] = 0.0
    J += C
    bad = problem.least() >= J[..., 0].T
    J[bad.T] = 1.0
    e += fixed
    e /= J
    root = problem.root[U][:, None, None]
    values -= H * e
    values /= root
    variance = None
    if problem.variances:
        H *= problem.alphas[:, None]
        H /= J
        H /= root**2
        variance = H[..., 0].T
    return values.transpose(1, 0, 2), variance, bad


def _solve_edges(problem: EdgeTerms, U: Array) -> tuple[Array, Array | None, Array]:
    """Solve folds of a few judgements each, by a stack of small systems J for each alpha."""
    Psi = problem.vectors(U)
    n, u = U.shape
    gram = Psi @ Psi.transpose(0, 2, 1)
    C, T = np.eye(u) - gram, np.broadcast_to(np.eye(u), gram.shape)
    fixed = problem.fixed(U)
    exact = problem.spectrum.exact_cuts
    if exact:
        # The eigenvectors T of C represent its null space, the cuts, to full precision.
        values, T = np.linalg.eigh(C)
        values = np.where(values < CUT, 0.0, values)
        C = np.zeros_like(C)
        C[:, np.arange(u), np.arange(u)] = values
        Psi, fixed = T.transpose(0, 2, 1) @ Psi, T.transpose(0, 2, 1) @ fixed
        fixed[values == 0] = 0.0
    shrunken = problem.of_edges(problem.shrunken, U)
    fitted = problem.of_edges(problem.fitted, U)
    n_alphas, root = len(problem.alphas), problem.root[U]
    differences = np.empty((n_alphas, *fixed.shape))
    variance = np.empty((n_alphas, n, u)) if problem.variances else None
    bad = np.empty((n_alphas, n), dtype=bool)
    transposed = T.transpose(0, 2, 1)
    for a, alpha in enumerate(problem.alphas):
        J = C + (Psi * problem.shrinkage[:, a]) @ Psi.transpose(0, 2, 1)
        H = (Psi * problem.share[:, a]) @ Psi.transpose(0, 2, 1)
        # Scale to a unit diagonal, since cuts and other directions may differ widely in size.
        scale = np.sqrt(np.maximum(J[:, np.arange(u), np.arange(u)], np.finfo(float).tiny))
        J /= scale[:, :, None] * scale[:, None, :]
        smallest = np.linalg.eigvalsh(J)[:, 0]
        # Along cuts J is as accurate as the scaled matrix; otherwise its absolute size matters.
        least = SINGULAR[0]
        if not exact:
            smallest, least = smallest * np.square(scale).min(axis=1), problem.least()[a, 0]
        bad[a] = smallest < least
        J[bad[a]] = np.eye(u)
        right = (fixed + transposed @ shrunken[a]) / scale[..., None]
        e = np.linalg.solve(J, right) / scale[..., None]
        differences[a] = (fitted[a] - T @ (H @ e)) / root[..., None]
        if variance is not None:
            spread = np.linalg.solve(J, H / scale[..., None]) / scale[..., None]
            spread = np.einsum("nij,njk,nik->ni", T, spread, T)
            variance[a] = alpha * np.maximum(spread, 0.0) / root**2
    return differences, variance, bad


def _solve_vectors(problem: EdgeTerms, folds: Sequence[Array]) -> tuple[Array, Array | None, Array]:
    """Solve folds of many judgements, one by one, by subtracting them from the full system.

    With D = Ψ_U diag(√σ), the weights without U solve (diag(σ) − DᵀD + alpha I) w = √σ b − Dᵀt_U.
    A single alpha needs a Cholesky factor. With several alphas, variances need the eigenvectors of
    diag(σ) − DᵀD, while its tridiagonal form is enough for w.
    """
    spectrum, alphas = problem.spectrum, problem.alphas
    root = np.sqrt(spectrum.values)
    (q, k), n = spectrum.b.shape, len(folds)
    c, total = root[:, None] * spectrum.b, float(spectrum.values.sum())
    bad = np.repeat(problem.inaccurate()[:, None], n, axis=1)
    forms: list[Any] = []
    right = np.empty((q, n, k))
    vectors = [problem.vectors(U) * root for U in folds]
    kind: Any = _DiagonalForm if problem.variances else _TridiagonalForm
    if len(alphas) == 1:
        kind = partial(_CholeskyForm, alpha=float(alphas[0]))
    for i, (U, D) in enumerate(zip(folds, vectors, strict=True)):
        H = -(D.T @ D)
        H.flat[:: q + 1] += spectrum.values
        bad[:, i] |= np.trace(H) < LEFT * total
        forms.append(kind(H))
        right[:, i] = forms[i].rotate(c - D.T @ problem.t[U][:, None])
    kind = type(forms[0])
    bad |= _left(kind, forms, spectrum.values, alphas) < np.maximum(problem.least(), SINGULAR[0])
    solved = kind.solve(forms, right, alphas)
    bad |= ~np.isfinite(solved).all(axis=(0, 3))
    values, variance = [], []
    for i, D in enumerate(vectors):
        W = forms[i].rotate_back(solved[:, :, i].reshape(q, -1)).reshape(q, -1, k)
        values.append(_of_alphas(D, W))
        if problem.variances:
            squares = np.square(forms[i].rotate(D.T)).T
            variance.append((alphas * (squares @ forms[i].weight(alphas))).T)
    scale = problem.root[np.concatenate(folds)]
    spread = np.concatenate(variance, axis=1) / scale**2 if variance else None
    return np.concatenate(values, axis=1) / scale[:, None], spread, bad


def _left(kind: Any, forms: Sequence[Any], sigma: Array, alphas: Array) -> Array:
    """Smallest fraction of diag(σ) + alpha I that a fold leaves in any direction, (n_alphas, n).

    This is the smallest eigenvalue of J, computed by a few steps of inverse iteration for the
    smallest alpha; for larger alphas it grows at most in proportion to alpha.
    """
    alpha = alphas.min()
    before = (sigma + alpha)[:, None] * np.cos(np.arange(len(sigma)))[:, None]
    x = np.repeat(before, len(forms), axis=1)
    for _ in range(3):
        rotated = np.stack([form.rotate(x[:, [i]]) for i, form in enumerate(forms)], axis=1)
        solved = kind.solve(forms, rotated, np.array([alpha]))[:, 0]
        y = np.hstack([form.rotate_back(solved[:, i]) for i, form in enumerate(forms)])
        weighted = (sigma + alpha)[:, None] * y
        share = np.einsum("ij,ij->j", y, x) / np.einsum("ij,ij->j", y, weighted)
        x = weighted / np.abs(weighted).max(axis=0)
    return np.minimum(share * (alphas / alpha)[:, None], 1.0)


class _CholeskyForm:
    """H + alpha I = C Cᵀ, for a single alpha."""

    def __init__(self, H: Array, alpha: float) -> None:
        H.flat[:: len(H) + 1] += alpha
        self.C, failed = lapack.dpotrf(H.T, lower=1, clean=0, overwrite_a=1)
        if failed:  # folds with non-finite values are refitted
            self.C[:] = np.nan

    def rotate(self, columns: Array) -> Array:
        return self._solve(columns, 0)

    def rotate_back(self, columns: Array) -> Array:
        return self._solve(columns, 1)

    def _solve(self, columns: Array, trans: int) -> Array:
        """C⁻¹ or C⁻ᵀ times columns."""
        solved: Array = blas.dtrsm(1.0, self.C, columns, lower=1, trans_a=trans)
        return solved

    def weight(self, alphas: Array) -> Array:
        """1, shape (q, 1)."""
        return np.ones((len(self.C), len(alphas)))

    @staticmethod
    def solve(forms: Sequence[_CholeskyForm], right: Array, alphas: Array) -> Array:
        """Return the result of `rotate`, of shape (q, n, k), as (q, 1, n, k)."""
        return right[:, None]


class _DiagonalForm:
    """H = V diag(σ) Vᵀ."""

    def __init__(self, H: Array) -> None:
        sigma, self.V = eigh(H, driver="evd", overwrite_a=True, check_finite=False)
        self.sigma = np.maximum(sigma, 0.0)

    def rotate(self, columns: Array) -> Array:
        return self.V.T @ columns

    def rotate_back(self, columns: Array) -> Array:
        return self.V @ columns

    def weight(self, alphas: Array) -> Array:
        """1/(σ + alpha), shape (q, n_alphas)."""
        return 1.0 / (self.sigma[:, None] + alphas)

    @staticmethod
    def solve(forms: Sequence[_DiagonalForm], right: Array, alphas: Array) -> Array:
        """(H + alpha I)⁻¹ of rotated columns (q, n, k): shape (q, n_alphas, n, k)."""
        weight = np.stack([form.weight(alphas) for form in forms], axis=2)
        return weight[..., None] * right[:, None]


class _TridiagonalForm:
    """H = Q T Qᵀ with tridiagonal T, by Householder reflections."""

    def __init__(self, H: Array) -> None:
        work = int(lapack.dsytrd_lwork(len(H), lower=1)[0])
        H, self.diagonal, self.beside, self.tau, _ = lapack.dsytrd(H, lower=1, lwork=work)
        self.reflections = np.asfortranarray(H[1:, :-1])

    def rotate(self, columns: Array) -> Array:
        return self._reflect(columns, "T")

    def rotate_back(self, columns: Array) -> Array:
        return self._reflect(columns, "N")

    def _reflect(self, columns: Array, trans: str) -> Array:
        """Qᵀ or Q times columns; the first coordinate is unchanged."""
        if not len(self.tau):
            return columns
        work = 64 * columns.shape[1]
        below, _, _ = lapack.dormqr("L", trans, self.reflections, self.tau, columns[1:], work)
        return np.vstack([columns[:1], below])

    @staticmethod
    @np.errstate(all="ignore")  # folds with non-finite values are refitted
    def solve(forms: Sequence[_TridiagonalForm], right: Array, alphas: Array) -> Array:
        """(T + alpha I)⁻¹ of rotated columns (q, n, k): shape (q, n_alphas, n, k).

        The recurrence is vectorised over all systems. NaN where T + alpha I is not positive.
        """
        q = len(right)
        pivot = np.stack([form.diagonal for form in forms], axis=1)[:, None] + alphas[:, None]
        beside = np.stack([form.beside for form in forms], axis=1)
        out = np.repeat(right[:, None], len(alphas), axis=1)
        for j in range(1, q):
            factor = beside[j - 1] / pivot[j - 1]
            pivot[j] -= factor * beside[j - 1]
            out[j] -= factor[..., None] * out[j - 1]
        out[q - 1] /= pivot[q - 1][..., None]
        for j in range(q - 2, -1, -1):
            out[j] -= beside[j][:, None] * out[j + 1]
            out[j] /= pivot[j][..., None]
        positive: Array = np.all(pivot > 0, axis=0)
        return np.where(positive[..., None], out, np.nan)


def _of_alphas(D: Array, W: Array) -> Array:
    """D W for W of shape (q, n_alphas, k), as (n_alphas, u, k)."""
    q, n_alphas, k = W.shape
    return np.moveaxis((D @ W.reshape(q, n_alphas * k)).reshape(len(D), n_alphas, k), 1, 0)
