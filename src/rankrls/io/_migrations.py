"""Files of earlier versions: what has to be done before this version can read them.

``FORMAT`` counts the changes after which an older rankrls would not understand a new file, or a
newer one an old file. A change of that kind (a field renamed, or stored in another way) makes it
one larger, adds ``MIGRATIONS[old number]``, a function that brings the manifest of an old file into
the new form, and leaves the small files of the old format in ``tests/data``. New parameters of an
estimator need no migration (a file that lacks them gets the default), nor do ``optional`` fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["FORMAT", "MIGRATIONS", "migrate", "objects"]

Manifest = dict[str, Any]

FORMAT = 1

MIGRATIONS: dict[int, Callable[[Manifest], Manifest]] = {}


def migrate(manifest: Manifest) -> Manifest:
    """The manifest as this version would have written it."""
    for version in range(manifest["format_version"], FORMAT):
        manifest = MIGRATIONS[version](manifest) | {"format_version": version + 1}
    return manifest


def objects(tree: Any, name: str) -> Iterator[dict[str, Any]]:
    """All stored objects of a class in a tree, inner ones first: what a migration changes."""
    if type(tree) is list:
        for item in tree:
            yield from objects(item, name)
    elif type(tree) is dict:
        for item in tree.values():
            yield from objects(item, name)
        if tree.get("object") == name:
            yield tree
