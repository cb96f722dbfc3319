"""Records of scikit-learn's transformers, the steps of a pipeline before a ranker.

A transformer needs one row of `RECORDS`: the attributes that ``fit`` sets, by name and shape (the
axis ``n`` is its features). scikit-learn itself validates the parameters. Transformers of other
rows than numbers also need a ``probe`` with an example of their rows.
"""

from __future__ import annotations

import codecs
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import show
from rankrls.io._kinds import (
    COUNT,
    FINITE,
    FLAG,
    NAMES,
    PLAIN,
    SIZE,
    TEXT,
    Kind,
    array,
    instance,
    listing,
    mapping,
    maybe,
    optional,
    require,
    results,
    within,
)
from rankrls.io._records import ELEMENTWISE, FUNCTION, SCORE_FUNCTION, SEEN, Record, name_of
from rankrls.io._stored_rankers import OUTPUT

Array = NDArray[Any]

#: One number for every feature; NaN for a feature without values.
VECTOR = array("f", "n", nan=True)

#: Maximum number of output features and maximum degree of PolynomialFeatures.
MAX_TERMS, MAX_DEGREE = 2**24, 30

#: Maximum number of words or characters in an n-gram.
MAX_NGRAM = 50

#: Maximum length and number of repetitions of a regular expression for tokens.
MAX_PATTERN, MAX_REPEATS = 200, 2

#: Categories among Python objects that may be numbers: their hash values can be made to collide.
MAX_MIXED = 5000


def _step(
    name: str,
    module: str,
    fields: Mapping[str, Kind],
    *,
    seen: Mapping[str, Kind] = SEEN,
    params: Mapping[str, Kind] | None = None,
    check: Callable[[Any], None] | None = None,
    **options: Any,
) -> Record:
    def check_all(transformer: Any) -> None:
        transformer._validate_params()
        if check is not None:
            check(transformer)

    module, fields = f"sklearn.{module}", {**seen, **OUTPUT, **fields}
    return Record(name, module, fields, params or {}, check=check_all, **options)


def _of(*rows: Any) -> Callable[[Any], int | None]:
    """Return a probe that transforms these rows."""
    return lambda transformer: transformer.transform(list(rows)).shape[1]


# -- imputers ---------------------------------------------------------------------------------


def _pack_imputer(imputer: Any) -> dict[str, Any]:
    """Return object arrays of numbers as floats, and the type by name."""
    known = isinstance(imputer.strategy, str)
    require(known, "strategy of SimpleImputer is a function, which cannot be stored as data")
    dtype, values = imputer._fit_dtype, imputer.statistics_
    if dtype.kind != "O":
        require(dtype.kind in "iuf", f"SimpleImputer was fitted to {dtype}: fit it to numbers")
        values = np.asarray(values, dtype=np.float64)
    return {"statistics_": values, "_fit_dtype": dtype.name}


def _finish_imputer(imputer: Any) -> None:
    dtype = np.dtype(imputer._fit_dtype)
    good = dtype.kind in "iufO" and (dtype.kind == "O" or imputer.statistics_.dtype.kind == "f")
    good = good and len(imputer.statistics_) == imputer.n_features_in_
    require(good, f"a SimpleImputer of other values than {dtype}")
    imputer._fit_dtype = imputer._fill_dtype = dtype
    imputer.indicator_ = getattr(imputer, "indicator_", None)


def _probe_imputer(imputer: Any) -> int:
    fill, dtype = ("" if imputer._fit_dtype.kind == "O" else 0), imputer._fit_dtype
    return imputer.transform(np.full((1, imputer.n_features_in_), fill, dtype)).shape[1]


# -- features ---------------------------------------------------------------------------------


def _check_terms(features: Any) -> None:
    degree, n = features.degree, features.n_features_in_
    low, high = degree if isinstance(degree, tuple | list) else (0, degree)
    require(0 <= low <= high <= MAX_DEGREE, f"polynomials of degree {show(degree)}")
    require(n <= MAX_TERMS, f"polynomials of {n} features")
    options = {"interaction_only": features.interaction_only, "include_bias": features.include_bias}
    n_terms = features._num_combinations(n, low, high, **options)
    require(1 <= n_terms <= MAX_TERMS, f"{n_terms} terms of polynomials")
    claimed = (features._min_degree, features._max_degree, features.n_output_features_)
    full = features._num_combinations(n, 0, high, **options)
    good = (*claimed, features._n_out_full) == (low, high, n_terms, full)
    require(good, "polynomials of another degree")


def _check_function(transformer: Any) -> None:
    for function, options in (
        (transformer.func, transformer.kw_args),
        (transformer.inverse_func, transformer.inv_kw_args),
    ):
        if options:
            name = "no function" if function is None else name_of(function)
            require(callable(function) and not isinstance(function, np.ufunc),
                    f"{name} takes no options in a model file")  # fmt: skip
            numbers = all(isinstance(value, int | float) for value in options.values())
            require(numbers or name not in ELEMENTWISE, f"options of {name} that are not numbers")
            inspect.signature(function).bind(None, **options)


def _width_of_function(transformer: Any) -> int | None:
    """Functions of users are not called: who knows what they take."""
    plain = transformer.func is None or name_of(transformer.func) in ELEMENTWISE
    return getattr(transformer, "n_features_in_", None) if plain else None


# -- categories -------------------------------------------------------------------------------


def _check_encoder(encoder: Any) -> None:
    for categories in encoder.categories_:
        good = isinstance(categories, np.ndarray) and categories.ndim == 1 and len(categories)
        require(good, "a feature without categories")
        if categories.dtype.kind == "O":
            n_numbers = sum(not isinstance(value, str) for value in categories)
            require(
                n_numbers <= MAX_MIXED,
                f"{n_numbers:,} categories are numbers among Python objects, and at most "
                f"{MAX_MIXED:,} can be stored: convert the column to text, or to numbers",
            )
        if categories.dtype.kind in "OU":
            n_nan = sum(value != value for value in categories.tolist())
            n = len({value for value in categories.tolist() if value == value}) + n_nan
            require(n == len(categories) and n_nan <= 1, "a category that occurs twice")
        else:
            ordered = np.array_equal(np.unique(categories), categories, equal_nan=True)
            require(ordered, "categories that are not in order")
    if type(encoder).__name__ == "OrdinalEncoder":
        needed = encoder.handle_unknown == "use_encoded_value"
        good = needed == (encoder.unknown_value is not None)
        require(good, "unknown_value without its use, or the reverse")
        for value in (encoder.unknown_value, encoder.encoded_missing_value):
            good = value is None or (
                not isinstance(value, str) and (value != value or value % 1 == 0)
            )
            require(good, f"a code {show(value)} that is not a whole number")


def _finish_encoder(encoder: Any) -> None:
    """Compute the indices of categories after grouping rare ones, as scikit-learn does."""
    ordinal = type(encoder).__name__ == "OrdinalEncoder"
    last = [categories[-1] for categories in encoder.categories_]
    gaps = [isinstance(value, float | np.floating) and value != value for value in last]
    rare = encoder.max_categories is not None or encoder.min_frequency is not None
    require(rare == encoder._infrequent_enabled, "an encoder of other categories")
    if rare:
        require(len(encoder._infrequent_indices) == len(gaps), "rare categories of other features")
        encoder._default_to_infrequent_mappings = []
        for i, indices in enumerate(encoder._infrequent_indices):
            mapping = None
            if indices is not None:
                n = len(encoder.categories_[i]) - (ordinal and gaps[i])  # which keeps NaN separate
                require(within(indices, n), "rare categories that do not exist")
                frequent = np.setdiff1d(np.arange(n), indices)
                mapping = np.full(n, len(frequent), dtype=np.int64)  # one index for all rare ones
                mapping[frequent] = np.arange(len(frequent))
            encoder._default_to_infrequent_mappings.append(mapping)
    if ordinal:
        encoder._missing_indices = {
            i: len(categories) - 1
            for i, (categories, gap) in enumerate(zip(encoder.categories_, gaps, strict=True))
            if gap
        }
    else:
        encoder._set_drop_idx()
        encoder._n_features_outs = encoder._compute_n_features_outs()


def _pack_choices(encoder: Any) -> dict[str, Any]:
    """Return the categories given by the user as lists."""
    given: dict[str, Any] = {}
    if not isinstance(encoder.categories, str):
        given["categories"] = [np.asarray(part).tolist() for part in encoder.categories]
    drop = getattr(encoder, "drop", None)
    if drop is not None and not isinstance(drop, str):
        given["drop"] = np.asarray(drop, dtype=object).tolist()
    return given


def _probe_encoder(encoder: Any) -> int:
    first = [categories[0] for categories in encoder.categories_]
    return encoder.transform(np.array([first], dtype=object)).shape[1]


def _finish_bins(bins: Any) -> None:
    edges = np.empty(len(bins.bin_edges_), dtype=object)
    edges[:] = bins.bin_edges_
    bins.bin_edges_ = edges


_ENCODER: dict[str, Any] = {
    "fields": {
        "categories_": listing(),
        "_infrequent_enabled": FLAG,
        "_infrequent_indices": optional(listing(maybe(array("i", "rare")))),
    },
    "check": _check_encoder,
    "pack_params": _pack_choices,
    "finish": _finish_encoder,
    "probe": _probe_encoder,
    "derived": (
        *("_default_to_infrequent_mappings", "_drop_idx_after_grouping", "drop_idx_"),
        *("_n_features_outs", "_missing_indices"),
    ),
}

# -- text -------------------------------------------------------------------------------------


def _check_words(vectorizer: Any) -> None:
    """Raise an error if the vectorizer reads files or can be slow: the file is not trusted."""
    kind = type(vectorizer).__name__
    require(vectorizer.input == "content", f"a {kind} that reads files")
    low, high = vectorizer.ngram_range
    require(1 <= low <= high <= MAX_NGRAM, f"a {kind} of n-grams of {low} to {high} words")
    text = codecs.lookup(vectorizer.encoding)._is_text_encoding
    require(text, f"an encoding {show(vectorizer.encoding)}, which is not of text")
    if vectorizer.analyzer == "word":
        _check_pattern(vectorizer.token_pattern)
    words = vectorizer.stop_words or ()
    require(all(isinstance(word, str) for word in words), f"stop words of {kind} are text")


def _check_pattern(pattern: str) -> None:
    """Raise an error unless the time of a search grows slowly with the length of the text."""
    text = f"token_pattern {show(pattern)}"
    require(len(pattern) <= MAX_PATTERN, f"{text} is too long")
    try:
        n_groups = re.compile(pattern).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{text} is not a regular expression: {error}") from error
    require(n_groups <= 1, f"{text} has more than one group")
    # Repetitions inside others, of groups and with back-references can take exponential time.
    nested = re.search(r"\)[*+{]|\(\?[=!<>(]|\(\?P=|\\\d", pattern)
    require(
        not nested and len(re.findall(r"[*+{]", pattern)) <= MAX_REPEATS,
        f"{text} repeats more than a model file may (at most {MAX_REPEATS} repetitions, none of a "
        "group): cut the text into words before the pipeline",
    )


def _terms(vocabulary: dict[str, int]) -> Any:
    """Return the terms in the order of their columns."""
    numbers = np.fromiter((int(n) for n in vocabulary.values()), np.int64, len(vocabulary))
    good = np.array_equal(np.sort(numbers), np.arange(len(numbers)))
    require(good, "a vocabulary whose terms are not numbered from 0")
    terms = np.empty(len(vocabulary), dtype=object)
    terms[numbers] = list(vocabulary)
    return terms


def _pack_words(vectorizer: Any) -> dict[str, Any]:
    """Return a vocabulary given by the user as a list."""
    given = vectorizer.vocabulary is not None
    return {"vocabulary": _terms(vectorizer.vocabulary_).tolist()} if given else {}


def _finish_vocabulary(vectorizer: Any) -> None:
    terms = vectorizer.vocabulary_
    vectorizer.vocabulary_ = {term: i for i, term in enumerate(terms)}
    good = 0 < len(terms) == len(vectorizer.vocabulary_)
    require(good and all(isinstance(term, str) for term in terms), "a vocabulary of other terms")
    names = getattr(vectorizer, "feature_names_", terms)
    require(list(names) == terms.tolist(), "names of other features")
    if hasattr(vectorizer, "stop_words"):
        vectorizer._stop_words_id = id(vectorizer.stop_words)  # marks the words as validated


_FUNCTIONS = {
    name: f"{name} is a function, which is not stored as data: apply it to the text before the "
    "pipeline, or save the model by skops (see the guide)"
    for name in ("preprocessor", "tokenizer", "analyzer")
}

_TERMS: dict[str, Any] = {
    "seen": {},
    "derived": ("_stop_words_id",),  # a memory address
    "pack": lambda vectorizer: {"vocabulary_": _terms(vectorizer.vocabulary_)},
    "cost": lambda fields: 200 * len(fields["vocabulary_"]),
    "finish": _finish_vocabulary,
}
_WORDS: dict[str, Any] = {
    "seen": {},
    "derived": ("_stop_words_id",),
    "advice": _FUNCTIONS,
    "check": _check_words,
    "probe": _of("a b"),
}

# -- table ------------------------------------------------------------------------------------

_SEEN_ROWS = {"n_samples_seen_": FINITE | array("fi", "n")}
_COMPONENTS = {
    "components_": array("f", "k n", empty=False),
    "explained_variance_": results("k"),
    "explained_variance_ratio_": results("k"),
    "singular_values_": results("k"),
}
_SELECTOR: dict[str, Any] = {
    "fields": {"scores_": results("n"), "pvalues_": optional(maybe(results("n")))},
    "params": {"score_func": SCORE_FUNCTION},
    "advice": {
        "score_func": "it matters for fitting only, so call set_params(score_func=f_regression) "
        "before saving"
    },
}

RECORDS = (
    _step(
        "StandardScaler",
        "preprocessing",
        _SEEN_ROWS | dict.fromkeys(("mean_", "var_", "scale_"), maybe(VECTOR)),
    ),
    _step(
        "MinMaxScaler",
        "preprocessing",
        _SEEN_ROWS
        | dict.fromkeys(("min_", "scale_", "data_min_", "data_max_", "data_range_"), VECTOR),
    ),
    _step("MaxAbsScaler", "preprocessing", _SEEN_ROWS | {"scale_": VECTOR, "max_abs_": VECTOR}),
    _step("RobustScaler", "preprocessing", {"center_": maybe(VECTOR), "scale_": maybe(VECTOR)}),
    _step("Normalizer", "preprocessing", {}),
    _step("Binarizer", "preprocessing", {}),
    _step(
        "QuantileTransformer",
        "preprocessing",
        {
            "n_quantiles_": SIZE,
            "references_": array("f", "q", empty=False),
            "quantiles_": array("f", "q n", nan=True),
        },
    ),
    _step(
        "PowerTransformer",
        "preprocessing",
        {"lambdas_": VECTOR, "_scaler": optional(instance("StandardScaler"))},
    ),
    _step(
        "SimpleImputer",
        "impute",
        {
            "statistics_": VECTOR | NAMES,
            "_fit_dtype": TEXT,
            "indicator_": optional(maybe(instance("MissingIndicator"))),
        },
        derived=("_fill_dtype",),
        pack=_pack_imputer,
        finish=_finish_imputer,
        probe=_probe_imputer,
    ),
    _step(
        "MissingIndicator",
        "impute",
        {
            "features_": array("i", "gaps", below="n", distinct=True),
            "_n_features": SIZE,
            "_precomputed": FLAG,
        },
        check=lambda gaps: require(gaps._n_features == gaps.n_features_in_, "other features"),
    ),
    _step(
        "PCA",
        "decomposition",
        {
            **_COMPONENTS,
            "mean_": array("f", "n"),
            "n_components_": SIZE,
            "n_samples_": SIZE,
            "noise_variance_": FINITE,
            "_fit_svd_solver": TEXT,
        },
    ),
    _step("TruncatedSVD", "decomposition", _COMPONENTS),
    _step("VarianceThreshold", "feature_selection", {"variances_": results("n")}),
    _step("SelectKBest", "feature_selection", **_SELECTOR),
    _step("SelectPercentile", "feature_selection", **_SELECTOR),
    _step(
        "PolynomialFeatures",
        "preprocessing",
        {
            "_min_degree": COUNT,
            "_max_degree": COUNT,
            "n_output_features_": SIZE,
            "_n_out_full": SIZE,
        },
        check=_check_terms,
        probe=lambda features: features.n_output_features_,
    ),
    _step(
        "FunctionTransformer",
        "preprocessing",
        {},
        seen={name: optional(kind) for name, kind in SEEN.items()},
        params={
            "func": maybe(FUNCTION),
            "inverse_func": maybe(FUNCTION),
            "kw_args": maybe(mapping(PLAIN)),
            "inv_kw_args": maybe(mapping(PLAIN)),
        },
        check=_check_function,
        probe=_width_of_function,
    ),
    _step("OneHotEncoder", "preprocessing", **_ENCODER),
    _step("OrdinalEncoder", "preprocessing", **_ENCODER),
    _step(
        "KBinsDiscretizer",
        "preprocessing",
        {
            "bin_edges_": listing(array("f", "edges", empty=False)),
            "n_bins_": array("i", "n"),
            "_encoder": optional(instance("OneHotEncoder")),
        },
        pack=lambda bins: {"bin_edges_": list(bins.bin_edges_)},
        finish=_finish_bins,
    ),
    _step(
        "CountVectorizer",
        "feature_extraction.text",
        {"vocabulary_": NAMES, "fixed_vocabulary_": FLAG},
        pack_params=_pack_words,
        **(_TERMS | _WORDS),
    ),
    _step(
        "TfidfVectorizer",
        "feature_extraction.text",
        {"vocabulary_": NAMES, "fixed_vocabulary_": FLAG, "_tfidf": instance("TfidfTransformer")},
        pack_params=_pack_words,
        **(_TERMS | _WORDS),
    ),
    _step("TfidfTransformer", "feature_extraction.text", {"idf_": optional(array("f", "n"))}),
    _step("HashingVectorizer", "feature_extraction.text", {}, **_WORDS),
    _step(
        "DictVectorizer",
        "feature_extraction",
        {"vocabulary_": NAMES, "feature_names_": listing(TEXT)},
        probe=_of({}),
        **_TERMS,
    ),
    _step("FeatureHasher", "feature_extraction", {}, seen={}, probe=_of({})),
)
