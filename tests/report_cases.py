"""What the tests of the report have in common."""

from rankrls.report._analysis import analyse as analysed

__all__ = ["analysed"]
