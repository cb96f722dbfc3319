"""Names of files, classes and functions in docstrings and comments are names that exist."""

import ast
import functools
import importlib
import io
import re
import tokenize
from pathlib import Path

import sklearn.base

import rankrls

PROJECT = Path(__file__).parents[1]
SOURCES = sorted(Path(rankrls.__file__).parent.rglob("*.py"))

#: Names of other libraries that are mentioned where they are not imported.
ELSEWHERE = {"GroupKFold", "LeaveOneGroupOut", "Ridge", "pairwise_kernels", "threadpoolctl"}

#: Files that the library reads or writes for its users.
OF_USERS = {"manifest.json", "report.html"}

#: A reference: `name`, `Class.method`, `package.module.name`, with or without arguments.
REFERENCE = re.compile(r"(?<![`:])`~?([A-Za-z_][\w.]*)(?:\([^`]*\))?`(?!`)")
FILE = re.compile(r"\b[\w/]+\.(?:py|md|html|css|json)\b")


def tokens(path):
    return tokenize.generate_tokens(io.StringIO(path.read_text()).readline)


@functools.cache
def names():
    """All names and texts of the code, those of its modules and of scikit-learn's base classes."""
    found = ELSEWHERE | set(dir(sklearn.base.BaseEstimator))
    for path in SOURCES:
        found |= {path.stem, path.parent.name}
        for token in tokens(path):
            if token.type == tokenize.NAME:
                found.add(token.string)
            elif token.type == tokenize.STRING and "\n" not in token.string:
                found.add(token.string.strip("\"'"))  # values of options
    return found


@functools.cache
def files():
    """Names of all files of the project."""
    folders = ("src", "tests", "benchmarks", "docs", "examples")
    return OF_USERS | {p.name for folder in folders for p in (PROJECT / folder).rglob("*.*")}


def texts(path):
    """Lines and texts of the docstrings and comments of a file."""
    for token in tokens(path):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
            text = ast.get_docstring(node, clean=False)
            if text:
                yield node.body[0].lineno, text


def exists(reference):
    parts = reference.split(".")
    if parts[0] in ("sklearn", "scipy", "numpy", "dask", "functools"):
        return hasattr(importlib.import_module(".".join(parts[:-1])), parts[-1])
    return set(parts) <= names()


def test_names_in_docstrings_exist_and_symbols_are_not_capitalised():
    """A formatter makes Κ of a κ at the beginning of a sentence, which is another symbol."""
    missing, capitals = [], []
    for path in SOURCES:
        for line, text in texts(path):
            references = [m for m in REFERENCE.finditer(text) if not FILE.fullmatch(m[1])]
            wrong = [m for m in references if not exists(m[1])]
            wrong += [m for m in FILE.finditer(text) if m[0].split("/")[-1] not in files()]
            missing += [f"{path}:{line + text[: m.start()].count(chr(10))}: {m[0]}" for m in wrong]
            first = text.lstrip("# ")[:1]
            if "Α" <= first <= "Ω" and first not in "ΣΦ":
                capitals.append(f"{path}:{line}: {text[:40]}")
    assert not missing, "\n".join(missing)
    assert not capitals, "\n".join(capitals)


def test_the_check_can_fail():
    assert exists("RankRLS.fit")
    assert exists("rankrls.metrics.pairwise_error")
    assert exists("sklearn.utils.Bunch")
    assert not exists("RankRLS.fitt")
    assert not exists("rankrls.metrics.pairwise_eror")
    assert not exists("solve_everything")
