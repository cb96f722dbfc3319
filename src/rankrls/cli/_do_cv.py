"""``rankrls cv``."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from rankrls.cli import _auto_option as auto_option
from rankrls.cli._estimators import make_cv, tell_search
from rankrls.cli._files import DataFile, check_output, output_file
from rankrls.cli._options import AutoOptions, DataOptions, ModelOptions
from rankrls.cli._output import Work, number, queries, require_stdout, say, table, to_json
from rankrls.cli._preparation import Preparation, scale_of
from rankrls.cli._refusals import refuse_auto_options, refuse_model_options

__all__ = ["cross_validate"]

#: Alphas that are printed without ``--all``; of more, the ends and those around the best.
SHOWN = 10


def cross_validate(
    data_options: DataOptions,
    model_options: ModelOptions,
    auto_options: AutoOptions,
    *,
    data: Sequence[str],
    alphas: Any,
    cv: str,
    scoring: str,
    plot: str | None,
    every: bool,
    as_json: bool,
) -> None:
    """Print the scores of the alphas."""
    require_stdout()
    refuse_auto_options(auto_options)
    if auto_options.auto:
        ranker = auto_option.make_auto(auto_options, model_options.seed, scoring)
        _tell_auto(
            ranker, auto_options, DataFile(data, data_options, **auto_option.RAW), every, as_json
        )
        return
    if plot is not None:
        check_output(plot, *data)
        kind = _picture(plot)
    started = time.perf_counter()
    refuse_model_options(model_options)
    ranker = make_cv(model_options, alphas, cv, scoring)
    reader = DataFile(data, data_options)
    with Work(f"Reading {reader.name}", reader.total) as work:
        rows = reader.load(work)
        tell_search(work, ranker, rows.data)
        preparation = Preparation(model_options, data_options, sparse.issparse(rows.data))
        X = preparation.fit_transform(rows)
        with reader.named_errors():
            ranker.fit(X, rows.target, qid=rows.qid, sample_weight=rows.sample_weight)
        if plot is not None:
            work.now(f"Drawing {plot}")
            _draw(ranker, plot, kind)
    seconds = time.perf_counter() - started
    results = {name: np.asarray(values) for name, values in ranker.cv_results_.items()}
    n_rows, n_queries = rows.data.shape[0], int(ranker.n_queries_)
    by_validation = "iteration" in results
    errors = None
    if "std_score" in results:  # a rough error of the mean: the held-out lists share training rows
        errors = results["std_score"] / np.sqrt(results["n_scores"])
    if as_json:
        to_json(
            {
                "best_alpha": ranker.alpha_,
                "best_score": ranker.best_score_,
                "scoring": scoring,
                "cv": "validation" if by_validation else cv,
                "scale": scale_of(model_options),
                "n_rows": n_rows,
                "n_queries": n_queries,
                "n_features": rows.data.shape[1],
                "seconds": round(seconds, 3),
                "alphas": results["alpha"],
                "scores": results["mean_score"],
                "standard_errors": errors,
            }
        )
        return
    best = int(np.flatnonzero(results["alpha"] == ranker.alpha_)[0])
    columns = [[f"{alpha:.6g}" for alpha in results["alpha"]],
               [f"{score:.4f}" for score in results["mean_score"]]]  # fmt: skip
    if errors is not None:
        columns.append([f"{error:.4f}" for error in errors])
    head = ["alpha", scoring, "std. error"][: len(columns)]
    lines = list(zip(*columns, strict=True))
    shown = list(range(len(lines))) if every else _around(best, len(lines))
    gap = ["…"] * len(head)
    table(
        head,
        [gap if i is None else lines[i] for i in shown],
        marked=shown.index(best),
    )
    if None in shown:
        say(f"({len(lines)} alphas; --all prints every one)")
    where = "held-out rows"
    if by_validation:
        units = "queries" if rows.qid is not None else "rows"
        where = f"one random {ranker.validation_fraction:.0%} of the {units}, held out"
    say(
        f"\nbest alpha {ranker.alpha_:.6g}: {scoring} {ranker.best_score_:.4f} on {where}; "
        f"{number(n_rows)} rows in {queries(n_queries)}, "
        f"{seconds:.1f} s"
    )
    if plot is not None:
        say(f"drawn in {plot}")


def _tell_auto(
    ranker: Any, options: AutoOptions, reader: DataFile, every: bool, as_json: bool
) -> None:
    """``--auto``: the candidates, and the nested score of their average."""
    started = time.perf_counter()
    with Work(f"Reading {reader.name}", reader.total) as work:
        rows = reader.load(work)
        ranker = auto_option.fitted(ranker, options, reader, rows, work)
    seconds = time.perf_counter() - started
    about = auto_option.summary(ranker, rows) | {"seconds": round(seconds, 3)}
    if as_json:
        to_json(about)
        return
    auto_option.tell_columns(ranker, rows.data, zero_based=reader.options.zero_based)
    auto_option.tell_members(ranker.members_, ranker.scoring, every=every)
    count = len(ranker.members_["weight"])
    if not every and count > about["n_members"]:
        say(f"({about['n_members']} of {count} candidates are averaged; --all prints every one)")
    say(
        f"\n{auto_option.nested(ranker)}; {number(about['n_rows'])} rows in "
        f"{queries(about['n_queries'])}, {seconds:.1f} s"
    )


def _around(best: int, count: int) -> list[int | None]:
    """Lines to print: all of a few; of many the ends and those next to the best, None for gaps."""
    if count <= SHOWN + 2:
        return list(range(count))
    near = SHOWN - 3
    first = min(max(best - near // 2, 0), count - near)
    kept = sorted({0, *range(first, first + near), count - 1})
    lines: list[int | None] = []
    for line, following in zip(kept, [*kept[1:], None], strict=True):
        lines.append(line)
        if following is not None and following == line + 2:
            lines.append(line + 1)  # it takes no more lines than a gap
        elif following is not None and following > line + 1:
            lines.append(None)
    return lines


def _picture(path: str) -> str:
    """What to draw, by the end of the name."""
    kind = os.path.splitext(path)[1].lower().removeprefix(".")
    if kind not in ("png", "svg", "pdf"):
        raise ValueError(f"--plot {path}: the name must end in .png, .svg or .pdf")
    return kind


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
