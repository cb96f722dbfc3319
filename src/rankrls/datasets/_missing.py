"""Missing values: how text files spell them, and what to do about them."""

from __future__ import annotations

import re
from typing import Any

from rankrls._validation import check_option

__all__ = ["MISSING_FEATURE", "MISSING_WORDS", "REMEDY", "check_missing", "is_missing"]

#: Spellings of a number that is not there, in any case; in text they are words like any other.
MISSING_WORDS = frozenset(["", "na", "n/a", "nan", "null", "none"])

#: The same after the colon of a LETOR feature, in text with single spaces.
MISSING_FEATURE = re.compile(rb":(?:na|n/a|nan|null|none)?(?= |$)", re.IGNORECASE)

#: The end of the error of a missing feature.
REMEDY = (
    "; to keep missing values pass missing='nan', and fill them by sklearn.impute.SimpleImputer "
    "(rankrls fit --missing mean or --missing zero does both)"
)


def check_missing(missing: Any) -> bool:
    """Whether missing features become NaN; the other choice is an error."""
    check_option("missing", missing, ("error", "nan"))
    return missing == "nan"


def is_missing(text: str) -> bool:
    """Whether a cell stands for a number that is not there."""
    return text.strip().lower() in MISSING_WORDS
