"""Sorting by packed integer keys.

NumPy sorts integers in place several times faster than it finds the order of numbers (``argsort``),
which reads them in random order. So the row number is packed under the key, and keys are sorted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


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

    ``values`` are finite; ``codes`` are in range(n_codes), None is 0. A key is made of the code, as
    many leading bits of the value as fit, and the row number. Values that differ in the other bits
    only are put in order afterwards.
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
