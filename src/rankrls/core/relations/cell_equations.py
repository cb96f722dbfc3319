"""Incomplete relations by conjugate gradients, through the solvers of `core.linalg`.

`CellEquations` are those of RankRLS over the observed pairs, with the kernel K ⊗ G as a product of
matrices. `SpectralEquations` are the same problem in the eigenvectors of the two kernels, where the
system of a complete relation is diagonal: scaled by it, the eigenvalues lie close together, so that
a few dozen iterations are enough at any alpha.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls import _memory
from rankrls.core.linalg.conjugate_gradients import (
    History,
    IterationOptions,
    converge,
    stop_early,
)
from rankrls.core.linalg.krylov import DirectionSum, MultiShiftCG
from rankrls.core.relations.edges import EdgeFactor, EdgeKernel
from rankrls.core.relations.observations import Cells, Observations
from rankrls.core.relations.offsets import NO_OFFSETS, FreeOffsets, TableOffsets, free_offsets
from rankrls.core.relations.sides import Side, Spectrum

__all__ = [
    "CellEquations",
    "HeldOutCells",
    "SpectralEquations",
    "converge_over_cells",
    "converge_over_spectra",
    "stop_early_over_cells",
]

Array = NDArray[Any]

#: From this part of all pairs on, equations in the eigenvectors take fewer iterations (measured:
#: by three to ten times above one half, by none below one tenth).
WORTH_SPECTRA = 0.2

#: Where the smallest eigenvalue is more than this part of the mean, as with identity kernels, one
#: run over the cells for all alphas takes fewer products.
WELL_ABOVE_ZERO = 1e-3


class CellEquations:
    """(FᵀΓF + alpha I) x = Fᵀy over q cells: `core.linalg.conjugate_gradients.Equations`.

    Parameters
    ----------
    K : ndarray of shape (p, p)
    G : ndarray of shape (g, g)
    cells : Cells
    ranking : bool
    sign : {0, 1, −1}
    offsets : FreeOffsets
    held_out : tuple of two int arrays, optional
        Rows and columns of further pairs, whose values come with the products.
    floor : float
        FᵀΓF has no smaller eigenvalues than this, but for the null space of F. It is left out of
        `G`, and a part of the shift then.

    Notes
    -----
    F is the factor of the loss and Γ the pairwise kernel between cells; a = F x are the
    coefficients of the cells.
    """

    outputs = np.zeros(1, dtype=np.int64)
    dtype = np.dtype(np.float64)

    def __init__(
        self,
        K: Array,
        G: Array,
        cells: Cells,
        *,
        ranking: bool,
        sign: int,
        offsets: FreeOffsets = NO_OFFSETS,
        held_out: tuple[Array, Array] | None = None,
        floor: float = 0.0,
    ) -> None:
        self.floor = floor
        self.factor = EdgeFactor(cells, centred=ranking, offsets=offsets)
        train = (cells.rows, cells.cols)
        to = None
        if held_out is not None:
            to = tuple(np.concatenate(ends) for ends in zip(train, held_out, strict=True))
        self.kernel = EdgeKernel(K, G, train, to, sign=sign)  # type: ignore[arg-type]
        self.C = self.factor.target[:, None]
        self.shape = (self.kernel.shape[0] - len(cells), len(cells))
        self._held_out = np.zeros((self.shape[0], 1))

    @property
    def n_entries(self) -> int:
        """Numbers in K and G."""
        return self.kernel.K.size + self.kernel.G.size

    @property
    def rank(self) -> int:
        """Number of cells."""
        return len(self.C)

    def G(self, V: Array) -> Array:
        """FᵀΓF V for V of shape (q, k'), without ``floor`` V."""
        q = len(self.C)
        values = self.kernel.matmat(self.factor.matmat(V))
        self._held_out = values[q:]
        out = self.factor.rmatmat(values[:q])
        return out - self.floor * V if self.floor else out

    def diagonal(self) -> Array:
        """The same for all cells: rows of a kernel matrix are not scaled."""
        return np.ones(len(self.C))

    def magnitude(self, W: Array) -> Array:
        """‖k_i‖ ‖g_j‖ ‖F w‖ with the rows of K and G, shape (q, k')."""
        rows, cols = (self.factor.cells.rows, self.factor.cells.cols)
        left = np.linalg.norm(self.kernel.K, axis=1)[rows]
        right = np.linalg.norm(self.kernel.G, axis=1)[cols]
        size = np.linalg.norm(self.factor.matmat(W), axis=0)
        return (self.factor.root * left * right)[:, None] * size

    def follow(self, run: MultiShiftCG) -> DirectionSum:
        """Values of the held-out pairs for the iterates of a run (`HeldOutImage`)."""
        return run.follow(lambda: self._held_out, self.shape[0])

    def coefficients(self, x: Array) -> Array:
        """A of shape (p, g) from a solution of shape (q, 1)."""
        return self.kernel.scatter(self.factor.matvec(x[:, 0]))


class SpectralEquations:
    """The problem in the eigenvectors of both kernels, scaled by its diagonal, for one alpha.

    Parameters
    ----------
    left : Spectrum
        λ > 0, V of the row objects.
    right : Spectrum
        σ > 0, U of the column objects, centred if that is the loss; ``left`` itself with a sign.
    cells : Cells
    alpha : float
    ranking : bool
    sign : {0, 1, −1}
    offsets : FreeOffsets

    Attributes
    ----------
    shift : float
        What `converge` adds to the diagonal: the smallest entry of alpha/M (Notes).

    Notes
    -----
    With f = V (√Λ ∘ W) Uᵀ, Λ = λσᵀ, ‖f‖² is the sum of W². For the loss L over the cells

        (√Λ ∘ VᵀL(V(√Λ ∘ W)Uᵀ)U) + alpha W = √Λ ∘ VᵀL(Y)U,

    and W = X/√M with M the diagonal of this system. On a complete relation it is diagonal; on an
    incomplete one its eigenvalues are close to one but for functions that the observed pairs tell
    little about. With a sign W is symmetric or antisymmetric, and so is the left side made.

    Products of single precision are enough for almost all of the work: in these coordinates no
    number is larger than the others. They leave the scales √Λ/√M to double precision.
    """

    outputs = np.zeros(1, dtype=np.int64)
    dtype = np.dtype(np.float64)

    def __init__(
        self,
        left: Spectrum,
        right: Spectrum,
        cells: Cells,
        alpha: float,
        *,
        ranking: bool,
        sign: int,
        offsets: FreeOffsets = NO_OFFSETS,
    ) -> None:
        self.sign = sign
        self.V, self.U = left.vectors, right.vectors
        p, g = cells.shape
        self.weight = np.zeros((p, g))
        self.weight.ravel()[cells.flat] = cells.weight
        self.offsets = TableOffsets(self.weight, free_offsets(offsets, ranking=ranking))
        self.values = np.outer(left.values, right.values)
        M = self._diagonal() + alpha
        self.scale = np.sqrt(M)
        self.root = np.sqrt(self.values) / self.scale
        # All of alpha/M but its smallest entry, which is a bound of the eigenvalues.
        self.shift = float(alpha / M.max(initial=alpha))
        self.ridge = alpha / M - self.shift
        y = np.zeros((p, g))
        y.ravel()[cells.flat] = cells.y
        if any(self.offsets.free):
            y -= cells.y.mean()
        if self.offsets.free.rows:  # taken off first, so that large offsets cost no digits
            y += cells.y.mean()
            first = np.zeros(p)
            first[cells.rows[::-1]] = cells.y[::-1]
            y -= first[:, None]
        self.C = self._back(y, self.V, self.U, self.weight).reshape(-1, 1)
        self._single = tuple(
            np.ascontiguousarray(part, dtype=np.float32) for part in (self.V, self.U, self.weight)
        )

    def _diagonal(self) -> Array:
        """The diagonal of the first term, shape (r, s).

        Entry (i, j) is Λ_ij times the loss of the function v_i u_jᵀ over the cells, which is
        Σ ω v² u² minus, for ranking, Σ_rows v² (Σ ω u)²/Ω. Where rows and columns have offsets,
        those of columns are left out: it need not be exact.
        """
        square = self.V**2
        loss = square.T @ (self.weight @ self.U**2)
        if self.offsets.free.rows:
            share = self.offsets.shares[0]
            loss -= square.T @ ((self.weight @ self.U) ** 2 * share[:, None])
        elif self.offsets.free.columns:
            loss -= (self.V.T @ self.weight) ** 2 @ (self.U**2 * self.offsets.shares[1][:, None])
        diagonal = self.values * np.maximum(loss, 0.0)
        return 0.5 * (diagonal + diagonal.T) if self.sign else diagonal

    @property
    def n_entries(self) -> int:
        """Numbers in V, U and the weights."""
        return self.V.size + self.U.size + self.weight.size

    @property
    def rank(self) -> int:
        """Number of coordinates."""
        return len(self.C)

    def G(self, X: Array) -> Array:
        """The left side without ``shift`` X, for X of shape (n, k')."""
        return self._apply(X, self.V, self.U, self.weight)

    def rough(self, X: Array) -> Array:
        """The same with matrix products in single precision."""
        return self._apply(X, *self._single)

    def _apply(self, X: Array, V: Array, U: Array, weight: Array) -> Array:
        out = np.empty_like(X)
        scaled = np.empty(self.root.shape, dtype=V.dtype)
        for k in range(X.shape[1]):
            x = X[:, k].reshape(self.root.shape)
            np.multiply(self.root, x, out=scaled, casting="same_kind")
            back = self._back(V @ scaled @ U.T, V, U, weight)
            back += self.ridge * x
            out[:, k] = back.ravel()
        return out

    def _back(self, F: Array, V: Array, U: Array, weight: Array) -> Array:
        """√(Λ/M) ∘ VᵀL(F)U in double precision, for F of shape (p, g), which is overwritten."""
        F *= weight
        self.offsets.subtract(F, weight)
        inner = V.T @ F @ U
        if self.sign:
            inner = 0.5 * (inner + self.sign * inner.T)
        return self.root * inner

    def diagonal(self) -> Array:
        """One everywhere: the equations are scaled."""
        return np.ones(len(self.C))

    def magnitude(self, W: Array) -> Array:
        """About the size of an entry times the root of the terms that are added up."""
        n, terms = len(W), sum(self.weight.shape)
        return np.repeat(np.linalg.norm(W, axis=0)[None] * np.sqrt(terms / n), n, axis=0)

    def inner(self, x: Array) -> Array:
        """Coefficients between V and Uᵀ, shape (r, s), from a solution of shape (n, 1)."""
        return x[:, 0].reshape(self.root.shape) / (self.scale * np.sqrt(self.values))


def spectra(
    rows: Side, columns: Side, *, ranking: bool, sign: int, offsets: FreeOffsets = NO_OFFSETS
) -> tuple[Spectrum, Spectrum]:
    """The eigenvectors of both sides that an incomplete problem is written in."""
    free = free_offsets(offsets, ranking=ranking)
    left = rows.spectrum(centred=free.columns).range
    return left, left if sign else columns.spectrum(centred=free.rows).range


def lowest_eigenvalue(rows: Side, columns: Side, cells: Cells, *, sign: int) -> float:
    """A bound of the eigenvalues of the equations over cells: that of K ⊗ G holds for any part."""
    return 0.0 if sign else rows.floor * columns.floor * float(cells.weight.min(initial=1.0))


def use_spectra(rows: Side, columns: Side, cells: Cells, **loss: Any) -> bool:
    """Whether the problem is solved in the eigenvectors of both kernels.

    Matrix products over all pairs must be worth it (many pairs are observed, or few features make
    them cheap), they must fit into memory, and the kernels must be positive semi-definite, but not
    so well-conditioned that all alphas converge together over the cells.
    """
    p, g = cells.shape
    if not _memory.fits(p, g, copies=10):
        return False
    if lowest_eigenvalue(rows, columns, cells, sign=loss["sign"]) > WELL_ABOVE_ZERO * (
        rows.size * columns.size / (p * g)
    ):
        return False
    few = all(
        side.by_features and side.features is not None and 8 * side.features.shape[1] <= len(side)
        for side in (rows, columns)
    )
    if not few and len(cells) < WORTH_SPECTRA * p * g:
        return False
    return all((s.values >= 0).all() for s in spectra(rows, columns, **loss))


def converge_over_spectra(
    left: Spectrum,
    right: Spectrum,
    cells: Cells,
    alphas: Array,
    options: IterationOptions,
    **loss: Any,
) -> tuple[Array, int]:
    """Coefficients between V and Uᵀ, shape (n_alphas, r, s), and iterations of the slowest."""
    inner = np.zeros((len(alphas), len(left.values), len(right.values)))
    n_iter = 0
    for a, alpha in enumerate(alphas):
        if inner[a].size:
            equations = SpectralEquations(left, right, cells, alpha, **loss)
            shifts = np.array([equations.shift])
            (x,), history = converge([equations], alphas[[a]], options, shifts=shifts)
            inner[a] = equations.inner(x[0])
            n_iter = max(n_iter, history.n_iter)
    return inner, n_iter


def converge_over_cells(
    rows: Side,
    columns: Side,
    cells: Cells,
    alphas: Array,
    options: IterationOptions,
    **loss: Any,
) -> tuple[Array, int]:
    """Coefficients A of shape (n_alphas, p, g), and iterations, by one run for all alphas."""
    floor = lowest_eigenvalue(rows, columns, cells, sign=loss["sign"])
    equations = CellEquations(rows.K, columns.K, cells, floor=floor, **loss)
    (x,), history = converge([equations], alphas, options, shifts=alphas + floor)
    return np.stack([equations.coefficients(solution) for solution in x]), history.n_iter


@dataclass(frozen=True)
class HeldOutCells:
    """How to choose the edges that end an iteration early, and how to score their predictions.

    Attributes
    ----------
    fraction : float
        Part of the observed pairs that is held out.
    random_state : RandomState
    score : function of (labels, predictions, rows), each of shape (n,)
        Higher is better.
    """

    fraction: float
    random_state: Any
    score: Callable[[Array, Array, Array], float]

    def choose(self, observations: Observations, sign: int) -> Array:
        """Mask of the held-out edges, shape (n_edges,).

        Half of the pairs of a row at a time, for random rows with at least four pairs, until the
        fraction is reached: held-out edges can only be ranked beside others of their row. Edges of
        one pair stay together; with a symmetric or reciprocal relation its mirror image does too.
        """
        cells = observations.cells
        p, g = observations.shape
        chosen = np.zeros(p * g, dtype=bool)
        wanted, taken = self.fraction * len(cells), 0
        starts = np.searchsorted(cells.rows, np.arange(p + 1))
        for row in self.random_state.permutation(p):
            mine = cells.flat[starts[row] : starts[row + 1]]
            if len(mine) < 4 or taken >= wanted:
                continue
            half = self.random_state.permutation(mine)[: len(mine) // 2]
            chosen[half] = True
            taken += len(half)
            if sign:
                chosen[(half % g) * g + half // g] = True
        rows, cols, y = observations.lists
        held = chosen[rows * g + cols]
        if not _comparable(rows[held], y[held]):
            raise ValueError(
                f"early stopping: validation_fraction={self.fraction:g} leaves no row with two "
                "held-out edges of different labels to compare (rows with fewer than four observed "
                "pairs are not used). Increase it, or set early_stopping=False"
            )
        return held


def stop_early_over_cells(
    rows: Side,
    columns: Side,
    observations: Observations,
    alpha: float,
    options: IterationOptions,
    held_out: HeldOutCells,
    *,
    sign: int,
    **loss: Any,
) -> tuple[Array, History]:
    """Coefficients A of shape (1, p, g) of the iteration that ranks held-out edges best."""
    held = held_out.choose(observations, sign)
    held_rows, held_cols, y = observations.select(held).lists
    equations = CellEquations(
        rows.K,
        columns.K,
        observations.select(~held).cells,
        sign=sign,
        held_out=(held_rows, held_cols),
        **loss,
    )

    def score(predictions: Array) -> float:
        return held_out.score(y, predictions[:, 0], held_rows)

    (x,), history = stop_early([equations], np.array([alpha]), options, equations, score, 1)
    return equations.coefficients(x[0])[None], history


def _comparable(rows: Array, y: Array) -> bool:
    """Whether some row has two different labels."""
    order = np.lexsort((y, rows))
    rows, y = rows[order], y[order]
    return bool(((rows[1:] == rows[:-1]) & (y[1:] != y[:-1])).any())
