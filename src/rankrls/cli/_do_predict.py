"""``rankrls predict``, and the scoring of a file that ``evaluate`` shares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rankrls.cli._estimators import Scorer
from rankrls.cli._files import DataFile, check_output, output_file, write_all
from rankrls.cli._options import DataOptions
from rankrls.cli._output import Work

__all__ = ["predict", "rows_for", "scored"]


def predict(options: DataOptions, *, data: str, model: str, output: str) -> None:
    """Write the scores of the rows of a file."""
    scorer = Scorer(model)
    check_output(output, data, model)
    rows = rows_for(scorer, data, options, ("qid",) if scorer.needs_qid else ())
    with Work(f"Scoring {rows.name}", rows.total) as work, output_file(output) as file:
        for _, scores in scored(scorer, rows, work):
            write_all(file, _lines(scores))


def rows_for(scorer: Scorer, data: str, options: DataOptions, need: tuple[str, ...]) -> DataFile:
    """The rows of a file with the features of a model, in their order."""
    beyond = "drop" if scorer.ignores_new else "error"
    n_features, named = scorer.n_features, scorer.names
    return DataFile(data, options, named=named, need=need, n_features=n_features, beyond=beyond)


def scored(scorer: Scorer, rows: DataFile, work: Work) -> Iterator[tuple[Any, Any]]:
    """Batches of rows, each with its scores."""
    if scorer.needs_qid and rows.reading["qid"] is None:  # scaled as one ranking
        whole = rows.load(work)
        yield whole, scorer.scores(whole.data, name=rows.name)
        return
    for batch in rows.parts(work, by_query=scorer.needs_qid):
        yield batch, scorer.scores(batch.data, batch.qid, name=rows.name)


def _lines(scores: Any) -> bytes:
    """One line for each row, with as many digits as it takes to read the same number again."""
    values = scores.astype(np.float64)
    if scores.ndim == 1:
        words = list(map(repr, values.tolist()))
    else:
        words = ["\t".join(map(repr, row)) for row in values.tolist()]
    return ("\n".join(words) + "\n").encode("ascii")
