"""``rankrls fit``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

from scipy import sparse
from sklearn.pipeline import Pipeline

from rankrls.cli._estimators import (
    fit_scaler,
    make_cv,
    make_ranker,
    make_scaler,
    name_features,
    scaled,
    with_scaler,
)
from rankrls.cli._files import DataFile, check_output
from rankrls.cli._options import DataOptions, ModelOptions
from rankrls.cli._output import Work, facts, note, number, queries, size, to_json
from rankrls.io import save_model
from rankrls.preprocessing import QueryScaler

__all__ = ["fit"]

#: Streaming adds up a matrix of this many columns and rows at most, unless it was asked for.
MAX_STREAMED_FEATURES = 3000


def fit(
    data_options: DataOptions,
    model_options: ModelOptions,
    *,
    data: str,
    model: str,
    alpha: float | str | None,
    alphas: Any,
    cv: str,
    scoring: str,
    loss: str,
    c: float | str | None,
    stream: bool | None,
    no_uncertainty: bool,
    as_json: bool,
) -> None:
    """Learn from a file, write the model, tell about it."""
    if model == "-":
        raise ValueError("a model is written to a file, not to stdout: name it by -m")
    check_output(model, data)
    _check_alpha(alpha, alphas, loss, c)
    started = time.perf_counter()
    task = _Task(DataFile(data, data_options), model_options, alpha, alphas, cv, scoring, loss, c)
    if stream:
        task.require_streamable()
    with Work(f"Reading {task.rows.name}", task.rows.total) as work:
        wanted = task.rows.large if stream is None else stream
        fitted = None
        if wanted and task.why_not_streamed() is None:
            fitted = task.fit_stream(work, forced=bool(stream))
        if fitted is None:
            fitted = task.fit_in_memory(work)
        work.now(f"Writing {model}")
        save_model(fitted, model, uncertainty=not no_uncertainty)
    seconds = time.perf_counter() - started
    _tell(task, fitted, model, seconds, as_json)


def _check_alpha(alpha: Any, alphas: Any, loss: str, c: Any) -> None:
    if loss == "hinge" and alpha == "auto":
        raise ValueError("--alpha auto is for --loss squared, which can be cross-validated exactly")
    if alphas is not None and alpha != "auto":
        raise ValueError("--alphas is what --alpha auto chooses from: add --alpha auto")
    if c is not None and (loss != "hinge" or c == "auto"):
        raise ValueError("-c is SVMrank's C, for --loss hinge; for RankRLS give --alpha")
    if c is not None and alpha is not None:
        raise ValueError("-c and --alpha exclude each other")


class _Task:
    """What to fit, to which rows; and what was found on the way."""

    def __init__(
        self,
        rows: DataFile,
        options: ModelOptions,
        alpha: float | str | None,
        alphas: Any,
        cv: str,
        scoring: str,
        loss: str,
        c: float | str | None,
    ) -> None:
        self.rows, self.options, self.loss, self.c = rows, options, loss, c
        self.alpha = 1.0 if alpha is None else alpha
        self._grid = (alphas, cv, scoring)
        if self.alpha != "auto" and c is None:
            make_ranker(options, float(self.alpha), loss)  # what is wrong with options, now
        self.about: dict[str, Any] = {"n_rows": 0, "streamed": False}

    # ------------------------------------------------------------------ batch by batch

    def why_not_streamed(self) -> str | None:
        """Why these options need all rows at once; None if they do not."""
        options = self.options
        if not self.rows.seekable and not os.path.isdir(self.rows.path):
            return "a pipe has no known number of features"
        if self.alpha == "auto":
            return "--alpha auto leaves rows out"
        if self.loss == "hinge":
            return "--loss hinge looks at all rows again and again"
        if options.kernel != "linear" or options.n_components is not None:
            return "it is for the linear kernel, without --n-components"
        plain = options.cost == "magnitude" and options.ties == "keep"
        if self.rows.reading["qid"] is None and not plain:
            return "--one-ranking needs all rows, but for --cost magnitude with --ties keep"
        if options.solver not in ("auto", "primal"):
            return f"--solver {options.solver} needs all rows"
        return None

    def require_streamable(self) -> None:
        """Raise if ``--stream`` cannot be done."""
        why = self.why_not_streamed()
        if why is not None:
            raise ValueError(f"--stream is not possible: {why}")

    def fit_stream(self, work: Work, forced: bool) -> Any:
        """One pass over the file (two for a scaler that learns); None if it has too many columns.

        The batch that is read first tells the number of features.
        """
        batches = self.rows.batches(work, by_query=True)
        first = next(batches)
        n_features = first.data.shape[1]
        if not forced and n_features > MAX_STREAMED_FEATURES:
            batches.close()  # type: ignore[attr-defined]
            return None
        if not forced:
            note(f"{self.rows.name} is large: fitted batch by batch (--in-memory for all at once)")
        scaler = make_scaler(self.options, sparse.issparse(first.data))
        if scaler is not None and not isinstance(scaler, QueryScaler):
            for batch in chain([first], batches):
                scaler.partial_fit(batch.data)
            batches = self.rows.batches(work, by_query=True)
            first = next(batches)
        elif scaler is not None:
            scaler.fit_transform(first.data, qid=first.qid)  # it learns only that there are queries
        self._note(first)
        self.about["streamed"] = True
        ranker = make_ranker(self.options, float(self.alpha))
        with self.rows.named_errors():
            ranker.fit_stream(self._counted(chain([first], batches), scaler))
        fitted = with_scaler(scaler, ranker, first.qid is not None)
        name_features(fitted, first.feature_names)
        return fitted

    def _counted(self, batches: Any, scaler: Any) -> Iterator[dict[str, Any]]:
        for batch in batches:
            self.about["n_rows"] += batch.data.shape[0]
            yield {
                "data": scaled(scaler, batch),
                "target": batch.target,
                "qid": batch.qid,
                "sample_weight": batch.sample_weight,
            }

    # ------------------------------------------------------------------ at once

    def fit_in_memory(self, work: Work) -> Any:
        """Read all rows, then fit."""
        rows = self.rows.load(work)
        self._note(rows)
        self.about["n_rows"] = rows.data.shape[0]
        scaler = make_scaler(self.options, sparse.issparse(rows.data))
        X = fit_scaler(scaler, rows)
        if self.alpha == "auto":
            ranker: Any = make_cv(self.options, *self._grid)
            work.now("Cross-validating")
        else:
            ranker = make_ranker(self.options, self._regularisation(rows), self.loss)
            work.now("Fitting")
        with self.rows.named_errors():
            ranker.fit(X, rows.target, qid=rows.qid, sample_weight=rows.sample_weight)
        fitted = with_scaler(scaler, ranker, rows.qid is not None)
        name_features(fitted, rows.feature_names)
        return fitted

    def _regularisation(self, rows: Any) -> float:
        """Alpha; from SVMrank's C, ½‖w‖² + (C/queries) Σ ξ, it is queries/(2 C)."""
        if self.c is None:
            return float(self.alpha)
        n_queries = 1 if rows.qid is None else len(set(rows.qid.tolist()))
        return n_queries / (2 * float(self.c))

    def _note(self, rows: Any) -> None:
        self.about |= {
            "n_features": rows.data.shape[1],
            "format": rows.format,
            "label_column": rows.target_name,
            "qid_column": rows.qid_name,
        }


def _tell(task: _Task, fitted: Any, path: str, seconds: float, as_json: bool) -> None:
    ranker = fitted.steps[-1][1] if isinstance(fitted, Pipeline) else fitted
    alpha = float(getattr(ranker, "alpha_", getattr(ranker, "alpha", 1.0)))
    about = task.about | {
        "model": type(ranker).__name__,
        "alpha": alpha,
        "solver": ranker.solver_,
        "n_queries": int(ranker.n_queries_),
        "n_pairs": int(ranker.n_pairs_),
        "cv_score": getattr(ranker, "best_score_", None),
        "scale": task.options.scale,
        "seconds": round(seconds, 3),
        "file": path,
    }
    if as_json:
        to_json(about)
        return
    tied = (getattr(ranker, "cost", None), getattr(ranker, "ties", None)) == ("magnitude", "keep")
    columns = [f"{role} {about[key]!r}" for role, key in
               (("labels", "label_column"), ("queries", "qid_column")) if about[key]]  # fmt: skip
    lines = [
        ("rows", f"{number(about['n_rows'])} in {queries(about['n_queries'])}"
                 + (f" (columns: {', '.join(columns)})" if columns else "")),
        ("features", number(about["n_features"])
         + ("" if task.options.scale == "none" else f", scaled: {task.options.scale}")),
        ("pairs", number(about["n_pairs"]) + (", those of equal labels included" if tied else "")),
        ("model", f"{about['model']}, alpha {alpha:g}, solver {ranker.solver_}"
                  + (", read batch by batch" if about["streamed"] else "")),
    ]  # fmt: skip
    if about["cv_score"] is not None:
        lines.append(("held out", f"{task._grid[2]} {about['cv_score']:.4f} at the best alpha"))
    lines.append(("written", f"{path} ({size(os.path.getsize(path))}) in {seconds:.1f} s"))
    facts(lines)
