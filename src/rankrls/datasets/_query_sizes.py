"""Sizes of consecutive queries in a file of their own, as LightGBM and XGBoost have them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import Bunch

from rankrls._streams import PathOrFile, name_of, without_suffix
from rankrls.datasets._source import text_blocks

__all__ = ["QuerySizes", "load_group"]

Array = NDArray[Any]

#: How such files are called: train.txt.query beside train.txt.
_SUFFIXES = (".query", ".group")


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
        for number, line in enumerate(lines, first):
            word = line.strip()
            if not word:
                continue
            if not (word.isascii() and word.isdigit() and len(word) <= 12):
                raise ValueError(
                    f"{name}:{number}: {word[:40]!r} is not the size of a query, an integer >= 0"
                )
            sizes.append(int(word))
    if not sizes:
        raise ValueError(f"{name}: no data: the file has no sizes of queries")
    return np.array(sizes, dtype=np.int64)


class QuerySizes:
    """Sizes of the queries of a LETOR file whose lines have no query ids.

    Parameters
    ----------
    path : str, path-like or binary file
        The file of rows.
    file : str, path-like or binary file
        The file of sizes.
    """

    def __init__(self, path: PathOrFile, file: PathOrFile) -> None:
        self.rows_name, self.name = name_of(path), name_of(file)
        self._ends = np.cumsum(load_group(file))

    @classmethod
    def of(cls, path: PathOrFile, group: Any) -> QuerySizes | None:
        """Those that were asked for, or that lie beside the rows; None if there are none."""
        if group is None:
            return None
        auto = isinstance(group, str) and group == "auto"
        name = _name_on_disk(path) if auto else None
        files = _beside(name) if auto else [group]
        if not files or (name is not None and _has_qid(name)):
            return None
        sizes, *others = (cls(path, file) for file in files)
        for other in others:
            if not np.array_equal(other._ends, sizes._ends):
                raise ValueError(
                    f"{sizes.name} and {other.name} have different sizes of queries: name one of "
                    "them in group="
                )
        return sizes

    @property
    def n_rows(self) -> int:
        """Number of rows of all queries."""
        return int(self._ends[-1])

    def label(self, bunch: Bunch, first: int = 0) -> Bunch:
        """Give rows from number ``first`` on the numbers of their queries as ids."""
        rows = np.arange(first, first + bunch.data.shape[0])
        if bunch.qid is not None:
            raise ValueError(
                f"{self.rows_name}: the lines have query ids of their own: leave out "
                f"group={self.name!r}"
            )
        if len(rows) and rows[-1] >= self.n_rows:
            raise ValueError(
                f"{self.name}: the sizes add up to {self.n_rows} rows, and {self.rows_name} has "
                "more"
            )
        bunch.qid = np.searchsorted(self._ends, rows, side="right")
        bunch.group_file = self.name
        return bunch

    def check_end(self, n_rows: int) -> None:
        """Raise if rows are missing."""
        if n_rows < self.n_rows:
            raise ValueError(
                f"{self.name}: the sizes add up to {self.n_rows} rows, and {self.rows_name} has "
                f"{n_rows}"
            )

    def whole(self, bunch: Bunch) -> Bunch:
        """All rows at once."""
        self.check_end(bunch.data.shape[0])
        return self.label(bunch)

    def batches(self, parts: Iterator[Bunch], most: int, by_query: bool) -> Iterator[Bunch]:
        """Parts of the rows as batches of at most so many rows, of whole queries if wanted."""
        source, first = _Buffer(parts), 0
        while True:
            taken = source.take(self._next_size(first, most) if by_query else most)
            if taken is None:
                break
            yield self.label(taken, first)
            first += taken.data.shape[0]
        self.check_end(first)

    def _next_size(self, first: int, most: int) -> int:
        """Rows of the next queries that fit into a batch; a larger query alone."""
        last = np.searchsorted(self._ends, first + most, side="right") - 1
        end = int(self._ends[last]) if last >= 0 else 0
        if end <= first:
            beyond = self._ends[self._ends > first]
            end = int(beyond[0]) if len(beyond) else first + most
        return end - first


class _Buffer:
    """Rows of parts, to be taken in other numbers than they come."""

    def __init__(self, parts: Iterator[Bunch]) -> None:
        self._parts, self._waiting = parts, []  # type: tuple[Iterator[Bunch], list[Bunch]]
        self._n_rows = 0

    def take(self, n_rows: int) -> Bunch | None:
        """The next rows; fewer at the end, None after it."""
        while self._n_rows < n_rows:
            part = next(self._parts, None)
            if part is None:
                break
            self._waiting.append(part)
            self._n_rows += part.data.shape[0]
        if not self._waiting:
            return None
        whole = joined_letor(self._waiting)
        self._waiting, self._n_rows = [], max(self._n_rows - n_rows, 0)
        if self._n_rows:
            self._waiting = [_rows(whole, n_rows, None)]
        return _rows(whole, 0, n_rows)


def joined_letor(parts: list[Bunch]) -> Bunch:
    """Bunches of LETOR rows below each other; the widest says how many columns there are."""
    if len(parts) == 1:
        return parts[0]
    joined = Bunch(**parts[0])
    width = max(part.data.shape[1] for part in parts)
    if any(sparse.issparse(part.data) for part in parts):
        rows = [sparse.csr_array(part.data) for part in parts]
        for part in rows:
            part.resize((part.shape[0], width))
        joined.data = sparse.csr_array(sparse.vstack(rows, format="csr"))
    elif all(part.data.shape[1] == width for part in parts):
        joined.data = np.concatenate([part.data for part in parts])
    else:
        n_rows = sum(part.data.shape[0] for part in parts)
        joined.data = np.zeros((n_rows, width), dtype=parts[0].data.dtype)
        first = 0
        for part in parts:
            joined.data[first : first + part.data.shape[0], : part.data.shape[1]] = part.data
            first += part.data.shape[0]
    joined.target = np.concatenate([part.target for part in parts])
    joined.comments = [comment for part in parts for comment in part.comments]
    return joined


def _rows(bunch: Bunch, start: int, stop: int | None) -> Bunch:
    part = Bunch(**bunch)
    for name in ("data", "target", "comments"):
        part[name] = bunch[name][start:stop]
    return part


def _name_on_disk(path: PathOrFile) -> str | None:
    """The name of a file, also of an open one; None for pipes and the like."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else getattr(path, "name", None)
    return name if isinstance(name, str) and os.path.isfile(name) else None


def _beside(name: str | None) -> list[str]:
    """Files of sizes next to a file of rows."""
    stems = [] if name is None else dict.fromkeys([name, without_suffix(name)])
    files = [stem + suffix for stem in stems for suffix in _SUFFIXES]
    return [file for file in files if os.path.isfile(file)]


def _has_qid(path: str) -> bool:
    """Whether the first line of LETOR text has a query id."""
    for _, lines in text_blocks(path):
        for line in lines:
            words = line.partition("#")[0].split()
            if words:
                return len(words) > 1 and words[1].startswith("qid:")
    return False
