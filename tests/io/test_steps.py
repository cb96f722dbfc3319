"""Transformers of scikit-learn in model files: outputs and predictions equal to the last bit."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import NMF, PCA, TruncatedSVD
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.feature_selection import (
    SelectKBest,
    SelectPercentile,
    f_regression,
    mutual_info_regression,
)
from sklearn.impute import KNNImputer, MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
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

from model_files import edit
from rankrls import GreedyRankRLS, RankRLS, RankRLSCV
from rankrls.io import describe_model, load_model, register_function, save_model

pytestmark = pytest.mark.filterwarnings(
    "ignore::rankrls.exceptions.FeatureScaleWarning",
    "ignore:Found unknown categories",
    "ignore:Skipping features without any observed values",
    "ignore:the best alpha",
    "ignore:the features have scales that are too different",
)

rng = np.random.default_rng(0)
N = 40
y = rng.integers(0, 3, N)
qid = np.repeat(np.arange(8), 5)
X = rng.lognormal(size=(N, 5)) * [1.0, 1e-4, 1e5, 1.0, 1.0]
X[:, 4] = 1.0
GAPS = np.where(rng.random(X.shape) < 0.2, np.nan, X)
GAPS32 = GAPS.astype(np.float32)
EMPTY = np.column_stack([GAPS, np.full(N, np.nan)])
SPARSE = sparse.csr_array(np.where(X > 1, X, 0.0))

#: Strings, whole numbers, gaps of two kinds; new rows have categories that were never seen.
MIXED = np.array([["b", 2, None], ["a", 10, "x"], [np.nan, -1, "y"], ["ü", 2, "x"]] * 10, object)
NEW_MIXED = np.array([["new", 3, "z"], ["a", 2, None], [np.nan, 10, "y"]], object)
WORDS = np.array([["u", "b"], ["v", "aa"], ["u", "b"], ["w", "c"]] * 10)
NUMBERS = rng.integers(-2, 3, (N, 3))
FRAME = pd.DataFrame(
    {
        "price": GAPS[:, 0],
        "clicks": rng.integers(0, 5, N),
        "brand": pd.Categorical(rng.choice(["acme", "bäh", "c d"], N)),
        "colour": np.where(rng.random(N) < 0.3, None, rng.choice(["red", "blue"], N)),
        "title": rng.choice(["a red shoe", "blue hat of wool", "the Shoe", "", "ein Hut, blau"], N),
        "in stock": rng.random(N) < 0.5,
    }
)
NEW_FRAME = FRAME.iloc[[3, 1, 4, 1, 5]].assign(
    brand="unseen", colour=["red", None, "green", "blue", "red"]
)
TEXTS = FRAME["title"].to_numpy(dtype=object)
NEW_TEXTS = np.array(["red hat and a hat", "nothing known", "", "Ein rotes Schuhwerk"], object)
DICTS = [{"length": float(i % 7), "kind": "abc"[i % 3], "n": i} for i in range(N)]
SOME_NUMBERS = ["price", "clicks"]


UNSEEN = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)


def table(**options):
    """What people have in front of a ranker of products."""
    numeric = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    categorical = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="none"),
        OneHotEncoder(handle_unknown="ignore"),
    )
    return ColumnTransformer(
        [
            ("numbers", numeric, SOME_NUMBERS),
            ("brand", OneHotEncoder(handle_unknown="infrequent_if_exist"), ["brand"]),
            ("colour", categorical, ["colour"]),
            ("title", TfidfVectorizer(), "title"),
            ("topics", make_pipeline(CountVectorizer(), TruncatedSVD(2, random_state=0)), "title"),
        ],
        **options,
    )


def logged(values):
    return np.log(np.abs(values) + 1)


def floored(values, least=0.0):
    return np.maximum(values, least)


register_function("logged", logged)
register_function("floored", floored)

#: Transformer, training rows, new rows.
CASES = {
    "RobustScaler, sparse": (RobustScaler(with_centering=False), SPARSE, SPARSE),
    "Binarizer": (Binarizer(threshold=0.7), SPARSE, SPARSE),
    "QuantileTransformer, normal": (
        QuantileTransformer(n_quantiles=40, output_distribution="normal"),
        X.astype(np.float32),
        X[:3].astype(np.float32),
    ),
    "PowerTransformer": (PowerTransformer(), X[:, [0, 3]], X[:4, [0, 3]]),
    "PolynomialFeatures": (PolynomialFeatures(3, include_bias=False), X[:, :3], X[:5, :3]),
    "PolynomialFeatures, sparse": (PolynomialFeatures((2, 3)), SPARSE, SPARSE),
    "SelectKBest, all": (SelectKBest(mutual_info_regression, k="all"), X, X),
    "SelectPercentile": (SelectPercentile(f_regression, percentile=30), X[:, :4], X[:, :4]),
    "two functions": (
        FunctionTransformer(np.sqrt, inverse_func=np.square, feature_names_out="one-to-one"),
        X,
        X,
    ),
    "nan_to_num": (FunctionTransformer(np.nan_to_num, kw_args={"nan": -1.0}), GAPS, GAPS),
    "a function of one's own": (FunctionTransformer(logged), X, X),
    "with options": (FunctionTransformer(floored, kw_args={"least": 0.5}), X, X),
    "identity": (FunctionTransformer(), SPARSE, SPARSE),
    "imputer, float32": (SimpleImputer(strategy="median", add_indicator=True), GAPS32, GAPS32),
    "imputer, empty feature": (SimpleImputer(add_indicator=True), EMPTY, EMPTY),
    "indicator": (MissingIndicator(features="all"), GAPS, GAPS),
    "categories": (OneHotEncoder(handle_unknown="ignore"), MIXED, NEW_MIXED),
    "categories, dropped": (OneHotEncoder(drop="first", handle_unknown="ignore"), MIXED, NEW_MIXED),
    "categories, some dropped": (OneHotEncoder(drop=["v", "b"]), WORDS, WORDS[:3]),
    "categories, numbers": (OneHotEncoder(handle_unknown="ignore"), NUMBERS, NUMBERS + 1),
    "categories, gaps": (OneHotEncoder(handle_unknown="ignore"), np.round(GAPS), np.round(GAPS)),
    "categories, given": (
        OneHotEncoder(categories=[["u", "v", "w", "x"], ["aa", "b", "c"]]),
        WORDS,
        WORDS,
    ),
    "categories, rare": (
        OneHotEncoder(min_frequency=11, drop="first", handle_unknown="infrequent_if_exist"),
        MIXED,
        NEW_MIXED,
    ),
    "ordinal, rare": (
        make_pipeline(
            OrdinalEncoder(min_frequency=11, handle_unknown="use_encoded_value", unknown_value=-1),
            SimpleImputer(),
        ),
        MIXED[:, :2],
        NEW_MIXED[:, :2],
    ),
    "ordinal, of a frame": (
        OrdinalEncoder(dtype=np.int32, handle_unknown="use_encoded_value", unknown_value=99),
        FRAME[["brand", "in stock"]],
        NEW_FRAME[["brand", "in stock"]],
    ),
    "imputer of text": (
        make_pipeline(
            SimpleImputer(strategy="most_frequent", add_indicator=True),
            OneHotEncoder(handle_unknown="ignore"),
        ),
        MIXED[:, :1],
        NEW_MIXED[:, :1],
    ),
    "bins": (KBinsDiscretizer(4, quantile_method="averaged_inverted_cdf"), X[:, :4], X[:5, :4]),
    "bins, dense": (
        KBinsDiscretizer([2, 3], encode="onehot-dense", strategy="uniform", dtype=np.float32),
        X[:, :2],
        X[:5, :2] * 3,
    ),
    "words, other options": (
        TfidfVectorizer(
            ngram_range=(1, 2),
            stop_words=["the", "a"],
            sublinear_tf=True,
            max_features=9,
            dtype=np.float32,
            token_pattern=r"(?u)\b\w+\b",
            strip_accents="unicode",
        ),
        TEXTS,
        NEW_TEXTS,
    ),
    "words, given": (TfidfVectorizer(vocabulary={"hat": 1, "shoe": 0}), TEXTS, NEW_TEXTS),
    "words, english": (CountVectorizer(stop_words="english", binary=True), TEXTS, NEW_TEXTS),
    "hashed": (HashingVectorizer(n_features=2**7), TEXTS, NEW_TEXTS),
    "counts and weights": (make_pipeline(CountVectorizer(), TfidfTransformer()), TEXTS, NEW_TEXTS),
    "dicts": (DictVectorizer(), DICTS, [{"kind": "d", "n": 2}, {"length": 1.5, "kind": "a"}, {}]),
    "dicts, hashed": (FeatureHasher(32), DICTS, DICTS[:3]),
    "table": (table(), FRAME, NEW_FRAME),
    "table, the rest as it is": (
        ColumnTransformer(
            [
                (
                    "o",
                    OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
                    ["brand"],
                )
            ],
            remainder="passthrough",
            verbose_feature_names_out=False,
        ),
        FRAME[["clicks", "brand", "in stock"]],
        NEW_FRAME[["clicks", "brand", "in stock"]],
    ),
    "table, columns chosen by type": (
        make_column_transformer(
            (SimpleImputer(), make_column_selector(dtype_include=np.number)),
            (MaxAbsScaler(), lambda frame: ["clicks"]),
            (StandardScaler(), []),
        ),
        FRAME,
        NEW_FRAME,
    ),
    "slices and masks": (
        ColumnTransformer(
            [
                ("a", StandardScaler(), slice(0, 2)),
                ("b", MinMaxScaler(), np.array([False, False, True, True, False])),
                ("c", "passthrough", [-1]),
                ("d", Normalizer(), np.array([0, 3])),
            ],
            transformer_weights={"a": 0.5},
        ),
        X,
        X[:3],
    ),
    "slice of names": (
        make_column_transformer((SimpleImputer(), slice("price", "clicks"))),
        FRAME,
        NEW_FRAME,
    ),
    "union": (
        FeatureUnion(
            [("pca", PCA(2)), ("same", "passthrough"), ("log", FunctionTransformer(np.log1p))],
            transformer_weights={"pca": 2.0},
        ),
        X,
        X[:3],
    ),
    "deep": (
        make_union(
            make_pipeline(
                make_column_transformer(
                    (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), [0, 1]),
                    remainder=SimpleImputer(),
                ),
                PCA(2),
            ),
            SimpleImputer(),
        ),
        GAPS,
        GAPS[:4],
    ),
    "frames between steps": (
        make_pipeline(SimpleImputer(), StandardScaler()).set_output(transform="pandas"),
        FRAME[SOME_NUMBERS],
        NEW_FRAME[SOME_NUMBERS],
    ),
}


#: scikit-learn has no names for what these give.
WITHOUT_NAMES = {
    *("a function of one's own", "with options", "nan_to_num", "identity", "union"),
    *("hashed", "dicts, hashed"),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.rankrls"


def round_trip(estimator, path):
    save_model(estimator, path)
    return load_model(path)


def dense(values):
    if sparse.issparse(values):
        return values.toarray()
    return np.asarray(values)


@pytest.mark.parametrize("name", CASES)
def test_same_predictions_after_loading(name, path):
    transformer, rows, new = CASES[name]
    pipeline = make_pipeline(clone(transformer), RankRLS(0.5)).fit(rows, y)
    loaded = round_trip(pipeline, path)
    for data in (rows, new):
        np.testing.assert_array_equal(loaded.predict(data), pipeline.predict(data))
        before, after = pipeline[0].transform(data), loaded[0].transform(data)
        assert type(before) is type(after)
        np.testing.assert_array_equal(dense(before), dense(after))
        assert dense(before).dtype == dense(after).dtype
    if name not in WITHOUT_NAMES:
        assert list(loaded[0].get_feature_names_out()) == list(pipeline[0].get_feature_names_out())
    again = path.with_suffix(".again")
    save_model(loaded, again)
    assert again.read_bytes() == path.read_bytes()
    fitted_again = clone(loaded).fit(rows, y)
    np.testing.assert_array_equal(fitted_again.predict(new), pipeline.predict(new))


def test_queries_and_other_rankers_behind_a_table(path):
    model = make_pipeline(table(), RankRLSCV([0.1, 1.0, 10.0]))
    model.fit(FRAME, y, rankrlscv__qid=qid)
    loaded = round_trip(model, path)
    np.testing.assert_array_equal(loaded.predict(NEW_FRAME), model.predict(NEW_FRAME))
    shuffled = NEW_FRAME[NEW_FRAME.columns[::-1]]
    np.testing.assert_array_equal(loaded.predict(shuffled), model.predict(NEW_FRAME))
    with pytest.raises(ValueError, match="columns are missing"):
        loaded.predict(NEW_FRAME.drop(columns="price"))
    steps = describe_model(path)["steps"]
    assert steps["columntransformer"]["type"] == "ColumnTransformer"


def test_what_has_no_record_is_for_skops(path):
    pipeline = make_pipeline(KNNImputer(), RankRLS()).fit(GAPS, y)
    with pytest.raises(
        ValueError, match=r"steps of Pipeline\[0\]\[1\] is a KNNImputer, which cannot"
    ) as caught:
        save_model(pipeline, path)
    message = str(caught.value)
    lines = "import skops.io as sio; sio.dump(model, 'model.skops')"
    assert lines in message
    with pytest.raises(ValueError, match="NMF cannot be saved") as caught:
        save_model(NMF(2).fit(np.abs(X)), path)
    assert lines in str(caught.value)
    # The lines do what they say.
    sio = pytest.importorskip("skops.io")
    file = path.with_suffix(".skops")
    sio.dump(pipeline, file)
    loaded = sio.load(file, trusted=sio.get_untrusted_types(file=file))
    np.testing.assert_array_equal(loaded.predict(GAPS), pipeline.predict(GAPS))


def test_functions_without_a_name(path):
    def own(values):
        return values

    pipeline = make_pipeline(FunctionTransformer(own), RankRLS()).fit(X, y)
    with pytest.raises(
        ValueError, match=r"func of FunctionTransformer is a function.*register_function"
    ):
        save_model(pipeline, path)
    register_function("own", own)
    save_model(pipeline, path)
    np.testing.assert_array_equal(load_model(path).predict(X), pipeline.predict(X))
    edit(path, lambda m: m["model"]["params"]["steps"][0]["tuple"][1]["params"].update(
        func={"function": "elsewhere"}))  # fmt: skip
    with pytest.raises(ValueError, match=r"register_function\('elsewhere', …\) before load_model"):
        load_model(path)
    for bad in ("os.system", "builtins.eval", 3, None):
        edit(path, lambda m, bad=bad: m["model"]["params"]["steps"][0]["tuple"][1][
            "params"].update(func={"function": bad}))  # fmt: skip
        with pytest.raises(ValueError, match="a function that is not known"):
            load_model(path)
    with pytest.raises(ValueError, match="without a dot"):
        register_function("numpy.log1p", own)
    with pytest.raises(ValueError, match="must be callable"):
        register_function("own", 3)


@pytest.mark.parametrize(
    ("transformer", "rows", "message"),
    [
        (
            TfidfVectorizer(tokenizer=str.split, token_pattern=None),
            TEXTS,
            "tokenizer of TfidfVectorizer is a function",
        ),
        (CountVectorizer(analyzer=str.split), TEXTS, "analyzer of CountVectorizer is a function"),
        (CountVectorizer(token_pattern=r"(?:\w+)+x?"), TEXTS, "repeats more than a model file may"),
        (CountVectorizer(token_pattern=r"\w*\w*\w*"), TEXTS, "repeats more than a model file may"),
        (
            SelectKBest(lambda X, y: np.arange(X.shape[1]), k=1),
            X,
            "replace it by set_params",
        ),
        (FunctionTransformer(np.log1p, kw_args={"dtype": "float32"}), X, "takes no options"),
        (
            make_column_transformer(
                (StandardScaler(), [0]), verbose_feature_names_out=lambda a, b: b
            ),
            X,
            "replace it by set_params",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:The parameter 'token_pattern'")
def test_what_is_not_data(transformer, rows, message, path):
    with pytest.raises(ValueError, match=message):
        save_model(clone(transformer).fit(rows, y), path)
    assert not path.exists()


def parameter(path, **values):
    edit(path, lambda m: m["model"]["params"].update(values))


@pytest.mark.parametrize(
    ("transformer", "rows", "values"),
    [
        (HashingVectorizer(n_features=8), TEXTS, {"input": "filename"}),
        (HashingVectorizer(n_features=8), TEXTS, {"ngram_range": {"tuple": [1, 10**6]}}),
        (HashingVectorizer(n_features=8), TEXTS, {"n_features": 2**40}),
        (HashingVectorizer(n_features=8), TEXTS, {"encoding": "zlib"}),
        (HashingVectorizer(n_features=8), TEXTS, {"token_pattern": "(a+)+$"}),
        (HashingVectorizer(n_features=8), TEXTS, {"token_pattern": "a" * 10**4}),
        (HashingVectorizer(n_features=8), TEXTS, {"tokenizer": {"function": "numpy.log1p"}}),
        (PolynomialFeatures(2), X, {"degree": 2**60}),
        (SelectKBest(k=2), X[:, :4], {"score_func": {"function": "numpy.exp"}}),
        (SelectKBest(k=2), X[:, :4], {"k": -1}),
        (OneHotEncoder(), NUMBERS, {"dtype": {"dtype": "object"}}),
        (OneHotEncoder(), NUMBERS, {"drop": [7, 7, 7]}),
        (OneHotEncoder(), NUMBERS, {"max_categories": 2}),
    ],
)
def test_parameters_that_a_stranger_chose(transformer, rows, values, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save_model(clone(transformer).fit(rows, y), path)
    load_model(path)
    parameter(path, **values)
    with pytest.raises(ValueError, match=str(path)):
        load_model(path)


SCALED = make_pipeline(StandardScaler(), RankRLS())
SLICED = make_column_transformer((StandardScaler(), slice(0, 2)), remainder="passthrough")
DROPPED = make_column_transformer((StandardScaler(), [0]), ("drop", [1]))


def twice(model):
    model["params"]["steps"].insert(0, model["params"]["steps"][1])


def many(model):
    model["fields"]["n_features_in_"] = 2**50
    model["fields"]["transformers_"][1]["tuple"][2] = {"tuple": [None, None, None]}


def columns_of(part):
    return lambda model: model["fields"]["transformers_"][1]["tuple"].__setitem__(1, part)


def union_of_nothing(model):
    model["params"]["transformer_list"][1]["tuple"][1] = None


NO_PART = "transformers_ of ColumnTransformer must be"


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        (SCALED, twice, "not unique|should be transformers"),
        (SLICED, many, "would take"),
        (DROPPED, columns_of(None), NO_PART),
        (DROPPED, columns_of("passthrough"), NO_PART),
        (
            make_union(StandardScaler(), "drop"),
            union_of_nothing,
            "transformer_list of FeatureUnion must be",
        ),
    ],
)
def test_parts_that_do_not_fit_together(model, change, message, path):
    save_model(clone(model).fit(X, y), path)
    size = path.stat().st_size
    edit(path, lambda manifest: change(manifest["model"]))
    assert path.stat().st_size < 2 * size
    with pytest.raises(ValueError, match=message):
        load_model(path)


# -- pipelines ------------------------------------------------------------------------------------


def test_pipeline_of_everything(path):
    pipeline = Pipeline(
        [
            ("inner", make_pipeline(MinMaxScaler(), "passthrough")),
            ("nothing", None),
            ("select", GreedyRankRLS(2)),
            ("rank", RankRLS(0.5, random_state=3)),
        ],
        memory=str(path.parent / "cache"),
    ).fit(X, y)
    loaded = round_trip(pipeline, path)
    np.testing.assert_array_equal(pipeline.predict(X), loaded.predict(X))
    assert loaded.memory is None
    assert b"cache" not in path.read_bytes()
    steps = describe_model(path)["steps"]
    assert steps["nothing"] is None
    assert steps["inner"]["steps"]["passthrough"] is None
    assert steps["rank"]["parameters"]["random_state"] == 3


def test_pipelines_in_pipelines(path):
    pipeline = make_pipeline(StandardScaler(), RankRLS())
    for _ in range(6):
        pipeline = make_pipeline(pipeline)
    pipeline.fit(X, y)
    np.testing.assert_array_equal(pipeline.predict(X), round_trip(pipeline, path).predict(X))
    with pytest.raises(ValueError, match="nested more than 8 deep: put the steps into one"):
        save_model(make_pipeline(pipeline).fit(X, y), path)


def test_wide_steps_take_little_memory(path):
    """The file is smaller than a dense row would be."""
    pipeline = make_pipeline(HashingVectorizer(n_features=2**22), Normalizer()).fit(TEXTS)
    loaded = round_trip(pipeline, path)
    assert (loaded.transform(NEW_TEXTS) != pipeline.transform(NEW_TEXTS)).nnz == 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of scikit-learn
@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(), MaxAbsScaler()])
def test_scalers_of_gaps_and_of_empty_columns(scaler, path):
    gaps = EMPTY[:, [0, 1, 5]]
    fitted = clone(scaler).fit(gaps)
    np.testing.assert_array_equal(round_trip(fitted, path).transform(gaps), fitted.transform(gaps))


@pytest.mark.parametrize(
    ("imputer", "rows", "message"),
    [
        (SimpleImputer(strategy=np.ma.median), GAPS, "strategy of SimpleImputer"),
        (
            SimpleImputer(strategy="most_frequent"),
            np.array([[1 + 2j], [3j]], dtype=object),
            "array of Python objects|must be",
        ),
    ],
)
def test_imputers_that_are_not_data(imputer, rows, message, path):
    with pytest.raises(ValueError, match=message):
        save_model(clone(imputer).fit(rows), path)


def test_many_numbers_among_objects_are_refused(path):
    """Hash values of numbers can be made to collide, and lookups would take forever."""
    encoder = OrdinalEncoder().fit(np.arange(6000).reshape(-1, 1).astype(object))
    with pytest.raises(ValueError, match=r"6,000 categories are numbers .* convert the column"):
        save_model(encoder, path)
