"""What the code keeps to beside the import contracts of ``pyproject.toml`` (``make lint``)."""

import ast
import functools
from collections import Counter
from pathlib import Path

import rankrls

ROOT = Path(rankrls.__file__).parent


@functools.cache
def nodes_of(path):
    """All nodes of the syntax tree of a file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imported(path):
    """Dotted names below ``rankrls`` that a file imports from, at any depth of the code."""
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rankrls."):
            yield node.module.split(".")
        elif isinstance(node, ast.Import):
            yield from (n.name.split(".") for n in node.names if n.name.startswith("rankrls."))


SOURCES = sorted(ROOT.rglob("*.py"))


def test_private_modules_stay_in_their_package():
    for path in SOURCES:
        here = ["rankrls", *path.relative_to(ROOT).with_suffix("").parts]
        for there in imported(path):
            private = [k for k, part in enumerate(there) if part.startswith("_") and k >= 2]
            if private:
                inside = here[: private[0]] == there[: private[0]]
                assert inside, f"{path} imports {'.'.join(there)}"


#: Files of the same name do the same: one problem for each loss, an estimator and its algorithm.
SAME_JOB = {"__init__", "problem", "greedy"}


def test_files_of_the_same_name_do_the_same():
    stems = Counter(path.stem.strip("_") for path in SOURCES if path.stem not in SAME_JOB)
    assert [name for name, count in stems.items() if count > 1] == []


def test_class_names_are_used_once():
    names = Counter(
        node.name.lstrip("_")
        for path in SOURCES
        for node in nodes_of(path)[0].body
        if isinstance(node, ast.ClassDef)
    )
    # The same estimators on Dask have the same names.
    twice = [name for name, count in names.items() if count > 1]
    assert sorted(twice) == ["RankRLS", "RankRLSCV"]


def test_private_scikit_learn_is_not_used():
    for path in SOURCES:
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn"):
                assert not any(part.startswith("_") for part in node.module.split("."))
                assert not any(alias.name.startswith("_") for alias in node.names), path
