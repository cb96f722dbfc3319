"""Observed relations: pairs (row object, column object) and their labels.

A relation is a p × g matrix of labels. Any part of it may be observed, and a pair may be observed
several times (edges of a multigraph). Edges are stored as lists, a complete matrix as a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls._relation_labels import EdgeList, read_labels, read_matrix

__all__ = ["Cells", "CompleteBlock", "Observations"]

Array = NDArray[Any]


@dataclass(frozen=True)
class CompleteBlock:
    """A completely observed part of the relation, with all pairs observed equally often.

    Attributes
    ----------
    rows : ndarray of shape (p',), int
    cols : ndarray of shape (g',), int
    Y : ndarray of shape (p', g')
        Labels, averaged if there are several for each pair.
    multiplicity : int
        Number of edges for each pair.
    """

    rows: Array
    cols: Array
    Y: Array
    multiplicity: int


@dataclass(frozen=True)
class Cells:
    """The distinct observed pairs, sorted by row and column, with averaged labels.

    Σ_e (y_e − c − f)² over the n edges of a pair is n (ȳ − c − f)² plus a constant. Pairs with
    weights n are therefore sufficient for a least-squares loss.

    Attributes
    ----------
    rows, cols : ndarray of shape (q,), int
    y : ndarray of shape (q,)
        Mean labels.
    weight : ndarray of shape (q,)
        Numbers of edges.
    shape : tuple of int
        (p, g).
    """

    rows: Array
    cols: Array
    y: Array
    weight: Array
    shape: tuple[int, int]

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, chosen: Array) -> Cells:
        """Select cells by a mask or by ascending indices."""
        return Cells(
            self.rows[chosen], self.cols[chosen], self.y[chosen], self.weight[chosen], self.shape
        )

    @cached_property
    def flat(self) -> Array:
        """Row-major indices into the p × g matrix, shape (q,)."""
        return self.rows * self.shape[1] + self.cols

    @property
    def full(self) -> bool:
        """Whether every pair of the relation is observed."""
        return len(self) == self.shape[0] * self.shape[1]


class Observations:
    """Labels of some of the pairs of p row objects and g column objects.

    Parameters
    ----------
    rows, cols : ndarray of shape (n_edges,), int
        Row and column of every edge. Pairs may be repeated.
    y : ndarray of shape (n_edges,)
        Labels.
    shape : tuple of int
        (p, g).
    """

    def __init__(self, rows: Array, cols: Array, y: Array, shape: tuple[int, int]) -> None:
        self._lists: tuple[Array, Array, Array] | None = (rows, cols, y)
        self._matrix: Array | None = None
        self.shape = shape

    @classmethod
    def from_matrix(cls, Y: Array) -> Observations:
        """Create observations from labels of shape (p, g), with NaN for unobserved pairs."""
        missing = np.isnan(Y)
        if missing.any():
            rows, cols = np.nonzero(~missing)
            return cls(rows, cols, Y[rows, cols], Y.shape)
        return cls._whole(Y)

    @classmethod
    def _whole(cls, Y: Array) -> Observations:
        """Create observations from labels of all pairs, shape (p, g)."""
        made = cls(np.empty(0, int), np.empty(0, int), np.empty(0), Y.shape)
        made._lists, made._matrix = None, Y
        return made

    @classmethod
    def read(cls, Y: Any, name: str = "Y") -> Observations:
        """Read labels from a matrix with NaN, a data frame, or a sparse matrix."""
        if Y is None or sparse.issparse(Y):
            labels = read_labels(Y, name)
            assert isinstance(labels, EdgeList)
            return cls(*labels)
        matrix, whole = read_matrix(Y, name)
        return cls._whole(matrix) if whole else cls.from_matrix(matrix)

    @property
    def n_edges(self) -> int:
        """Number of labels."""
        return len(self._lists[0]) if self._lists is not None else int(np.prod(self.shape))

    @property
    def matrix(self) -> Array | None:
        """The labels as a matrix of shape (p, g), if they were given as one without gaps."""
        return self._matrix

    @property
    def lists(self) -> tuple[Array, Array, Array]:
        """Rows, columns and labels of all edges, each of shape (n_edges,)."""
        if self._lists is None:
            assert self._matrix is not None
            p, g = self.shape
            rows, cols = np.repeat(np.arange(p), g), np.tile(np.arange(g), p)
            self._lists = (rows, cols, self._matrix.ravel())
        return self._lists

    @property
    def T(self) -> Observations:
        """The transposed relation."""
        if self._matrix is not None:
            return Observations._whole(self._matrix.T)
        rows, cols, y = self.lists
        return Observations(cols, rows, y, self.shape[::-1])

    def stored(self) -> Observations:
        """Return the observations without cached values."""
        if self._matrix is not None:
            return Observations._whole(self._matrix)
        return Observations(*self.lists, self.shape)

    def select(self, chosen: Array) -> Observations:
        """Select edges by a mask or indices; the objects stay the same."""
        rows, cols, y = self.lists
        return Observations(rows[chosen], cols[chosen], y[chosen], self.shape)

    def between(self, rows: Array, cols: Array) -> Observations:
        """Restrict the relation to some objects, given by ascending indices."""
        if self._matrix is not None:
            return Observations._whole(self._matrix[np.ix_(rows, cols)])
        places = []
        for kept, n in zip((rows, cols), self.shape, strict=True):
            place = np.full(n, -1)
            place[kept] = np.arange(len(kept))
            places.append(place)
        ends, others, y = self.lists
        i, j = places[0][ends], places[1][others]
        chosen = (i >= 0) & (j >= 0)
        shape = (len(rows), len(cols))
        return Observations(i[chosen], j[chosen], y[chosen], shape).as_matrix()

    def as_matrix(self) -> Observations:
        """Store the labels as a matrix, if every pair has one label."""
        p, g = self.shape
        if self._matrix is not None or self.n_edges != p * g:
            return self
        rows, cols, y = self.lists
        Y = np.full(self.shape, np.nan)
        Y[rows, cols] = y
        return self if np.isnan(Y).any() else Observations._whole(Y)

    @cached_property
    def cells(self) -> Cells:
        """The distinct pairs, with averaged labels."""
        rows, cols, y = self.lists
        g = self.shape[1]
        flat = rows * g + cols
        if len(flat) and not (flat[1:] > flat[:-1]).all():
            order = np.argsort(flat, kind="stable")
            ordered = flat[order]
            first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
            weight = np.diff(np.concatenate([first, [len(flat)]])).astype(np.float64)
            mean = np.add.reduceat(y[order], first) / weight
            flat = ordered[first]
            return Cells(flat // g, flat % g, mean, weight, self.shape)
        return Cells(rows, cols, y, np.ones(len(rows)), self.shape)

    def block(self, *, ranking: bool, square: bool = False) -> CompleteBlock | None:
        """Return the observations as one complete block, or None if they are incomplete.

        Rows and columns without an edge are ignored. For ``ranking``, rows with a single pair are
        ignored too, because there is nothing to compare. With ``square``, the block must have the
        same objects on both sides.
        """
        p, g = self.shape
        if self._matrix is not None:
            return CompleteBlock(np.arange(p), np.arange(g), self._matrix, 1)
        cells = self.cells
        if ranking:
            cells = cells.select(np.bincount(cells.rows, minlength=p)[cells.rows] > 1)
        rows, cols = np.unique(cells.rows), np.unique(cells.cols)
        if not len(cells) or len(cells) != len(rows) * len(cols):
            return None
        if (cells.weight != cells.weight[0]).any():
            return None
        if square and not np.array_equal(rows, cols):
            return None
        return CompleteBlock(
            rows, cols, cells.y.reshape(len(rows), len(cols)), int(cells.weight[0])
        )
