"""The guard against slowdowns: how it judges and what it keeps. Nothing is timed here."""

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"

pytestmark = pytest.mark.skipif(
    not (BENCHMARKS / "guard.py").exists(), reason="benchmarks come with the repository only"
)


@pytest.fixture
def guard(monkeypatch):
    """The module; what it imports from its folder is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module("guard")
    for name in set(sys.modules) - before:
        if str(BENCHMARKS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def timings(guard, monkeypatch):
    """Paths "a" and "b" with ratios from lists, one for each time that they are measured."""
    given = {"a": [1.0], "b": [1.0]}
    asked = {"a": 0, "b": 0}

    def path(name):
        def run():
            ratio = given[name][min(asked[name], len(given[name]) - 1)]
            asked[name] += 1
            return guard.Row(name, ratio, "reference", 1.0)

        return run

    monkeypatch.setattr(guard, "paths", lambda: {name: path(name) for name in given})
    return given, asked


@pytest.mark.parametrize(
    ("ratio", "kept", "status"),
    [
        (1.0, 1.0, "ok"),
        (3.19, 2.0, "ok"),
        (3.21, 2.0, "slower"),
        (1.26, 2.0, "ok"),
        (1.24, 2.0, "faster"),
        (1.0, None, "new"),
        (None, 1.0, "gone"),
    ],
)
def test_status(guard, ratio, kept, status):
    verdict = guard.Verdict("x", ratio, kept, 1.6)
    assert verdict.status == status
    assert str(verdict).startswith(status)


def test_a_slower_path_gets_more_tries(guard, timings):
    given, asked = timings
    given["a"], given["b"] = [9.0, 1.0, 5.0], [9.0, 8.0, 7.0, 1.0]
    ratios = guard.measure(guard.paths(), {"a": 1.0, "b": 1.0}, 1.6)
    assert ratios == {"a": 1.0, "b": 7.0}
    assert asked == {"a": 2, "b": 3}


def test_history(guard, tmp_path, monkeypatch, capsys):
    """One entry for each day and version; the newest one is compared with."""
    path = tmp_path / "kept.json"
    for version, ratios in [("1", {"a": 1.0}), ("1", {"a": 2.0}), ("2", {"a": 3.0, "b": 4.0})]:
        monkeypatch.setattr(guard, "__version__", version)
        guard.save_kept(path, ratios)
    history = guard.load_history(path)
    assert [(e["version"], e["ratios"]) for e in history] == [
        ("1", {"a": 2.0}),
        ("2", {"a": 3.0, "b": 4.0}),
    ]
    assert guard.load_kept(path) == {"a": 3.0, "b": 4.0}
    assert all(ratio > 0 for ratio in guard.load_kept(guard.KEPT).values())
    assert guard.main(["--history", "--kept", str(path)]) == 0
    version, _, a, b = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (version, a, b) == (["version", "1", "2"], ["a", "2", "3"], ["b", "-", "4"])
    path.write_text("[]")
    with pytest.raises(ValueError, match="--update"):
        guard.load_kept(path)


def test_command(guard, timings, tmp_path, capsys):
    given, _ = timings
    path = ["--kept", str(tmp_path / "kept.json")]
    assert guard.main([*path, "--update"]) == 0
    assert guard.main(path) == 0
    assert capsys.readouterr().out.count("ok ") == 2
    given["a"] = [2.0]
    assert guard.main(path) == 1
    out = capsys.readouterr().out
    assert "slower  a" in out
    assert "1 path(s) slower" in out
    assert guard.main([*path, "--tolerance", "2.5"]) == 0
    assert guard.main([*path, "b"]) == 0
    assert "gone" not in capsys.readouterr().out.splitlines()[-1]
