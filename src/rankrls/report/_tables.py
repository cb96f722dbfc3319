"""Sections of the page that list queries, documents and features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.report._analysis import Analysis
from rankrls.report._errors import UnitErrors
from rankrls.report._html import cell, escape, name, number, percent
from rankrls.report._reasons import Reasons
from rankrls.report._svg import bar, histogram
from rankrls.report._words import plural, source, units
from rankrls.report._worst import ListedRow, WorstQuery, WorstRow

__all__ = ["errors", "features", "kept_units", "worst"]

Array = NDArray[Any]


def kept_units(errors: UnitErrors, limit: int) -> Array:
    """Queries (or rows) in the table, worst first: all, or the worst, the best and a sample."""
    defined = errors.defined
    order = defined[np.lexsort((-errors.wrong[defined], -errors.error[defined]))]
    if len(order) <= limit:
        return order
    n_worst, n_best = max(1, limit // 2), limit // 10
    middle = np.arange(n_worst, len(order) - n_best)
    rng = np.random.default_rng(0)
    drawn = rng.choice(middle, limit - n_worst - n_best, replace=False)
    ends = np.arange(len(order) - n_best, len(order))
    return order[np.sort(np.concatenate([np.arange(n_worst), drawn, ends]))]


def errors(analysis: Analysis, limit: int) -> str:
    """Histogram, quantiles, and a table that can be sorted and searched."""
    by, defined = analysis.errors, analysis.errors.defined
    what, values = units(analysis), by.error[by.defined]
    quantiles = np.quantile(values, [0.1, 0.25, 0.5, 0.75, 0.9])
    chart = histogram(
        values,
        name=f"Errors of {what}",
        about=f"Median {quantiles[2]:.1%}, 90% of the {what} are at or below {quantiles[4]:.1%}.",
        percent=True,
        axis=f"error of a {by.unit}",
    )
    perfect = float((values == 0).mean())
    facts = [
        (f"{what.capitalize()} without an error", percent(perfect)),
        *(
            (f"{level} of the {what} have at most", percent(value))
            for level, value in zip(("10%", "25%", "Half", "75%", "90%"), quantiles, strict=True)
        ),
        (f"{what.capitalize()} worse than random", percent(float((values > 0.5).mean()))),
    ]
    body = "".join(
        f'<tr><th scope="row">{escape(key)}</th><td class="num">{value}</td></tr>'
        for key, value in facts
    )
    kept = kept_units(by, limit)
    text = f"Errors of {plural(len(defined), by.unit, what)}, {_origin(analysis)}."
    if len(kept) < len(defined):
        text += (
            f" To keep the page small, the table lists {len(kept):,} of them: the "
            f"{max(1, limit // 2):,} worst, the {limit // 10:,} best, and a random sample of the "
            f"others. The figure and the quantiles are over all {len(defined):,}."
        )
    if by.sampled:
        text += " Each row is compared with a random sample of the other rows."
    return (
        f"<p>{text}</p>"
        f'<div class="pair"><figure>{chart}<figcaption>{what.capitalize()} by error.'
        f'</figcaption></figure><table class="facts"><tbody>{body}</tbody></table></div>'
        f"{_long_table(analysis, kept)}"
    )


def _origin(analysis: Analysis) -> str:
    if analysis.test is not None:
        return "on the test data"
    return f"held out by {source(analysis)}"


def _long_table(analysis: Analysis, kept: Array) -> str:
    by, data = analysis.errors, analysis.evaluated
    query = by.unit == "query"
    head = [("Query" if query else "Row", "", "ascending")]
    if query:
        head += [("Rows", " wide", ""), ("Pairs", "", ""), ("Wrong", " wide", "")]
        head += [("Error", "", "")]
        if by.ndcg is not None:
            head += [("NDCG@10", "", "ascending")]
    else:
        head += [("Label", "", ""), ("Pairs", " wide", ""), ("Wrong", " wide", "")]
        head += [("Error", "", "")]
    columns = "".join(
        f'<th scope="col" class="{("num" if k else "") + more}" data-first="{first}" '
        f'aria-sort="{"descending" if text == "Error" else "none"}">'
        f'<button type="button">{text}</button></th>'
        for k, (text, more, first) in enumerate(head)
    )
    sizes = data.sizes if query else None
    lines = []
    for unit in kept:
        u = int(unit)
        cells = [
            f'<th scope="row">{name(data.query_name(u) if query else data.document_name(u))}</th>'
        ]
        if sizes is not None:
            cells.append(cell(f"{sizes[u]:,}", sizes[u], " wide"))
        else:
            cells.append(cell(number(data.y[u]), data.y[u]))
        cells.append(cell(f"{by.pairs[u]:,}", by.pairs[u], "" if query else " wide"))
        cells.append(cell(number(by.wrong[u], 6), by.wrong[u], " wide"))
        cells.append(cell(percent(by.error[u]), by.error[u]))
        if query and by.ndcg is not None:
            cells.append(cell(f"{by.ndcg[u]:.3f}" if np.isfinite(by.ndcg[u]) else "–", by.ndcg[u]))
        lines.append(f"<tr>{''.join(cells)}</tr>")
    noun = "queries" if query else "rows"
    return (
        '<div class="tools needs-script"><div><label for="search">Search by name</label>'
        '<input type="search" id="search" autocomplete="off" spellcheck="false"></div>'
        '<div id="status" role="status" class="muted"></div></div>'
        '<table class="long" id="by-unit" data-sortable data-search="search" data-status="status" '
        'data-more="more" data-all="all">'
        f"<caption>Errors of {noun}. Click a column head to sort.</caption>"
        f"<thead><tr>{columns}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
        '<div class="needs-script"><button type="button" class="more" id="more">Show more</button>'
        '<button type="button" class="more" id="all">Show all</button></div>'
    )


def worst(analysis: Analysis) -> str:
    """The worst queries with their top and expected documents, or the worst rows."""
    if not analysis.worst:
        return "<p>No pair is in the wrong order.</p>"
    if analysis.errors.unit == "row":
        return _worst_rows(analysis)
    text = (
        f"<p>The {len(analysis.worst)} queries to look at first, {_origin(analysis)}. Errors of "
        "queries with few pairs are shrunk towards the mean, because they are less certain. "
        "“Expected” is the range of ranks that agrees with the label.</p>"
    )
    blocks = [_worst_query(item) for item in analysis.worst if isinstance(item, WorstQuery)]
    return text + "".join(blocks)


def _worst_query(query: WorstQuery) -> str:
    rows = "".join(_document(document) for document in query.top)
    if query.missed:
        rows += '<tr><td colspan="4" class="muted">Should be ranked higher:</td></tr>'
        rows += "".join(_document(document) for document in query.missed)
    table = (
        '<table><thead><tr><th scope="col" class="num">Rank</th><th scope="col">Document</th>'
        '<th scope="col" class="num">Label</th><th scope="col" class="num">Expected</th></tr>'
        f"</thead><tbody>{rows}</tbody></table>"
    )
    reason = ""
    if query.above is not None and query.below is not None:
        reason = (
            f"<p>Worst pair: {name(query.above.name)} (label {number(query.above.label)}) has rank "
            f"{query.above.place:,} and is above {name(query.below.name)} (label "
            f"{number(query.below.label)}) with rank {query.below.place:,}."
        )
        if query.reasons is not None:
            reason += _difference(query.reasons)
        reason += "</p>"
    head = (
        f'<h3>{name(query.name)}</h3><p class="muted">{percent(query.error)} wrong: '
        f"{number(query.wrong, 6)} of {plural(query.pairs, 'pair')} of "
        f"{plural(query.n_documents, 'document')}</p>"
    )
    return f'<article class="worst">{head}{table}{reason}</article>'


def _difference(reasons: Reasons) -> str:
    """Sentence on the contributions to a score difference."""
    text = f" In the model fitted to all training rows, its score is {_by(reasons.difference)}"
    if not reasons.n:
        return f"{text}."
    what = "features" if reasons.kind == "feature" else "training rows"
    text += f", the sum of the contributions of {reasons.n:,} {what}" if reasons.n > 1 else ""
    parts = []
    if reasons.most:
        parts.append(f"Largest contributions: {_listed(reasons.most)}.")
    if reasons.against:
        parts.append(f"Largest opposite contribution: {_listed(reasons.against)}.")
    return f"{text}. {' '.join(parts)}"


def _by(difference: float) -> str:
    if difference == 0:
        return "the same"
    return f"{'higher' if difference > 0 else 'lower'} by {number(abs(difference), 3)}"


def _listed(contributions: list[tuple[str, float]]) -> str:
    return ", ".join(
        f"{name(one)} ({'+' * (share > 0)}{number(share, 3)})" for one, share in contributions
    )


def _document(document: ListedRow) -> str:
    kind = "ok" if document.expected <= document.place <= document.last else "off"
    places = f"{document.expected:,}"
    if document.last > document.expected:
        places += f"–{document.last:,}"
    return (
        f'<tr><td class="num">{document.place:,}</td><th scope="row">{name(document.name)}</th>'
        f'<td class="num">{number(document.label)}</td>'
        f'<td class="num"><span class="{kind}">{places}</span></td></tr>'
    )


def _worst_rows(analysis: Analysis) -> str:
    rows = "".join(
        f'<tr><th scope="row">{name(row.name)}</th><td class="num">{number(row.label)}</td>'
        f'<td class="num">{number(row.score, 3)}</td><td class="num">{percent(row.error)}</td>'
        f'<td class="num wide">{number(row.wrong, 6)} of {row.pairs:,}</td></tr>'
        for row in analysis.worst
        if isinstance(row, WorstRow)
    )
    shown = "their held-out scores" if analysis.scores is not None else "the scores of the model"
    if analysis.test is not None:
        shown = "their scores"
    return (
        f"<p>The rows with the most pairs in the wrong order, with {shown}.</p>"
        '<table><thead><tr><th scope="col">Row</th><th scope="col" class="num">Label</th>'
        '<th scope="col" class="num">Score</th><th scope="col" class="num">Error</th>'
        '<th scope="col" class="num wide">Wrong pairs</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def features(analysis: Analysis) -> str:
    """Table of the most important features."""
    importance, names = analysis.importance, analysis.train.feature_names
    if importance.kind == "none":
        return f"<p>{escape(importance.reason)}</p>"
    if not len(importance.columns):
        return "<p>No feature has an effect: all rows get the same score.</p>"
    n, linear = len(importance.columns), importance.kind == "linear"
    of = f"{n} of {importance.n_used:,}" if importance.n_used > n else f"{n}"
    within = " within a query" if analysis.train.has_qid else ""
    if linear:
        text = (
            "The model is linear. The effect of a feature is its weight times its standard "
            f"deviation{within}: the change of the score if the feature grows by one standard "
            "deviation. If it is positive, larger values are better."
            + " Weights are those of the scaled features."
            * (analysis.before.scaler is not None)
        )
    else:
        where = "test data" if importance.on_test else "training data, so it is optimistic"
        text = (
            "The model is not linear in the features. The effect of a feature is the increase of "
            f"the error if its values are shuffled{within} ({where}). The effect has no sign. The "
            "correlation with the label shows the direction, if there is one."
        )
    largest = float(np.abs(importance.effect).max())
    lines = []
    for k, j in enumerate(importance.columns):
        effect = float(importance.effect[k])
        kind = ' class="minus-text"' if effect < 0 else ""
        shown = f"{effect:+.3g}" if linear else f"{effect:+.2%}"
        cells = [
            f'<th scope="row">{name(names[j])}</th>',
            f'<td class="num"><span{kind}>{escape(shown.replace("-", "−"))}</span></td>',
            f"<td>{bar(effect, largest)}</td>",
        ]
        if importance.weight is not None:
            cells.append(f'<td class="num wide">{number(importance.weight[k], 3)}</td>')
        cells.append(f'<td class="num wide">{number(round(importance.correlation[k], 2))}</td>')
        cells.append(f'<td class="num">{percent(importance.alone[k])}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    weight = '<th scope="col" class="num wide">Weight</th>' if linear else ""
    corrects = ""
    if linear:
        corrects = (
            " If the effect and the correlation have different signs, the feature corrects for "
            "other features."
        )
    return (
        f"<p>{text}</p><table><caption>The {of} features with the largest effect.</caption>"
        '<thead><tr><th scope="col">Feature</th><th scope="col" class="num">Effect</th>'
        f'<td></td>{weight}<th scope="col" class="num wide">Correlation</th>'
        '<th scope="col" class="num">Alone</th></tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
        f'<p class="muted">“Correlation” is the correlation with the label{within}. “Alone” is the '
        "fraction of pairs in the right order if rows are sorted by this feature alone, largest "
        f"first. Below 50%, smallest first is better.{corrects}</p>"
    )
