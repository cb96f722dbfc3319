"""``rankrls export``, ``weights``, ``info`` and ``explain``: what is in a model."""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np

from rankrls import AutoRanker
from rankrls import export as exports
from rankrls._frames import RawTable, take_rows
from rankrls.cli._files import check_output, names_from, output_file, write_all
from rankrls.cli._output import (
    escaped_json,
    facts,
    listed,
    note,
    require_stdout,
    say,
    table,
    to_json,
)
from rankrls.cli._pipelines import Scorer, rows_for
from rankrls.diagnostics import explain as explained
from rankrls.io import describe_model

__all__ = ["explain", "export", "info", "weights"]

#: What matters to programs only.
MINOR = ("copy", "verbose", "n_iter_no_change", "validation_fraction", "n_samples_seen_", "tol")


def export(o: Any) -> None:
    """Write a model for another program."""
    check_output(o.output or "-", o.model)
    if o.to == "onnx" and o.output is None:
        raise ValueError("an ONNX model is not text: name a file by -o (-o - for stdout)")
    functions = {name.removeprefix("to_"): getattr(exports, name)
                 for name in exports.__all__ if name.startswith("to_")}  # fmt: skip
    takes = {name: inspect.signature(one).parameters for name, one in functions.items()}
    options = {
        "store": o.store,
        "drop_zeros": o.drop_zeros or None,
        "normalizers": o.normalizers or None,
        "name": o.name,
        "feature_names": names_from(o.names),
    }
    options = {option: value for option, value in options.items() if value is not None}
    for option in options:
        if option not in takes[o.to]:
            formats = ", ".join(name for name in takes if option in takes[name])
            raise ValueError(f"--{option.replace('_', '-')} is for --to {formats}")
    scorer = Scorer(o.model)
    if "feature_names" in takes[o.to] and scorer.names is None and not o.names:
        raise ValueError(
            f"the model does not know the names of its {scorer.n_features} features: give them by "
            "--feature-names a,b,c or --feature-names @file"
        )
    content: Any = functions[o.to](scorer.model, **options)
    if isinstance(content, dict):
        content = escaped_json(json.dumps(content, indent=2, ensure_ascii=False))
    if isinstance(content, str):
        data = (content.rstrip("\n") + "\n").encode("utf-8")
    else:
        data = content.SerializeToString()
    with output_file(o.output or "-") as file:
        write_all(file, data)
    if o.output not in (None, "-"):
        note(f"{o.output} written")
    if "normalizers" in takes[o.to] and not o.normalizers:
        constant = exports.linear_scores(scorer.model).constant
        if constant:
            note(f"scores of {o.to} are those of rankrls predict less {constant:.6g} "
                 "(--normalizers keeps them)")  # fmt: skip


def weights(o: Any) -> None:
    """Print the weights of the columns, the most important first."""
    require_stdout()
    scorer = Scorer(o.model)
    inner = getattr(scorer.ranker, "coef_", None)
    if inner is None:
        kind, how = "a kernel model", ""
        if isinstance(scorer.ranker, AutoRanker):
            kind, how = "an AutoRanker, the mean of several rankers,", " --auto"
        raise ValueError(
            f"{o.model}: {kind} has no weights of features; rankrls report{how} measures how "
            "important they are"
        )
    if np.ndim(inner) != 1:
        raise ValueError(f"{o.model}: the model has several outputs: look at coef_ in Python")
    n = scorer.n_features
    names = names_from(o.names) or scorer.names or [str(j) for j in range(1, n + 1)]
    if len(names) != n:
        raise ValueError(f"--feature-names: {len(names)} names for the {n} features of {o.model}")
    columns: dict[str, Any] = {}
    constant = None
    if scorer.needs_qid:
        note("the features are scaled within each query: weights are those of scaled features")
    else:
        scores = exports.linear_scores(scorer.model, missing="ignore")
        columns["weight"], constant = scores.weights, scores.constant
    if scorer.steps and len(inner) == n:
        columns["scaled_weight"] = np.asarray(inner, dtype=np.float64)
    # The importance of a feature is its weight in scaled units.
    order = np.argsort(-np.abs(list(columns.values())[-1]), kind="stable")[: o.top]
    if o.json:
        rows = [{"feature": names[i], **{name: float(values[i]) for name, values in
                                         columns.items()}} for i in order]  # fmt: skip
        to_json({"weights": rows, "constant": constant, "n_features": n})
        return
    head = ["feature", *(name.replace("_", " ") for name in columns)]
    table(head, [[names[i], *(f"{values[i]:.6g}" for values in columns.values())] for i in order])


def info(o: Any) -> None:
    """Print what a model file says about itself, from its manifest."""
    require_stdout()
    about = describe_model(o.model)
    if o.json:
        to_json(about)
        return
    lines = [("type", about["type"])]
    steps = {name: part for name, part in about.get("steps", {}).items() if part is not None}
    for name, part in steps.items():
        lines.append((name, part["type"]))
        lines += [("  " + key, value) for key, value in _short(part)]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    facts([*lines, *_short(about), ("written by", versions)])
    history = [event for part in (about, *steps.values()) for event in part.get("history", ())]
    if history:
        say("\n  ".join(["\nhistory (best_score_ is that of the first fit)", *history]))
    members = about.get("summary", {}).get("members_")
    if isinstance(members, dict):
        columns = {name: values for name, values in members.items() if isinstance(values, list)}
        say("\ncandidates, the best first")
        rows = [list(map(str, row)) for row in zip(*columns.values(), strict=True)]
        table(list(columns), rows, left=len(columns))


def _short(about: dict[str, Any]) -> list[tuple[str, str]]:
    """What people want to know; --json tells everything."""
    found = {**about.get("parameters", {}), **about.get("summary", {})}
    if about.get("feature_names"):
        found["features"] = listed(about["feature_names"])
    return [
        (name, str(value)[:100])
        for name, value in found.items()
        if isinstance(value, str | int | float) and value is not False
        if name not in MINOR and "array of shape" not in str(value)
    ]


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
    parts = (two[:1], two[1:], np.setdiff1d(ranked, two))
    a, b, others = (take_rows(data.data, rows) for rows in parts)
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
