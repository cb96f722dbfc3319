"""What the tests of the report have in common."""

from rankrls.report._data import prepare
from rankrls.report._heldout import make_plan
from rankrls.report._write_report import analyse

__all__ = ["analysed"]


def analysed(X, y, qid=None, *, alphas=None, progress=None, **options):
    """What the page shows."""
    options = {"test": None, "estimator": None, "imputer": None, "scaler": None} | options
    train, unseen, steps = prepare(X, y, qid, **options)
    plan = make_plan(options["estimator"], alphas, train.X, progress)
    return analyse(train, unseen, steps, plan)
