"""Names of files, classes and functions in docstrings and comments are names that exist."""

import ast
import functools
import importlib
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import sklearn.base

import rankrls

ROOT = Path(rankrls.__file__).parent
PROJECT = Path(__file__).parents[1]
SOURCES = sorted(ROOT.rglob("*.py"))

#: Names of other libraries that are mentioned where they are not imported.
ELSEWHERE = {"GroupKFold", "LeaveOneGroupOut", "Ridge", "pairwise_kernels", "threadpoolctl"}

#: Files that the library reads or writes for its users.
OF_USERS = {"manifest.json", "report.html"}

#: A reference: `name`, `Class.method`, `package.module.name`, with or without arguments.
REFERENCE = re.compile(r"(?<![`:])`~?([A-Za-z_][\w.]*)(?:\([^`]*\))?`(?!`)")
FILE = re.compile(r"\b[\w/]+\.(?:py|md|html|css|json)\b")


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text())


@functools.cache
def known():
    """All names of the package, and for every module, package and class those that are in it."""
    names, members = set(), defaultdict(set)
    for path in SOURCES:
        tree = tree_of(path)
        module, package = members[path.stem], members[path.parent.name]
        package.add(path.stem)
        names |= {path.stem, path.parent.name}
        for node in ast.walk(tree):
            found = set()
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found = {node.name}
            elif isinstance(node, ast.arg):
                found = {node.arg}
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found = {node.attr} if node.value.id == "self" else set()
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found = {node.id}
            elif isinstance(node, ast.alias):
                found = {node.asname or node.name.split(".")[-1]}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found = {node.value}  # values of options
            names |= found
            if not isinstance(node, ast.Constant):
                module |= found
        if path.stem == "__init__":
            package |= module
            members[path.parent.parent.name].add(path.parent.name)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                inside = members[node.name]
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                inside |= {f"<{base}>" for base in bases}
                for part in ast.walk(node):
                    if isinstance(part, ast.FunctionDef):
                        inside.add(part.name)
                    elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                        inside.add(part.target.id)
                    elif isinstance(part, ast.Attribute):
                        inside.add(part.attr)
    return names, dict(members)


@functools.cache
def files():
    """Names of all files of the project."""
    folders = ("src", "tests", "benchmarks", "docs", "examples")
    return {path.name for folder in folders for path in (PROJECT / folder).rglob("*.*")}


def texts(path):
    """Lines and texts of the docstrings and comments of a file."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
            text = ast.get_docstring(node, clean=False)
            if text:
                yield node.body[0].lineno, text


def is_member(name, owner, seen=()):
    _, members = known()
    if owner not in members:
        return hasattr(getattr(sklearn.base, owner, object), name)
    bases = {base[1:-1] for base in members[owner] if base.startswith("<")} - {*seen, owner}
    return name in members[owner] or any(is_member(name, base, (*seen, owner)) for base in bases)


def exists(reference):
    parts = reference.removeprefix("rankrls.").split(".")
    if parts[0] in ("sklearn", "scipy", "numpy", "dask", "functools"):
        owner = importlib.import_module(".".join(parts[:-1]))
        return hasattr(owner, parts[-1])
    if len(parts) == 1:
        return parts[0] in known()[0] or parts[0] in ELSEWHERE
    return is_member(parts[-1], parts[-2])


def test_names_in_docstrings_exist_and_symbols_are_not_capitalised():
    """A formatter makes Κ of a κ at the beginning of a sentence, which is another symbol."""
    missing, capitals = [], []
    for path in SOURCES:
        for line, text in texts(path):
            references = [m for m in REFERENCE.finditer(text) if not FILE.fullmatch(m[1])]
            wrong = [m for m in references if m[1] != "rankrls" and not exists(m[1])]
            names = files() | OF_USERS
            wrong += [m for m in FILE.finditer(text) if m[0].split("/")[-1] not in names]
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
