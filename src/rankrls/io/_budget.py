"""Limit on the memory used to load a model file: a multiple of the size of the file.

Arrays take as much memory as in the file. Text and labels take more because they become Python
objects: up to 30 times their size in the file (for labels that are tuples). Each step of loading
reserves its memory in advance. A file can therefore not refer to an array a thousand times, or
claim a length that it does not have.
"""

from __future__ import annotations

import re

from rankrls.io._kinds import require

__all__ = ["BASE", "FACTOR", "Budget"]

#: Loading a file of n bytes uses at most BASE + FACTOR n bytes.
FACTOR = 32
BASE = 2**20

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"')


class Budget:
    """Memory that loading a file can still use.

    Parameters
    ----------
    n_bytes : int
        Size of the file.
    """

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        self.limit = BASE + FACTOR * n_bytes
        self.spent = 0

    def charge(self, n_bytes: int, what: str) -> None:
        """Record the memory needed for ``what``; raise an error if it exceeds the budget."""
        self.spent += n_bytes
        require(
            self.spent <= self.limit,
            f"{what} would take {n_bytes:,} bytes, {self.spent:,} with what came before: more than "
            f"the {self.limit:,} that a model of {self.n_bytes:,} bytes can need",
        )

    def charge_json(self, text: bytes) -> None:
        """Record the memory of the Python objects of a JSON text before it is parsed."""
        # First count JSON syntax inside strings as well: most texts contain none.
        objects, skeleton = _json_bytes(text), text
        if self.spent + objects > self.limit or _has_small_lists(text):
            skeleton = _STRING.sub(b'""', text)
            objects = _json_bytes(skeleton) + 2 * len(text)
        require(not _has_small_lists(skeleton), "its manifest is made of tiny lists")
        self.charge(objects, "its manifest")


def _json_bytes(text: bytes) -> int:
    """Return an upper bound on the bytes that the Python objects of a JSON text use.

    The bound is computed from the numbers of commas, brackets and quotes and from the object sizes
    of CPython: 56 bytes for a list, 8 for each of its entries, and so on.
    """
    n_lists, n_dicts, n_keys = text.count(b"["), text.count(b"{"), text.count(b":")
    empty_lists, empty_dicts = text.count(b"[]"), text.count(b"{}")
    n_values = text.count(b",") + n_lists + n_dicts - empty_lists - empty_dicts
    n_texts = max(text.count(b'"') // 2 - n_keys, 0)
    n_numbers = max(n_values - n_texts - n_lists - n_dicts, 0)
    containers = 88 * n_lists - 32 * empty_lists + 64 * n_dicts + 140 * n_keys
    return containers + 9 * n_values + 32 * n_numbers + 60 * n_texts + 2 * len(text)


def _has_small_lists(text: bytes) -> bool:
    """Return whether the text has more lists than tuples and arrays of a model account for.

    An empty list takes 3 bytes in JSON, and 64 in memory.
    """
    return text.count(b"[") - text.count(b"{") > 100 + len(text) // 8
