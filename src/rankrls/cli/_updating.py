"""``rankrls update``."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from rankrls import AutoRanker, streaming
from rankrls._frames import MAX_SHIFT, MAX_SPREAD, shifted_columns
from rankrls.cli._files import DataFile, check_output
from rankrls.cli._output import listed, result, warn, working
from rankrls.cli._pipelines import Scorer, add_history, rows_for
from rankrls.datasets.formats import sniff
from rankrls.estimators.auto import RESIZED
from rankrls.io import save_model
from rankrls.metrics import mean_interval, pairwise_accuracy

fcntl: Any
try:
    import fcntl
except ImportError:  # pragma: no cover - not POSIX
    fcntl = None

__all__ = ["update"]

#: Fewer queries have no spread of their own.
FEW = 5


def update(o: Any) -> None:
    """Add the queries of files to a model, take away those of others, write it."""
    if not o.data and not o.forget:
        raise ValueError("nothing to learn from and nothing to forget: name DATA, or use --forget")
    path = o.model if o.output is None else o.output
    if o.backup and o.dry_run:
        raise ValueError("--backup: --dry-run writes nothing, so there is nothing to keep")
    if path == "-":
        raise ValueError("a model is written to a file, not to stdout: name it by -o")
    started = time.perf_counter()
    check_output(path, *o.data, *o.forget)
    with _locked(o.model):
        scorer = Scorer(o.model)
        about = _change(scorer, o)
        backup = f"{o.model}.bak" if o.backup and not o.dry_run else None
        if backup is not None:
            shutil.copy2(o.model, backup)
        if not o.dry_run:
            save_model(scorer.model, path)
    ranker, seconds = _sums(scorer), time.perf_counter() - started
    about |= {
        "alpha": float(getattr(ranker, "alpha_", getattr(ranker, "alpha", 0.0))),
        "seconds": round(seconds, 3),
        "file": None if o.dry_run else path,
        "backup": backup,
        "dry_run": o.dry_run,
    }
    result(o, about)


def _sums(scorer: Scorer) -> Any:
    """The ranker that knows what was learned: of an AutoRanker, one that knows its queries."""
    if not isinstance(scorer.ranker, AutoRanker):
        return scorer.ranker
    members = scorer.ranker.estimators_
    return next((one for one in members if one._with_qid), members[0])


def _n_queries(scorer: Scorer) -> int | None:
    """How many queries were learned from; None if no member of an AutoRanker knows them."""
    ranker = _sums(scorer)
    return int(ranker.n_queries_) if ranker._with_qid or not scorer.ranker._with_qid else None


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold the model file, so that updates that run at the same time follow each other."""
    if fcntl is None or not os.path.isfile(path):  # `Scorer` reports what is wrong
        yield
        return
    while True:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                yield
                return
        # Another update has replaced the file meanwhile: wait for the new one.


def _change(scorer: Scorer, o: Any) -> dict[str, Any]:
    """Change the model; return what was done."""
    try:
        streaming.require_updatable(scorer.model)
    except ValueError as error:
        raise ValueError(f"{o.model}: {error}") from error
    ranker, files = _sums(scorer), (*o.data, *o.forget)
    with_qid, is_auto = scorer.ranker._with_qid, isinstance(scorer.ranker, AutoRanker)
    if not any(os.path.isfile(one) and sniff(one) == "letor" for one in files):
        o.sample_weight = o.sample_weight or scorer.source.get("weight")
    wrong = ""
    if is_auto and o.forget:
        wrong = " is an AutoRanker, which cannot forget: fit it again to the rows that stay"
    elif with_qid and o.one_ranking:
        wrong = " was fitted to queries, which have ids: leave out --one-ranking"
    elif not with_qid and not o.one_ranking:
        wrong = (" was fitted to one ranking: add --one-ranking, with which the rows of every file "
                 "are one more")  # fmt: skip
    elif ranker._seen.weighted and o.sample_weight is None:
        wrong = (" was fitted with weights of rows: name their column by --sample-weight (LETOR "
                 "text has none: use a table, or update the model in Python)")  # fmt: skip
    if wrong:
        raise ValueError(f"{o.model}{wrong}")
    about: dict[str, Any] = {"queries_before": _n_queries(scorer)}
    about |= {"accuracy_of_new": None, "accuracy_expected": None}
    need = ("target",) if o.one_ranking else ("target", "qid")

    def readers(paths: Any) -> list[DataFile]:
        # One ranking is one file; queries may lie across files, which are then read as one.
        parts = [[path] for path in paths] if o.one_ranking else [paths] * bool(paths)
        return [rows_for(scorer, some, o, need, beyond="error") for some in parts]

    with working(f"Reading {files[0]}"):
        adding, forgetting = readers(o.data), readers(o.forget)
        new: list[Any] = [file.parts(by_query=True) for file in adding]
        if o.check != "off" and new:
            first = [next(parts) for parts in new]  # all rows, or the first batch of a large file
            about |= _checked(scorer, first, adding[0].name, o.check)
            new = [chain([rows], rest) for rows, rest in zip(first, new, strict=True)]
        old = [file.parts(by_query=True) for file in forgetting]
        # What is replaced must go first.
        n_forgotten = _changed(scorer, streaming.forget, forgetting, old)
        about["rows_added"] = _changed(scorer, streaming.partial_fit, adding, new)
        about["rows_forgotten"] = n_forgotten
        ranker = _sums(scorer)
        if not hasattr(ranker, "_model"):
            raise ValueError(f"{', '.join(o.forget)}: nothing would be left to rank by")
    told = (("rows_added", o.data, "added"), ("rows_forgotten", o.forget, "forgotten"))
    words = [f"{about[key]:,} rows of {', '.join(some)} {what}" for key, some, what in told if some]
    add_history(scorer.model, "; ".join(words))
    return about | {"n_queries": _n_queries(scorer), "n_pairs": int(ranker.n_pairs_)}


def _changed(scorer: Scorer, change: Any, files: list[DataFile], parts: list[Any]) -> int:
    """Add the queries of files, or take them away; return the number of rows."""
    n_rows = 0
    for file, batches in zip(files, parts, strict=True):
        for rows in batches:
            n_rows += rows.data.shape[0]
            try:
                if "group_file" in rows:
                    raise ValueError(
                        f"{rows.group_file} has sizes of queries and no ids, by which queries are "
                        "found in the model: write ids (qid:7) into the rows"
                    )
                change(scorer.model, rows.data, rows.target, qid=rows.qid,
                       sample_weight=rows.sample_weight)  # fmt: skip
            except ValueError as error:
                raise ValueError(f"{file.name}: {error}") from error
    return n_rows


def _checked(scorer: Scorer, parts: list[Any], name: str, check: str) -> dict[str, Any]:
    """Score the new queries by the model as it is; warn, or raise, if they do not look alike."""
    doubts, values = [], []
    scaler = next((step for step in scorer.steps if isinstance(step, StandardScaler)), None)
    for rows in parts:
        if scaler is not None and scaler.mean_ is not None and isinstance(rows.data, np.ndarray):
            new = np.nanmean(rows.data, axis=0), np.nanstd(rows.data, axis=0)
            moved = shifted_columns(scaler.mean_, np.sqrt(scaler.var_), *new)
            names = scorer.names or [f"feature {j + 1}" for j in range(len(moved))]
            found = listed([repr(names[j]) for j in np.flatnonzero(moved)], 5)
            text = (
                f"{found}: the mean differs from that of the training rows by more than "
                f"{MAX_SHIFT:g} standard deviations, or the spread by a factor of more than "
                f"{MAX_SPREAD:g}: did the unit change?"
            )
            doubts += [text] if found else []
        elif isinstance(scorer.ranker, AutoRanker) and (
            found := listed(list(map(repr, scorer.ranker._resized(rows.data))), 5)
        ):
            doubts.append(
                f"{found}: typical numbers differ from those of the training rows by a factor of "
                f"more than {RESIZED:g}: did the unit change?"
            )
        try:
            scores = scorer.scores(rows.data, rows.qid, name=name)
            values.append(np.atleast_1d(pairwise_accuracy(rows.target, scores, qid=rows.qid,
                                                          average=None)))  # fmt: skip
        except ValueError:  # no query has a pair
            continue
    about: dict[str, Any] = {}
    if values:
        by_query = np.concatenate(values)
        about["accuracy_of_new"] = accuracy = float(np.nanmean(by_query))
        expected, spread, what = 0.5, 0.0, "are expected by chance"
        if getattr(scorer.ranker, "scoring", None) == "pairwise_accuracy":
            about["accuracy_expected"] = expected = float(scorer.ranker.best_score_)
            results, what = getattr(scorer.ranker, "cv_results_", {}), "were expected"
            if {"std_score", "mean_score"} <= results.keys():
                spread = float(results["std_score"][np.argmax(results["mean_score"])])
        n = int(np.isfinite(by_query).sum())
        high = mean_interval(by_query, confidence_level=0.99)[1]
        if n < FEW:  # too few to have a spread of their own
            high = accuracy + 2.58 * (spread or 0.25) / np.sqrt(n)
        if high < expected:
            doubts.append(
                f"the model orders {accuracy:.1%} of the pairs of the new queries, and "
                f"{expected:.1%} {what} (99 % interval up to {high:.1%}): are labels and columns "
                "those of training?"
            )
    for doubt in doubts:
        if check == "error":
            raise ValueError(f"{name}: {doubt} (--check warn or off adds them)")
        warn(f"{name}: {doubt}")
    return about
