"""A call that fails or is interrupted leaves an estimator as it was; threads do not mix models."""

import copy
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

import rankrls
from rankrls import (
    ConditionalRankRLS,
    ConditionalRankRLSCV,
    GreedyRankRLS,
    RankRLS,
    RankRLSCV,
    RankSVM,
)
from rankrls.graph_kernels import AllPathsGraphFeatures
from rankrls.preprocessing import QueryScaler

SOURCE = rankrls.__file__.removesuffix("__init__.py")

rng = np.random.default_rng(0)
OLD = pd.DataFrame(rng.standard_normal((40, 3)), columns=list("abc"))
NEW = pd.DataFrame(rng.standard_normal((30, 4)), columns=list("wxyz"))
Y_OLD, Y_NEW = rng.standard_normal(40), rng.standard_normal(30)
Q_OLD, Q_NEW = np.repeat(np.arange(8), 5), np.repeat(np.arange(6), 5)
LABELS_OLD, LABELS_NEW = rng.standard_normal((40, 5)), rng.standard_normal((30, 6))
OTHERS_OLD, OTHERS_NEW = rng.standard_normal((5, 2)), rng.standard_normal((6, 3))


def graphs(n):
    return [(np.array([[0.0, 0.3], [0.0, 0.0]]), [[f"a{i}"], ["b"]]) for i in range(n)]


def ranker(estimator):
    return (
        estimator,
        lambda e: e.fit(OLD, Y_OLD, qid=Q_OLD),
        lambda e: e.fit(NEW, Y_NEW, qid=Q_NEW),
    )


def relation(estimator, labels):
    return (
        estimator,
        lambda e: e.fit(OLD, LABELS_OLD, OTHERS_OLD),
        lambda e: e.fit(NEW, labels, OTHERS_NEW),
    )


STOPPED = {"early_stopping": True, "validation_fraction": 0.3, "random_state": 0}

#: An estimator, a first call, and one that is interrupted.
CASES = {
    "primal": ranker(RankRLS()),
    "nystroem": ranker(RankRLS(kernel="rbf", basis=5, random_state=0)),
    "cg": ranker(RankRLS(solver="cg", **STOPPED)),
    "cv": ranker(RankRLSCV()),
    "pairs": (RankRLSCV(), lambda e: e.fit(OLD, Y_OLD), lambda e: e.fit(NEW, Y_NEW)),
    "svm": ranker(RankSVM()),
    "greedy": ranker(GreedyRankRLS(2)),
    "partial_fit": (
        RankRLS(),
        lambda e: e.partial_fit(OLD, Y_OLD, qid=Q_OLD),
        lambda e: e.partial_fit(2 * OLD, Y_OLD, qid=Q_OLD + 100),
    ),
    "forget": (
        RankRLS(),
        lambda e: e.fit(OLD, Y_OLD, qid=Q_OLD),
        lambda e: e.forget(OLD[Q_OLD < 3], Y_OLD[Q_OLD < 3], qid=Q_OLD[Q_OLD < 3]),
    ),
    "forget a ranking": (
        RankRLS(),
        lambda e: e.partial_fit(OLD, Y_OLD, qid=Q_OLD).partial_fit(OLD[:7], Y_OLD[:7]),
        lambda e: e.forget(OLD[:7], Y_OLD[:7]),
    ),
    "fit_stream": (
        RankRLS(),
        lambda e: e.fit(OLD, Y_OLD, qid=Q_OLD),
        lambda e: e.fit_stream(
            [(NEW[:15], Y_NEW[:15], Q_NEW[:15]), (NEW[15:], Y_NEW[15:], Q_NEW[15:])]
        ),
    ),
    "relation": relation(ConditionalRankRLS(), LABELS_NEW),
    "relation cv": relation(ConditionalRankRLSCV([1.0], random_state=0), LABELS_NEW),
    "scaler": (
        QueryScaler(),
        lambda e: e.fit_transform(OLD, qid=Q_OLD),
        lambda e: e.fit_transform(NEW),
    ),
    "graphs": (
        AllPathsGraphFeatures(),
        lambda e: e.fit(graphs(6)),
        lambda e: e.fit(graphs(9)),
    ),
}


def state(estimator):
    """All that an estimator knows, as bytes; queries by label, however far they were read."""
    known = dict(sorted(estimator.__dict__.items()))
    seen = known.pop("_seen", None)
    if seen is not None:
        known["queries"] = sorted(seen.queries.items())
        known["rankings"] = seen.rankings
        known["joined"] = seen.joined
    return pickle.dumps(known)


def interrupted(call, estimator, line):
    """Make a call and interrupt it at a line of the package; how many lines it came to."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        if event == "line":
            count += 1
            if count == line:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call(estimator)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("name", CASES)
def test_an_interrupted_call_changes_nothing(name):
    estimator, first, second = CASES[name]
    fitted = first(clone(estimator)) if name != "scaler" else clone(estimator).fit(OLD)
    stored = pickle.dumps(fitted)
    new = pickle.loads(stored)
    n_lines = interrupted(second, new, -1)
    before, after = state(pickle.loads(stored)), state(new)
    assert before != after
    at = {*np.linspace(1, n_lines, 25).astype(int), *range(n_lines - 12, n_lines)}
    for line in sorted(at):
        estimator = pickle.loads(stored)
        interrupted(second, estimator, line)
        assert state(estimator) in (before, after), f"line {line} of {n_lines}"
    estimator = pickle.loads(stored)
    interrupted(second, estimator, n_lines // 2)
    assert state(estimator) == before
    second(estimator)  # and it can be called again
    assert state(estimator) == after


@pytest.fixture
def _restless():
    """Threads that are switched as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("_restless")
@pytest.mark.parametrize("options", [{}, {"kernel": "rbf", "basis": [0, 1, 2]}])
def test_threads_add_and_forget_one_after_the_other(options):
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((9, 4)), rng.standard_normal(9), [k] * 9) for k in range(48)]
    model = RankRLS(**options).partial_fit(*batches[0][:2], qid=batches[0][2])
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda b: model.partial_fit(b[0], b[1], qid=b[2]), batches[1:]))

    def expected(batches):
        X, y, qid = (np.concatenate(part) for part in zip(*batches, strict=True))
        return RankRLS(**options).fit(X, y, qid=qid)

    probe = rng.standard_normal((5, 4))
    assert model.n_queries_ == 48
    assert_allclose(model.predict(probe), expected(batches).predict(probe), rtol=1e-9)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda b: model.forget(b[0], b[1], qid=b[2]), batches[30:]))
    assert model.n_queries_ == 30
    assert_allclose(model.predict(probe), expected(batches[:30]).predict(probe), rtol=1e-9)
    for other in (pickle.loads(pickle.dumps(model)), copy.copy(model), copy.deepcopy(model)):
        other.partial_fit(*batches[40][:2], qid=batches[40][2])
        assert (other.n_queries_, model.n_queries_) == (31, 30)
