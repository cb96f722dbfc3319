"""``rankrls export``, ``weights``, ``info`` and ``explain``: what is in a model."""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np

from rankrls import AutoRanker
from rankrls import export as exports
from rankrls._frames import take_rows
from rankrls._validation import check_feature_names
from rankrls.cli._files import check_output, names_from, write_file
from rankrls.cli._output import escaped_json, facts, listed, note, say, table, to_json
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
    function = getattr(exports, f"to_{o.to}")
    takes = inspect.signature(function).parameters
    given = {"store": o.store, "drop_zeros": o.drop_zeros, "normalizers": o.normalizers,
             "name": o.name, "feature_names": names_from(o.names)}  # fmt: skip
    options = {option: value for option, value in given.items() if value}
    for option in options:
        if option not in takes:
            raise ValueError(f"--{option.replace('_', '-')} is not for --to {o.to}")
    scorer = Scorer(o.model)
    if "feature_names" in takes and scorer.names is None and not o.names:
        raise ValueError(
            f"the model does not know the names of its {scorer.n_features} features: give them by "
            "--feature-names a,b,c or --feature-names @file"
        )
    content: Any = function(scorer.model, **options)
    if isinstance(content, dict):
        content = escaped_json(json.dumps(content, indent=2, ensure_ascii=False))
    if isinstance(content, str):
        data = (content.rstrip("\n") + "\n").encode("utf-8")
    else:
        data = content.SerializeToString()
    write_file(o.output or "-", [data])
    if o.output not in (None, "-"):
        note(f"{o.output} written")
    if "normalizers" in takes and not o.normalizers:
        constant = exports.linear_scores(scorer.model).constant
        if constant:
            note(f"scores of {o.to} are those of rankrls predict less {constant:.6g} "
                 "(--normalizers keeps them)")  # fmt: skip


def weights(o: Any) -> None:
    """Print the weights of the columns, the most important first."""
    scorer = Scorer(o.model)
    inner = getattr(scorer.ranker, "coef_", None)
    if inner is None or np.ndim(inner) != 1:
        raise ValueError(
            f"{o.model}: this {type(scorer.ranker).__name__} has no weights, one for each feature; "
            "rankrls report measures how important features are"
        )
    n = scorer.n_features
    names = scorer.names or [str(j) for j in range(1, n + 1)]
    if o.names:
        names = check_feature_names(names_from(o.names), scorer.names, n)
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
    rows = [{name: float(values[i]) for name, values in columns.items()} for i in order]
    named = [names[i] for i in order]
    if o.json:
        found = [{"feature": name} | row for name, row in zip(named, rows, strict=True)]
        to_json({"weights": found, "constant": constant, "n_features": n})
        return
    table({"feature": named} | {name.replace("_", " "): columns[name][order] for name in columns})


def info(o: Any) -> None:
    """Print what a model file says about itself, from its manifest."""
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
        say("\ncandidates, the best first")
        table({name: values for name, values in members.items() if isinstance(values, list)})


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
        raise ValueError(f"{o.model}: the model has several labels; fit each to explain it")
    ranked = index[np.argsort(-scores, kind="stable")]
    two = ranked[[first - 1, second - 1]]
    parts = (two[:1], two[1:], np.setdiff1d(ranked, two))
    a, b, others = (take_rows(data.data, rows) for rows in parts)
    found = explained(scorer.model, a, b, among=others if len(others) else None)
    lines = [
        {"column": str(label), "contribution": float(value), "first": _cell(a, j),
         "second": _cell(b, j)}
        for label, value, j in zip(found.labels, found.contribution, found.index, strict=True)
        if j not in scorer.model._table.dropped_  # these are not read
    ][: o.top]  # fmt: skip
    if o.json:
        to_json({"query": str(query), "rows": (two + 1).tolist(), "difference": found.difference,
                 "contributions": lines})  # fmt: skip
        return
    where = " and ".join(str(row + 1) for row in two.tolist())
    facts([("query", str(query)), ("rows", where), ("difference", f"{found.difference:.6g}")])
    say()
    heads = {"column": "column", "contribution": "contribution", "first": f"rank {first}",
             "second": f"rank {second}"}  # fmt: skip
    table({head: [_shown(line[key]) for line in lines] for key, head in heads.items()})


def _cell(row: Any, j: int) -> Any:
    """Value of a column of one row; None if it is missing."""
    value = row.iloc[0, j] if hasattr(row, "iloc") else row[0, j]
    if value is None or isinstance(value, str):
        return value
    return None if np.isnan(value) else float(value)


def _shown(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value or "missing")
    return text if len(text) <= 40 else text[:39] + "…"
