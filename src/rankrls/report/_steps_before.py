"""Preprocessing of the features: encoding, imputation and scaling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array

from rankrls._frames import RawTable
from rankrls.preprocessing import QueryScaler, TableEncoder
from rankrls.report._data import Rankings

__all__ = ["Steps", "encoder_of"]


def encoder_of(*tables: Any) -> TableEncoder | None:
    """Return an encoder for raw tables, which keeps id columns; None if they are numeric."""
    return None if all(map(_is_numeric, tables)) else TableEncoder(drop_ids=False)


def _is_numeric(X: Any) -> bool:
    """Whether a table has neither text nor missing values."""
    if sparse.issparse(X):
        return True
    if isinstance(X, RawTable):
        return False
    values = np.asarray(X)
    return values.dtype.kind in "biuf" and bool(np.isfinite(values).all())


class Steps:
    """An optional imputer and an optional scaler.

    Parameters
    ----------
    imputer, scaler : unfitted transformer or None

    Attributes
    ----------
    imputer, scaler : fitted by ``fit=True``
    """

    def __init__(self, imputer: Any, scaler: Any) -> None:
        for name, step in (("imputer", imputer), ("scaler", scaler)):
            if step is not None and (isinstance(step, type) or not hasattr(step, "transform")):
                raise ValueError(f"{name} must have fit and transform; got {step!r}")
        self.imputer = None if imputer is None else clone(imputer)
        self.scaler = None if scaler is None else clone(scaler)

    @property
    def by_query(self) -> bool:
        """Whether the scaler takes qid."""
        return isinstance(self.scaler, QueryScaler)

    def fill_in(self, X: Any, *, fit: bool = False) -> Any:
        """Impute missing features."""
        if self.imputer is None:
            return X
        if isinstance(self.imputer, TableEncoder):
            return self.imputer.fit_transform(X) if fit else self.imputer.transform(X)
        kinds = (np.float64, np.float32)
        X = check_array(X, accept_sparse="csr", dtype=kinds, ensure_all_finite="allow-nan")
        return self.imputer.fit_transform(X) if fit else self.imputer.transform(X)

    def fill_in_test(self, test: Any) -> Any:
        """Impute missing features of (X, y, …)."""
        if self.imputer is None or not isinstance(test, tuple | list) or not len(test):
            return test
        return (self.fill_in(test[0]), *test[1:])

    def scale(self, data: Rankings, *, fit: bool = False) -> Rankings:
        """Return rows with scaled features, which also keep the unscaled ones."""
        if self.scaler is None:
            return data
        options = {"qid": data.qid} if self.by_query else {}
        change = self.scaler.fit_transform if fit else self.scaler.transform
        X = change(data.X, **options)
        X = sparse.csr_array(X) if sparse.issparse(X) else X
        return replace(data, X=X, unscaled=data.X)

    def with_model(self, model: Any) -> Any:
        """Return a pipeline of the steps and the fitted model."""
        both = (("impute", self.imputer), ("scale", self.scaler))
        steps = [(name, step) for name, step in both if step is not None]
        return Pipeline([*steps, ("rank", model)]) if steps else model
