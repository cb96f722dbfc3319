"""Low-level construction of Dask task graphs as dictionaries.

Creating a ``Delayed`` object for each partition would take milliseconds per object on the client.
This is too slow if a solver builds a graph in every iteration.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from dask.optimization import cull
from dask.threaded import get

import dask

__all__ = ["FAN_IN", "Tasks", "give"]

Key = Any

#: Number of results that one task of a tree reduction combines.
FAN_IN = 8

#: Suppresses Dask's warning about large graphs when this library adds vectors or basis rows.
UNREMARKABLE = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}


class _Results:
    """A Dask collection of the results of some keys of a graph."""

    __dask_scheduler__ = staticmethod(get)

    def __init__(self, graph: dict[Key, Any], keys: Sequence[Key]) -> None:
        self.graph = graph
        self.keys = list(keys)

    def __dask_graph__(self) -> dict[Key, Any]:
        return self.graph

    def __dask_keys__(self) -> list[Key]:
        return self.keys

    def __dask_tokenize__(self) -> tuple[Key, ...]:
        return tuple(self.keys)

    @staticmethod
    def __dask_optimize__(graph: Any, keys: Any, **options: Any) -> Any:
        return cull(graph, keys)[0]

    def __dask_postcompute__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return list, ()

    def __dask_postpersist__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _rebuild, (self.keys,)


def _rebuild(graph: dict[Key, Any], keys: Sequence[Key], *, rename: Any = None) -> _Results:
    return _Results(graph, keys)


class Tasks:
    """A task graph under construction.

    Arguments of a task are keys, lists of keys, or None. Other values are bound to the function
    with `functools.partial`, where Dask does not search for keys.

    Parameters
    ----------
    *graphs : mappings
        Graphs that contain the keys used by the tasks.
    """

    def __init__(self, *graphs: Mapping[Key, Any]) -> None:
        self.graph: dict[Key, Any] = {}
        for graph in graphs:
            self.graph.update(graph)
        self._token = uuid.uuid4().hex

    def add(self, name: str, function: Callable[..., Any], *arguments: Any) -> Key:
        """Add a task and return its key."""
        key = (f"rankrls-{name}-{self._token}", len(self.graph))
        self.graph[key] = (function, *arguments)
        return key

    def give(self, name: str, value: Any) -> Key:
        """Add a value used by many tasks, so that it is sent once."""
        return self.add(name, partial(give, value))

    def tree(self, name: str, function: Callable[[list[Any]], Any], keys: Sequence[Key]) -> Key:
        """Reduce results in a tree with a function of a list of at most `FAN_IN` results."""
        keys = list(keys)
        while len(keys) > 1:
            groups = (keys[i : i + FAN_IN] for i in range(0, len(keys), FAN_IN))
            keys = [
                self.add(name, function, group) if len(group) > 1 else group[0] for group in groups
            ]
        return keys[0]

    def compute(self, keys: Iterable[Key], *, large: bool = False) -> list[Any]:
        """Compute some keys and return the results; ``large`` silences warnings on graph size."""
        keys = list(keys)
        if not keys:
            return []
        with dask.config.set(UNREMARKABLE if large else {}):
            (results,) = dask.compute(_Results(self.graph, keys))
        return results

    def persist(self, keys: Sequence[Key]) -> dict[Key, Any]:
        """Start computing some keys on the workers and return a graph that refers to them."""
        if not keys:
            return {}
        (results,) = dask.persist(_Results(self.graph, keys))
        return dict(results.__dask_graph__())


def give(value: Any) -> Any:
    """Return the value."""
    return value
