"""``rankrls update``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rankrls import streaming
from rankrls._validation import written_integer
from rankrls.cli._do_predict import rows_for
from rankrls.cli._estimators import Scorer
from rankrls.cli._files import DataFile, check_output
from rankrls.cli._options import DataOptions
from rankrls.cli._output import Work, facts, number, size, to_json
from rankrls.datasets.formats import sniff
from rankrls.estimators.seen_queries import query_keys, show_query
from rankrls.io import save_model

__all__ = ["update"]


def update(
    options: DataOptions,
    *,
    model: str,
    data: Sequence[str],
    forgotten: Sequence[str],
    output: str | None,
    as_json: bool,
) -> None:
    """Add the queries of files to a model, take away those of others, write it."""
    if not data and not forgotten:
        raise ValueError("there is nothing to learn from and nothing to forget: name DATA, or "
                         "files by --forget")  # fmt: skip
    if options.missing is not None:
        raise ValueError("--missing is for fit: the model fills in as it has learned to")
    if options.feature_names:
        raise ValueError("--feature-names is for training: update goes by those of the model")
    path = model if output is None else output
    if path == "-":
        raise ValueError("a model is written to a file, not to stdout: name it by -o")
    started = time.perf_counter()
    scorer = Scorer(model)
    check_output(path, *data, *forgotten)
    try:
        streaming.require_updatable(scorer.model)
    except ValueError as error:
        raise ValueError(f"{model}: {error}") from error
    ranker: Any = scorer.ranker
    if ranker._with_qid and options.one_ranking:
        raise ValueError(f"--one-ranking: {model} was fitted to queries, which have ids")
    if not ranker._with_qid and not options.one_ranking:
        raise ValueError(f"{model} was fitted to one ranking: add --one-ranking, with which the "
                         "rows of every file are one more")  # fmt: skip
    if not any(os.path.isfile(one) and sniff(one)[0] == "letor" for one in (*data, *forgotten)):
        # Columns that fit was told the names of are those of the new files, too.
        options = replace(
            options,
            label=options.label or getattr(ranker, "_label_column", None),
            qid_column=options.qid_column or getattr(ranker, "_qid_column", None),
            weight=options.weight or getattr(ranker, "_weight_column", None),
        )
    if ranker._seen.weighted and options.weight is None:
        raise ValueError(
            f"{model} was fitted with weights of rows: name their column by --weight (LETOR text "
            "has none: use a table, or update the model in Python)"
        )
    before = int(ranker.n_queries_)
    about: dict[str, Any] = {"rows_added": 0, "rows_forgotten": 0}
    with Work(f"Reading {(*data, *forgotten)[0]}") as work:
        adding = _Change(scorer, data, options, streaming.partial_fit, "rows_added")
        forgetting = _Change(scorer, forgotten, options, streaming.forget, "rows_forgotten")
        forgetting.known = set(ranker._seen.queries)
        # What is replaced must go first. Otherwise it goes last: a model of no rows has no scales.
        replaces = adding.is_large or adding.knows_any(ranker._seen.queries, work)
        for change in (forgetting, adding) if replaces else (adding, forgetting):
            about[change.count] = change.make(work)
        if not hasattr(ranker, "_model"):
            raise ValueError(f"{', '.join(forgotten)}: nothing would be left to rank by")
        work.now(f"Writing {path}")
        save_model(scorer.model, path)
    alpha = float(getattr(ranker, "alpha_", getattr(ranker, "alpha", 0.0)))
    about |= {
        "n_queries": int(ranker.n_queries_),
        "n_pairs": int(ranker.n_pairs_),
        "alpha": alpha,
        "seconds": round(time.perf_counter() - started, 3),
        "file": path,
    }
    if as_json:
        to_json(about)
        return
    facts(
        [
            ("added", f"{number(about['rows_added'])} rows"),
            ("forgotten", f"{number(about['rows_forgotten'])} rows"),
            ("queries", f"{number(before)} before, {number(about['n_queries'])} now"),
            ("pairs", number(about["n_pairs"])),
            ("alpha", f"{alpha:g}, as before"),
            ("written", f"{path} ({size(os.path.getsize(path))}) in {about['seconds']:.1f} s"),
        ]
    )


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
