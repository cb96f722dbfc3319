"""``rankrls export``."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
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
    feature_names: Sequence[str],
    store: str | None,
    drop_zeros: bool,
    normalizers: bool,
) -> None:
    """Write a model for another program."""
    check_output(output or "-", model)
    if target == "onnx" and output is None:
        raise ValueError("an ONNX model is not text: name a file by -o (-o - for stdout)")
    given: dict[str, Any] = {
        "store": store,
        "drop_zeros": drop_zeros or None,
        "normalizers": normalizers or None,
        "name": name,
        "feature_names": names_from(feature_names),
    }
    options = {option: value for option, value in given.items() if value is not None}
    for option in options:
        if option not in _parameters(target):
            known = [one.removeprefix("to_") for one in exports.__all__ if one.startswith("to_")]
            formats = [other for other in known if option in _parameters(other)]
            raise ValueError(f"--{option.replace('_', '-')} is for --to {', '.join(formats)}")
    scorer = Scorer(model)
    if "feature_names" in _parameters(target) and scorer.names is None and not feature_names:
        raise ValueError(
            f"the model does not know the names of its {scorer.n_features} features: give them by "
            "--feature-names a,b,c or --feature-names @file"
        )
    content = getattr(exports, f"to_{target}")(scorer.model, **options)
    output = "-" if output is None else output
    with output_file(output) as file:
        write_all(file, _encoded(content))
    if output != "-":
        note(f"{output} written")
    if "normalizers" in _parameters(target) and not normalizers:
        constant = exports.linear_scores(scorer.model).constant
        if constant:
            note(f"scores of {target} are those of rankrls predict less {constant:.6g} "
                 "(--normalizers keeps them)")  # fmt: skip


def _parameters(target: str) -> Any:
    """Parameters of the function that writes a format, which are its options."""
    return inspect.signature(getattr(exports, f"to_{target}")).parameters


def _encoded(content: Any) -> bytes:
    """The bytes of a text, of an object for JSON, or of a model of ONNX."""
    if hasattr(content, "SerializeToString"):
        return content.SerializeToString()
    if isinstance(content, dict):
        content = escaped_json(json.dumps(content, indent=2, ensure_ascii=False))
    return (content.rstrip("\n") + "\n").encode("utf-8")
