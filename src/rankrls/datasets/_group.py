"""Sizes of consecutive queries in a file of their own, as LightGBM and XGBoost have them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._streams import PathOrFile, name_of, without_suffix
from rankrls.datasets._cells import shown
from rankrls.datasets._source import text_blocks

Array = NDArray[Any]


def load_group(path: PathOrFile) -> Array:
    r"""Read sizes of consecutive queries: a ``.query`` file of LightGBM, ``.group`` of XGBoost.

    Parameters
    ----------
    path : str, path-like or binary file
        One integer on each line.

    Returns
    -------
    ndarray of shape (n_queries,), int64
        For ``group=`` of fits, scores and metrics.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_group
    >>> load_group(io.BytesIO(b"27\n18\n67\n"))
    array([27, 18, 67])
    """
    name = name_of(path)
    sizes: list[int] = []
    for first, lines in text_blocks(path):
        for number, word in enumerate(map(str.strip, lines), first):
            if word and not (word.isascii() and word.isdigit() and len(word) <= 12):
                raise ValueError(
                    f"{name}:{number}: {shown(word)} is not the size of a query, an integer >= 0"
                )
            sizes += [int(word)] if word else []
    if not sizes:
        raise ValueError(f"{name}: no data: the file has no sizes of queries")
    return np.array(sizes, dtype=np.int64)


class GroupFile:
    """Sizes of the queries of a LETOR file whose lines have no query ids, used up row by row."""

    def __init__(self, path: PathOrFile, file: PathOrFile) -> None:
        self.rows_name, self.name = name_of(path), name_of(file)
        sizes = load_group(file)
        self._ends, self.n_queries, self._row = np.cumsum(sizes), len(sizes), 0

    @classmethod
    def of(cls, path: PathOrFile, group: Any, has_qid: bool) -> GroupFile | None:
        """The file that was asked for, or that lies beside the rows; None if there is none."""
        auto = isinstance(group, str) and group == "auto"
        if group is None or (auto and has_qid):
            return None
        files = _beside(path) if auto else [group]
        if not files:
            return None
        first, *others = [cls(path, file) for file in files]
        if has_qid:
            raise ValueError(
                f"{first.rows_name}: the lines have query ids of their own: leave out "
                f"group={first.name!r}"
            )
        for other in others:
            if not np.array_equal(other._ends, first._ends):
                raise ValueError(
                    f"{first.name} and {other.name} have different sizes of queries: name one of "
                    "them in group="
                )
        return first

    def next_queries(self, n_rows: int) -> Array:
        """Numbers of the queries of the next rows."""
        rows = np.arange(self._row, self._row + n_rows)
        self._row += n_rows
        if self._row > self._ends[-1]:
            self._refuse("more")
        return np.searchsorted(self._ends, rows, side="right")

    def check_end(self) -> None:
        """Raise if rows are missing."""
        if self._row < self._ends[-1]:
            self._refuse(self._row)

    def _refuse(self, found: Any) -> None:
        raise ValueError(
            f"{self.name}: the sizes add up to {self._ends[-1]} rows, and {self.rows_name} has "
            f"{found}"
        )


def _beside(path: PathOrFile) -> list[str]:
    """Files of sizes next to a file of rows: train.txt.query, train.txt.group."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else getattr(path, "name", None)
    if not isinstance(name, str) or not os.path.isfile(name):
        return []
    stems = dict.fromkeys([name, without_suffix(name)])
    return [f for stem in stems for f in (stem + ".query", stem + ".group") if os.path.isfile(f)]
