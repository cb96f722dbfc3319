"""Sorting by packed integer keys, and distribution of rows into parts that fit into a cache.

NumPy sorts integers in place several times faster than it finds the order of numbers (``argsort``),
which reads them in random order. So the row number is packed under the key, and keys are sorted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["argsort_within", "distribute", "stable_argsort", "value_parts"]

Array = NDArray[Any]

#: Number of rows that are processed at a time.
CHUNK = 2**16

#: Maximum number of bins of the histogram from which parts are made.
MAX_BINS = 2**20


def stable_argsort(codes: Array, n_codes: int) -> Array:
    """Stable ascending order of integer ``codes`` in ``range(n_codes)``, shape (n_rows,)."""
    shift = len(codes).bit_length()
    if n_codes.bit_length() + shift > 62:
        return np.argsort(codes, kind="stable")
    keys = codes.astype(np.int64) << shift
    keys |= np.arange(len(codes))
    keys.sort()
    keys &= (1 << shift) - 1
    return keys


def argsort_within(values: Array, codes: Array | None, n_codes: int) -> Array:
    """Order of rows by (code, value); equal rows in any order.

    A key is made of the code, as many leading bits of the value as fit, and the row number. Values
    that differ in the other bits only are put in order afterwards.

    Parameters
    ----------
    values : ndarray of shape (n_rows,), float64, finite
    codes : ndarray of shape (n_rows,), int, in range(n_codes), or None if all are 0
    n_codes : int

    Returns
    -------
    ndarray of shape (n_rows,), int64
    """
    n = len(values)
    row_bits, code_bits = n.bit_length(), (n_codes - 1).bit_length()
    value_bits = 64 - row_bits - code_bits
    if n == 0 or value_bits < 16:
        return np.lexsort((values,) if codes is None else (values, codes))
    keys = _ordered_bits(values)
    keys -= keys.min()
    lost = max(int(keys.max()).bit_length() - value_bits, 0)
    if lost:
        keys >>= np.uint64(lost)
    if code_bits:
        keys |= codes.astype(np.uint64) << np.uint64(value_bits)  # type: ignore[union-attr]
    keys <<= np.uint64(row_bits)
    keys |= np.arange(n, dtype=np.uint64)
    keys.sort()
    order = (keys & np.uint64((1 << row_bits) - 1)).view(np.int64)
    if lost:
        keys >>= np.uint64(row_bits)
        _sort_runs(order, keys, values)
    return order


def _sort_runs(order: Array, keys: Array, values: Array) -> None:
    """Sort consecutive rows of equal keys by their values."""
    run_starts = keys[1:] != keys[:-1]
    ordered = values[order]
    wrong = np.flatnonzero((ordered[1:] < ordered[:-1]) & ~run_starts)
    if not len(wrong):
        return
    run = np.zeros(len(order), dtype=np.int64)
    np.cumsum(run_starts, out=run[1:])
    affected = np.zeros(int(run[-1]) + 1, dtype=bool)
    affected[run[wrong]] = True
    places = np.flatnonzero(affected[run])
    order[places] = order[places][np.lexsort((ordered[places], run[places]))]


def _ordered_bits(values: Array) -> Array:
    """Unsigned integers in the order of finite float64 values (and 0 for −0), a new array."""
    bits = (values + 0.0).view(np.int64)
    # Negative numbers are stored as sign and magnitude: the larger, the lower.
    bits ^= (bits >> 63) & np.int64(2**63 - 1)
    return bits.view(np.uint64) ^ np.uint64(2**63)


def value_parts(values: Array, size: int) -> tuple[Array, int]:
    """Divide the range of ``values`` into intervals with about ``size`` rows each.

    Equal values are in the same part. A part has fewer than 2 ``size`` rows, unless its values are
    nearly equal: the same in the first of the bits that distinguish the smallest from the largest.

    Parameters
    ----------
    values : ndarray of shape (n_rows,), float64, finite, not empty
    size : int

    Returns
    -------
    part : ndarray of shape (n_rows,), uint8, uint16 or uint32
        Number of the interval, ascending with the values.
    n_parts : int
    """
    n_bins = min(max(2 ** (len(values) // 16).bit_length(), 256), MAX_BINS)
    lowest, highest = _ordered_bits(np.array([values.min(), values.max()]))
    shift = np.uint64(max(int(highest - lowest).bit_length() - (n_bins - 1).bit_length(), 0))

    def bins(rows: slice) -> Array:
        return ((_ordered_bits(values[rows]) - lowest) >> shift).view(np.int64)

    counts = np.zeros(n_bins, dtype=np.int64)
    for rows in _chunks(len(values), n_bins):
        counts += np.bincount(bins(rows), minlength=n_bins)
    # A part ends when its size is reached; a bin of that size is a separate part.
    group, heavy = (np.cumsum(counts) - counts) // size, counts >= size
    starts = np.zeros(n_bins, dtype=bool)
    starts[1:] = (group[1:] != group[:-1]) | heavy[1:] | heavy[:-1]
    n_parts = int(np.count_nonzero(starts)) + 1
    part_of_bin = np.cumsum(starts).astype(np.min_scalar_type(n_parts))
    part = np.empty(len(values), dtype=part_of_bin.dtype)
    for rows in _chunks(len(values)):
        part[rows] = part_of_bin[bins(rows)]
    return part, n_parts


def distribute(part: Array, n_parts: int, *arrays: Array) -> tuple[Array, list[Array]]:
    """Gather the rows of every part, in their order, without random access.

    Parameters
    ----------
    part : ndarray of shape (n_rows,), unsigned int, in range(n_parts)
    n_parts : int
    *arrays : ndarrays of shape (n_rows,)

    Returns
    -------
    bounds : ndarray of shape (n_parts + 1,), int64
        Part p is in rows ``bounds[p]`` to ``bounds[p + 1]``.
    gathered : list of ndarrays of shape (n_rows,)
    """
    bounds = np.zeros(n_parts + 1, dtype=np.int64)
    for rows in _chunks(len(part)):
        bounds[1:] += np.bincount(part[rows], minlength=n_parts)
    np.cumsum(bounds, out=bounds)
    place = bounds[:-1].copy()
    gathered = [np.empty_like(array) for array in arrays]
    for rows in _chunks(len(part)):
        own = part[rows]
        order = np.argsort(own, kind="stable")  # a counting sort for small integers
        counts = np.bincount(own, minlength=n_parts)
        goal = np.arange(len(own)) + np.repeat(place - np.cumsum(counts) + counts, counts)
        for array, to in zip(arrays, gathered, strict=True):
            to[goal] = array[rows][order]
        place += counts
    return bounds, gathered


def _chunks(n_rows: int, least: int = 0) -> list[slice]:
    step = max(CHUNK, least)
    return [slice(start, start + step) for start in range(0, n_rows, step)]
