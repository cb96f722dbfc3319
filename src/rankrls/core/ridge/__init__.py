"""Regularised least squares: one problem, decomposed once, asked many times."""
