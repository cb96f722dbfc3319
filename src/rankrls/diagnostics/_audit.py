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
    NewRows,
    judgement_influence,
    query_influence,
    row_influence,
)
from rankrls.core.ridge.residuals import query_folds
from rankrls.diagnostics._deletion import accuracy_changes
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
        Number of independent comparisons: the judgements of positive weight, or for a query with
        scores its number of rows minus one.
    leverage : ndarray of shape (n,)
        Influence of the labels of the line on their own fitted values, between 0 and ``size``.
    deleted_residual : ndarray of shape (n,)
        Label minus the prediction by the model without the line: signed for a judgement (positive
        if more strongly preferred than predicted) or a row, otherwise the root mean square.
    studentised : ndarray of shape (n,)
        Size of the deleted residuals in units of their own standard deviation; about 1 for ordinary
        labels.
    p_value : ndarray of shape (n,)
        Probability of a studentised residual at least this large if all labels follow the model.
    cook_distance : ndarray of shape (n,)
        Cook's distance: the scaled squared change of all fitted values when the line is left out.
    agreement : ndarray of shape (n,), or None
        Correlation between the labels and their predictions by the model without the line, between
        −1 and 1: Pearson's correlation for a query with scores, the cosine of magnitudes and
        predicted differences for judgements. NaN if all labels are tied; None with ``by="row"``.
    weight : ndarray of shape (n,), or None
        Only with ``by="row"``: weight of the squared residual in the objective, the same for all
        rows of a query; ``studentised * sqrt(mean(weight) / weight)`` assumes equal noise for all
        labels.
    metric_change : ndarray of shape (n,), or None
        Pairwise accuracy on ``eval_set`` of the model without the line minus that of the full
        model: positive if the model is better without the line. None without an ``eval_set``.
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
        Used with ``by="group"``: the judge, prompt or session of each judgement; without pairs, the
        group of each row, such as the person who labelled its query. Groups of rows must contain
        whole queries.
    by : {"query", "row", "judgement", "item", "group"}, optional
        The unit described by a line of the table, which is left out as a whole. By default "group"
        if groups are given, otherwise "judgement" with pairs, "query" with qid and "row" for a
        single ranking.
    eval_set : tuple (X_val, y_val) or (X_val, y_val, qid_val), or "leave-one-out", optional
        Separate labelled data; the table then contains the exact change of the pairwise accuracy on
        them. ``y_val`` may be a `PreferenceGraph`. "leave-one-out" (by query, judgement or group)
        evaluates on the other lines of the table instead, each predicted by a model without it. It
        leaves out all pairs of lines, of which there may be up to a million.
    alpha : float, optional
        Value to use instead of the estimator's alpha; see Notes.
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
    Nyström basis, if any; a line is refitted only if its system is singular to working precision.
    With ``by="row"``, the other rows of the query keep their weights, which equals a refit for
    ``query_weighting="size"``; this needs cost="magnitude" and ties="keep" (or no ties).

    The p-values are based on the Gaussian-process interpretation of the model (see `RankRLS`), with
    the noise variance estimated without the line and equal for all lines. **Correct for multiple
    testing**: about 0.05 n of n lines have a p-value below 0.05 by chance. Alpha should predict the
    labels, not only their order: with one so large that all predictions are near zero, wrong labels
    no longer stand out. To find labels that are unrelated to the features where queries differ in
    difficulty, sort by ``agreement`` instead. A wrong label that is fitted well (leverage near its
    size) is not detected.

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
    if by is None and groups is not None:
        by = "group"
    if by is not None:
        check_option("by", by, ("query", "row", "judgement", "item", "group"))
    if (groups is not None) != (by == "group"):
        raise ValueError(f"groups and by='group' go together; got by={by!r}, which needs groups")
    preferences = Preferences(y, qid, pairs, **fit_params)
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
    if by == "query" and graph.scores is not None and not graph.has_qid:
        raise ValueError("by='query' needs qid; for the rows of one ranking: by='row'")
    if by in ("judgement", "item") and not given:
        raise ValueError(f"by={by!r} needs pairs")
    if by in ("query", "row") and graph.scores is None:
        raise ValueError(f"by={by!r} needs labels y; for given pairs: by='judgement' or 'item'")
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
        change = accuracy_changes(problem, lines, alpha)
    if change is not None:
        change = np.where(found.size > 0, change, np.nan)
    sizes = (found.size, found.leverage, found.residual, found.studentised, found.p_value)
    return Audit(labels, *sizes, found.cook, found.agreement, found.weight, change)
