"""``rankrls export``."""

from __future__ import annotations

import json
from typing import Any

from rankrls import export as exports
from rankrls.cli._estimators import Scorer
from rankrls.cli._files import check_output, names_from, output_file, write_all
from rankrls.cli._output import escaped_json, note

__all__ = ["export"]


def export(
    *,
    model: str,
    target: str,
    output: str | None,
    name: str | None,
    feature_names: str | None,
    store: str | None,
    drop_zeros: bool,
) -> None:
    """Write a model for another program."""
    check_output(output or "-", model)
    for option, given, targets in (
        ("--store", store is not None, ("solr",)),
        ("--drop-zeros", drop_zeros, ("elasticsearch", "opensearch", "solr")),
        ("--name", name is not None, ("elasticsearch", "opensearch", "solr")),
        ("--feature-names", feature_names is not None, ("elasticsearch", "opensearch", "solr")),
    ):
        if given and target not in targets:
            raise ValueError(f"{option} is for --to {', '.join(targets)}")
    if target == "onnx" and output is None:
        raise ValueError("an ONNX model is not text: name a file by -o (-o - for stdout)")
    output = "-" if output is None else output
    scorer = Scorer(model)
    content = _content(
        scorer, target, name or "rankrls", names_from(feature_names), store, drop_zeros
    )
    with output_file(output) as file:
        write_all(file, content)
    if output != "-":
        note(f"{output} written")


def _content(
    scorer: Scorer,
    target: str,
    name: str,
    names: list[str] | None,
    store: str | None,
    drop_zeros: bool,
) -> bytes:
    estimator = scorer.model
    if target == "onnx":
        return exports.to_onnx(estimator).SerializeToString()
    if target == "svmrank":
        return exports.to_svmrank(estimator).encode("utf-8")
    if names is None:
        names = scorer.names
    if names is None:
        raise ValueError(
            f"the model does not know the names of its {scorer.n_features} features: give them by "
            "--feature-names a,b,c or --feature-names @file"
        )
    made: Any = {
        "elasticsearch": exports.to_elasticsearch,
        "opensearch": exports.to_opensearch,
        "solr": exports.to_solr,
    }[target]
    more = {"store": store} if target == "solr" else {}
    body = made(estimator, names, name, drop_zeros=drop_zeros, **more)
    text = escaped_json(json.dumps(body, indent=2, ensure_ascii=False))
    return (text + "\n").encode("utf-8")
