"""Solvers: from an objective (L, r) and features or a kernel to coefficients."""

from rankrls.solvers._direct import DualSolver, PrimalSolver
from rankrls.solvers._states import CholeskyState, SpectralState, factorise

__all__ = ["CholeskyState", "DualSolver", "PrimalSolver", "SpectralState", "factorise"]
