"""Rows to the arrays that users get: dense or sparse features, query ids of one type."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse as sp
from sklearn.utils import Bunch

from rankrls import _resources
from rankrls._validation import as_text
from rankrls.datasets._parse import MAX_FEATURES, ParsedRows, show
from rankrls.datasets._query_ids import integers_of

__all__ = ["Layout", "QueryIds", "to_bunch"]

_DENSE_FROM = 0.25  # "auto": dense if at least this part of the cells is written
_NEVER_DENSE = 0.001  # sparse=False is refused below this, once the array is large
_LARGE = 2**30


def to_bunch(rows: ParsedRows, qids: QueryIds, layout: Layout, n_columns: int) -> Bunch:
    """Return what the readers give for some rows."""
    return Bunch(
        data=layout.matrix(rows, n_columns, qids.name),
        target=rows.target,
        qid=qids.array(rows),
        comments=rows.comments,
    )


class Layout:
    """How ``data`` is to be stored; ``"auto"`` is settled by the first matrix."""

    def __init__(self, dtype: DTypeLike, sparse: bool | str) -> None:
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.float32, np.float64):
            raise ValueError(f"dtype must be numpy.float64 or numpy.float32; got {dtype!r}")
        if not isinstance(sparse, bool | np.bool_) and sparse != "auto":
            raise ValueError(f"sparse must be True, False or 'auto'; got {sparse!r}")
        self.sparse = sparse

    def matrix(self, rows: ParsedRows, n_columns: int, name: str) -> Any:
        n_cells, n_entries = len(rows) * n_columns, len(rows.values)
        if self.sparse == "auto":
            self.sparse = n_entries < _DENSE_FROM * n_cells
        if self.sparse:
            indptr = np.concatenate([[0], np.cumsum(rows.counts)])
            values = rows.values.astype(self.dtype, copy=False)
            if n_entries <= MAX_FEATURES:
                indptr = indptr.astype(np.int32)
            return sp.csr_array((values, rows.columns, indptr), shape=(len(rows), n_columns))
        n_bytes = n_cells * self.dtype.itemsize
        if n_bytes > _LARGE and n_entries < _NEVER_DENSE * n_cells:
            raise ValueError(
                f"{name}: {len(rows)} rows with {n_columns} features would take "
                f"{n_bytes / 2**30:.1f} GiB for {n_entries} written values; pass sparse=True"
            )
        advice = "pass sparse=True, or read it in batches"
        size = self.dtype.itemsize
        _resources.require(
            f"{name}: dense data", len(rows), n_columns, itemsize=size, advice=advice
        )
        if n_entries == n_cells:  # every cell is written, and each row is sorted by column
            return rows.values.reshape(len(rows), n_columns).astype(self.dtype, copy=False)
        data = np.zeros((len(rows), n_columns), dtype=self.dtype)
        data[np.repeat(np.arange(len(rows)), rows.counts), rows.columns] = rows.values
        return data


class QueryIds:
    """Turns the query ids of a file into an array; the first call settles its type."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.integers: bool | None = None

    def array(self, rows: ParsedRows) -> NDArray[Any] | None:
        if rows.qid is None:
            return None
        numbers = integers_of(rows.qid)
        all_integers = None not in numbers.values()
        if self.integers is None:
            self.integers = all_integers
        if not self.integers:
            texts = {token: self._text(token, rows) for token in numbers}
            return as_text([texts[token] for token in rows.qid])
        if not all_integers:
            bad = next(token for token, number in numbers.items() if number is None)
            raise ValueError(
                f"{self._place(bad, rows)}: query id {show(bad)} is no 64-bit integer, written as "
                "those of the first batch; use load_letor, which reads all ids before it decides"
            )
        return np.array([numbers[token] for token in rows.qid], dtype=np.int64)

    def _text(self, token: bytes, rows: ParsedRows) -> str:
        try:
            return token.decode("utf-8")
        except UnicodeDecodeError as error:
            place = self._place(token, rows)
            raise ValueError(f"{place}: query id {show(token)} is not UTF-8 text") from error

    def _place(self, token: bytes, rows: ParsedRows) -> str:
        return f"{self.name}:{rows.lines[(rows.qid or []).index(token)]}"
