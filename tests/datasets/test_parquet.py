"""iter_parquet: whole queries in flat memory, from any Parquet or Arrow file, and clear errors."""

import decimal
import re
import subprocess
import sys

import numpy as np
import pytest

from rankrls import RankRLS
from rankrls.datasets import iter_parquet

pa = pytest.importorskip("pyarrow")
ipc = pytest.importorskip("pyarrow.ipc")
pq = pytest.importorskip("pyarrow.parquet")


def arrays(seed=0, m=50, n=3):
    rng = np.random.default_rng(seed)
    qid = np.sort(rng.integers(0, 12, m))
    return rng.standard_normal((m, n)), rng.integers(0, 3, m), rng.permutation(99)[qid]


def table_of(X, y, qid, **more):
    features = {f"f{j}": X[:, j] for j in range(X.shape[1])}
    return pa.table({"qid": qid, "label": y, **features, **more})


def write_arrow(table, path, size=7, **options):
    options = ipc.IpcWriteOptions(**options)
    with (
        pa.OSFile(str(path), "wb") as sink,
        ipc.new_file(sink, table.schema, options=options) as writer,
    ):
        writer.write_table(table, max_chunksize=size)


WRITERS = {
    "parquet": lambda table, path: pq.write_table(table, path, row_group_size=8),
    "one row group": lambda table, path: pq.write_table(table, path),
    "zstd": lambda table, path: pq.write_table(table, path, compression="zstd", row_group_size=9),
    "old pages": lambda table, path: pq.write_table(table, path, data_page_size=64, version="1.0"),
    "arrow": write_arrow,
    "feather": lambda table, path: write_arrow(table, path, 100, compression="lz4"),
}


def read(path, **options):
    return list(iter_parquet(path, **{"target": "label", "qid": "qid", **options}))


def joined(batches):
    return (
        np.concatenate([batch.data for batch in batches]),
        np.concatenate([batch.target for batch in batches]),
        np.concatenate([batch.qid for batch in batches]),
    )


def test_directories_and_lists(tmp_path):
    X, y, qid = arrays()
    table = table_of(X, y, qid)
    folder = tmp_path / "data"
    (folder / "part=2").mkdir(parents=True)
    pq.write_table(table[:20], folder / "a.parquet")
    write_arrow(table[20:30], folder / "b.arrow")
    pq.write_table(table[30:], folder / "part=2" / "c.pq")
    (folder / "_SUCCESS").write_text("")
    (folder / "_metadata.parquet").write_text("not data")
    (folder / ".hidden.parquet").write_text("not data")
    (folder / "notes.txt").write_text("not data")
    for path in (
        folder,
        str(folder),
        [folder / "a.parquet", folder / "b.arrow", folder / "part=2"],
    ):
        data, _, queries = joined(read(path, rows=7))
        np.testing.assert_array_equal(data, X)
        np.testing.assert_array_equal(queries, qid)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no file in this directory ends in \.parquet"):
        read(tmp_path / "empty")


def test_types_of_columns(tmp_path):
    m = 6
    table = pa.table(
        {
            "text": ["ignored"] * m,
            "int8": pa.array(range(m), pa.int8()),
            "uint64": pa.array(range(m), pa.uint64()),
            "half": pa.array(np.arange(m, dtype=np.float16)),
            "bool": pa.array([i % 2 == 0 for i in range(m)]),
            "decimal": pa.array([decimal.Decimal(f"{i}.25") for i in range(m)]),
            "coded": pa.array(range(m)).dictionary_encode(),
            "label": pa.array(range(m), pa.int32()),
            "weight": pa.array(np.linspace(0, 1, m), pa.float32()),
            "fixed": pa.array([[i, -i] for i in range(m)], pa.list_(pa.float32(), 2)),
            "lists": pa.array([[i, i + 1, i + 2] for i in range(m)]),
            "qid": list("aabbcc"),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=4)
    features = ["uint64", "int8", "half", "bool", "decimal", "coded", "lists", "fixed"]
    (batch,) = read(tmp_path / "t.parquet", features=features, sample_weight="weight")
    i = np.arange(m)
    expected = [i, i, i, i % 2 == 0, i + 0.25, i, i, i + 1, i + 2, i, -i]
    np.testing.assert_array_equal(batch.data, np.stack(expected, axis=1))
    assert batch.feature_names == [
        *features[:6],
        *(f"lists_{j}" for j in range(3)),
        "fixed_0",
        "fixed_1",
    ]
    np.testing.assert_array_equal(batch.sample_weight, np.linspace(0, 1, m).astype(np.float32))
    assert batch.qid.tolist() == list("aabbcc")
    assert batch.qid.dtype.kind == "U"
    (batch,) = read(tmp_path / "t.parquet", features="fixed", dtype=np.float32)
    assert batch.data.shape == (m, 2)
    chosen = ["lists_2", "int8", "fixed_0"]
    (batch,) = read(tmp_path / "t.parquet", features=chosen)
    np.testing.assert_array_equal(batch.data, np.stack([i + 2, i, i], axis=1))
    assert batch.feature_names == chosen
    with pytest.raises(ValueError, match="no column 'lists_3' for features"):
        read(tmp_path / "t.parquet", features=["lists_0", "lists_3"])


def test_nulls_of_every_arrow_type(tmp_path):
    columns = {
        "integers": pa.array([1, None, 3]),
        "booleans": pa.array([None, True, False]),
        "decimals": pa.array([None, 2, 3], pa.decimal128(5, 2)),
        "codes": pa.array([5.0, None, 5.0]).dictionary_encode(),
        "nothing": pa.nulls(3),
        "lists": pa.array([None, [1.0, None], [3.0, float("nan")]]),
        "fixed": pa.array([[1.0, 2.0], None, [None, 4.0]], pa.list_(pa.float32(), 2)),
    }
    try:
        pq.write_table(pa.table({"label": [1, 0, 1], **columns}), tmp_path / "t.parquet")
    except pa.ArrowNotImplementedError as error:  # fixed-size lists with nulls, pyarrow < 22 or so
        pytest.skip(f"this pyarrow cannot write the file: {error}")
    (batch,) = read(tmp_path / "t.parquet", qid=None, missing="nan")
    nan = np.nan
    expected = [
        [1, nan, nan, 5, nan, nan, nan, 1, 2],
        [nan, 1, 2, nan, nan, 1, nan, nan, nan],
        [3, 0, 3, 5, nan, 3, nan, nan, 4],
    ]
    np.testing.assert_array_equal(batch.data, expected)
    columns["fixed"] = pa.array([[1.0, 2.0], None, [None, np.inf]], pa.list_(pa.float32(), 2))
    pq.write_table(pa.table({"label": [1, 0, 1], **columns}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="row 2: column 'fixed' is inf; every cell needs"):
        read(tmp_path / "t.parquet", qid=None, missing="nan")


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary", "int16", "uint64"])
def test_kinds_of_query_ids(tmp_path, kind):
    qid = np.repeat([3, 1, 2], [2, 3, 1])
    types = {"dictionary": pa.dictionary(pa.int8(), pa.string())}
    values = [f"query {q}" for q in qid] if kind in (*types, "string", "large_string") else qid
    column = pa.array(values).cast(types.get(kind) or getattr(pa, kind)())
    pq.write_table(table_of(np.ones((6, 1)), np.arange(6), column), tmp_path / "q.parquet")
    batches = read(tmp_path / "q.parquet", rows=2)
    assert [len(b.target) for b in batches] == [2, 3, 1]
    assert np.concatenate([b.qid for b in batches]).tolist() == list(values)


@pytest.mark.parametrize("kind", ["String", "Categorical"])
def test_text_in_arrow_files_of_polars(tmp_path, kind):
    """Views, as polars calls its text, and views in dictionaries."""
    polars = pytest.importorskip("polars")
    try:
        pa.array(["a"], pa.string_view()).dictionary_encode().dictionary.cast(pa.large_string())
    except pa.ArrowNotImplementedError as error:
        pytest.skip(f"this pyarrow cannot convert such text: {error}")
    text = polars.Series(["b", "b", None, "a"], dtype=getattr(polars, kind))
    frame = polars.DataFrame({"qid": text.fill_null("b"), "label": [0, 1, 2, 0], "word": text})
    frame.write_ipc(tmp_path / "p.arrow")
    (batch,) = read(tmp_path / "p.arrow", text="auto")
    assert batch.qid.tolist() == ["b", "b", "b", "a"]
    assert batch.data["word"].tolist() == ["b", "b", None, "a"]


def test_nulls_among_the_words_of_a_dictionary(tmp_path):
    words = pa.DictionaryArray.from_arrays([0, 0, 1], pa.array(["a", None]))
    write_arrow(table_of(np.ones((3, 1)), np.ones(3), words), tmp_path / "q.arrow")
    with pytest.raises(ValueError, match="record batch 0, row 2: column 'qid' is null"):
        read(tmp_path / "q.arrow")


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"f1": (19, np.nan)}, "row group 2, row 19: column 'f1' is nan; every cell needs"),
        ({"f1": (20, np.inf)}, "row group 2, row 20: column 'f1' is inf"),
        ({"f2": (3, None)}, "row group 0, row 3: column 'f2' is null"),
        ({"label": (49, None)}, "row group 6, row 49: column 'label' is null"),
        ({"label": (8, np.nan)}, "row group 1, row 8: column 'label' is nan"),
        ({"qid": (8, None)}, "row group 1, row 8: column 'qid' is null"),
        ({"f0": (5, 1e300)}, "row 5: column 'f0' is 1e.300, too large for float32"),
    ],
)
@pytest.mark.parametrize("rows", [5, 1000])
def test_bad_values_are_named(tmp_path, change, message, rows):
    X, y, qid = arrays()
    table = table_of(X, y.astype(float), qid)
    ((name, (row, value)),) = change.items()
    column = table[name].to_pylist()
    column[row] = value
    table = table.set_column(table.schema.get_field_index(name), name, pa.array(column))
    pq.write_table(table, tmp_path / "bad.parquet", row_group_size=8)
    with pytest.raises(ValueError, match=rf"bad\.parquet: .*{message}"):
        read(tmp_path / "bad.parquet", rows=rows, dtype=np.float32)
    with pytest.raises(ValueError, match=rf"bad\.parquet: .*{message}"):  # no model comes of it
        RankRLS().fit_stream(
            iter_parquet(tmp_path / "bad.parquet", target="label", qid="qid", rows=rows, dtype="f4")
        )
    write_arrow(table, tmp_path / "bad.arrow", 8)
    with pytest.raises(ValueError, match=message.replace("row group", "record batch")):
        read(tmp_path / "bad.arrow", rows=rows, dtype=np.float32)


@pytest.mark.parametrize(
    ("lists", "kind", "message"),
    [
        ([[1.0, 2.0], [3.0, 4.0], [5.0]], None, "row group 1, row 2: .*'v' has 1 numbers in this"),
        ([[1.0], [3.0], [5.0], [None]], None, "row group 1, row 3: column 'v' is null"),
        ([[1.0], [np.nan]], pa.list_(pa.float64(), 1), "row group 0, row 1: column 'v' is nan"),
        ([["a"], ["b"]], None, "column 'v' is not numeric but list"),
        ([[1.0], [3.0], None], pa.list_(pa.float64(), 1), "batch 1, row 2: column 'v' is null"),
    ],
)
def test_bad_lists_are_named(tmp_path, lists, kind, message):
    table = pa.table({"label": np.arange(len(lists)), "v": pa.array(lists, kind)})
    if "batch" in message:  # older pyarrow cannot write such a Parquet file
        write_arrow(table, tmp_path / "v", 2)
    else:
        pq.write_table(table, tmp_path / "v", row_group_size=2)
    with pytest.raises(ValueError, match=f"v: .*{message}"):
        read(tmp_path / "v", qid=None)


def test_files_that_do_not_match(tmp_path):
    X, y, qid = arrays()
    pq.write_table(table_of(X, y, qid), tmp_path / "a.parquet")
    other = tmp_path / "b.parquet"
    for table, message in [
        (table_of(X[:, :2], y, qid), "no column 'f2' for features"),
        (table_of(X, y, qid.astype(str)), "qid='qid' holds strings, and integers in the first"),
        (table_of(X, y.astype(str), qid), "column 'label' is not numeric but"),
    ]:
        pq.write_table(table, other)
        with pytest.raises(ValueError, match=rf"b\.parquet: {message}"):
            read(tmp_path)
    pq.write_table(table_of(X, y, qid, name=["x"] * 50), other)
    with pytest.raises(ValueError, match="'name' is not numeric but string; drop it if"):
        read(other)
    with pytest.raises(ValueError, match="column 'f0' is not integers or strings but double"):
        read(other, qid="f0", features="f1")
    twice = pa.Table.from_arrays([y, qid, y, y], names=["label", "qid", "x", "x"])
    pq.write_table(twice, other)
    with pytest.raises(ValueError, match="two columns are named 'x'"):
        read(other)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it begins with b''"),
        (b"2 qid:7 1:0.5\n", "neither a Parquet nor an Arrow file"),
        (b"FEA1" + bytes(40), "version 1 of Feather"),
        (b"PARE" + bytes(40), "encrypted"),
        (b"PAR1", "truncated or damaged"),
        (b"PAR1" + bytes(100) + b"PAR1", "truncated or damaged"),
        (b"ARROW1\0\0" + bytes(50), "truncated or damaged"),
        (b"\xff\xff\xff\xff" + bytes(50), "streams of Arrow"),
    ],
)
def test_foreign_files(tmp_path, content, message):
    path = tmp_path / "data.parquet"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"data\.parquet: .*{message}"):
        read(path)


@pytest.mark.parametrize("writer", WRITERS)
def test_truncated_files(tmp_path, writer):
    """Cut anywhere: an error that names the file, whatever the format."""
    X, y, qid = arrays(m=30)
    path = tmp_path / "data"
    WRITERS[writer](table_of(X, y, qid), path)
    content = path.read_bytes()
    for length in np.linspace(8, len(content) - 1, 60).astype(int):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=re.escape(str(path))):
            read(path)


def test_offsets_outside_of_an_arrow_file(tmp_path):
    """Arrow would read other memory."""
    X, y, _ = arrays(m=6)
    path = tmp_path / "data.arrow"
    write_arrow(table_of(X, y, ["ab", "cd", "ef", "gh", "ij", "kl"]), path)
    offsets, content = np.arange(0, 14, 2, dtype=np.int32), path.read_bytes()
    wrong = np.where(offsets == 6, np.int32(2**30), offsets)
    assert content.count(offsets.tobytes()) == 1
    path.write_bytes(content.replace(offsets.tobytes(), wrong.tobytes()))
    with pytest.raises(ValueError, match=r"data\.arrow: .*damaged"):
        read(path)


# ---------------------------------------------------------------- models


def test_memory_is_flat(tmp_path):
    """Of a file of many row groups, only a few are held: by Arrow and by us."""
    rng = np.random.default_rng(0)
    n_groups, m, n = 30, 2000, 20
    table = table_of(rng.standard_normal((m, n)), np.arange(m), np.arange(m) // 50)
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        for group in range(n_groups):
            qid = pa.array(np.arange(m) // 50 + 40 * group)
            writer.write_table(table.set_column(0, "qid", qid))
    code = (  # in a process of its own, where no other thread allocates
        "import sys, tracemalloc, pyarrow as pa\n"
        "from rankrls.datasets import iter_parquet\n"
        "path, options = sys.argv[1], {'target': 'label', 'qid': 'qid', 'rows': 2000}\n"
        "next(iter_parquet(path, **options))\n"
        "before = pa.total_allocated_bytes()\n"
        "tracemalloc.start()\n"
        "held = [pa.total_allocated_bytes() for _ in iter_parquet(path, **options)]\n"
        "print(max(held) - before, tracemalloc.get_traced_memory()[1])\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, ours = map(int, done.stdout.split())
    one = m * n * 8
    assert peak < 12 * one
    assert ours < 5 * one
