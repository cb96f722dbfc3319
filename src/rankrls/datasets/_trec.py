"""Runs and relevance judgements in the text formats of TREC (trec_eval, ir_measures, Anserini …).

A run has a line ``query Q0 id rank score tag`` for every retrieved document; judgements (qrels)
have a line ``query iteration id grade``. Words are separated by blanks or tabs.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._calls import warn
from rankrls._streams import PathOrFile, name_of, written
from rankrls._validation import as_text, show
from rankrls.datasets._named_tables import NamedTable, Place, finite_cells
from rankrls.datasets._text import Vocabulary, place_of, require_loadable, text_blocks
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

    Raises
    ------
    ValueError
        With file and line, if a line is not six words, or an id comes twice in a query.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_run
    >>> file = io.BytesIO(b"7 Q0 d2 1 9.5 me\n7 Q0 d1 2 3.25 me\n")
    >>> load_run(file).id.tolist()
    ['d2', 'd1']
    """
    words, columns, line = _read(path, _RUN)
    query, rank, score = columns["query"], columns["rank"], columns["score"]
    # Numbers of queries are in the order of the file.
    order = np.lexsort((rank, -score, query))
    codes, place = query[order], rank[order]
    wrong = np.flatnonzero((codes[1:] == codes[:-1]) & (place[1:] < place[:-1]))
    if len(wrong):
        warn(
            f"{line(order[wrong[0] + 1])}: ranks and scores are in different orders"
            + f" (in {len(wrong)} places)" * (len(wrong) > 1)
            + "; scores count, as in trec_eval"
        )
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    sizes = np.diff(starts, append=len(codes))
    new = np.arange(len(codes)) - np.repeat(starts, sizes) + 1
    return RankTable(words[0][order], new, words[1][order], score[order])


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

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_qrels
    >>> load_qrels(io.BytesIO(b"7 0 d1 2\n7 0 d2 0\n")).grade
    array([2., 0.])
    """
    (query, id), columns, _ = _read(path, _QRELS)
    return Qrels(query, id, columns["grade"])


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

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from rankrls.datasets import dump_run
    >>> from rankrls.rankings import RankTable
    >>> table = RankTable.from_scores([0.5, 2.0], qid=["shoes", "shoes"], ids=["s1", "s2"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "run.txt")
    ...     dump_run(table, path)
    ...     print(path.read_text(), end="")
    shoes Q0 s2 1 2.0 rankrls
    shoes Q0 s1 2 0.5 rankrls
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

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import dump_qrels
    >>> from rankrls.rankings import Qrels
    >>> file = io.BytesIO()
    >>> dump_qrels(Qrels.from_labels([2, 0], qid=["shoes", "shoes"], ids=["s1", "s2"]), file)
    >>> print(file.getvalue().decode(), end="")
    shoes 0 s1 2
    shoes 0 s2 0
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


def _read(path: PathOrFile, names: tuple[str, ...]) -> tuple[list[Array], dict[str, Array], Place]:
    """Words of query and id of every line, the other columns, and how errors call a line."""
    known = Vocabulary(), Vocabulary()
    readers = {"query": known[0].encode, "id": known[1].encode}
    columns = {name: (name, readers.get(name, finite_cells)) for name in ("query", *names[2:5])}
    table = NamedTable(name_of(path), list(names), partial(_chunks, path, names))
    found, line = table.read(columns, "")
    query, id = found["query"], found["id"]
    words = [as_text(v.cells)[codes] for v, codes in zip(known, (query, id), strict=True)]
    pairs = query * (int(id.max()) + 1) + id
    order = np.argsort(pairs, kind="stable")
    again = np.flatnonzero(np.diff(pairs[order]) == 0)
    if len(again):
        later = int(order[again + 1].min())
        first = int(np.flatnonzero(pairs == pairs[later])[0])
        what, where = (show(str(word[later])) for word in words[::-1])
        raise ValueError(
            f"{line(later)}: id {what} of query {where} was there already, in line "
            f"{line(first).rpartition(':')[2]}"
        )
    return words, found, line


def _chunks(path: PathOrFile, names: tuple[str, ...], columns: list[str]) -> Iterator[Any]:
    """Columns of words, and how errors call a line."""
    name, n_bytes = name_of(path), 0
    for first, block in text_blocks(path):
        numbers: list[int] = []
        flat: list[str] = []  # no list for each line, which the garbage collector would follow
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
        place = partial(place_of, name, numbers)
        if numbers:
            require_loadable(partial(place, -1), n_bytes, "a part of the queries in each")
            yield [flat[names.index(column) :: len(names)] for column in columns], place
