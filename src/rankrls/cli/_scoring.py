"""``rankrls predict``, ``rankrls evaluate`` and ``rankrls compare``."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from rankrls import metrics as measures
from rankrls._streams import DamagedError, opened
from rankrls.cli._commands import DATA
from rankrls.cli._files import Copy, DataFile, check_output, output_file, shown, write_all
from rankrls.cli._options import flag
from rankrls.cli._output import (
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
    working,
)
from rankrls.cli._pipelines import Scorer, rows_for
from rankrls.datasets import dump_run, load_qrels, load_run
from rankrls.metrics.counting import count_pairs
from rankrls.metrics.metric_names import (
    COMPARED_METRICS,
    LIST_METRICS,
    METRICS,
    Metric,
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
    scorer, output = Scorer(o.model), o.output or "-"
    check_output(output, *o.data, o.model)
    with_qid = not o.one_ranking if lists else scorer.needs_qid
    rows = rows_for(scorer, o.data, o, ("qid",) if with_qid else ())
    with working(f"Scoring {rows.name}") as work:
        if not lists:
            with output_file(output) as file:
                for _, scores in _scored(scorer, rows):
                    write_all(file, _lines(scores))
            return
        ranked = _ranked(o, scorer, rows, work)
    columns = ranked.columns
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    text = io.StringIO(newline="")
    if o.format == "trec":
        binary = io.BytesIO()
        dump_run(ranked, binary, name=o.run_name or "rankrls")
        text.write(binary.getvalue().decode("utf-8"))
    elif o.format == "json":  # one object in each line
        for row in values:
            line = json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False)
            text.write(escaped_json(line) + "\n")
    else:
        csv.writer(text, lineterminator="\n").writerows([list(columns), *values])
    content = text.getvalue()
    if output == "-" and sys.stdout.isatty():  # ids of files may hold commands of terminals
        content = "\n".join(map(escaped, content.split("\n")))
    with output_file(output) as file:
        write_all(file, content.encode("utf-8"))


def _lines(scores: Any) -> bytes:
    """One line for each row, with as many digits as it takes to read the same number again."""
    rows = np.atleast_2d(scores.astype(np.float64).T).T.tolist()
    return "".join("\t".join(map(repr, row)) + "\n" for row in rows).encode("ascii")


def _ranked(o: Any, scorer: Scorer, rows: DataFile, work: Any) -> RankTable:
    """The rows of every query by falling score, with their names."""
    parts = ((score, batch.qid, batch.format) for batch, score in _scored(scorer, rows))
    scores, found, (kind, *_) = zip(*parts, strict=True)
    y = np.concatenate(scores)
    if y.ndim > 1:
        raise ValueError("the model has several outputs: rank them in Python")
    qid = None if found[0] is None else np.concatenate(found)
    ids = None
    if o.doc_id is not None:
        work(f"Reading {o.doc_id} of {rows.name}")
        ids = rows.ids(o.doc_id, kind)
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
    where = "" if qid is None else f" of query {str(qid[row])!r}"
    text = (f"{len(again):,} rows repeat the id of another row of their query, such as "
            f"{str(ids[row])!r}{where}")  # fmt: skip
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


# ---------------------------------------------------------------------- labels and scores


def _arguments(o: Any) -> dict[str, Any]:
    """What is relevant, as arguments of `rankrls.metrics.evaluate`."""
    undefined = o.undefined if o.undefined == "skip" else int(o.undefined)
    return {name: getattr(o, name) for name in RELEVANCE} | {"undefined": undefined}


def _refuse_unused(o: Any, metrics: Sequence[Metric]) -> None:
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


def _labels_and_scores(o: Any, model: str | None, path: str | None) -> tuple[Any, Any, Any]:
    """Labels, query ids or None, and scores of all rows, by a model or from a file of scores."""
    need = ("target",) if o.one_ranking else ("target", "qid")
    score = None if path is None else _read_scores(path)
    if model is None:
        rows = DataFile(o.data, o, need=need, named=[])
        batches: Any = ((batch, None) for batch in rows.parts(by_query=False))
    else:
        scorer = Scorer(model)
        rows = rows_for(scorer, o.data, o, need)
        batches = _scored(scorer, rows)
    with working(f"Scoring {rows.name}"):
        labels, ids, scores = zip(*((b.target, b.qid, s) for b, s in batches), strict=True)
    y, qid = np.concatenate(labels), None if ids[0] is None else np.concatenate(ids)
    score = np.concatenate(scores) if score is None else score
    if score.ndim > 1:
        raise ValueError("the model has several outputs: evaluate it in Python")
    if len(score) != len(y):
        raise ValueError(
            f"{shown(str(path))} has {len(score)} scores, and {rows.name} {len(y)} rows"
        )
    return y, qid, score


def _file(path: str) -> Any:
    return Copy(path) if path == "-" else path


def _read_scores(path: str) -> Any:
    """One number on each line; empty lines are skipped."""
    try:
        with opened(_file(path)) as file:
            lines = b"".join(iter(partial(file.read, 1 << 20), b"")).splitlines()
    except DamagedError as error:
        raise ValueError(f"{shown(path)}: {error}; get the file again") from error
    numbers = []
    for place, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            numbers.append(float(line))
        except ValueError:
            numbers.append(np.nan)
        if not np.isfinite(numbers[-1]):
            text = line.decode("utf-8", "replace")[:40]
            raise ValueError(f"{shown(path)}:{place}: {text!r} is not one finite number")
    if not numbers:
        raise ValueError(f"{shown(path)}: no data: there are no scores")
    return np.array(numbers)


# ---------------------------------------------------------------------- evaluate


def evaluate(o: Any) -> None:
    """Print measures of the order that scores give the rows of a file, or of a run."""
    require_stdout()
    of_run = o.run is not None or o.qrels is not None
    pairs = () if of_run else ("pairwise_accuracy", "pairwise_error")
    names = ",".join(o.metrics) or f"ndcg@{o.at},map,mrr,precision@{o.at}"
    metrics = parse_metrics(names, "--metrics", allowed=(*pairs, *LIST_METRICS))
    _refuse_unused(o, metrics)
    found = (_of_run if of_run else _of_rows)(o, metrics)
    intervals = {name: measures.mean_interval(values, bounds=parse_metric(name).bounds)
                 for name, values in found.values.items()}  # fmt: skip
    summary = {name: _mean(values) for name, values in found.values.items()} | found.summary
    for name, (low, high) in intervals.items():
        summary |= {f"{name}_low": low, f"{name}_high": high}
    columns = found.columns or found.values
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    by_query = list(zip(found.queries.tolist(), rows, strict=True)) if o.per_query else []
    if o.json:
        values = [{"qid": name, **dict(zip(columns, row, strict=True))} for name, row in by_query]
        to_json(summary | ({"queries": values} if o.per_query else {}))
        return
    if o.per_query:
        short = {"pairwise_error": "error", "swapped_pairs": "swapped"} if not of_run else {}
        head = ["query", *(short.get(name, name) for name in columns)]
        table(head, [[str(name), *map(number, row)] for name, row in by_query])
        return

    def shown(name: str) -> str:
        low, high = intervals[name]
        return number(summary[name]) + ("" if np.isnan(low) else f", {low:.4f} to {high:.4f}")

    lines, told = found.lines, ""
    if found.with_pairs:
        lines.append(("pairwise error", f"{shown('pairwise_error')}  (mean over queries, 95 % "
                                        "interval)"))  # fmt: skip
    for metric in metrics:
        undefined, name = np.isnan(found.values[metric.text]), metric.text.partition("@")
        reasons = {"missing from the run": found.missing, "without a relevant row": undefined
                   & ~found.missing & metric.is_list}  # fmt: skip
        why = [f"{queries(int(some.sum()))} {text}" for text, some in reasons.items() if some.any()]
        aside = f"  ({' and '.join(why)} left out)" if why else ""
        title = (name[0].upper() if len(name[0]) <= 4 else name[0]) + name[1] + name[2]
        lines.append((title, shown(metric.text) + aside * (aside != told)))
        told = aside or told
    facts([*lines, *found.more])


def _of_rows(o: Any, metrics: list[Any]) -> SimpleNamespace:
    """Values of each query by metric, and what else is told about rows and their scores."""
    for wrong, text in (
        (not o.data, "name a file of rows, or give a run and judgements by --run and --qrels"),
        ((o.model is None) == (o.scores is None), "give a model by -m, or --scores"),
        (o.scores == "-" and "-" in o.data, "stdin cannot be both the data and the scores"),
    ):
        if wrong:
            raise ValueError(text)
    y, qid, score = _labels_and_scores(o, o.model, o.scores)
    labels = np.zeros(len(y), dtype=np.int64) if qid is None else qid
    names, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(first)  # queries in the order in which they come
    names, codes = names[order], np.argsort(order)[codes]
    counts = count_pairs(y, score, codes, len(names))
    pairs, counted = counts.comparable, counts.comparable > 0
    # A pair is swapped if its order is wrong, or if there is none, as in svm_rank.
    swapped, wrong = counts.discordant + counts.tied, counts.discordant + counts.tied / 2
    errors = np.divide(wrong, pairs, out=np.full(len(names), np.nan), where=counted)
    if not counted.any() and not (o.metrics or "undefined" in o.given):
        raise ValueError(
            "there is no preference to evaluate: no query has two rows with different labels; "
            "for metrics that need none, name them by --metrics"
        )
    lists = _values(o, metrics, y, score, codes)
    if not counted.any() and all(np.isnan(values).all() for values in lists.values()):
        raise ValueError(
            "no query has a relevant row, or two rows with different labels: --undefined 0 "
            "counts such queries 0"
        )
    n_pairs, n_counted, n_swapped = int(pairs.sum()), int(counted.sum()), int(swapped.sum())
    perfect, n_tied = int((swapped[counted] == 0).sum()), int(counts.tied.sum())
    zero_one = 1 - perfect / n_counted if n_counted else np.nan
    summary = {
        "pairwise_accuracy": 1 - _mean(errors),
        "pairwise_error_all_pairs": wrong.sum() / n_pairs if n_pairs else np.nan,
        "swapped_pairs": n_swapped,
        "tied_pairs": n_tied,
        "n_pairs": n_pairs,
        "perfect_queries": perfect,
        "zero_one_error": zero_one,
        "n_queries": len(names),
        "n_queries_with_pairs": n_counted,
        "n_queries_without_relevant": len(names) - len(set(codes[y >= o.relevance_threshold])),
        "n_rows": len(y),
    }
    rows = f"{number(len(y))} in {queries(len(names))}, {number(n_counted)} with a pair"
    more = []
    if n_counted:
        tied = f", {number(n_tied)} of them tied" if n_tied else ""
        share = f"{number(n_swapped)} of {number(n_pairs)} ({n_swapped / n_pairs:.2%}){tied}"
        others = f"{zero_one:.2%} ({perfect:,} perfect, {n_counted - perfect:,} not)"
        more = [("swapped pairs", share), ("zero/one error", others)]
    sizes = np.bincount(codes).astype(np.int64)
    columns = {"pairwise_error": errors, "rows": sizes, "pairs": pairs, "swapped_pairs": swapped}
    return SimpleNamespace(
        queries=names, values={"pairwise_error": errors} | lists, columns=columns | lists,
        summary=summary, lines=[("rows", rows)], more=more, with_pairs=n_counted > 0,
        missing=np.zeros(len(names), dtype=bool),
    )  # fmt: skip


def _values(o: Any, metrics: list[Any], y: Any, score: Any, codes: Any) -> dict[str, Any]:
    """Values of the metrics by query; NDCG that nobody asked for is left out of odd labels."""
    asked = [metric.text for metric in metrics]
    how: dict[str, Any] = {"qid": codes, "average": None, **_arguments(o)}
    try:
        found = measures.evaluate(y, score, metrics=asked, **how)
    except ValueError as error:
        if o.metrics or ((y >= 0) & (y <= 1000)).all():
            raise
        warn(f"NDCG is left out: {error}")
        rest = [metric.text for metric in metrics if metric.name != "ndcg"]
        found = measures.evaluate(y, score, metrics=rest, **how)
    missing = np.full(int(codes.max()) + 1, np.nan)
    return {name: found.get(name, missing) for name in asked}


def _of_run(o: Any, metrics: list[Any]) -> SimpleNamespace:
    """The same of a run and judgements."""
    if o.run is None or o.qrels is None:
        raise ValueError("--run and --qrels go together: a run, and the judgements for it")
    for what, value in (("a file of rows", o.data), ("-m", o.model), ("--scores", o.scores)):
        if value:
            raise ValueError(f"--run has scores and --qrels has labels: leave out {what}")
    run, qrels = load_run(_file(o.run)), load_qrels(_file(o.qrels))
    values = measures.evaluate_run(
        run, qrels, metrics=[metric.text for metric in metrics], ties=o.ties,
        missing_queries=o.missing_queries, average=None, **_arguments(o),
    )  # fmt: skip
    names = values.pop("query")
    known, answered = set(names.tolist()), set(run.query.tolist())
    n_others, n_relevant = len(answered - known), int((qrels.grade > 0).sum())
    summary = {
        "n_queries": len(names),
        "n_queries_in_run": len(known & answered),
        "n_queries_without_judgements": n_others,
        "n_retrieved": len(run),
        "n_judged": len(qrels),
        "n_relevant": n_relevant,
    }
    lines = [
        ("judged", f"{queries(len(names))}, {number(len(qrels))} judgements, "
                   f"{number(n_relevant)} above 0"),
        ("run", f"{number(len(run))} lines, {queries(len(known & answered))} of those judged"
                + f", {number(n_others)} others are left out" * (n_others > 0)),
    ]  # fmt: skip
    missing = ~np.isin(names, run.query) & (o.missing_queries == "skip")
    return SimpleNamespace(queries=names, values=values, columns={}, summary=summary, lines=lines,
                           more=[], with_pairs=False, missing=missing)  # fmt: skip


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
        test |= {"ties": o.ties, "missing_queries": o.missing_queries}
        result = measures.compare_runs(*runs, **test)
    else:
        scores: list[Any] = []
        for path in (o.a, o.b):
            with open(path, "rb") as file:  # a model is an archive, scores are text
                model = file.read(4) == b"PK\x03\x04"
            y, qid, score = _labels_and_scores(o, *((path, None) if model else (None, path)))
            scores.append(score)
        if qid is None:
            raise ValueError("two rankers are compared by their values on queries: there are none")
        result = measures.compare_rankers(y, *scores, qid=qid, **test)
    if o.json:
        to_json({"a": o.a, "b": o.b, **asdict(result)})
    else:
        say(f"a = {o.a}\nb = {o.b}\n{result}")
