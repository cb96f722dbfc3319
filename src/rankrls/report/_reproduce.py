"""Python code that reproduces the results."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.base import clone

from rankrls import AutoRanker
from rankrls.report._errors import NDCG_AT

__all__ = ["code_lines"]


def code_lines(analysis: SimpleNamespace) -> list[str]:
    """Python code that repeats the fit and the estimate, with expected results as comments."""
    plan, held = analysis.plan, analysis.held
    only_qid = ", qid=qid" if analysis.train.has_qid else ""
    qid = only_qid + ", sample_weight=weight" * (analysis.train.weight is not None)
    if plan.base is None:
        lines = [f"model = {_one_line(plan.estimator)}", f"model.fit(X, y{qid})"]
        if isinstance(plan.estimator, AutoRanker):
            lines.insert(0, "from rankrls import AutoRanker")
        if held.model is not None:
            lines.insert(1, "from rankrls.metrics import pairwise_error")
            value = held.errors.mean.value
            lines.append(f"pairwise_error(y, model.nested_scores_, qid=qid)  # {value:.6f}")
        return _before_lines(analysis) + lines + _test_lines(analysis)
    search = _search_call(analysis)
    value = held.errors.mean.value
    names = "RankRLS" if search is None else "RankRLS, RankRLSCV"
    lines = [f"from rankrls import {names}", "from rankrls.metrics import pairwise_error"]
    if held.method == "leave-query-out":
        lines.append("from rankrls.model_selection import leave_query_out_predict")
    elif held.method == "leave-pair-out":
        lines.append("from rankrls.model_selection import leave_pair_out_score")
    audited = _audit_lines(analysis, qid)
    if audited:
        lines.append("from rankrls.diagnostics import audit")
    lines.append("")
    lines += _before_lines(analysis)
    if search is not None:
        lines += [f"search = {search}.fit(X, y{qid})", f"search.alpha_  # {analysis.alpha!r}"]
    lines.append(f"model = {_one_line(plan.with_alpha(analysis.alpha or 1.0))}")
    if held.method == "leave-query-out":
        lines.append(f"held_out = leave_query_out_predict(model, X, y{qid})")
        lines.append(f"pairwise_error(y, held_out{only_qid})  # {value:.6f}")
        gains = analysis.errors.mean_ndcg if analysis.test is None else None
        lines += _ndcg_line(gains, "y, held_out", only_qid)
        if held.estimate.value != value and search is not None:
            lines += _estimate_lines(qid, only_qid, held.estimate.value)
    elif held.method == "leave-pair-out":
        lines.append(f"1 - leave_pair_out_score(model, X, y)  # {value:.6f}")
    lines += audited
    lines.append(f"model.fit(X, y{qid})")
    lines += _test_lines(analysis)
    if any("ndcg(" in line for line in lines):
        lines[1] = "from rankrls.metrics import ndcg, pairwise_error"
    if any("np." in line for line in lines):
        lines.insert(0, "import numpy as np")
    return lines


def _ndcg_line(mean: Any, scored: str, qid: str) -> list[str]:
    return [] if mean is None else [f"ndcg({scored}{qid}, k={NDCG_AT})  # {mean.value:.6f}"]


def _estimate_lines(qid: str, only_qid: str, value: float) -> list[str]:
    """Code for the error with each query at the alpha that is best for all other queries."""
    return [
        'alphas = search.cv_results_["alpha"]',
        f"held_out = leave_query_out_predict(model, X, y{qid}, alphas=alphas)",
        f"errors = [pairwise_error(y, scores{only_qid}, average=None) for scores in held_out]",
        "errors = np.array(errors)[::-1, np.isfinite(errors[0])]",
        "best = np.argmin(errors.sum(axis=1, keepdims=True) - errors, axis=0)",
        f"errors[best, np.arange(len(best))].mean()  # {value:.6f}",
    ]


def _before_lines(analysis: SimpleNamespace) -> list[str]:
    """Code for the imputation and scaling of training and test data."""
    lines = []
    for name, step in (("imputer", analysis.before.imputer), ("scaler", analysis.before.scaler)):
        if step is None:
            continue
        kind = type(step)
        lines.append(f"from {'.'.join(_public(kind))} import {kind.__name__}")
        by_query = name == "scaler" and analysis.before.by_query and analysis.train.has_qid
        lines.append(f"{name} = {_one_line(clone(step))}")
        lines.append(f"X = {name}.fit_transform(X{', qid=qid' * by_query})")
        if analysis.test is not None:
            lines.append(f"X_test = {name}.transform(X_test{', qid=qid_test' * by_query})")
    return lines


def _audit_lines(analysis: SimpleNamespace, options: str) -> list[str]:
    """Code for the labels to check, with the extreme values as comments."""
    found, lines = analysis.to_check, []
    if found.alpha is not None and found.alpha != analysis.alpha:
        options += f", alpha={found.alpha!r}"
    if found.n_queries and not found.no_p_values:
        lines.append(f"queries = audit(model, X, y{options})")
        lines.append(f"np.fmin.reduce(queries.agreement)  # {found.least_agreement:.6f}")
    if found.n_rows:
        lines.append(f'rows = audit(model, X, y{options}, by="row")')
        lines.append("equal = np.sqrt(rows.weight[rows.size > 0].mean() / rows.weight)")
        largest = found.largest_studentised
        lines.append(f"np.fmax.reduce(rows.studentised * equal)  # {largest:.6f}")
    return lines


def _public(kind: type) -> list[str]:
    """Public module of a class, without trailing private modules."""
    parts = kind.__module__.split(".")
    return parts[: next((i for i, part in enumerate(parts) if part.startswith("_")), len(parts))]


def _search_call(analysis: SimpleNamespace) -> str | None:
    """Code of the `RankRLSCV` that chooses the same alpha; None if alpha was not chosen so."""
    plan, path = analysis.plan, analysis.held.path
    if plan.search is None or path is None or plan.fixed is not None or not plan.exact:
        return None
    if len(path.alphas) == 1:
        return None
    call = _one_line(clone(plan.search).set_params(alphas=None))
    return call if plan.search.alphas is None else _with_alphas(call, path.alphas)


def _test_lines(analysis: SimpleNamespace) -> list[str]:
    if analysis.test is None:
        return []
    qid = ", qid=qid_test" if analysis.train.has_qid else ""
    value = analysis.errors.mean.value
    predicted = f"model.predict(X_test{qid * isinstance(analysis.model, AutoRanker)})"
    line = f"pairwise_error(y_test, {predicted}{qid})  # {value:.6f}"
    if analysis.plan.base is None:
        return [line]
    return [line, *_ndcg_line(analysis.errors.mean_ndcg, f"y_test, {predicted}", qid)]


def _with_alphas(call: str, grid: Any) -> str:
    powers = np.log2(grid)
    step = np.diff(powers)
    if len(grid) > 2 and np.array_equal(powers, np.rint(powers)) and (step == 1).all():
        alphas = f"2.0 ** np.arange({int(powers[0])}, {int(powers[-1]) + 1})"
    else:
        alphas = f"[{', '.join(f'{value:.17g}' for value in grid)}]"
    head, rest = call.split("(", 1)
    return f"{head}({alphas}{', ' if rest != ')' else ''}{rest}"


def _one_line(estimator: Any) -> str:
    return " ".join(estimator.__repr__(N_CHAR_MAX=10_000).split())
