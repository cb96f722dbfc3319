"""Description of a model file from its manifest alone."""

from __future__ import annotations

from typing import Any

from rankrls.io._archive import ArchiveReader
from rankrls.io._kinds import require
from rankrls.io._values import Decoder, tag_of

__all__ = ["describe"]


def describe(reader: ArchiveReader) -> dict[str, Any]:
    """Return type, versions, parameters and a training summary; arrays are given by shape."""
    manifest = reader.manifest
    return {
        **_estimator(manifest["model"], reader),
        "format_version": manifest["format_version"],
        "versions": manifest["versions"],
    }


def _estimator(tree: Any, reader: ArchiveReader) -> dict[str, Any]:
    """Describe parameters, public attributes and feature names, for each step of a pipeline."""
    require(type(tree) is dict and tag_of(tree) == "object", "a model that is no object")
    params, fields = dict(tree.get("params", {})), tree.get("fields", {})
    description: dict[str, Any] = {"type": tree["object"]}
    if tree["object"] == "Pipeline":
        description["steps"] = {}
        for step in params.pop("steps"):
            name, part = step["tuple"]
            skipped = part is None or part == "passthrough"
            description["steps"][name] = None if skipped else _estimator(part, reader)
    description["parameters"] = {name: _sketch(value, reader) for name, value in params.items()}
    # Fitted attributes end in an underscore, private ones begin with it.
    public = [name for name in fields if name.endswith("_") and not name.startswith("_")]
    summary = {name: _sketch(fields[name], reader) for name in public}
    names = summary.pop("feature_names_in_", None)
    if "_model" in fields:
        solvers = fields["_model"].get("fields", {}).get("solvers")
        summary["uncertainty"] = bool(solvers)
    description["summary"] = summary
    if names is not None:
        description["feature_names"] = names
    source = _sketch(fields.get("_source"), reader)
    if isinstance(source, dict):
        history = source.pop("history", [])
        description |= {"columns": source, "history": history}
    return description


def _sketch(tree: Any, reader: ArchiveReader) -> Any:
    """Return plain data unchanged and a short text for anything else."""
    if type(tree) is list:
        return [_sketch(item, reader) for item in tree]
    if type(tree) is not dict:
        return tree
    tag = tag_of(tree)
    if tag == "array":
        dtype, shape = reader.type_and_shape(tree["array"])
        return f"{dtype} array of shape {shape}"
    if tag == "csr":
        return f"sparse array of shape {(*tree['shape'],)}"
    if tag == "set":
        return "a set of labels"
    if tag == "object":
        return f"a {tree['object']}"
    if tag == "dict":
        return {name: _sketch(item, reader) for name, item in tree["dict"].items()}
    if tag in ("dtype", "function"):
        return str(tree[tag])
    if tag == "slice":
        return f"slice{(*tree['slice'],)}"
    if tag in ("tuple", "strings", "items"):
        return [_sketch(item, reader) for item in tree[tag]]
    number = Decoder(reader.array, reader.budget.charge).decode(tree)
    return number if tag == "float" else number.item()


def _holds(tree: Any, name: str) -> bool:
    """Return whether the tree contains an object of this class."""
    if type(tree) is dict:
        return tree.get("object") == name or any(_holds(part, name) for part in tree.values())
    return type(tree) is list and any(_holds(part, name) for part in tree)
