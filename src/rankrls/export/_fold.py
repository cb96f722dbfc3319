"""Folding of a linear pipeline into one weight for each feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import check_integer, check_option
from rankrls.export._steps import Imputation, Parts, take_apart

__all__ = ["LinearScores", "choose_output", "elementwise", "fold", "linear_scores"]

Array = NDArray[Any]


@dataclass(frozen=True)
class LinearScores:
    """Scores ⟨weights, x⟩ + constant for rows x in the form passed to the estimator's ``fit``.

    Attributes
    ----------
    weights : ndarray of shape (n_features,), float64
    constant : float
        Constant term, equal for all rows, so it does not change the ranking. It is zero if no
        scaler shifts the features.
    feature_names : list of str or None
        Feature names seen in ``fit``.
    """

    weights: Array
    constant: float
    feature_names: list[str] | None


def linear_scores(
    estimator: Any, *, output: int | None = None, missing: str = "zero"
) -> LinearScores:
    """Compute weights of the original features that give the scores of a fitted estimator.

    Parameters
    ----------
    estimator : fitted estimator with a linear kernel
        `RankRLS`, `RankRLSCV`, `RankSVM`, `GreedyRankRLS`, a ``Pipeline`` that ends in one of them,
        or a search with its best estimator. Steps of a pipeline can be StandardScaler,
        MinMaxScaler, MaxAbsScaler, RobustScaler, PCA, TruncatedSVD, feature selectors, and a
        SimpleImputer that fills with 0 (see ``missing``).
    output : int, optional
        Index of the output to export, for a model with several.
    missing : {"zero", "ignore"}, default="zero"
        Treatment of missing features. "zero" assumes that a missing feature counts as 0 in the
        weighted sum, so only imputers that fill with 0 can be folded into the weights. "ignore"
        assumes that rows have no missing features and ignores imputers.

    Returns
    -------
    LinearScores

    Notes
    -----
    With z = s ∘ x + t from a scaler, ⟨w, z⟩ = ⟨w ∘ s, x⟩ + ⟨w, t⟩: the scale of the features is
    multiplied into the weights, and their shift becomes one constant.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from rankrls import RankRLS
    >>> from rankrls.export import linear_scores
    >>> X = np.array([[1.0, 200.0], [2.0, 100.0], [3.0, 400.0], [4.0, 300.0]])
    >>> ranker = make_pipeline(StandardScaler(), RankRLS()).fit(X, [0, 1, 2, 3])
    >>> folded = linear_scores(ranker)
    >>> bool(np.allclose(X @ folded.weights + folded.constant, ranker.predict(X)))
    True
    """
    check_option("missing", missing, ("zero", "ignore"))
    return fold(take_apart(estimator), output=output, complete=missing == "ignore")


def fold(
    parts: Parts,
    *,
    output: int | None,
    target: str = "a weight for each feature",
    complete: bool = False,
) -> Any:
    """Compute `linear_scores` from the parts of an estimator; error messages name ``target``."""
    ranker = parts.ranker
    if not hasattr(ranker, "coef_"):
        raise ValueError(
            f"kernel={ranker.kernel!r} has no feature weights, and the format holds only {target}; "
            "fit with kernel='linear' (with more features, if needed), or "
            "export the kernel model with to_onnx"
        )
    W = np.atleast_2d(np.asarray(ranker.coef_, dtype=np.float64)).T
    w = W[:, choose_output(W.shape[1], output)][:, None]
    constant = 0.0
    for i, step in reversed(list(enumerate(parts.steps))):
        if isinstance(step, Imputation) and not (complete or step.takes_zero(parts.steps[:i])):
            raise ValueError(
                "a SimpleImputer cannot be folded into the weights, because a missing feature "
                "counts as 0 in a weighted sum; make it the first step with "
                "SimpleImputer(strategy='constant', fill_value=0), export with to_onnx, or fill "
                "missing values beforehand and export the steps after the imputer"
            )
        affine = step.affine if isinstance(step, Imputation) else step
        w, shift = affine.pull(w)
        constant += float(shift[0])
    if not (np.isfinite(w).all() and np.isfinite(constant)):
        where = np.flatnonzero(~np.isfinite(w[:, 0]))
        what = f"the weight of feature {where[0]} (from 0) is" if len(where) else "the constant is"
        raise ValueError(
            f"{what} not finite after folding the scaling into it; check the model for NaN, and "
            "the scaler for features that are nearly constant"
        )
    return LinearScores(w[:, 0], constant, parts.feature_names)


def elementwise(parts: Parts) -> tuple[Array, Array, Array]:
    """Combine steps that scale single features into z = x[columns] ∘ scale + shift.

    Returns
    -------
    columns : ndarray of shape (n_out,), int
    scale, shift : ndarray of shape (n_out,)
    """
    columns = np.arange(parts.n_features)
    scale, shift = np.ones(len(columns)), np.zeros(len(columns))
    for step in parts.steps:
        affine = step.affine if isinstance(step, Imputation) else step
        if affine.matrix is not None:
            raise ValueError(
                "normalizers=True needs scalers of single features, and the pipeline mixes "
                "features "
                "(PCA, TruncatedSVD); use normalizers=False"
            )
        if affine.columns is not None:
            chosen = affine.columns
            columns, scale, shift = columns[chosen], scale[chosen], shift[chosen]
        if affine.scale is not None:
            scale, shift = scale * affine.scale, shift * affine.scale
        if affine.shift is not None:
            shift = shift + affine.shift
    return columns, scale, shift


def choose_output(n_outputs: int, output: int | None) -> int:
    """Return the column to export; ``output`` is required if there are several."""
    if output is None:
        if n_outputs > 1:
            raise ValueError(
                f"the model has {n_outputs} outputs, and one ranking is exported at a time; choose "
                f"one by output=0 … {n_outputs - 1}"
            )
        return 0
    column = check_integer("output", output, least=0)
    if column >= n_outputs:
        raise ValueError(f"output={column}, but the model has {n_outputs} output(s), from 0")
    return column
