"""Draw the map of the code, ``docs/architecture.svg``: layers, packages, and which uses which.

    python docs/_tools/draw_map.py

Layers are those of the contracts in ``pyproject.toml`` that ``lint-imports`` checks. Arrows are
the imports that the source has, without those that follow from others and those of the helpers
with an underscore. The text in a box is from the first sentence of the docstring of a package or
module. A test compares the drawing with the code.
"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from html import escape
from pathlib import Path

__all__ = ["SVG", "draw", "layers", "needed"]

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "rankrls"
SVG = ROOT / "docs" / "architecture.svg"

WIDTH, MARGIN, GAP = 1160, 16, 12
LINE, PAD, BETWEEN, LABEL = 15, 9, 38, 64
LETTER = 6.1  # width of a letter of the small text, about


def layers() -> dict[str, int]:
    """Packages and modules with their layers: the contracts of ``[tool.importlinter]``."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layered = {
        contract["containers"][0]: [
            [name.strip() for name in line.split("|")] for line in contract["layers"][::-1]
        ]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    }
    rows: list[list[str]] = []
    for row in layered["rankrls"]:
        if "core" in row:  # in its place, its own layers
            *below, top = [[f"core.{name}" for name in part] for part in layered["rankrls.core"]]
            rows += [*below, top + [name for name in row if name != "core"]]
        else:
            rows.append(row)
    return {name: level for level, row in enumerate(rows) for name in row}


def files(name: str) -> list[Path]:
    """Source files of a package or a module."""
    folder = SOURCE / name.replace(".", "/")
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def uses(name: str, names: set[str]) -> set[str]:
    """Packages and modules that one imports from."""
    found = set()
    for path in files(name):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "rankrls":
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rankrls."):
                parts = node.module.split(".")[1:]
                found.add(".".join(parts[: 2 if parts[0] == "core" else 1]))
    return (found & names) - {name}


def needed(names: set[str]) -> dict[str, set[str]]:
    """For each, what it imports from and cannot reach by way of another one."""
    direct = {name: uses(name, names) for name in names}
    below: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in below:
            below[name] = set()  # packages of the same layer may use each other
            below[name] = set(direct[name]).union(*(reach(there) for there in direct[name]))
        return below[name]

    return {
        name: {
            there
            for there in direct[name]
            if not any(there in reach(other) for other in direct[name] - {there})
        }
        for name in sorted(names)
    }


def text_of(name: str) -> str:
    """The first sentence of a docstring."""
    folder = SOURCE / name.replace(".", "/")
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = docstring.split("\n\n")[0].replace("\n", " ").replace("`", "")
    return first.rstrip(".").split(": ", 1)[-1] if len(first) > 60 else first.rstrip(".")


def draw() -> str:
    """The map as SVG text."""
    layer = layers()
    arrows = needed(set(layer))
    places: dict[str, tuple[float, float, float, float]] = {}
    bands: list[str] = []
    boxes: list[str] = []
    y = float(MARGIN)
    for level in sorted(set(layer.values()), reverse=True):
        here = [name for name in layer if layer[name] == level]
        space = WIDTH - 2 * MARGIN - LABEL - 8
        width = min(340.0, (space - GAP * (len(here) - 1)) / len(here))
        letters = max(12, int((width - 16) / LETTER))
        lines = {name: textwrap.wrap(text_of(name), letters) for name in here}
        height = 2 * PAD + LINE * (1 + max(len(text) for text in lines.values()))
        left = MARGIN + LABEL + (space - len(here) * (width + GAP) + GAP) / 2
        bands.append(
            f'<rect class="layer" x="{MARGIN}" y="{y - 7:g}" width="{WIDTH - 2 * MARGIN}" '
            f'height="{height + 14:g}" rx="8"/>'
            f'<text class="level" x="{MARGIN + 12}" y="{y + height / 2 + 4:g}">layer {level}</text>'
        )
        for number, name in enumerate(here):
            x = left + number * (width + GAP)
            places[name] = (x, y, width, height)
            boxes.append(box(name, lines[name], *places[name]))
        y += height + BETWEEN
    total = y - BETWEEN + MARGIN
    paths = [
        arrow(places[name], places[there], f"{name} uses {there}")
        for name in layer
        for there in layer
        if there in arrows[name] and layer[there] < layer[name] and not there.startswith("_")
    ]
    return TEMPLATE.format(
        width=WIDTH, height=f"{total:g}", content="\n".join([*bands, *paths, *boxes])
    )


def box(name: str, lines: list[str], x: float, y: float, width: float, height: float) -> str:
    """A package or module: its name and what it is."""
    rows = "".join(
        f'<tspan x="{x + 8:.5g}" dy="{LINE}">{escape(line, quote=False)}</tspan>' for line in lines
    )
    return (
        f'<rect class="package" x="{x:.5g}" y="{y:.5g}" width="{width:.5g}" '
        f'height="{height:.5g}" rx="5"/>'
        f'<text class="name" x="{x + 8:.5g}" y="{y + PAD + 8:.5g}">{name}</text>'
        f'<text class="what" x="{x + 8:.5g}" y="{y + PAD + 8:.5g}">{rows}</text>'
    )


def arrow(start: tuple, end: tuple, title: str) -> str:
    """A curve from the bottom of one box to the top of another."""
    (x0, y0, w0, h0), (x1, y1, w1, _) = start, end
    # Where it leaves and arrives depends on where the other box is, so that arrows spread out.
    lean = ((x1 + w1 / 2) - (x0 + w0 / 2)) / WIDTH
    a, b = x0 + w0 / 2 + 0.4 * w0 * lean, y0 + h0
    c, d = x1 + w1 / 2 - 0.4 * w1 * lean, y1
    bend = max(18.0, 0.35 * (d - b))
    return (
        f'<path class="uses" marker-end="url(#head)" d="M{a:.5g} {b:.5g} C{a:.5g} {b + bend:.5g} '
        f'{c:.5g} {d - bend:.5g} {c:.5g} {d - 1:.5g}"><title>{title}</title></path>'
    )


TEMPLATE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>The packages of rankrls, layer by layer, and which uses which</title>
<style>
svg {{ background: #ffffff; font-family: Helvetica, Arial, sans-serif; }}
.layer {{ fill: #f3f4f6; }}
.package {{ fill: #ffffff; stroke: #6b7280; }}
.name {{ font-size: 13px; font-weight: bold; fill: #111827; }}
.what {{ font-size: 11px; fill: #374151; }}
.level {{ font-size: 11px; fill: #6b7280; }}
.uses {{ fill: none; stroke: #1d4ed8; stroke-opacity: 0.45; stroke-width: 1.2; }}
.uses:hover {{ stroke-opacity: 1; stroke-width: 2.5; }}
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6"
orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#1d4ed8" fill-opacity="0.6"/></marker></defs>
{content}
</svg>
"""


if __name__ == "__main__":
    SVG.write_text(draw(), encoding="utf-8")
    print(f"drawn into {SVG.relative_to(ROOT)}")
