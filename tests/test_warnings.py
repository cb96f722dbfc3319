"""A warning names the line of the program that caused it, however deep it arises."""

import io
import warnings

import dask.array
import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import rankrls.dask
from rankrls import ConditionalRankRLS, RankRLS, RankRLSCV, RankSVM
from rankrls.datasets import load_letor

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 8))
y = X @ rng.normal(size=8) + rng.normal(size=60)
qid = np.repeat(np.arange(12), 5)
Y = np.where(rng.random((9, 7)) < 0.7, rng.normal(size=(9, 7)), np.nan)


def relations():
    model = ConditionalRankRLS(1e-9, kernel="rbf", solver="cg", max_iter=1)
    model.fit(rng.normal(size=(9, 3)), Y, rng.normal(size=(7, 2)))


def letor():
    load_letor(io.BytesIO(b"1 qid:1 1:2 2:3\n0 qid:1 1:2 9:3\n"), n_features=2, beyond="drop")


def on_dask():
    distributed = dask.array.from_array(X, chunks=(30, 8))
    rankrls.dask.RankRLS(kernel="rbf").fit(distributed, y, qid=qid)


SLOW = RankRLS(1e-9, solver="cg", max_iter=1)

CALLS = {
    "cg": lambda: SLOW.fit(X, y, qid=qid),
    "pipeline": lambda: make_pipeline(StandardScaler(), SLOW).fit(X, y),
    "cv": lambda: RankRLSCV([1e2, 1e5, 1e6]).fit(X, y, qid=qid),
    "early": lambda: RankRLS(solver="cg", early_stopping=True, max_iter=2).fit(X, y, qid=qid),
    "svm": lambda: RankSVM(1e-6, max_iter=1).fit(X, y, qid=qid),
    "relations": relations,
    "file": letor,
    "dask": on_dask,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_warning_names_the_line_of_the_caller(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert caught
    code = call.__code__
    for warning in caught:
        assert warning.filename == __file__
        assert warning.lineno >= code.co_firstlineno
        assert warning.lineno <= max(line for *_, line in code.co_lines() if line)
