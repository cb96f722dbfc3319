"""Fitted models: what a solver found, as functions of new rows."""

from rankrls.models._build import Fit, fit_model, solve_statistics
from rankrls.models._choice import SOLVERS
from rankrls.models._hinge import HINGE_SOLVERS, HingeFit, HingeModel, HingeOptions, fit_hinge
from rankrls.models._iterative import HeldOut, IterativeModel
from rankrls.models._models import KernelModel, LinearModel, Model, NystroemModel, predict_path

__all__ = [
    "HINGE_SOLVERS",
    "SOLVERS",
    "Fit",
    "HeldOut",
    "HingeFit",
    "HingeModel",
    "HingeOptions",
    "IterativeModel",
    "KernelModel",
    "LinearModel",
    "Model",
    "NystroemModel",
    "fit_hinge",
    "fit_model",
    "predict_path",
    "solve_statistics",
]
