"""scikit-learn's transformers and compositions of them in model files.

A transformer needs a paragraph of `TABLE`: the attributes that ``fit`` sets, by name and shape (the
axis ``n`` is its features). scikit-learn itself validates the parameters. Transformers of other
rows than numbers also need a ``probe`` with an example of their rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from rankrls._validation import is_missing, show
from rankrls.io._kinds import SINGLE, require, test_of, within
from rankrls.io._records import read_records

#: Maximum number of words or characters in an n-gram.
MAX_NGRAM = 50

#: Regular expressions for tokens: words of two letters, or of one. Others can take very long.
TOKENS = (r"(?u)\b\w\w+\b", r"(?u)\b\w+\b")

#: Categories among Python objects that may be numbers: their hash values can be made to collide.
MAX_MIXED = 5000

#: Maximum number of terms and degree of PolynomialFeatures.
MAX_TERMS, MAX_DEGREE = 2**24, 30

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

estimator PowerTransformer of sklearn.preprocessing
    + step
    lambdas_: float[n] nan
    _scaler?: StandardScaler

estimator PolynomialFeatures of sklearn.preprocessing
    + step
    derived _min_degree _max_degree n_output_features_ _n_out_full

estimator QuantileTransformer of sklearn.preprocessing
    + step
    n_quantiles_: size
    references_: float[q] nonempty
    quantiles_: float[q n] nan

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

estimator FunctionTransformer of sklearn.preprocessing
    n_features_in_?: length[n]
    feature_names_in_?: texts[n]
    + output
    param func inverse_func: function | None
    param kw_args inv_kw_args: None

estimator OneHotEncoder OrdinalEncoder of sklearn.preprocessing
    + step
    categories_: list[any] nonempty
    _infrequent_enabled: flag
    _infrequent_indices?: list[int[rare] nonempty distinct | None]
    derived _default_to_infrequent_mappings _drop_idx_after_grouping drop_idx_ _n_features_outs
    derived _missing_indices

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
    derived feature_names_

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
    param transformers: list[text]
    param remainder: text | None
    param transformer_weights: dict[finite] | None
    derived _columns _transformer_to_input_indices _remainder _transformers_feature_names_out
"""


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


def _finish_polynomials(features: Any) -> None:
    """Count the terms, as ``fit`` does."""
    degree, n = features.degree, features.n_features_in_
    require(np.max(degree) <= MAX_DEGREE, f"polynomials of degree {show(degree)}")
    counts = vars(clone(features).fit(sparse.csr_array((1, n))))
    for name in ("_min_degree", "_max_degree", "n_output_features_", "_n_out_full"):
        setattr(features, name, counts[name])
    require(features._n_out_full <= MAX_TERMS, f"{features._n_out_full} terms of polynomials")


def _finish_encoder(encoder: Any) -> None:
    """Check indices of categories, and compute those of groups, dropped and missing ones."""
    ordinal, gaps = hasattr(encoder, "encoded_missing_value"), dict[int, int]()
    for i, categories in enumerate(encoder.categories_):
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
        if ordinal and is_missing(categories[-1]) and categories[-1] is not None:
            gaps[i] = len(categories) - 1
    if encoder._infrequent_enabled:
        mappings = encoder._default_to_infrequent_mappings = list[Any]()
        sizes = [len(categories) - (i in gaps) for i, categories in enumerate(encoder.categories_)]
        for n, rare in zip(sizes, encoder._infrequent_indices, strict=True):
            mappings.append(None)
            if rare is not None:
                require(within(rare, n), "rare categories that do not exist")
                frequent = np.setdiff1d(np.arange(n), rare)
                mappings[-1] = np.full(n, len(frequent), dtype=np.int64)  # one for all rare ones
                mappings[-1][frequent] = np.arange(len(frequent))
    if ordinal:
        given = encoder.unknown_value is not None
        require(given == (encoder.handle_unknown == "use_encoded_value"), "an odd unknown_value")
        encoder._missing_indices = gaps
        return
    encoder._set_drop_idx()
    encoder._n_features_outs = encoder._compute_n_features_outs()


def _probe_encoder(encoder: Any) -> None:
    first = [categories[0] for categories in encoder.categories_]
    encoder.transform(np.array([first], dtype=object))


def _check_words(vectorizer: Any) -> None:
    """Raise an error if the vectorizer reads files or can be slow: the file is not trusted."""
    kind = type(vectorizer).__name__
    require(vectorizer.input == "content", f"a {kind} that reads files")
    low, high = vectorizer.ngram_range
    require(1 <= low <= high <= MAX_NGRAM, f"a {kind} of n-grams of {low} to {high} words")
    encoding, pattern, words = vectorizer.encoding, vectorizer.token_pattern, vectorizer.stop_words
    require(encoding == "utf-8", f"encoding {show(encoding)} of a {kind}, which must be 'utf-8'")
    require(
        pattern in TOKENS or vectorizer.analyzer != "word",
        f"token_pattern {show(pattern)}: only {' and '.join(TOKENS)} can be stored, because others "
        "can be slow; cut the text into words before the pipeline",
    )
    require(all(isinstance(word, str) for word in words or ()), f"stop words of {kind} are text")


def _pack_terms(vectorizer: Any) -> dict[str, Any]:
    """Return the vocabulary as terms in the order of their columns."""
    numbers = np.array([*vectorizer.vocabulary_.values()], dtype=np.int64)
    good = np.array_equal(np.sort(numbers), np.arange(len(numbers)))
    require(good, "a vocabulary whose terms are not numbered from 0")
    terms = np.empty(len(numbers), dtype=object)
    terms[numbers] = list(vectorizer.vocabulary_)
    return {"vocabulary_": terms}


def _finish_terms(vectorizer: Any) -> None:
    terms = vectorizer.vocabulary_.tolist()
    vectorizer.vocabulary_ = {term: i for i, term in enumerate(terms)}
    require(0 < len(terms) == len(vectorizer.vocabulary_), "a vocabulary of other terms")
    if hasattr(vectorizer, "stop_words"):
        _check_words(vectorizer)
    else:
        vectorizer.feature_names_ = terms


def _pack_columns(transformer: Any) -> dict[str, Any]:
    """Return the fitted transformers with their columns by name or index.

    Transformers without columns were not fitted. Those that the user gave are clones of the fitted
    ones, and are not stored.
    """
    fitted = []
    for name, part, columns in transformer.transformers_:
        indices = transformer._transformer_to_input_indices[name]
        sliced = isinstance(columns, slice)  # stored as such: a list has another memory order
        stored: Any = (columns.start, columns.stop, columns.step) if sliced else columns
        if np.ndim(stored) == 0:
            stored = stored if isinstance(stored, str) else int(stored)
        elif any(isinstance(column, str) for column in stored):
            stored = [str(transformer.feature_names_in_[i]) for i in indices]
        elif not sliced:
            stored = [int(i) for i in indices]
        fitted.append((name, part if len(indices) else "drop", stored))
    rest = transformer.remainder
    return {
        "transformers_": fitted,
        "output_indices_": {k: (s.start, s.stop) for k, s in transformer.output_indices_.items()},
        "transformers": [name for name, *_ in transformer.transformers],
        "remainder": rest if isinstance(rest, str) else None,
    }


def _finish_columns(transformer: Any) -> None:
    """Restore the transformers as given by the user, as clones of the fitted ones."""
    names, n = transformer.transformers, transformer.n_features_in_
    fitted = transformer.transformers_ = [
        (name, part, slice(*columns) if isinstance(columns, tuple) else columns)
        for name, part, columns in transformer.transformers_
    ]
    transformer._validate_names(names)
    good = [name for name, *_ in fitted] in (names, [*names, "remainder"])
    require(good and names, "a ColumnTransformer of other transformers")
    numbers = {name: i for i, name in enumerate(getattr(transformer, "feature_names_in_", ()))}
    indices: dict[str, list[int]] = {"remainder": []}
    for name, _, columns in fitted:
        listed: Any = columns if isinstance(columns, list) else [columns]
        listed = range(n)[columns] if isinstance(columns, slice) else listed
        found = [numbers.get(c, n) if isinstance(c, str) else c for c in listed]
        require(all(-n <= i < n for i in found), f"columns of {name!r} that do not exist")
        indices[name] = [i % n for i in found]
    _, rest, rest_columns = fitted[-1] if len(fitted) > len(names) else ("", "drop", [])
    given = [(name, clone(part, safe=False), columns) for name, part, columns in fitted]
    transformer.transformers = given[: len(names)]
    if transformer.remainder is None:
        transformer.remainder = clone(rest, safe=False)
    transformer._columns = [columns for _, _, columns in transformer.transformers]
    transformer._remainder = ("remainder", transformer.remainder, rest_columns)
    transformer._transformer_to_input_indices = indices
    ends = transformer.output_indices_
    require({*names} <= ends.keys(), "columns of other transformers")
    transformer.output_indices_ = {name: slice(*pair) for name, pair in ends.items()}


def _nothing(transformer: Any) -> None:
    """A probe that does nothing: parts are tried by themselves."""


_CATEGORIES = {"finish": _finish_encoder, "probe": _probe_encoder}
_WORDS: dict[str, Any] = {"probe": lambda vectorizer: vectorizer.transform(["a b"])}
_TERMS = {
    "pack": _pack_terms,
    "finish": _finish_terms,
    "cost": lambda fields: 200 * len(fields["vocabulary_"]),
}

HOOKS: dict[str, dict[str, Any]] = {
    "SimpleImputer": {"pack": _pack_imputer, "finish": _finish_imputer, "probe": _probe_imputer},
    "MissingIndicator": {"probe": _nothing},
    "FunctionTransformer": {"probe": _nothing},
    "PolynomialFeatures": {"finish": _finish_polynomials, "probe": _nothing},
    "OneHotEncoder": _CATEGORIES,
    "OrdinalEncoder": _CATEGORIES,
    "CountVectorizer": _TERMS | _WORDS,
    "TfidfVectorizer": _TERMS | _WORDS,
    "HashingVectorizer": _WORDS | {"finish": _check_words},
    "DictVectorizer": _TERMS | {"probe": lambda vectorizer: vectorizer.transform([{}])},
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
