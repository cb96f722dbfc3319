"""Writers of linear models: search engines, SQL, Vespa and SVMrank."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls._streams import written
from rankrls._validation import check_feature_names, check_name, check_option
from rankrls.export._linear import Folded, LinearScores, fold

Array = NDArray[Any]

SOLR_CLASS = "org.apache.solr.ltr.model.LinearModel"
SOLR_NORMALIZER = "org.apache.solr.ltr.norm.StandardNormalizer"

VESPA_PROFILE = """\
rank-profile {name} inherits default {{
    function {name}_score() {{
        expression {{
            {expression}
        }}
    }}
    second-phase {{
        expression: {name}_score()
    }}
}}"""

#: First lines of an SVMrank model, with the version that svm_rank_classify 1.00 requires.
SVMRANK_HEADER = (
    "SVM-light Version V6.20\n0 # kernel type\n3 # kernel parameter -d \n"
    "1 # kernel parameter -g \n1 # kernel parameter -s \n1 # kernel parameter -r \n"
    "empty# kernel parameter -u \n{n} # highest feature index \n"
    "0 # number of training documents \n2 # number of support vectors plus 1 \n"
    "{b:.17g} # threshold b, each following line is a SV (starting with alpha*y)\n"
)

#: Maximum number of terms in one pair of parentheses: SQLite limits the expression depth to 1000.
TERMS = 50

#: Quotes around column names, and the escape of a quote inside a name.
QUOTES = {'"': ('"', '"', '""'), "`": ("`", "`", "``"), "[": ("[", "]", "]]")}

#: A rank feature of Vespa: bm25(title), attribute(age), matches, fieldMatch(title).proximity.
_RANK_FEATURE = re.compile(r"[A-Za-z_]\w*(\.\w+)*(\([\w\s,.:*-]*\)(\.\w+)*)?", re.ASCII)

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def to_elasticsearch(
    estimator: Any,
    feature_names: Any = None,
    name: str = "rankrls",
    *,
    output: int | None = None,
    drop_zeros: bool = False,
    normalizers: bool = False,
    path: Any = None,
) -> dict[str, Any]:
    """Export a linear model to the Learning to Rank plugin of Elasticsearch or OpenSearch.

    Parameters
    ----------
    estimator : fitted estimator with a linear kernel
        As for `linear_scores`. Scalers in a pipeline are folded into the weights.
    feature_names : sequence of str, optional
        Names of the columns of X in the feature set; by default those of the data frame that the
        estimator was fitted to.
    name : str, default="rankrls"
        Name of the model. Models cannot be updated in place: give each version a new name.
    output : int, optional
        Index of the output to export, for a model with several.
    drop_zeros : bool, default=False
        Whether to omit features of weight zero; the plugin treats a missing weight as zero.
    normalizers : bool, default=False
        Whether to export scalers as feature normalizers instead of folding them into the weights.
        The scores then equal those of ``predict``, which matters in a rescore window.
    path : str or path, optional
        File to which the body is written, as JSON.

    Returns
    -------
    dict
        The body of ``POST _ltr/_featureset/<feature set>/_createmodel``. Its ``definition`` is a
        JSON string, as the plugin requires.

    Notes
    -----
    The plugin scores a document by Σ weight × feature in 32-bit floats (``model/linear``); a
    feature whose query does not match counts as 0. The scores are those of ``predict`` minus the
    constant of `linear_scores`. Elastic's own learning to rank (Eland) has another format.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.export import to_elasticsearch
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0]])
    >>> ranker = RankRLS().fit(X, [0, 1, 2, 3])
    >>> body = to_elasticsearch(ranker, ["title_match", "recency"], "films-1")
    >>> body["model"]["model"]["definition"]
    '{"title_match": 0.91..., "recency": 0.06...}'
    """
    _check_name("name", name, forbidden="/")
    weights, scaled = _engine_weights(estimator, feature_names, output, drop_zeros, normalizers)
    model: dict[str, Any] = {"type": "model/linear"}
    if normalizers:
        model["feature_normalizers"] = {
            name: {"standard": {"mean": mean, "standard_deviation": deviation}}
            for name, (mean, deviation) in scaled.items()
        }
    model["definition"] = _json(weights)
    body = {"model": {"name": name, "model": model}}
    _written(path, _json(body, indent=2))
    return body


#: OpenSearch's plugin is a fork of the Elasticsearch plugin, with the same request and definition.
to_opensearch = to_elasticsearch


def to_solr(
    estimator: Any,
    feature_names: Any = None,
    name: str = "rankrls",
    *,
    store: str | None = None,
    output: int | None = None,
    drop_zeros: bool = False,
    normalizers: bool = False,
    path: Any = None,
) -> dict[str, Any]:
    """Export a linear model to Solr's Learning to Rank module (``LinearModel``).

    Parameters
    ----------
    estimator, feature_names, name, output, drop_zeros, normalizers, path
        As for `to_elasticsearch`. Feature names must not contain ',' or '=', which are separators
        in Solr's feature log. Normalizers are ``StandardNormalizer``.
    store : str, optional
        Feature store that contains the features. If None, Solr's default store is used.

    Returns
    -------
    dict
        The body of ``PUT …/schema/model-store``. Solr computes in 32-bit floats; without
        ``normalizers``, the scores are those of ``predict`` minus the constant of `linear_scores`.
    """
    named = {"name": name} if store is None else {"name": name, "store": store}
    for what, value in named.items():
        _check_name(what, value, forbidden="/'\"{}")
    weights, scaled = _engine_weights(
        estimator, feature_names, output, drop_zeros, normalizers, separators=",="
    )
    features: list[dict[str, Any]] = [{"name": feature} for feature in weights]
    for feature in features:
        if feature["name"] in scaled:
            mean, deviation = scaled[feature["name"]]  # Solr requires string parameters
            params = {"avg": repr(mean), "std": repr(deviation)}
            feature["norm"] = {"class": SOLR_NORMALIZER, "params": params}
    model = {"class": SOLR_CLASS, **named, "features": features, "params": {"weights": weights}}
    _written(path, _json(model, indent=2))
    return model


def to_sql(
    estimator: Any,
    feature_names: Any = None,
    *,
    quote: str = '"',
    output: int | None = None,
    path: Any = None,
) -> str:
    """Export a linear model as an SQL expression that computes the score of a row.

    Parameters
    ----------
    estimator, output, path
        As for `to_elasticsearch`; a SimpleImputer as the first step of a pipeline becomes
        ``COALESCE``.
    feature_names : sequence of str, optional
        Names of the columns in the table; by default those that the estimator was fitted to.
    quote : {'"', "`", "["}, default='"'
        Quote around names: standard SQL uses ``"name"``, MySQL and BigQuery use backticks, SQL
        Server uses ``[name]``.

    Returns
    -------
    str
        The expression, without ``SELECT``.

    Notes
    -----
    The scores equal those of ``predict`` up to rounding. Columns of weight zero are omitted. NULL
    makes the score NULL unless the model has an imputer. SQLite reads a double-quoted name that is
    not a column as text, and text as 0; with ``quote="["`` it raises an error.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.export import to_sql
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0]])
    >>> print(to_sql(RankRLS().fit(X, [0, 1, 2, 3]), ["bm25", "age"]))
    9.1...E-01 * "bm25" + 6.2...E-02 * "age"
    """
    check_option("quote", quote, QUOTES)
    folded = fold(estimator)
    first, last, inner = QUOTES[quote]
    names = _check_feature_names(feature_names, folded)
    columns = [first + name.replace(last, inner) + last for name in names]
    if folded.fill is not None:
        filled = zip(columns, folded.fill.tolist(), strict=True)
        columns = [f"COALESCE({column}, {_literal(value)})" for column, value in filled]
    expression = _expression(folded.linear(output, complete=True), columns)
    return _written(path, expression)


def to_vespa(
    estimator: Any,
    feature_names: Any = None,
    name: str = "rankrls",
    *,
    output: int | None = None,
    path: Any = None,
) -> str:
    """Export a linear model as a Vespa rank profile.

    Parameters
    ----------
    estimator, output, path
        As for `to_elasticsearch`.
    feature_names : sequence of str, optional
        Vespa rank features in the order of the columns of X, such as ``bm25(title)`` and
        ``attribute(popularity)``, or names of functions of the profile; by default the column names
        that the estimator was fitted to. They must be the names in Vespa's ``matchfeatures``.
    name : str, default="rankrls"
        Name of the profile.

    Returns
    -------
    str
        The text of a ``rank-profile``, for a schema or its ``.profile`` file, with a function that
        computes the score and its use in the second phase. The scores equal those of ``predict``,
        including the constant, up to rounding. Features of weight zero are omitted.
    """
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        raise ValueError(
            f"name must consist of letters, digits and '_' and begin with a letter; got {name!r}"
        )
    folded = fold(estimator)
    names = _check_feature_names(feature_names, folded)
    for i, feature in enumerate(names):
        if not _RANK_FEATURE.fullmatch(feature):
            raise ValueError(
                f"feature_names[{i}] is {feature!r}, which is not a rank feature of Vespa; write, "
                "for example, bm25(title) or attribute(age)"
            )
    expression = _expression(folded.linear(output), names)
    return _written(path, VESPA_PROFILE.format(name=name, expression=expression))


def to_svmrank(estimator: Any, path: Any = None, *, output: int | None = None) -> str:
    """Export a linear model as an SVMrank model file, for ``svm_rank_classify``.

    Parameters
    ----------
    estimator, path, output
        As for `to_elasticsearch`.

    Returns
    -------
    str
        The text of the file.

    Notes
    -----
    The first column of X is feature 1, and weights of zero are omitted. The scores equal those of
    ``predict`` up to SVMrank's 32-bit floats. The first line names the version V6.20 that
    svm_rank_classify 1.00 checks; for SVM-light 6.02 change it to V6.02.
    """
    scores = fold(estimator).linear(output)
    w = scores.weights
    _require_float32(w, [f"feature {i + 1}" for i in range(len(w))])
    words = " ".join(f"{i + 1}:{w[i]:.17g}" for i in np.flatnonzero(w))
    text = SVMRANK_HEADER.format(n=len(w), b=0.0 - scores.constant) + f"1 {words} #\n"
    write_bytes(path, text.encode("ascii"))
    return text


def _engine_weights(
    estimator: Any,
    given: Any,
    output: int | None,
    drop_zeros: bool,
    normalizers: bool,
    separators: str = "",
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Weights by name, for 32-bit floats; mean and deviation of the normalised features."""
    folded = fold(estimator)
    names = _check_feature_names(given, folded, separators)
    weights = folded.linear(output).weights
    scaled: dict[str, tuple[float, float]] = {}
    if normalizers:
        matrix = folded.matrix
        if not sparse.issparse(matrix):
            raise ValueError(
                "normalizers=True needs scalers of single features, and the pipeline mixes "
                "features (PCA, TruncatedSVD); use normalizers=False"
            )
        names = [names[column] for column in matrix.indices]
        weights, scaled = folded.coef(output), _normalizers(names, matrix.data, folded.shift)
    rounded = _require_float32(weights, names)
    kept = np.flatnonzero(rounded) if drop_zeros else np.arange(len(weights))
    # −0.0 becomes 0.0. Floats are written with a point or an exponent, because older versions of
    # Solr require a Double.
    mapping = {names[i]: float(weights[i]) + 0.0 for i in kept}
    return mapping, {name: scaled[name] for name in mapping if name in scaled}


def _normalizers(names: list[str], scale: Array, shift: Array) -> dict[str, tuple[float, float]]:
    """Return mean and deviation of each feature: (x − mean)/deviation = scale x + shift."""
    moved = np.flatnonzero((scale != 1) | (shift != 0))
    if not len(moved):
        raise ValueError(
            "normalizers=True needs a pipeline with a scaler, and this model scales no feature"
        )
    mean, deviation = -shift / scale + 0.0, 1.0 / scale
    fits = np.isfinite(_float32(np.stack([mean, deviation]))).all(axis=0)
    fits &= (scale > 0) & (_float32(deviation) > 0)
    if not fits.all():
        i = int(np.flatnonzero(~fits)[0])
        raise ValueError(
            f"the scale {deviation[i]:.3g} of {names[i]!r} does not fit into the engine's 32-bit "
            "floats: drop the feature, or leave out normalizers"
        )
    return {names[i]: (float(mean[i]), float(deviation[i])) for i in moved}


def _float32(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _require_float32(weights: Array, names: Sequence[str]) -> Array:
    """Return the weights in 32-bit floats; raise an error if they are infinite or all zero."""
    rounded = _float32(weights)
    _require_weights(rounded)
    for i in np.flatnonzero(~np.isfinite(rounded))[:1]:
        raise ValueError(
            f"the weight {weights[i]:.3g} of {names[i]!r} is too large for 32-bit floats; multiply "
            "the feature by a large constant, or drop it if it is nearly constant"
        )
    return rounded


def _require_weights(weights: Array) -> None:
    if not weights.any():
        raise ValueError(
            "every weight is zero (in the precision of the target): all rows would have the same "
            "score. Check that the features differ within queries, and that alpha is not huge"
        )


def _expression(scores: LinearScores, names: Sequence[str]) -> str:
    """Write the weighted sum of named features, plus the constant."""
    _require_weights(scores.weights)
    terms = [(w, f" * {name}") for w, name in zip(scores.weights.tolist(), names, strict=True) if w]
    terms += [(scores.constant, "")] if scores.constant else []
    groups = []
    for start in range(0, len(terms), TERMS):
        (first, rest), *others = terms[start : start + TERMS]
        groups.append(_literal(first) + rest)
        for number, rest in others:
            groups[-1] += f" {'-' if number < 0 else '+'} {_literal(abs(number))}{rest}"
    while len(groups) > 1:  # nested groups of limited size, each in parentheses
        groups = [" + ".join(f"({group})" for group in groups[i : i + TERMS])
                  for i in range(0, len(groups), TERMS)]  # fmt: skip
    return groups[0]


def _literal(number: float) -> str:
    """Format a number so that it is read back as the same double."""
    digits = next(d for d in range(17) if float(f"{number:.{d}E}") == number or d == 16)
    return f"{number:.{digits}E}" if digits else f"{number:.1E}"


def _check_feature_names(given: Any, folded: Folded, separators: str = "") -> list[str]:
    """Return ``given``, or the names of the training data, without ``separators``."""
    fitted, n_features = folded.feature_names, folded.matrix.shape[0]
    given = fitted if given is None else given
    if given is None:
        raise ValueError(
            "the model was fitted to rows without feature names; pass feature_names, the "
            f"engine's names of the {n_features} features in the order of the columns"
        )
    names = check_feature_names(given, fitted, n_features)
    for i, name in enumerate(names):
        if any(c in name for c in separators):
            raise ValueError(
                f"feature_names[{i}] is {name!r}: Solr writes features as name=value,name=value"
            )
    return names


def _check_name(what: str, name: Any, forbidden: str) -> None:
    """Check a name that becomes a part of a URL and of an id."""
    check_name(what, name)
    found = next((c for c in name if c.isspace() or c in forbidden), None)
    if found is not None:
        raise ValueError(
            f"{what} is {name!r}, with {found!r}: it becomes a part of a URL and of a query; use "
            "letters, digits, '_', '-' and '.'"
        )


def write_bytes(path: Any, content: bytes) -> None:
    """Replace the file ``path`` by ``content``; do nothing if path is None."""
    if path is not None:
        with written(os.fspath(path)) as file:
            file.write(content)


def _written(path: Any, text: str) -> str:
    write_bytes(path, (text + "\n").encode())
    return text


def _json(content: dict[str, Any], indent: int | None = None) -> str:
    return json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)
