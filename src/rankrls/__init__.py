"""Learning to rank by regularised least squares."""

__version__ = "0.1.0"
