"""The commands: their arguments, options, help and examples, and the functions that do the work.

Functions are imported when a command is run: ``rankrls --help`` does not wait for libraries.
"""

from __future__ import annotations

import importlib
import textwrap
from types import SimpleNamespace
from typing import Any

import click

from rankrls import __version__
from rankrls.cli._options import FILE, UNSET, check, made

__all__ = ["DATA", "cli"]

#: Options of files of rows, and of what is learned from them.
DATA = ("format target qid one_ranking features feature_names drop sample_weight no_header "
        "delimiter zero_based group missing unlabelled")  # fmt: skip
SCORED = ("format target qid one_ranking features drop no_header delimiter zero_based group "
          "unlabelled")  # fmt: skip
MODEL = ("kernel gamma degree coef0 cost ties query_weighting scale solver basis max_iter tol "
         "random_state")  # fmt: skip
CLICKS = "clicks position item impressions"
RELEVANCE = "relevance_threshold gain max_grade undefined"

SVMRANK = """
If you know SVMrank:
  svm_rank_learn -c 3 train.dat model      rankrls fit train.dat -m model --loss hinge -c 3
  (which does not scale the features)        --scale none
  svm_rank_classify test.dat model scores  rankrls predict test.dat -m model -o scores
  its "Avg Swappedpairs Percent"           rankrls evaluate test.dat -m model
  -t 1 -d 2 / -t 2 -g 0.1                  --kernel poly --degree 2 / --kernel rbf --gamma 0.1
  -l 2 (mean over queries)                 --query-weighting query
"""

EXAMPLES = """
Examples:
  rankrls fit train.dat -m model.rankrls
  rankrls predict test.dat -m model.rankrls -o scores.txt
  rankrls evaluate test.dat -m model.rankrls
  rankrls cv train.csv --target grade --qid session
  rankrls demo

Files: LETOR/svmlight text (label qid:1 1:0.5 2:3 …), CSV, Parquet; text may be
compressed; - is stdin or stdout. Several files (S1.txt S2.txt) are read as one.
Options have the names of Python: what a message calls qid='q' is --qid q.
Exit codes: 0 done, 2 bad input or too little memory, 130 interrupted.

Completion, in ~/.bashrc (or zsh_source, fish_source in those of other shells):
  eval "$(_RANKRLS_COMPLETE=bash_source rankrls)"
"""


def _lines(text: str) -> str:
    r"""Help that keeps its lines: click leaves paragraphs after ``\b`` alone."""
    return "\n\n".join("\b\n" + part for part in text.strip().split("\n\n"))


class _InOrder(click.Group):
    """Commands are listed in the order in which they are written here."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=_InOrder,
    help="Learn to rank by regularised least squares on preferences.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
    epilog=_lines(EXAMPLES + SVMRANK),
)
@click.option("--debug", is_flag=True, help="Show where an error comes from (any command).")
@click.version_option(__version__, prog_name="rankrls", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """The group of all commands."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


class _Command(click.Command):
    """Refuses options given twice, of which Click takes the last, unless they collect values."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # of the shell's completion
            _, _, order = self.make_parser(ctx).parse_args(list(args))
            for place, one in enumerate(order):
                if one not in order[:place] or not isinstance(one, click.Option) or one.multiple:
                    continue
                if not one.is_flag or one.secondary_opts:
                    names = " or ".join(one.opts + one.secondary_opts)
                    raise click.UsageError(f"{names} is given more than once: give it once", ctx)
        return super().parse_args(ctx, args)


def _command(
    name: str, work: str, arguments: str, options: str, help: str, examples: str = ""
) -> None:
    """Add a command; ``work`` is module:function, ``a*`` are any arguments and ``a+`` some."""
    params: list[click.Parameter] = []
    for word in arguments.split():
        several = word.endswith(("*", "+"))
        params.append(click.Argument([word.rstrip("*+")], type=FILE, nargs=-1 if several else 1,
                                     required=not word.endswith("*")))  # fmt: skip
    params += [made(name, option) for option in options.split()]

    def call(**values: Any) -> None:
        context, typed = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
        given = [param for param in options.split()
                 if context.get_parameter_source(param) is typed]  # fmt: skip
        o = SimpleNamespace(**UNSET | values, given=given, command=name)
        check(name, o)
        module, _, function = work.partition(":")
        getattr(importlib.import_module(f"rankrls.cli.{module}"), function)(o)

    text = textwrap.dedent(help).strip()
    epilog = _lines(f"Examples:\n{examples.strip(chr(10))}") if examples else None
    cli.add_command(_Command(name, callback=call, params=params, help=text, epilog=epilog))


_command(
    "fit", "_training:fit", "data+",
    f"model alpha alphas cv scoring loss c auto effort {MODEL} {DATA} {CLICKS} stream json",
    "Learn a ranker from DATA, one or more files, and write it to a file.",
    """
  rankrls fit train.csv -m model.rankrls --auto --effort quick --target grade --qid session
  rankrls fit train.dat.gz -m model.rankrls --alpha 10 --scale none
  rankrls fit train.parquet -m model.rankrls --kernel rbf --gamma 0.1 --basis 500
  rankrls fit log.csv -m model.rankrls --clicks clicks --position position
  zcat part*.gz | rankrls fit - -m model.rankrls
""" + SVMRANK,
)  # fmt: skip

_command(
    "predict", "_scoring:predict", "data+",
    "model output format top doc_id duplicates "
    + SCORED.replace("format", "input_format").replace(" unlabelled", ""),
    """
    Score the rows of DATA, or rank them within queries.

    Columns are found by their names, and labels are not needed in CSV and Parquet files. Features
    that the model does not know are ignored in LETOR text, with a warning; absent ones are 0.
    """,
    """
  rankrls predict test.dat -m model.rankrls --format trec --top 100 -o run.txt
  rankrls predict train.csv -m model.rankrls --qid session --doc-id doc --format json --top 3
  cut -d' ' -f1-20 test.dat | rankrls predict - -m model.rankrls | head
""",
)  # fmt: skip

_command(
    "evaluate", "_scoring:evaluate", "data*",
    f"model scores run metrics {RELEVANCE} qrels ties missing_queries per_query {SCORED} json",
    """
    Compare the order that a model gives the rows of DATA with their labels.

    The pairwise error is the fraction of preferred pairs in the wrong order, tied scores counting
    half, averaged over the queries that have a pair. Intervals are of 95 % confidence, by query.
    Instead of rows and a model, a run and judgements of TREC can be given.
    """,
    """
  rankrls evaluate test.dat -m model.rankrls --json | jq .pairwise_error
  rankrls evaluate test.dat --scores other.txt --per-query | sort -k2 -gr | head
  rankrls evaluate --run run.txt --qrels qrels.txt --metrics ndcg@10,map,recall@100,err@20
""",
)  # fmt: skip

_command(
    "compare", "_scoring:compare", "a b",
    f"data qrels ties missing_queries metric method confidence_level {RELEVANCE} {SCORED} json",
    """
    Test whether A ranks better than B, by their values on the same queries.

    A and B are models or files of scores, with --data; or TREC runs, with --qrels.
    """,
    """
  rankrls compare model.rankrls other.txt --data test.dat
  rankrls compare run.txt other_run.txt --qrels qrels.txt --metric map
""",
)  # fmt: skip

_command(
    "cv", "_training:cross_validate", "data+",
    f"alphas cv scoring plot auto effort {MODEL} {DATA} json",
    """
    Cross-validate a grid of alphas on DATA, exactly.

    Every held-out prediction is that of a model fitted without the held-out rows; the scaling of
    the features, which sees no labels, is that of all rows, as in fit and report. The best score
    was chosen from many, and is therefore a little optimistic.

    With --auto: the candidates by their held-out scores, and the score of their average, nested:
    each query is scored by an average that was chosen by the other queries.
    """,
    "  rankrls cv train.dat --alphas 0.001:1000:25 --scoring ndcg@10 --plot path.png",
)  # fmt: skip

_command(
    "update", "_updating:update", "model data*",
    "forget output check dry_run backup "
    + SCORED.replace("group", "sample_weight") + " json",
    """
    Add the queries of DATA to the file MODEL, and forget others, exactly.

    The model is then that of a fit to all rows that it has, its scaling included, with the same
    alpha. For linear models and those with --basis; --missing mean, whose means new rows would
    change in old ones, cannot be updated. A query that is both forgotten and in DATA is replaced.
    """,
    """
  rankrls update model.rankrls new.parquet --forget old.parquet
  rankrls update model.rankrls monday.csv tuesday.csv -o newer.rankrls
""",
)  # fmt: skip

_command(
    "export", "_inspecting:export", "",
    "model to output name names store drop_zeros normalizers",
    "Write a model for a search engine, a database, ONNX or SVMrank.",
    """
  rankrls export -m model.rankrls --to elasticsearch --name shop-1 -o model.json
  rankrls export -m model.rankrls --to solr --feature-names @names.txt
""",
)  # fmt: skip

_command(
    "report", "_pages:report", "data+",
    f"test output alphas scoring title auto effort {MODEL} {DATA} {CLICKS} json",
    """
    Write one page about DATA and the ranker that it gives.

    Problems of the data, the path of alphas, the most important features, errors by query, and the
    worst queries. The page is one HTML file that needs no network.
    """,
    "  rankrls report part1.gz part2.gz --test test.dat --feature-names @names.txt -o report.html",
)  # fmt: skip

_command(
    "weights", "_inspecting:weights", "", "model top names json",
    """
    Print the weights of a linear model, the most important feature first.

    weight: what one unit of the column of the file adds to the score. scaled weight: what one unit
    of the scaled feature adds, such as a standard deviation. Features are sorted by the latter.
    """,
    "  rankrls weights -m model.rankrls --top 10",
)  # fmt: skip

_command(
    "explain", "_inspecting:explain", "data+",
    f"model query ranks top {SCORED.replace(' unlabelled', '')} json",
    """
    Tell why a row of DATA is ranked above another, by a model of fit --auto.

    The difference of their scores is the sum of contributions of columns, the largest first.
    """,
    "  rankrls explain train.parquet -m auto --query 3 --ranks 1,3",
)  # fmt: skip

_command(
    "leaderboard", "_pages:leaderboard", "judgements",
    "controls groups sample_weight trusted confidence elo random_state output json",
    """
    Rate items by pairwise JUDGEMENTS, with intervals and sets of ranks.

    The table has the preferred and the other item (winner, loser), or both items and the outcome
    (model_a, model_b, winner), in CSV, Parquet or JSON lines.
    """,
    "  rankrls leaderboard battles.csv --controls length,position --groups prompt -o board.html",
)  # fmt: skip

_command(
    "split", "_tables:split", "data train test", "share qid random_state",
    "Split the file DATA by query into two files of the same format, TRAIN and TEST.",
    "  rankrls split all.csv train.csv test.csv --test 0.2",
)  # fmt: skip

_command("info", "_inspecting:info", "model", "json", "Describe the contents of the file MODEL.")

_command("demo", "_pages:demo", "", "output",
         "Fit, evaluate and report on generated search data.")  # fmt: skip
