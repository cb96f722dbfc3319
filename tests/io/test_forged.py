"""Files that are forged: one ValueError that names the file, little time and memory."""

import copy

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from model_files import edit, forge, load_or_none, refuse, write
from rankrls import AutoRanker, ConditionalRankRLS, RankRLS
from rankrls.io import describe_model, load_model, save_model
from rankrls.io._values import Decoder
from rankrls.preprocessing import TableEncoder

rng = np.random.default_rng(0)
X = rng.standard_normal((8, 2))
y = rng.integers(0, 3, 8)
SQUARE = rng.standard_normal((8, 8))
ROWS, COLUMNS = rng.standard_normal((12, 3)), rng.standard_normal((9, 2))
TWO_KINDS = ConditionalRankRLS().fit(ROWS, rng.standard_normal((12, 9)), COLUMNS)


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "model.rankrls"
    save_model(RankRLS().fit(X, y), target)
    return target


# -- the manifest ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "JSON"),
        (b"[]", "not a JSON object"),
        (b'{"format": "rankrls", "format": "rankrls"}', "twice"),
        (b'{"format": NaN}', "NaN is not a number"),
        (b'{"format": "rankrls"}', "format None"),
        (b'{"format": "rankrls", "format_version": 2}', "what wrote it"),
        (b'{"format": "rankrls", "format_version": 3, "versions": {}}', "newer"),
        (b'{"format": "rankrls", "format_version": 1, "versions": {}}', "fit the model again"),
        (b'{"format": "rankrls", "format_version": 2, "versions": {}}', "no model"),
        (b'{"format": "rankrls", "format_version": 2, "versions": {}, "model": 1}', "not a model"),
    ],
)
def test_manifests(text, message, path):
    write(path, [("manifest.json", text)])
    refuse(path, message)


@pytest.mark.parametrize("model", [1, {"tuple": []}, {"object": None}, {"object": ["RankRLS"]}])
def test_descriptions_of_what_is_no_model(model, path):
    edit(path, lambda manifest: manifest.update(model=model))
    with pytest.raises(ValueError, match=r"model\.rankrls cannot be loaded: a model that is no"):
        describe_model(path)


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
    "part as a model": (lambda m: m.update(model=model_of(m)), "which is not a model"),
    "unknown value": (put(params, "alpha", {"call": "os.system"}), "unknown kind"),
    "two tags": (put(params, "alpha", {"tuple": [], "dict": {}}), "wrong parts"),
    "unknown parameter": (put(params, "hook", 1), "RankRLS has no 'hook'"),
    "attribute lacks": (lambda m: fields(m).pop("_flat") and None, "RankRLS lacks _flat"),
    "object as parameter": (
        lambda m: params(m).update(random_state=copy.deepcopy(model_of(m))),
        "random_state of RankRLS",
    ),
    "another kernel": (put(params, "kernel", "rbf"), "kernel='rbf' and a model of another kernel"),
    "endless basis": (put(params, "basis", [10**400]), "basis of RankRLS must be"),
    "features": (put(fields, "n_features_in_", 3), "not a valid RankRLS"),
    "no finite number": (
        lambda m: model_of(m)["fields"]["solvers"][0]["fields"].update(rounding=10**30),
        r"rounding of PrimalSolver must be finite.*\(in RankRLS._model.FittedFunction",
    ),
    "no such array": (put(fields, "n_pairs_", {"array": 99}), "no array 99"),
    "number": (put(fields, "n_iter_", {"float": "1e5"}), "no such number"),
    "scalar": (put(fields, "n_iter_", {"scalar": "int8", "value": 300}), "300 is not a int8"),
    "deep": (put(params, "basis", nested(400)), "recursion"),
    "requests": (put(lambda m: m["model"], "requests", {"fit": {"dict": {"qid": 5}}}), "request"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_forged(name, path):
    change, message = FORGED[name]
    edit(path, lambda manifest: (change(manifest), None)[1])
    refuse(path, message)


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


@pytest.mark.parametrize(
    ("indptr", "indices", "n_rows"),
    [
        ([0, 10**9, 0], [0, 0, 0], 2),  # no entries at all, but for the rows between
        ([0, 2**31 - 1, -(2**31), -1, 2, 3], [0, 0, 0], 5),  # whose differences overflow
        *(([1, 2, 3], [0, 0, 0], 2), ([0, 3, 2, 3], [0, 0, 0], 3), ([0, 2, 4], [0, 0, 0], 2)),
        *(([0, -1, 3], [0, 0, 0], 2), ([0, 2, 3], [0, 2, 0], 2), ([0, 2, 3], [0, -1, 0], 2)),
        *(([0, 2, 3], [0, 0, 0], 3), ([0, 2, 3], [0, 0], 2)),
    ],
)
def test_sparse_arrays_that_point_elsewhere(indptr, indices, n_rows):
    """SciPy lets the first two pass, and a product with them reads any memory."""
    arrays = [np.ones(3), np.array(indices, dtype=np.int32), np.array(indptr, dtype=np.int32)]
    parts = {name: {"array": i} for i, name in enumerate(("data", "indices", "indptr"))}
    with pytest.raises(ValueError, match="a sparse array"):
        Decoder(arrays.__getitem__, lambda n_bytes, what: None).decode(
            {"csr": "array", "shape": [n_rows, 2], **parts}
        )


# -- small files that ask for much -----------------------------------------------------------------


def seen(manifest):
    return fields(manifest)["_seen"]["fields"]


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


def parameter(name, value):
    return lambda manifest, add: params(manifest).__setitem__(name, value)


WIDE_TEXTS = {"items": ["x" * 10**4, *[""] * 10**4], "shape": [10_001], "dtype": "U"}

MANY_PARAMS = {"dict": {str(i): 1 for i in range(20_000)}}

BOMBS = {
    "empty lists": (parameter("basis", [[]] * 100_000), "would take"),
    "dicts": (parameter("kernel_params", MANY_PARAMS), "kernel_params"),
    "texts of one width": (parameter("basis", WIDE_TEXTS), "would take"),
    "no entries, many outputs": (
        lambda m, add: model_of(m)["fields"].update(coef=add(np.zeros((1, 0, 2**27)))),
        "more than the file has bytes",
    ),
    "labels in many sets": (sets, "would take|joined before"),
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
        refuse(path, "(labels|joined) of SeenQueries must be")
        forge(path, lambda m, add, other=other: seen(m).update(joined=[{"tuple": [other, 3]}]))
        refuse(path, "(labels|joined) of SeenQueries must be")


# -- found by fuzzing ----------------------------------------------------------------------------


def test_rows_that_are_larger_than_the_file(path):
    """The row of a probe must not be made from a number of the file alone."""
    encoder = TableEncoder().fit([["a", 1.0], ["b", 2.0], ["a", 3.0]])
    ranker = RankRLS(kernel="precomputed", basis=[3, 1]).fit(X @ X.T, y)
    for model in (ranker, encoder, RankRLS().fit(X, y)):
        save_model(model, path)
        edit(path, lambda m: fields(m).update(n_features_in_=2**41))
        assert load_or_none(path) is None or model is ranker


def test_models_that_failed_when_they_were_used(path):
    """They predicted, but could not explain or learn."""
    save_model(AutoRanker("pairwise_accuracy", effort="quick", random_state=0).fit(X, y), path)
    edit(path, lambda m: fields(m).update(n_features_in_=7))
    refuse(path, "columns of another table")
    save_model(RankRLS(kernel="rbf", basis=[0, 3, 5]).fit(X, y), path)
    edit(path, lambda m: model_of(m)["fields"].update(basis=None))
    refuse(path, "a model that has learned half")


def test_descriptions_are_of_text(path):
    """A description is not checked by making the model, and is printed."""
    save_model(make_pipeline(StandardScaler(), RankRLS()).fit(X, y), path)
    for name, change in (
        ("steps", lambda m: params(m)["steps"][1]["tuple"].__setitem__(0, 3)),
        ("feature_names", lambda m: fields(m).update(feature_names_in_=3)),
        ("history", lambda m: fields(m).update(_source={"dict": {"history": [1]}})),
    ):
        forged = path.with_name(name)
        forged.write_bytes(path.read_bytes())
        edit(forged, change)
        with pytest.raises(ValueError, match=f"cannot be loaded: its {name} are not text"):
            describe_model(forged)


def test_messages_do_not_repeat_the_file(path):
    save_model(ConditionalRankRLS(kernel=["linear", "identity"]).fit(X, SQUARE), path)
    edit(path, lambda m: m["model"]["params"].update(kernel=["linear", "identity"] * 1000))
    assert len(refuse(path, "another kernel")) < 2000


# -- relations -----------------------------------------------------------------------------------


RELATIONS = {
    "size 2 is different from 3": lambda m: m["fields"].update(
        _columns=m["fields"]["_rows"], _two_domains=True
    ),
    "relation must be one of": lambda m: m["params"].update(relation="none"),
    "object_kernel='rbf' and a model of another kernel, 'linear'": lambda m: m["params"].update(
        object_kernel="rbf"
    ),
    "alpha must be finite and > 0": lambda m: m["params"].update(alpha=-1),
    "object has no attribute '_weights'": lambda m: m["fields"].pop("_weights") and None,
}


@pytest.mark.parametrize("message", RELATIONS)
def test_relations_that_do_not_fit_together(message, path):
    save_model(TWO_KINDS, path)
    edit(path, lambda manifest: RELATIONS[message](manifest["model"]))
    refuse(path, message)
