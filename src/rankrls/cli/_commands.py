"""What can be asked for: the commands, their options and their help."""

from __future__ import annotations

from typing import Any

import click

from rankrls import __version__
from rankrls.cli._options import (
    FILE,
    Alpha,
    Alphas,
    DataOptions,
    ModelOptions,
    data_options,
    example,
    json_option,
    model_file,
    model_options,
    scored_data_options,
    take,
)

__all__ = ["cli"]

SVMRANK = """
If you know SVMrank:
  svm_rank_learn -c 3 train.dat model      rankrls fit train.dat -m model --loss hinge -c 3
  (which does not scale the features)        --scale none
  svm_rank_classify test.dat model scores  rankrls predict test.dat -m model -o scores
  its "Avg Swappedpairs Percent"           rankrls evaluate test.dat -m model
  -t 1 -d 2 / -t 2 -g 0.1                  --kernel poly --degree 2 / --kernel rbf --gamma 0.1
  -l 2 (mean over queries)                 --query-weighting query
"""

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _InOrder(click.Group):
    """Commands are listed in the order in which they are written here."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=_InOrder,
    context_settings=CONTEXT,
    invoke_without_command=True,
    epilog=example(
        """
Examples:
  rankrls fit train.dat -m model.rankrls
  rankrls predict test.dat -m model.rankrls -o scores.txt
  rankrls evaluate test.dat -m model.rankrls
  rankrls cv train.csv --label grade --qid-column session
  rankrls demo

Files: LETOR/svmlight text (label qid:1 1:0.5 2:3 …), CSV, Parquet; text may be
gzipped; - is stdin or stdout. Exit codes: 0 done, 2 bad input, 130 interrupted.
"""
        + SVMRANK
    ),
)
@click.version_option(__version__, prog_name="rankrls", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show where an error comes from (any command).")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Learn to rank by regularised least squares on preferences."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@cli.command(
    epilog=example(
        """
Examples:
  rankrls fit train.dat -m model.rankrls
  rankrls fit train.dat.gz -m model.rankrls --alpha 10 --scale none
  rankrls fit train.csv -m model.rankrls --label clicks --qid-column session
  rankrls fit train.parquet -m model.rankrls --kernel rbf --gamma 0.1 --n-components 500
  zcat part*.gz | rankrls fit - -m model.rankrls
"""
        + SVMRANK
    )
)
@click.argument("data", type=FILE)
@click.option("-m", "--model", required=True, type=FILE, metavar="FILE", help="Model to write.")
@click.option("--alpha", type=Alpha(), help="Regularisation; auto, the default: the best by exact "
              "cross-validation (see rankrls cv). 1 by default where rows are read batch by batch "
              "and with --loss hinge.")  # fmt: skip
@click.option("--alphas", type=Alphas(), help="What --alpha auto chooses from; by default "
              "2^-15 … 2^15, continued at an end where the best is there.")  # fmt: skip
@click.option("--cv", default="auto", metavar="HOW|K", help="For --alpha auto, as in rankrls cv.")
@click.option("--scoring", default="pairwise_accuracy", metavar="METRIC",
              help="For --alpha auto, as in rankrls cv.")  # fmt: skip
@click.option("--loss", type=click.Choice(["squared", "hinge"]), default="squared",
              show_default=True, help="squared: RankRLS; hinge: RankSVM.")  # fmt: skip
@click.option("-c", "c", type=Alpha(), metavar="C", help="SVMrank's C instead of alpha, with "
              "--loss hinge: alpha = queries/(2 C).")  # fmt: skip
@model_options
@data_options
@click.option("--stream/--in-memory", "stream", default=None,
              help="Read the file batch by batch, with memory that does not grow, or at once. By "
              "default large files are streamed where that is possible: no --alpha auto, linear "
              "kernel, and queries whose rows stand together.")  # fmt: skip
@click.option("--no-uncertainty", is_flag=True, help="Leave out of the file what only standard "
              "deviations and later updates in Python need.")  # fmt: skip
@json_option
def fit(**values: Any) -> None:
    """Learn a ranker from DATA and write it to a file."""
    from rankrls.cli._do_fit import fit as do

    do(take(DataOptions, values), take(ModelOptions, values), **values)


@cli.command(
    epilog=example(
        """
Examples:
  rankrls predict test.dat -m model.rankrls -o scores.txt
  cut -d' ' -f1-20 test.dat | rankrls predict - -m model.rankrls | head
"""
    )
)
@click.argument("data", type=FILE)
@model_file
@click.option("-o", "--output", type=FILE, default="-", metavar="FILE", help="Scores, one on each "
              "line, higher is better; stdout by default.")  # fmt: skip
@scored_data_options
def predict(**values: Any) -> None:
    """Score the rows of DATA.

    Labels are not needed in CSV and Parquet files. Features that the model does not know are
    ignored in LETOR text, with a warning; those that are not written are 0. Columns are
    found by their names.
    """
    from rankrls.cli._do_predict import predict as do

    do(take(DataOptions, values), **values)


@cli.command(
    epilog=example(
        """
Examples:
  rankrls evaluate test.dat -m model.rankrls
  rankrls evaluate test.dat -m model.rankrls --json | jq .pairwise_error
  rankrls evaluate test.dat --scores other.txt --per-query | sort -k2 -gr | head
"""
    )
)
@click.argument("data", type=FILE)
@click.option("-m", "--model", type=FILE, metavar="FILE", help="Model made by rankrls fit.")
@click.option("--scores", type=FILE, metavar="FILE", help="Scores to evaluate instead of a "
              "model's: one number on each line.")  # fmt: skip
@click.option("--at", "k", type=click.IntRange(1), default=10, show_default=True, metavar="K",
              help="Cut-off of NDCG and precision.")  # fmt: skip
@click.option("--relevant", "threshold", type=float, default=1.0, show_default=True,
              metavar="LABEL", help="Smallest label that counts as relevant.")  # fmt: skip
@click.option("--undefined", type=click.Choice(["0", "1", "skip"]), default="skip",
              show_default=True, help="NDCG, MAP, MRR and precision of a query without a relevant "
              "row; by default it is left out of the mean.")  # fmt: skip
@click.option("--per-query", is_flag=True, help="One line for each query.")
@scored_data_options
@json_option
def evaluate(**values: Any) -> None:
    """Compare the order that a model gives the rows of DATA with their labels.

    The pairwise error is the fraction of preferred pairs in the wrong order, tied scores counting
    half, averaged over the queries that have a pair.
    """
    from rankrls.cli._do_evaluate import evaluate as do

    do(take(DataOptions, values), **values)


@cli.command(
    epilog=example(
        """
Examples:
  rankrls cv train.dat
  rankrls cv train.dat --alphas 0.001:1000:25 --plot path.png
  rankrls cv train.dat --cv 5 --scoring ndcg@10 --scale query-standard
"""
    )
)
@click.argument("data", type=FILE)
@click.option("--alphas", type=Alphas(), help="The grid; by default 2^-15 … 2^15, continued at an "
              "end where the best is there.")  # fmt: skip
@click.option("--cv", default="auto", show_default=True, metavar="HOW|K",
              help="leave-query-out, leave-pair-out, or a number of folds of whole queries (of "
              "rows without query ids).")  # fmt: skip
@click.option("--scoring", default="pairwise_accuracy", show_default=True, metavar="METRIC",
              help="pairwise_accuracy, ndcg, ndcg@10, average_precision, …")  # fmt: skip
@click.option("--plot", type=FILE, metavar="FILE", help="Draw the scores: .png, .svg or .pdf.")
@click.option("--all", "every", is_flag=True, help="Print all alphas, not only the ends of a long "
              "grid and those around the best.")  # fmt: skip
@model_options
@data_options
@json_option
def cv(**values: Any) -> None:
    """Cross-validate a grid of alphas on DATA, exactly.

    Every held-out prediction is that of a model fitted without the held-out rows; the scaling of
    the features, which sees no labels, is that of all rows, as in fit and report. The best
    score was chosen from many, and is therefore a little optimistic.
    """
    from rankrls.cli._do_cv import cross_validate as do

    do(take(DataOptions, values), take(ModelOptions, values), **values)


TARGETS = ["elasticsearch", "opensearch", "solr", "onnx", "svmrank"]


@cli.command(
    epilog=example(
        """
Examples:
  rankrls export -m model.rankrls --to elasticsearch --name shop-1 -o model.json
  rankrls export -m model.rankrls --to solr --feature-names @names.txt
  rankrls export -m model.rankrls --to onnx -o model.onnx
"""
    )
)
@model_file
@click.option("--to", "target", required=True, type=click.Choice(TARGETS), help="For what.")
@click.option("-o", "--output", type=FILE, metavar="FILE", help="File to write; stdout by "
              "default, but for ONNX (-o - if that is meant).")  # fmt: skip
@click.option("--name", help="Elasticsearch, OpenSearch, Solr: name of the model there; rankrls by "
              "default.")  # fmt: skip
@click.option("--feature-names", metavar="A,B,…|@FILE", help="Names of the features there, or a "
              "file with one on each line; by default those of the training data.")  # fmt: skip
@click.option("--store", metavar="NAME", help="Solr: the feature store.")
@click.option("--drop-zeros", is_flag=True, help="Leave out features of weight zero.")
def export(**values: Any) -> None:
    """Write a model for a search engine, ONNX or SVMrank."""
    from rankrls.cli._do_export import export as do

    do(**values)


@cli.command(epilog=example("Example:\n  rankrls report train.dat --test test.dat -o report.html"))
@click.argument("data", type=FILE)
@click.option("--test", type=FILE, metavar="FILE", help="Rows to evaluate on; by default the "
              "training rows are held out, query by query.")  # fmt: skip
@click.option("-o", "--output", type=FILE, default="report.html", show_default=True, metavar="FILE",
              help="Page to write.")  # fmt: skip
@click.option("--alphas", type=Alphas(), help="The grid; by default 2^-15 … 2^15, continued at an "
              "end where the best is there.")  # fmt: skip
@click.option("--title", help="Of the page.")
@model_options
@data_options
@json_option
def report(**values: Any) -> None:
    """Write one page about DATA and the ranker that it gives.

    The data and what is odd in them, the path of alphas, the most important features, errors by
    query, and the worst queries. The page is one HTML file that needs no network.
    """
    from rankrls.cli._do_report import report as do

    do(take(DataOptions, values), take(ModelOptions, values), **values)


@cli.command()
@click.argument("model", type=FILE)
@json_option
def info(model: str, as_json: bool) -> None:
    """Tell what is in the file MODEL."""
    from rankrls.cli._do_info import info as do

    do(model, as_json)


@cli.command()
@click.option("-o", "--output", type=FILE, default="rankrls-demo", show_default=True,
              metavar="DIRECTORY", help="Where the files are written.")  # fmt: skip
def demo(output: str) -> None:
    """Fit, evaluate and report on generated search data."""
    from rankrls.cli._do_demo import demo as do

    do(output)


@cli.command(
    epilog=example(
        """
Once, in the shell's own start-up file:
  bash  eval "$(rankrls completion bash)"      in ~/.bashrc
  zsh   eval "$(rankrls completion zsh)"       in ~/.zshrc
  fish  rankrls completion fish | source       in ~/.config/fish/config.fish
"""
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands in a shell."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    complete = made(cli, {}, "rankrls", "_RANKRLS_COMPLETE")
    click.echo(complete.source_template % complete.source_vars())
