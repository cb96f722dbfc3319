"""Fitted models: what a solver found, as functions of new rows."""

from rankrls.models._build import Fit, fit_model, solve_statistics
from rankrls.models._choice import SOLVERS
from rankrls.models._iterative import HeldOut, IterativeModel
from rankrls.models._models import KernelModel, LinearModel, Model, NystroemModel

__all__ = [
    "SOLVERS",
    "Fit",
    "HeldOut",
    "IterativeModel",
    "KernelModel",
    "LinearModel",
    "Model",
    "NystroemModel",
    "fit_model",
    "solve_statistics",
]
