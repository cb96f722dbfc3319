"""``rankrls leaderboard``."""

from __future__ import annotations

from collections.abc import Sequence

from rankrls.cli._files import check_output, names_from
from rankrls.cli._output import Work, facts, number, require_stdout, say, size, table, to_json
from rankrls.leaderboards import leaderboard as make_leaderboard
from rankrls.report import write_leaderboard

__all__ = ["leaderboard"]


def leaderboard(
    judgements: str,
    controls: Sequence[str],
    groups: str,
    weight: str | None,
    trusted: Sequence[str],
    confidence: float,
    elo: bool,
    seed: int,
    output: str | None,
    as_json: bool,
) -> None:
    """Print ratings, and write a page if asked for."""
    require_stdout()
    if output is not None:
        check_output(output, judgements)
    with Work(f"Reading {judgements}") as work:
        board = make_leaderboard(
            judgements,
            controls=names_from(controls),
            groups=None if groups == "none" else groups,
            trusted=names_from(trusted),
            confidence=confidence,
            random_state=seed,
            pair_weight=weight,
        )
        n_bytes = None
        if output is not None:
            work.now(f"Writing {output}")
            n_bytes = write_leaderboard(output, board)
    scale = "elo" if elo else "log-odds"
    columns, effects = board.table(scale), board.controls_
    if as_json:
        found = {"scale": scale, "confidence": confidence, "weight_of_others": board.weight_}
        to_json(found | {"leaderboard": columns, "controls": effects, "file": output})
        return
    digits = 0 if elo else 3
    rows = [
        [
            str(columns["item"][i]),
            *(f"{columns[key][i]:.{digits}f}" for key in ("rating", "low", "high")),
            f"{columns['rank_low'][i]}-{columns['rank_high'][i]}",
            f"{columns['win_rate'][i]:.3f}",
            f"{columns['p_best'][i]:.3f}",
            number(int(columns["n_judgements"][i])),
        ]
        for i in range(len(columns["item"]))
    ]
    head = ["item", "rating", "low", "high", "ranks", "win rate", "P(best)", "judgements"]
    table(head, rows)
    if len(effects["name"]):
        say()
        cells = [
            [
                str(effects["name"][i]),
                *(f"{effects[key][i]:.4g}" for key in ("effect", "low", "high")),
            ]
            for i in range(len(effects["name"]))
        ]
        table(["control", "effect", "low", "high"], cells)
    what = f"{number(board.n_judgements_)}"
    if board.n_groups_ is not None:
        what += f" in {number(board.n_groups_)} groups"
    lines = [("judgements", what), ("confidence", f"{confidence:.0%}, ranks simultaneously")]
    if board.weight_ is not None:
        lines.append(("weight", f"{board.weight_:g} of judgements that are not trusted"))
    if output is not None and n_bytes is not None:
        lines.append(("page", f"{output} ({size(n_bytes)})"))
    say()
    facts(lines)
