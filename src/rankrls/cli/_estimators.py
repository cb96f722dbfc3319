"""Options to estimators, and model files to something that scores rows."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline

from rankrls import AutoRanker, RankRLS, RankRLSCV, RankSVM
from rankrls._frames import RawTable, required_features
from rankrls.cli._options import ModelOptions
from rankrls.cli._output import Work, note
from rankrls.cli._preparation import transformed
from rankrls.core.preferences.costs import Loss
from rankrls.estimators.choosing import Scoring
from rankrls.io import load_model
from rankrls.preprocessing import QueryScaler, TableEncoder

__all__ = ["Scorer", "make_cv", "make_ranker", "name_features", "note_source", "tell_search"]

#: Rows from which the eigendecomposition of a kernel matrix takes more than a few seconds.
MANY_ROWS = 4000


def _shared(options: ModelOptions) -> dict[str, Any]:
    given = {
        "kernel": options.kernel,
        "gamma": options.gamma,
        "degree": options.degree,
        "coef0": options.coef0,
        "query_weighting": options.query_weighting,
        "solver": options.solver,
        "basis": options.n_components,
        "random_state": options.seed,
    }
    if options.max_iter is not None:
        given["max_iter"] = options.max_iter
    if options.tol is not None:
        given["tol"] = options.tol
    return given


def _least_squares(options: ModelOptions) -> dict[str, Any]:
    return {"cost": options.cost, "ties": options.ties, **_shared(options)}


def make_ranker(options: ModelOptions, alpha: float, loss: str = "squared") -> Any:
    """RankRLS or, with the hinge loss, RankSVM."""
    if loss == "squared":
        return RankRLS(alpha, **_least_squares(options))
    return RankSVM(alpha, **_shared(options))


def make_cv(options: ModelOptions, alphas: Any, cv: str, scoring: str) -> RankRLSCV:
    """RankRLSCV; ``cv`` is a number of folds or a name."""
    Scoring(scoring, loss=Loss())  # report an unknown name before anything is read
    grid = {} if alphas is None else {"alphas": alphas}
    folds = int(cv) if cv.isdigit() else cv
    return RankRLSCV(**grid, cv=folds, scoring=scoring, **_least_squares(options))


def tell_search(work: Work, ranker: RankRLSCV, X: Any) -> None:
    """Tell that a ranker is cross-validated, and what is faster if it takes long."""
    m = X.shape[0]
    dual = ranker.kernel != "linear" and ranker.basis is None and ranker.solver in ("auto", "dual")
    if dual and m > MANY_ROWS:
        note(
            f"--kernel {ranker.kernel} decomposes a matrix of {m:,} × {m:,}; --basis 1000 is faster"
        )
    work.now(f"Cross-validating on {m:,} rows")


def name_features(estimator: Any, names: list[str] | None) -> None:
    """Store the names of the columns, as scikit-learn does for data frames."""
    if names is not None:
        first = estimator.steps[0][1] if isinstance(estimator, Pipeline) else estimator
        first.feature_names_in_ = np.array(names, dtype=object)


def note_source(model: Any, event: str, **columns: str | None) -> None:
    """Store the columns of the training files in a model, and an event in its history."""
    ranker = model.steps[-1][1] if isinstance(model, Pipeline) else model
    source = dict(getattr(ranker, "_source", {}))
    source |= {name: column for name, column in columns.items() if column is not None}
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    source["history"] = [*source.get("history", [])[-99:], f"{when} {event}"]
    ranker._source = source


class Scorer:
    """A model from a file, and what it needs to know of rows.

    Attributes
    ----------
    model : estimator
    ranker : estimator
        Its last step, or the model itself.
    steps : list of transformers
    has_steps : bool
        Whether features are filled in or scaled first.
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
    takes_tables : bool
        Whether rows may have text and missing values.
    text : None, "auto" or list of str
        Columns that are text, as `load_ranking` takes them; None: the model takes numbers only.
    takes_frames : bool
        Whether the first step chooses columns of a data frame by their names.
    ignores_new : bool
        Whether a feature that was never there in training cannot change a score.
    source : dict
        Columns of label, qid and weight that it was fitted to, and its history, as far as known.
    """

    def __init__(self, path: str) -> None:
        if path == "-":
            raise ValueError("the model is read from a file, not from stdin")
        self.model = load_model(path)
        steps = self.model.steps if isinstance(self.model, Pipeline) else [("", self.model)]
        self.steps = [step for _, step in steps[:-1]]
        self.has_steps = len(steps) > 1
        self.ranker: BaseEstimator = steps[-1][1]
        if not hasattr(self.ranker, "predict") or not hasattr(self.model, "n_features_in_"):
            kind = type(self.ranker).__name__
            raise ValueError(f"{path}: a {kind} does not score rows; use it in Python")
        if type(self.ranker).__name__.startswith("Conditional"):
            raise ValueError(f"{path}: a ranker of pairs of objects is used in Python")
        names = getattr(self.model, "feature_names_in_", None)
        self.names = None if names is None else [str(name) for name in names]
        needed = set(required_features(self.model) or ())
        self.unused = [name for name in self.names or () if name not in needed]
        self.n_features = int(self.model.n_features_in_)
        self.source: dict[str, Any] = dict(getattr(self.ranker, "_source", {}))
        self.needs_qid = any(isinstance(step, QueryScaler) for step in self.steps)
        imputers = [step.strategy for step in self.steps if isinstance(step, SimpleImputer)]
        self.fills_in = imputers[0] if imputers else None
        if isinstance(self.ranker, AutoRanker):
            self.needs_qid |= self.ranker._with_qid
        encoder = self._encoder()
        self.takes_tables, self.text = encoder is not None, None
        if encoder is not None:
            self.fills_in, self.text = "median", _text_of(encoder, self.names)
        self.takes_frames = bool(self.steps) and isinstance(self.steps[0], ColumnTransformer)
        if self.takes_frames:  # its steps take text and missing values, or refuse them
            self.takes_tables, self.fills_in, self.text = True, "steps", "auto"
        self.ignores_new = getattr(self.ranker, "kernel", "linear") == "linear"

    def scores(self, X: Any, qid: Any = None, *, name: str) -> Any:
        """Scores of rows of the file ``name``, shape (n,) or (n, n_outputs)."""
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"{name}: the rows have {X.shape[1]} feature{'s' * (X.shape[1] != 1)}, and the "
                f"model was fitted to {self.n_features}"
            )
        if self.takes_frames and self.names is not None and not sparse.issparse(X):
            X = (X if isinstance(X, RawTable) else RawTable(self.names, X, {})).to_frame()
        X = transformed(self.steps, X, qid)
        if not isinstance(self.ranker, AutoRanker):
            return self.ranker.predict(X)
        one = np.zeros(X.shape[0]) if qid is None else qid
        return self.ranker.predict(X, qid=one if self.ranker._with_qid else None)

    def _encoder(self) -> TableEncoder | None:
        """What makes the table of a file numeric, if it need not be."""
        if self.steps:
            return self.steps[0] if isinstance(self.steps[0], TableEncoder) else None
        return self.ranker._table if isinstance(self.ranker, AutoRanker) else None


def _text_of(encoder: TableEncoder, names: list[str] | None) -> Any:
    """Columns that were text in training, or that are left out whatever they hold."""
    if names is None:
        return "auto" if encoder.text_columns else None
    return [names[j] for j in encoder.text_columns]
