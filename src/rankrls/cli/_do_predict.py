"""``rankrls predict``, and the scoring of a file that ``evaluate`` shares."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from rankrls._resources import in_order
from rankrls.cli._estimators import Scorer
from rankrls.cli._files import DataFile, check_output, output_file, write_all
from rankrls.cli._options import DataOptions
from rankrls.cli._output import Work, escaped, escaped_json, note, warn
from rankrls.cli._refusals import refuse_columns
from rankrls.datasets import dump_run, ids_from_comments
from rankrls.rankings import RankTable

__all__ = ["INPUT_FORMATS", "LAYOUTS", "predict", "rows_for", "scored"]


#: Values of ``--format`` that say what is written, and those that said what is read.
LAYOUTS, INPUT_FORMATS = ("scores", "trec", "csv", "json"), ("auto", "letor", "parquet")


def predict(
    options: DataOptions,
    *,
    data: Sequence[str],
    model: str,
    output: str,
    layout: str | None,
    top: int | None,
    doc_id: str | None,
    duplicates: str | None,
    run_name: str | None,
) -> None:
    """Write the scores of the rows of a file, or ranked lists."""
    if duplicates is not None and doc_id is None:
        raise ValueError("--duplicates is about ids: name their column by --doc-id")
    refuse_columns(options, "predict")
    if layout in INPUT_FORMATS:
        note(
            f"--format {layout}: use --input-format for the format of the input; --format is that "
            "of the output"
        )
        options, layout = replace(options, format=str(layout)), None
    lists = layout != "scores" and (layout, top, doc_id, run_name) != (None, None, None, None)
    for option, given in (("--top", top), ("--doc-id", doc_id), ("--run-name", run_name)):
        if given is not None and layout == "scores":
            raise ValueError(f"{option} is for ranked lists: --format trec, csv or json")
    if run_name is not None and layout != "trec":
        raise ValueError("--run-name is for --format trec")
    scorer = Scorer(model)
    check_output(output, *data, model)
    if lists:
        shape = (layout or "csv", top, doc_id, duplicates, run_name)
        _write_lists(options, data, scorer, output, *shape)
        return
    rows = rows_for(scorer, data, options, ("qid",) if scorer.needs_qid else ())
    with Work(f"Scoring {rows.name}", rows.total) as work, output_file(output) as file:
        batches = (scores for _, scores in scored(scorer, rows, work))
        for lines in in_order(_lines, batches, threads=1):
            write_all(file, lines)


def _write_lists(
    options: DataOptions,
    data: Sequence[str],
    scorer: Scorer,
    output: str,
    layout: str,
    top: int | None,
    doc_id: str | None,
    duplicates: str | None,
    run_name: str | None,
) -> None:
    """The rows of every query by falling score, with their names."""
    rows = rows_for(scorer, data, options, () if options.one_ranking else ("qid",))
    rows.id_column = doc_id
    scores, queries = [], []
    comments: list[str] = []
    with Work(f"Scoring {rows.name}", rows.total) as work:
        for batch, found in scored(scorer, rows, work):
            scores.append(found)
            queries.append(batch.qid)
            comments += batch.comments or [] if doc_id is not None else []
            kind = batch.format
        y = np.concatenate(scores)
        if y.ndim > 1:
            raise ValueError("the model has several outputs: rank them in Python")
        qid = None if queries[0] is None else np.concatenate(queries)
        ids = None
        if doc_id is not None:
            work.now(f"Reading {doc_id} of {rows.name}")
            ids = _ids(rows, comments, doc_id, kind)
        if ids is not None:
            kept = _without_duplicates(y, qid, np.asarray(ids), duplicates, layout)
            y, ids = y[kept], np.asarray(ids)[kept]
            qid = None if qid is None else qid[kept]
        table = RankTable.from_scores(y, qid=qid, ids=ids, k=top)
    if layout == "trec":
        text = _as_trec(table, run_name or "rankrls")
    else:
        text = _as_csv(table) if layout == "csv" else _as_json(table)
    if output == "-" and sys.stdout.isatty():  # ids of files may hold commands of terminals
        text = "\n".join(map(escaped, text.decode("utf-8").split("\n"))).encode("utf-8")
    with output_file(output) as file:
        write_all(file, text)


def _without_duplicates(y: Any, qid: Any, ids: Any, duplicates: str | None, layout: str) -> Any:
    """Rows to rank: all, or the best one of each id of a query."""
    names, codes = np.unique(ids.astype(str), return_inverse=True)
    if qid is not None:
        codes = codes + len(names) * np.unique(qid, return_inverse=True)[1]
    order = np.lexsort((-y, codes))
    again = order[1:][np.diff(codes[order]) == 0]  # worse rows of the same id
    if not len(again) or duplicates == "keep" or (duplicates is None and layout == "trec"):
        return np.arange(len(y))
    row = int(again.min())
    where = "" if qid is None else f" of query {qid[row]!r}"
    text = f"{len(again):,} rows repeat the id of another row of their query, such as {ids[row]!r}"
    if duplicates == "error":
        raise ValueError(f"{text}{where}")
    if duplicates is None:
        warn(f"{text}{where}: --duplicates first keeps the better place only")
        return np.arange(len(y))
    return np.setdiff1d(np.arange(len(y)), again)


def _ids(rows: DataFile, comments: list[str], doc_id: str, kind: str) -> Any:
    """Names of the rows: from comments of LETOR text, or from a column."""
    if kind == "letor":
        try:
            return ids_from_comments(comments, doc_id, name=rows.name)
        except ValueError:
            if not rows.several:
                raise
    return rows.ids(doc_id, kind)  # the error names one of several files


def _as_trec(table: RankTable, name: str) -> bytes:
    text = io.BytesIO()
    dump_run(table, text, name=name)
    return text.getvalue()


def _as_csv(table: RankTable) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(zip(*(column.tolist() for column in table.columns.values()), strict=True))
    return text.getvalue().encode("utf-8")


def _as_json(table: RankTable) -> bytes:
    """One object in each line."""
    names = list(table.columns)
    rows = zip(*(column.tolist() for column in table.columns.values()), strict=True)
    lines = (json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows)
    return "".join(escaped_json(line) + "\n" for line in lines).encode("utf-8")


def rows_for(
    scorer: Scorer,
    data: str | Sequence[str],
    options: DataOptions,
    need: tuple[str, ...],
    beyond: str | None = None,
) -> DataFile:
    """The rows of a file with the features of a model, in their order.

    Missing features are NaN if the model or ``--missing`` fills them in. Features that the model
    does not know are an error with ``beyond="error"``.
    """
    if options.missing is not None and scorer.takes_tables:
        raise ValueError(
            "--missing: the model takes raw tables and fills in missing features itself; leave "
            "--missing out"
        )
    if options.missing == "mean" and scorer.fills_in != "mean":
        raise ValueError(
            "--missing mean: the model has learned no means; fit it with --missing mean, or use "
            "--missing zero"
        )
    if options.missing == "zero" and scorer.fills_in is not None:
        raise ValueError(
            f"--missing zero: the model fills in missing features by their {scorer.fills_in}; "
            "leave --missing out"
        )
    fills_in = (
        scorer.fills_in is not None if options.missing is None else options.missing != "error"
    )
    return DataFile(
        data,
        options,
        named=scorer.names,
        unused=scorer.unused,
        stored=scorer.source,
        need=need,
        n_features=scorer.n_features,
        beyond=beyond or ("drop" if scorer.ignores_new else "error"),
        missing="nan" if fills_in else "error",
        text=scorer.text,
    )


def scored(scorer: Scorer, rows: DataFile, work: Work) -> Iterator[tuple[Any, Any]]:
    """Batches of rows, each with its scores."""
    if scorer.needs_qid and rows.reading["qid"] is None:  # scaled as one ranking
        parts: Any = [rows.load(work)]
    else:
        parts = rows.parts(work, by_query=scorer.needs_qid)
    for batch in parts:
        if rows.options.missing == "zero":
            _zero(batch.data)
        yield batch, scorer.scores(batch.data, batch.qid, name=rows.name)


def _zero(X: Any) -> None:
    """Put 0 where features are missing."""
    values = X.data if sparse.issparse(X) else X
    values[np.isnan(values)] = 0.0


def _lines(scores: Any) -> bytes:
    """One line for each row, with as many digits as it takes to read the same number again."""
    values = np.atleast_2d(scores.astype(np.float64).T).T
    try:
        from pyarrow import csv, table
    except ImportError:
        words = ["\t".join(map(repr, row)) for row in values.tolist()]
        return ("\n".join(words) + "\n").encode("ascii")
    text = io.BytesIO()  # pyarrow writes numbers four times as fast
    columns = table({str(output): column for output, column in enumerate(values.T)})
    csv.write_csv(columns, text, csv.WriteOptions(include_header=False, delimiter="\t"))
    return text.getvalue()
