"""``rankrls fit`` and ``rankrls cv``, with ``--auto`` or without."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from scipy import sparse

from rankrls import AutoRanker, RankRLSCV, streaming
from rankrls._frames import RawTable
from rankrls._resources import pyplot
from rankrls.cli._click_log import click_rows
from rankrls.cli._files import DataFile, check_output, output_file
from rankrls.cli._output import (
    facts,
    listed,
    note,
    number,
    queries,
    require_stdout,
    say,
    size,
    table,
    to_json,
    warn,
    working,
)
from rankrls.cli._pipelines import (
    add_history,
    fit_rows,
    last_step,
    make_ranker,
    name_features,
    scale_of,
    with_steps,
)
from rankrls.core.preferences.costs import Loss
from rankrls.estimators.choosing import LOSS_METRIC, Scoring
from rankrls.io import save_model

__all__ = ["RAW", "cross_validate", "fit", "nested", "suit_labels"]

#: Streaming adds up a matrix of this many columns and rows at most, unless it was asked for.
MAX_STREAMED_FEATURES = 3000

#: Alpha where none is given and none is chosen.
DEFAULT_ALPHA = 1.0

#: Sparse rows with more rows and columns than this are solved by iterations, which have no
#: shortcut for what is left out: where alpha was not asked for, a part of the queries chooses it.
MAX_SPARSE = 5000

#: Rows from which the eigendecomposition of a kernel matrix takes more than a few seconds.
MANY_ROWS = 4000

#: How `DataFile` reads text and missing values as they are.
RAW: dict[str, Any] = {"text": "auto", "missing": "nan"}

#: Standard errors above chance that a score has to be: it is the best of those of many alphas.
N_ERRORS = 3.0

#: Columns that are tried as rankers of their own: those that correlate most with the labels.
MAX_COLUMNS = 20

#: Labels above this have gains 2^y − 1 that are too large.
MAX_GAIN = 1000

#: The beginning of a date in ISO order, a time of day, or a duration of a Parquet file.
DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}(?!\d)|\d{1,2}:\d\d(?!\d)|-?\d+ (s|ms|us|ns)$")


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
            save_model(model, o.model, uncertainty=not o.no_uncertainty)
    seconds = time.perf_counter() - started
    if o.json:
        to_json(about | {"seconds": round(seconds, 3), "file": o.model})
    else:
        written = f"{o.model} ({size(os.path.getsize(o.model))}) in {seconds:.1f} s"
        _tell(o, last_step(model), about, written)
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
            "n_queries": 1 if rows.qid is None else len(set(rows.qid.tolist())),
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


def _tell(o: Any, ranker: Any, about: dict[str, Any], written: str) -> None:
    roles = (("labels", "label_column"), ("queries", "qid_column"))
    named = [f"{role} {about[key]!r}" for role, key in roles if about[key]]
    rows = f"{number(about['n_rows'])} in {queries(about['n_queries'])}"
    lines = [("rows", rows + (f" (columns: {', '.join(named)})" if named else ""))]
    if isinstance(ranker, AutoRanker):
        count = f"{about['n_members']} of {len(ranker.members_['weight'])} candidates"
        text = f"AutoRanker, effort {ranker.effort}: the mean of {count}, with these held-out "
        facts([*lines, ("features", number(about["n_features"])), ("model", f"{text}scores:")])
        say()
        _tell_members(ranker, about["n_members"])
        say()
        facts([("held out", nested(ranker)), ("written", written)])
        return
    tied = (getattr(ranker, "cost", None), getattr(ranker, "ties", None)) == ("magnitude", "keep")
    scale, streamed = about["scale"], about["streamed"]
    lines += [
        ("features", number(about["n_features"]) + f", scaled: {scale}" * (scale != "none")),
        ("pairs", number(about["n_pairs"]) + ", including ties" * tied),
        ("model", f"{about['model']}, alpha {about['alpha']:g}"
                  + " (not cross-validated)" * (o.alpha is None and streamed)
                  + f", solver {ranker.solver_}" + ", read batch by batch" * streamed),
    ]  # fmt: skip
    if about["cv_score"] is not None:
        score = f"{o.scoring} {about['cv_score']:.4f} at the best alpha"
        lines.append(("held out", score + ", of a tenth of the queries" * ("cv" in about)))
    facts([*lines, ("written", written)])


# ---------------------------------------------------------------------- batch by batch


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
    with reader.named_errors():
        streaming.fit_stream(model, lambda: next(passes, None) or reader.batches(by_query=True))
    name_features(model, first.feature_names)
    doubt = _doubt(ranker) if alpha == "auto" else None
    return model, _about(o, first, ranker, n_rows, streamed=True), doubt


# ---------------------------------------------------------------------- at once


def _fit_in_memory(o: Any, reader: DataFile, work: Any) -> tuple[Any, dict[str, Any], str | None]:
    """Read all rows, then fit: the model, facts about it, and what is doubtful."""
    rows = reader.load()
    more: dict[str, Any] = {"streamed": False}
    alpha, cv = None if o.auto or o.alpha in (None, "auto") else float(o.alpha), None
    if alpha is not None and o.c is not None:  # SVMrank: ½‖w‖² + (C/queries) Σ ξ
        alpha = (1 if rows.qid is None else len(set(rows.qid.tolist()))) / (2 * float(o.c))
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
        kernel = o.kernel != "linear" and o.basis is None and o.solver in ("auto", "dual")
        if kernel and m > MANY_ROWS:
            note(f"--kernel {o.kernel} decomposes a matrix of {m:,} × {m:,}; --basis 1000 is "
                 "faster")  # fmt: skip
        work(f"Cross-validating on {m:,} rows")
    with reader.named_errors():
        fit_rows(model, rows)
    if o.auto and not o.json:
        _tell_columns(ranker, rows.data, o)
    return model


def _doubt(ranker: Any, rows: Any = None) -> str | None:
    """A warning if the held-out score is not clearly above chance, or above that of one column.

    Without the rows it was fitted to, of a stream, only the chance of pairwise accuracy is known.
    """
    scoring, score, error = Scoring(ranker.scoring, loss=Loss()), ranker.best_score_, 0.0
    known = {LOSS_METRIC: 0.0, "pairwise_accuracy": 0.5, "concordance_index": 0.5}
    chance = known.get(str(scoring.name))
    if rows is None and chance is None:
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
    name = f"the held-out {ranker.scoring} of {score:.4f}"
    if score - chance <= N_ERRORS * error:
        return (
            f"{name}{f' ± {error:.4f}' if error else ''} is not better than that of a random "
            f"order, {chance:.4f}: are labels, query ids and features the right columns?"
        )
    if rows is None or not isinstance(ranker, RankRLSCV) or scoring.name == LOSS_METRIC:
        return None
    if sparse.issparse(rows.data):
        return None
    X = np.nan_to_num(np.asarray(rows.data, dtype=np.float64))
    codes = np.unique(np.zeros(len(y)) if qid is None else qid, return_inverse=True)[1]
    target = y - (np.bincount(codes, y) / np.bincount(codes))[codes]
    size = np.sqrt(np.maximum((X**2).sum(axis=0), np.finfo(float).tiny))
    likely = np.argsort(-np.abs(target @ X) / size, kind="stable")[:MAX_COLUMNS]
    tried = [(float(scoring.metric(y, sign * X[:, j], qid=qid, **scoring.options)), int(j), sign)
             for j in likely for sign in (1, -1)]  # fmt: skip
    value, j, sign = max(tried, default=(-np.inf, 0, 1), key=lambda one: one[0])
    if not value >= score:
        return None
    names = rows.feature_names
    column = f"feature {j + 1}" if names is None else repr(str(names[j]))
    return (
        f"{name} is not better than that of sorting by {column} alone, "
        f"{'largest' if sign > 0 else 'smallest'} first: {value:.4f}"
    )


# ---------------------------------------------------------------------- --auto


def suit_labels(ranker: AutoRanker, o: Any, y: Any) -> None:
    """Choose by pairwise accuracy if NDCG, which nobody asked for, has no gain for the labels."""
    if "scoring" not in o.given and (y.min() < 0 or y.max() > MAX_GAIN):
        note(
            f"labels from {y.min():g} to {y.max():g} have no {ranker.scoring}: members are chosen "
            "by pairwise_accuracy"
        )
        ranker.set_params(scoring="pairwise_accuracy")


def nested(ranker: AutoRanker) -> str:
    """The held-out score of the average, and what it is of."""
    units, part = "queries" if ranker._with_qid else "folds", ""
    if ranker.n_compared_ < len(ranker.held_out_scores_):
        part = f"; of {ranker.n_compared_:,} rows"
    return (
        f"{ranker.scoring} {ranker.best_score_:.4f} of the mean, nested: members chosen by other "
        f"{units} than those that are scored{part}"
    )


def _tell_columns(ranker: AutoRanker, X: Any, o: Any) -> None:
    """Tell which columns are text and which are left out; warn of dates and of marked numbers."""
    text = X.text if isinstance(X, RawTable) else {}
    if text:
        note(f"taken as text: {listed([X.columns[j] for j in sorted(text)])}")
    for j, words in sorted(text.items()):
        name, known = X.columns[j], [str(word) for word in words if word is not None]
        if sum(bool(DATE.match(word)) for word in known) > len(known) / 2:
            warn(
                f"column {name!r} holds dates or times, which are taken as text: give a number "
                f"that is meant, such as the age in days, or leave it out by --drop {name}"
            )
        others = [word for word in known if not _is_number(word)]
        marked = all(_is_number(word.replace(",", "")) for word in others)
        if others and (marked or len(others) <= 0.1 * len(known)):
            warn(
                f"column {name!r} is taken as text, because {len(others):,} of its {len(known):,} "
                f"cells are no numbers, such as {min(others)[:40]!r}: write a decimal point and no "
                "thousands separators, and leave cells empty that are missing"
            )
    dropped = ranker._table.dropped_
    if len(dropped):
        names, first = getattr(ranker, "feature_names_in_", None), 0 if o.zero_based else 1
        labels = [f"feature {first + j}" if names is None else names[j] for j in dropped]
        note(f"{len(dropped):,} of {X.shape[1]:,} columns left out (constant, or ids): "
             f"{listed(labels)}")  # fmt: skip


def _is_number(text: str) -> bool:
    try:
        return "_" not in text and bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _tell_members(ranker: AutoRanker, count: int) -> None:
    """Print the first candidates, the best first; those that were chosen come before others."""
    numbers = {"alpha": "{:.4g}", "score": "{:.4f}", "weight": "{:.3g}"}
    head = [ranker.scoring if name == "score" else name for name in ranker.members_]
    cells = [[numbers.get(name, "{}").format(value) for value in values[:count]]
             for name, values in ranker.members_.items()]  # fmt: skip
    table(head, list(zip(*cells, strict=True)), left=len(head) - len(numbers))


# ---------------------------------------------------------------------- cv


def cross_validate(o: Any) -> None:
    """Print the scores of the alphas, or of the candidates of ``--auto``."""
    require_stdout()
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
    seconds = time.perf_counter() - started
    about = _about(o, rows, ranker, rows.data.shape[0])
    if o.json:
        to_json((about if o.auto else _alphas(o, ranker, about)) | {"seconds": round(seconds, 3)})
        return
    if o.auto:
        count, chosen, result = len(ranker.members_["weight"]), about["n_members"], nested(ranker)
        _tell_members(ranker, count if o.every else chosen)
        if not o.every and count > chosen:
            say(f"({chosen} of {count} candidates are averaged; --all prints every one)")
    else:
        result = _tell_alphas(o, ranker, _alphas(o, ranker, about), rows.qid is not None)
    counts = f"{number(about['n_rows'])} rows in {queries(about['n_queries'])}"
    say(f"\n{result}; {counts}, {seconds:.1f} s")
    if o.plot is not None:
        say(f"drawn in {o.plot}")


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


def _tell_alphas(o: Any, ranker: RankRLSCV, found: dict[str, Any], has_qid: bool) -> str:
    """Print the table of alphas; return the best one in words."""
    columns = [[f"{alpha:.6g}" for alpha in found["alphas"]]]
    columns += [[f"{value:.4f}" for value in found[key]]
                for key in ("scores", "standard_errors") if found[key] is not None]  # fmt: skip
    head = ["alpha", o.scoring, "std. error"][: len(columns)]
    lines = list(zip(*columns, strict=True))
    best = int(np.flatnonzero(found["alphas"] == ranker.alpha_)[0])
    shown: list[Any] = list(range(len(lines)))
    if len(lines) > 12 and not o.every:  # the ends, and those next to the best
        near = range(max(best - 3, 0), min(best + 4, len(lines)))
        kept = sorted({0, *near, len(lines) - 1})
        shown = [part for i in kept for part in ([None, i] if i and i - 1 not in kept else [i])]
    gap = ["…"] * len(head)
    table(head, [gap if i is None else lines[i] for i in shown], marked=shown.index(best))
    if None in shown:
        say(f"({len(lines)} alphas; --all prints every one)")
    where = "held-out rows"
    if found["cv"] == "validation":
        units = "queries" if has_qid else "rows"
        where = f"one random {ranker.validation_fraction:.0%} of the {units}, held out"
    return f"best alpha {ranker.alpha_:.6g}: {o.scoring} {ranker.best_score_:.4f} on {where}"


def _draw(ranker: Any, path: str) -> None:
    plt = pyplot()
    plt.switch_backend("Agg")  # no window is opened
    from rankrls.plotting import RegularizationPathDisplay

    figure = RegularizationPathDisplay.from_estimator(ranker).figure_
    with output_file(path) as file:
        kind = os.path.splitext(path)[1].lower().removeprefix(".")
        figure.savefig(file, format=kind, dpi=150, bbox_inches="tight")
    plt.close(figure)
