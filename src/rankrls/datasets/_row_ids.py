"""Names of rows in files: a column of a table, or a word in the comments of LETOR text."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from rankrls._streams import PathOrFile, name_of
from rankrls._validation import as_text, check_option
from rankrls.datasets._named_columns import open_table
from rankrls.datasets._readers import load_letor
from rankrls.datasets.formats import FORMATS, sniff

Array = NDArray[Any]


def ids_from_comments(comments: Sequence[str], key: str = "docid", *, name: str = "") -> Array:
    """Names of rows from the comments of LETOR text.

    Parameters
    ----------
    comments : sequence of str
        Such as ``docid = GX008-86-4444840 inc = 1``, from :func:`load_letor` or
        :func:`load_ranking`.
    key : str, default="docid"
        The word before the name, which follows after ``=`` or ``:``. "comment": the whole comment
        is the name.
    name : str, optional
        What the file is called in an error.

    Returns
    -------
    ndarray of shape (n_rows,), str

    Examples
    --------
    >>> from rankrls.datasets import ids_from_comments
    >>> ids_from_comments(["docid = GX8-86 inc = 1", "docid = GX9-12 inc = 0"]).tolist()
    ['GX8-86', 'GX9-12']
    """
    if key == "comment":
        found: list[Any] = [comment.strip() or None for comment in comments]
    else:
        after = re.compile(rf"(?:^|\s){re.escape(key)}\s*[=:]\s*(\S+)")
        found = [match[1] if (match := after.search(comment)) else None for comment in comments]
    if None in found:
        row = found.index(None)
        what = "there is no comment" if not comments[row] else f"the comment is {comments[row]!r}"
        raise ValueError(
            f"{name}{': ' * bool(name)}row {row} has no {key}: {what[:80]} (names of rows are "
            f"looked for after '# {key} =' in LETOR text)"
        )
    return as_text(found)


def load_ids(
    path: PathOrFile,
    column: str,
    *,
    format: str = "auto",
    header: bool = True,
    delimiter: str | None = None,
) -> Array:
    r"""Read the names of rows from a file: LETOR text, CSV, Parquet or Arrow.

    Parameters
    ----------
    path : str, path-like or binary file
        As in :func:`load_ranking`, whose rows they belong to.
    column : str
        Column of the names; of LETOR text the word before them in comments, as in
        :func:`ids_from_comments`.
    format, header, delimiter
        As in :func:`load_ranking`.

    Returns
    -------
    ndarray of shape (n_rows,), str

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_ids
    >>> load_ids(io.BytesIO(b"doc,qid,label,bm25\ns1,7,0,2.5\ns2,7,1,3\n"), "doc").tolist()
    ['s1', 's2']
    """
    check_option("format", format, ("auto", *FORMATS))
    kind = sniff(path) if format == "auto" else format
    file = name_of(path)
    if kind == "letor":
        comments = load_letor(path, zero_based=True, beyond="drop").comments  # any feature id
        return ids_from_comments(comments, column, name=file)
    if kind == "parquet" and not isinstance(path, str | os.PathLike):
        raise ValueError(f"{file}: Parquet and Arrow files are opened by name")
    table = open_table(path, kind, delimiter, header)
    table.check_column("ids", column)
    reader = (column, lambda cells, name, place: list(map(str, cells)))
    found, _ = table.read({"ids": reader}, "every row needs a name")
    return as_text(found["ids"].tolist())
