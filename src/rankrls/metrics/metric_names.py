"""The table of metrics that have names, and the names as they are written, such as ``ndcg@10``.

`METRICS` is used wherever a metric is given by name: `evaluate`, scorers, comparisons, ``scoring``
of estimators and the command line. To add a metric, write a function and a row of the table; what
the metric takes (a cut-off, an option of `evaluate`, ``average``) is read from its signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rankrls._validation import check_option
from rankrls.metrics._lists import (
    average_precision,
    check_k,
    expected_reciprocal_rank,
    ndcg,
    precision,
    recall,
    reciprocal_rank,
)
from rankrls.metrics._pairwise import concordance_index, pairwise_accuracy, pairwise_error

#: Options of `evaluate` that define what is relevant; a list metric takes one of them.
OPTIONS = ("gain", "relevance_threshold", "max_grade")


@dataclass(frozen=True)
class Metric:
    """A row of the table, or a metric given by name: a row with its ``text`` and cut-off."""

    function: Callable[..., Any]
    short: str | None = None  # a name that is accepted as well
    elsewhere: tuple[str, ...] = ()  # names in other libraries, in lower case, for advice
    error: bool = False  # lower is better
    bounds: tuple[float, float] | None = (0.0, 1.0)
    text: str = ""
    k: int | None = None

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.__name__

    @cached_property
    def takes(self) -> frozenset[str]:
        """Names of the function's arguments."""
        return frozenset(inspect.signature(self.function).parameters)

    @property
    def is_list(self) -> bool:
        """Whether it is a list metric, which has a cut-off, rather than a pairwise metric."""
        return "k" in self.takes

    @property
    def option(self) -> str | None:
        """The option that defines relevance; None if there is none."""
        return next((option for option in OPTIONS if option in self.takes), None)

    @property
    def options(self) -> dict[str, Any]:
        """The cut-off as an argument of the function."""
        return {} if self.k is None else {"k": self.k}

    def __call__(self, y_true: Any, y_score: Any, **others: Any) -> Any:
        """Evaluate scores."""
        return self.function(y_true, y_score, **self.options, **others)


METRICS = {
    row.name: row
    for row in (
        Metric(pairwise_accuracy, None, ("auc", "auroc", "roc_auc", "roc_auc_score", "accuracy",
                                         "pairwise", "error", "pairwise_error")),
        Metric(concordance_index, None, ("cindex", "c_index", "c-index", "concordance")),
        Metric(pairwise_error, error=True),
        Metric(ndcg, None, ("ndcg_score", "ndcg_cut")),
        Metric(average_precision, "map", ("ap", "mean_average_precision", "map_cut",
                                          "average_precision_score")),
        Metric(reciprocal_rank, "mrr", ("rr", "mean_reciprocal_rank", "recip_rank")),
        Metric(precision, None, ("p", "prec", "precision_score")),
        Metric(recall, None, ("r", "rec", "recall_score")),
        Metric(expected_reciprocal_rank, "err"),
    )
}  # fmt: skip

#: Metrics of ranked lists, which have a cut-off.
LIST_METRICS = tuple(name for name, row in METRICS.items() if row.is_list)

#: Pairwise metrics for which higher is better.
PAIR_METRICS = tuple(n for n, row in METRICS.items() if not row.is_list and not row.error)

#: Metrics with a value for each query, for which higher is better.
COMPARED_METRICS = tuple(
    name for name, row in METRICS.items() if "average" in row.takes and not row.error
)

_SHORT = {row.short: name for name, row in METRICS.items() if row.short is not None}


def parse_metric(
    text: Any, argument: str = "metric", *, allowed: Iterable[str] | None = None
) -> Metric:
    """Parse ``name`` or ``name@k``, by default any; errors call it ``argument``."""
    name, at, cut = text.partition("@") if isinstance(text, str) else (text, "", "")
    if isinstance(name, str):
        name = _SHORT.get(name, name)
    choices = tuple(METRICS) if allowed is None else tuple(allowed)
    if name not in choices:
        check_metric_name(argument, text, allowed=choices)
        short = (s for s, meant in _SHORT.items() if meant in choices)
        check_option(argument, name, (*choices, *short))
    if at and name not in LIST_METRICS:
        raise ValueError(
            f"{argument}={text!r}: {name} has no cut-off; only list metrics have one, as in "
            "'ndcg@10'"
        )
    if at and not (cut.isascii() and cut.isdigit()):
        raise ValueError(
            f"{argument}={text!r}: a cut-off is written name@k with k an integer, as in 'ndcg@10'"
        )
    return replace(METRICS[name], text=text, k=check_k(int(cut)) if at else None)


def parse_metrics(
    given: str | Sequence[str],
    argument: str = "metrics",
    *,
    allowed: Iterable[str] | None = None,
) -> list[Metric]:
    """Parse metrics from a list of names or a comma-separated string; see `parse_metric`."""
    texts = given.split(",") if isinstance(given, str) else given
    if not isinstance(texts, Iterable):
        raise ValueError(f"{argument} must be names of metrics, as in 'ndcg@10,map'; got {given!r}")
    texts = [text.strip() if isinstance(text, str) else text for text in texts]
    parsed = [parse_metric(text, argument, allowed=allowed) for text in texts if text != ""]
    if not parsed:
        raise ValueError(f"{argument} is empty; give metric names, for example 'ndcg@10,map'")
    for place, metric in enumerate(parsed):
        if metric in parsed[:place]:
            raise ValueError(f"{argument}: {metric.text!r} comes twice")
    return parsed


def check_metric_name(argument: str, value: Any, *, allowed: Collection[str]) -> None:
    """Raise with advice if a metric, one of ``allowed``, has another name here."""
    name, _, cut = str(value).lower().partition("@")
    for here, row in METRICS.items():
        if here not in allowed or name not in (here, row.short, *row.elsewhere):
            continue
        here = row.short if name == row.short else here
        here = f"{here}@{cut}" if cut and row.is_list else here
        hint = f"it is called {here!r} here"
        if "au" in name:
            hint = f"of two classes {here!r} is the AUC, within queries"
        elif "error" in name:
            hint = "higher must be better: use 'pairwise_accuracy', 1 − the error"
        if value != here:
            raise ValueError(f"{argument}={value!r}: {hint}")
