"""The documentation: its code runs, its reference is complete, its map is that of the code.

Every block ```python of a page runs, one after the other in one namespace, and so does every
command ``rankrls …`` in a block ```sh; a block ```text after it is what was printed: numbers may
differ a little, times and sizes of files by anything, and ``...`` is any text. The site itself is
built by ``make docs``.
"""

import ast
import importlib
import pkgutil
import re
import shlex
import sys
from pathlib import Path

import pytest

import rankrls
from rankrls.cli import main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GALLERY = sorted((ROOT / "examples" / "gallery").rglob("plot_*.py"))
PAGES = [
    ROOT / "CONTRIBUTING.md",
    *sorted(
        page
        for page in DOCS.rglob("*.md")
        if not {"_build", "gallery", "api"} & set(page.relative_to(DOCS).parts)
    ),
]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.S | re.M)
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w])")

sys.path.insert(0, str(DOCS / "_tools"))
api_pages = importlib.import_module("api_pages")
draw_map = importlib.import_module("draw_map")
result_tables = importlib.import_module("result_tables")
sys.path.pop(0)


def relative(path):
    return str(path.relative_to(ROOT))


def printed_as(expected, printed):
    """Whether both are the same text with nearly the same numbers."""
    expected, printed = (" ".join(text.split()) for text in (expected, printed))
    parts = re.split(f"({NUMBER.pattern}|\\.\\.\\.)", expected)
    numbers = [part for part in parts[1::2] if part != "..."]
    pattern = [re.escape(part) for part in parts]
    pattern[1::2] = [".*?" if p == "..." else f"({NUMBER.pattern})" for p in parts[1::2]]
    found = re.fullmatch("".join(pattern), printed, re.S)
    if not found:
        return False
    after = [text for part, text in zip(parts[1::2], parts[2::2], strict=True) if part != "..."]
    for shown, now, text in zip(numbers, found.groups(), after, strict=True):
        a, b = (float(value.replace(",", "")) for value in (shown, now))
        if not re.match(r" (s|ms|kB|MB)\b", text) and abs(a - b) > 0.02 + 0.02 * abs(a):
            return False
    return True


def test_numbers_of_pages_may_differ_a_little():
    assert printed_as(
        "alpha 10, 0.91 of 1,000 rows in 3.1 s", "alpha 10, 0.92 of 1,001 rows in 8 s"
    )
    assert printed_as("a ... c 1e-05", "a b c 0.0")
    for text in ("alpha 10: 0.95", "alpha 12: 0.91", "beta 10: 0.91", "alpha 10: 0.91 x"):
        assert not printed_as("alpha 10: 0.91", text)


def code_of(page):
    """The blocks of a page: language, code, expected output or None."""
    return [match.groups() for match in BLOCK.finditer(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", [page for page in PAGES if code_of(page)], ids=relative)
def test_code_of_page_runs(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict = {"__name__": "__docs__"}
    for number, (language, code, expected) in enumerate(code_of(page), 1):
        if language == "python":
            exec(compile(code, f"{page.name}, block {number}", "exec"), namespace)
        else:
            for line in code.splitlines():
                command, *arguments = shlex.split(line)
                assert command == "rankrls"
                assert main(arguments) == 0, f"{line}\n{capsys.readouterr().err}"
        printed = capsys.readouterr().out
        if expected is not None:
            same = printed_as(expected, printed)
            assert same, f"{page.name}, block {number} printed\n{printed}\nnot\n{expected}"


def test_guide_has_code_and_every_page_is_listed():
    guide = [page for page in PAGES if page.parent.name == "guide"]
    listed = (DOCS / "guide" / "index.md").read_text(encoding="utf-8")
    for page in guide:
        if page.stem != "index":
            assert code_of(page), f"{page.name} has no code that runs"
            assert re.search(rf"^{page.stem}$", listed, re.M), f"{page.name} is not in the guide"


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=relative)
def test_links_and_files_of_pages_exist(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("gallery/", "../gallery/", "api/", "../api/")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
    for name in re.findall(r"`([\w/]+\.py)`", text):
        folders = (ROOT, ROOT / "src" / "rankrls", ROOT / "benchmarks")
        here = any((folder / name).exists() for folder in folders)
        assert here or any((ROOT / "src").rglob(name)), f"{page.name} names {name}"


def test_reference_has_every_public_name(tmp_path):
    listed = api_pages.write_api_pages(tmp_path)
    for module in ["rankrls", *(f"rankrls.{name}" for name in public_modules())]:
        text = (tmp_path / f"{module}.rst").read_text(encoding="utf-8")
        for name in importlib.import_module(module).__all__:
            if f"{module}.{name}" not in listed:  # a module has a page of its own
                assert re.search(rf"^( +|\.\. autodata:: ){name}$", text, re.M), name


def public_modules():
    """Modules without an underscore that users import from: all but the following."""
    found = [info.name for info in pkgutil.iter_modules(rankrls.__path__)]
    return [name for name in found if not name.startswith("_") and name not in INTERNAL]


#: Packages without an underscore that are not public: what users need of them is in ``rankrls``.
INTERNAL = {"cli", "core", "estimators"}


@pytest.mark.parametrize("page", result_tables.PAGES, ids=relative)
def test_tables_of_results_are_those_of_the_record(page):
    text = page.read_text(encoding="utf-8")
    assert "<!-- end of peers -->" in text
    assert text == result_tables.filled(page), "run python docs/_tools/result_tables.py"


def test_map_is_that_of_the_code():
    drawn = draw_map.SVG.read_text(encoding="utf-8")
    assert drawn == draw_map.draw(), "the map is out of date: python docs/_tools/draw_map.py"


@pytest.mark.parametrize("path", GALLERY, ids=relative)
def test_gallery_example_asks_and_concludes(path):
    """A question for a title, pictures, and a section with the conclusion at the end."""
    code = path.read_text(encoding="utf-8")
    title = ast.get_docstring(ast.parse(code)).splitlines()[0]
    assert title.endswith("?"), title
    assert "plt.subplots" in code
    assert re.findall(r"^# (.*)\n# -+$", code, re.M)[-1] == "Conclusion"


def test_architecture_page_names_every_file_of_the_core():
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "rankrls"
    for path in sorted((source / "core").rglob("*.py")):
        if path.stem != "__init__":
            assert f"`{path.relative_to(source)}`" in page, path
    for name in draw_map.layers():
        if not name.startswith("_"):
            assert f"`{name.replace('.', '/')}`" in page, name
