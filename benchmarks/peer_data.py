"""Data of the comparison with peers: rows of numbers, and tables with texts and categories."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_svmlight_file
from table_data import make_passages, make_shop
from timing import need

from rankrls.datasets import load_letor
from rankrls.model_selection import QueryKFold


@dataclass(frozen=True)
class Part:
    """Rows: X (m, n) dense or a data frame, y (m,) grades, qid (m,) integers, sorted."""

    X: Any
    y: np.ndarray
    qid: np.ndarray

    def take(self, rows: np.ndarray) -> Part:
        """Some of the rows."""
        X = self.X.iloc[rows] if hasattr(self.X, "iloc") else self.X[rows]
        return Part(X, self.y[rows], self.qid[rows])

    def unlabelled(self) -> Part:
        """The same rows with NaN for labels: what a method may see of rows that it is to rank."""
        return Part(self.X, np.full(len(self.y), np.nan), self.qid)


@dataclass(frozen=True)
class Fold:
    """A training set, a test set, and a validation set if the data have one."""

    name: str
    train: Part
    test: Part
    validation: Part | None = None

    def splits(self) -> Iterator[tuple[Part, Part]]:
        """(training, held-out) parts by which parameters are chosen, the test part in none.

        The validation set if there is one, otherwise five folds of the training queries, the
        same for every method.
        """
        if self.validation is not None:
            yield self.train, self.validation
            return
        splitter = QueryKFold(5, shuffle=True, random_state=0)
        for rows, held in splitter.split(self.train.X, self.train.y, self.train.qid):
            yield self.train.take(np.sort(rows)), self.train.take(np.sort(held))


def _letor(*paths: Path) -> Part:
    """Files one after the other, columns that all have, rows sorted by query."""
    parts = [load_letor(path) for path in paths]
    qid = np.concatenate([np.asarray(part.qid, dtype=np.int64) for part in parts])
    X = np.concatenate([_dense(part.data) for part in parts])
    y = np.concatenate([part.target for part in parts])
    return Part(X, y, qid).take(np.argsort(qid, kind="stable"))


def _dense(X) -> np.ndarray:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


def ohsumed(folder: Path) -> Iterator[Fold]:
    """LETOR 3.0 OHSUMED in five folds: three parts train, one validates, one tests."""
    parts = {f"S{i}": folder / f"querylevelnorm_S{i}.txt.gz" for i in range(1, 6)}
    for line in (folder / "FOLDS.txt").read_text().splitlines()[1:]:
        words = line.replace(",", " ").split()
        if len(words) == 6:
            name, *train, validation, test = words
            yield Fold(
                name,
                _letor(*(parts[part] for part in train)),
                _letor(parts[test]),
                _letor(parts[validation]),
            )


def mslr(folder: Path) -> Iterator[Fold]:
    """The first 5000 rows of the training and of the test file of MSLR-WEB10K, fold 1."""
    train, test = (_letor(folder / f"msn1.fold1.{part}.5k.txt.gz") for part in ("train", "test"))
    yield Fold("sample", train, test)


def lightgbm(folder: Path) -> Iterator[Fold]:
    """The lambdarank example of LightGBM: sizes of the queries in files of their own."""
    yield Fold("example", *(_sized(folder / f"rank.{part}") for part in ("train", "test")))


def _sized(path: Path) -> Part:
    X, y = load_svmlight_file(f"{path}.gz", n_features=301, zero_based=True)
    sizes = np.loadtxt(f"{path}.query", dtype=np.int64)
    return Part(X.toarray(), y, np.repeat(np.arange(len(sizes)), sizes))


def yandex(folder: Path) -> Iterator[Fold]:
    """Web search results of CatBoost's tests (catboost/pytest/data/querywise of its repository).

    Columns: a weight, the query, a relevance between 0 and 1, an address, a group, 50 features.
    LightGBM takes whole grades only: for everybody they are 4 times the relevance, rounded.
    """
    yield Fold("querywise", *(_tabbed(folder / part) for part in ("train", "test")))


def _tabbed(path: Path) -> Part:
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    qid = np.unique([row[1] for row in rows], return_inverse=True)[1]
    y = np.rint([4 * float(row[2]) for row in rows])
    X = np.array([[float(value) for value in row[5:]] for row in rows])
    return Part(X, y, qid).take(np.argsort(qid, kind="stable"))


def generated(make: Any) -> Any:
    """The same shop or collection of passages, with other queries in the test set."""

    def read(folder: Path) -> Iterator[Fold]:
        for seed in (0, 2):
            parts = (make(seed=seed + j) for j in range(2))
            # Queries of the folds have different numbers.
            train, test = (Part(one["X"], one["y"], one["qid"] + 1000 * seed) for one in parts)
            yield Fold(f"seed {seed}", train, test)

    return read


def movies(folder: Path) -> Iterator[Fold]:
    """Films of vega-datasets from 1990 to 2010: each quarter's by their rating, in whole grades.

    The quarters from 2005 on are the test set. The other rating of the table is left out.
    """
    table = pd.DataFrame(json.loads((folder / "movies.json").read_text()))
    date = pd.to_datetime(table.pop("Release Date"), errors="coerce", format="mixed")
    kept = table["IMDB Rating"].notna() & date.dt.year.between(1990, 2010)
    table, quarter = table[kept], date[kept].dt.to_period("Q")
    table = table.drop(columns="Rotten Tomatoes Rating").assign(Title=table["Title"].astype(str))
    y = np.digitize(table.pop("IMDB Rating").to_numpy(float), [5.0, 6.0, 7.0, 8.0]).astype(float)
    part = Part(table, y, quarter.astype("int64").to_numpy())
    late = (quarter.dt.year >= 2005).to_numpy()
    order = np.argsort(part.qid, kind="stable")
    yield Fold("quarters", *(part.take(order[late[order] == test]) for test in (False, True)))


def wikiqa(folder: Path) -> Iterator[Fold]:
    """Questions and sentences of Wikipedia: trained on WikiQA's test file, tested on "dev"."""
    parts = []
    for name in ("test", "dev"):
        table = pd.read_csv(folder / f"WikiQA-{name}.tsv", sep="\t", quoting=csv.QUOTE_NONE)
        qid = table.pop("QuestionID").factorize()[0]
        parts.append(Part(table, table.pop("Label").to_numpy(float), qid))
    yield Fold("questions", *parts)


SETS = {
    "shop": ("", generated(make_shop)),
    "passages": ("", generated(make_passages)),
    "movies": ("movies", movies),
    "wikiqa": ("wikiqa", wikiqa),
    "ohsumed": ("letor_ohsumed", ohsumed),
    "mslr": ("mslr10k_sample", mslr),
    "lightgbm": ("lightgbm_rank", lightgbm),
    "yandex": ("catboost_querywise", yandex),
}


def load(name: str) -> list[Fold]:
    """Folds of a data set, from the folder of data unless it is generated."""
    folder, read = SETS[name]
    return list(read(need(folder)[0] if folder else Path()))
