"""The section about the members of an `AutoRanker`."""

from __future__ import annotations

from rankrls import AutoRanker
from rankrls.report._analysis import Analysis
from rankrls.report._html import escape, number
from rankrls.report._words import plural

__all__ = ["members"]

#: Columns of the table: title, class of its cells (small screens hide "wide" ones), format.
COLUMNS = {
    "view": ("View", "", "{}"),
    "kernel": ("Kernel", "", "{}"),
    "cost": ("Cost", "wide", "{}"),
    "label": ("Label", "wide", "{}"),
    "compared": ("Compared", "wide", "{}"),
    "alpha": ("alpha", "num wide", "{:.4g}"),
    "score": ("Held out", "num", "{:.4f}"),
    "weight": ("Weight", "num", "{:.3g}"),
}


def members(analysis: Analysis) -> str:
    """Table of the averaged rankers, best first, and the nested score of their average."""
    ranker = analysis.model
    assert isinstance(ranker, AutoRanker)
    table = ranker.members_
    chosen = int((table["weight"] > 0).sum())
    metric = ranker.scoring if isinstance(ranker.scoring, str) else "the given metric"
    nested = (
        f"On held-out {'queries' if analysis.train.has_qid else 'folds'} their mean has "
        f"<strong>{escape(metric)} {number(round(ranker.best_score_, 4))}</strong>, nested: it is "
        "scored where it was not chosen."
    )
    if ranker.n_compared_ < len(ranker.held_out_scores_):
        nested += f" Candidates were compared on {ranker.n_compared_:,} rows of whole queries."
    text = (
        f"<p>The model is the mean of {plural(chosen, 'ranker')} of "
        f"{plural(len(table['weight']), 'candidate')}, each on a view of the features, chosen by "
        f"{escape(metric)} and by pairwise accuracy (effort “{escape(ranker.effort)}”). {nested} "
        "There is no single alpha and no weight of a feature to show.</p>"
    )
    head = "".join(
        f'<th scope="col" class="{kind}">{title}</th>' for title, kind, _ in COLUMNS.values()
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}">{escape(form.format(table[key][i]))}</td>'
            for key, (_, kind, form) in COLUMNS.items()
        )
        + "</tr>"
        for i in range(chosen)
    )
    return (
        f"{text}<table><caption>The members; “held out” is {escape(metric)} of each alone."
        f"</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        '<p class="muted">Label “gain” is 2^label − 1. Compared: rows within their queries, or all '
        "rows.</p>"
    )
