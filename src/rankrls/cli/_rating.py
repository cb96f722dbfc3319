"""``rankrls leaderboard``."""

from __future__ import annotations

from typing import Any

from rankrls.cli._files import check_output, names_from
from rankrls.cli._output import Work, facts, number, require_stdout, say, size, table, to_json
from rankrls.leaderboards import leaderboard as rated
from rankrls.report import write_leaderboard

__all__ = ["leaderboard"]


def leaderboard(o: Any) -> None:
    """Print ratings, and write a page if asked for."""
    require_stdout()
    if o.output is not None:
        check_output(o.output, o.judgements)
    with Work(f"Reading {o.judgements}") as work:
        board = rated(
            o.judgements,
            controls=names_from(o.controls),
            groups=None if o.groups == "none" else o.groups,
            trusted=names_from(o.trusted),
            confidence=o.confidence,
            random_state=o.random_state,
            pair_weight=o.sample_weight,
        )
        n_bytes = 0
        if o.output is not None:
            work.now(f"Writing {o.output}")
            n_bytes = write_leaderboard(o.output, board)
    scale = "elo" if o.elo else "log-odds"
    columns, effects = board.table(scale), board.controls_
    if o.json:
        found = {"scale": scale, "confidence": o.confidence, "weight_of_others": board.weight_}
        to_json(found | {"leaderboard": columns, "controls": effects, "file": o.output})
        return
    rating = f"{{:.{0 if o.elo else 3}f}}".format
    cells = [
        map(str, columns["item"]),
        *(map(rating, columns[key]) for key in ("rating", "low", "high")),
        map("{}-{}".format, columns["rank_low"], columns["rank_high"]),
        *(map("{:.3f}".format, columns[key]) for key in ("win_rate", "p_best")),
        map(number, columns["n_judgements"].tolist()),
    ]
    head = ["item", "rating", "low", "high", "ranks", "win rate", "P(best)", "judgements"]
    table(head, list(zip(*cells, strict=True)))
    if len(effects["name"]):
        say()
        keys = ("effect", "low", "high")
        cells = [map(str, effects["name"]), *(map("{:.4g}".format, effects[key]) for key in keys)]
        table(["control", *keys], list(zip(*cells, strict=True)))
    what = number(board.n_judgements_)
    if board.n_groups_ is not None:
        what += f" in {number(board.n_groups_)} groups"
    lines = [("judgements", what), ("confidence", f"{o.confidence:.0%}, ranks simultaneously")]
    if board.weight_ is not None:
        lines.append(("weight", f"{board.weight_:g} of judgements that are not trusted"))
    if o.output is not None:
        lines.append(("page", f"{o.output} ({size(n_bytes)})"))
    say()
    facts(lines)
