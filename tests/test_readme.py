"""The README: its Python blocks run as they stand, and it stays short."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.S)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(number, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # one of them writes a model file
    exec(compile(BLOCKS[number], f"README block {number}", "exec"), {})
    assert capsys.readouterr().out


def test_first_block_goes_from_a_table_to_a_model_file():
    assert len(BLOCKS) == 2
    assert len(TEXT.splitlines()) <= 120
    for step in ("AutoRanker", "ndcg(", "rank(", "save_model("):
        assert step in BLOCKS[0]
