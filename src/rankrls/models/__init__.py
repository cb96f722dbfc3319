"""Fitted models: what a solver found, as functions of new rows."""

from rankrls.models._choice import SOLVERS, choose_solver
from rankrls.models._models import KernelModel, LinearModel, Model, NystroemModel

__all__ = ["SOLVERS", "KernelModel", "LinearModel", "Model", "NystroemModel", "choose_solver"]
