"""What a model has learned from so far, as sums: to be added to, taken from, and solved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls import _memory
from rankrls.core.linalg.factorizations import NotPositiveError
from rankrls.core.preferences.accumulate import Accumulator, batch_statistics
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.ridge.build import solve_statistics
from rankrls.core.ridge.models import Model, NystroemModel
from rankrls.core.spaces.nystroem import Basis
from rankrls.estimators.ledger import Ledger

__all__ = ["Learned", "preference_counts"]

Array = NDArray[Any]


@dataclass
class Learned:
    """Statistics of queries, and which queries they are of.

    Attributes
    ----------
    total : Accumulator
        Sums of the features, or of the Nyström features of ``basis``.
    basis : Basis or None
    dtype : of the coefficients: float32 if all rows were
    flat : bool
        Whether y is a vector.
    preferences : ndarray of shape (n_outputs,), int
        Queries and given pairs that say something, for every output.
    ledger : Ledger
        Shared with the model, so that it is changed last.
    """

    total: Accumulator
    basis: Basis | None
    dtype: Any
    flat: bool
    preferences: Array
    ledger: Ledger

    @classmethod
    def nothing(cls, X: Any, basis: Basis | None, n_outputs: int, flat: bool) -> Learned:
        """Before the first batch, which has rows like X."""
        n = X.shape[1] if basis is None else len(basis.map.kept)
        advice = "use fewer features, or fewer basis vectors (solver='nystroem')"
        _memory.require("learning batch by batch", n, n, copies=3, advice=advice)
        total = Accumulator.zero(n, n_outputs)
        preferences = np.zeros(n_outputs, dtype=np.int64)
        return cls(total, basis, X.dtype, flat, preferences, Ledger())

    @classmethod
    def by(cls, model: Model, flat: bool, preferences: Array, ledger: Ledger) -> Learned:
        """What a primal or Nyström model has learned: its solvers hold the sums."""
        total = Accumulator(solver.statistics() for solver in model.solvers)
        basis = model.basis if isinstance(model, NystroemModel) else None
        coefficients = model.coef if basis is None else model.dual_coef
        assert coefficients is not None
        return cls(total, basis, coefficients.dtype, flat, preferences, ledger)

    def copy(self) -> Learned:
        """The same with sums in new arrays."""
        total = Accumulator(part.copy() for part in self.total.parts)
        return Learned(total, self.basis, self.dtype, self.flat, self.preferences, self.ledger)

    def add(self, graph: PreferenceGraph, X: Any, loss: dict[str, str]) -> None:
        """Add whole queries to the sums (the ledger is left alone)."""
        self.total.add(self._statistics(graph, X, loss))
        self.preferences = self.preferences + preference_counts(graph)
        self.dtype = np.result_type(self.dtype, X.dtype)

    def subtract(self, graph: PreferenceGraph, X: Any, loss: dict[str, str]) -> None:
        """Take them away again, or raise where they cannot have been added."""
        eps = float(max(np.finfo(self.dtype).eps, np.finfo(X.dtype).eps))
        # Half of the digits: features with an offset have lost some, and an error for rows that
        # were added would be worse than a missed one.
        rounding = eps if self.basis is None else max(eps, self.basis.map.rounding)
        self.total.subtract(self._statistics(graph, X, loss), eps, 100 * float(np.sqrt(rounding)))
        self.preferences = self.preferences - preference_counts(graph)

    def features(self, X: Any) -> Any:
        """Φ of shape (m, n): X itself, or the Nyström features."""
        return X if self.basis is None else self.basis.features(X)

    def _statistics(self, graph: PreferenceGraph, X: Any, loss: dict[str, str]) -> Any:
        return batch_statistics(graph, self.features(X), loss)

    def model(self, alpha: float) -> Model | None:
        """The model, which takes over the arrays; None if an output has no preference yet.

        Sums of queries are positive semi-definite, and differences of such sums but for rounding.
        """
        if not (self.preferences > 0).all():
            return None
        try:
            return solve_statistics(self.total.parts, self.basis, np.array([alpha]), self.dtype)
        except NotPositiveError as error:
            raise ValueError(
                "what was forgotten has left rounding errors of the size of "
                f"{error.needed:.2g} in the sums of what stays, which alpha={alpha:g} does not "
                "cover: the model was left as it was before this call. Fit a new one to the rows "
                f"that stay, or use alpha above {error.needed:.2g} from the start"
            ) from error


def preference_counts(graph: PreferenceGraph) -> Array:
    """Queries and given pairs that say something, shape (n_outputs,), int."""
    return graph.preference_counts + np.count_nonzero(graph.pair_weight > 0)
