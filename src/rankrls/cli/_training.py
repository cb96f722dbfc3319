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
from rankrls.cli._click_log import click_rows
from rankrls.cli._doubts import Chance, better_column, not_better
from rankrls.cli._estimators import (
    AUTO_SCORING,
    Preparation,
    last_step,
    make_auto,
    make_cv,
    make_ranker,
    name_features,
    note_source,
    scale_of,
    tell_search,
)
from rankrls.cli._files import DataFile, check_output, output_file
from rankrls.cli._output import (
    Work,
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
)
from rankrls.core.preferences.costs import Loss
from rankrls.estimators.choosing import LOSS_METRIC, Scoring
from rankrls.io import save_model

__all__ = ["RAW", "cross_validate", "fit", "nested", "suit_labels", "tell_members"]

#: Streaming adds up a matrix of this many columns and rows at most, unless it was asked for.
MAX_STREAMED_FEATURES = 3000

#: Alpha where none is given and none is chosen.
DEFAULT_ALPHA = 1.0

#: Sparse rows with more rows and columns than this are solved by iterations, which have no
#: shortcut for what is left out: where alpha was not asked for, a part of the queries chooses it.
MAX_SPARSE = 5000

#: Alphas that are printed without ``--all``; of more, the ends and those around the best.
SHOWN = 10

#: How `DataFile` reads text and missing values as they are.
RAW: dict[str, Any] = {"text": "auto", "missing": "nan"}

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
    searched = o.alphas is not None or bool({"cv", "scoring"} & set(o.given))
    if o.alpha is None and o.loss == "hinge":
        o.alpha = DEFAULT_ALPHA
    elif o.alpha is None and searched:
        o.alpha = "auto"
    # Invalid options are reported before anything is read.
    if o.auto:
        make_auto(o)
    elif o.alpha in (None, "auto"):
        make_cv(o)
    else:
        make_ranker(o, float(o.alpha))
    with click_rows(o) as (o, _):
        _fit(o, started)


def _fit(o: Any, started: float) -> None:
    reader = DataFile(o.data, o, **(RAW if o.auto else {}))
    if o.stream and (why := _why_not_streamed(o, reader, forced=True)) is not None:
        raise ValueError(f"--stream is not possible: {why}")
    with Work(f"Reading {reader.name}") as work:
        wanted = reader.large and not o.auto if o.stream is None else o.stream
        found = None
        if wanted and _why_not_streamed(o, reader, forced=bool(o.stream)) is None:
            found = _fit_stream(o, reader)
        model, about, doubt = found or _fit_in_memory(o, reader, work)
        work.now(f"Writing {o.model}")
        event = f"fitted to {reader.name} ({about['n_rows']:,} rows)"
        qid = about["qid_column"] if about["format"] != "letor" else None
        columns = {"label": about["label_column"], "weight": o.sample_weight}
        note_source(model, event, qid=qid, **(columns if o.clicks is None else {}))
        save_model(model, o.model, uncertainty=not o.no_uncertainty)
    seconds = time.perf_counter() - started
    about |= {"seconds": round(seconds, 3), "file": o.model}
    if o.json:
        to_json(about)
    else:
        written = f"{o.model} ({size(os.path.getsize(o.model))}) in {seconds:.1f} s"
        _tell(o, last_step(model), about, written)
    if doubt is not None:
        warn(doubt)


def _about(rows: Any, n_rows: int) -> dict[str, Any]:
    return {
        "n_rows": n_rows,
        "n_features": rows.data.shape[1],
        "format": rows.format,
        "label_column": rows.target_name,
        "qid_column": rows.qid_name or rows.get("group_file"),
    }


def _about_fit(o: Any, ranker: Any, streamed: bool) -> dict[str, Any]:
    return {
        "streamed": streamed,
        "scale": scale_of(o),
        "model": type(ranker).__name__,
        "alpha": float(getattr(ranker, "alpha_", getattr(ranker, "alpha", 1.0))),
        "solver": ranker.solver_,
        "n_queries": int(ranker.n_queries_),
        "n_pairs": int(ranker.n_pairs_),
        "cv_score": getattr(ranker, "best_score_", None),
    }


def _tell(o: Any, ranker: Any, about: dict[str, Any], written: str) -> None:
    roles = (("labels", "label_column"), ("queries", "qid_column"))
    named = [f"{role} {about[key]!r}" for role, key in roles if about[key]]
    rows = f"{number(about['n_rows'])} in {queries(about['n_queries'])}"
    lines = [("rows", rows + (f" (columns: {', '.join(named)})" if named else ""))]
    if isinstance(ranker, AutoRanker):
        lines += [
            ("features", number(about["n_features"])),
            ("model", f"AutoRanker, effort {ranker.effort}: the mean of {about['n_members']} of "
                      f"{len(ranker.members_['weight'])} candidates, with these held-out scores:"),
        ]  # fmt: skip
        facts(lines)
        say()
        tell_members(ranker.members_, ranker.scoring)
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


def _why_not_streamed(o: Any, reader: DataFile, *, forced: bool) -> str | None:
    """Why these options need all rows at once; None if they do not.

    ``forced``: whether folds, instead of single queries, may be held out to choose alpha.
    """
    qid = reader.reading["qid"]
    if o.alpha == "auto":
        metric = Scoring(o.scoring, loss=Loss())
        if not forced:
            return "--alpha auto leaves out single queries"
        if o.cv != "auto" and not o.cv.isdigit():
            return f"--cv {o.cv} needs all rows; a number of folds of whole queries does not"
        if qid is None:
            return "--alpha auto holds out whole queries, and --one-ranking has none"
        if not metric.by_list and metric.name != LOSS_METRIC:
            return f"--scoring {o.scoring} needs the scores of all queries at once"
        if reader.is_pipe and metric.name != LOSS_METRIC:
            return (
                f"--scoring {o.scoring} needs a second pass, and {reader.name} is a pipe: name a "
                f"file, or use --scoring {LOSS_METRIC}"
            )
    if o.loss == "hinge":
        return "--loss hinge looks at all rows again and again"
    if o.kernel != "linear" or o.basis is not None:
        return "it is for the linear kernel, without --basis"
    if qid is None and (o.cost, o.ties) != ("magnitude", "keep"):
        return "--one-ranking needs all rows, but for --cost magnitude with --ties keep"
    if o.missing == "mean":
        return "--missing mean looks at all rows first; --missing zero does not"
    if o.solver not in ("auto", "primal"):
        return f"--solver {o.solver} needs all rows"
    return None


def _fit_stream(o: Any, reader: DataFile) -> Any:
    """One pass over the file; None if it has too many columns and streaming was not asked for."""
    batches = reader.batches(by_query=True)
    first = next(batches)  # tells the number of features
    if not o.stream and first.data.shape[1] > MAX_STREAMED_FEATURES:
        batches.close()  # type: ignore[attr-defined]
        return None
    alpha = DEFAULT_ALPHA if o.alpha is None else o.alpha
    ranker = make_cv(o) if alpha == "auto" else make_ranker(o, float(alpha))
    if not o.stream:
        how = f" with alpha {alpha:g}, not cross-validated" if o.alpha is None else ""
        note(f"{reader.name} is large: fitted batch by batch{how} (--in-memory for all at once)")
    preparation = Preparation(o, sparse.issparse(first.data))
    preparation.begin(first)
    model = preparation.with_ranker(ranker, first.qid is not None)
    chance, n_rows = Chance(o.scoring) if alpha == "auto" else None, 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal n_rows
        for batch in chain([first], batches):
            n_rows += batch.data.shape[0]
            if chance is not None:
                chance.add(batch.target, batch.qid)
            names = ("data", "target", "qid", "sample_weight")
            yield {name: batch[name] for name in names}

    passes = iter([counted()])  # metrics of held-out queries are computed in further ones
    with reader.named_errors():
        streaming.fit_stream(model, lambda: next(passes, None) or reader.batches(by_query=True))
    doubt = None if chance is None else not_better(ranker, None, None, chance.score())
    name_features(model, first.feature_names)
    return model, _about(first, n_rows) | _about_fit(o, ranker, True), doubt


# ---------------------------------------------------------------------- at once


def _fit_in_memory(o: Any, reader: DataFile, work: Work) -> tuple[Any, dict[str, Any], str | None]:
    """Read all rows, then fit: the model, facts about it, and what is doubtful."""
    rows = reader.load()
    about = _about(rows, rows.data.shape[0])
    if o.auto:
        ranker: Any = _fitted_auto(o, reader, rows, work)
        return ranker, about | _about_auto(ranker, rows), not_better(ranker, rows.target, rows.qid)
    preparation = Preparation(o, sparse.issparse(rows.data))
    X = preparation.fit_transform(rows)
    if o.alpha in (None, "auto"):
        large = sparse.issparse(X) and min(X.shape) > MAX_SPARSE and o.kernel == "linear"
        by_part = large and o.alpha is None and o.solver in ("auto", "cg")
        ranker = make_cv(o, "validation" if by_part else None)
        about |= {"cv": "validation"} if by_part else {}
        tell_search(work, ranker, rows.data)
    else:
        alpha = float(o.alpha)
        if o.c is not None:  # SVMrank: ½‖w‖² + (C/queries) Σ ξ
            alpha = (1 if rows.qid is None else len(set(rows.qid.tolist()))) / (2 * float(o.c))
        ranker = make_ranker(o, alpha)
        work.now("Fitting")
    with reader.named_errors():
        ranker.fit(X, rows.target, qid=rows.qid, sample_weight=rows.sample_weight)
    doubt = None
    if isinstance(ranker, RankRLSCV):
        doubt = not_better(ranker, rows.target, rows.qid) or better_column(
            ranker, rows.data, rows.target, rows.qid, rows.feature_names
        )
    model = preparation.with_ranker(ranker, rows.qid is not None)
    name_features(model, rows.feature_names)
    return model, about | _about_fit(o, ranker, False), doubt


# ---------------------------------------------------------------------- --auto


def suit_labels(ranker: AutoRanker, o: Any, y: Any) -> None:
    """Choose by pairwise accuracy if NDCG, which nobody asked for, has no gain for the labels."""
    if "scoring" not in o.given and (y.min() < 0 or y.max() > MAX_GAIN):
        ranker.set_params(scoring="pairwise_accuracy")
        note(
            f"labels from {y.min():g} to {y.max():g} have no {AUTO_SCORING}: members are chosen by "
            "pairwise_accuracy"
        )


def _fitted_auto(o: Any, reader: DataFile, rows: Any, work: Work) -> AutoRanker:
    """The ranker of ``--auto``; tells which columns are text and which are left out."""
    ranker, X = make_auto(o), rows.data
    suit_labels(ranker, o, rows.target)
    work.now(f"Choosing among rankers on {X.shape[0]:,} rows, effort {ranker.effort}")
    with reader.named_errors():
        ranker.fit(X, rows.target, qid=rows.qid, sample_weight=rows.sample_weight)
    if isinstance(X, RawTable) and X.text and not o.json:
        note(f"taken as text: {listed([X.columns[j] for j in sorted(X.text)])}")
        for j, words in sorted(X.text.items()):
            _warn_of_text(X.columns[j], words)
    dropped = [] if o.json else ranker._table.dropped_
    if len(dropped):
        names = getattr(ranker, "feature_names_in_", None)
        first = 0 if o.zero_based else 1
        labels = [f"feature {first + j}" if names is None else names[j] for j in dropped]
        note(
            f"{len(dropped):,} of {X.shape[1]:,} columns left out (constant, or ids): "
            f"{listed(labels)}"
        )
    return ranker


def _about_auto(ranker: AutoRanker, rows: Any) -> dict[str, Any]:
    return {
        "model": "AutoRanker",
        "effort": ranker.effort,
        "scoring": ranker.scoring,
        "best_score": ranker.best_score_,
        "n_queries": 1 if rows.qid is None else len(set(rows.qid.tolist())),
        "n_compared": ranker.n_compared_,
        "n_members": int((ranker.members_["weight"] > 0).sum()),
        "members": ranker.members_,
    }


def nested(ranker: AutoRanker) -> str:
    """The held-out score of the average, and what it is of."""
    units, part = "queries" if ranker._with_qid else "folds", ""
    if ranker.n_compared_ < len(ranker.held_out_scores_):
        part = f"; of {ranker.n_compared_:,} rows"
    return (
        f"{ranker.scoring} {ranker.best_score_:.4f} of the mean, nested: members chosen by other "
        f"{units} than those that are scored{part}"
    )


def _warn_of_text(name: str, words: Any) -> None:
    """Warn if nearly all cells of a column of text are numbers, or most are dates or times."""
    levels, counts = np.unique(words[words != None].astype(str), return_counts=True)  # noqa: E711
    dates = np.array([bool(DATE.match(level)) for level in levels], dtype=bool)
    if counts[dates].sum() > counts.sum() / 2:  # the others may be words for missing dates
        warn(
            f"column {name!r} holds dates or times, which are taken as text: give a number that is "
            f"meant, such as the age in days, or leave it out by --drop {name}"
        )
    numeric = np.array([_is_number(level) for level in levels], dtype=bool)
    n_others = int(counts[~numeric].sum())
    if n_others and n_others <= 0.1 * counts.sum():
        warn(
            f"column {name!r} is taken as text, because {n_others:,} of its {counts.sum():,} cells "
            f"are no numbers, such as {str(levels[~numeric][0])[:40]!r}: leave them empty if they "
            "are missing"
        )


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def tell_members(members: dict[str, Any], scoring: str, *, every: bool = False) -> None:
    """Print the members that were chosen, or all candidates, the best first."""
    count = len(members["weight"]) if every else int((np.asarray(members["weight"]) > 0).sum())
    numbers = {"alpha": "{:.4g}", "score": "{:.4f}", "weight": "{:.3g}"}
    head = [scoring if name == "score" else name for name in members]
    rows = [
        [numbers.get(name, "{}").format(values[i]) for name, values in members.items()]
        for i in range(count)
    ]
    table(head, rows, left=len(head) - len(numbers))


# ---------------------------------------------------------------------- cv


def cross_validate(o: Any) -> None:
    """Print the scores of the alphas, or of the candidates of ``--auto``."""
    require_stdout()
    kind = ""
    if o.plot is not None:
        check_output(o.plot, *o.data)
        kind = os.path.splitext(o.plot)[1].lower().removeprefix(".")
        if kind not in ("png", "svg", "pdf"):
            raise ValueError(f"--plot {o.plot}: the name must end in .png, .svg or .pdf")
    started = time.perf_counter()
    ranker: Any = make_auto(o) if o.auto else make_cv(o)
    reader = DataFile(o.data, o, **(RAW if o.auto else {}))
    with Work(f"Reading {reader.name}") as work:
        rows = reader.load()
        if o.auto:
            ranker = _fitted_auto(o, reader, rows, work)
        else:
            tell_search(work, ranker, rows.data)
            X = Preparation(o, sparse.issparse(rows.data)).fit_transform(rows)
            with reader.named_errors():
                ranker.fit(X, rows.target, qid=rows.qid, sample_weight=rows.sample_weight)
        if o.plot is not None:
            work.now(f"Drawing {o.plot}")
            _draw(ranker, o.plot, kind)
    seconds = time.perf_counter() - started
    n_rows = rows.data.shape[0]
    if o.auto:
        about = _about(rows, n_rows) | _about_auto(ranker, rows) | {"seconds": round(seconds, 3)}
        if o.json:
            to_json(about)
            return
        tell_members(ranker.members_, ranker.scoring, every=o.every)
        count, chosen = len(ranker.members_["weight"]), about["n_members"]
        if not o.every and count > chosen:
            say(f"({chosen} of {count} candidates are averaged; --all prints every one)")
        n_queries, result = about["n_queries"], nested(ranker)
    else:
        n_queries = int(ranker.n_queries_)
        result = _tell_alphas(o, ranker, rows, seconds)
        if o.json:
            return
    say(f"\n{result}; {number(n_rows)} rows in {queries(n_queries)}, {seconds:.1f} s")
    if o.plot is not None:
        say(f"drawn in {o.plot}")


def _tell_alphas(o: Any, ranker: RankRLSCV, rows: Any, seconds: float) -> str:
    """Print the table of alphas, or JSON; return the best one in words."""
    results = {name: np.asarray(values) for name, values in ranker.cv_results_.items()}
    by_validation = "iteration" in results
    errors = None
    if "std_score" in results:  # a rough error of the mean: the held-out lists share training rows
        errors = results["std_score"] / np.sqrt(results["n_scores"])
    if o.json:
        to_json({
            "best_alpha": ranker.alpha_,
            "best_score": ranker.best_score_,
            "scoring": o.scoring,
            "cv": "validation" if by_validation else o.cv,
            "scale": scale_of(o),
            "n_rows": rows.data.shape[0],
            "n_queries": int(ranker.n_queries_),
            "n_features": rows.data.shape[1],
            "seconds": round(seconds, 3),
            "alphas": results["alpha"],
            "scores": results["mean_score"],
            "standard_errors": errors,
        })  # fmt: skip
        return ""
    columns = [[f"{alpha:.6g}" for alpha in results["alpha"]],
               [f"{score:.4f}" for score in results["mean_score"]]]  # fmt: skip
    if errors is not None:
        columns.append([f"{error:.4f}" for error in errors])
    head = ["alpha", o.scoring, "std. error"][: len(columns)]
    lines = list(zip(*columns, strict=True))
    best = int(np.flatnonzero(results["alpha"] == ranker.alpha_)[0])
    shown = list(range(len(lines))) if o.every else _around(best, len(lines))
    gap = ["…"] * len(head)
    table(head, [gap if i is None else lines[i] for i in shown], marked=shown.index(best))
    if None in shown:
        say(f"({len(lines)} alphas; --all prints every one)")
    where = "held-out rows"
    if by_validation:
        units = "queries" if rows.qid is not None else "rows"
        where = f"one random {ranker.validation_fraction:.0%} of the {units}, held out"
    return f"best alpha {ranker.alpha_:.6g}: {o.scoring} {ranker.best_score_:.4f} on {where}"


def _around(best: int, count: int) -> list[int | None]:
    """Lines to print: all of a few; of many the ends and those next to the best, None for gaps."""
    if count <= SHOWN + 2:
        return list(range(count))
    near = SHOWN - 3
    first = min(max(best - near // 2, 0), count - near)
    kept = {0, *range(first, first + near), count - 1}
    # A gap of one line is no shorter than the line.
    kept |= {i for i in range(1, count - 1) if {i - 1, i + 1} <= kept}
    lines: list[int | None] = []
    for line in sorted(kept):
        if lines and lines[-1] != line - 1:
            lines.append(None)
        lines.append(line)
    return lines


def _draw(ranker: Any, path: str, kind: str) -> None:
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(
            "--plot needs matplotlib, which is not installed: pip install 'rankrls[plot]'"
        ) from error
    matplotlib.use("Agg")  # no window is opened
    from rankrls.plotting import RegularizationPathDisplay

    figure = RegularizationPathDisplay.from_estimator(ranker).figure_
    with output_file(path) as file:
        figure.savefig(file, format=kind, dpi=150, bbox_inches="tight")
    matplotlib.pyplot.close(figure)
