"""A pipeline that is linear from end to end as one weight for each feature."""

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
    """Scores ⟨weights, x⟩ + constant of rows x as the estimator's ``fit`` was given them.

    Attributes
    ----------
    weights : ndarray of shape (n_features,), float64
    constant : float
        The same for every row, so that it changes no ranking. Zero without a scaler that
        shifts the features.
    feature_names : list of str or None
        Names that the estimator was fitted with.
    """

    weights: Array
    constant: float
    feature_names: list[str] | None


def linear_scores(
    estimator: Any, *, output: int | None = None, missing: str = "zero"
) -> LinearScores:
    """Weights of the original features that score as a fitted estimator does.

    Parameters
    ----------
    estimator : fitted estimator with a linear kernel
        `RankRLS`, `RankRLSCV`, `RankSVM`, `GreedyRankRLS`, a ``Pipeline`` that ends in one of them,
        or a search with its best estimator. Steps of a pipeline may be StandardScaler,
        MinMaxScaler, MaxAbsScaler, RobustScaler, PCA, TruncatedSVD and feature selectors, and a
        SimpleImputer that fills with 0, which is what a missing feature counts in a weighted sum.
    output : int, optional
        Which output, of a model with several.
    missing : {"zero", "ignore"}, default="zero"
        What a missing feature is in a weighted sum: 0, so that only imputers that fill in 0 can be
        folded into the weights; or that rows have all features, and imputers do not matter.

    Returns
    -------
    LinearScores

    Notes
    -----
    With z = s ∘ x + t from a scaler, ⟨w, z⟩ = ⟨w ∘ s, x⟩ + ⟨w, t⟩: the weights are divided by what
    the features were divided by, and what was subtracted from them becomes one constant.

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
    """`linear_scores` of an estimator that was taken apart; ``target`` is for the messages."""
    ranker = parts.ranker
    if not hasattr(ranker, "coef_"):
        raise ValueError(
            f"kernel={ranker.kernel!r} has no weights of the features, and {target} is all "
            "that the format has: fit with kernel='linear' (with more features, if need be), or "
            "export the kernel model with to_onnx"
        )
    W = np.atleast_2d(np.asarray(ranker.coef_, dtype=np.float64)).T
    w = W[:, choose_output(W.shape[1], output)][:, None]
    constant = 0.0
    for i, step in reversed(list(enumerate(parts.steps))):
        if isinstance(step, Imputation) and not (complete or step.takes_zero(parts.steps[:i])):
            raise ValueError(
                "a SimpleImputer cannot be folded into the weights, because a missing feature "
                "counts as 0 in a weighted sum: make it the first step with "
                "SimpleImputer(strategy='constant', fill_value=0), or export with to_onnx, or fill "
                "missing values before they reach the model and export what comes after it"
            )
        affine = step.affine if isinstance(step, Imputation) else step
        w, shift = affine.pull(w)
        constant += float(shift[0])
    if not (np.isfinite(w).all() and np.isfinite(constant)):
        where = np.flatnonzero(~np.isfinite(w[:, 0]))
        what = f"the weight of feature {where[0]} (from 0) is" if len(where) else "the constant is"
        raise ValueError(
            f"{what} not finite after folding the scaling into it: check the model for NaN, and "
            "the scaler for features that are all but constant"
        )
    return LinearScores(w[:, 0], constant, parts.feature_names)


def elementwise(parts: Parts) -> tuple[Array, Array, Array]:
    """Steps that scale features one by one, as z = x[columns] ∘ scale + shift.

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
                "normalizers are for scalers of single features, and the pipeline mixes features "
                "(PCA, TruncatedSVD): leave out normalizers"
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
    """Which column to export; it must be said if there are several."""
    if output is None:
        if n_outputs > 1:
            raise ValueError(
                f"the model has {n_outputs} outputs, and one ranking is exported at a time: say "
                f"which, output=0 … {n_outputs - 1}"
            )
        return 0
    column = check_integer("output", output, least=0)
    if column >= n_outputs:
        raise ValueError(f"output={column}, but the model has {n_outputs} output(s), from 0")
    return column
