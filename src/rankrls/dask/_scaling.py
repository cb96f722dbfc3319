"""Scalers before a ranker, fitted on the workers in the same pass as the sums of the ranker.

Sums are computed in the scale of the first partition, so that offsets and units cost no digits,
and are converted to that of all rows afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

from sklearn.base import clone

from rankrls.dask._tasks import Tasks
from rankrls.dask._whole_queries import DistributedRows, Loader
from rankrls.estimators.incremental import Learned
from rankrls.estimators.scalers import merged, rescaling, scaled

__all__ = ["Scaling"]


class Scaling:
    """A scaler of all rows.

    Parameters
    ----------
    scaler : StandardScaler, MinMaxScaler or MaxAbsScaler
        It is not changed.
    rows : DistributedRows
        Their X becomes that in the scale of the first partition.

    Attributes
    ----------
    scaler : the scaler of all rows, after `fit`
    """

    def __init__(self, scaler: Any, rows: DistributedRows) -> None:
        self.scaler, self._rows, self._raw = scaler, rows, rows.X
        tasks = Tasks(rows.X.graph)
        i = rows.used[0]
        fit = partial(_fitted, scaler, rows.loaders[i])
        self._first = tasks.add("scaler", fit, rows.X.blocks[i])
        both = {
            i: tasks.add("both", partial(_both, rows.loaders[i]), rows.X.blocks[i], self._first)
            for i in rows.used
        }
        self._parts = [tasks.add("scaler", itemgetter(0), key) for key in both.values()]
        blocks = {i: tasks.add("scaled", itemgetter(1), key) for i, key in both.items()}
        self._replace(tasks, blocks)

    def keys(self, tasks: Tasks) -> list[Any]:
        """Add the tasks that fit the scaler; returns the keys of what `fit` takes."""
        return [self._first, tasks.tree("scaler", merged, self._parts)]

    def fit(self, scalers: list[Any], sums: list[Learned]) -> None:
        """Store the scaler of all rows, and convert the sums and the rows to its scale."""
        first, self.scaler = scalers
        change = rescaling(first, self.scaler)
        for part in sums:
            part.rescale(*change)
        tasks = Tasks(self._raw.graph)
        key = tasks.give("scaler", self.scaler)
        blocks = {
            i: tasks.add(
                "scaled", partial(_scaled, self._rows.loaders[i]), self._raw.blocks[i], key
            )
            for i in self._rows.used
        }
        self._replace(tasks, blocks)

    def _replace(self, tasks: Tasks, blocks: dict[int, Any]) -> None:
        keys = [[blocks[i]] if i in blocks else old for i, old in enumerate(self._raw.blocks)]
        self._rows.X = replace(self._raw, graph=tasks.graph, blocks=keys)


def _fitted(scaler: Any, load: Loader, blocks: list[Any]) -> Any:
    return clone(scaler).fit(load(blocks))


def _both(load: Loader, blocks: list[Any], first: Any) -> tuple[Any, Any]:
    X = load(blocks)
    return clone(first).fit(X), scaled(first, X)


def _scaled(load: Loader, blocks: list[Any], scaler: Any) -> Any:
    return scaled(scaler, load(blocks))
