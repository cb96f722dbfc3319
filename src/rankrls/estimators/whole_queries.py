"""Whole queries of a stream of batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls._validation import encode_qid, show
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.statistics import Ledger, as_list

__all__ = ["AGAIN", "Rows", "WholeQueries", "joined"]

Array = NDArray[Any]

COMES_BACK = (
    "comes back after its rows had ended in an earlier batch. Only the last query of a batch may "
    "go on in the next one: sort the data by query, or give every query in one batch"
)


#: For streams that are read more than once.
AGAIN = "batches that are read again must have the same rows"


class Rows(NamedTuple):
    """Rows of one or more whole queries.

    Attributes
    ----------
    X : ndarray or sparse matrix of shape (m, n)
    y : ndarray of shape (m, n_outputs)
    query : ndarray of shape (m,), int
        Number of the query in the stream, in the order of the stream.
    weight : ndarray of shape (m,), or None
    """

    X: Any
    y: Array
    query: Array
    weight: Array | None

    def take(self, rows: Any, *, copy: bool = False) -> Rows:
        """Select rows by number or slice; those of a slice are copied only if asked for."""
        if isinstance(rows, slice):
            parts: Any = self
            if rows != slice(None):
                parts = (part if part is None else part[rows] for part in self)
            return Rows(*(part.copy() if copy and part is not None else part for part in parts))
        X = self.X.take(rows, axis=0) if isinstance(self.X, np.ndarray) else self.X[rows]
        weight = None if self.weight is None else self.weight[rows]
        return Rows(X, self.y[rows], self.query[rows], weight)

    def by_fold(self, n_folds: int) -> dict[int, Any]:
        """Row numbers, or a slice, of each fold with rows; queries go to the folds in turn."""
        folds = self.query % n_folds
        if (folds == folds[:1]).all():
            return {int(fold): slice(None) for fold in folds[:1]}
        return {int(fold): _as_slice(folds == fold) for fold in np.unique(folds)}

    def graph(self) -> PreferenceGraph:
        """Preferences of the rows."""
        return PreferenceGraph.from_scores(self.y, qid=self.query, sample_weight=self.weight)


class WholeQueries:
    """Collect rows until their queries are complete.

    The last query of a batch may continue in the next one; a query that appears again later is an
    error.

    Parameters
    ----------
    ledger : Ledger
        Complete queries are recorded in it.
    numbers : dict, optional
        Receives the number of each query in the stream, by label.
    known : dict, optional
        The ``numbers`` of an earlier pass, in which the queries may have had another order.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        numbers: dict[Any, int] | None = None,
        known: dict[Any, int] | None = None,
    ) -> None:
        self._ledger, self._numbers, self._known = ledger, numbers, known
        self._open: list[Rows] = []  # pieces of a query that may go on
        self._label: Any = None
        self._n_begun = 0

    def add(self, X: Any, y: Array, qid: Any, weight: Array | None) -> Iterator[Rows]:
        """Add a batch, y of shape (m, n_outputs), and return the complete queries."""
        queries = encode_qid(qid, len(y))
        codes, labels = queries.codes, as_list(queries.labels)
        self._ledger.check_unseen(labels, COMES_BACK)
        last = int(codes[-1])
        goes_on = labels.index(self._label) if self._open and self._label in labels else -1
        numbers = self._numbered(codes, labels, goes_on)
        rows = Rows(X, y, numbers[codes], weight)
        if goes_on >= 0:
            self._open.append(rows.take(np.flatnonzero(codes == goes_on)))
        if goes_on != last:
            yield from self.end()
            # In arrays of its own (row numbers, not a slice): the batch itself is not kept.
            self._open, self._label = [rows.take(np.flatnonzero(codes == last))], labels[last]
        inside = _as_slice((codes != goes_on) & (codes != last))
        counts = np.bincount(codes[inside])
        ended = np.flatnonzero(counts)
        if len(ended):
            sums = self._ledger.sums(X, y, codes, weight, len(labels))
            known = None if sums is None else sums[ended]
            self._ledger.add_queries([labels[code] for code in ended], counts[ended], known)
            yield rows.take(inside)

    def end(self) -> Iterator[Rows]:
        """Complete the last query and return it."""
        if not self._open:
            return
        whole = joined(self._open)
        one = np.zeros(len(whole.y), dtype=np.int64)
        sums = self._ledger.sums(whole.X, whole.y, one, whole.weight, 1)
        self._ledger.add_queries([self._label], np.array([len(one)]), sums)
        self._open, self._label = [], None
        yield whole

    def _numbered(self, codes: Array, labels: list[Any], goes_on: int) -> Array:
        """Number in the stream of every query of a batch, shape (n_queries,)."""
        first = np.unique(codes, return_index=True)[1]
        numbers = np.empty(len(first), dtype=np.int64)
        if goes_on >= 0:
            numbers[goes_on] = self._open[0].query[0]
        new = [code for code in np.argsort(first) if code != goes_on]
        begun = [labels[code] for code in new]
        if self._known is None:
            numbers[new] = self._n_begun + np.arange(len(new))
        else:
            for label in begun:
                if label not in self._known:
                    raise ValueError(f"query {show(label)} was not there before; {AGAIN}")
            numbers[new] = [self._known[label] for label in begun]
        if self._numbers is not None:
            self._numbers.update(zip(begun, numbers[new].tolist(), strict=True))
        self._n_begun += len(new)
        return numbers


def _as_slice(mask: Array) -> Any:
    """A slice, which avoids a copy, if the rows are consecutive; row numbers otherwise."""
    rows = np.flatnonzero(mask)
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def joined(pieces: list[Rows]) -> Rows:
    """Concatenate rows."""
    if len(pieces) == 1:
        return pieces[0]
    if any(sparse.issparse(piece.X) for piece in pieces):
        X = sparse.vstack([sparse.csr_array(piece.X) for piece in pieces], format="csr")
    else:
        X = np.concatenate([piece.X for piece in pieces])
    y = np.concatenate([piece.y for piece in pieces])
    weight = None
    if any(piece.weight is not None for piece in pieces):
        filled = [np.ones(len(p.y)) if p.weight is None else p.weight for p in pieces]
        weight = np.concatenate(filled)
    return Rows(X, y, np.concatenate([piece.query for piece in pieces]), weight)
