"""Tables with names: judgements to pairs of row numbers, and relations to sparse labels.

`NamedTable` reads names and numbers of data frames, CSV, Parquet, Arrow and JSON lines by column.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import Bunch

from rankrls._frames import names_anything, refuse_equal_names, row_names
from rankrls._streams import name_of
from rankrls._validation import as_objects, check_option, is_missing, refuse_lazy
from rankrls.datasets._columns import check_names
from rankrls.datasets._sources import (
    ArrowSource,
    CsvSource,
    find_files,
    readable,
    stripped,
    type_kind,
    words_of,
)
from rankrls.datasets.formats import (
    TABLE_FORMATS,
    cell_number,
    integers_of,
    listed,
    missing_column,
    place_of,
    require_loadable,
    shown,
    sniff,
    text_blocks,
    text_of,
)

Array = NDArray[Any]
Place = Callable[[int], str]

_MAX_JSON_LINE_BYTES = 1 << 24

_ROWS = 10_000  # that are read at a time
_CELL_BYTES = 64  # memory that a cell takes, about

#: Usual names of the columns by role, in lower case.
_LAYOUTS = [
    *(
        {"preferred": preferred, "other": other}
        for preferred, other in (
            ("preferred", "other"),
            ("winner", "loser"),
            ("chosen", "rejected"),
            ("better", "worse"),
        )
    ),
    *(
        {"first": first, "second": second, "winner": winner}
        for first, second in (
            *((f"{item}_a", f"{item}_b") for item in ("model", "item", "response", "answer")),
            *((f"{item}_1", f"{item}_2") for item in ("model", "item", "response", "answer")),
            *(("first", "second"), ("left", "right"), ("a", "b")),
        )
        for winner in ("winner", "preference", "outcome", "result")
    ),
]

_TIES = ("tie", "is_tie", "tied")

#: The first of these that there is becomes the groups.
_GROUPS = (
    *("judge", "judge_id", "annotator", "annotator_id", "rater", "rater_id", "user", "user_id"),
    *("session", "session_id", "question_id", "prompt_id", "question", "prompt"),
)

#: What a cell of the winner's column may say, in lower case: 1 the first, −1 the second, 0 a tie.
_OUTCOMES = {
    **dict.fromkeys(("a", "left", "first", "1", "model_a", "model_1"), 1),
    **dict.fromkeys(("b", "right", "second", "2", "model_b", "model_2", "-1"), -1),
    **dict.fromkeys(("tie", "tie (bothbad)", "both", "neither", "draw", "equal", "0"), 0),
}

ROLES = ("row", "column", "value")  # of a relation

_LONG = 100  # characters of a name: an array of longer text would waste memory
_SHOWN = 5  # unknown names in an error

#: What a cell of the column of ties may say, in lower case.
_IS_TIE = {
    **dict.fromkeys(("1", "true", "yes", "tie"), True),
    **dict.fromkeys(("0", "false", "no"), False),
}


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
        outcome. "auto": model_a and model_b (or item, response, answer; _1 and _2), a and b, left
        and right, first and second; winner, preference, outcome or result. The winner is the name
        of one of the two items, or a side (a, left, first, 1, model_a; b, right, second, 2, −1,
        model_b) or a tie (tie, both, neither, draw, equal, 0), in any case.
    tie : str or None, default="auto"
        Column that is true (1, yes, tie) where the items were judged equal; empty cells are false.
        "auto": tie, is_tie or tied, if there is one.
    groups : str or None, default="auto"
        Column of what judgements have in common. "auto": the first of judge, annotator, rater,
        user, session, question and prompt (also with _id) that there is.
    magnitude, pair_weight : str, optional
        Columns of by how much an item was preferred (0 is a tie), by default 1, and of weights
        such as numbers of votes; >= 0.
    pair_features : str or sequence of str, optional
        Columns of covariates of the comparison, as numbers: preferred minus other. In arena
        tables first minus second; their sign is changed where the second item won.
    items : array-like of shape (n_items,), pandas Index, Series or DataFrame, optional
        Names of the rows of X, of which pairs are then the numbers; a frame stands for its index.
        Names match if they are written alike (7 and "7"). By default the distinct names, sorted.
    unknown : {"error", "drop"}, default="error"
        How to handle judgements of items that ``items`` does not have.
    format : {"auto", "csv", "parquet", "jsonl"}, default="auto"
        Of a file. By default its name and content tell.
    delimiter : str, optional
        Of a CSV file, as in :func:`load_csv`.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        pairs : ndarray of shape (n_pairs, 2), int64
            Numbers of items: the preferred one and the other one; of ties the first and the second.
        magnitude, pair_weight : ndarray of shape (n_pairs,)
            0 for ties; weights, or None.
        groups : ndarray of shape (n_pairs,), or None
            Judge, prompt or session of every judgement.
        pair_features : ndarray of shape (n_pairs, n_pair_features), or None
            Covariates, preferred less other.
        position : ndarray of shape (n_pairs,), or None
            Arena tables: 1 where the first item is in the first column of ``pairs``, otherwise −1.
        item_names : ndarray of shape (n_items,)
            Names, by number.
        columns : dict
            The columns that were read, by role.
        n_dropped : int
            Judgements of unknown items.

    Raises
    ------
    ValueError
        Naming file and line, or the row, of what is wrong.

    Examples
    --------
    >>> from rankrls.datasets import load_preferences
    >>> table = {"model_a": ["x", "y"], "model_b": ["y", "z"], "winner": ["model_b", "tie"]}
    >>> data = load_preferences(table, items=["z", "y", "x"])
    >>> data.pairs.tolist(), data.magnitude.tolist()
    ([[1, 2], [1, 0]], [1.0, 0.0])
    """
    check_option("unknown", unknown, ("error", "drop"))
    source = open_table(table, format, delimiter)
    given = {"preferred": preferred, "other": other, "first": first, "second": second}
    roles = _find_roles(source, given | {"winner": winner, "tie": tie, "groups": groups})
    for role, name in (("magnitude", magnitude), ("pair_weight", pair_weight)):
        if name is not None:
            roles[role] = source.check_column(role, name)
    covariates = [] if pair_features is None else check_names(pair_features, "pair_features")
    for name in covariates:
        source.check_column("pair_features", name)
    empty = ("tie", "winner") if "tie" in roles else ()
    need = "every judgement needs a value there"
    judged, place = source.read([*roles.values(), *covariates], need, [roles.get(r) for r in empty])

    def numbers(name: str, least: float = -np.inf) -> Array:
        return finite_cells(judged[name], name, place, least)

    arena = "winner" in roles
    sides = ("first", "second", "winner") if arena else ("preferred", "other")
    codes, names = numbered([cell for role in sides for cell in judged[roles[role]]])
    codes = codes.reshape(len(sides), -1)
    left, right = codes[:2]
    for row in np.flatnonzero(left == right)[:1]:
        raise ValueError(
            f"{place(int(row))}: {_shown(names[left[row]])} is compared with itself: a judgement "
            "needs two different items"
        )
    tied = np.zeros(len(left), dtype=bool)
    if "tie" in roles:
        tied = _ties(judged[roles["tie"]], roles["tie"], place)
    outcome = np.where(tied, 0, 1)
    if arena:
        outcome = _outcomes(codes, tied, names, roles["winner"], place)
    sizes = numbers(magnitude, least=0.0) if magnitude is not None else np.ones(len(left))
    weight = None if pair_weight is None else numbers(pair_weight, least=0.0)
    sign = np.where(outcome < 0, -1, 1)
    pairs = np.column_stack([left, right])
    pairs[sign < 0] = pairs[sign < 0, ::-1]

    rows, labels = _number_names(pairs, names, items, "items", unknown, place, source.is_text)
    kept = (rows >= 0).all(axis=1)
    C = None
    if covariates:
        C = (np.column_stack(list(map(numbers, covariates))) * sign[:, None])[kept]
    of_group = None
    if "groups" in roles:
        group_codes, group_names = numbered(judged[roles["groups"]])
        of_group = _array(group_names, spelled=source.is_text)[group_codes[kept]]
    return Bunch(
        pairs=rows[kept],
        magnitude=np.where(outcome == 0, 0.0, sizes)[kept],
        pair_weight=None if weight is None else weight[kept],
        groups=of_group,
        pair_features=C,
        position=sign[kept].astype(np.float64) if arena else None,
        item_names=labels,
        columns=roles | ({"pair_features": covariates} if covariates else {}),
        n_dropped=int((~kept).sum()),
    )


def load_relations(
    table: Any,
    *,
    row: str | None = None,
    column: str | None = None,
    value: str | None = None,
    rows: Any = None,
    columns: Any = None,
    unknown: str = "error",
    format: str = "auto",
    delimiter: str | None = None,
) -> Bunch:
    """Read a relation from a table with a line for each observed pair of objects.

    Parameters
    ----------
    table : data frame, dict of columns, str, path-like or binary file
        As in :func:`load_preferences`.
    row, column, value : str, optional
        Columns of the table with the names of the two objects and the label; by default its
        first, second and third column.
    rows, columns : array-like, pandas Index, Series or DataFrame, optional
        Names of the rows of X and of Z, as ``items`` of :func:`load_preferences`: the relation has
        their order. For objects of one kind, pass the same names twice.
    unknown : {"error", "drop"}, default="error"
        How to handle lines with names that ``rows`` or ``columns`` do not have.
    format, delimiter
        As in :func:`load_preferences`.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        target : COO array of shape (n_rows, n_columns)
            Y of `rankrls.ConditionalRankRLS`: a stored entry for each line; several lines of one
            pair are several observations.
        row_names, column_names : ndarray of shape (n_rows,) and (n_columns,)
            Names, by number.
        n_dropped : int
            Lines with unknown names.

    Examples
    --------
    >>> from rankrls.datasets import load_relations
    >>> ratings = {"user": ["bob", "ann", "bob"], "film": [7, 7, 9], "stars": [3, 5, 1]}
    >>> data = load_relations(ratings)
    >>> data.row_names.tolist(), data.column_names.tolist()
    (['ann', 'bob'], [7, 9])
    >>> data.target.toarray().tolist()
    [[5.0, 0.0], [3.0, 1.0]]
    """
    check_option("unknown", unknown, ("error", "drop"))
    source = open_table(table, format, delimiter)
    given = dict(zip(ROLES, (row, column, value), strict=True))
    if len(source.names) < len(ROLES) and None in given.values():
        raise ValueError(
            f"{source.file}: a relation needs three columns (row, column, value); it has "
            f"{len(source.names)}"
        )
    names = [
        source.names[k] if name is None else source.check_column(role, name)
        for k, (role, name) in enumerate(given.items())
    ]
    if len(set(names)) < len(names):
        raise ValueError(
            f"{source.file}: row, column and value must be different columns; got {names}"
        )
    need = "every line needs a value there: leave unobserved pairs out"
    found, place = source.read(names, need)
    numbers, labels = [], []
    for name, what, wanted in zip(names, ("rows", "columns"), (rows, columns), strict=False):
        codes, known = numbered(found[name])
        number, label = _number_names(codes, known, wanted, what, unknown, place, source.is_text)
        numbers.append(number)
        labels.append(label)
    values = finite_cells(found[names[2]], names[2], place)
    kept = (numbers[0] >= 0) & (numbers[1] >= 0)
    if not kept.any():
        raise ValueError(f"{source.file}: no line has names that rows and columns have")
    shape = len(labels[0]), len(labels[1])
    Y = sparse.coo_array((values[kept], (numbers[0][kept], numbers[1][kept])), shape=shape)
    Y.row_names, Y.column_names = labels  # what fit compares with the names of X and Z
    return Bunch(
        target=Y, row_names=labels[0], column_names=labels[1], n_dropped=int((~kept).sum())
    )


# -- tables -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NamedTable:
    """What all tables have.

    ``file`` is how errors call it. ``cells`` reads some columns by name, each as a list of cells,
    None where one is missing, and gives a function that names a row in an error. ``is_text``:
    whether all cells are text, also those that hold numbers.
    """

    file: str
    names: list[str]
    cells: Callable[[list[str]], tuple[dict[str, list[Any]], Place]]
    is_text: bool = False

    def check_column(self, role: str, name: Any) -> str:
        """The name of a column that the table has once."""
        if not isinstance(name, str):
            raise ValueError(f"{role} must be the name of a column; got {name!r}")
        if self.names.count(name) != 1:
            several = f"there are several columns {name!r}" if name in self.names else ""
            raise ValueError(f"{self.file}: {several or missing_column(role, name, self.names)}")
        return name

    def read(
        self, columns: list[str], need: str, empty: Sequence[str | None] = ()
    ) -> tuple[dict[str, list[Any]], Place]:
        """Cells by column, and how errors call a row; those in ``empty`` may have empty cells."""
        found, place = self.cells(list(dict.fromkeys(columns)))
        for name, cells in found.items():
            if not cells:
                raise ValueError(f"{self.file}: no data: the table has no rows")
            kinds = set(map(type, cells))
            for nested in kinds & {list, dict}:
                row = [type(cell) for cell in cells].index(nested)
                raise ValueError(
                    f"{place(row)}: column {name!r} holds a {nested.__name__}, not a name"
                )
            if type(None) in kinds and name not in empty:
                raise ValueError(f"{place(cells.index(None))}: column {name!r} is empty; {need}")
        return found, place


def open_table(
    table: Any, format: str = "auto", delimiter: str | None = None, header: bool = True
) -> NamedTable:
    """Open a data frame, a dict of columns, or a file; delimiter and header are of CSV files."""
    check_option("format", format, ("auto", *TABLE_FORMATS))
    if not isinstance(table, str | os.PathLike) and not hasattr(table, "read"):
        return _open_frame(table)
    kind = sniff(table, named=True) if format == "auto" else format
    if kind == "jsonl":
        return _open_json(table)
    if kind == "csv":
        sources: list[Any] = [CsvSource(table, header, delimiter)]
    else:
        sources = list(map(ArrowSource, find_files(table)))
    first = sources[0]
    return NamedTable(first.file, first.names, partial(_file_cells, sources), kind == "csv")


def _file_cells(sources: Any, columns: list[str]) -> tuple[dict[str, list[Any]], Place]:
    """Columns of CSV, Parquet and Arrow files."""
    found: dict[str, list[Any]] = {name: [] for name in columns}
    starts, places = [0], list[Place]()
    for source in sources:
        for name in columns:
            if source.names.count(name) != 1:
                raise ValueError(f"{source.file}: there is no single column {name!r}")
        for load, place in source.parts(columns, _ROWS):
            arrays = load()
            with readable(partial(place, 0), source.kind):
                for name, array in arrays.items():
                    array = stripped(array) if source.schema is None else array
                    is_text = type_kind(array.type) == "strings"
                    found[name] += _known(
                        words_of(array).tolist() if is_text else array.to_pylist()
                    )
            starts.append(len(found[columns[0]]))
            places.append(place)
            _require_loadable(partial(place, 0), starts[-1] * len(columns))

    def place_of_row(row: int) -> str:
        part = bisect_right(starts, row) - 1
        return places[part](row - starts[part])

    return found, place_of_row


def _require_loadable(place: Callable[[], str], n_cells: int) -> None:
    require_loadable(place, n_cells * _CELL_BYTES, "fewer rows in each")


def _open_json(path: Any) -> NamedTable:
    """One object in each line; the columns are all of their keys."""
    file, rows, n_cells = name_of(path), dict[int, dict[str, Any]](), 0
    for first, lines in text_blocks(path, _MAX_JSON_LINE_BYTES):
        for number, line in enumerate(lines, first):
            if not line.strip():
                continue
            try:
                rows[number] = json.loads(line)
                if not isinstance(rows[number], dict):
                    raise ValueError(f"it holds a {type(rows[number]).__name__}")
                n_cells += 4 + len(rows[number])  # with the dictionary itself
            except (ValueError, RecursionError) as error:
                raise ValueError(
                    f"{file}:{number}: this line is no JSON object ({error}); a file of JSON lines "
                    'has one object {"column": value, …} in each line, as '
                    "DataFrame.to_json(orient='records', lines=True) writes them"
                ) from error
        _require_loadable(partial(place_of, file, [first], 0), n_cells)
    if not rows:
        raise ValueError(f"{file}: no data: the file is empty")

    def cells(columns: list[str]) -> tuple[dict[str, list[Any]], Place]:
        found = {name: _known([row.get(name) for row in rows.values()]) for name in columns}
        return found, partial(place_of, file, list(rows))

    return NamedTable(file, list(dict.fromkeys(key for row in rows.values() for key in row)), cells)


def _open_frame(table: Any) -> NamedTable:
    """A data frame, or a dict of columns."""
    refuse_lazy(table, "table")
    frame = table
    if not isinstance(table, Mapping):
        columns = getattr(table, "column_names", getattr(table, "columns", ()))
        refuse_equal_names(list(map(str, columns)), "table")
        frame = nw.from_native(table, eager_only=True, pass_through=True)
        if not isinstance(frame, nw.DataFrame):
            raise ValueError(
                "table must be a data frame (pandas, polars, pyarrow), a dict of columns, or the "
                f"name of a file; got a {type(table).__name__}"
            )
    by_name = {str(name): name for name in (table if frame is table else frame.columns)}

    def cells(columns: list[str]) -> tuple[dict[str, list[Any]], Place]:
        given = {name: frame[by_name[name]] for name in columns}
        found = {name: _known(column.to_list() if hasattr(column, "to_list")
                              else np.atleast_1d(np.asarray(column, dtype=object)).tolist())
                 for name, column in given.items()}  # fmt: skip
        lengths = {name: len(column) for name, column in found.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"table: its columns have different lengths: {lengths}")
        return found, "table: row {}".format

    return NamedTable("table", list(by_name), cells)


def _known(cells: list[Any]) -> list[Any]:
    """The cells, None for NaN, NA and empty text; most columns have one type and none of these."""
    kinds = set(map(type, cells))
    if kinds <= {int} or (kinds <= {float} and not np.isnan(cells).any()):
        return cells
    if kinds <= {str} and all(word.strip() for word in set(cells)):
        return cells
    return [None if (not cell.strip() if isinstance(cell, str) else is_missing(cell)) else cell
            for cell in cells]  # fmt: skip


def finite_cells(
    cells: list[Any], name: str, place: Place, least: float = -float("inf")
) -> NDArray[np.float64]:
    """The numbers of a column, which must be finite and at least ``least``."""
    kinds = set(map(type, cells))
    numbers = np.full(len(cells), np.nan)
    text = "".join(cells) if kinds <= {str} else "" if kinds <= {int, float} else "_"
    with suppress(ValueError, OverflowError):
        if text.isascii() and "_" not in text:  # float takes other digits, and 1_000
            numbers = np.array(list(map(float, cells)))
    for row in np.flatnonzero(~(np.isfinite(numbers) & (numbers >= least))).tolist():
        cell = cells[row]
        with suppress(TypeError, ValueError, OverflowError):
            numbers[row] = cell_number(cell) if isinstance(cell, str) else float(cell)
        if not (np.isfinite(numbers[row]) and numbers[row] >= least):
            kind = "a finite number" + " >= 0" * (least == 0)
            what = shown(text_of(cell), 60)
            raise ValueError(f"{place(row)}: column {name!r} is {what}, not {kind}")
    return numbers


# -- columns by role ----------------------------------------------------------------------------


def _find_roles(source: NamedTable, given: dict[str, Any]) -> dict[str, str]:
    """The columns by role: preferred and other, or first, second and winner; tie and groups."""
    file, names = source.file, source.names
    told = {
        role: source.check_column(role, name)
        for role, name in given.items()
        if name is not None and name != "auto"
    }
    items = set(told) - {"tie", "groups"}
    known = {name.lower(): name for name in reversed(names)}
    found: list[dict[str, str]] = []
    for layout in _LAYOUTS:  # by common names, or the given ones
        columns = {role: told.get(role, known.get(word, "")) for role, word in layout.items()}
        chosen = set(columns.values())
        complete = items <= set(layout) and "" not in chosen and len(chosen) == len(layout)
        if complete and columns not in found:
            found.append(columns)
    if found[1:]:
        ways = [", ".join(f"{role}={name!r}" for role, name in one.items()) for one in found[:3]]
        raise ValueError(f"{file}: the columns can be read as {' or as '.join(ways)}: name them")
    if not found:
        raise ValueError(
            f"{file}: it is not clear which columns hold the judgements: call them winner and "
            "loser, or model_a, model_b and winner (or name them by preferred= and other=, or by "
            f"first=, second= and winner=, different ones); the columns are {listed(names)}"
        )
    roles = found[0]
    for part, words in (("tie", _TIES), ("groups", _GROUPS)):
        usual = [known[word] for word in words if word in known and given[part] == "auto"]
        usual = [name for name in usual if name not in roles.values()]
        if part in told or usual:
            roles[part] = told.get(part) or usual[0]
    return roles


def _outcomes(codes: Array, tied: Array, cells: list[Any], column: str, place: Place) -> Array:
    """1 where the first item won, −1 where the second did, 0 for ties, shape (n,)."""
    (first, second, winner), unknown = codes, 2
    words = [text_of(cell).strip().lower() for cell in cells]
    word = np.array([_OUTCOMES.get(text, unknown) for text in words])
    by_word = np.where(tied, 0, word[winner])
    by_name = np.where(winner == first, 1, np.where(winner == second, -1, unknown))
    by_name = np.where(tied | ((by_name == unknown) & (by_word == 0)), 0, by_name)
    for row in np.flatnonzero((by_word == unknown) & (by_name == unknown))[:1]:
        value = cells[winner[row]]
        names = " and ".join(_shown(cells[side[row]]) for side in (first, second))
        raise ValueError(
            f"{place(row)}: column {column!r} is {'empty' if value is None else _shown(value)}; it "
            f"must be one of the items of the row, {names}, or 'model_a' (a, left, first, 1), "
            "'model_b' (b, right, second, 2) or 'tie' (both, neither, draw, equal, 0)"
        )
    zero = (np.array(words) == "0")[winner] & ~tied & (by_name == 0)
    if zero.any() and not np.isin(by_word[~tied], (-1, unknown)).any():
        raise ValueError(
            f"{place(int(np.argmax(zero)))}: column {column!r} is 0, which stands for a tie, but "
            "no row says that the second item won: if 0 means that, write 'model_a', 'model_b' "
            "and 'tie', or 1, -1 and 0"
        )
    names_tell, sides_tell = (by_name != unknown).all(), (by_word != unknown).all()
    if not (names_tell or sides_tell) or (names_tell and sides_tell and (by_word != by_name).any()):
        row = int(np.argmax(by_word != by_name))
        raise ValueError(
            f"{place(row)}: column {column!r} is {cells[winner[row]]!r}: it holds names of items "
            "and sides, or one that may be both: write 'model_a' and 'model_b' for the sides in "
            "all rows"
        )
    return by_name if names_tell else by_word


def _ties(cells: list[Any], name: str, place: Place) -> Array:
    """Whether cells say that the items were judged equal; empty ones do not."""
    words = ["no" if cell is None else text_of(cell).strip().lower() for cell in cells]
    ties = [_IS_TIE.get(word) for word in words]
    if None in ties:
        row = ties.index(None)
        raise ValueError(
            f"{place(row)}: column {name!r} is {_shown(cells[row])}, neither true nor false; "
            "if it does not say which judgements are ties, pass tie=None"
        )
    return np.array(ties)


# -- names to numbers ---------------------------------------------------------------------------


def numbered(cells: list[Any]) -> tuple[Array, list[Any]]:
    """Numbers of cells, shape (n,), and the cells by number; those written alike are one."""
    texts: list[str | None] = cells
    if set(map(type, cells)) - {str}:
        texts = [None if cell is None else text_of(cell) for cell in cells]
    number: dict[str | None, int] = {}
    codes = np.array([number.setdefault(text, len(number)) for text in texts], dtype=np.int64)
    first = dict(zip(reversed(texts), reversed(cells), strict=True))
    return codes, [first[text] for text in number]


def _shown(cell: Any) -> str:
    return shown(text_of(cell), 60)


def _number_names(
    codes: Array, names: list[Any], items: Any, what: str, unknown: str, place: Place, spelled: bool
) -> tuple[Array, Array]:
    """Row numbers of codes, −1 where there is none and that is no error; names by number."""
    used = np.unique(codes)
    row_of = np.full(len(names), -1, dtype=np.int64)
    if items is None:
        found = _array([names[code] for code in used], spelled)
        try:
            order = sorted(range(len(found)), key=lambda i: found[i])
        except TypeError:  # numbers and text
            order = sorted(range(len(found)), key=lambda i: text_of(found[i]))
        row_of[used] = np.argsort(order)
        return row_of[codes], found[order]
    labels = _labels(items)
    texts = list(map(text_of, labels))
    rows = {text: row for row, text in enumerate(texts)}
    if len(rows) < len(texts):
        twice, count = Counter(texts).most_common(1)[0]
        raise ValueError(
            f"{what} has {shown(twice, 60)} {count} times: every row of X needs a name of its own"
        )
    row_of[used] = [rows.get(text_of(names[code]), -1) for code in used]
    missing = row_of[codes] < 0
    lines = missing.reshape(len(codes), -1).any(axis=1)
    if lines.all() or (unknown == "error" and lines.any()):
        wrong = [f"{_shown(names[code])} (×{count})"
                 for code, count in Counter(codes[missing].tolist()).most_common()]  # fmt: skip
        raise ValueError(
            f"{place(int(np.argmax(lines)))}: names that are not in {what}: "
            f"{', '.join(wrong[:_SHOWN])}{', …' * (len(wrong) > _SHOWN)}, in {lines.sum()} of "
            f"{len(codes)} lines; add them there, or leave such lines out by unknown='drop'"
        )
    return row_of[codes], _array(labels)


def _labels(items: Any) -> list[Any]:
    """Names of the rows of X, the index of a frame."""
    index = row_names(items) if hasattr(items, "columns") else None
    if index is not None and not names_anything(index) and index.name is None:
        raise ValueError(
            "items is a frame whose index only counts its rows: name them by "
            "set_index('item_id'), or pass the column of names"
        )
    names = items if index is None else index
    labels: list[Any] = []
    no_names = isinstance(names, str | bytes | Set | Mapping) or not isinstance(names, Iterable)
    if not (no_names or hasattr(names, "columns") or getattr(names, "ndim", 1) > 1):
        labels = names.tolist() if hasattr(names, "tolist") else list(names)
    if not labels or any(isinstance(label, list | dict | set) for label in labels):
        raise ValueError(
            "items must be the names of the rows of X, in their order: a list, a column, or a "
            f"pandas frame with such an index; got a {type(items).__name__}"
        )
    return labels


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
