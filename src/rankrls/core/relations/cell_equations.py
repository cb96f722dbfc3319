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
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from rankrls import _memory
from rankrls._calls import warn
from rankrls.core.linalg.conjugate_gradients import (
    History,
    IterationOptions,
    converge,
    stop_early,
)
from rankrls.core.linalg.krylov import DirectionSum, MultiShiftCG
from rankrls.core.linalg.preconditioned import solve_preconditioned
from rankrls.core.relations.edges import (
    EdgeFactor,
    EdgeKernel,
    choose_form,
)
from rankrls.core.relations.observations import Cells, Observations
from rankrls.core.relations.offsets import NO_OFFSETS, FreeOffsets, TableOffsets, free_offsets
from rankrls.core.relations.pairwise_kernels import (
    KRONECKER,
    PairwiseKernel,
    SideValues,
    sampled_products,
)
from rankrls.core.relations.sides import Side, Spectrum

__all__ = [
    "CellEquations",
    "HeldOutCells",
    "SampledSpectralEquations",
    "SpectralEquations",
    "converge_over_cells",
    "converge_over_spectra",
    "stop_early_over_cells",
]

Array = NDArray[Any]

#: From this part of all pairs on, equations in the eigenvectors take fewer iterations (measured:
#: by three to ten times above one half, by none below one tenth).
WORTH_SPECTRA = 0.2

#: Kernel matrices of up to so many objects are decomposed for a preconditioner.
MAX_OBJECTS = 2000

#: A preconditioner that is a Kronecker product may have eigenvalues that are so many times off.
SEPARABLE = 2.0

#: It is applied in single precision up to this condition number; above it, rounding errors take
#: a tenth more iterations (measured).
SINGLE = 1e5

#: Where the smallest eigenvalue is more than this part of the mean, as with identity kernels, one
#: run over the cells for all alphas takes fewer products.
WELL_ABOVE_ZERO = 1e-3

#: But not for so few alphas (measured: each takes a third of the time in its own equations).
FEW = 2


class CellEquations:
    """(FᵀΓF + alpha I) x = Fᵀy over q cells: `core.linalg.conjugate_gradients.Equations`.

    Parameters
    ----------
    K : ndarray of shape (p, p), or SideValues
    G : ndarray of shape (g, g), or SideValues
    cells : Cells
    ranking : bool
    sign : {0, 1, −1}
    offsets : FreeOffsets
    held_out : tuple of two int arrays, optional
        Rows and columns of further pairs, whose values come with the products.
    floor : float
        FᵀΓF has no smaller eigenvalues than this, but for the null space of F. It is left out of
        `G`, and a part of the shift then.
    pairwise : PairwiseKernel

    Notes
    -----
    F is the factor of the loss and Γ the pairwise kernel between cells; a = F x are the
    coefficients of the cells.
    """

    outputs = np.zeros(1, dtype=np.int64)
    dtype = np.dtype(np.float64)

    def __init__(
        self,
        K: Array | SideValues,
        G: Array | SideValues,
        cells: Cells,
        *,
        ranking: bool,
        sign: int,
        offsets: FreeOffsets = NO_OFFSETS,
        held_out: tuple[Array, Array] | None = None,
        floor: float = 0.0,
        pairwise: PairwiseKernel = KRONECKER,
    ) -> None:
        self.floor = floor
        self.factor = EdgeFactor(cells, centred=ranking, offsets=offsets)
        train = (cells.rows, cells.cols)
        to = None
        if held_out is not None:
            to = tuple(np.concatenate(ends) for ends in zip(train, held_out, strict=True))
        self.kernel = EdgeKernel(K, G, train, to, sign=sign, pairwise=pairwise)  # type: ignore[arg-type]
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
        size = np.linalg.norm(self.factor.matmat(W), axis=0)
        return (self.factor.root * self.kernel.row_sizes()[: len(W)])[:, None] * size

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
        self.sign, self.cells = sign, cells
        self.V, self.U = left.vectors, right.vectors
        self._set_loss(ranking, offsets)
        self.values = np.outer(left.values, right.values)
        M = self._diagonal() + alpha
        self.scale = np.sqrt(M)
        self.root = np.sqrt(self.values) / self.scale
        # All of alpha/M but its smallest entry, which is a bound of the eigenvalues.
        self.shift = float(alpha / M.max(initial=alpha))
        self.ridge = alpha / M - self.shift
        self.C = self._target().reshape(-1, 1)

    def _set_loss(self, ranking: bool, offsets: FreeOffsets) -> None:
        """The weights as a table of shape (p, g), and what loss they are of."""
        self.weight = np.zeros(self.cells.shape)
        self.weight.ravel()[self.cells.flat] = self.cells.weight
        self.offsets = TableOffsets(self.weight, free_offsets(offsets, ranking=ranking))
        self._single = tuple(
            np.ascontiguousarray(part, dtype=np.float32) for part in (self.V, self.U, self.weight)
        )

    def _target(self) -> Array:
        """The right side, shape (r, s)."""
        cells = self.cells
        p, g = cells.shape
        y = np.zeros((p, g))
        y.ravel()[cells.flat] = cells.y
        if any(self.offsets.free):
            y -= cells.y.mean()
        if self.offsets.free.rows:  # taken off first, so that large offsets cost no digits
            y += cells.y.mean()
            first = np.zeros(p)
            first[cells.rows[::-1]] = cells.y[::-1]
            y -= first[:, None]
        return self._back(y, self.V, self.U, self.weight)

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
            sums = self.weight.T @ self.V
            loss -= (sums**2).T @ (self.U**2 * self.offsets.shares[1][:, None])
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
        n, terms = len(W), sum(self.cells.shape)
        return np.repeat(np.linalg.norm(W, axis=0)[None] * np.sqrt(terms / n), n, axis=0)

    def inner(self, x: Array) -> Array:
        """Coefficients between V and Uᵀ, shape (r, s), from a solution of shape (n, 1)."""
        return x[:, 0].reshape(self.root.shape) / (self.scale * np.sqrt(self.values))


class SampledSpectralEquations(SpectralEquations):
    """The same for few eigenvectors and few cells: only the observed pairs are computed.

    A product takes O(q min(r, s) + (p + g) r s) operations for q cells, and no table of all pairs.
    """

    rough = None  # type: ignore[assignment]

    def _set_loss(self, ranking: bool, offsets: FreeOffsets) -> None:
        cells = self.cells
        self.factor = EdgeFactor(cells, centred=ranking, offsets=offsets)
        self.offsets = TableOffsets(cells, self.factor.free)
        self._pointers = np.searchsorted(cells.rows, np.arange(cells.shape[0] + 1))
        self.weight = self._sparse(cells.weight)

    def _sparse(self, values: Array) -> Any:
        """Numbers of the cells as a sparse matrix of shape (p, g)."""
        return sparse.csr_array((values, self.cells.cols, self._pointers), shape=self.cells.shape)

    def _target(self) -> Array:
        return self._of_cells(self.factor.matvec(self.factor.target))

    def G(self, X: Array) -> Array:
        """The left side without ``shift`` X, for X of shape (n, k')."""
        out = np.empty_like(X)
        values = np.empty(len(self.cells))
        for k in range(X.shape[1]):
            x = X[:, k].reshape(self.root.shape)
            left, right = self._images(self.root * x)
            sampled_products(left, right, self.cells.rows, self.cells.cols, values)
            back = self._of_cells(self.factor.matvec(self.factor.rmatvec(values)))
            back += self.ridge * x
            out[:, k] = back.ravel()
        return out

    def _images(self, inner: Array) -> tuple[Array, Array]:
        """Two factors of V inner Uᵀ with as few columns as there are."""
        r, s = inner.shape
        return (self.V @ inner, self.U) if s <= r else (self.V, self.U @ inner.T)

    def _of_cells(self, values: Array) -> Array:
        """√(Λ/M) ∘ Vᵀ table U for a table of numbers of the cells."""
        table = self._sparse(values)
        few = self.U.shape[1] <= self.V.shape[1]
        inner = self.V.T @ (table @ self.U) if few else (table.T @ self.V).T @ self.U
        if self.sign:
            inner = 0.5 * (inner + self.sign * inner.T)
        return self.root * inner


class CompletedCells:
    """The equations over cells, and those of a complete relation as their preconditioner.

    Parameters
    ----------
    left, right : Spectrum
        λ ≥ 0, V and σ ≥ 0, U, not centred.
    rows, columns : Side
    cells : Cells
    **loss
        ranking, sign, offsets.

    Notes
    -----
    With all pairs observed, Γ + alpha I is V ⊗ U diag(λσ + alpha) (V ⊗ U)ᵀ, whose inverse is two
    products of matrices on each side, or one if (K + aI) ⊗ (G + bI) is close to it. Its part over
    the observed cells is close to the inverse of (FᵀΓF + alpha I) at any alpha and for kernels of
    any smoothness, where the diagonal of `SpectralEquations` is not: the number of iterations
    hardly grows as alpha becomes small.
    """

    def __init__(
        self, left: Spectrum, right: Spectrum, rows: Side, columns: Side, cells: Cells, **loss: Any
    ) -> None:
        self.equations = CellEquations(rows.values, columns.values, cells, **loss)
        self.sign = loss["sign"]
        self.sides = left, right
        self.V, self.U = left.vectors, right.vectors
        self.values = np.outer(left.values, right.values)
        self.weight = float(cells.weight.mean()) if len(cells) else 1.0

    def product(self, alpha: float) -> Callable[[Array], Array]:
        """V ↦ (FᵀΓF + alpha I) v."""
        return lambda v: self.equations.G(v[:, None])[:, 0] + alpha * v

    def inverse(self, alpha: float) -> Callable[[Array], Array]:
        """About its inverse: that of the complete relation, F replaced by a mean weight."""
        factor, kernel = self.equations.factor, self.equations.kernel
        shift = alpha / self.weight
        parts = self._separated(shift)
        if parts is not None:
            left, right = parts

            def apply_parts(v: Array) -> Array:
                table = left @ kernel.scatter(v).astype(left.dtype, copy=False) @ right
                return factor.project(table.ravel()[kernel.flat].astype(np.float64)) / self.weight

            return apply_parts
        # 1/(λσ + alpha) − 1/alpha: what is left, the null space too, is multiplied by 1/alpha
        D = -self.values / ((self.values + shift) * shift)

        def apply(v: Array) -> Array:
            inner = D * (self.V.T @ kernel.scatter(v) @ self.U)
            table = self.V @ inner @ self.U.T
            out = table.ravel()[kernel.flat] + v / shift
            return factor.project(out) / self.weight

        return apply

    def _separated(self, shift: float) -> tuple[Array, Array] | None:
        """(K + aI)⁻¹ and (G + bI)⁻¹ with ab = shift, if their product is about as good.

        Where most products λσ are above the shift, (λ + a)(σ + b) is close to λσ + shift, and takes
        two products of matrices instead of four.
        """
        (lam, V), (sigma, U) = ((side.values, side.vectors) for side in self.sides)
        if self.sign or len(lam) < len(V) or len(sigma) < len(U):
            return None  # there are null spaces, where the inverse is 1/shift
        a = float(np.sqrt(shift * np.median(lam) / np.median(sigma)))
        b = shift / a
        ratio = np.multiply.outer(lam + a, sigma + b) / (self.values + shift)
        if ratio.max() > SEPARABLE:
            return None
        dtype: Any = np.float64
        if (lam.max() + a) * (sigma.max() + b) < SINGLE * (lam.min() + a) * (sigma.min() + b):
            dtype = np.float32
        left, right = (
            ((vectors / (values + c)) @ vectors.T).astype(dtype)
            for values, vectors, c in ((lam, V, a), (sigma, U, b))
        )
        return left, right


def spectra(
    rows: Side, columns: Side, *, ranking: bool, sign: int, offsets: FreeOffsets = NO_OFFSETS
) -> tuple[Spectrum, Spectrum]:
    """The eigenvectors of both sides that an incomplete problem is written in."""
    free = free_offsets(offsets, ranking=ranking)
    left = rows.spectrum(centred=free.columns).range
    return left, left if sign else columns.spectrum(centred=free.rows).range


def lowest_eigenvalue(
    rows: Side,
    columns: Side,
    cells: Cells,
    *,
    sign: int,
    pairwise: PairwiseKernel = KRONECKER,
    **_: Any,
) -> float:
    """A bound of the eigenvalues of the equations over cells: that of K ⊗ G holds for any part."""
    if sign or not pairwise.spectral:
        return 0.0
    floor = pairwise.eigenvalues(np.array([rows.floor]), np.array([columns.floor]))
    return float(floor[0, 0]) * float(cells.weight.min(initial=1.0))


def use_spectra(rows: Side, columns: Side, cells: Cells, n_alphas: int, **loss: Any) -> bool:
    """Whether the problem is solved in the eigenvectors of both kernels.

    Matrix products over all pairs must be worth it (many pairs are observed, or few features make
    them cheap), they must fit into memory, and the kernels must be positive semi-definite, but not
    so well-conditioned that many alphas converge together over the cells.
    """
    p, g = cells.shape
    few = all(
        side.by_features and side.features is not None and 8 * side.features.shape[1] <= len(side)
        for side in (rows, columns)
    )
    if few:
        return True
    if not _memory.fits(p, g, copies=10):
        return False
    lowest = lowest_eigenvalue(rows, columns, cells, sign=loss["sign"])
    if n_alphas > FEW and lowest > WELL_ABOVE_ZERO * (rows.size * columns.size / (p * g)):
        return False
    if len(cells) < WORTH_SPECTRA * p * g:
        return False
    return all((s.values >= 0).all() for s in spectra(rows, columns, **loss))


def worth_completing(cells: Cells) -> bool:
    """Whether products with all pairs are not much more than those with the observed ones."""
    p, g = cells.shape
    small = max(p, g) <= MAX_OBJECTS and _memory.fits(p, g, copies=10)
    return small and choose_form(len(cells), p, g) == "dense"


def can_complete(rows: Side, columns: Side, *, sign: int, **loss: Any) -> bool:
    """Whether the inverse of a complete relation is positive definite, as a preconditioner is."""
    sides = (rows,) if sign else (rows, columns)
    return all(bool((side.spectrum().values >= 0).all()) for side in sides)


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
    p, g = cells.shape
    few = 8 * max(inner.shape[1:]) <= min(p, g)
    sparse_cells = choose_form(len(cells), p, g) == "sampled" or not _memory.fits(p, g, copies=10)
    kind = SampledSpectralEquations if few and sparse_cells else SpectralEquations
    for a, alpha in enumerate(alphas):
        if inner[a].size:
            equations = kind(left, right, cells, alpha, **loss)
            shifts = np.array([equations.shift])
            (x,), history = converge([equations], alphas[[a]], options, shifts=shifts)
            inner[a] = equations.inner(x[0])
            n_iter = max(n_iter, history.n_iter)
    return inner, n_iter


def converge_by_completion(
    rows: Side,
    columns: Side,
    cells: Cells,
    alphas: Array,
    options: IterationOptions,
    **loss: Any,
) -> tuple[Array, int]:
    """Coefficients A of shape (n_alphas, p, g), and iterations of the slowest alpha.

    Larger alphas come first: their solutions are where the next ones start.
    """
    left = rows.spectrum().range
    right = left if loss["sign"] else columns.spectrum().range
    problem = CompletedCells(left, right, rows, columns, cells, **loss)
    equations = problem.equations
    out = np.empty((len(alphas), *cells.shape))

    def size(x: Array) -> float:
        return float(np.linalg.norm(equations.magnitude(x[:, None])))

    x, n_iter, worst = None, 0, None
    for a in np.argsort(alphas)[::-1]:
        alpha = float(alphas[a])
        found = solve_preconditioned(
            problem.product(alpha), problem.inverse(alpha), equations.C[:, 0], options, x, size
        )
        x = found.x
        out[a] = equations.coefficients(x[:, None])
        n_iter = max(n_iter, found.n_iter)
        if not found.accepted and not found.stopped:
            worst = max(worst or (0.0, 0.0), (found.residual, alpha))
    if worst is not None:
        warn_of_residual(n_iter, worst[1], options, worst[0])
    return out, n_iter


def warn_of_residual(
    n_iter: int, alpha: float, options: IterationOptions, residual: float | None = None
) -> None:
    """Say that equations over cells were not solved to the tolerance."""
    how = "an error" if residual is None else f"a relative residual of {residual:.2g}"
    warn(
        f"conjugate gradients ended after {n_iter} iterations with {how} > tol={options.tol:g} at "
        f"alpha={alpha:g}: raise max_iter, tol or alpha, add 'identity' to the kernels, or use "
        "early_stopping=True",
        ConvergenceWarning,
    )


def converge_over_cells(
    rows: Side,
    columns: Side,
    cells: Cells,
    alphas: Array,
    options: IterationOptions,
    *,
    quiet: bool = False,
    **loss: Any,
) -> tuple[Array, int, Array]:
    """Coefficients A of shape (n_alphas, p, g), by one run for all alphas.

    Returns
    -------
    coefficients : ndarray of shape (n_alphas, p, g)
    n_iter : int
    accepted : ndarray of shape (n_alphas,), bool
        Whether they are as accurate as they should be. If not, there is a warning, unless
        ``quiet``.
    """
    floor = lowest_eigenvalue(rows, columns, cells, **loss)
    equations = CellEquations(rows.values, columns.values, cells, floor=floor, **loss)
    (x,), history = converge([equations], alphas, options, shifts=alphas + floor, quiet=quiet)
    A = np.stack([equations.coefficients(solution) for solution in x])
    assert history.accepted is not None
    return A, history.n_iter, history.accepted


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
    held = held_out.choose(observations, sign or loss.get("pairwise", KRONECKER).symmetry)
    held_rows, held_cols, y = observations.select(held).lists
    equations = CellEquations(
        rows.values,
        columns.values,
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
