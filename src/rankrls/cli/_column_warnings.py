"""Columns that look like ids or are not to scale: warnings with names and options that help."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankrls._calls import warn
from rankrls._frames import columns_like_ids, id_text, scale_text, unequal_scales
from rankrls.cli._options import DataOptions

__all__ = ["warn_about_columns_of"]


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
        if rows.feature_names is None:
            remedy = f"write the file without {'it' if len(found) == 1 else 'them'}"
        else:
            drop = " ".join(f"--drop {_quoted(rows.feature_names[j])}" for j in found)
            remedy = f"leave {'it' if len(found) == 1 else 'them'} out by {drop}"
        warn(id_text(found, _labels(rows, found, options), remedy))
    unequal = unequal_scales(X, codes) if scales else None
    if unequal is not None:
        names = _labels(rows, [unequal.small, unequal.large], options)
        warn(scale_text(unequal, names, "leave out --scale none"))


def _labels(rows: Any, columns: list[int], options: DataOptions) -> Any:
    """Names of columns, or the feature ids of LETOR text, to be asked for by column number."""
    if rows.feature_names is not None:
        return rows.feature_names
    first = 0 if options.zero_based else 1
    return {j: first + j for j in columns}


def _quoted(name: str) -> str:
    return name if name.isidentifier() else repr(name)
