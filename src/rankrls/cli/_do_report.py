"""``rankrls report``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scipy import sparse
from sklearn.pipeline import Pipeline

from rankrls._resources import REPORT_VECTORS, require_features
from rankrls.cli import _auto_option as auto_option
from rankrls.cli._estimators import make_cv
from rankrls.cli._files import DataFile, check_output
from rankrls.cli._options import AutoOptions, DataOptions, ModelOptions
from rankrls.cli._output import Work, facts, number, size, to_json
from rankrls.cli._preparation import Preparation, scale_of
from rankrls.cli._refusals import refuse_auto_options, refuse_model_options
from rankrls.report import write_report

__all__ = ["report"]

_IMPORT = "from rankrls.datasets import load_ranking"


def report(
    data_options: DataOptions,
    model_options: ModelOptions,
    auto_options: AutoOptions,
    *,
    data: Sequence[str],
    test: Sequence[str],
    output: str,
    alphas: Any,
    scoring: str,
    title: str | None,
    as_json: bool,
) -> None:
    """Write a page about a file and its ranker."""
    if output == "-":
        raise ValueError("the page is written to a file: name it by -o")
    if "-" in data and "-" in test:
        raise ValueError("stdin cannot be both the training data and the test data")
    check_output(output, *data, *test)
    refuse_auto_options(auto_options)
    refuse_model_options(model_options)
    estimator: Any = make_cv(model_options, alphas, "auto", scoring)
    raw: dict[str, Any] = {}
    if auto_options.auto:
        estimator = auto_option.make_auto(auto_options, model_options.seed, scoring)
        raw = auto_option.RAW
    reader = DataFile(data, data_options, **raw)
    with Work(f"Reading {reader.name}", reader.total) as work:
        rows = reader.load(work)
        if auto_options.auto:
            auto_option.suit_labels(estimator, auto_options, rows.target)
            raw, rows.data = auto_option.read_like(rows.data), auto_option.plain(rows.data)
        require_features(rows.data.shape[1], copies=REPORT_VECTORS)  # before they get names
        options: dict[str, Any] = {"feature_names": _features(rows, data_options)}
        if not auto_options.auto:
            prepare = Preparation(model_options, data_options, sparse.issparse(rows.data))
            prepare.warn_about_columns(rows, rows.data)
            options |= {"imputer": prepare.imputer, "scaler": prepare.scaler}
        code = reader.code()
        if test:
            width = rows.data.shape[1]
            other = DataFile(
                test,
                data_options,
                named=rows.feature_names,
                n_features=width,
                beyond="drop",
                sparse=sparse.issparse(rows.data),
                **raw,
            )
            code = code and [*code, *other.code("test", "_test")]
            unseen = other.load(work)
            options["test"] = (auto_option.plain(unseen.data), unseen.target, unseen.qid)
            options["test_document_names"] = _documents(unseen)
        with reader.named_errors():
            made = write_report(
                output,
                rows.data,
                rows.target,
                rows.qid,
                document_names=_documents(rows),
                title=title,
                estimator=estimator,
                sample_weight=rows.sample_weight,
                load_code="\n".join([_IMPORT, *code]) if code else None,
                progress=work.now,
                **options,
            )
    error = made.error
    about = {
        "pairwise_error": error.value,
        "pairwise_error_low": error.low,
        "pairwise_error_high": error.high,
        "method": made.method,
        "alpha": made.alpha,
        "scale": None if auto_options.auto else scale_of(model_options),
        "ndcg@10": None if made.ndcg is None else made.ndcg.value,
        "n_findings": len(made.findings),
        "n_bytes": made.n_bytes,
        "file": output,
    }
    ranker = made.model.steps[-1][1] if isinstance(made.model, Pipeline) else made.model
    if auto_options.auto:
        about |= {"scoring": ranker.scoring, "best_score": ranker.best_score_}
        about |= {"members": ranker.members_}
    if as_json:
        to_json(about)
        return
    alpha = ("alpha", "–" if made.alpha is None else f"{made.alpha:g}")
    facts(
        [
            ("pairwise error", f"{error.value:.4f}, {_interval(error)} ({_method(made.method)})"),
            ("held out", auto_option.nested(ranker)) if auto_options.auto else alpha,
            ("findings", f"{number(len(made.findings))} about the data and the model"),
            ("page", f"{output} ({size(made.n_bytes)})"),
        ]
    )  # fmt: skip


def _interval(error: Any) -> str:
    if error.method == "none":
        return "too few queries or rows for an interval"
    return f"{error.low:.4f} to {error.high:.4f} with 95 % confidence"


def _method(name: str) -> str:
    return "on the test data" if name == "test" else name.replace("-", " ")


def _features(rows: Any, options: DataOptions) -> list[str]:
    """Names of columns, or the feature ids of LETOR text."""
    if rows.feature_names is not None:
        return rows.feature_names
    first = 0 if options.zero_based else 1
    return [f"feature {first + column}" for column in range(rows.data.shape[1])]


def _documents(rows: Any) -> list[str] | None:
    """What LETOR text says after #, if it says something about every row."""
    return rows.comments if rows.comments and all(rows.comments) else None
