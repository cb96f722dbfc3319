"""Commands about models and tables: export, weights, info, leaderboard, split."""

from __future__ import annotations

import csv
import inspect
import json
import re
from functools import partial
from typing import Any

import numpy as np

from rankrls._streams import opened
from rankrls.cli._click_log import QUERIES
from rankrls.cli._files import check_output, names_from, output_file, write_all
from rankrls.cli._output import (
    Work,
    escaped_json,
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
)

__all__ = ["export", "info", "leaderboard", "split", "weights"]

#: What matters to programs only.
MINOR = ("copy", "verbose", "n_iter_no_change", "validation_fraction", "n_samples_seen_", "tol")


def export(o: Any) -> None:
    """Write a model for another program."""
    from rankrls import export as exports
    from rankrls.cli._estimators import Scorer

    check_output(o.output or "-", o.model)
    if o.to == "onnx" and o.output is None:
        raise ValueError("an ONNX model is not text: name a file by -o (-o - for stdout)")

    def parameters(target: str) -> Any:
        return inspect.signature(getattr(exports, f"to_{target}")).parameters

    options = {
        "store": o.store,
        "drop_zeros": o.drop_zeros or None,
        "normalizers": o.normalizers or None,
        "name": o.name,
        "feature_names": names_from(o.names),
    }
    options = {option: value for option, value in options.items() if value is not None}
    for option in options:
        if option not in parameters(o.to):
            known = [one.removeprefix("to_") for one in exports.__all__ if one.startswith("to_")]
            formats = [other for other in known if option in parameters(other)]
            raise ValueError(f"--{option.replace('_', '-')} is for --to {', '.join(formats)}")
    scorer = Scorer(o.model)
    if "feature_names" in parameters(o.to) and scorer.names is None and not o.names:
        raise ValueError(
            f"the model does not know the names of its {scorer.n_features} features: give them by "
            "--feature-names a,b,c or --feature-names @file"
        )
    content: Any = getattr(exports, f"to_{o.to}")(scorer.model, **options)
    if isinstance(content, dict):
        content = escaped_json(json.dumps(content, indent=2, ensure_ascii=False))
    if isinstance(content, str):
        data = (content.rstrip("\n") + "\n").encode("utf-8")
    else:
        data = content.SerializeToString()
    with output_file(o.output or "-") as file:
        write_all(file, data)
    if o.output not in (None, "-"):
        note(f"{o.output} written")
    if "normalizers" in parameters(o.to) and not o.normalizers:
        constant = exports.linear_scores(scorer.model).constant
        if constant:
            note(f"scores of {o.to} are those of rankrls predict less {constant:.6g} "
                 "(--normalizers keeps them)")  # fmt: skip


def weights(o: Any) -> None:
    """Print the weights of the columns, the most important first."""
    from rankrls import AutoRanker
    from rankrls.cli._estimators import Scorer
    from rankrls.export import linear_scores

    require_stdout()
    scorer = Scorer(o.model)
    inner = getattr(scorer.ranker, "coef_", None)
    if inner is None:
        kind, how = "a kernel model", ""
        if isinstance(scorer.ranker, AutoRanker):
            kind, how = "an AutoRanker, the mean of several rankers,", " --auto"
        raise ValueError(
            f"{o.model}: {kind} has no weights of features; rankrls report{how} measures how "
            "important they are"
        )
    if np.ndim(inner) != 1:
        raise ValueError(f"{o.model}: the model has several outputs: look at coef_ in Python")
    n = scorer.n_features
    names = names_from(o.names) or scorer.names or [str(j) for j in range(1, n + 1)]
    if len(names) != n:
        raise ValueError(f"--feature-names: {len(names)} names for the {n} features of {o.model}")
    columns: dict[str, Any] = {}
    constant = None
    if scorer.needs_qid:
        note("the features are scaled within each query: weights are those of scaled features")
    else:
        scores = linear_scores(scorer.model, missing="ignore")
        columns["weight"], constant = scores.weights, scores.constant
    if scorer.steps and len(inner) == n:
        columns["scaled_weight"] = np.asarray(inner, dtype=np.float64)
    # The importance of a feature is its weight in scaled units.
    order = np.argsort(-np.abs(list(columns.values())[-1]), kind="stable")[: o.top]
    if o.json:
        rows = [{"feature": names[i], **{name: float(values[i]) for name, values in
                                         columns.items()}} for i in order]  # fmt: skip
        to_json({"weights": rows, "constant": constant, "n_features": n})
        return
    head = ["feature", *(name.replace("_", " ") for name in columns)]
    table(head, [[names[i], *(f"{values[i]:.6g}" for values in columns.values())] for i in order])


def info(o: Any) -> None:
    """Print what a model file says about itself, from its manifest."""
    from rankrls.io import describe_model

    require_stdout()
    about = describe_model(o.model)
    if o.json:
        to_json(about)
        return
    lines = [("type", about["type"])]
    steps = {name: part for name, part in about.get("steps", {}).items() if part is not None}
    for name, part in steps.items():
        lines.append((name, part["type"]))
        lines += [("  " + key, value) for key, value in _short(part)]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    facts([*lines, *_short(about), ("written by", versions)])
    parts = [about, *steps.values()]
    history = [event for part in parts for event in part.get("history", ())]
    if history:
        say("\nhistory (best_score_ is that of the first fit)")
        say("\n".join(f"  {event}" for event in history))
    members = about.get("summary", {}).get("members_")
    if isinstance(members, dict):
        columns = {name: values for name, values in members.items() if isinstance(values, list)}
        rows = list(zip(*columns.values(), strict=True))
        say("\ncandidates, the best first")
        table(list(columns), [list(map(str, row)) for row in rows], left=len(columns))


def _short(about: dict[str, Any]) -> list[tuple[str, str]]:
    """What people want to know; --json tells everything."""
    found = {**about.get("parameters", {}), **about.get("summary", {})}
    if about.get("feature_names"):
        found["features"] = listed(about["feature_names"])
    return [
        (name, str(value)[:100])
        for name, value in found.items()
        if isinstance(value, str | int | float)
        and value is not False
        and name not in MINOR
        and "array of shape" not in str(value)
    ]


def leaderboard(o: Any) -> None:
    """Print ratings, and write a page if asked for."""
    from rankrls.leaderboards import leaderboard as rated
    from rankrls.report import write_leaderboard

    require_stdout()
    if o.output is not None:
        check_output(o.output, o.judgements)
    with Work(f"Reading {o.judgements}") as work:
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
            work.now(f"Writing {o.output}")
            n_bytes = write_leaderboard(o.output, board)
    scale = "elo" if o.elo else "log-odds"
    columns, effects = board.table(scale), board.controls_
    if o.json:
        found = {"scale": scale, "confidence": o.confidence, "weight_of_others": board.weight_}
        to_json(found | {"leaderboard": columns, "controls": effects, "file": o.output})
        return
    digits = 0 if o.elo else 3
    rows = [
        [
            str(columns["item"][i]),
            *(f"{columns[key][i]:.{digits}f}" for key in ("rating", "low", "high")),
            f"{columns['rank_low'][i]}-{columns['rank_high'][i]}",
            f"{columns['win_rate'][i]:.3f}",
            f"{columns['p_best'][i]:.3f}",
            number(int(columns["n_judgements"][i])),
        ]
        for i in range(len(columns["item"]))
    ]
    table(["item", "rating", "low", "high", "ranks", "win rate", "P(best)", "judgements"], rows)
    if len(effects["name"]):
        say()
        keys = ("effect", "low", "high")
        cells = [[str(name), *(f"{effects[key][i]:.4g}" for key in keys)]
                 for i, name in enumerate(effects["name"])]  # fmt: skip
        table(["control", *keys], cells)
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


# ---------------------------------------------------------------------- split


def split(o: Any) -> None:
    """Write the rows of some queries to one file, and all others to another."""
    from rankrls.datasets.formats import sniff

    check_output(o.train, o.data, o.test)
    check_output(o.test, o.data, o.train)
    kind = sniff(o.data)
    qid, parts = _letor(o.data, o.qid) if kind == "letor" else _table(o.data, kind, o.qid)
    names, codes = np.unique(np.asarray(qid, dtype=str), return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"{o.data}: {queries(len(names))} cannot be split in two")
    n_test = min(max(round(o.share * len(names)), 1), len(names) - 1)
    chosen = np.random.default_rng(o.random_state).permutation(len(names))[:n_test]
    held, told = np.isin(codes, chosen), []
    for path, rows, n in ((o.train, ~held, len(names) - n_test), (o.test, held, n_test)):
        with output_file(path) as file:
            write_all(file, parts(rows))
        told.append((path, f"{number(int(rows.sum()))} rows of {queries(n)}"))
    facts(told)


def _content(path: str) -> bytes:
    with opened(path) as file:
        return b"".join(iter(partial(file.read, 1 << 20), b"")).removeprefix(b"\xef\xbb\xbf")


def _letor(path: str, qid_column: str | None) -> tuple[list[str], Any]:
    """Query of every line of LETOR text, and a function that returns some lines."""
    if qid_column is not None:
        raise ValueError("--qid is for CSV and Parquet files: LETOR text has qid:…")
    lines = _content(path).decode("utf-8").splitlines()
    rows = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    found = [re.match(r"\s*\S+\s+qid:(\S+)", line) for line in rows]
    if None in found:
        raise ValueError(f"{path}: row {found.index(None) + 1} has no qid:…, so it belongs to no "
                         "query")  # fmt: skip

    def parts(kept: Any) -> bytes:
        return "".join(rows[i] + "\n" for i in np.flatnonzero(kept)).encode("utf-8")

    return [match[1] for match in found if match is not None], parts


def _table(path: str, kind: str, qid_column: str | None) -> tuple[Any, Any]:
    """Query of every row of a table, and a function that returns some rows in its format."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    delimiter = ","
    try:
        if kind == "parquet":
            rows = pq.read_table(path)
        else:
            text = _content(path)
            head = text.partition(b"\n")[0].decode("utf-8").rstrip("\r")
            delimiter = max(",\t;|", key=head.count)
            names = next(csv.reader([head], delimiter=delimiter))
            rows = pa_csv.read_csv(
                pa.BufferReader(text),
                parse_options=pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                # Cells stay as they are written.
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string())
                ),
            )
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path}: {str(error).splitlines()[0]}") from error
    likely = (name for name in rows.column_names if name.lower() in QUERIES)
    column = qid_column or next(likely, None)
    if column not in rows.column_names:
        has = ", ".join(map(repr, rows.column_names))
        raise ValueError(f"{path}: name the column of query ids by --qid; it has {has}")

    def parts(kept: Any) -> bytes:
        sink, chosen = pa.BufferOutputStream(), rows.filter(pa.array(kept))
        if kind == "parquet":
            pq.write_table(chosen, sink)
        else:
            options = pa_csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
            pa_csv.write_csv(chosen, sink, options)
        return sink.getvalue().to_pybytes()

    return rows[column].to_pylist(), parts
