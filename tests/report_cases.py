"""What the tests of the report have in common."""

import html
import re

import pytest

from rankrls.report._data import prepare
from rankrls.report._heldout import make_plan
from rankrls.report._write_report import analyse

__all__ = ["analysed", "values_of_code"]


def analysed(X, y, qid=None, *, alphas=None, progress=None, **options):
    """What the page shows."""
    options = {"test": None, "estimator": None, "imputer": None, "scaler": None} | options
    train, unseen, steps = prepare(X, y, qid, **options)
    plan = make_plan(options["estimator"], alphas, train.X, progress)
    return analyse(train, unseen, steps, plan)


def values_of_code(page, space):
    """Run the code that a page shows, in ``space``; compare values with those behind #."""
    code = re.search(r"<pre[^>]*><code>(.*?)</code>", page, re.S)[1]
    values = []
    for line in html.unescape(code).splitlines():
        text, _, expected = line.partition("  # ")
        if expected:
            values.append(eval(text, space))
            assert values[-1] == pytest.approx(float(expected), abs=1e-6), line
        else:
            exec(text, space)
    return values
