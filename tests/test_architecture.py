"""The layers of the package: imports point down, and private modules stay in their package."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import rankrls

ROOT = Path(rankrls.__file__).parent

#: Packages and modules by layer; each may import from layers with a smaller number.
LAYER = {
    "_validation": 0,
    "_memory": 0,
    "_calls": 0,
    "_atomic": 0,
    "_relation_labels": 0,
    "_sorting": 0,
    "_streams": 0,
    "exceptions": 0,
    "_threads": 1,
    "_frames": 1,
    "metrics": 3,
    "graph_kernels": 1,
    "reranking": 1,
    "rankings": 2,
    "datasets": 3,
    "preprocessing": 2,
    "core.linalg": 2,
    "core.preferences": 2,
    "core.spaces": 2,
    "core.ridge": 3,
    "core.hinge": 4,
    "core.relations": 4,
    "core.__init__": 5,
    "estimators": 5,
    "model_selection": 6,
    "dask": 6,
    "diagnostics": 6,
    "plotting": 7,
    "__init__": 7,
    "io": 8,
    "export": 9,
    "report": 9,
    "cli": 11,
    "__main__": 12,
}


def layer_name(parts):
    """The key of `LAYER` for a dotted name below ``rankrls``."""
    if parts[0] == "core":
        return ".".join([*parts, "__init__"][:2])
    return parts[0]


def imported(path):
    """Dotted names below ``rankrls`` that a file imports, at any depth of the code."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "rankrls":
                for alias in node.names:
                    yield [alias.name] if alias.name in LAYER else ["__init__"]
            elif node.module and node.module.startswith("rankrls."):
                yield node.module.split(".")[1:]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("rankrls"):
                    yield [*alias.name.split("."), "__init__"][1:]


SOURCES = sorted(ROOT.rglob("*.py"))


def parts_of(path):
    return path.relative_to(ROOT).with_suffix("").parts


def test_every_package_has_a_layer():
    assert {layer_name(parts_of(path)) for path in SOURCES} == set(LAYER)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    here = layer_name(parts_of(path))
    for parts in imported(path):
        there = layer_name(parts)
        same_layer_of_core = here.startswith("core.") and there.startswith("core.")
        below = LAYER[there] < LAYER[here] or (
            same_layer_of_core and LAYER[there] == LAYER[here] == 2
        )
        assert there == here or below, f"{here} imports {there}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_private_modules_stay_in_their_package(path):
    here = ("rankrls", *parts_of(path))
    for parts in imported(path):
        there = ("rankrls", *parts)
        private = [k for k, part in enumerate(there) if part.startswith("_") and k >= 2]
        if private and parts[-1] != "__init__":
            assert here[: private[0]] == there[: private[0]], f"{path} imports {'.'.join(there)}"


#: Files of the same name do the same: one problem for each loss, an estimator and its algorithm.
SAME_JOB = {"__init__", "problem", "greedy"}


def test_files_of_the_same_name_do_the_same():
    stems = Counter(path.stem.strip("_") for path in SOURCES if path.stem not in SAME_JOB)
    assert [name for name, count in stems.items() if count > 1] == []


def test_class_names_are_used_once():
    names = Counter(
        node.name.lstrip("_")
        for path in SOURCES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    # The same estimator on Dask has the same name.
    assert [name for name, count in names.items() if count > 1] == ["RankRLS"]


def test_the_core_knows_no_metric():
    """How good predictions are is asked of a function that is passed in."""
    for path in SOURCES:
        if parts_of(path)[0] == "core":
            assert not any(parts[0] == "metrics" for parts in imported(path)), path


def test_private_scikit_learn_is_not_used():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn"):
                assert not any(part.startswith("_") for part in node.module.split("."))
                assert not any(alias.name.startswith("_") for alias in node.names), path
