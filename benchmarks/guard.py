"""A guard against slowdowns: a few core paths as ratios to bare calls, compared with kept ones.

    python benchmarks/guard.py              # or: make guard; under a minute
    python benchmarks/guard.py --update     # accept today's ratios
    python benchmarks/guard.py --history    # the accepted ratios, release by release
    python benchmarks/guard.py predict ndcg --tolerance 1.3

Each path is timed by turns with NumPy, SciPy or scikit-learn calls of its size, on one thread, in
seconds of the processor, shortest of several. The ratio depends far less on the machine
and its other users than the seconds do. ``guard.json`` beside this file keeps one ratio for each
path; one that is more than ``--tolerance`` times the kept one is measured twice more, and if it
stays above, the exit code is 1 and a line says what got slower. A ratio that is as much
smaller is worth an ``--update`` too: otherwise a later slowdown hides in it. Each ``--update`` of
another day or version adds an entry to the file, so that a slow drift can be seen.

On a machine of another kind, run it on the commit before a change and on the change.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # before NumPy: threads and clock of this run
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    os.environ["BENCH_CLOCK"] = "cpu"

from timing import Row, compare

from rankrls import __version__

KEPT = Path(__file__).with_name("guard.json")
TOLERANCE = 1.6
MORE_TRIES = 2


@dataclass(frozen=True)
class Verdict:
    """A path, its ratio today and the kept one; None where there is none."""

    name: str
    ratio: float | None
    kept: float | None
    tolerance: float

    @property
    def status(self) -> str:
        """One of "ok", "slower", "faster", "new" (nothing kept) and "gone" (no such path)."""
        if self.kept is None:
            return "new"
        if self.ratio is None:
            return "gone"
        if self.ratio > self.tolerance * self.kept:
            return "slower"
        return "faster" if self.ratio * self.tolerance < self.kept else "ok"

    def __str__(self) -> str:
        today = "-" if self.ratio is None else f"{self.ratio:.3g}"
        before = "-" if self.kept is None else f"{self.kept:.3g}"
        line = f"{self.status:7} {self.name:28} ratio {today:>7}, kept {before:>7}"
        if self.status == "slower":
            assert self.ratio is not None
            assert self.kept is not None
            line += f": {self.ratio / self.kept:.2f} times as slow (allowed {self.tolerance:g})"
        return line + _ADVICE.get(self.status, "")


_ADVICE = {
    "faster": ": keep it with --update",
    "new": ": keep it with --update",
    "gone": ": no such path any more, --update forgets it",
}


def judge(
    ratios: dict[str, float], kept: dict[str, float], tolerance: float = TOLERANCE
) -> list[Verdict]:
    """A verdict for every path that was measured or kept, in that order."""
    names = [*ratios, *(name for name in kept if name not in ratios)]
    return [Verdict(name, ratios.get(name), kept.get(name), tolerance) for name in names]


def measure(
    paths: dict[str, Callable[[], Row]], kept: dict[str, float], tolerance: float
) -> dict[str, float]:
    """Ratios; a path that looks slower gets more tries, the smallest ratio counts."""
    ratios = {}
    for name, path in paths.items():
        ratio = path().ratio
        for _ in range(MORE_TRIES):
            if Verdict(name, ratio, kept.get(name), tolerance).status != "slower":
                break
            ratio = min(ratio, path().ratio)
        ratios[name] = ratio
    return ratios


def load_history(path: Path) -> list[dict[str, Any]]:
    """Entries with date, version and ratios, oldest first; ValueError for any other file."""
    if not path.exists():
        return []
    try:
        return [
            {
                "date": str(entry["date"]),
                "version": str(entry["version"]),
                "ratios": {str(name): float(ratio) for name, ratio in entry["ratios"].items()},
            }
            for entry in json.loads(path.read_text(encoding="utf-8"))["history"]
        ]
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} has no history of ratios: delete it and --update") from error


def load_kept(path: Path) -> dict[str, float]:
    """The ratios of the newest entry."""
    history = load_history(path)
    return history[-1]["ratios"] if history else {}


def save_kept(path: Path, ratios: dict[str, float]) -> None:
    """Add an entry, in the place of one of this day and version.

    Ratios have three digits, so that a difference of files shows what changed.
    """
    history = load_history(path)
    entry = {
        "date": datetime.date.today().isoformat(),
        "version": __version__,
        "ratios": {name: float(f"{ratio:.3g}") for name, ratio in ratios.items()},
    }
    same = history and all(history[-1][key] == entry[key] for key in ("date", "version"))
    content = {
        "what": "seconds of rankrls over seconds of the reference, one thread (guard.py)",
        "history": [*(history[:-1] if same else history), entry],
    }
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")


def show_history(history: list[dict[str, Any]], words: list[str]) -> list[str]:
    """A line for each path, a column for each entry."""
    every = dict.fromkeys(name for entry in history for name in entry["ratios"])
    rows = [("version", *(entry["version"] for entry in history))]
    rows.append(("date", *(entry["date"] for entry in history)))
    for name in selected(every, words):
        ratios = (entry["ratios"].get(name) for entry in history)
        rows.append((name, *("-" if ratio is None else f"{ratio:.3g}" for ratio in ratios)))
    return [f"{name:28}" + "".join(f"{cell:>12}" for cell in cells) for name, *cells in rows]


def paths() -> dict[str, Callable[[], Row]]:
    """The core paths, small: data are made here, outside of what is timed."""
    import numpy as np
    from letor import write_dense
    from scipy.linalg import cholesky, eigh
    from sklearn.datasets import load_svmlight_file
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics.pairwise import rbf_kernel
    from text_data import make_text

    from rankrls import ConditionalRankRLS, PreferenceGraph, RankRLS, regularization_path
    from rankrls.core.hinge.losses import hinge_losses
    from rankrls.datasets import load_letor
    from rankrls.metrics import ndcg, pairwise_error
    from rankrls.model_selection import leave_pair_out_score, leave_query_out_predict

    warnings.simplefilter("ignore", ConvergenceWarning)
    rng = np.random.default_rng(0)
    alphas = 2.0 ** np.arange(-15, 16)
    X, y, qid = rng.standard_normal((40_000, 50)), rng.integers(0, 5, 40_000), np.arange(40_000)
    qid //= 100
    few, scores = rng.standard_normal((800, 50)), rng.standard_normal(800)
    some, some_scores = few[:400], scores[:400]
    K, K_some = rbf_kernel(few), rbf_kernel(some)
    linear, rbf = RankRLS().fit(X, y, qid=qid), RankRLS(kernel="rbf")
    unit = RankRLS(cost="unit")
    score = rng.standard_normal(100_000)
    graded, queries = rng.integers(0, 5, 100_000), rng.integers(0, 10_000, 100_000)
    real = score + rng.standard_normal(100_000)
    (hinge,) = hinge_losses(PreferenceGraph.from_scores(score), "pair")
    text, topics = make_text(10_000)
    v, u = rng.standard_normal(text.shape[1]), rng.standard_normal(10_000)
    iterated = RankRLS(solver="cg", max_iter=20, tol=1e-300, query_weighting="size")
    Y = rng.standard_normal((400, 400))
    relation = ConditionalRankRLS(kernel="precomputed")
    folder = tempfile.TemporaryDirectory()
    letor = Path(folder.name, "letor.txt")
    write_dense(letor, 1000)

    def path(name: str, ours: Any, reference: str, theirs: Any, repeats: int) -> Any:
        return lambda: compare(name, ours, reference, theirs, repeats=repeats)

    cases = {
        "fit, linear": (
            lambda: RankRLS().fit(X, y, qid=qid), "X.T @ X", lambda: X.T @ X, 15),
        "fit, linear, unit cost": (
            lambda: unit.fit(X, y, qid=qid), "X.T @ X", lambda: X.T @ X, 15),
        "predict, linear": (
            lambda: linear.predict(X), "X @ w", lambda: X @ linear.coef_, 25),
        "fit, RBF": (
            lambda: RankRLS(kernel="rbf").fit(few, scores),
            "kernel + cholesky", lambda: cholesky(rbf_kernel(few) + np.eye(800)), 9),
        "path, RBF, 31 alphas": (
            lambda: regularization_path(rbf, few, scores, alphas=alphas),
            "eigh", lambda: eigh(K), 4),
        "leave-query-out, 31 alphas": (
            lambda: leave_query_out_predict(RankRLS(), X, y, qid=qid, alphas=alphas),
            "X.T @ X", lambda: X.T @ X, 4),
        "leave-pair-out, RBF": (
            lambda: leave_pair_out_score(rbf, some, some_scores),
            "eigh", lambda: eigh(K_some), 9),
        "cg, sparse, 20 iterations": (
            lambda: iterated.fit(text, topics),
            "20 × (X @ v, X.T @ u)", lambda: [(text @ v, text.T @ u) for _ in range(20)], 5),
        "RankSVM, loss": (
            lambda: hinge.hinge(real), "argsort", lambda: np.argsort(real, kind="stable"), 9),
        "pairwise_error": (
            lambda: pairwise_error(graded, score, qid=queries),
            "lexsort", lambda: np.lexsort((score, queries)), 9),
        "ndcg@10": (
            lambda: ndcg(graded, score, qid=queries, k=10),
            "lexsort", lambda: np.lexsort((score, queries)), 9),
        "conditional, complete": (
            lambda: relation.fit(K_some, Y), "2 eigh", lambda: (eigh(K_some), eigh(K_some)), 5),
        "load_letor": (
            lambda: load_letor(letor),
            "load_svmlight_file", lambda: load_svmlight_file(letor, query_id=True), 5),
    }  # fmt: skip
    made = {name: path(name, *case) for name, case in cases.items()}
    made["load_letor"].folder = folder  # it lives as long as the path that reads it
    return made


def selected(names: Iterable[str], words: list[str]) -> list[str]:
    """Names that contain one of the words; all without words."""
    return [name for name in names if not words or any(word in name for word in words)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only paths whose names contain one of these")
    parser.add_argument("--update", action="store_true", help="keep today's ratios")
    parser.add_argument("--history", action="store_true", help="show the accepted ratios")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    parser.add_argument("--kept", type=Path, default=KEPT, help="file of the kept ratios")
    options = parser.parse_args(arguments)
    if options.tolerance < 1:
        parser.error("--tolerance is a factor >= 1")
    try:
        history = load_history(options.kept)
    except ValueError as error:
        parser.error(str(error))
    if options.history:
        print(*show_history(history, options.words), sep="\n")
        return 0
    kept = history[-1]["ratios"] if history else {}
    every = paths()
    chosen = selected(every, options.words)
    if not chosen:
        parser.error(f"no path is named so; there are: {', '.join(every)}")
    todo = {name: every[name] for name in chosen}
    if options.update:
        ratios = measure(todo, {}, options.tolerance)
        save_kept(options.kept, kept | ratios if options.words else ratios)
        print(
            *(f"kept    {name:28} ratio {ratio:7.3g}" for name, ratio in ratios.items()), sep="\n"
        )
        return 0
    if options.words:
        kept = {name: ratio for name, ratio in kept.items() if name in todo}
    verdicts = judge(measure(todo, kept, options.tolerance), kept, options.tolerance)
    print(*verdicts, sep="\n")
    slower = sum(verdict.status == "slower" for verdict in verdicts)
    if slower:
        print(f"guard: {slower} path(s) slower than kept; make them fast again or --update")
    return int(slower > 0)


if __name__ == "__main__":
    sys.exit(main())
