"""A few bytes that ask for two thousand million features are refused before anything is made."""

import io
import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from rankrls import RankRLS, RankRLSCV, RankSVM, _resources
from rankrls.cli import main
from rankrls.datasets import iter_letor, iter_ranking, load_letor, load_ranking

WIDE = b"1 qid:1 1:0.25 7:3\n\n2 qid:1 1:0.5 2147483647:1 # a typo\n0 qid:1 1:0.1\n"


@pytest.fixture
def two_gib(monkeypatch):
    monkeypatch.setattr(_resources, "available", lambda: 2 << 30)


@pytest.mark.parametrize("read", [load_letor, iter_letor])
@pytest.mark.parametrize("zero_based", [False, True])
def test_the_line_of_the_feature_is_named(two_gib, read, zero_based):
    text = WIDE.replace(b"2147483647", b"2147483646") if zero_based else WIDE
    largest = 2147483646 if zero_based else 2147483647
    message = (
        rf"<stream>:3: feature id {largest} is the largest, .* 80\.0 GiB of "
        "memory or more; .* pass n_features=2147483647"
    )
    with pytest.raises(ValueError, match=message):
        read(io.BytesIO(text), zero_based=zero_based)
    (batch,) = iter_letor(io.BytesIO(text), zero_based=zero_based, n_features=2**31 - 1)
    assert batch.data.shape == (3, 2**31 - 1)  # whoever asks for it gets it: it is sparse
    with pytest.raises(MemoryError, match="pass sparse=True"):
        load_letor(io.BytesIO(text), n_features=2**31 - 1, sparse=False, zero_based=zero_based)
    with pytest.warns(UserWarning, match=f":3: feature {largest} is beyond the first 8"):
        narrow = load_letor(io.BytesIO(text), n_features=8, beyond="drop", zero_based=zero_based)
    assert narrow.data.shape == (3, 8)


@pytest.mark.parametrize(
    "estimator",
    [RankRLS(), RankRLS(solver="cg"), RankRLS(kernel="rbf"), RankRLSCV(), RankSVM()],
    ids=repr,
)
def test_estimators_refuse(two_gib, estimator):
    X = sparse.csr_array(([1.0, 2.0, 3.0], ([0, 1, 2], [0, 5, 2**31 - 2])), shape=(3, 2**31 - 1))
    with pytest.raises(MemoryError, match=r"a model of 2,147,483,647 features needs .*80\.0 GiB"):
        estimator.fit(X, [1, 2, 3])


def _lists(path, n_rows, width):
    """A small file of long lists of zeros."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    lists = pa.array([np.zeros(width)] * n_rows, type=pa.list_(pa.float64()))
    columns = {"label": np.arange(n_rows), "qid": np.ones(n_rows, dtype=int), "f": lists}
    pq.write_table(pa.table(columns), path, compression="zstd")
    return pa.table(columns)


@pytest.mark.parametrize("load", [load_ranking, lambda *args, **o: next(iter_ranking(*args, **o))])
def test_long_lists_are_refused_before_they_are_read(load, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    from rankrls.datasets import _sources

    path = tmp_path / "lists.parquet"
    _lists(path, 2, 1_000_000)
    assert path.stat().st_size < 5000
    options = {"target": "label", "qid": "qid"}
    assert load(path, **options).data.shape == (2, 1_000_000)
    monkeypatch.setattr(_resources, "budget", lambda: 2**26)
    monkeypatch.setattr(_sources.ArrowSource, "parts", None)  # nothing is decoded
    message = r"lists.parquet: column 'f' has 1,000,000 numbers in a row, .*drop='f'"
    with pytest.raises(ValueError, match=message):
        load(path, **options)


def test_long_lists_in_several_columns(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    lists = pa.array([np.zeros(300_000)] * 2, type=pa.list_(pa.float64(), 300_000))
    table = pa.table({"label": [1.0, 0.0], "qid": [1, 1], "f": lists, "g": lists})
    path = tmp_path / "lists.parquet"
    pq.write_table(table, path)
    monkeypatch.setattr(_resources, "budget", lambda: 2**26)
    with pytest.raises(ValueError, match=r"column 'g' has 300,000 .* a model of 600,000 features"):
        load_ranking(path, target="label", qid="qid")
    assert load_ranking(path, target="label", qid="qid", drop="g").data.shape == (2, 300_000)


def test_many_rows_of_lists(tmp_path, monkeypatch):
    path = tmp_path / "lists.parquet"
    _lists(path, 2000, 500)
    monkeypatch.setattr(_resources, "budget", lambda: 2_000_000)
    message = "lists.parquet: row group 0, row 523: the rows up to here take .*iter_ranking"
    with pytest.raises(MemoryError, match=message):
        load_ranking(path, target="label", qid="qid")
    options = {"target": "label", "qid": "qid", "by_query": False}
    assert sum(len(b.data) for b in iter_ranking(path, rows=250, **options)) == 2000


@pytest.mark.parametrize(
    ("command", "copies"),
    [("fit wide.dat -m m", _resources.SCALER_VECTORS), ("report wide.dat -o r.html", 34)],
)
def test_the_command_line_counts_what_it_makes(tmp_path, monkeypatch, capsys, command, copies):
    """The vectors of names and statistics are refused before the first of them is made."""
    text = (
        "2 qid:1 1:1 2000000:1\n1 qid:1 2:1\n2 qid:2 1:1\n1 qid:2 2:1\n2 qid:3 1:1\n1 qid:3 2:1\n"
    )
    (tmp_path / "wide.dat").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_resources, "budget", lambda: copies * 8 * 2_000_000 - 1)
    tracemalloc.start()
    try:
        assert main(command.split()) == 2
        assert tracemalloc.get_traced_memory()[1] < 2_000_000 * 8
    finally:
        tracemalloc.stop()
    err = capsys.readouterr().err
    assert "a model of 2,000,000 features needs" in err
