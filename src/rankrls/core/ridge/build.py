"""From preferences and data to a fitted model: objectives, choice of solver, solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._progress import Progress
from rankrls._threads import n_threads
from rankrls.core.linalg.conjugate_gradients import History, IterationOptions
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.statistics import Statistics
from rankrls.core.ridge.choice import choose_solver
from rankrls.core.ridge.iterative import HeldOut, fit_iterative
from rankrls.core.ridge.models import KernelModel, LinearModel, Model, NystroemModel
from rankrls.core.ridge.solvers import PrimalSolver
from rankrls.core.spaces.kernels import Kernel
from rankrls.core.spaces.nystroem import Basis, choose_basis

__all__ = ["Fit", "fit_model", "solve_statistics"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Fit:
    """A fitted model and what was decided on the way.

    Attributes
    ----------
    model : Model
    solver : str
        "primal", "dual", "nystroem" or "cg".
    n_pairs : int
        Edges in the objective, summed over the graphs of the outputs.
    history : History
        How the iterations went; the direct solvers have one.
    """

    model: Model
    solver: str
    n_pairs: int
    history: History


@np.errstate(over="ignore", invalid="ignore")  # what overflows is refused by the solver
def fit_model(
    graph: PreferenceGraph,
    kernel: Kernel,
    X: Any,
    alphas: Array,
    *,
    loss: dict[str, str],
    solver: str,
    basis: Any,
    random_state: np.random.RandomState,
    progress: Progress,
    n_jobs: int | None = None,
    iteration: IterationOptions,
    held_out: HeldOut | None = None,
) -> Fit:
    """Fit for all ``alphas``, or for the best of them if rows are held out (early stopping).

    Parameters
    ----------
    graph : PreferenceGraph over m rows, or over ``held_out.rows``
    kernel : Kernel
    X : ndarray or sparse array of shape (m, n); the kernel matrix if it is precomputed
    alphas : ndarray of shape (n_alphas,)
    loss : dict
        cost, ties and query_weighting.
    solver, basis
        As given by the user.
    random_state : RandomState
        Draws the basis vectors.
    progress : Progress
    n_jobs : int or None
        Threads of the products of "cg".
    iteration : IterationOptions
        For "cg".
    held_out : HeldOut, optional
        Rows to stop by; they ask for "cg".
    """
    m = X.shape[0]
    objectives = graph.objectives(**loss)
    n_pairs = sum(objective.n_pairs for objective in objectives)
    used = np.flatnonzero(sum(o.system.row_weight() for o in objectives))
    if len(used) == 0:
        raise ValueError("the weights are so small that their products vanish: scale them up")
    rows = None
    if basis is not None or solver == "nystroem":
        rows = choose_basis(basis, m, random_state)
    early = held_out is not None
    solver = choose_solver(solver, kernel, X, len(used), basis=rows, early_stopping=early)
    progress(f"{m:,} rows, {n_pairs:,} pairs: solver {solver}")
    model: Model
    history = History(n_iter=1)
    if solver == "cg":
        threads = n_threads(n_jobs)
        model, history = fit_iterative(
            objectives, X, alphas, options=iteration, threads=threads, held_out=held_out
        )
    elif solver == "primal":
        model = LinearModel([Statistics.of(o, X) for o in objectives], alphas, X.dtype)
    elif solver == "nystroem":
        rows = choose_basis(None, m, random_state) if rows is None else rows
        model = NystroemModel.from_rows(objectives, Basis.of(kernel, X, rows), X, alphas)
    else:
        if len(used) < m:
            objectives = graph[used].objectives(**loss)
        model = KernelModel(objectives, kernel, X, used, alphas)
    progress("solved")
    return Fit(model, solver, n_pairs, history)


@np.errstate(over="ignore", invalid="ignore")
def solve_statistics(
    statistics: Sequence[Statistics], basis: Basis | None, alphas: Array, dtype: Any
) -> Model:
    """The model of statistics that were gathered elsewhere; their arrays may be overwritten.

    Parameters
    ----------
    statistics : sequence of Statistics, together covering all outputs
        Of the features themselves, or of the Nyström features of ``basis``.
    basis : Basis or None
    alphas : ndarray of shape (n_alphas,)
    dtype : of the coefficients
    """
    if basis is None:
        return LinearModel(statistics, alphas, dtype)
    solvers = [PrimalSolver(part, alphas) for part in statistics]
    return NystroemModel(basis, solvers, alphas, dtype)
