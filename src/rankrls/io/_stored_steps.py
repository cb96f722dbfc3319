"""Records of scikit-learn's numeric transformers, the steps of a pipeline before a ranker.

A record of a transformer lists the attributes that ``fit`` sets, by name and shape (the axis ``n``
is its features), the parameters that are not numbers or text, and the number of output features.
scikit-learn itself validates the values of the parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rankrls._validation import show
from rankrls.io._functions import ELEMENTWISE, SCORE_FUNCTIONS, name_of
from rankrls.io._kinds import (
    COUNT,
    FINITE,
    FLAG,
    INTEGER,
    ITEMS,
    NAMES,
    NUMBER,
    PLAIN,
    SIZE,
    TEXT,
    Kind,
    array,
    either,
    instance,
    mapping,
    maybe,
    optional,
    require,
    tuple_of,
    within,
)
from rankrls.io._records import EstimatorRecord
from rankrls.io._stored_estimators import OUTPUT, SEEN, check_seen

__all__ = ["STEPS", "check_step", "step"]

#: One number for every feature; NaN for a feature without values.
VECTOR = array("f", "n", nan=True, infinite=False)

#: Attributes of principal components.
COMPONENTS = {
    "components_": array("f", "k n", empty=False),
    "explained_variance_": array("f", "k", nan=True),
    "explained_variance_ratio_": array("f", "k", nan=True),
    "singular_values_": array("f", "k", nan=True),
}

SEED = {"random_state": maybe(either(INTEGER, instance("RandomState")))}

SCORE_FUNCTION = Kind(
    lambda value, axes: name_of(value) in SCORE_FUNCTIONS,
    "a function of sklearn.feature_selection, such as f_regression",
)
FUNCTION = Kind(
    lambda value, axes: name_of(value) not in (None, *SCORE_FUNCTIONS),
    "a function that was registered by rankrls.io.register_function, or one of "
    + ", ".join(ELEMENTWISE),
)

#: Maximum number of output features and maximum degree of PolynomialFeatures.
MAX_TERMS, MAX_DEGREE = 2**24, 30


def check_step(transformer: Any) -> None:
    """Raise an error unless scikit-learn accepts the parameters and feature names match."""
    transformer._validate_params()
    check_seen(transformer)


def step(
    name: str,
    module: str,
    fields: Mapping[str, Kind],
    *,
    params: Mapping[str, Kind] | None = None,
    check: Callable[[Any], None] | None = None,
    seen: Mapping[str, Kind] = SEEN,
    n_out: Callable[[Any], int | None] | None = lambda transformer: transformer.n_features_in_,
    **options: Any,
) -> EstimatorRecord:
    """Return the record of a transformer of scikit-learn."""

    def check_all(transformer: Any) -> None:
        check_step(transformer)
        if check is not None:
            check(transformer)

    return EstimatorRecord(
        name,
        f"sklearn.{module}",
        fields={**seen, **OUTPUT, **fields},
        check=check_all,
        params=params or {},
        n_out=n_out,
        **options,
    )


# -- scalers ----------------------------------------------------------------------------------


def _check_scaler(scaler: Any) -> None:
    parts = {"scale_": getattr(scaler, "with_std", getattr(scaler, "with_scaling", True))}
    if hasattr(scaler, "with_mean"):
        parts["mean_"] = scaler.with_mean
    if hasattr(scaler, "with_centering"):
        parts["center_"] = scaler.with_centering
    for name, needed in parts.items():
        good = not needed or getattr(scaler, name) is not None
        require(good, f"{name} of {type(scaler).__name__} is missing")
    if scaler.scale_ is not None:
        require(bool((scaler.scale_ != 0).all()), f"a {type(scaler).__name__} that divides by 0")


def _check_scaler_without_gaps(scaler: Any) -> None:
    """Raise an error if a column that has values contains NaN, which scikit-learn never sets."""
    _check_scaler(scaler)
    kind = type(scaler).__name__
    if kind == "StandardScaler":
        empty = np.asarray(scaler.n_samples_seen_) == 0
        require(empty.ndim == 0 or len(empty) == scaler.n_features_in_, f"a {kind} of other rows")
    else:
        empty = np.isnan(scaler.max_abs_ if kind == "MaxAbsScaler" else scaler.data_range_)
    for name in ("mean_", "var_", "min_", "scale_"):
        values = getattr(scaler, name, None)
        good = values is None or not (np.isnan(values) & ~empty).any()
        require(good, f"{name} of {kind} is NaN in a column that has values")


def _scaler(
    name: str, fields: dict[str, Kind], params: dict[str, Kind] | None = None
) -> EstimatorRecord:
    return step(
        name,
        "preprocessing",
        {"n_samples_seen_": either(FINITE, array("fi", "n")), **fields},
        params=params,
        check=_check_scaler_without_gaps,
    )


PAIR = tuple_of(NUMBER, NUMBER)

SCALERS = (
    _scaler(
        "StandardScaler", {"mean_": maybe(VECTOR), "var_": maybe(VECTOR), "scale_": maybe(VECTOR)}
    ),
    _scaler(
        "MinMaxScaler",
        dict.fromkeys(("min_", "scale_", "data_min_", "data_max_", "data_range_"), VECTOR),
        {"feature_range": PAIR},
    ),
    _scaler("MaxAbsScaler", {"scale_": VECTOR, "max_abs_": VECTOR}),
    step(
        "RobustScaler",
        "preprocessing",
        {"center_": maybe(VECTOR), "scale_": maybe(VECTOR)},
        params={"quantile_range": PAIR},
        check=_check_scaler,
    ),
    step("Normalizer", "preprocessing", {}),
    step("Binarizer", "preprocessing", {}),
    step(
        "QuantileTransformer",
        "preprocessing",
        {
            "n_quantiles_": SIZE,
            "references_": array("f", "q", empty=False),
            "quantiles_": array("f", "q n", nan=True, infinite=False),
        },
        params=SEED,
        check=lambda t: require(t.n_quantiles_ == len(t.references_), "other quantiles"),
    ),
    step(
        "PowerTransformer",
        "preprocessing",
        {"lambdas_": VECTOR, "_scaler": optional(instance("StandardScaler"))},
        check=lambda t: require(
            not t.standardize
            or (hasattr(t, "_scaler") and t._scaler.n_features_in_ == t.n_features_in_),
            "a PowerTransformer without the scaler of its features",
        ),
    ),
)

# -- imputers ---------------------------------------------------------------------------------

#: Data types that a SimpleImputer can be fitted to.
IMPUTED_TYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "object"),
)


def _pack_imputer(imputer: Any) -> dict[str, Any]:
    """Return the fields; object arrays of numbers become floats, types are stored by name."""
    _check_imputer(imputer)
    values = dict(vars(imputer))
    if imputer._fit_dtype.name != "object":
        values["statistics_"] = np.asarray(values["statistics_"], dtype=np.float64)
    return values | {"_fit_dtype": values["_fit_dtype"].name}


def _check_imputer(imputer: Any) -> None:
    strategy, known = imputer.strategy, ("mean", "median", "most_frequent", "constant")
    good = isinstance(strategy, str) and strategy in known
    require(good, f"strategy of SimpleImputer must be one of {known}; it is {show(strategy)}")
    dtype = getattr(imputer._fit_dtype, "name", imputer._fit_dtype)
    require(
        dtype in IMPUTED_TYPES,
        f"SimpleImputer was fitted to values of type {show(dtype)}: fit it to numbers, such as "
        "X.astype(float), or to Python objects",
    )
    n, values = imputer.n_features_in_, imputer.statistics_
    require(len(values) == n, f"statistics_ of SimpleImputer are not of {n} features")
    if dtype == "object":
        good = strategy in ("most_frequent", "constant") and values.dtype == object
        require(good, "SimpleImputer of text and other objects takes no means")
    elif values.dtype == object:  # strategy="constant"
        good = all(isinstance(value, int | float | np.number) for value in values)
        require(good, "SimpleImputer fills in what is no number")
    gap, fill = imputer.missing_values, imputer.fill_value
    good = dtype == "object" or not (isinstance(gap, str) or gap is None or isinstance(fill, str))
    require(good, "SimpleImputer of numbers looks for something else")
    indicator = getattr(imputer, "indicator_", None)
    present = indicator is not None and indicator.n_features_in_ == n
    require(present or not imputer.add_indicator, "SimpleImputer without its indicator")


def _finish_imputer(imputer: Any) -> None:
    imputer._fit_dtype = imputer._fill_dtype = np.dtype(imputer._fit_dtype)
    imputer.indicator_ = getattr(imputer, "indicator_", None)


def _n_imputed(imputer: Any) -> int:
    """Return the number of output features; empty features are dropped unless kept on request."""
    n = imputer.n_features_in_
    if not imputer.keep_empty_features:
        n -= sum(value is None or value != value for value in imputer.statistics_)
    return n + (len(imputer.indicator_.features_) if imputer.add_indicator else 0)


def _check_indicator(indicator: Any) -> None:
    n = indicator.n_features_in_
    good = indicator._n_features == n and within(indicator.features_, n, distinct=True)
    require(good, f"a MissingIndicator of other than {n} features")


#: A marker of missing values, or the value that replaces them.
GAP = maybe(either(NUMBER, TEXT))

IMPUTERS = (
    step(
        "SimpleImputer",
        "impute",
        {
            "statistics_": either(VECTOR, ITEMS),
            "_fit_dtype": TEXT,
            "indicator_": optional(maybe(instance("MissingIndicator"))),
        },
        params={"missing_values": GAP, "strategy": TEXT, "fill_value": GAP},
        check=_check_imputer,
        derived=("_fill_dtype",),
        pack=_pack_imputer,
        finish=_finish_imputer,
        n_out=_n_imputed,
    ),
    step(
        "MissingIndicator",
        "impute",
        {"features_": array("i", "gaps"), "_n_features": SIZE, "_precomputed": FLAG},
        params={"missing_values": GAP, "sparse": either(FLAG, TEXT)},
        check=_check_indicator,
        n_out=lambda indicator: len(indicator.features_),
    ),
)

# -- selection and projection -----------------------------------------------------------------

SCORES = {
    "scores_": array("f", "n", nan=True),
    "pvalues_": optional(maybe(array("f", "n", nan=True))),
}

SCORE_ADVICE = {
    "score_func": "it matters for fitting only, so call set_params(score_func=f_regression) before "
    "saving"
}


def _n_best(selector: Any) -> int:
    n = selector.n_features_in_
    return n if selector.k == "all" else min(int(selector.k), n)


def _n_components(transformer: Any) -> int:
    return len(transformer.components_)


def _check_terms(features: Any) -> None:
    degree, n = features.degree, features.n_features_in_
    low, high = degree if isinstance(degree, tuple | list) else (0, degree)
    require(0 <= low <= high <= MAX_DEGREE, f"polynomials of degree {show(degree)}")
    require(n <= MAX_TERMS, f"polynomials of {n} features")
    options = {"interaction_only": features.interaction_only, "include_bias": features.include_bias}
    n_terms = features._num_combinations(n, low, high, **options)
    require(n_terms <= MAX_TERMS, f"{n_terms} terms of polynomials")
    claimed = (features._min_degree, features._max_degree, features.n_output_features_)
    require(claimed == (low, high, n_terms), "polynomials of another degree")
    full = features._num_combinations(n, 0, high, **options)
    require(features._n_out_full == full and n_terms >= 1, "polynomials of other terms")


PROJECTIONS = (
    step(
        "PCA",
        "decomposition",
        {
            **COMPONENTS,
            "mean_": array("f", "n"),
            "n_components_": SIZE,
            "n_samples_": SIZE,
            "noise_variance_": FINITE,
            "_fit_svd_solver": TEXT,
        },
        params=SEED,
        check=lambda pca: require(pca.n_components_ == len(pca.components_), "other components"),
        n_out=_n_components,
    ),
    step("TruncatedSVD", "decomposition", COMPONENTS, params=SEED, n_out=_n_components),
    step(
        "VarianceThreshold",
        "feature_selection",
        {"variances_": array("f", "n", nan=True)},
        n_out=lambda selector: int((selector.variances_ > selector.threshold).sum()),
    ),
    step(
        "SelectKBest",
        "feature_selection",
        SCORES,
        params={"score_func": SCORE_FUNCTION, "k": either(COUNT, TEXT)},
        advice=SCORE_ADVICE,
        n_out=_n_best,
    ),
    step(
        "SelectPercentile",
        "feature_selection",
        SCORES,
        params={"score_func": SCORE_FUNCTION, "percentile": FINITE},
        advice=SCORE_ADVICE,
        n_out=lambda selector: int(selector._get_support_mask().sum()),
    ),
    step(
        "PolynomialFeatures",
        "preprocessing",
        {
            "_min_degree": COUNT,
            "_max_degree": COUNT,
            "n_output_features_": SIZE,
            "_n_out_full": SIZE,
        },
        params={"degree": either(COUNT, tuple_of(COUNT, COUNT))},
        check=_check_terms,
        n_out=lambda features: features.n_output_features_,
    ),
)

# -- functions --------------------------------------------------------------------------------


def _check_function(transformer: Any) -> None:
    for function, options in (
        (transformer.func, transformer.kw_args),
        (transformer.inverse_func, transformer.inv_kw_args),
    ):
        if function is None:
            require(not options, "options of no function")
        elif isinstance(function, np.ufunc):
            require(not options, f"{name_of(function)} takes no options in a model file")
        elif options:
            if name_of(function) in ELEMENTWISE:
                good = all(isinstance(value, int | float) for value in options.values())
                require(good, f"options of {name_of(function)} that are not numbers")
            try:
                inspect.signature(function).bind(None, **options)
            except TypeError as error:
                raise ValueError(f"{name_of(function)}: {error}") from error


_OPTIONS = maybe(mapping(PLAIN))

FUNCTIONS = (
    step(
        "FunctionTransformer",
        "preprocessing",
        {},
        seen={"n_features_in_": optional(SIZE), "feature_names_in_": optional(NAMES)},
        params={
            "func": maybe(FUNCTION),
            "inverse_func": maybe(FUNCTION),
            "kw_args": _OPTIONS,
            "inv_kw_args": _OPTIONS,
            "feature_names_out": maybe(TEXT),
        },
        check=_check_function,
        n_out=lambda transformer: (
            (
                transformer.n_features_in_
                if transformer.func is None or name_of(transformer.func) in ELEMENTWISE
                else None
            )
            if hasattr(transformer, "n_features_in_")
            else None
        ),
    ),
)

STEPS = (*SCALERS, *IMPUTERS, *PROJECTIONS, *FUNCTIONS)
