"""Sections of the page with text, figures and small tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankrls.report._analysis import Analysis
from rankrls.report._html import escape, name, number, percent
from rankrls.report._svg import columns_chart, histogram, path_chart
from rankrls.report._words import interval, plural, source, units

__all__ = ["alpha", "data", "findings", "held_out", "short"]

_TAGS = {"problem": "Problem", "warning": "Warning", "note": "Note"}


def short(analysis: Analysis) -> str:
    """Summary of the result in a sentence and four numbers."""
    error = analysis.error
    what = "new queries" if analysis.train.has_qid else "new rows"
    verdict = (
        f"On {what}, the model ranks about <strong>{percent(error.value)}</strong> of the pairs in "
        "the wrong order. A random order has an error of 50%"
    )
    if analysis.baseline is not None:
        verdict += (
            f", and the best single feature, {name(analysis.baseline.feature)}, one of "
            f"{percent(analysis.baseline.error)}"
        )
    levels = [finding.level for finding in analysis.findings]
    serious = [
        plural(levels.count(level), level) for level in ("problem", "warning") if level in levels
    ]
    if serious:
        verdict += f'. There {_are(levels)} <a href="#findings">{" and ".join(serious)}</a>'
    tiles = [
        ("Pairwise error", percent(error.value), f"{interval(error)}; {source(analysis)}"),
    ]
    path, gain = analysis.held.path, analysis.errors.mean_ndcg
    searched = path is not None and len(path.alphas) > 1 and analysis.plan.fixed is None
    if gain is not None:
        note = f"mean over {plural(gain.n, 'query', 'queries')}"
        if gain.method != "none":
            note = f"{gain.level:.0%} interval {gain.low:.3f} to {min(1.0, gain.high):.3f}; {note}"
        if analysis.test is None and searched:
            note += "; alpha chosen by the same queries"
        tiles.append(("NDCG@10", f"{gain.value:.3f}", note))
    if analysis.alpha is not None:
        note = f"best of {len(path.alphas)} values" if path is not None and searched else "as given"
        tiles.append(("alpha", number(analysis.alpha), note))
    pairs = analysis.summary.n_pairs
    where = "in one ranking"
    if analysis.train.has_qid:
        where = f"in {plural(analysis.summary.n_with_pairs, 'query', 'queries')}"
    tiles.append(("Training pairs", _compact(pairs), where))
    boxes = "".join(
        f'<div class="tile"><dt>{escape(key)}</dt><dd class="big">{value}</dd>'
        f'<dd class="small">{note}</dd></div>'
        for key, value, note in tiles
    )
    return f'<p class="lead">{verdict}.</p><dl class="tiles">{boxes}</dl>'


def _are(levels: Sequence[str]) -> str:
    first = "problem" if "problem" in levels else "warning"
    return "is" if levels.count(first) == 1 else "are"


def _compact(n: int) -> str:
    for size, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**4, "k")):
        if n >= size:
            scale = 1000 if unit == "k" else size
            return f"{n / scale:.3g}\N{NO-BREAK SPACE}{unit}"
    return f"{n:,}"


def findings(analysis: Analysis) -> str:
    """List of problems, warnings and notes."""
    if not analysis.findings:
        return (
            "<p>No problems were found: no queries without pairs, no duplicate rows, no constant "
            "features, no feature that reveals the labels.</p>"
        )
    items = []
    for finding in analysis.findings:
        examples = ""
        if finding.examples:
            listed = " · ".join(name(example) for example in finding.examples)
            examples = f'<p class="examples">{listed}</p>'
        items.append(
            f'<li class="finding {finding.level}" data-code="{escape(finding.code)}">'
            f'<h3><span class="tag">{_TAGS[finding.level]}</span>{escape(finding.title)}</h3>'
            f"<p>{escape(finding.text)}</p>{examples}</li>"
        )
    return f'<ul class="findings">{"".join(items)}</ul>'


def data(analysis: Analysis) -> str:
    """Counts, distribution of labels, sizes of queries."""
    summary, test = analysis.summary, analysis.test_summary
    columns = [summary] if test is None else [summary, test]
    rows: list[tuple[str, list[str]]] = [("Rows", [f"{s.n_rows:,}" for s in columns])]
    if analysis.train.has_qid:
        rows.append(("Queries", [f"{s.n_queries:,}" for s in columns]))
        rows.append(("Queries with a pair", [f"{s.n_with_pairs:,}" for s in columns]))
        rows.append(("Rows per query, median", [f"{s.size_quantiles[2]:,}" for s in columns]))
        sizes = [f"{s.size_quantiles[0]:,} – {s.size_quantiles[4]:,}" for s in columns]
        rows.append(("Rows per query, range", sizes))
    rows.append(("Pairs with different labels", [f"{s.n_pairs:,}" for s in columns]))
    rows.append(("Distinct labels", [f"{s.n_levels:,}" for s in columns]))
    if not analysis.plan.precomputed:
        rows.append(("Features", [f"{s.n_features:,}" for s in columns]))
    if summary.density is not None:
        rows.append(("Non-zero entries", [percent(s.density or 0.0, 2) for s in columns]))
    head = ""
    if test is not None:
        head = (
            '<thead><tr><td></td><th scope="col" class="num">Training</th>'
            '<th scope="col" class="num">Test</th></tr></thead>'
        )
    body = "".join(
        f'<tr><th scope="row">{escape(key)}</th>'
        + "".join(f'<td class="num">{value}</td>' for value in values)
        + "</tr>"
        for key, values in rows
    )
    table = f'<table class="facts">{head}<tbody>{body}</tbody></table>'
    figures = [_labels_figure(analysis)]
    if analysis.train.has_qid and summary.size_quantiles[0] < summary.size_quantiles[4]:
        sizes_of = analysis.train.sizes
        chart = histogram(
            sizes_of,
            name="Sizes of queries",
            about=f"From {sizes_of.min()} to {sizes_of.max()} rows, median "
            f"{summary.size_quantiles[2]}.",
            percent=False,
            axis="rows per query",
        )
        figures.append(
            f"<figure>{chart}<figcaption>Training queries by number of rows.</figcaption></figure>"
        )
    return f'<div class="trio">{table}{"".join(figures)}</div>'


def _labels_figure(analysis: Analysis) -> str:
    summary = analysis.summary
    edges, counts = summary.label_edges, summary.label_counts
    binned = len(edges) > len(counts)
    names = [number(edge, 3) for edge in (edges[:-1] if binned else edges)]
    share = counts / max(1, counts.sum())
    about = "; ".join(f"{one}: {percent(s)}" for one, s in zip(names, share, strict=True))
    chart = columns_chart(
        names, counts, name="Labels", about=about, axis="label" + (" (from)" if binned else "")
    )
    text = f"Labels of the training rows. Most frequent: {names[int(np.argmax(counts))]} "
    text += f"({percent(float(share.max()))})."
    return f"<figure>{chart}<figcaption>{escape(text)}</figcaption></figure>"


def alpha(analysis: Analysis) -> str:
    """Held-out error against alpha."""
    path = analysis.held.path
    if path is None:
        return (
            "<p>The estimator is fitted with its own parameters"
            + ("" if analysis.alpha is None else f", alpha = {number(analysis.alpha)}")
            + ". No other alphas are compared.</p>"
        )
    chosen = f"alpha = {number(path.alphas[path.chosen])}"
    if analysis.plan.fixed is not None:
        text = f"{chosen} (marked) is the given value."
        if path.best != path.chosen:
            text += (
                f" The best alpha of the grid is {number(path.alphas[path.best])}, with an error "
                f"of {percent(path.error[path.best], 2)} instead of "
                f"{percent(path.error[path.chosen], 2)}."
            )
    elif len(path.alphas) == 1:
        text = f"{chosen} is the only value in the grid."
    else:
        text = (
            f"{chosen} (marked) has the smallest held-out error, "
            f"{percent(path.error[path.chosen], 2)}. If several values tie, the largest is chosen."
        )
    if path.spread is not None:
        text += (
            f" The band is ± one standard error over {path.over}. All alphas are evaluated on the "
            f"same {path.over}, so differences between them are more certain than the band."
        )
    elif analysis.held.method == "leave-pair-out":
        text += " No band is shown: pairs of one ranking share rows, so they are not independent."
    if path.at_edge is not None and len(path.alphas) > 1:
        text += f" It is the {path.at_edge} alpha of the grid."
    what = "Held-out pairs in the wrong order"
    if path.metric != "pairwise_accuracy":
        what = f"1 − {path.metric} on held-out data, the criterion for alpha"
    about = (
        f"Lowest at alpha {number(path.alphas[path.best])} with {path.error[path.best]:.2%}, "
        f"highest {path.error.max():.2%}."
    )
    chart = path_chart(path.alphas, path.error, path.spread, path.chosen, about=about)
    head = '<th scope="col" class="num">alpha</th><th scope="col" class="num">error</th>'
    if path.spread is not None:
        head += '<th scope="col" class="num">± standard error</th>'
    rows = "".join(
        "<tr>"
        f'<td class="num">{number(path.alphas[k])}{" (chosen)" if k == path.chosen else ""}</td>'
        f'<td class="num">{percent(path.error[k], 2)}</td>'
        + ("" if path.spread is None else f'<td class="num">{percent(path.spread[k], 2)}</td>')
        + "</tr>"
        for k in range(len(path.alphas))
    )
    table = f'<table class="facts"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return (
        f'<div class="pair"><figure>{chart}<figcaption>{escape(what)}, by alpha.'
        f"</figcaption></figure><div><p>{text}</p>"
        f"<details><summary>Table of values</summary>{table}</details></div></div>"
    )


def held_out(analysis: Analysis) -> str:
    """Error of the model, and how it was estimated."""
    held, error = analysis.held, analysis.error
    rows: list[tuple[str, str, str]] = []
    if analysis.test is not None:
        rows.append(("Test data", percent(error.value, 2), interval(error)))
    rows.append(
        (f"Cross-validation ({_how(held)})", percent(held.estimate.value, 2),
         interval(held.estimate))
    )  # fmt: skip
    if held.corrected and held.path is not None and held.estimate.value != held.errors.mean.value:
        rows.append(
            ("… with alpha chosen on the same queries", percent(held.errors.mean.value, 2),
             "slightly optimistic")
        )  # fmt: skip
    rows.append(("Training rows", percent(analysis.train_error, 2), "optimistic"))
    if analysis.baseline is not None:
        sign = "smallest" if analysis.baseline.ascending else "largest"
        rows.append(
            (f"Best single feature ({sign} first)", percent(analysis.baseline.error, 2),
             name(analysis.baseline.feature))
        )  # fmt: skip
    rows.append(("Random order", percent(0.5, 2), ""))
    body = "".join(
        f'<tr><th scope="row">{escape(key)}</th><td class="num">{value}</td><td>{note}</td></tr>'
        for key, value, note in rows
    )
    table = (
        '<table><thead><tr><td></td><th scope="col" class="num">Error</th>'
        f'<th scope="col">Note</th></tr></thead><tbody>{body}</tbody></table>'
    )
    text = "".join(f"<p>{paragraph}</p>" for paragraph in _explain(analysis))
    return f"{table}<h3>How the error is estimated</h3>{text}"


def _how(held: Any) -> str:
    return held.method if held.n_folds is None else f"{held.n_folds} folds"


def _explain(analysis: Analysis) -> list[str]:
    held, error = analysis.held, analysis.error
    paragraphs = [
        "The pairwise error is the fraction of pairs of documents with different labels"
        + (" in the same query" if analysis.train.has_qid else "")
        + " that the scores rank in the wrong order. A tied pair counts as half an error."
        + (" It is averaged over queries, whatever their number of pairs."
           if held.errors.unit == "query" else "")
    ]  # fmt: skip
    if analysis.test is not None:
        paragraphs.append("It is computed on the test data, which were not used to fit the model.")
    elif held.method == "leave-query-out":
        who = "a model" if held.model is None else "members"
        paragraphs.append(
            f"Each query is predicted by {who} fitted to all other queries. This is exact: the "
            "predictions equal those of a refit for each query."
            + (" For each query, alpha is chosen by the held-out errors of the other queries, so "
               "the choice of alpha does not bias the estimate."
               if held.corrected and analysis.plan.fixed is None and held.path is not None
               and len(held.path.alphas) > 1 else "")
        )  # fmt: skip
    elif held.method == "leave-pair-out":
        paragraphs.append(
            "Each pair of rows with different labels is predicted by a model fitted to all "
            "other rows. This is exact: the predictions equal those of a refit for each pair."
        )
    else:
        unit = "whole queries" if analysis.train.has_qid else "rows"
        paragraphs.append(
            f"The data are split at random into {held.n_folds} folds of {unit}. Each fold is "
            "predicted by a model fitted to the other folds."
        )
    if analysis.test is None and not held.corrected:
        chosen = "alpha was" if held.model is None else "The members were"
        paragraphs.append(
            f"{chosen} chosen by the same held-out predictions, so the estimate is slightly "
            "optimistic. Use a test set or nested cross-validation to avoid this."
        )
    if analysis.before.scaler is not None:
        paragraphs.append(
            "The scaler was fitted to the features of all training rows, including held-out rows. "
            "It does not use labels."
        )
    if analysis.train.weight is not None:
        paragraphs.append("Rows are weighted in training. Errors do not use the weights.")
    paragraphs.append(_interval_text(error, units(analysis)))
    return paragraphs


def _interval_text(error: Any, what: str) -> str:
    if error.method == "none":
        return f"There are too few {what} ({error.n}) for a confidence interval."
    how = {
        "bootstrap": "is a percentile bootstrap over queries",
        "student": "is a Student t interval over queries",
        "jackknife": "is a jackknife over rows",
    }[error.method]
    return (
        f"The {error.level:.0%} interval {how}. It assumes that the {error.n:,} {what} are "
        "independent draws from the same distribution as new ones. The variation due to the "
        "training set is not included."
    )
