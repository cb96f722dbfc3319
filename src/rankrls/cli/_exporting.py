"""``rankrls export``, ``rankrls weights`` and ``rankrls info``: what is in a model."""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np

from rankrls import AutoRanker
from rankrls import export as exports
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
from rankrls.cli._pipelines import Scorer
from rankrls.io import describe_model

__all__ = ["export", "info", "weights"]

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
