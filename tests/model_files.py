"""Model files of every kind, taken apart and put together again, rightly or wrongly."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import tracemalloc
import warnings
import zipfile
from dataclasses import replace
from types import ModuleType
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, SelectPercentile, VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from rankrls import (
    AutoRanker,
    ConditionalRankRLS,
    ConditionalRankRLSCV,
    GreedyRankRLS,
    RankRLS,
    RankRLSCV,
    RankSVM,
)
from rankrls.diagnostics import explain
from rankrls.estimators import auto
from rankrls.estimators.auto_members import TreeMember
from rankrls.estimators.incremental import SeenQueries
from rankrls.export import linear_scores
from rankrls.io import load_model, save_model
from rankrls.io._archive import Budget
from rankrls.io._values import Decoder
from rankrls.preprocessing import QueryScaler
from rankrls.preprocessing.trees import Forest


def members(path):
    """Names and contents, in the order of the file."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path, contents, compression=zipfile.ZIP_STORED):
    """Write (name, content) pairs, twice the same name if asked for."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in contents:
            archive.writestr(zipfile.ZipInfo(name), content, compression)


def forge(path, change):
    """Rewrite a file by ``change(manifest, add)``; ``add(array)`` gives the tree of a new array."""
    contents = members(path)
    manifest = json.loads(contents["manifest.json"])

    def add(array):
        number = len(contents) - 1
        stream = io.BytesIO()
        np.save(stream, array)
        contents[f"arrays/{number}.npy"] = stream.getvalue()
        return {"array": number}

    change(manifest, add)
    contents["manifest.json"] = json.dumps(manifest, separators=(",", ":")).encode()
    write(path, contents.items())


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
    assert peak < 2**21 + 64 * path.stat().st_size
    return str(caught.value)


def load_or_none(path):
    """The model; None if it is refused by an error that names the file. No other error will do."""
    try:
        return load_model(path)
    except ValueError as error:
        if str(path) not in str(error):
            raise
        return None


# -- equal to the last bit ---------------------------------------------------------------


def attributes(instance):
    """Without what is computed again when it is needed, and what is not stored."""
    kind = type(instance).__name__
    again = {"_metadata_request", "loss", "_others", "_stop_words_id"}
    again |= {"share", "shares", "isometry"} if kind == "Groups" else set()
    again |= {"_matrices", "_sizes", "_centred"} if kind == "Objects" else set()
    if kind.startswith("Conditional") and hasattr(instance, "_weights"):
        again |= {"_labels", "dual_coef_"}
    return {k: v for k, v in vars(instance).items() if k not in again}


def assert_same(a, b, where=""):
    """The same types, values, dtypes and memory orders, all the way down."""
    assert type(a) is type(b), where
    if isinstance(a, SeenQueries):  # which fills its dict when it is first asked
        np.testing.assert_equal(a.queries, b.queries, where)
    if isinstance(a, np.ndarray):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), where
        assert b.flags.writeable, where
        if a.dtype == object:
            assert_same(a.tolist(), b.tolist(), where)
        else:
            np.testing.assert_array_equal(a, b, where)
        for order in ("c_contiguous", "f_contiguous"):
            assert getattr(a.flags, order) <= getattr(b.flags, order), where
    elif sparse.issparse(a):
        assert a.shape == b.shape
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), where)
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key, value in a.items():
            assert_same(value, b[key], f"{where}.{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), where
        for i, (left, right) in enumerate(zip(a, b, strict=True)):
            assert_same(left, right, f"{where}[{i}]")
    elif hasattr(a, "__dict__") and not isinstance(a, type | ModuleType):
        assert_same(attributes(a), attributes(b), f"{where}.{type(a).__name__}")
    elif not callable(a):
        assert a == b or (a != a and b != b), where


# -- models of every kind -------------------------------------------------------------------

rng = np.random.default_rng(0)
X = rng.standard_normal((12, 3))
WIDE = rng.standard_normal((6, 9))
y = np.array([0, 1, 2, 1, 0, 2, 1, 1, 0, 2, 0, 1])
Y = np.column_stack([y, rng.integers(0, 4, 12)])
qid = np.arange(12) // 4
GRAM = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
PAIRS = [[0, 3], [5, 1], [2, 7], [8, 9]]
MANY_PAIRS = [[i, (3 * i + j) % 12] for i in range(12) for j in (1, 4, 6) if (2 * i + j) % 12]
COLUMNS = rng.standard_normal((9, 2))
GAPS = np.where(rng.random((12, 3)) < 0.1, np.nan, X)


def automatic():
    """Small, with a member of each kind of view; one ranking: ``predict`` gets no qid here."""
    kinds = [auto.View(("hats",), "linear"), auto.View(("partitions",), "linear")]
    views = (*kinds, auto.View(("log",), "rbf"))
    small = replace(auto.EFFORTS["normal"], views=views, n_basis=4, n_trees=2)
    with mock.patch.dict(auto.EFFORTS, quick=small):
        ranker = AutoRanker("pairwise_accuracy", effort="quick", random_state=0)
        return ranker.fit(GAPS, y), GAPS


def automatic_table():
    """Numbers, categories, texts and texts of queries; members with blocks, and a column."""
    words = ["red hat", "blue hat", "no hat", "red and blue", "green shoe", "a shoe"]
    titles = np.array([f"{words[i % 6]} {i}" for i in range(12)], dtype=object)
    asked = np.array([f"{words[i % 5]} please" for i in range(12)], dtype=object)
    X = np.hstack([GAPS, COLOURS[:, :1], titles[:, None], asked[:, None]])
    column = X.shape[1] - 1
    small = replace(auto.EFFORTS["quick"], views=auto.VIEWS[:1])
    with mock.patch.dict(auto.EFFORTS, quick=small):
        ranker = AutoRanker(
            "pairwise_accuracy", effort="quick", random_state=0, query_columns=[column]
        ).fit(X, y)
    ranker._members.append(auto.ColumnMember("x0", 0, "log", 0.5))
    return ranker, X


def automatic_trees():
    """Fitted with queries, and a member of trees, which usually comes from LightGBM."""
    small = replace(auto.EFFORTS["quick"], views=auto.VIEWS[:1])
    with mock.patch.dict(auto.EFFORTS, quick=small):
        ranker = AutoRanker("pairwise_accuracy", effort="quick", random_state=0)
        ranker.fit(X, y, qid=qid)
    left, right = np.array([1, 1, 2]), np.array([2, 1, 2])
    features, thresholds = np.array([8, -1, -1]), np.array([0.1, 0.0, 0.0])
    forest = Forest(np.array([0]), features, thresholds, left, right, np.array([0.0, 0.3, -0.2]))
    ranker._members.append(TreeMember(9, forest, 0.5))
    return ranker, X


COLOURS = np.array([["red", 1], ["blue", 2], [np.nan, 1], ["red", None]] * 3, dtype=object)
TEXTS = np.array(["a red hat", "the blue hat", "no hat", "red and blue"] * 3, dtype=object)
DICTS = np.array([{"size": float(i % 5), "kind": "abc"[i % 3]} for i in range(12)], dtype=object)
TABLE = np.hstack([GAPS, COLOURS, TEXTS[:, None]])


def columns():
    """A table of numbers with gaps, categories and text."""
    text = make_pipeline(SimpleImputer(strategy="most_frequent", add_indicator=True))
    rare = OneHotEncoder(min_frequency=4, drop="first", handle_unknown="infrequent_if_exist")
    encoder = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(add_indicator=True)), [0, 1, 2]),
            ("one", make_pipeline(text, rare), [3]),
            ("number", OneHotEncoder(handle_unknown="ignore", drop=[None]), slice(4, 5)),
            ("words", TfidfVectorizer(), -1),
            ("order", OrdinalEncoder(encoded_missing_value=-2), [3, 4]),
            ("no", "drop", [0]),
        ],
        remainder="passthrough",
        transformer_weights={"words": 2.0},
    )
    return make_pipeline(encoder, RankRLS()).fit(TABLE, y), TABLE


def numbers():
    """One step after another, and some beside each other."""
    beside = ColumnTransformer(
        [
            ("length", Normalizer(), [0, 1, 2]),
            ("tanh", FunctionTransformer(np.tanh), [0, 1]),
            ("best", SelectKBest(k=2), [0, 1, 2]),
            ("some", SelectPercentile(percentile=50), [0, 1, 2]),
            ("sign", Binarizer(), [0]),
            ("terms", make_union(PolynomialFeatures(), PowerTransformer()), [0, 1]),
        ]
    )
    steps = (RobustScaler(), QuantileTransformer(n_quantiles=5), beside, VarianceThreshold())
    return make_pipeline(*steps, PCA(4, random_state=0), RankRLS()).fit(X, y), X


def texts():
    counts = make_pipeline(CountVectorizer(ngram_range=(1, 2)), TruncatedSVD(2))
    parts = (counts, HashingVectorizer(n_features=8), TfidfVectorizer(stop_words=["a"]))
    beside = ColumnTransformer([(f"part {i}", part, 0) for i, part in enumerate(parts)])
    return make_pipeline(beside, RankRLS()).fit(TEXTS[:, None], y), TEXTS[:, None]


def fits(estimator, *args, new=X, **given):
    """Fit a clone when it is asked for, and give the rows to predict as well."""
    return lambda: (clone(estimator).fit(*args, **given), new)


POSITIVE = sparse.csr_array(np.maximum(X, 0))
TWICE = np.hstack([X, X])
SQUARE, OTHERS = GRAM[:5, :5], WIDE.T[:, :2]
PAIR_FEATURES = np.arange(len(MANY_PAIRS))[:, None] % 3 - 1.0
RBF = RankRLS(kernel="rbf")
GIVEN = RankRLS(kernel="precomputed")
CHOSEN = RankRLS(kernel="precomputed", basis=[3, 1, 8])
NAMED = pd.DataFrame(X[:5], list("abcde"))
SEVERAL = ConditionalRankRLS(
    kernel=["rbf", "identity"],
    object_kernel=["profile", "constant"],
    object_kernel_weights=[1.0, 0.5],
    loss="regression",
    fit_offsets="both",
)
TWO_STEP = ConditionalRankRLSCV([[0.1, 1.0], [0.5, 5.0]], pairwise="two-step", cv="columns")
STEPS = (SimpleImputer(), MinMaxScaler(), StandardScaler(), GreedyRankRLS(2), RankRLS())

#: Name: a function that returns (fitted, rows to predict).
MODELS = {
    "automatic": automatic,
    "automatic_table": automatic_table,
    "automatic_trees": automatic_trees,
    "linear": fits(RankRLS(), X, Y, qid=qid),
    "graphs of their own": fits(RankRLS(kernel="rbf", cost="unit"), X, Y, qid=qid),
    "wide": fits(RankRLS(), WIDE, y[:6], new=WIDE),
    "eigenvectors": fits(RankRLS(1e-12), TWICE, y, qid=qid, new=TWICE),
    "rbf": fits(RankRLS(kernel="rbf", ties="drop"), X, y, qid=qid),
    "sparse": fits(RBF, POSITIVE, y, qid=qid, new=POSITIVE),
    "pairs": fits(RBF, X, pairs=PAIRS),
    "scores and pairs": fits(RBF, X, y, qid=qid, pairs=PAIRS[:1]),
    "scores and many pairs": fits(
        RankRLS(kernel="rbf", cost="unit"), X, y, qid=qid, pairs=MANY_PAIRS
    ),
    "joined": lambda: (RankRLS().partial_fit(X, y, qid=qid, pairs=PAIRS), X),
    "precomputed": fits(GIVEN, GRAM, y, qid=qid, new=GRAM),
    "precomputed basis": fits(CHOSEN, GRAM, y, qid=qid, new=GRAM),
    "basis columns": fits(CHOSEN, GRAM[:, [3, 1, 8]], y, qid=qid, new=GRAM[:, [3, 1, 8]]),
    "nystroem": fits(RankRLS(kernel="rbf", basis=4, random_state=0), X, Y, qid=qid),
    "cg": fits(RankRLS(solver="cg", early_stopping=True, random_state=0), X, y, qid=qid),
    "cv": fits(RankRLSCV([0.1, 1.0, 10.0], kernel="rbf"), X, y, qid=qid),
    "judgements": fits(
        RankRLSCV([0.1, 1.0, 10.0], scoring="log_loss"),
        X,
        pairs=MANY_PAIRS,
        pair_features=PAIR_FEATURES,
    ),
    "svm": fits(RankSVM(kernel="rbf", basis=[1, 5, 7]), X, y, qid=qid),
    "svm, linear": fits(RankSVM(), X, Y, qid=qid),
    "pipeline": fits(make_pipeline(*STEPS), GAPS, y, new=GAPS),
    "by query": fits(make_pipeline(MaxAbsScaler(), QueryScaler(), RankRLS()), X, y),
    "columns": columns,
    "numbers": numbers,
    "texts": texts,
    "dicts": fits(make_pipeline(DictVectorizer(), RankRLS()), DICTS, y, new=DICTS),
    "relation": fits(
        ConditionalRankRLS(kernel="rbf", object_kernel="linear"),
        *(X[:5], WIDE[:5], OTHERS),
        new=(X[:2], OTHERS[:3]),
    ),
    "relation, chosen": fits(
        ConditionalRankRLSCV([0.1, 1.0], cv="edges", random_state=0), X[:5], SQUARE, new=(X[:2],)
    ),
    "relation, several kernels": fits(SEVERAL, X[:5], WIDE[:5], OTHERS, new=(X[:2], OTHERS[:3])),
    "relation, two-step": fits(TWO_STEP, X[:5], SQUARE, new=(X[:2],)),
    "relation, named objects": fits(
        ConditionalRankRLS(kernel=["linear", "identity"], loss="regression"),
        *(NAMED, SQUARE),
        new=(pd.DataFrame(X[:2], ["a", "z"]),),
    ),
}


class Stored:
    """A model file in memory: its tree, its arrays, and a loader of changed ones."""

    def __init__(self, model, path):
        save_model(model, path)
        self.path = path
        self.size = path.stat().st_size
        contents = members(path)
        self.tree = json.loads(contents.pop("manifest.json"))["model"]
        self.arrays = [np.load(io.BytesIO(content)) for content in contents.values()]

    def load(self, tree=None, arrays=None):
        """The model; None if it is refused. Whatever happens is within the budget."""
        arrays = self.arrays if arrays is None else arrays
        budget = Budget(self.size)

        def array(number):
            budget.charge(arrays[number].nbytes, "an array")
            return arrays[number].copy()

        with contextlib.suppress(Exception):  # `load_model` makes a ValueError of any
            return Decoder(array, budget.charge).decode(self.tree if tree is None else tree)
        return None


# -- damage ---------------------------------------------------------------------------------


def uses(model, new):
    """What else a model may be asked; it may refuse by a ValueError."""
    X = new[0]
    yield lambda: (hasattr(model, "coef_"), hasattr(model, "dual_coef_"), repr(model))
    if hasattr(model, "score"):  # a forged file can be that of a transformer
        yield lambda: model.score(X, y[: X.shape[0]])
    if X.ndim == 2:
        yield lambda: explain(model, X[:1], X[1:2])
    yield lambda: linear_scores(model, missing="ignore")
    yield lambda: clone(model)
    if hasattr(model, "transform") and hasattr(model, "get_feature_names_out"):
        yield model.get_feature_names_out
    if hasattr(model, "steps") and hasattr(model[:-1], "inverse_transform"):
        yield lambda: model[:-1].inverse_transform(model[:-1].transform(X))
    if isinstance(model, RankRLS | RankRLSCV):
        yield lambda: model.predict(X, return_std=True)
        yield lambda: model.preference_proba(X[:2], X[1:3])
        yield model.log_marginal_likelihood
        yield lambda: model.partial_fit(X[:4], y[:4], qid=[77] * 4)
        yield lambda: model.forget(X[:4], y[:4], qid=qid[:4])
    if isinstance(model, ConditionalRankRLS | ConditionalRankRLSCV):
        yield lambda: model.predict(*new, return_std=True)
        yield lambda: model.predict_edges(X, new[-1], [0, 1], [1, 0])
        yield lambda: model.preference_proba(X[:1], new[-1][:1], new[-1][1:2])
        yield lambda: model.partial_fit(X, np.ones((X.shape[0], new[-1].shape[0])), *new[1:])
        yield lambda: model.forget(model._rows.X[:1])


def answers(model, new, *, finite):
    """Ask for predictions: an array, or a ValueError."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        new = new if isinstance(new, tuple) else (new,)
        options = {"qid": qid} if isinstance(model, AutoRanker) and model._with_qid else {}
        try:
            use = model.predict if hasattr(model, "predict") else model.transform
            scores = use(*new, **options)
        except ValueError:
            return False
        except (TypeError, AttributeError) as error:
            # A number among text, or a dict among numbers: scikit-learn takes rows as they are.
            rows = str(getattr(new[0], "dtype", "")) == "object"
            if rows and (isinstance(error, TypeError) or "'lower'" in str(error)):
                return False
            raise
        assert scores.shape[0] == new[0].shape[0]
        assert not finite or np.isfinite(scores).all()
        for use in uses(model, new):
            with contextlib.suppress(ValueError):
                use()
    return True


def places(tree, where=()):
    """Paths to all values of a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield (*where, key)
        if isinstance(value, dict | list):
            yield from places(value, (*where, key))


def changed(tree, where, value):
    tree = copy.deepcopy(tree)
    inner = tree
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    return tree


def entry(values, number):
    """The array with one number in its middle."""
    out = values.copy()
    out.reshape(-1)[out.size // 2] = number
    return out


def smallest(values):
    return np.iinfo(values.dtype).min if values.dtype.kind in "iu" else -1e300


def largest(values):
    return np.iinfo(values.dtype).max if values.dtype.kind in "iu" else 1e300


#: Damages of arrays that have entries.
ARRAYS = {
    "NaN": lambda v: entry(v, np.nan) if v.dtype.kind == "f" else None,
    "infinite": lambda v: entry(v, np.inf) if v.dtype.kind == "f" else None,
    "negative": lambda v: entry(v, -1) if v.dtype.kind in "if" else None,
    "zero": lambda v: entry(v, 0),
    "just outside": lambda v: entry(v, v.max() + 1) if v.dtype.kind in "iu" else None,
    "smallest": lambda v: entry(v, smallest(v)) if v.dtype.kind != "b" else None,
    "largest": lambda v: entry(v, largest(v)) if v.dtype.kind != "b" else None,
    "all the same": lambda v: np.full_like(v, v.reshape(-1)[0]),
    "zeros": np.zeros_like,
    "backwards": lambda v: v.reshape(-1)[::-1].reshape(v.shape).copy(),
    "one row less": lambda v: v[:-1],
    "one column less": lambda v: v[..., :-1] if v.ndim > 1 else None,
    "one row more": lambda v: np.concatenate([v, v[:1]]) if v.ndim else None,
    "nothing": lambda v: v[:0],
    "no columns": lambda v: v[..., :0] if v.ndim > 1 else None,
    "no columns, many rows": lambda v: np.zeros((10**6, *(0 for _ in v.shape[1:])), v.dtype),
    "transposed": lambda v: v.T if v.ndim > 1 and v.shape != v.T.shape else None,
    "another axis": lambda v: v[None],
    "flat": lambda v: v.reshape(-1) if v.ndim > 1 else None,
    "half precision": lambda v: np.ones(v.shape, np.float16) if v.dtype.kind == "f" else None,
    "integers": lambda v: np.ones(v.shape, np.int64) if v.dtype.kind == "f" else None,
    "floats": lambda v: v.astype(np.float64) if v.dtype.kind in "iub" else None,
}

#: What stands in place of other values of the manifest.
VALUES = [
    None, True, False, -1, 0, 1, 7, 2**31, 2**62, 10**30, -(2**63), 0.5, -1e300, "", "rbf", "x", [],
    [[]], {}, {"float": "nan"}, {"float": "inf"}, {"tuple": []}, {"tuple": [1, 2]}, {"set": [1]},
    {"dict": {}}, {"dict": {"gamma": 1}}, {"scalar": "int64", "value": -5},
    {"items": ["a"], "shape": [1], "dtype": "O"},
]  # fmt: skip
