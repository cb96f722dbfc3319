"""``audit``: influence of each query, row, judgement, item or judge on a model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankrls._calls import takes_queries, tells
from rankrls._frames import data_frame
from rankrls._validation import check_option, check_positive, encode_qid
from rankrls.core.ridge.influence import (
    judgement_influence,
    query_influence,
    row_influence,
)
from rankrls.core.ridge.residuals import query_folds
from rankrls.estimators import RankRLS, RankRLSCV
from rankrls.estimators.calibration import judgement_folds
from rankrls.estimators.choosing import check_eval_set
from rankrls.estimators.cv import as_rankrls
from rankrls.estimators.ranker import Preferences, graph_accuracy
from rankrls.estimators.rankrls import check_covariates, exact_problem

Array = NDArray[Any]


@dataclass(frozen=True, repr=False)
class Audit:
    """Result of `audit`: a table with one line for each query, row, judgement, item or group.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Labels of the queries or groups, or indices of the rows, judgements or items.
    size : ndarray of shape (n,), int
        Number of independent comparisons: judgements of positive weight, or rows minus one.
    leverage : ndarray of shape (n,)
        Influence of the labels of the line on their own fitted values, between 0 and ``size``.
    deleted_residual : ndarray of shape (n,)
        Label minus the prediction without the line; the root mean square of several.
    studentised, p_value : ndarray of shape (n,)
        The deleted residuals in units of their own standard deviation, and the probability of one
        at least this large if all labels follow the model.
    cook_distance : ndarray of shape (n,)
        The scaled squared change of all fitted values when the line is left out.
    agreement : ndarray of shape (n,), or None with ``by="row"``
        Correlation (for judgements cosine) of the labels and their predictions without the line.
    weight : ndarray of shape (n,), or None unless ``by="row"``
        Weight of the squared residual in the objective, the same for all rows of a query.
    metric_change : ndarray of shape (n,), or None without an ``eval_set``
        Pairwise accuracy on ``eval_set`` without the line minus that of the full model.
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
    estimator : RankRLS, or RankRLSCV fitted to the same data
        Defines the parameters.
    X, y, qid, pairs : as for ``fit``
    groups : array-like of shape (n_pairs,), or (n_rows,) without pairs; optional
        The judge, prompt or session of each judgement; without pairs, the group of each row, which
        must contain whole queries.
    by : {"query", "row", "judgement", "item", "group"}, optional
        The unit that a line of the table describes, and that is left out as a whole. By default
        "group" with groups, otherwise "judgement" with pairs, "query" with qid, or "row".
    eval_set : tuple (X_val, y_val) or (X_val, y_val, qid_val), optional
        Separate labelled data for the column ``metric_change``.
    alpha : float, optional
        Value to use instead of the estimator's alpha.
    **fit_params
        magnitude, pair_weight, pair_features and sample_weight, as for ``fit``.

    Returns
    -------
    Audit
        Values are NaN for queries without a comparison and for judgements of zero weight.

    Notes
    -----
    All values equal those of explicit refits without the line, at the same alpha and with the same
    Nyström basis. With ``by="row"``, which needs cost="magnitude" and ties="keep" (or no ties), the
    other rows of the query keep their weights. **Correct p-values for multiple testing**, and see
    the guide for what they assume.

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
    ranker, problem, grid = exact_problem(as_rankrls(estimator), X, preferences, alpha)
    problem.keep_basis = True
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
    new = None
    if eval_set is not None:
        rows, held = check_eval_set(
            eval_set, ranker._check_rows, has_qid=graph.has_qid, n_outputs=1
        )
        new = rows, partial(graph_accuracy, held)

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
        found = query_influence(problem, query_folds(codes), alpha, new)
    return Audit(labels, **found)
