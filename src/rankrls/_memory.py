"""What fits into memory, asked before anything large is allocated."""

from __future__ import annotations

import os

__all__ = ["budget", "fits", "require"]

GIB = 2**30


def budget() -> int:
    """Bytes that one dense work space may take: half of the machine's physical memory."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # pragma: no cover - not POSIX
        physical = 8 * GIB
    return physical // 2


def fits(*shape: int, itemsize: int = 8, copies: int = 1) -> bool:
    """Whether ``copies`` dense arrays of ``shape`` stay within the budget."""
    return _n_bytes(shape, itemsize, copies) <= budget()


def require(what: str, *shape: int, advice: str, itemsize: int = 8, copies: int = 1) -> None:
    """Raise a ``MemoryError`` that says what would be too large and what to do instead."""
    needed = _n_bytes(shape, itemsize, copies)
    if needed > budget():
        size = " × ".join(f"{n:,}" for n in shape)
        raise MemoryError(
            f"{what} needs a dense work space of {size} ({needed / GIB:.1f} GiB, more than half "
            f"of this machine's memory, {budget() / GIB:.1f} GiB): {advice}"
        )


def _n_bytes(shape: tuple[int, ...], itemsize: int, copies: int) -> int:
    total = itemsize * copies
    for n in shape:
        total *= int(n)
    return total
