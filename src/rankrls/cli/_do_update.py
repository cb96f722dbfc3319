"""``rankrls update``."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from rankrls import streaming
from rankrls._validation import written_integer
from rankrls.cli._do_predict import rows_for
from rankrls.cli._estimators import Scorer, note_source
from rankrls.cli._files import DataFile, check_output
from rankrls.cli._options import DataOptions
from rankrls.cli._output import Work, facts, number, size, to_json, warn
from rankrls.datasets.formats import sniff
from rankrls.estimators.seen_queries import query_keys, show_query
from rankrls.io import save_model
from rankrls.metrics import mean_interval, pairwise_accuracy

fcntl: Any
try:
    import fcntl
except ImportError:  # pragma: no cover - not POSIX
    fcntl = None

__all__ = ["update"]

#: A feature whose mean has moved by this many standard deviations, or whose spread has changed by
#: this factor, is warned of.
MAX_SHIFT = 10.0


def update(
    options: DataOptions,
    *,
    model: str,
    data: Sequence[str],
    forgotten: Sequence[str],
    output: str | None,
    check: str,
    dry_run: bool,
    backup: bool,
    as_json: bool,
) -> None:
    """Add the queries of files to a model, take away those of others, write it."""
    if not data and not forgotten:
        raise ValueError(
            "there is nothing to learn from and nothing to forget: name DATA, or files by --forget"
        )
    if options.missing is not None:
        raise ValueError("--missing is for fit: the model fills in as it has learned to")
    if options.feature_names:
        raise ValueError("--feature-names is for training: update goes by those of the model")
    path = model if output is None else output
    if path == "-":
        raise ValueError("a model is written to a file, not to stdout: name it by -o")
    if backup and output is not None:
        raise ValueError("--backup keeps the file that is replaced: leave out -o")
    started = time.perf_counter()
    check_output(path, *data, *forgotten)
    with _locked(model):
        scorer = Scorer(model)
        about = _change(scorer, options, model, data, forgotten, check)
        if not dry_run:
            if backup:
                shutil.copy2(model, f"{model}.bak")
            save_model(scorer.model, path)
    ranker: Any = scorer.ranker
    about |= {
        "alpha": float(getattr(ranker, "alpha_", getattr(ranker, "alpha", 0.0))),
        "seconds": round(time.perf_counter() - started, 3),
        "file": None if dry_run else path,
        "backup": f"{model}.bak" if backup and not dry_run else None,
    }
    if as_json:
        to_json(about)
        return
    lines = [
        ("added", f"{number(about['rows_added'])} rows"),
        ("forgotten", f"{number(about['rows_forgotten'])} rows"),
        ("queries", f"{number(about['queries_before'])} before, {number(about['n_queries'])} now"),
        ("pairs", number(about["n_pairs"])),
        ("alpha", f"{about['alpha']:g}, as before"),
    ]
    if about["accuracy_of_new"] is not None:
        known = about["accuracy_expected"]
        expected = "" if known is None else f"; {number(known)} was expected of new queries"
        text = f"{number(about['accuracy_of_new'])} by the model before{expected}"
        lines.append(("accuracy", f"pairwise, on the new queries: {text}"))
    if dry_run:
        lines.append(("written", "nothing (--dry-run)"))
    else:
        seconds = about["seconds"]
        lines.append(("written", f"{path} ({size(os.path.getsize(path))}) in {seconds:.1f} s"))
        lines += [("backup", about["backup"])] * backup
    facts(lines)


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


def _change(
    scorer: Scorer,
    options: DataOptions,
    model: str,
    data: Sequence[str],
    forgotten: Sequence[str],
    check: str,
) -> dict[str, Any]:
    """Change the model; return what was done."""
    try:
        streaming.require_updatable(scorer.model)
    except ValueError as error:
        raise ValueError(f"{model}: {error}") from error
    ranker: Any = scorer.ranker
    if ranker._with_qid and options.one_ranking:
        raise ValueError(f"--one-ranking: {model} was fitted to queries, which have ids")
    if not ranker._with_qid and not options.one_ranking:
        raise ValueError(
            f"{model} was fitted to one ranking: add --one-ranking, with which the rows of every "
            "file are one more"
        )
    if not any(os.path.isfile(one) and sniff(one)[0] == "letor" for one in (*data, *forgotten)):
        options = replace(options, weight=options.weight or scorer.source.get("weight"))
    if ranker._seen.weighted and options.weight is None:
        raise ValueError(
            f"{model} was fitted with weights of rows: name their column by --weight (LETOR text "
            "has none: use a table, or update the model in Python)"
        )
    about: dict[str, Any] = {
        "rows_added": 0,
        "rows_forgotten": 0,
        "queries_before": int(ranker.n_queries_),
        "accuracy_of_new": None,
        "accuracy_expected": None,
    }
    with Work(f"Reading {(*data, *forgotten)[0]}") as work:
        adding = _Change(scorer, data, options, streaming.partial_fit, "rows_added")
        forgetting = _Change(scorer, forgotten, options, streaming.forget, "rows_forgotten")
        forgetting.known = set(ranker._seen.queries)
        # What is replaced must go first. Otherwise it goes last: a model of no rows has no scales.
        replaces = adding.is_large or adding.knows_any(ranker._seen.queries, work)
        if check != "off":
            about |= _checked(scorer, adding, check)
        for change in (forgetting, adding) if replaces else (adding, forgetting):
            about[change.count] = change.make(work)
        if not hasattr(ranker, "_model"):
            raise ValueError(f"{', '.join(forgotten)}: nothing would be left to rank by")
    words = [
        f"{about[key]:,} rows of {', '.join(files)} {what}"
        for key, files, what in (
            ("rows_added", data, "added"),
            ("rows_forgotten", forgotten, "forgotten"),
        )
        if files
    ]
    note_source(scorer.model, "; ".join(words))
    return about | {"n_queries": int(ranker.n_queries_), "n_pairs": int(ranker.n_pairs_)}


def _checked(scorer: Scorer, adding: _Change, check: str) -> dict[str, Any]:
    """Score the new queries by the model as it is; warn, or raise, if they do not look alike."""
    if adding.loaded is None:  # large files are not held in memory
        return {}
    doubts, values = [], []
    for rows in adding.loaded:
        doubts += _moved_features(scorer, rows)
        try:
            scores = scorer.scores(rows.data, rows.qid, name=adding.name)
            values.append(np.atleast_1d(pairwise_accuracy(rows.target, scores, qid=rows.qid,
                                                          average=None)))  # fmt: skip
        except ValueError:  # no query has a pair
            continue
    found: dict[str, Any] = {}
    if values:
        by_query = np.concatenate(values)
        found["accuracy_of_new"] = accuracy = float(np.nanmean(by_query))
        ranker: Any = scorer.ranker
        if getattr(ranker, "scoring", None) == "pairwise_accuracy":
            found["accuracy_expected"] = expected = float(ranker.best_score_)
            high = mean_interval(by_query, confidence_level=0.99)[1]
            if high < expected:
                doubts.append(
                    f"the model orders {accuracy:.1%} of the pairs of the new queries, and "
                    f"{expected:.1%} were expected (99 % interval up to {high:.1%}): are labels "
                    "and columns those of training?"
                )
    for doubt in doubts:
        if check == "error":
            raise ValueError(f"{adding.name}: {doubt} (--check warn or off adds them)")
        warn(f"{adding.name}: {doubt}")
    return found


def _moved_features(scorer: Scorer, rows: Any) -> list[str]:
    """Features whose mean is far from that of training, or whose spread is another."""
    scaler = next((step for step in scorer.steps if isinstance(step, StandardScaler)), None)
    if scaler is None or scaler.mean_ is None or not isinstance(rows.data, np.ndarray):
        return []
    with np.errstate(all="ignore"):
        shift = np.abs(np.nanmean(rows.data, axis=0) - scaler.mean_) / scaler.scale_
        ratio = np.nanstd(rows.data, axis=0) / scaler.scale_
        moved = (shift > MAX_SHIFT) | (ratio > MAX_SHIFT) | ((ratio < 1 / MAX_SHIFT) & (ratio > 0))
    moved &= scaler.var_ > 0
    names = scorer.names or [f"feature {j + 1}" for j in range(len(moved))]
    listed = [repr(names[j]) for j in np.flatnonzero(moved)]
    if not listed:
        return []
    shown = ", ".join(listed[:5]) + ", …" * (len(listed) > 5)
    return [
        f"{shown}: mean or spread differs from the training rows by a factor of more than "
        f"{MAX_SHIFT:g} standard deviations: did the unit change?"
    ]


class _Change:
    """Files whose queries are added, or taken away.

    Parameters
    ----------
    scorer : Scorer
    paths : sequence of str
    options : DataOptions
    change : function of a model and rows
    count : str
        What the number of rows is called.

    Attributes
    ----------
    known : set or None
        The only queries that the rows may have.
    """

    def __init__(
        self,
        scorer: Scorer,
        paths: Sequence[str],
        options: DataOptions,
        change: Callable[..., Any],
        count: str,
    ) -> None:
        self._scorer, self._change, self.count = scorer, change, count
        self._files: list[DataFile] = []
        self._loaded: Any = None
        self.known: set[str] | None = None
        need = ("target",) if options.one_ranking else ("target", "qid")
        # One ranking is one file; queries may lie across files, which are then read as one.
        for some in [[path] for path in paths] if options.one_ranking else [paths] * bool(paths):
            file = rows_for(scorer, some, options, need, beyond="error")
            self._files.append(file)

    @property
    def name(self) -> str:
        """Name of the files."""
        return self._files[0].name

    @property
    def loaded(self) -> list[Any] | None:
        """All rows, where they are in memory."""
        return None if self._loaded is None else [rows for [rows] in self._loaded]

    @property
    def is_large(self) -> bool:
        """Whether the rows are read batch by batch."""
        return any(file.large for file in self._files)

    def knows_any(self, queries: Any, work: Work) -> bool:
        """Whether the rows, which are read, have a query of these."""
        self._loaded = [[file.load(work)] for file in self._files]
        labels = (query_keys(rows.qid) for [rows] in self._loaded
                  if rows.qid is not None and "group_file" not in rows)  # fmt: skip
        return any(not queries.keys().isdisjoint(some) for some in labels)

    def make(self, work: Work) -> int:
        """Change the model, and give the number of rows."""
        n_rows = 0
        parts: Iterable[Any] = self._loaded or [
            file.parts(work, by_query=True) for file in self._files
        ]
        for file, batches in zip(self._files, parts, strict=True):
            first = self._first_number()
            for rows in batches:
                n_rows += rows.data.shape[0]
                if "group_file" in rows:
                    self._number_queries(rows, file, first)
                with _named(file):
                    self._require_known(rows.qid)
                    self._change(
                        self._scorer.model,
                        rows.data,
                        rows.target,
                        qid=rows.qid,
                        sample_weight=rows.sample_weight,
                    )
        return n_rows

    def _require_known(self, qid: Any) -> None:
        """Raise if a query is not one of the model as it was."""
        if qid is None or self.known is None:
            return
        for key in query_keys(qid):
            if key not in self.known:
                raise ValueError(f"{show_query(key)} was never added, so it cannot be forgotten")

    def _first_number(self) -> int:
        """The first integer after all integer ids of the model's queries."""
        numbers = map(written_integer, self._scorer.ranker._seen.queries)
        return max((number for number in numbers if number is not None), default=-1) + 1

    def _number_queries(self, rows: Any, file: DataFile, first: int) -> None:
        """Give new numbers to queries that a file of sizes numbers from 0."""
        if self.count == "rows_forgotten":
            raise ValueError(
                f"{file.name}: {rows.group_file} has sizes of queries and no ids, so the queries "
                "to forget cannot be found in the model: write ids (qid:7) into the rows that the "
                "model is fitted to and into those that it forgets"
            )
        rows.qid = rows.qid + first


@contextmanager
def _named(file: DataFile) -> Iterator[None]:
    """Name the file in errors about its rows."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{file.name}: {error}") from error
