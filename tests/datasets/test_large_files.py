"""Small files that unpack to large ones: what reading takes is in proportion to their bytes."""

import gzip
import io
import tracemalloc

import numpy as np
import pytest

from rankrls import RankRLS, _resources
from rankrls.datasets import (
    dump_letor,
    formats,
    iter_csv,
    iter_letor,
    iter_parquet,
    load_csv,
    load_ids,
    load_letor,
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
    expected = np.array(ids, dtype=object)
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
