"""The pages of the API reference, written from the ``__all__`` of every public module.

A name that is public is in the reference, because the reference is made of the public names:
``rankrls.__all__`` and the ``__all__`` of each module below ``rankrls`` without an underscore.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType

import rankrls

__all__ = ["public_modules", "public_names", "write_api_pages"]


#: Packages that are not part of the public API, or whose names ``rankrls`` itself exports.
INTERNAL = {"cli", "core", "estimators"}


def public_modules() -> list[str]:
    """Names below ``rankrls`` of the modules that users import from, in alphabetical order."""
    found = {info.name for info in pkgutil.iter_modules(rankrls.__path__)}
    return sorted(name for name in found - INTERNAL if not name.startswith("_"))


def public_names(module: ModuleType) -> list[str]:
    """Names in ``__all__`` that are not modules themselves."""
    return [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]


def page(module: ModuleType, title: str) -> str:
    """The page of one module: its docstring, then tables of its classes, functions and others."""
    kinds: dict[str, list[str]] = {"Classes": [], "Functions": [], "Ready objects": []}
    for name in public_names(module):
        value = getattr(module, name)
        kind = "Classes" if inspect.isclass(value) else "Functions"
        kinds[kind if callable(value) and not is_instance(value) else "Ready objects"].append(name)
    lines = [title, "=" * len(title), "", inspect.getdoc(module) or "", ""]
    lines += [f".. currentmodule:: {module.__name__}", ""]
    for kind, names in kinds.items():
        if names and kind == "Ready objects":
            lines += [kind, "-" * len(kind), ""]
            lines += [SCORERS, ""] if all(name.endswith("_scorer") for name in names) else []
            lines += [f".. autodata:: {name}\n   :no-value:\n" for name in names]
        elif names:
            lines += [kind, "-" * len(kind), "", ".. autosummary::", "   :toctree: generated", ""]
            lines += [f"   {name}" for name in names] + [""]
    return "\n".join(lines)


def index_section(name: str, module: ModuleType) -> list[str]:
    """A module on the index: a link to its page, and its names with a line each."""
    lines = [f":doc:`{name}`", "-" * (len(name) + 7), "", f".. currentmodule:: {name}", ""]
    names = [n for n in public_names(module) if not is_instance(getattr(module, n))]
    return [*lines, ".. autosummary::", "", *(f"   {listed}" for listed in names)]


def is_instance(value: object) -> bool:
    """Whether a callable is neither a class nor a function (scikit-learn's scorers)."""
    return not (inspect.isclass(value) or inspect.isroutine(value))


def write_api_pages(folder: Path) -> dict[str, list[str]]:
    """Write ``index.rst`` and a page for each module; returns the names on each page."""
    folder.mkdir(exist_ok=True)
    modules = {"rankrls": rankrls}
    for name in public_modules():
        modules[f"rankrls.{name}"] = importlib.import_module(f"rankrls.{name}")
    for name, module in modules.items():
        title = "rankrls: the estimators" if module is rankrls else name
        write(folder / f"{name}.rst", page(module, title))
    index = [*INDEX.splitlines(), ""]
    for name, module in modules.items():
        index += [*index_section(name, module), ""]
    index += [".. toctree::", "   :hidden:", "", *(f"   {name}" for name in modules), ""]
    write(folder / "index.rst", "\n".join(index))
    listed = {name: public_names(module) for name, module in modules.items()}
    remove_others(folder, {"index", *modules})
    remove_others(
        folder / "generated", {f"{module}.{name}" for module in listed for name in listed[module]}
    )
    return listed


def remove_others(folder: Path, kept: set[str]) -> None:
    """Remove pages of names that are public no more."""
    for path in folder.glob("*.rst"):
        if path.stem not in kept:
            path.unlink()


def write(path: Path, text: str) -> None:
    """Write the file if its text changed, so that an unchanged page is not built again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


SCORERS = """
For ``scoring=`` of scikit-learn's searches: `make_ranking_scorer` of the metric of the same name,
with its defaults. With metadata routing they ask for ``qid``.
"""

INDEX = """
API reference
=============

Every public name, from its docstring. All examples in it run in the tests. The estimators follow
scikit-learn: parameters in the constructor, ``fit`` returns the estimator, what was learned ends in
an underscore, ``get_params``, ``set_params`` and ``clone`` work. With scikit-learn's metadata
routing, rankers ask for query ids, ``qid``, in pipelines and searches.
"""
