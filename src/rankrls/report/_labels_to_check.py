"""Labels that disagree most with the predictions of the model without them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from rankrls.core.ridge.influence import (
    Influence,
    query_influence,
    row_influence,
    squared_residuals,
)
from rankrls.core.ridge.residuals import query_folds
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.report._data import Rankings
from rankrls.report._fit_plan import FitPlan, SharedProblem
from rankrls.report._heldout import CrossValidated, row_folds

__all__ = ["LabelsToCheck", "QueryToCheck", "RowToCheck", "labels_to_check"]

Array = NDArray[Any]

N_QUERIES = 10
N_ROWS = 15
#: Number of rows listed with their query.
N_OF_QUERY = 3
LEVEL = 0.05
#: Number of comparisons by which the agreement of a query is shrunk towards the mean for sorting.
SHRINKAGE = 10


@dataclass(frozen=True)
class RowToCheck:
    """A row and its prediction by the model without it.

    Attributes
    ----------
    name : str
    query : str or None
        None for the rows of one ranking.
    row : int
    label : float
    predicted : float
        Label predicted by the model without the row, with the offset that fits the other labels of
        its query best.
    studentised : float
        Label minus prediction, in units of its standard deviation. All labels are assumed to have
        equal noise, whatever the weights of queries in the model.
    p_value : float
    """

    name: str
    query: str | None
    row: int
    label: float
    predicted: float
    studentised: float
    p_value: float


@dataclass(frozen=True)
class QueryToCheck:
    """A query and the agreement of its labels with the model without it.

    Attributes
    ----------
    name : str
    n_rows : int
    agreement : float
        Correlation of its labels with the scores by the model without it.
    studentised, p_value : float
        Computed from all its residuals; NaN if the model was refitted without folds of queries.
    rows : list of RowToCheck
        The rows of the query that disagree most.
    """

    name: str
    n_rows: int
    agreement: float
    studentised: float
    p_value: float
    rows: list[RowToCheck]


@dataclass(frozen=True)
class LabelsToCheck:
    """Queries and rows whose labels disagree most with the model without them.

    Attributes
    ----------
    queries : list of QueryToCheck
        The smallest agreement first, with queries of few rows moved down.
    rows : list of RowToCheck
        The largest studentised residual first.
    n_queries, n_rows : int
        Number of queries and rows that were checked.
    queries_below, rows_below : int
        Number of p-values below 0.05 divided by the number of checks.
    least_agreement, largest_studentised : float
        Extremes over all queries and over all rows; NaN if there are none.
    no_p_values : str
        Why queries have no p-values; empty if they have. The agreement is then computed from the
        held-out predictions by which the error was estimated.
    no_rows : str
        Why rows were not checked; empty if they were.
    alpha : float or None
        Alpha of the models without a query or row: if alpha was chosen, the one with the smallest
        squared error on held-out labels, because the alpha of the best ranking may shrink all
        predictions to nearly zero. None if the predictions are those of folds.
    """

    queries: list[QueryToCheck] = field(default_factory=list)
    rows: list[RowToCheck] = field(default_factory=list)
    n_queries: int = 0
    n_rows: int = 0
    queries_below: int = 0
    rows_below: int = 0
    least_agreement: float = np.nan
    largest_studentised: float = np.nan
    no_p_values: str = ""
    no_rows: str = ""
    alpha: float | None = None


def labels_to_check(
    plan: FitPlan,
    data: Rankings,
    held: CrossValidated,
    alpha: float | None,
    shared: SharedProblem,
) -> LabelsToCheck:
    """Audit the labels of the training data; without a shortcut, by predictions of folds."""
    plan.tell("Comparing labels with predictions without them")
    by_row, by_query, no_rows = None, None, _refusal(plan)
    no_p_values = no_rows
    if not no_rows:
        assert alpha is not None
        alpha = _of_least_squares(plan, data, held, alpha, shared)
        by_row, no_rows = _try(lambda problem: _row_influence(problem, alpha), shared)
        if data.has_qid:
            folds = query_folds(data.codes)
            by_query, no_p_values = _try(
                lambda problem: query_influence(problem, folds, alpha), shared
            )
    found: dict[str, Any] = {"no_p_values": no_p_values, "no_rows": no_rows}
    if not (no_p_values and no_rows):
        found["alpha"] = alpha
    rows = None
    if by_row is not None:
        rows = _RowTable(data, by_row)
        found["rows"] = rows.worst(np.arange(data.n_rows), N_ROWS)
        found["n_rows"], found["rows_below"] = _below(rows.p_value)
        found["largest_studentised"] = float(np.nanmax(rows.size, initial=0.0))
    if data.has_qid:
        by_query = _agreement_alone(data, held) if by_query is None else by_query
        assert by_query.agreement is not None
        known = np.flatnonzero(np.isfinite(by_query.agreement))
        found["queries"] = _queries(data, by_query, known, rows)
        n, found["queries_below"] = _below(by_query.p_value)
        found["n_queries"] = n or len(known)
        found["least_agreement"] = float(by_query.agreement[known].min(initial=np.inf))
    return LabelsToCheck(**found)


def _of_least_squares(
    plan: FitPlan, data: Rankings, held: CrossValidated, alpha: float, shared: SharedProblem
) -> float:
    """Return the alpha with the smallest squared error on held-out labels, if alpha was chosen.

    The largest if several tie; ``alpha`` itself if the computation would need too much memory.
    """
    if plan.fixed is not None or held.path is None or len(held.path.alphas) < 2:
        return alpha
    alphas = held.path.alphas
    try:
        problem = shared.get().keeping_basis()
        if data.has_qid:
            folds = query_folds(data.codes)
        elif problem.every_pair_counts():
            folds = [rows for rows, _ in row_folds(plan, data)]
        else:
            return alpha
        squares = squared_residuals(problem, folds, alphas)
    except (MemoryError, ValueError):
        return alpha
    return float(alphas[len(alphas) - 1 - int(np.argmin(squares[::-1]))])


def _refusal(plan: FitPlan) -> str:
    """Why the fitted model cannot be audited; empty if it can."""
    kind = type(plan.estimator).__name__
    if plan.base is None:
        if getattr(plan.estimator, "early_stopping", False):
            return "With early stopping, predictions without a query would need refits."
        return f"RankRLS or RankRLSCV is required; the estimator is a {kind}."
    if not plan.exact:
        return "With conjugate gradients, predictions without a query would need refits."
    return ""


def _try(
    ask: Callable[[RidgeProblem], Influence | None], shared: SharedProblem
) -> tuple[Influence | None, str]:
    """Return the result, or None and the reason why there is none."""
    try:
        found = ask(shared.get().keeping_basis())
    except MemoryError:
        return None, "Too little memory for these data."
    except ValueError as error:
        text = str(error).split(". ")[
            0
        ]  # only the first sentence; the others are advice for programmers
        return None, f"{text[:1].upper()}{text[1:]}."
    if found is None:
        return None, (
            "Residuals of single rows are not defined with sample weights, with ties dropped or "
            "with a cost other than “magnitude”."
        )
    return found, ""


def _row_influence(problem: RidgeProblem, alpha: float) -> Influence | None:
    return row_influence(problem, alpha) if problem.every_pair_counts() else None


def _agreement_alone(data: Rankings, held: CrossValidated) -> Influence:
    """Influence with only the correlations of labels with held-out scores by query."""
    assert held.scores is not None
    sizes, codes = data.sizes, data.codes
    centred = []
    for values in (data.y, held.scores):
        around = values - (np.bincount(codes, values) / sizes)[codes]
        rounding = 8 * np.finfo(float).eps * np.abs(values).max()
        around[np.abs(around) <= rounding] = 0.0
        centred.append(around / max(float(np.abs(around).max()), np.finfo(float).tiny))
    y, f = centred
    products, of_y, of_f = (np.bincount(codes, part) for part in (y * f, y * y, f * f))
    agreement = np.full(len(sizes), np.nan)
    scale = np.sqrt(of_y) * np.sqrt(of_f)
    np.divide(products, scale, out=agreement, where=scale > 0)
    unknown = np.full(len(sizes), np.nan)
    return Influence(
        size=sizes - 1,
        leverage=unknown,
        residual=unknown,
        studentised=unknown,
        p_value=unknown,
        cook=unknown,
        agreement=np.clip(agreement, -1.0, 1.0),
    )


def _below(p_values: Array) -> tuple[int, int]:
    """Number of p-values, and the number below the Bonferroni-corrected level."""
    n = int(np.isfinite(p_values).sum())
    return n, int((p_values < LEVEL / max(1, n)).sum())


class _RowTable:
    """Rows with studentised residuals, computed as if all rows had the same weight.

    A residual of weight κ has assumed variance σ²/κ. With the same variance σ²/κ̄ for all, where κ̄
    is the mean weight, studentised residuals change by the factor √(κ̄/κ).
    """

    def __init__(self, data: Rankings, found: Influence) -> None:
        assert found.weight is not None
        self.data, self.found = data, found
        known = np.flatnonzero(np.isfinite(found.weight))
        mean = float(found.weight[known].mean()) if len(known) else 1.0
        self.size = found.studentised * np.sqrt(mean / found.weight)
        freedom = len(known) - len(np.unique(data.codes[known]))  # each query has an offset
        self.p_value = f_distribution.sf(np.square(self.size), 1, max(1, freedom - 1))

    def worst(self, rows: Array, n: int) -> list[RowToCheck]:
        """Return the ``n`` of the given rows with the largest studentised residuals."""
        size = self.size[rows]
        rows, size = rows[~np.isnan(size)], size[~np.isnan(size)]
        return [self._row(int(row)) for row in rows[np.argsort(-size, kind="stable")[:n]]]

    def _row(self, row: int) -> RowToCheck:
        data = self.data
        label, missed = float(data.y[row]), float(self.found.residual[row])
        return RowToCheck(
            data.document_name(row),
            data.query_name(int(data.codes[row])) if data.has_qid else None,
            row,
            label,
            label - missed,
            float(np.copysign(self.size[row], missed)),
            float(self.p_value[row]),
        )


def _queries(
    data: Rankings, found: Influence, known: Array, rows: _RowTable | None
) -> list[QueryToCheck]:
    """Queries of smallest agreement, after shrinking it towards the mean if comparisons are few."""
    assert found.agreement is not None
    if not len(known):
        return []
    agreement, size = found.agreement[known], found.size[known]
    mean = float(np.average(agreement, weights=size))
    shrunk = (size * agreement + SHRINKAGE * mean) / (size + SHRINKAGE)
    order = known[np.argsort(shrunk, kind="stable")[:N_QUERIES]]
    sizes = data.sizes
    return [
        QueryToCheck(
            data.query_name(int(q)),
            int(sizes[q]),
            float(found.agreement[q]),
            float(found.studentised[q]),
            float(found.p_value[q]),
            [] if rows is None else rows.worst(np.flatnonzero(data.codes == q), N_OF_QUERY),
        )
        for q in order
    ]
