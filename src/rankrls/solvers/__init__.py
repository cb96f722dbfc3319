"""Solvers: from an objective (L, r) and features or a kernel to coefficients."""

from rankrls.solvers._converge import converge
from rankrls.solvers._direct import DualSolver, PrimalSolver
from rankrls.solvers._dropped import DroppedSolver
from rankrls.solvers._early_stopping import stop_early
from rankrls.solvers._hinge import HingeSolution, minimise_hinge
from rankrls.solvers._iterations import (
    DEFAULT_MAX_ITER,
    Equations,
    History,
    Iteration,
    IterationOptions,
    LinearSystem,
)
from rankrls.solvers._spaces import MAX_DIMENSION, FeatureSpace, Gram, KernelSpace, Space
from rankrls.solvers._states import CholeskyState, NotPositiveError, SpectralState, factorise

__all__ = [
    "DEFAULT_MAX_ITER",
    "MAX_DIMENSION",
    "CholeskyState",
    "DroppedSolver",
    "DualSolver",
    "Equations",
    "FeatureSpace",
    "Gram",
    "HingeSolution",
    "History",
    "Iteration",
    "IterationOptions",
    "KernelSpace",
    "LinearSystem",
    "NotPositiveError",
    "PrimalSolver",
    "Space",
    "SpectralState",
    "converge",
    "factorise",
    "minimise_hinge",
    "stop_early",
]
