"""The section that says how to get the same numbers in Python."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import scipy
import sklearn

from rankrls import RankRLSCV, __version__
from rankrls.report._analysis import Analysis
from rankrls.report._html import escape

__all__ = ["code_lines", "reproduce"]


def reproduce(analysis: Analysis) -> str:
    """Code and versions."""
    versions = (
        f"rankrls {__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}"
    )
    code = "\n".join(code_lines(analysis))
    return (
        "<p>With the training data as <code>X</code> and <code>y</code>"
        + (" and <code>qid</code>" if analysis.train.has_qid else "")
        + (", and the test data with <code>_test</code>" if analysis.test is not None else "")
        + ":</p>"
        f'<pre tabindex="0" aria-label="Python code"><code>{escape(code)}</code></pre>'
        f"<p>{escape(versions)}.</p>"
    )


def code_lines(analysis: Analysis) -> list[str]:
    """Python that repeats the fit and the estimate."""
    plan, held = analysis.plan, analysis.held
    kind = type(plan.estimator).__name__
    qid = ", qid=qid" if analysis.train.has_qid else ""
    lines = []
    if plan.base is None:
        lines += [f"model = {_one_line(plan.estimator)}  # {kind}", f"model.fit(X, y{qid})"]
        if analysis.test is not None:
            lines += _test_lines(analysis, "model")
        return lines
    model = plan.with_alpha(analysis.alpha or 1.0)
    search = plan.fixed is None and plan.grid is not None and len(plan.grid) > 1
    searched = search and held.method in ("leave-query-out", "leave-pair-out", "folds")
    if searched and plan.exact and plan.grid is not None:
        lines += ["from rankrls import RankRLS, RankRLSCV"]
    else:
        lines += ["from rankrls import RankRLS"]
    lines.append("from rankrls.metrics import pairwise_error")
    if held.method == "leave-query-out":
        lines.append("from rankrls.model_selection import leave_query_out_predict")
    elif held.method == "leave-pair-out":
        lines.append("from rankrls.model_selection import leave_pair_out_score")
    lines.append("")
    if searched and plan.exact and plan.grid is not None:
        options = {k: v for k, v in plan.base.get_params().items() if k != "alpha"}
        ours = isinstance(plan.estimator, RankRLSCV) and not plan.own_cv
        cv = plan.estimator if ours else RankRLSCV(**options)
        call = _one_line(cv)
        if "alphas=" not in call:
            default = np.asarray(RankRLSCV().alphas)
            if not np.array_equal(default, plan.grid):
                call = _with_alphas(call, plan.grid)
        lines.append(f"search = {call}.fit(X, y{qid})")
        lines.append(f"search.alpha_  # {analysis.alpha:g}")
    lines.append(f"model = {_one_line(model)}")
    if held.method == "leave-query-out":
        lines.append(f"held_out = leave_query_out_predict(model, X, y{qid})")
        lines.append(f"pairwise_error(y, held_out{qid})  # {held.errors.mean.value:.6f}")
    elif held.method == "leave-pair-out":
        lines.append(f"1 - leave_pair_out_score(model, X, y)  # {held.errors.mean.value:.6f}")
    lines.append(f"model.fit(X, y{qid})")
    if analysis.test is not None:
        lines += _test_lines(analysis, "model")
    if any("np." in line for line in lines):
        lines.insert(0, "import numpy as np")
    return lines


def _test_lines(analysis: Analysis, model: str) -> list[str]:
    qid = ", qid=qid_test" if analysis.train.has_qid else ""
    value = analysis.errors.mean.value
    return [f"pairwise_error(y_test, {model}.predict(X_test){qid})  # {value:.6f}"]


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
