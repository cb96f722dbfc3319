"""Linear algebra and optimisation that know nothing of preferences."""
