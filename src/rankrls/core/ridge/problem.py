"""``RidgeProblem``: preferences, a space and a loss, with decompositions that are reused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls import _resources
from rankrls._calls import warn
from rankrls.core.linalg.factorizations import EigenFactorization, factorize, is_graded
from rankrls.core.linalg.krylov import History, IterationOptions
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.laplacian import Factor, Objective
from rankrls.core.preferences.query_weights import query_factor, row_blocks, varying_queries
from rankrls.core.preferences.statistics import Statistics
from rankrls.core.ridge.iterative import HeldOutRows, IterativeModel, fit_iterative
from rankrls.core.ridge.leave_judgements_out import (
    EdgeSpectrum,
    JudgementFolds,
    Judgements,
    leave_judgements_out,
)
from rankrls.core.ridge.leave_out import (
    Folds,
    HeldOut,
    LeavingBasis,
    equalize,
    leave_out_features,
    leave_out_kernel,
    split_folds,
)
from rankrls.core.ridge.leave_pair_out import (
    PAIR_ADVICE,
    BipartiteSpectrum,
    RankingSpectrum,
    all_pairs,
    n_different_pairs,
)
from rankrls.core.ridge.models import (
    LOST_DIGITS,
    DualSolver,
    KernelModel,
    LinearModel,
    Model,
    NystroemModel,
    PrimalSolver,
    warn_lost_digits,
)
from rankrls.core.spaces.path_model import predict_path
from rankrls.core.spaces.spaces import (
    Basis,
    DualSpace,
    LinearSpace,
    NystroemSpace,
    Space,
    centre,
    first_equal,
    subtract,
)

__all__ = ["RidgeProblem"]

Array = NDArray[Any]

#: Maximum number of refits; more are needed only if the data or the cost have no shortcut.
MAX_REFITS = 5000

#: A warning is issued if the estimated relative error of solutions is above this for kernels with a
#: large constant part, where the estimate is very conservative.
LOST_IN_KERNEL = 1e-4


# -- the problem --------------------------------------------------------------------------------


class RidgeProblem:
    """Σ_edges w² (z − (f(x_h) − f(x_j)))² + alpha ‖f‖², for f in a space.

    The basis is drawn when the space is made. Kernel values and decompositions are computed at most
    once and shared by solutions and held-out predictions.

    Parameters
    ----------
    graph : PreferenceGraph over m rows
    space : Space
        Space of the m rows. ("cg" may have more rows, of which ``rows`` are those of the graph.)
    loss : Loss
    keep_basis : bool
        Whether left-out basis vectors stay in the basis.
    names : sequence of str, optional
        Names of the features, for warnings.
    """

    @np.errstate(over="ignore", invalid="ignore")  # the solver raises an error on overflow
    def __init__(
        self,
        graph: PreferenceGraph,
        space: Space,
        loss: Loss,
        *,
        keep_basis: bool = False,
        names: Sequence[str] | None = None,
    ) -> None:
        self.graph, self.space, self.loss = graph, space, loss
        self.keep_basis, self.names = keep_basis, names
        self.objectives: list[Objective] = graph.objectives(loss)
        self._solvers: list[Any] | None = None
        self._statistics: list[Statistics] | None = None
        self._least = np.inf
        self._weights: list[Array | None] = []
        self._ranking: RankingSpectrum | None = None
        self._other: RidgeProblem | None = None
        if not any(objective.laplacian.row_weight().any() for objective in self.objectives):
            raise ValueError(
                "the weights are so small that their products underflow; scale them up"
            )

    @property
    def n_pairs(self) -> int:
        """Total number of edges over all outputs."""
        return sum(o.n_pairs * len(o.outputs) for o in self.objectives)

    @property
    def n_coefficients(self) -> int:
        """Number of unknowns: weights of features or basis vectors, or one for each row."""
        space = self.space
        if isinstance(space, DualSpace):
            return space.n_rows
        return len(space.basis.kept) if isinstance(space, NystroemSpace) else space.X.shape[1]

    def keeping_basis(self) -> RidgeProblem:
        """The same problem, sharing decompositions, in which basis vectors are never left out."""
        if not isinstance(self.space, NystroemSpace) or self.keep_basis:
            return self
        other = copy(self)
        other.keep_basis = True
        return other

    def on_rows(self, graph: PreferenceGraph, rows: Array) -> RidgeProblem:
        """The problem of some of the rows, with the same basis; ``graph`` is over these rows."""
        space, X = self.space, self.space.X[rows]
        smaller: Space
        if isinstance(space, NystroemSpace):
            smaller = NystroemSpace(space.basis, X)
        else:
            smaller = type(space)(space.kernel, X[:, rows] if space.kernel.precomputed else X)
        smaller.solver = space.solver
        return RidgeProblem(graph, smaller, self.loss, names=self.names)

    # -- solutions

    @np.errstate(over="ignore", invalid="ignore")  # the solver raises an error on overflow
    def solve(self, alphas: Array, *, tell: bool = True) -> Model:
        """Solve for all ``alphas``; with ``tell``, warn of inaccurate solutions."""
        space, dtype = self.space, self.space.X.dtype
        model: Model
        if isinstance(space, NystroemSpace):
            self._require_positive(space, float(alphas.min()))
            model = NystroemModel.from_rows(self.objectives, space, alphas)
        elif isinstance(space, DualSpace):
            model = self._solve_dual(space, alphas)
        else:
            known = self._statistics
            statistics = known or [Statistics.of(o, space.X) for o in self.objectives]
            self._statistics = None  # the solvers may overwrite them
            solvers = [PrimalSolver(part, alphas) for part in statistics]
            C = self.graph.pair_features
            model = LinearModel(solvers, alphas, dtype, 0 if C is None else C.shape[1])
        if tell:
            self._warn_lost_digits(model)
        return model

    def _solve_dual(self, space: DualSpace, alphas: Array) -> Model:
        dtype, m = np.dtype(np.float64), space.n_rows
        used = np.flatnonzero(sum(o.laplacian.row_weight() for o in self.objectives))
        objectives = self.objectives
        decomposed = self._solvers is not None and alphas.min() >= self._least
        if decomposed and not space.kernel.linear and len(used) == m and dtype == np.float64:
            assert self._solvers is not None
            return KernelModel(space, used, self._solvers, self._weights, alphas, dtype)
        if len(used) < m:
            objectives = self.graph[used].objectives(self.loss)
        solvers, weights = self._dual_solvers(space, objectives, used, alphas, for_path=False)
        return KernelModel(space, used, solvers, weights, alphas, dtype)

    def _dual_solvers(
        self,
        space: DualSpace,
        objectives: Sequence[Objective],
        used: Array,
        alphas: Array,
        *,
        for_path: bool,
    ) -> tuple[list[DualSolver], list[Array | None]]:
        """Make a solver for each objective over the rows ``used``, and weights of features."""
        whole = len(used) == space.n_rows
        if for_path or len(alphas) > 1:  # an eigendecomposition
            m, advice = len(used), "use a Nyström basis (basis=...), or one alpha at a time"
            _resources.require("a path of alphas", m, m, copies=4, advice=advice)
        solvers: list[DualSolver] = []
        weights: list[Array | None] = []
        if space.kernel.linear:
            rows = space.rows if whole else space.rows[used]
            if for_path:
                rows = rows.astype(np.float64, copy=False)
            for objective in objectives:
                solver, Rt = DualSolver.from_features(objective, rows, alphas, for_path=for_path)
                solvers.append(solver)
                weights.append(Rt)
            return solvers, weights
        shared = (whole and "gram" in vars(space)) or for_path or space.kernel.precomputed
        if shared:
            K = space.gram if whole else space.gram[np.ix_(used, used)]
        else:  # the kernel matrix is not used again, so it may be overwritten
            K = space.kernel(space.rows if whole else space.rows[used])
        eps = float(np.finfo(K.dtype).eps)
        K = K.astype(np.float64, copy=False) if for_path else K
        for number, objective in enumerate(objectives):
            last = number == len(objectives) - 1
            mine = K if last and not (shared and whole) else K.copy(order="K")
            solvers.append(
                DualSolver.from_kernel(objective, mine, alphas, for_path=for_path, eps=eps)
            )
            weights.append(None)
        return solvers, weights

    @np.errstate(over="ignore", invalid="ignore")
    def iterate(
        self,
        alphas: Array,
        options: IterationOptions,
        threads: int,
        held_out: HeldOutRows | None = None,
    ) -> tuple[IterativeModel, History]:
        """Solve by conjugate gradients; with held-out rows, return the best (alpha, iteration)."""
        return fit_iterative(
            self.objectives,
            self.space.X,
            alphas,
            options=options,
            threads=threads,
            held_out=held_out,
        )

    def _require_positive(self, space: NystroemSpace, alpha: float) -> None:
        """Raise an error if the kernel is indefinite and alpha is too small to compensate for it.

        If k is positive semi-definite, the basis explains at most k(x, x) of a row, and only
        dependent basis vectors are dropped. Precomputed values with basis vectors only do not
        include k(x, x) of other rows. In this case only the basis vectors are checked.
        """
        m, basis = space.n_rows, space.basis
        some = np.unique(np.linspace(0, m - 1, min(m, 500)).astype(np.int64))
        k_xx: Array | None = None
        if not space.kernel.precomputed:
            k_xx = space.kernel.paired(space.X[some])
        elif space.X.shape[1] == m and not basis.columns_only:
            k_xx = np.asarray(space.X[some, some], dtype=np.float64)
        short, size = 0.0, float(np.square(basis.map.Z).sum(axis=1).max())
        if k_xx is not None:
            Phi = basis.features(space.X[some])
            short = float((np.einsum("ij,ij->i", Phi, Phi) - k_xx).max(initial=0.0))
            size = float(np.abs(k_xx).max(initial=0.0))
            if short <= max(1e-6, 1e3 * basis.map.rounding) * size:
                short = 0.0
        missing = max(short, basis.map.left_out)
        degree = max(float(o.laplacian.degree().max()) for o in self.objectives)
        if missing * degree > alpha:
            raise ValueError(
                f"kernel {space.kernel.name} is not positive semi-definite on the rows and the "
                f"basis vectors: they leave {missing:.3g} of values up to {size:.3g} unexplained. "
                f"Use alpha above {missing * degree:.3g}, or a positive semi-definite kernel"
            )

    def _warn_lost_digits(self, model: Model) -> None:
        loss = max(model.lost, self._lost_in_basis(float(model.alphas.min())))
        kernel = isinstance(self.space, NystroemSpace) or not self.space.kernel.linear
        if loss <= (LOST_IN_KERNEL if kernel else LOST_DIGITS):
            return
        if kernel:
            warn(
                f"kernel {self.space.kernel.name} has a constant part that is large compared with "
                "the differences between rows; coefficients are accurate to about "
                f"{min(loss, 1.0):.0e} (relative). Centre and scale the features, or increase alpha"
            )
        else:
            X = self.space.X
            squares = (X.multiply(X) if sparse.issparse(X) else X * X).mean(axis=0)
            warn_lost_digits(model.lost, np.sqrt(np.asarray(squares).ravel()), self.names)

    def _lost_in_basis(self, alpha: float) -> float:
        """Approximate relative error due to a constant part of the kernel of a basis."""
        space = self.space
        if not isinstance(space, NystroemSpace) or space.kernel.shift_invariant:
            return 0.0
        Z = space.basis.map.Z.astype(np.float64)
        size, centred = float((Z * Z).sum(axis=1).max()), Z - Z.mean(axis=0)
        if float((centred * centred).sum(axis=1).max()) > 1e-2 * size:
            return 0.0
        degree = max(float(o.laplacian.degree().max()) for o in self.objectives)
        return float(np.finfo(Z.dtype).eps) * size * degree / alpha

    @np.errstate(over="ignore", invalid="ignore")
    def size(self) -> float:
        """Upper bound of the largest eigenvalue of XᵀLX, or of L times the kernel matrix."""
        space = self.space
        degree = max(float(o.laplacian.degree().max()) for o in self.objectives)
        if space.kernel.precomputed and isinstance(space, NystroemSpace):
            size = float(np.square(space.features).sum())
        elif space.kernel.precomputed:
            size = float(np.abs(np.asarray(space.X).diagonal()).sum())
        elif space.kernel.linear:
            size = _scatter(space.X)
        else:
            size = float(np.abs(space.kernel.paired(space.X)).sum())
        return degree * size

    # -- held-out folds

    def with_graph(self, graph: PreferenceGraph) -> RidgeProblem:
        """The same problem with different scores for the same queries.

        For cost magnitude with ties kept, L and therefore the decompositions are the same.
        """
        other = RidgeProblem(graph, self.space, self.loss, keep_basis=self.keep_basis)
        if self._solvers is not None:
            mine, theirs = self.objectives[0], other.objectives[0]
            assert len(self.objectives) == len(other.objectives) == 1
            assert mine.n_pairs == theirs.n_pairs
            other._solvers = [_with_target(self._solvers[0], theirs, self._features())]
            other._weights = self._weights
            other._least = self._least
        if self._ranking is not None:
            assert graph.scores is not None
            other._ranking = self._ranking.with_scores(graph.scores)
        if self._other is not None:
            other._other = self._other.with_graph(graph)
        return other

    def decompose(self, alphas: Array) -> list[Any]:
        """Solvers for any alpha and for hold-outs, made at the first call."""
        if self._solvers is None or alphas.min() < self._least:
            self._least = float(alphas.min())  # the decomposition depends on it
            features = self._features()
            if features is None:
                assert isinstance(self.space, DualSpace)
                every = np.arange(self.space.n_rows)
                self._solvers, self._weights = self._dual_solvers(
                    self.space, self.objectives, every, alphas, for_path=True
                )
            else:
                n = features.shape[1]
                advice = "use fewer features, or refit fold by fold with a splitter"
                _resources.require("exact hold-out", n, n, copies=3, advice=advice)
                if isinstance(self.space, NystroemSpace):
                    self._require_positive(self.space, float(alphas.min()))
                statistics = [Statistics.of(o, features) for o in self.objectives]
                scaled = not isinstance(self.space, NystroemSpace)
                if scaled and features is self.space.X:  # needed for the solution of one alpha
                    self._statistics = [part.copy() for part in statistics]
                self._solvers = [
                    PrimalSolver(part, alphas, for_path=True, scaled=scaled) for part in statistics
                ]
                self._weights = [None] * len(statistics)
        return self._solvers

    def _features(self) -> Any:
        """Explicit or Nyström features in double precision; None if the kernel matrix is used."""
        if isinstance(self.space, DualSpace):
            return None
        Phi = self.space.features  # type: ignore[attr-defined]
        return Phi if Phi.dtype == np.float64 else Phi.astype(np.float64)

    def twin(self, alphas: Array) -> RidgeProblem:
        """The equivalent problem with the smaller matrix, used for hold-outs.

        A linear kernel is represented by its features if there are at most as many as rows.
        """
        space = self.space
        if isinstance(space, NystroemSpace) or not space.kernel.linear:
            return self
        m, n = space.X.shape
        if self._no_spectrum(alphas):
            return self
        dual = n > m
        if dual == isinstance(space, DualSpace):
            return self
        if self._other is None:
            other = (DualSpace if dual else LinearSpace)(space.kernel, space.X)
            self._other = RidgeProblem(self.graph, other, self.loss, names=self.names)
        return self._other

    def _no_spectrum(self, alphas: Array) -> bool:
        """Whether folds must be refitted because a linear kernel matrix would be inaccurate.

        This is the case with more features than rows if the scales of the features are too
        different for a kernel matrix.
        """
        space = self.space
        if isinstance(space, NystroemSpace) or not space.kernel.linear:
            return False
        return space.X.shape[1] > space.X.shape[0] and self._graded(alphas)

    def _graded(self, alphas: Array) -> bool:
        """Whether the scales of the features differ too much for a kernel matrix."""
        X, _ = centre(self.space.X)
        squares = (X.multiply(X) if sparse.issparse(X) else X * X).sum(axis=0)
        largest = max(float(o.laplacian.degree().max()) for o in self.objectives)
        return is_graded(largest * np.asarray(squares).ravel(), float(alphas.min()))

    @np.errstate(over="ignore", invalid="ignore")
    def leave_out(self, folds: Sequence[Array], alphas: Array) -> HeldOut:
        """Predict folds (unions of queries, or rows of queries) by the model without them."""
        if self.graph.pair_features is not None:
            raise ValueError(
                "with pair_features only given pairs can be left out, not queries or rows"
            )
        twin = self.twin(alphas)
        if twin is not self:
            return twin.leave_out(folds, alphas)
        graph = self.graph
        n_outputs, total = graph.n_outputs, sum(len(rows) for rows in folds)
        cut = split_folds(self.objectives[0].laplacian, folds)
        self._require_something_left(folds, cut)
        if not self._no_spectrum(alphas) and (not cut.any() or self.every_pair_counts()):
            self.decompose(alphas)  # before memory for the predictions is allocated
        _resources.require(
            "held-out predictions",
            *(len(alphas), total, n_outputs),
            advice="ask for fewer alphas at a time",
        )
        values = np.full((len(alphas), total, n_outputs), np.nan)
        n_refits = np.zeros(len(alphas), dtype=np.int64)
        refits: dict[tuple[int, bytes], Array] = {}  # each entry holds all outputs
        starts = np.cumsum([0, *(len(rows) for rows in folds)])
        for number, objective in enumerate(self.objectives):
            single = len(objective.outputs) == n_outputs
            part = (
                values if single else np.full((*values.shape[:2], len(objective.outputs)), np.nan)
            )
            unsafe = self._shortcut(number, folds, alphas, cut, part)
            if not single:
                values[..., objective.outputs] = part
            n_refits += unsafe.sum(axis=1)
            refitted = np.flatnonzero(unsafe.any(axis=0)).tolist()
            if len(refitted) > MAX_REFITS:
                raise ValueError(_no_shortcut(f"{len(refitted):,} refits would be needed"))
            for i in refitted:
                bad = np.flatnonzero(unsafe[:, i])
                key = (i, bad.tobytes())
                if key not in refits:
                    rest = np.setdiff1d(np.arange(graph.n_rows), folds[i])
                    refits[key] = self.refit(rest, folds[i], alphas[bad], tell=not refits)
                place = slice(int(starts[i]), int(starts[i + 1]))
                for a, one in zip(bad, refits[key], strict=True):
                    values[a, place, objective.outputs] = one[:, objective.outputs].T
        together = graph.query_codes if graph.scores is not None else None
        if together is None:
            together = self.objectives[0].laplacian.components()
        equalize(values, folds, together, self._first_equal)
        return HeldOut(folds, values, n_refits)

    @cached_property
    def _first_equal(self) -> Array:
        return first_equal(self.space.X)

    def _shortcut(
        self, number: int, folds: Sequence[Array], alphas: Array, cut: Array, out: Array
    ) -> Array:
        """Write predictions without refits into ``out``, and return which are unreliable."""
        everything = np.ones((len(alphas), len(folds)), dtype=bool)
        if self._no_spectrum(alphas):
            return everything
        ratio = None
        if cut.any():
            ratio = self._penalty_ratio(folds) if self.every_pair_counts() else None
            if ratio is None:
                return everything
        solver = self.decompose(alphas)[number]
        if not solver.factorization.whitens:
            return everything
        objective = self.objectives[number]
        features = self._features()
        factor = solver.factor if features is None else objective.laplacian.independent_factor()
        t = np.broadcast_to(factor.t, (len(factor.t), len(objective.outputs)))
        made = Folds(factor, folds, ratio)
        if features is None:
            return leave_out_kernel(
                solver.factorization, t, lambda: self._kernel_times(factor), made, alphas, out
            )
        return leave_out_features(
            features,
            solver.factorization,
            solver.factorization.matrix,
            solver.b,
            t,
            made,
            alphas,
            out,
            self._leaving(features),
        )

    def _kernel_times(self, factor: Any) -> Array:
        assert isinstance(self.space, DualSpace)
        K = self.space.gram.astype(np.float64, copy=False)
        return np.ascontiguousarray(factor.rmatmat(K).T)

    def _leaving(self, Phi: Array) -> LeavingBasis | None:
        if not isinstance(self.space, NystroemSpace) or self.keep_basis:
            return None
        basis = self.space.basis
        back = basis.map.coefficients(np.eye(len(basis.kept))[None])[0]
        spare = np.setdiff1d(basis.indices, basis.kept)
        return LeavingBasis(Phi, back, basis.kept, spare)

    def every_pair_counts(self) -> bool:
        """Whether the objective compares all rows of a query, with equal weights."""
        graph = self.graph
        if not self.loss.of_pair.linear or graph.n_given_pairs or graph.scores is None:
            return False
        if graph.sample_weight is not None:
            return False
        if self.loss.keeps_ties:
            return True
        assert graph.query_codes is not None
        return all(
            len(np.unique(np.column_stack([graph.query_codes, s]), axis=0)) == len(s)
            for s in graph.scores.T
        )

    def _penalty_ratio(self, folds: Sequence[Array]) -> Array | None:
        """Ratio κ/κ' for the remaining rows of one query, shape (n_folds,).

        With several queries only "size" has the same κ, 1, for all folds; None otherwise.
        """
        how = self.loss.query_weighting
        if how == "size":
            return np.ones(len(folds))
        if self.graph.n_queries > 1:
            return None
        m = self.graph.n_rows
        staying = m - np.array([len(rows) for rows in folds], dtype=float)

        def kappa(n: Any) -> Any:
            return n * query_factor(how, n, n * (n - 1) / 2)

        with np.errstate(divide="ignore", invalid="ignore"):
            return kappa(float(m)) / kappa(staying)

    def _require_something_left(self, folds: Sequence[Array], cut: Array) -> None:
        """Raise an error if a fold contains all preferences of an output."""
        graph = self.graph
        if graph.scores is None or graph.n_given_pairs:
            return
        codes = graph.query_codes
        assert codes is not None
        varies = varying_queries(graph.scores, codes, graph.n_queries)[codes]
        total = varies.sum(axis=0)
        extremes = graph.n_queries == 1 and graph.sample_weight is None
        low, high = (graph.scores == graph.scores.min(axis=0), graph.scores == graph.scores.max(0))
        for number, rows in enumerate(folds):
            left = total - varies[rows].sum(axis=0) > 0
            if extremes and all(
                (end.sum(axis=0) > end[rows].sum(axis=0)).all() for end in (low, high)
            ):
                continue  # a row with the lowest score and one with the highest remain
            if cut[number] and left.all():
                left = graph[np.setdiff1d(np.arange(graph.n_rows), rows)].scored_outputs()
            if not left.all():
                hint = ""
                if not cut[number] and len(np.unique(codes[varies[:, np.argmin(left)]])) <= 1:
                    hint = (
                        ", since no more than one query has a pair (leave out qid if all rows are "
                        "one ranking, to hold out pairs or folds of its rows)"
                    )
                raise ValueError(
                    f"fold {number} leaves no query with a pair, so nothing is left to learn "
                    f"from{hint}"
                )

    # -- held-out judgements

    @np.errstate(over="ignore", invalid="ignore")
    def leave_judgements_out(
        self, folds: JudgementFolds, alphas: Array, *, variances: bool = False
    ) -> HeldOut:
        """Compute f(preferred) − f(other) of given pairs by the models without their folds.

        Parameters
        ----------
        folds : JudgementFolds
            Indices of given pairs that are left out together; the rows and the basis stay the same.
        alphas : ndarray of shape (n_alphas,)
        variances : bool
            Whether to also compute the posterior variances of the differences.
        """
        graph = self.graph
        self._require_judgements_left(folds)
        unsafe = np.zeros((len(alphas), len(folds)), dtype=bool)
        counted = graph.pair_weight > 0
        n_counted = folds.sums(counted)
        whole = np.flatnonzero(n_counted == folds.sizes)
        values: Array | None = None
        variance: Array | None = None
        if len(whole):
            used = np.flatnonzero(graph.used_rows())
            smaller, mine = self, folds.take(whole)
            pairs = graph.pairs[mine.members]
            if len(used) < graph.n_rows or not counted.all():
                smaller = self.on_rows(graph.only_pairs(counted)[used], used)
                mine = JudgementFolds((np.cumsum(counted) - 1)[mine.members], mine.sizes)
            found, spread, bad = smaller.twin(alphas)._judgements(mine, alphas, variances)
            if spread is not None:
                spread += self._unspanned(pairs)[:, None]
            if len(whole) == len(folds):
                values, variance = found, spread
            unsafe[:, whole] = bad
        if values is None:
            values = np.full((len(alphas), len(folds.members), graph.n_outputs), np.nan)
            variance = np.full(values.shape, np.nan) if variances else None
            if len(whole):
                places = folds.places(whole)
                values[:, places] = found
                if variance is not None:
                    variance[:, places] = spread
        unsafe[:, (n_counted > 0) & (n_counted < folds.sizes)] = True
        n_refits = unsafe.sum(axis=1)
        unsafe[:, n_counted == 0] = True  # folds of zero weight share the model of all judgements
        self._refit_judgements(folds, alphas, unsafe, values, variance)
        return HeldOut(folds, values, n_refits, variance)

    def _judgements(
        self, folds: JudgementFolds, alphas: Array, variances: bool
    ) -> tuple[Array, Array | None, Array]:
        """Values, variances (or None), and which folds are unreliable."""
        graph, total = self.graph, len(folds.members)
        values = np.empty((len(alphas), total, graph.n_outputs))
        variance = np.empty(values.shape) if variances else None
        unsafe = np.zeros((len(alphas), len(folds)), dtype=bool)
        z, weight = self.loss.of_pair.edges(graph.magnitude, graph.pair_weight)
        edges = Judgements(graph.pairs, weight, z)
        for number, objective in enumerate(self.objectives):
            outputs, seen = objective.outputs, np.zeros(len(alphas), dtype=bool)
            for which, spectrum in self.edge_spectra(number, alphas):
                seen[which] = True
                everything = len(which) == len(alphas) and len(outputs) == graph.n_outputs
                mine = values if everything else np.empty((len(which), total, len(outputs)))
                spread = None
                if variance is not None:
                    single = everything and graph.n_outputs == 1
                    spread = variance[..., 0] if single else np.empty((len(which), total))
                bad = leave_judgements_out(spectrum, edges, folds, alphas[which], mine, spread)
                unsafe[which] |= bad
                if not everything:
                    values[np.ix_(which, np.arange(total), outputs)] = mine
                if variance is not None and spread is not None and not single:
                    variance[np.ix_(which, np.arange(total), outputs)] = spread[..., None]
            unsafe[~seen] = True
        return values, variance, unsafe

    def _unspanned(self, pairs: Array) -> Array:
        """Variance of differences outside the span of the Nyström basis, shape (n_pairs,)."""
        space, X = self.space, self.space.X
        if not isinstance(space, NystroemSpace):
            return np.zeros(len(pairs))
        if space.kernel.precomputed:
            raise ValueError(
                "variances with a basis need k(x, x), which a precomputed kernel does not provide; "
                "use a named kernel or a callable, or leave out the basis"
            )
        out = np.empty(len(pairs))
        for block in row_blocks(len(pairs), space.features.shape[1]):
            a, b = (subtract(X[ends], space.basis.shift) for ends in pairs[block].T)
            Delta = space.features[pairs[block, 0]] - space.features[pairs[block, 1]]
            out[block] = space.kernel.squared_distance(a, b) - np.einsum("ij,ij->i", Delta, Delta)
        return np.maximum(out, 0.0)

    def edge_spectra(
        self, number: int, alphas: Array, factor: Factor | None = None
    ) -> Iterator[tuple[Array, EdgeSpectrum]]:
        """Spectra of an objective, with the indices of the alphas for which they are valid.

        Their vectors belong to the rows, or to the coordinates of ``factor``, which then must be
        the `independent_factor` of the objective.
        """
        if self._no_spectrum(alphas):
            return
        solver, features = self.decompose(alphas)[number], self._features()
        made, every = solver.factorization, np.arange(len(alphas))
        k = len(self.objectives[number].outputs)
        if features is None:
            t = np.broadcast_to(solver.factor.t, (len(solver.factor.t), k))
            coordinates = factor is not None
            yield every, EdgeSpectrum.of_kernel(solver.factor, made, t, coordinates=coordinates)
            return
        if factor is None:
            features, _ = centre(features)
        else:
            features = factor.rows_of(features)(np.arange(factor.shape[1]))
        C = self.graph.pair_features
        if isinstance(made, EigenFactorization):
            yield every, EdgeSpectrum.of_features(features, C, made, solver.b)
        elif made.whitens:
            for a in every:
                yield np.array([a]), EdgeSpectrum.of_alpha(features, C, made, solver.b, alphas[a])

    def inputs_of(self, X: Any) -> Any:
        """Inputs of models of this problem, for new rows in the form of X.

        Features of shape (n, n_features), or kernel values with the rows of the data, (n, m).
        """
        space = self.space
        if isinstance(space, NystroemSpace):
            return space.basis.features(X).astype(np.float64, copy=False)
        if not isinstance(space, DualSpace):
            return X.astype(np.float64, copy=False)
        if space.rows is None:
            return np.asarray(X, dtype=np.float64)
        rows = subtract(X, space.shift)
        if not space.kernel.linear:
            return space.kernel(rows, space.rows)
        K = rows @ space.rows.T
        return K.toarray() if sparse.issparse(K) else K

    def _refit_judgements(
        self,
        folds: JudgementFolds,
        alphas: Array,
        unsafe: Array,
        values: Array,
        variance: Array | None,
    ) -> None:
        """Fill in explicit refits where there is no shortcut; folds of zero weight share one."""
        graph = self.graph
        refitted = unsafe.any(axis=0)
        idle = refitted & (folds.sums(graph.pair_weight > 0) == 0)
        refitted &= ~idle
        if refitted.sum() > MAX_REFITS:
            raise ValueError(
                f"{int(refitted.sum()):,} folds of judgements would have to be refitted, "
                "because alpha is too small for their features; use larger alphas, or fewer folds"
            )
        groups = [(np.array([i]), folds[i]) for i in np.flatnonzero(refitted)]
        if idle.any():
            groups.append((np.flatnonzero(idle), np.empty(0, dtype=np.int64)))
        for numbers, leaving in groups:
            bad = np.flatnonzero(unsafe[:, numbers[0]])
            rest = np.setdiff1d(np.arange(graph.n_given_pairs), leaving)
            other = RidgeProblem(graph.only_pairs(rest), self.space, self.loss)
            model = other.solve(alphas[bad])
            places = folds.places(numbers)
            pairs = graph.pairs[folds.members[places]]
            rows, end = np.unique(pairs, return_inverse=True)
            end = end.reshape(pairs.shape)
            f = predict_path(model, self.space.X[rows])
            differences = f[:, end[:, 0]] - f[:, end[:, 1]]
            C = None
            if graph.pair_features is not None:
                C = graph.pair_features[folds.members[places]]
                differences = differences + C @ model.pair_coef
            values[np.ix_(bad, places)] = differences
            if variance is not None:
                ends = self.space.X[pairs[:, 0]], self.space.X[pairs[:, 1]], C
                for a in bad:
                    variance[a, places] = other.solve(alphas[[a]]).difference_variance(*ends)

    def _require_judgements_left(self, folds: JudgementFolds) -> None:
        """Raise an error if a fold contains all preferences and there are no scores."""
        graph = self.graph
        if graph.scored_outputs().all():
            return
        held = folds.sums(graph.preferring)
        everything = np.flatnonzero(held == graph.preferring.sum())
        if len(everything):
            raise ValueError(
                f"{folds.name(int(everything[0]))} holds every judgement that prefers one item to "
                "another, so nothing is left to learn from; give more judgements"
                + ("" if folds.what == "judgement" else " or leave out less at a time")
            )

    # -- held-out pairs of one ranking

    def leave_pairs_out(self, pairs: Array, alphas: Array) -> Iterator[tuple[Array, int]]:
        """For each alpha, predictions (n_pairs, 2, n_outputs) without both rows, and refits."""
        self._require_pairs(pairs)
        self._require_room(len(pairs))
        tied = self._first_equal[pairs[:, 0]] == self._first_equal[pairs[:, 1]]
        if self._no_spectrum(alphas):
            for alpha in alphas:
                out = np.empty((len(pairs), 2, self.graph.n_outputs))
                for number, refitted in self._refit_pairs(pairs, np.ones(len(pairs), bool), alpha):
                    out[number] = refitted
                out[tied, 1] = out[tied, 0]  # of equal rows: they differ by rounding
                yield out, len(pairs)
            return
        if self.is_bipartite():
            found = self._bipartite(alphas).pairs(pairs, alphas)
        else:
            found = self.ranking(alphas).pairs(pairs, alphas, self.loss.query_weighting)
        for alpha, (out, unsafe) in zip(alphas, found, strict=True):
            for number, refitted in self._refit_pairs(pairs, unsafe, alpha):
                out[number] = refitted
            out[tied, 1] = out[tied, 0]
            yield out, int(unsafe.sum())

    def pair_accuracies(self, alphas: Array, threads: int) -> Iterator[tuple[Array, int]]:
        """For each alpha, the leave-pair-out accuracy of each output (n_outputs,), and refits."""
        if self.graph.scores is None:
            raise ValueError("leave-pair-out needs scores y")
        counted = n_different_pairs(self.graph.scores)
        for total, n_refits in self._concordance(alphas, threads):
            yield (counted + total) / (2 * counted), n_refits

    def _concordance(self, alphas: Array, threads: int) -> Iterator[tuple[Array, int]]:
        """For each alpha, Σ sign((s_i − s_j)(f_i − f_j)) over all pairs i < j left out, and refits.

        Shape (n_outputs,).
        """
        scores = self.graph.scores
        assert scores is not None
        if self.is_bipartite() or self._no_spectrum(alphas):
            self._require_room(int(n_different_pairs(scores).max()))
            pairs = self.default_pairs()
            order = np.sign(scores[pairs[:, 0]] - scores[pairs[:, 1]])
            for out, n_refits in self.leave_pairs_out(pairs, alphas):
                yield (np.sign(out[:, 0] - out[:, 1]) * order).sum(axis=0), n_refits
            return
        self._require_pairs()
        self._require_room()
        weighting = self.loss.query_weighting
        first = self._first_equal
        results = self.ranking(alphas).concordance(scores, alphas, weighting, threads, first)
        for alpha, (total, unsafe) in zip(alphas, results, strict=True):
            unsafe = unsafe[first[unsafe[:, 0]] != first[unsafe[:, 1]]]
            everything = np.ones(len(unsafe), dtype=bool)
            for number, refitted in self._refit_pairs(unsafe, everything, alpha):
                i, j = unsafe[number]
                total += np.sign((scores[i] - scores[j]) * (refitted[0] - refitted[1]))
            yield total, len(unsafe)

    def default_pairs(self) -> Array:
        """All i < j with different scores, shape (n_pairs, 2); with several outputs all i < j."""
        graph = self.graph
        if graph.scores is None:
            raise ValueError("leave-pair-out needs scores y")
        pairs = all_pairs(graph.n_rows)
        if graph.n_outputs == 1:
            i, j = pairs.T
            pairs = pairs[graph.scores[i, 0] != graph.scores[j, 0]]
        return pairs

    def ranking(self, alphas: Array) -> RankingSpectrum:
        """The problem as ridge regression with a free intercept, decomposed at the first call."""
        if self._ranking is not None:
            return self._ranking
        s = self.graph.scores
        assert s is not None
        twin = self.twin(alphas)
        if twin is self and isinstance(self.space, DualSpace):
            solver = self.decompose(alphas)[0]
            made = solver.factorization
            m = len(s)
            how = self.loss.query_weighting
            kappa = m * float(query_factor(how, float(m), m * (m - 1) / 2))
            self._ranking = RankingSpectrum(s, made.values / kappa, made.vectors)
            return self._ranking
        X = self._dense_features(twin)
        squares = np.einsum("ij,ij->j", X, X)
        if not is_graded(squares, 0.0):
            self._ranking = RankingSpectrum.of_features(s, X)
            return self._ranking
        made = factorize(X.T @ X, alphas[:1], X.T @ s, in_range=True, scaled=True)
        self._ranking = RankingSpectrum(
            s, whitened=lambda nu: next(made.whitened_rows(X, np.array([nu])))
        )
        return self._ranking

    def _dense_features(self, twin: RidgeProblem) -> Array:
        """Features as centred dense rows, shape (m, n)."""
        X = twin.space.X
        if sparse.issparse(X):
            advice = "use fewer features, or refit fold by fold with a splitter"
            _resources.require("leave-pair-out", *X.shape, copies=2, advice=advice)
            X = X.toarray()
        X = np.asarray(X, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            X = X - X.mean(axis=0)
            if not np.isfinite(np.einsum("ij,ij->", X, X) * len(X)):
                raise ValueError("the numbers overflow float64; scale the features down")
        return X

    def _bipartite(self, alphas: Array) -> BipartiteSpectrum:
        assert self.graph.scores is not None
        s, twin = self.graph.scores[:, 0], self.twin(alphas)
        if twin is self and isinstance(self.space, DualSpace):
            return BipartiteSpectrum(s, self.loss, K=self.space.gram.astype(np.float64, copy=False))
        return BipartiteSpectrum(s, self.loss, X=self._dense_features(twin))

    def _refit_pairs(
        self, pairs: Array, unsafe: Array, alpha: float
    ) -> Iterator[tuple[int, Array]]:
        if unsafe.sum() > MAX_REFITS:
            raise ValueError(_no_shortcut(f"{int(unsafe.sum()):,} refits would be needed"))
        everything = np.arange(self.graph.n_rows)
        for number in np.flatnonzero(unsafe):
            rest = np.setdiff1d(everything, pairs[number])
            yield int(number), self.refit(rest, pairs[number], np.array([alpha]))[0]

    def _require_room(self, n_pairs: int = 0) -> None:
        """Raise an error if the m × m matrices and pair arrays do not fit into memory."""
        m, k = self.graph.n_rows, self.graph.n_outputs
        _resources.require("leave-pair-out", m, m, copies=5, advice=PAIR_ADVICE)
        what = f"leave-pair-out of {n_pairs:,} pairs"
        _resources.require(what, n_pairs, k, copies=10, advice=PAIR_ADVICE)

    def _require_pairs(self, pairs: Array | None = None) -> None:
        """Raise an error unless the pairs (default: all of different scores) can be left out."""
        if not self.can_leave_pairs_out():
            raise ValueError(_no_shortcut("leave-pair-out"))
        assert self.graph.scores is not None
        if self.graph.n_rows < 4:
            raise ValueError(
                "leave-pair-out needs at least 4 rows, because two of them are left out"
            )
        scores, middle = self.graph.scores, self.graph.n_rows // 2
        # If at least three rows differ from the median, no pair contains all of them.
        differ = scores != np.partition(scores, middle, axis=0)[middle]
        for column in np.flatnonzero(differ.sum(axis=0) <= 2):
            others = np.flatnonzero(differ[:, column])
            if len(others):
                some = self._pairs_with(int(others[0])) if pairs is None else pairs
                held = np.array([(some == row).any(axis=1) for row in others]).all(axis=0)
                if held.any():
                    first = tuple(some[held][0].tolist())
                    raise ValueError(
                        f"without the pair {first} all labels are equal, so nothing is left to "
                        "learn"
                    )

    def _pairs_with(self, row: int) -> Array:
        """The pairs of one row among those of `default_pairs`, in the same order."""
        scores = self.graph.scores
        assert scores is not None
        others = np.delete(np.arange(len(scores)), row)
        if scores.shape[1] == 1:
            others = others[scores[others, 0] != scores[row, 0]]
        return np.sort(np.column_stack([np.full(len(others), row), others]), axis=1)

    def can_leave_pairs_out(self) -> bool:
        """Whether `leave_pairs_out` has its shortcut."""
        one = self.graph.n_queries == 1 and not isinstance(self.space, NystroemSpace)
        return self.is_bipartite() or (one and self.every_pair_counts())

    def is_bipartite(self) -> bool:
        """Whether this is one ranking of two levels in which tied pairs do not count."""
        graph = self.graph
        if graph.scores is None or graph.n_given_pairs or graph.sample_weight is not None:
            return False
        if self.loss.keeps_ties:
            return False
        if isinstance(self.space, NystroemSpace):
            return False
        one = graph.n_queries == 1 and graph.n_outputs == 1
        return one and len(np.unique(graph.scores)) == 2

    # -- refits

    def refit(self, rest: Array, held: Array, alphas: Array, *, tell: bool = True) -> Array:
        """Fit to the rows ``rest`` and predict ``held``: (n_alphas, len(held), n_outputs).

        With ``tell``, warn of inaccurate solutions. Of many refits, only the first one warns.
        """
        space, X = self.space, self.space.X
        kernel = space.kernel
        train, new = X[rest], X[held]
        smaller: Space
        if isinstance(space, NystroemSpace) and self.keep_basis:
            smaller = NystroemSpace(space.basis, train)
        elif isinstance(space, NystroemSpace):
            indices = space.basis.indices
            staying = np.isin(indices, rest)
            if not staying.any():
                raise ValueError("a fold contains all basis vectors, so none is left for the model")
            if kernel.precomputed:
                left = np.flatnonzero(staying) if space.basis.columns_only else rest
                train, new = train[:, left], new[:, left]
            at, narrow = np.searchsorted(rest, indices[staying]), space.basis.columns_only
            smaller = NystroemSpace(Basis.of(kernel, train, at, columns_only=narrow), train)
        elif kernel.linear and train.shape[1] <= train.shape[0]:
            smaller = LinearSpace(kernel, train)
        else:
            if kernel.precomputed:
                train, new = train[:, rest], new[:, rest]
            smaller = DualSpace(kernel, train)
        model = RidgeProblem(self.graph[rest], smaller, self.loss).solve(alphas, tell=tell)
        return predict_path(model, new)


def _scatter(X: Any) -> float:
    """Σ ‖x − x̄‖² over the rows of X, block by block."""
    m, mean = X.shape[0], np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
    if sparse.issparse(X):
        squares = float((X.data.astype(np.float64) ** 2).sum())
        return max(squares - m * float(mean @ mean), 0.0)
    step = max(1, (1 << 20) // max(X.shape[1], 1))
    blocks = (X[first : first + step] - mean for first in range(0, m, step))
    return float(sum(np.einsum("ij,ij->", block, block) for block in blocks))


def _with_target(solver: Any, objective: Objective, features: Any) -> Any:
    """Return a solver of the same matrix with the right-hand side of another objective."""
    other = object.__new__(type(solver))
    vars(other).update(vars(solver))
    other.energy, other.outputs = objective.energy, objective.outputs
    if features is None:
        other.factor = objective.laplacian.independent_factor()
        other.b = other.factor.t
    else:
        other.b = features.T @ objective.laplacian.r
    return other


def _no_shortcut(what: str) -> str:
    return (
        f"{what}: there is no exact shortcut. Whole queries (components of the preferences) can "
        "always "
        "be left out; rows of a query only with cost='magnitude', ties='keep' (or no ties), no "
        "sample weights, no given pairs, and one query (or query_weighting='size', no basis); "
        "pairs of one ranking with two levels also with tied pairs dropped"
    )
