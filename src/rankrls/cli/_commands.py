"""What can be asked for: the commands, their options and their help."""

from __future__ import annotations

from typing import Any

import click

from rankrls import __version__
from rankrls.cli._options import (
    FILE,
    Alpha,
    Alphas,
    AutoOptions,
    Command,
    DataOptions,
    ModelOptions,
    auto_options,
    data_options,
    example,
    json_option,
    model_file,
    model_options,
    predicted_data_options,
    relevance_options,
    run_options,
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

    command_class = Command

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
  rankrls weights -m model.rankrls
  rankrls demo

Files: LETOR/svmlight text (label qid:1 1:0.5 2:3 …), CSV, Parquet; text may be
compressed; - is stdin or stdout. Several files (S1.txt S2.txt) are read as one.
Exit codes: 0 done, 2 bad input, 130 interrupted.
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
  rankrls fit train.csv -m model.rankrls --auto --effort quick --label grade --qid session
  rankrls fit train.dat.gz -m model.rankrls --alpha 10 --scale none
  rankrls fit train.csv -m model.rankrls --label clicks --qid-column session
  rankrls fit train.parquet -m model.rankrls --kernel rbf --gamma 0.1 --basis 500
  rankrls fit part1.gz part2.gz -m model.rankrls
  zcat part*.gz | rankrls fit - -m model.rankrls
"""
        + SVMRANK
    )
)
@click.argument("data", type=FILE, nargs=-1, required=True)
@click.option("-m", "--model", required=True, type=FILE, metavar="FILE", help="Model to write.")
@click.option("--alpha", type=Alpha(), help="Regularisation strength. auto, the default: chosen by "
              "exact cross-validation (see rankrls cv). The default is 1 for rows read in batches "
              "and for --loss hinge.")  # fmt: skip
@click.option("--alphas", type=Alphas(), help="Grid of --alpha auto; by default "
              "2^-15 … 2^15, extended if the best alpha is at an end.")  # fmt: skip
@click.option("--cv", default="auto", metavar="HOW|K", help="For --alpha auto, as in rankrls cv.")
@click.option("--scoring", default="pairwise_accuracy", metavar="METRIC",
              help="For --alpha auto and --auto, as in rankrls cv.")  # fmt: skip
@click.option("--loss", type=click.Choice(["squared", "hinge"]), default="squared",
              show_default=True, help="squared: RankRLS; hinge: RankSVM.")  # fmt: skip
@click.option("-c", "c", type=Alpha(), metavar="C", help="SVMrank's C instead of alpha, with "
              "--loss hinge: alpha = queries/(2 C).")  # fmt: skip
@auto_options
@model_options
@data_options
@click.option("--stream/--in-memory", "stream", default=None,
              help="Read the file in batches, in constant memory, or at once. By default, large "
              "files are streamed where possible: no --alpha auto, linear kernel, rows sorted by "
              "query. --stream --alpha auto chooses alpha by folds of whole queries.")  # fmt: skip
@click.option("--no-uncertainty", is_flag=True, help="Write a smaller file, without the data that "
              "standard deviations and updates need.")  # fmt: skip
@json_option
def fit(**values: Any) -> None:
    """Learn a ranker from DATA, one or more files, and write it to a file."""
    from rankrls.cli._do_fit import fit as do

    options = [take(kind, values) for kind in (DataOptions, ModelOptions, AutoOptions)]
    do(*options, **values)


@cli.command(
    epilog=example(
        """
Examples:
  rankrls predict test.dat -m model.rankrls -o scores.txt
  rankrls predict test.dat -m model.rankrls --format trec --top 100 -o run.txt
  rankrls predict train.csv -m model.rankrls --qid session --doc-id doc --format json --top 3
  cut -d' ' -f1-20 test.dat | rankrls predict - -m model.rankrls | head
"""
    )
)
@click.argument("data", type=FILE, nargs=-1, required=True)
@model_file
@click.option("-o", "--output", type=FILE, default="-", metavar="FILE", help="Scores, one on each "
              "line, higher is better; stdout by default.")  # fmt: skip
@click.option("--format", "layout", metavar="scores|trec|csv|json",
              type=click.Choice(["scores", "trec", "csv", "json", "auto", "letor", "parquet"]),
              help="Format of the output: scores in the order of the rows (default), or the "
              "ranked list of every query as a TREC run, as CSV, or as one JSON object in each "
              "line, with query, rank, id and score.")  # fmt: skip
@click.option("--top", type=click.IntRange(1), metavar="K", help="Write the first K rows of each "
              "ranked list; as CSV by default.")  # fmt: skip
@click.option("--doc-id", metavar="COLUMN", help="Column of the ids in ranked lists; of LETOR text "
              "the word in comments before them, as in '# docid = d7'. By default rows are "
              "numbered from 0.")  # fmt: skip
@click.option("--duplicates", type=click.Choice(["first", "keep", "error"]), help="An id that "
              "comes twice in a query: keep the better place only, keep both, or stop. By default "
              "both are kept and a warning tells; a TREC run has each id once.")  # fmt: skip
@click.option("--run-name", metavar="NAME", help="Last word of the lines of a TREC run; rankrls by "
              "default.")  # fmt: skip
@predicted_data_options
def predict(**values: Any) -> None:
    """Score the rows of DATA, or rank them within queries.

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
  rankrls evaluate test.dat -m model.rankrls --metrics ndcg@5,ndcg@10,map,recall@100,err@20
  rankrls evaluate --run run.txt --qrels qrels.txt --metrics ndcg@10,map,mrr
"""
    )
)
@click.argument("data", type=FILE, nargs=-1)
@click.option("-m", "--model", type=FILE, metavar="FILE", help="Model made by rankrls fit.")
@click.option("--scores", type=FILE, metavar="FILE", help="Scores to evaluate instead of a "
              "model's: one number on each line.")  # fmt: skip
@click.option("--run", type=FILE, metavar="FILE", help="TREC run to evaluate against --qrels, "
              "instead of DATA.")  # fmt: skip
@click.option("--metrics", metavar="NAME,…", multiple=True, help="ndcg, map, mrr, precision, "
              "recall, err, each with a cut-off if wanted (ndcg@10), "
              "pairwise_accuracy.")  # fmt: skip
@click.option("--at", "k", type=click.IntRange(1), default=10, show_default=True, metavar="K",
              help="Cut-off of NDCG and precision without --metrics.")  # fmt: skip
@relevance_options
@run_options
@click.option("--per-query", is_flag=True, help="One line for each query.")
@scored_data_options
@json_option
def evaluate(**values: Any) -> None:
    """Compare the order that a model gives the rows of DATA with their labels.

    The pairwise error is the fraction of preferred pairs in the wrong order, tied scores counting
    half, averaged over the queries that have a pair. Instead of rows and a model, a run and
    judgements of TREC can be given.
    """
    from rankrls.cli._do_evaluate import evaluate as do
    from rankrls.cli._metric_options import Relevance

    do(take(DataOptions, values), take(Relevance, values), **values)


@cli.command(
    epilog=example(
        """
Examples:
  rankrls compare model.rankrls other.txt --data test.dat
  rankrls compare run.txt other_run.txt --qrels qrels.txt --metric map
"""
    )
)
@click.argument("a", type=FILE)
@click.argument("b", type=FILE)
@click.option("--data", type=FILE, metavar="FILE", multiple=True, help="Rows with labels: A and B "
              "are models, or files of scores. Several files, one option for each, are read as "
              "one.")  # fmt: skip
@run_options
@click.option("--metric", default="ndcg@10", show_default=True, metavar="NAME",
              help="As in rankrls evaluate --metrics.")  # fmt: skip
@click.option("--method", type=click.Choice(["permutation", "wilcoxon", "t"]),
              default="permutation", show_default=True, help="Statistical test.")  # fmt: skip
@click.option("--n-permutations", type=click.IntRange(1), default=9999, show_default=True,
              metavar="N", help="Number of random sign flips.")  # fmt: skip
@click.option("--confidence-level", type=click.FloatRange(0, 1, min_open=True, max_open=True),
              default=0.95, show_default=True, metavar="P",
              help="Confidence level of the interval.")  # fmt: skip
@click.option("--random-state", "seed", type=int, default=0, show_default=True,
              help="Seed of the sign flips.")  # fmt: skip
@relevance_options
@scored_data_options
@json_option
def compare(**values: Any) -> None:
    """Test whether A ranks better than B, by their values on the same queries.

    A and B are models or files of scores, with --data; or TREC runs, with --qrels.
    """
    from rankrls.cli._do_compare import compare as do
    from rankrls.cli._metric_options import Relevance

    do(take(DataOptions, values), take(Relevance, values), **values)


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
@click.argument("data", type=FILE, nargs=-1, required=True)
@click.option("--alphas", type=Alphas(), help="Grid of alphas; by default 2^-15 … 2^15, extended "
              "if the best alpha is at an end.")  # fmt: skip
@click.option("--cv", default="auto", show_default=True, metavar="HOW|K",
              help="leave-query-out, leave-pair-out, or a number of folds of whole queries (of "
              "rows without query ids).")  # fmt: skip
@click.option("--scoring", default="pairwise_accuracy", show_default=True, metavar="METRIC",
              help="pairwise_accuracy, ndcg, ndcg@10, average_precision, …; with --auto ndcg@10 is "
              "the default.")  # fmt: skip
@click.option("--plot", type=FILE, metavar="FILE", help="Draw the scores: .png, .svg or .pdf.")
@click.option("--all", "every", is_flag=True, help="Print all alphas, not only the ends of a long "
              "grid and those around the best; with --auto all candidates.")  # fmt: skip
@auto_options
@model_options
@data_options
@json_option
def cv(**values: Any) -> None:
    """Cross-validate a grid of alphas on DATA, exactly.

    Every held-out prediction is that of a model fitted without the held-out rows; the scaling of
    the features, which sees no labels, is that of all rows, as in fit and report. The best
    score was chosen from many, and is therefore a little optimistic.

    With --auto: the candidates by their held-out scores, and the score of their average, nested:
    each query is scored by an average that was chosen by the other queries, of models that were
    fitted without it.
    """
    from rankrls.cli._do_cv import cross_validate as do

    options = [take(kind, values) for kind in (DataOptions, ModelOptions, AutoOptions)]
    do(*options, **values)


@cli.command(
    epilog=example(
        """
Examples:
  rankrls update model.rankrls new.parquet --forget old.parquet
  rankrls update model.rankrls monday.csv tuesday.csv -o newer.rankrls
"""
    )
)
@click.argument("model", type=FILE)
@click.argument("data", type=FILE, nargs=-1)
@click.option("--forget", "forgotten", type=FILE, multiple=True, metavar="FILE",
              help="Queries to remove from the model, with the values that were added. May be "
              "given several times.")  # fmt: skip
@click.option("-o", "--output", type=FILE, metavar="FILE", help="File to write; by default "
              "MODEL is replaced.")  # fmt: skip
@click.option("--check", type=click.Choice(["warn", "error", "off"]), default="warn",
              show_default=True, help="What to do if the new queries do not look like those of "
              "training: features in another range, or an accuracy below the expected "
              "one.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Change and write nothing; tell what would be done.")
@click.option("--backup", is_flag=True, help="Keep the previous version as MODEL.bak.")
@data_options
@json_option
def update(**values: Any) -> None:
    """Add the queries of DATA to the file MODEL, and forget others, exactly.

    The model is then that of a fit to all rows that it has, its scaling included, with the same
    alpha. For linear models and those with --basis; --missing mean, whose means new rows would
    change in old ones, cannot be updated. A query that is both forgotten and in DATA is replaced.
    """
    from rankrls.cli._do_update import update as do

    do(take(DataOptions, values), **values)


TARGETS = ["elasticsearch", "opensearch", "solr", "vespa", "sql", "onnx", "svmrank"]


@cli.command(
    epilog=example(
        """
Examples:
  rankrls export -m model.rankrls --to elasticsearch --name shop-1 -o model.json
  rankrls export -m model.rankrls --to solr --feature-names @names.txt
  rankrls export -m model.rankrls --to sql
  rankrls export -m model.rankrls --to onnx -o model.onnx
"""
    )
)
@model_file
@click.option(
    "--to", "target", required=True, type=click.Choice(TARGETS), help="Target of the export."
)
@click.option("-o", "--output", type=FILE, metavar="FILE", help="File to write; stdout by "
              "default, except for ONNX (use -o -).")  # fmt: skip
@click.option("--name", help="Elasticsearch, OpenSearch, Solr, Vespa: name of the model there; "
              "rankrls by default.")  # fmt: skip
@click.option("--feature-names", metavar="A,B,…|@FILE", multiple=True, help="Names of the "
              "features there, or a file with one on each line; by default those of the training "
              "data.")  # fmt: skip
@click.option("--store", metavar="NAME", help="Solr: the feature store.")
@click.option("--drop-zeros", is_flag=True, help="Leave out features of weight zero.")
@click.option("--normalizers", is_flag=True, help="Elasticsearch, OpenSearch, Solr: write the "
              "scaling as normalizers of features: scores are those of predict.")  # fmt: skip
def export(**values: Any) -> None:
    """Write a model for a search engine, a database, ONNX or SVMrank."""
    from rankrls.cli._do_export import export as do

    do(**values)


@cli.command(
    epilog=example(
        """
Examples:
  rankrls report train.dat --test test.dat -o report.html
  rankrls report part1.gz part2.gz --test test.dat --feature-names @names.txt
"""
    )
)
@click.argument("data", type=FILE, nargs=-1, required=True)
@click.option("--test", type=FILE, metavar="FILE", multiple=True, help="Rows to evaluate on, also "
              "several times; by default the training rows are held out, query by "
              "query.")  # fmt: skip
@click.option("-o", "--output", type=FILE, default="report.html", show_default=True, metavar="FILE",
              help="Page to write.")  # fmt: skip
@click.option("--alphas", type=Alphas(), help="Grid of alphas; by default 2^-15 … 2^15, extended "
              "if the best alpha is at an end.")  # fmt: skip
@click.option("--scoring", default="pairwise_accuracy", show_default=True, metavar="METRIC",
              help="Metric by which alpha is chosen, as in rankrls fit.")  # fmt: skip
@click.option("--title", help="Title of the page.")
@auto_options
@model_options
@data_options
@json_option
def report(**values: Any) -> None:
    """Write one page about DATA and the ranker that it gives.

    The data and what is odd in them, the path of alphas, the most important features, errors by
    query, and the worst queries. The page is one HTML file that needs no network.
    """
    from rankrls.cli._do_report import report as do

    options = [take(kind, values) for kind in (DataOptions, ModelOptions, AutoOptions)]
    do(*options, **values)


@cli.command(epilog=example("Example:\n  rankrls weights -m model.rankrls --top 10"))
@model_file
@click.option("--top", type=click.IntRange(1), metavar="K", help="Only the first K; all by "
              "default.")  # fmt: skip
@click.option("--feature-names", metavar="A,B,…|@FILE", multiple=True, help="Names of the "
              "features, or a file with one on each line; by default those of the training "
              "data.")  # fmt: skip
@json_option
def weights(model: str, top: int | None, feature_names: tuple[str, ...], as_json: bool) -> None:
    """Print the weights of a linear model, the most important feature first.

    weight: what one unit of the column of the file adds to the score. scaled weight: what one unit
    of the feature as it was scaled for training adds, such as a standard deviation; by it features
    are sorted.
    """
    from rankrls.cli._do_weights import weights as do

    do(model, top, feature_names, as_json)


@cli.command(
    epilog=example(
        """
Examples:
  rankrls leaderboard battles.csv
  rankrls leaderboard battles.csv --controls length,position --groups prompt -o board.html
"""
    )
)
@click.argument("judgements", type=FILE)
@click.option("--controls", metavar="A,B,…", multiple=True, help="Columns of the comparison whose "
              "effects are removed, such as the difference of length; position: being shown "
              "first.")  # fmt: skip
@click.option("--groups", default="auto", show_default=True, metavar="COLUMN", help="Judge, prompt "
              "or session of a judgement; none: judgements are independent.")  # fmt: skip
@click.option("--weight", metavar="COLUMN", help="Column of weights, such as numbers of votes.")
@click.option("--trusted", metavar="A,B,…", multiple=True, help="Groups that are trusted; the "
              "weight of others is chosen by them.")  # fmt: skip
@click.option("--confidence", type=click.FloatRange(0, 1, min_open=True, max_open=True),
              default=0.95, show_default=True, metavar="P", help="Of intervals.")  # fmt: skip
@click.option("--elo", is_flag=True, help="Ratings on the scale of chess, 400 points for a factor "
              "of ten of the odds, instead of log odds.")  # fmt: skip
@click.option("--random-state", "seed", type=int, default=0, show_default=True,
              help="Seed of the draws behind sets of ranks.")  # fmt: skip
@click.option("-o", "--output", type=FILE, metavar="FILE", help="Page to write, .html.")
@json_option
def leaderboard(**values: Any) -> None:
    """Rate items by pairwise JUDGEMENTS, with intervals and sets of ranks.

    The table has the preferred and the other item (winner, loser), or both items and the outcome
    (model_a, model_b, winner), in CSV, Parquet or JSON lines.
    """
    from rankrls.cli._do_leaderboard import leaderboard as do

    do(**values)


@cli.command(epilog=example("Example:\n  rankrls split all.csv train.csv test.csv --test 0.2"))
@click.argument("data", type=FILE)
@click.argument("train", type=FILE)
@click.argument("test", type=FILE)
@click.option("--test", "share", type=click.FloatRange(0, 1, min_open=True, max_open=True),
              default=0.2, show_default=True, metavar="SHARE", help="Share of the queries that go "
              "to TEST.")  # fmt: skip
@click.option("--qid-column", "--qid", "qid_column", metavar="COLUMN", help="Column of the query "
              "ids (CSV, Parquet).")  # fmt: skip
@click.option("--random-state", "seed", type=int, default=0, show_default=True,
              help="Seed of the choice of queries.")  # fmt: skip
def split(**values: Any) -> None:
    """Split the file DATA by query into two files of the same format, TRAIN and TEST."""
    from rankrls.cli._do_split import split as do

    do(**values)


@cli.command()
@click.argument("model", type=FILE)
@json_option
def info(model: str, as_json: bool) -> None:
    """Describe the contents of the file MODEL."""
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
