"""Greedy forward selection by the exact hold-out error, in O(mn) for each added feature.

With coordinates X̃ = FᵀX and t of the preferences (L = F Fᵀ, F t = r), RankRLS on a set S of
features is ridge regression of t on X̃_S, and leaving out a query is leaving out its
coordinates. Two matrices over all candidate features are kept up to date as S grows:

    A    residuals of every column of X̃ (and of t) after regression on S,
    E    the same, predicted for each query by the regression without that query.

Write v for a candidate's column in A, h for its column in E, W for the coefficients on S. Then

    N = ‖v‖² + alpha ‖W_v‖²,   M = vᵀa + alpha W_vᵀW_a       (inner products given S),
    N − h_qᵀv_q,  M − h_qᵀa_q                                  (the same without query q),

and adding the candidate turns the held-out residual e of t into

    e_q − h_q (M − h_qᵀa_q) / (alpha + N − h_qᵀv_q).

It changes the columns of all other candidates in the same way.

The differences lose precision if query q dominates some features: the relative error is eps/λ, with
λ the smallest eigenvalue of q's block of alpha(X̃_S X̃_Sᵀ + alpha I)⁻¹. If λ is tiny, a separate
regression without q is kept from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, eigh
from sklearn.utils import gen_batches

from rankrls import _resources
from rankrls._calls import Progress
from rankrls.core.preferences.laplacian import Laplacian

Array = NDArray[Any]

#: Candidates whose gains differ relatively by less than this are tied; the first is chosen.
TIE = 1e-10

#: A fold is refitted if its λ falls below this.
CANCELLED = 1e-6

#: Size of the part of A (and of E) processed at a time, which should stay in cache.
BLOCK = 2**16


def select_leave_query_out(
    laplacian: Laplacian,
    query_codes: Array,
    X: Array,
    alpha: float,
    n_select: int,
    progress: Progress,
) -> tuple[Array, Array, int]:
    """Select columns of X, (m, n), by the leave-query-out error of scores of its rows.

    Returns them in the order of selection, the sums of squared held-out errors of pairs (and
    outputs) after each, and the number of refitted folds.
    """
    factor = laplacian.factor()
    codes = np.unique(query_codes[factor.row_of], return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")  # coordinates of a query are consecutive
    t = np.broadcast_to(factor.t, (len(codes), len(laplacian.outputs)))[order]
    parts = _column_blocks(len(t), X.shape[1])

    def start(out: slice) -> list[Array]:
        blocks = [factor.rmatmat(np.ascontiguousarray(X[:, part]))[order] for part in parts]
        return [*blocks, t.copy()]

    folds = QueryBlocks(codes[order])
    state = _GreedyState(start, parts, folds, alpha, n_select)
    selected, errors, n_refits = _select(state, progress)
    # Σ w² (z − difference)² = ‖t − Fᵀf‖² + Σ w² z² − ‖t‖², where the last two are equal if the
    # targets z are differences of scores.
    energy = float(np.broadcast_to(laplacian.energy, t.shape[1]).sum())
    offset = energy - float(np.einsum("ij,ij->", t, t))
    offset = offset if offset > 1e-12 * energy else 0.0
    return selected, errors + offset, n_refits


def select_leave_one_out(
    s: Array, X: Array, nu: float, n_select: int, progress: Progress
) -> tuple[Array, Array, int]:
    """The same by the leave-one-out error of ridge regressions of s, (m, k), with an intercept.

    ``nu`` is the penalty of the regressions on m − 1 rows; errors are sums over rows.
    """
    m = len(s)
    parts = _column_blocks(m, X.shape[1])

    def start(out: slice) -> list[Array]:
        """Deviations from the means over all rows except ``out``."""
        centred = [block - block.mean(axis=0) for block in [*(X[:, part] for part in parts), s]]
        left = m - (out.stop - out.start)
        return [block + block[out].sum(axis=0) / left for block in centred]

    # Without row i its deviation from the mean is m/(m − 1) times as large.
    folds = QueryBlocks(np.arange(m))
    return _select(_GreedyState(start, parts, folds, nu, n_select, m / (m - 1)), progress)


def _select(state: _GreedyState, progress: Progress) -> tuple[Array, Array, int]:
    errors = np.zeros(state.n_select)
    for step in range(state.n_select):
        feature = state.best()
        while state.refit_folds(feature):
            feature = state.best()
        state.add(feature)
        errors[step] = np.einsum("ij,ij->", state.E[-1], state.E[-1])
        progress(f"{step + 1} of {state.n_select}: feature {feature}, ‖e‖² {errors[step]:.6g}")
    return np.array(state.selected), errors, len(state.refits)


class QueryBlocks:
    """Folds of rows that are left out together, from the ascending fold numbers of the rows."""

    def __init__(self, codes: Array) -> None:
        self.codes, self.n_rows, self.n_folds = codes, len(codes), int(codes[-1]) + 1
        self.starts = np.searchsorted(codes, np.arange(self.n_folds + 1))
        self.index = np.arange(self.n_rows + 1)
        self.single = self.n_folds == self.n_rows
        self.ones = self.sums(np.ones(self.n_rows))

    def rows(self, q: int) -> slice:
        """The rows of a fold."""
        return slice(int(self.starts[q]), int(self.starts[q + 1]))

    def sums(self, values: Array) -> sparse.csr_array:
        """One row per fold: times V it is Σ_{i∈q} values_i V_ij."""
        return sparse.csr_array((values, self.index[:-1], self.starts))

    def spread(self, values: Array) -> sparse.csr_array:
        """The transpose: times B it is values_i B_{q(i),j}."""
        return sparse.csr_array((values, self.codes, self.index))

    def products(self, U: Array, V: Array) -> Array:
        """Σ_{i∈q} U_ij V_ij, one row per fold."""
        return U * V if self.single else self.ones @ (U * V)


class _Regression:
    """Ridge regression of all candidates, and t last, on S: residuals A, coefficients W by blocks.

    The rows ``out`` are predicted but not trained on. A feature is added by modified Gram-Schmidt
    on the columns of [A; √alpha W], which is as stable as a QR decomposition.
    """

    def __init__(self, A: list[Array], alpha: float, n_select: int, out: slice) -> None:
        self.A = [np.ascontiguousarray(block) for block in A]
        self.W = [np.zeros((n_select, block.shape[1])) for block in A]
        self.alpha, self.out = alpha, out
        self.k = 0

    def column(self, feature: int) -> tuple[Array, Array]:
        """Residuals and coefficients of a feature, shapes (p,) and (k,)."""
        return _column(self.A, feature), _column(self.W, feature)[: self.k]

    def inner(self, v: Array, w: Array, block: int) -> Array:
        """vᵀA + alpha wᵀW for a block, shape (width,)."""
        if self.out.stop > self.out.start:
            v = v.copy()
            v[self.out] = 0.0
        return v @ self.A[block] + self.alpha * (w @ self.W[block][: self.k])

    def norms(self, block: int) -> Array:
        """‖v‖² + alpha ‖w‖² of each column of a block, shape (width,), without cancellation."""
        A, W = self.A[block], self.W[block][: self.k]
        parts = (A[: self.out.start], A[self.out.stop :], np.sqrt(self.alpha) * W)
        return sum(np.einsum("ij,ij->j", part, part) for part in parts)

    def add(self, feature: int) -> None:
        """Add a feature to S."""
        v, w = self.column(feature)
        block, column = divmod(feature, self.A[0].shape[1])
        norm = self.alpha + self.norms(block)[column]
        for block in range(len(self.A)):
            kappa = self.inner(v, w, block) / norm
            self.A[block] -= np.multiply.outer(v, kappa)
            self.W[block][: self.k] -= w[:, None] * kappa
            self.W[block][self.k] = kappa
        self.k += 1

    def gains(self, block: int) -> Array:
        """Decrease of the squared error of the rows ``out`` when a feature is added, (width,)."""
        h, without = self.A[block][self.out], self.alpha + self.norms(block)
        total = np.zeros(h.shape[1])
        for a, w in zip(self.A[-1].T, self.W[-1][: self.k].T, strict=True):
            beta = self.inner(a, w, block) / without
            total += beta * (2 * (a[self.out] @ h) - beta * np.einsum("ij,ij->j", h, h))
        return total


class _GreedyState:
    """The regression on S with all rows, and E, the residuals of each fold without that fold.

    ``start`` returns the blocks of columns ``parts``, and t, for a regression without some rows.
    While S is empty, the residual of a left-out row is ``held_out`` times that with all rows.
    """

    def __init__(
        self,
        start: Callable[[slice], list[Array]],
        parts: list[slice],
        folds: QueryBlocks,
        alpha: float,
        n_select: int,
        held_out: float = 1.0,
    ) -> None:
        self.start, self.parts, self.folds = start, parts, folds
        self.alpha, self.n_select = alpha, n_select
        self.require_memory(2)
        self.full = _Regression(start(slice(0, 0)), alpha, n_select, slice(0, 0))
        self.E = [held_out * A for A in self.full.A]
        self.selected: list[int] = []
        self.refits: list[_Regression] = []
        self.refitted = np.zeros(folds.n_folds, dtype=bool)
        self.det = np.ones(folds.n_folds)  # of the fold's block of alpha(X̃_S X̃_Sᵀ + alpha I)⁻¹
        self.X_S = np.zeros((n_select, folds.n_rows))

    def require_memory(self, copies: int) -> None:
        """Raise an error unless this many matrices over all rows and candidates fit into memory."""
        _resources.require(
            "greedy selection",
            self.folds.n_rows + self.n_select,
            self.parts[-1].stop,
            copies=copies,
            advice="use fewer rows, fewer candidate features, or a larger alpha",
        )

    def best(self) -> int:
        """The candidate with the largest gain."""
        gains = self.gains()
        gains[self.selected] = -np.inf
        best = gains.max()
        if not np.isfinite(best):
            raise ValueError("squares of the features or scores overflow; scale X and y")
        return int(np.argmax(gains >= best - TIE * abs(best)))

    def gains(self) -> Array:
        """Decrease of ‖e‖² when each feature is added, shape (n,)."""
        gains = np.zeros(self.parts[-1].stop)
        full, folds = self.full, self.folds
        columns = [
            (a, w, folds.sums(a), folds.sums(e))
            for a, w, e in zip(full.A[-1].T, full.W[-1][: full.k].T, self.E[-1].T, strict=True)
        ]
        for b, part in enumerate(self.parts):
            A, E = full.A[b], self.E[b]
            without = self.alpha_plus(full.norms(b), folds.products(E, A))
            without[self.refitted] = np.inf  # their gain comes from the refits
            hh = folds.products(E, E)
            for a, w, a_sums, e_sums in columns:
                beta = (full.inner(a, w, b) - a_sums @ E) / without
                # ‖e‖² − ‖e − βh‖² = βᵀ(2 hᵀe − β hᵀh)
                gains[part] += np.einsum("ij,ij->j", beta, 2 * (e_sums @ E) - beta * hh)
            for refit in self.refits:
                gains[part] += refit.gains(b)
        return gains

    def alpha_plus(self, N: Any, products: Array) -> Array:
        """Alpha + (N − hᵀv), at least alpha up to rounding; overwrites ``products``."""
        np.subtract(N, products, out=products)
        np.maximum(products, 0.0, out=products)
        products += self.alpha
        return products

    def refit_folds(self, feature: int) -> bool:
        """Refit folds if adding the feature requires it, and return whether any were refitted."""
        without, norm = self.norms_without(feature)
        tiny = (self.det * (without / norm) < CANCELLED) & ~self.refitted
        lost = np.flatnonzero(tiny).tolist()
        if lost and not self.folds.single:  # the determinant is a lower bound of λ only
            k = self.full.k + 1
            X_S = np.vstack([self.X_S[: k - 1], self.original(feature)])
            ridge = self.alpha * np.eye(k)
            whole, lost, doubtful = X_S @ X_S.T + ridge, [], lost
            for q in doubtful:
                rest = np.delete(X_S, self.folds.rows(q), axis=1)
                try:
                    values = eigh(rest @ rest.T + ridge, whole, eigvals_only=True)
                except LinAlgError:
                    values = np.zeros(1)
                lost += [q] if values[0] < CANCELLED else []
        self.require_memory(2 + len(self.refits) + len(lost))
        for q in lost:
            out = self.folds.rows(q)
            refit = _Regression(self.start(out), self.alpha, self.n_select, out)
            for earlier in self.selected:
                refit.add(earlier)
            self.refits.append(refit)
            self.refitted[q] = True
            self.E[-1][out] = refit.A[-1][out]
        return bool(lost)

    def original(self, feature: int) -> Array:
        """Recover the column of X̃ from its residual, shape (p,)."""
        v, w = self.full.column(feature)
        return v + w @ self.X_S[: self.full.k]

    def norms_without(self, feature: int) -> tuple[Array, float]:
        """Alpha + N − hᵀv for every fold, shape (n_folds,), and alpha + N."""
        v, _ = self.full.column(feature)
        block, column = divmod(feature, self.parts[0].stop)
        N = float(self.full.norms(block)[column])
        products = np.add.reduceat(_column(self.E, feature) * v, self.folds.starts[:-1])
        return self.alpha_plus(N, products), self.alpha + N

    def add(self, feature: int) -> None:
        """Add a feature to S."""
        full = self.full
        without, norm = self.norms_without(feature)
        self.det *= without / norm
        self.X_S[full.k] = self.original(feature)
        (v, w), h = full.column(feature), _column(self.E, feature)
        h_sums, h_spread = self.folds.sums(h), self.folds.spread(h)
        for b, E in enumerate(self.E):
            E -= h_spread @ ((full.inner(v, w, b) - h_sums @ full.A[b]) / without[:, None])
        full.add(feature)
        self.selected.append(feature)
        for refit in self.refits:
            refit.add(feature)
            self.E[-1][refit.out] = refit.A[-1][refit.out]


def _column(blocks: list[Array], number: int) -> Array:
    """Copy a column of a matrix stored in blocks."""
    block, column = divmod(number, blocks[0].shape[1])
    return blocks[block][:, column].copy()


def _column_blocks(p: int, n: int) -> list[slice]:
    """Blocks with equal numbers of columns (except the last)."""
    return list(gen_batches(n, min(n, max(64, BLOCK // p))))
