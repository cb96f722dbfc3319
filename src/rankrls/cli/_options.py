"""All options of the command line, in one table.

A row has the flags, the help, how the value is read, and when the option has a use: whoever gives
an option expects it to be used, so `check` refuses it otherwise. The first flag is the name of the
parameter in Python.
"""

from __future__ import annotations

import math
import os
from types import SimpleNamespace
from typing import Any

import click

__all__ = ["FILE", "OPTIONS", "UNSET", "check", "flag", "made"]

#: A file to read, "-" for stdin. Errors are reported when it is opened.
FILE = click.Path(allow_dash=True)

CHOOSES = "chooses kernels, losses and alphas itself"
PREPARES = "scales features and fills in missing ones itself"


def _row(help: str, *needs: Any, auto: str = "", kind: str = "", flags: str = "", also: str = "",
         **click: Any) -> SimpleNamespace:  # fmt: skip
    """A row of the table; its flag is its name, unless ``flags`` are given.

    ``needs`` are (wrong, text), a function of all options and an error. ``auto`` says what
    ``--auto`` does instead, ``kind`` is the only kind of file it is for, and ``click`` has further
    arguments of ``click.Option``.
    """
    click = {"show_default": click.get("default") is not None} | click
    return SimpleNamespace(help=help, needs=needs, auto=auto, kind=kind, flags=flags, also=also,
                           click=click)  # fmt: skip


# ---------------------------------------------------------------------- how values are read


def _positive(text: Any, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise click.BadParameter(f"{str(text)!r} is not {what}")
    return number


def _alpha(text: Any) -> float | str:
    return text if text == "auto" else _positive(text, "a number above 0, or auto")


def _alphas(text: Any) -> tuple[float, ...]:
    """``0.1,1,10``, or ``LOW:HIGH:COUNT`` in equal ratios."""
    what = "numbers above 0: 0.1,1,10 or LOW:HIGH:COUNT"
    low, *rest = str(text).split(":")
    if not rest:
        return tuple(_positive(word, what) for word in low.split(","))
    high, count = rest if len(rest) == 2 else (low, "")
    first, last = _positive(low, what), _positive(high, what)
    if not (first < last and count.isdecimal() and 2 <= int(count) <= 10_000):
        raise click.BadParameter(f"{text!r} is not {what}")
    return tuple(first * (last / first) ** (k / (int(count) - 1)) for k in range(int(count)))


def _ranks(text: Any) -> tuple[int, int]:
    """Two places of a ranked list, ``1,3``."""
    first, _, second = str(text).partition(",")
    if not (first.isdecimal() and second.isdecimal() and min(int(first), int(second)) > 0):
        raise click.BadParameter(f"{text!r} is not two places from 1, such as 1,2")
    return int(first), int(second)


def _delimiter(text: Any) -> str:
    return {"tab": "\t", "\\t": "\t"}.get(text, text)


_whole = click.IntRange(1, 2**31)
_whole.name = "whole number"  # click says 'integer range'
_seed = click.IntRange(0, 2**32 - 1)
_seed.name = "whole number"
_share = click.FloatRange(0, 1, min_open=True, max_open=True)
_share.name = "number"


def _one_of(words: str) -> click.Choice:
    return click.Choice(words.split())


# ---------------------------------------------------------------------- when they have a use


def _hinge(o: Any) -> bool:
    return bool(o.loss == "hinge")


def _fixed(o: Any) -> bool:
    """Whether alpha is not chosen."""
    return o.alpha not in (None, "auto") or _hinge(o)


def _for_kernels(*names: str) -> tuple[Any, str]:
    text = f"is for --kernel {' or '.join(names)}; the kernel is {{o.kernel}}"
    return lambda o: o.kernel.removesuffix("nomial") not in names, text


_SQUARED = _hinge, "is for --loss squared: the hinge loss has no such choice"
_ITERATES = (lambda o: not _hinge(o) and o.solver != "cg",
             "is for solvers that iterate: add --solver cg, or leave it out")  # fmt: skip
_SEARCH = _fixed, "is for --alpha auto, which cross-validates"
_RUN = lambda o: o.qrels is None, "is for runs with --qrels"
_LISTS = lambda o: o.format == "scores", "is for ranked lists: --format trec, csv or json"
_LOG = lambda o: o.clicks is None, "is for click logs: add --clicks"


# ---------------------------------------------------------------------- the table

COLUMN: dict[str, Any] = {"metavar": "COLUMN"}
NAMES: dict[str, Any] = {"metavar": "A,B,…|@FILE", "multiple": True}
PATH: dict[str, Any] = {"type": FILE, "metavar": "FILE"}
SWITCH: dict[str, Any] = {"is_flag": True}
SEED: dict[str, Any] = {"type": _seed, "default": 0}

#: Rows by parameter; ``command.parameter`` where commands differ.
OPTIONS: dict[str, SimpleNamespace] = {
    # ------------------------------------------------------------------ rows of files
    "format": _row("Format of the file; detected by default.",
        type=_one_of("auto letor csv parquet")),
    "target": _row("Column of the labels; by default label, relevance, rel, grade, target or y.",
        also="--label", **COLUMN),
    "qid": _row("Column of the query ids; by default qid, query_id, queryid or query.",
        also="--qid-column", **COLUMN),
    "one_ranking": _row("All rows are one ranking; query ids are ignored.",
        (lambda o: bool(o.group or o.qid), "and --group or --qid exclude each "
        "other"), **SWITCH),
    "features": _row("Columns of the features, or @ a file with one on each line; by default all "
        "others.", (lambda o: o.scores is not None,
        "is for a model: --scores needs no feature"), **NAMES),
    "feature_names": _row("Names for the features of LETOR text, which become part of the model.",
        kind="letor", **NAMES),
    "drop": _row("Columns that are no features: A,B or given several times.", multiple=True,
        **COLUMN),
    "sample_weight": _row("Column of row weights, used in training only.", also="--weight",
        **COLUMN),
    "no_header": _row("The CSV file has no header; columns are named 1, 2, …", kind="csv",
        **SWITCH),
    "delimiter": _row("Delimiter of a CSV file; detected by default.", kind="csv", type=_delimiter,
        metavar="CHAR"),
    "zero_based": _row("Feature ids of LETOR text begin at 0, not 1.", kind="letor", **SWITCH),
    "group": _row("Sizes of consecutive queries, for LETOR text without query ids; by default "
        "DATA.query or DATA.group.", kind="letor", **PATH),
    "missing": _row("Missing features: an error (default), or filled in by their mean or by 0, as "
        "part of the model.", auto=PREPARES, type=_one_of("error mean zero")),
    "unlabelled": _row("Rows without a label: stop, or leave them out.", type=_one_of("error drop"),
        default="error"),
    # ------------------------------------------------------------------ the model
    "kernel": _row("linear, rbf, poly, sigmoid, cosine, laplacian, …", auto=CHOOSES,
        default="linear", metavar="NAME"),
    "gamma": _row("Width of the kernel; by default 1/n_features.",
        _for_kernels("rbf", "poly", "sigmoid", "laplacian", "chi2"), auto=CHOOSES, type=float),
    "degree": _row("Degree of the polynomial kernel.", _for_kernels("poly"), auto=CHOOSES,
        type=float, default=3),
    "coef0": _row("Constant of the kernels poly and sigmoid.", _for_kernels("poly", "sigmoid"),
        auto=CHOOSES, type=float, default=1),
    "cost": _row("Target of a pair: the difference of its labels, or 1; relative: the difference, "
        "with errors divided by it.", _SQUARED, auto=CHOOSES,
        type=_one_of("magnitude unit relative"), default="magnitude"),
    "ties": _row("Whether rows with equal labels should get equal scores.", _SQUARED,
        (lambda o: o.ties == "keep" and o.cost != "magnitude", "keep is for --cost magnitude: "
        "--cost {o.cost} drops ties"), auto=CHOOSES, type=_one_of("keep drop"), default="keep"),
    "query_weighting": _row("Weight of each pair of a query with n rows: 1, 1/n, or 1/pairs.",
        auto=CHOOSES, type=_one_of("pair size query"), default="pair"),
    "scale": _row("Scale the features, over all rows or within each query, as part of the model; "
        "standard by default.", (lambda o: o.kernel == "precomputed" and o.scale != "none",
        "is for features, not for kernel values (--kernel precomputed)"), auto=PREPARES,
        type=_one_of("none standard minmax maxabs query-minmax query-standard query-maxabs")),
    "solver": _row("Algorithm of the fit.", auto=CHOOSES,
        type=_one_of("auto primal dual nystroem cg"), default="auto"),
    "basis": _row("Nyström approximation with N random rows as basis.",
        (lambda o: o.solver not in ("auto", "nystroem"), "is for --solver nystroem; got --solver "
        "{o.solver}"), auto=CHOOSES, type=_whole, metavar="N"),
    "max_iter": _row("Maximum number of iterations of --solver cg and --loss hinge.", _ITERATES,
        auto=CHOOSES, type=_whole, metavar="N"),
    "tol": _row("Tolerance of --solver cg and --loss hinge.", _ITERATES, auto=CHOOSES, type=float),
    "random_state": _row("Seed of all that is random.", **SEED),
    "auto": _row("AutoRanker, the ranker to start with: an average of rankers, chosen by exact "
        "cross-validation. It takes text, categories and missing values as they are.", **SWITCH),
    "effort": _row("With --auto: how many rankers are tried.", (lambda o: not o.auto,
        "is for --auto: add it, or leave --effort out"), type=_one_of("quick normal thorough"),
        default="normal"),
    # ------------------------------------------------------------------ fit, cv, report
    "fit.model": _row("Model to write.", also="-m", required=True, **PATH),
    "alpha": _row("Regularisation strength; by default auto, chosen by exact cross-validation, or "
        "1 for rows read in batches and --loss hinge.", (lambda o: o.alpha == "auto" and _hinge(o),
        "auto is for --loss squared, which can be cross-validated exactly"), auto=CHOOSES,
        type=_alpha, metavar="NUMBER|auto"),
    "alphas": _row("Grid of alphas; by default 2^-15 … 2^15, extended if the best is at an end.",
        (_fixed, "is what --alpha auto chooses from: add --alpha auto"), auto=CHOOSES,
        type=_alphas, metavar="A,B,…|LOW:HIGH:N"),
    "cv": _row("leave-query-out, leave-pair-out, or a number of folds of whole queries.", _SEARCH,
        auto="holds out whole queries, one by one", default="auto", metavar="HOW|K"),
    "scoring": _row("Metric by which alpha is chosen; with --auto ndcg@10 is the default.",
        _SEARCH, default="pairwise_accuracy", metavar="METRIC"),
    "loss": _row("squared: RankRLS; hinge: RankSVM.", auto=CHOOSES, type=_one_of("squared hinge"),
        default="squared"),
    "c": _row("SVMrank's C instead of alpha, with --loss hinge: alpha = queries/(2 C).",
        (lambda o: not _hinge(o) or o.c == "auto", "is SVMrank's C, for --loss hinge; for RankRLS "
        "give --alpha"), (lambda o: o.alpha is not None, "and --alpha exclude each other"),
        auto=CHOOSES, flags="-c", type=_alpha, metavar="C"),
    "stream": _row("Read the file in batches, in constant memory, or at once; by default large "
        "files are streamed where that is exact.", auto="reads all rows at once",
        flags="--stream/--in-memory", default=None),
    "clicks": _row("Column of clicks of a log; labels and weights are computed from clicks and "
        "positions.", (lambda o: o.position is None, "needs --position, the place of each row"),
        (lambda o: bool(o.target or o.sample_weight), "gives labels and weights: leave out "
        "--target and --sample-weight"), (lambda o: bool(o.stream),
        "is for logs read at once"), **COLUMN),
    "position": _row("Column of the positions of --clicks, 1 at the top.", _LOG, **COLUMN),
    "item": _row("Column of the items of --clicks; by default item, doc, product or id, also with "
        "_id.", _LOG, **COLUMN),
    "impressions": _row("Column of how often a row of --clicks was shown; by default once.", _LOG,
        **COLUMN),
    "plot": _row("Draw the scores: .png, .svg or .pdf.", auto="has no path of alphas to draw",
        **PATH),
    "test": _row("Rows to evaluate on; by default the training rows are held out, by query.",
        multiple=True, **PATH),
    "report.output": _row("Page to write.", also="-o", default="report.html", **PATH),
    "title": _row("Title of the page."),
    # ------------------------------------------------------------------ predict, evaluate, compare
    "model": _row("Model made by rankrls fit.", also="-m", required=True, **PATH),
    "predict.output": _row("Scores, one on each line; stdout by default.", also="-o", **PATH),
    "predict.format": _row("Scores in the order of the rows (default), or ranked lists as a TREC "
        "run, CSV or lines of JSON.", type=_one_of("scores trec csv json")),
    "top": _row("Write the first K rows of each ranked list; as CSV by default.", _LISTS,
        type=_whole, metavar="K"),
    "doc_id": _row("Column of the ids in ranked lists, or the word before them in LETOR comments; "
        "by default rows are numbered from 0.", _LISTS, **COLUMN),
    "duplicates": _row("An id that comes twice in a query: keep the better place, keep both, or "
        "stop; by default both, with a warning (TREC runs are refused).",
        (lambda o: o.doc_id is None, "is about ids: name their column by --doc-id"),
        type=_one_of("first keep error")),
    "evaluate.model": _row("Model made by rankrls fit.", also="-m", **PATH),
    "scores": _row("Scores to evaluate instead of a model's: one number on each line.", **PATH),
    "run": _row("TREC run to evaluate against --qrels, instead of DATA.", **PATH),
    "metrics": _row("ndcg, map, mrr, precision, recall, err, with a cut-off if wanted (ndcg@10), "
        "pairwise_accuracy.", metavar="NAME,…", multiple=True),
    "relevance_threshold": _row("Smallest label that counts as relevant for MAP, MRR, precision "
        "and recall.", also="--relevant", type=float, default=1.0, metavar="LABEL"),
    "gain": _row("Gain of a label in NDCG: 2^label - 1, or the label, as in trec_eval.",
        type=_one_of("exponential linear"), default="exponential"),
    "max_grade": _row("Highest grade of the scale, for ERR.", type=float, default=4.0,
        metavar="LABEL"),
    "undefined": _row("Metrics of a query without a relevant row; skip leaves it out of the mean.",
        type=_one_of("0 1 skip"), default="skip"),
    "qrels": _row("Judgements of TREC: query iteration id grade.", **PATH),
    "evaluate.ties": _row("Equal scores of a run: the mean over all orders, by rank, or the last "
        "id first, as in trec_eval.", _RUN, type=_one_of("expected rank id"), default="expected"),
    "missing_queries": _row("Judged queries that are not in a run.", _RUN,
        type=_one_of("zero skip"), default="zero"),
    "per_query": _row("One line for each query.", **SWITCH),
    "data": _row("Rows with labels: A and B are models, or files of scores.", multiple=True,
        **PATH),
    "metric": _row("As in rankrls evaluate --metrics.", default="ndcg@10", metavar="NAME"),
    "method": _row("Statistical test.", type=_one_of("permutation wilcoxon t"),
        default="permutation"),
    "confidence_level": _row("Confidence level of the interval.", type=_share, default=0.95,
        metavar="P"),
    # ------------------------------------------------------------------ update
    "forget": _row("Queries to remove from the model, with the values that were added.",
        multiple=True, **PATH),
    "update.output": _row("File to write; by default MODEL is replaced.", also="-o", **PATH),
    "check": _row("What to do if the new queries do not look like those of training.",
        type=_one_of("warn error off"), default="warn"),
    "dry_run": _row("Change and write nothing; tell what would be done.", **SWITCH),
    "backup": _row("Keep the previous version as MODEL.bak.", (lambda o: o.output is not None,
        "keeps the file that is replaced: leave out -o"), **SWITCH),
    # ------------------------------------------------------------------ export, weights, explain
    "to": _row("Target of the export.", required=True,
        type=_one_of("elasticsearch opensearch solr vespa sql onnx svmrank")),
    "export.output": _row("File to write; stdout by default, except for ONNX (use -o -).",
        also="-o", **PATH),
    "name": _row("Name of the model in Elasticsearch, OpenSearch, Solr or Vespa."),
    "names": _row("Names of the features; by default those of the training data.",
        flags="--feature-names", **NAMES),
    "store": _row("Solr: the feature store.", metavar="NAME"),
    "drop_zeros": _row("Leave out features of weight zero.", **SWITCH),
    "normalizers": _row("Elasticsearch, OpenSearch, Solr: write the scaling as normalizers of "
        "features: scores are those of predict.", **SWITCH),
    "weights.top": _row("Only the first K; all by default.", type=_whole, metavar="K"),
    "query": _row("Query of the two rows; the first of DATA by default.", metavar="NAME"),
    "ranks": _row("Places of the two rows in the ranked list.", type=_ranks, default="1,2",
        metavar="A,B"),
    # ------------------------------------------------------------------ leaderboard, split, demo
    "controls": _row("Columns of the comparison whose effects are removed, such as the difference "
        "of length; position: being shown first.", metavar="A,B,…", multiple=True),
    "groups": _row("Judge, prompt or session of a judgement; none: judgements are independent.",
        default="auto", **COLUMN),
    "leaderboard.sample_weight": _row("Column of weights, such as numbers of votes.",
        flags="--pair-weight", also="--weight", **COLUMN),
    "trusted": _row("Groups that are trusted; the weight of others is chosen by them.",
        metavar="A,B,…", multiple=True),
    "confidence": _row("Confidence level of the intervals.", type=_share, default=0.95,
        metavar="P"),
    "elo": _row("Ratings on the scale of chess, 400 points for a factor of ten of the odds.",
        **SWITCH),
    "leaderboard.output": _row("Page to write, .html.", also="-o", **PATH),
    "share": _row("Share of the queries that go to TEST.", flags="--test", type=_share, default=0.2,
        metavar="SHARE"),
    "demo.output": _row("Where the files are written.", also="-o", type=FILE,
        default="rankrls-demo", metavar="DIRECTORY"),
    "json": _row("Print one JSON object.", **SWITCH),
}  # fmt: skip


for _name, _same in (("compare.ties", "evaluate.ties"), ("explain.top", "weights.top"),
                     ("input_format", "format")):  # fmt: skip
    OPTIONS[_name] = OPTIONS[_same]


#: Values of all options; those that a command does not have stay None.
UNSET = dict.fromkeys(name.rpartition(".")[2] for name in OPTIONS)


def _row_of(command: str, name: str) -> SimpleNamespace:
    return OPTIONS.get(f"{command}.{name}") or OPTIONS[name]


def flag(command: str, name: str) -> str:
    """An option as people write it."""
    flags = _row_of(command, name).flags or f"--{name.replace('_', '-')}"
    return str(flags).replace("/", " or ")


def made(command: str, name: str) -> click.Option:
    """An option for click."""
    row = _row_of(command, name)
    flags = f"{row.flags or '--' + name.replace('_', '-')} {row.also}".split()
    return click.Option([*flags, name], help=row.help, **row.click)


def check(command: str, o: SimpleNamespace) -> None:
    """Raise for an option that has no use, and for a file among others that is given twice."""
    for files in (o.data, o.test, o.forget):
        several = files if isinstance(files, tuple) else ()
        places = [os.path.realpath(one) for one in several]
        for one, place in zip(several, places, strict=True):
            if places.count(place) > 1:
                raise ValueError(f"{one} is given twice: its rows would count double")
    rows = {name: _row_of(command, name) for name in o.given}
    for name, row in rows.items():
        if row.auto and o.auto:
            raise ValueError(f"--auto {row.auto}: leave out {flag(command, name)}, or --auto")
    for name, row in rows.items():
        for wrong, text in row.needs:
            if wrong(o):
                raise ValueError(f"{flag(command, name)} {text.format(o=o)}")
