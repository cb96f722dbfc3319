"""Options to rankers and the steps before them, and model files to something that scores rows.

Filling in and scaling learn from the features of all rows and never from labels; they become part
of the model.
"""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from rankrls import AutoRanker, RankRLS, RankRLSCV, RankSVM
from rankrls._calls import warn
from rankrls._frames import (
    columns_like_ids,
    first_step,
    id_text,
    named_frame,
    required_features,
    scale_text,
    unequal_scales,
)
from rankrls._resources import SCALER_VECTORS, require_features
from rankrls.cli._files import DataFile
from rankrls.core.preferences.costs import Loss
from rankrls.estimators.choosing import Scoring
from rankrls.io import load_model
from rankrls.preprocessing import QueryScaler, TableEncoder

__all__ = ["MAX_GAIN", "Scorer", "add_history", "fit_rows", "last_step", "make_ranker", "rows_for",
           "scale_of", "with_steps"]  # fmt: skip

#: What members of an AutoRanker are chosen by unless ``--scoring`` says something else.
AUTO_SCORING = "ndcg@10"

#: Labels above this have gains 2^y − 1 that are too large.
MAX_GAIN = 1000

SHARED = ("kernel", "gamma", "degree", "coef0", "query_weighting", "solver", "basis",
          "random_state", "max_iter", "tol")  # fmt: skip


def make_ranker(o: Any, alpha: float | None = None, cv: str | None = None) -> Any:
    """AutoRanker with ``--auto``, RankRLSCV without an alpha, or RankRLS or RankSVM."""
    scoring = AUTO_SCORING if o.auto and "scoring" not in o.given else o.scoring
    Scoring(scoring, loss=None if o.auto else Loss())  # report an unknown name at once
    if o.auto:
        return AutoRanker(scoring, effort=o.effort, random_state=o.random_state)
    given = {name: getattr(o, name) for name in SHARED}
    given = {name: value for name, value in given.items() if value is not None}
    if alpha is not None and o.loss == "hinge":
        return RankSVM(alpha, **given)
    given |= {"cost": o.cost, "ties": o.ties}
    if alpha is not None:
        return RankRLS(alpha, **given)
    cv = str(cv or o.cv or "auto")
    return RankRLSCV(o.alphas, cv=int(cv) if cv.isdigit() else cv, scoring=scoring, **given)


def last_step(model: Any) -> Any:
    """The ranker at the end of a pipeline, or the model itself."""
    return model.steps[-1][1] if isinstance(model, Pipeline) else model


def add_history(model: Any, event: str, **columns: str | None) -> None:
    """Store the columns of the training files in a model, and an event in its history."""
    ranker = last_step(model)
    source = dict(getattr(ranker, "_source", {}))
    source |= {name: column for name, column in columns.items() if column is not None}
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    source["history"] = [*source.get("history", [])[-99:], f"{when} {event}"]
    ranker._source = source


def scale_of(o: Any) -> str:
    """The scaling: what was asked for, or the default of the kernel."""
    if o.scale is not None or o.kernel == "precomputed":
        return o.scale or "none"
    return "maxabs" if o.kernel in ("chi2", "additive_chi2") else "standard"  # features stay >= 0


def with_steps(ranker: Any, o: Any, rows: Any) -> Any:
    """The ranker, or a pipeline of imputer and scaler that ends in it; warns of odd columns."""
    is_sparse, kind, steps, X = sparse.issparse(rows.data), scale_of(o), [], rows.data
    if is_sparse and (kind == "minmax" or kind.startswith("query")):
        raise ValueError(
            f"--scale {kind} would fill in all zeros of sparse data: use maxabs or standard"
        )
    if o.missing in ("mean", "zero"):
        how: Any = {"strategy": "mean"}
        if o.missing == "zero":
            how = {"strategy": "constant", "fill_value": 0.0}
        imputer = SimpleImputer(**how, keep_empty_features=True)
        steps.append(("impute", imputer))
        X = clone(imputer).fit_transform(X)
    if kind != "none":
        scaler: Any = QueryScaler(kind.removeprefix("query-"))
        if kind == "standard":
            scaler = StandardScaler(with_mean=not is_sparse)
        elif not kind.startswith("query-"):
            scaler = {"minmax": MinMaxScaler, "maxabs": MaxAbsScaler}[kind]()
        steps.append(("scale", scaler))
        if not isinstance(scaler, QueryScaler):
            require_features(X.shape[1], copies=SCALER_VECTORS)
    if o.kernel != "precomputed":
        _warn_about_columns(rows, X, o, scales=kind == "none")
    if not steps:
        return ranker
    with config_context(enable_metadata_routing=True):  # for those who load the model in Python
        if kind.startswith("query-"):
            scaler.set_transform_request(qid=True)
        if rows.qid is not None:
            ranker.set_fit_request(qid=True)
            ranker.set_score_request(qid=True)
    return Pipeline([*steps, ("rank", ranker)])


def _warn_about_columns(rows: Any, X: Any, o: Any, *, scales: bool) -> None:
    """Warn of columns that look like ids or timestamps, and of unequal scales, before scaling."""
    names = rows.feature_names
    labels: Any = names or range(not o.zero_based, X.shape[1] + 1)

    def remedy(columns: list[int]) -> str:
        them = "it" if len(columns) == 1 else "them"
        if names is None:
            return f"write the file without {them}"
        found = [names[j] if names[j].isidentifier() else repr(names[j]) for j in columns]
        return f"leave {them} out by " + " ".join(f"--drop {name}" for name in found)

    codes = None if rows.qid is None else np.unique(rows.qid, return_inverse=True)[1]
    if ids := columns_like_ids(X, names, codes):
        warn(id_text(ids, labels, remedy(ids)))
    if scales and (unequal := unequal_scales(X, codes)) is not None:
        warn(scale_text(unequal, labels, "leave out --scale none"))


def fit_rows(model: Any, rows: Any) -> None:
    """Fit a ranker, or a pipeline that ends in one, to rows of a file, with their names."""
    given = {"qid": rows.qid, "sample_weight": rows.sample_weight}
    if isinstance(model, Pipeline):
        by_query = isinstance(dict(model.steps).get("scale"), QueryScaler)
        given = {f"rank__{name}": value for name, value in given.items()}
        given |= {"scale__qid": rows.qid} if by_query else {}
    model.fit(rows.data, rows.target, **given)
    name_features(model, rows.feature_names)


def name_features(model: Any, names: list[str] | None) -> None:
    """Store the names of the columns, as scikit-learn does for data frames."""
    first = model.steps[0][1] if isinstance(model, Pipeline) else model
    if names is not None and not isinstance(first, AutoRanker):
        first.feature_names_in_ = np.array(names, dtype=object)


class Scorer:
    """A model from a file, and what it needs to know of rows.

    ``ranker`` and ``steps`` are its last step and those before. ``names`` are those of its
    features, or None, and ``unused`` those that it has dropped: a file need not have them.
    ``needs_qid``: rows are compared within queries before they are ranked. ``fills_in``: whether it
    takes missing features. ``text``: columns of text as `load_ranking` takes them. ``source``:
    columns of label, qid and weight that it was fitted to, and its history.
    """

    def __init__(self, path: str) -> None:
        if path == "-":
            raise ValueError("the model is read from a file, not from stdin")
        model = self.model = load_model(path)
        *self.steps, self.ranker = [step for _, step in getattr(model, "steps", [("", model)])]
        kind, auto = type(self.ranker).__name__, isinstance(self.ranker, AutoRanker)
        scores = hasattr(model, "n_features_in_") and hasattr(self.ranker, "predict")
        if not scores or kind.startswith("Conditional"):
            raise ValueError(f"{path}: a {kind} does not score rows of files; it is used in Python")
        names = getattr(model, "feature_names_in_", None)
        self.names = None if names is None else [str(name) for name in names]
        needed = set(required_features(model) or ())
        self.unused = [name for name in self.names or () if name not in needed]
        self.n_features = int(model.n_features_in_)
        self.source: dict[str, Any] = dict(getattr(self.ranker, "_source", {}))
        self._gives_qid = auto and self.ranker._with_qid
        self.needs_qid = self._gives_qid or any(isinstance(s, QueryScaler) for s in self.steps)
        self.fills_in = any(isinstance(step, SimpleImputer) for step in self.steps)
        self.moves_zeros = any(
            isinstance(step, MinMaxScaler) or getattr(step, "with_mean", False)
            or getattr(step, "method", "maxabs") != "maxabs" for step in self.steps
        )  # fmt: skip
        first = first_step(model)
        # By its name: sklearn.compose is slow to import.
        self._takes_frames = type(first).__name__ == "ColumnTransformer"
        self.text: Any = None
        if self._takes_frames:  # its steps take text and missing values, or refuse them
            self.fills_in, self.text = True, "auto"
        elif isinstance(first, TableEncoder):
            columns = first.text_columns
            self.fills_in, self.text = True, "auto" if columns else None
            if self.names is not None:
                self.text = [self.names[j] for j in columns]

    def scores(self, X: Any, qid: Any = None, *, name: str) -> Any:
        """Scores of rows of the file ``name``, shape (n,) or (n, n_outputs)."""
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"{name}: the rows have {X.shape[1]} feature{'s' * (X.shape[1] != 1)}, and the "
                f"model was fitted to {self.n_features}"
            )
        if self._takes_frames and self.names is not None and not sparse.issparse(X):
            X = X if hasattr(X, "columns") else named_frame(X, self.names, {})
        for step in self.steps:
            X = step.transform(X, **({"qid": qid} if isinstance(step, QueryScaler) else {}))
        if not self._gives_qid:
            return self.ranker.predict(X)
        return self.ranker.predict(X, qid=np.zeros(X.shape[0]) if qid is None else qid)


def rows_for(
    scorer: Scorer, data: Any, o: Any, need: tuple[str, ...], beyond: str = ""
) -> DataFile:
    """The rows of a file with the features of a model, in their order."""
    linear = getattr(scorer.ranker, "kernel", "linear") == "linear"  # others change scores
    return DataFile(
        data,
        o,
        named=scorer.names,
        unused=scorer.unused,
        stored=scorer.source,
        need=need,
        n_features=scorer.n_features,
        sparse=False if scorer.moves_zeros or scorer.text else "auto",
        beyond=beyond or ("drop" if linear else "error"),
        missing="nan" if scorer.fills_in else "error",
        text=scorer.text,
    )
