"""``--auto``: fit an `AutoRanker` to the raw rows of a file, and describe it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from rankrls import AutoRanker
from rankrls._frames import RawTable
from rankrls.cli._files import DataFile
from rankrls.cli._options import AutoOptions
from rankrls.cli._output import Work, note, table, warn
from rankrls.estimators.choosing import Scoring

__all__ = [
    "DEFAULT_SCORING",
    "RAW",
    "fitted",
    "left_out",
    "make_auto",
    "nested",
    "plain",
    "read_like",
    "suit_labels",
    "summary",
    "tell_columns",
    "tell_members",
]

#: What members are chosen by unless ``--scoring`` says something else.
DEFAULT_SCORING = "ndcg@10"

#: Labels above this have gains 2^y − 1 that are too large.
MAX_GAIN = 1000

#: How `DataFile` reads text and missing values as they are.
RAW: dict[str, Any] = {"text": "auto", "missing": "nan"}

#: Names that are printed of a list of columns.
SHOWN_NAMES = 8

#: The beginning of a date in ISO order, a time of day, or a duration of a Parquet file.
DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}(?!\d)|\d{1,2}:\d\d(?!\d)|-?\d+ (s|ms|us|ns)$")

#: A column of text with at least this share of numbers is probably one of numbers.
MOSTLY_NUMBERS = 0.9


def make_auto(options: AutoOptions, seed: int, scoring: str = DEFAULT_SCORING) -> AutoRanker:
    """The ranker of ``--auto``, unfitted; ``scoring`` counts if it was given."""
    scoring = scoring if "scoring" in options.given else DEFAULT_SCORING
    Scoring(scoring)  # report an unknown name before anything is read
    return AutoRanker(scoring, effort=options.effort, random_state=seed)


def suit_labels(ranker: AutoRanker, options: AutoOptions, y: Any) -> None:
    """Choose by pairwise accuracy if NDCG, which nobody asked for, has no gain for the labels."""
    if "scoring" not in options.given and (y.min() < 0 or y.max() > MAX_GAIN):
        ranker.set_params(scoring="pairwise_accuracy")
        note(
            f"labels from {y.min():g} to {y.max():g} have no {DEFAULT_SCORING}: members are chosen "
            "by pairwise_accuracy"
        )


def read_like(X: Any) -> dict[str, Any]:
    """`RAW` for another file, with the columns of text of this one."""
    text = [X.columns[j] for j in X.text] if isinstance(X, RawTable) else None
    return RAW | {"text": text}


def plain(X: Any) -> Any:
    """The numbers of a table without text; otherwise as it is."""
    return X.numbers if isinstance(X, RawTable) and not X.text else X


def fitted(
    ranker: AutoRanker, options: AutoOptions, reader: DataFile, rows: Any, work: Work
) -> AutoRanker:
    """The ranker, fitted to all rows of a file."""
    suit_labels(ranker, options, rows.target)
    work.now(f"Choosing among rankers on {rows.data.shape[0]:,} rows, effort {ranker.effort}")
    with reader.named_errors():
        return ranker.fit(rows.data, rows.target, qid=rows.qid, sample_weight=rows.sample_weight)


def tell_columns(ranker: AutoRanker, X: Any, *, zero_based: bool) -> None:
    """Note, on stderr, which columns are text and which are left out."""
    if isinstance(X, RawTable) and X.text:
        note(f"taken as text: {_listed([X.columns[j] for j in sorted(X.text)])}")
        for j, words in sorted(X.text.items()):
            _warn_of_text(X.columns[j], words)
    dropped = len(ranker._table.dropped_)
    if dropped:
        note(
            f"{dropped:,} of {X.shape[1]:,} columns left out (constant, or ids): "
            f"{left_out(ranker, zero_based=zero_based)}"
        )


def left_out(ranker: AutoRanker, *, zero_based: bool = False) -> str:
    """Names, or LETOR numbers, of the first columns that a ranker does not use."""
    first, names = 0 if zero_based else 1, getattr(ranker, "feature_names_in_", None)
    return _listed(
        [f"feature {first + j}" if names is None else str(names[j]) for j in ranker._table.dropped_]
    )


def summary(ranker: AutoRanker, rows: Any) -> dict[str, Any]:
    """Return a summary of a fit, for ``--json``."""
    return {
        "model": "AutoRanker",
        "effort": ranker.effort,
        "scoring": ranker.scoring,
        "best_score": ranker.best_score_,
        "n_rows": rows.data.shape[0],
        "n_queries": 1 if rows.qid is None else len(set(rows.qid.tolist())),
        "n_features": rows.data.shape[1],
        "n_compared": ranker.n_compared_,
        "n_members": int((ranker.members_["weight"] > 0).sum()),
        "members": ranker.members_,
        "format": rows.format,
        "label_column": rows.target_name,
        "qid_column": rows.qid_name,
    }


def nested(ranker: AutoRanker) -> str:
    """The held-out score of the average, and what it is of."""
    units = "queries" if ranker._with_qid else "folds"
    part = ""
    if ranker.n_compared_ < len(ranker.held_out_scores_):
        part = f"; of {ranker.n_compared_:,} rows"
    return (
        f"{ranker.scoring} {ranker.best_score_:.4f} of the mean, nested: members chosen by other "
        f"{units} than those that are scored{part}"
    )


def _warn_of_text(name: str, words: Any) -> None:
    """Warn if nearly all cells of a column of text are numbers, or most are dates or times."""
    levels, counts = np.unique(words[words != None].astype(str), return_counts=True)  # noqa: E711
    dates = np.array([bool(DATE.match(level)) for level in levels], dtype=bool)
    if counts[dates].sum() > counts.sum() / 2:  # the others may be words for missing dates
        warn(
            f"column {name!r} holds dates or times, which are taken as text: give a number that is "
            f"meant, such as the age in days, or leave it out by --drop {name}"
        )
    numeric = np.array([_is_number(level) for level in levels], dtype=bool)
    n_others = int(counts[~numeric].sum())
    if n_others and counts[numeric].sum() >= MOSTLY_NUMBERS * counts.sum():
        warn(
            f"column {name!r} is taken as text, because {n_others:,} of its {counts.sum():,} cells "
            f"are no numbers, such as {str(levels[~numeric][0])[:40]!r}: leave them empty if they "
            "are missing"
        )


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN_NAMES]) + ", …" * (len(names) > SHOWN_NAMES)


def tell_members(members: dict[str, Any], scoring: str, *, every: bool = False) -> None:
    """Print the members that were chosen, or all candidates, the best first."""
    count = len(members["weight"]) if every else int((members["weight"] > 0).sum())
    numbers = {"alpha": "{:.4g}", "score": "{:.4f}", "weight": "{:.3g}"}
    head = [scoring if name == "score" else name for name in members]
    table(
        head,
        [
            [numbers.get(name, "{}").format(values[i]) for name, values in members.items()]
            for i in range(count)
        ],
        left=len(head) - len(numbers),
    )
