"""``audit``: influence of each query, row, judgement, item or judge on a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._calls import takes_queries, tells
from rankrls._frames import data_frame
from rankrls._validation import check_option, check_positive, encode_qid
from rankrls.core.ridge.influence import (
    NewRows,
    counted_problem,
    judgement_influence,
    judgement_terms,
    query_influence,
    row_influence,
)
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.ridge.residuals import Folds, HeldOut, query_folds
from rankrls.estimators import RankRLS, RankRLSCV
from rankrls.estimators.calibration import judgement_folds
from rankrls.estimators.choosing import check_eval_set
from rankrls.estimators.cv import as_rankrls
from rankrls.estimators.ranker import Preferences, graph_accuracy
from rankrls.estimators.rankrls import check_covariates, exact_problem
from rankrls.metrics import pairwise_accuracy

Array = NDArray[Any]

#: Limits of the pairs of lines to leave out, of those of single judgements, and of predictions.
MAX_PAIRS, MAX_SINGLE, MAX_PREDICTIONS = 10**6, 2 * 10**8, 10**8

#: Scores that differ by less than this fraction of the largest count as tied, such as those of
#: equal rows; below the second number, two judgements left out together lose digits.
TIED, SINGULAR = 1e-10, 1e-6

#: Maximum size of a work array.
WORK = 2**21


@dataclass(frozen=True, repr=False)
class Audit:
    """Result of `audit`: a table with one line for each query, row, judgement, item or group.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Labels of the queries or groups, or indices of the rows, judgements or items.
    size : ndarray of shape (n,), int
        Number of independent comparisons: the judgements of positive weight, or for a query with
        scores its number of rows minus one.
    leverage : ndarray of shape (n,)
        Influence of the labels of the line on their own fitted values, between 0 and ``size``.
    deleted_residual : ndarray of shape (n,)
        Label minus the prediction by the model without the line: signed for a judgement (positive
        if more strongly preferred than predicted) or a row, otherwise the root mean square.
    studentised, p_value : ndarray of shape (n,)
        The deleted residuals in units of their own standard deviation, and the probability of one
        at least this large if all labels follow the model.
    cook_distance : ndarray of shape (n,)
        The scaled squared change of all fitted values when the line is left out.
    agreement : ndarray of shape (n,), or None with ``by="row"``
        Correlation between the labels and their predictions by the model without the line (for
        judgements the cosine of magnitudes and predicted differences). NaN if all labels are tied.
    weight : ndarray of shape (n,), or None
        With ``by="row"``: weight of the squared residual in the objective, the same for all rows of
        a query.
    metric_change : ndarray of shape (n,), or None without an ``eval_set``
        Pairwise accuracy on ``eval_set`` without the line minus that of the full model: positive if
        the model is better without the line.
    """

    labels: Array
    size: Array
    leverage: Array
    deleted_residual: Array
    studentised: Array
    p_value: Array
    cook_distance: Array
    agreement: Array | None = None
    weight: Array | None = None
    metric_change: Array | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Audit({len(self)} lines; columns {', '.join(self.columns)})"

    @property
    def columns(self) -> dict[str, Array]:
        """Columns of the table by name, in order."""
        found = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: values for name, values in found.items() if values is not None}

    def to_frame(self) -> Any:
        """Return the table as a pandas data frame."""
        return data_frame(self.columns)


@takes_queries
@tells("models without each query, row or judgement")
def audit(
    estimator: RankRLS | RankRLSCV,
    X: Any,
    y: Any = None,
    *,
    qid: Any = None,
    pairs: ArrayLike | None = None,
    groups: Any = None,
    by: str | None = None,
    eval_set: Any = None,
    alpha: float | None = None,
    **fit_params: Any,
) -> Audit:
    """Measure the influence of each part of the data, and how well the other data predict it.

    Parameters
    ----------
    estimator : RankRLS, or fitted RankRLSCV
        Defines the parameters. A `RankRLSCV` must have been fitted to the same data; its chosen
        alpha and its basis are used.
    X, y, qid, pairs : as for ``fit``
    groups : array-like of shape (n_pairs,), or (n_rows,) without pairs; optional
        With ``by="group"``: the judge, prompt or session of each judgement; without pairs, the
        group of each row, which must contain whole queries.
    by : {"query", "row", "judgement", "item", "group"}, optional
        The unit that a line of the table describes, and that is left out as a whole. By default
        "group" if groups are given, otherwise "judgement" with pairs, "query" with qid and "row"
        for a single ranking.
    eval_set : tuple (X_val, y_val) or (X_val, y_val, qid_val), or "leave-one-out", optional
        Separate labelled data; the table then contains the exact change of the pairwise accuracy on
        them. ``y_val`` may be a `PreferenceGraph`. "leave-one-out" (by query, judgement or group)
        evaluates on the other lines of the table instead, each predicted by a model without it. It
        leaves out all pairs of lines, of which there may be up to a million (for judgements one by
        one 200 million).
    alpha : float, optional
        Value to use instead of the estimator's alpha.
    **fit_params
        magnitude, pair_weight, pair_features and sample_weight, as for ``fit``.

    Returns
    -------
    Audit
        The columns as arrays, and as a data frame with `Audit.to_frame`. Values are NaN for queries
        without a comparison and for judgements of zero weight.

    Notes
    -----
    All values equal those of explicit refits without the line, at the same alpha and with the same
    Nyström basis, if any. With ``by="row"``, the other rows of the query keep their weights, which
    equals a refit for ``query_weighting="size"``; this needs cost="magnitude" and ties="keep" (or
    no ties).

    The p-values are based on the Gaussian-process interpretation of the model (see `RankRLS`), with
    the noise variance estimated without the line and equal for all lines. **Correct for multiple
    testing**: about 0.05 n of n lines have a p-value below 0.05 by chance. Alpha should predict the
    labels, not only their order: if it is so large that all predictions are near zero, wrong labels
    do not stand out. A wrong label that is fitted well (leverage near its size) is not detected.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.datasets import make_ranking
    >>> from rankrls.diagnostics import audit
    >>> X, y, qid = make_ranking(n_queries=40, random_state=0, return_X_y_qid=True)
    >>> y = np.where(qid == 7, -y, y)  # labelled the wrong way round
    >>> table = audit(RankRLS(query_weighting="size"), X, y, qid=qid)
    >>> table.labels[np.argmin(table.p_value)]
    np.int64(7)
    """
    by = "group" if by is None and groups is not None else by
    if by is not None:
        check_option("by", by, ("query", "row", "judgement", "item", "group"))
    if (groups is not None) != (by == "group"):
        raise ValueError(f"groups and by='group' go together; got by={by!r}, which needs groups")
    preferences = Preferences.of(y, qid=qid, pairs=pairs, **fit_params)
    if alpha is not None:
        alpha = check_positive("alpha", alpha)
    check_covariates(estimator, fit_params.get("pair_features"))
    ranker, problem, grid = exact_problem(
        as_rankrls(estimator), X, preferences, alpha, keep_basis=True
    )
    alpha, graph = float(grid[0]), problem.graph
    if graph.n_outputs > 1:
        raise ValueError(f"y has {graph.n_outputs} outputs; audit them one at a time, y[:, j]")
    given = graph.n_given_pairs
    by = by or ("judgement" if given else "query" if graph.has_qid else "row")
    scored = graph.scores is not None
    for unit, there, needed in (
        ("query", scored and graph.has_qid, "labels y and qid; for rows of one ranking: by='row'"),
        ("row", scored, "labels y; for given pairs: by='judgement' or 'item'"),
        ("judgement", given, "pairs"),
        ("item", given, "pairs"),
    ):
        if by == unit and not there:
            raise ValueError(f"by={by!r} needs {needed}")
    new, others = None, isinstance(eval_set, str)
    if others:
        check_option("eval_set", eval_set, ("leave-one-out",))
        if by in ("row", "item"):
            raise ValueError(
                f"eval_set='leave-one-out' works by query, judgement or group, not by={by!r}; pass "
                "separate labelled data as eval_set"
            )
    elif eval_set is not None:
        rows, held = check_eval_set(
            eval_set, ranker._check_rows, has_qid=graph.has_qid, n_outputs=1
        )
        new = NewRows(rows, partial(graph_accuracy, held))

    lines: Any = None
    if by == "row":
        found, labels = row_influence(problem, alpha, new), np.arange(graph.n_rows)
    elif given and by != "query":
        lines, labels = judgement_folds(graph, by, groups)
        found = judgement_influence(problem, lines, alpha, new)
    else:
        codes, labels = graph.query_codes, np.asarray(graph.query_labels)
        if by == "group":
            coded = encode_qid(groups, graph.n_rows, name="groups")
            codes, labels = coded.codes, np.asarray(coded.labels)
        assert codes is not None
        lines = query_folds(codes)
        found = query_influence(problem, lines, alpha, new)
    change = None if found.metric is None else found.metric - found.metric_of_all
    if others:
        change = _accuracy_changes(problem, lines, alpha)
    if change is not None:
        change = np.where(found.size > 0, change, np.nan)
    sizes = (found.size, found.leverage, found.residual, found.studentised, found.p_value)
    return Audit(labels, *sizes, found.cook, found.agreement, found.weight, change)


def _accuracy_changes(problem: RidgeProblem, lines: Any, alpha: float) -> Array:
    """Change of the accuracy of all other lines, each held out, when a line is deleted, (n_lines,).

    ``lines`` are `Folds` of judgements, or lists of the rows of whole queries.
    """
    graph, judged, folds = problem.graph, isinstance(lines, Folds), Folds.of_list(lines)
    n, grid = len(folds), np.array([alpha])
    line = np.empty(len(folds.members), dtype=np.int64)  # of each judgement or row
    line[folds.members] = np.repeat(np.arange(n), folds.sizes)
    hold_out = problem.leave_judgements_out if judged else problem.leave_out
    held = hold_out(folds, grid)
    unit = TIED * float(np.abs(held.values).max() if judged else np.ptp(held.values)) or 1.0

    def correct(rows: Array, f: Array) -> Array:
        """Weight of judgements that are predicted right; half of it for a difference of zero."""
        return told[rows] * (1 + np.sign(np.rint(f / unit))) / 2

    def evaluated(held: HeldOut) -> tuple[Array, Array, Array, Array]:
        """Line, fold, correct and total weight of each judgement, or query with a preference."""
        rows, f = held.rows, held.values[0, :, 0]
        if judged:
            return line[rows], held.fold, correct(rows, f), told[rows]
        scores, codes = graph.scores, graph.query_codes
        assert scores is not None
        assert codes is not None
        lists = held.fold * graph.n_queries + codes[rows]
        options: Any = {"qid": lists, "average": None}
        if graph.sample_weight is not None:
            options["sample_weight"] = graph.sample_weight[rows]
        found = np.asarray(pairwise_accuracy(scores[rows, 0], np.rint(f / unit), **options))
        lists, first = np.unique(lists, return_index=True)
        first, found = first[np.isfinite(found)], found[np.isfinite(found)]
        return line[rows[first]], held.fold[first], found, np.ones(len(found))

    told = np.where(graph.preferring, graph.pair_weight, 0.0) if judged else np.empty(0)
    of, _, right, weight = evaluated(held)
    n_told = len(np.unique(of[weight > 0]))
    if n_told < 3 and not (judged and graph.scores is not None):
        raise ValueError(
            f"eval_set='leave-one-out' leaves out two lines at a time, and only {n_told} of them "
            "have a preference; pass separate labelled data as eval_set"
        )
    total = weight.sum() - np.bincount(of, weight, minlength=n)
    before = right.sum() - np.bincount(of, right, minlength=n)
    after, n_pairs, n_members = np.zeros(n), n * (n - 1) // 2, len(folds.members)
    single = judged and n_members == n and n_pairs <= MAX_SINGLE
    if single:
        after[line], two = _judgements_by_two(problem, alpha, correct)
        two, n_pairs = line[two], len(two)
    if n_pairs > MAX_PAIRS or (n_members * (n - 1) > MAX_PREDICTIONS and not single):
        raise ValueError(
            f"{n_pairs:,} pairs of lines to leave out are too many for "
            "eval_set='leave-one-out'; audit by larger groups, or pass separate labelled data as "
            "eval_set=(X_val, y_val) or (X_val, y_val, qid_val)"
        )
    two = two if single else np.column_stack(np.triu_indices(n, 1))
    block = np.cumsum(folds.sizes[two].sum(axis=1)) // WORK
    for some in np.split(two, np.flatnonzero(np.diff(block)) + 1) if len(two) else ():
        unions = Folds(folds.take(some.ravel()).members, folds.sizes[some].sum(axis=1))
        of, fold, right, _ = evaluated(hold_out(unions, grid))
        after += np.bincount(some[fold].sum(axis=1) - of, right, minlength=n)
    return np.divide(after - before, total, out=np.full(n, np.nan), where=total > 0)


def _judgements_by_two(
    problem: RidgeProblem, alpha: float, correct: Callable[[Array, Array], Array]
) -> tuple[Array, Array]:
    """Sums of ``correct`` over all judgements but j, each without itself and j, (n_pairs,).

    Also returns the pairs of judgements that are not in the sums, because they lose too many
    digits. The residual of i without i and j is (e_i + H_ij e_j/J_ii)/(1 − H_ij²/(J_ii J_jj)).
    """
    sums, doubtful = np.zeros(problem.graph.n_given_pairs), [np.empty((0, 2), dtype=np.int64)]
    problem, numbers, _ = counted_problem(problem)
    every = np.arange(len(numbers))
    terms, root, e = judgement_terms(problem, Folds.single(len(every)), alpha)
    J = np.maximum(terms.residuals(every, alpha)[1], np.finfo(np.float64).tiny)
    A, w = terms.coordinates(terms.vectors(every), alpha), terms.weights(np.array([alpha]))[:, 0]
    for some in np.array_split(every, 1 + len(e) ** 2 // WORK):
        H, scale = (A[some] * w) @ A.T, J[some, None] * J
        rest = 1.0 - np.square(H) / scale
        unsafe = np.sqrt(scale) * rest < SINGULAR
        unsafe[every[: len(some)], some] = True  # j itself
        shared = np.where(unsafe, 0.0, H * e[some, None] / J)
        f = (terms.t[:, 0] - (e + shared) / np.where(unsafe, 1.0, rest)) / root
        sums[numbers[some]] = np.where(unsafe, 0.0, correct(numbers, f)).sum(axis=1)
        j, i = np.nonzero(np.triu(unsafe, some[0] + 1))
        doubtful.append(numbers[np.column_stack([some[j], i])])
    return sums, np.concatenate(doubtful)
