"""Output for users: results on stdout, notes and progress on stderr."""

from __future__ import annotations

import errno
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["escaped", "escaped_json", "facts", "listed", "note", "number", "one_line",
           "queries", "require_stdout", "say", "size", "stdout_errors", "table", "to_json",
           "warn", "working"]  # fmt: skip

#: What a terminal may take as a command, or show in another order than it is: control characters,
#: marks of direction, separators of lines, and halves of characters, which cannot be written.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

#: Whether the process was started with stdout closed (``>&-``); see ``_run.py``.
CLOSED = {"stdout": False}


def escaped(text: str) -> str:
    r"""Text of which a terminal only shows characters: ``\x1b`` for the escape character, etc."""

    def code(found: re.Match[str]) -> str:
        number = ord(found[0])
        return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"

    return _UNSAFE.sub(code, text)


def escaped_json(text: str) -> str:
    """The same for JSON in one or more lines, which stays the same JSON."""
    lines = text.split("\n")
    return "\n".join(_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", line) for line in lines)


def require_stdout() -> None:
    """Raise, before any work, if the result would be written to a stdout that is closed."""
    if CLOSED["stdout"]:
        raise OSError(errno.EBADF, "it is closed, and the result would be written there", "stdout")


@contextmanager
def stdout_errors() -> Iterator[None]:
    """Errors of writing results say that it was stdout."""
    try:
        yield
    except OSError as error:
        if error.filename is None and not isinstance(error, BrokenPipeError):
            error.filename = "stdout"
        raise


def say(text: str = "") -> None:
    """Print lines of a result."""
    with stdout_errors():
        print("\n".join(map(escaped, text.split("\n"))))


def note(message: str) -> None:
    """Tell something on stderr, if anybody listens there."""
    with suppress(OSError, ValueError):
        print(f"rankrls: {escaped(message)}", file=sys.stderr, flush=True)


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


def listed(names: Sequence[Any], most: int = 8) -> str:
    """The first names."""
    return ", ".join(map(str, names[:most])) + ", …" * (len(names) > most)


def size(n_bytes: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} GB"


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values below each other."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        say(f"{name:<{width}}  {escaped(value)}")


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], marked: int | None = None, left: int = 1
) -> None:
    """Print aligned columns, the first ones to the left; one row may be marked."""
    rows = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for place, row in enumerate((head, *rows), -1):
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        say("  ".join(cells) + ("  *" if place == marked else ""))


def to_json(values: dict[str, Any]) -> None:
    """Print one JSON object; what is not a finite number is null."""
    from rankrls._validation import json_values  # which imports NumPy

    with stdout_errors():
        print(escaped_json(json.dumps(json_values(values), allow_nan=False, ensure_ascii=False)))


@contextmanager
def working(doing: str) -> Iterator[Callable[[str], None]]:
    """Progress on stderr while the block runs, and a function that tells what is done now."""
    from rankrls._calls import Line, progress_goes_to  # which imports NumPy

    line = Line("rankrls", log=not sys.stderr.isatty())
    line(escaped(doing))
    try:
        with progress_goes_to(line):
            yield lambda text: line(escaped(text))
    finally:
        line.close()
