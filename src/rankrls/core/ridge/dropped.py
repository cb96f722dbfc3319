"""A solver whose factorisation was not kept."""

from __future__ import annotations

from typing import Any, NoReturn

from numpy.typing import NDArray

__all__ = ["DroppedSolver"]


class DroppedSolver:
    """Stands where a solver was: it knows which outputs were its own, and answers nothing.

    Parameters
    ----------
    outputs : ndarray of shape (k,), int
    """

    def __init__(self, outputs: NDArray[Any]) -> None:
        self.outputs = outputs

    def variance(self, *args: Any) -> NoReturn:
        """Refuse."""
        raise ValueError(
            "this model was saved without what uncertainties and updates need "
            "(uncertainty=False): it can predict scores; for return_std, preference_proba, "
            "log_marginal_likelihood, partial_fit and forget fit it again, or save it with "
            "uncertainty=True"
        )

    difference_variance = variance
    log_marginal_likelihood = variance
    statistics = variance
