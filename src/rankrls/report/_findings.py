"""Findings: problems, warnings and notes about the data or the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["MAX_EXAMPLES", "Finding", "count", "listed"]

#: Maximum number of examples for each finding.
MAX_EXAMPLES = 5


@dataclass(frozen=True)
class Finding:
    """A problem, warning or note about the data or the model.

    Attributes
    ----------
    level : {"problem", "warning", "note"}
        "problem" if results cannot be trusted, "warning" if results may be worse than necessary,
        "note" for useful information.
    code : str
        Short name, for programs.
    title, text : str
        What was found; what it means and what to do.
    examples : list of str
        Names of features, queries or rows.
    """

    level: Literal["problem", "warning", "note"]
    code: str
    title: str
    text: str
    examples: list[str] = field(default_factory=list)


def listed(names: Iterable[Any], total: int) -> list[str]:
    """The first few names, and the number of further ones."""
    few = [str(name) for name in names][:MAX_EXAMPLES]
    if total > len(few):
        few.append(f"… and {total - len(few):,} more")
    return few


def count(n: int, one: str, many: str | None = None) -> str:
    """Format a number with its noun."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
