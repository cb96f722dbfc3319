"""Output for users: results on stdout, notes and progress on stderr."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["escaped", "escaped_json", "facts", "listed", "note", "number", "one_line", "queries",
           "result", "say", "table", "to_json", "warn", "working"]  # fmt: skip

#: What a terminal may take as a command, or show in another order than it is: control characters,
#: marks of direction, separators of lines, and halves of characters, which cannot be written.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


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


def say(text: str = "") -> None:
    """Print lines of a result."""
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


def number(value: Any) -> str:
    """A count with separators, a measure with four digits, or text; "–" for None and NaN."""
    if value is None or value != value:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def queries(count: int) -> str:
    """A number of queries in words."""
    return f"{count:,} quer{'y' if count == 1 else 'ies'}"


def listed(names: Sequence[Any], most: int = 8) -> str:
    """The first names."""
    return ", ".join(map(str, names[:most])) + ", …" * (len(names) > most)


def facts(pairs: Sequence[tuple[str, Any]]) -> None:
    """Print names and values below each other."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        say(f"{name:<{width}}  {escaped(number(value))}")


def result(o: Any, values: dict[str, Any]) -> None:
    """Print results: as one JSON object, or their names and values, with intervals beside them."""
    if o.json:
        to_json(values)
        return
    lines = []
    for name, value in values.items():
        low, high = (values.get(f"{name}_{end}") for end in ("low", "high"))
        known = isinstance(low, float) and not math.isnan(low)
        interval = f", {number(low)} to {number(high)}" if known else ""
        is_end = name.endswith(("_low", "_high"))
        single = isinstance(value, str) or not hasattr(value, "__len__")
        if name == "seconds":
            lines.append(("time", f"{value:.2g} s"))
        elif single and value is not None and value is not False and not is_end:
            lines.append((name.removeprefix("n_").replace("_", " "), number(value) + interval))
    facts(lines)


def table(columns: Mapping[str, Any], marked: int | None = None) -> None:
    """Print aligned columns, text to the left and numbers to the right; one row may be marked."""
    cells = []
    for name, values in columns.items():
        items = values.tolist() if hasattr(values, "tolist") else list(values)
        texts = [name, *(escaped(number(item)) for item in items)]
        width = max(map(len, texts))
        is_text = any(isinstance(item, str) for item in items)
        cells.append([text.ljust(width) if is_text else text.rjust(width) for text in texts])
    for place, row in enumerate(zip(*cells, strict=True), -1):
        say("  ".join(row) + ("  *" if place == marked else ""))


def to_json(values: dict[str, Any]) -> None:
    """Print one JSON object; what is not a finite number is null."""
    from rankrls._validation import json_values  # which imports NumPy

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
