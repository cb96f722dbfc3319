"""What all rankers share: checking what they are given, predicting, scoring."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from rankrls._validation import clear_errors
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.spaces.kernels import Kernel, check_gram
from rankrls.estimators.inputs import (
    graph_accuracy,
    graph_from_arguments,
    require_preferences,
)

__all__ = ["Ranker", "canonical"]

Array = NDArray[Any]


class Ranker(BaseEstimator):
    """An estimator whose ``_model`` predicts scores from rows of X.

    A model has ``coef``, ``dual_coef`` (or None), ``n_outputs`` and ``predict(X, index)`` for the
    alpha of that index; one of basis vectors has ``basis``.
    """

    kernel: Any
    gamma: float | None
    degree: float
    coef0: float
    kernel_params: dict[str, Any] | None
    query_weighting: str
    solver: str
    basis: Any
    max_iter: int | None
    tol: float
    random_state: Any
    verbose: int
    n_jobs: int | None

    _model: Any
    _flat: bool
    _with_qid: bool

    @abstractmethod
    def _check_options(self) -> Kernel:
        """Check the parameters that do not depend on the data, and make the kernel."""

    @property
    @abstractmethod
    def _keeps_columns(self) -> bool:
        """Whether sparse X in CSC format may stay so."""

    def _check_kernel(self) -> Kernel:
        return Kernel.from_options(
            self.kernel,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            kernel_params=self.kernel_params,
            n_jobs=self.n_jobs,
        )

    def _prepare(
        self, X: Any, y: Any, preferences: dict[str, Any]
    ) -> tuple[Kernel, Any, PreferenceGraph]:
        """Check everything that does not need a solver: kernel, X, and the preference graph."""
        kernel = self._check_options()
        with clear_errors(X):
            X = validate_data(
                self,
                X,
                accept_sparse=("csr", "csc"),
                dtype=(np.float64, np.float32),
                ensure_min_samples=2,
            )
        graph = graph_from_arguments(X.shape[0], y, **preferences)
        require_preferences(graph)
        X = canonical(X, dense=kernel.precomputed, columns=self._keeps_columns)
        if kernel.precomputed:
            check_gram(X)
        return kernel, X, graph

    def _store_coefficients(self) -> None:
        for name in ("coef_", "dual_coef_", "basis_indices_"):
            self.__dict__.pop(name, None)
        model = self._model
        if model.coef is not None:
            self.coef_ = model.coef[0][:, 0] if self._flat else model.coef[0].T
        if model.dual_coef is not None:
            self.dual_coef_ = self._outputs(model.dual_coef[0])
        basis = getattr(model, "basis", None)
        if basis is not None:
            self.basis_indices_ = basis.indices

    def _outputs(self, values: Array) -> Array:
        """Drop the axis of outputs if y had none."""
        return values[..., 0] if self._flat else values

    def _check_new(self, X: Any) -> Any:
        check_is_fitted(self)
        return self._check_rows(X)

    def _check_rows(self, X: Any) -> Any:
        with clear_errors(X):
            X = validate_data(
                self, X, accept_sparse=("csr", "csc"), dtype=(np.float64, np.float32), reset=False
            )
        return canonical(X, dense=self.kernel == "precomputed")

    def predict(self, X: Any) -> Any:
        """Predict scores; higher is preferred.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
            Kernel values with all training rows, (n, n_rows), if the kernel is precomputed.

        Returns
        -------
        ndarray of shape (n,) or (n, n_outputs)
        """
        X = self._check_new(X)
        return self._outputs(self._model.predict(X))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def score(self, X: Any, y: Any, qid: Any = None, sample_weight: Any = None) -> float:
        """Pairwise accuracy, mean over the queries that have a pair.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
        y : array-like of shape (n,) or (n, n_outputs), or PreferenceGraph
        qid : array-like of shape (n,)
            Required if the model was fitted with qid.
        sample_weight : array-like of shape (n,), optional
            A pair counts the product of its rows' weights.

        Returns
        -------
        float
            1 − `rankrls.metrics.pairwise_error` (tied predictions count ½), averaged over
            outputs.
        """
        check_is_fitted(self)
        if self._with_qid and qid is None and not isinstance(y, PreferenceGraph):
            raise ValueError(
                "the model was fitted with qid, so score needs qid too: without it rows of "
                "different queries would be compared (in a search or a pipeline qid "
                "arrives only with enable_metadata_routing and set_score_request(qid=True))"
            )
        predictions = self.predict(X)
        graph = graph_from_arguments(len(predictions), y, qid=qid, sample_weight=sample_weight)
        if graph.n_outputs != self._model.n_outputs:
            raise ValueError(
                f"the model has {self._model.n_outputs} output(s), y has {graph.n_outputs}"
            )
        require_preferences(graph, "evaluate")
        return graph_accuracy(graph, predictions)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "ranker"
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


def canonical(X: Any, *, dense: bool, columns: bool = False) -> Any:
    """Sparse X as CSR without duplicate entries (the caller's is left alone), or dense.

    ``columns``: CSC may stay as it is.
    """
    if not sparse.issparse(X):
        return X
    if dense:
        return X.toarray()
    rows = X if columns else X.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy() if rows is X or np.shares_memory(rows.data, X.data) else rows
        rows.sum_duplicates()
    return rows
