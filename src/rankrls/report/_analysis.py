"""The analysis behind a report: from data and an estimator to all numbers on the page."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.exceptions import FeatureScaleWarning, IdColumnWarning
from rankrls.metrics import pairwise_error
from rankrls.report._data import DataSummary, Rankings, Steps, summarise
from rankrls.report._errors import Interval, UnitErrors, query_errors, row_errors
from rankrls.report._features import (
    FeatureStatistics,
    Importance,
    feature_importance,
    feature_statistics,
)
from rankrls.report._findings import Finding, check_data, check_model, check_test
from rankrls.report._heldout import CrossValidated, FitPlan, fit, hold_out, predict
from rankrls.report._labels_to_check import LabelsToCheck, labels_to_check
from rankrls.report._worst import WorstQuery, WorstRow, worst_queries, worst_rows

__all__ = ["Analysis", "Baseline", "analyse"]

Array = NDArray[Any]

N_WORST = 6


@dataclass(frozen=True)
class Baseline:
    """The best single feature on the training data, used as a ranker."""

    feature: str
    ascending: bool
    error: float


@dataclass(frozen=True)
class Analysis:
    """The content of the page.

    Attributes
    ----------
    train, test : Rankings; test may be None
    summary, test_summary : DataSummary
    findings : list of Finding, the worst first
    plan : FitPlan
    before : Steps
        Preprocessing steps of the features.
    model : fitted estimator
    alpha : float or None
    held : CrossValidated
        Cross-validation within the training data.
    errors : UnitErrors
        Errors by query or row, on the test data if there are any, else held out in training.
    error : Interval
        Estimated error of the model.
    train_error : float
        Error on the rows to which the model was fitted.
    baseline : Baseline or None
    importance : Importance
    worst : list of WorstQuery or of WorstRow
    to_check : LabelsToCheck
        Suspicious labels of the training data.
    scores : ndarray of shape (n_rows,) or None
        Predictions from which ``errors`` were computed.
    """

    train: Rankings
    test: Rankings | None
    summary: DataSummary
    test_summary: DataSummary | None
    findings: list[Finding]
    plan: FitPlan
    before: Steps
    model: Any
    alpha: float | None
    held: CrossValidated
    errors: UnitErrors
    error: Interval
    train_error: float
    baseline: Baseline | None
    importance: Importance
    worst: list[WorstQuery] | list[WorstRow]
    to_check: LabelsToCheck
    scores: Array | None

    @property
    def evaluated(self) -> Rankings:
        """The data on which ``errors`` were computed."""
        return self.train if self.test is None else self.test


def analyse(
    train: Rankings, test: Rankings | None, plan: FitPlan, before: Steps | None = None
) -> Analysis:
    """Fit, cross-validate and check the data; ``before`` holds the preprocessing steps."""
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
            "more "
            "queries, or leave out qid if all rows are one ranking)"
        )
    test_summary = None if test is None else summarise(test)
    if test_summary is not None and test_summary.n_pairs == 0:
        raise ValueError("no query of test has a pair, so there is nothing to evaluate")
    given = train.as_given
    plan.tell("Looking at the features")
    statistics = None if plan.precomputed else feature_statistics(given)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        held = hold_out(plan, train)
        alpha = None if held.path is None else float(held.path.alphas[held.path.chosen])
        to_check = labels_to_check(plan, train, held, alpha)
        plan.tell("Fitting to all rows")
        model = held.model
        if model is None:
            model = fit(plan.with_alpha(alpha or 1.0), train.X, train.y, train.fit_options())
    alpha = getattr(model, "alpha_", getattr(model, "alpha", None)) if alpha is None else alpha
    fitted = _predict(model, train)
    evaluated, errors, scores = train, held.errors, held.scores
    if test is not None:
        evaluated, scores = test, _predict(model, test)
        errors = (
            query_errors(test, scores) if test.has_qid else row_errors(test.y, scores, test.codes)
        )
    error = held.estimate if test is None else errors.mean
    plan.tell("Looking for what is wrong")
    baseline = _baseline(given, evaluated.as_given, statistics)
    shown = fitted if scores is None else scores
    worst: Any
    if errors.unit == "query":
        worst = worst_queries(evaluated, errors, shown, N_WORST, model, train)
    else:
        worst = worst_rows(evaluated, errors, shown, 10)
    findings = list(check_data(given, summary, statistics))
    if test is not None:
        findings += check_test(given, test.as_given, statistics)
    findings += check_model(held, errors, error, baseline, plan, scaled=given.scaled)
    findings += _warned(caught)
    used = statistics if train.unscaled is None else feature_statistics(train)
    order = {"problem": 0, "warning": 1, "note": 2}
    return Analysis(
        train=train,
        test=test,
        summary=summary,
        test_summary=test_summary,
        findings=sorted(findings, key=lambda finding: order[finding.level]),
        plan=plan,
        before=Steps(None, None) if before is None else before,
        model=model,
        alpha=alpha,
        held=held,
        errors=errors,
        error=error,
        train_error=float(pairwise_error(train.y, fitted, qid=train.qid)),
        baseline=baseline,
        importance=feature_importance(model, train, test, used),
        worst=worst,
        to_check=to_check,
        scores=scores,
    )


def _predict(model: Any, data: Rankings) -> Array:
    scores = predict(model, data.X, data.qid)
    if not np.isfinite(scores).all():
        raise ValueError("the model predicts NaN or infinity; check the scales of the features")
    return scores


def _baseline(
    train: Rankings, evaluated: Rankings, statistics: FeatureStatistics | None
) -> Baseline | None:
    if statistics is None or not np.isfinite(statistics.alone).any():
        return None
    quality = np.nan_to_num(np.maximum(statistics.alone, 1 - statistics.alone), nan=-1.0)
    j = int(np.argmax(quality))
    column = evaluated.X[:, [j]]
    column = column.toarray()[:, 0] if hasattr(column, "toarray") else column[:, 0]
    ascending = bool(statistics.alone[j] < 0.5)
    error = pairwise_error(evaluated.y, -column if ascending else column, qid=evaluated.qid)
    return Baseline(train.feature_names[j], ascending, float(error))


def _warned(caught: list[warnings.WarningMessage]) -> list[Finding]:
    """Distinct warnings that were issued while fitting.

    Warnings about the grid, scales and ids are excluded, because they have their own findings.
    """
    others = [
        one for one in caught if not issubclass(one.category, FeatureScaleWarning | IdColumnWarning)
    ]
    texts = dict.fromkeys(str(one.message) for one in others)
    return [
        Finding("note", "fit-warning", "A warning while fitting", text)
        for text in texts
        if "extend alphas" not in text
    ]
