"""Parsing of metric names such as ``ndcg@10``, ``map`` and ``recall@100``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rankrls._validation import SHORT_METRICS, check_metric_name, check_option
from rankrls.metrics import _binary, _cascade, _ndcg, _pairwise
from rankrls.metrics._arguments import ListInputs, check_k

__all__ = [
    "COMPARED_METRICS",
    "LIST_METRICS",
    "PAIR_METRICS",
    "NamedMetric",
    "parse_metric",
    "parse_metrics",
]

#: List metrics: the public function, the function of checked arguments, and the option that
#: defines relevance.
_LISTS: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "ndcg": (_ndcg.ndcg, _ndcg.ndcg_values, "gain"),
    "average_precision": (
        _binary.average_precision,
        _binary.average_precision_values,
        "relevance_threshold",
    ),
    "reciprocal_rank": (
        _binary.reciprocal_rank,
        _binary.reciprocal_rank_values,
        "relevance_threshold",
    ),
    "precision": (_binary.precision, _binary.precision_values, "relevance_threshold"),
    "recall": (_binary.recall, _binary.recall_values, "relevance_threshold"),
    "expected_reciprocal_rank": (
        _cascade.expected_reciprocal_rank,
        _cascade.expected_reciprocal_rank_values,
        "max_grade",
    ),
}

#: Pairwise metrics, which have no cut-off.
_PAIRS: dict[str, Callable[..., Any]] = {
    "pairwise_accuracy": _pairwise.pairwise_accuracy,
    "concordance_index": _pairwise.concordance_index,
    "pairwise_error": _pairwise.pairwise_error,
}

LIST_METRICS = tuple(_LISTS)

#: Metrics for which higher is better.
PAIR_METRICS = ("pairwise_accuracy", "concordance_index")

#: Metrics with a value for each query, for which higher is better.
COMPARED_METRICS = ("pairwise_accuracy", *LIST_METRICS)


@dataclass(frozen=True)
class NamedMetric:
    """A metric given by name.

    Attributes
    ----------
    text : str
        The name as it was written, such as "map@5".
    name : str
        Name of the function, such as "average_precision".
    k : int or None
        Cut-off.
    """

    text: str
    name: str
    k: int | None

    @property
    def is_list(self) -> bool:
        """Whether it is a list metric rather than a pairwise metric."""
        return self.name in _LISTS

    @property
    def option(self) -> str | None:
        """The option that defines relevance; None for pairwise metrics."""
        return _LISTS[self.name][2] if self.is_list else None

    @property
    def function(self) -> Callable[..., Any]:
        """The function in `rankrls.metrics`."""
        return _LISTS[self.name][0] if self.is_list else _PAIRS[self.name]

    @property
    def options(self) -> dict[str, Any]:
        """The cut-off as an argument of the function."""
        return {} if self.k is None else {"k": self.k}

    def __call__(self, y_true: Any, y_score: Any, **others: Any) -> Any:
        """Evaluate scores."""
        return self.function(y_true, y_score, **self.options, **others)

    def values(self, inputs: ListInputs, option: Any) -> Callable[[Any, Any], Any]:
        """Return the function that computes a list metric with the cut-off of ``inputs``."""
        return _LISTS[self.name][1](inputs, option)


def parse_metric(
    text: Any, argument: str = "metric", *, allowed: Iterable[str] | None = None
) -> NamedMetric:
    """Parse the name of a metric.

    Parameters
    ----------
    text : str
        ``name`` or ``name@k``, with the name of a function, or map, mrr or err.
    argument : str
        Name of the argument, for error messages.
    allowed : iterable of str, optional
        Names of the functions that are accepted; by default all.
    """
    name, at, cut = text.partition("@") if isinstance(text, str) else (text, "", "")
    if isinstance(name, str) and name in SHORT_METRICS:
        name = SHORT_METRICS[name]
    choices = (*PAIR_METRICS, "pairwise_error", *_LISTS) if allowed is None else tuple(allowed)
    if name not in choices:
        check_metric_name(argument, text, allowed=choices)
    short = [word for word, meant in SHORT_METRICS.items() if meant in choices]
    check_option(argument, name, (*choices, *short))
    if at and name not in _LISTS:
        raise ValueError(
            f"{argument}={text!r}: {name} has no cut-off; only list metrics have one, as in "
            "'ndcg@10'"
        )
    if at and not (cut.isascii() and cut.isdigit()):
        raise ValueError(
            f"{argument}={text!r}: a cut-off is written name@k with k an integer, as in 'ndcg@10'"
        )
    return NamedMetric(text, name, check_k(int(cut)) if at else None)


def parse_metrics(
    given: str | Sequence[str],
    argument: str = "metrics",
    *,
    allowed: Iterable[str] | None = None,
) -> list[NamedMetric]:
    """Parse metrics from a list of names or a comma-separated string; see `parse_metric`."""
    texts = given.split(",") if isinstance(given, str) else given
    if not isinstance(texts, Iterable):
        raise ValueError(f"{argument} must be names of metrics, as in 'ndcg@10,map'; got {given!r}")
    texts = [text.strip() if isinstance(text, str) else text for text in texts]
    parsed = [parse_metric(text, argument, allowed=allowed) for text in texts if text != ""]
    if not parsed:
        raise ValueError(f"{argument} is empty; give metric names, for example 'ndcg@10,map'")
    for place, metric in enumerate(parsed):
        if metric.text in [other.text for other in parsed[:place]]:
            raise ValueError(f"{argument}: {metric.text!r} comes twice")
    return parsed
