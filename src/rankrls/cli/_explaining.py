"""``rankrls explain``: why one row of a query is ranked above another."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankrls import AutoRanker
from rankrls._frames import RawTable, take_rows
from rankrls.cli._output import facts, require_stdout, say, table, to_json
from rankrls.cli._pipelines import Scorer, rows_for
from rankrls.diagnostics import explain as explained

__all__ = ["explain"]


def explain(o: Any) -> None:
    """Print the contributions of columns to the difference of two scores."""
    require_stdout()
    scorer = Scorer(o.model)
    if not isinstance(scorer.model, AutoRanker):
        raise ValueError(
            f"{o.model}: explain is for models of fit --auto; rankrls weights prints the weights "
            "of a linear model, and rankrls.diagnostics.explain takes any ranker in Python"
        )
    data = rows_for(scorer, o.data, o, () if o.one_ranking else ("qid",)).load()
    names = np.zeros(data.data.shape[0], dtype=int) if data.qid is None else np.asarray(data.qid)
    query = names[0] if o.query is None else o.query
    index = np.flatnonzero(names.astype(str) == str(query))
    if not len(index):
        raise ValueError(f"--query: there is no query {query!r}")
    first, second = o.ranks
    if max(first, second) > len(index) or first == second:
        raise ValueError(f"--ranks: {first},{second} must be two places from 1 to {len(index)}")
    scores = scorer.scores(take_rows(data.data, index), None, name=o.data[0])
    if scores.ndim > 1:
        raise ValueError(f"{o.model}: the model has several labels: explain them in Python")
    ranked = index[np.argsort(-scores, kind="stable")]
    two = ranked[[first - 1, second - 1]]
    a, b, others = (
        take_rows(data.data, rows) for rows in (two[:1], two[1:], np.setdiff1d(ranked, two))
    )
    found = explained(scorer.model, a, b, among=others if len(others) else None)
    keys = ("column", "contribution", "first", "second")
    lines = [
        dict(zip(keys, (str(label), float(value), _cell(a, j), _cell(b, j)), strict=True))
        for label, value, j in zip(found.labels, found.contribution, found.index, strict=True)
        if j not in scorer.model._table.dropped_  # these are not read
    ][: o.top]
    if o.json:
        to_json({"query": str(query), "rows": (two + 1).tolist(), "difference": found.difference,
                 "contributions": lines})  # fmt: skip
        return
    where = " and ".join(str(row + 1) for row in two.tolist())
    facts([("query", str(query)), ("rows", where), ("difference", f"{found.difference:.6g}")])
    say()
    cells = [[line["column"], f"{line['contribution']:+.4g}",
              _shown(line["first"]), _shown(line["second"])] for line in lines]  # fmt: skip
    table(["column", "contribution", f"rank {first}", f"rank {second}"], cells)


def _cell(row: Any, j: int) -> Any:
    """Value of a column of one row; None if it is missing."""
    if isinstance(row, RawTable) and j in row.text:
        return row.text[j][0]
    value = (row.numbers if isinstance(row, RawTable) else row)[0, j]
    return None if np.isnan(value) else float(value)


def _shown(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value or "missing")
    return text if len(text) <= 40 else text[:39] + "…"
