"""What the files around the package say about it, compared with each other."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

import rankrls

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_lowest_versions_are_those_that_are_allowed():
    """``constraints/lowest.txt`` pins what users may install, and what the tests need."""
    project = SETTINGS["project"]
    extras = project["optional-dependencies"]
    assert extras["all"] == [f"rankrls[{','.join(sorted(extras.keys() - {'all'}))}]"]
    required = [
        *project["dependencies"],
        *(one for name, some in extras.items() if name != "all" for one in some),
        *SETTINGS["dependency-groups"]["test"],
    ]
    allowed = dict(re.fullmatch(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", one).groups() for one in required)
    text = (ROOT / "constraints" / "lowest.txt").read_text(encoding="utf-8")
    assert dict(re.findall(r"^([\w-]+)==([\d.]+)$", text, re.M)) == allowed


def test_the_version_is_the_same_everywhere():
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {rankrls.__version__}\n" in cited
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {rankrls.__version__}" in changes


def test_names_are_imported_on_first_use_and_shadow_no_module_of_python():
    for name in (*rankrls.__all__, "dask", "estimators", "io"):
        assert getattr(rankrls, name).__name__.split(".")[-1] == name
    assert not sys.stdlib_module_names & set(rankrls.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Ranker'"):
        rankrls.Ranker  # noqa: B018
