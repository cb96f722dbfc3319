"""Files compressed by gzip, bzip2, xz and zstd: LETOR text, CSV and runs."""

import bz2
import gzip
import io
import lzma
import sys

import numpy as np
import pytest

from rankrls import _resources, _streams
from rankrls.cli import main
from rankrls.datasets import (
    dump_letor,
    iter_letor,
    load_csv,
    load_letor,
    load_ranking,
)

pa = pytest.importorskip("pyarrow")


def zstd(data):
    buffer = pa.BufferOutputStream()
    with pa.CompressedOutputStream(buffer, "zstd") as file:
        file.write(data)
    return buffer.getvalue().to_pybytes()


PACK = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd}
SUFFIX = {"gzip": ".gz", "bzip2": ".bz2", "xz": ".xz", "zstd": ".zst"}

LETOR = "".join(f"{i % 3} qid:{i // 5} 1:{i} 2:0.5\n" for i in range(2000)).encode()
CSV = b"qid,label,a\n" + "".join(f"{i // 5},{i % 3},{i}\n" for i in range(2000)).encode()


@pytest.fixture(params=list(PACK))
def kind(request):
    return request.param


def test_the_command_line_writes_files_compressed(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.txt").write_bytes(LETOR)
    how = ["train.txt", "-m", "model"]
    assert main(["fit", *how, "--alpha", "1", "--scale", "none"]) == 0
    for command in (
        ["predict", *how, "--format", "trec"],
        ["export", "-m", "model", "--to", "onnx"],
    ):
        name = f"made{SUFFIX[kind]}"
        assert main([*command, "-o", "plain"]) == 0
        assert main([*command, "-o", name]) == 0
        with _streams.opened(name) as file:
            content = b"".join(iter(lambda file=file: file.read(1 << 16), b""))
        assert content == (tmp_path / "plain").read_bytes()
        assert (tmp_path / name).read_bytes()[:3] == PACK[kind](b"")[:3]


class Pipe(io.RawIOBase):
    """It gives few bytes at a time, and cannot be rewound."""

    def __init__(self, content, n_bytes=3):
        self.content, self.n_bytes = io.BytesIO(content), n_bytes

    def readable(self):
        return True

    def readinto(self, buffer):
        return self.content.readinto(memoryview(buffer)[: self.n_bytes])


@pytest.mark.parametrize("text", [LETOR, CSV], ids=["letor", "csv"])
def test_the_same_rows(kind, text, tmp_path):
    plain, data = load_ranking(io.BytesIO(text)), PACK[kind](text)
    path = tmp_path / "no suffix"
    path.write_bytes(data)
    parts = PACK[kind](text[:1000]) + PACK[kind](text[1000:])  # streams one after the other
    pipe = io.BufferedReader(Pipe(data))
    for file in (path, io.BytesIO(data), io.BytesIO(parts)):
        found = load_ranking(file)
        np.testing.assert_array_equal(found.data, plain.data)
        np.testing.assert_array_equal(found.qid, plain.qid)
        assert found.format == plain.format
    np.testing.assert_array_equal(load_ranking(pipe, format=plain.format).data, plain.data)


def test_what_is_written_is_read(kind, tmp_path):
    rng = np.random.default_rng(0)
    X, y, qid = rng.standard_normal((50, 3)), rng.integers(0, 3, 50), np.arange(50) // 5
    path = tmp_path / f"rows.txt{SUFFIX[kind]}"
    dump_letor(X, y, path, qid=qid)
    assert path.read_bytes()[:2] == PACK[kind](b"")[:2]
    np.testing.assert_array_equal(load_letor(path).data, X)
    batches = list(iter_letor(path, rows=20))
    np.testing.assert_array_equal(np.vstack([batch.data for batch in batches]), X)


@pytest.mark.parametrize("read", [load_letor, lambda file: load_csv(file, target="label")])
def test_damage_is_told(kind, read):
    text = LETOR if read is load_letor else CSV
    data = PACK[kind](text)
    message = f"<stream>:.*the {kind} data is truncated or corrupt at or after this line"
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 255
    if kind != "zstd":  # written without a checksum
        with pytest.raises(ValueError, match=r"<stream>:\d+: "):
            read(io.BytesIO(flipped))
    for damaged in (data[: len(data) // 2], data[:-1], data[:6], data + b"no data"):
        with pytest.raises(ValueError, match=message):
            read(io.BytesIO(damaged))
    for n in range(1, len(data), 97):  # never other rows without an error
        with pytest.raises(ValueError, match=r"<stream>"):
            read(io.BytesIO(data[:n]))


def test_xz_that_asks_for_much_memory(monkeypatch):
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 28}]
    data = lzma.compress(LETOR, filters=filters)
    assert len(load_letor(io.BytesIO(data)).target) == 2000
    monkeypatch.setattr(_resources, "available", lambda: 1 << 28)
    with pytest.raises(ValueError, match=r"the xz data .*[Mm]emory usage limit"):
        load_letor(io.BytesIO(data))


def test_zstd_without_pyarrow(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"zstd files need pyarrow.*rankrls\[arrow\]"):
        load_letor(io.BytesIO(bytes.fromhex("28b52ffd") + b"\0" * 20))
    with pytest.raises(ImportError, match="CSV, Parquet and Arrow files are read by pyarrow"):
        load_csv(io.BytesIO(CSV), target="label")
