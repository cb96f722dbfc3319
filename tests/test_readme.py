"""Every Python block of the README runs as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(number, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # one of them writes a model file
    exec(compile(BLOCKS[number], f"README block {number}", "exec"), {})
    assert capsys.readouterr().out


def test_there_is_a_block_for_each_promised_example():
    assert len(BLOCKS) == 6
    assert all(len(block.splitlines()) <= 19 for block in BLOCKS)


def test_readme_stays_short():
    """Essentials only: the rest is in the guide, whose links lead somewhere."""
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert (README.parent / target).exists(), target


def test_every_page_of_the_guide_is_named():
    text = README.read_text(encoding="utf-8")
    for page in (README.parent / "docs" / "guide").glob("*.md"):
        assert f"docs/guide/{page.name}" in text, page.name
