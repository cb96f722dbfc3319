"""Self-contained HTML reports about data, a ranker and its errors.

There are three layers: the analysis (`_write_report` and the modules it uses: plain values, no
HTML), charts (`_svg`), and the page (`_page` and its template).
"""

from rankrls.report._board import write_leaderboard
from rankrls.report._errors import Interval, UnitErrors
from rankrls.report._findings import Finding
from rankrls.report._heldout import AlphaPath
from rankrls.report._labels_to_check import LabelsToCheck, QueryToCheck, RowToCheck
from rankrls.report._write_report import Report, write_report

__all__ = [
    "AlphaPath",
    "Finding",
    "Interval",
    "LabelsToCheck",
    "QueryToCheck",
    "Report",
    "RowToCheck",
    "UnitErrors",
    "write_leaderboard",
    "write_report",
]
