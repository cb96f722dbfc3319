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

import math
import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["NUMBER", "LetorPairs", "parse_cells", "parse_features", "parse_labels", "plain_number"]

#: A decimal number; unlike ``float``, neither "nan", "inf" nor "1_000".
NUMBER = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

_BOOLEANS = {"true": 1.0, "false": 0.0}  # in any case

_DIGITS = b"0123456789"
_MARKS = b".+-eE"
_PAD = b" " * 24  # so that the 24 bytes before the end of any token exist
_IS_MARK = np.isin(np.arange(256), [*_MARKS])
_ASCII_ZEROS = np.uint64(0x3030303030303030)
_EXACT_DIGITS = 15
_HAS_WIDE = np.finfo(np.longdouble).nmant in (63, 112)  # IEEE, wider than double: not everywhere
_MOST_DIGITS = 19 if _HAS_WIDE else _EXACT_DIGITS
# Exact, as 5^19 < 2^53. (10.0 ** n need not be.)
_POWERS = np.cumprod(np.array([1] + [10] * _MOST_DIGITS, dtype=np.longdouble))
_DOUBLE_POWERS = _POWERS.astype(np.float64)
# The number of the digits in two bytes, the first one lowest; a space before a single digit.
_TWO_DIGITS = np.zeros(2**16, dtype=np.uint8)
for _number in range(100):
    for _text in {f"{_number:2d}", f"{_number:02d}"}:
        _TWO_DIGITS[int.from_bytes(_text.encode(), "little")] = _number


def parse_labels(tokens: list[bytes]) -> NDArray[np.float64] | None:
    """Return the numbers that ``tokens`` spell, or None if one of them is no finite number."""
    return _parse_tokens(b" ".join(tokens), tokens)


def parse_cells(cells: list[str]) -> NDArray[np.float64] | None:
    """The same for text, with spaces around the numbers or without."""
    return _parse_tokens(" ".join(cells).encode(), cells)


def plain_number(text: str) -> float | None:
    """The finite number that a cell spells; 1 and 0 for true and false; otherwise None."""
    if NUMBER.fullmatch(text.encode()):
        number = float(text)
        return number if math.isfinite(number) else None
    return _BOOLEANS.get(text.lower())


def _parse_tokens(joined: bytes, tokens: list[bytes] | list[str]) -> NDArray[np.float64] | None:
    # With these characters only, float takes just what NUMBER matches.
    if joined.translate(None, _DIGITS + _MARKS + b" "):
        return None
    try:
        numbers = np.array(list(map(float, tokens)), dtype=np.float64)
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


class LetorPairs(NamedTuple):
    """Features of some lines.

    Attributes
    ----------
    ids : ndarray of shape (n_pairs,), int64
    values : ndarray of shape (n_pairs,), float64
        All finite.
    colons : ndarray of shape (n_pairs,)
        Their places in the text.
    """

    ids: NDArray[np.int64]
    values: NDArray[np.float64]
    colons: NDArray[np.intp]


def parse_features(text: bytes) -> LetorPairs | None:
    """Read `` id:value id:value …`` (a space before every pair, none at the end).

    None is returned when the text is not of this form.
    """
    if not text:
        return LetorPairs(np.empty(0, np.int64), np.empty(0), np.empty(0, np.intp))
    bytes_ = np.frombuffer(_PAD + text + b" ", dtype=np.uint8)
    marks = np.flatnonzero(bytes_[len(_PAD) :] - np.uint8(ord("0")) > 9)  # all but digits
    marks += len(_PAD)
    kinds = bytes_[marks]
    if kinds.tobytes() == b" :." * (len(kinds) // 3) + b" ":
        return _parse_plain(text, bytes_, marks)
    colons, spaces = marks[kinds == ord(":")], marks[kinds == ord(" ")]
    n_pairs = len(colons)
    # Each pair has a space before it, one colon, and at least one character on either side.
    if n_pairs == 0 or len(spaces) != n_pairs + 1:
        return None
    ends = spaces[1:]
    lengths = _id_lengths(spaces, colons)
    if lengths is None:
        return None
    is_mark = _IS_MARK[kinds]
    if 2 * n_pairs + 1 + np.count_nonzero(is_mark) < len(kinds):
        return None
    # A mark belongs to the last pair whose colon stands before it.
    in_values = marks[is_mark]
    owner = np.searchsorted(colons, in_values) - 1
    if (owner < 0).any() or (in_values > ends[owner]).any():
        return None  # a mark in an id
    values = _values(text, bytes_, colons, ends, in_values, owner)
    if values is None:
        return None
    return LetorPairs(_ids(bytes_, colons, lengths), values, colons - len(_PAD))


def _parse_plain(
    text: bytes, bytes_: NDArray[np.uint8], marks: NDArray[np.intp]
) -> LetorPairs | None:
    """The same where every value has one dot and no sign, as most files have it.

    ``marks`` are then a space, a colon and a dot in turn, and there is nothing to search.
    """
    spaces, colons, dots = marks[:-1].reshape(-1, 3).T.copy()
    spaces = np.append(spaces, marks[-1])
    lengths = _id_lengths(spaces, colons)
    if lengths is None:
        return None
    ends = spaces[1:]
    n_digits, decimals = ends - colons - 2, ends - dots - 1
    if n_digits.max() > _EXACT_DIGITS or decimals.min() < 1 or (dots - colons != 2).any():
        values = _values(text, bytes_, colons, ends, dots, np.arange(len(colons)))
    else:  # one digit before the dot
        scale = _DOUBLE_POWERS[_if_equal(decimals)]
        values = _digits_before(bytes_, ends, decimals).astype(np.float64)
        values += (bytes_[dots - 1] - np.uint8(ord("0"))) * scale  # exact: below 2^53
        values /= scale
    if values is None:
        return None
    return LetorPairs(_ids(bytes_, colons, lengths), values, colons - len(_PAD))


def _id_lengths(spaces: NDArray[np.intp], colons: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """Number of digits of every id; None if one is empty or very long, or a value is empty."""
    lengths = colons - spaces[:-1] - 1
    wrong = spaces[0] != len(_PAD) or lengths.min() < 1 or lengths.max() > 15
    return None if wrong or (spaces[1:] - colons).min() < 2 else lengths


def _ids(
    bytes_: NDArray[np.uint8], colons: NDArray[np.intp], lengths: NDArray[np.intp]
) -> NDArray[np.int64]:
    """Return the integers before the colons, of so many digits."""
    pairs = np.ndarray(len(bytes_) - 1, dtype="<u2", buffer=bytes_, strides=(1,))
    ids = _TWO_DIGITS[pairs[colons - 2]].astype(np.int64)
    longer = np.flatnonzero(lengths > 2)
    if len(longer):
        ids[longer] = _digits_before(bytes_, colons[longer], lengths[longer])
    return ids


def _values(
    text: bytes,
    bytes_: NDArray[np.uint8],
    colons: NDArray[np.intp],
    ends: NDArray[np.intp],
    marks: NDArray[np.intp],
    owner: NDArray[np.intp],
) -> NDArray[np.float64] | None:
    """Return the numbers between ``colons`` and ``ends``; None if one is malformed.

    ``marks`` are all characters of them that are no digits, and ``owner`` the pairs they are in.
    """
    n_pairs = len(colons)
    kinds = bytes_[marks]
    n_digits = ends - colons - 1
    is_dot = kinds == ord(".")
    n_dots = int(np.count_nonzero(is_dot))
    plain = n_dots == n_pairs == len(marks) and bool((owner[1:] != owner[:-1]).all())
    odd = negative = None
    if plain:  # one dot each, and no sign
        decimals = ends - marks - 1
        n_digits -= 1
        before: NDArray[np.intp] = np.arange(1, n_pairs + 1)
    else:
        decimals = np.zeros(n_pairs, dtype=np.intp)
        odd = np.zeros(n_pairs, dtype=bool)
        negative = bytes_[colons + 1] == ord("-")
        dots, dot_owner = marks[is_dot], owner[is_dot]
        decimals[dot_owner] = ends[dot_owner] - dots - 1
        odd[dot_owner[1:][dot_owner[1:] == dot_owner[:-1]]] = True  # two dots
        others = ~is_dot & ~((kinds == ord("-")) & (marks == colons[owner] + 1))
        odd[owner[others]] = True  # an exponent, a plus, a minus inside
        n_digits -= negative
        n_digits[dot_owner] -= 1
        before = np.searchsorted(dots, ends)
    if n_digits.max() > _MOST_DIGITS or n_digits.min() < 1:
        odd = np.zeros(n_pairs, dtype=bool) if odd is None else odd
        odd |= (n_digits > _MOST_DIGITS) | (n_digits < 1)
    if odd is not None:
        n_digits[odd], decimals[odd] = 1, 0
    # Without its dot a decimal is an integer: mantissa / 10^decimals.
    positions = ends
    if n_dots:
        bytes_ = np.frombuffer(_PAD + text.translate(None, b".") + b" ", dtype=np.uint8)
        positions = ends - before
    mantissas = _digits_before(bytes_, positions, n_digits)
    values = mantissas.astype(np.float64)
    values /= _DOUBLE_POWERS[_if_equal(decimals)]
    wide = np.flatnonzero(n_digits > _EXACT_DIGITS)
    if len(wide):
        values[wide], unsure = _divide_wide(mantissas[wide], decimals[wide])
        if unsure.any():
            odd = np.zeros(n_pairs, dtype=bool) if odd is None else odd
            odd[wide[unsure]] = True
    if negative is not None:
        np.negative(values, out=values, where=negative)
    if odd is not None and odd.any():
        bounds = zip(
            (colons[odd] + 1 - len(_PAD)).tolist(), (ends[odd] - len(_PAD)).tolist(), strict=True
        )
        try:  # with these characters only, float takes just what NUMBER matches
            values[odd] = [float(text[start:end]) for start, end in bounds]
        except ValueError:
            return None
        if not np.isfinite(values[odd]).all():
            return None
    return values


def _if_equal(numbers: NDArray[np.intp]) -> NDArray[np.intp] | np.intp:
    """The number if all are the same, which is then quicker to compute with."""
    return numbers[0] if (numbers == numbers[0]).all() else numbers


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
    most = int(n_digits.max())
    last = n_digits if most <= 8 else np.minimum(n_digits, 8)
    numbers = _eight_digits(words[ends - 8], _if_equal(last))
    for done in range(8, most, 8):
        longer = np.flatnonzero(n_digits > done)
        more = np.minimum(n_digits[longer] - done, 8)
        high = _eight_digits(words[ends[longer] - done - 8], more)
        numbers[longer] += high * np.uint64(10**done)
    return numbers


def _eight_digits(
    words: NDArray[np.uint64], n_digits: NDArray[np.intp] | np.intp
) -> NDArray[np.uint64]:
    """Return the integers spelled by the last ``n_digits`` (1 to 8) bytes of each word."""
    unused = (8 * (8 - n_digits)).astype(np.uint64)
    words ^= _ASCII_ZEROS
    words >>= unused
    words <<= unused
    # Neighbours join: 8 digits, 4 numbers below 100, 2 below 10^4, 1 below 10^8.
    words *= np.uint64(10 * 2**8 + 1)
    words >>= np.uint64(8)
    words &= np.uint64(0x00FF00FF00FF00FF)
    words *= np.uint64(100 * 2**16 + 1)
    words >>= np.uint64(16)
    words &= np.uint64(0x0000FFFF0000FFFF)
    words *= np.uint64(10_000 * 2**32 + 1)
    words >>= np.uint64(32)
    return words
