"""``audit``: what every query, row, judgement, item or judge does to a model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from rankrls._calls import takes_queries
from rankrls._frames import data_frame
from rankrls._validation import check_length, check_option, check_positive, encode_qid
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.influence import (
    Influence,
    NewRows,
    judgement_influence,
    query_influence,
    row_influence,
)
from rankrls.core.ridge.leave_judgements_out import JudgementFolds
from rankrls.core.ridge.leave_out import query_folds
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.diagnostics._deletion import change_without_groups, change_without_queries
from rankrls.estimators import RankRLS, RankRLSCV
from rankrls.estimators.exact_problem import check_covariates, prepared_problem
from rankrls.estimators.ranker import graph_accuracy
from rankrls.estimators.validation_rows import check_eval_set

__all__ = ["Audit", "audit"]

Array = NDArray[Any]

#: What is left out together, and what it needs.
BY = ("query", "row", "judgement", "item", "group")


@dataclass(frozen=True, repr=False)
class Audit:
    """A table with a line for every query, row, judgement, item or group, in their order.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Names of the queries or groups; numbers of the rows, judgements or items.
    size : ndarray of shape (n,), int
        How many independent comparisons it has: judgements with a weight; for a query of scores
        its rows but one.
    leverage : ndarray of shape (n,)
        Share of its own labels in its fitted values, between 0 and ``size``.
    deleted_residual : ndarray of shape (n,)
        Label less prediction by the model without it. Signed for a judgement (positive: more
        strongly preferred than predicted) or row; for more than one a root mean square, which
        for a query of scores is the standard deviation of y − f within it.
    studentised : ndarray of shape (n,)
        Size of the deleted residuals in units of their own standard deviation; about 1 for
        labels like the others.
    p_value : ndarray of shape (n,)
        Probability of a studentised size as large or larger, if all labels follow the model.
    cook_distance : ndarray of shape (n,)
        How much the fitted values of all data change without it, squared and scaled.
    agreement : ndarray of shape (n,), or None
        Correlation of its labels with their predictions by the model without it, between −1 and
        1: for a query of scores Pearson's, for judgements the cosine of magnitudes and predicted
        differences. Unlike the columns above it does not depend on how much labels vary. NaN for
        ties alone; None by row.
    weight : ndarray of shape (n,), or None
        By row only: what its squared residual counts in the objective, the same for all rows of a
        query. Residuals that count more are studentised by a smaller standard deviation:
        ``studentised * sqrt(mean(weight) / weight)`` takes all labels as equally noisy.
    metric_change : ndarray of shape (n,), or None
        Pairwise accuracy on ``eval_set`` by the model without it, less that by the model of
        all: positive where the model is better without it. With eval_set="leave-one-out", that of
        all other lines, each predicted without itself. None without an eval_set.
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
        """The columns by name, in order."""
        found = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: values for name, values in found.items() if values is not None}

    def to_frame(self) -> Any:
        """The table as a pandas data frame."""
        return data_frame(self.columns)


@takes_queries
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
    """Measure what every part of the data does to the model, and how badly the rest predicts it.

    Parameters
    ----------
    estimator : RankRLS, or fitted RankRLSCV
        Gives the parameters; of a `RankRLSCV`, which was fitted to the same data, also the
        chosen alpha and the basis.
    X, y, qid, pairs : as for ``fit``
    groups : array-like of shape (n_pairs,), or (n_rows,) without pairs; optional
        With ``by="group"``: judge, prompt or session of every judgement; or a group of every
        row, such as who labelled its query. A group holds whole queries then.
    by : {"query", "row", "judgement", "item", "group"}, optional
        What a line of the table is about, and what is left out together. None: "group" if groups
        are given, otherwise "judgement" with pairs, "query" with qid, "row" for one ranking.
    eval_set : tuple (X_val, y_val) or (X_val, y_val, qid_val), or "leave-one-out", optional
        Labelled data that are not audited: the table then has the exact change of the pairwise
        accuracy on them. ``y_val`` may be a `PreferenceGraph`, of given pairs, say. With
        "leave-one-out", by query, judgement or group, the other lines take their place: every
        other line is predicted without itself, with and without the line. That leaves out all
        pairs of lines, up to a million (200 million pairs of single judgements).
    alpha : float, optional
        In the place of the estimator's alpha, see Notes.
    **fit_params
        magnitude, pair_weight, pair_features and sample_weight, as for ``fit``.

    Returns
    -------
    Audit
        Columns as arrays, and `Audit.to_frame`. NaN where there is nothing to measure: queries
        without a comparison, judgements without weight.

    Notes
    -----
    Every number is that of explicit refits without the line, at the same alpha and, with a Nyström
    basis, the same basis; nothing is refitted but what is singular to working precision. By row,
    the other rows of the query keep their weights, which is a refit for
    ``query_weighting="size"``; it needs cost="magnitude" and ties="keep" (or no ties).

    p-values hold for the Gaussian-process reading of the model (see `RankRLS`), with the noise
    variance estimated without the line. **They are many**: of n lines about 0.05 n are below 0.05
    by chance. Sort by them to decide what to look at first, and compare with 0.05/n (Bonferroni),
    or with the procedure of Benjamini and Hochberg, before calling labels wrong.

    Alpha should suit the labels, not only their order. The alpha of the best order may be so large
    that all predictions are near zero; residuals are then the labels themselves, and wrong labels
    no longer stand out. The alpha with the smallest squared error of held-out labels finds them
    better: pass it as ``alpha``. The report page (`rankrls.report.write_report`) chooses it so.

    They also suppose the same noise everywhere. Queries with many different labels, or harder
    ones, then look unusual; the smallest ``agreement`` is the better guide to labels that have
    nothing to do with the rows. An unusual query need not be wrong, and a wrong label that is
    fitted well (leverage near its size) does not show.

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
    preferences = {"qid": qid, "pairs": pairs, **fit_params}
    if alpha is not None:
        alpha = check_positive("alpha", alpha)
    estimator = _with_alpha(estimator, fit_params)
    ranker, problem, grid = prepared_problem(estimator, X, y, alpha, True, preferences)
    alpha = float(grid[0])
    graph = problem.graph
    if graph.n_outputs > 1:
        raise ValueError(f"y has {graph.n_outputs} outputs: audit them one at a time, y[:, j]")
    others = isinstance(eval_set, str)
    if others:
        check_option("eval_set", eval_set, ("leave-one-out",))
    new = None if eval_set is None or others else _new_rows(ranker, graph, eval_set)
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
            f"eval_set='leave-one-out' is for queries, judgements and groups, not by={by!r}: give "
            "labelled data that are not audited as eval_set"
        )
    found, labels, folds = _ask(problem, by, groups, alpha, new)
    change = None if found.metric is None else found.metric - found.metric_of_all
    if isinstance(folds, JudgementFolds) and others:
        change = change_without_groups(problem, folds, alpha)
    elif others:
        change = change_without_queries(problem, folds, alpha)
    if change is not None:
        change = np.where(found.size > 0, change, np.nan)
    return Audit(
        labels,
        found.size,
        found.leverage,
        found.residual,
        found.studentised,
        found.p_value,
        found.cook,
        found.agreement,
        found.weight,
        change,
    )


def _ask(
    problem: RidgeProblem, by: str, groups: Any, alpha: float, new: NewRows | None
) -> tuple[Influence, Array, Any]:
    """The diagnostics, the labels of their lines, and what is left out for each of them."""
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
    labels, chosen = np.arange(n_pairs), JudgementFolds.single(n_pairs)
    if by == "item":
        chosen, labels = JudgementFolds.of_items(graph.pairs)
    elif by == "group":
        check_length("groups", groups, n_pairs, "pairs")
        coded = encode_qid(groups, n_pairs, name="groups", of="pairs")
        labels = np.asarray(coded.labels)
        chosen = JudgementFolds.of_groups(coded.codes, labels)
    return judgement_influence(problem, chosen, alpha, new), labels, chosen


def _with_alpha(estimator: Any, fit_params: dict[str, Any]) -> Any:
    """A RankRLS with the alpha and the basis of a fitted RankRLSCV."""
    if not isinstance(estimator, RankRLS | RankRLSCV):
        kind = type(estimator).__name__
        raise ValueError(
            f"estimator must be a RankRLS, or a fitted RankRLSCV; got a {kind}: of a pipeline, "
            "pass the last step, and X as the steps before it give it"
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


def _new_rows(ranker: RankRLS, graph: PreferenceGraph, eval_set: Any) -> NewRows:
    rows, held = check_eval_set(
        eval_set, ranker._check_rows, has_qid=graph.has_qid, n_outputs=graph.n_outputs
    )
    return NewRows(rows, lambda scores: graph_accuracy(held, scores))
