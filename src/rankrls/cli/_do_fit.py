"""``rankrls fit``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from scipy import sparse
from sklearn.pipeline import Pipeline

from rankrls import streaming
from rankrls.cli import _auto_option as auto_option
from rankrls.cli._chance import Chance, better_column, hardly_better
from rankrls.cli._estimators import (
    make_cv,
    make_ranker,
    name_features,
    note_source,
    tell_search,
)
from rankrls.cli._files import DataFile, check_output
from rankrls.cli._options import AutoOptions, DataOptions, ModelOptions
from rankrls.cli._output import Work, facts, note, number, queries, say, size, to_json, warn
from rankrls.cli._preparation import Preparation, scale_of
from rankrls.cli._refusals import refuse_alpha_options, refuse_auto_options, refuse_model_options
from rankrls.core.preferences.costs import Loss
from rankrls.estimators import RankRLSCV
from rankrls.estimators.choosing import LOSS_METRIC, Scoring
from rankrls.io import save_model

__all__ = ["fit"]

#: Streaming adds up a matrix of this many columns and rows at most, unless it was asked for.
MAX_STREAMED_FEATURES = 3000

#: Alpha where none is given and none is chosen.
DEFAULT_ALPHA = 1.0

#: Sparse rows with more rows and columns than this are solved by iterations, which have no
#: shortcut for what is left out: where alpha was not asked for, a part of the queries chooses it.
MAX_SPARSE = 5000


def fit(
    data_options: DataOptions,
    model_options: ModelOptions,
    auto_options: AutoOptions,
    *,
    data: Sequence[str],
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
    check_output(model, *data)
    refuse_auto_options(auto_options)
    if auto_options.auto:
        ranker = auto_option.make_auto(auto_options, model_options.seed, scoring)
        reader = DataFile(data, data_options, **auto_option.RAW)
        _fit_auto(ranker, auto_options, reader, model, not no_uncertainty, as_json)
        return
    refuse_alpha_options(model_options.given, alpha, alphas, loss, c)
    refuse_model_options(model_options, loss)
    started = time.perf_counter()
    rows = DataFile(data, data_options)
    task = _Task(rows, model_options, alpha, (alphas, cv, scoring), loss, c)
    if stream:
        task.require_streamable()
    with Work(f"Reading {task.rows.name}", task.rows.total) as work:
        wanted = task.rows.large if stream is None else stream
        fitted = None
        if wanted and task.why_not_streamed(forced=bool(stream)) is None:
            fitted = task.fit_stream(work, forced=bool(stream))
        if fitted is None:
            fitted = task.fit_in_memory(work)
        work.now(f"Writing {model}")
        _note(fitted, task.about, task.rows.name, data_options.weight)
        save_model(fitted, model, uncertainty=not no_uncertainty)
    seconds = time.perf_counter() - started
    _tell(task, fitted, model, seconds, as_json)
    if task.doubt is not None:
        warn(task.doubt)


def _note(model: Any, about: dict[str, Any], name: str, weight: str | None) -> None:
    """Keep the columns and the names of the files in the model."""
    event = f"fitted to {name} ({about['n_rows']:,} rows)"
    qid = about["qid_column"] if about["format"] != "letor" else None
    note_source(model, event, label=about["label_column"], qid=qid, weight=weight)


class _Task:
    """What to fit, to which rows; and what was found on the way."""

    def __init__(
        self,
        rows: DataFile,
        options: ModelOptions,
        alpha: float | str | None,
        search: tuple[Any, str, str],
        loss: str,
        c: float | str | None,
    ) -> None:
        self.rows, self.options, self.loss, self.c = rows, options, loss, c
        self.alpha = DEFAULT_ALPHA if alpha is None and loss == "hinge" else alpha
        self.search = search  # alphas, cv and scoring
        asked = search[0] is not None or bool({"cv", "scoring"} & options.given)
        if alpha is None and asked and loss == "squared":
            self.alpha = "auto"
        # Invalid options are reported before anything is read.
        if self.alpha in (None, "auto"):
            make_cv(options, *search)
        else:
            make_ranker(options, float(self.alpha), loss)
        self.about: dict[str, Any] = {"n_rows": 0, "streamed": False}
        self.doubt: str | None = None

    # ------------------------------------------------------------------ batch by batch

    def why_not_streamed(self, *, forced: bool) -> str | None:
        """Why these options need all rows at once; None if they do not.

        ``forced``: whether folds, instead of single queries, may be held out to choose alpha.
        """
        options = self.options
        if self.alpha == "auto" and (why := self._why_not_folds(forced)) is not None:
            return why
        if self.loss == "hinge":
            return "--loss hinge looks at all rows again and again"
        if options.kernel != "linear" or options.n_components is not None:
            return "it is for the linear kernel, without --basis"
        plain = options.cost == "magnitude" and options.ties == "keep"
        if self.rows.reading["qid"] is None and not plain:
            return "--one-ranking needs all rows, but for --cost magnitude with --ties keep"
        if self.rows.options.missing == "mean":
            return "--missing mean looks at all rows first; --missing zero does not"
        if options.solver not in ("auto", "primal"):
            return f"--solver {options.solver} needs all rows"
        return None

    def _why_not_folds(self, forced: bool) -> str | None:
        """Why alpha cannot be chosen batch by batch, by folds of whole queries."""
        _, cv, scoring = self.search
        if not forced:
            return "--alpha auto leaves out single queries"
        if cv != "auto" and not cv.isdigit():
            return f"--cv {cv} needs all rows; a number of folds of whole queries does not"
        if self.rows.reading["qid"] is None:
            return "--alpha auto holds out whole queries, and --one-ranking has none"
        metric = Scoring(scoring, loss=Loss())
        if not metric.by_list and metric.name != LOSS_METRIC:
            return f"--scoring {scoring} needs the scores of all queries at once"
        if self.rows.is_pipe and metric.name != LOSS_METRIC:
            return (
                f"--scoring {scoring} needs a second pass, and {self.rows.name} is a pipe: name a "
                f"file, or use --scoring {LOSS_METRIC}"
            )
        return None

    def require_streamable(self) -> None:
        """Raise if ``--stream`` cannot be done."""
        why = self.why_not_streamed(forced=True)
        if why is not None:
            raise ValueError(f"--stream is not possible: {why}")

    def fit_stream(self, work: Work, forced: bool) -> Any:
        """One pass over the file; None if it has too many columns.

        The batch that is read first tells the number of features.
        """
        batches = self.rows.batches(work, by_query=True)
        first = next(batches)
        n_features = first.data.shape[1]
        if not forced and n_features > MAX_STREAMED_FEATURES:
            batches.close()  # type: ignore[attr-defined]
            return None
        if self.alpha == "auto":
            ranker: Any = make_cv(self.options, *self.search)
        else:
            alpha = DEFAULT_ALPHA if self.alpha is None else float(self.alpha)
            ranker = make_ranker(self.options, alpha)
        if not forced:
            how = f" with alpha {alpha:g}, not cross-validated" * (self.alpha is None)
            note(
                f"{self.rows.name} is large: fitted batch by batch{how} (--in-memory for all at "
                "once)"
            )
        preparation = Preparation(self.options, self.rows.options, sparse.issparse(first.data))
        preparation.begin(first)
        self._note(first)
        self.about["streamed"] = True
        model = preparation.with_ranker(ranker, first.qid is not None)
        chance = Chance(self.search[2]) if self.alpha == "auto" else None
        passes = iter([self._counted(chain([first], batches), chance)])

        def read() -> Iterator[Any]:
            """The rows; metrics of held-out queries are computed in further passes."""
            return next(passes, None) or self.rows.batches(work, by_query=True)

        with self.rows.named_errors():
            streaming.fit_stream(model, read)
        if chance is not None:
            self.doubt = hardly_better(ranker, None, None, chance.score())
        name_features(model, first.feature_names)
        return model

    def _counted(self, batches: Any, chance: Chance | None) -> Iterator[dict[str, Any]]:
        for batch in batches:
            self.about["n_rows"] += batch.data.shape[0]
            if chance is not None:
                chance.add(batch.target, batch.qid)
            yield {
                "data": batch.data,
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
        preparation = Preparation(self.options, self.rows.options, sparse.issparse(rows.data))
        X = preparation.fit_transform(rows)
        if self.alpha in (None, "auto"):
            ranker: Any = make_cv(self.options, *self._search_for(rows.data))
            tell_search(work, ranker, rows.data)
        else:
            ranker = make_ranker(self.options, self._regularisation(rows), self.loss)
            work.now("Fitting")
        with self.rows.named_errors():
            ranker.fit(X, rows.target, qid=rows.qid, sample_weight=rows.sample_weight)
        if isinstance(ranker, RankRLSCV):
            self.doubt = hardly_better(ranker, rows.target, rows.qid) or better_column(
                ranker, rows.data, rows.target, rows.qid, rows.feature_names
            )
        fitted = preparation.with_ranker(ranker, rows.qid is not None)
        name_features(fitted, rows.feature_names)
        return fitted

    def _search_for(self, X: Any) -> tuple[Any, str, str]:
        """Alphas, cv and scoring; some queries choose alpha if it was not asked for and X is large.

        Such rows are solved by iterations: one run of them gives all alphas.
        """
        large = sparse.issparse(X) and min(X.shape) > MAX_SPARSE and self.options.kernel == "linear"
        if self.alpha is None and large and self.options.solver in ("auto", "cg"):
            self.about["cv"] = "validation"
            return self.search[0], "validation", self.search[2]
        return self.search

    def _regularisation(self, rows: Any) -> float:
        """Alpha; from SVMrank's C, ½‖w‖² + (C/queries) Σ ξ, it is queries/(2 C)."""
        if self.c is None:
            assert self.alpha is not None
            return float(self.alpha)
        n_queries = 1 if rows.qid is None else len(set(rows.qid.tolist()))
        return n_queries / (2 * float(self.c))

    def _note(self, rows: Any) -> None:
        self.about |= {
            "n_features": rows.data.shape[1],
            "scale": scale_of(self.options),
            "format": rows.format,
            "label_column": rows.target_name,
            "qid_column": rows.qid_name or rows.get("group_file"),
        }


def _fit_auto(
    ranker: Any,
    options: AutoOptions,
    reader: DataFile,
    path: str,
    uncertainty: bool,
    as_json: bool,
) -> None:
    """``--auto``: fit to all rows, write the model, tell about its members."""
    started = time.perf_counter()
    with Work(f"Reading {reader.name}", reader.total) as work:
        rows = reader.load(work)
        ranker = auto_option.fitted(ranker, options, reader, rows, work)
        about = auto_option.summary(ranker, rows)
        _note(ranker, about, reader.name, reader.options.weight)
        work.now(f"Writing {path}")
        save_model(ranker, path, uncertainty=uncertainty)
    seconds = time.perf_counter() - started
    doubt = hardly_better(ranker, rows.target, rows.qid)
    if doubt is not None:
        warn(doubt)
    about |= {"seconds": round(seconds, 3), "file": path}
    if as_json:
        to_json(about)
        return
    auto_option.tell_columns(ranker, rows.data, zero_based=reader.options.zero_based)
    facts(
        [
            ("rows", _rows(about)),
            ("features", number(about["n_features"])),
            ("model", f"AutoRanker, effort {ranker.effort}: the mean of {about['n_members']} of "
                      f"{len(ranker.members_['weight'])} candidates, with these held-out scores:"),
        ]
    )  # fmt: skip
    say()
    auto_option.tell_members(ranker.members_, ranker.scoring)
    say()
    facts(
        [
            ("held out", auto_option.nested(ranker)),
            ("written", f"{path} ({size(os.path.getsize(path))}) in {seconds:.1f} s"),
        ]
    )


def _rows(about: dict[str, Any]) -> str:
    """Rows and queries, and the columns of labels and query ids, if they have names."""
    roles = (("labels", "label_column"), ("queries", "qid_column"))
    named = [f"{role} {about[key]!r}" for role, key in roles if about[key]]
    text = f"{number(about['n_rows'])} in {queries(about['n_queries'])}"
    return text + (f" (columns: {', '.join(named)})" if named else "")


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
        "seconds": round(seconds, 3),
        "file": path,
    }
    if as_json:
        to_json(about)
        return
    tied = (getattr(ranker, "cost", None), getattr(ranker, "ties", None)) == ("magnitude", "keep")
    lines = [
        ("rows", _rows(about)),
        ("features", number(about["n_features"])
         + ("" if about["scale"] == "none" else f", scaled: {about['scale']}")),
        ("pairs", number(about["n_pairs"]) + (", including ties" if tied else "")),
        ("model", f"{about['model']}, alpha {alpha:g}"
                  + " (not cross-validated)" * (task.alpha is None and about["streamed"])
                  + f", solver {ranker.solver_}" + ", read batch by batch" * about["streamed"]),
    ]  # fmt: skip
    if about["cv_score"] is not None:
        score = f"{task.search[2]} {about['cv_score']:.4f} at the best alpha"
        lines.append(("held out", score + ", of a tenth of the queries" * ("cv" in about)))
    lines.append(("written", f"{path} ({size(os.path.getsize(path))}) in {seconds:.1f} s"))
    facts(lines)
