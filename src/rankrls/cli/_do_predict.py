"""``rankrls predict``, and the scoring of a file that ``evaluate`` shares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from rankrls.cli._estimators import Scorer
from rankrls.cli._files import DataFile, check_output, output_file, write_all
from rankrls.cli._options import DataOptions
from rankrls.cli._output import Work
from rankrls.cli._refusals import refuse_columns

__all__ = ["predict", "rows_for", "scored"]


def predict(options: DataOptions, *, data: str, model: str, output: str) -> None:
    """Write the scores of the rows of a file."""
    refuse_columns(options, "predict")
    scorer = Scorer(model)
    check_output(output, data, model)
    rows = rows_for(scorer, data, options, ("qid",) if scorer.needs_qid else ())
    with Work(f"Scoring {rows.name}", rows.total) as work, output_file(output) as file:
        for _, scores in scored(scorer, rows, work):
            write_all(file, _lines(scores))


def rows_for(scorer: Scorer, data: str, options: DataOptions, need: tuple[str, ...]) -> DataFile:
    """The rows of a file with the features of a model, in their order.

    Missing features are NaN if the model or ``--missing`` fills them in.
    """
    if options.missing == "mean" and scorer.fills_in != "mean":
        raise ValueError(
            "--missing mean: the model has learned no means; fit it with --missing mean, or use "
            "--missing zero"
        )
    fills_in = (
        scorer.fills_in is not None if options.missing is None else options.missing != "error"
    )
    return DataFile(
        data,
        options,
        named=scorer.names,
        need=need,
        n_features=scorer.n_features,
        beyond="drop" if scorer.ignores_new else "error",
        missing="nan" if fills_in else "error",
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
    values = scores.astype(np.float64)
    if scores.ndim == 1:
        words = list(map(repr, values.tolist()))
    else:
        words = ["\t".join(map(repr, row)) for row in values.tolist()]
    return ("\n".join(words) + "\n").encode("ascii")
