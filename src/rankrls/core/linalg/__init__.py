"""Linear algebra and optimisation, independent of preferences."""
