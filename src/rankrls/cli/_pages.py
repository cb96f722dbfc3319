"""``rankrls report`` and ``rankrls leaderboard``: pages."""

from __future__ import annotations

from typing import Any

from scipy import sparse

from rankrls._frames import RawTable
from rankrls._resources import REPORT_VECTORS, require_features
from rankrls.cli._click_log import click_rows
from rankrls.cli._files import DataFile, check_output, names_from
from rankrls.cli._output import facts, number, require_stdout, say, size, table, to_json, working
from rankrls.cli._pipelines import last_step, make_ranker, scale_of, with_steps
from rankrls.cli._training import RAW, nested, suit_labels
from rankrls.leaderboards import leaderboard as rated
from rankrls.report import write_leaderboard, write_report

__all__ = ["leaderboard", "report"]


def report(o: Any) -> None:
    """Write a page about a file and its ranker."""
    if o.output == "-":
        raise ValueError("the page is written to a file: name it by -o")
    if "-" in o.data and "-" in o.test:
        raise ValueError("stdin cannot be both the training data and the test data")
    check_output(o.output, *o.data, *o.test)
    estimator = make_ranker(o)
    if o.clicks is not None and o.test:
        raise ValueError("--test is for rows with labels: leave it out with --clicks")
    with click_rows(o) as (o, examination):
        made = _written(o, estimator, examination)
    error, ranker = made.error, last_step(made.model)
    if o.json:
        to_json({
            "pairwise_error": error.value,
            "pairwise_error_low": error.low,
            "pairwise_error_high": error.high,
            "method": made.method,
            "alpha": made.alpha,
            "scale": None if o.auto else scale_of(o),
            "ndcg@10": None if made.ndcg is None else made.ndcg.value,
            "n_findings": len(made.findings),
            "n_bytes": made.n_bytes,
            "file": o.output,
            **({"scoring": ranker.scoring, "best_score": ranker.best_score_,
                "members": ranker.members_} if o.auto else {}),
        })  # fmt: skip
        return
    interval = "too few queries or rows for an interval"
    if error.method != "none":
        interval = f"{error.low:.4f} to {error.high:.4f} with 95 % confidence"
    method = "on the test data" if made.method == "test" else made.method.replace("-", " ")
    alpha = ("alpha", "–" if made.alpha is None else f"{made.alpha:g}")
    facts(
        [
            ("pairwise error", f"{error.value:.4f}, {interval} ({method})"),
            ("held out", nested(ranker)) if o.auto else alpha,
            ("findings", f"{number(len(made.findings))} about the data and the model"),
            ("page", f"{o.output} ({size(made.n_bytes)})"),
        ]
    )


def _written(o: Any, estimator: Any, examination: Any) -> Any:
    """Read the rows and write the page."""
    reader = DataFile(o.data, o, **(RAW if o.auto else {}))
    with working(f"Reading {reader.name}") as work:
        rows, first = reader.load(), 0 if o.zero_based else 1
        n_features = rows.data.shape[1]
        require_features(n_features, copies=REPORT_VECTORS)  # before they get names
        names = rows.feature_names or [f"feature {first + j}" for j in range(n_features)]
        options: dict[str, Any] = {"feature_names": names, "document_names": _documents(rows)}
        how = {"n_features": n_features, "beyond": "drop", "sparse": sparse.issparse(rows.data)}
        if o.auto:
            suit_labels(estimator, o, rows.target)
            text = isinstance(rows.data, RawTable)
            how |= RAW | {"text": [rows.data.columns[j] for j in rows.data.text] if text else None}
        else:
            steps = dict(getattr(with_steps(estimator, o, rows), "steps", ()))
            options |= {"imputer": steps.get("impute"), "scaler": steps.get("scale")}
        code = reader.code() if examination is None else []
        if o.test:
            other = DataFile(o.test, o, named=rows.feature_names, **how)
            code = code and [*code, *other.code("test", "_test")]
            unseen = other.load()
            options["test"] = (unseen.data, unseen.target, unseen.qid)
            options["test_document_names"] = _documents(unseen)
        if code:
            code = ["from rankrls.datasets import load_ranking", *code]
        with reader.named_errors():
            return write_report(
                o.output,
                rows.data,
                rows.target,
                rows.qid,
                title=o.title,
                estimator=estimator,
                sample_weight=rows.sample_weight,
                load_code="\n".join(code) or None,
                progress=work,
                examination=examination,
                **options,
            )


def _documents(rows: Any) -> list[str] | None:
    """What LETOR text says after #, if it says something about every row."""
    return rows.comments if rows.comments and all(rows.comments) else None


def leaderboard(o: Any) -> None:
    """Print ratings, and write a page if asked for."""
    require_stdout()
    if o.output is not None:
        check_output(o.output, o.judgements)
    with working(f"Reading {o.judgements}") as work:
        board = rated(
            o.judgements,
            controls=names_from(o.controls),
            groups=None if o.groups == "none" else o.groups,
            trusted=names_from(o.trusted),
            confidence=o.confidence,
            random_state=o.random_state,
            pair_weight=o.sample_weight,
        )
        n_bytes = 0
        if o.output is not None:
            work(f"Writing {o.output}")
            n_bytes = write_leaderboard(o.output, board)
    scale = "elo" if o.elo else "log-odds"
    columns, effects = board.table(scale), board.controls_
    if o.json:
        found = {"scale": scale, "confidence": o.confidence, "weight_of_others": board.weight_}
        to_json(found | {"leaderboard": columns, "controls": effects, "file": o.output})
        return
    rating = f"{{:.{0 if o.elo else 3}f}}".format
    cells = [
        map(str, columns["item"]),
        *(map(rating, columns[key]) for key in ("rating", "low", "high")),
        map("{}-{}".format, columns["rank_low"], columns["rank_high"]),
        *(map("{:.3f}".format, columns[key]) for key in ("win_rate", "p_best")),
        map(number, columns["n_judgements"].tolist()),
    ]
    head = ["item", "rating", "low", "high", "ranks", "win rate", "P(best)", "judgements"]
    table(head, list(zip(*cells, strict=True)))
    if len(effects["name"]):
        say()
        keys = ("effect", "low", "high")
        cells = [map(str, effects["name"]), *(map("{:.4g}".format, effects[key]) for key in keys)]
        table(["control", *keys], list(zip(*cells, strict=True)))
    what = number(board.n_judgements_)
    if board.n_groups_ is not None:
        what += f" in {number(board.n_groups_)} groups"
    lines = [("judgements", what), ("confidence", f"{o.confidence:.0%}, ranks simultaneously")]
    if board.weight_ is not None:
        lines.append(("weight", f"{board.weight_:g} of judgements that are not trusted"))
    if o.output is not None:
        lines.append(("page", f"{o.output} ({size(n_bytes)})"))
    say()
    facts(lines)
