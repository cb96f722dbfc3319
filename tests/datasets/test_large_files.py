"""Small files that stand for much: what reading takes is in proportion to their bytes."""

import gzip
import io
import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from rankrls import RankRLS, RankRLSCV, RankSVM, _resources
from rankrls.cli import main
from rankrls.datasets import (
    _sources,
    dump_letor,
    formats,
    iter_csv,
    iter_letor,
    iter_parquet,
    iter_ranking,
    load_csv,
    load_ids,
    load_letor,
    load_preferences,
    load_ranking,
    load_relations,
)
from rankrls.metrics import ndcg

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")


def peak_of(function):
    tracemalloc.start()
    try:
        result = function()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def files(tmp_path, ids):
    """The same rows in every format, each as a function that reads them."""
    letor = "".join(f"{i % 3} qid:{q} 1:{i}\n" for i, q in enumerate(ids)).encode()
    csv = "".join(f"{q},{i % 3},{i}\n" for i, q in enumerate(ids)).encode()
    table = {"qid": ids, "label": [i % 3 for i in range(len(ids))], "a": range(len(ids))}
    pq.write_table(pa.table({name: list(values) for name, values in table.items()}), tmp_path / "t")
    columns = {"target": "label", "qid": "qid"}
    return {
        "load_letor": lambda: load_letor(io.BytesIO(letor)),
        "iter_letor": lambda: next(iter_letor(io.BytesIO(letor))),
        "load_csv": lambda: load_csv(io.BytesIO(b"qid,label,a\n" + csv), **columns),
        "iter_csv": lambda: next(iter_csv(io.BytesIO(b"qid,label,a\n" + csv), **columns)),
        "quoted": lambda: load_csv(io.BytesIO(b'"qid",label,a\n' + csv), **columns),
        "iter_parquet": lambda: next(iter_parquet(tmp_path / "t", **columns)),
        "load_ranking": lambda: load_ranking(tmp_path / "t", format="parquet"),
    }


@pytest.mark.parametrize("where", [0, 600])
def test_one_long_query_id(tmp_path, where):
    ids = [f"q{i // 3}" for i in range(1200)]
    ids[where] = "x" * 20_000
    if where:  # the rows of a query stand together
        ids[where + 1 : where + 3] = ["y", "y"]
    expected = np.array(ids, dtype=object)
    for name, read in files(tmp_path, ids).items():
        batch, peak = peak_of(read)
        np.testing.assert_array_equal(batch.qid, expected, err_msg=name)
        assert peak < 20e6, name  # 96 MB if every id were as wide
    model, peak = peak_of(lambda: RankRLS().fit(batch.data, batch.target, qid=batch.qid))
    assert peak < 20e6
    assert 0 <= ndcg(batch.target, model.predict(batch.data), qid=batch.qid) <= 1
    dump_letor(batch.data, batch.target, tmp_path / "again", qid=batch.qid)
    np.testing.assert_array_equal(load_letor(tmp_path / "again").qid, batch.qid)


@pytest.mark.parametrize("read", [load_letor, lambda file: load_csv(file, target="a")])
def test_a_line_without_end(monkeypatch, read):
    packed = gzip.compress(b"x" * (8 << 20))
    monkeypatch.setattr(formats, "_MAX_LINE_BYTES", 1 << 20)
    with pytest.raises(ValueError, match=":1: this line is longer than 1 MiB"):
        read(io.BytesIO(packed))
    monkeypatch.setattr(formats, "_MAX_LINE_BYTES", 1 << 26)
    monkeypatch.setattr(_resources, "available", lambda: 128 << 20)  # 2 MiB of a line in 64
    with pytest.raises(ValueError, match=":1: this line is longer than 2 MiB"):
        read(io.BytesIO(packed))


def test_what_does_not_fit_is_read_in_batches(monkeypatch, tmp_path):
    monkeypatch.setattr(formats, "_BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(_resources, "available", lambda: 1 << 18)
    ids = [i // 10 for i in range(20_000)]
    reading = files(tmp_path, ids)
    for name in ("load_letor", "load_csv"):
        with pytest.raises(
            MemoryError, match=r"<stream>:\d+: the rows .* smaller batches, with iter_"
        ):
            reading[name]()
    letor = "".join(f"{i % 3} qid:{q} 1:{i}\n" for i, q in enumerate(ids)).encode()
    assert sum(len(b.target) for b in iter_letor(io.BytesIO(letor), rows=100)) == len(ids)
    one = "".join(f"{i % 3} qid:1 1:{i}\n" for i in range(20_000)).encode()  # one query
    with pytest.raises(MemoryError, match=r"<stream>:\d+: .* smaller batches, with by_query=False"):
        list(iter_letor(io.BytesIO(one), rows=100))
    path = tmp_path / "q.parquet"
    pq.write_table(pa.table({"qid": [1] * 30_000, "label": [1] * 30_000, "a": [2] * 30_000}), path)
    columns = {"target": "label", "qid": "qid", "features": "a"}
    with pytest.raises(MemoryError, match=r"row group 0, row \d+: .* with by_query=False"):
        list(iter_parquet(path, rows=100, **columns))
    with pytest.raises(
        MemoryError, match=r"the rows .* smaller batches, with (fewer rows|iter_rank)"
    ):
        load_ranking(tmp_path / "t", format="parquet")


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_long_text_in_every_row(kind, tmp_path):
    """The file has it once, and so have the arrays."""
    n, word = 2000, "x" * 50_000
    column = pa.DictionaryArray.from_arrays(np.zeros(n, dtype=np.int32), [word])
    table = pa.table({"a": column, "b": np.arange(n), "label": np.arange(n) % 2})
    path = tmp_path / f"t.{kind}"
    write = {"parquet": pq.write_table, "arrow": feather.write_feather}[kind]
    write(table, path, compression="zstd")
    assert path.stat().st_size < 90_000
    for read in (
        lambda: load_ranking(path, qid="a").qid,
        lambda: load_ranking(path, text="auto", qid=None).data["a"],
        lambda: load_ids(path, "a"),
        lambda: load_relations(path).row_names[:1].repeat(n),
    ):
        words, peak = peak_of(read)
        assert peak < 5e6
        assert set(words) == {word}
        assert len(words) == n


def test_texts_that_share_their_bytes(monkeypatch, tmp_path):
    """Views of Arrow: n bytes stand for n² / 2."""
    n = 5000
    views = np.zeros((n, 4), dtype=np.int32)  # length, first four bytes, buffer, offset
    views[:, 0], views[:, 1], views[:, 3] = n + 12 - np.arange(n), 0x78787878, np.arange(n)
    buffers = [None, pa.py_buffer(views), pa.py_buffer(b"x" * (n + 12))]
    try:
        column = pa.Array.from_buffers(pa.string_view(), n, buffers)
    except ValueError as error:
        pytest.skip(f"this pyarrow makes no views of buffers: {error}")
    table = pa.table({"qid": column, "label": np.arange(n) % 2, "a": np.arange(n)})
    with pa.OSFile(str(tmp_path / "t"), "wb") as file, pa.ipc.new_file(file, table.schema) as to:
        to.write_table(table)
    monkeypatch.setattr(_resources, "budget", lambda: 10_000_000)
    with pytest.raises(ValueError, match=r"t: record batch 0.*texts that share bytes"):
        load_ranking(tmp_path / "t", format="parquet")
    assert load_ranking(tmp_path / "t", format="parquet", qid=None).data.shape == (n, 1)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_names_that_do_not_fit(kind, monkeypatch):
    lines = {"csv": b"winner,loser\n" + b"a,b\n" * 50_000,
             "jsonl": b'{"winner": "a", "loser": "b"}\n' * 50_000}  # fmt: skip
    file = io.BytesIO(gzip.compress(lines[kind]))
    assert len(load_preferences(file, format=kind).pairs) == 50_000
    file.seek(0)
    monkeypatch.setattr(formats, "_BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr(_resources, "available", lambda: 1 << 20)
    with pytest.raises(MemoryError, match=r"<stream>:\d+: the rows .* with fewer rows in each"):
        load_preferences(file, format=kind)


def test_a_nul_is_an_error_with_its_place(tmp_path):
    with pytest.raises(ValueError, match=r"<stream>:2: 'qid:b.*x00c' has no valid query id"):
        load_letor(io.BytesIO(b"1 qid:a 1:1\n0 qid:b\0c 1:2\n"))
    with pytest.raises(ValueError, match="<stream>:3: this is binary data"):
        load_csv(io.BytesIO(b"qid,y,a\n1,1,1\nb\0,1,2\n"), target="y", qid="qid")
    path = tmp_path / "t.parquet"
    for coded in (False, True):
        column = pa.array(["a", "a", "b\0", "b\0"])
        column = column.dictionary_encode() if coded else column
        pq.write_table(pa.table({"qid": column, "label": [1, 0, 1, 0], "a": [1, 2, 3, 4]}), path)
        with pytest.raises(ValueError, match="row group 0, row 2: column 'qid' has a NUL"):
            list(iter_parquet(path, target="label", qid="qid"))
    comment = load_letor(io.BytesIO(b"1 qid:1 1:1 # a\0b \xff\n")).comments
    assert comment == ["a\0b \ufffd"]  # comments are what the file says, as far as it is text


# -- few bytes that ask for two thousand million features

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
    lists = pa.array([np.zeros(width)] * n_rows, type=pa.list_(pa.float64()))
    columns = {"label": np.arange(n_rows), "qid": np.ones(n_rows, dtype=int), "f": lists}
    pq.write_table(pa.table(columns), path, compression="zstd")
    return pa.table(columns)


@pytest.mark.parametrize("load", [load_ranking, lambda *args, **o: next(iter_ranking(*args, **o))])
def test_long_lists_are_refused_before_they_are_read(load, tmp_path, monkeypatch):
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
    status, peak = peak_of(lambda: main(command.split()))
    assert status == 2
    assert peak < 2_000_000 * 8
    err = capsys.readouterr().err
    assert "a model of 2,000,000 features needs" in err
