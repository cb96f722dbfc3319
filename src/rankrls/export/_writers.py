"""Writers of linear models: search engines, SQL, Vespa and SVMrank."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._streams import written
from rankrls._validation import check_option, show
from rankrls.export._linear import Imputation, Parts, choose_output, decompose, elementwise, fold

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

#: Maximum length in bytes of a document id of Elasticsearch and OpenSearch; the id of a model is
#: "model-<name>".
MAX_ID = 512

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
    """Export a linear model to the Elasticsearch Learning to Rank plugin (``model/linear``).

    Parameters
    ----------
    estimator : fitted estimator with a linear kernel
        As for `linear_scores`. Scalers in a pipeline are folded into the weights.
    feature_names : sequence of str, optional
        Names of the columns of X in the feature set. If None, the column names of the data frame
        that the estimator was fitted to are used.
    name : str, default="rankrls"
        Name of the model.
    output : int, optional
        Index of the output to export, for a model with several.
    drop_zeros : bool, default=False
        Whether to omit features of weight zero; the plugin treats a missing weight as zero.
    normalizers : bool, default=False
        Whether to export scalers as feature normalizers of the plugin (``standard``) instead of
        folding them into the weights. The scores then equal those of ``predict``, including the
        constant.
    path : str or path, optional
        File to which the body is written, as JSON.

    Returns
    -------
    dict
        The body of ``POST _ltr/_featureset/<feature set>/_createmodel``. Its ``definition`` is a
        JSON string, as the plugin requires.

    Notes
    -----
    The plugin scores a document by Σ weight × feature in 32-bit floats. A feature is 0 if its query
    does not match the document. The scores are those of ``predict`` minus the constant returned by
    `linear_scores`, which is the same for all documents and does not change the ranking.

    In a rescore window the constant matters: documents below the window keep the score of the first
    query. If all new scores are far below zero, the whole window is ranked last. With
    ``normalizers=True`` the average training row scores about zero. Alternatively, add the constant
    with ``query_weight``. Features are query scores, so they must be non-negative before training.

    For a feature whose values are large compared with their differences (a timestamp), use
    ``normalizers``: the engine sums in 32 bits. The format is that of the open-source plugin;
    Elastic's own learning to rank, to which models are uploaded with Eland, is not supported.
    Models cannot be updated in place; give each new version a new name.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.export import to_elasticsearch
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0]])
    >>> ranker = RankRLS().fit(X, [0, 1, 2, 3])
    >>> body = to_elasticsearch(ranker, ["title_match", "recency"], "films-1")
    >>> body["model"]["model"]["type"]
    'model/linear'
    >>> body["model"]["model"]["definition"]
    '{"title_match": 0.91..., "recency": 0.06...}'
    """
    name = _check_model_name(name)
    weights, scaled = _engine_weights(estimator, feature_names, output, drop_zeros, normalizers)
    model: dict[str, Any] = {"type": "model/linear"}
    if normalizers:
        model["feature_normalizers"] = {
            name: {"standard": {"mean": mean, "standard_deviation": deviation}}
            for name, (mean, deviation) in scaled.items()
        }
    model["definition"] = json.dumps(weights, ensure_ascii=False, allow_nan=False)
    body = {"model": {"name": name, "model": model}}
    _write_json(path, body)
    return body


def to_opensearch(
    estimator: Any,
    feature_names: Any = None,
    name: str = "rankrls",
    *,
    output: int | None = None,
    drop_zeros: bool = False,
    normalizers: bool = False,
    path: Any = None,
) -> dict[str, Any]:
    """Export a linear model to OpenSearch's Learning to Rank plugin (``model/linear``).

    OpenSearch's plugin is a fork of the Elasticsearch plugin. The request, the model type and the
    definition are the same, and the notes of `to_elasticsearch` apply.

    Parameters
    ----------
    estimator, feature_names, name, output, drop_zeros, normalizers, path
        As for `to_elasticsearch`.

    Returns
    -------
    dict
        The body of ``POST _ltr/_featureset/<feature set>/_createmodel``.
    """
    options: dict[str, Any] = {"output": output, "drop_zeros": drop_zeros, "path": path}
    return to_elasticsearch(estimator, feature_names, name, normalizers=normalizers, **options)


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
    estimator, feature_names, name, output
        As for `to_elasticsearch`. Feature names must not contain ',' or '=', which are separators
        in Solr's feature log.
    store : str, optional
        Feature store that contains the features. If None, Solr's default store is used.
    drop_zeros : bool, default=False
        Whether to omit features of weight zero, so that Solr does not compute them.
    normalizers : bool, default=False
        Whether to export scalers as Solr normalizers (``StandardNormalizer``), as in
        `to_elasticsearch`, whose notes on rescore windows apply.
    path : str or path, optional
        File to which the model is written, as JSON.

    Returns
    -------
    dict
        The body of ``PUT …/schema/model-store``.

    Notes
    -----
    Solr requires a weight for each feature in ``features`` and computes in 32-bit floats. Without
    ``normalizers``, the scores are those of ``predict`` minus the constant of `linear_scores`.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.export import to_solr
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0]])
    >>> ranker = RankRLS().fit(X, [0, 1, 2, 3])
    >>> model = to_solr(ranker, ["title", "recency"], "films-1", store="films")
    >>> model["features"]
    [{'name': 'title'}, {'name': 'recency'}]
    >>> sorted(model["params"]["weights"])
    ['recency', 'title']
    """
    name = _check_model_name(name, forbidden="/'\"{}")
    if store is not None:
        store = _check_model_name(store, what="store", forbidden="/'\"{}")
    rules = {"forbidden": ",=", "why": "Solr writes features as name=value,name=value"}
    weights, scaled = _engine_weights(
        estimator, feature_names, output, drop_zeros, normalizers, **rules
    )
    model: dict[str, Any] = {"class": SOLR_CLASS, "name": name}
    if store is not None:
        model["store"] = store
    model["features"] = [{"name": feature} for feature in weights]
    for feature in model["features"]:
        if feature["name"] in scaled:
            mean, deviation = scaled[feature["name"]]  # Solr requires string parameters
            params = {"avg": repr(mean), "std": repr(deviation)}
            feature["norm"] = {"class": SOLR_NORMALIZER, "params": params}
    model["params"] = {"weights": weights}
    _write_json(path, model)
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
    estimator : fitted estimator with a linear kernel
        As for `to_elasticsearch`; a SimpleImputer as the first step of a pipeline becomes
        ``COALESCE``.
    feature_names : sequence of str, optional
        Names of the columns in the table; by default those that the estimator was fitted to.
    quote : {'"', "`", "["}, default='"'
        Quote around names: standard SQL uses ``"name"``, MySQL and BigQuery use backticks, SQL
        Server uses ``[name]``.
    output, path
        As for `to_elasticsearch`.

    Returns
    -------
    str
        The expression, without ``SELECT``.

    Notes
    -----
    The scores equal those of ``predict``, including the constant, up to rounding. Numbers are
    written with an exponent so that databases read them as double precision and not as fixed-point
    decimals. Columns of weight zero are omitted. A missing value (NULL) makes the score NULL unless
    the model has an imputer. NaN, which some databases have in addition to NULL, stays NaN.
    Parentheses keep the sums of wide models within the expression depth that databases allow.

    SQLite reads a double-quoted name that is not a column as text, and text as 0; with
    ``quote="["`` a misspelt name raises an error there.

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
    parts = decompose(estimator)
    names = _check_feature_names(feature_names, parts)
    first, last, inner = QUOTES[quote]
    columns = [first + name.replace(last, inner) + last for name in names]
    if parts.steps and isinstance(parts.steps[0], Imputation):
        first_step = parts.steps[0]
        filled = range(parts.n_features) if first_step.columns is None else first_step.columns
        for i, value in zip(filled, first_step.values.tolist(), strict=True):
            if not np.isnan(first_step.missing):
                columns[i] = f"NULLIF({columns[i]}, {_literal(first_step.missing)})"
            columns[i] = f"COALESCE({columns[i]}, {_literal(value)})"
        parts = replace(parts, steps=[first_step.affine, *parts.steps[1:]])
    return _written(path, _expression(parts, columns, output, "the one expression"))


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
        The text of a ``rank-profile``, for a schema or its ``.profile`` file. The profile has a
        function that computes the score and uses it in the second phase.

    Notes
    -----
    The scores equal those of ``predict``, including the constant, up to rounding. Features of
    weight zero are omitted.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.export import to_vespa
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0]])
    >>> ranker = RankRLS().fit(X, [0, 1, 2, 3])
    >>> print(to_vespa(ranker, ["bm25(title)", "attribute(age)"], "films"))
    rank-profile films inherits default {
        function films_score() {
            expression {
                9.1...E-01 * bm25(title) + 6.2...E-02 * attribute(age)
            }
        }
        second-phase {
            expression: films_score()
        }
    }
    """
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        raise ValueError(
            f"name must consist of letters, digits and '_' and begin with a letter; got {name!r}"
        )
    parts = decompose(estimator)
    names = _check_feature_names(feature_names, parts)
    for i, feature in enumerate(names):
        if not _RANK_FEATURE.fullmatch(feature):
            raise ValueError(
                f"feature_names[{i}] is {feature!r}, which is not a rank feature of Vespa; write, "
                "for example, bm25(title) or attribute(age)"
            )
    expression = _expression(parts, names, output, "the expression of a rank profile")
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
    The format is SVM-light's: ten lines of parameters (kernel type 0 is linear), the threshold b,
    and one line for each support vector, beginning with its coefficient. A linear model is one
    support vector, the weights ``1:w₁ 2:w₂ …``, with coefficient 1, as svm_rank_learn writes it.
    The first column of X is feature 1, as in files that `rankrls.datasets.load_letor` reads;
    weights of zero are omitted. The score of a document is ⟨w, x⟩ − b, where b accounts for the
    shift by scalers, so the scores equal those of ``predict`` up to SVMrank's 32-bit floats and the
    eight decimals that it prints (rescale y if tiny weights leave too few digits). The first line
    names the version V6.20 that svm_rank_classify 1.00 checks; for svm_classify of SVM-light 6.02
    change it to V6.02.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.export import to_svmrank
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0]])
    >>> print(to_svmrank(RankRLS().fit(X, [0, 1, 2, 3])).splitlines()[-1])
    1 1:0.91... 2:0.06... #
    """
    parts = decompose(estimator)
    scores = fold(parts, output=output, target="the one vector of weights in the file")
    w = scores.weights
    with np.errstate(over="ignore"):
        rounded = w.astype(np.float32)
    if not np.isfinite(rounded).all() or not rounded.any():
        raise ValueError(
            "the weights are zero or infinite in SVMrank's 32-bit floats; check the model and the "
            "scale of the features"
        )
    words = " ".join(f"{i + 1}:{w[i]:.17g}" for i in np.flatnonzero(w))
    text = SVMRANK_HEADER.format(n=len(w), b=0.0 - scores.constant) + f"1 {words} #\n"
    write_bytes(path, text.encode("ascii"))
    return text


# ---------------------------------------------------------------- search engines


def _engine_weights(
    estimator: Any,
    given: Any,
    output: int | None,
    drop_zeros: bool,
    normalizers: bool,
    **rules: str,
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Weights by name, for 32-bit floats; mean and deviation of the normalised features."""
    parts = decompose(estimator)
    names = _check_feature_names(given, parts, **rules)
    weights = fold(parts, output=output).weights
    scaled: dict[str, tuple[float, float]] = {}
    if normalizers:
        columns, scale, shift = elementwise(parts)
        names = [names[column] for column in columns]
        W = np.atleast_2d(np.asarray(parts.ranker.coef_, dtype=np.float64))
        weights = W[choose_output(len(W), output)]
        scaled = _normalizers(names, scale, shift)
    with np.errstate(over="ignore"):
        rounded = weights.astype(np.float32)
    if not np.isfinite(rounded).all():
        i = int(np.flatnonzero(~np.isfinite(rounded))[0])
        raise ValueError(
            f"the weight {weights[i]:.3g} of {names[i]!r} is too large for the engine's 32-bit "
            "floats; multiply the feature by a large constant, or drop it if it is nearly constant"
        )
    if not rounded.any():
        raise ValueError(
            "every weight is zero (in the engine's 32-bit floats): all documents would have the "
            "same score. Check that the features differ within queries, and that alpha is not huge"
        )
    kept = np.flatnonzero(rounded) if drop_zeros else np.arange(len(weights))
    # −0.0 becomes 0.0. Floats are written with a point or an exponent, because older versions of
    # Solr require a Double.
    mapping = {names[i]: float(weights[i]) + 0.0 for i in kept}
    return mapping, {name: scaled[name] for name in mapping if name in scaled}


def _normalizers(names: list[str], scale: Array, shift: Array) -> dict[str, tuple[float, float]]:
    """Return mean and deviation of each feature: (x − mean)/deviation = scale x + shift."""
    if (scale == 1).all() and (shift == 0).all():
        raise ValueError(
            "normalizers=True needs a pipeline with a scaler, and this model scales no feature"
        )
    mean, deviation = -shift / scale + 0.0, 1.0 / scale
    with np.errstate(over="ignore"):
        fits = np.isfinite(np.stack([mean, deviation]).astype(np.float32)).all(axis=0)
        fits &= (scale > 0) & (deviation.astype(np.float32) > 0)
    if not fits.all():
        i = int(np.flatnonzero(~fits)[0])
        raise ValueError(
            f"the scale {deviation[i]:.3g} of {names[i]!r} does not fit into the engine's 32-bit "
            "floats: drop the feature, or leave out normalizers"
        )
    moved = np.flatnonzero((scale != 1) | (shift != 0))
    return {names[i]: (float(mean[i]), float(deviation[i])) for i in moved}


# ---------------------------------------------------------------- expressions


def _expression(parts: Parts, names: Sequence[str], output: int | None, target: str) -> str:
    """Write the weighted sum of named features, plus the constant."""
    scores = fold(parts, output=output, target=target)
    if not scores.weights.any():
        raise ValueError(
            "every weight is zero: all rows would have the same score. Check that the features "
            "differ within queries, and that alpha is not huge"
        )
    used = np.flatnonzero(scores.weights).tolist()
    terms = [(float(scores.weights[i]), f" * {names[i]}") for i in used]
    if scores.constant:
        terms.append((scores.constant, ""))
    groups = [""] * -(-len(terms) // TERMS)
    for i, (number, rest) in enumerate(terms):
        if i % TERMS == 0:
            groups[i // TERMS] = _literal(number) + rest
        else:
            sign = "-" if number < 0 else "+"
            groups[i // TERMS] += f" {sign} {_literal(abs(number))}{rest}"
    while len(groups) > 1:  # nested groups of limited size, each in parentheses
        groups = [" + ".join(f"({group})" for group in groups[i : i + TERMS])
                  for i in range(0, len(groups), TERMS)]  # fmt: skip
    return groups[0]


def _literal(number: float) -> str:
    """Format a number so that it is read back as the same double."""
    digits = next(d for d in range(17) if float(f"{number:.{d}E}") == number or d == 16)
    return f"{number:.{digits}E}" if digits else f"{number:.1E}"


# ---------------------------------------------------------------- names and files


def _check_feature_names(
    given: Any, parts: Parts, *, forbidden: str = "", why: str = ""
) -> list[str]:
    """Return ``given``, or the names of the training data, without ``forbidden`` characters."""
    fitted, n_features = parts.feature_names, parts.n_features
    if given is None:
        if fitted is None:
            raise ValueError(
                "the model was fitted to rows without feature names; pass feature_names, the "
                f"engine's names of the {n_features} features in the order of the columns"
            )
        given = fitted
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(f"feature_names must be a list of names; got {show(given)}")
    names = list(given)
    if len(names) != n_features:
        raise ValueError(f"feature_names has {len(names)} names for {n_features} features")
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        _check_text(f"feature_names[{i}]", name)
        found = next((c for c in forbidden if c in name), None)
        if found is not None:
            raise ValueError(f"feature_names[{i}] is {name!r}, with {found!r}: {why}")
        if name in seen:
            raise ValueError(
                f"feature_names[{seen[name]}] and feature_names[{i}] are both {name!r}; give "
                "each feature a different name"
            )
        seen[name] = i
        if fitted is not None and name != fitted[i] and name in fitted:
            raise ValueError(
                f"feature_names[{i}] is {name!r}, the model's own name of feature "
                f"{fitted.index(name)}: give other names in the order of the columns that the "
                "model was fitted to, or leave feature_names out"
            )
    return [str(name) for name in names]


def _check_model_name(name: Any, *, what: str = "name", forbidden: str = "/") -> str:
    """Check that a name can be part of a URL and of an id."""
    _check_text(what, name)
    found = next((c for c in name if c.isspace() or c in forbidden), None)
    if found is not None:
        raise ValueError(
            f"{what} is {name!r}, with {found!r}: it becomes a part of a URL and of a query; use "
            "letters, digits, '_', '-' and '.'"
        )
    if len(f"model-{name}".encode()) > MAX_ID:
        raise ValueError(f"{what} is too long: at most {MAX_ID - len('model-')} bytes")
    return str(name)


def _check_text(what: str, name: Any) -> None:
    if not isinstance(name, str):
        raise ValueError(f"{what} must be a string; got {show(name)}")
    if not name.strip():
        raise ValueError(f"{what} is empty")
    if not name.isprintable():
        raise ValueError(f"{what} is {name!r}; names must not contain control characters")


def write_bytes(path: Any, content: bytes) -> None:
    """Replace the file ``path`` by ``content``; do nothing if path is None."""
    if path is None:
        return
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path must be the name of a file; got {show(path)}")
    with written(os.fspath(path)) as file:
        file.write(content)


def _written(path: Any, text: str) -> str:
    write_bytes(path, (text + "\n").encode())
    return text


def _write_json(path: Any, content: dict[str, Any]) -> None:
    """Replace the file ``path`` by ``content`` as indented JSON in UTF-8."""
    _written(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
