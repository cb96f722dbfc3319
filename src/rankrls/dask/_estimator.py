"""``rankrls.dask.RankRLS``: the estimator for training rows on Dask workers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from rankrls import _resources, estimators
from rankrls._calls import Progress, names_queries, unchanged_on_error, warn
from rankrls.core.linalg.krylov import History, IterationOptions, converge, stop_early
from rankrls.core.preferences.statistics import Statistics
from rankrls.core.ridge.iterative import join_outputs
from rankrls.core.ridge.models import FittedFunction, fit_nystroem, solve_statistics
from rankrls.core.spaces.products import Products
from rankrls.core.spaces.spaces import DEFAULT_BASIS, Kernel, choose_basis
from rankrls.dask._cg import DistributedEquations
from rankrls.dask._dask_ranker import MAX_PRIMAL_FEATURES, DaskRanker, refuse_pairs
from rankrls.dask._partitioned_problem import PartitionedProblem
from rankrls.dask._scaling import Scaling
from rankrls.estimators.choosing import check_eval_set
from rankrls.estimators.ranker import graph_accuracy

__all__ = ["RankRLS"]

Array = NDArray[Any]


class RankRLS(DaskRanker, estimators.RankRLS):
    """RankRLS on Dask arrays and data frames, without gathering the rows.

    Parameters and fitted attributes are the same as those of `rankrls.RankRLS`, and ``coef_`` is
    equal up to rounding for any partitioning: rows can be in any order, and a query can span any
    number of partitions. The estimator uses the current ``distributed.Client`` if there is one, and
    Dask's threads otherwise. If a worker fails, Dask reruns its tasks on other workers.

    Parameters
    ----------
    solver : {"auto", "primal", "nystroem", "cg"}, default="auto"
        "primal" takes one pass over X and uses n_features × n_features statistics. "nystroem" takes
        one pass, gathers the ``basis`` rows, and uses statistics of the size of the basis. "cg"
        takes one pass per iteration and uses vectors of n_features. "auto" selects "nystroem" if
        ``basis`` is given or the kernel is not linear; otherwise "primal" up to 4096 features and
        "cg" above. "dual" needs an n_rows × n_rows matrix and is not supported.
    alpha, kernel, cost, ties, query_weighting, basis, random_state, …
        See `rankrls.RankRLS`. ``kernel="precomputed"`` is not supported.

    Notes
    -----
    Communication for P partitions, n features and k outputs (see also docs/mathematics.md, §9):

    - y, qid: the query ids of each partition; for queries that span partitions also their counts,
      with every distinct score if ties are dropped;
    - "primal": 8 n² bytes from every partition to another worker in a tree of fan-in 8; the client
      receives one such matrix. "nystroem": the same with the size of the basis instead of n;
    - "cg": 8 n k bytes to and from every partition, in every iteration;
    - condensed rows: 8 n bytes for every (crossing query, partition), between workers. If rows are
      sorted by query there are two per partition. If rows are in random order there is one for
      almost every row: sort or shuffle such data by qid first.

    y, qid and weights (about 24 bytes per row) stay on the workers during ``fit``.

    Examples
    --------
    >>> import dask.array as da
    >>> from rankrls.datasets import make_ranking
    >>> from rankrls.dask import RankRLS
    >>> X, y, qid = make_ranking(n_queries=50, random_state=0, return_X_y_qid=True)
    >>> X = da.from_array(X, chunks=(100, -1))
    >>> ranker = RankRLS().fit(X, y, qid=qid)
    >>> scores = ranker.predict(X)          # lazy
    >>> bool(ranker.score(X, y, qid) > 0.9)
    True
    >>> ranker.to_local().predict(X[:2].compute()).shape
    (2,)
    """

    @names_queries
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        pairs: Any = None,
        magnitude: Any = None,
        pair_weight: Any = None,
        pair_features: Any = None,
        sample_weight: Any = None,
        eval_set: Any = None,
        callback: Any = None,
        persist: bool = True,
    ) -> RankRLS:
        """Fit the model.

        Parameters
        ----------
        X : dask array or data frame of shape (n_rows, n_features)
            Dense or sparse (SciPy CSR) blocks, float32 or float64. Chunk sizes can be unknown.
        y : dask array, series or frame, or array-like, of shape (n_rows,) or (n_rows, n_outputs)
            Scores; higher is preferred. Dask collections with partitions other than those of X are
            repartitioned, which takes one more pass over X if partition lengths are unknown. Local
            arrays are partitioned like X.
        qid : the same, of shape (n_rows,), optional
            Query of every row. If None, all rows form one ranking.
        sample_weight : the same, of shape (n_rows,), optional
            Row weights. The weight of a pair is the product of the weights of its rows.
        eval_set : tuple (X_val, y_val) or (X_val, y_val, qid_val), optional
            Validation data in memory, used for early stopping. They are not split off from X.
        callback : function, optional
            As for `rankrls.RankRLS`.
        persist : bool, default=True
            Whether X is kept in the workers' memory during the iterations of "cg" (Dask spills
            to disk if memory is short). If False, X is computed again in every iteration.
        pairs, magnitude, pair_weight, pair_features
            Not supported, because a pair can join rows on different workers.

        Returns
        -------
        RankRLS
            The fitted estimator.
        """
        refuse_pairs(
            pairs=pairs,
            magnitude=magnitude,
            pair_weight=pair_weight,
            pair_features=pair_features,
        )
        with unchanged_on_error(self):
            self._fit(X, y, qid, sample_weight, eval_set, callback, persist)
        return self

    def _fit(
        self,
        X: Any,
        y: Any,
        qid: Any,
        sample_weight: Any,
        eval_set: Any = None,
        callback: Any = None,
        persist: bool = True,
        *,
        scaler: Any = None,
    ) -> Any:
        """Fit, and return the fitted scaler, if there is one."""
        alphas = np.array([self._check_alpha("alpha", self.alpha)])
        kernel = self._check_options()
        if (eval_set is None) == bool(self.early_stopping):
            raise ValueError(
                "eval_set=(X_val, y_val, qid_val), in memory, and early_stopping=True go together"
            )
        progress = Progress("dask.RankRLS", self.verbose)
        rows = self._take_rows(X, y, qid, sample_weight, progress, scaler)
        preferences, n = rows.preferences, int(self.n_features_in_)
        problem = PartitionedProblem(preferences, rows.X, rows.dtype, n)
        solver = self._choose_solver(kernel, n)
        if scaler is not None and solver != "primal":
            raise ValueError(
                f"{type(scaler).__name__} before solver={solver!r}: scales change the sums that "
                "solver='primal' has; use it, or scale the features before"
            )
        progress(f"solver {solver}")
        if solver == "cg":
            self._solve_cg(problem, alphas, persist, eval_set, self._iteration(progress, callback))
        else:
            self._solve_direct(solver, kernel, problem, alphas, progress, rows.scaling)
        self._store_rows(kernel, rows, solver, problem.plan.n_preferences)
        progress("solved")
        return rows.scaler

    def _choose_solver(self, kernel: Kernel, n: int) -> str:
        solver = self.solver
        if solver == "auto":
            if self.early_stopping:
                solver = "cg"
            elif self.basis is not None:
                solver = "nystroem"
            elif kernel.linear:
                solver = "primal" if n <= MAX_PRIMAL_FEATURES else "cg"
            else:
                solver = "nystroem"
                warn(
                    "solver='nystroem', an approximation with "
                    f"{DEFAULT_BASIS} random basis vectors, is used; set basis= to say how many",
                )
        if self.early_stopping and solver != "cg":
            raise ValueError(f"early_stopping belongs to solver='cg'; got solver={solver!r}")
        if solver in ("primal", "cg") and not kernel.linear:
            raise ValueError(
                f"solver={solver!r} works on explicit features and needs kernel='linear'; with "
                f"kernel={kernel.name} use solver='nystroem'"
            )
        if self.basis is not None and solver != "nystroem":
            raise ValueError(f"basis belongs to solver='nystroem'; got solver={solver!r}")
        if solver == "primal":
            advice = "use solver='cg', fewer features, or solver='nystroem' with basis=1000, say"
            _resources.require("solver='primal'", n, n, copies=2, advice=advice)
        return solver

    @np.errstate(over="ignore", invalid="ignore")  # the solver rejects overflow
    def _solve_direct(
        self,
        solver: str,
        kernel: Kernel,
        problem: PartitionedProblem,
        alphas: Array,
        progress: Progress,
        scaling: Scaling | None,
    ) -> None:
        """Solve in one pass over X; store the model, ``n_pairs_`` and ``n_iter_``."""
        self.n_iter_ = 1
        self._store_validation(History(n_iter=1))
        if solver == "primal":
            (statistics,) = PartitionedProblem.statistics_of([problem], scaling)
            _require_mass(sum(part.mass for part in statistics))
            self.n_pairs_ = _n_pairs(statistics)
            self._model: FittedFunction = solve_statistics(
                statistics, None, alphas, problem.dtype, getattr(self, "feature_names_in_", None)
            )
            return
        random_state = check_random_state(self.random_state)
        indices = choose_basis(self.basis, problem.preferences.n_rows, random_state)
        advice = "use fewer basis vectors"
        size = len(indices)
        _resources.require("solver='nystroem'", size, size, copies=4, advice=advice)
        basis = problem.basis(kernel, indices)
        progress(f"{size:,} basis vectors gathered")

        def of_features(whitened: bool) -> Any:
            found = problem.statistics(basis, whitened=whitened)
            _require_mass(sum(part.mass for part in found))
            self.n_pairs_ = _n_pairs(found)
            return found

        dtype = basis.map.Z.dtype
        self._model = fit_nystroem(of_features, basis, alphas, dtype)

    @np.errstate(over="ignore", invalid="ignore")
    def _solve_cg(
        self,
        problem: PartitionedProblem,
        alphas: Array,
        persist: bool,
        eval_set: Any,
        options: IterationOptions,
    ) -> None:
        operator = problem.operator(persist=persist)
        summary = operator.summary()
        _require_mass(summary.mass)
        self.n_pairs_ = sum(
            n * len(outputs) for n, outputs in zip(summary.n_pairs, operator.outputs, strict=True)
        )
        groups = range(len(operator.outputs))
        n_rows = problem.preferences.n_rows
        equations = [
            DistributedEquations(operator, group, summary, problem.dtype, n_rows)
            for group in groups
        ]
        if eval_set is None:
            W, history = converge(equations, alphas, options)
        else:
            n_outputs = problem.preferences.n_outputs
            has_qid = problem.preferences.with_qid
            X, graph = check_eval_set(
                eval_set, self._check_rows, has_qid=has_qid, n_outputs=n_outputs
            )
            score = partial(graph_accuracy, graph)
            W, history = stop_early(equations, alphas, options, Products(X), score, n_outputs)
        coef = join_outputs(operator.outputs, W, problem.dtype)
        self._model = FittedFunction(alphas[: len(coef)], coef=coef)
        self.n_iter_ = history.n_iter
        self._store_validation(history)


def _require_mass(mass: float) -> None:
    if mass == 0:
        raise ValueError("the weights are so small that their products vanish: scale them up")


def _n_pairs(statistics: Sequence[Statistics]) -> int:
    """Return the number of edges of all outputs."""
    return sum(part.n_pairs * len(part.outputs) for part in statistics)
