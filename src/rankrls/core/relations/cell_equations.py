"""Solve incomplete relations by conjugate gradients, with the solvers of `core.linalg`.

`CellEquations` are the equations of RankRLS over the observed pairs. They multiply by the kernel
K ⊗ G with two matrix products. `SpectralEquations` are the same problem in the eigenvectors of the
two kernels, where the system of a complete relation is diagonal. Scaling by this diagonal clusters
the eigenvalues, and a few dozen iterations are enough at any alpha.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from rankrls import _resources
from rankrls._calls import warn
from rankrls.core.linalg.krylov import (
    DirectionSum,
    History,
    IterationOptions,
    MultiShiftCG,
    converge,
    solve_preconditioned,
    stop_early,
)
from rankrls.core.relations.edges import (
    EdgeFactor,
    EdgeKernel,
    choose_form,
)
from rankrls.core.relations.labels import (
    NO_OFFSETS,
    Cells,
    FreeOffsets,
    Observations,
    TableOffsets,
    free_offsets,
)
from rankrls.core.relations.pairwise import (
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

#: Observed fraction of pairs above which equations in the eigenvectors take fewer iterations
#: (measured: three to ten times fewer above one half, no fewer below one tenth).
WORTH_SPECTRA = 0.2

#: Maximal order of a kernel matrix that is decomposed for a preconditioner.
MAX_OBJECTS = 2000

#: Maximal ratio between the eigenvalues of a Kronecker product preconditioner and the exact ones.
SEPARABLE = 2.0

#: Maximal condition number at which it is applied in single precision. Above it, rounding errors
#: increase the number of iterations by a tenth (measured).
SINGLE = 1e5

#: If the smallest eigenvalue is more than this fraction of the mean, as with identity kernels, one
#: run over the cells for all alphas takes fewer products.
WELL_ABOVE_ZERO = 1e-3

#: Up to this number of alphas, separate runs in the eigenvectors are faster (measured: each alpha
#: takes a third of the time).
FEW = 2


class CellEquations:
    """The system (FᵀΓF + alpha I) x = Fᵀy over q cells.

    It implements `core.linalg.krylov.Equations`.

    Parameters
    ----------
    K : ndarray of shape (p, p), or SideValues
    G : ndarray of shape (g, g), or SideValues
    cells : Cells
    ranking : bool
    sign : {0, 1, −1}
    offsets : FreeOffsets
    held_out : tuple of two int arrays, optional
        Rows and columns of further pairs. Their values are computed with every product.
    floor : float
        Lower bound of the eigenvalues of FᵀΓF outside the null space of F. `G` leaves it out, and
        it is added to the shift instead.
    pairwise : PairwiseKernel

    Notes
    -----
    F is the factor of the loss and Γ the pairwise kernel between cells. The coefficients of the
    cells are a = F x.
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
        """Number of entries of K and G."""
        return self.kernel.K.size + self.kernel.G.size

    @property
    def rank(self) -> int:
        """Number of cells."""
        return len(self.C)

    def G(self, V: Array) -> Array:
        """Compute FᵀΓF V − ``floor`` V for V of shape (q, k')."""
        q = len(self.C)
        values = self.kernel.matmat(self.factor.matmat(V))
        self._held_out = values[q:]
        out = self.factor.rmatmat(values[:q])
        return out - self.floor * V if self.floor else out

    def diagonal(self) -> Array:
        """Constant diagonal: rows of a kernel matrix are not scaled."""
        return np.ones(len(self.C))

    def magnitude(self, W: Array) -> Array:
        """Compute ‖k_i‖ ‖g_j‖ ‖F w‖ for the rows k_i of K and g_j of G, shape (q, k')."""
        size = np.linalg.norm(self.factor.matmat(W), axis=0)
        return (self.factor.root * self.kernel.row_sizes()[: len(W)])[:, None] * size

    def follow(self, run: MultiShiftCG) -> DirectionSum:
        """Track the values of the held-out pairs for the iterates of a run (`HeldOutImage`)."""
        return run.follow(lambda: self._held_out, self.shape[0])

    def coefficients(self, x: Array) -> Array:
        """Compute A of shape (p, g) from a solution of shape (q, 1)."""
        return self.kernel.scatter(self.factor.matvec(x[:, 0]))


class SpectralEquations:
    """Equations in the eigenvectors of both kernels, scaled by their diagonal, for one alpha.

    Parameters
    ----------
    left : Spectrum
        λ > 0, V of the row objects.
    right : Spectrum
        σ > 0, U of the column objects, centred for the ranking loss. With a sign, this is
        ``left`` itself.
    cells : Cells
    alpha : float
    ranking : bool
    sign : {0, 1, −1}
    offsets : FreeOffsets

    Attributes
    ----------
    shift : float
        The value that `converge` adds to the diagonal: the smallest entry of alpha/M (see Notes).

    Notes
    -----
    With f = V (√Λ ∘ W) Uᵀ, Λ = λσᵀ, ‖f‖² is the sum of W². For the loss L over the cells

        (√Λ ∘ VᵀL(V(√Λ ∘ W)Uᵀ)U) + alpha W = √Λ ∘ VᵀL(Y)U,

    and W = X/√M, where M is the diagonal of this system. The system of a complete relation is
    diagonal. That of an incomplete relation has eigenvalues close to one, except for functions
    that the observed pairs hardly determine. With a sign, W is symmetric or antisymmetric, and the
    left-hand side is symmetrised accordingly.

    Single precision is enough for almost all products, because all entries are of similar size in
    these coordinates. The scales √Λ/√M are applied in double precision.
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
        # alpha/M minus its smallest entry, which is a lower bound of the eigenvalues.
        self.shift = float(alpha / M.max(initial=alpha))
        self.ridge = alpha / M - self.shift
        self.C = self._target().reshape(-1, 1)

    def _set_loss(self, ranking: bool, offsets: FreeOffsets) -> None:
        """Set the loss, and its weights as a table of shape (p, g)."""
        self.weight = np.zeros(self.cells.shape)
        self.weight.ravel()[self.cells.flat] = self.cells.weight
        self.offsets = TableOffsets(self.weight, free_offsets(offsets, ranking=ranking))
        self._single = tuple(
            np.ascontiguousarray(part, dtype=np.float32) for part in (self.V, self.U, self.weight)
        )

    def _target(self) -> Array:
        """Compute the right-hand side, shape (r, s)."""
        cells = self.cells
        p, g = cells.shape
        y = np.zeros((p, g))
        y.ravel()[cells.flat] = cells.y
        if any(self.offsets.free):
            y -= cells.y.mean()
        if self.offsets.free.rows:  # subtracted first, so that large offsets cost no digits
            y += cells.y.mean()
            first = np.zeros(p)
            first[cells.rows[::-1]] = cells.y[::-1]
            y -= first[:, None]
        return self._back(y, self.V, self.U, self.weight)

    def _diagonal(self) -> Array:
        """Compute the diagonal of the first term, shape (r, s).

        Entry (i, j) is Λ_ij times the loss of the function v_i u_jᵀ over the cells. This is
        Σ ω v² u² for regression, and Σ ω v² u² − Σ_rows v² (Σ ω u)²/Ω for ranking. If both rows and
        columns have offsets, those of columns are ignored: the diagonal need not be exact.
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
        """Number of entries of V, U and the weights."""
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
        """Approximate size of an entry times the square root of the number of summed terms."""
        n, terms = len(W), sum(self.cells.shape)
        return np.repeat(np.linalg.norm(W, axis=0)[None] * np.sqrt(terms / n), n, axis=0)

    def inner(self, x: Array) -> Array:
        """Compute the coefficients between V and Uᵀ, shape (r, s), from a solution (n, 1)."""
        return x[:, 0].reshape(self.root.shape) / (self.scale * np.sqrt(self.values))


class SampledSpectralEquations(SpectralEquations):
    """Spectral equations for few eigenvectors and few cells; only observed pairs are computed.

    A product takes O(q min(r, s) + (p + g) r s) operations for q cells, and does not form a table
    of all pairs.
    """

    rough = None  # type: ignore[assignment]

    def _set_loss(self, ranking: bool, offsets: FreeOffsets) -> None:
        cells = self.cells
        self.factor = EdgeFactor(cells, centred=ranking, offsets=offsets)
        self.offsets = TableOffsets(cells, self.factor.free)
        self._pointers = np.searchsorted(cells.rows, np.arange(cells.shape[0] + 1))
        self.weight = self._sparse(cells.weight)

    def _sparse(self, values: Array) -> Any:
        """Store values of the cells in a sparse matrix of shape (p, g)."""
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
        """Factorise V inner Uᵀ into two matrices with as few columns as possible."""
        r, s = inner.shape
        return (self.V @ inner, self.U) if s <= r else (self.V, self.U @ inner.T)

    def _of_cells(self, values: Array) -> Array:
        """Compute √(Λ/M) ∘ Vᵀ T U, where the table T holds values of the cells."""
        table = self._sparse(values)
        few = self.U.shape[1] <= self.V.shape[1]
        inner = self.V.T @ (table @ self.U) if few else (table.T @ self.V).T @ self.U
        if self.sign:
            inner = 0.5 * (inner + self.sign * inner.T)
        return self.root * inner


class CompletedCells:
    """Equations over cells, preconditioned by the inverse of a complete relation.

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
    If all pairs are observed, Γ + alpha I = (V ⊗ U) diag(λσ + alpha) (V ⊗ U)ᵀ. Multiplying by its
    inverse takes two matrix products on each side, or one if (K + aI) ⊗ (G + bI) approximates it
    well. Its part over the observed cells approximates the inverse of (FᵀΓF + alpha I) at any
    alpha and for kernels of any smoothness, unlike the diagonal of `SpectralEquations`. The number
    of iterations hardly grows as alpha decreases.
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
        """Approximate the inverse of `product` by that of the complete relation.

        F is replaced by a mean weight.
        """
        factor, kernel = self.equations.factor, self.equations.kernel
        shift = alpha / self.weight
        parts = self._separated(shift)
        if parts is not None:
            left, right = parts

            def apply_parts(v: Array) -> Array:
                table = left @ kernel.scatter(v).astype(left.dtype, copy=False) @ right
                return factor.project(table.ravel()[kernel.flat].astype(np.float64)) / self.weight

            return apply_parts
        # 1/(λσ + alpha) − 1/alpha: the remainder and the null space are multiplied by 1/alpha
        D = -self.values / ((self.values + shift) * shift)

        def apply(v: Array) -> Array:
            inner = D * (self.V.T @ kernel.scatter(v) @ self.U)
            table = self.V @ inner @ self.U.T
            out = table.ravel()[kernel.flat] + v / shift
            return factor.project(out) / self.weight

        return apply

    def _separated(self, shift: float) -> tuple[Array, Array] | None:
        """Compute (K + aI)⁻¹ and (G + bI)⁻¹ with ab = shift, if their product is accurate enough.

        If most products λσ are above the shift, (λ + a)(σ + b) is close to λσ + shift, and takes
        two matrix products instead of four.
        """
        (lam, V), (sigma, U) = ((side.values, side.vectors) for side in self.sides)
        if self.sign or len(lam) < len(V) or len(sigma) < len(U):
            return None  # on null spaces the inverse is 1/shift
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
    """Decompose both sides for the spectral equations of an incomplete problem."""
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
    """Lower bound of the eigenvalues over cells: a bound of K ⊗ G holds for all submatrices."""
    if sign or not pairwise.spectral:
        return 0.0
    floor = pairwise.eigenvalues(np.array([rows.floor]), np.array([columns.floor]))
    return float(floor[0, 0]) * float(cells.weight.min(initial=1.0))


def use_spectra(rows: Side, columns: Side, cells: Cells, n_alphas: int, **loss: Any) -> bool:
    """Whether to solve the problem in the eigenvectors of both kernels.

    Three conditions must hold. Matrix products over all pairs are cheap (many pairs are observed,
    or there are few features) and fit into memory. The kernels are positive semi-definite. They
    are not so well-conditioned that many alphas converge together over the cells.
    """
    p, g = cells.shape
    few = all(
        side.by_features and side.features is not None and 8 * side.features.shape[1] <= len(side)
        for side in (rows, columns)
    )
    if few:
        return True
    if not _resources.fits(p, g, copies=10):
        return False
    lowest = lowest_eigenvalue(rows, columns, cells, sign=loss["sign"])
    if n_alphas > FEW and lowest > WELL_ABOVE_ZERO * (rows.size * columns.size / (p * g)):
        return False
    if len(cells) < WORTH_SPECTRA * p * g:
        return False
    return all((s.values >= 0).all() for s in spectra(rows, columns, **loss))


def worth_completing(cells: Cells) -> bool:
    """Whether products over all pairs cost little more than over the observed pairs."""
    p, g = cells.shape
    small = max(p, g) <= MAX_OBJECTS and _resources.fits(p, g, copies=10)
    return small and choose_form(len(cells), p, g) == "dense"


def can_complete(rows: Side, columns: Side, *, sign: int, **loss: Any) -> bool:
    """Whether the inverse of a complete relation is a positive definite preconditioner."""
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
    """Solve the spectral equations for every alpha.

    Returns the coefficients between V and Uᵀ, shape (n_alphas, r, s), and the largest number of
    iterations of any alpha.
    """
    inner = np.zeros((len(alphas), len(left.values), len(right.values)))
    n_iter = 0
    p, g = cells.shape
    few = 8 * max(inner.shape[1:]) <= min(p, g)
    sparse_cells = choose_form(len(cells), p, g) == "sampled"
    sparse_cells |= not _resources.fits(p, g, copies=10)
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
    """Solve the equations over cells with the preconditioner of `CompletedCells`.

    Returns the coefficients A of shape (n_alphas, p, g) and the largest number of iterations of
    any alpha. Alphas are solved in descending order, each starting from the previous solution.
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
    """Warn that equations over cells were not solved to the tolerance."""
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
    """Solve the equations over cells in one run for all alphas.

    Returns
    -------
    coefficients : ndarray of shape (n_alphas, p, g)
    n_iter : int
    accepted : ndarray of shape (n_alphas,), bool
        Whether the coefficients reach the tolerance. If not, a warning is issued unless ``quiet``.
    """
    floor = lowest_eigenvalue(rows, columns, cells, **loss)
    equations = CellEquations(rows.values, columns.values, cells, floor=floor, **loss)
    (x,), history = converge([equations], alphas, options, shifts=alphas + floor, quiet=quiet)
    A = np.stack([equations.coefficients(solution) for solution in x])
    assert history.accepted is not None
    return A, history.n_iter, history.accepted


@dataclass(frozen=True)
class HeldOutCells:
    """Choice of held-out edges for early stopping, and the score of their predictions.

    Attributes
    ----------
    fraction : float
        Fraction of the observed pairs to hold out.
    random_state : RandomState
    score : function of (labels, predictions, rows), each of shape (n,)
        Higher is better.
    """

    fraction: float
    random_state: Any
    score: Callable[[Array, Array, Array], float]

    def choose(self, observations: Observations, sign: int) -> Array:
        """Choose held-out edges; return a mask of shape (n_edges,).

        Random rows with at least four pairs are visited until the fraction is reached, and half of
        the pairs of each are held out, because an edge can only be ranked against others of its
        row. All edges of a pair are held out together. In symmetric and reciprocal relations, so
        is the mirror image of the pair.
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
    """Compute A of shape (1, p, g) at the iteration that ranks held-out edges best."""
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
    """Whether any row has two different labels."""
    order = np.lexsort((y, rows))
    rows, y = rows[order], y[order]
    return bool(((rows[1:] == rows[:-1]) & (y[1:] != y[:-1])).any())
