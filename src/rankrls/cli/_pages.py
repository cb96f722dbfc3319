"""``rankrls report``, ``rankrls leaderboard`` and ``rankrls demo``."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from rankrls._frames import text_columns
from rankrls._resources import REPORT_VECTORS, require_features
from rankrls.cli._commands import cli
from rankrls.cli._files import DataFile, check_output, names_from
from rankrls.cli._output import result, say, table, to_json, working
from rankrls.cli._pipelines import last_step, make_ranker, scale_of, with_steps
from rankrls.cli._tables import click_rows
from rankrls.cli._training import RAW, suit_labels
from rankrls.datasets import dump_letor, make_ranking
from rankrls.io import load_model
from rankrls.leaderboards import leaderboard as rated
from rankrls.metrics import compare_rankers
from rankrls.report import write_leaderboard, write_report

__all__ = ["demo", "leaderboard", "report"]


def report(o: Any) -> None:
    """Write a page about a file and its ranker."""
    if o.output == "-":
        raise ValueError("the page is written to a file: name it by -o")
    if "-" in o.data and "-" in o.test:
        raise ValueError("stdin cannot be both the training data and test data")
    if o.clicks and o.test:
        raise ValueError("--test is for rows with labels: leave it out with --clicks")
    check_output(o.output, *o.data, *o.test)
    estimator = make_ranker(o)
    with click_rows(o) as (o, examination):
        made = _written(o, estimator, examination)
    about = {
        "pairwise_error": made.error.value,
        "pairwise_error_low": made.error.low,
        "pairwise_error_high": made.error.high,
        "method": made.method,
        "alpha": made.alpha,
        "scale": None if o.auto else scale_of(o),
        "ndcg@10": None if made.ndcg is None else made.ndcg.value,
        "n_findings": len(made.findings),
        "n_bytes": made.n_bytes,
        "file": o.output,
    }
    if o.auto:
        auto = last_step(made.model)
        about |= {"scoring": auto.scoring, "best_score": auto.best_score_, "members": auto.members_}
    result(o, about)


def _written(o: Any, estimator: Any, examination: Any) -> Any:
    """Read the rows and write the page."""
    reader = DataFile(o.data, o, **(RAW if o.auto else {}))
    with working(f"Reading {reader.name}") as work:
        rows, first = reader.load(), 0 if o.zero_based else 1
        n_features = rows.data.shape[1]
        require_features(n_features, copies=REPORT_VECTORS)  # before they get names
        names = rows.feature_names or [f"feature {first + j}" for j in range(n_features)]
        options: dict[str, Any] = {"feature_names": names, "document_names": _documents(rows)}
        how = {"n_features": n_features, "beyond": "drop", "sparse": sparse.issparse(rows.data)}
        if o.auto:
            suit_labels(estimator, o, rows.target)
            is_table = hasattr(rows.data, "columns")
            how |= RAW | {"text": text_columns(rows.data) if is_table else None}
        else:
            steps = dict(getattr(with_steps(estimator, o, rows), "steps", ()))
            options |= {"imputer": steps.get("impute"), "scaler": steps.get("scale")}
        code = reader.code() if examination is None else []
        if o.test:
            other = DataFile(o.test, o, named=rows.feature_names, **how)
            code = code and [*code, *other.code("test", "_test")]
            unseen = other.load()
            options["test"] = (unseen.data, unseen.target, unseen.qid)
            options["test_document_names"] = _documents(unseen)
        if code:
            options["load_code"] = "\n".join(["from rankrls.datasets import load_ranking", *code])
        data = (rows.data, rows.target, rows.qid)
        with reader.named_errors():
            return write_report(o.output, *data, title=o.title, estimator=estimator,
                                sample_weight=rows.sample_weight, progress=work,
                                examination=examination, **options)  # fmt: skip


def _documents(rows: Any) -> list[str] | None:
    """What LETOR text says after #, if it says something about every row."""
    return rows.comments if rows.comments and all(rows.comments) else None


def leaderboard(o: Any) -> None:
    """Print ratings, and write a page if asked for."""
    if o.output is not None:
        check_output(o.output, o.judgements)
    with working(f"Reading {o.judgements}") as work:
        board = rated(
            o.judgements,
            controls=names_from(o.controls),
            groups=None if o.groups == "none" else o.groups,
            trusted=names_from(o.trusted),
            confidence=o.confidence,
            random_state=o.random_state,
            pair_weight=o.sample_weight,
        )
        if o.output is not None:
            work(f"Writing {o.output}")
            write_leaderboard(o.output, board)
    scale = "elo" if o.elo else "log-odds"
    columns, effects = board.table(scale), board.controls_
    about = {"scale": scale, "confidence": o.confidence, "weight_of_others": board.weight_,
             "n_judgements": board.n_judgements_, "n_groups": board.n_groups_,
             "file": o.output}  # fmt: skip
    if o.json:
        to_json(about | {"leaderboard": columns, "controls": effects})
        return
    for one in (columns, effects):
        if len(next(iter(one.values()))):
            table({name: values for name, values in one.items() if name != "std"})
            say()
    result(o, about)


def demo(o: Any) -> None:
    """Make data, run the commands on them, compare with plain regression, write the page."""
    from sklearn.linear_model import RidgeCV  # other commands do not wait for it

    folder = Path(o.output)
    folder.mkdir(parents=True, exist_ok=True)
    train, test, model, page = (
        str(folder / name) for name in ("train.dat", "test.dat", "model.rankrls", "report.html")
    )
    data = make_ranking(n_queries=130, n_docs=(5, 15), n_features=200, random_state=0)
    X, y, qid = data.data, data.target, data.qid
    unseen = qid >= 30  # few queries are judged, and the features are many: alpha matters
    say(f"{len(y):,} generated search results of {len(set(qid))} queries, labels 0 to {y.max():g}; "
        f"{unseen.sum():,} of {len(set(qid[unseen]))} queries are held out in {test}.")  # fmt: skip
    for path, rows in ((train, ~unseen), (test, unseen)):
        names = [f"document {row}" for row in np.flatnonzero(rows)]
        dump_letor(X[rows], y[rows], path, qid=qid[rows], comments=names)
    for words in (("cv", train, "--alphas", "1:1e6:7"), ("fit", train, "-m", model),
                  ("evaluate", test, "-m", model)):  # fmt: skip
        _run(*words)
    ridge = RidgeCV(10.0 ** np.arange(-2, 7)).fit(X[~unseen], y[~unseen])
    scores = (one.predict(X[unseen]) for one in (load_model(model), ridge))
    better = compare_rankers(y[unseen], *scores, qid=qid[unseen], metric="ndcg@10", random_state=0)
    say(f"\nRankRLS (a) and plain regression of the labels (b) on the held-out queries:\n{better}")
    _run("report", train, "--test", test, "-o", page)
    say(
        "\nQueries differ in how high their labels are, which says nothing about the order within\n"
        "a query. A regression spends its effort on that; a ranker compares documents of the same\n"
        f"query only. The report is in {os.path.abspath(page)}: open it in a browser."
    )


def _run(*words: str) -> None:
    """Run a command as a user would type it."""
    say(f"\n$ rankrls {shlex.join(words)}")
    with cli.make_context("rankrls", list(words)) as context:
        cli.invoke(context)
