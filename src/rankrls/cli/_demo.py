"""``rankrls demo``: a first look at generated search data, with the commands that it takes."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import RidgeCV

from rankrls import __version__
from rankrls.cli._commands import cli
from rankrls.cli._output import say
from rankrls.datasets import dump_letor, make_ranking
from rankrls.io import load_model
from rankrls.metrics import compare_rankers

__all__ = ["demo"]


def demo(o: Any) -> None:
    """Make data, run the commands on them, compare with plain regression, write the page."""
    folder = Path(o.output)
    folder.mkdir(parents=True, exist_ok=True)
    train, test, model, page = (
        str(folder / name) for name in ("train.dat", "test.dat", "model.rankrls", "report.html")
    )
    data = make_ranking(n_queries=130, n_docs=(5, 15), n_features=200, random_state=0)
    X, y, qid = data.data, data.target, data.qid
    unseen = qid >= 30  # few queries are judged, and the features are many: alpha matters
    say(f"rankrls {__version__}: learning to rank search results\n")
    say(f"  documents  {len(y):,} in {len(set(qid))} queries, labels 0 to {y.max():g}")
    say(f"  held out   {unseen.sum():,} documents of {len(set(qid[unseen]))} queries")
    for path, rows in ((train, ~unseen), (test, unseen)):
        names = [f"document {row}" for row in np.flatnonzero(rows)]
        dump_letor(X[rows], y[rows], path, qid=qid[rows], comments=names)
    say(f"  files      {train}, {test}")
    say(
        "\nalpha is the strength of L2 regularisation: with too small a one the ranker follows\n"
        "the noise of the few judgements, with too large a one it underfits. Here every query is\n"
        "held out once, for every alpha; fit does so over a finer grid."
    )
    _run("cv", train, "--alphas", "1:1e6:7")
    _run("fit", train, "-m", model)
    _run("evaluate", test, "-m", model)
    ridge = RidgeCV(10.0 ** np.arange(-2, 7)).fit(X[~unseen], y[~unseen])
    scores = (one.predict(X[unseen]) for one in (load_model(model), ridge))
    better = compare_rankers(y[unseen], *scores, qid=qid[unseen], metric="ndcg@10", random_state=0)
    say(f"\nRankRLS (a) and plain regression of the labels (b) on the held-out queries:\n{better}")
    _run("report", train, "--test", test, "-o", page)
    say(
        "\nThe data are generated: queries differ in how high their labels are, which says\n"
        "nothing about the order within a query. A regression spends its effort on that\n"
        "difference; a ranker compares documents of the same query only.\n\n"
        f"The report is in {os.path.abspath(page)}: open it in a browser."
    )


def _run(*words: str) -> None:
    """Run a command as a user would type it."""
    say(f"\n$ rankrls {shlex.join(words)}")
    with cli.make_context("rankrls", list(words)) as context:
        cli.invoke(context)
