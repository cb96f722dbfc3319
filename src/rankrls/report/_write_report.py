"""``write_report``: check and analyse the data, and write the page."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline

from rankrls._atomic import is_stream
from rankrls._calls import takes_queries
from rankrls._streams import written
from rankrls._validation import check_integer
from rankrls.clicks import Examination
from rankrls.leaderboards import leaderboard
from rankrls.report._analysis import analyse
from rankrls.report._board import write_leaderboard
from rankrls.report._errors import Interval, UnitErrors
from rankrls.report._findings import Finding
from rankrls.report._heldout import AlphaPath
from rankrls.report._labels_to_check import LabelsToCheck
from rankrls.report._page import render

__all__ = ["Report", "write_report"]


@dataclass(frozen=True)
class Report:
    """Results of `write_report`.

    Attributes
    ----------
    path, n_bytes : str, int
        The page and its size.
    model : estimator
        The model fitted to all training rows; a Pipeline if features are imputed or scaled.
    alpha : float or None
        Regularisation of the model.
    error : Interval
        Estimated pairwise error on new queries, with a confidence interval.
    method : {"test", "leave-query-out", "leave-pair-out", "folds", "refits"}
        How the error was estimated.
    ndcg : Interval or None
        NDCG@10 on the same queries.
    alpha_path : AlphaPath or None
        Held-out error for each alpha.
    errors : UnitErrors
        Errors by query, or by row of one ranking.
    findings : list of Finding
        Problems, warnings and notes.
    to_check : LabelsToCheck
        Labels of the training data that disagree most with the model without them.
    seconds : float
        Run time.
    """

    path: str
    n_bytes: int
    model: Any
    alpha: float | None
    error: Interval
    method: str
    ndcg: Interval | None
    alpha_path: AlphaPath | None
    errors: UnitErrors
    findings: list[Finding]
    to_check: LabelsToCheck
    seconds: float

    def __repr__(self) -> str:
        known = self.error.method != "none"
        interval = f" [{self.error.low:.4f}, {self.error.high:.4f}]" if known else ""
        return (
            f"Report({self.path!r}, {self.n_bytes / 1000:.0f} kB: pairwise error "
            f"{self.error.value:.4f}{interval} by {self.method}, {len(self.findings)} findings)"
        )


@takes_queries
def write_report(
    path: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    qid: Any = None,
    *,
    pairs: Any = None,
    test: Any = None,
    alphas: ArrayLike | None = None,
    feature_names: Any = None,
    document_names: Any = None,
    test_document_names: Any = None,
    title: str | None = None,
    estimator: Any = None,
    sample_weight: ArrayLike | None = None,
    imputer: Any = None,
    scaler: Any = None,
    max_table_rows: int = 2000,
    examination: Examination | None = None,
    load_code: str | None = None,
    progress: Callable[[str], object] | None = None,
) -> Any:
    """Fit a ranker and write an HTML report about the data, the model and its errors.

    Parameters
    ----------
    path : str or path-like
        File to write, a self-contained HTML page; an existing file is replaced at the end.
    X : array-like, sparse matrix or data frame of shape (n_rows, n_features)
    y : array-like of shape (n_rows,)
        Labels, higher = preferred.
    qid : array-like of shape (n_rows,), optional
        Query label of each row. If None, all rows form one ranking, and the report shows errors by
        row.
    pairs : table or path, optional
        Pairwise judgements as `rankrls.leaderboard` takes them, instead of X and y: the page is
        that of `write_leaderboard`.
    test : tuple (X, y, qid), or (X, y) without qid, optional
        Test data. The report then shows the errors on these data.
    alphas : array-like, optional
        Grid of alphas; by default that of the estimator.
    feature_names : list of str of length n_features, optional
        By default the columns of a data frame, or "feature 0" ….
    document_names, test_document_names : list of str, optional
        Names of the rows of X and of test; by default "row 0" ….
    title : str, optional
    estimator : estimator, optional
        Unfitted; by default `RankRLSCV()`. A `RankRLS` keeps its alpha if no alphas are given.
        Others with ``fit(X, y, qid=…)`` and ``predict`` (a `RankSVM`, a Pipeline whose last step
        takes qid) are refitted in five folds of whole queries. An `AutoRanker` is fitted to X as it
        is, with text and missing values, and the errors are those of its held-out scores.
    sample_weight : array-like of shape (n_rows,), optional
        Row weights for training; errors are not weighted.
    imputer, scaler : transformer, optional
        Unfitted. They are fitted in this order to the features of all rows of X, without labels,
        and become part of the model. Findings describe unscaled features, weights scaled ones.
    max_table_rows : int, default=2000
        Size of the table of errors: the worst (half of it), the best (a tenth) and a random sample
        of the others. Quantiles and averages are those of all.
    examination : Examination, optional
        Examination of positions that labels were made with (`rankrls.clicks`): a section shows it.
    load_code : str, optional
        Python code that defines X, y and qid, shown before the code that reproduces the results.
    progress : callable, optional
        Called with a line of text before each step, such as ``print``.

    Returns
    -------
    Report
        The main results, and the fitted model; a `Leaderboard` with ``pairs``.

    Raises
    ------
    ValueError
        If an argument is invalid; nothing is fitted or written.

    Notes
    -----
    Without test data, each query is predicted by the model trained on all other queries, at the
    alpha that is best for these. The confidence interval is Student's over queries; it does not
    include the variation due to the training set.

    Examples
    --------
    >>> import os, tempfile
    >>> from rankrls.datasets import make_ranking
    >>> from rankrls.report import write_report
    >>> X, y, qid = make_ranking(n_queries=40, random_state=0, return_X_y_qid=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = write_report(os.path.join(folder, "report.html"), X, y, qid)
    >>> report.method
    'leave-query-out'
    >>> 0.05 < report.error.low < report.error.value < report.error.high < 0.15
    True
    """
    started = time.perf_counter()
    limit = check_integer("max_table_rows", max_table_rows, least=1)
    target = os.fspath(path)
    if not isinstance(target, str):
        raise ValueError(f"path must be a str or path-like; got {path!r}")
    for name, given in (("title", title), ("load_code", load_code)):
        if given is not None and not isinstance(given, str):
            raise ValueError(f"{name} must be a str; got {given!r}")
    folder = os.path.dirname(os.path.realpath(target))
    if not is_stream(target) and not os.path.isdir(folder):  # fail before the work
        raise FileNotFoundError(f"no such directory: {folder}")
    if pairs is not None:
        if X is not None or y is not None:
            raise ValueError("a page about judgements has no features: pass pairs without X and y")
        board = leaderboard(pairs)
        write_leaderboard(target, board, title=title)
        return board
    analysis = analyse(
        X,
        y,
        qid,
        test=test,
        alphas=alphas,
        estimator=estimator,
        imputer=imputer,
        scaler=scaler,
        progress=progress,
        feature_names=feature_names,
        document_names=document_names,
        test_document_names=test_document_names,
        sample_weight=sample_weight,
    )
    page = render(
        analysis, title=title, limit=limit, load_code=load_code, examination=examination
    ).encode("utf-8", errors="replace")
    with written(target) as file:
        file.write(page)
    steps = analysis.steps
    return Report(
        path=target,
        n_bytes=len(page),
        model=Pipeline([*steps.items(), ("rank", analysis.model)]) if steps else analysis.model,
        alpha=analysis.alpha,
        error=analysis.error,
        method=analysis.held.method if test is None else "test",
        ndcg=analysis.errors.mean_ndcg,
        alpha_path=analysis.held.path,
        errors=analysis.errors,
        findings=analysis.findings,
        to_check=analysis.to_check,
        seconds=time.perf_counter() - started,
    )
