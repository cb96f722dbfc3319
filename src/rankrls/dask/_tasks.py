"""Layers of Dask tasks; made one by one, `Delayed` objects take a millisecond each."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

import dask

__all__ = ["FAN_IN", "compute", "layer", "local", "shared", "tree"]

#: Number of results that one task of a tree reduction combines.
FAN_IN = 8

#: Suppresses Dask's warning about large graphs when this library adds vectors or basis rows.
UNREMARKABLE = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}


def layer(name: str, calls: Iterable[tuple[Any, ...]], tail: tuple[int, ...] = ()) -> list[Delayed]:
    """Return the results of calls (function, argument, …) with keys (name, number, *tail).

    Arguments are `Delayed`, lists of them, or None. Other values are bound to the function by
    `functools.partial`, where Dask does not search for keys.
    """
    name = f"rankrls-{name}-{uuid.uuid4().hex}"
    used: dict[int, Delayed] = {}  # one of each graph, which it keeps alive

    def key(argument: Any) -> Any:
        if isinstance(argument, list):
            return [key(one) for one in argument]
        if argument is None:
            return None
        used[id(argument.dask)] = argument  # not a leaf, whose graph is made at each access
        return argument.key

    tasks = {
        (name, i, *tail): (function, *map(key, arguments))
        for i, (function, *arguments) in enumerate(calls)
    }
    graph = HighLevelGraph.from_collections(name, tasks, list(used.values()))
    return [Delayed(task, graph, layer=name) for task in tasks]


def local(values: Iterable[Any]) -> list[Delayed]:
    """Return values of the client, for tasks."""
    return layer("local", [(partial(_same, value),) for value in values])


def shared(value: Any) -> Delayed | None:
    """Return a value used by many tasks, so that it is sent once; None stays."""
    return None if value is None else local([value])[0]


def _same(value: Any) -> Any:
    return value


def tree(name: str, function: Callable[[list[Any]], Any], parts: Sequence[Delayed]) -> Delayed:
    """Reduce results in a tree with a function of a list of at most `FAN_IN` results."""
    while len(parts) > 1:
        groups = (list(parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN))
        parts = layer(name, [(function, group) for group in groups])
    return parts[0]


def compute(parts: Iterable[Delayed], *, large: bool = False) -> list[Any]:
    """Return results; ``large`` silences warnings on the size of the graph."""
    with dask.config.set(UNREMARKABLE if large else {}):
        return list(dask.compute(*parts))
