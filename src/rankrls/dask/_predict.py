"""Lazy predictions for rows on the workers, block by block."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from rankrls.core.ridge.models import FittedFunction
from rankrls.dask._partitions import as_array, features, is_frame
from rankrls.dask._work import Loader

__all__ = ["predict_lazily"]

Array = NDArray[Any]


def predict_lazily(
    model: FittedFunction, X: Any, *, flat: bool, deviation: bool = False
) -> da.Array:
    """Return scores or standard deviations of the rows of a Dask array or data frame.

    Returns
    -------
    dask array of shape (n,) if ``flat``, otherwise (n, n_outputs)
    """
    n_features = len(X.columns) if is_frame(X) else X.shape[1]
    rows, dtype = features(X)
    if is_frame(X):
        X = as_array(rows, n_features, dtype, lambda i: Loader(i, dtype, n_features))
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    coefficients = model.coef if model.coef is not None else model.dual_coef
    assert coefficients is not None
    result = np.dtype(np.float64) if deviation else np.result_type(dtype, coefficients.dtype)
    values = X.map_blocks(
        _predict,
        model=dask.delayed(model, traverse=False),
        load=Loader(-1, dtype, n_features),
        deviation=deviation,
        dtype=result,
        chunks=(X.chunks[0], (model.n_outputs,)),
        meta=np.empty((0, 0), dtype=result),
    )
    return values[:, 0] if flat else values


def _predict(
    block: Any,
    model: FittedFunction,
    load: Loader,
    deviation: bool,
    block_id: tuple[int, ...] = (0,),
) -> Array:
    X = Loader(block_id[0], load.dtype, load.n_features)([block])
    if X.shape[0] == 0:
        return np.empty((0, model.n_outputs), dtype=load.dtype)
    return np.sqrt(model.variance(X)) if deviation else model.predict(X)
