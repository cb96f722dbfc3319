"""Python code that reproduces the results."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.base import clone

from rankrls import AutoRanker
from rankrls.report._errors import NDCG_AT

__all__ = ["code_lines"]

#: Code for the error with each query at the alpha that is best for all other queries.
NESTED = """alphas = search.cv_results_["alpha"]
held_out = leave_query_out_predict(model, X, y{qid}, alphas=alphas)
errors = [pairwise_error(y, scores{only_qid}, average=None) for scores in held_out]
errors = np.array(errors)[::-1, np.isfinite(errors[0])]
best = np.argmin(errors.sum(axis=1, keepdims=True) - errors, axis=0)
errors[best, np.arange(len(best))].mean()  # {value:.6f}"""


def code_lines(a: SimpleNamespace) -> list[str]:
    """Python code that repeats the fit and the estimate, with expected results as comments."""
    plan, held, value = a.plan, a.held, a.held.errors.mean.value
    only_qid = ", qid=qid" if a.train.has_qid else ""
    qid = only_qid + ", sample_weight=weight" * (a.train.weight is not None)
    lines = _before_lines(a)
    if plan.base is None:
        if isinstance(plan.estimator, AutoRanker):
            lines.append("from rankrls import AutoRanker")
        if held.model is not None:
            lines.append("from rankrls.metrics import pairwise_error")
        lines += [f"model = {_one_line(plan.estimator)}", f"model.fit(X, y{qid})"]
        if held.model is not None:
            lines.append(f"pairwise_error(y, model.nested_scores_, qid=qid)  # {value:.6f}")
        return lines + _test_lines(a)[:1]
    search = _search_call(a)
    if search is not None:
        lines += [f"search = {search}.fit(X, y{qid})", f"search.alpha_  # {a.alpha!r}"]
    lines.append(f"model = {_one_line(plan.with_alpha(a.alpha or 1.0))}")
    if held.method == "leave-query-out":
        lines.append(f"held_out = leave_query_out_predict(model, X, y{qid})")
        lines.append(f"pairwise_error(y, held_out{only_qid})  # {value:.6f}")
        if a.test is None:
            lines += _ndcg_line(a, "y, held_out", only_qid)
        estimate = held.estimate.value
        if estimate != value and search is not None:
            lines += NESTED.format(qid=qid, only_qid=only_qid, value=estimate).splitlines()
    elif held.method == "leave-pair-out":
        lines.append(f"1 - leave_pair_out_score(model, X, y)  # {value:.6f}")
    lines += [*_audit_lines(a, qid), f"model.fit(X, y{qid})", *_test_lines(a)]
    used = "\n".join(lines)
    names = ", ".join(name for name in ("ndcg", "pairwise_error")
                      if f"{name}(" in used or name == "pairwise_error")  # fmt: skip
    head = ["import numpy as np"] * ("np." in used)
    head.append("from rankrls import RankRLS" + ", RankRLSCV" * (search is not None))
    head.append(f"from rankrls.metrics import {names}")
    for name in ("leave_query_out_predict", "leave_pair_out_score"):
        head += [f"from rankrls.model_selection import {name}"] * (name in used)
    head += ["from rankrls.diagnostics import audit"] * ("audit(" in used)
    return [*head, "", *lines]


def _ndcg_line(a: SimpleNamespace, scored: str, qid: str) -> list[str]:
    mean = a.errors.mean_ndcg
    return [] if mean is None else [f"ndcg({scored}{qid}, k={NDCG_AT})  # {mean.value:.6f}"]


def _before_lines(a: SimpleNamespace) -> list[str]:
    """Code for the imputation and scaling of training and test data."""
    lines = []
    for name, step in (("imputer", a.before.imputer), ("scaler", a.before.scaler)):
        if step is None:
            continue
        kind = type(step)
        public = kind.__module__.partition("._")[0]
        by_query = name == "scaler" and a.before.by_query and a.train.has_qid
        lines += [
            f"from {public} import {kind.__name__}",
            f"{name} = {_one_line(clone(step))}",
            f"X = {name}.fit_transform(X{', qid=qid' * by_query})",
        ]
        if a.test is not None:
            lines.append(f"X_test = {name}.transform(X_test{', qid=qid_test' * by_query})")
    return lines


def _audit_lines(a: SimpleNamespace, options: str) -> list[str]:
    """Code for the labels to check, with the extreme values as comments."""
    found, lines = a.to_check, []
    if found.alpha is not None and found.alpha != a.alpha:
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


def _search_call(a: SimpleNamespace) -> str | None:
    """Code of the `RankRLSCV` that chooses the same alpha; None if alpha was not chosen so."""
    plan, path = a.plan, a.held.path
    chosen = plan.search is not None and path is not None and plan.fixed is None and plan.exact
    if not chosen or len(path.alphas) == 1:
        return None
    call = _one_line(clone(plan.search).set_params(alphas=None))
    if plan.search.alphas is None:
        return call
    powers = np.log2(path.alphas)
    alphas = f"[{', '.join(f'{value:.17g}' for value in path.alphas)}]"
    if np.array_equal(powers, powers[0] + np.arange(len(powers))) and powers[0] == round(powers[0]):
        alphas = f"2.0 ** np.arange({int(powers[0])}, {int(powers[-1]) + 1})"
    head, rest = call.split("(", 1)
    return f"{head}({alphas}{', ' if rest != ')' else ''}{rest}"


def _test_lines(a: SimpleNamespace) -> list[str]:
    if a.test is None:
        return []
    qid = ", qid=qid_test" if a.train.has_qid else ""
    scores = f"y_test, model.predict(X_test{qid * isinstance(a.model, AutoRanker)})"
    line = f"pairwise_error({scores}{qid})  # {a.errors.mean.value:.6f}"
    return [line, *_ndcg_line(a, scores, qid)]


def _one_line(estimator: Any) -> str:
    return " ".join(estimator.__repr__(N_CHAR_MAX=10_000).split())
