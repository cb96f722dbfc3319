"""``rankrls export``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rankrls import export as exports
from rankrls.cli._estimators import Scorer
from rankrls.cli._files import check_output, names_from, output_file, write_all
from rankrls.cli._output import escaped_json, note

__all__ = ["export"]

#: Search engines that take a weight for each feature.
ENGINES = ("elasticsearch", "opensearch", "solr")


def export(
    *,
    model: str,
    target: str,
    output: str | None,
    name: str | None,
    feature_names: Sequence[str],
    store: str | None,
    drop_zeros: bool,
    normalizers: bool,
) -> None:
    """Write a model for another program."""
    check_output(output or "-", model)
    for option, given, targets in (
        ("--store", store is not None, ("solr",)),
        ("--drop-zeros", drop_zeros, ENGINES),
        ("--normalizers", normalizers, ENGINES),
        ("--name", name is not None, (*ENGINES, "vespa")),
        ("--feature-names", bool(feature_names), (*ENGINES, "sql", "vespa")),
    ):
        if given and target not in targets:
            raise ValueError(f"{option} is for --to {', '.join(targets)}")
    if target == "onnx" and output is None:
        raise ValueError("an ONNX model is not text: name a file by -o (-o - for stdout)")
    output = "-" if output is None else output
    scorer = Scorer(model)
    options: dict[str, Any] = {"drop_zeros": drop_zeros, "normalizers": normalizers}
    if target == "solr":
        options["store"] = store
    names = names_from(feature_names)
    content = _content(scorer, target, name or "rankrls", names, options)
    with output_file(output) as file:
        write_all(file, content)
    if output != "-":
        note(f"{output} written")
    if target in ENGINES and not normalizers:
        constant = exports.linear_scores(scorer.model).constant
        if constant:
            note(f"scores of {target} are those of rankrls predict less {constant:.6g} "
                 "(--normalizers keeps them)")  # fmt: skip


def _content(
    scorer: Scorer, target: str, name: str, names: list[str] | None, options: dict[str, Any]
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
    if target == "sql":
        return (exports.to_sql(estimator, names) + "\n").encode("utf-8")
    if target == "vespa":
        return (exports.to_vespa(estimator, names, name) + "\n").encode("utf-8")
    made: Any = {
        "elasticsearch": exports.to_elasticsearch,
        "opensearch": exports.to_opensearch,
        "solr": exports.to_solr,
    }[target]
    body = made(estimator, names, name, **options)
    text = escaped_json(json.dumps(body, indent=2, ensure_ascii=False))
    return (text + "\n").encode("utf-8")
