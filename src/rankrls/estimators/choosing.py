"""Choice of alpha by held-out rows: grids, folds, validation rows and scores."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from rankrls import _resources, metrics
from rankrls._calls import warn
from rankrls._frames import check_same_rows
from rankrls._validation import check_finite_array, check_positive, check_rows, show
from rankrls.core.preferences.costs import Loss
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.models import explained_part
from rankrls.core.ridge.residuals import Folds, HeldOut
from rankrls.estimators.ranker import Preferences, graph_accuracy, require_preferences
from rankrls.metrics.metric_names import LIST_METRICS, PAIR_METRICS, parse_metric

Array = NDArray[Any]

#: Default grid of the cross-validating estimators: 2^-15 … 2^15.
DEFAULT_ALPHAS = tuple(2.0**exponent for exponent in range(-15, 16))

#: The default grid is extended to cover these multiples of the largest eigenvalue.
COVERED = (2.0**-20, 2.0**-10)

#: The default grid is extended by this many powers of two at a time, within these multiples of the
#: largest eigenvalue: below, rounding errors dominate, and above, alpha no longer changes the
#: ranking.
STEP, LEAST, MOST = 10, 1e-13, 1e3

#: Held-out squared loss as a score: the only one that sums over folds suffice for.
LOSS_METRIC = "pairwise_r2"

#: Scores that differ by no more than this part of the best one are equally good.
EQUAL = 1e-6

#: Larger powers of two, and their inverses, are never tried.
MAX_POWER = 125


# -- grids of alphas ----------------------------------------------------------------------------


def check_alphas(
    name: str, values: ArrayLike, *, allow_zero: bool = False, as_given: bool = False
) -> Array:
    """Return a grid of finite numbers > 0 (or 0), ascending and distinct unless ``as_given``."""
    grid = check_finite_array(name, np.atleast_1d(np.asarray(values)), ndim=(1,))
    if not grid.size:
        bound = ">=" if allow_zero else ">"
        raise ValueError(f"{name} is empty; give at least one number {bound} 0")
    smallest = float(grid.min())
    if not (allow_zero and smallest == 0):
        check_positive(name, smallest)
    return grid if as_given else np.unique(grid)


def search_alphas(
    alphas: Array | None,
    evaluate: Callable[[Array], dict[str, Array]],
    size_of_problem: Callable[[], float],
    n_values: int = 1,
    *,
    warns: bool = True,
) -> tuple[int, dict[str, Array]]:
    """Score an ascending grid of alphas; returns the number of the best, and the results.

    ``evaluate`` makes a dict of arrays of shape (n,) from alphas (n,), by ``n_values`` predictions
    for each: "mean_score", and perhaps "mean_squared_error", which decides among equal scores.
    Without alphas, the `default_grid` is extended by powers of two as long as the best alpha is at
    an end. ``size_of_problem`` returns approximately the largest eigenvalue, the scale of alpha.
    """
    at_once = max(1, _resources.budget() // (4 * 8 * n_values))  # bounds the memory
    size = size_of_problem() if alphas is None else np.inf
    grid = default_grid(size) if alphas is None else alphas
    parts = np.split(grid, range(at_once, len(grid), at_once))
    found = joined_results(list(map(evaluate, parts)))
    while alphas is None and len(more := continuation(grid, found, size)):
        scored = evaluate(more)
        found = joined_results([found, scored] if more[0] > grid[-1] else [scored, found])
        grid = np.union1d(grid, more)
    results = {"alpha": grid, **found}
    return best_of_search(alphas, results, size_of_problem, warns=warns), results


def best_of_search(
    alphas: Array | None,
    results: dict[str, Array],
    size_of_problem: Callable[[], float],
    *,
    warns: bool = True,
) -> int:
    """Index of the best alpha of a search from ``alphas``; warn if it is at an open end."""
    return choose_alpha(
        results["alpha"],
        results["mean_score"],
        results.get("mean_squared_error"),
        size_of_problem=None if alphas is None else size_of_problem,
        # Below the smallest alpha of the default grid, rounding errors would dominate.
        ends=(warns and alphas is not None, warns),
    )


def forget_choice(ranker: Any) -> None:
    """Remove the attributes that only some choices of alpha leave."""
    for name in ("calibration_", "cv_predictions_", "gamma_", "noise_variance_"):
        ranker.__dict__.pop(name, None)


def joined_results(parts: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Concatenate the results of several grids."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def default_grid(size: float, *, complete: bool = False) -> Array:
    """Powers of two from 2^-15 to 2^15, and more for a problem of another largest eigenvalue.

    ``complete``: with all extensions upwards.
    """
    # That may be dominated by a single feature of large scale, so alphas that suit smaller
    # features stay in the grid.
    low, high = np.log2(DEFAULT_ALPHAS[0]), np.log2(DEFAULT_ALPHAS[-1])
    if 0 < size < np.inf:
        low = min(low, np.rint(np.log2(size * COVERED[1])))
        high = max(high, np.rint(np.log2(size * COVERED[0])))
        high = max(high, np.floor(np.log2(MOST * size))) if complete else high
    return 2.0 ** np.arange(max(low, -MAX_POWER), min(high, MAX_POWER) + 1)


def continuation(grid: Array, found: dict[str, Array], size: float) -> Array:
    """Powers of two beyond the end of a grid with the best score; empty if the best is inside."""
    # If an end is only as good as its neighbour, the grid is extended only upwards and up to the
    # largest eigenvalue, because alphas that are too small to matter are equally good, too.
    scores = found["mean_score"]
    if len(grid) < 2 or not np.isfinite(scores).all():
        return np.empty(0)
    best = best_of(scores, found.get("mean_squared_error"))
    powers = 2.0 ** np.arange(1, STEP + 1)
    if best == len(grid) - 1 and (_better(scores[best], scores[best - 1]) or grid[-1] < size):
        more = grid[-1] * powers
        return more[more <= MOST * size]
    if best == 0:
        more = grid[0] / powers[::-1]
        return more[more >= LEAST * size]
    return np.empty(0)


def best_of(scores: Array, losses: Array | None = None) -> int:
    """Index of the best score; if several are equally good, of the least loss, or the last one."""
    rounding = 1e-12 * np.abs(scores.max())
    best = int(np.flatnonzero(scores >= scores.max() - rounding)[-1])
    worse = _better(scores[best], scores)
    if losses is not None:
        equal = np.flatnonzero(~worse)
        least = losses[equal].min()
        return int(equal[losses[equal] - least <= EQUAL * abs(least)][-1])
    worse[:best] = False
    return int(np.argmax(worse)) - 1 if worse.any() else len(scores) - 1


def _better(score: Any, than: Any) -> Any:
    """Whether a score is better by more than the tolerance."""
    return score - than > EQUAL * np.abs(score)


def choose_alpha(
    grid: Array,
    scores: Array,
    losses: Array | None = None,
    *,
    size_of_problem: Callable[[], float] | None = None,
    ends: tuple[bool, bool] = (True, True),
) -> int:
    """Return the index of the best alpha of an ascending grid; warn if it is at an open end."""
    if not np.isfinite(scores).all():
        raise ValueError(
            f"scoring returned {scores[~np.isfinite(scores)][0]} for alpha="
            f"{grid[~np.isfinite(scores)][0]:g}; it must return a finite number"
        )
    best, last = best_of(scores, losses), len(grid) - 1
    at_end = (best == 0 and ends[0]) or (best == last and ends[1])
    if last == 0 or not at_end:
        return best
    open_end = bool(_better(scores[best], scores[1 if best == 0 else last - 1]))
    # Beyond the largest eigenvalue, stronger regularisation no longer changes the ranking.
    if best == last and size_of_problem is not None and scores[best] < 1:
        open_end = open_end or grid[last] < size_of_problem()
    if open_end:
        where = "smallest" if best == 0 else "largest"
        warn(
            f"the best alpha, {grid[best]:g}, is the {where} of the grid: extend alphas, or leave "
            "alphas=None, which extends the grid itself"
        )
    return best


# -- folds --------------------------------------------------------------------------------------


def is_splits(cv: Any) -> bool:
    """Whether ``cv`` is a splitter, or an iterable of (train, test)."""
    return not isinstance(cv, str | bytes) and (hasattr(cv, "split") or isinstance(cv, Iterable))


def random_folds(
    n: int, k: int, rng: np.random.RandomState, *, what: str = "rows", least: int = 1
) -> list[Array]:
    """Divide n items at random into k ascending folds of nearly equal size, at least ``least``."""
    most = n // least
    if most < 2:
        raise ValueError(f"{n} {what} are too few to hold some of them out")
    if not 2 <= k <= most:
        of_at_least = f" of at least {least}" if least > 1 else ""
        raise ValueError(
            f"{n} {what} cannot be held out in {k} folds{of_at_least}: there can be 2 to {most} "
            "folds"
        )
    order = rng.permutation(n)
    return [np.sort(order[start::k]) for start in range(k)]


def random_fold_of(codes: Array, k: int, rng: np.random.RandomState, *, what: str) -> Array:
    """Number of the random fold of each row, where rows of the same code stay together."""
    n = int(codes.max()) + 1
    fold_of = np.empty(n, dtype=np.int64)
    for number, fold in enumerate(random_folds(n, k, rng, what=what)):
        fold_of[fold] = number
    return fold_of[codes]


def read_splits(
    cv: Any,
    n: int,
    X: Any,
    y: Any = None,
    groups: Any = None,
    *,
    complement: bool = False,
) -> list[tuple[Array, Array]]:
    """Return the checked (train, test) rows of a splitter or an iterable, each ascending."""
    if hasattr(cv, "split"):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The groups parameter is ignored")
            cv = list(cv.split(X, y, groups=groups) if groups is not None else cv.split(X, y))
    splits = []
    for number, split in enumerate(cv):
        if not isinstance(split, tuple | list | np.ndarray) or len(split) != 2:
            raise ValueError(f"split {number} of cv must be a pair (train, test) of row numbers")
        train, test = (
            np.sort(check_rows(f"{name} rows of split {number} of cv", part, n))
            for name, part in zip(("train", "test"), split, strict=True)
        )
        common = len(np.intersect1d(train, test))
        if complement and (common or len(train) + len(test) != n):
            raise ValueError(
                f"split {number} of cv does not train on all rows except the test rows, which the "
                "exact shortcut requires; use GridSearchCV for other splits"
            )
        if common:
            raise ValueError(f"split {number} of cv has rows both in train and in test")
        splits.append((train, test))
    if not splits:
        raise ValueError("cv gives no split")
    return splits


# -- validation rows ----------------------------------------------------------------------------


class Split(NamedTuple):
    """Training preferences over ``rows`` (None: all), and the held-out rows and preferences."""

    graph: PreferenceGraph
    rows: Array | None
    X: Any
    held: PreferenceGraph


def split_for_validation(ranker: Any, X: Any, graph: PreferenceGraph, eval_set: Any) -> Split:
    """Hold out ``eval_set``, or a fraction of the queries with a pair, rows, or given pairs."""
    if eval_set is not None:
        rows, held = check_eval_set(
            eval_set, ranker._check_rows, has_qid=graph.has_qid, n_outputs=graph.n_outputs
        )
        return Split(graph, None, rows, held)
    fraction = ranker.validation_fraction
    if graph.scores is not None and graph.n_given_pairs:
        raise ValueError(
            "scores and pairs together cannot be split at random without losing pairs; pass "
            "eval_set=(X_val, y_val, qid_val)"
        )
    codes: Any = graph.query_codes if graph.has_qid else np.arange(graph.n_rows)
    units, what, least = codes, "rows", 2
    if graph.scores is None:
        units, what, least = np.arange(graph.n_given_pairs), "pairs", 1
    elif graph.has_qid:
        varying = graph.varying_queries.any(axis=1)
        units, what, least = np.flatnonzero(varying), "queries with a pair", 1
    n = max(least, round(fraction * len(units)))
    if n + least > len(units):
        raise ValueError(
            f"validation_fraction={fraction:g} of {len(units)} {what} leaves too few; pass eval_set"
        )
    rng = check_random_state(ranker.random_state)
    for _ in range(100):  # a few rows held out of one ranking may all have the same score
        drawn = rng.permutation(units)[:n]
        if graph.scores is None:
            out = np.isin(units, drawn)
            held = graph.only_pairs(out)
            rows = np.unique(held.pairs)
            split = Split(graph.only_pairs(~out), None, X[rows], held[rows])
        else:
            out = np.isin(codes, drawn)
            kept, rows = np.flatnonzero(~out), np.flatnonzero(out)
            split = Split(graph[kept], kept, X[rows], graph[rows])
        if min(split.graph.n_preferences.min(), split.held.n_preferences.min()) > 0:
            return split
    raise ValueError(
        f"holding out validation_fraction={fraction:g} leaves one side without a pair; pass "
        "eval_set, or change validation_fraction"
    )


def check_eval_set(
    eval_set: Any, check_rows: Callable[[Any], Any], *, has_qid: bool, n_outputs: int
) -> tuple[Any, PreferenceGraph]:
    """Features and preferences of ``eval_set`` = (X, y) or (X, y, qid), to validate on."""
    if (
        not isinstance(eval_set, tuple | list)
        or len(eval_set) not in (2, 3)
        or (isinstance(eval_set, list) and all(isinstance(part, tuple) for part in eval_set))
    ):
        raise ValueError(
            "eval_set must be one tuple (X_val, y_val) or (X_val, y_val, qid_val); got "
            f"{show(eval_set)}"
        )
    X, y, qid = eval_set if len(eval_set) == 3 else (*eval_set, None)
    check_same_rows(X, "X_val", y_val=y, qid_val=qid)
    X = check_rows(X)
    if has_qid and qid is None and not isinstance(y, PreferenceGraph):
        raise ValueError(
            "fit has qid, so eval_set needs it too; pass eval_set=(X_val, y_val, qid_val)"
        )
    held = Preferences(y, qid).graph(X.shape[0])
    if held.n_outputs != n_outputs:
        raise ValueError(f"eval_set has {held.n_outputs} output(s), y has {n_outputs}")
    require_preferences(held, "validate on (eval_set)")
    return X, held


# -- scores of held-out rows --------------------------------------------------------------------


class Scoring:
    """A metric by name or as a function, applied to held-out predictions.

    ``loss`` is the squared loss of "pairwise_r2"; without it this name is refused. A list is a
    query, or the part of a query (without qid: of all rows) in one fold.
    """

    judged = False  # it scores rows, not given pairs

    def __init__(self, scoring: Any, loss: Loss | None = None) -> None:
        self.loss = loss
        self.name = scoring if isinstance(scoring, str) else None
        self.options: dict[str, Any] = {}
        if self.name is None:
            _check_metric_function(scoring)
            self.metric: Callable[..., Any] = scoring
        elif self.name in PAIR_METRICS:  # no options to read
            self.metric = getattr(metrics, self.name)
        elif self.name != "log_loss" and not (self.name == LOSS_METRIC and loss is not None):
            allowed = PAIR_METRICS + LIST_METRICS + (LOSS_METRIC,) * (loss is not None)
            named = parse_metric(self.name, "scoring", allowed=allowed)
            self.metric, self.options = named.function, named.options
        #: Whether the metric has a score for every held-out list.
        self.by_list = self.name not in (None, "concordance_index", LOSS_METRIC)

    def require_scores(self) -> None:
        """Raise an error for a metric that is defined only for given pairs."""
        if self.name == "log_loss":
            raise ValueError(
                "scoring='log_loss' needs given pairs that are left out; it does not work with "
                "labels y, nor with eval_set, early_stopping, solver='cg' or cv='validation', "
                "which hold out rows"
            )

    def value(self, y_true: Array, y_score: Array, lists: Array, **options: Any) -> Any:
        """The metric of scores within lists; that of a function must be a number."""
        found = self.metric(y_true, y_score, qid=lists, **self.options, **options)
        if self.name is None and (np.ndim(found) or np.asarray(found).dtype.kind not in "fiub"):
            raise ValueError(f"scoring must return one number, higher = better; got {show(found)}")
        return found

    def of_lists(self, graph: PreferenceGraph, held: HeldOut) -> Array:
        """Scores and weights of held-out lists, shape (2, n_alphas, n_outputs, n_lists).

        Undefined scores have weight 0. With sample weights, a pair has the product of the weights
        of its rows, and a list their mean.
        """
        y, lists, row_weight = _held_lists(graph, held)
        number = np.unique(lists, return_inverse=True)[1]
        pairwise = self.name in PAIR_METRICS
        options: dict[str, Any] = {"average": None}
        of_list = np.ones(int(number.max()) + 1)
        if row_weight is not None:
            of_list = np.bincount(number, row_weight) / np.bincount(number)
            options |= {"sample_weight": row_weight} if pairwise else {}
        varied = graph.scored_outputs if pairwise else np.ones(graph.n_outputs, dtype=bool)
        found = np.full((2, len(held.values), graph.n_outputs, len(of_list)), np.nan)
        for j in np.flatnonzero(varied):  # all alphas in one call
            labels = np.repeat(y[:, [j]], len(held.values), axis=1)
            found[0, :, j] = self.value(labels, held.values[..., j].T, lists, **options).T
        known = ~np.isnan(found[0])
        found[0, ~known], found[1] = 0.0, known * of_list
        return found

    def spread(self, *parts: Array) -> dict[str, Array]:
        """Mean, deviation and number of the scores of all lists; outputs are averaged."""
        scores, weight = np.concatenate(parts, axis=-1)
        total = weight.sum(axis=-1)
        if not total.all():
            raise ValueError(f"scoring={self.name!r}: no held-out list has a relevant row")
        mean = (weight * scores).sum(axis=-1) / total
        squares = (weight * (scores - mean[..., None]) ** 2).sum(axis=-1)
        return {
            "mean_score": mean.mean(axis=1),
            "std_score": np.sqrt(squares / total).mean(axis=1),
            "n_scores": np.count_nonzero(weight, axis=-1).min(axis=1),
        }

    def of_folds(self, graph: PreferenceGraph, held: HeldOut) -> dict[str, Array]:
        """Results of held-out predictions; only the mean if lists have no scores of their own."""
        if self.by_list:
            return self.spread(self.of_lists(graph, held))
        rows, lists, weight = _held_lists(graph, held)
        if self.name == LOSS_METRIC:
            assert self.loss is not None
            kept = PreferenceGraph.from_scores(rows, qid=lists, sample_weight=weight)
            codes: Any = kept.query_codes
            means = explained_part(kept.objectives(self.loss), codes, held.values)
        else:
            weighted = {} if weight is None or self.name is None else {"sample_weight": weight}
            means = np.empty((len(held.values), graph.n_outputs))
            for a, j in np.ndindex(means.shape):
                means[a, j] = self.value(rows[:, j], held.values[a, :, j], lists, **weighted)
        return {"mean_score": means.mean(axis=1)}

    def of_rows(self, graph: PreferenceGraph, predictions: Array) -> float:
        """Mean score of predictions of shape (m, n_outputs) for all rows of a graph."""
        if graph.scores is None or graph.n_given_pairs:
            if self.name not in PAIR_METRICS:
                raise ValueError(
                    "given pairs have no lists, so the scoring of held-out rows must be one of "
                    f"{', '.join(map(repr, PAIR_METRICS))}; got {show(self.name or self.metric)}"
                )
            return graph_accuracy(graph, predictions)
        return float(self.of_folds(graph, one_fold(predictions[None]))["mean_score"][0])


def one_fold(values: Array) -> HeldOut:
    """Predictions of shape (n_alphas, m, n_outputs) for all rows, as those of one fold."""
    folds = Folds.of_list([np.arange(values.shape[1])])
    return HeldOut(folds, values, np.zeros(len(values), dtype=np.int64))


def _held_lists(graph: PreferenceGraph, held: HeldOut) -> tuple[Array, Array, Array | None]:
    """Labels, number of the query and fold, and weight of each held-out row."""
    y, lists, weight = graph.scores, graph.query_codes, graph.sample_weight
    assert y is not None
    assert lists is not None
    fold = np.repeat(np.arange(len(held.folds)), held.folds.sizes)
    number = lists[held.rows] * len(held.folds) + fold
    return y[held.rows], number, None if weight is None else weight[held.rows]


def _check_metric_function(scoring: Any) -> None:
    """Raise unless ``scoring(y_true, y_score, qid=...)`` can be called."""
    try:
        inspect.signature(scoring).bind(None, None, qid=None)
    except TypeError as error:  # not a function, or of other arguments, as a scorer is
        raise ValueError(
            "scoring must be the name of a metric, or a function metric(y_true, y_score, qid=...); "
            f"got {show(scoring)}: {error}"
        ) from None
    except ValueError:  # a built-in function without a signature
        return
