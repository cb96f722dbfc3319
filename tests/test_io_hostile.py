"""Files that are damaged, forged or something else: one ValueError that names the file."""

import contextlib
import copy
import gzip
import inspect
import io
import json
import pickle
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from model_files import edit, forge, manifest_of, members, write
from rankrls import RankRLS
from rankrls.io import _archive, describe_model, load_model, save_model
from rankrls.io._kinds import PLAIN
from rankrls.io._records import EstimatorRecord
from rankrls.io._registry import RECORDS
from rankrls.io._values import Decoder

DATA = Path(__file__).parent / "data"

rng = np.random.default_rng(0)
X = rng.standard_normal((8, 2))
y = rng.integers(0, 3, 8)


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "model.rankrls"
    save_model(RankRLS().fit(X, y), target)
    return target


def refuse(path, message="cannot be loaded"):
    """Both readers of a file refuse it, the loader with this message, without much memory."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as caught:
            load_model(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value)
    assert peak < 2**21 + 30 * path.stat().st_size
    return str(caught.value)


def load_or_none(path):
    """The model; None if it is refused by an error that names the file. No other error will do."""
    try:
        return load_model(path)
    except ValueError as error:
        if str(path) not in str(error):
            raise
        return None


# -- other files ---------------------------------------------------------------------------------


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
    "gzip": (gzip.compress, "gzip"),
    "array": (lambda model: b"\x93NUMPY" + model, "an array of NumPy"),
    "arrays": (lambda model: file_of_arrays(), r"zip file without a manifest\.json"),
    "empty zip": (lambda model: b"PK\x05\x06" + bytes(18), "empty zip"),
    "random": (lambda model: rng.bytes(5000), "not a model|damaged"),
    "random zip": (lambda model: b"PK\x03\x04" + rng.bytes(5000), "cut off or damaged"),
    "zeros": (lambda model: bytes(10_000), "not a model"),
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
    """All positions of headers and directories, and every twentieth of the contents."""
    size = path.stat().st_size
    inside = np.zeros(size, dtype=bool)
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            start = info.header_offset + 30 + len(info.filename)
            inside[start + 2 : start + info.file_size - 2] = True
    return np.flatnonzero(~inside | (np.arange(size) % 20 == 0))


def test_truncations_are_noticed(path):
    content = path.read_bytes()
    for length in interesting(path):
        path.write_bytes(content[:length])
        assert load_or_none(path) is None


def test_every_kind_of_byte(path):
    """A changed byte is noticed, or does not matter (dates, permissions …)."""
    content = bytearray(path.read_bytes())
    expected = load_model(path).predict(X)
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
            np.testing.assert_array_equal(loaded.predict(X), expected)
    assert noticed > len(positions) / 2


@pytest.mark.parametrize("seed", range(45))
def test_larger_damage(seed, path):
    rng = np.random.default_rng(seed)
    content = bytearray((DATA / "model_v1_kernel.rankrls").read_bytes())
    start, stop = sorted(rng.integers(0, len(content), 2))
    if seed % 3 == 0:
        del content[start:stop]
    elif seed % 3 == 1:
        content[start:stop] = rng.bytes(stop - start)
    else:
        content[start:start] = content[: stop - start]
    path.write_bytes(content)
    refuse(path)


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


@pytest.mark.parametrize("fields", [(20,), (24,), (20, 24)])
@pytest.mark.parametrize("size", [0, 100, 2**31, 2**32 - 2])
@pytest.mark.parametrize("number", [0, 1])
def test_sizes_of_members(fields, size, number, path):
    """Compressed and real sizes in the directory of the zip file."""
    content = bytearray(path.read_bytes())
    for field in fields:
        struct.pack_into("<I", content, central(content, number) + field, size)
    path.write_bytes(content)
    refuse(path)


@pytest.mark.parametrize("offset", [1, 30, 2**31, 2**32 - 2])
def test_offsets_of_members(offset, path):
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, central(content, 1) + 42, offset)
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


def test_compressed_members(path):
    contents = members(path)
    write(path, contents.items(), zipfile.ZIP_DEFLATED)
    refuse(path, "compressed")


def test_zip_bomb(path):
    """A hundred megabytes of zeros in a small file."""
    contents = list(members(path).items())
    zeros = bytes(2**20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(*contents[0], zipfile.ZIP_STORED)
        with archive.open("arrays/0.npy", "w") as member:
            for _ in range(100):
                member.write(zeros)
    assert path.stat().st_size < 2**20
    refuse(path, "compressed")


def test_bomb_in_place_of_the_manifest(path):
    write(path, [("manifest.json", b"[" * 10_000_000)], zipfile.ZIP_DEFLATED)
    refuse(path, "compressed")
    write(path, [("manifest.json", b"[" * 100_000)])
    refuse(path, "tiny lists")
    write(path, [("manifest.json", b'{"tuple": [' * 100_000)])
    refuse(path, "JSON")


def test_manifest_that_is_too_long(path, monkeypatch):
    monkeypatch.setattr(_archive, "MAX_MANIFEST", 500)
    refuse(path, "its manifest has")
    with pytest.raises(ValueError, match="very many query labels"):
        save_model(load_ranker(), path)


def load_ranker():
    return RankRLS().fit(X, y)


@pytest.mark.parametrize(
    "shape",
    [
        [10**12],
        [10**6, 10**6],
        [2**61],
        [0, 2**61],
        [-1],
        [2**63],
        [2.0],
        [True],
        "3",
        None,
        [1] * 40,
        [3],
    ],
)
def test_shapes_that_are_not_true(shape, path):
    edit(path, lambda manifest: manifest["arrays"][0].update(shape=shape))
    refuse(path, r"arrays/0\.npy")
    with pytest.raises(ValueError, match=r"arrays/0\.npy"):
        describe_model(path)


@pytest.mark.parametrize(
    "dtype",
    [
        "object",
        "O",
        "|O",
        "int32",
        "int64",
        "float16",
        "<f8",
        "complex128",
        "U5",
        "V8",
        "datetime64",
        "",
        5,
        None,
        ["float64"],
    ],
)
def test_types_that_are_not_true(dtype, path):
    edit(path, lambda manifest: manifest["arrays"][0].update(dtype=dtype))
    refuse(path, r"arrays/0\.npy")


@pytest.mark.parametrize("axes", [[1], [0, 1], [-1], "0", None, [True], [0.0]])
def test_axes_that_are_not_true(axes, path):
    edit(path, lambda manifest: manifest["arrays"][0].update(axes=axes))
    refuse(path, r"arrays/0\.npy has axes")


def test_object_arrays(path):
    """A pickle in place of an array, with the manifest in agreement."""
    contents = members(path)
    stream = io.BytesIO()
    np.save(stream, np.array([Trap()], dtype=object), allow_pickle=True)
    contents["arrays/0.npy"] = stream.getvalue()
    write(path, contents.items())
    refuse(path, r"arrays/0\.npy")
    edit(path, lambda manifest: manifest["arrays"][0].update(dtype="object", shape=[1]))
    refuse(path, "'object', which arrays of a model do not")
    size = len(contents["arrays/0.npy"])
    contents["arrays/0.npy"] += bytes(-(size - 128) % 8)
    length = (len(contents["arrays/0.npy"]) - 128) // 8
    write(path, contents.items())
    edit(path, lambda manifest: manifest["arrays"][0].update(shape=[length]))
    refuse(path, r"arrays/0\.npy is not as the manifest says")


# -- members -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/evil",
        "arrays/../../evil",
        "C:\\evil",
        "arrays/99.npy",
        "arrays/",
        "x" * 300,
    ],
)
def test_members_that_do_not_belong_there(name, path):
    write(path, [*members(path).items(), (name, b"evil")])
    refuse(path, "members that do not belong there")
    assert {p.name for p in path.parent.iterdir()} == {"model.rankrls"}


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_members(path):
    contents = list(members(path).items())
    write(path, [*contents, contents[-1]])
    refuse(path, "not those of its table")
    write(path, [contents[0], *contents])
    refuse(path, "manifest.json")


def test_missing_and_exchanged_members(path):
    contents = list(members(path).items())
    write(path, contents[:-1])
    refuse(path, "not those of its table")
    write(path, contents[1:])
    refuse(path, "without a manifest")
    write(path, [contents[0], contents[2], contents[1], *contents[3:]])
    refuse(path, "not those of its table")


# -- the manifest ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "not that of a rankrls model"),
        (b"\xff\xfe", "JSON"),
        (b'{"format": "rankrls", "format": "rankrls"}', "twice"),
        (b'{"format": NaN}', "NaN is not JSON"),
        (b'{"format": 1e999}', "not a number"),
        (b'{"format": ' + b"1" * 5000 + b"}", "JSON"),
        (b'{"format": "rankrls"}', "format None"),
        (b'{"format": "rankrls", "format_version": true}', "format True"),
        (b'{"format": "rankrls", "format_version": 0}', "format 0"),
        (b'{"format": "rankrls", "format_version": 1}', "what wrote it"),
        (b'{"format": "rankrls", "format_version": 2, "versions": {}}', "newer"),
        (b'{"format": "rankrls", "format_version": 1, "versions": {}}', "no model"),
        (b'{"format": "rankrls", "format_version": 1, "versions": {}, "model": 1}', "no table"),
    ],
)
def test_manifests(text, message, path):
    write(path, [("manifest.json", text)])
    refuse(path, message)


def model_of(manifest):
    return manifest["model"]["fields"]["_model"]


def nested(depth):
    return {"tuple": [nested(depth - 1)]} if depth else 1


def put(where, key, value):
    return lambda manifest: where(manifest).__setitem__(key, value)


def params(manifest):
    return manifest["model"]["params"]


def fields(manifest):
    return manifest["model"]["fields"]


FORGED = {
    "type": (put(lambda m: m["model"], "object", "Ridge"), "unknown type, 'Ridge'"),
    "import": (put(lambda m: m["model"], "object", "os.system"), "unknown type, 'os.system'"),
    "no name": (put(lambda m: m["model"], "object", ["RankRLS"]), "unknown type"),
    "part as a model": (lambda m: m.update(model=model_of(m)), "which is not a model"),
    "data as a model": (put(lambda m: m, "model", [1, 2]), "which is not a model"),
    "unknown value": (put(params, "alpha", {"call": "os.system"}), "unknown kind"),
    "two tags": (put(params, "alpha", {"tuple": [], "dict": {}}), "wrong parts"),
    "unknown section": (put(lambda m: m["model"], "code", {}), "wrong parts"),
    "section that is none": (put(lambda m: m["model"], "fields", []), "not an object"),
    "unknown parameter": (put(params, "hook", 1), "RankRLS of the rankrls .* has no 'hook'"),
    "unknown attribute": (put(fields, "predict", 1), "RankRLS of .* has no 'predict'"),
    "private attribute": (put(fields, "__class__", 1), "RankRLS of .* has no '__class__'"),
    "attribute lacks": (lambda m: fields(m).pop("_flat") and None, "RankRLS lacks _flat"),
    "alpha": (put(params, "alpha", "big"), "alpha of RankRLS must be a number; it is 'big'"),
    "negative alpha": (put(params, "alpha", -1.0), "alpha must be"),
    "kernel": (put(params, "kernel", 5), "kernel of RankRLS must be text"),
    "unknown kernel": (put(params, "kernel", "os.system"), "kernel must be"),
    "cost": (put(params, "cost", "none"), "cost must be one of"),
    "gamma": (put(params, "gamma", [1]), "gamma of RankRLS"),
    "bool": (put(params, "degree", True), "degree of RankRLS must be a finite number"),
    "random state": (put(params, "random_state", "x"), "random_state of RankRLS"),
    "object as parameter": (
        lambda m: params(m).update(random_state=copy.deepcopy(model_of(m))),
        "random_state of RankRLS",
    ),
    "another kernel": (put(params, "kernel", "rbf"), "kernel='rbf' and a model of another kernel"),
    "endless gamma": (put(params, "gamma", 10**400), "gamma of RankRLS must be a finite number"),
    "endless degree": (put(params, "degree", 10**400), "degree of RankRLS must be a finite"),
    "endless alpha": (put(params, "alpha", 10**400), "alpha of RankRLS must be a number"),
    "endless iteration": (put(params, "max_iter", 10**400), "max_iter of RankRLS must be an int"),
    "endless seed": (put(params, "random_state", 10**400), "random_state of RankRLS must be"),
    "negative basis": (put(params, "basis", -5), "basis of RankRLS must be an integer >= 1"),
    "endless basis": (put(params, "basis", [10**400]), "basis of RankRLS must be"),
    "features": (put(fields, "n_features_in_", 3), "a model of other than 3 features"),
    "names": (
        put(fields, "feature_names_in_", {"strings": ["a"], "shape": [1], "dtype": "O"}),
        "names of other features",
    ),
    "names of another kind": (put(fields, "feature_names_in_", ["a", "b"]), "feature_names_in_"),
    "array for text": (put(fields, "solver_", {"array": 0}), "solver_ of RankRLS must be text"),
    "no such array": (put(fields, "n_pairs_", {"array": 99}), "no array 99"),
    "negative array": (put(fields, "n_pairs_", {"array": -1}), "no array -1"),
    "array by name": (put(fields, "n_pairs_", {"array": "../x"}), "no array '../x'"),
    "exchanged arrays": (
        lambda m: model_of(m)["fields"].update(coef=model_of(m)["fields"]["alphas"]),
        r"coef of FittedFunction must be a float array of shape \(a, n, k\)",
    ),
    "no solver": (lambda m: model_of(m)["fields"].pop("solvers"), "FittedFunction lacks solvers"),
    "two solvers": (
        lambda m: model_of(m)["fields"]["solvers"].append(model_of(m)["fields"]["solvers"][0]),
        "other outputs",
    ),
    "model of another kind": (
        lambda m: fields(m).update(_model=model_of(m)["fields"]["solvers"][0]),
        "_model of RankRLS must be a FittedFunction",
    ),
    "number": (put(fields, "n_iter_", {"float": "1e5"}), "no such number"),
    "scalar": (put(fields, "n_iter_", {"scalar": "int8", "value": 300}), "300 is not a int8"),
    "half": (put(params, "alpha", {"scalar": "float16", "value": 0.1}), "0.1 is not a float16"),
    "scalar type": (put(fields, "n_iter_", {"scalar": "object", "value": 1}), "type of number"),
    "scalar kind": (put(fields, "n_iter_", {"scalar": "int64", "value": "1"}), "is not a int64"),
    "deep": (put(params, "basis", nested(400)), "recursion"),
    "dict": (put(params, "basis", {"dict": []}), "a dict that is none"),
    "texts": (put(params, "basis", {"strings": [1], "shape": [1], "dtype": "O"}), "something else"),
    "text shape": (put(params, "basis", {"strings": ["a"], "shape": [2], "dtype": "O"}), "shape"),
    "text type": (put(params, "basis", {"strings": [], "shape": [0], "dtype": "S"}), "type 'S'"),
    "wide texts": (
        put(
            params, "basis", {"strings": ["x" * 10**5, *[""] * 999], "shape": [1000], "dtype": "U"}
        ),
        "too many",
    ),
    "requests": (put(lambda m: m["model"], "requests", {"fit": {"dict": {"qid": 5}}}), "request"),
    "request": (put(lambda m: m["model"], "requests", {"fit": {"dict": {"os": True}}}), "os"),
    "method": (put(lambda m: m["model"], "requests", {"params": {"dict": {}}}), "request"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_forged(name, path):
    change, message = FORGED[name]
    edit(path, lambda manifest: (change(manifest), None)[1])
    refuse(path, message)


SPARSE = ("indices", "indptr", "shape", "data")


@pytest.mark.parametrize("part", SPARSE)
@pytest.mark.parametrize("value", [10**6, -1, 2**31, 2**60])
def test_sparse_arrays_that_point_elsewhere(part, value, tmp_path):
    """Compiled code would read and write wherever the indices say."""
    path = tmp_path / "model.rankrls"
    contents = members(DATA / "model_v1_sparse.rankrls")
    manifest = json.loads(contents["manifest.json"])
    rows = model_of(manifest)["fields"]["rows"]
    if part in ("shape", "data"):
        if part == "shape":
            rows["shape"] = [rows["shape"][0], value]
        else:
            rows["data"] = rows["indptr"]
        contents["manifest.json"] = json.dumps(manifest).encode()
    else:
        number = rows[part]["array"]
        name = f"arrays/{number}.npy"
        dtype = np.dtype(manifest["arrays"][number]["dtype"])
        values = np.frombuffer(contents[name][128:], dtype=dtype).copy()
        values[1] = min(value, np.iinfo(dtype).max)
        contents[name] = contents[name][:128] + values.tobytes()
    write(path, contents.items())
    refuse(path)


def test_columns_that_no_model_has(path):
    """A product of sparse rows takes memory for every column."""
    rows = sparse.csr_array(np.maximum(X, 0))
    save_model(RankRLS(kernel="rbf").fit(rows, y), path)

    def change(manifest):
        fields(manifest)["n_features_in_"] = 2**31 - 2
        stored = model_of(manifest)["fields"]["rows"]
        stored["shape"] = [stored["shape"][0], 2**31 - 2]

    edit(path, change)
    refuse(path, "a sparse array has 2,147,483,646 columns, and may have 67,")
    wide = sparse.csr_array((rows.data, rows.indices, rows.indptr), shape=(8, 2**31 - 2))
    ranker = RankRLS(kernel="rbf").fit(rows, y)
    ranker._model.rows = wide
    ranker.n_features_in_ = 2**31 - 2
    with pytest.raises(ValueError, match="rows of FittedFunction has 2,147,483,646 columns"):
        save_model(ranker, path)


@pytest.mark.parametrize(
    "indptr",
    [
        [0, 10**9, 0],  # no entries at all, but for the rows between
        [0, 2**31 - 1, -(2**31), -1, 2, 3],  # whose differences overflow
        [1, 2, 3],
        [0, 3, 2, 3],
        [0, 2, 4],
        [0, -1, 3],
    ],
)
def test_rows_of_sparse_arrays_that_overlap(indptr):
    """SciPy lets the first two pass, and a product with them reads any memory."""
    arrays = [np.ones(3), np.zeros(3, dtype=np.int32), np.array(indptr, dtype=np.int32)]
    parts = {name: {"array": i} for i, name in enumerate(("data", "indices", "indptr"))}
    tree = {"csr": "array", "shape": [len(indptr) - 1, 2], **parts}
    with pytest.raises(ValueError, match="a sparse array"):
        Decoder(arrays.__getitem__, lambda n_bytes, what: None).decode(tree)


FILES = ["linear", "kernel", "relative", "pairs", "path", "sparse", "nystroem", "pipeline"]


@pytest.mark.parametrize("name", FILES)
def test_row_numbers_that_point_elsewhere(name, tmp_path):
    """Integers are indices: those that are none are refused, or (counts) do no harm."""
    path = tmp_path / "model.rankrls"
    source = DATA / f"model_v1_{name}.rankrls"
    contents = members(source)
    new = np.array(json.loads((DATA / "model_v1.json").read_text())[source.name]["X"])
    refused = 0
    for number, entry in enumerate(manifest_of(source)["arrays"]):
        dtype = np.dtype(entry["dtype"])
        if dtype.kind != "i" or 0 in entry["shape"]:
            continue
        member = f"arrays/{number}.npy"
        for value in (-1, 10**6, np.iinfo(dtype).min):
            values = np.frombuffer(contents[member][128:], dtype=dtype).copy()
            values[len(values) // 2] = value
            write(path, (contents | {member: contents[member][:128] + values.tobytes()}).items())
            loaded = load_or_none(path)
            if loaded is None:
                refused += 1
            else:
                ask(loaded, new)
    assert refused


def ask(model, new):
    """Everything that a model can be asked; it may refuse to answer."""
    with contextlib.suppress(ValueError), np.errstate(all="ignore"):
        model.predict(new)
        if isinstance(model, RankRLS):
            model.predict(new, return_std=True)
            model.preference_proba(new[:2], new[1:3])
            model.log_marginal_likelihood()


def test_random_state_that_points_elsewhere(tmp_path):
    path = tmp_path / "model.rankrls"
    ranker = RankRLS(random_state=np.random.RandomState(0)).fit(X, y)
    for change, message in [
        ({"pos": 10**6}, "random state"),
        ({"pos": -1}, "random state"),
        ({"has_gauss": 2}, "random state"),
        ({"gauss": "x"}, "gauss of RandomState"),
        ({"key": {"array": 1}}, "key of RandomState"),
    ]:
        save_model(ranker, path)
        edit(path, lambda m, c=change: params(m)["random_state"]["fields"].update(c))
        refuse(path, message)


# -- small files that ask for much -----------------------------------------------------------------


def seen(manifest):
    return fields(manifest)["_seen"]["fields"]


def triangles(manifest, add):
    """One triangle, expanded a hundred times."""
    n = 200
    parts = {"columns": add(np.ones(n * (n + 1) // 2)), "diagonal": add(np.ones(n)), "alpha": 1.0}
    packed = {"object": "PackedCholesky", "fields": parts}
    params(manifest)["basis"] = [packed] * 100


def sets(manifest, add):
    """The same labels in a hundred sets."""
    labels = [str(2**40 + i) for i in range(5000)]
    seen(manifest)["joined"] = [{"tuple": [labels, 3]}] * 100


def solvers(manifest, add):
    """One array that is looked at a thousand times."""
    solver = model_of(manifest)["fields"]["solvers"][0]
    solver["fields"]["largest"] = add(np.ones(50_000))
    model_of(manifest)["fields"]["solvers"] = [[solver["fields"]["largest"]] * 1000]


def pipelines(manifest, add):
    inner = {"tuple": ["a", {"object": "Pipeline", "params": {"steps": []}, "fields": {}}]}
    manifest["model"] = {"object": "Pipeline", "params": {"steps": [inner] * 5000}, "fields": {}}


def nested_pipelines(manifest, add):
    """scikit-learn would ask the innermost estimator 2**60 times whether it is fitted."""
    for _ in range(60):
        step = {"tuple": ["a", manifest["model"]]}
        manifest["model"] = {"object": "Pipeline", "params": {"steps": [step]}, "fields": {}}


def nested_lists(depth, n):
    made = []
    for _ in range(depth):
        made = [made]
    return [made] * n


def parameter(name, value):
    return lambda manifest, add: params(manifest).__setitem__(name, value)


WIDE_TEXTS = {"strings": ["x" * 10**4, *[""] * 10**4], "shape": [10_001], "dtype": "U"}

MANY_PARAMS = {"dict": {str(i): 1 for i in range(20_000)}}

BOMBS = {
    "empty lists": (parameter("basis", [[]] * 100_000), "tiny lists"),
    "nested lists": (parameter("basis", nested_lists(50, 2000)), "tiny lists"),
    "lists": (parameter("basis", [[1, 2]] * 50_000), "tiny lists"),
    "larger lists": (parameter("basis", [[1, 2, 3, 4]] * 50_000), "would take|basis of RankRLS"),
    "empty tuples": (parameter("basis", [{"tuple": []}] * 50_000), "would take|basis of RankRLS"),
    "empty dicts": (parameter("basis", [{}] * 50_000), "unknown kind|would take"),
    "dicts": (parameter("kernel_params", MANY_PARAMS), "kernel_params"),
    "texts of one width": (parameter("basis", WIDE_TEXTS), "too many"),
    "no entries, many outputs": (
        lambda m, add: model_of(m)["fields"].update(coef=add(np.zeros((1, 0, 2**27)))),
        "more than the file has bytes",
    ),
    "no entries, some outputs": (
        lambda m, add: model_of(m)["fields"].update(coef=add(np.zeros((1, 0, 2000)))),
        "coef of FittedFunction must be .*not empty",
    ),
    "labels in many sets": (sets, "would take|joined before"),
    "one triangle by many": (triangles, "would take"),
    "one array by many": (solvers, "would take"),
    "nested pipelines": (nested_pipelines, "nested more than 8 deep: put the steps into one"),
    "pipelines": (pipelines, "more than 1000 estimators|would take|Pipeline"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_files_that_ask_for_much(name, path):
    change, message = BOMBS[name]
    save_model(RankRLS().fit(X, y, qid=np.arange(8) // 2), path)
    forge(path, change)
    refuse(path, message)


@pytest.mark.parametrize(
    ("scaler", "attribute"),
    [
        (StandardScaler(), "mean_"),
        (StandardScaler(), "var_"),
        (StandardScaler(), "scale_"),
        (MinMaxScaler(), "min_"),
        (MinMaxScaler(), "scale_"),
        (MaxAbsScaler(), "scale_"),
    ],
)
def test_scalers_have_nan_for_empty_columns_only(scaler, attribute, path):
    def change(manifest, add):
        fields(manifest)[attribute] = add(np.array([1.0, np.nan]))

    save_model(clone(scaler).fit(X), path)
    forge(path, change)
    refuse(path, f"{attribute} of {type(scaler).__name__} is NaN in a column that has values")


def chain(bits, length):
    """Numbers whose slots in the table of a dict follow one another, each occupied by the last."""
    slots = [0]
    while len(slots) < length:
        slots.append((5 * slots[-1] + 1) % 2**bits)
    return slots


def test_labels_with_colliding_hash_values(path):
    """Queries are looked up as text, whose hash values nobody can predict."""
    # Slots of a table of 2^13, all taken, and then numbers that begin at the first of them.
    labels = list(dict.fromkeys(chain(13, 3000) + [i << 13 for i in range(1, 2000)]))
    save_model(RankRLS().fit(X, y, qid=np.arange(8) // 2), path)

    def change(manifest, add):
        counts, sums = (add(np.ones(len(labels), dtype=kind)) for kind in (np.int64, float))
        seen(manifest).update(labels=add(np.array(labels)), counts=counts, checksums=sums)

    forge(path, change)
    assert all(type(key) is str for key in load_model(path)._seen.queries)
    for other in ([{"tuple": [1, 2]}] * 4, [1, 2, 3, 4]):
        forge(path, lambda manifest, add, other=other: seen(manifest).update(labels=other))
        refuse(path, "labels of queries that are no text")
        forge(path, lambda m, add, other=other: seen(m).update(joined=[{"tuple": [other, 3]}]))
        refuse(path, "labels of queries that are no text")


def test_threads_are_not_taken_from_a_file(path):
    """Nor stored; files of earlier versions have them."""
    save_model(RankRLS(kernel="rbf", n_jobs=3).fit(X, y), path)
    assert b"n_jobs" not in path.read_bytes()

    def change(manifest):
        params(manifest)["n_jobs"] = 4096
        model_of(manifest)["fields"]["kernel"]["fields"]["n_jobs"] = 4096

    edit(path, change)
    loaded = load_model(path)
    assert loaded.n_jobs is None
    assert loaded._model.kernel.n_jobs is None


def test_every_parameter_has_a_kind():
    for name, record in RECORDS.items():
        if isinstance(record, EstimatorRecord):
            found = inspect.signature(record.cls).parameters
            # scikit-learn checks numbers and text itself (`check_step`).
            kinds = dict.fromkeys(found, PLAIN) if record.module.startswith("sklearn.") else {}
            kinds |= record.params
            assert set(found) - set(record.dropped) <= set(kinds), name
            for parameter in set(found) & set(kinds):
                default = found[parameter].default
                required = default is inspect.Parameter.empty
                assert required or kinds[parameter].accepts(default, {}), parameter


UNUSABLE = {
    "NaN": (lambda v: np.full_like(v, np.nan), "coef of FittedFunction must be .*finite"),
    "infinite": (lambda v: np.full_like(v, -np.inf), "coef of FittedFunction must be .*finite"),
    "no outputs": (lambda v: v[:, :, :0], "coef of FittedFunction must be .*not empty"),
    "no features": (lambda v: v[:, :0], "coef of FittedFunction must be .*not empty"),
    "no alphas": (lambda v: v[:0], "coef of FittedFunction must be"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_models_that_could_not_predict(name, path):
    ranker = RankRLS().fit(X, y)
    change, message = UNUSABLE[name]
    forge(path, lambda m, add: model_of(m)["fields"].update(coef=add(change(ranker._model.coef))))
    assert "(in RankRLS._model.FittedFunction)" in refuse(path, message)


@pytest.mark.parametrize("number", [-1, -(2**31), 10**6])
def test_a_basis_that_points_elsewhere(number, path):
    gram = X @ X.T
    ranker = RankRLS(kernel="precomputed", basis=[3, 1]).fit(gram, y)
    save_model(ranker, path)
    wrong = np.array([3, number])
    basis = lambda m: model_of(m)["fields"]["basis"]["fields"]  # noqa: E731
    forge(path, lambda m, add: basis(m).update(indices=add(wrong)))
    refuse(path, "negative numbers|other than 8 features")


def test_names_may_look_like_json(path):
    """What stands in a string is no structure, and counts only as text."""
    pandas = pytest.importorskip("pandas")
    names = ['"' + "[{" * 20 + str(i) for i in range(2000)]
    frame = pandas.DataFrame(rng.standard_normal((8, 2000)), columns=names)
    save_model(RankRLS(solver="cg").fit(frame, y), path)
    assert list(load_model(path).feature_names_in_) == names
    assert describe_model(path)["feature_names"] == names


def test_tuples_as_labels_may_be_nested(path):
    """Whatever can be saved is within the budget."""
    n = 3000
    labels = np.empty(2 * n, dtype=object)
    labels[:] = [((((),),), (c // 2,), ()) for c in range(2 * n)]
    ranker = RankRLS().fit(np.eye(2)[np.arange(2 * n) % 2], np.arange(2 * n) % 2, qid=labels)
    save_model(ranker, path)
    assert load_model(path)._seen.queries == ranker._seen.queries


# -- every value of a manifest ---------------------------------------------------------------------

ODD = [
    None, True, -1, 0, 3, 10**12, -(10**30), 0.5, 1e308, "", "rbf", [], {}, [[]], {"array": 0},
    {"array": 5}, {"float": "nan"}, {"set": []}, {"tuple": [1]}, {"dict": {}},
]  # fmt: skip


def places(tree, where=()):
    """Paths to all values below a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield (*where, key)
        if isinstance(value, dict | list):
            yield from places(value, (*where, key))


@pytest.mark.parametrize("name", FILES)
def test_any_value_may_be_wrong(name, tmp_path):
    """Whatever stands in a manifest: a ValueError, or a model that answers or refuses."""
    path = tmp_path / "model.rankrls"
    source = DATA / f"model_v1_{name}.rankrls"
    contents = members(source)
    manifest = json.loads(contents["manifest.json"])
    new = np.array(json.loads((DATA / "model_v1.json").read_text())[source.name]["X"])
    rng = np.random.default_rng(0)
    everywhere = list(places(manifest))
    rng.shuffle(everywhere)
    for where in everywhere[:120]:
        changed = copy.deepcopy(manifest)
        inner = changed
        for key in where[:-1]:
            inner = inner[key]
        inner[where[-1]] = ODD[rng.integers(len(ODD))]
        contents["manifest.json"] = json.dumps(changed).encode()
        write(path, contents.items())
        loaded = load_or_none(path)
        if loaded is None:
            continue
        describe_model(path)
        assert type(loaded).__name__ in RECORDS
        if not isinstance(loaded, Pipeline):  # whose last step may be a scaler now
            ask(loaded, new)
