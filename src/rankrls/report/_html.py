"""Formatting of text and numbers for the page, with escaping and limited length."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import numpy as np

__all__ = ["cell", "cut", "data_block", "escape", "name", "number", "percent"]

#: Names longer than this are truncated, to keep the page small.
MAX_NAME = 120
# Not allowed in HTML text: control characters (except tab and line ends) and surrogates.
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


def escape(text: Any) -> str:
    """Escape text for HTML, including quoted attributes."""
    return html.escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", str(text)), quote=True)


def cut(text: Any) -> str:
    """Strip and truncate text."""
    full = str(text).strip()
    return full if len(full) <= MAX_NAME else full[: MAX_NAME - 1] + "…"


def name(text: Any) -> str:
    """Format a name from the user's data, truncated, in an element that isolates its direction."""
    return f"<bdi>{escape(cut(text) or '(no name)')}</bdi>"


def number(value: float, digits: int = 4) -> str:
    """Format a number with some significant digits; NaN becomes a dash."""
    value = float(value) + 0.0  # no −0
    if not np.isfinite(value):
        return "–"
    if value == round(value) and abs(value) < 1e6:
        return f"{value:,.0f}".replace("-", "−")
    if 10**digits <= abs(value) < 1e6:
        return f"{value:,.0f}".replace("-", "−")
    text = f"{value:.{digits}g}"
    if "e" in text:
        base, power = text.split("e")
        return f"{base}e{int(power)}".replace("-", "−")
    return text.replace("-", "−")


def percent(value: float, digits: int = 1) -> str:
    """Format a fraction as a percentage; NaN becomes a dash."""
    return f"{float(value) * 100:.{digits}f}%" if np.isfinite(value) else "–"


def cell(text: str, value: float, more: str = "") -> str:
    """A table cell with a number to sort by; ``text`` is already HTML."""
    key = f"{float(value):.10g}" if np.isfinite(value) else ""
    return f'<td class="num{more}" data-v="{key}">{text}</td>'


def data_block(identifier: str, data: Any) -> str:
    """A JSON block, escaped for use inside the page; NaN becomes null."""
    text = json.dumps(_plain(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    text = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return f'<script type="application/json" id="{escape(identifier)}">{text}</script>'


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value if value is None else str(value)
