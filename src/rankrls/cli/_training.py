"""``rankrls fit`` and ``rankrls cv``, with ``--auto`` or without."""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from scipy import sparse

from rankrls import AutoRanker, RankRLSCV, streaming
from rankrls._frames import text_columns
from rankrls._resources import pyplot
from rankrls.cli._files import DataFile, check_output, write_file
from rankrls.cli._output import listed, note, result, say, table, warn, working
from rankrls.cli._pipelines import (
    MAX_GAIN,
    add_history,
    fit_rows,
    last_step,
    make_ranker,
    name_features,
    scale_of,
    with_steps,
)
from rankrls.cli._tables import click_rows
from rankrls.core.preferences.costs import Loss
from rankrls.datasets.formats import cell_number, number_hint
from rankrls.estimators.choosing import LOSS_METRIC, Scoring
from rankrls.io import save_model

__all__ = ["RAW", "cross_validate", "fit", "suit_labels"]

#: Streaming adds up a matrix of this many columns and rows at most, unless it was asked for.
MAX_STREAMED_FEATURES = 3000

#: Alpha where none is given and none is chosen.
DEFAULT_ALPHA = 1.0

#: Sparse rows with more rows and columns than this are solved by iterations, which have no
#: shortcut for what is left out: where alpha was not asked for, a part of the queries chooses it.
MAX_SPARSE = 5000

#: How `DataFile` reads text and missing values as they are.
RAW: dict[str, Any] = {"text": "auto", "missing": "nan"}

#: Standard errors above chance that a score has to be: it is the best of those of many alphas.
N_ERRORS = 3.0

#: Columns that are tried as rankers of their own: those that correlate most with the labels.
MAX_COLUMNS = 20

#: The beginning of a date in ISO order, a time of day, or a duration of a Parquet file.
DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}(?!\d)|\d{1,2}:\d\d(?!\d)")


def fit(o: Any) -> None:
    """Learn from a file, write the model, tell about it."""
    if o.model == "-":
        raise ValueError("a model is written to a file, not to stdout: name it by -m")
    check_output(o.model, *o.data)
    started = time.perf_counter()
    if o.alpha is None and o.loss == "hinge":
        o.alpha = DEFAULT_ALPHA
    elif o.alpha is None and (o.alphas is not None or {"cv", "scoring"} & set(o.given)):
        o.alpha = "auto"
    # Invalid options are reported before anything is read.
    make_ranker(o, None if o.alpha in (None, "auto") else float(o.alpha))
    with click_rows(o) as (o, _):
        reader = DataFile(o.data, o, **(RAW if o.auto else {}))
        with working(f"Reading {reader.name}") as work:
            fitted = None
            if o.stream or (o.stream is None and _sums_suffice(o) and reader.large):
                fitted = _fit_stream(o, reader)
            model, about, doubt = fitted or _fit_in_memory(o, reader, work)
            work(f"Writing {o.model}")
            qid = about["qid_column"] if about["format"] != "letor" else None
            columns = {"label": about["label_column"], "weight": o.sample_weight}
            event = f"fitted to {reader.name} ({about['n_rows']:,} rows)"
            add_history(model, event, qid=qid, **(columns if o.clicks is None else {}))
            save_model(model, o.model)
    about |= {"seconds": round(time.perf_counter() - started, 3), "file": o.model}
    if o.auto and not o.json:
        _tell_members(last_step(model), about["n_members"])
    result(o, about)
    if doubt is not None:
        warn(doubt)


def _about(o: Any, rows: Any, ranker: Any, n_rows: int, **more: Any) -> dict[str, Any]:
    """What is told about a fit, as JSON."""
    about = {
        "n_rows": n_rows,
        "n_features": rows.data.shape[1],
        "format": rows.format,
        "label_column": rows.target_name,
        "qid_column": rows.qid_name or rows.get("group_file"),
    }
    if isinstance(ranker, AutoRanker):
        return about | {
            "model": "AutoRanker",
            "effort": ranker.effort,
            "scoring": ranker.scoring,
            "best_score": ranker.best_score_,
            "n_queries": _n_queries(rows),
            "n_compared": ranker.n_compared_,
            "n_members": int((ranker.members_["weight"] > 0).sum()),
            "members": ranker.members_,
        }
    return about | more | {
        "scale": scale_of(o),
        "model": type(ranker).__name__,
        "alpha": float(getattr(ranker, "alpha_", getattr(ranker, "alpha", 1.0))),
        "solver": ranker.solver_,
        "n_queries": int(ranker.n_queries_),
        "n_pairs": int(ranker.n_pairs_),
        "cv_score": getattr(ranker, "best_score_", None),
    }  # fmt: skip


def _n_queries(rows: Any) -> int:
    return 1 if rows.qid is None else len(set(rows.qid.tolist()))


def _sums_suffice(o: Any) -> bool:
    """Whether the options need sums over queries only, which a stream adds up."""
    linear = o.kernel == "linear" and o.basis is None and o.solver in ("auto", "primal")
    by_query = not o.one_ranking or (o.cost, o.ties) == ("magnitude", "keep")
    plain = not o.auto and o.alpha != "auto" and o.loss == "squared" and o.missing != "mean"
    return linear and by_query and plain


def _fit_stream(o: Any, reader: DataFile) -> Any:
    """One pass over the file; None if it has too many columns and streaming was not asked for."""
    batches = reader.batches(by_query=True)
    first = next(batches)  # tells the number of features
    if not o.stream and first.data.shape[1] > MAX_STREAMED_FEATURES:
        batches.close()  # type: ignore[attr-defined]
        return None
    alpha = DEFAULT_ALPHA if o.alpha is None else o.alpha
    ranker = make_ranker(o, None if alpha == "auto" else float(alpha))
    if not o.stream:
        how = f" with alpha {alpha:g}, not cross-validated" if o.alpha is None else ""
        note(f"{reader.name} is large: fitted batch by batch{how} (--in-memory for all at once)")
    model = with_steps(ranker, o, first)
    n_rows = 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal n_rows
        for batch in chain([first], batches):
            n_rows += batch.data.shape[0]
            yield {name: batch[name] for name in ("data", "target", "qid", "sample_weight")}

    passes = iter([counted()])  # metrics of held-out queries are computed in further ones
    try:
        with reader.named_errors():
            streaming.fit_stream(model, lambda: next(passes, None) or reader.batches(by_query=True))
    except ValueError as error:
        if n_rows:  # about the rows, not about the options
            raise
        raise ValueError(f"--stream: {error} (--in-memory reads all rows at once)") from error
    name_features(model, first.feature_names)
    doubt = _doubt(ranker) if alpha == "auto" else None
    return model, _about(o, first, ranker, n_rows, streamed=True), doubt


def _fit_in_memory(o: Any, reader: DataFile, work: Any) -> tuple[Any, dict[str, Any], str | None]:
    """Read all rows, then fit: the model, facts about it, and what is doubtful."""
    rows = reader.load()
    more: dict[str, Any] = {"streamed": False}
    alpha, cv = None if o.auto or o.alpha in (None, "auto") else float(o.alpha), None
    if alpha is not None and o.c is not None:  # SVMrank: ½‖w‖² + (C/queries) Σ ξ
        alpha = _n_queries(rows) / (2 * float(o.c))
    large = sparse.issparse(rows.data) and min(rows.data.shape) > MAX_SPARSE
    if o.alpha is None and large and o.kernel == "linear" and o.solver in ("auto", "cg"):
        cv = "validation"
        more |= {"cv": cv}
    model = _fitted(o, make_ranker(o, alpha, cv), reader, rows, work)
    ranker = last_step(model)
    doubt = _doubt(ranker, rows) if isinstance(ranker, RankRLSCV | AutoRanker) else None
    return model, _about(o, rows, ranker, rows.data.shape[0], **more), doubt


def _fitted(o: Any, ranker: Any, reader: DataFile, rows: Any, work: Any) -> Any:
    """The ranker, with the steps before it, fitted to rows; tells what may take long."""
    m, model = rows.data.shape[0], ranker
    work("Fitting")
    if o.auto:
        suit_labels(ranker, o, rows.target)
        work(f"Choosing among rankers on {m:,} rows, effort {ranker.effort}")
    else:
        model = with_steps(ranker, o, rows)
    if isinstance(ranker, RankRLSCV):
        work(f"Cross-validating on {m:,} rows")
    if o.auto and not o.json:
        _tell_text(rows.data)
    with reader.named_errors():
        fit_rows(model, rows)
    dropped = ranker._table.dropped_ if o.auto and not o.json else ()
    if len(dropped):
        names, first = getattr(ranker, "feature_names_in_", None), 0 if o.zero_based else 1
        labels = [f"feature {first + j}" if names is None else names[j] for j in dropped]
        note(f"{len(dropped):,} of {rows.data.shape[1]:,} columns left out (constant, or ids): "
             f"{listed(labels)}")  # fmt: skip
    return model


def _doubt(ranker: Any, rows: Any = None) -> str | None:
    """A warning if the held-out score is not clearly above chance, or above that of one column."""
    scoring, score, error = Scoring(ranker.scoring, loss=Loss()), ranker.best_score_, 0.0
    known = {LOSS_METRIC: 0.0, "pairwise_accuracy": 0.5, "concordance_index": 0.5}
    chance = known.get(str(scoring.name))
    if rows is None and chance is None:  # the chance of other metrics depends on the labels
        return None
    nested, results = getattr(ranker, "nested_scores_", None), getattr(ranker, "cv_results_", {})
    if rows is not None:
        y, qid = rows.target, rows.qid
        if chance is None:
            # Metrics average over ties: equal scores of all rows have the value of a random order.
            chance = float(scoring.metric(y, np.zeros(len(y)), qid=qid, **scoring.options))
        if nested is not None and qid is not None:
            some = ~np.isnan(nested)
            options = {**scoring.options, "average": None}
            values = scoring.metric(y[some], nested[some], qid=qid[some], **options)
            error = float(np.nanstd(values) / np.sqrt(max(np.isfinite(values).sum(), 1)))
    if "std_score" in results:
        best = int(np.argmax(results["mean_score"]))
        error = float(results["std_score"][best] / np.sqrt(max(results["n_scores"][best], 1)))
    assert chance is not None
    name = f"the held-out {ranker.scoring} of {score:.4f}"
    limit = N_ERRORS * error
    noise = None
    if score - chance <= limit:
        noise = (
            f"{name}{f' ± {limit:.4f}' if error else ''} is not better than that of a random "
            f"order, {chance:.4f}: are labels, query ids and features the right columns?"
        )
    if rows is None or not isinstance(ranker, RankRLSCV) or scoring.name == LOSS_METRIC:
        return noise  # the other ranker, AutoRanker, has columns among its members
    if sparse.issparse(rows.data):
        return noise
    X = np.nan_to_num(np.asarray(rows.data, dtype=np.float64))
    codes = np.unique(np.zeros(len(y)) if qid is None else qid, return_inverse=True)[1]
    target = y - (np.bincount(codes, y) / np.bincount(codes))[codes]
    size = np.sqrt(np.maximum((X**2).sum(axis=0), np.finfo(float).tiny))
    likely = np.argsort(-np.abs(target @ X) / size, kind="stable")[:MAX_COLUMNS]
    tried = [(float(scoring.metric(y, sign * X[:, j], qid=qid, **scoring.options)), int(j), sign)
             for j in likely for sign in (1, -1)]  # fmt: skip
    value, j, sign = max(tried, default=(-np.inf, 0, 1), key=lambda one: one[0])
    if value < score or (noise and value - chance <= 2 * limit):
        return noise
    names = rows.feature_names
    column = f"feature {j + 1}" if names is None else repr(str(names[j]))
    return (
        f"{name} is not better than that of sorting by {column} alone, "
        f"{'largest' if sign > 0 else 'smallest'} first: {value:.4f}"
    )


def suit_labels(ranker: AutoRanker, o: Any, y: Any) -> None:
    """Choose by pairwise accuracy if NDCG, which nobody asked for, has no gain for the labels."""
    if "scoring" not in o.given and (y.min() < 0 or y.max() > MAX_GAIN):
        note(
            f"labels from {y.min():g} to {y.max():g} have no {ranker.scoring}: members are chosen "
            "by pairwise_accuracy"
        )
        ranker.set_params(scoring="pairwise_accuracy")


def _tell_text(X: Any) -> None:
    """Tell which columns are text; warn of dates and of marked numbers."""
    text = text_columns(X)
    if text:
        note(f"taken as text: {listed(text)}")
    for name in text:
        known = [str(word) for word in X[name] if word is not None]
        others = [word for word in known if np.isnan(cell_number(word))]
        dates = sum(bool(DATE.match(word)) for word in others) > len(known) / 2
        marked = all(number_hint(word) for word in others)
        if others and (dates or marked or len(others) <= 0.1 * len(known)):
            warn(
                f"column {name!r} is taken as text: {len(others):,} of its {len(known):,} "
                f"cells are no numbers, such as {min(others)[:40]!r}; write dates as numbers (an "
                "age in days), and numbers with a decimal point and without thousands separators, "
                "or leave it out by --drop"
            )


def _tell_members(ranker: AutoRanker, count: int) -> None:
    """Print the first candidates, the best first; those that were chosen come before others."""
    table({ranker.scoring if name == "score" else name: values[:count]
           for name, values in ranker.members_.items()})  # fmt: skip
    say()


def cross_validate(o: Any) -> None:
    """Print the scores of the alphas, or of the candidates of ``--auto``."""
    if o.plot is not None:
        check_output(o.plot, *o.data)
        if not o.plot.lower().endswith((".png", ".svg", ".pdf")):
            raise ValueError(f"--plot {o.plot}: the name must end in .png, .svg or .pdf")
    started = time.perf_counter()
    ranker: Any = make_ranker(o)
    reader = DataFile(o.data, o, **(RAW if o.auto else {}))
    with working(f"Reading {reader.name}") as work:
        rows = reader.load()
        _fitted(o, ranker, reader, rows, work)
        if o.plot is not None:
            work(f"Drawing {o.plot}")
            _draw(ranker, o.plot)
    about = _about(o, rows, ranker, rows.data.shape[0])
    about = about if o.auto else _alphas(o, ranker, about)
    about["seconds"] = round(time.perf_counter() - started, 3)
    if o.auto and not o.json:
        _tell_members(ranker, len(ranker.members_["weight"]))
    elif not o.json:
        keys = {"alphas": "alpha", "scores": o.scoring, "standard_errors": "std. error"}
        columns = {name: about[key] for key, name in keys.items() if about[key] is not None}
        table(columns, marked=int(np.flatnonzero(about["alphas"] == ranker.alpha_)[0]))
        say()
    result(o, about | {"plot": o.plot})


def _alphas(o: Any, ranker: RankRLSCV, about: dict[str, Any]) -> dict[str, Any]:
    """The alphas and their scores, as JSON."""
    results = {name: np.asarray(values) for name, values in ranker.cv_results_.items()}
    errors = None
    if "std_score" in results:  # a rough error of the mean: the held-out lists share training rows
        errors = results["std_score"] / np.sqrt(results["n_scores"])
    return {
        "best_alpha": ranker.alpha_,
        "best_score": ranker.best_score_,
        "scoring": o.scoring,
        "cv": "validation" if "iteration" in results else o.cv,
        **{key: about[key] for key in ("scale", "n_rows", "n_queries", "n_features")},
        "alphas": results["alpha"],
        "scores": results["mean_score"],
        "standard_errors": errors,
    }


def _draw(ranker: Any, path: str) -> None:
    plt = pyplot()
    plt.switch_backend("Agg")  # no window is opened
    from rankrls.plotting import RegularizationPathDisplay

    figure, content = RegularizationPathDisplay.from_estimator(ranker).figure_, io.BytesIO()
    kind = os.path.splitext(path)[1].lower().removeprefix(".")
    figure.savefig(content, format=kind, dpi=150, bbox_inches="tight")
    plt.close(figure)
    write_file(path, [content.getvalue()])
