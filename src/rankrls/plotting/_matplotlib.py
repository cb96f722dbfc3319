"""Import of matplotlib, an optional dependency."""

from __future__ import annotations

from typing import Any

__all__ = ["pyplot"]


def pyplot() -> Any:
    """Return matplotlib.pyplot, or raise an error that says how to install it."""
    try:
        import matplotlib.pyplot
    except ImportError as error:
        raise ImportError(
            "plotting needs matplotlib: pip install 'rankrls[plot]' (or pip install matplotlib)"
        ) from error
    return matplotlib.pyplot
