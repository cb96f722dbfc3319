"""Text to numbers, many at a time: the inner loop of the LETOR reader.

``parse_features`` reads text of the form `` id:value id:value …`` with array operations only. It
is strict: whatever it does not understand gives None, and the careful parser of ``_parse`` then
reads the same lines one token at a time, to read them all the same or to name the error.

The method: eight digits are one 64-bit word, and three multiplications turn such a word into its
number. A decimal with at most 15 digits is an integer below 2^53 over a power of ten of at most
10^22, both of them exact doubles, so that their quotient is the nearest double: the same number
that ``float`` gives. Up to 19 digits fit the 64 bits of an extended double; see ``_divide_wide``.
Other tokens (exponents, more digits) are given to ``float`` itself.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

__all__ = ["NUMBER", "parse_cells", "parse_features", "parse_labels"]

#: A decimal number; unlike ``float``, neither "nan", "inf" nor "1_000".
NUMBER = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

_DIGITS = b"0123456789"
_MARKS = b".+-eE"
_PAD = b" " * 24  # so that the 24 bytes before the end of any token exist
_ASCII_ZEROS = np.uint64(0x3030303030303030)
_EXACT_DIGITS = 15
_HAS_WIDE = np.finfo(np.longdouble).nmant in (63, 112)  # IEEE, wider than double: not everywhere
_MOST_DIGITS = 19 if _HAS_WIDE else _EXACT_DIGITS
# Exact, as 5^19 < 2^53. (10.0 ** n need not be.)
_POWERS = np.cumprod(np.array([1] + [10] * _MOST_DIGITS, dtype=np.longdouble))
_DOUBLE_POWERS = _POWERS.astype(np.float64)


def parse_labels(tokens: list[bytes]) -> NDArray[np.float64] | None:
    """Return the numbers that ``tokens`` spell, or None if one of them is no finite number."""
    return _parse_tokens(b" ".join(tokens), tokens)


def parse_cells(cells: list[str]) -> NDArray[np.float64] | None:
    """The same for text, with spaces around the numbers or without."""
    return _parse_tokens(" ".join(cells).encode(), cells)


def _parse_tokens(joined: bytes, tokens: list[bytes] | list[str]) -> NDArray[np.float64] | None:
    # With these characters only, float takes just what NUMBER matches.
    if joined.translate(None, _DIGITS + _MARKS + b" "):
        return None
    try:
        numbers = np.array(list(map(float, tokens)), dtype=np.float64)
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def parse_features(text: bytes) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    """Read `` id:value id:value …`` (a space before every pair, none at the end).

    Returns
    -------
    ids : ndarray of shape (n_pairs,), int64
    values : ndarray of shape (n_pairs,), float64
        All finite. None is returned instead of both when the text is not of this form.
    """
    n_pairs = text.count(b":")
    if n_pairs == 0:
        return (np.empty(0, np.int64), np.empty(0)) if not text else None
    if not _is_pairs(text, n_pairs):
        return None
    bytes_ = np.frombuffer(_PAD + text + b" ", dtype=np.uint8)
    colons = np.flatnonzero(bytes_ == ord(":"))
    spaces = np.flatnonzero(bytes_[len(_PAD) :] == ord(" ")) + len(_PAD)
    if (colons - spaces[:-1]).max() > 16:
        return None
    ids = _digits_before(bytes_, colons, colons - spaces[:-1] - 1).astype(np.int64)
    values = _values(text, bytes_, colons, spaces[1:])
    if values is None or not np.isfinite(values).all():
        return None
    return ids, values


def _is_pairs(text: bytes, n_pairs: int) -> bool:
    """Whether every token is digits, one colon, and one or more characters of a number."""
    no_digits = text.translate(None, _DIGITS)
    return (
        no_digits.translate(None, _MARKS) == b" :" * n_pairs  # id:value, single spaces
        and no_digits.count(b" :") == n_pairs  # only digits in an id
        and b" :" not in text  # no id is empty
        and b": " not in text  # no value is empty
        and not text.endswith(b":")
    )


def _values(
    text: bytes, bytes_: NDArray[np.uint8], colons: NDArray[np.intp], ends: NDArray[np.intp]
) -> NDArray[np.float64] | None:
    """Return the numbers between ``colons`` and ``ends``; None if one is malformed."""
    n_pairs = len(colons)
    decimals = np.zeros(n_pairs, dtype=np.intp)
    odd = np.zeros(n_pairs, dtype=bool)
    first = bytes_[colons + 1]
    negative = first == ord("-")

    # A mark belongs to the last pair whose colon stands before it.
    marks = np.flatnonzero((bytes_ < ord("0")) & (bytes_ != ord(" ")) | (bytes_ > ord(":")))
    kinds = bytes_[marks]
    # Mostly every value has one dot and nothing else, and then there is nothing to search.
    one_each = len(marks) == n_pairs and bool(((marks > colons) & (marks < ends)).all())
    owner = np.arange(n_pairs) if one_each else np.searchsorted(colons, marks) - 1
    is_dot = kinds == ord(".")
    dots, dot_owner = marks[is_dot], owner[is_dot]
    decimals[dot_owner] = ends[dot_owner] - dots - 1
    odd[dot_owner[1:][dot_owner[1:] == dot_owner[:-1]]] = True  # two dots
    others = ~is_dot & ~((kinds == ord("-")) & (marks == colons[owner] + 1))
    odd[owner[others]] = True  # an exponent, a plus, a minus inside

    n_digits = ends - colons - 1 - negative
    n_digits[dot_owner] -= 1
    odd |= (n_digits > _MOST_DIGITS) | (n_digits < 1)

    # Without its dot a decimal is an integer: mantissa / 10^decimals.
    if len(dots):
        before = owner + 1 if len(dots) == n_pairs and one_each else np.searchsorted(dots, ends)
        bytes_ = np.frombuffer(_PAD + text.translate(None, b".") + b" ", dtype=np.uint8)
        positions = ends - before
    else:
        positions = ends
    n_digits[odd], decimals[odd] = 1, 0
    mantissas = _digits_before(bytes_, positions, n_digits)
    values = mantissas.astype(np.float64)
    values /= _DOUBLE_POWERS[decimals]
    wide = np.flatnonzero(n_digits > _EXACT_DIGITS)
    if len(wide):
        values[wide], unsure = _divide_wide(mantissas[wide], decimals[wide])
        odd[wide[unsure]] = True
    np.negative(values, out=values, where=negative)
    if odd.any():
        bounds = zip(
            (colons[odd] + 1 - len(_PAD)).tolist(), (ends[odd] - len(_PAD)).tolist(), strict=True
        )
        try:  # with these characters only, float takes just what NUMBER matches
            values[odd] = [float(text[start:end]) for start, end in bounds]
        except ValueError:
            return None
    return values


def _divide_wide(
    mantissas: NDArray[np.uint64], decimals: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return mantissas / 10^decimals, and where they may not be the nearest doubles.

    Both are exact in an extended double, so that the quotient is rounded once to 64 bits and once
    more to 53. This differs from rounding it once only if the first result lies halfway between
    two doubles: half their distance away from the result, or a quarter below a power of two.
    """
    quotients = mantissas.astype(np.longdouble) / _POWERS[decimals]
    values = quotients.astype(np.float64)
    gap, distance = np.abs(quotients - values), np.spacing(values)
    return values, (2 * gap == distance) | (4 * gap == distance)


def _digits_before(
    bytes_: NDArray[np.uint8], ends: NDArray[np.intp], n_digits: NDArray[np.intp]
) -> NDArray[np.uint64]:
    """Return the integers spelled by the 1 to 19 digits that stand before each of ``ends``."""
    # Every 8 consecutive bytes as one word, the first byte lowest.
    words = np.ndarray(len(bytes_) - 7, dtype="<u8", buffer=bytes_, strides=(1,))
    numbers = _eight_digits(words[ends - 8], np.minimum(n_digits, 8))
    for done in (8, 16):
        longer = np.flatnonzero(n_digits > done)
        if not len(longer):
            break
        more = np.minimum(n_digits[longer] - done, 8)
        high = _eight_digits(words[ends[longer] - done - 8], more)
        numbers[longer] += high * np.uint64(10**done)
    return numbers


def _eight_digits(words: NDArray[np.uint64], n_digits: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return the integers spelled by the last ``n_digits`` (1 to 8) bytes of each word."""
    unused = (8 * (8 - n_digits)).astype(np.uint64)
    words = ((words ^ _ASCII_ZEROS) >> unused) << unused
    # Neighbours join: 8 digits, 4 numbers below 100, 2 below 10^4, 1 below 10^8.
    words = (words * np.uint64(10 * 2**8 + 1)) >> np.uint64(8)
    words &= np.uint64(0x00FF00FF00FF00FF)
    words = (words * np.uint64(100 * 2**16 + 1)) >> np.uint64(16)
    words &= np.uint64(0x0000FFFF0000FFFF)
    return (words * np.uint64(10_000 * 2**32 + 1)) >> np.uint64(32)
