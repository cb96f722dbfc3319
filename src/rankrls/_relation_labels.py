"""Labels of pairs as users pass them: a matrix with gaps, or a sparse matrix of edges.

Imports nothing of rankrls.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["EdgeList", "read_labels", "read_matrix"]

Array = NDArray[Any]


class EdgeList(NamedTuple):
    """Observed labels.

    Attributes
    ----------
    rows, cols : ndarray of shape (n_edges,), int
    y : ndarray of shape (n_edges,), float
        Finite labels; the same pair may come several times.
    shape : tuple of int
    """

    rows: Array
    cols: Array
    y: Array
    shape: tuple[int, int]


def read_labels(Y: Any, name: str = "Y") -> Array | EdgeList:
    """Labels as a float64 matrix (NaN where unobserved) or, from a sparse matrix, as edges.

    Stored entries of a sparse matrix are observed, explicit zeros too; entries of a COO matrix
    at the same place are different edges. A masked array is unobserved where it is masked.
    """
    if Y is None:
        raise ValueError(
            f"ranking requires y to be passed, but the target y is None: give {name}, a matrix "
            "with a label for each pair of a row object and a column object"
        )
    return _read_sparse(Y, name) if sparse.issparse(Y) else read_matrix(Y, name)[0]


def read_matrix(Y: Any, name: str = "Y") -> tuple[Array, bool]:
    """A float64 matrix of labels, NaN where unobserved, and whether none is known to be."""
    if isinstance(Y, np.ma.MaskedArray):
        Y = np.ma.filled(Y.astype(np.float64), np.nan)
    try:
        labels = np.asarray(_from_frame(Y) if hasattr(Y, "to_numpy") else Y)
        if labels.dtype.kind == "c":
            raise ValueError("Complex data not supported")
        labels = labels.astype(np.float64, copy=False)
    except (ValueError, TypeError) as error:
        hint = ""
        if hasattr(Y, "pivot_table"):  # pandas
            hint = " (from one line for each pair: Y.pivot(index=…, columns=…, values=…))"
        raise ValueError(f"{name} must be a matrix of numbers: {error}{hint}") from error
    _check_dimensions(labels.shape, name)
    with np.errstate(all="ignore"):
        whole = bool(np.isfinite(labels.sum()))  # one pass; the sum may overflow
    infinite = None if whole else np.isinf(labels)
    if infinite is not None and infinite.any():
        i, j = (int(k) for k in np.argwhere(infinite)[0])
        raise ValueError(f"{name}[{i}, {j}] is infinite: labels are numbers, or NaN if unobserved")
    return labels, whole


def _from_frame(Y: Any) -> Any:
    try:
        return Y.to_numpy(dtype=np.float64, na_value=np.nan)
    except TypeError:  # not pandas
        return Y.to_numpy()


def _read_sparse(Y: Any, name: str) -> EdgeList:
    _check_dimensions(Y.shape, name)
    if Y.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be a matrix of numbers; got dtype {Y.dtype}")
    edges = Y.tocoo()
    y = edges.data.astype(np.float64)
    if not np.isfinite(y).all():
        e = int(np.flatnonzero(~np.isfinite(y))[0])
        raise ValueError(
            f"{name} stores {y[e]} at ({edges.row[e]}, {edges.col[e]}): leave unobserved pairs "
            "out of a sparse matrix"
        )
    return EdgeList(edges.row.astype(np.int64), edges.col.astype(np.int64), y, Y.shape)


def _check_dimensions(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2:
        raise ValueError(
            f"{name} must be a matrix: a row for each conditioning object, a column for each "
            f"object to rank, a label (or NaN) for each pair; got shape {shape}. For one label "
            "for each row of X use RankRLS"
        )
