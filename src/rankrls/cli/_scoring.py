"""``rankrls predict``, ``rankrls evaluate`` and ``rankrls compare``."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from rankrls._resources import in_order
from rankrls._streams import DamagedError, opened
from rankrls.cli._commands import DATA
from rankrls.cli._estimators import Scorer, rows_for
from rankrls.cli._files import DataFile, Stream, check_output, output_file, shown, write_all
from rankrls.cli._options import flag
from rankrls.cli._output import (
    Work,
    escaped,
    escaped_json,
    facts,
    number,
    queries,
    require_stdout,
    say,
    table,
    to_json,
    warn,
)
from rankrls.datasets import dump_run, ids_from_comments, load_qrels, load_run
from rankrls.metrics import compare_rankers, compare_runs, evaluate_run, mean_interval
from rankrls.metrics.counting import count_pairs
from rankrls.metrics.metric_names import (
    COMPARED_METRICS,
    LIST_METRICS,
    METRICS,
    NamedMetric,
    parse_metric,
    parse_metrics,
)
from rankrls.rankings import RankTable

__all__ = ["compare", "evaluate", "predict"]

#: Options of metrics.
RELEVANCE = ("relevance_threshold", "gain", "max_grade")


# ---------------------------------------------------------------------- predict


def predict(o: Any) -> None:
    """Write the scores of the rows of a file, or ranked lists."""
    lists = o.format != "scores" and any((o.format, o.top, o.doc_id, o.run_name))
    scorer = Scorer(o.model)
    check_output(o.output, *o.data, o.model)
    with_qid = not o.one_ranking if lists else scorer.needs_qid
    rows = rows_for(scorer, o.data, o, ("qid",) if with_qid else ())
    with Work(f"Scoring {rows.name}") as work:
        if not lists:
            with output_file(o.output) as file:
                batches = (scores for _, scores in _scored(scorer, rows))
                for lines in in_order(_lines, batches, threads=1):
                    write_all(file, lines)
            return
        ranked = _ranked(o, scorer, rows, work)
    columns = ranked.columns
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    if o.format == "trec":
        binary = io.BytesIO()
        dump_run(ranked, binary, name=o.run_name or "rankrls")
        text = binary.getvalue().decode("utf-8")
    elif o.format == "json":  # one object in each line
        objects = (dict(zip(columns, row, strict=True)) for row in values)
        texts = (escaped_json(json.dumps(one, ensure_ascii=False)) for one in objects)
        text = "".join(line + "\n" for line in texts)
    else:
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(values)
        text = buffer.getvalue()
    if o.output == "-" and sys.stdout.isatty():  # ids of files may hold commands of terminals
        text = "\n".join(map(escaped, text.split("\n")))
    with output_file(o.output) as file:
        write_all(file, text.encode("utf-8"))


def _ranked(o: Any, scorer: Scorer, rows: DataFile, work: Work) -> RankTable:
    """The rows of every query by falling score, with their names."""
    rows.id_column = o.doc_id
    scores: list[Any] = []
    found: list[Any] = []
    comments: list[str] = []
    for batch, score in _scored(scorer, rows):
        scores.append(score)
        found.append(batch.qid)
        comments += batch.comments or [] if o.doc_id is not None else []
        kind = batch.format
    y = np.concatenate(scores)
    if y.ndim > 1:
        raise ValueError("the model has several outputs: rank them in Python")
    qid = None if found[0] is None else np.concatenate(found)
    ids = None
    if o.doc_id is not None:
        work.now(f"Reading {o.doc_id} of {rows.name}")
        if kind == "letor" and not rows.several:
            ids = np.asarray(ids_from_comments(comments, o.doc_id, name=rows.name))
        else:
            ids = np.asarray(rows.ids(o.doc_id, kind))
        kept = _without_duplicates(o, y, qid, ids)
        y, ids, qid = y[kept], ids[kept], None if qid is None else qid[kept]
    return RankTable.from_scores(y, qid=qid, ids=ids, k=o.top)


def _without_duplicates(o: Any, y: Any, qid: Any, ids: Any) -> Any:
    """Rows to rank: all, or the best one of each id of a query."""
    names, codes = np.unique(ids.astype(str), return_inverse=True)
    if qid is not None:
        codes = codes + len(names) * np.unique(qid, return_inverse=True)[1]
    order = np.lexsort((-y, codes))
    again = order[1:][np.diff(codes[order]) == 0]  # worse rows of the same id
    everything = np.arange(len(y))
    if not len(again) or o.duplicates == "keep" or (o.duplicates is None and o.format == "trec"):
        return everything
    row = int(again.min())
    where = "" if qid is None else f" of query {qid[row]!r}"
    text = (f"{len(again):,} rows repeat the id of another row of their query, such as "
            f"{ids[row]!r}{where}")  # fmt: skip
    if o.duplicates == "error":
        raise ValueError(text)
    if o.duplicates is None:
        warn(f"{text}: --duplicates first keeps the better place only")
        return everything
    return np.setdiff1d(everything, again)


def _scored(scorer: Scorer, rows: DataFile) -> Iterator[tuple[Any, Any]]:
    """Batches of rows, each with its scores."""
    if scorer.needs_qid and rows.reading["qid"] is None:  # scaled as one ranking
        parts: Any = [rows.load()]
    else:
        parts = rows.parts(by_query=scorer.needs_qid)
    for batch in parts:
        if rows.o.missing == "zero":
            values = batch.data.data if sparse.issparse(batch.data) else batch.data
            values[np.isnan(values)] = 0.0
        yield batch, scorer.scores(batch.data, batch.qid, name=rows.name)


def _lines(scores: Any) -> bytes:
    """One line for each row, with as many digits as it takes to read the same number again."""
    values = np.atleast_2d(scores.astype(np.float64).T).T
    try:
        from pyarrow import csv as arrow_csv
        from pyarrow import table as arrow_table
    except ImportError:
        words = ["\t".join(map(repr, row)) for row in values.tolist()]
        return ("\n".join(words) + "\n").encode("ascii")
    text = io.BytesIO()  # pyarrow writes numbers four times as fast
    columns = arrow_table({str(output): column for output, column in enumerate(values.T)})
    options = arrow_csv.WriteOptions(include_header=False, delimiter="\t")
    arrow_csv.write_csv(columns, text, options)
    return text.getvalue()


# ---------------------------------------------------------------------- labels and scores


def _arguments(o: Any) -> dict[str, Any]:
    """What is relevant, as arguments of `rankrls.metrics.evaluate`."""
    undefined = o.undefined if o.undefined == "skip" else int(o.undefined)
    return {name: getattr(o, name) for name in RELEVANCE} | {"undefined": undefined}


def _refuse_unused(o: Any, metrics: Sequence[NamedMetric]) -> None:
    """Raise for an option that none of the metrics has, and for those of rows beside a run."""
    used = {metric.option for metric in metrics}
    for name in o.given:
        if name in RELEVANCE and name not in used:
            takes = [row.short or metric for metric, row in METRICS.items() if name in row.takes]
            raise ValueError(
                f"{flag(o.command, name)} is for {', '.join(takes)}, and none of them is asked for"
            )
        if name == "undefined" and used == {None}:
            raise ValueError("--undefined is for metrics of lists, and none of them is asked for")
        if o.qrels is not None and name in DATA.split():
            raise ValueError(f"{flag(o.command, name)} is for a file of rows: --qrels has none")


def _pathlike(path: str | None) -> Any:
    return Stream(sys.stdin.buffer, "stdin") if path == "-" else path


def _labels_and_scores(
    o: Any, data: Sequence[str], sources: Sequence[tuple[str | None, str | None]]
) -> tuple[Any, Any, list[Any]]:
    """Labels and query ids, or None, of all rows; and scores by each of some models or files.

    A source is a model and None, or None and a file of scores. Only what is returned is kept in
    memory; rows are read once for each source.
    """
    found: list[Any] = []
    y: Any = None
    qid: Any = None
    need = ("target",) if o.one_ranking else ("target", "qid")
    for model, path in sources:
        given = None if path is None else _read_scores(path)
        scorer = None if model is None else Scorer(model)
        rows = (DataFile(data, o, need=need, named=[]) if scorer is None
                else rows_for(scorer, data, o, need))  # fmt: skip
        with Work(f"Scoring {rows.name}"):
            batches: Any = ((batch, None) for batch in rows.parts(by_query=False))
            if scorer is not None:
                batches = _scored(scorer, rows)
            labels, ids, scores = zip(*((b.target, b.qid, s) for b, s in batches), strict=True)
        y, qid = np.concatenate(labels), None if ids[0] is None else np.concatenate(ids)
        score = np.concatenate(scores) if given is None else given
        if score.ndim > 1:
            raise ValueError("the model has several outputs: evaluate it in Python")
        if len(score) != len(y):
            raise ValueError(
                f"{shown(str(path))} has {len(score)} scores, and {rows.name} {len(y)} rows"
            )
        found.append(score)
    return y, qid, found


def _read_scores(path: str) -> Any:
    """One number on each line; empty lines are skipped."""
    try:
        with opened(_pathlike(path)) as file:
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


# ---------------------------------------------------------------------- evaluate


def evaluate(o: Any) -> None:
    """Print measures of the order that scores give the rows of a file, or of a run."""
    require_stdout()
    of_run = o.run is not None or o.qrels is not None
    if "concordance_index" in ",".join(o.metrics) and not of_run:
        raise ValueError("--metrics: 1 - concordance_index is what 'pairwise_error_all_pairs' says")
    pairs = () if of_run else ("pairwise_accuracy", "pairwise_error")
    names = ",".join(o.metrics) or f"ndcg@{o.at},map,mrr,precision@{o.at}"
    metrics = parse_metrics(names, "--metrics", allowed=(*pairs, *LIST_METRICS))
    _refuse_unused(o, metrics)
    if of_run:
        _evaluate_run(o, metrics)
        return
    if not o.data:
        raise ValueError("name a file of rows, or give a run and judgements by --run and --qrels")
    if (o.model is None) == (o.scores is None):
        raise ValueError("give a model by -m, or --scores")
    if o.scores == "-" and "-" in o.data:
        raise ValueError("stdin cannot be both the data and the scores")
    y, qid, (score,) = _labels_and_scores(o, o.data, [(o.model, o.scores)])
    measures = _Measures(o, metrics, y, score, qid)
    if o.per_query:
        measures.tell_queries(o.json)
    elif o.json:
        to_json(measures.summary())
    else:
        measures.tell()


class _Measures:
    """Measures of every query, and over all of them."""

    def __init__(self, o: Any, metrics: list[NamedMetric], y: Any, score: Any, qid: Any) -> None:
        self.metrics, self.undefined, self.n_rows = metrics, o.undefined, len(y)
        labels = np.zeros(len(y), dtype=np.int64) if qid is None else qid
        names, first, codes = np.unique(labels, return_index=True, return_inverse=True)
        order = np.argsort(first)  # queries in the order in which they come
        self.names = names[order]
        codes = np.argsort(order)[codes]
        self.sizes = np.bincount(codes).astype(np.int64)
        counts = count_pairs(y, score, codes, len(names))
        self.pairs, self.tied = counts.comparable, counts.tied
        # A pair is swapped if its order is wrong, or if there is none, as in svm_rank.
        self.swapped = counts.discordant + counts.tied
        counted = self.pairs > 0
        self.errors = np.full(len(names), np.nan)
        wrong = counts.discordant + counts.tied / 2
        np.divide(wrong, self.pairs, out=self.errors, where=counted)
        if not counted.any() and not (o.metrics or "undefined" in o.given):
            raise ValueError(
                "there is no preference to evaluate: no query has two rows with different labels; "
                "for metrics that need none, name them by --metrics"
            )
        self.lists: dict[str, Any] = {}
        arguments = _arguments(o)
        for metric in metrics:
            options = {}
            if metric.is_list:
                options = {key: arguments[key] for key in (str(metric.option), "undefined")}
            try:
                values = metric(y, score, qid=codes, average=None, **options)
            except ValueError as error:
                if o.metrics or metric.name != "ndcg" or ((y >= 0) & (y <= 1000)).all():
                    raise
                warn(f"NDCG is left out: {error}")
                values = np.full(len(self.names), np.nan)
            self.lists[metric.text] = values
        if not counted.any() and all(np.isnan(values).all() for values in self.lists.values()):
            raise ValueError(
                "no query has a relevant row, or two rows with different labels: --undefined 0 "
                "counts such queries 0"
            )
        relevant = {"gain": y > 0, "relevance_threshold": y >= o.relevance_threshold}
        #: Queries without a relevant row.
        self.without = {
            kind: len(self.names) - len(np.unique(codes[rows])) for kind, rows in relevant.items()
        }

    def summary(self) -> dict[str, Any]:
        """One number for each measure."""
        counted = self.pairs > 0
        n_pairs, n_counted = int(self.pairs.sum()), int(counted.sum())
        perfect = int((self.swapped[counted] == 0).sum())
        error, intervals = _mean(self.errors), {}
        for name, values in {"pairwise_error": self.errors, **self.lists}.items():
            low_high = mean_interval(values, bounds=parse_metric(name).bounds)
            intervals[f"{name}_low"], intervals[f"{name}_high"] = low_high
        wrong = (self.errors * self.pairs)[counted].sum()
        return {
            "pairwise_error": error,
            "pairwise_accuracy": 1 - error,
            "pairwise_error_all_pairs": wrong / n_pairs if n_pairs else np.nan,
            **{name: _mean(values) for name, values in self.lists.items()},
            "swapped_pairs": int(self.swapped.sum()),
            "tied_pairs": int(self.tied.sum()),
            "n_pairs": n_pairs,
            "perfect_queries": perfect,
            "zero_one_error": 1 - perfect / n_counted if n_counted else np.nan,
            "n_queries": len(self.names),
            "n_queries_with_pairs": n_counted,
            "n_queries_without_relevant": self.without["relevance_threshold"],
            "n_rows": self.n_rows,
            **intervals,
        }

    def tell(self) -> None:
        """Print the summary."""
        found = self.summary()
        between = {
            name: _between(found[f"{name}_low"], found[f"{name}_high"])
            for name in ("pairwise_error", *self.lists)
        }
        with_pairs = found["n_queries_with_pairs"]
        lists, before = [], ""
        for metric in self.metrics:
            by_label = metric.option == "relevance_threshold"
            missing = self.without["relevance_threshold" if by_label else "gain"]
            aside = ""
            if missing and metric.is_list:
                done = "left out" if self.undefined == "skip" else f"counted {self.undefined}"
                aside = f"  ({queries(missing)} without a relevant row {done})"
            text = number(found[metric.text]) + between[metric.text] + aside * (aside != before)
            lists.append((_shown(metric), text))
            before = aside or before
        rows = f"{number(self.n_rows)} in {queries(len(self.names))}"
        rows += f", {number(with_pairs)} with a pair"
        if not with_pairs:
            facts([("rows", rows), *lists])
            return
        tied = f", {number(found['tied_pairs'])} of them tied" if found["tied_pairs"] else ""
        share = found["swapped_pairs"] / found["n_pairs"]
        facts(
            [
                ("rows", rows),
                ("pairwise error", f"{number(found['pairwise_error'])}{between['pairwise_error']}"
                                   "  (mean over queries, 95 % interval)"),
                *lists,
                ("swapped pairs", f"{number(found['swapped_pairs'])} of "
                                  f"{number(found['n_pairs'])} ({share:.2%}){tied}"),
                ("zero/one error", f"{found['zero_one_error']:.2%} ({found['perfect_queries']:,} "
                                   f"perfect, {with_pairs - found['perfect_queries']:,} not)"),
            ]
        )  # fmt: skip

    def tell_queries(self, as_json: bool) -> None:
        """Print one line for each query."""
        columns = {
            "pairwise_error": self.errors,
            "rows": self.sizes,
            "pairs": self.pairs,
            "swapped_pairs": self.swapped,
            **self.lists,
        }
        head = ["query", "error", "rows", "pairs", "swapped", *self.lists]
        _tell_queries(self.names, columns, head, self.summary() if as_json else None)


def _evaluate_run(o: Any, metrics: list[NamedMetric]) -> None:
    """Print measures of a run, by judged query."""
    if o.run is None or o.qrels is None:
        raise ValueError("--run and --qrels go together: a run, and the judgements for it")
    for what, value in (("a file of rows", o.data), ("-m", o.model), ("--scores", o.scores)):
        if value:
            raise ValueError(f"--run has scores and --qrels has labels: leave out {what}")
    run, qrels = load_run(_pathlike(o.run)), load_qrels(_pathlike(o.qrels))
    values = evaluate_run(
        run, qrels, metrics=[metric.text for metric in metrics], ties=o.ties,
        missing_queries=o.missing_queries, average=None, **_arguments(o),
    )  # fmt: skip
    names = values.pop("query")
    known, answered = set(names.tolist()), set(run.query.tolist())
    about = {
        "n_queries": len(names),
        "n_queries_in_run": len(known & answered),
        "n_queries_without_judgements": len(answered - known),
        "n_retrieved": len(run),
        "n_judged": len(qrels),
        "n_relevant": int((qrels.grade > 0).sum()),
    }
    summary = {name: _mean(column) for name, column in values.items()} | about
    if o.per_query:
        _tell_queries(names, values, ["query", *values], summary if o.json else None)
        return
    if o.json:
        to_json(summary)
        return
    missing = ~np.isin(names, run.query) & (o.missing_queries == "skip")
    other = about["n_queries_without_judgements"]
    lines = [
        ("judged", f"{queries(about['n_queries'])}, {number(about['n_judged'])} judgements, "
                   f"{number(about['n_relevant'])} above 0"),
        ("run", f"{number(about['n_retrieved'])} lines, {queries(about['n_queries_in_run'])} of "
                "those judged" + f", {number(other)} others are left out" * (other > 0)),
    ]  # fmt: skip
    for metric in metrics:
        column = values[metric.text]
        counts = {"missing from the run": missing.sum(),
                  "without a relevant row": (np.isnan(column) & ~missing).sum()}  # fmt: skip
        told = [f"{queries(int(n))} {why}" for why, n in counts.items() if n]
        text = number(_mean(column)) + _between(*mean_interval(column, bounds=metric.bounds))
        lines.append((_shown(metric), text + f"  ({' and '.join(told)} left out)" * bool(told)))
    facts(lines)


def _tell_queries(
    names: Any, columns: dict[str, Any], head: list[str], summary: dict[str, Any] | None
) -> None:
    """Print one line for each query, or a summary with them as JSON."""
    rows = list(zip(*(column.tolist() for column in columns.values()), strict=True))
    pairs = zip(names.tolist(), rows, strict=True)
    if summary is None:
        table(head, [[str(query), *map(number, row)] for query, row in pairs])
        return
    found = [{"qid": query, **dict(zip(columns, row, strict=True))} for query, row in pairs]
    to_json(summary | {"queries": found})


def _shown(metric: NamedMetric) -> str:
    """How a metric is called in a result: abbreviations in capitals."""
    name, at, cut = metric.text.partition("@")
    return (name.upper() if len(name) <= 4 else name) + at + cut


def _between(low: float, high: float) -> str:
    """An interval of 95 %, if there is one."""
    return "" if np.isnan(low) else f", {low:.4f} to {high:.4f}"


def _mean(values: Any) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


# ---------------------------------------------------------------------- compare


def compare(o: Any) -> None:
    """Print a paired test of two models, files of scores, or runs."""
    require_stdout()
    if bool(o.data) == (o.qrels is not None):
        raise ValueError(
            "name the rows that two models or files of scores are compared on by --data, or the "
            "judgements for two runs by --qrels"
        )
    if "-" in (o.a, o.b, *o.data, o.qrels):
        raise ValueError("name files: stdin cannot be read for A and again for B")
    allowed = COMPARED_METRICS if o.qrels is None else LIST_METRICS
    _refuse_unused(o, [parse_metric(o.metric, "--metric", allowed=allowed)])
    names = ("metric", "method", "n_permutations", "confidence_level", "random_state")
    test = {name: getattr(o, name) for name in names} | _arguments(o)
    if o.qrels is not None:
        runs = (load_run(o.a), load_run(o.b), load_qrels(o.qrels))
        result = compare_runs(*runs, ties=o.ties, missing_queries=o.missing_queries, **test)
    else:
        sources: list[Any] = []
        for path in (o.a, o.b):
            with open(path, "rb") as file:  # a model is an archive, scores are text
                sources.append((path, None) if file.read(4) == b"PK\x03\x04" else (None, path))
        y, qid, scores = _labels_and_scores(o, o.data, sources)
        if qid is None:
            raise ValueError("two rankers are compared by their values on queries: there are none")
        result = compare_rankers(y, *scores, qid=qid, **test)
    if o.json:
        to_json({"a": o.a, "b": o.b, **asdict(result)})
    else:
        say(f"a = {o.a}\nb = {o.b}\n{result}")
