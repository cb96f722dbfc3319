"""Task graphs built by hand: one dictionary, many keys.

A ``Delayed`` for every partition would do the same, but costs milliseconds of the client for each,
which is too much where a graph is made in every iteration of a solver.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import dask
from dask.optimization import cull
from dask.threaded import get

__all__ = ["FAN_IN", "Tasks", "give"]

Key = Any

#: So many results are added up by one task of a tree reduction.
FAN_IN = 8

#: What the library puts into a graph itself (a vector, basis rows) need not be remarked upon.
UNREMARKABLE = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}


class _Results:
    """The results of some keys of a graph, as a Dask collection."""

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
    """A graph under construction.

    Arguments of a task are keys, lists of keys, or None. Anything else is bound to the function
    (`functools.partial`), where Dask does not look for keys.

    Parameters
    ----------
    *graphs : mappings
        Graphs of what the tasks refer to.
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
        """Add a value that many tasks need, so that it is sent once."""
        return self.add(name, partial(give, value))

    def tree(self, name: str, function: Callable[[list[Any]], Any], keys: Sequence[Key]) -> Key:
        """Reduce results by a function of a list of them, `FAN_IN` at a time."""
        keys = list(keys)
        while len(keys) > 1:
            groups = (keys[i : i + FAN_IN] for i in range(0, len(keys), FAN_IN))
            keys = [
                self.add(name, function, group) if len(group) > 1 else group[0] for group in groups
            ]
        return keys[0]

    def compute(self, keys: Iterable[Key], *, large: bool = False) -> list[Any]:
        """The results of some keys, brought here. ``large``: the graph is known to be so."""
        keys = list(keys)
        if not keys:
            return []
        with dask.config.set(UNREMARKABLE if large else {}):
            (results,) = dask.compute(_Results(self.graph, keys))
        return results

    def persist(self, keys: Sequence[Key]) -> dict[Key, Any]:
        """Start computing some keys, to be kept where they are; the graph that refers to them."""
        if not keys:
            return {}
        (results,) = dask.persist(_Results(self.graph, keys))
        return dict(results.__dask_graph__())


def give(value: Any) -> Any:
    """The value itself."""
    return value
