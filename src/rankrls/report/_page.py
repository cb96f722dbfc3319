"""Rendering of the page from sections and a template, with inline style and script."""

from __future__ import annotations

import base64
import datetime
import hashlib
from dataclasses import asdict
from importlib import resources
from string import Template

from rankrls import AutoRanker, __version__
from rankrls.report import _sections as sections
from rankrls.report import _tables as tables
from rankrls.report._analysis import Analysis
from rankrls.report._html import cut, data_block, escape, name
from rankrls.report._label_tables import labels
from rankrls.report._members import members
from rankrls.report._reproduce import reproduce
from rankrls.report._words import plural

__all__ = ["render"]


def render(
    analysis: Analysis, *, title: str | None, limit: int, load_code: str | None = None
) -> str:
    """Render the whole page as text."""
    by = "query" if analysis.errors.unit == "query" else "row"
    queries = "queries" if by == "query" else "rows"
    parts = [
        ("short", "Summary", sections.short(analysis)),
        ("findings", "Findings", sections.findings(analysis)),
        ("data", "Data", sections.data(analysis)),
        _choice(analysis),
        ("held-out", "Held-out error", sections.held_out(analysis)),
        ("errors", f"Error by {by}", tables.errors(analysis, limit)),
        ("worst", f"Worst {queries}", tables.worst(analysis)),
        ("labels", "Labels to check", labels(analysis)),
        ("features", "Features", tables.features(analysis)),
        ("reproduce", "Code", reproduce(analysis, load_code)),
    ]
    style, script = _asset("style.css"), _asset("script.js")
    heading = cut(title or "") or "Ranking report"
    today = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    return Template(_asset("page.html")).substitute(
        title=escape(heading),
        version=escape(__version__),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        subtitle=_subtitle(analysis, today),
        nav="".join(f'<li><a href="#{key}">{escape(text)}</a></li>' for key, text, _ in parts),
        sections="\n".join(
            f'<section id="{key}" aria-labelledby="{key}-h"><h2 id="{key}-h">{escape(text)}</h2>'
            f"{body}</section>"
            for key, text, body in parts
        ),
        footer=f"Created by rankrls {escape(__version__)} on {today}. This page does not use the "
        "network.",
        data=data_block("results", _results(analysis)),
    )


def _choice(analysis: Analysis) -> tuple[str, str, str]:
    """Section about the choice of members or alpha."""
    if isinstance(analysis.model, AutoRanker):
        return "members", "Members", members(analysis)
    return "alpha", "Choice of alpha", sections.alpha(analysis)


def _subtitle(analysis: Analysis, today: str) -> str:
    summary = analysis.summary
    counts = [plural(summary.n_rows, "row")]
    if analysis.train.has_qid:
        counts.append(plural(summary.n_queries, "query", "queries"))
    if not analysis.plan.precomputed:
        counts.append(plural(summary.n_features, "feature"))
    text = f"{name(type(analysis.model).__name__)} on {', '.join(counts)}"
    if analysis.test_summary is not None:
        text += f", tested on {plural(analysis.test_summary.n_rows, 'row')}"
        if analysis.train.has_qid:
            text += f" of {plural(analysis.test_summary.n_queries, 'query', 'queries')}"
    return f"{text} · {today}"


def _results(analysis: Analysis) -> dict[str, object]:
    """Main results, in machine-readable form."""
    error, ndcg, path = analysis.error, analysis.errors.mean_ndcg, analysis.held.path
    return {
        "version": __version__,
        "n_rows": analysis.summary.n_rows,
        "n_queries": analysis.summary.n_queries,
        "n_features": analysis.summary.n_features,
        "alpha": analysis.alpha,
        "pairwise_error": error.value,
        "confidence_interval": [error.low, error.high],
        "method": "test" if analysis.test is not None else analysis.held.method,
        "ndcg@10": None if ndcg is None else ndcg.value,
        "alphas": None if path is None else path.alphas,
        "errors": None if path is None else path.error,
        "findings": [
            {"level": f.level, "code": f.code, "title": f.title, "examples": f.examples}
            for f in analysis.findings
        ],
        "labels_to_check": {
            "alpha": analysis.to_check.alpha,
            "queries": [asdict(query) for query in analysis.to_check.queries],
            "rows": [asdict(row) for row in analysis.to_check.rows],
        },
    }


def _asset(file: str) -> str:
    return resources.files("rankrls.report").joinpath(file).read_text(encoding="utf-8").strip()


def _hash(text: str) -> str:
    """Hash of an inline text for the content security policy."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
