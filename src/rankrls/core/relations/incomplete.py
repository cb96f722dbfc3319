"""Solve incomplete relations, which are RankRLS over the observed pairs (cells).

The routes to the same function are conjugate gradients in the eigenvectors of both kernels
(`solve_in_eigenvectors`), a system over few cells (`solve_over_cells`), and systems over products
of few features or over objects (`solve_over_products`, `solve_over_objects`). Iterations in the
space of functions (`iterate_functions`) regularise if they are stopped.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import block_diag
from sklearn.exceptions import ConvergenceWarning

from rankrls import _resources
from rankrls._calls import warn
from rankrls._relation_labels import Cells, FreeOffsets, Observations, TableOffsets
from rankrls.core.linalg.factorizations import factorize
from rankrls.core.linalg.krylov import (
    History,
    Iteration,
    IterationOptions,
    MultiShiftCG,
    converge,
)
from rankrls.core.relations.pairwise_kernels import RelationLoss, SideValues, sampled_products
from rankrls.core.relations.sides import Side, Spectrum

__all__ = [
    "CellKernel",
    "CellLoss",
    "Validation",
    "few_cells",
    "hold_out_cells",
    "iterate_functions",
    "solve_in_eigenvectors",
    "solve_over_cells",
    "solve_over_objects",
    "solve_over_products",
]

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)

#: Cost of a cell in products over the cells, relative to a pair in products over all pairs
#: (measured: 25 to 40).
SAMPLED_COST = 30
#: Numbers in a work space.
WORK = 2**22
#: Iterations between two estimates of the error of the function.
WINDOW = 4
#: Number of coordinates above which products are computed in single precision first.
LARGE = 300**2
#: Maximal number of restarts from the true residual.
MAX_RESTARTS = 4
#: Largest rate of decrease between two estimates that is taken at face value.
MAX_RATE = 0.95
#: Ratio of the error of f to that estimated from the residual above which products are computed in
#: double precision.
ILL_CONDITIONED = 50.0
#: Least size of f, relative to labels, for which an error of the coefficients is one of f.
SMALL = 1e-4
#: Errors of f up to this size are accepted for any tolerance.
ROUNDING = 1e-10


def few_cells(n_cells: int, p: int, g: int) -> bool:
    """Whether products over the cells are cheaper than products over all pairs."""
    return SAMPLED_COST * n_cells < p * g


class CellLoss:
    """The loss (y − f)ᵀ F Fᵀ (y − f) over q cells (last axis), F = D_ω^{1/2} (I − offsets)."""

    def __init__(self, cells: Cells, free: FreeOffsets) -> None:
        self.cells, self.free = cells, free
        self._offsets = TableOffsets(cells, free) if free.columns or free.constant else None
        q, rows = len(cells), cells.rows
        self.starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]])[:q])
        self.lengths = np.diff(np.concatenate([self.starts, [q]]))
        self.root = np.sqrt(cells.weight)
        total = np.add.reduceat(cells.weight, self.starts) if q else np.empty(0)
        self.unit = self.root / np.repeat(np.sqrt(total), self.lengths)

    def project(self, V: Array) -> Array:
        """Remove the offsets of D_ω^{-1/2} V, shape (…, q)."""
        if not V.shape[-1] or not any(self.free):
            return V
        if self._offsets is None:
            means = np.add.reduceat(self.unit * V, self.starts, axis=-1)
            return V - self.unit * np.repeat(means, self.lengths, axis=-1)
        if V.ndim > 1:
            return np.stack([self.project(v) for v in V])
        a, b = self._offsets.solve(*self.cells.sums(self.root * V))
        return V - self.root * (a[self.cells.rows] + b[self.cells.cols])

    def forward(self, V: Array) -> Array:
        """Compute F V."""
        return self.root * self.project(V)

    def back(self, V: Array) -> Array:
        """Compute Fᵀ V."""
        return self.project(self.root * V)

    def apply(self, V: Array) -> Array:
        """Compute F Fᵀ V."""
        return self.forward(self.back(V))

    @cached_property
    def target(self) -> Array:
        """The right-hand side Fᵀ y, shape (q,)."""
        y = self.cells.y
        if self.free.rows and len(y):  # subtracted first, so that large offsets cost no digits
            y = y - np.repeat(y[self.starts], self.lengths)
        if self._offsets is not None and len(y):
            y = y - y.mean()
        return self.back(y)


class CellKernel:
    """Products with the kernel Γ of q cells, or its (anti)symmetric part, at pairs ``to``."""

    def __init__(
        self,
        sides: tuple[SideValues, SideValues],
        cells: Cells,
        loss: RelationLoss,
        to: tuple[Array, Array] | None = None,
    ) -> None:
        self.sides, self.cells, self.loss = sides, cells, loss
        self.to = (cells.rows, cells.cols) if to is None else to
        doubled = 2 if loss.sign or loss.pairwise.one_domain else 1
        most = max(doubled * len(cells), len(self.to[0]))
        self.sampled = few_cells(most, *cells.shape)

    def scatter(self, v: Array) -> Array:
        """Build coefficients A of shape (p, g) from values (q,), with the symmetry of Γ."""
        A = np.zeros(self.cells.shape, dtype=v.dtype)
        A.ravel()[self.cells.flat] = v
        return self.loss.pairwise.symmetrised(A, self.loss.sign)

    def product(self, v: Array) -> Array:
        """Compute the function with the coefficients v (q,) at the output pairs, shape (q',)."""
        pairwise = self.loss.pairwise
        if not self.sampled:
            return pairwise.table(*self.sides, self.scatter(v))[self.to]
        A = pairwise.symmetrised(self.cells.table(v), self.loss.sign)
        return pairwise.at(*self.sides, A, *self.to)

    def dense(self) -> Array:
        """Form the matrix of shape (q', q), for few cells, up to free offsets."""
        loss, ends = self.loss, (self.cells.rows, self.cells.cols)
        return loss.pairwise.between(self.sides, self.to, ends, loss.sign, loss.free)


# ---------------------------------------------------------------------- eigenvectors


class SpectralEquations:
    """The problem for B in f = V (√Λ ∘ B) Uᵀ, where Λ are the eigenvalues of Γ.

    √Λ ∘ VᵀL(V(√Λ ∘ B)Uᵀ)U + alpha B = √Λ ∘ VᵀL(Y)U, and the preconditioner ρΛ + alpha is the
    left-hand side if all pairs had the mean weight ρ. With a sign, B is (anti)symmetric.
    """

    def __init__(self, left: Spectrum, right: Spectrum, cells: Cells, loss: RelationLoss) -> None:
        self.V, self.U = left.vectors, right.vectors
        self.cells, self.sign = cells, loss.sign
        self.loss = CellLoss(cells, loss.free)
        self.values = loss.pairwise.eigenvalues(left.values, right.values)
        self.root = np.sqrt(self.values)
        p, g = cells.shape
        self.rho = float(cells.weight.sum()) / (p * g)
        # With few eigenvectors and few cells, only the cells are computed.
        few = 8 * max(self.values.shape) <= min(p, g)
        self.sampled = few and (few_cells(len(cells), p, g) or not _resources.fits(p, g, copies=10))
        self.target = self._back(self.loss.forward(self.loss.target), self.V, self.U)

    def product(self, B: Array, alpha: float, *, rough: bool = False) -> Array:
        """Compute the left-hand side, shape (r, s), if ``rough`` in single precision."""
        V, U = self._single if rough else (self.V, self.U)
        scaled = np.multiply(self.root, B, dtype=V.dtype, casting="same_kind")
        cells = self.cells
        if self.sampled:
            by_rows = U.shape[1] <= V.shape[1]
            ends = (V @ scaled, U) if by_rows else (V, U @ scaled.T)
            f = sampled_products(*ends, cells.rows, cells.cols)
        else:
            f = (V @ scaled @ U.T).ravel()[cells.flat]
        return self._back(self.loss.apply(f), V, U) + alpha * B

    @cached_property
    def _single(self) -> tuple[Array, Array]:
        return self.V.astype(np.float32), self.U.astype(np.float32)

    def _back(self, v: Array, V: Array, U: Array) -> Array:
        """Compute √Λ ∘ Vᵀ T U, where the table T holds values of the cells."""
        if self.sampled:
            T = self.cells.table(v)
            few = U.shape[1] <= V.shape[1]
            inner = V.T @ (T @ U) if few else (T.T @ V).T @ U
        else:
            T = np.zeros(self.cells.shape, dtype=V.dtype)
            T.ravel()[self.cells.flat] = v
            inner = V.T @ T @ U
        if self.sign:
            inner = 0.5 * (inner + self.sign * inner.T)
        return self.root * inner

    def solve(self, alpha: float, B: Array, options: IterationOptions) -> tuple[Array, int, float]:
        """Iterate from B with restarts from true residuals: B, iterations, error of f."""
        M = self.rho * self.values + alpha
        rough = self.values.size >= LARGE and not self.sampled
        n_iter, error, factor = 0, 0.0, np.inf
        for _ in range(1 + MAX_RESTARTS):
            R = self.target - self.product(B, alpha) if B.any() else self.target
            size = float(np.linalg.norm(self.root * B))
            distance = float(np.linalg.norm(self.root * (R / M)))
            if distance <= EPS * size or factor * distance <= options.tol * size:
                return B, n_iter, error
            change, n_iter, error, factor = self._run(R, B, M, alpha, n_iter, options, rough=rough)
            B = B + change
            if error > options.tol and not (rough and factor > ILL_CONDITIONED):
                return B, n_iter, error
            rough = rough and factor <= ILL_CONDITIONED
        return B, n_iter, max(error, factor * distance / size)

    def _run(
        self,
        R: Array,
        B: Array,
        M: Array,
        alpha: float,
        n_iter: int,
        options: IterationOptions,
        *,
        rough: bool,
    ) -> tuple[Array, int, float, float]:
        """Run from B with the residual R: change of B, iterations, error of f, its ratio to M's."""
        shape, flat = B.shape, M.reshape(-1, 1)
        run = MultiShiftCG(
            lambda P: self.product(P.reshape(shape), alpha, rough=rough).reshape(-1, 1),
            R.reshape(-1, 1),
            np.zeros(1),
            tol=0.0,
            bounded=False,
            precondition=lambda R, _: R / flat,
        )
        start = np.sqrt(float(np.vdot(self.target / M, self.target)))
        old, square, change, error, factor = np.zeros(shape), run.square[0], np.inf, np.inf, 1.0
        while n_iter < options.max_iter and run.step():
            n_iter += 1
            if options.report(n_iter, float(run.scale[0] * np.sqrt(run.square[0])) / start):
                return run.solution(0).reshape(shape), n_iter, 0.0, 0.0
            if run.n_iter % WINDOW and not run.frozen.all():
                continue
            new = run.solution(0).reshape(shape)
            size = float(np.linalg.norm(self.root * (B + new))) or 1.0
            distance = np.linalg.norm(self.root * run.R.reshape(shape) / M) * run.scale[0] / size
            before, change = change, float(np.linalg.norm(self.root * (new - old))) / size
            rate = change / before if np.isfinite(before) else MAX_RATE
            rate = min(max(np.sqrt(run.square[0] / square), rate), MAX_RATE)
            error = max(change * rate / (1.0 - rate), float(distance))
            if np.isfinite(before):
                factor = error / max(float(distance), EPS**2)
            if error <= options.tol or (rough and factor > ILL_CONDITIONED):
                break
            old, square = new, run.square[0]
        return run.solution(0).reshape(shape), n_iter, error, factor


def solve_in_eigenvectors(
    left: Spectrum,
    right: Spectrum,
    cells: Cells,
    alphas: Array,
    options: IterationOptions,
    loss: RelationLoss,
) -> tuple[Array, int, Array]:
    """Compute coefficients (n_alphas, r, s), the iterations, and which alphas converged."""
    equations = SpectralEquations(left, right, cells, loss)
    inner = np.zeros((len(alphas), *equations.values.shape))
    accepted, n_iter, B = np.ones(len(alphas), dtype=bool), 0, np.zeros(equations.values.shape)
    for a in np.argsort(alphas)[::-1]:
        B, steps, error = equations.solve(float(alphas[a]), B, options)
        np.divide(B, equations.root, out=inner[a], where=equations.root > 0)
        accepted[a], n_iter = error <= max(2.0 * options.tol, ROUNDING), max(n_iter, steps)
    return inner, n_iter, accepted


# ---------------------------------------------------------------------- cells


class CellEquations:
    """The system (FᵀΓF + alpha I) x = Fᵀy over q cells; the coefficients of the cells are F x."""

    outputs = np.zeros(1, dtype=np.int64)
    dtype = np.dtype(np.float64)

    def __init__(self, rows: Side, columns: Side, cells: Cells, loss: RelationLoss) -> None:
        self.loss = CellLoss(cells, loss.free)
        self.kernel = CellKernel((rows, columns), cells, loss)
        self.C = self.loss.target[:, None]
        self.rough = self._single if self.kernel.sampled and loss.pairwise.plain else None

    @property
    def n_entries(self) -> int:
        """Number of entries of K and G."""
        return sum(side.K.size for side in self.kernel.sides)

    @property
    def rank(self) -> int:
        """Number of cells."""
        return len(self.C)

    def G(self, V: Array) -> Array:
        """Compute FᵀΓF V for V of shape (q, k')."""
        values = np.stack([self.kernel.product(v) for v in self.loss.forward(V.T)])
        return self.loss.back(values).T

    def _single(self, V: Array) -> Array:
        """Compute FᵀΓF V in single precision."""
        kernel, coefficients = self._single_kernel, self.loss.forward(V.T).astype(np.float32)
        values = np.stack([kernel.product(v) for v in coefficients])
        return self.loss.back(values.astype(np.float64)).T

    @cached_property
    def _single_kernel(self) -> CellKernel:
        rows, columns = (SideValues(side.K.astype(np.float32)) for side in self.kernel.sides)
        return CellKernel((rows, columns), self.kernel.cells, self.kernel.loss)

    def diagonal(self) -> Array:
        """Constant diagonal: rows of a kernel matrix are not scaled."""
        return np.ones(len(self.C))

    def magnitude(self, W: Array) -> Array:
        """Bound the entries of products by √(Γ_ee trace Γ) ‖F w‖, shape (q, k')."""
        kernel, cells = self.kernel, self.kernel.cells
        own = kernel.loss.pairwise.diagonal(*kernel.sides)[cells.rows, cells.cols]
        size = np.linalg.norm(self.loss.forward(W.T), axis=1)
        return (self.loss.root * np.sqrt(own * own.sum()))[:, None] * size


def solve_over_cells(
    rows: Side,
    columns: Side,
    cells: Cells,
    alphas: Array,
    loss: RelationLoss,
    options: IterationOptions | None = None,
) -> tuple[Array, int, Array]:
    """Compute A (n_alphas, p, g), the iterations (None: factorise), and which alphas converged."""
    equations = CellEquations(rows, columns, cells, loss)
    n_iter, accepted = 1, np.ones(len(alphas), dtype=bool)
    if options is not None:
        (x,), history = converge([equations], alphas, options, quiet=True)
        assert history.accepted is not None
        # Functions that are much smaller than the labels are less accurate than the coefficients.
        own = float(loss.pairwise.diagonal(rows, columns)[cells.rows, cells.cols].mean())
        sizes = np.array([np.linalg.norm(equations.G(w)) for w in x])
        least = SMALL * np.linalg.norm(equations.C) * np.minimum(1.0, own / alphas)
        n_iter, accepted = history.n_iter, history.accepted & (sizes >= least)
    else:
        gram = equations.kernel.dense()
        S = equations.loss.back(np.ascontiguousarray(equations.loss.back(gram).T))
        S = 0.5 * (S + S.T)
        noise = EPS * float(np.abs(gram.diagonal()).max(initial=0.0) * cells.weight.max())
        made = factorize(S, alphas, equations.C, in_range=False, noise=noise)
        x = made.solve_path(equations.C, alphas)
    A = np.stack([equations.kernel.scatter(equations.loss.forward(w[:, 0])) for w in x])
    return A, n_iter, accepted


# ---------------------------------------------------------------------- early stopping


class Validation(NamedTuple):
    """Labels of pairs of ``sides`` whose ``score`` decides when iterations stop."""

    sides: tuple[SideValues, SideValues]
    labels: Observations
    score: Callable[[Array, Array, Array], float]  # of labels, predictions, rows; higher is better


def hold_out_cells(
    observations: Observations, fraction: float, random_state: Any, *, mirror: bool
) -> Array:
    """Choose edges for early stopping, half of the pairs of random rows: a mask (n_edges,)."""
    cells = observations.cells
    p, g = observations.shape
    chosen = np.zeros(p * g, dtype=bool)
    wanted, taken = fraction * len(cells), 0
    starts = np.searchsorted(cells.rows, np.arange(p + 1))
    for row in random_state.permutation(p):
        pairs = cells.flat[starts[row] : starts[row + 1]]
        if len(pairs) < 4 or taken >= wanted:
            continue
        half = random_state.permutation(pairs)[: len(pairs) // 2]
        chosen[half] = True
        taken += len(half)
        if mirror:
            chosen[(half % g) * g + half // g] = True
    rows, cols, y = observations.lists
    held = chosen[rows * g + cols]
    order = np.lexsort((y[held], rows[held]))
    i, labels = rows[held][order], y[held][order]
    if not ((i[1:] == i[:-1]) & (labels[1:] != labels[:-1])).any():
        raise ValueError(
            f"early stopping: validation_fraction={fraction:g} leaves no row with two "
            "held-out edges of different labels to compare (rows with fewer than four observed "
            "pairs are not used). Increase it, or set early_stopping=False"
        )
    return held


def iterate_functions(
    rows: Side,
    columns: Side,
    observations: Observations,
    alpha: float,
    options: IterationOptions,
    validation: Validation | None,
    loss: RelationLoss,
) -> tuple[Array, History]:
    """Compute A of shape (p, g) at the iteration that ranks ``validation`` best, or at the last.

    The gradient at f = Γa is −2Γr with r = L(y − f) − alpha a, so that all products are those of
    coefficients with Γ. The iterates are those of RankRLS with explicit features of pairs.
    """
    cells, q = observations.cells, len(observations.cells)
    cell_loss, sides = CellLoss(cells, loss.free), (rows, columns)
    judge, to = None, (cells.rows, cells.cols)
    if validation is not None:
        lists, others, y = validation.labels.lists
        pairs = lists, others
        if all(map(operator.is_, validation.sides, sides)):  # known objects: the same product
            to = np.append(to[0], pairs[0]), np.append(to[1], pairs[1])
        else:
            judge = CellKernel(validation.sides, cells, loss, pairs)
    kernel = CellKernel(sides, cells, loss, to)
    r = cell_loss.forward(cell_loss.target)
    image = kernel.product(r)
    direction, along = r.copy(), image.copy()  # along is Γ direction
    square = first = float(r @ image[:q])
    a, f = np.zeros(q), np.zeros(len(to[0]))
    best, best_error, best_iteration = a, np.inf, 0
    errors: list[float] = []
    for n_iter in range(1, options.max_iter + 1):
        back = cell_loss.apply(along[:q]) + alpha * direction
        curvature = float(along[:q] @ back)
        step = square / curvature if curvature > 0.0 else 0.0
        a, f, r = a + step * direction, f + step * along, r - step * back
        image = kernel.product(r)
        before, square = square, float(r @ image[:q])
        residual = np.sqrt(max(square, 0.0) / first) if first > 0.0 else 0.0
        if validation is None:
            best = a
            stopped = options.report(n_iter, residual)
        else:
            predictions = f[q:] if judge is None else judge.product(a)
            score = validation.score(y, predictions, lists)
            if not np.isfinite(score):
                raise ValueError(f"scoring returned {score}; it must return a finite number")
            errors.append(1.0 - score)
            if errors[-1] < best_error:
                best_error, best_iteration, best = errors[-1], n_iter, a
            state = Iteration(n_iter, residual, errors[-1], best_error, best_iteration)
            text = f"validation error {errors[-1]:.4f}, best {best_error:.4f} at {best_iteration}"
            options.progress.bar(n_iter, options.max_iter, text)
            stopped = options.callback is not None and bool(options.callback(state))
            stopped = stopped or n_iter - best_iteration >= options.patience
        if stopped or residual <= options.tol:
            break
        direction, along = (
            new + (square / before) * old for new, old in ((r, direction), (image, along))
        )
    else:
        if validation is not None:
            warn(
                f"early stopping reached max_iter={options.max_iter} before the validation error "
                f"had stopped improving for {options.patience} iterations: raise max_iter",
                ConvergenceWarning,
            )
    history = History(
        n_iter,
        iterations=np.arange(1, len(errors) + 1),
        errors=np.array(errors)[:, None],
        best_iteration=best_iteration,
        best=0,
    )
    return kernel.scatter(best), history


# ---------------------------------------------------------------------- few unknowns


def solve_over_products(
    left: Spectrum, right: Spectrum, cells: Cells, alphas: Array, loss: RelationLoss
) -> Array:
    """Compute coefficients (n_alphas, r, s) by one system over products of eigenvectors."""
    r, s, sign = len(left.values), len(right.values), loss.sign
    i, j = np.triu_indices(r, 0 if sign == 1 else 1) if sign else np.divmod(np.arange(r * s), s)
    inner = np.zeros((len(alphas), r, s))
    if not len(i):
        return inner
    root = np.sqrt((left.values[:, None] * right.values)[i, j])
    gram, cross = _moments(left.vectors, right.vectors, CellLoss(cells, loss.free))
    norm = np.ones(len(i))
    if sign:  # moments of the products φ_i φ_j ± φ_j φ_i, scaled to unit norm
        norm = np.where(i == j, 0.5, np.sqrt(0.5))
        first, second = i * r + j, j * r + i
        gram = gram[first] + sign * gram[second]
        gram = norm[:, None] * (gram[:, first] + sign * gram[:, second]) * norm
        cross = norm * (cross[first] + sign * cross[second])
    gram *= root
    gram *= root[:, None]
    right_side = (root * cross)[:, None]
    made = factorize(gram, alphas, right_side, in_range=True, scaled=True)
    values = made.solve_path(right_side, alphas)[:, :, 0] / root
    if sign:
        values = np.where(i == j, 1.0, np.sqrt(0.5)) * values
        inner[:, j, i] = sign * values
    inner[:, i, j] = values
    return inner


def _moments(V: Array, U: Array, loss: CellLoss) -> tuple[Array, Array]:
    """Compute ΦᵀLΦ and ΦᵀLy of the products Φ of rows of V (p, r) and U (g, s)."""
    cells = loss.cells
    (p, r), s = V.shape, U.shape[1]
    a, b = np.triu_indices(s)
    i, j = np.triu_indices(r)
    weights, products = cells.table(cells.weight), U[:, a] * U[:, b]
    sums = weights @ U
    share = TableOffsets(cells, loss.free).shares[0]
    corners = np.zeros((len(i), len(a)))
    size = max(1, WORK // max(len(a), len(i)))
    for start in range(0, p, size):
        part = slice(start, start + size)
        inner = weights[part] @ products
        if loss.free.rows:
            inner -= sums[part][:, a] * (share[part, None] * sums[part][:, b])
        corners += (V[part][:, i] * V[part][:, j]).T @ inner
    # (r, r, s, s) from the triangles, then the two indices of a product side by side
    rows, columns = np.empty((r, r), dtype=int), np.empty((s, s), dtype=int)
    rows[i, j] = rows[j, i] = np.arange(len(i))
    columns[a, b] = columns[b, a] = np.arange(len(a))
    gram = corners[rows[:, None, :, None], columns[None, :, None, :]].reshape(r * s, r * s)
    cross = (V.T @ (cells.table(loss.forward(loss.target)) @ U)).ravel()
    if loss.free.constant:
        means = (V.T @ sums).ravel()
        gram -= np.outer(means, means / cells.weight.sum())
    return gram, cross


def solve_over_objects(
    rows: Side, columns: Side, cells: Cells, alphas: Array, loss: RelationLoss
) -> Array:
    """Compute A (n_alphas, p, g) for a kernel c (K ⊗ 11ᵀ + 11ᵀ ⊗ G) of sums of functions.

    With the incidence N of cells and objects and the features Φ = V√(cλ) of the objects,
    (ΦᵀNᵀLNΦ + alpha I) β = ΦᵀNᵀLy. A has the row sums V√(c/λ) β₁ and the column sums of β₂.
    """
    sign, weight = loss.pairwise.sign or loss.sign, loss.pairwise.terms[0].weight
    cell_loss, free, (p, g) = CellLoss(cells, loss.free), loss.free, cells.shape
    spectra = [rows.spectrum().range, columns.spectrum().range][: 1 if sign else 2]
    q = np.arange(len(cells))
    incidence = [
        sparse.csr_array((np.ones(len(q)), (q, ends)), shape=(len(q), n))
        for ends, n in ((cells.rows, p), (cells.cols, g))
    ]
    # L removes the functions of objects that have offsets.
    first, second = 0 * incidence[0] if free.rows else incidence[0], incidence[1]
    second = 0 * second if free.columns else second
    half = 0.5 if sign else 1.0  # with a sign, the kernel of h is ½ c K
    N = first + sign * second if sign else sparse.hstack([first, second], format="csr")
    T = incidence[0] if free.rows else incidence[1] if free.columns else np.ones((len(q), 1))
    weighted = (N * cells.weight[:, None]).T
    S = (weighted @ N).toarray()
    if any(free):
        common = weighted @ T
        common = common.toarray() if sparse.issparse(common) else common
        total = np.asarray(T.T @ cells.weight)
        S -= (common / np.where(total > 0, total, 1.0)) @ common.T
    Phi = block_diag(*[side.vectors * np.sqrt(half * weight * side.values) for side in spectra])
    gram, b = Phi.T @ S @ Phi, Phi.T @ (N.T @ cell_loss.forward(cell_loss.target))[:, None]
    beta = np.zeros((len(alphas), len(b)))
    if len(b):
        size = float(np.abs(S).max(initial=0.0)) * float((Phi**2).sum(axis=0).max())
        made = factorize(0.5 * (gram + gram.T), alphas, b, in_range=False, noise=EPS * size)
        beta = made.solve_path(b, alphas)[:, :, 0]
    out = np.empty((len(alphas), p, g))
    for A, coordinates in zip(out, beta, strict=True):
        parts = np.split(coordinates, [len(spectra[0].values)])
        sums = [
            side.vectors @ (half * part / np.sqrt(half * weight * side.values))
            for side, part in zip(spectra, parts, strict=False)
        ]
        row, column = (sums[0], sign * sums[0]) if sign else sums
        # Both have the same total, except for functions of norm zero.
        outside = [_constants_outside(side) for side in spectra]
        level = 0.0 if sign == -1 else float((column if outside[0][1] else row).sum())
        if sign != 1:
            row += outside[0][0] * ((level - row.sum()) / outside[0][0].sum())
            column = column + outside[-1][0] * ((level - column.sum()) / outside[-1][0].sum())
        A[:] = row[:, None] / g + column / p - level / (p * g)
    return out


def _constants_outside(side: Spectrum) -> tuple[Array, bool]:
    """Return the part of the constants in the null space of the kernel, if there is one."""
    one, V = np.ones(len(side.vectors)), side.vectors
    rest = one - V @ (V.T @ one)
    rest -= V @ (V.T @ rest)
    found = bool(np.linalg.norm(rest) > len(one) * EPS * np.sqrt(len(one)) * 1e3)
    return rest if found else one, found
