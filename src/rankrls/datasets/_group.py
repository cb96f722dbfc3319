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


def find_group(path: PathOrFile, group: Any, has_qid: bool) -> tuple[str, Array] | None:
    """Name and ends of the sizes for a file of rows: those asked for, or beside it; or None."""
    auto = isinstance(group, str) and group == "auto"
    if group is None or (auto and has_qid):
        return None
    files = _beside(path) if auto else [group]
    found = [(name_of(file), np.cumsum(load_group(file))) for file in files]
    if found and has_qid:
        raise ValueError(
            f"{name_of(path)}: the lines have query ids of their own: leave out "
            f"group={found[0][0]!r}"
        )
    for name, ends in found[1:]:
        if not np.array_equal(ends, found[0][1]):
            raise ValueError(
                f"{found[0][0]} and {name} have different sizes of queries: name one of them in "
                "group="
            )
    return found[0] if found else None


def _beside(path: PathOrFile) -> list[str]:
    """Files of sizes next to a file of rows: train.txt.query, train.txt.group."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else getattr(path, "name", None)
    if not isinstance(name, str) or not os.path.isfile(name):
        return []
    stems = dict.fromkeys([name, without_suffix(name)])
    return [f for stem in stems for f in (stem + ".query", stem + ".group") if os.path.isfile(f)]
