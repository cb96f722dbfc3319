"""Tables of judgements with names: to pairs of row numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from rankrls._frames import names_anything, row_names
from rankrls._validation import check_option
from rankrls.datasets._cells import Vocabulary, as_objects, cell_number, integers_of, shown
from rankrls.datasets._columns import check_names, missing_column
from rankrls.datasets._named_columns import NamedTable, open_table
from rankrls.datasets._preference_columns import find_roles, outcomes, text_of

__all__ = ["Vocabulary", "check_column", "finite_cell", "load_preferences", "number_names"]

Array = NDArray[Any]

_LONG = 100  # characters of a name: an array of longer text would waste memory

_SHOWN = 5  # unknown names in an error

_TRUE = {"1", "true", "yes", "y", "t", "tie", "tied", "draw", "equal"}
_FALSE = {"0", "false", "no", "n", "f"}


def load_preferences(
    table: Any,
    *,
    preferred: str | None = "auto",
    other: str | None = "auto",
    first: str | None = "auto",
    second: str | None = "auto",
    winner: str | None = "auto",
    tie: str | None = "auto",
    groups: str | None = "auto",
    magnitude: str | None = None,
    pair_weight: str | None = None,
    pair_features: Any = None,
    items: Any = None,
    unknown: str = "error",
    format: str = "auto",
    delimiter: str | None = None,
) -> Bunch:
    r"""Read judgements from a table of names.

    A row is one judgement. The table has the preferred item and the other one, or, as tables of
    arenas do, two items and which of them won.

    Parameters
    ----------
    table : data frame, dict of columns, str, path-like or binary file
        A frame of pandas, polars or pyarrow, or a file: CSV (also compressed), Parquet,
        Arrow, or JSON lines (one object in each line).
    preferred, other : str, default="auto"
        Columns of the preferred item and of the other one. "auto": preferred and other, winner and
        loser, chosen and rejected, or better and worse, in any case.
    first, second, winner : str, default="auto"
        Arena tables: columns of the two items, in the order in which they were shown, and of the
        outcome. "auto": model_a and model_b, or the same with item, response, answer, option,
        player or team, with 1 and 2, or a and b, left and right, first and second; winner,
        preference, outcome, result, choice, vote, verdict or judgement. The winner is the name of
        one of the two items, or, in any case: a, left, first, 1, model_a, model_1 (response_a, …)
        for the first; b, right, second, 2, −1, model_b, model_2, … for the second; tie,
        tie (bothbad), both, neither, draw, equal, same or 0 for a tie.
    tie : str or None, default="auto"
        Column that is true (1, yes, tie) where the items were judged equal; empty cells are false.
        "auto": tie, is_tie, tied, draw or equal, if there is one.
    groups : str or None, default="auto"
        Column of what judgements have in common. "auto": the first of judge, annotator, rater,
        worker_id, user, session, question_id, prompt_id, question, prompt, query_id and qid (also
        with _id) that there is.
    magnitude : str, optional
        Column of by how much an item was preferred, >= 0; 0 is a tie. By default 1.
    pair_weight : str, optional
        Column of weights of the judgements, >= 0, such as numbers of votes.
    pair_features : str or sequence of str, optional
        Columns of covariates of the comparison, as numbers: preferred minus other. In arena
        tables first minus second; their sign is changed where the second item won.
    items : array-like of shape (n_items,), pandas Index, Series or DataFrame, optional
        Names of the rows of X: pairs are then row numbers of X. A frame stands for its index, a
        Series for its values. Names match if they are equal, or written alike (7 and "7"). By
        default the distinct names in sorted order.
    unknown : {"error", "drop"}, default="error"
        How to handle judgements of items that ``items`` does not have.
    format : {"auto", "csv", "parquet", "jsonl"}, default="auto"
        Of a file. By default its name and content tell.
    delimiter : str, optional
        Of a CSV file; by default the one of comma, tab, semicolon and bar that the first line has
        most of.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        pairs : ndarray of shape (n_pairs, 2), int64
            Numbers of items: the preferred one and the other one; of ties the first and the
            second one.
        magnitude : ndarray of shape (n_pairs,)
            0 for ties.
        pair_weight : ndarray of shape (n_pairs,), or None
            Weights.
        groups : ndarray of shape (n_pairs,), or None
            Judge, prompt or session of every judgement.
        pair_features : ndarray of shape (n_pairs, n_pair_features), or None
            Covariates, preferred less other.
        position : ndarray of shape (n_pairs,), or None
            Arena tables: 1 where the first item is in the first column of ``pairs``, −1 where
            the second one is. As a column of ``pair_features`` it is the effect of being shown
            first.
        item_names : ndarray of shape (n_items,)
            Names, by number.
        columns : dict
            The columns that were read, by role.
        n_dropped : int
            Judgements of unknown items.

    Raises
    ------
    ValueError
        If columns cannot be found (the message lists what there is), a cell is empty or not what it
        should be, an item is compared with itself, or a name is not in ``items``; the message names
        file and line, or the row.

    See Also
    --------
    rankrls.RankRLSCV : Learn from pairs, with exact cross-validation by judgement or group.
    rankrls.model_selection.holdout_judgements : Predict every judgement by a model without it.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_preferences
    >>> file = io.BytesIO(b"model_a,model_b,winner,judge\nx,y,model_b,ann\ny,z,tie,bob\n")
    >>> data = load_preferences(file, items=["z", "y", "x"])
    >>> data.pairs.tolist(), data.magnitude.tolist(), data.groups.tolist()
    ([[1, 2], [1, 0]], [1.0, 0.0], ['ann', 'bob'])
    >>> load_preferences({"winner": ["b", "c"], "loser": ["a", "a"]}).item_names.tolist()
    ['a', 'b', 'c']
    """
    check_option("unknown", unknown, ("error", "drop"))
    source = open_table(table, format, delimiter)
    given = {"preferred": preferred, "other": other, "first": first, "second": second}
    given |= {"winner": winner, "tie": tie, "groups": groups}
    roles = find_roles(source.file, source.names, given)
    for role, name in (("magnitude", magnitude), ("pair_weight", pair_weight)):
        if name is not None:
            roles[role] = check_column(source, role, name)
    covariates = [] if pair_features is None else check_names(pair_features, "pair_features")
    for name in covariates:
        check_column(source, "pair_features", name)
    judged = _JudgementColumns(source, roles, covariates)

    arena = "winner" in roles
    left = judged.codes["first" if arena else "preferred"]
    right = judged.codes["second" if arena else "other"]
    names = judged.vocabularies["item"].cells
    judged.refuse(left == right, lambda row: f"{_shown(names[left[row]])} is compared with itself")
    tied = judged.flags
    outcome = np.where(tied, 0, 1)
    if arena:
        outcome = outcomes(
            left, right, judged.codes["winner"], tied, names, roles["winner"], judged.place
        )
    sizes = judged.numbers.get("magnitude", np.ones(len(left)))
    sizes = np.where(outcome == 0, 0.0, sizes)
    sign = np.where(outcome < 0, -1, 1)
    codes = np.column_stack([left, right])
    codes[sign < 0] = codes[sign < 0, ::-1]

    rows, labels = number_names(codes, names, items, source)
    kept = (rows >= 0).all(axis=1)
    if not kept.all() and (unknown == "error" or not kept.any()):
        raise ValueError(_unknown(source, codes, rows, names, judged.place))
    judged.refuse(
        kept & (rows[:, 0] == rows[:, 1]),
        lambda row: f"{_shown(names[left[row]])} and {_shown(names[right[row]])} are one item",
    )
    C = None
    if covariates:
        C = np.column_stack([judged.numbers[f"pair_features {name}"] for name in covariates])
        C = (C * sign[:, None])[kept]
    weight = judged.numbers.get("pair_weight")
    of_group = None
    if "groups" in roles:
        number, group_names = _distinct(judged.vocabularies["groups"].cells, source)
        of_group = group_names[number[judged.codes["groups"][kept]]]
    return Bunch(
        pairs=rows[kept],
        magnitude=sizes[kept],
        pair_weight=None if weight is None else weight[kept],
        groups=of_group,
        pair_features=C,
        position=sign[kept].astype(np.float64) if arena else None,
        item_names=labels,
        columns=roles | ({"pair_features": covariates} if covariates else {}),
        n_dropped=int((~kept).sum()),
    )


def check_column(source: NamedTable, role: str, name: Any) -> str:
    """The name of a column that the table has."""
    if not isinstance(name, str):
        raise ValueError(f"{role} must be the name of a column; got {name!r}")
    if name not in source.names:
        raise ValueError(f"{source.file}: {missing_column(role, name, source.names)}")
    return name


class _JudgementColumns:
    """The columns of a table that have roles, as codes and numbers.

    Attributes
    ----------
    codes : dict of role to int array of shape (n,)
        Items and winner are numbered together, in ``vocabularies["item"]``.
    numbers : dict of role to float array of shape (n,)
    flags : ndarray of shape (n,), bool
        Ties by a column of their own.
    """

    def __init__(self, source: NamedTable, roles: dict[str, str], covariates: list[str]) -> None:
        self.vocabularies = {"item": Vocabulary(), "groups": Vocabulary()}
        self._starts: list[int] = []
        self._places: list[Callable[[int], str]] = []
        wanted = roles | {f"pair_features {name}": name for name in covariates}
        parts: dict[str, list[Array]] = {role: [] for role in wanted}
        n = 0
        for chunk in source.chunks(list(wanted.values())):
            self._starts.append(n)
            self._places.append(chunk.place)
            for (role, name), cells in zip(wanted.items(), chunk.cells, strict=True):
                parts[role].append(self._read(role, name, cells, chunk.place, "tie" in roles))
            n += len(chunk.cells[0])
        if not n:
            raise ValueError(f"{source.file}: there are no judgements: the table has no rows")
        arrays = {role: np.concatenate(found) for role, found in parts.items()}
        self.flags = arrays.pop("tie", np.zeros(n, dtype=bool))
        self.codes = {role: array for role, array in arrays.items() if array.dtype.kind == "i"}
        self.numbers = {role: array for role, array in arrays.items() if array.dtype.kind == "f"}

    def place(self, row: int) -> str:
        """How an error calls a row."""
        part = bisect_right(self._starts, row) - 1
        return self._places[part](row - self._starts[part])

    def refuse(self, wrong: Array, say: Callable[[int], str]) -> None:
        """Raise for the first row that is wrong."""
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"{self.place(row)}: {say(row)}: a judgement needs two different items"
            )

    def _read(
        self, role: str, name: str, cells: list[Any], place: Callable[[int], str], ties: bool
    ) -> Array:
        if role == "tie":
            return np.array([_is_tie(cell, name, i, place) for i, cell in enumerate(cells)])
        if None in cells and not (role == "winner" and ties):
            raise ValueError(
                f"{place(cells.index(None))}: column {name!r} is empty; every judgement needs a "
                "value there"
            )
        if role in ("magnitude", "pair_weight") or role.startswith("pair_features "):
            least = -np.inf if role.startswith("pair_features ") else 0.0
            return np.array(
                [finite_cell(cell, name, i, place, least) for i, cell in enumerate(cells)]
            )
        vocabulary = self.vocabularies["groups" if role == "groups" else "item"]
        try:
            return vocabulary.encode(cells)
        except TypeError as error:
            wrong = next(i for i, cell in enumerate(cells) if isinstance(cell, list | dict))
            raise ValueError(
                f"{place(wrong)}: column {name!r} holds a {type(cells[wrong]).__name__}, not a name"
            ) from error


def _is_tie(cell: Any, name: str, row: int, place: Callable[[int], str]) -> bool:
    if cell is None:
        return False
    word = text_of(cell).strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(
            f"{place(row)}: column {name!r} is {_shown(cell)}, neither true nor false; if it does "
            "not say which judgements are ties, pass tie=None"
        )
    return word in _TRUE


def finite_cell(cell: Any, name: str, row: int, place: Callable[[int], str], least: float) -> float:
    """The number in a cell, which must be finite and at least ``least``."""
    try:
        number = cell_number(cell) if isinstance(cell, str) else float(cell)
    except (TypeError, ValueError, OverflowError):
        number = np.nan
    if not np.isfinite(number) or number < least:
        kind = "a finite number >= 0" if least == 0 else "a finite number"
        raise ValueError(f"{place(row)}: column {name!r} is {_shown(cell)}, not {kind}")
    return number


def _shown(cell: Any) -> str:
    return shown(text_of(cell), 60)


def number_names(
    codes: Array, names: list[Any], items: Any, source: NamedTable
) -> tuple[Array, Array]:
    """Row numbers of codes, −1 where there is none, and the names by number."""
    used = np.unique(codes)
    row_of = np.full(len(names), -1, dtype=np.int64)
    if items is None:
        number, settled = _distinct([names[code] for code in used], source)
        try:
            order = sorted(range(len(settled)), key=lambda i: settled[i])
        except TypeError:  # numbers and text
            order = sorted(range(len(settled)), key=lambda i: text_of(settled[i]))
        row_of[used] = np.argsort(order)[number]
        return row_of[codes], settled[order]
    labels = _labels(items)
    exact: dict[Any, int] = {label: row for row, label in enumerate(labels)}
    if len(exact) < len(labels):
        twice, count = Counter(labels).most_common(1)[0]
        raise ValueError(
            f"items has {_shown(twice)} {count} times: every row of X needs a name of its own"
        )
    written: dict[str, int] = {}
    for row, label in enumerate(labels):
        text = text_of(label)
        written[text] = -1 if text in written else row
    for code in used:
        cell = names[code]
        row_of[code] = exact.get(cell, -1)
        if row_of[code] < 0:
            row_of[code] = written.get(text_of(cell), -1)
    return row_of[codes], _array(labels)


def _labels(items: Any) -> list[Any]:
    index = row_names(items) if hasattr(items, "columns") else None
    unordered = isinstance(items, str | bytes | Set | Mapping) or not isinstance(items, Iterable)
    if index is not None:
        if not names_anything(index) and index.name is None:
            raise ValueError(
                "items is a frame whose index only counts its rows: name them by "
                "set_index('item_id'), or pass the column of names"
            )
        items = index
    elif hasattr(items, "columns") or unordered or getattr(items, "ndim", 1) > 1:
        raise ValueError(
            "items must be the names of the rows of X, in their order: a list, a column, or a "
            f"pandas frame with such an index; got a {type(items).__name__}"
        )
    labels = items.tolist() if hasattr(items, "tolist") else list(items)
    try:
        set(labels)
    except TypeError:
        raise ValueError("items must be names: text or numbers") from None
    if not labels:
        raise ValueError("items is empty: name the rows of X")
    return labels


def _unknown(
    source: NamedTable, codes: Array, rows: Array, names: list[Any], place: Callable[[int], str]
) -> str:
    """Say which names are unknown, how often and where first, and what to do."""
    missing = rows < 0
    wrong, where, counts = np.unique(codes[missing], return_index=True, return_counts=True)
    at = np.nonzero(missing)[0][where]
    order = np.lexsort((at, -counts))[:_SHOWN]
    shown = [
        f"{_shown(names[wrong[i]])} ({counts[i]} time{'' if counts[i] == 1 else 's'}, first at "
        f"{place(int(at[i]))})"
        for i in order
    ]
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    rows_hit = int(missing.any(axis=1).sum())
    return (
        f"{source.file}: {len(wrong)} name{'s' * (len(wrong) != 1)} in {rows_hit} of {len(rows)} "
        f"judgements {'are' if len(wrong) != 1 else 'is'} not in items: {', '.join(shown)}{more}; "
        "add their rows to X and items, or leave these judgements out by unknown='drop'"
    )


def _distinct(cells: list[Any], source: NamedTable) -> tuple[Array, Array]:
    """Number of every cell, and the names by number; cells that are written alike are one name."""
    numbers: dict[str, int] = {}
    named: list[Any] = []
    for cell in cells:
        if numbers.setdefault(text_of(cell), len(named)) == len(named):
            named.append(cell)
    number = np.array([numbers[text_of(cell)] for cell in cells], dtype=np.int64)
    return number, _array(named, spelled=source.is_text)


def _array(cells: list[Any], spelled: bool = False) -> Array:
    """Names as an array; if ``spelled``, text is taken as integers where all of it is."""
    numbers = list(integers_of(cells).values()) if spelled else [None]
    if None not in numbers:
        return np.array(numbers, dtype=np.int64)
    kinds = {type(cell) for cell in cells}
    integers = kinds == {int} and all(-(2**63) <= cell < 2**63 for cell in cells)
    if integers or (kinds == {str} and max(map(len, cells)) <= _LONG):
        return np.array(cells)
    return as_objects(cells)
