"""Scalers before a ranker, fitted on the workers in the same pass as the sums of the ranker.

Sums are computed in the scale of the first partition, so that offsets and units cost no digits,
and are converted to that of all rows afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

from sklearn.base import clone

from rankrls.core.preferences.statistics import Statistics
from rankrls.dask._partitions import Partitions
from rankrls.dask._tasks import Tasks
from rankrls.dask._work import Loader
from rankrls.estimators.scalers import merged, rescaling, scaled

__all__ = ["Scaling"]


class Scaling:
    """A scaler of all partitions.

    Parameters
    ----------
    scaler : StandardScaler, MinMaxScaler or MaxAbsScaler
        It is not changed.
    X : Partitions
    loaders : mapping of int to Loader
        Those of the partitions with rows.

    Attributes
    ----------
    X : Partitions
        The features in the scale of the first partition.
    scaler : the scaler of all rows, after `fit`
    """

    def __init__(self, scaler: Any, X: Partitions, loaders: Mapping[int, Loader]) -> None:
        self.scaler = scaler
        self._loaders, self._raw = loaders, X
        tasks = Tasks(X.graph)
        i, load = next(iter(loaders.items()))
        self._first = tasks.add("scaler", partial(_fitted, scaler, load), X.blocks[i])
        both = {
            i: tasks.add("scaled", partial(_fitted_and_scaled, load), X.blocks[i], self._first)
            for i, load in loaders.items()
        }
        self._parts = [tasks.add("scaler", itemgetter(0), key) for key in both.values()]
        blocks = {i: tasks.add("scaled", itemgetter(1), key) for i, key in both.items()}
        self.X = _replaced(X, tasks, blocks)

    def add(self, tasks: Tasks) -> list[Any]:
        """Add the tasks that fit the scaler; returns the keys of what `fit` takes."""
        return [self._first, tasks.tree("scaler", merged, self._parts)]

    def fit(self, first: Any, scaler: Any, sums: Iterable[Statistics]) -> None:
        """Store the scaler of all rows, and convert sums over features to its scale."""
        self.scaler = scaler
        change = rescaling(first, scaler)
        for part in sums:
            part.rescale(*change)

    def transformed(self) -> Partitions:
        """The features in the scale of all rows."""
        tasks = Tasks(self._raw.graph)
        scaler = tasks.give("scaler", self.scaler)
        blocks = {
            i: tasks.add("scaled", partial(_scaled, load), self._raw.blocks[i], scaler)
            for i, load in self._loaders.items()
        }
        return _replaced(self._raw, tasks, blocks)


def _replaced(X: Partitions, tasks: Tasks, blocks: Mapping[int, Any]) -> Partitions:
    """Partitions of which some are other blocks; those without rows stay."""
    keys = [[blocks[i]] if i in blocks else X.blocks[i] for i in range(len(X))]
    return Partitions(tasks.graph, keys, X.lengths)


def _fitted(scaler: Any, load: Loader, blocks: list[Any]) -> Any:
    return clone(scaler).fit(load(blocks))


def _fitted_and_scaled(load: Loader, blocks: list[Any], first: Any) -> tuple[Any, Any]:
    X = load(blocks)
    return clone(first).fit(X), scaled(first, X)


def _scaled(load: Loader, blocks: list[Any], scaler: Any) -> Any:
    return scaled(scaler, load(blocks))
