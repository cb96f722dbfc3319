"""``audit``: influence of each query, row, judgement, item or judge on a model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from rankrls._calls import takes_queries, tells
from rankrls._frames import data_frame
from rankrls._validation import check_length, check_option, check_positive, encode_qid
from rankrls.core.ridge.influence import (
    Influence,
    NewRows,
    judgement_influence,
    query_influence,
    row_influence,
)
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.ridge.residuals import Folds, query_folds
from rankrls.diagnostics._deletion import change_without_groups, change_without_queries
from rankrls.estimators import RankRLS, RankRLSCV
from rankrls.estimators.choosing import check_eval_set
from rankrls.estimators.ranker import Preferences, graph_accuracy
from rankrls.estimators.rankrls import check_covariates, exact_problem

__all__ = ["Audit", "audit"]

Array = NDArray[Any]

#: Units that can be left out.
BY = ("query", "row", "judgement", "item", "group")


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
        Label minus the prediction by the model without the line. It is signed for a judgement
        (positive if more strongly preferred than predicted) or a row. For several labels it is the
        root mean square, which for a query with scores is the standard deviation of y − f.
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
        predicted differences for judgements. Unlike the columns above, it does not depend on how
        much the labels vary. NaN if all labels are tied; None with ``by="row"``.
    weight : ndarray of shape (n,), or None
        Only with ``by="row"``: weight of the squared residual in the objective, the same for all
        rows of a query. Residuals of larger weight are studentised by a smaller standard deviation;
        ``studentised * sqrt(mean(weight) / weight)`` assumes equal noise for all labels.
    metric_change : ndarray of shape (n,), or None
        Pairwise accuracy on ``eval_set`` of the model without the line minus that of the full
        model: positive if the model is better without the line. With ``eval_set="leave-one-out"``,
        the accuracy on all other lines, each predicted by a model without it. None without an
        ``eval_set``.
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
        them. ``y_val`` may be a `PreferenceGraph`, for example of given pairs. "leave-one-out" (by
        query, judgement or group) evaluates on the other lines of the table instead: each of them
        is predicted by a model without it, once with and once without the audited line. This leaves
        out all pairs of lines, of which there may be up to a million (200 million of judgements).
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
    the noise variance estimated without the line. **Correct for multiple testing**: about 0.05 n of
    n lines have a p-value below 0.05 by chance. Sort by p-value to decide what to inspect first,
    and compare with 0.05/n (Bonferroni) or use the Benjamini–Hochberg procedure before calling
    labels wrong.

    Alpha should be chosen to predict the labels, not only their order. The alpha of the best
    ranking may be so large that all predictions are near zero; the residuals are then the labels
    themselves, and wrong labels no longer stand out. The alpha with the smallest squared error on
    held-out labels works better: pass it as ``alpha``, as the report page
    (`rankrls.report.write_report`) does.

    The p-values also assume equal noise for all lines, so queries with widely varying labels and
    difficult queries look unusual. To find labels that are unrelated to the features, sort by
    ``agreement`` instead. An unusual query is not necessarily wrong, and a wrong label that is
    fitted well (leverage near its size) is not detected.

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
        check_option("by", by, BY)
    if (groups is not None) != (by == "group"):
        raise ValueError(
            "by='group' needs groups"
            if groups is None
            else f"groups go with by='group', not {by!r}"
        )
    preferences = Preferences(y, qid, pairs, **fit_params)
    if alpha is not None:
        alpha = check_positive("alpha", alpha)
    estimator = _with_alpha(estimator, fit_params)
    ranker, problem, grid = exact_problem(estimator, X, preferences, alpha, keep_basis=True)
    alpha = float(grid[0])
    graph = problem.graph
    if graph.n_outputs > 1:
        raise ValueError(f"y has {graph.n_outputs} outputs; audit them one at a time, y[:, j]")
    others = isinstance(eval_set, str)
    if others:
        check_option("eval_set", eval_set, ("leave-one-out",))
    new = None
    if eval_set is not None and not others:
        rows, held = check_eval_set(
            eval_set, ranker._check_rows, has_qid=graph.has_qid, n_outputs=graph.n_outputs
        )
        new = NewRows(rows, partial(graph_accuracy, held))
    given = graph.n_given_pairs
    if by is None:
        by = "judgement" if given else "query" if graph.has_qid else "row"
    if by == "query" and graph.scores is not None and not graph.has_qid:
        raise ValueError("by='query' needs qid; for the rows of one ranking: by='row'")
    if by in ("judgement", "item") and not given:
        raise ValueError(f"by={by!r} needs pairs")
    if by in ("query", "row") and graph.scores is None:
        raise ValueError(f"by={by!r} needs labels y; for given pairs: by='judgement' or 'item'")
    if others and by in ("row", "item"):
        raise ValueError(
            f"eval_set='leave-one-out' works by query, judgement or group, not by={by!r}; pass "
            "separate labelled data as eval_set"
        )
    found, labels, folds = _ask(problem, by, groups, alpha, new)
    change = None if found.metric is None else found.metric - found.metric_of_all
    if others:
        judged = isinstance(folds, Folds)
        without = change_without_groups if judged else change_without_queries
        change = without(problem, folds, alpha)
    if change is not None:
        change = np.where(found.size > 0, change, np.nan)
    sizes = (found.size, found.leverage, found.residual, found.studentised, found.p_value)
    return Audit(labels, *sizes, found.cook, found.agreement, found.weight, change)


def _ask(
    problem: RidgeProblem, by: str, groups: Any, alpha: float, new: NewRows | None
) -> tuple[Influence, Array, Any]:
    """Compute the diagnostics, the labels of their lines, and what is left out for each line."""
    graph = problem.graph
    n_pairs, n_rows = graph.n_given_pairs, graph.n_rows
    if by == "row":
        return row_influence(problem, alpha, new), np.arange(n_rows), None
    if by == "query":
        assert graph.query_codes is not None
        folds = query_folds(graph.query_codes)
        labels = np.asarray(graph.query_labels)
        return query_influence(problem, folds, alpha, new), labels, folds
    if by == "group" and not n_pairs:
        check_length("groups", groups, n_rows)
        coded = encode_qid(groups, n_rows, name="groups")
        folds = query_folds(coded.codes)
        labels = np.asarray(coded.labels)
        return query_influence(problem, folds, alpha, new), labels, folds
    labels, chosen = np.arange(n_pairs), Folds.single(n_pairs)
    if by == "item":
        chosen, labels = Folds.of_items(graph.pairs)
    elif by == "group":
        check_length("groups", groups, n_pairs, "pairs")
        coded = encode_qid(groups, n_pairs, name="groups", of="pairs")
        labels = np.asarray(coded.labels)
        chosen = Folds.of_groups(coded.codes, labels)
    return judgement_influence(problem, chosen, alpha, new), labels, chosen


def _with_alpha(estimator: Any, fit_params: dict[str, Any]) -> Any:
    """Return a RankRLS with the alpha and the basis of a fitted RankRLSCV."""
    if not isinstance(estimator, RankRLS | RankRLSCV):
        kind = type(estimator).__name__
        raise ValueError(
            f"estimator must be a RankRLS or a fitted RankRLSCV; got a {kind} (for a pipeline, "
            "pass its last step, and X transformed by the steps before it)"
        )
    check_covariates(estimator, fit_params.get("pair_features"))
    if isinstance(estimator, RankRLS):
        return estimator
    check_is_fitted(estimator)
    known = RankRLS().get_params()
    options = {name: v for name, v in estimator.get_params(deep=False).items() if name in known}
    options["alpha"] = float(estimator.alpha_)
    if hasattr(estimator, "basis_indices_"):
        options["basis"] = estimator.basis_indices_
    return RankRLS(**options)
