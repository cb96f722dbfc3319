"""A conditional ranking problem: kernels, observed labels, loss and relation; and its solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls import _memory
from rankrls._progress import Progress
from rankrls.core.relations.holdout import closed_form
from rankrls.core.relations.incomplete import Validation, iterate, solve_dual
from rankrls.core.relations.observations import Block, Observations
from rankrls.core.relations.primal import n_unknowns, primal_cost, solve_primal

__all__ = ["SOLVERS", "RelationProblem", "Solution", "Stopping"]

Array = NDArray[Any]

SOLVERS = ("auto", "closed", "primal", "dual", "cg")

#: "auto" forms and factorises the system over the observed pairs up to so many of them.
MAX_DUAL_CELLS = 2000
#: "auto" solves for products of features, if it takes at most so many multiplications.
MAX_PRIMAL_COST = 1e11


@dataclass(frozen=True)
class Stopping:
    """When an iteration ends.

    Attributes
    ----------
    max_iter : int
    tol : float
        On the residual, relative to the right-hand side.
    validation_fraction : float or None
        Part of the edges that is held out and chooses the iteration; None: no early stopping.
    patience : int
        Iterations without improvement on the held-out edges.
    random_state : RandomState or None
        Draws the held-out edges.
    """

    max_iter: int = 200
    tol: float = 1e-6
    validation_fraction: float | None = None
    patience: int = 10
    random_state: Any = None


@dataclass(frozen=True)
class Solution:
    """Coefficients, and how they were found.

    Attributes
    ----------
    coefficients : ndarray of shape (n_alphas, p, g)
        A of f(x, z) = k_xᵀ A g_z.
    solver : str
    n_iter : int
        1 for direct solvers.
    errors : ndarray of shape (n_iter,) or None
        Pairwise error on held-out edges after every iteration (early stopping).
    best_iteration : int or None
        The iteration that was kept by them.
    """

    coefficients: Array
    solver: str
    n_iter: int
    errors: Array | None = None
    best_iteration: int | None = None


class RelationProblem:
    """Rank column objects for each row object.

    Parameters
    ----------
    K : ndarray of shape (p, p)
        Kernel of the row objects, on which rankings are conditioned.
    G : ndarray of shape (g, g)
        Kernel of the column objects, which are ranked; K itself if they are the same objects.
    observations : Observations
        Labels, of shape (p, g).
    ranking : bool
        Whether every row has a free offset (ranking loss), or none (regression).
    sign : {0, 1, −1}
        1: f(x, z) = f(z, x); −1: f(x, z) = −f(z, x).
    features : tuple of two ndarray of shape (p, d) and (g, e), optional
        Where K and G are their inner products.

    Notes
    -----
    Minimises (y − f)ᵀ L (y − f) + alpha ‖f‖² over the observed edges, with L = I or centring by
    row (P5 (31), (32)), in the space of the kernel K ⊗ G, or ½(K ⊗ K ± swapped).
    """

    def __init__(
        self,
        K: Array,
        G: Array,
        observations: Observations,
        *,
        ranking: bool,
        sign: int = 0,
        features: tuple[Array, Array] | None = None,
    ) -> None:
        self.K, self.G = K, G
        self.observations = observations
        self.ranking, self.sign = ranking, sign
        self.features = features

    def select(self, chosen: Array) -> RelationProblem:
        """The same problem with some of the edges, by mask or numbers."""
        return RelationProblem(
            self.K,
            self.G,
            self.observations.select(chosen),
            ranking=self.ranking,
            sign=self.sign,
            features=self.features,
        )

    def block(self) -> Block | None:
        """The observations as one complete block, if they are one."""
        return self.observations.block(ranking=self.ranking, square=self.sign != 0)

    def solve(
        self,
        alphas: Array,
        solver: str = "auto",
        stopping: Stopping | None = None,
        progress: Progress | None = None,
    ) -> Solution:
        """Coefficients for every alpha.

        Parameters
        ----------
        alphas : ndarray of shape (n_alphas,)
        solver : {"auto", "closed", "primal", "dual", "cg"}
            "closed": complete relations. "primal": one system over all products of features.
            "dual": one system over the observed pairs. "cg": iterative. "auto": "closed" where it
            serves, else the smaller one of "primal" and "dual" if that is small, else "cg".
        stopping : Stopping, optional
            For "cg".
        progress : Progress, optional
        """
        progress = Progress("", 0) if progress is None else progress
        stopping = Stopping() if stopping is None else stopping
        early = stopping.validation_fraction is not None
        block = None if solver == "cg" or (solver == "auto" and early) else self.block()
        if solver == "closed" and block is None:
            raise ValueError(
                "solver='closed' needs a complete relation: every pair of the objects that have "
                "an edge observed, equally often"
                + (", with the same objects on both sides" if self.sign else "")
                + ". Use solver='auto'"
            )
        if solver == "auto":
            solver = "closed" if block is not None else self._choose(early)
        if solver == "primal" and self.features is None:
            raise ValueError(
                "solver='primal' needs the features of linear kernels, as dense arrays"
            )
        if early and solver != "cg":
            raise ValueError(f"early_stopping needs solver='cg' (or 'auto'), not {solver!r}")
        progress(f"{self.observations.n_edges:,} edges of {self.K.shape[0]:,} × "
                 f"{self.G.shape[0]:,} objects: solver {solver}")  # fmt: skip
        if solver == "closed":
            assert block is not None
            return Solution(self._closed(block, alphas), "closed", 1)
        if solver == "primal":
            return Solution(self._primal(alphas), "primal", 1)
        if solver == "dual":
            return Solution(self._dual(alphas), "dual", 1)
        return self._iterate(alphas, stopping, progress)

    def _choose(self, early: bool) -> str:
        if early:
            return "cg"
        q = len(self.observations.cells)
        if self.features is not None:
            d, e = (part.shape[1] for part in self.features)
            few = n_unknowns(d, e, self.sign) < q
            if few and primal_cost(q, d, e, self.sign) <= MAX_PRIMAL_COST:
                return "primal"
        return "dual" if q <= MAX_DUAL_CELLS else "cg"

    def _closed(self, block: Block, alphas: Array) -> Array:
        p, g = len(self.K), len(self.G)
        rows, cols = block.rows, block.cols
        whole = len(rows) == p and len(cols) == g
        K = self.K if len(rows) == p else self.K[np.ix_(rows, rows)]
        same = self.G is self.K and np.array_equal(rows, cols)
        G = K if same else self.G if len(cols) == g else self.G[np.ix_(cols, cols)]
        model = closed_form(K, G, block.Y, ranking=self.ranking, sign=self.sign)
        # n edges for each pair: n Σ(ȳ − f)² + alpha ‖f‖²
        A = model.coefficients(alphas / block.multiplicity)
        if whole:
            return A
        out = np.zeros((len(alphas), p, g))
        out[:, rows[:, None], cols] = A
        return out

    def _primal(self, alphas: Array) -> Array:
        assert self.features is not None
        X, Z = self.features
        n = n_unknowns(X.shape[1], Z.shape[1], self.sign)
        advice = "use solver='cg'"
        _memory.require(f"solver='primal' with {n:,} products of features", n, n, copies=3,
                        advice=advice)  # fmt: skip
        cells = self.observations.cells
        return solve_primal(X, Z, cells, alphas, ranking=self.ranking, sign=self.sign)

    def _dual(self, alphas: Array) -> Array:
        cells = self.observations.cells
        q = len(cells)
        _memory.require(
            f"solver='dual' with {q:,} observed pairs", q, q, copies=4, advice="use solver='cg'"
        )
        return solve_dual(self.K, self.G, cells, alphas, ranking=self.ranking, sign=self.sign)

    def _iterate(self, alphas: Array, stopping: Stopping, progress: Progress) -> Solution:
        observations, validation = self.observations, None
        if stopping.validation_fraction is not None:
            held = held_out_edges(
                observations, stopping.validation_fraction, self.sign, stopping.random_state
            )
            rows, cols, y = observations.select(held).lists
            validation = Validation(rows, cols, y, stopping.patience)
            observations = observations.select(~held)
        found = iterate(
            self.K,
            self.G,
            observations.cells,
            alphas,
            ranking=self.ranking,
            sign=self.sign,
            max_iter=stopping.max_iter,
            tol=stopping.tol,
            validation=validation,
            progress=progress,
        )
        return Solution(found.coefficients, "cg", found.n_iter, found.errors, found.best_iteration)


def held_out_edges(
    observations: Observations, fraction: float, sign: int, random_state: Any
) -> Array:
    """Mask of the edges to stop early by, shape (n_edges,).

    Half of the pairs of a row at a time, for random rows with at least four pairs, until the
    fraction is reached: held-out edges can only be ranked beside others of their row. Edges of
    one pair stay together; with a symmetric or reciprocal relation its mirror image does too.
    """
    cells = observations.cells
    p, g = observations.shape
    chosen = np.zeros(p * g, dtype=bool)
    rng = np.random.RandomState(0) if random_state is None else random_state
    wanted, taken = fraction * len(cells), 0
    starts = np.searchsorted(cells.rows, np.arange(p + 1))
    for row in rng.permutation(p):
        mine = cells.flat[starts[row] : starts[row + 1]]
        if len(mine) < 4 or taken >= wanted:
            continue
        half = rng.permutation(mine)[: len(mine) // 2]
        chosen[half] = True
        taken += len(half)
        if sign:
            chosen[(half % g) * g + half // g] = True
    rows, cols, _ = observations.lists
    held = chosen[rows * g + cols]
    values = observations.select(held)
    if not _comparable(values):
        raise ValueError(
            f"early stopping: validation_fraction={fraction:g} leaves no row with two held-out "
            "edges of different labels to compare (rows with fewer than four observed pairs are "
            "not used). Increase it, or set early_stopping=False"
        )
    return held


def _comparable(observations: Observations) -> bool:
    """Whether some row has two different labels."""
    rows, _, y = observations.lists
    order = np.lexsort((y, rows))
    rows, y = rows[order], y[order]
    return bool(((rows[1:] == rows[:-1]) & (y[1:] != y[:-1])).any())
