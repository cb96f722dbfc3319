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
from rankrls.metrics import compare_rankers, ndcg, pairwise_error

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
    sizes = np.bincount(qid)
    levels = ", ".join(f"{level:g}: {np.mean(y == level):.0%}" for level in np.unique(y))
    say(f"  documents  {len(y):,} in {len(sizes)} queries of {sizes.min()} to {sizes.max()}")
    say(f"  labels     {levels}")
    say(f"  held out   {unseen.sum():,} documents of {len(np.unique(qid[unseen]))} queries")
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
    _compare(load_model(model), X, y, qid, unseen)
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


def _compare(ranker: Any, X: Any, y: Any, qid: Any, unseen: Any) -> None:
    """A table of the ranker, plain regression of the labels, and chance."""
    ridge = RidgeCV(10.0 ** np.arange(-2, 7)).fit(X[~unseen], y[~unseen])
    scores = {
        "RankRLS": ranker.predict(X[unseen]),
        "plain regression": ridge.predict(X[unseen]),
        "random order": np.random.default_rng(0).standard_normal(int(unseen.sum())),
    }
    y, qid = y[unseen], qid[unseen]
    say(f"\n  on held-out queries {'pairwise error':>16}{'NDCG@10':>16}")
    for name, score in scores.items():
        error, gain = pairwise_error(y, score, qid=qid), ndcg(y, score, qid=qid, k=10)
        say(f"  {name:<20}{error:16.3f}{gain:16.3f}")
    better = compare_rankers(y, *list(scores.values())[:2], qid=qid, metric="ndcg@10",
                             random_state=0)  # fmt: skip
    say(
        f"\n  NDCG@10 of RankRLS less that of plain regression: {better.difference:+.3f} (paired\n"
        f"  permutation test over the {better.n_queries} queries with a relevant document: "
        f"p = {better.p_value:.2g})"
    )
