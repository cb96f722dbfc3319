"""Every Python block of the README runs as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(number, capsys):
    exec(compile(BLOCKS[number], f"README block {number}", "exec"), {})
    assert capsys.readouterr().out


def test_there_is_a_block_for_each_promised_example():
    assert len(BLOCKS) == 15
    assert all(len(block.splitlines()) <= 19 for block in BLOCKS)
