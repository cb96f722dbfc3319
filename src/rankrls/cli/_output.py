"""What users see: results on stdout, notes and progress on stderr."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

__all__ = [
    "Work",
    "facts",
    "note",
    "number",
    "one_line",
    "queries",
    "size",
    "table",
    "to_json",
    "warn",
]

#: Work that ends sooner shows no progress.
PATIENCE = 1.0


def note(message: str) -> None:
    """Tell something on stderr."""
    print(f"rankrls: {message}", file=sys.stderr)


def warn(message: str) -> None:
    """Warn on stderr."""
    note(f"warning: {message}")


def one_line(message: str) -> str:
    """Without line ends, and not endless."""
    text = " ".join(str(message).split())
    return text if len(text) <= 1000 else text[:1000] + " …"


def number(value: Any, digits: int = 4) -> str:
    """A count with separators, or a measure with a few digits; "–" for None and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}f}"


def queries(count: int) -> str:
    """A number of queries in words."""
    return f"{count:,} quer{'y' if count == 1 else 'ies'}"


def size(n_bytes: int) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000  # type: ignore[assignment]
    return f"{n_bytes:.3g} GB"


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values below each other."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        print(f"{name:<{width}}  {value}")


def table(head: Sequence[str], rows: Sequence[Sequence[str]], marked: int | None = None) -> None:
    """Print aligned columns, the first to the left; one row may be marked."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for place, row in enumerate((head, *rows), -1):
        cells = [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row, widths, strict=True))]
        del cells[1]
        print("  ".join(cells) + ("  *" if place == marked else ""))


def to_json(values: dict[str, Any]) -> None:
    """Print one JSON object; what is not a finite number is null."""
    print(json.dumps(_plain(values), allow_nan=False, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class Work:
    """Progress on stderr, while the block runs: only on a terminal, and after a second.

    Parameters
    ----------
    doing : str
        What is being done.
    total : float, optional
        How much there is to do; None if nobody knows.
    """

    def __init__(self, doing: str, total: float | None = None) -> None:
        self._doing, self._total, self._done = doing, total, 0.0
        self._lock = threading.Lock()
        self._bar: Any = None
        self._task: Any = None
        self._timer = threading.Timer(PATIENCE, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Work:
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
            self._bar, self._doing = None, ""

    def update(self, done: float) -> None:
        """Tell how much is done."""
        with self._lock:
            self._done = done
            if self._bar is not None:
                self._bar.update(self._task, completed=done)

    def now(self, doing: str) -> None:
        """Tell that something else is being done, of unknown length."""
        with self._lock:
            self._doing, self._total = doing, None
            if self._bar is not None:
                self._bar.update(self._task, description=doing, total=None)

    def _show(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        except ImportError:  # progress is not worth an error
            return
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with self._lock:
            if not self._doing:
                return
            # stdout is for results: rich must not touch it.
            console = Console(stderr=True)
            self._bar = Progress(*columns, console=console, transient=True, redirect_stdout=False)
            self._task = self._bar.add_task(self._doing, total=self._total, completed=self._done)
            self._bar.start()
