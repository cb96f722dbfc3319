"""Export of linear models to Elasticsearch, OpenSearch and Solr."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls.export._fold import choose_output, elementwise, fold
from rankrls.export._names import check_feature_names, check_model_name
from rankrls.export._output_files import write_json
from rankrls.export._steps import take_apart

__all__ = ["to_elasticsearch", "to_opensearch", "to_solr"]

Array = NDArray[Any]

SOLR_CLASS = "org.apache.solr.ltr.model.LinearModel"
SOLR_NORMALIZER = "org.apache.solr.ltr.norm.StandardNormalizer"


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

    In a rescore window the constant matters: documents in the window compete with those below it,
    which keep the score of the first query. If all new scores are far below zero, the whole window
    is ranked last. With ``normalizers=True`` the average training row scores about zero and good
    rows score more. Alternatively, add the constant with ``query_weight``, or make the window as
    large as the result. Lucene does not allow negative query scores elsewhere; features are query
    scores, so they must be non-negative before training.

    Folding is accurate in float64, but the engine sums in 32 bits. For a feature whose values are
    large compared with their differences (a year, a timestamp), use ``normalizers``, or subtract a
    constant in the query that defines the feature.

    This format is for the open-source plugin. Elastic's own learning to rank, to which models are
    uploaded with Eland, uses another format and is not supported.

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
    name = check_model_name(name)
    linear = _linear(estimator, feature_names, output, drop_zeros, normalizers)
    model: dict[str, Any] = {"type": "model/linear"}
    if normalizers:
        model["feature_normalizers"] = {
            name: {"standard": {"mean": mean, "standard_deviation": deviation}}
            for name, (mean, deviation) in linear.normalizers.items()
        }
    model["definition"] = _json(linear.mapping())
    body = {"model": {"name": name, "model": model}}
    write_json(path, body)
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
        Whether to export scalers as Solr normalizers (``StandardNormalizer``) instead of folding
        them into the weights. The scores then equal those of ``predict``, including the constant;
        see the notes of `to_elasticsearch` on rescore windows.
    path : str or path, optional
        File to which the model is written, as JSON.

    Returns
    -------
    dict
        The body of ``PUT …/schema/model-store``.

    Notes
    -----
    Solr requires a weight for each feature in ``features`` and computes in 32-bit floats. Without
    ``normalizers``, the scores are those of ``predict`` minus the constant returned by
    `linear_scores`, which is the same for all documents.

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
    name = check_model_name(name, forbidden="/'\"{}")
    if store is not None:
        store = check_model_name(store, what="store", forbidden="/'\"{}")
    linear = _linear(
        estimator,
        feature_names,
        output,
        drop_zeros,
        normalizers,
        forbidden=",=",
        why="Solr writes features as name=value,name=value",
    )
    model: dict[str, Any] = {"class": SOLR_CLASS, "name": name}
    if store is not None:
        model["store"] = store
    model["features"] = [linear.solr_feature(feature) for feature in linear.names]
    model["params"] = {"weights": linear.mapping()}
    write_json(path, model)
    return model


@dataclass(frozen=True)
class _EngineWeights:
    """Names and weights of features, with mean and deviation of the normalised ones."""

    names: list[str]
    weights: Array
    normalizers: dict[str, tuple[float, float]]

    def mapping(self) -> dict[str, float]:
        """Return the weights by name."""
        # −0.0 becomes 0.0. Floats are written with a point or an exponent, because older versions
        # of Solr require a Double.
        pairs = zip(self.names, self.weights, strict=True)
        return {name: float(weight) + 0.0 for name, weight in pairs}

    def solr_feature(self, name: str) -> dict[str, Any]:
        """Return a feature with its normalizer; Solr requires string parameters."""
        if name not in self.normalizers:
            return {"name": name}
        mean, deviation = self.normalizers[name]
        params = {"avg": repr(mean), "std": repr(deviation)}
        return {"name": name, "norm": {"class": SOLR_NORMALIZER, "params": params}}


def _linear(
    estimator: Any,
    given: Any,
    output: int | None,
    drop_zeros: bool,
    normalizers: bool,
    **rules: str,
) -> _EngineWeights:
    """Return names and weights of the features, checked for an engine with 32-bit floats."""
    parts = take_apart(estimator)
    names = check_feature_names(given, parts.feature_names, parts.n_features, **rules)
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
    if drop_zeros:
        kept = np.flatnonzero(rounded)
        names, weights = [names[i] for i in kept], weights[kept]
        scaled = {name: scaled[name] for name in names if name in scaled}
    return _EngineWeights(names, weights, scaled)


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


def _json(content: dict[str, float]) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False)
