"""Conditional ranking problems, given by two sides, labels and a loss, and their solution."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from rankrls import _resources
from rankrls._calls import Progress, warn
from rankrls._relation_labels import (
    NO_OFFSETS,
    Cells,
    CompleteBlock,
    FittedOffsets,
    Observations,
    TableOffsets,
)
from rankrls.core.linalg.krylov import History, IterationOptions
from rankrls.core.relations.complete import closed_form, shared_bases
from rankrls.core.relations.incomplete import (
    CellLoss,
    Validation,
    few_cells,
    iterate_functions,
    solve_in_eigenvectors,
    solve_over_cells,
    solve_over_objects,
    solve_over_products,
)
from rankrls.core.relations.pairwise_kernels import (
    PairwiseKernel,
    RelationLoss,
    sampled_products,
)
from rankrls.core.relations.sides import Side, Spectrum

__all__ = ["LOST", "SOLVERS", "RelationModel", "RelationProblem"]

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)

SOLVERS = ("auto", "closed", "primal", "dual", "cg")

#: Maximal number of observed pairs for which "auto" factorises the system over these pairs.
MAX_DUAL_CELLS = 2000
#: Up to this number of observed pairs, a system over these converges in fewer iterations.
FEW_CELLS = 200
#: Maximal number of observed pairs for which a system that did not converge is factorised.
MAX_FALLBACK = 6000
#: Maximal number of multiplications with which "auto" solves for products of features.
MAX_PRIMAL_COST = 1.5e10
#: Relative rounding error of predictions above which a warning is issued.
LOST = 1e-5
#: Size of the random errors, relative to rounding errors, by which those are estimated.
NOISE = 1e3
#: Maximal number of objects of a side for which rounding errors of predictions are estimated.
SAMPLE = 64


@dataclass(frozen=True)
class RelationModel:
    """A fitted relation f(x, z) = k_xᵀ A g_z of kernel values, or xᵀ A z of features if ``linear``.

    For every alpha, A is a table (p, g), or V inner Uᵀ in ``bases``, the spectra of both sides.
    """

    solver: str
    pairwise: PairwiseKernel
    inner: Any  # (n_alphas, p, g), or (n_alphas, r, s) in ``bases``
    bases: tuple[Spectrum, Spectrum] | None = None
    linear: bool = False
    n_iter: int = 1
    history: History | None = None
    offsets: list[FittedOffsets] | None = None  # for every alpha

    @cached_property
    def tables(self) -> Array:
        """The coefficients A of kernel values, or of features if ``linear``, for every alpha."""
        if self.bases is None:
            return self.inner
        left, right = self.bases
        V, U = left.vectors, right.vectors
        if self.linear:
            V, U = left.weights * left.values, right.weights * right.values
        return np.stack([V @ inner @ U.T for inner in self.inner])

    def coefficients(self, sides: tuple[Side, Side]) -> Array:
        """Compute the coefficients A of kernel values, shape (n_alphas, p, g)."""
        if not self.linear:
            return self.tables
        left, right = (np.linalg.pinv(side.features) for side in sides)
        return left.T @ self.tables @ right

    def predict(
        self, sides: tuple[Side, Side], rows: Array, cols: Array, *, offsets: bool = True
    ) -> Array:
        """Predict pairs of objects of the two sides, shape (n_alphas, n_pairs)."""
        if self.pairwise.plain:
            (used, i), (others, j) = (np.unique(ends, return_inverse=True) for ends in (rows, cols))
            if self.bases is None:
                left, right = (side.features if self.linear else side.K for side in sides)
                left, right = left[used], right[others]
            else:
                left = sides[0].images(self.bases[0], used)
                right = sides[1].images(self.bases[1], others)
            few = few_cells(len(rows), len(left), len(right))
            if few or not _resources.fits(len(left), len(right), copies=2):
                values = np.stack([sampled_products(left @ A, right, i, j) for A in self.inner])
            else:
                values = np.stack([(left @ A @ right.T)[i, j] for A in self.inner])
        else:
            tables = (self.pairwise.table(*sides, A) for A in self.tables)
            values = np.stack([table[rows, cols] for table in tables])
        if offsets and self.offsets is not None:
            for row, fitted in zip(values, self.offsets, strict=True):
                row += fitted.at(rows, cols)
        return values


class RelationProblem:
    """Minimise (y − f)ᵀ L (y − f) + alpha ‖f‖² over the observed pairs of two sides.

    L = I, or centring by row (P5 (31), (32)), in the space of a pairwise kernel. With both sides
    of the same objects, these are the same `Side`. Two-step takes alphas of shape (n_alphas, 2).
    """

    def __init__(
        self, rows: Side, columns: Side, observations: Observations, loss: RelationLoss
    ) -> None:
        self.sides = (rows, columns)
        self.observations, self.loss = observations, loss
        self.ranking, self.sign, self.offsets = loss.ranking, loss.sign, loss.offsets
        self.pairwise, self.free = loss.pairwise, loss.free
        #: Whether a pair determines its mirror image, so that both are held out together.
        self.paired = self.sign != 0 or self.pairwise.one_domain
        #: Whether each side has its own alpha.
        self.two_step = self.pairwise.name == "two-step"
        #: Whether a kernel is computed from labels.
        self.profiled = rows.profiled or columns.profiled

    @property
    def has_shortcuts(self) -> bool:
        """Whether held-out predictions of a complete relation can use its decomposition."""
        free = self.free
        if self.profiled or not self.pairwise.spectral:
            return False
        return self.sign == 0 and not free.columns and (self.ranking or not free.rows)

    @property
    def has_closed_form(self) -> bool:
        """Whether a complete relation has a closed form."""
        if self.pairwise.name == "polynomial":
            return not (self.sign and self.ranking) and self._positive()
        return self.pairwise.spectral

    def size(self) -> float:
        """Upper bound of the largest eigenvalue of the kernel matrix of pairs."""
        if self.pairwise.plain:
            return self.sides[0].size * self.sides[1].size
        return float(self.pairwise.diagonal(*self.sides).sum())

    def select(self, chosen: Array) -> RelationProblem:
        """Return the problem of some edges, a mask or indices; profiles are those of these."""
        observations, (rows, columns) = self.observations.select(chosen), self.sides
        rows = rows.given(observations)
        columns = columns.given(observations.T) if columns.profiled else columns
        return RelationProblem(rows, columns, observations, self.loss)

    def labels(self) -> Array | None:
        """The labels as a matrix of shape (p, g), or None unless every pair has one label."""
        return self.observations.as_matrix().matrix

    def predict_without(
        self,
        out: Array,
        rows: Array,
        cols: Array,
        alphas: Array,
        solver: str = "auto",
        options: IterationOptions | None = None,
    ) -> Array:
        """Predict pairs by a refit without the edges ``out`` (a mask), shape (n_alphas, n)."""
        part = self.select(~out)
        if part.observations.n_edges == 0:
            return np.zeros((len(alphas), len(rows)))
        return part.solve(alphas, solver, options).predict(part.sides, rows, cols)

    # ------------------------------------------------------------------ choosing a solver

    def solve(
        self,
        alphas: Array,
        solver: str = "auto",
        options: IterationOptions | None = None,
        *,
        validation: Validation | None = None,
        progress: Progress | None = None,
    ) -> RelationModel:
        """Compute the model of every alpha; ``validation`` pairs stop iterations early."""
        options = IterationOptions() if options is None else options
        wanted, early = solver, validation is not None or not np.all(alphas)
        closed = solver in ("auto", "closed") and self.has_closed_form
        block = None
        if closed and not (solver == "auto" and early):
            block = self.observations.block(ranking=self.free.rows, square=self.sign != 0)
        if solver == "auto" and not self.two_step:
            solver = "closed" if block is not None else "cg" if early else self._choose()
        if wanted != "auto" or self.two_step:
            self._check_solver(solver, block, early=early)
        if progress is not None:
            n, (p, g) = self.observations.n_edges, self.observations.shape
            progress(f"{n:,} edges of {p:,} × {g:,} objects: solver {solver}")
        if block is not None:
            model = self._closed(block, alphas)
        elif solver == "primal":
            model = self._primal(alphas)
        elif solver == "dual":
            model = self._dual(alphas)
        elif early:
            A, history = iterate_functions(
                *self.sides, self.observations, float(alphas[0]), options, validation, self.loss
            )
            kept = history if validation is not None else None
            model = RelationModel("cg", self.pairwise, A[None], n_iter=history.n_iter, history=kept)
        else:
            model = self._iterate(alphas, options, fallback=wanted == "auto")
        return self._with_offsets(model)

    def solve_block(self, block: CompleteBlock, alphas: Array) -> RelationModel:
        """Solve the closed form of the labels of some rows and columns only."""
        model = self._closed(block, alphas)
        if not any(self.offsets):
            return model
        rows, cols = (part.ravel() for part in np.meshgrid(*block[:2], indexing="ij"))
        labels = Observations(rows, cols, block.Y.ravel(), self.observations.shape)
        return self._with_offsets(model, labels.cells)

    def _closed(self, block: CompleteBlock, alphas: Array) -> RelationModel:
        rows, columns = self.sides
        first = second = rows.select(block.rows)
        if rows is not columns or not np.array_equal(block.rows, block.cols):
            second = columns.select(block.cols)
        form = closed_form(first, second, block.Y, self.loss)
        left = form.bases[0].among(block.rows, len(rows))
        right = form.bases[1].among(block.cols, len(columns))
        inners = np.stack([form.inner(alpha) for alpha in alphas])
        return self._of_factors("closed", left, right, inners)

    def _choose(self) -> str:
        """Choose a solver of an incomplete relation."""
        (p, g), q = self.observations.shape, len(self.observations.cells)
        if self.pairwise.additive and _resources.fits(p + g, p + g, copies=6) and self._positive():
            return "primal"
        if self.pairwise.plain and not self.free.columns:
            features = [side.features for side in self.sides]
            if all(X is not None for X in features):
                d, e = (X.shape[1] for X in features)
                few = (d * e if self.sign == 0 else d * (d + self.sign) // 2) < q
                # Multiplications with sparse matrices count eight times (measured).
                cost = 4.0 * q * e**2 + 0.25 * p * (d * e) ** 2 + (d * e) ** 3 / 3
                if few and cost <= MAX_PRIMAL_COST:
                    return "primal"
        return "dual" if q <= MAX_DUAL_CELLS and not self._loses_digits() else "cg"

    def _loses_digits(self) -> bool:
        """Whether features lose digits in kernel matrices, but not in their singular vectors."""
        return self.pairwise.plain and any(side.loses_digits for side in self.sides)

    def _positive(self) -> bool:
        """Whether both kernels are positive semi-definite."""
        return all((side.spectrum().values >= 0).all() for side in self.sides)

    def _check_solver(self, solver: str, block: CompleteBlock | None, *, early: bool) -> None:
        """Raise an error if the problem is not one for the solver."""
        if early and solver != "cg":
            raise ValueError(
                f"early_stopping and alpha=0 need solver='cg' (or 'auto'), not {solver!r}"
            )
        reason, additive = "", self.pairwise.additive
        if self.two_step and solver in ("auto", "closed"):
            if block is None:
                raise ValueError(
                    "pairwise='two-step' needs a complete Y: every pair of the objects that have a "
                    "label observed, once. Use another pairwise kernel, or fill Y in"
                )
        elif self.two_step or (solver == "closed" and not self.has_closed_form):
            reason = "two-step regression has a closed form only" * self.two_step
            reason = reason or "there is no closed form"
        elif solver == "closed" and block is None:
            reason = "it needs a complete relation: every pair of objects with labels observed "
            reason += "once" + ", with the same objects on both sides" * (self.sign != 0)
        elif solver == "primal" and additive and not self._positive():
            reason = "it needs positive semi-definite kernels"
        elif solver == "primal" and not additive:
            featured = all(side.features is not None for side in self.sides)
            if not (self.pairwise.plain and featured) or self.free.columns:
                reason = "it needs the features of linear kernels, not more than objects if "
                reason += "sparse, in products, and no offsets of ranked objects"
        if reason:
            raise ValueError(
                f"solver={solver!r} is not for this problem with pairwise={self.pairwise.name!r}: "
                f"{reason}. Use solver='auto'"
            )

    # ------------------------------------------------------------------ solvers

    def _primal(self, alphas: Array) -> RelationModel:
        cells, advice = self.observations.cells, "use solver='cg'"
        if self.pairwise.additive:
            n = sum(self.observations.shape)
            what = f"solver='primal' with {n:,} objects"
            _resources.require(what, n, n, copies=6, advice=advice)
            A = solve_over_objects(*self.sides, cells, alphas, self.loss)
            return RelationModel("primal", self.pairwise, A)
        spectra = self._spectra()
        n = len(spectra[0].values) * len(spectra[1].values)
        what = f"solver='primal' with {n:,} products of features"
        _resources.require(what, n, n, copies=6, advice=advice)
        inners = solve_over_products(*spectra, cells, alphas, self.loss)
        return self._of_factors("primal", *spectra, inners)

    def _dual(self, alphas: Array) -> RelationModel:
        q, advice = len(self.observations.cells), "use solver='cg'"
        what = f"solver='dual' with {q:,} observed pairs"
        _resources.require(what, q, q, copies=4, advice=advice)
        A, *_ = solve_over_cells(*self.sides, self.observations.cells, alphas, self.loss)
        return RelationModel("dual", self.pairwise, A)

    def _iterate(
        self, alphas: Array, options: IterationOptions, *, fallback: bool
    ) -> RelationModel:
        """Solve by conjugate gradients, or as ``fallback`` by a factorisation over few cells."""
        cells = self.observations.cells
        if self._in_eigenvectors():
            left, right = self._spectra()
            A, n_iter, accepted = solve_in_eigenvectors(
                left, right, cells, alphas, options, self.loss
            )
            model = self._of_factors("cg", left, right, A, n_iter)
        else:
            A, n_iter, accepted = solve_over_cells(*self.sides, cells, alphas, self.loss, options)
            model = RelationModel("cg", self.pairwise, A, n_iter=n_iter)
        if accepted.all():
            return model
        if fallback and len(cells) <= MAX_FALLBACK:
            return self._dual(alphas)
        warn(
            f"conjugate gradients ended after {n_iter} iterations with an error > "
            f"tol={options.tol:g} at alpha={alphas[~accepted].min():g}: raise max_iter, tol "
            "or alpha, add 'identity' to the kernels, or use early_stopping=True",
            ConvergenceWarning,
        )
        return model

    def _in_eigenvectors(self) -> bool:
        """Whether conjugate gradients are faster in eigenvectors than over few cells."""
        if not self.pairwise.spectral:
            return False
        (p, g), q = self.observations.shape, len(self.observations.cells)
        thin = all(
            side.features is not None and 8 * side.features.shape[1] <= len(side)
            for side in self.sides
        )
        if not (thin and self.pairwise.plain):
            few = few_cells(q * (2 if self.sign else 1), p, g) or q <= FEW_CELLS
            if (few and not self._loses_digits()) or not _resources.fits(p, g, copies=10):
                return False
        return all((spectrum.values >= 0).all() for spectrum in self._spectra())

    def _spectra(self) -> tuple[Spectrum, Spectrum]:
        """Decompose both sides; eigenvectors orthogonal to offsets of the other side."""
        left = self.sides[0].spectrum(centred=self.free.columns)
        right = left if self.sign else self.sides[1].spectrum(centred=self.free.rows)
        return shared_bases(left, right, self.pairwise)

    # ------------------------------------------------------------------ models

    def _of_factors(
        self, solver: str, left: Spectrum, right: Spectrum, inners: Any, n_iter: int = 1
    ) -> RelationModel:
        linear = left.weights is not None and right.weights is not None
        return RelationModel(solver, self.pairwise, inners, (left, right), linear, n_iter)

    def _with_offsets(self, model: RelationModel, cells: Cells | None = None) -> RelationModel:
        """Fit offsets to the residuals of cells, for every alpha, if the problem has any."""
        if not any(self.offsets):
            return model
        cells = self.observations.cells if cells is None else cells
        best = TableOffsets(cells, self.free)
        values = model.predict(self.sides, cells.rows, cells.cols)
        fitted = [best.fit(cells, cells.y - f) for f in values]
        if self.ranking:  # only what affects rankings of the columns
            none = np.zeros(len(self.sides[0]))
            fitted = [FittedOffsets(0.0, none, offsets.columns) for offsets in fitted]
        return replace(model, offsets=fitted)

    def rounding_error(
        self, model: RelationModel, alphas: Array, options: IterationOptions
    ) -> float:
        """Estimate the relative error of predictions due to rounding.

        Predictions for some objects are compared with the same ones computed in another way, and
        with those of a perturbed problem.
        """
        decomposed = model.linear or (model.solver == "closed" and self.pairwise.plain)
        error = EPS
        for side, centred in zip(self.sides, (self.free.columns, self.free.rows), strict=True):
            if centred and not decomposed:
                size, varying = side.size, side.centred_size
                error *= size / varying if varying > len(side) * EPS * size else 1.0
        least = int(np.argmin(alphas if alphas.ndim == 1 else alphas.prod(axis=1)))
        sizes = np.array([side.size for side in self.sides] if self.two_step else self.size())
        if error > LOST or (EPS * sizes <= LOST * alphas[least]).all():
            return error
        options = replace(options, progress=Progress("", 0), callback=None)
        ends = [np.unique(np.linspace(0, len(side) - 1, SAMPLE).astype(int)) for side in self.sides]
        rows, cols = (part.ravel() for part in np.meshgrid(*ends, indexing="ij"))

        def compared(F: Array) -> Array:
            F = F.reshape(len(ends[0]), -1)
            return F - F.mean(axis=1, keepdims=True) if self.ranking else F

        def values(model: RelationModel, sides: tuple[Side, Side], index: int) -> Array:
            return compared(model.predict(sides, rows, cols)[index])

        F = values(model, self.sides, least)
        size = float(np.abs(F).max(initial=0.0)) or 1.0
        table = model.tables[least]
        if model.bases is None:
            absorbed = self.free if self.ranking else NO_OFFSETS
            largest = self.pairwise.diagonal(*self.sides, free=absorbed).max(initial=0.0)
            root = float(np.sqrt(table.size))  # rounding errors of sums
            error = max(error, EPS * largest * root * float(np.linalg.norm(table)) / size)
            if EPS * largest > NOISE * alphas[least]:  # smaller functions are not fitted
                cells = self.observations.cells
                f = model.predict(self.sides, cells.rows, cells.cols, offsets=False)[least]
                rest = CellLoss(cells, self.free).back(cells.y - f)
                error = max(error, float(np.abs(rest).max(initial=0.0)) / size)
        elif self.pairwise.plain:  # the same predictions, as of new objects
            X, Z = (
                (side.features if model.linear else side.K)[part]
                for side, part in zip(self.sides, ends, strict=True)
            )
            G = compared(X @ table @ Z.T)
            if model.offsets is not None:
                G += compared(model.offsets[least].at(rows, cols))
            error = max(error, float(np.abs(F - G).max(initial=0.0)) / size)
        Y = None if decomposed or self.two_step or model.solver != "closed" else self.labels()
        if Y is not None:  # the same predictions from eigenvalues
            f = closed_form(*self.sides, Y, self.loss).fitted(alphas[least])[np.ix_(*ends)]
            G = compared(model.predict(self.sides, rows, cols, offsets=False)[least])
            error = max(error, float(np.abs(G - compared(f)).max(initial=0.0)) / size)
        for level in (NOISE, 1.0):  # a change that is not small says nothing about its rate
            rng = np.random.default_rng(0)
            first, second = (side.perturbed(rng, level, features=decomposed) for side in self.sides)
            sides = first, first if self.sides[1] is self.sides[0] else second
            other = RelationProblem(*sides, self.observations, self.loss)
            try:
                with warnings.catch_warnings():  # of convergence, once more
                    warnings.simplefilter("ignore")
                    again = other.solve(alphas[[least]], model.solver, options)
            except ValueError:  # kernels that are positive semi-definite without these errors
                if level > 1:
                    continue
                change = 1.0
            else:
                change = float(np.abs(F - values(again, sides, 0)).max(initial=0.0)) / size
            error = max(error, change / level)
            if change < 0.1:
                break
        return error
