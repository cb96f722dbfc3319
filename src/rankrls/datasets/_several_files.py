"""Several files read as one, such as the parts S1.txt, S2.txt … that LETOR data come in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch

from rankrls._frames import RawTable
from rankrls._streams import name_of
from rankrls._validation import as_text
from rankrls.datasets._letor import letor_width
from rankrls.datasets._query_sizes import joined_letor
from rankrls.datasets.formats import sniff

__all__ = ["iterates_several", "loads_several"]

F = TypeVar("F", bound=Callable[..., Any])


def loads_several(load: F) -> F:
    """Let a reader of one file take a list of them: all rows, in the order of the files."""

    @functools.wraps(load)
    def all_of(path: Any, **options: Any) -> Any:
        if not isinstance(path, list | tuple):
            return load(path, **options)
        paths = _check(path, options)
        parts = [load(paths[0], **options)]
        auto = options.get("text") == "auto" and parts[0].format != "letor"
        options = _like_first(parts[0], options) | ({"text": "auto"} if auto else {})
        parts += [load(one, **options) for one in paths[1:]]
        if auto:  # what is text in one file is so in all
            found = set().union(*map(_text_of, parts))
            options["text"] = [name for name in parts[0].feature_names if name in found]
            parts = [
                part if _text_of(part) == found else load(one, **options)
                for one, part in zip(paths, parts, strict=True)
            ]
        return _joined(parts, [name_of(one) for one in paths])

    return cast(F, all_of)


def iterates_several(iterate: F) -> F:
    """The same for a reader of batches; a query must be in one file."""

    @functools.wraps(iterate)
    def all_of(path: Any, **options: Any) -> Any:
        if not isinstance(path, list | tuple):
            return iterate(path, **options)
        return _batches(_check(path, options), iterate, options)

    return cast(F, all_of)


def _check(paths: Sequence[Any], options: dict[str, Any]) -> list[Any]:
    """The files, all of one kind, which becomes the ``format`` among the options."""
    if not paths:
        raise ValueError("path is an empty list: name at least one file")
    if len(paths) > 1 and options.get("group", "auto") not in ("auto", None):
        raise ValueError("group is a file of sizes for one file of rows: read the files one by one")
    if options.get("format", "auto") == "auto":
        kinds = [sniff(one)[0] for one in paths]
        for path, kind in zip(paths, kinds, strict=True):
            if kind != kinds[0]:
                raise ValueError(
                    f"{name_of(path)}: this is a file of the kind {kind!r}, and "
                    f"{name_of(paths[0])} is {kinds[0]!r}: read them one by one"
                )
        options["format"] = kinds[0]
    return list(paths)


def _like_first(first: Bunch, options: dict[str, Any]) -> dict[str, Any]:
    """Options for the other files: columns of tables are those of the first."""
    if first.format == "letor":
        return options
    columns = {"target": first.target_name, "qid": first.qid_name, "drop": None}
    if options.get("text") is not None:
        columns["text"] = [name for name in first.feature_names if name in _text_of(first)]
    return {**options, **columns, "features": first.feature_names}


def _text_of(bunch: Bunch) -> set[str]:
    """Names of the features that are text."""
    text = bunch.data.text if isinstance(bunch.data, RawTable) else ()
    return {bunch.feature_names[j] for j in text}


def _joined(parts: list[Bunch], names: list[str]) -> Bunch:
    if len(parts) == 1:
        return parts[0]
    if parts[0].format == "letor":
        joined = joined_letor(parts)
    else:
        joined = Bunch(**parts[0])
        for name in ("data", "target", "sample_weight"):
            columns = [part[name] for part in parts]
            if isinstance(columns[0], RawTable):
                joined[name] = RawTable.concatenate(columns)
            else:
                joined[name] = None if columns[0] is None else np.concatenate(columns)
    joined.qid = _joined_qid(parts, names)
    return joined


def _joined_qid(parts: list[Bunch], names: list[str]) -> Any:
    for name, part in zip(names, parts, strict=True):
        if (part.qid is None) != (parts[0].qid is None):
            with_ids, without = (names[0], name) if part.qid is None else (name, names[0])
            raise ValueError(f"{without}: the rows have no query ids, and those of {with_ids} have")
    if parts[0].qid is None:
        return None
    found, offset = [], 0
    for part in parts:
        if "group_file" in part:  # numbers of queries within a file
            found.append(part.qid + offset)
            offset = int(found[-1].max()) + 1
        else:
            found.append(part.qid)
    if len({ids.dtype.kind in "iu" for ids in found}) > 1:
        found = [as_text([str(label) for label in ids.tolist()]) for ids in found]
    return np.concatenate(found)


def _batches(
    paths: list[Any], iterate: Callable[..., Iterator[Bunch]], options: dict[str, Any]
) -> Iterator[Bunch]:
    if options["format"] == "letor" and options.get("n_features") is None:
        zero_based = options.get("zero_based", False)
        options = {**options, "n_features": max(letor_width(one, zero_based) for one in paths)}
    by_query = options.get("by_query", True)
    earlier: dict[Any, str] = {}
    offset, first = 0, True
    for one in paths:
        name, last = name_of(one), -1
        here: set[Any] = set()
        for batch in iterate(one, **options):
            if first:
                if options["format"] == "letor":
                    options = {**options, "sparse": sparse.issparse(batch.data)}
                options, first = _like_first(batch, options), False
            if batch.qid is not None and "group_file" in batch:
                last = int(batch.qid.max())
                batch.qid = batch.qid + offset
            elif batch.qid is not None and by_query:
                here.update(np.unique(batch.qid).tolist())
                again = next((label for label in here if label in earlier), None)
                if again is not None:
                    raise ValueError(
                        f"{name}: query {again!r} is in {earlier[again]}, too, and batches hold "
                        "whole queries of one file: move its rows into one file, or use "
                        "load_ranking"
                    )
            yield batch
        earlier |= dict.fromkeys(here, name)
        offset += last + 1
