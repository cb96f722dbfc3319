"""Transformers of scikit-learn in model files: outputs and predictions equal to the last bit."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import NMF, PCA, TruncatedSVD
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.feature_selection import (
    SelectKBest,
    SelectPercentile,
    f_regression,
    mutual_info_regression,
)
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
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

from model_files import forge, refuse
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
    }
)
NEW_FRAME = FRAME.iloc[[3, 1, 4, 1, 5]].assign(
    brand="unseen", colour=["red", None, "green", "blue", "red"]
)
TEXTS = FRAME["title"].to_numpy(dtype=object)
NEW_TEXTS = np.array(["red hat and a hat", "nothing known", "", "Ein rotes Schuhwerk"], object)
DICTS = [{"length": float(i % 7), "kind": "abc"[i % 3], "n": i} for i in range(N)]
SOME_NUMBERS = ["price", "clicks"]


def table():
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
        ]
    )


def logged(values):
    return np.log(np.abs(values) + 1)


register_function("logged", logged)

#: Transformer, training rows, new rows.
CASES = {
    "RobustScaler, sparse": (RobustScaler(with_centering=False), SPARSE, SPARSE),
    "QuantileTransformer, normal": (
        QuantileTransformer(n_quantiles=40, output_distribution="normal"),
        X.astype(np.float32),
        X[:3].astype(np.float32),
    ),
    "PowerTransformer": (PowerTransformer(), X, X[:3]),
    "terms": (PolynomialFeatures((1, 3), interaction_only=True), X, X[:3]),
    "union": (
        FeatureUnion(
            [("a", Binarizer()), ("b", SelectPercentile(f_regression, percentile=40))],
            transformer_weights={"a": 0.5},
        ),
        X,
        X[:3],
    ),
    "SelectKBest, all": (SelectKBest(mutual_info_regression, k="all"), X, X),
    "two functions": (
        FunctionTransformer(np.sqrt, inverse_func=np.square, feature_names_out="one-to-one"),
        X,
        X,
    ),
    "a function of one's own": (FunctionTransformer(logged), X, X),
    "identity": (FunctionTransformer(), SPARSE, SPARSE),
    "imputer, float32": (SimpleImputer(strategy="median", add_indicator=True), GAPS32, GAPS32),
    "imputer, empty feature": (SimpleImputer(add_indicator=True), EMPTY, EMPTY),
    "categories, dropped": (OneHotEncoder(drop="first", handle_unknown="ignore"), MIXED, NEW_MIXED),
    "categories, some dropped": (OneHotEncoder(drop=["v", "b"]), WORDS, WORDS[:3]),
    "categories, numbers": (OneHotEncoder(handle_unknown="ignore"), NUMBERS, NUMBERS + 1),
    "categories, given": (
        OneHotEncoder(categories=[["u", "v", "w", "x"], np.array(["aa", "b", "c"])]),
        WORDS,
        WORDS,
    ),
    "categories, in order": (
        OrdinalEncoder(
            handle_unknown="use_encoded_value",
            unknown_value=-1,
            encoded_missing_value=-2,
            min_frequency=11,
        ),
        MIXED,
        NEW_MIXED,
    ),
    "categories, rare": (
        OneHotEncoder(min_frequency=11, drop="first", handle_unknown="infrequent_if_exist"),
        MIXED,
        NEW_MIXED,
    ),
    "words, other options": (
        TfidfVectorizer(
            ngram_range=(1, 2),
            stop_words=["the", "a"],
            max_features=9,
            dtype=np.float32,
            token_pattern=r"(?u)\b\w+\b",
            strip_accents="unicode",
        ),
        TEXTS,
        NEW_TEXTS,
    ),
    "words, given": (TfidfVectorizer(vocabulary={"hat": 1, "shoe": 0}), TEXTS, NEW_TEXTS),
    "hashed": (HashingVectorizer(n_features=2**7), TEXTS, NEW_TEXTS),
    "dicts": (DictVectorizer(), DICTS, [{"kind": "d", "n": 2}, {"length": 1.5, "kind": "a"}, {}]),
    "table": (table(), FRAME, NEW_FRAME),
    "table, columns chosen by type": (
        make_column_transformer(
            (SimpleImputer(), make_column_selector(dtype_include=np.number)),
            (MaxAbsScaler(), lambda frame: ["clicks"]),
            (StandardScaler(), []),
            (SimpleImputer(), slice("price", "clicks")),
        ),
        FRAME,
        NEW_FRAME,
    ),
    "slices, masks and the rest": (
        ColumnTransformer(
            [
                ("a", StandardScaler(), slice(0, 2)),
                ("b", MinMaxScaler(), np.array([False, False, True, True, False])),
                ("c", "passthrough", [-2]),
            ],
            remainder=Normalizer(),
            transformer_weights={"a": 0.5},
        ),
        X,
        X[:3],
    ),
    "deep": (
        make_pipeline(
            make_column_transformer(
                (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), [0, 1]),
                remainder="passthrough",
            ),
            SimpleImputer(),
            PCA(2),
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
WITHOUT_NAMES = {"a function of one's own", "identity", "hashed"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.rankrls"


def round_trip(estimator, path):
    save_model(estimator, path)
    return load_model(path)


def dense(values):
    return values.toarray() if sparse.issparse(values) else np.asarray(values)


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


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of scikit-learn
@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(), MaxAbsScaler()])
def test_scalers_of_gaps_and_of_empty_columns(scaler, path):
    gaps = EMPTY[:, [0, 1, 5]]
    fitted = clone(scaler).fit(gaps)
    np.testing.assert_array_equal(round_trip(fitted, path).transform(gaps), fitted.transform(gaps))


def test_queries_and_other_rankers_behind_a_table(path):
    model = make_pipeline(table(), RankRLSCV([0.1, 1.0, 10.0]))
    model.fit(FRAME, y, rankrlscv__qid=qid)
    loaded = round_trip(model, path)
    shuffled = NEW_FRAME[NEW_FRAME.columns[::-1]]
    np.testing.assert_array_equal(loaded.predict(shuffled), model.predict(NEW_FRAME))
    with pytest.raises(ValueError, match="columns are missing"):
        loaded.predict(NEW_FRAME.drop(columns="price"))
    about = describe_model(path)["steps"]["columntransformer"]
    assert about["parameters"]["transformers"][:2] == ["numbers", "brand"]


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


# -- what is refused ------------------------------------------------------------------------------


def test_what_has_no_record_is_for_skops(path):
    pipeline = make_pipeline(KNNImputer(), RankRLS()).fit(GAPS, y)
    with pytest.raises(
        ValueError, match=r"steps of Pipeline\[0\]\[1\] is a KNNImputer, which cannot"
    ) as caught:
        save_model(pipeline, path)
    lines = "import skops.io as sio; sio.dump(model, 'model.skops')"
    assert lines in str(caught.value)
    with pytest.raises(ValueError, match="NMF cannot be saved"):
        save_model(NMF(2).fit(np.abs(X)), path)
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
    for other in ("elsewhere", "os.system", "builtins.eval", 3, None):
        change = params(func={"function": other})
        forge(path, lambda m, add: change(m["model"]["params"]["steps"][0]["tuple"][1], add))  # noqa: B023
        refuse(path, rf"function '?{other}.*not known.*register_function")
    with pytest.raises(ValueError, match="without a dot"):
        register_function("numpy.log1p", own)


SPLIT = TfidfVectorizer(tokenizer=str.split, token_pattern=None)
NAMED = make_column_transformer((StandardScaler(), [0]), verbose_feature_names_out=lambda a, b: b)
COMPLEX = np.array([[1 + 2j], [3j]], dtype=object)
MANY = np.arange(6000).reshape(-1, 1).astype(object)


@pytest.mark.parametrize(
    ("transformer", "rows", "message"),
    [
        (SPLIT, TEXTS, "tokenizer of TfidfVectorizer is a function"),
        (CountVectorizer(analyzer=str.split), TEXTS, "analyzer of CountVectorizer is a function"),
        (CountVectorizer(token_pattern=r"(?:\w+)+x?"), TEXTS, "can be slow; cut the text"),
        (SelectKBest(lambda X, y: np.arange(X.shape[1]), k=1), X, "for fitting only by set_params"),
        (
            FunctionTransformer(np.log1p, kw_args={"dtype": "float32"}),
            X,
            "kw_args of Function.*one",
        ),
        (NAMED, X, "verbose_feature_names_out of ColumnTransformer is a function"),
        (SimpleImputer(strategy=np.ma.median), GAPS, "strategy of SimpleImputer"),
        (SimpleImputer(strategy="most_frequent"), COMPLEX, "array of Python objects|must be"),
        # Hash values of numbers can be made to collide, and lookups would take forever.
        (OneHotEncoder(), MANY, r"6,000 categories are numbers .* convert the column"),
    ],
)
@pytest.mark.filterwarnings("ignore:The parameter 'token_pattern'")
def test_what_is_not_data(transformer, rows, message, path):
    fitted = clone(transformer).fit(rows, np.arange(len(rows)) % 3)
    with pytest.raises(ValueError, match=message):
        save_model(fitted, path)
    assert not path.exists()


def params(**values):
    """Change parameters of the model."""
    return lambda model, add: model["params"].update(values)


def second(entry, value):
    """Change an entry of the second fitted transformer."""
    return lambda model, add: model["fields"]["transformers_"][1]["tuple"].__setitem__(entry, value)


def twice(model, add):
    model["params"]["steps"].insert(0, model["params"]["steps"][1])


def many(model, add):
    model["fields"]["n_features_in_"] = 2**50
    second(2, {"tuple": [None, None, None]})(model, add)


def rare(*numbers):
    """Other rare categories than 0 and 2: rows would have columns beyond the last one."""

    def change(model, add):
        assert "_default_to_infrequent_mappings" not in model["fields"]
        model["fields"]["_infrequent_indices"] = [add(np.array(numbers, dtype=np.int64))]

    return change


HASHED = HashingVectorizer(n_features=8)
BEST = SelectKBest(k=2)
SCALED = make_pipeline(StandardScaler(), RankRLS())
DROPPED = make_column_transformer((StandardScaler(), [0]), ("drop", [1]))
RARE = OneHotEncoder(min_frequency=11, handle_unknown="ignore")
NO_PART = "transformers_ of ColumnTransformer must be"
NO_CATEGORY = "rare categories that do not exist|must be"
FUNCTION = {"function": "numpy.exp"}


@pytest.mark.parametrize(
    ("transformer", "rows", "change", "message"),
    [
        (HASHED, TEXTS, params(input="filename"), "reads files"),
        (HASHED, TEXTS, params(ngram_range={"tuple": [1, 10**6]}), "n-grams of 1 to 1000000"),
        (HASHED, TEXTS, params(n_features=2**40), "n_features"),
        (HASHED, TEXTS, params(encoding="zlib"), "must be 'utf-8'"),
        (HASHED, TEXTS, params(token_pattern="(a+)+$"), "can be slow"),
        (HASHED, TEXTS, params(tokenizer=FUNCTION), "tokenizer"),
        (BEST, X[:, :4], params(score_func=FUNCTION), "score_func of SelectKBest must be"),
        (BEST, X[:, :4], params(k=-1), "'k' parameter"),
        (PolynomialFeatures(), X, params(degree=10**9), "polynomials of degree"),
        (OneHotEncoder(), NUMBERS, params(dtype={"dtype": "object"}), "no such type of number"),
        (OneHotEncoder(), NUMBERS, params(drop=[7, 7, 7]), "drop"),
        (SCALED, X, twice, "not unique|should be transformers"),
        (DROPPED, X, many, "would take"),
        (DROPPED, X, second(1, None), NO_PART),
        (DROPPED, X, second(1, "passthrough"), NO_PART),
        (DROPPED, X, second(2, [2**40]), "columns of 'drop' that do not exist"),
        *(
            (RARE, WORDS[:, 1:], rare(*wrong), NO_CATEGORY)
            for wrong in ([0, 0, 1], [3, 2], [7], [])
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Features .* are constant", "ignore:invalid value")
def test_what_a_stranger_changed(transformer, rows, change, message, path):
    save_model(clone(transformer).fit(rows, y), path)
    load_model(path)
    forge(path, lambda manifest, add: change(manifest["model"], add))
    refuse(path, message)
