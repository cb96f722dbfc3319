"""From preferences and data to a fitted model: objectives, choice of solver, solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._progress import Progress
from rankrls.feature_maps import Basis, Kernel, choose_basis
from rankrls.models._choice import choose_solver
from rankrls.models._models import KernelModel, LinearModel, Model, NystroemModel
from rankrls.preferences import PreferenceGraph, Statistics

__all__ = ["Fit", "fit_model"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Fit:
    """A fitted model and what was decided on the way.

    Attributes
    ----------
    model : Model
    solver : str
        "primal", "dual" or "nystroem".
    n_pairs : int
        Edges in the objective, summed over the graphs of the outputs.
    """

    model: Model
    solver: str
    n_pairs: int


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
) -> Fit:
    """Fit for all ``alphas``.

    Parameters
    ----------
    graph : PreferenceGraph over m rows
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
    solver = choose_solver(solver, kernel, X, len(used), basis=rows)
    progress(f"{m:,} rows, {n_pairs:,} pairs: solver {solver}")
    model: Model
    if solver == "primal":
        model = LinearModel([Statistics.of(o, X) for o in objectives], alphas, X.dtype)
    elif solver == "nystroem":
        rows = choose_basis(None, m, random_state) if rows is None else rows
        model = NystroemModel.from_rows(objectives, Basis.of(kernel, X, rows), X, alphas)
    else:
        if len(used) < m:
            objectives = graph[used].objectives(**loss)
        model = KernelModel(objectives, kernel, X, used, alphas)
    progress("solved")
    return Fit(model, solver, n_pairs)
