"""Linear models for search engines: Elasticsearch, OpenSearch and Solr."""

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
    """A ``model/linear`` of the Elasticsearch Learning to Rank plugin.

    Parameters
    ----------
    estimator : fitted estimator with a linear kernel
        As for `linear_scores`. Scalers in a pipeline are folded into the weights.
    feature_names : sequence of str, optional
        Names of the columns of X in the feature set. None: the columns of the data frame that
        the estimator was fitted to.
    name : str, default="rankrls"
        Of the model.
    output : int, optional
        Which output, of a model with several.
    drop_zeros : bool, default=False
        Whether features of weight zero are left out; the plugin takes a missing weight for zero.
    normalizers : bool, default=False
        Whether scalers become feature normalizers of the plugin (``standard``) and are not folded
        into the weights. The scores are then those of ``predict``, constant included.
    path : str or path, optional
        A file to write the body to, as JSON.

    Returns
    -------
    dict
        The body of ``POST _ltr/_featureset/<feature set>/_createmodel``. In it, ``definition`` is a
        string of JSON, as the plugin wants it.

    Notes
    -----
    The plugin scores a document by Σ weight × feature in 32-bit floats; a query that does not match
    a document gives the feature 0. The scores are those of ``predict`` less the constant
    `linear_scores` gives, which is the same for all documents: the ranking is the same.

    In a rescore window that constant matters: the documents in it are compared with those below
    it, which keep the score of the first query, and scores that are all far below zero put the
    whole window last. With ``normalizers=True`` the average training row scores about zero, and
    good ones more; or add the constant by ``query_weight``, or make the window as large as the
    result. Lucene wants scores that are not negative elsewhere: features are scores of queries,
    so they must not be negative before training.

    Folding loses no digits that matter in float64, but the engine sums in 32 bits: for a feature
    whose values are large beside their differences (a year, a time stamp) use ``normalizers``, or
    shift it towards zero in the feature's own query.

    This is for the open-source plugin. Elastic's own learning to rank, to which models are
    uploaded by Eland, is another format, and not covered.

    A model is not updated in place: give a new version a new name.

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
    """A ``model/linear`` of OpenSearch's Learning to Rank plugin.

    OpenSearch's plugin is a fork of the Elasticsearch one: the request, the type of the model and
    its definition are the same, and so is everything that `to_elasticsearch` says.

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
    """A ``LinearModel`` of Solr's Learning to Rank module.

    Parameters
    ----------
    estimator, feature_names, name, output
        As for `to_elasticsearch`. Names of features must not have ',' or '=', which separate them
        in Solr's feature log.
    store : str, optional
        The feature store that the features are in; None: Solr's default store.
    drop_zeros : bool, default=False
        Whether features of weight zero are left out, so that Solr does not compute them.
    normalizers : bool, default=False
        Whether scalers become normalizers of Solr (``StandardNormalizer``) and are not folded into
        the weights. The scores are then those of ``predict``, constant included: see
        `to_elasticsearch` about windows that are reranked.
    path : str or path, optional
        A file to write the model to, as JSON.

    Returns
    -------
    dict
        The body of ``PUT …/schema/model-store``.

    Notes
    -----
    Solr wants a weight for every feature in ``features``, and computes in 32-bit floats. Without
    ``normalizers`` the scores are those of ``predict`` less the constant that `linear_scores`
    gives, which is the same for all documents.

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
    """Names and weights of features, and the mean and deviation by which some are scaled first."""

    names: list[str]
    weights: Array
    normalizers: dict[str, tuple[float, float]]

    def mapping(self) -> dict[str, float]:
        """Weights by name."""
        # −0.0 becomes 0.0. Floats are written with a point or an exponent: older Solr wants a
        # Double.
        pairs = zip(self.names, self.weights, strict=True)
        return {name: float(weight) + 0.0 for name, weight in pairs}

    def solr_feature(self, name: str) -> dict[str, Any]:
        """A feature with its normalizer, whose parameters are strings."""
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
    """Names and weights of the features, fit for an engine of 32-bit floats."""
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
            "floats: multiply the feature by a large constant, or drop it if it is all but constant"
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
    """Mean and deviation of (x − mean)/deviation = scale x + shift, of what is scaled at all."""
    if (scale == 1).all() and (shift == 0).all():
        raise ValueError(
            "normalizers=True is for a pipeline with a scaler, and this model scales no feature"
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
