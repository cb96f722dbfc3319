"""Regularised least squares: problems, fitted models and exact held-out predictions."""
