"""The analysis behind a report: from data and an estimator to all numbers on the page."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.exceptions import FeatureScaleWarning, IdColumnWarning
from rankrls.metrics import pairwise_error
from rankrls.report._data import Rankings, Steps, summarise
from rankrls.report._errors import query_errors, row_errors
from rankrls.report._features import best_single, feature_importance, feature_statistics
from rankrls.report._findings import Finding, check_data, check_model, check_test
from rankrls.report._heldout import FitPlan, fit, hold_out, predict
from rankrls.report._labels_to_check import labels_to_check
from rankrls.report._worst import worst_queries, worst_rows

__all__ = ["analyse"]

Array = NDArray[Any]


def analyse(
    train: Rankings, test: Rankings | None, plan: FitPlan, before: Steps
) -> SimpleNamespace:
    """Fit, cross-validate and check the data: all that the page shows.

    ``errors`` are those on the test data if there are any, else held out in training, with the
    ``scores`` behind them; ``error`` is the estimated error of the model.
    """
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
    baseline = best_single(given, evaluated.as_given, statistics)
    shown = fitted if scores is None else scores
    worst: Any
    if errors.unit == "query":
        worst = worst_queries(evaluated, errors, shown, model, train)
    else:
        worst = worst_rows(evaluated, errors, shown)
    findings = list(check_data(given, summary, statistics))
    if test is not None:
        findings += check_test(given, test.as_given, statistics)
    findings += check_model(held, errors, error, baseline, plan, scaled=given.scaled)
    # The grid, scales and ids have findings of their own.
    texts = dict.fromkeys(
        str(one.message) for one in caught
        if not issubclass(one.category, FeatureScaleWarning | IdColumnWarning)
    )  # fmt: skip
    findings += [
        Finding("note", "fit-warning", "A warning while fitting", text)
        for text in texts
        if "extend alphas" not in text
    ]
    used = statistics if train.unscaled is None else feature_statistics(train)
    order = ("problem", "warning", "note")
    return SimpleNamespace(
        train=train,
        test=test,
        summary=summary,
        test_summary=test_summary,
        findings=sorted(findings, key=lambda finding: order.index(finding.level)),
        plan=plan,
        before=before,
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
        evaluated=evaluated,
    )


def _predict(model: Any, data: Rankings) -> Array:
    scores = predict(model, data.X, data.qid)
    if not np.isfinite(scores).all():
        raise ValueError("the model predicts NaN or infinity; check the scales of the features")
    return scores
