"""Tables of results in the README and on the page of results, from recorded benchmarks.

    python docs/_tools/result_tables.py

``python benchmarks/peers.py --record benchmarks/results/peers.json`` records the figures. A table
stands between two comments of the page and is replaced as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["PAGES", "filled"]

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks" / "results" / "peers.json"
SETS = {
    "ohsumed": "OHSUMED",
    "mslr": "MSLR sample",
    "lightgbm": "LightGBM's example",
    "yandex": "CatBoost's data",
}
OURS = "rankrls AutoRanker"
METHODS = {
    OURS: "**rankrls AutoRanker**",
    "LightGBM lambdarank": "LightGBM, lambdarank",
    "XGBoost rank:ndcg": "XGBoost, rank:ndcg",
    "CatBoost YetiRank": "CatBoost, YetiRank",
    "RLScore QueryRankRLS": "RLScore, QueryRankRLS",
    "scikit-learn Ridge": "scikit-learn, Ridge",
    "LightGBM lambdarank, views, ten": "ten LightGBM, features within queries",
    "XGBoost rank:ndcg, views, ten": "ten XGBoost, features within queries",
}
METRICS = {
    "ndcg@10": ("NDCG@10", max),
    "map": ("MAP", max),
    "pairwise error": ("Pairwise error", min),
}


def table(record: dict[str, Any], metric: str) -> list[str]:
    """One metric of every method on every set, the best in bold, and the time of all folds."""
    sets = record["sets"]
    best = {name: METRICS[metric][1](values(sets[name], metric)) for name in SETS}
    heads = [f"{title}, {sets[name]['queries']} queries" for name, title in SETS.items()]
    lines = [f"| {METRICS[metric][0]} | {' | '.join(heads)} | CPU s, all folds |"]
    lines.append("|---|" + "---:|" * (len(SETS) + 1))
    for method, title in METHODS.items():
        found = [sets[name]["methods"].get(method) for name in SETS]
        if not any(found):
            continue
        cells = []
        for name, figures in zip(SETS, found, strict=True):
            text = f"{figures[metric]:.3f}" if figures else "not run"
            cells.append(f"**{text}**" if figures and figures[metric] == best[name] else text)
        seconds = "–"
        if all(found):
            seconds = (
                f"{sum(f['cpu'] * sets[n]['folds'] for n, f in zip(SETS, found, strict=True)):.0f}"
            )
        lines.append(f"| {title} | {' | '.join(cells)} | {seconds} |")
    return lines


def values(figures: dict[str, Any], metric: str) -> list[float]:
    """The metric of the methods that are shown."""
    return [found[metric] for name, found in figures["methods"].items() if name in METHODS]


def differences(record: dict[str, Any]) -> list[str]:
    """AutoRanker less each other method over all test queries, with p-values."""
    lines = ["| less | NDCG@10 | p | MAP | p | pairwise accuracy | p |"]
    lines.append("|---|" + "---:|" * 6)
    for method, tests in record["pooled"]["tests"].items():
        cells = [f"{t['difference']:+.4f} | {t['p']:.2g}" for t in tests[OURS].values()]
        lines.append(f"| {METHODS[method]} | {' | '.join(cells)} |")
    return lines


def everything(record: dict[str, Any]) -> list[str]:
    """The table of each metric, and the differences."""
    tables = [line for metric in METRICS for line in [*table(record, metric), ""]]
    return [*tables, *differences(record)]


#: What stands on which page.
PAGES: dict[Path, Callable[[dict[str, Any]], list[str]]] = {
    ROOT / "README.md": lambda record: table(record, "ndcg@10"),
    ROOT / "docs" / "results.md": everything,
}


def filled(page: Path) -> str:
    """The text of the page with its table replaced."""
    lines = PAGES[page](json.loads(RECORD.read_text(encoding="utf-8")))
    text = page.read_text(encoding="utf-8")
    between = re.compile(r"(<!-- peers: .*? -->\n).*?(<!-- end of peers -->)", re.S)
    return between.sub(lambda m: m[1] + "\n" + "\n".join(lines) + "\n\n" + m[2], text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page), encoding="utf-8")
