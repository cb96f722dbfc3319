"""Metrics as they are asked for on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rankrls.cli._options import DataOptions
from rankrls.metrics.metric_names import METRICS, NamedMetric

__all__ = ["Relevance", "refuse_data_options", "refuse_run_options", "shown_metric"]

#: Options that say what is relevant: how they are written, and the argument.
OPTIONS = {
    "threshold": ("--relevant", "relevance_threshold"),
    "gain": ("--gain", "gain"),
    "max_grade": ("--max-grade", "max_grade"),
}


@dataclass(frozen=True)
class Relevance:
    """What counts as relevant; see `relevance_options`."""

    threshold: float
    gain: str
    max_grade: float
    undefined: str
    given: frozenset[str]

    def refuse_unused(self, asked: Sequence[NamedMetric]) -> None:
        """Raise for an option that none of the metrics has."""
        used = {metric.option for metric in asked}
        for name, (option, argument) in OPTIONS.items():
            if name in self.given and argument not in used:
                metrics = [r.short or m for m, r in METRICS.items() if argument in r.takes]
                listed = " and ".join(filter(None, (", ".join(metrics[:-1]), metrics[-1])))
                raise ValueError(f"{option} is for {listed}, and none of them is asked for")
        if "undefined" in self.given and used == {None}:
            raise ValueError("--undefined is for metrics of lists, and none of them is asked for")

    @property
    def fill(self) -> Any:
        """Value of a query without a relevant row."""
        return self.undefined if self.undefined == "skip" else int(self.undefined)

    def arguments(self) -> dict[str, Any]:
        """As arguments of `rankrls.metrics.evaluate`."""
        return {
            "relevance_threshold": self.threshold,
            "gain": self.gain,
            "max_grade": self.max_grade,
            "undefined": self.fill,
        }

    def of(self, metric: NamedMetric) -> dict[str, Any]:
        """As arguments of the function of a list metric."""
        options = self.arguments()
        return {name: options[name] for name in (str(metric.option), "undefined")}


def shown_metric(metric: NamedMetric) -> str:
    """How a metric is called in a result."""
    name, at, cut = metric.text.partition("@")
    return (name.upper() if len(name) <= 4 else name) + at + cut  # abbreviations in capitals


def refuse_data_options(options: DataOptions, instead: str) -> None:
    """Raise for options of reading rows where there are none."""
    names = {"qid_column": "--qid-column", "one_ranking": "--one-ranking"}
    for name in sorted(options.given & set(DataOptions.__dataclass_fields__)):
        option = names.get(name, f"--{name.replace('_', '-')}")
        raise ValueError(f"{option} is for a file of rows: {instead} has none")


def refuse_run_options(given: frozenset[str]) -> None:
    """Raise for options of runs where there is none."""
    for name in ("ties", "missing_queries"):
        if name in given:
            raise ValueError(f"--{name.replace('_', '-')} is for runs with --qrels")
