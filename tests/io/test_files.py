"""The file: its format, its description, atomic writing, and damage of all kinds."""

import gzip
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from itertools import product

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import rankrls
from model_files import assert_same, load_or_none, members, refuse, write
from rankrls import AutoRanker, RankRLS
from rankrls.io import _archive, describe_model, load_model, save_model
from rankrls.io._values import Decoder, Encoder

rng = np.random.default_rng(0)
X = rng.standard_normal((30, 4))
y = rng.integers(0, 3, 30)
SPARSE = sparse.csr_array(np.maximum(X, 0))


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "model.rankrls"
    save_model(RankRLS().fit(X[:8, :2], y[:8]), target)
    return target


def fitted(**params):
    return RankRLS(**params).fit(X, y)


# -- format --------------------------------------------------------------------------------------


def test_description(path):
    frame = pytest.importorskip("pandas").DataFrame(X, columns=list("wxyz"))
    pipeline = make_pipeline(StandardScaler(), RankRLS(np.float64(2.0), basis=[1, 2], kernel="rbf"))
    pipeline.fit(frame, y)
    save_model(pipeline, path)
    about = describe_model(path)
    assert json.loads(json.dumps(about)) == about
    assert about["type"] == "Pipeline"
    assert about["versions"]["rankrls"] == rankrls.__version__
    ranker = about["steps"]["rankrls"]
    assert ranker["parameters"]["alpha"] == 2.0
    assert ranker["parameters"]["basis"] == [1, 2]
    assert ranker["summary"]["solver_"] == "nystroem"
    assert ranker["summary"]["n_pairs_"] == 30 * 29 // 2
    assert ranker["summary"]["uncertainty"] is True
    scaler = about["steps"]["standardscaler"]
    assert scaler["feature_names"] == list("wxyz")
    assert scaler["summary"]["mean_"] == "float64 array of shape (4,)"


@pytest.mark.parametrize("ranker", [RankRLS(), AutoRanker("pairwise_accuracy", effort="quick")])
def test_description_reads_no_array(ranker, path, monkeypatch):
    save_model(ranker.fit(X, y), path)
    monkeypatch.setattr(_archive.ArchiveReader, "array", None)
    about = describe_model(path)
    assert about["type"] == type(ranker).__name__
    assert about["summary"]["n_features_in_"] == 4


def test_a_process_without_the_rest(path):
    """Loading needs neither pandas nor polars, and of scikit-learn only what it uses."""
    save_model(fitted(kernel="rbf"), path)
    code = f"""
import sys
class Missing:
    def find_spec(self, name, *args):
        if name.split(".")[0] in ("pandas", "polars", "pyarrow", "matplotlib"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from rankrls.io import load_model
print(load_model({str(path)!r}).predict([[0.0, 1.0, 2.0, 3.0]])[0])
assert "sklearn.pipeline" not in sys.modules
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = fitted(kernel="rbf").predict([[0.0, 1.0, 2.0, 3.0]])[0]
    assert float(out.stdout) == pytest.approx(expected, rel=1e-12)


VALUES = [
    *(None, True, -(10**30), "text \x00 \ud800 ä", 0.1, -0.0, 5e-324, 1.7976931348623157e308),
    *(np.inf, -np.inf, np.nan, [1, [2.0, "a"], []], (1, (2, "b"), ())),
    {"a": 1, "float": [1.0], "array": None, "object": {"": ()}},
    *(np.float32(0.1), np.float64(np.nan), np.int8(-3), np.bool_(True), np.uint64(2**64 - 1)),
    np.array(["a", "bcd", ""]),
    np.array([["a", "bcd"], ["", "é"]], dtype=object),
    *(np.array([], dtype=object), np.zeros((0, 3), dtype=np.float32), np.array(2.5)),
    np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
    np.arange(12.0).reshape(3, 4).T,
    np.arange(12.0).reshape(3, 4)[::-1, ::2],
    *(np.arange(5)[::-1], np.broadcast_to(np.arange(3.0), (4, 3)), np.array([True, False])),
    *(np.arange(3, dtype=">i4"), np.array([1.5, np.nan, np.inf], dtype=">f8")),
    *(SPARSE, sparse.csr_matrix(SPARSE), sparse.csr_array((3, 0))),
]


def free(n_bytes, what):
    """Memory without a limit."""


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_values(value, tmp_path):
    encoder = Encoder()
    tree = encoder.encode({"value": value}, "value")
    with open(tmp_path / "file", "w+b") as file:
        _archive.write_archive(file, json.dumps({"model": tree}).encode(), encoder.arrays)
        reader = _archive.ArchiveReader(file, lambda manifest: None)
        back = Decoder(reader.array, free).decode(reader.manifest["model"])["value"]
    if isinstance(value, np.ndarray) and value.dtype.byteorder == ">":
        value = value.astype(value.dtype.newbyteorder("="))
    assert_same(value, back)
    if isinstance(value, float):
        assert np.signbit(value) == np.signbit(back)


# -- writing -------------------------------------------------------------------------------------


def test_a_save_that_fails_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()
    infos = iter([_archive._info, None])  # an error at the second member
    monkeypatch.setattr(_archive, "_info", lambda *args: next(infos)(*args))
    with pytest.raises(TypeError):
        save_model(fitted(kernel="rbf"), path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["model.rankrls"]


# -- other files and damage ------------------------------------------------------------------------


class Trap:
    """Would leave a mark if it were unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def file_of_arrays(**options):
    stream = io.BytesIO()
    np.savez(stream, X, np.array([Trap()], dtype=object))
    return stream.getvalue()


OTHER = {
    "empty": (lambda model: b"", "empty"),
    "text": (lambda model: b"2 qid:1 1:0.5", "not a model"),
    "pickle": (lambda model: pickle.dumps(Trap()), "pickle"),
    "compressed": (gzip.compress, "not a model"),
    "arrays": (lambda model: file_of_arrays(), r"zip file without a manifest\.json"),
    "random zip": (lambda model: b"PK\x03\x04" + rng.bytes(5000), "cut off or damaged"),
    "script before": (lambda model: b"#!/bin/sh" + model, "not a model"),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_files(name, path):
    make, message = OTHER[name]
    path.write_bytes(make(path.read_bytes()))
    refuse(path, message)
    with pytest.raises(ValueError, match=message):
        describe_model(path)


# -- damage --------------------------------------------------------------------------------------


def interesting(path):
    """All positions of headers and directories, and every sixtieth of the contents."""
    size = path.stat().st_size
    inside = np.zeros(size, dtype=bool)
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            start = info.header_offset + 30 + len(info.filename)
            inside[start + 2 : start + info.file_size - 2] = True
    return np.flatnonzero(~inside | (np.arange(size) % 60 == 0))


def test_truncations_are_noticed(path):
    content = path.read_bytes()
    for length in interesting(path):
        path.write_bytes(content[:length])
        assert load_or_none(path) is None


def test_every_kind_of_byte(path):
    """A changed byte is noticed, or does not matter (dates, permissions …)."""
    content = bytearray(path.read_bytes())
    expected = load_model(path).predict(X[:, :2])
    noticed = 0
    positions = interesting(path)
    for position in positions:
        damaged = content.copy()
        damaged[position] ^= rng.integers(1, 256)
        path.write_bytes(damaged)
        loaded = load_or_none(path)
        if loaded is None:
            noticed += 1
        else:
            np.testing.assert_array_equal(loaded.predict(X[:, :2]), expected)
    assert noticed > len(positions) / 2


def test_check_sums(path):
    content = path.read_bytes()
    number = load_model(path).coef_[0].tobytes()
    assert content.count(number) == 1
    path.write_bytes(content.replace(number, np.float64(123.0).tobytes()))
    refuse(path, "CRC")
    path.write_bytes(content.replace(b'"alpha": 1.0', b'"alpha": 2.0'))
    refuse(path, "CRC")


# -- sizes ---------------------------------------------------------------------------------------


def central(content, number):
    """Where the entry of a member begins in the central directory."""
    position = -1
    for _ in range(number + 1):
        position = content.index(b"PK\x01\x02", position + 1)
    return position


SIZES = product([(20,), (24,), (20, 24)], [0, 2**31], [0, 1])


@pytest.mark.parametrize(
    ("fields", "size", "number"), [*SIZES, ((42,), 30, 1), ((42,), 2**32 - 2, 1)]
)
def test_sizes_and_offsets_of_members(fields, size, number, path):
    """Compressed and real sizes, and offsets, in the directory of the zip file."""
    content = bytearray(path.read_bytes())
    for field in fields:
        struct.pack_into("<I", content, central(content, number) + field, size)
    path.write_bytes(content)
    refuse(path)


def test_members_that_share_their_bytes(path):
    """Many entries of the directory for one member: it would be read as often."""
    contents = members(path)
    big = bytes(200_000)
    write(path, [("manifest.json", contents["manifest.json"]), ("arrays/0.npy", big)])
    content = path.read_bytes()
    start = central(content, 1)
    end = content.index(b"PK\x05\x06")
    entry = content[start:end]
    entries = [entry.replace(b"arrays/0", b"arrays/%d" % i) for i in range(9)]
    directory = content[central(content, 0) : start] + b"".join(entries)
    tail = struct.pack(
        "<4s4H2IH", b"PK\x05\x06", 0, 0, 10, 10, len(directory), central(content, 0), 0
    )
    path.write_bytes(content[: central(content, 0)] + directory + tail)
    refuse(path, "claim 1,8|[Oo]verlap")


HEADERS = [
    *("", "{'descr': '<f8'}", "__import__('os').getcwd()"),
    *(
        f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}}}"
        for dtype, shape in [
            *(("'<f8'", "(1000000, 1000000)"), ("'<f8'", "(0, 2305843009213693952)")),
            *(("'<f8'", "(-1,)"), ("'<f8'", "(True,)"), ("'<f8'", f"{(1,) * 40}")),
            *(("'<f8'", "(2,)"), ("'<f8'", "(" * 200), ("'>f8'", "(1,)"), ("'|O'", "(1,)")),
        ]
    ),
]


@pytest.mark.parametrize("number", range(len(HEADERS)))
def test_headers_that_are_not_true(number, path):
    text = HEADERS[number].encode()
    header = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    contents = members(path)
    contents["arrays/0.npy"] = header + bytes(8)
    write(path, contents.items())
    refuse(path, r"arrays/0\.npy")


# -- members -------------------------------------------------------------------------------------

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
BOMB = ("arrays/0.npy", bytes(100 * 2**20))

#: Members made of those of a file, how they are stored, and the error.
ARCHIVES = {
    "compressed": (lambda c: c, DEFLATED, "compressed"),
    "bomb": (lambda c: [c[0], BOMB], DEFLATED, "compressed"),
    "bomb as manifest": (lambda c: [(c[0][0], b"[" * 10_000_000)], DEFLATED, "compressed"),
    "tuples": (lambda c: [(c[0][0], b'{"tuple": [' * 100_000)], STORED, "JSON"),
    "array twice": (lambda c: [*c, c[-1]], STORED, "does not belong there|there is no array"),
    "outside": (lambda c: [*c, ("../evil", b"evil")], STORED, "does not belong there"),
    "one too many": (lambda c: [*c, ("arrays/99.npy", b"")], STORED, "does not belong there"),
    "long name": (lambda c: [*c, ("x" * 300, b"")], STORED, "does not belong there"),
    "missing": (lambda c: c[:-1], STORED, "does not belong there|there is no array"),
    "no manifest": (lambda c: c[1:], STORED, "without a manifest"),
    "exchanged": (lambda c: [c[0], c[2], c[1], *c[3:]], STORED, "not belong there|is no array"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ARCHIVES)
def test_members_of_another_kind(name, path):
    make, compression, message = ARCHIVES[name]
    write(path, make(list(members(path).items())), compression)
    assert path.stat().st_size < 2 * 2**20
    refuse(path, message)
    assert os.listdir(path.parent) == ["model.rankrls"]
