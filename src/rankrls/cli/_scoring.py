"""``rankrls predict``, ``rankrls evaluate`` and ``rankrls compare``."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from rankrls import metrics as measures
from rankrls.cli._commands import DATA
from rankrls.cli._files import Copy, DataFile, check_output, shown, write_file
from rankrls.cli._options import flag
from rankrls.cli._output import escaped, escaped_json, result, say, table, to_json, warn, working
from rankrls.cli._pipelines import MAX_GAIN, Scorer, rows_for
from rankrls.datasets import dump_run, load_qrels, load_run
from rankrls.datasets.formats import number_of, text_blocks
from rankrls.metrics import metric_names as known
from rankrls.metrics.counting import count_pairs
from rankrls.rankings import RankTable, repeated_rows, repeated_text

__all__ = ["compare", "evaluate", "predict"]

#: Options of metrics.
RELEVANCE = ("relevance_threshold", "gain", "max_grade")


def predict(o: Any) -> None:
    """Write the scores of the rows of a file, or ranked lists."""
    lists = o.format != "scores" and any((o.format, o.top, o.doc_id))
    scorer, output = Scorer(o.model), o.output or "-"
    check_output(output, *o.data, o.model)
    with_qid = not o.one_ranking if lists else scorer.needs_qid
    rows = rows_for(scorer, o.data, o, ("qid",) if with_qid else ())
    with working(f"Scoring {rows.name}") as work:
        if not lists:
            write_file(output, (_lines(scores) for _, scores in _scored(scorer, rows)))
            return
        ranked = _ranked(o, scorer, rows, work)
    columns = ranked.columns
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    text = io.StringIO(newline="")
    if o.format == "trec":
        binary = io.BytesIO()
        dump_run(ranked, binary, name="rankrls")
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
    write_file(output, [content.encode("utf-8")])


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
    again, everything = repeated_rows(y, qid, ids), np.arange(len(y))
    if not len(again) or o.duplicates == "keep" or (o.duplicates is None and o.format == "trec"):
        return everything
    text = repeated_text(again, qid, ids)
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
        yield batch, scorer.scores(batch.data, batch.qid, name=rows.name)


def _arguments(o: Any) -> dict[str, Any]:
    """What is relevant, as arguments of `rankrls.metrics.evaluate`."""
    undefined = o.undefined if o.undefined == "skip" else int(o.undefined)
    return {name: getattr(o, name) for name in RELEVANCE} | {"undefined": undefined}


def _refuse_unused(o: Any, metrics: Sequence[known.Metric]) -> None:
    """Raise for an option that none of the metrics has, and for those of rows beside a run."""
    used = {metric.option for metric in metrics}
    for name in o.given:
        if name in RELEVANCE and name not in used:
            rows = known.METRICS.items()
            takes = [row.short or metric for metric, row in rows if name in row.takes]
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
    numbers = []
    for first, lines in text_blocks(_file(path)):
        for place, line in enumerate(map(str.strip, lines), first):
            number = number_of(line)
            if line and not np.isfinite(number):
                raise ValueError(f"{shown(path)}:{place}: {line[:40]!r} is not one finite number")
            numbers += [number] * bool(line)
    if not numbers:
        raise ValueError(f"{shown(path)}: no data: there are no scores")
    return np.array(numbers)


def evaluate(o: Any) -> None:
    """Print measures of the order that scores give the rows of a file, or of a run."""
    of_run = o.run is not None or o.qrels is not None
    pairs = () if of_run else ("pairwise_accuracy", "pairwise_error")
    names = ",".join(o.metrics) or "ndcg@10,map,mrr,precision@10"
    metrics = known.parse_metrics(names, "--metrics", allowed=(*pairs, *known.LIST_METRICS))
    _refuse_unused(o, metrics)
    queries, values, columns, counts = (_of_run if of_run else _of_rows)(o, metrics)
    summary: dict[str, Any] = {}
    for name, found in values.items():
        defined = found[~np.isnan(found)]
        summary[name] = float(defined.mean()) if len(defined) else float("nan")
        bounds = known.parse_metric(name).bounds
        low, high = measures.mean_interval(found, bounds=bounds)
        summary |= {f"{name}_low": low, f"{name}_high": high}
    summary |= counts
    by_query = {"qid": queries} | columns | values
    if not o.per_query:
        result(o, summary)
    elif o.json:
        rows = zip(*(column.tolist() for column in by_query.values()), strict=True)
        to_json(summary | {"queries": [dict(zip(by_query, row, strict=True)) for row in rows]})
    else:
        table(by_query)


def _of_rows(o: Any, metrics: list[Any]) -> tuple[Any, dict[str, Any], dict[str, Any], Any]:
    """Queries, their values by metric, further columns about them, and counts."""
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
    n_pairs = int(pairs.sum())
    error = errors[counted].mean() if n_pairs else np.nan
    summary = {
        "pairwise_accuracy": 1 - error,
        "pairwise_error_all_pairs": wrong.sum() / n_pairs if n_pairs else np.nan,
        "swapped_pairs": int(swapped.sum()),
        "tied_pairs": int(counts.tied.sum()),
        "n_pairs": n_pairs,
        "n_queries": len(names),
        "n_queries_with_pairs": int(counted.sum()),
        "n_queries_without_relevant": len(names) - len(set(codes[y >= o.relevance_threshold])),
        "n_rows": len(y),
    }
    columns = {"pairwise_error": errors, "rows": np.bincount(codes), "pairs": pairs,
               "swapped_pairs": swapped}  # fmt: skip
    return names, {"pairwise_error": errors} | lists, columns, summary


def _values(o: Any, metrics: list[Any], y: Any, score: Any, codes: Any) -> dict[str, Any]:
    """Values of the metrics by query; NDCG that nobody asked for is left out of odd labels."""
    asked = [metric.text for metric in metrics]
    names = asked
    if not o.metrics and ((y < 0) | (y > MAX_GAIN)).any():
        warn(f"NDCG is left out: it has no gain for labels from {y.min():g} to {y.max():g}")
        names = [metric.text for metric in metrics if metric.name != "ndcg"]
    found = measures.evaluate(y, score, metrics=names, qid=codes, average=None, **_arguments(o))
    missing = np.full(int(codes.max()) + 1, np.nan)
    return {name: found.get(name, missing) for name in asked}


def _of_run(o: Any, metrics: list[Any]) -> tuple[Any, dict[str, Any], dict[str, Any], Any]:
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
    judged, answered = set(names.tolist()), set(run.query.tolist())
    relevant = set(qrels.query[qrels.grade >= o.relevance_threshold].tolist())
    counts = {
        "n_queries": len(names),
        "n_queries_in_run": len(judged & answered),
        "n_queries_without_relevant": len(judged - relevant),
        "n_queries_without_judgements": len(answered - judged),
        "n_retrieved": len(run),
        "n_judged": len(qrels),
        "n_relevant": int((qrels.grade > 0).sum()),
    }
    return names, values, {}, counts


def compare(o: Any) -> None:
    """Print a paired test of two models, files of scores, or runs."""
    if bool(o.data) == (o.qrels is not None):
        raise ValueError(
            "name the rows that two models or files of scores are compared on by --data, or the "
            "judgements for two runs by --qrels"
        )
    if "-" in (o.a, o.b, *o.data, o.qrels):
        raise ValueError("name files: stdin cannot be read for A and again for B")
    allowed = known.COMPARED_METRICS if o.qrels is None else known.LIST_METRICS
    _refuse_unused(o, [known.parse_metric(o.metric, "--metric", allowed=allowed)])
    test: dict[str, Any] = {"metric": o.metric, "method": o.method, "random_state": 0,
                            "confidence_level": o.confidence_level} | _arguments(o)  # fmt: skip
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
