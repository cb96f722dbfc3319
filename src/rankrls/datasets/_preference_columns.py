"""Which columns of a table of judgements are what, and which side won."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.datasets._columns import listed, missing_column

__all__ = ["SIDES", "find_roles", "outcomes", "text_of"]

Array = NDArray[Any]

#: Names of columns, in lower case: the preferred item and the other one.
_COUPLES = (
    ("preferred", "other"),
    ("winner", "loser"),
    ("chosen", "rejected"),
    ("better", "worse"),
    ("preferred", "dispreferred"),
)

#: The two items of an arena table, in the order in which they were shown.
_SIDES = (
    ("first", "second"),
    ("left", "right"),
    *(
        (f"{item}{mark}{a}", f"{item}{mark}{b}")
        for item in ("model", "item", "response", "answer", "option", "player", "team")
        for mark in ("_", "")
        for a, b in (("a", "b"), ("1", "2"))
    ),
    ("a", "b"),
)

_WINNERS = ("winner", "preference", "outcome", "result", "choice", "vote", "verdict", "judgement")

_TIES = ("tie", "is_tie", "tied", "draw", "equal")

#: The first of these that there is becomes the groups.
_GROUPS = (
    *("judge", "judge_id", "annotator", "annotator_id", "rater", "rater_id", "worker_id"),
    *("user", "user_id", "session", "session_id"),
    *("question_id", "prompt_id", "question", "prompt", "query_id", "qid"),
)

#: What a cell of the winner's column may say, in lower case: 1 the first, −1 the second, 0 a tie.
SIDES = {
    **dict.fromkeys(("a", "left", "first", "1", "model_a", "item_a", "response_a"), 1),
    **dict.fromkeys(("assistant_a", "answer_a", "model_1", "item_1", "response_1"), 1),
    **dict.fromkeys(("b", "right", "second", "2", "model_b", "item_b", "response_b"), -1),
    **dict.fromkeys(("assistant_b", "answer_b", "model_2", "item_2", "response_2", "-1"), -1),
    **dict.fromkeys(("tie", "tie (bothbad)", "tie (both bad)", "bothbad", "both_bad"), 0),
    **dict.fromkeys(("both", "both bad", "both good", "neither", "draw", "equal", "same", "0"), 0),
}


def find_roles(file: str, names: list[str], given: dict[str, Any]) -> dict[str, str]:
    """The columns by role: preferred and other, or first, second and winner; tie and groups.

    ``given`` has for each role a name, "auto" or None: for tie and groups None is "not read". Roles
    that have no column are left out.
    """
    for role, name in given.items():
        if name is not None and not isinstance(name, str):
            raise ValueError(f"{role} must be the name of a column; got {name!r}")
        if name is not None and name not in ("auto", *names):
            raise ValueError(f"{file}: {missing_column(role, name, names)}")
    told = {role: name for role, name in given.items() if name not in (None, "auto")}
    one = [role for role in ("preferred", "other") if role in told]
    two = [role for role in ("first", "second", "winner") if role in told]
    if one and two:
        raise ValueError(
            f"{one[0]}= and {two[0]}= do not go together: a table has either preferred and other "
            "items, or first and second ones and the winner"
        )
    for role in (*one, *two):
        twice = [other for other in (*one, *two) if other != role and told[other] == told[role]]
        if twice:
            raise ValueError(f"{role}= and {twice[0]}= are both {told[role]!r}: name two columns")
    known = {name.lower(): name for name in reversed(names)}
    found = []
    if not two:
        found += _layouts(known, told, ("preferred", "other"), _COUPLES)
    if not one:
        sides = [(a, b, winner) for (a, b), winner in product(_SIDES, _WINNERS)]
        found += _layouts(known, told, ("first", "second", "winner"), sides)
    if len(found) != 1:
        raise ValueError(_unclear(file, names, found))
    roles = found[0]
    for role, words in (("tie", _TIES), ("groups", _GROUPS)):
        name = told.get(role)
        if given[role] == "auto":
            free = [known[word] for word in words if word in known]
            name = next((one for one in free if one not in roles.values()), None)
        if name is not None:
            roles[role] = name
    return roles


def _layouts(
    known: dict[str, str], told: dict[str, str], roles: tuple[str, ...], words: Any
) -> list[dict[str, str]]:
    """Return candidates for the roles, by common names or by the given ones."""
    found: list[dict[str, str]] = []
    for usual in words:
        layout = {
            role: told.get(role, known.get(word, ""))
            for role, word in zip(roles, usual, strict=True)
        }
        columns = set(layout.values())
        if "" not in columns and len(columns) == len(roles) and layout not in found:
            found.append(layout)
    return found


def _unclear(file: str, names: list[str], found: list[dict[str, str]]) -> str:
    if found:
        ways = [", ".join(f"{role}={name!r}" for role, name in one.items()) for one in found[:3]]
        return f"{file}: the columns can be read as {' or as '.join(ways)}: name them"
    return (
        f"{file}: it is not clear which columns hold the judgements: name them by preferred= and "
        f"other=, or by first=, second= and winner=; the columns are {listed(names)}"
    )


def text_of(value: Any) -> str:
    """How a cell is written; whole numbers without a decimal point."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def outcomes(
    first: Array,
    second: Array,
    winner: Array,
    tied: Array,
    cells: list[Any],
    column: str,
    place: Any,
) -> Array:
    """1 where the first item won, −1 where the second did, 0 for ties, shape (n,).

    ``first``, ``second`` and ``winner`` are numbers of ``cells``. Where ``tied``, another column
    tells that there is no winner. ``column`` is the name of the winner's column; ``place`` tells
    how an error calls a row.
    """
    unknown = 2
    word = np.full(len(cells), unknown)
    for code in np.unique(winner):
        word[code] = SIDES.get(text_of(cells[code]).strip().lower(), unknown)
    by_word = np.where(tied, 0, word[winner])
    texts: dict[str, int] = {}  # 7, 7.0 and "7" are one name
    same = np.array([texts.setdefault(text_of(cell), len(texts)) for cell in cells])
    by_name = np.where(
        same[winner] == same[first], 1, np.where(same[winner] == same[second], -1, unknown)
    )
    by_name = np.where(tied | ((by_name == unknown) & (by_word == 0)), 0, by_name)
    nobody = (by_word == unknown) & (by_name == unknown)
    if nobody.any():
        row = int(np.argmax(nobody))
        raise ValueError(_no_winner(cells, row, first, second, winner, column, place))
    zeros = [code for code, cell in enumerate(cells) if text_of(cell).strip() == "0"]
    zero = np.isin(winner, zeros) & ~tied & (by_name == 0)
    if zero.any() and not np.isin(by_word[~tied], (-1, unknown)).any():
        raise ValueError(
            f"{place(int(np.argmax(zero)))}: column {column!r} is 0, which stands for a tie, but "
            "no row says that the second item won: if 0 means that, write 'model_a', 'model_b' "
            "and 'tie', or 1, -1 and 0"
        )
    if (by_word == by_name).all() or (by_word == unknown).any():
        mixed = by_name == unknown
        if not mixed.any():
            return by_name
        name, side = int(np.argmax(by_word == unknown)), int(np.argmax(mixed))
        raise ValueError(
            f"{place(name)}: column {column!r} is {cells[winner[name]]!r}, the name of an item, "
            f"and {cells[winner[side]]!r}, a side, at {place(side)}: write names or sides in all "
            "rows"
        )
    if not (by_name == unknown).any():
        row = int(np.argmax(by_word != by_name))
        raise ValueError(
            f"{place(row)}: column {column!r} is {cells[winner[row]]!r}, which names one item of "
            "the row and the side of the other one: write 'model_a' and 'model_b' for the sides"
        )
    return by_word


def _no_winner(
    cells: list[Any], row: int, first: Array, second: Array, winner: Array, column: str, place: Any
) -> str:
    value = cells[winner[row]]
    if value is None:
        return f"{place(row)}: column {column!r} is empty; every judgement needs a winner or a tie"
    names = " and ".join(repr(text_of(cells[side[row]])[:60]) for side in (first, second))
    return (
        f"{place(row)}: column {column!r} is {text_of(value)[:60]!r}; it must be one of the items "
        f"of the row, {names}, or 'model_a' (a, left, first, 1), 'model_b' (b, right, second, 2) "
        "or 'tie' (both, neither, draw, equal, 0)"
    )
