"""What the tests of the report have in common."""

from rankrls.report._analysis import analyse
from rankrls.report._data import Steps, check_rankings
from rankrls.report._heldout import make_plan


def analysed(X, y, qid=None, *, estimator=None, alphas=None, test=None, **names):
    """The analysis behind a report, without a page."""
    train = check_rankings(X, y, qid, **names)
    unseen = None if test is None else check_rankings(*test, where="test ")
    return analyse(train, unseen, make_plan(estimator, alphas, train.X), Steps(None, None))
