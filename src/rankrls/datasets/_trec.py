"""Runs and relevance judgements in the text formats of TREC (trec_eval, ir_measures, Anserini …).

A run has a line ``query Q0 id rank score tag`` for every retrieved document; judgements (qrels)
have a line ``query iteration id grade``. Words are separated by blanks or tabs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._calls import warn
from rankrls._streams import PathOrFile, name_of, written
from rankrls._validation import as_text, show
from rankrls.datasets._source import require_loadable, text_blocks
from rankrls.rankings import Qrels, RankTable

__all__ = ["dump_qrels", "dump_run", "load_qrels", "load_run"]

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
        Queries in the order of the file. Scores say what comes first, as in trec_eval; lines of
        equal scores are in the order of their ranks. Queries and ids are strings.

    Raises
    ------
    ValueError
        With file and line: if a line has not six words, a rank or score is no number, or an id
        comes twice in a query.

    Warns
    -----
    UserWarning
        If the ranks of a query say something else than its scores.

    See Also
    --------
    dump_run : Write such a file.
    rankrls.metrics.evaluate_run : Compare a run with judgements.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_run
    >>> file = io.BytesIO(b"7 Q0 d2 1 9.5 me\n7 Q0 d1 2 3.25 me\n")
    >>> load_run(file).id.tolist()
    ['d2', 'd1']
    """
    lines = _TrecLines(path, _RUN)
    ranks: list[int] = []
    scores: list[float] = []
    for numbers, columns in lines:
        ranks += lines.integers(numbers, "rank", columns[3])
        scores += lines.numbers(numbers, "score", columns[4])
    query, id, line = lines.columns()
    rank, score = np.array(ranks, dtype=np.int64), np.array(scores)
    # Numbers of queries are in the order of the file.
    order = np.lexsort((rank, -score, query.codes))
    codes, place = query.codes[order], rank[order]
    wrong = np.flatnonzero((codes[1:] == codes[:-1]) & (place[1:] < place[:-1]))
    if len(wrong):
        later = line[order[wrong[0] + 1]]
        warn(
            f"{lines.name}:{later}: ranks and scores are in different orders"
            + f" (in {len(wrong)} places)" * (len(wrong) > 1)
            + "; scores count, as in trec_eval"
        )
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    sizes = np.diff(starts, append=len(codes))
    new = np.arange(len(codes)) - np.repeat(starts, sizes) + 1
    return RankTable(query.words()[order], new, id.words()[order], score[order])


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

    Raises
    ------
    ValueError
        With file and line: if a line has not four words, a grade is no number, or an id comes
        twice in a query.

    Examples
    --------
    >>> import io
    >>> from rankrls.datasets import load_qrels
    >>> load_qrels(io.BytesIO(b"7 0 d1 2\n7 0 d2 0\n")).grade
    array([2., 0.])
    """
    lines = _TrecLines(path, _QRELS)
    grades: list[float] = []
    for numbers, columns in lines:
        grades += lines.numbers(numbers, "grade", columns[3])
    query, id, _ = lines.columns()
    return Qrels(query.words(), id.words(), np.array(grades))


def dump_run(table: RankTable, path: PathOrFile, *, name: str = "rankrls") -> None:
    """Write ranked lists as a run file of TREC.

    Scores are written with as many digits as it takes to read the same ones again. The file
    appears under its name only when it is complete.

    Parameters
    ----------
    table : RankTable
        From :func:`rankrls.rank`, or ``RankTable.from_scores``.
    path : str, path-like or binary file
        File to write or replace; compressed if its name ends in ``.gz``,
        ``.bz2``, ``.xz`` or ``.zst``. Pipes and devices, such
        as ``/dev/stdout``, are written to and not replaced.
    name : str, default="rankrls"
        Name of the run, the last word of every line.

    Notes
    -----
    Where scores are equal, trec_eval does not go by ranks: it takes the id that comes last in
    the alphabet first.

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
        raise ValueError(
            f"table must be a RankTable, from rankrls.rank or RankTable.from_scores(scores, "
            f"qid=qid, ids=ids); got {show(table)}"
        )
    tag = _word("name", name)
    ranks, scores = table.rank.tolist(), table.score.astype(np.float64).tolist()
    rows = zip(_documents(table), ranks, scores, strict=True)
    lines = (f"{q} Q0 {d} {rank} {score!r} {tag}\n".encode() for (q, d), rank, score in rows)
    _write(lines, path)


def dump_qrels(table: Qrels, path: PathOrFile) -> None:
    """Write relevance judgements in the format of TREC.

    The file appears under its name only when it is complete.

    Parameters
    ----------
    table : Qrels
        From ``Qrels.from_labels``.
    path : str, path-like or binary file
        As in :func:`dump_run`.

    Notes
    -----
    Grades are written as integers where they are; trec_eval wants them to be.

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
        raise ValueError(
            "table must be a Qrels, from Qrels.from_labels(y, qid=qid, ids=ids) or load_qrels; got "
            f"{show(table)}"
        )
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
    query, id = (_words(role, getattr(table, role)) for role in ("query", "id"))
    pairs = list(zip(query, id, strict=True))
    if len(set(pairs)) < len(pairs):
        seen: set[tuple[str, str]] = set()
        for pair in pairs:
            if pair in seen:
                raise ValueError(
                    f"id {pair[1]!r} comes twice in query {pair[0]!r}: every id of a query is one "
                    "document"
                )
            seen.add(pair)
    return pairs


def _words(role: str, labels: Array) -> list[str]:
    """Labels as words that can be written; each different one is looked at once."""
    known: dict[Any, str] = {}
    written: dict[str, Any] = {}
    for label in labels.tolist():
        if label not in known:
            known[label] = word = _word(role, label)
            if written.setdefault(word, label) != label:
                raise ValueError(
                    f"{role} holds {show(written[word])} and {show(label)}, which are written the "
                    "same"
                )
    return [known[label] for label in labels.tolist()]


def _word(role: str, label: Any) -> str:
    word = str(label)
    if word.split() != [word] or not word.isprintable():
        raise ValueError(
            f"{role} {word[:60]!r} cannot be written: words of TREC files have no white space or "
            "control characters and are not empty; replace such characters, or write another format"
        )
    return word


class _Numbered:
    """Words by the number of their first appearance."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._codes: list[int] = []

    def add(self, words: Sequence[str]) -> None:
        number = self._number
        self._codes += [number.setdefault(word, len(number)) for word in words]

    def __len__(self) -> int:
        return len(self._number)

    @property
    def codes(self) -> Array:
        return np.array(self._codes, dtype=np.int64)

    def words(self) -> Array:
        """The word of every line."""
        return as_text(list(self._number))[self.codes]


class _TrecLines:
    """The lines of a file, cut into words; queries and ids are collected.

    Parameters
    ----------
    path : str, path-like or binary file
    names : tuple of str
        What the words of a line are.
    """

    def __init__(self, path: PathOrFile, names: tuple[str, ...]) -> None:
        self.name, self._path, self._names = name_of(path), path, names
        self._query, self._id = _Numbered(), _Numbered()
        self._line: list[int] = []

    def __iter__(self) -> Iterator[tuple[list[int], list[list[str]]]]:
        """Numbers of some lines, and their first words, second words, and so on."""
        n_bytes = 0
        for first, block in text_blocks(self._path):
            numbers: list[int] = []
            flat: list[str] = []  # no list for each line, which the garbage collector would follow
            for number, text in enumerate(block, first):
                words = _cut(text)
                if not words:
                    continue
                if len(words) != len(self._names):
                    raise ValueError(f"{self.name}:{number}: {self._wrong(words)}")
                numbers.append(number)
                flat += words
                n_bytes += len(text) + _BYTES_PER_LINE
            if not numbers:
                continue
            columns = [flat[place :: len(self._names)] for place in range(len(self._names))]
            self._query.add(columns[0])
            self._id.add(columns[2])
            self._line += numbers
            yield numbers, columns
            require_loadable(f"{self.name}:{numbers[-1]}", n_bytes, "a part of the queries in each")
        if not self._line:
            raise ValueError(f"{self.name}: no data: the file has no line with words")

    def _wrong(self, words: list[str]) -> str:
        """What a line is that has not as many words as it should."""
        wanted, found = " ".join(self._names), len(words)
        what = "a run" if self._names is _RUN else "judgements (qrels)"
        text = f"a line of {what} is '{wanted}', and this one has {found} word{'s' * (found != 1)}"
        others = {len(_RUN): "a run", len(_QRELS): "judgements (qrels)"}
        if found in others:
            text += f": is the file {others[found]}?"
        return text

    def numbers(self, lines: list[int], role: str, words: Sequence[str]) -> list[float]:
        """Finite numbers."""
        try:
            values = list(map(float, words))
        except ValueError:
            values = [_number(word) for word in words]
        if not np.isfinite(values).all() or "_" in "".join(words) or not "".join(words).isascii():
            for line, word in zip(lines, words, strict=True):
                if not np.isfinite(_number(word)):
                    raise ValueError(
                        f"{self.name}:{line}: the {role} {word[:40]!r} is no finite number"
                    )
        return values

    def integers(self, lines: list[int], role: str, words: Sequence[str]) -> list[int]:
        """Integers of at most 18 digits."""
        for line, word in zip(lines, words, strict=True):
            digits = word.removeprefix("-").removeprefix("+")
            if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
                raise ValueError(f"{self.name}:{line}: the {role} {word[:40]!r} is no integer")
        return list(map(int, words))

    def columns(self) -> tuple[_Numbered, _Numbered, Array]:
        """Queries and ids of all lines, each pair once; numbers of the lines."""
        lines = np.array(self._line)
        pairs = self._query.codes * len(self._id) + self._id.codes
        order = np.argsort(pairs, kind="stable")
        again = np.flatnonzero(np.diff(pairs[order]) == 0)
        if len(again):
            later = int(order[again + 1].min())
            first = int(np.flatnonzero(pairs == pairs[later])[0])
            id, query = self._id.words()[later], self._query.words()[later]
            raise ValueError(
                f"{self.name}:{lines[later]}: id {show(str(id))} of query {show(str(query))} was "
                f"there already, in line {lines[first]}"
            )
        return self._query, self._id, lines


def _cut(text: str) -> list[str]:
    """Words between blanks and tabs; other white space of Unicode may be part of an id."""
    if text.isascii():
        return text.split()
    return [word for word in text.replace("\t", " ").replace("\r", " ").split(" ") if word]


def _number(word: str) -> float:
    """The number that a word spells in ASCII, or NaN."""
    try:
        return float(word) if word.isascii() and "_" not in word else np.nan
    except ValueError:
        return np.nan
