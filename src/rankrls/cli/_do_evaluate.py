"""``rankrls evaluate``."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from rankrls.cli._do_predict import rows_for, scored
from rankrls.cli._estimators import Scorer
from rankrls.cli._files import DataFile, shown
from rankrls.cli._options import DataOptions
from rankrls.cli._output import Work, facts, number, queries, require_stdout, table, to_json, warn
from rankrls.cli._refusals import refuse_columns
from rankrls.metrics import average_precision, ndcg, pairwise_error, precision, reciprocal_rank

__all__ = ["evaluate"]


def evaluate(
    options: DataOptions,
    *,
    data: str,
    model: str | None,
    scores: str | None,
    k: int,
    threshold: float,
    undefined: str,
    per_query: bool,
    as_json: bool,
) -> None:
    """Print measures of the order that scores give the rows of a file."""
    require_stdout()
    if (model is None) == (scores is None):
        raise ValueError("give a model by -m, or --scores")
    if scores == data == "-":
        raise ValueError("stdin cannot be both the data and the scores")
    refuse_columns(options, "evaluate")
    if scores is not None and "features" in options.given:
        raise ValueError("--features is for a model: --scores needs no feature")
    if scores is not None and "missing" in options.given:
        raise ValueError("--missing is for a model: --scores needs no feature")
    y, qid, score = _read(options, data, model, scores)
    measures = _Measures(y, score, qid, k, threshold, undefined)
    if per_query:
        measures.tell_queries(as_json)
    elif as_json:
        to_json(measures.summary())
    else:
        measures.tell()


def _read(options: DataOptions, data: str, model: Any, scores: Any) -> tuple[Any, Any, Any]:
    """Labels, query ids or None, and scores of all rows; only these are kept in memory."""
    need = ("target",) if options.one_ranking else ("target", "qid")
    labels, queries = [], []
    found: list[Any] = []
    given = None if scores is None else _read_scores(scores)
    scorer = None if model is None else Scorer(model)
    rows = (DataFile(data, options, need=need, named=[]) if scorer is None
            else rows_for(scorer, data, options, need))  # fmt: skip
    with Work(f"Scoring {rows.name}", rows.total) as work:
        parts = ((batch, None) for batch in rows.parts(work, by_query=False)) if (
            scorer is None) else scored(scorer, rows, work)  # fmt: skip
        for batch, score in parts:
            labels.append(batch.target)
            queries.append(batch.qid)
            found.append(score)
    y = np.concatenate(labels)
    qid = None if queries[0] is None else np.concatenate(queries)
    score = np.concatenate(found) if given is None else given
    if score.ndim > 1:
        raise ValueError("the model has several outputs: evaluate it in Python")
    if len(score) != len(y):
        raise ValueError(f"{shown(scores)} has {len(score)} scores, and {rows.name} {len(y)} rows")
    return y, qid, score


def _read_scores(path: str) -> Any:
    """One number on each line; empty lines are skipped."""
    if path == "-":
        lines = sys.stdin.buffer.read().splitlines()
    else:
        with open(path, "rb") as file:
            lines = file.read().splitlines()
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


class _Measures:
    """Measures of every query, and over all of them."""

    def __init__(
        self, y: Any, score: Any, qid: Any, k: int, threshold: float, undefined: str
    ) -> None:
        self.k, self.undefined = k, undefined
        self.n_rows = len(y)
        labels = np.zeros(len(y), dtype=np.int64) if qid is None else qid
        names, first, codes = np.unique(labels, return_index=True, return_inverse=True)
        # Queries in the order in which they come.
        order = np.argsort(first)
        self.names = names[order]
        codes = np.argsort(order)[codes]
        self.sizes = np.bincount(codes)
        self.pairs = _n_pairs(y, codes)
        self.errors: Any = pairwise_error(y, score, qid=codes, average=None)
        # A pair is swapped if its order is wrong, or if there is none: svm_rank counts so too.
        wrong = pairwise_error(y, score, qid=codes, average=None, ties="error")
        counted = self.pairs > 0
        half = np.where(counted, self.errors, 0) * self.pairs
        self.swapped = np.rint(np.where(counted, wrong, 0) * self.pairs).astype(np.int64)
        self.tied = np.rint(2 * (self.swapped - half)).astype(np.int64)
        fill = undefined if undefined == "skip" else float(undefined)
        options: dict[str, Any] = {"qid": codes, "average": None, "undefined": fill}
        binary = options | {"relevance_threshold": threshold}
        self.lists = {
            f"ndcg@{k}": self._gains(y, score, options),
            "map": average_precision(y, score, **binary),
            "mrr": reciprocal_rank(y, score, **binary),
            f"precision@{k}": precision(y, score, k=k, **binary),
        }
        self.n_without_gain = len(self.names) - len(np.unique(codes[y > 0]))
        self.n_without_relevant = len(self.names) - len(np.unique(codes[y >= threshold]))

    def _gains(self, y: Any, score: Any, options: dict[str, Any]) -> Any:
        try:
            return ndcg(y, score, k=self.k, **options)
        except ValueError as error:
            if (y >= 0).all() and (y <= 1000).all():
                raise
            warn(f"NDCG is left out: {error}")
            return np.full(len(self.names), np.nan)

    def summary(self) -> dict[str, Any]:
        """One number for each measure."""
        counted = self.pairs > 0
        n_pairs, swapped = int(self.pairs.sum()), int(self.swapped.sum())
        perfect = int((self.swapped[counted] == 0).sum())
        error = float(np.mean(self.errors[counted]))
        means = {name: _mean(values) for name, values in self.lists.items()}
        return {
            "pairwise_error": error,
            "pairwise_accuracy": 1 - error,
            "pairwise_error_all_pairs": float((self.errors * self.pairs)[counted].sum() / n_pairs),
            **means,
            "swapped_pairs": swapped,
            "tied_pairs": int(self.tied.sum()),
            "n_pairs": n_pairs,
            "perfect_queries": perfect,
            "zero_one_error": 1 - perfect / int(counted.sum()),
            "n_queries": len(self.names),
            "n_queries_with_pairs": int(counted.sum()),
            "n_queries_without_relevant": int(self.n_without_relevant),
            "n_rows": self.n_rows,
        }

    def tell(self) -> None:
        """Print the summary."""
        all_ = self.summary()
        with_pairs = all_["n_queries_with_pairs"]
        share = all_["swapped_pairs"] / all_["n_pairs"]
        asides = [self._aside(n) for n in (self.n_without_gain, all_["n_queries_without_relevant"])]
        tied = f", {number(all_['tied_pairs'])} of them tied" if all_["tied_pairs"] else ""
        facts(
            [
                ("rows", f"{number(self.n_rows)} in {queries(len(self.names))}, "
                         f"{number(with_pairs)} with a pair"),
                ("pairwise error", f"{number(all_['pairwise_error'])}  (mean over queries)"),
                (f"NDCG@{self.k}", number(all_[f"ndcg@{self.k}"]) + asides[0]),
                ("MAP", number(all_["map"]) + asides[1] * (asides[0] != asides[1])),
                ("MRR", number(all_["mrr"])),
                (f"precision@{self.k}", number(all_[f"precision@{self.k}"])),
                ("swapped pairs", f"{number(all_['swapped_pairs'])} of {number(all_['n_pairs'])} "
                                  f"({share:.2%}){tied}"),
                ("zero/one error", f"{all_['zero_one_error']:.2%} ({all_['perfect_queries']:,} "
                                   f"perfect, {with_pairs - all_['perfect_queries']:,} not)"),
            ]
        )  # fmt: skip

    def _aside(self, missing: int) -> str:
        """What becomes of queries without a relevant row, if there are any."""
        one = missing == 1
        what = f"count{'s' * one} {self.undefined}"
        if self.undefined == "skip":
            what = "is left out" if one else "are left out"
        noun = "query" if one else "queries"
        return f"  ({number(missing)} {noun} without a relevant row {what})" if missing else ""

    def tell_queries(self, as_json: bool) -> None:
        """Print one line for each query."""
        columns = {
            "rows": self.sizes,
            "pairs": self.pairs,
            "swapped_pairs": self.swapped,
            "pairwise_error": self.errors,
            **self.lists,
        }
        lists = {name: values.tolist() for name, values in columns.items()}
        names = self.names.tolist()
        if as_json:
            rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
            summary = self.summary()
            summary["queries"] = [{"qid": q, **row} for q, row in zip(names, rows, strict=True)]
            to_json(summary)
            return
        head = ["query", "error", "rows", "pairs", "swapped", *self.lists]
        kinds = ["pairwise_error", "rows", "pairs", "swapped_pairs", *self.lists]
        table(head, [[str(query), *(number(lists[kind][i]) for kind in kinds)]
                     for i, query in enumerate(names)])  # fmt: skip


def _mean(values: Any) -> float:
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else float("nan")


def _n_pairs(y: Any, codes: Any) -> Any:
    """Pairs of rows with different labels in every query: C(n, 2) − Σ_levels C(m, 2)."""
    _, levels = np.unique(y, return_inverse=True)
    n_levels = int(levels.max()) + 1
    groups, sizes = np.unique(codes.astype(np.int64) * n_levels + levels, return_counts=True)
    n = np.bincount(codes).astype(np.int64)
    tied = np.zeros(len(n), dtype=np.int64)
    np.add.at(tied, groups // n_levels, sizes * (sizes - 1) // 2)
    return n * (n - 1) // 2 - tied
