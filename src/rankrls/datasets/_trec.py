"""Runs and relevance judgements in the text formats of TREC (trec_eval, ir_measures, Anserini …).

A run has a line ``query Q0 id rank score tag`` for every retrieved document; judgements (qrels)
have a line ``query iteration id grade``. Words are separated by blanks or tabs.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._calls import warn
from rankrls._streams import PathOrFile, name_of, written
from rankrls._validation import as_text, show
from rankrls.datasets._named_tables import Place, finite_cells, numbered
from rankrls.datasets.formats import place_of, require_loadable, text_blocks
from rankrls.rankings import Qrels, RankTable

Array = NDArray[Any]

_RUN = ("query", "Q0", "id", "rank", "score", "tag")
_QRELS = ("query", "iteration", "id", "grade")

#: Memory that a line takes while a file is read, beside its characters.
_BYTES_PER_LINE = 300


def load_run(path: PathOrFile) -> RankTable:
    r"""Read a run file of TREC: a ranked list for every query.

    Parameters
    ----------
    path : str, path-like or binary file
        Lines ``query Q0 id rank score tag``, also compressed.

    Returns
    -------
    RankTable
        Queries in the order of the file; queries and ids are strings. Scores say what comes first,
        as in trec_eval (with a warning if ranks say something else), and ranks where they are
        equal.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_run
    >>> load_run(io.BytesIO(b"7 Q0 d2 1 9.5 me\n7 Q0 d1 2 3.25 me\n")).id.tolist()
    ['d2', 'd1']
    """
    queries, ids, columns, line = _read(path, _RUN)
    query, score = columns["query"], columns["score"]  # queries by number, as in the file
    order = np.lexsort((-score, columns["rank"], query))
    rises = np.flatnonzero((np.diff(query[order]) == 0) & (np.diff(score[order]) > 0))
    if len(rises):
        warn(
            f"{line(order[rises[0]])}: ranks and scores are in different orders"
            + f" (in {len(rises)} places)" * (len(rises) > 1)
            + "; scores count, as in trec_eval"
        )
    table = RankTable.from_scores(score[order], qid=query[order], ids=ids[order])
    return replace(table, query=queries[table.query])


def load_qrels(path: PathOrFile) -> Qrels:
    r"""Read relevance judgements of TREC.

    Parameters
    ----------
    path : str, path-like or binary file
        Lines ``query iteration id grade``, also compressed. The iteration is ignored.

    Returns
    -------
    Qrels
        In the order of the file. Queries and ids are strings.
    """
    queries, ids, columns, _ = _read(path, _QRELS)
    return Qrels(queries[columns["query"]], ids, columns["grade"])


def dump_run(table: RankTable, path: PathOrFile, *, name: str = "rankrls") -> None:
    """Write ranked lists as a run file of TREC, which is read as the same numbers.

    Where scores are equal, trec_eval takes the id that comes last in the alphabet first.

    Parameters
    ----------
    table : RankTable
        From :func:`rankrls.rank`, or ``RankTable.from_scores``.
    path : str, path-like or binary file
        File to write or replace, as in :func:`dump_letor`.
    name : str, default="rankrls"
        Name of the run, the last word of every line.
    """
    if not isinstance(table, RankTable):
        raise ValueError(f"table must be a RankTable, from rankrls.rank; got {show(table)}")
    tag = _word("name", name)
    ranks, scores = table.rank.tolist(), table.score.astype(np.float64).tolist()
    rows = zip(_documents(table), ranks, scores, strict=True)
    lines = (f"{q} Q0 {d} {rank} {score!r} {tag}\n".encode() for (q, d), rank, score in rows)
    _write(lines, path)


def dump_qrels(table: Qrels, path: PathOrFile) -> None:
    """Write relevance judgements in the format of TREC; trec_eval wants integers as grades.

    Parameters
    ----------
    table : Qrels
        From ``Qrels.from_labels``.
    path : str, path-like or binary file
        As in :func:`dump_run`.
    """
    if not isinstance(table, Qrels):
        raise ValueError(f"table must be a Qrels, from Qrels.from_labels; got {show(table)}")
    rows = zip(_documents(table), table.grade.astype(np.float64).tolist(), strict=True)
    _write((f"{q} 0 {d} {str(g).removesuffix('.0')}\n".encode() for (q, d), g in rows), path)


def _write(lines: Iterator[bytes], path: PathOrFile) -> None:
    if not isinstance(path, str | os.PathLike):
        path.writelines(lines)
        return
    with written(os.fspath(path)) as writer:
        writer.writelines(lines)


def _documents(table: RankTable | Qrels) -> list[tuple[str, str]]:
    """Return query and id of every line as words; raise before anything is written."""
    columns = []
    for role in ("query", "id"):
        labels = getattr(table, role).tolist()
        known = {label: _word(role, label) for label in dict.fromkeys(labels)}
        if len(set(known.values())) < len(known):
            word = Counter(known.values()).most_common(1)[0][0]
            raise ValueError(f"{role} holds several labels that are written as {word!r}")
        columns.append([known[label] for label in labels])
    pairs = list(zip(*columns, strict=True))
    if len(set(pairs)) < len(pairs):
        (query_word, id_word), _ = Counter(pairs).most_common(1)[0]
        raise ValueError(
            f"id {id_word!r} comes twice in query {query_word!r}: every id of a query is one "
            "document"
        )
    return pairs


def _word(role: str, label: Any) -> str:
    word = str(label)
    if word.split() != [word] or not word.isprintable():
        raise ValueError(
            f"{role} {word[:60]!r} cannot be written: words of TREC files have no white space or "
            "control characters and are not empty"
        )
    return word


def _read(path: PathOrFile, names: tuple[str, ...]) -> tuple[Array, Array, dict[str, Array], Place]:
    """Queries by number, ids of lines, the other columns, and how errors call a line."""
    name, n_bytes = name_of(path), 0
    numbers: list[int] = []
    flat: list[str] = []  # no list for each line, which the garbage collector would follow
    for first, block in text_blocks(path):
        for number, text in enumerate(block, first):
            # Words between blanks and tabs; other white space of Unicode may be part of an id.
            words = text.split() if text.isascii() else re.findall(r"[^ \t\r]+", text)
            if words and len(words) != len(names):
                kinds = {len(_RUN): "a run", len(_QRELS): "judgements (qrels)"}
                found = f"{len(words)} word{'s' * (len(words) != 1)}"
                other = f": is the file {kinds[len(words)]}?" if len(words) in kinds else ""
                raise ValueError(
                    f"{name}:{number}: a line of {kinds[len(names)]} is '{' '.join(names)}', and "
                    f"this one has {found}{other}"
                )
            numbers += [number] if words else []
            flat += words
            n_bytes += (len(text) + _BYTES_PER_LINE) * bool(words)
        require_loadable(partial(place_of, name, numbers, -1), n_bytes, "fewer queries in each")
    if not numbers:
        raise ValueError(f"{name}: no data: the file has no lines")
    line = partial(place_of, name, numbers)
    (query, queries), (id, ids) = (numbered(flat[k :: len(names)]) for k in (0, 2))
    columns = {"query": query}
    for k in range(3, min(len(names), 5)):
        columns[names[k]] = finite_cells(flat[k :: len(names)], names[k], line)
    pairs = query * len(ids) + id
    order = np.argsort(pairs, kind="stable")
    again = np.flatnonzero(np.diff(pairs[order]) == 0)
    if len(again):
        later = int(order[again + 1].min())
        first = int(np.flatnonzero(pairs == pairs[later])[0])
        raise ValueError(
            f"{line(later)}: id {show(ids[id[later]])} of query {show(queries[query[later]])} was "
            f"there already, in line {numbers[first]}"
        )
    return as_text(queries), as_text(ids)[id], columns, line
