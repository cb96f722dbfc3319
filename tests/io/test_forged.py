"""Files that are forged: one ValueError that names the file, little time and memory."""

import copy

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from model_files import automatic_trees, forge, load_or_none, refuse, write
from rankrls import AutoRanker, ConditionalRankRLS, RankRLS
from rankrls.io import describe_model, load_model, save_model
from rankrls.io._values import Decoder
from rankrls.preprocessing import TableEncoder

rng = np.random.default_rng(0)
X = rng.standard_normal((8, 2))
y = rng.integers(0, 3, 8)
SQUARE = rng.standard_normal((8, 8))
ROWS, COLUMNS = rng.standard_normal((12, 3)), rng.standard_normal((9, 2))

LINEAR = RankRLS().fit(X, y)
BY_QUERY = RankRLS().fit(X, y, qid=np.arange(8) // 2)
SPARSE = RankRLS(kernel="rbf").fit(sparse.csr_array(np.maximum(X, 0)), y)
NYSTROEM = RankRLS(kernel="rbf", basis=[0, 3, 5]).fit(X, y)
TWO_KINDS = ConditionalRankRLS().fit(ROWS, rng.standard_normal((12, 9)), COLUMNS)
TWO_KERNELS = ConditionalRankRLS(kernel=["linear", "identity"]).fit(X, SQUARE)


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "model.rankrls"
    save_model(LINEAR, target)
    return target


# -- the manifest ----------------------------------------------------------------------------------


FILE = '{"format": "rankrls", "format_version": 2, "versions": {}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "JSON"),
        ("[]", "not a JSON object"),
        ('{"format": "rankrls", "format": "rankrls"}', "twice"),
        ('{"format": NaN}', "NaN is not a number"),
        ('{"format": "rankrls"}', "format None"),
        ('{"format": "rankrls", "format_version": 2}', "what wrote it"),
        ('{"format": "rankrls", "format_version": 7, "versions": {"rankrls": "9.9"}}',
         r"model.rankrls.*rankrls '9.9' in format 7.*reads format 2.*install a newer"),
        ('{"format": "rankrls", "format_version": 1, "versions": {}}', "fit the model again"),
        (f"{FILE}}}", "no model"),
        (f'{FILE}, "model": 1}}', "not a model"),
        (f'{FILE}, "model": {{"tuple": []}}}}', "not a model"),
        (f'{FILE}, "model": {{"object": ["RankRLS"]}}}}', "unknown type"),
        (f'{FILE}, "model": {{"object": null}}}}', "unknown type"),
    ],
)  # fmt: skip
def test_manifests(text, message, path):
    write(path, [("manifest.json", text.encode())])
    refuse(path, message)
    with pytest.raises(ValueError, match=r"model\.rankrls cannot be loaded"):
        describe_model(path)


# -- values of the manifest, and small files that ask for much -------------------------------------


def model(manifest):
    return manifest["model"]


def params(manifest):
    return manifest["model"]["params"]


def fields(manifest):
    return manifest["model"]["fields"]


def inner(manifest):
    return fields(manifest)["_model"]["fields"]


def solver(manifest):
    return inner(manifest)["solvers"][0]["fields"]


def seen(manifest):
    return fields(manifest)["_seen"]["fields"]


def put(where, **values):
    """Change some values of an object of the manifest; ``...`` deletes one."""

    def change(manifest, add):
        where(manifest).update(values)
        for name in [name for name, value in values.items() if value is ...]:
            del where(manifest)[name]

    return change


def nested(depth):
    return {"tuple": [nested(depth - 1)]} if depth else 1


def a_part_as_the_model(manifest, add):
    manifest["model"] = fields(manifest)["_model"]


def a_part_as_a_parameter(manifest, add):
    params(manifest)["random_state"] = copy.deepcopy(fields(manifest)["_model"])


def many_columns(manifest, add):
    """A product of sparse rows takes memory for every column."""
    fields(manifest)["n_features_in_"] = 2**31 - 2
    inner(manifest)["rows"]["shape"][1] = 2**31 - 2


def one_array_by_many(manifest, add):
    """One array that is looked at a thousand times."""
    solver(manifest)["largest"] = add(np.ones(50_000))
    inner(manifest)["solvers"] = [[solver(manifest)["largest"]] * 1000]


def pipelines(manifest, add):
    step = {"tuple": ["a", {"object": "Pipeline", "params": {"steps": []}, "fields": {}}]}
    manifest["model"] = {"object": "Pipeline", "params": {"steps": [step] * 5000}, "fields": {}}


def nested_pipelines(manifest, add):
    """scikit-learn would ask the innermost estimator 2**60 times whether it is fitted."""
    for _ in range(60):
        step = {"tuple": ["a", manifest["model"]]}
        manifest["model"] = {"object": "Pipeline", "params": {"steps": [step]}, "fields": {}}


def no_entries_but_many_outputs(manifest, add):
    inner(manifest)["coef"] = add(np.zeros((1, 0, 2**27)))


def long_paths(manifest, add):
    """As many trees as nodes, which follow one another: predicting takes their product."""
    members = [one["fields"] for one in fields(manifest)["_members"]]
    places = np.arange(20_000)
    following = np.minimum(places + 1, len(places) - 1)
    features = np.where(following > places, 0, -1)
    names = ("roots", "features", "thresholds", "left", "right", "values")
    values = (0 * places, features, 0.0 * places, following, following, 0.0 * places)
    forest = next(one["forest"] for one in members if "forest" in one)["fields"]
    forest.update(zip(names, map(add, values), strict=True))


def other_columns(manifest, add):
    fields(manifest).update(_columns=fields(manifest)["_rows"], _two_domains=True)


MANY_PARAMS = {"dict": {str(i): 1 for i in range(20_000)}}
MANY_SETS = [{"tuple": [[str(2**40 + i) for i in range(5000)], 3]}] * 100
WIDE_TEXTS = {"items": ["x" * 10**4, *[""] * 10**4], "shape": [10_001], "dtype": "U"}

#: A model, what is changed in its file, and the error.
FORGED = [
    (LINEAR, put(model, object="Ridge"), "unknown type, 'Ridge'"),
    (LINEAR, a_part_as_the_model, "which is not a model"),
    (LINEAR, put(params, alpha={"call": "os.system"}), "unknown kind"),
    (LINEAR, put(params, alpha={"tuple": [], "dict": {}}), "wrong parts"),
    (LINEAR, put(params, hook=1), "RankRLS has no 'hook'"),
    (LINEAR, put(fields, _flat=...), "RankRLS lacks _flat"),
    (LINEAR, a_part_as_a_parameter, "random_state of RankRLS"),
    (LINEAR, put(params, kernel="rbf"), "kernel='rbf' and a model of another kernel"),
    (LINEAR, put(params, basis=[10**400]), "basis of RankRLS must be"),
    (LINEAR, put(fields, n_features_in_=3), "statistics of other features"),
    (LINEAR, put(solver, rounding=10**30),
     r"rounding of PrimalSolver must be finite.*\(in RankRLS._model.FittedFunction"),
    (LINEAR, put(fields, n_pairs_={"array": 99}), "no array 99"),
    (LINEAR, put(fields, n_iter_={"float": "1e5"}), "no such number"),
    (LINEAR, put(fields, n_iter_={"scalar": "int8", "value": 300}), "300 is not a int8"),
    (LINEAR, put(params, basis=nested(400)), "recursion"),
    (LINEAR, put(model, requests={"fit": {"dict": {"qid": 5}}}), "request"),
    (SPARSE, many_columns, "a sparse array has 2,147,483,646 columns, and may have 67,"),
    (BY_QUERY, put(params, basis=[[]] * 100_000), "would take"),
    (BY_QUERY, put(params, kernel_params=MANY_PARAMS), "kernel_params"),
    (BY_QUERY, put(params, basis=WIDE_TEXTS), "would take"),
    (BY_QUERY, no_entries_but_many_outputs, "more than the file has bytes"),
    (BY_QUERY, put(seen, joined=MANY_SETS), "would take|joined before"),
    (BY_QUERY, one_array_by_many, "would take"),
    (BY_QUERY, nested_pipelines, "nested more than 8 deep: put the steps into one"),
    (BY_QUERY, pipelines, "more than 1000 estimators|would take|Pipeline"),
    # Found by fuzzing: models that predicted, but could not explain or learn.
    (AutoRanker("pairwise_accuracy", effort="quick", random_state=0).fit(X, y),
     put(fields, n_features_in_=7), "columns of another table"),
    (NYSTROEM, put(inner, basis=None), "a model that has learned half"),
    (automatic_trees()[0], long_paths, "trees of other features"),
    (TWO_KERNELS, put(params, kernel=["linear", "identity"] * 1000), "another kernel"),
    (TWO_KINDS, other_columns, "size 2 is different from 3"),
    (TWO_KINDS, put(params, relation="none"), "relation must be one of"),
    (TWO_KINDS, put(params, object_kernel="rbf"),
     "object_kernel='rbf' and a model of another kernel, 'linear'"),
    (TWO_KINDS, put(params, alpha=-1), "alpha must be finite and > 0"),
    (TWO_KINDS, put(fields, _weights=...), "object has no attribute '_weights'"),
]  # fmt: skip


@pytest.mark.parametrize(("estimator", "change", "message"), FORGED, ids=range(len(FORGED)))
def test_forged(estimator, change, message, path):
    save_model(estimator, path)
    forge(path, change)
    assert len(refuse(path, message)) < 2000  # it does not repeat the file


def test_descriptions_are_of_text(path):
    """A description is not checked by making the model, and is printed."""
    pipeline = make_pipeline(StandardScaler(), RankRLS()).fit(X, y)
    for name, change in (
        ("steps", lambda m, add: params(m)["steps"][1]["tuple"].__setitem__(0, 3)),
        ("feature_names", put(fields, feature_names_in_=3)),
        ("history", put(fields, _source={"dict": {"history": [1]}})),
    ):
        save_model(pipeline, path)
        forge(path, change)
        with pytest.raises(ValueError, match=f"cannot be loaded: its {name} are not text"):
            describe_model(path)


def test_rows_that_are_larger_than_the_file(path):
    """The row of a probe must not be made from a number of the file alone."""
    encoder = TableEncoder().fit([["a", 1.0], ["b", 2.0], ["a", 3.0]])
    ranker = RankRLS(kernel="precomputed", basis=[3, 1]).fit(X @ X.T, y)
    for estimator in (ranker, encoder, LINEAR):
        save_model(estimator, path)
        forge(path, put(fields, n_features_in_=2**41))
        assert load_or_none(path) is None or estimator is ranker


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
    save_model(BY_QUERY, path)

    def change(manifest, add):
        counts, sums = (add(np.ones(len(labels), dtype=kind)) for kind in (np.int64, float))
        seen(manifest).update(labels=add(np.array(labels)), counts=counts, checksums=sums)

    forge(path, change)
    assert all(type(key) is str for key in load_model(path)._seen.queries)
    for other in ([{"tuple": [1, 2]}] * 4, [1, 2, 3, 4]):
        for values in ({"labels": other}, {"joined": [{"tuple": [other, 3]}]}):
            forge(path, put(seen, **values))
            refuse(path, "(labels|joined) of SeenQueries must be")
