"""``rankrls evaluate``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rankrls._streams import DamagedError, opened
from rankrls.cli._do_predict import rows_for, scored
from rankrls.cli._estimators import Scorer
from rankrls.cli._files import DataFile, Stream, shown
from rankrls.cli._metric_options import (
    Relevance,
    refuse_data_options,
    refuse_run_options,
    shown_metric,
)
from rankrls.cli._options import DataOptions
from rankrls.cli._output import Work, facts, number, queries, require_stdout, table, to_json, warn
from rankrls.cli._refusals import refuse_columns
from rankrls.datasets import load_qrels, load_run
from rankrls.metrics import evaluate_run, mean_interval, pairwise_error
from rankrls.metrics.metric_names import LIST_METRICS, NamedMetric, parse_metric, parse_metrics

__all__ = ["evaluate", "labels_and_scores"]


def evaluate(
    options: DataOptions,
    relevance: Relevance,
    *,
    data: Sequence[str],
    model: str | None,
    scores: str | None,
    run: str | None,
    qrels: str | None,
    metrics: Sequence[str],
    k: int,
    ties: str,
    missing_queries: str,
    per_query: bool,
    as_json: bool,
) -> None:
    """Print measures of the order that scores give the rows of a file, or of a run."""
    require_stdout()
    if "k" in relevance.given and metrics:
        raise ValueError("--at is for NDCG and precision where no --metrics are named: write @K")
    of_run = run is not None or qrels is not None
    asked = _asked(metrics, of_run) if metrics else default_metrics(k)
    relevance.refuse_unused(asked)
    if of_run:
        _refuse_rows(options, data, model, scores, run, qrels)
        found, judged = load_run(_path(run)), load_qrels(_path(qrels))
        how: dict[str, Any] = {"ties": ties, "missing_queries": missing_queries, "average": None}
        names = [metric.text for metric in asked]
        values = evaluate_run(found, judged, metrics=names, **how, **relevance.arguments())
        _RunMeasures(found, judged, asked, values, missing_queries).tell(per_query, as_json)
        return
    if not data:
        raise ValueError("name a file of rows, or give a run and judgements by --run and --qrels")
    refuse_run_options(relevance.given)
    if (model is None) == (scores is None):
        raise ValueError("give a model by -m, or --scores")
    if scores == "-" and "-" in data:
        raise ValueError("stdin cannot be both the data and the scores")
    refuse_columns(options, "evaluate")
    if scores is not None and "features" in options.given:
        raise ValueError("--features is for a model: --scores needs no feature")
    if scores is not None and "missing" in options.given:
        raise ValueError("--missing is for a model: --scores needs no feature")
    y, qid, (score,) = labels_and_scores(options, data, [(model, scores)])
    measures = _Measures(y, score, qid, asked, relevance, bool(metrics))
    if per_query:
        measures.tell_queries(as_json)
    elif as_json:
        to_json(measures.summary())
    else:
        measures.tell()


def _asked(metrics: Sequence[str], of_run: bool) -> list[NamedMetric]:
    """Parse --metrics, for a run or for rows."""
    names = ",".join(metrics)
    if "concordance_index" in names and not of_run:
        raise ValueError("--metrics: 1 - concordance_index is what 'pairwise_error_all_pairs' says")
    pairs = () if of_run else ("pairwise_accuracy", "pairwise_error")
    return parse_metrics(names, "--metrics", allowed=(*pairs, *LIST_METRICS))


def default_metrics(k: int) -> list[NamedMetric]:
    """What is printed where nothing is asked for."""
    return parse_metrics([f"ndcg@{k}", "map", "mrr", f"precision@{k}"])


def _refuse_rows(options: DataOptions, *given: Any) -> None:
    """Raise unless there are a run and judgements, and nothing about rows."""
    data, model, scores, run, qrels = given
    if run is None or qrels is None:
        raise ValueError("--run and --qrels go together: a run, and the judgements for it")
    for what, value in (("a file of rows", data), ("-m", model), ("--scores", scores)):
        if value:
            raise ValueError(f"--run has scores and --qrels has labels: leave out {what}")
    refuse_data_options(options, "--run")


def _path(path: str | None) -> Any:
    return Stream(sys.stdin.buffer, "stdin") if path == "-" else path


def labels_and_scores(
    options: DataOptions,
    data: str | Sequence[str],
    sources: Sequence[tuple[str | None, str | None]],
) -> tuple[Any, Any, list[Any]]:
    """Labels and query ids, or None, of all rows; and scores by each of some models or files.

    A source is a model and None, or None and a file of scores. Only what is returned is kept in
    memory; rows are read once for each source.
    """
    found = []
    y: Any = None
    qid: Any = None
    for model, scores in sources:
        given = None if scores is None else _read_scores(scores)
        y, qid, score, name = _read(options, data, model)
        score = score if given is None else given
        if score.ndim > 1:
            raise ValueError("the model has several outputs: evaluate it in Python")
        if len(score) != len(y):
            raise ValueError(
                f"{shown(str(scores))} has {len(score)} scores, and {name} {len(y)} rows"
            )
        found.append(score)
    return y, qid, found


def _read(options: DataOptions, data: str | Sequence[str], model: Any) -> tuple[Any, Any, Any, str]:
    """Labels, query ids or None, scores by a model or None, and the name of the file."""
    need = ("target",) if options.one_ranking else ("target", "qid")
    labels, queries = [], []
    found: list[Any] = []
    scorer = None if model is None else Scorer(model)
    rows = (DataFile(data, options, need=need, named=[]) if scorer is None
            else rows_for(scorer, data, options, need))  # fmt: skip
    with Work(f"Scoring {rows.name}", rows.total) as work:
        parts = ((batch, None) for batch in rows.parts(work, by_query=False)) if (
            scorer is None) else scored(scorer, rows, work)  # fmt: skip
        for batch, score in parts:
            labels.append(batch.target)
            queries.append(batch.qid)
            found.append(score)
    qid = None if queries[0] is None else np.concatenate(queries)
    scores = None if scorer is None else np.concatenate(found)
    return np.concatenate(labels), qid, scores, rows.name


def _read_scores(path: str) -> Any:
    """One number on each line; empty lines are skipped."""
    try:
        with opened(_path(path)) as file:
            lines = b"".join(iter(partial(file.read, 1 << 20), b"")).splitlines()
    except DamagedError as error:
        raise ValueError(f"{shown(path)}: {error}; get the file again") from error
    numbers = []
    for place, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = float(line)
        except ValueError:
            value = np.nan
        if not np.isfinite(value):
            text = line.decode("utf-8", "replace")[:40]
            raise ValueError(f"{shown(path)}:{place}: {text!r} is not one finite number")
        numbers.append(value)
    if not numbers:
        raise ValueError(f"{shown(path)}: no data: there are no scores")
    return np.array(numbers)


class _Measures:
    """Measures of every query, and over all of them."""

    def __init__(
        self,
        y: Any,
        score: Any,
        qid: Any,
        asked: list[NamedMetric],
        relevance: Relevance,
        by_name: bool,
    ) -> None:
        self.asked, self.undefined = asked, relevance.undefined
        self.n_rows = len(y)
        labels = np.zeros(len(y), dtype=np.int64) if qid is None else qid
        names, first, codes = np.unique(labels, return_index=True, return_inverse=True)
        # Queries in the order in which they come.
        order = np.argsort(first)
        self.names = names[order]
        codes = np.argsort(order)[codes]
        self.sizes = np.bincount(codes)
        self.pairs = _n_pairs(y, codes)
        counted = self.pairs > 0
        if not counted.any() and not (by_name or "undefined" in relevance.given):
            raise ValueError(
                "there is no preference to evaluate: no query has two rows with different labels; "
                "for metrics that need none, name them by --metrics"
            )
        self.errors: Any = np.full(len(self.names), np.nan)
        wrong: Any = self.errors
        if counted.any():
            self.errors = pairwise_error(y, score, qid=codes, average=None)
            # A pair is swapped if its order is wrong, or if there is none, as in svm_rank.
            wrong = pairwise_error(y, score, qid=codes, average=None, ties="error")
        half = np.where(counted, self.errors, 0) * self.pairs
        self.swapped = np.rint(np.where(counted, wrong, 0) * self.pairs).astype(np.int64)
        self.tied = np.rint(2 * (self.swapped - half)).astype(np.int64)
        self.lists: dict[str, Any] = {}
        for metric in asked:
            options = relevance.of(metric) if metric.is_list else {}
            try:
                values = metric(y, score, qid=codes, average=None, **options)
            except ValueError as error:
                if by_name or metric.name != "ndcg" or ((y >= 0) & (y <= 1000)).all():
                    raise
                warn(f"NDCG is left out: {error}")
                values = np.full(len(self.names), np.nan)
            self.lists[metric.text] = values
        if not counted.any() and all(np.isnan(values).all() for values in self.lists.values()):
            raise ValueError(
                "no query has a relevant row, or two rows with different labels: --undefined 0 "
                "counts such queries 0"
            )
        above, relevant = y > 0, y >= relevance.threshold
        self.n_without_gain = len(self.names) - len(np.unique(codes[above]))
        self.n_without_relevant = len(self.names) - len(np.unique(codes[relevant]))

    def summary(self) -> dict[str, Any]:
        """One number for each measure."""
        counted = self.pairs > 0
        n_pairs, swapped = int(self.pairs.sum()), int(self.swapped.sum())
        perfect = int((self.swapped[counted] == 0).sum())
        error = _mean(self.errors)
        means = {name: _mean(values) for name, values in self.lists.items()}
        intervals = {}
        for name, values in {"pairwise_error": self.errors, **self.lists}.items():
            bounds = parse_metric(name).bounds
            low_high = mean_interval(values, bounds=bounds)
            intervals[f"{name}_low"], intervals[f"{name}_high"] = low_high
        return {
            "pairwise_error": error,
            "pairwise_accuracy": 1 - error,
            "pairwise_error_all_pairs": _share((self.errors * self.pairs)[counted].sum(), n_pairs),
            **means,
            "swapped_pairs": swapped,
            "tied_pairs": int(self.tied.sum()),
            "n_pairs": n_pairs,
            "perfect_queries": perfect,
            "zero_one_error": 1 - _share(perfect, counted.sum()),
            "n_queries": len(self.names),
            "n_queries_with_pairs": int(counted.sum()),
            "n_queries_without_relevant": int(self.n_without_relevant),
            "n_rows": self.n_rows,
            **intervals,
        }

    def tell(self) -> None:
        """Print the summary."""
        all_ = self.summary()
        between = {
            name: _between(all_[f"{name}_low"], all_[f"{name}_high"])
            for name in ("pairwise_error", *self.lists)
        }
        with_pairs = all_["n_queries_with_pairs"]
        lists, before = [], ""
        for metric in self.asked:
            by_label = metric.option == "relevance_threshold"
            aside = self._aside(self.n_without_relevant if by_label else self.n_without_gain)
            aside *= metric.is_list
            text = number(all_[metric.text]) + between[metric.text] + aside * (aside != before)
            lists.append((shown_metric(metric), text))
            before = aside or before
        rows = f"{number(self.n_rows)} in {queries(len(self.names))}"
        rows += f", {number(with_pairs)} with a pair"
        if not with_pairs:
            facts([("rows", rows), *lists])
            return
        tied = f", {number(all_['tied_pairs'])} of them tied" if all_["tied_pairs"] else ""
        share = all_["swapped_pairs"] / all_["n_pairs"]
        facts(
            [
                ("rows", rows),
                ("pairwise error", f"{number(all_['pairwise_error'])}{between['pairwise_error']}"
                                   "  (mean over queries, 95 % interval)"),
                *lists,
                ("swapped pairs", f"{number(all_['swapped_pairs'])} of {number(all_['n_pairs'])} "
                                  f"({share:.2%}){tied}"),
                ("zero/one error", f"{all_['zero_one_error']:.2%} ({all_['perfect_queries']:,} "
                                   f"perfect, {with_pairs - all_['perfect_queries']:,} not)"),
            ]
        )  # fmt: skip

    def _aside(self, missing: int) -> str:
        """What becomes of queries without a relevant row, if there are any."""
        one = missing == 1
        what = f"count{'s' * one} {self.undefined}"
        if self.undefined == "skip":
            what = "is left out" if one else "are left out"
        noun = "query" if one else "queries"
        return f"  ({number(missing)} {noun} without a relevant row {what})" if missing else ""

    def tell_queries(self, as_json: bool) -> None:
        """Print one line for each query."""
        columns = {
            "rows": self.sizes,
            "pairs": self.pairs,
            "swapped_pairs": self.swapped,
            "pairwise_error": self.errors,
            **self.lists,
        }
        lists = {name: values.tolist() for name, values in columns.items()}
        names = self.names.tolist()
        if as_json:
            rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
            summary = self.summary()
            summary["queries"] = [{"qid": q, **row} for q, row in zip(names, rows, strict=True)]
            to_json(summary)
            return
        head = ["query", "error", "rows", "pairs", "swapped", *self.lists]
        kinds = ["pairwise_error", "rows", "pairs", "swapped_pairs", *self.lists]
        table(head, [[str(query), *(number(lists[kind][i]) for kind in kinds)]
                     for i, query in enumerate(names)])  # fmt: skip


class _RunMeasures:
    """Measures of a run, by judged query."""

    def __init__(
        self,
        run: Any,
        qrels: Any,
        asked: list[NamedMetric],
        values: dict[str, Any],
        missing_queries: str,
    ) -> None:
        self.asked, self.values, self.names = asked, values, values["query"]
        known = set(self.names.tolist())
        self.missing = ~np.isin(self.names, run.query) & (missing_queries == "skip")
        self.about = {
            "n_queries": len(self.names),
            "n_queries_in_run": len(known & set(run.query.tolist())),
            "n_queries_without_judgements": len(set(run.query.tolist()) - known),
            "n_retrieved": len(run),
            "n_judged": len(qrels),
            "n_relevant": int((qrels.grade > 0).sum()),
        }

    def tell(self, per_query: bool, as_json: bool) -> None:
        """Print means, or a line for each query."""
        lists = {metric.text: self.values[metric.text].tolist() for metric in self.asked}
        names = self.names.tolist()
        means = {metric.text: _mean(self.values[metric.text]) for metric in self.asked}
        if as_json:
            summary: dict[str, Any] = {**means, **self.about}
            if per_query:
                rows = zip(*lists.values(), strict=True)
                summary["queries"] = [{"qid": q, **dict(zip(lists, row, strict=True))}
                                      for q, row in zip(names, rows, strict=True)]  # fmt: skip
            to_json(summary)
        elif per_query:
            table(["query", *lists], [[query, *(number(values[i]) for values in lists.values())]
                                      for i, query in enumerate(names)])  # fmt: skip
        else:
            about = self.about
            other = about["n_queries_without_judgements"]
            facts(
                [
                    ("judged", f"{queries(about['n_queries'])}, {number(about['n_judged'])} "
                               f"judgements, {number(about['n_relevant'])} above 0"),
                    ("run", f"{number(about['n_retrieved'])} lines, "
                            f"{queries(about['n_queries_in_run'])} of those judged"
                            + f", {number(other)} others are left out" * (other > 0)),
                    *((shown_metric(m), number(means[m.text])
                       + _between(*mean_interval(self.values[m.text], bounds=m.bounds))
                       + self._left_out(m))
                      for m in self.asked),
                ]
            )  # fmt: skip

    def _left_out(self, metric: NamedMetric) -> str:
        """How many queries have no value, and why, if there are any."""
        empty = np.isnan(self.values[metric.text]) & ~self.missing
        counts = {"missing from the run": self.missing.sum(),
                  "without a relevant row": empty.sum()}  # fmt: skip
        told = [f"{queries(n)} {why}" for why, n in counts.items() if n]
        return f"  ({' and '.join(told)} left out)" if told else ""


def _between(low: float, high: float) -> str:
    """An interval of 95 %, if there is one."""
    return "" if np.isnan(low) else f", {low:.4f} to {high:.4f}"


def _share(part: Any, whole: Any) -> float:
    return float(part / whole) if whole else float("nan")


def _mean(values: Any) -> float:
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else float("nan")


def _n_pairs(y: Any, codes: Any) -> Any:
    """Pairs of rows with different labels in every query: C(n, 2) − Σ_levels C(m, 2)."""
    _, levels = np.unique(y, return_inverse=True)
    n_levels = int(levels.max()) + 1
    groups, sizes = np.unique(codes.astype(np.int64) * n_levels + levels, return_counts=True)
    n = np.bincount(codes).astype(np.int64)
    tied = np.zeros(len(n), dtype=np.int64)
    np.add.at(tied, groups // n_levels, sizes * (sizes - 1) // 2)
    return n * (n - 1) // 2 - tied
