"""Options to estimators and the steps before them, and model files to something that scores rows.

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
from rankrls._frames import RawTable, required_features
from rankrls._resources import SCALER_VECTORS, require_features
from rankrls.cli._doubts import warn_about_columns, warn_about_empty_columns
from rankrls.cli._files import DataFile
from rankrls.cli._output import Work, note
from rankrls.core.preferences.costs import Loss
from rankrls.estimators.choosing import Scoring
from rankrls.io import load_model
from rankrls.preprocessing import QueryScaler, TableEncoder

__all__ = ["Preparation", "Scorer", "last_step", "make_auto", "make_cv", "make_ranker",
           "name_features", "note_source", "rows_for", "scale_of", "tell_search"]  # fmt: skip

#: Rows from which the eigendecomposition of a kernel matrix takes more than a few seconds.
MANY_ROWS = 4000

#: What members of an AutoRanker are chosen by unless ``--scoring`` says something else.
AUTO_SCORING = "ndcg@10"

SHARED = ("kernel", "gamma", "degree", "coef0", "query_weighting", "solver", "basis",
          "random_state")  # fmt: skip


def _parameters(o: Any, *more: str) -> dict[str, Any]:
    """Options that are parameters of estimators; iterations only where they are given."""
    given = {name: getattr(o, name) for name in (*SHARED, *more)}
    limits = {name: getattr(o, name) for name in ("max_iter", "tol")}
    return given | {name: value for name, value in limits.items() if value is not None}


def make_ranker(o: Any, alpha: float) -> Any:
    """RankRLS or, with the hinge loss, RankSVM."""
    if o.loss == "squared":
        return RankRLS(alpha, **_parameters(o, "cost", "ties"))
    return RankSVM(alpha, **_parameters(o))


def make_cv(o: Any, cv: str | None = None) -> RankRLSCV:
    """RankRLSCV."""
    Scoring(o.scoring, loss=Loss())  # report an unknown name before anything is read
    cv = getattr(o, "cv", "auto") if cv is None else cv
    grid = {} if o.alphas is None else {"alphas": o.alphas}
    folds = int(cv) if cv.isdigit() else cv
    return RankRLSCV(**grid, cv=folds, scoring=o.scoring, **_parameters(o, "cost", "ties"))


def make_auto(o: Any) -> AutoRanker:
    """The ranker of ``--auto``."""
    scoring = o.scoring if "scoring" in o.given else AUTO_SCORING
    Scoring(scoring)  # report an unknown name before anything is read
    return AutoRanker(scoring, effort=o.effort, random_state=o.random_state)


def tell_search(work: Work, ranker: RankRLSCV, X: Any) -> None:
    """Tell that a ranker is cross-validated, and what is faster if it takes long."""
    m = X.shape[0]
    dual = ranker.kernel != "linear" and ranker.basis is None and ranker.solver in ("auto", "dual")
    if dual and m > MANY_ROWS:
        note(
            f"--kernel {ranker.kernel} decomposes a matrix of {m:,} × {m:,}; --basis 1000 is faster"
        )
    work.now(f"Cross-validating on {m:,} rows")


def last_step(model: Any) -> Any:
    """The ranker at the end of a pipeline, or the model itself."""
    return model.steps[-1][1] if isinstance(model, Pipeline) else model


def name_features(model: Any, names: list[str] | None) -> None:
    """Store the names of the columns, as scikit-learn does for data frames."""
    if names is not None:
        first = model.steps[0][1] if isinstance(model, Pipeline) else model
        first.feature_names_in_ = np.array(names, dtype=object)


def note_source(model: Any, event: str, **columns: str | None) -> None:
    """Store the columns of the training files in a model, and an event in its history."""
    ranker = last_step(model)
    source = dict(getattr(ranker, "_source", {}))
    source |= {name: column for name, column in columns.items() if column is not None}
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    source["history"] = [*source.get("history", [])[-99:], f"{when} {event}"]
    ranker._source = source


# ---------------------------------------------------------------------- before the ranker


def scale_of(o: Any) -> str:
    """The scaling: what was asked for, or the default of the kernel."""
    if o.scale is not None or o.kernel == "precomputed":
        return o.scale or "none"
    return "maxabs" if o.kernel in ("chi2", "additive_chi2") else "standard"  # features stay >= 0


class Preparation:
    """An imputer, a scaler, both or none, as the options say; sparse rows stay sparse."""

    def __init__(self, o: Any, is_sparse: bool) -> None:
        self._o = o
        self.imputer: Any = None
        if o.missing in ("mean", "zero"):
            how: Any = {
                "mean": {"strategy": "mean"},
                "zero": {"strategy": "constant", "fill_value": 0.0},
            }
            self.imputer = SimpleImputer(**how[o.missing], keep_empty_features=True)
        kind = scale_of(o)
        if is_sparse and kind in ("minmax", "query-minmax", "query-standard"):
            other = "query-maxabs" if kind.startswith("query") else "maxabs or standard"
            raise ValueError(f"--scale {kind} would fill in all zeros of sparse data: use {other}")
        self.scaler: Any = None
        if kind.startswith("query-"):
            with config_context(enable_metadata_routing=True):
                self.scaler = QueryScaler(kind.removeprefix("query-"))
                self.scaler.set_transform_request(qid=True)
        elif kind == "standard":
            self.scaler = StandardScaler(with_mean=not is_sparse)
        elif kind != "none":
            self.scaler = {"minmax": MinMaxScaler, "maxabs": MaxAbsScaler}[kind]()

    def fit_transform(self, rows: Any) -> Any:
        """Learn from all rows and return their features, prepared; warn of columns like ids."""
        X = rows.data
        if self.imputer is not None:
            warn_about_empty_columns(rows, self._o)
            X = self.imputer.fit_transform(X)
        self.warn_about(rows, X)
        if self.scaler is None:
            return X
        if isinstance(self.scaler, QueryScaler):
            return self.scaler.fit_transform(X, qid=rows.qid)
        require_features(X.shape[1], copies=SCALER_VECTORS)
        return self.scaler.fit_transform(X)

    def warn_about(self, rows: Any, X: Any) -> None:
        """Warn of columns like ids and, if there is no scaler, of unequal scales."""
        if self._o.kernel != "precomputed":
            warn_about_columns(rows, X, self._o, scales=self.scaler is None)

    def begin(self, rows: Any) -> None:
        """Look at the first batch of a stream: warn of columns like ids, and of too many."""
        X = rows.data if self.imputer is None else clone(self.imputer).fit_transform(rows.data)
        self.warn_about(rows, X)
        require_features(X.shape[1], copies=SCALER_VECTORS)

    def with_ranker(self, ranker: Any, with_qid: bool) -> Any:
        """The ranker, or a pipeline that ends in it and gives it qid."""
        both = (("impute", self.imputer), ("scale", self.scaler))
        steps = [(name, step) for name, step in both if step is not None]
        if not steps:
            return ranker
        if with_qid:
            with config_context(enable_metadata_routing=True):
                ranker.set_fit_request(qid=True)
                ranker.set_score_request(qid=True)
        return Pipeline([*steps, ("rank", ranker)])


# ---------------------------------------------------------------------- models from files


class Scorer:
    """A model from a file, and what it needs to know of rows.

    Attributes
    ----------
    model, ranker : estimator
        The model, and its last step.
    steps : list of transformers before it
    n_features : int
    names : list of str or None
        Names of the features, if it was fitted to columns with names.
    unused : list of str
        Those of them that it has dropped: a file need not have them.
    needs_qid : bool
        Whether rows are compared within queries before they are ranked.
    fills_in : str or None
        What the model puts in the place of missing features: "mean" and so on, or None if it
        does not take them.
    text : None, "auto" or list of str
        Columns that are text, as `load_ranking` takes them; None: the model takes numbers only.
    takes_tables, takes_frames : bool
        Whether rows may have text and missing values; whether the first step chooses columns of a
        data frame by their names.
    source : dict
        Columns of label, qid and weight that it was fitted to, and its history, as far as known.
    """

    def __init__(self, path: str) -> None:
        if path == "-":
            raise ValueError("the model is read from a file, not from stdin")
        self.model = load_model(path)
        self.ranker = last_step(self.model)
        self.steps = ([step for _, step in self.model.steps[:-1]]
                      if isinstance(self.model, Pipeline) else [])  # fmt: skip
        kind = type(self.ranker).__name__
        if not hasattr(self.ranker, "predict") or not hasattr(self.model, "n_features_in_"):
            raise ValueError(f"{path}: a {kind} does not score rows; use it in Python")
        if kind.startswith("Conditional"):
            raise ValueError(f"{path}: a ranker of pairs of objects is used in Python")
        names = getattr(self.model, "feature_names_in_", None)
        self.names = None if names is None else [str(name) for name in names]
        needed = set(required_features(self.model) or ())
        self.unused = [name for name in self.names or () if name not in needed]
        self.n_features = int(self.model.n_features_in_)
        self.source: dict[str, Any] = dict(getattr(self.ranker, "_source", {}))
        auto = isinstance(self.ranker, AutoRanker)
        self._gives_qid = auto and self.ranker._with_qid
        self.needs_qid = self._gives_qid or any(isinstance(s, QueryScaler) for s in self.steps)
        imputers = [step.strategy for step in self.steps if isinstance(step, SimpleImputer)]
        self.fills_in = imputers[0] if imputers else None
        first: Any = self.steps[0] if self.steps else self.ranker._table if auto else None
        # By its name: sklearn.compose is slow to import.
        self.takes_frames = type(first).__name__ == "ColumnTransformer"
        self.takes_tables = self.takes_frames or isinstance(first, TableEncoder)
        self.text: Any = None
        if self.takes_frames:  # its steps take text and missing values, or refuse them
            self.fills_in, self.text = "steps", "auto"
        elif self.takes_tables:
            columns = first.text_columns
            self.fills_in, self.text = "median", "auto" if columns else None
            if self.names is not None:
                self.text = [self.names[j] for j in columns]

    def scores(self, X: Any, qid: Any = None, *, name: str) -> Any:
        """Scores of rows of the file ``name``, shape (n,) or (n, n_outputs)."""
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"{name}: the rows have {X.shape[1]} feature{'s' * (X.shape[1] != 1)}, and the "
                f"model was fitted to {self.n_features}"
            )
        if self.takes_frames and self.names is not None and not sparse.issparse(X):
            X = (X if isinstance(X, RawTable) else RawTable(self.names, X, {})).to_frame()
        for step in self.steps:
            by_query = isinstance(step, QueryScaler)
            moves_zeros = step.method != "maxabs" if by_query else (
                isinstance(step, MinMaxScaler) or getattr(step, "with_mean", False))  # fmt: skip
            if sparse.issparse(X) and moves_zeros:
                X = X.toarray()
            X = step.transform(X, qid=qid) if by_query else step.transform(X)
        if not self._gives_qid:
            return self.ranker.predict(X)
        return self.ranker.predict(X, qid=np.zeros(X.shape[0]) if qid is None else qid)


def rows_for(
    scorer: Scorer, data: Any, o: Any, need: tuple[str, ...], beyond: str = ""
) -> DataFile:
    """The rows of a file with the features of a model, in their order.

    Missing features are NaN if the model or ``--missing`` fills them in. Features that the model
    does not know are an error with ``beyond="error"``, or if they could change a score.
    """
    missing, fills_in = getattr(o, "missing", None), scorer.fills_in
    if missing is not None and scorer.takes_tables:
        raise ValueError(
            "--missing: the model takes raw tables and fills in missing features itself; leave "
            "--missing out"
        )
    if missing == "mean" and fills_in != "mean":
        raise ValueError(
            "--missing mean: the model has learned no means; fit it with --missing mean, or use "
            "--missing zero"
        )
    if missing == "zero" and fills_in is not None:
        raise ValueError(
            f"--missing zero: the model fills in missing features by their {fills_in}; leave "
            "--missing out"
        )
    filled = fills_in is not None if missing is None else missing != "error"
    linear = getattr(scorer.ranker, "kernel", "linear") == "linear"
    return DataFile(
        data,
        o,
        named=scorer.names,
        unused=scorer.unused,
        stored=scorer.source,
        need=need,
        n_features=scorer.n_features,
        beyond=beyond or ("drop" if linear else "error"),
        missing="nan" if filled else "error",
        text=scorer.text,
    )
