"""Conditional ranking on relations: observed cells, closed forms, iteration, hold-out."""
