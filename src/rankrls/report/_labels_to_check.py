"""Labels that disagree most with the predictions of the model without them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from rankrls import RankRLSCV
from rankrls.diagnostics import audit
from rankrls.report._data import Rankings
from rankrls.report._heldout import fit

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
    row : int
    label, predicted : float
        Label, and its prediction by the model without the row, with the best offset of its query.
    studentised, p_value : float
        Label minus prediction, in units of its standard deviation.
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
        Of all its residuals; NaN for predictions of folds.
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
    queries, rows : list of QueryToCheck, list of RowToCheck
        The smallest agreement, and the largest studentised residual, first.
    n_queries, n_rows : int
        Number of queries and rows that were checked.
    queries_below, rows_below : int
        Number of p-values below 0.05 divided by the number of checks.
    no_p_values, no_rows : str
        Why queries have no p-values, and why rows were not checked; empty if they have and were.
    alpha : float or None
        Alpha with the smallest squared error on held-out labels; None for predictions of folds.
    """

    queries: list[QueryToCheck] = field(default_factory=list)
    rows: list[RowToCheck] = field(default_factory=list)
    n_queries: int = 0
    n_rows: int = 0
    queries_below: int = 0
    rows_below: int = 0
    no_p_values: str = ""
    no_rows: str = ""
    alpha: float | None = None


def labels_to_check(plan: Any, data: Rankings, held: Any, alpha: float | None) -> LabelsToCheck:
    """Audit the labels of the training data; without a shortcut, by predictions of folds."""
    plan.tell("Comparing labels with predictions without them")
    by_row = by_query = None
    no_rows = ""
    if plan.search is None and not getattr(plan.estimator, "early_stopping", False):
        no_rows = f"RankRLS or RankRLSCV is required, not {type(plan.estimator).__name__}."
    elif not plan.exact:
        how = "early stopping" if plan.search is None else "conjugate gradients"
        no_rows = f"With {how}, predictions without a query would need refits."
    no_p_values = no_rows
    if not no_rows:
        alpha = _of_least_squares(plan, data, held, float(alpha or 0.0))
        by_row, no_rows = _audited(plan, data, alpha, "row")
        if data.has_qid:
            by_query, no_p_values = _audited(plan, data, alpha, "query")
    order, columns = np.empty(0, dtype=np.int64), None
    found: dict[str, Any] = {"no_p_values": no_p_values, "no_rows": no_rows}
    found["alpha"] = None if no_p_values and no_rows else alpha
    if by_row is not None:
        order, columns = _studentised(data, by_row)
        found["rows"] = [_row(data, columns, row) for row in order[:N_ROWS].tolist()]
        found["n_rows"], found["rows_below"] = _below(columns["p_value"])
    if not data.has_qid:
        return LabelsToCheck(**found)
    studentised = p_value = np.full(data.n_queries, np.nan)
    if by_query is None:
        agreement, size = _agreement(data, held.scores), data.sizes - 1
    else:
        agreement, size = by_query.agreement, by_query.size
        studentised, p_value = by_query.studentised, by_query.p_value
    known = np.flatnonzero(np.isfinite(agreement))
    # Agreement of few comparisons is shrunk towards the mean.
    n = size[known]
    mean = float(np.average(agreement[known], weights=n)) if len(known) else 0.0
    shrunk = (n * agreement[known] + SHRINKAGE * mean) / (n + SHRINKAGE)
    queries: list[QueryToCheck] = []
    for q in known[np.argsort(shrunk, kind="stable")[:N_QUERIES]].tolist():
        of_query = order[data.codes[order] == q][:N_OF_QUERY].tolist()
        rows = [_row(data, columns, row) for row in of_query]
        agreed, size_of, p = (float(column[q]) for column in (agreement, studentised, p_value))
        name, n_rows = data.query_name(q), int(data.sizes[q])
        queries.append(QueryToCheck(name, n_rows, agreed, size_of, p, rows))
    checked, found["queries_below"] = _below(p_value)
    return LabelsToCheck(queries, **found, n_queries=checked or len(known))


def _of_least_squares(plan: Any, data: Rankings, held: Any, alpha: float) -> float:
    """The alpha with the smallest squared error on held-out labels, if alpha was chosen."""
    if plan.fixed is not None or len(held.path.alphas) < 2:
        return alpha
    options = plan.with_alpha(alpha).get_params()
    del options["alpha"]
    cv = "leave-query-out" if data.has_qid else 10
    search = RankRLSCV(held.path.alphas, cv=cv, scoring="pairwise_r2", **options)
    try:
        return float(fit(search, data).alpha_)
    except (MemoryError, ValueError):
        return alpha


def _audited(plan: Any, data: Rankings, alpha: float, by: str) -> tuple[Any, str]:
    """The table of `audit`, or None and the reason why there is none."""
    try:
        table = audit(plan.with_alpha(alpha), data.inputs, data.y, by=by, **data.fit_options())
    except MemoryError:
        return None, "Too little memory for these data."
    except ValueError as error:
        text = str(error).split(". ")[0].split("; ")[0]  # what follows is advice for programmers
        return None, f"{text[:1].upper()}{text[1:]}."
    return table, ""


def _agreement(data: Rankings, scores: Array) -> Array:
    """Correlation of labels with held-out scores by query; NaN where one of them is constant."""
    agreement = np.full(data.n_queries, np.nan)
    y, f = data.y, scores / max(float(np.abs(scores).max()), np.finfo(float).tiny)
    y, f = (v - (np.bincount(data.codes, v) / data.sizes)[data.codes] for v in (y, f))
    f[np.abs(f) <= 8 * np.finfo(float).eps] = 0.0  # rounding of equal scores
    products, of_y, of_f = (np.bincount(data.codes, part) for part in (y * f, y * y, f * f))
    scale = np.sqrt(of_y * of_f)
    return np.clip(np.divide(products, scale, out=agreement, where=scale > 0), -1.0, 1.0)


def _below(p_values: Array) -> tuple[int, int]:
    """Number of p-values, and the number below the Bonferroni-corrected level."""
    n = int(np.isfinite(p_values).sum())
    return n, int((p_values < LEVEL / max(1, n)).sum())


def _studentised(data: Rankings, found: Any) -> tuple[Array, dict[str, Array]]:
    """The rows, the largest studentised residual first, as if all had the same weight.

    A residual of weight κ has assumed variance σ²/κ. With the same variance σ²/κ̄ for all, where κ̄
    is the mean weight, studentised residuals change by the factor √(κ̄/κ).
    """
    known = np.flatnonzero(np.isfinite(found.weight))
    mean = float(found.weight[known].mean()) if len(known) else 1.0
    size, missed = found.studentised * np.sqrt(mean / found.weight), found.deleted_residual
    freedom = len(known) - len(np.unique(data.codes[known]))  # each query has an offset
    order = np.argsort(-size, kind="stable")[: int((~np.isnan(size)).sum())]
    return order, {
        "predicted": data.y - missed,
        "studentised": np.copysign(size, missed),
        "p_value": f_distribution.sf(np.square(size), 1, max(1, freedom - 1)),
    }


def _row(data: Rankings, columns: Any, row: int) -> RowToCheck:
    query = data.query_name(int(data.codes[row])) if data.has_qid else None
    values = (float(column[row]) for column in (data.y, *columns.values()))
    return RowToCheck(data.document_name(row), query, row, *values)
