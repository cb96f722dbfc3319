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
        f"By nested cross-validation, their mean has <strong>{escape(metric)} "
        f"{number(round(ranker.best_score_, 4))}</strong> on held-out "
        f"{'queries' if analysis.train.has_qid else 'folds'}."
    )
    if ranker.n_compared_ < len(ranker.held_out_scores_):
        nested += (
            f" Candidates were compared on a sample of {ranker.n_compared_:,} rows in whole "
            "queries."
        )
    text = (
        f"<p>The model is the mean of {plural(chosen, 'ranker')}, chosen from "
        f"{plural(len(table['weight']), 'candidate')} by {escape(metric)} and pairwise accuracy "
        f"(effort “{escape(ranker.effort)}”). Each ranker uses one view of the features. {nested} "
        "The average has no single alpha and no feature weights.</p>"
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
        f"{text}<table><caption>Members. “Held out” is the {escape(metric)} of each member alone."
        f"</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        '<p class="muted">The label “gain” is 2^label − 1. “Compared”: pairs within '
        "queries, or over all rows.</p>"
    )
