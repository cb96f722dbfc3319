"""``write_leaderboard``: the page of a leaderboard."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from rankrls._streams import written
from rankrls.leaderboards import Leaderboard
from rankrls.report._page import page, sortable
from rankrls.report._svg import forest_chart, number, percent

__all__ = ["write_leaderboard"]

#: Items in the chart and in the table of pairs, and groups that are listed.
MAX_ITEMS, MAX_PAIRED, MAX_GROUPS = 40, 20, 20


def write_leaderboard(
    path: str | os.PathLike[str], board: Leaderboard, *, title: str | None = None
) -> int:
    """Write a self-contained HTML page about a leaderboard, and return its size in bytes.

    Parameters
    ----------
    path : str or path-like
        File to write; an existing file is replaced when the page is complete.
    board : Leaderboard
        Made by `rankrls.leaderboard`.
    title : str, optional
    """
    t, ranks = board.table(), board.ranks_
    shown = {i: f"{a}–{b}" if a < b else f"{a}" for i, (a, b) in enumerate(ranks)}
    columns: list[Any] = [
        ("Rating", "num", "", t["rating"], number),
        ("Low", "num wide", "", t["low"], number),
        ("High", "num wide", "", t["high"], number),
        ("Ranks", "num", "ascending", ranks.mean(axis=1), number),
        ("Tied group", "num wide", "ascending", t["tied_group"], "{:,}".format),
        ("P(best)", "num", "", t["p_best"], percent),
        ("Win rate", "num wide", "", t["win_rate"], percent),
        ("Judgements", "num wide", "", t["n_judgements"], "{:,}".format),
    ]
    table = sortable("Item", [(i, str(name)) for i, name in enumerate(board.items_)], columns)
    for i, (_, cells) in enumerate(table["rows"]):
        cells[3] = (shown[i], *cells[3][1:])
    fields = (board.controls_[key].tolist() for key in ("name", "effect", "low", "high"))
    controls = list(zip(*fields, strict=True))
    judges: list[Any] = []
    if board.n_groups_ is not None:
        found = (values[:MAX_GROUPS].tolist() for values in board.judges().values())
        judges = list(zip(*found, strict=True))
    names = [str(name) for name in board.items_[:MAX_ITEMS]]
    kept = (t[key][:MAX_ITEMS] for key in ("rating", "low", "high"))
    text = page(
        "board.html",
        title=title,
        default="Leaderboard",
        results={"leaderboard": t, "controls": board.controls_, "confidence": board.confidence},
        b=board,
        table=table,
        n_judgements=board.n_judgements_,
        n_groups=board.n_groups_ or 0,
        chart=forest_chart(names, *kept),
        names=names[:MAX_PAIRED],
        matrix=_matrix(board),
        controls=controls,
        judges=judges,
    ).encode("utf-8", errors="replace")
    with written(os.fspath(path)) as file:
        file.write(text)
    return len(text)


def _matrix(board: Leaderboard) -> list[list[tuple[str, str]]]:
    """Probabilities of pairs, with wins and judgements."""
    n = min(len(board.items_), MAX_PAIRED)
    wins, counts = board.head_to_head()
    p = 1 / (1 + np.exp(board.ratings_[None, :n] - board.ratings_[:n, None]))
    cells = []
    for i in range(n):
        of = [f"{number(wins[i, j])}/{number(counts[i, j])}" for j in range(n)]
        cells.append(
            [(percent(p[i, j], 0) * (i != j), of[j] * bool(counts[i, j])) for j in range(n)]
        )
    return cells
