"""Labels of pairs as long tables: one line for each row object, column object and value."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import Bunch

from rankrls._validation import check_option
from rankrls.datasets._cells import Vocabulary
from rankrls.datasets._named_columns import finite_cells, open_table
from rankrls.datasets._preferences import number_names

Array = NDArray[Any]

ROLES = ("row", "column", "value")


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
    table : DataFrame, pyarrow.Table, dict of columns, str, path-like or binary file
        A frame of pandas, polars or pyarrow, or a file: CSV (also compressed), Parquet,
        Arrow, or JSON lines.
    row, column, value : str, optional
        Columns of the table with the names of the two objects and the label; by default its
        first, second and third column.
    rows, columns : array-like, pandas Index, Series or DataFrame, optional
        Names of the rows of X and of Z: the relation has their order. A frame or a Series stands
        for its index. Names match if they are equal, or written alike (7 and "7"). By default the
        distinct names in sorted order. For objects of one kind, pass the same names twice.
    unknown : {"error", "drop"}, default="error"
        How to handle lines with names that ``rows`` or ``columns`` do not have.
    format : {"auto", "csv", "parquet", "jsonl"}, default="auto"
        Of a file. By default its name and content tell.
    delimiter : str, optional
        Of a CSV file; by default the one of comma, tab, semicolon and bar that the first line has
        most of.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        With the attributes

        target : COO array of shape (n_rows, n_columns)
            Y of `rankrls.ConditionalRankRLS`: a stored entry for each line; several lines of one
            pair are several observations.
        row_names : ndarray of shape (n_rows,)
            Names, by number.
        column_names : ndarray of shape (n_columns,)
            The same for columns.
        n_dropped : int
            Lines with unknown names.

    Raises
    ------
    ValueError
        If a column cannot be found, a cell is empty or no number, or a name is unknown; the message
        names file and line, or the row.

    See Also
    --------
    rankrls.ConditionalRankRLS : Learn from a relation.

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
    vocabularies = Vocabulary(), Vocabulary()
    encoders = [vocabulary.encode for vocabulary in vocabularies]
    readers = zip(names, (*encoders, finite_cells), strict=True)
    need = "every line needs a value there: leave unobserved pairs out"
    found, _ = source.read(dict(zip(ROLES, readers, strict=True)), need)
    codes = list(found.values())
    numbers, labels = [], []
    for k, wanted in enumerate((rows, columns)):
        known = vocabularies[k].cells
        number, label = number_names(codes[k], known, wanted, source)
        numbers.append(number)
        labels.append(label)
        if unknown == "error" and (number < 0).any():
            wrong = known[codes[k][np.argmax(number < 0)]]
            raise ValueError(
                f"{source.file}: {wrong!r} in column {names[k]!r} is not in "
                f"{('rows', 'columns')[k]}: add it there, or leave such lines out by "
                "unknown='drop'"
            )
    kept = (numbers[0] >= 0) & (numbers[1] >= 0)
    if not kept.any():
        raise ValueError(f"{source.file}: no line has names that rows and columns have")
    shape = len(labels[0]), len(labels[1])
    Y = sparse.coo_array((codes[2][kept], (numbers[0][kept], numbers[1][kept])), shape=shape)
    Y.row_names, Y.column_names = labels  # what fit compares with the names of X and Z
    return Bunch(
        target=Y, row_names=labels[0], column_names=labels[1], n_dropped=int((~kept).sum())
    )
