"""How much memory and work a model file may ask for: a multiple of its bytes, over the whole load.

Arrays are stored as they are in memory and cost what they take in the file. Text and labels cost
more, because Python objects do: up to 30 times their bytes (labels that are tuples). Each
step of loading states what it needs before it takes it, so that a file cannot name an array a
thousand times, or a length that is not there.
"""

from __future__ import annotations

import re

from rankrls.io._kinds import require

__all__ = ["BASE", "FACTOR", "Budget"]

#: Loading a file of n bytes takes at most BASE + FACTOR n bytes.
FACTOR = 32
BASE = 2**20

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"')


class Budget:
    """What is left of the memory that a file may ask for.

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
        """Record that ``what`` needs this much memory; raise if it is too much."""
        self.spent += n_bytes
        require(
            self.spent <= self.limit,
            f"{what} would take {n_bytes:,} bytes, {self.spent:,} with what came before: more than "
            f"the {self.limit:,} that a model of {self.n_bytes:,} bytes can need",
        )

    def charge_json(self, text: bytes) -> None:
        """Record the memory of the Python objects in a JSON text, before it is parsed."""
        # What looks like JSON inside of strings is counted at first: most texts have none.
        objects, skeleton = _json_bytes(text), text
        if self.spent + objects > self.limit or _has_small_lists(text):
            skeleton = _STRING.sub(b'""', text)
            objects = _json_bytes(skeleton) + 2 * len(text)
        require(not _has_small_lists(skeleton), "its manifest is made of tiny lists")
        self.charge(objects, "its manifest")


def _json_bytes(text: bytes) -> int:
    """At most so many bytes the Python objects of a JSON text take.

    Counted from its commas, brackets and quotes. The numbers are those of CPython: 56 bytes for a
    list, 8 for each of its entries, and so on.
    """
    n_lists, n_dicts, n_keys = text.count(b"["), text.count(b"{"), text.count(b":")
    empty_lists, empty_dicts = text.count(b"[]"), text.count(b"{}")
    n_values = text.count(b",") + n_lists + n_dicts - empty_lists - empty_dicts
    n_texts = max(text.count(b'"') // 2 - n_keys, 0)
    n_numbers = max(n_values - n_texts - n_lists - n_dicts, 0)
    containers = 88 * n_lists - 32 * empty_lists + 64 * n_dicts + 140 * n_keys
    return containers + 9 * n_values + 32 * n_numbers + 60 * n_texts + 2 * len(text)


def _has_small_lists(text: bytes) -> bool:
    """Whether there are more lists than a model has: most are those of a tuple or an array.

    An empty list takes 3 bytes in JSON, and 64 in memory.
    """
    return text.count(b"[") - text.count(b"{") > 100 + len(text) // 8
