"""``write_report``: from data and an estimator to all numbers of the page, and the page."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline

from rankrls import AutoRanker
from rankrls._atomic import is_stream
from rankrls._calls import takes_queries
from rankrls._frames import take_rows
from rankrls._streams import written
from rankrls._validation import check_integer
from rankrls.clicks import Examination
from rankrls.diagnostics import explain
from rankrls.exceptions import FeatureScaleWarning, IdColumnWarning
from rankrls.leaderboards import leaderboard
from rankrls.metrics import pairwise_error
from rankrls.report._board import write_leaderboard
from rankrls.report._data import Rankings, prepare, summarise
from rankrls.report._errors import Interval, UnitErrors, errors_of
from rankrls.report._features import best_single, feature_importance, feature_statistics
from rankrls.report._findings import Finding, check_data, check_model, check_test
from rankrls.report._heldout import AlphaPath, fit, hold_out, make_plan, predict
from rankrls.report._labels_to_check import LabelsToCheck, labels_to_check
from rankrls.report._page import render

__all__ = ["Report", "write_report"]

Array = NDArray[Any]

#: Worst queries, and documents of a query.
N_QUERIES, N_DOCUMENTS = 6, 5
#: Numbers of contributions that are listed, for and against; smaller ones than this share are not.
N_FOR, N_AGAINST, LEAST = 3, 1, 0.01


@dataclass(frozen=True)
class Report:
    """Results of `write_report`.

    Attributes
    ----------
    path, n_bytes : str, int
        The page and its size.
    model : estimator
        The model fitted to all training rows; a Pipeline if features are imputed or scaled.
    alpha : float or None
        Regularisation of the model.
    error : Interval
        Estimated pairwise error on new queries, with a confidence interval.
    method : {"test", "leave-query-out", "leave-pair-out", "folds", "refits"}
        How the error was estimated.
    ndcg : Interval or None
        NDCG@10 on the same queries.
    alpha_path : AlphaPath or None
        Held-out error for each alpha.
    errors : UnitErrors
        Errors by query, or by row of one ranking.
    findings : list of Finding
        Problems, warnings and notes.
    to_check : LabelsToCheck
        Labels of the training data that disagree most with the model without them.
    seconds : float
        Run time.
    """

    path: str
    n_bytes: int
    model: Any
    alpha: float | None
    error: Interval
    method: str
    ndcg: Interval | None
    alpha_path: AlphaPath | None
    errors: UnitErrors
    findings: list[Finding]
    to_check: LabelsToCheck
    seconds: float

    def __repr__(self) -> str:
        known = self.error.method != "none"
        interval = f" [{self.error.low:.4f}, {self.error.high:.4f}]" if known else ""
        return (
            f"Report({self.path!r}, {self.n_bytes / 1000:.0f} kB: pairwise error "
            f"{self.error.value:.4f}{interval} by {self.method}, {len(self.findings)} findings)"
        )


@takes_queries
def write_report(
    path: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    qid: Any = None,
    *,
    pairs: Any = None,
    test: Any = None,
    alphas: ArrayLike | None = None,
    feature_names: Any = None,
    document_names: Any = None,
    test_document_names: Any = None,
    title: str | None = None,
    estimator: Any = None,
    sample_weight: ArrayLike | None = None,
    imputer: Any = None,
    scaler: Any = None,
    max_table_rows: int = 2000,
    examination: Examination | None = None,
    load_code: str | None = None,
    progress: Callable[[str], object] | None = None,
) -> Any:
    """Fit a ranker and write an HTML report about the data, the model and its errors.

    Parameters
    ----------
    path : str or path-like
        File to write, a self-contained HTML page; an existing file is replaced at the end.
    X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
    y : array-like of shape (n_rows,)
        Labels, higher = preferred.
    qid : array-like of shape (n_rows,), optional
        Query label of each row. If None, all rows form one ranking, with errors by row.
    pairs : table or path, optional
        Pairwise judgements instead of X and y: the page is that of `write_leaderboard`.
    test : tuple (X, y, qid), or (X, y) without qid, optional
        Test data. The report then shows the errors on these data.
    alphas : array-like, optional
        Grid of alphas; by default that of the estimator.
    feature_names : list of str of length n_features, optional
        By default the columns of a data frame, or "feature 0" ….
    document_names, test_document_names : list of str, optional
        Names of the rows of X and of test; by default "row 0" ….
    title : str, optional
    estimator : estimator, optional
        Unfitted; by default `RankRLSCV()`. A `RankRLS` keeps its alpha if no alphas are given.
        Others than `AutoRanker` are refitted in five folds of whole queries.
    sample_weight : array-like of shape (n_rows,), optional
        Row weights for training; errors are not weighted.
    imputer, scaler : transformer, optional
        Unfitted. They are fitted to the features of all rows of X and become part of the model.
    max_table_rows : int, default=2000
        Size of the table of errors, which lists the worst.
    examination : Examination, optional
        Examination of positions that labels were made with (`rankrls.clicks`).
    load_code : str, optional
        Python code that defines X, y and qid, shown before the code that reproduces the results.
    progress : callable, optional
        Called with a line of text before each step, such as ``print``.

    Returns
    -------
    Report
        The main results, and the fitted model; a `Leaderboard` with ``pairs``.

    Notes
    -----
    Without test data, each query is predicted by the model trained on all other queries, at the
    alpha that is best for these. The confidence interval is Student's over queries.

    Examples
    --------
    >>> import os, tempfile
    >>> from rankrls.datasets import make_ranking
    >>> from rankrls.report import write_report
    >>> X, y, qid = make_ranking(n_queries=40, random_state=0, return_X_y_qid=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = write_report(os.path.join(folder, "report.html"), X, y, qid)
    >>> report.method
    'leave-query-out'
    """
    started = time.perf_counter()
    limit = check_integer("max_table_rows", max_table_rows, least=1)
    target = os.fspath(path)
    if not isinstance(target, str):
        raise ValueError(f"path must be a str or path-like; got {path!r}")
    for name, given in (("title", title), ("load_code", load_code)):
        if given is not None and not isinstance(given, str):
            raise ValueError(f"{name} must be a str; got {given!r}")
    folder = os.path.dirname(os.path.realpath(target))
    if not is_stream(target) and not os.path.isdir(folder):  # fail before the work
        raise FileNotFoundError(f"no such directory: {folder}")
    if pairs is not None:
        if X is not None or y is not None:
            raise ValueError("a page about judgements has no features: pass pairs without X and y")
        board = leaderboard(pairs)
        write_leaderboard(target, board, title=title)
        return board
    train, unseen, steps = prepare(
        X, y, qid, test, estimator=estimator, imputer=imputer, scaler=scaler,
        sample_weight=sample_weight, feature_names=feature_names, document_names=document_names,
        test_document_names=test_document_names,
    )  # fmt: skip
    analysis = analyse(train, unseen, steps, make_plan(estimator, alphas, train.X, progress))
    page = render(
        analysis, title=title, limit=limit, load_code=load_code, examination=examination
    ).encode("utf-8", errors="replace")
    with written(target) as file:
        file.write(page)
    return Report(
        path=target,
        n_bytes=len(page),
        model=Pipeline([*steps.items(), ("rank", analysis.model)]) if steps else analysis.model,
        alpha=analysis.alpha,
        error=analysis.error,
        method=analysis.held.method if test is None else "test",
        ndcg=analysis.errors.mean_ndcg,
        alpha_path=analysis.held.path,
        errors=analysis.errors,
        findings=analysis.findings,
        to_check=analysis.to_check,
        seconds=time.perf_counter() - started,
    )


def analyse(
    train: Rankings, unseen: Rankings | None, steps: dict[str, Any], plan: Any
) -> SimpleNamespace:
    """Fit, cross-validate and check the data: all that the page shows."""
    summary = summarise(train)
    if summary.n_pairs == 0:
        raise ValueError(
            "no query has a pair to learn from: every query has equal labels or a single row"
            if train.has_qid
            else "all labels y are equal, so there is nothing to rank"
        )
    if train.has_qid and summary.n_with_pairs < 2:
        raise ValueError(
            "only one query has a pair, so no query can be held out to estimate the error (give "
            "more queries, or qid=None if all rows are one ranking)"
        )
    test_summary = None if unseen is None else summarise(unseen)
    if test_summary is not None and test_summary.n_pairs == 0:
        raise ValueError("no query of test has a pair, so there is nothing to evaluate")
    plan.tell("Looking at the features")
    statistics = None if plan.precomputed else feature_statistics(train)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        held = hold_out(plan, train)
        alpha = None if held.path is None else float(held.path.alphas[held.path.chosen])
        to_check = labels_to_check(plan, train, held, alpha)
        plan.tell("Fitting to all rows")
        model = held.model
        if model is None:
            model = fit(plan.with_alpha(alpha), train)
    alpha = getattr(model, "alpha_", getattr(model, "alpha", None)) if alpha is None else alpha
    fitted = predict(model, train.inputs, train.qid)
    evaluated, errors, scores = train, held.errors, held.scores
    if unseen is not None:
        evaluated, scores = unseen, predict(model, unseen.inputs, unseen.qid)
        errors = errors_of(unseen, scores)
    error = held.estimate if unseen is None else errors.mean
    plan.tell("Looking for what is wrong")
    baseline = best_single(train, evaluated, statistics)
    shown = fitted if scores is None else scores
    worst = [] if errors.unit == "row" else worst_queries(evaluated, errors, shown, model, train)
    findings = list(check_data(train, summary, statistics))
    if unseen is not None:
        findings += check_test(train, unseen, statistics)
    scaled = train.inputs is not train.X
    findings += check_model(errors, error, baseline, scaled=scaled, held_out=unseen is None)
    # Scales and ids have findings of their own.
    texts = dict.fromkeys(
        str(one.message) for one in caught
        if not issubclass(one.category, FeatureScaleWarning | IdColumnWarning)
    )  # fmt: skip
    findings += [Finding("note", "fit-warning", "A warning while fitting", text) for text in texts]
    order = ("problem", "warning", "note")
    return SimpleNamespace(
        train=train,
        test=unseen,
        summary=summary,
        test_summary=test_summary,
        findings=sorted(findings, key=lambda finding: order.index(finding.level)),
        plan=plan,
        steps=steps,
        model=model,
        alpha=alpha,
        held=held,
        errors=errors,
        error=error,
        train_error=float(pairwise_error(train.y, fitted, qid=train.qid)),
        baseline=baseline,
        importance=feature_importance(model, train, unseen, statistics),
        worst=worst,
        to_check=to_check,
        evaluated=evaluated,
    )


def worst_queries(
    data: Rankings, errors: UnitErrors, scores: Array, model: Any, train: Rankings
) -> list[SimpleNamespace]:
    """First rows of the worst queries, rows missing there, and the worst pair with its reasons."""
    found = []
    for q in errors.worst(N_QUERIES).tolist():
        rows = np.flatnonzero(data.codes == q)
        y, score = data.y[rows], scores[rows]
        order = np.lexsort((y, -score))  # if scores tie, the worse label comes first
        place = np.argsort(order) + 1
        first, last = (np.searchsorted(np.sort(-y), -y, side=side) for side in ("left", "right"))
        documents = [
            SimpleNamespace(
                name=data.document_name(row),
                row=row,
                label=float(y[k]),
                place=int(place[k]),
                expected=int(first[k]) + 1,
                last=int(last[k]),
            )
            for k, row in enumerate(rows.tolist())
        ]
        top = [documents[k] for k in order[:N_DOCUMENTS]]
        least = min(document.label for document in top)
        missed = [d for d in documents if d.expected <= N_DOCUMENTS < d.place and d.label > least]
        missed.sort(key=lambda d: (-d.label, d.place))
        a, b = _most_wrong(y, score)
        above = below = reasons = None
        if y[a] < y[b] and score[a] > score[b]:
            above, below = documents[a], documents[b]
            reasons = _reasons(model, train, data, above.row, below.row)
        found.append(
            SimpleNamespace(
                name=data.query_name(q),
                error=float(errors.error[q]),
                wrong=float(errors.wrong[q]),
                pairs=int(errors.pairs[q]),
                n_documents=len(rows),
                top=top,
                missed=missed[:N_DOCUMENTS],
                above=above,
                below=below,
                reasons=reasons,
            )
        )
    return found


def _most_wrong(y: Array, score: Array) -> tuple[int, int]:
    """Find the pair with the largest product of label difference and (wrong) score difference."""
    few = np.arange(len(y))
    if len(y) > 1000:  # the ends of both orders are enough
        few = np.unique(np.concatenate([np.argsort(score)[-500:], np.argsort(y)[-500:]]))
    higher = np.maximum(score[few][:, None] - score[few], 0.0)
    damage = higher * np.maximum(y[few] - y[few][:, None], 0.0)
    a, b = np.unravel_index(int(np.argmax(damage)), damage.shape)
    return int(few[a]), int(few[b])


def _reasons(model: Any, train: Rankings, data: Rankings, above: int, below: int) -> Any:
    """Contributions of features, or of training rows, to the difference of two scores, if any."""
    names: Any = train.input_names
    if isinstance(model, Pipeline):
        try:
            names = model[:-1].get_feature_names_out(names)
        except (AttributeError, ValueError):  # a step without feature names
            names = None
    among = None
    if isinstance(model, AutoRanker):  # it compares rows with the others of their query
        others = np.setdiff1d(np.flatnonzero(data.codes == data.codes[above]), [above, below])
        among = take_rows(data.inputs, others) if len(others) and data.has_qid else None
    try:
        parts = explain(model, *(take_rows(data.inputs, [row]) for row in (above, below)),
                        among=among)  # fmt: skip
    except ValueError:  # not a model of this package
        return None

    def named(k: int) -> tuple[str, float]:
        number, name = int(parts.index[k]), str(parts.labels[k])
        if parts.kind != "feature":
            name = train.document_name(number)
            if train.has_qid:
                name += f" of query {train.query_name(int(train.codes[number]))}"
        elif names is not None:
            name = str(names[number])
        return name, float(parts.contribution[k])

    least = LEAST * np.abs(parts.contribution).max(initial=0.0)
    return SimpleNamespace(
        difference=parts.difference,
        kind=parts.kind,
        most=[named(int(k)) for k in np.flatnonzero(parts.contribution > least)[:N_FOR]],
        against=[named(int(k)) for k in np.flatnonzero(parts.contribution < -least)[:N_AGAINST]],
        n=int(np.count_nonzero(parts.contribution)),
    )
