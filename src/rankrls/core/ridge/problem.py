"""``RidgeProblem``: preferences, a space and a loss, with decompositions that are reused.

`iterate` solves it by conjugate gradients, to a tolerance or to the best iterate on held-out rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning

from rankrls import _resources
from rankrls._calls import warn
from rankrls.core.linalg.factorizations import is_graded
from rankrls.core.linalg.krylov import COLUMNS, History, IterationOptions, converge, stop_early
from rankrls.core.preferences.costs import Loss, query_factor
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.laplacian import (
    Factor,
    GroundedFactor,
    Groups,
    Laplacian,
    lost_to_heavy_edges,
    row_blocks,
)
from rankrls.core.preferences.statistics import UNDERFLOW, Statistics
from rankrls.core.ridge.models import (
    CANCELLED,
    LOST_DIGITS,
    SINGLE_ERROR,
    DualSolver,
    FittedFunction,
    PrimalSolver,
    join_outputs,
    lost_in_single,
    predict_path,
    warn_lost_digits,
)
from rankrls.core.ridge.residuals import (
    Folds,
    HeldOut,
    Residuals,
    basis_constraints,
    equalize,
    split_folds,
)
from rankrls.core.spaces.products import Offsets, Products, centre, dense, subtract
from rankrls.core.spaces.spaces import Basis, Space, first_equal

Array = NDArray[Any]

EPS = float(np.finfo(np.float64).eps)

#: Maximum number of refits; more are needed only if the data or the cost have no shortcut.
MAX_REFITS = 5000

#: Folds with a judgement heavier than the lightest one by this factor are refitted.
HEAVY = 1e9

NO_SHORTCUT = (
    ": there is no exact shortcut. Whole queries (components of the preferences) can always be "
    "left out; rows of a query only with cost='magnitude', ties='keep' (or no ties), no sample "
    "weights, no given pairs, and one query (or query_weighting='size', no basis); pairs of one "
    "ranking with two levels also with tied pairs dropped"
)


class RidgeProblem:
    """Σ_edges w² (z − (f(x_h) − f(x_j)))² + alpha ‖f‖², for f in a space of the rows of a graph.

    Kernel values and decompositions are computed at most once. With ``keep_basis``, left-out basis
    vectors stay in the basis; ``names`` are those of the features, for warnings. Coefficients of
    covariates of given pairs are penalised in units of ``pair_scale``, by default their root mean
    squares.
    """

    keep_basis = False

    @np.errstate(over="ignore", invalid="ignore")  # the solver raises an error on overflow
    def __init__(
        self,
        graph: PreferenceGraph,
        space: Space,
        loss: Loss,
        names: Sequence[str] | None = None,
        pair_scale: Array | None = None,
    ) -> None:
        self.graph, self.space, self.loss = graph, space, loss
        self.names, self.pair_scale = names, pair_scale
        C = graph.pair_features
        if C is not None and pair_scale is None:
            largest = np.abs(C).max(axis=0, initial=0.0)
            unit = np.where(largest > 0, largest, 1.0)
            scale = unit * np.sqrt(np.square(C / unit).mean(axis=0))
            self.pair_scale = np.where(scale > 0, scale, 1.0)
        self.objectives: list[Laplacian] = graph.objectives(loss, self.pair_scale)
        #: Eigenvalues and eigenvectors for leave-pair-out.
        self.ranking: tuple[Array, Array] | None = None
        self._solvers: list[Any] | None = None
        self._least = np.inf
        self._warned = False
        #: Whether ΦᵀLΦ is decomposed, the smaller matrix for hold-outs, instead of FᵀKF.
        self.by_features = space.basis is not None or self.pair_scale is not None
        self.by_features |= space.kernel.linear and space.X.shape[1] <= space.n_rows
        #: Total number of edges over all outputs.
        self.n_pairs, weight = 0, 0.0
        for L in self.objectives:
            self.n_pairs += L.n_pairs * len(L.outputs)
            weight += L.row_weight().sum()
        if not weight > 0:
            raise ValueError(UNDERFLOW)

    def like(self, graph: PreferenceGraph, space: Space | None = None) -> RidgeProblem:
        """The problem of other preferences (and another space), with the same options."""
        space = self.space if space is None else space
        other = RidgeProblem(graph, space, self.loss, self.names, self.pair_scale)
        other.keep_basis = self.keep_basis
        return other

    def on_rows(self, graph: PreferenceGraph, rows: Array) -> RidgeProblem:
        """The problem of some of the rows, with the same basis; ``graph`` is over these rows."""
        space, X = self.space, self.space.X[rows]
        if space.kernel.precomputed and space.basis is None:
            X = X[:, rows]
        return self.like(graph, Space(space.kernel, X, space.solver, space.basis))

    # -- solutions

    @np.errstate(over="ignore", invalid="ignore")  # the solver raises an error on overflow
    def solve(self, alphas: Array, *, tell: bool = True) -> FittedFunction:
        """Solve for all ``alphas``; with ``tell``, warn of inaccurate solutions."""
        space, basis = self.space, self.space.basis
        if basis is not None:
            self._require_positive(basis, float(alphas.min()))
        if self.by_features or space.solver == "primal":
            Phi = space.features
            statistics = [Statistics.of(L, Phi) for L in self.objectives]
            single = Phi.dtype == np.float32
            if single and lost_in_single(statistics, float(alphas.min())) > SINGLE_ERROR:
                Phi = Phi.astype(np.float64)
                statistics = [Statistics.of(L, Phi) for L in self.objectives]
            dtype = np.dtype(np.float64) if basis is not None else Phi.dtype
            model = FittedFunction.of_statistics(statistics, alphas, dtype, basis, self.pair_scale)
            if space.solver == "dual":
                self._add_dual_coef(model)
        else:
            objectives, used = self.objectives, self._used_rows()
            m, rows, whole = space.n_rows, space.rows, len(used) == space.n_rows
            if not whole:
                objectives = self.graph[used].objectives(self.loss)
                rows = None if rows is None else rows[used]
            model = FittedFunction(alphas, space.kernel, rows=rows, kept=used, shift=space.shift)
            if self._solvers is not None and alphas.min() >= self._least and whole:
                model.solvers = self._solvers
            else:
                model.solvers = self._dual_solvers(objectives, used, alphas, for_path=False)
            solved = [solver.coefficients(alphas) for solver in model.solvers]
            A = join_outputs(model.solvers, solved)
            model.dual_coef = np.zeros((len(alphas), m, A.shape[-1]))
            model.dual_coef[:, used] = A
            if space.kernel.linear:
                model.coef = np.stack([rows.T @ a for a in A])
        if tell:
            self.warn_of_lost_digits(model.solvers, float(alphas.min()))
        return model

    def _used_rows(self) -> Array:
        """Indices of the rows that have an edge."""
        return np.flatnonzero(sum(o.row_weight() for o in self.objectives))

    def _add_dual_coef(self, model: FittedFunction) -> None:
        """Set the coefficients of rows, (r − L X w)/alpha, of a linear model of centred rows."""
        space, coef, used = self.space, model.coef, self._used_rows()
        assert coef is not None
        model.dual_coef = np.zeros((len(coef), space.n_rows, coef.shape[2]))
        for L in self.objectives:
            for a, w in enumerate(coef[..., L.outputs]):
                values = (L.r - L.apply(space.rows @ w)) / model.alphas[a]
                model.dual_coef[a][:, L.outputs] = values
        for solver in model.solvers:
            solver.mean = solver.mean + space.shift
        model.kept, model.shift = used, space.shift
        model.rows = space.rows if len(used) == space.n_rows else space.rows[used]

    def _dual_solvers(
        self, objectives: Sequence[Laplacian], used: Array, alphas: Array, *, for_path: bool
    ) -> list[Any]:
        """Make a solver for each objective over the rows ``used``."""
        space, kernel = self.space, self.space.kernel
        whole, m, alpha = len(used) == space.n_rows, len(used), float(alphas.min())
        if for_path or len(alphas) > 1:  # an eigendecomposition
            advice = "use a Nyström basis (basis=...), or one alpha at a time"
            _resources.require("a path of alphas", m, m, copies=4, advice=advice)
        solvers = []
        if kernel.linear:
            rows = space.rows if whole else space.rows[used]
            for o in objectives:
                D, loss = _centred_within(o.components(), rows), 0.0
                squares = Products(D).column_squares(o.degree())
                if is_graded(squares, alpha):  # small columns are lost beside large ones
                    loss = EPS * squares.max() / (float(squares[squares > 0].min()) + alpha)
                made = DualSolver(o, kernel(D), alphas, rows=rows, for_path=for_path, loss=loss)
                solvers.append(made)
            return solvers
        # A kernel matrix that is not used again is overwritten.
        shared = for_path or kernel.precomputed or "gram" in vars(space)
        if shared:
            K = space.gram if whole else space.gram[np.ix_(used, used)]
        else:
            K = kernel(space.rows if whole else space.rows[used])
        for o in objectives:
            mine = K.copy(order="K") if shared or o is not objectives[-1] else K
            solvers.append(DualSolver(o, mine, alphas, for_path=for_path))
        return solvers

    def _require_positive(self, basis: Basis, alpha: float) -> None:
        """Raise an error if the kernel matrix of the basis is indefinite and alpha too small."""
        missing, degree = basis.left_out, self._largest_degree()
        if missing * degree > alpha:
            raise ValueError(
                f"kernel {basis.kernel.name} is not positive semi-definite on the basis vectors: "
                f"they leave {missing:.3g} of its values unexplained. Use alpha above "
                f"{missing * degree:.3g}, or a positive semi-definite kernel"
            )

    def warn_of_lost_digits(
        self, solvers: Sequence[Any], alpha: float, rows: Array | None = None
    ) -> None:
        """Warn once if the estimated relative error of solutions, of these ``rows``, is large."""
        space, basis = self.space, self.space.basis
        if self._warned:
            return
        kernel = basis is not None or not space.kernel.linear
        loss = max([solver.factorization.loss for solver in solvers], default=0.0)
        weights = max(map(lost_to_heavy_edges, self.objectives))
        if weights > LOST_DIGITS and solvers:
            condition = max([solver.factorization.condition(alpha) for solver in solvers])
            weights = min(weights, EPS * condition)
        if basis is not None:  # parts of the kernel that cancel, as in `DualSolver`
            Phi = space.features if rows is None else space.features[rows]
            squares, columns = np.einsum("ij,ij->i", Phi, Phi), Products(Phi)
            for number, L in enumerate(self.objectives):
                degree = L.degree()
                noise = float((squares * degree).max())
                sizes = solvers[number].largest if solvers else columns.column_squares(degree)
                if noise > CANCELLED * sizes.sum():
                    loss = max(loss, EPS * noise * columns.shape[1] / alpha)
        if max(loss, weights) > LOST_DIGITS:
            name = space.kernel.name if kernel else None
            self._warned = warn_lost_digits(loss, weights, alpha, name, space.X, self.names)

    def _largest_degree(self) -> float:
        return max(float(o.degree().max()) for o in self.objectives)

    @np.errstate(over="ignore", invalid="ignore")
    def size(self) -> float:
        """Upper bound of the largest eigenvalue of XᵀLX, or of L times the kernel matrix."""
        space, X, m = self.space, self.space.X, self.space.n_rows
        if space.kernel.precomputed and space.basis is not None:
            size = float(np.square(space.features).sum())
        elif space.kernel.precomputed:
            size = float(np.abs(np.asarray(X).diagonal()).sum())
        elif not space.kernel.linear:
            size = float(np.abs(space.kernel.paired(X)).sum())
        else:  # Σ ‖x − x̄‖²
            size = float(Products(X).column_squares(np.ones(m)).sum())
        return self._largest_degree() * size

    # -- decompositions for hold-outs

    def with_graph(self, graph: PreferenceGraph) -> RidgeProblem:
        """The same problem with other scores, for cost magnitude with ties kept (the same L)."""
        other = self.like(graph)
        other.ranking, other._warned = self.ranking, self._warned
        return other

    def decompose(self, alphas: Array) -> list[Any]:
        """Solvers for any alpha and for hold-outs, made at the first call."""
        if self._solvers is not None and alphas.min() >= self._least:
            return self._solvers
        self._least = float(alphas.min())  # the decomposition depends on it
        space, Phi = self.space, self._features()
        if Phi is None:
            every = np.arange(space.n_rows)
            self._solvers = self._dual_solvers(self.objectives, every, alphas, for_path=True)
        else:
            n, advice = Phi.shape[1], "use fewer features, or refit fold by fold with a splitter"
            _resources.require("exact hold-out", n, n, copies=3, advice=advice)
            if space.basis is not None:
                self._require_positive(space.basis, self._least)
            scaled = space.basis is None
            self._solvers = [
                PrimalSolver(Statistics.of(L, Phi), alphas, for_path=True, scaled=scaled)
                for L in self.objectives
            ]
        self.warn_of_lost_digits(self._solvers, self._least)
        return self._solvers

    def _features(self) -> Any:
        """Explicit or Nyström features in double precision; None if the kernel matrix is used."""
        return self.space.features.astype(np.float64, copy=False) if self.by_features else None

    def residuals(
        self, number: int, alphas: Array, *, cut: bool = False
    ) -> tuple[Residuals, Factor, Callable[[Array], Array]]:
        """Residuals of the coordinates of L's factor, the factor, and points of rows to predict.

        With ``cut``, rows of a query may be left out, which has a free offset.
        """
        objective, solver = self.objectives[number], self.decompose(alphas)[number]
        made, Phi, k = solver.factorization, self._features(), len(objective.outputs)
        factor = solver.factor if Phi is None else objective.factor()
        t = np.broadcast_to(factor.t, (len(factor.t), k))
        free = factor.null() if cut else None
        if Phi is None:
            V, sigma = made.spectrum()
            B = factor.recover(V * (sigma != 0))
            if B is None:
                K, codes = None, self.graph.query_codes
                if self.space.kernel.linear and codes is not None and not self.graph.n_given_pairs:
                    K = self.space.kernel(_centred_within(codes, self.space.rows))
                B = self._kernel_points(factor, V, sigma, K)
            found = Residuals(lambda U: V[U], t, made, V.T @ t, sigma=sigma, free=free)
            return found, factor, lambda rows: B[rows]
        if cut:  # offsets would leave rounding errors in the rest of a query
            Phi = centre(Phi)[0]
        rows_F, q = factor.rows_of(Phi), Phi.shape[1]
        mean = np.asarray(Phi.mean(axis=0), dtype=np.float64).ravel()

        def vectors(U: Array) -> Array:
            return made.rotate(rows_F(U.ravel())).reshape(*U.shape, q)

        def points(rows: Array) -> Array:
            return made.rotate(dense(Phi[rows]) - mean)

        return Residuals(vectors, t, made, made.rotate(solver.b.T).T, free=free), factor, points

    def _kernel_points(
        self, factor: Factor, V: Array, sigma: Array, K: Array | None = None
    ) -> Array:
        """B, of shape (m, q), with f = B diag(σ/(σ + alpha)) b."""
        B = factor.rmatmat(self.space.gram if K is None else K).T @ V
        return np.divide(B, sigma, out=np.zeros_like(B), where=sigma != 0)

    def judgement_residuals(
        self, number: int, alphas: Array
    ) -> tuple[Residuals, Callable[[Array], Array]]:
        """Residuals w (z − difference) of given pairs, and points of their differences."""
        graph, solver = self.graph, self.decompose(alphas)[number]
        z, weight = self.loss.cost.edges(graph.magnitude, graph.pair_weight)
        made, Phi, root = solver.factorization, self._features(), np.sqrt(weight)
        k, extra, sigma, other = len(solver.outputs), None, None, None
        t = np.repeat((root * z)[:, None], k, axis=1)
        if Phi is None:
            factor, (V, sigma) = solver.factor, made.spectrum()
            b = V.T @ np.broadcast_to(factor.t, (len(factor.t), k))
            assert isinstance(factor, GroundedFactor)
            B = np.zeros((graph.n_rows, V.shape[1]))
            if len(factor.free):
                B[factor.free] = solve_triangular(
                    factor.R, V, lower=True, trans="T", check_finite=False
                )
            if not (weight > 0).all():  # pairs of different components
                other = self._kernel_points(factor, V, sigma)
        else:
            b, n = made.rotate(solver.b.T).T, Phi.shape[1]
            B = made.rotate(centre(Phi)[0])
            if self.pair_scale is not None:
                extra = made.rotate(graph.pair_features / self.pair_scale, n)

        def differences(U: Array, rows: Array) -> Array:
            pairs = graph.pairs[U]
            out = rows[pairs[..., 0]] - rows[pairs[..., 1]]
            return out if extra is None else out + extra[U]

        def vectors(U: Array) -> Array:
            return differences(U, B) * root[U][..., None]

        points = partial(differences, rows=B if other is None else other)
        return Residuals(vectors, t, made, b, sigma=sigma, root=root), points

    # -- hold-outs

    def _held_out(
        self,
        folds: Folds,
        alphas: Array,
        terms: Callable[[int], tuple[Residuals, Folds, Callable[[Array], Array], Any]] | None,
        refit: Callable[[Array, Array, bool], tuple[Array, Any]],
        advice: str,
        *,
        outside: Array | None = None,
        ratio: Array | None = None,
        unsafe: Any = True,
    ) -> HeldOut:
        """Predict each fold by residuals without its terms, by `refit_unsafe` where they fail.

        ``terms`` returns the residuals of an objective, the terms of each fold, the points of its
        members, and constraints, as for `Residuals.without`; None if all folds are refitted.
        ``outside`` is added to the variances of the predictions; None if these are not needed.
        """
        shape = (len(alphas), len(folds.members), self.graph.n_outputs)
        _resources.require("held-out predictions", *shape, advice="ask for fewer alphas at a time")
        values, variance = np.empty(shape), None if outside is None else np.empty(shape)
        unsafe = np.broadcast_to(unsafe, (len(alphas), len(folds)))
        for number, objective in enumerate(self.objectives if terms is not None else ()):
            assert terms is not None
            residuals, left_out, points, constraints = terms(number)
            found, spread, bad = residuals.without(
                left_out,
                points,
                folds,
                alphas,
                variances=variance is not None,
                ratio=ratio,
                constraints=constraints,
            )
            values[..., objective.outputs] = found
            if variance is not None:
                variance[..., objective.outputs] = (spread + outside)[..., None]
            unsafe = unsafe | bad
        refit_unsafe(folds, alphas, unsafe, refit, advice, values, variance)
        return HeldOut(folds, values, unsafe.sum(axis=1), variance)

    @np.errstate(over="ignore", invalid="ignore")
    def leave_out(self, folds: Sequence[Array], alphas: Array) -> HeldOut:
        """Predict folds (unions of queries, or rows of queries) by the model without them."""
        if self.graph.pair_features is not None:
            raise ValueError(
                "with pair_features only given pairs can be left out, not queries or rows"
            )
        graph, folds = self.graph, Folds.of_list(folds)
        cut = split_folds(self.objectives[0], folds)
        self._require_something_left(folds, cut)
        ratio = self._penalty_ratio(folds, cut)
        constraints, doubtful = None, np.zeros(len(folds), dtype=bool)
        if ratio is not None:
            self.decompose(alphas)  # before memory for the predictions is allocated
            if self.space.basis is not None and not self.keep_basis:
                constraints, doubtful = basis_constraints(self.space, folds)

        def terms(number: int) -> tuple[Residuals, Folds, Callable[[Array], Array], Any]:
            residuals, factor, points = self.residuals(number, alphas, cut=bool(cut.any()))
            E = constraints and [residuals.made.rotate(one) for one in constraints]
            return residuals, _coordinates(factor, folds), points, E

        held = self._held_out(
            folds,
            alphas,
            None if ratio is None else terms,
            self.refit_rows,
            NO_SHORTCUT,
            ratio=ratio,
            unsafe=doubtful | (ratio is None),
        )
        together = graph.query_codes
        if together is None:
            together = self.objectives[0].components()
        equalize(held.values, folds, together, self.first_equal)
        return held

    @cached_property
    def first_equal(self) -> Array:
        """Index of the first row that equals each row, shape (m,)."""
        return first_equal(self.space.X)

    def every_pair_counts(self) -> bool:
        """Whether the objective compares all rows of a query, with equal weights."""
        graph = self.graph
        if not self.loss.cost.linear or graph.n_given_pairs or graph.scores is None:
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

    def _penalty_ratio(self, folds: Folds, cut: Array) -> Array | None:
        """Factor κ/κ' of alpha in the models without folds, (n_folds,); None without a shortcut.

        It is 1 for whole components. If rows of a query are left out, the pairs of the n that stay
        add up to κ' times their scatter, and only "size" has the same κ' = 1 for several queries.
        """
        how, m = self.loss.query_weighting, self.graph.n_rows
        if not cut.any() or (how == "size" and self.every_pair_counts()):
            return np.ones(len(folds))
        if not self.every_pair_counts() or self.graph.n_queries > 1:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            n = np.append(m - folds.sizes.astype(float), float(m))
            kappa = n * query_factor(how, n, n * (n - 1) / 2)
            return kappa[-1] / kappa[:-1]

    def _require_something_left(self, folds: Folds, cut: Array) -> None:
        """Raise an error if a fold contains all preferences of an output."""
        graph, s, codes = self.graph, self.graph.scores, self.graph.query_codes
        if s is None or codes is None:
            return
        varies = graph.varying_queries[codes]
        one = graph.n_queries == 1 and graph.sample_weight is None
        # Something is left if rows of the lowest and of the highest score are, or a whole query.
        needed = [s == s.min(axis=0), s == s.max(axis=0)] if one else [varies]
        gone = [folds.sums(part) >= part.sum() for rows in needed for part in rows.T]
        for number in np.flatnonzero(np.any(gone, axis=0) | (cut & (not one))):
            if not graph[np.setdiff1d(np.arange(graph.n_rows), folds[number])].has_preference():
                raise ValueError(
                    f"fold {number} leaves no query with a pair, so nothing is left to learn from "
                    "(leave out qid if all rows are one ranking, to hold out some of its rows)"
                )

    def refit_rows(self, held: Array, alphas: Array, tell: bool) -> tuple[Array, None]:
        """Fit without some rows and predict them: (n_alphas, len(held), n_outputs)."""
        space, new, kernel = self.space, self.space.X[held], self.space.kernel
        basis, rest = space.basis, np.setdiff1d(np.arange(self.graph.n_rows), held)
        if basis is not None and not self.keep_basis:
            train, narrow = space.X[rest], basis.columns_only
            staying = np.isin(basis.indices, rest)
            if not staying.any():
                raise ValueError("a fold contains all basis vectors, so none is left for the model")
            if kernel.precomputed:
                left = np.flatnonzero(staying) if narrow else rest
                train, new = train[:, left], new[:, left]
            at = np.searchsorted(rest, basis.indices[staying])
            smaller = Basis.of(kernel, train, at, columns_only=narrow)
            problem = self.like(self.graph[rest], Space(kernel, train, space.solver, smaller))
        else:
            problem = self.on_rows(self.graph[rest], rest)
            if kernel.precomputed and basis is None:
                new = new[:, rest]
        return predict_path(problem.solve(alphas, tell=tell and not self._warned), new), None

    @np.errstate(over="ignore", invalid="ignore")
    def leave_judgements_out(
        self, folds: Folds, alphas: Array, *, variances: bool = False
    ) -> HeldOut:
        """Compute f(preferred) − f(other) of given pairs by the models without their folds.

        Folds are of indices of given pairs; the rows and the basis stay the same. ``variances``:
        whether to also compute the posterior variances of the differences.
        """
        graph = self.graph
        everything = folds.sums(graph.preferring) == graph.preferring.sum()
        if everything.any() and not graph.scored_outputs.all():
            raise ValueError(
                f"{folds.name(int(np.argmax(everything)))} holds every judgement that prefers one "
                "item to another, so nothing is left to learn from; give more judgements"
                + ("" if folds.what == "judgement" else " or leave out less at a time")
            )
        touched = graph.used_rows()
        touched[graph.pairs.ravel()] = True
        rows = np.flatnonzero(touched)
        problem = self if touched.all() else self.on_rows(graph[rows], rows)
        counted = problem.graph.pair_weight > 0
        left_out = Folds(folds.members[counted[folds.members]], folds.sums(counted))
        outside, space = np.zeros(len(folds.members)) if variances else None, problem.space
        if outside is not None and space.basis is not None:
            if space.kernel.precomputed:
                raise ValueError(
                    "variances with a basis need k(x, x), which a precomputed kernel does not "
                    "provide; use a named kernel or a callable, or leave out the basis"
                )
            for block in row_blocks(len(outside), space.features.shape[1]):
                ends = problem.graph.pairs[folds.members[block]].T
                a, b = (subtract(space.X[rows], space.basis.shift) for rows in ends)
                spanned = np.square(space.features[ends[0]] - space.features[ends[1]]).sum(axis=1)
                outside[block] = np.maximum(space.kernel.squared_distance(a, b) - spanned, 0.0)

        def terms(number: int) -> tuple[Residuals, Folds, Callable[[Array], Array], Any]:
            residuals, points = problem.judgement_residuals(number, alphas)
            return residuals, left_out, points, None

        refit = partial(problem._refit_judgements, variances=variances)
        advice = (
            " of folds of judgements, because alpha is too small for their features, or weights "
            "differ too much; use larger alphas, weights of a smaller range, or fewer folds"
        )
        weight = self.loss.cost.edges(graph.magnitude, graph.pair_weight)[1]
        heavy = weight > HEAVY * weight.min(where=weight > 0, initial=np.inf)
        unsafe = folds.sums(heavy) > 0  # light judgements are lost beside those that leave
        return problem._held_out(
            folds, alphas, terms, refit, advice, outside=outside, unsafe=unsafe
        )

    def _refit_judgements(
        self, leaving: Array, alphas: Array, tell: bool, variances: bool
    ) -> tuple[Array, Array]:
        """Fit without some given pairs: their differences and variances."""
        graph = self.graph
        other = self.like(graph.only_pairs(np.setdiff1d(np.arange(graph.n_given_pairs), leaving)))
        a, b = (self.space.X[side] for side in graph.pairs[leaving].T)
        C = None if graph.pair_features is None else graph.pair_features[leaving]
        values, variance = np.zeros((2, len(alphas), len(leaving), graph.n_outputs))
        for i, alpha in enumerate(alphas):
            model = other.solve(np.array([alpha]), tell=False)
            values[i] = model.predict(a) - model.predict(b)
            if C is not None and model.pair_coef is not None:
                values[i] += C @ model.pair_coef[0]
            if variances:
                variance[i] = model.variance(a, b, C)
        return values, variance


def _centred_within(codes: Array, rows: Any) -> Any:
    """Dense rows less the mean of each group, whose offset would cost digits in K."""
    if sparse.issparse(rows):
        return rows
    return Groups(codes, None, int(codes.max()) + 1).deviations(rows)


def refit_unsafe(
    folds: Folds,
    alphas: Array,
    unsafe: Array,
    refit: Callable[[Array, Array, bool], tuple[Array, Any]],
    advice: str,
    values: Array,
    variance: Array | None = None,
) -> None:
    """Replace values of unsafe folds, (n_alphas, n_folds), by those of explicit refits.

    ``refit`` is a function of members, alphas and whether to warn, which only the first one does.
    """
    refitted = np.flatnonzero(unsafe.any(axis=0)).tolist()
    if len(refitted) > MAX_REFITS:
        raise ValueError(f"{len(refitted):,} refits would be needed{advice}")
    for i in refitted:
        bad, start = np.flatnonzero(unsafe[:, i]), int(folds.starts[i])
        found, spread = refit(folds[i], alphas[bad], i == refitted[0])
        values[bad, start : start + len(folds[i])] = found
        if variance is not None:
            variance[bad, start : start + len(folds[i])] = spread


def _coordinates(factor: Factor, folds: Folds) -> Folds:
    """The coordinates of a factor that belong to the rows of each fold."""
    order = np.argsort(factor.row_of, kind="stable")
    rows = factor.row_of[order]
    if len(rows) == factor.shape[0] and np.array_equal(order, factor.row_of):
        return folds
    first = np.searchsorted(rows, folds.members, side="left")
    counts = np.searchsorted(rows, folds.members, side="right") - first
    offset = np.repeat(first - np.cumsum(counts) + counts, counts)
    sizes = Folds(np.arange(len(counts)), folds.sizes).sums(counts)
    return Folds(order[offset + np.arange(int(counts.sum()))], sizes)


# -- conjugate gradients -----------------------------------------------------------------------


#: Held-out rows X, a score of predictions, and the other rows if X is part of the data.
HeldOutRows = tuple[Any, Callable[[Array], float], Array | None]


class LinearSystem:
    """G = XᵀLX, as a product only, and C = Xᵀr of an objective over ``rows`` (None: all) of X."""

    def __init__(self, product: Products, objective: Laplacian, rows: Array | None = None) -> None:
        self.X, self.rows = product, rows
        self.system, self.outputs = objective, objective.outputs
        self.dtype, data = product.X.dtype, product.X
        self.n_entries = data.nnz if hasattr(data, "nnz") else data.size
        self.rank = int(np.count_nonzero(self.system.degree()))
        r = self.system.r
        self.C = product.rmatmat(
            self._spread(np.repeat(r, len(self.outputs) // r.shape[1], axis=1))
        )

    def G(self, V: Array) -> Array:
        """XᵀL(X V) for V of shape (n, k')."""
        if V.shape[1] > COLUMNS:
            starts = range(0, V.shape[1], COLUMNS)
            return np.hstack([self.G(V[:, start : start + COLUMNS]) for start in starts])
        U = self.X.matmat(V)
        return self.X.rmatmat(
            self._spread(self.system.apply(U if self.rows is None else U[self.rows]))
        )

    def diagonal(self) -> Array:
        """Approximate diagonal of G, shape (n,): that of Xᵀ diag(L) X for centred columns."""
        return self._squares

    def magnitude(self, W: Array) -> Array:
        """Approximate ‖L^½ x_j‖ ‖L^½‖ ‖X w‖ for each column x_j of X, not centred, (n, k')."""
        starts, degree = range(0, W.shape[1], COLUMNS), self._spread(self.system.degree())
        norms = [
            np.linalg.norm(self.X.matmat(W[:, start : start + COLUMNS]), axis=0) for start in starts
        ]
        total = max(float(degree.sum()), np.finfo(float).tiny)
        means = self.X.rmatmat(degree[:, None])[:, 0] / total
        sizes = np.sqrt((self._squares + total * means**2) * degree.max())
        return sizes[:, None] * np.concatenate(norms)

    @cached_property
    def _squares(self) -> Array:
        return self.X.column_squares(self._spread(self.system.degree()))

    def _spread(self, U: Array) -> Array:
        if self.rows is None:
            return U
        out = np.zeros((self.X.shape[0], *U.shape[1:]))
        out[self.rows] = U
        return out


@np.errstate(over="ignore", invalid="ignore")
def iterate(
    problem: RidgeProblem,
    alphas: Array,
    options: IterationOptions,
    threads: int,
    held_out: HeldOutRows | None = None,
) -> tuple[FittedFunction, History]:
    """Solve for all ``alphas``; with held-out rows, return the best (alpha, iteration).

    For kernels the unknowns are weights of Nyström features, so iterates are those in the space of
    functions.
    """
    basis, X = problem.space.basis, problem.space.features
    problem.warn_of_lost_digits([], float(alphas.min()), None if held_out is None else held_out[2])
    offsets = Offsets.of(X)
    if offsets is not None:
        at, eps = int(np.argmax(offsets.lost)), float(np.finfo(X.dtype).eps)
        if offsets.lost[at] > max(options.tol, eps ** (2 / 3)):
            advice = ", pass them as float64" if X.dtype == np.float32 else ""
            warn(
                f"the mean of column {offsets.columns[at]} of X is {offsets.values[at]:.3g}, which "
                "leaves its deviations from the mean a relative precision of "
                f"{offsets.lost[at]:.2g} > tol={options.tol:g} in {X.dtype}: centre and scale the "
                f"features{advice} before they are rounded",
                ConvergenceWarning,
            )
    centred = X if offsets is None else offsets.subtract(X)
    with _resources.at_most(threads):
        product, (X_held, score, rows) = Products(centred, threads), held_out or (None,) * 3
        systems = [LinearSystem(product, objective, rows) for objective in problem.objectives]
        if score is None:
            W, history = converge(systems, alphas, options)
        else:
            X_held = X_held if basis is None else basis.features(X_held)
            held = Products(X_held if offsets is None else offsets.subtract(X_held), threads)
            W, history = stop_early(systems, alphas, options, held, score, problem.graph.n_outputs)
            assert history.best is not None
            alphas = alphas[[history.best]]
    weights = join_outputs(systems, W).astype(X.dtype, copy=False)
    if basis is not None:
        return FittedFunction.of_weights(basis, alphas, weights, X.dtype), history
    return FittedFunction(alphas, coef=weights), history
