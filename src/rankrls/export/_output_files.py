"""Atomic writing of exported files."""

from __future__ import annotations

import json
import os
from typing import Any

from rankrls._streams import written
from rankrls._validation import show

__all__ = ["write_bytes", "write_json"]


def write_bytes(path: Any, content: bytes) -> None:
    """Replace the file ``path`` by ``content``; do nothing if path is None."""
    if path is None:
        return
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path must be the name of a file; got {show(path)}")
    with written(os.fspath(path)) as file:
        file.write(content)


def write_json(path: Any, content: dict[str, Any]) -> None:
    """Replace the file ``path`` by ``content`` as indented JSON in UTF-8."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())
