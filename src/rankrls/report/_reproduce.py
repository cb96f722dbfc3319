"""Python code that reproduces the results."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sklearn.base import clone

from rankrls import AutoRanker
from rankrls.report._errors import NDCG_AT

__all__ = ["code_lines"]

#: Code for the error with each query at the alpha that is best for all other queries.
NESTED = """alphas = search.cv_results_["alpha"]
held_out = leave_query_out_predict(model, X, y{qid}, alphas=alphas)
errors = [pairwise_error(y, scores, qid=qid, average=None) for scores in held_out]
errors = np.array(errors)[::-1, np.isfinite(errors[0])]
best = np.argmin(errors.sum(axis=1, keepdims=True) - errors, axis=0)
errors[best, np.arange(len(best))].mean()  # {value:.6f}"""

#: Imports, by a word that needs them.
IMPORTS = {
    "np.": "import numpy as np",
    "RankRLS(": "from rankrls import RankRLS",
    "RankRLSCV(": "from rankrls import RankRLSCV",
    "AutoRanker(": "from rankrls import AutoRanker",
    "ndcg(": "from rankrls.metrics import ndcg",
    "pairwise_error(": "from rankrls.metrics import pairwise_error",
    "leave_query_out_predict(": "from rankrls.model_selection import leave_query_out_predict",
    "leave_pair_out_score(": "from rankrls.model_selection import leave_pair_out_score",
}


def code_lines(a: SimpleNamespace) -> list[str]:
    """Python code that repeats the fit and the estimate, with expected results as comments."""
    plan, held, path = a.plan, a.held, a.held.path
    value, estimate, gain = held.errors.mean.value, held.estimate.value, a.errors.mean_ndcg
    only_qid = ", qid=qid" if a.train.has_qid else ""
    qid = only_qid + ", sample_weight=weight" * (a.train.weight is not None)
    gain_line = "" if gain is None else f"ndcg({{}}, k={NDCG_AT})  # {gain.value:.6f}"
    lines, fit = _step_lines(a), f"model.fit(X, y{qid})"
    if plan.base is None:
        lines += [f"model = {_one_line(plan.estimator)}", fit]
        if held.model is not None:
            lines.append(f"pairwise_error(y, model.nested_scores_, qid=qid)  # {value:.6f}")
    else:
        searched = plan.fixed is None and plan.exact and len(path.alphas) > 1
        if searched:
            search = clone(plan.search)
            if search.alphas is not None:
                search.set_params(alphas=path.alphas.tolist())
            lines.append(f"search = {_one_line(search)}.fit(X, y{qid})")
            lines.append(f"search.alpha_  # {a.alpha!r}")
        lines.append(f"model = {_one_line(plan.with_alpha(a.alpha or 1.0))}")
        if held.method == "leave-query-out":
            lines.append(f"held_out = leave_query_out_predict(model, X, y{qid})")
            lines.append(f"pairwise_error(y, held_out{only_qid})  # {value:.6f}")
            if a.test is None and gain_line:
                lines.append(gain_line.format(f"y, held_out{only_qid}"))
            if estimate != value and searched:
                lines += NESTED.format(qid=qid, value=estimate).splitlines()
        elif held.method == "leave-pair-out":
            lines.append(f"1 - leave_pair_out_score(model, X, y)  # {value:.6f}")
        lines.append(fit)
    if a.test is not None:
        of_test = ", qid=qid_test" if a.train.has_qid else ""
        scores = f"y_test, model.predict(X_test{of_test * isinstance(a.model, AutoRanker)})"
        lines.append(f"pairwise_error({scores}{of_test})  # {a.errors.mean.value:.6f}")
        lines += [gain_line.format(scores + of_test)] * bool(gain_line)
    used = "\n".join(lines)
    imports = [line for word, line in IMPORTS.items() if word in used]
    return [*imports, *[""] * bool(imports), *lines]


def _step_lines(a: SimpleNamespace) -> list[str]:
    """Code for the imputation and scaling of training and test data."""
    lines = []
    for name, step in (("imputer", a.before.imputer), ("scaler", a.before.scaler)):
        if step is None:
            continue
        kind = type(step)
        by_query = name == "scaler" and a.before.by_query and a.train.has_qid
        lines += [
            f"from {kind.__module__.partition('._')[0]} import {kind.__name__}",
            f"{name} = {_one_line(clone(step))}",
            f"X = {name}.fit_transform(X{', qid=qid' * by_query})",
        ]
        if a.test is not None:
            lines.append(f"X_test = {name}.transform(X_test{', qid=qid_test' * by_query})")
    return lines


def _one_line(estimator: Any) -> str:
    return " ".join(estimator.__repr__(N_CHAR_MAX=10_000).split())
