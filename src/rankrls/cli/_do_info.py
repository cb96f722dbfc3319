"""``rankrls info``."""

from __future__ import annotations

from typing import Any

from rankrls.cli._auto_option import left_out, tell_members
from rankrls.cli._output import facts, require_stdout, say, to_json
from rankrls.io import describe_model, load_model

__all__ = ["info"]

#: What matters to programs only.
MINOR = ("copy", "verbose", "n_iter_no_change", "validation_fraction", "n_samples_seen_", "tol")


def info(model: str, as_json: bool) -> None:
    """Print what a model file says about itself."""
    require_stdout()
    about = describe_model(model)
    if as_json:
        to_json(about)
        return
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [("type", about["type"])]
    for step, what in about.get("steps", {}).items():
        lines.append((step, what["type"]))
        lines += [("  " + name, value) for name, value in _short(what)]
    lines += _short(about)
    ranker = load_model(model) if about["type"] == "AutoRanker" else None
    if ranker is not None and ranker._table.dropped_:
        lines.append(("left out", left_out(ranker)))
    facts([*lines, ("written by", versions)])
    parts = [about, *(part for part in about.get("steps", {}).values() if part is not None)]
    history = [event for part in parts for event in part.get("history", ())]
    if history:
        say("\nhistory (best_score_ is that of the first fit)")
        say("\n".join(f"  {event}" for event in history))
    if ranker is not None:
        say("\nmembers, with their held-out scores")
        tell_members(ranker.members_, about["parameters"]["scoring"])


def _short(about: dict[str, Any]) -> list[tuple[str, str]]:
    found = {**about.get("parameters", {}), **about.get("summary", {})}
    names = about.get("feature_names")
    if names:
        found["features"] = ", ".join(map(str, names[:8])) + (" …" if len(names) > 8 else "")
    return [(name, str(value)[:100]) for name, value in found.items() if _worth(name, value)]


def _worth(name: str, value: Any) -> bool:
    """Whether people want to know; --json tells everything."""
    plain = isinstance(value, str | int | float) and value is not False and name not in MINOR
    return plain and "array of shape" not in str(value)
