"""Conditional ranking problems, given by two sides, labels and a loss, and their solution."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from rankrls import _resources
from rankrls._calls import Progress, warn
from rankrls.core.linalg.krylov import History, IterationOptions
from rankrls.core.relations.complete import closed_form, shared_bases
from rankrls.core.relations.incomplete import (
    HeldOutCells,
    few_cells,
    n_unknowns,
    primal_cost,
    solve_in_eigenvectors,
    solve_over_cells,
    solve_over_objects,
    solve_over_products,
    stop_early,
)
from rankrls.core.relations.labels import (
    CompleteBlock,
    FittedOffsets,
    Observations,
    TableOffsets,
)
from rankrls.core.relations.pairwise_kernels import (
    KRONECKER,
    PairwiseKernel,
    RelationLoss,
    SideValues,
    sampled_products,
)
from rankrls.core.relations.sides import Side, Spectrum

__all__ = ["LOST", "SOLVERS", "Factors", "RelationModel", "RelationProblem"]

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
#: Squares of numbers that are smaller, or larger than its inverse, may under- or overflow.
TINY = 1e-100
#: Relative rounding error of predictions above which a warning is issued.
LOST = 1e-5
#: Maximal number of objects of a side for which rounding errors of predictions are estimated.
SAMPLE = 64
#: Maximal number of feature weights to keep, unless twice the number of pairs is larger.
MAX_WEIGHTS = 10**6


class Factors(NamedTuple):
    """Thin factors of coefficients A = left rightᵀ.

    Attributes
    ----------
    left : ndarray of shape (n_alphas or 1, p, k)
    right : ndarray of shape (n_alphas or 1, g, k)
    """

    left: Array
    right: Array

    @property
    def T(self) -> Factors:
        """The factors of Aᵀ."""
        return Factors(self.right, self.left)

    def product(self) -> Array:
        """Compute A, shape (n_alphas, p, g)."""
        return self.left @ np.swapaxes(self.right, -1, -2)


@dataclass(frozen=True)
class RelationModel:
    """Coefficients of a fitted relation, and how they were computed.

    Attributes
    ----------
    dual : ndarray of shape (n_alphas, p, g), or Factors
        The coefficients A of f(x, z) = k_xᵀ A g_z, where k_x and g_z are the kernel values of the
        two sides. If predictions use ``weights``, A is stored as thin factors.
    solver : str
    n_iter : int
        1 for direct solvers.
    weights : ndarray of shape (n_alphas, d or p, e or g), or None
        Coefficients of the same function, for features instead of kernel values on the sides that
        are ``explicit``. They are more accurate if features have very different scales.
    explicit : tuple of two bool
        Whether features of a side are used instead of its kernel values.
    loss : float
        Approximate relative rounding error, if it is larger than usual.
    history : History or None
        The history of early stopping.
    offsets : list of FittedOffsets, or None
        The offsets added to k_xᵀ A g_z, for every alpha.
    pairwise : PairwiseKernel
        The pairwise kernel. Kernels other than K ⊗ G use A differently (see `PairwiseKernel`).
    """

    dual: Array | Factors
    solver: str
    n_iter: int
    weights: Array | None = None
    explicit: tuple[bool, bool] = (False, False)
    loss: float = 0.0
    history: History | None = None
    offsets: list[FittedOffsets] | None = None
    pairwise: PairwiseKernel = KRONECKER

    @cached_property
    def coefficients(self) -> Array:
        """The coefficients A, shape (n_alphas, p, g)."""
        return self.dual.product() if isinstance(self.dual, Factors) else self.dual

    @property
    def tables(self) -> Array:
        """The matrices used for predictions: ``weights`` if available, else ``coefficients``."""
        return self.coefficients if self.weights is None else self.weights

    def predict(self, sides: tuple[Side, Side], rows: Array, cols: Array) -> Array:
        """Predict pairs of objects of the two sides, shape (n_alphas, n_pairs)."""
        values = self._without_offsets(sides, rows, cols)
        if self.offsets is not None:
            for row, fitted in zip(values, self.offsets, strict=True):
                row += fitted.at(rows, cols)
        return values

    def cancellation(self, sides: tuple[Side, Side], index: int, *, ranking: bool) -> float:
        """Estimate the rounding errors of predictions, relative to the largest prediction.

        The estimate uses some of the training objects and the alpha with this ``index``.
        Predictions are sums of products of kernel values (or features) and coefficients. If the
        products are much larger than their sum, fitting has lost significant digits as well.
        """
        chosen = [np.unique(np.linspace(0, len(side) - 1, SAMPLE).astype(int)) for side in sides]
        left, right = (
            self._side_values(side, explicit, some)
            for side, explicit, some in zip(sides, self.explicit, chosen, strict=True)
        )
        A, scale = self.tables[index], 1.0
        largest = max(float(A.max(initial=0.0)), -float(A.min(initial=0.0)))
        if not TINY < largest < 1.0 / TINY and largest > 0.0:  # squares would over- or underflow
            A, scale = A / largest, largest
        F = self.pairwise.table(left, right, A)
        # In the system of "dual", every kernel value of pairs has its own rounding error.
        formed = self.solver == "dual" and self.weights is None
        sizes = self.pairwise.term_sizes(left, right, A, ranking=ranking and not formed)
        rounding = EPS * float(sizes.max(initial=0.0))
        if self.offsets is not None:
            fitted = self.offsets[index]
            offsets = fitted.constant + fitted.rows[chosen[0], None] + fitted.columns[chosen[1]]
            F = F + offsets / scale
        if ranking:
            F = F - F.mean(axis=1, keepdims=True)
        size = float(np.abs(F).max(initial=0.0))
        return rounding / size if size > 0 else 0.0

    def _side_values(self, side: Side, explicit: bool, chosen: Array) -> SideValues:
        """Return kernel values (features, if ``explicit``) of some training objects of a side."""
        if side.features is None:
            values = side.K[chosen]
        else:
            values = side.features[chosen]
            values = values if explicit else values @ side.features.T
        same = None
        if self.pairwise.knows:
            same = sparse.identity(len(side), format="csr")[chosen]
        parts = [part[chosen] for part in side.values.parts] if self.pairwise.several else []
        return SideValues(values, same, parts)

    def _without_offsets(self, sides: tuple[Side, Side], rows: Array, cols: Array) -> Array:
        if not self.pairwise.plain:
            left, right = (side.values for side in sides)
            tables = (self.pairwise.table(left, right, A) for A in self.coefficients)
            return np.stack([values[rows, cols] for values in tables])
        parts, places = [], []
        for side, explicit, used in zip(sides, self.explicit, (rows, cols), strict=True):
            chosen, place = np.unique(used, return_inverse=True)
            values = side.features if explicit else side.K
            assert values is not None
            parts.append(values[chosen])
            places.append(place)
        left, right = parts
        values = np.empty((len(self.tables), len(rows)))
        few = few_cells(len(rows), len(left), len(right))
        sampled = few or not _resources.fits(len(left), len(right), copies=2)
        for out, A in zip(values, self.tables, strict=True):
            images = left @ A
            if sampled:
                sampled_products(images, right, places[0], places[1], out)
            else:
                out[:] = (images @ right.T)[places[0], places[1]]
        return values


class RelationProblem:
    """The problem of ranking column objects for each row object.

    Parameters
    ----------
    rows : Side of p objects
        The objects that rankings are conditioned on.
    columns : Side of g objects
        The objects to rank. This is ``rows`` itself if both sides have the same objects.
    observations : Observations
        Labels, of shape (p, g).
    loss : RelationLoss
        "two-step" needs a complete relation, and takes pairs of alphas, of shape (n_alphas, 2).

    Notes
    -----
    Minimises (y − f)ᵀ L (y − f) + alpha ‖f‖² over the observed edges, with L = I or centring by
    row (P5 (31), (32)), in the space of a kernel Γ = K ⊗ G, or ½(Γ ± swapped). Over the observed
    pairs this is RankRLS with the row objects as queries, weighted by their size.
    """

    def __init__(
        self, rows: Side, columns: Side, observations: Observations, loss: RelationLoss
    ) -> None:
        self.sides = (rows, columns)
        self.observations, self.loss = observations, loss
        self.ranking, self.sign, self.offsets = loss.ranking, loss.sign, loss.offsets
        self.pairwise, self.free = loss.pairwise, loss.free

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
        if self.pairwise.spectral or not self.pairwise.closed:
            return self.pairwise.spectral
        return not (self.sign and self.ranking) and self._positive()

    def size(self) -> float:
        """Upper bound of the largest eigenvalue of the kernel matrix of pairs."""
        if self.pairwise.plain:
            return self.sides[0].size * self.sides[1].size
        return self.pairwise.trace(*(side.values for side in self.sides))

    @property
    def paired(self) -> bool:
        """Whether a pair determines its mirror image, so that both are held out together."""
        return self.sign != 0 or self.pairwise.one_domain

    @property
    def two_step(self) -> bool:
        """Whether each side has its own alpha."""
        return self.pairwise.name == "two-step"

    def select(self, chosen: Array) -> RelationProblem:
        """Return the problem restricted to some edges, given by a mask or indices."""
        return self.given(self.observations.select(chosen))

    def given(self, observations: Observations) -> RelationProblem:
        """Return the problem with other labels. Profile kernels are computed from these."""
        rows, columns = self.sides
        rows = rows.given(observations)
        columns = columns.given(observations.T) if columns.profiled else columns
        return RelationProblem(rows, columns, observations, self.loss)

    @property
    def profiled(self) -> bool:
        """Whether a kernel is computed from labels."""
        return any(side.profiled for side in self.sides)

    def block(self) -> CompleteBlock | None:
        """The observations as one complete block, or None if they are incomplete."""
        return self.observations.block(ranking=self.free.rows, square=self.sign != 0)

    def is_empty(self) -> bool:
        """Whether only the zero function has the symmetry: antisymmetry needs rank two."""
        plain = self.pairwise.plain
        return plain and self.sign == -1 and self.sides[0].rank_at_most_one()

    # ------------------------------------------------------------------ choosing a solver

    def solve(
        self,
        alphas: Array,
        solver: str = "auto",
        options: IterationOptions | None = None,
        *,
        held_out: HeldOutCells | None = None,
        progress: Progress | None = None,
    ) -> RelationModel:
        """Compute the coefficients for every alpha.

        Parameters
        ----------
        alphas : ndarray of shape (n_alphas,), or (n_alphas, 2) for two-step
            With ``held_out``, a single alpha, which may be zero.
        solver : {"auto", "closed", "primal", "dual", "cg"}
            "closed": complete relations. "primal": one system over all products of features, or
            over all objects for "additive" and "ranking" kernels.
            "dual": one system over the observed pairs. "cg": iterative. "auto": "closed" if it
            applies, else the smaller one of "primal" and "dual" if that is small, else "cg".
        options : IterationOptions, optional
            Options of "cg".
        held_out : HeldOutCells, optional
            Regularise by early stopping, at the iteration that ranks held-out cells best.
        progress : Progress, optional
        """
        progress = Progress("", 0) if progress is None else progress
        options = IterationOptions() if options is None else options
        wanted, early = solver, held_out is not None
        closed = solver in ("auto", "closed") and self.has_closed_form
        block = self.block() if closed and not (solver == "auto" and early) else None
        if solver == "auto" and not self.two_step:
            solver = "closed" if block is not None else self._choose(early)
        self._check_solver(solver, block, early=early)
        p, g = self.observations.shape
        progress(f"{self.observations.n_edges:,} edges of {p:,} × {g:,} objects: solver {solver}")
        if block is not None:
            model = self._closed(block, alphas)
        elif solver == "primal":
            model = self._primal(alphas)
        elif solver == "dual":
            model = self._dual(alphas)
        elif held_out is not None:
            A, history = stop_early(
                *self.sides, self.observations, float(alphas[0]), options, held_out, self.loss
            )
            model = RelationModel(A, "cg", history.n_iter, history=history, pairwise=self.pairwise)
        else:
            model = self._iterate(alphas, options, fallback=wanted == "auto")
        return self._with_offsets(model)

    def _choose(self, early: bool) -> str:
        """Choose a solver of an incomplete relation."""
        if early:
            return "cg"
        (p, g), q = self.observations.shape, len(self.observations.cells)
        if self.pairwise.additive and _resources.fits(p + g, p + g, copies=6) and self._positive():
            return "primal"
        products = self.pairwise.plain and not self.free.columns
        if products and all(side.multiplies for side in self.sides):
            d, e = (side.features.shape[1] for side in self.sides if side.features is not None)
            few = n_unknowns(d, e, self.sign) < q
            if few and primal_cost(q, p, d, e) <= MAX_PRIMAL_COST:
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
        name = self.pairwise.name
        if self.two_step:
            if early:
                raise ValueError("pairwise='two-step' is not iterative: set early_stopping=False")
            if solver not in ("auto", "closed"):
                raise ValueError(
                    f"pairwise='two-step' has a closed form only, not solver={solver!r}: use "
                    "solver='auto'"
                )
            if block is None or block.multiplicity != 1:
                raise ValueError(
                    "pairwise='two-step' needs a complete Y: every pair of the objects that have a "
                    "label observed, once. Use another pairwise kernel, or fill Y in"
                )
        if solver == "closed" and not self.has_closed_form:
            with_relation = " with a relation and loss='ranking'" if self.pairwise.closed else ""
            raise ValueError(
                f"solver='closed' is not for pairwise={name!r}{with_relation}: use solver='auto'"
            )
        if solver == "closed" and block is None:
            raise ValueError(
                "solver='closed' needs a complete relation: every pair of the objects that have "
                "an edge observed, equally often"
                + (", with the same objects on both sides" if self.sign else "")
                + ". Use solver='auto'"
            )
        if solver == "primal":
            if self.pairwise.additive and not self._positive():
                raise ValueError("solver='primal' needs positive semi-definite kernels")
            if not (self.pairwise.additive or self.pairwise.plain):
                raise ValueError(f"solver='primal' is not for pairwise={name!r}: use solver='auto'")
            if self.pairwise.plain and not all(side.multiplies for side in self.sides):
                raise ValueError(
                    "solver='primal' needs the features of linear kernels, as dense arrays"
                )
            if self.pairwise.plain and self.free.columns:
                raise ValueError(
                    "solver='primal' has no offsets of ranked objects: use solver='auto'"
                )
        if early and solver != "cg":
            raise ValueError(f"early_stopping needs solver='cg' (or 'auto'), not {solver!r}")

    # ------------------------------------------------------------------ solvers

    def _closed(self, block: CompleteBlock, alphas: Array) -> RelationModel:
        objects = (block.rows, block.cols)
        parts = [
            side if len(of) == len(side) else side.select(of)
            for side, of in zip(self.sides, objects, strict=True)
        ]
        if self.sides[0] is self.sides[1] and np.array_equal(*objects):
            parts[1] = parts[0]
        form = closed_form(parts[0], parts[1], block.Y, self.loss)
        left, right = (
            spectrum.among(of, len(side))
            for spectrum, of, side in zip(form.bases, objects, self.sides, strict=True)
        )
        # n edges for each pair: n Σ(ȳ − f)² + alpha ‖f‖²
        alphas = alphas / block.multiplicity
        loss = 0.0 if self.pairwise.spectral else self._instability(parts, block.Y, alphas)
        return self._model("closed", (left, right), map(form.inner, alphas), alphas, loss=loss)

    def _instability(self, parts: list[Side], Y: Array, alphas: Array) -> float:
        """Estimate rounding errors of a closed form: solve with the objects in reverse order.

        Both solutions are equal but for rounding errors. Their relative difference is computed if
        rounding errors of the kernel can exceed alpha.
        """
        alpha, size = alphas[[np.argmin(alphas)]], self.pairwise.trace(*(s.values for s in parts))
        if EPS * size <= LOST * float(alpha[0]):
            return 0.0
        tables = []
        for step in (1, -1):
            sides = [side.select(np.arange(len(side))[::step]) for side in parts]
            if parts[1] is parts[0]:
                sides[1] = sides[0]
            form = closed_form(sides[0], sides[1], Y[::step, ::step], self.loss)
            A = form.coefficients(alpha)[0]
            F = self.pairwise.table(sides[0].values, sides[1].values, A)[::step, ::step]
            tables.append(F - F.mean(axis=1, keepdims=True) if self.ranking else F)
        largest = max(float(np.abs(F).max()) for F in tables)
        return float(np.abs(tables[0] - tables[1]).max()) / largest if largest > 0 else 0.0

    def _primal(self, alphas: Array) -> RelationModel:
        cells = self.observations.cells
        n, what = sum(self.observations.shape), "objects"
        if not self.pairwise.additive:
            d, e = (side.features.shape[1] for side in self.sides if side.features is not None)
            n, what = n_unknowns(d, e, self.sign), "products of features"
        advice = "use solver='cg'"
        _resources.require(f"solver='primal' with {n:,} {what}", n, n, copies=6, advice=advice)
        if self.pairwise.additive:
            A = solve_over_objects(*self.sides, cells, alphas, self.loss)
            return RelationModel(A, "primal", 1, pairwise=self.pairwise)
        spectra = self._spectra()
        inner, loss = solve_over_products(*spectra, cells, alphas, self.loss)
        return self._model("primal", spectra, inner, alphas, loss=loss)

    def _dual(self, alphas: Array) -> RelationModel:
        q = len(self.observations.cells)
        _resources.require(
            f"solver='dual' with {q:,} observed pairs", q, q, copies=4, advice="use solver='cg'"
        )
        A = solve_over_cells(*self.sides, self.observations.cells, alphas, self.loss).coefficients
        return RelationModel(A, "dual", 1, pairwise=self.pairwise)

    def _iterate(
        self, alphas: Array, options: IterationOptions, *, fallback: bool
    ) -> RelationModel:
        """Solve by conjugate gradients in eigenvectors or over cells.

        With ``fallback``, alphas that do not converge are solved by a factorisation if there are
        few cells.
        """
        cells = self.observations.cells
        if self._in_eigenvectors():
            spectra = self._spectra()
            found = solve_in_eigenvectors(*spectra, cells, alphas, options, self.loss)
            model = self._model("cg", spectra, found.coefficients, alphas, found.n_iter)
        else:
            found = solve_over_cells(*self.sides, cells, alphas, self.loss, options)
            model = RelationModel(found.coefficients, "cg", found.n_iter, pairwise=self.pairwise)
        if found.accepted.all():
            return model
        if fallback and len(cells) <= MAX_FALLBACK:
            return self._dual(alphas)
        warn(
            f"conjugate gradients ended after {found.n_iter} iterations with an error > "
            f"tol={options.tol:g} at alpha={alphas[~found.accepted].min():g}: raise max_iter, tol "
            "or alpha, add 'identity' to the kernels, or use early_stopping=True",
            ConvergenceWarning,
        )
        return model

    def _in_eigenvectors(self) -> bool:
        """Whether conjugate gradients are faster in the eigenvectors of both kernels.

        They need kernels with common eigenvectors and eigenvalues that are not negative. A system
        over few cells has cheaper products, or needs fewer iterations than there are cells.
        """
        if not self.pairwise.spectral:
            return False
        (p, g), q = self.observations.shape, len(self.observations.cells)
        thin = all(side.by_features and 8 * side.n_features <= len(side) for side in self.sides)
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

    def _with_offsets(self, model: RelationModel) -> RelationModel:
        """Fit offsets to the residuals, for every alpha, if the problem has any."""
        if not any(self.offsets):
            return model
        cells = self.observations.cells
        best = TableOffsets(cells, self.free)
        values = model.predict(self.sides, cells.rows, cells.cols)
        fitted = [best.fit(cells, cells.y - f) for f in values]
        if self.ranking:
            fitted = [offsets.without_rows() for offsets in fitted]
        return replace(model, offsets=fitted)

    def _model(
        self,
        solver: str,
        spectra: tuple[Spectrum, Spectrum],
        inners: Iterable[Array],
        alphas: Array,
        n_iter: int = 1,
        loss: float = 0.0,
    ) -> RelationModel:
        """Build the model with the coefficients V inner Uᵀ, for ``inners`` of shape (r, s)."""
        left, right = spectra
        explicit = self._explicit(spectra)
        V, U = left.vectors, right.vectors
        P, R = left.basis(explicit[0]), right.basis(explicit[1])
        weights = np.empty((len(alphas), len(P), len(R))) if any(explicit) else None
        (p, r), (g, s) = V.shape, U.shape
        thin = weights is not None and 2 * (p + g) * min(r, s) <= p * g
        shape = (p, g) if not thin else (p, s) if s <= r else (g, r)
        dual = np.empty((len(alphas), *shape))
        for a, inner in enumerate(inners):
            if weights is not None:
                np.matmul(P @ inner, R.T, out=weights[a])
            if not thin:
                np.matmul(V @ inner, U.T, out=dual[a])
            else:
                np.matmul(*((V, inner) if s <= r else (U, inner.T)), out=dual[a])
        made: Array | Factors = dual
        if thin:
            made = Factors(dual, U[None]) if s <= r else Factors(V[None], dual)
        loss = max(loss, self._hidden(left, right, alphas.min(axis=0)))
        return RelationModel(made, solver, n_iter, weights, explicit, loss, pairwise=self.pairwise)

    def _hidden(self, left: Spectrum, right: Spectrum, alpha: Any) -> float:
        """Apply `_hidden` to the eigenvalues of this problem's pairwise kernel."""
        if self.pairwise.plain and not self.two_step:
            return _hidden(left, right, float(alpha))
        if self.two_step:
            one = Spectrum(np.ones(1), np.ones((1, 1)), weights=np.ones((1, 1)))
            return max(_hidden(left, one, float(alpha[0])), _hidden(one, right, float(alpha[1])))
        values = np.abs(self.pairwise.eigenvalues(left.values, right.values))
        error = EPS * float(values.max(initial=0.0)) * alpha / (values[values > 0] + alpha) ** 2
        rounding = float(error.max(initial=0.0))
        return rounding if rounding > LOST else 0.0

    def _explicit(self, spectra: tuple[Spectrum, Spectrum]) -> tuple[bool, bool]:
        """Choose the sides with feature weights in the model; none if there would be too many."""
        explicit, size = [], 1
        for side, spectrum in zip(self.sides, spectra, strict=True):
            explicit.append(spectrum.weights is not None)
            size *= len(side) if spectrum.weights is None else len(spectrum.weights)
        p, g = self.observations.shape
        if size > max(MAX_WEIGHTS, 2 * p * g):
            return False, False
        return explicit[0], explicit[1]


def _hidden(left: Spectrum, right: Spectrum, alpha: float) -> float:
    """Estimate the relative change of predictions due to rounding errors of the two kernels.

    Directions that were dropped because features are linearly dependent matter in proportion to
    the ratio of their eigenvalues to alpha. Eigenvalues of kernel matrices have errors of eps times
    the largest one. These change λσ/(λσ + alpha) if the spectrum has no gap around alpha.
    """
    hidden = max(left.dropped * right.top, right.dropped * left.top) / alpha
    lam, sigma = np.abs(left.values)[:, None], np.abs(right.values)
    error = np.zeros((len(lam), len(sigma)))
    if left.weights is None:
        error += EPS * left.top * sigma
    if right.weights is None:
        error += EPS * right.top * lam
    rounding = float((error * alpha / (lam * sigma + alpha) ** 2).max(initial=0.0))
    return max(hidden, rounding) if rounding > LOST else hidden
