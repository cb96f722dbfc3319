"""Choice of alpha, of pairs of alphas, and of kernel weights, by folds of a relation (P5).

Folds hold out rows, columns, both, or single pairs. Here, rows are the conditioning objects.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from rankrls import _resources
from rankrls._calls import Progress
from rankrls._relation_labels import Cells, Observations
from rankrls._validation import check_integer, check_option, is_integer, show
from rankrls.core.linalg.krylov import IterationOptions
from rankrls.core.relations.complete import CompleteSpectrum, closed_form
from rankrls.core.relations.holdout import CompleteHoldout, holdout_error
from rankrls.core.relations.problem import RelationProblem
from rankrls.core.relations.sides import Side
from rankrls.estimators.choosing import (
    EQUAL,
    Scoring,
    best_of,
    choose_alpha,
    default_grid,
    is_splits,
    random_folds,
    read_splits,
    search_alphas,
)
from rankrls.estimators.relation_inputs import Relation, check_alpha_pairs

__all__ = ["RelationFolds", "RelationSearch", "folds_of", "object_folds", "pair_folds"]

Array = NDArray[Any]

STRUCTURES = ("auto", "rows", "columns", "both", "edges")

#: Default number of folds.
N_FOLDS = 10
#: Number of pairs of a row that are held out together by shortcuts for complete relations.
ENTRIES = 8
#: Number of folds of objects, and of pairs, that are refitted for trials of kernel weights.
FEW_BLOCKS, FEW_PAIRS = 4, 2
#: Maximal number of entries of a work space, which limits the alphas processed together.
WORK = 2**27
#: Coordinate search: relative accuracy of refits, and maximal number of iterations.
ROUGH_TOL, FEW_ITERATIONS = 1e-3, 40
#: Factors by which weights are changed, and minimum improvement of the score.
FACTORS, GAIN = (4.0, 4.0, 2.0), 1e-5
#: Weights from this fraction of their sum to one minus it are changed further.
LEAST = 0.01
#: Descent: approximate number of alphas to start from, most evaluations, least fraction of the
#: total decrease in an iteration, length of the first step and maximal change in logarithms.
COARSE, EVALUATIONS, DECREASE, FIRST_STEP, RANGE = 8, 12, 5e-3, 2.0, 10.0
#: Weights smaller than this, relative to the largest one, are candidates for removal.
SMALL = 0.02
#: Most sweeps over the alphas of each side.
SWEEPS = 6


class RelationSearch:
    """Choice of alpha, and of kernel weights, by the score of held-out pairs."""

    def __init__(
        self, ranker: Any, relation: Relation, folds: RelationFolds, grid: Any, scoring: Scoring
    ) -> None:
        self.ranker, self.relation, self.folds = ranker, relation, folds
        self.grid, self.scoring = grid, scoring
        self.options: IterationOptions = ranker._iteration_options()
        self.solver: str = ranker.solver
        self.progress = Progress(type(ranker).__name__, ranker.verbose)
        self.sides = [relation.rows, relation.ranked][: 1 + (relation.columns is not None)]
        given = ranker.kernel_weights, ranker.object_kernel_weights
        #: Sides with several kernels without given weights.
        self.open = [
            side
            for side, objects in enumerate(self.sides)
            if given[side] is None
            and not (side and ranker._pairwise.several)
            and len(objects.kernel.kernels) > 1
        ]
        self._latest: dict[int, tuple[bytes, Side]] = {}

    def evaluate(self, alphas: Array, problem: RelationProblem) -> dict[str, Array]:
        """Compute the scores of all alphas, and the numbers of refits."""
        scores, n_refits = [], []
        if problem.two_step:
            alphas = check_alpha_pairs("alphas", alphas)
        most = min(WORK, _resources.budget() // 64) // int(np.prod(self.relation.labels.shape))
        for part in np.split(alphas, range(max(most, 1), len(alphas), max(most, 1))):
            oriented = self.ranker._oriented_alphas(part)
            lists, y, predictions, refits = cross_validate(
                problem, self.folds, oriented, self.solver, self.options, self.progress
            )
            n_refits.append(refits)
            scores += [float(self.scoring.value(y, f, lists)) for f in predictions]
        return {"mean_score": np.array(scores), "n_refits": np.concatenate(n_refits)}

    def alphas(self, problem: RelationProblem) -> tuple[int, dict[str, Array]]:
        """Score the grid of alphas; return the index of the best one, and the results."""
        self.progress(f"choosing alpha, {self.folds}")
        evaluate = partial(self.evaluate, problem=problem)
        if not (problem.two_step and not problem.sign):
            return search_alphas(self.grid, evaluate, problem.size)
        first, second = (side.size for side in self.ranker._turned(problem.sides))
        return search_pairs(self.grid, evaluate, (first, second))

    # ------------------------------------------------------------------ kernel weights

    def choose_weights(self) -> tuple[Relation, RelationProblem]:
        """Choose weights that rank held-out pairs best; return their relation and problem."""
        start = [self.sides[side].weights for side in self.open]
        first = self._problem(start)
        plain = first.pairwise.plain and not first.two_step and not first.profiled
        # Offsets of held-out columns affect the score, but not the squared error.
        shifted = first.ranking and first.offsets.columns and self.folds.held in ("columns", "both")
        with warnings.catch_warnings():  # the last search, with the chosen weights, warns
            warnings.simplefilter("ignore")
            if plain and not shifted and first.labels() is not None:
                weights = self._descended(start, first)
            else:
                weights = self._searched(start, first)
        self.progress(f"weights {[w.round(4).tolist() for w in weights]}")
        sides: list[Any] = [*self.sides, None]
        for side, values in zip(self.open, weights, strict=True):
            sides[side] = self.sides[side].weighted(values)
        relation = self.relation._replace(rows=sides[0], columns=sides[1])
        return relation, self._problem(weights)

    def _problem(self, weights: list[Array]) -> RelationProblem:
        """Build the problem; a side with unchanged weights keeps its decomposition."""
        free = self.ranker._oriented(self.ranker._loss.free)
        chosen = dict(zip(self.open, weights, strict=True))
        for number, objects in enumerate(self.sides):
            values = chosen.get(number, objects.weights)
            if self._latest.get(number, (None,))[0] != (key := values.tobytes()):
                made = objects.weighted(values).side(free.T if number else free)
                self._latest[number] = key, made
        sides = [self._latest[number][1] for number in range(len(self.sides))]
        return self.ranker._problem(self.relation, (sides[0], sides[-1]))

    def _searched(self, start: list[Array], first: RelationProblem) -> list[Array]:
        """Search by the score of a few folds, which may be refits, and of the best alpha."""
        rough = copy(self)
        if len(self.folds) and (first.profiled or first.labels() is None):
            rough.folds = self.folds.few()
            single = self.folds.pairs is not None and self.solver == "auto"
            rough.solver = "cg" if single else self.solver
        tol, max_iter = self.options.tol, self.options.max_iter
        rough.options = replace(
            self.options, tol=max(tol, ROUGH_TOL), max_iter=min(max_iter, FEW_ITERATIONS)
        )
        at, results = rough.alphas(first)
        grid, top = results["alpha"], float(results["mean_score"][at])
        around = 0 if grid.ndim == 2 else 1

        def score(weights: list[Array]) -> float:
            nonlocal at, top
            low = max(0, at - around)
            near = grid[low : at + around + 1]
            found = rough.evaluate(near, self._problem(weights))["mean_score"]
            value = float(found.max())
            if value > top:
                at, top = low + int(np.argmax(found)), value
            return value

        return search_weights(start, score, top)

    def _descended(self, start: list[Array], first: RelationProblem) -> list[Array]:
        """Minimise the held-out squared error, and take the best of some weights by the score."""
        held = self.folds.held
        grid = default_grid(first.size()) if self.grid is None else self.grid

        def error(weights: list[Array], alpha: float) -> tuple[float, list[Array], float]:
            try:
                form = _without_symmetry(self._problem(weights))
                value, slope, *gradients = holdout_error(form, alpha, held)
            except ValueError:  # kernels are too indefinite for alpha
                return np.inf, [], 0.0
            tables = self.ranker._turned(gradients)
            if len(self.sides) == 1:
                tables = [tables[0] + tables[1]]
            slopes = [self.sides[s].inner_products(tables[s]) for s in self.open]
            return value, slopes, slope

        few, form = grid[:: max(1, len(grid) // COARSE)], _without_symmetry(first)
        alpha = float(few[np.argmin([holdout_error(form, one, held)[0] for one in few])])
        weights, best = descend_weights(start, alpha, (grid[0], grid[-1]), error)
        large = [np.where(part < SMALL * part.max(), 0.0, part) for part in weights]
        trials = [
            (start, alpha),
            (weights, best),
            ([part / part.sum() for part in large], best),
        ]
        scores = []
        for trial, alpha in trials:
            at = int(np.argmin(np.abs(np.log(grid / alpha))))
            near = grid[max(0, at - 1) : at + 2]
            scores.append(float(self.evaluate(near, self._problem(trial))["mean_score"].max()))
        return trials[best_of(np.array(scores))][0]


def _without_symmetry(problem: RelationProblem) -> CompleteSpectrum:
    """Build the closed form of a complete problem as if objects were of two kinds."""
    Y = problem.labels()
    assert Y is not None
    return closed_form(*problem.sides, Y, replace(problem.loss, sign=0))


def descend_weights(
    start: list[Array],
    alpha: float,
    bounds: tuple[float, float],
    error: Callable[[list[Array], float], tuple[float, list[Array], float]],
) -> tuple[list[Array], float]:
    """Minimise the held-out squared ``error`` (with gradients) over logs of weights and alpha."""
    splits = np.cumsum([len(weights) for weights in start])
    first = np.log(np.concatenate([*start, [alpha]]))
    best: tuple[float, list[Array], float] = np.inf, start, alpha
    # The objective is zero at first, and scaled so that the first step has the length FIRST_STEP.
    scale, offset = 0.0, 0.0

    def objective(unknowns: Array) -> tuple[float, Array]:
        """Compute the logarithm of the error and its gradient."""
        nonlocal best, scale, offset
        alpha = float(np.exp(unknowns[-1]))
        weights = [np.exp(part - part.max()) for part in np.split(unknowns, splits)[:-1]]
        weights = [part / part.sum() for part in weights]
        value, gradients, slope = error(weights, alpha)
        if not (np.isfinite(value) and value > 0.0):
            return np.inf, np.zeros(len(unknowns))
        if value < best[0]:
            best = value, weights, alpha
        inner = [w * (g - w @ g) for w, g in zip(weights, gradients, strict=True)]
        gradient = np.append(np.concatenate(inner), alpha * slope) / value
        if scale == 0.0:
            scale, offset = FIRST_STEP / max(float(np.linalg.norm(gradient)), 1e-300), np.log(value)
        return scale * float(np.log(value) - offset), scale * gradient

    box = [(value - RANGE, value + RANGE) for value in first[:-1]]
    box.append((np.log(bounds[0]), np.log(bounds[1])))
    options = {"maxfun": EVALUATIONS, "ftol": DECREASE}
    minimize(objective, first, jac=True, method="L-BFGS-B", bounds=box, options=options)
    return best[1], best[2]


def search_weights(
    start: list[Array], score: Callable[[list[Array]], float], top: float
) -> list[Array]:
    """Search for kernel weights with a better ``score``: multiply, divide, or drop each."""
    best, moved = [np.array(weights, dtype=np.float64) for weights in start], True

    def climbs(s: int, k: int, change: float) -> bool:
        """Multiply a weight while that improves the score."""
        nonlocal top
        better = False
        while best[s][k] < 1.0 - LEAST if change > 1.0 else best[s][k] > LEAST * (change > 0.0):
            weights = best[s].copy()
            weights[k] *= change
            if not weights.any():
                break
            weights /= weights.sum()
            found = score([*best[:s], weights, *best[s + 1 :]])
            if not found > top + GAIN:
                break
            best[s], top, better = weights, found, True
        return better

    for sweep, factor in enumerate(FACTORS):
        if sweep == 1 and not moved:
            continue
        moved = False
        for s, k in [(s, k) for s, weights in enumerate(best) for k in range(len(weights))]:
            if best[s][k] > 0.0:
                done = k == 1 and len(best[s]) == 2  # the first has been multiplied and divided
                better = not done and (climbs(s, k, factor) or climbs(s, k, 1.0 / factor))
                moved |= better or (sweep == 0 and climbs(s, k, 0.0))
    return best


def search_pairs(
    grids: tuple[Array, Array] | None,
    evaluate: Callable[[Array], dict[str, Array]],
    sizes: tuple[float, float],
) -> tuple[int, dict[str, Array]]:
    """Score pairs of alphas, of two ``grids`` or one side after the other, and find the best."""
    tried: dict[tuple[float, float], dict[str, Any]] = {}

    def scores_of(pairs: Array) -> Array:
        """Score pairs (n, 2), each only once."""
        keys = [(float(a), float(b)) for a, b in pairs]
        new = list(dict.fromkeys(key for key in keys if key not in tried))
        found = evaluate(np.array(new)) if new else {}
        for i, key in enumerate(new):
            tried[key] = {name: values[i] for name, values in found.items()}
        scores = np.array([tried[key]["mean_score"] for key in keys])
        if not np.isfinite(scores).all():
            (a, b), bad = pairs[~np.isfinite(scores)][0], scores[~np.isfinite(scores)][0]
            raise ValueError(
                f"scoring returned {bad} for alpha=({a:g}, {b:g}); it must return a finite number"
            )
        return scores

    if grids is not None:
        pairs = np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1)
        table = scores_of(pairs.reshape(-1, 2)).reshape(pairs.shape[:2])
        good = np.argwhere(table.max() - table <= EQUAL * abs(table.max()))
        # Of equally good pairs the one with the largest alphas; warnings at the ends of a grid
        i, j = good[np.argmax(np.log(pairs[tuple(good.T)]).sum(axis=1))]
        choose_alpha(grids[0], table[:, j])
        choose_alpha(grids[1], table[i])
        best = pairs[i, j]
    else:
        both = [default_grid(size) for size in sizes]
        steps = np.linspace(0, 1, max(map(len, both)))
        places = (np.rint(steps * (len(grid) - 1)).astype(int) for grid in both)
        line = np.column_stack([grid[at] for grid, at in zip(both, places, strict=True)])
        best, before = line[best_of(scores_of(line))], np.zeros(0)
        for _ in range(SWEEPS):
            if np.array_equal(best, before):
                break
            before = best.copy()
            for side, grid in enumerate(both):
                pairs = np.repeat(best[None], len(grid), axis=0)
                pairs[:, side] = grid
                best = pairs[best_of(scores_of(pairs))]
    keys = sorted(tried)
    results = {name: np.array([tried[key][name] for key in keys]) for name in tried[keys[0]]}
    return keys.index(tuple(best.tolist())), {"alpha": np.array(keys), **results}


# ---------------------------------------------------------------------- folds


class BlockFold(NamedTuple):
    """Training and test pairs, each given as all pairs of some rows and columns."""

    train: tuple[Array, Array]
    test: tuple[Array, Array]


@dataclass(frozen=True)
class RelationFolds:
    """Folds of a relation: ``blocks``, ``pairs``, or shortcuts that hold out rows or entries."""

    held: str  # the new objects of held-out pairs: "rows", "columns", "both", none: "entries"
    blocks: tuple[BlockFold, ...] = ()
    entries: tuple[Array, ...] = ()  # columns that are held out together, for one row at a time
    pairs: Array | None = None  # the fold of every observed pair, or −1 if it is never held out
    n_pair_folds: int = 0

    def __len__(self) -> int:
        return len(self.blocks) or self.n_pair_folds

    def __str__(self) -> str:
        return f"{len(self)} folds" if len(self) else f"leave-{self.held}-out"

    def few(self) -> RelationFolds:
        """Some of the folds, as a validation set."""
        step = max(1, len(self.blocks) // FEW_BLOCKS)
        few = min(FEW_PAIRS, self.n_pair_folds)
        return replace(self, blocks=self.blocks[::step][:FEW_BLOCKS], n_pair_folds=few)

    def edges(self, observations: Observations, number: int) -> tuple[Array, Array]:
        """Return masks of the training and test edges of a fold of blocks or pairs."""
        rows, cols, _ = observations.lists
        if self.pairs is not None:
            flat = rows * observations.shape[1] + cols
            fold = self.pairs[np.searchsorted(observations.cells.flat, flat)]
            return fold != number, fold == number
        ends = self.blocks[number]
        train, test = (np.isin(rows, i) & np.isin(cols, j) for i, j in ends)
        return train, test


def folds_of(
    cv: Any,
    observations: Observations,
    condition_on: str,
    *,
    paired: bool,
    two_domains: bool,
    shortcut: bool,
    n_folds: int | None,
    rng: np.random.RandomState,
    X: Any,
) -> RelationFolds:
    """Build the folds for ``cv``; ``paired`` holds out mirror images, ``shortcut`` single rows."""
    p, g = observations.shape
    every = np.arange(p), np.arange(g)
    structure = "rows" if two_domains else "both"
    if isinstance(cv, str):
        structure = structure if check_option("cv", cv, STRUCTURES) == "auto" else cv
    elif is_integer(cv):
        n_folds = check_integer("cv", cv, least=2)
    elif not is_splits(cv):
        choices = ", ".join(map(repr, STRUCTURES))
        raise ValueError(
            f"cv must be one of {choices}, an int, a splitter or an iterable of (train, test); "
            f"got {show(cv)}"
        )
    if condition_on == "columns":
        structure = {"rows": "columns", "columns": "rows"}.get(structure, structure)
    blocks = []
    if is_splits(cv):
        for split in read_splits(cv, (p, g)[structure == "columns"], X):
            first = (every[0], every[0]) if structure == "columns" else split
            second = (every[1], every[1]) if structure == "rows" else split
            blocks.append(BlockFold((first[0], second[0]), (first[1], second[1])))
        return RelationFolds(structure, tuple(blocks))
    if structure == "edges" and not shortcut:
        fold, k = pair_folds(observations.cells, n_folds, rng, paired=paired)
        return RelationFolds("entries", pairs=fold, n_pair_folds=k)
    if structure == "edges":
        # Separate folds of pairs for each row. They are small: the cost is quadratic in their size.
        k = n_folds or max(2, g // int(np.clip(g // 10, 2, ENTRIES)))
        entries = object_folds(g, k, rng, "columns", least=2)
        return RelationFolds("entries", entries=tuple(entries))
    if structure == "rows" and shortcut and n_folds is None:
        return RelationFolds("rows")
    if paired or (structure == "both" and not two_domains):
        for fold in object_folds(p, n_folds, rng, "objects", least=2):
            stay = np.delete(every[0], fold)
            test = {"rows": (fold, stay), "columns": (stay, fold)}.get(structure, (fold, fold))
            blocks.append(BlockFold((stay, stay), test))
        return RelationFolds(structure, tuple(blocks))
    row_folds, column_folds = [every[0]], [every[1]]
    if structure != "rows":
        column_folds = object_folds(g, n_folds, rng, "columns", least=2)
    if structure != "columns":
        row_folds = object_folds(p, n_folds, rng, "rows", least=1)
    for rows in row_folds:
        for cols in column_folds:
            kept_rows = every[0] if structure == "columns" else np.delete(every[0], rows)
            kept_cols = every[1] if structure == "rows" else np.delete(every[1], cols)
            blocks.append(BlockFold((kept_rows, kept_cols), (rows, cols)))
    return RelationFolds(structure, tuple(blocks))


def object_folds(
    n: int, k: int | None, rng: np.random.RandomState, what: str, *, least: int
) -> list[Array]:
    """Draw random folds of n objects, at least ``least`` in each; by default at most ten folds."""
    if k is None:
        k = min(N_FOLDS, max(2, n // max(5, least)), max(n // least, 2))
    return random_folds(n, k, rng, what=what, least=least)


def pair_folds(
    cells: Cells, k: int | None, rng: np.random.RandomState, *, paired: bool
) -> tuple[Array, int]:
    """Assign observed pairs to folds of two or more of a row (−1: never out); count folds."""
    k = N_FOLDS if k is None else k
    p, g = cells.shape
    fold = np.full(len(cells), -1)
    upper = np.flatnonzero(cells.rows <= cells.cols) if paired else np.arange(len(cells))
    rows = cells.rows[upper]
    order = np.lexsort((rng.random_sample(len(upper)), rows))  # random within a row
    rows = rows[order]
    starts = np.searchsorted(rows, np.arange(p + 1))
    length = np.diff(starts)
    used = np.minimum(k, length // 2)  # number of folds of each row
    place = np.arange(len(rows)) - starts[rows]
    first = rng.randint(k, size=p)
    assigned = (first[rows] + place % np.maximum(used[rows], 1)) % k
    fold[upper[order]] = np.where(used[rows] > 0, assigned, -1)
    if paired:
        table = np.full(p * g, -2)  # no such pair
        table[cells.flat[upper]] = fold[upper]
        mirror = cells.cols * g + cells.rows
        fold = np.where(cells.rows <= cells.cols, fold, table[mirror])
        alone = fold == -2
        fold[alone] = rng.randint(k, size=int(alone.sum()))
    return fold, k


def cross_validate(
    problem: RelationProblem,
    folds: RelationFolds,
    alphas: Array,
    solver: str,
    options: IterationOptions,
    progress: Progress,
) -> tuple[Array, Array, Array, Array]:
    """Predict held-out edges: lists that are ranked together, labels, predictions, refits."""
    Y = problem.labels()
    if not len(folds):
        assert Y is not None
        holdout, lists = CompleteHoldout(problem, Y), np.arange(len(Y))[:, None]
        if folds.entries:
            held, n_refits = holdout.entry_folds(list(folds.entries), alphas)
            fold_of = np.empty(Y.shape[1], dtype=np.int64)
            for number, fold in enumerate(folds.entries):
                fold_of[fold] = number
            lists = lists * len(folds.entries) + fold_of
        else:
            held, n_refits = holdout.rows(alphas)
        lists = np.broadcast_to(lists, Y.shape).ravel()
        return lists, Y.ravel(), held.reshape(len(alphas), -1), n_refits
    closed = solver in ("auto", "closed") and problem.has_closed_form and folds.pairs is None
    if problem.two_step and not (closed and Y is not None):
        raise ValueError(
            "cv='edges' refits models without single pairs here, which pairwise='two-step' needs: "
            "use cv='rows', 'columns' or 'both'"
        )
    parts: list[tuple[Any, Any, Any]] = []
    for number in range(len(folds)):
        if Y is None or not closed:
            train, test = folds.edges(problem.observations, number)
            if not (test.any() and train.any()):
                continue
            rows, cols, y = problem.observations.select(test).lists
            held = problem.predict_without(~train, rows, cols, alphas, solver, options)
        else:
            block, part = folds.blocks[number], problem
            if problem.profiled:  # profiles of the labels that are not held out
                part = problem.select(folds.edges(problem.observations, number)[0])
            rows, cols = (ends.ravel() for ends in np.meshgrid(*block.test, indexing="ij"))
            y, held = Y[rows, cols], CompleteHoldout(part, Y).block(*block, alphas)
        parts.append((rows * len(folds) + number, y, held.reshape(len(alphas), -1)))
        progress.bar(number + 1, len(folds), "folds")
    if not parts:
        raise ValueError("no fold has both edges to learn from and edges to predict")
    lists, y, held = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    return lists, y, held, np.full(len(alphas), 0 if closed and Y is not None else len(parts))
