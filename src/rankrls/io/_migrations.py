"""Migrations that convert model files of earlier versions to the current format.

Increase ``FORMAT`` by one after a change that makes new files unreadable for an older rankrls, or
old files unreadable for a newer one, such as a field that is renamed or stored in another way. Add
``MIGRATIONS[old number]``, a function that converts the manifest of an old file to the new format,
and keep the small files of the old format in ``tests/data``. New parameters of an estimator need no
migration (a parameter missing in a file gets its default), nor do ``optional`` fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["FORMAT", "MIGRATIONS", "migrate", "objects"]

Manifest = dict[str, Any]

FORMAT = 1

MIGRATIONS: dict[int, Callable[[Manifest], Manifest]] = {}


def migrate(manifest: Manifest) -> Manifest:
    """Convert a manifest to the current format."""
    for version in range(manifest["format_version"], FORMAT):
        manifest = MIGRATIONS[version](manifest) | {"format_version": version + 1}
    return manifest


def objects(tree: Any, name: str) -> Iterator[dict[str, Any]]:
    """Iterate over the stored objects of a class in a tree, inner ones first, for migrations."""
    if type(tree) is list:
        for item in tree:
            yield from objects(item, name)
    elif type(tree) is dict:
        for item in tree.values():
            yield from objects(item, name)
        if tree.get("object") == name:
            yield tree
