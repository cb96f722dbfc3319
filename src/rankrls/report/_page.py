"""Rendering of the page: an analysis, numbers as text, and the template ``page.html``."""

from __future__ import annotations

import base64
import datetime
import hashlib
import platform
import re
from dataclasses import asdict
from importlib import resources
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy
import sklearn
from numpy.typing import NDArray
from sklearn.base import clone

from rankrls import AutoRanker, __version__
from rankrls._validation import json_values
from rankrls.preprocessing import QueryScaler
from rankrls.report._errors import NDCG_AT
from rankrls.report._svg import (
    bar,
    columns_chart,
    fixed,
    forest_chart,
    number,
    path_chart,
    percent,
    plural,
    probability,
)

__all__ = ["page", "render", "sortable"]

Array = NDArray[Any]

#: Names longer than this are truncated, to keep the page small.
MAX_NAME = 120
# Not allowed in HTML text: control characters (except tab and line ends) and surrogates.
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)

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


def page(template: str, *, title: str | None, default: str, **values: Any) -> str:
    """Fill in a template of this package, with the style, the script and their hashes."""
    try:
        import jinja2
        from markupsafe import Markup, escape
    except ImportError as error:
        raise ImportError("pages need jinja2: pip install 'rankrls[report]'") from error
    environment = jinja2.Environment(
        autoescape=True,
        finalize=_clean,
        loader=jinja2.FunctionLoader(_asset),
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"number": number, "percent": percent, "fixed": fixed}
    environment.filters |= {"probability": probability, "markup": Markup}
    environment.filters["commas"] = "{:,}".format
    environment.filters["name"] = lambda text: (
        Markup("<bdi>") + escape(_clean(_cut(text) or "(no name)")) + Markup("</bdi>")
    )
    # No markup can end the script element.
    results = jinja2.utils.htmlsafe_json_dumps(json_values(values.pop("results")))
    return environment.get_template(template).render(
        title=_cut(title or "") or default,
        version=__version__,
        today=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        style=Markup(_asset("style.css")),
        script=Markup(_asset("script.js")),
        hash=_hash,
        plural=plural,
        results=results,
        **values,
    )


def render(
    a: SimpleNamespace,
    *,
    title: str | None,
    limit: int,
    load_code: str | None = None,
    examination: Any = None,
) -> str:
    """Render the whole page as text; ``limit`` bounds the table of errors."""
    levels = [finding.level for finding in a.findings]
    defined = a.errors.defined
    values = a.errors.error[defined]
    kept = defined[np.lexsort((-a.errors.wrong[defined], -values))][:limit]
    shares = {"10%": 0.1, "25%": 0.25, "Half": 0.5, "75%": 0.75, "90%": 0.9}
    return page(
        "page.html",
        title=title,
        default="Ranking report",
        results=_results(a),
        a=a,
        auto=isinstance(a.model, AutoRanker),
        kind=type(a.model).__name__,
        versions=(
            f"rankrls {__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
            f"SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}"
        ),
        serious=[(levels.count(one), one) for one in ("problem", "warning") if one in levels],
        charts=_charts(a),
        clicks=None if examination is None else _clicks(examination),
        kept=kept,
        quantiles={name: np.quantile(values, share) for name, share in shares.items()},
        without_error=(values == 0).mean(),
        worse_than_random=(values > 0.5).mean(),
        table=_table(a, kept),
        bar=lambda value, values: bar(float(value), float(np.abs(values).max())),
        code="\n".join([*([] if load_code is None else [load_code, ""]), *code_lines(a)]),
    )


def _charts(a: SimpleNamespace) -> dict[str, str]:
    """SVG of the labels, the path of alphas and the errors."""
    summary, path, what = a.summary, a.held.path, a.errors.unit
    edges, counts = summary.label_edges, summary.label_counts
    binned = len(edges) > len(counts)
    names = [number(edge, 3) for edge in edges[: len(counts)]]
    share = counts / max(1, counts.sum())
    about = "; ".join(f"{one}: {percent(s)}" for one, s in zip(names, share, strict=True))
    axis = "label" + " (from)" * binned
    charts = {
        "labels": columns_chart(names, counts, name="Labels", about=about, axis=axis),
        "labels_caption": "Labels of the training rows. Most frequent: "
        f"{names[int(np.argmax(counts))]} ({percent(float(share.max()))}).",
    }
    if path is not None:
        about = (
            f"Lowest at alpha {number(path.alphas[path.best])} with {path.error[path.best]:.2%}, "
            f"highest {path.error.max():.2%}."
        )
        charts["path"] = path_chart(path.alphas, path.error, path.spread, path.chosen, about=about)
    values = a.errors.error[a.errors.defined]
    half, most = np.quantile(values, [0.5, 0.9])
    units = "queries" if what == "query" else "rows"
    charts["errors"] = columns_chart(
        [f"{k}%" for k in range(0, 100, 5)], np.histogram(values, np.linspace(0, 1, 21))[0],
        name=f"Errors of {units}", axis=f"error of a {what} (from)",
        about=f"Median {half:.1%}, 90% of the {units} are at or below {most:.1%}.",
    )  # fmt: skip
    return charts


def _clicks(ex: Any) -> dict[str, Any]:
    """The examination of positions with its interval, and a chart of the first ones."""
    error = 1.96 * np.nan_to_num(ex.std)
    low, high = ex.examination - error, ex.examination + error
    positions, shown = [number(position) for position in ex.positions], slice(40)
    chart = forest_chart(positions[shown], ex.examination[shown], low[shown], high[shown],
                         axis="examination", title="Examination by position")  # fmt: skip
    known = np.isfinite(ex.std).tolist()
    rows = list(zip(positions, ex.examination, low, high, known, ex.n_clicks, strict=True))
    pooled = len(np.unique(ex.group)) < len(ex.group)
    return {"chart": chart, "rows": rows, "pooled": pooled, "additive": ex.model == "additive"}


def _table(a: SimpleNamespace, kept: Array) -> dict[str, Any]:
    """The table of errors."""
    by, data = a.errors, a.evaluated
    columns: list[tuple[str, str, str, Any, Any]]
    pairs: Any = ("Pairs", "num", "", by.pairs, "{:,}".format)
    if by.unit == "query":
        columns = [("Rows", "num wide", "", data.sizes, "{:,}".format), pairs]
    else:
        columns = [("Label", "num", "", data.y, number), ("Pairs", "num wide", *pairs[2:])]
    columns.append(("Wrong", "num wide", "", by.wrong, lambda value: number(value, 6)))
    columns.append(("Error", "num", "", by.error, percent))
    if by.ndcg is not None:
        text = lambda value: f"{value:.3f}" if np.isfinite(value) else "–"  # noqa: E731
        columns.append(("NDCG@10", "num", "ascending", by.ndcg, text))
    named = data.query_name if by.unit == "query" else data.document_name
    return sortable(by.unit.capitalize(), [(int(u), named(int(u))) for u in kept], columns)


def sortable(
    what: str, names: list[tuple[int, str]], columns: list[tuple[str, str, str, Any, Any]]
) -> dict[str, Any]:
    """A sortable table: heads, and (text, value, class) of the cells of each name.

    Columns have a title, a class (small screens hide "wide" ones), the first order, all values,
    and a function that shows one.
    """

    def cell(value: Any, kind: str, text: Any) -> tuple[str, str, str]:
        return text(value), f"{value:.10g}" if np.isfinite(value) else "", kind

    rows = [(name, [cell(values[u], kind, text) for _, kind, _, values, text in columns])
            for u, name in names]  # fmt: skip
    return {"head": [(what, "", "ascending"), *(column[:3] for column in columns)], "rows": rows}


def _results(a: SimpleNamespace) -> dict[str, object]:
    """Main results, in machine-readable form."""
    error, ndcg, path = a.error, a.errors.mean_ndcg, a.held.path
    return {
        "version": __version__,
        "n_rows": a.summary.n_rows,
        "n_queries": a.summary.n_queries,
        "n_features": a.summary.n_features,
        "alpha": a.alpha,
        "pairwise_error": error.value,
        "confidence_interval": [error.low, error.high],
        "method": "test" if a.test is not None else a.held.method,
        "ndcg@10": None if ndcg is None else ndcg.value,
        "alphas": None if path is None else path.alphas,
        "errors": None if path is None else path.error,
        "findings": [
            {"level": f.level, "code": f.code, "title": f.title, "examples": f.examples}
            for f in a.findings
        ],
        "labels_to_check": {
            "alpha": a.to_check.alpha,
            "queries": [asdict(query) for query in a.to_check.queries],
            "rows": [asdict(row) for row in a.to_check.rows],
        },
    }


def code_lines(a: SimpleNamespace) -> list[str]:
    """Python code that repeats the fit and the estimate, with expected results as comments."""
    plan, held, path = a.plan, a.held, a.held.path
    value, estimate, gain = held.errors.mean.value, held.estimate.value, a.errors.mean_ndcg
    only_qid = ", qid=qid" if a.train.has_qid else ""
    qid = only_qid + ", sample_weight=weight" * (a.train.weight is not None)
    gain_line = "" if gain is None else f"ndcg({{}}, k={NDCG_AT})  # {gain.value:.6f}"
    fit = f"model.fit(X, y{qid})"
    lines = []
    for name, step in a.steps.items():
        kind, own = type(step), ", qid=qid" * (isinstance(step, QueryScaler) and a.train.has_qid)
        lines += [
            f"from {kind.__module__.partition('._')[0]} import {kind.__name__}",
            f"{name}r = {_one_line(clone(step))}",
            f"X = {name}r.fit_transform(X{own})",
        ]
        if a.test is not None:
            own = own.replace("=qid", "=qid_test")
            lines.append(f"X_test = {name}r.transform(X_test{own})")
    if plan.search is None:
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


def _one_line(estimator: Any) -> str:
    return " ".join(estimator.__repr__(N_CHAR_MAX=10_000).split())


def _clean(value: Any) -> Any:
    """Text without characters that HTML does not allow; called for every expression."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", value) if type(value) is str else value


def _cut(text: Any) -> str:
    full = str(text).strip()
    return full if len(full) <= MAX_NAME else full[: MAX_NAME - 1] + "…"


def _asset(file: str) -> str:
    return resources.files("rankrls.report").joinpath(file).read_text(encoding="utf-8").strip()


def _hash(text: str) -> str:
    """Hash of an inline text for the content security policy."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
