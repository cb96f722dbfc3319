"""``rankrls compare``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rankrls.cli._do_evaluate import labels_and_scores
from rankrls.cli._metric_options import Relevance, refuse_data_options, refuse_run_options
from rankrls.cli._options import DataOptions
from rankrls.cli._output import require_stdout, say, to_json
from rankrls.cli._refusals import refuse_columns
from rankrls.datasets import load_qrels, load_run
from rankrls.metrics import compare_rankers, compare_runs
from rankrls.metrics.metric_names import COMPARED_METRICS, LIST_METRICS, parse_metric

__all__ = ["compare"]


def compare(
    options: DataOptions,
    relevance: Relevance,
    *,
    a: str,
    b: str,
    data: Sequence[str],
    qrels: str | None,
    metric: str,
    ties: str,
    missing_queries: str,
    method: str,
    n_permutations: int,
    confidence_level: float,
    seed: int,
    as_json: bool,
) -> None:
    """Print a paired test of two models, files of scores, or runs."""
    require_stdout()
    if bool(data) == (qrels is not None):
        raise ValueError(
            "name the rows that two models or files of scores are compared on by --data, or the "
            "judgements for two runs by --qrels"
        )
    if "-" in (a, b, *data, qrels):
        raise ValueError("name files: stdin cannot be read for A and again for B")
    if method != "permutation":
        for name in ("n_permutations", "seed"):
            if name in relevance.given:
                option = {"n_permutations": "--n-permutations", "seed": "--random-state"}[name]
                raise ValueError(f"{option} is for --method permutation")
    allowed = COMPARED_METRICS if qrels is None else LIST_METRICS
    relevance.refuse_unused([parse_metric(metric, "--metric", allowed=allowed)])
    test: dict[str, Any] = {
        "method": method,
        "n_permutations": n_permutations,
        "confidence_level": confidence_level,
        "random_state": seed,
        **relevance.arguments(),
    }
    if qrels is not None:
        refuse_data_options(options, "--qrels")
        how: dict[str, Any] = {"ties": ties, "missing_queries": missing_queries}
        judged = load_qrels(qrels)
        result = compare_runs(load_run(a), load_run(b), judged, metric=metric, **how, **test)
    else:
        refuse_run_options(relevance.given)
        refuse_columns(options, "compare")
        y, qid, scores = labels_and_scores(options, data, [_source(a), _source(b)])
        if qid is None:
            raise ValueError("two rankers are compared by their values on queries: there are none")
        result = compare_rankers(y, *scores, qid=qid, metric=metric, **test)
    if as_json:
        to_json({"a": a, "b": b, **asdict(result)})
    else:
        say(f"a = {a}\nb = {b}\n{result}")


def _source(path: str) -> tuple[str | None, str | None]:
    """A file as a model, which is an archive, or as scores in text."""
    with open(path, "rb") as file:
        return (path, None) if file.read(4) == b"PK\x03\x04" else (None, path)
