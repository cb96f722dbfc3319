"""What an AutoRanker does not do: batches, Dask collections, exports."""

import numpy as np
import pandas as pd
import pytest

from rankrls import AutoRanker, RankRLS, export
from rankrls.datasets import make_ranking

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")


@pytest.fixture(scope="module")
def rows():
    return make_ranking(n_queries=20, n_features=3, random_state=0, return_X_y_qid=True)


@pytest.fixture(scope="module")
def fitted(rows):
    X, y, qid = rows
    return AutoRanker(effort="quick", random_state=0).fit(X, y, qid=qid)


@pytest.mark.parametrize(
    "lazy",
    [da.from_array, lambda X: dd.from_pandas(pd.DataFrame(X), npartitions=2)],
    ids=["array", "frame"],
)
def test_dask_collections(rows, fitted, lazy):
    X, y, qid = rows
    for labels in ((y, qid), (da.from_array(y), da.from_array(qid))):
        with pytest.raises(
            ValueError, match=r"sample of whole queries, use rankrls\.dask\.RankRLS"
        ):
            AutoRanker().fit(lazy(X), labels[0], qid=labels[1])
        with pytest.raises(ValueError, match="predict one part of whole queries after the other"):
            fitted.predict(lazy(X), qid=labels[1])


@pytest.mark.parametrize("name", ["fit_stream", "partial_fit"])
def test_batches(fitted, name):
    assert not hasattr(AutoRanker(), name)
    assert hasattr(RankRLS(), name)
    with pytest.raises(
        AttributeError, match=rf"no {name}, because it compares .* use RankRLS\(\)\.{name}"
    ):
        getattr(fitted, name)
    with pytest.raises(AttributeError, match="'AutoRanker' object has no attribute 'coef_'"):
        _ = fitted.coef_


def test_exports(fitted):
    for write in (export.to_onnx, export.to_svmrank):
        with pytest.raises(
            ValueError, match="an AutoRanker cannot be exported, because it averages"
        ):
            write(fitted)


def test_sparse_rows_for_a_model_of_dense_ones_and_back(rows):
    from scipy import sparse

    X, y, qid = rows
    X = np.where(X > 0.5, X, 0.0)
    S = sparse.csr_array(X)
    for fit_to, other in ((X, S), (S, X)):
        ranker = AutoRanker(effort="quick", random_state=0).fit(fit_to, y, qid=qid)
        np.testing.assert_allclose(
            ranker.predict(other, qid=qid), ranker.predict(fit_to, qid=qid), rtol=1e-12
        )
