"""Checks of the numbers that readers and generators take."""

from __future__ import annotations

import numbers
from typing import Any

__all__ = ["check_count"]


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return ``value`` as an int if it is an integer of at least ``least``."""
    integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not integer or int(value) < least:
        raise ValueError(f"{name} must be an integer >= {least}; got {value!r}")
    return int(value)
