"""Columns that look like ids or are not to scale: warnings with names and options that help."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankrls._calls import warn
from rankrls._frames import columns_like_ids, id_text, scale_text, unequal_scales
from rankrls.cli._options import DataOptions

__all__ = ["warn_about_columns_of", "warn_about_empty_columns"]


def warn_about_columns_of(rows: Any, X: Any, options: DataOptions, *, scales: bool) -> None:
    """Warn of columns that look like ids, positions or timestamps, and of unequal scales.

    Parameters
    ----------
    rows : Bunch
        What was read.
    X : ndarray or sparse matrix of shape (n_rows, n_features)
        Its features, without missing ones, before scaling.
    options : DataOptions
    scales : bool
        Whether scales matter: the features are used as they are.
    """
    codes = None if rows.qid is None else np.unique(rows.qid, return_inverse=True)[1]
    found = columns_like_ids(X, rows.feature_names, codes)
    if found:
        warn(id_text(found, _labels(rows, found, options), _remedy(rows, found)))
    unequal = unequal_scales(X, codes) if scales else None
    if unequal is not None:
        names = _labels(rows, [unequal.small, unequal.large], options)
        warn(scale_text(unequal, names, "leave out --scale none"))


def warn_about_empty_columns(rows: Any, options: DataOptions) -> None:
    """Warn of columns without any value, in whose place zeros are put."""
    if not isinstance(rows.data, np.ndarray):
        return
    empty = np.flatnonzero(np.isnan(rows.data).all(axis=0)).tolist()
    if empty:
        labels = _labels(rows, empty, options)
        names = ", ".join(repr(labels[j]) for j in empty[:5]) + ", …" * (len(empty) > 5)
        what = f"column {names} has" if len(empty) == 1 else f"columns {names} have"
        warn(f"{what} no value in any row; zeros are filled in: {_remedy(rows, empty)}")


def _remedy(rows: Any, columns: list[int]) -> str:
    """How to leave columns out."""
    them = "it" if len(columns) == 1 else "them"
    if rows.feature_names is None:
        return f"write the file without {them}"
    drop = " ".join(f"--drop {_quoted(rows.feature_names[j])}" for j in columns)
    return f"leave {them} out by {drop}"


def _labels(rows: Any, columns: list[int], options: DataOptions) -> Any:
    """Names of columns, or the feature ids of LETOR text, to be asked for by column number."""
    if rows.feature_names is not None:
        return rows.feature_names
    first = 0 if options.zero_based else 1
    return {j: first + j for j in columns}


def _quoted(name: str) -> str:
    return name if name.isidentifier() else repr(name)
