"""scikit-learn's transformers and compositions of them in model files.

A transformer needs a paragraph of `TABLE`: the attributes that ``fit`` sets, by name and shape (the
axis ``n`` is its features). scikit-learn itself validates the parameters. Transformers of other
rows than numbers also need a ``probe`` with an example of their rows.
"""

from __future__ import annotations

import codecs
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone

from rankrls._validation import show
from rankrls.io._kinds import SINGLE, require, test_of, within
from rankrls.io._records import name_of, read_records

#: Maximum number of output features and maximum degree of PolynomialFeatures.
MAX_TERMS, MAX_DEGREE = 2**24, 30

#: Maximum number of words or characters in an n-gram.
MAX_NGRAM = 50

#: Maximum length and number of repetitions of a regular expression for tokens.
MAX_PATTERN, MAX_REPEATS = 200, 2

#: Categories among Python objects that may be numbers: their hash values can be made to collide.
MAX_MIXED = 5000

#: Columns of a ColumnTransformer; a tuple has the ends and the step of a slice.
_SLICE = "tuple[int | None, int | None, int | None]"
SINGLE["columns"] = lambda v: test_of(f"int | text | list[int] | list[text] | {_SLICE}")(v, {})

TABLE = """
fields step
    + seen
    + output

fields scaler
    + step
    n_samples_seen_: finite | float[n] | int[n]

estimator StandardScaler of sklearn.preprocessing
    + scaler
    mean_ var_ scale_: float[n] nan | None

estimator MinMaxScaler of sklearn.preprocessing
    + scaler
    min_ scale_ data_min_ data_max_ data_range_: float[n] nan

estimator MaxAbsScaler of sklearn.preprocessing
    + scaler
    scale_ max_abs_: float[n] nan

estimator RobustScaler of sklearn.preprocessing
    + step
    center_ scale_: float[n] nan | None

estimator Normalizer Binarizer of sklearn.preprocessing
    + step

estimator QuantileTransformer of sklearn.preprocessing
    + step
    n_quantiles_: size
    references_: float[q] nonempty
    quantiles_: float[q n] nan

estimator PowerTransformer of sklearn.preprocessing
    + step
    lambdas_: float[n] nan
    _scaler?: StandardScaler

estimator SimpleImputer of sklearn.impute
    + step
    statistics_: float[n] nan | objects[n]
    _fit_dtype: text
    indicator_?: MissingIndicator | None
    derived _fill_dtype

estimator MissingIndicator of sklearn.impute
    + step
    features_: int[gaps] <n distinct
    _n_features: length[n]
    _precomputed: flag

fields components
    + step
    components_: float[k n] nonempty
    explained_variance_ explained_variance_ratio_ singular_values_: float[k] any

estimator PCA of sklearn.decomposition
    + components
    mean_: float[n]
    n_components_ n_samples_: size
    noise_variance_: finite
    _fit_svd_solver: text

estimator TruncatedSVD of sklearn.decomposition
    + components

estimator VarianceThreshold of sklearn.feature_selection
    + step
    variances_: float[n] any

estimator SelectKBest SelectPercentile of sklearn.feature_selection
    + step
    scores_: float[n] any
    pvalues_?: float[n] any | None
    param score_func: score_function

estimator PolynomialFeatures of sklearn.preprocessing
    + step
    derived _min_degree _max_degree n_output_features_ _n_out_full

estimator FunctionTransformer of sklearn.preprocessing
    n_features_in_?: length[n]
    feature_names_in_?: texts[n]
    + output
    param func inverse_func: function | None
    param kw_args inv_kw_args: dict[item] | None

estimator OneHotEncoder OrdinalEncoder of sklearn.preprocessing
    + step
    categories_: list[any] nonempty
    _infrequent_enabled: flag
    _infrequent_indices?: list[int[rare] | None]
    derived _default_to_infrequent_mappings _drop_idx_after_grouping drop_idx_
    derived _n_features_outs _missing_indices

estimator KBinsDiscretizer of sklearn.preprocessing
    + step
    bin_edges_: list[float[edges] nonempty] nonempty
    n_bins_: int[n]
    _encoder?: OneHotEncoder

fields words
    + output
    vocabulary_: texts[terms]
    fixed_vocabulary_: flag
    derived _stop_words_id

estimator CountVectorizer of sklearn.feature_extraction.text
    + words

estimator TfidfVectorizer of sklearn.feature_extraction.text
    + words
    _tfidf: TfidfTransformer

estimator TfidfTransformer of sklearn.feature_extraction.text
    + step
    idf_?: float[n]

estimator HashingVectorizer of sklearn.feature_extraction.text
    + output
    derived _stop_words_id

estimator DictVectorizer of sklearn.feature_extraction
    + output
    vocabulary_: texts[terms]
    feature_names_: list[text] nonempty

estimator FeatureHasher of sklearn.feature_extraction
    + output

estimator Pipeline of sklearn.pipeline
    param steps: list[tuple[text, estimator | None | 'passthrough']] nonempty

estimator FeatureUnion of sklearn.pipeline
    + output
    param transformer_list: list[tuple[text, transformer | 'drop' | 'passthrough']] nonempty
    param transformer_weights: dict[finite] | None

estimator ColumnTransformer of sklearn.compose
    + step
    transformers_: list[tuple[text, transformer | 'drop', columns]]
    sparse_output_: flag
    output_indices_: dict[tuple[count, count]]
    param transformers: list[tuple[text, text | None]]
    param remainder: text | None
    param transformer_weights: dict[finite] | None
    derived _columns _transformer_to_input_indices _remainder _transformers_feature_names_out
"""


def _of(*rows: Any) -> Callable[[Any], Any]:
    """Return a probe that transforms these rows."""
    return lambda transformer: transformer.transform(list(rows))


# -- imputers ---------------------------------------------------------------------------------


def _pack_imputer(imputer: Any) -> dict[str, Any]:
    """Return object arrays of numbers as floats, and the type by name."""
    dtype, values = imputer._fit_dtype, imputer.statistics_
    if dtype.kind != "O":
        require(dtype.kind in "iuf", f"SimpleImputer was fitted to {dtype}: fit it to numbers")
        values = np.asarray(values, dtype=np.float64)
    return {"statistics_": values, "_fit_dtype": dtype.name}


def _finish_imputer(imputer: Any) -> None:
    dtype = np.dtype(imputer._fit_dtype)
    good = dtype.kind in "iufO" and (dtype.kind == "O" or imputer.statistics_.dtype.kind == "f")
    require(good, f"a SimpleImputer of other values than {dtype}")
    imputer._fit_dtype = imputer._fill_dtype = dtype
    imputer.indicator_ = getattr(imputer, "indicator_", None)


def _probe_imputer(imputer: Any) -> None:
    fill, dtype = ("" if imputer._fit_dtype.kind == "O" else 0), imputer._fit_dtype
    imputer.transform(np.full((1, imputer.n_features_in_), fill, dtype))


# -- features ---------------------------------------------------------------------------------


def _finish_terms(features: Any) -> None:
    """Count the terms, as ``fit`` does."""
    degree, n = features.degree, features.n_features_in_
    low, high = degree if isinstance(degree, tuple | list) else (0, degree)
    require(0 <= low <= high <= MAX_DEGREE, f"polynomials of degree {show(degree)}")
    require(n <= MAX_TERMS, f"polynomials of {n} features")
    options = {"interaction_only": features.interaction_only, "include_bias": features.include_bias}
    n_terms = features._num_combinations(n, low, high, **options)
    require(1 <= n_terms <= MAX_TERMS, f"{n_terms} terms of polynomials")
    features._min_degree, features._max_degree, features.n_output_features_ = low, high, n_terms
    features._n_out_full = features._num_combinations(n, 0, high, **options)


def _finish_function(transformer: Any) -> None:
    for function, options in (
        (transformer.func, transformer.kw_args),
        (transformer.inverse_func, transformer.inv_kw_args),
    ):
        if options:
            # Options of a ufunc, such as ``where``, can leave memory uninitialised.
            name = name_of(function)
            good = callable(function) and not isinstance(function, np.ufunc)
            require(good, f"{name or 'no function'} takes no options in a model file")
            numbers = all(isinstance(value, int | float) for value in options.values())
            require(numbers or "." not in name, f"options of {name} that are not numbers")
            inspect.signature(function).bind(None, **options)


# -- categories -------------------------------------------------------------------------------


def _pack_encoder(encoder: Any) -> dict[str, Any]:
    """Return the categories given by the user as lists."""
    given: dict[str, Any] = {}
    if not isinstance(encoder.categories, str):
        given["categories"] = [np.asarray(part).tolist() for part in encoder.categories]
    drop = getattr(encoder, "drop", None)
    if drop is not None and not isinstance(drop, str):
        given["drop"] = np.asarray(drop, dtype=object).tolist()
    return given


def _finish_encoder(encoder: Any) -> None:
    """Compute the indices of categories after grouping rare ones, as scikit-learn does."""
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
        elif categories.dtype.kind != "U":  # scikit-learn searches them
            ordered = np.array_equal(np.unique(categories), categories, equal_nan=True)
            require(ordered, "categories that are not in order")
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
        needed = encoder.handle_unknown == "use_encoded_value"
        good = needed == (encoder.unknown_value is not None)
        require(good, "unknown_value without its use, or the reverse")
        encoder._missing_indices = {
            i: len(encoder.categories_[i]) - 1 for i, gap in enumerate(gaps) if gap
        }
    else:
        encoder._set_drop_idx()
        encoder._n_features_outs = encoder._compute_n_features_outs()


def _probe_encoder(encoder: Any) -> None:
    first = [categories[0] for categories in encoder.categories_]
    encoder.transform(np.array([first], dtype=object))


def _finish_bins(bins: Any) -> None:
    edges = np.empty(len(bins.bin_edges_), dtype=object)
    edges[:] = bins.bin_edges_
    bins.bin_edges_ = edges


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
    require(re.compile(pattern).groups <= 1, f"{text} has more than one group")
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


def _pack_terms(vectorizer: Any) -> dict[str, Any]:
    """Return the vocabulary as terms in the order of their columns."""
    terms = _terms(vectorizer.vocabulary_)
    given = getattr(vectorizer, "vocabulary", None) is not None
    return {"vocabulary_": terms, **({"vocabulary": terms.tolist()} if given else {})}


def _finish_terms_of(vectorizer: Any) -> None:
    terms = vectorizer.vocabulary_
    vectorizer.vocabulary_ = {term: i for i, term in enumerate(terms)}
    require(0 < len(terms) == len(vectorizer.vocabulary_), "a vocabulary of other terms")
    names = getattr(vectorizer, "feature_names_", terms)
    require(list(names) == terms.tolist(), "names of other features")
    if hasattr(vectorizer, "stop_words"):
        _check_words(vectorizer)
        vectorizer._stop_words_id = id(vectorizer.stop_words)  # marks the words as validated


# -- compositions -----------------------------------------------------------------------------


def _pack_columns(transformer: Any) -> dict[str, Any]:
    """Return the fitted transformers with their columns: name, index, list or ends of a slice.

    Transformers without columns were not fitted. Those that the user gave are stored as text, or
    None: they are clones of the fitted ones.
    """
    fitted = {}
    for name, part, columns in transformer.transformers_:
        indices = transformer._transformer_to_input_indices[name]
        sliced = isinstance(columns, slice)
        ends: Any = (columns.start, columns.stop, columns.step) if sliced else columns
        stored: Any
        if np.ndim(ends) == 0:
            stored = ends if isinstance(ends, str) else int(ends)
        elif any(isinstance(column, str) for column in ends):
            stored = [str(transformer.feature_names_in_[i]) for i in indices]
        else:
            stored = ends if sliced else [int(i) for i in indices]
        fitted[name] = part if len(indices) else "drop", stored

    def word(name: str, part: Any) -> str | None:
        if isinstance(part, str):
            return part
        return "drop" if isinstance(fitted.get(name, ("drop",))[0], str) else None

    return {
        "transformers_": [(name, *part) for name, part in fitted.items()],
        "output_indices_": {k: (s.start, s.stop) for k, s in transformer.output_indices_.items()},
        "transformers": [(name, word(name, part)) for name, part, _ in transformer.transformers],
        "remainder": word("remainder", transformer.remainder),
    }


def _finish_columns(transformer: Any) -> None:
    """Restore the transformers as given by the user, as clones of the fitted ones."""
    given, fitted, n = (
        transformer.transformers,
        transformer.transformers_,
        transformer.n_features_in_,
    )
    names = [name for name, _ in given]
    transformer._validate_names(names)
    good = [part[0] for part in fitted] in (names, [*names, "remainder"])
    require(good and given, "a ColumnTransformer of other transformers")
    fitted = [(*part[:2], slice(*c) if isinstance(c := part[2], tuple) else c) for part in fitted]
    numbers = {name: i for i, name in enumerate(getattr(transformer, "feature_names_in_", ()))}
    indices: dict[str, list[int]] = {"remainder": []}
    for name, _, columns in fitted:
        listed: Any = columns if isinstance(columns, list) else [columns]
        listed = range(n)[columns] if isinstance(columns, slice) else listed
        found = [numbers.get(c, n) if isinstance(c, str) else c for c in listed]
        require(all(-n <= i < n for i in found), f"columns of {name!r} that do not exist")
        indices[name] = [i % n for i in found]
    transformer.transformers_ = fitted
    _, rest, columns = fitted[-1] if len(fitted) > len(given) else ("", "drop", [])
    transformer.transformers = [
        (name, clone(part) if word is None else word, columns)
        for (_, word), (name, part, columns) in zip(given, fitted, strict=False)
    ]
    if transformer.remainder is None:
        transformer.remainder = clone(rest)
    transformer._columns = [columns for _, _, columns in transformer.transformers]
    transformer._remainder = ("remainder", transformer.remainder, columns)
    transformer._transformer_to_input_indices = indices
    ends = transformer.output_indices_
    require({*names} <= ends.keys(), "columns of other transformers")
    transformer.output_indices_ = {name: slice(*pair) for name, pair in ends.items()}


# -- hooks ------------------------------------------------------------------------------------


def _nothing(transformer: Any) -> None:
    """A probe that does nothing: parts are tried by themselves, terms can be many."""


_ENCODER = {"pack": _pack_encoder, "finish": _finish_encoder, "probe": _probe_encoder}
_TERMS = {
    "pack": _pack_terms,
    "finish": _finish_terms_of,
    "cost": lambda fields: 200 * len(fields["vocabulary_"]),
    "probe": _of("a b"),
}

HOOKS: dict[str, dict[str, Any]] = {
    "SimpleImputer": {
        "pack": _pack_imputer,
        "finish": _finish_imputer,
        "probe": _probe_imputer,
    },
    "MissingIndicator": {"probe": _nothing},
    "PolynomialFeatures": {"finish": _finish_terms, "probe": _nothing},
    "FunctionTransformer": {"finish": _finish_function, "probe": _nothing},
    "OneHotEncoder": _ENCODER,
    "OrdinalEncoder": _ENCODER,
    "KBinsDiscretizer": {
        "pack": lambda bins: {"bin_edges_": list(bins.bin_edges_)},
        "finish": _finish_bins,
    },
    "CountVectorizer": _TERMS,
    "TfidfVectorizer": _TERMS,
    "HashingVectorizer": {"finish": _check_words, "probe": _of("a b")},
    "DictVectorizer": {**_TERMS, "probe": _of({})},
    "FeatureHasher": {"probe": _of({})},
    "Pipeline": {"finish": lambda pipeline: pipeline._validate_steps(), "probe": _nothing},
    "FeatureUnion": {"finish": lambda union: union._validate_transformers(), "probe": _nothing},
    "ColumnTransformer": {
        "pack": _pack_columns,
        "cost": lambda fields: sum(  # slices take no space in the file
            9 * fields["n_features_in_"]
            for _, _, columns in fields["transformers_"]
            if isinstance(columns, tuple)
        ),
        "finish": _finish_columns,
        "probe": _nothing,
    },
}

read_records(TABLE, HOOKS)
