"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import click

__all__ = [
    "Alpha",
    "Alphas",
    "AutoOptions",
    "Command",
    "DataOptions",
    "ModelOptions",
    "auto_options",
    "data_options",
    "example",
    "given",
    "json_option",
    "model_file",
    "model_options",
    "predicted_data_options",
    "relevance_options",
    "run_options",
    "scored_data_options",
    "take",
]

F = TypeVar("F", bound=Callable[..., Any])

#: A file to read, "-" for stdin. Errors are reported when it is opened.
FILE = click.Path(allow_dash=True)


class Alpha(click.ParamType):
    """A number above zero, or "auto"."""

    name = "alpha"

    def get_metavar(self, *_: Any, **__: Any) -> str:
        """Return the name shown in the help."""
        return "NUMBER|auto"

    def convert(self, value: Any, param: Any, ctx: Any) -> float | str:
        """Return a float or "auto"."""
        if value == "auto":
            return value
        return _positive(self, value, param, ctx, "a number above 0, or auto")

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[Any]:
        """Offer "auto"."""
        words = [word for word in ("auto", "1.0") if word.startswith(incomplete)]
        return [click.shell_completion.CompletionItem(word) for word in words]


class Alphas(click.ParamType):
    """A grid of alphas: ``0.1,1,10``, or ``LOW:HIGH`` and ``LOW:HIGH:COUNT`` in equal ratios."""

    name = "alphas"

    def get_metavar(self, *_: Any, **__: Any) -> str:
        """Return the name shown in the help."""
        return "A,B,…|LOW:HIGH[:N]"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[float, ...]:
        """Return the alphas."""
        if isinstance(value, tuple):
            return value
        what = "numbers above 0: 0.1,1,10 or LOW:HIGH:COUNT"
        parts = str(value).split(":")
        if len(parts) == 1:
            return tuple(
                _positive(self, word, param, ctx, what) for word in str(value).split(",") if word
            ) or self.fail(f"{value!r} is not {what}", param, ctx)
        low, high = (_positive(self, word, param, ctx, what) for word in parts[:2])
        count = parts[2] if len(parts) == 3 else str(max(round(math.log2(high / low)) + 1, 2))
        if len(parts) > 3 or not count.isdigit() or not 2 <= int(count) <= 10_000 or low >= high:
            self.fail(f"{value!r} is not {what}", param, ctx)
        steps = int(count) - 1
        return tuple(low * (high / low) ** (step / steps) for step in range(steps + 1))


class Command(click.Command):
    """A command that refuses options given several times, unless they collect their values.

    Click itself takes the last value. Flags may be repeated.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        if not ctx.resilient_parsing:  # of the shell's completion
            _, _, order = self.make_parser(ctx).parse_args(list(args))
            for place, option in enumerate(order):
                if option in order[:place] and _takes_one_value(option):
                    names = " or ".join(option.opts + option.secondary_opts)
                    raise click.UsageError(f"{names} is given more than once: give it once", ctx)
        return super().parse_args(ctx, args)


def _takes_one_value(option: click.Parameter) -> bool:
    if not isinstance(option, click.Option) or option.multiple:
        return False
    return not option.is_flag or bool(option.secondary_opts)


def _positive(kind: click.ParamType, text: Any, param: Any, ctx: Any, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        kind.fail(f"{str(text)!r} is not {what}", param, ctx)
    return number


@dataclass(frozen=True)
class DataOptions:
    """Options for reading rows; see `data_options`."""

    format: str
    label: str | None
    qid_column: str | None
    one_ranking: bool
    features: tuple[str, ...]
    feature_names: tuple[str, ...]
    drop: tuple[str, ...]
    weight: str | None
    no_header: bool
    delimiter: str | None
    zero_based: bool
    missing: str | None
    unlabelled: str
    group: str | None
    given: frozenset[str]


@dataclass(frozen=True)
class ModelOptions:
    """Options of the model; see `model_options`."""

    kernel: str
    gamma: float | None
    degree: float
    coef0: float
    cost: str
    ties: str
    query_weighting: str
    solver: str
    n_components: int | None
    scale: str | None
    max_iter: int | None
    tol: float | None
    seed: int
    given: frozenset[str]


@dataclass(frozen=True)
class AutoOptions:
    """Options of `AutoRanker`; see `auto_options`."""

    auto: bool
    effort: str
    given: frozenset[str]


def given() -> frozenset[str]:
    """Return the names of the parameters given on the command line."""
    context = click.get_current_context()
    typed = click.core.ParameterSource.COMMANDLINE
    return frozenset(name for name in context.params if context.get_parameter_source(name) is typed)


def take(kind: Any, values: dict[str, Any]) -> Any:
    """Move the values that a class of options has from a command's arguments into it."""
    names = [field.name for field in fields(kind) if field.name != "given"]
    return kind(**{name: values.pop(name) for name in names}, given=given())


def _all(function: F, options: list[Callable[[F], F]]) -> F:
    for option in reversed(options):
        function = option(function)
    return function


def scored_data_options(function: F) -> F:
    """Options for reading rows that a model scores; those of weights are hidden."""
    return data_options(function, weights=False)


def predicted_data_options(function: F) -> F:
    """Options for ``predict``, where ``--format`` is the format of the output."""
    return data_options(function, weights=False, formats=("--input-format",))


def data_options(
    function: F, weights: bool = True, formats: tuple[str, ...] = ("--format", "--input-format")
) -> F:
    """Options for reading a file of rows."""
    return _all(
        function,
        [
            click.option(*formats, "format",
                         type=click.Choice(["auto", "letor", "csv", "parquet"]), default="auto",
                         help="Format of the file; detected from its content by default."),
            click.option("--label", "--target", "label", metavar="COLUMN",
                         help="Column of the labels (CSV, Parquet); by default the one called "
                         "label, relevance, rel, grade, target or y."),
            click.option("--qid-column", "--qid", "qid_column", metavar="COLUMN",
                         help="Column of the query ids (CSV, Parquet); by default the one called "
                         "qid, query_id, queryid or query."),
            click.option("--one-ranking", is_flag=True,
                         help="All rows are one ranking; query ids, if any, are ignored."),
            click.option("--features", metavar="A,B,…|@FILE", multiple=True,
                         help="Columns of the features (CSV, Parquet), or a file with one on each "
                         "line; by default all others. Names with commas in double quotes. May be "
                         "given several times."),
            click.option("--feature-names", metavar="A,B,…|@FILE", multiple=True,
                         help="Names for the features of LETOR text, in the order of their ids, or "
                         "a file with one on each line. They become part of the model.",
                         hidden=not weights),
            click.option("--drop", metavar="COLUMN", multiple=True,
                         help="Column that is not a feature, such as text or an id (CSV, Parquet): "
                         "A,B or given several times."),
            click.option("--weight", "--sample-weight", "weight", metavar="COLUMN",
                         help="Column of row weights (CSV, Parquet), "
                         "used in training only.", hidden=not weights),
            click.option("--no-header", is_flag=True,
                         help="The CSV file has no header; columns are named 1, 2, …"),
            click.option("--delimiter", metavar="CHAR",
                         help="Delimiter of a CSV file; detected by default."),
            click.option("--zero-based", is_flag=True, help="Feature ids of LETOR text begin at 0, "
                         "not 1."),
            click.option("--group", type=FILE, metavar="FILE",
                         help="Sizes of consecutive queries, one on each line, for LETOR text "
                         "without query ids; by default the file DATA.query or DATA.group, if "
                         "there is one."),
            click.option("--missing", type=click.Choice(["error", "mean", "zero"]),
                         help="How to impute missing features (empty cells, NA, NaN, NULL): by the "
                         "mean of the feature, by 0, or not at all (error, the default). The "
                         "imputation is part of the model and is applied by predict and evaluate."),
            click.option("--unlabelled", type=click.Choice(["error", "drop"]), default="error",
                         show_default=True, help="Rows without a label: stop, or leave them out."),
        ],
    )  # fmt: skip


def model_options(function: F) -> F:
    """Options of the model."""
    return _all(
        function,
        [
            click.option("--kernel", default="linear", show_default=True, metavar="NAME",
                         help="linear, rbf, poly, sigmoid, cosine, laplacian, …"),
            click.option("--gamma", type=float, help="Of rbf, poly, sigmoid, laplacian and chi2; "
                         "by default 1/n_features."),
            click.option("--degree", type=float, default=3, show_default=True,
                         help="Degree of the polynomial kernel."),
            click.option("--coef0", type=float, default=1, show_default=True,
                         help="Of poly and sigmoid."),
            click.option("--cost", type=click.Choice(["magnitude", "unit", "relative"]),
                         default="magnitude", show_default=True,
                         help="Target of a pair: the difference of its labels, or 1."),
            click.option("--ties", type=click.Choice(["keep", "drop"]), default="keep",
                         show_default=True,
                         help="Whether rows with equal labels should get equal scores."),
            click.option("--query-weighting", type=click.Choice(["pair", "size", "query"]),
                         default="pair", show_default=True,
                         help="Weight of each pair of a query with n rows: 1, 1/n, or 1/pairs."),
            click.option("--scale",
                         type=click.Choice(["none", "standard", "minmax", "maxabs", "query-minmax",
                                            "query-standard", "query-maxabs"]),
                         help="Scale the features, over all rows or within each query; standard by "
                         "default (sparse features are not centred). The scaling becomes part of "
                         "the model. It is learned from the features of all rows, including "
                         "held-out rows, and never from labels."),
            click.option("--solver", default="auto", show_default=True,
                         type=click.Choice(["auto", "primal", "dual", "nystroem", "cg"])),
            click.option("--basis", "n_components", type=click.IntRange(1, 2**31),
                         metavar="N",
                         help="Nyström approximation with N random rows as basis."),
            click.option("--max-iter", type=click.IntRange(1), metavar="N",
                         help="Maximum number of iterations of --solver cg and --loss hinge."),
            click.option("--tol", type=float, help="Tolerance of --solver cg and --loss hinge."),
            click.option("--random-state", "seed", type=int, default=0, show_default=True,
                         help="Seed of random folds and bases."),
        ],
    )  # fmt: skip


def relevance_options(function: F) -> F:
    """Options that define relevance and gains."""
    return _all(
        function,
        [
            click.option("--relevant", "--relevance-threshold", "threshold", type=float,
                         default=1.0, show_default=True, metavar="LABEL",
                         help="Smallest label that counts as relevant for MAP, MRR, precision and "
                         "recall."),
            click.option("--gain", type=click.Choice(["exponential", "linear"]),
                         default="exponential", show_default=True,
                         help="Of NDCG: 2^label - 1, or the label, as in trec_eval."),
            click.option("--max-grade", type=float, default=4.0, show_default=True,
                         metavar="LABEL", help="Of ERR: the highest grade of the scale."),
            click.option("--undefined", type=click.Choice(["0", "1", "skip"]), default="skip",
                         show_default=True, help="NDCG, MAP, … of a query without a relevant row; "
                         "by default it is left out of the mean. trec_eval: 0."),
        ],
    )  # fmt: skip


def run_options(function: F) -> F:
    """Options for comparing runs with judgements."""
    return _all(
        function,
        [
            click.option("--qrels", type=FILE, metavar="FILE", help="Judgements of TREC: query "
                         "iteration id grade."),
            click.option("--ties", type=click.Choice(["expected", "rank", "id"]),
                         default="expected", show_default=True,
                         help="Equal scores of a run: the mean over all orders, by rank, or the "
                         "last id first, as in trec_eval."),
            click.option("--missing-queries", type=click.Choice(["zero", "skip"]),
                         default="zero", show_default=True,
                         help="Judged queries that are not in a run."),
        ],
    )  # fmt: skip


def auto_options(function: F) -> F:
    """``--auto`` and what goes with it."""
    return _all(
        function,
        [
            click.option("--auto", is_flag=True,
                         help="An average of rankers on several views of the raw table, chosen by "
                         "exact cross-validation: AutoRanker, the ranker to start with. It takes "
                         "text, categories and missing values as they are."),
            click.option("--effort", type=click.Choice(["quick", "normal", "thorough"]),
                         default="normal", show_default=True,
                         help="With --auto: how many views and losses are tried."),
        ],
    )  # fmt: skip


def json_option(function: F) -> F:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(function)


def model_file(function: F) -> F:
    """``-m``: a model to use."""
    return click.option(
        "-m", "--model", required=True, type=FILE, metavar="FILE", help="Model made by rankrls fit."
    )(function)


def example(text: str) -> str:
    r"""Help that keeps its lines: click leaves paragraphs after ``\b`` alone."""
    return "\n\n".join("\b\n" + part for part in text.strip().split("\n\n"))
