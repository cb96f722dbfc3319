"""Small charts as SVG, coloured by the classes of the page's style sheet.

Each chart is an image with a name and a description for screen readers. All user data are escaped.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.report._words import number

__all__ = ["bar", "columns_chart", "forest_chart", "histogram", "path_chart"]

Array = NDArray[Any]

WIDTH, HEIGHT = 480, 280
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 16, 52


def path_chart(
    alphas: Array, error: Array, spread: Array | None, chosen: int, *, about: str
) -> str:
    """Chart of the error against alpha (logarithmic), with a band of ± one standard error."""
    band = np.zeros(len(error)) if spread is None else spread
    low, high, ticks = _axis(float((error - band).min()), float((error + band).max()))
    x = np.log2(alphas)
    span = (x[-1] - x[0]) or 1.0
    px = LEFT + (x - x[0]) / span * (WIDTH - LEFT - RIGHT)
    if len(x) == 1:
        px = np.array([(LEFT + WIDTH - RIGHT) / 2])

    def py(value: Any) -> Any:
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [_rule(LEFT, WIDTH - RIGHT, py(tick), _percent(tick, ticks)) for tick in ticks]
    for tick, label in _decades(alphas):
        at = LEFT + (np.log2(tick) - x[0]) / span * (WIDTH - LEFT - RIGHT) if len(x) > 1 else px[0]
        parts.append(_text(at, HEIGHT - BOTTOM + 20, label, "middle"))
        parts.append(
            f'<line class="tick" x1="{at:.1f}" x2="{at:.1f}" y1="{HEIGHT - BOTTOM}" '
            f'y2="{HEIGHT - BOTTOM + 5}"/>'
        )
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "alpha", "middle", "axis"))
    if spread is not None and len(x) > 1:
        upper = [f"{a:.1f},{b:.1f}" for a, b in zip(px, py(error + band), strict=True)]
        lower = [f"{a:.1f},{b:.1f}" for a, b in zip(px, py(error - band), strict=True)]
        parts.append(f'<polygon class="band" points="{" ".join(upper + lower[::-1])}"/>')
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(px, py(error), strict=True))
    parts.append(f'<polyline class="line" points="{line}"/>')
    for k in range(len(x)):
        tip = f"alpha {number(alphas[k])}: error {error[k]:.2%}"
        if spread is not None:
            tip += f" ± {spread[k]:.2%}"
        radius = 3 if k != chosen else 6
        kind = "dot" if k != chosen else "dot chosen"
        parts.append(
            f'<circle class="{kind}" cx="{px[k]:.1f}" cy="{py(error[k]):.1f}" r="{radius}">'
            f"<title>{escape(tip)}</title></circle>"
        )
    x0 = px[chosen]
    parts.append(
        f'<line class="mark" x1="{x0:.1f}" x2="{x0:.1f}" y1="{py(error[chosen]) + 8:.1f}" '
        f'y2="{HEIGHT - BOTTOM}"/>'
    )
    return _svg("Held-out error against alpha", about, parts)


def histogram(values: Array, *, name: str, about: str, percent: bool, axis: str) -> str:
    """Histogram with bins of equal width over the range of the values, or over 0 to 100 %."""
    if percent:
        edges = np.linspace(0, 1, 21)
        labels = [(k / 20, f"{k * 5}%") for k in range(0, 21, 4)]
    else:
        edges = _integer_edges(values)
        middle = edges[len(edges) // 2]
        ends = [edges[0], middle, edges[-1]]
        labels = [(float(edge), f"{edge:,.0f}") for edge in dict.fromkeys(ends)]
    counts, _ = np.histogram(values, bins=edges)
    span = edges[-1] - edges[0]
    plot = WIDTH - LEFT - RIGHT
    tops = _top(int(counts.max(initial=0)))
    parts = [_rule(LEFT, WIDTH - RIGHT, _height(tick, tops[-1]), f"{tick:,.0f}") for tick in tops]
    for k, count in enumerate(counts):
        left = LEFT + (edges[k] - edges[0]) / span * plot
        width = max(1.0, (edges[k + 1] - edges[k]) / span * plot - 2)
        where = f"{edges[k]:.0%} to {edges[k + 1]:.0%}" if percent else f"from {edges[k]:,.0f}"
        parts.append(_column(left + 1, width, int(count), tops[-1], where))
    for value, label in labels:
        at = LEFT + (value - edges[0]) / span * plot
        anchor = "end" if value == edges[-1] else "start" if value == edges[0] else "middle"
        parts.append(_text(at, HEIGHT - BOTTOM + 18, label, anchor))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, axis, "middle", "axis"))
    return _svg(name, about, parts)


def columns_chart(names: list[str], counts: Array, *, name: str, about: str, axis: str) -> str:
    """Chart with a column for each name."""
    plot = WIDTH - LEFT - RIGHT
    tops = _top(int(np.max(counts, initial=0)))
    parts = [_rule(LEFT, WIDTH - RIGHT, _height(tick, tops[-1]), f"{tick:,.0f}") for tick in tops]
    each = plot / max(1, len(names))
    skip = max(1, int(np.ceil(len(names) * max(map(len, names)) * 9 / plot)))
    for k, (label, count) in enumerate(zip(names, counts, strict=True)):
        parts.append(_column(LEFT + k * each + 3, each - 6, int(count), tops[-1], label))
        if k % skip == 0:
            parts.append(_text(LEFT + (k + 0.5) * each, HEIGHT - BOTTOM + 18, label, "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, axis, "middle", "axis"))
    return _svg(name, about, parts)


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
    first, last, ticks = _axis(float(low.min()), float(high.max()), least=0.0)
    height, left = TOP + 22 * len(names) + BOTTOM, 150

    def px(x: Any) -> Any:
        return left + (x - first) / (last - first) * (WIDTH - left - RIGHT)

    parts = []
    for tick in ticks:
        parts.append(_text(px(tick), height - BOTTOM + 20, number(tick, 3), "middle"))
        parts.append(
            f'<line class="rule" x1="{px(tick):.1f}" x2="{px(tick):.1f}" y1="{TOP}" '
            f'y2="{height - BOTTOM}"/>'
        )
    for k, name in enumerate(names):
        y = TOP + 22 * k + 11
        shown = name if len(name) <= 20 else name[:19] + "…"
        tip = f"{name}: {number(value[k], 3)}, {number(low[k], 3)} to {number(high[k], 3)}"
        parts.append(_text(left - 7, y + 4.5, shown, "end"))
        parts.append(
            f'<line class="line" x1="{px(low[k]):.1f}" x2="{px(high[k]):.1f}" y1="{y}" y2="{y}"/>'
            f'<circle class="dot" cx="{px(value[k]):.1f}" cy="{y}" r="4">'
            f"<title>{escape(tip)}</title></circle>"
        )
    parts.append(_text((left + WIDTH - RIGHT) / 2, height - 6, axis, "middle", "axis"))
    return _svg(title, f"From {names[0]} to {names[-1]}.", parts, height)


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


def _svg(name: str, about: str, parts: list[str], height: int = HEIGHT) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(name)}. {escape(about)}">{"".join(parts)}</svg>'
    )


def _rule(x1: float, x2: float, y: float, label: str) -> str:
    line = f'<line class="rule" x1="{x1}" x2="{x2}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + _text(x1 - 7, y + 4.5, label, "end")


def _text(x: float, y: float, text: str, anchor: str, kind: str = "label") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _height(count: float, top: float) -> float:
    return float(HEIGHT - BOTTOM - count / top * (HEIGHT - TOP - BOTTOM))


def _column(x: float, width: float, count: int, top: float, where: str) -> str:
    y = _height(count, top)
    if count:  # even a count of one remains visible
        y = min(y, HEIGHT - BOTTOM - 1.5)
    return (
        f'<rect class="column" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{HEIGHT - BOTTOM - y:.1f}"><title>{escape(where)}: {count:,}</title></rect>'
    )


def _integer_edges(values: Array) -> Array:
    """At most 24 bins of integer width."""
    low, high = int(values.min()), int(values.max()) + 1
    width = max(1, int(np.ceil((high - low) / 24)))
    n = int(np.ceil((high - low) / width))
    return low + width * np.arange(n + 1)


def _top(largest: int) -> list[float]:
    """Ticks 0 … top of a count axis."""
    step = _nice(max(1, largest) / 4)
    step = max(1.0, step)
    n = max(1, int(np.ceil(largest / step)))
    return [step * k for k in range(n + 1)]


def _axis(low: float, high: float, least: float = 0.01) -> tuple[float, float, list[float]]:
    """Range and ticks that contain low to high."""
    if high - low <= least:  # do not magnify noise
        low, high = max(0.0, (low + high) / 2 - 0.005), (low + high) / 2 + 0.005
    step = _nice((high - low) / 4)
    first, last = np.floor(low / step) * step, np.ceil(high / step) * step
    n = round((last - first) / step)
    return float(first), float(last), [float(first + k * step) for k in range(n + 1)]


def _decades(alphas: Array) -> list[tuple[float, str]]:
    """At most seven ticks at powers of ten; the alphas themselves if there are fewer than two."""
    low, high = np.log10(alphas[0]), np.log10(alphas[-1])
    first, last = int(np.ceil(low - 1e-9)), int(np.floor(high + 1e-9))
    if last - first < 1:
        return [(float(alpha), number(alpha, 3)) for alpha in dict.fromkeys(alphas[[0, -1]])]
    step = int(np.ceil((last - first + 1) / 7))
    powers = [p for p in range(first, last + 1) if p % step == 0]
    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    names = {0: "1", 1: "10"}
    return [(10.0**p, names.get(p, "10" + str(p).translate(raised))) for p in powers]


def _nice(step: float) -> float:
    """The next larger of 1, 2, 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(step))
    return float(next(power * f for f in (1, 2, 5, 10) if power * f >= step * (1 - 1e-9)))


def _percent(value: float, ticks: list[float]) -> str:
    step = ticks[1] - ticks[0]
    digits = max(0, int(np.ceil(-np.log10(step * 100) - 1e-9)))
    return f"{value * 100 + 0.0:.{digits}f}%"
