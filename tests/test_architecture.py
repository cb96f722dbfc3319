"""Imports point down only: each room may use the rooms below it."""

import ast
from pathlib import Path

import pytest

import rankrls

ROOT = Path(rankrls.__file__).parent

#: Rooms from the ground up; a room may import from rooms with a smaller number.
FLOOR = {
    "_validation": 0,
    "_memory": 0,
    "_progress": 0,
    "_edges": 0,
    "_sorting": 0,
    "_threads": 1,
    "metrics": 1,
    "datasets": 1,
    "preprocessing": 1,
    "preferences": 1,
    "feature_maps": 1,
    "kronecker": 1,
    "graph_kernels": 1,
    "reranking": 1,
    "solvers": 2,
    "models": 3,
    "relations": 3,
    "holdout": 4,
    "estimators": 5,
    "model_selection": 6,
    "dask": 6,
    "plotting": 7,
    "__init__": 7,
    "io": 8,
    "export": 9,
    "report": 9,
    "cli": 11,
    "__main__": 12,
}


def room_of(path):
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imported_rooms(path):
    """Rooms named by `import rankrls.x` and `from rankrls[.x] import y`, at any depth of code."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "rankrls":
                for alias in node.names:
                    yield alias.name if alias.name in FLOOR else "__init__"
            elif node.module and node.module.startswith("rankrls."):
                yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("rankrls"):
                    yield [*alias.name.split("."), "__init__"][1]


SOURCES = sorted(ROOT.rglob("*.py"))


def test_every_room_has_a_floor():
    assert {room_of(path) for path in SOURCES} == set(FLOOR)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    here = room_of(path)
    for there in imported_rooms(path):
        assert there == here or FLOOR[there] < FLOOR[here], f"{here} imports {there}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_rooms_stay_small(path):
    assert len(path.read_text().splitlines()) <= 400


def test_private_scikit_learn_is_not_used():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn"):
                assert not any(part.startswith("_") for part in node.module.split("."))
                assert not any(alias.name.startswith("_") for alias in node.names), path
