"""Folds of a relation, and predictions of held-out pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankrls import _resources
from rankrls._calls import Progress
from rankrls.core.linalg.krylov import IterationOptions
from rankrls.core.relations.holdout import CompleteHoldout
from rankrls.core.relations.labels import Observations
from rankrls.core.relations.problem import RelationProblem

__all__ = ["BlockFold", "RelationFolds", "alpha_chunks", "cross_validate"]

Array = NDArray[Any]

#: Maximal number of entries of a work space, which limits the alphas processed together.
WORK = 2**27


class BlockFold(NamedTuple):
    """Training and test pairs, each given as all pairs of some rows and columns."""

    train: tuple[Array, Array]
    test: tuple[Array, Array]


@dataclass(frozen=True)
class RelationFolds:
    """Folds of a relation of a kind: "blocks", "leave-row-out", "entries" or "pairs"."""

    kind: str
    blocks: tuple[BlockFold, ...] = ()
    entries: tuple[Array, ...] = ()  # columns that are held out together, for one row at a time
    pairs: Array | None = None  # the fold of every observed pair, or −1 if it is never held out
    n_pair_folds: int = 0

    @property
    def held(self) -> str:
        """The new objects of held-out pairs: "rows", "columns", "both", or none ("entries")."""
        if self.kind == "leave-row-out":
            return "rows"
        if self.kind != "blocks":
            return "entries"
        rows, columns = (
            any(len(np.setdiff1d(fold.test[side], fold.train[side])) for fold in self.blocks)
            for side in (0, 1)
        )
        return {(True, False): "rows", (False, True): "columns"}.get((rows, columns), "both")

    def __len__(self) -> int:
        return len(self.blocks) or self.n_pair_folds

    def __str__(self) -> str:
        return f"{len(self)} folds" if len(self) else self.kind

    def edges(self, observations: Observations, number: int) -> tuple[Array, Array]:
        """Return masks of the training and test edges of a fold of "blocks" or "pairs"."""
        rows, cols, _ = observations.lists
        if self.pairs is not None:
            flat = rows * observations.shape[1] + cols
            fold = self.pairs[np.searchsorted(observations.cells.flat, flat)]
            return fold != number, fold == number

        def member(part: tuple[Array, Array]) -> Array:
            inside = [np.zeros(n, dtype=bool) for n in observations.shape]
            inside[0][part[0]], inside[1][part[1]] = True, True
            return inside[0][rows] & inside[1][cols]

        return member(self.blocks[number].train), member(self.blocks[number].test)


def alpha_chunks(alphas: Array, shape: tuple[int, int]) -> list[Array]:
    """Split alphas into chunks that limit the size of the work space."""
    size = max(1, min(WORK, _resources.budget() // 64) // (shape[0] * shape[1]))
    return [alphas[start : start + size] for start in range(0, len(alphas), size)]


def cross_validate(
    problem: RelationProblem,
    folds: RelationFolds,
    alphas: Array,
    *,
    solver: str,
    options: IterationOptions,
    progress: Progress,
) -> tuple[Array, Array, Array, Array]:
    """Predict held-out edges for some alphas (see `alpha_chunks`).

    Returns the list of every edge, edges of one row and model, which are ranked together; labels;
    predictions (n_alphas, n); and the number of refits for every alpha.
    """
    Y = problem.labels()
    if folds.kind in ("leave-row-out", "entries"):
        assert Y is not None
        p, g = Y.shape
        complete, lists = CompleteHoldout(problem, Y), np.repeat(np.arange(p), g)
        if folds.kind == "leave-row-out":
            held, n_refits = complete.rows(alphas)
        else:
            held, n_refits = complete.entry_folds(list(folds.entries), alphas)
            fold_of = np.empty(g, dtype=np.int64)
            for number, cols in enumerate(folds.entries):
                fold_of[cols] = number
            lists = lists * len(folds.entries) + np.tile(fold_of, p)
        return lists, Y.ravel(), held.reshape(len(alphas), -1), n_refits
    closed = solver in ("auto", "closed") and problem.has_closed_form
    closed = closed and Y is not None and folds.kind == "blocks"
    if problem.two_step and not closed:
        raise ValueError(
            "cv='edges' refits models without single pairs here, which pairwise='two-step' needs: "
            "use cv='rows', 'columns' or 'both'"
        )
    holdout = CompleteHoldout(problem, Y) if closed and Y is not None else None
    parts: list[tuple[Any, Any, Any]] = []
    for number in range(len(folds)):
        if holdout is None:
            train, test = folds.edges(problem.observations, number)
            if not (test.any() and train.any()):
                continue
            rows, cols, y = problem.observations.select(test).lists
            held = problem.predict_without(~train, rows, cols, alphas, solver, options)
        else:
            block = folds.blocks[number]
            if problem.profiled:  # profiles of the labels that are not held out
                train, _ = folds.edges(problem.observations, number)
                holdout = CompleteHoldout(problem.select(train), holdout.Y)
            rows, cols = (ends.ravel() for ends in np.meshgrid(*block.test, indexing="ij"))
            y, held = holdout.Y[rows, cols], holdout.block(*block, alphas)
        parts.append((rows * len(folds) + number, y, held.reshape(len(alphas), -1)))
        progress.bar(number + 1, len(folds), "folds")
    if not parts:
        raise ValueError("no fold has both edges to learn from and edges to predict")
    all_lists, labels, predictions = zip(*parts, strict=True)
    return (
        np.concatenate(all_lists),
        np.concatenate(labels),
        np.concatenate(predictions, axis=1),
        np.full(len(alphas), 0 if closed else len(parts)),
    )
