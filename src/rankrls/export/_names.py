"""Checks of the names of features and models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rankrls._validation import show

__all__ = ["check_feature_names", "check_model_name"]

#: Maximum length in bytes of a document id of Elasticsearch and OpenSearch; the id of a model is
#: "model-<name>".
MAX_ID = 512


def check_feature_names(
    given: Any, fitted: list[str] | None, n_features: int, *, forbidden: str = "", why: str = ""
) -> list[str]:
    """Return the name of each feature: ``given``, or those of the training data if None.

    Parameters
    ----------
    given : sequence of str or None
    fitted : list of str or None
    n_features : int
    forbidden : str
        Characters that names must not contain; ``why`` gives the reason.
    """
    if given is None:
        if fitted is None:
            raise ValueError(
                "the model was fitted to rows without feature names; pass feature_names, the "
                f"engine's names of the {n_features} features in the order of the columns"
            )
        names = fitted
    else:
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ValueError(f"feature_names must be a list of names; got {show(given)}")
        names = list(given)
    if len(names) != n_features:
        raise ValueError(f"feature_names has {len(names)} names for {n_features} features")
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        _check_text(f"feature_names[{i}]", name)
        found = next((c for c in forbidden if c in name), None)
        if found is not None:
            raise ValueError(f"feature_names[{i}] is {name!r}, with {found!r}: {why}")
        if name in seen:
            raise ValueError(
                f"feature_names[{seen[name]}] and feature_names[{i}] are both {name!r}; give "
                "each feature a different name"
            )
        seen[name] = i
    return [str(name) for name in names]


def check_model_name(name: Any, *, what: str = "name", forbidden: str = "/") -> str:
    """Check that a name can be part of a URL and of an id."""
    _check_text(what, name)
    found = next((c for c in name if c.isspace() or c in forbidden), None)
    if found is not None:
        raise ValueError(
            f"{what} is {name!r}, with {found!r}: it becomes a part of a URL and of a query; use "
            "letters, digits, '_', '-' and '.'"
        )
    if len(f"model-{name}".encode()) > MAX_ID:
        raise ValueError(f"{what} is too long: at most {MAX_ID - len('model-')} bytes")
    return str(name)


def _check_text(what: str, name: Any) -> None:
    if not isinstance(name, str):
        raise ValueError(f"{what} must be a string; got {show(name)}")
    if not name.strip():
        raise ValueError(f"{what} is empty")
    if not name.isprintable():
        raise ValueError(f"{what} is {name!r}; names must not contain control characters")
