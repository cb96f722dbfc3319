"""Numbers as text, and small charts as SVG, coloured by the classes of the style sheet.

Each chart is an image with a name and a description for screen readers. All user data are escaped.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["bar", "columns_chart", "fixed", "forest_chart", "number", "path_chart", "percent",
           "plural", "probability"]  # fmt: skip

Array = NDArray[Any]

WIDTH, HEIGHT = 480, 280
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 16, 52
FLOOR = HEIGHT - BOTTOM


def number(value: float, digits: int = 4) -> str:
    """Format a number with some significant digits; NaN becomes a dash."""
    value = float(value) + 0.0  # no −0
    if not np.isfinite(value):
        return "–"
    whole = value == round(value) or abs(value) >= 10**digits
    text = f"{value:,.0f}" if whole and abs(value) < 1e6 else f"{value:.{digits}g}"
    if "e" in text:
        base, power = text.split("e")
        text = f"{base}e{int(power)}"
    return text.replace("-", "−")


def percent(value: float, digits: int = 1) -> str:
    """Format a fraction as a percentage; NaN becomes a dash."""
    return f"{float(value) * 100:.{digits}f}%" if np.isfinite(value) else "–"


def fixed(value: float) -> str:
    """Format a number with two decimals."""
    return f"{value:.2f}".replace("-", "−").replace("inf", "∞")


def probability(value: float) -> str:
    """Format a p-value."""
    return "< 1e−99" if value < 1e-99 else number(value, 2)


def plural(n: int, one: str, many: str | None = None) -> str:
    """Format a number with its noun."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def path_chart(
    alphas: Array, error: Array, spread: Array | None, chosen: int, *, about: str
) -> str:
    """Chart of the error against alpha (logarithmic), with a band of ± one standard error."""
    band = np.zeros(len(error)) if spread is None else spread
    low, high, ticks = _axis(float((error - band).min()), float((error + band).max()), 0.01)
    x = np.log10(alphas)

    def px(value: Any) -> Any:
        share = (value - x[0]) / (x[-1] - x[0]) if len(x) > 1 else 0.5 + 0.0 * value
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def py(value: Any) -> Any:
        return FLOOR - (value - low) / (high - low) * (FLOOR - TOP)

    def points(values: Array) -> list[str]:
        return [f"{a:.1f},{b:.1f}" for a, b in zip(px(x), py(values), strict=True)]

    digits = max(0, int(np.ceil(-np.log10((ticks[1] - ticks[0]) * 100) - 1e-9)))
    parts = [_rule(py(tick), f"{tick * 100 + 0.0:.{digits}f}%") for tick in ticks]
    for tick, label in _powers(x):
        parts.append(_text(px(tick), FLOOR + 20, label))
        parts.append(_line("tick", px(tick), FLOOR, px(tick), FLOOR + 5))
    if spread is not None and len(x) > 1:
        outline = points(error + band) + points(error - band)[::-1]
        parts.append(_tag("polygon", "band", points=" ".join(outline)))
    parts.append(_tag("polyline", "line", points=" ".join(points(error))))
    for k, alpha in enumerate(alphas):
        tip = f"alpha {number(alpha)}: error {error[k]:.2%}"
        tip += "" if spread is None else f" ± {spread[k]:.2%}"
        kind, radius = ("dot chosen", 6) if k == chosen else ("dot", 3)
        parts.append(_tag("circle", kind, tip, cx=px(x[k]), cy=py(error[k]), r=radius))
    parts.append(_line("mark", px(x[chosen]), py(error[chosen]) + 8, px(x[chosen]), FLOOR))
    return _svg("Held-out error against alpha", about, parts, "alpha")


def columns_chart(labels: list[str], counts: Array, *, name: str, about: str, axis: str) -> str:
    """Chart with a column for each label; labels that have no room are left out."""
    largest, plot = int(np.max(counts, initial=0)), WIDTH - LEFT - RIGHT
    step = max(1.0, _nice(max(1, largest) / 4))
    top, each = step * max(1, int(np.ceil(largest / step))), plot / max(1, len(labels))
    scale, gap = (FLOOR - TOP) / top, min(3.0, each / 8)
    parts = [_rule(FLOOR - tick * scale, f"{tick:,.0f}") for tick in np.arange(0, top + 1, step)]
    skip = max(1, int(np.ceil(len(labels) * max(map(len, labels)) * 9 / plot)))
    for k, (count, label) in enumerate(zip(counts.tolist(), labels, strict=True)):
        x, height = LEFT + k * each, max(count * scale, 1.5) if count else 0.0  # one is visible
        parts.append(_tag("rect", "column", f"{label}: {count:,}", x=x + gap, y=FLOOR - height,
                          width=each - 2 * gap, height=height))  # fmt: skip
        if k % skip == 0:
            parts.append(_text(x + each / 2, FLOOR + 18, label))
    return _svg(name, about, parts, axis)


def forest_chart(
    names: list[str],
    value: Array,
    low: Array,
    high: Array,
    *,
    axis: str = "rating",
    title: str = "Ratings with intervals",
) -> str:
    """Chart of values with intervals, one line for each name."""
    first, last, ticks = _axis(float(low.min()), float(high.max()), 0.0)
    height, left = TOP + 22 * len(names) + BOTTOM, 150

    def px(x: Any) -> Any:
        return left + (x - first) / (last - first) * (WIDTH - left - RIGHT)

    parts = []
    for tick in ticks:
        parts.append(_text(px(tick), height - BOTTOM + 20, number(tick, 3)))
        parts.append(_line("rule", px(tick), TOP, px(tick), height - BOTTOM))
    for k, name in enumerate(names):
        y = TOP + 22 * k + 11
        shown = name if len(name) <= 20 else name[:19] + "…"
        tip = f"{name}: {number(value[k], 3)}, {number(low[k], 3)} to {number(high[k], 3)}"
        parts.append(_text(left - 7, y + 4.5, shown, "end"))
        parts.append(_line("line", px(low[k]), y, px(high[k]), y))
        parts.append(_tag("circle", "dot", tip, cx=px(value[k]), cy=float(y), r=4))
    return _svg(title, f"From {names[0]} to {names[-1]}.", parts, axis, left, height)


def bar(value: float, largest: float) -> str:
    """Decorative bar from the middle, to the right if positive."""
    share = 0.0 if largest <= 0 else min(1.0, abs(value) / largest) * 50
    left = 50 if value >= 0 else 50 - share
    kind = "plus" if value >= 0 else "minus"
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" '
        'focusable="false"><line class="zero" x1="50" x2="50" y1="0" y2="10"/>'
        f'<rect class="{kind}" x="{left:.2f}" y="1" width="{share:.2f}" height="8"/></svg>'
    )


def _svg(
    name: str, about: str, parts: list[str], axis: str, left: int = LEFT, height: int = HEIGHT
) -> str:
    below = _text((left + WIDTH - RIGHT) / 2, height - 6, axis, kind="axis")
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(name)}. {escape(about)}">{"".join(parts)}{below}</svg>'
    )


def _tag(name: str, kind: str, tip: str = "", text: str = "", **attributes: Any) -> str:
    """An element of a class, with a tooltip or a text; coordinates have one decimal."""
    shown = {key: f"{value:.1f}" if isinstance(value, float) else value
             for key, value in attributes.items()}  # fmt: skip
    words = [f'{key}="{value}"' for key, value in shown.items()]
    inner = f"<title>{escape(tip)}</title>" if tip else escape(text)
    start = f'<{name} class="{kind}" {" ".join(words)}'
    return f"{start}>{inner}</{name}>" if inner else f"{start}/>"


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return _tag("line", kind, x1=float(x1), x2=float(x2), y1=float(y1), y2=float(y2))


def _rule(y: float, label: str) -> str:
    return _line("rule", LEFT, y, WIDTH - RIGHT, y) + _text(LEFT - 7, y + 4.5, label, "end")


def _text(x: float, y: float, text: str, anchor: str = "middle", kind: str = "label") -> str:
    return _tag("text", kind, text=text, x=float(x), y=float(y), **{"text-anchor": anchor})


def _axis(low: float, high: float, least: float) -> tuple[float, float, list[float]]:
    """Range and ticks that contain low to high."""
    if high - low <= least:  # do not magnify noise
        low, high = max(0.0, (low + high) / 2 - 0.005), (low + high) / 2 + 0.005
    step = _nice((high - low) / 4)
    first, last = np.floor(low / step) * step, np.ceil(high / step) * step
    n = round((last - first) / step)
    return float(first), float(last), [float(first + k * step) for k in range(n + 1)]


def _powers(x: Array) -> list[tuple[float, str]]:
    """At most seven ticks at powers of ten; the ends if there are fewer than two."""
    first, last = int(np.ceil(x[0] - 1e-9)), int(np.floor(x[-1] + 1e-9))
    if last <= first:
        return [(float(value), number(10.0**value)) for value in dict.fromkeys((x[0], x[-1]))]
    step = -(-(last - first) // 6)
    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    powers = [p for p in range(first, last + 1) if p % step == 0]
    return [(float(p), "10" + str(p).translate(raised)) for p in powers]


def _nice(step: float) -> float:
    """The next larger of 1, 2, 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(step))
    return float(next(power * f for f in (1, 2, 5, 10) if power * f >= step * (1 - 1e-9)))
