"""Change of the leave-one-out accuracy of the other lines when a line of an audit is deleted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.ridge.residuals import Folds, HeldOut
from rankrls.metrics import pairwise_accuracy

Array = NDArray[Any]

#: Limits of the pairs of lines to leave out, and of predictions.
MAX_PAIRS, MAX_PREDICTIONS = 10**6, 10**8

#: Scores that differ by less than this fraction of the largest count as tied, such as those of
#: equal rows.
TIED = 1e-10

#: Maximum number of rows or judgements that are left out together.
WORK = 2**21


def accuracy_changes(problem: RidgeProblem, lines: Any, alpha: float) -> Array:
    """Change of the accuracy of all other lines, each held out, when a line is deleted, (n_lines,).

    ``lines`` are `Folds` of judgements, or lists of the rows of whole queries.
    """
    graph, judged, folds = problem.graph, isinstance(lines, Folds), Folds.of_list(lines)
    n, grid = len(folds), np.array([alpha])
    two = np.column_stack(np.triu_indices(n, 1))
    if len(two) > MAX_PAIRS or len(folds.members) * (n - 1) > MAX_PREDICTIONS:
        raise ValueError(
            f"{len(two):,} pairs of lines to leave out are too many for "
            "eval_set='leave-one-out'; audit by larger groups, or pass separate labelled data as "
            "eval_set=(X_val, y_val) or (X_val, y_val, qid_val)"
        )
    line = np.empty(len(folds.members), dtype=np.int64)  # of each judgement or row
    line[folds.members] = np.repeat(np.arange(n), folds.sizes)
    hold_out = problem.leave_judgements_out if judged else problem.leave_out
    held = hold_out(folds, grid)
    unit = TIED * float(np.abs(held.values).max() if judged else np.ptp(held.values))

    def evaluated(held: HeldOut) -> tuple[Array, Array, Array, Array]:
        """Line, fold, correct and total weight of each judgement, or query with a preference."""
        f = np.rint(held.values[0, :, 0] / unit) if unit else held.values[0, :, 0]
        if judged:
            weight = np.where(graph.preferring, graph.pair_weight, 0.0)[held.rows]
            return line[held.rows], held.fold, weight * (1 + np.sign(f)) / 2, weight
        scores, codes = graph.scores, graph.query_codes
        assert scores is not None
        assert codes is not None
        lists = held.fold * graph.n_queries + codes[held.rows]
        options: Any = {"qid": lists, "average": None}
        if graph.sample_weight is not None:
            options["sample_weight"] = graph.sample_weight[held.rows]
        found = np.asarray(pairwise_accuracy(scores[held.rows, 0], f, **options))
        lists, first = np.unique(lists, return_index=True)
        first, found = first[np.isfinite(found)], found[np.isfinite(found)]
        return line[held.rows[first]], held.fold[first], found, np.ones(len(found))

    of, _, right, weight = evaluated(held)
    n_told = len(np.unique(of[weight > 0]))
    if n_told < 3 and not (judged and graph.scores is not None):
        raise ValueError(
            f"eval_set='leave-one-out' leaves out two lines at a time, and only {n_told} of them "
            "have a preference; pass separate labelled data as eval_set"
        )
    total = weight.sum() - np.bincount(of, weight, minlength=n)
    before = right.sum() - np.bincount(of, right, minlength=n)
    after = np.zeros(n)
    block = np.cumsum(folds.sizes[two].sum(axis=1)) // WORK
    for some in np.split(two, np.flatnonzero(np.diff(block)) + 1):
        unions = Folds(folds.take(some.ravel()).members, folds.sizes[some].sum(axis=1))
        of, fold, right, _ = evaluated(hold_out(unions, grid))
        after += np.bincount(some[fold].sum(axis=1) - of, right, minlength=n)
    return np.divide(after - before, total, out=np.full(n, np.nan), where=total > 0)
